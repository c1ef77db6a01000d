"""Which line of which framework's configuration records what a question needs; the table itself is switches.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, Final

ANY: Final = "*"
GRPO_CONFIG: Final = "GRPOConfig"  # as the lines of TRL have it; other trainers' configurations take its place


@dataclass(frozen=True, kw_only=True)
class Switch:
    """One line to add to a run's configuration or script, and what it then leaves on disk."""

    framework: str
    gives: frozenset[str]  # canonical columns and tables
    line: str
    note: str


@cache
def switches() -> tuple[Switch, ...]:
    """Return the whole table."""
    return tuple(
        Switch(
            framework=item["framework"],
            gives=frozenset(item["gives"]),
            line=item["line"],
            note=item.get("note", ""),
        )
        for item in _table()["switch"]
    )


def framework_name(framework: str) -> str:
    """Return a framework's own spelling of its name."""
    name: str = _table()["names"].get(framework, framework)
    return name


def switches_for(framework: str | None, missing: Iterable[str], *, trainer: str | None = None) -> tuple[Switch, ...]:
    """Return the lines that record any of `missing`, most first; the framework's own before what fits any loop.

    `trainer`: the algorithm, by which TRL names the configuration that a line goes into.
    """
    wanted = frozenset(missing)
    own = [switch for switch in switches() if switch.framework == framework and switch.gives & wanted]
    candidates = own or [switch for switch in switches() if switch.framework == ANY and switch.gives & wanted]
    config = _table()["trl_configs"].get(trainer, GRPO_CONFIG)
    fitted = [
        replace(switch, **{name: getattr(switch, name).replace(GRPO_CONFIG, config) for name in ("line", "note")})
        for switch in candidates
    ]
    return tuple(sorted(fitted, key=lambda switch: -len(switch.gives & wanted)))


def how_to_record(framework: str | None, missing: Iterable[str], *, trainer: str | None = None) -> str | None:
    """Return the sentence that tells a framework's user, or of any loop, what to add; None where no line does."""
    candidates = switches_for(framework, missing, trainer=trainer)
    if not candidates:
        return None
    note = f" ({candidates[0].note})" if candidates[0].note else ""
    where = (
        "in your training loop" if candidates[0].framework == ANY else f"in {framework_name(candidates[0].framework)}"
    )
    return f"{where}: {candidates[0].line}{note}"


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath("switches.toml").read_text(encoding="utf-8"))
