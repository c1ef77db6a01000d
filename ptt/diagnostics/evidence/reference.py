"""Where policy and reference were equal, and whether the reference moves.

It moves by the run's settings, or by a distance to it that falls back at regular steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.evidence.tokens_by_step import PairSteps
from ptt.diagnostics.model import JsonScalar
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.sawtooth import Sawtooth, find_sawtooth
from ptt.diagnostics.statistics.windows import bursts

TRL_SYNC_STEPS: Final = 512  # TRL's default of `ref_model_sync_steps`
TRL_MIXUP: Final = 0.6  # and of `ref_model_mixup_alpha`: the policy's share in the new reference
INTERVALS: Final = ("ref_update_interval", "ref_policy_update_freq")  # of slime, in rollouts, and of open-instruct
REF_PAIRS: Final = ("policy/ref", "old/ref")
ENGINE_PAIRS: Final = ("old/rollout", "policy/rollout")
MIN_PERIOD: Final = 4  # steps: a reference that moves more often follows the policy, and has no periods to speak of
MAX_EQUAL: Final = 1e-4  # mean KL, nats: of two copies of one model, scored by one trainer, rounding leaves less
MAX_EQUAL_ABS: Final = 0.01  # mean |r|, nats: likewise
MIN_MOVED: Final = 10.0  # times that: a distance that never comes so far may not be measured at all
SAME_SHARE: Final = 0.5  # of the falls of the distance to the reference: the engine's fall too, and it is the engine


@dataclass(frozen=True, kw_only=True)
class SyncSetting:
    """What the settings say of a reference that follows the policy."""

    interval: int  # steps; of slime rollouts
    mixing: float  # the policy's share in the new reference; 1: it becomes the policy
    name: str  # of the setting

    @property
    def counts_steps(self) -> bool:
        """Whether the interval is one of training steps; slime counts rollouts."""
        return self.name != "ref_update_interval"


@dataclass(frozen=True, kw_only=True)
class Reference:
    """What shows whether the reference moves; `seen` is None where no distance to it falls at regular steps."""

    setting: SyncSetting | None
    seen: Sawtooth | None
    seen_in: str | None  # the metric or pair
    watched: tuple[str, ...]  # the distances to the reference that are recorded
    equal_at: int | None = None  # the first recorded step, where policy and reference were equal there

    def period_starts(self, first: int, last: int) -> tuple[int, ...]:
        """Return the steps between two at which a period begins: as seen, else as the settings count them."""
        if self.seen is not None:
            anchor, interval = self.seen.falls[0], self.seen.interval
        elif self.setting is not None and self.setting.counts_steps and self.setting.interval >= MIN_PERIOD:
            anchor, interval = self.setting.interval + 1, self.setting.interval
        else:
            return ()
        return tuple(range(anchor - (anchor - first - 1) // interval * interval, last + 1, interval))


def gather_reference(
    metrics: Mapping[str, Series], pairs: Mapping[str, PairSteps], context: Mapping[str, JsonScalar]
) -> Reference:
    """Look for a moving reference in the settings, the logged KL and the recorded tokens."""
    distances = [metrics["kl/ref"]] if "kl/ref" in metrics else []
    distances += [pairs[name].mean_abs for name in REF_PAIRS if name in pairs]
    seen, seen_in = None, None
    for series in distances:
        found = find_sawtooth(*_by_burst(*series.finite()))
        if found is not None and not _engine_falls_too(found, pairs):
            seen, seen_in = found, series.raw_name
            break
    return Reference(
        setting=sync_setting(context),
        seen=seen,
        seen_in=seen_in,
        watched=tuple(series.raw_name for series in distances),
        equal_at=_equal_at(metrics, pairs),
    )


def _by_burst(steps: IntArray, values: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return one value a burst of recorded steps: its steps share their rollouts, so they differ by less than noise."""
    firsts = np.searchsorted(steps, [span.first for span in bursts(steps.tolist())])
    if len(firsts) == len(steps):
        return steps, values
    return steps[firsts], np.add.reduceat(values, firsts) / np.diff(np.append(firsts, len(steps)))


def _equal_at(metrics: Mapping[str, Series], pairs: Mapping[str, PairSteps]) -> int | None:
    """Return the first step of the run where every distance to the reference recorded there is none, and grew later."""
    limits = {name: MAX_EQUAL_ABS for name in REF_PAIRS if name in pairs}
    distances = [(pairs[name].mean_abs.finite(), limit) for name, limit in limits.items()]
    if "kl/ref" in metrics:
        distances.append((metrics["kl/ref"].finite(), MAX_EQUAL))
    distances = [(series, limit) for series, limit in distances if len(series[0])]
    if not distances:
        return None
    first = min(int(steps[0]) for (steps, _), _ in distances)
    there = [(values, limit) for (steps, values), limit in distances if steps[0] == first]
    equal = all(abs(values[0]) <= limit and values.max() > MIN_MOVED * limit for values, limit in there)
    return first if equal else None


def sync_setting(context: Mapping[str, JsonScalar]) -> SyncSetting | None:
    """Return the setting that moves the reference, None where none does or it is off."""
    if context.get("sync_ref_model") is True:
        interval = _positive(context.get("ref_model_sync_steps"))
        mixing = context.get("ref_model_mixup_alpha")
        share = float(mixing) if isinstance(mixing, int | float) and not isinstance(mixing, bool) else TRL_MIXUP
        return SyncSetting(interval=interval or TRL_SYNC_STEPS, mixing=share, name="sync_ref_model")
    for name in INTERVALS:
        interval = _positive(context.get(name))
        if interval:
            return SyncSetting(interval=interval, mixing=1.0, name=name)
    return None


def _positive(value: JsonScalar) -> int:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and value >= 1 else 0


def _engine_falls_too(found: Sawtooth, pairs: Mapping[str, PairSteps]) -> bool:
    """Return whether trainer and engine come together at the same steps: then the sampler was refreshed there."""
    for name in ENGINE_PAIRS:
        if name not in pairs:
            continue
        steps, values = pairs[name].mean_abs.finite()
        ratios = []
        for fall in found.falls:
            place = int(np.searchsorted(steps, fall))
            before, after = values[max(0, place - 2) : place], values[place : place + 2]
            if len(before) and len(after) and np.median(before) > 0:
                ratios.append(float(np.median(after) / np.median(before)))
        if ratios and np.log(max(float(np.median(ratios)), 1e-9)) < -SAME_SHARE * np.log(found.factor):
            return True
    return False
