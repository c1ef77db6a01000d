"""Which way each metric gets worse, and below which level a ratio of it means nothing; each with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ptt.diagnostics.baseline.values import Worse


@dataclass(frozen=True, kw_only=True)
class Direction:
    """How one metric is held against a baseline.

    floor: a level below it counts as this much: a quarter more of nearly nothing is nearly nothing.
    signed: the metric may lie on either side of zero, where its level is no yardstick; the scatter of its values is
    one then.
    """

    worse: Worse
    why: str
    floor: float = 0.0
    signed: bool = False


DIRECTIONS: Final[Mapping[str, Direction]] = {
    "reward/mean": Direction(worse=Worse.LOWER, why="it is what training is for", signed=True),
    "kl/ref": Direction(
        worse=Worse.HIGHER,
        why="the policy left its reference further",
        floor=0.1,  # nats a token: a third of what kl-over-target raises an alarm at
    ),
    "kl/old": Direction(
        worse=Worse.HIGHER, why="updates were larger than the clip is made for", floor=0.005
    ),  # trust regions aim at 0.01 to 0.02
    "entropy": Direction(
        worse=Worse.BOTH,
        why="a fall is lost exploration, a rise a policy that comes apart",
        floor=0.1,  # nats a token: below it most tokens are certain, and answers differ by the task
    ),
    "grad_norm": Direction(worse=Worse.HIGHER, why="larger gradients come before divergence"),
    "clip/frac": Direction(worse=Worse.HIGHER, why="more tokens lose their gradient", floor=0.02),
    "len/response_mean": Direction(
        worse=Worse.BOTH, why="longer answers cost and hide hacking, shorter ones stop reasoning", floor=8.0
    ),
    "len/clipped_frac": Direction(worse=Worse.HIGHER, why="more answers are cut before they end", floor=0.05),
    "tools/failure_frequency": Direction(worse=Worse.HIGHER, why="more tool calls fail", floor=0.05),
    "tools/malformed_frequency": Direction(worse=Worse.HIGHER, why="more tool calls cannot be parsed", floor=0.05),
    "mismatch/kl": Direction(
        worse=Worse.HIGHER, why="trainer and inference engine agree less", floor=0.005
    ),  # numerics of a healthy engine in bf16 lie below
    "mismatch/logp_abs_mean": Direction(worse=Worse.HIGHER, why="trainer and inference engine agree less", floor=0.02),
    "is/ess_frac": Direction(worse=Worse.LOWER, why="fewer samples carry the update", floor=0.1),
    "staleness/mean": Direction(worse=Worse.HIGHER, why="samples come from older policies", floor=1.0),
    "critic/explained_variance": Direction(
        worse=Worse.LOWER, why="the critic predicts returns less", floor=0.2, signed=True
    ),
    "dpo/accuracy": Direction(worse=Worse.LOWER, why="chosen answers win less often", floor=0.1),
    "dpo/margin": Direction(worse=Worse.LOWER, why="chosen and rejected answers are told apart less", signed=True),
    "sft/token_accuracy": Direction(worse=Worse.LOWER, why="fewer tokens are predicted", floor=0.1),
    "sft/perplexity": Direction(worse=Worse.HIGHER, why="given answers are less likely"),
}
"""Others are kept and shown, not judged: the loss of a policy gradient says little by its value, more tool calls or
turns are neither better nor worse, times depend on the machine. A policy may name them with a direction of its own."""

NAMED: Final = "the policy names it"


def directions_for(chosen: Mapping[str, Worse] | None) -> Mapping[str, Direction]:
    """Give how metrics are judged: those of the table, or those that a policy chose, each the way it says."""
    if chosen is None:
        return DIRECTIONS
    found = {}
    for name, worse in chosen.items():
        known = DIRECTIONS.get(name)
        # without a reason of ours nothing is known of a metric's range: it may be signed
        found[name] = Direction(
            worse=worse,
            why=known.why if known is not None and known.worse is worse else NAMED,
            floor=known.floor if known else 0.0,
            signed=known.signed if known else True,
        )
    return found
