"""Join several sources of one metric: find those that are one series, and where they repeat or contradict each other.

A trainer's state, its tracker and its console hold the same numbers, rounded differently and under names that a
reporter changed; after a kill, each ends at another step. At each step the best source counts, and others fill its
gaps."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.metrics.aliases import bare_name
from ptt.diagnostics.parsers.io.metric_rows import UNNUMBERED
from ptt.diagnostics.schema import Flag
from ptt.diagnostics.store.wide_metrics import WideMetrics

FIGURES_ERROR: Final = 5.5e-4  # relative error of a value printed with four significant digits
DECIMALS: Final = (2, 3, 4, 6)  # that writers round to
FLOAT32_ERROR: Final = 1e-6  # of a value: TensorBoard keeps single precision
MIN_SHARED: Final = 3  # steps at which two spellings must agree to be one metric
MIN_AGREEING: Final = 0.95  # of the steps that two spellings share; a resumed run logs some twice
MAX_NAMED: Final = 3  # metrics and files that a note names
RANK_PATH: Final = r"(?i)(?:^|[^a-z])rank[_=-]?\d"  # files of different ranks are not copies of each other
NUMBERS: Final = re.compile(r"(\d+)")
KIND: Final = re.compile(r"[^\d/]*")
NULL_FIRST: Final = -(2**63)  # sorts before every step

Spellings = Mapping[str, Sequence[str]]
"""For each name what its sources call it, that of the best source first."""


def only_rows(rows: pl.DataFrame, which: pl.Expr, columns: Sequence[str] = ()) -> pl.DataFrame:
    """Return some rows, by default with all columns; no copy where that is all of them: there may be millions."""
    chosen = rows.select(which).to_series()
    wanted = rows.select(columns) if columns else rows
    return wanted if chosen.all() and not chosen.null_count() else wanted.filter(chosen)


def best_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Return one row a name and step: a value before a null, then the best source's, then the later one."""
    names, sources = place_numbers(rows["name"]), place_numbers(rows["source"], by=_by_number)
    steps = rows["step"].fill_null(NULL_FIRST).to_numpy()
    absent = (rows["flag"] == Flag.NULL_IN_SOURCE).fill_null(value=False).to_numpy()  # beside a value: not logged
    later, seqs = ~sources.astype(np.int64), ~rows["seq"].fill_null(~NULL_FIRST).to_numpy()
    priorities = rows["priority"].fill_null(0).to_numpy()
    order = np.lexsort((seqs, later, priorities, absent, steps, names))  # a tenth of the memory of sorting a frame
    names, steps = names[order], steps[order]
    first = np.ones(len(order), bool)
    first[1:] = (names[1:] != names[:-1]) | (steps[1:] != steps[:-1])
    return rows[order[first]]


def place_numbers(column: pl.Series, *, by: Callable[[str], Any] = str) -> npt.NDArray[np.uint32]:
    """Return the place of each text among the distinct ones in order, (n,): rows are many, and their texts long."""
    filled = column.fill_null("")
    ordered = pl.Series(sorted(filled.unique(), key=by), dtype=pl.String)
    places = pl.Series(range(len(ordered)), dtype=pl.UInt32)
    return filled.replace_strict(ordered, places).to_numpy()


def _by_number(path: str) -> list[tuple[int, int, str]]:
    parts = NUMBERS.split(path)
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts]


def best_spellings(rows: pl.DataFrame) -> dict[str, str]:
    """Return the best source's spelling of each name in `rows`; if it has several, the one with most rows."""
    counts = _counts(rows).unique("name", keep="first", maintain_order=True)
    return dict(counts.select("name", "name_raw").iter_rows())


def _counts(rows: pl.DataFrame, wide: WideMetrics | None = None) -> pl.DataFrame:
    """Return name, name_raw, priority and len, the best spelling of a name first."""
    grouped = rows.lazy().group_by("name", "name_raw", "priority").agg(pl.len().cast(pl.Int64))
    counts = grouped.collect(engine="streaming")  # otherwise each row costs a hundred bytes
    counts = counts if wide is None else pl.concat([counts, wide.spellings()])
    return (
        counts.group_by("name", "name_raw")
        .agg(pl.col("priority").min(), pl.col("len").sum())
        .sort("name", "priority", "len", "name_raw", descending=[False, False, True, False])
    )


def group_spellings(rows: pl.DataFrame, wide: WideMetrics | None = None) -> dict[str, list[str]]:
    """Group spellings without a canonical name that differ only by a reporter's prefix.

    The key of a group is the spelling of its best source.
    """
    counts = _counts(rows.with_columns(name=pl.lit(None, pl.String)), wide)
    groups: dict[str, list[str]] = {}
    for raw in counts.filter(pl.col("name").is_null())["name_raw"]:
        groups.setdefault(bare_name(raw), []).append(raw)
    return {group[0]: group for group in groups.values()}


