"""A rule's three cases by its fault: found once it is there, healthy before it, not judged on the first few rows.

`benchmarks/loop/faults` puts each fault into made runs. A rule of logged curves is asked about these; where it needs
samples, evaluations or ranks, the run is written and diagnosed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from builders import evidence_of, series_of

from benchmarks.loop.faults import FAULTS, NOT_MADE, Fault
from benchmarks.loop.faults.fault import TOOLS
from benchmarks.loop.files import LOST, named, write
from benchmarks.loop.healthy import healthy
from benchmarks.loop.made import Made
from ptt import api
from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.algorithm import detect_algorithm
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.metrics.aliases import canonical
from ptt.diagnostics.model import Broken, Diagnosis, Finding, Healthy, Link, NotJudged, RuleVerdict, Severity
from ptt.diagnostics.rules import RULES

BY_ID = {rule.id: rule for rule in RULES}
NAMING = [fault for fault in FAULTS if fault.name in BY_ID]
FEW_ROWS = 2  # fewer than any rule can say something about
SEEDS = (1, 2, 3)
MANY_SEEDS = range(4, 14)
MARKED = [
    pytest.param(fault, id=fault.name, marks=pytest.mark.slow if place % 3 or fault.algorithms == TOOLS else ())
    for place, fault in enumerate(NAMING)
]
"""Every third is asked in `make test`; runs with tools hold hundreds of samples, which take their time."""


def test_every_rule_about_the_loop_has_a_fault_of_its_name() -> None:
    about_the_loop = {rule.id for rule in RULES if rule.link is not Link.DATA_VALIDITY}
    assert about_the_loop - {fault.name for fault in FAULTS} - set(NOT_MADE) == set()


def test_every_fault_of_a_rules_name_is_named_by_that_rule() -> None:
    assert [fault.name for fault in NAMING if fault.ids[0] != fault.name] == []
    assert {name for fault in FAULTS for name in fault.ids} <= BY_ID.keys()


def runs_of(fault: Fault, seed: int) -> tuple[Made, Made, int]:
    """Return a healthy run, the same with the fault, and the step from which it is there."""
    run = healthy(fault.algorithms[0], seed, dialects=fault.dialects)
    return run, *fault.inject(run, 1.0)


def first_rows(run: Made, count: int) -> Made:
    """Return what a run held when it had logged so many rows."""
    last = run.steps[count - 1]
    evals = run.evals.steps <= last
    return replace(
        run,
        steps=run.steps[:count],
        train={name: values[:count] for name, values in run.train.items()},
        extra={name: values[:count] for name, values in run.extra.items()},
        ranks={name: values[:count] for name, values in run.ranks.items()},
        evals=replace(
            run.evals,
            steps=run.evals.steps[evals],
            values={name: values[evals] for name, values in run.evals.values.items()},
        ),
        extra_evals={name: values[evals] for name, values in run.extra_evals.items()},
        samples=[sample for sample in run.samples if sample.step <= last],
        lines=[],
        planned=int(last),
        restart=None,
    )


def curves(run: Made) -> Evidence:
    """Return the logged curves of a run as evidence."""
    metrics: dict[str, Series] = {}
    for raw, values in named(run).items():
        logged = ~np.isnan(values)
        if (name := canonical(raw)) is not None and logged.any():
            finite = np.where(values == LOST, np.nan, values)
            metrics[name] = series_of(name, finite[logged], steps=run.steps[logged].tolist())
    return replace(evidence_of(metrics=metrics), algorithm=detect_algorithm({}, metrics, logged=list(named(run))))


def diagnosed(run: Made, folder: Path) -> Diagnosis:
    """Judge a run as `ptt diagnose` reads it."""
    return api.diagnose(write(run, folder))


@cache
def healthy_diagnosis(algorithm: str, dialects: tuple[str, ...]) -> Diagnosis:
    """Judge the healthy run that faults of this kind are put into."""
    with TemporaryDirectory() as folder:
        return diagnosed(healthy(algorithm, 1, dialects=dialects), Path(folder))


def verdict_in(found: Diagnosis, rule: str) -> RuleVerdict:
    """Return a rule's verdict."""
    findings = tuple(finding for finding in found.findings if finding.id == rule)
    if findings:
        return Broken(findings=findings)
    answers: list[Healthy | NotJudged] = [*found.healthy, *found.not_judged]
    return next(answer for answer in answers if answer.id == rule)


def findings_in(verdict: RuleVerdict) -> tuple[Finding, ...]:
    match verdict:
        case Broken(findings=findings) | Healthy(notes=findings):
            return findings
        case NotJudged():
            return ()


def on_curves(fault: Fault, seed: int) -> tuple[RuleVerdict, list[RuleVerdict], RuleVerdict]:
    """Return a rule's verdicts on its fault, on the run without and before it, and on the first few rows."""
    harmed = runs_of(fault, seed)[1]
    judge = BY_ID[fault.name].run
    return judge(curves(harmed)), before(fault, seed), judge(curves(first_rows(harmed, FEW_ROWS)))


def before(fault: Fault, seed: int) -> list[RuleVerdict]:
    """Return a rule's verdicts on the curves of a run without its fault, and of one before it."""
    run, harmed, onset = runs_of(fault, seed)
    sound = [run] if fault.of_start else [run, first_rows(harmed, harmed.place(onset))]
    return [BY_ID[fault.name].run(curves(one)) for one in sound]


def names_it(verdict: RuleVerdict, fault: Fault) -> bool:
    return any(finding.severity.at_least(fault.least) for finding in findings_in(verdict))


def alarms(verdict: RuleVerdict) -> list[str]:
    return [finding.claim for finding in findings_in(verdict) if finding.severity.at_least(Severity.MEDIUM)]


@pytest.mark.parametrize("fault", MARKED)
def test_a_rule_tells_a_run_with_its_fault_from_one_without(fault: Fault, tmp_path: Path) -> None:
    broken, sound, few = on_curves(fault, 1)
    if isinstance(broken, NotJudged):  # it asks for more than curves
        harmed = ((runs_of(fault, seed)[1], tmp_path / str(seed)) for seed in SEEDS)
        assert any(names_it(verdict_in(diagnosed(run, folder), fault.name), fault) for run, folder in harmed)
        assert alarms(verdict_in(healthy_diagnosis(fault.algorithms[0], fault.dialects), fault.name)) == []
    else:
        assert names_it(broken, fault), broken
        assert any(isinstance(verdict, Healthy) for verdict in sound), sound
        assert [claim for verdict in sound for claim in alarms(verdict)] == []
    assert isinstance(few, NotJudged)


@pytest.mark.slow
@pytest.mark.parametrize("fault", NAMING, ids=lambda fault: fault.name)
def test_a_rule_of_curves_is_quiet_before_its_fault(fault: Fault) -> None:
    quiet = {seed: [claim for verdict in before(fault, seed) for claim in alarms(verdict)] for seed in MANY_SEEDS}
    assert {seed: claims for seed, claims in quiet.items() if claims} == {}
