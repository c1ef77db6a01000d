"""Unpickle without executing: every class and function a pickle names becomes an inert record.

The pickle machine can call nothing but `Record` types: `find_class` imports nothing and has no list of allowed
names, because no name is ever looked up. What a record means is decided afterwards, by a table of known calls."""

from __future__ import annotations

import io
import math
import pickle
import struct
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

import numpy as np

from ptt.diagnostics.parsers.unpickle import arrays
from ptt.diagnostics.parsers.unpickle.values import Array, Budget, Node, Plain, RefusedError

MAX_NAMES: Final = 10_000  # distinct classes and functions; a dump names a few dozen, and each costs a kilobyte


class _Frozen(type):
    """Record types outlive no file and cannot be changed by one: BUILD may set attributes on any object."""

    def __setattr__(cls, name: str, value: object) -> None:
        raise RefusedError("it tries to change a class")

    def __delattr__(cls, name: str) -> None:
        raise RefusedError("it tries to change a class")


class Record(metaclass=_Frozen):
    """What a pickle wanted to build: the arguments, the state and the entries, and no behaviour.

    `origin` is (module, name) as the pickle spelt them.
    """

    __slots__ = ("args", "entries", "pairs", "state")
    origin: tuple[str, str] = ("", "")
    args: tuple[Any, ...]
    state: Any
    entries: list[Any]
    pairs: list[tuple[Any, Any]]

    def __new__(cls, *args: Any, **_: Any) -> Record:
        """Stand in for a call of what the pickle names, or for an instance of it."""
        made = object.__new__(cls)
        made.args, made.state, made.entries, made.pairs = args, None, [], []
        return made

    def __setstate__(self, state: Any) -> None:
        """Keep what BUILD hands over."""
        self.state = state

    def append(self, entry: Any) -> None:
        """Keep what APPEND hands over."""
        self.entries.append(entry)

    add = append

    def extend(self, entries: list[Any]) -> None:
        """Keep what APPENDS hands over."""
        self.entries.extend(entries)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Keep what SETITEM hands over."""
        self.pairs.append((key, value))


class Storage:
    """A tensor's data by its key in the archive; `numel` in elements of `kind`, the storage class's name."""

    __slots__ = ("key", "kind", "numel")

    def __init__(self, pid: Any) -> None:
        if not (isinstance(pid, tuple) and len(pid) >= 5 and pid[0] == "storage"):
            raise RefusedError("it refers to something other than a tensor's storage")
        _, kind, key, _, numel = pid[:5]
        named = isinstance(kind, type) and issubclass(kind, Record)
        if not (named and isinstance(key, str) and type(numel) is int and numel >= 0):
            raise RefusedError("it describes a tensor's storage wrongly")
        self.kind: str = kind.origin[1]
        self.key = key
        self.numel = numel


class _Inert:
    """What both pickle machines share: each class of one file becomes one record type."""

    def __init__(self, data: memoryview) -> None:
        super().__init__(io.BytesIO(data))  # type: ignore[call-arg]
        self._types: dict[tuple[str, str], type[Record]] = {}

    def find_class(self, module: str, name: str) -> Any:
        origin = (module, name)
        if origin not in self._types:
            if len(self._types) == MAX_NAMES:
                raise RefusedError(f"it names more than {MAX_NAMES} classes and functions")
            made: Any = _Frozen("Record", (Record,), {"__slots__": (), "origin": origin})
            self._types[origin] = made
        return self._types[origin]

    def persistent_load(self, pid: Any) -> Storage:
        return Storage(pid)


class _Fast(_Inert, pickle.Unpickler):
    """The C machine. A lie about a size makes it ask for memory, so it needs a limit on memory around it."""


class _Careful(_Inert, pickle._Unpickler):
    """The Python machine: several times slower, but it asks for no memory that the file does not fill."""

    dispatch: ClassVar = {
        code: method
        for code, method in pickle._Unpickler.dispatch.items()
        if bytes([code]) not in (pickle.BYTEARRAY8, pickle.NEXT_BUFFER, pickle.READONLY_BUFFER)
    }


# What the pickle machine raises for damaged or senseless opcodes: it validates nothing, so an operation on a
# value of the wrong kind fails in its own way.
DAMAGE: Final = (
    pickle.UnpicklingError, ArithmeticError, AssertionError, AttributeError, BufferError, EOFError, ImportError,
    LookupError, NotImplementedError, RuntimeError, TypeError, ValueError, struct.error,
)  # fmt: skip


def unpickle(data: memoryview, *, guarded: bool) -> Any:
    """Build the records of one pickle; `guarded` tells that the process has a limit on its memory."""
    try:
        return (_Fast if guarded else _Careful)(data).load()
    except RefusedError:
        raise
    except DAMAGE as error:
        raise RefusedError(f"its pickle is damaged ({type(error).__name__})") from error


MAX_DEPTH: Final = 64
Origin = tuple[str, str]


def _tensor(walk: Evaluation, args: tuple[Any, ...], _record: Record | None, _depth: int) -> Plain:
    """torch._utils._rebuild_tensor_v2 and _v3: (storage, offset, size, stride, ..., [v3: dtype])."""
    if len(args) < 4 or not isinstance(args[0], Storage):
        return None
    storage, offset, size, stride = args[:4]
    dtype = arrays.STORAGES.get(storage.kind)
    if len(args) > 6 and isinstance(args[6], type) and issubclass(args[6], Record):
        dtype = arrays.DTYPES.get(args[6].origin[1])
    if dtype is None:
        return None  # float8, complex, quantised: not read, and reported by the caller that wants them
    if storage.key not in walk.storages:
        raise RefusedError("a tensor's storage is missing")
    data = walk.storages[storage.key]
    needed = storage.numel * arrays.itemsize(arrays.STORAGES.get(storage.kind, "uint8"))
    if needed > data.nbytes:
        raise RefusedError("a tensor's storage is shorter than it says")
    shape = arrays.whole(_size(size))
    walk.budget.array(math.prod(shape) * max(arrays.itemsize(dtype), 4 if dtype == arrays.BF16 else 1))
    (start,) = arrays.whole((offset,))
    strides = arrays.whole(_size(stride))
    return arrays.strided(data[:needed], dtype, shape=shape, strides=strides, offset=start)


def _size(value: Any) -> Any:
    if isinstance(value, Record) and value.origin == ("torch", "Size") and len(value.args) == 1:
        return value.args[0]
    return value


def _first(walk: Evaluation, args: tuple[Any, ...], _record: Record | None, depth: int) -> Plain:
    """torch._utils._rebuild_parameter, torch.Size, set: what they hold."""
    return walk.plain(args[0], depth) if args else []


def _device(walk: Evaluation, args: tuple[Any, ...], _record: Record | None, _depth: int) -> Plain:
    return walk.text(args[0]) if args and isinstance(args[0], str) else None


def _typed(walk: Evaluation, args: tuple[Any, ...], _record: Record | None, depth: int) -> Plain:
    """torch._tensor._rebuild_from_type_v2: (function, type, its arguments, state)."""
    if len(args) != 4 or not (isinstance(args[0], type) and issubclass(args[0], Record)):
        return None
    if depth > MAX_DEPTH:  # it may name itself again and again
        raise RefusedError(f"it is nested more than {MAX_DEPTH} deep")
    return walk.call(args[0].origin, args[2], None, depth + 1)


def _mapping(walk: Evaluation, args: tuple[Any, ...], record: Record | None, depth: int) -> Plain:
    """collections.OrderedDict, with its entries as argument or set one by one."""
    pairs = list(record.pairs) if record is not None else []
    given = args[0] if args else ()
    if isinstance(given, dict):
        pairs = [*given.items(), *pairs]
    elif isinstance(given, (list, tuple)):
        pairs = [*(tuple(pair) for pair in given if isinstance(pair, (list, tuple)) and len(pair) == 2), *pairs]
    return walk.mapping(pairs, depth)


def _encoded(walk: Evaluation, args: tuple[Any, ...], _record: Record | None, depth: int) -> Plain:
    """_codecs.encode: how protocol 2 writes bytes."""
    raw = _latin1(args)
    return None if raw is None else walk.raw(memoryview(raw), depth)


def _array(walk: Evaluation, _args: tuple[Any, ...], record: Record | None, depth: int) -> Plain:
    """NumPy's _reconstruct: the state is (version, shape, dtype, column by column, bytes or entries)."""
    state = record.state if record is not None else None
    if not (isinstance(state, tuple) and len(state) == 5):
        return None
    _, shape, dtype, by_column, content = state
    if isinstance(content, list):
        return walk.items(content, depth)
    return _numbers(walk, content, dtype, shape, by_column=bool(by_column))


