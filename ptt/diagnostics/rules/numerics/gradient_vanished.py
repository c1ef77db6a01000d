"""This run shows gradient norms that fell to nearly nothing.

What: the 20-step geometric mean of the gradient norm fell below a hundredth of the run's first level and stayed there,
or the norm is exactly 0 for 20 logged steps in a row, up to the last window of the run; of training on given answers
at every logged step, from three of them on.
Why it matters: a step without a gradient costs as much as any other and teaches nothing.
What it is not: a failure, where the reward is near its best or the loss is almost 0: there is nothing left to learn,
and it is a note. It stays a finding where rewards still differ: half of the groups have a spread, or the norm fell a
hundred times further than the share of such groups or the spread of the rewards. Zeros that ended are a note: before
the first success of a sparse task every group fails.
What to do: with groups, look first at the share without reward spread. Otherwise look at the loss mask, the number of
samples left after filters, and the advantages.
Source: relative to the run's own level, because norms differ a thousandfold between models; arXiv 2402.03300 for groups
without spread. The last row alone decides nothing: single steps of a healthy run have almost no gradient.
"""

import math
from dataclasses import replace
from functools import reduce

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.algorithm import Family
from ptt.diagnostics.evidence.baseline_shift import EARLY_MIN_VALUES, MIN_VALUES, Z_LIMIT, early_level
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity, Steps
from ptt.diagnostics.rules.interface import EVERY, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.numerics import stretches
from ptt.diagnostics.rules.reward_outcome import reward_fell, reward_range
from ptt.diagnostics.rules.single_series import derived, logarithms, logged, metric_evidence, negated
from ptt.diagnostics.wording import pct, sig

FALL_FACTOR = 0.01  # of the early level: clipping, schedules and learning take a norm down tenfold, not a hundredfold
MIN_ZEROS = 20.0  # in a row
MIN_NEVER_FLOWED = 3  # values, all 0: a batch of given answers always has a gradient
GIVEN = frozenset({Family.SUPERVISED, Family.PREFERENCE, Family.REWARD_MODEL})
SOLVED_SHARE = 0.8  # of the way from the worst to the best reward
SIGNAL_SHARE = 0.5  # of groups with a spread of rewards: the batch is half full of signal, whatever the reward is
EXTREMES = ("critic/score/min", "critic/score/max")  # veRL, which logs no spread of rewards
LEARNT_FACTOR = 0.1  # of the early loss: what is left when given data are learnt
ENABLE = "log the gradient norm before clipping"


