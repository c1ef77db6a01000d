"""This run shows single updates that move the policy too far from the one that sampled the batch.

What: the logged KL between the policy and itself at the start of the step stays above 0.1 nats a token (or above twice
the run's own target for it), or, with fewer than ten steps, ends with three above 5 times that; or, from recorded
tokens, p99 of |log policy - log old| stays above 0.5 nats. A KL below that limit that rose fifty-fold and past 0.045
nats is reported too: medium where the reward stalled or fell, otherwise low.
Why it matters: the gradient of a clipped surrogate is only valid near the policy that sampled. Further away, most of
the batch is clipped and the rest decides alone.
What it is not: the distance to the reference, which grows over a healthy run. This rule measures the size of single
steps. Nor the distance to the engine: where its logprobs are taken as the old ones (veRL bypass_mode), or the logged KL
equals the one between engine and trainer, engine-mismatch judges it.
What to do: roll back to the last healthy checkpoint. Then, one at a time and in this order: lower the learning rate,
run fewer epochs per batch, stop a batch's updates at a target KL, check the scale of advantages and rewards.
Source: PPO implementations stop a batch at 1.5 times a target of 0.01 to 0.03 (Spinning Up, Stable-Baselines3); 0.1 is
several times that, so that a noisy estimate passes. 0.5 nats is a ratio of 1.65, well outside a clip range of 0.2:
healthy runs stay below 0.35. Steps whose ratio is 1 by construction are left out.
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import lasting_rise
from ptt.diagnostics.evidence.column_faults import fault_of
from ptt.diagnostics.evidence.series import MIN_LOGGED, Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.policy_update import CAUSES, back_off, confirm_by_checkpoint
from ptt.diagnostics.rules.reward_outcome import Outcome, outcome_clause, outcome_since
from ptt.diagnostics.rules.single_series import (
    aligned,
    gross_excess,
    lasting_excess,
    measured,
    peak_median,
    series_evidence,
    without_zeros,
)
from ptt.diagnostics.wording import sig

ID = "update-too-large"
KL_LIMIT = 0.1  # nats a token, to the policy at the start of the step; see the source above
P99_LIMIT = 0.5  # nats: a hundredth of the tokens change their probability by more than two thirds in one step
TARGET_FACTOR = 2.0  # of the run's own target
RISE_FACTOR = 50.0  # times the early level: steps seven times as long, where the KL goes with their square
RISE_FLOOR = 0.045  # nats: 1.5 times 0.03, where PPO implementations stop a batch at the latest
CRITICAL_FACTOR = 5.0  # times the limit: nothing of the batch's policy is left
EQUAL = 1e-5  # of the value: two names of one number, as rounded in a log
MOSTLY = 1.5  # times the distance to the engine: what is beyond it could be the update's
BYPASSES = frozenset({"bypass_mode", "bypass_old_logprob_for_rollout", "use_rollout_logprobs", "use_rollout_log_probs"})
MIN_RECORDED = 6  # steps of tokens with an update in them: fewer tell of no habit


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the logged KL within a step, and the recorded tokens of the same pair."""
    judged: list[tuple[Series, float]] = []
    series = evidence.metrics.get("kl/old")
    of_engine = series is not None and _measures_engine(series, evidence)
    if series is not None and not of_engine:
        moved = without_zeros(series)
        gross = CRITICAL_FACTOR * _kl_limit(evidence, limits)
        if len(moved.finite()[0]) >= MIN_LOGGED or gross_excess(moved, gross) is not None:
            judged.append((moved, _kl_limit(evidence, limits)))
    pair = evidence.pairs.get("policy/old")
    if pair is not None and fault_of(evidence.column_faults, "policy/old") is None:
        moved = without_zeros(pair.p99)
        if len(moved.finite()[0]) >= MIN_RECORDED and np.nanmax(moved.values) > 0:
            judged.append((moved, limits["p99"]))
    if not judged:
        return NotJudged(
            reason=f"{series.raw_name} measures the distance to the engine, whose logprobs are taken as the old ones"
            if series is not None and of_engine
            else "neither a KL to the policy before the update nor tokens of both policies are recorded"
            if series is None and pair is None
            else "too few updates are recorded",
            missing=("kl/old", "old_logp"),
            enable="log the KL to the policy at the start of the step (veRL actor/ppo_kl, OpenRLHF ppo_kl), or record "
            "policy_logp and old_logp at every step",
        )
    findings = [finding for moved, limit in judged if (finding := _finding(moved, limit))]
    if findings:
        return min(findings, key=lambda finding: (finding.severity.rank, finding.onset_step or 0))
    if series is not None and judged[0][0].name == series.name:
        risen = _risen(judged[0][0], evidence, judged[0][1], limits["times_early"])
        if risen is not None:
            return risen
    peaks = [f"{moved.raw_name} peaks at {sig(peak_median(moved))} nats, limit {limit:g}" for moved, limit in judged]
    return Healthy(reason="; ".join(peaks))