def _buffer(walk: Evaluation, args: tuple[Any, ...], _record: Record | None, _depth: int) -> Plain:
    """NumPy's _frombuffer: (bytes, dtype, shape, order)."""
    if len(args) != 4:
        return None
    return _numbers(walk, args[0], args[1], args[2], by_column=args[3] == "F")


def _scalar(walk: Evaluation, args: tuple[Any, ...], _record: Record | None, _depth: int) -> Plain:
    """NumPy's scalar: (dtype, bytes)."""
    made = _numbers(walk, args[1], args[0], (), by_column=False) if len(args) == 2 else None
    if isinstance(made, np.ndarray):
        value: Plain = made.item()
        return value
    return made[0] if isinstance(made, list) and made else None


def _numbers(walk: Evaluation, content: Any, dtype: Any, shape: Any, *, by_column: bool) -> Plain:
    kind = _numpy_dtype(dtype)
    if isinstance(content, Record) and content.origin == ("_codecs", "encode"):
        content = _latin1(content.args)
    if kind is None or not isinstance(content, (bytes, bytearray)):
        return None
    sizes = arrays.whole(shape)
    count = math.prod(sizes)
    if count * kind.itemsize != len(content):
        raise RefusedError("an array's bytes do not fit its shape")
    walk.budget.array(len(content))
    flat = np.frombuffer(content, kind)
    made = flat.reshape(sizes, order="F" if by_column else "C")
    if kind.kind in "US":
        walk.budget.node(count)
        return texts_of(made, walk.text)
    return made.astype(kind.newbyteorder("="))


