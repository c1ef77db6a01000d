"""Define a comparison: arms of one or more runs, its tables, and their numbers in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.model import Diagnosis
from ptt.diagnostics.statistics.tail_curves import Profile

if TYPE_CHECKING:
    import polars as pl
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import polars as pl

from ptt.diagnostics.metrics.catalogue import Kind, kind_of, labels, listed
from ptt.diagnostics.wording import sig

EQUIVALENCE_FACTOR: Final = 1.25  # a factor of tails that nobody would act on
FAMILY_ERROR_RATE: Final = (
    0.05  # chance that any arm's late post-tool tail is called other than the baseline's by noise alone
)
MIN_LOG_RATIO: Final = math.log(2.0)
"""In nats, of p99: below it no weight leaves 0.5 to 2, where the usual caps begin; tails that small harm nobody."""
SAME: Final = "identical"
"""Value of `what` in the divergence table if two runs are identical up to that step."""
OTHER: Final = "other_quantity"
"""Value of `words` in the table of differences where an arm's metric is not the baseline's quantity."""
POST: Final = ("post_tool", "post_observation")

MAX_DIGITS: Final = 9
CLOSE_DIGITS: Final = 3  # digits of an end that two would round to 1, the value that tells nothing
ASKED_FIRST: Final = listed("asked_first")
LABELS: Final = {"post_tool": "post-tool", "post_observation": "post-observation", "text_only": "text-only"}


@dataclass(frozen=True, kw_only=True)
class Member:
    """One run of a comparison."""

    name: str  # unique among all members
    diagnosis: Diagnosis
    profile: Profile | None  # None: findings.json alone, or no pair of logprobs
    why_no_profile: str = ""
    source: str = ""  # sha256 of what it was made from: two with the same hold the same run


@dataclass(frozen=True, kw_only=True)
class Arm:
    """Runs of one setting, seeds of each other; most arms have one."""

    name: str
    members: tuple[Member, ...]


@dataclass(frozen=True, kw_only=True)
class NotCompared:
    """A question that these runs cannot answer side by side, and why."""

    what: str
    reason: str
    enable: str = ""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Arms side by side; `tables` are long, with arms in their order: docs/tables.md says what each column is."""

    arms: tuple[Arm, ...]
    pair: str | None
    headline: str  # one sentence
    sentences: tuple[str, ...]  # what each arm shows against the baseline, most telling first
    tables: Mapping[str, pl.DataFrame]
    not_compared: tuple[NotCompared, ...]
    matched: Mapping[str, tuple[float, float] | None]  # axis -> the range that all arms share
    cautions: tuple[str, ...] = ()  # those of the sentences that keep a difference from being a setting's merit


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
    rows = _late(tables, arm).filter(pl.col("words") != OTHER)
    return {metric: word for metric, word in rows.select("metric", "words").iter_rows() if kind_of(metric) == kind}


def late_others(tables: Mapping[str, pl.DataFrame], arm: Arm, *, kind: Kind = "training") -> dict[str, str]:
    """Return the metrics of a kind that are not the baseline's quantity in an arm, each with both quantities."""
    rows = _late(tables, arm).filter(pl.col("words") == OTHER)
    return {row["metric"]: row["reason"] for row in rows.iter_rows(named=True) if kind_of(row["metric"]) == kind}


def _late(tables: Mapping[str, pl.DataFrame], arm: Arm) -> pl.DataFrame:
    return tables["aggregate_differences"].filter((pl.col("arm") == arm.name) & (pl.col("window") == "late"))


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


def metric_name(name: str) -> str:
    """Name a metric in prose; one that no table of ours knows keeps its own name."""
    return labels().get(name, name)


def by_interest(names: Iterable[str]) -> list[str]:
    """Sort metrics into the order that they are asked for; others follow by name."""
    order = {name: number for number, name in enumerate(ASKED_FIRST)}
    return sorted(names, key=lambda name: (order.get(name, len(order)), name))