@dataclass(frozen=True, kw_only=True)
class Vanishing:
    """A gradient norm that is gone: since when, and how far."""

    claim: str
    onset: int
    interval: Steps
    observed: float
    limit: float
    within: Steps | None = None  # the steps it was gone at; None: up to the end
    ended: bool = False


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the logged gradient norm."""
    logged_norm = evidence.metrics.get("grad_norm")
    if logged_norm is not None and evidence.algorithm.family in GIVEN and _never_flowed(logged_norm):
        return _no_gradient(logged_norm)
    series = logged(evidence, "grad_norm", what="gradient norm", enable=ENABLE, minimum=MIN_VALUES)
    return series if isinstance(series, NotJudged) else _judge(series, evidence, limits)


def _never_flowed(series: Series) -> bool:
    values = series.finite()[1]
    return len(values) >= MIN_NEVER_FLOWED and not values.any()


def _no_gradient(series: Series) -> Finding:
    steps, values = series.finite()
    return Finding(
        severity=Severity.HIGH,
        claim=f"The gradient norm is exactly 0 at all {len(values)} logged steps: nothing is trained",
        observed=0.0,
        limit=0.0,
        unit="norm",
        onset_step=int(steps[0]),
        onset_interval=(int(steps[0]), int(steps[0])),
        evidence=metric_evidence(series),
        causes=("frozen or no trainable parameters", "a loss that does not depend on them", "an empty loss mask"),
        confirm=("count the parameters that require a gradient, and those that have one after a backward pass",),
        next=("switch gradients on for what is to be trained: adapters, unfrozen layers",),
    )


def _judge(series: Series, evidence: Evidence, limits: Limits) -> Verdict:
    zeros = _zeros(series, limits["zeros"])
    if zeros is not None and not zeros.ended:
        return _verdict(evidence, series, zeros, limits["left"])
    logs = logarithms(series)
    bound = _bound(logs, limits["left"])
    turned = negated(logs)
    onset = turned.excess(-bound) if bound is not None else None
    means = turned.rolling()[1]
    if bound is None or onset is None or -means[-1] > bound:
        _, mean = series.rolling()
        mean = mean[np.isfinite(mean)]
        return Healthy(
            reason=f"the {series.width}-step mean of the gradient norm goes from {sig(mean[0])} to {sig(mean[-1])}",
            notes=() if zeros is None else (_finding(series, zeros, Severity.LOW, "; it ended"),),
        )
    claim = f"The gradient norm fell below {pct(limits['left'])} of its first level"
    interval = turned.first_above(-bound, onset), onset
    gone = Vanishing(claim=claim, onset=onset, interval=interval, observed=math.exp(-means[-1]), limit=math.exp(bound))
    return _verdict(evidence, series, gone, limits["left"])


def _zeros(series: Series, minimum: float) -> Vanishing | None:
    """Return the longest stretch of zeros that reaches into the last window, or else the longest of all."""
    steps, values = series.finite()
    zeros = [
        (start + count > len(values) - series.width, count, start)
        for start, count in stretches(values == 0.0)
        if count >= minimum
    ]
    if not zeros:
        return None
    lasting, count, start = max(zeros)
    first, last = int(steps[start]), int(steps[start + count - 1])
    return Vanishing(
        claim=f"The gradient norm is exactly 0 at {count} logged steps in a row",
        onset=first,
        interval=(first, first),
        observed=0.0,
        limit=0.0,
        within=(first, last),
        ended=not lasting,
    )


def _bound(logs: Series, left: float) -> float | None:
    """Return the logarithm of the norm that counts as gone: far below the first steps, and below the noise.

    The first 20 values, not the first fifth: a run that collapses does so early.
    """
    level = early_level(logs)
    if level is None:
        return None
    first = float(np.median(logs.finite()[1][:EARLY_MIN_VALUES]))
    return min(first + math.log(left), first - Z_LIMIT * level.error)


def _verdict(evidence: Evidence, series: Series, gone: Vanishing, left: float) -> Verdict:
    signal = _signal(evidence, gone, _early(series), left)
    if not signal and (learnt := _learnt(evidence, gone.within)):
        note = _finding(series, gone, Severity.LOW, f"; {learnt}")
        return Healthy(reason=note.claim, notes=(note,))
    if reward_fell(evidence):
        return _finding(series, gone, Severity.HIGH, "; the reward fell as well")
    return _finding(series, gone, Severity.MEDIUM, signal)


def _finding(series: Series, gone: Vanishing, severity: Severity, clause: str) -> Finding:
    return Finding(
        severity=severity,
        claim=gone.claim + clause,
        observed=gone.observed,
        limit=gone.limit,
        unit="norm",
        onset_step=gone.onset,
        onset_interval=gone.interval,
        evidence=metric_evidence(series, early_median=_early(series)),
        causes=(
            "groups whose rewards are all equal",
            "an empty loss mask: every answer cut and masked, or every sample filtered out",
            "a policy that puts all its probability on one answer",
        ),
        confirm=(
            f"count the samples with an advantage other than 0, and the tokens in the loss, at step {gone.onset}",
        ),
        next=("first fix what empties the batch; a higher learning rate has nothing to work on",),
    )


def _early(series: Series) -> float:
    return float(np.median(series.finite()[1][:EARLY_MIN_VALUES]))


def _signal(evidence: Evidence, gone: Vanishing, usual: float, left: float) -> str:
    """Return a clause that rewards still differ by more than so small a norm suggests; "" if nothing shows that.

    The gradient is a mean over samples or groups: it falls with the share of those that have an advantage, and with the
    spread of the rewards, but not a hundred times further (`left`).
    """
    without = evidence.metrics.get("reward/zero_std_frac")
    if without is not None and len(without.finite()[0]) >= MIN_VALUES:
        spread: Series | None = replace(without, values=1 - without.values)
    else:
        without, spread = None, _spread(evidence)
    if spread is None:
        return ""
    early, late = float(spread.finite()[1][:EARLY_MIN_VALUES].mean()), _late(spread, gone.within)
    differ = early > 0 and late > 0 and gone.observed <= usual * left * late / early
    if without is not None and (differ or late >= SIGNAL_SHARE):
        return f"; rewards still differ within {pct(late)} of the groups"
    return "; rewards still differ" if differ else ""


def _spread(evidence: Evidence) -> Series | None:
    """Return the rewards' standard deviation; from mean and extremes the largest they allow (Bhatia, Davis)."""
    deviation = evidence.metrics.get("reward/std")
    if deviation is not None and len(deviation.finite()[0]) >= MIN_VALUES:
        return deviation
    candidates = (evidence.metrics.get("reward/mean"), *map(evidence.other.get, EXTREMES))
    rewards = [series for series in candidates if series is not None]
    if len(rewards) < len(candidates):
        return None
    steps = reduce(np.intersect1d, [series.finite()[0] for series in rewards])
    if len(steps) < MIN_VALUES:
        return None
    mean, low, high = (series.finite()[1][np.searchsorted(series.finite()[0], steps)] for series in rewards)
    return derived(rewards[0], steps, np.sqrt(np.clip((high - mean) * (mean - low), 0, None)))


def _late(series: Series, within: Steps | None) -> float:
    """Return the mean over the last window of what was logged within those steps, or of the run."""
    steps, values = series.finite()
    inside = values[(steps >= within[0]) & (steps <= within[1])] if within is not None else values
    return float((inside if len(inside) else values)[-series.width :].mean())


def _learnt(evidence: Evidence, within: Steps | None) -> str:
    """Return why a vanished gradient is the end of learning and no failure; empty where nothing says so."""
    reward = reward_range(evidence)
    if reward is not None and reward.best > reward.worst:
        last = _late(evidence.metrics["reward/mean"], within)
        share = (last - reward.worst) / (reward.best - reward.worst)
        return "the reward is near its best, so there is nothing left to learn" if share >= SOLVED_SHARE else ""
    loss = evidence.metrics.get("loss/total")
    if reward is None and loss is not None and len(loss.finite()[0]) >= MIN_VALUES:
        _, mean = loss.rolling()
        mean = mean[np.isfinite(mean)]
        if 0 <= _late(loss, within) <= LEARNT_FACTOR * mean[0]:
            return "the loss is almost 0, so there is nothing left to learn"
    return ""


RULE = rule(check, "gradient-vanished", Link.NUMERICS, left=FALL_FACTOR, zeros=MIN_ZEROS, families=EVERY)
