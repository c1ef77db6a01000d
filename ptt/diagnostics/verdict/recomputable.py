"""What of the trainer's own figures could be recomputed if the run recorded more columns: told before anything is read.

The audit itself says of each logged figure whether it was checked (`Diagnosis.audit`); this looks at columns alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.algorithm import Algorithm, samples_texts, trainer_of
from ptt.diagnostics.metrics.catalogue import known
from ptt.diagnostics.metrics.recording import Switch, switches_for

MAX_LINES: Final = 3  # one reads them all
ADVANTAGES: Final = ("advantage", "reward", "group_id")
"""Of sequences: what an advantage is relative to is found by fitting estimators to the rewards of a group."""
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "kl/ref": ("policy_logp", "ref_logp", "model_mask"),
    "entropy": ("entropy", "model_mask"),
    "clip/frac": ("policy_logp", "old_logp", "advantage", "model_mask"),
    "kl/old": ("policy_logp", "old_logp", "model_mask"),
    "mismatch/kl": ("old_logp", "rollout_logp", "model_mask"),
    "mismatch/logp_abs_mean": ("old_logp", "rollout_logp", "model_mask"),
    "reward/mean": ("reward",),
    "len/response_mean": ("model_mask",),
}
"""By the metric that a trainer logs, the columns of tokens or sequences that it is made of."""
STAND_INS: Final[Mapping[str, str]] = {"policy_logp": "old_logp", "old_logp": "policy_logp"}
"""Before the first update of a step both are one policy, so that a figure of either can be held against the logged."""
ONE_SIDED: Final = frozenset({"kl/ref", "mismatch/kl", "mismatch/logp_abs_mean"})  # made with one of the two


@dataclass(frozen=True, kw_only=True)
class Recomputable:
    """Figures that the same missing columns would make checkable, and the line that records these."""

    figures: tuple[str, ...]  # as prose calls them
    missing: tuple[str, ...]
    switches: tuple[Switch, ...]


def recomputable(
    columns: Collection[str], logged: Collection[str], framework: str | None, algorithm: Algorithm
) -> tuple[Recomputable, ...]:
    """Return what more columns would let be recomputed, what lacks the fewest first, at most MAX_LINES.

    `columns`: of tokens, sequences and samples. `logged`: canonical names of the run's metrics.
    """
    if not samples_texts(algorithm):
        return ()
    lacking: dict[tuple[str, ...], list[str]] = {}
    if algorithm.groups is not False and (missing := _missing(ADVANTAGES, columns)):
        lacking[missing] = ["advantages"]
    for metric, needs in COLUMNS.items():
        stand_ins = STAND_INS if metric in ONE_SIDED else {}
        if metric in logged and (missing := _missing(needs, columns, stand_ins)):
            lacking.setdefault(missing, []).append(known(metric).label)
    found = [
        Recomputable(
            figures=tuple(figures),
            missing=missing,
            switches=switches_for(framework, missing, trainer=trainer_of(algorithm))[:1],
        )
        for missing, figures in lacking.items()
    ]
    return tuple(sorted(found, key=lambda one: (len(one.missing), -len(one.figures)))[:MAX_LINES])


def _missing(
    needs: tuple[str, ...], columns: Collection[str], stand_ins: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    return tuple(name for name in needs if name not in columns and (stand_ins or {}).get(name) not in columns)
