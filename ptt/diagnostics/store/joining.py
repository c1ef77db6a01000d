"""Where a run holds the same sequences more than once, choose which to count: by step, the source that holds more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Final

import polars as pl

from ptt.diagnostics.parsers.discover import by_number
from ptt.diagnostics.schema import LOGPS

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
    """Of files with one name in two folders, keep that of the folder that goes on further: a run that was resumed.

    Folders that end alike may be two runs, so nothing is left out and the finding on repeated steps speaks.
    """
    by_kind: dict[str, dict[str, dict[str, list[SequenceFile]]]] = {}
    for file in files:
        path = PurePosixPath(file.name)
        by_kind.setdefault(file.kind, {}).setdefault(str(path.parent), {}).setdefault(path.name, []).append(file)
    gone: set[Path] = set()
    notes = []
    for folders in by_kind.values():
        last = {folder: max(by_number(name) for name in names) for folder, names in folders.items()}
        ordered = sorted(folders, key=lambda folder: (last[folder], folder))
        for number, earlier in enumerate(ordered):
            for later in ordered[number + 1 :]:
                both = folders[earlier].keys() & folders[later].keys()
                if both and last[earlier] < last[later] and len(both) < len(folders[earlier]):
                    gone |= {file.path for name in both for file in folders[earlier][name]}
                    notes.append(
                        f"{len(both)} file(s), {min(both)} to {max(both)}, lie in {earlier} and again in {later}, "
                        "which goes on further: the run was resumed, and the later ones are counted."
                    )
    return [file for file in files if file.path not in gone], notes
