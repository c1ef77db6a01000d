"""This run shows a reward that rises while what it stands for does not.

What: the mean reward rose for good, beyond its own noise, while an outcome fell, or stayed flat as side metrics
(length, repetition, format, refusals, tool calls) shifted, or stayed below 0.05 of 1 while the reward gained 0.2; and
no outcome rose. An outcome is the logged share of tasks done in training, a true score beside the reward, or a figure
of a held-out evaluation, over the whole run or its later part; an evaluation that measures the same reward again is not
one. Where answers changed in this way and a held-out figure did not follow, the share of tasks done in training does
not count: it is rewarded, so it can be gamed. The onset is where reward and outcome part.
Why it matters: the policy optimises what is rewarded. From the onset on, every step makes it better at earning reward
and no better, or worse, at the task; the reward curve cannot show it.
What it is not: a solved task, where the outcome is at its ceiling; a reward and an outcome that fall together; or an
evaluation that falls alone, by less than half, while no side metric shifts and no outcome of training fell as well:
training may simply not teach what it measures (eval-not-following). A low level of ranking (ndcg, MRR, recall) is no
undone task.
What to do: in this order: make sure that the evaluation has not changed; read the highest-reward samples; look at the
reward part by part; check whether the policy left the reference; then change the reward one part at a time in a short
run, and decide by the outcome.
Source: Gao, Schulman and Hilton, Scaling Laws for Reward Model Overoptimization (arXiv 2210.10760): the proxy keeps
rising after the true reward has turned. Amodei et al., Concrete Problems in AI Safety (arXiv 1606.06565), section 4.
"""

from collections.abc import Sequence

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import departure
from ptt.diagnostics.evidence.outcome_agreement import (
    MIN_LOSS,
    NEARLY_NOTHING,
    Outcome,
    OutcomeState,
    is_ranking,
    judge_outcomes,
    recorded_outcomes,
)
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity, Steps
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.reward import (
    OUTCOME_ENABLE,
    Shift,
    highest_samples,
    requires_reward,
    rewards_of,
    side_shifts,
)
from ptt.diagnostics.statistics.bootstrap import finite_or_none
from ptt.diagnostics.wording import sig

LOST_SHARE = 0.5  # of its best: an outcome that lost more is gone, and checkpoints since then are useless
STATE_WORDS = {
    OutcomeState.UNSURE: "did not clearly move",
    OutcomeState.FLAT: "stayed flat",
    OutcomeState.SOLVED: "is near 1",
}


@requires_reward
def check(reward: Series, evidence: Evidence, limits: Limits) -> Verdict:
    """Hold the reward against every outcome."""
    outcomes = judge_outcomes(evidence, reward)
    if not outcomes:
        few = recorded_outcomes(evidence)
        return NotJudged(
            reason=f"too few values of {', '.join(few[:3])} are logged"
            if few
            else "no outcome is logged beside the reward",
            missing=("an outcome beside the reward",),
            enable=OUTCOME_ENABLE,
        )
    shifts = side_shifts(evidence)
    behind = [
        outcome
        for outcome in outcomes
        if outcome.reward_rose and outcome.state in (OutcomeState.FELL, OutcomeState.FLAT)
    ]
    against = _against(outcomes, behind, shifted=bool(shifts), lost=limits["lost"])
    if against:
        worst = min(against, key=lambda one: (one.onset is None, one.onset or 0, one.evaluation, one.name))
        names = ", ".join(sorted({outcome.name for outcome in against}))
        return _finding(evidence, worst, names, shifts, _interval(worst, behind, reward, shifts), limits["lost"])
    if all(outcome.state is OutcomeState.UNSURE for outcome in outcomes) and any(
        outcome.reward_rose for outcome in outcomes
    ):
        return NotJudged(
            reason=f"the reward rose, but {outcomes[0].name} is too noisy to say whether it did",
            missing=("more evaluation points, or more samples a point, of an outcome",),
            enable=OUTCOME_ENABLE,
        )
    moves = "; ".join(
        f"{one.name} {STATE_WORDS.get(one.state, one.state)} ({sig(one.early)} → {sig(one.late)})"
        for one in outcomes[:2]
    )
    return Healthy(reason=moves + ("; no side metric shifted" if behind and not shifts else ""))


def _against(
    outcomes: Sequence[Outcome], behind: Sequence[Outcome], *, shifted: bool, lost: float
) -> Sequence[Outcome]:
    """Return the outcomes that show it; none where one rose with the reward.

    Where answers changed and an evaluation was left behind, an outcome of training that rose is no witness: it is part
    of what is paid, and rises with the reward by itself.
    """
    overruled = shifted and any(outcome.evaluation for outcome in behind)
    if any(
        outcome.state in (OutcomeState.ROSE, OutcomeState.SOLVED) and (outcome.evaluation or not overruled)
        for outcome in outcomes
    ):
        return ()
    fallen = [outcome for outcome in behind if outcome.state is OutcomeState.FELL]
    if not shifted and not _both_lost(
        behind
    ):  # an evaluation alone that lost a part may also ask for what training does not teach
        fallen = [outcome for outcome in fallen if not outcome.evaluation or _gained_share(outcome) <= -lost]
    undone = [
        outcome
        for outcome in behind
        if outcome.state is OutcomeState.FLAT and outcome.late <= NEARLY_NOTHING and not is_ranking(outcome.name)
    ]
    return fallen or (behind if shifted else undone)


