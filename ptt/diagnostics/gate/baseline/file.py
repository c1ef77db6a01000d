"""Read and write baselines as text that people review: one figure a line, nothing of the machine or the day."""

from __future__ import annotations

import math
import tomllib
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Final

import numpy as np
from msgspec import Meta, Struct, structs

from ptt.diagnostics.documents import MAX_INTEGER, Count, DocumentError, Integer, convert_document, read_at_most
from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.gate.baseline.values import SCHEMA_VERSION, Baseline, Figures, LateEss, MetricFigures, hull
from ptt.diagnostics.statistics.autocorrelated_mean import WindowMean
from ptt.diagnostics.statistics.tail_curves import Curve
from ptt.diagnostics.statistics.windows import Span

MAX_BYTES: Final = 1 << 20  # a run takes some ten kilobytes
MAX_DOTS: Final = 100
"""On a line, and MAX_TABLES in the file: reading TOML takes the square of either, a day for a line of a mebibyte."""
MAX_TABLES: Final = 8_000
MAX_HEAD: Final = 4096  # bytes in which a baseline says what it is
START: Final = "# A baseline for `ptt gate`"
MAX_RUNS: Final = 50
MAX_METRICS: Final = 500
MAX_SLICES: Final = 8
MAX_SPANS: Final = 24  # `ptt baseline update` writes 12
MAX_LETTERS: Final = 300
MAX_NATS: Final = 1e6  # of |r|: logprobs go down to some hundreds
MAX_FIGURE: Final = 1e150  # what is worked out of it stays finite
RENEW: Final = "make it again with `ptt baseline update FILE RUN...`"
OTHER: Final = "name a file that `ptt baseline update` wrote, or a new name"
"""What to do about a file that is something else: `ptt baseline update` would not write over it."""

Text = Annotated[str, Meta(min_length=1, max_length=MAX_LETTERS)]
Numbers = tuple[float, float, float]  # early, mid, late
Spans = Annotated[list[Integer], Meta(min_length=1, max_length=MAX_SPANS)]


