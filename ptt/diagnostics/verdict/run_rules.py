"""Run every rule on a run's evidence and put their verdicts together; a rule that crashes costs no other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Final, TypeVar

import numpy as np
import polars as pl

from ptt.diagnostics.custom.judge import Lookup
from ptt.diagnostics.custom.judge import judge as judge_custom
from ptt.diagnostics.custom.terms import CustomRule
from ptt.diagnostics.engines import local
from ptt.diagnostics.errors import describe
from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.algorithm import samples_online, samples_texts, trainer_of
from ptt.diagnostics.evidence.gather import Gathered
from ptt.diagnostics.evidence.gradient_ledger import finding_to_explain, gather_ledger
from ptt.diagnostics.evidence.proximal import proximal_row
from ptt.diagnostics.evidence.series import MIN_LOGGED, Series, excess_interval
from ptt.diagnostics.evidence.sources import list_sources
from ptt.diagnostics.metrics.catalogue import listed
from ptt.diagnostics.metrics.recording import how_to_record
from ptt.diagnostics.model import (
    EVIDENCE,
    MISCOUNTED,
    READING,
    Aggregates,
    AuditRow,
    Broken,
    Diagnosis,
    Finding,
    Healthy,
    NotJudged,
    RuleCrash,
    RuleVerdict,
    SeriesOutcome,
    Severity,
    Steps,
    StopReplay,
)
from ptt.diagnostics.rules import RULES, tail_holder, tool_tail_growth
from ptt.diagnostics.rules.single_series import lasting_excess
from ptt.diagnostics.rules.tool_tail_growth import Judgement
from ptt.diagnostics.statistics.arrays import IntArray
from ptt.diagnostics.statistics.trend import classify_trend
from ptt.diagnostics.statistics.windows import covered_until
from ptt.diagnostics.store.diagnosis import with_tables
from ptt.diagnostics.store.manifest import Manifest
from ptt.diagnostics.verdict.at_onset import with_context
from ptt.diagnostics.verdict.causes import explains
from ptt.diagnostics.verdict.coverage import what_was_seen
from ptt.diagnostics.verdict.headline import contaminated, verdict_of, why_nothing_was_judged
from ptt.diagnostics.verdict.outcome import cost_of, outcome_of
from ptt.diagnostics.watch.observed import observed_steps
from ptt.diagnostics.watch.replay import replay_stop

Result = TypeVar("Result")

WATCHED: Final = listed("watched")

DRAWN_FROM: Final = Severity.MEDIUM  # findings of less have no plot
CURVES: Final = "finding_series"
SCHEMA: Final = {
    "metric": pl.String,
    "logged_as": pl.String,
    "step": pl.Int64,
    "value": pl.Float64,
    "flag": pl.UInt8,
}
MAX_DEPTH: Final = 4  # of values within values: evidence of one topic holds readings, and those hold series


def aggregates_of(evidence: Evidence, verdicts: Sequence[RuleVerdict]) -> Aggregates:
    """Return each watched metric's movement over the run, and the first step at which a rule on it raised an alarm."""
    movements, logged = {}, {}
    offline = not samples_texts(evidence.algorithm)  # where nobody looks for what nobody logs
    for name in [name for name in WATCHED if not offline or name in evidence.metrics]:
        series = evidence.metrics.get(name)
        steps, values = (np.empty(0, np.int64), np.empty(0)) if series is None else series.finite()
        movements[name] = classify_trend(values) if len(values) >= MIN_LOGGED else "cannot_say"
        if len(values) >= MIN_LOGGED:
            logged[name] = steps
    alarms: dict[str, int] = {}
    intervals: dict[str, Steps] = {}
    means: dict[str, int] = {}
    for verdict in verdicts:
        for finding in verdict.findings if isinstance(verdict, Broken) else ():
            metric = str(finding.evidence.get("metric"))
            alarm = finding.evidence.get("alarm_step")  # of a mean, where the onset is dated by single values
            onset = alarm if isinstance(alarm, int) else finding.onset_step
            if metric not in WATCHED or onset is None or not finding.severity.at_least(Severity.MEDIUM):
                continue
            if metric not in alarms or onset < alarms[metric]:
                alarms[metric] = onset
                intervals[metric] = _alarm_interval(evidence.metrics.get(metric), finding, onset)
                means.pop(metric, None)
                means |= _mean_passed(evidence.metrics.get(metric), finding, onset)
    status = "alarming" if alarms else "quiet" if len(logged) >= len(WATCHED) / 2 else "cannot_say"
    return Aggregates(
        status=status,
        metrics=movements,
        alarms=alarms,
        alarm_intervals=intervals,
        means_passed=means,
        last_steps=_ends_before(logged, evidence.run.last_step),
    )


