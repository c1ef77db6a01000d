"""Names of the parts of a trace, and what an object under them tells: an act of the agent, or of what answers it."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from ptt.diagnostics.definitions import compiled, dataclass
from ptt.diagnostics.parsers.io.message_shapes import ROLES as COMMON_ROLES
from ptt.diagnostics.parsers.io.message_shapes import decoded
from ptt.diagnostics.parsers.io.named_parts import Message, Parts, Uses, call_in

ROLE: Final = ("role", "from", "speaker", "sender", "author", "messagerole", "rolename", "speakerrole", "senderrole",
              "sendertype", "speakertype", "actor", "who", "source", "agent", "node",
               "type")  # fmt: skip
TEXT: Final = ("content", "text", "value", "message", "body", "utterance", "msg", "response", "reply", "output",
               "answer", "completion", "llmoutput", "modeloutput", "rawoutput", "generation", "answertext",
               "finalanswer", "finalresponse", "rawllmoutput", "llmresponse", "rawresponse")  # fmt: skip
OBSERVED: Final = ("observation", "observations", "toolresult", "tooloutput", "toolresponse", "envresponse",
                   "environmentresponse", "toolresults", "toolresponses", "toolcallresults", "functionresults",
                   "result", "results", "feedback", "output", "nextstate", "nextobservation", "nextobs", "newstate",
                   "obs", "state", "executionresult", "executionresults")  # fmt: skip
"""What came back in a step, beside what was done."""
AGENT: Final = ("agent", "agentname", "agentrole")
GIVEN: Final = ("task", "input", "instruction", "question", "query", "prompt", "description")
PUT_OUT: Final = ("output", "response", "result", "answer", "raw", "message", "content")
"""What a named agent was asked to do, and what came of it."""
CALLS: Final = ("toolcalls", "toolcall", "functioncalls", "functioncall", "tooluses", "tooluse", "calls", "actions",
                "action")  # fmt: skip
THOUGHT: Final = ("reasoningcontent", "reasoning", "thought", "thoughts", "thinking", "rationale", "think")
ACTED: Final = ("action", "toolcalls", "toolcall", "actions", "functioncall", "functioncalls", "act")
"""What the agent did in a step."""
DESCRIBED: Final = compiled(r"[A-Z][a-z]+(?:ing|ed) \S.*|[A-Z][^\n]{20,}[.]\s*", re.DOTALL)
"""An action told in a sentence to the reader, not in a command to the environment."""
UNDONE: Final = ("next", "planned", "suggested", "recommended", "proposed", "expected", "previous", "last")
"""How names of actions begin that are not those of the step."""
SAID: Final = (
    "response",
    "llmoutput",
    "modeloutput",
    "modelresponse",
    "llmresponse",
    "rawresponse",
    "rawllmoutput",
    "text",
    "content",
)
"""What the agent said in a step."""
ASKED: Final = ("userinput", "usermessage", "userquery", "usercontent", "user", "input", "query", "question", "prompt")
ANSWERED: Final = ("agentresponse", "assistantresponse", "agentanswer", "airesponse", "botresponse", "assistantmessage",
                   "agentoutput", "assistant", "agentmessage", "finalresponse")  # fmt: skip
"""A question and the agent's answer in one object."""
KIND: Final = (
    "eventtype",
    "event",
    "type",
    "kind",
    "say",
    "ask",
    "category",
    "steptype",
    "messagetype",
    "spantype",
    "stepkind",
    "entrytype",
    "eventkind",
    "turntype",
    "recordtype",
    "name",
)
TIME: Final = ("timestamp", "time", "createdat", "ts", "starttime", "datetime", "date")
INNER: Final = ("message", "data", "payload", "event", "item", "entry", "record", "msg", "details", "kwargs", "content",
                "raw", "body", "toolcall", "call", "toolresult", "toolresponse", "attributes")  # fmt: skip
