"""Cut the recorded steps of a run into parts: thirds, blocks for trends, and sliding windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.statistics.arrays import IntArray

WINDOWS: Final = ("early", "mid", "late")
WHOLE_SHARE: Final = 0.9  # of a period's steps: a period with fewer is not over yet
BURST_GAP: Final = 2  # times the smallest gap between recorded steps: a larger gap ends a burst
MAX_BURST: Final = 8  # steps in a row from one batch of rollouts: trainers take 1 to 4


@dataclass(frozen=True)
class Span:
    """Recorded steps from `first` to `last`, both included."""

    first: int
    last: int

    @property
    def middle(self) -> float:
        """The middle of the span, for drawing."""
        return (self.first + self.last) / 2


def split_steps(steps: Sequence[int], count: int) -> tuple[Span, ...]:
    """Cut distinct, ascending steps into `count` parts of as equal a number of steps as can be (fewer if too few)."""
    pieces = np.array_split(np.asarray(steps, dtype=np.int64), max(1, min(count, len(steps))))
    return tuple(Span(int(piece[0]), int(piece[-1])) for piece in pieces if len(piece))


def bursts(steps: Sequence[int]) -> tuple[Span, ...]:
    """Split distinct, ascending steps into observations: bursts of consecutive steps, else single steps.

    A recorder that keeps a few consecutive steps and then skips many records several updates on the same batch of
    rollouts, so a burst is one observation. More than MAX_BURST in a row mean that the recorder changed its spacing:
    single steps.
    """
    given = np.asarray(steps, dtype=np.int64)
    if not len(given):
        return ()
    gaps = np.diff(given)
    within = gaps.min(initial=1)
    starts = np.append(True, gaps > BURST_GAP * float(within))
    sizes = np.diff(np.append(np.flatnonzero(starts), len(given)))
    starts |= np.repeat(sizes > MAX_BURST, sizes)
    firsts = np.flatnonzero(starts)
    lasts = np.append(firsts[1:], len(given)) - 1
    return tuple(Span(int(given[first]), int(given[last])) for first, last in zip(firsts, lasts, strict=True))


def join_spans(spans: Sequence[Span], count: int) -> tuple[Span, ...]:
    """Join neighbouring spans to at most `count`, each of as equal a number of them as can be."""
    pieces = np.array_split(np.arange(len(spans)), max(1, min(count, len(spans))))
    return tuple(Span(spans[piece[0]].first, spans[piece[-1]].last) for piece in pieces if len(piece))


def whole_periods(steps: Sequence[int], starts: Sequence[int]) -> tuple[Span, ...]:
    """Cut distinct, ascending steps where periods start; a last part shorter than nine tenths of one is left out."""
    given = np.asarray(steps, dtype=np.int64)
    parts = [part for part in np.split(given, np.searchsorted(given, np.asarray(starts))) if len(part)]
    if len(starts) > 1 and len(parts) > 1 and given[-1] - starts[-1] + 1 < WHOLE_SHARE * (starts[-1] - starts[-2]):
        parts = parts[:-1]
    return tuple(Span(int(part[0]), int(part[-1])) for part in parts)


def sliding_windows(steps: Sequence[int], *, width: int, stride: int) -> tuple[Span, ...]:
    """Return windows of `width` recorded steps, `stride` apart; the last one ends at the last step."""
    if len(steps) <= width:
        return split_steps(steps, 1) if len(steps) else ()
    starts = list(range(0, len(steps) - width + 1, stride))
    if starts[-1] != len(steps) - width:
        starts.append(len(steps) - width)
    return tuple(Span(int(steps[start]), int(steps[start + width - 1])) for start in starts)


def covered_until(steps: IntArray, last: int) -> int:
    """Return the step up to which ascending steps cover a run: its `last` one where no further record was due."""
    gaps = np.diff(steps)
    due = int(np.quantile(gaps, 0.75, method="higher")) if len(gaps) else 1
    return last if last - int(steps[-1]) < due else int(steps[-1])


def label_spans(frame: pl.DataFrame, spans: Sequence[Span], *, name: str) -> pl.DataFrame:
    """Add column `name`: the index of the (disjoint, ascending) span each row's step lies in; others are dropped."""
    firsts = np.array([span.first for span in spans])
    lasts = np.array([span.last for span in spans])
    step = frame["step"].to_numpy()
    if len(spans) and len(step) and (step[1:] >= step[:-1]).all():  # as tables of tokens are: some looks for each span
        begin, end = np.searchsorted(step, firsts, side="left"), np.searchsorted(step, lasts, side="right")
        label = pl.Series(name, np.repeat(np.arange(len(spans), dtype=np.int32), end - begin))
        if len(label) == end[-1] - begin[0]:  # consecutive spans
            return frame[int(begin[0]) : int(end[-1])].with_columns(label)
        inside = np.zeros(len(step), np.bool_)
        for first, last in zip(begin, end, strict=True):
            inside[first:last] = True
        return frame.filter(pl.Series(inside, dtype=pl.Boolean)).with_columns(label)
    index = np.searchsorted(firsts, step, side="right") - 1
    inside = (index >= 0) & (step <= lasts[np.maximum(index, 0)]) if len(spans) else np.zeros(len(step), np.bool_)
    named = frame.with_columns(pl.Series(name, index.astype(np.int32)))
    return named if inside.all() else named.filter(pl.Series(inside, dtype=pl.Boolean))
