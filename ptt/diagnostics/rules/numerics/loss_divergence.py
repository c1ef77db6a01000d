"""This run shows a loss that rises again and stays up.

What: where data are given, the mean loss over a window lies above 1.5 times its best and 0.2 above it, beyond its own
noise, to the end of the run. With fewer than 30 values, at least the last three must lie 2 nats above the best. Where
the policy samples its own data, the size of the loss is ten times what it was, and above 1.
Why it matters: the model is losing what it learnt, or the optimiser left the region where its steps mean anything.
What it is not: a GRPO or PPO loss that goes from 0.01 to 0.05. Such a loss hovers near 0 and does not measure progress,
so its percentages mean nothing.
What to do: go back to the best checkpoint; look at learning rate, batch order and precision around the first rise.
Source: relative to the run's own best, because losses differ by model and data; the bound allows for autocorrelated
noise (AR(1) 0.8).
"""

from functools import partial

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.algorithm import SAMPLED
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES, BaselineShift, early_level, lasting_rise
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import EVERY, Finding, Healthy, Limits, NotJudged, Verdict, requires, rule
from ptt.diagnostics.rules.numerics import logged_loss
from ptt.diagnostics.rules.single_series import GROSS_VALUES, derived, gross_excess, measured, metric_evidence
from ptt.diagnostics.wording import sig

BEST_FACTOR = 1.5  # times the best level of a loss on given data: noise of a batch, harder data later on stay below
MARGIN = 0.2  # nats: a loss that went from 0.001 to 0.005 is still nothing
GROSS_MARGIN = 2.0  # nats above the best, value after value: batch noise leaps this far, but does not stay there
ONLINE_FACTOR = 10.0  # times the early size of a policy loss
ONLINE_FLOOR = 1.0  # advantages have a spread of about 1: a loss of that size is no longer an average of them


@requires(partial(logged_loss, minimum=GROSS_VALUES + 1))
def check(series: Series, evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the logged loss."""
    given = is_fitted(evidence, series)
    enough = logged_loss(evidence, minimum=MIN_VALUES)
    if isinstance(enough, NotJudged):
        return (_gross(series, limits) if given else None) or enough
    rise = _from_best(series, limits) if given else _in_size(series, limits)
    if rise is None or rise.ended:
        _, mean = series.rolling()
        mean = mean[np.isfinite(mean)]
        reason = f"the mean loss goes from {sig(mean[0])} to {sig(mean[-1])}, and did not leave its level for good"
        return Healthy(reason=reason)
    level = early_level(series)
    lost = given and level is not None and rise.last > level.median
    what = "its best level" if given else "its early size"
    return Finding(
        severity=Severity.HIGH if lost or not given else Severity.MEDIUM,
        claim=f"{series.raw_name} rose from {sig(rise.early)}, {what}, to {sig(rise.last)}"
        + ("; that is more than the run began with" if lost else ""),
        unit="loss",
        **measured(rise),
        evidence=metric_evidence(series, best=rise.early, highest=rise.extreme),
        causes=(
            "a learning rate that is too high once warm-up has ended",
            "a damaged part of the data",
            "precision: sums in bfloat16, or an optimiser state that was not restored on resume",
        )
        if given
        else (
            "importance ratios without bounds",
            "a KL term that outgrew the other terms",
            "advantages or rewards that blew up",
        ),
        confirm=(
            f"plot loss, learning rate and gradient norm around step {rise.onset}: did the norm jump first?",
            "evaluate the checkpoints before and after on the same held-out batch: is the model worse, or only the "
            "data different?",
        ),
        next=(
            f"rerun from the checkpoint before step {rise.interval[0]} with half the learning rate, and change "
            "nothing else",
        ),
    )


def _gross(series: Series, limits: Limits) -> Finding | None:
    """Return the finding on a short series whose last values lie far above its best; None for anything less."""
    best = float(series.finite()[1].min())
    excess = gross_excess(series, max(limits["times_best"] * best, best + GROSS_MARGIN))
    if excess is None or excess.last_good is None:
        return None
    return Finding(
        severity=Severity.HIGH,
        claim=f"{series.raw_name} rose from its best of {sig(best)} to {sig(excess.last)} and stayed there",
        unit="loss",
        **measured(excess),
        evidence=metric_evidence(series, best=best, highest=float(series.finite()[1].max())),
        causes=(
            "a learning rate that is too high",
            "weights or an optimiser state that were not restored",
            "damaged data, or a chat template that does not fit the model",
        ),
        confirm=(f"evaluate the checkpoints before and after step {excess.onset} on the same held-out batch",),
        next=("start again from the original model with a tenth of the learning rate, and change nothing else",),
    )


def is_fitted(evidence: Evidence, series: Series) -> bool:
    """Return whether the loss is on given data: by the kind of training, or, if no file says it, by its shape.

    A policy loss scatters around zero; a loss on given data is positive, and no reward is logged with it.
    """
    if evidence.algorithm.family is not None:
        return evidence.algorithm.family not in SAMPLED
    return "reward/mean" not in evidence.metrics and bool((series.finite()[1] > 0).all())


def _from_best(series: Series, limits: Limits) -> BaselineShift | None:
    """Return the rise above the best level since it was reached."""
    steps, values = series.finite()
    start = max(0, int(np.nanargmin(series.rolling()[1])) - series.width + 1)
    later = derived(series, steps[start:], values[start:])
    level = early_level(later)
    if level is None:
        return None
    return lasting_rise(later, floor=level.median + MARGIN, factor=limits["times_best"])


def _in_size(series: Series, limits: Limits) -> BaselineShift | None:
    steps, values = series.finite()
    sizes = derived(series, steps, np.abs(values))
    return lasting_rise(sizes, floor=limits["least_online"], factor=limits["times_online"])


RULE = rule(
    check,
    "loss-divergence",
    Link.NUMERICS,
    times_best=BEST_FACTOR,
    times_online=ONLINE_FACTOR,
    least_online=ONLINE_FLOOR,
    families=EVERY,
)
