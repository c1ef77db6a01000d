"""The run is not worse than its baseline beyond noise and the limit that the policy gives."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from ptt.diagnostics.custom.terms import link_of
from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.evidence.logged_metrics import LOST_SHARE
from ptt.diagnostics.gate.baseline import metrics as of_metrics
from ptt.diagnostics.gate.baseline import tails as of_tails
from ptt.diagnostics.gate.baseline.file import read_baseline
from ptt.diagnostics.gate.baseline.measure import DISTRUSTED, Measured, measure, placed
from ptt.diagnostics.gate.baseline.metrics import DIRECTIONS, Chosen, find_metric
from ptt.diagnostics.gate.baseline.moves import drift, drifted
from ptt.diagnostics.gate.baseline.tails import WHERE
from ptt.diagnostics.gate.baseline.values import Baseline, BaselineComparison, Draft, Figures, settle
from ptt.diagnostics.gate.bounds import distrusted
from ptt.diagnostics.gate.policy import AgainstBaseline, Policy
from ptt.diagnostics.gate.results import AGAINST_ITSELF, CheckKind, CheckResult, GatedRun, Outcome
from ptt.diagnostics.model import Link
from ptt.diagnostics.statistics.autocorrelated_mean import MIN_WINDOW_VALUES
from ptt.diagnostics.statistics.group_difference import holm_adjust, hommel_adjust
from ptt.diagnostics.statistics.noninferiority import RATIO_LIMIT
from ptt.diagnostics.store.diagnosis import LoadedRun


def against(
    candidate: Measured | Figures, baseline: Baseline, *, limit: float = RATIO_LIMIT, metrics: Chosen | None = None
) -> tuple[BaselineComparison, ...]:
    """Compare a run with a baseline; tails first, then metrics by name.

    `metrics`: those to judge, each with the direction that is worse (higher, lower, both; None: the known one);
    without it all whose direction is known. Others are told as `shown`. Tails count as one question and metrics as
    another: either's p-values are corrected for their own number (tails, which rise together, by Hommel; metrics by
    Holm). With one correction over both, a run that logs more metrics would hide its tails.
    """
    figures = placed(candidate, baseline) if isinstance(candidate, Measured) else candidate
    same = [run for run in baseline.runs if run.source == figures.source]
    others = tuple(run for run in baseline.runs if run.source != figures.source)
    reference = replace(baseline, runs=others) if others else baseline
    comparisons = (
        *_adjust_p_values(of_tails.drafts(figures, reference, limit=limit, setting=baseline.runs), hommel_adjust),
        *_adjust_p_values(of_metrics.drafts(figures, reference, limit=limit, chosen=metrics), holm_adjust),
    )
    if not same:
        return comparisons
    if others:
        return (
            _same_run(figures, same[0], "the baseline includes this run; it is compared with the other runs only"),
            *comparisons,
        )
    note = f"{AGAINST_ITSELF}: the baseline was made from this run, so nothing could fail"
    unjudged = [
        replace(comparison, outcome="passed", words="the same run", next=()) if _is_judged(comparison) else comparison
        for comparison in comparisons
    ]
    return (_same_run(figures, same[0], note), *unjudged)


def _adjust_p_values(
    drafts: list[Draft], adjust: Callable[[Sequence[float]], list[float]]
) -> tuple[BaselineComparison, ...]:
    return tuple(map(settle, drafts, adjust([draft.p_value for draft in drafts])))


def _is_judged(comparison: BaselineComparison) -> bool:
    """Return whether a figure of the very same run is one that can differ from itself by noise only."""
    return comparison.outcome != "shown" and comparison.observed is not None and comparison.expected is not None


def _same_run(figures: Figures, same: Figures, words: str) -> BaselineComparison:
    return BaselineComparison(
        id="source",
        statistic="source",
        outcome="shown",
        words=words,
        data=f"source {figures.source[:12]} is also the source of {same.name}",
        next=("gate runs that are not part of the baseline",),
    )


def drift_notes(runs: Sequence[GatedRun], policy: Policy) -> tuple[str, ...]:
    """Return a note on drift among the runs that passed; nothing without a baseline, or with too few of them.

    Runs that failed or were blind are left out: what they show is told where they are.
    """
    baseline = policy.baseline.held if policy.baseline is not None else None
    if baseline is None:
        return ()
    known = {run.source for run in baseline.runs}
    passed = [run.figures for run in runs if run.outcome is Outcome.PASSED and run.figures is not None]
    newer = {figures.source: figures for figures in passed if figures.source not in known}
    sentence = drifted(drift(baseline, list(newer.values())), len(newer))
    return (sentence,) if sentence else ()


ID: Final = "baseline"
OUTCOMES: Final = {"passed": Outcome.PASSED, "failed": Outcome.FAILED, "blind": Outcome.BLIND}
SOURCE: Final = "source"
TAILS: Final = "tails"
NOT_DEMANDED: Final = (
    "reported, not required: the policy does not name it, and the data do not show that it is worse by the limit"
)


def with_baseline(policy: Policy) -> Policy:
    """Read the baseline's file into the policy; SettingsError where it cannot be, or lacks what the policy names."""
    wanted = policy.baseline
    if wanted is None:
        return policy
    baseline = read_baseline(wanted.file)
    known = {metric.name for run in baseline.runs for metric in run.metrics}
    for name, worse in (wanted.metrics or {}).items():
        if name not in known:
            names = ", ".join(sorted(known)) or "none"
            raise SettingsError(
                f"{wanted.file}: has no metric {name!r}, which [gate.baseline] metrics names; it has {names}."
            )
        if worse is None and name not in DIRECTIONS:
            raise SettingsError(
                f"[gate.baseline] metrics: ptt does not know which way {name!r} gets worse; write "
                f"[gate.baseline.metrics] {name!r} = 'higher', 'lower' or 'both'."
            )
    return replace(policy, baseline=replace(wanted, held=baseline))


