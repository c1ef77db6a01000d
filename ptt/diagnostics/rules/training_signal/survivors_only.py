"""This run shows a reward that rises because of what is left out of it.

What: the reward rose beyond its noise, over the samples that were kept, and one of these holds. The reward over all
samples, logged beside it (prime-rl `agg/all`, NeMo-RL `reward` beside `filtered_reward`), did not rise. Or recorded
episodes without a reward are counted as not solved, and then it did not rise. Or the share of samples that are dropped
as failed or stale rose by a tenth, so that counting them as 0 leaves no rise, and the evaluation did not follow. Or
samples are dropped at half of the steps, and turns or lengths fell by three tenths in training and not in the
evaluation, which did not follow the reward.
Why it matters: what is dropped is not drawn by lot. Long, slow and hard tasks fail and go stale first, so that the rest
gets easier, and its mean rises without anything learnt. The policy is then trained on that rest alone.
What it is not: a filter on groups whose rewards are all equal, where the reward over all samples rises as well; nor
samples that fail by chance, where an evaluation on fixed tasks rises too.
What to do: count what is dropped as attempted, in every mean and every pass@k; then find out why it is dropped.
Source: survivorship bias; DAPO (arXiv 2503.14476) samples anew instead. The limits are our own.
"""

import math
from typing import NamedTuple

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES, change_since_start
from ptt.diagnostics.evidence.evaluation import LENGTHS
from ptt.diagnostics.evidence.sample_counters import Episodes, SampleCounters, cohorts
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.metrics.aliases import bare_name
from ptt.diagnostics.model import JsonScalar, Link, Severity
from ptt.diagnostics.rules.interface import REWARDED_LANGUAGE, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.statistics.arrays import FloatArray
from ptt.diagnostics.wording import pct, sig

MIN_RISE = 0.1  # of the level: a smaller rise is nothing that anybody would report
Z_LIMIT = 4.0  # standard deviations of a window's mean, of both changes
LEFT_SHARE = 0.25  # of the rise over kept samples: over all of them less than this is no rise
DROPPED_RISE = 0.1  # of the samples: how much more are dropped at the end
MUCH_DROPPED = 0.3  # of the samples at the end: the policy sees a selection of its tasks
MIN_FOLLOW = 0.5  # of the reward's rise: an evaluation that rose by this followed it
MIN_EVALUATIONS = 4  # fewer say nothing of a rise
MIN_EPISODES = 40  # in each third of the recorded steps: a share of 40 is known to 0.15
Z_EPISODES = 3.0  # standard errors of a difference of two means of episodes
DROPPED_STEPS = 0.5  # of the logged steps: dropping now and then selects nothing
DROPPED_SHARE = 0.05  # of the samples, where that is known: nor does one of some hundred
MIN_SHORTER = 0.3  # of the length at first
DROPPED = ("evicted", "lost")  # kinds that leave the mean of the reward; filtered groups leave it by their rewards
CAUSES = (
    "stale samples are evicted, and slow ones go stale first",
    "episodes that fail or hit a limit are left out of the denominator",
    "a filter that keeps what is rewarded",
)
NEXT = (
    "count every sample that was asked for: left-out ones as not solved, in the reward and in pass@k",
    "compare the tasks of kept and of dropped samples: length, turns, task, environment",
    "raise the limit that drops them (staleness, prompt length, time), and change nothing else",
)


