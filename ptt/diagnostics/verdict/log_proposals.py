"""Propose entries of `[[logs]]` for a text that no parser reads, or most numbers of which none does.

From lines that are the same but for their numbers come expressions; words beside the numbers, or above them, give the
names; whole numbers that rise count the steps, in epochs where they start again. An entry is proposed as it was tried.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from glob import escape
from itertools import islice, pairwise
from typing import Final

import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.log_entries import EPOCH, STEP, LogEntry, entry_problem
from ptt.diagnostics.metrics.catalogue import document, metrics
from ptt.diagnostics.metrics.guessed_names import near_names, read_words, spelt_words, told_by
from ptt.diagnostics.parsers.io.console_files import NAMES, OTHER_KINDS
from ptt.diagnostics.parsers.io.interface import RunFile
from ptt.diagnostics.parsers.io.lines import pieces
from ptt.diagnostics.parsers.own_logs import numbers_of, plain_frames, texts_by_name
from ptt.diagnostics.scrub.scrub import Scrubber
from ptt.diagnostics.verdict.log_layouts import ANY, COUNTED, FIGURE, MISSING, Layout, expression, layouts
from ptt.diagnostics.verdict.log_steps import Counted, counted, epoch_size, restarts, whole_numbers
from ptt.diagnostics.verdict.number_names import is_of_evaluation, marks_evaluation, number_names
from ptt.diagnostics.verdict.passed_over import PassedOver, passed_over

MAX_PROPOSALS: Final = 5
MAX_CONSOLES: Final = 20  # that are looked at: reading one takes longer than finding its layouts
MAX_CANDIDATES: Final = 3  # metrics that a name may mean
MAX_UNKNOWN: Final = 12  # names that a proposal lists as unknown
MIN_LETTERS: Final = 4  # of a word that two names share
MIN_LINES: Final = 5  # of one layout, for a log
MIN_BESIDE: Final = 3  # likewise, of an evaluation or a line that belongs to the steps of another
MAX_BESIDE: Final = 1.2  # lines of such a layout for each step: more are of samples
MIN_SHARE: Final = 0.5  # of a text that lines with unknown names make up, for a log
MIN_TRIED: Final = 0.9  # of the lines that an entry is made for, which it reads
MAX_PARTS: Final = 12  # layouts of an entry
MAX_LINES: Final = 3000
MAX_CHARS: Final = 2000  # of a line
MAX_NUMBERS: Final = 60  # on a line
MAX_NAME: Final = 40  # characters
UNNAMED: Final = "value_"  # begins the names of values that have none
TABLES: Final = (".csv", ".tsv", ".json", ".jsonl", ".ndjson")  # of the endings that no console has
TEXTS: Final = (".log", ".txt", ".out", ".err", ".dat", ".tsv", ".csv", ".jsonl", ".gz", ".zst")
MACHINE: Final = tuple(document()["kinds"]["machine"])  # beginnings of metrics that tell nothing of training
COMMA_DECIMAL: Final = re.compile(r"(?<![\w.,])\d+,\d+(?![\w,])")
POINT_DECIMAL: Final = re.compile(r"(?<![\w.,:])(?:\d+\.(?:\d{1,2}|\d{4,})|0\.\d+)(?![\w.])")
PLACES: Final = frozenset(
    {"rank", "gpu", "worker", "node", "host", "device", "pid", "thread", "line", "local_rank", "cuda"}
)  # where a line was written
MINUS: Final = "\u2212"  # of typography
MINUS_ESCAPED: Final = r"\u2212"
REWARD: Final = "reward"
RETURNS: Final = frozenset({"return", "returns", "mean_return", "avg_return", "return_mean"})
"""Of episodes where no reward stands beside, though a critic's return is spelt the same."""
TOKENS: Final = frozenset({"tok", "toks", "token", "tokens"})
COUNTS_OF_TOKENS: Final = ["len/response_mean", "tokens/step", "tokens/seen"]  # any of which that may be


