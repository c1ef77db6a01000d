"""What a comparison says: its tables as short finished strings for terminal, Markdown and page, and compare.json."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Final

import polars as pl

from ptt.diagnostics.compare.comparison import (
    LABELS,
    OTHER,
    SAME,
    Arm,
    Comparison,
    Member,
    Tail,
    by_interest,
    figure_name,
    late_mean,
    late_others,
    late_reach,
    late_steps,
    late_words,
    post_slice,
    sided,
    tail_of,
)
from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.metrics.catalogue import Kind
from ptt.reports.output import fields_of, finite_json
from ptt.reports.text.names import STATUSES, metric_name
from ptt.reports.text.numbers import number, times
from ptt.reports.text.sanitize import LONGEST, safe, shortened

NONE: Final = "–"
MAX_NAME: Final = 40
MAX_VALUE: Final = 60
MAX_VERDICT: Final = 160
WORDS: Final = {"lower": "lower", "higher": "higher", "alike": "same", "cannot_say": "cannot say"}
NOT_SAME: Final = "≠"
MARKS: Final = WORDS | {"cannot_say": "?", OTHER: NOT_SAME, "": ""}
MARK_MEANINGS: Final = {
    "same": "same: within a margin of the baseline",
    "?": "?: unclear, which does not mean the same",
    NOT_SAME: f"{NOT_SAME}: not the same quantity as the baseline's",
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
    words: tuple[str, ...]  # lower, higher, same, cannot say; empty for the baseline

    @property
    def full_name(self) -> str:
        """The name, and of how many runs the arm is where it has several."""
        return f"{self.name} ({self.runs} runs)" if self.runs > 1 else self.name


@dataclass(frozen=True, kw_only=True)
class ValueRow:
    """One metric late in the run, or one setting, by arm."""

    key: str
    cells: tuple[str, ...]  # one an arm; of a metric its mean, and what it is against the baseline's
    differs: bool | None  # in any arm; None: not recorded by two
    notes: tuple[str, ...] = ()  # why no verdict is drawn from an arm's value


def name_of(arm: Arm) -> str:
    """Return an arm's name, harmless and short."""
    return shortened(safe(arm.name), MAX_NAME)


def tail_title(comparison: Comparison) -> str:
    """Return what the table of arms shows."""
    name = post_slice(comparison.tables) or next(iter(comparison.tables["windows"]["slice"].unique().sort()), "")
    if not name:
        return ""
    reach = comparison.matched.get("steps")
    late = late_reach(comparison.tables)
    steps = ""
    if reach:
        ends = f"{number(reach[0])} to {number(reach[1])}"
        steps = f", late third ({late} of {ends})" if late else f", late third of steps {ends}"
    return f"{LABELS.get(name, safe(name))} |r| in nats ({safe(comparison.pair or '')}){steps}"


def arm_rows(comparison: Comparison) -> tuple[ArmRow, ...]:
    """Return the small table of arms: late level, growth, and baseline over arm with its interval."""
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
                growth=tuple(_or_none(tail.growth, times) for tail in tails),
                ratio=tuple(NONE if arm is base else _ratio(tail) for tail in tails),
                short=tuple(NONE if arm is base else _short_ratio(tail) for tail in tails),
                words=tuple("" if arm is base else WORDS[tail.words] for tail in tails),
            )
        )
    return tuple(rows)


def verdict_rows(comparison: Comparison) -> tuple[tuple[str, str, str], ...]:
    """Return what each run is by itself: name, verdict, what the verdict says."""
    return tuple(
        (
            shortened(safe(member.name), MAX_NAME),
            STATUSES[member.diagnosis.verdict.status],
            shortened(safe(member.diagnosis.verdict.headline), MAX_VERDICT),
        )
        for arm in comparison.arms
        for member in arm.members
    )


