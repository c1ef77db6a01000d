"""The members of a zip archive that torch wrote: stored, not packed, one pickle and its storages."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from dataclasses import dataclass
from typing import Final

from ptt.diagnostics.inert.refused import RefusedError

MAX_MEMBERS: Final = 200_000
LOCAL: Final = struct.Struct("<4s5H3I2H")  # the header before each member
# What zipfile and the header before a member raise for archives that are cut, lie about sizes or name other methods.
DAMAGE: Final = (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error, EOFError, OSError, LookupError)


@dataclass(frozen=True)
class TorchArchive:
    """The pickle of an archive and its storages by key."""

    pickle: memoryview
    storages: dict[str, memoryview]


def members(data: memoryview) -> list[zipfile.ZipInfo]:
    """List what a zip archive holds; refuse names that occur twice or lead out of it, and encryption."""
    try:
        with zipfile.ZipFile(_View(data)) as archive:
            found = archive.infolist()
    except DAMAGE as error:
        raise RefusedError("its zip archive is damaged or was cut while being written") from error
    if len(found) > MAX_MEMBERS:
        raise RefusedError(f"it holds more than {MAX_MEMBERS} members")
    names = [member.filename for member in found]
    if len(set(names)) < len(names):
        raise RefusedError("a member occurs twice")
    if any(name.startswith("/") or "\\" in name or ".." in name.split("/") for name in names):
        raise RefusedError("a member's name leads out of the archive")
    if any(member.flag_bits & 1 for member in found):
        raise RefusedError("it is encrypted")
    return found


def torch_archive(data: memoryview) -> TorchArchive:
    """Open an archive by torch.save; nothing is unpacked, members are windows into `data`."""
    found = members(data)
    pickles = [member for member in found if member.filename.rpartition("/")[2] == "data.pkl"]
    if len(pickles) != 1 or pickles[0].filename.count("/") != 1:
        raise RefusedError(f"it holds {len(pickles)} data.pkl where torch writes one")
    root = pickles[0].filename.partition("/")[0]
    if any(member.compress_type != zipfile.ZIP_STORED for member in found):
        raise RefusedError("its members are packed, which torch never does")
    if sum(member.file_size for member in found) > len(data):
        raise RefusedError("its members claim more bytes than the file has")
    storages: dict[str, memoryview] = {}
    for member in found:
        folder, _, key = member.filename.rpartition("/")
        if folder == f"{root}/data" and key:
            if not (key.isascii() and key.isdigit()):
                raise RefusedError("a storage has no number for a name")
            storages[key] = window(data, member)
        elif member.filename == f"{root}/byteorder" and bytes(window(data, member)).strip() != b"little":
            raise RefusedError("it was written on a big-endian machine")
    return TorchArchive(pickle=window(data, pickles[0]), storages=storages)


def window(data: memoryview, member: zipfile.ZipInfo) -> memoryview:
    """Return a stored member's bytes without copying them, checked against their checksum."""
    start = member.header_offset
    try:
        magic, *_, name, extra = LOCAL.unpack_from(data, start)
    except struct.error as error:
        raise RefusedError("a member lies outside of the file") from error
    start += LOCAL.size + name + extra
    found = data[start : start + member.file_size]
    if magic != b"PK\x03\x04" or len(found) != member.file_size:
        raise RefusedError("a member lies outside of the file")
    if zlib.crc32(found) != member.CRC:
        raise RefusedError("a checksum does not fit: the file is damaged, or was saved with set_crc32_options(False)")
    return found


class _View(io.RawIOBase):
    """A window into a file, as a file: zipfile wants to seek."""

    def __init__(self, data: memoryview) -> None:
        self._data, self._at = data, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        target = offset + (0, self._at, len(self._data))[whence]
        if target < 0:
            raise ValueError("before the start")
        self._at = target
        return target

    def tell(self) -> int:
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        end = len(self._data) if size is None or size < 0 else self._at + size
        found = bytes(self._data[self._at : end])
        self._at += len(found)
        return found


def unpacked(data: memoryview, member: zipfile.ZipInfo) -> bytes:
    """Unpack one member in memory, up to the size it declares."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise RefusedError("a member is packed in a way NumPy does not use")
    try:
        with zipfile.ZipFile(_View(data)) as archive:
            return archive.read(member)
    except (*DAMAGE, zlib.error) as error:
        raise RefusedError("a member of its zip archive is damaged") from error
