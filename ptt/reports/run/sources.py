"""What `ptt sources` prints, and the same as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from rich.console import Console
from rich.text import Text

from ptt.diagnostics.metrics.recording import framework_name
from ptt.diagnostics.verdict.run_coverage import RunCoverage
from ptt.reports.output import versioned_json
from ptt.reports.text.names import kind_name
from ptt.reports.text.numbers import count, counted
from ptt.reports.text.sanitize import safe, shortened
from ptt.reports.text.terminal import print_wrapped

INDENT = 2
MAX_SHOWN = 2  # notes of a kind of file, and lines that would record the answer to a question
MAX_NOTE = 200  # letters
YES, NO = "✓", "✕"


def sources_json(coverage: RunCoverage, version: str) -> str:
    """Return the answer as JSON, in the order of its fields."""
    return versioned_json(asdict(coverage), version)


def print_sources(coverage: RunCoverage, console: Console) -> None:
    """Print what was read, what was not, what can be answered, and what would record the rest."""
    for level, text, style in _lines(coverage):
        pad = INDENT * level
        print_wrapped(console, Text(text), head=" " * pad, hang=pad + INDENT, style=style)
    if section := coverage.metric_names.section:
        for level, text, style in _heading("Names of metrics: paste into ptt.toml, as docs/settings.md says"):
            print_wrapped(console, Text(text), head=" " * INDENT * level, hang=INDENT, style=style)
        for line in section.splitlines():  # whole: a line that is cut is no TOML
            console.print(Text(safe(line)), style="cyan", soft_wrap=True)
        if left_out := coverage.metric_names.left_out:
            console.print(Text(f"# and {counted(left_out, 'name')} more"), style="dim", soft_wrap=True)


def _lines(coverage: RunCoverage) -> Iterator[tuple[int, str, str]]:
    """Yield level, text and style of each line."""
    framework = framework_name(coverage.framework) if coverage.framework else "framework not recognised"
    yield 0, f"{safe(coverage.name)} · {safe(framework)}", "bold"
    if coverage.kind:
        yield 0, f"Kind of training: {kind_name(coverage.kind)} ({safe(coverage.kind_reason)})", ""
    yield from _heading("Read" if coverage.held else "No file here is in a format that ptt reads")
    for held in coverage.held:
        bad = f", {count(held.rows_bad)} rejected" if held.rows_bad else ""
        lost = f", {count(held.bytes_lost)} bytes lost" if held.bytes_lost else ""
        read = f"{counted(held.files, 'file')}, {count(held.rows)} rows{bad}{lost}"
        yield 1, f"{held.kind}: {read}. {held.describes}", ""
        yield from ((2, shortened(safe(note), MAX_NOTE), "dim") for note in held.notes[:MAX_SHOWN])
    if coverage.unread or coverage.notes or coverage.pointers:
        yield from _heading("Not read")
    if pointers := coverage.pointers:
        yield 1, f"{counted(pointers.files, 'Git LFS pointer')}, as {safe(pointers.example)}: never downloaded", ""
        yield 2, f"fetch: {safe(pointers.command)}", "cyan"
    for unread in coverage.unread:
        files = f"{counted(unread.files, 'file')}, in no format that ptt reads"
        yield 1, f"{safe(unread.ending)}: {files}, as {safe(unread.example)}", ""
    for hint in coverage.hints:
        names = ", ".join(f"`{safe(name)}`" for name in hint.names)
        yield 1, f"{safe(hint.path)} looks like a metric log ({names}); send its shape: --sample FILE", ""
    yield from ((1, shortened(safe(note), MAX_NOTE), "") for note in coverage.notes)
    answered = [question for question in coverage.questions if question.answered]
    unanswered = [question for question in coverage.questions if not question.answered]
    if answered:
        yield from _heading("Can answer")
        yield from ((1, f"{YES} {question.title} ({safe(question.by)})", "") for question in answered)
    if unanswered:
        yield from _heading("Cannot answer")
        yield from (
            (1, f"{NO} {question.title} (missing: {', '.join(question.missing)})", "") for question in unanswered
        )
    if coverage.unasked:
        yield from _heading(safe(coverage.unasked), style="")
    switches = dict.fromkeys(switch for question in unanswered for switch in question.switches[:MAX_SHOWN])
    if switches:
        yield from _heading("To record the rest")
    for switch in switches:
        yield 1, switch.line, "cyan"
        yield 2, f"gives {', '.join(sorted(switch.gives))}{'; ' + switch.note if switch.note else ''}", "dim"


def _heading(text: str, style: str = "bold") -> Iterator[tuple[int, str, str]]:
    yield 0, "", ""
    yield 0, text, style
