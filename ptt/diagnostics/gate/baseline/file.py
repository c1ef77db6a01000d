"""Write a baseline as text that people review: one figure a line, nothing of the machine or the day."""

from __future__ import annotations

import math
import tomllib
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.gate.baseline.values import SCHEMA_VERSION, Baseline, Figures, LateEss, MetricFigures, hull
from ptt.diagnostics.statistics.autocorrelated_mean import WindowMean
from ptt.diagnostics.statistics.tail_curves import Curve
from ptt.diagnostics.statistics.windows import Span

MOST_BYTES: Final = 1 << 20  # a run takes some ten kilobytes
MOST_DOTS: Final = 100
"""On a line, and MOST_TABLES in the file: reading TOML takes the square of either, a day for a line of a mebibyte."""
MOST_TABLES: Final = 8_000
MOST_HEAD: Final = 4096  # bytes in which a baseline says what it is
START: Final = "# A baseline for `ptt gate`"
MOST_RUNS: Final = 50
MOST_METRICS: Final = 500
MOST_SLICES: Final = 8
MOST_SPANS: Final = 24  # `ptt baseline update` writes 12
MOST_LETTERS: Final = 300
MOST_COUNT: Final = 1 << 53
LARGEST_NATS: Final = 1e6  # of |r|: logprobs go down to some hundreds
LARGEST: Final = 1e150  # of a figure: what is worked out of it stays finite
RENEW: Final = "make it anew with `ptt baseline update FILE RUN...`"

OTHER: Final = "name a file that `ptt baseline update` wrote, or a new name"
"""What to do about a file that is something else: `ptt baseline update` would not write over it."""


