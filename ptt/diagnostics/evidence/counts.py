"""A share over the run, whether it was counted in trajectories or logged by the framework, asked in one way."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Final

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.baseline_shift import (
    EARLY_MAX_VALUES,
    EARLY_MIN_VALUES,
    EARLY_SHARE,
    MAX_RANK_VALUES,
    MIN_RANK_VALUES,
    MIN_VALUES,
    Z_LIMIT,
    BaselineShift,
    dated_by_steps,
    early_level,
    lasting_fall,
    lasting_rise,
    mean_width,
    ranks_apart,
)
from ptt.diagnostics.evidence.series import Series, finite_series
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.change_point import rate_change

MIN_POOLED_TRIALS: Final = 8  # trials a value: with fewer, a share says more about chance than about the step
MIN_JUMP_VALUES: Final = 3  # pooled values before a rise: a share that was high from the start did not rise
LATE_SHARE: Final = 1 / 3  # of the steps: what "in the end" means
Z95: Final = 1.96


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Hits among trials at each step; steps are sorted and have at least one trial each."""

    name: str  # completes "share of ..."
    steps: IntArray
    hits: FloatArray
    trials: FloatArray

    @property
    def total(self) -> int:
        """How many trials there are."""
        return int(self.trials.sum())

    @cached_property
    def pooled(self) -> Counts:
        """Pool neighbouring steps until each value has MIN_POOLED_TRIALS; a value takes the last of its steps."""
        ends: list[int] = []
        trials_so_far = 0.0
        for index, trials in enumerate(self.trials.tolist()):
            trials_so_far += trials
            if trials_so_far >= MIN_POOLED_TRIALS:
                ends.append(index)
                trials_so_far = 0.0
        if not ends:
            return self._part(slice(0))
        starts = np.array([0, *(end + 1 for end in ends[:-1])])
        ends[-1] = len(self.steps) - 1  # what is left over joins the last one
        hits, trials = (np.add.reduceat(values, starts) for values in (self.hits, self.trials))
        return Counts(name=self.name, steps=self.steps[np.array(ends)], hits=hits, trials=trials)

    @property
    def series(self) -> Series:
        """Return the share by (pooled) step."""
        pooled = self.pooled
        return finite_series(self.name, pooled.steps, pooled.hits / pooled.trials, raw_name=f"share of {self.name}")

    @property
    def shows_change(self) -> bool:
        """Whether there is enough of it to distinguish a lasting change from chance."""
        return len(self.pooled.steps) >= MIN_VALUES

    def late(self) -> Counts:
        """Return the last third of the steps."""
        return self._part(slice(len(self.steps) - self._third, None))

    def early(self) -> Counts:
        """Return the steps that baseline_shift takes the early level from, the first third at most."""
        pooled = self.pooled
        count = min(
            max(EARLY_MIN_VALUES, int(EARLY_SHARE * len(pooled.steps))), EARLY_MAX_VALUES, len(pooled.steps) // 3
        )
        if len(pooled.steps) < MIN_VALUES:
            return self._part(slice(0, self._third))
        return pooled._part(slice(0, count))

    def since(self, step: int) -> tuple[float, float]:
        """Return hits and trials from a step on."""
        after = self.steps >= step
        return float(self.hits[after].sum()), float(self.trials[after].sum())

    def from_place(self, place: int) -> Counts:
        """Return the counts from a place among the steps on."""
        return self._part(slice(place, None))

    def before(self, place: int) -> Counts:
        """Return the counts before a place among the steps."""
        return self._part(slice(0, place))

    @property
    def _third(self) -> int:
        return max(1, round(LATE_SHARE * len(self.steps)))

    def _part(self, part: slice) -> Counts:
        return Counts(name=self.name, steps=self.steps[part], hits=self.hits[part], trials=self.trials[part])

    @property
    def share(self) -> float:
        """Hits over trials of all steps; NaN without a trial."""
        trials = float(self.trials.sum())
        return float(self.hits.sum()) / trials if trials else math.nan

    @property
    def lower_bound(self) -> float:
        """Return the lower end of the 95% interval of the share (Wilson 1927); 0 without a trial."""
        return wilson_lower_bound(float(self.hits.sum()), float(self.trials.sum()))

    def rise(self, *, floor: float, factor: float) -> BaselineShift | None:
        """Return the lasting rise of the share above `floor`, early share x `factor`, and its sampling margin."""

        def bound(share: float, chance: float) -> float:
            return max(floor, share * factor + chance)

        ranked = self._shifted(bound, rises=True)
        if ranked or not self.shows_change:
            return ranked
        rise = lasting_rise(self.series, floor=bound(*self._chance()))
        if rise is None:
            return None
        window = math.ceil(mean_width(self.series) * len(self.steps) / len(self.pooled.steps))
        return dated_by_steps(rise, self.steps, self.hits, self.trials, window)

    def _shifted(self, bound_of: Callable[[float, float], float], *, rises: bool) -> BaselineShift | None:
        """Return the change of few values from the first third of them to the last, by their ranks.

        Steps of a few prompts differ by more than chance, and a level that moved early looks like noise that remembers.
        Of values too few for `shows_change` only a change that leaves hardly any overlap is found.
        """
        pooled, sign = self.pooled, 1 if rises else -1
        third = len(pooled.steps) // 3
        if not MIN_RANK_VALUES <= len(pooled.steps) < MAX_RANK_VALUES:
            return None
        early, late = pooled._part(slice(0, third)), pooled._part(slice(len(pooled.steps) - third, None))
        bound = bound_of(*_sampling_margin(early, float(late.trials.sum())))
        before, after = sign * early.hits / early.trials, sign * late.hits / late.trials
        change = rate_change(pooled.hits, pooled.trials)
        if sign * late.share <= sign * bound or not ranks_apart(before, after) or change is None:
            return None
        means = self.series.rolling()[1]
        return BaselineShift(
            onset=int(pooled.steps[change[0]]),
            interval=(int(pooled.steps[change[1]]), int(pooled.steps[change[2]])),
            early=early.share,
            extreme=float(np.nanmax(means) if rises else np.nanmin(means)) if np.isfinite(means).any() else late.share,
            last=late.share,
            limit=bound,
            ended=False,
        )

    def jump(self, *, floor: float, factor: float) -> BaselineShift | None:
        """Return where a share that is high in the end rose, though it did so early: the first values hold the rise.

        Both sides of the change have enough trials to tell, and differ by `factor` and more than chance.
        """
        pooled = self.pooled
        change = rate_change(pooled.hits, pooled.trials) if len(pooled.steps) >= MIN_RANK_VALUES else None
        if change is None:
            return None
        before, after = pooled._part(slice(0, change[0])), pooled._part(slice(change[0], None))
        bound = max(floor, factor * before.share + _sampling_margin(before, after.trials.sum())[1])
        if len(before.steps) < MIN_JUMP_VALUES or after.share <= bound or self.late().share <= bound:
            return None
        return BaselineShift(
            onset=int(pooled.steps[change[0]]),
            interval=(int(pooled.steps[change[1]]), int(pooled.steps[change[2]])),
            early=before.share,
            extreme=after.share,
            last=self.late().share,
            limit=bound,
            ended=False,
        )

    def fall(self, *, ceiling: float, factor: float) -> BaselineShift | None:
        """Return the lasting fall of the share below `ceiling`, early share x `factor`, and what chance makes of it."""

        def bound(share: float, chance: float) -> float:
            return min(ceiling, share * factor - chance)

        ranked = self._shifted(bound, rises=False)
        if ranked or not self.shows_change:
            return ranked
        return lasting_fall(self.series, ceiling=bound(*self._chance()))

    def _chance(self) -> tuple[float, float]:
        """Return the early share and how far a window's may lie off by sampling alone."""
        return _sampling_margin(self.early(), self.series.width * float(np.median(self.pooled.trials)))


