"""Steps that a run recorded twice because it was killed and resumed: in its metrics, and in its sequences."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.evidence.joined_sources import only_rows, place_numbers
from ptt.diagnostics.evidence.validity import Extent, measure_extent, number_files, with_ranks
from ptt.diagnostics.statistics.rank_scores import HOUR

MIN_STEPS: Final = 2  # a resumed run often logs the step it was saved at once more
COLUMNS: Final = ("source", "priority", "rank", "name_raw", "step", "wall_time", "seq")
DOUBLE_FACTOR: Final = 1.75  # times the usual sequences of a step: the same batch twice, minus what was cut off
SIDE_BY_SIDE: Final = 0.9  # of the steps of either file: files that share this many, without times, log the same steps


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Steps that two segments of a run both recorded, the second after the first: a run that was resumed."""

    first_step: int
    last_step: int
    steps: int
    sources: tuple[str, ...]  # one file that goes back, or the two that overlap


@dataclass(frozen=True, kw_only=True)
class Segments:
    """What a resumed run recorded twice; None where it did not."""

    metrics: tuple[Overlap, ...]
    sequences: Overlap | None
    extent: Extent | None  # of the sequences at these steps, both segments together


def gather_segments(metrics: pl.DataFrame, tokens: Tokens | None, local: Collection[str] = ()) -> Segments | None:
    """Look for steps recorded twice; None where no step is recorded at all.

    `local`: files whose times name no offset from UTC.
    """
    trained = (pl.col("split") == "train") & pl.col("step").is_not_null()
    rows = only_rows(metrics, trained, COLUMNS)
    if rows.is_empty() and tokens is None:
        return None
    overlap, extent = _doubled_sequences(tokens) if tokens is not None else (None, None)
    logged = () if rows.is_empty() else (*_repeated_within_source(rows), *_overlapping_sources(rows, local))
    return Segments(metrics=logged, sequences=overlap, extent=extent)


