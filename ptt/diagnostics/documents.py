"""Convert untrusted JSON and TOML documents to typed values; an error names the key and what would be valid.

The shape of a document is a `msgspec.Struct` or a dataclass; `convert_document` checks a parsed document against it.
"""

from __future__ import annotations

import errno
import json
import re
import stat
import sys
import types
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

T = TypeVar("T")

MAX_INTEGER: Final = 2**53  # beyond it JSON numbers are not exact, and no run has so many of anything
MAX_KEY: Final = 40  # characters of a foreign key that an error repeats
MAX_LISTED: Final = 20  # known names that an error lists

Integer = Annotated[int, Meta(ge=-MAX_INTEGER, le=MAX_INTEGER)]
Count = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]
Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
Number = Integer | Finite
"""A finite number; one that was written as a whole number stays one."""
Scalar = str | bool | Integer | Finite | None


class DocumentError(ValueError):
    """Say which key of a document is wrong, and why; the caller adds the file and what to do."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key or 'the document'} {problem}")
        self.key = key  # "findings[0].observed"; empty for the document itself
        self.problem = problem  # a predicate: "must be a whole number"

    @property
    def sentence(self) -> str:
        """The error with its full stop."""
        return str(self) if str(self).endswith("?") else f"{self}."


def read_at_most(path: Path, max_bytes: int) -> bytes:
    """Read a file; ValueError where it is larger than `max_bytes`, OSError where it is a pipe or a device, which may
    never end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    with path.open("rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ValueError(f"has more than {max_bytes} bytes")
    return content


def parse_json(content: bytes, *, finite: bool = True, bounded: bool = True) -> Any:
    """Parse untrusted JSON; ValueError where it is none, or is nested too deeply.

    `finite`: refuse NaN and Infinity, which Python's encoder writes and JSON does not know. `bounded`: refuse integers
    beyond MAX_INTEGER.
    """
    try:
        return json.loads(
            content.decode("utf-8"),
            parse_int=_bounded if bounded else None,
            parse_constant=_refuse if finite else None,
        )
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _bounded(digits: str) -> int:
    number = int(digits)  # thousands of digits are a ValueError as well
    if abs(number) > MAX_INTEGER:
        raise ValueError(f"{digits[:MAX_KEY]} is larger than any number in a run")
    return number


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def convert_document(document: object, kind: type[T], *, mapping: str = "an object") -> T:
    """Convert a parsed document to `kind`, without coercion; DocumentError names the first key that is wrong.

    `mapping`: what the format calls a mapping ("a table" in TOML).
    """
    try:
        return msgspec.convert(document, kind, builtin_types=(date, datetime, time))
    except msgspec.ValidationError as error:
        raise _explained(str(error), document, kind, mapping) from None
    except UnicodeEncodeError:
        raise DocumentError("", "has a key or a word that is not Unicode text") from None


def closest(name: str, known: Iterable[str]) -> str:
    """Say which known names are spelt like this one, or which there are."""
    names = sorted(known)
    near = get_close_matches(name, names, n=2)
    if near:
        return f"is {' or '.join(near)} meant?"
    return f"known are {', '.join(names)}" if len(names) <= MAX_LISTED else "none is similar"


_MISSING: Final = re.compile(r"Object missing required field `(.+)`")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.+)`", re.DOTALL)
_LENGTH: Final = re.compile(r"Expected `(\w+)` of length (<=|>=|)\s?(\d+)")
_BOUND: Final = re.compile(r"Expected `(\w+)` (<=|>=|<|>) (\S+)")
_PATTERN: Final = re.compile(r"Expected `str` matching regex '(.*)'", re.DOTALL)
_KINDS: Final = re.compile(r"Expected `([\w |]+)`")
_BOUNDS: Final = {"<=": "at most", ">=": "at least", "<": "less than", ">": "more than", "": "exactly"}


def _explained(message: str, document: object, kind: Any, mapping: str) -> DocumentError:
    """Say in words what msgspec reports: "Expected `int`, got `str` - at `$.steps.first`"."""
    what, _, path = message.rpartition(" - at `$") if " - at `$" in message else (message, "", "")
    key, value, kind = _resolve(path.rstrip("`"), document, kind)
    if match := _MISSING.match(what):
        return DocumentError(key, f"has no `{match[1]}`")
    if match := _UNKNOWN.match(what):
        return DocumentError(key, f"has the unknown key {match[1][:MAX_KEY]!r}; {closest(match[1], _fields(kind))}")
    if what.startswith("Invalid enum value"):
        return DocumentError(key, f"is {str(value)[:MAX_KEY]!r}; it can be {', '.join(_options(kind))}")
    if match := _LENGTH.match(what):
        length = len(value) if isinstance(value, list | str | dict) else 0
        unit = "characters" if match[1] == "str" else "entries"
        return DocumentError(key, f"has {length} {unit}; it can have {_BOUNDS[match[2]]} {match[3]}")
    if match := _BOUND.match(what):
        if abs(float(match[3])) == sys.float_info.max:
            return DocumentError(key, "must be a finite number")
        shown = f"is {value}; it " if len(f"{value:g}" if isinstance(value, float) else hex(value)) < MAX_KEY else ""
        words = _in_words({match[1]}, mapping)
        return DocumentError(key, f"{shown}must be {words} of {_BOUNDS[match[2]]} {match[3].removesuffix('.0')}")
    if what.startswith("Number out of range"):
        return DocumentError(key, "must be a finite number")
    if match := _PATTERN.match(what):
        return DocumentError(key, "must not be blank" if match[1] == r"\\S" else f"does not match {match[1]}")
    match = _KINDS.match(what)
    return DocumentError(
        key, f"must be {_in_words(set(match[1].split(' | ')), mapping)}" if match else f"is wrong: {what}"
    )