class MetricTable(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """`[run.metrics.NAME]`."""

    logged_as: Text
    mean: Numbers
    error: Numbers
    freedom: Numbers
    n: tuple[Count, Count, Count]
    scatter: Numbers


class TailsTable(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """`[run.tails.SLICE]`: lists with one entry a span."""

    first: Spans
    last: Spans
    tokens: list[Count]
    units: list[Count]
    p95: list[float]
    p95_noise: list[float]
    p99: list[float]
    p99_noise: list[float]


class LateEssTable(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """`[run.ess_late.SLICE]`."""

    share: float
    noise: float
    tokens: Count


class RunTable(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """`[[run]]`."""

    name: Text
    source: Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}\Z")]
    framework: Text | None = None
    algorithm: Text | None = None
    pair: Text | None = None
    slices: Annotated[tuple[Text, ...], Meta(max_length=MAX_SLICES)] = ()
    steps: tuple[Integer, Integer, Integer]
    sequences: Count
    model_tokens: Count
    status: Text
    accepted: Annotated[tuple[Text, ...], Meta(max_length=MAX_METRICS)] = ()
    why_no_tails: Text = ""
    ess: Annotated[dict[str, Annotated[float, Meta(ge=0, le=1)]], Meta(max_length=MAX_SLICES)] = {}
    ess_late: Annotated[dict[str, LateEssTable], Meta(max_length=MAX_SLICES)] = {}
    metrics: Annotated[dict[str, MetricTable], Meta(max_length=MAX_METRICS)] = {}
    tails: Annotated[dict[str, TailsTable], Meta(max_length=MAX_SLICES)] = {}


class BaselineDocument(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    schema_version: int
    ptt_version: Text
    name: Text
    steps: tuple[Integer, Integer]
    run: Annotated[tuple[RunTable, ...], Meta(min_length=1, max_length=MAX_RUNS)]


def read_baseline(path: Path) -> Baseline:
    """Read a baseline file; SettingsError, naming the key, where it is none or was edited into one that is not."""
    try:
        content = read_at_most(path, MAX_BYTES)
    except FileNotFoundError as error:
        raise SettingsError(f"{path}: there is no such baseline; {RENEW}.") from error
    except OSError as error:
        raise SettingsError(f"{path}: the baseline cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise SettingsError(f"{path}: larger than 1 MiB, too large for a baseline; {_advice(path)}.") from error
    try:
        text = content.decode("utf-8")
        lines = text.splitlines()
        dots = max((line.count(".") for line in lines), default=0)
        if dots > MAX_DOTS or sum(line.lstrip().startswith("[") for line in lines) > MAX_TABLES:
            raise ValueError("keys or tables nested deeper than in any baseline")
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # TOMLDecodeError and UnicodeDecodeError are ValueErrors
        raise SettingsError(f"{path}: cannot be read as TOML: {str(error)[:MAX_LETTERS]}; {_advice(path)}.") from error
    if "schema_version" not in document:
        raise SettingsError(f"{path}: is not a baseline (no schema_version); {_advice(path)}.")
    version = document["schema_version"]
    if version != SCHEMA_VERSION or isinstance(version, bool):
        raise SettingsError(
            f"{path}: its schema_version is {_version_words(version)}; this version of ptt reads {SCHEMA_VERSION}:"
            f" {RENEW}."
        )
    try:
        return _baseline(convert_document(document, BaselineDocument, mapping="a table"))
    except DocumentError as error:
        raise SettingsError(f"{path}: {error}; {RENEW}.") from error


def _version_words(version: object) -> str:
    """Write what stands for a version; a number in hexadecimal may be too long for Python to write in decimal."""
    if isinstance(version, bool | str | float) or (isinstance(version, int) and abs(version) <= MAX_INTEGER):
        return str(version)[:MAX_LETTERS]
    return "no version's number"


def _advice(path: Path) -> str:
    return RENEW if looks_like_one(path) else OTHER


def looks_like_one(path: Path) -> bool:
    """Return whether a file is a baseline, of whatever version or state: such a file may be written over."""
    try:
        with path.open("rb") as file:
            start = file.read(MAX_HEAD)
    except OSError:
        return False
    return not start.strip() or START.encode() in start or b"schema_version" in start


def _baseline(document: BaselineDocument) -> Baseline:
    first, last = document.steps
    if last - first + 1 < 3:
        raise DocumentError("steps", "must contain three steps or more")
    runs = tuple(_run(f"run[{index}]", run) for index, run in enumerate(document.run))
    for key in ("name", "source"):
        if len({getattr(run, key) for run in runs}) < len(runs):
            raise DocumentError(f"run {key}", "must differ from run to run")
    with_tails = [run for run in runs if run.tails]
    if len({run.pair for run in with_tails}) > 1 or len({len(run.tails[0].spans) for run in with_tails}) > 1:
        raise DocumentError("run", "must have tails of one pair, over as many spans in each run")
    if any(before.last >= after.first for before, after in pairwise(hull(runs))):
        raise DocumentError("run", "must have tails over spans that stand for the same steps in each run")
    return Baseline(name=document.name, ptt_version=document.ptt_version, steps=Span(first, last), runs=runs)


def _run(key: str, run: RunTable) -> Figures:
    for table, names in (("metrics", run.metrics), ("ess_late", run.ess_late)):
        if not all(0 < len(name) <= MAX_LETTERS for name in names):
            raise DocumentError(f"{key}.{table}", f"must have names of 1 to {MAX_LETTERS} letters")
    if run.steps[0] > run.steps[1] or run.steps[2] < 0:
        raise DocumentError(f"{key}.steps", "must end where it begins, or later")
    curves = [curve for name, below in run.tails.items() for curve in _tails(f"{key}.tails.{name}", name, below)]
    if curves and run.pair is None:
        raise DocumentError(f"{key}.pair", "is missing: tails are of one")
    if len({curve.spans for curve in curves}) > 1:
        raise DocumentError(f"{key}.tails", "must cover the same spans in every slice")
    if not run.tails.keys() <= set(run.slices):
        raise DocumentError(f"{key}.tails", "must be of the slices named")
    for name, late in run.ess_late.items():
        _check_range(f"{key}.ess_late.{name}.share", [late.share], 0.0, 1.0)
        _check_range(f"{key}.ess_late.{name}.noise", [late.noise], 0.0)
    as_kept = structs.asdict(run) | {
        "source": run.source.removeprefix("sha256:"),
        "tails": tuple(curves),
        "metrics": tuple(_metric(f"{key}.metrics.{name}", name, table) for name, table in sorted(run.metrics.items())),
        "ess_late": tuple(LateEss(slice=name, **structs.asdict(late)) for name, late in sorted(run.ess_late.items())),
    }
    return Figures(**as_kept)


def _check_range(key: str, values: Iterable[float], low: float, high: float = MAX_FIGURE) -> None:
    """Refuse numbers outside of a range; NaN, which stands where there is no value, is let pass."""
    if not all(low <= value <= high or math.isnan(value) for value in values):
        raise DocumentError(key, f"must contain numbers from {low:g} to {high:g}, or nan")


def _metric(key: str, name: str, table: MetricTable) -> MetricFigures:
    _check_range(f"{key}.mean", table.mean, -MAX_FIGURE)
    for column in ("error", "freedom", "scatter"):
        _check_range(f"{key}.{column}", getattr(table, column), 0.0)
    columns = zip(table.mean, table.error, table.freedom, table.n, table.scatter, strict=True)
    early, mid, late = (WindowMean(mean=m, error=e, freedom=f, n=n, scatter=s) for m, e, f, n, s in columns)
    if any(not window.freedom >= (1.0 if window.error >= 0 else 0.0) for window in (early, mid, late)):
        raise DocumentError(f"{key}.freedom", "must contain numbers, from 1 where an error is given")
    return MetricFigures(name=name, logged_as=table.logged_as, windows=(early, mid, late))


def _tails(key: str, name: str, table: TailsTable) -> list[Curve]:
    for column in TailsTable.__struct_fields__:
        if len(getattr(table, column)) != len(table.first):
            raise DocumentError(f"{key}.{column}", f"must contain {len(table.first)} numbers")
    spans = tuple(Span(first, last) for first, last in zip(table.first, table.last, strict=True))
    if any(span.first > span.last for span in spans) or any(a.last >= b.first for a, b in pairwise(spans)):
        raise DocumentError(f"{key}.first and last", "must be spans of steps, one after the other")
    curves = []
    for quantile, nats, noise in (("p95", table.p95, table.p95_noise), ("p99", table.p99, table.p99_noise)):
        _check_range(f"{key}.{quantile}", nats, 1e-9, MAX_NATS)
        _check_range(f"{key}.{quantile}_noise", noise, 0.0, 1e3)
        curves.append(
            Curve(
                slice=name,
                quantile=quantile,
                spans=spans,
                log_value=np.log(nats),
                own=np.square(noise),
                tokens=np.array(table.tokens, np.int64),
                units=np.array(table.units, np.int64),
            )
        )
    return curves


MAX_NAME: Final = 200  # letters of a name
MAX_WIDTH: Final = 110  # of a line of numbers
MAX_DOTS_UNESCAPED: Final = 50  # of a text as it is; the reader refuses lines of more than twice as many
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
    """Return the file's text; the same baseline gives the same bytes."""
    lines = [
        HEADER,
        f"schema_version = {baseline.schema_version}",
        f"ptt_version = {string(baseline.ptt_version)}",
        f"name = {string(baseline.name)}",
        f"steps = [{baseline.steps.first}, {baseline.steps.last}]",
    ]
    for run in baseline.runs:
        lines += ["", "[[run]]", *_facts(run)]
        for metric in run.metrics:
            lines += ["", f"[run.metrics.{string(metric.name)}]", f"logged_as = {string(metric.logged_as)}"]
            for key in ("mean", "error", "freedom", "n", "scatter"):
                lines += _array(key, (getattr(window, key) for window in metric.windows))
        for name in dict.fromkeys(curve.slice for curve in run.tails):
            curves = {curve.quantile: curve for curve in run.tails if curve.slice == name}
            lines += ["", f"[run.tails.{string(name)}]", *_tails_text(curves["p95"], curves["p99"])]
        for ess in run.ess_late:
            lines += ["", f"[run.ess_late.{string(ess.slice)}]", f"share = {_number(ess.share)}"]
            lines += [f"noise = {_number(ess.noise)}", f"tokens = {ess.tokens}"]
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
        ess = ", ".join(f"{string(name)} = {_number(value)}" for name, value in sorted(run.ess.items()))
        lines.append(f"ess = {{ {ess} }}  # late, mean over sliding windows of each window's share")
    return lines


def _tails_text(p95: Curve, p99: Curve) -> list[str]:
    columns: dict[str, Iterable[float]] = {
        "first": (span.first for span in p95.spans),
        "last": (span.last for span in p95.spans),
        "tokens": map(int, p95.tokens),
        "units": map(int, p95.units),
    }
    for quantile, curve in (("p95", p95), ("p99", p99)):
        columns[quantile] = [float(f"{math.exp(value):.5g}") for value in curve.log_value]
        columns[f"{quantile}_noise"] = [float(f"{math.sqrt(value):.4g}") for value in curve.own]
    return [line for key, values in columns.items() for line in _array(key, values)]


def _array(key: str, values: Iterable[float]) -> list[str]:
    """Write an array on one line, or on lines of an even width."""
    numbers: Sequence[str] = [_number(value) for value in values]
    line = f"{key} = [{', '.join(numbers)}]"
    if len(line) <= MAX_WIDTH:
        return [line]
    lines, row = [f"{key} = ["], ""
    for number in numbers:
        if len(row) + len(number) + 6 > MAX_WIDTH:
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
    """Write a TOML string; what steers a terminal or reorders a line in a review is written by its number."""
    cut = text if len(text) <= MAX_NAME else text[: MAX_NAME - 1] + "…"
    text = "".join(map(_letter, cut))
    return '"' + (text.replace(".", "\\u002E") if text.count(".") > MAX_DOTS_UNESCAPED else text) + '"'


def _letter(letter: str) -> str:
    if letter in '"\\':
        return "\\" + letter
    kind = unicodedata.category(letter)
    if kind == "Cs":  # no text can hold half a surrogate pair
        return "\\uFFFD"
    if kind in {"Cc", "Cf", "Zl", "Zp", "Co", "Cn"}:
        return f"\\u{ord(letter):04X}" if ord(letter) < 0x10000 else f"\\U{ord(letter):08X}"
    return letter
