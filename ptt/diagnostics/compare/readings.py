"""Readings of a comparison's tables that its sentences, and whoever shows it, take alike."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl

from ptt.diagnostics.compare.comparison import Arm
from ptt.diagnostics.metrics.catalogue import Kind, kind_of

EQUIVALENCE_FACTOR: Final = 1.25  # a factor of tails that nobody would act on
FAMILY_ERROR_RATE: Final = (
    0.05  # chance that any arm's late post-tool tail is called other than the baseline's by noise alone
)
MIN_LOG_RATIO: Final = math.log(2.0)
"""In nats, of p99: below it no weight leaves 0.5 to 2, where the usual caps begin; tails that small harm nobody."""
SAME: Final = "identical"
"""Stands in the column `what` of the table of divergence where two runs are one run up to that step."""
POST: Final = ("post_tool", "post_observation")


@dataclass(frozen=True, kw_only=True)
class Tail:
    """One percentile of one slice of one arm in the late window, against the baseline's; NaN where not known."""

    late: float
    base_late: float
    early: float
    base_early: float
    ratio: float  # baseline over arm: above 1 the arm lies lower
    low: float
    high: float
    p_value: float
    growth: float
    base_growth: float
    suppression: float
    suppression_low: float
    suppression_high: float
    tests: int = 1  # made beside it, for `words`

    @property
    def known(self) -> bool:
        """Whether there is a ratio with its interval."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def material(self) -> bool:
        """Whether either side's value is large enough to matter."""
        return max(self.late, self.base_late) >= MIN_LOG_RATIO

    @property
    def words(self) -> str:
        """Return "lower", "higher", "alike" or "cannot_say" for the arm's late tail."""
        return factor_words(self.low, self.high, self.p_value, self.tests)

    @property
    def growth_words(self) -> str:
        """Return the same words for the arm's growth."""
        if not math.isfinite(self.suppression_low) or not math.isfinite(self.suppression_high):
            return "cannot_say"
        return factor_words(self.suppression_low, self.suppression_high, math.nan, 1)


def factor_words(low: float, high: float, p_value: float, tests: int) -> str:
    """Return "lower", "higher", "alike" or "cannot_say" for a factor baseline over arm.

    alike only where the whole interval lies within a factor of 1.25; else beyond noise, or it cannot be said. A
    p-value, where given, must pass the share of FAMILY_ERROR_RATE that each of `tests` tests has.
    """
    if not math.isfinite(low) or not math.isfinite(high):
        return "cannot_say"
    if low >= 1 / EQUIVALENCE_FACTOR and high <= EQUIVALENCE_FACTOR:
        return "alike"
    sure = math.isnan(p_value) or p_value <= FAMILY_ERROR_RATE / max(1, tests)
    if sure and low > 1:
        return "lower"
    return "higher" if sure and high < 1 else "cannot_say"


def post_slice(tables: Mapping[str, pl.DataFrame]) -> str | None:
    """Return the slice after tools or observations that is compared, or None."""
    slice_names = set(tables["windows"]["slice"])
    return next((name for name in POST if name in slice_names), None)


def tail_of(
    tables: Mapping[str, pl.DataFrame], arm: Arm, base: Arm, slice_name: str, quantile: str, *, axis: str = "steps"
) -> Tail:
    """Return an arm's late tail against the baseline's."""
    difference = _find_row(tables["differences"], arm, axis, slice_name, quantile, window="late")
    growth = _find_row(tables["growth"], arm, axis, slice_name, quantile)
    asked = tables["differences"]["arm"].n_unique()
    return Tail(
        late=_number(_find_row(tables["windows"], arm, axis, slice_name, quantile, window="late"), "value"),
        early=_number(_find_row(tables["windows"], arm, axis, slice_name, quantile, window="early"), "value"),
        base_early=_number(_find_row(tables["windows"], base, axis, slice_name, quantile, window="early"), "value"),
        base_late=_number(_find_row(tables["windows"], base, axis, slice_name, quantile, window="late"), "value"),
        ratio=_number(difference, "ratio"),
        low=_number(difference, "lo"),
        high=_number(difference, "hi"),
        p_value=_number(difference, "p_value"),
        growth=_number(growth, "growth"),
        base_growth=_number(_find_row(tables["growth"], base, axis, slice_name, quantile), "growth"),
        suppression=_number(growth, "suppression"),
        suppression_low=_number(growth, "suppression_lo"),
        suppression_high=_number(growth, "suppression_hi"),
        tests=2 * asked,
    )


