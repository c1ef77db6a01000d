"""This run shows samples that are lost to failures of what surrounds the policy.

What: the share of samples that end in an error, a timeout or a verifier that failed lies a tenth above its usual level,
and beyond its noise, for so long that a whole step's worth is lost; or it is above 30% throughout (10% where they could
not be scored). The share is logged, worked out from counters and what was asked for, or counted in recorded episodes or
lines of the console; lines alone are told where they multiply, or where the scorer fails at every logged step while a
part of the reward is 0 throughout, or where the reward rises with them and no evaluation follows. Beside it stands what
became of the reward: over all samples, and over those that finished. High where failed samples are trained on and make
up 30%.
Why it matters: a failed episode says nothing about the policy, but it lowers the reward and, where it counts as 0, is
trained on. A curve that falls so is mistaken for a policy that got worse.
What it is not: a small constant rate of failures, which every sandbox has.
What to do: fix what fails, by its most frequent error; leave such samples out of the loss and of every mean; go back to
the checkpoint before they began if they were trained on.
Source: NeMo-RL `rollout/infra_drops_total`, SkyRL `generate/num_error_trajectories`, prime-rl `has_error`, veRL
`rollout_failure/evicted_samples`. The shares are our own.
"""

import math
from collections.abc import Sequence

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.sample_counters import (
    ENDED_BY_NOTHING,
    EPISODES,
    LINES,
    LOST,
    MISSING,
    UNFINISHED,
    UNSCORED,
    SampleCounters,
    cohorts,
)
from ptt.diagnostics.evidence.series import MIN_LOGGED, Series
from ptt.diagnostics.model import JsonScalar, Link, Severity, Steps
from ptt.diagnostics.rules.interface import REWARDED_LANGUAGE, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.single_series import last_mean, metric_evidence
from ptt.diagnostics.statistics.arrays import FloatArray
from ptt.diagnostics.statistics.excess_stretches import Stretch, stretches_above, usual_level
from ptt.diagnostics.wording import pct, sig

RISE_MARGIN = 0.1  # of the samples, over the usual share: one in ten is lost on top of what always is
CHRONIC_SHARE = 0.3  # of the samples, throughout: no sandbox is meant to lose one in three
HIGH_SHARE = 0.3  # of the samples of a stretch, if they are trained on
MIN_LOST_STEPS = 1.0  # whole steps' worth: fewer lost samples are an incident, not a stretch
MIN_STEPS = 5  # with a share of lost samples: of fewer no level is usual
KEPT_SHARE = 0.5  # of the fall over all samples: if those that finished lost less than this, the failures explain it
MIN_FALL = 0.1  # of the reward before: less is nothing to explain
COUNT_FACTOR = 4.0  # times the usual count, where nothing tells of how many: no batch size explains that
UNSCORED_FACTOR = 0.5  # times the usual count on top of it, beyond its noise: of lines that the scorer failed
MIN_NEVER_SCORED = 20  # lines that the scorer failed, in all: fewer are single answers
MIN_COUNT = 4.0  # samples a step over the usual count
SHORTER = 0.8  # of the first length: what takes long is what is lost
MIN_WAVES = 2  # stretches: one that comes back is none that passed
MAX_TOLD = 2  # errors that a claim names
BESIDE_STEPS = 20  # before a stretch, or after it: what the reward is compared with
UNMASKED = "mask_infra_failed_completions"
"""A setting of Open-Instruct: false where failed samples are trained on."""
FLAGGED = "mask_sample"
"""NeMo Gym's flag of episodes that must not be trained on."""
CAUSES = (
    "a sandbox, browser or server that is down, full or out of quota",
    "a network or a file system that fails under load",
    "a timeout that is too short for what the policy does now",
)
NEXT = (
    "fix what fails, beginning with the most frequent error",
    "leave failed samples out of the loss and out of every mean of the reward",
)
ROLL_BACK = "go back to the last checkpoint before the failures began"
ENABLE = (
    "log the share of samples that end in an error at each step, or save each episode with reward and `error_type`: "
    "prime-rl logs has_error, SkyRL generate/num_error_trajectories, NeMo-RL rollout/infra_drops_total"
)


