"""Read the rule files of Microsoft's post-training toolkit: one rule a file, in flat YAML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from ptt.diagnostics.custom.terms import (
    DEFAULT_WIDTH,
    MAX_WIDTH,
    TRAINERS,
    CustomRule,
    Last,
    RuleError,
    Statement,
    check_template,
    checked_algorithms,
    checked_id,
    checked_metric,
    comparison_of,
    link_of,
    unknown,
)
from ptt.diagnostics.documents import DocumentError, convert_document
from ptt.diagnostics.model import Link, Severity

Scalar = str | int | float | bool | None
Value = Scalar | list[Scalar]

MAX_DIGITS: Final = 100  # of a whole number: none that is meant has more

_KEY: Final = re.compile(r"([A-Za-z_][\w.-]*)[ \t]*:(?:[ \t]+(.*)|[ \t]*)$")
_BLOCK: Final = re.compile(r"([|>])([-+]?)[ \t]*(?:#.*)?$")
_INT: Final = re.compile(r"[-+]?(?:0|[1-9]\d*)$")
_FLOAT: Final = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?$")
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|\'((?:[^\']|\'\')*)\'')
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))")
_ESCAPES: Final = {"n": "\n", "t": "\t", '"': '"', "\\": "\\", "/": "/", "r": "\r", "0": "\0"}
_WORDS: Final[dict[str, Scalar]] = {"true": True, "false": False, "null": None, "~": None, "": None}
_REFUSED: Final = "&*!%@`{}[],|>?"
"""What begins something beyond the flat part, or cannot begin plain text in YAML at all."""


def flat_yaml(text: str) -> dict[str, Value]:
    """Read a document of one level; RuleError names the line that is wrong or beyond it."""
    lines = text.removeprefix("\ufeff").removesuffix("\n").split("\n")
    lines = [line.removesuffix("\r") for line in lines]
    values: dict[str, Value] = {}
    line_number, begun = 0, False
    while line_number < len(lines):
        line = lines[line_number]
        if not line.strip() or line.lstrip().startswith("#") or (line.rstrip() == "---" and not begun):
            begun = begun or line.rstrip() == "---"
            line_number += 1
            continue
        begun = True
        key = _KEY.match(line)
        if key is None:
            raise _at(
                line_number, f"{line.strip()!r} is not `key: value`; nested keys and lists of keys are unsupported"
            )
        if key[1] in values:
            raise _at(line_number, f"{key[1]!r} occurs twice")
        values[key[1]], line_number = _value(lines, line_number, key[2] or "")
    return values


def _value(lines: Sequence[str], line_number: int, rest: str) -> tuple[Value, int]:
    """Return the value that begins behind a key on line `line_number`, and the line after it."""
    if block := _BLOCK.match(rest):
        return _block(lines, line_number + 1, folded=block[1] == ">", chomp=block[2])
    if _uncommented(rest):
        return _one_line(rest, line_number), line_number + 1
    items: list[Scalar] = []
    after = line_number + 1
    while after < len(lines) and (not lines[after].strip() or lines[after].lstrip()[0] in "-#"):
        item = lines[after].strip()
        if item.startswith("---"):
            break
        if item == "-" or item.startswith("- "):
            if _KEY.match(item[2:]):
                raise _at(after, "lists of keys are not supported; write one rule per file")
            items.append(_scalar(item[1:].strip(), after))
        elif item.startswith("-"):
            raise _at(after, f"{item!r}: the dash of a list needs a space after it")
        after += 1
    return (items, after) if items else (None, line_number + 1)


def _block(lines: Sequence[str], line_number: int, *, folded: bool, chomp: str) -> tuple[str, int]:
    """Read indented lines as text: as they are, or folded into paragraphs."""
    taken: list[str] = []
    indent = None
    while line_number < len(lines):
        line = lines[line_number]
        if line.strip():
            depth = len(line) - len(line.lstrip(" "))
            indent = depth if indent is None else indent
            if depth < indent or depth == 0:
                break
            if folded and depth > indent:
                raise _at(line_number, "a folded text (`>`) with deeper lines is not supported; use `|`")
        taken.append(line[indent or 0 :] if line.strip() else "")
        line_number += 1
    kept = len(taken)
    while kept and not taken[kept - 1]:
        kept -= 1
    body = taken[:kept]
    text = _folded(body) if folded else "\n".join(body)
    if chomp == "+":
        return text + "\n" * (len(taken) - kept + (1 if body else 0)), line_number
    return text + ("\n" if body and not chomp else ""), line_number


def _folded(lines: Sequence[str]) -> str:
    """Join lines by spaces; each empty line between them is a line break."""
    text, breaks = "", 0
    for line in lines:
        if not line:
            breaks += 1
            continue
        text += "" if not text and not breaks else "\n" * breaks if breaks else " "
        text += line
        breaks = 0
    return text


def _one_line(rest: str, line_number: int) -> Value:
    text = rest.strip()
    if not text.startswith("["):
        return _scalar(text, line_number)
    items: list[Scalar] = []
    at = 1
    while True:
        at += len(text[at:]) - len(text[at:].lstrip())
        if text[at : at + 1] == "]":
            break
        quoted = _QUOTED.match(text, at)
        end = quoted.end() if quoted else at + len(re.split(r"[,\]]", text[at:], maxsplit=1)[0])
        if end >= len(text):
            raise _at(line_number, "a list in brackets must end with ] on the same line")
        items.append(_scalar(text[at:end].strip(), line_number))
        at = end + len(text[end:]) - len(text[end:].lstrip())
        if text[at : at + 1] not in {",", "]"} or items[-1] is None:
            raise _at(line_number, f"{text!r} is not a list of plain values")
        at += text[at] == ","
    if _uncommented(text[at + 1 :]):
        raise _at(line_number, f"{text[at + 1 :].strip()!r} follows the list")
    return items


def _scalar(text: str, line_number: int) -> Scalar:
    if quoted := _QUOTED.match(text):
        if _uncommented(text[quoted.end() :]) or (text[quoted.end() : quoted.end() + 1] == "#"):
            raise _at(line_number, f"{text[quoted.end() :].strip()!r} follows the quoted text")
        return _unescaped(quoted[1], line_number) if quoted[1] is not None else quoted[2].replace("''", "'")
    text = _uncommented(text)
    if text[:1] in {'"', "'"}:
        raise _at(line_number, "a quoted text must end on the same line; for longer ones use `|`")
    if text and (text[0] in _REFUSED or text.startswith(("- ", ": ")) or text == "-"):
        raise _at(line_number, f"{text!r} is not flat YAML, or starts with a character that needs quotes")
    if ": " in text or text.endswith(":"):
        raise _at(line_number, f"{text!r} contains a colon: put it in quotes")
    if text.lower() in _WORDS and text in {text.lower(), text.upper(), text.capitalize()}:
        return _WORDS[text.lower()]
    if _INT.match(text):
        if len(text) > MAX_DIGITS:
            raise _at(line_number, f"{text[:12]}... is a number too large")
        return int(text)
    return float(text) if _FLOAT.match(text) and not text.lstrip("+-").isdigit() else text


def _unescaped(text: str, line_number: int) -> str:
    def unescape(match: re.Match[str]) -> str:
        if number := match[1] or match[2]:
            return chr(int(number, 16))
        if match[3] not in _ESCAPES:
            raise _at(line_number, f"\\{match[3]} is not a supported escape")
        return _ESCAPES[match[3]]

    return _ESCAPE.sub(unescape, text)


def _uncommented(text: str) -> str:
    """Cut a comment, which begins at a # after a space or at the beginning."""
    return re.split(r"(?:^|\s)#", text, maxsplit=1)[0].strip()


