"""Place rows that name no step: a console repeats what a source with steps holds, and often continues past its end.

A killed trainer leaves the state of its last checkpoint and a longer console log; the dicts on that console are the
rows of the state, in the same order but without their steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.metrics.aliases import bare_name, canonical, split_of
from ptt.diagnostics.metrics.catalogue import kind_of
from ptt.diagnostics.model import JsonScalar
from ptt.diagnostics.parsers.console_log import CLOSING
from ptt.diagnostics.parsers.io.metric_rows import UNNUMBERED
from ptt.diagnostics.statistics.arrays import BoolArray, IntArray
from ptt.diagnostics.store.wide_metrics import WideMetrics
from ptt.diagnostics.wording import counted

Facts = Mapping[str, JsonScalar]
FIGURES: Final = 4  # significant ones that Hugging Face trainers print
MIN_ALIKE: Final = 2  # metrics of a row that agree: one alone may repeat by chance
MIN_ROWS: Final = 3  # that repeat rows with a step: two fit any spacing
MIN_SHARE: Final = 0.5  # of the rows up to the last that repeats one: with fewer, they are another run's
MAX_METRICS: Final = 20  # that training measures: enough to tell its rows apart, even if some are constant
TELLING_SHARE: Final = 0.5  # of a metric's values differ from each other: a constant one cannot tell rows apart
EPOCH: Final = "epoch"
KEYED: Final = ("source", "seq", "step", "split", "priority", "name_raw", "value")
STEADY_ROWS: Final = 10  # rows at the end that must lie one spacing apart for later ones to be placed behind them


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where the rows of one source lie that names no steps: their numbers, and the step of each."""

    source: str
    like: str  # the source with steps whose rows it repeats most
    numbers: IntArray
    steps: IntArray
    log_calls: pl.DataFrame  # seq and placed: the step of each, evaluations and the closing row among them
    repeated: int  # rows that repeat one with a step
    scheduled: int  # rows that have its learning rate and epoch at a step, and were overwritten there or never saved
    behind: int  # rows behind the last of these, placed by the spacing of the others
    spacing: int  # steps from row to row
    whole: bool  # whether every row has a step

    @property
    def note(self) -> str:
        """Say how the rows were placed."""
        text = f"{counted(self.repeated, 'row(s)')} placed at the steps of the same rows in {self.like}"
        text += f"; {self.scheduled} by learning rate and epoch" if self.scheduled else ""
        every = "step" if self.spacing == 1 else f"{self.spacing} steps"
        text += f"; {counted(self.behind, 'later row(s)')} placed every {every}" if self.behind else ""
        return text + ("." if self.whole else "; the other rows stay without a step.")


def place_rows(metrics: pl.DataFrame, wide: WideMetrics) -> tuple[pl.DataFrame, tuple[Placement, ...]]:
    """Return the metrics with steps for rows that repeat rows with a step, of `wide` too, and how these were placed.

    They then have their plain names. Rows that cannot be placed stay numbered, under names that begin with UNNUMBERED.
    """
    known = pl.col("step").is_not_null() & pl.col("value").is_finite()
    loose = [raw for raw in metrics["name_raw"].unique() if raw.startswith(UNNUMBERED)]
    if not loose:
        return metrics, ()
    columns = [raw for raw in wide.order if not raw.startswith(UNNUMBERED)]
    shared = _shared_names(loose, list({*metrics["name_raw"].unique(), *columns} - set(loose)))
    rows = metrics.filter(known & pl.col("name_raw").is_in(sorted(shared)))
    numbered = rows.filter(pl.col("name_raw").is_in(loose))
    stepped = rows.filter(~pl.col("name_raw").is_in(loose) & pl.col("rank").is_null()).select(KEYED)
    stepped = pl.concat([stepped, *(_rows_of(wide, raw) for raw in columns if raw in shared)])
    if numbered.is_empty() or stepped.is_empty():
        return metrics, ()
    anchors = _telling(_keyed(stepped))
    placements = [
        placement
        for part in numbered.partition_by("source", maintain_order=True)
        if (placement := _placement(part, anchors)) is not None
    ]
    if not placements:
        return metrics, ()
    return _placed(metrics, placements), tuple(placements)


