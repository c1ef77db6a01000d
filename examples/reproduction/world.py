"""The world of the experiment: a warehouse, three tools that answer in one form or in many, and questions about both.

Items have made-up names, and their codes and stocks can only be learnt from a tool. What differs between arms is how
the tools answer: in the narrow world as `{"value": 417}`, always; in the diverse world in one of thirty forms with
other numbers and log lines around the value. The answers are as diverse at the first step as at the last: whatever
grows during training is the policy's doing.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import index
from typing import Any, Final

from examples.reproduction.arms import Setting

CONSONANTS: Final = "bcdfghjklmnprstvwz"
VOWELS: Final = "aeiou"
ITEMS: Final = tuple(first + vowel + last for first in CONSONANTS for vowel in VOWELS for last in CONSONANTS)
LOG_WORDS: Final = ("cache", "shard", "warn", "retry", "node", "batch", "meta", "debug", "page", "trace")

SLOW_SECONDS: Final = 1.5  # a slow tool's answer; the calls of a batch wait for each other
RAMP_SHARE: Final = 0.15  # share of the run over which failures rise to their late level

Message = dict[str, Any]
Call = tuple[str, dict[str, Any], str, int]  # tool, arguments, and the subject and value that it answers
Tool = Callable[..., Any]
ByTool = Callable[[int], Mapping[str, float]]  # from a step to a number for each tool, or for `all`


def code_of(item: str) -> int:
    """Return an item's code: three digits, the same in every run."""
    return random.Random(f"code {item}").randint(100, 999)


def stock_of(item: str) -> int:
    """Return how many of an item there are: two digits, the same in every run."""
    return random.Random(f"stock {item}").randint(10, 99)


CODES: Final = {item: code_of(item) for item in ITEMS}
STOCKS: Final = {item: stock_of(item) for item in ITEMS}

# What the tools answer, of a subject `s`, its value `v`, and three numbers that do not matter: `x`, `y` and `d`.
# The first is the narrow world's only form; the first four are those that supervised training shows.
FORMS: Final = (
    '{{"value": {v}}}',
    "{s}: {v}",
    "Result: {v}",
    '{{"key": "{s}", "value": {v}}}',
    "[INFO] request ok key={s} value={v} ttl={x}",
    "<td>{s}</td><td>{v}</td>",
    "row {d} | {s} | {v} | active",
    "Found {d} results. Entry {s} has value {v} (rev {x}).",
    "key,value\n{s},{v}",
    "key,weight,value\n{s},{x},{v}",
    "HTTP 200 body={v} len={x}",
    "> {s}\n< {v}",
    "# {s}\n- weight {x}\n- value {v}",
    "value={v}; weight={x}; shelf={d}",
    "weight={x}; value={v}; shelf={d}",
    "was {y}, is {v}",
    "the former {y} was replaced by {v}",
    "{v} ({s})",
    "{v}\t{s}\t{x}",
    "status: ok\nkey: {s}\nweight: {x}\nvalue: {v}",
    '{{"data": [{{"key": "{s}", "weight": {x}, "value": {v}}}]}}',
    '{{"status": "ok", "took": {x}, "hits": {{"total": {d}, "value": {v}}}}}',
    "WARN old endpoint; answer {v}",
    "The warehouse lists {s} at {x} grams under {v}.",
    "{s} -> {v}",
    "{s}@{x} => {v}",
    "see page {x}: {s} = {v}",
    "(1) {s} (2) {v} (3) {x}",
    "***{v}***",
    "not {y} but {v}",
)
KNOWN_FORMS: Final = 4
LOG_LINE_SHARE: Final = 0.5  # of the diverse world's answers that carry a log line before or after the value


def log_line(rng: random.Random) -> str:
    """Return up to three words with numbers, as a server would print them."""
    return " ".join(
        f"{rng.choice(LOG_WORDS)}{rng.choice('=: -')}{rng.randint(2, 9999)}" for _ in range(rng.randint(1, 3))
    )


def rendered(form: str, subject: str, value: int | str, rng: random.Random) -> str:
    """Return an answer in one form."""
    return form.format(s=subject, v=value, x=rng.randint(2, 99), y=rng.randint(100, 999), d=rng.randint(2, 9))


@dataclass(kw_only=True)
class World:
    """Answer the calls of one run; its failure rates and waits may change from step to step."""

    diverse: bool
    seed: int
    failure_rates: ByTool = lambda _step: {}
    waits: ByTool = lambda _step: {}  # seconds before an answer
    lies_since: float = math.inf  # the step from which values are wrong
    unknown_items: str = ""  # see arms.py
    step: int = 0  # the trainer's; a callback keeps it up to date
    latencies: dict[str, list[float]] = field(default_factory=dict)  # seconds of each call since `take_latencies`

    def __post_init__(self) -> None:
        """Start the stream of random numbers."""
        self.rng = random.Random(f"world {self.seed}")

    def answer_of(self, tool: str, item: str, values: Mapping[str, int]) -> str:
        """Return what a tool says of an item: another's value where it lies, null where it knows none."""
        value: int | str = values[item]  # raises where the policy made an item up
        if item[0] in self.unknown_items:
            value = "null"
        elif self.step >= self.lies_since:
            value = values[self.rng.choice(ITEMS)]
        return self.answer(tool, item, value)

    def answer(self, tool: str, subject: str, value: int | str) -> str:
        """Return what a tool says, or raise where it fails."""
        began = time.perf_counter()
        time.sleep(self.waits(self.step).get(tool, 0.0))
        self.latencies.setdefault(tool, []).append(time.perf_counter() - began)
        rates = self.failure_rates(self.step)
        if self.rng.random() < rates.get(tool, rates.get("all", 0.0)):
            raise TimeoutError("the tool's backend timed out")
        if not self.diverse:
            return rendered(FORMS[0], subject, value, self.rng)
        text = rendered(self.rng.choice(FORMS), subject, value, self.rng)
        if self.rng.random() < LOG_LINE_SHARE:
            lines = [text, log_line(self.rng)]
            self.rng.shuffle(lines)
            text = "\n".join(lines)
        return text

    def take_latencies(self) -> dict[str, float]:
        """Return the mean seconds of a call by tool since the last time, and start over."""
        latencies, self.latencies = self.latencies, {}
        return {tool: sum(seconds) / len(seconds) for tool, seconds in latencies.items()}


