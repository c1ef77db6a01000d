"""The five questions a reader comes with, answered in a few sentences each."""

from __future__ import annotations

import math
from dataclasses import dataclass

import polars as pl

from ptt.diagnostics.model import Answer, Diagnosis, Finding, Link, Status
from ptt.reports.text.consequences import beside, followed, leading, onset_words
from ptt.reports.text.names import LINKS, SIDES, joined, sentence
from ptt.reports.text.numbers import count, counted, number, percent, with_unit
from ptt.reports.text.sanitize import safe
from ptt.reports.text.tables import table
from ptt.reports.text.why import (
    after_slice,
    aggregates_sentence,
    chance,
    coverage,
    crashes,
    grew,
    no_signature,
    passed,
    thirds,
    why_it_grew,
)

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


NOTHING_TO_DO = "Nothing needs to be done."
MOST = 300.0  # nats: exp of it is finite
NO_ONSET = "No step can be named at which it began."


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One question and its answer; `ordered` where the sentences are steps to take in turn."""

    key: str
    question: str
    sentences: tuple[str, ...]
    ordered: bool = False


def replies(diagnosis: Diagnosis) -> tuple[Reply, ...]:
    """Answer what happened, since when, how sure that is, what else it could be and what to do first."""
    next_steps = tuple(sentence(step) for step in diagnosis.verdict.next) or (NOTHING_TO_DO,)
    return (
        _reply("happened", "What happened", _happened(diagnosis)),
        _reply("since", "Since when", _since(diagnosis)),
        _reply("sure", "How sure", _sure(diagnosis)),
        _reply("else", "What else it could be", alternatives(diagnosis)),
        Reply(key="next", question="What to do first", sentences=next_steps, ordered=True),
    )


def _reply(key: str, question: str, sentences: list[str]) -> Reply:
    return Reply(key=key, question=question, sentences=tuple(safe(text) for text in sentences if text))


def _happened(diagnosis: Diagnosis) -> list[str]:
    signature = diagnosis.signature
    if signature.status is Answer.FOUND:
        return [
            *crashes(diagnosis),
            *_in_plain_words(diagnosis),
            grew(diagnosis),
            why_it_grew(diagnosis),
            *beside(diagnosis),
        ]
    return [*crashes(diagnosis), *leading(diagnosis), no_signature(diagnosis)]


def _in_plain_words(diagnosis: Diagnosis) -> list[str]:
    """Turn the log-ratios of the first and last third into the factors that they are."""
    name = after_slice(diagnosis)
    post, text = thirds(diagnosis, name), thirds(diagnosis, "text_only")
    if len(post) < 2 or post[0] is None or post[-1] is None:
        return []
    early, late = (number(math.exp(min(value, MOST))) for value in (post[0], post[-1]))
    before = text[-1] if text else None
    where, what = ("tool output", "tool call") if name == "post_tool" else ("an observation", "observation")
    beside = f"; before any {what}, {number(math.exp(min(before, MOST)))}" if before is not None else ""
    return [
        f"After {where}, one token in twenty is now at least {late} times likelier or less likely to "
        f"{_against(diagnosis.signature.pair)} (early in the run: {early} times{beside})."
    ]


def _against(pair: str | None) -> str:
    above, _, below = (pair or "").partition("/")
    if above in SIDES and below in SIDES:
        return f"{SIDES[above]} than to {SIDES[below]}"
    return "one side of the pair than to the other"


def _since(diagnosis: Diagnosis) -> list[str]:
    signature = diagnosis.signature
    if signature.status is Answer.FOUND:
        return [passed(diagnosis) + ".", aggregates_sentence(signature)]
    curves = [aggregates_sentence(signature)] if signature.aggregates.alarms else []
    first = followed(diagnosis)
    if first is not None:
        known = first.onset_step is not None
        began = onset_words(first.onset_step, first.onset_interval)
        return [f"Since {began}." if known else NO_ONSET, *curves]
    if diagnosis.verdict.status is Status.HEALTHY:
        run = diagnosis.run
        span = "" if run.first_step is None else f" in steps {count(run.first_step)} to {count(run.last_step or 0)}"
        return [f"No finding of medium severity or above began{span}.", *curves]
    return ["Nothing was found whose beginning could be told.", *curves]


def _sure(diagnosis: Diagnosis) -> list[str]:
    if diagnosis.signature.status is Answer.FOUND:
        told = chance(diagnosis.signature)
        return [sentence(told) if told else "", coverage(diagnosis)]
    first = followed(diagnosis)
    return [*([_measured(first)] if first is not None else []), coverage(diagnosis)]


def _measured(finding: Finding) -> str:
    """Set what was seen against what the rule allows."""
    if finding.observed is None or finding.limit is None:
        return ""
    seen, allowed = with_unit(finding.observed, finding.unit), with_unit(finding.limit, finding.unit)
    return f"Seen: {seen}, where the limit is {allowed}."
