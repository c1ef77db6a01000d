"""The run is not worse than its baseline beyond noise and the limit that the policy gives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ptt.diagnostics.custom.terms import link_of
from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.evidence.logged_metrics import LOST_SHARE
from ptt.diagnostics.gate.baseline import metrics as of_metrics
from ptt.diagnostics.gate.baseline import tails as of_tails
from ptt.diagnostics.gate.baseline.file import read_baseline
from ptt.diagnostics.gate.baseline.measure import DISTRUSTED, Measured, measure, placed
from ptt.diagnostics.gate.baseline.metrics import DIRECTIONS, Chosen
from ptt.diagnostics.gate.baseline.moves import drift, drifted
from ptt.diagnostics.gate.baseline.tails import WHERE
from ptt.diagnostics.gate.baseline.values import Baseline, BaselineComparison, Draft, Figures, MetricFigures, settle
from ptt.diagnostics.gate.policy import AgainstBaseline, Policy
from ptt.diagnostics.gate.results import CheckKind, CheckResult, GatedRun, Outcome
from ptt.diagnostics.gate.token_bounds import distrusted
from ptt.diagnostics.model import Link
from ptt.diagnostics.statistics.autocorrelated_mean import MIN_WINDOW_VALUES
from ptt.diagnostics.statistics.group_difference import holm_adjust
from ptt.diagnostics.statistics.noninferiority import RATIO_LIMIT
from ptt.diagnostics.store.loaded_run import LoadedRun


def against(
    candidate: Measured | Figures, baseline: Baseline, *, limit: float = RATIO_LIMIT, metrics: Chosen | None = None
) -> tuple[BaselineComparison, ...]:
    """Hold a run against a baseline; tails first, then metrics by name.

    `metrics`: those to judge, each with the direction that is worse (higher, lower, both; None: the known one);
    without it all whose direction is known. Others are told as `shown`. Tails count as one question and metrics as
    another: either's p-values are corrected for their own number (Holm). With one correction over both, a run that logs
    more metrics would hide its tails.
    """
    mine = placed(candidate, baseline) if isinstance(candidate, Measured) else candidate
    same = [run for run in baseline.runs if run.source == mine.source]
    others = tuple(run for run in baseline.runs if run.source != mine.source)
    held = replace(baseline, runs=others) if others else baseline
    found = (
        *_settled(of_tails.drafts(mine, held, limit=limit)),
        *_settled(of_metrics.drafts(mine, held, limit=limit, chosen=metrics)),
    )
    if not same:
        return found
    if others:
        return (
            _same_run(mine, same[0], "the baseline holds this very run; it is held against the others alone"),
            *found,
        )
    told = "gated against itself: the baseline is this very run, and nothing of it could fail"
    unjudged = [
        replace(one, outcome="passed", words="the same run", next=()) if _is_judged(one) else one for one in found
    ]
    return (_same_run(mine, same[0], told), *unjudged)


def _settled(drafts: list[Draft]) -> tuple[BaselineComparison, ...]:
    return tuple(map(settle, drafts, holm_adjust([draft.p_value for draft in drafts])))


def _is_judged(one: BaselineComparison) -> bool:
    """Return whether a figure of the very same run is one that can differ from itself by noise only."""
    return one.outcome != "shown" and one.observed is not None and one.expected is not None


def _same_run(mine: Figures, same: Figures, words: str) -> BaselineComparison:
    return BaselineComparison(
        id="source",
        statistic="source",
        outcome="shown",
        words=words,
        data=f"source {mine.source[:12]} is also that of {same.name}",
        next=("gate runs that the baseline was not made of",),
    )


def drift_notes(runs: Sequence[GatedRun], policy: Policy) -> tuple[str, ...]:
    """Tell of drift among the runs that passed; nothing without a baseline, or with too few of them.

    Runs that failed or were blind are left out: what they show is told where they are.
    """
    held = policy.baseline.held if policy.baseline is not None else None
    if held is None:
        return ()
    known = {run.source for run in held.runs}
    passed = [run.figures for run in runs if run.outcome is Outcome.PASSED and run.figures is not None]
    newer = {one.source: one for one in passed if one.source not in known}
    told = drifted(drift(held, list(newer.values())), len(newer))
    return (told,) if told else ()


ID: Final = "baseline"
OUTCOMES: Final = {"passed": Outcome.PASSED, "failed": Outcome.FAILED, "blind": Outcome.BLIND}
SOURCE: Final = "source"
TAILS: Final = "tails"
NOT_DEMANDED: Final = (
    "not named by the policy, and not seen to be as much worse as must be excluded: told, not demanded"
)


def with_baseline(policy: Policy) -> Policy:
    """Read the baseline's file into the policy; SettingsError where it cannot be, or lacks what the policy names."""
    wanted = policy.baseline
    if wanted is None:
        return policy
    held = read_baseline(wanted.file)
    known = {metric.name for run in held.runs for metric in run.metrics}
    for name, worse in (wanted.metrics or {}).items():
        if name not in known:
            names = ", ".join(sorted(known)) or "none"
            raise SettingsError(
                f"{wanted.file}: holds no metric {name!r} that [gate.baseline] metrics names; it has {names}."
            )
        if worse is None and name not in DIRECTIONS:
            raise SettingsError(
                f"[gate.baseline] metrics: which way {name!r} gets worse is not known; write it as"
                f" [gate.baseline.metrics] {name!r} = 'higher', 'lower' or 'both'."
            )
    return replace(policy, baseline=replace(wanted, held=held))