def _in_words(kinds: set[str], mapping: str) -> str:
    """Name what may stand there; "null" is left out where the format has none."""
    if {"str", "bool", "int", "float"} <= kinds:
        return "a single value"
    words = {
        "float": "a number", "int": "a whole number", "str": "a text", "bool": "true or false",
        "array": "a list", "object": mapping,
        "date": "a date without quotes or time, such as 2031-12-31",
    }  # fmt: skip
    named = [words[name] for name in words if name in kinds and not (name == "int" and "float" in kinds)]
    if "null" in kinds and mapping != "a table":
        named.append("null")
    return " or ".join(named) or " or ".join(sorted(kinds))


def _resolve(path: str, document: Any, kind: Any) -> tuple[str, Any, Any]:
    """Follow a path of msgspec: the key in full, the value there and its type.

    msgspec writes every key of a mapping as `[...]`: it is the first whose value does not convert.
    """
    key = ""
    for name, index in re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", path):
        kind = _container(kind, name, index)
        arguments = get_args(kind)
        if name:
            kind, document = _fields(kind)[name], document[name]
            key = f"{key}.{name}" if key else name
        elif index == "...":
            kind = arguments[1]
            entry, document = next((item for item in document.items() if not _converts(item[1], kind)), ("...", None))
            key = f"{key}.{entry[:MAX_KEY]}" if key else entry[:MAX_KEY]
        else:
            fixed = len(arguments) > 1 and arguments[1] is not Ellipsis
            kind, document = arguments[int(index) if fixed else 0], document[int(index)]
            key = f"{key}[{index}]"
    fields = [member for member in get_args(kind) if _fields(member)] if isinstance(document, dict) else []
    return key, document, fields[0] if len(fields) == 1 else _container(kind, "", "")


def _container(kind: Any, name: str, index: str) -> Any:
    """Take away `Annotated`, and of a union all but the member that has this field or entry."""
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) not in (Union, types.UnionType):
        return kind
    members = [_container(member, name, index) for member in get_args(kind) if member is not type(None)]
    if name:
        return next(member for member in members if name in _fields(member))
    if index:
        return next(member for member in members if bool(index == "...") == _is_mapping(member) and get_args(member))
    return members[0]


def _is_mapping(kind: Any) -> bool:
    origin = get_origin(kind)
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _fields(kind: Any) -> dict[str, Any]:
    """Map the keys of a struct or dataclass to their types."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    return get_type_hints(kind, include_extras=True) if isinstance(kind, type) else {}


def _options(kind: Any) -> list[str]:
    if get_origin(kind) is Literal:
        return [str(option) for option in get_args(kind)]
    return [str(option.value) for option in kind] if isinstance(kind, type) and issubclass(kind, Enum) else []


def _converts(value: object, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind, builtin_types=(date, datetime, time))
    except ValueError:  # ValidationError, UnicodeEncodeError
        return False
    return True
