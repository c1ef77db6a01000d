"""This run shows prompt groups whose rewards are all equal, so they teach nothing.

What: the share of groups with zero reward spread lies above one half over 20 steps, and stays there. Where no share is
logged, it is counted in the recorded rewards of prompt groups; without these, the share of steps with a reward spread
of 0, or that the trainer says it skipped, counts instead. Or the mean spread of rewards within a group, under whatever
name, stays below a tenth of its early level, beyond its noise. Where rewards by group, or shares of groups that are all
right and all wrong, are recorded, silent groups are told apart: all right, all wrong, or equal in between; beside them
stands how many prompts still teach, and when none is left at this rate.
Why it matters: a group-relative advantage is zero in such a group; the batch shrinks to the rest.
What it is not: a failure, where the reward is near its best or most silent groups are all right: the task is solved,
and the finding is low.
What to do: where groups are all wrong, score ten right answers by hand first: a verifier that fails looks like prompts
that are too hard. Then make prompts easier or sample more per prompt. Where they are all right, move on to harder
prompts or stop. Where they are equal in between, look at what clips the reward.
Source: GRPO's advantage (arXiv 2402.03300, eq. 3 of section 4.1); TRL logs `frac_reward_zero_std`.
"""

import math

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import (
    MIN_VALUES,
    BaselineShift,
    lasting_fall,
    passed_by_values,
    step_noise,
)
from ptt.diagnostics.evidence.prompt_groups import PromptGroups
from ptt.diagnostics.evidence.series import MIN_LOGGED, Series, finite_series
from ptt.diagnostics.metrics.name_words import words_of
from ptt.diagnostics.model import JsonScalar, Link, Severity
from ptt.diagnostics.rules.interface import (
    REWARDED_LANGUAGE,
    Finding,
    Healthy,
    Limits,
    NotJudged,
    Verdict,
    does_not_apply,
    rule,
)
from ptt.diagnostics.rules.reward.constant_component import unearned_parts
from ptt.diagnostics.rules.reward_outcome import MIN_CHANGE, Z_LIMIT, reward_fell
from ptt.diagnostics.rules.single_series import derived, measured, series_evidence
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.small_sample import fall_from_best
from ptt.diagnostics.statistics.zero_crossing import ZeroCrossing, zero_crossing
from ptt.diagnostics.wording import pct, sig

