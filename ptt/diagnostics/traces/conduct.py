"""How the agent behaves: malformed calls, turns without content, circles, cut-off episodes, recovery after failure."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.evidence.environment import MALFORMED
from ptt.diagnostics.model import Severity
from ptt.diagnostics.rules.interface import Finding, Healthy
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray
from ptt.diagnostics.traces.judging import (
    MAX_SHOWN,
    WHOLE,
    Asked,
    Bounds,
    Judged,
    Measured,
    graded,
    judge_share,
    no_calls,
    not_judged,
)
from ptt.diagnostics.traces.tables import TraceTables, Values, per_episode
from ptt.diagnostics.wording import counted, pct

MAX_PERIOD: Final = 4  # calls in a circle
MIN_ROUNDS: Final = 3  # twice the same is a second look
STANDARD_ARGS: Final = 3
"""Number of different arguments to which a tool gives the same answer ("OK", "scrolled down"): such an answer says
nothing about a state that may have changed, so repeating it is not a circle."""
STANDARD_SHARE: Final = 0.5  # of the tool's results that have this answer


def looping_calls(tables: TraceTables) -> tuple[BoolArray, BoolArray]:
    """Flag for each call whether it closes a circle's third round or a later one, and whether that could be seen.

    A circle is one to four calls, three times in a row, each time with the same tools, arguments and results. A result
    without text, or one that the tool always gives, does not count as the same.
    """
    calls = tables.calls
    plain = pl.col("result").is_not_null() & (pl.col("result_len").fill_null(1) > 0)
    failed = pl.col("failed").fill_null(value=False)
    rows = calls.select(
        "episode",
        (pl.col("tool").is_not_null() & pl.col("result").is_not_null() & (failed | (plain & ~_standard(calls)))).alias(
            "seen"
        ),
        pl.struct("tool", pl.col("args").fill_null(0), "result").hash(1).alias("same"),
    )
    seen, same, who = rows["seen"].to_numpy(), rows["same"].to_numpy(), rows["episode"].to_numpy().astype(np.int64)
    return _circles(same, who, seen), seen


def with_loops(tables: TraceTables) -> TraceTables:
    """Add `circle` to calls, as `looping_calls` flags them, and `looped` to episodes: null where none could be seen."""
    circles, seen = looping_calls(tables)
    calls = tables.calls.with_columns(pl.Series("circle", circles))
    looped = calls.filter(pl.Series(seen)).group_by("episode").agg(pl.col("circle").any().alias("looped"))
    return replace(
        tables, calls=calls, episodes=tables.episodes.join(looped, on="episode", how="left", maintain_order="left")
    )


def _circles(same: IntArray, who: IntArray, seen: BoolArray) -> BoolArray:
    hit = np.zeros(len(who), bool)
    at = np.arange(len(who))
    for period in range(1, MAX_PERIOD + 1):
        back = np.zeros(len(who), bool)
        back[period:] = (same[period:] == same[:-period]) & (who[period:] == who[:-period]) & seen[period:]
        run = at - np.maximum.accumulate(np.where(back, -1, at))
        hit |= run >= (MIN_ROUNDS - 1) * period  # so many calls in a row equal the one a period before
    return hit


def _standard(calls: pl.DataFrame) -> pl.Series:
    """Flag calls whose result is what the tool answers to whatever it is asked."""
    answers = calls.group_by("tool", "result").agg(pl.col("args").n_unique().alias("asked"), pl.len().alias("given"))
    share = pl.col("given") / pl.col("given").sum().over("tool")
    standard = answers.filter((pl.col("asked") >= STANDARD_ARGS) & (share >= STANDARD_SHARE))
    flagged = calls.select("tool", "result").join(
        standard.select("tool", "result", pl.lit(value=True).alias("standard")),
        on=["tool", "result"],
        how="left",
        maintain_order="left",
    )
    return flagged["standard"].fill_null(value=False)


ASKED_CALLS: Final = Asked(
    trials="tool calls",
    hits="are malformed",
    metric="tool_calls.args_json",
    bounds=Bounds(
        floor=0.05,  # of the calls: every agent spoils one now and then
        factor=2.0,
        medium=0.05,  # syntax is the easiest part of a call: a share that rose to this and stays is no accident
        high=0.3,
        chronic=0.2,  # a fifth of all calls wasted on syntax
        surely=0.1,  # no set of sound calls comes near it
    ),
    causes=(
        "a chat template or tool parser that does not fit the model",
        "calls cut off at the length limit",
        "tool definitions that the agent does not see, or sees in another form",
    ),
    confirm="read ten malformed calls of the episodes {where}: cut off, wrong name, or broken syntax?",
    next=(
        "check that chat template and tool parser belong to this model, and check the length limit",
        "give the parser's error back to the agent, and see whether its next call is well formed",
    ),
)
ASKED_EPISODES: Final = replace(
    ASKED_CALLS, trials="episodes", hits="contain a call that could not be parsed", metric="trajectories.error_type"
)
ASKED_VOID: Final = Asked(
    trials="assistant turns",
    hits="are void: neither text nor call",
    metric="turns.text_len",
    bounds=Bounds(
        floor=0.05,  # of the assistant's turns
        factor=2.0,
        medium=0.05,
        high=0.3,
        chronic=0.2,  # a fifth of all turns do nothing
    ),
    causes=(
        "reasoning that is split from the message, with nothing after it",
        "a stop token or a template that ends turns early",
        "calls that the parser dropped because it could not read them",
    ),
    confirm="read the void turns of the episodes {where} as the model wrote them: was there a call or a thought in it?",
    next=(
        "log reasoning and unreadable calls with the message",
        "leave episodes with a void turn out of training (SimpleTIR, arXiv 2509.02479)",
    ),
)
ASKED_LOOPS: Final = Asked(
    trials="episodes with calls",
    hits="go round in circles: the same calls with the same results, three times in a row or more",
    metric="tool_calls.args_json",
    bounds=Bounds(
        floor=0.1,  # of the episodes
        factor=2.0,
        medium=0.1,
        high=0.5,
        chronic=0.2,  # every fifth episode has lost the thread
    ),
    causes=(
        "an agent that lost the thread after an observation, or does not see it",
        "earlier results that are cut out of the context",
        "an error message that does not say what to do otherwise",
    ),
    confirm="read the episodes {where} where the circle begins: was the first result still in the context?",
    next=(
        "end an episode at its second identical round, or answer the repeat with a pointer to the first result",
        "keep earlier results in the context",
    ),
)
ASKED_TRUNCATED: Final = Asked(
    trials="episodes",
    hits="are cut off at a limit of length or turns",
    metric="trajectories.truncated",
    bounds=Bounds(
        floor=0.15,  # of the episodes: a few long ones are cut anywhere
        factor=2.0,
        medium=0.15,
        high=0.5,  # more are cut than end
        chronic=0.25,  # every fourth has no end, and its outcome is that of the limit
    ),
    causes=(
        "a limit that is too short for the task",
        "an agent that does not end its episodes",
        "circles or long outputs that fill the context",
    ),
    confirm="read the ends of the episodes {where}: at work, going in circles, or noise?",
    next=(
        "if at work: raise the limit; if in circles: see what else is named here",
        "leave cut episodes out of success rates and of training, or count them apart",
    ),
)
MIN_CUT: Final = 3  # failing episodes that are cut off: fewer happen to any agent
CUT_SHARE: Final = 0.5  # of the failing episodes, at least
LOST_RECOVERY: Final = 0.5  # of the early share of failed calls made good that must be left
MIN_EARLY_RECOVERY: Final = 0.2  # of the failed calls: an agent that hardly ever recovered has lost nothing


def malformed(tables: TraceTables) -> tuple[Asked, Measured]:
    """Return what is asked of malformed calls: of all calls, or of episodes where a format keeps none of them."""
    of_calls = Measured.of(tables, tables.episodes["malformed"], tables.episodes["checked"], rate="malformed")
    kind = tables.episodes["error_type"]
    of_episodes = Measured.of(tables, kind.str.contains(MALFORMED).fill_null(value=False), rate="malformed")
    spoilt, everywhere = of_calls.share.value or 0.0, (of_episodes.share.value or 0.0) >= WHOLE
    if of_episodes.share.hits and (not of_calls.share.hits or (everywhere and spoilt >= ASKED_CALLS.bounds.floor)):
        # a format that keeps no calls that could not be read; or no episode gets by without one
        return ASKED_EPISODES, replace(of_episodes, more={"share_of_calls": spoilt})
    return ASKED_CALLS, of_calls


def judge_malformed(tables: TraceTables) -> Judged:
    """Judge calls that could not be parsed or checked, and episodes that are said to hold one."""
    rate = tables.share(tables.episodes["malformed"], tables.episodes["checked"])
    asked, measured = malformed(tables)
    if tables.calls.is_empty() and not measured.share.hits and (tables.episodes["said"].sum() or 0) > 0:
        return no_calls(tables)
    if not measured.share.trials:
        return not_judged(
            "neither arguments of calls nor kinds of error are recorded",
            missing=("tool_calls.args_json",),
            enable="record calls with their arguments as written, and those that could not be parsed with the error",
        )
    few = 0 < (rate.value or 0.0) < ASKED_CALLS.bounds.chronic
    worst = Severity.HIGH if few else Severity.CRITICAL
    judged = _judged(tables, asked, measured, "malformed_rate", worst=worst, excused=few)
    return replace(judged, measured={"malformed_rate": rate if rate.hits else measured.share})


def judge_void(tables: TraceTables) -> Judged:
    """Judge turns of the assistant that neither say nor call anything."""
    measured = Measured.of(tables, tables.episodes["void"], tables.episodes["said"], rate="void")
    if not measured.share.trials:
        return not_judged(
            "the texts of the assistant's turns are not recorded",
            missing=("turns.text_len",),
            enable="write episodes as messages with roles, texts and tool calls",
        )
    return _judged(tables, ASKED_VOID, measured, "void_rate")


def judge_truncated(tables: TraceTables) -> Judged:
    """Judge episodes that were cut off."""
    measured = Measured.of(tables, tables.episodes["truncated"], rate="truncated")
    if not measured.share.trials:
        return not_judged(
            "how episodes ended is not recorded",
            missing=("trajectories.truncated",),
            enable="write with each episode why it stopped: an answer, a limit of turns or tokens, an error",
        )
    judged = _judged(tables, ASKED_TRUNCATED, measured, "truncated_rate")
    note = _cut_failures(tables)
    if note is None or not isinstance(judged.verdict, Healthy) or judged.verdict.notes:
        return judged
    return replace(judged, verdict=replace(judged.verdict, notes=(note,)))


def _cut_failures(tables: TraceTables) -> Finding | None:
    """Return that many of the failures are cut off, and hardly a success: a limit decides, not the task."""
    known = tables.episodes.filter(pl.col("success").is_not_null() & pl.col("truncated").is_not_null())
    failed, done = (known.filter(pl.col("success") == how)["truncated"] for how in (False, True))
    hits = int(failed.sum())
    if hits < MIN_CUT or hits < CUT_SHARE * len(failed) or int(done.sum()) * len(failed) >= hits * max(1, len(done)):
        return None
    cut = known.filter(pl.col("truncated") & ~pl.col("success"))
    return Finding(
        severity=Severity.LOW,
        claim=f"{hits:,} of {len(failed):,} failing episodes are cut off at a limit of length or turns, and "
        f"{int(done.sum()):,} of {len(done):,} succeeding",
        observed=hits / len(failed),
        limit=CUT_SHARE,
        unit="share",
        evidence={
            "metric": ASKED_TRUNCATED.metric,
            "hits": hits,
            "trials": len(failed),
            "episodes": tables.names(cut["episode"].head(MAX_SHOWN)),
        },
        causes=ASKED_TRUNCATED.causes,
        confirm=(ASKED_TRUNCATED.confirm.format(where="named here"),),
        next=ASKED_TRUNCATED.next,
    )


def judge_loops(tables: TraceTables) -> Judged:
    """Judge episodes that go round in circles of calls."""
    if tables.calls.is_empty():
        return no_calls(tables)
    measured = Measured.of(tables, tables.episodes["looped"], rate="loops")
    if not measured.share.trials:
        return not_judged(
            "results of tool calls are not recorded, so that a second look cannot be told from a circle",
            missing=("tool_calls.result_hash",),
            enable="record the result of each tool call beside its arguments",
        )
    measured = replace(measured, more={"calls_in_circles": int(tables.calls["circle"].sum())})
    return _judged(tables, ASKED_LOOPS, measured, "loop_rate")


def recoveries(tables: TraceTables) -> Values:
    """Return of each episode the failed calls that a later one made good, and all of its failed calls."""
    known = tables.calls.filter(pl.col("counted").is_not_null()).select("episode", failed="counted")
    later = (~pl.col("failed")).cum_sum(reverse=True).over("episode") > 0
    failed = known.with_columns(later.alias("good")).filter("failed")
    return per_episode(tables, failed.group_by("episode").agg(pl.col("good").sum(), pl.len()))


def is_lost(early: FloatArray, late: FloatArray) -> BoolArray:
    """Tell whether a fall of recovery matters."""
    lost: BoolArray = (early >= MIN_EARLY_RECOVERY) & (late <= LOST_RECOVERY * early)
    return lost


def judge_recovery(tables: TraceTables) -> Judged:
    """Judge whether failed calls are made good by a later call of the same episode."""
    if not tables.calls["counted"].any():
        if tables.calls["failed"].any():
            return not_judged("of the calls after a failed one no outcome is recorded", missing=("tool_calls.ok",))
        return not_judged("no failed calls are recorded: there is nothing to recover from", applies=False)
    hits, trials = (pl.Series(values) for values in recoveries(tables))
    share, fall = tables.share(hits, trials), tables.shift("recovery")
    reason = f"a later call succeeds after {share.hits:,} of {counted(share.trials, 'failed call(s)')}"
    findings: tuple[Finding, ...] = ()
    if fall is not None:
        findings = (
            Finding(
                severity=Severity.MEDIUM,
                claim=f"A later call made good {pct(fall.early)} of failed calls at first, {pct(fall.late)} at the end",
                observed=fall.late,
                limit=LOST_RECOVERY * fall.early,
                unit="share",
                onset_step=fall.onset,
                onset_interval=fall.interval,
                evidence={
                    "metric": "tool_calls.ok",
                    "hits": share.hits,
                    "trials": share.trials,
                    "p_value": fall.p_value,
                },
                causes=(
                    "failures that no second try can mend: the tool is down",
                    "an agent that gives up at the first error, or takes an error for a result",
                ),
                confirm=(
                    f"read ten episodes with a failed call before {tables.traces.order} {fall.onset} and ten after: "
                    "is there a second try, and does it fail too?",
                ),
                next=(
                    "where the second try fails too, mend the tool first",
                    "where there is none, see what a try costs",
                ),
            ),
        )
    return Judged(verdict=graded(*findings, reason=reason), measured={"recovery_rate": share})


def _judged(
    tables: TraceTables,
    asked: Asked,
    measured: Measured,
    key: str,
    *,
    worst: Severity = Severity.CRITICAL,
    excused: bool = True,
) -> Judged:
    """Judge a share; where `excused`, one that costs no success is a note."""
    share = measured.share
    finding = judge_share(tables, asked, measured)
    if finding is not None and finding.severity.rank < worst.rank:
        finding = replace(finding, severity=worst)
    serious = finding is not None and finding.severity.at_least(Severity.MEDIUM)
    is_level = finding is not None and finding.onset_step is None  # what changed is told, whatever comes of it
    if finding is not None and serious and excused and is_level and _harmless(tables, measured.hits > 0):
        more = {**finding.evidence, "harmless": "these episodes succeed as often as the others"}
        finding = replace(finding, severity=Severity.LOW, evidence=more)
    reason = f"{share.hits:,} of {share.trials:,} {asked.trials} {asked.hits}"
    verdict = graded(*(() if finding is None else (finding,)), reason=reason)
    return Judged(verdict=verdict, measured={key: share})


MIN_OUTCOMES: Final = 20  # labelled episodes on either side: with fewer, that they succeed as often shows nothing


def _harmless(tables: TraceTables, hit: BoolArray) -> bool:
    """Tell whether the episodes concerned succeed as often as the others, as far as both are labelled."""
    known = tables.episodes["success"].is_not_null().to_numpy()
    success = tables.episodes["success"].fill_null(value=False).to_numpy()
    concerned, others = success[known & hit], success[known & ~hit]
    if min(len(concerned), len(others)) < MIN_OUTCOMES:
        return False
    return bool(concerned.mean() >= others.mean())
