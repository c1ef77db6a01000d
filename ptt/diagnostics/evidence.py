"""What the rules look at: a run's tables, reduced to series and tails, with the limits in force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from ptt.diagnostics.model import Run
from ptt.diagnostics.statistics.growth import SliceTails
from ptt.diagnostics.statistics.mixture import Mixture
from ptt.diagnostics.statistics.sampled import PairSample
from ptt.diagnostics.statistics.trend import rolling_mean
from ptt.diagnostics.statistics.windows import Span

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

ROLLING_STEPS: Final = 20
"""Metrics are judged by the mean over this many logged steps: no verdict hangs on a single one."""
MIN_LOGGED: Final = 10
"""Fewer logged values than this are not judged: half of them would be the run's warm-up."""
ALARM_DRAWS: Final = 200
ALARM_REACH: Final = 1000  # logged values on either side of an alarm that are redrawn
ALARM_SEED: Final = 20_260_128
WARM: Final = 5
"""At the start of a run a mean may be over so few: a run that dies within 20 steps is to be told so."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """One metric over steps; `values` is NaN wherever `flags` is not 0 (see schema.Flag)."""

    name: str
    raw_name: str
    steps: IntArray
    values: FloatArray
    flags: npt.NDArray[np.uint8]

    @property
    def width(self) -> int:
        """How many logged values a rolling mean takes: 20, and a third of them in a run that has fewer than 60."""
        return min(ROLLING_STEPS, max(5, len(self.finite()[0]) // 3))

    def rolling(self) -> tuple[IntArray, FloatArray]:
        """Steps with a value, and the mean over the last `width` of them; NaN before five were seen."""
        steps, values = self.finite()
        return steps, rolling_mean(values, self.width, minimum=WARM)

    def rolling_median(self) -> FloatArray:
        """The median over each full window of `width` finite values."""
        return np.median(sliding_window_view(self.finite()[1], self.width), axis=1)

    def excess(self, limit: float) -> int | None:
        """Give the first step at which the rolling mean lies above `limit` and half of its values do, lastingly.

        The second condition keeps one wild step from lifting the mean; "lastingly" means that half of the values of
        the half window to come do so as well.
        """
        steps, values = self.finite()
        above = (values > limit).astype(np.float64)
        mean = rolling_mean(values, self.width, minimum=WARM)
        share = rolling_mean(above, self.width, minimum=WARM)
        ahead = rolling_mean(above[::-1], max(2, self.width // 2), minimum=1)[::-1]
        to_come = np.append(ahead[1:], 1.0)
        with np.errstate(invalid="ignore"):
            places = np.flatnonzero((mean > limit) & (share >= 0.5) & (to_come >= 0.5))
        return int(steps[places[0]]) if len(places) else None

    def first_above(self, limit: float, alarm: int) -> int:
        """Give the first step above `limit` among the values whose mean raised the alarm at step `alarm`."""
        steps, values = self.finite()
        place = int(np.searchsorted(steps, alarm))
        window = np.arange(max(0, place - self.width + 1), place + 1)
        return int(steps[window[values[window] > limit][0]])

    def finite(self) -> tuple[IntArray, FloatArray]:
        """Steps and values where there is a value."""
        usable = np.isfinite(self.values)
        return self.steps[usable], self.values[usable]


def excess_interval(series: Series, limit: float, alarm: int) -> tuple[int, int]:
    """Give the 95 % interval of the step at which a series' mean passes `limit`, around the step `alarm` it did.

    Moving-block bootstrap (Kunsch 1989): what the values lie off their running median is redrawn in blocks as long as
    the mean is wide, on the log scale where all values are positive. A redrawing that never passes counts as the end.
    """
    steps, values = series.finite()
    place = int(np.searchsorted(steps, alarm))
    near = slice(max(0, place - ALARM_REACH), place + ALARM_REACH)
    steps, values = steps[near], values[near]
    logs = bool((values > 0).all())
    levels = np.log(values) if logs else values
    half = series.width // 2
    around = sliding_window_view(np.pad(levels, half, mode="edge"), 2 * half + 1)
    centre = np.median(around, axis=1)
    off = levels - centre
    blocks = -(-len(off) // series.width)
    generator = np.random.default_rng(ALARM_SEED)
    seen = [alarm]
    for starts in generator.integers(0, len(off) - series.width + 1, size=(ALARM_DRAWS, blocks)):
        drawn = centre + np.concatenate([off[start : start + series.width] for start in starts])[: len(off)]
        found = replace(series, steps=steps, values=np.exp(drawn) if logs else drawn).excess(limit)
        seen.append(int(steps[-1]) if found is None else found)
    low, high = np.percentile(seen, [2.5, 97.5], method="nearest")
    return min(int(low), alarm), max(int(high), alarm)


@dataclass(frozen=True, kw_only=True)
class Tails:
    """The tails of one pair: both slices, over the same blocks and windows."""

    pair: str
    blocks: tuple[Span, ...]
    windows: tuple[Span, ...]
    text: SliceTails
    post: SliceTails
    zero_share: float  # share of tokens whose r is exactly 0 (below 1e-12)
    bad_tokens: int  # model tokens whose r is null, NaN or infinite
    tokens: int
    steps: int  # with tokens
    tool_free_tokens: int  # text-only tokens of sequences without any observation
    unit: str  # what was resampled as a whole: "prompt group" or "sequence"


@dataclass(frozen=True, kw_only=True)
class ToolUse:
    """Share of recorded sequences with at least one observation, by step."""

    steps: IntArray
    share: FloatArray
    sequences: IntArray


@dataclass(frozen=True, kw_only=True)
class Extent:
    """How much of the records something concerns; `example` is one of the files."""

    tokens: int  # of the model
    sequences: int
    first_step: int | None
    last_step: int | None
    files: int
    example: str | None


@dataclass(frozen=True, kw_only=True)
class AnomalyCount:
    """Values of one logprob column that are no logprobs, of one kind (see statistics.anomalies)."""

    column: str
    kind: str
    tokens: int
    sequences: int
    first_step: int
    last_step: int
    files: int
    example: str  # one of the files


@dataclass(frozen=True)
class ColumnFacts:
    """Of one logprob column's sampled values: share with four decimals at most, commonest value, its share."""

    rounded_share: float
    common_value: float
    common_share: float


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """What is there twice, or not at all."""

    repeated: Extent  # sequences whose (step, sample_id) was there before
    step_gaps: tuple[tuple[int, int], ...]  # (last step before, first step after)
    ranks: int  # known ranks, 0 where none are recorded
    missing_ranks: tuple[int, ...]
    steps_missing_ranks: int
    first_step_missing_rank: int
    last_step_missing_rank: int
    usual_sequences: float  # of a rank (of all, where ranks are not known) at a step, in the median
    usual_tokens: float