def named_alike(rows: pl.DataFrame, spellings: Spellings) -> pl.DataFrame:
    """Return the rows with `name` replaced by the name of their spelling's group."""
    names = {raw: name for name, raws in spellings.items() for raw in raws}
    return rows.with_columns(name=pl.col("name_raw").replace_strict(names, return_dtype=pl.String))


def join_spellings(rows: pl.DataFrame, wide: WideMetrics | None = None) -> dict[str, list[str]]:
    """Return the spellings of each canonical name that are one metric, the best source's first.

    Those differ only by a reporter's prefix, or agree wherever both are logged; of any others only the best counts.
    Rows numbered because they lack a step never join rows with one.
    """
    counts = _counts(rows, wide).drop_nulls("name")
    spelt = {name: part["name_raw"].to_list() for (name,), part in counts.group_by("name", maintain_order=True)}
    doubtful = {
        name: [raws[0], *others]
        for name, raws in spelt.items()
        if (others := [raw for raw in raws[1:] if bare_name(raw) != bare_name(raws[0]) and _may_join(raw, raws[0])])
    }
    agreeing = _agreeing(rows, wide, doubtful) if doubtful else set()
    return {
        name: [raw for raw in raws if bare_name(raw) == bare_name(raws[0]) or (name, raw) in agreeing]
        for name, raws in spelt.items()
    }


def _may_join(first: str, second: str) -> bool:
    return first.startswith(UNNUMBERED) == second.startswith(UNNUMBERED)


def _agreeing(rows: pl.DataFrame, wide: WideMetrics | None, spellings: Spellings) -> set[tuple[str, str]]:
    """Return the names with those of their spellings that agree with the first one where both are logged."""
    firsts = pl.DataFrame([(name, raws[0]) for name, raws in spellings.items()], ["name", "name_raw"], orient="row")
    every = pl.DataFrame(
        [(name, raw) for name, raws in spellings.items() for raw in raws], ["name", "name_raw"], orient="row"
    )
    key = ["name", "name_raw", "step", "value", "flag", "priority", "source", "seq"]
    columns = set() if wide is None else set(wide.spellings()["name_raw"])
    frames = [rows.join(every, on=["name", "name_raw"], how="semi").select(key)]
    frames += [
        wide.column(raw).frame().with_columns(pl.lit(name).alias("name"), pl.lit(raw).alias("name_raw")).select(key)
        for name, raw in every.iter_rows()
        if wide is not None and raw in columns
    ]
    found = with_rounding(pl.concat(frames, how="vertical_relaxed"), ["name", "name_raw"])
    single = found.sort("priority", "seq", descending=[False, True]).unique(
        ["name", "name_raw", "step"], keep="first", maintain_order=True
    )
    first = single.join(firsts, on=["name", "name_raw"], how="semi")
    shared = single.join(first, on=["name", "step"], suffix="_first").filter(pl.col("name_raw") != "name_raw_first")
    agreed = shared.group_by("name", "name_raw").agg(pl.len(), is_same("_first").mean().alias("share"))
    agreed = agreed.filter((pl.col("len") >= MIN_SHARED) & (pl.col("share") >= MIN_AGREEING))
    return set(agreed.select("name", "name_raw").iter_rows())


