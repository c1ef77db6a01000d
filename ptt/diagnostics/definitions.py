"""Dataclasses and regular expressions that are cheap to define: every command imports 1,400 and uses a part of them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, AnyStr, Final, cast

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, **options: bool) -> Any:
        """Do what `dataclasses.dataclass` does, but let all frozen keyword-only classes share their methods.

        The original compiles six methods for each class, which takes half a millisecond before Python 3.13.
        """
        shared = options == {"frozen": True, "kw_only": True}
        return _with_shared_methods if shared else dataclasses.dataclass(cls, **options)


def _with_shared_methods(cls: type) -> type:
    dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=True)(cls)
    own = vars(cls)
    for name, method in SHARED.items():
        if own.get(name) is None:  # a class that defines __eq__ has None for __hash__
            setattr(cls, name, method)
    return cls


@cache
def _defaults(cls: Any) -> tuple[dict[str, Any], frozenset[str], dict[str, Callable[[], Any]]]:
    """Return the default of each field, the fields without one, and what makes the default of others anew."""
    fields = dataclasses.fields(cls)
    values = {field.name: field.default for field in fields}
    made = {field.name: field.default_factory for field in fields if callable(field.default_factory)}
    needed = {name for name, value in values.items() if value is dataclasses.MISSING}
    return values, frozenset(needed - made.keys()), made


@cache
def _compared(cls: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(cls) if field.compare)


def _values(self: Any) -> tuple[Any, ...]:
    return tuple([getattr(self, name) for name in _compared(self.__class__)])


def _init(self: Any, /, **given: Any) -> None:
    defaults, needed, made = _defaults(self.__class__)
    values = {**defaults, **given}
    if len(values) > len(defaults) or not needed <= given.keys():
        unknown, missing = sorted(given.keys() - defaults.keys()), sorted(needed - given.keys())
        fault = f"takes no {', '.join(unknown)}" if unknown else f"needs {', '.join(missing)}"
        raise TypeError(f"{type(self).__name__}() {fault}")
    for name in made.keys() - given.keys() if made else ():
        values[name] = made[name]()
    for name, value in values.items():
        object.__setattr__(self, name, value)
    if hasattr(self, "__post_init__"):
        self.__post_init__()


def _repr(self: Any) -> str:
    shown = [f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr]
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _eq(self: Any, other: Any) -> bool:
    return _values(self) == _values(other) if type(self) is type(other) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


def _refuse(_self: Any, name: str, *_value: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


SHARED: Final = {
    "__init__": _init,
    "__repr__": _repr,
    "__eq__": _eq,
    "__hash__": _hash,
    "__setattr__": _refuse,
    "__delattr__": _refuse,
}


class _CompiledWhenUsed:
    def __init__(self, *given: Any) -> None:
        self._given = given

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(*self._given), name)
        setattr(self, name, value)  # the next use takes no detour
        return value

    def __reduce__(self) -> tuple[Any, ...]:
        return re.compile, self._given


def compiled(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a regular expression that is compiled when it is first used."""
    return cast("re.Pattern[AnyStr]", _CompiledWhenUsed(pattern, flags))
