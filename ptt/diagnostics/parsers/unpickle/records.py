"""Unpickle without executing: every class and function a pickle names becomes an inert record.

The pickle machine can call nothing but `Record` types: `find_class` imports nothing and has no list of allowed
names, because no name is ever looked up. What a record means is decided afterwards, in `calls.py`.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, ClassVar, Final

from ptt.diagnostics.parsers.unpickle.values import RefusedError

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
        """Stand for a call of what the pickle named, or for an instance of it."""
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


class _Names:
    """The record types of one file, so that a class and its instances share one."""

    def __init__(self) -> None:
        self._types: dict[tuple[str, str], type[Record]] = {}

    def named(self, module: str, name: str) -> type[Record]:
        origin = (module, name)
        if origin not in self._types:
            if len(self._types) == MAX_NAMES:
                raise RefusedError(f"it names more than {MAX_NAMES} classes and functions")
            made: Any = _Frozen("Record", (Record,), {"__slots__": (), "origin": origin})
            self._types[origin] = made
        return self._types[origin]


class _Fast(pickle.Unpickler):
    """The C machine. A lie about a size makes it ask for memory, so it needs a limit on memory around it."""

    def __init__(self, data: memoryview) -> None:
        super().__init__(io.BytesIO(data))
        self._names = _Names()

    def find_class(self, module: str, name: str) -> Any:
        return self._names.named(module, name)

    def persistent_load(self, pid: Any) -> Storage:
        return Storage(pid)


class _Careful(pickle._Unpickler):
    """The Python machine: several times slower, but it asks for no memory that the file does not fill."""

    dispatch: ClassVar = {
        code: way
        for code, way in pickle._Unpickler.dispatch.items()
        if bytes([code]) not in (pickle.BYTEARRAY8, pickle.NEXT_BUFFER, pickle.READONLY_BUFFER)
    }

    def __init__(self, data: memoryview) -> None:
        super().__init__(io.BytesIO(data))
        self._names = _Names()

    def find_class(self, module: str, name: str) -> Any:
        return self._names.named(module, name)

    def persistent_load(self, pid: Any) -> Storage:
        return Storage(pid)


# What the pickle machine raises for damaged or senseless opcodes: it checks nothing beforehand, so an operation on a
# value of the wrong kind fails in that operation's own way.
DAMAGE: Final = (
    pickle.UnpicklingError, ArithmeticError, AssertionError, AttributeError, BufferError, EOFError, ImportError,
    LookupError, NotImplementedError, RuntimeError, TypeError, ValueError,
)  # fmt: skip


def unpickle(data: memoryview, *, guarded: bool) -> Any:
    """Build the records of one pickle; `guarded` tells that the process has a limit on its memory."""
    try:
        return (_Fast if guarded else _Careful)(data).load()
    except RefusedError:
        raise
    except DAMAGE as error:
        raise RefusedError(f"its pickle is damaged ({type(error).__name__})") from error
