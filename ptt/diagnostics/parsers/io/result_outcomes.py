"""What the result of a tool call says about its outcome: in codes and fields of its own, or in words.

Only the tool's own wrapper is read: how a result begins, its first and last lines, and the fields of an object. A log,
a page or a file that speaks of errors is an answer. A tool that reads or searches says that it failed in a few lines;
what it gives back beyond them is foreign. Of a tool that runs code, what shells and interpreters print counts too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final
from warnings import catch_warnings
from zlib import crc32

from ptt.diagnostics.definitions import compiled
from ptt.diagnostics.parsers.io.answer_texts import is_empty_result
from ptt.diagnostics.parsers.io.lines import parse_json
from ptt.diagnostics.parsers.io.values import as_hash, as_plain_number
from ptt.diagnostics.schema import CODED, PRINTED, WORDED

READS, RUNS, LOOKS, ACTS = "reads", "runs", "looks", "acts"  # what gives a result back; LOOKS: a command that reads
HEAD_CHARS: Final = 600  # of a result, in which its wrapper begins
TAIL_CHARS: Final = 400  # in which it ends
OBJECT_CHARS: Final = 200_000  # of a result that is parsed as an object: beyond, its fields are not looked at
CLOSING_CHARS: Final = 40  # in which what stands around a result ends
SPELT_CHARS: Final = 20_000  # of one in Python's spelling
SHORT_CHARS, SHORT_LINES = 600, 8  # of what a reading tool says itself; more is what it read
SENTENCE_CHARS: Final = 300  # of an answer that is one sentence
SHELL_LINES: Final = 4  # of output that is nothing but a shell's complaint
NOT_THERE: Final = 1  # exit code of a command that looked for something and did not find it, which is an answer
HINT_CHARS: Final = 400  # of a result in which a word of failure may stand anywhere; a hint only
MAX_DEPTH: Final = 4  # wrappers in wrappers

NAME_WORD: Final = compiled(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_RUNNERS: Final = frozenset({
    "bash", "sh", "shell", "terminal", "exec", "execute", "run", "python", "ipython", "jupyter", "repl", "interpreter",
    "cmd", "powershell", "console", "sandbox", "code",
})  # fmt: skip
_READERS: Final = frozenset({
    "read", "view", "open", "cat", "grep", "rg", "glob", "find", "search", "ls", "list", "tree", "fetch", "browse",
    "browser", "visit", "crawl", "crawling", "scrape", "retrieve", "web", "page", "lookup", "query", "docs", "diff",
    "log", "logs", "show", "head", "tail",
})  # fmt: skip
"""Words in the names of tools."""
_READ_COMMAND: Final = compiled(
    r"(?:^|[;&|]\s*|\"\s*:\s*\"\s*(?:cd [^;&|]{1,200}&&\s*)?)(?:sudo\s+)?(?:cat|head|tail|less|more|[efz]?grep|rg|ag|"
    r"awk|sed\s+-n|find|tree|git\s+(?:log|show|diff|grep|blame)|journalctl|dmesg|strings|xxd|jq|nl|zcat|"
    r"(?:docker|kubectl)\s+logs|curl|wget)\b"
)
_ANSI: Final = compiled(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
_NOISE: Final = compiled(
    r"(?:bash: (?:cannot set terminal process group|no job control)[^\n]*\n"
    r"|<(?:tool_response|tool_result|function_results?|result|output|response|observation)>\s*|```(?:json)?\s*\n"
    r"|# \w{1,40} = (?=[\"'{\[])"
    r"|\{\"name\": ?\"[^\"\n]{1,80}\", ?\"(?:arguments|parameters)\": ?\{[^\n]{0,400}\}\}\n(?=\S)"  # the call
    r"|(?:OBSERVATION|Observation|Tool (?:result|output|response)|Output|Result|Response|Stderr|STDERR)\s*:\s+"
    r"|EXECUTION RESULT of \[[^\]\n]{1,80}\]:\s*)+"
)
"""What stands before the result itself."""
_CLOSING: Final = compiled(r"\s*(?:```|</\w{1,30}>)\s*\Z")
_DECOR: Final = r"[\s\[(*#_`\"'>!-]{0,12}(?:[❌✗✖🚫⛔⚠🔴]\ufe0f?)?[\s\[(*#_`\"']{0,6}"
_NO_VALUE: Final = (
    r"(?!\s*(?:(?:none|null|false|no|n/a|\(none\)|0)\s*(?:$|[\n.,])"
    r"|(?![45]\d\d\s*$)[-+]?\d*\.?\d+(?:e[-+]?\d+)?\s*(?:%|,|\n|$)))"
)
"""Not that there is none, and no number that a program prints: `error: 0.03`."""
_DOING: Final = (
    r"(?:executing|calling|running|invoking|while|during|occurred|when|processing|reading|writing|fetching|loading|"
    r"opening|parsing|creating|getting|searching|connecting|accessing|editing|applying|performing|validating|"
    r"retrieving|sending|making|decoding|updating|deleting|from|trying|attempting|code)\b"
)
_WHAT: Final = (
    r"(?:tool|function|command|execution|process|script|code|python|bash|shell|request|query|search|operation|api|"
    r"server|runtime|call|validation|input|network|connection|mcp|http|internal|system|syntax|compilation|build)"
)
_MACHINERY: Final = (
    r"<(?:tool_use_error|tool_error)\b|mcp\s+error\s+-\d{3,5}\b|input\s+validation\s+error\s*:"
    r"|error\s+(?:executing|calling|invoking)\s+(?:(?:the\s+)?(?:tool|function)\s+)?['\"`]?[\w./:-]{1,80}['\"`]?\s*:"
    r"|invalid\s+(?:arguments?|parameters?|input)\s+for\s+(?:the\s+)?(?:tool|function)\b"
    r"|\d{1,4}\s+validation\s+errors?\s+for\s+\w|(?:search|query|request|fetch)\s+failed\s+for\s[^\n]{1,300}:"
)
"""How what calls the tools begins when it, not the tool, answers."""
_PAGE: Final = r"(?:<!doctype[^>]{0,100}>\s*)?<html[^>]{0,200}>[^\n]{0,200}?<title>\s*"
_WRAPPER: Final = compiled(
    _DECOR + "(?:" + "|".join((
        _MACHINERY,
        r"<(?:error|exception)\b",
        rf"(?:fatal\s+)?(?:error|panic|exception)\s*(?:[:–—]|-\s){_NO_VALUE}",
        rf"error\s*(?:[(\[](?:code|errno|-?\d)|[45]\d\d\b|{_DOING})",
        r"exception\s+(?:occurred|in\b)|traceback\s*\(most\s+recent\s+call",
        r"(?:an?|the)\s+(?:\w+\s+){0,3}(?:error|exception)\s+(?:has\s+)?(?:occurred|was\s+(?:raised|thrown)|happened)",
        r"there\s+(?:was|were|has\s+been)\s+(?:an?\s+)?(?:\w+\s+){0,2}(?:errors?|problem)\b|something\s+went\s+wrong",
        rf"(?:(?:the|this)\s+)?{_WHAT}\s+(?:[\w'\"`./:-]{{1,60}}\s+){{0,4}}?(?:error|errored|failed|failure|exception|"
        r"timed\s+out|timeout|aborted|refused|rejected|denied|cancell?ed)\s*"
        rf"(?:[:!.(,;-]|$|(?:with|to|because|due|after|while|when|at|by)\b){_NO_VALUE}",
        rf"(?:the\s+)?(?:last\s+|previous\s+)?{_WHAT}\b[^\n]{{0,200}}?\b"
        r"(?:timed\s+out|(?:was|has\s+been)\s+(?:killed|cancell?ed|interrupted|rejected|aborted|denied))\b",
        rf"{_WHAT}\s+(?:was\s+)?not\s+(?:executed|run|allowed|approved|permitted)\b",
        r"(?:request\s+)?(?:interrupted|cancell?ed|aborted|rejected|denied)\s+by\s+(?:the\s+)?user\b",
        _PAGE + r"(?:[45]\d\d\b|forbidden|error|not\s+found|access\s+denied|unauthori[sz]ed|bad\s+(?:gateway|request)"
        r"|service\s+unavailable|internal\s+server)",
        r"http(?:/[\d.]+)?\s*(?:error|status)?\s*(?:code)?\s*:?\s*[45]\d\d\b",
        r"(?:sql|database|db|pars(?:e|ing)|auth\w{0,12}|permission|file|schema|format|service|client|upstream|"
        rf"provider)\s+(?:error|exception)\s*[:(]{_NO_VALUE}",
        r"(?:[a-z]+\s+){0,4}status\s+(?:code\s*)?:?\s*[45]\d\d\b",
        r"[45]\d\d\s+(?:client|server|bad|unauthorized|forbidden|not found|internal|gateway|service|too many|error)\b",
        r"[^\s:]{0,60}:?\s*net::err_|cmake\s+error\s+at\s|npm\s+err!\s",
        r"permission\s+denied|access\s+(?:to\s+[^\n]{1,100}?\s+)?(?:is\s+|was\s+)?denied|unauthori[sz]ed\b|forbidden\b",
        r"rate\s+limit\s+(?:exceeded|reached|hit|error)|too\s+many\s+requests|quota\s+exceeded",
        r"internal\s+server\s+error|bad\s+(?:gateway|request)|gateway\s+time-?out|service\s+unavailable",
        r"connection\s+(?:refused|reset|closed|aborted)|timed?\s*-?out\b(?!\s*=)|segmentation\s+fault|out\s+of\s+memory",
        r"(?:unknown|unsupported|unrecogni[sz]ed|no\s+such)\s+(?:tool|function|command|action|file|directory|method)\b",
        r"your\s+(?:\w+\s+){1,3}?(?:has|had|was|were|is|could|contains?|failed|caused|produced|must|cannot)\b"
        r"[^\n]{0,60}?\b(?:errors?|not|invalid|failed|rejected|denied|cancell?ed|blocked)\b",
        r"(?:the\s+)?user\s+(?:denied|rejected|cancell?ed|declined|refused|does\s*n[o']t\s+want|did\s+not\s+approve)\b",
        r"invalid\s+(?:argument|parameter|input|json|tool\s+call|function\s+call)s?\b|missing\s+(?:\d+\s+)?required\b",
    )) + ")",
    re.I,
)  # fmt: skip
"""How a result begins that a tool's wrapper, a server or a client wrote in place of an answer."""
_CALLER: Final = compiled(_DECOR + f"(?:{_MACHINERY})", re.I)
_IDLE: Final = compiled(
    _DECOR + r"(?:there\s+(?:is|was|are|were)\s+)?no\s+(?:valid\s+|executable\s+){0,2}"
    r"(?:code(?:\s+blocks?)?|commands?|(?:tool|function)\s+calls?|actions?)\b[^\n.]{0,60}?\b"
    r"(?:to\s+(?:execute|run)|in\s+(?:your|the\s+last)\s+(?:\w+\s+)?(?:response|message|answer|output|reply))\b",
    re.I,
)
"""How an executor begins that was handed nothing to execute."""
_FOREIGN: Final = compiled(
    _DECOR + r"(?:(?:[^\s\d!-~：，。无無没沒未零常]{0,12}?"
    r"(?:失败|失敗|错误|錯誤|出错|出錯|超时|エラー|실패|오류|에러)|(?:系统|执行|请求|网络|服务|调用|运行|程序|发生)?异常)"
    rf"\s*[:：!！]|(?i:fehler|erreur|errore|erro|ошибка)(?:\s[^\n:]{{1,60}})?\s?:\s){_NO_VALUE}"
)  # fmt: skip
"""How a wrapper begins in other languages."""
_MCP: Final = compiled(
    r"(?:CallToolResult\()?(?:_?meta=(?:None|\{[^{}\n]{0,200}\}),? content=|content=)?"
    r"\[TextContent\(type='text', text=(?=['\"])"
)
"""How the result of an MCP server begins in Python's spelling."""
_MCP_TEXT_END: Final = {quote: compiled(quote + r"(?:, annotations=|\)[\],])") for quote in "'\""}
_MCP_VERDICT: Final = compiled(r"\bisError=(True|False)\b[\s)]*\Z")
_EXCEPTION: Final = compiled(
    _DECOR + r"(?:-{20,}\s*)?(?:(?:[a-zA-Z_]\w*\.){0,6}[A-Z]\w*(?:Error|Exception|Timeout|Interrupt)\b"
    r"(?:\s*[:(\n]|\s*$|\s+Trace)|(?:\w+\.){0,4}(?:errors?|exceptions?)\.\w+:\s|(?:Errno|WinError)\s*-?\d"
    r"|E[A-Z]{3,15}: )"
)
_UNABLE: Final = compiled(
    _DECOR + r"(?:(?:(?:sorry|i|we|the|this|tool|function|server|system|you|it|but|that)\b[\s,:]*){0,4}"
    r"(?:failed(?=\s+to\b|\s*[:!.,]|\s+with\b|\s*$)|unable\s+to\b|could\s*(?:not|n't)\b|can\s*(?:not|'t)\b"
    r"|was\s+not\s+able\b)(?!\s+(?:find|locate)\s+any)"
    r"|(?:failure|failed)\s*[:!]|(?:[\w'-]{1,40}\s+){1,3}failed\s*:\s"
    + _NO_VALUE
    + r"|invalid\b(?!\s+is\b)|insufficient\s"
    r"|not\s+(?:found|allowed|permitted|authori[sz]ed|supported|implemented)\b"
    r"|(?:unknown|unrecogni[sz]ed|unsupported|missing)\s+\w+|no\s+(?:replacement|edits?)\s+(?:was|were)\b)",
    re.I,
)
_ABSENT: Final = compiled(
    r"[^\n:{]{1,120}?\b(?:(?:was\s+|is\s+|are\s+|were\s+)?not\s+(?:found|supported|allowed|permitted|recogni[sz]ed|"
    r"defined|installed|implemented|a\s+valid)|do(?:es)?\s*(?:not|n't)\s+exist|(?:is|are)\s+(?:invalid|required)"
    r"|must\s+(?:be|have|contain|not)|(?:has\s+)?failed(?!\s*[:=]\s*(?:none|no|null|(?![45]\d\d\b)\d+)\b))\b",
    re.I,
)
"""In a sentence that is the whole answer."""
_GIVES_UP: Final = compiled(r"\s*(?:❌|[^\n:\d]{1,80}\bfailed\.?\s*(?:\n|\Z))")  # no program's words
_FOUND_NONE: Final = compiled(r"\W*(?:no(?!\s+such|\s+(?:replacement|edits?)\s+w)|0|zero|nothing|none|without)\b", re.I)
"""Begins an answer, not an error."""
_SHELL: Final = compiled(
    r"(?:[\w./+-]{1,80}: ){1,4}[^\n]{0,300}?(?:command not found|[Nn]ot found|No such file or directory|cannot access|"
    r"[Pp]ermission denied|Is a directory|Not a directory|can(?:not|'t) (?:open|stat|find|execute|remove|create)|"
    r"Operation not permitted|(?:invalid|unrecognized|illegal|unknown) (?:option|argument)|[Ss]yntax error|unexpected "
    r"(?:token|EOF)|bad interpreter|Connection refused|missing (?:file )?operand|Could not resolve host|password is)"
    r"|[^\n]{1,300}: (?:-c: )?line \d+:\s+(?:syntax error|unexpected|\d+ (?:Killed|Terminated|Aborted|Segmentation))"
    rf"|fatal: |E: |npm (?:ERR!|error)|make(?:\[\d+\])?: \*\*\*|(?:error|ERROR): {_NO_VALUE}|CMake Error"
    r"|[^\s:]{1,200}:\d+(?::\d+)?: (?:fatal )?error: |[^\n]{1,200} is not recognized as (?:an internal|the name)"
)
_SHELL_END: Final = compiled(
    r"E: |npm (?:ERR!|error)|make(?:\[\d+\])?: \*\*\* |error: (?:could not compile|aborting)|fatal: |Node\.js v\d"
    r"|[^\n]{0,80}errors? occurred!$|(?:\w+ ){0,3}TIMED OUT|BUILD FAILED|collect2: error"
)
_RAISED: Final = compiled(r"[A-Za-z_][\w.]{0,100}(?::\s|:?$)")  # how the last line of a traceback begins
_CODE_LINE: Final = compiled(
    r"^[\s\[(<*]{0,4}(?!exits? \d+ [a-z])"
    r"(?:(?:the |this )?(?:command|process|program|script|execution|shell|bash|cmd|code|job|child)\s+"
    r"(?:[a-z]+ ){0,3}?)?(?:exit(?:ed|s)?(?:\s+with)?(?:[\s_-]*(?:non-zero\s+)?(?:code|status))?|return[\s_-]?code)"
    r"\s*[:=>]{0,2}\s*\(?(-?\d{1,10})\b(?![.:]\d)",
    re.I | re.M,
)
"""A line that is an exit code: a bare `exit 57` before a word is prose, as a title or a road is."""
_VERDICT_CODE: Final = compiled(
    _DECOR + r"(?:\w+ ){0,3}fail(?:ed|ure)\s*\((?:rc|(?:exit|return)?[ _-]?(?:code|status))[=: ]{0,3}(-?\d+)\)", re.I
)
"""How a result begins that says it failed and gives the code in brackets."""
_PROSE: Final = compiled(r"\s+(?:and|but|or|so|because|since|which|that|who|while)\b")  # goes on: no error
_STEMS: Final = (
    "error", "fail", "not ", "n't", "nnot", "unable", "denied", "invalid", "unavail", "exceed", "time", "refused",
    "must", "try again", "unsupp", "required", "reject", "blocked", "expired",
)  # fmt: skip
"""One of these stands in every sentence that is read as a failure: what is searched first, since it is fast."""
_HINT: Final = compiled(
    r"\b(?:errors?|fail(?:ed|ure|s)?|unable|could ?n[o']t|cannot|can't|denied|invalid|unavailable|exceeded|timed? ?out|"
    r"refused|try again|not (?:found|allowed|supported|available|exist)|unsupported|rejected|blocked|expired)\b",
    re.I,
)
TRACEBACK: Final = "Traceback (most recent call last)"
FORM_CHARS: Final = 41  # that the form of a result is taken from
_FORM: Final = compiled(r"[^\W\d][^\d\"':/\\<>={}\n]{11,40}")
_FIELDS: Final = (
    "rror", "uccess\"", "uccess'", "ok\"", "ucceeded", "ailed\"", "timed_out", "xit_code", "xitcode", "xitCode",
    "eturn", "xit_status", "\"rc\"", "xception", "\"err\"",
)  # fmt: skip
"""Parts of the names of fields that say how a call went."""
_STATUS: Final = compiled(
    r"(?:tatus\w{0,5}|ode)['\"]:\s*['\"]?(?:[45]\d\d\b|err|exc|fail|tim|tool_|suc|ok\b|not)", re.I
)
_INSIDE: Final = compiled(
    r"[\s\[]{0,4}\{\s*['\"](?:\w{1,40}['\"]:\s*(?:\"[^\"]{0,80}\"|'[^']{0,80}'|[\d.]{1,20}|null|true|None|True)?\s*,"
    r"\s*['\"]){0,2}(?:result|output|content|response|data|text|message|detail|stderr|body)['\"]"
)

