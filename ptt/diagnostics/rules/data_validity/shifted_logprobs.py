"""This run shows two logprob columns that are shifted against each other.

What: over the sampled tokens of a stretch of steps, or of one slice, how sure the numerator is at token t goes with
how sure the denominator is some tokens later (or earlier), and not with the same token: the correlation of log(-logp)
is 0.6 or more there and 0.2 less in place, or 0.4 less in place. Any offset is found, and the step that it begins at.
Why it matters: every r is then the difference of two different tokens: all tails are an artefact, and where the shift
begins in mid-run they seem to grow there.
What it is not: a policy that has collapsed, or text that repeats itself. Columns of those go together at many offsets
alike, and did so before.
What to do: check whether the writer gathers from prompt[-1:] or logits[:-1]; entry t must belong to token t.
Source: off-by-one between engine and trainer arrays is the most common fault of hand-written dumps.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.column_faults import ColumnFault
from ptt.diagnostics.evidence.validity import Validity
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.data_validity import OTHER_TOKENS, column_finding, columns_of, recorded_validity, since_when
from ptt.diagnostics.rules.interface import Broken, Finding, Healthy, Limits, Verdict, requires, rule
from ptt.diagnostics.statistics.column_faults import SHIFT_MARGIN


@requires(recorded_validity)
def check(_: Validity, evidence: Evidence, limits: Limits) -> Verdict:
    """Report the shifts that were found in the sampled sequences."""
    findings = tuple(
        _finding(fault)
        for fault in evidence.column_faults
        if fault.found.kind == "shifted" and fault.found.during > fault.found.here + limits["margin"]
    )
    if findings:
        return Broken(findings=findings)
    return Healthy(reason="columns correlate best without a shift")


def _finding(fault: ColumnFault) -> Finding:
    found, (top, bottom) = fault.found, columns_of(fault)
    return column_finding(
        fault,
        Severity.HIGH,
        f"{top} at token t belongs with {bottom} at token t{found.lag:+d}{since_when(fault)}: "
        f"{fault.column or 'one of them'} is shifted",
        limit=found.here,
        unit="correlation",
        evidence={"lag": found.lag, "correlation_there": found.during, "correlation_here": found.here},
        effect=OTHER_TOKENS,
        causes=("logits of position t score token t + 1: one column was gathered without the shift",),
        next=("print the token and both logprobs of ten tokens of one sequence side by side",),
    )


RULE = rule(check, "shifted-logprobs", Link.DATA_VALIDITY, margin=SHIFT_MARGIN)