def check_baseline(opened: LoadedRun, policy: Policy) -> tuple[list[CheckResult], list[str], Figures | None]:
    """Return a result for each figure that is judged, what else there is to tell, and the run's own figures."""
    wanted = policy.baseline
    if wanted is None or wanted.held is None:
        return [], [], None
    figures = placed(measure(opened), wanted.held)
    comparisons = against(figures, wanted.held, limit=wanted.limit, metrics=wanted.metrics)
    notes = [f"{comparison.words} ({comparison.data})" for comparison in comparisons if comparison.statistic == SOURCE]
    distrust = distrusted(opened.diagnosis, figures.pair) if figures.pair is not None else None
    sound = distrust is None and not figures.why_no_tails.startswith(DISTRUSTED)
    excuse = _Excuse(mine=figures, sound=sound, wanted=wanted, lets_pass=policy.cannot_say_passes)
    asked = [_withhold_pass(comparison, distrust) for comparison in comparisons if not _only_shown(comparison)]
    results = [_result(comparison, wanted, excuse) for comparison in asked]
    noisy = sum(result.excused for result in results)
    if noisy and not policy.cannot_say_passes:
        phrase = "figure is" if noisy == 1 else "figures are"
        notes.append(f"{noisy} {phrase} too noisy to compare with the baseline, but {NOT_DEMANDED}")
    if not any(result.outcome in (Outcome.PASSED, Outcome.FAILED) for result in results):
        results.append(_nothing_judged(wanted))
    return results, notes, figures


def _only_shown(comparison: BaselineComparison) -> bool:
    """Return whether a figure is told and no more; one that was to be judged and got no answer has no words."""
    return comparison.outcome == "shown" and bool(comparison.words)


def _withhold_pass(comparison: BaselineComparison, distrust: str | None) -> BaselineComparison:
    """Withhold that tails are no worse where their logprobs cannot be trusted; that they are worse stands."""
    if comparison.statistic != TAILS or distrust is None or comparison.outcome != "passed":
        return comparison
    why = f"the logprobs cannot be trusted: {distrust}"
    return replace(comparison, outcome="blind", words=why, next=("fix how they are recorded first",))


