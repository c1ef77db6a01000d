"""What a watch looks at: series with limits, bet on step by step, and faults that need no test."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.rules.data_freshness import engine_mismatch
from ptt.diagnostics.rules.exploration import entropy_collapse
from ptt.diagnostics.rules.numerics import gradient_spikes, loss_divergence
from ptt.diagnostics.rules.policy_update import has_more_decimals, kl_over_target
from ptt.diagnostics.rules.reward import reward_fell
from ptt.diagnostics.rules.tool_tail_growth import CRITICAL_P95, HIGH_P95, MATERIAL_P99
from ptt.diagnostics.watch.observed import ObservedStep

MIN_TOKENS: Final = 50  # of a slice at a step: below it p99 is the largest token or two
DOUBLED: Final = 2.0  # times the first level: beyond any noise of healthy steps, of a log-SD of up to 0.25
HALF_MORE: Final = 1.5  # times it: worth a warning
WARN_P95: Final = MATERIAL_P99 / 2  # nats: where p99 is at ln 2, p95 is about half of it
LEFT: Final = 0.1  # of the first entropy
MUCH_ENTROPY, TRIPLED = 2.0, 3.0  # nats a token, and times the first
HUGE_GRADIENT: Final = 30.0  # times the first norm


@dataclass(frozen=True, kw_only=True)
class Past:
    """What limits are made of. first: upper quartile of the first values; of what falls the lower one."""

    first: float
    lowest: float  # of the first values
    best: float  # highest mean of some neighbouring values, or lowest of a loss; NaN before there is one


Limit = Callable[[float, Past], float]
"""A limit from the setting in force and the past; NaN: none by now."""


@dataclass(frozen=True, kw_only=True)
class Watched:
    """A series that a rule watches.

    measure: what a step has of it, None for nothing. warn, stop: limits; stop None: never. falls: below is beyond.
    best: max or min where limits need the best level. setting: name of the limit in the rule's settings, and its
    default. share: of the budget. unsolved: bet on only while the reward says that something is left to learn.
    """

    rule: str
    measure: Callable[[ObservedStep], float | None]
    what: str
    unit: str
    warn: Limit
    stop: Limit | None
    share: float
    falls: bool = False
    unsolved: bool = False
    best: Callable[[float, float], float] | None = None
    setting: tuple[str, float] = ("", math.nan)

    def set_to(self, limits: Mapping[str, Mapping[str, float]]) -> float:
        """Return the setting in force."""
        name, default = self.setting
        return limits.get(self.rule, {}).get(name, default)


def _metric(name: str) -> Callable[[ObservedStep], float | None]:
    return lambda step: step.metrics.get(name)


def _p95(part: str) -> Callable[[ObservedStep], float | None]:
    def measure(step: ObservedStep) -> float | None:
        tail = (step.tails or {}).get(part)
        return tail.p95 if tail is not None and tail.tokens >= MIN_TOKENS else None

    return measure


def _entropy(step: ObservedStep) -> float | None:
    """Return the entropy of a policy over tokens or actions: one of densities may be negative, and has no floor."""
    value = step.metrics.get("entropy")
    return value if value is not None and value >= 0 else None


def _no_entropy(level: float, past: Past) -> float:
    return math.nan if past.lowest <= 0 else min(level, LEFT * past.first)


def _lost(share: float) -> Limit:
    return lambda _, past: (1 - share) * past.best if past.best > 0 <= past.lowest else math.nan


REWARD_FELL: Final = "reward-fell"
STOPPING: Final = (
    Watched(
        rule="tool-tail-growth",
        measure=_p95("post_tool"),
        what="p95 of |r| after tool calls",
        unit=" nats",
        warn=lambda high, past: max(min(WARN_P95, high), HALF_MORE * past.first),
        stop=lambda high, past: max(high, DOUBLED * past.first),
        setting=("high_p95", HIGH_P95),
        share=0.4,
    ),
    Watched(
        rule="tail-growth-everywhere",
        measure=_p95("text_only"),
        what="p95 of |r| before any tool call",
        unit=" nats",
        warn=lambda _, past: max(HIGH_P95, HALF_MORE * past.first),
        stop=lambda _, past: max(CRITICAL_P95, DOUBLED * past.first),
        share=0.1,
    ),
    Watched(
        rule=kl_over_target.ID,
        measure=_metric("kl/ref"),
        what="mean KL to the reference",
        unit=" nats a token",
        warn=lambda limit, past: max(limit, HALF_MORE * past.first),
        stop=lambda limit, past: max(limit * kl_over_target.HIGH_FACTOR, DOUBLED * past.first),
        setting=("limit", kl_over_target.KL_LIMIT),
        share=0.15,
    ),
    Watched(
        rule=REWARD_FELL,
        measure=_metric("reward/mean"),
        what="mean reward",
        unit="",
        warn=_lost(reward_fell.HIGH_FALL_SHARE),
        stop=_lost(reward_fell.ALL_LOST),
        falls=True,
        best=max,
        share=0.1,
    ),
    Watched(
        rule="entropy-collapse",
        measure=_entropy,
        what="entropy",
        unit=" nats a token",
        warn=lambda _, past: _no_entropy(entropy_collapse.FAR_LEVEL, past),
        stop=lambda _, past: _no_entropy(entropy_collapse.ENTROPY_FLOOR, past),
        falls=True,
        unsolved=True,
        share=0.1,
    ),
    Watched(
        rule="entropy-explosion",
        measure=_entropy,
        what="entropy",
        unit=" nats a token",
        warn=lambda _, past: max(MUCH_ENTROPY / 2, DOUBLED * past.first),
        stop=lambda _, past: max(MUCH_ENTROPY, TRIPLED * past.first),
        share=0.05,
    ),
    Watched(
        rule="gradient-spikes",
        measure=_metric("grad_norm"),
        what="gradient norm",
        unit="",
        warn=lambda factor, past: factor * past.first,
        stop=lambda _, past: HUGE_GRADIENT * past.first,
        setting=("factor", gradient_spikes.SPIKE_FACTOR),
        share=0.05,
    ),
    Watched(
        rule="loss-divergence",
        measure=_metric("loss/total"),
        what="loss",
        unit="",
        warn=lambda _, past: max(loss_divergence.BEST_FACTOR * past.best, past.best + loss_divergence.ONLINE_FLOOR),
        stop=lambda _, past: max(DOUBLED * past.best, past.best + loss_divergence.GROSS_MARGIN),
        best=min,
        share=0.05,
    ),
)


def _warning(rule: str, metric: str, limit: float, what: str, *, unit: str = "", factor: float = HALF_MORE) -> Watched:
    return Watched(
        rule=rule,
        measure=_metric(metric),
        what=what,
        unit=unit,
        warn=lambda _, past: max(limit, factor * past.first),
        stop=None,
        share=0.2,
    )


WARNING: Final = (
    _warning("clip-fraction-high", "clip/frac", 0.3, "share of clipped tokens"),
    _warning("truncated-share", "len/clipped_frac", 0.3, "share of truncated answers"),
    _warning("no-signal-groups", "reward/zero_std_frac", 0.8, "share of prompt groups without spread of reward"),
    _warning("tool-failures", "tools/failure_frequency", 0.3, "share of tool calls that fail"),
    _warning("slow-steps", "time/step", 0.0, "time of a step", unit=" seconds", factor=DOUBLED),
)
"""Rules that only warn; each has its share of a second budget."""


@dataclass(frozen=True, kw_only=True)
class Sure:
    """A fault that shows without a test, once it has held at some logged values in a row.

    warn_after, stop_after: values; None: never. of_start: a stop only where it held from the first value on.
    shown_by: whether what else the step logs lets the value be trusted; a step where it does not is passed over.
    """

    rule: str
    metric: str
    broken: Callable[[float], bool]
    warn_after: int
    stop_after: int | None
    says: str
    limit: float = 0.0
    of_start: bool = False
    shown_by: Callable[[ObservedStep], bool] = lambda _: True


OTHER_KL: Final = engine_mismatch.KL * engine_mismatch.HIGH_FACTOR
OTHER_LOGP: Final = engine_mismatch.LOGP_ABS * engine_mismatch.HIGH_FACTOR
OTHER_WEIGHTS: Final = "the engine samples with other weights than the trainer's:"


def _no_number(value: float) -> bool:
    return not math.isfinite(value)


def _prints_small_numbers(step: ObservedStep) -> bool:
    """Return whether a step's other metrics have the decimals of a small rate, which a console may print as 0.000."""
    return has_more_decimals(np.array([value for name, value in step.metrics.items() if name != "lr"], dtype=float))