@dataclass(frozen=True, kw_only=True)
class RewardBeside:
    """The reward before a stretch and in it: over all samples, and over those that finished; NaN where unknown."""

    before: float
    during: float
    clean_before: float
    clean_during: float
    trained: bool  # failed samples count in the reward that is trained on
    logged: bool = False  # the trainer logs the reward over all samples: its curve shows the fall

    @property
    def explained(self) -> bool:
        """Whether the reward fell over all samples, and not among those that finished."""
        fall = self.before - self.during
        if not (math.isfinite(fall) and math.isfinite(self.clean_during)):
            return False
        clean_fall = self.clean_before - self.clean_during
        return fall > MIN_FALL * abs(self.before) and clean_fall < KEPT_SHARE * fall


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the share of samples that are lost."""
    counters = evidence.counters
    lost = counters.lost if counters is not None else None
    if counters is not None and (never := _never_scored(evidence, counters.counts.get("unscored"))) is not None:
        return never
    if counters is not None and lost is None and (counted := _counted(counters)) is not None:
        return _of_counts(evidence, counters, counted)
    if counters is None or lost is None or len(lost.finite()[0]) < MIN_STEPS:
        return _unjudged(lost)
    values = lost.finite()[1]
    if lost.name == MISSING and _by_design(values, limits["rise"]):
        return Healthy(reason="smaller batches are the last of an epoch, or of another size from a step on")
    if lost.name == MISSING and (short := _short_batches(values, limits["rise"])) is not None:
        return _finding(evidence, counters, lost, short, 0.0, limits)
    usual = usual_level(values)[0]
    stretches = [found for found in stretches_above(values, margin=limits["rise"]) if found.excess >= MIN_LOST_STEPS]
    if (waves := _in_waves(values, stretches, limits["rise"])) is not None:
        return _finding(evidence, counters, lost, waves, usual, limits)
    if stretches:
        worst = max(stretches, key=lambda found: found.excess)
        return _finding(evidence, counters, lost, worst, usual, limits)
    level = float(values.mean())
    chronic = limits["rise" if _is_unscored(lost) else "chronic"]
    if level > chronic and last_mean(lost) > chronic:
        whole = Stretch(first=0, last=len(values) - 1, mean=level, excess=float(values.sum()), lasting=True)
        return _finding(evidence, counters, lost, whole, math.nan, limits)
    known = f"{pct(level)} of samples are lost to failures, without a stretch of more"
    return Healthy(reason=f"{known}; {pct(last_mean(lost))} at the end" if len(values) >= MIN_LOGGED else known)


def _in_waves(values: FloatArray, stretches: Sequence[Stretch], margin: float) -> Stretch | None:
    """Return the whole from the first of several stretches to the end, where it ends in one and much is lost in all."""
    if len(stretches) < MIN_WAVES or len(values) - 1 - stretches[-1].last > MIN_STEPS:
        return None
    first = stretches[0].first
    rest = values[first:]
    usual = usual_level(values)[0]
    if len(rest) == len(values) or rest.mean() <= usual + 2 * margin:
        return None
    excess = float((rest - usual).sum())
    return Stretch(first=first, last=len(values) - 1, mean=float(rest.mean()), excess=excess, lasting=True)


def _is_unscored(lost: Series) -> bool:
    """Return whether lines of the console say that the scorer failed: of an answer, its reward says nothing."""
    return lost.name == UNSCORED and lost.raw_name.startswith(LINES)


def _counted(counters: SampleCounters) -> Series | None:
    """Return the count of failed samples that is logged where nothing tells of how many."""
    return next((counters.counts[kind] for kind in LOST if kind in counters.counts), None)


def _of_counts(evidence: Evidence, counters: SampleCounters, lost: Series) -> Verdict:
    """Judge a count of failed samples without a whole: whether far more fail over a stretch than usual."""
    steps, values = lost.finite()
    if len(values) < MIN_STEPS:
        return _unjudged(lost)
    usual = usual_level(values)[0]
    unscored = _is_unscored(lost)
    margin = max((UNSCORED_FACTOR if unscored else COUNT_FACTOR) * usual, MIN_COUNT)
    stretches = [found for found in stretches_above(values, margin=margin) if found.last > found.first]
    if not stretches:
        return Healthy(
            reason=f"{sig(float(values.mean()))} samples a step are lost to failures, without a stretch of more"
        )
    worst = max(stretches, key=lambda found: found.excess)
    first, last = int(steps[worst.first]), int(steps[worst.last])
    reward = _of_level(evidence, (first, last))
    fell = reward is not None and reward.before - reward.during > MIN_FALL * abs(reward.before)
    until = "" if worst.lasting else f" to step {last}"
    paid = unscored and reward is not None and _rose_alone(evidence, reward, first)
    words = "times a step the scorer fails, by the console," if unscored else "samples a step are lost to failures"
    change = _went(reward) if fell or unscored else ""
    return Finding(
        severity=Severity.MEDIUM if fell or paid else Severity.LOW,
        claim=f"{sig(worst.mean)} {words} from step {first}{until}, {sig(usual)} otherwise{_errors(counters)}{change}"
        + (_evaluated(evidence, first) if unscored else ""),
        observed=worst.mean,
        limit=usual + margin,
        unit="samples a step",
        onset_step=first,
        onset_interval=None if not worst.first else (int(steps[worst.first - 1]) + 1, first),
        evidence={**metric_evidence(lost, usual=usual, last_step=last), **_reward_evidence(reward)},
        causes=CAUSES,
        confirm=(f"read the errors of ten samples of steps {first} to {last}: the environment's, or the policy's?",),
        next=NEXT,
    )


def _never_scored(evidence: Evidence, lost: Series | None) -> Finding | None:
    """Return the finding of a scorer that fails all along, by the console, where what it scores was never earned."""
    if lost is None:
        return None
    steps, values = lost.finite()
    always = bool((values[: max(1, len(values) - 1)] > 0).all())  # a closing row has no lines of its own
    parts = evidence.rewards.components.values() if evidence.rewards is not None else ()
    known = (*parts, *filter(None, [evidence.metrics.get("reward/mean")]))
    never = next((one for one in known if len(one.finite()[1]) and not one.finite()[1].any()), None)
    if never is None or not (always and _is_unscored(lost)) or values.sum() < MIN_NEVER_SCORED:
        return None
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"{values.sum():.0f} times the scorer could not read an answer, by the console; "
        f"`{never.raw_name}` is exactly 0 throughout: it does not tell right answers from wrong ones",
        observed=float(values.sum()),
        limit=0.0,
        unit="samples",
        onset_step=int(steps[0]),
        onset_interval=(int(steps[0]), int(steps[0])),
        evidence=metric_evidence(lost, reward=never.raw_name),
        causes=("a verifier that expects another form, as LaTeX or a box around the answer", "no right answer given"),
        confirm=("score ten right answers with the scorer by hand: does it read them, and the given ones?",),
        next=("mend the scorer, and train again: what was trained was not paid for right answers",),
    )


def _went(reward: RewardBeside | None) -> str:
    return "" if reward is None else f"; the reward went from {sig(reward.before)} to {sig(reward.during)}"


def _rose_alone(evidence: Evidence, reward: RewardBeside, first: int) -> bool:
    """Return whether the reward rose with the failures of its scorer, and no evaluation by half as much."""
    rise = (reward.during - reward.before) / abs(reward.before) if reward.before else 0.0
    evaluated = _evaluation(evidence, first)
    if rise <= MIN_FALL or evaluated is None or not evaluated[1]:
        return False
    return (evaluated[2] - evaluated[1]) / abs(evaluated[1]) < KEPT_SHARE * rise


def _evaluation(evidence: Evidence, first: int) -> tuple[str, float, float] | None:
    """Return an evaluation's outcome by name: its last value before a step, and its last."""
    for figure in evidence.evaluation.figures if evidence.evaluation is not None else ():
        steps, values = figure.series.finite()
        if figure.outcome and (steps < first).any() and (steps >= first).any():
            return figure.series.raw_name, float(values[steps < first][-1]), float(values[-1])
    return None