@dataclass(frozen=True, kw_only=True)
class LogProposal:
    """An entry to paste. `names`: what stands on a line besides the step -> the metric it is taken for, if any."""

    path: str  # of the file that it was made for
    toml: str
    read: LogEntry
    matched: int  # of the first lines
    lines: int
    names: dict[str, str | None]


@dataclass(frozen=True, kw_only=True)
class _Text:
    lines: tuple[str, ...]
    series: pl.Series
    decimal: str


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """The lines of one layout: where they stand, their numbers as texts, and what these are."""

    layout: Layout
    rows: tuple[int, ...]
    columns: Mapping[int, Sequence[str | None]]
    counted: Counted | None
    called: Mapping[int, str]  # number -> the name of its group; those that count are left out
    known: frozenset[str]  # metrics among them
    evaluates: bool
    head: int | None = None  # the number of the epoch, where these lines are headlines of one

    @property
    def tells(self) -> bool:
        """Whether a metric of training is among the names."""
        return any(not name.startswith(MACHINE) for name in self.known)

    @property
    def is_named(self) -> bool:
        """Whether words name one of the numbers."""
        return any(not name.startswith(UNNAMED) for name in self.called.values())


def proposals(
    files: Iterable[RunFile], *, consoles: Iterable[RunFile], tables: Iterable[RunFile]
) -> tuple[tuple[LogProposal, ...], tuple[PassedOver, ...]]:
    """Return entries for the first files that some can be given for; files numbered alike share theirs.

    `consoles`: files that are read as a console's. They get entries where these give metrics that this reading does
    not, and it is said which. `tables`: files that are read as columns without names. They do where some are metrics.
    """
    found: list[LogProposal] = []
    left_out: list[PassedOver] = []
    for file, named in (*((file, False) for file in files), *((file, True) for file in tables)):
        if len(found) < MAX_PROPOSALS and not any(known.read.reads(file.rel) for known in found):
            found += [made for made in propose(file) if not named or any(made.names.values())]
    for file in islice(consoles, MAX_CONSOLES):
        if len(found) >= MAX_PROPOSALS or any(known.read.reads(file.rel) for known in found):
            continue
        made = propose(file)
        read_by = [(one.read, {name: metric for name, metric in one.names.items() if metric}) for one in made]
        if made and (left := passed_over(file.rel, _lines(file), read_by)) is not None:
            found += made
            left_out.append(left)
    return tuple(found), tuple(left_out)


def propose(file: RunFile) -> tuple[LogProposal, ...]:
    """Return entries for the lines that most of a text is made of, and for evaluations between them."""
    if file.name.lower().endswith(tuple({*OTHER_KINDS} - {*TABLES})):
        return ()
    lines = _lines(file)
    if sum(any(map(str.isdigit, line)) for line in lines) < MIN_LINES:
        return ()
    decimal = _decimal(lines)
    text = _Text(lines=tuple(lines), series=pl.Series(lines, dtype=pl.String), decimal=decimal)
    kinds = [kind for layout in layouts(lines, decimal) if (kind := _kind(layout, text)) is not None]
    chosen = [*_chosen(kinds, file, text)]
    return tuple(proposal for parts in chosen if (proposal := _proposal(file, parts, text)) is not None)


def _lines(file: RunFile) -> list[str]:
    head = next(pieces(file), b"")
    if not isinstance(head, bytes) or b"\0" in head:
        return []
    split = head.split(b"\n")[: MAX_LINES + 1]
    lines = [frame for line in split[:-1] or split for frame in plain_frames(line)][:MAX_LINES]
    return [line for line in lines if line.strip() and len(line) <= MAX_CHARS]


def _decimal(lines: Sequence[str]) -> str:
    """Return how fractions are written: with a comma where numbers say so, and none has a point."""
    commas = sum(len(COMMA_DECIMAL.findall(line)) for line in lines)
    return "," if commas >= MIN_LINES and not any(map(POINT_DECIMAL.search, lines)) else "."