def with_rounding(rows: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """Add `error`: how far a value of each series of `key` may lie off, by the decimals that all of them have."""
    value = pl.col("value").filter(pl.col("value").is_finite())
    off = pl.lit(0.0)
    for decimals in reversed(DECIMALS):
        rounded = ((value - value.round(decimals)).abs() <= FLOAT32_ERROR * value.abs()).all()
        off = pl.when(rounded).then(0.5 * 10.0**-decimals).otherwise(off)
    errors = rows.group_by(key).agg(off.alias("error"))
    return rows.join(errors, on=list(key), how="left", nulls_equal=True, maintain_order="left")


def is_same(suffix: str) -> pl.Expr:
    """Return whether a value and the one under `suffix` are equal up to their writers' rounding."""
    value, other = pl.col("value"), pl.col(f"value{suffix}")
    scale = pl.max_horizontal(value.abs(), other.abs())
    error = pl.max_horizontal("error", f"error{suffix}", FIGURES_ERROR * scale) * (1 + FLOAT32_ERROR)
    both = value.is_finite().fill_null(value=False) & other.is_finite().fill_null(value=False)
    return pl.when(both).then((value - other).abs() <= error).otherwise(pl.col("flag") == pl.col(f"flag{suffix}"))


def ends_by_spelling(rows: pl.DataFrame, wide: WideMetrics) -> dict[str, int]:
    """Return the last step at which a spelling's kinds of sources logged anything, later files of resumed runs too.

    A kind is the file name up to its first number: all checkpoint states of a run, or all its event files.
    """
    spans = rows.lazy().group_by("source", "priority").agg(pl.col("step").max()).collect(engine="streaming")
    ends: dict[tuple[str, int], int] = {}
    for source, priority, last in [*spans.rows(), *wide.ends()]:
        kind = _kind(source, priority)
        ends[kind] = max(last, ends.get(kind, last))
    pairs = rows.lazy().select("name_raw", "source", "priority").unique().collect(engine="streaming").rows()
    pairs += [(column.raw, part.source, part.priority) for part in wide.parts for column in part.columns]
    by_spelling: dict[str, int] = {}
    for raw, source, priority in pairs:
        end = ends[_kind(source, priority)]
        by_spelling[raw] = max(end, by_spelling.get(raw, end))
    return by_spelling


def _kind(source: str | None, priority: int) -> tuple[str, int]:
    match = KIND.match((source or "").rpartition("/")[2])
    return (match.group(0) if match else "", priority)


def notes_on_copies(metrics: pl.DataFrame, wide: WideMetrics) -> dict[str, list[str]]:
    """Return by source what of it other sources hold as well, and where they differ; a better one counts there."""
    pairs = [*_overlaps(metrics, wide)]
    if not pairs:
        return {}
    table = pl.concat(pairs).sort("source", "other")
    notes: dict[str, list[str]] = {}
    for (source,), part in table.group_by("source", maintain_order=True):
        told = [*_notes(part)]
        rest = len(told) - MAX_NAMED
        notes[str(source)] = told[:MAX_NAMED] + ([f"The same is true of {rest} more."] if rest > 0 else [])
    return notes


def _notes(pairs: pl.DataFrame) -> Iterator[str]:
    """Yield a sentence a source that one source repeats or contradicts; contradictions first."""
    per_file = pairs.group_by("other", maintain_order=True).agg(
        pl.col("copies", "conflicts").sum(),
        pl.col("key").filter(pl.col("conflicts") > 0).alias("names"),
        pl.col("copies").filter(pl.col("copies") > 0).len().alias("metrics"),
        pl.col("first").min(),
        pl.col("last").max(),
    )
    for row in per_file.filter(pl.col("conflicts") > 0).iter_rows(named=True):
        names = sorted(row["names"])
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        values = "1 value" if row["conflicts"] == 1 else f"{row['conflicts']} values"
        at = f"at step {row['first']}" if row["first"] == row["last"] else f"from step {row['first']} to {row['last']}"
        differ = "differs" if row["conflicts"] == 1 else "differ"
        yield f"{values} of {', '.join(names[:MAX_NAMED])}{more} {at} {differ} from {row['other']}, which counts."
    for row in per_file.filter(pl.col("copies") > 0).iter_rows(named=True):
        metrics = "1 metric" if row["metrics"] == 1 else f"{row['metrics']} metrics"
        yield f"{row['copies']} of its values, of {metrics}, repeat {row['other']}."


BEST: Final = ("later", "value", "flag", "error")
PAIR_KEY: Final = ["split", "key", "step", "value", "flag", "priority", "source", "seq"]


def _overlaps(metrics: pl.DataFrame, wide: WideMetrics) -> Iterator[pl.DataFrame]:
    """Yield source, other, key, copies, conflicts, first and last, by metric; other is the source that counts."""
    stepped = pl.col("step").is_not_null() & pl.col("rank").is_null()
    rows = only_rows(metrics, stepped & ~pl.col("source").str.contains(RANK_PATH))
    wide = wide.only(lambda source: re.search(RANK_PATH, source) is None)
    if len({*rows["source"].unique(), *(part.source for part in wide.parts)}) < 2:  # nothing to compare
        return
    keys = _keys(rows, wide)
    of_wide: dict[str, list[str]] = {}
    for raw in wide.spellings()["name_raw"].unique(maintain_order=True):
        if ("train", raw) in keys:
            of_wide.setdefault(keys["train", raw], []).append(raw)
    spelt = pl.DataFrame(
        [(split, raw, key) for (split, raw), key in keys.items()], ["split", "name_raw", "key"], orient="row"
    ).cast(pl.String)
    spelt = _of_several(rows, spelt, also=of_wide)
    rows = rows.lazy().join(spelt.lazy(), on=["split", "name_raw"]).select(PAIR_KEY).collect()
    lone = (pl.col("split") == "train") & pl.col("key").is_in(sorted(of_wide))
    yield from _pairs(rows.filter(~lone) if of_wide else rows)
    grouped = rows.filter(lone).group_by("key").agg(pl.col("source").unique())
    logged = dict(zip(grouped["key"], grouped["source"].to_list(), strict=True))
    for key, raws in sorted(of_wide.items()):
        sources = {*logged.get(key, ()), *(source for raw in raws for source in wide.sources_of(raw))}
        if len(sources) > 1:
            beside = rows.filter((pl.col("split") == "train") & (pl.col("key") == key))
            frames = [
                wide.column(raw).frame().with_columns(pl.lit("train").alias("split"), pl.lit(key).alias("key"))
                for raw in raws
            ]
            yield from _pairs(
                pl.concat([beside, *(frame.select(PAIR_KEY) for frame in frames)], how="vertical_relaxed")
            )


def _of_several(rows: pl.DataFrame, spelt: pl.DataFrame, *, also: Collection[str]) -> pl.DataFrame:
    """Return the spellings of metrics that several sources hold, and of those to be looked at also."""
    logged = rows.lazy().select("split", "name_raw", "source").unique().collect(engine="streaming")
    sources = logged.join(spelt, on=["split", "name_raw"]).group_by("split", "key").agg(pl.col("source").n_unique())
    wanted = sources.filter((pl.col("source") > 1) | pl.col("key").is_in(sorted(also)))
    return spelt.join(wanted, on=["split", "key"], how="semi")


def _keys(rows: pl.DataFrame, wide: WideMetrics) -> dict[tuple[str, str], str]:
    """Return the name that each split and spelling is compared under; spellings that do not join are left out."""
    keys: dict[tuple[str, str], str] = {}
    for split in ("train", "eval"):
        of_split, beside = only_rows(rows, pl.col("split") == split), wide if split == "train" else None
        canonical = join_spellings(only_rows(of_split, pl.col("name").is_not_null()), beside)
        plain = group_spellings(only_rows(of_split, pl.col("name").is_null()), beside)
        keys |= {(split, raw): name for names in (canonical, plain) for name, raws in names.items() for raw in raws}
    return keys


def _pairs(rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Compare what several sources hold of one metric at one step with the best source's."""
    of_series = rows.lazy().group_by("split", "key").agg(pl.col("source").n_unique()).collect(engine="streaming")
    several = of_series.filter(pl.col("source") > 1).select("split", "key").with_row_index("series")
    sources = sorted(rows["source"].drop_nulls().unique(), key=_by_number)
    types = {"source": pl.String, "later": pl.Int64}
    files = pl.DataFrame({"source": sources, "later": range(len(sources))}, schema=types)
    # numbers instead of names: there are many rows, and names are long
    logged = rows.lazy().filter(pl.col("flag") != Flag.NULL_IN_SOURCE)
    numbered = logged.join(several.lazy(), on=["split", "key"]).join(files.lazy(), on="source")
    ordered = numbered.select("series", "step", "later", "priority", "seq", "value", "flag", error=pl.lit(0.0)).sort(
        "series", "step", "priority", "later", "seq", descending=[False, False, False, True, True]
    )
    single = ordered.unique(["series", "step", "later"], keep="first", maintain_order=True).collect()
    if single.is_empty():
        return
    compared = _compared(single)
    doubtful = compared.filter(~pl.col("same"))["series"].unique()
    if len(doubtful):  # the decimals of a whole series are looked at where they may explain a difference
        of_series = single.filter(pl.col("series").is_in(doubtful.implode())).drop("error")
        again = _compared(with_rounding(of_series, ["series", "later"]))
        compared = pl.concat([compared.filter(~pl.col("series").is_in(doubtful.implode())), again])
    differs = ~pl.col("same")
    counts = compared.group_by("series", "later", "later_best").agg(
        pl.col("same").sum().cast(pl.Int64).alias("copies"),
        differs.sum().cast(pl.Int64).alias("conflicts"),
        pl.col("step").filter(differs).min().alias("first"),
        pl.col("step").filter(differs).max().alias("last"),
    )
    named = counts.join(several, on="series").join(files, on="later")
    named = named.join(files.rename({"source": "other", "later": "later_best"}), on="later_best")
    yield named.select("source", "other", "key", "copies", "conflicts", "first", "last").sort("source", "other", "key")


def _compared(single: pl.DataFrame) -> pl.DataFrame:
    """Compare each source's value with that of the best source at its step: `same` says whether they agree."""
    first = [pl.col(name).first().over("series", "step").alias(f"{name}_best") for name in BEST]
    beside = single.with_columns(first).filter(pl.col("later") != pl.col("later_best"))
    return beside.select("series", "later", "later_best", "step", same=is_same("_best"))
