"""Whether the recorded logprobs can be trusted at all: what the token pass noticed, and what ids and steps show."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.schema import LOGPS
from ptt.diagnostics.statistics.cells import LOGP_COLUMNS
from ptt.diagnostics.statistics.fault_since import FaultSpan, fault_span, weigh_counts
from ptt.diagnostics.statistics.fill_values import (
    SENTINELS,
    Anomaly,
    Fills,
    Grid,
    SampledTokens,
    find_fills,
    grid_of,
    sampled_tokens,
)
from ptt.diagnostics.statistics.logprob_pairs import available_pairs
from ptt.diagnostics.statistics.pair_sample import (
    CERTAIN_ABOVE,
    PairSample,
    TemperatureMixture,
    pair_samples,
    temperature_mixture,
)
from ptt.diagnostics.store.manifest import Manifest


@dataclass(frozen=True, kw_only=True)
class Extent:
    """How much of the records something affects; `example` is one of the files."""

    tokens: int  # of the model
    sequences: int
    first_step: int | None
    last_step: int | None
    files: int
    example: str | None


@dataclass(frozen=True, kw_only=True)
class AnomalyCount(Extent):
    """Values in one logprob column that cannot be logprobs, by kind (see statistics.fill_values)."""

    column: str
    kind: str
    values: tuple[float, ...] = ()  # for kinds pad and fill: which values
    span: FaultSpan | None = None  # the steps with most of them
    highest: float = math.nan  # for kind positive: the greatest value in the sample


@dataclass(frozen=True, kw_only=True)
class Rounding:
    """The coarse grid that one logprob column lies on, and what that means at the usual logprob."""

    grid: Grid
    usual: float  # nats: median logprob of the sampled tokens that are not nearly certain
    spacing: float  # nats between neighbouring values there


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """Records that are duplicated, or missing."""

    repeated: Extent  # sequences whose (step, sample_id) was there before
    step_gaps: tuple[tuple[int, int], ...]  # (last step before, first step after)
    ranks: int  # known ranks, 0 if none are recorded
    missing_ranks: tuple[int, ...]
    steps_missing_ranks: int
    first_step_missing_rank: int
    last_step_missing_rank: int
    usual_sequences: float  # of a rank at a step, as a median (of all ranks together, if unknown)
    usual_tokens: float
    without_rank: FaultSpan | None = None  # the stretch of steps that most surely lacks one
    sequences_without_rank: float = math.nan  # median of a step that lacks a rank over that of a step with all


@dataclass(frozen=True, kw_only=True)
class MissingLogprobs(Extent):
    """Model tokens of the pair in use without a finite log-ratio, placeholders not counted."""

    pair: str
    finite_tokens: int
    dead_since: int | None  # first step from which no token is finite until the last recorded step


@dataclass(frozen=True, kw_only=True)
class MixedColumn:
    """What the recorded `temperature` shows: steps at which it differs between sequences."""

    temperatures: tuple[float, ...]  # seen at these steps, ascending
    steps: int
    share: float  # share of these steps' sequences not at the run's commonest temperature
    extent: Extent  # of these sequences


@dataclass(frozen=True, kw_only=True)
class MixedPair:
    """What the logprobs of one pair show: two kinds of sequences in the sample."""

    mixture: TemperatureMixture
    sampled: int  # sequences
    extent: Extent  # of the scaled sequences in the sample


@dataclass(frozen=True, kw_only=True)
class Validity:
    """What there is to say about the recorded logprobs themselves."""

    anomalies: tuple[AnomalyCount, ...]
    pairs: Mapping[str, tuple[PairSample | None, PairSample | None]]  # over the run, and early in it
    rounding: Mapping[str, Rounding]  # for columns that are coarser than float32
    extent: Extent  # of everything recorded
    observed_share: float  # of sequences with at least one observation
    missing: MissingLogprobs
    coverage: Coverage
    first: Mapping[str, PairSample] = field(default_factory=dict)  # by pair: over the first steps with enough tokens
    mixed_column: MixedColumn | None = None
    mixed_pairs: Mapping[str, MixedPair] = field(default_factory=dict)
    fills: Mapping[str, Fills] = field(default_factory=dict)  # by column: what it holds instead of logprobs

    @property
    def sequences(self) -> int:
        """How many sequences are recorded."""
        return self.extent.sequences

    @property
    def model_tokens(self) -> int:
        """How many model tokens they hold."""
        return self.extent.tokens


_RANK = re.compile(r"_rank(\d+)(?=[._])")


def file_names(tokens: Tokens, seq: pl.Series) -> pl.Series:
    """Return the file of each sequence, as `file`."""
    names = pl.Series("file", [file.name for file in tokens.scan.files], dtype=pl.String)
    return names.gather(_file_numbers(tokens, seq))


def number_files(tokens: Tokens, seq: pl.Series) -> tuple[pl.Series, list[str]]:
    """Return the number of each sequence's file, as `file`, and the names that these numbers index.

    Numbers, since a million sequences would otherwise need a million file names.
    """
    names = sorted({file.name for file in tokens.scan.files})
    number = {name: at for at, name in enumerate(names)}
    numbers = pl.Series("file", [number[file.name] for file in tokens.scan.files], dtype=pl.UInt32)
    return numbers.gather(_file_numbers(tokens, seq)), names


def with_ranks(tokens: Tokens, rows: pl.DataFrame) -> pl.DataFrame:
    """Add `rank`, as recorded or as in the file's name; null if neither has it."""
    if "rank" in tokens.scan.columns:
        return rows.join(tokens.scalars.select("seq", "rank"), on="seq", how="left", maintain_order="left")
    matches = [_RANK.search(file.name) for file in tokens.scan.files]
    numbers = pl.Series("rank", [int(match[1]) if match else None for match in matches], dtype=pl.Int32)
    return rows.with_columns(numbers.gather(_file_numbers(tokens, rows["seq"])))


