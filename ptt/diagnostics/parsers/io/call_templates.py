"""The templates in which models write calls of tools into their text, each read by its own grammar.

A call is malformed only where the parser of that template would refuse it. Held against vLLM's
vllm/entrypoints/openai/tool_parsers/ (hermes: 0085432; llama: 02de3de; mistral: 021235c; deepseekv3: 061b11d;
glm4_moe: 0241e7d; kimi_k2: 03d5dc9; qwen3coder: 0054011; phi4mini: 0a426f5; pythonic), SGLang's
python/sglang/srt/function_call/ (qwen25_detector: 0813438, base_format_detector, llama32_detector), Qwen-Agent's
qwen_agent/llm/fncall_prompts/ (nous: 06a1904, whose json5 takes single quotes; qwen: 2f7415f), veRL's
verl/experimental/agent_loop/tool_parser.py (08cccde), slime's examples/retool/generate_with_retool.py (300d14c, which
takes line breaks inside texts), and for the tags `<search>` and `<code>` on Search-R1's and ReTool's loops.
Where two parsers of one template differ, the one that takes more is followed.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from ptt.diagnostics.definitions import compiled, dataclass
from ptt.diagnostics.parsers.io.call_values import (
    CODE,
    DECODER,
    INPUT,
    NAME_CHARS,
    PLAIN_NAME,
    QUERY,
    Asked,
    argument,
    calls_in,
    python_calls,
    unfenced,
    values_of,
    whole_json,
    with_arguments,
)


@dataclass(frozen=True, kw_only=True)
class Found:
    """The calls of one place in a text. `needs`: what must prove that they are calls, "" where they are by themselves.

    ANSWER: that a result follows. Anything else is a tag, proven where one of its calls has an answer; of code fences
    only the last one of a conversation needs none of its own then.
    """

    start: int
    end: int
    asked: tuple[Asked, ...]
    needs: str = ""
    results: tuple[str, ...] = ()  # that follow at once


ANSWER, BLOCK, STEP_TAG, NAMING = "answer", "```", "action", "<name>"
"""All but the first are tags: a code fence, a line of ReAct, and a tag around a tool's name."""


