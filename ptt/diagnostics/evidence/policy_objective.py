"""Which policy loss a run trains on, as far as it decides what a token weighs: by its settings, else by its log."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.algorithm import SEQUENCE_LEVELS, Algorithm, algorithm_name
from ptt.diagnostics.evidence.loss_denominator import SAID, LossAudit, configured_denominator
from ptt.diagnostics.evidence.ratio_scalars import CAP_SETTINGS
from ptt.diagnostics.evidence.scalar_candidates import LIMITS, Facts, clip_ranges, setting
from ptt.diagnostics.statistics.token_weights import (
    CLIPPED,
    CONSTANT,
    K1,
    K2,
    K3,
    MICRO,
    PLAIN,
    PRODUCT,
    SEQUENCE,
    SEQUENCES,
    SUMS,
    TOKEN,
    TOKENS,
    TRUNCATED,
    Objective,
)
from ptt.diagnostics.wording import sig

VERL_DUAL_CLIP: Final = 3.0  # verl's default of `clip_ratio_c`
TRL_CAP: Final = 3.0  # TRL's default of `vllm_importance_sampling_cap`
MISSING_TERM: Final = 1e-12  # a KL weight of less is none
KL_WEIGHTS: Final = ("beta", "kl_loss_coef", "reference_policy_kl_penalty")
ESTIMATORS: Final[Mapping[str, str]] = {"kl": K1, "k1": K1, "mse": K2, "k2": K2, "low_var_kl": K3, "k3": K3}
KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("grpo", "bnpo", "dapo", "dr_grpo", "luspo", "vanilla", "ppo", "gspo", "rloo", "vapo", "opo", "remax",
         "reinforce_plus_plus", "reinforce++", "reinforce_baseline", "reinforce_plus_plus_baseline", "grpo_passk",
         "async_grpo"),
        CLIPPED,
    ),
    "cispo": TRUNCATED,
    **dict.fromkeys(("reinforce", "gpg"), PLAIN),
}  # fmt: skip
"""Names of losses whose formula is known; estimators such as REINFORCE++'s are trained on with PPO's loss."""
NAMED_BY: Final = ("loss_type", "loss_mode", "policy_loss_type")
TITLES: Final = {CLIPPED: "clipped surrogate", TRUNCATED: "truncated weight times logprob", PLAIN: "plain logprob"}
LEVELS: Final = {TOKEN: "tokens", SEQUENCE: "sequences (geometric mean)", PRODUCT: "sequences (product)"}


@dataclass(frozen=True, kw_only=True)
class FoundObjective:
    """A loss and by what it was told; `unknown` names one whose formula ptt does not have."""

    objective: Objective
    name: str  # of the algorithm or loss
    said: str
    unknown: str = ""


def objective_of(facts: Facts, algorithm: Algorithm, audit: LossAudit | None) -> FoundObjective:
    """Return the loss as configured, else as the audit found it, else the algorithm's usual one."""
    name = _name(facts, algorithm)
    kind = KINDS.get(name) if name else CLIPPED
    verl = facts.get("framework") == "verl"
    level = _level(facts, name, audit)
    low, high = clip_ranges(facts)[0]
    if kind == TRUNCATED and facts.get("framework") == "trl":  # whose epsilon_high is the cap itself
        low, high = 1.0, high - 1.0 if high > 1 else high
    reduction, by = _reduction(facts, name, level, audit)
    kl, kl_by = _kl(facts, audit)
    objective = Objective(
        surrogate=kind or CLIPPED,
        level=level,
        low=low,
        high=high,
        dual=setting(facts, ("delta",)) or (VERL_DUAL_CLIP if verl and level == TOKEN else math.inf),
        cap=engine_cap(facts),
        cap_masks="mask" in str(facts.get("vllm_importance_sampling_mode")),
        reduction=reduction,
        length=setting(facts, LIMITS) or 1.0,
        kl=kl,
        estimator=ESTIMATORS.get(str(facts.get("kl_loss_type")), K3),
    )
    said = f"{'' if name else 'assumed, as no file names it: '}{TITLES[objective.surrogate]} of {LEVELS[level]}"
    if objective.surrogate != PLAIN:
        said += f", ratio from {sig(max(1 - low, 0.0))} to {sig(1 + high)}"
    said += f", {SAID[reduction]} ({by}); {kl_by}"
    said += f"; engine weights capped at {sig(objective.cap)}" if math.isfinite(objective.cap) else ""
    return FoundObjective(objective=objective, name=name, said=said, unknown="" if kind else name)


def _name(facts: Facts, algorithm: Algorithm) -> str:
    """Return the name of the loss: of a setting that names one, else of the algorithm."""
    named = [str(facts.get(key) or "").lower().replace("-", "_") for key in NAMED_BY]
    known = next((name for name in named if name and (name in KINDS or algorithm_name(name))), "")
    unknown = next((name for name in named if name), "")
    return known or unknown or algorithm.name or ""


def _level(facts: Facts, name: str, audit: LossAudit | None) -> str:
    if name == "rloo" and facts.get("framework") == "trl":
        return PRODUCT
    given = str(facts.get("importance_sampling_level")) in SEQUENCE_LEVELS
    seen = audit is not None and audit.formula.endswith("of sequences")
    return SEQUENCE if name == "gspo" or given or seen else TOKEN


def _reduction(facts: Facts, name: str, level: str, audit: LossAudit | None) -> tuple[str, str]:
    """Return what the loss is divided by, and what says so."""
    configured, by = configured_denominator(facts)
    if configured is not None:
        return configured, by
    if audit is not None and audit.reduction:
        return audit.reduction, "by the logged loss"
    if level == PRODUCT:
        return SUMS, "TRL's RLOO"
    usual = {"dr_grpo": CONSTANT, "gspo": SEQUENCES, "bnpo": MICRO}.get(name, TOKENS)
    return usual, "assumed: no setting and no logged loss tells"


def _kl(facts: Facts, audit: LossAudit | None) -> tuple[float, str]:
    """Return the weight of the KL in the loss, and what says so."""
    given = setting(facts, KL_WEIGHTS)
    if given is None and facts.get("use_kl_loss") is True:
        given = setting(facts, ("kl_coef", "init_kl_coef"))
    if facts.get("use_kl_loss") is False:
        given = 0.0
    if given is not None:
        return given, f"KL weight {sig(given)}" if given > MISSING_TERM else "no KL in it"
    if audit is not None and audit.formula:
        return audit.coefficient, f"KL weight {sig(audit.coefficient)}, by the logged loss"
    return 0.0, "the weight of a KL is not recorded, and none is counted"


def engine_cap(facts: Facts) -> float:
    """Return the cap on the engine's weights; infinite where none is set."""
    corrected = facts.get("vllm_importance_sampling_correction")
    if corrected is False:
        return math.inf
    cap = setting(facts, CAP_SETTINGS)
    if cap is not None and cap > 0:
        return cap
    return TRL_CAP if corrected is True and cap is None else math.inf  # below 0: off
