"""Effective sample size: closed forms, and brute force over windows."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from builders import Array, frame_of, growing, repeatable, tables_of
from hypothesis import given
from hypothesis import strategies as st

from ptt.diagnostics.statistics.ess import ess_of_log_weights, sliding_ess
from ptt.diagnostics.statistics.windows import Span, sliding_windows


def ess_of(logs: Array) -> tuple[float, float]:
    weight = np.exp(logs)
    return float(weight.sum() ** 2 / (weight**2).sum() / len(weight)), float(weight.max() / weight.sum())


def test_equal_weights_are_worth_all_and_a_dominating_one_is_worth_one() -> None:
    assert ess_of_log_weights(np.full(10, 3.0)) == pytest.approx((1.0, 10, 0.1))
    assert ess_of_log_weights(np.array([0.0] * 9 + [500.0])) == pytest.approx((0.1, 10, 1.0))
    assert ess_of_log_weights(np.array([-4.0])) == pytest.approx((1.0, 1, 1.0))


@repeatable
@given(st.lists(st.floats(-50, 50), min_size=1, max_size=40), st.floats(-1e5, 1e5))
def test_log_ess_is_brute_force_and_does_not_mind_how_large_the_logs_are(logs: list[float], shift: float) -> None:
    wanted, top = ess_of(np.array(logs))
    found = ess_of_log_weights(np.array(logs))
    assert found == pytest.approx((wanted, len(logs), top), rel=1e-9)
    assert ess_of_log_weights(np.array(logs) + shift)[0] == pytest.approx(wanted, rel=1e-6)
    assert 1 / len(logs) - 1e-12 <= found[0] <= 1 + 1e-12


def test_every_window_is_brute_force_over_its_tokens_and_sequences() -> None:
    frame = growing(steps=8, sequences=10)
    sequences = tables_of(frame).sequences.filter(pl.col("slice") == 1).sort("step", "seq")
    spans = sliding_windows(range(1, 9), width=3, stride=2)
    found = sliding_ess(sequences, spans, pair="policy/ref", inverse="ref/policy")
    assert found.height == 4 * len(spans)
    for span in spans:
        held = frame.filter(pl.col("step").is_between(span.first, span.last))
        r = [
            np.array(row["policy_logp"][48:]) - np.array(row["ref_logp"][48:])  # 40 of text, 8 observed
            for row in held.to_dicts()
            if len(row["model_mask"]) > 48
        ]
        for weights, sign in (("policy/ref", 1.0), ("ref/policy", -1.0)):
            for level, logs in (
                ("token", np.concatenate(r)),
                ("sequence", np.array([one.sum() for one in r])),
            ):
                row = found.filter(
                    (pl.col("step_first") == span.first) & (pl.col("level") == level) & (pl.col("weights") == weights)
                ).row(0, named=True)
                wanted, top = ess_of(sign * logs)
                assert row["ess_fraction"] == pytest.approx(wanted, rel=1e-9)
                assert row["top_share"] == pytest.approx(top, rel=1e-9)
                assert row["n"] == len(logs)
                assert (row["step_last"], row["step_mid"]) == (span.last, span.middle)


def test_more_tokens_than_32_bits_count_are_counted() -> None:
    sequences = tables_of(frame_of([{"r": [0.5]}, {"r": [0.1]}, {"r": [0.2]}])).sequences
    sequences = sequences.with_columns(n=pl.lit(2**31 - 1, pl.UInt32))
    found = sliding_ess(sequences, (Span(1, 1),), pair="a/b", inverse="b/a").filter(pl.col("level") == "token")
    assert found["n"].to_list() == [3 * (2**31 - 1)] * 2


def test_a_window_without_tokens_is_left_out() -> None:
    sequences = tables_of(frame_of([{"r": [0.5], "step": 5}])).sequences
    found = sliding_ess(sequences, (Span(1, 4), Span(5, 6)), pair="a/b", inverse="b/a")
    assert found["step_first"].unique().to_list() == [5]


def test_a_single_token_that_is_the_window_is_said_to_be_so_even_beyond_the_cap() -> None:
    sequences = tables_of(frame_of([{"r": [0.1, 0.2, 5000.0]}])).sequences
    found = sliding_ess(sequences, (Span(1, 1),), pair="a/b", inverse="b/a")
    token = found.filter((pl.col("level") == "token") & (pl.col("weights") == "a/b")).row(0, named=True)
    assert token["top_share"] == pytest.approx(1.0)
    assert token["ess_fraction"] == pytest.approx(1 / 3)
    assert all(math.isfinite(value) for value in found["ess_fraction"])


def test_the_interval_is_the_jackknife_over_whole_units() -> None:
    frame = growing(steps=8, sequences=12)
    rows = tables_of(frame).sequences.filter(pl.col("slice") == 1).sort("step", "seq")
    rows = rows.with_columns(unit=pl.col("seq") // 3)
    found = sliding_ess(rows, (Span(1, 8),), pair="policy/ref", inverse="ref/policy")
    logs, unit = rows["s_r"].to_numpy(), rows["unit"].to_numpy()
    left_out = np.array([math.log(ess_of(logs[unit != one])[0]) for one in np.unique(unit)])
    error = math.sqrt((len(left_out) - 1) / len(left_out) * np.square(left_out - left_out.mean()).sum())
    row = found.filter(level="sequence", weights="policy/ref").row(0, named=True)
    value = row["ess_fraction"]
    assert row["lo"] == pytest.approx(max(value * math.exp(-1.96 * error), 1 / len(logs)), rel=1e-5)
    assert row["hi"] == pytest.approx(min(value * math.exp(1.96 * error), 1.0), rel=1e-5)


def test_the_interval_of_light_weights_holds_the_truth() -> None:
    rng, spread = np.random.default_rng(5), 0.5
    held = 0
    for _ in range(200):
        r = rng.normal(0, spread, 200)
        frame = pl.DataFrame({"step": np.ones(200, int), "n": np.ones(200, int), "s_r": r, "max_r": r, "min_r": r})
        sums = {"s_rho": r, "s_rho2": 2 * r, "s_inv": -r, "s_inv2": -2 * r}
        frame = frame.with_columns(**{name: np.exp(logs) for name, logs in sums.items()})
        found = sliding_ess(frame, (Span(1, 1),), pair="a/b", inverse="b/a")
        held += found["lo"][0] <= math.exp(-(spread**2)) <= found["hi"][0]  # log-normal: ESS/n is exp(-variance)
    assert held > 0.85 * 200


def test_too_few_units_have_no_interval() -> None:
    rows = tables_of(growing(steps=8, sequences=10)).sequences.filter(pl.col("slice") == 1).sort("step", "seq")
    found = sliding_ess(rows.with_columns(unit=pl.col("seq") % 9), (Span(1, 8),), pair="a/b", inverse="b/a")
    assert found["lo"].null_count() == found["hi"].null_count() == found.height
