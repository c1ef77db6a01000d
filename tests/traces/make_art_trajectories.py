"""Make art_0003.parquet and art_0002.jsonl with ART itself: `pip install openpipe-art==0.5.18`, then run this file."""

from __future__ import annotations

from pathlib import Path

from art.trajectories import Trajectory, TrajectoryGroup
from art.utils.trajectory_logging import write_trajectory_groups_parquet
from art.utils.trajectory_migration import serialize_trajectory_groups
from openai.types.chat.chat_completion import Choice

HERE = Path(__file__).parent
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}


def choice(content: str | None, calls: list | None = None) -> Choice:
    message = {"role": "assistant", "content": content, "tool_calls": calls}
    reason = "tool_calls" if calls else "stop"
    return Choice.model_validate({"finish_reason": reason, "index": 0, "logprobs": None, "message": message})


def groups() -> list[TrajectoryGroup]:
    asked = [{"role": "system", "content": "Add."}, {"role": "user", "content": "1 + 2?"}]
    result = {"role": "tool", "tool_call_id": "c1", "content": "3"}
    made = [
        Trajectory(
            messages_and_choices=[*asked, choice(None, [CALL]), result, choice("it is 3")],
            reward=1.0,
            metrics={"right": 1.0, "short": True},
            metadata={"kind": "sum"},
        ),
        Trajectory(messages_and_choices=[*asked, choice("4")], reward=0.0, metrics={"right": 0.0, "short": True}),
    ]
    return [TrajectoryGroup(made)]


if __name__ == "__main__":
    write_trajectory_groups_parquet(groups(), HERE / "art_0003.parquet")
    (HERE / "art_0002.jsonl").write_text(serialize_trajectory_groups(groups()))
