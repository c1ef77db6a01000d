"""The few sentences under Why: what grew, where from, since when, how sure that is, and what the usual curves did."""

from __future__ import annotations

import polars as pl

from ptt.diagnostics.model import Aggregates, Answer, CoreQuestion, Diagnosis, Severity, Signature, Steps
from ptt.reports.text.consequences import first_failure, span_words
from ptt.reports.text.names import PAIRS, joined, metric_name, pair_name, sentence, slice_name
from ptt.reports.text.numbers import bounds, count, counted, limit_value, number, p_value, percent, times, with_unit
from ptt.reports.text.sanitize import safe
from ptt.reports.text.tables import WINDOW_NAMES, Row, pair_of, rows_where, table

TABLE = "exposure"
PARTS = ("exposure", "text", "tool")
OFFSETS = {"exposure": "the share of tool tokens", "text": "text-only tails", "tool": "post-tool tails"}
MIN_SHARE = 0.005  # of the growth: smaller parts are not mentioned
HALF = 0.5  # of a sum, held by one token: the split then speaks of that token
NEEDED = ("total_early", "total_late", *PARTS)
SIGNATURE = "tool-tail-growth"
NOT_RECORDED = "tails after tool calls were not recorded"  # as the headline of a run of curves alone says it
TO_REFERENCE = "/ref"  # ends the name of every pair that shows the distance from the reference
PLAINEST = ("at-chance", "overfitting", "loss-plateau")  # is anything learnt, and does it hold for unseen data
MOVEMENTS = {"flat": "flat", "rose": "rising", "fell": "falling", "cannot_say": "unclear"}


def rows_of(diagnosis: Diagnosis) -> list[Row]:
    """Return the rows of the split whose numbers are finite."""
    frame = table(diagnosis, TABLE)
    if frame is None:
        return []
    return frame.filter(pl.all_horizontal(pl.col(name).is_finite() for name in NEEDED)).to_dicts()


def _rows_of_pair(diagnosis: Diagnosis) -> list[Row]:
    """Return the rows of the split for the pair of the signature, uncut weights first."""
    rows = [row for row in rows_of(diagnosis) if safe(row["weights"]) == pair_of(diagnosis)]
    return sorted(rows, key=lambda row: row["cap"] is not None)


def answer(diagnosis: Diagnosis) -> str:
    """Say in a sentence or two where the growth came from; empty where it was not split."""
    rows = _rows_of_pair(diagnosis)
    if not rows or rows[0]["cap"] is not None:
        return ""
    uncut, pair = rows[0], safe(rows[0]["weights"])
    cut = next((row for row in rows if row["cap"] is not None), None)
    cut_words = f" With weights cut at {number(cut['cap'])}, {_split_words(cut, '')}" if cut else ""
    if uncut["dominated"]:
        return (
            f"As recorded, E[ρ²] (pair {pair}) is dominated by a single {_dominant(uncut)}, which holds "
            f"over half of a window's sum: the split describes only that {_dominant(uncut)}.{cut_words}"
        )
    if doubt := too_heavy(diagnosis):
        text = f"The source of a change in E[ρ²] (pair {pair}, uncut weights) is unclear: {doubt}."
        return f"{cut_words} {text}".strip()
    words = _split_words(uncut, f"pair {pair}, ")
    return words[:1].upper() + words[1:] + cut_words


def _split_words(row: Row, of_what: str) -> str:
    what = f"E[ρ²] ({of_what}{number(row['total_early'])} early, {number(row['total_late'])} late)"
    change, low, high = row["change"], row["change_lo"], row["change_hi"]
    if not change or (low is not None and high is not None and low <= 0 <= high):
        return f"the change in {what} is within the noise of the run."
    word, side, kinds = ("growth", "heavier", "more") if change > 0 else ("fall", "lighter", "fewer")
    names = {
        "tool": f"{side} post-tool tails",
        "exposure": f"{kinds} tool tokens",
        "text": f"{side} text-only tails",
    }
    shares = {name: row[name] / change for name in names}
    ordered = sorted(names, key=lambda name: -shares[name])
    sources = [name for name in ordered if shares[name] >= MIN_SHARE]
    parts = [
        f"{_rounded(shares[name])} {'' if index else 'comes '}from {names[name]}" for index, name in enumerate(sources)
    ]
    offsets = [f"{OFFSETS[name]} took {_rounded(-shares[name])} back" for name in ordered if shares[name] <= -MIN_SHARE]
    return f"of the {word} of {what}, {joined(parts)}{'; ' if offsets else ''}{joined(offsets)}."


