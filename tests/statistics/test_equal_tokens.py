"""Percentiles of equally many tokens: unbiased whatever a block holds, and blocks that hold enough to be compared."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from builders import Scale, Story, sequences_of, tails_of
from slow_cases import first_fast

from ptt.diagnostics.evidence.tails import Tails
from ptt.diagnostics.statistics import bins
from ptt.diagnostics.statistics.arrays import FloatArray
from ptt.diagnostics.statistics.bootstrap import coarse_percentile
from ptt.diagnostics.statistics.rare_tails import LEAST_BLOCKS, fill_blocks, thin_blocks, thin_units
from ptt.diagnostics.statistics.windows import Span


def table_of(units: list[FloatArray]) -> FloatArray:
    """Give the coarse histogram of each unit's |r|."""
    coarse = [bins.coarse_bin_of(bins.bin_of(np.abs(unit))) for unit in units]
    return np.array([np.bincount(each, minlength=bins.COARSE_COUNT) for each in coarse], dtype=np.float64)


def units_of(count: int, length: int, *, likeness: float, seed: int) -> list[FloatArray]:
    generator = np.random.default_rng(seed)
    return [np.exp(likeness * generator.normal()) * generator.standard_t(4, size=length) for _ in range(count)]


@pytest.mark.parametrize("q", [0.95, 0.99])
@pytest.mark.parametrize("tokens", [60, 300])
def test_the_mean_over_draws_is_that_of_brute_force(q: float, tokens: int) -> None:
    """Whole sequences, without replacement, until they hold as many tokens: here token by token."""
    units = units_of(80, 30, likeness=0.5, seed=1)
    drawn = coarse_percentile(thin_units(table_of(units), tokens, np.random.default_rng(2), draws=2000), q)
    generator, brute = np.random.default_rng(3), []
    for _ in range(2000):
        chosen = generator.permutation(len(units))[: tokens // 30]
        brute.append(float(coarse_percentile(table_of([np.concatenate([units[one] for one in chosen])]), q)[0]))
    error = np.log(brute).std() / np.sqrt(len(brute))
    assert abs(np.log(drawn).mean() - np.log(brute).mean()) < 4 * error


@pytest.mark.parametrize("likeness", [0.0, 0.6])
def test_a_large_block_thinned_reads_as_small_blocks_do(likeness: float) -> None:
    small, thinned, whole = [], [], []
    for seed in range(300):
        table = table_of(units_of(40, 25, likeness=likeness, seed=seed))
        small.append(coarse_percentile(table[:2].sum(axis=0), 0.99))
        whole.append(coarse_percentile(table.sum(axis=0), 0.99))
        draws = thin_units(table, 50, np.random.default_rng(seed), draws=40)
        thinned.append(np.log(coarse_percentile(draws, 0.99)).mean())
    error = np.log(small).std() / np.sqrt(len(small))
    assert abs(np.mean(thinned) - np.log(small).mean()) < 3 * error
    assert np.log(whole).mean() - np.log(small).mean() > 2 * error  # what is corrected


def test_a_sequence_of_far_more_tokens_than_wanted_gives_as_many_of_them() -> None:
    table = table_of(units_of(3, 2000, likeness=0.0, seed=4))
    drawn = thin_units(table, 60, np.random.default_rng(5), draws=50)
    assert drawn.sum(axis=1).tolist() == [60.0] * 50
    assert (drawn <= table.max(axis=0)).all()


def test_a_block_of_just_as_many_tokens_is_itself_and_one_of_fewer_has_none() -> None:
    rows = pl.DataFrame(
        {
            "block": [0, 0, 1],
            "unit": [0, 1, 2],
            "coarse_bin": pl.Series([[5], [6], [7]], dtype=pl.List(pl.UInt8)),
            "coarse_n": pl.Series([[30], [30], [20]], dtype=pl.List(pl.UInt32)),
        }
    )
    drawn = thin_blocks(rows, blocks=2, tokens=60, seed=0, draws=4)
    assert list(drawn) == [0]
    assert (drawn[0][:, 5] == 30).all()
    assert (drawn[0][:, 6] == 30).all()


def spans_of(count: int) -> list[Span]:
    return [Span(place, place) for place in range(count)]


def test_blocks_that_hold_as_much_as_others_stay_alone() -> None:
    tokens = np.array([[100, 120, 90] * 4, [300, 200, 100] * 4])
    assert [group.tolist() for group in fill_blocks(spans_of(12), tokens, least=50)] == [[at] for at in range(12)]


def test_small_blocks_are_joined_with_small_ones_and_early_ones_stay_several() -> None:
    tokens = np.array([np.linspace(20, 2000, 40).astype(np.int64), np.full(40, 500)])
    groups = fill_blocks(spans_of(40), tokens, least=50)
    held = [int(tokens[0][group].sum()) for group in groups]
    assert [int(at) for group in groups for at in group] == list(range(40))
    assert min(held) >= 0.25 * np.median(tokens[0])
    assert sum(group[-1] < 14 for group in groups) >= 4
    assert all(len(group) == 1 for group in groups[-20:])


def test_a_stretch_without_tokens_is_joined_to_nothing_and_few_blocks_are_left_as_they_are() -> None:
    tokens = np.array([[0] * 6 + [1000] * 14, [500] * 20])
    assert len(fill_blocks(spans_of(20), tokens, least=50)) == 20
    few = np.array([[60, 900] * 4, [500] * 8])
    assert len(fill_blocks(spans_of(8), few, least=50)) == LEAST_BLOCKS


def learns(first: float, last: float) -> Scale:
    return lambda done: first + (last - first) * done


def third_means(tails: Tails, values: FloatArray) -> list[float]:
    """Give the mean log level of the blocks of the early and of the late third."""
    at = np.array([sum(window.first <= block.first for window in tails.windows) - 1 for block in tails.blocks])
    return [float(np.nanmean(np.log(values[at == third]))) for third in (0, 2)]


@pytest.mark.parametrize(("first", "last"), first_fast([(0.05, 0.95), (0.01, 0.99), (0.95, 0.05)]))
def test_tool_use_that_changes_moves_no_tail_of_equally_many_tokens(first: float, last: float) -> None:
    raw, equal = [], []
    for seed in range(8):
        story = Story(sequences=20, head=10, tail=12, post=lambda _: 0.5, likeness=0.5, tool_share=learns(first, last))
        tails = tails_of(sequences_of(Story(**{**vars(story), "seed": seed})))
        p99 = tails.post.percentiles["p99"]
        (early, late), (raw_early, raw_late) = third_means(tails, p99.equal), third_means(tails, p99.blocks)
        equal.append(late - early)
        raw.append(raw_late - raw_early)
    sign = 1 if last > first else -1
    assert sign * np.mean(raw) > 0.05
    assert abs(np.mean(equal)) < max(0.05, 3 * np.std(equal) / np.sqrt(8))
    assert abs(np.mean(equal)) < abs(np.mean(raw))


def test_a_lone_block_of_few_tokens_is_left_out_rather_than_all_thinned_to_as_few() -> None:
    def once_then_often(done: float) -> float:
        return 0.06 if done == 0 else 0.0 if done < 0.12 else 0.5 + 0.5 * done

    story = Story(sequences=48, head=10, tail=20, post=lambda _: 0.5, tool_share=once_then_often)
    p99 = tails_of(sequences_of(story)).post.percentiles["p99"]
    assert math.isfinite(p99.blocks[0])
    assert math.isnan(p99.equal[0])
    usable = np.isfinite(p99.equal)
    assert usable.sum() > 30
    assert p99.equal[usable] == pytest.approx(p99.blocks[usable], rel=0.15)