def _evaluated(evidence: Evidence, first: int) -> str:
    """Return what an evaluation did meanwhile, as the end of a clause: it is scored beside training."""
    found = _evaluation(evidence, first)
    return "" if found is None else f", {found[0]} from {sig(found[1])} to {sig(found[2])} by the end"


def _of_level(evidence: Evidence, inside: Steps) -> RewardBeside | None:
    """Return the logged reward before a stretch and in it."""
    reward = evidence.metrics.get("reward/mean")
    if reward is None or len(reward.finite()[0]) < MIN_STEPS:
        return None
    steps, values = reward.finite()
    within, before = _beside(steps, inside)
    found = RewardBeside(
        before=_mean(values, before),
        during=_mean(values, within),
        clean_before=math.nan,
        clean_during=math.nan,
        trained=False,
    )
    return found if math.isfinite(found.before) and math.isfinite(found.during) else None


def _unjudged(lost: Series | None) -> NotJudged:
    if lost is not None:
        reason = f"too few steps tell how many samples are lost: {len(lost.finite()[0])} of the {MIN_STEPS} needed"
    else:
        reason = "neither a count of failed samples nor the error of an episode is recorded"
    return NotJudged(reason=reason, missing=("samples/failed_frac",), enable=ENABLE, absent=lost is None)