def _rounded(share: float) -> str:
    return percent(float(f"{share:.2g}"))


def _dominant(row: Row) -> str:
    return "token" if max(row["top_token_early"], row["top_token_late"]) > HALF else "sequence"


def explained(diagnosis: Diagnosis) -> str:
    """Say in one sentence how much of the growth the tails after tools explain, or that it is unclear.

    Weights as recorded come first, cut ones where a single token, a heavy tail or chance rules those; empty where
    the growth was not split.
    """
    post = slice_name(after_slice(diagnosis))
    doubts: list[str] = []
    for row in _rows_of_pair(diagnosis):
        doubt = _doubt(row) or (too_heavy(diagnosis) if row["cap"] is None else "")
        if not doubt:
            return _explained(row, post) + "".join(f"; uncut, {text}" for text in doubts) + "."
        doubts.append(doubt)
    return (
        f"Whether more tool tokens or heavier {post} tails made E[ρ²] grow is unclear: {doubts[-1]}." if doubts else ""
    )


def _doubt(row: Row) -> str:
    """Say what forbids to split this growth; empty where nothing does."""
    low, high = row["change_lo"], row["change_hi"]
    if row["dominated"]:
        return f"a single {_dominant(row)} holds over half of the sum"
    if low is None or high is None:
        return "the run has too few steps for an interval"
    if low <= 0 <= high:
        return "its change is within the noise of the run"
    if row["change"] < 0:
        return "it fell"
    return "the interval of the tails' share includes zero" if row["tool_share_lo"] <= 0 <= row["tool_share_hi"] else ""


def too_heavy(diagnosis: Diagnosis) -> str:
    """Say where squares of all tokens' weights have no mean to trust: their k-hat is twice that of the weights."""
    rows = rows_where(diagnosis, "heaviness", slice="all", level="token", weights=pair_of(diagnosis))
    if any(row["k_hat"] is None for row in rows):
        return "the heaviness of the tail could not be judged"
    heavy = [
        float(row["k_hat"]) for row in rows if row["threshold"] is not None and 2 * row["k_hat"] > row["threshold"]
    ]
    return f"the tail is too heavy to say (k-hat {number(max(heavy), 2)})" if heavy else ""


def _explained(row: Row, post: str) -> str:
    cut = f" (weights cut at {number(row['cap'])})" if row["cap"] is not None else ""
    low, high = (number(100 * row[f"tool_share_{end}"], 2) for end in ("lo", "hi"))
    return (
        f"Of the growth in E[ρ²]{cut}, heavier {post} tails explain {_rounded(row['tool_share'])} (95% interval "
        f"{low} to {high}), more tool tokens {_rounded(row['exposure_share'])}"
    )


def after_slice(diagnosis: Diagnosis) -> str:
    """Name the slice after observations as this run's evidence allows it to be called."""
    for name in ("growth", "tail_emergence", "ecdf"):
        frame = diagnosis.tables.get(name)
        if frame is not None and "slice" in frame.columns:
            slices = set(frame["slice"])
            if "post_tool" not in slices and "post_observation" in slices:
                return "post_observation"
    return "post_observation" if "post_observation" in diagnosis.signature.growth else "post_tool"


def decided_by(diagnosis: Diagnosis) -> str:
    """Return the percentile that decided about the tail: that of the first finding on one, else p95."""
    named = (str(finding.evidence.get("percentile")) for finding in diagnosis.findings)
    return next((name for name in named if name in ("p95", "p99")), "p95")


def thirds(diagnosis: Diagnosis, of: str) -> list[float | None]:
    """Return the deciding percentile of one slice by thirds of the run; empty if it was not measured."""
    rows = rows_where(diagnosis, "growth", parts=len(WINDOW_NAMES), slice=of)
    return [row[decided_by(diagnosis)] for row in sorted(rows, key=lambda row: row["part"])]


def aggregates_sentence(signature: Signature) -> str:
    """Say what loss, reward, entropy, KL and gradient norm did, and how long the tail was ahead of them."""
    aggregates = signature.aggregates
    if aggregates.status == "cannot_say":
        return "Too few of the usual curves were logged to say whether they raised an alarm."
    lead = _lead(signature) if signature.status is Answer.FOUND else ""
    if aggregates.alarms:
        first = min(aggregates.alarms, key=lambda name: (aggregates.alarms[name], name))
        others = len(aggregates.alarms) - 1
        more = f" ({others} more followed)" if others else ""
        when = f"{metric_name(first)} alarmed first, at step {count(aggregates.alarms[first])}"
        when += _earlier_mean(aggregates, first)
        return f"Of the usual curves, {when}{more}{lead}."
    if aggregates.status == "alarming":
        return f"The usual curves raised an alarm{lead}; findings.json does not say which one, or at which step."
    return f"The usual curves raised no alarm ({_movements(aggregates)}){lead or where_curves_end(aggregates)}."


