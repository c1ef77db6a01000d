"""What a verdict could be mistaken for: the rival explanations, each with what this run says of it."""

from __future__ import annotations

import polars as pl

from ptt.diagnostics.model import Answer, Diagnosis, Link, Status
from ptt.reports.consequences import followed
from ptt.reports.foreign import safe
from ptt.reports.names import LINKS, joined, sentence
from ptt.reports.numbers import count, counted, percent
from ptt.reports.panels import table

MANY = 0.5  # of the tail in 1 % of the sequences: then these sequences are the story
SHOWN_CAUSES = 3
SHOWN_QUESTIONS = 3
NOT_HELD = "What rules out other explanations is not in findings.json; the store has it."


def alternatives(diagnosis: Diagnosis) -> list[str]:
    """Give the explanations that remain, or that were looked at and ruled out; at least one sentence."""
    if diagnosis.signature.status is Answer.FOUND:
        told = [*_logprobs(diagnosis), *_everywhere(diagnosis), *_handful(diagnosis), *_stale(diagnosis)]
        return told or [NOT_HELD]
    first = followed(diagnosis)
    if first is not None:
        causes = joined(list(first.causes[:SHOWN_CAUSES]), last=" or ")
        told = [sentence(f"not proven, but the usual causes: {causes}")] if causes else []
        return [*told, *_logprobs(diagnosis)] if first.link is not Link.DATA_VALIDITY else told or _unseen(diagnosis)
    return _unseen(diagnosis)


def _logprobs(diagnosis: Diagnosis) -> list[str]:
    """Say how far the recorded log-probabilities themselves are cleared of suspicion."""
    if not diagnosis.run.model_tokens:
        return []
    passed = sum(healthy.link is Link.DATA_VALIDITY for healthy in diagnosis.healthy)
    blind = [item.id for item in diagnosis.not_judged if item.link is Link.DATA_VALIDITY and item.applies]
    open_ = f"; not judged: {joined(blind)}" if blind else ""
    faults = [
        finding.id
        for finding in diagnosis.findings
        if finding.link is Link.DATA_VALIDITY and finding.severity.rank <= 2
    ]
    if faults:
        return [f"Faulty logprobs: {joined(faults)} raised a finding of its own, so look there first{open_}."]
    if diagnosis.from_findings:  # which checks passed is not known
        return []
    return [f"Faulty logprobs: {counted(passed, 'check')} of them found nothing amiss{open_}."]


def _everywhere(diagnosis: Diagnosis) -> list[str]:
    if diagnosis.signature.conditions.get("localised") is not True:
        return []
    return ["A drift of the whole policy: no, text-only tails did not grow alike."]


def _handful(diagnosis: Diagnosis) -> list[str]:
    frame = table(diagnosis, "attribution")
    if frame is None:
        return []
    top = frame.filter((pl.col("by") == "top sequences") & (pl.col("value") == "1 %")).to_dicts()
    if not top or top[0]["tail_share"] is None:
        return []
    share, number = top[0]["tail_share"], top[0]["n_sequences"]
    held = f"the {counted(number, 'late sequence')} with most of the tail ({percent(0.01)}) hold {percent(share)} of it"
    return [f"A few odd samples: {'quite possibly, ' if share > MANY else 'no, '}{held}."]


def _stale(diagnosis: Diagnosis) -> list[str]:
    frame = table(diagnosis, "staleness")
    if diagnosis.from_findings:
        return []
    if frame is None:
        return [f"Stale rollouts: cannot be ruled out, {_reason(diagnosis, 'staleness')}."]
    known = frame.filter(pl.col("lag") != "unknown")
    if known["lag"].n_unique() < 2:
        return ["Stale rollouts: no, all sequences with a known version are equally fresh."]
    return ["Stale rollouts: tails are set out by age of the rollouts under Behind the tail."]


def _reason(diagnosis: Diagnosis, name: str) -> str:
    """Say why a table behind the tail is empty, as those who make it put it."""
    notes = table(diagnosis, "details_notes")
    found = [] if notes is None else notes.filter(pl.col("table") == name)["reason"].to_list()
    return safe(found[0]).rstrip(".") if found else "the versions of the policy are not known"


def _unseen(diagnosis: Diagnosis) -> list[str]:
    """Say what this run could hide: the questions that its logs do not answer."""
    links: dict[str, int] = {}
    for item in diagnosis.not_judged:
        if not item.applies:
            continue
        name = LINKS[item.link].lower()
        links[name] = links.get(name, 0) + 1
    if not links:
        return ["Every question that was asked could be judged."]
    named = joined([f"{name} ({count(number)})" for name, number in list(links.items())[:SHOWN_QUESTIONS]])
    hidden = "a fault could hide there" if diagnosis.verdict.status is Status.HEALTHY else "the answer may lie there"
    return [f"Not judged for want of data: questions of {named}; {hidden}."]