def texts_of(made: Array, keep: Callable[[str], str]) -> Plain:
    """Return an array of texts as a flat list, whatever its shape."""
    flat = made.ravel()
    if made.dtype.kind == "S":
        return [keep(value.decode("utf-8", "replace")) for value in flat.tolist()]
    try:
        return [keep(value) for value in flat.tolist()]
    except (SystemError, UnicodeError, ValueError) as error:  # invalid code points
        raise RefusedError("its texts are not Unicode") from error


def _latin1(args: tuple[Any, ...]) -> bytes | None:
    if len(args) != 2 or not isinstance(args[0], str) or args[1] != "latin1":
        return None
    try:
        return args[0].encode("latin1")
    except UnicodeEncodeError:
        return None


def _numpy_dtype(value: Any) -> np.dtype[Any] | None:
    if not (isinstance(value, Record) and value.origin == ("numpy", "dtype") and value.args):
        return None
    kind = arrays.numpy_dtype(value.args[0]) if isinstance(value.args[0], str) else None
    state = value.state
    if kind is not None and isinstance(state, tuple) and len(state) > 1 and state[1] in ("<", ">"):
        kind = kind.newbyteorder(state[1])
    return kind


Handler = Callable[["Evaluation", tuple[Any, ...], Record | None, int], Plain]
HANDLERS: Final[dict[Origin, Handler]] = {
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_tensor_v3"): _tensor,
    ("torch._utils", "_rebuild_parameter"): _first,
    ("torch._tensor", "_rebuild_from_type_v2"): _typed,
    ("torch", "Size"): _first,
    ("torch", "device"): _device,
    ("collections", "OrderedDict"): _mapping,
    ("_codecs", "encode"): _encoded,
    **{(module, "set"): _first for module in ("builtins", "__builtin__")},
    **{
        (f"numpy.{core}.{module}", name): handler
        for core in ("core", "_core")
        for module, name, handler in (
            ("multiarray", "_reconstruct", _array),
            ("multiarray", "scalar", _scalar),
            ("numeric", "_frombuffer", _buffer),
        )
    },
}