"""Where an object that says nothing itself holds what does."""
LOGGED: Final = frozenset({"level", "levelname", "loglevel", "logger"})
"""Parts of a log line, whose message its program writes."""
WORKERS: Final = frozenset({"worker", "subagent", "tool", "skill"})
WORKER: Final = ("toolname", "tool", "workername", "worker", "skill", "node", "name", "agent")
"""What a log line tells of the start and the end of, and where it names it."""
SPAN_TIMES: Final = frozenset({"starttime", "endtime", "startedat", "duration", "durationms", "starttimeunixnano"})
"""Parts of a span, which is not read here."""
MODEL_OUTPUT: Final = ("output", "outputs", "response", "completion", "generation")
REQUEST: Final = ("prompts", "prompt", "messages", "input", "inputs", "request")
ROLES: Final = COMMON_ROLES | {
    "agent": "assistant", "llm": "assistant", "assistantmessage": "assistant", "aimessage": "assistant",
    "policy": "assistant", "chatgpt": "assistant", "claude": "assistant", "gemini": "assistant", "ai_agent":
    "assistant", "assistant_agent": "assistant", "usermessage": "user", "humanmessage": "user", "customer": "user",
    "client": "user", "prompter": "user", "user_proxy": "user", "userproxy": "user", "user_simulator": "user",
    "toolmessage": "tool", "functionmessage": "tool", "environment": "tool", "env": "tool", "executor": "tool",
    "tools": "tool", "api": "tool", "systemmessage": "system",
}  # fmt: skip
ACTS: Final = frozenset({"tool", "tools", "function", "action", "command", "mcp", "skill", "toolkit"})
MODELS: Final = frozenset({"assistant", "ai", "llm", "model", "agent", "chat", "generation", "bot", "completion"})
STARTS: Final = frozenset({"call", "calls", "use", "start", "started", "request", "requested", "invoke", "invoked",
                           "invocation", "begin", "input", "calling"})  # fmt: skip
ENDS: Final = frozenset({"result", "results", "end", "ended", "response", "output", "execution", "executed", "complete",
                         "completed", "finish", "finished", "return", "returned", "observation", "done", "error",
                         "failed", "success"})  # fmt: skip
SAYS: Final = frozenset({"end", "ended", "response", "message", "output", "complete", "completed", "answer", "reply",
                         "text", "finish", "finished", "result", "generated", "final"})  # fmt: skip
FINAL: Final = frozenset({"final", "answer", "response", "reply"})
"""Words of a kind of event that is what the agent says to the user in the end."""
RUNNERS: Final = frozenset({"terminal", "executor", "interpreter", "sandbox", "console", "environment"})
"""Words in the names of speakers that run what agents write."""
PARTIAL: Final = frozenset({"delta", "chunk", "partial", "stream", "token", "heartbeat", "usage"})
WORDS: Final = compiled(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
CUT_CALL: Final = compiled(r"\s*\{'name': '([\w.:/-]{1,120})', 'arguments': ")
MAX_ACTION: Final = 100_000  # characters of an action's text that may be a call
MAX_DEPTH: Final = 4  # of objects that hold what an event says


@dataclass(frozen=True, kw_only=True)
class Act:
    """One thing that an object tells. `event`: what its writer calls it.

    `kind`: say (a message), call, result, or answer, which is a result only where a call with its id was heard.
    """

    kind: str
    message: Message
    event: str = ""


def words_of(kind: str) -> frozenset[str]:
    """Return the words of an event's kind in small letters."""
    return _words(kind[:80])


@lru_cache(maxsize=4096)
def _words(kind: str) -> frozenset[str]:
    return frozenset(word.lower() for word in WORDS.findall(kind))


def event_of(parts: Parts) -> str:
    """Return what an object says of what kind it is; empty where it does not."""
    for name in KIND:
        if name in parts and isinstance(parts[name][1], str):
            return str(parts[name][1])[:80]
    return ""


def role_of(parts: Parts) -> tuple[str, str] | None:
    """Return the name of the part that names a known speaker, and the speaker."""
    for name in ROLE:
        if name not in parts:
            continue
        key, value = parts[name]
        if isinstance(value, dict):
            value = next((value[inner] for inner in ("role", "name", "label", "Label") if inner in value), None)
        if isinstance(value, str) and (role := ROLES.get(value.lower().rpartition(".")[2])):
            return key, role
    return None


def calls_listed(parts: Parts, uses: Uses, event: str) -> list[Message]:
    """Return the calls that a message or step lists."""
    for name in CALLS:
        if name not in parts:
            continue
        key, value = parts[name]
        value = decoded(value)
        listed = value if isinstance(value, list) else [value]
        calls = [call for entry in listed if (call := call_in(decoded(entry), uses, listed=True)) is not None]
        if calls:
            uses.take("calls", key)
            return calls
    listed = parts["content"][1] if "content" in parts and isinstance(parts["content"][1], list) else []
    asks = listed and all(isinstance(entry, dict) and {"name", "arguments"} <= entry.keys() for entry in listed)
    if asks or (listed and "tool" in {w.rstrip("s") for w in words_of(event)}):  # AutoGen's content is its calls
        return [c for entry in parts["content"][1] if (c := call_in(entry, uses, listed=True)) is not None]
    return []


def result_of(call: Message, event: str) -> list[Act]:
    """Return what came of a call that holds its result."""
    result = call.pop("result", None)
    return [] if result is None else [Act(kind="result", message=result, event=event)]
