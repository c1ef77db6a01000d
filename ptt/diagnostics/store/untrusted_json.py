"""Reads untrusted JSON field by field: every value is checked where it is taken, and an error names its place."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeVar

Value = TypeVar("Value")
Member = TypeVar("Member", bound=StrEnum)

LARGEST: Final = 2**53  # beyond it JSON numbers are not exact, and no run has so many of anything


class FieldError(ValueError):
    """Say which field is not what it should be."""


@dataclass(frozen=True)
class Field:
    """One value of the document and the way that leads to it."""

    value: Any
    where: str = ""

    def __getitem__(self, name: str) -> Field:
        """Give a member that must be there."""
        found = self.get(name)
        if found is None:
            raise FieldError(f"{self.where or 'the document'} has no `{name}`")
        return found

    def get(self, name: str) -> Field | None:
        """Give a member, or None where there is none."""
        if not isinstance(self.value, dict):
            raise self._wrong("an object")
        if name not in self.value:
            return None
        return Field(self.value[name], f"{self.where}.{name}" if self.where else name)

    def members(self, *, at_most: int) -> Iterator[tuple[str, Field]]:
        """Give the members of an object."""
        if not isinstance(self.value, dict):
            raise self._wrong("an object")
        self._few(len(self.value), at_most)
        for name, value in self.value.items():
            yield name, Field(value, f"{self.where}.{name[:40]}")

    def items(self, *, at_most: int) -> Iterator[Field]:
        """Give the members of a list."""
        if not isinstance(self.value, list):
            raise self._wrong("a list")
        self._few(len(self.value), at_most)
        for index, value in enumerate(self.value):
            yield Field(value, f"{self.where}[{index}]")

    def text(self) -> str:
        """Give a text."""
        if not isinstance(self.value, str):
            raise self._wrong("a text")
        return self.value

    def truth(self) -> bool:
        """Give true or false."""
        if not isinstance(self.value, bool):
            raise self._wrong("true or false")
        return self.value

    def whole(self, *, least: int = -LARGEST) -> int:
        """Give a whole number."""
        if isinstance(self.value, bool) or not isinstance(self.value, int) or not least <= self.value <= LARGEST:
            raise self._wrong("a whole number" + (" from 0 on" if least == 0 else ""))
        return self.value

    def number(self) -> float:
        """Give a finite number; one that was written as a whole number stays one."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            raise self._wrong("a number")
        if not (abs(self.value) <= LARGEST if isinstance(self.value, int) else math.isfinite(self.value)):
            raise self._wrong("a finite number")
        return self.value

    def one_of(self, kind: type[Member]) -> Member:
        """Give a member of a closed list of words."""
        try:
            return kind(self.text())
        except ValueError:
            known = ", ".join(member.value for member in kind)
            raise FieldError(f"{self.where} is none of {known}") from None

    def word(self, *known: str) -> str:
        """Give one of a few words."""
        if self.value not in known or not isinstance(self.value, str):
            raise FieldError(f"{self.where} is none of {', '.join(known)}")
        return self.value

    def maybe(self, read: Callable[[Field], Value]) -> Value | None:
        """Give what `read` makes of the value, or None where it is null."""
        return None if self.value is None else read(self)

    def scalar(self) -> str | int | float | bool | None:
        """Give a text, a number, a truth value or null."""
        match self.value:
            case None | bool() | str():
                return self.value
            case int() | float():
                return self.number()
        raise self._wrong("a single value")

    def pair(self, read: Callable[[Field], Value]) -> tuple[Value, Value]:
        """Give the two ends of an interval."""
        if not isinstance(self.value, list) or len(self.value) != 2:
            raise self._wrong("a list of two numbers")
        low, high = self.items(at_most=2)
        return read(low), read(high)

    def _wrong(self, expected: str) -> FieldError:
        return FieldError(f"{self.where or 'the document'} is not {expected}")

    def _few(self, length: int, at_most: int) -> None:
        if length > at_most:
            raise FieldError(f"{self.where} has {length} entries, more than the {at_most} that are read")
