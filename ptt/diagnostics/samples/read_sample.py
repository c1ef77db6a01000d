"""Find a sample by its name, and read what the store and the run's files hold of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.metrics.recording import how_to_record
from ptt.diagnostics.parsers.io.interface import RunFile
from ptt.diagnostics.samples.sample import (
    Measured,
    Missing,
    Sample,
    Sibling,
    ToolCall,
    Turn,
    measure_tails,
    scrubbed,
    shortest_observation,
    token_table,
)
from ptt.diagnostics.samples.tokenizer import read_tokenizer
from ptt.diagnostics.schema import LOGPS, SEQUENCES, named_episodes
from ptt.diagnostics.statistics.tail_curves import Profile
from ptt.diagnostics.store.deduplicate_sources import SequenceFile
from ptt.diagnostics.store.sample_rows import (
    SINGLE,
    advantages_of,
    beside,
    file_of,
    rows_of_step,
    scan_table,
    tokens_of,
)
from ptt.diagnostics.store.scan import ATTRIBUTE, SequenceScan

PLACE: Final = re.compile(r"(-?\d{1,18}):(\d{1,18})")
MAX_NAMED: Final = 8  # samples that an error names
MAX_COMPARED: Final = 20_000  # ids that a misspelt one is compared with: difflib takes a second for these

NAMES: Final = ("trajectory_id", "sample_id", "step", "group_id", "prompt_hash", "token_hash", "source")
MAX_TURNS: Final = 5_000  # messages of one sample; beyond it no transcript is read

OF_TRAJECTORY: Final = (
    "reward", "advantage", "split", "env", "policy_version", "success", "truncated", "stop_reason", "error_type",
)  # fmt: skip
HEADER: Final = tuple(name for name in SINGLE if name not in {"step", "token_hash", "advantage"})
READ_SAMPLES: Final = "log samples in a format that ptt reads (docs/formats.md)"
MAX_SIBLINGS: Final = 256  # of a prompt group; the largest in use have 64
ReadTexts = Callable[[str], Path | None]
"""From a file of samples to a store that holds their texts; None where it cannot be read again."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """The number of a sequence, or the id of a trajectory without tokens."""

    seq: int | None = None
    trajectory: str | None = None


def find_sample(name: str, index: pl.DataFrame, files: Sequence[SequenceFile], trajectories: pl.DataFrame) -> Found:
    """Return what `name` stands for; SettingsError where it stands for nothing, or for several samples.

    `index`: the sequences with step, place and ids. `trajectories`: as `trajectory_names` returns them.
    """
    for column in ("sample_id", "trajectory_id"):
        if column in index.columns and (found := index.filter(pl.col(column) == name)).height:
            return Found(seq=_only(name, column, found))
    if (seq := _in_file(name, files)) is not None:
        return Found(seq=seq)
    if match := PLACE.fullmatch(name):
        step, place = int(match[1]), int(match[2])
        if not (rows := index.filter(pl.col("step") == step)).is_empty():
            return Found(seq=_at(rows, step, place))
        if not (samples := trajectories.filter(pl.col("step") == step)).is_empty():
            if place >= samples.height:
                raise SettingsError(f"step {step} has samples 0 to {samples.height - 1}, and no {place}.")
            return Found(trajectory=samples["trajectory_id"][place])
    for column in ("name", "trajectory_id", "sample_id"):
        found = trajectories.filter(pl.col(column) == name)
        if found.height == 1:
            return Found(trajectory=found["trajectory_id"][0])
        if found.height:
            ids = found["name"].to_list()
            raise SettingsError(f"{name} is the {column} of {found.height} samples: {_named(ids)}; give one of these.")
    raise SettingsError(f"{name}: no sample has this name; {_near(name, index, trajectories)}")


def _only(name: str, column: str, found: pl.DataFrame) -> int:
    if found.height > 1:
        keys = [key_of(row) for row in found.head(MAX_NAMED + 1).iter_rows(named=True)]
        raise SettingsError(
            f"{name} is the {column} of {found.height} sequences, as STEP:ROW: {_named(keys, found.height)}; "
            "give one of these."
        )
    return int(found["seq"][0])


def _at(rows: pl.DataFrame, step: int, place: int) -> int:
    found = rows.filter(pl.col("place") == place)
    if found.is_empty():
        raise SettingsError(f"step {step} has rows 0 to {rows.height - 1}, and no {place}.")
    return int(found["seq"][0])


def _in_file(name: str, files: Sequence[SequenceFile]) -> int | None:
    path, _, number = name.rpartition(":")
    parts = [file for file in files if file.name == path]
    if not parts or not number.isdecimal() or len(number) > 18:
        return None
    row = int(number)
    for file in parts:
        if file.first_row <= row < file.first_row + file.rows:
            return file.start + row - file.first_row
    last = max(file.first_row + file.rows for file in parts) - 1
    raise SettingsError(f"{path} has rows 0 to {last}, and no {row}.")


def key_of(row: dict[str, object]) -> str:
    """Return STEP:ROW of a row of the index."""
    return f"{row['step']}:{row['place']}"


def _near(name: str, index: pl.DataFrame, trajectories: pl.DataFrame) -> str:
    """Say what may be meant: samples of the prompt group of this name, ids like it, or a name that there is."""
    if "group_id" in index.columns and (group := index.filter(pl.col("group_id") == name)).height:
        keys = [key_of(row) for row in group.head(MAX_NAMED + 1).iter_rows(named=True)]
        return f"it is a prompt group with the sequences {_named(keys, group.height)}."
    if match := PLACE.fullmatch(name):
        steps = pl.concat([index["step"], trajectories["step"]]).drop_nulls().unique().sort()
        if len(steps):
            near = steps[int((steps - int(match[1])).abs().arg_min() or 0)]
            return f"no samples recorded for step {match[1]}; the nearest step is {near}."
    ids = [frame[column].drop_nulls() for frame, column in _id_columns(index, trajectories)]
    known = pl.concat(ids).unique(maintain_order=True).head(MAX_COMPARED).to_list() if ids else []
    if near_ids := get_close_matches(name, known, n=3, cutoff=0.5):
        return f"is {_named(near_ids, last=' or ')} meant?"
    examples = known[:3] or [key_of(row) for row in index.head(3).iter_rows(named=True)]
    if not examples:
        return "this run has no samples; ptt sources shows how to record them."
    return f"names look like {_named(examples)}, or STEP:ROW; ptt show RUN lists the samples behind the findings."


def _id_columns(index: pl.DataFrame, trajectories: pl.DataFrame) -> list[tuple[pl.DataFrame, str]]:
    of_index = [(index, column) for column in ("sample_id", "trajectory_id") if column in index.columns]
    return [*of_index, (trajectories, "name")]


def _named(names: Sequence[str], total: int | None = None, *, last: str = ", ") -> str:
    shown = names[:MAX_NAMED]
    more = (total or len(names)) - len(shown)
    return last.join(shown) + (f" and {more} more" if more > 0 else "")


def trajectory_names(folder: Path) -> pl.DataFrame:
    """Read what tells the samples of a store apart, in the order of their files, and what each is called."""
    return named_episodes(scan_table(folder, "trajectories").select(NAMES).collect())


def tied_trajectory(row: Mapping[str, Any], index: pl.DataFrame, trajectories: pl.DataFrame) -> str | None:
    """Return the trajectory that a sequence is of: by its id, the hash of its tokens, or the sample's id.

    A sample's id ties at the same step; at another only where it is of one sequence and of one sample. An id that
    several samples carry ties nothing.
    """
    if row.get("trajectory_id") is not None:
        found = trajectories.filter(pl.col("trajectory_id") == row["trajectory_id"])
        if found.height == 1:
            return str(found["trajectory_id"][0])
    for column in ("token_hash", "sample_id"):
        value = row.get(column)
        if value is None:
            continue
        named = trajectories.filter(pl.col(column) == value)
        at_step = named.filter(pl.col("step") == row.get("step"))
        once = index.filter(pl.col(column) == value).height == 1
        for found in (at_step, named if once else at_step):
            if found.height == 1:
                return str(found["trajectory_id"][0])
    return None


def read_values(folder: Path, trajectory: str) -> dict[str, Any]:
    """Return the row of one trajectory; empty where it is not there."""
    rows = _rows(folder, "trajectories", trajectory)
    return rows.row(0, named=True) if rows.height else {}


def read_rewards(folder: Path, trajectory: str) -> dict[str, float | None]:
    """Return the parts of a sample's reward by name."""
    return {row["name"]: row["score"] for row in _rows(folder, "rewards", trajectory).to_dicts()}


