"""The quality card of an export: what it covers, how it leans, what was left out and why."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from ptt.diagnostics.model import Interval

Z95: Final = 1.96
MIN_PROMPTS: Final = 10  # fewer clusters give an interval that is too narrow


@dataclass
class ClusteredMean:
    """A mean over rows with an interval over prompts: rows of one prompt share attempts."""

    rows: int = 0
    total: float = 0.0
    clusters: int = 0
    _squares: float = 0.0  # of the sums of a prompt
    _products: float = 0.0  # of sums and counts
    _counts: float = 0.0  # of the counts, squared

    def add(self, values: list[float]) -> None:
        """Take the values of one prompt."""
        if not values:
            return
        count, total = len(values), math.fsum(values)
        self.rows += count
        self.total += total
        self.clusters += 1
        self._squares += total * total
        self._products += total * count
        self._counts += count * count

    @property
    def mean(self) -> float | None:
        """Return the mean over rows."""
        return self.total / self.rows if self.rows else None

    @property
    def interval(self) -> Interval | None:
        """Return the 95% interval by the linearised variance of a ratio of sums; None with few prompts."""
        if self.mean is None or self.clusters < MIN_PROMPTS:
            return None
        spread = self._squares - 2 * self.mean * self._products + self.mean**2 * self._counts
        error = math.sqrt(max(0.0, spread) * self.clusters / (self.clusters - 1)) / self.rows
        return self.mean - Z95 * error, self.mean + Z95 * error


@dataclass
class Card:
    """What one exported file holds, counted while it is written."""

    kind: str
    file: str
    rows: int = 0
    prompts: int = 0  # with a row
    left_out: Counter[str] = field(default_factory=Counter)
    truncated: int = 0  # rows with a truncated episode
    with_calls: int = 0  # rows whose completion calls a tool
    malformed: int = 0  # rows with a call whose arguments are no object
    with_tools: int = 0  # rows that define tools
    split: int = 0  # rows of a single turn, since others speak between the turns of their episode
    with_tool_output: int = 0  # rows in whose trained side tools or users speak
    weak: int = 0  # pairs on one attempt against one
    templated: int = 0  # rows whose prompt holds markers of a chat template
    overlapping: int = 0  # rows that share a run of words with the evaluation set
    of_evaluation: int = 0  # rows of episodes of an evaluation
    margins: ClusteredMean = field(default_factory=ClusteredMean)
    chosen_longer: ClusteredMean = field(default_factory=ClusteredMean)  # 1, 0, or 0.5 where both are as long
    log_ratio: ClusteredMean = field(default_factory=ClusteredMean)  # of chosen over rejected length
    masked: int = 0  # rows in which a key or token is masked
    positive: int = 0  # rows of KTO whose label is true


@dataclass
class ExportReport:
    """An export as a whole, with a card for each file."""

    episodes: int = 0
    unusable: Counter[str] = field(default_factory=Counter)  # episodes without a row anywhere, by reason
    trimmed: int = 0  # episodes whose messages after the last assistant turn were cut
    merged: int = 0  # assistant messages joined with the one before
    masked: int = 0  # episodes in which a key or token is masked
    masked_texts: int = 0
    reworded_tasks: int = 0  # tried more than once, each time from another prompt
    prompts: int = 0  # distinct: messages, tools, task and group
    labelled_prompts: int = 0  # with an episode of known success or reward
    contrasted_prompts: int = 0  # with better and worse episodes
    cards: list[Card] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    tail_episodes: int | None = None  # those that hold most tail tokens, where pairs are made of their prompts alone
    eval_items: int | None = None
    eval_stride: int = 1  # one run of words in so many was compared
