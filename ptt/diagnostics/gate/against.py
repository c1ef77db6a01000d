"""The run is not worse than its baseline beyond noise and the limit that the policy gives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ptt.diagnostics.baseline.directions import DIRECTIONS
from ptt.diagnostics.baseline.judging import against
from ptt.diagnostics.baseline.measuring import measure
from ptt.diagnostics.baseline.reading import read_baseline
from ptt.diagnostics.baseline.values import Against
from ptt.diagnostics.custom.subjects import link_of
from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.gate.policy import AgainstBaseline, Policy
from ptt.diagnostics.gate.values import CheckKind, CheckResult, Outcome
from ptt.diagnostics.kept.opened import Opened
from ptt.diagnostics.model import Link

ID: Final = "baseline"
OUTCOMES: Final = {"passed": Outcome.PASSED, "failed": Outcome.FAILED, "blind": Outcome.BLIND}
SOURCE: Final = "source"
TAILS: Final = "tails"


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


def check_baseline(opened: Opened, policy: Policy) -> tuple[list[CheckResult], list[str]]:
    """Give a result for each figure that is judged, and what else there is to tell."""
    wanted = policy.baseline
    if wanted is None or wanted.held is None:
        return [], []
    found = against(measure(opened), wanted.held, limit=wanted.limit, metrics=wanted.metrics)
    notes = [f"{one.words} ({one.data})" for one in found if one.statistic == SOURCE]
    results = list(_results(found, wanted, lets_pass=policy.cannot_say_passes))
    return results or [_nothing(wanted)], notes


def _results(found: tuple[Against, ...], wanted: AgainstBaseline, *, lets_pass: bool) -> Iterator[CheckResult]:
    for one in found:
        if one.outcome == "shown":
            continue
        outcome = OUTCOMES[one.outcome]
        of_tails = one.statistic == TAILS
        what = f"tails of {one.slice}" if of_tails and one.slice else one.statistic
        yield CheckResult(
            id=f"{ID}:{one.id}",
            kind=CheckKind.BASELINE,
            outcome=outcome,
            title=f"{what}: not worse than the baseline",
            claim=one.words,
            data=one.data or "nothing",
            fails_if=f"{what} worse than the baseline beyond noise, and by more than {wanted.limit:g} times",
            observed=one.ratio if of_tails else one.difference,
            limit=one.limit,
            low=one.low,
            high=one.high,
            unit=one.unit,
            link=Link.POLICY_UPDATE if of_tails else link_of(one.statistic),
            excused=outcome is Outcome.BLIND and lets_pass,
            next=one.next,
        )


def _nothing(wanted: AgainstBaseline) -> CheckResult:
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
