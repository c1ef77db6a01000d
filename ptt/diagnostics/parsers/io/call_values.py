"""What a call's body says, in whatever a model spells it: JSON, a Python literal, Python calls, or keys and values.

JSON is read as json.loads does it, and else as json5 would in what models write: single quotes and Python's words. Line
breaks inside texts are taken where an answer shows that the framework took them.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from dataclasses import replace
from typing import Any, Final

import msgspec

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.parsers.io.lines import parse_json, well_formed

NAME_CHARS: Final = 200  # of a tool's name; longer ones are prose
LITERAL_CHARS: Final = 200_000  # of what is read as Python: its tree takes a hundred times the memory
NAMES: Final = ("name", "tool_name", "tool", "function", "action", "function_name", "command", "cmd")
ARGUMENTS: Final = ("arguments", "parameters", "args", "action_input", "tool_input", "input", "params", "kwargs")
HELD: Final = ("command", "cmd", "commands", "action", "act", "actions", "next_action", "tool", "tool_call",
               "tool_calls", "function_call")  # fmt: skip
"""Where an answer that is an object of thoughts and plans holds its call, or its calls."""
CODE, QUERY, INPUT = "code", "query", "input"  # the one argument of a call whose template takes a text


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A call as the text has it; `arguments` is the text itself where it cannot be read.

    `sound`: whether the template's parser takes it; None where only some do, and an answer shows that it was taken.
    """

    name: str | None
    arguments: dict[str, Any] | str
    sound: bool | None = True


def values_of(text: str) -> Any:
    """Return the value of a JSON text, or of a Python literal; None where it is neither."""
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        pass
    try:  # with NaN, and half characters
        return well_formed(json.loads(text), text)
    except (ValueError, RecursionError):
        return _literal(text)


def _tree(text: str) -> ast.expr | None:
    if len(text) > LITERAL_CHARS:
        return None
    try:
        with warnings.catch_warnings():  # of escapes that Python does not know
            warnings.simplefilter("ignore")
            return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _literal(text: str) -> Any:
    tree = _tree(text) if text.lstrip()[:1] in ("{", "[") else None
    try:
        return None if tree is None else _value(tree)
    except (ValueError, RecursionError):
        return None


WORDS: Final = {"true": True, "false": False, "null": None, "None": None, "True": True, "False": False}


def _value(node: ast.expr) -> Any:
    """Return what a literal stands for; JSON's words may stand in it, as json5 takes them."""
    match node:
        case ast.Constant(value=str() | int() | float() | None as value):
            return value
        case ast.Name(id=name) if name in WORDS:
            return WORDS[name]
        case ast.Dict(keys=keys, values=values) if all(isinstance(key, ast.Constant) for key in keys):
            return {str(key.value): _value(value) for key, value in zip(keys, values, strict=True)}  # type: ignore[union-attr]
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return [_value(part) for part in parts]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
    raise ValueError


def python_calls(text: str) -> list[Asked] | None:
    """Return the calls in a Python expression: `f(x=1)`, a list of such, also within `print`; None for other code."""
    tree = _tree(text)
    nodes = tree.elts if isinstance(tree, ast.List | ast.Tuple) else [tree]
    try:
        calls = [_python_call(node) for node in nodes]
    except (ValueError, RecursionError):
        return None
    return calls or None


def _python_call(node: ast.expr | None) -> Asked:
    if not isinstance(node, ast.Call):
        raise ValueError
    name = ast.unparse(node.func)
    if name == "print" and len(node.args) == 1 and isinstance(node.args[0], ast.Call):
        return _python_call(node.args[0])
    if not re.fullmatch(r"[A-Za-z_][\w.]*", name):
        raise ValueError
    given: dict[str, Any] = {"args": [_kept(part) for part in node.args]} if node.args else {}
    return Asked(name=name, arguments=given | {str(word.arg): _kept(word.value) for word in node.keywords})


def _kept(node: ast.expr) -> Any:
    try:
        return _value(node)
    except ValueError:
        return ast.unparse(node)


def request_in(found: Any, *, whole: bool = False) -> Asked | None:
    """Return the call that an object asks for; with `whole` only if it also holds arguments, and they are an object."""
    if not isinstance(found, dict):
        return None
    inner = found["function"] if isinstance(found.get("function"), dict) else found
    name = next((inner[key] for key in NAMES if isinstance(inner.get(key), str)), None)
    key = next((key for key in ARGUMENTS if key in inner), None)
    given: Any = {} if key is None else inner[key]
    if name is None or not 0 < len(name) <= NAME_CHARS:
        return None
    if whole and (key is None or not isinstance(given, dict | str)):
        return None
    if isinstance(given, str):
        return with_arguments(name, given)
    return Asked(name=name, arguments=given if isinstance(given, dict) else {} if given is None else {"args": given})


