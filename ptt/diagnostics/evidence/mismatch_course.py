"""What the course of a logged mismatch tells of its cause: how it begins, grows, falls back, and what it goes with.

The mismatch of a step is the first of `MEASURES` that is logged, else the mean |r| of the recorded tokens. Its course
is one of five: it spikes and is near nothing in between, falls back at single steps, is there from the first step and
stays, grows with the updates from a level at which both sides agree, or jumps at one step. Signs of the settings and
of metrics beside it add to that of the course.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from ptt.diagnostics.evidence.excursions import (
    CHECKPOINT,
    ENGINE_RESTART,
    EPOCH,
    EVALUATION,
    RESTART,
    SYNC,
    Recurrence,
)
from ptt.diagnostics.evidence.machines import Event
from ptt.diagnostics.evidence.mismatch_beside import (
    BEYOND_SCATTER,
    NORMAL_MAD,
    OF_LOGPROBS,
    answers_hold,
    own_forwards,
    reference_beside,
    reward_at,
    reward_beside,
    uneven,
    unmoved,
)
from ptt.diagnostics.evidence.mismatch_causes import Sign, sign
from ptt.diagnostics.evidence.mismatch_rise import (
    AT_ONCE,
    BESIDE,
    EARLY,
    FELL,
    FIRST_VALUES,
    GREW,
    SPREADS,
    STILL,
    growth_of,
    jump_of,
    left_zero,
    own_limit,
    resets_of,
    saw_of,
    tail_growth,
)
from ptt.diagnostics.evidence.mismatch_settings import configured_signs, frozen_signs, told_signs
from ptt.diagnostics.evidence.series import MIN_LOGGED, Series
from ptt.diagnostics.evidence.tokens_by_step import PairSteps
from ptt.diagnostics.evidence.training_setup import TrainingSetup
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.recurring_excursions import find_coincidences
from ptt.diagnostics.statistics.trend import classify_trend
from ptt.diagnostics.statistics.within_groups import within_correlation
from ptt.diagnostics.wording import pct, sig

MEASURES: Final[Mapping[str, tuple[float, float]]] = {
    "mismatch/logp_abs_mean": (0.0, 0.05),
    "mismatch/prob_diff": (0.0, 0.01),
    "mismatch/prob_error": (1.0, 0.05),
    "mismatch/ppl_diff": (0.0, 0.05),
    "mismatch/kl": (0.0, 0.02),
}
"""Value without any difference, and distance from it at which a step disagrees; of the KL a squared distance."""
AGREES: Final = 0.7  # of that distance: both sides agree up to their arithmetic
GREW_FAR: Final = 10.0  # times: no arithmetic changes so much
LONGER: Final = 1.5  # times the length of the first answers
STEADY: Final = 2.0  # times, either way: a level that stays
MIXED: Final = 0.2  # of the last values at least lie on either side of the first ones' median
REACHED: Final = 0.7  # of the last level, in the first tenth of the run: it grows no further
LOW: Final = 0.3  # of the distance at which a step disagrees
FAR_BEYOND: Final = 4.0  # times it: rounding does not reach it
LARGE: Final = 0.5  # nats of mean |r|: tokens of two different contexts or models
SMALL: Final = 0.2  # nats of mean |r|: of noise beyond it E r = -KL is of its size, whatever the cause
ONE_SIDED: Final = 0.6  # of mean |r|, the size of its signed mean
TWO_SIDED: Final = 0.3
HEAVY: Final = (
    ("mismatch/logp_abs_std", "mismatch/logp_abs_mean", 1.5),
    ("mismatch/prob_diff_std", "mismatch/prob_diff", 2.5),
)
"""Standard deviation over mean: of a normal distribution 0.76; of probabilities, fixed where certain, 1.6."""
FEW_SEQUENCES: Final = 0.02  # at least so many are off: a maximum bounds the share, mean <= share * maximum
MANY_SEQUENCES: Final = 0.5
BROKEN: Final = 1.5  # mean exp |r| of the best sequence: rounding and single tokens leave some sequences near 1
CLEAN: Final = 0.1  # of the mean error, that of the best sequence: there are sequences that agree
IMPOSSIBLE: Final = (
    ("mismatch/logp_abs_max", 10.0, "mismatch/logp_abs_mean", 0.2),
    ("mismatch/prob_diff_max", 0.98, "mismatch/prob_diff", 0.05),
)
"""Worst token, from where it is certain to one side and impossible to the other, and mean, up to where most agree."""
RATIO_ABOVE: Final = 1.3  # the mean of the ratios is 1 where the engine's logprobs are those the tokens were drawn with
CUT: Final = 0.05  # of the ratios: the share that breaks the rule
KL_OF_CUT: Final = 0.09  # nats: w - 1 - log w at a cap of 1.5; its mean over the engine's samples is the KL
FAR_BELOW: Final = 0.01  # the ratio of a token is at least the mass that truncated sampling leaves
UNRELATED: Final = 0.5  # correlation of both sides' probabilities
RELATED: Final = 0.8
GOES_WITH: Final = 0.5  # rank correlation of the changes from step to step
MAX_CHANCE: Final = 0.01
MIN_PAIRED: Final = 30
MAX_PAIRED: Final = 2_000  # the last ones: the draws cost time
DRAWS: Final = 199
TIMING_RATE: Final = 0.05
AFTER_RESTART: Final = 3  # logged steps
SEED: Final = 20_260_611
KINDS: Final = {
    RESTART: "restart", EPOCH: "epoch", EVALUATION: "evaluation", CHECKPOINT: "checkpoint", SYNC: "sync",
    ENGINE_RESTART: "restart",
}  # fmt: skip
STAYS_BELOW: Final = 0.95  # of the steps
MASKED: Final = 0.01  # of the sequences
OTHER_SIDE: Final = 0.05  # of those on the one side: rounding falls to both alike
LAGS: Final = 0.5  # updates behind, in the median


def metric_signs(
    metrics: Mapping[str, Series],
    *,
    other: Mapping[str, Series],
    pairs: Mapping[str, PairSteps],
    setup: TrainingSetup,
    excursions: tuple[Recurrence, ...],
    happened: Mapping[str, IntArray],
    events: Sequence[Event] = (),
    by_tokens: bool = False,
) -> tuple[Sign, ...]:
    """Return what logged metrics and settings tell of the cause of a mismatch; empty where none is logged.

    by_tokens: the recorded tokens follow a pattern, which tells of their course what there is to tell.
    """
    measured = _measure(metrics, pairs)
    if measured is None:
        return ()
    level, limit = measured
    told = by_tokens and level.name not in metrics
    course = [] if told else list(_course(level, limit, excursions, happened, metrics))
    if not told and not course and left_zero(level, setup.settings):
        course = list(_from_zero(level))
    course += [*_reordered(metrics), *_masked(metrics)]
    if not course and not told:
        return ()
    off = level.steps[level.values > limit]
    beside = [*_sequences(metrics, off), *_distribution(metrics, off), *_companions(level, metrics), *_tail(metrics)]
    beside += [*unmoved(metrics), *own_forwards(metrics, other, setup)]
    single = _impossible(metrics, off if len(off) else level.steps) is not None
    configured = configured_signs(setup, other, level, off, within=_within(level, limit), single=single)
    return (*course, *beside, *configured, *frozen_signs(metrics), *told_signs(events))


def _measure(metrics: Mapping[str, Series], pairs: Mapping[str, PairSteps]) -> tuple[Series, float] | None:
    """Return the mismatch by step, as its distance from none, and the distance at which a step disagrees.

    The first measure, but where it stays within its limit the first one that leaves the run's own level.
    """
    within = None
    found = [(metrics[name], *MEASURES[name]) for name in MEASURES if name in metrics]
    found += [(pairs[name].mean_abs, 0.0, 0.05) for name in ("old/rollout", "policy/rollout") if name in pairs]
    for series, zero, limit in found:
        level = _away(series, zero)
        if len(level.steps) >= MIN_LOGGED:
            own = own_limit(level, metrics, limit)
            if own is not None or (within is None and np.median(level.values[-level.width :]) > limit):
                return level, own or limit
            within = within or (level, limit)
    return within or _ratio_away(metrics)


def _ratio_away(metrics: Mapping[str, Series]) -> tuple[Series, float] | None:
    """Return the distance of the mean ratio from 1, where it lies far above: the one trace of a mismatch then."""
    ratio = metrics.get("is/ratio_mean")
    if ratio is None or len(ratio.finite()[0]) < MIN_LOGGED or np.median(ratio.finite()[1]) <= RATIO_ABOVE:
        return None
    return _away(ratio, 1.0), RATIO_ABOVE - 1


def _away(series: Series, zero: float) -> Series:
    steps, values = series.finite()
    return replace(series, steps=steps, values=np.abs(values - zero), flags=series.flags[np.isfinite(series.values)])


def _within(level: Series, limit: float) -> bool:
    """Return whether a limit is the run's own, below the usual one."""
    return limit < MEASURES.get(level.name, (0.0, 0.0))[1]