def _both_lost(behind: Sequence[Outcome]) -> bool:
    """Return whether an evaluation fell and an outcome of training lost as much of its level: each confirms the other.

    That one is more than noise: it could not have risen by a third of the reward's gain.
    """
    lost = [one.evaluation for one in behind if _gained_share(one) <= -MIN_LOSS]
    fell = any(one.evaluation and one.state is OutcomeState.FELL for one in behind)
    return fell and not all(lost)


def _gained_share(outcome: Outcome) -> float:
    """Return what an outcome gained, of its larger level."""
    return (outcome.late - outcome.early) / max(abs(outcome.early), abs(outcome.late), 1e-300)


def _finding(
    evidence: Evidence, worst: Outcome, names: str, shifts: Sequence[Shift], interval: Steps | None, lost: float
) -> Finding:
    fell = worst.state is OutcomeState.FELL
    share = _gained_share(worst)
    reward_early, reward_late, early, late = finite_or_none(
        [worst.reward_early, worst.reward_late, worst.early, worst.late]
    )
    return Finding(
        severity=Severity.CRITICAL if fell and share <= -lost else Severity.HIGH,
        claim=f"The reward rose {sig(worst.reward_early)} → {sig(worst.reward_late)} while {worst.name}"
        f" {'fell' if fell else 'stayed flat'} ({sig(worst.early)} → {sig(worst.late)})"
        + (f"; {shifts[0].words}" if shifts else ""),
        observed=share,
        limit=-lost if fell else 0.0,
        unit="of the outcome's level",
        onset_step=worst.onset,
        onset_interval=interval,
        evidence={
            "metric": "reward/mean",
            "logged_as": evidence.metrics["reward/mean"].raw_name,
            "reward_early": reward_early,
            "reward_late": reward_late,
            "outcome": worst.name,
            "outcome_early": early,
            "outcome_late": late,
            "outcome_points": worst.points,
            "outcomes_against": names,
            "left_early_level_at": departure(evidence.metrics["reward/mean"], worst.onset) if worst.onset else None,
            **{f"shifted: {one.name}": f"{one.change.start:.4g} → {one.change.late:.4g}" for one in shifts[:4]},
        },
        causes=_causes(shifts),
        confirm=_confirm(evidence, worst, shifts),
        next=(
            "rerun a few hundred steps with that part capped or with a penalty on what shifted ("
            + (shifts[0].name if shifts else "length first")
            + ") and change nothing else",
            "decide on a private set: if the reward is lower there and the outcome higher, the old reward was "
            f"wrong; do not continue from a checkpoint after step {worst.onset}",
        ),
    )


def _interval(worst: Outcome, behind: Sequence[Outcome], reward: Series, shifts: Sequence[Shift]) -> Steps | None:
    """Let the onset's interval begin where the first outcome may have parted.

    Or where answers began to change, if that was within the windows that the onset is judged by.
    """
    if worst.interval is None or worst.onset is None:
        return worst.interval
    steps = reward.finite()[0]
    earliest = int(steps[max(0, int(np.searchsorted(steps, worst.onset)) - 2 * reward.width)])
    shifted = [shift.change.interval[0] for shift in shifts if shift.change.interval is not None]
    parted = [outcome.interval[0] for outcome in behind if outcome.interval is not None]
    return min([worst.interval[0], *parted, *(step for step in shifted if step >= earliest)]), worst.interval[1]


def _causes(shifts: Sequence[Shift]) -> tuple[str, ...]:
    longer = any("len" in shift.name for shift in shifts)
    calls = any("tool" in shift.name or "call" in shift.name for shift in shifts)
    return (
        *(("the reward pays for length, or for what comes with it",) if longer else ()),
        *(("the reward pays for tool calls, whatever they achieve",) if calls else ()),
        "a part of the reward can be earned without doing the task: format, politeness, a judge's taste",
        "the outcome is measured differently from what is trained (prompt, parser, sampling)",
    )


def _confirm(evidence: Evidence, worst: Outcome, shifts: Sequence[Shift]) -> tuple[str, ...]:
    samples = highest_samples(evidence)
    shifted = ", ".join(shift.name for shift in shifts[:3]) or "length, format"
    components = sorted(rewards_of(evidence).components)
    return (
        "check the evaluation first: are temperature, max_tokens, prompts and tools as in earlier ones?",
        "read the highest-reward samples"
        + (f" ({samples})" if samples else f" from step {worst.onset} on")
        + ": longer, emptier, more alike?",
        f"split the reward: which part rose, and does it reward {shifted}?"
        + (f" Logged parts: {', '.join(components[:6])}" if components else " Log each part separately"),
        "look at KL and entropy: did the policy leave the reference, or settle on one way of answering?",
    )


RULE = rule(check, "reward-hacking", Link.REWARD, lost=LOST_SHARE)