DECODER: Final = json.JSONDecoder(strict=False)
BETWEEN: Final = re.compile(r"[\s,;]*")
GUESSED: Final = re.compile(r"[\"'](?:tool_)?name[\"']\s*+:\s*+[\"']([^\"']{1,200})[\"'](?!\s*:)")
PLAIN_NAME: Final = re.compile(r"[A-Za-z_][\w.:/-]{0,199}")
FUNCTIONARY_HEAD: Final = re.compile(r"([A-Za-z_][\w.-]{0,199}):\s*+(?=\{)")
SURPLUS: Final = re.compile(r"(?<=\})\s*+\}\Z")
"""A brace too many, at the end."""
INFO: Final = re.compile(r"```[\w.-]{0,30}[ \t]*+\n?")


def calls_in(body: str) -> tuple[Asked, ...]:
    """Return the calls in the body of a tag: JSON, Python or GLM's keys; a malformed one where it is none of these."""
    body = body.strip()
    body = unfenced(body)
    name, *pairs = body.split("<arg_key>")
    if pairs and PLAIN_NAME.fullmatch(name.strip()):
        parted = [pair.partition("</arg_key>")[::2] for pair in pairs]
        values = {key.strip(): argument(rest.partition("<arg_value>")[2]) for key, rest in parted}
        return (Asked(name=name.strip(), arguments=values),)
    if named := FUNCTIONARY_HEAD.match(body):  # of the first version
        return (with_arguments(named[1], body[named.end() :]),)
    if PLAIN_NAME.fullmatch(body):  # GLM's without arguments
        return (Asked(name=body, arguments={}),)
    found = values_of(body) if body[:1] in ("{", "[") else None
    if found == []:
        return ()
    calls = [request_in(call) for call in (found if isinstance(found, list) else [found])] if found else []
    calls = calls or ([] if body.startswith("{") else list(python_calls(body) or []))
    sound: bool | None = True
    if not calls:
        calls, sound = [request_in(call) for call in _one_by_one(body)], None if "\n" in body else True
    if not calls and SURPLUS.search(body):  # lenient parsers take the first object
        calls, sound = [request_in(call) for call in _one_by_one(SURPLUS.sub("", body))], None
    if calls and all(calls):
        return tuple(replace(call, sound=call.sound and sound) for call in calls if call)
    guessed = GUESSED.search(body)
    return (Asked(name=guessed[1] if guessed else None, arguments=body, sound=False),)


def _one_by_one(body: str) -> list[Any]:
    """Return the objects of a text that holds nothing else, one after the other; line breaks may stand in texts."""
    found, at = list[Any](), 0
    while at < len(body):
        try:
            value, at = DECODER.raw_decode(body, at)
        except (ValueError, RecursionError):
            return []
        found.append(value)
        gap = BETWEEN.match(body, at)
        at = gap.end() if gap else at
    return found


def argument(text: str) -> Any:
    """Return the value of one argument between GLM's tags, or Gemma's bare one: JSON, or else the text."""
    text = text.partition("</arg_value>")[0].strip()
    read = parse_json(text)
    return text if read is None else read


def with_arguments(name: str | None, given: str, *, taken: bool = True) -> Asked:
    """Return a call with its arguments as a text: JSON, or a plain text; broken JSON, or not `taken`, is malformed."""
    read = values_of(given.strip()) if given.strip() else {}
    if isinstance(read, dict) and taken:
        return Asked(name=name, arguments=read)
    broken = not taken or given.lstrip().startswith("{")
    return Asked(name=name, arguments=given if broken else {INPUT: given.strip()}, sound=not broken)


def unfenced(text: str) -> str:
    """Return what a code fence holds if the text is nothing else."""
    opens = INFO.match(text)
    whole = opens is not None and text.endswith("```") and len(text) >= opens.end() + 3
    return text[opens.end() : -3].strip() if opens and whole else text


def whole_json(text: str) -> tuple[Asked, ...]:
    """Return the calls of a text that is nothing but JSON (or Python) with names and arguments; none otherwise.

    They may stand in an object beside the agent's thoughts, as AutoGPT asks for them.
    """
    found = values_of(text)
    found = _one_by_one(text) if found is None else found  # Llama's, with semicolons between
    listed = found if isinstance(found, list) else [found]
    calls = [call for entry in listed for call in _asked_in(entry)]
    return tuple(call for call in calls if call) if calls and all(calls) else ()


def _asked_in(found: Any) -> list[Asked | None]:
    """Return the call that an object asks for, or the calls that it holds; a None for what is none."""
    call = request_in(found, whole=True)
    if call is not None or not isinstance(found, dict):
        return [call]
    held = next((found[key] for key in HELD if isinstance(found.get(key), dict | list) and found[key]), None)
    listed = held if isinstance(held, list) else [held]
    return [_in_pair(entry) if isinstance(entry, list) else request_in(entry, whole=True) for entry in listed]


def _in_pair(found: list[Any]) -> Asked | None:
    """Return the call of a list that begins with the tool's name: `["read", "test.py"]`; `["north", 3]` is a move."""
    if not found or not all(isinstance(part, str) for part in found) or not PLAIN_NAME.fullmatch(found[0]):
        return None
    return Asked(name=found[0], arguments={"args": found[1:]})
