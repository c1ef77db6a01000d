"""Unpack an archive of a run dir into a temporary folder, and never a byte outside of it."""

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
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Final

from ptt.diagnostics.errors import InputError, no_room
from ptt.diagnostics.parsers.io.interface import Lost, RunFile
from ptt.diagnostics.parsers.io.lines import pieces
from ptt.diagnostics.parsers.io.run_files import MAX_FILES

SUFFIXES: Final = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst")
CHUNK_BYTES: Final = 1 << 20
FREE_RATIO: Final = 0.8  # of the free disk: the rest belongs to the store and to others
BOMB_BYTES: Final = 1 << 30  # unpacked; below it no ratio is suspicious
BOMB_RATIO: Final = 300  # unpacked over packed; logs of floats reach 5, logs of text 40
ZIP_EPOCH: Final = 315_532_800.0  # 1980, what a zip holds where the time is not known
MAX_NAMED: Final = 5  # members that a note names
MAKE_ROOM: Final = "set TMPDIR to a folder with more room, or unpack it yourself and give the folder"
DAMAGED: Final = "The archive is damaged"  # how its note begins: a gate goes by it


@dataclass(frozen=True, kw_only=True)
class Unpacked:
    """Where the run now lies, its name, and what was passed over."""

    folder: Path
    name: str
    notes: tuple[str, ...]


def is_archive(path: Path) -> bool:
    """Return whether a file has the name of an archive."""
    return path.is_file() and is_packed(path.name)


def is_packed(name: str) -> bool:
    """Return whether a name is one that archives have."""
    return name.lower().endswith(SUFFIXES)


def run_name(path: Path) -> str:
    """Return what a run is called: the name of its folder, file, or archive without the ending."""
    suffix = _suffix(path.name) if path.is_file() else ""
    return path.name.removesuffix(suffix) or path.name


def _suffix(name: str) -> str:
    """Return the longest archive suffix of a name as it is spelt there; empty where it has none."""
    length = max((len(suffix) for suffix in SUFFIXES if name.lower().endswith(suffix)), default=0)
    return name[len(name) - length :]


def packed_in(run: Path, names: Sequence[str], packed: Path | None) -> str:
    """Return what to give in place of a folder in which nothing but archives could be a run; empty where it holds none.

    `names`: the files of the folder; `packed`: the archive that the folder was unpacked from.
    """
    inside = [name for name in names if is_packed(name)]
    if not inside:
        return ""
    if packed is not None:
        return (
            f"holds {len(inside)} archive(s), as {inside[0]}, and nothing that is read here; unpack it and give those"
        )
    path = run / inside[0]
    if len(inside) == 1:
        return f'holds one archive and nothing that is read here; give that itself: "{path}"'
    glob = path.with_name(f"*{_suffix(path.name)}")
    return f'holds {len(inside)} archives and nothing that is read here; give them themselves, e.g. "{glob}"'


@contextmanager
def unpacked(path: Path) -> Iterator[Unpacked]:
    """Unpack `path` for as long as the block runs; InputError where it holds nothing or looks like a bomb."""
    with tempfile.TemporaryDirectory(prefix="ptt-run-") as scratch:
        target = Path(scratch).resolve()
        free = int(FREE_RATIO * shutil.disk_usage(target).free)
        members = _Members(path, target, min(max(BOMB_BYTES, BOMB_RATIO * path.stat().st_size), free))
        try:
            (_unzip if path.name.lower().endswith(".zip") else _untar)(path, members)
        except OSError as error:
            more = f"; {MAKE_ROOM}" if no_room(error) else ""
            raise InputError(f"{path}: cannot be unpacked: {error.strerror or error}{more}.") from error
        if not members.files:
            why = f" ({members.torn})" if members.torn else ""
            raise InputError(f"{path}: holds no file that could be unpacked{why}.")
        top = list(target.iterdir())  # archives of a folder consist of that one
        folder = top[0] if len(top) == 1 and top[0].is_dir() else target
        yield Unpacked(folder=folder, name=run_name(path), notes=members.notes())


