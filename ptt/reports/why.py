"""The few sentences under Why: what grew, since when, how sure that is, and what the usual curves did."""

from __future__ import annotations

import polars as pl

from ptt.diagnostics.model import Aggregates, Answer, Diagnosis, Signature
from ptt.reports.consequences import beside, leading, span_words
from ptt.reports.foreign import safe
from ptt.reports.growth_parts import explained
from ptt.reports.names import joined, metric_name, sentence, slice_name
from ptt.reports.numbers import bounds, count, counted, number, p_value, percent, times, with_unit

LONGEST = 5  # sentences: the first screen is read in half a minute
THIRDS = 3
SIGNATURE = "tool-tail-growth"
PLAINEST = ("at-chance", "overfitting", "loss-plateau")  # is anything learnt, and does it hold for unseen data


def why(diagnosis: Diagnosis, *, covered: bool = True) -> tuple[str, ...]:
    """Give two to five sentences that carry the verdict; the last may say how much was judged."""
    signature = diagnosis.signature
    sentences = [*crashes(diagnosis)]
    if signature.status is Answer.FOUND:
        sentences += [grew(diagnosis), _since(diagnosis), aggregates_sentence(signature), why_it_grew(diagnosis)]
        sentences += beside(diagnosis)
    else:
        sentences += [*leading(diagnosis), no_signature(diagnosis)]
        if signature.aggregates.alarms:
            sentences.append(aggregates_sentence(signature))
        sentences += [coverage(diagnosis)] if covered else []
    return tuple(safe(text) for text in sentences if text)[:LONGEST]


def why_it_grew(diagnosis: Diagnosis) -> str:
    """Say what the growth of E[rho^2] came from; empty where it was not split."""
    return explained(diagnosis, post=slice_name(after_slice(diagnosis)))


def after_slice(diagnosis: Diagnosis) -> str:
    """Name the slice after observations as this run's evidence allows it to be called."""
    for table in ("growth", "tail_emergence", "ecdf"):
        frame = diagnosis.tables.get(table)
        if frame is not None and "slice" in frame.columns:
            names = set(frame["slice"].drop_nulls().to_list())
            if "post_tool" not in names and "post_observation" in names:
                return "post_observation"
    return "post_observation" if "post_observation" in diagnosis.signature.growth else "post_tool"


def thirds(diagnosis: Diagnosis, of: str) -> list[float | None]:
    """Give the p95 of one slice by thirds of the run; empty if it was not measured."""
    frame = diagnosis.tables.get("growth")
    if frame is None or frame.is_empty():
        return []
    rows = frame.filter((pl.col("parts") == THIRDS) & (pl.col("slice") == of)).sort("part")
    return rows["p95"].to_list()


def aggregates_sentence(signature: Signature) -> str:
    """Say what loss, reward, entropy, KL and gradient norm did, and how long the tail was ahead of them."""
    aggregates = signature.aggregates
    if aggregates.status == "cannot_say":
        return "Whether the usual curves stayed quiet cannot be said: too few of them were logged."
    lead = ""
    if signature.lead_steps is not None and signature.status is Answer.FOUND:
        steps = f"{count(abs(signature.lead_steps))} steps"
        behind = signature.lead_steps < 0
        known = _lead_bounds(signature)
        lead = f", {steps} before the tail{known}" if behind else f", {steps} after the tail{known}"
        if signature.lead_is_lower_bound:
            lead = f" by the end of the run, {steps}{known} after the tail passed its limit"
    if aggregates.alarms:
        first = min(aggregates.alarms, key=lambda name: (aggregates.alarms[name], name))
        others = len(aggregates.alarms) - 1
        more = f" ({others} more followed)" if others else ""
        when = f"{metric_name(first)} at step {count(aggregates.alarms[first])}"
        return f"The first usual curve to alarm was {when}{more}{lead}."
    if aggregates.status == "alarming":
        return f"The usual curves raised an alarm{lead}; findings.json does not tell which of them, and at which step."
    return f"The usual curves raised no alarm ({_movements(aggregates)}){lead}."


def _lead_bounds(signature: Signature) -> str:
    """Say how closely the lead is known; negative bounds are told as such beside a tail that was behind."""
    if signature.lead_interval is None:
        return ""
    low, high = signature.lead_interval
    if high is None:
        return f" ({count(low)} or more)"
    behind = signature.lead_steps is not None and signature.lead_steps < 0
    first, last = (-high, -low) if behind else (low, high)
    return f" ({_signed(first)} to {_signed(last)})"


def _signed(steps: int) -> str:
    return f"−{count(-steps)}" if steps < 0 else count(steps)


