"""What sampled sequences say of a pair, against scipy and against pairs made to have one fault."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import scipy.stats

from ptt.diagnostics.statistics.pair_sample import CERTAIN_ABOVE, PairSample, pair_samples

SEED = 20_260_128


def samples(policy: list[np.ndarray], ref: list[np.ndarray], masks: list[np.ndarray] | None = None) -> pl.DataFrame:
    masks = masks or [np.ones(len(row), np.bool_) for row in policy]
    return pl.DataFrame(
        {
            "step": list(range(len(masks))),
            "model_mask": [mask.tolist() for mask in masks],
            "policy_logp": pl.Series([row.tolist() for row in policy], dtype=pl.List(pl.Float32)),
            "ref_logp": pl.Series([row.tolist() for row in ref], dtype=pl.List(pl.Float32)),
        }
    )


def text(rows: int = 40, length: int = 60) -> list[np.ndarray]:
    generator = np.random.default_rng(SEED)
    return [-generator.exponential(1.0, length) - 1e-4 for _ in range(rows)]


def taken(frame: pl.DataFrame, *until: int | None) -> list[PairSample | None]:
    return pair_samples(frame, numerator="policy_logp", denominator="ref_logp", fills={}, until=until)


def facts(frame: pl.DataFrame) -> PairSample:
    (found,) = taken(frame, None)
    assert found is not None
    return found


def noisy(rows: list[np.ndarray], scale: float = 0.05) -> list[np.ndarray]:
    generator = np.random.default_rng(SEED + 1)
    return [np.minimum(row + scale * generator.standard_normal(len(row)), -1e-6) for row in rows]


def test_slope_and_fit_are_those_of_scipy() -> None:
    policy, ref = text(), noisy(text())
    found = facts(samples(policy, ref))
    x = np.concatenate(ref).astype(np.float32).astype(np.float64)
    y = np.concatenate(policy).astype(np.float32).astype(np.float64) - x
    line = scipy.stats.linregress(x[x < CERTAIN_ABOVE], y[x < CERTAIN_ABOVE])
    assert found.slope == pytest.approx(line.slope, rel=1e-9)
    assert found.r_squared == pytest.approx(line.rvalue**2, rel=1e-9)
    assert found.p99 == pytest.approx(np.quantile(np.abs(y), 0.99))
    assert found.median_r == pytest.approx(np.median(y))


@pytest.mark.parametrize("temperature", [0.5, 0.7, 1.3])
def test_a_temperature_on_one_side_is_the_slope(temperature: float) -> None:
    ref = text()
    found = facts(samples([row / temperature for row in ref], ref))
    assert found.slope == pytest.approx(1 / temperature - 1, rel=1e-4)
    assert found.r_squared > 0.999


def test_large_ratios_at_the_first_token_of_a_turn_are_seen_there() -> None:
    policy, masks = text(), []
    ref = []
    for row in policy:
        mask = np.ones(len(row), np.bool_)
        mask[20:30] = False
        masks.append(mask)
        other = row.copy()
        other[30] -= 8.0
        ref.append(other)
    found = facts(samples(policy, ref, masks))
    assert found.boundary_share == 1.0
    assert found.boundary_tokens == pytest.approx(1 / 50)


def test_placeholders_do_not_rule_the_fit() -> None:
    policy, ref = text(), noisy(text())
    clean = facts(samples(policy, ref))
    policy[0][3] = -9999.0
    soiled = facts(samples(policy, ref))
    assert soiled.slope == pytest.approx(clean.slope, abs=0.02)
    assert soiled.p99 < 20


def test_a_copy_is_told_by_tokens_that_are_not_sure() -> None:
    policy = text()
    assert facts(samples(policy, policy)).zero_share == 1.0
    assert facts(samples(policy, noisy(policy))).zero_share == 0.0


def test_too_few_tokens_give_no_answer() -> None:
    found = facts(samples(text(1, 10), text(1, 10)))
    assert np.isnan(found.slope)
    assert taken(samples(text(1), text(1)).clear(), None) == [None]


def test_facts_up_to_a_step_are_those_of_the_sequences_up_to_it() -> None:
    frame = samples(text(20), [row - 0.1 for row in text(20)])
    early, none, whole = taken(frame, 7, -1, None)
    assert early == facts(frame.filter(pl.col("step") <= 7))
    assert none is None
    assert whole == facts(frame)