class _Members:
    """What was written so far; refuses what would leave the folder or fill the disk."""

    def __init__(self, source: Path, target: Path, max_bytes: int) -> None:
        self.torn = ""
        self.files = 0
        self._source, self._target, self._max_bytes = source, target, max_bytes
        self._written = 0
        self._skipped: dict[str, list[str]] = {}

    def skip(self, why: str, name: str) -> None:
        """Note a member that is passed over."""
        self._skipped.setdefault(why, []).append(name)

    def write(self, name: str, content: IO[bytes], *, mtime: float) -> None:
        """Write one member, with its time, by which the store knows unchanged input; of a torn one what there is."""
        parts = [part for part in PurePosixPath(name.replace("\\", "/")).parts if part != "."]
        if not parts or name.startswith("/") or ".." in parts or "\0" in name or ":" in parts[0]:
            self.skip("name(s) that point out of the archive", name)
            return
        if self.files == MAX_FILES:
            why = f"holds more than {MAX_FILES} files; give a smaller archive or the folder."
            raise InputError(f"{self._source}: {why}")
        path = self._target.joinpath(*parts)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as out:
                self.files += 1
                while chunk := content.read(CHUNK_BYTES):
                    self.expect(len(chunk))
                    self._written += len(chunk)
                    out.write(chunk)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            self.skip("member(s) that another one has the place of", name)
        finally:
            if path.is_file():
                seconds = mtime if 0 <= mtime < 1 << 40 else ZIP_EPOCH
                os.utime(path, (seconds, seconds))

    def expect(self, size: int) -> None:
        """Refuse what would be too much with `size` bytes more: what a member says of itself is believed in this."""
        if self._written + size > self._max_bytes:
            raise InputError(
                f"{self._source}: unpacks to more than {self._max_bytes >> 20} MB, which no log of its size does or "
                "the disk has no room for; unpack it yourself and give the folder."
            )

    def notes(self) -> tuple[str, ...]:
        """Return what was passed over, and where the archive is torn."""
        notes = []
        for why, names in sorted(self._skipped.items()):
            more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
            notes.append(f"The archive holds {len(names)} {why}, not unpacked: {', '.join(names[:MAX_NAMED])}{more}.")
        if self.torn:
            notes.append(f"{DAMAGED}: {self.torn}; what lies before the damage was read.")
        return tuple(notes)


def _unzip(path: Path, members: _Members) -> None:
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
                members.skip("link(s) or special file(s)", member.filename)
                continue
            members.expect(member.file_size)
            try:
                with archive.open(member) as content:
                    members.write(member.filename, content, mtime=_zip_time(member))
            except (zipfile.BadZipFile, zlib.error, EOFError) as error:
                members.torn = f"{member.filename}: {error}"
            except (NotImplementedError, RuntimeError) as error:  # a method unknown here, or a password
                members.skip(f"member(s) that cannot be decoded ({error})", member.filename)


def _zip_time(member: zipfile.ZipInfo) -> float:
    try:
        return float(calendar.timegm((*member.date_time, 0, 0, 0)))
    except (ValueError, OverflowError):
        return ZIP_EPOCH


class _Stream:
    """The unpacked bytes of a tar, as a file that can only be read on; ends where the compressed stream is torn."""

    def __init__(self, path: Path, members: _Members) -> None:
        self._pieces = pieces(RunFile(path=path, rel=path.name, size=path.stat().st_size))
        self._buffer = bytearray()
        self._members = members

    def read(self, size: int) -> bytes:
        while len(self._buffer) < size and (piece := next(self._pieces, None)) is not None:
            if isinstance(piece, Lost):
                self._members.torn = (piece.note or "torn").rstrip(".")
            else:
                self._buffer += piece
        content = bytes(self._buffer[:size])
        del self._buffer[:size]
        return content


def _untar(path: Path, members: _Members) -> None:
    try:
        with tarfile.open(fileobj=_Stream(path, members), mode="r|", bufsize=1 << 18) as archive:  # type: ignore[call-overload]
            for member in archive:
                if member.isdir():
                    continue
                if not member.isreg():
                    members.skip("link(s) or special file(s)", member.name)
                    continue
                content = archive.extractfile(member)
                if content is not None:
                    members.expect(member.size)
                    members.write(member.name, content, mtime=member.mtime)
    except (tarfile.TarError, EOFError, UnicodeError, OverflowError, ValueError) as error:
        if not members.files and not members.torn:
            raise InputError(f"{path}: no readable tar archive ({error}).") from error
        members.torn = members.torn or str(error)
