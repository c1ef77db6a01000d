"""Growth of tails: a known factor is recovered, noise is not growth, and the floor holds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from builders import Story, growing, rising, sequences_of, steady, stepped, tails_of

from ptt.diagnostics.evidence.tails import Tails
from ptt.diagnostics.statistics.bootstrap import interval
from ptt.diagnostics.statistics.tail_growth import FLOOR, scale_to, tail_shift
from ptt.diagnostics.statistics.trend import Contrast, StepNoise


def made(**changes: Any) -> Tails:
    return tails_of(sequences_of(Story(**changes)))


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1.0, 2.0, 8.0])
def test_a_known_growth_factor_lies_in_its_interval(factor: float) -> None:
    """Late over early is known: the scale of all tokens changes at half of the run."""
    inside = 0
    for seed in range(6):
        tails = made(post=stepped(0.2, 0.2 * factor), seed=seed)
        for name in ("p95", "p99"):
            post = tails.post.percentiles[name]
            low, high = post.growth_interval()
            inside += int(low <= factor <= high)
            assert post.growth() == pytest.approx(factor, rel=0.25)
            assert low <= post.growth() <= high
            assert high / low < 2
    assert inside >= 10  # of 12, at 95% each


def test_growth_of_one_slice_is_not_growth_of_the_other() -> None:
    tails = made(post=stepped(0.1, 0.5))
    assert tails.post.percentiles["p95"].growth_interval()[0] > 3
    low, high = tails.text.percentiles["p95"].growth_interval()
    assert low < 1 < high


@pytest.mark.slow
def test_without_growth_intervals_hold_one() -> None:
    held = 0
    for seed in range(20):
        post = made(steps=30, post=steady(0.5), seed=seed).post.percentiles["p99"]
        low, high = post.growth_interval()
        held += int(low <= 1 <= high)
    assert held >= 17


def test_noise_that_all_sequences_of_a_step_share_widens_the_interval() -> None:
    calm = made(post=steady(0.5)).post.percentiles["p95"].growth_interval()
    noisy = made(post=steady(0.5), post_noise=0.5).post.percentiles["p95"].growth_interval()
    assert math.log(noisy[1] / noisy[0]) > 2 * math.log(calm[1] / calm[0])


def test_windows_and_blocks_are_the_percentiles_of_their_tokens() -> None:
    frame = growing(steps=30)
    tails = tails_of(frame)
    assert len(tails.windows) == 3
    assert len(tails.blocks) == 30  # a step holds enough to be a block of its own
    tokens: dict[int, list[float]] = {}
    for row in frame.iter_rows(named=True):
        r = np.abs(np.array(row["policy_logp"]) - np.array(row["ref_logp"]))[48:]
        tokens.setdefault(row["step"], []).extend(r.tolist())
    for name, q in (("p95", 95), ("p99", 99)):
        percentile = tails.post.percentiles[name]
        for values, spans in ((percentile.windows, tails.windows), (percentile.blocks, tails.blocks)):
            for value, span in zip(values, spans, strict=True):
                held = np.concatenate([tokens[step] for step in range(span.first, span.last + 1)])
                assert value == pytest.approx(np.percentile(held, q), rel=0.004)
        last = np.concatenate([tokens[step] for step in range(26, 31)])
        assert percentile.last_sixth == pytest.approx(np.percentile(last, q), rel=0.004)
    assert tails.post.window_tokens.tolist() == [12 * 40 * 10] * 3
    assert tails.post.units.tolist() == [12] * 30
    assert tails.tokens == sum(map(sum, frame["model_mask"].to_list()))


def test_redrawn_blocks_lie_about_the_value_they_stand_for() -> None:
    percentile = made(post=steady(0.5), sequences=40).post.percentiles["p95"]
    assert np.median(percentile.drawn, axis=1) == pytest.approx(percentile.blocks, rel=0.1)
    assert np.median(percentile.windows_drawn, axis=1) == pytest.approx(percentile.windows, rel=0.05)


def test_growth_from_nothing_is_finite_and_a_lower_bound() -> None:
    tails = made(post=stepped(0.0, 0.5))
    percentile = tails.post.percentiles["p95"]
    assert percentile.windows[0] == pytest.approx(0.0, abs=1e-6)
    assert percentile.growth() == pytest.approx(percentile.windows[2] / FLOOR)
    assert math.isfinite(percentile.growth_interval()[1])


def test_changes_below_the_floor_are_no_growth() -> None:
    tails = made(post=rising(1e-6, 1e-4))
    percentile = tails.post.percentiles["p99"]
    assert percentile.growth() == 1.0
    assert percentile.growth_interval() == (1.0, 1.0)


def test_a_slice_without_tokens_has_no_numbers_rather_than_good_ones() -> None:
    tails = made(tool_share=steady(0.0))
    percentile = tails.post.percentiles["p99"]
    assert not tails.post.window_tokens.any()
    assert np.isnan(percentile.blocks).all()
    assert math.isnan(percentile.growth())
    assert all(math.isnan(bound) for bound in percentile.growth_interval())


def test_a_block_with_too_few_tokens_has_no_percentile() -> None:
    tails = made(tool_share=lambda done: 0.75 if done < 0.5 else 0.0)
    blocks = tails.post.percentiles["p95"].blocks
    assert np.array_equal(np.isfinite(blocks), tails.post.tokens >= 50)
    assert 0 < np.isfinite(blocks).sum() < len(blocks)


def test_an_interval_leaves_out_draws_without_a_value() -> None:
    draws = np.concatenate([np.arange(101.0), [math.nan, math.inf]])
    assert interval(draws) == (2.5, 97.5)
    assert all(math.isnan(bound) for bound in interval(np.array([math.nan])))


def test_two_readings_of_one_run_give_the_same_bits() -> None:
    first, second = tails_of(growing(steps=24)), tails_of(growing(steps=24))
    for name in ("p95", "p99"):
        one, two = first.post.percentiles[name], second.post.percentiles[name]
        for attribute in ("blocks", "drawn", "windows", "windows_drawn"):
            assert np.array_equal(getattr(one, attribute), getattr(two, attribute), equal_nan=True)
        assert one.last_sixth == two.last_sixth


def test_a_tail_scaled_to_anothers_level_shows_growth_by_one_factor_as_one() -> None:
    tails = made(text=stepped(0.002, 0.03), post=stepped(0.02, 0.3))
    count = len(tails.blocks)
    contrast = Contrast(before=np.arange(count // 2), after=np.arange(count // 2, count))
    noise = StepNoise(observations=tails.observed_in_blocks, gap=tails.gap)
    scaled = scale_to(tails.text, tails.post, contrast.after)
    for name, part in tails.post.percentiles.items():
        late = [np.log(each.equal[contrast.after]).mean() for each in (part, scaled.percentiles[name])]
        assert late[0] == pytest.approx(late[1])
    assert tail_shift(tails.post, tails.text, contrast, noise=noise).factor > 2  # the floor hides how far text grew
    shift = tail_shift(tails.post, scaled, contrast, noise=noise)
    assert shift.factor == pytest.approx(1.0, rel=0.1)
    assert shift.p_value > 0.05
