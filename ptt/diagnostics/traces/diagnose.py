"""Judge agent traces: from the tables of a store through the checks to a diagnosis."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.errors import describe
from ptt.diagnostics.evidence.tail_details import EpisodeTails
from ptt.diagnostics.model import (
    Broken,
    Finding,
    Healthy,
    Link,
    NotJudged,
    RuleCrash,
    RunVerdict,
    Severity,
    Source,
    Status,
)
from ptt.diagnostics.rules.interface import identified
from ptt.diagnostics.statistics.clustered_share import MIN_CLUSTERS
from ptt.diagnostics.traces import changes, conduct, cost, outcomes, partings, rewards, texts, token_tail, tools
from ptt.diagnostics.traces.judging import Check, Judged, undated
from ptt.diagnostics.traces.model import TraceDiagnosis, TraceSet
from ptt.diagnostics.traces.tables import TraceTables, count_traces, gather_tables
from ptt.diagnostics.traces.transcripts import naming_episodes, with_transcripts
from ptt.diagnostics.wording import THIN, counted

MAX_FORMATS: Final = 4  # named with their episodes
MAX_NEXT: Final = 6  # one look to confirm, and a few repairs: a longer list is not worked through
OUTCOME: Final = ("success", "reward-fell")
EXPLAINS: Final = {
    "reward-hacking": (*OUTCOME, "calls-inflation", "longer-episodes", "loops"),
    "malformed-calls": (*OUTCOME, "void-turns", "loops", "cost", "truncated-episodes", "failures-unrecovered"),
    "tool-failures": (
        *OUTCOME,
        "failures-unrecovered",
        "loops",
        "longer-episodes",
        "truncated-episodes",
        "cost",
        "parting-turn",
    ),
    "tool-use": OUTCOME,
    "loops": (*OUTCOME, "longer-episodes", "truncated-episodes", "cost"),
    "longer-episodes": ("cost",),
    "void-turns": OUTCOME,
    "truncated-episodes": OUTCOME,
}
"""By the id of a failure: those it brings about, where both are found and it did not begin later."""
NOTHING: Final = "none of the checks could be made"
LABELLED_SHARE: Final = 0.5  # of the episodes: with fewer labels, those that have none may be what failed
SUCCESS: Final = "success"  # id of the check of what is labelled
REPORT_FOLDER: Final = "REPORT_FOLDER"  # in a step to take: where the report lies, which no diagnosis knows
MAX_TOOLS: Final = 16  # those with most failed calls: a chart of more is not read
KEEP: Final = "run ptt traces NEXT --against REPORT_FOLDER to compare the next set with this one"


def verdict_of(
    traces: TraceSet,
    findings: Sequence[Finding],
    healthy: Sequence[Healthy],
    unanswered: Sequence[NotJudged],
    *,
    blind: bool = False,
) -> RunVerdict:
    """Return the verdict; `findings` are sorted, the worst first. A check with a note does not count as clean.

    `blind`: no fall of success could have been seen in so few episodes, short of one to none.
    """
    noted = {finding.id for finding in findings if finding.severity.at_least(Severity.LOW)}
    clean = [item for item in healthy if item.id not in noted]
    serious = [finding for finding in findings if finding.severity.at_least(Severity.MEDIUM)]
    if serious:
        roots = [finding for finding in serious if finding.consequence_of is None]
        first = min(roots, key=lambda root: _weight(root, serious))  # of equals the first: they are sorted
        steps = [step for finding in (first, *roots) for step in (*finding.confirm, *finding.next)]
        return RunVerdict(
            status=Status.UNSTABLE if serious[0].severity is Severity.CRITICAL else Status.SUSPECT,
            headline=_sentence(first, traces.order) + _earlier(first, serious, traces.order),
            first_broken_link=first.link,
            next=tuple(dict.fromkeys(steps))[:MAX_NEXT],
        )
    enable = tuple(dict.fromkeys(item.enable for item in unanswered if item.enable and item.applies))[:MAX_NEXT]
    notes = [finding for finding in findings if finding.severity is Severity.LOW]
    look = f" Worth a look: {_sentence(notes[0], traces.order)}" if notes else ""
    what = f"{counted(traces.episodes, 'episode(s)')} read{_of_formats(traces)}"
    if any(item.id == SUCCESS for item in unanswered) or not healthy:
        silent = f"; {counted(len(clean), 'check(s)')} found nothing wrong" if clean else ""
        why = next((f"not judged for success: {item.reason}" for item in unanswered if item.id == SUCCESS), NOTHING)
        return RunVerdict(
            status=Status.CANNOT_SAY, headline=f"{what}, {why}{silent}.{look}", first_broken_link=None, next=enable
        )
    if traces.labelled < LABELLED_SHARE * traces.episodes:
        told = f"{traces.labelled:,} of {traces.episodes:,} episodes are labelled, too few to judge success by"
        return RunVerdict(
            status=Status.CANNOT_SAY,
            headline=f"{what}; {told}.{look}",
            first_broken_link=None,
            next=(outcomes.ENABLE, *enable),
        )
    if blind or traces.success is None or traces.success.interval is None:
        told = next((item.reason for item in healthy if item.id == SUCCESS), "")
        known = traces.success is not None and traces.success.interval is not None
        more = "read more episodes" if known else f"read {MIN_CLUSTERS} tasks or more"
        return RunVerdict(
            status=Status.CANNOT_SAY,
            headline=f"{what}; {told}: too few to judge by.{look}",
            first_broken_link=None,
            next=(f"{more} as one set: ptt traces takes several files and folders", *enable),
        )
    success = next((item.reason for item in healthy if item.id == SUCCESS), "")
    told = f"{what}; {success}; " if success else f"{what}; "
    return RunVerdict(
        status=Status.HEALTHY,
        headline=f"{told}{counted(len(clean), 'check(s)')} found nothing of medium severity or above.{look}",
        first_broken_link=None,
        next=(KEEP,),
    )


def link_causes(findings: Sequence[Finding]) -> list[Finding]:
    """Name the cause of each finding that another one explains: both are so throughout, or it began no later."""
    serious = [finding for finding in findings if finding.severity.at_least(Severity.MEDIUM)]
    causes = [next((cause for cause in serious if _explains(cause, finding)), None) for finding in findings]
    return [
        finding if cause is None else replace(finding, consequence_of=cause.id)
        for finding, cause in zip(findings, causes, strict=True)
    ]


def _explains(cause: Finding, finding: Finding) -> bool:
    if finding.id not in EXPLAINS.get(cause.id, ()):
        return False
    if cause.onset_step is None or finding.onset_step is None:
        return cause.onset_step is finding.onset_step
    earliest, latest = (cause.onset_interval or ())[:1], (finding.onset_interval or ())[1:]
    began: int = min((cause.onset_step, *earliest))
    seen: int = max((finding.onset_step, *latest))
    return began <= seen


def _weight(root: Finding, findings: Sequence[Finding]) -> int:
    """Return how bad a finding is with all that follows from it."""
    follows = [finding.severity.rank for finding in findings if finding.consequence_of == root.id]
    return min([root.severity.rank, *follows])


def _sentence(finding: Finding, unit: str) -> str:
    since = f", since {unit} {finding.onset_step}" if finding.onset_step is not None else ""
    first, more, rest = finding.claim.partition("; ")
    return f"{first}{since}{more}{rest}."


def _earlier(cause: Finding, findings: Sequence[Finding], unit: str) -> str:
    """Say where effects are dated before their cause: the intervals overlap, and either may have begun first."""
    dates = [one.onset_step for one in findings if one.consequence_of == cause.id and one.onset_step is not None]
    if cause.onset_step is None or not dates or min(dates) >= cause.onset_step:
        return ""
    return f" What follows from it is dated earlier, from {unit} {min(dates)} on; the intervals of both dates overlap."


def _of_formats(traces: TraceSet) -> str:
    """Say how many episodes each format gave, where there are several."""
    if len(traces.kinds) < 2:
        return ""
    kinds = sorted(traces.kinds.items(), key=lambda kind: (-kind[1], kind[0]))
    listed = [f"{episodes} of {name}" for name, episodes in kinds[:MAX_FORMATS]]
    rest = sum(episodes for _, episodes in kinds[MAX_FORMATS:])
    return f" ({', '.join([*listed, *([f'{rest} of {len(kinds) - MAX_FORMATS} more formats'] if rest else [])])})"


COMMAS: Final = re.compile(r"(?<![\w.,])\d{1,3}(?:,\d{3})+(?![\w,])")


def grouped(text: str) -> str:
    """Write 1,344 with a thin space in place of the comma."""
    return COMMAS.sub(lambda found: found[0].replace(",", THIN), text)


def in_groups_of_three(diagnosis: TraceDiagnosis) -> TraceDiagnosis:
    """Write the numbers in all sentences of a diagnosis alike."""
    return replace(
        diagnosis,
        verdict=replace(diagnosis.verdict, headline=grouped(diagnosis.verdict.headline)),
        findings=tuple(replace(each, claim=grouped(each.claim)) for each in diagnosis.findings),
        healthy=tuple(replace(each, reason=grouped(each.reason)) for each in diagnosis.healthy),
        not_judged=tuple(replace(each, reason=grouped(each.reason)) for each in diagnosis.not_judged),
    )


CHECKS: Final[tuple[Check, ...]] = (
    Check(id="success", link=Link.EVALUATION, judge=outcomes.judge_success),
    Check(id="tool-failures", link=Link.ENVIRONMENT, judge=tools.judge_failures),
    Check(id="failures-unrecovered", link=Link.ENVIRONMENT, judge=conduct.judge_recovery),
    Check(id="malformed-calls", link=Link.ENVIRONMENT, judge=conduct.judge_malformed),
    Check(id="loops", link=Link.ENVIRONMENT, judge=conduct.judge_loops),
    Check(id="void-turns", link=Link.ENVIRONMENT, judge=conduct.judge_void),
    Check(id="tool-use", link=Link.ENVIRONMENT, judge=tools.judge_tool_use),
    Check(id="tool-latency", link=Link.ENVIRONMENT, judge=outcomes.judge_latency),
    Check(id="longer-episodes", link=Link.ENVIRONMENT, judge=outcomes.judge_length),
    Check(id="cost", link=Link.SYSTEMS, judge=cost.judge_cost),
    Check(id="length-and-success", link=Link.EXPLORATION, judge=outcomes.judge_lengths),
    Check(id="reward-fell", link=Link.REWARD, judge=outcomes.judge_reward),
    Check(id="reward-hacking", link=Link.REWARD, judge=rewards.judge_hacking),
    Check(id="calls-inflation", link=Link.REWARD, judge=rewards.judge_inflation),
    Check(id="judge-bias", link=Link.REWARD, judge=rewards.judge_bias),
    Check(id="pseudo-success", link=Link.REWARD, judge=texts.judge_claims),
    Check(id="refusals", link=Link.REWARD, judge=texts.judge_refusals),
    Check(id="repetition", link=Link.EXPLORATION, judge=texts.judge_repetition),
    Check(id="template-collapse", link=Link.EXPLORATION, judge=texts.judge_duplicates),
    Check(id="truncated-episodes", link=Link.SYSTEMS, judge=conduct.judge_truncated),
    Check(id="token-tail", link=Link.ENVIRONMENT, judge=token_tail.judge_token_tail),
    Check(id="parting-turn", link=Link.EXPLORATION, judge=partings.judge_partings),
)
"""Every question to a set of traces; a finding takes the id of its check."""
CRASH: Final = "trace:"  # begins the ids of crashes of checks


def judge_traces(
    store: Path,
    name: str,
    sources: Sequence[Source],
    crashes: Sequence[RuleCrash],
    *,
    tails: EpisodeTails | None = None,
) -> TraceDiagnosis:
    """Judge the traces whose tables lie in `store`; `tails`: of the tokens that are recorded beside them."""
    traces = count_traces(store, name)
    tables = changes.with_changes(conduct.with_loops(gather_tables(store, traces, tails)))
    faults = list(crashes)
    answers = [(check, judged) for check in CHECKS if (judged := _judge(check, tables, faults)) is not None]
    verdicts = [
        identified(undated(judged.verdict) if tables.order.arbitrary else judged.verdict, check.id, check.link)
        for check, judged in answers
    ]
    verdicts = [
        changes.with_power(verdict, tables.changes, traces.order) if isinstance(verdict, Healthy) else verdict
        for verdict in verdicts
    ]
    findings = [finding for verdict in verdicts if isinstance(verdict, Broken) for finding in verdict.findings]
    findings += [note for verdict in verdicts if isinstance(verdict, Healthy) for note in verdict.notes]
    measured = {key: share for _, judged in answers for key, share in judged.measured.items()}
    shown = tuple(naming_episodes(one, tables) for one in link_causes(sorted(findings, key=_order)))
    healthy = tuple(verdict for verdict in verdicts if isinstance(verdict, Healthy))
    noted = {finding.id for finding in shown if finding.severity.at_least(Severity.LOW)}  # no clean answers
    unanswered = tuple(verdict for verdict in verdicts if isinstance(verdict, NotJudged))
    failed = tables.calls["failed"]
    errors = int(failed.sum() or 0) + (traces.tool_errors or 0)
    told = failed.count() or errors or tables.calls["result"].count()
    traces = replace(traces, success=measured.get("success_rate"), tool_errors=errors if told else None)
    views = {key: table for _, judged in answers for key, table in judged.tables.items()}
    views |= {"changes": changes.change_table(tables.changes), "over_order": changes.over_order(tables)}
    views |= failing_tools(tables, views["over_order"])
    diagnosis = TraceDiagnosis(
        traces=traces,
        verdict=verdict_of(traces, shown, healthy, unanswered, blind=changes.is_blind(tables.changes)),
        findings=shown,
        healthy=tuple(item for item in healthy if item.id not in noted),
        not_judged=unanswered,
        crashes=tuple(faults),
        sources=tuple(sources),
        tables=views,
        partings=tuple(parting for _, judged in answers for parting in judged.partings),
        measured=measured,
    )
    return with_transcripts(diagnosis, tables)


def _judge(check: Check, tables: TraceTables, faults: list[RuleCrash]) -> Judged | None:
    """Ask one check; where it raises, that is a fault of ours, and costs no other."""
    try:
        return check.judge(tables)
    except Exception as error:  # a fault in one check must not cost the others: it is shown, and costs the exit code
        faults.append(RuleCrash(id=CRASH + check.id, error=describe(error)))
        return None


def _order(finding: Finding) -> tuple[int, int, int, float, str, str]:
    """Order findings: the worst first, then what began first, in the order of the links, and what is widest."""
    wide = -(finding.observed or 0.0) if finding.unit == "share" else 0.0
    since = finding.onset_step if finding.onset_step is not None else 0  # what is so throughout began with the traces
    return finding.severity.rank, since, list(Link).index(finding.link), wide, finding.id, finding.slice or ""


def failing_tools(tables: TraceTables, blocks: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return `failing_tools`, the tools that fail, and `failures_over_order`: their calls by block of `over_order`."""
    made = tables.calls.filter(pl.col("counted").is_not_null() & ~pl.col("malformed").fill_null(value=False))
    failures = pl.col("counted").sum().cast(pl.Int64).alias("failures")
    known = pl.len().cast(pl.Int64).alias("known")
    most = made.group_by("tool").agg(known, failures).filter(pl.col("failures") > 0)
    most = most.sort("failures", "tool", descending=[True, False]).head(MAX_TOOLS)
    if most.is_empty():
        return {}
    of = made.select("episode", "tool", "counted").join(most.select("tool"), on="tool", nulls_equal=True)
    place = tables.episodes["place"].to_numpy()[of["episode"].to_numpy()]
    at = np.minimum(np.searchsorted(blocks["last"].to_numpy(), place), blocks.height - 1)
    numbered = of.with_columns(pl.Series("block", blocks["block"].to_numpy()[at]))
    over = numbered.group_by("tool", "block").agg(known, failures).sort("tool", "block")
    first = of.filter("counted").sort("episode").unique("tool", keep="first", maintain_order=True)
    names = tables.episodes.select("episode", first_episode="name", first_place="place")
    first = first.join(names, on="episode").select("tool", "first_episode", "first_place")
    return {
        "failing_tools": most.join(first, on="tool", how="left", nulls_equal=True, maintain_order="left"),
        "failures_over_order": over.join(blocks.select("block", "first", "last"), on="block", maintain_order="left"),
    }
