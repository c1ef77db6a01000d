"""What the recorded tokens say step by step: the spread of each pair's log-ratio, and what the loss is made from."""

from __future__ import annotations

from dataclasses import dataclass

from ptt.diagnostics.evidence.series import Series


@dataclass(frozen=True, kw_only=True)
class PairSteps:
    """The log-ratio r of one pair by recorded step, over all model tokens."""

    pair: str
    p99: Series  # of |r|, nats
    p999: Series
    mean_abs: Series


@dataclass(frozen=True, kw_only=True)
class Signal:
    """What the loss is made from, by recorded step; None where it is not recorded."""

    advantage_std: Series | None = None  # over the samples of a step
    masked: Series | None = None  # share of the policy's own tokens that got no gradient
    empty: Series | None = None  # share of sequences with at most one token of the policy's
