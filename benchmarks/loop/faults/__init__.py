"""The table of contents of all faults that are put into healthy runs."""

from __future__ import annotations

from typing import Final

from benchmarks.loop.faults import (
    environment,
    infrastructure,
    learning_rates,
    machines,
    offline,
    rewards,
    texts,
    updates,
)
from benchmarks.loop.faults.fault import Fault

FAULTS: Final[tuple[Fault, ...]] = (
    *environment.FAULTS,
    *infrastructure.FAULTS,
    *rewards.FAULTS,
    *texts.FAULTS,
    *updates.FAULTS,
    *learning_rates.FAULTS,
    *machines.FAULTS,
    *offline.FAULTS,
)
NOT_MADE: Final = (
    "old-logprobs-off",
    "versions-unknown",
    "failures-under-load",
    "tool-diversity",
    "reward-jump",
    "mismatch-after-tools",
    "moving-reference",
    "reference-swapped",
    "rank-mismatch",
    "negative-entropy-bonus",
    "trained-on-failures",
    "silent-timeouts",
    "right-answers-unpaid",
    "data-position-lost",
    "steps-without-update",
    "mean-over-turns",
    "old-weights-in-batch",
    "advantages-against-rewards",
    "advantages-of-other-samples",
    "groups-of-other-prompts",
    "groups-of-one",
    "batch-wide-advantages",
    "advantages-off-centre",
    "kl-spikes",
    "entropy-excursions",
    "length-excursions",
    "slow-steps",
)
"""Seen in recorded sequences, timed calls or counters alone, a setting, under another name here, no failure, or what
comes and goes: faults that last are put into these runs."""

__all__ = ["FAULTS", "NOT_MADE", "Fault"]
