"""A comparison's tables as short finished strings: what the terminal and Markdown show alike."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from ptt.diagnostics.compare.comparison import Arm, Comparison
from ptt.diagnostics.compare.readings import (
    SAME,
    Tail,
    late_mean,
    late_reach,
    late_steps,
    late_words,
    post_slice,
    tail_of,
)
from ptt.diagnostics.compare.wording import LABELS, by_interest, figure_name, sided
from ptt.diagnostics.metrics.catalogue import Kind
from ptt.reports.text.names import STATUSES, metric_name
from ptt.reports.text.numbers import number, times
from ptt.reports.text.sanitize import safe, shortened

NONE: Final = "–"
LONGEST_NAME: Final = 40
LONGEST_VALUE: Final = 60
LONGEST_VERDICT: Final = 160
WORDS: Final = {"lower": "lower", "higher": "higher", "alike": "alike", "cannot_say": "cannot say"}
MARKS: Final = {"lower": "lower", "higher": "higher", "alike": "alike", "cannot_say": "?", "": ""}
MARKS_SAID: Final = {
    "alike": "alike: within a margin of the baseline's",
    "?": "?: cannot be told, which is not alike",
}


@dataclass(frozen=True, kw_only=True)
class ArmRow:
    """One arm in the small table."""

    name: str
    runs: int
    status: str
    late: tuple[str, ...]  # p95, p99
    growth: tuple[str, ...]
    ratio: tuple[str, ...]  # with its interval; the baseline has none
    short: tuple[str, ...]  # the same in few letters
    words: tuple[str, ...]  # lower, higher, alike, cannot say; empty for the baseline


@dataclass(frozen=True, kw_only=True)
class MetricRow:
    """One metric late in the run, by arm."""

    metric: str
    cells: tuple[str, ...]  # one an arm: its mean, and what it is against the baseline's
    differs: bool  # in any arm


@dataclass(frozen=True, kw_only=True)
class SettingRow:
    """One setting that differs, by arm."""

    key: str
    values: tuple[str, ...]


def name_of(arm: Arm) -> str:
    """Give an arm's name, harmless and short."""
    return shortened(safe(arm.name), LONGEST_NAME)


def tail_title(comparison: Comparison) -> str:
    """Say what the table of arms shows."""
    name = post_slice(comparison.tables) or next(iter(comparison.tables["windows"]["slice"].unique().sort()), "")
    if not name:
        return ""
    reach = comparison.matched.get("steps")
    late = late_reach(comparison.tables)
    steps = f", late third of steps {number(reach[0])} to {number(reach[1])}" if reach else ""
    if reach and late:
        steps = f", late third ({late} of {number(reach[0])} to {number(reach[1])})"
    return f"{LABELS.get(name, safe(name))} |r| in nats ({safe(comparison.pair or '')}){steps}"


def arm_rows(comparison: Comparison) -> tuple[ArmRow, ...]:
    """Give the small table of arms: late level, growth, and baseline over arm with its interval."""
    base = comparison.arms[0]
    name = post_slice(comparison.tables) or "text_only"
    rows = []
    for arm in comparison.arms:
        tails = [tail_of(comparison.tables, arm, base, name, quantile) for quantile in ("p95", "p99")]
        rows.append(
            ArmRow(
                name=name_of(arm),
                runs=len(arm.members),
                status="/".join(dict.fromkeys(STATUSES[m.diagnosis.verdict.status] for m in arm.members)),
                late=tuple(_or_none(tail.late) for tail in tails),
                growth=tuple(_times(tail.growth) for tail in tails),
                ratio=tuple(NONE if arm is base else _ratio(tail) for tail in tails),
                short=tuple(NONE if arm is base else _short(tail) for tail in tails),
                words=tuple("" if arm is base else WORDS[tail.words] for tail in tails),
            )
        )
    return tuple(rows)


def verdict_rows(comparison: Comparison) -> tuple[tuple[str, str, str], ...]:
    """Give what each run is by itself: name, verdict, what the verdict says."""
    return tuple(
        (
            shortened(safe(member.name), LONGEST_NAME),
            STATUSES[member.diagnosis.verdict.status],
            shortened(safe(member.diagnosis.verdict.headline), LONGEST_VERDICT),
        )
        for arm in comparison.arms
        for member in arm.members
    )


def metric_rows(comparison: Comparison, *, kind: Kind = "training") -> tuple[MetricRow, ...]:
    """Give the metrics of a kind that are set against the baseline's: first those that differ in any arm."""
    words = {arm.name: late_words(comparison.tables, arm, kind=kind) for arm in comparison.arms[1:]}
    every = {metric for held in words.values() for metric in held}
    apart = {metric for held in words.values() for metric, word in held.items() if word in ("higher", "lower")}
    rows = []
    for metric in (*by_interest(apart), *by_interest(every - apart)):
        cells = []
        for arm in comparison.arms:
            mean = late_mean(comparison.tables, arm, metric)
            word = words.get(arm.name, {}).get(metric, "")
            cells.append(f"{_or_none(mean)} {MARKS[word]}".rstrip())
        rows.append(MetricRow(metric=metric_name(metric), cells=tuple(cells), differs=metric in apart))
    return tuple(rows)


