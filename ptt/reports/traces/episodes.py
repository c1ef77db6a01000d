"""The way to the sample: transcripts of the episodes that findings rest on, links to them, and when each tool fails."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final

import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.model import Finding, in_unit
from ptt.diagnostics.traces.call_outcomes import MARKED
from ptt.diagnostics.traces.model import Call, Example, Message, Parting, TraceDiagnosis, tool_of
from ptt.reports.text.names import sentence
from ptt.reports.text.numbers import count, counted, number, percent
from ptt.reports.text.sanitize import safe, shortened

MAX_TEXT: Final = 4000  # letters of a message on the page
MAX_BYTES: Final = 1 << 20  # of all transcripts: beyond it an episode is named and not shown
MARKUP_BYTES: Final = 300  # of a message beside its texts
OUTCOMES: Final = {"success": "Succeeds", "failure": "Fails", "unknown": "Outcome unknown"}
ROLES: Final = ("system", "developer", "user", "assistant", "tool")
MAX_TOOLS: Final = 3  # of the time line on the first screen
MIN_FAILED: Final = 0.05  # of a tool's calls, to stand there without a finding
MIN_FAILURES: Final = 5
MAX_TOOL_NAME: Final = 36


@dataclass(frozen=True, kw_only=True)
class MessageView:
    """One message, finished."""

    role: str
    number: str
    text: str
    calls: tuple[tuple[str, str], ...]  # what is called, and how that ended
    look: str  # classes: its role, failed, marked
    note: str  # what is special about it
    size: str
    gap: str  # how many messages before it are left out
    anchor: str  # of the first that is marked


@dataclass(frozen=True, kw_only=True)
class EpisodeView:
    """One episode to look at, folded on the page."""

    anchor: str
    title: str
    outcome: str
    state: str
    facts: str
    command: str
    at: str  # the message to look at
    seen: str  # and what is to be seen there
    messages: tuple[MessageView, ...]
    rest: str  # how many messages behind the last are left out


@dataclass(frozen=True, kw_only=True)
class PartingView:
    """Two episodes of one prompt, side by side."""

    title: str
    why: str
    sides: tuple[EpisodeView, EpisodeView]


@dataclass(frozen=True, kw_only=True)
class EpisodeLink:
    """An episode that a finding names: where it stands on the page, and how to print it."""

    href: str  # empty where its transcript is not shown
    name: str
    words: str
    command: str  # empty in a redacted report, which has no store beside it


@dataclass(frozen=True, kw_only=True)
class ToolLine:
    """When a tool fails: its share of failed calls over the order, its onset, and the first sample that fails."""

    name: str
    words: str
    bars: tuple[tuple[float, float, float, str], ...]  # left and width of 100, share, words
    onset: float | None  # of 100
    since: str
    first: EpisodeLink


def episode_views(diagnosis: TraceDiagnosis) -> tuple[EpisodeView, ...]:
    """Return the episodes that findings rest on, those of the worst first, while there is room on the page."""
    views = (
        _episode_view(example, f"episode-{place}", redacted=diagnosis.redacted)
        for place, example in enumerate(diagnosis.examples, start=1)
    )
    shown, left = [], MAX_BYTES
    for view in views:
        left -= _bytes_of(view)
        if left < 0:
            break
        shown.append(view)
    return tuple(shown)


def parting_views(diagnosis: TraceDiagnosis) -> list[PartingView]:
    """Return the pairs that part, while there is room on the page."""
    views = [_parting_view(parting, place, diagnosis) for place, parting in enumerate(diagnosis.partings, start=1)]
    sizes = accumulate(sum(map(_bytes_of, view.sides)) for view in views)
    return [view for view, size in zip(views, sizes, strict=True) if size <= MAX_BYTES]


def _parting_view(parting: Parting, place: int, diagnosis: TraceDiagnosis) -> PartingView:
    success, failure = (
        _episode_view(side, f"parting-{place}-{at}", redacted=diagnosis.redacted)
        for at, side in enumerate((parting.success, parting.failure))
    )
    return PartingView(
        title=f"{safe(parting.group)}: parted at assistant turn {count(parting.turn + 1)}",
        why=sentence(parting.why),
        sides=(success, failure),
    )


def links_of_findings(diagnosis: TraceDiagnosis, views: Sequence[EpisodeView]) -> dict[str, list[EpisodeLink]]:
    """Return the episodes of each finding, by its anchor."""
    links: dict[str, list[EpisodeLink]] = {f"finding-{at}": [] for at, _ in enumerate(diagnosis.findings, start=1)}
    for place, example in enumerate(diagnosis.examples):
        link = _link(example, views[place] if place < len(views) else None, redacted=diagnosis.redacted)
        for number_ in example.findings:
            links.setdefault(f"finding-{number_ + 1}", []).append(link)
    return links


def _link(example: Example, view: EpisodeView | None, *, redacted: bool) -> EpisodeLink:
    seen = view.seen if view is not None else ""
    words = OUTCOMES.get(example.outcome, OUTCOMES["unknown"]).lower()
    return EpisodeLink(
        href=f"#{view.anchor}-look" if view is not None else "",
        name=safe(example.name),
        words=f"{words}; {seen}" if seen else words,
        command="" if redacted else show_command(example.name),
    )


def show_command(name: str) -> str:
    """Return the line that prints an episode, in the folder of the page."""
    return shlex.join(["ptt", "show", ".", safe(name)])


def _episode_view(example: Example, anchor: str, *, redacted: bool) -> EpisodeView:
    reward = "" if example.reward is None else f"reward {number(example.reward)}"
    length = counted(example.length, "message") if example.length else ""
    own_file = "" if example.name.startswith(f"{example.source}#") else safe(example.source)
    marked = next((message for message in example.messages if message.mark), None)
    at = f"message {count(marked.number or 0)}" if marked is not None else ""
    messages = tuple(_message_views(example.messages, marked, anchor))
    last = example.messages[-1].number if example.messages else None
    hidden = example.length - last if example.length and last is not None else 0
    return EpisodeView(
        anchor=anchor,
        title=safe(example.name),
        outcome=OUTCOMES.get(example.outcome, OUTCOMES["unknown"]),
        state=example.outcome if example.outcome in OUTCOMES else "unknown",
        facts=" · ".join(part for part in (own_file, length, reward) if part),
        command="" if redacted else show_command(example.name),
        at=at,
        seen=f"{at}: {safe(marked.mark)}" if marked is not None else "",
        messages=messages,
        rest=f"{counted(hidden, 'message')} left out" if hidden > 0 else "",
    )


def _message_views(messages: Sequence[Message], marked: Message | None, anchor: str) -> Iterator[MessageView]:
    """Yield messages; where none is marked, links lead to the first."""
    target, before = marked or (messages[0] if messages else None), 0
    for message in messages:
        role = message.role if message.role in ROLES else "other"
        gap = (message.number or before + 1) - before - 1
        before = message.number or before
        flags = [*(["failed"] if message.failed else []), *(["marked"] if message.mark else [])]
        yield MessageView(
            role=safe(message.role, longest=40),
            number=count(message.number) if message.number is not None else "",
            text=lines(message.text),
            calls=tuple(_call_words(message)),
            look=" ".join([role, *flags]),
            note=safe(message.mark),
            size="" if message.text or not message.length else counted(message.length, "character"),
            gap=f"{counted(gap, 'message')} left out" if gap > 0 else "",
            anchor=f"{anchor}-look" if message is target else "",
        )


def _call_words(message: Message) -> Iterator[tuple[str, str]]:
    for call in message.calls:
        yield lines(f"{call.name}({call.arguments})" if call.arguments else call.name), _ending(call)
    if message.more_calls:
        yield f"and {counted(message.more_calls, 'more call')}", ""


def _ending(call: Call) -> str:
    if not call.failed:
        return ""
    how = "" if call.known_by in ("", MARKED) else f" ({call.known_by})"
    return f"failed{how}: {safe(call.error)}" if call.error else f"failed{how}"


def _bytes_of(view: EpisodeView) -> int:
    """Return how much of the page an episode takes, each letter counted as the longest that escaping makes of it."""
    texts = [text for message in view.messages for text in (message.text, message.note, *sum(message.calls, ()))]
    return sum(MARKUP_BYTES for _ in view.messages) + 5 * sum(len(text.encode()) for text in texts)


def lines(text: str) -> str:
    """Make a text of several lines harmless to show, its lines kept."""
    return "\n".join(safe(line, longest=MAX_TEXT) for line in shortened(text, MAX_TEXT).splitlines())


def tool_lines_over_order(diagnosis: TraceDiagnosis, views: Sequence[EpisodeView]) -> list[ToolLine]:
    """Return the tools whose failures the first screen shows over the order: those of findings, then the worst."""
    about = {tool_of(one): one for one in reversed(diagnosis.findings) if one.id == "tool-failures"}
    rows = [
        row
        for row in diagnosis.rows("failing_tools")
        if row["tool"] in about or (row["failures"] >= MIN_FAILURES and row["failures"] >= MIN_FAILED * row["known"])
    ]
    rows.sort(key=lambda row: row["tool"] not in about)
    frame = diagnosis.tables.get("failures_over_order")
    if frame is None:
        return []
    return [
        _tool_line(
            row,
            frame.filter(pl.col("tool").eq_missing(row["tool"])),
            about.get(row["tool"], about.get(None)),
            diagnosis,
            views,
        )
        for row in rows[:MAX_TOOLS]
    ]


def _tool_line(
    row: Mapping[str, object],
    blocks: pl.DataFrame,
    finding: Finding | None,
    diagnosis: TraceDiagnosis,
    views: Sequence[EpisodeView],
) -> ToolLine:
    unit = diagnosis.traces.order
    first, last = diagnosis.traces.first or 0, diagnosis.traces.last or 1
    span = max(last - first + 1, 1)
    failures, known = int(str(row["failures"])), int(str(row["known"]))
    bars = tuple(
        (
            100 * (block["first"] - first) / span,
            100 * (block["last"] - block["first"] + 1) / span,
            block["failures"] / block["known"],
            in_unit(f"steps {count(block['first'])} to {count(block['last'])}", unit)
            + f": {count(block['failures'])} of {counted(block['known'], 'call')} failed",
        )
        for block in blocks.sort("block").to_dicts()
    )
    onset = finding.onset_step if finding is not None else None
    alone = len(diagnosis.rows("failing_tools")) == 1  # then a finding on all calls is about this tool
    own = finding if finding is not None and (alone or tool_of(finding) is not None) else None
    return ToolLine(
        name=shortened(safe(str(row["tool"] or "no name")), MAX_TOOL_NAME),
        words=f"{percent(failures / known)} of {counted(known, 'call')} failed",
        bars=bars,
        onset=None if onset is None else 100 * (onset - first) / span,
        since=in_unit(f"Since step {count(onset)}, first in", unit)
        if own is not None and onset is not None
        else "First in",
        first=_first_failure(row, own, diagnosis, views),
    )


def _first_failure(
    row: Mapping[str, object], finding: Finding | None, diagnosis: TraceDiagnosis, views: Sequence[EpisodeView]
) -> EpisodeLink:
    """Return the first sample in which a tool fails: since the onset of its own finding, else of all."""
    own = next((place for place, one in enumerate(diagnosis.findings) if one is finding), None)
    for example, view in zip(diagnosis.examples, views, strict=False):
        if own in example.findings if own is not None else example.name == row["first_episode"]:
            words = ", ".join(
                text
                for text in (view.at, f"an episode that {view.outcome.lower()}" if view.state != "unknown" else "")
                if text
            )
            return replace(_link(example, view, redacted=diagnosis.redacted), words=words)
    return EpisodeLink(href="", name=safe(str(row["first_episode"])), words="", command="")