# Openings of calls, of thoughts and of code: what a text is scanned for. Each name is a reader's.
CLOSERS: Final = {
    "<tool_call>": "</tool_call>", "<tool_calls>": "</tool_calls>", "<toolcall>": "</toolcall>",
    "<TOOLCALL>": "</TOOLCALL>", "<function_call>": "</function_call>", "<functioncall>": "</functioncall>",
    "<function_calls>": "</function_calls>", "<|tool_call|>": "<|/tool_call|>", "<|tool_call>": "<tool_call|>",
    "<|tool_call_start|>": "<|tool_call_end|>", "<|START_ACTION|>": "<|END_ACTION|>",
    "<|action_start|><|plugin|>": "<|action_end|>", "<start_function_call>": "<end_function_call>",
    "<|START_OF_FUNCTION_CALL|>": "<|END_OF_FUNCTION_CALL|>",
}  # fmt: skip
TEXT_TAGS: Final = {
    "search": QUERY, "query": QUERY, "python": CODE, "code": CODE, "sql": CODE, "bash": CODE, "execute": CODE,
    "execute_bash": CODE, "execute_ipython": CODE, "tool": INPUT, "browse": INPUT, "access": INPUT, "lookup": INPUT,
}  # fmt: skip
"""Tags around a text that an environment takes; they are calls only where it answered one."""
LANGUAGES: Final = frozenset(
    {"python", "py", "bash", "sh", "shell", "sql", "tool_code", "json", "xml", "mswea_bash_command"}
)
OPEN: Final = compiled(
    r"(?P<thinks><(?P<ends>/?)(?:think|thinking|reasoning|scratch_pad)>)"
    r"|(?P<fenced>```[ \t]*(?P<language>[\w.-]{0,30})[^\n`]{0,80}\n)"
    rf"|(?P<tagged>{'|'.join(map(re.escape, CLOSERS))})"
    r"|(?P<function><function=(?P<of_function>[^<>\n]{1,200})(?:>|\Z))"
    r"|(?P<invoke><(?P<space>(?:\w{1,20}:|｜DSML｜)?)invoke name=\"(?P<of_invoke>[^\"<>\n]{1,200})\"[^<>\n]{0,80}>)"
    r"|(?P<python_tag><\|python_tag\|>)"
    r"|(?P<mistral>\[TOOL_CALLS\])"
    r"|(?P<deepseek><｜tool▁call▁begin｜>)"
    r"|(?P<kimi><\|tool_call_begin\|>)"
    r"|(?P<harmony>(?:<\|start\|>assistant)?<\|channel\|>[^<\n]{0,60} to=[^<\n]{1,200}"
    r"(?:<\|constrain\|>\w{1,20})?<\|message\|>)"
    r"|(?P<phi>\bfunctools(?=\[))"
    r"|(?P<qwen>✿FUNCTION✿:)"
    r"|(?P<recipient>(?:<\|from\|>assistant\s*+)?<\|recipient\|>[ \t]*(?P<of_recipient>[\w.-]{1,200})\s*<\|content\|>)"
    r"|(?P<arrows>>>>(?P<of_arrows>[\w.-]{1,200})\n(?=\s*\{|(?<=>>>python\n)))"
    r"|(?P<react>(?:^|(?<=\n))[ \t]*(?:\*\*)?(?:[Aa]ction|ACTION|TOOL|CALL|TOOL[ _]CALL)(?:[ _]\d{1,4})?"
    r"[ \t]*:(?:\*\*)?)"
    r"|(?P<bracket>(?:^|(?<=\n))[ \t]*\[(?:[Tt]ool|TOOL)[ _-]?(?:[Uu]se|USE|[Cc]all|CALL)?[ \t]*[: ][ \t]*"
    r"(?P<of_bracket>[A-Za-z_][\w.:-]{0,120})(?P<shut>\])?)"
    r"|(?P<naming><(?P<names>tool_name|toolname|tool|action|command|cmd|c)>\s*(?P<of_naming>[A-Za-z_][\w.-]{0,80})\s*"
    r"</(?P=names)>)"
    rf"|(?P<texts><(?P<tag>{'|'.join(TEXT_TAGS)})>)"
)
WRAPPERS: Final = (
    r"(?:<{0}(?:tool_calls?|function_calls|minimax:tool_call|｜DSML｜(?:function|tool)_calls)>"
    r"|<\|tool_calls_section_{1}\|>|<｜tool▁calls▁{1}｜>)"
)
"""Tags around calls that have tags of their own."""
WRAPPED: Final = compiled(rf"{WRAPPERS.format('', 'begin')}\s*\Z")
UNWRAPPED: Final = compiled(rf"\s*+(?:{WRAPPERS.format('/', 'end')}|<end_action>|<end_code>|<｜tool▁outputs▁end｜>)")
WRAPPER_CHARS: Final = 60
STRONG: Final = (
    "<tool", "<TOOL", "<function", "<|", "<｜tool", "<start_function_call>", "invoke name=", "[TOOL_CALLS]",
    "functools[", "✿FUNCTION✿", ">>>", "```tool_code", "[tool", "[Tool", "[TOOL",
)  # fmt: skip
"""What every call by a template of its own contains: a quick check before the patterns. The others need proof."""
WEAK: Final = ("```", "ction", "ACTION:", "TOOL:", "CALL:", "<action>", "<command>", "<cmd>", "<c>", "<toolname>",
               "<tool_name>", *(f"<{tag}>" for tag in TEXT_TAGS))  # fmt: skip
