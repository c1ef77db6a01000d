"""Propose a `[[logs]]` entry for a text that no parser reads: from lines that are the same but for their numbers."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from glob import escape
from itertools import pairwise
from typing import Final

import polars as pl

from ptt.diagnostics.log_entries import STEP, LogEntry
from ptt.diagnostics.metrics.catalogue import metrics
from ptt.diagnostics.metrics.guessed_names import near_names, read_words, spelt_words, told_by
from ptt.diagnostics.parsers.io.console_context import in_english
from ptt.diagnostics.parsers.io.interface import HEAD_BYTES, RunFile
from ptt.diagnostics.parsers.io.lines import text_head
from ptt.diagnostics.parsers.own_logs import SCALE, plain_frames, texts_by_name
from ptt.diagnostics.scrub.scrub import Scrubber

MAX_PROPOSALS: Final = 5
MAX_CANDIDATES: Final = 3  # metrics that a name may mean
MIN_LETTERS: Final = 4  # of a word that two names share
MIN_LINES: Final = 5  # of one shape, for a log
MAX_LINES: Final = 3000
MAX_CHARS: Final = 2000  # of a line
MAX_NUMBERS: Final = 60  # on a line
HEADER_LINES: Final = 4  # before the first row, in which its columns may be named
UNNAMED: Final = "value_"  # begins the names of values that have none
WHOLE: Final = r"\d+"
MAX_NAME: Final = 40  # characters
EPOCH_SECONDS: Final = 10**9  # whole numbers from here on that rise are times, in seconds or less, and no steps
RISING: Final = 0.8  # share of steps that lie above the one before: a run may have been resumed

STAMP: Final = (
    r"\d{4}[-/]\d\d[-/]\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?)?"
    r"|\d\d?\.\d\d?\.\d{4}(?: \d\d:\d\d(?::\d\d)?)?|\d+(?:\.\d+){2,}|\d{1,3}:\d\d(?::\d\d(?:[.,]\d{1,9})?)?"
)
SPACED: Final = r"%|(?:m|u|µ|μ)nats?"  # scales that may stand behind a space, since they are nothing else
NON_FINITE: Final = r"[-+]?(?:nan|inf|NaN|Inf|NAN|INF|null|None)(?!\w)"
NUMBERS: Final = {
    decimal: re.compile(
        rf"(?<![\w.])(?:(?P<stamp>{STAMP})(?![\w:])|(?P<number>[-+]?(?:[1-9]\d{{0,2}}(?:{thousands}\d{{3}})+(?!\d)"
        rf"(?:{point}\d+)?|\d+(?:{point}\d*)?|{point}\d+)(?:[eE][-+]?\d+)?|{NON_FINITE})(?P<scale>(?:\s?(?:{SPACED})|(?:{SCALE}))(?!\w))?)"
    )
    for decimal, point, thousands in ((".", r"\.", ","), (",", ",", r"\."))
}
COMMA_DECIMAL: Final = re.compile(r"(?<![\w.,])\d+,\d+(?![\w,])")
POINT_DECIMAL: Final = re.compile(r"(?<![\w.,:])(?:\d+\.(?:\d{1,2}|\d{4,})|0\.\d+)(?![\w.])")
BREAKS: Final = re.compile(r"[,;|()\[\]{}<>]+")
ENDS: Final = re.compile(r"^[^\w]+|[^\w]+$")
BAR: Final = re.compile(r"\|[█▉▊▋▌▍▎▏░▒▓━╸╺ #=>.-]{3,}\||\[[█░ #=>.-]{5,}\]")
DRAWN: Final = "\0"  # stands for a progress bar, whatever its length; texts with a null byte are not looked at
UNIT: Final = re.compile(r"^\s?(?:s|sec|ms|min|h|nats?|tok(?:ens)?/s|tok|it/s|[KMGT]i?B|%)(?=\s)", re.IGNORECASE)
"""Of the number before it, and no name of the one behind it."""
ASIDE: Final = frozenset(
    {"of", "is", "at", "was", "in", "to", "by", "the", "a", "an", "and", "per", "for", "with", "now"}
)
COUNTERS: Final = frozenset({
    "step", "steps", "iter", "iters", "iteration", "iterations", "update", "updates", "batch", "it", "round", "rounds",
    "global_step", "episode", "epoch",
})  # fmt: skip
CELLS: Final = tuple(map(re.compile, (r"\t", r"\s*\|\s*", r"\s*[/;]\s*", r"\s*,\s*", r"\s{2,}", r"\s+")))


@dataclass(frozen=True, kw_only=True)
class LogProposal:
    """An entry to paste. `names`: what stands on a line besides the step -> the metric it is taken for, if any."""

    toml: str
    read: LogEntry
    matched: int  # of the first lines
    lines: int
    names: dict[str, str | None]


@dataclass(frozen=True, kw_only=True)
class _Row:
    """A line: the texts around its numbers, and these; a stamp is None."""

    around: tuple[str, ...]
    numbers: tuple[str | None, ...]

    @property
    def shape(self) -> tuple[object, ...]:
        return tuple(" ".join(text.split()) for text in self.around), tuple(n is None for n in self.numbers)


def proposals(files: Iterable[RunFile]) -> tuple[LogProposal, ...]:
    """Return entries for the first files that one can be given for; files numbered alike share theirs."""
    found: dict[str, LogProposal] = {}
    for file in files:
        if any(known.read.reads(file.rel) for known in found.values()):
            continue
        if len(found) >= MAX_PROPOSALS or (proposal := propose(file)) is None:
            continue
        found[proposal.toml] = proposal
    return tuple(found.values())


def propose(file: RunFile) -> LogProposal | None:
    """Return an entry for the lines that most of a text is made of; None where no shape of them counts anything."""
    lines = _lines(file)
    decimal = _decimal(lines)
    rows = [_row(line, decimal) for line in lines]
    by_shape: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for at, row in enumerate(rows):
        if 0 < len(row.numbers) <= MAX_NUMBERS:
            by_shape[row.shape].append(at)
    for places in sorted(by_shape.values(), key=lambda found: (-len(found), found[0])):
        if len(places) < MIN_LINES:
            break
        alike = [rows[at] for at in places]
        header = lines[max(0, places[0] - HEADER_LINES) : places[0]]
        if (found := _proposal(file, alike, header, lines, decimal)) is not None:
            return found
    return None


def _lines(file: RunFile) -> list[str]:
    head = text_head(file)
    if b"\0" in head:
        return []
    split = head.split(b"\n")
    if len(head) >= HEAD_BYTES:
        split = split[:-1]
    lines = [frame for line in split[:MAX_LINES] for frame in plain_frames(line)][:MAX_LINES]
    return [line for line in lines if line.strip() and len(line) <= MAX_CHARS]


def _decimal(lines: Sequence[str]) -> str:
    """Return how fractions are written: with a comma where numbers say so, and none has a point."""
    commas = sum(len(COMMA_DECIMAL.findall(line)) for line in lines)
    return "," if commas >= MIN_LINES and not any(map(POINT_DECIMAL.search, lines)) else "."


def _row(line: str, decimal: str) -> _Row:
    around, numbers, at = [], [], 0
    line = BAR.sub(DRAWN, line)
    for match in NUMBERS[decimal].finditer(line):
        around.append(line[at : match.start()])
        numbers.append(None if match["stamp"] else match.group())
        at = match.end()
    return _Row(around=(*around, line[at:]), numbers=tuple(numbers))


def _value(text: str, decimal: str) -> float | None:
    thousands = "," if decimal == "." else "."
    try:
        return float(re.sub(rf"\s?(?:{SCALE})$", "", text).replace(thousands, "").replace(decimal, "."))
    except ValueError:
        return None


def _proposal(
    file: RunFile, rows: Sequence[_Row], header: Sequence[str], lines: Sequence[str], decimal: str
) -> LogProposal | None:
    columns = list(zip(*(row.numbers for row in rows), strict=True))
    values = [[_value(text, decimal) for text in column if text is not None] for column in columns]
    names = _names(rows[0], header)
    whole = [
        values[at] if all(text is not None and text.isdigit() for text in columns[at]) else []
        for at in range(len(values))
    ]
    step = _step(whole, names)
    kept = [at for at, column in enumerate(values) if at != step and len(set(column)) > 1]
    if step is None or not kept:
        return None
    called: dict[int, str] = {step: STEP}
    for at in kept:
        called[at] = _group(names.get(at, ""), at, [*called.values()])
    expression = _expression(rows[0], called)
    pattern = re.sub(r"\d+", "*", escape(file.name))
    entry = LogEntry(files=pattern, line=expression, decimal=decimal)
    if not (expression + pattern).isprintable() or Scrubber().text(expression) != expression:
        return None
    matched = int(texts_by_name(entry, pl.Series(lines, dtype=pl.String))["__matched"].sum())
    read = {name: told_by(name) for at, name in sorted(called.items()) if at != step}
    unknown = {name: columns[at] for at, name in sorted(called.items()) if at != step and read[name] is None}
    toml = "\n".join(_toml(entry, matched, len(lines), unknown))
    return LogProposal(toml=toml, read=entry, matched=matched, lines=len(lines), names=read)


def _step(values: Sequence[Sequence[float | None]], names: dict[int, str]) -> int | None:
    """Return which number counts: whole ones that rise, those beside a counter's name first."""
    rising = []
    for at, column in enumerate(values):
        whole = [value for value in column if value is not None]
        if len(whole) < MIN_LINES or min(whole) >= EPOCH_SECONDS:
            continue
        above = sum(after > before for before, after in pairwise(whole))
        if above >= RISING * (len(whole) - 1):
            rising.append(at)
    return min(rising, key=lambda at: (names.get(at, "").lower() not in COUNTERS, at), default=None)


