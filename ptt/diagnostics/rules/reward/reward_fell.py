"""This run shows a reward that fell from its best and did not come back.

What: the mean over the last steps lies below the best window by three tenths of its level and six standard deviations
of a window's mean. The onset is the step after which at least a quarter of the fall lasts. Of five to 29 values, or
where nearly all was lost early in up to 59, the best fifth is held against the last one: by half of its level, and by
more than heavy-tailed noise that remembers does once in a thousand such runs. Or the log ends in it: the last three
values and more, too few for a window, lie below all of half a run and six standard deviations below those before them.
Why it matters: the policy lost what it had learnt, or its tasks, its tools or the scorer changed under it. The reward
is the last to show it: look for the curve that moved before the onset.
What it is not: a reward that declines all along: see reward-sign.
What to do: go back to the checkpoint before the onset; find out which metric moved first (KL, gradient norm, staleness,
tool failures); change one thing.
Source: noise is the values' distance from their running median, widened for autocorrelation.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from math import nan
from typing import Final

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import CHANGE_SDS, change_since_best
from ptt.diagnostics.evidence.sample_counters import LINES
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity, Steps
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, requires, rule
from ptt.diagnostics.rules.reward import Gain, mean_reward, risen_outcomes, steady_decline
from ptt.diagnostics.statistics.arrays import MAD_TO_SD
from ptt.diagnostics.statistics.small_sample import MAX_FEW, MIN_FEW, FewFall, fall_from_best
from ptt.diagnostics.wording import sig

TELLING: Final = re.compile(
    r"(?i)error|fail|time.?out|timed_out|stop_condition|terminat|finish_reason|abort|drop|evict|stal|turns|tool|scoring|"
    r"retr(?:y|ied)|empty|invalid|console_lines|no_eos|truncat"
)
"""Names of what may have taken the reward with it: failures, ends, turns, ages."""
NEAR: Final = 20  # steps: of a fall that is dated worse nothing is known to have moved with it
BESIDE_STEPS: Final = 20
MIN_BESIDE: Final = 5
MOVED_SDS: Final = 8.0  # standard errors of a difference of means: some hundred names are tried
MOVED_SHARE: Final = 0.3  # of the larger level
MOVED_AT_ONCE: Final = 0.5  # of that move: what a steady trend makes from one five to the next is a quarter
MAX_BESIDE: Final = 2
OF_SCORING: Final = (
    "answers are cut at the length limit, cannot be parsed, and are punished as malformed",
    "samples whose environment or scorer failed count as wrong answers",
    "a penalty on length, format or calls outgrew what is paid for the outcome",
)
MIN_FALL_SHARE = 0.3  # of the best level
HIGH_FALL_SHARE = 0.7  # of it: little of what was learnt is left

MIN_LAST = 3  # values at the end, all below half a run's: by chance of thirty once in eight hundred runs
LAST_SDS = 6.0  # of the values before them

MAX_CHANCE = 0.001  # that noise alone makes so large a fall in few values
LOST_CHANCE = 0.01  # if nearly all is lost: noise about a level hardly ever ends at nothing
FEW_SHARE = 0.5  # of the best level: what few values must have lost
ALL_LOST = 0.9  # of it: a run of 30 to 59 values that lost so much may have had no long best window


def reward_of_few(evidence: Evidence) -> Series | NotJudged:
    """Return the mean reward, logged five times at least."""
    return mean_reward(evidence, minimum=MIN_FEW)


@requires(reward_of_few)
def check(reward: Series, evidence: Evidence, limits: Limits) -> Verdict:
    """Hold the best window of the reward against its end."""
    verdict = _judged(reward, limits)
    if not isinstance(verdict, Finding):
        return verdict
    start = int(reward.finite()[0][reward.width - 1])
    best_step = verdict.evidence["best_step"]
    risen = risen_outcomes(evidence, start, best_step if isinstance(best_step, int) else start)
    verdict = replace(verdict, claim=verdict.claim + _moved_with(evidence, verdict))
    return _though(verdict, risen) if risen else verdict


def _though(fall: Finding, risen: Sequence[Gain]) -> Finding:
    """Say that outcomes rose all the same: what is punished is not that the policy got worse."""
    told = " and ".join(gain.words for gain in risen[:MAX_BESIDE])
    return replace(
        fall,
        claim=f"{fall.claim}; yet {told} rose: something else than wrong answers lowers it (answers cut at a limit and "
        "taken for malformed, failures scored as wrong, a penalty)",
        causes=OF_SCORING,
        confirm=("read ten samples with the lowest reward of the last steps: are they wrong, cut, or not scored?",),
        next=(
            "log each part of the reward, and how many samples are cut, malformed or unscored",
            "raise the limit, or give cut and unscored answers no reward instead of a low one",
        ),
    )


def _moved_with(evidence: Evidence, fall: Finding) -> str:
    """Say which counters of failures, ends, turns or ages moved just when the reward did, the largest move first."""
    if fall.onset_step is None or fall.onset_interval is None or fall.onset_interval[1] - fall.onset_interval[0] > NEAR:
        return ""
    moved: dict[str, tuple[float, str]] = {}
    for series in (*evidence.metrics.values(), *evidence.other.values()):
        steps, values = series.finite()
        quoted = series.raw_name.startswith(LINES)  # where a finding sets in, the console's lines are told for all
        if quoted or not TELLING.search(series.raw_name) or series.name == "reward/mean":
            continue
        before = values[steps < fall.onset_interval[0]][-BESIDE_STEPS:]
        after = values[steps >= fall.onset_step][:BESIDE_STEPS]
        if min(len(before), len(after)) < MIN_BESIDE:
            continue
        was, now = float(before.mean()), float(after.mean())
        noise = float(max(before.std(), after.std())) * np.sqrt(1 / len(before) + 1 / len(after))
        if abs(now - was) < max(MOVED_SDS * noise, MOVED_SHARE * max(abs(was), abs(now)), 1e-9):
            continue
        if abs(float(after[:MIN_BESIDE].mean() - before[-MIN_BESIDE:].mean())) < MOVED_AT_ONCE * abs(now - was):
            continue  # a trend, which moves all along
        size = abs(now - was) / max(abs(was), abs(now))
        kind = series.raw_name.rpartition("/")[2]
        moved[kind] = max(moved.get(kind, (0.0, "")), (size, f"{series.raw_name} {sig(was)} → {sig(now)}"))
    told = [text for _, text in sorted(moved.values(), reverse=True)[:MAX_BESIDE]]
    return f"; with it went {' and '.join(told)}" if told else ""


def _judged(reward: Series, limits: Limits) -> Verdict:
    fall = change_since_best(reward)
    values = reward.finite()[1]
    few = fall_from_best(values) if len(values) < MAX_FEW else None
    if few is not None and _is_gone(few, short=fall is None):
        return _few_fell(reward, few, limits["fell"])
    if (last := _at_the_end(reward, limits["fell"])) is not None:
        return last
    if fall is None and few is not None:
        return Healthy(
            reason=f"the reward ends at {sig(few.late)}, its best window of {len(values)} is {sig(few.best)}"
        )
    if fall is None or fall.onset is None or fall.sds > -CHANGE_SDS or fall.share > -limits["fell"]:
        best, late = (fall.start, fall.late) if fall else (nan, nan)
        return Healthy(reason=f"the reward ends at {sig(late)}, its best window is {sig(best)}")
    if steady_decline(reward):
        return Healthy(reason="the reward never rose; reward-sign judges its steady decline")
    return _finding(
        reward,
        levels=(fall.start, fall.late),
        limit=limits["fell"],
        onset=fall.onset,
        interval=fall.interval,
        best_step=fall.start_step,
        alarm=fall.alarm,
    )


def _at_the_end(reward: Series, limit: float) -> Finding | None:
    """Return the finding of a run whose last few values lie far below all that it had for half of its length.

    They are too few for a window, and the log ends there: somebody stopped it, or it crashed.
    """
    steps, values = reward.finite()
    half = values[len(values) // 2 :]
    if len(values) < MAX_FEW:
        return None
    count = 0
    while count < reward.width and half[-1 - count] < half[: -reward.width].min():
        count += 1
    before, last = half[: len(half) - count][-BESIDE_STEPS:], half[len(half) - count :]
    if not MIN_LAST <= count < reward.width:
        return None
    level, end = float(np.median(before)), float(np.median(last))
    scatter = MAD_TO_SD * float(np.median(np.abs(before - level)))
    if level - end < max(LAST_SDS * scatter, limit * max(abs(level), abs(end))):
        return None
    first = len(values) - count
    return _finding(
        reward,
        levels=(level, end),
        limit=limit,
        onset=int(steps[first]),
        interval=(int(steps[first - 1]), int(steps[first])),
        best_step=int(steps[first - 1]),
        alarm=int(steps[first + MIN_LAST - 1]),
    )


def _is_gone(fall: FewFall, *, short: bool) -> bool:
    """Return whether few values lost too much for noise: half of their best, or nearly all of it."""
    if fall.share >= ALL_LOST:
        return fall.p_value <= (LOST_CHANCE if short else MAX_CHANCE)
    return short and fall.share >= FEW_SHARE and fall.p_value <= MAX_CHANCE


def _few_fell(reward: Series, fall: FewFall, limit: float) -> Finding:
    """Return the finding of few values: dated by where all that follow lie below halfway."""
    steps = reward.finite()[0]
    return _finding(
        reward,
        levels=(fall.best, fall.late),
        limit=limit,
        onset=int(steps[fall.onset]),
        interval=(int(steps[min(fall.best_place, fall.onset)]), int(steps[fall.onset])),
        best_step=int(steps[fall.best_place]),
        alarm=int(steps[fall.onset]),
    )


def _finding(
    reward: Series,
    *,
    levels: tuple[float, float],
    limit: float,
    onset: int,
    interval: Steps | None,
    best_step: int,
    alarm: int | None,
) -> Finding:
    best, late = levels
    lost = (best - late) / max(abs(best), abs(late))
    return Finding(
        severity=Severity.HIGH if lost >= HIGH_FALL_SHARE else Severity.MEDIUM,
        claim=f"The reward fell from {sig(best)} to {sig(late)} and did not come back",
        observed=lost,
        limit=limit,
        unit="of the best level",
        onset_step=onset,
        onset_interval=interval,
        evidence={"metric": "reward/mean", "logged_as": reward.raw_name, "best": best,
                  "best_step": best_step, "last": late, "alarm_step": alarm},
        causes=("updates that are too large: KL, clip fraction or gradient norm moved first",
                "rollouts older than the policy, or logprobs from another engine",
                "the environment or its tools failed, and the reward with them",
                "harder tasks from that step on: a curriculum, a different data set"),
        confirm=(f"find the curve that left its level before step {onset}: KL, gradient norm, staleness, tools?",
                 f"score the checkpoint of step {best_step} on the tasks of the last steps"),
        next=(f"roll back to the last checkpoint before step {onset}",
              "rerun from it with the cause fixed that moved first, and change nothing else"))  # fmt: skip


RULE = rule(check, "reward-fell", Link.REWARD, fell=MIN_FALL_SHARE)
