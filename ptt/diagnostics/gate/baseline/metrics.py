"""Hold the late means of logged metrics against the baseline's, each in the direction in which it gets worse."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.logged_metrics import LOST_SHARE
from ptt.diagnostics.gate.baseline.measure import windows_of
from ptt.diagnostics.gate.baseline.values import (
    FALSE_ALARMS,
    Baseline,
    BaselineComparison,
    Draft,
    Figures,
    Judgement,
    MetricFigures,
    Worse,
    must_exclude,
    untested,
)
from ptt.diagnostics.metrics.catalogue import metrics
from ptt.diagnostics.statistics.autocorrelated_mean import MIN_WINDOW_VALUES
from ptt.diagnostics.statistics.group_difference import GroupDifference, SeedPrior, group_difference, mean_of
from ptt.diagnostics.statistics.windows import Span
from ptt.diagnostics.wording import sig


@dataclass(frozen=True, kw_only=True)
class Direction:
    """How one metric is held against a baseline.

    floor: a level below it counts as this much: a quarter more of nearly nothing is nearly nothing.
    signed: the metric may lie on either side of zero, where its level is no yardstick; the scatter of its values is
    one then.
    """

    worse: Worse
    why: str
    floor: float = 0.0
    signed: bool = False


DIRECTIONS: Final[Mapping[str, Direction]] = {
    name: Direction(worse=Worse(metric.worse), why=metric.why_worse, floor=metric.floor, signed=metric.signed)
    for name, metric in metrics().items()
    if metric.worse is not None
}
"""Others are kept and shown, not judged; a policy may name them with a direction of its own."""

MIN_REACH_SHARE: Final = 0.8  # of the late window, for its mean to stand for it
SIGNED_SCATTERS: Final = 3.0
"""Standard deviations of a single value: a metric that may lie on either side of zero counts as at least so large,
the range most single values lie in. With less a reward about zero could be judged in very long runs only."""

SEED_SHARE: Final = 0.07
SEED_SHARES: Final = {"reward/mean": 0.03, "len/response_mean": 0.03}
"""Standard deviation between seeds, as a share of the level: late means of two arms of TRL runs, two and three seeds
each, differ by 0.01 and 0.04 in reward, 0.01 in length, 0.10 and 0.11 in entropy, 0.01 and 0.11 in gradient norm, 0.11
and 0.18 (of its floor) in KL, their own noise included."""
SEED_FREEDOM: Final = 6.0
"""Degrees of freedom that this is worth: the arms' own three, twice, since several metrics say much the same."""

Chosen = Mapping[str, Worse | str | None]
"""Metrics that a policy names, each with the direction that is worse; None: the known one."""


def drafts(mine: Figures, baseline: Baseline, *, limit: float, chosen: Chosen | None) -> list[Draft]:
    """Return every metric of the baseline beside the run's, and those that a policy names whether held or not."""
    by_name = {
        name: [metric for run in baseline.runs if (metric := find_metric(run, name)) is not None]
        for name in _names(baseline)
    }
    names = sorted({*by_name, *(chosen or ())})
    return [_draft(name, mine, baseline, by_name.get(name, []), limit, chosen) for name in names]


def _draft(
    name: str,
    figures: Figures,
    baseline: Baseline,
    base_metrics: Sequence[MetricFigures],
    limit: float,
    chosen: Chosen | None,
) -> Draft:
    direction = direction_of(name, chosen)
    own = find_metric(figures, name)
    late = windows_of(baseline.steps)[2]
    comparison = _compare_levels(name, own, base_metrics, late)
    named = chosen is not None and name in chosen
    judged = named or (chosen is None and name in DIRECTIONS)
    if not judged:
        why = "the policy does not name it" if name in DIRECTIONS else "it has no known direction of worse"
        return untested(replace(comparison, outcome="shown", words=f"{_level_words(comparison)}; shown only: {why}"))
    reason, next_ = _why_not_comparable(name, figures, own, baseline, base_metrics, late, direction)
    if direction is not None:
        comparison = replace(
            comparison, allowed=_allowed(direction.worse, _scale(comparison, base_metrics, direction), limit)
        )
    if reason or own is None or direction is None:
        return untested(replace(comparison, outcome="blind", words=reason, next=(next_,) if next_ else ()))
    return _test_difference(comparison, own, base_metrics, direction, limit)


