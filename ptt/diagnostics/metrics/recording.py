"""Which line of which framework's configuration records what a question needs; the table itself is switches.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Set
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any, Final

from ptt.diagnostics.definitions import dataclass

ANY: Final = "*"
GRPO_CONFIG: Final = "GRPOConfig"  # as the lines of TRL have it; other trainers' configurations take its place


@dataclass(frozen=True, kw_only=True)
class Switch:
    """One line to add to a run's configuration or script, and what it then leaves on disk."""

    framework: str
    gives: frozenset[str]  # canonical columns and tables
    line: str
    note: str
    only: tuple[tuple[str, str], ...]  # columns, and what each needs besides the line


@cache
def switches() -> tuple[Switch, ...]:
    """Return the whole table."""
    return tuple(
        Switch(
            framework=item["framework"],
            gives=frozenset(item["gives"]),
            line=item["line"],
            note=item.get("note", ""),
            only=tuple(item.get("only", {}).items()),
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
        replace(
            switch,
            line=switch.line.replace(GRPO_CONFIG, config),
            note="; ".join(filter(None, (switch.note, _conditions(switch, wanted).replace(GRPO_CONFIG, config)))),
        )
        for switch in candidates
    ]
    return tuple(sorted(fitted, key=lambda switch: -len(switch.gives & wanted)))


def _conditions(switch: Switch, wanted: Set[str]) -> str:
    """Say what those of the wanted columns need that the line alone does not give."""
    return ", ".join(f"{column} needs {setting}" for column, setting in switch.only if column in wanted)


def how_to_record(
    framework: str | None, missing: Iterable[str], *, trainer: str | None = None, recorded: Set[str] = frozenset()
) -> str | None:
    """Return the sentence that tells a framework's user, or of any loop, what to add; None where no line does.

    `recorded`: columns that the run holds. A line that gives them is there; what it needs besides is not.
    """
    missing = tuple(missing)
    candidates = switches_for(framework, missing, trainer=trainer)
    if not candidates:
        return None
    best = candidates[0]
    where = "in your training loop" if best.framework == ANY else f"in {framework_name(best.framework)}"
    if recorded & best.gives:
        if left := _conditions(best, frozenset(missing)):
            return f"{where}: {left}"
        if best.framework == ANY and (columns := [name for name in missing if name in best.gives - recorded]):
            beside = ", ".join(sorted(recorded))
            return f"{where}: record {', '.join(columns)} beside {beside}; docs/recorder.md names the columns"
    return f"{where}: {best.line}{f' ({best.note})' if best.note else ''}"


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath("switches.toml").read_text(encoding="utf-8"))
