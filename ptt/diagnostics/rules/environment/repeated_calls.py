"""This run shows trajectories that make the same tool call again and again.

What: a call is a repeat if its trajectory made it before with the same tool, arguments and result, and it had not
failed. The share of such calls rises for good above 0.1 and above twice its early level, or lies above 0.4 in the last
third.
Why it matters: a policy learns nothing from an answer it already has. One that repeats calls is rewarded for calling,
or has lost the thread.
What it is not: asking again for what may have changed (a different result), or another try after a failure.
What to do: look for a reward that counts calls or turns, and for history that the policy does not see (a cut context).
Stop rewarding the repeat, not the call.
Source: tool hacking is reward hacking by calls. Repetition is judged by name and arguments, since by name alone most
healthy agents look like loops.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.counts import counted_share
from ptt.diagnostics.model import Link
from ptt.diagnostics.rules.environment import UNRECORDED, Question, judge_shares
from ptt.diagnostics.rules.interface import Limits, Verdict, rule

FLOOR = 0.1  # of the calls: an agent occasionally checks twice
FACTOR = 2.0  # times the early share
MEDIUM = 0.15  # of the calls in the end
HIGH = 0.4  # nearly every second call
CHRONIC = 0.4

QUESTION = Question(
    what="tool calls that repeat an earlier one",
    missing=("tool_calls.args_json",),
    enable="log completions with the arguments of their calls (TRL: log_completions=True)",
    causes=(
        "a reward that pays for calls or turns",
        "earlier results that are cut out of the context",
        "a policy that lost the thread after an observation",
    ),
    confirm="read five trajectories {steps} with a repeated call: was the first result still in the context?",
    next=(
        "list what the reward pays for, and remove calls and turns from it",
        "keep earlier results in the context, or answer a repeat with a pointer to the first result",
    ),
)


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the share of calls that repeat an earlier one."""
    return judge_shares(
        QUESTION, counted_share((evidence.environment or UNRECORDED).repeated, "tool_calls.args_json"), limits
    )


RULE = rule(
    check, "repeated-calls", Link.ENVIRONMENT, floor=FLOOR, factor=FACTOR, medium=MEDIUM, high=HIGH, chronic=CHRONIC
)