def read_siblings(folder: Path, values: Mapping[str, Any]) -> pl.DataFrame:
    """Return the trajectories of the same prompt at the same step, in the order of their files."""
    key = next((name for name in ("group_id", "prompt_hash") if values.get(name) is not None), None)
    if key is None or values.get("step") is None:
        return pl.DataFrame(schema=scan_table(folder, "trajectories").collect_schema())
    same = (pl.col(key) == values[key]) & (pl.col("step") == values["step"])
    return scan_table(folder, "trajectories").filter(same).collect()


def read_turns(folder: Path, trajectory: str, *, texts: bool) -> tuple[Turn, ...]:
    """Return the messages of a sample, with what was said where that is asked for and kept."""
    rows = _rows(folder, "turns", trajectory).sort("turn_idx").head(MAX_TURNS)
    return tuple(
        Turn(
            number=row["turn_idx"],
            role=row["role"],
            letters=row["text_len"],
            tokens=row["n_tokens"],
            text=row["text"] if texts else None,
        )
        for row in rows.to_dicts()
    )


def _outcome(call: dict[str, Any]) -> bool | None:
    """Return whether a call succeeded, by its mark or else by what its result says; None where neither tells."""
    if call["ok"] is False or call["told_failed"] is not None:
        return call["ok"] is not False and not call["told_failed"]
    return call["ok"] if call["ok_source"] != "unknown" else None