@dataclass(frozen=True, kw_only=True)
class _Excuse:
    """Why a figure that cannot be said may stand; never one that is no number, or of logprobs that are no good."""

    mine: Figures
    sound: bool  # whether its logprobs can be trusted
    wanted: AgainstBaseline
    lets_pass: bool  # cannot_say = "pass"

    def of(self, comparison: BaselineComparison) -> bool:
        """Return whether this one may.

        Of some ten metrics of a run one or the other is often too noisy to tell 1.6 times from nothing; a gate that
        is blind for each of them would be switched off. One that is itself seen where the interval must not reach (1.6
        times worse) is not one of those, and one that the run has lost is another matter: its baseline shows that
        it can be had.
        """
        if comparison.statistic == TAILS:
            return self.lets_pass and self.sound
        own = find_metric(self.mine, comparison.statistic)
        if own is not None and own.not_numbers > LOST_SHARE * (own.late.n + own.not_numbers):
            return False
        named = comparison.statistic in (self.wanted.metrics or {})
        noise = comparison.noise_only or self._is_sparse_in_baseline(comparison.statistic)
        return self.lets_pass or (not named and noise and not comparison.beyond)

    def _is_sparse_in_baseline(self, name: str) -> bool:
        """Return whether the baseline's own runs log too little of a metric for any run to be held against it."""
        baseline = self.wanted.held
        metrics = (find_metric(run, name) for run in (baseline.runs if baseline else ()))
        return any(metric is not None and metric.late.n < MIN_WINDOW_VALUES for metric in metrics)


def _result(comparison: BaselineComparison, wanted: AgainstBaseline, excuse: _Excuse) -> CheckResult:
    outcome = OUTCOMES.get(comparison.outcome, Outcome.BLIND)
    of_tails = comparison.statistic == TAILS
    subject = f"tails of {comparison.slice}" if of_tails and comparison.slice else comparison.statistic
    if of_tails and (where := WHERE.get(str(comparison.extra.get("window")))):
        subject = f"{subject} {where}"  # each is held against the baseline twice
    are = f"the {subject} are" if of_tails else f"{subject} is"
    excused = outcome is Outcome.BLIND and excuse.of(comparison)
    suffix = f"; {NOT_DEMANDED}" if excused and not excuse.lets_pass else ""
    low, high = comparison.allowed or (-math.inf, math.inf)
    return CheckResult(
        id=f"{ID}:{comparison.id}",
        kind=CheckKind.BASELINE,
        outcome=outcome,
        title=f"{are} not worse than the baseline's",
        claim=(comparison.words or "its values are too large or too irregular to compare") + suffix,
        data=comparison.data or "nothing",
        fails_if=f"{subject} worse than the baseline's beyond noise and by more than {wanted.limit:g} times",
        observed=comparison.ratio if of_tails else comparison.difference,
        limit=comparison.limit,
        low=comparison.low,
        high=comparison.high,
        unit=comparison.unit,
        metric=subject,
        link=Link.POLICY_UPDATE if of_tails else link_of(comparison.statistic),
        expected=None if of_tails else comparison.expected,
        allowed=(low if math.isfinite(low) else None, high if math.isfinite(high) else None),
        excused=excused,
        next=comparison.next,
    )


def _nothing_judged(wanted: AgainstBaseline) -> CheckResult:
    return CheckResult(
        id=ID,
        kind=CheckKind.BASELINE,
        outcome=Outcome.BLIND,
        title="the run is compared with its baseline",
        claim="nothing in the baseline can be judged",
        data="nothing",
        fails_if=f"a figure worse than the baseline beyond noise, and by more than {wanted.limit:g} times",
        next=("renew the baseline from runs that record tokens and metrics: docs/baselines.md",),
    )
