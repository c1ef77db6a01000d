"""What a bound may be on: a logged metric, a tail of the log-ratios, or an effective sample size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from ptt.diagnostics.metrics.aliases import canonical_names
from ptt.diagnostics.statistics.bins import HIGHEST_EXPONENT

SLICES: Final = ("text_only", "post_tool", "post_observation")
QUANTILES: Final = ("p95", "p99")
POOLED: Final = "pooled"
"""The only level of a tail or an effective sample size: that of all tokens of the window together."""
TAIL, ESS, LOGGED = "tail.", "ess.", "logged:"


@dataclass(frozen=True, kw_only=True)
class Logged:
    """A metric by its canonical name, or as its writer spelt it."""

    name: str
    exact: bool = False  # only as its writer spelt it


@dataclass(frozen=True, kw_only=True)
class Tail:
    """A percentile of |r| over the tokens of one slice."""

    slice: str
    quantile: str


@dataclass(frozen=True, kw_only=True)
class Ess:
    """The effective sample size of one slice's token weights, as a share of its tokens."""

    slice: str


Subject = Logged | Tail | Ess


def name_of(subject: Subject) -> str:
    """Spell a subject as the settings do."""
    match subject:
        case Logged(name=name, exact=exact):
            return LOGGED + name if exact else name
        case Tail(slice=slice_, quantile=quantile):
            return f"{TAIL}{slice_}.{quantile}"
        case Ess(slice=slice_):
            return ESS + slice_


_SHARE: Final = (0.0, 1.0)
_NOT_NEGATIVE: Final = (0.0, math.inf)
RANGES: Final[Mapping[str, tuple[float, float]]] = MappingProxyType(
    {
        **dict.fromkeys(
            ("clip/frac", "clip/frac_low", "clip/frac_high", "reward/zero_std_frac", "len/clipped_frac",
             "len/empty_frac", "mask/share", "turns/limit_frac", "tools/failure_frequency", "tools/malformed_frequency",
             "is/ess_frac", "idle/trainer", "idle/rollout", "dpo/accuracy", "sft/token_accuracy"),
            _SHARE,
        ),
        **dict.fromkeys(
            ("grad_norm", "reward/std", "advantage/std", "len/response_mean", "mismatch/logp_abs_mean",
             "mismatch/logp_abs_max", "mismatch/prob_diff", "is/ratio_mean", "is/ratio_min", "is/ratio_max", "lr",
             "tools/call_frequency", "tools/latency_mean", "turns/mean", "staleness/mean", "staleness/max", "time/step",
             "time/wait_rollout", "time/wait_trainer", "time/generation", "time/update", "throughput/tokens",
             "tokens/step", "tokens/seen", "mem/peak_gb", "mem/host_gb", "loss_scale", "critic/value_loss", "entropy"),
            _NOT_NEGATIVE,
        ),
        "policy/cosine_to_ref": (-1.0, 1.0),
        "critic/explained_variance": (-math.inf, 1.0),
        "orpo/log_odds_ratio": (-math.inf, 0.0),  # a log sigmoid
        "sft/perplexity": (1.0, math.inf),
    }
)  # fmt: skip
"""Between which values a metric lies whatever the run. KL and losses stand in none: their estimators may leave the
range of what they estimate."""
SHARES: Final = "accuracy"
"""How the last part of a name ends that is a share or a percentage, whoever logs it: never negative."""
NO_FLOOR: Final = ("kl/ref",)
"""A min at or below zero says nothing of these: k3 is never negative, and k1 by its noise alone."""
LARGEST_TAIL: Final = 2.0**HIGHEST_EXPONENT  # nats: bins of |r| end there, larger ones are placeholders
COUNTERS: Final = frozenset({"tokens/seen", "tokens/step", "throughput/tokens", "loss_scale"})
MOST_LEVEL: Final = 1e6
"""Of a level without a known end. Rewards, KL, losses and norms are of the order of one, and of some thousand in a run
that comes apart; a bound beyond a million lies there to let everything pass."""
MOST_COUNT: Final = 1e15
"""Of what counts, and of names that are the writer's own and may: the longest trainings see some 1e14 tokens."""
STEEPEST: Final = 25 / 165
"""Of the range of a metric: the steepest straight line through ten values (the least a window has) a step apart is that
of five at one end of the range and five at the other."""


def largest_of(subject: Subject, canonical: str | None) -> float:
    """Give the largest bound, of either sign, that could be meant where a statistic has no known end."""
    counts = canonical in COUNTERS or (isinstance(subject, Logged) and canonical not in canonical_names())
    return MOST_COUNT if counts else MOST_LEVEL


def range_of(subject: Subject, statistic: str, canonical: str | None) -> tuple[float, float]:
    """Give between which values a statistic of a subject lies, whatever the run."""
    match subject:
        case Tail():
            low, high = 0.0, LARGEST_TAIL
        case Ess():
            low, high = _SHARE
        case Logged():
            share = subject.name.rsplit("/", 1)[-1].endswith(SHARES)
            low, high = RANGES.get(canonical or "", _NOT_NEGATIVE if share else (-math.inf, math.inf))
    match statistic:
        case "change":
            return low - high, high - low
        case "ratio":
            return 0.0, math.inf
        case "slope":
            return STEEPEST * (low - high), STEEPEST * (high - low)
        case _:
            return low, high
