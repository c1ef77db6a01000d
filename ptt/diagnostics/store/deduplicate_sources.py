"""Where a run holds the same sequences more than once, choose which to count: by step, the source that holds more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Final

import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.parsers.io.run_files import by_number
from ptt.diagnostics.schema import LOGPS
from ptt.diagnostics.wording import counted

KEY: Final = ("step", "token_hash")
FILLED_COLUMNS: Final = (
    "group_id", "trajectory_id", "env", "reward", "tool_names", "tool_failed", "policy_version", "temperature", "top_p",
)  # fmt: skip
MAX_SEGMENTS: Final = 16  # folders of a run that was resumed so often
PAIR: Final = 2  # a ratio needs two log-probabilities
SEVERAL_ENDINGS: Final = frozenset({"token_tensors", "token_tables"})
TEXT: Final = ("(.jsonl)", "(.gz)", "(.zst)")  # endings of carriers whose numbers may be shortened
ROUNDED: Final = frozenset({"verifiers_traces"})  # kinds whose writer keeps four decimals


def fill_from_duplicates(frame: pl.LazyFrame, duplicates: list[pl.LazyFrame]) -> tuple[pl.LazyFrame, list[str]]:
    """Fill each sequence's missing FILLED_COLUMNS by step and token hash; note how many matched.

    `frame`: the counted sequences, with `seq`; `duplicates`: others of the same steps. Samples of a step with the same
    tokens are paired in order. Nothing is read if there is no other source.
    """
    if not duplicates:
        return frame, []
    columns = set(frame.collect_schema().names())
    other = pl.concat(duplicates, how="diagonal")
    offered = set(other.collect_schema().names())
    if not (columns & offered).issuperset(KEY):
        return frame, []
    wanted = [name for name in FILLED_COLUMNS if name in offered]
    numbered = _numbered(frame.select("seq", *KEY))
    theirs = _numbered(other.select(*KEY, *wanted))
    matched = numbered.join(theirs, on=[*KEY, "nth"], how="inner", maintain_order="left").drop(*KEY, "nth")
    gained = [name for name in wanted if name not in columns and matched[name].null_count() < matched.height]
    if not gained or matched.is_empty():
        return frame, []
    shared = numbered.filter(pl.col("step").is_in(theirs["step"].unique().implode())).height
    completed = [name for name in wanted if name in columns]
    added = matched.select("seq", *gained, *(pl.col(name).alias(f"_{name}") for name in completed)).lazy()
    filled = (
        frame.join(added, on="seq", how="left", maintain_order="left")
        .with_columns([pl.coalesce(name, f"_{name}") for name in completed])
        .drop([f"_{name}" for name in completed])
    )
    note = (
        f"Of {counted(shared, 'sequence(s)')}, {matched.height} also occur in the source that is not counted, by step "
        f"and token hash; taken from there: {', '.join(gained)}."
    )
    return filled, [note]


def _numbered(frame: pl.LazyFrame) -> pl.DataFrame:
    """Read the rows that have both keys, and number those with equal keys."""
    rows = frame.drop_nulls(list(KEY)).collect(engine="streaming")
    return rows.with_columns(nth=pl.int_range(pl.len()).over(list(KEY)))


@dataclass(frozen=True, kw_only=True)
class SequenceFile:
    """One Parquet file of sequences; its rows are number `start` and following of the run."""

    path: Path
    name: str  # the file of the run they come from
    kind: str  # the parser that read it
    first_row: int  # in that file
    start: int
    rows: int
    columns: tuple[str, ...]
    skipped: frozenset[int] = frozenset()  # steps for which another source is counted

    @property
    def carrier(self) -> str:
        """What is chosen between: the kind, and of hook dumps the ending: some write one batch twice."""
        return f"{self.kind} ({PurePosixPath(self.name).suffix})" if self.kind in SEVERAL_ENDINGS else self.kind


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which files count, which others recorded the same steps, and notes on why."""

    files: list[SequenceFile]
    duplicates: list[SequenceFile]
    notes: list[str]


