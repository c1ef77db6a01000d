"""The process that opens foreign files: one request a line, one answer each, under limits the system enforces.

A file's first bytes tell how it becomes one plain value.
"""

from __future__ import annotations

import gc
import io
import json
import math
import mmap
import os
import queue
import struct
import sys
import threading
import time
import zipfile
import zlib
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from ptt.diagnostics.parsers.unpickle import arrays, process
from ptt.diagnostics.parsers.unpickle.pickles import Evaluation, texts_of, unpickle
from ptt.diagnostics.parsers.unpickle.values import MB, Budget, Limits, Plain, RefusedError

MAX_MEMBERS: Final = 200_000  # a checkpoint has some thousands; each costs an object before anything is read
LOCAL: Final = struct.Struct("<4s5H3I2H")  # the header before each member
# What zipfile and the header before a member raise for archives that are cut, lie about sizes or name other methods.
DAMAGE: Final = (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error, EOFError, OSError, LookupError)


def members(data: memoryview) -> list[zipfile.ZipInfo]:
    """List the members of a zip archive; refuse repeated names, names that lead out of it, and encryption."""
    try:
        with zipfile.ZipFile(_View(data)) as archive:
            entries = archive.infolist()
    except DAMAGE as error:
        raise RefusedError("its zip archive is damaged or was cut while being written") from error
    if len(entries) > MAX_MEMBERS:
        raise RefusedError(f"it has more than {MAX_MEMBERS} members")
    names = [member.filename for member in entries]
    if len(set(names)) < len(names):
        raise RefusedError("a member occurs twice")
    if any(name.startswith("/") or "\\" in name or ".." in name.split("/") for name in names):
        raise RefusedError("a member's name leads out of the archive")
    if any(member.flag_bits & 1 for member in entries):
        raise RefusedError("it is encrypted")
    return entries


def torch_archive(data: memoryview) -> tuple[memoryview, dict[str, memoryview]]:
    """Return the pickle in an archive by torch.save, and its storages by key.

    Nothing is unpacked: members are windows into `data`.
    """
    entries = members(data)
    pickles = [member for member in entries if member.filename.rpartition("/")[2] == "data.pkl"]
    if len(pickles) != 1 or pickles[0].filename.count("/") != 1:
        raise RefusedError(f"it contains {len(pickles)} data.pkl files; torch writes one")
    root = pickles[0].filename.partition("/")[0]
    if any(member.compress_type != zipfile.ZIP_STORED for member in entries):
        raise RefusedError("its members are packed, which torch never does")
    if sum(member.file_size for member in entries) > len(data):
        raise RefusedError("its members claim more bytes than the file has")
    storages: dict[str, memoryview] = {}
    for member in entries:
        folder, _, key = member.filename.rpartition("/")
        if folder == f"{root}/data" and key:
            if not (key.isascii() and key.isdigit()):
                raise RefusedError("the name of a storage is not a number")
            storages[key] = window(data, member)
        elif member.filename == f"{root}/byteorder" and bytes(window(data, member)).strip() != b"little":
            raise RefusedError("it was written on a big-endian machine")
    return window(data, pickles[0]), storages


def window(data: memoryview, member: zipfile.ZipInfo) -> memoryview:
    """Return a stored member's bytes without copying them, checked against their checksum."""
    start = member.header_offset
    try:
        magic, *_, name, extra = LOCAL.unpack_from(data, start)
    except struct.error as error:
        raise RefusedError("a member lies outside the file") from error
    start += LOCAL.size + name + extra
    content = data[start : start + member.file_size]
    if magic != b"PK\x03\x04" or len(content) != member.file_size:
        raise RefusedError("a member lies outside the file")
    if zlib.crc32(content) != member.CRC:
        raise RefusedError("a checksum does not fit: the file is damaged, or was saved with set_crc32_options(False)")
    return content


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
        content = bytes(self._data[self._at : end])
        self._at += len(content)
        return content


def unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """Unpack one member in memory, up to the size it declares."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise RefusedError("a member is packed in a way NumPy does not use")
    try:
        return archive.read(member)
    except (*DAMAGE, zlib.error) as error:
        raise RefusedError("a member of its zip archive is damaged") from error


ZIP: Final = b"PK\x03\x04"
HEAD: Final = 512
PROTO: Final = 0x80
LEGACY: Final = b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."  # torch's magic number as a pickle, before zip archives
LEGACY_AT: Final = 2
TAR: Final = b"ustar"
TAR_AT: Final = 257
PROTOCOLS: Final = range(2, 6)
MAX_HEADER_BYTES: Final = 16 << 20  # for safetensors: a token dump needs a few hundred bytes
KEPT_TEXT: Final = 256
NESTED: Final = 4  # archives within archives; veRL and SkyRL have one


def plain_of(data: memoryview, budget: Budget, *, guarded: bool) -> Plain:
    """Read the bytes of one file."""
    head = bytes(data[:HEAD])
    if head.startswith(ZIP):
        return _zip(data, budget, guarded, 0)
    if head[LEGACY_AT:].startswith(LEGACY) or head[TAR_AT:].startswith(TAR):
        raise RefusedError("it has the layout torch used before 1.6; load and save it again with a newer torch")
    if len(head) > 1 and head[0] == PROTO and head[1] in PROTOCOLS:
        return _pickle(data, {}, budget, guarded, 0)
    if head[8:9] == b"{":
        return _safetensors(data, budget)
    raise RefusedError("it is not a torch, pickle, npz or safetensors file")


def _zip(data: memoryview, budget: Budget, guarded: bool, level: int) -> Plain:
    if level > NESTED:
        raise RefusedError("it contains archives within archives")
    if any(member.filename.endswith(".npy") for member in members(data)):
        return _npz(data, budget)
    pickled, storages = torch_archive(data)
    return _pickle(pickled, storages, budget, guarded, level)


def _pickle(data: memoryview, storages: dict[str, memoryview], budget: Budget, guarded: bool, level: int) -> Plain:
    def nested(inner: memoryview, _depth: int) -> Plain:
        return _zip(inner, budget, guarded, level + 1)

    root = unpickle(data, guarded=guarded)
    try:
        return Evaluation(storages, budget, nested).plain(root)
    except RecursionError as error:
        raise RefusedError("it is nested too deeply") from error


def _npz(data: memoryview, budget: Budget) -> Plain:
    """Read each array; objects, which NumPy pickles, are left out."""
    entries: dict[str | int, Plain] = {}
    found = members(data)
    with zipfile.ZipFile(_View(data)) as archive:  # once: it reads the list of all members
        for member in found:
            if member.filename.endswith(".npy"):
                budget.array(member.file_size)
                budget.node()
                entries[member.filename.removesuffix(".npy")[:KEPT_TEXT]] = _npy(unpacked(archive, member), budget)
    return entries


def _npy(data: bytes, budget: Budget) -> Plain:
    stream = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(stream)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
        if read is None:
            return None
        shape, by_column, dtype = read(stream)
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError) as error:
        raise RefusedError("an array's header is damaged") from error
    kind = arrays.numpy_dtype(dtype.str)
    if kind is None:  # objects or records
        return None
    sizes = arrays.whole(shape)
    body = data[stream.tell() :]
    if math.prod(sizes) * kind.itemsize != len(body):
        raise RefusedError("an array's bytes do not fit its shape")
    made = np.frombuffer(body, kind).reshape(sizes, order="F" if by_column else "C")
    if kind.kind in "US":
        budget.node(made.size)
        return texts_of(made, lambda text: text[:KEPT_TEXT])
    return made.astype(kind.newbyteorder("="))


def _safetensors(data: memoryview, budget: Budget) -> Plain:
    """A length, a header in JSON, and the tensors' bytes."""
    length = int.from_bytes(data[:8], "little")
    if length > min(MAX_HEADER_BYTES, len(data) - 8):
        raise RefusedError("its safetensors header is larger than the file, or than the limit")
    try:
        header = json.loads(bytes(data[8 : 8 + length]))
    except (ValueError, RecursionError) as error:
        raise RefusedError("its safetensors header is damaged") from error
    body = data[8 + length :]
    tensors: dict[str | int, Plain] = {}
    for name, info in header.items() if isinstance(header, dict) else ():
        budget.node()
        if name == "__metadata__" and isinstance(info, dict):
            texts: dict[str | int, Plain] = {
                str(key)[:KEPT_TEXT]: value[:KEPT_TEXT] for key, value in info.items() if isinstance(value, str)
            }
            budget.node(len(texts))
            tensors[name] = texts
        else:
            tensors[name[:KEPT_TEXT]] = _safetensor(info, body, budget)
    return tensors


