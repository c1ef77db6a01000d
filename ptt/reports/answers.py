"""The five questions a reader comes with, answered in a few sentences each."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ptt.diagnostics.model import Answer, Diagnosis, Finding, Status
from ptt.reports.alternatives import alternatives
from ptt.reports.consequences import beside, followed, leading, onset_words
from ptt.reports.foreign import safe
from ptt.reports.names import SIDES, sentence
from ptt.reports.numbers import count, number, with_unit
from ptt.reports.why import (
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
