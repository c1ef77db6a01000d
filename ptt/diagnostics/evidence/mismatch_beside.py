"""What metrics beside a mismatch tell of its cause: the reward, the distance from the reference, the updates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from ptt.diagnostics.evidence.mismatch_causes import Sign, sign
from ptt.diagnostics.evidence.series import MIN_LOGGED, Series
from ptt.diagnostics.evidence.training_setup import TrainingSetup
from ptt.diagnostics.model import JsonScalar
from ptt.diagnostics.statistics.arrays import FloatArray
from ptt.diagnostics.statistics.level_jump import scatter_of
from ptt.diagnostics.statistics.trend import classify_trend
from ptt.diagnostics.wording import sig

OF_LOGPROBS: Final = ("mismatch/logp_abs_mean", "mismatch/ppl_diff", "old/rollout mean_abs", "policy/rollout mean_abs")
"""Those in nats a token."""
BEYOND_SCATTER: Final = 3.0  # standard deviations: of the reward before, or of the sizes of the steps that are off
CRASHED: Final = 0.5  # of the size of the reward, that is lost as the mismatch jumps
AT_START: Final = 0.3  # of what the reward had risen by: so near is it to the level at which it began
RISEN: Final = 0.2  # of its level: less is no rise to lose
NORMAL_MAD: Final = 1.4826  # times the median absolute deviation: the standard deviation of a normal distribution
UNEVEN: Final = 1.5  # times, the spread from step to step: a mean over thousands of tokens spreads by less
SANE: Final = 0.1  # of a reward from 0 to 1: an engine with broken weights earns less
CUT_OFF: Final = 0.5  # of the answers: one with broken weights does not end them
OWN_RATIO: Final[Mapping[str, tuple[float, float]]] = {
    "clip/frac": (0.0, 0.01), "kl/old": (0.0, 0.001), "probs_ratio": (1.0, 0.0005),
}  # fmt: skip
"""Of the trainer's two forwards on a batch: the value where they are equal, and what their rounding does not reach."""
BATCHES: Final = (
    (("train_batch_size",), "ppo_mini_batch_size", "ppo_epochs"),
    (("train_batch_size",), "policy_mini_batch_size", "update_epochs_per_batch"),
    (("num_prompts_per_step", "num_generations_per_prompt"), "train_global_batch_size", ""),
    (("rollout_batch_size", "n_samples_per_prompt"), "global_batch_size", ""),
)
"""What is sampled a step and taken an update, and how often, as veRL, SkyRL, NeMo-RL and slime name them."""
OLD_BY_ENGINE: Final = (
    "bypass_mode", "bypass_old_logprob_for_rollout", "use_rollout_logprobs", "use_rollout_log_probs",
    "force_on_policy_ratio",
)  # fmt: skip


def unmoved(metrics: Mapping[str, Series]) -> Iterator[Sign]:
    """Look for a run whose gradient is 0 at every step: no weights of it ever changed."""
    norm = metrics.get("grad_norm")
    values = np.zeros(0) if norm is None else norm.finite()[1]
    if norm is not None and len(values) >= MIN_LOGGED and not values.any():
        yield sign("unmoved", name=norm.raw_name)


def uneven(values: FloatArray) -> Iterator[Sign]:
    """Look for a level that differs from step to step by more than a mean over many tokens does."""
    logs = np.log(values[values > 0])
    spread = math.exp(NORMAL_MAD * float(np.median(np.abs(logs - np.median(logs))))) if len(logs) else 1.0
    if spread >= UNEVEN:
        yield sign("uneven", spread=sig(spread))


def answers_hold(metrics: Mapping[str, Series]) -> Iterator[Sign]:
    """Look for answers that are still rewarded and end: then the engine's weights make sense."""
    reward, cut = (metrics.get(name) for name in ("reward/mean", "len/clipped_frac"))
    shares = np.zeros(0) if cut is None else cut.finite()[1]
    if reward is None or (len(shares) and float(np.median(shares)) >= CUT_OFF):
        return
    values = reward.finite()[1]
    if len(values) >= MIN_LOGGED and values.max() <= 1 and float(np.median(values)) >= SANE:
        yield sign("answers_hold", name=reward.raw_name, reward=sig(float(np.median(values))))


