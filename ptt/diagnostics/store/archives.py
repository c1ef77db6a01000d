"""Unpack an archive of a run dir into a temporary folder, and never a byte outside of it."""

from __future__ import annotations

import calendar
import errno
import lzma
import os
import shutil
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO, Final, Self

from ptt.diagnostics.budget_limits import DEFAULT_LIMITS, BudgetLimits
from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.errors import InputError, no_room
from ptt.diagnostics.parsers.io.budget import Budget, BudgetSpent
from ptt.diagnostics.parsers.io.interface import Lost, RunFile
from ptt.diagnostics.parsers.io.lines import pieces
from ptt.diagnostics.parsers.io.run_files import MAX_FILES
from ptt.diagnostics.parsers.io.zip_members import END, TAIL_BYTES
from ptt.diagnostics.wording import counted
from ptt.stopping import temporary_folder

SUFFIXES: Final = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst")
CHUNK_BYTES: Final = 1 << 20
FREE_RATIO: Final = 0.8  # of the free disk space: the rest is for the store and for others
BOMB_BYTES: Final = 1 << 30  # unpacked; below it no ratio is suspicious
BOMB_RATIO: Final = 300  # unpacked over packed; logs of floats reach 5, logs of text 40
TAR_BUFFER: Final = 1 << 18
HEADER_BYTES: Final = 4 << 20  # before a tar member: its name, attributes and other metadata
ZIP_EPOCH: Final = 315_532_800.0  # 1980, a zip's time if the real one is unknown
PACKED_MEMBER: Final = 128
"""Bytes of the archive that a member takes: rollouts of one short text each, packed as tar.zst, take 140 to 200. Each
MB then adds 8192 files, which take 2 s, as long as a MB may take."""
ALWAYS_MEMBERS: Final = 10_000
"""That any archive may hold: a store of MLflow has a file for each parameter and tag, of 27 bytes when packed."""
MAX_NAMED: Final = 5  # members that a note names
BAD_NAME: Final = frozenset({errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ})  # too long, or bytes that are not a name
BAD_SEEK: Final = (None, errno.EINVAL)  # for damage: bz2 gives no number, and seeking before the start is invalid
# What zipfile and the decoders raise for a list of members, and for a member, that is cut or lies.
BAD_LIST: Final = (
    zipfile.BadZipFile, NotImplementedError, ValueError, EOFError, LookupError, OverflowError, OSError, struct.error,
)  # fmt: skip
BAD_MEMBER: Final = (*BAD_LIST, zlib.error, lzma.LZMAError, MemoryError)
MANY_ENTRIES: Final = 0xFFFF  # 65,535: the real count is elsewhere, or was cut to 16 bits
MAX_NAME: Final = 100  # characters of a name in a note
MAKE_ROOM: Final = "set TMPDIR to a folder with more room, or unpack it yourself and give the folder"
DAMAGED: Final = "The archive is damaged"  # how its note begins; a gate checks for it
STOPPED: Final = "The rest of the archive was not unpacked"  # the same


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
    """Return whether a name has an archive's ending."""
    return name.lower().endswith(SUFFIXES)


def run_name(path: Path) -> str:
    """Return a run's name: that of its folder or file, or of its archive without the ending."""
    suffix = _suffix(path.name) if path.is_file() else ""
    return path.name.removesuffix(suffix) or path.name


def _suffix(name: str) -> str:
    """Return the longest archive suffix of a name, as spelt there; "" if it has none."""
    length = max((len(suffix) for suffix in SUFFIXES if name.lower().endswith(suffix)), default=0)
    return name[len(name) - length :]


def packed_in(run: Path, names: Sequence[str], packed: Path | None) -> str:
    """Return what to give instead of a folder in which only archives could be runs; "" if it has none.

    `names`: the files of the folder; `packed`: the archive that the folder was unpacked from.
    """
    inside = [name for name in names if is_packed(name)]
    if not inside:
        return ""
    if packed is not None:
        archives = counted(len(inside), "archive(s)")
        return f"contains {archives}, such as {inside[0]}, and nothing else ptt reads; unpack it and give those"
    path = run / inside[0]
    if len(inside) == 1:
        return f'contains one archive and nothing else ptt reads; give that archive: "{path}"'
    glob = path.with_name(f"*{_suffix(path.name)}")
    return f'contains {len(inside)} archives and nothing else ptt reads; give the archives, e.g. "{glob}"'