PARAMETER: Final = compiled(
    r"<parameter=([^<>\n]{1,200})>(.*?)(?:</parameter>|(?=<parameter=)|\Z)", re.DOTALL
)  # qwen3coder's, which takes one that is cut off
PARAMETER_NAMED: Final = compiled(r"<(?:\w{1,20}:|｜DSML｜)?parameter name=\"([^\"<>]{1,200})\"[^<>]{0,80}>")
PARAMETER_NAMED_END: Final = compiled(r"</(?:\w{1,20}:|｜DSML｜)?parameter>")
GEMMA: Final = compiled(r"call:([\w.-]{1,200})\{(.*)\}\s*\Z", re.DOTALL)
GEMMA_PAIR: Final = compiled(
    r"([\w.-]{1,200}):(?:<escape>(.*?)<escape>|<\|\"\|>(.*?)<\|\"\|>|([^,{}]{0,200}))", re.DOTALL
)
CODE_FENCE: Final = compiled(r"\n```(\w{1,20})\n")
ARROW: Final = compiled(r"([\w.-]{1,200})(?:\[CALL_ID\][\w-]{1,40})?(?:\[ARGS\])?(?=\{)")
TURN_ENDS: Final = compiled(r"<\|(?:stop|from|eot_id)\|>|>>>[\w.-]{1,200}\n")
STEP: Final = r"(?:[ _]\d{1,4})?[ \t]*+:(?:\*\*)?"
INPUT_LINE: Final = compiled(
    rf"\s*+([^\n]{{1,200}}+)\n\s*+(?:\*\*)?[Aa]ction(?:[ _]\d{{1,4}})?[ _][Ii]nput{STEP}"
)  # as LangChain's
BRACKETED: Final = compiled(r"[ \t]*+([A-Za-z]\w{0,60})\[([^\n]{0,4000})\][ \t]*(?=\n|\Z)")
GIVEN: Final = compiled(
    r"\s*+<(?P<of>(?:tool_|action_|command_)?(?:input|args|arguments|parameters|params))>"
)  # as LangChain's XML agent
STEP_END: Final = compiled(
    rf"\n[ \t]*+(?:\*\*)?(?:[Oo]bservation|Thought|[Aa]ction|Final Answer){STEP}|<\||</s>|<end_action>"
)
ENDS: Final = compiled(
    r"<\|(?:im_end|eot_id|eom_id|endoftext|end|call|stop|from|end_of_text)\|>|</s>|<｜tool▁call|<end_of_turn>"
)
"""Where what has no closing tag of its own ends."""


