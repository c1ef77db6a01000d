"""This run shows model tokens without a finite log-ratio.

What: more than 0.1% of the model tokens of the pair in use have a null, NaN or infinite logprob on either side; or all
of them do from some step on, up to the last recorded one.
Why it matters: such tokens enter no statistic. Where a whole step is missing, the figures end there without a word: a
policy that turned NaN looks like a run that merely stopped recording.
What to do: look at the first step without finite values: the last checkpoint before it is the last good one.
Source: NaN compares false with every limit, so it reads as healthy unless it is counted.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.validity import Validity
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.data_validity import extent, recorded_validity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, Verdict, requires, rule
from ptt.diagnostics.wording import pct

ID = "missing-logprobs"
MAX_SHARE = 0.001  # of model tokens: fewer cannot move a p99
HIGH_SHARE = 0.05


@requires(recorded_validity)
def check(validity: Validity, _: Evidence, limits: Limits) -> Verdict:
    """Judge how many tokens are lost, and whether the end of the run is."""
    lost = validity.missing
    dead = lost.dead_since is not None
    onset = lost.dead_since if dead else lost.first_step
    share = lost.tokens / max(1, lost.tokens + lost.finite_tokens)
    if not dead and share <= limits["share"]:
        return Healthy(reason=f"{lost.tokens} model tokens of {lost.pair} have no finite log-ratio")
    severity = Severity.CRITICAL if dead else Severity.HIGH if share > limits["high_share"] else Severity.MEDIUM
    claim = (
        f"No model token of {lost.pair} has a finite log-ratio, up to the end of the records"
        if dead
        else f"{lost.tokens} model tokens ({pct(share)}) of {lost.pair} have no finite log-ratio"
    )
    return Finding(
        severity=severity,
        claim=claim,
        observed=share,
        limit=limits["share"],
        unit="share",
        onset_step=onset,
        evidence={"pair": lost.pair}
        | extent(lost, "in no statistic; where a whole step is missing, every figure ends before it"),
        causes=("the policy's weights are NaN", "logprobs of some tokens were not recorded"),
        next=(f"look at step {onset}: are the weights finite, and which side of the pair is missing?",),
    )


RULE = rule(check, ID, Link.DATA_VALIDITY, share=MAX_SHARE, high_share=HIGH_SHARE)
