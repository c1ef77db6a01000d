"""The words and numbers that sentences of a comparison are made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ptt.diagnostics.compare.readings import Tail
from ptt.diagnostics.metrics.catalogue import labels, listed
from ptt.diagnostics.wording import sig

MAX_DIGITS: Final = 9
CLOSE_DIGITS: Final = 3  # digits of an end that two would round to 1, the value that tells nothing
ASKED_FIRST: Final = listed("asked_first")
LABELS: Final = {"post_tool": "post-tool", "post_observation": "post-observation", "text_only": "text-only"}


def metric_name(name: str) -> str:
    """Name a metric in prose; one that no table of ours knows keeps its own name."""
    return labels().get(name, name)


def by_interest(names: Iterable[str]) -> list[str]:
    """Sort metrics into the order that they are asked for; others follow by name."""
    order = {name: number for number, name in enumerate(ASKED_FIRST)}
    return sorted(names, key=lambda name: (order.get(name, len(order)), name))


def figure_name(row: Mapping[str, object]) -> str:
    """Name a figure of the table `divergence` in prose."""
    kind, of = str(row["what"]), row["slice"]
    return f"{LABELS.get(str(of), str(of))} {kind}" if of is not None else metric_name(kind)


def first_of(names: Sequence[str], count: int) -> str:
    """Join the first names, and say how many more there are."""
    more = f" and {len(names) - count} more" if len(names) > count else ""
    return ", ".join(names[:count]) + more


@dataclass(frozen=True, kw_only=True)
class Sided:
    """A factor of at least 1 with its side, and the ends of its interval; ends on the factor's side name none."""

    factor: float
    side: str  # empty where the factor rounds to 1
    ends: tuple[tuple[float, str], tuple[float, str]]

    def interval(self, write: Callable[[float, int], str], digits: int, *, mark: str = "", joint: str = " to ") -> str:
        """Write the ends; one on the other side of 1 than the rest is never rounded to a 1 that hides it."""
        return joint.join(_end(factor, side, write, digits, mark) for factor, side in self.ends)


def sided(ratio: float, low: float, high: float, sides: tuple[str, str] = ("lower", "higher")) -> Sided:
    """Convert a ratio and its interval into factors of at least 1; `sides`: the words above 1 and below it."""
    above, below = sides
    level = bare_factor(max(ratio, _reciprocal(ratio))) == bare_factor(1.0)
    turned = not level and ratio < 1
    first, last = (high, low) if turned else (low, high)
    if not level and (last <= 1 if turned else first >= 1) and (first <= 1 if turned else last >= 1):
        ends = ((max(first, _reciprocal(first)), ""), (max(last, _reciprocal(last)), ""))
    else:
        ends = (_factor_and_side(first, above, below), _factor_and_side(last, above, below))
    return Sided(
        factor=1.0 if level else max(ratio, _reciprocal(ratio)),
        side="" if level else below if turned else above,
        ends=ends,
    )


def _reciprocal(value: float) -> float:
    return 1 / value if value else math.inf


def _factor_and_side(value: float, above: str, below: str) -> tuple[float, str]:
    return (value, above) if value >= 1 else (_reciprocal(value), below)


def _end(factor: float, side: str, write: Callable[[float, int], str], digits: int, mark: str) -> str:
    text = write(factor, digits)
    if not side or text != "1":
        return f"{mark}{text} {side}".rstrip()
    closer = write(factor, CLOSE_DIGITS)
    return f"{mark}{closer}" if closer == "1" else f"{mark}{closer} {side}"


def bare_factor(value: float, digits: int = 2) -> str:
    """Write a factor without its sign."""
    if math.isinf(value):
        return "∞"
    return f"{value:.{digits}g}" if value < 100 else f"{value:,.0f}"


def ratio_words(tail: Tail) -> str:
    """Describe a ratio with its interval: how much lower or higher the arm lies."""
    return sided_words(sided(tail.ratio, tail.low, tail.high)) if tail.known else "no interval"


def sided_words(found: Sided) -> str:
    """Write a factor, its side and its interval."""
    return f"{times(found.factor)} {found.side}".rstrip() + f", {found.interval(bare_factor, 2, mark='×')}"


def times(value: float) -> str:
    """Write a factor."""
    if not math.isfinite(value):
        return "no value"
    return f"×{bare_factor(value)}"


def nats(value: float) -> str:
    """Write a tail in nats."""
    return f"{sig(value)}" if math.isfinite(value) else "no value"


def number(value: float, digits: int = 3) -> str:
    """Write a metric's mean."""
    return f"{value:.{digits}g}" if math.isfinite(value) else "no value"


def pair(one: float, other: float) -> str:
    """Write two means that differ with as many digits as show it."""
    digits = next((some for some in range(3, MAX_DIGITS) if number(one, some) != number(other, some)), MAX_DIGITS)
    return f"{number(one, digits)} against {number(other, digits)}"
