"""Judge one run by a policy: all checks, worst first, and what they come to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date
from typing import Final

from ptt.diagnostics.gate.against_baseline import check_baseline
from ptt.diagnostics.gate.baseline.measure import holds_training
from ptt.diagnostics.gate.bounds import check_bounds
from ptt.diagnostics.gate.findings import check_advisories, check_findings, idle_allowances
from ptt.diagnostics.gate.policy import Policy, rule_of
from ptt.diagnostics.gate.results import (
    PASSES_ALTHOUGH,
    CheckKind,
    CheckResult,
    GatedRun,
    Outcome,
    cannot_say_note,
    rank,
    worst,
)
from ptt.diagnostics.gate.traces import check_traces
from ptt.diagnostics.model import STEP, Diagnosis, Severity, Status, in_unit
from ptt.diagnostics.rules import tool_tail_growth
from ptt.diagnostics.store.damage import MAX_LOST, Damage, damage_of, percent
from ptt.diagnostics.store.diagnosis import LoadedRun
from ptt.diagnostics.traces.compare import TraceSide
from ptt.diagnostics.wording import sig


def decide(diagnosis: Diagnosis, *, fail_on: Severity | None) -> Outcome:
    """A crash of a rule is ours and outranks all; then a finding at or above `fail_on`; then nothing judged at all."""
    if diagnosis.crashes:
        return Outcome.CRASHED
    if fail_on is not None and any(finding.severity.at_least(fail_on) for finding in diagnosis.findings):
        return Outcome.FAILED
    if not diagnosis.healthy and not diagnosis.findings:
        return Outcome.BLIND
    if not holds_training(diagnosis):
        return Outcome.BLIND
    return Outcome.PASSED


def check_extent(opened: LoadedRun, policy: Policy) -> Iterator[CheckResult]:
    """Yield one result for each guard that is set; a run that falls short is blind, for it was not seen failing."""
    run, extent = opened.diagnosis.run, policy.extent
    damage = damage_of(opened.diagnosis)
    if damage.words or extent.max_lost is not None:
        yield _check_damage(damage, extent.max_lost)
    few = "too little of the run is recorded"
    unfinished = f"no {run.step_unit} is recorded" if run.last_step is None else "the run ended earlier"
    for key, reached, unit, short in (
        ("min_steps", run.step_count, f"logged {run.step_unit}s", "the run is too short to judge"),
        ("last_step", run.last_step, "as its last step", unfinished),
        ("min_sequences", run.sequences, "recorded sequences", few),
        ("min_model_tokens", run.model_tokens, "recorded model tokens", few),
    ):
        if (least := getattr(extent, key)) is not None:
            yield _check_reached(key, reached, least, unit, short)


def damage_note(opened: LoadedRun, policy: Policy) -> Iterator[str]:
    """Yield a note on damage that the policy lets pass: what was lost was not judged."""
    damage = damage_of(opened.diagnosis)
    if damage.words and not _exceeds_limit(damage, policy.extent.max_lost):
        yield f"not all of the run could be read, which the policy accepts: {damage.words}"


def _exceeds_limit(damage: Damage, most: float | None) -> bool:
    """Return whether so much is lost that what is left says nothing of the run.

    How much a torn archive lost, or a folder that may not be read holds, is not known, so that it is let pass only
    where all may be lost. A file of tokens or metrics that is lost as a whole is let pass where a share was written
    down and reviewed.
    """
    if most is None:
        return damage.whole or damage.share > MAX_LOST
    return damage.share > most or (damage.unmeasured and most < 1)


def _check_damage(damage: Damage, most: float | None) -> CheckResult:
    bad, limit = _exceeds_limit(damage, most), MAX_LOST if most is None else most
    set_it = "max_lost = 1" if damage.unmeasured else f"a max_lost above {sig(damage.share)}"
    again = "run ptt as a user who can read every file of the run" if damage.closed else "pack or copy the run again"
    whole = "" if most is not None else ", a file of tokens or metrics lost as a whole, a file that cannot be read"
    return CheckResult(
        id="extent:damage",
        kind=CheckKind.EXTENT,
        outcome=Outcome.BLIND if bad else Outcome.PASSED,
        title=f"no more than {percent(limit)} of the run is lost",
        claim=damage.words or "every file could be read to its end",
        data="the run's files, by what was read of each",
        fails_if=f"more than {percent(limit)} of its bytes{whole} or a torn archive leaves the gate blind: the failure "
        "may be in the lost part",
        observed=None if damage.unmeasured else damage.share,
        limit=limit,
        next=(f"{again}; if nothing more exists, {set_it} under [gate] lets it pass",) if bad else (),
    )


def _check_reached(key: str, count: int | None, least: int, unit: str, short: str) -> CheckResult:
    passed = count is not None and count >= least
    ends = key == "last_step"
    return CheckResult(
        id=f"extent:{key}",
        kind=CheckKind.EXTENT,
        outcome=Outcome.PASSED if passed else Outcome.BLIND,
        title=f"the run reaches step {least}" if ends else f"the run has at least {least} {unit}",
        claim=(f"it reaches step {count}" if ends else f"it has {count}") if passed else short,
        data="the steps of logs and of recorded tokens" if "step" in key else "the recorded tokens",
        fails_if=f"{f'an end before step {least} leaves' if ends else f'fewer than {least} {unit} leave'} the gate "
        "blind: that is too little to pass or fail the run",
        metric=key,
        observed=None if count is None else float(count),
        limit=float(least),
        next=() if passed else ("let the run finish, or gate all of it: its last files may be missing",),
    )


def check_required(opened: LoadedRun, policy: Policy) -> Iterator[CheckResult]:
    """Yield one result for each rule that the policy requires."""
    diagnosis = opened.diagnosis
    for rule in policy.require:
        unjudged = next((entry for entry in diagnosis.not_judged if entry.id == rule), None)
        healthy = next((entry for entry in diagnosis.healthy if entry.id == rule), None)
        finding = next((entry for entry in diagnosis.findings if rule_of(entry.id) == rule), None)
        steps: tuple[str, ...] = ()
        outcome, data = Outcome.BLIND, "no answer"
        if any(entry.id == rule for entry in diagnosis.crashes):
            claim = "the rule itself crashed"
        elif unjudged is not None:
            claim = f"it cannot say: {unjudged.reason}"
            steps = (unjudged.enable,) if unjudged.enable else ()
            if not unjudged.applies:
                steps = ("take the rule out of `require` for runs of this kind",)
        elif finding is not None:
            outcome, claim, data = Outcome.PASSED, f"it gives one: {finding.claim}", "the finding of this rule"
        elif healthy is not None:
            outcome, claim, data = Outcome.PASSED, f"it found nothing: {healthy.reason}", "what this rule looked at"
        else:
            claim = "this rule gave no answer"
            steps = ("give the run, its archive or its store: it was judged without this rule, or by an older version",)
        answer = unjudged or healthy or finding
        yield CheckResult(
            id=f"required:{rule}",
            kind=CheckKind.REQUIRED,
            outcome=outcome,
            title=f"the rule {rule} gives an answer",
            claim=claim,
            data=data,
            fails_if=f"no answer of {rule} because data is missing (blind); what it finds counts by its severity",
            rule=rule,
            link=answer.link if answer else None,
            next=steps,
        )


SETTINGS_NOTE: Final = "a findings.json counts as it was written, with the version, limits and rules of that time"


def check_origin(opened: LoadedRun, policy: Policy) -> Iterator[CheckResult]:
    """Yield a result where the settings change how a run is judged, and nobody can tell whether this one was."""
    if opened.kind != "findings" or not policy.judged_by:
        return
    named = " and ".join(policy.judged_by)
    yield CheckResult(
        id="settings",
        kind=CheckKind.REQUIRED,
        outcome=Outcome.BLIND,
        title=f"the run was judged by {named} of these settings",
        claim="it is a findings.json, which does not record the settings it was judged by",
        data="findings.json",
        fails_if="a run with only a findings.json leaves the gate blind",
        next=("give the run, its archive or its store, so that it is judged by these settings",),
    )


def origin_note(opened: LoadedRun) -> Iterator[str]:
    """Yield a note if a run was not judged here: a store without its tokens counts as the version before judged it."""
    if opened.kind == "findings":
        yield SETTINGS_NOTE
    if opened.diagnosis.judged_with:
        yield opened.diagnosis.judged_with


def judge(opened: LoadedRun, policy: Policy, *, name: str, today: date, traces: TraceSide | None = None) -> GatedRun:
    """Check a run against a policy. A crash outranks a failure, that outranks what cannot be said; `today` dates
    allowances and nothing else. `traces`: the episodes that lie beside its curves.
    """
    beside, baseline_notes, figures = check_baseline(opened, policy)
    diagnosis = opened.diagnosis
    made = [*_checks(opened, policy, today), *check_traces(traces, policy), *beside]
    checks = sorted((_check_in_unit(check, diagnosis.run.step_unit) for check in made), key=rank)
    return GatedRun(
        name=name,
        outcome=outcome_of(checks),
        checks=tuple(checks),
        status=diagnosis.verdict.status,
        headline=diagnosis.verdict.headline,
        framework=diagnosis.run.framework,
        steps=diagnosis.run.step_count,
        step_unit=diagnosis.run.step_unit,
        model_tokens=diagnosis.run.model_tokens,
        notes=(
            *origin_note(opened),
            *damage_note(opened, policy),
            *_excused_notes(checks, policy),
            *cannot_say_note(checks, outcome_of(checks), diagnosis.verdict.status),
            *_passed_findings(diagnosis, checks, policy),
            *baseline_notes,
            *idle_allowances(opened, policy, today=today),
        ),
        figures=figures,
    )


def outcome_of(checks: Sequence[CheckResult]) -> Outcome:
    """Return what checks come to; those that are blind and excused do not count, and nothing to go by is blind."""
    return worst([check.outcome for check in checks if not check.excused])


def _checks(opened: LoadedRun, policy: Policy, today: date) -> Iterator[CheckResult]:
    for crash in opened.diagnosis.crashes:
        yield CheckResult(
            id=f"crash:{crash.id}",
            kind=CheckKind.CRASH,
            outcome=Outcome.CRASHED,
            title=f"the rule {crash.id} ran" if crash.of_rule else f"{crash.id} worked",
            claim=f"it crashed: {crash.error}",
            data="no answer",
            fails_if="an error in the rule: a bug in ptt or in a custom rule, not in the run",
            rule=crash.id,
            next=("report it with the message above; if it is a custom rule, check its file",),
        )
    yield from check_findings(opened, policy, today=today)
    yield from check_advisories(opened, policy, today=today)
    yield from check_origin(opened, policy)
    yield from check_extent(opened, policy)
    yield from check_required(opened, policy)
    yield from check_bounds(opened, policy)


def _excused_notes(checks: Sequence[CheckResult], policy: Policy) -> tuple[str, ...]:
    count = sum(check.excused for check in checks)
    if not count or not policy.cannot_say_passes:
        return ()
    noun = "check had" if count == 1 else "checks had"
    return (f"{count} {noun} no data, which the policy accepts (cannot_say = 'pass')",)


def _passed_findings(diagnosis: Diagnosis, checks: Sequence[CheckResult], policy: Policy) -> Iterator[str]:
    """Yield a note on what the verdict of a run that passes rests on, and on each material tail in it."""
    if outcome_of(checks) is not Outcome.PASSED:
        return
    unsound = diagnosis.verdict.status in {Status.SUSPECT, Status.UNSTABLE}
    for finding in diagnosis.findings:
        tail = rule_of(finding.id) == tool_tail_growth.ID
        if not (tail or (unsound and finding is diagnosis.findings[0])) or not finding.severity.at_least(
            Severity.MEDIUM
        ):
            continue
        if policy.severity is not None and finding.severity.at_least(policy.severity):
            continue  # an allowance lets it pass, and says so
        where = f", {finding.slice}" if finding.slice else ""
        beside = "; it is no worse than the baseline" if tail and policy.baseline is not None else ""
        level = finding.severity.value
        yield (
            f"{PASSES_ALTHOUGH}the diagnosis finds {finding.id} ({level}{where}): {finding.claim}{beside}; severity "
            f'= "{level}" would fail it'
        )


def _check_in_unit(check: CheckResult, unit: str) -> CheckResult:
    """Call the steps of a check what the rows of the run's log are."""
    if unit == STEP:
        return check
    return replace(
        check,
        title=in_unit(check.title, unit, counts=True),
        claim=in_unit(check.claim, unit, counts=True),
        data=in_unit(check.data, unit, counts=True),
        fails_if=in_unit(check.fails_if, unit, counts=True),
        next=tuple(in_unit(step, unit) for step in check.next),
    )
