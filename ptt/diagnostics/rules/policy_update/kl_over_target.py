"""This run shows a KL divergence from the reference that stays above its limit.

What: the mean of the logged KL over 20 steps lies above 0.3 nats a token, or above twice the target that the run's own
settings name, for half of those steps at least, and stays there. Single spikes do not count: healthy runs show them.
A KL that is logged as a sum over the sequence (TRL's `objective/kl`) is held against the limit times the mean length.
Why it matters: the policy has left the region where the reference, and the KL penalty, say anything useful. It is
the aggregate that moves last: the tails of the log-ratio move hundreds of steps before it.
What to do: if the tails grew first, mend those. Otherwise roll back to the last healthy checkpoint, lower the
learning rate, run fewer epochs over a batch, stop updates within a batch at a target KL, and check the scale of
advantages and rewards; one at a time, in this order.
Source: per-token k3 as TRL, veRL and OpenRLHF log it. 0.3 is the cap in use in the field for a mean KL to the
reference; twice the target is the limit of the common PPO debugging guides. Targets: OpenRLHF's `kl_target`, veRL's
`target_kl` where the KL is in the reward. Set `limits.kl-over-target.limit` for a run with a target of another name.
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import MIN_LOGGED, Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Rule, Verdict
from ptt.diagnostics.rules.policy_update import CAUSES, back_off, confirm_by_checkpoint
from ptt.diagnostics.rules.single_series import Excess, lasting_excess, logged, peak_median, series_evidence

ID = "kl-over-target"
KL_LIMIT = 0.3  # nats a token; see the source above
TIMES_TARGET = 2.0  # of the run's own target
KL_HIGH = 1.0 / 0.3  # times the limit: 1 nat a token
KL_GONE = 2.0 / 0.3  # times: at 2 nats the typical token's probability has changed e^2-fold
PER_SEQUENCE = frozenset({"objective/kl"})  # TRL's PPO, RLOO and online DPO add the KL up over the sequence
ENABLE = "log the KL to the reference: in TRL set beta > 0; in veRL actor_rollout_ref.actor.use_kl_loss=True"


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the logged KL to the reference."""
    series = logged(evidence, "kl/ref", what="KL to the reference", enable=ENABLE)
    if isinstance(series, NotJudged):
        return series
    unit = _unit(evidence, series)
    if isinstance(unit, NotJudged):
        return unit
    tokens, unit_name = unit
    limit, source = _limit(evidence, limits)
    limit *= tokens
    found = lasting_excess(series, limit)
    if found is None:
        return Healthy(
            reason=f"the {series.width}-step median of KL peaks at {peak_median(series):.3g} nats {unit_name}, "
            f"limit {limit:.3g}{source}"
        )
    return _finding(series, found, limit, f"{unit_name}{source}", per_sequence=tokens != 1.0)


def _finding(series: Series, found: Excess, limit: float, told: str, *, per_sequence: bool) -> Finding:
    severity = (
        Severity.CRITICAL
        if found.peak > KL_GONE * limit
        else Severity.HIGH
        if found.peak > KL_HIGH * limit
        else Severity.MEDIUM
    )
    return Finding(
        severity=found.severity(severity),
        claim=f"Mean KL to the reference {'stays' if found.ended is None else 'lay'} above {limit:.3g} nats {told}"
        + found.recovery,
        observed=found.peak,
        limit=limit,
        unit="nats",
        onset_step=found.onset,
        onset_interval=found.interval,
        evidence=series_evidence(
            series,
            last_mean=found.last,
            last_step_within=found.last_good,
            per="sequence" if per_sequence else "token",
            **found.recovery_evidence,
        ),
        causes=(
            *CAUSES,
            "KL coefficient too small to hold the policy",
            "growing tails in one slice that the mean only now shows",
        ),
        confirm=(confirm_by_checkpoint(found.interval),),
        next=back_off(found.interval),
    )


def _unit(evidence: Evidence, series: Series) -> tuple[float, str] | NotJudged:
    """Give how many tokens a value is the KL of, and how to say so."""
    if series.raw_name.removeprefix("train/") not in PER_SEQUENCE:
        return 1.0, "a token"
    lengths = evidence.metrics.get("len/response_mean")
    if lengths is None or len(lengths.finite()[0]) < MIN_LOGGED:
        return NotJudged(
            reason=f"{series.raw_name} is a sum over the sequence, and no response length is logged to hold it against",
            missing=("len/response_mean",),
            enable="log the mean response length beside the KL",
        )
    return float(np.median(lengths.finite()[1])), "a sequence"


def _limit(evidence: Evidence, limits: Limits) -> tuple[float, str]:
    """Give the limit a token: what the user set, else twice the run's own target, else the field's."""
    context, set_by_user = evidence.run.context, ID in evidence.limits and "limit" in evidence.limits[ID]
    names = ["kl_target"]
    if evidence.run.framework == "verl" and context.get("use_kl_in_reward") is True:
        names.append("target_kl")  # in veRL's defaults even where no controller uses it
    if evidence.run.framework is None and "kl/old" not in evidence.metrics:
        names.append("target_kl")  # elsewhere it is the target within a batch, to the policy before the update
    for name in names:
        target = context.get(name)
        if not set_by_user and isinstance(target, int | float) and not isinstance(target, bool) and target > 0:
            return TIMES_TARGET * float(target), f", twice the run's {name}"
    return limits["limit"], ""


RULE = Rule(id=ID, link=Link.POLICY_UPDATE, check=check, limits={"limit": KL_LIMIT})
