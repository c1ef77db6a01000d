"""The compiled loops of the token pass: the same tables to the last bit, whatever is in the tokens."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import numpy as np
import polars as pl
import pytest
from builders import Story, repeatable, sequences_of, steady
from hypothesis import given
from hypothesis import strategies as st

from ptt.diagnostics.statistics import token_pass as passes
from ptt.diagnostics.statistics import token_sums
from ptt.diagnostics.statistics.logprob_pairs import available_pairs
from ptt.diagnostics.statistics.partial_tables import TokenTables
from ptt.diagnostics.statistics.token_pass import token_pass
from ptt.diagnostics.statistics.token_sums import ArrayPool, Segments, TokenSums

pytest.importorskip("numba", reason="the compiled loops are an extra: pip install 'ptt-forensics[compiled]'")

LOGPS = ("policy_logp", "old_logp", "rollout_logp", "ref_logp")
ODD = (math.nan, math.inf, -math.inf, 0.0, -0.0, -1.0, -100.0, -9999.0, 0.5, 1e-3, -1e-30, -400.0, -1e4)


def tables(frame: pl.DataFrame, *, compiled: bool, **options: Any) -> TokenTables:
    columns = {name for name in LOGPS if name in frame.columns}
    return token_pass(
        frame.lazy(), pairs=available_pairs(columns), min_observation=4, compiled=compiled, sample_every=4, **options
    )


def bits(frame: pl.DataFrame) -> pl.DataFrame:
    """Show -0.0 and 0.0 apart."""
    return frame.with_columns(
        pl.Series(name, frame[name].to_numpy().view(np.int64))
        for name, kind in frame.schema.items()
        if kind == pl.Float64
    )


def assert_same_bits(frame: pl.DataFrame, **options: Any) -> None:
    plain, compiled = tables(frame, compiled=False, **options), tables(frame, compiled=True, **options)
    for one in fields(TokenTables):
        if one.name != "samples":
            assert bits(getattr(plain, one.name)).equals(bits(getattr(compiled, one.name))), one.name


@pytest.fixture(autouse=True)
def _compiled_loops_are_used(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from ptt.diagnostics.statistics import compiled_token_sums

    calls = []
    real = compiled_token_sums.sum_tokens

    def counted(segments: Segments, pool: ArrayPool, main: bool) -> TokenSums:
        calls.append(len(segments.r))
        return real(segments, pool, main)

    monkeypatch.setattr(compiled_token_sums, "sum_tokens", counted)
    passes.loops_of.cache_clear()
    yield
    passes.loops_of.cache_clear()
    assert calls, "the test compared NumPy with itself"


@pytest.mark.parametrize("tokens", [1, 7, 8, 9, 128, 129, 137, 300, 4000])
def test_sums_agree_at_every_length_that_numpy_adds_up_in_another_way(tokens: int) -> None:
    generator = np.random.default_rng(tokens)
    rows = 12
    logps = {name: -generator.gamma(0.3, 2.0, (rows, tokens)).astype(np.float32) for name in LOGPS}
    frame = pl.DataFrame(
        {"seq": np.arange(rows, dtype=np.uint32), "step": np.arange(rows) // 5, "model_mask": [[True] * tokens] * rows}
        | {name: values.tolist() for name, values in logps.items()},
        schema_overrides={"model_mask": pl.List(pl.Boolean), **dict.fromkeys(LOGPS, pl.List(pl.Float32))},
    )
    assert_same_bits(frame)


def test_a_run_with_two_slices_and_lost_tokens_agrees() -> None:
    assert_same_bits(sequences_of(Story(steps=6, sequences=40, post=steady(0.8), nan_share=0.02)))


@pytest.mark.parametrize("every", [1, 2, 7, 1000])
def test_single_sequences_of_a_share_agree(every: int) -> None:
    frame = sequences_of(Story(steps=6, sequences=40, post=steady(0.8), nan_share=0.02))
    assert_same_bits(frame, kept=np.arange(frame.height) % every == every - 1)


def test_a_clean_run_agrees_in_32_and_64_bits() -> None:
    frame = sequences_of(Story(steps=6, sequences=40, post=steady(0.8)))
    assert_same_bits(frame)
    assert_same_bits(frame.with_columns(pl.col("policy_logp").cast(pl.List(pl.Float64))))


def test_many_steps_of_few_tokens_agree() -> None:
    assert_same_bits(sequences_of(Story(steps=300, sequences=2, post=steady(0.8))), tokens_per_row=4)


@repeatable
@given(st.data())
def test_any_values_agree(data: st.DataObject) -> None:
    value = st.one_of(st.sampled_from(ODD), st.floats(-30.0, 0.0, width=32))
    rows = data.draw(st.integers(1, 6))
    columns: dict[str, list[Any]] = {"seq": list(range(rows)), "step": [], "model_mask": []}
    columns |= {"policy_logp": [], "ref_logp": []}
    for _ in range(rows):
        tokens = data.draw(st.integers(0, 40))
        columns["step"].append(data.draw(st.integers(0, 3)))
        columns["model_mask"].append(data.draw(st.lists(st.booleans(), min_size=tokens, max_size=tokens)))
        for name in ("policy_logp", "ref_logp"):
            columns[name].append(data.draw(st.lists(value, min_size=tokens, max_size=tokens)))
    columns["seq"].append(rows)  # one sound row, so that both loops have something to do
    columns["step"].append(0)
    columns["model_mask"].append([True] * 9)
    columns["policy_logp"].append([-0.1 * at for at in range(9)])
    columns["ref_logp"].append([-0.2 * at for at in range(9)])
    kinds = {"model_mask": pl.List(pl.Boolean), **dict.fromkeys(("policy_logp", "ref_logp"), pl.List(pl.Float32))}
    assert_same_bits(pl.DataFrame(columns, schema_overrides={"seq": pl.UInt32, **kinds}))


def no_numba(_: str) -> None:
    return None


def no_folder_to_keep_code_in(_: str) -> None:
    raise RuntimeError("cannot cache function: no locator available")


@pytest.mark.parametrize("find", [no_numba, no_folder_to_keep_code_in])
def test_numpy_adds_up_where_numba_cannot(find: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = sequences_of(Story(steps=3, sequences=8, post=steady(0.8)))
    wanted = tables(frame, compiled=True)
    passes.loops_of.cache_clear()
    monkeypatch.setattr(passes, "find_spec", find)
    assert passes.loops_of(compiled=True).sum_tokens is token_sums.sum_tokens
    assert bits(tables(frame, compiled=True).cells).equals(bits(wanted.cells))