def _movements(aggregates: Aggregates) -> str:
    words = {"flat": "flat", "rose": "rising", "fell": "falling", "cannot_say": "cannot say"}
    by_word: dict[str, list[str]] = {}
    for name, movement in sorted(aggregates.metrics.items()):
        by_word.setdefault(words.get(movement, movement), []).append(metric_name(name))
    return "; ".join(f"{joined(names)} {word}" for word, names in by_word.items()) or "none logged"


def grew(diagnosis: Diagnosis) -> str:
    """Say how the post-tool tail went by thirds of the run, beside the text-only one."""
    signature, name = diagnosis.signature, after_slice(diagnosis)
    growth = signature.growth.get(name)
    rise = ""
    if growth is not None and growth.p95 is not None:
        rise = f" ({times(growth.p95)}"
        rise += f", 95 % interval {bounds(*growth.interval_p95)})" if growth.interval_p95 else ")"
    values, text = thirds(diagnosis, name), thirds(diagnosis, "text_only")
    if not values:
        return f"{sentence(f'{slice_name(name)} tails of |log-ratio| grew{rise}')}"
    pair = f" for {signature.pair}" if signature.pair else ""
    beside = f"; text-only {_arrows(text)}" if text else ""
    head = slice_name(name).capitalize()
    return f"{head} p95 of |log-ratio|{pair} by thirds of the run: {_arrows(values)}{rise}{beside}."


def _since(diagnosis: Diagnosis) -> str:
    return "; ".join(filter(None, (passed(diagnosis), chance(diagnosis.signature)))) + "."


def passed(diagnosis: Diagnosis) -> str:
    """Say at which step the tail passed its limit, and how closely that is known."""
    signature = diagnosis.signature
    if signature.onset_step is None:
        return "The step at which it passed its limit could not be placed"
    known = f", 95 % interval {span_words(signature.onset_interval)}" if signature.onset_interval else ""
    return f"It passed its limit{_limit(diagnosis)} at step {count(signature.onset_step)}{known}"


def chance(signature: Signature) -> str:
    """Say how unlikely chance is; empty where it was not tested."""
    rate = signature.false_alarm_rate
    alarms = f"false alarms: {percent(rate)} of stable runs" if rate is not None else ""
    tested = p_value(signature.p_value) if signature.p_value is not None else ""
    return f"chance is unlikely ({'; '.join(filter(None, (tested, alarms)))})" if tested or alarms else ""


def _limit(diagnosis: Diagnosis) -> str:
    """Name the limit of the finding that speaks of the signature's onset."""
    for finding in diagnosis.findings:
        if finding.onset_step == diagnosis.signature.onset_step and finding.limit is not None:
            percentile = finding.evidence.get("percentile")
            return f" ({percentile} of {with_unit(finding.limit, finding.unit)})" if percentile else ""
    return ""


def no_signature(diagnosis: Diagnosis) -> str:
    """Say that the signature was not found, or could not be judged, and why."""
    signature = diagnosis.signature
    reason = sentence(signature.reason) if signature.reason else ""
    if not samples(diagnosis):
        return told_instead(diagnosis) or f"Tail growth after tool calls is not asked of it. {reason}".strip()
    if signature.status is Answer.CANNOT_SAY:
        return f"Tail growth after tool calls could not be judged. {reason}".strip()
    failed = [name for name, held in signature.conditions.items() if held is False]
    which = f" (not met: {joined(failed)})" if failed else ""
    return f"Tail growth after tool calls was looked for and not found{which}. {reason}".strip()


def samples(diagnosis: Diagnosis) -> bool:
    """Tell whether tail growth after tool calls is a question to this run: not to training that samples nothing."""
    return all(item.applies for item in diagnosis.not_judged if item.id == SIGNATURE)


def told_instead(diagnosis: Diagnosis) -> str:
    """Say of training that samples nothing what its two plainest checks saw; empty where neither called it healthy."""
    seen = {check.id: check.reason for check in diagnosis.healthy}
    return " ".join([sentence(seen[name]) for name in PLAINEST if name in seen][:2])


def coverage(diagnosis: Diagnosis) -> str:
    """Say how many checks looked, and how many could not."""
    blind = sum(item.applies for item in diagnosis.not_judged)
    if diagnosis.from_findings:
        return f"{counted(blind, 'question')} could not be judged." if blind else ""
    judged = len(diagnosis.healthy)
    if not judged and not blind:
        return ""
    healthy = f"{counted(judged, 'check')} found nothing amiss" if judged else "No check could call anything healthy"
    return f"{healthy}; {counted(blind, 'question')} could not be judged." if blind else f"{healthy}."


def crashes(diagnosis: Diagnosis) -> list[str]:
    """Say which rules failed by a fault of the program."""
    if not diagnosis.crashes:
        return []
    names = joined([crash.id for crash in diagnosis.crashes])
    return [f"A fault of ours: {names} crashed, so what it asks is unanswered."]


def _arrows(values: list[float | None]) -> str:
    return " → ".join(number(value) for value in values)