def _gone(metric: str, says: str, *, broken: Callable[[float], bool] = _no_number, stop_after: int | None) -> Sure:
    return Sure(rule="metrics-lost", metric=metric, broken=broken, warn_after=1, stop_after=stop_after, says=says)


SURE: Final = (
    _gone("loss/total", "the loss is no number", stop_after=3),
    _gone("grad_norm", "the gradient norm is NaN", broken=math.isnan, stop_after=3),
    _gone("kl/ref", "the KL to the reference is no number", stop_after=None),
    Sure(
        rule="learning-rate-zero",
        metric="lr",
        broken=lambda value: value == 0.0,
        warn_after=3,
        stop_after=10,
        says="the learning rate is exactly 0",
        of_start=True,
        shown_by=_prints_small_numbers,
    ),
    Sure(
        rule="engine-mismatch",
        metric="mismatch/kl",
        broken=lambda value: abs(value) > OTHER_KL,
        warn_after=1,
        stop_after=3,
        says=f"{OTHER_WEIGHTS} its KL is past 1 nat a token",
        limit=OTHER_KL,
    ),
    Sure(
        rule="engine-mismatch",
        metric="mismatch/logp_abs_mean",
        broken=lambda value: value > OTHER_LOGP,
        warn_after=1,
        stop_after=3,
        says=f"{OTHER_WEIGHTS} logprobs differ by more than half a nat on average",
        limit=OTHER_LOGP,
    ),
)
STUCK_WARNING, STUCK_STOP = 20, 250  # logged rewards, all exactly equal, from the first one on: see the rule
