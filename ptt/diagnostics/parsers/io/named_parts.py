"""Find the parts of an object of unknown layout by their names: a call of a tool, its arguments, what came of it.

Names count in any spelling (`toolName`, `tool_name`, `tool.name`). Definitions of tools are no calls: their parameters
are a schema, or described.
"""

from __future__ import annotations

import re
from ast import literal_eval
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final
from warnings import catch_warnings

from ptt.diagnostics.parsers.io.values import as_label, as_name, as_text, dict_of

Message = dict[str, Any]

NAME: Final = ("toolname", "toolcallname", "tool", "functionname", "funcname", "function", "apiname", "actionname",
               "actiontype", "name", "action", "api", "method", "command", "skill")  # fmt: skip
PLAIN: Final = frozenset({"toolname", "toolcallname", "tool", "functionname", "funcname", "toolcall",
                              "functioncall"})  # fmt: skip
"""Names of a call that say by themselves that it is one; others need a result, an id or a place for calls."""
ARGUMENTS: Final = (
    "arguments", "args", "toolinput", "actioninput", "toolargs", "toolarguments", "inputargs", "functionargs",
    "actionargs", "toolparams", "toolparameters", "functionparameters", "actionparams", "actionparameters",
    "inputparams", "callargs", "rawinput", "toolrequest", "input", "inputs", "parameters", "params", "kwargs",
)  # fmt: skip
RESULT: Final = (
    "result", "toolresult", "tooloutput", "toolresponse", "observation", "output", "outputs", "response", "returned",
    "returnvalue", "return", "content", "summary", "resultpreview", "executionresult", "toolcallresult",
    "resultsummary", "outputsummary", "resulttext", "outputpreview", "rawoutput",
)  # fmt: skip
ASKED_FOR: Final = ("query", "code", "url", "path", "question", "command")
CAME: Final = ("sources", "documents", "hits", "results", "resultscount", "numresults")
"""What a call that was made has beside its tool: what it asked for, and what it found."""
IDENTITY: Final = ("toolcallid", "callid", "tooluseid", "toolid", "invocationid", "requestid", "id")
FAILURES: Final = frozenset({"error", "failed", "failure", "fail", "exception", "timeout", "timedout", "denied",
                             "rejected"})  # fmt: skip
SUCCESSES: Final = frozenset({"success", "ok", "succeeded", "completed", "complete", "done", "finished", "passed"})
FUNCTION_NAME: Final = re.compile(r"[\w./:@-]{1,120}(?:<\|channel\|>\w{1,20})?")  # a harmony channel may follow
CALLED: Final = re.compile(r"\s*([A-Za-z_][\w.-]{0,80})\s*[\[({](.*)[\])}]\s*", re.DOTALL)
OPENED: Final = re.compile(r"\s*([A-Za-z_][\w-]{0,80})\[")
WRITTEN: Final = ("name", "tool_call_id", "status")
KINDS: Final = frozenset({"function", "text", "message", "object", "tool", "image", "system", "user", "assistant"})
"""What a `type` says of an entry in a list of calls that is no tool's name."""
NAMELESS: Final = frozenset({"unknown", "none", "null", "na"})  # what loggers write where they do not know a name
MAX_MEMBERS: Final = 200  # of an object that are looked at


@lru_cache(maxsize=4096)
def plain_key(key: str) -> str:
    """Return a name without its spelling."""
    return re.sub(r"[^a-z0-9]", "", key[:80].lower())


