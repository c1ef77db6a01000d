"""Find the layouts of a text's lines: what stays the same on lines that differ in their numbers, and in little else.

A line becomes tokens, with a mark for each number. Lines of the same tokens make a shape; shapes that differ in a word
before no number, such as a level or the name of a task, or by parts that only some of them have, make one layout.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import and_, or_
from typing import Final

from ptt.diagnostics.definitions import compiled
from ptt.diagnostics.log_entries import EPOCH, STEP
from ptt.diagnostics.parsers.own_logs import SCALE

NUMBER, SCALED, STAMP, ANY, DRAWN = "\x01", "\x02", "\x03", "\x04", "\x05"
"""Stand for a number, one with a scale behind a space, a time, a word that differs from line to line, and a bar."""
MARKS: Final = compiled("[\x00-\x05]")  # a line that holds these itself is no text
COUNTED: Final = frozenset({NUMBER, SCALED})
WORD: Final = compiled(r"\S+")
MAX_PART: Final = 24  # tokens of a part that some lines lack
MAX_TOKENS: Final = 200  # on a line; more are a table of weights, or prose
MAX_SHAPES: Final = 600  # tried, those of most lines first
MAX_LAYOUTS: Final = 16
MAX_LOOSE: Final = 6  # words that differ and parts that may be missing, of a layout: more are other lines
MIN_SHARED: Final = 0.5  # of a layout's tokens that stand on a line without some of its parts too
MIN_SHARED_NUMBERS: Final = 2  # likewise, so that a layout of a line is none of another's first words

STAMPS: Final = (
    r"\d{4}[-/]\d\d[-/]\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?)?"
    r"|\d\d?\.\d\d?\.\d{4}(?: \d\d:\d\d(?::\d\d)?)?|\d+(?:\.\d+){2,}|\d{1,3}:\d\d(?::\d\d(?:[.,]\d{1,9})?)?"
)
SPACED: Final = r"%|(?:m|u|µ|μ)nats?"  # scales that may stand behind a space, since they are nothing else
NON_FINITE: Final = r"[-+]?(?:nan|inf|NaN|Inf|NAN|INF|null|None)(?!\w)"
NUMBERS: Final = {
    decimal: compiled(
        rf"(?<![\w.])(?:(?P<stamp>{STAMPS})(?![\w:])|(?P<number>[-+\u2212]?(?:[1-9]\d{{0,2}}(?:{thousands}\d{{3}})+(?!\d)"
        rf"(?:{point}\d+)?|\d+(?:{point}\d*)?|{point}\d+)(?:[eE][-+]?\d+)?|{NON_FINITE})(?P<scale>(?:\s?(?:{SPACED})|(?:{SCALE}))(?!\w))?"
        rf"|[^\W\d_]{{1,12}}_?(?P<glued>(?:\d+(?:{point}\d+)?|{point}\d+)(?:[eE][-+]?\d+)?)(?![\w.-]\w)(?:(?:{SCALE})(?!\w))?)"
    )
    for decimal, point, thousands in ((".", r"\.", ","), (",", ",", r"\."))
}
"""`glued`: right behind a letter, as in `E1 L.52`."""
BAR: Final = compiled(r"\|[█▉▊▋▌▍▎▏░▒▓━╸╺ #=>.-]{3,}\||\[[█░ #=>.-]{5,}\]")
IDS: Final = compiled(
    r"(?<![\w.-])(?=[\da-f-]{0,40}[a-f])(?=[a-f-]{0,40}\d)[\da-f]{6,40}(?:-[\da-f]{4,12}){0,4}(?![\w.-])"
)
"""Hashes and the like, which are new on each line."""
MISSING: Final = frozenset({"-", "--", "---", "—", "n/a", "N/A", "NA", "na", "none", "*"})  # where a number may be
ROUND: Final = "[](){}<>:|"  # what stands around a level
LEVELS: Final = frozenset({"DEBUG", "INFO", "WARN", "WARNING", "ERROR", "NOTICE", "D", "I", "W", "E"})


@dataclass(kw_only=True)
class Layout:
    """The tokens of lines up to their last number and what is glued to that.

    `some`, `every`: whether white space stands before a token on some lines, on all. `optional`: the number of the
    part that a token belongs to and that may be missing; 0 for one that never is.
    """

    tokens: list[str]
    some: list[bool]
    every: list[bool]
    optional: list[int]
    tail: str  # of its first line, behind the last number
    first: int  # line
    count: int = 1  # of lines
    loose: int = 0

    def absorb(self, other: Layout) -> bool:
        """Take lines that are the same but for some words or parts; return whether they are."""
        pairs = list(_aligned(self.tokens, other.tokens))
        if not pairs or not self._are_like(pairs, other):
            return False
        merged = [self._merged(other, pair, part) for pair, part in zip(pairs, self._parts(pairs), strict=True)]
        tokens, some, every, optional = (list(column) for column in zip(*merged, strict=True))
        loose = self.loose + _differences(self, other, pairs)
        if loose > MAX_LOOSE or len(tokens) > MAX_TOKENS:
            return False
        self.tokens, self.some, self.every, self.optional, self.loose = tokens, some, every, optional, loose
        self.count += other.count
        if other.first < self.first:
            self.first, self.tail = other.first, other.tail
        return True

    def _parts(self, pairs: Sequence[Pair]) -> Iterator[int]:
        """Yield the part that each token belongs to; those that one line lacks are new ones."""
        part, before = max(self.optional, default=0), (False, False)
        for mine, its in pairs:
            lacks = (mine is None, its is None)
            held = self.optional[mine] if mine is not None else 0
            part += any(lacks) and not held and lacks != before
            yield part if any(lacks) and not held else held
            before = lacks

    def _merged(self, other: Layout, pair: Pair, part: int) -> tuple[str, bool, bool, int]:
        mine, its = pair
        if mine is None or its is None:
            line, at = (self, mine) if mine is not None else (other, its or 0)
            return line.tokens[at], line.some[at], line.every[at], part
        one, two = self.tokens[mine], other.tokens[its]
        token = one if one == two else next((mark for mark in (SCALED, NUMBER) if mark in (one, two)), ANY)
        return (
            token,
            self.some[mine] or other.some[its],
            self.every[mine] and other.every[its],
            part,
        )

    def _are_like(self, pairs: Sequence[Pair], other: Layout) -> bool:
        """Return whether what two lines share is enough, and what they do not share are parts with a number each."""
        shared = [self.tokens[mine] for mine, its in pairs if mine is not None and its is not None]
        if len(shared) == len(pairs):
            return True
        few = sum(token in COUNTED for token in shared) < MIN_SHARED_NUMBERS
        if few or len(shared) < MIN_SHARED * max(len(self.tokens), len(other.tokens)):
            return False
        runs = [[*run] for kind, run in groupby(pairs, lambda pair: (pair[0] is None, pair[1] is None)) if any(kind)]
        return all(any(_token(self, other, pair) in COUNTED for pair in run) for run in runs)


Pair = tuple[int | None, int | None]
"""A token of one line and the same one of another; None where the other line lacks it."""


def _token(one: Layout, two: Layout, pair: Pair) -> str:
    mine, its = pair
    return one.tokens[mine] if mine is not None else two.tokens[its or 0]


def _differences(one: Layout, two: Layout, pairs: Sequence[Pair]) -> int:
    """Return how many words differ and how many parts are new to be missing."""
    words = sum(
        mine is not None and its is not None and one.tokens[mine] not in (two.tokens[its], ANY, NUMBER, SCALED)
        for mine, its in pairs
    )
    lacks = [(mine is not None and its is None and not one.optional[mine]) or (mine is None) for mine, its in pairs]
    return words + sum(kind for kind, _ in groupby(lacks))


def _aligned(mine: Sequence[str], its: Sequence[str]) -> Iterator[Pair]:
    """Yield the tokens of two lines side by side; nothing where they cannot be brought together."""
    one = two = 0
    found: list[Pair] = []
    while one < len(mine) and two < len(its):
        if _alike(mine, one, its, two):
            found.append((one, two))
            one, two = one + 1, two + 1
            continue
        skip = next((by for by in range(1, MAX_PART) if one + by < len(mine) and mine[one + by] == its[two]), 0)
        add = next((by for by in range(1, MAX_PART) if two + by < len(its) and its[two + by] == mine[one]), 0)
        if not (skip or add) or not found:
            return
        if skip and (not add or skip <= add):
            found += [(at, None) for at in range(one, one + skip)]
            one += skip
        else:
            found += [(None, at) for at in range(two, two + add)]
            two += add
    yield from found
    yield from ((at, None) for at in range(one, len(mine)))
    yield from ((None, at) for at in range(two, len(its)))


def _alike(mine: Sequence[str], one: int, its: Sequence[str], two: int) -> bool:
    """Return whether a token is the same on two lines, or may differ: a word that names no number."""
    token, other = mine[one], its[two]
    if token == other:
        return True
    if COUNTED & {token, other}:
        return bool({token, other} & MISSING) or {token, other} == COUNTED
    if {token, other} & {STAMP, DRAWN}:
        return False
    if {token.strip(ROUND), other.strip(ROUND)} <= LEVELS:
        return True
    return _is_aside(mine, one) and _is_aside(its, two)


def _is_aside(tokens: Sequence[str], at: int) -> bool:
    """Return whether a word is not the name of the number behind it: another one, or a time, stands between."""
    for token in tokens[at + 1 : at + MAX_PART]:
        if token in COUNTED or token == DRAWN:
            return False
        if token == STAMP or any(map(str.isalpha, token)):
            return True
    return True


def layouts(lines: Sequence[str], decimal: str) -> list[Layout]:
    """Return the layouts of lines that hold numbers, those of most lines first."""
    shapes: dict[tuple[str, ...], Layout] = {}
    for at, line in enumerate(lines):
        new = _layout(line, decimal, at)
        if new is None:
            continue
        known = shapes.setdefault(tuple(new.tokens), new)
        if known is not new:
            known.count += 1
            known.some = [*map(or_, known.some, new.some)]
            known.every = [*map(and_, known.every, new.every)]
    found: list[Layout] = []
    for shape in sorted(shapes.values(), key=_most_first)[:MAX_SHAPES]:
        if not any(layout.absorb(shape) for layout in found) and len(found) < MAX_LAYOUTS:
            found.append(shape)
    return sorted(found, key=_most_first)


def _most_first(layout: Layout) -> tuple[int, int]:
    return -layout.count, layout.first


def _layout(line: str, decimal: str, number: int) -> Layout | None:
    """Return what one line is made of; None for one without numbers, or with too many."""
    if MARKS.search(line):
        return None
    line = IDS.sub(ANY, BAR.sub(DRAWN, line))
    tokens: list[str] = []
    spaced: list[bool] = []
    at = 0
    for match in NUMBERS[decimal].finditer(line):
        begin = match.start("glued") if match["glued"] else match.start()
        for word in WORD.finditer(line, at, begin):
            tokens.append(word.group())
            spaced.append(word.start() > 0 and line[word.start() - 1].isspace())
        scale = match["scale"] or ""
        tokens.append(STAMP if match["stamp"] else SCALED if scale[:1].isspace() else NUMBER)
        spaced.append(begin > 0 and line[begin - 1].isspace())
        at = match.end()
        if len(tokens) > MAX_TOKENS:
            return None
    if COUNTED.isdisjoint(tokens):
        return None
    glued = WORD.match(line, at)
    if glued:
        tokens.append(glued.group())
        spaced.append(False)
    return Layout(
        tokens=tokens,
        some=spaced,
        every=[*spaced],
        optional=[0] * len(tokens),
        tail=line[glued.end() if glued else at :],
        first=number,
    )


FIGURE: Final = (
    rf"(?:[-+\u2212]?(?:[.,]?\d[\w.,+%\u2212-]*(?:\s(?:{SPACED}))?|(?i:nan|inf\w*|null|none|n/?a))|-{{1,3}}|\u2014)"
)
"""A number, for certain: what stands in its place in a header is none."""
COUNTS: Final = frozenset({STEP, EPOCH})


def expression(layout: Layout, called: Mapping[int, str], *, some: str = "", decimal: str = ".") -> str:
    """Return a regular expression for the lines of a layout with a named group for each number in `called`.

    `some`: what a number is; where it is empty, all up to what stands behind it. It takes time in proportion to a line.
    """
    places = [at for at, token in enumerate(layout.tokens) if token in COUNTED]
    last = max((places[number] for number in called), default=-1)
    glued = last + 1 < len(layout.tokens) and not layout.some[last + 1]
    parts: list[str] = ["^"]
    number, part = 0, 0
    for at, token in enumerate(layout.tokens[: last + 1 + glued]):
        if layout.optional[at] != part:
            parts.append((")?" if part else "") + ("(?:" if layout.optional[at] else ""))
            part = layout.optional[at]
        parts.append("" if at == 0 and not layout.some[0] else _gap(layout, at))
        if token not in COUNTED:
            parts.append(_literal(token))
            continue
        figure = some or _number(layout, at)
        if number in called:
            counts = called[number] in COUNTS
            figure = f"(?P<{called[number]}>{_counter(layout, at, decimal) if counts else figure})"
        parts.append(figure)
        number += 1
    return "".join(parts) + (")?" if part else "")


def _gap(layout: Layout, at: int) -> str:
    before = layout.tokens[at - 1] if at else ""
    parted = not before.isprintable() or before[-1:].isalnum()
    if layout.every[at] and at and (parted or layout.tokens[at] not in COUNTED):
        return r"\s+"
    return r"\s*" if layout.some[at] or not at else ""


def _counter(layout: Layout, at: int, decimal: str) -> str:
    """Return an expression for a step, whose thousands may be parted where nothing else can be meant."""
    behind = layout.tokens[at + 1][:1] if at + 1 < len(layout.tokens) else ""
    sign = "," if decimal == "." else "."
    return r"\d+" if behind == sign else rf"\d[\d{sign}]*"


def _number(layout: Layout, at: int) -> str:
    if layout.tokens[at] == SCALED:
        return rf"\S+\s?(?:{SPACED})"
    behind = at + 1
    tight = behind < len(layout.tokens) and not layout.every[behind]
    return r"[\w.,+%\u2212-]+" if tight else r"\S+"


def _literal(token: str) -> str:
    if token == STAMP:
        return r"[\d:.,/TZ +-]+"
    if token == ANY:
        return r"\S+"
    return re.escape(token).replace(DRAWN, r"[\[|][^\]|]*[\]|]")