def check_baseline(opened: LoadedRun, policy: Policy) -> tuple[list[CheckResult], list[str], Figures | None]:
    """Return a result for each figure that is judged, what else there is to tell, and the run's own figures."""
    wanted = policy.baseline
    if wanted is None or wanted.held is None:
        return [], [], None
    mine = placed(measure(opened), wanted.held)
    found = against(mine, wanted.held, limit=wanted.limit, metrics=wanted.metrics)
    notes = [f"{one.words} ({one.data})" for one in found if one.statistic == SOURCE]
    distrust = distrusted(opened.diagnosis, mine.pair) if mine.pair is not None else None
    sound = distrust is None and not mine.why_no_tails.startswith(DISTRUSTED)
    excuse = _Excuse(mine=mine, sound=sound, wanted=wanted, lets_pass=policy.cannot_say_passes)
    asked = [_unless(one, distrust) for one in found if not _only_shown(one)]
    results = [_result(one, wanted, excuse) for one in asked]
    noisy = sum(one.excused for one in results)
    if noisy and not policy.cannot_say_passes:
        what = "figure is" if noisy == 1 else "figures are"
        notes.append(f"{noisy} {what} too noisy to be held against the baseline, but {NOT_DEMANDED}")
    if not any(one.outcome in (Outcome.PASSED, Outcome.FAILED) for one in results):
        results.append(_nothing_judged(wanted))
    return results, notes, mine


def _only_shown(one: BaselineComparison) -> bool:
    """Return whether a figure is told and no more; one that was to be judged and got no answer has no words."""
    return one.outcome == "shown" and bool(one.words)


def _unless(one: BaselineComparison, distrust: str | None) -> BaselineComparison:
    """Take back that tails are no worse where their logprobs cannot be trusted; that they are worse stands."""
    if one.statistic != TAILS or distrust is None or one.outcome != "passed":
        return one
    why = f"the logprobs cannot be trusted: {distrust}"
    return replace(one, outcome="blind", words=why, next=("mend how they are recorded first",))


@dataclass(frozen=True, kw_only=True)
class _Excuse:
    """Why a figure that cannot be said may stand; never one that is no number, or of logprobs that are no good."""

    mine: Figures
    sound: bool  # whether its logprobs can be trusted
    wanted: AgainstBaseline
    lets_pass: bool  # cannot_say = "pass"

    def of(self, one: BaselineComparison) -> bool:
        """Return whether this one may.

        Of some ten metrics of a run one or the other is often too noisy to tell 1.6 times from nothing; a gate that
        is blind for each of them would be switched off. One that is itself seen where the interval must not reach (1.6
        times worse) is not one of those, and one that the run has lost is another matter: its baseline shows that
        it can be had.
        """
        if one.statistic == TAILS:
            return self.lets_pass and self.sound
        own = _metric(self.mine, one.statistic)
        if own is not None and own.not_numbers > LOST_SHARE * (own.late.n + own.not_numbers):
            return False
        named = one.statistic in (self.wanted.metrics or {})
        noise = one.noise_only or self._few_of(one.statistic)
        return self.lets_pass or (not named and noise and not one.beyond)

    def _few_of(self, name: str) -> bool:
        """Return whether the baseline's own runs log too little of a metric for any run to be held against it."""
        held = self.wanted.held
        theirs = [one for run in (held.runs if held else ()) if (one := _metric(run, name)) is not None]
        return any(one.late.n < MIN_WINDOW_VALUES for one in theirs)


def _metric(run: Figures, name: str) -> MetricFigures | None:
    return next((one for one in run.metrics if one.name == name), None)


def _result(one: BaselineComparison, wanted: AgainstBaseline, excuse: _Excuse) -> CheckResult:
    outcome = OUTCOMES.get(one.outcome, Outcome.BLIND)
    of_tails = one.statistic == TAILS
    what = f"tails of {one.slice}" if of_tails and one.slice else one.statistic
    if of_tails and (where := WHERE.get(str(one.extra.get("window")))):
        what = f"{what} {where}"  # each is held against the baseline twice
    excused = outcome is Outcome.BLIND and excuse.of(one)
    told = f"; {NOT_DEMANDED}" if excused and not excuse.lets_pass else ""
    low, high = one.allowed or (-math.inf, math.inf)
    return CheckResult(
        id=f"{ID}:{one.id}",
        kind=CheckKind.BASELINE,
        outcome=outcome,
        title=f"{what}: not worse than the baseline",
        claim=(one.words or "its values are too large, or too odd, to be compared") + told,
        data=one.data or "nothing",
        fails_if=f"{what} worse than the baseline beyond noise, and by more than {wanted.limit:g} times",
        observed=one.ratio if of_tails else one.difference,
        limit=one.limit,
        low=one.low,
        high=one.high,
        unit=one.unit,
        link=Link.POLICY_UPDATE if of_tails else link_of(one.statistic),
        expected=None if of_tails else one.expected,
        allowed=(low if math.isfinite(low) else None, high if math.isfinite(high) else None),
        excused=excused,
        next=one.next,
    )


def _nothing_judged(wanted: AgainstBaseline) -> CheckResult:
    return CheckResult(
        id=ID,
        kind=CheckKind.BASELINE,
        outcome=Outcome.BLIND,
        title="the run is held against its baseline",
        claim="nothing that the baseline holds can be judged",
        data="nothing",
        fails_if=f"a figure worse than the baseline beyond noise, and by more than {wanted.limit:g} times",
        next=("make the baseline anew from runs that record tokens and metrics: docs/baselines.md",),
    )
