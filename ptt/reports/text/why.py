"""The few sentences under Why: what grew, where from, since when, how sure that is, and what the usual curves did."""

from __future__ import annotations

from typing import Any

import polars as pl

from ptt.diagnostics.model import Aggregates, Answer, Diagnosis, Signature
from ptt.reports.text.consequences import beside, leading, span_words
from ptt.reports.text.names import joined, metric_name, sentence, slice_name
from ptt.reports.text.numbers import bounds, count, counted, number, p_value, percent, times, with_unit
from ptt.reports.text.sanitize import safe
from ptt.reports.text.tables import pair_of, table

TABLE = "exposure"
PARTS = ("exposure", "text", "tool")
AGAINST = {"exposure": "the share of tool tokens", "text": "text-only tails", "tool": "post-tool tails"}
LEAST = 0.005  # of the growth: smaller parts are not told
HALF = 0.5  # of a sum, held by one token: the split then speaks of that token
NEEDED = ("total_early", "total_late", *PARTS)

Row = dict[str, Any]


def rows_of(diagnosis: Diagnosis) -> list[Row]:
    """Give the rows of the table that can be shown, the pair as it is named first."""
    frame = table(diagnosis, TABLE)
    if frame is None:
        return []
    usable = frame.filter(pl.all_horizontal(pl.col(name).is_finite() for name in NEEDED))
    return usable.to_dicts()


def answer(diagnosis: Diagnosis) -> str:
    """Say in a sentence or two where the growth came from; empty where it was not split."""
    rows = [row for row in rows_of(diagnosis) if safe(row["weights"]) == pair_of(diagnosis)]
    raw = next((row for row in rows if row["cap"] is None), None)
    cut = next((row for row in rows if row["cap"] is not None), None)
    if raw is None:
        return ""
    pair = safe(raw["weights"])
    cut_words = f" With weights cut at {number(cut['cap'])}, {_split_words(cut, '')}" if cut else ""
    if raw["dominated"]:
        return (
            f"As recorded, E[ρ²] (pair {pair}) is dominated by a single {_holder(raw)}, which holds "
            f"over half of a window's sum: that split speaks of it alone.{cut_words}"
        )
    doubt = too_heavy(diagnosis)
    if doubt:
        told = f"Where a change of E[ρ²] (pair {pair}) of uncut weights came from cannot be told: {doubt}."
        return f"{cut_words} {told}".strip()
    words = _split_words(raw, f"pair {pair}, ")
    return words[:1].upper() + words[1:] + cut_words


def _split_words(row: Row, of_what: str) -> str:
    what = f"E[ρ²] ({of_what}{number(row['total_early'])} early, {number(row['total_late'])} late)"
    change, low, high = row["change"], row["change_lo"], row["change_hi"]
    if not change or (low is not None and high is not None and low <= 0 <= high):
        return f"the change of {what} is within the noise of the run."
    word, side, kinds = ("growth", "heavier", "more") if change > 0 else ("fall", "lighter", "fewer")
    names = {
        "tool": f"{side} post-tool tails",
        "exposure": f"{kinds} tool tokens",
        "text": f"{side} text-only tails",
    }
    shares = {name: row[name] / change for name in names}
    ordered = sorted(names, key=lambda name: -shares[name])
    told = [f"{_rounded(shares[name])} {{}}from {names[name]}" for name in ordered if shares[name] >= LEAST]
    told = [text.format("comes " if index == 0 else "") for index, text in enumerate(told)]
    against = [f"{AGAINST[name]} took {_rounded(-shares[name])} back" for name in ordered if shares[name] <= -LEAST]
    return f"of the {word} of {what} {joined(told)}{'; ' if against else ''}{joined(against)}."


def _rounded(share: float) -> str:
    return percent(float(f"{share:.2g}"))


def _holder(row: Row) -> str:
    return "token" if max(row["top_token_early"], row["top_token_late"]) > HALF else "sequence"


def explained(diagnosis: Diagnosis, *, post: str) -> str:
    """Say in one sentence how much of the growth the tails after tools explain, or that it cannot be told.

    Weights as recorded are told first, cut ones where a single token, a heavy tail or chance rules those; `post` names
    the later slice.
    """
    rows = [row for row in rows_of(diagnosis) if safe(row["weights"]) == pair_of(diagnosis)]
    doubts: list[str] = []
    for row in sorted(rows, key=lambda row: row["cap"] is not None):
        doubt = _doubt(row) or (too_heavy(diagnosis) if row["cap"] is None else "")
        if not doubt:
            return _explained(row, post) + "".join(f"; uncut, {text}" for text in doubts) + "."
        doubts.append(doubt)
    if not doubts:
        return ""
    return f"Whether more tool tokens or heavier {post} tails made E[ρ²] grow cannot be told: {doubts[-1]}."


def _doubt(row: Row) -> str:
    """Say what forbids to split this growth; empty where nothing does."""
    low, high = row["change_lo"], row["change_hi"]
    if row["dominated"]:
        return f"a single {_holder(row)} holds over half of the sum"
    if low is None or high is None:
        return "the run has too few steps for an interval"
    if low <= 0 <= high:
        return "its change is within the noise of the run"
    if row["change"] < 0:
        return "it fell"
    if row["tool_share_lo"] <= 0 <= row["tool_share_hi"]:
        return "the interval of their part spans zero"
    return ""


def too_heavy(diagnosis: Diagnosis) -> str:
    """Say where squares of all tokens' weights have no mean to trust: their k-hat is twice that of the weights."""
    frame = table(diagnosis, "heaviness")
    if frame is None:
        return ""
    rows = frame.filter(
        (pl.col("slice") == "all") & (pl.col("level") == "token") & (pl.col("weights") == pair_of(diagnosis))
    )
    if rows["k_hat"].null_count():
        return "how heavy the tail is could not be judged"
    heaviest = rows.filter(2 * pl.col("k_hat") > pl.col("threshold"))["k_hat"].max()
    return f"the tail is too heavy to say (k-hat {number(float(heaviest), 2)})" if heaviest is not None else ""  # type: ignore[arg-type]


def _explained(row: Row, post: str) -> str:
    cut = f" (weights cut at {number(row['cap'])})" if row["cap"] is not None else ""
    low, high = (number(100 * row[f"tool_share_{end}"], 2) for end in ("lo", "hi"))
    return (
        f"Of the growth in E[ρ²]{cut}, heavier {post} tails explain {_rounded(row['tool_share'])} (95 % interval "
        f"{low} to {high}), more tool tokens {_rounded(row['exposure_share'])}"
    )


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
    for name in ("growth", "tail_emergence", "ecdf"):
        frame = diagnosis.tables.get(name)
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
