"""The five questions a reader comes with, answered in a few sentences each."""

from __future__ import annotations

import math
import re
from collections import Counter
from statistics import median

import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.model import Answer, Diagnosis, Finding, Link, Severity, Status, since_words
from ptt.reports.run.view import meaning
from ptt.reports.text.consequences import (
    consequences_sentence,
    context_sentences,
    first_failure,
    first_failure_sentence,
    limit_words,
    other_failures_sentence,
    span_words,
)
from ptt.reports.text.names import LINKS, METRICS, SIDES, joined, metric_name, sentence
from ptt.reports.text.numbers import count, counted, limit_value, number, percent, with_unit
from ptt.reports.text.sanitize import safe
from ptt.reports.text.tables import rows_where, table
from ptt.reports.text.why import (
    SIGNATURE,
    after_slice,
    aggregates_sentence,
    chance,
    core_coverage,
    coverage,
    crashes,
    decided_by,
    explained,
    grew,
    no_signature,
    passed,
    thirds,
)

FEW_HOLD_MOST = 0.5  # of the tail in 1 % of the sequences: then these sequences are the story
MAX_CAUSES = 3
MAX_QUESTIONS = 3
MAX_NATS = math.log(1e6)  # beyond it the factor itself says nothing more
NOT_HELD = "findings.json does not contain the evidence against other explanations; the store does."
NOTHING_TO_DO = "Nothing needs to be done."
NO_ONSET = "The step at which it began is unknown."
NOT_PROVEN = "That it happened is measured; what caused it is not proven."
FAR_ABOVE = 2.0  # times a limit: from here on the ratio says more than the two numbers
RATIOS = ("share", "fraction", "x", "×")  # these are ratios already: a ratio to their limit says nothing more
LATE_VALUES = 20  # of a curve: their median is its level now
FROM_TO = re.compile(r"\d\S* (?:nats |s |tokens )?(?:to|→) \S?\d|exactly \S?\d")  # a claim that gives both levels
SENTENCE_END = re.compile(r"(?<=[.!?]) (?=[A-Z])")


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One question and its answer; `ordered` where the sentences are steps to take in turn."""

    key: str
    question: str
    sentences: tuple[str, ...]
    ordered: bool = False


def replies(diagnosis: Diagnosis) -> tuple[Reply, ...]:
    """Answer what happened, since when, how sure that is, what else it could be and what to do first."""
    answers = (
        ("happened", "What happened", happened(diagnosis)),
        ("since", "Since when", _since(diagnosis)),
        ("sure", "How sure", _sure(diagnosis)),
        ("else", "What else it could be", _alternatives(diagnosis)),
    )
    next_steps = tuple(sentence(step) for step in diagnosis.verdict.next) or (NOTHING_TO_DO,)
    return (
        *(
            Reply(key=key, question=question, sentences=tuple(safe(text) for text in sentences if text))
            for key, question, sentences in answers
            if any(sentences)
        ),
        Reply(key="next", question="What to do first", sentences=next_steps, ordered=True),
    )


def happened(diagnosis: Diagnosis, *, short: bool = False) -> list[str]:
    """Say what broke, from which level to which, what it means and what followed from it.

    `short`: what it means only where nothing followed.
    """
    first, found = first_failure(diagnosis), diagnosis.signature.status is Answer.FOUND
    if tail_first(diagnosis):
        sentences = [_factors(diagnosis), grew(diagnosis), explained(diagnosis), other_failures_sentence(diagnosis)]
    elif first is not None:
        tail = _factors(diagnosis) or grew(diagnosis) if found else ""
        followed = consequences_sentence(diagnosis)
        means = "" if short and followed else _meaning(first, sentences=1 if short else 2)
        told = context_sentences(first, said=diagnosis.verdict.headline)
        sentences = [first_failure_sentence(diagnosis), *told, _moved(first, diagnosis), means, followed, tail]
    else:
        outcome = diagnosis.outcome  # what the curves did stands beside it; of tokens that nobody recorded no word
        judged = diagnosis.signature.aggregates.status != "cannot_say" and not (short and outcome is not None)
        tails = outcome is None or diagnosis.run.sequences > 0
        sentences = [
            aggregates_sentence(diagnosis.signature) if judged else "",
            no_signature(diagnosis) if tails else "",
        ]
    return [text for text in (crashes(diagnosis), *sentences) if text]


def tail_first(diagnosis: Diagnosis) -> bool:
    """Return whether the tail after tools grew and is what the verdict follows from."""
    first = first_failure(diagnosis)
    of_tail = first is None or first.id == SIGNATURE or "percentile" in first.evidence
    return diagnosis.signature.status is Answer.FOUND and of_tail


@dataclass(frozen=True, kw_only=True)
class Levels:
    """What the curve of a finding was before it and is now: medians."""

    before: float
    until: int  # the step up to which that was
    after: float
    values: int  # the last ones, which `after` is the median of
    far: float  # the value that lies furthest off


def levels(finding: Finding, diagnosis: Diagnosis) -> Levels | None:
    """Return the levels of a finding's curve before it and at the end; None where its claim gives them, or none is."""
    if FROM_TO.search(finding.claim) or finding.seen_step is None:
        return None
    names = {key: str(finding.evidence.get(key) or "") for key in ("metric", "logged_as")}
    rows = rows_where(diagnosis, "finding_series", **names)
    curve = [(row["step"], row["value"]) for row in rows if row["value"] is not None and math.isfinite(row["value"])]
    began = finding.seen_interval[0] if finding.seen_interval else finding.seen_step
    early = [value for step, value in curve if step < began]
    late = [value for step, value in curve if step >= finding.seen_step][-LATE_VALUES:]
    if not early or not late:
        return None
    before, after = median(early), median(late)
    far = max((value for _, value in curve), key=lambda value: (value - after) * (1 if after >= before else -1))
    return Levels(before=before, until=began, after=after, values=len(late), far=far)