def direction_of(name: str, chosen: Chosen | None) -> Direction | None:
    """Return how a metric is judged: as the policy says, or as the table of known directions does."""
    known = DIRECTIONS.get(name)
    said = None if chosen is None else chosen.get(name)
    if said is None:
        return known
    if known is not None:
        return replace(known, worse=Worse(said), why=known.why if known.worse == said else "the policy says so")
    # nothing is known of its range: it may lie on either side of zero
    return Direction(worse=Worse(said), why="the policy says so", signed=True)


def _compare_levels(
    name: str, own: MetricFigures | None, theirs: Sequence[MetricFigures], late: Span
) -> BaselineComparison:
    mean = own.late.mean if own is not None else math.nan
    expected = mean_of([figures.late.mean for figures in theirs])
    both = math.isfinite(mean) and math.isfinite(expected)
    runs = f"{len(theirs)} baseline {'run' if len(theirs) == 1 else 'runs'}"
    values = own.late.n if own is not None else 0
    lost = f" and {own.not_numbers} NaN or infinite" if own is not None and own.not_numbers else ""
    return BaselineComparison(
        id=name,
        statistic=name,
        outcome="shown",
        words="",
        observed=mean if math.isfinite(mean) else None,
        expected=expected if math.isfinite(expected) else None,
        ratio=mean / expected if both and mean > 0 and expected > 0 else None,
        difference=mean - expected if both else None,
        data=f"mean over steps {late.first} to {late.last}: {values} logged values{lost}, against {runs}",
    )


def _why_not_comparable(
    name: str,
    figures: Figures,
    own: MetricFigures | None,
    baseline: Baseline,
    theirs: Sequence[MetricFigures],
    late: Span,
    direction: Direction | None,
) -> tuple[str, str]:
    """Return why a metric cannot be judged and what would change that; empty where it can."""
    if direction is None:
        return (
            f"ptt does not know which way {name} gets worse",
            f'set it: metrics = {{ "{name}" = "higher" }}, or "lower", or "both"',
        )
    if not theirs:
        return f"the baseline has no {name}", "renew the baseline with runs that log it"
    logged_as = theirs[0].logged_as
    if own is None:
        return (
            f"the run does not log {name}, or too rarely, between steps {baseline.steps.first} and "
            f"{baseline.steps.last}",
            f"log it as the baseline's runs did ({logged_as})",
        )
    if not _same_meaning(figures, own, baseline, logged_as):
        return (
            f"the run's {own.logged_as} ({figures.framework or 'framework unknown'}) and the baseline's {logged_as} "
            f"({baseline.runs[0].framework or 'framework unknown'}) are means of different things",
            "make a baseline of runs of the same framework",
        )
    logged = own.late.n + own.not_numbers
    if own.not_numbers > LOST_SHARE * logged:
        return (
            f"{own.not_numbers} of {logged} values in steps {late.first} to {late.last} are NaN or infinite",
            "find out where they come from; `ptt diagnose` names the first",
        )
    width = late.last - late.first + 1
    if own.reach is None or own.reach - late.first + 1 < MIN_REACH_SHARE * width:
        reach = f"reaches step {own.reach}" if own.reach is not None else f"ends before step {late.first}"
        return (
            f"the run's {name} {reach}, but the baseline is judged on steps {late.first} to {late.last}",
            "train as far as the baseline did, or make a baseline of equally short runs",
        )
    fewest = min(own.late.n, *(base.late.n for base in theirs))
    if fewest < MIN_WINDOW_VALUES:
        return (
            f"only {fewest} values lie in steps {late.first} to {late.last}; {MIN_WINDOW_VALUES} are needed to "
            "estimate noise",
            "log more often, or train longer",
        )
    return "", ""


def _same_meaning(figures: Figures, own: MetricFigures, baseline: Baseline, logged_as: str) -> bool:
    """Return whether both means are of the same thing: one framework, or at least one name where one is unknown."""
    theirs = baseline.runs[0].framework
    if figures.framework is not None and figures.framework == theirs:
        return True
    unknown = figures.framework is None or theirs is None
    return unknown and own.logged_as.rsplit("train/", 1)[-1] == logged_as.rsplit("train/", 1)[-1]


