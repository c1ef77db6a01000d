"""Guards replayed from cells agree with guards applied token by token."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from builders import Array, Story, frame_of, repeatable, rising, sequences_of, steady, tables_of
from hypothesis import given
from hypothesis import strategies as st

from ptt.diagnostics.statistics.clipping_replay import SCHEMA, TOKEN_GUARDS, guarded_pair, replay_guards, split_by_sign
from ptt.diagnostics.statistics.windows import split_steps


def weights(rho: Array, guard: str) -> Array:
    kind, _, limits = guard.partition("-")
    if kind == "tis":
        return np.minimum(rho, float(limits))
    if kind == "none":
        return rho
    low, high = (float(limit) for limit in limits.split("-")) if kind == "icepop" else (0.0, float(limits))
    return np.where((rho >= low) & (rho <= high), rho, 0.0)


def r_of(frame: pl.DataFrame) -> list[tuple[Array, Array]]:
    """Log-ratios of each sequence, text-only and post-tool."""
    found = []
    for row in frame.iter_rows(named=True):
        r = np.array(row["policy_logp"], dtype=float) - np.array(row["ref_logp"], dtype=float)
        mask = np.array(row["model_mask"])
        after = np.cumsum(~mask) > 0
        found.append((r[mask & ~after], r[mask & after]))
    return found


def late_rows(scale: float) -> tuple[dict[tuple[str, int], dict[str, float]], list[tuple[Array, Array]]]:
    frame = sequences_of(Story(steps=30, text=steady(0.3), post=rising(scale / 3, scale), likeness=0.6))
    tables = tables_of(frame)
    windows = split_steps(list(range(1, 31)), 3)
    found = replay_guards(tables.cells, tables.sequences, windows, pair="policy/ref")
    late = found.filter(pl.col("window") == "late")
    sides = r_of(frame.filter(pl.col("step") >= windows[-1].first))
    return {(row["guard"], row["slice"]): row for row in late.iter_rows(named=True)}, sides


@pytest.mark.parametrize("scale", [0.2, 1.0, 3.0])
def test_token_guards_agree_with_tokens(scale: float) -> None:
    rows, sides = late_rows(scale)
    for guard in TOKEN_GUARDS:
        for number in (0, 1):
            rho = np.exp(np.concatenate([both[number] for both in sides]))
            w, row = weights(rho, guard.name), rows[guard.name, number]
            n = len(rho)
            near = 3 / n  # a token or two of the bin in which the limit lies
            assert row["n"] == n
            assert row["hit"] == pytest.approx((w != rho).mean(), abs=near)
            assert row["ess_fraction"] == pytest.approx(w.sum() ** 2 / (n * (w**2).sum()), rel=0.01)
            assert row["second_moment"] == pytest.approx((w**2).mean(), rel=0.01, abs=5 * near)
            assert row["mass_removed"] == pytest.approx(1 - w.sum() / rho.sum(), rel=0.01, abs=2 * near)
            lost = np.minimum(rho, 10).mean() - np.minimum(w, 10).mean()
            assert row["bias"] == pytest.approx(lost, rel=0.01, abs=5 * near)


@pytest.mark.parametrize("scale", [1.0, 5.0])
def test_sequence_guards_agree_with_sequences(scale: float) -> None:
    rows, sides = late_rows(scale)
    whole = [np.concatenate(both) for both in sides]
    dropped = {
        "veto-1e-4": [r.min() < math.log(1e-4) for r in whole],
        "sequence-0.5-2": [not math.log(0.5) <= r.mean() <= math.log(2) for r in whole],
    }
    for guard, out in dropped.items():
        for number in (0, 1):
            rho = np.exp(np.concatenate([both[number] for both in sides]))
            kept = [both[number] if not gone else both[number] - np.inf for both, gone in zip(sides, out, strict=True)]
            w, row = np.exp(np.concatenate(kept)), rows[guard, number]
            assert row["hit"] == pytest.approx((w == 0).mean())
            assert row["ess_fraction"] == pytest.approx(w.sum() ** 2 / (len(w) * (w**2).sum()))
            assert row["second_moment"] == pytest.approx((w**2).mean())
            assert row["mass_removed"] == pytest.approx(1 - w.sum() / rho.sum(), abs=1e-12)
            assert row["bias"] is None
    assert any(dropped["sequence-0.5-2"]) == (scale > 1)


@repeatable
@given(st.lists(st.floats(-30, 30), min_size=1, max_size=60))
def test_the_sign_split_of_cells_is_exact_for_few_tokens(r: list[float]) -> None:
    values = np.array(r)
    cells = tables_of(frame_of([{"r": values}])).cells
    parted = split_by_sign(cells)
    rho = np.exp(values)
    assert (parted.n_up + parted.n_down).sum() == len(values)
    assert parted.n_up[parted.magnitude > 1e-9].sum() == (values > 1e-9).sum()
    assert (parted.s1_up + parted.s1_down).sum() == pytest.approx(rho.sum(), rel=1e-6)
    assert (parted.s2_up + parted.s2_down).sum() == pytest.approx((rho**2).sum(), rel=1e-6)
    assert (parted.s1_up >= 0).all()


def test_a_guard_only_takes_away() -> None:
    rows, _ = late_rows(3.0)
    for row in rows.values():
        assert 0 <= row["hit"] <= 1
        assert 0 <= row["mass_removed"] <= 1
        assert row["second_moment"] <= rows["none", int(row["slice"])]["second_moment"] * (1 + 1e-12)
        assert (row["bias"] or 0.0) >= -1e-12


def test_the_guarded_pair_is_the_one_nearest_to_what_trainers_guard() -> None:
    names = ("policy/ref", "policy/rollout", "old/rollout", "policy/old")
    assert guarded_pair(names, {0, 1, 2, 3}) == 1
    assert guarded_pair(names, {0, 2, 3}) == 2
    assert guarded_pair(names, {0, 3}) == 3
    assert guarded_pair(names[:1], {0}) == 0


def test_without_sequences_only_tokens_are_guarded() -> None:
    cells = tables_of(frame_of([{"r": [0.5, -1.5]}])).cells
    found = replay_guards(cells, None, split_steps([1], 3), pair="policy/rollout")
    assert set(found["level"]) == {"token"}
    assert set(found["pair"]) == {"policy/rollout"}
    assert dict(found.schema) == SCHEMA
    assert replay_guards(cells.clear(), None, split_steps([1], 3), pair="x").is_empty()


def test_all_tokens_masked_has_no_ess() -> None:
    cells = tables_of(frame_of([{"r": [3.0, 3.5]}])).cells
    found = replay_guards(cells, None, split_steps([1], 3), pair="a/b").filter(pl.col("guard") == "mis-2")
    assert found["ess_fraction"].to_list() == [None]
    assert found.select("hit", "second_moment", "mass_removed", "bias").row(0) == (1.0, 0.0, 1.0, 10.0)