def metric_rows(comparison: Comparison, *, kind: Kind = "training") -> tuple[ValueRow, ...]:
    """Return the metrics of a kind that are set against the baseline's, first those that differ in any arm.

    Those that are another quantity in an arm come next: they have their means, and no verdict.
    """
    words = {arm.name: late_words(comparison.tables, arm, kind=kind) for arm in comparison.arms[1:]}
    others = {arm.name: late_others(comparison.tables, arm, kind=kind) for arm in comparison.arms[1:]}
    apart = {metric for by_metric in others.values() for metric in by_metric}
    every = {metric for by_metric in words.values() for metric in by_metric} | apart
    differing = {m for by_metric in words.values() for m, word in by_metric.items() if word in ("higher", "lower")}
    rows = []
    for metric in (*by_interest(differing), *by_interest(apart - differing), *by_interest(every - differing - apart)):
        cells = []
        for arm in comparison.arms:
            mean = late_mean(comparison.tables, arm, metric)
            word = OTHER if metric in others.get(arm.name, {}) else words.get(arm.name, {}).get(metric, "")
            cells.append(f"{_or_none(mean)} {MARKS[word]}".rstrip())
        notes = tuple(dict.fromkeys(safe(by_metric[metric]) for by_metric in others.values() if metric in by_metric))
        rows.append(ValueRow(key=metric_name(metric), cells=tuple(cells), differs=metric in differing, notes=notes))
    return tuple(rows)


def marks_explained(rows: Sequence[ValueRow]) -> str:
    """Explain the marks behind the means of these rows; empty if there are no marks."""
    ends = {cell.rpartition(" ")[2] for row in rows for cell in row.cells}
    return "; ".join(meaning for mark, meaning in MARK_MEANINGS.items() if mark in ends)


def metrics_counted(comparison: Comparison) -> str:
    """Return of how many metrics what was found, over all arms; empty without metrics."""
    words = Counter(word for arm in comparison.arms[1:] for word in late_words(comparison.tables, arm).values())
    apart = sum(len(late_others(comparison.tables, arm)) for arm in comparison.arms[1:])
    if not words and not apart:
        return ""
    of = "metrics" if len(comparison.arms) == 2 else "pairs of an arm and a metric"
    rest = f"{words['alike']} are the same, {words['cannot_say']} are unclear"
    rest += f", {apart} {'is' if apart == 1 else 'are'} not the same quantity" if apart else ""
    return f"of {words.total() + apart} {of}, {words['higher'] + words['lower']} differ, {rest}"


def metrics_title(comparison: Comparison) -> str:
    """Return which window of the logged metrics is shown, and its steps."""
    steps = late_steps(comparison.tables)
    return f"metrics, late third ({steps})" if steps else "metrics, late third"


def setting_rows(
    comparison: Comparison,
    *,
    differs: bool | None,
    missing: str = NONE,
    empty: str = "",
    max_key: int = LONGEST,
    max_value: int = MAX_VALUE,
) -> tuple[ValueRow, ...]:
    """Return the settings that differ, that are the same, or (None) that fewer than two arms record."""

    def shown(value: str | None) -> str:
        if value is None:
            return missing
        content = json.loads(value)  # text without its quotes
        return shortened(safe(content if isinstance(content, str) else value), max_value) or empty

    rows = comparison.tables["settings"].filter(pl.col("differs").eq_missing(differs))
    by_key = rows.group_by("key", maintain_order=True)
    values = ((key, dict(group.select("arm", "value").iter_rows())) for (key,), group in by_key)
    return tuple(
        ValueRow(
            key=shortened(safe(str(key)), max_key),
            cells=tuple(shown(by_arm.get(arm.name)) for arm in comparison.arms),
            differs=differs,
        )
        for key, by_arm in values
    )


