"""The rows of a real run's text log, to be changed and written as its trainer writes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

Row = dict[str, Any]

ROLES: Final[dict[str, tuple[str, ...]]] = {
    "lr": ("learning_rate", "lr", "actor/lr"),
    "grad": ("grad_norm", "actor/grad_norm"),
    "loss": ("loss", "actor/pg_loss"),
    "kl": ("kl", "actor/ppo_kl", "actor/kl_loss"),
    "reward": ("reward", "critic/score/mean", "critic/rewards/mean"),
    "margin": ("rewards/margins",),
    "pairs": ("rewards/accuracies",),
    "advantage": ("critic/advantages/mean",),
    "step": ("step", "global_step", "current_steps"),
}
"""What trainers call what the faults change."""
COUNTERS: Final = frozenset({"step", "epoch", "num_tokens", "global_step", "current_steps", "training/global_step",
                             "training/epoch"})  # fmt: skip
SCORED: Final = ("accuracy", "mean_reward")  # a console's short names of rewards and pairs
MIN_ROWS: Final = 20


@dataclass(frozen=True, kw_only=True)
class Log:
    """One run's log. `rows` are training rows, in order; `evals` those that hold only evaluation."""

    name: str
    file: str  # its name in the run's folder
    state: Row | None  # all of a trainer state but its rows; None of JSON lines
    nested: bool  # whether values lie under "data", as veRL's file logger writes them
    lines: list[Row]  # all rows as they stand in the file
    rows: list[Row]  # those of training: the values themselves, parts of `lines`

    @property
    def steps(self) -> list[int | None]:
        """Give the step of each training row."""
        return [_step(line, row) for line, row in self._pairs()]

    @property
    def family(self) -> str:
        """Say what is learnt from: rewards, pairs, answers, or what cannot be told."""
        if self.has("reward"):
            return "online"
        if self.has("margin"):
            return "pairs"
        return "other" if any(name in row for row in self.rows for name in SCORED) else "sft"

    def key(self, role: str) -> str | None:
        """Return what this log calls it."""
        return next((name for name in ROLES[role] if sum(name in row for row in self.rows) > len(self.rows) // 3), None)

    def has(self, *roles: str) -> bool:
        """Return whether it logs all of them."""
        return all(self.key(role) is not None for role in roles)

    def thinned(self, every: int, *, first: int | None = None) -> Log:
        """Give a copy of every so many training rows; of the `first` ones, and what was evaluated up to there."""
        chosen = self.rows[::every][:first]
        kept, training = {id(row) for row in chosen}, {id(row) for row in self.rows}
        lines: list[Row] = []
        for line in self.lines:
            row = line["data"] if self.nested else line
            if id(row) in kept or id(row) not in training:
                lines.append(deepcopy(line))
            if first is not None and row is chosen[-1]:
                break
        return _log(self.name, self.file, deepcopy(self.state), lines)

    def write(self, folder: Path) -> Path:
        """Write the run into a new folder."""
        folder.mkdir(parents=True)
        path = folder / self.file
        if self.state is None:
            path.write_text("".join(json.dumps(line) + "\n" for line in self.lines), encoding="utf-8")
        else:
            path.write_text(json.dumps({**self.state, "log_history": self.lines}, indent=1), encoding="utf-8")
        return folder

    def evaluations(self) -> Iterator[Row]:
        """Give the rows that are none of training."""
        training = {id(row) for row in self.rows}
        for line in self.lines:
            row = line["data"] if self.nested else line
            if id(row) not in training:
                yield row

    def _pairs(self) -> Iterator[tuple[Row, Row]]:
        training = {id(row) for row in self.rows}
        for line in self.lines:
            row = line["data"] if self.nested else line
            if id(row) in training:
                yield line, row


def _step(line: Row, row: Row) -> int | None:
    found = (place[name] for name in ROLES["step"] for place in (line, row) if place.get(name) is not None)
    step = next(found, None)
    return None if step is None else int(step)


def find_log(run: Path) -> Log | None:
    """Read the text log of a folder that holds the most rows of training; None where there is none."""
    found = [log for path in sorted(run.rglob("*.json*")) if (log := _read(run.name, path)) is not None]
    return max(found, key=lambda log: len(log.rows), default=None)


def _read(name: str, path: Path) -> Log | None:
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        if path.suffix == ".json":
            state = json.loads(text)
            lines = state.pop("log_history") if isinstance(state, dict) and "log_history" in state else None
            return _usable(_log(name, "trainer_state.json", state, lines)) if lines else None
        lines = [json.loads(line) for line in text.splitlines() if line.strip()]
    except json.JSONDecodeError:
        return None
    return _usable(_log(name, path.name, None, lines)) if all(isinstance(line, dict) for line in lines) else None


def _log(name: str, file: str, state: Row | None, lines: list[Row]) -> Log:
    nested = state is None and all(isinstance(line.get("data"), dict) for line in lines)
    values = [line["data"] if nested else line for line in lines]
    rows = [row for row in values if any(key in row for key in ROLES["loss"])]
    return Log(name=name, file=file, state=state, nested=nested, lines=lines, rows=rows)


def _usable(log: Log) -> Log | None:
    """Return a log that holds steps, losses and a gradient norm or a rate; None for other JSON."""
    known = log.has("loss") and (log.has("grad") or log.has("lr")) and None not in log.steps
    return log if known and len(log.rows) >= MIN_ROWS else None
