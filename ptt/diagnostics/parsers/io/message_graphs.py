"""Turns and tool calls out of the messages of verifiers' traces, where calls and results carry ids."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ptt.diagnostics.parsers.io.interface import RunFile
from ptt.diagnostics.parsers.io.token_lines import token_hash
from ptt.diagnostics.parsers.io.tool_calls import ARGS_CHARS, ERROR_TEXT, call_row, told_columns
from ptt.diagnostics.parsers.io.trajectories import turns_of
from ptt.diagnostics.parsers.io.values import as_name, as_plain_number, as_text

COMPACT: Final = {
    "logprobs": "rollout_logp",
    "reference_logprobs": "ref_logp",
    "trainer_logprobs": "policy_logp",
    "entropies": "entropy",
    "advantages": "advantage",
}
KINDS: Final[dict[type[np.generic], str]] = {np.int32: "iu", np.bool_: "bi", np.float32: "f"}
PATH_NODES: Final = 200_000  # over all paths of one trace; a comb of branches would make their number quadratic

Node = dict[str, Any]
Floats = npt.NDArray[np.float32]


class BadGraphError(ValueError):
    """The nodes are no forest, or their lists do not fit together."""


def paths(nodes: list[Node]) -> list[list[int]]:
    """Return the numbers of the nodes on each path from a root to a leaf, in the order of the leaves."""
    parents: list[int | None] = []
    for number, node in enumerate(nodes):
        parent = node.get("parent")
        if parent is not None and not (type(parent) is int and 0 <= parent < number):
            raise BadGraphError("a node names a parent that does not precede it")
        parents.append(parent)
    inner = set(parents)
    branches: list[list[int]] = []
    total = 0
    for leaf in (number for number in range(len(nodes)) if number not in inner):
        path = []
        at: int | None = leaf
        while at is not None:
            path.append(at)
            at = parents[at]
        total += len(path)
        if total > PATH_NODES:
            raise BadGraphError("its branches are too many and too long")
        branches.append(path[::-1])
    return branches


def sequences(nodes: list[Node]) -> Iterator[dict[str, Any]]:
    """Yield each path as a sequence from its first sampled token on; tokens that an earlier path held count once.

    Of a shared part the first sampled token stays marked as the model's, so that what follows an observation is still
    seen to follow one; it got its gradient with the earlier path.
    """
    arrays = [_node(node) for node in nodes]
    counted: set[int] = set()
    for path in paths(nodes):
        fresh = np.concatenate([np.full(len(arrays[at]["mask"]), at not in counted) for at in path])
        counted.update(path)
        sampled = np.concatenate([arrays[at]["mask"] for at in path])
        if not (sampled & fresh).any():
            continue
        start = int(np.argmax(sampled))
        ids = np.concatenate([arrays[at]["ids"] for at in path])
        model = sampled & fresh
        model[start] = True
        row: dict[str, Any] = {
            "token_ids": ids[start:],
            "model_mask": model[start:],
            "train_mask": (sampled & fresh)[start:],
            "token_hash": token_hash(ids),
        }
        for name in COMPACT.values():
            if any(arrays[at][name] is not None for at in path):
                row[name] = np.concatenate([_filled(arrays[at], name) for at in path])[start:]
        spans = np.cumsum([0, *(len(arrays[at]["mask"]) for at in path)]) - start
        row["tool_names"] = _tools(row["model_mask"], spans, [nodes[at] for at in path])
        yield row


def _node(node: Node) -> dict[str, Any]:
    """Return a node's lists as arrays, the compact ones spread over its mask."""
    ids, mask = _array(node.get("token_ids"), np.int32), _array(node.get("mask"), np.bool_)
    if len(ids) != len(mask):
        raise BadGraphError("token_ids and mask of a node differ in length")
    arrays: dict[str, Any] = {"ids": ids, "mask": mask}
    count = int(mask.sum())
    for raw, name in COMPACT.items():
        values = _array(node.get(raw), np.float32)
        arrays[name] = None
        if len(values):
            if len(values) != count:
                raise BadGraphError(f"{raw} of a node does not have one entry for each sampled token")
            arrays[name] = np.full(len(mask), np.nan, np.float32)
            arrays[name][mask] = values
    return arrays


def _array(values: Any, kind: type[np.generic]) -> npt.NDArray[Any]:
    if values is None:
        return np.empty(0, kind)
    if not isinstance(values, list):
        raise BadGraphError("a list of a node is not a list")
    try:
        array = np.asarray(values, np.float64 if kind is np.float32 else None)
        if array.ndim != 1 or (len(array) and array.dtype.kind not in KINDS[kind]):
            raise BadGraphError("a list of a node contains something other than numbers")
        if kind is np.int32 and len(array) and not (array.min() >= -(2**31) and array.max() < 2**31):
            raise BadGraphError("a token id does not fit 32 bits")
    except (TypeError, ValueError, OverflowError) as error:
        raise BadGraphError("a list of a node contains something other than numbers") from error
    with np.errstate(over="ignore"):
        return array.astype(kind)