def measure_extent(tokens: Tokens, rows: pl.DataFrame) -> Extent:
    """Say how much the sequences of `rows` (seq, step, n_model) are."""
    numbers, names = number_files(tokens, rows["seq"])
    first, last = rows.select(pl.col("step").min(), last=pl.col("step").max()).row(0)
    return Extent(
        tokens=int(rows["n_model"].cast(pl.Int64).sum()),
        sequences=rows.height,
        first_step=first,
        last_step=last,
        files=numbers.n_unique(),
        example=names[int(numbers.to_numpy().min())] if rows.height else None,
    )


def _file_numbers(tokens: Tokens, seq: pl.Series) -> pl.Series:
    starts = np.array([file.start for file in tokens.scan.files])
    return pl.Series((np.searchsorted(starts, seq.to_numpy(), side="right") - 1).astype(np.uint32))


DECIMALS: Final = 6  # of a temperature: smaller differences come from different writers, not different settings


def mixed_column(tokens: Tokens, rows: pl.DataFrame) -> MixedColumn | None:
    """Return the steps at which the recorded temperature differs between sequences; None if it never does."""
    if "temperature" not in tokens.scan.columns:
        return None
    recorded = tokens.scalars.select("seq", pl.col("temperature").round(DECIMALS))
    table = rows.join(recorded.filter(pl.col("temperature").is_finite()), on="seq", how="inner", maintain_order="left")
    if table["temperature"].n_unique() < 2:
        return None
    usual = table["temperature"].value_counts().sort("count", "temperature", descending=[True, False])["temperature"][0]
    mixed = table.filter(pl.col("temperature").n_unique().over("step") > 1)
    if mixed.is_empty():
        return None
    odd = mixed.filter(pl.col("temperature") != usual)
    return MixedColumn(
        temperatures=tuple(mixed["temperature"].unique().sort().to_list()),
        steps=mixed["step"].n_unique(),
        share=odd.height / mixed.height,
        extent=measure_extent(tokens, odd),
    )


def mixed_pairs(tokens: Tokens, rows: pl.DataFrame, fills: Mapping[str, Fills]) -> dict[str, MixedPair]:
    """Sort the sampled sequences of each pair into scaled and plain."""
    samples = tokens.tables.samples
    pairs = {}
    for pair in tokens.pairs:
        drift = pair.denominator == "ref_logp"
        sides = {"numerator": pair.numerator, "denominator": pair.denominator}
        kinds = temperature_mixture(samples, **sides, drift=drift, fills=fills)
        if kinds is not None:
            scaled = rows.filter(pl.col("seq").is_in(kinds.scaled_seqs))
            pairs[pair.name] = MixedPair(mixture=kinds, sampled=samples.height, extent=measure_extent(tokens, scaled))
    return pairs


