"""From inert records to plain values: a closed table says which of them mean a tensor, an array or a container."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from ptt.diagnostics.inert import tensors
from ptt.diagnostics.inert.plain import Array, Node, Plain
from ptt.diagnostics.inert.records import Record, Storage
from ptt.diagnostics.inert.refused import RefusedError

MAX_DEPTH: Final = 64
TEXT_KEPT: Final = 256  # characters: identifiers fit, prompts and answers are not wanted
INT64: Final = 1 << 63

Origin = tuple[str, str]


class Budget:
    """What one file may still give; shared by the archives inside it."""

    def __init__(self, *, arrays: int, nodes: int, text: int) -> None:
        self._arrays, self._nodes, self._text = arrays, nodes, text

    def array(self, size: int) -> None:
        """Take `size` bytes."""
        self._arrays -= size
        if self._arrays < 0:
            raise RefusedError("its arrays are larger than its size explains")

    def node(self, count: int = 1) -> None:
        """Take `count` values."""
        self._nodes -= count
        if self._nodes < 0:
            raise RefusedError("it holds more values outside of arrays than are read")

    def text(self, size: int) -> None:
        """Take `size` characters."""
        self._text -= size
        if self._text < 0:
            raise RefusedError("it holds more text than is read")


class Evaluation:
    """One walk over one pickle's records: `storages` give tensors' bytes by key, `nested` reads inner archives."""

    def __init__(
        self, storages: Mapping[str, memoryview], budget: Budget, nested: Callable[[memoryview, int], Plain]
    ) -> None:
        self._storages = storages
        self._budget = budget
        self._nested = nested
        self._arrays: dict[int, Array] = {}
        self._open: set[int] = set()

    def plain(self, found: Any, depth: int = 0) -> Plain:
        """Return the plain form of a value; refuse what is nested too deeply or contains itself."""
        self._budget.node()
        kind = type(found)
        if found is None or kind is bool or kind is float:
            return found  # type: ignore[no-any-return]
        if kind is int:
            return found if -INT64 <= found < INT64 else None
        if kind is str:
            return self._text(found)
        if depth > MAX_DEPTH:
            raise RefusedError(f"it is nested more than {MAX_DEPTH} deep")
        if kind is bytes or kind is bytearray:
            return self._bytes(memoryview(found), depth)
        if id(found) in self._arrays:
            return self._arrays[id(found)]
        if id(found) in self._open:
            raise RefusedError("it contains itself")
        self._open.add(id(found))
        made = self._container(found, depth + 1)
        self._open.discard(id(found))
        if isinstance(made, np.ndarray):
            self._arrays[id(found)] = made
        return made

    def _container(self, found: Any, depth: int) -> Plain:
        if isinstance(found, (list, tuple, set, frozenset)):
            return self._list(found, depth)
        if isinstance(found, dict):
            return self._dict(found.items(), depth)
        if isinstance(found, Record):
            return self._call(found.origin, found.args, found, depth)
        if isinstance(found, type) and issubclass(found, Record):
            return Node(self._text(".".join(found.origin)), [], None)
        return Node(type(found).__name__, [], None)  # a bare storage

    def _text(self, found: str) -> str:
        kept = found[:TEXT_KEPT]
        self._budget.text(len(kept))
        # A lone surrogate has no UTF-8, and no table could hold it.
        return kept if kept.isascii() else kept.encode("utf-8", "replace").decode("utf-8")

    def _bytes(self, found: memoryview, depth: int) -> Plain:
        if bytes(found[:4]) == b"PK\x03\x04":
            return self._nested(found, depth)
        return self._kept(np.frombuffer(found, np.uint8).copy())

    def _kept(self, made: Array) -> Array:
        self._budget.array(made.nbytes)
        return made

    def _list(self, found: Any, depth: int) -> Plain:
        """Pack numbers into an array; walk anything else."""
        kinds = set(map(type, found))
        if kinds and kinds <= {int, float, bool, type(None)} and kinds != {type(None)}:
            self._budget.array(8 * len(found))
            dtype = np.bool_ if kinds == {bool} else np.float64 if kinds & {float, type(None)} else np.int64
            try:
                return np.array(list(found), dtype)
            except OverflowError:  # an integer beyond 64 bits
                pass
        return [self.plain(entry, depth) for entry in found]

    def _dict(self, pairs: Any, depth: int) -> dict[str | int, Plain]:
        """Keep the entries under text and integers: others are of no use as names."""
        return {self._key(key): self.plain(value, depth) for key, value in pairs if type(key) in (str, int)}

    def _key(self, key: str | int) -> str | int:
        return self._text(key) if isinstance(key, str) else max(-INT64, min(key, INT64 - 1))

    def _call(self, origin: Origin, args: Any, record: Record | None, depth: int) -> Plain:
        way = _TABLE.get(origin)
        made = None if way is None or not isinstance(args, tuple) else way(self, args, record, depth)
        if made is not None:
            return made
        name = self._text(".".join(origin))
        state = self.plain(record.state, depth) if record is not None else None
        return Node(name, [self.plain(arg, depth) for arg in args] if isinstance(args, tuple) else [], state)

    # ---- what the table evaluates; None where the arguments are not the expected ones ----

    def _tensor(self, args: tuple[Any, ...], _record: Record | None, _depth: int) -> Plain:
        """torch._utils._rebuild_tensor_v2 and _v3: (storage, offset, size, stride, ..., [v3: dtype])."""
        if len(args) < 4 or not isinstance(args[0], Storage):
            return None
        storage, offset, size, stride = args[:4]
        dtype = tensors.STORAGES.get(storage.kind)
        if len(args) > 6 and isinstance(args[6], type) and issubclass(args[6], Record):
            dtype = tensors.DTYPES.get(args[6].origin[1])
        if dtype is None:
            return None  # float8, complex, quantised: not read, and said so by whoever wants them
        if storage.key not in self._storages:
            raise RefusedError("a tensor's storage is missing")
        data = self._storages[storage.key]
        needed = storage.numel * tensors.itemsize(tensors.STORAGES.get(storage.kind, "uint8"))
        if needed > data.nbytes:
            raise RefusedError("a tensor's storage is shorter than it says")
        shape = tensors.whole(self._size(size))
        self._budget.array(math.prod(shape) * max(tensors.itemsize(dtype), 4 if dtype == tensors.BF16 else 1))
        (start,) = tensors.whole((offset,))
        strides = tensors.whole(self._size(stride))
        return tensors.strided(data[:needed], dtype, shape=shape, strides=strides, offset=start)

    @staticmethod
    def _size(found: Any) -> Any:
        if isinstance(found, Record) and found.origin == ("torch", "Size") and len(found.args) == 1:
            return found.args[0]
        return found

    def _first(self, args: tuple[Any, ...], _record: Record | None, depth: int) -> Plain:
        """torch._utils._rebuild_parameter, torch.Size, set: what they hold."""
        return self.plain(args[0], depth) if args else []

    def _device(self, args: tuple[Any, ...], _record: Record | None, _depth: int) -> Plain:
        return self._text(args[0]) if args and isinstance(args[0], str) else None

    def _typed(self, args: tuple[Any, ...], _record: Record | None, depth: int) -> Plain:
        """torch._tensor._rebuild_from_type_v2: (function, type, its arguments, state)."""
        if len(args) != 4 or not (isinstance(args[0], type) and issubclass(args[0], Record)):
            return None
        if depth > MAX_DEPTH:  # it may name itself again and again
            raise RefusedError(f"it is nested more than {MAX_DEPTH} deep")
        return self._call(args[0].origin, args[2], None, depth + 1)

    def _mapping(self, args: tuple[Any, ...], record: Record | None, depth: int) -> Plain:
        """collections.OrderedDict, with its entries as argument or set one by one."""
        pairs = list(record.pairs) if record is not None else []
        given = args[0] if args else ()
        if isinstance(given, dict):
            pairs = [*given.items(), *pairs]
        elif isinstance(given, (list, tuple)):
            pairs = [*(tuple(pair) for pair in given if isinstance(pair, (list, tuple)) and len(pair) == 2), *pairs]
        return self._dict(pairs, depth)

    def _encoded(self, args: tuple[Any, ...], _record: Record | None, depth: int) -> Plain:
        """_codecs.encode: how protocol 2 writes bytes."""
        raw = _latin1(args)
        return None if raw is None else self._bytes(memoryview(raw), depth)

    def _array(self, _args: tuple[Any, ...], record: Record | None, depth: int) -> Plain:
        """NumPy's _reconstruct: the state is (version, shape, dtype, column by column, bytes or entries)."""
        state = record.state if record is not None else None
        if not (isinstance(state, tuple) and len(state) == 5):
            return None
        _, shape, dtype, by_column, content = state
        if isinstance(content, list):
            return self._list(content, depth)
        return self._numbers(content, dtype, shape, by_column=bool(by_column))

    def _buffer(self, args: tuple[Any, ...], _record: Record | None, _depth: int) -> Plain:
        """NumPy's _frombuffer: (bytes, dtype, shape, order)."""
        if len(args) != 4:
            return None
        return self._numbers(args[0], args[1], args[2], by_column=args[3] == "F")

    def _scalar(self, args: tuple[Any, ...], _record: Record | None, _depth: int) -> Plain:
        """NumPy's scalar: (dtype, bytes)."""
        made = self._numbers(args[1], args[0], (), by_column=False) if len(args) == 2 else None
        if isinstance(made, np.ndarray):
            value: Plain = made.item()
            return value
        return made[0] if isinstance(made, list) and made else None

    def _numbers(self, content: Any, dtype: Any, shape: Any, *, by_column: bool) -> Plain:
        kind = _numpy_dtype(dtype)
        if isinstance(content, Record) and content.origin == ("_codecs", "encode"):
            content = _latin1(content.args)
        if kind is None or not isinstance(content, (bytes, bytearray)):
            return None
        sizes = tensors.whole(shape)
        count = math.prod(sizes)
        if count * kind.itemsize != len(content):
            raise RefusedError("an array's bytes do not fit its shape")
        self._budget.array(len(content))
        flat = np.frombuffer(content, kind)
        made = flat.reshape(sizes, order="F" if by_column else "C")
        if kind.kind in "US":
            self._budget.node(count)
            return texts_of(made, self._text)
        return made.astype(kind.newbyteorder("="))


