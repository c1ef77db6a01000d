"""This run shows trajectories that are rewarded as successes although their work failed.

What: of the trajectories flagged as a success (or, without a flag, paid at least 0.8 of the way from the run's lowest
reward to its highest), the share whose last tool call failed, and the share that called nothing at steps where most
others call. Either rises for good above 0.1 and above twice its early level, or lies above 0.4 in the last third.
Why it matters: a verifier that pays for "done" in words teaches the words.
What it is not: a task that some prompts solve without a tool; the share without a call is always a note.
What to do: verify the state of the environment, not the text: rerun the verifier on ten such trajectories.
Source: "pseudo-success", a failure treated as a success, is known from agents whose text says done while the state is
unchanged.
"""

from dataclasses import replace

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.counts import counted_share
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.environment import UNRECORDED, Question, judge_shares
from ptt.diagnostics.rules.interface import Broken, Healthy, Limits, NotJudged, Verdict, rule

FLOOR = 0.1  # of the well-paid trajectories
FACTOR = 2.0  # times the early share
MEDIUM = 0.15
HIGH = 0.5  # every second success is a false one
CHRONIC = 0.4  # an agent may try once too often after it has the answer; not in two of five successes

AFTER_FAILURE = Question(
    what="well-rewarded trajectories that end on a failed call",
    missing=("trajectories.reward", "tool_calls.ok"),
    enable="log completions with tool calls and reward; a success flag where the task has one",
    causes=(
        "a verifier that reads the answer's words and not the environment's state",
        "a call made after the work was done",
        "an answer guessed without the tool",
    ),
    confirm="take ten well-rewarded trajectories {steps} whose last call failed and check the environment's state by "
    "hand",
    next=("let the verifier check the state, not the text", "score the trajectories again and compare the two rewards"),
)
WITHOUT_CALL = replace(AFTER_FAILURE, what="well-rewarded trajectories that call nothing while most others call")


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge what is paid well."""
    environment = evidence.environment or UNRECORDED
    verdict = judge_shares(AFTER_FAILURE, counted_share(environment.paid_after_failure, "tool_calls.ok"), limits)
    beside = judge_shares(WITHOUT_CALL, counted_share(environment.paid_without_call, "trajectories.reward"), limits)
    paid_without_call = (
        beside.findings if isinstance(beside, Broken) else beside.notes if isinstance(beside, Healthy) else ()
    )
    # some prompts need no tool, and a policy that learns which is right: never more than a note
    notes = tuple(replace(finding, severity=Severity.LOW) for finding in paid_without_call)
    match verdict:
        case Broken(findings=findings):
            return Broken(findings=findings + notes)
        case Healthy():
            return replace(verdict, notes=verdict.notes + notes)
        case NotJudged():
            return verdict


RULE = rule(
    check, "pseudo-success", Link.ENVIRONMENT, floor=FLOOR, factor=FACTOR, medium=MEDIUM, high=HIGH, chronic=CHRONIC
)