def _ends_before(logged: Mapping[str, IntArray], end: int | None) -> dict[str, int]:
    """Return the last step of each metric that ends before the run does: that of the others, where none was due."""
    last = max((int(steps[-1]) for steps in logged.values()), default=0)
    early = {name: steps for name, steps in logged.items() if end is not None and covered_until(steps, end) < end}
    return {name: covered_until(steps, last) for name, steps in early.items()}


def _mean_passed(series: Series | None, finding: Finding, alarm: int) -> dict[str, int]:
    """Return the step at which a mean passed its limit by a few wild steps, where that is well before its alarm."""
    excess = None if series is None or finding.limit is None else lasting_excess(series, finding.limit)
    if series is None or excess is None or excess.onset != alarm:  # not an alarm of a mean over a limit
        return {}
    passed, steps = series.mean_passed(excess.limit), series.finite()[0]
    before = int(np.searchsorted(steps, alarm)) - series.width
    return {series.name: passed} if passed is not None and before >= 0 and passed <= steps[before] else {}


def _alarm_interval(series: Series | None, finding: Finding, alarm: int) -> Steps:
    """Return how closely an alarm's step is known: by redrawing the series where its mean over a limit raised it."""
    if series is not None and finding.limit is not None and series.excess(finding.limit) == alarm:
        return excess_interval(series, finding.limit, alarm)
    low, high = finding.onset_interval or (alarm, alarm)
    return min(low, alarm), max(high, alarm)


def diagnosis_of(
    gathered: Gathered,
    custom_rules: Sequence[CustomRule],
    table: pl.DataFrame,
    manifest: Manifest,
    tokens: local.Tokens | None,
    damaged: Mapping[str, str],
) -> Diagnosis:
    """Return the diagnosis: the rules, the signature, then the user's own rules, which take no part in it.

    `damaged`: files that were left out of `tokens`, with the reason.
    """
    evidence = gathered.evidence
    crashes = [RuleCrash(id=READING + name, error=error) for name, error in sorted(manifest.faults.items())]
    crashes += [RuleCrash(id=EVIDENCE + name, error=describe(error)) for name, error in gathered.raised]
    verdicts = _run(((rule.id, partial(rule.run, evidence)) for rule in RULES), crashes)
    signature = _run([(tool_tail_growth.ID, partial(_signature, evidence, verdicts))], crashes)
    if not signature:
        reason = "the rule itself crashed; see the error below"
        signature = [tool_tail_growth.cannot_say(reason, None, aggregates_of(evidence, verdicts))]
    lookup = Lookup(evidence, gathered.tables, gathered.wide)
    custom = ((rule.name, partial(judge_custom, rule, evidence, lookup.series)) for rule in custom_rules)
    verdicts = [signature[0].verdict, *verdicts, *_run(custom, crashes)]
    verdicts = [_with_framework_line(_without_first_step(verdict, evidence), evidence) for verdict in verdicts]
    outcome = _unless_it_crashes("outcome", partial(outcome_of, evidence), crashes)
    asked = _findings_on(verdicts, tail_holder.FINDINGS)
    support = _unless_it_crashes(EVIDENCE + "support", gathered.support, crashes) if asked else None
    diagnosis = verdict_of(
        run=evidence.run,
        signature=signature[0].signature,
        verdicts=verdicts,
        seen=what_was_seen(evidence, verdicts, signature[0].signature),
        nothing=why_nothing_was_judged(table, gathered.tables["metrics"], gathered.wide, evidence),
        crashes=crashes,
        sources=list_sources(table, tokens, damaged, (*manifest.notes, *(tokens.notes if tokens else ()))),
        tables=gathered.tables,
        explains=explains(),
        outcome=outcome,
        context=partial(with_context, evidence=evidence),
    )
    replayed = _unless_it_crashes("stop-replay", partial(_replay, gathered, verdicts), crashes)
    diagnosis = replace(diagnosis, stop_replay=replayed)
    cost = _unless_it_crashes("cost", partial(cost_of, diagnosis, evidence), crashes)
    diagnosis = replace(diagnosis, cost=cost, crashes=tuple(crashes))
    diagnosis = _with_ledger(diagnosis, gathered, tokens, contaminated(verdicts, signature[0].signature.pair))
    curves = finding_series(diagnosis.findings, evidence, gathered.tables["metrics"])
    more = ({} if curves.is_empty() else {CURVES: curves}) | (support[1] if support else {})
    return replace(
        diagnosis,
        audit=_audit(evidence, diagnosis.findings),
        support=support[0] if support else None,
        tables=with_tables(diagnosis.tables, more),
    )


