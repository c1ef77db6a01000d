"""Where a run holds the same sequences more than once, choose which to count: by step, the source that holds more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Final

import polars as pl

from ptt.diagnostics.parsers.io.run_files import by_number
from ptt.diagnostics.schema import LOGPS

KEY: Final = ("step", "token_hash")
SINGLE: Final = (
    "group_id",
    "trajectory_id",
    "env",
    "reward",
    "tool_names",
    "tool_failed",
    "policy_version",
    "temperature",
    "top_p",
)


def filled_in(frame: pl.LazyFrame, beside: list[pl.LazyFrame]) -> tuple[pl.LazyFrame, list[str]]:
    """Join what each sequence lacks of SINGLE to it by step and hash of its tokens; say how many found a partner.

    `frame`: the counted sequences, with `seq`; `beside`: others of the same steps. Samples of a step with the same
    tokens are paired in their order. Nothing is read where there is no other source.
    """
    if not beside:
        return frame, []
    held = set(frame.collect_schema().names())
    other = pl.concat(beside, how="diagonal") if len(beside) > 1 else beside[0]
    offered = set(other.collect_schema().names())
    if not (held & offered).issuperset(KEY):
        return frame, []
    wanted = [name for name in SINGLE if name in offered]
    mine = _numbered(frame.select("seq", *KEY))
    theirs = _numbered(other.select(*KEY, *wanted)).drop("seq", strict=False)
    found = mine.join(theirs, on=[*KEY, "nth"], how="inner", maintain_order="left").drop(*KEY, "nth")
    gained = [name for name in wanted if name not in held and found[name].null_count() < found.height]
    kept = [name for name in wanted if name in held]
    if not gained or not found.height:
        return frame, []
    steps = theirs["step"].unique()
    shared = mine.filter(pl.col("step").is_in(steps.implode())).height
    added = found.select("seq", *gained, *(pl.col(name).alias(f"_{name}") for name in kept)).lazy()
    whole = frame.join(added, on="seq", how="left", maintain_order="left")
    if kept:
        whole = whole.with_columns(pl.coalesce(name, f"_{name}") for name in kept)
    note = (
        f"{found.height} of {shared} sequences are the same samples, by step and hash of their tokens, as in the "
        f"source that is not counted: {', '.join(gained)} are taken from there."
    )
    return whole.drop([f"_{name}" for name in kept]), [note]


def _numbered(frame: pl.LazyFrame) -> pl.DataFrame:
    """Read the rows that have both keys, and number those that share them."""
    rows = frame.drop_nulls(list(KEY)).collect(engine="streaming")
    return rows.with_columns(nth=pl.int_range(pl.len()).over(list(KEY)))


MOST_SEGMENTS: Final = 16  # folders of a run that was resumed so often
PAIR: Final = 2  # a ratio needs two log-probabilities
IN_SEVERAL: Final = frozenset({"token_tensors", "token_tables"})
TEXT: Final = ("(.jsonl)", "(.gz)", "(.zst)")  # endings of carriers whose numbers may be shortened
ROUNDED: Final = frozenset({"verifiers_traces"})  # kinds whose writer keeps four decimals


@dataclass(frozen=True, kw_only=True)
class SequenceFile:
    """One Parquet file of sequences; its rows are number `start` and following of the run."""

    path: Path
    name: str  # the file of the run they come from
    kind: str  # the parser that read it
    first_row: int  # of that file
    start: int
    rows: int
    columns: tuple[str, ...]
    skipped: frozenset[int] = frozenset()  # steps at which another source is counted

    @property
    def carrier(self) -> str:
        """What is chosen between: the kind, and of hook dumps the ending: some write one batch twice."""
        ending = PurePosixPath(self.name).suffix
        return f"{self.kind} ({ending})" if self.kind in IN_SEVERAL else self.kind


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which files count, which others recorded the same steps, and what there is to say about it."""

    files: list[SequenceFile]
    beside: list[SequenceFile]
    notes: list[str]


