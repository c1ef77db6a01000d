"""Write pickles and torch archives field by field, as torch does, without torch; also such as nobody should write."""

from __future__ import annotations

import io
import math
import struct
import zipfile
from dataclasses import dataclass, field
from typing import Any

import numpy as np

STORAGES = {
    "float32": "FloatStorage",
    "float64": "DoubleStorage",
    "float16": "HalfStorage",
    "int64": "LongStorage",
    "int32": "IntStorage",
    "int16": "ShortStorage",
    "int8": "CharStorage",
    "uint8": "ByteStorage",
    "bool": "BoolStorage",
    "bfloat16": "BFloat16Storage",
}
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Name:
    """A class or function."""

    module: str
    name: str


@dataclass(frozen=True)
class Call:
    """A function called, and then a state set."""

    function: Name
    args: tuple[Any, ...]
    state: Any = None


@dataclass(frozen=True)
class Stored:
    """A tensor's storage, by torch's persistent id."""

    kind: str
    key: str
    numel: int


def text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def ops(value: Any) -> bytes:
    """Return the opcodes that build a value, without a header."""
    match value:
        case None:
            return b"N"
        case bool():
            return b"\x88" if value else b"\x89"
        case int():
            return b"J" + struct.pack("<i", value) if abs(value) < 1 << 31 else b"I%d\n" % value
        case float():
            return b"G" + struct.pack(">d", value)
        case str():
            return text(value)
        case bytes():
            return b"B" + struct.pack("<I", len(value)) + value
        case list():
            return b"](" + b"".join(map(ops, value)) + b"e"
        case tuple():
            return b"(" + b"".join(map(ops, value)) + b"t"
        case dict():
            return b"}(" + b"".join(ops(key) + ops(entry) for key, entry in value.items()) + b"u"
        case Name(module, name):
            return b"c" + module.encode() + b"\n" + name.encode() + b"\n"
        case Call(function, args, state):
            call = ops(function) + ops(args) + b"R"
            return call if state is None else call + ops(state) + b"b"
        case Stored(kind, key, numel):
            return ops(("storage", Name("torch", kind), key, "cpu", numel)) + b"Q"
        case _:
            raise TypeError(type(value))


def pickled(value: Any) -> bytes:
    """Return a whole pickle."""
    return b"\x80\x03" + ops(value) + b"."


def tensor(kind: str, key: str, shape: tuple[int, ...], **other: Any) -> Call:
    """Return what rebuilds a tensor; `other` overrides numel, offset or strides."""
    strides = tuple(math.prod(shape[at + 1 :]) for at in range(len(shape)))
    storage = Stored(kind, key, other.get("numel", math.prod(shape)))
    args = (storage, other.get("offset", 0), shape, other.get("strides", strides), False)
    return Call(Name("torch._utils", "_rebuild_tensor_v2"), (*args, Call(Name("collections", "OrderedDict"), ())))


@dataclass
class Archive:
    """A torch archive in the making."""

    root: str = "archive"
    storages: dict[str, bytes] = field(default_factory=dict)

    def add(self, values: Array, dtype: str | None = None) -> Call:
        """Store an array and return what rebuilds it; bfloat16 is given as its 16 bits."""
        key = str(len(self.storages))
        self.storages[key] = np.ascontiguousarray(values).tobytes()
        return tensor(STORAGES[dtype or str(values.dtype)], key, values.shape)

    def value(self, found: Any) -> Any:
        """Replace the arrays in a value by tensors."""
        if isinstance(found, np.ndarray):
            return self.add(found)
        if isinstance(found, dict):
            return {key: self.value(entry) for key, entry in found.items()}
        return [self.value(entry) for entry in found] if isinstance(found, list) else found

    def packed(self, pickle: bytes, *, byteorder: bytes = b"little", packing: int = zipfile.ZIP_STORED) -> bytes:
        """Return the archive around a pickle."""
        members = {"data.pkl": pickle, "byteorder": byteorder, "version": b"3\n"}
        members |= {f"data/{key}": raw for key, raw in self.storages.items()}
        return zipped({f"{self.root}/{name}": raw for name, raw in members.items()}, packing)


def zipped(members: dict[str, bytes], packing: int = zipfile.ZIP_STORED) -> bytes:
    """Return a zip archive without the time of day."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", packing) as archive:
        for name, raw in members.items():
            archive.writestr(zipfile.ZipInfo(name), raw, packing)
    return stream.getvalue()


def torch_file(value: Any, root: str = "archive") -> bytes:
    """Return what torch.save writes for dicts and lists with arrays for tensors."""
    archive = Archive(root)
    return archive.packed(pickled(archive.value(value)))


def data_proto(fields: dict[str, Array], others: dict[str, Any], facts: dict[str, Any]) -> bytes:
    """Return what veRL's DataProto.save_to_disk writes: an archive in a pickle, all tensors in one storage."""
    leaves: dict[str, Any] = {}
    body = b""
    for name, values in fields.items():
        leaves[name] = (f"torch.{values.dtype}", list(values.shape), len(body), len(body) + values.nbytes, 0)
        body += values.tobytes()
    archive = Archive()
    stored = archive.add(np.frombuffer(body, np.uint8))
    rebuild = Name("tensordict._reductions", "_rebuild_tensordict_files_consolidated")
    inner = archive.packed(pickled(Call(rebuild, ({"leaves": leaves}, stored))))
    return pickled(Call(Name("verl.protocol", "DataProto"), (), (inner, others, facts)))


def safetensors(tensors: dict[str, Array], metadata: dict[str, str] | None = None) -> bytes:
    """Return a safetensors file."""
    import json

    codes = {"float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32", "uint8": "U8", "bool": "BOOL"}
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    body = b""
    for name, values in tensors.items():
        raw = values.tobytes()
        offsets = [len(body), len(body) + len(raw)]
        header[name] = {"dtype": codes[str(values.dtype)], "shape": list(values.shape), "data_offsets": offsets}
        body += raw
    head = json.dumps(header).encode()
    return struct.pack("<Q", len(head)) + head + body
