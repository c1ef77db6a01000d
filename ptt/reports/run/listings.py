"""What `ptt rules`, `ptt sources` and `ptt show` print, and the same as JSON."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl
from rich.console import Console
from rich.text import Text

from ptt.diagnostics.metrics.recording import framework_name
from ptt.diagnostics.samples.sample import FindingSamples, Sample, Sibling, ToolCall, Window, windows
from ptt.diagnostics.schema import LOGPS
from ptt.diagnostics.verdict.logged_names import UNKNOWN
from ptt.diagnostics.verdict.run_coverage import RunCoverage
from ptt.reports.output import versioned_json
from ptt.reports.text.names import LINKS, joined, kind_name, slice_name
from ptt.reports.text.numbers import count, counted, number
from ptt.reports.text.sanitize import safe, shortened
from ptt.reports.text.terminal import print_wrapped

if TYPE_CHECKING:
    from ptt.diagnostics.custom.files import Report
    from ptt.diagnostics.verdict.catalogue import Page

INDENT = 2


def pages_json(pages: Sequence[Page], version: str) -> str:
    """Return the catalogue as JSON."""
    return versioned_json({"rules": [asdict(page) for page in pages]}, version)


def report_json(report: Report, version: str) -> str:
    """Return what a check found as JSON."""
    return versioned_json(asdict(report), version)


def print_pages(pages: Sequence[Page], console: Console) -> None:
    """Print one line a rule, under its link."""
    longest = max(len(page.id) for page in pages)
    for link, mine in groupby(pages, key=lambda page: page.link):
        _line(console, 0, f"{LINKS[link]} ({link})", style="bold")
        for page in mine:
            families = f" ({page.asked_of} only)" if page.families else ""
            _line(console, 1, f"{page.id.ljust(longest)}  {page.shows}{families}", hang=longest + 2)
        console.print()
    _line(console, 0, "`ptt rules NAME` prints a rule's page: what, why, what to do, and the limits that can be set.")


def print_page(page: Page, console: Console) -> None:
    """Print one rule's page."""
    blocks = {heading: [_capital(body)] for heading, body in page.sections.items()}
    blocks["Asked of"] = [f"{page.asked_of} training" if page.asked_of else "every kind of training"]
    if page.brings:
        blocks["Brings about"] = [f"{other}: {how}" for other, how in page.brings.items()]
    _line(console, 0, f"{page.id} · {LINKS[page.link].lower()}", style="bold")
    _line(console, 0, f"This run shows {page.shows}.")
    for heading, lines in blocks.items():
        console.print()
        _line(console, 0, heading, style="bold")
        for line in lines:
            _line(console, 1, line)
    console.print()
    _line(console, 0, "Limits, with their defaults, as ptt.toml sets them", style="bold")
    for line in limits_toml(page):
        _line(console, 1, line, style="cyan")


def limits_toml(page: Page) -> list[str]:
    """Return the lines of ptt.toml that set a rule's limits to their defaults."""
    return [f"[limits.{page.id}]", *(f"{name} = {value!r}" for name, value in page.limits.items())]


def print_report(report: Report, console: Console) -> None:
    """Print what a check of custom rules found."""
    for rule in report.rules:
        off = "" if rule.enabled else " (off)"
        _line(console, 0, f"{safe(rule.id)}{off} · {rule.severity} · {LINKS[rule.link].lower()} · {safe(rule.file)}")
        _line(console, 1, safe(rule.condition))
        if rule.asked_of:
            _line(console, 1, f"asked of {', '.join(rule.asked_of)}", style="dim")
    for problem in report.problems:
        _line(console, 0, f"✕ {safe(problem)}", style="red")
    rules, files, wrong = len(report.rules), len(report.files), len(report.problems)
    _line(console, 0, f"{_many(rules, 'rule')} in {_many(files, 'file')}, {_many(wrong, 'problem')}")


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _capital(text: str) -> str:
    """Capitalise a paragraph; an identifier at its head keeps its case."""
    head = text.split(" ", 1)[0]
    return text[:1].upper() + text[1:] if head.replace("-", "").isalpha() and head.islower() else text


def _line(console: Console, level: int, text: str, style: str = "", hang: int = 0) -> None:
    """Print one line, indented; what is carried over hangs `hang` letters deeper."""
    print_wrapped(console, Text(text[hang:]), head=" " * (INDENT * level) + text[:hang], style=style)