def _with_ledger(
    diagnosis: Diagnosis, gathered: Gathered, tokens: local.Tokens | None, distrust: str | None
) -> Diagnosis:
    """Add what the update rests on, where a finding asks for it and the logprobs can be trusted."""
    finding = finding_to_explain(diagnosis.findings)
    if finding is None or tokens is None or gathered.completions is None or distrust is not None:
        return diagnosis
    crashes = list(diagnosis.crashes)
    weigh = partial(
        gather_ledger, tokens, gathered.evidence, gathered.completions, finding, post_name=gathered.post_name,
        shortest=gathered.shortest,
    )  # fmt: skip
    for found in _run([(EVIDENCE + "gradient ledger", weigh)], crashes):
        tables = with_tables(diagnosis.tables, found.tables)
        diagnosis = replace(diagnosis, ledger=found.ledger, tables=tables)
    return replace(diagnosis, crashes=tuple(crashes))


def _findings_on(verdicts: Iterable[RuleVerdict], ids: Collection[str]) -> bool:
    return any(finding.id in ids for verdict in verdicts if isinstance(verdict, Broken) for finding in verdict.findings)


def _replay(gathered: Gathered, verdicts: Sequence[RuleVerdict]) -> StopReplay | None:
    """Return where a watch would have stopped the run; of logprobs that are wrong no tail counts."""
    evidence = gathered.evidence
    wrong = evidence.tails is None or contaminated(verdicts, evidence.tails.pair) is not None
    steps = observed_steps(evidence.metrics, None if wrong else gathered.tables.get("step_stats"))
    return replay_stop(steps, limits=evidence.limits)


def _audit(evidence: Evidence, findings: Sequence[Finding]) -> tuple[AuditRow, ...]:
    """Return what the trainer says and what recomputing it gave: advantages, scalars, then metrics among themselves.

    A row names a finding only where its rule made one.
    """
    parts = (evidence.advantages, evidence.scalars)
    rows = [row for part in parts if part is not None for row in part.rows]
    told = {
        name: finding.id
        for finding in findings
        if MISCOUNTED in finding.evidence
        for name in str(finding.evidence["logged_as"]).split(", ")
    }
    rows = [replace(row, finding=told[row.logged_as]) if row.logged_as in told else row for row in rows]
    proximal = proximal_row(evidence.pairs, evidence.metrics, evidence.run.context)
    rows += [proximal] if proximal is not None else []
    rows += [contradiction.row for contradiction in evidence.contradictions]
    found = {finding.id for finding in findings}
    return tuple(row if row.finding in found else replace(row, finding=None) for row in rows)


AT_ONE_STEP: Final = frozenset(
    {
        "out-of-memory",
        "run-cut-short",
        "run-stalled",
        "gradient-spikes",
        "eval-spikes",
        "judge-spikes",
        "perplexity-spikes",
        "reward-outliers",
        "reward-dips",
        "mismatch-comes-and-goes",
        "kl-spikes",
        "entropy-excursions",
        "length-excursions",
        "slow-steps",
    }
)
"""Findings of something that happens at a step: that it did at the first one is a date."""


def _without_first_step(verdict: RuleVerdict, evidence: Evidence) -> RuleVerdict:
    """Take the onset from what holds at the first logged step, of the run or of its curve: it began before the log."""

    def undated(finding: Finding) -> Finding:
        onset, (_, latest) = finding.onset_step, finding.onset_interval or (0, finding.onset_step)
        if onset is None or latest != onset or finding.id in AT_ONE_STEP:
            return finding
        series = evidence.metrics.get(str(finding.evidence.get("metric")))
        logged = () if series is None else series.finite()[0][:1]
        if onset not in {evidence.run.first_step, *logged}:
            return finding
        return replace(finding, onset_step=None, onset_interval=None, held_from_step=onset)

    match verdict:
        case Broken(findings=findings):
            return replace(verdict, findings=tuple(map(undated, findings)))
        case Healthy(notes=notes):
            return replace(verdict, notes=tuple(map(undated, notes)))
    return verdict


def _with_framework_line(verdict: RuleVerdict, evidence: Evidence) -> RuleVerdict:
    """Name the framework's own line where what is missing has one that the run does not follow already.

    To training that samples nothing, none of RL.
    """
    if not isinstance(verdict, NotJudged) or not verdict.missing or not samples_online(evidence.algorithm):
        return verdict
    trainer, recorded = trainer_of(evidence.algorithm), set(evidence.recorded_logps)
    line = how_to_record(evidence.run.framework, verdict.missing, trainer=trainer, recorded=recorded)
    return verdict if line is None else replace(verdict, enable=line)


