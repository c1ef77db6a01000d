"""Say whether the numbers of a run show an advisory's signature: yes, no, or not recorded, and what would show it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from ptt.diagnostics.advisories.advisory import MetricCondition, RunSignature
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import DiagnosisRecord, Severity
from ptt.diagnostics.statistics.arrays import FloatArray

PRESENCE: Final = ("present", "absent")  # what a metric is, without any shape
MIN_VALUES: Final = 5  # of a metric, to say that it grows or falls: two thirds of them are compared
RANK_CORRELATION: Final = 0.5  # of values with steps: a random walk of few values is often above, white noise hardly
NEAR_NOTHING: Final = 0.2  # of what a metric is later: a first step before the fault set in
SPIKE_WIDTHS: Final = 10.0  # median absolute deviations from the median
MIN_SPIKE_VALUES: Final = 10
CONSOLE: Final = "console:"  # begins the names of what is printed and not counted in steps
TOGETHER: Final = 0.9  # correlation of two metrics that are called the same thing
EQUAL: Final = 1e-6  # relative
COUNTS: Final = Severity.LOW
"""A finding below it is a note, and no sign of anything."""
Tri = bool | None


class Lookup(Protocol):
    """The series of a run by any of their names."""

    def found(self, name: str) -> Series | None:
        """Return the series of this name, if there is one."""


@dataclass(frozen=True, kw_only=True)
class SignatureAnswer:
    """Whether a run shows a signature, by which findings, and what to record where it cannot say."""

    shown: Tri
    faint: bool = False  # by findings of low severity alone
    findings: tuple[str, ...] = ()
    would_show: tuple[str, ...] = ()


def shown_by(signature: RunSignature, record: DiagnosisRecord, lookup: Lookup) -> SignatureAnswer:
    """Look for a signature in a run that was judged."""
    if not signature.shown:
        return SignatureAnswer(shown=None)
    found = {finding.id for finding in record.findings if finding.severity.at_least(COUNTS)}
    severe = {finding.id: finding.severity for finding in reversed(record.findings)}
    blind = {item.id: item.enable for item in record.not_judged if item.applies}
    parts: list[Tri] = []
    would: list[str] = []
    if signature.any_finding:
        parts.append(_any([_judged(name, found, blind) for name in signature.any_finding]))
        would += [blind[name] for name in signature.any_finding if parts[-1] is None and name in blind]
    for name in signature.all_findings:
        parts.append(_judged(name, found, blind))
        would += [blind[name]] if parts[-1] is None and name in blind else []
    parts += [None if name in blind else name not in found for name in signature.no_finding]
    for metric in signature.metrics:
        parts.append(_shape(metric, lookup))
        would += [f"log {name}" for name in _unlogged(metric, lookup)] if parts[-1] is None else []
    measured = parts[len(parts) - len(signature.metrics) :]
    telling = any(metric.is_ not in PRESENCE for metric in signature.metrics)
    if signature.any_finding and parts[0] is None and telling and all(measured):
        parts[0] = True  # no rule could judge it, and what the metrics show is as good
    shown = False if False in parts else None if None in parts else True
    named = tuple(name for name in signature.any_finding + signature.all_findings if name in found)
    return SignatureAnswer(
        shown=shown,
        faint=bool(named) and not telling and all(severe[name] is COUNTS for name in named),
        findings=named if shown else (),
        would_show=tuple(dict.fromkeys(filter(None, would))) if shown is None else (),
    )


def _judged(name: str, found: set[str], blind: Mapping[str, str]) -> Tri:
    return True if name in found else None if name in blind else False


def _any(answers: list[Tri]) -> Tri:
    return True if True in answers else None if None in answers else False


def _unlogged(metric: MetricCondition, lookup: Lookup) -> Iterator[str]:
    for name in (metric.name, metric.other):
        if name is not None and _series(name, lookup) is None:
            yield name


def _series(name: str, lookup: Lookup) -> Series | None:
    """Return a series by its name, also where only a console has it."""
    return lookup.found(name) or lookup.found(f"{CONSOLE}{name}")


def _shape(metric: MetricCondition, lookup: Lookup) -> Tri:
    """Say whether a metric has a shape; None where it is not logged, or too short to say."""
    found = _series(metric.name, lookup)
    series = None if found is None or not np.isfinite(found.values).any() else found
    if metric.is_ in PRESENCE:
        return (series is not None) is (metric.is_ == "present")
    if series is None:
        return None
    if metric.other is not None:
        other = _series(metric.other, lookup)
        return None if other is None else _of_two(metric.is_, series, other)
    values = series.finite()[1]
    if metric.value is not None:
        median = float(np.median(values))
        return median > metric.value if metric.is_ == "above" else median < metric.value
    return SHAPES[metric.is_](values)


def _of_two(shape: str, series: Series, other: Series) -> Tri:
    (steps, values), (others, beside) = series.finite(), other.finite()
    _, own, theirs = np.intersect1d(steps, others, return_indices=True)
    left, right = values[own], beside[theirs]
    if len(left) < MIN_VALUES:
        return None
    if shape == "equals":
        return bool(np.allclose(left, right, rtol=EQUAL, atol=EQUAL * float(np.abs(left).max())))
    if not (left.std() > 0 and right.std() > 0):
        return None
    return bool(np.corrcoef(left, right)[0, 1] > TOGETHER)


def _grows(values: FloatArray) -> Tri:
    """Say whether the last third lies above the first, and the values rise with their order (Spearman)."""
    if len(values) < MIN_VALUES:
        return None
    third = max(1, len(values) // 3)
    if not values[-third:].mean() > values[:third].mean():
        return False
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    return bool(np.corrcoef(ranks, np.arange(len(values)))[0, 1] > RANK_CORRELATION)


def _grows_from_the_second(values: FloatArray) -> Tri:
    if len(values) < MIN_VALUES:
        return None
    return bool(values[0] <= NEAR_NOTHING * np.median(values[1:]))


def _spikes(values: FloatArray) -> Tri:
    if len(values) < MIN_SPIKE_VALUES:
        return None
    middle = np.median(values)
    width = float(np.median(np.abs(values - middle))) or EQUAL * float(np.abs(middle))
    return bool(width > 0 and (np.abs(values - middle) > SPIKE_WIDTHS * width).any())


SHAPES: Final[Mapping[str, Callable[[FloatArray], Tri]]] = {
    "zero": lambda values: bool((values == 0).all()),
    "constant": lambda values: None if len(values) < MIN_VALUES else bool(np.ptp(values) <= EQUAL * abs(values[0])),
    "grows": _grows,
    "falls": lambda values: _grows(-values),
    "grows-from-the-second-step": _grows_from_the_second,
    "spikes": _spikes,
}
