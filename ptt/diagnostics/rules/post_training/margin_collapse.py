"""This run shows a margin between chosen and rejected answers that vanished again.

What: after its best 20-step mean the margin falls below a quarter of it, by more than its own noise, and stays there.
Why it matters: the model has lost what it had learnt about the preferences; later checkpoints are worse than earlier
ones.
What to do: go back to the checkpoint with the best margin. Look for a learning rate that is too high late in the run,
or for different data from there on.
Source: relative to the run's own best; margins scale with beta, so no absolute limit means anything.
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES, BaselineShift, lasting_fall
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, Verdict, rule
from ptt.diagnostics.rules.post_training import PAIRS, requires_pairs
from ptt.diagnostics.rules.single_series import derived, last_mean, measured
from ptt.diagnostics.wording import pct, sig

FALL_FACTOR = 0.25  # of the best margin: less is gone, not merely lower
HIGH_MAX_ACCURACY = 0.6  # share of pairs: the ranking went with the margin


@requires_pairs("dpo/margin", what="margin of the pairs")
def check(series: Series, evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the margin behind its best."""
    best, fall = fall_from_best(series, limits["left"])
    if fall is None or fall.ended:
        return Healthy(reason=f"the margin's best 20-step mean is {sig(best)}, its last {sig(last_mean(series))}")
    accuracy = evidence.metrics.get("dpo/accuracy")
    last = last_mean(accuracy) if accuracy is not None and len(accuracy.finite()[0]) >= MIN_VALUES else None
    return Finding(
        severity=Severity.HIGH if last is None or last < HIGH_MAX_ACCURACY else Severity.MEDIUM,
        claim=f"The margin fell from {sig(best)} to {sig(fall.last)}, below {pct(limits['left'])} of its best",
        unit="reward",
        **measured(fall),
        evidence={"metric": series.name, "logged_as": series.raw_name, "best_mean": best, "last_accuracy": last},
        causes=(
            "a learning rate that is too high at this stage of training",
            "from some step on, pairs of a different kind or with swapped labels",
            "a reference that was replaced or reloaded during training",
        ),
        confirm=(f"evaluate the checkpoints before and after step {fall.onset} on the same held-out pairs",),
        next=(
            f"go back to the last checkpoint before step {fall.interval[0]}",
            f"read the pairs of the batches around step {fall.onset}, then rerun with half the learning rate",
        ),
    )


def fall_from_best(series: Series, factor: float) -> tuple[float, BaselineShift | None]:
    """Return the best mean over a full window, and the lasting fall after it to below `factor` of it, if any."""
    steps, values = series.finite()
    means = np.convolve(values, np.full(series.width, 1 / series.width), mode="valid")
    top = int(means.argmax())
    best = float(means[top])
    if best <= 0 or len(values) - top < MIN_VALUES:
        return best, None
    return best, lasting_fall(derived(series, steps[top:], values[top:]), ceiling=factor * best, factor=factor)


RULE = rule(check, "margin-collapse", Link.POLICY_UPDATE, left=FALL_FACTOR, families=PAIRS)
