"""From inert records to plain values: walk what a pickle built, and let the table say what its calls mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from ptt.diagnostics.inert.budget import Budget
from ptt.diagnostics.inert.calls import MAX_DEPTH, TABLE, Origin
from ptt.diagnostics.inert.plain import Array, Node, Plain
from ptt.diagnostics.inert.records import Record
from ptt.diagnostics.inert.refused import RefusedError

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

    def _container(self, found: Any, depth: int) -> Plain:
        if isinstance(found, (list, tuple, set, frozenset)):
            return self.items(found, depth)
        if isinstance(found, dict):
            return self.mapping(found.items(), depth)
        if isinstance(found, Record):
            return self.call(found.origin, found.args, found, depth)
        if isinstance(found, type) and issubclass(found, Record):
            return Node(self.text(".".join(found.origin)), [], None)
        return Node(type(found).__name__, [], None)  # a bare storage

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
        """Pack numbers into an array; walk anything else."""
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
        """Keep the entries under text and integers: others are of no use as names."""
        return {self._key(key): self.plain(value, depth) for key, value in pairs if type(key) in (str, int)}

    def _key(self, key: str | int) -> str | int:
        return self.text(key) if isinstance(key, str) else max(-INT64, min(key, INT64 - 1))

    def call(self, origin: Origin, args: Any, record: Record | None, depth: int) -> Plain:
        """Return what a call means; a node where the table does not know it."""
        way = TABLE.get(origin)
        made = None if way is None or not isinstance(args, tuple) else way(self, args, record, depth)
        if made is not None:
            return made
        name = self.text(".".join(origin))
        state = self.plain(record.state, depth) if record is not None else None
        return Node(name, [self.plain(arg, depth) for arg in args] if isinstance(args, tuple) else [], state)
