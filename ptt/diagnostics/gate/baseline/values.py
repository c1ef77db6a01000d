"""A figure beside its baseline before it is known how many others are judged with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from typing import Final, Literal

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.model import JsonScalar
from ptt.diagnostics.statistics.autocorrelated_mean import WindowMean
from ptt.diagnostics.statistics.noninferiority import EXCLUDED_RATIO
from ptt.diagnostics.statistics.tail_curves import Curve
from ptt.diagnostics.statistics.windows import Span

SCHEMA_VERSION: Final = 1
"""Raised whenever the file changes its keys or what they mean, other than by a key that files may lack (ess_late); a
file of another version is made anew."""

Judgement = Literal["passed", "failed", "blind", "shown"]
"""`shown`: told, never part of the outcome."""


class Worse(StrEnum):
    """The direction in which a metric gets worse."""

    HIGHER = "higher"
    LOWER = "lower"
    BOTH = "both"


@dataclass(frozen=True, kw_only=True)
class MetricFigures:
    """One metric of one run over the early, mid and late window of the baseline's steps."""

    name: str  # canonical
    logged_as: str
    windows: tuple[WindowMean, WindowMean, WindowMean]
    not_numbers: int = 0  # NaN and infinities among what was logged in the late window
    reach: int | None = None  # the step up to which values of the late window stand: the last and as far as one does

    @property
    def late(self) -> WindowMean:
        """The window that is judged: where the run ended up."""
        return self.windows[2]


@dataclass(frozen=True, kw_only=True)
class LateEss:
    """ESS/n of all late tokens of one slice at once, as a bound on `ess.<slice>` takes it."""

    slice: str
    share: float  # NaN: too few units, or weights that are no numbers
    noise: float  # standard error of its logarithm
    tokens: int


@dataclass(frozen=True, kw_only=True)
class Figures:
    """One run as a baseline keeps it: small, and measured on the baseline's steps."""

    name: str
    source: str  # sha256 of what the run was read from
    framework: str | None
    algorithm: str | None
    pair: str | None
    slices: tuple[str, ...]
    steps: tuple[int, int, int]  # first, last, and how many have something recorded
    sequences: int
    model_tokens: int
    status: str  # of its diagnosis
    accepted: tuple[str, ...] = ()  # findings at or above high that it was accepted with
    tails: tuple[Curve, ...] = ()
    metrics: tuple[MetricFigures, ...] = ()
    ess: Mapping[str, float] = field(default_factory=dict)  # slice -> mean share of sliding windows, late
    ess_late: tuple[LateEss, ...] = ()  # by slice; none in files of versions that did not keep it
    why_no_tails: str = ""


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """Passing runs of one setting; more than one tells how far seeds lie apart."""

    name: str
    ptt_version: str
    steps: Span  # what all runs share: windows are its thirds
    runs: tuple[Figures, ...]
    schema_version: int = SCHEMA_VERSION


def hull(runs: Sequence[Figures]) -> tuple[Span, ...]:
    """Return the spans of steps that runs' tails are of, wide enough for the recorded steps of each."""
    spans = [run.tails[0].spans for run in runs if run.tails]
    if not spans:
        return ()
    return tuple(Span(min(s.first for s in each), max(s.last for s in each)) for each in zip(*spans, strict=True))


@dataclass(frozen=True, kw_only=True)
class BaselineComparison:
    """One figure of a run beside its baseline, and what is to be thought of it."""

    id: str  # unique among those of a run: tails.<slice>.<all or late>, a metric's name, source, or tails
    statistic: str  # tails, source, or the canonical name of a metric
    outcome: Judgement
    words: str  # one clause: what was seen, or why nothing can be said
    slice: str | None = None  # of tails
    observed: float | None = None  # of the run; tails in nats, those below their floor taken for it
    expected: float | None = None  # of the baseline
    ratio: float | None = None  # observed over expected, where both are above zero
    difference: float | None = None  # observed minus expected
    low: float | None = None  # 95% interval of the ratio for tails, of the difference for metrics
    high: float | None = None
    limit: float | None = None  # the ratio (tails) or difference (metrics) at which it fails, if beyond noise as well
    allowed: tuple[float, float] | None = None  # of metrics: the differences between which it is not worse
    shown: tuple[float, float] | None = None  # of metrics: the differences it must lie between to be said not worse
    noise_only: bool = False  # blind for no other reason than that its interval is too wide to tell
    unit: str = ""  # of what low, high and limit bound: x for tails, the metric's own for differences
    p_value: float | None = None  # after Holm's correction over all that is judged
    data: str = ""  # what it was judged on: window, steps, values or tokens, runs
    next: tuple[str, ...] = ()
    extra: Mapping[str, JsonScalar] = field(default_factory=dict)

    @property
    def beyond(self) -> bool:
        """Return whether a metric looks as much worse as would have to be excluded; True where nobody can say."""
        if self.shown is None or self.difference is None:
            return True
        return not self.shown[0] <= self.difference <= self.shown[1]


@dataclass(frozen=True, kw_only=True)
class Moved:
    """One figure of several runs that lies elsewhere than the baseline's; what `drift` and `diff` tell."""

    statistic: str
    slice: str | None = None
    before: float
    after: float
    low: float = math.nan  # 95% interval of after minus before; for tails of their ratio
    high: float = math.nan
    unit: str = ""
    beyond_noise: bool | None = None  # None: unclear
    words: str = ""
    note: str = ""  # where a floor took part: which, and the figures as they are


FALSE_ALARMS: Final = 0.01
"""Of all metrics of one run, together: a gate runs on every change, and one false alarm a hundred runs is what its
readers stand. Tails have their own (versus.FALSE_ALARMS)."""


def must_exclude(limit: float) -> float:
    """Return the factor that must be excluded before a figure passes; it lies above the limit by as much as usual."""
    return max(EXCLUDED_RATIO, limit * EXCLUDED_RATIO / 1.25)


@dataclass(frozen=True, kw_only=True)
class Draft:
    """What is known before Holm's correction; `settle` then gives the outcome by the corrected p-value."""

    found: BaselineComparison
    p_value: float  # NaN: not asked
    settle: Callable[[BaselineComparison, float], BaselineComparison]


def untested(found: BaselineComparison) -> Draft:
    """Return a draft of something that is only told, or that cannot be said."""
    return Draft(found=found, p_value=float("nan"), settle=lambda comparison, _: comparison)


def settle(draft: Draft, p_value: float) -> BaselineComparison:
    """Return the finished figure."""
    if p_value != p_value:
        return draft.found
    return draft.settle(replace(draft.found, p_value=p_value), p_value)