_EXITS: Final = ("exit_code", "exitcode", "returncode", "return_code", "exit_status", "rc")
_GOOD: Final = ("success", "ok", "succeeded", "successful", "issuccess", "is_success")
_BAD: Final = ("is_error", "iserror", "failed", "timed_out", "has_error", "haserror")
_ENVELOPE: Final = ("iserror", "is_error")
_CONTENTS: Final = ("content", "output", "result", "data")
_ERRORS: Final = ("error", "error_message", "errormessage", "err", "exception", "error_type")
_STATUSES: Final = ("status_code", "statuscode", "http_status", "httpstatus", "status", "code")
_INNER: Final = (
    "result", "output", "content", "response", "data", "text", "message", "detail", "stderr", "body", "metadata",
)  # fmt: skip
_FAILED_STATUS: Final = frozenset({"error", "errored", "exception", "tool_error"})
_PERHAPS_FAILED: Final = frozenset({"failed", "failure", "fail", "timeout", "timed_out"})  # may be what was asked about
_GOOD_STATUS: Final = frozenset({"success", "ok", "succeeded", "successful"})
_NOTHING: Final = frozenset({"", "none", "null", "false", "no", "n/a", "(none)", "0"})
_CUT: Final = compiled(r"\{\s*['\"](?:error|Error)['\"]\s*:(?!\s*(?:\"\"|''|null|None|\{\}|\[\]|[Ff]alse|0\b))")
"""How an object begins that says why it failed, where the rest of it is cut off."""
_EXIT_FIELDS: Final = frozenset({*_EXITS, "exitCode", "returnCode"})
_CODES: Final = _EXIT_FIELDS | {"status_code", "statusCode"}
_BESIDE: Final = _CODES | {*_GOOD, *_BAD, "isError", "status"}
"""Fields of a message with a result that may say how the call went; `error` is read as its writer's mark."""
SMALL_OBJECT: Final = 5  # keys of an object that only says how it went


