"""This run shows empty responses.

What: the share of sequences with no token of the policy's, or only the one that ends it, stays above 0.05 (medium) or
above 0.3 (high), over 20 steps.
Why it matters: an empty response still gets a reward. Either an engine failed and was not retried, and its samples
teach noise, or the policy learnt to say nothing.
What to do: look for aborted requests in the engine's own log; check what reward an empty response gets.
Source: veRL logs `response/aborted_ratio` for it; the shares are our own.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import MIN_LOGGED
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import LANGUAGE, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.single_series import last_mean, lasting_excess, measured, series_evidence
from ptt.diagnostics.wording import pct

SHARE_LIMIT = 0.05  # of the responses: more than an occasional failed request
HIGH_SHARE = 0.3


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the share of responses without content."""
    recorded = (evidence.metrics.get("len/empty_frac"), evidence.signal.empty)
    usable = [series for series in recorded if series is not None and len(series.finite()[0]) >= MIN_LOGGED]
    if not usable:
        return NotJudged(
            reason="neither a share of empty responses nor enough sequences are recorded",
            missing=("len/empty_frac", "model_mask"),
            enable="record sequences with model_mask, or log the share of responses without a token",
        )
    series = usable[0]
    excess = lasting_excess(series, limits["some"])
    if excess is None or last_mean(series) <= limits["some"]:
        return Healthy(reason=f"{pct(last_mean(series))} of responses are empty")
    return Finding(
        severity=Severity.HIGH if excess.last > limits["many"] else Severity.MEDIUM,
        claim=f"{pct(excess.last)} of responses are empty",
        unit="share",
        **measured(excess),
        evidence=series_evidence(series),
        causes=(
            "requests that the engine aborted or timed out",
            "a policy that learnt to end at once",
            "a chat template that leaves nothing to say",
        ),
        confirm=(f"count the aborted requests in the engine's log at step {excess.onset}",),
        next=(
            "if requests were aborted: sample them again, or take them out of the loss",
            "if the policy ended at once: check the reward of an empty response, then roll back to before its onset",
        ),
    )


RULE = rule(check, "empty-responses", Link.TRAINING_SIGNAL, some=SHARE_LIMIT, many=HIGH_SHARE, families=LANGUAGE)