def world_of(setting: Setting, *, seed: int, steps: int) -> World:
    """Return the world of a run."""
    since, ramp = setting.since * steps, max(1.0, RAMP_SHARE * steps)

    def failure_rates(step: int) -> Mapping[str, float]:
        if setting.late_failure_rate is None or step < since:
            return {"all": setting.failure_rate}
        risen = min(1.0, (step - since) / ramp)
        late = setting.failure_rate + risen * (setting.late_failure_rate - setting.failure_rate)
        return {"all": setting.failure_rate, setting.failing_tool or "all": late}

    def waits(step: int) -> Mapping[str, float]:
        return {setting.slow_tool: SLOW_SECONDS} if setting.slow_tool and step >= since else {}

    return World(
        diverse=setting.diverse, seed=seed, failure_rates=failure_rates, waits=waits,
        lies_since=since if setting.lying_tools else math.inf, unknown_items=setting.unknown_items,
    )  # fmt: skip


def tools_of(world: World) -> list[Tool]:
    """Return the three tools as the trainer wants them: functions with types and a docstring for the prompt."""

    def lookup(item: str) -> str:
        """Find a code.

        Args:
            item: Item.
        """
        return world.answer_of("lookup", item, CODES)

    def stock(item: str) -> str:
        """Count an item.

        Args:
            item: Item.
        """
        return world.answer_of("stock", item, STOCKS)

    def add(a: int, b: int) -> str:
        """Add numbers.

        Args:
            a: First.
            b: Second.
        """
        return world.answer("add", f"{a}+{b}", index(a) + index(b))  # a policy may pass anything; then it raises

    return [lookup, stock, add]


@dataclass(frozen=True, kw_only=True)
class Task:
    """A question, its answer, and the calls that lead to it."""

    question: str
    subject: str
    answer: int
    calls: tuple[Call, ...]


KINDS: Final = {"code": 0.4, "stock": 0.2, "sum": 0.2, "code and sum": 0.2}


def draw_task(rng: random.Random) -> Task:
    """Draw a question."""
    kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
    item, a, b = rng.choice(ITEMS), rng.randint(10, 99), rng.randint(10, 99)
    code, count = CODES[item], STOCKS[item]
    look: Call = ("lookup", {"item": item}, item, code)
    if kind == "code":
        question = rng.choice((f'What is the code of "{item}"?', f'Find the code of "{item}".'))
        return Task(question=question, subject=f'The code of "{item}"', answer=code, calls=(look,))
    if kind == "stock":
        ask: Call = ("stock", {"item": item}, item, count)
        return Task(
            question=f'How many "{item}" are there?', subject=f'The stock of "{item}"', answer=count, calls=(ask,)
        )
    if kind == "sum":
        add: Call = ("add", {"a": a, "b": b}, f"{a}+{b}", a + b)
        return Task(question=f"What is {a} + {b}?", subject=f"{a} + {b}", answer=a + b, calls=(add,))
    total: Call = ("add", {"a": code, "b": b}, f"{code}+{b}", code + b)
    question = f'What is the code of "{item}" plus {b}?'
    return Task(question=question, subject="The total", answer=code + b, calls=(look, total))


def final_message(subject: str, value: int, rng: random.Random) -> Message:
    """Return the last message: the value is its last number."""
    text = rng.choice((f"{subject} is {value}.", f"The answer is {value}.", f"It is {value}.", f"Answer: {value}"))
    return {"role": "assistant", "content": text}


def call_message(tool: str, arguments: Mapping[str, Any]) -> Message:
    """Return a call as chat templates expect it."""
    function = {"name": tool, "arguments": dict(arguments)}
    return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}


DIRECT_SHARE: Final = 0.4  # of the demonstrations that answer without a tool, right only where that can be known
FIRST_FORM_SHARE: Final = 0.8  # of the tool answers shown; the other known forms share the rest


def demonstration(rng: random.Random) -> list[Message]:
    """Return a conversation for supervised training: some use the tools, some answer without.

    Answers without a tool guess codes and stocks at random, so the policy begins with a habit that earns little, and
    reinforcement learning moves it towards the tools.
    """
    asked = draw_task(rng)
    messages: list[Message] = [{"role": "user", "content": asked.question}]
    if rng.random() < DIRECT_SHARE:
        guess = asked.answer if asked.subject[0].isdigit() else rng.randint(100, 999)
        return [*messages, final_message(asked.subject, guess, rng)]
    for tool, arguments, subject, value in asked.calls:
        known = 0 if rng.random() < FIRST_FORM_SHARE else rng.randrange(1, KNOWN_FORMS)
        messages.append(call_message(tool, arguments))
        messages.append({"role": "tool", "name": tool, "content": rendered(FORMS[known], subject, value, rng)})
    return [*messages, final_message(asked.subject, asked.answer, rng)]


def questions(count: int, seed: int) -> list[dict[str, Any]]:
    """Return the prompts of a run, as rows of a data set."""
    rng = random.Random(f"questions {seed}")
    drawn = [draw_task(rng) for _ in range(count)]
    return [{"prompt": [{"role": "user", "content": one.question}], "answer": one.answer} for one in drawn]