def _course(
    level: Series,
    limit: float,
    excursions: tuple[Recurrence, ...],
    happened: Mapping[str, IntArray],
    metrics: Mapping[str, Series],
) -> Iterator[Sign]:
    steps, values = level.steps, level.values
    first, late = float(np.median(values[:FIRST_VALUES])), float(np.median(values[-level.width :]))
    zero = MEASURES.get(level.name, (float(level.name == "is/ratio_mean"), 0.0))[0]
    numbers = {"name": level.raw_name, "first": sig(zero + float(values[0])), "late": sig(zero + late)}
    spikes = next((one for one in excursions if one.lead.series.name in MEASURES), None)
    if spikes is not None and float(np.median(values)) <= limit:
        share = pct(len(spikes.lead.steps) / len(steps))
        kinds = [KINDS[one.kind] for one in spikes.coincidences if one.kind in KINDS]
        resumed = _after_restart(spikes.lead.steps, steps, happened)
        name = "after_restart" if resumed else "spikes_at_events" if kinds else "spikes"
        if any(one.kind == ENGINE_RESTART for one in spikes.coincidences):
            name = "spikes_at_engines"
        yield sign(name, **numbers, share=share, event=kinds[0] if kinds else "")
    elif (falls := _falls(level, limit, happened)) is not None:
        kind, when = falls
        yield sign(f"falls_{kind}", **numbers, when=when)
    elif late <= limit and float(np.median(values)) <= limit:
        if impossible := _impossible(metrics, steps):
            yield impossible
        elif late > LOW * limit and _stays(level):
            yield sign("constant", **numbers)
        return
    elif _broke_at_once(level, limit, late):
        yield sign("first_update", **numbers)
    elif first > limit and _stays(level):
        yield sign("constant", **numbers)
        if level.name != "mismatch/prob_error":  # a mean of exp |r| goes with its worst tokens, whatever the cause
            yield from uneven(values)
        if level.name in OF_LOGPROBS:
            yield sign("large" if late > LARGE else "moderate", **numbers)
            yield from answers_hold(metrics) if late > LARGE else ()
        elif late > FAR_BEYOND * limit:
            yield sign("far_beyond", **numbers)
    elif (jump := jump_of(level, limit)) is not None:
        at = int(steps[jump])
        begun = [kind for kind in KINDS if np.isin(happened.get(kind, ()), [at - 1, at, steps[jump - 1]]).any()]
        kind = "restart" if {RESTART, ENGINE_RESTART}.intersection(begun) else "epoch" if EPOCH in begun else "alone"
        yield sign(f"jumps_{kind}", **numbers, at=str(at))
        yield from reward_at(metrics, at)
    elif values[0] <= limit and late >= GREW * values[0]:
        longer = growth_of(metrics["len/response_mean"]) if "len/response_mean" in metrics else 1.0
        if longer >= LONGER and any(_tail(metrics)):
            yield sign("grew_with_length", **numbers, length=sig(longer))
        else:
            yield sign("grew", **numbers)
            yield from _growth(level, limit, late, metrics)
    elif first > limit:
        yield sign("rises" if late > first else "sinks", **numbers)
        yield from _by_length(level, metrics)


