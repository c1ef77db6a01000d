"""Draws for one finding the series that it names, with its limit, its onset and the window that it was judged by."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.model import STEP, Diagnosis, Finding, JsonScalar, in_unit, since_words
from ptt.reports.figures.line_plot import Axis, Drawing, LinePlot
from ptt.reports.figures.panels import RunFigure
from ptt.reports.text.consequences import span_words
from ptt.reports.text.names import METRICS, metric_name, slice_name
from ptt.reports.text.numbers import count, number
from ptt.reports.text.sanitize import safe, shortened
from ptt.reports.text.support import PARTS_OF_COURSE
from ptt.reports.text.tables import rows_where, table, windows

Floats = np.ndarray[Any, Any]

WINDOW: Final = 20  # values of the mean that rules judge; a third of them in a series of fewer than 60
MIN_WINDOW: Final = 5
FEW_VALUES: Final = 40  # so few are drawn without a mean
MIN_DRAWN: Final = 2  # values: fewer are no curve
QUANTILES: Final = (0.005, 0.995)  # single steps beyond these shares may leave the axes
MIN_OUTLIER_POINTS: Final = 20  # values: of fewer every one is shown
LOG_PEAK_RATIO: Final = 100.0  # of a curve's highest to its median mean: from here on the axis is logarithmic
POSITIVE_SHARE: Final = 0.9  # of the values: fewer, and a log axis would hide too many
LOG_TAIL_RATIO: Final = 12.0  # the same of percentiles, highest to lowest
LIMIT_REACH: Final = 4.0  # a limit further off than so many ranges of the data is not drawn: it would flatten them
SAME: Final = 0.005  # relative: rules and figures round differently
MAX_NAME: Final = 40  # letters of a metric's name in a title
NOT_NUMBERS: Final = (1, 2, 3)  # flags of NaN and the infinities
BEFORE: Final = ("early", "best", "lowest")  # begin the keys of the level that a change is measured from
AFTER: Final = ("late", "last")
TAIL_Q: Final = {"p95": 0.95, "p99": 0.99}
NO_CURVE: Final = "No plot: this finding rests on samples, settings or counts, not on one logged curve."


@dataclass(frozen=True, kw_only=True)
class _Series:
    name: str  # canonical
    logged_as: str
    steps: Floats
    values: Floats
    not_numbers: Floats  # steps at which NaN or an infinity was logged

    @property
    def title(self) -> str:
        label = metric_name(self.name) if self.name in METRICS else ""
        raw = shortened(safe(self.logged_as or self.name), MAX_NAME)
        title = f"{label} ({raw})" if label and raw and raw != label else label or raw
        return title[:1].upper() + title[1:] if label else title


def finding_plot(finding: Finding, diagnosis: Diagnosis, key: str) -> LinePlot | None:
    """Return the plot of a finding; None where it names no curve that the diagnosis holds."""
    if finding.evidence.get("percentile") in TAIL_Q and (plot := _tail_plot(finding, diagnosis, key)):
        return plot
    series = _series_of(finding, diagnosis)
    if series is None or len(series.steps) < MIN_DRAWN:
        return None
    return _metric_plot(series, finding, diagnosis, key)


def no_plot(diagnosis: Diagnosis) -> str:
    """Say why a finding has no plot; say nothing where only findings.json is at hand, whose notice says so."""
    return "" if diagnosis.from_findings else NO_CURVE


def _series_of(finding: Finding, diagnosis: Diagnosis) -> _Series | None:
    """Return the curve that a finding names; None where it names none or none was kept."""
    metric, logged = (finding.evidence.get(key) for key in ("metric", "logged_as"))
    metric, logged = (value if isinstance(value, str) else "" for value in (metric, logged))
    frame = table(diagnosis, "finding_series")
    if frame is None or not (metric or logged):
        return None
    rows = frame.filter(metric=metric, logged_as=logged).sort("step")
    steps, values = rows["step"].to_numpy(), rows["value"].fill_null(math.nan).to_numpy()
    bad, finite = np.isin(rows["flag"].to_numpy(), NOT_NUMBERS), np.isfinite(values)
    return _Series(
        name=metric, logged_as=logged, steps=steps[finite], values=values[finite], not_numbers=steps[bad & ~finite]
    )


def _metric_plot(series: _Series, finding: Finding, diagnosis: Diagnosis, key: str) -> LinePlot:
    steps, values = series.steps, series.values
    given = finding.evidence.get("window_steps")
    width = given if isinstance(given, int) and given > 1 else min(WINDOW, max(MIN_WINDOW, len(values) // 3))
    mean = _rolling_mean(values, width)
    limit = _limit_level(finding, values, mean, width)
    drawing = Drawing(x=_step_axis(diagnosis, finding, steps), y=_value_axis(values, mean, limit))
    drawing.span("window", float(steps[-min(width, len(steps))]), float(steps[-1]))
    drawing.axes(diagnosis.run.step_unit)
    smooth = len(values) > max(FEW_VALUES, width + MIN_WINDOW)
    drawing.line("raw" if smooth else "mean", steps, values)
    if smooth:
        drawing.line("mean", steps, mean)
    if series.not_numbers.size:
        drawing.dots("bad", series.not_numbers)
    _draw_limit(drawing, limit)
    _draw_onset(drawing, finding)
    ends = (mean[width - 1], mean[-1]) if smooth else (values[0], values[-1])
    what = f"mean of {width} steps, " if smooth else ""
    title = f"{series.title}: {what}{number(float(ends[0]))} at first, {number(float(ends[1]))} at the end"
    lost = f" No number at {count(series.not_numbers.size)} steps." if series.not_numbers.size else ""
    return drawing.finish(key=key, title=title, alt=_alt(title, finding, limit, diagnosis) + lost)


def _tail_plot(finding: Finding, diagnosis: Diagnosis, key: str) -> LinePlot | None:
    """Draw the percentile of |r| that a finding on the tail was judged by, after tool calls and in text alone."""
    percentile = str(finding.evidence["percentile"])
    rows = rows_where(diagnosis, "tail_emergence", q=TAIL_Q[percentile])
    names = [name for name in ("text_only", "post_tool", "post_observation", finding.slice) if name]
    lines = {name: [row for row in rows if row["slice"] == name] for name in dict.fromkeys(names)}
    lines = {name: found for name, found in lines.items() if len(found) >= MIN_DRAWN}
    if not lines:
        return None
    drawn = [row for found in lines.values() for row in found]
    values = np.array([row["value"] for row in drawn], dtype=float)
    steps = np.array([row["step_mid"] for row in drawn], dtype=float)
    limit = finding.limit if finding.unit == "nats" else None
    drawing = Drawing(x=_step_axis(diagnosis, finding, steps), y=_tail_axis(values, limit))
    for name, first, end in windows(diagnosis):
        if name != "mid":
            drawing.span("window", float(first), float(end))
    drawing.axes(diagnosis.run.step_unit)
    told = []
    for name, found in lines.items():
        look = "text" if name == "text_only" else "post"
        at, value, low, high = (
            np.array([math.nan if row[column] is None else row[column] for row in found], dtype=float)
            for column in ("step_mid", "value", "lo", "hi")
        )
        drawing.band(f"band {look}", at, low, high)
        drawing.line(look, at, value)
        drawing.end(look, float(value[-1]), f"{slice_name(name)} {number(float(value[-1]))}")
        told.append(f"{slice_name(name)} from {number(float(value[0]))} to {number(float(value[-1]))}")
    _draw_limit(drawing, limit)
    _draw_onset(drawing, finding)
    pair = finding.evidence.get("pair") or diagnosis.signature.pair
    title = f"{percentile} of |r|" + (f" ({safe(str(pair))})" if pair else "") + f", nats: {', '.join(reversed(told))}"
    return drawing.finish(key=key, title=title, alt=_alt(title, finding, limit, diagnosis))


LOOKS: Final = {"text_only": "text", "familiar": "raw", "unfamiliar": "post", "failed": "failed"}


def support_plot(diagnosis: Diagnosis, key: str) -> LinePlot | None:
    """Draw the tail a token over the run: in text, after usual and unusual output, and after failed calls."""
    frame = table(diagnosis, "support_course")
    if frame is None or frame.height < MIN_DRAWN:
        return None
    steps = frame["step_mid"].to_numpy()
    lines = {name: frame[name].fill_null(math.nan).to_numpy() for name in PARTS_OF_COURSE}
    lines = {name: values for name, values in lines.items() if np.isfinite(values).sum() >= MIN_DRAWN}
    if lines.keys() <= {"text_only"}:
        return None
    highest = max(float(np.nanmax(values)) for values in lines.values())
    x = Axis(low=float(frame["step_first"][0]), high=float(frame["step_last"][-1]))
    drawing = Drawing(x=x, y=Axis(low=0.0, high=1.1 * highest or 1.0))
    drawing.axes(diagnosis.run.step_unit)
    told = []
    for name, values in lines.items():
        ends = values[np.isfinite(values)]
        drawing.line(LOOKS[name], steps, values)
        drawing.end(LOOKS[name], float(ends[-1]), f"{PARTS_OF_COURSE[name]} {number(float(ends[-1]), 2)}")
        told.append(f"{PARTS_OF_COURSE[name]} from {number(float(ends[0]), 2)} to {number(float(ends[-1]), 2)}")
    title = f"|r| beyond {number(math.log(2.0), 2)} nats, mean of a token: in text, and after tools by what came back"
    return drawing.finish(key=key, title=title, alt=f"{title}: {', '.join(told)}.")


def _rolling_mean(values: Floats, width: int) -> Floats:
    """Return the mean over the last `width` values, as rules judge it; NaN before five were seen."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - width, 0)
    with np.errstate(invalid="ignore"):
        mean: Floats = (sums[ends] - sums[starts]) / (ends - starts)
    mean[: min(MIN_WINDOW, width) - 1] = math.nan
    return mean


