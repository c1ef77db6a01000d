"""Template for rules that watch one series: read it, find where it leaves its bounds for good, and give the numbers.

    @requires_metric("entropy", what="entropy", enable="log the policy's token entropy", minimum=MIN_VALUES)
    def check(entropy: Series, evidence: Evidence, limits: Limits) -> Verdict:
        rise = lasting_rise(entropy, floor=limits["floor"], factor=limits["times_early"])
        if rise is None or rise.ended:
            return Healthy(reason=f"entropy ends at {sig(last_mean(entropy))} nats")
        return Finding(
            severity=Severity.MEDIUM,
            claim=f"Entropy rose from {sig(rise.early)} to {sig(rise.last)} nats",
            unit="nats",
            **measured(rise),
            evidence=series_evidence(entropy, early=rise.early),
            ...
        )

`lasting_excess` is for a limit that is given beforehand; `lasting_rise` and `lasting_fall` (evidence.baseline_shift)
are for limits relative to the series' own beginning. `requires` (interface) takes any other reading in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypedDict

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import BaselineShift
from ptt.diagnostics.evidence.run_end import Ending, read_end
from ptt.diagnostics.evidence.series import MIN_LOGGED, NAN_FLAGS, Series
from ptt.diagnostics.evidence.tails import Tails
from ptt.diagnostics.model import JsonScalar, Severity, Steps
from ptt.diagnostics.rules.interface import Check, Limits, NotJudged, Verdict, requires
from ptt.diagnostics.rules.tail_conditions import MIN_WINDOW_TOKENS
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray
from ptt.diagnostics.statistics.change_point import MIN_LEVEL_VALUES

GOING_ON: Final = (Ending.OPEN, Ending.SHORT, Ending.UNKNOWN)  # as far as the files show: more steps may come
CONTINUE: Final = "let the run continue"
LONGER: Final = "train for more steps"
NEXT_RUN: Final = "train the next run for longer"
MORE_TOKENS: Final = f"at least {MIN_WINDOW_TOKENS} post-tool tokens in each third of the run"


def more_rows(evidence: Evidence, series: Series) -> str:
    """Say what would give a series more values than this run logged."""
    alone = len(series.steps) == 1 and evidence.run.step_count == 1 and evidence.run.last_step in (0, 1)
    every = alone or _at_every_step(series.steps)
    advice = {_go_on(evidence): not _has_ended(evidence), "log every step": not every}
    if not any(advice.values()):
        return f"{NEXT_RUN}: this one has ended, and every step of it is logged"
    return f"{', or '.join(text for text, useful in advice.items() if useful)}, and judge it again"


def more_tokens(evidence: Evidence, tails: Tails) -> str:
    """Say what would give the tails more tokens than this run recorded."""
    few = min(tails.post.window_tokens[0], tails.post.window_tokens[-1]) < MIN_WINDOW_TOKENS
    advice = {"every step": not _at_every_step(tails.recorded), MORE_TOKENS: few}
    if any(advice.values()):
        return f"record more: {', and '.join(text for text, useful in advice.items() if useful)}"
    if not _has_ended(evidence):
        return f"{_go_on(evidence)}, and judge it again"
    return f"{NEXT_RUN}, or on more sequences a step: this one has ended, and every step of it is recorded"


def _at_every_step(steps: IntArray) -> bool:
    return len(steps) > 1 and float(np.median(np.diff(steps))) <= 1


def _has_ended(evidence: Evidence) -> bool:
    return _ending(evidence) not in GOING_ON


def _go_on(evidence: Evidence) -> str:
    """Say how a run gets more steps: by waiting only where its log was left open."""
    return CONTINUE if _ending(evidence) is Ending.OPEN else LONGER


def _ending(evidence: Evidence) -> Ending:
    rate = evidence.metrics.get("lr")
    return read_end(evidence.run, evidence.events, evidence.other, rate=rate).ending


PEAK_FACTOR: Final = 3.0  # times the limit: a run this far off for a window is worth a look even if it recovered
LASTING_SHARE: Final = 0.5  # of the last window: fewer above the limit are spikes, which lift its mean but pass
GROSS_VALUES: Final = 3  # in a row, up to the end: one outlier batch is not a level
MIN_ZERO_SHARE: Final = 0.2  # share of exact zeros from which they are not measurements: one update in five or more


def logged(evidence: Evidence, name: str, *, what: str, enable: str, minimum: int = MIN_LOGGED) -> Series | NotJudged:
    """Return the training series of a metric, or why it cannot be judged: not logged, or fewer than `minimum` values.

    `what` completes "no ... is logged"; `enable` is the line that has it logged.
    """
    series = evidence.metrics.get(name)
    if series is None:
        return NotJudged(reason=f"no {what} is logged", missing=(name,), enable=enable, absent=True)
    if not len(series.finite()[0]) and not np.isin(series.flags, NAN_FLAGS).any():  # a key that stands for a switch
        return NotJudged(reason=f"{series.raw_name} holds no number", missing=(name,), enable=enable, absent=True)
    if len(series.finite()[0]) < minimum:
        return too_few(evidence, name, series, minimum)
    return series


def too_few(evidence: Evidence, name: str, series: Series, minimum: int) -> NotJudged:
    """Return that a series has too few finite values, and what would give it more."""
    count = len(series.finite()[0])
    return NotJudged(
        reason=f"too few finite values of {series.raw_name} are logged: {count} of the {minimum} needed",
        missing=(name,),
        enable=more_rows(evidence, series) if series.count < minimum else "find out why its values are not finite",
    )


def requires_metric(
    name: str, *, what: str, enable: str, minimum: int = MIN_LOGGED
) -> Callable[[Callable[[Series, Evidence, Limits], Verdict]], Check]:
    """Give a check the training series of a metric; without one, the answer is that of `logged`."""
    return requires(lambda evidence: logged(evidence, name, what=what, enable=enable, minimum=minimum))


@dataclass(frozen=True, kw_only=True)
class Excess:
    """A lasting excess over a limit that is fixed in advance."""

    onset: int
    interval: Steps
    limit: float
    last_good: int | None  # the last step logged within the limit before it; None where there is none
    peak: float  # the highest median over a window: one wild step does not set it
    last: float  # the mean over the last window, or over what of it comes after the onset
    ended: int | None  # the last step above the limit, where the last window, or most of it, lies within it again

    def severity(self, lasting: Severity) -> Severity:
        """Return `lasting`; of what came back medium at most, and low unless it went far beyond the limit."""
        if self.ended is None:
            return lasting
        highest = Severity.MEDIUM if self.peak > PEAK_FACTOR * self.limit else Severity.LOW
        return lasting if highest.at_least(lasting) else highest

    @property
    def recovery(self) -> str:
        """The end of a clause which says that it came back; empty where it did not."""
        return "" if self.ended is None else f"; it came back after step {self.ended}"

    @property
    def recovery_evidence(self) -> dict[str, JsonScalar]:
        """The step at which the excess ended, as evidence; empty if it did not."""
        return {} if self.ended is None else {"ended_step": self.ended}


def lasting_excess(series: Series, limit: float) -> Excess | None:
    """Return the lasting excess of a series over `limit`, or None.

    The onset is the step at which the mean raised the alarm; if no value since the first one above the limit was below
    it again, it is that first one, and the interval ends there. The interval begins with the previous logged step,
    since a step's value depends on weights that earlier steps made.
    """
    alarm = series.excess(limit)
    if alarm is None:
        return None
    steps, values = series.finite()
    first = series.first_above(limit, alarm)
    place = int(np.searchsorted(steps, first))
    at_once = bool((values[place : int(np.searchsorted(steps, alarm)) + 1] > limit).all())
    before, onset = int(steps[place - 1]) if place else None, first if at_once else alarm
    late = values[-series.width :] > limit
    back = last_mean(series) <= limit or late.mean() < LASTING_SHARE
    since = len(values) - int(np.searchsorted(steps, onset))
    return Excess(
        limit=limit,
        onset=onset,
        interval=(first if before is None else before, onset),
        last_good=before,
        peak=peak_median(series),
        last=last_mean(series)
        if back or since >= series.width
        else float(values[-max(since, MIN_LEVEL_VALUES) :].mean()),
        ended=int(steps[values > limit][-1]) if back else None,
    )


def gross_excess(series: Series, limit: float) -> Excess | None:
    """Return the excess of a short series whose last values are all above `limit`, or None.

    Use it for limits beyond any noise; so few values show nothing else.
    """
    steps, values = series.finite()
    within = np.flatnonzero(values <= limit)
    first = int(within[-1]) + 1 if len(within) else 0
    if len(values) - first < GROSS_VALUES:
        return None
    before = int(steps[first - 1]) if first else None
    onset = int(steps[first])
    return Excess(
        limit=limit,
        onset=onset,
        interval=(onset if before is None else before, onset),
        last_good=before,
        peak=float(np.median(values[first:])),
        last=float(np.mean(values[first:])),
        ended=None,
    )


class Measured(TypedDict):
    """The fields of a finding that a shift of one series fills."""

    observed: float
    limit: float
    onset_step: int
    onset_interval: Steps | None


def measured(shift: BaselineShift | Excess, *, observed: float | None = None) -> Measured:
    """Return a finding's numbers and onset; `observed` is the mean of the last window where it is not given."""
    return Measured(
        observed=shift.last if observed is None else observed,
        limit=shift.limit,
        onset_step=shift.onset,
        onset_interval=shift.interval,
    )