def read_baseline(path: Path) -> Baseline:
    """Read a baseline file; SettingsError, naming the key, where it is none or was edited into one that is not."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError as error:
        raise SettingsError(f"{path}: there is no such baseline; {RENEW}.") from error
    except OSError as error:
        raise SettingsError(f"{path}: the baseline cannot be read: {error.strerror}.") from error
    if len(content) > MOST_BYTES:
        raise SettingsError(f"{path}: larger than 1 MiB, which no baseline is; {_advice(path)}.")
    try:
        text = content.decode("utf-8")
        lines = text.splitlines()
        deepest, tables = max(map(_dots, lines), default=0), sum(line.lstrip().startswith("[") for line in lines)
        if deepest > MOST_DOTS or tables > MOST_TABLES:
            raise ValueError("keys within keys, or tables, beyond what any baseline holds")
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # TOMLDecodeError and UnicodeDecodeError are ValueErrors
        raise SettingsError(f"{path}: cannot be read as TOML: {str(error)[:MOST_LETTERS]}; {_advice(path)}.") from error
    if "schema_version" not in document:
        raise SettingsError(f"{path}: is no baseline (no schema_version); {_advice(path)}.")
    return _baseline(_Table(document, f"{path}"))


def _advice(path: Path) -> str:
    return RENEW if looks_like_one(path) else OTHER


def looks_like_one(path: Path) -> bool:
    """Tell whether a file is a baseline, of whatever version or state: such a file may be written over."""
    try:
        with path.open("rb") as file:
            start = file.read(MOST_HEAD)
    except OSError:
        return False
    return not start.strip() or START.encode() in start or b"schema_version" in start


def _dots(line: str) -> int:
    return line.count(".")


class _Table:
    """One table of the file; every value is asked for by what it must be."""

    def __init__(self, values: object, where: str) -> None:
        if not isinstance(values, dict):
            raise SettingsError(f"{where}: must be a table; {RENEW}.")
        self.values: Mapping[str, Any] = values
        self.where = where

    def wrong(self, key: str, what: str) -> SettingsError:
        return SettingsError(f"{self.where}: {key[:MOST_LETTERS]} {what}; {RENEW}.")

    def only(self, known: Collection[str]) -> None:
        """Refuse keys that this version does not know."""
        unknown = sorted(set(self.values) - set(known))
        if unknown:
            raise self.wrong(repr(unknown[0][:MOST_LETTERS]), f"is no key of it (known are {', '.join(sorted(known))})")

    def text(self, key: str) -> str:
        value = self.values.get(key)
        if not isinstance(value, str) or not 0 < len(value) <= MOST_LETTERS:
            raise self.wrong(key, f"must be a text of 1 to {MOST_LETTERS} letters")
        return value

    def maybe(self, key: str) -> str | None:
        return self.text(key) if key in self.values else None

    def texts(self, key: str, most: int) -> tuple[str, ...]:
        values = self.values.get(key, [])
        good = isinstance(values, list) and len(values) <= most
        if not good or not all(isinstance(one, str) and 0 < len(one) <= MOST_LETTERS for one in values):
            raise self.wrong(key, f"must be a list of at most {most} texts")
        return tuple(values)

    def whole(self, key: str, least: int = 0) -> int:
        value = self.values.get(key)
        if not _whole(value, least):
            raise self.wrong(key, f"must be a whole number from {least}")
        return int(self.values[key])

    def wholes(self, key: str, count: int | None = None, least: int = 0) -> list[int]:
        values = self.values.get(key)
        if not isinstance(values, list) or not all(_whole(one, least) for one in values):
            raise self.wrong(key, f"must be a list of whole numbers from {least}")
        if (count is not None and len(values) != count) or len(values) > MOST_SPANS:
            raise self.wrong(key, f"must hold {count if count is not None else f'at most {MOST_SPANS}'} numbers")
        return values

    def numbers(self, key: str, count: int, *, low: float = -LARGEST, high: float = LARGEST) -> list[float]:
        """Give numbers between `low` and `high`, or NaN where there is no value."""
        values = self.values.get(key)
        if not isinstance(values, list) or len(values) != count:
            raise self.wrong(key, f"must be a list of {count} numbers")
        for one in values:
            number = isinstance(one, int | float) and not isinstance(one, bool)
            if not number or not (low <= one <= high or one != one):
                raise self.wrong(key, f"must hold numbers from {low:g} to {high:g}, or nan")
        return [float(one) for one in values]

    def number(self, key: str, *, low: float, high: float = LARGEST) -> float:
        """Give one number between `low` and `high`, or NaN where there is no value."""
        return _Table({key: [self.values.get(key)]}, self.where).numbers(key, 1, low=low, high=high)[0]

    def tables(self, key: str, most: int) -> list[tuple[str, _Table]]:
        """Give named tables below this one."""
        values = self.values.get(key, {})
        if not isinstance(values, dict) or len(values) > most:
            raise self.wrong(key, f"must hold at most {most} tables")
        return [(name, _Table(one, f"{self.where}: {key}.{name[:MOST_LETTERS]}")) for name, one in values.items()]

    def span(self, key: str, *, more: int = 0) -> list[int]:
        values = self.wholes(key, 2 + more, least=-MOST_COUNT)
        if values[0] > values[1]:
            raise self.wrong(key, "must end where it begins, or later")
        return values


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= MOST_COUNT


def _baseline(table: _Table) -> Baseline:
    version = table.values.get("schema_version")
    if version != SCHEMA_VERSION or isinstance(version, bool):
        shown = str(version)[:MOST_LETTERS]
        raise SettingsError(
            f"{table.where}: its schema_version is {shown}; this version of ptt reads {SCHEMA_VERSION}: {RENEW}."
        )
    table.only(("schema_version", "ptt_version", "name", "steps", "run"))
    runs = table.values.get("run")
    if not isinstance(runs, list) or not 0 < len(runs) <= MOST_RUNS:
        raise table.wrong("run", f"must be 1 to {MOST_RUNS} tables [[run]]")
    first, last = table.span("steps")
    if last - first + 1 < 3:
        raise table.wrong("steps", "must hold three steps or more")
    found = tuple(_run(_Table(one, f"{table.where}: run {place}")) for place, one in enumerate(runs, start=1))
    _alike(table, found)
    return Baseline(name=table.text("name"), ptt_version=table.text("ptt_version"), steps=Span(first, last), runs=found)


def _alike(table: _Table, runs: tuple[Figures, ...]) -> None:
    """Refuse runs that no command would have put together."""
    for key, values in (("name", [run.name for run in runs]), ("source", [run.source for run in runs])):
        if len(set(values)) < len(values):
            raise table.wrong(f"run {key}", "must differ from run to run")
    having = [run for run in runs if run.tails]
    if len({run.pair for run in having}) > 1 or len({len(run.tails[0].spans) for run in having}) > 1:
        raise table.wrong("run", "must have tails of one pair, over as many spans in each run")
    spans = hull(runs)
    if any(before.last >= after.first for before, after in pairwise(spans)):
        raise table.wrong("run", "must have tails over spans that stand for the same steps in each run")


RUN_KEYS: Final = (
    "name", "source", "framework", "algorithm", "pair", "slices", "steps", "sequences", "model_tokens", "status",
    "accepted", "why_no_tails", "ess", "ess_late", "metrics", "tails",
)  # fmt: skip


def _run(table: _Table) -> Figures:
    table.only(RUN_KEYS)
    source = table.text("source")
    digest = source.removeprefix("sha256:")
    if not source.startswith("sha256:") or len(digest) != 64 or set(digest) - set("0123456789abcdef"):
        raise table.wrong("source", "must be sha256: and 64 hexadecimal digits")
    steps = table.span("steps", more=1)
    curves = [curve for name, below in table.tables("tails", MOST_SLICES) for curve in _read_tails(name, below)]
    if curves and "pair" not in table.values:
        raise table.wrong("pair", "is missing: tails are of one")
    if len({curve.spans for curve in curves}) > 1:
        raise table.wrong("tails", "must be over the same spans in every slice")
    slices = table.texts("slices", MOST_SLICES)
    if {curve.slice for curve in curves} - set(slices):
        raise table.wrong("tails", "must be of the slices named")
    return Figures(
        name=table.text("name"),
        source=digest,
        framework=table.maybe("framework"),
        algorithm=table.maybe("algorithm"),
        pair=table.maybe("pair"),
        slices=slices,
        steps=(steps[0], steps[1], steps[2]),
        sequences=table.whole("sequences"),
        model_tokens=table.whole("model_tokens"),
        status=table.text("status"),
        accepted=table.texts("accepted", MOST_METRICS),
        tails=tuple(curves),
        metrics=tuple(_read_metric(name, below) for name, below in sorted(table.tables("metrics", MOST_METRICS))),
        ess=_ess(table),
        ess_late=tuple(_read_ess(name, below) for name, below in sorted(table.tables("ess_late", MOST_SLICES))),
        why_no_tails=table.maybe("why_no_tails") or "",
    )


def _ess(table: _Table) -> dict[str, float]:
    below = _Table(table.values.get("ess", {}), f"{table.where}: ess")
    if len(below.values) > MOST_SLICES:
        raise table.wrong("ess", f"must hold at most {MOST_SLICES} slices")
    for name, value in below.values.items():
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
            raise below.wrong(name, "must be a share from 0 to 1")
    return {name: float(value) for name, value in below.values.items()}


def _read_ess(name: str, table: _Table) -> LateEss:
    if not 0 < len(name) <= MOST_LETTERS:
        raise table.wrong("its name", f"must be a text of 1 to {MOST_LETTERS} letters")
    table.only(("share", "noise", "tokens"))
    return LateEss(
        slice=name,
        share=table.number("share", low=0.0, high=1.0),
        noise=table.number("noise", low=0.0),
        tokens=table.whole("tokens"),
    )


def _read_metric(name: str, table: _Table) -> MetricFigures:
    if not 0 < len(name) <= MOST_LETTERS:
        raise table.wrong("its name", f"must be a text of 1 to {MOST_LETTERS} letters")
    table.only(("logged_as", "mean", "error", "freedom", "n", "scatter"))
    columns = zip(
        table.numbers("mean", 3),
        table.numbers("error", 3, low=0.0),
        table.numbers("freedom", 3, low=0.0),
        table.wholes("n", 3),
        table.numbers("scatter", 3, low=0.0),
        strict=True,
    )
    windows = [WindowMean(mean=m, error=e, freedom=f, n=n, scatter=s) for m, e, f, n, s in columns]
    if any(not one.freedom >= (1.0 if one.error >= 0 else 0.0) for one in windows):
        raise table.wrong("freedom", "must hold numbers, from 1 where an error is given")
    return MetricFigures(name=name, logged_as=table.text("logged_as"), windows=(windows[0], windows[1], windows[2]))


def _read_tails(name: str, table: _Table) -> list[Curve]:
    table.only(("first", "last", "tokens", "units", "p95", "p95_noise", "p99", "p99_noise"))
    firsts = table.wholes("first", least=-MOST_COUNT)
    lasts = table.wholes("last", len(firsts), least=-MOST_COUNT)
    edges = [edge for pair in zip(firsts, lasts, strict=True) for edge in pair]
    rising = all(a <= b for a, b in zip(firsts, lasts, strict=True))
    apart = all(a < b for a, b in zip(lasts[:-1], firsts[1:], strict=True))
    if not edges or not rising or not apart:
        raise table.wrong("first and last", "must be spans of steps, one after the other")
    tokens, units = table.wholes("tokens", len(firsts)), table.wholes("units", len(firsts))
    found = []
    for quantile in ("p95", "p99"):
        nats = table.numbers(quantile, len(firsts), low=1e-9, high=LARGEST_NATS)
        noise = table.numbers(f"{quantile}_noise", len(firsts), low=0.0, high=1e3)
        found.append(
            Curve(
                slice=name,
                quantile=quantile,
                spans=tuple(Span(first, last) for first, last in zip(firsts, lasts, strict=True)),
                log_value=np.log(nats),
                own=np.square(noise),
                tokens=np.array(tokens, np.int64),
                units=np.array(units, np.int64),
            )
        )
    return found


LONGEST: Final = 200  # letters of a name
WIDTH: Final = 110  # of a line of numbers
DOTS_UNESCAPED: Final = 50  # of a text as it is; the reader refuses lines of more than twice as many
HEADER: Final = """\
# A baseline for `ptt gate`: what passing runs measured. Review changes of it as you review code.
# Made by `ptt baseline update FILE RUN...`; the same command renews it and says what moved. Not to be edited by hand:
# a limit is loosened in ptt.toml, where the next reader looks for it.
#
# steps: what all runs share; early, mid and late are its thirds, and the late one is judged.
# metrics: mean, its standard error (of values that follow one another) and the error's degrees of freedom, n finite
#   values, and the scatter of a single value, in each of the three windows.
# tails: percentiles of |r| in nats over spans of steps, and their relative noise (redrawn prompt groups or sequences).
# ess_late: effective sample size of all late tokens at once, a share of them, as a bound on ess.* takes it, and the
#   standard error of its logarithm.
"""


def text_of(baseline: Baseline) -> str:
    """Give the file's text; the same baseline gives the same bytes."""
    lines = [
        HEADER,
        f"schema_version = {baseline.schema_version}",
        f"ptt_version = {string(baseline.ptt_version)}",
        f"name = {string(baseline.name)}",
        f"steps = [{baseline.steps.first}, {baseline.steps.last}]",
    ]
    for run in baseline.runs:
        lines += ["", "[[run]]", *_facts(run)]
        for one in run.metrics:
            lines += ["", f"[run.metrics.{string(one.name)}]", *_metric_text(one)]
        for name in dict.fromkeys(curve.slice for curve in run.tails):
            held = {curve.quantile: curve for curve in run.tails if curve.slice == name}
            lines += ["", f"[run.tails.{string(name)}]", *_tails_text(held["p95"], held["p99"])]
        for ess in run.ess_late:
            lines += ["", f"[run.ess_late.{string(ess.slice)}]", *_ess_text(ess)]
    return "\n".join(lines) + "\n"