def _kind(layout: Layout, text: _Text) -> _Kind | None:
    """Return what the lines of a layout hold; None where they are too few, or their numbers too many."""
    layout.tokens = [token if Scrubber().text(token) == token else ANY for token in layout.tokens]
    numbers = sum(token in COUNTED for token in layout.tokens)
    if layout.count < MIN_BESIDE - 1 or numbers > MAX_NUMBERS:
        return None
    numbered = {at: f"n{at}" for at in range(numbers)}
    found = text.series.str.extract_groups(expression(layout, numbered, some=FIGURE)).struct.unnest()
    rows = found.with_row_index("__row").filter(pl.any_horizontal(pl.col(found.columns).is_not_null()))
    if rows.height < MIN_BESIDE - 1:
        return None
    columns = {at: rows[f"n{at}"].to_list() for at in range(numbers)}
    constant = {at for at, column in columns.items() if len(set(column)) == 1}
    names = number_names(layout, constant - _epochs(layout), text.lines[: layout.first])
    counts = {at: column for at in columns if (column := whole_numbers(columns[at], text.decimal)) is not None}
    leading = next((at for at in columns if at not in constant), 0)
    count = counted(counts, names, _slashes(layout), leading)
    evaluates = marks_evaluation(layout, 1 if count is None else count.step + 1)
    aside = {count.step, count.epoch, count.total} if count else set()
    values = [
        at for at in columns if at not in aside and at not in constant and names.get(at, "").lower() not in PLACES
    ]
    called: dict[int, str] = {}
    for at in values:
        called[at] = _group(names.get(at, ""), at, {STEP, EPOCH, *called.values()}, evaluates=evaluates)
    if "reward/mean" not in map(_metric, called.values()):
        called = {at: REWARD if name.lower() in RETURNS else name for at, name in called.items()}
    return _Kind(
        layout=layout,
        rows=tuple(rows["__row"]),
        columns=columns,
        counted=count,
        called=called,
        known=frozenset(filter(None, map(_metric, called.values()))),
        evaluates=evaluates,
    )


def _metric(name: str) -> str | None:
    """Return the metric that a name tells, or may tell where nothing else does."""
    return told_by(name) or next((reading.name for reading in read_words(name)), None)


def _epochs(layout: Layout) -> set[int]:
    """Return the numbers that are glued to the word of an epoch, as in `E1`."""
    places = [at for at, token in enumerate(layout.tokens) if token in COUNTED]
    return {number for number, at in enumerate(places) if at and layout.tokens[at - 1].lower() in ("e", "ep", "epoch")}


def _slashes(layout: Layout) -> dict[int, int]:
    """Return the numbers that are a part of the one behind them, as in `17/300` and `17 of 300`."""
    places = [at for at, token in enumerate(layout.tokens) if token in COUNTED]
    return {
        number: number + 1
        for number, (at, behind) in enumerate(pairwise(places))
        if behind == at + 2 and layout.tokens[at + 1] in ("/", "of")
    }


def _group(name: str, at: int, taken: set[str], *, evaluates: bool) -> str:
    """Return the name of a group: letters, digits and underscores, not one that is taken, and the metric's if known."""
    spelt = re.sub(r"\W+", "_", name).strip("_")[:MAX_NAME]
    told = told_by(name)
    if told is not None and told_by(spelt) != told:
        spelt = told.replace("/", "_")
    if not spelt or spelt[0].isdigit():
        return f"{UNNAMED}{at + 1}"
    if evaluates and not is_of_evaluation(spelt):
        spelt = f"eval_{spelt}"
    return spelt if spelt not in taken else f"{spelt}_{at + 1}"


# Choosing


def _chosen(kinds: Sequence[_Kind], file: RunFile, text: _Text) -> Iterator[tuple[_Kind, ...]]:
    """Yield the layouts of each entry: one that counts, and those without a step that belong to it."""
    counting = [kind for kind in kinds if kind.counted is not None and len(kind.rows) >= MIN_LINES]
    stepless = [kind for kind in kinds if kind.counted is None and kind.is_named and len(kind.rows) >= MIN_BESIDE]
    headed = next(
        (found for kind in kinds if kind.tells and (found := _below_epochs(kind, kinds, text)) is not None), ()
    )
    telling = [kind for kind in counting if kind.tells and kind.called]
    main = next(iter((*headed, *telling)), None) or next((kind for kind in counting if _beside(kind, stepless)), None)
    if main is not None:
        parts = headed or (main,)
        yield (*parts, *(kind for kind in _beside(main, stepless) if kind.layout is not main.layout))
        others = [kind for kind in kinds if kind.layout is not main.layout and kind.counted is not None and kind.tells]
        yield from ((kind,) for kind in others if _is_another(kind, main))
    elif (main := next((kind for kind in counting if kind.called and _is_log(kind, file, text)), None)) is not None:
        yield (main,)


