"""Which runs to gate: what stands on the command line and in a list, globs expanded, each run once."""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from ptt.diagnostics.errors import SettingsError

STANDARD_INPUT: Final = "-"
MOST_RUNS: Final = 10_000  # a page and a test report of more than this help nobody
LONGEST_LIST: Final = 16 << 20  # bytes: ten thousand of the longest paths there can be
INSIDE: Final = ("findings.json", "store")  # what an output folder holds: a run is called after the folder then


@dataclass(frozen=True, kw_only=True)
class Targets:
    """The runs in the order they were given, and what is to be told about how they were found."""

    runs: tuple[Path, ...]
    notes: tuple[str, ...]


def targets(given: Sequence[str], *, listed: Path | None, out: Path) -> Targets:
    """Give each run once; `out` is where this command writes, which is no run even where a glob finds it."""
    taken: dict[Path, Path] = {}
    doubled: dict[Path, Path] = {}
    own = False
    place = _resolved(out)
    for path, found in (*_given(given), *_listed(listed)):
        home = _resolved(path)
        if found and home in (place, *place.parents):
            own = True
        elif home in taken:
            doubled[home] = path
        else:
            taken[home] = path
        if len(taken) > MOST_RUNS:
            raise SettingsError(f"more than {MOST_RUNS} runs were given; gate them in several calls.")
    if not taken:
        raise SettingsError(_none(listed, own))
    notes = [f"Given more than once, and counted once: {path.name}." for path in doubled.values()]
    if own:
        notes.append("A glob found the folder that this command writes to; it is no run and was left out.")
    return Targets(runs=tuple(taken.values()), notes=tuple(notes))


def named(run: Path) -> Path:
    """Give the path that a run is called after: of a store or findings.json the folder around it."""
    return run.parent if run.name in INSIDE and run.resolve().parent != run.resolve() else run


def _given(words: Sequence[str]) -> Iterator[tuple[Path, bool]]:
    """Give each path, and whether a glob found it; a file whose name looks like a glob is itself."""
    for word in words:
        if not word or "\0" in word:
            raise SettingsError("a RUN is empty; give a folder, an archive, a store or a findings.json.")
        if not glob.has_magic(word) or os.path.lexists(word):
            yield Path(word), False
            continue
        found = sorted(islice(glob.iglob(word, recursive=True), MOST_RUNS + 1))  # noqa: PTH207  absolute ones as well
        if not found:
            raise SettingsError(f"{word}: nothing here matches it; give a run, or a glob that finds some.")
        yield from ((Path(name), True) for name in found)


def _listed(path: Path | None) -> Iterator[tuple[Path, bool]]:
    """Give the paths of a list, one a line, as seen from the folder it lies in."""
    if path is None:
        return
    piped = str(path) == STANDARD_INPUT
    try:
        if piped:
            content = sys.stdin.buffer.read(LONGEST_LIST + 1)
        else:
            with path.open("rb") as file:
                content = file.read(LONGEST_LIST + 1)
    except OSError as error:
        raise SettingsError(f"{path}: the list of runs cannot be read: {error.strerror or error}.") from error
    if len(content) > LONGEST_LIST:
        raise SettingsError(f"{path}: is too long for a list of runs; it takes paths, one a line.")
    folder = Path() if piped else path.parent
    for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        name = os.fsdecode(line.strip())
        if "\0" in name:
            raise SettingsError(f"{path}: line {number} is no path; the list takes paths, one a line.")
        if name and not name.startswith("#"):
            yield folder / name, False


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # a loop of links: told when it is opened
        return path.absolute()


def _none(listed: Path | None, own: bool) -> str:
    if own:
        return "the glob finds nothing but the folder that this command writes to; give runs."
    if listed is not None:
        return f"{listed}: names no run; write one path a line."
    return "no run was given; give folders, archives or globs, or a file of paths with --list."