SHARE = "reward/zero_std_frac"
SKIPPED = ("skipped", "train/skipped", "skipped_step", "train/skipped_step")  # home-made loops, where all rewards agree
ZERO_STD_LIMIT = 0.5  # share of groups: the batch is less than half of what was paid for
SOLVED_SHARE = 0.8  # of the way from the first to the best reward: then no signal means that nothing is left to learn
SETTLED_SHARE = 0.5  # of the reward's whole climb: if steps swing by more, the task is not solved, whatever their mean
MIN_RIGHT_REWARD = 0.7  # of a reward of 1: at most three groups in ten are then all wrong
MIN_FULL_REWARD, MAX_FULL_REWARD = 0.9, 1.1  # of a reward of 1 a task (and .1 for its format)
SPREAD_FACTOR = 0.1  # of the early spread: nine tenths of the signal are gone
MAX_CHANCE = 0.01  # that noise alone makes so large a fall in few values
MAJORITY = (
    0.5  # of the silent groups, which are then called after it; of the responses, where their reward is of cut ones
)
MIN_TOLD_SHARE = 0.001  # of the groups: less is what rounding leaves
TEACHING_WIDTH = 10  # steps at either end over which the prompts that teach are counted
CAUSES = (
    "prompts that are all solved",
    "prompts that all fail",
    "a collapsed policy that always gives the same answer",
)
CONFIRM = ("plot the reward by prompt over the last 50 steps: all right, all wrong, or all the same text?",)
NEXT = (
    "if all right: harder prompts, or stop; if all wrong: easier prompts, or more samples per prompt",
    "if all the same text: look at entropy and the policy update first",
)
CAUSES_OF = {
    "right": ("prompts that are all solved",),
    "wrong": (
        "a verifier that fails, or cannot read the answers of these prompts",
        "prompts that are too hard for the policy",
        "a collapsed policy that always gives the same answer",
    ),
    "equal": (
        "a clip or a cap that makes different answers equal",
        "a reward with too few levels",
        "a collapsed policy that always gives the same answer",
    ),
}
NEXT_OF = {
    "right": ("move on to harder prompts, or stop",),
    "wrong": (
        "score ten right answers to these prompts by hand: does the verifier accept them?",
        "if it does: easier prompts, or more samples per prompt",
    ),
    "equal": ("log the reward before it is clipped, and widen the clip",),
}


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the logged share of groups without spread, or their spread."""
    if evidence.algorithm.groups is False:
        return does_not_apply(f"{evidence.algorithm.title} training compares no groups")
    series = _silent_share(evidence)
    if (series is None or series.excess(limits["limit"]) is None) and (gone := _spread_gone(evidence, limits)):
        return gone
    if series is None:
        return NotJudged(
            reason="the share of groups with zero reward spread is not logged",
            missing=("reward/zero_std_frac",),
            enable="only group-relative methods have it: TRL logs frac_reward_zero_std, slime rollout/zero_std; "
            "recorder files tell it by reward and group_id",
        )
    limit = limits["limit"]
    _, mean = series.rolling()
    last = float(mean[np.isfinite(mean)][-1])
    onset = series.excess(limit)
    if onset is None:
        return Healthy(
            reason=f"{pct(last)} of groups have no spread at the end, limit {pct(limit)}{_told(evidence.groups)}"
        )
    return _finding(evidence, series, onset, limit)


def _finding(evidence: Evidence, series: Series, onset: int, limit: float) -> Finding:
    _, mean = series.rolling()
    last = float(mean[np.isfinite(mean)][-1])
    share = _risen_share(evidence)
    best = None if _never_moved(evidence) else _silent_at_best(evidence, series, onset)
    near_best = _near_best(evidence, onset, share, best)
    kind = _kind(evidence.groups, onset)
    solved = (kind == "right" if kind is not None else near_best) and not _of_cut_answers(evidence, onset)
    rising = not solved and _rose_since(evidence, onset)
    ended = last <= limit
    began, interval = passed_by_values(series, limit, onset) or (onset, None)
    steps, shares = series.finite()
    always = interval is not None and interval[0] <= int(steps[1])  # no earlier level is told from this one
    if always:
        began = int(steps[0])
        interval = (began, began)
    lost = not (solved or rising) and reward_fell(evidence)
    return Finding(
        severity=Severity.LOW if solved or rising or ended else Severity.HIGH if lost else Severity.MEDIUM,
        claim=f"More than {pct(limit)} of {'prompt groups' if series.name == SHARE else 'steps'} give no signal"
        + (f", {pct(float(shares.mean()))} over all logged steps" if always else "")
        + (f"; the reward is near its best{_how_solved(evidence)}" if solved and near_best else "")
        + _earned(evidence, best if not solved else None)
        + ("; the reward rose anyway" if rising else "")
        + ("; most give one again at the end" if ended and not solved else "")
        + ("; the reward fell as well" if lost else "")
        + _told(evidence.groups, onset),
        observed=last,
        limit=limit,
        unit="share",
        onset_step=began,
        onset_interval=interval,
        evidence={
            "metric": series.name,
            "logged_as": series.raw_name,
            "last_reward_of_its_rise": share,
            **_group_evidence(evidence.groups, onset),
        },
        causes=CAUSES_OF.get(kind or "", CAUSES),
        confirm=CONFIRM,
        next=NEXT_OF.get(kind or "", NEXT),
    )


def _how_solved(evidence: Evidence) -> str:
    """Say that the task looks solved, or which part of the reward hardly any answer earns, as the end of a sentence."""
    parts = evidence.rewards.components if evidence.rewards is not None else {}
    unearned = next(iter(unearned_parts(evidence, parts).values()), None)
    return ", so the task looks solved" if unearned is None else f", but `{unearned.raw_name}` is hardly ever earned"


def _near_best(evidence: Evidence, onset: int, share: float | None, best: float | None) -> bool:
    """Return whether the reward is near its best: the silent groups are then solved, where nothing tells them apart."""
    if best is not None:  # the best of a reward that never rose, and is below 1, may be one wrong answer's
        return best >= SOLVED_SHARE and (share is not None or _is_full(evidence))
    mostly_right = _mostly_right(evidence, onset)
    if mostly_right is not None:
        return mostly_right
    risen = (share is not None and share >= SOLVED_SHARE) or _was_solved(evidence, onset)
    return risen and _settled(evidence, onset)


def _earned(evidence: Evidence, best: float | None) -> str:
    """Say what silent steps earned whose task is not solved; `best`: the share of them that earned the best reward."""
    if best is None:
        return ""
    if best < SOLVED_SHARE:
        return f"; {pct(1 - best)} of these steps lie below the best reward"
    usual = float(np.median(evidence.metrics["reward/mean"].finite()[1]))
    return f"; they earn {sig(usual)}, the run's usual reward, which never rose: one answer to all may earn it"


def _is_full(evidence: Evidence) -> bool:
    return float(evidence.metrics["reward/mean"].finite()[1].max()) >= MIN_FULL_REWARD


def _kind(groups: PromptGroups | None, onset: int) -> str | None:
    """Return what most silent groups are from a step on: right, wrong or equal; None where unknown or none prevails."""
    if groups is None or not (groups.steps >= onset).any():
        return None
    shares = dict(zip(("right", "wrong", "equal"), groups.since(onset), strict=True))
    most = max(shares, key=lambda name: shares[name])
    return most if shares[most] > MAJORITY * sum(shares.values()) else None


def _told(groups: PromptGroups | None, onset: int | None = None) -> str:
    """Return which groups are silent, and how many still teach, as the end of a sentence; empty where unknown."""
    if groups is None or not len(groups.steps):
        return ""
    last = int(groups.steps[-TEACHING_WIDTH:][0])
    since = last if onset is None else min(onset, last)
    if not (groups.steps >= since).any():
        return ""
    right, wrong, equal = groups.since(since)
    told = f"; {pct(right)} are all right, {pct(wrong)} all wrong"
    told += f", {pct(equal)} equal in between" if equal > MIN_TOLD_SHARE else ""
    early, late = _teaching(groups)
    told += f"; prompts that still teach: {pct(early)} → {pct(late)}"
    run_out = _run_out(groups)
    if run_out is None:
        return told
    interval = f"{run_out.low} to {run_out.high}" if run_out.high is not None else f"{run_out.low} or later"
    return f"{told}, none left at step {run_out.step} ({interval}) at this rate"


def _teaching(groups: PromptGroups) -> tuple[float, float]:
    """Return the share of prompts that teach over the first steps and over the last."""
    width = min(TEACHING_WIDTH, max(1, len(groups.steps) // 2))
    return float(groups.mixed[:width].mean()), float(groups.mixed[-width:].mean())


def _run_out(groups: PromptGroups) -> ZeroCrossing | None:
    """Return when no prompt teaches any more at the rate of the last half; None where they do not become fewer."""
    return zero_crossing(groups.steps, groups.mixed) if groups.mixed[-1:].any() else None


def _group_evidence(groups: PromptGroups | None, onset: int) -> dict[str, JsonScalar]:
    if groups is None or not (groups.steps >= onset).any():
        return {}
    right, wrong, equal = groups.since(onset)
    early, late = _teaching(groups)
    count = groups.asked[-TEACHING_WIDTH:]
    run_out = _run_out(groups)
    return {
        "all_right": right,
        "all_wrong": wrong,
        "equal_in_between": equal,
        "equal_by_a_clip": groups.disguised if math.isfinite(groups.disguised) else None,
        "teaching_early": early,
        "teaching_late": late,
        "prompts_that_teach": float((groups.mixed[-TEACHING_WIDTH:] * count).mean())
        if np.isfinite(count).all()
        else None,
        "none_left_at_step": None if run_out is None else run_out.step,
        "none_left_from": None if run_out is None else run_out.low,
        "none_left_to": None if run_out is None else run_out.high,
    }


def _of_cut_answers(evidence: Evidence, onset: int) -> bool:
    """Return whether most responses are cut since a step: their reward, even near its best, is of no whole answer."""
    cut = evidence.metrics.get("len/clipped_frac")
    steps, shares = cut.finite() if cut is not None else (np.zeros(0), np.zeros(0))
    return bool((steps >= onset).any()) and float(shares[steps >= onset].mean()) > MAJORITY


def _never_moved(evidence: Evidence) -> bool:
    """Return whether the reward has one value throughout, which may or may not be the best."""
    reward = evidence.metrics.get("reward/mean")
    return reward is not None and bool(len(reward.finite()[1])) and float(np.ptp(reward.finite()[1])) == 0.0


def _spread_gone(evidence: Evidence, limits: Limits) -> Finding | None:
    """Return the finding of groups whose rewards came to lie close together for good; None where they did not."""
    for spread in _group_spreads(evidence):
        fall = lasting_fall(spread, ceiling=math.inf, factor=limits["spread"]) or _fall_of_few(spread, limits["spread"])
        if fall is None or fall.ended or fall.early <= 0:
            continue
        solved = _mostly_right(evidence, fall.onset)
        solved = _was_solved(evidence, fall.onset) if solved is None else solved
        return Finding(
            severity=Severity.LOW if solved else Severity.MEDIUM,
            claim=f"The spread of rewards within groups vanished: {sig(fall.early)} → {sig(fall.last)}"
            + (f"; the reward is near its best{_how_solved(evidence)}" if solved else ""),
            unit="reward",
            **measured(fall),
            evidence=series_evidence(spread, early=fall.early),
            causes=CAUSES,
            confirm=CONFIRM,
            next=NEXT,
        )
    return None


def _fall_of_few(spread: Series, factor: float) -> BaselineShift | None:
    """Return the fall of a spread that is logged too seldom for an early level, or None."""
    steps, values = spread.finite()
    fall = fall_from_best(values) if MIN_LOGGED <= len(values) < MIN_VALUES else None
    if fall is None or fall.late > factor * fall.best or fall.p_value > MAX_CHANCE:
        return None
    onset = int(steps[fall.onset])
    return BaselineShift(
        onset=onset,
        interval=(int(steps[min(fall.best_place, fall.onset)]), onset),
        early=fall.best,
        extreme=fall.late,
        last=fall.late,
        limit=factor * fall.best,
        ended=False,
    )


def _group_spreads(evidence: Evidence) -> list[Series]:
    """Return what is logged of the spread of rewards within groups, by its words."""
    others = [series for name, series in sorted(evidence.other.items()) if words_of(name) >= {"group", "std"}]
    named = evidence.metrics.get("reward/std")
    return [*others, *([named] if named is not None else [])]


def _silent_share(evidence: Evidence) -> Series | None:
    """Return the share of silent groups by step; if none is logged, whether the whole step was silent.

    A step is silent if the trainer says that it skipped it, or if the spread of rewards within groups is 0.
    """
    share = evidence.metrics.get(SHARE)
    if share is not None and len(share.finite()[0]) >= MIN_LOGGED:
        return share
    groups = evidence.groups
    if share is None and groups is not None and len(groups.steps) >= MIN_LOGGED:
        return finite_series(SHARE, groups.steps, groups.silent, raw_name=groups.logged_as)
    counted = evidence.rewards.silent_groups if evidence.rewards is not None else None
    if share is None and counted is not None and len(counted.finite()[0]) >= MIN_LOGGED:
        return counted
    skipped = next((evidence.other[name] for name in SKIPPED if name in evidence.other), None)
    if skipped is not None and len(skipped.finite()[0]) >= MIN_LOGGED and set(skipped.finite()[1]) <= {0.0, 1.0}:
        return skipped
    spread = evidence.metrics.get("reward/std")
    if spread is None or len(spread.finite()[0]) < MIN_LOGGED:
        return None
    steps, values = spread.finite()
    return derived(spread, steps, (values == 0.0).astype(np.float64))


def _means(evidence: Evidence) -> tuple[IntArray, FloatArray, float] | None:
    """Return steps and rolling means of the reward, and the change between two of them that is more than noise."""
    series = evidence.metrics.get("reward/mean")
    if series is None or len(series.finite()[0]) < MIN_LOGGED:
        return None
    values = series.finite()[1]
    half = values[: max(MIN_LOGGED, len(values) // 2)]
    spread, ar1 = min(step_noise(half), step_noise(values))  # a later fault may have made it noisier
    error = spread * math.sqrt((1 + ar1) / (1 - ar1) * 2 / series.width)
    steps, mean = series.rolling()
    steps, mean = steps[np.isfinite(mean)], mean[np.isfinite(mean)]
    return steps, mean, max(Z_LIMIT * error, MIN_CHANGE * abs(float(mean.max())))


def _risen_share(evidence: Evidence, step: int | None = None) -> float | None:
    """Return how far from its first to its best level the reward was at `step`, or is at the end.

    None if it never rose beyond its noise: a flat reward gives no scale.
    """
    means = _means(evidence)
    if means is None:
        return None
    steps, mean, noise = means
    if mean.max() - mean[0] <= noise:
        return None
    place = len(mean) - 1 if step is None else max(0, int(np.searchsorted(steps, step, side="right")) - 1)
    return float((mean[place] - mean[0]) / (mean.max() - mean[0]))


def _rose_since(evidence: Evidence, step: int) -> bool:
    """Return whether the reward rose in the later half of what is left from `step` on: groups were silent, it learnt.

    A rise that was over by then is no sign: the policy learnt what it could, and has stood still without signal since.
    """
    means = _means(evidence)
    if means is None:
        return False
    steps, mean, noise = means
    since = mean[min(int(np.searchsorted(steps, step)), len(mean) - 1) :]
    later = since[len(since) // 2 :]
    return bool(later.max() - later[0] > noise)


def _silent_at_best(evidence: Evidence, silent: Series, onset: int) -> float | None:
    """Return which share of the silent steps from `onset` on earned the best reward; None where groups are counted.

    In a silent step all answers earn one reward, its mean: it says of each step whether it was solved.
    """
    series = evidence.metrics.get("reward/mean")
    if silent.name == SHARE or series is None:
        return None
    steps, values = series.finite()
    quiet_steps, quiet = silent.finite()
    earned = values[np.isin(steps, quiet_steps[(quiet == 1.0) & (quiet_steps >= onset)])]
    if len(earned) < MIN_LOGGED or values.min() < 0:
        return None
    return float(np.mean(earned >= MIN_FULL_REWARD * values.max()))


def _mostly_right(evidence: Evidence, onset: int) -> bool | None:
    """Return whether silent groups were mostly right when they fell silent or since; None where the scale is unknown.

    Of rewards between 0 and 1 the share of groups that are all wrong is no larger than what the mean lacks to 1.
    """
    series = evidence.metrics.get("reward/mean")
    if series is None or len(series.finite()[0]) < MIN_LOGGED:
        return None
    steps, mean = series.rolling()
    place = min(int(np.searchsorted(steps, onset)), len(steps) - 1)
    values = series.finite()[1][: place + 1]
    if values.min() < 0 or values.max() > MAX_FULL_REWARD:
        return None
    return bool(max(mean[place], np.nanmedian(mean[place:])) >= MIN_RIGHT_REWARD)


def _settled(evidence: Evidence, onset: int) -> bool:
    """Return whether the rewards of single steps stood still from `onset` on, against how far their mean ever moved.

    Rewards between 0 and 1 need not: there a step of few prompts swings by its draw, and the level tells.
    """
    series = evidence.metrics.get("reward/mean")
    if series is None or len(series.finite()[0]) < MIN_LOGGED:
        return True
    steps, values = series.finite()
    if values.min() >= 0 and values.max() <= MAX_FULL_REWARD:
        return True
    _, mean = series.rolling()
    later = values[steps >= onset]
    climb = float(np.nanmax(mean) - np.nanmin(mean))
    flat = climb <= MIN_CHANGE * float(np.abs(values).max())
    return flat or float(later.std()) <= SETTLED_SHARE * climb


def _was_solved(evidence: Evidence, onset: int) -> bool:
    """Return whether the reward was near its best when the groups fell silent, whatever happened later."""
    risen = _risen_share(evidence, onset)
    if risen is not None:
        return risen >= SOLVED_SHARE
    series = evidence.metrics.get("reward/mean")  # flat: solved from the start, where rewards are shares of tasks done
    return series is not None and MIN_FULL_REWARD <= float(np.median(series.finite()[1])) <= MAX_FULL_REWARD


RULE = rule(
    check,
    "no-signal-groups",
    Link.TRAINING_SIGNAL,
    limit=ZERO_STD_LIMIT,
    spread=SPREAD_FACTOR,
    families=REWARDED_LANGUAGE,
)