def _run(rules: Iterable[tuple[str, Callable[[], Result]]], crashes: list[RuleCrash]) -> list[Result]:
    """Run each rule, by its id; one that raises is added to `crashes`, and the others are run all the same."""
    results = []
    for name, rule in rules:
        try:
            results.append(rule())
        except Exception as error:  # a fault in one rule must not cost the report: it is shown, and costs the exit code
            crashes.append(RuleCrash(id=name, error=describe(error)))
    return results


def _unless_it_crashes(name: str, make: Callable[[], Result], crashes: list[RuleCrash]) -> Result | None:
    """Return what one part gives; None where it raises, which is added to `crashes`."""
    return next(iter(_run([(name, make)], crashes)), None)


def _signature(evidence: Evidence, verdicts: list[RuleVerdict]) -> Judgement:
    aggregates = aggregates_of(evidence, verdicts)
    if not samples_texts(evidence.algorithm):
        samples = samples_online(evidence.algorithm)
        return tool_tail_growth.does_not_apply(evidence.algorithm.title, aggregates, samples=samples)
    pair = evidence.tails.pair if evidence.tails is not None else None
    distrust = contaminated(verdicts, pair)
    if distrust is not None:
        return tool_tail_growth.cannot_say(f"the logprobs cannot be trusted: {distrust}", pair, aggregates)
    return tool_tail_growth.judge(evidence, aggregates)


def finding_series(findings: Sequence[Finding], evidence: Evidence, metrics: pl.DataFrame) -> pl.DataFrame:
    """Return the curves that findings name under `metric` and `logged_as`, one row a step; `metrics` are all rows."""
    wanted = dict.fromkeys(_names(finding) for finding in findings if finding.severity.at_least(DRAWN_FROM))
    frames = [pl.DataFrame(schema=SCHEMA)]
    if any(logged or metric for metric, logged in wanted):
        known = _by_raw_name(evidence)
        for metric, logged in wanted:
            series = known.get(logged) or known.get(metric) or (None if logged else evidence.metrics.get(metric))
            found = _logged(metrics, logged or metric) if series is None else _rows(series)
            if found.height:
                named = found.with_columns(metric=pl.lit(metric), logged_as=pl.lit(logged))
                frames.append(named.select(pl.col(column).cast(kind) for column, kind in SCHEMA.items()))
    return pl.concat(frames)


def _names(finding: Finding) -> tuple[str, str]:
    """Return the canonical name of the curve that a finding names, and the one it was logged under; empty if none."""
    metric, logged = finding.evidence.get("metric"), finding.evidence.get("logged_as")
    return metric if isinstance(metric, str) else "", logged if isinstance(logged, str) else ""


def _by_raw_name(evidence: Evidence) -> dict[str, Series]:
    """Return every series of the evidence by the name it was logged under; the judged training metrics come first."""
    known: dict[str, Series] = {}
    for series in (*evidence.metrics.values(), *evidence.other.values(), *_within(evidence, MAX_DEPTH)):
        known.setdefault(series.raw_name, series)
    return known


def _within(value: object, depth: int) -> Iterator[Series]:
    """Yield the series in a value of the evidence, however its topic holds them."""
    if isinstance(value, Series):
        yield value
    elif depth and is_dataclass(value) and not isinstance(value, (type, SeriesOutcome)):  # of these there are thousands
        for field in fields(value):
            yield from _within(getattr(value, field.name), depth - 1)
    elif depth and isinstance(value, Mapping):
        for item in value.values():
            yield from _within(item, depth - 1)
    elif depth and isinstance(value, tuple):
        for item in value:
            yield from _within(item, depth - 1)


def _rows(series: Series) -> pl.DataFrame:
    values = np.where(np.isfinite(series.values), series.values, np.nan)
    return pl.DataFrame({"step": series.steps, "value": pl.Series(values).fill_nan(None), "flag": series.flags})


def _logged(metrics: pl.DataFrame, name: str) -> pl.DataFrame:
    """Return what was logged under a name, the last value of a step, whatever split it is of."""
    of_run = pl.col("rank").is_null() if "rank" in metrics.columns else pl.lit(value=True)
    rows = metrics.filter((pl.col("name_raw") == name) & pl.col("step").is_not_null() & of_run)
    return rows.unique("step", keep="last", maintain_order=True).sort("step").select("step", "value", "flag")