def _rows_of(wide: WideMetrics, raw: str) -> pl.DataFrame:
    """Return the finite values of a wide metric, a row each."""
    rows = wide.column(raw).frame().with_columns(split=pl.lit("train"), name_raw=pl.lit(raw))
    return rows.filter(pl.col("value").is_finite()).select(KEYED)


def facts_of_placed(facts: Facts, metrics: pl.DataFrame, placements: Sequence[Placement]) -> Facts:
    """Return the facts of a run whose rows were placed: what they were placed by, and no unit other than steps.

    The unit goes as well where metrics with steps reach further than the rows of the file without any.
    """
    if not placements:
        return _in_steps(facts, metrics)
    placed = {**facts, "rows_placed_by": f"the same rows of {placements[0].like}"}
    if not metrics["name_raw"].str.starts_with(UNNUMBERED).any():
        placed.pop("row_unit", None)
    return _in_steps(placed, metrics)


def _in_steps(facts: Facts, metrics: pl.DataFrame) -> Facts:
    """Return the facts without the unit of a minor file's rows, which the steps of the others leave behind."""
    numbered = pl.col("name_raw").str.starts_with(UNNUMBERED)
    last = {
        bare: metrics.filter(~numbered if bare else numbered, pl.col("name").is_not_null())["step"].max()
        for bare in (True, False)
    }
    stepped, counted = last[True], last[False]
    if not isinstance(stepped, int) or (isinstance(counted, int) and counted >= stepped):
        return facts
    return {key: fact for key, fact in facts.items() if key != "row_unit"}


def place_events(
    events: pl.DataFrame, metrics: pl.DataFrame, placements: Sequence[Placement], wide: WideMetrics
) -> pl.DataFrame:
    """Return the events of sources without steps at the steps of their rows; without a step if those have none.

    In a run without any steps, row numbers are kept.
    """
    loose = metrics["name_raw"].str.starts_with(UNNUMBERED)
    numbered = {*metrics.filter(loose)["source"], *(one.source for one in placements)}
    if not numbered or (loose.all() and not wide.parts):
        return events
    joined = events.join(_step_table(placements), on=["source", "step"], how="left", maintain_order="left")
    own = pl.when(~pl.col("source").is_in(sorted(numbered)) | (pl.col("step") == 0)).then("step")  # 0: before any row
    return joined.with_columns(step=pl.coalesce("placed", own)).select(events.columns)


def _step_table(placements: Sequence[Placement]) -> pl.DataFrame:
    """Return source, step and placed: the number of each row, and its step."""
    schema = {"source": pl.String, "step": pl.Int64, "placed": pl.Int64}
    rows = [{"source": one.source, "step": one.numbers, "placed": one.steps} for one in placements]
    return pl.concat([pl.DataFrame(schema=schema), *(pl.DataFrame(row, schema_overrides=schema) for row in rows)])


def _keyed(rows: pl.DataFrame) -> pl.DataFrame:
    """Return source, seq, step and the bare name of each value with its first figures."""
    raws = rows["name_raw"].unique()
    names = [bare_name(raw.removeprefix(UNNUMBERED)) for raw in raws.to_list()]
    bare, set_before = pl.Series(names, dtype=pl.String), pl.Series(map(_is_set_before, names), dtype=pl.Boolean)
    return rows.select(
        "source", "seq", "step", "split", "priority",
        bare=pl.col("name_raw").replace_strict(raws, bare, return_dtype=pl.String),
        key=pl.col("value").round_sig_figs(FIGURES),
        measured=~pl.col("name_raw").replace_strict(raws, set_before, return_dtype=pl.Boolean),
    )  # fmt: skip


def _is_set_before(name: str) -> bool:
    """Return whether a metric follows from the settings: it is the same in any run of them."""
    return name == EPOCH or kind_of(canonical(name) or name) in ("schedule", "counter")