def result_columns(text: str, tool: str | None, arguments: str | None) -> dict[str, Any]:
    """Return what the table of calls keeps of a result: its length and hashes, and what it says of the outcome."""
    failed, by = told_by_result(text, tool, arguments)
    ends = by == PRINTED and text.find(TRACEBACK) > FORM_CHARS  # how it begins tells nothing then
    form = None if ends else _FORM.match(_bare(text))
    return {
        "result_len": len(text),
        "result_hash": as_hash(text),
        "told_failed": failed,
        "told_by": by,
        "result_form": crc32(form[0].encode("utf-8", "replace")) if form else None,
        "result_hints": failed is None and len(text) <= HINT_CHARS and _hints_at_failure(text, tool or ""),
        "result_empty": is_empty_result(text),
    }


def _hints_at_failure(text: str, tool: str) -> bool:
    """Return whether a word of failure stands anywhere in a short result, or an answer is empty."""
    if not text.strip():
        return tool_kind(tool) != RUNS  # most commands say nothing if all went well
    return _holds(text.lower(), _STEMS) and _HINT.search(text) is not None


def told_by_result(text: str, tool: str | None, arguments: str | None) -> tuple[bool | None, str | None]:
    """Return whether a result says that its call failed, and by what it says so; None, None where it does not."""
    if not text:
        return None, None
    kind = _kind_of_call(tool, arguments)
    failed, by = _told(text, kind, 0)
    if failed is None and kind in (RUNS, LOOKS) and _is_shells(_bare(text)):
        return True, PRINTED
    return failed, by