def _finding(
    evidence: Evidence, counters: SampleCounters, lost: Series, stretch: Stretch, usual: float, limits: Limits
) -> Finding:
    steps = lost.finite()[0]
    first, last = int(steps[stretch.first]), int(steps[stretch.last])
    began_with_run = stretch.first == 0
    reward = _reward_beside(evidence, counters, lost, stretch)
    unmasked = _unmasked(evidence, counters, lost, (first, last))
    trained = bool(unmasked) or (reward is not None and reward.trained)
    when = "at every step" if began_with_run and stretch.lasting else f"from step {first}"
    when += "" if stretch.lasting else f" to step {last}"
    beside = "" if math.isnan(usual) else f", {pct(usual)} otherwise"
    return Finding(
        severity=_severity(stretch, reward, trained=trained, kept=_stays(lost), limits=limits),
        claim=f"{pct(stretch.mean)} of samples {_lost_words(lost)} {when}{beside}{_errors(counters) or _counter(lost)}"
        + unmasked
        + (_reward_clause(reward) or (_went(reward) if _is_unscored(lost) else _shorter(evidence, stretch)))
        + (_evaluated(evidence, first) if _is_unscored(lost) else ""),
        observed=stretch.mean,
        limit=limits["rise" if _is_unscored(lost) else "chronic"] if math.isnan(usual) else usual + limits["rise"],
        unit="share",
        onset_step=first,
        onset_interval=None if began_with_run else (int(steps[stretch.first - 1]) + 1, first),
        evidence={
            **metric_evidence(lost, usual=None if math.isnan(usual) else usual, last_step=last, trained_on=trained),
            **_error_evidence(counters, (first, last)),
            **_reward_evidence(reward),
        },
        causes=CAUSES,
        confirm=(f"read the errors of ten samples of steps {first} to {last}: the environment's, or the policy's?",),
        next=(*NEXT, ROLL_BACK) if trained else NEXT,
    )


def _unmasked(evidence: Evidence, counters: SampleCounters, lost: Series, inside: Steps) -> str:
    """Say, as a clause, what shows that lost samples are trained on: a setting, or a count of masked ones that is 0."""
    if lost.name in (MISSING, UNSCORED):
        return ""
    if evidence.run.context.get(UNMASKED) is False:
        return f"; they are trained on, since {UNMASKED} is false"
    masked = counters.counts.get("masked")
    if masked is None or FLAGGED not in lost.raw_name:
        return ""
    steps, values = masked.finite()
    held = values[(steps >= inside[0]) & (steps <= inside[1])]
    return f"; they are flagged to be masked, and {masked.raw_name} is 0" if len(held) and not held.any() else ""


def _lost_words(lost: Series) -> str:
    """Say what became of lost samples, as far as the counter tells."""
    words = {
        MISSING: "are missing from batches that were full before",
        UNFINISHED: "end without a reward",
        UNSCORED: "could not be scored",
        ENDED_BY_NOTHING: "end neither by themselves nor at a limit",
    }
    return words.get(lost.name, "are lost to failures")


def _counter(lost: Series) -> str:
    return "" if lost.raw_name == EPISODES else f" ({lost.raw_name})"


def _shorter(evidence: Evidence, stretch: Stretch) -> str:
    """Say that what is left grew shorter, where samples are lost all along and others are made in their place."""
    length = evidence.metrics.get("len/response_mean")
    if length is None or stretch.first or not stretch.lasting or len(length.finite()[0]) < MIN_LOGGED:
        return ""
    values = length.finite()[1]
    first, last = float(values[: length.width].mean()), float(values[-length.width :].mean())
    if last > SHORTER * first:
        return ""
    return f"; what is trained on is what gets through: its length went from {sig(first)} to {sig(last)} tokens"


def _by_design(values: FloatArray, margin: float) -> bool:
    """Return whether short batches come as regularly as the rest of an epoch, or are of one size to the end."""
    short = np.flatnonzero(values > margin)
    if len(short) < MIN_STEPS:
        return False
    apart = np.diff(short)
    return bool(np.ptp(apart) <= 1 < apart.min() or np.ptp(values[short[0] :]) == 0.0)


