"""Judge a run by a custom rule: broken, healthy, or not judged with the reason and the nearest names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.custom.conditions import Evaluated, Outcome, TestOutcome, outcome_of
from ptt.diagnostics.custom.terms import (
    OF_CONDITION,
    TOKENS,
    AllOf,
    AnyOf,
    Between,
    Bound,
    Change,
    Condition,
    CustomRule,
    Last,
    Moving,
    Outside,
    Spike,
    Statement,
    TimesEarly,
    closest,
    fill_template,
    in_words,
    is_for,
    tests_of,
)
from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.algorithm import Family, kin
from ptt.diagnostics.evidence.series import Series, read_evaluation, training_metric_names, training_series
from ptt.diagnostics.metrics.aliases import bare_name, canonical
from ptt.diagnostics.model import Broken, Finding, Healthy, JsonScalar, NotJudged, RuleVerdict, Steps
from ptt.diagnostics.parsers.microsoft_metrics import MISLEADING
from ptt.diagnostics.schema import Flag
from ptt.diagnostics.statistics.tail_growth import MIN_BLOCK_TOKENS
from ptt.diagnostics.store.wide_metrics import WideMetrics

MIN_TOKENS: Final = {"p50": 3, "n": 0}
"""In a step, for a statistic of it to count; other statistics need as many as a block of a tail."""


class Lookup:
    """The series of one run by any of their names; each is read once."""

    def __init__(self, evidence: Evidence, tables: Mapping[str, pl.DataFrame], wide: WideMetrics | None = None) -> None:
        self._evidence = evidence
        self._wide = wide or WideMetrics(Path())
        self._metrics = tables.get("metrics", pl.DataFrame())
        self._tokens = tables.get("step_stats", pl.DataFrame())
        self._found: dict[str, Series | None] = {}

    def series(self, name: str) -> Series | str:
        """Return the series of this name, or why there is none."""
        if self._misleads(name):
            return f"{name} means the chosen reward, or the margin, in preference training with Microsoft's toolkit"
        return self.found(name) or self._missing(name)

    def found(self, name: str) -> Series | None:
        """Return the series of this name, if there is one."""
        if name not in self._found:
            self._found[name] = self._read(name)
        return self._found[name]

    def _misleads(self, name: str) -> bool:
        return name in MISLEADING and self._evidence.algorithm.family is Family.PREFERENCE

    def _read(self, name: str) -> Series | None:
        if name.startswith(TOKENS):
            return self._of_tokens(name)
        evidence = self._evidence
        if self._misleads(name):
            return None
        named = evidence.metrics.get(canonical(name) or "")
        series = evidence.metrics.get(name) or evidence.other.get(name)
        if series is None and named is not None and named.raw_name == name:
            return named
        if series is None and not self._found_by.isdisjoint((name, bare_name(name))):
            series = training_series(self._metrics, self._wide, {name: name}).get(name)
            series = series or named or read_evaluation(self._metrics, name)
        return series or named

    def _of_tokens(self, name: str) -> Series | None:
        pair, slice_, statistic = name.removeprefix(TOKENS).split(":")
        if self._tokens.is_empty() or statistic not in self._tokens.columns:
            return None
        rows = self._tokens.filter((pl.col("pair") == pair) & (pl.col("slice") == slice_)).sort("step")
        values = rows[statistic].cast(pl.Float64).to_numpy()
        enough = rows["n"].to_numpy() >= MIN_TOKENS.get(statistic, MIN_BLOCK_TOKENS)
        steps, values = rows["step"].to_numpy()[enough], values[enough]
        if not np.isfinite(values).any():
            return None
        flags = np.where(np.isfinite(values), Flag.FINITE, Flag.NULL_IN_SOURCE).astype(np.uint8)
        values = np.where(np.isfinite(values), values, np.nan)
        return Series(name=name, raw_name=name, steps=steps, values=values, flags=flags)

    def _missing(self, name: str) -> str:
        """Return the reason for a name under which nothing is logged, with the most similar names."""
        if name.startswith(TOKENS):
            said, known = f"recorded tokens give no {name}", self._token_names(name.rsplit(":", 1)[-1])
        else:
            canonical_name = canonical(name)
            other = f", nor under any other name of {canonical_name}" if canonical_name not in (None, name) else ""
            said, known = f"nothing is logged as {name}{other}", self._names
        near = closest(name, known)
        return said + (f"; closest here: {', '.join(near)}" if near else "")

    def _token_names(self, statistic: str) -> set[str]:
        """Return the names under which this statistic of recorded tokens is there."""
        if self._tokens.is_empty():
            return set()
        pairs = self._tokens.select("pair", "slice").unique().iter_rows()
        return {f"{TOKENS}{pair}:{slice_}:{statistic}" for pair, slice_ in pairs}

    @cached_property
    def _names(self) -> set[str]:
        names = set(self._evidence.metrics) | set(self._evidence.other)
        if "name_raw" in self._metrics.columns:
            names |= set(self._metrics["name_raw"].drop_nulls().unique())
            names |= set(training_metric_names(self._metrics, self._wide))
        return names

    @cached_property
    def _found_by(self) -> set[str]:
        """The names that rows may be found by: without a reporter's prefix, and canonical; reading them takes time."""
        if "priority" not in self._metrics.columns:
            return set()
        return {*map(bare_name, self._names), *self._metrics["name"].drop_nulls().unique()}


