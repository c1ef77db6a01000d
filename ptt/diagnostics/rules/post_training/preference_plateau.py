"""This run shows a pair accuracy that stopped rising well below 1.

What: over the second half of the run the accuracy does not rise (the 99% interval of its change stays below a fiftieth
of the pairs), and its mean lies between chance and 0.9.
Why it matters: further steps on these pairs teach little. Always a note.
What it is not: a run at chance, which is a separate finding, or one that has learnt its pairs.
What to do: compare it with how often two judges of the same pairs agree: once that is reached, nothing is left to
learn.
Source: our own; human agreement on preference pairs is commonly 0.65 to 0.8 (arXiv 2203.02155, section 3.4 gives 0.73).
"""

import math

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, Verdict, rule
from ptt.diagnostics.rules.post_training import PAIRS, T_LIMIT, late_half, level_of, requires_pairs

CHANCE = 0.5
LEARNT_SHARE = 0.9  # share of pairs: nearly all that can be learnt
MAX_RISE = 0.02  # share of pairs over a quarter of the run


@requires_pairs("dpo/accuracy", what="share of correctly ranked pairs", minimum=80)
def check(series: Series, _: Evidence, limits: Limits) -> Verdict:
    """Compare the last two quarters of the accuracy."""
    late = late_half(series)
    before, last, whole = level_of(late[: len(late) // 2]), level_of(late[len(late) // 2 :]), level_of(late)
    rise = last.mean - before.mean
    highest = rise + T_LIMIT * math.hypot(before.error, last.error)
    reason = f"the accuracy of the last quarter is {last.mean:.3f}, of the one before {before.mean:.3f}"
    if highest > limits["rise"] or not whole.low > CHANCE or whole.mean >= LEARNT_SHARE:
        return Healthy(reason=reason)
    note = Finding(
        severity=Severity.LOW,
        claim=f"Pair accuracy stopped rising at {whole.mean:.2f}",
        observed=rise,
        limit=limits["rise"],
        unit="share",
        evidence={
            "metric": series.name,
            "logged_as": series.raw_name,
            "last_quarter": last.mean,
            "before": before.mean,
        },
        causes=(
            "the model has learnt what these pairs teach",
            "labels that contradict each other",
            "a learning rate decayed to zero",
        ),
        next=("compare it with the agreement of two judges on the same pairs",),
    )
    return Healthy(reason=reason, notes=(note,))


RULE = rule(check, "preference-plateau", Link.TRAINING_SIGNAL, max_severity=Severity.LOW, rise=MAX_RISE, families=PAIRS)
