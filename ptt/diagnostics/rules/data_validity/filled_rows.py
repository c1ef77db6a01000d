"""This run shows sequences that have the same logprob on every token.

What: in a sequence of 8 model tokens or more, one side of the pair has the same value everywhere (such as 0) while the
other side varies.
Why it matters: r is then minus the other side's logprob, often several nats: a handful of such rows makes a heavy tail.
They are left out of every statistic.
What to do: find out where the writer fills rows (failed scoring, a dropped worker, padding) and write null instead.
Source: zero-filled rows in dumps of several frameworks; no model gives a constant float32 logprob over a varying text.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.validity import Validity
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.data_validity import BLOCKS, extent, recorded_validity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, Verdict, requires, rule

HIGH_SHARE = 0.05  # of sequences: what is left may no longer be a fair sample
BLOCKING_SHARE = 0.2


@requires(recorded_validity)
def check(validity: Validity, _: Evidence, limits: Limits) -> Verdict:
    """Judge the constant rows found while tokens were read."""
    filled = [anomaly for anomaly in validity.anomalies if anomaly.kind == "filled_row"]
    if not filled:
        return Healthy(reason=f"none of {validity.sequences} sequences has constant logprobs")
    worst = max(filled, key=lambda anomaly: anomaly.sequences)
    share = worst.sequences / validity.sequences
    return Finding(
        severity=Severity.HIGH if share > limits["high_share"] else Severity.MEDIUM,
        claim=f"{worst.column} is one constant in {worst.sequences} of {validity.sequences} sequences, which are left "
        "out",
        observed=share,
        limit=0.0,
        unit="share",
        onset_step=worst.first_step,
        evidence={
            "column": worst.column,
            **extent(worst, "left out of every statistic; otherwise each would put all its tokens into the tail"),
            BLOCKS: "all" if share > limits["blocking_share"] else None,
        },
        causes=("rows that could not be scored are written as zeros",),
        next=(f"look at {worst.example}: which rows are constant, and why did they fail?",),
    )


RULE = rule(check, "filled-rows", Link.DATA_VALIDITY, high_share=HIGH_SHARE, blocking_share=BLOCKING_SHARE)