def _safetensor(info: Any, body: memoryview, budget: Budget) -> Plain:
    if not isinstance(info, dict) or not isinstance(info.get("dtype"), str):
        raise RefusedError("its safetensors header describes a tensor wrongly")
    shape = arrays.whole(info.get("shape"))
    span = arrays.whole(info.get("data_offsets"))
    dtype = arrays.SAFETENSORS.get(info["dtype"])
    if dtype is None:  # such as float8
        return None
    if len(span) != 2 or not span[0] <= span[1] <= len(body):
        raise RefusedError("a tensor lies outside the file")
    if span[1] - span[0] != math.prod(shape) * arrays.itemsize(dtype):
        raise RefusedError("a tensor's bytes do not fit its shape")
    budget.array(2 * (span[1] - span[0]))
    return arrays.strided(body[span[0] : span[1]], dtype, shape=shape)


try:
    import resource

    LIMITED = True
except ImportError:  # Windows
    LIMITED = False


def main() -> None:
    """Answer until the other end closes."""
    # Nothing may print into the answers, and nothing here has a reason to write a file.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    gc.disable()
    if LIMITED:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_take, args=(requests,), daemon=True).start()
    while True:
        request = json.loads(requests.get())
        _answer(Path(request["path"]), Limits(**request["limits"]), answers)
        gc.collect()


def _take(requests: queue.SimpleQueue[bytes]) -> None:
    """Read requests while one is answered, so that this process ends as soon as its parent does."""
    for line in sys.stdin.buffer:
        requests.put(line)
    os._exit(0)


def _answer(path: Path, limits: Limits, answers: BinaryIO) -> None:
    guarded = LIMITED and _address_space() > 0
    began = time.process_time()
    try:
        tree, arrays = process.encode(_read(path, limits, guarded=guarded))
        took = time.process_time() - began
        pieces = process.pack({"tree": tree, "guarded": guarded, "seconds": took}, arrays)
    except RefusedError as error:
        pieces = process.pack({"refused": str(error), "seconds": time.process_time() - began}, [])
    except OSError as error:
        pieces = process.pack({"refused": f"could not be read: {error.strerror}"}, [])
    except RecursionError:
        pieces = process.pack({"refused": "it is nested too deeply"}, [])
    except MemoryError:
        pieces = process.pack({"refused": _needs_more(path, limits), "spent": True}, [])
    for piece in pieces:
        answers.write(piece)
    answers.flush()


def _needs_more(path: Path, limits: Limits) -> str:
    allowed = limits.memory_for(path.stat().st_size) // MB
    return f"reading it takes more than the {allowed} MB of memory allowed for a file of its size"


def _read(path: Path, limits: Limits, *, guarded: bool) -> Any:
    with path.open("rb") as handle:
        size = os.fstat(handle.fileno()).st_size
        if size > limits.file:
            raise RefusedError(f"it is larger than {limits.file // MB} MB, the limit")
        if size == 0:
            raise RefusedError("it is empty")
        if guarded:
            _limit(limits, size)
        data = memoryview(mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ))
    packed = bytes(data[:4]) == ZIP and path.suffix == ".npz"
    budget = Budget(arrays=limits.arrays_for(size, packed=packed), nodes=limits.nodes, text=limits.text)
    return plain_of(data, budget, guarded=guarded)


def _limit(limits: Limits, size: int) -> None:
    """Allow what this file may take in addition to what the process has taken so far."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + size + limits.memory_for(size), hard))
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time() + limits.cpu_for(size)) + 1, hard))


def _address_space() -> int:
    """Bytes of address space in use; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError):
        return 0
    return pages * mmap.PAGESIZE