def _at(line_number: int, problem: str) -> RuleError:
    return RuleError(f"line {line_number + 1}: {problem}")


MIN_STEPS: Final = 30  # their default
_LOSS: Final = re.compile(r"(\w+)_loss")


class HeuristicFile(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One file of theirs."""

    name: str
    description: str
    trainers: str | list[str]
    metric: str
    condition: str
    severity: Literal["high", "medium", "low"]
    message: str
    window: Annotated[int, Meta(ge=1, le=MAX_WIDTH)] | None = None
    min_steps: Annotated[int, Meta(ge=0, le=MAX_WIDTH)] | None = None
    reference: str | None = None
    enabled: bool = True


def heuristic_of(text: str, *, file: str) -> CustomRule:
    """Read one file; RuleError says what is wrong with it."""
    try:
        given = convert_document(flat_yaml(text), HeuristicFile)
    except DocumentError as error:
        raise RuleError(f"{error.key} {error.problem}".strip()) from error
    message = given.message.strip()
    check_template(message)
    metric = checked_metric(given.metric)
    return CustomRule(
        id=checked_id(given.name),
        file=file,
        severity=Severity(given.severity),
        link=link_of(metric) or Link.TRAINING_SIGNAL,
        condition=Statement(
            metric=metric,
            comparison=comparison_of(given.condition, theirs=True),
            window=Last(given.window or DEFAULT_WIDTH),
        ),
        claim=message,
        why=given.description.strip(),
        reference=(given.reference or "").strip(),
        algorithms=_algorithms([given.trainers] if isinstance(given.trainers, str) else given.trainers, metric),
        min_steps=MIN_STEPS if given.min_steps is None else given.min_steps,
        enabled=given.enabled,
    )


def _algorithms(names: Sequence[str], metric: str) -> tuple[str, ...]:
    """Return the trainers; a rule for all of them on one trainer's loss is for that trainer."""
    known = (*sorted(TRAINERS), "common", "all")
    for name in names:
        if name.lower() not in known:
            raise RuleError(f"trainers: {unknown(name, known)}")
    if not names:
        raise RuleError("trainers: the list is empty")
    given = checked_algorithms(names)
    of_one = _LOSS.fullmatch(metric)
    return given or ((of_one[1],) if of_one and of_one[1] in TRAINERS else ())