MAX_SHOWN = 2  # notes of a kind of file, and lines that would record the answer to a question
MAX_NOTE = 600  # letters
MAX_NAMES = 100  # logged names in a section
MAX_TOML = 4000  # letters of a line to paste
YES, NO = "✓", "✕"


def sources_json(coverage: RunCoverage, version: str) -> str:
    """Return the answer as JSON, in the order of its fields."""
    return versioned_json(asdict(coverage), version)


def print_sources(coverage: RunCoverage, console: Console) -> None:
    """Print what was read, what was not, what can be answered, and what would record the rest."""
    for level, text, style in _lines(coverage):
        pad = INDENT * level
        print_wrapped(console, Text(text), head=" " * pad, hang=pad + INDENT, style=style)
    for proposal in coverage.proposals:
        for level, text, style in _heading("A log in its own format: paste into ptt.toml, as docs/settings.md says"):
            print_wrapped(console, Text(text), head=" " * INDENT * level, hang=INDENT, style=style)
        for line in proposal.toml.splitlines():
            console.print(Text(safe(line, longest=MAX_TOML)), style="cyan", soft_wrap=True)
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
        proposed = any(proposal.read.reads(hint.path) for proposal in coverage.proposals)
        advice = "an entry of [[logs]] that reads it is below" if proposed else "send its shape: --sample FILE"
        yield 1, f"{safe(hint.path)} looks like a metric log ({names}); {advice}", ""
    yield from ((1, shortened(safe(note), MAX_NOTE), "") for note in coverage.notes)
    yield from _names(coverage)
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
    if coverage.recomputable:
        yield from _heading("Cannot recompute, to check what the trainer logs")
    for one in coverage.recomputable:
        yield 1, f"{NO} {joined(list(one.figures))} (missing columns: {', '.join(one.missing)})", ""
    if coverage.unasked:
        yield from _heading(safe(coverage.unasked), style="")
    switches = dict.fromkeys(switch for question in unanswered for switch in question.switches[:MAX_SHOWN])
    lines = {switch.line for switch in switches}
    switches |= dict.fromkeys(one for of in coverage.recomputable for one in of.switches if one.line not in lines)
    if switches:
        yield from _heading("To record the rest")
    for switch in switches:
        yield 1, switch.line, "cyan"
        yield 2, f"gives {', '.join(sorted(switch.gives))}{'; ' + switch.note if switch.note else ''}", "dim"


def _names(coverage: RunCoverage) -> Iterator[tuple[int, str, str]]:
    """Yield what each logged name is taken for, and what of ptt.toml names nothing."""
    taken = [logged for logged in coverage.names if logged.name is not None]
    others = [logged for logged in coverage.names if logged.name is None]
    alike: dict[str, list[str]] = {}
    for logged in sorted(others, key=lambda logged: (logged.why == UNKNOWN, logged.why)):
        alike.setdefault(logged.why, []).append(safe(logged.raw))
    if coverage.names:
        yield from _heading("Names logged")
    for logged in taken[:MAX_NAMES]:
        yield 1, f"{safe(logged.raw)}: {logged.name}, {safe(logged.why)}", ""
    for why, raws in alike.items():
        title = f"{why}, and read by no built-in rule" if why == UNKNOWN else why
        yield 1, f"{title}: {', '.join(raws[:MAX_NAMES])}", "dim"
    if left := sum(max(0, listed - MAX_NAMES) for listed in (len(taken), *map(len, alike.values()))):
        yield 1, f"and {counted(left, 'name')} more: --json lists all", "dim"
    if coverage.names_nothing:
        yield from _heading("In ptt.toml, and nowhere in this run")
        yield from ((1, f"{NO} {safe(line)}", "") for line in coverage.names_nothing)


def _heading(text: str, style: str = "bold") -> Iterator[tuple[int, str, str]]:
    yield 0, "", ""
    yield 0, text, style


LEVELS: Final = ((4.0, "***", "bold white on red"), (2.0, "**", "red"), (math.log(2.0), "*", "yellow"))
"""Of |r|: a token 55 times likelier or less likely, then the level at which a tail is high, then a weight of 2."""
LEGEND: Final = "|r| in nats: * from 0.69 (ratio 2), ** from 2 (ratio 7.4), *** from 4 (ratio 55)"
FIRST: Final = ("position", "token_id", "token", "slice", "r")
HIDDEN: Final = frozenset({"model_mask"})  # the slice says it
MAX_TOKEN: Final = 24  # letters of one token in the table
MAX_VALUE: Final = 120  # letters of one value in the heading
MAX_SINGLE: Final = 3e38  # beyond it single precision has no numbers
MAX_LINE: Final = 4_000  # letters of one line of a message: more than a message keeps
BREAKS: Final = {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}  # in a token these are what it says
GAP: Final = 2  # between columns
NONE: Final = "-"
Row = Sequence[tuple[str, str]]  # each cell's text and style