def figure_name(row: Mapping[str, object]) -> str:
    """Name a figure of the table `divergence` in prose."""
    kind, of = str(row["what"]), row["slice"]
    return f"{LABELS.get(str(of), str(of))} {kind}" if of is not None else metric_name(kind)


def first_of(names: Sequence[str], count: int) -> str:
    """Join the first names, and say how many more there are."""
    more = f" and {len(names) - count} more" if len(names) > count else ""
    return ", ".join(names[:count]) + more


@dataclass(frozen=True, kw_only=True)
class Sided:
    """A factor of at least 1 with its side, and the ends of its interval; ends on the factor's side name none."""

    factor: float
    side: str  # empty where the factor rounds to 1
    ends: tuple[tuple[float, str], tuple[float, str]]

    def interval(self, write: Callable[[float, int], str], digits: int, *, mark: str = "", joint: str = " to ") -> str:
        """Write the ends; one on the other side of 1 than the rest is never rounded to a 1 that hides it."""
        return joint.join(_end(factor, side, write, digits, mark) for factor, side in self.ends)


def sided(ratio: float, low: float, high: float, sides: tuple[str, str] = ("lower", "higher")) -> Sided:
    """Convert a ratio and its interval into factors of at least 1; `sides`: the words above 1 and below it."""
    above, below = sides
    level = bare_factor(max(ratio, _reciprocal(ratio))) == bare_factor(1.0)
    turned = not level and ratio < 1
    first, last = (high, low) if turned else (low, high)
    if not level and (last <= 1 if turned else first >= 1) and (first <= 1 if turned else last >= 1):
        ends = ((max(first, _reciprocal(first)), ""), (max(last, _reciprocal(last)), ""))
    else:
        ends = (_factor_and_side(first, above, below), _factor_and_side(last, above, below))
    return Sided(
        factor=1.0 if level else max(ratio, _reciprocal(ratio)),
        side="" if level else below if turned else above,
        ends=ends,
    )


def _reciprocal(value: float) -> float:
    return 1 / value if value else math.inf


def _factor_and_side(value: float, above: str, below: str) -> tuple[float, str]:
    return (value, above) if value >= 1 else (_reciprocal(value), below)


def _end(factor: float, side: str, write: Callable[[float, int], str], digits: int, mark: str) -> str:
    text = write(factor, digits)
    if not side or text != "1":
        return f"{mark}{text} {side}".rstrip()
    closer = write(factor, CLOSE_DIGITS)
    return f"{mark}{closer}" if closer == "1" else f"{mark}{closer} {side}"


def bare_factor(value: float, digits: int = 2) -> str:
    """Write a factor without its sign."""
    if math.isinf(value):
        return "∞"
    return f"{value:.{digits}g}" if value < 100 else f"{value:,.0f}"


def ratio_words(tail: Tail) -> str:
    """Describe a ratio with its interval: how much lower or higher the arm lies."""
    return sided_words(sided(tail.ratio, tail.low, tail.high)) if tail.known else "no interval"


def sided_words(found: Sided) -> str:
    """Write a factor, its side and its interval."""
    return f"{times(found.factor)} {found.side}".rstrip() + f", {found.interval(bare_factor, 2, mark='×')}"


def times(value: float) -> str:
    """Write a factor."""
    if not math.isfinite(value):
        return "no value"
    return f"×{bare_factor(value)}"


def nats(value: float) -> str:
    """Write a tail in nats."""
    return f"{sig(value)}" if math.isfinite(value) else "no value"


def number(value: float, digits: int = 3) -> str:
    """Write a metric's mean."""
    return f"{value:.{digits}g}" if math.isfinite(value) else "no value"


def pair(one: float, other: float) -> str:
    """Write two means that differ with as many digits as show it."""
    digits = next((some for some in range(3, MAX_DIGITS) if number(one, some) != number(other, some)), MAX_DIGITS)
    return f"{number(one, digits)} against {number(other, digits)}"