def _shared_names(loose: Sequence[str], stepped: Sequence[str]) -> set[str]:
    """Return the spellings of metrics logged with steps and without; for training, enough to tell its rows apart."""
    by_name: dict[str, list[str]] = {}
    for raw in (*loose, *stepped):
        by_name.setdefault(bare_name(raw.removeprefix(UNNUMBERED)), []).append(raw)
    both = [
        name
        for name, raws in sorted(by_name.items())
        if any(raw.startswith(UNNUMBERED) for raw in raws) and not all(raw.startswith(UNNUMBERED) for raw in raws)
    ]
    evaluated = [name for name in both if split_of(name) == "eval" or name == CLOSING]
    trained = [name for name in both if name not in set(evaluated)]
    measured = sorted((name for name in trained if not _is_set_before(name)), key=lambda name: canonical(name) is None)
    before = [name for name in trained if _is_set_before(name)]
    return {raw for name in (*evaluated, *measured[:MAX_METRICS], *before) for raw in by_name[name]}


def _telling(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of metrics whose values differ from step to step, once each."""
    spread = rows.group_by("bare").agg((pl.col("key").n_unique() / pl.col("step").n_unique()).alias("spread"))
    telling = rows.join(spread.filter(pl.col("spread") >= TELLING_SHARE), on="bare", how="semi")
    sources = sorted(telling["source"].unique(), key=lambda path: (path.count("/"), path))
    near = pl.col("source").replace_strict(sources, range(len(sources)), return_dtype=pl.Int32)
    nearest = telling.sort("priority", near)
    return nearest.unique(["bare", "key", "step"], keep="first", maintain_order=True)


def _placement(part: pl.DataFrame, anchors: pl.DataFrame) -> Placement | None:
    """Return where the rows of one source lie, or None where too few of them repeat rows with a step."""
    source = str(part["source"][0])
    rows = _keyed(part)
    is_aside = (pl.col("split") == "eval") | (pl.col("bare") == CLOSING).any().over("seq")
    rows = rows.with_columns(is_aside.alias("aside"))  # these follow the rhythm of evaluations, or come at the end
    votes = _votes(rows, anchors.filter(pl.col("source") != source))
    best = votes.filter(~pl.col("aside") & (pl.len().over("number") == 1)).sort("number")
    numbers, steps = best["number"].to_numpy(), best["step_there"].to_numpy()
    if len(numbers) < MIN_ROWS:
        return None
    spacing = _spacing(numbers, steps)
    best = best.filter(pl.Series(_in_order(numbers, steps, spacing)))
    numbers, steps = best["number"].to_numpy(), best["step_there"].to_numpy()
    every, measured = np.unique(rows.filter(~pl.col("aside"))["step"].to_numpy()), best.filter("measured")
    repeated = measured.height
    if repeated < MIN_ROWS or repeated < MIN_SHARE * np.searchsorted(every, int(measured["number"][-1]), side="right"):
        return None
    placed, behind = _steps_of(every, numbers, steps, spacing)
    known = placed >= 0
    calls = _calls(rows, votes, pl.DataFrame({"step": every[known], "placed": placed[known]}), spacing)
    return Placement(
        source=source,
        like=str(measured["source_there"].mode().sort()[0]),
        numbers=every[known],
        steps=placed[known],
        log_calls=calls,
        repeated=repeated,
        scheduled=len(numbers) - repeated,
        behind=behind,
        spacing=spacing,
        whole=bool(known.all()),
    )


def _votes(rows: pl.DataFrame, anchors: pl.DataFrame) -> pl.DataFrame:
    """Return the step where most values of each log call are found, if several are; all such steps in a tie."""
    alike = rows.join(anchors, on=["bare", "key"], suffix="_there")
    votes = alike.group_by("seq", "aside", pl.col("step").alias("number"), "step_there").agg(
        pl.len().alias("votes"), pl.col("measured").any(), pl.col("source_there").min()
    )
    return votes.filter((pl.col("votes") >= MIN_ALIKE) & (pl.col("votes") == pl.col("votes").max().over("seq")))


def _calls(rows: pl.DataFrame, votes: pl.DataFrame, numbered: pl.DataFrame, spacing: int) -> pl.DataFrame:
    """Return seq and step of the log calls of a source whose training rows were placed.

    An evaluation or closing row goes where its own values are found, else where the rhythm of earlier evaluations puts
    it, else to the row before it.
    """
    calls = rows.unique("seq", keep="first", maintain_order=True).select("seq", "step", "aside", "split")
    calls = calls.join(numbered, on="step", how="left").sort("seq")
    own = votes.filter(pl.col("aside") & (pl.len().over("seq") == 1)).select("seq", own="step_there")
    calls = calls.join(own, on="seq", how="left", maintain_order="left")
    evals = calls.filter(pl.col("split") == "eval").with_row_index("number")
    known = evals.drop_nulls("own")
    numbers, steps = known["number"].cast(pl.Int64).to_numpy(), known["own"].to_numpy()
    if len(steps) > 1 and bool((np.diff(steps) == (rhythm := _spacing(numbers, steps)) * np.diff(numbers)).all()):
        on = int(steps[0]) + rhythm * (pl.col("number").cast(pl.Int64) - int(numbers[0]))
        near = (on >= pl.col("placed")) & (on < pl.col("placed") + spacing)
        evals = evals.with_columns(pl.when(near).then(on).alias("rhythm"))
        calls = calls.join(evals.select("seq", "rhythm"), on="seq", how="left", maintain_order="left")
    else:
        calls = calls.with_columns(rhythm=pl.lit(None, pl.Int64))
    return calls.select("seq", placed=pl.coalesce("own", "rhythm", "placed")).drop_nulls()


def _spacing(numbers: IntArray, steps: IntArray) -> int:
    """Return the usual number of steps from a row to the next."""
    forward = np.diff(steps) > 0
    ratios = np.diff(steps)[forward] / np.diff(numbers)[forward]
    return max(1, round(float(np.median(ratios)))) if len(ratios) else 1


def _in_order(numbers: IntArray, steps: IntArray, spacing: int) -> BoolArray:
    """Return which rows lie as their neighbours do: the usual spacing from one of them, or between both.

    At a resume the steps go back: the rows on either side have one such neighbour.
    """
    usual = np.diff(steps) == spacing * np.diff(numbers)
    rising = np.diff(steps) > 0
    beside: BoolArray = np.append(False, usual) | np.append(usual, False)
    between: BoolArray = np.append(True, rising) & np.append(rising, True)
    return beside | between


def _steps_of(every: IntArray, numbers: IntArray, steps: IntArray, spacing: int) -> tuple[IntArray, int]:
    """Return the step of every row, -1 where it is not known, and how many lie behind the last repeated one."""
    placed = np.full(len(every), -1, np.int64)
    place = np.searchsorted(numbers, every, side="right") - 1  # the last repeated row at or before each
    before = np.clip(place, 0, None)
    after = np.clip(place + 1, None, len(numbers) - 1)
    reach = spacing * (every - numbers[before])
    exact = (place >= 0) & (numbers[before] == every)
    even = steps[after] - steps[before] == spacing * (numbers[after] - numbers[before])
    inner = (place >= 0) & (place < len(numbers) - 1) & even
    steady = bool((np.diff(steps)[-STEADY_ROWS:] == spacing * np.diff(numbers)[-STEADY_ROWS:]).all())
    last = (every > numbers[-1]) & steady
    usable = exact | inner | last
    placed[usable] = (steps[before] + reach)[usable]
    ahead = (every < numbers[0]) & steady & (steps[0] - spacing * (numbers[0] - every) > 0)
    placed[ahead] = (steps[0] - spacing * (numbers[0] - every))[ahead]
    return placed, int(last.sum())


def _placed(metrics: pl.DataFrame, placements: Sequence[Placement]) -> pl.DataFrame:
    """Write the steps into the rows."""
    loose = pl.col("name_raw").str.starts_with(UNNUMBERED)
    calls = pl.concat(one.log_calls.with_columns(pl.lit(one.source).alias("source")) for one in placements)
    joined = metrics.join(calls, on=["source", "seq"], how="left", maintain_order="left")
    placed = loose & pl.col("placed").is_not_null()
    return joined.with_columns(
        step=pl.when(placed).then("placed").otherwise("step"),
        name_raw=pl.when(placed).then(pl.col("name_raw").str.strip_prefix(UNNUMBERED)).otherwise("name_raw"),
    ).select(metrics.columns)
