"""The words and numbers that sentences of a comparison are made of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

from ptt.diagnostics.comparing.reading import Tail
from ptt.diagnostics.metrics import PLAIN

MOST_DIGITS: Final = 9
ASKED_FIRST: Final = ("kl/ref", "reward/mean", "grad_norm", "loss/total", "len/response_mean", "tools/call_frequency")
LABELS: Final = {"post_tool": "post-tool", "post_observation": "post-observation", "text_only": "text-only"}


def metric_name(name: str) -> str:
    """Name a metric in prose; one that no table of ours knows keeps its own name."""
    return PLAIN.get(name, name)


def by_interest(names: Iterable[str]) -> list[str]:
    """Put metrics in the order that they are asked for; others follow by name."""
    place = {name: number for number, name in enumerate(ASKED_FIRST)}
    return sorted(names, key=lambda name: (place.get(name, len(place)), name))


def figure_name(row: Mapping[str, object]) -> str:
    """Name a figure of the table `divergence` in prose."""
    what, of = str(row["what"]), row["slice"]
    return f"{LABELS.get(str(of), str(of))} {what}" if of is not None else metric_name(what)


def against(tail: Tail) -> str:
    """Tell a ratio with its interval: how much lower or higher the arm lies."""
    if not tail.known:
        return "no interval"
    if f"{max(tail.ratio, 1 / tail.ratio):.2g}" == "1":
        return f"×1, {times(tail.low)} to {times(tail.high)}"
    if tail.ratio >= 1:
        return f"{times(tail.ratio)} lower, {times(tail.low)} to {times(tail.high)}"
    return f"{times(1 / tail.ratio)} higher, {times(1 / tail.high)} to {times(1 / tail.low)}"


def times(value: float) -> str:
    """Write a factor."""
    if not math.isfinite(value):
        return "no value"
    return f"×{value:.2g}" if value < 100 else f"×{value:,.0f}"


def nats(value: float) -> str:
    """Write a tail in nats."""
    return f"{value:.3g}" if math.isfinite(value) else "no value"


def number(value: float, digits: int = 3) -> str:
    """Write a metric's mean."""
    return f"{value:.{digits}g}" if math.isfinite(value) else "no value"


def pair(one: float, other: float) -> str:
    """Write two means that differ with as many digits as show it."""
    digits = next((some for some in range(3, MOST_DIGITS) if number(one, some) != number(other, some)), MOST_DIGITS)
    return f"{number(one, digits)} against {number(other, digits)}"
