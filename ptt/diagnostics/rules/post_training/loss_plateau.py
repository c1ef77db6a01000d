"""This run shows a training loss that never left its first level.

What: the loss of the second half is not significantly lower (99%, by the scatter of ten blocks) than that of the first
tenth, or lower by less than 1%.
Why it matters: the run may have learnt nothing. It is a note: a model that already knew its data looks the same, and so
does a resumed run.
What to do: look at the gradient norm and the learning rate first: is either 0? Are the adapters trained at all?
Source: the run's own first level; no absolute loss means anything across models and data.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import OFFLINE, Finding, Healthy, Limits, Verdict, rule
from ptt.diagnostics.rules.post_training import BLOCKS, late_half, level_of
from ptt.diagnostics.rules.single_series import requires_metric
from ptt.diagnostics.wording import sig

WINDOW_FALL_SHARE = 0.25  # of the first level: a window this far below is not noise of a plateau
MIN_FALL_SHARE = 0.01  # of the first level
MIN_VALUES = 100  # logged values: the first tenth then makes ten blocks


ENABLE = "log the training loss at every step: logging_steps=1"


@requires_metric("loss/total", what="training loss", enable=ENABLE, minimum=MIN_VALUES)
def check(series: Series, _: Evidence, limits: Limits) -> Verdict:
    """Compare the loss of the second half with the first tenth."""
    values = series.finite()[1]
    first, late = level_of(values[: len(values) // BLOCKS]), level_of(late_half(series))
    summary = f"the loss of the first tenth is {sig(first.mean)}, of the second half {sig(late.mean)}"
    fall = first.mean - late.mean
    # a loss that came back has left its level all the same
    lowest = float(series.rolling()[1][series.width - 1 :].min())
    fall = max(fall, first.mean - lowest) if first.mean - lowest > WINDOW_FALL_SHARE * abs(first.mean) else fall
    if fall > limits["least_fall"] * abs(first.mean) and (
        late.high < first.mean or lowest < (1 - WINDOW_FALL_SHARE) * first.mean
    ):
        return Healthy(reason=summary)
    note = Finding(
        severity=Severity.LOW,
        claim=f"The training loss never left its first level: {summary}",
        observed=fall,
        limit=limits["least_fall"] * abs(first.mean),
        unit="nats",
        onset_step=int(series.finite()[0][0]),
        evidence={"metric": series.name, "logged_as": series.raw_name, "first": first.mean, "late": late.mean},
        causes=(
            "a learning rate that is too small, or frozen parameters",
            "data that the model already knew, or a resumed run",
            "targets that the input does not determine",
        ),
        confirm=("train on 32 examples for 100 steps: the loss should fall towards 0",),
        next=(
            "check that the gradient norm and the learning rate are not 0 and that the loss mask covers the answers",
        ),
    )
    return Healthy(reason=summary, notes=(note,))


RULE = rule(
    check, "loss-plateau", Link.TRAINING_SIGNAL, max_severity=Severity.LOW, least_fall=MIN_FALL_SHARE, families=OFFLINE
)