REQUIRED_COLUMNS = ("policy_logp", "ref_logp", "model_mask")


def missing_pair(manifest: Manifest) -> tuple[str, tuple[str, ...]]:
    """Return the reason why no pair is recorded and the logprobs that would each complete one; "" without sequences."""
    columns = {name for file in manifest.in_place if file.rows for name in file.columns}
    columns |= {name for part in manifest.parts if part.rows for name in part.columns}
    recorded = columns & set(LOGPS)
    if not recorded:
        return "sequences are recorded without logprobs" if columns else "", REQUIRED_COLUMNS
    usual = [name for name in LOGPS if name not in {*recorded, "prox_logp"}]  # few trainers have a proximal policy
    partners = tuple(name for name in usual if available_pairs(recorded | {name}))
    alone = f"only {' and '.join(sorted(recorded))} is recorded, and a log-ratio takes two: "
    return f"{alone}{' or '.join(partners)} of the same tokens is missing", partners


FIRST_TOKENS = 2000  # sampled tokens: a policy has hardly moved over the few steps that hold this many
MIXED: Final = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no two steps leave the same of a number
FEWER: Final = 20.0  # times fewer placeholders than usual: no fault at that step, just a sure policy's zeros
EARLY_SHARE = 0.2  # of the recorded steps: before a policy has moved far, r of a sound pair is small


def gather_validity(tokens: Tokens) -> Validity:
    """Put together what there is to say about the recorded logprobs."""
    samples = tokens.tables.samples
    steps = samples["step"].drop_nulls().unique().sort()
    limits = [steps[int(EARLY_SHARE * (len(steps) - 1))], _first_enough(samples)] if len(steps) else [None, None]
    sampled = sampled_tokens(samples, LOGP_COLUMNS)
    fills = find_fills(sampled)
    rows = tokens.sound_rows
    facts = {
        pair.name: pair_samples(
            samples,
            numerator=pair.numerator,
            denominator=pair.denominator,
            fills=fills,
            until=[None, *limits],
        )
        for pair in tokens.pairs
    }
    return Validity(
        anomalies=_anomalies(tokens, sampled, fills),
        pairs={name: (whole, early) for name, (whole, early, _) in facts.items()},
        rounding={name: grid for name, values in sampled.values.items() if (grid := _rounding(values)) is not None},
        extent=measure_extent(tokens, rows),
        observed_share=rows.filter(pl.col("n_obs") > 0).height / max(1, rows.height),
        missing=_missing(tokens),
        coverage=_coverage(tokens, rows),
        first={name: first for name, (_, _, first) in facts.items() if first is not None},
        mixed_column=mixed_column(tokens, rows),
        mixed_pairs=mixed_pairs(tokens, rows, fills),
        fills=fills,
    )


def _first_enough(samples: pl.DataFrame) -> int:
    """Return the step by which the sampled sequences hold FIRST_TOKENS model tokens, or the last step."""
    counts = samples.group_by("step").agg(pl.col("model_mask").list.sum().sum().alias("n")).sort("step").drop_nulls()
    enough = counts.filter(pl.col("n").cum_sum() >= FIRST_TOKENS)["step"]
    return int(enough[0] if len(enough) else counts["step"][-1])


def _rounding(values: npt.NDArray[np.float32]) -> Rounding | None:
    grid = grid_of(values)
    if grid is None:
        return None
    usual = float(np.median(values[values < CERTAIN_ABOVE])) if (values < CERTAIN_ABOVE).any() else CERTAIN_ABOVE
    return Rounding(grid=grid, usual=usual, spacing=grid.spacing(usual))