class Scanner:
    """Goes over one text; what was looked for in vain is not looked for again, so that it takes linear time."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._missing: set[str] = set()
        self._results_at: list[int] | None = None

    def find(self, wanted: str, start: int, end: int | None = None) -> int:
        """Return where a text stands next before `end`, or -1."""
        if wanted in self._missing:
            return -1
        place = self.text.find(wanted, start) if end is None else self.text.find(wanted, start, end)
        if place < 0 and end is None:
            self._missing.add(wanted)
        return place

    def result_from(self, at: int) -> int:
        """Return where the next result begins, or the end of the text."""
        if self._results_at is None:
            self._results_at = [match.start() for match in RESULT.finditer(self.text)]
        place = bisect_left(self._results_at, at)
        return self._results_at[place] if place < len(self._results_at) else len(self.text)

    def found(self) -> Iterator[Found]:
        """Yield the calls of the text in order, each with the results that follow at once."""
        ends, begins = (self.text.find(mark) for mark in ("</think>", "<think>"))
        at, thinks = 0, ends >= 0 and not 0 <= begins < ends  # a prompt may end with the opening tag
        while mark := OPEN.search(self.text, at):
            kind = str(mark.lastgroup)
            at = mark.end()
            if kind == "thinks":
                thinks = not mark["ends"]
                continue
            quoted = mark.start() > 0 and self.text[mark.start() - 1] == "`" and kind != "fenced"
            place = None if quoted else READERS[kind](self, mark)
            if place is None:
                continue
            at = place.end
            if place.asked:
                results = tuple(self._results(at))
                before = WRAPPED.search(self.text[max(0, place.start - WRAPPER_CHARS) : place.start])
                start, at = place.start - (len(before[0]) if before else 0), self._after
                needs = ANSWER if thinks and kind != "texts" else place.needs
                yield replace(place, start=start, end=at, needs=needs, results=results)

    def _results(self, at: int) -> Iterator[str]:
        """Yield the results that stand right behind a call, and note where they end."""
        self._after = at
        while result := result_at(self.text, self._after):
            yield result[0]
            self._after = result[1]
        if closing := UNWRAPPED.match(self.text, self._after):
            self._after = closing.end()

    def until(self, closer: str, start: int, opener: str = "") -> tuple[str, int, bool]:
        """Return the text up to a closing tag, where it ends, and whether there is one before the next opening tag."""
        after = self.find(opener, start) if opener else -1
        limit = len(self.text) if after < 0 else after
        close = self.find(closer, start, None if after < 0 else limit)
        if 0 <= close <= limit:
            return self.text[start:close], close + len(closer), True
        ends = ENDS.search(self.text, start, limit)
        end = ends.start() if ends else limit
        return self.text[start:end], end, False


Mark = re.Match[str]


def _tagged(scan: Scanner, mark: Mark) -> Found | None:
    """Read JSON, Python or keys between tags; prose that only names the tag is no call."""
    opener = mark[0]
    body, end, closed = scan.until(CLOSERS[opener], mark.end(), opener)
    inner = body.lstrip()
    if inner.startswith(("<function=", "<invoke", "<｜DSML｜invoke", "<tool_call>", "<minimax:")):
        return None  # a wrapper: the calls have tags of their own
    if gemma := GEMMA.match(inner):
        pairs = {key: text or other or argument(bare) for key, text, other, bare in GEMMA_PAIR.findall(gemma[2])}
        return Found(start=mark.start(), end=end, asked=(Asked(name=gemma[1], arguments=pairs),))
    if not inner.strip(" .\n…") or (not closed and inner[:1] not in ("{", "[", "<") and "<arg_key>" not in inner):
        return None
    asked = calls_in(body)
    if not closed and "<arg_key>" in body:  # GLM's parser asks for the closing tag
        asked = tuple(Asked(name=call.name, arguments=body, sound=False) for call in asked)
    return Found(start=mark.start(), end=end, asked=asked)


def _function(scan: Scanner, mark: Mark) -> Found | None:
    name = mark["of_function"].strip()
    if not mark[0].endswith(">"):
        return Found(start=mark.start(), end=mark.end(), asked=(Asked(name=None, arguments=mark[0], sound=False),))
    if not PLAIN_NAME.fullmatch(name):
        return None
    body, end, _ = scan.until("</function>", mark.end(), "<function=")
    body = body.partition("</tool_call>")[0]
    if body.lstrip().startswith("{"):  # Llama's and Functionary's: JSON instead of parameters
        return Found(start=mark.start(), end=end, asked=(with_arguments(name, body),))
    pairs = {key.strip(): value.removeprefix("\n").removesuffix("\n") for key, value in PARAMETER.findall(body)}
    return Found(start=mark.start(), end=end, asked=(Asked(name=name, arguments=pairs),))


def _invoke(scan: Scanner, mark: Mark) -> Found:
    closer = f"</{mark['space']}invoke>"
    body, end, closed = scan.until(closer, mark.end(), f"<{mark['space']}invoke ")
    parts = PARAMETER_NAMED.split(body)  # a name after each text but the first
    pairs = {
        key: PARAMETER_NAMED_END.split(value, 1)[0].strip("\n")
        for key, value in zip(parts[1::2], parts[2::2], strict=True)
    }
    name = mark["of_invoke"]
    return Found(
        start=mark.start(), end=end, asked=(Asked(name=name, arguments=pairs if closed else body, sound=closed),)
    )


def _python_tag(scan: Scanner, mark: Mark) -> Found | None:
    """Read Llama's JSON or built-in call; other text is code for its interpreter."""
    body, end, _ = scan.until("<|eom_id|>", mark.end(), "<|python_tag|>")
    body = body.strip()
    if not body:
        return None
    builtin = python_calls(body)
    if body.startswith("{"):
        asked = calls_in(body)
    elif builtin and len(builtin) == 1 and str(builtin[0].name).endswith(".call"):
        asked = (Asked(name=str(builtin[0].name).removesuffix(".call"), arguments=builtin[0].arguments),)
    else:
        asked = (Asked(name="python", arguments={CODE: body}),)
    return Found(start=mark.start(), end=end, asked=asked)


def _mistral(scan: Scanner, mark: Mark) -> Found | None:
    body, end, _ = scan.until("</s>", mark.end(), "[TOOL_CALLS]")
    body = body.partition("[TOOL_RESULTS]")[0]
    end = min(end, mark.end() + len(body)) if len(body) < end - mark.end() else end
    if arrow := ARROW.match(body.lstrip()):
        asked: tuple[Asked, ...] = (with_arguments(arrow[1], body.lstrip()[arrow.end() :]),)
        return Found(start=mark.start(), end=end, asked=asked)
    if body.strip()[:1] not in ("[", "{"):
        return None
    try:  # a text behind the list is passed over, as the parser's second try does
        listed, at = DECODER.raw_decode(body.strip())
        asked = calls_in(body.strip()[:at]) if listed else ()
    except (ValueError, RecursionError):
        asked = calls_in(body)
    return Found(start=mark.start(), end=end, asked=asked)


