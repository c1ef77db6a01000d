"""Draw small multiples as SVG: one panel for each run, all of a figure on the same axes.

Colours come from the page's style sheet, so that one drawing serves light and dark. Every panel says in words what it
shows, for readers who do not see it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

import polars as pl

from ptt.reports.text.numbers import number

WIDTH, HEIGHT = 200, 132  # of a panel, in its own units: the page scales it
LEFT, RIGHT, TOP, BOTTOM = 44, 194, 10, 110  # of the axes inside it
WEIGHTS: Final = "policy/ref"  # of the effective sample size
TAIL_FROM: Final = 0.1  # nats: below, the distributions of all runs look the same
MAX_POINTS: Final = 60  # of a curve: more cannot be told apart at this size
MIN_SHARE: Final = 1e-4  # of the tokens of a third: less is one token or two

Points = Sequence[tuple[float, float]]
Tables = Mapping[str, pl.DataFrame]  # of a diagnosis, by name


@dataclass(frozen=True, kw_only=True)
class Axis:
    """The range of an axis and where its labels stand."""

    low: float
    high: float
    labels: Mapping[float, str]
    log: bool = False

    def share(self, value: float) -> float:
        """Return how far along the axis a value lies, between 0 and 1."""
        value = min(max(value, self.low), self.high)
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One line of a panel, and the interval around it where there is one."""

    kind: str  # its class in the style sheet
    points: Points
    band: Sequence[tuple[float, float, float]] = ()  # x, low, high


