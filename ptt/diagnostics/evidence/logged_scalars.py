"""Which logged metrics token rows can give, by canonical name, else by their spelling."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.divergence_scalars import (
    ABS_MAX,
    KL_OLD,
    KL_REF,
    MISMATCH_ABS,
    MISMATCH_K3,
    MISMATCH_KL,
    PROB_DIFF,
    PROB_DIFF_MAX,
    PROB_ERROR,
)
from ptt.diagnostics.evidence.ratio_scalars import clip_kind, ratio_kind
from ptt.diagnostics.evidence.row_scalars import (
    ENTROPY,
    FAILURES,
    TRUNCATED,
    ZERO_SPREAD_SHARE,
    advantage_kind,
    call_kind,
    component_kind,
    length_kind,
    reward_kind,
)
from ptt.diagnostics.evidence.scalar_candidates import Kind
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.metrics.aliases import bare_name


@dataclass(frozen=True, kw_only=True)
class LoggedScalar:
    """A series with its kind."""

    kind: Kind
    series: Series


CANONICAL: Final[Mapping[str, Kind]] = {
    kind.quantity: kind
    for kind in (
        KL_REF, KL_OLD, MISMATCH_KL, MISMATCH_ABS, ABS_MAX, PROB_DIFF, PROB_ERROR, ratio_kind("mean"),
        ratio_kind("min"), ratio_kind("max"), clip_kind("both"), clip_kind("low"), clip_kind("high"), ENTROPY,
        reward_kind("mean"), reward_kind("std"), ZERO_SPREAD_SHARE, advantage_kind("mean"), advantage_kind("std"),
        length_kind("mean"), TRUNCATED, call_kind("mean"), FAILURES,
    )
}  # fmt: skip
SPELT: Final[tuple[tuple[re.Pattern[str], Callable[..., Kind]], ...]] = (
    (re.compile(r"^completions/(max|min)_length$"), length_kind),
    (re.compile(r"^completions/(mean|max|min)_(terminated)_length$"), lambda how, _: length_kind(how, True)),
    (re.compile(r"^response_length/(max|min)$"), length_kind),
    (re.compile(r"^rewards/(.+)/(mean|std)$"), component_kind),
    (re.compile(r"^critic/score/(max|min)$"), reward_kind),
    (re.compile(r"^critic/advantages/(max|min)$"), advantage_kind),
    (re.compile(r"^tool_call_counts/(max|min)$"), call_kind),
    (re.compile(r"^(?:rollout_corr/k3_kl|policy_kl_error)$"), lambda: MISMATCH_K3),
    (re.compile(r"^training/rollout_probs_diff_max$"), lambda: PROB_DIFF_MAX),
)
"""Metrics without a canonical name, by their spelling; what the pattern captures says which statistic."""
OTHER_MEANING: Final = frozenset({"is_masked/all/mean", "is_masked/mean", "objective/scores", "scores", "val/ratio"})
"""Spellings whose canonical name is only akin: prime-rl's mask is no clip range."""


def logged_scalars(metrics: Mapping[str, Series], other: Mapping[str, Series]) -> list[LoggedScalar]:
    """Return the logged series that rows could give, those with a canonical name first."""
    found = [
        LoggedScalar(kind=kind, series=metrics[name])
        for name, kind in CANONICAL.items()
        if name in metrics and bare_name(metrics[name].raw_name) not in OTHER_MEANING
    ]
    found += [LoggedScalar(kind=kind, series=other[name]) for name in sorted(other) if (kind := spelt_kind(name))]
    return found


def spelt_kind(raw: str) -> Kind | None:
    """Return what a metric without a canonical name is, by its spelling; None of one that no rows give."""
    for pattern, make in SPELT:
        if match := pattern.match(bare_name(raw)):
            return make(*match.groups())
    return None
