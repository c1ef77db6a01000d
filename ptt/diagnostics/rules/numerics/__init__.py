"""What the rules on numbers share: the first step at which one is none, and stretches of a series."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import MIN_LOGGED, NAN_FLAGS, Series
from ptt.diagnostics.metrics.catalogue import listed
from ptt.diagnostics.rules.interface import NotJudged, by_kind
from ptt.diagnostics.rules.single_series import logged, more_rows
from ptt.diagnostics.statistics.arrays import BoolArray, IntArray

CORE: Final = listed("core")
MIN_FINAL_NULLS: Final = 3  # at the very end: a single null may be a row that does not log the metric


def core_series(evidence: Evidence, *, enable: str) -> list[Series] | NotJudged:
    """Return the logged metrics that must be finite in every run; `enable` says how to log them."""
    core = [evidence.metrics[name] for name in CORE if name in evidence.metrics]
    if not core or max(len(series.steps) for series in core) < MIN_LOGGED:
        named = by_kind(evidence, sampled="loss, gradient norm, KL, entropy and reward", given="loss and gradient norm")
        reason = f"none of {named} is logged often enough"
        longest = max(core, key=lambda series: len(series.steps), default=None)
        return NotJudged(reason=reason, missing=CORE, enable=more_rows(evidence, longest) if longest else enable)
    return core


def logged_loss(evidence: Evidence, *, minimum: int) -> Series | NotJudged:
    """Return the total loss, or the policy's where that alone is logged."""
    only_policy = "loss/total" not in evidence.metrics and "loss/policy" in evidence.metrics
    name = "loss/policy" if only_policy else "loss/total"
    return logged(evidence, name, what="loss", enable="log the loss every step", minimum=minimum)


def first_nonfinite(core: Iterable[Series]) -> tuple[int, str] | None:
    """Return the first step at which a series is NaN or infinite, and the name it is logged as.

    Nulls from a step to the end count too, since some writers log NaN as null.
    """
    first = []
    for series in core:
        bad = np.append(np.flatnonzero(np.isin(series.flags, NAN_FLAGS)), dead_tail(series))
        if len(bad):
            first.append((int(series.steps[bad.min()]), series.raw_name))
    return min(first, default=None)


def dead_tail(series: Series) -> IntArray:
    """Return the indices after the last finite value, if they prove that no other follows; else none."""
    finite = np.flatnonzero(np.isfinite(series.values))
    tail = np.arange(int(finite[-1]) + 1 if len(finite) else 0, len(series.steps))
    proven = bool(np.isin(series.flags[tail], NAN_FLAGS).any())
    return tail if len(tail) >= (1 if proven else MIN_FINAL_NULLS) else tail[:0]


def longest_true(mask: BoolArray) -> tuple[int, int]:
    """Return index and length of the first longest stretch of True; (0, 0) if there is none."""
    return max(stretches(mask), key=lambda stretch: stretch[1], default=(0, 0))


def stretches(mask: BoolArray) -> list[tuple[int, int]]:
    """Return index and length of every stretch of True, in order."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).astype(np.int8)))
    return [(int(start), int(end - start)) for start, end in zip(edges[::2], edges[1::2], strict=True)]
