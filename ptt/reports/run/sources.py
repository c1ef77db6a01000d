"""What `ptt sources` prints, and the same as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict

from rich.console import Console
from rich.text import Text

from ptt.diagnostics.metrics.recording import framework_name
from ptt.diagnostics.verdict.run_coverage import Question, RunCoverage
from ptt.reports.text.numbers import count
from ptt.reports.text.sanitize import safe, shortened

INDENT = 2
SHOWN_SWITCHES = 2
LONGEST = 200
YES, NO = "✓", "✕"


def sources_json(found: RunCoverage, version: str) -> str:
    """Give the answer as JSON, in the order of its fields."""
    document = {"schema_version": 1, "ptt_version": version, **asdict(found)}
    return json.dumps(document, indent=1, ensure_ascii=False, default=sorted) + "\n"


def print_sources(found: RunCoverage, console: Console) -> None:
    """Print what was read, what was not, what can be answered, and what would record the rest."""
    framework = framework_name(found.framework) if found.framework else "framework not recognised"
    _line(console, 0, f"{safe(found.name)} · {safe(framework)}", style="bold")
    _read(found, console)
    _answers(found, console)


def _read(found: RunCoverage, console: Console) -> None:
    _line(console, 0, "")
    _line(console, 0, "Read" if found.held else "Nothing here is in a format that is read", style="bold")
    for held in found.held:
        files = f"{count(held.files)} file{'' if held.files == 1 else 's'}"
        bad = f", {count(held.rows_bad)} rejected" if held.rows_bad else ""
        lost = f", {count(held.bytes_lost)} bytes lost" if held.bytes_lost else ""
        _line(console, 1, f"{held.kind}: {files}, {count(held.rows)} rows{bad}{lost}. {held.describes}")
        for note in held.notes[:SHOWN_SWITCHES]:
            _line(console, 2, shortened(safe(note), LONGEST), style="dim")
    if found.unread or found.notes:
        _line(console, 0, "")
        _line(console, 0, "Not read", style="bold")
    for unread in found.unread:
        files = f"{count(unread.files)} file{'' if unread.files == 1 else 's'}"
        _line(console, 1, f"{safe(unread.ending)}: {files}, in no format that is read here, as {safe(unread.example)}")
    for note in found.notes:
        _line(console, 1, shortened(safe(note), LONGEST))


def _answers(found: RunCoverage, console: Console) -> None:
    for title, answered in (("Can answer", True), ("Cannot answer", False)):
        questions = [question for question in found.questions if question.answered is answered]
        if not questions:
            continue
        _line(console, 0, "")
        _line(console, 0, title, style="bold")
        for question in questions:
            _line(console, 1, f"{YES if answered else NO} {question.title} {_why(question)}")
    if found.unasked:
        _line(console, 0, "")
        _line(console, 0, safe(found.unasked))
    lines = dict.fromkeys(
        switch for question in found.questions for switch in question.switches[:SHOWN_SWITCHES] if not question.answered
    )
    if lines:
        _line(console, 0, "")
        _line(console, 0, "To record the rest", style="bold")
    for switch in lines:
        _line(console, 1, switch.line, style="cyan")
        _line(console, 2, f"gives {', '.join(sorted(switch.gives))}{'; ' + switch.note if switch.note else ''}", "dim")


def _why(question: Question) -> str:
    return f"({safe(question.by)})" if question.answered else f"(missing: {', '.join(question.missing)})"


def _line(console: Console, level: int, text: str, style: str = "") -> None:
    """Print one line, wrapped and indented as a whole."""
    pad = " " * (INDENT * level)
    lines = (
        Text(text).wrap(console, max(console.width - len(pad) - INDENT, 30), overflow="fold") if text else [Text("")]
    )
    for index, line in enumerate(lines):
        line.rstrip()
        console.print(Text(pad + (" " * INDENT if index else "")).append_text(line), style=style, soft_wrap=True)
