"""Placeholders are found token by token, whatever else the batch holds, and never enter a statistic."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from ptt.diagnostics.statistics import slices
from ptt.diagnostics.statistics.fill_values import Anomaly
from ptt.diagnostics.statistics.logprob_pairs import available_pairs
from ptt.diagnostics.statistics.partial_tables import TokenTables
from ptt.diagnostics.statistics.token_pass import token_pass

PAIRS = available_pairs({"policy_logp", "ref_logp"})
NAN = float("nan")


def fold(
    rows: list[tuple[list[float | None], list[float | None]]], sample_every: int = 0, per_step: int = 1000
) -> TokenTables:
    frame = pl.DataFrame(
        {
            "seq": pl.Series(range(len(rows)), dtype=pl.UInt32),
            "step": [1 + index // per_step for index in range(len(rows))],
            "model_mask": [[True] * len(policy) for policy, _ in rows],
            "policy_logp": pl.Series([policy for policy, _ in rows], dtype=pl.List(pl.Float32)),
            "ref_logp": pl.Series([ref for _, ref in rows], dtype=pl.List(pl.Float32)),
        }
    )
    return token_pass(frame.lazy(), pairs=PAIRS, min_observation=4, sample_every=sample_every)


Row = tuple[list[float | None], list[float | None]]


def sound_rows(count: int = 60, length: int = 40, seed: int = 3) -> list[Row]:
    """Return rows of a policy near its reference; three tokens in ten are as good as certain."""
    generator = np.random.default_rng(seed)
    rows: list[Row] = []
    for _ in range(count):
        sure = generator.random(length) < 0.3
        ref = -np.where(sure, np.exp(generator.normal(-10, 2, length)), generator.exponential(1.0, length))
        policy = np.minimum(ref + 0.1 * generator.normal(size=length) * np.minimum(1, -ref), 1e-3 * ref)
        rows.append((policy.tolist(), ref.tolist()))
    return rows


def kinds(tables: TokenTables) -> list[tuple[int, int, str, int]]:
    """(row, column, kind, tokens), column 0 policy, 3 reference."""
    return [
        (seq, column, Anomaly(kind).name, n)
        for seq, column, kind, n in tables.anomalies.select("seq", "column", "kind", "n").iter_rows()
    ]


@pytest.mark.parametrize(
    ("policy", "ref", "found"),
    [
        ([-0.5, -9999.0, -0.25], [-0.5, -0.5, -0.25], (0, "MISSING", 1)),
        ([-0.5, -0.4, -0.25], [-0.5, 2.0, -0.25], (3, "POSITIVE", 1)),
        ([-0.1 * i for i in range(9)], [-0.7] * 9, (3, "FILLED_ROW", 9)),
    ],
)
def test_what_no_model_gives_is_named_counted_and_left_out(
    policy: list[float | None], ref: list[float | None], found: tuple[int, str, int]
) -> None:
    sound: Row = ([-0.5, -0.4, -0.3], [-0.5, -0.3, -0.3])
    tables = fold([sound, (policy, ref), sound])
    assert kinds(tables) == [(1, *found)]
    assert int(tables.cells["n"].sum()) == 6 + len(policy) - found[2]
    assert int(tables.bad["n_bad"].sum()) == found[2]


@pytest.mark.parametrize(
    ("value", "every", "name"), [(-1.0, 7, "PAD"), (-100.0, 9, "PAD"), (0.0, 7, "ZERO"), (-11.93, 7, "FILL")]
)
def test_a_fill_value_is_told_by_the_run_and_left_out(value: float, every: int, name: str) -> None:
    rows = sound_rows()
    for _, ref in rows:
        ref[::every] = [value] * len(ref[::every])
    tables = fold(rows, sample_every=1)
    told = kinds(tables)
    assert {(column, kind) for _, column, kind, _ in told} == {(3, name)}
    count = sum(n for *_, n in told)
    planted = sum(len(ref[::every]) for _, ref in rows)
    assert count >= 0.6 * planted if value == 0 else count == planted
    assert int(tables.cells["n"].sum()) + int(tables.bad["n_bad"].sum()) == 60 * 40


@pytest.mark.parametrize("value", [-20.0, -7.25, -1.2345])
def test_any_value_that_begins_in_mid_run_is_a_fill(value: float) -> None:
    """Six in a thousand tokens, in the last fifth of the run alone, at places of their own."""
    rows = sound_rows(200)
    for index in range(160, 200):
        for place in {index % 40, (7 * index + 3) % 40}:
            rows[index][1][place] = value
    told = kinds(fold(rows, sample_every=1, per_step=10))
    assert {(column, kind) for _, column, kind, _ in told} == {(3, "FILL")}
    assert min(seq for seq, *_ in told) == 160


def test_a_part_of_a_column_in_a_coarse_type_is_no_fill() -> None:
    """Its values come again at any place, many of them."""
    rows = sound_rows(400)
    for _, ref in rows[200:]:
        ref[:] = np.round(ref, 2).tolist()  # type: ignore[arg-type]
    assert kinds(fold(rows, sample_every=1, per_step=10)) == []


def test_a_token_that_one_column_proves_unsampled_leaves_every_pair() -> None:
    rows = sound_rows()
    policy, ref = ([row[side] for row in rows] for side in (0, 1))
    generator = np.random.default_rng(4)
    engine = [[one * (1 + 1e-3 * generator.normal()) for one in row] for row in policy]  # type: ignore[operator]
    for row in ref:
        row[::9] = [-7.25] * len(row[::9])
    frame = pl.DataFrame(
        {
            "seq": pl.Series(range(len(rows)), dtype=pl.UInt32),
            "step": [1 + index // 10 for index in range(len(rows))],
            "model_mask": [[True] * 40] * len(rows),
            "policy_logp": pl.Series(policy, dtype=pl.List(pl.Float32)),
            "ref_logp": pl.Series(ref, dtype=pl.List(pl.Float32)),
            "rollout_logp": pl.Series(engine, dtype=pl.List(pl.Float32)),
        }
    )
    pairs = available_pairs({"policy_logp", "ref_logp", "rollout_logp"})
    for missing in (False, True):  # rows that lack a column go another way
        lacking = pl.col("seq") == 3 if missing else pl.lit(value=False)
        nothing = pl.lit(None, pl.List(pl.Float32))
        given = frame.with_columns(
            pl.when(lacking).then(nothing).otherwise(pl.col("rollout_logp")).alias("rollout_logp")
        )
        tables = token_pass(given.lazy(), pairs=pairs, min_observation=4, sample_every=1)
        for number, pair in enumerate(pairs):
            held = len(rows) - (missing and "rollout" in pair.name)
            assert int(tables.cells_of(number)["n"].sum()) == held * (40 - 5), pair.name


def test_a_row_of_zeros_among_sound_ones_is_filled() -> None:
    rows = sound_rows()
    rows[5] = (rows[5][0], [0.0] * 40)
    assert kinds(fold(rows, sample_every=1)) == [(5, 3, "FILLED_ROW", 40)]


def test_a_sure_policy_makes_rows_of_zeros_and_of_near_zeros() -> None:
    generator = np.random.default_rng(9)
    rows = sound_rows()
    for index in range(30):
        exact = index < 10
        rows[index] = ([0.0 if exact else -1e-6 * i for i in range(40)], (-generator.exponential(1.0, 40)).tolist())
    assert kinds(fold(rows, sample_every=1)) == []


@pytest.mark.parametrize("decimals", [2, 3, 4])
def test_rounded_numbers_are_no_fill_values(decimals: int) -> None:
    rows: list[Row] = [
        (np.round(policy, decimals).tolist(), np.round(ref, decimals).tolist())  # type: ignore[arg-type]
        for policy, ref in sound_rows(400)
    ]
    assert kinds(fold(rows, sample_every=1)) == []


def test_a_context_that_comes_again_is_no_fill_value() -> None:
    """The reference gives the first token of one prompt the same logprob in every sequence; the policy learns it."""
    rows = sound_rows(100)
    for index, (policy, ref) in enumerate(rows):
        ref[0], policy[0] = -1.37, -1.37 * (1 - (index // 5) / 20)
    assert kinds(fold(rows, sample_every=1, per_step=5)) == []


def test_a_sure_policy_beside_an_unlikely_reference_is_confirmed_by_near_zeros() -> None:
    rows = sound_rows()
    for index, (policy, ref) in enumerate(rows):
        ref[3], policy[3] = -8.0 - 0.01 * index, 0.0 if index % 2 else -1e-6
    assert kinds(fold(rows, sample_every=1)) == []


def test_a_third_column_confirms_a_zero_or_does_not() -> None:
    rows = sound_rows()
    for index, (policy, ref) in enumerate(rows):
        ref[3], policy[3] = -8.0 - 0.01 * index, 0.0
    columns = {
        "policy_logp": [policy for policy, _ in rows],
        "ref_logp": [ref for _, ref in rows],
    }
    for third, told in ((0.0, []), (-8.0, ["ZERO"])):
        engine = [[*policy[:3], third, *policy[4:]] for policy, _ in rows]
        engine = [[value - 1e-4 if value else value for value in row if value is not None] for row in engine]
        frame = pl.DataFrame(
            {
                "seq": pl.Series(range(len(rows)), dtype=pl.UInt32),
                "step": [1] * len(rows),
                "model_mask": [[True] * 40] * len(rows),
                **{name: pl.Series(values, dtype=pl.List(pl.Float32)) for name, values in columns.items()},
                "rollout_logp": pl.Series(engine, dtype=pl.List(pl.Float32)),
            }
        )
        pairs = available_pairs({"policy_logp", "ref_logp", "rollout_logp"})
        tables = token_pass(frame.lazy(), pairs=pairs, min_observation=4, sample_every=1)
        assert sorted({kind for *_, kind, _ in kinds(tables)}) == told


def test_a_probability_of_one_is_no_placeholder() -> None:
    tables = fold([([0.0, -0.5, 0.0], [0.0, -0.4, -0.01])])
    assert kinds(tables) == []
    assert int(tables.cells["n"].sum()) == 3


def test_a_constant_row_on_both_sides_is_a_sure_policy_and_no_fault() -> None:
    assert kinds(fold([([-0.001] * 20, [-0.002] * 20)])) == []


@pytest.mark.parametrize("chunk", [1, 4, 1 << 19])
def test_a_nan_hides_no_placeholder_however_batches_are_cut(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "CHUNK_TOKENS", chunk)
    rows: list[tuple[list[float | None], list[float | None]]] = [
        ([-0.5, NAN, -0.25], [-0.5, -0.5, -0.25]),
        ([-0.5, -9999.0, -0.25], [-0.5, -0.5, -0.25]),
        ([NAN, *[-0.1 * i for i in range(9)]], [-0.7] * 10),
    ]
    tables = fold(rows)
    assert (1, 0, "MISSING", 1) in kinds(tables)
    assert [kind for row, _, kind, _ in kinds(tables) if row == 2] == ["FILLED_ROW"]
    assert float(tables.sequences["max_r"].abs().max() or 0.0) < 1  # type: ignore[arg-type]
    assert int(tables.cells["n"].sum()) == 4


def test_a_column_in_several_pairs_is_counted_once() -> None:
    frame = pl.DataFrame(
        {
            "seq": pl.Series([0], dtype=pl.UInt32),
            "step": [1],
            "model_mask": [[True] * 3],
            "policy_logp": pl.Series([[-0.5, -9999.0, -0.2]], dtype=pl.List(pl.Float32)),
            "old_logp": pl.Series([[-0.5, -0.4, -0.2]], dtype=pl.List(pl.Float32)),
            "ref_logp": pl.Series([[-0.5, -0.3, -0.2]], dtype=pl.List(pl.Float32)),
        }
    )
    pairs = available_pairs({"policy_logp", "old_logp", "ref_logp"})
    tables = token_pass(frame.lazy(), pairs=pairs, min_observation=4)
    assert kinds(tables) == [(0, 0, "MISSING", 1)]


def test_every_nth_sequence_is_kept_whole() -> None:
    generator = np.random.default_rng(1)
    rows: list[tuple[list[float | None], list[float | None]]] = [
        ((-generator.random(5)).tolist(), (-generator.random(5)).tolist()) for _ in range(20)
    ]
    kept = fold(rows, sample_every=7).samples
    assert kept["seq"].to_list() == [0, 7, 14]
    assert kept["policy_logp"][1].to_list() == pytest.approx(rows[7][0])
    assert kept["old_logp"].null_count() == 3