NATS: Final = frozenset({"p50", "p95", "p99", "p999", "mean_r", "mean_abs_r", "k1", "k2", "k3"})


def finding_of(rule: CustomRule, outcome: Outcome, onset: int) -> Finding:
    """Return the finding, by the first condition, as they are written, of what holds at the onset."""
    tests = iter(outcome.tests)
    holding = _first_holding(rule.condition, tests, onset)
    if holding is None or holding.series is None or holding.evaluated is None:
        raise AssertionError("a condition holds, and no part of it does")
    test, series, evaluated = holding.test, holding.series, holding.evaluated
    index = _find_worst(test, evaluated, onset)
    observed, limit = float(evaluated.values[index]), float(evaluated.limits[index])
    values = {**_numbered(outcome, onset), "value": observed, "limit": limit, "early": evaluated.early, "onset": onset}
    claim = fill_template(rule.claim, values) if rule.claim else words(rule.condition)
    name = series.name
    return Finding(
        id=rule.name,
        severity=rule.severity,
        link=rule.link,
        claim=" ".join(claim.split()).rstrip(".!?") if rule.claim else claim[:1].upper() + claim[1:],
        observed=observed,
        limit=limit,
        unit=_unit(test),
        slice=test.metric.removeprefix(TOKENS).split(":")[1] if test.metric.startswith(TOKENS) else None,
        onset_step=onset,
        onset_interval=_interval(rule.condition, test, evaluated, onset),
        evidence=_evidence(rule, test, series, evaluated, onset),
        causes=rule.causes,
        confirm=rule.confirm,
        next=rule.next or (f"look at {name} from step {onset} on; {rule.file} can say under `next` what to do",),
    )


def nearest_miss(rule: CustomRule, outcome: Outcome) -> str:
    """Return how near a healthy run came to the condition."""
    tested = outcome.tests[0]
    if len(outcome.tests) > 1 or tested.evaluated is None:
        return f"never true: {words(rule.condition)}"
    evaluated, test = tested.evaluated, tested.test
    lasting = f" for {rule.for_steps} steps" if rule.for_steps > 1 else ""
    if not isinstance(test.window, Moving):
        return f"not so: {words(test)}; it is {evaluated.values[-1]:.4g}"
    usable = np.isfinite(evaluated.values)
    low, high = float(evaluated.values[usable].min()), float(evaluated.values[usable].max())
    return f"not so{lasting} at any step: {words(test)}; it lies between {low:.4g} and {high:.4g}"


def words(condition: Condition) -> str:
    """Return a condition in words."""
    if isinstance(condition, Statement):
        return in_words(condition)
    joint = " or " if isinstance(condition, AnyOf) else " and "
    return joint.join(words(part) if isinstance(part, Statement) else f"({words(part)})" for part in condition.parts)


def _first_holding(condition: Condition, tests: Iterator[TestOutcome], onset: int) -> TestOutcome | None:
    """Return the first test of a condition that holds at a step; None where it does not. `tests`: in their order."""
    if isinstance(condition, Statement):
        tested = next(tests)
        return tested if _holds(tested, onset) else None
    found = [_first_holding(part, tests, onset) for part in condition.parts]
    if isinstance(condition, AllOf) and None in found:
        return None
    return next((tested for tested in found if tested is not None), None)


def _holds(tested: TestOutcome, onset: int) -> bool:
    if tested.evaluated is None:
        return False
    place = _place(tested.test, tested.evaluated, onset)
    began = not isinstance(tested.test.window, Moving) or tested.evaluated.steps[0] <= onset
    return began and bool(tested.evaluated.holds[place])


def _numbered(outcome: Outcome, onset: int) -> dict[str, float | None]:
    """Return the fields of each condition by its number: at its worst where it holds, else at the onset."""
    fields: dict[str, float | None] = {}
    for number, tested in enumerate(outcome.tests, start=1):
        if (evaluated := tested.evaluated) is None:
            continue
        at = (_find_worst if _holds(tested, onset) else _place)(tested.test, evaluated, onset)
        of_test = float(evaluated.values[at]), float(evaluated.limits[at]), evaluated.early
        fields |= {f"{name}{number}": value for name, value in zip(OF_CONDITION, of_test, strict=True)}
    return fields


def _place(test: Statement, evaluated: Evaluated, onset: int) -> int:
    """Return the place of a moving window whose value counts at a step; of a fixed window its last."""
    if not isinstance(test.window, Moving):
        return len(evaluated.steps) - 1
    return max(0, int(np.searchsorted(evaluated.steps, onset, side="right")) - 1)