def _short_batches(values: FloatArray, margin: float) -> Stretch | None:
    """Return the stretch from the first batch that was not full to the last, where a tenth of them all is missing."""
    short = np.flatnonzero(values > margin)
    if len(short) < MIN_STEPS:
        return None
    first, last = int(short[0]), int(short[-1])
    while first + 1 < last and (values[first + 1 : first + 1 + MIN_STEPS] > 0).mean() < KEPT_SHARE:  # one by itself
        short = short[1:]
        first = int(short[0])
    if len(short) < MIN_STEPS:
        return None
    mean, lasting = float(values[first : last + 1].mean()), len(values) - 1 - last <= MIN_STEPS
    excess = float(values[first : last + 1].sum())
    return Stretch(first=first, last=last, mean=mean, excess=excess, lasting=lasting) if mean > margin else None


def _stays(lost: Series) -> bool:
    """Return whether what is lost changes the batch for as long as it lasts: it lacks samples, or right rewards."""
    return lost.name == MISSING or _is_unscored(lost)


def _severity(stretch: Stretch, reward: RewardBeside | None, *, trained: bool, kept: bool, limits: Limits) -> Severity:
    """Return how much it matters: most where failed samples teach, least where they are sampled anew and it is over.

    Where a logged reward fell by them alone, they are what there is to know of that fall.
    """
    much = stretch.mean >= limits["high"]
    if trained:
        return Severity.HIGH if much else Severity.MEDIUM
    explains = reward is not None and reward.explained and reward.logged
    return Severity.MEDIUM if (much and (stretch.lasting or explains)) or (kept and stretch.lasting) else Severity.LOW


def _errors(counters: SampleCounters) -> str:
    """Return the most frequent errors as the end of a clause; empty where none is named."""
    names = list(_error_counts(counters, None))[:MAX_TOLD]
    return f" ({'; '.join(names)})" if names else ""


def _error_counts(counters: SampleCounters, within: Steps | None) -> dict[str, float]:
    """Return how often each error occurred, the most frequent first: of counters by cause, else of episodes."""
    found: dict[str, float] = {}
    for kind in (*LOST, "retried"):  # what is tried again failed
        for cause, series in counters.causes.get(kind, {}).items():
            steps, values = series.finite()
            inside = values if within is None else values[(steps >= within[0]) & (steps <= within[1])]
            found[cause] = found.get(cause, 0.0) + float(inside.sum())
    if not found and counters.episodes is not None:
        found = {cause: float(count) for cause, count in counters.episodes.causes.items()}
    return dict(sorted(((c, n) for c, n in found.items() if n > 0), key=lambda entry: (-entry[1], entry[0])))


def _error_evidence(counters: SampleCounters, within: Steps) -> dict[str, JsonScalar]:
    named = list(_error_counts(counters, within).items())[:MAX_TOLD]
    found: dict[str, JsonScalar] = {f"error_{place}": name for place, (name, _) in enumerate(named, start=1)}
    worst = max(
        (
            (float(values[(steps >= within[0]) & (steps <= within[1])].mean()), name)
            for name, series in counters.environments.get("samples/failed_frac", {}).items()
            for steps, values in [series.finite()]
            if ((steps >= within[0]) & (steps <= within[1])).any()
        ),
        default=None,
    )
    return found | ({} if worst is None else {"worst_environment": worst[1], "its_share": worst[0]})


def _reward_beside(evidence: Evidence, counters: SampleCounters, lost: Series, stretch: Stretch) -> RewardBeside | None:
    """Return the reward before and in a stretch, by what is recorded: episodes, two cohorts, or the reward alone."""
    steps = lost.finite()[0]
    inside = (int(steps[stretch.first]), int(steps[stretch.last]))
    found = _of_episodes(counters, inside)
    beside = _of_cohorts(evidence, inside) or _of_reward(evidence, lost, inside)
    if (
        found is not None
        and not found.trained
        and counters.episodes is not None
        and not counters.episodes.masks_recorded
    ):
        return beside if beside is not None and beside.trained else found  # a few recorded steps say less than the log
    return found or beside


def _beside(steps: np.ndarray, inside: Steps) -> tuple[np.ndarray, np.ndarray]:
    """Return which steps lie in a stretch, and which shortly before it, or after it where it begins the run."""
    within = (steps >= inside[0]) & (steps <= inside[1])
    before = np.flatnonzero(steps < inside[0])[-BESIDE_STEPS:]
    if not len(before):
        before = np.flatnonzero(steps > inside[1])[:BESIDE_STEPS]
    chosen = np.zeros(len(steps), bool)
    chosen[before] = True
    return within, chosen


