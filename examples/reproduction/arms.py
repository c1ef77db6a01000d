"""Define a run's setting, and the five arms of the experiment: each differs from the baseline in one thing.

The healthy control alone changes everything that should keep a run healthy: it shows what the figures look like then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

SEEDS: Final = (1, 2, 3)
FULL_STEPS: Final = 320  # enough for the baseline's tails to grow beyond doubt
SMALL_STEPS: Final = 120  # fifteen such runs take two cores ten minutes; intervals are half as wide again


@dataclass(frozen=True, kw_only=True)
class Setting:
    """All that defines a run besides its seed and length. Times are shares of the run."""

    diverse: bool = True  # how the tools answer: see world.py
    failure_rate: float = 0.02  # share of calls that raise
    learning_rate: float = 2e-4
    beta: float = 0.001  # weight of the KL penalty; above 0 so that the reference's logprobs are recorded at all
    sync_every: int | None = None  # steps after which the reference takes over some of the policy's weights

    # One guard each; the experiment itself leaves them alone.
    epsilon: float = 0.2  # clip range of policy/old
    mask_above: float | None = None  # nats a token, old over policy: a sequence of negative advantage is left out above
    drop_errored: bool = False  # an answer with a call that raised gets advantage 0

    # One switch each for the failure gallery; the experiment itself leaves them alone.
    reward: Literal["task", "activity"] = "task"  # what is paid: right answers, or calls and words
    reward_factor: float = 1.0
    infinite_reward: bool = False  # for one answer
    sampler: Literal["policy", "bfloat16", "stale"] = "policy"
    bad_rank: int | None = None  # the only rank with the sampler above
    entropy_coef: float = 0.0  # weight of the entropy bonus; below 0 the loss pays for certainty
    nan_loss: bool = False  # at one step
    late_failure_rate: float | None = None  # what `failure_rate` rises to
    failing_tool: str | None = None  # the only tool that fails more often
    slow_tool: str | None = None
    lying_tools: bool = False  # `lookup` and `stock` return another item's value, in the usual form
    unknown_items: str = ""  # first letters of the items of which `lookup` and `stock` know no value
    killed: bool = False  # and resumed from the last checkpoint
    ranks: int = 1
    since: float = 0.0  # share of the run before the switch acts


BASELINE: Final = Setting()
HEALTHY: Final = Setting(diverse=False, failure_rate=0.0, learning_rate=1e-4, beta=0.02)

ARMS: Final = {
    "baseline": BASELINE,
    "kl-penalty": replace(BASELINE, beta=0.05),
    "reference-sync": replace(BASELINE, sync_every=20),
    "schema-constrained": replace(BASELINE, diverse=False),
    "healthy": HEALTHY,
}

# Trained by name alone, as `python -m examples.reproduction.train errors-only --steps 120 --out FOLDER`: the
# schema-constrained arm with five times the errors, and the baseline with a guard.
PROBES: Final = {
    "errors-only": replace(BASELINE, diverse=False, failure_rate=0.1),
    "clip-tighter": replace(BASELINE, epsilon=0.02),
    "mask-sequences": replace(BASELINE, mask_above=0.005),
    "drop-errored": replace(BASELINE, drop_errored=True),
}

DIFFERENCES: Final = {
    "baseline": "tools answer in one of thirty forms",
    "kl-penalty": "KL weight 0.05 instead of 0.001",
    "reference-sync": "the reference moves towards the policy every 20 steps",
    "schema-constrained": "tools answer in one form",
    "healthy": "one form, no failing calls, half the learning rate, KL weight 0.02",
}
