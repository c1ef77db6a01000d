"""Name what parsers left unnamed: by the user's `[metrics]`, then by words, values and neighbouring names.

A guess counts only if nothing else in the run is that metric: it never replaces a known name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import field, replace
from typing import Final

import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.metrics.aliases import canonical
from ptt.diagnostics.metrics.catalogue import ANY, known
from ptt.diagnostics.metrics.guessed_names import Reading, is_denied, is_evaluation, read_words, spelt_words
from ptt.diagnostics.parsers.io.metric_rows import UNNUMBERED
from ptt.diagnostics.store.manifest import WideColumn, WidePart

MIN_ROWS: Final = 2  # of a guessed metric: a single value is a summary, not a series
EVAL: Final = "eval/"  # prefix of canonical names of evaluations
TURNED: Final = -1.0  # factor of values that were logged with the opposite sign
PERCENT: Final = 0.01
ENTROPY: Final = "entropy"
LOSS_WORD: Final = "loss"  # in `entropy_loss`, which a minimiser logs as minus the entropy
PERCENT_WORDS: Final = frozenset({"percent", "percentage", "pct"})
SHARES_OF_TASKS: Final = frozenset({"task/success", "eval/accuracy", "sft/token_accuracy", "dpo/accuracy"})
"""Shares that are written in percent without a word for it."""
NO_EVALUATION_BESIDE: Final = frozenset({"val/ratio", "val/sequence_lengths", "val/num_eos_tokens"})
"""TRL's PPO and open-instruct log figures of training below `val/`."""
VALIDATION_SPACE: Final = "val/"
LOGGED: Final = {
    "source": pl.String, "name_raw": pl.String, "name": pl.String, "ranked": pl.Boolean, "rows": pl.Int64,
    "least": pl.Float64, "most": pl.Float64, "whole": pl.Boolean,
}  # fmt: skip
Key = tuple[str, str]  # source, name_raw


@dataclass(frozen=True, kw_only=True)
class Guess:
    """The reading of a name, and the reason for it."""

    name: str
    reason: str  # completes "read as ...: "
    factor: float = 1.0  # for its values