class Rise(NamedTuple):
    """What the reward did over the samples that were kept, and over all that were asked for."""

    kept: tuple[float, float]
    every: tuple[float, float]
    how: str  # completes "over all samples ..."
    onset: int | None
    evidence: dict[str, JsonScalar]
    beside: str = ""  # what else tells of the selection, as the end of a claim


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge whether the reward also rose over what was left out."""
    counters = evidence.counters
    pair = cohorts(evidence.metrics)
    rows = counters.episodes if counters is not None else None
    asked = [
        None if pair is None else _of_cohorts(*pair, limits),
        None if rows is None else _of_episodes(rows, limits),
        None if counters is None else _of_counters(evidence, counters, limits),
        None if counters is None else _of_evaluation(evidence, counters),
    ]
    rise = next((found for found in asked if found is not None), None)
    if rise is not None:
        return _finding(rise, limits)
    dropped = counters is not None and any(kind in counters.shares for kind in DROPPED)
    short = pair is None or min(len(series.finite()[0]) for series in pair) < MIN_VALUES
    if short and not dropped and (rows is None or not rows.unscored.any()):
        return NotJudged(
            reason="nothing tells which samples are left out of the reward"
            if pair is None
            else f"the reward over all samples is logged at fewer than {MIN_VALUES} steps",
            missing=("reward/unfiltered",),
            enable="log the reward over all samples beside that over the trained ones, or count those dropped",
            absent=pair is None,
        )
    return Healthy(reason=_healthy(pair, rows))


def _healthy(pair: tuple[Series, Series] | None, rows: Episodes | None) -> str:
    if pair is not None:
        every, kept = (float(series.finite()[1][-series.width :].mean()) for series in pair)
        return f"the reward ends at {sig(kept)} over kept samples and at {sig(every)} over all"
    if rows is not None and rows.unscored.any():
        return f"{pct(float(rows.unscored.sum() / rows.asked.sum()))} of recorded episodes have no reward"
    return "no rise of the reward comes with more samples dropped"


def _of_cohorts(every: Series, kept: Series, limits: Limits) -> Rise | None:
    """Return the rise over the kept samples that the logged reward over all of them lacks."""
    if min(len(every.finite()[0]), len(kept.finite()[0])) < MIN_VALUES:
        return None
    rose, whole = change_since_start(kept), change_since_start(every)
    if rose is None or whole is None or rose.sds < Z_LIMIT or rose.amount < MIN_RISE * rose.scale:
        return None
    if whole.amount > limits["left"] * rose.amount:
        return None
    names: dict[str, JsonScalar] = {"metric": kept.name, "logged_as": kept.raw_name, "all_samples_as": every.raw_name}
    ends = (rose.start, rose.late), (whole.start, whole.late)
    return Rise(*ends, how="as logged", onset=rose.onset, evidence=names)


def _of_episodes(rows: Episodes, limits: Limits) -> Rise | None:
    """Return the rise over recorded episodes with a reward that is none if the others count as not solved."""
    third = len(rows.steps) // 3
    if not third or not rows.unscored.any():
        return None
    early, late = slice(0, third), slice(len(rows.steps) - third, None)
    scored = rows.asked - rows.unscored
    if min(scored[early].sum(), scored[late].sum()) < MIN_EPISODES:
        return None
    kept_reward = np.where(scored > 0, rows.asked_reward * rows.asked / np.maximum(scored, 1.0), 0.0)
    kept = _mean(kept_reward, scored, early), _mean(kept_reward, scored, late)
    every = _mean(rows.asked_reward, rows.asked, early), _mean(rows.asked_reward, rows.asked, late)
    spread = max(abs(kept[1]), abs(kept[0]))  # of rewards between 0 and this no spread is larger than half of it
    error = 0.5 * spread * math.sqrt(1 / scored[early].sum() + 1 / scored[late].sum())
    rise = kept[1] - kept[0]
    if rise < max(Z_EPISODES * error, MIN_RISE * spread) or every[1] - every[0] > limits["left"] * rise:
        return None
    share = tuple(float(rows.unscored[part].sum() / rows.asked[part].sum()) for part in (early, late))
    evidence: dict[str, JsonScalar] = {
        "metric": "trajectories.reward",
        "left_out_early": share[0],
        "left_out_late": share[1],
    }
    how = f"with the {pct(share[1])} without a reward ({pct(share[0])} at first) counted as not solved"
    return Rise(kept, every, how=how, onset=None, evidence=evidence)


def _of_counters(evidence: Evidence, counters: SampleCounters, limits: Limits) -> Rise | None:
    """Return the rise of the logged reward that dropped samples, counted as 0, would take away."""
    reward = evidence.metrics.get("reward/mean")
    rose = change_since_start(reward) if reward is not None else None
    if reward is None or rose is None or rose.sds < Z_LIMIT or rose.amount < MIN_RISE * rose.scale or rose.start < 0:
        return None
    for kind in DROPPED:
        share = counters.shares.get(kind)
        grown = change_since_start(share) if share is not None else None
        if share is None or grown is None or grown.sds < Z_LIMIT or grown.amount < limits["dropped"]:
            continue
        every = rose.start * (1 - grown.start), rose.late * (1 - grown.late)
        followed = _followed(evidence, reward, rose.amount)
        if every[1] - every[0] > limits["left"] * rose.amount or followed is None or followed[1]:
            continue
        count = counters.counts.get(kind)
        rate = "" if count is None else _rate(count)
        words = "as stale" if kind == "evicted" else "to failures"
        how = f"with the {pct(grown.late)} lost {words} ({pct(grown.start)} at first{rate}) counted as 0"
        found: dict[str, JsonScalar] = {
            "metric": share.name,
            "logged_as": share.raw_name,
            "left_out_early": grown.start,
            "left_out_late": grown.late,
            "evaluation": followed[0],
        }
        return Rise((rose.start, rose.late), every, how=how, onset=grown.onset, evidence=found)
    return None


def _of_evaluation(evidence: Evidence, counters: SampleCounters) -> Rise | None:
    """Return the rise that an evaluation lacks, while samples are dropped and those left are shorter than its own.

    How many are dropped need not be known: what falls in training and not in the evaluation tells the selection.
    """
    reward = evidence.metrics.get("reward/mean")
    rose = change_since_start(reward) if reward is not None else None
    if reward is None or rose is None or rose.sds < Z_LIMIT or rose.amount < MIN_RISE * rose.scale:
        return None
    followed, dropped = _followed(evidence, reward, rose.amount), _dropped_at(counters, reward)
    shorter = _shorter(evidence)
    if followed is None or followed[1] or dropped is None or shorter is None:
        return None
    kind, share = dropped
    name, was, late, own = shorter
    figure = next(one.series for one in evidence.evaluation.figures if one.series.raw_name == followed[0])  # type: ignore[union-attr]
    values = figure.finite()[1]
    third = max(1, len(values) // 3)
    every = float(values[:third].mean()), float(values[-third:].mean())
    beside = (
        f"; samples are dropped {kind} at {pct(share)} of the steps, and those left are shorter: {name} {sig(was)} → "
        f"{sig(late)}, in the evaluation still {sig(own)}"
    )
    found: dict[str, JsonScalar] = {"metric": name, "logged_as": name, "evaluation": followed[0]}
    how = f"as {followed[0]} measures them"
    return Rise((rose.start, rose.late), every, how=how, onset=rose.onset, evidence=found, beside=beside)


def _dropped_at(counters: SampleCounters, reward: Series) -> tuple[str, float] | None:
    """Return how samples are dropped at many steps, and the share of the steps."""
    logged = max(1, len(reward.finite()[0]))
    for kind, words in (("evicted", "as stale"), ("dropped", "before training"), ("failed", "as failed")):
        count, part = counters.counts.get(kind), counters.shares.get(kind)
        if part is not None and len(part.finite()[0]) and float(part.finite()[1].mean()) < DROPPED_SHARE:
            continue
        share = 0.0 if count is None else float((count.finite()[1] > 0).sum()) / logged
        if share >= DROPPED_STEPS:
            return words, min(1.0, share)
    return None


def _shorter(evidence: Evidence) -> tuple[str, float, float, float] | None:
    """Return a length that fell in training and not in the evaluation: name, levels, the evaluation's level."""
    figures = evidence.evaluation.lengths if evidence.evaluation is not None else ()
    for series in (*evidence.metrics.values(), *evidence.other.values()):
        name = bare_name(series.raw_name)
        if not LENGTHS.search(name) or (fell := change_since_start(series)) is None or fell.start <= 0:
            continue
        if -fell.share < MIN_SHORTER or -fell.sds < Z_LIMIT:
            continue
        for figure in figures:
            values = figure.finite()[1]
            alike = figure.raw_name.endswith(name) and figure.raw_name != series.raw_name
            if alike and len(values) >= MIN_EVALUATIONS and values[-1] >= (1 - MIN_SHORTER / 2) * values[0] > 0:
                return series.raw_name, fell.start, fell.late, float(values[-1])
    return None


