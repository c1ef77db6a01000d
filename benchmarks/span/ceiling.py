"""What a test could show of a made run's growth that knew its onset, slice, value, family and noise.

Growth of scale: generalised least squares of the log scale of each step, under the noise that was drawn. Growth in a
share of the sequences, or in few tokens: the score of each sequence at the growth's own size, against permutations of
the sequences. Both use every token and look at one place: no valid test of the run has much more power.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import polars as pl
from scipy.stats import norm
from scipy.stats import t as student

from benchmarks.naive import tokens_of
from benchmarks.span.dump import make
from benchmarks.span.run import BoolArray, Drawn, FloatArray, Form, IntArray
from benchmarks.span.truth import sides
from ptt.diagnostics.statistics.trend import Contrast, StepNoise, shift_p_value

PERMUTATIONS: Final = 9999
SEED: Final = 20_261_129
FLOOR: Final = 1e-4  # nats: what rounding made of smaller |r| has no scale
QUANTILE: Final = 0.75  # of |r|, for its scale: above what rounding makes 0
TOKEN_VARIANCE: Final = 1.5  # of log |r|'s quantile, times tokens: Student's t with 3 to 8 degrees of freedom
MARK: Final = 2.0  # factor by which tokens that may grow are marked


@dataclass(frozen=True, kw_only=True)
class Ceiling:
    """The p-values of the best test, each the larger of two: of growth after tools, and of more of it than in text."""

    p_value: float
    noise_known: float  # of growth of scale, by a test that was told its step noise too


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """The tokens of all sequences that repeat no other: sequence, step by number, |r|, and the two slices."""

    row: IntArray
    place: IntArray
    size: FloatArray
    slices: tuple[BoolArray, BoolArray]  # after tools, where the tail may grow; text


def ceiling(drawn: Drawn) -> Ceiling:
    """Give what the best test shows of a run that grows."""
    tokens = _tokens(drawn)
    return _of_scale(drawn, tokens) if drawn.post.form == "scale" else _of_some(drawn, tokens)


def _tokens(drawn: Drawn) -> Tokens:
    row, r, post = _read(drawn)
    form: Form = "scale" if drawn.post.form == "scale" else "share"  # what is drawn after it stays the same
    growth = replace(drawn.post, form=form, share=1.0, curve=np.ones_like)
    twice = [np.abs(_read(replace(drawn, post=replace(growth, size=size)))[1]) for size in (1.0, MARK)]
    sums = np.bincount(row, np.abs(r))
    heads = np.arange(len(sums)) // drawn.layout.group * drawn.layout.group
    copies = (sums == sums[heads]) & (heads != np.arange(len(sums)))
    kept = ~copies[row]
    place = np.repeat(np.arange(len(drawn.layout.steps)), drawn.layout.per_step)[row]
    may_grow = post & (twice[1] > MARK**0.5 * twice[0])
    return Tokens(
        row=row[kept], place=place[kept], size=np.maximum(np.abs(r), FLOOR)[kept], slices=(may_grow[kept], ~post[kept])
    )


def _read(drawn: Drawn) -> tuple[IntArray, FloatArray, BoolArray]:
    """Make a run, and give the sequence, r and slice of its model tokens."""
    frame = pl.from_arrow(make(drawn).select(["step", "model_mask", "policy_logp", "ref_logp"]))
    assert isinstance(frame, pl.DataFrame)
    _, r, post = tokens_of(frame)
    return np.repeat(np.arange(frame.height), frame["model_mask"].list.sum().to_numpy()), r, post


def _of_scale(drawn: Drawn, tokens: Tokens) -> Ceiling:
    """Fit the level and the growth of both slices at once, by generalised least squares."""
    count, u = len(drawn.layout.steps), drawn.layout.u
    level = np.stack([_log_scales(tokens, part, count) for part in tokens.slices]) - np.log(drawn.level)
    usable = np.isfinite(level.ravel())
    covariance = _covariance(drawn, tokens)[np.ix_(usable, usable)]
    curve, text = drawn.post.curve(u), drawn.text.curve(u)
    columns = [(np.ones(count), 0 * u), (0 * u, np.ones(count)), (curve, 0 * u)]
    if text.any():
        columns.append((0 * u, text))
    p_values = []
    for more, contrast in ((False, (0.0, 0.0, 1.0, 0.0)), (True, (0.0, 0.0, 1.0, -1.0))):
        # text that stays is known to stay, but not when growth after tools is held against it
        held = [*columns, (0 * u, curve)] if more and not text.any() else columns
        design = np.array([np.concatenate(column) for column in held])[:, usable]
        solved = np.linalg.solve(covariance, np.column_stack([design.T, level.ravel()[usable]]))
        inverse, wanted = np.linalg.pinv(design @ solved[:, :-1]), np.array(contrast[: len(held)])
        size = float(wanted @ inverse @ (design @ solved[:, -1]))
        p_values.append(float(norm.sf(size / np.sqrt(float(wanted @ inverse @ wanted)))))
    return Ceiling(p_value=_learning_noise(drawn, level), noise_known=max(p_values))


def _learning_noise(drawn: Drawn, level: FloatArray) -> float:
    """Give the p-value at the true place of a test that learns the noise as `ptt` does, with as much AR(1)."""
    steps = drawn.layout.steps
    before, after = (np.flatnonzero(part) for part in sides(drawn, drawn.post))
    noise = StepNoise(observations=np.ones(len(steps), np.int64), gap=float(np.median(np.diff(steps))))
    each = [
        shift_p_value(
            values, Contrast(before=before, after=after), own=np.full(len(steps), np.nan), noise=noise, most_own=0.0,
            seed=SEED,
        )
        for values in (level[0], level[0] - level[1])
    ]  # fmt: skip
    return max(each)


def _log_scales(tokens: Tokens, part: BoolArray, count: int) -> FloatArray:
    """Give the log scale of a slice's |r| at each step; NaN where it has no token."""
    place, size = tokens.place[part], tokens.size[part]
    order = np.argsort(place, kind="stable")
    by_step = np.split(size[order], np.searchsorted(place[order], np.arange(1, count)))
    return np.array([np.log(np.quantile(each, QUANTILE)) if len(each) else np.nan for each in by_step])