def read_calls(folder: Path, trajectory: str, *, texts: bool) -> tuple[ToolCall, ...]:
    """Return the tool calls of a sample in their order, with their arguments where texts are asked for."""
    rows = _rows(folder, "tool_calls", trajectory).sort("turn_idx", "call_idx").head(MAX_TURNS)
    return tuple(
        ToolCall(
            turn=row["turn_idx"],
            name=row["name"],
            ok=_outcome(row),
            error=row["error_type"],
            result_letters=row["result_len"],
            seconds=row["latency_s"],
            arguments=row["args_json"] if texts else None,
        )
        for row in rows.to_dicts()
    )


def _rows(folder: Path, table: str, trajectory: str) -> pl.DataFrame:
    return scan_table(folder, table).filter(pl.col("trajectory_id") == trajectory).collect()


@dataclass(frozen=True, kw_only=True)
class OpenRun:
    """A run that was opened to read samples of it."""

    name: str
    store: Path
    scan: SequenceScan | None
    index: pl.DataFrame  # the sequences with their steps, places and ids
    files: Sequence[RunFile]
    framework: str | None
    min_observation: int
    read_texts: ReadTexts


def read_sample(run: OpenRun, name: str, *, pair: str | None = None, texts: bool = False) -> Sample:
    """Return the sample that `name` stands for; SettingsError where none or several do.

    `pair`: the two logprobs whose log-ratio is given; by default the first that the sample holds. `texts`: with what
    was said, where the run tells it.
    """
    index, trajectories = run.index, trajectory_names(run.store)
    found = find_sample(name, index, run.scan.files if run.scan else (), trajectories)
    if found.seq is None or run.scan is None:
        return _of_trajectory(run, str(found.trajectory), trajectories, texts=texts)
    (place,) = index.filter(pl.col("seq") == found.seq).to_dicts()
    rows = rows_of_step(run.scan, place["step"])
    (row,) = rows.filter(pl.col("seq") == found.seq).to_dicts()
    trajectory = tied_trajectory(row, index, trajectories)
    of_file, extra = file_of(run.scan, found.seq), beside(run.scan, found.seq)
    file_row = found.seq - of_file.start + of_file.first_row
    logged = _Logged.read(run, trajectory, trajectories, texts=texts)
    tools = row.get("tool_names")
    frame, chosen, pairs, notes = token_table(
        tokens_of(run.scan, found.seq),
        extra,
        pair=pair,
        min_observation=shortest_observation(
            tools, recorded="tool_names" in run.scan.columns, default=run.min_observation
        ),
        post_name="post_tool" if tools or logged.calls or _calls_tools(run.store) else "post_observation",
    )
    frame, tokenizer, why_not = _decoded(frame, run.files) if texts else (frame, None, "")
    return Sample(
        run=run.name,
        key=f"{of_file.name}:{file_row}" if place["step"] is None else key_of(place),
        step=place["step"],
        row=place["place"],
        file=of_file.name,
        file_row=file_row,
        values=_values(row, extra, logged.values),
        rewards=logged.rewards or _parts(extra),
        group=_group(run.scan, row, rows, index) or logged.group,
        turns=logged.turns,
        calls=logged.calls,
        texts=texts,
        tokens=frame,
        pair=chosen,
        pairs=pairs,
        tokenizer=tokenizer,
        missing=(*_missing(run, frame, pair, chosen), *_missing_texts(run, logged, texts=texts, why_not=why_not)),
        notes=tuple(notes),
    )


