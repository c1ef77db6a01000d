"""Where policy and reference were equal, whether the reference moves, and whether it was swapped for another.

It moves by the run's settings, or by a distance to it that falls back at regular steps, unless the learning rate
restarts there. It was swapped where all distances to it jump at one step and nothing that the policy does jumps too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import reduce
from typing import Final

import numpy as np
import polars as pl
from numpy.lib.stride_tricks import sliding_window_view

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.evidence.tokens_by_step import SLICES, PairSteps
from ptt.diagnostics.evidence.validity import Extent, measure_extent
from ptt.diagnostics.model import JsonScalar
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray
from ptt.diagnostics.statistics.cells import EXPONENT_CAP, grouped_sums
from ptt.diagnostics.statistics.level_jump import (
    AFTER,
    BEFORE,
    MIN_SDS,
    RatioJump,
    find_level_jump,
    find_ratio_jump,
    fresh_starts,
    scatter_of,
)
from ptt.diagnostics.statistics.logprob_pairs import REF_PAIRS
from ptt.diagnostics.statistics.sawtooth import Sawtooth, find_sawtooth
from ptt.diagnostics.statistics.windows import bursts

TRL_SYNC_STEPS: Final = 512  # TRL's default of `ref_model_sync_steps`
TRL_MIXUP: Final = 0.6  # TRL's default of `ref_model_mixup_alpha`: the policy's share in the new reference
INTERVALS: Final = ("ref_update_interval", "ref_policy_update_freq")  # slime's, in rollouts, and open-instruct's
ENGINE_PAIRS: Final = ("old/rollout", "policy/rollout", "prox/rollout")
MIN_PERIOD: Final = 4  # steps: a reference that moves more often just follows the policy, without periods
MAX_EQUAL: Final = 1e-4  # mean KL, nats: two copies of one model scored by one trainer differ by less, from rounding
MAX_EQUAL_ABS: Final = 0.01  # mean |r|, nats: the same
MIN_MOVED: Final = 10.0  # times that: a distance that never gets this far may not be measured at all
RESTART_RISE: Final = 1.5  # times, within RESTART_VALUES values: a restart; a schedule changes less per step
RESTART_VALUES: Final = 4  # a restart may warm up again
RESTART_HEIGHT: Final = 0.4  # of the highest rate so far: how far a restart comes back
MAX_RESTART_FACTOR: Final = 10.0  # of a fall: no policy returns further than this at once, whatever its learning rate
NEAR_RESTART: Final = 0.1  # of the interval, and at least two steps: how closely the fall follows the restart
AT_RESTARTS: Final = 0.8  # of the falls
SWAP_FACTOR: Final = 2.0  # of the mean |r| in each slice: a KL four times as large, which no single update makes
COPIED: Final = 1e-9  # nats: where both columns are equal, no reference is recorded, and copied-logprobs reports it
SWAP_KL_FACTOR: Final = 3.0  # of the logged KL: both need not be the same estimator
BEHAVIOUR: Final = ("entropy", "reward/mean", "len/response_mean", "tools/call_frequency")
"""Shows that the policy itself jumped: that explains a jump of its distance to the reference, without any swap."""
BEHAVIOUR_FACTOR: Final = 1.3  # of its level, at that step
MOVED_UPDATE: Final = 2.0  # times the usual |policy/old| at that step: so large an update may have moved the policy
SAME_SHARE: Final = 0.5  # of the falls: a distance that falls as much falls too


@dataclass(frozen=True, kw_only=True)
class SyncSetting:
    """What the settings say about a reference that follows the policy."""

    interval: int  # steps; of slime rollouts
    mixing: float  # the policy's share in the new reference; 1: it becomes the policy
    name: str  # of the setting

    @property
    def counts_steps(self) -> bool:
        """Whether the interval counts training steps; slime's counts rollouts."""
        return self.name != "ref_update_interval"


@dataclass(frozen=True, kw_only=True)
class Swap:
    """A step at which the distance to the reference jumped in all slices at once while the policy did not."""

    step: int  # the first recorded step with the new reference
    interval: tuple[int, int]
    pair: str
    fresh: bool  # the distances start over from about 0: the policy of that step became the reference
    slices: Mapping[str, tuple[float, float]]  # mean |r| before and after, nats
    logged: tuple[float, float] | None  # the logged KL before and after; None where none is logged
    still: tuple[str, ...]  # what the policy does, as logged, that did not jump

    @property
    def factor(self) -> float:
        """Mean |r| after the swap over before, in the slice that jumped least."""
        return min((after / before for before, after in self.slices.values()), key=lambda one: abs(math.log(one)))