def _names(row: _Row, header: Sequence[str]) -> dict[int, str]:
    """Return what numbers are called: by the words beside them, or by a line of names above them."""
    slots = [at for at, number in enumerate(row.numbers) if number is not None]
    beside = _beside(row, slots)
    for line in reversed(header):
        for split in CELLS:
            cells = [ENDS.sub("", cell) for cell in split.split(line.strip().lstrip("#%/ ").strip("| "))]
            if not all(cell and not cell[0].isdigit() for cell in cells) or len(cells) < 2:
                continue
            for targets in ([*range(len(row.numbers))], slots, slots[1:]):
                if len(cells) == len(targets) and not any(at in beside for at in targets):
                    return {**beside, **dict(zip(targets, cells, strict=True))}
    return beside


def _beside(row: _Row, slots: Sequence[int]) -> dict[int, str]:
    """Return the words before each number, or behind it where none stand before: up to the next sign that parts."""
    names: dict[int, str] = {}
    for at in slots:
        before = BREAKS.split(UNIT.sub("", row.around[at]) if at else row.around[at])
        unnamed = at and (at - 1) in slots and (at - 1) not in names
        leads_on = len(before) > 1 or not ASIDE.isdisjoint(before[0].lower().split()[-1:])
        if unnamed and leads_on and (after := _words(before[0])):  # `12.7% correct,` and `311 tokens at`
            names[at - 1] = after
        if (len(before) > 1 or not (unnamed and leads_on)) and (name := _words(before[-1])):
            names[at] = name
    last = slots[-1] if slots else -1
    if last >= 0 and last not in names and told_by(after := _words(BREAKS.split(row.around[last + 1])[0])):
        names[last] = after
    return names


