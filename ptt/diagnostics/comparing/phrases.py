"""The words and numbers that sentences of a comparison are made of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from ptt.diagnostics.comparing.reading import Tail

METRICS: Final = {
    "kl/ref": "mean KL",
    "reward/mean": "reward",
    "grad_norm": "gradient norm",
    "loss/total": "loss",
    "len/response_mean": "response length",
    "tools/call_frequency": "tool use",
}
LABELS: Final = {"post_tool": "post-tool", "post_observation": "post-observation", "text_only": "text-only"}


def figure_name(row: Mapping[str, object]) -> str:
    """Name a figure of the table `divergence` in prose."""
    what, of = str(row["what"]), row["slice"]
    return f"{LABELS.get(str(of), str(of))} {what}" if of is not None else METRICS.get(what, what)


def against(tail: Tail) -> str:
    """Tell a ratio with its interval: how much lower or higher the arm lies."""
    if not tail.known:
        return "no interval"
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


def number(value: float) -> str:
    """Write a metric's mean."""
    return f"{value:.3g}" if math.isfinite(value) else "no value"