def _kind_of_call(tool: str | None, arguments: str | None) -> str:
    kind = tool_kind(tool or "")
    return LOOKS if kind == RUNS and arguments and _READ_COMMAND.search(arguments[:HEAD_CHARS]) else kind


def told_by_fields(message: Mapping[str, Any], tool: str | None, arguments: str | None) -> bool | None:
    """Return whether fields beside a result say that its call failed, or an exit code that it did not; else None.

    A flag that was taken for its writer's mark is none of them.
    """
    if _BESIDE.isdisjoint(message):
        return None
    fields = _CODES if isinstance(message.get("error"), bool) else _BESIDE
    beside = {key: message[key] for key in fields & message.keys()}
    failed = _of_fields(beside, _kind_of_call(tool, arguments), MAX_DEPTH)[0]
    return failed if failed or not _EXIT_FIELDS.isdisjoint(beside) else None


@lru_cache(4096)
def tool_kind(tool: str) -> str:
    """Return what a tool does, by the words of its name: it runs commands, it reads, or it acts."""
    words = {word.lower() for word in NAME_WORD.findall(tool[:200])}
    return RUNS if words & _RUNNERS else READS if words & _READERS else ACTS


def _told(text: str, kind: str, depth: int) -> tuple[bool | None, str | None]:
    """Return what a text says, or one that an object or a wrapper holds."""
    text = _bare(text)
    head = text[:HEAD_CHARS]
    if "\x1b" in head:
        head = _ANSI.sub("", head).lstrip()
    if head.startswith(("{", "[")) and (found := _of_object(text, head, kind, depth))[0] is not None:
        return found
    if "TextContent(" in head and (begin := _MCP.match(head)) and depth < MAX_DEPTH:
        return _of_mcp(text, begin.end(), kind, depth)
    tail = text[-TAIL_CHARS:] if len(text) > HEAD_CHARS else ""
    if (code := _code_in(head, tail, kind)) is not None and (code != NOT_THERE or kind != LOOKS):
        return code != 0, CODED
    if kind in (READS, LOOKS) and (len(text) > SHORT_CHARS or text.count("\n") > SHORT_LINES):
        return (True, WORDED if kind == READS else PRINTED) if _CALLER.match(head) else (None, None)
    by = _words_in(head, text, kind)
    return (None if by is None else True), by