def own_forwards(metrics: Mapping[str, Series], other: Mapping[str, Series], setup: TrainingSetup) -> Iterator[Sign]:
    """Look for a trainer that differs from itself: its ratio before the one update on a batch is not 1."""
    if any(_set(setup, name) is True for name in OLD_BY_ENGINE) or not _one_update(setup):
        return
    ends = {series.raw_name.rpartition("/")[2]: series for series in other.values()}
    for name, (equal, most) in OWN_RATIO.items():
        series = metrics.get(name) or ends.get(name)
        values = np.zeros(0) if series is None else series.finite()[1]
        if series is not None and len(values) >= MIN_LOGGED and float(np.median(np.abs(values - equal))) > most:
            yield sign("own_forwards", name=series.raw_name, value=sig(float(np.median(values))))
            return


def _one_update(setup: TrainingSetup) -> bool:
    for sampled, update, epochs in BATCHES:
        sizes = [_set(setup, name) for name in (*sampled, update)]
        if all(isinstance(size, int) for size in sizes) and _set(setup, epochs) in (None, 1):
            *parts, taken = (int(size) for size in sizes if isinstance(size, int))
            return math.prod(parts) == taken
    return False


def _set(setup: TrainingSetup, name: str) -> JsonScalar:
    return next((value for key, value in setup.settings.items() if key == name or key.endswith(f".{name}")), None)


def reward_at(metrics: Mapping[str, Series], at: int) -> Iterator[Sign]:
    """Tell a reward that is lost as the mismatch jumps, or is back where it began."""
    reward = metrics.get("reward/mean")
    if reward is None:
        return
    steps, values = reward.finite()
    width = reward.width
    before, after = values[steps < at], values[steps >= at][:width]
    if not len(before) or not len(after):
        return
    start, level, now = (float(np.median(part)) for part in (before[:width], before[-width:], after))
    usual = float(np.median(before))
    if level - start >= RISEN * abs(level) and abs(now - start) <= AT_START * (level - start):
        yield sign("reward_at_start", before=sig(level), after=sig(now), start=sig(start))
    elif usual - now > max(CRASHED * abs(usual), BEYOND_SCATTER * scatter_of(before)):
        yield sign("reward_crashes", before=sig(level), after=sig(now))


def reward_beside(metrics: Mapping[str, Series]) -> Iterator[Sign]:
    """The reward is measured on what the engine samples: it cannot move where the engine's weights do not."""
    reward = metrics.get("reward/mean")
    if reward is None:
        return
    values = reward.finite()[1]
    trend, *halves = map(classify_trend, (values, values[: len(values) // 2], values[len(values) // 2 :]))
    if {*halves} == {"rose", "fell"}:  # and is back where it was
        trend = halves[0]
    if trend == "flat":
        yield sign("reward_flat")
    elif trend in {"rose", "fell"}:
        yield sign("reward_moves", trend=trend)


def reference_beside(level: Series, metrics: Mapping[str, Series]) -> Iterator[Sign]:
    """An engine with the initial weights is as far from the trainer as the reference, which is the initial model.

    The mean of r - log r - 1 lies between half the square of the mean |r| and the mean |r|, or twice as far.
    """
    reference = metrics.get("kl/ref")
    if reference is None or level.name not in OF_LOGPROBS or not len(reference.finite()[1]):
        return
    away, kl = float(np.median(level.values[-level.width :])), float(np.median(reference.finite()[1][-level.width :]))
    near = away**2 / 4 <= kl <= 2 * away
    if kl > 0:
        yield sign("near_reference" if near else "off_reference", kl=sig(kl), late=sig(away))
