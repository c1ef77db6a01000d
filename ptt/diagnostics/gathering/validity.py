"""Whether the recorded logprobs can be trusted at all: what the token pass noticed, and what ids and steps tell."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import polars as pl

from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.evidence import AnomalyCount, ColumnFacts, Coverage, MissingLogprobs, Validity
from ptt.diagnostics.statistics.anomalies import Anomaly
from ptt.diagnostics.statistics.records import LOGP_COLUMNS
from ptt.diagnostics.statistics.sampled import column_facts, pair_sample

EARLY_SHARE = 0.2  # of the recorded steps: before a policy has moved far, r of a sound pair is small
_RANK = re.compile(r"_rank(\d+)(?=[._])")


def gather_validity(tokens: Tokens) -> Validity:
    """Put together what there is to say about the recorded logprobs."""
    samples = tokens.tables.samples
    steps = samples["step"].unique().sort()
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
        sequences=rows.height,
        model_tokens=int(rows["n_model"].cast(pl.Int64).sum()),
        observed_share=rows.filter(pl.col("n_obs") > 0).height / max(1, rows.height),
        missing=_missing(tokens),
        coverage=_coverage(tokens, rows),
    )


def _anomalies(tokens: Tokens) -> tuple[AnomalyCount, ...]:
    table = tokens.tables.anomalies
    if table.is_empty():
        return ()
    files = tokens.scan.files
    starts = np.array([file.start for file in files])
    names = pl.Series("file", [files[i].name for i in np.searchsorted(starts, table["seq"], side="right") - 1])
    counted = (
        table.with_columns(names)
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
    return MissingLogprobs(
        pair=pair.name,
        tokens=int(by_step["missing"].sum()),
        finite_tokens=int(by_step["finite"].sum()),
        first_step=int(missing[0]) if len(missing) else None,
        last_step=int(missing[-1]) if len(missing) else None,
        dead_since=int(after[0]) if len(after) else None,
    )


def _coverage(tokens: Tokens, rows: pl.DataFrame) -> Coverage:
    """Count repeated sequences, ranks that are missing at some steps, and gaps in the steps."""
    columns = [name for name in ("sample_id", "rank") if name in tokens.scan.columns]
    ids = tokens.scalars.select("seq", *columns)
    table = rows.select("seq", "step").join(ids, on="seq", how="left", maintain_order="left")
    starts = np.array([file.start for file in tokens.scan.files])
    of_file = np.searchsorted(starts, table["seq"], side="right") - 1
    if "rank" not in table.columns:
        named = [_RANK.search(file.name) for file in tokens.scan.files]
        numbers = [int(found[1]) if found else None for found in named]
        table = table.with_columns(pl.Series("rank", [numbers[i] for i in of_file], dtype=pl.Int32))
    repeated = 0
    if "sample_id" in table.columns:
        known = table.filter(pl.col("sample_id").is_not_null())
        repeated = known.height - known.select("step", "sample_id").n_unique()
    ranks, lacking, without = _ranks(table.filter(pl.col("rank").is_not_null()))
    return Coverage(
        repeated=repeated,
        step_gaps=_gaps(table["step"].unique().sort().to_list()),
        ranks=ranks,
        missing_ranks=lacking,
        steps_missing_ranks=len(without),
        first_step_missing_rank=without[0] if without else -1,
    )


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
