"""This run shows gradient norms that fell to nearly nothing.

What: the 20-step geometric mean of the gradient norm fell below a hundredth of the run's first level and stayed there,
or the norm is exactly 0 for 20 logged steps in a row, up to the last window of the run.
Why it matters: a step without gradient costs as much as any other and teaches nothing.
What it is not: a failure, where the reward stands near its best or the loss has all but gone: there is nothing left to
learn, and it is a note. But not where rewards still differ: where half of the groups have a spread, or where the norm
fell a hundred times further than the share of such groups did, or than the spread of the rewards. Zeros
that ended are a note: before the first success of a sparse task every group fails alike.
What to do: with groups, look at the share without reward spread first. Otherwise look at the loss mask, at how many
samples are left after filters, and at the advantages.
Source: relative to the run's own level, since norms differ a thousandfold between models; arXiv 2402.03300 for groups
without spread. The last row alone decides nothing: single steps of a healthy run have next to no gradient.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import EARLY_MIN_VALUES, MIN_VALUES, Z_LIMIT, early_level
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity, Steps
from ptt.diagnostics.rules.interface import EVERY, Finding, Healthy, Limits, NotJudged, Rule, Verdict
from ptt.diagnostics.rules.numerics import stretches
from ptt.diagnostics.rules.reward_outcome import reward_fell, reward_range
from ptt.diagnostics.rules.single_series import logarithms, logged

LEFT = 0.01  # of the early level: clipping, schedules and learning itself take a norm down tenfold, not a hundredfold
ZEROS = 20.0  # in a row
SOLVED = 0.8  # of the way from the worst to the best reward
MOST_GROUPS = 0.5  # with a spread of rewards: then the batch is half full of signal, whatever the reward is
EXTREMES = ("critic/score/min", "critic/score/max")  # veRL, which logs no spread of rewards
LEARNT = 0.1  # of the early loss: what is left when given data are learnt


@dataclass(frozen=True, kw_only=True)
class Gone:
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
    series = logged(
        evidence, "grad_norm", what="gradient norm", enable="log the gradient norm before clipping", minimum=MIN_VALUES
    )
    if isinstance(series, NotJudged):
        return series
    zeros = _zeros(series, limits["zeros"])
    if zeros is not None and not zeros.ended:
        return _verdict(evidence, series, zeros, limits["left"])
    logs = logarithms(series)
    bound = _bound(logs, limits["left"])
    turned = replace(logs, values=-logs.values)
    onset = turned.excess(-bound) if bound is not None else None
    means = turned.rolling()[1]
    if bound is None or onset is None or -means[-1] > bound:
        _, mean = series.rolling()
        mean = mean[np.isfinite(mean)]
        return Healthy(
            reason=f"the {series.width}-step mean of the gradient norm goes from {mean[0]:.2g} to {mean[-1]:.2g}",
            notes=() if zeros is None else (_finding(series, zeros, Severity.LOW, "; it ended"),),
        )
    claim = f"The gradient norm fell below {limits['left']:.0%} of its first level"
    interval = turned.first_above(-bound, onset), onset
    gone = Gone(claim=claim, onset=onset, interval=interval, observed=math.exp(-means[-1]), limit=math.exp(bound))
    return _verdict(evidence, series, gone, limits["left"])


def _zeros(series: Series, least: float) -> Gone | None:
    """Give the longest stretch of zeros that reaches the last window, or else the longest one."""
    steps, values = series.finite()
    found = [
        (place + count > len(values) - series.width, count, place)
        for place, count in stretches(values == 0.0)
        if count >= least
    ]
    if not found:
        return None
    lasting, count, place = max(found)
    first, last = int(steps[place]), int(steps[place + count - 1])
    return Gone(
        claim=f"The gradient norm is exactly 0 at {count} logged steps in a row",
        onset=first,
        interval=(first, first),
        observed=0.0,
        limit=0.0,
        within=(first, last),
        ended=not lasting,
    )


def _bound(logs: Series, left: float) -> float | None:
    """Give the logarithm of the norm that counts as gone: far below the first steps, and below the noise.

    The first 20 values, not the first fifth: a run that collapses does so early.
    """
    level = early_level(logs)
    if level is None:
        return None
    first = float(np.median(logs.finite()[1][:EARLY_MIN_VALUES]))
    return min(first + math.log(left), first - Z_LIMIT * level.error)


def _verdict(evidence: Evidence, series: Series, gone: Gone, left: float) -> Verdict:
    signal = _signal(evidence, gone, _early(series), left)
    learnt = "" if signal else _learnt(evidence, gone.within)
    lost = reward_fell(evidence)
    if learnt:
        note = _finding(series, gone, Severity.LOW, f"; {learnt}")
        return Healthy(reason=note.claim, notes=(note,))
    severity = Severity.HIGH if lost else Severity.MEDIUM
    return _finding(series, gone, severity, "; the reward fell as well" if lost else signal)


def _finding(series: Series, gone: Gone, severity: Severity, told: str) -> Finding:
    return Finding(
        severity=severity,
        claim=gone.claim + told,
        observed=gone.observed,
        limit=gone.limit,
        unit="norm",
        onset_step=gone.onset,
        onset_interval=gone.interval,
        evidence={"metric": "grad_norm", "logged_as": series.raw_name, "early_median": float(_early(series))},
        causes=(
            "groups whose rewards are all alike",
            "an empty loss mask: every answer cut and masked, or every sample filtered",
            "a policy that puts all its probability on one answer",
        ),
        confirm=(
            f"count the samples with an advantage other than 0, and the tokens in the loss, at step {gone.onset}",
        ),
        next=("mend what empties the batch first; a higher learning rate has nothing to work on",),
    )


def _early(series: Series) -> float:
    return float(np.median(series.finite()[1][:EARLY_MIN_VALUES]))


def _signal(evidence: Evidence, gone: Gone, usual: float, left: float) -> str:
    """Say that rewards still differ by more than so small a norm tells; empty where nothing says so.

    The gradient is a mean over samples or groups: it falls as the share of those that have
    an advantage does, and as the spread of the rewards; not a hundred times further (`left`).
    """
    without = evidence.metrics.get("reward/zero_std_frac")
    if without is not None and len(without.finite()[0]) >= MIN_VALUES:
        share = replace(without, values=1 - without.values)
        early, late = _ends(share, gone.within)
        if late >= MOST_GROUPS or (early > 0 and late > 0 and gone.observed <= usual * left * late / early):
            return f"; rewards still differ within {late:.0%} of the groups"
        return ""
    spread = _spread(evidence)
    if spread is None:
        return ""
    early, late = _ends(spread, gone.within)
    differ = early > 0 and late > 0 and gone.observed <= usual * left * late / early
    return "; rewards still differ" if differ else ""


def _spread(evidence: Evidence) -> Series | None:
    """Give the rewards' standard deviation; from mean and extremes the largest one that they allow (Bhatia, Davis)."""
    held = evidence.metrics.get("reward/std")
    if held is not None and len(held.finite()[0]) >= MIN_VALUES:
        return held
    extremes = [evidence.other.get(raw) for raw in EXTREMES]
    mean, least, most = (one for one in (evidence.metrics.get("reward/mean"), *extremes))
    if mean is None or least is None or most is None:
        return None
    steps = np.intersect1d(np.intersect1d(mean.finite()[0], least.finite()[0]), most.finite()[0])
    if len(steps) < MIN_VALUES:
        return None
    at, low, high = (one.finite()[1][np.searchsorted(one.finite()[0], steps)] for one in (mean, least, most))
    values = np.sqrt(np.clip((high - at) * (at - low), 0, None))
    return replace(mean, steps=steps, values=values, flags=np.zeros(len(steps), np.uint8))