def _test_difference(
    comparison: BaselineComparison,
    own: MetricFigures,
    theirs: Sequence[MetricFigures],
    direction: Direction,
    limit: float,
) -> Draft:
    """Set the late means side by side; a change in the worse direction counts, as a share of the baseline's level."""
    scale = _scale(comparison, theirs, direction)
    known = group_difference([own.late], [figures.late for figures in theirs], seeds=seed_prior(comparison.id, scale))
    bounds = _allowed(direction.worse, scale, limit), _allowed(direction.worse, scale, must_exclude(limit))
    higher, lower = direction.worse is not Worse.LOWER, direction.worse is not Worse.HIGHER
    p_values = [known.p_higher()] * higher + [known.p_lower()] * lower
    low, high = known.interval()
    beside = replace(
        comparison,
        low=low if math.isfinite(low) else None,
        high=high if math.isfinite(high) else None,
        shown=bounds[1],
        limit=bounds[0][1] if higher and (not lower or known.difference > 0) else bounds[0][0],
        extra={
            "worse": direction.worse.value,
            "why": direction.why,
            "standard_error": known.error if math.isfinite(known.error) else None,
            "between_runs": known.between if math.isfinite(known.between) else None,
            "level": scale,
        },
    )
    p_value = math.nan if any(map(math.isnan, p_values)) else min(1.0, len(p_values) * min(p_values))

    def settle(result: BaselineComparison, adjusted: float) -> BaselineComparison:
        outcome = _outcome(known, bounds, adjusted)
        words = _words(result, outcome, direction, known, limit, scale)
        return replace(result, outcome=outcome, words=words, noise_only=outcome == "blind")

    return Draft(found=beside, p_value=p_value, settle=settle)


def seed_prior(name: str, level: float) -> SeedPrior:
    """Return what is known beforehand of how far seeds of one setting lie apart in a metric of this level."""
    return SeedPrior(sd=SEED_SHARES.get(name, SEED_SHARE) * level, freedom=SEED_FREEDOM)


def _scale(comparison: BaselineComparison, theirs: Sequence[MetricFigures], direction: Direction) -> float:
    """Return the level that a limit is a share of."""
    scatter = SIGNED_SCATTERS * mean_of([figures.late.scatter for figures in theirs]) if direction.signed else 0.0
    return max(abs(comparison.expected or 0.0), direction.floor, scatter if math.isfinite(scatter) else 0.0)


Bounds = tuple[float, float]


def _allowed(worse: Worse, scale: float, factor: float) -> Bounds:
    """Return between which differences a metric is not worse by `factor`; infinite on a side that is not worse."""
    lower = -scale * (1 - 1 / factor) if worse is not Worse.HIGHER else -math.inf
    higher = scale * (factor - 1) if worse is not Worse.LOWER else math.inf
    return lower, higher


def _outcome(known: GroupDifference, bounds: tuple[Bounds, Bounds], adjusted: float) -> Judgement:
    limit, shown = bounds
    if adjusted < FALSE_ALARMS and not limit[0] <= known.difference <= limit[1]:
        return "failed"
    low, high = known.interval()
    return "passed" if shown[0] <= low and high <= shown[1] else "blind"


def _words(
    comparison: BaselineComparison,
    outcome: Judgement,
    direction: Direction,
    known: GroupDifference,
    limit: float,
    scale: float,
) -> str:
    level = _level_words(comparison)
    # where a level counts for more than it is, a reader who divides both means must be told
    raised = f" (a level this low counts as {sig(scale)})" if scale > abs(comparison.expected or 0.0) else ""
    if outcome == "failed":
        return f"{level}, beyond noise and beyond the limit of {limit:g} times{raised}; {direction.why}"
    if outcome == "blind":
        low, high = known.interval()
        reach = f"anything from {sig(low)} to {sig(high)}" if math.isfinite(low) else "anything"
        return f"{level}, but with this noise the difference can be {reach}: too wide to judge"
    limit_at = comparison.limit if comparison.limit is not None else math.inf
    inside = abs(known.difference) <= abs(limit_at)
    return f"{level}, " + ("within the limit" if inside else "beyond the limit, but not beyond noise") + raised


def _level_words(comparison: BaselineComparison) -> str:
    mean = f"{sig(comparison.observed)}" if comparison.observed is not None else "no value"
    expected = f"{sig(comparison.expected)}" if comparison.expected is not None else "no value"
    return f"the late mean is {mean}, the baseline's {expected}"


def find_metric(run: Figures, name: str) -> MetricFigures | None:
    """Return what a run measured of one metric."""
    return next((entry for entry in run.metrics if entry.name == name), None)


def _names(baseline: Baseline) -> list[str]:
    return sorted({entry.name for run in baseline.runs for entry in run.metrics})
