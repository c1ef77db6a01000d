"""This run shows tool calls that fail, increasingly often or all along.

What: the share of failed calls, over all tools and for each one, rises for good above a tenth and above twice its early
level, by more than chance explains; or it lies above 0.4 in the last third of the run.
Why it matters: the policy learns from the environment's faults: it avoids a tool that is down, or learns to live with
errors. Log-ratios grow first on the tokens after an error message.
What it is not: errors that a policy makes while it learns to call. A share that is high but falling is a note.
What to do: find out first whose fault it is: make the same call by hand. If the environment is at fault, fix it, and do
not train on steps where it was down.
Source: 0.4 is where Microsoft's post-training toolkit calls a failure rate high. A call counts as failed if the
framework flags it or its result begins like an error message.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.counts import counted_share, failure_shares, logged_share
from ptt.diagnostics.model import Link
from ptt.diagnostics.rules.environment import UNRECORDED, Question, judge_shares
from ptt.diagnostics.rules.interface import Limits, Verdict, rule

FLOOR = 0.1  # of the calls: below it, failures are accidents that a policy can live with
FACTOR = 2.0  # times the early share: less is noise in what is called
MEDIUM = 0.2  # of the calls in the end: one in five results is an error message
HIGH = 0.5  # the tool is as good as gone
CHRONIC = 0.4  # see the source above

QUESTION = Question(
    what="tool calls that fail",
    missing=("tools/failure_frequency", "tool_calls.ok"),
    enable="log completions with tool calls (TRL: log_completions=True), or log failed calls over calls at each step",
    causes=(
        "the tool or its server is down, overloaded or out of quota",
        "the policy writes calls that the tool cannot take",
        "the tool's interface changed during the run",
    ),
    confirm="read ten failed calls {steps} with their error messages and repeat two by hand: environment or policy?",
    next=(
        "fix the tool, or retry its transient errors outside the policy's context",
        "mask or drop trajectories that failed through the environment's fault",
        "resume from the checkpoint before the failures began",
    ),
)


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the share of failed calls, of all tools and of each."""
    environment = evidence.environment or UNRECORDED
    shares = [
        *logged_share(evidence.metrics, "tools/failure_frequency", of="tools/call_frequency"),
        *counted_share(environment.failures, "tool_calls.ok"),
    ]
    for name, tool in environment.tools.items():
        shares += counted_share(tool.failures, "tool_calls.ok", tool=name)
    if not any(share.tool for share in shares):
        shares += failure_shares(evidence.other)
    return judge_shares(QUESTION, shares, limits)


RULE = rule(
    check, "tool-failures", Link.ENVIRONMENT, floor=FLOOR, factor=FACTOR, medium=MEDIUM, high=HIGH, chronic=CHRONIC
)