@contextmanager
def unpacked(path: Path, limits: BudgetLimits = DEFAULT_LIMITS) -> Iterator[Unpacked]:
    """Unpack `path` for as long as the block runs; InputError where it holds nothing or looks like a bomb."""
    with temporary_folder("ptt-run-") as scratch:
        target = Path(scratch).resolve()
        free = int(FREE_RATIO * shutil.disk_usage(target).free)
        budget = Budget(limits, nbytes=path.stat().st_size)
        budget.begin(path.stat().st_size)
        members = _Members(path, target, budget, min(max(BOMB_BYTES, BOMB_RATIO * path.stat().st_size), free))
        try:
            (_unzip if path.name.lower().endswith(".zip") else _untar)(path, members)
        except OSError as error:
            more = f"; {MAKE_ROOM}" if no_room(error) else ""
            raise InputError(f"{path}: cannot be unpacked: {error.strerror or error}{more}.") from error
        except (BudgetSpent, _TooManyError) as spent:
            members.stopped = str(spent)
        if not members.files:
            why = f" ({members.torn or members.stopped})" if members.torn or members.stopped else ""
            raise InputError(f"{path}: contains no file that could be unpacked{why}.")
        top = list(target.iterdir())  # archives of a folder consist of that one
        folder = top[0] if len(top) == 1 and top[0].is_dir() else target
        yield Unpacked(folder=folder, name=run_name(path), notes=members.notes())


class _TooManyError(Exception):
    """An archive holds more members than its size explains."""


class _Members:
    """Writes an archive's members; refuses those that would leave the folder or fill the disk."""

    def __init__(self, source: Path, target: Path, budget: Budget, max_bytes: int) -> None:
        self.torn = ""  # what is damaged
        self.stopped = ""  # why the rest was not unpacked
        self.files = 0
        self.budget = budget
        self._source, self._target, self._max_bytes = source, target, max_bytes
        self._most = ALWAYS_MEMBERS + source.stat().st_size // PACKED_MEMBER
        self._written = 0
        self._skipped: dict[str, tuple[int, list[str]]] = {}  # by reason: how many, and the first names

    def skip(self, why: str, name: str) -> None:
        """Note a member that is passed over."""
        self.budget.tick()
        count, names = self._skipped.get(why, (0, []))
        self._skipped[why] = count + 1, names if len(names) == MAX_NAMED else [*names, name[:MAX_NAME]]

    def write(self, name: str, content: IO[bytes], *, mtime: float) -> None:
        """Write one member with its time, by which the store detects unchanged input; if torn, the part there is."""
        self.budget.tick()
        parts = [part for part in PurePosixPath(name.replace("\\", "/")).parts if part != "."]
        if not parts or name.startswith("/") or ".." in parts or "\0" in name or ":" in parts[0]:
            self.skip("name(s) that point out of the archive", name)
            return
        if self.files == MAX_FILES:
            why = f"contains more than {MAX_FILES} files; give a smaller archive or the folder."
            raise InputError(f"{self._source}: {why}")
        if self.files == self._most:
            raise _TooManyError(f"more than {self._most} files are too many for logs of its size; unpack it yourself")
        path = self._target.joinpath(*parts)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as out:
                self.files += 1
                while chunk := content.read(CHUNK_BYTES):
                    self.budget.tick()
                    self.expect(len(chunk))
                    self._written += len(chunk)
                    out.write(chunk)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            self.skip("member(s) whose place another one takes", name)
        except OSError as error:
            if error.errno not in BAD_NAME:
                raise
            self.skip("member(s) with a name that no file can have on this system", name)
        finally:
            self._date(path, mtime)

    def _date(self, path: Path, mtime: float) -> None:
        seconds = mtime if 0 <= mtime < 1 << 40 else ZIP_EPOCH
        with suppress(OSError):  # never written
            if path.is_file():
                os.utime(path, (seconds, seconds))

    def expect(self, size: int) -> None:
        """Refuse `size` more bytes if they are too many: a member's own claim is believed for this."""
        if self._written + size > self._max_bytes:
            raise InputError(
                f"{self._source}: unpacks to more than {self._max_bytes >> 20} MB, too much for logs of its size or "
                "for this disk; unpack it yourself and give the folder."
            )

    def notes(self) -> tuple[str, ...]:
        """Return what was passed over, and where the archive is torn."""
        notes = []
        for why, (count, names) in sorted(self._skipped.items()):
            more = f" and {count - MAX_NAMED} more" if count > MAX_NAMED else ""
            notes.append(f"The archive contains {counted(count, why)}, not unpacked: {', '.join(names)}{more}.")
        if self.torn:
            notes.append(f"{DAMAGED}: {self.torn}; everything before the damage was read.")
        if self.stopped:
            notes.append(f"{STOPPED}: {self.stopped}.")
        return tuple(notes)


