"""This run shows gradient norms that fell to nearly nothing.

What: the 20-step geometric mean of the gradient norm fell below a hundredth of the run's first level and stayed there,
or the norm is exactly 0 for 20 logged steps in a row.
Why it matters: a step without gradient costs as much as any other and teaches nothing.
What it is not: a failure, where the reward stands near its best or the loss has all but gone: there is nothing left to
learn, and it is a note. But not where rewards still differ: where half of the groups have a spread, or where the norm
fell a hundred times further than the share of such groups did, or than the spread of the rewards.
What to do: with groups, look at the share without reward spread first. Otherwise look at the loss mask, at how many
samples are left after filters, and at the advantages.
Source: relative to the run's own level, since norms differ a thousandfold between models; arXiv 2402.03300 for groups
without spread. The last row alone decides nothing: single steps of a healthy run have next to no gradient.
"""

import math
from dataclasses import replace

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.departures import EARLY_LEAST, LEAST, SDS, early_level
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Broken, Finding, Healthy, Link, NotJudged, RuleVerdict, Severity, Steps
from ptt.diagnostics.rules.interface import Limits, Rule
from ptt.diagnostics.rules.numerics.common import longest_true
from ptt.diagnostics.rules.reading import in_logs, logged, reward_fell, reward_range

ID = "gradient-vanished"
LEFT = 0.01  # of the early level: clipping, schedules and learning itself take a norm down tenfold, not a hundredfold
ZEROS = 20.0  # in a row
SOLVED = 0.8  # of the way from the worst to the best reward
MOST_GROUPS = 0.5  # with a spread of rewards: then the batch is half full of signal, whatever the reward is
EXTREMES = ("critic/score/min", "critic/score/max")  # veRL, which logs no spread of rewards
LEARNT = 0.1  # of the early loss: what is left when given data are learnt


def check(evidence: Evidence, limits: Limits) -> RuleVerdict:
    """Judge the logged gradient norm."""
    series = logged(
        evidence,
        "grad_norm",
        rule=ID,
        link=Link.NUMERICS,
        what="gradient norm",
        enable="log the gradient norm before clipping",
        least=LEAST,
    )
    if isinstance(series, NotJudged):
        return series
    steps, values = series.finite()
    place, count = longest_true(values == 0.0)
    if count >= limits["zeros"]:
        first = int(steps[place])
        claim = f"The gradient norm is exactly 0 at {count} logged steps in a row"
        return _verdict(evidence, series, claim, first, (first, first), 0.0, 0.0, limits["left"])
    logs = in_logs(series)
    bound = _bound(logs, limits["left"])
    turned = replace(logs, values=-logs.values)
    onset = turned.excess(-bound) if bound is not None else None
    means = turned.rolling()[1]
    if bound is None or onset is None or -means[-1] > bound:
        _, mean = series.rolling()
        mean = mean[np.isfinite(mean)]
        return Healthy(
            id=ID,
            link=Link.NUMERICS,
            reason=f"the {series.width}-step mean of the gradient norm goes from {mean[0]:.2g} to {mean[-1]:.2g}",
        )
    claim = f"The gradient norm fell below {limits['left']:.0%} of its first level"
    interval = turned.first_above(-bound, onset), onset
    return _verdict(evidence, series, claim, onset, interval, math.exp(-means[-1]), math.exp(bound), limits["left"])


def _bound(logs: Series, left: float) -> float | None:
    """Give the logarithm of the norm that counts as gone: far below the first steps, and below the noise.

    The first 20 values, not the first fifth: a run that collapses does so early.
    """
    level = early_level(logs)
    if level is None:
        return None
    first = float(np.median(logs.finite()[1][:EARLY_LEAST]))
    return min(first + math.log(left), first - SDS * level.error)


