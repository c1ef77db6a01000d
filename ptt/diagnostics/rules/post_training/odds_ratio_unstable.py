"""This run shows a log odds ratio that swings ever more widely.

What: the step-to-step movement of ORPO's mean log sigmoid of the odds ratio rises to three times its early size and
beyond 0.25, and stays there.
Why it matters: that term's gradient goes with how wrong the odds are; where it swings, single pairs rule the update
and the likelihood part no longer does.
What to do: lower the learning rate or the weight of the odds-ratio term (beta), and look for near-empty answers.
Source: odds ratio preference optimisation (arXiv 2403.07691, eq. 6); relative to the run's own early movement.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES, lasting_rise
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, does_not_apply, rule
from ptt.diagnostics.rules.post_training import PREFERENCE
from ptt.diagnostics.rules.single_series import logged

TIMES = 3.0  # the early movement
FLOOR = 0.25  # of the mean log sigmoid, whose level for chance is -ln 2: less turns nothing round


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge how far the log odds ratio moves from one logged value to the next."""
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
    moves = _moves(series)
    found = lasting_rise(moves, floor=limits["floor"], factor=TIMES)
    middle = float(np.median(moves.finite()[1]))
    if found is None or found.ended:
        reason = f"the log odds ratio moves by {middle:.2g} from one logged value to the next"
        return Healthy(reason=reason)
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"The log odds ratio swings by {found.extreme:.2g} from step to step, early by {found.early:.2g}",
        observed=found.extreme,
        limit=found.limit,
        unit="nats",
        onset_step=found.onset,
        onset_interval=found.interval,
        evidence={"metric": series.name, "logged_as": series.raw_name, "last": found.last},
        causes=("a learning rate too high", "pairs with an almost empty answer, whose odds have no bound"),
        confirm=(f"list the shortest answers of the batches around step {found.onset}",),
        next=("drop answers of a few tokens", "rerun from before it with half the learning rate"),
    )


def _moves(series: Series) -> Series:
    steps, values = series.finite()
    moves = np.abs(np.diff(values))
    return replace(series, steps=steps[1:], values=moves, flags=np.zeros(len(moves), np.uint8))


RULE = rule(check, "odds-ratio-unstable", Link.NUMERICS, floor=FLOOR, families=PREFERENCE)