@dataclass(frozen=True, kw_only=True)
class MissingLogprobs:
    """Model tokens of the pair in use without a finite log-ratio, placeholders not counted."""

    pair: str
    tokens: int
    finite_tokens: int
    sequences: int
    first_step: int | None
    last_step: int | None
    files: int
    example: str | None
    dead_since: int | None  # first step from which on no token is finite, up to the last recorded step


@dataclass(frozen=True, kw_only=True)
class MixedColumn:
    """What the recorded `temperature` says: steps at which it differs between sequences."""

    temperatures: tuple[float, ...]  # seen at these steps, ascending
    steps: int
    share: float  # of these steps' sequences: not at the run's commonest temperature
    extent: Extent  # of these sequences


@dataclass(frozen=True, kw_only=True)
class MixedPair:
    """What the logprobs of one pair say: sequences of two kinds, in the sample."""

    mixture: Mixture
    sampled: int  # sequences
    extent: Extent  # of the scaled ones among the sampled


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Steps that two segments of a run both recorded, the second after the first: a run that was resumed."""

    first_step: int
    last_step: int
    steps: int
    sources: tuple[str, ...]  # one file that goes back, or the two that overlap


@dataclass(frozen=True, kw_only=True)
class Segments:
    """What of a run was recorded twice by itself resumed; None where nothing was."""

    metrics: tuple[Overlap, ...]
    sequences: Overlap | None
    extent: Extent | None  # of the sequences at these steps, both segments' together


@dataclass(frozen=True, kw_only=True)
class Validity:
    """What there is to say about the recorded logprobs themselves."""

    anomalies: tuple[AnomalyCount, ...]
    pairs: Mapping[str, tuple[PairSample | None, PairSample | None]]  # over the run, and early in it
    columns: Mapping[str, ColumnFacts]
    extent: Extent  # of all that is recorded
    observed_share: float  # of sequences with at least one observation
    missing: MissingLogprobs
    coverage: Coverage
    mixed_column: MixedColumn | None = None
    mixed_pairs: Mapping[str, MixedPair] = field(default_factory=dict)

    @property
    def sequences(self) -> int:
        """How many sequences are recorded."""
        return self.extent.sequences

    @property
    def model_tokens(self) -> int:
        """How many model tokens they hold."""
        return self.extent.tokens


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """All that a rule may look at. What is None or absent was not recorded."""

    run: Run
    metrics: Mapping[str, Series] = field(default_factory=dict)
    tails: Tails | None = None
    tails_missing: tuple[str, ...] = ()  # which logprobs would have to be recorded
    tails_reason: str = ""
    tails_enable: str = ""  # what would record them, where that is known
    tool_use: ToolUse | None = None
    validity: Validity | None = None
    segments: Segments | None = None  # None: no step is recorded at all
    limits: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