def _anomalies(tokens: Tokens, sampled: SampledTokens, fills: Mapping[str, Fills]) -> tuple[AnomalyCount, ...]:
    table = tokens.tables.anomalies
    if table.is_empty():
        return ()
    held = tokens.sound_rows.group_by("step").agg(pl.col("n_model").cast(pl.Int64).sum().alias("of")).sort("step")
    counted = table.with_columns(file_names(tokens, table["seq"])).group_by("column", "kind")
    rows = counted.agg(
        pl.col("n").cast(pl.Int64).sum().alias("tokens"),
        pl.col("seq").n_unique().alias("sequences"),
        pl.col("step").min().alias("first_step"),
        pl.col("step").max().alias("last_step"),
        pl.col("file").n_unique().alias("files"),
        pl.col("file").sort().first().alias("example"),
    )
    counts = []
    for row in rows.sort("column", "kind").iter_rows(named=True):
        column, kind = LOGP_COLUMNS[row["column"]], Anomaly(row["kind"])
        values = fills[column].values if column in fills else ()
        shown = tuple(value for value in values if (value in SENTINELS) == (kind is Anomaly.PAD))
        finite = sampled.values[column][np.isfinite(sampled.values[column])]
        facts = {
            "column": column,
            "kind": kind.name.lower(),
            "span": _span_of(table.filter((pl.col("column") == row["column"]) & (pl.col("kind") == row["kind"])), held),
            "values": shown if kind in (Anomaly.PAD, Anomaly.FILL) else (),
            "highest": float(finite.max()) if len(finite) else math.nan,
        }
        counts.append(AnomalyCount(**row | facts))
    return tuple(counts)


def _span_of(anomalies: pl.DataFrame, held: pl.DataFrame) -> FaultSpan | None:
    """Return the steps with far more such values than elsewhere, which is where the fault holds."""
    counts = held.join(anomalies.group_by("step").agg(pl.col("n").cast(pl.Int64).sum()), on="step", how="left")
    hits, trials = (counts[name].fill_null(0).to_numpy().astype(np.float64) for name in ("n", "of"))
    usual = float(np.median(hits[hits > 0] / np.maximum(trials[hits > 0], 1.0))) if hits.any() else 0.0
    return fault_span(counts["step"].to_numpy(), weigh_counts(hits, trials, usual / FEWER, usual))


def _missing(tokens: Tokens) -> MissingLogprobs:
    """Compare, step by step, the tokens without a finite log-ratio with those that have one."""
    pair, tables = tokens.pairs[0], tokens.tables
    sides = [LOGP_COLUMNS.index(pair.numerator), LOGP_COLUMNS.index(pair.denominator)]
    count = pl.col("n").cast(pl.Int64).sum()
    finite = tables.cells_of(0).lazy().group_by("step").agg(count.alias("finite")).collect(engine="streaming")
    lost = tables.bad.filter(pl.col("pair") == 0).group_by("step").agg(pl.col("n_bad").cast(pl.Int64).sum())
    placeholders = tables.anomalies.filter(_leaves_pair(sides)).group_by("step").agg(count.alias("placeholders"))
    by_step = (
        lost.join(placeholders, on="step", how="left")
        .join(finite, on="step", how="full", coalesce=True)
        .with_columns(pl.col("n_bad", "placeholders", "finite").fill_null(0))
        .with_columns((pl.col("n_bad") - pl.col("placeholders")).clip(0).alias("missing"))
        .sort("step")
    )
    missing = by_step.filter(pl.col("missing") > 0)["step"]
    alive = by_step.filter(pl.col("finite") > 0)["step"]
    dead = by_step.filter((pl.col("finite") == 0) & (pl.col("missing") > 0))["step"]
    after = dead.filter(dead > alive[-1]) if len(alive) else dead
    extent = measure_extent(tokens, _sequences_losing_tokens(tokens, sides))
    missing_steps = {"first_step": missing.min(), "last_step": missing.max(), "dead_since": after.min()}
    counts = {"tokens": int(by_step["missing"].sum()), "finite_tokens": int(by_step["finite"].sum())}
    return MissingLogprobs(**vars(extent) | missing_steps | counts, pair=pair.name)


OF_EVERY_PAIR: Final = (Anomaly.ZERO, Anomaly.PAD, Anomaly.FILL)  # one column proves that the token was not sampled


def _leaves_pair(sides: list[int]) -> pl.Expr:
    """Tell placeholders that take a token out of the pair with these columns."""
    return pl.col("column").is_in(sides) | pl.col("kind").is_in([int(kind) for kind in OF_EVERY_PAIR])