def _bare(text: str) -> str:
    """Return a result without what stands around it."""
    text = text.lstrip()
    if (noise := _NOISE.match(text)) is None:
        return text
    text = text[noise.end() :]
    closing = _CLOSING.search(text, max(0, len(text) - CLOSING_CHARS))
    return text[: closing.start()] if closing else text


def _of_mcp(text: str, begin: int, kind: str, depth: int) -> tuple[bool | None, str | None]:
    """Return what the result of an MCP server says: that it is an error, or what its first text says."""
    verdict = _MCP_VERDICT.search(text, max(0, len(text) - CLOSING_CHARS))
    if verdict is not None and verdict[1] == "True":
        return True, CODED
    end = _MCP_TEXT_END[text[begin]].search(text, begin + 1)
    inner = _literal(text[begin : end.start() + 1]) if end and end.start() - begin <= OBJECT_CHARS else None
    told = _told(inner if isinstance(inner, str) else text[begin + 1 :][:HEAD_CHARS], kind, depth + 1)
    return (False, CODED) if told[0] is None and verdict is not None else told


def _holds(text: str, parts: tuple[str, ...]) -> bool:
    return any(map(text.__contains__, parts))  # of every result; a generator takes twice as long


def _code_in(head: str, tail: str, kind: str) -> int | None:
    """Return the exit code that the first or the last lines of a result name."""
    if head.startswith(("<returncode>", "<exit_code>", "<exitcode>")):
        number = re.match(r"<\w+>\s*(-?\d{1,10})\s*</", head)
        return int(number[1]) if number else None
    if verdict := _VERDICT_CODE.match(head):
        return int(verdict[1])
    lines = head[:HEAD_CHARS].partition("\nOutput:\n")[0] if "\nOutput:\n" in head else head
    lowered = lines.lower()
    if "exit" in lowered or "return" in lowered:
        first = _CODE_LINE.search(lines if kind == RUNS else "\n".join(lines.split("\n", 3)[:3]))
        if first is not None:
            return int(first[1])
    if kind == ACTS or not tail or ("exit" not in (low := tail.lower()) and "return" not in low):
        return None
    ends = _CODE_LINE.findall("\n".join(tail.rstrip().split("\n")[-4:]))
    return int(ends[-1]) if ends else None


