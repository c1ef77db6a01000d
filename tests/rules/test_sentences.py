"""What rules say of any run: sentences of words and numbers, never of values that are none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from builders import aggregates, evidence_of
from slow_cases import first_fast

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.algorithm import Algorithm, Family
from ptt.diagnostics.evidence.machines import Event
from ptt.diagnostics.metrics.catalogue import metrics as metrics_known
from ptt.diagnostics.model import Answer, Broken, Finding, Healthy, NotJudged, RuleVerdict, Signature
from ptt.diagnostics.rules import RULES
from ptt.diagnostics.verdict.coverage import what_was_seen, would_show
from ptt.diagnostics.verdict.headline import verdict_of

SAID_BY_MISTAKE = re.compile(r"\b(?:None|nan(?!-precursors)|NaT|inf)\b")
"""Values that reached a sentence; NaN as the name of one is spelt so."""
SHAPES = {
    "nothing": np.array([]),
    "one": np.array([0.5]),
    "four": np.array([0.5, 0.4, 0.6, 0.5]),
    "thirty": np.linspace(0.2, 0.6, 30),
    "constant": np.full(120, 0.5),
    "zero": np.zeros(120),
    "negative": np.linspace(-3.0, -1.0, 120),
    "not a number": np.full(120, np.nan),
    "lost": np.concatenate([np.linspace(0.2, 0.6, 90), np.full(30, np.nan)]),
    "jump": np.concatenate([np.full(60, 0.01), np.full(60, 50.0)]),
    "fall": np.concatenate([np.full(60, 50.0), np.full(60, 0.001)]),
    "wild": np.random.default_rng(4).lognormal(sigma=3.0, size=120),
}


CASES = [*((shape, None) for shape in SHAPES), *(("wild", family) for family in Family)]
REST = [(shape, family) for shape in SHAPES for family in Family if (shape, family) not in CASES]


@pytest.mark.parametrize(("shape", "family"), first_fast([*CASES, *REST], len(CASES)))
def test_no_sentence_holds_a_value_that_is_none(shape: str, family: Family | None) -> None:
    metrics = dict.fromkeys(every_metric(), SHAPES[shape])
    ended = Event(step=None, kind="exit", text="exit code 1", source="run.wandb")
    algorithm = Algorithm(family=family, critic=family is Family.ONLINE)
    made = replace(evidence_of(metrics=metrics), algorithm=algorithm)
    without_steps = replace(made.run, first_step=None, last_step=None, step_count=0)
    for evidence in (made, replace(made, run=without_steps, events=(ended,))):
        verdicts = [rule.run(evidence) for rule in RULES]
        for rule, verdict in zip(RULES, verdicts, strict=True):
            for text in texts_of(verdict):
                assert not SAID_BY_MISTAKE.search(text), (rule.id, text)
        for text in headlines_of(evidence, verdicts):
            assert not SAID_BY_MISTAKE.search(text), text
            assert "-0" not in text.split()


def headlines_of(evidence: Evidence, verdicts: list[RuleVerdict]) -> Iterator[str]:
    """Yield what is said of the run as a whole, of all verdicts and of those that are no finding."""
    signature = Signature(status=Answer.CANNOT_SAY, reason="no tokens", pair=None, aggregates=aggregates())
    seen = what_was_seen(evidence, verdicts, signature)
    for judged in (verdicts, [verdict for verdict in verdicts if not isinstance(verdict, Broken)]):
        found = verdict_of(
            run=evidence.run, signature=signature, verdicts=judged, crashes=(), sources=(), tables={}, seen=seen
        ).verdict
        assert found.coverage is not None
        yield from (found.headline, *found.next)
        for question in found.coverage.core:
            yield from (question.why, would_show(question))


def every_metric() -> list[str]:
    return [name for name in metrics_known() if not name.startswith("eval/")]


def texts_of(verdict: RuleVerdict) -> Iterator[str]:
    found: tuple[Finding, ...] = ()
    match verdict:
        case Broken():
            found = verdict.findings
        case Healthy():
            found = verdict.notes
            yield verdict.reason
        case NotJudged():
            yield from (verdict.reason, verdict.enable)
    for finding in found:
        yield from (finding.claim, *finding.causes, *finding.confirm, *finding.next)