def _verdict(
    evidence: Evidence,
    series: Series,
    claim: str,
    onset: int,
    interval: Steps,
    observed: float,
    limit: float,
    left: float,
) -> RuleVerdict:
    signal = _signal(evidence, observed, _early(series), left)
    learnt = "" if signal else _learnt(evidence)
    lost = reward_fell(evidence)
    told = "; the reward fell as well" if lost else signal
    finding = Finding(
        id=ID,
        severity=Severity.LOW if learnt else Severity.HIGH if lost else Severity.MEDIUM,
        link=Link.NUMERICS,
        claim=claim + (f"; {learnt}" if learnt else told),
        observed=observed,
        limit=limit,
        unit="norm",
        onset_step=onset,
        onset_interval=interval,
        evidence={"metric": "grad_norm", "logged_as": series.raw_name, "early_median": float(_early(series))},
        causes=(
            "groups whose rewards are all alike",
            "an empty loss mask: every answer cut and masked, or every sample filtered",
            "a policy that puts all its probability on one answer",
        ),
        confirm=(f"count the samples with an advantage other than 0, and the tokens in the loss, at step {onset}",),
        next=("mend what empties the batch first; a higher learning rate has nothing to work on",),
    )
    if learnt:
        return Healthy(id=ID, link=Link.NUMERICS, reason=f"{claim}; {learnt}", notes=(finding,))
    return Broken(findings=(finding,))


def _early(series: Series) -> float:
    return float(np.median(series.finite()[1][:EARLY_LEAST]))


def _signal(evidence: Evidence, norm: float, usual: float, left: float) -> str:
    """Say that rewards still differ by more than so small a norm tells; empty where nothing says so.

    The gradient is a mean over samples or groups: it falls as the share of those that have
    an advantage does, and as the spread of the rewards; not a hundred times further (`left`).
    """
    without = evidence.metrics.get("reward/zero_std_frac")
    if without is not None and len(without.finite()[0]) >= LEAST:
        share = replace(without, values=1 - without.values)
        early, late = _ends(share)
        if late >= MOST_GROUPS or (early > 0 and norm <= usual * left * late / early):
            return f"; rewards still differ within {late:.0%} of the groups"
        return ""
    spread = _spread(evidence)
    if spread is None:
        return ""
    early, late = _ends(spread)
    return "; rewards still differ" if early > 0 and late > 0 and norm <= usual * left * late / early else ""


def _spread(evidence: Evidence) -> Series | None:
    """Give the rewards' standard deviation; from mean and extremes the largest one that they allow (Bhatia, Davis)."""
    held = evidence.metrics.get("reward/std")
    if held is not None and len(held.finite()[0]) >= LEAST:
        return held
    extremes = [evidence.other.get(raw) for raw in EXTREMES]
    mean, least, most = (one for one in (evidence.metrics.get("reward/mean"), *extremes))
    if mean is None or least is None or most is None:
        return None
    steps = np.intersect1d(np.intersect1d(mean.finite()[0], least.finite()[0]), most.finite()[0])
    if len(steps) < LEAST:
        return None
    at, low, high = (one.finite()[1][np.searchsorted(one.finite()[0], steps)] for one in (mean, least, most))
    values = np.sqrt(np.clip((high - at) * (at - low), 0, None))
    return replace(mean, steps=steps, values=values, flags=np.zeros(len(steps), np.uint8))


def _ends(series: Series) -> tuple[float, float]:
    values = series.finite()[1]
    return float(values[:EARLY_LEAST].mean()), float(values[-series.width :].mean())


def _learnt(evidence: Evidence) -> str:
    """Say why a vanished gradient is the end of learning and no failure; empty where nothing says so."""
    reward = reward_range(evidence)
    if reward is not None and reward.best > reward.worst:
        share = (reward.last - reward.worst) / (reward.best - reward.worst)
        return "the reward stands near its best, so there is nothing left to learn" if share >= SOLVED else ""
    loss = evidence.metrics.get("loss/total")
    if reward is None and loss is not None and len(loss.finite()[0]) >= LEAST:
        _, mean = loss.rolling()
        mean = mean[np.isfinite(mean)]
        if 0 <= mean[-1] <= LEARNT * mean[0]:
            return "the loss has all but gone, so there is nothing left to learn"
    return ""


RULE = Rule(id=ID, link=Link.NUMERICS, check=check, limits={"left": LEFT, "zeros": ZEROS})
