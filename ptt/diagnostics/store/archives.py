"""Unpack an archive of a run dir into a folder that is thrown away, and never a byte outside of it."""

from __future__ import annotations

import calendar
import os
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Final

from ptt.diagnostics.errors import InputError, no_room
from ptt.diagnostics.parsers.io.interface import Lost, RunFile
from ptt.diagnostics.parsers.io.lines import pieces
from ptt.diagnostics.parsers.io.run_files import MAX_FILES

SUFFIXES: Final = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst")
PIECE: Final = 1 << 20
FREE_RATIO: Final = 0.8  # of the free disk: the rest belongs to the store and to others
BOMB_BYTES: Final = 1 << 30  # unpacked; below it no ratio is suspicious
BOMB_RATIO: Final = 300  # unpacked over packed; logs of floats reach 5, logs of text 40
EARLIEST: Final = 315_532_800  # 1980, what a zip holds where the time is not known
NAMED: Final = 5
ROOM: Final = "set TMPDIR to a folder with more room, or unpack it yourself and give the folder"
DAMAGED: Final = "The archive is damaged"  # how its note begins: a gate goes by it


@dataclass(frozen=True, kw_only=True)
class Unpacked:
    """Where the run now lies, its name, and what was passed over."""

    folder: Path
    name: str
    notes: tuple[str, ...]


def is_archive(path: Path) -> bool:
    """Tell by its name whether a file is an archive of a run dir."""
    return path.is_file() and is_packed(path.name)


def is_packed(name: str) -> bool:
    """Tell whether a name is one that archives have."""
    return name.lower().endswith(SUFFIXES)


def packed_in(run: Path, names: Sequence[str], packed: Path | None) -> str:
    """Say what to give in place of a folder in which nothing but archives could be a run; empty where it holds none.

    `names`: the files of the folder; `packed`: the archive that the folder was unpacked from.
    """
    held = [name for name in names if is_packed(name)]
    if not held:
        return ""
    if packed is not None:
        return f"holds {len(held)} archive(s), as {held[0]}, and nothing that is read here; unpack it and give those"
    way = run / held[0]
    if len(held) == 1:
        return f'holds one archive and nothing that is read here; give that itself: "{way}"'
    ending = next(ending for ending in SUFFIXES if way.name.lower().endswith(ending))
    glob = way.with_name(f"*{way.name[-len(ending) :]}")
    return f'holds {len(held)} archives and nothing that is read here; give them themselves, e.g. "{glob}"'


@contextmanager
def unpacked(path: Path) -> Iterator[Unpacked]:
    """Unpack `path` for as long as the block runs; InputError where it holds nothing or looks like a bomb."""
    with tempfile.TemporaryDirectory(prefix="ptt-run-") as scratch:
        target = Path(scratch).resolve()
        taken = _Taken(target=target, source=path, limit=_limit(path, target))
        try:
            _unzip(path, taken) if path.name.lower().endswith(".zip") else _untar(path, taken)
        except OSError as error:
            more = f"; {ROOM}" if no_room(error) else ""
            raise InputError(f"{path}: cannot be unpacked: {error.strerror or error}{more}.") from error
        if not taken.files:
            why = f" ({taken.torn})" if taken.torn else ""
            raise InputError(f"{path}: holds no file that could be unpacked{why}.")
        yield Unpacked(folder=_root(target), name=run_name(path), notes=taken.notes())


def _limit(path: Path, target: Path) -> int:
    """Give the bytes that may be unpacked: what a log of this size could hold, and what the disk has room for."""
    return min(max(BOMB_BYTES, BOMB_RATIO * path.stat().st_size), int(FREE_RATIO * shutil.disk_usage(target).free))


def run_name(path: Path) -> str:
    """Give what a run is called: the name of its folder, file, or archive without the ending."""
    endings = [ending for ending in SUFFIXES if path.name.lower().endswith(ending)] if path.is_file() else []
    return path.name[: -len(max(endings, key=len))] or path.name if endings else path.name


def _root(target: Path) -> Path:
    """Step into the one folder that archives of a folder consist of."""
    held = list(target.iterdir())
    return held[0] if len(held) == 1 and held[0].is_dir() else target