def _find_worst(test: Statement, evaluated: Evaluated, onset: int) -> int:
    """Return the place furthest beyond the bound among those that hold from the onset on."""
    first = _place(test, evaluated, onset)
    if not isinstance(test.window, Moving):
        return first
    places = np.flatnonzero(evaluated.holds & (np.arange(len(evaluated.steps)) >= first))
    values, limits = evaluated.values[places], evaluated.limits[places]
    match test.comparison:
        case Between():
            beyond = np.zeros(len(places))
        case Outside():
            beyond = np.abs(values - limits)
        case Spike():
            beyond = values / limits
        case Change(share=share):
            beyond = values if share > 0 else -values
        case Bound(direction=direction) | TimesEarly(direction=direction):
            beyond = values if direction.startswith(">") else -values
    return int(places[np.argmax(beyond)])


def _interval(condition: Condition, test: Statement, evaluated: Evaluated, onset: int) -> Steps | None:
    """Return the steps of the window in which it was first seen; several tests have no one window."""
    if not isinstance(condition, Statement) or not isinstance(test.window, Moving | Last):
        return None
    index = int(np.searchsorted(evaluated.steps, onset, side="right")) - 1
    return int(evaluated.since[index]), onset


def _unit(test: Statement) -> str:
    if test.aggregate == "nan_count":
        return "values"
    in_nats = test.metric.startswith(TOKENS) and test.metric.rsplit(":", 1)[-1] in NATS
    return "nats" if in_nats and test.aggregate != "slope" else ""


def _evidence(
    rule: CustomRule, test: Statement, series: Series, evaluated: Evaluated, onset: int
) -> dict[str, JsonScalar]:
    lost = int(np.count_nonzero(~np.isfinite(series.values)))
    facts: dict[str, JsonScalar] = {
        "metric": series.name,
        "logged_as": series.raw_name,
        "condition": words(rule.condition) + (f", for {rule.for_steps} steps" if rule.for_steps > 1 else ""),
        "at_onset": float(evaluated.values[_place(test, evaluated, onset)]),
        "at_the_end": float(evaluated.values[-1]),
        "holds_at_the_end": bool(evaluated.holds[-1]),
        "rule_file": rule.file,
    }
    optional: dict[str, JsonScalar] = {
        "early_level": evaluated.early, "values_left_out": lost or None, "why": rule.why, "reference": rule.reference,
    }  # fmt: skip
    return facts | {key: value for key, value in optional.items() if value not in (None, "")}


Find = Callable[[str], Series | str]
"""Gives the series of a name, or why there is none."""


def judge(rule: CustomRule, evidence: Evidence, find: Find) -> RuleVerdict:
    """Judge one rule."""
    refused = _not_applicable(rule, evidence)
    if refused is not None:
        return refused
    outcome = outcome_of(rule.condition, find, least=rule.min_steps, end=_last_step(rule, evidence, find))
    onset = outcome.lasting_onset(rule.for_steps)
    if onset is not None:
        return Broken(findings=(finding_of(rule, outcome, onset),))
    if outcome.may_last(rule.for_steps):
        return _unknown(rule, outcome)
    return Healthy(id=rule.name, link=rule.link, reason=nearest_miss(rule, outcome))


def _not_applicable(rule: CustomRule, evidence: Evidence) -> NotJudged | None:
    """Return why a rule has nothing to ask of this run: it is for other trainings, or which this is is not recorded."""
    algorithm = evidence.algorithm
    fits = is_for(rule.algorithms, algorithm)
    if rule.families and fits is not False:
        wanted_kinds = {kind for family in rule.families for kind in kin(family)}
        fits = (algorithm.family in wanted_kinds and fits) if algorithm.family is not None else None
    if fits is False:
        reason = f"does not apply to {algorithm.title} training"
        return NotJudged(id=rule.name, link=rule.link, reason=reason, applies=False)
    if fits is None:
        wanted = ", ".join(rule.algorithms or sorted(rule.families))
        return NotJudged(
            id=rule.name,
            link=rule.link,
            reason=f"the rule is for {wanted}, and no file says which training this is",
            missing=("algorithm",),
            enable=f"keep the run's configuration beside its logs, or lift the restriction in {rule.file}",
        )
    return None


def _unknown(rule: CustomRule, outcome: Outcome) -> NotJudged:
    lacking = [tested for tested in outcome.tests if tested.reason]
    absent = [tested.test.metric for tested in lacking if tested.series is None]
    names = tuple(dict.fromkeys(canonical(name) or name for name in absent))  # how frameworks record those is known
    return NotJudged(
        id=rule.name,
        link=rule.link,
        reason="; ".join(dict.fromkeys(tested.reason for tested in lacking)),
        missing=names or tuple(dict.fromkeys(tested.test.metric for tested in lacking)),
        enable=f"log {', '.join(dict.fromkeys(absent))}, or correct the name in {rule.file}"
        if names
        else f"log it more often or for longer, or ask for less in {rule.file}",
    )


def _last_step(rule: CustomRule, evidence: Evidence, find: Find) -> int:
    """Return the last step of the run: a value that was never followed by another counts until then."""
    if evidence.run.last_step is not None:
        return evidence.run.last_step
    series = [find(test.metric) for test in tests_of(rule.condition)]
    return max(
        (int(logged.steps[-1]) for logged in series if isinstance(logged, Series) and len(logged.steps)), default=0
    )