@dataclass(frozen=True, kw_only=True)
class Renames:
    """The canonical names that rows get instead of what their parser gave them; None takes a name away."""

    names: Mapping[Key, str | None] = field(default_factory=dict)
    guessed: Mapping[str, Guess] = field(default_factory=dict)  # by raw name, for names that no user set
    evaluated: frozenset[str] = frozenset()  # raw names of evaluation metrics without a canonical name

    @property
    def idle(self) -> bool:
        """Whether nothing is renamed."""
        return not (self.names or self.evaluated)

    def rows(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return rows of metrics with their new names; renamed ones belong to training unless the name says `eval/`."""
        if self.idle:
            return frame
        schema = {"source": pl.String, "name_raw": pl.String, "_name": pl.String}
        table = pl.DataFrame([(*key, name) for key, name in self.names.items()], schema=schema, orient="row")
        factors = {raw: guess.factor for raw, guess in self.guessed.items() if guess.factor != 1.0}
        new, raw = pl.col("_name"), pl.col("name_raw")
        split = pl.when(new.str.starts_with(EVAL)).then(pl.lit("eval")).otherwise(pl.lit("train"))
        factor = raw.replace_strict(factors, default=1.0, return_dtype=pl.Float64) if factors else pl.lit(1.0)
        return (
            frame.with_row_index("_row")
            .join(table.with_columns(_found=pl.lit(value=True)), on=["source", "name_raw"], how="left")
            .sort("_row")
            .with_columns(
                name=pl.when(pl.col("_found")).then(new).otherwise(pl.col("name")),
                split=pl.when(new.is_not_null())
                .then(split)
                .when(raw.is_in(sorted(self.evaluated)))
                .then(pl.lit("eval"))
                .otherwise(pl.col("split")),
                value=pl.col("value") * factor,
            )
            .select(frame.columns)
        )

    def wide(self, part: WidePart) -> tuple[WidePart, dict[str, WideColumn]]:
        """Return a wide part with its columns' new names, and, by column, those of evaluations, which leave it."""
        renamed = [
            replace(column, name=self.names.get((part.source, column.raw), column.name)) for column in part.columns
        ]
        leaving = {
            column.column: column
            for column in renamed
            if (column.name or "").startswith(EVAL) or column.raw in self.evaluated
        }
        stays = tuple(column for column in renamed if column.column not in leaving)
        return replace(part, columns=stays), leaving

    def factors(self, part: WidePart) -> dict[str, float]:
        """Return what columns of a wide part are to be multiplied by, where that is not 1."""
        return {
            column.column: guess.factor
            for column in part.columns
            if (guess := self.guessed.get(column.raw)) is not None and guess.factor != 1.0
        }

    def notes(self) -> dict[str, str]:
        """Return a note on each source whose names were guessed."""
        of_source: dict[str, list[str]] = defaultdict(list)
        for source, raw in self.names:
            if (guess := self.guessed.get(raw)) is not None:
                why = f" ({guess.reason})" if guess.reason else ""
                of_source[source].append(f"`{raw.removeprefix(UNNUMBERED)}` as {guess.name}{why}")
        return {
            source: f"Recognised by words of the name: {', '.join(sorted(read))}; [metrics] in ptt.toml overrides this."
            for source, read in of_source.items()
        }


def names_in(frame: pl.DataFrame) -> pl.DataFrame:
    """Return which names each source logged, with the number of their rows and between which values they lie."""
    value = pl.col("value")
    grouped = (
        frame.lazy()
        .group_by("source", "name_raw", "name")
        .agg(
            ranked=pl.col("rank").is_not_null().any(),
            rows=pl.len().cast(pl.Int64),
            least=value.min(),
            most=value.max(),
            whole=(value == value.round()).all(),
        )
    )
    return grouped.select(list(LOGGED)).collect(engine="streaming")


def is_looked_at(raw: str, name: str | None) -> bool:
    """Return whether the values of a metric say more of its name than the name alone."""
    bare = raw.removeprefix(UNNUMBERED)
    return name == ENTROPY or (name is None and bool(read_words(bare)))


def rename(logged: pl.DataFrame, mapping: Mapping[str, str]) -> Renames:
    """Decide what the names in a run mean; `mapping`: raw to canonical, or to "" for none."""
    names: dict[Key, str | None] = {}
    named = logged.sort("source", "name_raw", "name", nulls_last=True).unique(
        ["source", "name_raw"], keep="first", maintain_order=True
    )
    chosen: set[Key] = set()  # by the user: a source and the metric that it has
    for source, raw in named.select("source", "name_raw").iter_rows():
        target = mapping.get(raw, mapping.get(raw.removeprefix(UNNUMBERED)))
        if target is not None:
            names[source, raw] = target or None
            chosen.add((source, target))
    for source, raw, name in named.select("source", "name_raw", "name").iter_rows():
        if (source, name) in chosen and (source, raw) not in names:
            names[source, raw] = None
    decided = frozenset(raw for _, raw in names)
    guessed = _guessed(named, logged, names) | _turned(logged, decided)
    for source, raw in named.select("source", "name_raw").iter_rows():
        if raw in guessed:
            names[source, raw] = guessed[raw].name
    return Renames(names=names, guessed=guessed, evaluated=_evaluated(logged, {*decided, *guessed}))


@dataclass(frozen=True, kw_only=True)
class _Candidate:
    """A name that may mean a metric, with what its values suggest."""

    raws: tuple[str, ...]
    bare: str
    rows: int
    reading: Reading
    factor: float

    @property
    def rank(self) -> tuple[bool, bool, bool, int, int, str]:
        """How clear a name is: without a data set first, then of the fewest words; last those that need other names."""
        reading = self.reading
        return (
            bool(reading.beside),
            reading.alone,
            bool(reading.tag),
            len(spelt_words(self.bare)),
            -self.rows,
            self.bare,
        )


def _guessed(named: pl.DataFrame, logged: pl.DataFrame, names: Mapping[Key, str | None]) -> dict[str, Guess]:
    """Return the raw names whose words mean a metric that nothing else in the run is; the clearest of several."""
    held: set[str | None] = {
        names.get((source, raw), name) for source, raw, name in named.select("source", "name_raw", "name").rows()
    }
    spelt = {raw.removeprefix(UNNUMBERED) for raw in named["name_raw"]}
    found: dict[str, Guess] = {}
    candidates = sorted(_candidates(logged, {raw for _, raw in names}), key=lambda candidate: candidate.rank)
    for candidate in candidates:
        reading = candidate.reading
        logs = {name for name in held if name} | spelt
        if reading.name in held or reading.unless & logs or is_denied(reading.name, logs):
            continue
        if (reading.beside and not reading.beside & logs) or not found.keys().isdisjoint(candidate.raws):
            continue
        held.add(reading.name)
        found |= dict.fromkeys(
            candidate.raws, Guess(name=reading.name, reason=_reason(candidate), factor=candidate.factor)
        )
    return found


def _candidates(logged: pl.DataFrame, decided: Collection[str]) -> list[_Candidate]:
    by_bare: dict[tuple[str, str], list[_Candidate]] = defaultdict(list)
    for raw, rows, least, most, whole in _nameless(logged).iter_rows():
        bare = raw.removeprefix(UNNUMBERED)
        for reading in () if raw in decided or canonical(bare) else read_words(bare):
            if (factor := _factor(reading, bare, least, most, whole=whole)) is not None:
                one = _Candidate(raws=(raw,), bare=bare, rows=rows, reading=reading, factor=factor)
                by_bare[bare, reading.name].append(one)
    return [
        replace(max(alike, key=lambda one: one.rows), raws=tuple(raw for one in alike for raw in one.raws))
        for alike in by_bare.values()
    ]


def _factor(
    reading: Reading, bare: str, least: float | None, most: float | None, *, whole: bool | None
) -> float | None:
    """Return by what values are multiplied to be the metric; None where they contradict the reading."""
    low, high = known(reading.name).range or ANY
    if least is None or most is None or (low <= least and most <= high):
        return 1.0
    words = frozenset(spelt_words(bare))
    if reading.name == ENTROPY and LOSS_WORD in words and most <= 0:
        return TURNED
    if reading.name == ENTROPY and LOSS_WORD not in words and not reading.alone and most >= 0:
        return 1.0  # a continuous policy's is below 0, and one estimate of it may be
    percent = bool(words & PERCENT_WORDS) or (reading.name in SHARES_OF_TASKS and not whole)
    return PERCENT if percent and low <= least * PERCENT and most * PERCENT <= high == 1.0 else None


def _reason(candidate: _Candidate) -> str:
    reading = candidate.reading
    parts = []
    if reading.tag:
        parts.append(f"of {reading.tag}")
    if reading.alone:
        parts.append(f"nothing else is named so, and its name holds `{reading.by}`")
    parts += [TURNED_WORDS] if candidate.factor == TURNED else []
    parts += [PERCENT_SAID] if candidate.factor == PERCENT else []
    return "; ".join(parts)


TURNED_WORDS: Final = "all values lie below 0: minus the entropy, its sign turned"
PERCENT_SAID: Final = "in percent, divided by 100"


def _turned(logged: pl.DataFrame, decided: Collection[str]) -> dict[str, Guess]:
    """Return the aliases of the entropy that hold minus the entropy: a loss of it, below 0 throughout."""
    total = logged.filter(pl.col("name") == ENTROPY).group_by("name_raw").agg(pl.col("most").max())
    guess = Guess(name=ENTROPY, reason=TURNED_WORDS, factor=TURNED)
    return {
        raw: guess
        for raw, most in total.sort("name_raw").iter_rows()
        if most is not None and most < 0 and LOSS_WORD in spelt_words(raw) and raw not in decided
    }


def _evaluated(logged: pl.DataFrame, decided: Collection[str]) -> frozenset[str]:
    """Return the names of evaluation metrics, on whatever data set, that have no canonical name."""
    raws = set(logged.filter(pl.col("name").is_null())["name_raw"]) - set(decided)
    in_training = not NO_EVALUATION_BESIDE.isdisjoint(raw.removeprefix(UNNUMBERED) for raw in logged["name_raw"])
    return frozenset(
        raw
        for raw in raws
        for bare in [raw.removeprefix(UNNUMBERED)]
        if is_evaluation(bare) and not (in_training and bare.startswith(VALIDATION_SPACE))
    )


def _nameless(logged: pl.DataFrame) -> pl.DataFrame:
    """Return name_raw, rows, least, most and whole of the series that no source has a name for, but those of ranks."""
    total = logged.group_by("name_raw").agg(
        pl.col("rows").sum(),
        pl.col("least").min(),
        pl.col("most").max(),
        pl.col("whole").all(),
        nameless=pl.col("name").is_null().all() & ~pl.col("ranked").any(),
    )
    nameless = total.filter(pl.col("nameless") & (pl.col("rows") >= MIN_ROWS))
    return nameless.sort("name_raw").drop("nameless")
