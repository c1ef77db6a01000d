"""When a noisy curve began to rise: the likeliest ramp or step."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray, product
from ptt.diagnostics.statistics.trend import STEP_AR1, block_correlation
from ptt.diagnostics.statistics.windows import Span

DRAWS: Final = 400
SEED: Final = 20_261_122
COVERAGE: Final = 0.95
MAX_OWN_SHARE: Final = 0.8  # of the scatter about the ramp, the most that can be each span's own
RAMP_PARAMETERS: Final = 4  # two levels, and where the ramp begins and ends
MIN_SPANS: Final = 6  # two more than parameters
POINTS: Final = 9  # in each span, at which a ramp is evaluated and averaged
ROUNDS: Final = 2  # noise is estimated from the ramp's residuals, then the ramp is refitted with that noise
TINY: Final = 1e-12
DRAWS_AT_A_TIME: Final = 20  # each is compared with thousands of ramps: all at once would take some 60 MB more


@dataclass(frozen=True, kw_only=True)
class RiseOnset:
    """The step from which a curve rises, with its 95% interval."""

    step: int
    interval: tuple[int, int]


@dataclass(frozen=True)
class _Ramps:
    """Every ramp that is tried, free of its mean and of length 1, once the noise is white."""

    whitener: FloatArray  # (n, n)
    level: FloatArray  # (n,), a flat curve
    shapes: FloatArray  # (ramps, n)
    first: IntArray  # ramps sorted by where they begin: index of the first one of each beginning
    begins: FloatArray  # where they begin

    def rest(self, values: FloatArray) -> FloatArray:
        """Return values, (..., n, k), in white noise and without their level."""
        white = np.einsum("ij,...jk->...ik", self.whitener, values)
        rest: FloatArray = white - self.level[:, None] * np.einsum("i,...ik->...k", self.level, white)[..., None, :]
        return rest


def rise_onset(
    values: FloatArray,
    own: FloatArray,
    spans: Sequence[Span],
    *,
    recorded: IntArray,
    steps: float,
    draws: int = DRAWS,
) -> RiseOnset | None:
    """Return the first recorded step of a rise of several curves, or None for too few spans or no rise.

    values: (n, k), of k curves, finite; own: (n,), the variance a span's values have by themselves; recorded: every
    step with data, ascending; steps: how many of them a span has. A curve is flat, then a straight ramp (a step, where
    it has no length), then flat, each curve with a height of its own and not falling. Least squares with the noise's
    covariance: `own`, and an AR(1) of STEP_AR1 over steps. A ramp is dated at the first recorded step above its foot.
    The interval holds the steps whose best ramp fits little worse than the best of all (profile likelihood); the
    threshold is the loss that a twentieth of curves drawn from that ramp exceed. It begins right after the last step
    tried before these, so that it covers gaps between recorded steps, and ends with the span of the last of them.
    """
    count = len(values)
    if count < MIN_SPANS:
        return None
    tried, of_ramps, shapes = _ramps(spans, recorded)
    relative = own / own.mean() if own.mean() > 0 else np.ones(count)
    follows = block_correlation(count, max(1, round(steps)), STEP_AR1)
    share = MAX_OWN_SHARE / 2
    for _ in range(ROUNDS):
        ramps = _whitened(shapes, of_ramps, tried, (1 - share) * follows + share * np.diag(relative))
        rest = ramps.rest(values)
        fitted = _best_fit(ramps, rest)
        noise = np.square(rest - fitted).sum() / ((count - RAMP_PARAMETERS) * values.shape[1])
        share = min(MAX_OWN_SHARE, float(own.mean()) / max(noise, TINY))
    if not np.square(fitted).sum() > TINY:
        return None
    profile = _profile(ramps, rest[None])[:, 0]
    best = int(np.argmax(profile))
    inside = np.flatnonzero(profile >= profile.max() - _allowed_loss(ramps, fitted, rest - fitted, best, draws))
    return _in_steps(ramps.begins, spans, best, (int(inside[0]), int(inside[-1])))


def _in_steps(begins: FloatArray, spans: Sequence[Span], best: int, inside: tuple[int, int]) -> RiseOnset:
    """Return an onset with its interval: from after the last step that is not in it to the end of its last span.

    To the end, since a percentile of a span that mixes both levels lies near the higher one and draws the fit forward.
    """
    low, high = inside
    first = spans[0].first if low == 0 else int(begins[low - 1]) + 1
    last = min(span.last for span in spans if span.last >= begins[high])
    step = int(begins[best])
    return RiseOnset(step=step, interval=(min(first, step), max(last, step)))


def _ramps(spans: Sequence[Span], recorded: IntArray) -> tuple[FloatArray, IntArray, FloatArray]:
    """Return first steps of ramps, the index of each ramp's first step, and its mean over each span's recorded steps.

    A ramp begins and ends at a span's first recorded step or in its middle, and is long enough not to pass for a step.
    Steps are tried at quarters of spans too, since a span that contains one can have any value between both levels.
    """
    bounds = [np.searchsorted(recorded, (span.first, span.last + 1)) for span in spans]
    held = [recorded[low:high].astype(np.float64) for low, high in bounds]
    points = [_parts(steps, POINTS, 0.5) for steps in held]
    at, counts = np.concatenate(points), np.array([len(part) for part in points])
    feet = np.concatenate([_parts(steps, 2) for steps in held])
    ends = np.unique(np.append(feet, held[-1][-1]))
    jumps = np.concatenate([_parts(steps, 4) for steps in held])
    firsts, shapes = [jumps], [(at >= jumps[:, None]).astype(np.float64)]
    for foot in feet[feet < recorded[-1]].tolist():
        later = ends[np.searchsorted(ends, foot) + 2 :]
        shapes.append(np.clip((at - foot) / (later - foot)[:, None], 0.0, 1.0))
        firsts.append(np.full(len(later), recorded[np.searchsorted(recorded, foot, "right")]))
    order = np.argsort(np.concatenate(firsts), kind="stable")
    begins, of_ramps = np.unique(np.concatenate(firsts)[order], return_inverse=True)
    starts = np.cumsum([0, *counts[:-1]])
    return begins, of_ramps, np.add.reduceat(np.concatenate(shapes)[order], starts, axis=1) / counts


def _parts(steps: FloatArray, count: int, inside: float = 0.0) -> FloatArray:
    """Return the steps where `count` equal parts begin, or `inside` of a part later; all steps if they are fewer."""
    if len(steps) <= count:
        return steps
    return steps[((np.arange(count) + inside) * len(steps) / count).astype(np.int64)]


def _whitened(shapes: FloatArray, of_ramps: IntArray, begins: FloatArray, covariance: FloatArray) -> _Ramps:
    whitener = np.linalg.inv(np.linalg.cholesky(covariance))
    level = whitener.sum(axis=1)
    level /= math.sqrt(float(np.square(level).sum()))
    white = product(shapes, whitener.T)
    white -= np.outer(product(white, level), level)
    length = np.sqrt(np.square(white).sum(axis=1))
    moving: BoolArray = length > 1e-6  # a ramp that begins before the first span and ends in it is a flat curve
    used, first = np.unique(of_ramps[moving], return_index=True)
    return _Ramps(whitener, level, white[moving] / length[moving, None], first, begins[used])


def _best_fit(ramps: _Ramps, rest: FloatArray) -> FloatArray:
    """Return the ramp that fits curves, (n, k), best."""
    heights = np.maximum(product(ramps.shapes, rest), 0.0)
    total = np.square(rest).sum(axis=0)
    best = int(np.argmax(_gains(list(np.square(heights).T[..., None]), list(total[:, None]), len(rest))[:, 0]))
    fitted: FloatArray = np.outer(ramps.shapes[best], heights[best])
    return fitted


def _profile(ramps: _Ramps, rests: FloatArray) -> FloatArray:
    """Return the gain of the best ramp of each beginning, (beginnings, draws), for curves (draws, n, k)."""
    parts = [rests[start : start + DRAWS_AT_A_TIME] for start in range(0, len(rests), DRAWS_AT_A_TIME)]
    return np.concatenate([_profile_of_few(ramps, part) for part in parts], axis=1)


def _profile_of_few(ramps: _Ramps, rests: FloatArray) -> FloatArray:
    _, count, curves = rests.shape
    gained = [np.square(np.maximum(product(ramps.shapes, rests[:, :, curve].T), 0.0)) for curve in range(curves)]
    total = list(np.square(rests).sum(axis=1).T)
    return np.maximum.reduceat(_gains(gained, total, count), ramps.first, axis=0)


def _gains(gained: Sequence[FloatArray], total: Sequence[FloatArray], count: int) -> FloatArray:
    """Return the squares that ramps explain, (ramps, draws), each curve's in units of its noise about the best ramp.

    gained: each curve's explained squares, (ramps, draws); total: each curve's squares about its mean, (draws,).
    """
    share = functools.reduce(np.add, (part / np.maximum(of, TINY) for part, of in zip(gained, total, strict=True)))
    best = np.argmax(share, axis=0)
    noise = [of - part[best, np.arange(len(of))] for part, of in zip(gained, total, strict=True)]
    gains: FloatArray = functools.reduce(
        np.add,
        (part / np.maximum(left / (count - RAMP_PARAMETERS), TINY) for part, left in zip(gained, noise, strict=True)),
    )
    return gains


def _allowed_loss(ramps: _Ramps, fitted: FloatArray, residual: FloatArray, best: int, draws: int) -> float:
    """Return how much worse than the best the true beginning fits in all but a twentieth of curves drawn from it.

    Noise is drawn white, with the residuals' covariance between curves.
    """
    count, curves = fitted.shape
    covariance = np.einsum("ij,ik->jk", residual, residual) / (count - RAMP_PARAMETERS)
    spread = np.linalg.cholesky(covariance + TINY * np.eye(curves))
    noise = np.einsum("dnk,jk->dnj", np.random.default_rng(SEED).normal(size=(draws, count, curves)), spread)
    noise -= ramps.level[:, None] * np.einsum("i,dik->dk", ramps.level, noise)[:, None, :]
    profile = _profile(ramps, fitted[None] + noise)
    return float(np.quantile(profile.max(axis=0) - profile[best], COVERAGE))