def _from_zero(level: Series) -> Iterator[Sign]:
    values, late = level.values, float(np.median(level.values[-level.width :]))
    yield sign("left_zero", name=level.raw_name, late=sig(late))
    if np.median(values[1 : max(EARLY, len(values) // 10)]) >= REACHED * late:
        yield sign("levels_off")


def _broke_at_once(level: Series, limit: float, late: float) -> bool:
    """Return whether both sides agree at the first step alone, and are as far apart from the second as at the end."""
    before, after = level.values[0], level.values[1:]
    if before * AT_ONCE > after[0] or (after[:EARLY] <= limit).any():
        return False
    lasts = _stays(replace(level, steps=level.steps[1:], values=after, flags=level.flags[1:]))
    return lasts or bool(np.median(after[:FIRST_VALUES]) >= REACHED * late)


def _by_length(level: Series, metrics: Mapping[str, Series]) -> Iterator[Sign]:
    """Look for steps that are off the more the longer their answers are; a level that updates make would grow alone."""
    length = metrics.get("len/response_mean")
    if length is None:
        return
    _, one, two = np.intersect1d(level.steps, length.finite()[0], return_indices=True)
    if len(one) < MIN_PAIRED:
        return
    own = np.zeros(len(one), np.int64)
    found = within_correlation(level.values[one], length.finite()[1][two], own, seed=SEED, draws=DRAWS)
    if found.rho >= GOES_WITH and found.p_value <= MAX_CHANCE:
        yield sign("rises_with_length", name=length.raw_name, rho=sig(found.rho))


def _after_restart(off: IntArray, steps: IntArray, happened: Mapping[str, IntArray]) -> bool:
    """Return whether each stretch of steps that are off, as logged, follows a restart, as chance would not have it.

    A restart is dated by its checkpoint: one that several stretches go with may lie some steps before them.
    """
    restarts, places = happened.get(RESTART, np.zeros(0, np.int64)), np.searchsorted(steps, off)
    begins = places[np.append(True, np.diff(places) > 1)]
    back = 1 if len(begins) == 1 else AFTER_RESTART
    chance = (len(restarts) * (back + 1) / len(steps)) ** len(begins)
    since = [min(int(steps[max(at - back, 0)]), int(steps[at]) - 1) for at in begins.tolist()]
    followed = (((restarts >= first) & (restarts <= steps[at])).any() for first, at in zip(since, begins, strict=True))
    return all(followed) and (len(begins) == 1 or chance <= TIMING_RATE)


def _growth(level: Series, limit: float, late: float, metrics: Mapping[str, Series]) -> Iterator[Sign]:
    """Tell a growth with the updates from one that comes late, or that soon levels off."""
    values = level.values
    early = values[: len(values) // 3]
    still = np.median(early) <= min(limit, STILL * np.median(values[:FIRST_VALUES]))
    if still and classify_trend(early) != "rose":
        yield sign("grew_late")
    else:
        yield sign("grew_far" if late >= GREW_FAR * values[0] else "grew_some")
    if np.median(values[: max(EARLY, len(values) // 10)]) >= REACHED * late:
        yield sign("levels_off")
    yield from reward_beside(metrics)
    yield from reference_beside(level, metrics)


def _falls(level: Series, limit: float, happened: Mapping[str, IntArray]) -> tuple[str, str] | None:
    """Return with which kind of event the mismatch falls back to agreement, and when in words."""
    steps, values = level.steps, level.values
    teeth, lasting = saw_of(level, limit), resets_of(level, AGREES * limit)
    if teeth is not None:
        at = np.array(teeth.falls, np.int64)
    elif len(lasting) and values[lasting[0] - 1] > limit:
        at = steps[lasting]
    else:
        begin = int(np.argmax(values > limit))
        around = float(np.median(values[begin:]))
        low = (values <= AGREES * limit) & (values * FELL <= around)
        low &= np.arange(len(values)) > begin
        at = steps[low & ~np.append(False, low[:-1])]
        if around <= limit or len(at) < 2 or low.sum() > len(values) / 3:
            return None
    named = find_coincidences(steps, at, {kind: happened[kind] for kind in KINDS if kind in happened}, rate=TIMING_RATE)
    shown = ", ".join(str(step) for step in at[:4].tolist())
    if named:  # a restart sends weights, too
        kinds = [KINDS[one.kind] for one in named]
        return ("restart" if "restart" in kinds else kinds[0]), shown
    if teeth is None and not len(lasting) and (_within(level, limit) or _scatters(values, limit)):
        return None  # single values fall so by their noise
    return ("regular" if teeth is not None else "alone"), shown


def _scatters(values: FloatArray, limit: float) -> bool:
    """Return whether steps that are off differ by so many factors that one in agreement is no fall."""
    logs = np.log(values[values > limit])
    return BEYOND_SCATTER * NORMAL_MAD * float(np.median(np.abs(logs - np.median(logs)))) > math.log(FELL)


def _stays(level: Series) -> bool:
    """Return whether the level ends where it began, as far as it scatters."""
    values = level.values[-level.width :]
    early, late = float(np.median(level.values[: level.width])), float(np.median(values))
    above = float((values > early).mean())
    return late <= STEADY * early <= STEADY**2 * late or MIXED <= above <= 1 - MIXED


def _reordered(metrics: Mapping[str, Series]) -> Iterator[Sign]:
    """Look for logprobs whose sum over a sequence is right and whose places are not."""
    medians = {
        name: float(np.median(values))
        for name in ("mismatch/ppl_diff", "is/ratio_mean", "is/truncated_frac")
        if name in metrics and len(values := metrics[name].finite()[1]) >= MIN_LOGGED
    }
    whole, ratio = medians.get("mismatch/ppl_diff", math.inf), medians.get("is/ratio_mean", 0.0)
    if whole <= MEASURES["mismatch/ppl_diff"][1] and ratio > RATIO_ABOVE:
        yield sign("reordered", whole=sig(whole), ratio=sig(ratio))
    elif (share := medians.get("is/truncated_frac", 0.0)) >= CUT and whole < KL_OF_CUT * share:
        yield sign("cut_but_whole", whole=sig(whole), share=pct(share))


def masked_on_one_side(metrics: Mapping[str, Series]) -> tuple[float, float] | None:
    """Return the shares of sequences with a ratio below and above its bounds, where nearly all are on one side."""
    found = [metrics[name].finite()[1] for name in ("is/seq_low_frac", "is/seq_high_frac") if name in metrics]
    if len(found) < 2 or min(map(len, found)) < MIN_LOGGED:
        return None
    low, high = (float(values.mean()) for values in found)
    return (low, high) if max(low, high) >= MASKED and min(low, high) <= OTHER_SIDE * max(low, high) else None


def _masked(metrics: Mapping[str, Series]) -> Iterator[Sign]:
    if (shares := masked_on_one_side(metrics)) is not None:
        yield sign("masked_on_one_side", low=pct(shares[0]), high=pct(shares[1]))


def _sequences(metrics: Mapping[str, Series], off: IntArray) -> Iterator[Sign]:
    """Bound the share of sequences that are off, from the errors of the mean, the worst and the best sequence."""
    worst = _at(metrics, "mismatch/seq_error_max", off)
    mean = _at(metrics, "mismatch/seq_error_mean", off) or _at(metrics, "mismatch/prob_error", off)
    best = _at(metrics, "mismatch/seq_error_min", off)
    if worst is None or mean is None or worst <= 1 or mean <= 1:
        return
    if best is not None and best - 1 > MEASURES["mismatch/prob_error"][1]:
        yield sign("all_sequences", best=sig(best), mean=sig(mean))
        if best >= BROKEN:
            yield sign("all_broken", best=sig(best))
        return
    share, clean = (mean - 1) / (worst - 1), best is None or best - 1 < CLEAN * (mean - 1)
    name = "few_sequences" if share < FEW_SEQUENCES else "some_sequences" if share < MANY_SEQUENCES else ""
    if name and clean:
        known = "" if best is None else "the best sequence agrees and "
        yield sign(name, worst=sig(worst), mean=sig(mean), share=pct(share), best=known)


def _distribution(metrics: Mapping[str, Series], off: IntArray) -> Iterator[Sign]:
    mean, signed = (_at(metrics, name, off) for name in ("mismatch/logp_abs_mean", "mismatch/kl"))
    if mean and signed is not None and mean < LARGE:
        sided = abs(signed) / mean
        if sided < TWO_SIDED or (sided >= ONE_SIDED and mean < SMALL):
            yield sign("one_sided" if sided >= ONE_SIDED else "two_sided", signed=sig(signed), mean=sig(mean))
    for name, of, factor in HEAVY:
        spread, usual = _at(metrics, name, off), _at(metrics, of, off)
        if usual and spread is not None and spread >= factor * usual:
            yield sign("heavy", spread=sig(spread), mean=sig(usual))
            break
    if impossible := _impossible(metrics, off):
        yield impossible
    least = _at(metrics, "is/ratio_min", off)
    ratio, chi2 = (_at(metrics, name, off) for name in ("is/ratio_mean", "mismatch/chi2_token"))
    if ratio is not None and ratio > RATIO_ABOVE:
        yield sign("ratio_above", ratio=sig(ratio), name=metrics["is/ratio_mean"].raw_name)
    elif chi2 is not None and chi2 < 0:
        yield sign("ratio_below", chi2=sig(chi2), name=metrics["mismatch/chi2_token"].raw_name)
    elif (
        ratio is not None
        and (least is None or least > FAR_BELOW)
        and (below := float((metrics["is/ratio_mean"].finite()[1] < 1).mean())) >= STAYS_BELOW
    ):
        yield sign("ratio_stays_below", ratio=sig(ratio), share=pct(below), name=metrics["is/ratio_mean"].raw_name)
    correlation = _at(metrics, "mismatch/pearson", off)
    if correlation is not None and (correlation < UNRELATED or correlation > RELATED):
        yield sign("unrelated" if correlation < UNRELATED else "related", correlation=sig(correlation))


def _tail(metrics: Mapping[str, Series]) -> Iterator[Sign]:
    """Tell a part of the tokens that gets worse from all of them: their spread then grows more than their mean."""
    for spread, mean, factor in SPREADS:
        if spread in metrics and mean in metrics and (grew := tail_growth(metrics[spread], metrics[mean])) >= factor:
            yield sign("tail_grows", name=metrics[spread].raw_name, grew=sig(grew), mean=metrics[mean].raw_name)
            return


def _impossible(metrics: Mapping[str, Series], steps: IntArray) -> Sign | None:
    """Return a sign where the worst token is certain to one side and impossible to the other, and most are neither."""
    for name, least, mean, most in IMPOSSIBLE:
        worst, usual = _at(metrics, name, steps), _at(metrics, mean, steps)
        if worst is not None and usual is not None and worst >= least and usual <= most:
            return sign("impossible", name=metrics[name].raw_name, worst=sig(worst), mean=sig(usual))
    return None


def _companions(level: Series, metrics: Mapping[str, Series]) -> Iterator[Sign]:
    """Look for metrics whose changes from step to step go with those of the mismatch."""
    for kind, name in BESIDE.items():
        series = metrics.get(name)
        if series is None:
            continue
        _, one, two = np.intersect1d(level.steps, series.finite()[0], return_indices=True)
        one, two = one[-MAX_PAIRED:], two[-MAX_PAIRED:]
        if len(one) < MIN_PAIRED:
            continue
        changes, others = np.diff(level.values[one]), np.diff(series.finite()[1][two])
        found = within_correlation(changes, others, np.zeros(len(changes), np.int64), seed=SEED, draws=DRAWS)
        if kind == "lag" and float(np.median(series.finite()[1])) >= LAGS:
            yield sign("lags", name=series.raw_name, lag=sig(float(np.median(series.finite()[1]))))
        if found.rho >= GOES_WITH and found.p_value <= MAX_CHANCE:
            yield sign(f"follows_{kind}", rho=sig(found.rho), name=series.raw_name)


def _at(metrics: Mapping[str, Series], name: str, steps: IntArray) -> float | None:
    """Return the median of a metric at these steps, or None."""
    series = metrics.get(name)
    if series is None:
        return None
    at, values = series.finite()
    chosen: FloatArray = values[np.isin(at, steps)]
    return float(np.median(chosen)) if len(chosen) else None