def _below_epochs(kind: _Kind, kinds: Sequence[_Kind], text: _Text) -> tuple[_Kind, _Kind] | None:
    """Return lines whose step starts again behind each headline of an epoch, and these; None where none does."""
    if len(kind.rows) < MIN_LINES or (kind.counted is not None and kind.counted.epoch is not None):
        return None
    slashes = _slashes(kind.layout)
    for step, column in _whole(kind, text):
        if step and step not in slashes:
            continue
        for head in (head for head in kinds if head is not kind and not head.tells):
            for epoch, numbers in _whole(head, text):
                if not restarts(column, kind.rows, numbers, head.rows):
                    continue
                total = slashes.get(step)
                sizes = whole_numbers(kind.columns[total], text.decimal) if total is not None else None
                size = sizes[0] if sizes else epoch_size(column)
                called = {at: name for at, name in kind.called.items() if at not in (step, total)}
                counts = Counted(step=step, epoch_steps=size, total=total)
                return replace(kind, called=called, counted=counts), replace(head, called={}, head=epoch)
    return None


def _whole(kind: _Kind, text: _Text) -> Iterator[tuple[int, list[int]]]:
    for at, texts in kind.columns.items():
        if (numbers := whole_numbers(texts, text.decimal)) is not None and len(set(numbers)) > 1:
            yield at, numbers


def _beside(main: _Kind, stepless: Sequence[_Kind]) -> list[_Kind]:
    """Return the layouts without a step that come at most once a step, behind the first."""
    most = MAX_BESIDE * len(main.rows)
    behind = [kind for kind in stepless if len(kind.rows) <= most and kind.rows[-1] > main.rows[0]]
    if not any(kind.tells for kind in behind):
        return []
    return [kind for kind in behind if kind.tells or len(kind.rows) * MAX_BESIDE >= len(main.rows)][:MAX_PARTS]


def _is_another(kind: _Kind, main: _Kind) -> bool:
    """Return whether lines that count are others than the main ones, and of an evaluation or of other metrics."""
    apart = set(kind.rows).isdisjoint(main.rows)
    enough = len(kind.rows) >= (MIN_BESIDE if kind.evaluates else MIN_LINES)
    return apart and enough and bool(kind.known - main.known)


def _is_log(kind: _Kind, file: RunFile, text: _Text) -> bool:
    """Return whether lines whose names tell nothing are a log all the same."""
    named = file.name.lower().endswith(TEXTS) or file.name.lower() in NAMES
    if kind.layout.tokens[0].startswith('{"'):  # names that are known for none of a metric
        return False
    fractions = any(
        "." in (texts[0] or "") or "," in (texts[0] or "") for at, texts in kind.columns.items() if at in kind.called
    )
    return named and fractions and len(kind.rows) >= MIN_SHARE * len(text.lines)


# Writing


def _proposal(file: RunFile, parts: Sequence[_Kind], text: _Text) -> LogProposal | None:
    """Return an entry that reads the lines it is made for; None where none can be written that does."""
    for known_only in (False, True):  # a line of very many values is too long with all of them
        called, counts = _called(parts, known_only=known_only)
        entry = _entry(file, parts, called, counts, text)
        if entry_problem(entry, ()) is None:
            break
    else:
        return None
    if not (entry.line + entry.files).isprintable() or Scrubber().text(entry.line) != entry.line:
        return None
    table, _ = texts_by_name(entry, text.series)
    read = table.filter("__matched")
    if read.height < MIN_TRIED * len({row for kind in parts for row in kind.rows}):
        return None
    names = {name: _metric(name) for name in entry.values}
    held = {name: read[name].drop_nulls() for name in names}
    held = {name: texts.filter(~texts.is_in(list(MISSING))) for name, texts in held.items()}
    for name, texts in held.items():
        if names[name] and numbers_of(texts, entry.decimal).null_count() > (1 - MIN_TRIED) * len(texts):
            return None
    unknown = {name: texts for name, texts in held.items() if names[name] is None and len(texts)}
    toml = "\n".join(_toml(entry, read.height, len(text.lines), unknown))
    return LogProposal(path=file.rel, toml=toml, read=entry, matched=read.height, lines=len(text.lines), names=names)


