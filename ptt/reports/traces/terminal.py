"""The diagnosis of traces on a terminal: verdict, why, success, tools, what was not judged, next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from shlex import quote
from typing import Final

import polars as pl
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ptt.diagnostics.model import Diagnosis, Source, in_unit
from ptt.diagnostics.traces.diagnose import REPORT_FOLDER
from ptt.diagnostics.traces.labels import KIND as LABELS
from ptt.diagnostics.traces.model import TraceDiagnosis, as_run
from ptt.reports.run.answers import NOTHING_TO_DO
from ptt.reports.run.terminal import (
    MAX_REASONS,
    cell,
    found_lines,
    next_lines,
    not_judged_lines,
    print_blocks,
    unreadable_lines,
    verdict_line,
)
from ptt.reports.text import notebook
from ptt.reports.text.consequences import (
    consequences_sentence,
    first_failure,
    first_failure_sentence,
    onset_words,
)
from ptt.reports.text.names import sentence, status_word
from ptt.reports.text.numbers import count, counted, number, percent
from ptt.reports.text.sanitize import safe, shortened
from ptt.reports.text.why import crashes
from ptt.reports.traces.answers import cost_line, steady, success, tool_lines
from ptt.reports.traces.tool_names import with_short_names

MAX_NAME: Final = 60
MAX_TOOLS: Final = 5
MAX_TOOL_NAME: Final = 28
NAMED_TOOLS: Final = 3  # that are called equally often and all named
LEFT_OUT: Final = 0.02  # of the rows of a file: with fewer, no rate would be another
IN_PROSE: Final = "plain_transcripts"  # parser of files that may write calls in a way of their own


def print_traces(diagnosis: TraceDiagnosis, console: Console, report_path: str, *, note: str = "") -> None:
    """Print the diagnosis; foreign text steers neither the terminal nor rich."""
    diagnosis = with_short_names(diagnosis)
    run = as_run(diagnosis)
    unit = diagnosis.traces.order
    blocks = {
        "Verdict": [verdict_line(run)],
        "Read": [cell(sentence(read_line(diagnosis)))],
        "Since": _since(diagnosis),
        "Why": [cell(in_unit(text, unit)) for text in _reasons(diagnosis)],
        "Found": found_lines(run),
        "Success": [cell(sentence(success(diagnosis)))] if diagnosis.traces.labelled else [],
        "Unchanged": [cell(text) for text in (steady(diagnosis),) if text],
        "Cost": [cell(text) for text in (cost_line(diagnosis),) if text],
        "Tools": _tools(diagnosis),
        "Tail": _tail(diagnosis),
        "Not judged": not_judged_lines(run),
        "Next": next_lines(_with_folder(run, report_path)),
        "Left out": _left_out(diagnosis.sources),
        "Unreadable": unreadable_lines(diagnosis.sources),
        "Labels": [cell(sentence(one.note or "")) for one in diagnosis.sources if one.kind == LABELS],
        "Note": [cell(note)] if note else [],
        "Report": [Text(safe(report_path), style="underline")],
    }
    print_blocks(blocks, console)


def summary(diagnosis: TraceDiagnosis) -> str:
    """Return the diagnosis in three lines of plain text: the verdict, what was read, what to do first."""
    return "\n".join(_texts(with_short_names(diagnosis)))


def notebook_card(diagnosis: TraceDiagnosis) -> str:
    """Return the diagnosis as a notebook shows it: verdict, what was read, success, next, and the worst tools."""
    diagnosis = with_short_names(diagnosis)
    title, read, step = _texts(diagnosis)
    labelled = [sentence(success(diagnosis))] if diagnosis.traces.labelled else []
    reasons = [in_unit(text, diagnosis.traces.order) for text in _reasons(diagnosis)]
    rows = list(islice(tool_lines(diagnosis), MAX_TOOLS))
    return notebook.card(title, head=("tool", "calls", "failed"), rows=rows, texts=[read, *labelled, *reasons, step])


def _texts(diagnosis: TraceDiagnosis) -> tuple[str, str, str]:
    run = as_run(diagnosis)
    headline = in_unit(sentence(diagnosis.verdict.headline), diagnosis.traces.order)
    steps = diagnosis.verdict.next or (NOTHING_TO_DO,)
    title = f"{status_word(run.verdict)} {shortened(safe(run.run.name), MAX_NAME)}: {safe(headline)}"
    return title, sentence(read_line(diagnosis)), f"Next: {sentence(steps[0])}"


def _with_folder(run: Diagnosis, report_path: str) -> Diagnosis:
    """Name the folder of the report in the steps to take."""
    folder = quote(report_path.rpartition("/")[0] or ".")
    return replace(
        run,
        verdict=replace(run.verdict, next=tuple(step.replace(REPORT_FOLDER, folder) for step in run.verdict.next)),
    )


def _left_out(sources: Sequence[Source]) -> Iterator[Text]:
    """Say how many rows of the traces hold nothing that was understood: they are in no figure."""
    bad = [source for source in sources if source.kind != LABELS and source.rows_bad > LEFT_OUT * source.rows_ok]
    if bad:
        rows, files = counted(sum(source.rows_bad for source in bad), "row"), counted(len(bad), "file")
        yield cell(f"{rows} of {files}, the first {shortened(safe(bad[0].path), MAX_NAME)}; the report says why")


def _since(diagnosis: TraceDiagnosis) -> Iterator[Text]:
    first = first_failure(as_run(diagnosis))
    if first is not None and first.seen_step is not None:
        yield cell(in_unit(onset_words(first.seen_step, first.seen_interval), diagnosis.traces.order))


def _reasons(diagnosis: TraceDiagnosis) -> list[str]:
    run = as_run(diagnosis)
    texts = [crashes(run), first_failure_sentence(run), consequences_sentence(run)]
    return [text for text in texts if text][:MAX_REASONS]


def _tools(diagnosis: TraceDiagnosis) -> Iterator[Text]:
    """Yield a line for each of the worst tools, in columns."""
    rows = [(shortened(name, MAX_TOOL_NAME), *rest) for name, *rest in tool_lines(diagnosis)]
    shown = list(islice(rows, MAX_TOOLS))
    widths = [max((cell_len(row[column]) for row in shown), default=0) for column in (0, 1)]
    for name, calls, failed in shown:
        pads = [" " * (width - cell_len(text)) for width, text in zip(widths, (name, calls), strict=True)]
        yield Text(f"{name}{pads[0]}  {pads[1]}{calls}  {failed}")
    if len(rows) > len(shown):
        yield cell(f"and {_more_tools(diagnosis, len(rows), len(shown))}", style="dim")
    elif not rows:
        none = "no call is understood in the text" if IN_PROSE in diagnosis.traces.kinds else "none is called"
        called = {None: "no call is recorded", 0: none}
        yield cell(called.get(diagnosis.traces.tool_calls, "no call names its tool"), style="dim")


def _tail(diagnosis: TraceDiagnosis) -> Iterator[Text]:
    """Yield a line on what holds the tail of the tokens, where these are joined to episodes."""
    rows = diagnosis.tables.get("token_tail")
    if rows is None:
        return
    held = {finding.slice for finding in diagnosis.findings if finding.id == "token-tail"}
    for row in rows.iter_rows(named=True):
        if f"{row['kind'].replace(' ', '_')}:{row['name']}" in held:
            shares = f"{percent(row['tail_share'])} of the tail with {percent(row['token_share'])} of the tokens"
            lift = f"lift {number(row['lift'])}, {number(row['low'])} to {number(row['high'])}"
            kind = "assistant turn" if row["kind"] == "turn" else row["kind"]
            yield Text(f"{kind} {shortened(safe(row['name']), MAX_TOOL_NAME)}: {shares} ({lift})")
    if not held:
        yield cell("no tool, turn or class of error holds it beyond what its tokens explain", style="dim")


def _more_tools(diagnosis: TraceDiagnosis, stored: int, shown: int) -> str:
    """Say how many tools the report has beside those shown, and of how many that are called."""
    called, more = diagnosis.traces.distinct_tools or stored, counted(stored - shown, "more tool")
    return f"{more} in the report; {count(called)} are called in all" if called > stored else f"{more}, in the report"


def _most_used(tools: pl.DataFrame) -> str:
    """Say which tool is called most, or which, of many how many, are called equally often."""
    names = tools.filter(pl.col("calls") == pl.col("calls").max()).sort("name").get_column("name").to_list()
    calls = tools.select(pl.col("calls").max()).item()
    if 1 < len(names) <= NAMED_TOOLS:
        named = ", ".join(shortened(safe(name or "no name"), MAX_TOOL_NAME) for name in names)
        return f"most used tools: {named} ({counted(calls, 'call')} each)"
    if len(names) > 1:
        return f"no most used tool: {count(len(names))} have {counted(calls, 'call')} each"
    return f"most used tool: {shortened(safe(names[0] or 'no name'), MAX_TOOL_NAME)} ({counted(calls, 'call')})"


def read_line(diagnosis: TraceDiagnosis) -> str:
    """Say what the agents did: 60 episodes of 50 tasks, 13.2 turns and 6 calls each; most used tool: search."""
    traces = diagnosis.traces
    of_tasks = f" of {counted(traces.tasks, 'task')}" if traces.tasks and traces.tasks > 1 else ""
    each = [
        f"{number(total / traces.episodes, 3)} {what}{'' if total == traces.episodes else 's'}"
        for total, what in ((traces.assistant_turns, "turn"), (traces.tool_calls, "call"))
        if total and traces.episodes
    ]
    parts = [f"{counted(traces.episodes, 'episode')}{of_tasks}" + (f", {' and '.join(each)} each" if each else "")]
    tools = diagnosis.tables.get("tools")
    if tools is not None and not tools.is_empty():
        parts.append(_most_used(tools))
    cut = diagnosis.measured.get("truncated_rate")
    if cut is not None and cut.hits:
        parts.append(f"{count(cut.hits)} of {count(cut.trials)} cut off at a limit")
    return "; ".join(parts)
