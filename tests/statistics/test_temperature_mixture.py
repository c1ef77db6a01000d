"""Two kinds of sequences in one pair: sorted right, and not seen where there is one kind."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from scipy.stats import linregress

from ptt.diagnostics.statistics.pair_sample import MAX_DRIFT_SEQUENCES, TemperatureMixture, temperature_mixture


def samples(slopes: list[float], *, noise: float = 0.001, tokens: int = 40, seed: int = 0) -> pl.DataFrame:
    """One sequence a slope: r = slope x reference logprob, and some noise."""
    generator = np.random.default_rng(seed)
    rows = []
    for number, slope in enumerate(slopes):
        ref = -generator.exponential(1.0, tokens) - 0.02
        ref[0] = -3.0
        policy = ref + slope * ref + noise * generator.normal(size=tokens)
        rows.append(
            {"seq": number, "step": number, "model_mask": [True] * tokens, "policy_logp": policy, "ref_logp": ref}
        )
    return pl.DataFrame(rows, schema_overrides={"seq": pl.UInt32})


def found(frame: pl.DataFrame, *, drift: bool = False) -> TemperatureMixture:
    kinds = temperature_mixture(frame, numerator="policy_logp", denominator="ref_logp", drift=drift)
    assert kinds is not None
    return kinds


def test_shares_slope_and_numbers_of_the_scaled_are_those_put_in() -> None:
    kinds = found(samples([0.4286 if number % 4 == 0 else 0.0 for number in range(80)]))
    assert (kinds.judged, kinds.scaled_share, kinds.plain_share) == (80, 0.25, 0.75)
    assert kinds.scaled_seqs.tolist() == list(range(0, 80, 4))
    assert 1 / (1 + kinds.slope) == pytest.approx(0.7, abs=0.002)
    assert kinds.spread < 0.01


def test_the_slope_of_one_sequence_is_that_of_a_line_through_its_tokens() -> None:
    frame = samples([0.3], noise=0.005)
    ref, policy = frame["ref_logp"].to_list()[0], frame["policy_logp"].to_list()[0]
    want = linregress(ref, np.subtract(policy, ref))
    kinds = found(frame)
    assert kinds.slope == pytest.approx(want.slope)
    assert (kinds.scaled_share == 1.0) == (want.rvalue**2 > 0.8)


def test_one_kind_alone_and_noise_are_no_mixture() -> None:
    assert found(samples([0.0] * 30)).scaled_share == 0.0
    assert found(samples([0.4286] * 30)).plain_share == 0.0
    assert found(samples([0.0] * 30, noise=0.5)).scaled_share == 0.0


def test_only_the_commoner_sign_counts_and_drift_has_slopes_below_nothing() -> None:
    both = samples([0.4, 0.4, 0.4, -0.3] * 10)
    assert found(both).scaled_share == 0.75
    assert found(samples([-0.3] * 20), drift=True).scaled_share == 0.0
    assert found(samples([0.4] * 100), drift=True).judged == MAX_DRIFT_SEQUENCES


def test_sequences_that_say_nothing_are_not_judged() -> None:
    sure = samples([0.4] * 5).with_columns(pl.col("policy_logp", "ref_logp").list.eval(pl.element() * 1e-3))
    lost = samples([0.4] * 5).with_columns(pl.col("policy_logp").list.eval(pl.lit(np.nan)))
    for frame in (sure, lost, samples([0.4] * 3, tokens=3)):
        assert temperature_mixture(frame, numerator="policy_logp", denominator="ref_logp", drift=False) is None
