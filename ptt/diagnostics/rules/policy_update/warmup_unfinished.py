"""This run shows a warm-up that never ended.

What: the logged learning rate rises at nearly every step to the end of a run that reached its planned end, or for as
long as the run was planned.
Why it matters: the chosen rate was never used, and the last weights come from the largest steps of the run: no decay
settled them.
What it is not: a run that was stopped during its warm-up, or is still running.
What to do: give warm-up a share of the planned optimiser steps (3 to 10%) rather than a number of steps copied from a
longer run.
Source: `warmup_steps` of transformers and veRL counts optimiser steps; a run shortened for a test keeps the old number.
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import EVERY, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.policy_update import LOG_LEARNING_RATE
from ptt.diagnostics.rules.single_series import metric_evidence, requires_metric
from ptt.diagnostics.wording import sig

RISING_SHARE = 0.95  # of the logged steps: the rest are equal values of the logger's rounding
MIN_VALUES = 10
DONE_SHARE = 0.98  # of the planned steps: the last logged step may lie a little before the last one


@requires_metric("lr", what="learning rate", enable=LOG_LEARNING_RATE, minimum=MIN_VALUES)
def check(series: Series, evidence: Evidence, limits: Limits) -> Verdict:
    """Judge whether the rate ever stopped rising."""
    steps, values = series.finite()
    rising = float((np.diff(values) > 0).mean())
    if rising < limits["rising"] or int(np.argmax(values)) != len(values) - 1:
        return Healthy(reason=f"the learning rate peaks at step {int(steps[np.argmax(values)])}")
    planned = evidence.run.context.get("max_steps")
    if not isinstance(planned, int | float) or planned <= 0:
        return NotJudged(
            reason="the learning rate rises to the last logged step, and no file says how many steps were planned",
            missing=("max_steps",),
            enable="keep the trainer's state or configuration beside the log",
        )
    if steps[-1] < DONE_SHARE * planned:
        return Healthy(reason=f"the run ended during its warm-up, at step {int(steps[-1])} of {int(planned)}")
    finding = Finding(
        severity=Severity.LOW,
        claim=f"Warm-up never ended: the learning rate rose at every step, to {sig(values[-1])} at the last one",
        observed=rising,
        limit=limits["rising"],
        unit="share",
        onset_step=int(steps[0]),
        onset_interval=(int(steps[0]), int(steps[0])),
        evidence=metric_evidence(series, planned_steps=int(planned)),
        causes=("a number of warm-up steps copied from a longer run",),
        confirm=("compare warmup_steps with the planned optimiser steps of this run",),
        next=("set warm-up to 3 to 10% of the planned steps",),
    )
    return Healthy(reason="only the schedule is unusual", notes=(finding,))


RULE = rule(
    check,
    "warmup-unfinished",
    Link.POLICY_UPDATE,
    max_severity=Severity.LOW,
    rising=RISING_SHARE,
    families=EVERY,
)
