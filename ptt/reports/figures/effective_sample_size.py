"""Draws the effective sample size of the importance weights: how few sequences carry the whole update."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from ptt.diagnostics.model import Diagnosis
from ptt.reports.figures.annotations import end_labels, mark_onset, plot_slice
from ptt.reports.figures.axes import ess_axis, shade_windows, step_ends, step_range
from ptt.reports.figures.panels import TWO_LINES, DataTable, Panel, RunFigure, data_table, finite_rows
from ptt.reports.figures.style import LINES, MUTED, RIGHT, annotate, short_slice, slice_role
from ptt.reports.text.names import joined, slice_name
from ptt.reports.text.numbers import bounds, count, number, percent
from ptt.reports.text.sanitize import safe
from ptt.reports.text.tables import no_tokens, slices, window_words
from ptt.reports.text.why import TO_REFERENCE, after_slice

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAJORITY = 0.5  # of all weight of a window
WIDE = 0.5  # an interval that covers so much of the axis from 0 to 1 says nothing
FLOOR = 10  # sequences or tokens that count: with fewer, single ones decide the estimate, whatever n is
LEVELS = {"sequence": "Sequence level", "token": "Token level"}
SAMPLED = 100  # "of 100 sequences so many count"
HEIGHT = 270


def panels(diagnosis: Diagnosis, *, folded: bool) -> tuple[Panel, ...]:
    """Return the panel of whole sequences, weighted as the samples are; or, folded, those of the other weights."""
    frame = _frame(diagnosis)
    if frame is None:
        return ()
    first, *others = _cells(diagnosis, frame)
    return tuple(
        Panel(
            key=f"ess-{'other' if folded else 'first'}-{index}",
            title=f"{LEVELS.get(level, safe(level))}, weights {safe(weights)}",
            alt=_alt(rows, level, weights),
            draw=partial(_draw, diagnosis=diagnosis, rows=rows, banded=not folded),
            height=HEIGHT,
        )
        for index, (level, weights) in enumerate(others if folded else [first])
        for rows in (frame.filter(level=level, weights=weights),)
    )


def takeaway(diagnosis: Diagnosis) -> str:
    """Say how many of a hundred sequences count, at first and at last, after tools if there are such."""
    frame = _frame(diagnosis)
    if frame is None:
        return ""
    rows = _first_cell(diagnosis, frame)
    names = slices(rows)
    lasting = rows.filter(pl.col("step_last") == pl.col("step_last").max())["slice"].to_list()
    name = next(known for known in (after_slice(diagnosis), *names) if known in lasting)
    part = rows.filter(slice=name).sort("step_last")
    known = part.filter(_counts(rows))
    what = f"{slice_name(name)} {part['level'][0]}s"
    if known.height < MAJORITY * part.height:
        return f"Too few {what} carry the weight to say how many count"
    first, last = (_of_hundred(known, index) for index in (0, -1))
    if first == last == str(SAMPLED):
        return f"All {what} count the same, at first and at the end"
    return f"Of {SAMPLED} {what} {last} count at the end, {first if first != last else 'as many'} at first"


def _of_hundred(rows: pl.DataFrame, index: int) -> str:
    return number(float(rows["ess_fraction"][index]) * SAMPLED, 2)


def caption(diagnosis: Diagnosis) -> str:
    """Return how to read the figure, and from how much data it is made."""
    frame = _frame(diagnosis)
    if frame is None:
        return no_tokens(diagnosis)
    rows = _first_cell(diagnosis, frame)
    level, weights = rows["level"][0], safe(rows["weights"][0])
    span = round(float((frame["step_last"] - frame["step_first"] + 1).to_numpy().mean()))
    sentences = [
        f"Effective sample size as a share of n for weights {weights}: (sum of weights)² over n times the sum of "
        f"squared weights. At 1 every {level} counts the same; near 0 a few carry the update.",
        f"Windows of about {count(span)} steps with {_sizes(rows)}; each point is at the end of its window.",
        "Bands are 95% intervals from leaving out whole prompt groups; below about a third, line and band are "
        "both too high, because the heaviest weights are rarely sampled."
        if "lo" in rows.columns
        else "",
        _uninformative(rows),
        f"Windows: {window_words(diagnosis)}.",
    ]
    return " ".join(filter(None, sentences))


def _folded_caption(diagnosis: Diagnosis) -> str:
    frame = _frame(diagnosis)
    if frame is None:
        return no_tokens(diagnosis)
    others = [frame.filter(level=level, weights=weights) for level, weights in _cells(diagnosis, frame)[1:]]
    words = [_uninformative(rows) for rows in others]
    return " ".join(filter(None, ["Drawn as above, for single tokens and for the inverse weights.", *words]))


def _sizes(rows: pl.DataFrame) -> str:
    ends = sorted({int(rows["n"].min()), int(rows["n"].max())})  # type: ignore[arg-type]
    return f"{' to '.join(map(count, ends))} {rows['level'][0]}s"


def _counts(rows: pl.DataFrame) -> pl.Expr:
    """Tell the windows whose estimate says something: enough weights count, none has most of it, the interval is one.

    What an earlier version kept has no intervals.
    """
    few = (pl.col("ess_fraction") * pl.col("n") < FLOOR) & (pl.col("n") >= FLOOR)
    wide = (pl.col("hi") - pl.col("lo") > WIDE).fill_null(False) if "lo" in rows.columns else pl.lit(False)
    return ~few & ~wide & (pl.col("top_share").fill_null(0) <= MAJORITY)


def _uninformative(rows: pl.DataFrame) -> str:
    """Say in how many windows the estimate is at its floor, slice by slice."""
    clauses = []
    for name in slices(rows):
        part = rows.filter(slice=name)
        silent = part.filter(~_counts(rows))
        if silent.height:
            clauses.append(f"{count(silent.height)} of {count(part.height)} {slice_name(name)} windows")
    if not clauses:
        return ""
    level, weights = rows["level"][0], safe(rows["weights"][0])
    return (
        f"Not drawn ({level} level, weights {weights}): {joined(clauses)}. Fewer than {FLOOR} {level}s carry the "
        "weight there, or the interval covers half the axis: the estimate is at its floor and means nothing."
    )


def data(diagnosis: Diagnosis, *, folded: bool) -> tuple[DataTable, ...]:
    """Return one row for each window and slice that the figure draws."""
    frame = _frame(diagnosis)
    if frame is None:
        return ()
    level, weights = _cells(diagnosis, frame)[0]
    first = (pl.col("level") == level) & (pl.col("weights") == weights)
    frame = frame.filter(~first if folded else first)
    rows = [
        (
            f"{count(row['step_first'])} to {count(row['step_last'])}",
            slice_name(row["slice"]),
            safe(row["level"]),
            safe(row["weights"]),
            number(row["ess_fraction"])
            + (f" ({bounds(row['lo'], row['hi'])})" if not folded and row.get("lo") is not None else ""),
            count(row["n"]),
            percent(row["top_share"]),
        )
        for row in frame.sort("level", "weights", "step_first", "slice").iter_rows(named=True)
    ]
    return data_table("By window", ("Steps", "Slice", "Level", "Weights", "ESS/n", "n", "Largest weight"), rows)


def _frame(diagnosis: Diagnosis) -> pl.DataFrame | None:
    return finite_rows(diagnosis, "ess", "ess_fraction", "slice", "step_mid")


def _cells(diagnosis: Diagnosis, frame: pl.DataFrame) -> list[tuple[str, str]]:
    """Return level and weights of each panel, first the weights that turn the samples into what they are set against.

    A pair with the reference has its samples in the numerator: the weights are its inverse.
    """
    levels, pair = list(LEVELS), diagnosis.signature.pair or ""
    inverse = pair.endswith(TO_REFERENCE)
    cells = set(frame.select("level", "weights").unique().iter_rows())
    order = {level: index for index, level in enumerate(levels)}
    return sorted(cells, key=lambda c: (order.get(c[0], len(levels)), (c[1] == pair) == inverse, c[1]))


def _first_cell(diagnosis: Diagnosis, frame: pl.DataFrame) -> pl.DataFrame:
    level, weights = _cells(diagnosis, frame)[0]
    return frame.filter(level=level, weights=weights)


def _draw(ax: Axes, *, diagnosis: Diagnosis, rows: pl.DataFrame, banded: bool) -> None:
    step_range(ax, *step_ends(rows), ticks=5)
    ess_axis(ax, "ESS/n")
    shade_windows(ax, diagnosis)
    labels, silent = [], []
    for name in slices(rows):
        part = rows.filter(slice=name).sort("step_last")
        shown = part.with_columns(
            pl.when(_counts(rows)).then(pl.col("ess_fraction")).otherwise(float("nan")).alias("shown")
        )
        known = shown.filter(pl.col("shown").is_finite())
        if known.height < part.height:
            silent.append(f"{short_slice(name)} {count(part.height - known.height)}")
        if known.is_empty():
            continue
        if banded and "lo" in rows.columns:
            band = shown.with_columns(pl.when(_counts(rows)).then(pl.col("lo", "hi")))
            low, high = (band[end].cast(pl.Float64).fill_null(float("nan")).to_numpy() for end in ("lo", "hi"))
            colour = LINES[slice_role(name)]["color"]
            ax.fill_between(band["step_last"].to_numpy(), low, high, color=colour, alpha=0.18, linewidth=0)
        labels.append(plot_slice(ax, shown, name, "step_last", "shown", digits=2))
    mark_onset(ax, diagnosis, labelled=False)
    end_labels(ax, labels)
    if silent:
        style: dict[str, Any] = {"ha": "right", "va": "baseline", "color": MUTED, "annotation_clip": False}
        text = f"not drawn, at the floor: {', '.join(silent)}"
        annotate(ax, text, (1, 1), coords="axes fraction", offset=(RIGHT - 6, TWO_LINES - 14), **style)
    if not labels:
        annotate(ax, "at its floor: means nothing", (0.5, 0.5), coords="axes fraction", ha="center", color=MUTED)


def _alt(rows: pl.DataFrame, level: str, weights: str) -> str:
    sentences = [f"Effective sample size over n, {safe(level)} level, weights {safe(weights)}, over training."]
    for name in slices(rows):
        part = rows.filter(slice=name).sort("step_mid")
        first, last = part["ess_fraction"][0], part["ess_fraction"][-1]
        sentences.append(f"{slice_name(name).capitalize()}: from {number(first)} to {number(last)}.")
    sentences.append(_uninformative(rows))
    return " ".join(filter(None, sentences))


FIGURE = RunFigure(
    name="effective_sample_size",
    title="Effective sample size",
    columns=2,
    panels=partial(panels, folded=False),
    caption=caption,
    data=partial(data, folded=False),
    absence=no_tokens,
    takeaway=takeaway,
)
OTHERS = RunFigure(
    name="other_weights",
    title="Effective sample size of tokens, and of the inverse weights",
    columns=2,
    panels=partial(panels, folded=True),
    caption=_folded_caption,
    data=partial(data, folded=True),
    folded=True,
)
