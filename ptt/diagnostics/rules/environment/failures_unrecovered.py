"""This run shows a policy that no longer recovers from a failed tool call.

What: the share of failed calls that a later call of the same trajectory makes good. It falls for good below half of its
early level, which was at least 0.2, and by more than chance explains.
Why it matters: correcting a call after an error message is most of what an agent needs to learn. A policy that gives up
at the first error has lost it, and its reward then depends on luck with the tools.
What it is not: a run with few failures, or one whose policy never tried again: that is not judged.
What to do: check whether a second try is still possible (turn limit, length limit), then whether it pays.
Source: recovery after a failed call, one of the signals agents are compared by; the test is this project's own.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES
from ptt.diagnostics.evidence.counts import MIN_POOLED_TRIALS, Counts
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.environment import UNRECORDED
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.single_series import measured
from ptt.diagnostics.wording import pct

FALL_FACTOR = 0.5  # of the early share: recovery must not fall below
MIN_EARLY_SHARE = 0.2  # of the failed calls: a policy that hardly ever recovered has lost nothing
LOST_SHARE = 0.05  # of the failed calls: almost no recovery is left
ENABLE = "log completions with tool calls and their results at every step (TRL: log_completions=True)"


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge whether a success still follows a failure."""
    counts = (evidence.environment or UNRECORDED).recovered
    early = counts.early().share if counts is not None else 0.0
    fall = counts.fall(ceiling=early, factor=limits["factor"]) if counts and early >= limits["was"] else None
    if counts is None or (fall is None and not counts.shows_change):
        return _too_few(evidence, counts)
    if early < limits["was"]:
        return NotJudged(
            reason=f"a success followed {pct(early)} of the failed calls at first: there was no recovery to lose",
            enable="nothing to record",
        )
    if fall is None or fall.ended:
        late = counts.late().share
        reason = f"a success follows {pct(late)} of {counts.total} failed calls at the end, {pct(early)} at first"
        return Healthy(reason=reason)
    return Finding(
        severity=Severity.HIGH if fall.last < limits["gone"] else Severity.MEDIUM,
        claim=f"A later call made good {pct(early)} of the failed calls at first and {pct(fall.last)} at the end",
        unit="share",
        **measured(fall),
        evidence={
            "metric": "tool_calls.ok",
            "logged_as": counts.series.raw_name,
            "early": early,
            "failed_calls": counts.total,
        },
        causes=(
            "failures that no second try can fix: the tool is down",
            "a penalty on calls, turns or length that makes giving up pay",
            "a policy that learnt to answer after an error message as if it were a result",
        ),
        confirm=(
            f"read ten trajectories with a failed call before step {fall.onset} and ten after: is there a second try, "
            "and does it fail too?",
        ),
        next=(
            "where the second try fails too, fix the tool first",
            "where there is none, remove the penalty on calls or turns and compare over 50 steps",
        ),
    )


def _too_few(evidence: Evidence, counts: Counts | None) -> NotJudged:
    if (evidence.environment or UNRECORDED).failures is None:
        reason = "no tool calls with an outcome are recorded"
        return NotJudged(reason=reason, missing=("tool_calls.ok",), enable=ENABLE)
    return NotJudged(
        reason=f"{0 if counts is None else counts.total} failed calls are recorded;"
        f" {MIN_VALUES} steps (or groups of them) with {MIN_POOLED_TRIALS} or more are needed",
        enable=ENABLE,
    )


RULE = rule(check, "failures-unrecovered", Link.ENVIRONMENT, factor=FALL_FACTOR, was=MIN_EARLY_SHARE, gone=LOST_SHARE)
