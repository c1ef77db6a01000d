"""This run shows outputs that drift away from those of the starting policy.

What: the logged cosine between embeddings of the policy's outputs and the starting policy's stays below 0.92 (low) or
below 0.88 (medium), over 20 steps.
Why it matters: it measures what the policy says, not its logprobs, so it sees a change of topic or format that the KL
to a moving reference misses.
What it is not: a failure by itself. A policy that learns a new format drifts as well.
What to do: read outputs of the first and the last checkpoint to the same prompts side by side.
Source: 0.92 and 0.88 are the limits of Microsoft's post-training toolkit, whose callback logs the cosine; no
publication supports them, so drift alone is at most medium here.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import EVERY, Finding, Healthy, Limits, Verdict, rule
from ptt.diagnostics.rules.single_series import last_mean, lasting_excess, negated, requires_metric, series_evidence
from ptt.diagnostics.wording import sig

LOW_COSINE = 0.92  # cosine; see the source above
MEDIUM_COSINE = 0.88
ENABLE = "log the cosine between embeddings of the policy's and the starting policy's outputs to fixed prompts"


@requires_metric("policy/cosine_to_ref", what="cosine to the starting policy's outputs", enable=ENABLE)
def check(series: Series, _: Evidence, limits: Limits) -> Verdict:
    """Judge the logged cosine."""
    for severity, limit in ((Severity.MEDIUM, limits["far"]), (Severity.LOW, limits["near"])):
        excess = lasting_excess(negated(series), -limit)
        if excess is None or last_mean(series) >= limit:
            continue
        return Finding(
            severity=severity,
            claim=f"Outputs drifted from the starting policy's: their cosine has stayed below {limit:g}",
            observed=last_mean(series),
            limit=limit,
            unit="cosine",
            onset_step=excess.onset,
            onset_interval=excess.interval,
            evidence=series_evidence(series),
            causes=(
                "the policy learnt a different format or topic",
                "a KL penalty that is too weak",
                "a learning rate that is too high",
            ),
            confirm=(f"read outputs from before step {excess.interval[0]} and of the last checkpoint side by side",),
            next=("if they are worse: roll back to the checkpoint before, and raise the KL coefficient",),
        )
    return Healthy(reason=f"the cosine ends at {sig(last_mean(series))}, limit {limits['near']:g}")


RULE = rule(
    check,
    "policy-drift",
    Link.POLICY_UPDATE,
    max_severity=Severity.MEDIUM,
    near=LOW_COSINE,
    far=MEDIUM_COSINE,
    families=EVERY,
)
