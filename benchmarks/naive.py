"""What people look at instead: a percentile of all tokens, mean KL, a significance test on single tokens."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.stats import ks_2samp

from ptt.diagnostics.evidence.series import Series

FloatArray = npt.NDArray[np.float64]

RATIO: Final = 1.5
KL_LIMIT: Final = 0.3
ALPHA: Final = 0.01
NAMES: Final = ("p95 of all tokens", "mean KL", "KS on tokens")


def p95_ratio(step: npt.NDArray[np.int64], r: FloatArray, steps: int) -> bool:
    """Whether p95 of |r| over all tokens is 1.5 times higher in the late third than in the early one."""
    early, late = (np.abs(r[part]) for part in _thirds(step, steps))
    return bool(np.quantile(late, 0.95) > RATIO * np.quantile(early, 0.95))


def mean_kl(series: Series) -> bool:
    """Whether a 20-step mean of the KL passes 0.3 anywhere."""
    mean = series.rolling()[1]
    return bool((mean[np.isfinite(mean)] > KL_LIMIT).any())


def ks_on_tokens(step: npt.NDArray[np.int64], r: FloatArray, steps: int) -> bool:
    """Whether early and late |r| differ by a Kolmogorov-Smirnov test that takes tokens as independent."""
    early, late = (np.abs(r[part]) for part in _thirds(step, steps))
    if not len(early) or not len(late):
        return False
    return bool(ks_2samp(early, late, method="asymp").pvalue < ALPHA)


def _thirds(step: npt.NDArray[np.int64], steps: int) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    return step <= steps // 3, step > steps - steps // 3


def tokens_of(frame: pl.DataFrame) -> tuple[npt.NDArray[np.int64], FloatArray, npt.NDArray[np.bool_]]:
    """Give step, r and whether an observation came before, of every model token."""
    lengths = frame["model_mask"].list.len().to_numpy().astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    mask = frame["model_mask"].explode().to_numpy()
    r = frame["policy_logp"].explode().to_numpy() - frame["ref_logp"].explode().to_numpy()
    seen = np.cumsum(~mask)
    before = np.where(offsets[:-1] > 0, seen[offsets[:-1] - 1], 0)
    post = seen > np.repeat(before, lengths)
    step = np.repeat(frame["step"].to_numpy(), lengths)
    return step[mask], r[mask], post[mask]
