"""This run shows a critic that explains nothing of the returns.

What: the explained variance stays below zero by more than 0.05 after the first steps (medium); or it ends within
0.05 below and 0.1 above zero, after at least 50 steps (low): the critic has not learnt.
Why it matters: below zero a critic is worse than predicting the mean return for every state; the advantages it gives
are noise added to the reward.
What it is not: a warm-up. A new critic starts at zero, and the first fifth of the run does not count.
What to do: fix one batch of rollouts, keep the policy still and train the critic alone; mend targets and masks if it
cannot fit them; then the scale of returns, then its learning rate.
Source: the definition, 1 - Var(return - value) / Var(return), as veRL logs it in `critic/vf_explained_var`.
"""

from dataclasses import replace

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity, Steps
from ptt.diagnostics.rules.critic import FIT, REPAIRS, of_critic
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Rule, Verdict
from ptt.diagnostics.rules.single_series import last_mean, lasting_excess, negated, series_evidence

WORSE = -0.05  # below zero by more than an estimate from one batch scatters
LEARNT = 0.1  # the least that counts as having learnt something
LONG = 50  # logged steps: before that a critic may still be learning
WARM_UP = 0.2  # of the logged steps: a new critic starts at zero and may overshoot


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the logged explained variance after its warm-up."""
    series = of_critic(evidence, "critic/explained_variance", what="explained variance")
    if isinstance(series, NotJudged):
        return series
    last = last_mean(series)
    found = lasting_excess(negated(_warm(series)), -limits["worse"])
    if found is not None and last < limits["worse"]:
        claim = f"The critic is worse than the mean return: explained variance ends at {last:.3g}"
        return _finding(series, Severity.MEDIUM, claim, limits["worse"], found.onset, found.interval)
    steps = series.finite()[0]
    if last < limits["learnt"] and len(steps) >= LONG:
        claim = f"The critic has not learnt the returns: explained variance ends at {last:.3g}"
        onset, span = int(steps[-1]), (int(steps[-series.width]), int(steps[-1]))
        return _finding(series, Severity.LOW, claim, limits["learnt"], onset, span)
    return Healthy(reason=f"explained variance ends at {last:.3g}")


def _warm(series: Series) -> Series:
    skipped = int(WARM_UP * len(series.steps))
    parts = {"steps": series.steps[skipped:], "values": series.values[skipped:], "flags": series.flags[skipped:]}
    return replace(series, **parts)  # type: ignore[arg-type]


def _finding(series: Series, severity: Severity, claim: str, limit: float, onset: int, interval: Steps) -> Finding:
    return Finding(
        severity=severity,
        claim=claim,
        observed=last_mean(series),
        limit=limit,
        unit="share of variance",
        onset_step=onset,
        onset_interval=interval,
        evidence=series_evidence(series),
        causes=(
            "the critic's learning rate does not suit it",
            "returns on another scale than the values",
            "wrong bootstrap targets or masks at the end of a sequence",
            "returns that the state does not tell: a reward that is noise",
        ),
        confirm=(FIT,),
        next=REPAIRS,
    )


RULE = Rule(id="explained-variance-low", link=Link.CRITIC, check=check, limits={"worse": WORSE, "learnt": LEARNT})
