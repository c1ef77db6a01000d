"""What the update rests on, under the finding that it explains: a sentence, one plot, and what guards would cost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.model import Diagnosis, GuardPrice, Interval, Ledger, LedgerShare
from ptt.reports.figures.line_plot import Axis, Drawing, LinePlot
from ptt.reports.figures.panels import DataTable
from ptt.reports.text.names import BY, GUARDS, sentence, slice_name
from ptt.reports.text.numbers import count, number, percent, times
from ptt.reports.text.sanitize import safe, shortened
from ptt.reports.text.tables import Row, rows_where

MAX_NAME: Final = 40
MAX_VALUES: Final = 4  # of an attribute, in the table
DASH: Final = "—"
LINES: Final = (("tail", "|r| above 2 nats"), ("post", "tokens after tool output"))
"""Columns of the table by step that the plot may show, what is worse first, and their words."""
MIN_SHARE: Final = 0.05  # of the update at some step: less is no curve


@dataclass(frozen=True, kw_only=True)
class LedgerView:
    """What stands under one finding."""

    anchor: str
    sentences: tuple[str, ...]
    weighed: tuple[str, ...]  # by which loss, and what is approximated
    plot: LinePlot | None
    tables: tuple[DataTable, ...]


def ledger_view(diagnosis: Diagnosis) -> LedgerView | None:
    """Return the ledger as the page shows it; None where no finding asks for one."""
    ledger = diagnosis.ledger
    anchors = (f"finding-{at}" for at, one in enumerate(diagnosis.findings, 1) if ledger and one.id == ledger.finding)
    anchor = next(anchors, None)
    if ledger is None or anchor is None:
        return None
    if ledger.reason:
        said = f"What the update rests on is not judged: {ledger.reason}"
        return LedgerView(anchor=anchor, sentences=(sentence(said),), weighed=(), plot=None, tables=())
    sentences = (ledger.said, _tail(ledger), _guarded(ledger))
    weighed = (f"the loss: {ledger.objective}", ledger.approximated)
    tables = (_shares(ledger), _guards(ledger.guards))
    return LedgerView(
        anchor=anchor,
        sentences=tuple(sentence(text) for text in sentences if text),
        weighed=tuple(map(sentence, weighed)),
        plot=_plot(diagnosis, f"ledger-{anchor}"),
        tables=tuple(table for table in tables if table.rows),
    )


def ledger_line(diagnosis: Diagnosis) -> str:
    """Say in one line what the update rests on; empty where no finding asks, or where it is not judged."""
    ledger = diagnosis.ledger
    if ledger is None or ledger.reason or ledger.since is None:
        return ""
    where = f", mostly {ledger.place}" if ledger.place else ""
    return safe(f"half of it from {percent(ledger.half_tokens)} of the tokens since step {ledger.since}{where}")


def _cheapest(ledger: Ledger) -> str:
    price = next((price for price in ledger.guards if price.name == ledger.cheapest), None)
    if price is None or price.cost is None:
        return ""
    return f"; the cheapest guard that holds it is {guard_name(price)} (cost {_interval(price.cost)} of the rest)"


def guard_name(price: GuardPrice) -> str:
    """Name a guard, with the pair whose ratio it looks at."""
    name = GUARDS.get(price.guard) or safe(price.guard)
    return f"{name}, on {price.pair}" if price.pair else name


def _tail(ledger: Ledger) -> str:
    if not ledger.tail_tokens:
        return ""
    held, are = percent(ledger.tail_share), percent(ledger.tail_tokens)
    return f"tokens with |r| above 2 nats hold {held} of it and are {are} of the tokens"


def _guarded(ledger: Ledger) -> str:
    """Say what became of the second moment, and which guard would hold it."""
    if ledger.second_moment is None:
        return ""
    said = f"the second moment of the update in the late third is {times(ledger.second_moment)} that of the early one"
    if ledger.cheapest is not None:
        return f"{said}{_cheapest(ledger)}"
    if not ledger.guards:
        return said
    held = any(price.holds for price in ledger.guards)
    return f"{said}; {'it needs no guard' if held else 'none of the guards below would have held it'}"


def _interval(interval: Interval) -> str:
    low, high = (percent(round(end, 3)) for end in interval)
    return low if low == high else f"{low} to {high}"


def _shares(ledger: Ledger) -> DataTable:
    """Return the largest shares of each attribute."""
    shown: list[LedgerShare] = []
    for name in dict.fromkeys(share.by for share in ledger.shares):
        shown += [share for share in ledger.shares if share.by == name][:MAX_VALUES]
    rows = tuple(
        (
            BY.get(share.by) or safe(share.by),
            slice_name(share.value) if share.by == "slice" else shortened(safe(share.value), MAX_NAME),
            *map(percent, (share.share, share.token_share)),
            percent(share.signed) if share.signed <= 0 else f"+{percent(share.signed)}",
            *map(percent, (share.kl, share.clipped, share.truncated, share.masked)),
        )
        for share in shown
    )
    head = ("By", "Value", "Of the update", "Of the tokens", "Signed", "Of it KL", "Clipped", "Capped", "Masked")
    return DataTable(title="Shares of the update", head=head, rows=rows)


def _guards(prices: Iterable[GuardPrice]) -> DataTable:
    rows = tuple(
        (
            guard_name(price),
            DASH if price.tail is None else _interval(price.tail),
            DASH if price.cost is None else _interval(price.cost),
            DASH if price.second_moment is None else times(price.second_moment),
            "yes" if price.holds else sentence(price.reason) if price.reason else "no",
        )
        for price in prices
    )
    head = ("Guard", "Takes of the tail", "Costs of the rest", "Second moment, late over early", "Held")
    return DataTable(title="Guards, replayed on the late third: bounds, not promises", head=head, rows=rows)


def _plot(diagnosis: Diagnosis, key: str) -> LinePlot | None:
    """Draw which share of each step's update some tokens hold, beside their share of the tokens."""
    rows = rows_where(diagnosis, "ledger_steps")
    name, words = next(
        (
            (name, words)
            for name, words in LINES
            if max((row[f"{name}_share"] or 0.0 for row in rows), default=0) > MIN_SHARE
        ),
        ("", ""),
    )
    if not name or len(rows) < 2:
        return None
    steps = _values(rows, "step")
    drawing = Drawing(x=Axis(low=steps[0], high=max(steps[-1], steps[0] + 1)), y=Axis(low=0.0, high=1.0))
    drawing.axes(diagnosis.run.step_unit)
    told = []
    for look, column, what in (("post", "share", "of the update"), ("text", "tokens", "of the tokens")):
        values = _values(rows, f"{name}_{column}")
        drawing.line(look, steps, values)
        drawing.end(look, values[-1], f"{what} {percent(values[-1])}")
        told.append(f"{percent(values[0])} {what} at first, {percent(values[-1])} at the end")
    title = f"{words[:1].upper()}{words[1:]}: {'; '.join(told)}"
    alt = f"{title}. Steps {count(int(steps[0]))} to {count(int(steps[-1]))}, {number(len(rows))} of them."
    return drawing.finish(key=key, title=title, alt=alt)


def _values(rows: Iterable[Row], name: str) -> np.ndarray:
    return np.array([np.nan if row[name] is None else row[name] for row in rows], dtype=float)
