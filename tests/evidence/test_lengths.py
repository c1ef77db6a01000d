"""Spread of lengths and their agreement with rewards, against scipy."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from builders import series_of
from scipy.stats import kendalltau

from ptt.diagnostics.evidence.answers import agreement_by_block, gather_lengths
from ptt.diagnostics.schema import TRAJECTORIES, TURNS


def tables(lengths: list[int], rewards: list[float], prompts: list[int]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return one step of answers."""
    ids = [f"{number:03d}" for number in range(len(lengths))]
    trajectories = {"trajectory_id": ids, "step": 1, "split": "train", "prompt_hash": prompts, "reward": rewards}
    turns = {"trajectory_id": ids, "turn_idx": 0, "role": "assistant", "text_len": lengths}
    return (
        pl.DataFrame(trajectories, schema={name: TRAJECTORIES[name] for name in trajectories}),
        pl.DataFrame(turns, schema={name: TURNS[name] for name in turns}),
    )


@pytest.mark.parametrize("seed", range(5))
def test_agreement_is_kendalls_tau_within_a_prompt(seed: int) -> None:
    generator = np.random.default_rng(seed)
    lengths = generator.permutation(20) + 5
    rewards = 0.1 * lengths + generator.normal(0, 0.5, 20)
    found = gather_lengths(*tables(lengths.tolist(), rewards.tolist(), [1] * 20))
    assert found is not None
    assert found.paid is not None
    assert found.spread is not None
    assert found.paid.values[0] == pytest.approx(kendalltau(lengths, rewards).statistic)
    assert found.spread.values[0] == pytest.approx(lengths.std(ddof=1) / lengths.mean())


def test_the_same_answers_give_the_same_spread_to_the_last_digit() -> None:
    generator = np.random.default_rng(1)
    lengths = generator.integers(1, 100_000, 40_000).tolist()
    trajectories, turns = tables(lengths, [0.0] * 40_000, [1] * 40_000)
    trajectories = trajectories.with_columns(step=pl.int_range(pl.len()) // 200, reward=pl.lit(None, pl.Float64))
    found = [gather_lengths(trajectories, turns) for _ in range(5)]
    spreads = [one.spread.values for one in found if one is not None and one.spread is not None]
    assert len(spreads) == 5
    assert all((spread == spreads[0]).all() for spread in spreads)


def test_prompts_are_not_held_against_each_other() -> None:
    lengths, rewards = [*range(10, 20), *range(110, 120)], [*np.linspace(1, 0, 10), *np.linspace(5, 4, 10)]
    found = gather_lengths(*tables(lengths, rewards, [1] * 10 + [2] * 10))
    assert found is not None
    assert found.paid is not None
    assert found.paid.values.tolist() == [-1.0]


def test_equal_rewards_and_missing_ones_tell_nothing() -> None:
    for rewards in ([1.0] * 20, [float("nan")] * 20):
        found = gather_lengths(*tables(list(range(5, 25)), rewards, [1] * 20))
        assert found is not None
        assert found.paid is None
    assert gather_lengths(*(table.clear() for table in tables([1], [1.0], [1]))) is None


def test_common_trends_are_no_agreement() -> None:
    generator = np.random.default_rng(1)
    trend = np.linspace(0, 50, 1000)
    one, two = (series_of(name, trend + generator.normal(size=1000)) for name in ("one", "two"))
    apart, same = agreement_by_block(one, two), agreement_by_block(one, one)
    assert apart is not None
    assert same is not None
    assert abs(apart.values.mean()) < 0.1
    assert set(same.values) == {1.0}
    assert agreement_by_block(series_of("one", [1.0]), two) is None
