"""Tables that no piece can have left are told from those that one has, column by column."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from builders import POLICY_REF, Story, sequences_of, steady

from ptt.diagnostics.statistics.bins import COARSE_COUNT
from ptt.diagnostics.statistics.cells import LOGP_COLUMNS
from ptt.diagnostics.statistics.logprob_pairs import PAIRS
from ptt.diagnostics.statistics.merge_tree import merge_group, only_kept
from ptt.diagnostics.statistics.partial_tables import SCHEMAS, PartialTables
from ptt.diagnostics.statistics.sound_tables import MAY_LACK, Expected, is_sound
from ptt.diagnostics.statistics.token_pass import PassPlan, Single, fold

SEQUENCES = 80
EXPECTED = Expected(first=0, end=SEQUENCES, pairs=2, bits_dropped=2, sample_every=4)
PLAN = PassPlan(
    pairs=(POLICY_REF, next(pair for pair in PAIRS if pair.name == "old/ref")),
    min_observation=4,
    batch_rows=SEQUENCES,
    sample_every=4,
    bits_dropped=2,
)


def made() -> pl.DataFrame:
    """Rows of which some lists do not fit together, some logprobs are NaN, and some are none at all."""
    rows = sequences_of(Story(steps=5, sequences=16, post=steady(1.5), nan_share=0.02))
    first = pl.col("seq") == 0
    of_minus_9999 = pl.col("policy_logp").list.eval(
        pl.when(pl.int_range(pl.len()) == 3).then(-9999.0).otherwise(pl.element())
    )
    return rows.with_columns(
        old_logp="policy_logp",
        policy_logp=pl.when(first).then(of_minus_9999).otherwise("policy_logp"),
        model_mask=pl.when(pl.col("seq") == 4).then(pl.col("model_mask").list.head(3)).otherwise("model_mask"),
    )


@pytest.fixture(scope="module")
def part() -> PartialTables:
    ((_, tables),) = fold(made().lazy(), PLAN, Single())
    assert all(getattr(tables, name).height for name in SCHEMAS)
    assert tables.rows["ok"].not_().sum() == 1
    return tables


def test_what_a_piece_and_a_group_leave_is_sound(part: PartialTables) -> None:
    assert is_sound(part, EXPECTED)
    assert is_sound(PartialTables.from_bytes(part.to_bytes()), EXPECTED)
    halves = [made().filter(pl.col("seq") // 40 == half) for half in (0, 1)]
    parts = [tables for half in halves for _, tables in fold(half.lazy(), PLAN, Single())]
    assert is_sound(merge_group(parts), EXPECTED)
    few = np.arange(SEQUENCES) % 3 == 0
    ((_, folded),) = fold(made().lazy(), PLAN, Single(kept=few))
    for one in (only_kept(part, few, 0), folded):
        assert is_sound(one, EXPECTED)
        assert one.sequences.height < part.sequences.height


@pytest.mark.parametrize("of", [{"end": 79}, {"first": 1}, {"pairs": 1}, {"bits_dropped": 0}, {"sample_every": 2}])
def test_tables_of_others_are_refused(part: PartialTables, of: dict[str, int]) -> None:
    assert not is_sound(part, replace(EXPECTED, **of))


def with_value(part: PartialTables, table: str, column: str, value: Any, row: int) -> PartialTables:
    """Put another value into one row of a column."""
    frame: pl.DataFrame = getattr(part, table)
    kind = frame.schema[column]
    one = pl.when(pl.int_range(pl.len()) == row).then(pl.lit(value, kind)).otherwise(column).alias(column)
    return replace(part, **{table: frame.with_columns(one)})


GREATEST = {"UInt8": 255, "UInt16": 65535, "UInt32": 2**32 - 1, "Int64": 2**62}


def foreign_values(table: str, column: str, kind: pl.DataType) -> Iterator[Any]:
    """Yield values that a column cannot have."""
    if column not in MAY_LACK.get(table, ()):
        yield None
    if kind.is_integer():
        yield GREATEST[str(kind)]
        if kind == pl.Int64:
            yield -5
    if kind.is_float():
        yield from (math.nan, math.inf)


HARMS = [
    (table, column, value)
    for table, schema in SCHEMAS.items()
    for column, kind in schema.items()
    for value in foreign_values(table, column, kind)
    if (table, column, value) != ("rows", "length", 2**32 - 1)  # sequences may be as long as they are
]


@pytest.mark.parametrize(("table", "column", "value"), HARMS)
def test_a_value_that_a_column_cannot_have_is_refused(part: PartialTables, table: str, column: str, value: Any) -> None:
    for row in (0, getattr(part, table).height - 1):
        assert not is_sound(with_value(part, table, column, value, row), EXPECTED)


def changed(table: str, **columns: pl.Expr) -> Callable[[PartialTables], PartialTables]:
    return lambda part: replace(part, **{table: getattr(part, table).with_columns(**columns)})


def rows_of(table: str, choose: Callable[[pl.DataFrame], pl.DataFrame]) -> Callable[[PartialTables], PartialTables]:
    return lambda part: replace(part, **{table: choose(getattr(part, table))})


def lists(name: str, expression: pl.Expr) -> dict[str, pl.Expr]:
    return {name: pl.col(name).list.eval(expression)}


null_first = pl.when(pl.int_range(pl.len()) == 0).then(None).otherwise(pl.element())
OTHERS = {
    "slices numbered 9": changed("cells", slice=pl.lit(9, pl.UInt8)),
    "cells 2^60 bins wide": changed("cells", wide=pl.lit(60, pl.UInt8)),
    "cells that overlap": changed("cells", bin=pl.col("bin") + 1),
    "sums of another bin": changed("cells", s_abs=pl.col("s_abs") * 1.5),
    "a sum of r beyond that of |r|": changed("cells", s_r=pl.col("s_abs") * 2),
    "squares below zero": changed("cells", s_r2=-pl.col("s_r2")),
    "cells in another order": rows_of("cells", lambda cells: cells.reverse()),
    "no cells": rows_of("cells", lambda cells: cells.clear()),
    "no cells, no steps": lambda part: replace(part, cells=part.cells.clear(), steps=part.steps.clear()),
    "one more of the second pair": rows_of("cells", lambda cells: pl.concat([cells, cells[-1:]])),
    "other tokens of a step": changed("steps", n=pl.col("n") + 1),
    "no sequence of a step": changed("steps", sequences=pl.lit(0, pl.Int64)),
    "fewer sequences than are kept": changed("steps", sequences=pl.lit(1, pl.Int64)),
    "a row twice": rows_of("rows", lambda rows: pl.concat([rows, rows[:1]])),
    "no rows": rows_of("rows", lambda rows: rows.clear()),
    "rows of other steps": changed("rows", step=pl.col("step") + 1),
    "no sound row": changed("rows", ok=pl.lit(value=False)),
    "more model tokens than tokens": changed("rows", n_model=pl.col("length") + 1),
    "a sequence twice": rows_of("sequences", lambda rows: pl.concat([rows, rows[:1]])),
    "sequences of another step": changed("sequences", step=pl.col("step").reverse()),
    "more tokens than a sequence has": changed("sequences", n_bad=pl.col("n_bad") + 10_000),
    "least above greatest": changed("sequences", min_r=pl.col("max_r"), max_r=pl.col("min_r") - 1),
    "nulls inside coarse bins": changed("sequences", **lists("coarse_bin", null_first)),
    "nulls inside coarse counts": changed("sequences", **lists("coarse_n", null_first)),
    "coarse bins that there are not": changed("sequences", **lists("coarse_bin", pl.element() + COARSE_COUNT)),
    "coarse bins twice": changed("sequences", **lists("coarse_bin", pl.element() * 0)),
    "coarse counts of other tokens": changed("sequences", **lists("coarse_n", pl.element() + 1)),
    "coarse counts of none": changed("stretches", **lists("coarse_n", pl.element() * 0)),
    "fewer coarse counts": changed("stretches", coarse_n=pl.col("coarse_n").list.head(0)),
    "nulls inside the lists of stretches": changed("stretches", **lists("coarse_bin", null_first)),
    "small tokens among large ones": changed("stretches", **lists("coarse_bin", pl.element() - 30)),
    "a stretch twice": rows_of("stretches", lambda rows: pl.concat([rows, rows[:1]])),
    "a distance that there is not": changed("stretches", distance=pl.lit(10, pl.UInt8)),
    "more turns than observations": changed("stretches", turn=pl.col("turn") + 100),
    "large tokens without a peak": changed("stretches", peak=pl.lit(0.0)),
    "a peak beyond the end": changed("stretches", peak_at=pl.col("peak_at") + 100_000),
    "bad tokens of an unknown pair": changed("bad", pair=pl.lit(2, pl.UInt8)),
    "bad tokens of an unknown step": changed("bad", step=pl.lit(77, pl.Int64)),
    "bad tokens of an unknown slice": changed("bad", slice=pl.lit(2, pl.UInt8)),
    "no bad tokens, said as some": changed("bad", n_bad=pl.lit(0, pl.Int64)),
    "losing nothing": changed("losing", n_bad=pl.lit(0, pl.Int64)),
    "an unknown column": changed("anomalies", column=pl.lit(len(LOGP_COLUMNS), pl.UInt8)),
    "an unknown kind": changed("anomalies", kind=pl.lit(6, pl.UInt8)),
    "too few samples": rows_of("samples", lambda rows: rows[1:]),
    "other samples": changed("samples", seq=pl.col("seq") + 1),
    "a sample twice": rows_of("samples", lambda rows: pl.concat([rows[:1], rows[:-1]])),
    "shorter samples": changed("samples", model_mask=pl.col("model_mask").list.head(2)),
}  # fmt: skip


@pytest.mark.parametrize("harm", OTHERS)
def test_tables_that_contradict_themselves_are_refused(part: PartialTables, harm: str) -> None:
    assert not is_sound(OTHERS[harm](part), EXPECTED)