def _words(text: str) -> str:
    """Return a name's words without those that say nothing; empty where none is left."""
    words = [ENDS.sub("", word) for word in text.replace(":", " ").replace("=", " ").split()]
    kept = [word for word in words if any(map(str.isalpha, word))]
    while kept and kept[-1].lower() in ASIDE:
        kept.pop()
    while kept and kept[0].lower() in ASIDE:
        kept.pop(0)
    if len(kept) > 1 and not told_by(" ".join(kept)) and told_by(kept[-1]):
        kept = kept[-1:]
    name = " ".join(kept[-3:])
    line = f"{name} 1".encode()
    return in_english(line, line.lower()).decode("utf-8", "replace").removesuffix(" 1")


def _group(name: str, at: int, taken: Collection[str]) -> str:
    """Return the name of a group: letters, digits and underscores, and not one that is taken."""
    spelt = re.sub(r"\W+", "_", name).strip("_")[:MAX_NAME]
    if not spelt or spelt[0].isdigit():
        spelt = f"{UNNAMED}{at + 1}"
    return spelt if spelt not in taken else f"{spelt}_{at + 1}"


def _expression(row: _Row, called: dict[int, str]) -> str:
    parts = ["^"]
    for at, number in enumerate(row.numbers):
        parts.append(_literal(row.around[at], first=at == 0))
        tight = not row.around[at + 1][:1].isspace() and at + 1 < len(row.around) and row.around[at + 1] != ""
        some = r"[\w.,+%-]+" if tight else r"\S+"
        if number is not None and re.search(r"\s", number):
            some = rf"\S+\s?(?:{SPACED})"
        if number is None:
            parts.append(r"[\d:.,/TZ +-]+")
        elif at in called:
            parts.append(f"(?P<{called[at]}>{WHOLE if called[at] == STEP else some})")
        else:
            parts.append(some)
    last = row.around[-1].rstrip()  # a word that stands apart there, as `best`, may differ
    return "".join(parts) + ("" if last[:1].isspace() else _literal(last, first=False))


def _literal(text: str, *, first: bool) -> str:
    """Return an expression for what stands between numbers: any white space where there is some."""
    parts = re.split(r"(\s+)", text)
    spaced = (r"\s*" if first and at == 1 else r"\s+" for at in range(1, len(parts), 2))
    return "".join(
        re.escape(part).replace(r"\ ", " ").replace(re.escape(DRAWN), r"[\[|][^\]|]*[\]|]")
        if at % 2 == 0
        else next(spaced)
        for at, part in enumerate(parts)
    )


def _toml(entry: LogEntry, matched: int, lines: int, unknown: Mapping[str, Sequence[str | None]]) -> Iterator[str]:
    yield f"[[logs]]  # matches {matched} of the first {lines} lines"
    yield f"files = {json.dumps(entry.files, ensure_ascii=False)}"
    yield f"line = {_quoted(entry.line)}"
    if entry.decimal != ".":
        yield f'decimal = "{entry.decimal}"'
    if unknown:
        yield "# not known; where one is a metric, write its name in its place, such as reward, loss or kl:"
    for name, texts in unknown.items():
        near = f"; is it {' or '.join(found)}?" if (found := _candidates(name)) else ""
        yield f"# {name}: {texts[0]} ... {texts[-1]}{near}"


def _candidates(name: str) -> list[str]:
    """Return the metrics that a name may mean: by its words, or else by one that it shares with theirs."""
    if name.startswith(UNNAMED):
        return []
    words = {word for word in spelt_words(name) if len(word) >= MIN_LETTERS}
    shared = [known for known in metrics() if not words.isdisjoint(spelt_words(known))]
    found = [*near_names(name), *(reading.name for reading in read_words(name))] or shared
    return list(dict.fromkeys(found))[:MAX_CANDIDATES]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if "'" in text else f"'{text}'"
