"""Totals beside the parts that they are the weighted sum of, and the learning rate beside its schedule."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from ptt.diagnostics.evidence.metric_bindings import HeldSteps, LoggedMetrics, align, plain_number
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.metrics.identities import Fit, Identity
from ptt.diagnostics.model import JsonScalar
from ptt.diagnostics.statistics.arrays import FloatArray, product
from ptt.diagnostics.statistics.relations import rounding_of

MIN_ROWS: Final = 10  # steps that weights must fit, all of them, before a later one can break them
ROWS_A_PART: Final = 3  # and so many for each weight that is fitted: fewer fit anything
MAX_PARTS: Final = 12
VARIED: Final = 3  # distinct totals at least: a total that stands still fits any weights
TIGHT: Final = 1e-4  # of the parts' sizes: weights that fit only nearly are of another sum, as of one with a penalty
TOTAL: Final = "the total"


def fitted_sums(identity: Identity, logged: LoggedMetrics) -> Iterator[HeldSteps]:
    """Yield every total of an identity with what its parts give; none where no weights fit the first steps."""
    for fit in identity.fits:
        total, parts = logged[fit.total], _parts(fit, logged)
        if total is None or not 1 <= len(parts) <= MAX_PARTS or total.raw_name in parts:
            continue
        if any(one.logged for one in (total, *parts.values())) or (fit.needs and logged[fit.needs] is None):
            continue
        held = _held(identity, total, parts)
        if held is not None:
            yield held


def _parts(fit: Fit, logged: LoggedMetrics) -> dict[str, Series]:
    patterns = [fit.parts] if isinstance(fit.parts, str) else fit.parts
    return {one.raw_name: one for pattern in patterns for one in logged.like(pattern).values()}


def _held(identity: Identity, total: Series, parts: Mapping[str, Series]) -> HeldSteps | None:
    steps, values = align({TOTAL: total, **parts})
    first = MIN_ROWS + ROWS_A_PART * len(parts)
    if len(steps) < first:
        return None
    y, x = values[TOTAL], np.stack([values[name] for name in parts], axis=1)
    rounding = rounding_of(y)
    offs = np.stack([rounding_of(values[name]) for name in parts], axis=1)
    weights = _weights(y, x, rounding, offs, first)
    if weights is None:
        return None
    given = product(x, weights)
    shown = f"{', '.join(parts)}"
    return HeldSteps(
        steps=steps,
        beyond=np.abs(y - given) - _tolerance(identity, x, weights, rounding, offs),
        left=y,
        right=given,
        sides=(total.raw_name, "the weighted sum of its parts"),
        symbols={"total": (total.raw_name, y), "parts": (shown, given)},
        names=(total.raw_name, *parts),
        quantity=total.name,
    )


def _tolerance(
    identity: Identity, x: FloatArray, weights: FloatArray, rounding: FloatArray, offs: FloatArray
) -> FloatArray:
    """Return by how much total and sum may differ, (n,): by rounding of each, and by a share of the parts' sizes."""
    sizes = product(np.abs(x), np.abs(weights))
    return identity.absolute + identity.relative * sizes + rounding + product(offs, np.abs(weights))


def _weights(y: FloatArray, x: FloatArray, rounding: FloatArray, offs: FloatArray, first: int) -> FloatArray | None:
    """Return the weights that fit each of the first steps: all ones, or those of least squares; else None."""
    start = _varied(y, first)
    if start is None:
        return None
    candidates: list[FloatArray] = [np.ones(x.shape[1])]
    early, target = x[:start], y[:start]
    solved, _, rank, _ = np.linalg.lstsq(early, target, rcond=None)
    if rank == x.shape[1]:
        candidates.append(solved.astype(np.float64))
    for weights in candidates:
        off = np.abs(target - product(early, weights))
        tight = (
            TIGHT * product(np.abs(early), np.abs(weights)) + rounding[:start] + product(offs[:start], np.abs(weights))
        )
        if (off <= tight).all():
            return weights
    return None


def _varied(y: FloatArray, first: int) -> int | None:
    """Return how many of the first steps show the weights: enough of them, at which the total changes."""
    distinct = np.flatnonzero(np.concatenate([[True], y[1:] != y[:-1]]))
    if len(np.unique(y)) < VARIED or len(distinct) < first:
        return None
    return max(first, int(distinct[first - 1]) + 1)


SCHEDULES: Final = ("linear", "cosine", "constant", "constant_with_warmup")


def scheduled_rate(identity: Identity, logged: LoggedMetrics, facts: Mapping[str, JsonScalar]) -> Iterator[HeldSteps]:
    """Yield the learning rate beside the schedule of the settings, where these name one, its peak and its length.

    Some versions log the rate of the step, others that of the next one; the nearer of them counts.
    """
    series = logged[identity.schedule] if identity.schedule else None
    kind = str(facts.get("lr_scheduler_type", "")).lower()
    peak, length = (plain_number(facts.get(name)) for name in ("learning_rate", "max_steps"))
    warm = plain_number(facts.get("warmup_steps"))
    if series is None or kind not in SCHEDULES or not peak or length is None or length <= 0 or warm is None:
        return
    share = plain_number(facts.get("warmup_ratio")) or 0.0
    warm = (math.ceil(warm * length) if 0 < warm < 1 else warm) or math.ceil(share * length)
    steps, rates = series.finite()
    if not len(steps) or series.logged:
        return
    near = np.stack(
        [_rate(kind, steps.astype(np.float64) + shift, peak=peak, warm=warm, length=length) for shift in (0, -1, 1)]
    )
    off = np.abs(near - rates)
    nearest = off.argmin(axis=0)
    given = np.take_along_axis(near, nearest[None], axis=0)[0]
    yield HeldSteps(
        steps=steps,
        beyond=off.min(axis=0) - identity.relative * peak - rounding_of(rates),
        left=rates,
        right=given,
        sides=(series.raw_name, "the schedule"),
        symbols={"lr": (series.raw_name, rates), "schedule": (kind, given)},
        names=(series.raw_name,),
        quantity=series.name,
    )


def _rate(kind: str, steps: FloatArray, *, peak: float, warm: float, length: float) -> FloatArray:
    """Return the learning rate after `steps` steps, (n,), as transformers' schedulers set it."""
    if kind == "constant":
        return np.full(len(steps), peak)
    rising = steps / max(1.0, warm)
    done = np.clip((steps - warm) / max(1.0, length - warm), 0.0, 1.0)
    falling = {"linear": 1.0 - done, "cosine": 0.5 * (1.0 + np.cos(np.pi * done))}.get(kind, np.ones(len(steps)))
    return peak * np.clip(np.where(steps < warm, rising, falling), 0.0, 1.0)