def _words_in(head: str, text: str, kind: str) -> str | None:
    """Return whose words tell that a call failed: a wrapper's, or what may be printed; None where none does."""
    if kind in (RUNS, ACTS) and _IDLE.match(head):
        return PRINTED
    if _FOUND_NONE.match(head):
        return None
    if _FOREIGN.match(head) or _WRAPPER.match(head) or _EXCEPTION.match(head):
        return WORDED if kind in (ACTS, READS) else PRINTED
    if kind == RUNS:
        if TRACEBACK not in text:
            return None
        last = text.rstrip()[-TAIL_CHARS:].rpartition("\n")[2]
        return PRINTED if _RAISED.match(last) else None
    if len(text) > SHORT_CHARS:
        return None
    short = len(text) <= SENTENCE_CHARS and _holds(head.lower(), _STEMS)
    absent = _ABSENT.match(head) if short else None
    if absent and kind in (READS, LOOKS) and (_PROSE.match(head, absent.end()) or head.rstrip().endswith(("...", "…"))):
        absent = None
    told = WORDED if kind in (ACTS, READS) and _GIVES_UP.match(head) else PRINTED
    return told if absent or _UNABLE.match(head) else None


def _is_shells(text: str) -> bool:
    """Return whether the output of a command is nothing but the complaint of a shell or a build tool, or ends so."""
    if len(text) > HEAD_CHARS:
        return False
    lines = [line for line in text.split("\n") if line.strip()]
    shown = len(lines) <= SHELL_LINES and any(map(_SHELL.match, lines))
    return shown or (bool(lines) and _SHELL_END.match(lines[-1]) is not None)


