"""This run shows a loss that masks out most of what was sampled.

What: the share of the policy's own tokens that get no gradient stays above 0.5, from recorded masks or as the trainer
logs it (medium; high above 0.8).
Why it matters: what is left may be a selection: only short answers, only fresh ones, only those that engine and trainer
agree on. The batch is smaller than its nominal size, for which the learning rate was chosen.
What it is not: tool output, which the policy did not write and which never counts here.
What to do: find out what masks the tokens (overlong filtering, rejection of off-policy samples, groups without signal),
and fix that.
Source: TRL `mask_truncated_completions`, veRL's rejection sampling, SkyRL's overlong and zero-variance filters all take
whole samples out. The shares are our own.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import MIN_LOGGED, Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import LANGUAGE, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.single_series import last_mean, lasting_excess, measured, peak_median, series_evidence
from ptt.diagnostics.wording import pct

SHARE_LIMIT = 0.5  # of the tokens: runs that reject by design mask 0.3 to 0.5
HIGH_SHARE = 0.8  # of the tokens: the batch is a fifth of what was paid for


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the share of tokens that got no gradient."""
    recorded = (evidence.signal.masked, evidence.metrics.get("mask/share"))
    usable = [series for series in recorded if series is not None and len(series.finite()[0]) >= MIN_LOGGED]
    if not usable:
        return NotJudged(
            reason="no mask of the trained tokens is recorded"
            if not any(recorded)
            else f"fewer than {MIN_LOGGED} steps have a mask",
            missing=("train_mask",),
            enable="record train_mask beside model_mask: true where a token gets a gradient",
            absent=not any(recorded),
        )
    for series in usable:
        if (finding := _finding(series, limits)) is not None:
            return finding
    share = peak_median(usable[0])
    return Healthy(reason=f"at most {pct(share)} of the policy's tokens are masked")


def _finding(series: Series, limits: Limits) -> Finding | None:
    excess = lasting_excess(series, limits["much"])
    if excess is None or last_mean(series) <= limits["much"]:
        return None
    return Finding(
        severity=Severity.HIGH if excess.last > limits["most"] else Severity.MEDIUM,
        claim=f"{pct(excess.last)} of the policy's tokens get no gradient",
        unit="share",
        **measured(excess),
        evidence=series_evidence(series),
        causes=(
            "overlong samples are filtered out",
            "off-policy samples are rejected: engine against trainer, or stale",
            "groups without signal are filtered out",
            "a wrong mask",
        ),
        confirm=(f"take ten masked sequences of step {excess.onset}: cut, stale, without signal, or none of these?",),
        next=("fix what makes samples unusable before you filter less", "then set the batch size for what is left"),
    )


RULE = rule(check, "masked-share", Link.TRAINING_SIGNAL, much=SHARE_LIMIT, most=HIGH_SHARE, families=LANGUAGE)
