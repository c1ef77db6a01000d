"""Placeholders are found token by token, whatever else the batch holds, and never enter a statistic."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from ptt.diagnostics.statistics import batch_layout
from ptt.diagnostics.statistics.logprob_pairs import available_pairs
from ptt.diagnostics.statistics.placeholder_values import Anomaly
from ptt.diagnostics.statistics.token_pass import TokenTables, token_pass

PAIRS = available_pairs({"policy_logp", "ref_logp"})
NAN = float("nan")


def fold(rows: list[tuple[list[float | None], list[float | None]]], sample_every: int = 0) -> TokenTables:
    frame = pl.DataFrame(
        {
            "seq": pl.Series(range(len(rows)), dtype=pl.UInt32),
            "step": [1] * len(rows),
            "model_mask": [[True] * len(policy) for policy, _ in rows],
            "policy_logp": pl.Series([policy for policy, _ in rows], dtype=pl.List(pl.Float32)),
            "ref_logp": pl.Series([ref for _, ref in rows], dtype=pl.List(pl.Float32)),
        }
    )
    return token_pass(frame.lazy(), pairs=PAIRS, min_observation=4, sample_every=sample_every)


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
        ([-0.5, -1.0, -0.25], [-0.5, -0.5, -0.25], (0, "PAD", 1)),
        ([-0.5, -0.4, -0.25], [-0.5, 2.0, -0.25], (3, "POSITIVE", 1)),
        ([-0.5, 0.0, -0.25], [-0.5, -9.0, -0.25], (0, "ZERO", 1)),
        ([-0.1 * i for i in range(9)], [0.0] * 9, (3, "FILLED_ROW", 9)),
    ],
)
def test_each_kind_is_named_counted_and_left_out(
    policy: list[float | None], ref: list[float | None], found: tuple[int, str, int]
) -> None:
    sound: tuple[list[float | None], list[float | None]] = ([-0.5, -0.4, -0.3], [-0.5, -0.3, -0.3])
    tables = fold([sound, (policy, ref), sound])
    assert kinds(tables) == [(1, *found)]
    assert int(tables.cells["n"].sum()) == 6 + len(policy) - found[2]
    assert int(tables.bad["n_bad"].sum()) == found[2]


def test_a_probability_of_one_is_no_placeholder() -> None:
    tables = fold([([0.0, -0.5, 0.0], [0.0, -0.4, -0.01])])
    assert kinds(tables) == []
    assert int(tables.cells["n"].sum()) == 3


def test_a_constant_row_on_both_sides_is_a_sure_policy_and_no_fault() -> None:
    assert kinds(fold([([-0.001] * 20, [-0.002] * 20)])) == []


@pytest.mark.parametrize("chunk", [1, 4, 1 << 19])
def test_a_nan_hides_no_placeholder_however_batches_are_cut(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_layout, "CHUNK_TOKENS", chunk)
    rows: list[tuple[list[float | None], list[float | None]]] = [
        ([-0.5, NAN, -0.25], [-0.5, -0.5, -0.25]),
        ([-0.5, -9999.0, -0.25], [-0.5, -0.5, -0.25]),
        ([NAN, *[-0.1 * i for i in range(9)]], [0.0] * 10),
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