def _finding(series: Series, limit: float) -> Finding | None:
    count = len(series.finite()[0])
    gross = gross_excess(series, CRITICAL_FACTOR * limit) if count < MIN_LOGGED else None
    excess = gross or (lasting_excess(series, limit) if count >= MIN_RECORDED else None)
    if excess is None:
        return None
    above = f"{'has stayed' if excess.ended is None else 'lay'} above {limit:g} nats{excess.recovery}"
    return Finding(
        severity=excess.severity(Severity.CRITICAL if excess.peak > CRITICAL_FACTOR * limit else Severity.HIGH),
        claim=f"Single updates move the policy too far: {series.raw_name} {above}",
        unit="nats",
        **measured(excess, observed=excess.peak),
        evidence=series_evidence(
            series, last_mean=excess.last, last_step_within=excess.last_good, **excess.recovery_evidence
        ),
        causes=CAUSES,
        confirm=(f"{confirm_by_checkpoint(excess.interval)}; does it follow the learning rate's warm-up?",),
        next=back_off(excess.interval),
    )


def _risen(series: Series, evidence: Evidence, limit: float, factor: float) -> Finding | None:
    """Return a step KL far above its own beginning, still within its limit."""
    rise = lasting_rise(series, floor=RISE_FLOOR, factor=factor)
    if rise is None or rise.ended or rise.early <= 0:
        return None
    reward = outcome_since(evidence, rise.interval[0])
    return Finding(
        severity=Severity.LOW if reward is Outcome.ROSE or not reward.judged else Severity.MEDIUM,
        claim=f"Single updates grew: {series.raw_name} rose from {sig(rise.early)} to {sig(rise.last)} nats, "
        f"near the limit of {limit:g}{outcome_clause(reward)}",
        unit="nats",
        **measured(rise),
        evidence=series_evidence(series, early=rise.early, last_mean=rise.last),
        causes=CAUSES,
        confirm=(f"{confirm_by_checkpoint(rise.interval)}; does it follow the learning rate's warm-up?",),
        next=back_off(rise.interval),
    )


def _measures_engine(series: Series, evidence: Evidence) -> bool:
    """Return whether the KL to the old policy is that of engine and trainer, which is logged beside it.

    Either the two are equal, or the settings take the engine's logprobs as old ones and most of it is the engine's.
    """
    mismatch = evidence.metrics.get("mismatch/kl")
    if mismatch is None:
        return False
    _, old, engine = aligned(series, mismatch)
    if len(old) < MIN_LOGGED or not old.any():
        return False
    if np.allclose(np.abs(old), np.abs(engine), rtol=EQUAL, atol=0):
        return True
    bypassed = any(key.rpartition(".")[2] in BYPASSES and value is True for key, value in evidence.settings.items())
    return bypassed and bool(np.median(np.abs(old)) <= MOSTLY * np.median(np.abs(engine)))


def _kl_limit(evidence: Evidence, limits: Limits) -> float:
    """Return twice the run's own target if it applies to this KL: in veRL that setting is for the reference."""
    target = evidence.run.context.get("target_kl")
    set_by_user = "kl" in evidence.limits.get(ID, {})
    if set_by_user or evidence.run.framework == "verl" or not isinstance(target, int | float) or target <= 0:
        return limits["kl"]
    return max(TARGET_FACTOR * float(target), limits["kl"])


RULE = rule(check, ID, Link.POLICY_UPDATE, kl=KL_LIMIT, p99=P99_LIMIT, times_early=RISE_FACTOR)