def _rate(count: Series) -> str:
    values = count.finite()[1]
    return f", {sig(float(values[: count.width].mean()))} → {sig(float(values[-count.width :].mean()))} a step"


def _followed(evidence: Evidence, reward: Series, rise: float) -> tuple[str, bool] | None:
    """Return an evaluation of what the reward pays for, and whether it rose as well; None where there is none."""
    figures = evidence.evaluation.figures if evidence.evaluation is not None else ()
    steps, values = reward.finite()
    for figure in figures:
        at, scores = figure.series.finite()
        if len(scores) < MIN_EVALUATIONS or not 0 <= scores.min() <= scores.max() <= 1:
            continue
        third = max(1, len(scores) // 3)
        gain = float(scores[-third:].mean() - scores[:third].mean())
        first, last = int(at[third - 1]), int(at[-third])
        early, late = values[steps <= first], values[steps >= last]
        own = float(late.mean() - early.mean()) if len(early) and len(late) else rise
        return figure.series.raw_name, gain >= MIN_FOLLOW * max(min(own, rise), 0.0)
    return None


def _mean(values: FloatArray, weights: FloatArray, part: slice) -> float:
    usable = np.isfinite(values[part]) & (weights[part] > 0)
    if not usable.any():
        return math.nan
    return float(np.average(values[part][usable], weights=weights[part][usable]))


def _finding(rise: Rise, limits: Limits) -> Finding:
    fell = rise.every[1] < rise.every[0] - limits["left"] * (rise.kept[1] - rise.kept[0])
    evaluated = rise.evidence.get("evaluation")
    gone = rise.evidence.get("left_out_late")
    much = isinstance(gone, float) and gone >= limits["much"]
    return Finding(
        severity=Severity.HIGH if fell or much else Severity.MEDIUM,
        claim=f"The reward rose from {sig(rise.kept[0])} to {sig(rise.kept[1])} over the samples that were kept; over "
        f"all of them, {rise.how}, it went from {sig(rise.every[0])} to {sig(rise.every[1])}"
        + (rise.beside or (f", and {evaluated} did not follow" if evaluated else "")),
        observed=rise.every[1] - rise.every[0],
        limit=limits["left"] * (rise.kept[1] - rise.kept[0]),
        unit="reward",
        onset_step=rise.onset,
        evidence=rise.evidence,
        causes=CAUSES,
        confirm=("score the first and the last checkpoint on one fixed set of tasks, with nothing left out",),
        next=NEXT,
    )


RULE = rule(
    check,
    "survivors-only",
    Link.TRAINING_SIGNAL,
    left=LEFT_SHARE,
    dropped=DROPPED_RISE,
    much=MUCH_DROPPED,
    families=REWARDED_LANGUAGE,
)
