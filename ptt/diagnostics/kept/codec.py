"""Turn frozen values into plain JSON and back, without loss: what is shown again must be what was judged."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from ptt.diagnostics import model
from ptt.diagnostics.kept.fields import LARGEST

T = TypeVar("T")


def plain(value: object) -> Any:
    """Give dicts, lists and scalars for a value; NaN and the infinities stay what they are."""
    match value:
        case Enum():
            return value.value
        case None | str() | bool() | int() | float():
            return value
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case tuple() | list():
            return [plain(item) for item in value]
    return {field.name: plain(getattr(value, field.name)) for field in fields(cast(Any, value))}


def restored(kind: type[T], found: Any) -> T:
    """Give the value of a dataclass back; TypeError, KeyError or ValueError where it is none."""
    return cast(T, _restored(kind, found))


def _restored(kind: Any, found: Any) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _one_of(inner, found)
    if origin is tuple:
        if not isinstance(found, list):
            raise TypeError(f"a list was expected, not {type(found).__name__}")
        kinds = [inner[0]] * len(found) if inner[-1] is Ellipsis else list(inner)
        return tuple(_restored(one, item) for one, item in zip(kinds, found, strict=True))
    if origin is not None and issubclass(origin, Mapping):
        return {str(key): _restored(inner[1], item) for key, item in found.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(found)
    if isinstance(kind, type) and is_dataclass(kind):
        return cast(Any, kind)(**{name: _restored(hint, found[name]) for name, hint in _hints(kind).items()})
    if kind is float and isinstance(found, int) and not isinstance(found, bool):
        return float(_sized(found))
    if not isinstance(found, kind) or (isinstance(found, bool) and kind is not bool):
        raise TypeError(f"{kind.__name__} was expected, not {type(found).__name__}")
    return _sized(found)


def _one_of(kinds: tuple[Any, ...], found: Any) -> Any:
    if found is None and type(None) in kinds:
        return None
    scalars = [kind for kind in kinds if kind in (bool, int, float, str)]
    for kind in sorted(scalars, key=[bool, int, float, str].index):
        if type(found) is kind:
            return _sized(found)
    others = [kind for kind in kinds if kind is not type(None)]
    return _restored(others[-1 if scalars else 0], found)


def _sized(found: Any) -> Any:
    if isinstance(found, int) and abs(found) > LARGEST:
        raise ValueError("a whole number beyond any that a run has")
    return found


@cache
def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind, {**vars(model), "pl": types.SimpleNamespace(DataFrame=object)})
    return {field.name: hints[field.name] for field in fields(cast(Any, kind))}
