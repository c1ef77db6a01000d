"""Tails by lag: counted per bucket, unknown kept apart, and a known slope recovered."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from builders import frame_of, tables_of

from ptt.diagnostics.statistics.staleness import BUCKETS, add_lags, staleness
from ptt.diagnostics.statistics.windows import split_steps

STEPS = 40


def made(
    exponent: float, *, known: float = 1.0, offset: int = 0, seed: int = 0
) -> tuple[pl.DataFrame, pl.DataFrame, list[list[float]]]:
    """Make sequences whose scale is 0.1 (1 + lag)^exponent, after an observation as well as before."""
    generator = np.random.default_rng(seed)
    rows, versions, r = [], [], []
    for step in range(1, STEPS + 1):
        for lag in (0, 1, 3, 7, 15, 31):
            values = 0.1 * (1 + lag) ** exponent * generator.standard_normal(120)
            padded = np.concatenate([values[:60], np.zeros(5), values[60:]])
            rows.append({"r": padded, "step": step, "model_mask": [True] * 60 + [False] * 5 + [True] * 60})
            versions.append(step - lag - offset if generator.random() < known else None)
            r.append(values.tolist())
    sequences = tables_of(frame_of(rows)).sequences
    identity = pl.DataFrame({"seq": pl.Series(range(len(rows)), dtype=pl.UInt32), "policy_version": versions})
    return sequences, identity, r


BLOCKS = split_steps(list(range(1, STEPS + 1)), 10)


@pytest.mark.parametrize("exponent", [0.0, 0.5])
def test_a_known_slope_lies_in_its_interval(exponent: float) -> None:
    sequences, identity, _ = made(exponent)
    table, why = staleness(sequences, identity, BLOCKS)
    assert why == ""
    for number in (0, 1):
        row = table.filter(pl.col("slice") == number).row(0, named=True)
        wanted = exponent * math.log(2)
        assert row["slope"] == pytest.approx(wanted, abs=0.03)
        assert row["slope_lo"] - 0.02 <= wanted <= row["slope_hi"] + 0.02
        assert row["slope_hi"] - row["slope_lo"] < 0.1


@pytest.mark.parametrize("offset", [0, 1, -1, 1000])
def test_buckets_count_tokens_however_versions_are_counted(offset: int) -> None:
    sequences, identity, r = made(0.3, offset=offset)
    table, _ = staleness(sequences, identity, BLOCKS)
    assert set(table["offset"]) == {offset}
    part = table.filter(pl.col("slice") == 1)
    assert part["lag"].to_list() == list(BUCKETS)
    assert part["n"].to_list() == [60 * STEPS] * 6
    assert part["n_sequences"].to_list() == [STEPS] * 6
    assert part["share"].sum() == pytest.approx(1)
    for place, row in enumerate(part.iter_rows(named=True)):
        plain = np.abs(np.concatenate([r[i][60:] for i in range(place, len(r), 6)]))
        assert row["p95"] == pytest.approx(np.quantile(plain, 0.95), rel=0.25)
        assert row["p99"] == pytest.approx(np.quantile(plain, 0.99), rel=0.25)


def test_unknown_versions_stay_unknown() -> None:
    sequences, identity, _ = made(0.0, known=0.7)
    table, _ = staleness(sequences, identity, BLOCKS)
    missing = identity["policy_version"].null_count()
    for number in (0, 1):
        part = table.filter(pl.col("slice") == number)
        unknown = part.filter(pl.col("lag") == "unknown").row(0, named=True)
        assert unknown["n_sequences"] == missing
        assert unknown["share"] == pytest.approx(missing / identity.height)
        assert part["share"].sum() == pytest.approx(1)


def test_without_versions_the_table_is_empty_and_says_why() -> None:
    sequences, identity, _ = made(0.0)
    table, why = staleness(sequences, identity.drop("policy_version"), BLOCKS)
    assert (table.height, why) == (0, "no policy version is recorded")
    nothing = identity.with_columns(policy_version=pl.lit(None, pl.Int64))
    table, why = staleness(sequences, nothing, BLOCKS)
    assert (table.height, why) == (0, "every recorded policy version is null")


def test_one_lag_has_no_slope() -> None:
    sequences, identity, _ = made(0.0)
    fresh = identity.filter(pl.col("seq") % 6 == 0)
    table, _ = staleness(sequences.filter(pl.col("seq") % 6 == 0), fresh, BLOCKS)
    assert table["lag"].to_list() == ["0", "0"]
    assert table["slope"].null_count() == 2


def test_lag_buckets() -> None:
    rows = pl.DataFrame({"step": [40] * 9, "policy_version": [40, 39, 38, 37, 36, 33, 32, 24, None]})
    found, offset = add_lags(rows)
    assert offset == 0
    assert found["bucket"].to_list() == ["0", "1", "2-3", "2-3", "4-7", "4-7", "8-15", "16+", "unknown"]
    assert found["lag"].to_list() == [0, 1, 2, 3, 4, 7, 8, 16, None]


def test_the_same_input_gives_the_same_table() -> None:
    sequences, identity, _ = made(0.2)
    assert staleness(sequences, identity, BLOCKS)[0].equals(staleness(sequences, identity, BLOCKS)[0])
