"""This run shows tool calls that get nothing, or one and the same error whatever is asked.

What: a fifth or more of a tool's recorded calls come back with one error, letter by letter, that is not of the policy's
making; or those of a tool that looks something up come back empty (blank, or headers of documents without their
content), a fifth or more since some step, or nine of ten from the first on. High from a half on.
Why it matters: nothing fails, so no counter shows it. The policy learns that the tool is of no use and stops calling
it, or earns what it knows by heart.
What it is not: errors that differ from call to call, as those of a policy's own code do (tool-failures); a command that
prints nothing; programs of the policy that run for too long or take too much memory.
What to do: make one such call by hand, at the address and with the fields that the environment uses.
Source: GAIR-NLP/ToRL#27 (62% of runs of code answered with `UnknownError`: the sandbox's address was a placeholder),
rllm#396 (documents whose content was read from the wrong field). The shares are our own.
"""

from __future__ import annotations

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.counts import Counts
from ptt.diagnostics.evidence.sample_faults import UselessResults, worst_useless
from ptt.diagnostics.model import Link, Steps
from ptt.diagnostics.rules.faulty_samples import Told, finding_since
from ptt.diagnostics.rules.interface import REWARDED_LANGUAGE, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.wording import pct

SHARE = 0.2  # of the calls: more than a tool that now and then finds nothing
HIGH_SHARE = 0.5


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the share of a tool's results that hold nothing, or one error."""
    faults = evidence.faults
    if faults is None or not faults.useless:
        return NotJudged(
            reason="too few results of tools are recorded",
            missing=("tool_calls",),
            enable="save samples with their messages, the tools' results among them",
            absent=True,
        )
    worst = worst_useless(faults.useless, limits["share"])
    if worst is None:
        return Healthy(reason="no tool gives nothing, or one error, over and over")
    found, interval, after = worst
    return finding_since(interval, after, found.counts, limits, lambda part, when: _told(found, part, when, interval))


def _told(found: UselessResults, part: Counts, when: str, interval: Steps | None) -> Told:
    what = "get an empty result" if found.empty else f'get one and the same error, "{found.text}"'
    return Told(
        claim=f"{when}, {pct(part.share)} of the calls of {found.tool} {what}: the tool does not work, "
        "whatever is asked",
        causes=(
            "the tool's address, key or field is wrong, and the failure is swallowed",
            "the service behind it is down, or answers in another shape than the environment reads",
        ),
        confirm=(f"make one recorded call of {found.tool} by hand: does the service itself answer?",),
        next=(
            "mend the tool, and let a failed call raise or count instead of answering",
            "train again from the first checkpoint: what was learnt was learnt without the tool"
            if interval is None
            else f"go back to the checkpoint before step {interval[1]}: what came after was learnt without the tool",
        ),
        evidence={"tool": found.tool, "error": found.text or None},
    )


RULE = rule(check, "useless-results", Link.ENVIRONMENT, share=SHARE, high=HIGH_SHARE, families=REWARDED_LANGUAGE)
