"""This run shows an entropy that falls or jumps at single steps or for short spans, and comes back.

What: the token entropy leaves its level by a factor of two or more, to either side, at more steps than its noise
gives, and returns. A single such step is a note.
Why it matters: samples of another temperature, another model or of junk are trained on as if they were the policy's.
What it is not: an entropy that collapses or explodes for good (entropy-collapse, entropy-explosion).
What to do: read the samples of these steps; compare sampling settings and weights of the engine with those of others.
Source: `recurring_excursions`; a factor of two is far beyond a batch's own mix of tasks, and a limit of our own.
"""

from __future__ import annotations

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.model import Link
from ptt.diagnostics.rules.comes_and_goes import factor_judge, judge_recurrences
from ptt.diagnostics.rules.interface import LANGUAGE, Limits, Verdict, rule

FACTOR = 2.0  # times the level, or its inverse
ENABLE = "log the policy's token entropy"


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the dips and spikes of the entropy."""
    return judge_recurrences(
        evidence,
        limits,
        ("entropy",),
        what="entropy",
        enable=ENABLE,
        judge=factor_judge(
            "entropy",
            unit="nats",
            causes=(
                "sampling settings that differ at these steps: temperature, top-p, a stop word",
                "batches of other tasks, or of broken prompts",
            ),
            next_steps=(
                "use the same sampling settings at every step, and log them",
                "leave these steps out of training until the cause is known",
            ),
        ),
    )


RULE = rule(
    check,
    "entropy-excursions",
    Link.EXPLORATION,
    families=LANGUAGE,
    times_level=FACTOR,
)