def where_curves_end(aggregates: Aggregates) -> str:
    """Say up to which step all of the usual curves were logged, where the run goes on after it."""
    if aggregates.until is None:
        return ""
    first = [name for name, step in aggregates.last_steps.items() if step == aggregates.until]
    logged = [name for name, movement in aggregates.metrics.items() if movement != "cannot_say"]
    ends = (
        "they end"
        if len(first) == len(logged)
        else f"{joined([metric_name(name) for name in sorted(first)])} {'ends' if len(first) == 1 else 'end'}"
    )
    return f" by step {count(aggregates.until)}, where {ends}"


def _earlier_mean(aggregates: Aggregates, name: str) -> str:
    """Say that a mean over 20 steps passed its limit well before the alarm, which is what is counted from."""
    step = aggregates.means_passed.get(name)
    if step is None:
        return ""
    return f" (its mean passed the limit at step {count(step)}, but fewer than half of the steps did)"


def _lead(signature: Signature) -> str:
    """Say how long the tail was ahead, alarm to alarm, and how closely that is known."""
    if signature.lead_steps is None:
        return ""
    steps, behind, known = counted(abs(signature.lead_steps), "step"), signature.lead_steps < 0, ""
    if signature.lead_interval is not None:
        low, high = signature.lead_interval
        if high is None:
            known = f" ({count(low)} or more)"
        else:
            if low <= 0 <= high and not signature.lead_is_lower_bound:
                return f", at about the time of the tail's own alarm{_at_step(signature)}"
            known = f" ({span_words((-high, -low) if behind else (low, high))})"
    if signature.lead_is_lower_bound:
        until, aggregates = signature.lead_until, signature.aggregates
        end = " by the end of the run" if until is None else f" by step {count(until)}, where the recorded tokens end"
        if until is not None and until == aggregates.until:
            end = where_curves_end(aggregates)
        return f"{end}, {steps}{known} after the tail's own alarm"
    return f", {steps}{known} {'before' if behind else 'after'} the tail's own alarm{_at_step(signature)}"


def _at_step(signature: Signature) -> str:
    alarms, lead = signature.aggregates.alarms, signature.lead_steps
    return f" at step {count(min(alarms.values()) - lead)}" if alarms and lead is not None else ""


def _movements(aggregates: Aggregates) -> str:
    names: dict[str, list[str]] = {}
    for name, movement in sorted(aggregates.metrics.items()):
        names.setdefault(MOVEMENTS.get(movement, movement), []).append(metric_name(name))
    return "; ".join(f"{joined(moved)} {word}" for word, moved in names.items()) or "none logged"


def grew(diagnosis: Diagnosis) -> str:
    """Say how the post-tool tail went by thirds of the run, beside the text-only one."""
    signature, name = diagnosis.signature, after_slice(diagnosis)
    growth = signature.growth.get(name)
    rise = ""
    percentile = decided_by(diagnosis)
    factor, known = (getattr(growth, name, None) for name in (percentile, f"interval_{percentile}"))
    if factor is not None:
        rise = f" ({times(factor)}{f', 95% interval {bounds(*known)}' if known else ''})"
    values, text = thirds(diagnosis, name), thirds(diagnosis, "text_only")
    if not values:
        return sentence(f"{slice_name(name)} tails of |log-ratio| grew{rise}")
    pair = f" for {signature.pair}" if signature.pair else ""
    text_words = f"; text-only {_arrows(text)}" if text else ""
    head = slice_name(name).capitalize()
    return f"{head} {percentile} of |log-ratio|{pair} by thirds of the run: {_arrows(values)}{rise}{text_words}."


def _arrows(values: list[float | None]) -> str:
    return " → ".join(number(value) for value in values)


def passed(diagnosis: Diagnosis) -> str:
    """Say since when the tail grew and at which step it passed its limit, and how closely both are known."""
    signature, run = diagnosis.signature, diagnosis.run
    began = signature.onset_step
    if began is None:
        grew = "The step at which the tail began to grow is unknown"
    else:
        since = "the first recorded step" if began == run.first_step else f"step {count(began)}"
        grew = f"The tail has grown since {since}{_known(signature.onset_interval)}"
    if signature.limit_passed_step is None:
        return f"{grew}; the step at which it passed its limit is unknown."
    limit = ""
    for finding in diagnosis.findings:  # the first that speaks of the signature's tail
        if finding.limit_passed_step == signature.limit_passed_step and finding.limit is not None:
            percentile = finding.evidence.get("percentile")
            limit = f" ({percentile} of {limit_value(finding.limit, finding.unit)})" if percentile else ""
            break
    if signature.limit_passed_step == began:
        return f"{grew}, when it passed its limit{limit}."
    when = f"step {count(signature.limit_passed_step)}{_known(signature.limit_passed_interval)}"
    return f"{grew}. It passed its limit{limit} at {when}."