def _sampling_margin(early: Counts, window: float) -> tuple[float, float]:
    trials = float(early.trials.sum())
    share = (float(early.hits.sum()) + 0.5) / (trials + 1)  # never exactly 0 or 1, which no sample proves
    return share, Z_LIMIT * math.sqrt(share * (1 - share) * (1 / window + 1 / trials))


def wilson_lower_bound(hits: float, trials: float, *, z: float = Z95) -> float:
    """Return the lower end of Wilson's interval of a share."""
    if trials <= 0:
        return 0.0
    share = hits / trials
    centre = share + z * z / (2 * trials)
    width = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return max(0.0, (centre - width) / (1 + z * z / trials))


MIN_TRIALS: Final = 100  # before a level is called high: the interval of a share is then +-0.1 at most


@dataclass(frozen=True, kw_only=True)
class MeasuredShare:
    """One share over the run: counted in trajectories, or as the framework logged it (then without counts)."""

    series: Series
    metric: str
    counts: Counts | None = None
    tool: str | None = None  # None: all tools

    @property
    def judgeable(self) -> bool:
        """Whether there is enough of it to judge a change."""
        return early_level(self.series) is not None if self.counts is None else self.counts.shows_change

    @property
    def late(self) -> float:
        """The share in the end."""
        if self.counts is not None:
            return self.counts.late().share
        values = self.series.finite()[1]
        return float(values[-self.series.width :].mean()) if len(values) else math.nan

    @property
    def late_lower_bound(self) -> float:
        """Lower confidence bound of the share at the end."""
        if self.counts is None:
            return self.late if len(self.series.finite()[0]) >= MIN_VALUES else 0.0
        late = self.counts.late()
        return late.lower_bound if late.total >= MIN_TRIALS else 0.0

    @property
    def early(self) -> float:
        """The share at first."""
        if self.counts is not None:
            return self.counts.early().share
        level, values = early_level(self.series), self.series.finite()[1]
        return float(values[: level.values].mean()) if level else math.nan

    def risen(self, *, floor: float, factor: float, chronic: float = 1.0) -> BaselineShift | None:
        """Return its lasting rise, or where it is above `chronic` in the end the early one that led there."""
        if self.counts is not None:
            rise = self.counts.rise(floor=floor, factor=factor)
            high = self.late_lower_bound > chronic
            return rise or (self.counts.jump(floor=floor, factor=factor) if high else None)
        rise = lasting_rise(self.series, floor=floor, factor=factor)
        if rise is None:
            return None
        steps, values = self.series.finite()
        return dated_by_steps(rise, steps, values, np.ones(len(values)), mean_width(self.series))


def counted_share(counts: Counts | None, metric: str, *, tool: str | None = None) -> tuple[MeasuredShare, ...]:
    """Return a share that was counted in trajectories, where it was."""
    if counts is None:
        return ()
    return (MeasuredShare(series=counts.series, metric=metric, counts=counts, tool=tool),)


def logged_share(metrics: Mapping[str, Series], name: str, *, of: str | None = None) -> tuple[MeasuredShare, ...]:
    """Return a share that the framework logged, if it did; not at steps where it logged none `of` what it is a share.

    TRL writes a share of 0 where there was nothing to take a share of.
    """
    series = metrics.get(name)
    if series is None:
        return ()
    whole = metrics.get(of) if of is not None else None
    if whole is not None:
        empty = np.isin(series.steps, whole.steps[whole.values == 0])
        series = replace(series, values=np.where(empty, np.nan, series.values))
    return (MeasuredShare(series=series, metric=name),) if len(series.finite()[0]) else ()


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
