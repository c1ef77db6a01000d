"""How often `ptt traces` finds a change within one set, and accuses one without any: `make bench-one-set`.

Each set has 240 episodes as chat messages, its lines shuffled, with a time in each line. Half-way one thing gets worse:
the success rate, the failures of one of three tools, truncation, loops, or cost. The sizes were fixed before the first
run: the middle ones are what people have met and called healthy (success 67.5 to 37.5%, truncation 4 to 24%).
A change counts as found where its check reports it, dated and of medium severity at least; a set without any counts as
accused where any finding is of medium severity. Beside that, the change that a set without any says would have been
found nine times out of ten is planted into that very set: it must be found in 85 to 95% of them.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from ptt import api
from ptt.diagnostics.model import Severity
from ptt.diagnostics.traces.model import TraceDiagnosis

EPISODES: Final = 240
SETS: Final = 100  # of the middle size, and without a change; half as many of the others
TASKS: Final = 40  # that come again and again in every other set; in the others each episode has its own
BEGINS: Final = datetime(2026, 3, 2, 8, tzinfo=UTC)
TOOLS: Final = ("search", "read", "book")


@dataclass(frozen=True, kw_only=True)
class Rates:
    """How the agent does in one half of a set."""

    success: float = 0.675
    tool: float = 0.05  # of the calls of search that fail
    truncation: float = 0.04
    loops: float = 0.03
    cost: float = 0.08  # dollars an episode


SIZES: Final[Mapping[str, tuple[float, float, float]]] = {
    "success": (0.475, 0.375, 0.225),
    "tool": (0.15, 0.25, 0.5),
    "truncation": (0.14, 0.24, 0.44),
    "loops": (0.13, 0.23, 0.43),
    "cost": (0.1, 0.128, 0.2),
}
"""What each rate is from half-way on: small, middle and large."""
CHECKS: Final = {
    "success": ("success", "success"), "tool": ("tool-failures", "tool:search"),
    "truncation": ("truncated-episodes", "truncated"), "loops": ("loops", "loops"), "cost": ("cost", "cost_usd"),
}  # fmt: skip
"""The check that reports each rate, and its name in the table of changes."""


def episode(number: int, task: int, ease: float, rates: Rates, draw: random.Random) -> dict[str, Any]:
    """Return one line of a set."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"Task {task}: find the record and book it."}]

    def call(tool: str, arguments: str, result: str) -> None:
        function = {"name": tool, "arguments": json.dumps({"key": arguments})}
        made = {"id": f"call_{len(messages)}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [made]})
        messages.append({"role": "tool", "tool_call_id": made["id"], "content": result})

    for at in range(draw.randint(3, 7)):
        tool, key = TOOLS[at % 3], f"{draw.random():.6f}"
        failed = draw.random() < (rates.tool if tool == "search" else 0.03)
        call(tool, key, json.dumps({"error": "504: timed out"} if failed else {"row": f"{draw.random():.6f}"}))
    if draw.random() < rates.loops:
        for _ in range(4):
            call("read", "7", json.dumps({"row": f"page {task}"}))
    messages.append({"role": "assistant", "content": f"It is {draw.random():.6f}, booked."})
    return {
        "task_id": f"task-{task}",
        "timestamp": f"{BEGINS + number * timedelta(minutes=7):%Y-%m-%dT%H:%M:%SZ}",
        "success": draw.random() < min(1.0, max(0.0, rates.success + ease)),
        "truncated": draw.random() < rates.truncation,
        "cost_usd": round(rates.cost * draw.lognormvariate(-0.125, 0.5), 6),
        "messages": messages,
    }


def write_set(path: Path, seed: int, late: Rates) -> Path:
    """Write a set whose second half has other rates, in a random order of its lines."""
    draw = random.Random(seed)
    ease = [draw.uniform(-0.2, 0.2) for _ in range(TASKS)]
    repeats = seed % 2 == 1
    tasks = [number % TASKS for number in range(EPISODES)] if repeats else list(range(EPISODES))
    draw.shuffle(tasks)
    lines = []
    for number, task in enumerate(tasks):
        rates = Rates() if number < EPISODES // 2 else late
        lines.append(json.dumps(episode(number, task, ease[task] if repeats else 0.0, rates, draw)))
    draw.shuffle(lines)
    path.write_text("\n".join(lines) + "\n", encoding="ascii")
    return path


def judge(seed: int, late: Rates) -> TraceDiagnosis:
    """Judge a set as a user would."""
    with tempfile.TemporaryDirectory() as folder:
        return api.traces(write_set(Path(folder) / "agents.jsonl", seed, late))


def is_found(diagnosis: TraceDiagnosis, rate: str) -> bool:
    """Tell whether the check of a rate reports a change."""
    return any(
        finding.id == CHECKS[rate][0] and finding.onset_step is not None and finding.severity.at_least(Severity.MEDIUM)
        for finding in diagnosis.findings
    )


def promised(one: TraceDiagnosis, rate: str) -> float:
    """Return the level at which a set without a change says that it would have been found.

    A share is moved by as many points as it says, cost by the same factor.
    """
    (row,) = (row for row in one.rows("changes") if row["rate"] == CHECKS[rate][1])
    base = float(getattr(Rates(), rate))
    seen_at, value = float(row["seen_at"]), float(row["value"])
    return base * seen_at / value if rate == "cost" else base + seen_at - value


def main() -> None:
    """Judge all sets and print what was found; with names of rates, of these alone."""
    rates = sys.argv[1:] or list(SIZES)
    nulls = [judge(seed, Rates()) for seed in range(SETS)]
    accused = [one for one in nulls if any(item.severity.at_least(Severity.MEDIUM) for item in one.findings)]
    print(f"without a change: {len(accused)} of {SETS} accused")
    for one in accused:
        print(f"  {one.verdict.headline}")
    print("| from half-way on | small | middle | large | as promised |\n|---|---|---|---|---|")

    def found(rate: str, level: float, seeds: range) -> str:
        hits = sum(is_found(judge(seed, replace(Rates(), **{rate: level})), rate) for seed in seeds)
        return f"{level:.3g}: {hits} of {len(seeds)}"

    for rate in rates:
        small, middle, large = SIZES[rate]
        told = [
            found(rate, small, range(1000, 1000 + SETS // 2)),
            found(rate, middle, range(2000, 2000 + SETS)),
            found(rate, large, range(3000, 3000 + SETS // 2)),
        ]
        sure = [promised(one, rate) for one in nulls]
        hits = sum(is_found(judge(seed, replace(Rates(), **{rate: level})), rate) for seed, level in enumerate(sure))
        print(f"| {rate} | {' | '.join(told)} | {statistics.fmean(sure):.3g}: {hits} of {SETS} |", flush=True)


if __name__ == "__main__":
    main()