def _filled(node: dict[str, Any], name: str) -> Floats:
    values = node[name]
    return np.full(len(node["mask"]), np.nan, np.float32) if values is None else values


def _tools(mask: npt.NDArray[np.bool_], spans: npt.NDArray[np.int64], nodes: list[Node]) -> list[str | None]:
    """Name the tool of each run of tokens between the model's; none at all where no run holds a tool's message."""
    edges = np.flatnonzero(np.diff(mask.astype(np.int8)))
    runs = [(int(left) + 1, int(right) + 1) for left, right in pairwise(edges) if not mask[left + 1]]
    tools = [
        (int(begin), int(stop), tool_name(node))
        for begin, stop, node in zip(spans[:-1], spans[1:], nodes, strict=True)
        if stop > begin and message_of(node).get("role") == "tool"
    ]
    names: list[str | None] = []
    count = at = 0
    for start, end in runs:
        while at < len(tools) and tools[at][1] <= start:
            at += 1
        inside = []
        while at < len(tools) and tools[at][0] < end:
            inside.append(tools[at][2])
            at += 1
        count += len(inside)
        known = list(dict.fromkeys(name for name in inside if name))
        names.append("+".join(known) if known else None)
    return names if count else []


def message_of(node: Node) -> dict[str, Any]:
    """Return a node's message, or an empty one."""
    message = node.get("message")
    return message if isinstance(message, dict) else {}


def tool_name(node: Node) -> str | None:
    """Return the name of the tool whose result a node holds, where it is said."""
    name = message_of(node).get("name")
    return name if isinstance(name, str) else None


STEP_DIR: Final = re.compile(r"step_(\d{1,15})", re.ASCII)
MAX_FOLDERS: Final = 5  # folders between a step's and its file, and some more


def step_of_folder(file: RunFile) -> int | None:
    """Return the step that a folder above the file is named after."""
    for part in reversed(file.path.parts[-1 - MAX_FOLDERS : -1]):
        if named := STEP_DIR.fullmatch(part):
            return int(named[1])
    return None


def turn_rows(nodes: list[dict[str, Any]], *, keep_text: bool) -> list[dict[str, Any]]:
    """Return role, length and hash of each message, tokens and time where they are recorded."""
    messages = [message_of(node) for node in nodes]
    shaped = [{**message, "tool_calls": _openai(message)} for message in messages]
    turns = turns_of(shaped, keep_text=keep_text)
    for turn, node in zip(turns, nodes, strict=True):
        ids, stamp = node.get("token_ids"), as_plain_number(node.get("timestamp"))
        turn["n_tokens"] = len(ids) if isinstance(ids, list) and ids else None
        turn["t_end"] = stamp or None  # 0 where nobody took the time
    return turns


def call_rows(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Pair calls and results by their id, without one by their order; names results whose message does not."""
    rows: list[dict[str, Any]] = []
    waiting: dict[str, deque[dict[str, Any]]] = {}
    for turn, node in enumerate(nodes):
        message = message_of(node)
        for call in _calls(message):
            inner = call.get("function")
            function = inner if isinstance(inner, dict) else call
            identity, arguments = as_name(call.get("id")), function.get("arguments")
            row = call_row(
                turn,
                call_idx=len(rows),
                name=as_name(function.get("name")),
                args_json=None if arguments is None else as_text(arguments)[:ARGS_CHARS],
                call_id=identity,
            )
            rows.append(row)
            waiting.setdefault(identity or "", deque()).append(row)
        if message.get("role") == "tool":
            asked = waiting.get(as_name(message.get("tool_call_id")) or "")
            if asked:
                row = asked.popleft()
                row.update(_result(message, row))
                if as_name(message.get("name")) is None:
                    message["name"] = row["name"]
    return rows


def _result(message: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
    text = as_text(message.get("content"))
    failed = text.startswith(ERROR_TEXT)
    return {**told_columns(text, call), "ok": not failed, "ok_source": "error_text" if failed else "unknown"}


def _calls(message: dict[str, Any]) -> list[dict[str, Any]]:
    calls = message.get("tool_calls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _openai(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Wrap calls the way chat messages elsewhere do: name and arguments below `function`."""
    return [call if isinstance(call.get("function"), dict) else {"function": call} for call in _calls(message)]