def divergence_rows(comparison: Comparison, *, most: int) -> tuple[tuple[str, ...], ...]:
    """Return for each arm the figures that left the baseline first: arm, figure, step and interval, where to."""
    rows: list[tuple[str, ...]] = []
    for arm in comparison.arms[1:]:
        departures, identical = _divergence(comparison, arm)
        for row in identical.iter_rows(named=True):
            figure = "identical at first" if row["step"] < row["high"] else "none"  # a figure that left may follow
            rows.append((name_of(arm), figure, f"up to {row['step']}", row["words"]))
        for row in departures.head(most).iter_rows(named=True):
            interval = f"({row['low']} to {row['high']})"
            step = f"{row['step'] if row['step'] is not None else 'step unknown'} {interval}"
            rows.append((name_of(arm), safe(figure_name(row)), step, safe(row["words"])))
    return tuple(rows)


def divergence_cut(comparison: Comparison, *, most: int) -> int:
    """Count the figures that left the baseline and that `divergence_rows` leaves out."""
    return sum(max(0, _divergence(comparison, arm)[0].height - most) for arm in comparison.arms[1:])


def _divergence(comparison: Comparison, arm: Arm) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the figures of an arm that left the baseline, and the row of the step up to which two runs are one."""
    rows = comparison.tables["divergence"].filter(arm=arm.name)
    return rows.filter(pl.col("what") != SAME), rows.filter(pl.col("what") == SAME)


def not_compared(comparison: Comparison, *, remedy: bool) -> tuple[str, ...]:
    """Return what could not be compared, and why, one clause each; with `remedy` what would change that."""
    return tuple(
        f"{safe(item.what)}: {safe(item.reason)}" + (f" ({safe(item.enable)})" if remedy and item.enable else "")
        for item in comparison.not_compared
    )


def _ratio(tail: Tail) -> str:
    if not math.isfinite(tail.ratio):
        return NONE
    factor = sided(tail.ratio, tail.low, tail.high)
    interval = factor.interval(number, 3) if tail.known else "no interval"
    return f"{times(factor.factor)} {factor.side}".rstrip() + f" ({interval})"


def _short_ratio(tail: Tail) -> str:
    if not math.isfinite(tail.ratio):
        return NONE
    factor = sided(tail.ratio, tail.low, tail.high)
    interval = factor.interval(number, 2, joint="–") if tail.known else "?"
    return f"×{number(factor.factor, 2)} {factor.side}".rstrip() + f" [{interval}]"


def _or_none(value: float, write: Callable[[float], str] = number) -> str:
    return write(value) if math.isfinite(value) else NONE


SCHEMA_VERSION: Final = 1
TABLES: Final = (
    "windows", "differences", "growth", "aggregates", "aggregate_differences", "divergence", "settings", "curves",
    "ess",
)  # fmt: skip
"""In order of what is read first; the CDFs, thousands of points, are in the figures alone."""


def compare_json(comparison: Comparison, version: str) -> str:
    """Return the text of compare.json; the same comparison gives the same bytes."""
    content: dict[str, object] = {
        "schema_version": SCHEMA_VERSION,
        "ptt_version": version,
        "headline": comparison.headline,
        "sentences": comparison.sentences,
        "cautions": comparison.cautions,
        "baseline": comparison.arms[0].name,
        "pair": comparison.pair,
        "arms": [{"name": arm.name, "runs": [_run(run) for run in arm.members]} for arm in comparison.arms],
        "matched": comparison.matched,
        "not_compared": [asdict(item) for item in comparison.not_compared],
        **{name: comparison.tables[name].to_dicts() for name in TABLES},
    }
    return finite_json(content)


def _run(member: Member) -> dict[str, object]:
    run, verdict = member.diagnosis.run, member.diagnosis.verdict
    return {
        "name": member.name,
        "source": member.source or None,
        **fields_of(run, "framework", "algorithm"),
        "steps": {"first": run.first_step, "last": run.last_step, "count": run.step_count},
        **fields_of(run, "sequences", "model_tokens"),
        **fields_of(verdict, "status", "headline"),
    }