@dataclass
class _Taken:
    """What was written so far; refuses what would leave the folder or fill the disk."""

    target: Path
    source: Path
    limit: int
    files: int = 0
    written: int = 0
    torn: str = ""
    skipped: dict[str, list[str]] = field(default_factory=dict)

    def place(self, name: str) -> Path | None:
        """Give where a member goes, or None where its name points out of the folder."""
        parts = PurePosixPath(name.replace("\\", "/")).parts
        kept = [part for part in parts if part != "."]
        if not kept or name.startswith("/") or ".." in kept or "\0" in name or ":" in kept[0]:
            self.skip("name(s) that point out of the archive", name)
            return None
        return self.target.joinpath(*kept)

    def skip(self, why: str, name: str) -> None:
        """Note a member that is passed over."""
        self.skipped.setdefault(why, []).append(name)

    def write(self, name: str, content: IO[bytes], *, mtime: float) -> None:
        """Write one member; of a torn one what there is."""
        place = self.place(name)
        if place is None:
            return
        if self.files == MAX_FILES:
            raise InputError(f"{self.source}: holds more than {MAX_FILES} files; give a smaller archive or the folder.")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("xb") as out:
                self.files += 1
                self._copy(content, out)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            self.skip("member(s) that another one has the place of", name)
            return
        finally:
            if place.is_file():
                _touch(place, mtime)

    def _copy(self, content: IO[bytes], out: IO[bytes]) -> None:
        while piece := content.read(PIECE):
            self.expect(len(piece))
            self.written += len(piece)
            out.write(piece)

    def expect(self, size: int) -> None:
        """Refuse what would be too much with `size` bytes more: what a member says of itself is believed in this."""
        if self.written + size > self.limit:
            raise InputError(
                f"{self.source}: unpacks to more than {self.limit >> 20} MB, which no log of its size does or the "
                "disk has no room for; unpack it yourself and give the folder."
            )

    def notes(self) -> tuple[str, ...]:
        """Say what was passed over, and where the archive is torn."""
        told = []
        for why, names in sorted(self.skipped.items()):
            more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
            told.append(f"The archive holds {len(names)} {why}, not unpacked: {', '.join(names[:NAMED])}{more}.")
        return (
            *told,
            *([f"{DAMAGED}: {self.torn}; what lies before the damage was read."] * bool(self.torn)),
        )


def _touch(place: Path, mtime: float) -> None:
    """Keep the member's time: the store knows unchanged input by it."""
    seconds = mtime if 0 <= mtime < 1 << 40 else float(EARLIEST)
    os.utime(place, (seconds, seconds))


def _unzip(path: Path, taken: _Taken) -> None:
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:  # torn, of a later version, or senseless
        raise InputError(
            f"{path}: no readable zip archive ({error}); a torn zip has lost its table of contents."
        ) from error
    with archive:
        for member in archive.infolist():
            if member.is_dir():
                continue
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind and not stat.S_ISREG(kind):
                taken.skip("link(s) or special file(s)", member.filename)
                continue
            taken.expect(member.file_size)
            try:
                with archive.open(member) as content:
                    taken.write(member.filename, content, mtime=_zip_time(member))
            except (zipfile.BadZipFile, zlib.error, EOFError) as error:
                taken.torn = f"{member.filename}: {error}"
            except (NotImplementedError, RuntimeError) as error:  # a method unknown here, or a password
                taken.skip(f"member(s) that cannot be decoded ({error})", member.filename)


def _zip_time(member: zipfile.ZipInfo) -> float:
    try:
        return float(calendar.timegm((*member.date_time, 0, 0, 0)))
    except (ValueError, OverflowError):
        return float(EARLIEST)


class _Stream:
    """The unpacked bytes of a tar, as a file that can only be read on; ends where the compressed stream is torn."""

    def __init__(self, path: Path, taken: _Taken) -> None:
        self._pieces = pieces(RunFile(path=path, rel=path.name, size=path.stat().st_size))
        self._held = bytearray()
        self._taken = taken

    def read(self, size: int) -> bytes:
        while len(self._held) < size:
            piece = next(self._pieces, None)
            if piece is None:
                break
            if isinstance(piece, Lost):
                self._taken.torn = (piece.note or "torn").rstrip(".")
                continue
            self._held += piece
        found = bytes(self._held[:size])
        del self._held[:size]
        return found


def _untar(path: Path, taken: _Taken) -> None:
    try:
        with tarfile.open(fileobj=_Stream(path, taken), mode="r|", bufsize=1 << 18) as archive:  # type: ignore[call-overload]
            for member in archive:
                if member.isdir():
                    continue
                if not member.isreg():
                    taken.skip("link(s) or special file(s)", member.name)
                    continue
                content = archive.extractfile(member)
                if content is not None:
                    taken.expect(member.size)
                    taken.write(member.name, content, mtime=member.mtime)
    except (tarfile.TarError, EOFError, UnicodeError, OverflowError, ValueError) as error:
        if not taken.files and not taken.torn:
            raise InputError(f"{path}: no readable tar archive ({error}).") from error
        taken.torn = taken.torn or str(error)