def sample_json(sample: Sample, version: str) -> str:
    """Return a sample as JSON in ASCII; a value that is not finite is null, and named under `not_finite`."""
    content = {name: value for name, value in vars(sample).items() if name != "tokens"}
    columns = {name: sample.tokens[name].to_list() for name in sample.tokens.columns}
    odd = {
        name: {str(at): str(value) for at, value in enumerate(values) if _is_odd(value)}
        for name, values in columns.items()
    }
    return _ascii(
        {
            **{name: _plain(value) for name, value in content.items()},
            "tokens": {
                name: [None if _is_odd(value) else value for value in values] for name, values in columns.items()
            },
            "not_finite": {name: values for name, values in odd.items() if values},
        },
        version,
    )


def samples_json(listed: Sequence[FindingSamples], version: str) -> str:
    """Return the samples of findings as JSON in ASCII."""
    return _ascii({"findings": [_plain(asdict(finding)) for finding in listed]}, version)


def _ascii(content: dict[str, Any], version: str) -> str:
    document = {"schema_version": 1, "ptt_version": version, **content}
    return json.dumps(document, indent=1, allow_nan=False, default=lambda value: _plain(asdict(value))) + "\n"


def _plain(value: Any) -> Any:
    """Return a value that JSON can hold: numbers that are not finite as null."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item if not hasattr(item, "__dataclass_fields__") else asdict(item)) for item in value]
    return None if _is_odd(value) else value


def _is_odd(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def print_samples(listed: Sequence[FindingSamples], run: str, console: Console) -> None:
    """Print the samples that findings rest on, with the command that shows one."""
    if not listed:
        print_wrapped(
            console, Text("No finding rests on single samples of this run. ptt sources says what it records.")
        )
    for finding in listed:
        console.print(Text(f"{safe(finding.finding)} ({finding.severity})", style="bold"), soft_wrap=True)
        print_wrapped(console, Text(safe(finding.claim)), head="  ")
        if not finding.measure:  # named by the finding itself
            print_wrapped(console, Text(", ".join(safe(sample.key) for sample in finding.samples), "cyan"), head="  ")
            continue
        head = [("CHOSEN", ""), ("SAMPLE", ""), ("ID", ""), (f"{finding.measure.upper()}", "")]
        rows: list[Row] = [
            [(sample.chosen, ""), (safe(sample.key), "cyan"), (_id(sample.sample_id), ""), (number(sample.value), "")]
            for sample in finding.samples
        ]
        _print_table(console, [head, *rows])
    if listed:
        command = shlex.join(["ptt", "show", safe(run), safe(listed[0].samples[0].key)])
        print_wrapped(console, Text(command, style="cyan"), head="To read one: ")


def print_sample(sample: Sample, console: Console, *, every_token: bool = False) -> None:
    """Print one sample; of its tokens those with the largest |r| and what is beside them, or all."""
    _print_heading(sample, console)
    if sample.group:
        _print_group(sample.group, console)
    if sample.turns or sample.calls:
        _print_transcript(sample, console)
    if sample.tokens.height:
        _print_tokens(sample, console, every_token=every_token)
    lines = [f"{missing.what}: {missing.why}" + _how(missing.enable) for missing in sample.missing]
    for title, texts in (("Not shown", lines), ("Notes", list(sample.notes))):
        if texts:
            _section(console, title)
            for text in texts:
                print_wrapped(console, Text(safe(text)), head="  ", hang=4)


def _how(enable: str | None) -> str:
    return f". To record this, {enable}" if enable else ""


def _print_heading(sample: Sample, console: Console) -> None:
    where = safe(sample.file) if sample.file else ""
    where += f", row {count(sample.file_row)}" if sample.file_row is not None else ""
    title = Text(f"Sample {safe(sample.key)}", style="bold").append(f" of {safe(sample.run)}", style="not bold")
    console.print(title.append(f" · {where}", style="dim") if where else title, soft_wrap=True)
    same = (
        {"trajectory_id"}
        if sample.values.get("trajectory_id") in (sample.values.get("sample_id"), sample.key)
        else set()
    )
    values = [f"{safe(name)} {_value(value)}" for name, value in sample.values.items() if name not in same]
    if sample.row is None and sample.step is not None:
        values.insert(0, f"step {count(sample.step)}")
    if values:
        print_wrapped(console, Text(" · ".join(values)), head="  ")
    if sample.rewards:
        parts = ", ".join(f"{safe(name)} {_value(score)}" for name, score in sample.rewards.items())
        print_wrapped(console, Text(f"rewards: {parts}"), head="  ", hang=4)


def _value(value: Any) -> str:
    """Spell a value with as many digits as give it again, in single precision where that is what was recorded."""
    if isinstance(value, list | tuple):
        return safe(", ".join(_value(item) for item in value), longest=MAX_VALUE) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and abs(value) < MAX_SINGLE and float(np.float32(value)) == value:
        return str(np.float32(value))
    return NONE if value is None else safe(str(value), longest=MAX_VALUE)


def _print_group(group: Sequence[Sibling], console: Console) -> None:
    _section(console, f"Prompt group: {counted(len(group), 'sample')} at this step")
    named = [("", ""), ("SAMPLE", ""), ("ID", ""), ("REWARD", ""), ("ADVANTAGE", ""), ("TOKENS", "")]
    rows: list[Row] = []
    for sibling in group:
        style = "bold" if sibling.shown else ""
        advantage = dict.fromkeys(map(_value, sibling.advantage or ()))
        cells = (
            ">" if sibling.shown else "",
            safe(sibling.key),
            _id(sibling.sample_id),
            _value(sibling.reward),
            " to ".join(advantage) or NONE,
            NONE if sibling.tokens is None else count(sibling.tokens),
        )
        rows.append([(cell, style) for cell in cells])
    _print_table(console, [named, *rows])


def _id(name: str | None) -> str:
    return NONE if name is None else safe(name, longest=MAX_TOKEN)


def _print_transcript(sample: Sample, console: Console) -> None:
    _section(console, "Transcript" if sample.texts else "Transcript (--text prints what was said)")
    calls: dict[int | None, list[ToolCall]] = {}
    for call in sample.calls:
        calls.setdefault(call.turn, []).append(call)
    for turn in sample.turns:
        size = NONE if turn.letters is None else counted(turn.letters, "letter")
        size += f", {counted(turn.tokens, 'token')}" if turn.tokens is not None else ""
        head = Text(f"  {turn.number} {safe(turn.role or 'unknown')}", style="bold").append(f"  {size}", style="dim")
        console.print(head, soft_wrap=True)
        for line in (turn.text or "").splitlines():
            print_wrapped(console, Text(safe(line, longest=MAX_LINE)), head="    ")
        for call in calls.pop(turn.number, []):  # the text of a message ends with its calls
            print_wrapped(console, _call(call, whole=not turn.text), head="    ", hang=6)
    for call in (call for left in calls.values() for call in left):
        print_wrapped(console, _call(call, whole=True), head="    ", hang=6)


def _call(call: ToolCall, *, whole: bool) -> Text:
    arguments = safe(call.arguments, longest=MAX_LINE) if call.arguments is not None and whole else ""
    text = Text(f"calls {safe(call.name or 'unknown')}({arguments})", style="cyan")
    outcome = {True: "succeeded", False: "failed", None: ""}[call.ok]
    details = [part for part in (outcome, safe(call.error or "")) if part]
    if call.result_letters is not None:
        details.append(f"result of {counted(call.result_letters, 'letter')}")
    if call.seconds is not None:
        details.append(f"{number(call.seconds)} s")
    return text.append(f"  {', '.join(details)}", style="red" if call.ok is False else "dim")


def _print_tokens(sample: Sample, console: Console, *, every_token: bool) -> None:
    frame = sample.tokens
    shown = [Window(first=0, last=frame.height - 1, largest=None)] if every_token else windows(frame["r"])
    _section(console, "Tokens")
    print_wrapped(console, Text(_tokens_line(sample)), head="  ")
    if sample.tokenizer:
        print_wrapped(console, Text(f"decoded with {safe(sample.tokenizer)}", style="dim"), head="  ")
    if sample.pair:
        console.print(Text(f"  {LEGEND}", style="dim"), soft_wrap=True)
    parts = [frame.slice(window.first, window.last - window.first + 1) for window in shown]
    tables, left_out = _token_tables(sample, parts, console.width if console.is_terminal else None)
    for window, rows in zip(shown, tables, strict=True):
        if not every_token:
            what = f"positions {count(window.first)} to {count(window.last)}"
            what += "" if window.largest is None else f", |r| up to {number(window.largest)}"
            console.print(Text(f"  {what}", style="bold"), soft_wrap=True)
        _print_table(console, rows)
    if left_out:
        text = f"too wide for this terminal, and in --json: {safe(', '.join(left_out))}"
        print_wrapped(console, Text(text, style="dim"), head="  ")
    if not every_token and sum(window.last - window.first + 1 for window in shown) < frame.height:
        print_wrapped(console, Text(f"--all prints all {counted(frame.height, 'token')}", style="dim"), head="  ")


def _token_tables(
    sample: Sample, parts: Sequence[pl.DataFrame], width: int | None
) -> tuple[list[list[Row]], list[str]]:
    """Return a table for each part, with the columns that fit into `width` letters, and the columns that do not."""
    recorded = sample.tokens.columns
    columns = [name for name in dict.fromkeys((*FIRST, *recorded)) if name in recorded and name not in HIDDEN]
    columns.remove("r")
    needed = {*FIRST, *(f"{side}_logp" for side in (sample.pair or "").split("/"))}
    left_out: list[str] = []
    while True:
        head: Row = [*((name.upper(), "") for name in columns), ("R", ""), ("", "")]
        tables = [[head, *_rows(part, columns)] for part in parts]
        free = [name for name in columns if name not in needed]
        if width is None or not free or max(map(_width, tables)) <= width:
            return tables, left_out
        left_out.insert(0, free[-1])
        columns.remove(free[-1])


def _width(rows: Sequence[Row]) -> int:
    return sum(max(len(row[at][0]) for row in rows) + GAP for at in range(len(rows[0])))


def _tokens_line(sample: Sample) -> str:
    frame = sample.tokens
    sizes = frame.drop_nulls("slice").group_by("slice", maintain_order=True).len()
    parts = [f"{count(size)} {_slice(name)}" for name, size in sizes.iter_rows()]
    line = f"{counted(frame.height, 'token')}" + (f": {', '.join(parts)}" if parts else "")
    if sample.pair is None:
        return f"{line}."
    size = frame["r"].abs()
    usable = size.filter(size.is_finite().fill_null(value=False))
    if usable.is_empty():
        return f"{line}. r ({sample.pair}) has no finite value."
    most = float(usable.to_numpy().max())
    at = int(frame.filter(pl.col("r").abs() == most)["position"][0])
    far = int((usable >= LEVELS[-1][0]).sum())
    largest = f"the largest |r|, {number(most)} nats, is at position {count(at)}"
    return f"{line}. r is {sample.pair}: {largest}; {count(far)} of {counted(len(usable), 'token')} reach ln 2."


def _slice(name: str) -> str:
    return {"observation": "tool output", "not_sampled": "not sampled"}.get(name) or slice_name(name)


def _rows(frame: pl.DataFrame, columns: Sequence[str]) -> Iterator[Row]:
    exact = {name for name, kind in frame.schema.items() if kind == pl.Float32}
    for row in frame.iter_rows(named=True):
        mark, style = _level(row["r"])
        cells = [(_cell(name, row[name], single=name in exact), style) for name in columns]
        yield [*cells, (NONE if row["r"] is None else f"{row['r']:+.4g}", style), (mark, style)]


def _cell(name: str, value: Any, *, single: bool) -> str:
    """Spell a value so that reading it back gives the recorded one."""
    if value is None:
        return NONE
    if name == "token":
        spelt = value.translate(BREAKS)
        return f'"{safe(spelt, longest=MAX_TOKEN)}"'
    if name == "slice":
        return _slice(value)
    if isinstance(value, float):
        return str(np.float32(value)) if single else repr(value)
    return _value(value)


def _level(r: float | None) -> tuple[str, str]:
    if r is None or not math.isfinite(r):
        return "", "dim" if r is None else "magenta"
    return next(((mark, style) for limit, mark, style in LEVELS if abs(r) >= limit), ("", ""))


def _section(console: Console, title: str) -> None:
    console.print()
    console.print(Text(title, style="bold"), soft_wrap=True)


def _print_table(console: Console, rows: Sequence[Row]) -> None:
    """Print rows in columns; lines are never wrapped, so that a row stays one."""
    widths = [max(len(row[at][0]) for row in rows) for at in range(len(rows[0]))]
    for at, row in enumerate(rows):
        line = Text("  ")
        for (cell, style), width in zip(row, widths, strict=True):
            line.append(cell.ljust(width + GAP), style="dim" if at == 0 else style)
        line.rstrip()
        console.print(line, soft_wrap=True)


assert set(LOGPS).isdisjoint(HIDDEN)