@dataclass(frozen=True, kw_only=True)
class Panel:
    """What one run shows in one figure."""

    curves: Sequence[Curve]
    words: str  # the same in a sentence
    upright: float | None = None  # x of a dotted line


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One kind of figure, drawn for every run on the same axes."""

    title: str
    caption: str
    legend: Mapping[str, str]  # kind of curve -> what it is
    x: Axis
    y: Axis
    panels: Sequence[Panel]  # a run each


def figures(runs: Sequence[tuple[Tables, float | None]], steps: int) -> list[Figure]:
    """Return the three figures of runs, each given by its tables and the step at which its tail passed the limit."""
    tails = [tail_panel(tables, passed) for tables, passed in runs]
    distributions = [distribution_panel(tables) for tables, _ in runs]
    sizes = [sample_size_panel(tables) for tables, _ in runs]
    over_steps = Axis(low=0, high=steps, labels={0: "0", steps // 2: str(steps // 2), steps: str(steps)})
    highest = max((y for panel in tails for curve in panel.curves for _, y in curve.points), default=1.0)
    smallest = min((y for panel in sizes for curve in panel.curves for _, y in curve.points), default=0.1)
    furthest = max([10.0, *(x for panel in distributions for curve in panel.curves for x, _ in curve.points)])
    return [
        Figure(
            title="Tails over training",
            caption="95th percentile of |r| by step, in nats, with its 95% interval. "
            "Dotted: the step at which the tail passed the limit of its finding.",
            legend={"post": "after a tool call", "text": "text only"},
            x=over_steps,
            y=linear_axis(highest),
            panels=tails,
        ),
        Figure(
            title="Distribution early, mid and late",
            caption="Share of the tokens after a tool call whose |r| is above x nats, by thirds of training; "
            "both axes are logarithmic.",
            legend={"early": "early", "mid": "mid", "late": "late", "text": "text only, late"},
            x=Axis(low=TAIL_FROM, high=furthest, labels={0.1: "0.1", 1: "1", 10: "10"}, log=True),
            y=Axis(low=MIN_SHARE, high=1, labels={1e-4: "0.01%", 1e-2: "1%", 1: "100%"}, log=True),
            panels=distributions,
        ),
        Figure(
            title="Effective sample size",
            caption="Share of the tokens that count under the weights policy/reference, by step, on a logarithmic "
            "axis: at 100% all count alike, near 0 a few carry the update. Jumps: one heavy token enters or leaves "
            "the window.",
            legend={"post": "after a tool call", "text": "text only"},
            x=over_steps,
            y=share_axis(smallest),
            panels=sizes,
        ),
    ]


def linear_axis(highest: float) -> Axis:
    """Return an axis from 0 to the next even number of nats above the highest value."""
    top = max(1, 2 * math.ceil(highest / 2)) if highest > 1 else 1
    return Axis(low=0, high=top, labels={0: "0", top / 2: number(top / 2), top: str(top)})


def share_axis(smallest: float) -> Axis:
    """Return a logarithmic axis from the power of ten below the smallest share to 1."""
    decades = max(2, math.ceil(-math.log10(max(smallest, MIN_SHARE))))
    labels = {10.0**-power: f"{number(100 * 10.0**-power)}%" for power in range(0, decades + 1, 2)}
    return Axis(low=10.0**-decades, high=1, labels=labels, log=True)


def tail_panel(tables: Tables, passed: float | None) -> Panel:
    """Draw the p95 of |r| after tools and in text, window by window."""
    curves, words = [], []
    for kind, name in (("text", "text_only"), ("post", "post_tool")):
        rows = _rows(tables, "tail_emergence", "value", slice=name, q=0.95).sort("step_mid")
        if rows.is_empty():
            continue
        points = list(rows.select("step_mid", "value").iter_rows())
        band = [
            row
            for row in rows.select("step_mid", "lo", "hi").iter_rows()
            if None not in row and all(map(math.isfinite, row))
        ]
        curves.append(Curve(kind=kind, points=points, band=band if kind == "post" else ()))
        words.append(f"{_slice(name)} p95 from {number(points[0][1], 2)} to {number(points[-1][1], 2)} nats")
    return Panel(curves=curves, words="; ".join(words) or "no data", upright=passed)


def distribution_panel(tables: Tables) -> Panel:
    """Draw the share of tokens above each |r|, by thirds of training."""
    curves, words = [], []
    for kind, name, window in (
        ("text", "text_only", "late"),
        *((window, "post_tool", window) for window in ("early", "mid", "late")),
    ):
        rows = _rows(tables, "ecdf", "cdf", slice=name, window=window).sort("x")
        rows = rows.filter(pl.col("x") >= TAIL_FROM, 1 - pl.col("cdf") >= MIN_SHARE)
        if rows.is_empty():
            continue
        points = _thinned([(x, 1 - cdf) for x, cdf in rows.select("x", "cdf").iter_rows()])
        curves.append(Curve(kind=kind, points=points))
        above = next((share for x, share in points if x >= 1), 0.0)
        words.append(f"{_slice(name)} {window}: {number(100 * above, 2)}% above 1 nat")
    return Panel(curves=curves, words="; ".join(words) or "no data")


def sample_size_panel(tables: Tables) -> Panel:
    """Draw the effective sample size of the tokens after tools and in text."""
    curves, words = [], []
    for kind, name in (("text", "text_only"), ("post", "post_tool")):
        rows = _rows(tables, "ess", "ess_fraction", slice=name, level="token", weights=WEIGHTS).sort("step_last")
        if rows.is_empty():
            continue
        points = list(rows.select("step_last", "ess_fraction").iter_rows())
        curves.append(Curve(kind=kind, points=points))
        first, last = (number(100 * points[index][1], 2) for index in (0, -1))
        words.append(f"{_slice(name)} from {first}% to {last}%")
    return Panel(curves=curves, words="; ".join(words) or "no data")


def _rows(tables: Tables, table: str, value: str, **wanted: object) -> pl.DataFrame:
    """Return the rows of a table with these values in these columns, without those that have no number."""
    rows = tables.get(table)
    if rows is None or not {value, *wanted} <= set(rows.columns):
        return pl.DataFrame(schema=dict.fromkeys(("step_mid", "step_last", "value", "x", "cdf"), pl.Float64))
    return rows.filter(**wanted).filter(pl.col(value).is_finite())


def _slice(name: str) -> str:
    return {"post_tool": "after tools", "text_only": "text only"}[name]


def _thinned(points: Points) -> Points:
    every = math.ceil(len(points) / MAX_POINTS)
    return [*points[:-1:every], points[-1]]


def svg(panel: Panel, figure: Figure, name: str) -> str:
    """Return a panel as an SVG element."""
    parts = [*_frame(figure.x, figure.y)]
    if panel.upright is not None:
        x = _x(figure.x, panel.upright)
        parts.append(f'<path class="limit" d="M{x:.1f} {TOP}V{BOTTOM}"/>')
    for curve in panel.curves:
        if curve.band:
            upper = [(x, high) for x, _, high in curve.band]
            lower = [(x, low) for x, low, _ in reversed(curve.band)]
            parts.append(f'<path class="band {curve.kind}" d="{_path([*upper, *lower], figure)}Z"/>')
        parts.append(f'<path class="curve {curve.kind}" d="{_path(curve.points, figure)}"/>')
        if len(curve.points) == 1:  # a short run has one window, and a line of one point is invisible
            ((x, y),) = curve.points
            parts.append(
                f'<circle class="dot {curve.kind}" cx="{_x(figure.x, x):.1f}" cy="{_y(figure.y, y):.1f}" r="3"/>'
            )
    if not panel.curves:
        parts.append(f'<text x="{(LEFT + RIGHT) / 2}" y="{(TOP + BOTTOM) / 2}" text-anchor="middle">no data</text>')
    words = escape(f"{figure.title}, {name}: {panel.words}")
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{words}">{"".join(parts)}</svg>'


def _frame(x: Axis, y: Axis) -> Iterable[str]:
    for value, label in y.labels.items():
        at = _y(y, value)
        yield f'<path class="rule" d="M{LEFT} {at:.1f}H{RIGHT}"/>'
        yield f'<text x="{LEFT - 4}" y="{at + 3.5:.1f}" text-anchor="end">{label}</text>'
    for value, label in x.labels.items():
        at = _x(x, value)
        anchor = {x.low: "start", x.high: "end"}.get(value, "middle")
        yield f'<text x="{at:.1f}" y="{BOTTOM + 15}" text-anchor="{anchor}">{label}</text>'


def _x(axis: Axis, value: float) -> float:
    return LEFT + (RIGHT - LEFT) * axis.share(value)


def _y(axis: Axis, value: float) -> float:
    return BOTTOM - (BOTTOM - TOP) * axis.share(value)


def _path(points: Points, figure: Figure) -> str:
    return "M" + "L".join(f"{_x(figure.x, x):.1f} {_y(figure.y, y):.1f}" for x, y in points)
