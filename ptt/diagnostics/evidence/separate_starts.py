"""Find files in which one run follows another from its first step on; one is judged, and the others are noted.

A script that appends to its log writes a second start after the first. If counters, schedule or values begin again, it
is another run, not a resumed one; if the epoch or the values continue, it is the same run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.metrics.aliases import canonical
from ptt.diagnostics.metrics.catalogue import kind_of
from ptt.diagnostics.metrics.name_words import words_of
from ptt.diagnostics.model import JsonScalar
from ptt.diagnostics.parsers.io.counters import RUN_WORDS
from ptt.diagnostics.parsers.io.metric_rows import UNNUMBERED
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray

MIN_CALLS: Final = 4  # log calls that make a start a run: with fewer, the later one's values win there anyway
MIN_SHORT_STARTS: Final = 3  # where most are shorter than MIN_CALLS calls; one of only two may be another process
COMPLETE: Final = 0.5  # of the longest start's calls: from here on the last start counts as complete
FROM_START: Final = 1.5  # logging intervals within which a start begins where the first did
MAX_FALLS: Final = 0.2  # of the calls: more falls mean parallel writers, which go back at every step
MIN_VOTES: Final = 2  # metrics that continue where they were: then a restarted counter is not another run
MIN_SHARED: Final = 3  # steps at which two schedules are compared
CLEAR: Final = 2.0  # change over a start, relative to its scatter between calls, for its ends to differ clearly
CYCLE_SPREAD: Final = 0.02  # relative spread of the lengths of three or more cycles: a counter that restarts each epoch
PROGRESS: Final = frozenset({"epoch", "train/epoch", "progress/epoch", "progress/done_frac", "percentage", "progress"})


RUNS: Final = "runs_in_file"
JUDGED: Final = "run_judged"


@dataclass(frozen=True, kw_only=True)
class Starts:
    """The runs in one file, and which of them is judged."""

    source: str
    bounds: tuple[int, ...]  # the number of each run's first log call, then one behind the last
    judged: int
    steps: tuple[int, int]  # first and last step of the judged run

    @property
    def note(self) -> str:
        """Say that the file holds several runs, and which rows are judged."""
        count = len(self.bounds) - 1
        return (
            f"This file holds {count} runs, each from its first step on: run {self.judged + 1} of {count} is judged, "
            f"steps {self.steps[0]} to {self.steps[1]}; the rows of the others are left out."
        )


def facts_of_starts(starts: Sequence[Starts]) -> dict[str, JsonScalar]:
    """Return how many runs the file with the most of them holds, and which is judged."""
    most = max(starts, key=lambda one: len(one.bounds), default=None)
    return {} if most is None else {RUNS: len(most.bounds) - 1, JUDGED: most.judged + 1}


def separate_starts(metrics: pl.DataFrame) -> tuple[pl.DataFrame, tuple[Starts, ...]]:
    """Return the metrics without the rows of other runs in the same file, and the files that hold several."""
    counted = pl.col("name_raw").str.starts_with(UNNUMBERED)
    stepped = metrics.lazy().filter(pl.col("step").is_not_null() & pl.col("rank").is_null())
    stepped = stepped.filter(~counted | counted.all().over("source"))  # where steps are logged, no other counter is one
    sources = pl.Enum(metrics["source"].unique().sort())  # a million groups by number take half the memory
    stepped = stepped.select(pl.col("source").cast(sources), "seq", "step")
    calls = stepped.group_by("source", "seq").agg(pl.col("step").min()).sort("source", "seq").collect()
    found = []
    for (source,), part in calls.group_by("source", maintain_order=True):
        named = _named_runs(str(source), part, metrics)
        if named is not None:
            found.append(named)
            continue
        if short := _short_starts(part["step"].to_numpy()):
            edges = (*part["seq"].gather(short).to_list(), int(part["seq"][-1]) + 1)
            found.append(_judged(str(source), part, edges))
            continue
        bounds = _candidates(part["step"].to_numpy())
        if len(bounds) > 2 and (starts := _starts(str(source), part, bounds, metrics)) is not None:
            found.append(starts)
    if not found:
        return metrics, ()
    other = pl.lit(False)
    for one in found:
        first, end = one.bounds[one.judged], one.bounds[one.judged + 1]
        outside = ~pl.col("seq").is_between(first, end, closed="left")
        other |= (pl.col("source") == one.source) & outside
    return metrics.filter(~other), tuple(found)


def _named_runs(source: str, calls: pl.DataFrame, metrics: pl.DataFrame) -> Starts | None:
    """Return the runs of a file that numbers each run, by seed for example, and restarts its counter in each."""
    if not bool((calls["step"].diff() < 0).any()):
        return None
    rows = metrics.filter(pl.col("source") == source)
    for name in rows["name_raw"].unique().sort():
        if words_of(name).isdisjoint(RUN_WORDS):
            continue
        named = calls.join(rows.filter(pl.col("name_raw") == name).select("seq", "value"), on="seq", how="left").sort(
            "seq"
        )
        changed, fell = (named["value"].diff() != 0).fill_null(False), (named["step"].diff() <= 0).fill_null(False)
        if named["value"].null_count() or not (changed == fell).all():
            continue
        bounds = [0, *changed.arg_true().to_list(), named.height]
        starts = [int(named["seq"][at]) for at in bounds[:-1]]
        return _judged(source, named, (*starts, int(named["seq"].max()) + 1))  # type: ignore[arg-type]
    return None


def _judged(source: str, calls: pl.DataFrame, edges: tuple[int, ...]) -> Starts:
    """Choose the run that is judged: the last that is about as long as the longest."""
    bounds = np.searchsorted(calls["seq"].to_numpy(), edges)
    lengths = np.diff(bounds)
    judged = int(np.flatnonzero(lengths >= COMPLETE * lengths.max())[-1])
    steps = calls["step"].to_numpy()[bounds[judged] : bounds[judged + 1]]
    return Starts(source=source, bounds=edges, judged=judged, steps=(int(steps.min()), int(steps.max())))


def _short_starts(steps: IntArray) -> list[int]:
    """Return where each start begins in a file of mostly short starts; empty for any other file.

    Neither parallel writers, which repeat each step, nor a counter that restarts each epoch at equal length, count as
    starts.
    """
    bounds = np.flatnonzero(np.diff(steps, prepend=steps[:1]) <= 0)
    lengths = np.diff(bounds, append=len(steps))
    if len(bounds) < MIN_SHORT_STARTS or np.ptp(lengths) == 0 or np.median(lengths) >= MIN_CALLS:
        return []
    return bounds.tolist() if bool((steps[bounds] == steps.min()).all()) else []


def _candidates(steps: IntArray) -> list[int]:
    """Return where calls begin again at the first step, with the ends; only these where writers go side by side."""
    falls = np.flatnonzero(np.diff(steps) < 0) + 1
    ends = [0, len(steps)]
    if not len(falls) or len(falls) > MAX_FALLS * len(steps):
        return ends
    rises = np.diff(steps)[np.diff(steps) > 0]
    reach = FROM_START * (float(np.median(rises)) if len(rises) else 1.0)
    bounds = [0, *(int(at) for at in falls if steps[at] <= steps.min() + reach), len(steps)]
    lengths = np.diff(bounds)
    cycles = lengths[:-1] if lengths[-1] <= lengths[0] else lengths
    if len(cycles) > 2 and cycles.max() - cycles.min() <= CYCLE_SPREAD * cycles.max():
        return ends
    return bounds


def _starts(source: str, calls: pl.DataFrame, bounds: Sequence[int], metrics: pl.DataFrame) -> Starts | None:
    """Return the runs of a file; None where what begins again is the same run."""
    lengths = np.diff(bounds)
    whole = [place for place, length in enumerate(lengths) if length >= MIN_CALLS]
    rows = metrics.filter((pl.col("source") == source) & pl.col("value").is_finite() & pl.col("step").is_not_null())
    seqs = [*calls["seq"].gather(list(bounds[:-1])).to_list(), int(calls["seq"][-1]) + 1]
    parts = [rows.filter(pl.col("seq").is_between(seqs[at], seqs[at + 1], closed="left")) for at in whole]
    kept = [0, *(at for at in range(1, len(whole)) if _is_another(parts[at - 1], parts[at]))] if whole else []
    if len(kept) < 2:
        return None
    starts = [seqs[whole[at]] for at in kept]
    return _judged(source, calls, (*starts, max(seqs[-1], int(rows["seq"].max() or 0) + 1)))  # type: ignore[arg-type]


def _is_another(before: pl.DataFrame, after: pl.DataFrame) -> bool:
    """Return whether a new start is another run: by its progress, else its schedule, else its values."""
    for name in PROGRESS & set(before["name_raw"]) & set(after["name_raw"]):
        ended, began = _values(before, name)[-1], _values(after, name)[0]
        return bool(began < ended)
    kinds = {name: kind_of(canonical(name) or name) for name in set(before["name_raw"]) & set(after["name_raw"])}
    if not kinds:  # one metric's list after another's
        return False
    for name in sorted(name for name, kind in kinds.items() if kind == "schedule"):
        both = _series(before, name).join(_series(after, name), on="step", suffix="_after")
        if both.height >= MIN_SHARED and both["value"].n_unique() > 1:
            return bool((both["value"] == both["value_after"]).mean() > 0.5)  # type: ignore[operator]
    measured = sorted(name for name, kind in kinds.items() if kind not in ("schedule", "counter"))
    if any(_is_other_setting(before, after, name) for name in measured) or _went_back(before, after):
        return True
    votes = [vote for name in measured if (vote := _goes_back(before, after, name)) is not None]
    if after["seq"].n_unique() > (1 + CYCLE_SPREAD) * before["seq"].n_unique():  # no counter of an epoch's steps
        return any(votes) or len(votes) < MIN_VOTES
    return len(votes) > 0 and 2 * sum(votes) > len(votes)


def _went_back(before: pl.DataFrame, after: pl.DataFrame) -> bool:
    """Return whether a start ends before the one above it begins, and was written later: from an earlier state.

    A counter that restarts each epoch passes the steps again.
    """
    ended, began = after["step"].max(), before["step"].min()
    earlier, later = before["wall_time"].max(), after["wall_time"].min()
    if ended is None or began is None or earlier is None or later is None:
        return False
    return bool(ended < began and later >= earlier)  # type: ignore[operator]


def _is_other_setting(before: pl.DataFrame, after: pl.DataFrame, name: str) -> bool:
    """Return whether a number that is the same at each step of a start is another one at each step of the next."""
    one, other = _values(before, name), _values(after, name)
    constant = min(len(one), len(other)) >= MIN_CALLS and len(np.unique(one)) == len(np.unique(other)) == 1
    return constant and bool(one[0] != other[0])


def _goes_back(before: pl.DataFrame, after: pl.DataFrame, name: str) -> bool | None:
    """Return whether a metric restarts where the first start began, not where it ended; None if these are alike."""
    one, other = _values(before, name), _values(after, name)
    if len(one) < MIN_CALLS or not len(other):
        return None
    width = max(1, len(one) // 10)
    first, last, again = (float(np.median(part)) for part in (one[:width], one[-width:], other[:width]))
    scatter = float(np.median(np.abs(np.diff(one))))
    if abs(last - first) <= CLEAR * scatter:
        return None
    return abs(again - first) < abs(again - last)


def _series(rows: pl.DataFrame, name: str) -> pl.DataFrame:
    return rows.filter(pl.col("name_raw") == name).sort("seq").unique("step", keep="last").select("step", "value")


def _values(rows: pl.DataFrame, name: str) -> FloatArray:
    values: FloatArray = rows.filter(pl.col("name_raw") == name).sort("seq")["value"].to_numpy()
    return values