def peak_median(series: Series) -> float:
    """Return the highest median over a window; of all values where they do not fill one."""
    values = series.finite()[1]
    return float(np.median(values)) if len(values) < series.width else float(np.nanmax(series.rolling_median()))


def last_mean(series: Series) -> float:
    """Return the mean over the last window."""
    return float(series.rolling()[1][-1])


def derived(series: Series, steps: IntArray, values: FloatArray) -> Series:
    """Return values worked out from a series, under its name."""
    return replace(series, steps=steps, values=values, flags=np.zeros(len(steps), np.uint8))


def selected(series: Series, chosen: BoolArray) -> Series:
    """Return the logged values that are chosen, with their flags."""
    return replace(series, steps=series.steps[chosen], values=series.values[chosen], flags=series.flags[chosen])


def late_mean(series: Series) -> float:
    """Return the mean of the last `width` values by plain summation; `last_mean` sums as it rolls."""
    return float(series.finite()[1][-series.width :].mean())


def negated(series: Series) -> Series:
    """Return the series with its sign turned, for limits from below."""
    return replace(series, values=-series.values)


def without_zeros(series: Series) -> Series:
    """Leave out exact zeros where a fifth of the values or more are: the first update on a batch has a ratio of 1."""
    _, values = series.finite()
    zero = series.values == 0.0
    if not len(values) or zero.sum() < MIN_ZERO_SHARE * len(values) or zero.sum() == len(values):
        return series
    return selected(series, ~zero)


def aligned(first: Series, second: Series) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return the steps at which both series are finite, and the values of each there."""
    (first_steps, first_values), (second_steps, second_values) = first.finite(), second.finite()
    steps, at_first, at_second = np.intersect1d(first_steps, second_steps, return_indices=True)
    return steps, first_values[at_first], second_values[at_second]


def metric_evidence(series: Series, **more: JsonScalar) -> dict[str, JsonScalar]:
    """Return the names of a series as evidence, and `more`."""
    return {"metric": series.name, "logged_as": series.raw_name, **more}


def series_evidence(series: Series, **more: JsonScalar) -> dict[str, JsonScalar]:
    """Return the evidence of every finding on windows of a series, and `more`."""
    return metric_evidence(series, window_steps=series.width, **more)


def logarithms(series: Series) -> Series:
    """Return the natural logarithms of the positive values: factors then count the same up and down."""
    steps, values = series.finite()
    usable = values > 0
    return derived(series, steps[usable], np.log(values[usable]))