def _known(interval: Steps | None) -> str:
    return "" if interval is None or interval[0] == interval[1] else f" (95% interval {span_words(interval)})"


def chance(signature: Signature) -> str:
    """Say how unlikely chance is; empty where it was not tested."""
    rate, value = signature.false_alarm_rate, signature.p_value
    tests = [p_value(value)] if value is not None else []
    tests += [f"false alarms: {percent(rate)} of stable runs"] if rate is not None else []
    return f"chance is unlikely ({'; '.join(tests)})" if tests else ""


def no_signature(diagnosis: Diagnosis) -> str:
    """Say that the signature was not found, or could not be judged, and why."""
    signature, covered = diagnosis.signature, diagnosis.verdict.coverage
    if covered is not None and not covered.judged and not covered.core:
        return ""  # the headline says what the files are
    if NOT_RECORDED in diagnosis.verdict.headline:
        return ""
    failed = [name for name, holds in signature.conditions.items() if holds is False]
    unmet = f" (not met: {joined(failed)})" if failed else ""
    said = f"was not found{unmet}"
    if signature.pair in PAIRS and not signature.pair.endswith(TO_REFERENCE):
        said = f"was not found in {pair_name(signature.pair)}{unmet}; growth against the reference could not be judged"
    if not samples(diagnosis):
        # of training that samples nothing, what its two plainest checks saw where they called it healthy
        reasons = {check.id: check.reason for check in diagnosis.healthy}
        if plain := " ".join([sentence(reasons[name]) for name in PLAINEST if name in reasons][:2]):
            return plain
        said = "does not apply to this training"
    elif signature.status is Answer.CANNOT_SAY:
        said = "could not be judged"
    return f"Tail growth after tool calls {said}. {sentence(signature.reason)}".strip()


def samples(diagnosis: Diagnosis) -> bool:
    """Return whether tail growth after tool calls is a question to this run: not to training that samples nothing."""
    return all(item.applies for item in diagnosis.not_judged if item.id == SIGNATURE)


def coverage(diagnosis: Diagnosis) -> str:
    """Say how many checks looked, and how many could not."""
    blind = sum(item.applies for item in diagnosis.not_judged)
    unjudged = f"{counted(blind, 'question')} could not be judged." if blind else ""
    judged = len(diagnosis.passed)
    if diagnosis.from_findings or not (judged or blind):
        return unjudged
    healthy = f"{counted(judged, 'check')} passed" if judged else "No check passed"
    return f"{healthy}; {unjudged}" if blind else f"{healthy}."


def core_coverage(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Say how small a fault in what matters most would have shown, and what of it could not be judged.

    Where a fault was found, nobody asks what else would have shown: only what was not judged is said, and beside a
    serious one not even that, since it often speaks of the same curves.
    """
    covered = diagnosis.verdict.coverage
    if covered is None or not covered.core:
        return ()
    failure = first_failure(diagnosis)
    if failure is not None and failure.severity.at_least(Severity.HIGH):
        return ()
    asked = failure is None
    shown = [_would_show(question) for question in covered.core if question.judged and asked]
    missing = [f"{question.question} ({question.why})" for question in covered.core if not question.judged]
    sentences = (
        f"The checks would have shown: {joined(shown)}." if shown else "",
        f"Most important open question{'s' if len(missing) > 1 else ''}: {joined(missing)}." if missing else "",
    )
    return tuple(safe(text) for text in sentences if text)


def _would_show(question: CoreQuestion) -> str:
    size = "" if question.detectable is None else f" {with_unit(question.detectable, question.unit)}"
    return f"{question.change}{size} ({counted(question.rows, 'value')})"


def crashes(diagnosis: Diagnosis) -> str:
    """Say which rules, and which steps before them, failed by a fault of the program."""
    names = joined([crash.id for crash in diagnosis.crashes])
    if not names:
        return ""
    of_rules = all(crash.of_rule for crash in diagnosis.crashes)
    missing = "that question is unanswered" if of_rules else "what depends on it is missing"
    return f"A bug in ptt: {names} crashed, so {missing}."