def _sequences_losing_tokens(tokens: Tokens, sides: list[int]) -> pl.DataFrame:
    """Return the sequences with tokens that have no finite log-ratio and no placeholder either."""
    placeholders = tokens.tables.anomalies.filter(_leaves_pair(sides)).group_by("seq").agg(pl.col("n").sum())
    return (
        tokens.tables.losing.join(placeholders, on="seq", how="left")
        .filter(pl.col("n_bad") > pl.col("n").cast(pl.Int64).fill_null(0))
        .join(tokens.tables.rows, on="seq", how="inner")
    )


def _coverage(tokens: Tokens, rows: pl.DataFrame) -> Coverage:
    """Count repeated sequences, ranks that are missing at some steps, and gaps in the steps."""
    table = with_ranks(tokens, rows)
    again = table.clear()
    if "sample_id" in tokens.scan.columns:
        ids = tokens.scalars.select("seq", "sample_id").drop_nulls()
        alike = table.filter(_may_repeat(table, ids, sequences=tokens.scan.rows))
        again = alike.join(ids, on="seq", how="inner", maintain_order="left")
        again = again.filter(~pl.struct("step", "sample_id").is_first_distinct())
    ranked = table.filter(pl.col("rank").is_not_null())
    ranks, lacking, without = _missing_ranks(ranked)
    steps = ranked["step"].unique().sort().to_numpy()
    usual = table.group_by("step", "rank").agg(pl.len(), pl.col("n_model").cast(pl.Int64).sum())
    lacks = pl.col("step").is_in(without)
    whole = ranked.group_by("step").agg(pl.len())
    return Coverage(
        repeated=measure_extent(tokens, again),
        step_gaps=_step_gaps(table["step"].unique().sort().to_list()),
        ranks=ranks,
        missing_ranks=lacking,
        steps_missing_ranks=len(without),
        first_step_missing_rank=without[0] if without else -1,
        last_step_missing_rank=without[-1] if without else -1,
        usual_sequences=_median(usual["len"]),
        usual_tokens=_median(usual["n_model"]),
        without_rank=fault_span(steps, np.where(np.isin(steps, without), 1.0, -1.0)) if without else None,
        sequences_without_rank=_median(whole.filter(lacks)["len"]) / _median(whole.filter(~lacks)["len"])
        if without
        else math.nan,
    )


def _may_repeat(table: pl.DataFrame, ids: pl.DataFrame, *, sequences: int) -> pl.Series:
    """Flag the rows whose step and id may be another row's: a million texts in a join would take 200 MB."""
    of_id, known = np.zeros(sequences, np.uint64), np.zeros(sequences, np.bool_)
    of_id[ids["seq"].to_numpy()], known[ids["seq"].to_numpy()] = ids["sample_id"].hash().to_numpy(), True
    seq = table["seq"].to_numpy()
    mark = of_id[seq] + table["step"].fill_null(0).to_numpy().astype(np.uint64) * MIXED
    known = known[seq]
    ordered = np.sort(mark[known])
    twice = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    return pl.Series(known & np.isin(mark, twice), dtype=pl.Boolean)


def _median(counts: pl.Series) -> float:
    return float(np.median(counts.to_numpy())) if len(counts) else 0.0


def _missing_ranks(table: pl.DataFrame) -> tuple[int, tuple[int, ...], list[int]]:
    """Return how many ranks there are, which ranks some steps lack, and those steps."""
    every = set(table["rank"].unique().to_list())
    by_step = table.group_by("step").agg(pl.col("rank").unique()).sort("step")
    lacking: set[int] = set()
    steps = []
    for step, present in by_step.iter_rows():
        if every - set(present):
            lacking |= every - set(present)
            steps.append(step)
    return len(every), tuple(sorted(lacking)), steps


def _step_gaps(steps: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return gaps far longer than the usual distance between recorded steps."""
    if len(steps) < 10:
        return ()
    between = np.diff(np.asarray(steps))
    usual = float(np.quantile(between, 0.9))
    return tuple((int(steps[i]), int(steps[i + 1])) for i in np.flatnonzero(between > max(5 * usual, 5)).tolist())
