"""One file to one plain value, by its first bytes."""

from __future__ import annotations

import io
import json
import math
from typing import Any, Final

import numpy as np

from ptt.diagnostics.inert import tensors
from ptt.diagnostics.inert.archives import members, torch_archive, unpacked
from ptt.diagnostics.inert.budget import Budget
from ptt.diagnostics.inert.calls import texts_of
from ptt.diagnostics.inert.evaluate import Evaluation
from ptt.diagnostics.inert.plain import Plain
from ptt.diagnostics.inert.records import unpickle
from ptt.diagnostics.inert.refused import RefusedError

ZIP: Final = b"PK\x03\x04"
HEAD: Final = 512
PROTO: Final = 0x80
LEGACY: Final = b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."  # torch's magic number as a pickle, before zip archives
LEGACY_AT: Final = 2
TAR: Final = b"ustar"
TAR_AT: Final = 257
PROTOCOLS: Final = range(2, 6)
HEADER_MOST: Final = 16 << 20  # of safetensors: a token dump needs a few hundred bytes
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
    raise RefusedError("it is no torch, pickle, npz or safetensors file")


def _zip(data: memoryview, budget: Budget, guarded: bool, level: int) -> Plain:
    if level > NESTED:
        raise RefusedError("it holds archives within archives")
    if any(member.filename.endswith(".npy") for member in members(data)):
        return _npz(data, budget)
    archive = torch_archive(data)
    return _pickle(archive.pickle, archive.storages, budget, guarded, level)


def _pickle(data: memoryview, storages: dict[str, memoryview], budget: Budget, guarded: bool, level: int) -> Plain:
    def nested(inner: memoryview, _depth: int) -> Plain:
        return _zip(inner, budget, guarded, level + 1)

    found = unpickle(data, guarded=guarded)
    try:
        return Evaluation(storages, budget, nested).plain(found)
    except RecursionError as error:
        raise RefusedError("it is nested too deeply") from error


def _npz(data: memoryview, budget: Budget) -> Plain:
    """Read each array; objects, which NumPy pickles, are left out."""
    found: dict[str | int, Plain] = {}
    for member in members(data):
        if member.filename.endswith(".npy"):
            budget.array(member.file_size)
            budget.node()
            found[member.filename.removesuffix(".npy")[:KEPT_TEXT]] = _npy(unpacked(data, member), budget)
    return found


def _npy(data: bytes, budget: Budget) -> Plain:
    stream = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(stream)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read is None:
            return None
        shape, by_column, dtype = read(stream)
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError) as error:
        raise RefusedError("an array's header is damaged") from error
    kind = tensors.numpy_dtype(dtype.str)
    if kind is None:  # objects or records
        return None
    sizes = tensors.whole(shape)
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
    if length > min(HEADER_MOST, len(data) - 8):
        raise RefusedError("its safetensors header is larger than the file or than is read")
    try:
        header = json.loads(bytes(data[8 : 8 + length]))
    except (ValueError, RecursionError) as error:
        raise RefusedError("its safetensors header is damaged") from error
    body = data[8 + length :]
    found: dict[str | int, Plain] = {}
    for name, told in header.items() if isinstance(header, dict) else ():
        budget.node()
        if name == "__metadata__" and isinstance(told, dict):
            texts: dict[str | int, Plain] = {
                str(key)[:KEPT_TEXT]: value[:KEPT_TEXT] for key, value in told.items() if isinstance(value, str)
            }
            budget.node(len(texts))
            found[name] = texts
        else:
            found[name[:KEPT_TEXT]] = _safetensor(told, body, budget)
    return found


def _safetensor(told: Any, body: memoryview, budget: Budget) -> Plain:
    if not isinstance(told, dict) or not isinstance(told.get("dtype"), str):
        raise RefusedError("its safetensors header describes a tensor wrongly")
    shape = tensors.whole(told.get("shape"))
    span = tensors.whole(told.get("data_offsets"))
    dtype = tensors.SAFETENSORS.get(told["dtype"])
    if dtype is None:  # float8 and the like
        return None
    if len(span) != 2 or not span[0] <= span[1] <= len(body):
        raise RefusedError("a tensor lies outside of the file")
    if span[1] - span[0] != math.prod(shape) * tensors.itemsize(dtype):
        raise RefusedError("a tensor's bytes do not fit its shape")
    budget.array(2 * (span[1] - span[0]))
    return tensors.strided(body[span[0] : span[1]], dtype, shape=shape)