def _deepseek(scan: Scanner, mark: Mark) -> Found:
    body, end, closed = scan.until("<｜tool▁call▁end｜>", mark.end(), "<｜tool▁call▁begin｜>")
    head, _, rest = body.partition("<｜tool▁sep｜>")
    if fence := CODE_FENCE.search(rest):
        name, given = rest[: fence.start()], rest[fence.end() :].partition("\n```")[0]
    else:  # of V3.1 on
        name, given = head, rest
    if fence and fence[1] != "json":
        return Found(start=mark.start(), end=end, asked=(Asked(name=name.strip(), arguments={CODE: given}),))
    return _with_json(mark, end, name.strip(), given, closed)


def _with_json(mark: Mark, end: int, name: str, given: str, closed: bool) -> Found:
    """Return a call whose arguments are a JSON object by themselves."""
    sound = closed and bool(name) and (not given.strip() or given.lstrip().startswith("{"))
    return Found(start=mark.start(), end=end, asked=(with_arguments(name or None, given, taken=sound),))


def _kimi(scan: Scanner, mark: Mark) -> Found:
    body, end, closed = scan.until("<|tool_call_end|>", mark.end(), "<|tool_call_begin|>")
    identity, argument, given = body.partition("<|tool_call_argument_begin|>")
    name, numbered, _ = identity.strip().rpartition(":")
    name = name.rpartition(".")[2]
    return _with_json(mark, end, name, given, closed and bool(argument) and bool(numbered))


def _harmony(scan: Scanner, mark: Mark) -> Found | None:
    name = re.split(r"[\s<]", mark[0].partition(" to=")[2], maxsplit=1)[0].removeprefix("functions.")
    body, end, closed = scan.until("<|call|>", mark.end(), "<|channel|>")
    if "json" not in mark[0] and not body.lstrip().startswith("{"):  # a built-in tool takes code
        return Found(start=mark.start(), end=end, asked=(Asked(name=name, arguments={CODE: body}),))
    return _with_json(mark, end, name, body, closed=closed or values_of(body.strip()) is not None)


def _phi(scan: Scanner, mark: Mark) -> Found:
    ends = ENDS.search(scan.text, mark.end())
    end = ends.start() if ends else len(scan.text)
    try:
        _, size = DECODER.raw_decode(scan.text[mark.end() : end])
        end = mark.end() + size
    except (ValueError, RecursionError):
        pass
    return Found(start=mark.start(), end=end, asked=calls_in(scan.text[mark.end() : end]))


def _qwen(scan: Scanner, mark: Mark) -> Found | None:
    """Read Qwen-Agent's first template, which takes any text as arguments."""
    body, end, _ = scan.until("✿RESULT✿", mark.end(), "✿FUNCTION✿:")
    end = end - len("✿RESULT✿") if scan.text.startswith("✿RESULT✿", end - len("✿RESULT✿")) else end
    name, _, given = body.partition("✿ARGS✿:")
    read = values_of(given.strip())
    asked = Asked(name=name.strip(), arguments=read if isinstance(read, dict) else {INPUT: given.strip()})
    return Found(start=mark.start(), end=end, asked=(asked,)) if 0 < len(name.strip()) <= NAME_CHARS else None


def _recipient(scan: Scanner, mark: Mark) -> Found | None:
    """Read Functionary's turns, each for a tool or for all; what is no JSON is code."""
    name = mark["of_recipient"] or mark["of_arrows"]
    ends = TURN_ENDS.search(scan.text, mark.end())
    end = ends.start() if ends else len(scan.text)
    body = scan.text[mark.end() : end]
    asked = Asked(name=name, arguments={CODE: body.strip()}) if name == "python" else with_arguments(name, body)
    return None if name == "all" else Found(start=mark.start(), end=end, asked=(asked,))


