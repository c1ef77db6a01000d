"""This run shows two logprob columns that stop to belong to the same tokens.

What: how sure two columns are of the same token goes together up to a step, and from there on no more than for two
sequences of the same step, while the values of each column stay what they were. Or the other way round.
Why it matters: every r is then the difference of two different sequences: a tail of several nats begins at that step
and looks like growth.
What it is not: a shift, which has a finding of its own; and a policy that moves away from its reference, which takes
many steps and changes its own values.
What to do: look how rows of the columns are put together: a shuffle, a sort by length or a gather over ranks that one
of them does not go through.
Source: dumps that join the reference's logprobs by position after the batch was shuffled or balanced by length.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.column_faults import ColumnFault
from ptt.diagnostics.evidence.validity import Validity
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.data_validity import OTHER_TOKENS, column_finding, columns_of, recorded_validity, since_when
from ptt.diagnostics.rules.interface import Broken, Finding, Healthy, Limits, Verdict, requires, rule
from ptt.diagnostics.statistics.column_faults import MIN_FALL


@requires(recorded_validity)
def check(_: Validity, evidence: Evidence, limits: Limits) -> Verdict:
    """Report the stretches of steps where columns do not go together."""
    findings = tuple(
        _finding(fault)
        for fault in evidence.column_faults
        if fault.found.kind == "unrelated" and fault.found.otherwise - fault.found.during >= limits["fall"]
    )
    return Broken(findings=findings) if findings else Healthy(reason="columns belong to the same tokens throughout")


def _finding(fault: ColumnFault) -> Finding:
    found, (top, bottom) = fault.found, columns_of(fault)
    return column_finding(
        fault,
        Severity.HIGH,
        f"{top} and {bottom} are not of the same tokens{since_when(fault)}: rows of {fault.column or 'one of them'} "
        "belong to other sequences",
        limit=found.otherwise,
        unit="correlation",
        evidence={"correlation_there": found.during, "correlation_otherwise": found.otherwise},
        effect=OTHER_TOKENS,
        causes=("one column was joined by position after the batch was shuffled, sorted or gathered",),
        next=("score one sequence of such a step anew, and look whose row holds its logprobs",),
    )


RULE = rule(check, "unrelated-logprobs", Link.DATA_VALIDITY, fall=MIN_FALL)
