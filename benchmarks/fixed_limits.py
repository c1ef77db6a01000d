"""Live rules with fixed limits, as two other tools have them, re-written for the metrics that made runs log.

Microsoft's post-training toolkit (`DiagnosticsCallback(stop_on_critical=True)`, models/heuristics.py and
heuristics/builtin): every 10 logged steps, from the 10th on, over the last 200 rows; a heuristic of high severity ends
training. rl-doctor 0.2.0 (`rl_doctor.live.LiveMonitor`): every 25 records from the 60th on; it alerts on a warning and
ends nothing, so its critical findings are taken for stops. Its entropy projection and plateau rule, which fire on many
healthy runs, are left out. Both look at logged metrics; neither sees tails.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from benchmarks.loop.noise import FloatArray

Series = Mapping[str, FloatArray]


@dataclass(frozen=True, kw_only=True)
class Rival:
    """A tool's live rules: when they look, and whether they fire on the metrics so far."""

    name: str
    first: int
    every: int
    last: int | None  # rows that are looked at; None: all
    stops: Callable[[Series], bool]
    only_warns: bool = False


def _mean(values: FloatArray, count: int, *, head: bool = False) -> float:
    some = values[:count] if head else values[-count:]
    return float(np.nanmean(some)) if len(some) else math.nan


def _kl_cap(rows: Series) -> bool:
    return bool((rows.get("kl/ref", np.zeros(0)) > 0.3).any())


def _entropy_low(rows: Series) -> bool:
    entropy = rows.get("entropy", np.zeros(0))
    return len(entropy) >= 30 and _mean(entropy, 30) < 0.1


def _entropy_halved(rows: Series) -> bool:
    entropy = rows.get("entropy", np.zeros(0))
    return len(entropy) >= 50 and _mean(entropy, 30) < 0.5 * _mean(entropy, 30, head=True)


def _gradient(rows: Series) -> bool:
    norm = rows.get("grad_norm", np.zeros(0))
    return len(norm) >= 50 and norm[-1] > 10 * _mean(norm, min(50, len(norm) // 3), head=True)


def _mode_collapse(rows: Series) -> bool:
    """The mean entropy lies below 1 nat, as that of most language models in training does."""
    entropy = rows.get("entropy", np.zeros(0))
    return len(entropy) > 30 and _mean(entropy, 30) < 1.0


def _instability(rows: Series) -> bool:
    """A rolling mean of squared z-scores of reward and KL passes 2, which their own definition makes them."""
    reward, kl = rows.get("reward/mean"), rows.get("kl/ref")
    if reward is None or kl is None or len(reward) < 30:
        return False
    both = np.stack([reward, kl])
    squares = np.square((both - both.mean(axis=1, keepdims=True)) / np.maximum(both.std(axis=1, keepdims=True), 1e-12))
    rolled = np.convolve(squares.sum(axis=0), np.ones(30) / 30, mode="valid")
    return bool((rolled >= 2.0).any())


def _microsoft(rows: Series) -> bool:
    return any(rule(rows) for rule in (_kl_cap, _entropy_low, _entropy_halved, _gradient, _mode_collapse, _instability))


def _microsoft_kept(rows: Series) -> bool:
    return any(rule(rows) for rule in (_kl_cap, _entropy_low, _entropy_halved, _gradient))


def _slope(values: FloatArray) -> float:
    return float(np.polyfit(np.arange(len(values)), values, 1)[0]) if len(values) > 1 else 0.0


def _tail(values: FloatArray) -> float:
    return float(np.median(values[-max(3, len(values) // 10) :]))


def _rl_doctor(rows: Series) -> bool:
    reward = rows.get("reward/mean")
    rising = reward is not None and _slope(reward[-max(8, len(reward) // 2) :]) > 0
    kl, entropy, norm = (rows.get(name) for name in ("kl/ref", "entropy", "grad_norm"))
    far = kl is not None and _tail(kl) >= 2.0 and not rising
    gone = entropy is not None and _tail(entropy) <= 0.1 * float(np.median(entropy[: max(3, len(entropy) // 10)]))
    return bool(far or (gone and not rising) or (norm is not None and not np.isfinite(norm).all()))


def _rl_doctor_warns(rows: Series) -> bool:
    kl = rows.get("kl/ref")
    if kl is not None and len(kl) >= 16:
        half, now = len(kl) // 2, _tail(kl)
        accelerates = _slope(kl[half:]) > max(_slope(kl[:half]), 0.0) * 1.5 and _slope(kl[half:]) > 0
        if now >= 2.0 or (accelerates and now >= 0.5):
            return True
    return _rl_doctor(rows)


RIVALS = (
    Rival(name="Microsoft's callback, all high rules", first=10, every=10, last=200, stops=_microsoft),
    Rival(name="the same without two rules that any run trips", first=10, every=10, last=200, stops=_microsoft_kept),
    Rival(name="rl-doctor, critical", first=60, every=25, last=None, stops=_rl_doctor),
    Rival(name="rl-doctor, warning", first=60, every=25, last=None, stops=_rl_doctor_warns, only_warns=True),
)


def first_stop(rival: Rival, series: Series, count: int, after: int = 0) -> int | None:
    """Return the first step, from 1, at which the rules fire; `after`: only looks after this step count."""
    for seen in range(rival.every, count + 1, rival.every):
        if seen < rival.first or seen <= after:
            continue
        begin = 0 if rival.last is None else max(0, seen - rival.last)
        if rival.stops({name: values[begin:seen] for name, values in series.items()}):
            return seen
    return None