def _react(scan: Scanner, mark: Mark) -> Found | None:
    """Read `Action:` with its input, with brackets or JSON, or as a line that an observation must prove."""
    begins = mark.end()
    if line := INPUT_LINE.match(scan.text, begins):
        ends = STEP_END.search(scan.text, line.end())
        end = ends.start() if ends else len(scan.text)
        given = scan.text[line.end() : end].strip()
        read = values_of(given)
        asked = Asked(name=line[1].strip("`*\"' "), arguments=read if isinstance(read, dict) else {INPUT: given})
        return Found(start=mark.start(), end=end, asked=(asked,))
    if line := BRACKETED.match(scan.text, begins):
        asked = Asked(name=line[1], arguments={INPUT: line[2]})
        return Found(start=mark.start(), end=line.end(), asked=(asked,), needs=STEP_TAG)
    ends = STEP_END.search(scan.text, begins)
    end = ends.start() if ends else len(scan.text)
    body = scan.text[begins:end].strip()
    given = unfenced(body)
    if not given.startswith("{"):
        if not (name := PLAIN_NAME.match(body)):
            return None
        asked = Asked(name=name[0], arguments={INPUT: body[name.end() :].strip(" ;:")})
        return Found(start=mark.start(), end=end, asked=(asked,), needs=STEP_TAG)
    calls = calls_in(given)
    return Found(start=mark.start(), end=end, asked=calls) if calls and calls[0].sound is not False else None


def _bracket(scan: Scanner, mark: Mark) -> Found | None:
    """Read `[tool_use:Bash {...}]` and `[Tool: Bash] {...}`, as exports of sessions write them."""
    line = scan.text[mark.end() :].partition("\n")[0]
    opens = scan.text.find("{", mark.end(), mark.end() + len(line) - len(line.lstrip(" (:,\t")) + 1)
    given, end = "", mark.end()
    if opens >= 0:
        try:
            _, size = DECODER.raw_decode(scan.text[opens:])
        except (ValueError, RecursionError):  # cut off by whoever wrote it down
            size = mark.end() + len(line) - opens - line.endswith("]")
        given, end = scan.text[opens : opens + size], opens + size
    elif not mark["shut"] and "]" not in line:
        return None
    elif not mark["shut"]:
        given = line.partition("]")[0].strip(" :,-")
        end = mark.end() + line.index("]")
    end += not mark["shut"] and scan.text.startswith("]", end)
    read = values_of(given)
    asked = Asked(name=mark["of_bracket"].rstrip(":"), arguments=read if isinstance(read, dict) else {INPUT: given})
    return Found(start=mark.start(), end=end, asked=(asked,))


def _fenced(scan: Scanner, mark: Mark) -> Found | None:
    """Read Gemma's `tool_code`, and code or JSON that an answer must prove; other code is passed."""
    language = mark["language"].lower()
    close = scan.find("```", mark.end())
    if close < 0 and language != "tool_code":  # the end of a fence that began before
        return None
    end = len(scan.text) if close < 0 else close + 3
    body = scan.text[mark.end() : close if close >= 0 else end].strip()
    nothing = Found(start=mark.start(), end=end, asked=())
    if not body or (language and language not in LANGUAGES):
        return nothing
    if language == "tool_code" and body.startswith("{"):
        return Found(start=mark.start(), end=end, asked=calls_in(body))
    if language == "tool_code":
        calls = python_calls(body) or [Asked(name="python", arguments={CODE: body})]
        return Found(start=mark.start(), end=end, asked=tuple(calls))
    asked: tuple[Asked, ...] = ()
    if language in ("json", "xml", "") or body.startswith("<tool_call>"):
        inner = OPEN.match(body)
        if inner and inner.lastgroup in ("tagged", "function", "invoke"):
            asked = tuple(call for place in Scanner(body).found() for call in place.asked)
        elif body[:1] in ("{", "["):
            asked = whole_json(body)
    elif close >= 0:
        asked = (
            Asked(
                name="bash" if language in ("bash", "sh", "shell", "mswea_bash_command") else language,
                arguments={CODE: body},
            ),
        )
    return Found(start=mark.start(), end=end, asked=asked, needs=BLOCK) if asked else nothing


