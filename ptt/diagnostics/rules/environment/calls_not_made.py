"""This run shows tool calls that the policy writes and that are never made.

What: a tenth or more of the episodes with calls end in one that stands in the text alone, without a result, while other
calls of its tool were made. High from 30% on.
Why it matters: the policy does as it learnt; the parser of calls loses what it wrote, and the episode ends with
nothing. Its reward falls, and the policy is trained away from calling.
What it is not: calls that cannot be read at all (malformed-calls), a policy that stops calling (tool-use-vanished), a
tool that ends the episode, or an episode that a limit of turns or time ended; nor rows that hold no result at all while
the logged number of turns says that calls were answered.
What to do: feed one such text to the parser of calls. Look at what changed at that step: renderer, template, version.
Source: PrimeIntellect-ai/verifiers#1463: calls whose arguments were of another type were erased. The shares are our
own.
"""

from __future__ import annotations

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.counts import Counts
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link
from ptt.diagnostics.rules.faulty_samples import Told, judge_faulty
from ptt.diagnostics.rules.interface import REWARDED_LANGUAGE, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.wording import pct

SHARE = 0.1  # of the episodes with calls
HIGH_SHARE = 0.3
NEARLY_ALL = 0.98  # of the episodes: then the rows leave results out
ANSWERED_TURNS = 2.5  # on average, of what a trainer counts: question, call, result and answer are four messages
UNRECORDED = NotJudged(
    reason="no episode with calls that were understood is recorded, or too few",
    missing=("tool_calls",),
    enable="save samples with their messages, calls and results",
    absent=True,
)


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the share of episodes that end in a call which was never made."""
    counts = None if evidence.faults is None else evidence.faults.unexecuted
    turns = evidence.metrics.get("turns/mean")
    if counts is not None and turns is not None and counts.share >= NEARLY_ALL and _answered(turns):
        return NotJudged(
            reason=f"the saved rows hold no result of a call, and {turns.raw_name} says that calls are answered",
            missing=("tool_calls.result_len",),
            enable="save samples with their messages, calls and results",
        )
    return judge_faulty(counts, limits, unrecorded=UNRECORDED, words=_told)


def _answered(turns: Series) -> bool:
    values = turns.finite()[1]
    return bool(len(values)) and float(np.median(values)) >= ANSWERED_TURNS


def _told(part: Counts, when: str) -> Told:
    return Told(
        claim=f"{when}, {pct(part.share)} of episodes with tool calls end in a call that stands in the text and was "
        "never made: the parser of calls loses it",
        causes=(
            "the parser or renderer drops a call that it finds invalid, instead of answering with an error",
            "a chat template, a tool parser or a version that changed at a restart",
        ),
        confirm=(f"feed the last message of such an episode of step {int(part.steps[0])} to the parser of calls",),
        next=(
            "let the parser keep such calls, or answer them with an error that the policy sees",
            "leave these episodes out of training, and go back to the checkpoint before they began",
        ),
    )


RULE = rule(check, "calls-not-made", Link.ENVIRONMENT, share=SHARE, high=HIGH_SHARE, families=REWARDED_LANGUAGE)