def _facts(run: Figures) -> list[str]:
    lines = [f"name = {string(run.name)}", f"source = {string('sha256:' + run.source)}"]
    for key, value in (("framework", run.framework), ("algorithm", run.algorithm), ("pair", run.pair)):
        if value is not None:
            lines.append(f"{key} = {string(value)}")
    lines += [
        f"slices = [{', '.join(map(string, run.slices))}]",
        f"steps = [{', '.join(map(str, run.steps))}]  # first, last, how many",
        f"sequences = {run.sequences}",
        f"model_tokens = {run.model_tokens}",
        f"status = {string(run.status)}",
    ]
    if run.accepted:
        lines.append(f"accepted = [{', '.join(map(string, run.accepted))}]  # a baseline all the same, by decision")
    if run.why_no_tails:
        lines.append(f"why_no_tails = {string(run.why_no_tails)}")
    if run.ess:
        held = ", ".join(f"{string(name)} = {_number(value)}" for name, value in sorted(run.ess.items()))
        lines.append(f"ess = {{ {held} }}  # late, mean over sliding windows of each window's share")
    return lines


def _metric_text(one: MetricFigures) -> list[str]:
    columns: dict[str, Sequence[float]] = {
        "mean": [window.mean for window in one.windows],
        "error": [window.error for window in one.windows],
        "freedom": [window.freedom for window in one.windows],
        "n": [window.n for window in one.windows],
        "scatter": [window.scatter for window in one.windows],
    }
    return [
        f"logged_as = {string(one.logged_as)}",
        *(line for key, values in columns.items() for line in _array(key, values)),
    ]


