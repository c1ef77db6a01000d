"""Make the traces in `sample_logs`, a support agent's week and the one before: `python -m benchmarks.sample_agents`.

Both weeks ask the same thirty questions three times over. In the second, from the thirtieth conversation on, the
carrier's service behind `track_parcel` times out in most calls; the agent asks again, and gives up.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "sample_logs"
WEEKS = {
    "agents_before.jsonl": (datetime(2026, 5, 4, 9, tzinfo=UTC), None),
    "agents.jsonl": (datetime(2026, 5, 11, 9, tzinfo=UTC), 30),
}
TASKS, ROUNDS, RETRIES = 30, 3, 2
APART = timedelta(minutes=73)  # one conversation begins so long after another
WORKS, BROKEN = 0.04, 0.8  # how often a call of track_parcel fails
SUCCEEDS = 0.85  # of the conversations in which the agent learns where the parcel is
TOOLS = {"find_order": "Find an order by the customer's name.", "track_parcel": "Ask the carrier where a parcel is."}
GOODS = ("lamp", "kettle", "desk", "tent", "drill", "chair")
PLACES = ("Leeds", "Porto", "Graz", "Turku", "Lille")


def conversation(task: int, rng: random.Random, fails: float) -> tuple[list[dict[str, Any]], bool]:
    """Return the messages of one conversation, and whether the customer was helped."""
    order, goods = f"A{1000 + 37 * task}", GOODS[task % len(GOODS)]
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": f"Where is the {goods} I ordered? I am customer {task}."}
    ]

    def call(tool: str, result: str, **arguments: str) -> None:
        function = {"name": tool, "arguments": json.dumps(arguments)}
        made = {"id": f"call_{len(messages)}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [made]})
        messages.append({"role": "tool", "tool_call_id": made["id"], "content": result})

    call("find_order", json.dumps({"order": order, "item": goods}), customer=str(task))
    for _ in range(RETRIES + 1):
        failed = rng.random() < fails
        place = rng.choice(PLACES)
        call(
            "track_parcel", json.dumps({"error": "504: carrier timed out"} if failed else {"seen": place}), order=order
        )
        if not failed:
            said = f"Your {goods} was last seen in {place} and should be with you in {rng.randint(1, 4)} days."
            break
    else:
        said = f"I am sorry, I cannot say where your {goods} is right now. Please ask again tomorrow."
    messages.append({"role": "assistant", "content": said})
    return messages, not failed and rng.random() < SUCCEEDS


def lines(begins: datetime, breaks_at: int | None) -> Iterator[str]:
    """Yield the records of a week, one a line."""
    rng = random.Random(f"{begins:%F}")
    tools = [{"type": "function", "function": {"name": name, "description": about}} for name, about in TOOLS.items()]
    for number in range(TASKS * ROUNDS):
        task = number % TASKS
        messages, success = conversation(task, rng, BROKEN if breaks_at is not None and number >= breaks_at else WORKS)
        for at, message in enumerate(messages):
            message["timestamp"] = f"{begins + number * APART + timedelta(seconds=4 * at):%Y-%m-%dT%H:%M:%SZ}"
        yield (
            json.dumps(
                {
                    "task_id": f"parcel-{task}",
                    "model": "support-8b",
                    "success": success,
                    "tools": tools,
                    "messages": messages,
                }
            )
            + "\n"
        )


def main() -> None:
    """Write both weeks."""
    for name, (begins, breaks_at) in WEEKS.items():
        (FOLDER / name).write_text("".join(lines(begins, breaks_at)), encoding="ascii")


if __name__ == "__main__":
    main()