def measured_samples(run: OpenRun, profile: Profile | None) -> Measured:
    """Return every sample with its largest |r|, its reward and how many of its tool calls failed."""
    absent = [name for name in ("sample_id", "group_id") if name not in run.index.columns]
    index = run.index.with_columns(pl.lit(None, pl.String()).alias(name) for name in absent)
    index = index.with_columns(key=pl.format("{}:{}", "step", "place"))
    index = index.with_columns(rollout=pl.coalesce(pl.format("{} of {}", "sample_id", "group_id"), "key"))
    logged = named_episodes(scan_table(run.store, "trajectories").collect()).filter(pl.col("split") != "eval")
    names = logged.select("sample_id", "step", "reward", key="name", rollout="trajectory_id", value="n_tool_fail")
    failures = names.filter(pl.col("value") > 0).with_columns(pl.col("value").cast(pl.Float64))
    rewards = names.drop("value").rename({"reward": "value"})
    if run.scan is not None and "reward" in run.scan.columns:
        of_tokens = run.scan.frame.select("seq", value="reward").collect(engine="streaming")
        rewards = index.join(of_tokens, on="seq", how="inner", maintain_order="left")
    return Measured(tails=measure_tails(profile, index), rewards=rewards, failures=failures)


def _of_trajectory(run: OpenRun, trajectory: str, trajectories: pl.DataFrame, *, texts: bool) -> Sample:
    """Return a sample without recorded tokens, or whose tokens cannot be tied to it."""
    logged = _Logged.read(run, trajectory, trajectories, texts=texts)
    frame, *_ = token_table({}, {}, pair=None, min_observation=run.min_observation, post_name="")
    return Sample(
        run=run.name,
        key=trajectories.filter(pl.col("trajectory_id") == trajectory)["name"][0],
        step=logged.values.get("step"),
        row=None,
        file=logged.values.get("source"),
        file_row=None,
        values=_values({}, {}, logged.values),
        rewards=logged.rewards,
        group=logged.group,
        turns=logged.turns,
        calls=logged.calls,
        texts=texts,
        tokens=frame,
        pair=None,
        pairs=(),
        tokenizer=None,
        missing=(*_missing(run, frame, None, None), *_missing_texts(run, logged, texts=texts, why_not="")),
        notes=(),
    )


@dataclass(frozen=True, kw_only=True)
class _Logged:
    """What the samples logged by a trainer say about one of them; empty if none matches it."""

    values: Mapping[str, Any]
    rewards: Mapping[str, float | None]
    group: tuple[Sibling, ...]
    turns: tuple[Turn, ...]
    calls: tuple[ToolCall, ...]

    @staticmethod
    def read(run: OpenRun, trajectory: str | None, trajectories: pl.DataFrame, *, texts: bool) -> _Logged:
        values = read_values(run.store, trajectory) if trajectory is not None else {}
        if trajectory is None or not values:
            return _Logged(values={}, rewards={}, group=(), turns=(), calls=())
        turns = read_turns(run.store, trajectory, texts=texts)
        calls = read_calls(run.store, trajectory, texts=texts)
        if texts and _untold(turns) and (store := run.read_texts(values["source"])) is not None:
            turns = read_turns(store, trajectory, texts=True) or turns
        return _Logged(
            values=values,
            rewards=read_rewards(run.store, trajectory),
            group=_logged_group(values, read_siblings(run.store, values), trajectories),
            turns=turns,
            calls=calls,
        )


def _untold(turns: Sequence[Turn]) -> bool:
    return any(turn.text is None and turn.letters for turn in turns)


def _values(row: Mapping[str, Any], extra: Mapping[str, Any], logged: Mapping[str, Any]) -> dict[str, Any]:
    """Return the single values of a sample: as recorded with its tokens, else as its logged sample has them."""
    values = {name: row[name] for name in HEADER if row.get(name) is not None}
    values |= {name.removeprefix(ATTRIBUTE): row[name] for name in row if name.startswith(ATTRIBUTE)}
    values |= {name: value for name, value in extra.items() if isinstance(value, int | float) and name not in values}
    for name in ("sample_id", "trajectory_id", "group_id", *OF_TRAJECTORY):
        if values.get(name) is None and logged.get(name) is not None:
            values[name] = logged[name]
    return {name: value for name, value in values.items() if value is not None}


