"""This run shows logprobs rounded to four decimals.

What: 99 % of a column's sampled values have no more than four decimals.
Why it matters: r has a quantum of 1e-4. Tails do not care; k3 and ESS of nearly identical policies are then noise.
What to do: nothing for tail figures; do not read mismatch KL below 1e-4 from such files.
Source: verifiers 0.4 rounds recorded floats to four decimals.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.validity import Validity
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.data_validity import extent, recorded_validity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, Verdict, requires, rule

ROUNDED_SHARE = 0.99  # of sampled values; of float32 logprobs one in a hundred is so by chance


@requires(recorded_validity)
def check(validity: Validity, _: Evidence, limits: Limits) -> Verdict:
    """Judge the decimals of sampled values."""
    columns = [name for name, facts in validity.columns.items() if facts.rounded_share > limits["rounded"]]
    if not columns:
        return Healthy(reason="no column is rounded")
    return Finding(
        severity=Severity.LOW,
        claim=f"{' and '.join(columns)} hold four decimals at most: r below 1e-4 is rounding",
        observed=max(validity.columns[name].rounded_share for name in columns),
        limit=limits["rounded"],
        unit="share",
        evidence={
            "columns": ", ".join(columns),
            **extent(validity.extent, "mismatch KL and 1 - ESS below 1e-4 are rounding; tails are not touched"),
        },
        causes=("the writer rounds floats",),
        next=("do not judge mismatch KL or ESS near 1 from these files",),
    )


RULE = rule(check, "rounded-logprobs", Link.DATA_VALIDITY, max_severity=Severity.LOW, rounded=ROUNDED_SHARE)