def _texts(scan: Scanner, mark: Mark) -> Found | None:
    tag = mark["tag"]
    body, end, closed = scan.until(f"</{tag}>", mark.end(), mark[0])
    if not closed or not body.strip():
        return None
    asked = whole_json(body.strip()) if body.lstrip().startswith("{") else ()
    asked = asked or (Asked(name=tag, arguments={TEXT_TAGS[tag]: unfenced(body.strip())}),)
    return Found(start=mark.start(), end=end, asked=asked, needs=tag)


def _naming(scan: Scanner, mark: Mark) -> Found:
    """Read a tag around a tool's name, and its input: in the tag behind it, or the text up to the next one."""
    given = GIVEN.match(scan.text, mark.end())
    closing = f"</{given['of']}>" if given else ""
    close = scan.find(closing, given.end()) if given else -1
    if given and close >= 0:
        body, end = scan.text[given.end() : close], close + len(closing)
    else:
        following = OPEN.search(scan.text, mark.end())
        end = min(following.start() if following else len(scan.text), scan.result_from(mark.end()))
        body = scan.text[mark.end() : end]
    return Found(start=mark.start(), end=end, asked=(with_arguments(mark["of_naming"], body.strip()),), needs=NAMING)


READERS: Final[dict[str, Callable[[Scanner, Mark], Found | None]]] = {
    "tagged": _tagged, "function": _function, "invoke": _invoke, "python_tag": _python_tag, "mistral": _mistral,
    "deepseek": _deepseek, "kimi": _kimi, "harmony": _harmony, "phi": _phi, "qwen": _qwen, "recipient": _recipient,
    "arrows": _recipient, "bracket": _bracket, "react": _react, "fenced": _fenced, "texts": _texts,
    "naming": _naming,
}  # fmt: skip

RESULT_TAGS: Final = (
    "tool_response", "tool_result", "tool_output", "function_result", "function_results", "function_response",
    "information", "output", "interpreter", "result", "results", "observation", "search_results", "documents",
)  # fmt: skip
RESULT: Final = compiled(
    rf"(?:\s|<\|[a-z_]{{1,20}}\|>|</s>|<｜tool▁calls▁end｜>|<｜end▁of▁sentence｜>|</tool_call>|</function_calls>)*+"
    rf"(?:<(?P<tag>{'|'.join(RESULT_TAGS)})>|(?P<fence>```(?:output|tool_output|tool_outputs)[ \t]*\n)"
    r"|(?P<list>\[TOOL_RESULTS\])|(?P<deepseek>(?:<｜tool▁outputs▁begin｜>)?<｜tool▁output▁begin｜>)|(?P<qwen>✿RESULT✿:)"
    r"|(?P<said>(?:\*\*)?(?:Observation|OBSERVATION)(?:[ _]\d{1,4})?[ \t]*:(?:\*\*)?))"
)
RESULT_ENDS: Final = {
    "fence": "```",
    "list": "[/TOOL_RESULTS]",
    "deepseek": "<｜tool▁output▁end｜>",
    "qwen": "✿RETURN✿",
}
NEXT_STEP: Final = compiled(rf"\n[ \t]*+(?:\*\*)?(?:Thought|[Aa]ction|Final Answer){STEP}|<\|im_end\|>|<\|eot_id\|>")


def result_at(text: str, at: int) -> tuple[str, int] | None:
    """Return a result that begins here, behind white space and marks of turns, and where it ends."""
    opens = RESULT.match(text, at)
    if opens is None:
        return None
    kind = str(opens.lastgroup)
    if kind == "said":
        ends = NEXT_STEP.search(text, opens.end())
        end = ends.start() if ends else len(text)
        return text[opens.end() : end].strip(), end
    closer = f"</{opens['tag']}>" if kind == "tag" else RESULT_ENDS[kind]
    close = text.find(closer, opens.end())
    end = len(text) if close < 0 else close
    return text[opens.end() : end].strip(), min(len(text), end + len(closer))


def find_calls(text: str) -> list[Found]:
    """Return the calls that a text of the assistant holds, in order; those that `needs` proof among them."""
    return list(Scanner(text).found()) if may_call(text) else []


def may_call(text: str, marks: tuple[str, ...] = STRONG + WEAK) -> bool:
    """Return whether a text contains what calls begin with."""
    return any(mark in text for mark in marks)
