"""What is known of rewards beyond their mean: components, outcomes beside them, and single rewards by step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ptt.diagnostics.evidence.series import Series

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Single rewards, in the order of steps; NaN where a column does not say."""

    steps: IntArray
    rewards: FloatArray
    outcomes: FloatArray  # 1 where the task was done, 0 where not, or the score of the one outcome component
    outcome_name: str | None
    ids: tuple[str, ...]
    sources: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Rewards:
    """What is known of rewards beyond their mean: components, outcomes beside them, and single rewards by step."""

    components: Mapping[str, Series] = field(default_factory=dict)  # mean by step, by the component's own name
    outcomes: Mapping[str, Series] = field(default_factory=dict)  # figures of training that say the task was done
    samples: Samples | None = None
