"""Resampling: intervals as scipy's, units kept whole, two levels in a window."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from builders import Array, frame_of, tables_of
from scipy import stats

from ptt.diagnostics.statistics import bins, bootstrap
from ptt.diagnostics.statistics.bootstrap import coarse_percentile, coarse_percentiles, pool_blocks, resample_blocks

EDGES = bins.coarse_edges()


def sequences_from(
    groups: list[Array], *, block: list[int] | None = None, unit: list[int] | None = None
) -> pl.DataFrame:
    sequences = tables_of(frame_of([{"r": group} for group in groups])).sequences
    return sequences.with_columns(
        block=pl.Series(block or [0] * len(groups), dtype=pl.Int32),
        unit=pl.Series(unit or list(range(len(groups))), dtype=pl.UInt32),
    )


def heavy(count: int, tokens: int, seed: int = 0) -> list[Array]:
    generator = np.random.default_rng(seed)
    return [np.exp(0.4 * generator.normal()) * generator.normal(size=tokens) for _ in range(count)]


def test_the_spread_of_a_resampled_percentile_is_that_of_scipys_bootstrap_of_whole_sequences() -> None:
    groups = heavy(60, 200)
    resampled = resample_blocks(sequences_from(groups), blocks=1, seed=1, draws=2000)
    low, high = np.percentile(coarse_percentile(resampled.drawn[0], 0.95), [2.5, 97.5])
    tokens = np.abs(np.array(groups))

    def p95(chosen: Array) -> float:
        return float(np.percentile(tokens[chosen.astype(int)], 95))

    wanted = stats.bootstrap(
        (np.arange(60),), p95, n_resamples=2000, vectorized=False, method="percentile", rng=2
    ).confidence_interval
    assert high - low == pytest.approx(wanted.high - wanted.low, rel=0.15)
    assert (low, high) == pytest.approx((wanted.low, wanted.high), rel=0.05)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    truth = float(np.percentile(np.abs(np.concatenate(heavy(4000, 100, seed=99))), 95))
    hits = 0
    for seed in range(60):
        resampled = resample_blocks(sequences_from(heavy(50, 60, seed=seed)), blocks=1, seed=seed)
        low, high = np.percentile(coarse_percentile(resampled.drawn[0], 0.95), [2.5, 97.5])
        hits += int(low <= truth <= high)
    assert 50 <= hits <= 60  # of 95%: 57 expected


@pytest.mark.parametrize("q", [0.5, 0.9, 0.95, 0.99])
def test_a_coarse_percentile_lies_within_its_bin_of_numpys(q: float) -> None:
    tokens = np.abs(np.random.default_rng(5).standard_t(4, size=50_000)) * 0.2
    histogram, _ = np.histogram(tokens, EDGES)
    found = float(coarse_percentile(histogram.astype(float), q))
    wanted = float(np.percentile(tokens, 100 * q))
    place = int(np.searchsorted(EDGES, wanted, side="right")) - 1
    assert EDGES[place] <= found <= EDGES[place + 1]
    assert found == pytest.approx(wanted, rel=0.03)  # a bin is a fifth wide, the density inside it nearly even


def test_coarse_percentiles_of_many_histograms_are_those_of_each_and_nan_where_empty() -> None:
    counts = np.random.default_rng(6).integers(0, 50, size=(3, 4, bins.COARSE_COUNT)).astype(float)
    counts[1, 2] = 0
    found = coarse_percentile(counts, 0.9)
    assert found.shape == (3, 4)
    for place in np.ndindex(3, 4):
        alone = float(coarse_percentile(counts[place], 0.9))
        assert found[place] == alone or (np.isnan(alone) and np.isnan(found[place]))
    assert np.isnan(found).sum() == 1


def test_coarse_percentiles_looked_at_in_parts_are_those_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    histograms = np.random.default_rng(3).poisson(2.0, (5, 7, bins.COARSE_COUNT)).astype(np.float64)
    one_by_one = [[coarse_percentile(row, q) for row in histograms.reshape(35, -1)] for q in (0.5, 0.99)]
    monkeypatch.setattr(bootstrap, "LOOKED_AT", 4)
    found = coarse_percentiles(histograms, (0.5, 0.99))
    assert all(np.array_equal(values.ravel(), each) for values, each in zip(found, one_by_one, strict=True))
    assert found[0].shape == (5, 7)


def test_a_coarse_percentile_reaches_the_edges_of_the_only_bin() -> None:
    histogram = np.zeros(bins.COARSE_COUNT)
    histogram[10] = 8
    assert float(coarse_percentile(histogram, 1.0)) == pytest.approx(EDGES[11])
    assert EDGES[10] <= float(coarse_percentile(histogram, 0.01)) <= EDGES[11]


@pytest.mark.parametrize("largest", [9, 1 << 18, 1 << 30])
def test_redrawn_counts_are_whole_to_the_last_token(largest: int) -> None:
    """Of units that are all alike each draw holds as many tokens as there are, however many a number can tell apart."""
    units = 61
    counts = [largest + 1, *range(1, 2 * bins.COARSE_COUNT, 2)][: bins.COARSE_COUNT]
    rows = pl.DataFrame(
        {
            "block": [0] * units,
            "unit": list(range(units)),
            "coarse_bin": [list(range(bins.COARSE_COUNT))] * units,
            "coarse_n": [counts] * units,
        },
        schema_overrides={"coarse_bin": pl.List(pl.UInt8), "coarse_n": pl.List(pl.UInt32)},
    )
    found = resample_blocks(rows, blocks=1, seed=1, draws=5)
    wanted = [float(units * count) for count in counts]
    assert found.recorded.tolist() == [wanted]
    assert found.drawn.tolist() == [[wanted] * 5]


def test_rows_of_one_unit_are_drawn_together() -> None:
    """Two units of two rows each, told apart by where their tokens lie: no draw may hold an odd row."""
    groups = [np.full(3, 0.01), np.full(5, 0.1), np.full(3, 1.0), np.full(5, 10.0)]
    resampled = resample_blocks(sequences_from(groups, unit=[7, 7, 2, 2]), blocks=1, seed=3, draws=200)
    assert resampled.units.tolist() == [2]
    place = [int(bins.coarse_bin_of(bins.bin_of(group))[0]) for group in groups]
    drawn = resampled.drawn[0][:, place]
    assert np.array_equal(drawn[:, 0] / 3, drawn[:, 1] / 5)
    assert np.array_equal(drawn[:, 2] / 3, drawn[:, 3] / 5)
    assert np.array_equal(drawn[:, 0] + drawn[:, 2], np.full(200, 6.0))
    assert set(drawn[:, 0].tolist()) == {0.0, 3.0, 6.0}


def test_recorded_histograms_are_the_tokens_of_each_block_and_empty_blocks_are_empty() -> None:
    groups = heavy(9, 40)
    block = [0, 0, 0, 2, 2, 2, 2, 2, 2]
    resampled = resample_blocks(sequences_from(groups, block=block), blocks=4, seed=1)
    assert resampled.units.tolist() == [3, 0, 6, 0]
    for number in range(4):
        mine = [group for group, of in zip(groups, block, strict=True) if of == number]
        wanted, _ = np.histogram(np.abs(np.concatenate([*mine, np.empty(0)])), EDGES)
        assert np.array_equal(resampled.recorded[number], wanted)
    assert not resampled.drawn[[1, 3]].any()


def test_redrawn_histograms_have_the_recorded_one_as_their_mean() -> None:
    resampled = resample_blocks(sequences_from(heavy(30, 50)), blocks=1, seed=4, draws=4000)
    error = np.sqrt(resampled.drawn[0].var(axis=0) / 4000) + 1e-9
    assert (np.abs(resampled.drawn[0].mean(axis=0) - resampled.recorded[0]) < 5 * error).all()


def test_pooling_redraws_blocks_too_so_that_noise_between_them_widens_the_interval() -> None:
    unlike = [np.full(50, 0.1 if number < 20 else 1.0) for number in range(40)]
    block = [0] * 10 + [1] * 10 + [2] * 10 + [3] * 10
    resampled = resample_blocks(sequences_from(unlike, block=block), blocks=4, seed=1)
    assert (resampled.drawn == resampled.recorded[:, None, :]).all()  # inside a block all sequences are alike
    pooled = pool_blocks(resampled, np.arange(4), seed=2)
    assert (pooled.sum(axis=1) == 2000).all()
    high = pooled[:, int(bins.coarse_bin_of(bins.bin_of(np.array([1.0])))[0])] / 500
    assert set(high.tolist()) == {0.0, 1.0, 2.0, 3.0, 4.0}
    assert high.mean() == pytest.approx(2.0, abs=0.2)
    assert high.var() == pytest.approx(1.0, abs=0.2)  # binomial of 4 and 1/2


def test_pooling_takes_only_the_blocks_it_is_told() -> None:
    resampled = resample_blocks(sequences_from(heavy(4, 10), block=[0, 0, 1, 1]), blocks=2, seed=1)
    pooled = pool_blocks(resampled, np.array([1]), seed=2)
    assert np.array_equal(pooled, resampled.drawn[1])


def test_the_same_seed_gives_the_same_bits_and_another_does_not() -> None:
    sequences = sequences_from(heavy(20, 20))
    first, second = (resample_blocks(sequences, blocks=1, seed=5).drawn for _ in range(2))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, resample_blocks(sequences, blocks=1, seed=6).drawn)
    turned = resample_blocks(sequences.reverse(), blocks=1, seed=5).drawn
    assert np.array_equal(first, turned)


def test_bundles_of_many_units_spread_as_units_do(monkeypatch: pytest.MonkeyPatch) -> None:
    sequences = sequences_from(heavy(2000, 20))
    alone = resample_blocks(sequences, blocks=1, seed=1, draws=1000)
    monkeypatch.setattr(bootstrap, "MAX_REDRAWN", 500)
    bundled = resample_blocks(sequences, blocks=1, seed=1, draws=1000)
    assert bundled.units.tolist() == [2000]
    np.testing.assert_array_equal(bundled.recorded, alone.recorded)
    spreads = [coarse_percentile(each.drawn[0], 0.99).std() for each in (alone, bundled)]
    assert 0.85 < spreads[1] / spreads[0] < 1.15
