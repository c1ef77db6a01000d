"""Say what the numbers of a home-made log are called: by the words beside them, a line of names above, or a legend."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from ptt.diagnostics.metrics.catalogue import document
from ptt.diagnostics.metrics.guessed_names import (
    HELD_OUT,
    changes_meaning,
    read_words,
    spelt_words,
    told_by,
    written_out,
)
from ptt.diagnostics.parsers.io.console_context import in_english
from ptt.diagnostics.verdict.log_layouts import ANY, COUNTED, DRAWN, STAMP, Layout

HEADER_LINES: Final = 4  # before the first row, in which its columns may be named
LEGEND_LINES: Final = 60  # before the first row, in which its names or columns may be explained
MAX_WORDS: Final = 6  # of a name among other words
KEPT_WORDS: Final = 3  # of a name that tells nothing
MIN_LEGEND: Final = 2  # names that a legend explains: one may be a setting

BREAKS: Final = re.compile(r"[,;|()\[\]{}<>\u2502\u2503\u00b7~]+|->|=>|>>|\.\s+(?=[A-Z])")
ENDS: Final = re.compile(r"^[^\w]+|[^\w]+$")
UNIT: Final = re.compile(
    r"^\s?(?:s|secs?|seconds|ms|min|h|nats?|tok(?:ens)?/s|tok|it/s|[KMGT]i?B|%)(?=[\s,;:.|)\]}]|$)", re.IGNORECASE
)
"""Of the number before it, and no name of the one behind it."""
SECONDS: Final = re.compile(r"\s?(?:s|secs?|seconds|ms)(?=[\s,;:.|)\]}]|$)")
RATE: Final = re.compile(r"\s?(tok(?:en)?s?/s(?:ec)?)(?!\w)", re.IGNORECASE)  # a unit that tells the quantity
NORM: Final = re.compile(r"[|\u2016]{1,2}\s?(?:g|grad|\u2207\w?)\s?[|\u2016]{1,2}")
ASIDE: Final = frozenset({
    "of", "is", "at", "was", "in", "to", "by", "the", "a", "an", "and", "per", "for", "with", "now", "im", "en",
    "mittel", "moyenne", "came", "comes", "stood", "stands", "reached", "reaches", "got", "gets", "had", "has", "have",
    "fell", "rose", "dropped", "climbed", "went", "sits", "sat", "were", "are", "be", "being", "been", "currently",
    "around", "about", "roughly", "so", "far", "while", "but", "its", "our", "their", "which", "that", "from", "on",
    "overall", "after", "where", "whereas", "took", "then", "still",
})  # fmt: skip
"""Words beside a name that say nothing of it."""
SPREAD: Final = re.compile(r"(?:\u00b1|\+/-|\+-)\s*$")
OF_BEFORE: Final = {
    word: read
    for read, words in {
        "std": "std sd stdev stddev", "min": "min minimum", "max": "max maximum", "mean": "mean avg average",
        "median": "median p50",
    }.items() for word in words.split()
}  # fmt: skip
"""Alone in brackets behind a named number, these are of the same quantity."""
CELLS: Final = tuple(
    map(re.compile, (r"\t", r"\s*[|\u2502\u2503]\s*", r"\s*[/;]\s*", r"\s*,\s*", r"\s{2,}", r"[\s|\u2502\u2503]+"))
)
TITLE: Final = re.compile(r"^\W*\w+(?: \w+)?\s*[:=]\s*")  # `columns:`
POWER: Final = re.compile(r"[(x*\u00d7]\s?(?:1?[eE]|10\^?)-?\d+\)?")
REMARK: Final = re.compile(r"\s*\([^()]*\)\s*$")
NUMBERED: Final = re.compile(r"(?<![\w.])(\d{1,2})\s*[:=.)-]?\s*([^\W\d][^,;|\d]{0,40})")
EXPLAINED: Final = re.compile(r"(?<![\w/])([^\W\d]\w{0,11})\s*(?:=|:|->|\u2192|is)\s*([^\W\d][^,;|=:()]{1,40})")


def number_names(layout: Layout, constant: Collection[int], above: Sequence[str]) -> dict[int, str]:
    """Return what the numbers of a layout are called, by their place among its numbers.

    `constant`: those that are the same on all lines, and part of a name where they are glued to one, as in `top5`.
    `above`: the lines before its first one.
    """
    texts, slots = _around(layout, constant)
    names = _beside(texts, slots)
    names |= _above(layout, names, slots, above)
    explained = _legend(above[-LEGEND_LINES:], {*names.values()})
    behind = dict(zip(slots, texts[1:], strict=True))
    return {at: _timed(written_out(explained.get(name, name)), behind[at]) for at, name in names.items()}


def _timed(name: str, behind: str) -> str:
    """Call a number of seconds a time, whatever takes it: `score 3.0 s` is no score."""
    return f"{name} time" if SECONDS.match(behind) and "time" not in name.lower() else name


def _around(layout: Layout, constant: Collection[int]) -> tuple[list[str], list[int]]:
    """Return the text before each number that is no part of a name and behind the last, and which numbers these are."""
    texts, slots, text, number = [], [], "", 0
    for at, token in enumerate(layout.tokens):
        gap = " " if layout.some[at] else ""
        if token in COUNTED:
            glued = not layout.some[at] and (text[-1:].isalpha() or text[-1:] in ("_", "@"))
            if glued and number in constant:
                text += "1"
            else:
                texts.append(text + gap)
                slots.append(number)
                text = ""
            number += 1
        else:
            text += gap + (";" if token in (STAMP, DRAWN) else " " if token == ANY else token)
    return [*texts, text + layout.tail], slots


def _beside(texts: Sequence[str], slots: Sequence[int]) -> dict[int, str]:
    """Return the words before each number, or behind it where none stand before: up to the next sign that parts."""
    found: dict[int, str] = {}  # by the place in `slots`
    listed = dict(_listed(texts))
    within: list[str] = []  # of each bracket that is open, the name before it
    for at in range(len(slots)):
        last = found.get(at - 1, "")
        for sign in re.findall(r"[()]", texts[at]):
            within = [*within, last] if sign == "(" else within[:-1]
        text = NORM.sub("grad_norm", _without_unit(texts[at]) if at else texts[at])
        parts = BREAKS.split(text)
        unnamed = at > 0 and at - 1 not in found
        leads_on = len(parts) > 1 or not ASIDE.isdisjoint(parts[0].lower().split()[-1:])
        if unnamed and leads_on and (after := phrase(parts[0])):  # `12.7% correct,` and `311 tokens at`
            found[at - 1] = after
        if at in listed:
            found[at] = listed[at]
        elif text.rstrip().endswith(("[", "(")) and texts[at + 1].strip() == ",":  # the first of several
            continue
        elif SPREAD.search(text) and last:
            found[at] = f"{_without_mean(last)} std"
        elif (len(parts) > 1 or not (unnamed and leads_on)) and (name := _last_name(parts, first=at == 0)):
            found[at] = _of_before(name, [*filter(None, within)] or [last] * _is_mean(last))
    _behind(texts, found)
    return {slots[at]: name for at, name in found.items()}


def _last_name(parts: Sequence[str], *, first: bool) -> str:
    """Return the name in the last part, or in the cell of a table before it; that of a number before is its own."""
    cell = len(parts) > (1 if first else 2) and not any(map(str.isalpha, parts[-1]))
    return phrase(parts[-2] if cell else parts[-1])


def _without_unit(text: str) -> str:
    """Return the text behind a number without its unit; where nothing else stands there, a letter is a name."""
    rest = UNIT.sub("", text)
    return rest if not text[:1].isspace() or any(map(str.isalpha, rest)) or BREAKS.search(rest) else text


def _behind(texts: Sequence[str], found: dict[int, str]) -> None:
    """Name numbers by the words behind them where those before tell nothing: `responses had 312 tokens on average`."""
    for at in range(len(texts) - 1):
        if at in found and (told_by(written_out(found[at])) or read_words(found[at])):
            continue
        if rate := RATE.match(texts[at + 1]):
            found[at] = rate[1]
            continue
        behind = phrase(BREAKS.split(texts[at + 1])[0])
        both = [word for word in f"{found.get(at, '')} {behind}".split() if word.lower() not in ASIDE]
        for name in (behind, " ".join(both)):
            if told_by(spelt := written_out(name)) and (at + 1 == len(texts) - 1 or found.get(at + 1) != behind):
                found[at] = spelt
                break


def _listed(texts: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the names of numbers that are parted as their names are: `reward mean/std/max = 0.3/0.1/0.9`."""
    for at, text in enumerate(texts[:-1]):
        words = BREAKS.split(text)[-1].replace(":", " ").replace("=", " ").split()
        parts = words[-1].split("/") if words else []
        behind = [texts[at + by].strip() if at + by < len(texts) else "" for by in range(1, len(parts))]
        if len(parts) > 1 and all(parts) and all(sign == "/" for sign in behind):
            head = phrase(" ".join(words[:-1]))
            yield from ((at + by, f"{head} {part}".strip()) for by, part in enumerate(parts))