def _of_object(text: str, head: str, kind: str, depth: int) -> tuple[bool | None, str | None]:
    """Return what the fields of an object say, or of the only one in a list."""
    if depth >= MAX_DEPTH or len(text) > (OBJECT_CHARS if head[0] == "{" else HEAD_CHARS):
        return None, None
    ends = head if len(text) <= HEAD_CHARS else head + text[-TAIL_CHARS:]
    told = _holds(ends, _FIELDS) or (("tatus" in ends or "ode" in ends) and _STATUS.search(ends))
    if not told and _INSIDE.match(head) is None:
        return None, None
    found = _parsed(text.strip())
    if isinstance(found, list) and len(found) == 1:
        found = found[0]
    if isinstance(found, dict):
        return _of_fields(found, kind, depth)
    return (True, CODED) if found is None and _CUT.match(head) else (None, None)


def _parsed(text: str) -> Any:
    """Return the value that a text of JSON or of Python's own spelling holds; None where it holds none."""
    if (found := parse_json(text)) is not None or len(text) > SPELT_CHARS or "'" not in text:
        return found
    return _literal(text)


def _literal(text: str) -> Any:
    with suppress(ValueError, TypeError, SyntaxError, RecursionError, MemoryError), catch_warnings(action="ignore"):
        return ast.literal_eval(text)
    return None


