"""A tail of a few tokens per thousand: figures against loops and closed forms, the test against scipy and a null."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from builders import Array
from scipy import stats
from slow_cases import first_fast

from ptt.diagnostics.statistics import bins
from ptt.diagnostics.statistics.arrays import IntArray
from ptt.diagnostics.statistics.rare_tails import (
    BlockCounts,
    Exceedances,
    RareRise,
    count_maxima,
    drawn_percentiles,
    excess_p_value,
    max_shift_p_value,
    nats_beyond,
    rare_rise,
    share_beyond,
)

BLOCKS, SEQUENCES, TOKENS = 24, 90, 12


def counted(r: Array) -> BlockCounts:
    """Count |r| of (blocks, sequences, tokens)."""
    coarse = bins.coarse_bin_of(bins.bin_of(np.abs(r).ravel())).reshape(r.shape)
    tokens = [np.bincount(block.ravel(), minlength=bins.COARSE_COUNT) for block in coarse]
    maxima = [np.bincount(block.max(axis=1), minlength=bins.COARSE_COUNT) for block in coarse]
    return BlockCounts(tokens=np.array(tokens, dtype=float), maxima=np.array(maxima, dtype=float))


def noise(seed: int, *, step_sd: float = 0.2) -> Array:
    generator = np.random.default_rng(seed)
    own, shared = generator.normal(size=(BLOCKS, SEQUENCES, 1)), generator.normal(size=(BLOCKS, 1, 1))
    scale = np.exp(0.3 * own + step_sd * shared)
    return 0.2 * scale * generator.standard_t(4, size=(BLOCKS, SEQUENCES, TOKENS))


def heavy(seed: int, share: float, *, since: int = 8) -> Array:
    """Give factors of which a share of the sequences is twelve from block `since` on."""
    hit = np.random.default_rng(seed).random((BLOCKS, SEQUENCES, 1)) < share
    hit &= (np.arange(BLOCKS) >= since)[:, None, None]
    return np.where(hit, 12.0, 1.0)


def test_nats_beyond_a_limit_are_those_of_a_loop_but_for_the_width_of_bins() -> None:
    r = np.abs(noise(3))
    for limit in (0.05, 0.2):
        plain = [float(np.maximum(block - limit, 0.0).sum()) for block in r]
        assert nats_beyond(counted(r).tokens, limit) == pytest.approx(plain, rel=0.1)


def judged(post: Array, text: Array | None = None) -> RareRise:
    rise = rare_rise(counted(post), None if text is None else counted(text), min_tokens=50)
    assert rise is not None
    return rise


def test_what_lies_beyond_an_edge_is_counted_exactly() -> None:
    r = noise(1)
    edge = float(bins.coarse_edges()[41])
    assert share_beyond(counted(r).tokens, edge) == pytest.approx((np.abs(r) >= edge).sum(axis=(1, 2)))
    between = share_beyond(counted(r).tokens, 1.07 * edge)
    assert between.sum() == pytest.approx((np.abs(r) > 1.07 * edge).sum(), rel=0.1)


def test_units_are_counted_by_their_largest_value_once_a_block() -> None:
    frame = pl.DataFrame(
        {
            "block": pl.Series([0, 0, 0, 1], dtype=pl.Int32),
            "unit": [5, 5, 7, 5],
            "coarse_bin": pl.Series([[1, 30], [2, 44], [0, 3], [9]], dtype=pl.List(pl.UInt8)),
        }
    )
    maxima = count_maxima(frame, blocks=3)
    assert {(int(block), int(bin_)) for block, bin_ in np.argwhere(maxima)} == {(0, 44), (0, 3), (1, 9)}
    assert maxima.sum() == 3


def orders_of(blocks: int) -> IntArray:
    return np.random.default_rng(4).permuted(np.tile(np.arange(blocks), (4999, 1)), axis=1)


def test_the_p_value_is_that_of_a_permutation_test() -> None:
    beyond = np.random.default_rng(3).poisson(np.repeat([5.0, 8.0], 6)).astype(float)
    contrast = np.repeat([-1.0, 1.0], 6)[None]
    wanted = stats.permutation_test(
        (beyond[6:], beyond[:6]), lambda one, two: one.sum() - two.sum(), alternative="greater", n_resamples=10_000
    )
    figure = Exceedances(beyond=beyond, exposure=np.full(12, 100.0))
    assert max_shift_p_value([figure], contrast, orders_of(12))[0] == pytest.approx(wanted.pvalue, abs=0.01)


def test_a_block_that_holds_few_tokens_tells_little() -> None:
    exposure = np.tile([20.0, 2000.0], 12)
    beyond = np.random.default_rng(5).poisson(exposure / 200).astype(float)
    beyond[1::2] = np.where(np.arange(12) < 6, 6.0, 16.0)  # what the large blocks say is clear
    beyond[::2] = np.where(np.arange(12) < 6, 1.0, 0.0)  # and no small one has a say
    contrast = np.repeat([-1.0, 1.0], 12)[None]
    assert max_shift_p_value([Exceedances(beyond=beyond, exposure=exposure)], contrast, orders_of(24))[0] < 0.02


def test_p_values_of_steady_counts_with_uneven_tokens_are_uniform() -> None:
    generator, p_values = np.random.default_rng(14), []
    contrasts = np.array([np.where(np.arange(24) < place, -1.0, 1.0) for place in (4, 8, 12, 16, 20)])
    for _ in range(120):
        exposure = generator.lognormal(6, 0.8, 24)
        rate = 0.01 * generator.gamma(4, 1 / 4, 24)  # blocks differ by more than counts do
        figure = Exceedances(beyond=generator.poisson(rate * exposure).astype(float), exposure=exposure)
        p_values.append(max_shift_p_value([figure], contrasts, orders_of(24)[:999])[0])
    assert stats.kstest(p_values, "uniform").pvalue > 0.01


def test_what_grows_alike_in_both_is_no_excess() -> None:
    generator, contrast, p_values = np.random.default_rng(15), np.repeat([-1.0, 1.0], 12), []
    rate = np.repeat([3.0, 12.0], 12)
    for _ in range(60):
        both = [
            Exceedances(beyond=generator.poisson(rate).astype(float), exposure=np.full(24, 100.0)) for _ in range(2)
        ]
        p_values.append(excess_p_value(both[0], both[1], contrast, orders_of(24)[:999]))
    assert 0.3 < float(np.mean(p_values)) < 0.7
    flat = Exceedances(beyond=generator.poisson(3.0, 24).astype(float), exposure=np.full(24, 100.0))
    assert excess_p_value(both[0], flat, contrast, orders_of(24)) < 0.001


def test_redrawn_percentiles_scatter_about_the_recorded_one() -> None:
    r = noise(16, step_sd=0.0)
    drawn = drawn_percentiles(counted(r).tokens, 0.99)
    assert float(np.median(drawn)) == pytest.approx(float(np.quantile(np.abs(r), 0.99)), rel=0.08)
    assert 0.0 < float(drawn.std()) < 0.1


def test_a_tail_of_one_sequence_in_25_is_seen() -> None:
    grown = noise(6) * heavy(7, 0.04)
    rise = judged(grown, noise(71))
    assert rise.growth_p < 0.002
    assert rise.excess_p < 0.002
    assert rise.after > 3 * rise.before
    assert rise.units[1] > rise.units[0]


@pytest.mark.parametrize(
    "factor",
    first_fast(
        [
            np.ones(BLOCKS),
            np.geomspace(1, 6, BLOCKS),  # growth of everything is for percentiles to tell
            np.geomspace(6, 1, BLOCKS),
            np.exp(0.6 * np.sin(np.arange(BLOCKS) / 4)),
        ]
    ),
)
def test_what_moves_all_tokens_alike_is_no_growth_of_rare_ones(factor: Array) -> None:
    found = [judged(noise(seed) * factor[:, None, None]).growth_p < 0.02 for seed in range(20, 35)]
    assert sum(found) <= 1


def test_rare_tokens_in_both_slices_are_not_more_of_one() -> None:
    rise = judged(noise(8) * heavy(9, 0.04), noise(10) * heavy(11, 0.04))
    assert rise.excess_p > 0.02


def test_a_constant_share_of_extreme_sequences_is_no_growth() -> None:
    found = [judged(noise(seed) * heavy(seed + 50, 0.03, since=0)).growth_p < 0.05 for seed in range(20)]
    assert sum(found) <= 3


def test_too_few_blocks_with_tokens_give_no_answer() -> None:
    counts = counted(noise(12))
    few = BlockCounts(tokens=counts.tokens[:7], maxima=counts.maxima[:7])
    assert rare_rise(few, None, min_tokens=50) is None
    assert rare_rise(counts, None, min_tokens=10_000) is None
