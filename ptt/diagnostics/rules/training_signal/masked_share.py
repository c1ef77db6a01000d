"""This run shows that much of what was sampled is masked out of the loss.

What: the share of the policy's own tokens that get no gradient stays above 0.5, from recorded masks or as the trainer
logs it (medium; above 0.8 high: hardly anything is learnt from).
Why it matters: what is left may be a selection: only short answers, only fresh ones, only those that the engine and the
trainer agree on. The batch is smaller than its size says, and the learning rate was chosen for the whole.
What it is not: tool output, which is no token of the policy's and never counts here.
What to do: find what masks: overlong filtering, rejection of off-policy samples, groups without signal; mend that.
Source: TRL `mask_truncated_completions`, veRL's rejection sampling, SkyRL's overlong and zero-variance filters all take
whole samples out. The shares are our own.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import MIN_LOGGED, Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.single_series import last_mean, lasting_excess, measured, peak_median, series_evidence

SHARE_LIMIT = 0.5  # of the tokens: runs that reject by design mask 0.3 to 0.5
HIGH_SHARE = 0.8  # of the tokens: the batch is a fifth of what was paid for


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the share of tokens that got no gradient."""
    recorded = (evidence.signal.masked, evidence.metrics.get("mask/share"))
    usable = [series for series in recorded if series is not None and len(series.finite()[0]) >= MIN_LOGGED]
    if not usable:
        return NotJudged(
            reason="no mask of what got gradient is recorded"
            if not any(recorded)
            else f"fewer than {MIN_LOGGED} steps have a mask",
            missing=("train_mask",),
            enable="record train_mask beside model_mask: true where a token got gradient",
        )
    for series in usable:
        if (finding := _finding(series, limits)) is not None:
            return finding
    share = peak_median(usable[0])
    return Healthy(reason=f"at most {share:.0%} of the policy's tokens are masked")


def _finding(series: Series, limits: Limits) -> Finding | None:
    excess = lasting_excess(series, limits["much"])
    if excess is None or last_mean(series) <= limits["much"]:
        return None
    return Finding(
        severity=Severity.HIGH if excess.last > limits["most"] else Severity.MEDIUM,
        claim=f"{excess.last:.0%} of the policy's tokens get no gradient",
        unit="share",
        **measured(excess),
        evidence=series_evidence(series),
        causes=(
            "overlong samples are filtered",
            "off-policy samples are rejected: engine against trainer, or stale",
            "groups without signal are filtered",
            "a mask that is wrong",
        ),
        confirm=(f"take ten masked sequences of step {excess.onset}: cut, stale, without signal, or none of these?",),
        next=("mend what makes samples unusable before filtering less", "then set the batch size to what is left"),
    )


RULE = rule(check, "masked-share", Link.TRAINING_SIGNAL, much=SHARE_LIMIT, most=HIGH_SHARE)