def late_reach(tables: Mapping[str, pl.DataFrame], axis: str = "steps") -> str:
    """Return which steps the late window of tails is of; empty where that is not known."""
    rows = tables["windows"]
    if not {"x_first", "x_last"} <= set(rows.columns):
        return ""
    return _reach(rows.filter((pl.col("axis") == axis) & (pl.col("window") == "late")), "x_first", "x_last")


def late_steps(tables: Mapping[str, pl.DataFrame]) -> str:
    """Return which steps the late window of metrics is of; empty where that is not known."""
    rows = tables["aggregates"]
    if not {"step_first", "step_last"} <= set(rows.columns):
        return ""
    return _reach(rows.filter(pl.col("window") == "late"), "step_first", "step_last")


def _reach(rows: pl.DataFrame, first: str, last: str) -> str:
    return f"steps {math.ceil(rows[first][0])} to {math.floor(rows[last][0])}" if rows.height else ""


def identical(tables: Mapping[str, pl.DataFrame], arm: Arm) -> int | None:
    """Return the last step of an arm that is the baseline to the last digit in all that both log; None of any other."""
    if tables["divergence"].is_empty():
        return None
    rows = tables["divergence"].filter((pl.col("arm") == arm.name) & (pl.col("what") == SAME))
    return int(rows["step"][0]) if rows.height and rows["step"][0] == rows["high"][0] else None


def late_words(tables: Mapping[str, pl.DataFrame], arm: Arm, *, kind: Kind = "training") -> dict[str, str]:
    """Return what each metric of a kind does late in an arm against the baseline: higher, lower, alike, cannot_say."""
    rows = tables["aggregate_differences"].filter((pl.col("arm") == arm.name) & (pl.col("window") == "late"))
    return {metric: word for metric, word in rows.select("metric", "words").iter_rows() if kind_of(metric) == kind}


def late_mean(tables: Mapping[str, pl.DataFrame], arm: Arm, metric: str) -> float:
    """Return the late mean of a metric of an arm; NaN where it is not known."""
    rows = tables["aggregates"].filter(
        (pl.col("arm") == arm.name) & (pl.col("metric") == metric) & (pl.col("window") == "late")
    )
    return _number(rows.row(0, named=True) if rows.height else None, "mean")


def _find_row(
    table: pl.DataFrame, arm: Arm, axis: str, slice_name: str, quantile: str, *, window: str | None = None
) -> dict[str, object] | None:
    here = (pl.col("arm") == arm.name) & (pl.col("axis") == axis)
    here &= (pl.col("slice") == slice_name) & (pl.col("q") == quantile)
    rows = table.filter(here if window is None else here & (pl.col("window") == window))
    return rows.row(0, named=True) if rows.height else None


def _number(row: Mapping[str, object] | None, column: str) -> float:
    value = None if row is None else row[column]
    return float(value) if isinstance(value, int | float) else math.nan


def blind(tables: Mapping[str, pl.DataFrame]) -> bool:
    """Return whether neither a tail nor a metric of training has a difference with its interval.

    Step times alone answer nothing, and neither do means of three steps.
    """
    metrics = tables["aggregate_differences"].drop_nulls("lo")["metric"].unique()
    return tables["differences"].drop_nulls("lo").is_empty() and not any(
        kind_of(metric) == "training" for metric in metrics
    )