def _is_mean(name: str) -> bool:
    return OF_BEFORE.get(name.split()[-1].lower() if name else "") == "mean"


def _without_mean(name: str) -> str:
    words = [word for word in name.split() if OF_BEFORE.get(word.lower()) != "mean"]
    return " ".join(words) or name


def _of_before(name: str, before: Sequence[str]) -> str:
    """Return a name with the quantity that it is of, where it is only a word such as `std`, or a part such as `value`.

    `before`: what stands before the brackets around it, the outermost first.
    """
    if not before:
        return name
    if alone := OF_BEFORE.get(name.lower()):
        return f"{_without_mean(before[-1])} {alone}"
    joined = (f"{name} {outer}" for outer in reversed(before))
    return name if told_by(name) else next(filter(told_by, joined), name)


def phrase(text: str) -> str:
    """Return the name among some words, without those that say nothing; empty where none is left."""
    words = [ENDS.sub("", word) for word in text.replace(":", " ").replace("=", " ").split()]
    kept = [_in_english(word) for word in words if any(map(str.isalpha, word))]
    while kept and kept[-1].lower() in ASIDE:
        kept.pop()
    while kept and kept[0].lower() in ASIDE:
        kept.pop(0)
    for size in range(min(len(kept), MAX_WORDS), 0, -1):
        for begin in range(len(kept) - size, -1, -1):
            name, rest = " ".join(kept[begin : begin + size]), [*kept[:begin], *kept[begin + size :]]
            if told_by(written_out(name)) and (not rest or len(name) > 1) and not any(map(changes_meaning, rest)):
                return name
    return " ".join(kept[-KEPT_WORDS:])