def _ends(series: Series, within: Steps | None) -> tuple[float, float]:
    return float(series.finite()[1][:EARLY_MIN_VALUES].mean()), _late(series, within)


def _late(series: Series, within: Steps | None) -> float:
    """Give the mean over the last window of what was logged within those steps, or of the run."""
    steps, values = series.finite()
    held = values[(steps >= within[0]) & (steps <= within[1])] if within is not None else values
    return float((held if len(held) else values)[-series.width :].mean())


def _learnt(evidence: Evidence, within: Steps | None) -> str:
    """Say why a vanished gradient is the end of learning and no failure; empty where nothing says so."""
    reward = reward_range(evidence)
    if reward is not None and reward.best > reward.worst:
        last = _late(evidence.metrics["reward/mean"], within)
        share = (last - reward.worst) / (reward.best - reward.worst)
        return "the reward stands near its best, so there is nothing left to learn" if share >= SOLVED else ""
    loss = evidence.metrics.get("loss/total")
    if reward is None and loss is not None and len(loss.finite()[0]) >= MIN_VALUES:
        _, mean = loss.rolling()
        mean = mean[np.isfinite(mean)]
        if 0 <= _late(loss, within) <= LEARNT * mean[0]:
            return "the loss has all but gone, so there is nothing left to learn"
    return ""


RULE = Rule(
    id="gradient-vanished", link=Link.NUMERICS, check=check, limits={"left": LEFT, "zeros": ZEROS}, families=EVERY
)