def parts_of(found: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """Return the members of an object that hold something, with their own names, by their plain ones."""
    parts: dict[str, tuple[str, Any]] = {}
    for key, value in found.items():
        if len(parts) >= MAX_MEMBERS:
            break
        if value is not None and isinstance(key, str):
            parts.setdefault(plain_key(key), (key, value))
    return parts


Parts = dict[str, tuple[str, Any]]


@dataclass
class Uses:
    """Which names were taken for what, and how often something was only inferred."""

    taken: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    inferred: int = 0
    read: int = 0

    def take(self, part: str, key: str) -> None:
        """Count that a name was taken for a part."""
        self.taken[part][key] += 1


def first(parts: Parts, names: tuple[str, ...]) -> tuple[str, Any] | None:
    """Return the name and the value of the first part there is."""
    return next((parts[name] for name in names if name in parts), None)


def named_call(parts: Parts, uses: Uses) -> list[Message]:
    """Return the call of a message that names one tool beside its text."""
    named = first(parts, ("toolname", "tool", "functionname", "function"))
    if named is None or not isinstance(named[1], str) or not FUNCTION_NAME.fullmatch(named[1]):
        return []
    given = first(parts, ARGUMENTS)
    uses.take("tool", named[0])
    arguments = None if given is None else _arguments(given[1])
    return [{"id": None, "type": "function", "function": {"name": named[1], "arguments": arguments}}]


def call_in(found: Any, uses: Uses, *, listed: bool = False) -> Message | None:
    """Return the call that an object asks for, in the common shape, with its `result` where the object has it."""
    if not isinstance(found, dict):
        return None
    parts = parts_of(found)
    inner = next((parts[name][1] for name in ("function", "toolcall", "functioncall", "call") if name in parts
                  and isinstance(parts[name][1], dict)), None)  # fmt: skip
    held = parts | parts_of(inner) if inner is not None else parts
    named = next(
        (held[name] for name in NAME if name in held and isinstance(held[name][1], str)
         and FUNCTION_NAME.fullmatch(held[name][1].strip())), None,
    )  # fmt: skip
    if named is None and listed and isinstance(found.get("type"), str) and "content" not in held:  # {type: click, ...}
        named = (
            ("type", found["type"]) if FUNCTION_NAME.fullmatch(found["type"]) and found["type"] not in KINDS else None
        )
    if named is None:
        return None
    given = next((held[name] for name in ARGUMENTS if name in held and held[name][0] != named[0]), None)
    came = next((held[name] for name in RESULT if name in held and held[name] is not given
                 and held[name][0] != named[0]), None)  # fmt: skip
    if given is None and plain_key(named[0]) in PLAIN and (found_in := first(held, CAME)) is not None:
        given, came = next(((key, {key: value}) for name in ASKED_FOR if name in held for key, value in [held[name]]),
                           None), came or found_in  # fmt: skip
    if _is_definition(held, given, came):
        return None
    identity = next((label for name in IDENTITY if name in held and (label := as_label(held[name][1]))), None)
    plain = plain_key(named[0]) in PLAIN
    failed = failure_of(held)
    if not (listed or (plain and (given or came or failed is not None)) or (given and came)):
        return None
    if listed and not plain and given is None and came is None and identity is None and len(held) > 2:
        return None
    uses.take("tool", named[0])
    if given is not None:
        uses.take("arguments", given[0])
    arguments = None if given is None else _arguments(given[1])
    name: str | None = named[1].strip()
    name = None if plain_key(str(name)) in NAMELESS else name
    call: Message = {
        "id": identity,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }
    if came is not None or (failed is not None and not isinstance(failed, str)) or isinstance(failed, str):
        if came is not None:
            uses.take("result", came[0])
        call["result"] = _unwritten({"role": "tool", "tool_call_id": identity, "name": named[1].strip(),
                                     "content": came[1] if came else (failed if isinstance(failed, str) else ""),
                                     **({} if failed is None else {"error": failed})})  # fmt: skip
        if written := call["result"].pop("written", None):
            call["function"]["name"] = name or written
    return call


def _arguments(given: Any) -> Any:
    return given if isinstance(given, str | dict | list) else as_text(given)


def _is_definition(parts: Parts, given: Any, came: Any) -> bool:
    """Return whether an object defines a tool: its parameters are a schema, or only described."""
    schema = dict_of(given[1]) if given is not None else {}
    if schema.get("type") == "object" or "properties" in schema:
        return True
    described = "description" in parts or "descriptionformodel" in parts
    return described and came is None and (given is None or plain_key(given[0]) in ("parameters", "params", "inputs"))


def failure_of(parts: Parts) -> bool | str | Message | None:
    """Return whether a call failed, or with what; None where nothing says so."""
    names = ("iserror", "failed", "haserror", "isfailed", "errored", "error")
    flags = [parts[name][1] for name in names if name in parts and isinstance(parts[name][1], bool)]
    if True in flags:
        return True
    error = next(
        (parts[name][1] for name in ("error", "toolerror", "errormessage", "errormsg", "exception") if name in parts),
        None,
    )
    if isinstance(error, str | dict) and error:
        return error if isinstance(error, str) else {"message": as_text(error.get("message", error)),
                                                     "type": as_name(error.get("type"))}  # fmt: skip
    for name in ("success", "ok", "succeeded", "issuccess", "successful"):
        if name in parts and isinstance(parts[name][1], bool):
            return not parts[name][1]
    status = parts["status"][1] if "status" in parts else None
    said = plain_key(status) if isinstance(status, str) else ""
    if said in FAILURES or said in SUCCESSES:
        return said in FAILURES
    code = next((parts[name][1] for name in ("exitcode", "returncode") if name in parts), None)
    return code != 0 if type(code) is int else False if flags else None


def _unwritten(result: Message) -> Message:
    """Take apart a result that is a LangChain message as Python writes it out: `content='...' name='...' ...`."""
    text = result.get("content")
    if not isinstance(text, str) or not text.startswith(("content='", 'content="')):
        return result
    fields = {name: found for name in WRITTEN if (found := _written(text, name))}
    if not fields:
        return result
    end = min(text.rfind(f" {name}='") for name in fields)
    told = {"content": text[len("content='") : end - 1]}
    with suppress(ValueError, SyntaxError, MemoryError), catch_warnings(action="ignore"):
        told = {"content": str(literal_eval(text[len("content=") : end]))}
    if "name" in fields:
        told |= {"name": fields["name"], "written": fields["name"]}
    if "tool_call_id" in fields and not result.get("tool_call_id"):
        told["tool_call_id"] = fields["tool_call_id"]
    return result | told | ({"error": True} if fields.get("status") == "error" else {})


def _written(text: str, name: str) -> str:
    """Return the last field of a name in an object that Python wrote out."""
    _, found, rest = text.rpartition(f" {name}='")
    return rest.partition("'")[0] if found else ""


def result_told(message: Message, parts: Parts) -> Message:
    """Return a result with what its object says of the call and how it went."""
    identity = next((label for name in IDENTITY[:-1] if name in parts and (label := as_label(parts[name][1]))), None)
    named = next((parts[name][1] for name in ("toolname", "name", "functionname", "tool") if name in parts
                  and isinstance(parts[name][1], str) and FUNCTION_NAME.fullmatch(parts[name][1])), None)  # fmt: skip
    failed = failure_of(parts)
    content = message.get("content")
    if isinstance(content, list) and not all(isinstance(part, dict) and "text" in part for part in content):
        content = as_text(content)
    told = _unwritten(
        message
        | {"role": "tool", "content": content}
        | ({"tool_call_id": identity} if identity else {})
        | ({"name": named} if named else {})
        | ({} if failed is None else {"error": failed})
    )
    told.pop("written", None)
    return told


def action_call(text: str, parts: Parts, uses: Uses) -> Message:
    """Return the call that an action's text asks for: `tool[...]`, `tool(...)`, its name beside an input, a command."""
    given = first(parts, ("actioninput", "toolinput", "actionargs", "arguments", "args", "input"))
    written = CALLED.fullmatch(text) if len(text) < 100_000 else None
    opened = written is None and OPENED.match(text)  # its bracket may be lost, or text follow it
    words = text.split(None, 1)
    if given is not None and FUNCTION_NAME.fullmatch(text.strip()):
        uses.take("arguments", given[0])
        name, arguments = text.strip(), _arguments(given[1])
    elif written is not None:
        name, arguments = written[1], written[2]
    elif opened:
        name, arguments = opened[1], text[opened.end() :]
    else:
        name, arguments = words[0][:120], words[1] if len(words) > 1 else ""
    return {"id": None, "type": "function", "function": {"name": name, "arguments": arguments}}
