"""This run shows a log odds ratio that swings ever more widely.

What: the step-to-step movement of ORPO's mean log sigmoid of the odds ratio rises to three times its early size and
beyond 0.25, and stays there.
Why it matters: that term's gradient grows with how wrong the odds are. Where it swings, single pairs drive the update
and the likelihood term no longer does.
What to do: lower the learning rate or the weight of the odds-ratio term (beta), and look for near-empty answers.
Source: odds ratio preference optimisation (arXiv 2403.07691, eq. 6); relative to the run's own early movement.
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES, lasting_rise
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, does_not_apply, requires, rule
from ptt.diagnostics.rules.post_training import PREFERENCE
from ptt.diagnostics.rules.single_series import derived, logged, measured
from ptt.diagnostics.wording import sig

GROWTH_FACTOR = 3.0  # the early movement
FLOOR = 0.25  # of the mean log sigmoid, which is -ln 2 at chance: less reverses no ranking


def _moves(evidence: Evidence) -> Series | NotJudged:
    """Return how far the log odds ratio moves from one logged value to the next."""
    if evidence.algorithm.name not in (None, "orpo"):
        return does_not_apply(f"{evidence.algorithm.title} training")
    series = logged(
        evidence,
        "orpo/log_odds_ratio",
        what="log odds ratio",
        enable="only ORPO has it; TRL's ORPOTrainer logs log_odds_ratio",
        minimum=MIN_VALUES + 1,
    )
    if isinstance(series, NotJudged):
        return series
    steps, values = series.finite()
    return derived(series, steps[1:], np.abs(np.diff(values)))


@requires(_moves)
def check(moves: Series, _: Evidence, limits: Limits) -> Verdict:
    """Judge how far the log odds ratio moves from one logged value to the next."""
    rise = lasting_rise(moves, floor=limits["floor"], factor=GROWTH_FACTOR)
    median = float(np.median(moves.finite()[1]))
    if rise is None or rise.ended:
        return Healthy(reason=f"the log odds ratio moves by {sig(median)} from one logged value to the next")
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"The log odds ratio swings by {sig(rise.extreme)} from step to step, up from {sig(rise.early)} early on",
        unit="nats",
        **measured(rise, observed=rise.extreme),
        evidence={"metric": moves.name, "logged_as": moves.raw_name, "last": rise.last},
        causes=("a learning rate that is too high", "pairs with an almost empty answer, whose odds have no bound"),
        confirm=(f"list the shortest answers of the batches around step {rise.onset}",),
        next=("drop answers that have only a few tokens", "rerun from before it with half the learning rate"),
    )


RULE = rule(check, "odds-ratio-unstable", Link.NUMERICS, max_severity=Severity.MEDIUM, floor=FLOOR, families=PREFERENCE)
