"""Tool calls of a conversation as rows: each request paired with its result, and why a call failed."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from ptt.diagnostics.parsers.io.result_outcomes import result_columns, told_by_fields
from ptt.diagnostics.parsers.io.values import as_hash, as_json, as_name, as_text, plain_text
from ptt.diagnostics.schema import CODED

UNKNOWN_TOOL, BAD_ARGUMENTS = "unknown_tool", "invalid_arguments"
UNREAD: Final = "unread_calls"  # of a message: requests in its text that their template's parser refuses
ERROR_CHARS: Final = 500  # of an error text: its kind is named at the beginning
NOT_FOUND: Final = re.compile(
    r"\b(?:tool|function)\s+\S+\s+(?:was |is |does )?not (?:found|exist)|\bunknown (?:tool|function)\b", re.I
)
NOT_READ: Final = re.compile(
    r"\b(?:invalid|malformed|unreadable|(?:could not|cannot|failed to|unable to) parse)\b[^.:]{0,30}"
    r"\b(?:arguments?|tool call|function call)\b",
    re.I,
)
NOT_TAKEN: Final = (
    r"\b{tool}\(\) (?:missing \d+ required|got an unexpected keyword|got multiple values|takes \d+ positional)"
)
"""What Python says of a call that does not fit a function; TRL keeps it."""
# What Claude Code, Codex, Gemini CLI and OpenHands answer where a call could not be made.
NO_SUCH_TOOL: Final = re.compile(
    r"No such tool available|^unsupported (?:custom tool )?call"
    r"|\bTool ['\"]?[\w.:-]+['\"]? (?:is )?not (?:found|registered)"
)
UNFIT_ARGUMENTS: Final = re.compile(
    r"InputValidationError|[Ff]ailed to parse (?:function|tool call|exec_command) arguments|Error validating tool"
    r"|^params must |Missing required argument \"\w+\" in tool call|^Parameter '\w+' is expected"
)


def python_error(text: str, tool: str | None) -> str | None:
    """Return why a call could not be made, from Python's error, which TRL keeps; None if it was made and failed."""
    if NOT_FOUND.search(text):
        return UNKNOWN_TOOL
    if NOT_READ.search(text) or (tool and re.search(NOT_TAKEN.format(tool=re.escape(tool)), text)):
        return BAD_ARGUMENTS
    return None


def failed(content: Any, *, failed: bool) -> dict[str, Any]:
    """Return the `error` of a result whose writer says whether it failed: its type where the call could not be made."""
    kind = why_unmade(plain_text(content)) if failed else None
    return {"error": {"type": kind} if kind else failed}


def why_unmade(text: str) -> str | None:
    """Return why a call could not be made, by what a failed call gave back; None for one that was made."""
    beginning = text[:ERROR_CHARS]
    if NO_SUCH_TOOL.search(beginning):
        return UNKNOWN_TOOL
    return BAD_ARGUMENTS if UNFIT_ARGUMENTS.search(beginning) else None


CHANNEL: Final = "<|channel|>"  # of the harmony template, which servers leave at the name of a tool
MEASURED: Final = ("result_len", "result_hash")  # of what a malformed call got back; that it failed is known
ARGS_CHARS: Final = 2000  # enough to tell calls apart; some tools take whole files as an argument
# What TRL puts into the conversation when a tool raises: the text of a Python dict. A tool that *returns*
# such a text counts as failed here, though not in TRL's own counter.
ERROR_TEXT: Final = ("{'error':", '{"error":')
SHOWN_ERROR_CHARS: Final = 200  # of an error text that is kept: enough to distinguish kinds of error


def calls_of(messages: list[dict[str, Any]], *, error_text: tuple[str, ...] = ERROR_TEXT) -> list[dict[str, Any]]:
    """Pair calls and results by their call ids, or in order if the writer gives none, as TRL does.

    A call failed if its result's `error` says so or, without that field, if its text begins with one of `error_text`.
    """
    calls: list[dict[str, Any]] = []
    waiting = _Waiting()
    for at, message in enumerate(messages):
        requests = message.get("tool_calls")
        for request in requests if isinstance(requests, list) else []:
            call = _call(request, at, len(calls))
            calls.append(call)
            waiting.add(call)
        for request in message.get(UNREAD, ()):
            call = _call(request, at, len(calls))
            call.update(
                ok=False,
                ok_source="error_field",
                error_type=BAD_ARGUMENTS,
                error_text=(call["args_json"] or "")[:SHOWN_ERROR_CHARS],
            )
            calls.append(call)
            waiting.add(call)
        if message.get("role") == "tool" and (asked := waiting.take(message.get("tool_call_id"))) is not None:
            told = _outcome(message, error_text, asked)
            asked.update({key: told[key] for key in MEASURED} if asked["error_type"] else told)
    return calls


