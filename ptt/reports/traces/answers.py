"""What a report of traces says in sentences: what happened, since when, how sure, and what to do first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ptt.diagnostics.model import Interval, in_unit
from ptt.diagnostics.traces.call_outcomes import KNOWN_BY
from ptt.diagnostics.traces.model import MEASURES, Measure, Share, TraceDiagnosis, as_run
from ptt.reports.run.answers import NOTHING_TO_DO, Reply, measured_sentence
from ptt.reports.text.consequences import (
    consequences_sentence,
    first_failure,
    first_failure_sentence,
    onset_words,
    other_failures_sentence,
)
from ptt.reports.text.names import joined, sentence
from ptt.reports.text.numbers import count, counted, number, percent
from ptt.reports.text.sanitize import safe
from ptt.reports.text.why import coverage, crashes

MAX_CAUSES: Final = 3
NOTHING: Final = 1e-6  # of a share: less is what sums of floats leave of none
NO_LABELS: Final = "no episode is labelled, so success is unknown"

NO_ONSET: Final = "No onset is known: it holds over all episodes, or its beginning cannot be told."


def replies(diagnosis: TraceDiagnosis) -> tuple[Reply, ...]:
    """Answer the questions of the first screen; those without an answer are left out."""
    first = first_failure(as_run(diagnosis))
    causes = joined(list(first.causes[:MAX_CAUSES]), last=" or ") if first is not None else ""
    answers = (
        ("happened", "What happened", happened(diagnosis)),
        ("since", "Since when", [since(diagnosis)]),
        ("sure", "How sure", sure(diagnosis)),
        ("else", "What else it could be", [f"Usual causes, not proven here: {causes}."] if causes else []),
    )
    unit = diagnosis.traces.order
    steps = tuple(in_unit(sentence(step), unit) for step in diagnosis.verdict.next) or (NOTHING_TO_DO,)
    return (
        *(
            Reply(key=key, question=question, sentences=tuple(safe(in_unit(text, unit)) for text in texts if text))
            for key, question, texts in answers
            if any(texts)
        ),
        Reply(key="next", question="What to do first", sentences=steps, ordered=True),
    )


def happened(diagnosis: TraceDiagnosis) -> list[str]:
    """Say what failed, if the headline above does not, and what followed; where nothing did, how the episodes ended."""
    run = as_run(diagnosis)
    first = first_failure(run)
    told = first is not None and first.claim.partition("; ")[0] in diagnosis.verdict.headline
    texts = ["" if told else first_failure_sentence(run), consequences_sentence(run), other_failures_sentence(run)]
    return [text for text in (crashes(run), *texts, sentence(success(diagnosis))) if text]


def success(diagnosis: TraceDiagnosis) -> str:
    """Say how many episodes succeed, of how many whose outcome is known."""
    traces = diagnosis.traces
    share = traces.success or diagnosis.measured.get("success_rate")
    if not traces.labelled or share is None or share.value is None:
        return NO_LABELS
    rest = traces.episodes - traces.labelled
    unlabelled = f"; {counted(rest, 'episode')} without a label" if rest else ""
    return f"{share_words(share, MEASURES['success_rate'], 'succeed')}{unlabelled}"


def since(diagnosis: TraceDiagnosis) -> str:
    """Say from which step or episode on the first failure shows."""
    first = first_failure(as_run(diagnosis))
    if first is None:
        return ""
    return NO_ONSET if first.seen_step is None else f"Since {onset_words(first.seen_step, first.seen_interval)}."


def sure(diagnosis: TraceDiagnosis) -> list[str]:
    """Say what was measured against which limit, and what could not be looked at."""
    run = as_run(diagnosis)
    first = first_failure(run)
    return [measured_sentence(first) if first is not None else "", coverage(run)]


def share_words(share: Share, measure: Measure, verb: str = "") -> str:
    """Write a share with its interval: 51% of 600 labelled episodes succeed (95% interval 47% to 55%)."""
    interval = interval_words(share.interval)
    told = f" ({'95% interval ' + interval if interval else 'too few for an interval'})"
    return f"{percent(share.value)} of {count(share.trials)} {measure.of}{' ' + verb if verb else ''}{told}"


def interval_words(interval: Interval | None) -> str:
    """Write an interval of shares; empty without one."""
    if interval is None:
        return ""
    ends = (0.0 if end < NOTHING else end for end in interval)
    low, high = (number(100.0 * end, 2 if end < 0.1 else 3) for end in ends)
    return f"{low}% to {high}%"


def tool_lines(diagnosis: TraceDiagnosis) -> Iterator[tuple[str, str, str]]:
    """Yield name, calls and failures of each tool; the tool that fails most surely comes first."""
    for row in worst_tools(diagnosis):
        calls = counted(row["calls"], "call")
        if row["failed"] is None:
            yield safe(row["name"] or "no name"), calls, "outcome unknown"
            continue
        interval = "" if row["low"] is None else f" ({interval_words((row['low'], row['high']))})"
        known = f" of the {count(row['known'])} known" if 2 * row["known"] < row["calls"] else ""
        yield safe(row["name"] or "no name"), calls, f"{percent(row['failed'])}{known} failed{interval}"


def known_by(row: Mapping[str, Any]) -> str:
    """Say how the outcomes of calls are known: 40 marked, 8 worded, 2 unknown."""
    counts = [(name, row[name] or 0) for name in KNOWN_BY] + [("unknown", row["calls"] - row["known"])]
    return ", ".join(f"{count(number)} {name}" for name, number in counts if number)


def worst_tools(diagnosis: TraceDiagnosis) -> list[dict[str, Any]]:
    """Return the tools by the low end of their failures, the worst first; what is not known comes last."""

    def rank(row: dict[str, Any]) -> tuple[float, float, int, str]:
        failed = -1.0 if row["failed"] is None else row["failed"]
        low = failed - 1.0 if row["low"] is None else row["low"]  # without an interval one failure of one is no case
        return -low, -failed, -row["calls"], row["name"] or ""

    return sorted(diagnosis.rows("tools"), key=rank)


MAX_STEADY: Final = 5  # rates on one line
SINGLE: Final = "tool:"  # begins the names of the rates of single tools


def steady(diagnosis: TraceDiagnosis) -> str:
    """Say which rates did not change, and which change of them would have been found nine times out of ten."""
    rows = [row for row in diagnosis.rows("changes") if row["early"] is None and not row["rate"].startswith(SINGLE)]
    shown = [f"{row['label']} to {level(row, row['seen_at'])}" for row in rows if row["seen_at"] is not None]
    if not shown:
        return ""
    more = f" and {count(len(shown) - MAX_STEADY)} more" if len(shown) > MAX_STEADY else ""
    return (
        f"No change for the worse beyond chance in {counted(len(rows), 'rate')}. From half-way on, these would have "
        f"been found nine times out of ten: {', '.join(shown[:MAX_STEADY])}{more}."
    )


def level(row: dict[str, Any], value: float | None) -> str:
    """Write a level of a rate."""
    if value is None:
        return NO_LEVEL
    match row["scale"]:
        case "share":
            return percent(value)
        case "log":
            return f"{number(math.exp(value))} s"
        case _:
            return f"${number(value)}" if row["rate"] == "cost_usd" else number(value)


NO_LEVEL: Final = "–"


def cost_line(diagnosis: TraceDiagnosis) -> str:
    """Say what the episodes cost in all and each, and the dearest tool."""
    rows = diagnosis.rows("cost")
    parts = {row["part"]: row for row in reversed(rows)}
    if not parts:
        return ""
    whole, mean, good, tool = parts["all"], parts["episode"], parts.get("success"), parts.get("tool")
    said = []
    if whole["cost_usd"]:
        bound = ""
        if whole["low"] is not None and whole["low"] < whole["high"]:
            bound = f" (recorded in {count(mean['episodes'])} of {count(diagnosis.traces.episodes)} episodes; all cost "
            bound += f"${number(whole['low'])} to ${number(whole['high'])})"
        said.append(f"${number(whole['cost_usd'])} in all{bound}")
        ends = f" (95% interval ${number(mean['low'])} to ${number(mean['high'])})" if mean["low"] is not None else ""
        said.append(f"${number(mean['cost_usd'])} an episode{ends}")
        if good is not None and good["cost_usd"]:
            said.append(f"${number(good['cost_usd'])} a success")
        if tool is not None and tool["cost_usd"]:
            said.append(f"most for {safe(tool['name'])}: {percent(tool['cost_usd'] / whole['cost_usd'])}")
    tokens = [
        f"{number(whole[key], 3)} tokens {what}"
        for key, what in (("tokens_in", "read"), ("tokens_out", "written"))
        if whole[key]
    ]
    return sentence("; ".join([*said, *([", ".join(tokens)] if tokens else [])]))
