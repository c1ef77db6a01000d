"""What the rules on freshness share: how old rollouts were, how far from the trainer, and one by the other."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import MIN_LOGGED, Series
from ptt.diagnostics.rules.single_series import aligned, selected

MIN_STEPS: Final = 6  # recorded steps with a lag: fewer tell of no habit
FRESHEST_SHARE: Final = 0.1  # of the steps: so fresh that what is left of a distance is the engine's
MIN_ABOVE: Final = 0.8  # of pairs of a stale and a fresh step, the stale one lies further off
MIN_FACTOR: Final = 2.0  # its median, over the fresh ones'
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
    """Return the mean lag by step: as the trainer logs it, else from the versions of the recorded sequences."""
    series = evidence.metrics.get("staleness/mean")
    if series is not None and len(series.finite()[0]) >= MIN_LOGGED:
        return series
    recorded = evidence.freshness.lag if evidence.freshness is not None else None
    return recorded if recorded is not None and len(recorded.finite()[0]) >= MIN_STEPS else None


def response(evidence: Evidence, lag: Series, limit: float) -> Response | None:
    """Return how stale steps differ from fresh ones in their distance to the trainer; None where nothing shows it."""
    for name, series in _distances(evidence):
        _, ages, distances = aligned(lag, series)
        stale, fresh = distances[ages > limit], distances[~(ages > limit)]
        if min(len(stale), len(fresh)) < MIN_EACH:
            continue
        above = float(np.searchsorted(np.sort(fresh), stale, side="left").mean()) / len(fresh)
        high, low = float(np.median(stale)), float(np.median(fresh))
        if above >= MIN_ABOVE and high >= MIN_FACTOR * low and high >= MATERIAL[name]:
            return Response(series.raw_name, low, high)
    return None


def freshest(evidence: Evidence, series: Series) -> Series:
    """Return the steps of the freshest tenth of the lags, where distances grow with the lag; all of them elsewhere.

    What is near nothing where the rollouts are fresh is staleness, and no fault of the engine's.
    """
    lag = lag_of(evidence)
    if lag is None:
        return series
    ages = lag.finite()[1]
    if response(evidence, lag, float(np.median(ages))) is None:
        return series
    steps, lags, _ = aligned(lag, series)
    if len(steps) < 2 * MIN_STEPS:
        return series
    oldest = np.sort(lags)[max(MIN_STEPS, int(FRESHEST_SHARE * len(lags))) - 1]
    return selected(series, np.isin(series.steps, steps[lags <= oldest]))


def _distances(evidence: Evidence) -> list[tuple[str, Series]]:
    pairs = [evidence.pairs[name].p99 for name in ("old/rollout", "policy/rollout") if name in evidence.pairs]
    logged = [(name, evidence.metrics[name]) for name in MATERIAL if name in evidence.metrics]
    return [*(("p99", series) for series in pairs), *logged]