def failed_calls(messages: list[dict[str, Any]], calls: list[dict[str, Any]]) -> int:
    """Count failed calls, including those whose request lies before the log begins."""
    failed = sum(call["ok"] is False for call in calls)
    results = [message for message in messages if message.get("role") == "tool" and message.get("error")]
    if len(results) <= failed:
        return failed
    asked = {call["call_id"] for call in calls}
    return failed + sum(as_name(message.get("tool_call_id")) not in asked for message in results)


class _Waiting:
    """Calls still without a result, in order and by id; takes constant time however long the conversation is."""

    def __init__(self) -> None:
        self.ordered: deque[dict[str, Any]] = deque()
        self.by_id: dict[str, deque[dict[str, Any]]] = {}
        self.answered: set[int] = set()

    def add(self, call: dict[str, Any]) -> None:
        self.ordered.append(call)
        if call["call_id"] is not None:
            self.by_id.setdefault(call["call_id"], deque()).append(call)

    def take(self, wanted: Any) -> dict[str, Any] | None:
        """Return the call with an id, or the oldest one if neither calls nor results have ids."""
        queue = self.by_id.get(wanted) if isinstance(wanted, str) and self.by_id else self.ordered
        while queue:
            call = queue.popleft()
            if call["call_idx"] not in self.answered:
                self.answered.add(call["call_idx"])
                return call
        return None


def _outcome(message: dict[str, Any], error_text: tuple[str, ...], call: dict[str, Any]) -> dict[str, Any]:
    text = plain_text(message.get("content"))
    measured = told_columns(text, call)
    if (beside := told_by_fields(message, call["name"], call["args_json"])) is not None:
        measured |= {"told_failed": beside, "told_by": CODED}
    error = message.get("error")
    if isinstance(error, bool):
        failed = {"error_text": text[:SHOWN_ERROR_CHARS] or None} if error else {}
        return measured | failed | {"ok": not error, "ok_source": "flag"}
    told = error.get("message") if isinstance(error, dict) else error
    said = {"error_text": (as_name(told) or text)[:SHOWN_ERROR_CHARS] or None}
    if error:
        kind = as_name(error.get("type")) if isinstance(error, dict) else None
        return measured | said | {"ok": False, "ok_source": "error_field", "error_type": kind}
    if text.startswith(error_text):
        kind = python_error(text[:ERROR_CHARS], call["name"])
        return measured | said | {"ok": False, "ok_source": "error_text", "error_type": kind}
    return measured | {"ok": True, "ok_source": "error_field" if "error" in message else "unknown"}


def told_columns(text: str, call: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a call that its result fills, with the beginning of one that says it failed."""
    columns = result_columns(text, call["name"], call["args_json"])
    return columns | ({"error_text": text[:SHOWN_ERROR_CHARS]} if columns["told_failed"] else {})


def function_of(request: dict[str, Any]) -> dict[str, Any]:
    """Return the object that holds the name and the arguments of a request for a tool."""
    function = request.get("function")
    if isinstance(function, str):  # Inspect's: the name itself, where others nest name and arguments
        return {"name": function, "arguments": request.get("arguments")}
    return function if isinstance(function, dict) else request


def _call(request: Any, turn: int, number: int) -> dict[str, Any]:
    asked = request if isinstance(request, dict) else {}
    function = function_of(asked)
    arguments = function.get("arguments")
    if isinstance(arguments, dict):
        # Arrow gives every call the arguments of all tools, with null where a tool has no such argument.
        arguments = as_json({name: value for name, value in arguments.items() if value is not None})
    return call_row(
        turn,
        call_idx=number,
        name=None if (name := as_name(function.get("name"))) is None else name.partition(CHANNEL)[0],
        args_json=None if arguments is None else as_text(arguments)[:ARGS_CHARS],
        call_id=as_name(asked.get("id")),
    )


def call_row(turn: int, **told: Any) -> dict[str, Any]:
    """Return the row of a call, with null for fields that are not given."""
    return {
        "turn_idx": turn,
        "call_idx": None,
        "name": None,
        "args_json": None,
        "result_len": None,
        "result_hash": None,
        "ok": None,
        "ok_source": "unknown",
        "told_failed": None,
        "told_by": None,
        "result_form": None,
        "result_hints": None,
        "result_empty": None,
        "call_id": None,
        "error_type": None,
        "error_text": None,
        "latency_s": None,
        **told,
    }


def malformed_call(turn: int, text: str, kind: str = BAD_ARGUMENTS) -> dict[str, Any]:
    """Return the row of a request that was not understood: a failed call without a name, and no call that was made."""
    return call_row(
        turn,
        result_len=len(text),
        result_hash=as_hash(text),
        ok=False,
        ok_source="error_field",
        error_type=kind,
        error_text=text[:SHOWN_ERROR_CHARS] or None,
    )


def numbered(calls: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return calls in the order of their turns, numbered."""
    ordered = sorted(calls, key=lambda call: call["turn_idx"])
    return [call | {"call_idx": at} for at, call in enumerate(ordered)]
