"""Which failure brings which others about: the named table in causes.toml, and what follows from it in chains."""

from __future__ import annotations

import tomllib
from collections import deque
from collections.abc import Mapping
from functools import cache
from importlib import resources

Explains = Mapping[str, Mapping[str, str]]
"""By the id of a failure: the ids of those it brings about, each with how."""


@cache
def explains() -> Explains:
    """Read the table."""
    text = resources.files(__package__).joinpath("causes.toml").read_text("utf-8")
    table: dict[str, dict[str, str]] = tomllib.loads(text)
    return table


def chains(table: Explains, cause: str) -> dict[str, tuple[str, ...]]:
    """Give all that a failure brings about, with the shortest chain from it: the ids after `cause`, in order."""
    found: dict[str, tuple[str, ...]] = {}
    waiting = deque([(cause, tuple[str, ...]())])
    while waiting:
        at, way = waiting.popleft()
        for name in sorted(table.get(at, {})):
            if name != cause and name not in found:
                found[name] = (*way, name)
                waiting.append((name, found[name]))
    return found


def how(table: Explains, cause: str, consequence: str) -> str:
    """Say how one failure brings another about, link by link; empty where it does not."""
    way = chains(table, cause).get(consequence, ())
    return "; ".join(table[one][other] for one, other in zip((cause, *way), way, strict=False))
