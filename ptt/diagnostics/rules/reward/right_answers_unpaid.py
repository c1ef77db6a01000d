"""This run shows answers that are right and earn nothing.

What: of the recorded samples whose marked answer (in the last box, after `####`, between answer tags) is the expected
one letter by letter or as a number, a fifth or more earn no more than the worst sample of the run. High from a half on.
Samples of evaluations are looked at where no right answer of training is recorded: one scorer mostly judges both.
Why it matters: the scorer fails, and its failures count as wrong answers: the policy is trained away from what is
right.
What it is not: tasks that are too hard, or a format that is asked for beside the answer and missed in a few samples.
What to do: score ten such samples by hand, outside the trainer; look for exceptions and timeouts in the scorer's log.
Source: verl#5635 (a scorer that raises outside the main thread), verifiers#831 (a timeout of the scorer that counts the
time spent waiting). The shares are our own.
"""

from __future__ import annotations

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.counts import Counts
from ptt.diagnostics.model import Link
from ptt.diagnostics.rules.faulty_samples import Told, judge_faulty
from ptt.diagnostics.rules.interface import REWARDED_LANGUAGE, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.wording import pct

SHARE = 0.2  # of the right answers: more than a rule on format takes from a policy that knows it
HIGH_SHARE = 0.5
UNRECORDED = NotJudged(
    reason="too few samples are recorded with an expected answer and a marked one that equals it",
    missing=("trajectories.answer_right",),
    enable="save samples with their text, reward and expected answer (veRL: trainer.rollout_data_dir)",
    absent=True,
)


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge how many right answers earn the least."""
    faults = evidence.faults
    if faults is None:
        return UNRECORDED
    where = "evaluated " if faults.unpaid_evaluated else ""
    return judge_faulty(
        faults.unpaid,
        limits,
        unrecorded=UNRECORDED,
        words=lambda part, when: _told(part, when, faults.unpaid_source, where),
    )


def _told(part: Counts, when: str, source: str | None, where: str) -> Told:
    of = f" ({source})" if source else ""
    return Told(
        claim=f"{when}, {pct(part.share)} of {where}answers that equal the expected one{of} earn the least: the scorer "
        "fails, or asks for a form that these lack",
        causes=(
            "the scorer raises or times out, and the exception is scored 0",
            "it cannot read answers of this form",
            "a format is asked for that the policy does not know yet",
        ),
        confirm=(f"score ten of these samples of step {int(part.steps[0])} by hand, outside the trainer",),
        next=(
            "give samples whose scoring failed no reward, and leave them out of the loss",
            "count failures and timeouts of the scorer, by data source",
        ),
        evidence={"source": source},
    )


RULE = rule(check, "right-answers-unpaid", Link.REWARD, share=SHARE, high=HIGH_SHARE, families=REWARDED_LANGUAGE)
