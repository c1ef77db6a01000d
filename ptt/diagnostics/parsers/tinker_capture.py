"""What Tinker's capture leaves as JSON lines or SQLite: sampled tokens with log-probabilities, and training calls.

Lines `capture/sample.jsonl`, `capture/train_op.jsonl`: tinker_cookbook/capture/instrument.py; table `wire_rows`:
tinker_cookbook/capture/store/schema.py, db.py (read in togethercomputer/tinker-cookbook). The turns of a trajectory
are calls with one scope (run_id, iteration, group_idx, traj_idx), joined by the growth of their prompts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from ptt.diagnostics.parsers.io.calls import (
    Call,
    Joined,
    SequenceRows,
    Sessions,
    TokenRow,
    logp_array,
    lost_rows,
    name_of,
    number,
    respelt,
    token_array,
    whole,
)
from ptt.diagnostics.parsers.io.interface import Context, Lost, Parser, Piece, Rows, RunFile
from ptt.diagnostics.parsers.io.lines import blocks, first_objects, is_torn, json_object, torn_line
from ptt.diagnostics.parsers.io.metric_rows import MetricColumns, as_seconds
from ptt.diagnostics.parsers.io.sqlite import (
    DAMAGE,
    is_database,
    json_cell,
    open_database,
    rows_past_damage,
    tables_of,
    unreadable,
    wal_note,
)

TABLE: Final = "wire_rows"
ROWS: Final = "SELECT cursor, * FROM wire_rows WHERE cursor > ? ORDER BY cursor"
SCOPE: Final = ("run_id", "run_attempt", "split", "iteration", "group_idx", "traj_idx", "purpose")
NEEDED: Final = frozenset({"cursor", "run_id", "iteration", "prompt_tokens", "sampled_tokens", "logprobs"})
TRAINED: Final = frozenset({None, "", "train", "training", "rollout"})


def recognises(file: RunFile) -> bool:
    """Say yes by the keys of the first line, or by the table of a database."""
    if is_database(file):
        return NEEDED.issubset(tables_of(file).get(TABLE, ()))
    found = first_objects(file, 1)
    if not found or not isinstance(found[0].get("scope"), dict):
        return False
    kind = found[0].get("kind")
    return (kind == "sample" and "num_samples" in found[0]) or (kind == "train_op" and "op" in found[0])


def read(file: RunFile) -> Iterator[Piece]:
    """Yield sequences, one a sampled trajectory, and the metrics of training calls."""
    reader = _Reader(file)
    yield from _database(file, reader) if is_database(file) else _lines(file, reader)
    yield from reader.close()
    yield Context(facts={"framework": "tinker"})


def _lines(file: RunFile, reader: _Reader) -> Iterator[Piece]:
    for block in blocks(file):
        if isinstance(block, Lost):
            yield block
            continue
        for line in filter(bytes.strip, block.split(b"\n")):
            found = json_object(line)
            if found is None and is_torn(block):
                yield torn_line(file, line)
            elif found is None or not isinstance(found.get("scope"), dict):
                reader.bad += 1
            elif found.get("kind") == "train_op":
                reader.add_metrics(found)
            elif found.get("kind") == "sample":
                yield from reader.add_record(found)
        yield from reader.take()


def _database(file: RunFile, reader: _Reader) -> Iterator[Piece]:
    if told := wal_note(file):
        yield told
    held = tables_of(file).get(TABLE, ())
    if not NEEDED.issubset(held):
        yield Lost(bytes=file.size, note=f"{file.rel}: its table of sampled sequences could not be read.")
        return
    try:
        with open_database(file.path) as connection:
            for row in rows_past_damage(connection, ROWS):
                if isinstance(row, Lost):
                    yield Lost(rows=row.rows, bytes=row.bytes, note=f"{file.rel}: {row.note}")
                else:
                    yield from reader.add_wire(dict(zip(held, row[1:], strict=True)))
    except DAMAGE as error:
        yield unreadable(file, error)


class _Reader:
    """Turns calls into sequences."""

    def __init__(self, file: RunFile) -> None:
        self._file = file
        folder = PurePosixPath(file.rel).parent
        self._root = str(folder.parent if folder.name == "capture" else folder)
        self._sessions, self._sequences, self._metrics = Sessions(), SequenceRows(), MetricColumns()
        self._seen = self._number = self._other = self._unfit = self._respelt = 0
        self.bad = 0

    def add_record(self, found: Mapping[str, Any]) -> Iterator[Piece]:
        """Take one line: a call, which may have sampled several sequences."""
        samples = found.get("samples")
        for sample in samples if isinstance(samples, list) else []:
            taken = sample if isinstance(sample, dict) else {}
            tokens, logps = taken.get("tokens"), taken.get("logprobs")
            version = whole(found.get("model_path")) if found.get("model_path") else whole(found.get("policy_version"))
            yield from self._add(found["scope"], found.get("prompt_tokens"), tokens, logps, version, found)

    def add_wire(self, row: Mapping[str, Any]) -> Iterator[Piece]:
        """Take one row of the database: a sampled sequence."""
        prompt, tokens, logps = (json_cell(row.get(name)) for name in ("prompt_tokens", "sampled_tokens", "logprobs"))
        more = json_cell(row.get("metadata"))
        more = more if isinstance(more, dict) else {}
        yield from self._add(row, prompt, tokens, logps, whole(row.get("policy_version")), more)

    def _add(
        self,
        scope: Mapping[str, Any],
        prompt: Any,
        tokens: Any,
        logps: Any,
        version: int | None,
        more: Mapping[str, Any],
    ) -> Iterator[Piece]:
        ids = token_array(tokens)
        told = {name: scope.get(name) for name in SCOPE}
        if ids is None or not len(ids) or not all(isinstance(value, str | int | None) for value in told.values()):
            self.bad += 1
            return
        if told["split"] not in TRAINED or told["purpose"] not in TRAINED:
            self._other += 1
            return
        fitting = logp_array(logps, len(ids))
        self._unfit += fitting is None
        sampling = more.get("sampling_params")
        told |= {"version": version, "sampling": sampling if isinstance(sampling, dict) else {}}
        before = token_array(prompt)
        call = Call(prompt=ids[:0] if before is None else before, completion=ids, logps=fitting, told=told)
        key = tuple(told[name] for name in SCOPE)
        for joined in self._sessions.add(key, call):
            yield from self._give(joined)

    def _give(self, joined: Joined) -> Iterator[Piece]:
        first = joined.told[0]
        step = whole(first["iteration"])
        if step is None:
            self.bad += 1
            return
        names = [name_of(first[name]) for name in ("run_id", "group_idx", "traj_idx")]
        trajectory = None if names[2] is None else f"{self._root}:train/{step}/{names[1]}/{names[2]}"
        versions = [call["version"] for call in joined.told if call["version"] is not None]
        self._number += 1
        self._respelt += joined.retokenised
        sample = "/".join(name for name in (names[0], str(step), *names[1:]) if name is not None)
        yield from self._sequences.add(
            TokenRow(
                token_ids=joined.token_ids,
                model_mask=joined.model_mask,
                rollout_logp=joined.rollout_logp,
                told={
                    "step": step,
                    "sample_id": f"{sample}#{self._number}",
                    "group_id": None if names[1] is None else f"{names[0] or self._root}/{step}/{names[1]}",
                    "trajectory_id": trajectory,
                    "policy_version": min(versions) if versions else None,
                    "temperature": number(first["sampling"].get("temperature")),
                    "top_p": number(first["sampling"].get("top_p")),
                },
            )
        )

    def add_metrics(self, found: Mapping[str, Any]) -> None:
        """Take one training call: what it returned, as metrics of its iteration."""
        step = whole(found["scope"].get("iteration"))
        measured = found.get("metrics")
        if step is None:
            self.bad += 1
            return
        for name, value in (measured if isinstance(measured, dict) else {}).items():
            read_value = number(value)
            if read_value is not None or value is None:
                label = f"{found.get('op')}/{name}"
                self._metrics.add(step, label, read_value, as_seconds(found.get("created_at")), self._seen)
        self._seen += 1

    def take(self) -> Iterator[Piece]:
        """Yield what is ready."""
        if self._metrics.steps:
            yield Rows(table="metrics", frame=self._metrics.take(self._file.rel))

    def close(self) -> Iterator[Piece]:
        """Yield the rest, and what could not be used."""
        yield from self.take()
        for joined in self._sessions.close():
            yield from self._give(joined)
        yield from self._sequences.take()
        rel = self._file.rel
        yield from lost_rows(self.bad, f"{rel}: {self.bad} record(s) lack an iteration or sampled tokens.")
        if self._unfit:
            yield Lost(note=f"{rel}: {self._unfit} call(s) hold no log-probability for each of their tokens.")
        yield from respelt(rel, self._respelt)
        if self._other:
            note = f"{rel}: {self._other} sampled sequence(s) of evaluations or other purposes are no training data."
            yield Lost(note=note)


PARSER = Parser(
    name="tinker_capture",
    describes="Tinker's captured calls, JSON lines or SQLite: engine log-probabilities by trajectory, training calls.",
    priority=30,
    recognises=recognises,
    read=read,
)
