"""This run shows answers that are much shorter or longer at single steps or for short spans, and then as before.

What: the mean response length leaves its level by a factor of two or more, to either side, at more steps than its
noise gives, and returns. A single such step is a note.
Why it matters: answers that never ran, or that run to the limit as junk, are trained on with whatever they score.
What it is not: lengths that change for good (length-collapse, length-inflation), or a curriculum.
What to do: read the samples of these steps: empty, cut, or junk? Then look at what was running: environment, engine.
Source: `recurring_excursions`; a factor of two is far beyond a batch's own mix of tasks, and a limit of our own.
"""

from __future__ import annotations

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.model import Link
from ptt.diagnostics.rules.comes_and_goes import factor_judge, judge_recurrences
from ptt.diagnostics.rules.interface import LANGUAGE, Limits, Verdict, rule

FACTOR = 2.0  # times the level, or its inverse


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the dips and spikes of the mean response length."""
    return judge_recurrences(
        evidence,
        limits,
        ("len/response_mean",),
        what="mean response length",
        enable="log the mean response length",
        judge=factor_judge(
            "mean response length",
            unit="tokens",
            causes=(
                "rollouts that ended at once: an environment, a tool or a server that was down",
                "an engine that writes junk up to the limit",
                "batches of other tasks",
            ),
            next_steps=(
                "leave these steps out of training: mark failed rollouts, and do not score them",
                "log how each rollout ended",
            ),
        ),
    )


RULE = rule(
    check,
    "length-excursions",
    Link.EXPLORATION,
    families=LANGUAGE,
    times_level=FACTOR,
)
