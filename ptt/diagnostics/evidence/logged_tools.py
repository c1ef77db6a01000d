"""What frameworks log by tool: calls, failures and seconds, keyed by the tool's name inside the metric's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from ptt.diagnostics.evidence.counts import MeasuredShare
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.statistics.arrays import FloatArray

CALLS: Final = re.compile(r"(?:^|/)(?:tools/(?P<a>[^/]+)/call_total|env/calls_(?P<b>[^/]+))$")
"""TRL's asynchronous GRPO; and what environments log for themselves, calls of one tool a sample."""
FAILURES: Final = re.compile(r"(?:^|/)tools/(?P<a>[^/]+)/failure_total$")
SECONDS: Final = re.compile(r"(?:^|/)tools/(?P<a>[^/]+)/latency_s$")
COUNTER_GROWTH: Final = 2.0  # times the first total: the calls of as many steps again


def series_by_tool(other: Mapping[str, Series], pattern: re.Pattern[str]) -> dict[str, Series]:
    """Return the series of each tool; of several spellings the one with most values, then the first by name."""
    by_tool: dict[str, Series] = {}
    for name, series in sorted(other.items()):
        if (match := pattern.search(name)) is not None:
            tool = next(group for group in match.groups() if group)
            if tool not in by_tool or len(series.finite()[0]) > len(by_tool[tool].finite()[0]):
                by_tool[tool] = series
    return by_tool


def failure_shares(other: Mapping[str, Series]) -> tuple[MeasuredShare, ...]:
    """Return the share of failed calls of each tool whose calls and failures are both logged, as totals of a step.

    Totals that both never fall and end at several times the first are taken for counters that go on over the run, and
    differenced: as many calls at every step are no counter.
    """
    calls = series_by_tool(other, CALLS)
    shares = []
    for tool, failures in series_by_tool(other, FAILURES).items():
        if tool not in calls or not calls[tool].raw_name.endswith("call_total"):
            continue
        steps, at, beside = np.intersect1d(calls[tool].steps, failures.steps, return_indices=True)
        called, failed = calls[tool].values[at], failures.values[beside]
        if _is_counter(called) and not (np.diff(failed[np.isfinite(failed)]) < 0).any():
            steps, called, failed = steps[1:], np.diff(called), np.diff(failed)
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.where(called > 0, failed / called, np.nan)
        flags = np.where(np.isfinite(share), 0, 1).astype(np.uint8)
        series = replace(failures, steps=steps, values=share, flags=flags)
        if np.isfinite(share).any():
            shares.append(MeasuredShare(series=series, metric=failures.raw_name, tool=tool))
    return tuple(shares)


def _is_counter(totals: FloatArray) -> bool:
    """Tell a counter over the run, which never falls and ends far above its first value, from a count by step."""
    finite = totals[np.isfinite(totals)]
    return len(finite) > 1 and bool((np.diff(finite) >= 0).all() and finite[-1] > finite[0] * COUNTER_GROWTH)