def _in_english(word: str) -> str:
    line = f"{word} 1".encode()
    return in_english(line, line.lower()).decode("utf-8", "replace").removesuffix(" 1")


def _above(layout: Layout, beside: Mapping[int, str], slots: Sequence[int], above: Sequence[str]) -> dict[int, str]:
    """Return the names that a line above the first row gives its columns.

    Right above it they may be any; further up, where other rows stand between, two of them must be metrics.
    """
    columns = _columns(layout, slots)
    for back, line in enumerate(reversed(above[-LEGEND_LINES:])):
        for text in dict.fromkeys((line, REMARK.sub("", line), TITLE.sub("", REMARK.sub("", line)))):
            for cells in _cells(text):
                named = columns.get(len(cells), {})
                taken = {slot for slot in named if slot in beside} - ({0} if len(named) == len(slots) > 1 else set())
                if not named or taken:  # a word before the first number may be a column of its own
                    continue
                names = {slot: _of_cell(cells[place]) for slot, place in named.items()}
                if back < HEADER_LINES or sum(told_by(written_out(name)) is not None for name in names.values()) > 1:
                    return names
    listed = _numbered(above)
    numbered = columns.get(len(listed), {}) if not beside else {}
    return {slot: phrase(listed[place]) for slot, place in numbered.items()}


def _columns(layout: Layout, slots: Sequence[int]) -> dict[int, dict[int, int]]:
    """Return for each number of columns that may be named which of them a number is in: words may be columns too."""
    shown = [token for token in layout.tokens if any(map(str.isalnum, token)) or not token.isprintable()]
    counted = [token for token in shown if token in COUNTED or token == STAMP]
    found = {}
    for tokens in (shown, counted):
        marks = [at for at, token in enumerate(tokens) if token in COUNTED]
        found[len(tokens)] = {slot: marks[slot] for slot in slots}
    found[len(slots) - 1] = {slot: place for place, slot in enumerate(slots[1:])}
    found[len(slots)] = {slot: place for place, slot in enumerate(slots)}
    return found


def _of_cell(cell: str) -> str:
    if POWER.search(cell):  # `lr(e-6)`: a value of 3 is no learning rate of 3
        return f"scaled {cell}"
    name, short = phrase(cell), phrase(cell.partition("(")[0])
    return short if short and told_by(name) is None and told_by(short) else name or cell


def _cells(line: str) -> Iterator[list[str]]:
    """Yield the names on a line, in each way that it may be parted."""
    for split in CELLS:
        cells = [ENDS.sub("", cell) for cell in split.split(line.strip().lstrip("#%/ ").strip("|\u2502\u2503 "))]
        if len(cells) > 1 and all(cell and not cell[0].isdigit() for cell in cells):
            yield cells


def _numbered(above: Sequence[str]) -> list[str]:
    """Return names that are numbered from 1 on: `1 step, 2 mean reward`, or a line each."""
    names: list[str] = []
    for line in above:
        for number, name in NUMBERED.findall(line):
            if int(number) == len(names) + 1:
                names.append(name.strip())
            elif int(number) == 1:
                names = [name.strip()]
    return names


def _legend(above: Sequence[str], names: Collection[str]) -> dict[str, str]:
    """Return what lines above say that short names mean: `r = mean reward, k = KL to the reference`."""
    found = {
        short: name
        for line in above
        for short, words in EXPLAINED.findall(line)
        if short in names and short != words and told_by(name := phrase(words))
    }
    return found if len(found) >= MIN_LEGEND else {}


def is_of_evaluation(name: str) -> bool:
    """Return whether a name says itself that it is of an evaluation."""
    return not set(spelt_words(name)).isdisjoint(document()["words"]["evaluation"])


def marks_evaluation(layout: Layout, upto: int) -> bool:
    """Return whether a word before the number `upto` says that a line is of an evaluation, and none that it trains."""
    words, numbers = set(), 0
    for token in layout.tokens:
        numbers += token in COUNTED
        if numbers > upto:
            break
        words.add(ENDS.sub("", HELD_OUT.sub("heldout", token)).lower())
    data = document()["words"]
    return not words.isdisjoint(data["evaluation"]) and words.isdisjoint(data["training"])
