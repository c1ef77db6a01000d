"""Conversations that no list of messages holds: columns of steps, trees of turns, records under their ids, groups.

Each is turned into the plain shape: a list of entries, one for each thing said or done, or one record an episode.
"""

from __future__ import annotations

import itertools
import re
from typing import Any, Final

from ptt.diagnostics.parsers.io.named_parts import CALLED, plain_key
from ptt.diagnostics.parsers.io.values import as_score

COLUMNS: Final = {
    "actions": "action", "action": "action", "observations": "observation", "observation": "observation",
    "thoughts": "thought", "thought": "thought", "rewards": "reward", "reward": "reward",
    "validaction": "success", "validactions": "success",
}  # fmt: skip
ACTED: Final = frozenset({"tool", "action", "tool_name"})
MAX_ACTION: Final = 10_000  # characters
BRANCHES: Final = ("next", "children", "replies")
GROUPS: Final = frozenset(
    {"rollouts", "completions", "samples", "responses", "generations", "trajectories", "attempts"}
)
ANSWERS: Final = ("response", "completion", "output", "text", "generation")
RATED: Final = ("reward", "score")
PROMPTS: Final = ("prompt", "question", "query", "problem", "instruction")
ALIKE: Final = 0.8  # of the members of records under ids, those that all have in common
MIN_SHARED: Final = 2
NUMBERED: Final = re.compile(
    r"(?P<word>(?:step|turn|round|message|msg|iteration|iter|event|action)?)[ _-]?(?P<number>\d{1,6})"
)
"""How a step's number stands as its name."""
MAX_NODES: Final = 10_000
MAX_LEVELS: Final = 400


def steps_in_columns(found: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Return the steps whose actions and observations stand in a list each; None where there are no such lists."""
    columns = {
        COLUMNS[plain]: value
        for key, value in found.items()
        if isinstance(value, list) and value and (plain := plain_key(key)) in COLUMNS
    }
    acted, seen = columns.get("action"), columns.get("observation")
    if acted is None or seen is None or not all(isinstance(act, str | dict) for act in acted):
        return None
    first = [{"role": "user", "content": seen[0]}] if len(seen) == len(acted) + 1 else []
    if len(seen) - len(first) != len(acted):
        return None
    columns["observation"] = seen[len(first) :]
    steps = [dict(zip(columns, cells, strict=False)) for cells in itertools.zip_longest(*columns.values())]
    return [*first, *steps[: len(acted)]]


def steps_in_rows(found: list[Any]) -> list[Any]:
    """Return steps that are lists of an action and what came back, or of thought, action and both, as objects."""
    if not found or not all(isinstance(row, list) and len(row) == len(found[0]) for row in found):
        return found
    if len(found[0]) == 2 and all(isinstance(row[0], dict) and not ACTED.isdisjoint(row[0]) for row in found):
        return [row[0] | {"observation": row[1]} for row in found]
    texts = all(isinstance(text, str) for row in found for text in row)
    if len(found[0]) == 3 and texts and any(CALLED.fullmatch(row[1][:MAX_ACTION]) for row in found):
        return [dict(zip(("thought", "action", "observation"), row, strict=True)) for row in found]
    return found


def steps_by_number(found: Any) -> list[Any]:
    """Return in their order the objects that an object holds under numbers alone, or `step_1`; none otherwise."""
    if not isinstance(found, dict) or not found:
        return []
    names = [NUMBERED.fullmatch(key.lower()) if isinstance(key, str) else None for key in found]
    numbers = [(name["word"], int(name["number"])) for name in names if name is not None]
    if len(numbers) < len(found) or len({word for word, _ in numbers}) > 1:
        return []
    steps = [step for _, step in sorted(zip(numbers, found.values(), strict=True), key=lambda entry: entry[0])]
    return steps if all(isinstance(step, dict | list) for step in steps) else []


def path_in_tree(nodes: list[Any]) -> list[Any] | None:
    """Return the longest path down a tree whose turns hold those that follow; of several, the last that was tried."""
    branch = next((key for key in BRANCHES if any(isinstance(n, dict) and n.get(key) for n in nodes)), None)
    if branch is None:
        return None
    best: tuple[int, tuple[Any, ...]] = (0, ())
    waiting: list[tuple[int, Any, tuple[Any, ...]]] = [(1, node, ()) for node in reversed(nodes)]
    for _ in range(MAX_NODES):
        if not waiting:
            break
        depth, node, above = waiting.pop()
        if not isinstance(node, dict):
            return None
        path = (above, node)
        best = best if depth < best[0] else (depth, path)
        under = node.get(branch)
        if isinstance(under, list) and depth < MAX_LEVELS:
            waiting += [(depth + 1, child, path) for child in reversed(under)]
    turns: list[Any] = []
    rest = best[1]
    while rest:
        rest, node = rest
        turns.append({key: value for key, value in node.items() if key != branch})
    return turns[::-1]


def records_by_id(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the records that an object holds under their ids: two or more with the same members."""
    records = list(found.values())
    if len(records) < 2 or not all(isinstance(record, dict) for record in records):
        return []
    shared = set.intersection(*map(set, records))
    if len(shared) < MIN_SHARED or len(shared) < ALIKE * max(map(len, records)):
        return []
    return [{"sample_id": key} | record for key, record in found.items()]


def rated_answers(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the answers of a group of rollouts, each a record of its own: a text that was rated, and its prompt."""
    asked = {key: value for key, value in found.items() if plain_key(key) in PROMPTS and isinstance(value, str)}
    for key, value in found.items():
        if not asked or plain_key(key) not in GROUPS or not isinstance(value, list) or not value:
            continue
        if all(isinstance(entry, dict) and answer_key(entry) and _is_rated(entry) for entry in value):
            return [asked | entry for entry in value]
    return []


def answer_key(entry: dict[str, Any]) -> str:
    """Return the member that holds the answer of a rated rollout."""
    return next((key for key in ANSWERS if isinstance(entry.get(key), str) and entry[key]), "")


def _is_rated(entry: dict[str, Any]) -> bool:
    return any(as_score(entry.get(key)) is not None for key in RATED)
