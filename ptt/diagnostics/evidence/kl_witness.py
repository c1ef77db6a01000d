"""The trainer's own KL beside the KL of the recorded tokens: two accounts of one distance, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.evidence.reference import REF_PAIRS
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.evidence.tokens_by_step import SLICES
from ptt.diagnostics.evidence.validity import Extent, measure_extent
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray
from ptt.diagnostics.statistics.cells import EXPONENT_CAP, grouped_sums
from ptt.diagnostics.statistics.level_jump import RatioJump, find_ratio_jump

LEAST_KL: Final = 1e-4  # nats a token: below it rounded logprobs and two estimators may differ by any factor
MEASURES: Final = {"k3": 1.0, "k2": 1.0, "mean |r|": 0.5, "k3 a sequence": 1.0}
"""Estimates of a KL, each with the power of it that it goes with: trainers log any of them."""
MOST_LOGGED: Final = 1.5  # times the last recorded step: a log that goes further may count other steps


@dataclass(frozen=True, kw_only=True)
class KlWitness:
    """The logged KL and that of the recorded tokens at the steps that have both, and where the two part."""

    pair: str
    logged_as: str
    steps: IntArray
    logged: FloatArray
    recorded: Mapping[str, FloatArray]  # by estimate (MEASURES)
    slices: Mapping[str, FloatArray]  # k3 by slice; NaN where it has no token
    jump: RatioJump | None
    off: Extent  # of the records from the jump on, up to where it ends; of all where there is none


def gather_kl_witness(tokens: Tokens | None, metrics: Mapping[str, Series]) -> KlWitness | None:
    """Hold the recorded tokens' KL against the logged one; None where either is not recorded."""
    logged = metrics.get("kl/ref")
    number = next((at for at, pair in enumerate(tokens.pairs) if pair.name in REF_PAIRS), None) if tokens else None
    if tokens is None or logged is None or number is None:
        return None
    cells = tokens.tables.cells_of(number)
    if cells.is_empty():
        return None
    table = _by_step(cells)
    sequences = tokens.sound_rows.filter(pl.col("n_model") > 0).group_by("step").len("sequences")
    table = table.join(sequences, on="step", how="left", maintain_order="left")
    steps, values = logged.finite()
    table = _at_logged(table, steps, values)
    last_logged = int(steps[-1]) if len(steps) else 0
    return _witness(tokens, tokens.pairs[number].name, logged.raw_name, table, last_logged)


def _by_step(cells: pl.DataFrame) -> pl.DataFrame:
    """Return the sums of k3, r, its size and its square by step, and of k3 by slice.

    A cell holds tokens of both signs of r and of about one size; s_r tells how many are of which.
    """
    n, s_abs, s_r = (cells[name].to_numpy().astype(np.float64) for name in ("n", "s_abs", "s_r"))
    size = np.minimum(s_abs / n, EXPONENT_CAP)
    share = np.clip(np.divide(s_r, s_abs, out=np.zeros_like(s_r), where=s_abs > 0), -1.0, 1.0)
    k3 = n * (np.expm1(-size) * (1 + share) + np.expm1(size) * (1 - share)) / 2 + s_r
    summed = cells.select("step", "slice", "n", "s_abs", "s_r", "s_r2").with_columns(pl.Series("k3", k3))
    parts = [
        pl.when(pl.col("slice") == at).then(pl.col(name)).otherwise(0).alias(f"{name} {title}")
        for at, title in enumerate(SLICES)
        for name in ("n", "k3")
    ]
    summed = summed.with_columns(parts)
    return grouped_sums(summed, ["step"], [name for name in summed.columns if name not in ("step", "slice")])


def _at_logged(table: pl.DataFrame, steps: IntArray, values: FloatArray) -> pl.DataFrame:
    """Return the sums with the KL logged of each step; where several steps are logged as one, they are added up.

    A log of every tenth step is the mean of the ten that end there.
    """
    recorded = table["step"].to_numpy()
    at = np.searchsorted(steps, recorded)
    spacing = int(np.median(np.diff(steps))) if len(steps) > 1 else 1
    inside = at < len(steps)
    inside[inside] = steps[at[inside]] - recorded[inside] < max(1, spacing)
    table = table.filter(inside).with_columns(pl.Series("at", at[inside]))
    table = table.group_by("at", maintain_order=True).agg(pl.col("step").max(), pl.exclude("step").sum())
    return table.with_columns(pl.Series("logged", values[table["at"].to_numpy()]))


def _witness(tokens: Tokens, pair: str, logged_as: str, table: pl.DataFrame, last_logged: int) -> KlWitness:
    columns = {name: table[name].to_numpy().astype(np.float64) for name in table.columns if name != "step"}
    n = columns["n"]
    k3 = np.maximum(columns["k3"] / n, 0.0)
    logged = np.abs(columns["logged"])
    kept = _comparable(k3, logged)
    steps = table["step"].to_numpy()[kept]
    recorded = {
        "k3": k3,
        "k2": columns["s_r2"] / n / 2,
        "mean |r|": columns["s_abs"] / n,
        "k3 a sequence": k3 * n / np.maximum(columns["sequences"], 1.0),
    }
    recorded = {name: values[kept] for name, values in recorded.items()}
    slices = {title: _means(columns[f"k3 {title}"], columns[f"n {title}"]) for title in SLICES}
    jump = None
    if len(steps) and last_logged <= MOST_LOGGED * max(1, int(steps[-1])):
        measures = {name: (values, MEASURES[name]) for name, values in recorded.items()}
        jump = find_ratio_jump(steps, logged[kept], measures)
    rows = tokens.sound_rows
    if jump is not None:
        rows = rows.filter(pl.col("step").is_between(jump.span.since, jump.span.until))
    return KlWitness(
        pair=pair,
        logged_as=logged_as,
        steps=steps,
        logged=logged[kept],
        recorded=recorded,
        slices={title: values[kept] for title, values in slices.items()},
        jump=jump,
        off=measure_extent(tokens, rows),
    )


def _means(sums: FloatArray, counts: FloatArray) -> FloatArray:
    means: FloatArray = np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)
    return means


def _comparable(recorded: FloatArray, logged: FloatArray) -> BoolArray:
    """Return the steps at which either of the two is a distance to speak of, and something was logged."""
    both = (recorded >= LEAST_KL) & (logged > 0)
    factor = float(np.quantile(recorded[both] / logged[both], 0.25)) if both.any() else 1.0
    return (logged > 0) & ((recorded >= LEAST_KL) | (logged * factor >= LEAST_KL))
