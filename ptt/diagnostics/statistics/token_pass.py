"""One pass over all tokens: a lazy frame of sequences in, small mergeable tables out.

Polars streams the decoded rows in order; each batch is folded with numpy (subtract, bin, add up) on this thread
while Polars' threads decode the next ones. Order and thread are fixed, so the same input gives the same sums to
the last bit. `docs/decisions/003-token-pass.md` has what else was measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa

from ptt.diagnostics.statistics.fold import Pool, fold
from ptt.diagnostics.statistics.pairs import Pair
from ptt.diagnostics.statistics.records import (
    ANOMALY,
    BAD,
    CELL,
    KINDS,
    ROW,
    SAMPLE,
    SEQUENCE,
    SUMS,
    Columns,
    together,
    unpack_cells,
)
from ptt.diagnostics.statistics.stretches import Stretches

BATCH_TOKENS: Final = 1 << 18


@dataclass(frozen=True, kw_only=True)
class TokenTables:
    """What is left of the tokens.

    cells: one row per (pair, step, slice, bin): n and records.SUMS.
    sequences: one row per (seq, slice) of the first pair: step, n, n_bad, records.SEQUENCE_SUMS,
        the least and greatest r, and the coarse histogram as two lists.
    stretches: one row per (seq, observations before, distance after the last one) of the first pair: n, and of the
        tokens with a large |r| the greatest, where it is, and the coarse histogram.
    rows: one row per sequence: step, length, n_model, n_obs, ok (false: its lists disagree in length).
    bad: per (pair, step, slice): model tokens whose r is null, NaN, infinite, or taken for a placeholder.
    anomalies: per (seq, column, kind): values that are no logprobs (see anomalies.Anomaly).
    samples: every `sample_every`-th sequence, whole.
    """

    cells: pl.DataFrame
    sequences: pl.DataFrame
    stretches: pl.DataFrame
    rows: pl.DataFrame
    bad: pl.DataFrame
    anomalies: pl.DataFrame
    samples: pl.DataFrame

    def cells_of(self, pair: int) -> pl.DataFrame:
        """Give the cells of one pair."""
        every = self.cells["pair"].to_numpy()
        return self.cells if (every == pair).all() else self.cells.filter(pl.col("pair") == pair)


def token_pass(
    frame: pl.LazyFrame,
    *,
    pairs: tuple[Pair, ...],
    min_observation: int,
    tokens_per_row: float = 1024.0,
    sample_every: int = 0,
    on_rows: Callable[[int], None] | None = None,
) -> TokenTables:
    """Fold `frame` (seq, step, model_mask, logp lists, optional tool_count) for `pairs`, the first being the main one.

    `tokens_per_row` only sets how many rows are taken at a time; every `sample_every`-th row is kept whole (0: none);
    `on_rows` hears how many were done.
    """
    found: dict[str, list[Columns]] = {name: [] for name in KINDS}
    samples: list[pa.Table] = []
    pool, stretches = Pool(), Stretches()
    rows = max(16, int(BATCH_TOKENS / max(tokens_per_row, 1.0)))
    for batch in frame.collect_batches(chunk_size=rows, maintain_order=True, lazy=True, engine="streaming"):
        for kind, records in fold(batch, pairs=pairs, min_observation=min_observation, pool=pool, stretches=stretches):
            found[kind].append(records)
        if sample_every:
            samples.append(_kept(batch, sample_every))
        if on_rows is not None:
            on_rows(batch.height)
    return TokenTables(
        cells=unpack_cells(_merge(together(found["cells"], CELL))),
        sequences=_in_order(together(found["sequences"], SEQUENCE)),
        stretches=stretches.records(),
        rows=together(found["rows"], ROW).sort("seq"),
        anomalies=together(found["anomalies"], ANOMALY).unique(["seq", "column", "kind"]).sort("seq", "column", "kind"),
        samples=_samples(samples),
        bad=together(found["bad"], BAD)
        .group_by("pair", "step", "slice")
        .agg(pl.col("n_bad").sum())
        .sort("pair", "step", "slice"),
    )


def _in_order(sequences: pl.DataFrame) -> pl.DataFrame:
    """Sort by seq and slice; as they come they are in order, and sorting lists is slow."""
    order = 2 * sequences["seq"].to_numpy().astype(np.int64) + sequences["slice"].to_numpy()
    return sequences if (np.diff(order) > 0).all() else sequences.sort("seq", "slice")


def _kept(batch: pl.DataFrame, every: int) -> pa.Table:
    """Copy some rows, with Arrow: Polars' own threads are busy decoding, and would have to be waited for."""
    chosen = pa.array(np.flatnonzero(batch["seq"].to_numpy() % every == 0))
    held = [name for name in SAMPLE if name in batch.columns]
    return pa.table([batch[name].to_arrow().take(chosen) for name in held], names=held)


def _samples(parts: list[pa.Table]) -> pl.DataFrame:
    """Put kept sequences together; logprobs that a batch lacks are null."""
    found = [part for part in parts if part.num_rows]
    if not found:
        return pl.DataFrame(schema=SAMPLE)
    whole = pl.DataFrame(pa.concat_tables(found, promote_options="permissive"))
    missing = [pl.lit(None, dtype).alias(name) for name, dtype in SAMPLE.items() if name not in whole.columns]
    return whole.with_columns(missing).select(pl.col(name).cast(kind) for name, kind in SAMPLE.items()).sort("seq")


def _merge(cells: pl.DataFrame) -> pl.DataFrame:
    """Add up records of the same cell, always in the order they came."""
    key = cells["key"].to_numpy()
    order = np.argsort(key, kind="stable")
    key = key[order]
    first = np.flatnonzero(np.diff(key, prepend=key[:1] + np.uint64(1)))
    if not len(first):
        return cells
    return pl.DataFrame(
        {
            "key": key[first],
            "n": np.add.reduceat(cells["n"].to_numpy()[order], first),
            **{name: np.add.reduceat(cells[name].to_numpy()[order], first) for name in SUMS},
        },
        schema=CELL,
    )
