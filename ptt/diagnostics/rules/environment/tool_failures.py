"""This run shows tool calls that fail, more and more often or all along.

What: the share of calls that fail, of all tools and of each one: it rises for good above a tenth and above twice its
early level, further than chance explains; or it lies above 0.4 in the last third of the run.
Why it matters: the policy learns from the environment's faults: it avoids a tool that is down, or learns to live
with errors, and the tokens after an error message are those whose log-ratios grow first.
What it is not: errors that a policy makes while it learns to call. A share that is high but falling is a note.
What to do: find out whose fault it is before anything else. The same call made by hand tells the environment's fault
from the policy's; mend the environment, and do not train on steps where it was down.
Source: rates per tool over time are what the rule asks; 0.4 is where Microsoft's post-training toolkit calls a
failure rate high. A failed call is what the framework flags, or a result that begins as an error message does.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.counts import counted_share, logged_share
from ptt.diagnostics.evidence.logged_tools import failure_shares
from ptt.diagnostics.model import Link
from ptt.diagnostics.rules.environment import UNRECORDED, Question, judge_shares
from ptt.diagnostics.rules.interface import Limits, Verdict, rule

FLOOR = 0.1  # of the calls: below, failures are an accident that a policy can live with
FACTOR = 2.0  # times the early share: less is noise of what is called for
MEDIUM = 0.2  # of the calls in the end: one in five results is an error message
HIGH = 0.5  # the tool is as good as gone
CHRONIC = 0.4  # see the source above

QUESTION = Question(
    what="tool calls that fail",
    missing=("tools/failure_frequency", "tool_calls.ok"),
    enable="log completions with tool calls (TRL: log_completions=True), or log failed calls over calls each step",
    causes=(
        "the tool or its server is down, overloaded or out of quota",
        "the policy writes calls the tool cannot take",
        "the tool's interface changed under the run",
    ),
    confirm="read ten failed calls {steps} with their error messages and repeat two by hand: environment or policy?",
    next=(
        "mend the tool, or retry its transient errors outside the policy's sight",
        "mask or drop trajectories that failed by the environment's fault",
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
