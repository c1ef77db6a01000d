"""The episodes that findings rest on, message by message: who speaks, what is called, how it ends, where to look."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

import polars as pl

from ptt.diagnostics.model import Finding
from ptt.diagnostics.traces.model import Call, Example, Message, Parting, TraceDiagnosis, named_by, tool_of
from ptt.diagnostics.traces.tables import TraceTables, scan_table

EACH: Final = 3  # episodes of a finding: nobody reads more
MAX_EPISODES: Final = 24  # of all findings, so that the page stays small
MAX_TURNS: Final = 2_000  # messages of an episode that are looked at
MAX_MESSAGES: Final = 24  # of them that are shown: the beginning, the end, and those around what is to be seen
AROUND: Final = 6  # of them, before and after
ENDS: Final = 3  # of them, at either end
MESSAGE_CHARS: Final = 700  # of a message: its beginning and its end
RESULT_CHARS: Final = 300  # of what a tool returned
CALL_CHARS: Final = 300
MAX_CALLS: Final = 8  # of a message
ERROR_CHARS: Final = 160
OUTCOMES: Final = {True: "success", False: "failure", None: "unknown"}
LAST: Final = frozenset({"truncated-episodes", "refusals", "repetition", "template-collapse", "pseudo-success"})
"""Findings that are about how an episode ends."""
PARTS: Final = "parts here"
Rows = list[dict[str, Any]]


def naming_episodes(finding: Finding, tables: TraceTables) -> Finding:
    """Return a finding that names the episodes to read first; of a tool, the first that fails since the onset leads."""
    rows, tool, named = tables.episodes, tool_of(finding), named_by(finding)
    if finding.onset_step is not None:
        rows = rows.filter(pl.col("place") >= finding.onset_step)
    if finding.id == "tool-failures":
        failed = tables.calls.filter("failed") if tool is None else tables.calls.filter("failed", tool=tool)
        first = rows.join(failed.select("episode"), on="episode", how="semi", maintain_order="left").head(1)
        named = (*first["name"], *named)
    elif not named and finding.id == "success":
        named = tuple(rows.filter(~pl.col("success"))["name"].head(EACH))
    elif not named and finding.id == "reward-fell":
        named = tuple(rows.filter(pl.col("reward").is_not_nan()).sort("reward", maintain_order=True)["name"].head(EACH))
    elif not named and finding.id == "longer-episodes":
        named = tuple(
            rows.drop_nulls("n_turns").sort("n_turns", descending=True, maintain_order=True)["name"].head(EACH)
        )
    elif not named and tool is not None:
        using = tables.calls.filter(pl.col("tool") == tool).sort("latency_s", descending=True, nulls_last=True)
        slow = using.unique("episode", keep="first", maintain_order=True).head(EACH)
        named = tuple(slow.join(rows.select("episode", "name"), on="episode", maintain_order="left")["name"])
    names = ", ".join(dict.fromkeys(named[: EACH + 1]))
    return replace(finding, evidence={**finding.evidence, "episodes": names}) if names else finding


def with_transcripts(diagnosis: TraceDiagnosis, tables: TraceTables) -> TraceDiagnosis:
    """Return the diagnosis with the messages of its partings, and of the episodes that its findings name.

    Texts and arguments are among them where the store keeps texts; else roles, tools, outcomes and lengths.
    """
    of_findings: dict[str, list[int]] = {}
    for number, finding in enumerate(diagnosis.findings):
        for name in named_by(finding)[:EACH]:
            of_findings.setdefault(name, []).append(number)
    of_findings = dict(islice(of_findings.items(), MAX_EPISODES))
    failing = {row["first_episode"]: row["tool"] for row in reversed(diagnosis.rows("failing_tools")[:EACH])}
    sides = [side.name for parting in diagnosis.partings for side in (parting.success, parting.failure)]
    read = Episodes.of(tables, [*sides, *of_findings, *failing])
    examples = [
        read.example(name, {at: diagnosis.findings[at] for at in of_findings.get(name, ())}, failing.get(name))
        for name in (*of_findings, *(name for name in failing if name not in of_findings))
        if name in read.facts
    ]
    return replace(
        diagnosis,
        examples=tuple(one for one in examples if one.messages),
        partings=tuple(_filled(parting, read) for parting in diagnosis.partings),
    )


def _filled(parting: Parting, read: Episodes) -> Parting:
    success, failure = (
        replace(side, messages=read.messages(side.name, read.turn(side.name, parting.turn)))
        for side in (parting.success, parting.failure)
    )
    return replace(parting, success=success, failure=failure)


@dataclass(frozen=True)
class Episodes:
    """Episodes that are shown: what their files say of them, and their messages and calls, by name."""

    facts: Mapping[str, dict[str, Any]]
    turns: Mapping[str, Rows]
    calls: Mapping[str, Rows]

    @classmethod
    def of(cls, tables: TraceTables, names: Sequence[str]) -> Episodes:
        """Read episodes from the store, and how their calls ended from what was decided over the set."""
        columns = ("name", "episode", "trajectory_id", "source", "success", "reward")
        found = tables.episodes.filter(pl.col("name").is_in(names)).select(columns)
        called = found.select("trajectory_id", "episode", "name")
        ended = tables.calls.join(called.select("episode"), on="episode", how="semi")
        ended = ended.select("episode", call_idx="call", failed="failed", known_by=pl.col("known_by").cast(pl.String))
        turns = _rows(tables, "turns", called, "turn_idx", "role", "text_len", "text")
        calls = _rows(tables, "tool_calls", called, "call_idx", "turn_idx", "name", "args_json", "result_hash",
                      "error_type", "error_text").join(ended, on=["episode", "call_idx"], how="left")  # fmt: skip
        return cls(
            {row["name"]: row for row in found.to_dicts()}, _by_name(turns, "turn_idx"), _by_name(calls, "call_idx")
        )

    def example(self, name: str, findings: Mapping[int, Finding], failing: str | None) -> Example:
        """Return an episode as an example of these findings, by their numbers, and of a tool that fails there first."""
        facts = self.facts[name]
        marks: dict[int, str] = {}
        for found in (
            *(self._place(name, finding.id, tool_of(finding)) for finding in findings.values()),
            self._place(name, "", failing) if failing is not None else None,
        ):
            if found is not None:
                marks.setdefault(*found)
        return Example(
            name=name,
            findings=tuple(findings),
            source=facts["source"] or "",
            outcome=OUTCOMES[facts["success"]],
            reward=facts["reward"],
            length=len(self.turns.get(name, [])),
            messages=self.messages(name, marks),
        )

    def turn(self, name: str, number: int) -> dict[int, str]:
        """Return the mark at a turn of the assistant, from 0."""
        said = [at for at, row in enumerate(self.turns.get(name, [])) if row["role"] == "assistant"]
        return {said[number]: PARTS} if number < len(said) else {}

    def _place(self, name: str, finding: str, tool: str | None) -> tuple[int, str] | None:
        """Return where an episode shows a finding, or a tool that fails, and what is to be seen there."""
        turns, calls = self.turns.get(name, []), self.calls.get(name, [])
        place = {row["turn_idx"]: at for at, row in enumerate(turns)}
        own = [call for call in calls if tool is None or call["name"] == tool]
        failed = next((call for call in own if call["failed"]), None)
        again = _repeated(calls)
        found, words = None, ""
        if finding in LAST:
            found, words = len(turns) - 1, "ends here"
        elif finding == "void-turns":
            found, words = _silent(turns, calls), "neither text nor call"
        elif finding == "loops" and again is not None:
            found, words = place.get(again["turn_idx"]), f"the same call of {again['name']} with the same result"
        elif failed is not None:
            found, words = place.get(failed["turn_idx"]), f"{failed['name'] or 'a call'} fails first here"
        elif own and tool is not None:
            found, words = place.get(own[0]["turn_idx"]), f"calls {tool} first here"
        return (found, words) if found is not None and turns else None

    def messages(self, name: str, marks: Mapping[int, str]) -> tuple[Message, ...]:
        """Return an episode's messages, those at `marks` (from 0) with what is to be seen there."""
        turns, calls = self.turns.get(name, []), self.calls.get(name, [])
        of_turn: dict[int | None, Rows] = {}
        for call in calls:
            of_turn.setdefault(call["turn_idx"], []).append(call)
        waiting, shown = deque(calls), _shown(len(turns), marks)
        messages: list[Message] = []
        for at, row in enumerate(turns):
            answered = waiting.popleft() if row["role"] == "tool" and waiting else None
            own = of_turn.pop(row["turn_idx"], [])
            if at in shown:
                failed = answered is not None and answered["failed"] is True
                message = _message(row, own, failed=failed)
                messages.append(replace(message, number=at + 1, mark=marks.get(at, "")))
        left = [_call(call, kept=False) for rows in of_turn.values() for call in rows]
        if left:  # whose turns are numbered on their own
            messages.append(Message(role="calls", text="", calls=tuple(left[:MAX_CALLS]), more_calls=_beyond(left)))
        return tuple(messages)