def _repeated_within_source(rows: pl.DataFrame) -> tuple[Overlap, ...]:
    """Return the sources in which a metric is logged again at steps it had already passed."""
    sources = rows["source"].unique().sort()
    ordered, keys_per_source = _ordered_steps(rows)
    key, step = ordered["key"].to_numpy(), ordered["step"].to_numpy()
    back = (step[1:] < step[:-1]) & (key[1:] == key[:-1])
    if not back.any():
        return ()
    times = pl.DataFrame({"key": key[1:][back]}).group_by("key").len("times")
    source = (pl.col("key") // keys_per_source).alias("source")
    again = (
        ordered.join(times, on="key", how="semi", maintain_order="left")
        .filter(_is_repeated(["key"]) & (pl.len().over("key", "step") > 1))
        .group_by(source)
        .agg(pl.col("step").unique().sort())
        .join(times.group_by(source).agg(pl.col("times").max()), on="source")
        .sort("source")
    )
    return tuple(
        _overlap(steps, (sources[place],))
        for place, steps, most_times in again.iter_rows()
        if len(steps) >= MIN_STEPS * most_times  # writers that run side by side go back at every step
    )


def _ordered_steps(rows: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Return `key` and `step` by key in the order of logging; a key is a number for each source, name and rank.

    Also returns how many keys a source has: key // that is the place of the source among all in order.
    """
    names, ranks = place_numbers(rows["name_raw"]), rows["rank"].rank("dense").fill_null(0).to_numpy()
    name_count, rank_count = int(names.max()) + 1, int(ranks.max()) + 1
    keys = (place_numbers(rows["source"]).astype(np.int64) * name_count + names) * rank_count + ranks
    order = np.lexsort((rows["seq"].to_numpy(), keys))  # frames of texts take several times the memory to sort
    return pl.DataFrame({"key": keys[order], "step": rows["step"].to_numpy()[order]}), name_count * rank_count


def _is_repeated(key: list[str]) -> pl.Expr:
    """Flag for each row whether it lies at steps that rows of its key had passed before their step last went back."""
    step = pl.col("step")
    passed = pl.when(step.diff() < 0).then(step.cum_max().shift(1)).forward_fill()
    return (step <= passed).fill_null(value=False).over(key)


def _overlapping_sources(rows: pl.DataFrame, local: Collection[str]) -> tuple[Overlap, ...]:
    """Return the pairs of similar sources where the later one begins again within the earlier one's steps.

    Later: all its times are after the other's, or, without times, it begins and ends at higher steps. This leaves out
    ranks that log in parallel, checkpoints with the same history, and two logs of one run that count from 0 and from 1.
    """
    spans = (
        rows.lazy()
        .group_by("source", "priority", "rank")
        .agg(
            pl.col("step").min().alias("first"),
            pl.col("step").max().alias("last"),
            pl.col("wall_time").min().alias("began"),
            pl.col("wall_time").max().alias("ended"),
        )
        .sort("priority", "rank", "began", "first", "source", nulls_last=True)
        .collect(engine="streaming")
    )
    overlaps = []
    for _, like in spans.group_by("priority", "rank", maintain_order=True):
        for earlier, later_span in pairwise(like.rows(named=True)):
            timed = earlier["ended"] is not None and later_span["began"] is not None
            clocks = {span["source"] in local for span in (earlier, later_span)}
            if timed and True in clocks:  # another zone, or a clock that was set back as summer time ended
                timed = False not in clocks and not 0 < earlier["ended"] - later_span["began"] <= HOUR
            later = (
                later_span["began"] >= earlier["ended"]
                if timed
                else earlier["first"] < later_span["first"] <= earlier["last"] < later_span["last"]
            )
            if later and later_span["first"] <= earlier["last"]:
                steps = _shared_steps(rows, earlier["source"], later_span["source"])
                beside = not timed and len(steps) >= SIDE_BY_SIDE * _most_steps(rows, earlier, later_span)
                if len(steps) >= MIN_STEPS and not beside:
                    overlaps.append(_overlap(steps, (earlier["source"], later_span["source"])))
    return tuple(overlaps)


def _shared_steps(rows: pl.DataFrame, first: str, second: str) -> list[int]:
    """Return the steps at which both sources log a metric of the same name."""
    left, right = (rows.filter(pl.col("source") == name).select("step", "name_raw") for name in (first, second))
    return left.join(right, on=["step", "name_raw"], how="semi")["step"].unique().sort().to_list()


def _most_steps(rows: pl.DataFrame, *spans: Mapping[str, object]) -> int:
    """Return how many steps the longer of two sources logs."""
    return max(rows.filter(pl.col("source") == span["source"])["step"].n_unique() for span in spans)


def _overlap(steps: list[int], sources: tuple[str, ...]) -> Overlap:
    return Overlap(first_step=steps[0], last_step=steps[-1], steps=len(steps), sources=sources)


def _doubled_sequences(tokens: Tokens) -> tuple[Overlap | None, Extent | None]:
    """Find steps with about twice the usual sequences, from twice the usual files or from a file that goes back."""
    table = with_ranks(tokens, tokens.sound_rows)
    numbers, paths = number_files(tokens, table["seq"])
    table = table.with_columns(numbers)
    table = table.with_columns(back=_is_repeated(["file", "rank"]))
    by_step = table.group_by("step", "rank").agg(
        pl.len().alias("n"), pl.col("file").n_unique().alias("files"), pl.col("back").any()
    )
    single = by_step.filter(~pl.col("back") & (pl.col("files") == pl.col("files").min()))
    if single.is_empty():
        return None, None
    usual = float(np.median(single["n"].to_numpy()))
    files = int(single["files"].to_numpy().min())
    double = by_step.filter((pl.col("n") >= DOUBLE_FACTOR * usual) & (pl.col("back") | (pl.col("files") >= 2 * files)))
    steps = double["step"].unique().sort().to_list()
    if len(steps) < MIN_STEPS:
        return None, None
    twice = table.filter(pl.col("step").is_in(steps))
    names = [paths[number] for number in twice["file"].unique().sort()]
    return _overlap(steps, (names[0], names[-1]) if len(names) > 1 else (names[0],)), measure_extent(tokens, twice)
