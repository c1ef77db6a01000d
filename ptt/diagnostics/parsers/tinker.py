"""Tinker: captured calls with sampled tokens and log-probabilities, and summaries of rollouts.

Lines `capture/sample.jsonl`, `capture/train_op.jsonl`: tinker_cookbook/capture/instrument.py; table `wire_rows`:
tinker_cookbook/capture/store/schema.py, db.py (read in togethercomputer/tinker-cookbook). The turns of a trajectory
are calls with one scope (run_id, iteration, group_idx, traj_idx), joined by the growth of their prompts.

Rows of `iteration_*/{train,eval_*}_rollout_summaries.jsonl` (tinker_cookbook/rl/rollout_logging.py) hold rewards, turns
and the age of the sampler, without tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from ptt.diagnostics.parsers.io.calls import (
    RESPELT,
    UNFIT,
    Joined,
    SequenceRows,
    Sessions,
    engine_call,
    joined_row,
    token_array,
)
from ptt.diagnostics.parsers.io.interface import Context, Lost, Parser, Piece, RunFile, count_notes
from ptt.diagnostics.parsers.io.lines import first_objects, line_objects, parse_json
from ptt.diagnostics.parsers.io.metric_rows import MetricColumns
from ptt.diagnostics.parsers.io.sqlite import (
    DAMAGE,
    is_database,
    missing_notes,
    open_database,
    rows_past_damage,
    tables_of,
    unreadable,
)
from ptt.diagnostics.parsers.io.trajectories import Samples, read_samples, scores_of
from ptt.diagnostics.parsers.io.values import as_id, as_int32, as_int64, as_number, as_seconds, dict_of, nested

TABLE: Final = "wire_rows"
ROWS: Final = "SELECT cursor, * FROM wire_rows WHERE cursor > ? ORDER BY cursor"
SCOPE: Final = ("run_id", "run_attempt", "split", "iteration", "group_idx", "traj_idx", "purpose")
NEEDED: Final = frozenset({"cursor", "run_id", "iteration", "prompt_tokens", "sampled_tokens", "logprobs"})
TRAINED: Final = frozenset({None, "", "train", "training", "rollout"})
UNUSABLE: Final = "record(s) skipped: no iteration, or no sampled tokens."
SETTINGLESS: Final = "record(s) with damaged metadata: their sampling temperature is lost."
UNTRAINED: Final = "sampled sequence(s) skipped: from evaluations or other purposes, not training."


def recognises_capture(file: RunFile) -> bool:
    """Recognise a file by the keys of the first line, or by the table of a database."""
    if is_database(file):
        return NEEDED.issubset(tables_of(file).get(TABLE, ()))
    first = next(iter(first_objects(file, 1)), {})
    key = {"sample": "num_samples", "train_op": "op"}.get(str(first.get("kind")))
    return isinstance(first.get("scope"), dict) and key in first


def read_capture(file: RunFile) -> Iterator[Piece]:
    """Yield sequences, one a sampled trajectory, and the metrics of training calls."""
    reader = _Reader(file)
    yield from _database(file, reader) if is_database(file) else _lines(file, reader)
    yield from reader.close()
    yield Context(facts={"framework": "tinker"})


def _lines(file: RunFile, reader: _Reader) -> Iterator[Piece]:
    for record in line_objects(file):
        if isinstance(record, Lost):
            yield record
        elif record is None or not isinstance(record.get("scope"), dict):
            reader.counts[UNUSABLE] += 1
        elif record.get("kind") == "train_op":
            yield from reader.add_metrics(record)
        elif record.get("kind") == "sample":
            yield from reader.add_record(record)


def _database(file: RunFile, reader: _Reader) -> Iterator[Piece]:
    yield from missing_notes(file)
    columns = tables_of(file).get(TABLE, ())
    if not NEEDED.issubset(columns):
        yield Lost(bytes=file.size, note=f"{file.rel}: its table of sampled sequences could not be read.")
        return
    try:
        with open_database(file.path, file.budget) as connection:
            for row in rows_past_damage(connection, file, ROWS):
                if isinstance(row, Lost):
                    yield row
                else:
                    yield from reader.add_wire(dict(zip(columns, row[1:], strict=True)))
    except DAMAGE as error:
        yield unreadable(file, error)


class _Reader:
    """Turns calls into sequences."""

    def __init__(self, file: RunFile) -> None:
        self.counts = dict.fromkeys((UNUSABLE, UNFIT, RESPELT, UNTRAINED, SETTINGLESS), 0)
        self._file = file
        folder = PurePosixPath(file.rel).parent
        self._root = str(folder.parent if folder.name == "capture" else folder)
        self._sessions, self._sequences, self._metrics = Sessions(), SequenceRows(), MetricColumns(file)
        self._train_ops = self._sequence = 0

    def add_record(self, record: Mapping[str, Any]) -> Iterator[Piece]:
        """Add one line: a call, which may have sampled several sequences."""
        samples, version = record.get("samples"), as_int64(record.get("model_path") or record.get("policy_version"))
        for sample in samples if isinstance(samples, list) else []:
            lists = record.get("prompt_tokens"), nested(sample, "tokens"), nested(sample, "logprobs")
            yield from self._add(record["scope"], lists, version, record)

    def add_wire(self, row: Mapping[str, Any]) -> Iterator[Piece]:
        """Add one row of the database: a sampled sequence."""
        prompt, tokens, logps = (parse_json(row.get(name)) for name in ("prompt_tokens", "sampled_tokens", "logprobs"))
        version = as_int64(row.get("policy_version"))
        settings = parse_json(row.get("metadata"))
        self.counts[SETTINGLESS] += settings is None and row.get("metadata") not in (None, "null")
        yield from self._add(row, (prompt, tokens, logps), version, settings)

    def _add(
        self, scope: Mapping[str, Any], lists: tuple[Any, Any, Any], version: int | None, settings: Any
    ) -> Iterator[Piece]:
        """Add one sampled sequence by its `lists`: prompt, tokens and log-probabilities."""
        prompt, tokens, logps = lists
        ids = token_array(tokens)
        call = {name: scope.get(name) for name in SCOPE}
        if ids is None or not len(ids) or not all(isinstance(value, str | int | None) for value in call.values()):
            self.counts[UNUSABLE] += 1
        elif call["split"] not in TRAINED or call["purpose"] not in TRAINED:
            self.counts[UNTRAINED] += 1
        else:
            key = tuple(call.values())
            sampling = {name: as_number(nested(settings, "sampling_params", name)) for name in ("temperature", "top_p")}
            engine = engine_call(token_array(prompt), ids, logps, call | {"version": version, "sampling": sampling})
            self.counts[UNFIT] += engine.logps is None
            for joined in self._sessions.add(key, engine):
                yield from self._put(joined)

    def _put(self, joined: Joined) -> Iterator[Piece]:
        first = joined.told[0]
        step = as_int64(first["iteration"])
        if step is None:
            self.counts[UNUSABLE] += 1
            return
        run, group, trajectory = (as_id(first[name]) for name in ("run_id", "group_idx", "traj_idx"))
        self._sequence += 1
        self.counts[RESPELT] += joined.retokenised
        sample = "/".join(name for name in (run, str(step), group, trajectory) if name is not None)
        columns = {
            "step": step,
            "sample_id": f"{sample}#{self._sequence}",
            "group_id": None if group is None else f"{run or self._root}/{step}/{group}",
            "trajectory_id": None if trajectory is None else f"{self._root}:train/{step}/{group}/{trajectory}",
            "policy_version": min(
                (call["version"] for call in joined.told if call["version"] is not None), default=None
            ),
            **first["sampling"],
        }
        yield from self._sequences.add(joined_row(joined, columns))

    def add_metrics(self, record: Mapping[str, Any]) -> Iterator[Piece]:
        """Add one training call: what it returned, as metrics of its iteration."""
        step, metrics = as_int64(record["scope"].get("iteration")), dict_of(record.get("metrics"))
        if step is None:
            self.counts[UNUSABLE] += 1
            return
        for name, raw in metrics.items():
            value = as_number(raw)
            if value is not None or raw is None:
                when = as_seconds(record.get("created_at"))
                self._metrics.add(step, f"{record.get('op')}/{name}", value, when, self._train_ops)
        self._train_ops += 1
        yield from self._metrics.flush()

    def close(self) -> Iterator[Piece]:
        """Yield the rest, and what could not be used."""
        yield from self._metrics.pieces()
        for joined in self._sessions.close():
            yield from self._put(joined)
        yield from self._sequences.take()
        yield from count_notes(self._file, self.counts, lost=(UNUSABLE,))


CAPTURE = Parser(
    name="tinker_capture",
    describes="Tinker's captured calls, JSON lines or SQLite: engine log-probabilities by trajectory, training calls.",
    held_against="real: tinker-cookbook 0.6.1's exporter and store",
    priority=30,
    recognises=recognises_capture,
    read=read_capture,
)


KEYS: Final = frozenset({"split", "iteration", "group_idx", "traj_idx", "total_reward", "steps"})
NO_TRAJECTORY: Final = "row(s) skipped: no iteration, group or trajectory."


def recognises_rollouts(file: RunFile) -> bool:
    """Recognise a file by the keys of the first row."""
    return any(row.keys() >= KEYS for row in first_objects(file, 1))


def read_rollouts(file: RunFile) -> Iterator[Piece]:
    """Yield one trajectory a row, its turns by the number of their tokens, and the parts of its reward."""
    yield from read_samples(Samples(file, ROLLOUTS.name), line_objects(file), _add, NO_TRAJECTORY)
    yield Context(facts={"framework": "tinker"})


def _add(row: dict[str, Any], samples: Samples) -> bool:
    step, group, member = (as_int64(row.get(name)) for name in ("iteration", "group_idx", "traj_idx"))
    split, steps = row.get("split"), row.get("steps")
    if step is None or group is None or member is None:
        return False
    if not isinstance(split, str) or not isinstance(steps, list):
        return False
    turns = [
        {"turn_idx": at, "role": "assistant", "n_tokens": as_int32(turn.get("ac_len"))}
        for at, turn in enumerate(samples.objects(steps))
    ]
    folder = PurePosixPath(samples.file.rel).parent
    group_id = f"{folder.parent if folder.name.startswith('iteration_') else folder}:{split}/{step}/{group}"
    total, final, tags = as_number(row.get("total_reward")), as_number(row.get("final_reward")), row.get("tags")
    columns = {
        "step": step,
        "split": "train" if split == "train" else "eval",
        "reward": total,
        "n_turns": len(turns),
        "group_id": group_id,
        "env": next((tag for tag in tags if isinstance(tag, str)), None) if isinstance(tags, list) else None,
        "policy_version": as_int64(row.get("sampling_client_step")),
    }
    scores = {"steps": None if total is None or final is None else total - final, "final": final}
    rewards = scores_of({name: score for name, score in scores.items() if score is not None})
    samples.put(f"{group_id}/{member}", columns, turns=turns, rewards=rewards)
    return True


ROLLOUTS = Parser(
    name="tinker_rollouts",
    describes="Tinker's rollout summaries: trajectories with rewards, turn lengths and the sampler's step; no tokens.",
    held_against="real: tinker-cookbook 0.6.1",
    priority=10,
    of_training=False,
    recognises=recognises_rollouts,
    read=read_rollouts,
)