def _parts(extra: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the components of a reward that a recorder file holds as one value with fields."""
    parts = extra.get("rewards")
    if not isinstance(parts, dict):
        return {}
    return {str(name): value for name, value in parts.items() if value is None or isinstance(value, int | float)}


def _group(scan: SequenceScan, row: Mapping[str, Any], rows: pl.DataFrame, index: pl.DataFrame) -> tuple[Sibling, ...]:
    """Return the sequences of the same prompt group at the same step."""
    if row.get("group_id") is None:
        return ()
    same = rows.filter(pl.col("group_id") == row["group_id"]).head(MAX_SIBLINGS)
    advantages = advantages_of(scan, same["seq"].to_list())
    places = dict(index.filter(pl.col("seq").is_in(same["seq"].implode())).select("seq", "place").iter_rows())
    return tuple(
        Sibling(
            key=f"{sibling['step']}:{places[sibling['seq']]}",
            sample_id=sibling.get("sample_id"),
            reward=sibling.get("reward"),
            advantage=advantages.get(sibling["seq"]),
            tokens=sibling["tokens"],
            shown=sibling["seq"] == row["seq"],
        )
        for sibling in same.to_dicts()
    )


def _logged_group(values: Mapping[str, Any], rows: pl.DataFrame, trajectories: pl.DataFrame) -> tuple[Sibling, ...]:
    names = trajectories.filter(pl.col("trajectory_id").is_in(rows["trajectory_id"].implode()))
    called = dict(names.select("trajectory_id", "name").iter_rows())
    return tuple(
        Sibling(
            key=called[row["trajectory_id"]],
            sample_id=row["sample_id"],
            reward=row["reward"],
            advantage=None if row["advantage"] is None else (row["advantage"], row["advantage"]),
            tokens=None,
            shown=row["trajectory_id"] == values["trajectory_id"],
        )
        for row in rows.head(MAX_SIBLINGS).to_dicts()
    )


def _decoded(frame: pl.DataFrame, files: Sequence[RunFile]) -> tuple[pl.DataFrame, str | None, str]:
    """Add what each token says, by the run's own tokenizer; or why not."""
    if "token_id" not in frame.columns:
        return frame, None, ""  # said of the ids
    tokenizer, why = read_tokenizer(files)
    if tokenizer is None:
        return frame, None, why
    words = pl.Series("token", scrubbed(tokenizer.decode(frame["token_id"].to_list())), dtype=pl.String())
    return frame.insert_column(frame.get_column_index("token_id") + 1, words), tokenizer.file, ""


def _calls_tools(store: Path) -> bool:
    return scan_table(store, "tool_calls").head(1).collect().height > 0


def _missing(run: OpenRun, frame: pl.DataFrame, asked: str | None, chosen: str | None) -> list[Missing]:
    """Say what of the tokens is not recorded, and which line records it."""
    if not any(name in frame.columns for name in (*LOGPS, "model_mask")):
        why = "the run has none" if run.scan is None else "no recorded sequence could be matched to this sample"
        wanted = ("policy_logp", "ref_logp", "model_mask")
        return [Missing(what="tokens and their logprobs", why=why, enable=how_to_record(run.framework, wanted))]
    missing = []
    if chosen is None:
        sides = tuple(f"{side}_logp" for side in asked.split("/")) if asked else ("policy_logp", "ref_logp")
        lacking = tuple(name for name in sides if name not in frame.columns)
        what = f"r of {asked}" if asked else "r"
        why = f"no {' and '.join(lacking)}" if lacking else "no two logprobs that form a pair"
        missing.append(Missing(what=what, why=why, enable=how_to_record(run.framework, lacking or sides)))
    if "token_id" not in frame.columns:
        why = "no token_ids are recorded"
        missing.append(
            Missing(what="token ids", why=why, enable="write token_ids beside the logprobs (docs/recorder.md)")
        )
    return missing


def _missing_texts(run: OpenRun, logged: _Logged, *, texts: bool, why_not: str) -> list[Missing]:
    missing = []
    if not logged.values:
        sampled = scan_table(run.store, "trajectories").head(1).collect().height
        why = "no logged sample could be matched to these tokens" if sampled else "the run logs no samples"
        how = " (TRL: log_extra)" if run.framework in {"trl", None} else ""
        enable = (
            f"write the sequences' sample_id beside each logged sample{how}"
            if sampled
            else how_to_record(run.framework, ("trajectories", "turns", "tool_calls")) or READ_SAMPLES
        )
        missing.append(Missing(what="transcript", why=why, enable=enable))
    elif texts and (not logged.turns or _untold(logged.turns)):
        missing.append(Missing(what="texts", why=f"{logged.values['source']} has no text for it", enable=None))
    if why_not:
        enable = "copy the tokenizer.json that the run used into its folder"
        missing.append(Missing(what="token text", why=why_not, enable=enable))
    return missing


assert set(HEADER) <= set(SEQUENCES)