def _moved(finding: Finding, diagnosis: Diagnosis) -> str:
    """Say from which level to which the curve of a finding went, where its claim gives only the limit."""
    moved = levels(finding, diagnosis)
    if moved is None:
        return ""
    names = {key: str(finding.evidence.get(key) or "") for key in ("metric", "logged_as")}
    before, after, far = moved.before, moved.after, moved.far
    label = safe(names["logged_as"] or names["metric"])
    if names["metric"] in METRICS:
        label = sentence(metric_name(names["metric"])).rstrip(".")
    unit = finding.unit if finding.unit == "nats" else ""
    peak = f", {number(far)} at its {'highest' if after >= before else 'lowest'}"
    peak = peak if abs(far - after) > abs(after - before) / 2 else ""
    return sentence(
        f"{label}: median {with_unit(before, unit)} before {diagnosis.run.step_unit} "
        f"{count(moved.until)}, {with_unit(after, unit)} over the last {counted(moved.values, 'value')}{peak}"
    )


def _meaning(finding: Finding, *, sentences: int) -> str:
    """Return the first sentences of why such a failure matters; none where its claim names a cause outside of it."""
    if finding.likely_cause:
        return ""
    text = " ".join(SENTENCE_END.split(meaning(finding))[:sentences])
    return f"{text[:1].upper()}{text[1:]}"


def _factors(diagnosis: Diagnosis) -> str:
    """Turn the log-ratios of the first and last third into the factors that they are."""
    name = after_slice(diagnosis)
    post, text = thirds(diagnosis, name), thirds(diagnosis, "text_only")
    if len(post) < 2 or post[0] is None or post[-1] is None:
        return ""
    early, late = _factor(post[0]), _factor(post[-1])
    share = "twenty" if decided_by(diagnosis) == "p95" else "a hundred"
    where, what = ("tool output", "tool call") if name == "post_tool" else ("an observation", "observation")
    before = f"; before any {what}, {_factor(text[-1])}" if text and text[-1] is not None else ""
    above, _, below = (diagnosis.signature.pair or "").partition("/")
    sides = "one side of the pair than under the other"
    if above in SIDES and below in SIDES:
        sides = f"{SIDES[above]} than under {SIDES[below]}"
    return (
        f"After {where}, one token in {share} is now at least {late} times more or less likely under "
        f"{sides} (|r| is the log of this factor; early in the run: {early} times{before})."
    )


def _factor(log_ratio: float) -> str:
    return number(math.exp(log_ratio)) if log_ratio < MAX_NATS else "a million"


def _since(diagnosis: Diagnosis) -> list[str]:
    signature, run = diagnosis.signature, diagnosis.run
    first, found = first_failure(diagnosis), signature.status is Answer.FOUND
    if tail_first(diagnosis):
        return [passed(diagnosis), aggregates_sentence(signature)]
    curves = aggregates_sentence(signature) if signature.aggregates.alarms else ""
    if first is not None:
        since = sentence("; ".join(filter(None, (since_words(first, count), limit_words(first))))) or NO_ONSET
        tails = passed(diagnosis)
        return [since, f"Tails after tool calls: {tails[:1].lower()}{tails[1:]}" if found else "", curves]
    if diagnosis.verdict.status is Status.HEALTHY:
        span = (
            "" if run.first_step is None else f" in {run.step_unit}s {span_words((run.first_step, run.last_step or 0))}"
        )
        return [f"No finding of medium severity or above began{span}.", curves]
    return ["No finding has a known start.", curves]


