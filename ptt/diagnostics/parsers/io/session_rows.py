"""What readers of agents' sessions share: a session that grows row by row, and how a program's rows are told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.parsers.io.conversations import opening
from ptt.diagnostics.parsers.io.trajectories import Sample
from ptt.diagnostics.parsers.io.values import as_count, as_seconds, total, total_cost

Message = dict[str, Any]


@dataclass
class Session:
    """What was read of one session. `columns`: of the table of trajectories; `sums`: counts of each of its answers."""

    messages: list[Message] = field(default_factory=list)
    timing: list[dict[str, Any]] = field(default_factory=list)
    columns: dict[str, Any] = field(default_factory=dict)
    sums: dict[str, list[Any]] = field(default_factory=dict)
    tools: list[Message] = field(default_factory=list)
    open: list[Message] = field(default_factory=list)  # calls of tools whose result is not told yet
    places: list[tuple[str | None, str | None, int]] = field(default_factory=list)  # id, parent and message of rows

    def say(self, messages: list[Message], at: Any = None, **sums: Any) -> None:
        """Add messages, written at a time, with what their answer cost."""
        ended, tokens = _seconds(at), {"n_tokens": as_count(sums.get("tokens_out"))}
        self.messages += messages
        self.timing += [{"t_end": ended} | (tokens if one.get("role") == "assistant" else {}) for one in messages]
        for name, value in sums.items():
            self.sums.setdefault(name, []).append(value)

    def told(self, **columns: Any) -> None:
        """Note what is said of the whole session, the first time that it is."""
        for name, value in columns.items():
            if value is not None:
                self.columns.setdefault(name, value)

    def take_back(self) -> None:
        """Leave out the last message."""
        self.messages.pop()
        self.timing.pop()

    def keep_branch(self) -> None:
        """Leave out what the user took back: of a tree of rows only the branch of the last counts."""
        parents = {name: parent for name, parent, _ in self.places if name is not None}
        if not parents:
            return
        kept: set[str] = set()
        at = next((name for name, *_ in reversed(self.places) if name is not None), None)
        while at is not None and at in parents and at not in kept:
            kept.add(at)
            at = parents[at]
        numbers = [number for name, _, number in self.places if number >= 0 and name in kept]
        self.messages = [self.messages[number] for number in numbers]
        self.timing = [self.timing[number] for number in numbers]

    def sample(self) -> Sample:
        """Return the trajectory."""
        sums: dict[str, Any] = {name: total(self.sums.get(name, ())) for name in ("tokens_in", "tokens_out")}
        sums["cost_usd"] = total_cost(self.sums.get("cost_usd", ()))
        return Sample(
            step=None,
            split="unknown",
            completion=self.messages,
            identity=[self.columns.get("sample_id"), self.messages],
            prompt=opening(self.messages),
            timing=self.timing,
            tools=self.tools,
            columns={name: value for name, value in sums.items() if value is not None} | self.columns,
        )


def _seconds(found: Any) -> float | None:
    """Read a time that may be in milliseconds, as JavaScript counts."""
    return as_seconds(found / 1000 if isinstance(found, (int, float)) and found > 1e11 else found)


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How one program writes its rows. `holders`: where a document keeps them; `take`: False if a row is none."""

    is_row: Callable[[dict[str, Any]], bool]
    take: Callable[[dict[str, Any], Session], bool]
    holders: frozenset[str] = frozenset()
    begins: Callable[[dict[str, Any], Session], bool] = lambda _row, _session: False  # whether a row begins the next
