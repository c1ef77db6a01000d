"""This run shows a loss that pays the policy for being certain.

What: the logged coefficient of the entropy bonus is below 0 at most steps, so that the loss is lower the less entropy
the policy has. On its own this is a note. It is a finding where entropy fell to a fifth of its first values and stayed
there.
Why it matters: certainty is paid whether the answers are right or not. The policy settles on what it did most often at
the start, groups stop differing, and on uncertain tokens it moves far from the reference.
What it is not: a coefficient of 0, no bonus at all; or one that adapts and passes below 0 at a few steps.
What to do: turn the sign, or leave the bonus out; restart from before entropy fell. A run that minimises entropy on
purpose needs an outcome to show that it pays.
Source: TRL logs `entropy_coef` and subtracts coefficient times entropy from the loss. Entropy minimisation as a method
(arXiv 2505.15134) is done on purpose, for tens of steps.
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import MIN_LOGGED, Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.single_series import last_mean, metric_evidence
from ptt.diagnostics.wording import sig

LEFT_SHARE = 0.2  # of the first values: entropy that fades as a task is learnt keeps more
NEGATIVE_SHARE = 0.5  # of the logged steps
FIRST_VALUES = 5  # logged values that tell where entropy began: it falls from the first update on
NAMES = ("entropy_coef", "train/entropy_coef")  # TRL's, and as its trackers spell it


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the sign of the bonus by what became of the entropy."""
    series = next((evidence.other[name] for name in NAMES if name in evidence.other), None)
    if series is None or len(series.finite()[0]) < MIN_LOGGED:
        return NotJudged(
            reason="no coefficient of an entropy bonus is logged",
            missing=("entropy_coef",),
            enable="log the coefficient of the entropy bonus, as TRL does where `entropy_coef` is not 0",
        )
    steps, values = series.finite()
    negative = values < 0
    if negative.mean() < NEGATIVE_SHARE:
        return Healthy(reason=f"the entropy bonus is {sig(np.median(values))} in the median")
    first = int(np.argmax(negative))
    entropy = evidence.metrics.get("entropy")
    early, last = _fall(entropy, int(steps[first])) if entropy is not None else (np.nan, np.nan)
    fell = bool(last < limits["left"] * early)
    finding = Finding(
        severity=Severity.MEDIUM if fell else Severity.LOW,
        claim=f"The entropy bonus is negative ({sig(np.median(values[negative]))}): the loss pays for certainty"
        + (f", and entropy fell from {sig(early)} to {sig(last)} nats" if fell else ""),
        observed=float(np.median(values[negative])),
        limit=0.0,
        unit="coefficient",
        onset_step=int(steps[first]),
        onset_interval=(int(steps[max(0, first - 1)]), int(steps[first])),
        evidence=metric_evidence(
            series,
            entropy_early=early if np.isfinite(early) else None,
            entropy_late=last if np.isfinite(last) else None,
        ),
        causes=("a coefficient with the wrong sign: some trainers subtract the bonus, others add it",),
        confirm=("read 20 of the latest samples of one prompt: are they the same, and are they right?",),
        next=(
            "turn the sign of the coefficient, or set it to 0, and change nothing else",
            f"restart from a checkpoint near step {int(steps[first])}, before entropy fell",
        ),
    )
    if fell:
        return finding
    return Healthy(reason="the loss pays for certainty, but entropy has not collapsed", notes=(finding,))


def _fall(entropy: Series, since: int) -> tuple[float, float]:
    """Return the entropy when the coefficient turned negative, and at the end; NaN with too few values."""
    steps, values = entropy.finite()
    after = values[steps >= since]
    if len(after) < MIN_LOGGED:
        return np.nan, np.nan
    return float(np.median(after[:FIRST_VALUES])), last_mean(entropy)


RULE = rule(check, "negative-entropy-bonus", Link.EXPLORATION, max_severity=Severity.MEDIUM, left=LEFT_SHARE)
