"""This run shows responses that grow far longer without achieving more.

What: the mean response length lies lastingly above one and a half times its early level, and since then no outcome rose
by a third of that growth; where no outcome can be judged, the mean reward did not.
Why it matters: length costs time and memory, runs into the token limit, and is the easiest way to please a reward.
What it is not: longer answers that solve the task more often, or did for as long as they grew. Where noise hides
whether they do, or nothing logged shows it, the finding is low; likewise where they grow from one step to the next and
the reward does not fall, as with longer tasks. Not judged where the reward fell while an outcome rose by a tenth, since
then it does not measure the outcome, or where failures came to take a tenth more of the samples, which hold the reward
down.
What to do: read long and short samples of one prompt; compare reward with length within prompts. If length is rewarded,
cap it or remove it from the reward, in a short run first.
Source: Singhal et al., A Long Way to Go: Investigating Length Correlations in RLHF (arXiv 2310.03716).
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import (
    CHANGE_SDS,
    MIN_VALUES,
    change_since,
    change_since_start,
    lasting_rise,
)
from ptt.diagnostics.evidence.outcome_agreement import MIN_AGREEMENT, OutcomeState
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import LANGUAGE, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.reward import NEW_TASKS, OUTCOME_ENABLE, gains_since, risen_outcomes, with_new_tasks
from ptt.diagnostics.rules.single_series import requires_metric
from ptt.diagnostics.wording import pct, sig

# times the early length: healthy runs that learn to reason or to call tools reach less, or gain by it
GROWTH_FACTOR = 1.5
START_FACTOR = 1.25  # of the early length, half-way to the limit: gains since then are compared with the longer answers
LOST_SHARE = 0.1  # of the samples, more than before: what they take from the reward may hide a gain
MIN_LENGTH = 16.0  # tokens: below, a factor says nothing
ENABLE = "log it: TRL logs completions/mean_length, veRL response_length/mean, slime rollout/response_len/mean"


@requires_metric("len/response_mean", what="mean response length", enable=ENABLE, minimum=MIN_VALUES)
def check(length: Series, evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the mean response length, beside the outcomes."""
    growth = lasting_rise(length, floor=MIN_LENGTH, factor=limits["growth"])
    change = change_since_start(length)
    start = int(length.finite()[0][length.width - 1])  # grown from the start on, unless a lasting rise began later
    if growth is not None:
        slight = lasting_rise(length, floor=MIN_LENGTH, factor=START_FACTOR)
        start = max(start, slight.interval[0]) if slight is not None else start
    if (
        change is not None
        and change.sds >= CHANGE_SDS
        and change.late >= max(MIN_LENGTH, limits["growth"] * change.start)
    ):
        early, late, onset, interval = change.start, change.late, change.onset, change.interval
    elif growth is not None and not growth.ended:
        early, late, onset, interval = growth.early, growth.last, growth.onset, growth.interval
    else:
        return Healthy(reason="the response length stays near its early level")
    steps, smooth = length.rolling()
    grew = (start if onset is None else min(start, onset), int(steps[np.nanargmax(smooth)]))
    gains = gains_since(evidence, start, MIN_AGREEMENT * (1 - early / late), grew=grew)
    risen = [gain for gain in gains if gain.state is OutcomeState.ROSE]
    if risen:
        return Healthy(reason=f"responses grew {sig(early)} → {sig(late)}, and {risen[0].words} with them")
    if (why := _hidden_gain(evidence, start)) is not None:
        reason = f"responses grew {sig(early)} → {sig(late)}, and {why}"
        return NotJudged(reason=reason, missing=("outcome",), enable=OUTCOME_ENABLE)
    flat = [gain for gain in gains if gain.state is OutcomeState.FLAT]
    clause = f" while {flat[0].words} did not rise" if flat else ""
    at_once = with_new_tasks(evidence, length, early, late, onset)
    return Finding(
        severity=Severity.MEDIUM if flat and not at_once else Severity.LOW,
        claim=f"Responses grew {early:.4g} → {late:.4g} tokens{' at once' if at_once else ''}{clause}",
        observed=late / early if early > 0 else None,
        limit=limits["growth"],
        unit="x",
        onset_step=onset,
        onset_interval=interval,
        evidence={"metric": "len/response_mean", "logged_as": length.raw_name, "early": early, "late": late},
        causes=(*((NEW_TASKS,) if at_once else ()), "the reward, or its judge, pays for length",
                "a loss that is averaged by sequence favours long wrong answers",
                "answers that no longer end: the end token became rare"),
        confirm=("compare reward with length among samples of one prompt: do longer ones win at the same outcome?",
                 "read five of the longest samples: steps of work, repetition, or padding?"),
        next=("try a length penalty or a cap in a short run and change nothing else; decide by the outcome",),
    )  # fmt: skip


def _hidden_gain(evidence: Evidence, start: int) -> str | None:
    """Return why a reward that does not rise says nothing of longer answers; None where it may."""
    reward = evidence.metrics.get("reward/mean")
    change = change_since_start(reward) if reward is not None else None
    risen = risen_outcomes(evidence, start, start)
    if risen and change is not None and change.sds <= -CHANGE_SDS:
        return f"{risen[0].words} rose while the reward fell: the reward does not measure the outcome"
    lost = evidence.counters.lost if evidence.counters is not None else None
    more = change_since(lost, start) if lost is not None else None
    if more is not None and more.sds >= CHANGE_SDS and more.amount >= LOST_SHARE:
        return f"{pct(more.late)} of the samples are lost to failures, {pct(more.start)} before: which may hide a gain"
    return None


RULE = rule(
    check, "length-inflation", Link.REWARD, max_severity=Severity.MEDIUM, growth=GROWTH_FACTOR, families=LANGUAGE
)