def _of_fields(found: Mapping[Any, Any], kind: str, depth: int) -> tuple[bool | None, str | None]:
    fields = {str(key).lower().replace("-", "_"): value for key, value in found.items()}
    small = len(fields) <= SMALL_OBJECT
    exits = [code for key in _EXITS if (code := as_plain_number(fields.get(key))) is not None]
    flags = [not fields[key] for key in _GOOD if isinstance(fields.get(key), bool)]
    flags += [fields[key] for key in _BAD if isinstance(fields.get(key), bool)]
    if kind == LOOKS and exits == [NOT_THERE]:
        shown = (fields.get(key) for key in _INNER)
        return (True, CODED) if any(isinstance(text, str) and _is_shells(text) for text in shown) else (None, None)
    if any(exits) or any(flags):
        return True, CODED
    inner = _of_inner(fields, kind, depth) if small else (None, None)
    if exits or any(isinstance(fields.get(key), bool) for key in _GOOD):
        return (True, CODED) if not exits and _outweighs(inner, kind) else (False, CODED)
    told = [fields[key] for key in _ERRORS if key in fields]
    empty = any(fields[key] in ("", None, []) for key in _CONTENTS if key in fields)  # it read nothing
    plain = small or empty or kind not in (READS, LOOKS) or _is_error(fields.get("error_type", ""))
    if plain and any(map(_is_error, told)):
        return True, CODED
    errors = fields.get("errors")
    if isinstance(errors, list) and errors and len(fields) <= 2:
        return True, CODED
    statuses = [fields[key] for key in _STATUSES if key in fields]
    if (status := _of_statuses(statuses, fields, small)) is not None:
        return status or _outweighs(inner, kind), CODED
    settled = told or any(isinstance(fields.get(key), bool) for key in _ENVELOPE)
    return (False, CODED) if settled and inner[0] is None else inner


def _outweighs(inner: tuple[bool | None, str | None], kind: str) -> bool:
    """Return whether what an object holds says that a call failed though the object calls it good: it only ran."""
    return kind == ACTS and inner[0] is True and inner[1] != PRINTED


def _is_error(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip().lower() not in _NOTHING
    return value is True or (bool(value) and not isinstance(value, int | float))


def _of_statuses(statuses: list[Any], fields: Mapping[str, Any], small: bool) -> bool | None:
    for status in statuses:
        if isinstance(status, int) and not isinstance(status, bool) and 400 <= status < 600:
            return True
        word = status.lower() if isinstance(status, str) else ""
        if word in _FAILED_STATUS or (
            word in _PERHAPS_FAILED and small and (len(fields) == 1 or {"message", "reason", "note"} & fields.keys())
        ):
            return True
        if word in _GOOD_STATUS:
            return False
    return None


def _of_inner(fields: Mapping[str, Any], kind: str, depth: int) -> tuple[bool | None, str | None]:
    """Return what an object inside another says, or its text."""
    for key in _INNER:
        value = fields.get(key)
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if isinstance(value, dict) and depth < MAX_DEPTH:
            told = _of_fields(value, kind, depth + 1)
        elif isinstance(value, str) and value:
            told = _told(value, kind, depth + 1)
        else:
            continue
        if told[0] is not None:
            return told
    return None, None