def _repeated(calls: Rows) -> dict[str, Any] | None:
    """Return the first call that repeats one of the four before it, with its arguments and result."""
    told = [(call["name"], call["args_json"], call["result_hash"]) for call in calls]
    return next((call for at, call in enumerate(calls) if told[at] in told[max(0, at - 4) : at]), None)


def _silent(turns: Rows, calls: Rows) -> int | None:
    """Return the first turn of the assistant with neither text nor call."""
    called = {call["turn_idx"] for call in calls}
    void = (row["role"] == "assistant" and row["text_len"] == 0 and row["turn_idx"] not in called for row in turns)
    return next((at for at, is_void in enumerate(void) if is_void), None)


def _rows(tables: TraceTables, table: str, called: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """Return rows of some episodes with the name and number of each; of repeated ones the first."""
    rows = scan_table(tables.store, table).select("trajectory_id", *columns)
    of = called.lazy().rename({"name": "of"})
    found = rows.join(of, on="trajectory_id").drop("trajectory_id").collect()
    return found.unique(["of", columns[0]], keep="first", maintain_order=True)


def _by_name(rows: pl.DataFrame, order: str) -> dict[str, Rows]:
    parts = rows.sort("of", order).partition_by("of", as_dict=True, maintain_order=True)
    return {str(name[0]): part.head(MAX_TURNS).to_dicts() for name, part in parts.items()}


def _message(row: dict[str, Any], calls: Rows, *, failed: bool) -> Message:
    """Return a message; without a kept text its length stands for it, and the names of its calls for these."""
    kept, text = row["text"] is not None, row["text"] or ""
    if calls and kept and row["role"] == "assistant":  # a kept text ends with its calls, which stand beside it here
        begin = text.find(f"{calls[0]['name']}(")
        text = text[:begin].rstrip() if begin >= 0 else text
    return Message(
        role=row["role"] or "unknown",
        text=_shortened(text, RESULT_CHARS if row["role"] == "tool" else MESSAGE_CHARS),
        length=row["text_len"],
        calls=tuple(_call(call, kept=kept) for call in calls[:MAX_CALLS]),
        more_calls=_beyond(calls),
        failed=failed,
    )


def _call(call: dict[str, Any], *, kept: bool) -> Call:
    return Call(
        name=call["name"] or "no name",
        arguments=_shortened(call["args_json"] or "", CALL_CHARS) if kept else "",
        failed=call["failed"],
        known_by=call["known_by"] or "",
        error=_shortened(call["error_text"] or call["error_type"] or "", ERROR_CHARS) if call["failed"] else "",
    )


def _beyond(calls: Sequence[object]) -> int:
    return max(0, len(calls) - MAX_CALLS)


def _shortened(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]} … {text[-half:]}"


def _shown(count: int, marks: Mapping[int, str]) -> set[int]:
    """Return the messages that are shown of so many: all of few, else those at the marks and at both ends."""
    if count <= MAX_MESSAGES:
        return set(range(count))
    near = {at for mark in islice(marks or (ENDS,), 2) for at in range(mark - AROUND, mark + AROUND + 1)}
    return (near | set(range(ENDS)) | set(range(count - ENDS, count))) & set(range(count))