def _sure(diagnosis: Diagnosis) -> list[str]:
    first = first_failure(diagnosis)
    if tail_first(diagnosis):
        surely = sentence(chance(diagnosis.signature))
    else:
        surely = measured_sentence(first) if first is not None else ""
    return [surely, coverage(diagnosis), *core_coverage(diagnosis)]


def measured_sentence(finding: Finding) -> str:
    """Set what was seen against what the rule allows; that it happened is measured, its cause is not."""
    observed, limit = finding.observed, finding.limit
    if observed is None or limit is None or observed == limit:
        return NOT_PROVEN
    seen, unit = with_unit(observed, finding.unit), finding.unit
    ratio = unit.startswith((*RATIOS, "of "))
    above = observed / limit if limit > 0 and not ratio else 0.0
    far = f"{number(above, 2)} times the limit of" if above >= FAR_ABOVE else "limit"
    return f"Measured: {seen} ({far} {limit_value(limit, unit)}). {NOT_PROVEN}"


def _alternatives(diagnosis: Diagnosis) -> list[str]:
    """Return the explanations that remain, or that were looked at and ruled out."""
    if diagnosis.signature.status is Answer.FOUND:
        drift = "A drift of the whole policy: no, text-only tails did not grow as much."
        localised = diagnosis.signature.conditions.get("localised") is True
        looked = [_logprobs(diagnosis), drift if localised else "", _few_sequences(diagnosis), _stale(diagnosis)]
        return looked if any(looked) else [NOT_HELD]
    first = first_failure(diagnosis)
    causes = joined(list(first.causes[:MAX_CAUSES]), last=" or ") if first is not None else ""
    usual = [sentence(f"usual causes, not proven here: {causes}")] if causes else []
    if first is not None and first.link is not Link.DATA_VALIDITY:
        return [*usual, _logprobs(diagnosis)]
    return usual or [_unseen(diagnosis)]


def _logprobs(diagnosis: Diagnosis) -> str:
    """Say how far the recorded log-probabilities themselves are cleared of suspicion."""
    if not diagnosis.run.model_tokens:
        return ""
    validity = Link.DATA_VALIDITY
    blind = [item.id for item in diagnosis.not_judged if item.link is validity and item.applies]
    unjudged = f"; not judged: {joined(blind)}" if blind else ""
    faults = [f.id for f in diagnosis.findings if f.link is validity and f.severity.at_least(Severity.MEDIUM)]
    if faults:
        return f"Faulty logprobs: possible. Check {joined(faults)} first{unjudged}."
    if diagnosis.from_findings:  # which checks passed is not known
        return ""
    healthy = sum(check.link is validity for check in diagnosis.passed)
    return f"Faulty logprobs: {counted(healthy, 'check')} passed{unjudged}."


def _few_sequences(diagnosis: Diagnosis) -> str:
    rows = rows_where(diagnosis, "attribution", by="top sequences", value="1 %")
    if not rows or rows[0]["tail_share"] is None:
        return ""
    share, sequences = rows[0]["tail_share"], counted(rows[0]["n_sequences"], "late sequence")
    likely = "quite possibly" if share > FEW_HOLD_MOST else "no"
    return (
        f"A few odd samples: {likely}, the {sequences} with most of the tail ({percent(0.01)}) hold "
        f"{percent(share)} of it."
    )


def _stale(diagnosis: Diagnosis) -> str:
    if diagnosis.from_findings:
        return ""
    frame = table(diagnosis, "staleness")
    if frame is None:
        reasons = [row["reason"] for row in rows_where(diagnosis, "details_notes", table="staleness")]
        reason = safe(reasons[0]).rstrip(".") if reasons else "policy versions are unknown"
        return f"Stale rollouts: cannot be ruled out, {reason}."
    if frame.filter(pl.col("lag") != "unknown")["lag"].n_unique() < 2:
        return "Stale rollouts: no, all sequences with a known version are equally fresh."
    return 'Stale rollouts: possible, see the tails by rollout age under "Behind the tail".'


def _unseen(diagnosis: Diagnosis) -> str:
    """Say what this run could hide: the questions that its logs do not answer."""
    links = Counter(LINKS[item.link].lower() for item in diagnosis.not_judged if item.applies)
    if not links:
        return "Every question was judged."
    named = joined([f"{name} ({count(number)})" for name, number in list(links.items())[:MAX_QUESTIONS]])
    hidden = "a fault could hide there" if diagnosis.verdict.status is Status.HEALTHY else "the answer may lie there"
    return f"Not judged, for lack of data: questions on {named}; {hidden}."
