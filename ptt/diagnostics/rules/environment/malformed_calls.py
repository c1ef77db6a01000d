"""This run shows tool calls that are malformed.

What: the share of calls that lack a tool's name, have invalid JSON arguments although the tool's usually are valid, or
return an error that says so (parse, schema, unknown tool). It rises for good above 0.05 and above twice its early
level, or lies above 0.2 in the last third.
Why it matters: the policy is losing the syntax of calls. In known collapses that comes before the reward falls.
What it is not: a well-formed call that fails in the tool; that is tool-failures. Writers that drop what they cannot
parse leave nothing to count here.
What to do: read some. A cut-off call points to a length limit, a wrong name to a renamed tool, broken syntax to a
policy that drifts: then go back to the last good checkpoint and hold the policy closer to the reference.
Source: four states of calls (healthy, call, response, polluted) in arXiv 2606.26027; NeMo-RL logs
`invalid_tool_call_rate`, over assistant messages.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.counts import counted_share, logged_share
from ptt.diagnostics.model import Link
from ptt.diagnostics.rules.environment import UNRECORDED, Question, judge_shares
from ptt.diagnostics.rules.interface import Limits, Verdict, rule

FLOOR = 0.05  # of the calls: every policy makes an occasional error
FACTOR = 2.0  # times the early share
MEDIUM = 0.05  # syntax is the easiest part of a call: a share that rose this far and stays is not chance
HIGH = 0.3
CHRONIC = 0.2  # a fifth of all calls wasted on syntax

QUESTION = Question(
    what="tool calls that are malformed",
    missing=("tools/malformed_frequency", "tool_calls.args_json"),
    enable="record calls with their arguments as written, including those that could not be parsed",
    causes=(
        "calls cut off at the length limit",
        "a policy that drifts away from the syntax it learnt",
        "a chat template or parser that does not fit the model",
    ),
    confirm="read ten malformed calls {steps}: cut off, wrong name, or broken syntax?",
    next=(
        "check that chat template and tool parser belong to this model, and check the length limit",
        "go back to the last checkpoint with well-formed calls; lower the learning rate or raise the KL coefficient",
        "only then consider a format reward",
    ),
)


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the share of malformed calls."""
    counted = counted_share((evidence.environment or UNRECORDED).malformed, "tool_calls.args_json")
    return judge_shares(QUESTION, logged_share(evidence.metrics, "tools/malformed_frequency") + counted, limits)


RULE = rule(
    check, "malformed-calls", Link.ENVIRONMENT, floor=FLOOR, factor=FACTOR, medium=MEDIUM, high=HIGH, chronic=CHRONIC
)