TEXT_KEPT: Final = 256  # characters: identifiers fit, prompts and answers are not wanted
INT64: Final = 1 << 63


class Evaluation:
    """One walk over one pickle's records: `storages` give tensors' bytes by key, `nested` reads inner archives."""

    def __init__(
        self, storages: Mapping[str, memoryview], budget: Budget, nested: Callable[[memoryview, int], Plain]
    ) -> None:
        self.storages = storages
        self.budget = budget
        self._nested = nested
        self._arrays: dict[int, Array] = {}
        self._open: set[int] = set()

    def plain(self, found: Any, depth: int = 0) -> Plain:
        """Return the plain form of a value; refuse what is nested too deeply or contains itself."""
        self.budget.node()
        kind = type(found)
        if found is None or kind is bool or kind is float:
            return found  # type: ignore[no-any-return]
        if kind is int:
            return found if -INT64 <= found < INT64 else None
        if kind is str:
            return self.text(found)
        if depth > MAX_DEPTH:
            raise RefusedError(f"it is nested more than {MAX_DEPTH} deep")
        if kind is bytes or kind is bytearray:
            return self.raw(memoryview(found), depth)
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

    def _container(self, value: Any, depth: int) -> Plain:
        if isinstance(value, (list, tuple, set, frozenset)):
            return self.items(value, depth)
        if isinstance(value, dict):
            return self.mapping(value.items(), depth)
        if isinstance(value, Record):
            return self.call(value.origin, value.args, value, depth)
        if isinstance(value, type) and issubclass(value, Record):
            return Node(self.text(".".join(value.origin)), [], None)
        return Node(type(value).__name__, [], None)  # a bare storage

    def text(self, found: str) -> str:
        """Return the start of a text, of characters that have a UTF-8."""
        kept = found[:TEXT_KEPT]
        self.budget.text(len(kept))
        # A lone surrogate has no UTF-8, and no table could hold it.
        return kept if kept.isascii() else kept.encode("utf-8", "replace").decode("utf-8")

    def raw(self, found: memoryview, depth: int) -> Plain:
        """Return bytes as an array; an archive among them is read like the one around it."""
        if bytes(found[:4]) == b"PK\x03\x04":
            return self._nested(found, depth)
        return self._kept(np.frombuffer(found, np.uint8).copy())

    def _kept(self, made: Array) -> Array:
        self.budget.array(made.nbytes)
        return made

    def items(self, found: Any, depth: int) -> Plain:
        """Pack numbers into an array; convert anything else entry by entry."""
        kinds = set(map(type, found))
        if kinds and kinds <= {int, float, bool, type(None)} and kinds != {type(None)}:
            self.budget.array(8 * len(found))
            dtype = np.bool_ if kinds == {bool} else np.float64 if kinds & {float, type(None)} else np.int64
            try:
                return np.array(list(found), dtype)
            except OverflowError:  # an integer beyond 64 bits
                pass
        return [self.plain(entry, depth) for entry in found]

    def mapping(self, pairs: Any, depth: int) -> dict[str | int, Plain]:
        """Keep the entries with text or integer keys: others cannot be names."""
        return {self._key(key): self.plain(value, depth) for key, value in pairs if type(key) in (str, int)}

    def _key(self, key: str | int) -> str | int:
        return self.text(key) if isinstance(key, str) else max(-INT64, min(key, INT64 - 1))

    def call(self, origin: Origin, args: Any, record: Record | None, depth: int) -> Plain:
        """Return what a call means; a node where the table does not know it."""
        handler = HANDLERS.get(origin)
        made = None if handler is None or not isinstance(args, tuple) else handler(self, args, record, depth)
        if made is not None:
            return made
        name = self.text(".".join(origin))
        state = self.plain(record.state, depth) if record is not None else None
        return Node(name, [self.plain(arg, depth) for arg in args] if isinstance(args, tuple) else [], state)