@dataclass(frozen=True, kw_only=True)
class Reference:
    """What shows whether the reference moves; `seen` is None if no distance to it falls at regular steps."""

    setting: SyncSetting | None
    seen: Sawtooth | None
    seen_in: str | None  # the metric or pair
    watched: tuple[str, ...]  # the distances to the reference that are recorded
    equal_at: int | None = None  # the first recorded step, if policy and reference were equal there
    swapped: Swap | None = None
    restarts: Sawtooth | None = None  # falls of `seen_in` when the learning rate restarts: no moving reference

    def period_starts(self, first: int, last: int) -> tuple[int, ...]:
        """Return the steps after `first` up to `last` where a period begins: as seen, else as the settings count."""
        if self.seen is not None:
            anchor, interval = self.seen.falls[0], self.seen.interval
        elif self.setting is not None and self.setting.counts_steps and self.setting.interval >= MIN_PERIOD:
            anchor, interval = self.setting.interval + 1, self.setting.interval
        else:
            return ()
        return tuple(range(anchor - (anchor - first - 1) // interval * interval, last + 1, interval))


def gather_reference(
    metrics: Mapping[str, Series], pairs: Mapping[str, PairSteps], context: Mapping[str, JsonScalar]
) -> Reference:
    """Look for a moving reference in the settings, the logged KL and the recorded tokens."""
    distances = [metrics["kl/ref"]] if "kl/ref" in metrics else []
    distances += [pairs[name].mean_abs for name in REF_PAIRS if name in pairs]
    rate_restarts = restarts_of(metrics["lr"]) if "lr" in metrics else ()
    setting = sync_setting(context)
    seen, seen_in, restarts = None, None, None
    for series in distances:
        found = find_sawtooth(*_by_burst(*series.finite()))
        if found is None or _engine_falls_too(found, pairs) or _in_no_slice(found, pairs):
            continue
        seen_in = series.raw_name
        if setting is None and _at_restarts(found, rate_restarts):
            restarts = restarts or found
        else:
            seen, restarts = found, None
            break
    swapped = None if setting is not None else _swap(metrics, pairs, rate_restarts)
    if swapped is not None and seen is not None:
        one = swapped.fresh and len(seen.falls) > 1  # a distance that starts over once makes no regular falls
        seen, swapped = (None, swapped) if one else (seen, None)
    return Reference(
        setting=setting,
        seen=seen,
        seen_in=seen_in,
        watched=tuple(series.raw_name for series in distances),
        equal_at=_equal_at(metrics, pairs),
        swapped=swapped,
        restarts=restarts,
    )


def restarts_of(rate: Series) -> tuple[int, ...]:
    """Return the steps at which a learning rate, having fallen, returns to an earlier height."""
    steps, values = rate.finite()
    if len(values) <= RESTART_VALUES:
        return ()
    highest = np.maximum.accumulate(values)
    ahead = sliding_window_view(values[1:], RESTART_VALUES).max(axis=1)
    ahead = np.append(ahead, np.full(len(values) - len(ahead), values[-1]))  # the last few values see less
    restarts = (
        (ahead >= RESTART_RISE * values)
        & (ahead >= RESTART_HEIGHT * highest)
        & (ahead <= RESTART_RISE * highest)
        & (values < highest / RESTART_RISE)
    )
    rises = np.append(np.diff(values) > 0, False)
    at = np.flatnonzero(restarts & rises)
    firsts = at[np.append(True, np.diff(at) > RESTART_VALUES)] if len(at) else at
    return tuple(steps[firsts + 1].tolist())


def _at_restarts(found: Sawtooth, restarts: tuple[int, ...]) -> bool:
    """Return whether the falls of a distance are those of a learning rate that begins anew."""
    if not restarts or found.factor >= MAX_RESTART_FACTOR:
        return False
    reach = max(2.0, NEAR_RESTART * found.interval)
    near = [min(abs(fall - restart) for restart in restarts) <= reach for fall in found.falls]
    return float(np.mean(near)) >= AT_RESTARTS


def _swap(metrics: Mapping[str, Series], pairs: Mapping[str, PairSteps], rate_restarts: tuple[int, ...]) -> Swap | None:
    """Return the step at which all distances to the reference jump together; None if the policy may have jumped."""
    pair = next((pairs[name] for name in REF_PAIRS if name in pairs), None)
    if pair is None or not pair.slices:
        return None
    logged = [metrics["kl/ref"].finite()] if "kl/ref" in metrics else []
    parts = [*(part.finite() for part in pair.slices.values()), *logged]
    steps = reduce(np.intersect1d, (own for own, _ in parts))
    if not len(steps):
        return None
    levels = [np.abs(values[np.searchsorted(own, steps)]) for own, values in parts]
    starts = fresh_starts(levels)
    if len(starts) == 1:
        place = int(starts[0])
    else:
        least = [SWAP_FACTOR] * len(pair.slices) + [SWAP_KL_FACTOR] * len(logged)
        jump = find_level_jump(levels, least, followers=len(logged))
        if jump is None:
            return None
        place = jump.place
    step, before = int(steps[place]), int(steps[place - 1])
    still = _still(metrics, steps, step)
    if not still or _rate_rose(metrics, rate_restarts, before, step) or _large_update(pairs, before, step):
        return None
    around = [_around(values, place) for values in levels]
    if any(min(pair_of) <= COPIED for pair_of in around):
        return None
    return Swap(
        step=step,
        interval=(before + 1, step),
        pair=pair.pair,
        fresh=len(starts) == 1,
        slices=dict(zip(pair.slices, around, strict=False)),
        logged=around[-1] if logged else None,
        still=still,
    )


def _around(values: FloatArray, place: int) -> tuple[float, float]:
    before, after = values[max(0, place - BEFORE) : place], values[place : place + AFTER]
    return max(float(np.median(before)), 1e-12), max(float(np.median(after)), 1e-12)


def _still(metrics: Mapping[str, Series], recorded: IntArray, step: int) -> tuple[str, ...]:
    """Return the metrics of the policy's behaviour if none of them jumps at a step; nothing if any does.

    If recorded steps are logged, only these count: values of neighbouring steps are alike, and would show too little
    scatter.
    """
    names = []
    for name in BEHAVIOUR:
        if name not in metrics:
            continue
        steps, values = metrics[name].finite()
        both = np.isin(steps, recorded)
        steps, values = (steps[both], values[both]) if both.sum() >= BEFORE + AFTER else (steps, values)
        place = int(np.searchsorted(steps, step))
        before, after = values[max(0, place - BEFORE) : place], values[place : place + AFTER]
        if len(before) < AFTER or len(after) < AFTER:
            continue
        moved = abs(float(np.median(after) - np.median(before)))
        level = max(abs(float(np.median(before))), abs(float(np.median(after))))
        beyond = moved > MIN_SDS * scatter_of(values)
        if beyond and moved > (BEHAVIOUR_FACTOR - 1) * level:
            return ()
        names.append(metrics[name].raw_name)
    return tuple(names)


def _rate_rose(metrics: Mapping[str, Series], rate_restarts: tuple[int, ...], before: int, step: int) -> bool:
    """Return whether the learning rate began anew, or rose at once, about a step: the policy then moves at once."""
    reach = 2 * (step - before)
    if any(before - reach <= restart <= step for restart in rate_restarts):
        return True
    steps, values = metrics["lr"].finite() if "lr" in metrics else (np.empty(0, np.int64), np.empty(0))
    near = values[(steps >= before - reach) & (steps <= step)]
    return bool(len(near) > 1 and near[-1] > RESTART_RISE * near[0] > 0)


def _large_update(pairs: Mapping[str, PairSteps], before: int, step: int) -> bool:
    """Return whether the update at a step was far larger than those before it."""
    if "policy/old" not in pairs:
        return False
    steps, values = pairs["policy/old"].mean_abs.finite()
    usual = float(np.median(values[steps < before])) if (steps < before).any() else 0.0
    here = values[(steps >= before) & (steps <= step)]
    return bool(usual > 0 and len(here) and here.max() > MOVED_UPDATE * max(usual, float(np.quantile(values, 0.9))))


def _by_burst(steps: IntArray, values: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return one value a burst of recorded steps: its steps share their rollouts, so they differ by less than noise."""
    firsts = np.searchsorted(steps, [span.first for span in bursts(steps.tolist())])
    if len(firsts) == len(steps):
        return steps, values
    return steps[firsts], np.add.reduceat(values, firsts) / np.diff(np.append(firsts, len(steps)))


def _equal_at(metrics: Mapping[str, Series], pairs: Mapping[str, PairSteps]) -> int | None:
    """Return the run's first step if every distance to the reference recorded there is about 0 and grew later."""
    limits = {name: MAX_EQUAL_ABS for name in REF_PAIRS if name in pairs}
    distances = [(pairs[name].mean_abs.finite(), limit) for name, limit in limits.items()]
    if "kl/ref" in metrics:
        distances.append((metrics["kl/ref"].finite(), MAX_EQUAL))
    distances = [(series, limit) for series, limit in distances if len(series[0])]
    if not distances:
        return None
    first = min(int(steps[0]) for (steps, _), _ in distances)
    there = [(values, limit) for (steps, values), limit in distances if steps[0] == first]
    equal = all(abs(values[0]) <= limit and values.max() > MIN_MOVED * limit for values, limit in there)
    return first if equal else None


def sync_setting(context: Mapping[str, JsonScalar]) -> SyncSetting | None:
    """Return the setting that moves the reference, None where none does or it is off."""
    if context.get("sync_ref_model") is True:
        interval = _positive(context.get("ref_model_sync_steps"))
        mixing = context.get("ref_model_mixup_alpha")
        share = float(mixing) if isinstance(mixing, int | float) and not isinstance(mixing, bool) else TRL_MIXUP
        return SyncSetting(interval=interval or TRL_SYNC_STEPS, mixing=share, name="sync_ref_model")
    for name in INTERVALS:
        interval = _positive(context.get(name))
        if interval:
            return SyncSetting(interval=interval, mixing=1.0, name=name)
    return None


def _positive(value: JsonScalar) -> int:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and value >= 1 else 0


def _engine_falls_too(found: Sawtooth, pairs: Mapping[str, PairSteps]) -> bool:
    """Return whether trainer and engine come together at the same steps: then the sampler was refreshed there."""
    return any(_falls_with(found, pairs[name].mean_abs) for name in ENGINE_PAIRS if name in pairs)


def _in_no_slice(found: Sawtooth, pairs: Mapping[str, PairSteps]) -> bool:
    """Return whether the distance falls in neither slice: then what fell is the share of tokens after tools."""
    slices = next((tuple(pairs[name].slices.values()) for name in REF_PAIRS if name in pairs), ())
    answers = [_falls_with(found, one) for one in slices]
    return len(slices) > 1 and None not in answers and not any(answers)


def _falls_with(found: Sawtooth, series: Series) -> bool | None:
    """Return whether a distance falls at these steps as well, by half as much at least; None where it is unknown."""
    steps, values = series.finite()
    ratios = []
    for fall in found.falls:
        place = int(np.searchsorted(steps, fall))
        before, after = values[max(0, place - 2) : place], values[place : place + 2]
        if len(before) and len(after) and np.median(before) > 0:
            ratios.append(float(np.median(after) / np.median(before)))
    if not ratios:
        return None
    return math.log(max(float(np.median(ratios)), 1e-9)) < -SAME_SHARE * math.log(found.factor)


LEAST_KL: Final = 1e-4  # nats a token: below it rounded logprobs and two estimators may differ by any factor
MEASURES: Final = {"k3": 1.0, "k2": 1.0, "mean |r|": 0.5, "k3 a sequence": 1.0}
"""Estimates of a KL, each with the power of it that it goes with: trainers log any of them."""
MOST_LOGGED: Final = 1.5  # times the last recorded step: a log that goes further may count other steps


@dataclass(frozen=True, kw_only=True)
class KlWitness:
    """The logged KL and that of the recorded tokens at the steps that have both, and where the two part."""

    pair: str
    logged_as: str
    steps: IntArray
    logged: FloatArray
    recorded: Mapping[str, FloatArray]  # by estimator (MEASURES)
    slices: Mapping[str, FloatArray]  # k3 by slice; NaN where it has no token
    jump: RatioJump | None
    off: Extent  # of the records from the jump on, up to its end; of all records without a jump


def gather_kl_witness(tokens: Tokens | None, metrics: Mapping[str, Series]) -> KlWitness | None:
    """Hold the recorded tokens' KL against the logged one; None where either is not recorded."""
    logged = metrics.get("kl/ref")
    number = next((at for at, pair in enumerate(tokens.pairs) if pair.name in REF_PAIRS), None) if tokens else None
    if tokens is None or logged is None or number is None:
        return None
    cells = tokens.tables.cells_of(number)
    if cells.is_empty():
        return None
    table = _by_step(cells)
    sequences = tokens.sound_rows.filter(pl.col("n_model") > 0).group_by("step").len("sequences")
    table = table.join(sequences, on="step", how="left", maintain_order="left")
    steps, values = logged.finite()
    table = _at_logged(table, steps, values)
    last_logged = int(steps[-1]) if len(steps) else 0
    return _witness(tokens, tokens.pairs[number].name, logged.raw_name, table, last_logged)


def _by_step(cells: pl.DataFrame) -> pl.DataFrame:
    """Return the sums of k3, r, its size and its square by step, and of k3 by slice.

    A cell holds tokens of about one |r| and of both signs; s_r gives the share of each sign.
    """
    n, s_abs, s_r = (cells[name].to_numpy().astype(np.float64) for name in ("n", "s_abs", "s_r"))
    size = np.minimum(s_abs / n, EXPONENT_CAP)
    share = np.clip(np.divide(s_r, s_abs, out=np.zeros_like(s_r), where=s_abs > 0), -1.0, 1.0)
    k3 = n * (np.expm1(-size) * (1 + share) + np.expm1(size) * (1 - share)) / 2 + s_r
    summed = cells.select("step", "slice", "n", "s_abs", "s_r", "s_r2").with_columns(pl.Series("k3", k3))
    parts = [
        pl.when(pl.col("slice") == at).then(pl.col(name)).otherwise(0).alias(f"{name} {title}")
        for at, title in enumerate(SLICES)
        for name in ("n", "k3")
    ]
    summed = summed.with_columns(parts)
    return grouped_sums(summed, ["step"], [name for name in summed.columns if name not in ("step", "slice")])


def _at_logged(table: pl.DataFrame, steps: IntArray, values: FloatArray) -> pl.DataFrame:
    """Return the sums with the KL logged of each step; where several steps are logged as one, they are added up.

    A log of every tenth step is the mean of the ten that end there.
    """
    recorded = table["step"].to_numpy()
    at = np.searchsorted(steps, recorded)
    spacing = int(np.median(np.diff(steps))) if len(steps) > 1 else 1
    inside = at < len(steps)
    inside[inside] = steps[at[inside]] - recorded[inside] < max(1, spacing)
    table = table.filter(inside).with_columns(pl.Series("at", at[inside]))
    table = table.group_by("at", maintain_order=True).agg(pl.col("step").max(), pl.exclude("step").sum())
    return table.with_columns(pl.Series("logged", values[table["at"].to_numpy()]))


def _witness(tokens: Tokens, pair: str, logged_as: str, table: pl.DataFrame, last_logged: int) -> KlWitness:
    columns = {name: table[name].to_numpy().astype(np.float64) for name in table.columns if name != "step"}
    n = columns["n"]
    k3 = np.maximum(columns["k3"] / n, 0.0)
    logged = np.abs(columns["logged"])
    kept = _comparable(k3, logged)
    steps = table["step"].to_numpy()[kept]
    recorded = {
        "k3": k3,
        "k2": columns["s_r2"] / n / 2,
        "mean |r|": columns["s_abs"] / n,
        "k3 a sequence": k3 * n / np.maximum(columns["sequences"], 1.0),
    }
    recorded = {name: values[kept] for name, values in recorded.items()}
    slices = {title: _means(columns[f"k3 {title}"], columns[f"n {title}"]) for title in SLICES}
    jump = None
    if len(steps) and last_logged <= MOST_LOGGED * max(1, int(steps[-1])):
        measures = {name: (values, MEASURES[name]) for name, values in recorded.items()}
        jump = find_ratio_jump(steps, logged[kept], measures)
    rows = tokens.sound_rows
    if jump is not None:
        rows = rows.filter(pl.col("step").is_between(jump.span.since, jump.span.until))
    return KlWitness(
        pair=pair,
        logged_as=logged_as,
        steps=steps,
        logged=logged[kept],
        recorded=recorded,
        slices={title: values[kept] for title, values in slices.items()},
        jump=jump,
        off=measure_extent(tokens, rows),
    )


def _means(sums: FloatArray, counts: FloatArray) -> FloatArray:
    means: FloatArray = np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)
    return means


def _comparable(recorded: FloatArray, logged: FloatArray) -> BoolArray:
    """Return the steps at which a KL was logged, and either of the two is large enough to compare."""
    both = (recorded >= LEAST_KL) & (logged > 0)
    factor = float(np.quantile(recorded[both] / logged[both], 0.25)) if both.any() else 1.0
    return (logged > 0) & ((recorded >= LEAST_KL) | (logged * factor >= LEAST_KL))
