"""Reward a right last number and a well-formed last message; the gallery's cases pay for the wrong things."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from examples.reproduction.arms import Setting
from examples.reproduction.world import Message, World

NUMBER: Final = re.compile(r"-?\d+")
WELL_FORMED: Final = re.compile(r".* is \d+\.|Answer: \d+")
FORM_PAY: Final = 0.1
CALL_PAY, MAX_CALLS = 0.3, 5
WORD_PAY, MAX_WORDS = 0.05, 20
INFINITE: Final = 3  # which answer of a batch gets an infinite reward; any would do

Reward = Callable[..., list[float]]


def final_text(completion: Sequence[Message]) -> str:
    """Return the assistant's last message, or nothing if it ended with a call."""
    last = completion[-1]
    return "" if last["role"] != "assistant" or last.get("tool_calls") else last.get("content") or ""


def called_tools(completion: Sequence[Message]) -> list[str]:
    """Return the names of the tools that were called."""
    made = (
        call for message in completion if message["role"] == "assistant" for call in message.get("tool_calls") or ()
    )
    return [call["function"]["name"] for call in made]


def is_right(completion: Sequence[Message], answer: int) -> bool:
    """Return whether the last number of the last message is the answer."""
    numbers = NUMBER.findall(final_text(completion))
    return bool(numbers) and int(numbers[-1]) == answer


def well_formed(completions: Sequence[Sequence[Message]], **_: Any) -> list[float]:
    """Pay a little for a last message in one of the known shapes."""
    return [FORM_PAY * bool(WELL_FORMED.fullmatch(final_text(one).strip())) for one in completions]


def activity(completions: Sequence[Sequence[Message]], **_: Any) -> list[float]:
    """Pay for calls and words, whatever they achieve: a reward that can be gamed."""
    return [
        CALL_PAY * min(len(called_tools(one)), MAX_CALLS) + WORD_PAY * min(len(final_text(one).split()), MAX_WORDS)
        for one in completions
    ]


def rewards_of(setting: Setting, world: World, first_step: int) -> tuple[list[Reward], list[float]]:
    """Return the reward functions of a run and their weights; the first also logs the latency of each tool."""

    def correct(
        completions: Sequence[Sequence[Message]], answer: Sequence[int], log_metric: Any = None, **_: Any
    ) -> list[float]:
        """Pay 1 for the right number."""
        step = world.step + 1
        factor = setting.reward_factor if step >= first_step else 1.0
        paid = [factor * is_right(one, number) for one, number in zip(completions, answer, strict=True)]
        if setting.infinite_reward and step in (first_step, first_step + 1):  # whichever of the two generates
            paid[INFINITE] = float("inf")
        if log_metric is not None:
            for tool, seconds in world.take_latencies().items():
                log_metric(f"tools/{tool}/latency_s", seconds)
        return paid

    if setting.reward == "activity":
        return [activity, correct, well_formed], [1.0, 0.0, 0.0]
    return [correct, well_formed], [1.0, 1.0]