def marks_explained(rows: Sequence[MetricRow]) -> str:
    """Say what the marks behind the means of these rows stand for; empty where there is none to explain."""
    ends = {cell.rpartition(" ")[2] for row in rows for cell in row.cells}
    return "; ".join(said for mark, said in MARKS_SAID.items() if mark in ends)


def metrics_counted(comparison: Comparison) -> str:
    """Say of how many metrics what was found, over all arms."""
    words = [word for arm in comparison.arms[1:] for word in late_words(comparison.tables, arm).values()]
    if not words:
        return ""
    apart = sum(word in ("higher", "lower") for word in words)
    of = "metrics" if len(comparison.arms) == 2 else "pairs of an arm and a metric"
    rest = f"{words.count('alike')} are alike, {words.count('cannot_say')} cannot be told"
    return f"of {len(words)} {of} {apart} differ, {rest}"


def metrics_title(comparison: Comparison) -> str:
    """Say which window of the logged metrics is shown, and its steps."""
    steps = late_steps(comparison.tables)
    return f"metrics, late third ({steps})" if steps else "metrics, late third"


def setting_rows(comparison: Comparison, *, differs: bool) -> tuple[SettingRow, ...]:
    """Give the settings that differ; with `differs` false those recorded by some arms only."""
    table = comparison.tables["settings"]
    keep = pl.col("differs") if differs else pl.col("differs").is_null()
    found = table.filter(keep.fill_null(False))
    rows = []
    for key in found["key"].unique(maintain_order=True):
        held = dict(found.filter(pl.col("key") == key).select("arm", "value").iter_rows())
        rows.append(SettingRow(key=safe(key), values=tuple(_setting(held.get(arm.name)) for arm in comparison.arms)))
    return tuple(rows)


def divergence_rows(comparison: Comparison, *, most: int) -> tuple[tuple[str, ...], ...]:
    """Give for each arm the figures that left the baseline first: arm, figure, step and interval, where to."""
    rows: list[tuple[str, ...]] = []
    for arm in comparison.arms[1:]:
        left, same = _left(comparison, arm)
        for row in same.iter_rows(named=True):
            figure = "identical at first" if row["step"] < row["high"] else "none"  # a figure that left may follow
            rows.append((name_of(arm), figure, f"up to {row['step']}", row["words"]))
        for row in left.head(most).iter_rows(named=True):
            reach = f"({row['low']} to {row['high']})"
            step = f"{row['step']} {reach}" if row["step"] is not None else f"cannot be dated {reach}"
            rows.append((name_of(arm), safe(figure_name(row)), step, safe(row["words"])))
    return tuple(rows)


def divergence_cut(comparison: Comparison, *, most: int) -> int:
    """Count the figures that left the baseline and of which `divergence_rows` gives no row."""
    return sum(max(0, _left(comparison, arm)[0].height - most) for arm in comparison.arms[1:])


def _left(comparison: Comparison, arm: Arm) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Give the figures of an arm that left the baseline, and the row that tells up to where the two runs are one."""
    mine = comparison.tables["divergence"].filter(pl.col("arm") == arm.name)
    return mine.filter(pl.col("what") != SAME), mine.filter(pl.col("what") == SAME)


def not_compared(comparison: Comparison, *, remedy: bool) -> tuple[str, ...]:
    """Give what could not be compared, and why, one clause each; with `remedy` what would change that."""
    return tuple(
        f"{safe(item.what)}: {safe(item.reason)}" + (f" ({safe(item.enable)})" if remedy and item.enable else "")
        for item in comparison.not_compared
    )


def _ratio(tail: Tail) -> str:
    if not math.isfinite(tail.ratio):
        return NONE
    found = sided(tail.ratio, tail.low, tail.high)
    interval = found.interval(number, 3) if tail.known else "no interval"
    return f"{times(found.factor)} {found.side}".rstrip() + f" ({interval})"


def _short(tail: Tail) -> str:
    if not math.isfinite(tail.ratio):
        return NONE
    found = sided(tail.ratio, tail.low, tail.high)
    interval = found.interval(number, 2, joint="–") if tail.known else "?"
    return f"×{number(found.factor, 2)} {found.side}".rstrip() + f" [{interval}]"


def _times(value: float) -> str:
    return times(value) if math.isfinite(value) else NONE


def _or_none(value: float) -> str:
    return number(value) if math.isfinite(value) else NONE


def _setting(value: str | None) -> str:
    if value is None:
        return NONE
    found = json.loads(value)
    return shortened(safe(found if isinstance(found, str) else value), LONGEST_VALUE)
