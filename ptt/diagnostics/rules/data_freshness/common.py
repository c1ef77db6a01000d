"""What the rules on freshness share: how old rollouts were, how far from the trainer, and one by the other."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import MIN_LOGGED, Series
from ptt.diagnostics.rules.common import joined

MIN_STEPS: Final = 6  # recorded steps with a lag: fewer tell of no habit
RESPONDS: Final = 0.8  # of pairs of a stale and a fresh step, the stale one lies further off
TIMES: Final = 2.0  # its median, over the fresh ones'
MIN_EACH: Final = 3  # steps on either side
MATERIAL: Final = {  # what a distance must reach to matter, by what is measured
    "p99": 0.2,  # nats: the usual clip range, for one token in a hundred
    "mismatch/kl": 0.01,
    "mismatch/logp_abs_mean": 0.05,
    "clip/frac": 0.1,
}


class Response(NamedTuple):
    """How far stale steps lie from the trainer, beside fresh ones."""

    measured: str
    fresh: float
    stale: float


def lag_of(evidence: Evidence) -> Series | None:
    """Give the mean lag by step: as the trainer logs it, else from the versions of the recorded sequences."""
    series = evidence.metrics.get("staleness/mean")
    if series is not None and len(series.finite()[0]) >= MIN_LOGGED:
        return series
    held = evidence.freshness.lag if evidence.freshness is not None else None
    return held if held is not None and len(held.finite()[0]) >= MIN_STEPS else None


def response(evidence: Evidence, lag: Series, limit: float) -> Response | None:
    """Give how stale steps differ from fresh ones in their distance to the trainer; None where nothing shows it."""
    for name, series in _distances(evidence):
        steps, ages, far = joined(lag, series)
        old = ages > limit
        if len(steps) < 2 * MIN_EACH or min(old.sum(), (~old).sum()) < MIN_EACH:
            continue
        stale, fresh = far[old], far[~old]
        above = float((stale[:, None] > fresh[None, :]).mean())
        high, low = float(np.median(stale)), float(np.median(fresh))
        if above >= RESPONDS and high >= TIMES * low and high >= MATERIAL[name]:
            return Response(series.raw_name, low, high)
    return None


def _distances(evidence: Evidence) -> list[tuple[str, Series]]:
    pairs = [evidence.pairs[name].p99 for name in ("old/rollout", "policy/rollout") if name in evidence.pairs]
    logged = [(name, evidence.metrics[name]) for name in MATERIAL if name in evidence.metrics]
    return [*(("p99", series) for series in pairs), *logged]