def _step_axis(diagnosis: Diagnosis, finding: Finding, steps: Floats) -> Axis:
    ends = [diagnosis.run.first_step, diagnosis.run.last_step, finding.onset_step, finding.limit_passed_step]
    known = [float(step) for step in (*ends, steps.min(), steps.max()) if step is not None]
    return Axis(low=min(known), high=max(*known, min(known) + 1))


def _value_axis(values: Floats, mean: Floats, limit: float | None) -> Axis:
    """Fit the vertical axis to the mean, to most single steps, and to the limit where that does not flatten them."""
    means = mean[np.isfinite(mean)]
    shown = np.quantile(values, QUANTILES) if len(values) > MIN_OUTLIER_POINTS else values
    ends = np.concatenate([shown, means])
    low, high = float(ends.min()), float(ends.max())
    positive = values[values > 0]
    if len(positive) > POSITIVE_SHARE * len(values) and high > LOG_PEAK_RATIO * float(np.median(positive)):
        return _log_axis(float(np.quantile(positive, QUANTILES[0])), high, limit)
    span = (high - low) or max(abs(high), 1.0) * 0.1
    if limit is not None and low - LIMIT_REACH * span < limit < high + LIMIT_REACH * span:
        low, high = min(low, limit), max(high, limit)
        span = high - low
    floor = low - 0.06 * span
    return Axis(low=max(floor, 0.0) if low >= 0 else floor, high=high + 0.08 * span)


