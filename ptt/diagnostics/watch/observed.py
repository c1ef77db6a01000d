"""What a watch is given of each training step: its metrics, and what the token pass measured of its tails."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Final

import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.rules.policy_update.kl_over_target import SUMMED_KL
from ptt.diagnostics.schema import Flag
from ptt.diagnostics.statistics.slices import SLICES

NOT_NUMBERS: Final = {Flag.NAN: math.nan, Flag.POS_INF: math.inf, Flag.NEG_INF: -math.inf}


@dataclass(frozen=True, kw_only=True)
class StepTail:
    """One slice's |log-ratio| at one step, of the main pair: tokens, and percentiles in nats."""

    tokens: int
    p95: float
    p99: float


@dataclass(frozen=True, kw_only=True)
class ObservedStep:
    """One training step.

    metrics: by canonical name, NaN and infinities as logged; a metric that the step did not log is absent.
    tails: by slice (`text_only`, `post_tool`), without slices that have no token; None: no token pass.
    """

    step: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    tails: Mapping[str, StepTail] | None = None


def observed_steps(metrics: Mapping[str, Series], step_stats: pl.DataFrame | None = None) -> Iterator[ObservedStep]:
    """Yield the steps of what was gathered, ascending.

    metrics: Evidence.metrics; step_stats: the table of that name, of which the first pair counts.
    """
    by_step: dict[int, dict[str, float]] = {}
    for name, series in metrics.items():
        if series.raw_name in SUMMED_KL:  # of another size than a mean over tokens
            continue
        for step, value, flag in zip(series.steps.tolist(), series.values.tolist(), series.flags.tolist(), strict=True):
            if flag == Flag.FINITE or flag in NOT_NUMBERS:
                by_step.setdefault(step, {})[name] = NOT_NUMBERS.get(flag, value)
    tails = _step_tails(step_stats)
    for step in sorted(by_step.keys() | tails.keys()):
        yield ObservedStep(step=step, metrics=by_step.get(step, {}), tails=tails.get(step))


def _step_tails(step_stats: pl.DataFrame | None) -> dict[int, dict[str, StepTail]]:
    if step_stats is None or step_stats.is_empty():
        return {}
    rows = step_stats.filter(pl.col("pair") == step_stats["pair"][0])
    tails: dict[int, dict[str, StepTail]] = {}
    for step, name, tokens, p95, p99 in rows.select("step", "slice", "n", "p95", "p99").iter_rows():
        part = SLICES[name != SLICES[0]]  # the slice after observations has a name of its own in some runs
        tails.setdefault(step, {})[part] = StepTail(tokens=tokens, p95=p95, p99=p99)
    return tails
