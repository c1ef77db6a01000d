"""Writes what a gate says over all runs: gate.json, the index page, and what CI was to be given."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.gate.values import GateReport
from ptt.reports.files import write_text
from ptt.reports.gating import FORMATS
from ptt.reports.gating.index import index_html

INDEX: Final = "index.html"
JSON: Final = "json"
LOCK: Final = ".lock"


@contextmanager
def alone(out: Path) -> Iterator[None]:
    """Keep other gates from writing to the same folder: two would mix their answers, and their stores."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        file = (out / LOCK).open("ab")
    except OSError as error:
        raise SettingsError(f"{out}: cannot be written: {error.strerror or error}.") from error
    with file:
        if not _locked(file):
            raise SettingsError(
                f"{out}: another ptt gate is writing there; wait until it is done, or give another --out."
            )
        yield  # the lock goes with the file, also where the process is killed


def _locked(file: IO[bytes]) -> bool:
    """Take the lock; a file system that knows none is taken as it is."""
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def check(out: Path, extra: Mapping[str, Path], inputs: Mapping[Path, str]) -> None:
    """Refuse places that are one file, no file, or read: what lies there would be lost before it is opened."""
    taken: dict[Path | tuple[int, int], str] = {}
    held = {key: what for path, what in inputs.items() for key in _keys(path)}
    for name, place in _places(out, extra).items():
        option = f"--{name}" if name in extra else "--out"
        _file_or_nothing(place)
        for key in _keys(place):
            if key in held:
                raise SettingsError(f"{place}: is {held[key]}; give another file for {option}.")
            if taken.setdefault(key, name) != name:
                raise SettingsError(f"{place}: would be written twice; give another file for {option}.")


def _file_or_nothing(place: Path) -> None:
    try:
        if place.is_dir():
            raise SettingsError(f"{place}: is a folder; give a file to write to.")
        if place.is_symlink() or (place.exists() and not place.is_file()):
            raise SettingsError(f"{place}: is a link or a device; give a file to write to.")
    except OSError as error:
        raise SettingsError(f"{place}: cannot be written: {error.strerror or error}.") from error


def _keys(path: Path) -> set[Path | tuple[int, int]]:
    """Give all that tells a file: its place, and where it is there what the file system knows it by."""
    keys: set[Path | tuple[int, int]] = {path.absolute()}
    with suppress(OSError, RuntimeError):
        keys.add(path.resolve())
        found = path.stat()
        keys.add((found.st_dev, found.st_ino))
    return keys


def prepare(out: Path, extra: Mapping[str, Path]) -> None:
    """Make sure that all can be written, and take away what an earlier gate wrote: it must not outlive a crash."""
    for place in _places(out, extra).values():
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.unlink(missing_ok=True)
        except OSError as error:
            raise SettingsError(f"{place}: cannot be written: {error.strerror or error}.") from error


def write(report: GateReport, out: Path, extra: Mapping[str, Path]) -> Path:
    """Write all of it, `extra` by the name of its format, and give where the index page lies."""
    for name, place in _places(out, extra).items():
        write_text(place, index_html(report) if name == INDEX else FORMATS[name].render(report))
    return out / INDEX


def _places(out: Path, extra: Mapping[str, Path]) -> dict[str, Path]:
    return {INDEX: out / INDEX, JSON: out / FORMATS[JSON].file, **extra}
