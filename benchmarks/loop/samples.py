"""Trajectories of a policy that looks codes up and adds them: calls, failures, second tries and answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from benchmarks.loop.made import Message, Sample
from benchmarks.loop.noise import FloatArray, Generator

FILES: Final = 40  # of a run: enough steps for a trend
PROMPTS, GROUP = 4, 8  # of a file
KEYS: Final = ("rib", "kar", "vas", "lem", "dox", "pim", "tun", "zel", "hob", "wex", "nur", "gip")
ANSWERS: Final = (
    "The code of {of} is {value}.",
    "Answer: {value}",
    "I get {value} for {of}.",
    "It is {value}, as the lookup of {of} shows.",
    "{of}: {value}",
    "Having looked {of} up, my answer is {value}.",
)
ERROR: Final = "{'error': 'the service did not answer'}"


@dataclass(frozen=True, kw_only=True)
class Task:
    """What the run's policy is asked, and how it does at first and in the end."""

    first_use: float
    last_use: float
    calls: float  # mean calls of a trajectory with tools
    fails: float  # share of calls that fail
    recovers: float  # share of failed calls that are tried again
    sums: float  # share of prompts that ask for the sum of two codes

    @classmethod
    def drawn(cls, generator: Generator) -> Task:
        """Draw a task."""
        sums = float(generator.uniform(0.25, 0.5))
        return cls(
            first_use=float(generator.uniform(0.7, 0.9)),
            last_use=float(generator.uniform(0.92, 0.995)),
            calls=1 + 2 * sums,
            fails=float(generator.uniform(0.005, 0.03)),
            recovers=float(generator.uniform(0.85, 0.97)),
            sums=sums,
        )

    def use(self, done: FloatArray) -> FloatArray:
        """Give the share of trajectories with a call."""
        return self.first_use + (self.last_use - self.first_use) * done


def samples_of(
    generator: Generator, task: Task, done: FloatArray, solved: FloatArray, count: int, per: int
) -> list[Sample]:
    """Draw the samples of some generations, evenly over the run."""
    found: list[Sample] = []
    for generation in np.unique(np.linspace(0, len(done) - 1, FILES).astype(int)):
        step = min(count, int(generation) * per + 1)
        for _ in range(PROMPTS):
            keys = [str(key) for key in generator.choice(KEYS, 2, replace=False)]
            values = [int(value) for value in generator.integers(100, 999, 2)]
            asked = keys if generator.random() < task.sums else keys[:1]
            group = [
                one(generator, task, step, asked, values, use=float(task.use(done)[generation]),
                    chance=float(solved[generation]))
                for _ in range(GROUP)
            ]  # fmt: skip
            rewards = np.array([sample.correct + sample.form for sample in group])
            scaled = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
            found += [
                Sample(step=sample.step, prompt=sample.prompt, messages=sample.messages, correct=sample.correct,
                       form=sample.form, advantage=float(value))
                for sample, value in zip(group, scaled, strict=True)
            ]  # fmt: skip
    return found


def one(
    generator: Generator, task: Task, step: int, keys: list[str], values: list[int], *, use: float, chance: float
) -> Sample:
    """Draw one trajectory."""
    wanted = sum(values[: len(keys)])
    messages: list[Message] = []
    lost = False
    if generator.random() < use:
        for key, value in zip(keys, values, strict=False):
            failed = generator.random() < task.fails
            messages += called("lookup", {"key": key}, ERROR if failed else f'{{"code": {value}}}')
            if failed and generator.random() < task.recovers:
                messages += called("lookup", {"key": key}, f'{{"code": {value}}}')
            elif failed:
                lost = True
        if len(keys) > 1:
            messages += called("calc", {"a": values[0], "b": values[1]}, f'{{"code": {wanted}}}')
    right = bool(messages) and not lost and generator.random() < chance**0.5
    value = wanted if right else wanted + int(generator.integers(1, 90))
    text = str(generator.choice(ANSWERS)).format(of=" and ".join(keys), value=value)
    messages.append({"role": "assistant", "content": text, "tool_calls": None, "name": None})
    prompt = f"What is the code of {keys[0]}?" if len(keys) == 1 else f"Add the codes of {keys[0]} and {keys[1]}."
    return Sample(step=step, prompt=prompt, messages=tuple(messages), correct=float(right), form=0.1)


def called(tool: str, arguments: dict[str, Any], result: str) -> list[Message]:
    """Give the message that calls and the message that answers."""
    whole = {"key": None, "a": None, "b": None} | arguments
    call = {"type": "function", "function": {"name": tool, "arguments": whole}}
    return [
        {"role": "assistant", "content": "", "tool_calls": [call], "name": None},
        {"role": "tool", "content": result, "tool_calls": None, "name": tool},
    ]


def said(text: str) -> Message:
    """Give a message of the policy that calls nothing."""
    return {"role": "assistant", "content": text, "tool_calls": None, "name": None}