def _covariance(drawn: Drawn, tokens: Tokens) -> FloatArray:
    """Give the covariance of both slices' log scales: of steps, which share a part, of sequences, groups and tokens."""
    noise, steps, group = drawn.noise, drawn.layout.steps, drawn.layout.group
    count, rows = len(steps), int(drawn.layout.per_step.sum())
    at = np.repeat(np.arange(count), drawn.layout.per_step)
    alike = noise.rho ** np.abs(steps[:, None] - steps[None, :]).astype(np.float64)
    covariance = np.kron([[1.0, noise.shared], [noise.shared, 1.0]], alike * np.outer(noise.step_sd, noise.step_sd))
    held = [np.bincount(tokens.row[part], minlength=rows).astype(np.float64) for part in tokens.slices]
    total = [np.maximum(np.bincount(at, each, count), 1.0) for each in held]
    weights = [each / of[at] for each, of in zip(held, total, strict=True)]
    by_group = [np.bincount(np.arange(rows) // group, each) for each in weights]
    per_token = TOKEN_VARIANCE * (1 + noise.token_ar**2) / (1 - noise.token_ar**2)
    for one in (0, 1):
        for two in (0, 1):
            own = noise.sequence_sd**2 * np.bincount(at, weights[one] * weights[two], count)
            own += noise.group_sd**2 * np.bincount(at[::group], by_group[one] * by_group[two], count)
            own += per_token / total[one] if one == two else 0.0
            covariance[one * count + np.arange(count), two * count + np.arange(count)] += own
    return np.asarray(covariance)


def _of_some(drawn: Drawn, tokens: Tokens) -> Ceiling:
    """Score sequences by the likelihood that they, or some of their tokens, moved; permute them over the run."""
    generator = np.random.default_rng(SEED)
    rows = np.flatnonzero(np.bincount(tokens.row[tokens.slices[0]], minlength=int(tokens.row.max()) + 1))
    place = np.repeat(np.arange(len(drawn.layout.steps)), drawn.layout.per_step)[rows]
    score = _shares_moved if drawn.post.form == "share" else _extremes
    post, text = (score(drawn, tokens, part)[rows] for part in tokens.slices)
    done = drawn.post.curve(drawn.layout.u)[place]
    done = done - done.mean()
    orders = np.stack([done, *(generator.permutation(done) for _ in range(PERMUTATIONS))])
    shown = [orders @ values for values in (post, post - text)]
    p_value = max(float((each >= each[0] - 1e-9).mean()) for each in shown)
    return Ceiling(p_value=p_value, noise_known=p_value)


def _shares_moved(drawn: Drawn, tokens: Tokens, part: BoolArray) -> FloatArray:
    """Give the log likelihood ratio that a sequence is one of those that moved; 0 without tokens."""
    noise, rows = drawn.noise, int(tokens.row.max()) + 1
    n = np.bincount(tokens.row[part], minlength=rows)
    level = np.bincount(tokens.row[part], np.log(tokens.size[part]), rows) / np.maximum(n, 1)
    at = np.repeat(np.arange(len(drawn.layout.steps)), drawn.layout.per_step)[:rows]
    usual = np.array([np.median(level[(at == step) & (n > 0)]) if ((at == step) & (n > 0)).any() else 0.0
                      for step in range(len(drawn.layout.steps))])  # fmt: skip
    spread = np.sqrt(noise.sequence_sd**2 + noise.group_sd**2 + TOKEN_VARIANCE / np.maximum(n, 1))
    off = level - usual[at]
    ratio = np.exp(np.clip(norm.logpdf(off, np.log(drawn.post.size), spread) - norm.logpdf(off, 0.0, spread), -50, 50))
    return np.where(n > 0, np.log1p(drawn.post.share * (ratio - 1)), 0.0)


def _extremes(drawn: Drawn, tokens: Tokens, part: BoolArray) -> FloatArray:
    """Give each sequence's log likelihood ratio that some of its tokens are extreme; 0 without tokens."""
    rows, size = int(tokens.row.max()) + 1, tokens.size[part]
    n = np.maximum(np.bincount(tokens.row[part], minlength=rows), 1)
    usual = np.bincount(tokens.row[part], np.log(size), rows) / n
    draws = np.log(np.abs(student.rvs(drawn.noise.freedom, size=20_000, random_state=SEED))).mean()
    x = size / np.exp(usual[tokens.row[part]] - draws)
    plain, far = (student.pdf(x / by, drawn.noise.freedom) / by for by in (1.0, drawn.post.size))
    return np.asarray(np.bincount(tokens.row[part], np.log1p(drawn.post.share * (far / plain - 1)), rows))