def _tail_axis(values: Floats, limit: float | None) -> Axis:
    """Fit the vertical axis to percentiles, on a log scale as the figure of the tail does."""
    low, high = float(values.min()), float(values.max())
    if low > 0 and high > LOG_TAIL_RATIO * low:
        return _log_axis(low, high, limit)
    return Axis(low=0.0, high=1.1 * max(high, limit or 0.0))


def _log_axis(low: float, high: float, limit: float | None) -> Axis:
    if limit is not None and limit > 0:
        low, high = min(low, limit), max(high, limit)
    return Axis(low=low / 1.25, high=high * 1.25, log=True)


def _limit_level(finding: Finding, values: Floats, mean: Floats, width: int) -> float | None:
    """Return the limit in the units of the curve; None where it bounds something else, such as a correlation.

    A limit counts as one on the curve where what was observed is a level of it, and as one on its change where what
    was observed is the change between two levels that the finding names.
    """
    observed, limit = finding.observed, finding.limit
    if observed is None or limit is None:
        return None
    tail = values[-width:]
    levels = [*_extreme(values), *_extreme(mean), values[-1], tail.mean(), np.median(tail), values.mean()]
    if len(values) >= width:
        levels += _extreme(np.median(np.lib.stride_tricks.sliding_window_view(values, width), axis=1))
    if any(_same(observed, float(level)) for level in levels):
        return limit
    for base in _numbers(finding.evidence, BEFORE):
        for end in _numbers(finding.evidence, AFTER):
            if base and _same(observed, end / base):
                return limit * base
            if base and _same(abs(observed), abs(end - base) / abs(base)):
                return base + math.copysign(limit * base, end - base)
        if base and finding.unit == "x":
            return limit * base
    return None


def _extreme(values: Floats) -> list[float]:
    finite = values[np.isfinite(values)]
    return [float(finite.min()), float(finite.max())] if len(finite) else []


def _numbers(evidence: Mapping[str, JsonScalar], beginnings: tuple[str, ...]) -> list[float]:
    return [
        float(value)
        for key, value in evidence.items()
        if key.startswith(beginnings) and isinstance(value, int | float) and not isinstance(value, bool)
        if not key.endswith("step")
    ]


def _same(first: float, second: float) -> bool:
    return math.isfinite(second) and abs(first - second) <= SAME * max(abs(first), abs(second))


def _draw_limit(drawing: Drawing, limit: float | None) -> None:
    if limit is not None and drawing.y.low <= limit <= drawing.y.high:
        drawing.level("limit", limit, f"limit {number(limit)}")


def _draw_onset(drawing: Drawing, finding: Finding) -> None:
    """Mark since when it holds, with its interval, and where it passed its limit."""
    onset, interval, passed = finding.onset_step, finding.onset_interval, finding.limit_passed_step
    if passed is not None and passed != onset:
        drawing.step("passed", passed, f"limit passed at {count(passed)}")
    if onset is None:
        return
    words = f"since {count(onset)}"
    if interval is not None and interval[0] < interval[1]:
        drawing.span("range", *interval)
        words += f" ({span_words(interval)})"
    drawing.step("since", onset, words)


def _alt(title: str, finding: Finding, limit: float | None, diagnosis: Diagnosis) -> str:
    sentences = [f"{title}."]
    if limit is not None:
        sentences.append(f"Limit {number(limit)}.")
    if since := since_words(finding, count):
        sentences.append(f"{since[:1].upper()}{since[1:]}.")
    text = " ".join(sentences)
    return text if diagnosis.run.step_unit == STEP else in_unit(text, diagnosis.run.step_unit)


FIGURE = RunFigure(
    name="finding_series", title="Curve of a finding", columns=1, panels=lambda _: (), caption=lambda _: ""
)
"""Names it where one cannot be drawn; its plots stand under their findings."""
