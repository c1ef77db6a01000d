"""Judge a run by a custom rule: broken, healthy, or not judged with the reason and the nearest names."""

from __future__ import annotations

from collections.abc import Callable

from ptt.diagnostics.custom.outcome import Outcome, outcome_of
from ptt.diagnostics.custom.subjects import is_for
from ptt.diagnostics.custom.tell import finding_of, nearest
from ptt.diagnostics.custom.terms import CustomRule, tests_of
from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Broken, Healthy, NotJudged, RuleVerdict
from ptt.diagnostics.parsers.aliases import canonical
from ptt.diagnostics.rules.interface import does_not_apply

Find = Callable[[str], Series | str]
"""Gives the series of a name, or why there is none."""


def judge(rule: CustomRule, evidence: Evidence, find: Find) -> RuleVerdict:
    """Judge one rule."""
    refused = _refused(rule, evidence)
    if refused is not None:
        return refused
    outcome = outcome_of(rule.condition, find, least=rule.min_steps, end=_end(rule, evidence, find))
    onset = outcome.lasting_onset(rule.for_steps)
    if onset is not None:
        return Broken(findings=(finding_of(rule, outcome, onset),))
    if outcome.may_last(rule.for_steps):
        return _unknown(rule, outcome)
    return Healthy(id=rule.name, link=rule.link, reason=nearest(rule, outcome))


def _refused(rule: CustomRule, evidence: Evidence) -> NotJudged | None:
    """Say why a rule has nothing to ask of this run: it is for other trainings, or which this is is not recorded."""
    algorithm = evidence.algorithm
    fits = is_for(rule.algorithms, algorithm)
    if rule.families and fits is not False:
        known = algorithm.family is not None
        fits = (algorithm.family in rule.families and fits) if known else None
    if fits is False:
        return does_not_apply(rule.name, rule.link, f"{algorithm.title} training")
    if fits is None:
        wanted = ", ".join(rule.algorithms or sorted(rule.families))
        return NotJudged(
            id=rule.name,
            link=rule.link,
            reason=f"the rule is for {wanted}, and the files do not tell which training this is",
            missing=("algorithm",),
            enable=f"keep the run's configuration beside its logs, or lift the restriction in {rule.file}",
        )
    return None


def _unknown(rule: CustomRule, outcome: Outcome) -> NotJudged:
    lacking = [looked for looked in outcome.tests if looked.reason]
    absent = [looked.test.metric for looked in lacking if looked.series is None]
    names = tuple(dict.fromkeys(canonical(name) or name for name in absent))  # how frameworks record those is known
    return NotJudged(
        id=rule.name,
        link=rule.link,
        reason="; ".join(dict.fromkeys(looked.reason for looked in lacking)),
        missing=names or tuple(dict.fromkeys(looked.test.metric for looked in lacking)),
        enable=f"log {', '.join(dict.fromkeys(absent))}, or correct the name in {rule.file}"
        if names
        else f"log it more often or for longer, or ask for less in {rule.file}",
    )


def _end(rule: CustomRule, evidence: Evidence, find: Find) -> int:
    """Give the last step of the run: a value that was never followed by another counts until then."""
    if evidence.run.last_step is not None:
        return evidence.run.last_step
    found = [find(test.metric) for test in tests_of(rule.condition)]
    return max((int(one.steps[-1]) for one in found if isinstance(one, Series) and len(one.steps)), default=0)