def _ess_text(one: LateEss) -> list[str]:
    return [f"share = {_number(one.share)}", f"noise = {_number(one.noise)}", f"tokens = {one.tokens}"]


def _tails_text(p95: Curve, p99: Curve) -> list[str]:
    return [
        *_array("first", (span.first for span in p95.spans)),
        *_array("last", (span.last for span in p95.spans)),
        *_array("tokens", map(int, p95.tokens)),
        *_array("units", map(int, p95.units)),
        *_array("p95", _nats(p95)),
        *_array("p95_noise", _noise(p95)),
        *_array("p99", _nats(p99)),
        *_array("p99_noise", _noise(p99)),
    ]


def _nats(curve: Curve) -> list[float]:
    return [float(f"{math.exp(value):.5g}") for value in curve.log_value]


def _noise(curve: Curve) -> list[float]:
    return [float(f"{math.sqrt(value):.4g}") for value in curve.own]


def _array(key: str, values: Iterable[float]) -> list[str]:
    """Give an array on one line, or on lines of an even width."""
    numbers: Sequence[str] = [_number(value) for value in values]
    line = f"{key} = [{', '.join(numbers)}]"
    if len(line) <= WIDTH:
        return [line]
    lines, row = [f"{key} = ["], ""
    for number in numbers:
        if len(row) + len(number) + 6 > WIDTH:
            lines.append(f"  {row.rstrip()}")
            row = ""
        row += f"{number}, "
    return [*lines, f"  {row.rstrip()}", "]"]


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    text = repr(value)
    return text if any(letter in text for letter in ".en") else f"{text}.0"


def string(text: str) -> str:
    """Give a TOML string; what steers a terminal or reorders a line in a review is written by its number."""
    cut = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    text = "".join(map(_letter, cut))
    return '"' + (text.replace(".", "\\u002E") if text.count(".") > DOTS_UNESCAPED else text) + '"'


def _letter(letter: str) -> str:
    if letter in '"\\':
        return "\\" + letter
    kind = unicodedata.category(letter)
    if kind == "Cs":  # no text can hold half a surrogate pair
        return "\\uFFFD"
    if kind in {"Cc", "Cf", "Zl", "Zp", "Co", "Cn"}:
        return f"\\u{ord(letter):04X}" if ord(letter) < 0x10000 else f"\\U{ord(letter):08X}"
    return letter