def texts_of(made: Array, keep: Callable[[str], str]) -> Plain:
    """Return an array of texts as a list, entry by entry whatever its shape."""
    flat = made.ravel()
    if made.dtype.kind == "S":
        return [keep(value.decode("utf-8", "replace")) for value in flat.tolist()]
    try:
        return [keep(value) for value in flat.tolist()]
    except (SystemError, UnicodeError, ValueError) as error:  # code points that are none
        raise RefusedError("its texts are no Unicode") from error


def _latin1(args: tuple[Any, ...]) -> bytes | None:
    if len(args) != 2 or not isinstance(args[0], str) or args[1] != "latin1":
        return None
    try:
        return args[0].encode("latin1")
    except UnicodeEncodeError:
        return None


def _numpy_dtype(found: Any) -> np.dtype[Any] | None:
    if not (isinstance(found, Record) and found.origin == ("numpy", "dtype") and found.args):
        return None
    kind = tensors.numpy_dtype(found.args[0]) if isinstance(found.args[0], str) else None
    state = found.state
    if kind is not None and isinstance(state, tuple) and len(state) > 1 and state[1] in ("<", ">"):
        kind = kind.newbyteorder(state[1])
    return kind


_Way = Callable[[Evaluation, tuple[Any, ...], Record | None, int], Plain]
_TABLE: Final[dict[Origin, _Way]] = {
    ("torch._utils", "_rebuild_tensor_v2"): Evaluation._tensor,
    ("torch._utils", "_rebuild_tensor_v3"): Evaluation._tensor,
    ("torch._utils", "_rebuild_parameter"): Evaluation._first,
    ("torch._tensor", "_rebuild_from_type_v2"): Evaluation._typed,
    ("torch", "Size"): Evaluation._first,
    ("torch", "device"): Evaluation._device,
    ("collections", "OrderedDict"): Evaluation._mapping,
    ("_codecs", "encode"): Evaluation._encoded,
    **{(module, "set"): Evaluation._first for module in ("builtins", "__builtin__")},
    **{
        (f"numpy.{core}.{module}", name): way
        for core in ("core", "_core")
        for module, name, way in (
            ("multiarray", "_reconstruct", Evaluation._array),
            ("multiarray", "scalar", Evaluation._scalar),
            ("numeric", "_frombuffer", Evaluation._buffer),
        )
    },
}