def joined(files: Sequence[SequenceFile]) -> Choice:
    """Leave out what another source records better, and what a resumed run recorded again; say so in notes.

    Reads the steps of the files only where there is something to choose.
    """
    kept, notes = _stitched(list(files))
    kinds = list(dict.fromkeys(file.carrier for file in kept))
    if len(kinds) < 2:
        return Choice(files=kept, beside=[], notes=notes)
    steps = {file.path: _steps(file.path) for file in kept}
    ranked = sorted(kinds, key=lambda kind: (*_rank(kept, kind), kinds.index(kind)))
    taken: dict[int, str] = {}
    chosen: dict[Path, SequenceFile] = {}
    for kind in ranked:
        mine = [file for file in kept if file.carrier == kind]
        for file in mine:
            doubled = frozenset(step for step in steps[file.path] if taken.get(step, kind) != kind)
            if doubled != steps[file.path] or not doubled:
                chosen[file.path] = replace(file, skipped=doubled)
        for step in frozenset().union(*(steps[file.path] for file in mine)):
            taken.setdefault(step, kind)
        doubled_by = {taken[step] for file in mine for step in steps[file.path] if taken[step] != kind}
        notes += [_told(kind, better, mine, steps, taken, kept) for better in sorted(doubled_by)]
    return Choice(
        files=[chosen[file.path] for file in kept if file.path in chosen],
        beside=[file for file in kept if file.path not in chosen or chosen[file.path].skipped],
        notes=notes,
    )


def _rank(files: Sequence[SequenceFile], kind: str) -> tuple[bool, bool, int, bool]:
    """Order kinds: a pair before none, then exact values before rounded ones, then more logprobs before fewer."""
    held = _logps(files, kind)
    return held < PAIR, kind in ROUNDED, -held, kind.endswith(TEXT)


def _told(
    kind: str,
    better: str,
    mine: Iterable[SequenceFile],
    steps: dict[Path, frozenset[int]],
    taken: dict[int, str],
    every: Sequence[SequenceFile],
) -> str:
    shared = {step for file in mine for step in steps[file.path] if taken[step] == better}
    more, fewer = _logps(every, better), _logps(every, kind)
    why = f"holds {more} log-probabilities a token against {fewer}" if more > fewer else "comes first"
    if kind in ROUNDED and fewer >= PAIR:
        why = "does not round them"
    return (
        f"{len(shared)} step(s) from {min(shared)} to {max(shared)} are recorded by {better} and by {kind}; "
        f"{better} is counted, since it {why}."
    )


def _logps(files: Sequence[SequenceFile], kind: str) -> int:
    held = {name for file in files if file.carrier == kind for name in file.columns}
    return len(held & set(LOGPS))


def _steps(path: Path) -> frozenset[int]:
    scan = pl.scan_parquet([path], glob=False)
    if "step" not in scan.collect_schema():  # a log of calls may name none
        return frozenset()
    found = scan.select(pl.col("step").drop_nulls().unique()).collect()
    return frozenset(found["step"].cast(pl.Int64).to_list())


def _stitched(files: list[SequenceFile]) -> tuple[list[SequenceFile], list[str]]:
    """Of files with one name and the same steps in two folders, keep that of the folder that goes on further.

    Such a run was resumed. Folders that end alike may be two runs, so nothing is left out and the finding on repeated
    steps speaks. A name in more than MOST_SEGMENTS folders is that of a rank, not of a step.
    """
    folders: dict[tuple[str, str], dict[str, SequenceFile]] = {}
    holders: dict[tuple[str, str], list[str]] = {}
    for file in files:
        path = PurePosixPath(file.name)
        folders.setdefault((file.kind, str(path.parent)), {})[path.name] = file
        holders.setdefault((file.kind, path.name), []).append(str(path.parent))
    last = {key: max(map(by_number, names)) for key, names in folders.items()}
    gone: dict[tuple[str, str, str], list[str]] = {}
    for (kind, name), places in holders.items():
        if not 1 < len(set(places)) <= MOST_SEGMENTS:
            continue
        ordered = sorted(set(places), key=lambda place: (last[kind, place], place))
        for earlier, later in pairwise(ordered):
            goes_on = last[kind, earlier] < last[kind, later]
            if goes_on and _steps(folders[kind, earlier][name].path) & _steps(folders[kind, later][name].path):
                gone.setdefault((kind, earlier, later), []).append(name)
    lost, notes = set(), []
    for (kind, earlier, later), names in gone.items():
        if len(names) == len(folders[kind, earlier]):  # nothing of its own: no segment that another goes on from
            continue
        lost |= {(kind, str(PurePosixPath(earlier) / name)) for name in names}
        notes.append(
            f"{len(names)} file(s), {min(names, key=by_number)} to {max(names, key=by_number)}, lie in {earlier} and "
            f"again in {later}, which goes on further: the run was resumed, and the later ones are counted."
        )
    return [file for file in files if (file.kind, file.name) not in lost], notes