def choose_sources(files: Sequence[SequenceFile]) -> Choice:
    """Leave out what another source records better, and what a resumed run recorded again; say so in notes.

    Reads the steps of the files only where there is something to choose.
    """
    files, notes = _without_resumed(list(files))
    carriers = list(dict.fromkeys(file.carrier for file in files))
    if len(carriers) < 2:
        return Choice(files=files, duplicates=[], notes=notes)
    steps = {file.path: _steps(file.path) for file in files}
    logps = {carrier: _count_logps(files, carrier) for carrier in carriers}
    counted_at: dict[int, str] = {}  # step -> the carrier that is counted there
    chosen: dict[Path, SequenceFile] = {}
    for carrier in sorted(carriers, key=lambda carrier: (*_rank(carrier, logps), carriers.index(carrier))):
        own = [file for file in files if file.carrier == carrier]
        own_steps = frozenset[int]().union(*(steps[file.path] for file in own))
        for file in own:
            doubled = frozenset(step for step in steps[file.path] if counted_at.get(step, carrier) != carrier)
            if doubled != steps[file.path] or not doubled:
                chosen[file.path] = replace(file, skipped=doubled)
        better: dict[str, list[int]] = {}
        for step in own_steps:
            if (other := counted_at.setdefault(step, carrier)) != carrier:
                better.setdefault(other, []).append(step)
        notes += [_duplicate_note(carrier, other, shared, logps) for other, shared in sorted(better.items())]
    return Choice(
        files=[chosen[file.path] for file in files if file.path in chosen],
        duplicates=[file for file in files if file.path not in chosen or chosen[file.path].skipped],
        notes=notes,
    )


def _rank(carrier: str, logps: Mapping[str, int]) -> tuple[bool, bool, int, bool]:
    """Order carriers: a pair before none, then exact values before rounded, then more logprobs before fewer."""
    return logps[carrier] < PAIR, carrier in ROUNDED, -logps[carrier], carrier.endswith(TEXT)


def _duplicate_note(carrier: str, better: str, shared: Sequence[int], logps: Mapping[str, int]) -> str:
    more, fewer = logps[better], logps[carrier]
    why = f"has {more} log-probabilities a token, not {fewer}" if more > fewer else "comes first"
    if carrier in ROUNDED and fewer >= PAIR:
        why = "does not round them"
    return (
        f"Recorded by both {better} and {carrier}: {counted(len(shared), 'step(s)')}, {min(shared)} to {max(shared)}; "
        f"{better} is counted, because it {why}."
    )


def _count_logps(files: Sequence[SequenceFile], carrier: str) -> int:
    return len({name for file in files if file.carrier == carrier for name in file.columns} & set(LOGPS))


def _steps(path: Path) -> frozenset[int]:
    scan = pl.scan_parquet([path], glob=False)
    if "step" not in scan.collect_schema():  # a log of calls may name none
        return frozenset()
    return frozenset(scan.select(pl.col("step").drop_nulls().unique().cast(pl.Int64)).collect()["step"])


def _without_resumed(files: list[SequenceFile]) -> tuple[list[SequenceFile], list[str]]:
    """Of files with the same name and steps in two folders, keep the one in the folder that continues further.

    Such a run was resumed. Folders that end at the same step may be two runs, so nothing is left out, and the finding
    on repeated steps reports it. A name in more than MAX_SEGMENTS folders belongs to a rank, not a step.
    """
    inside: dict[tuple[str, str], dict[str, SequenceFile]] = {}  # kind and folder -> name -> file
    holders: dict[tuple[str, str], set[str]] = {}  # kind and name -> folders
    for file in files:
        parent, _, name = file.name.rpartition("/")
        folder = parent or "."
        inside.setdefault((file.kind, folder), {})[name] = file
        holders.setdefault((file.kind, name), set()).add(folder)
    if len(holders) == len(files):
        return files, []
    last = {key: max(map(by_number, names)) for key, names in inside.items()}
    repeated: dict[tuple[str, str, str], list[str]] = {}
    for (kind, name), folders in holders.items():
        if len(folders) > MAX_SEGMENTS:
            continue
        ordered = sorted(folders, key=lambda folder: (last[kind, folder], folder))
        for earlier, later in pairwise(ordered):
            goes_on = last[kind, earlier] < last[kind, later]
            if goes_on and _steps(inside[kind, earlier][name].path) & _steps(inside[kind, later][name].path):
                repeated.setdefault((kind, earlier, later), []).append(name)
    left_out, notes = set(), []
    for (kind, earlier, later), names in repeated.items():
        if len(names) == len(inside[kind, earlier]):  # nothing of its own: no segment that another goes on from
            continue
        left_out |= {(kind, inside[kind, earlier][name].name) for name in names}
        notes.append(
            f"{counted(len(names), 'file(s)')}, {min(names, key=by_number)} to {max(names, key=by_number)}, in "
            f"{earlier} and again in {later}, which goes further: the run was resumed, and the later files are counted."
        )
    return [file for file in files if (file.kind, file.name) not in left_out], notes