def _entry(
    file: RunFile, parts: Sequence[_Kind], called: Sequence[dict[int, str]], counts: Counted | None, text: _Text
) -> LogEntry:
    lines = [expression(kind.layout, names, decimal=text.decimal) for kind, names in zip(parts, called, strict=True)]
    order = sorted(range(len(parts)), key=lambda at: (-len(called[at]), at))  # a headline may begin another line
    line = "|".join(lines[at] for at in order)
    return LogEntry(
        files=re.sub(r"\d+", "*", escape(file.name)),
        line=line if any(MINUS in shown for shown in text.lines) else line.replace(MINUS_ESCAPED, ""),
        epoch_steps=counts.epoch_steps if counts else 0,
        carry=len(parts) > 1,
        decimal=text.decimal,
    )


def _called(parts: Sequence[_Kind], *, known_only: bool) -> tuple[list[dict[int, str]], Counted | None]:
    """Return the names of the groups of each layout, none of which comes twice, and how the first one counts."""
    counts = parts[0].counted
    found: list[dict[int, str]] = []
    for number, kind in enumerate(parts):
        taken = {name for names in found for name in names.values()}
        names = {
            at: name if name not in taken else f"{name}_{number + 1}"
            for at, name in kind.called.items()
            if not known_only or _metric(name) is not None
        }
        if number == 0 and counts is not None:
            names |= {counts.step: STEP} | ({counts.epoch: EPOCH} if counts.epoch is not None else {})
        found.append(names | ({kind.head: EPOCH} if kind.head is not None else {}))
    return found, counts


def _toml(entry: LogEntry, matched: int, lines: int, unknown: Mapping[str, pl.Series]) -> Iterator[str]:
    yield f"[[logs]]  # matches {matched} of the first {lines} lines"
    yield f"files = {json.dumps(entry.files, ensure_ascii=False)}"
    yield f"line = {_quoted(entry.line)}"
    if entry.epoch_steps:
        yield f"epoch_steps = {entry.epoch_steps}"
    if entry.carry:
        yield "carry = true"
    if entry.decimal != ".":
        yield f'decimal = "{entry.decimal}"'
    if unknown and not (entry.epoch_steps and entry.carry and entry.decimal != "."):
        listed = ", ".join(_described(name, texts) for name, texts in [*unknown.items()][:MAX_UNKNOWN])
        more = f" and {len(unknown) - MAX_UNKNOWN} more" if len(unknown) > MAX_UNKNOWN else ""
        yield f"# not known; for a metric, write its name, such as reward, loss or kl: {listed}{more}"


def _described(name: str, texts: pl.Series) -> str:
    near = f"; {' or '.join(found)}?" if (found := _candidates(name)) else ""
    return f"{name} ({texts[0]} ... {texts[-1]}{near})"


def _candidates(name: str) -> list[str]:
    """Return the metrics that a name may mean: by its words, or else by one that it shares with theirs."""
    if name.startswith(UNNAMED):
        return []
    if name.lower() in TOKENS:
        return COUNTS_OF_TOKENS
    words = {word for word in spelt_words(name) if len(word) >= MIN_LETTERS}
    shared = [known for known in metrics() if not words.isdisjoint(spelt_words(known))]
    found = [*near_names(name), *(reading.name for reading in read_words(name))] or shared
    return list(dict.fromkeys(found))[:MAX_CANDIDATES]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if "'" in text else f"'{text}'"
