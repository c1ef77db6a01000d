"""What the agents' last messages say: refusals, repetition, one text for many prompts, success that is only claimed.

Texts are measured while they are read (parsers.io.answer_texts): a draw of them for
repetition, refusals and likeness, all for what they claim.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.evidence.answers import ALIKE, HEAVY_REPETITION, MIN_ENGLISH, MIN_TRIALS
from ptt.diagnostics.model import JsonScalar, Severity
from ptt.diagnostics.rules.interface import Broken, Finding, Healthy, Verdict
from ptt.diagnostics.statistics.near_duplicates import near_duplicates
from ptt.diagnostics.traces.judging import Asked, Bounds, Judged, Measured, graded, judge_share, not_judged
from ptt.diagnostics.traces.outcomes import ENABLE
from ptt.diagnostics.traces.tables import TraceTables, scan_table
from ptt.diagnostics.wording import pct

MAX_COMPARED: Final = 4_000  # answers that are compared with each other, drawn by the hash of their ids
MIN_PROMPTS: Final = 5  # that a text must answer alike to be a form of its own
TEXTS_ENABLE: Final = "write the messages of each episode, not their number alone"
MORE_ENABLE: Final = "read more episodes as one set, of more prompts"
REFUSALS: Final = Asked(
    trials="answers",
    hits="refuse",
    metric="answers.refuses",
    bounds=Bounds(
        floor=0.05,  # of the answers: rules of single runs take the same
        factor=2.0,
        medium=0.15,
        high=0.5,
        chronic=0.3,  # below, prompts that should be refused may explain it
    ),
    causes=("a safety filter or system prompt of the server", "the policy learnt that a refusal is not penalised"),
    confirm="read the last messages of the episodes {where}: should these tasks be refused?",
    next=("take the filter or prompt away in a short run", "penalise refusals of tasks that can be done"),
)
REPETITION: Final = Asked(
    trials="answers",
    hits="repeat themselves",
    metric="answers.repetition",
    bounds=Bounds(floor=0.05, factor=2.0, medium=0.15, high=0.5, chronic=0.2),
    causes=(
        "the policy collapsed onto a loop",
        "a length reward that any text earns",
        "a broken chat template or stop",
    ),
    confirm="read the last messages of the episodes {where} to their ends",
    next=("stop at repeated n-grams, or take repeated text out of the reward", "check template and stop tokens"),
)
ALWAYS: Final = 0.95  # of the failing episodes and of the succeeding: a claim that is always made tells nothing
CLAIMED: Final = Asked(
    trials="labelled episodes",
    hits="claim a success that the environment denies",
    metric="trajectories.claims_success",
    bounds=Bounds(
        floor=0.1,
        factor=2.0,
        medium=0.25,
        high=0.6,
        chronic=0.3,  # an agent that errs now and then says that it is done when it is not
    ),
    causes=(
        "the agent does not check what it did",
        "a reward, or its judge, that believes what the agent says",
        "the label does not see what was done",
    ),
    confirm="look the state up for the episodes {where}: is the task done after all?",
    next=("let the environment verify before the episode ends", "reward the state that is left, never the claim"),
)


FAILING: Final = replace(
    CLAIMED,
    trials="failing episodes",
    hits="claim success",
    bounds=Bounds(
        floor=0.5,
        factor=2.0,
        medium=0.5,
        high=2.0,  # never: that some claims are wrong is no more than a warning, however many failures make them
        chronic=0.5,  # half of the failures: what the agent says of itself is worth no more than a coin
        surely=0.4,
    ),
)


FORMS: Final = Asked(
    trials="answers",
    hits=f"share one form with answers to {MIN_PROMPTS} prompts or more",
    metric="answers.sketch",
    bounds=Bounds(
        floor=0.2,
        factor=2.0,
        medium=0.4,
        high=0.8,
        chronic=0.5,  # half of all: a task that asks for one form gives it from the start, and is a note
    ),
    causes=("the policy collapsed onto a form that is always paid", "the task asks for one form"),
    confirm="read the last messages of the episodes {where}: do they answer what was asked?",
    next=("raise the entropy bonus or the KL penalty, and vary the prompts", "pay for content, not for form"),
)


def judge_refusals(tables: TraceTables) -> Judged:
    """Judge the share of measured answers that refuse."""
    answers = _answers(tables)
    english = answers.filter(pl.col("refuses").is_not_null())
    if english.height < max(1, MIN_ENGLISH * answers.height):
        why = "no answer's text is recorded" if answers.is_empty() else "most answers are not in English"
        return not_judged(why, missing=("turns.text",), enable=TEXTS_ENABLE if answers.is_empty() else "")
    return _judged(tables, REFUSALS, "refusal_rate", english.select("episode", hit="refuses"))


def judge_repetition(tables: TraceTables) -> Judged:
    """Judge the share of measured answers that repeat their own runs of four words."""
    answers = _answers(tables)
    if answers.is_empty():
        return not_judged("no answer's text is recorded", missing=("turns.text",), enable=TEXTS_ENABLE)
    heavy = (pl.col("repetition") > HEAVY_REPETITION).fill_null(value=False)  # a short one holds no loop
    return _judged(tables, REPETITION, "repetition_rate", answers.select("episode", hit=heavy))


def judge_duplicates(tables: TraceTables) -> Judged:
    """Judge how many answers nearly equal answers to other prompts: one form for all, whatever is asked."""
    answers = _answers(tables)
    measured = answers.height
    answers = answers.filter(pl.col("sketch").is_not_null() & pl.col("task_key").is_not_null())
    answers = answers.sort(pl.col("trajectory_id").hash(1)).head(MAX_COMPARED).sort("episode")
    prompts = answers["task_key"].n_unique()
    if answers.height < MIN_TRIALS or prompts < 2 * MIN_PROMPTS:
        return not_judged(
            f"{answers.height} answers of 24 words or more to {prompts} prompts; at least {MIN_TRIALS} to "
            f"{2 * MIN_PROMPTS} prompts are needed",
            missing=("more prompts",) if measured else ("turns.text",),
            enable=MORE_ENABLE if measured else TEXTS_ENABLE,
            applies=not measured or answers.height > 0,  # short answers have no form to share
        )
    sketches = np.array(answers["sketch"].to_list(), np.int64)
    families = near_duplicates(sketches, ALIKE)
    table = answers.with_columns(family=families).with_columns(
        shared=pl.col("task_key").n_unique().over("family"), size=pl.len().over("family")
    )
    duplicate = tables.share(_spread(tables, table.select("episode", hit=pl.col("shared") > 1)))
    forms = table.filter(pl.col("shared") >= MIN_PROMPTS)
    hits = table.select("episode", hit=pl.col("shared") >= MIN_PROMPTS)
    same_form = judge_share(tables, FORMS, Measured.of(tables, _spread(tables, hits)))
    findings = [] if same_form is None else [_with_form(same_form, forms, prompts)]
    reason = f"{duplicate.hits:,} of {duplicate.trials:,} measured answers nearly equal one to another prompt"
    return Judged(verdict=graded(*findings, reason=reason), measured={"duplicate_rate": duplicate})


def _with_form(finding: Finding, forms: pl.DataFrame, prompts: int) -> Finding:
    """Name the largest family, and make what holds throughout a note: the task may ask for its form."""
    ((family, size),) = (
        forms.group_by("family").len().sort("len", "family", descending=[True, False]).head(1).iter_rows()
    )
    largest = forms.filter(pl.col("family") == family)
    evidence: dict[str, JsonScalar] = {
        "largest_form": size, "prompts": int(largest["task_key"].n_unique()), "of_prompts": prompts,
        "episodes": ", ".join(largest["name"].head(3)),
    }  # fmt: skip
    throughout = finding.onset_step is None
    severity = Severity.LOW if throughout and finding.severity.at_least(Severity.MEDIUM) else finding.severity
    return replace(finding, severity=severity, evidence={**finding.evidence, **evidence})


def judge_claims(tables: TraceTables) -> Judged:
    """Judge episodes that claim success where the environment says failure, beside how often the others claim it."""
    claims = scan_table(tables.store, "trajectories").select("trajectory_id", "claims_success").collect()
    claims = claims.unique("trajectory_id", keep="first")
    rows = tables.episodes.select("trajectory_id", "episode", "success").join(claims, on="trajectory_id", how="left")
    known = rows.filter(pl.col("success").is_not_null() & pl.col("claims_success").is_not_null())
    if known.is_empty():
        labelled = tables.traces.labelled > 0
        why = "no last message is recorded" if labelled else "no episode is labelled"
        return not_judged(
            f"{why}, so a claim cannot be held against it",
            missing=("turns.text" if labelled else "success",),
            enable=TEXTS_ENABLE if labelled else ENABLE,
        )
    false = pl.col("claims_success") & ~pl.col("success")
    shares = [
        tables.share(_spread(tables, known.filter(pl.col("success") == done).select("episode", hit="claims_success")))
        for done in (False, True)
    ]
    judged = _judged(tables, CLAIMED, "pseudo_success_rate", known.select("episode", hit=false))
    told = " and ".join(
        f"{share.hits:,} of {share.trials:,} that {word}"
        for share, word in zip(shares, ("fail", "succeed"), strict=True)
    )
    rates = [share.value for share in shares if share.value is not None]
    verdict = judged.verdict
    if isinstance(verdict, Healthy):
        failing = known.filter(~pl.col("success")).select("episode", hit="claims_success")
        half = judge_share(tables, FAILING, Measured.of(tables, _spread(tables, failing)))
        if half is not None and half.severity.at_least(Severity.MEDIUM):
            verdict = Broken(findings=(half,))
    verdict = _compared(verdict, f"{told} claim it")
    return Judged(verdict=_uninformed(verdict) if min(rates) >= ALWAYS else verdict, measured=judged.measured)


def _uninformed(verdict: Verdict) -> Verdict:
    """Make claims that are always made a note: they say nothing, and are denied wherever an episode fails."""
    match verdict:
        case Broken():
            notes, reason = verdict.findings, "the agent says that it is done however an episode ends"
        case Healthy():
            notes, reason = verdict.notes, verdict.reason
        case _:
            return verdict
    said = [
        replace(
            note,
            severity=Severity.INFO,
            claim=f"The agent says that it is done however an episode ends: {note.claim}",
        )
        for note in notes
    ]
    return Healthy(reason=reason, notes=tuple(said))


def _compared(verdict: Verdict, told: str) -> Verdict:
    """Say beside it how often claims are made; what is so throughout is of medium severity at most."""
    match verdict:
        case Healthy():
            return replace(
                verdict, reason=f"{verdict.reason}; {told}", notes=tuple(_told(one, told) for one in verdict.notes)
            )
        case Broken():
            return Broken(findings=tuple(_told(one, told) for one in verdict.findings))
        case _:
            return verdict


def _told(finding: Finding, told: str) -> Finding:
    severe = finding.severity.rank < Severity.MEDIUM.rank and finding.onset_step is None
    return replace(finding, severity=Severity.MEDIUM if severe else finding.severity, claim=f"{finding.claim}; {told}")


def _answers(tables: TraceTables) -> pl.DataFrame:
    """Return the measured answers with their episodes."""
    found = scan_table(tables.store, "answers").collect().unique("trajectory_id", keep="first")
    rows = tables.episodes.select("trajectory_id", "name", "episode", "task_key")
    return rows.join(found, on="trajectory_id", maintain_order="left")


def _judged(tables: TraceTables, asked: Asked, name: str, hits: pl.DataFrame) -> Judged:
    """Judge a share of the episodes for which it was measured: `episode` and `hit`."""
    measured = Measured.of(tables, _spread(tables, hits))
    finding = judge_share(tables, asked, measured)
    share = measured.share
    reason = f"{pct(share.value or 0.0)} of {share.trials:,} measured {asked.trials} {asked.hits}"
    return Judged(verdict=graded(*([finding] if finding else []), reason=reason), measured={name: share})


def _spread(tables: TraceTables, hits: pl.DataFrame) -> pl.Series:
    """Return a Boolean for each episode; null where it was not measured."""
    episodes = tables.episodes.select("episode")
    return episodes.join(hits, on="episode", how="left", maintain_order="left")["hit"]
