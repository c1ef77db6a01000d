"""Take from a source that is not counted what the counted one lacks of the same samples: rewards, ids, versions."""

from __future__ import annotations

from typing import Final

import polars as pl

KEY: Final = ("step", "token_hash")
SINGLE: Final = (
    "group_id",
    "trajectory_id",
    "env",
    "reward",
    "tool_names",
    "tool_failed",
    "policy_version",
    "temperature",
    "top_p",
)


def filled_in(frame: pl.LazyFrame, beside: list[pl.LazyFrame]) -> tuple[pl.LazyFrame, list[str]]:
    """Join what each sequence lacks of SINGLE to it by step and hash of its tokens; say how many found a partner.

    `frame`: the counted sequences, with `seq`; `beside`: others of the same steps. Samples of a step with the same
    tokens are paired in their order. Nothing is read where there is no other source.
    """
    if not beside:
        return frame, []
    held = set(frame.collect_schema().names())
    other = pl.concat(beside, how="diagonal") if len(beside) > 1 else beside[0]
    offered = set(other.collect_schema().names())
    if not (held & offered).issuperset(KEY):
        return frame, []
    wanted = [name for name in SINGLE if name in offered]
    mine = _numbered(frame.select("seq", *KEY))
    theirs = _numbered(other.select(*KEY, *wanted)).drop("seq", strict=False)
    found = mine.join(theirs, on=[*KEY, "nth"], how="inner", maintain_order="left").drop(*KEY, "nth")
    gained = [name for name in wanted if name not in held and found[name].null_count() < found.height]
    kept = [name for name in wanted if name in held]
    if not gained or not found.height:
        return frame, []
    steps = theirs["step"].unique()
    shared = mine.filter(pl.col("step").is_in(steps.implode())).height
    added = found.select("seq", *gained, *(pl.col(name).alias(f"_{name}") for name in kept)).lazy()
    whole = frame.join(added, on="seq", how="left", maintain_order="left")
    if kept:
        whole = whole.with_columns(pl.coalesce(name, f"_{name}") for name in kept)
    note = (
        f"{found.height} of {shared} sequences are the same samples, by step and hash of their tokens, as in the "
        f"source that is not counted: {', '.join(gained)} are taken from there."
    )
    return whole.drop([f"_{name}" for name in kept]), [note]


def _numbered(frame: pl.LazyFrame) -> pl.DataFrame:
    """Read the rows that have both keys, and number those that share them."""
    rows = frame.drop_nulls(list(KEY)).collect(engine="streaming")
    return rows.with_columns(nth=pl.int_range(pl.len()).over(list(KEY)))