def _unzip(path: Path, members: _Members) -> None:
    try:
        archive = zipfile.ZipFile(path)
    except BAD_LIST as error:  # torn, of a later version, or senseless
        if isinstance(error, OSError) and error.errno not in BAD_SEEK:
            raise
        raise InputError(
            f"{path}: not a readable zip archive ({error}); a torn zip has lost its table of contents."
        ) from error
    with archive:
        entries, said = archive.infolist(), _entries_said(path)
        if said is not None and said != len(entries) & MANY_ENTRIES:
            members.torn = f"its table of contents says {said} members and lists {len(entries)}"
        for member in entries:
            if member.filename.endswith("/"):
                continue
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind and not stat.S_ISREG(kind):
                members.skip("link(s) or special file(s)", member.filename)
                continue
            members.expect(member.file_size)
            try:
                with archive.open(member) as content:
                    members.write(member.filename, content, mtime=_zip_time(member))
            except (NotImplementedError, RuntimeError) as error:  # a method unknown here, or a password
                members.skip(f"member(s) that cannot be decoded ({error})", member.filename)
            except BAD_MEMBER as error:
                if isinstance(error, OSError) and error.errno not in BAD_SEEK:  # an error of the disk
                    raise
                members.torn = f"{member.filename[:MAX_NAME]}: {str(error) or type(error).__name__}"


def _entries_said(path: Path) -> int | None:
    """Return how many members the end of a zip file counts, modulo 65,536; None where that is not said there."""
    with path.open("rb") as handle:
        handle.seek(max(0, path.stat().st_size - TAIL_BYTES))
        tail = handle.read(TAIL_BYTES)
    at = tail.rfind(END)
    if at < 0 or len(tail) < at + 12:
        return None
    count = int.from_bytes(tail[at + 10 : at + 12], "little")
    return None if count == MANY_ENTRIES else count


def _zip_time(member: zipfile.ZipInfo) -> float:
    try:
        return float(calendar.timegm((*member.date_time, 0, 0, 0)))
    except (ValueError, OverflowError):
        return ZIP_EPOCH


class _Stream:
    """The unpacked bytes of a tar, as a file that can only be read on; ends where the compressed stream is torn.

    `between`: what is read belongs to headers, whose sizes a damaged one may say are any.
    """

    def __init__(self, path: Path, members: _Members) -> None:
        self._pieces = pieces(RunFile(path=path, rel=path.name, size=path.stat().st_size))
        self._buffer = bytearray()
        self._members = members
        self._read = self._before = 0

    def next_header(self) -> None:
        """Begin to count what the next header takes."""
        self._before = self._read

    def end_header(self) -> None:
        """Count no longer: a member follows."""
        self._before = self._read + (1 << 62)

    def read(self, size: int) -> bytes:
        if self._read - self._before > HEADER_BYTES:
            raise tarfile.ReadError(f"a header of more than {HEADER_BYTES >> 20} MB")
        while len(self._buffer) < size and (piece := next(self._pieces, None)) is not None:
            if isinstance(piece, Lost):
                self._members.torn = (piece.note or "torn").rstrip(".")
            else:
                self._buffer += piece
        content = bytes(self._buffer[:size])
        del self._buffer[:size]
        self._read += len(content)
        return content


class _Header(tarfile.TarInfo):
    """A header whose damage is an error: the library takes a damaged one for the end of the archive."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        try:
            return super().frombuf(buf, encoding, errors)
        except (tarfile.InvalidHeaderError, tarfile.TruncatedHeaderError) as error:  # type: ignore[attr-defined]
            raise tarfile.ReadError(f"a damaged header: {error}") from error


def _untar(path: Path, members: _Members) -> None:
    stream = _Stream(path, members)
    try:
        with tarfile.open(fileobj=stream, mode="r|", bufsize=TAR_BUFFER, tarinfo=_Header) as archive:  # type: ignore[call-overload]
            while (member := archive.next()) is not None:
                stream.end_header()
                members.expect(member.size)
                _take(archive, member, members)
                archive.members = []  # the library keeps them all, and what was said for all of them for each
                archive.pax_headers.clear()
                stream.next_header()
    except (tarfile.TarError, EOFError, UnicodeError, OverflowError, ValueError) as error:
        if not members.files and not members.torn:
            raise InputError(f"{path}: not a readable tar archive ({error}).") from error
        members.torn = members.torn or str(error)


def _take(archive: tarfile.TarFile, member: tarfile.TarInfo, members: _Members) -> None:
    """Write a member and read to its end in any case, since a header follows."""
    members.budget.tick()
    if member.isdir():
        return
    if not member.isreg():
        members.skip("link(s) or special file(s)", member.name)
        if member.type in tarfile.SUPPORTED_TYPES:  # these have no content
            return
    content = archive.extractfile(member)
    if content is None:
        return
    if member.isreg():
        members.write(member.name, content, mtime=member.mtime)
    while content.read(CHUNK_BYTES):
        members.budget.tick()
