"""This run shows an inference engine that disagrees with the trainer at some steps, and agrees at the others.

What: a mean difference between engine and trainer exceeds the limit of engine-mismatch at single steps or for spans,
beyond what its own noise gives, and lies near its usual level in between. High where a tenth of the steps lie ten
times as far out as the limit.
Why it matters: at these steps training is off-policy and the ratios are those of another policy; the mean over a
window, and its median, stay within every limit.
What it is not: a mismatch that stays (engine-mismatch), or a single step with one wild token.
What to do: find what the steps have in common: a weight update, an evaluation, a restart; or a few sequences in each,
by their largest difference. Mask such sequences until the cause is found.
Source: `recurring_excursions`; the limits are those of engine-mismatch (veRL, Tinker, NeMo-RL). NVIDIA-NeMo/RL#1801:
`token_mult_prob_error` far above 1.05 at a quarter of the steps, the reward unmoved.
"""

from __future__ import annotations

from dataclasses import replace

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.excursions import Recurrence, facts_of
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.comes_and_goes import (
    MISMATCHES,
    beside_words,
    cause_words,
    causes_of,
    confirm_of,
    event_of,
    judge_recurrences,
    steps_words,
    times_words,
    typical,
    when_words,
)
from ptt.diagnostics.rules.data_freshness import with_causes
from ptt.diagnostics.rules.data_freshness.engine_mismatch import HIGH_FACTOR, KL, LOGP_ABS, PROB_DIFF, PROB_ERROR
from ptt.diagnostics.rules.interface import Finding, Limits, Verdict, rule
from ptt.diagnostics.rules.single_series import lasting_excess, metric_evidence
from ptt.diagnostics.wording import pct, sig

HIGH_SHARE = 0.1  # of the steps


def _finding(recurrence: Recurrence, evidence: Evidence, limits: Limits) -> Finding | None:
    lead = recurrence.lead
    name = lead.series.name
    limit = limits[name.removeprefix("mismatch/").removesuffix("_mean")]
    zero = 1.0 if name == "mismatch/prob_error" else 0.0
    highest = float(lead.values.max())
    value = typical(lead.values)
    if value <= limit or lasting_excess(lead.series, limit) is not None:
        return None  # what lasts is engine-mismatch's
    share = len(lead.steps) / len(lead.series.finite()[0])
    gross = value - zero > HIGH_FACTOR * (limit - zero)
    alone = lead.excursions.alone and event_of(recurrence) is None
    first = int(lead.begins[0])
    finding = Finding(
        severity=Severity.LOW if alone else Severity.HIGH if gross and share >= HIGH_SHARE else Severity.MEDIUM,
        claim=f"Engine and trainer disagree at {pct(share)} of the steps and agree at the others: "
        f"{lead.series.raw_name} rises to {sig(highest)} at {steps_words(lead)}{when_words(recurrence)}, "
        f"and is {sig(typical(lead.levels))} around them{beside_words(recurrence, skip=MISMATCHES)}",
        context=cause_words(recurrence),
        observed=highest,
        limit=limit,
        unit="probability" if "prob_diff" in name else "ratio" if zero else "nats",
        onset_step=first,
        onset_interval=(first, first),
        evidence=metric_evidence(
            lead.series, value=value, highest=highest, level=typical(lead.levels), **facts_of(recurrence)
        ),
        causes=causes_of(
            recurrence,
            "a few sequences that the engine computes otherwise: another kernel, packing, parallel split or cache hit",
            "experts that are routed differently for some sequences",
        ),
        confirm=(
            f"list the sequences of step {first} by their largest difference of logprobs: a few, or all?",
            *confirm_of(recurrence)[1:],
        ),
        next=(
            f"mask the sequences whose difference is beyond the limit ({times_words(recurrence)})",
            "turn off one after the other: prefix caching, packing, compiled graphs, tensor parallelism in the engine",
        ),
    )
    ranked = with_causes(finding, evidence, keep=2)
    return replace(finding, evidence=ranked.evidence) if finding.context else ranked


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the spikes of each recorded measure against its own limit."""
    return judge_recurrences(
        evidence,
        limits,
        MISMATCHES,
        what="difference between engine and trainer",
        enable="record the engine's own logprobs beside the trainer's: veRL rollout.calculate_log_probs=True, TRL "
        "vllm_importance_sampling_correction=True",
        judge=_finding,
    )


RULE = rule(
    check,
    "mismatch-comes-and-goes",
    Link.DATA_FRESHNESS,
    max_severity=Severity.HIGH,
    prob_error=PROB_ERROR,
    logp_abs=LOGP_ABS,
    prob_diff=PROB_DIFF,
    kl=KL,
)