def _mean(values: FloatArray, chosen: np.ndarray, weights: FloatArray | None = None) -> float:
    usable = chosen & np.isfinite(values)
    if not usable.any():
        return math.nan
    weight = None if weights is None else weights[usable]
    return float(np.average(values[usable], weights=weight)) if weight is None or weight.sum() > 0 else math.nan


def _of_episodes(counters: SampleCounters, inside: Steps) -> RewardBeside | None:
    rows = counters.episodes
    if rows is None or not np.isfinite(rows.clean_reward).any() or not rows.failed.any():
        return None
    within, before = _beside(rows.steps, inside)
    scored = rows.asked - rows.failed
    found = RewardBeside(
        before=_mean(rows.asked_reward, before, rows.asked),
        during=_mean(rows.asked_reward, within, rows.asked),
        clean_before=_mean(rows.clean_reward, before, scored),
        clean_during=_mean(rows.clean_reward, within, scored),
        trained=rows.masks_recorded and bool(rows.trained[within].sum() > 0),
    )
    return found if math.isfinite(found.during) else None


def _of_cohorts(evidence: Evidence, inside: Steps) -> RewardBeside | None:
    pair = cohorts(evidence.metrics)
    if pair is None:
        return None
    every, kept = pair
    parts = [series.finite() for series in (every, kept)]
    (within, before), (kept_within, kept_before) = (_beside(steps, inside) for steps, _ in parts)
    return RewardBeside(
        before=_mean(parts[0][1], before),
        during=_mean(parts[0][1], within),
        clean_before=_mean(parts[1][1], kept_before),
        clean_during=_mean(parts[1][1], kept_within),
        trained=False,
        logged=True,
    )


def _of_reward(evidence: Evidence, lost: Series, inside: Steps) -> RewardBeside | None:
    """Return the logged reward, and what it is without the lost samples where it fell as if they counted 0."""
    reward = evidence.metrics.get("reward/mean")
    if reward is None or len(reward.finite()[0]) < MIN_STEPS:
        return None
    steps, values = reward.finite()
    within, before = _beside(steps, inside)
    lost_steps, share = lost.finite()
    lost_within, lost_before = _beside(lost_steps, inside)
    gone, usual = _mean(share, lost_within), _mean(share, lost_before)
    level, during = _mean(values, before), _mean(values, within)
    if not all(map(math.isfinite, (gone, usual, level, during))) or gone >= 1:
        return None
    as_zero = level * (1 - gone) / (1 - usual) if usual < 1 else math.nan
    if not abs(during - as_zero) < abs(during - level):
        return RewardBeside(before=level, during=during, clean_before=math.nan, clean_during=math.nan, trained=False)
    return RewardBeside(
        before=level,
        during=during,
        clean_before=level / (1 - usual),
        clean_during=during / (1 - gone),
        trained=True,
    )


def _reward_clause(reward: RewardBeside | None) -> str:
    """Return what became of the reward as the end of a claim; empty where it is not known."""
    if reward is None or not (math.isfinite(reward.before) and math.isfinite(reward.during)):
        return ""
    counted = "; they count as 0 and are trained on" if reward.trained else ""
    if reward.explained:
        still = reward.clean_before - reward.clean_during <= MIN_FALL * abs(reward.clean_before)
        fell = f"; the reward fell from {sig(reward.before)} to {sig(reward.during)}, among samples that finished "
        clean = f" ({sig(reward.clean_before)} → {sig(reward.clean_during)})"
        return f"{counted}{fell}{'it did not' if still else 'by far less'}{clean}"
    if math.isfinite(reward.clean_during):
        return (
            f"{counted}; the reward of samples that finished: {sig(reward.clean_before)} → {sig(reward.clean_during)}"
        )
    return counted


def _reward_evidence(reward: RewardBeside | None) -> dict[str, JsonScalar]:
    if reward is None:
        return {}
    numbers = {
        "reward_before": reward.before,
        "reward_during": reward.during,
        "clean_reward_before": reward.clean_before,
        "clean_reward_during": reward.clean_during,
    }
    return {name: value if math.isfinite(value) else None for name, value in numbers.items()}


RULE = rule(
    check,
    "samples-lost",
    Link.ENVIRONMENT,
    rise=RISE_MARGIN,
    chronic=CHRONIC_SHARE,
    high=HIGH_SHARE,
    families=REWARDED_LANGUAGE,
)
