"""Whether the recorded logprobs can be trusted at all: what the token pass noticed, and what ids and steps tell."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.evidence.records import AnomalyCount, ColumnFacts, Coverage, MissingLogprobs, Validity
from ptt.diagnostics.gathering.extent import extent_of, file_names, with_ranks
from ptt.diagnostics.gathering.temperatures import mixed_column, mixed_pairs
from ptt.diagnostics.statistics.anomalies import Anomaly
from ptt.diagnostics.statistics.records import LOGP_COLUMNS
from ptt.diagnostics.statistics.sampled import column_facts, pair_sample

EARLY_SHARE = 0.2  # of the recorded steps: before a policy has moved far, r of a sound pair is small


def gather_validity(tokens: Tokens) -> Validity:
    """Put together what there is to say about the recorded logprobs."""
    samples = tokens.tables.samples
    steps = samples["step"].drop_nulls().unique().sort()
    early = samples.filter(pl.col("step") <= steps[int(EARLY_SHARE * (len(steps) - 1))]) if len(steps) else samples
    held = [name for name in LOGP_COLUMNS if name in tokens.scan.columns]
    rows = tokens.tables.rows.filter("ok")
    return Validity(
        anomalies=_anomalies(tokens),
        pairs={
            pair.name: (
                pair_sample(samples, numerator=pair.numerator, denominator=pair.denominator),
                pair_sample(early, numerator=pair.numerator, denominator=pair.denominator),
            )
            for pair in tokens.pairs
        },
        columns={name: ColumnFacts(*column_facts(samples, name)) for name in held},
        extent=extent_of(tokens, rows),
        observed_share=rows.filter(pl.col("n_obs") > 0).height / max(1, rows.height),
        missing=_missing(tokens),
        coverage=_coverage(tokens, rows),
        mixed_column=mixed_column(tokens, rows),
        mixed_pairs=mixed_pairs(tokens, rows),
    )


def _anomalies(tokens: Tokens) -> tuple[AnomalyCount, ...]:
    table = tokens.tables.anomalies
    if table.is_empty():
        return ()
    counted = (
        table.with_columns(file_names(tokens, table["seq"]))
        .group_by("column", "kind")
        .agg(
            pl.col("n").cast(pl.Int64).sum().alias("tokens"),
            pl.col("seq").n_unique().alias("sequences"),
            pl.col("step").min().alias("first"),
            pl.col("step").max().alias("last"),
            pl.col("file").n_unique().alias("files"),
            pl.col("file").sort().first().alias("example"),
        )
        .sort("column", "kind")
    )
    return tuple(
        AnomalyCount(
            column=LOGP_COLUMNS[row["column"]],
            kind=Anomaly(row["kind"]).name.lower(),
            tokens=row["tokens"],
            sequences=row["sequences"],
            first_step=row["first"],
            last_step=row["last"],
            files=row["files"],
            example=row["example"],
        )
        for row in counted.iter_rows(named=True)
    )


def _missing(tokens: Tokens) -> MissingLogprobs:
    """Hold, step by step, the tokens without a finite log-ratio against those with one."""
    pair, tables = tokens.pairs[0], tokens.tables
    sides = [LOGP_COLUMNS.index(pair.numerator), LOGP_COLUMNS.index(pair.denominator)]
    count = pl.col("n").cast(pl.Int64).sum()
    finite = tables.cells.filter(pl.col("pair") == 0).group_by("step").agg(count.alias("finite"))
    lost = tables.bad.filter(pl.col("pair") == 0).group_by("step").agg(pl.col("n_bad").cast(pl.Int64).sum())
    known = tables.anomalies.filter(pl.col("column").is_in(sides)).group_by("step").agg(count.alias("placeholders"))
    by_step = (
        lost.join(known, on="step", how="left")
        .join(finite, on="step", how="full", coalesce=True)
        .with_columns(pl.col("n_bad", "placeholders", "finite").fill_null(0))
        .with_columns((pl.col("n_bad") - pl.col("placeholders")).clip(0).alias("missing"))
        .sort("step")
    )
    missing = by_step.filter(pl.col("missing") > 0)["step"]
    alive = by_step.filter(pl.col("finite") > 0)["step"]
    dead = by_step.filter((pl.col("finite") == 0) & (pl.col("missing") > 0))["step"]
    after = dead.filter(dead > alive[-1]) if len(alive) else dead
    where = extent_of(tokens, _losing(tokens, sides))
    return MissingLogprobs(
        pair=pair.name,
        tokens=int(by_step["missing"].sum()),
        finite_tokens=int(by_step["finite"].sum()),
        sequences=where.sequences,
        first_step=int(missing[0]) if len(missing) else None,
        last_step=int(missing[-1]) if len(missing) else None,
        files=where.files,
        example=where.example,
        dead_since=int(after[0]) if len(after) else None,
    )


def _losing(tokens: Tokens, sides: list[int]) -> pl.DataFrame:
    """Give the sequences with tokens that have no finite log-ratio and no placeholder either."""
    placeholders = tokens.tables.anomalies.filter(pl.col("column").is_in(sides)).group_by("seq").agg(pl.col("n").sum())
    return (
        tokens.tables.sequences.group_by("seq")
        .agg(pl.col("n_bad").sum())
        .join(placeholders, on="seq", how="left")
        .filter(pl.col("n_bad").cast(pl.Int64) > pl.col("n").cast(pl.Int64).fill_null(0))
        .join(tokens.tables.rows, on="seq", how="inner")
    )


def _coverage(tokens: Tokens, rows: pl.DataFrame) -> Coverage:
    """Count repeated sequences, ranks that are missing at some steps, and gaps in the steps."""
    table = with_ranks(tokens, rows)
    again = table.clear()
    if "sample_id" in tokens.scan.columns:
        ids = tokens.scalars.select("seq", "sample_id").drop_nulls()
        again = table.join(ids, on="seq", how="inner", maintain_order="left").filter(
            ~pl.struct("step", "sample_id").is_first_distinct()
        )
    ranks, lacking, without = _ranks(table.filter(pl.col("rank").is_not_null()))
    usual = table.group_by("step", "rank").agg(pl.len(), pl.col("n_model").cast(pl.Int64).sum())
    return Coverage(
        repeated=extent_of(tokens, again),
        step_gaps=_gaps(table["step"].unique().sort().to_list()),
        ranks=ranks,
        missing_ranks=lacking,
        steps_missing_ranks=len(without),
        first_step_missing_rank=without[0] if without else -1,
        last_step_missing_rank=without[-1] if without else -1,
        usual_sequences=_median(usual["len"]),
        usual_tokens=_median(usual["n_model"]),
    )


def _median(counts: pl.Series) -> float:
    return float(np.median(counts.to_numpy())) if len(counts) else 0.0


def _ranks(table: pl.DataFrame) -> tuple[int, tuple[int, ...], list[int]]:
    """Give how many ranks there are, those that some steps lack, and these steps."""
    every = set(table["rank"].unique().to_list())
    by_step = table.group_by("step").agg(pl.col("rank").unique()).sort("step")
    lacking: set[int] = set()
    steps = []
    for step, held in by_step.iter_rows():
        if every - set(held):
            lacking |= every - set(held)
            steps.append(step)
    return len(every), tuple(sorted(lacking)), steps


def _gaps(steps: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Give gaps far longer than the pattern in which steps are recorded."""
    if len(steps) < 10:
        return ()
    between = np.diff(np.asarray(steps))
    usual = float(np.quantile(between, 0.9))
    return tuple((int(steps[i]), int(steps[i + 1])) for i in np.flatnonzero(between > max(5 * usual, 5)).tolist())
