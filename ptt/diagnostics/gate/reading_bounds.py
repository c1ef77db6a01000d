"""Read one bound of `[[gate.bound]]`; a bound that no value, or a single step, could decide is refused."""

from __future__ import annotations

import math
import re
from typing import Final

from ptt.diagnostics.gate.policy import Bound, Window
from ptt.diagnostics.gate.subjects import (
    ESS,
    LOGGED,
    POOLED,
    QUANTILES,
    SLICES,
    TAIL,
    Ess,
    Logged,
    Subject,
    Tail,
    range_of,
)
from ptt.diagnostics.gate.toml_table import NAME, Table, meant
from ptt.diagnostics.parsers.aliases import canonical, canonical_names, spellings
from ptt.diagnostics.statistics.summaries import LEAST_BEYOND, LEAST_VALUES, QUANTILE_OF, STATISTICS

OF_TOKENS: Final = (POOLED, "ratio")
SINGLE: Final = {
    "max": "p95", "maximum": "p95", "peak": "p95", "min": "p05", "minimum": "p05", "last": "mean", "final": "mean",
    "first": "mean", "p100": "p95", "p0": "p05", "p99": "p95", "p01": "p05", "p999": "p95",
}  # fmt: skip
"""Statistics that one step decides, and what to use instead."""
WINDOWS: Final = ("early", "mid", "late", "all")
MOST_VALUES: Final = 1_000_000  # of a window
NEAR: Final = 0.9  # likeness of an unknown name to a known one from which it is taken for a slip
_LAST: Final = re.compile(r"last ([0-9]{1,7})")


def read_bound(table: Table) -> Bound:
    """Give one bound."""
    table.only(("name", "metric", "statistic", "window", "min", "max", "unit"))
    name, metric = table.text("name"), table.text("metric")
    if name is None or not NAME.fullmatch(name):
        table.wrong("name", "is missing or no name; use letters, digits, dots, dashes, slashes and underscores")
    if metric is None:
        table.wrong("metric", f"is missing in the bound {name!r}")
    subject = _subject(table, metric)
    window = _window(table)
    bound = Bound(
        name=name,
        subject=subject,
        statistic=_statistic(table, subject, window),
        window=window,
        low=table.number("min"),
        high=table.number("max"),
        unit=table.text("unit") or "",
    )
    _not_vacuous(table, bound, metric)
    return bound


def _subject(table: Table, metric: str) -> Subject:
    if metric.startswith(LOGGED):
        if metric == LOGGED:
            table.wrong("metric", f"{metric!r} names nothing; write the name as it is logged behind it")
        return Logged(name=metric.removeprefix(LOGGED), exact=True)
    if metric.startswith((TAIL, ESS)):
        return _of_tokens(table, metric)
    if canonical(metric) is None and metric not in canonical_names():
        near = spellings(metric, NEAR)
        if near:
            table.wrong(
                "metric", f"{metric!r} is not known; is {' or '.join(near)} meant? ({LOGGED}{metric} takes it as it is)"
            )
    return Logged(name=metric)


def _of_tokens(table: Table, metric: str) -> Subject:
    kind, _, rest = metric.partition(".")
    slice_, _, quantile = rest.partition(".")
    if slice_ not in SLICES:
        table.wrong("metric", f"{metric!r}: {slice_!r} is no slice; {meant(slice_, SLICES)}")
    if kind + "." == ESS:
        if quantile:
            table.wrong("metric", f"{metric!r} is no effective sample size; write {ESS}{slice_}")
        return Ess(slice=slice_)
    if quantile not in QUANTILES:
        table.wrong("metric", f"{metric!r} is no tail; write {TAIL}{slice_}. and one of {', '.join(QUANTILES)}")
    return Tail(slice=slice_, quantile=quantile)


def _window(table: Table) -> Window:
    text = table.values.get("window", "late")
    if isinstance(text, str) and text in WINDOWS:
        return Window(name=text)
    match = _LAST.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        table.wrong("window", f"is {text!r}; it can be {', '.join(WINDOWS)}, or so many logged steps: 'last 50'")
    count = int(match[1])
    if count < LEAST_VALUES:
        table.wrong("window", f"'last {count}' lets few steps decide; take 'last {LEAST_VALUES}' or more, or 'late'")
    if count > MOST_VALUES:
        table.wrong("window", f"'last {count}' is longer than any run; use 'all'")
    return Window(name="last", count=count)


def _statistic(table: Table, subject: Subject, window: Window) -> str:
    of_tokens = not isinstance(subject, Logged)
    known = OF_TOKENS if of_tokens else STATISTICS
    text = table.values.get("statistic", POOLED if of_tokens else "mean")
    if isinstance(text, str) and text in SINGLE and text not in known:
        table.wrong("statistic", f"{text!r} lets a single step decide; use {POOLED if of_tokens else SINGLE[text]!r}")
    if not isinstance(text, str) or text not in known:
        told = " (a tail or an effective sample size is of all tokens of its window)" if of_tokens else ""
        table.wrong("statistic", f"is {text!r}; it can be {', '.join(known)}{told}")
    if text in ("change", "ratio", "slope") and window.name in ("early", "mid") and of_tokens:
        table.wrong("window", f"a {text} within the {window.name} third says little; use 'all'")
    beyond = min(QUANTILE_OF.get(text, 0.5), 1 - QUANTILE_OF.get(text, 0.5))
    if window.name == "last" and window.count * beyond < LEAST_BEYOND:
        least = math.ceil(LEAST_BEYOND / beyond)
        table.wrong("statistic", f"{text!r} of {window.count} values hangs on one of them; take 'last {least}' or more")
    return text


def _not_vacuous(table: Table, bound: Bound, metric: str) -> None:
    """Refuse a bound that no value could pass, or that every value would."""
    low, high = bound.low, bound.high
    if low is None and high is None:
        table.wrong("max", f"the bound {bound.name!r} has neither max nor min: no run could ever fail it")
    if low is not None and high is not None and low > high:
        table.wrong("min", f"is {low:g}, above max, {high:g}: no run could ever pass")
    logged = bound.subject.name if isinstance(bound.subject, Logged) else ""
    ours = None if isinstance(bound.subject, Logged) and bound.subject.exact else canonical(logged) or logged
    least, most = range_of(bound.subject, bound.statistic, ours)
    what = f"the {bound.statistic} of {metric}"
    if high is not None and high >= most:
        table.wrong("max", f"is {high:g}, and {what} is never above {most:g}: no run could ever fail")
    if low is not None and low <= least:
        table.wrong("min", f"is {low:g}, and {what} is never below {least:g}: no run could ever fail")
    if high is not None and high < least:
        table.wrong("max", f"is {high:g}, and {what} is never below {least:g}: no run could ever pass")
    if low is not None and low > most:
        table.wrong("min", f"is {low:g}, and {what} is never above {most:g}: no run could ever pass")
