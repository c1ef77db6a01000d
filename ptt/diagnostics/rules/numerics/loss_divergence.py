"""This run shows a loss that rises again, and stays up.

What: where data are given, the mean loss over a window lies above 1.5 times its best and 0.2 above it, beyond its own
noise, to the end of the run. Where the policy samples its own data, the size of the loss is ten times what it was, and
above 1.
Why it matters: what was learnt is lost again, or the optimiser left the region where its steps mean anything.
What it is not: the loss of GRPO or PPO that goes from 0.01 to 0.05. Such a loss is no measure of progress, hovers
near 0, and its percentages mean nothing.
What to do: go back to the best checkpoint; look at learning rate, batch order and precision around the first rise.
Source: relative to the run's own best, since losses differ by model and data; the bound allows for noise that follows
itself from step to step (AR(1) 0.8).
"""

from dataclasses import replace

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.algorithm import Family
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES, BaselineShift, early_level, lasting_rise
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import EVERY, Finding, Healthy, Limits, NotJudged, Rule, Verdict
from ptt.diagnostics.rules.single_series import logged

TIMES_BEST = 1.5  # times the best level of a loss on given data: noise of a batch, harder data later on stay below
MARGIN = 0.2  # nats: a loss that went from 0.001 to 0.005 is still nothing
TIMES_ONLINE = 10.0  # times the early size of a policy loss
LEAST_ONLINE = 1.0  # advantages have a spread of about 1: a loss of that size is no longer an average of them
ENABLE = "log the loss every step"


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the logged loss."""
    name = "loss/policy" if "loss/total" not in evidence.metrics and "loss/policy" in evidence.metrics else "loss/total"
    series = logged(evidence, name, what="loss", enable=ENABLE, minimum=MIN_VALUES)
    if isinstance(series, NotJudged):
        return series
    given = _is_fitted(evidence, series)
    found = _from_best(series, limits) if given else _in_size(series, limits)
    if found is None or found.ended:
        _, mean = series.rolling()
        mean = mean[np.isfinite(mean)]
        reason = f"the mean loss goes from {mean[0]:.3g} to {mean[-1]:.3g}, and did not leave its level for good"
        return Healthy(reason=reason)
    level = early_level(series)
    lost = given and level is not None and found.last > level.median
    return _finding(series, found, given, lost)


def _is_fitted(evidence: Evidence, series: Series) -> bool:
    """Tell whether the loss is one of given data: by the kind of training, or, where no file tells, by its shape.

    A loss of the policy scatters around zero; one of given data is positive, and no reward stands beside it.
    """
    if evidence.algorithm.family is not None:
        return evidence.algorithm.family is not Family.ONLINE
    return "reward/mean" not in evidence.metrics and bool((series.finite()[1] > 0).all())


def _from_best(series: Series, limits: Limits) -> BaselineShift | None:
    """Give the rise above the best level since it was reached."""
    steps, values = series.finite()
    _, mean = series.rolling()
    best = int(np.nanargmin(mean))
    start = max(0, best - series.width + 1)
    later = replace(series, steps=steps[start:], values=values[start:], flags=np.zeros(len(steps) - start, np.uint8))
    level = early_level(later)
    if level is None:
        return None
    return lasting_rise(later, floor=level.median + MARGIN, factor=limits["times_best"])


def _in_size(series: Series, limits: Limits) -> BaselineShift | None:
    steps, values = series.finite()
    sizes = replace(series, steps=steps, values=np.abs(values), flags=np.zeros(len(steps), np.uint8))
    return lasting_rise(sizes, floor=limits["least_online"], factor=limits["times_online"])


def _finding(series: Series, found: BaselineShift, given: bool, lost: bool) -> Finding:
    what = "its best level" if given else "its early size"
    return Finding(
        severity=Severity.HIGH if lost or not given else Severity.MEDIUM,
        claim=f"{series.raw_name} rose from {found.early:.3g}, {what}, to {found.last:.3g}"
        + ("; that is more than the run began with" if lost else ""),
        observed=found.last,
        limit=found.limit,
        unit="loss",
        onset_step=found.onset,
        onset_interval=found.interval,
        evidence={"metric": series.name, "logged_as": series.raw_name, "best": found.early, "highest": found.extreme},
        causes=(
            "a learning rate too high once warm-up has ended",
            "one damaged part of the data",
            "precision: sums in bfloat16, or an optimiser state that was not restored on resume",
        )
        if given
        else ("importance ratios without bounds", "a KL term that outgrew the rest", "advantages or rewards blown up"),
        confirm=(
            f"plot loss, learning rate and gradient norm around step {found.onset}: did the norm jump first?",
            "evaluate the checkpoints before and after on the same held-out batch: worse too, or only other data?",
        ),
        next=(f"rerun from the checkpoint before step {found.interval[0]} with half the learning rate, nothing else",),
    )


RULE = Rule(
    id="loss-divergence",
    link=Link.NUMERICS,
    check=check,
    limits={"times_best": TIMES_BEST, "times_online": TIMES_ONLINE, "least_online": LEAST_ONLINE},
    families=EVERY,
)
