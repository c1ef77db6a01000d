"""This run shows a loss that stands still to the last digit while training goes on.

What: the logged loss keeps exactly one value for at least 20 logged steps and a tenth of the run, while other metrics
move. A loss of exactly 0 counts only where the gradient norm is NaN, infinite or exactly 0 beside it, or where training
uses given data.
Why it matters: a constant teaches nothing, or the value shown is no longer the loss: `logging_nan_inf_filter` of
Hugging Face trainers shows 0 or an old mean in place of NaN.
What it is not: the loss of GRPO and similar methods, which hovers near 0 and is exactly 0 on fresh samples without a KL
term, because the advantages of a group add up to 0. There the gradient norm decides.
What to do: look at the gradient norm first; if it is NaN, treat the run as dead from that step. If it is 0, look for an
empty loss mask, frozen parameters or a learning rate of 0.
Source: TRL and transformers (`logging_nan_inf_filter` is on by default); GRPO's loss, arXiv 2402.03300 eq. 3.
"""

from functools import partial

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.algorithm import samples_online
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.metrics.catalogue import listed
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import EVERY, Finding, Healthy, Limits, NotJudged, Verdict, requires, rule
from ptt.diagnostics.rules.numerics import logged_loss, longest_true
from ptt.diagnostics.rules.single_series import metric_evidence
from ptt.diagnostics.statistics.arrays import BoolArray, IntArray

MIN_EQUAL = 20.0  # logged values in a row: two or three equal ones come from rounding, or from steps that share a batch
MIN_EQUAL_SHARE = 0.1  # of the logged values: a short stretch in a long run is a pause
MOVING = listed("moves_while_training")
DEAD, ZERO, MOVES, UNKNOWN = "NaN or infinite", "exactly 0", "finite and above 0", "not logged"


CAUSES = {
    DEAD: ("a NaN loss that the writer's filter shows as this value",),
    ZERO: ("an empty loss mask", "frozen parameters, or an optimiser without parameters", "advantages that are all 0"),
}


@requires(partial(logged_loss, minimum=int(MIN_EQUAL)))
def check(series: Series, evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the longest stretch of equal losses."""
    steps, values = series.finite()
    start, pairs = longest_true(values[1:] == values[:-1])
    length = pairs + 1
    minimum = max(limits["least_equal"], MIN_EQUAL_SHARE * len(values))
    if length < minimum:
        reason = f"at most {length} losses in a row are equal, of {len(values)}; {minimum:.0f} would count as frozen"
        return Healthy(reason=reason)
    frozen = steps[start : start + length]
    value = float(values[start])
    gradient = _gradient(evidence.metrics.get("grad_norm"), frozen)
    moving = [name for name in MOVING if _moves(evidence.metrics.get(name), frozen)]
    if value == 0.0 and samples_online(evidence.algorithm):
        zero = f"the loss is exactly 0 at {length} steps"
        if gradient == MOVES:
            return Healthy(reason=f"{zero}, as on fresh samples; the gradient norm is not")
        if gradient == UNKNOWN:
            reason = f"{zero}, which is normal for group-relative methods; only the gradient norm would show a fault"
            return NotJudged(reason=reason, missing=("grad_norm",), enable="log the gradient norm before clipping")
    elif not moving and gradient != DEAD:
        return Healthy(reason=f"the loss is {value:g} at {length} steps in a row, but nothing else logged moves either")
    first, last = int(frozen[0]), int(frozen[-1])
    return Finding(
        severity=Severity.HIGH,
        claim=f"{series.raw_name} is exactly {value:g} at {length} logged steps in a row, up to step {last}",
        observed=float(length),
        limit=minimum,
        unit="steps",
        onset_step=first,
        onset_interval=(first, first),
        evidence=metric_evidence(
            series, value=value, last_step=last, gradient_norm=gradient, moving=", ".join(moving) or None
        ),
        causes=CAUSES.get(
            gradient, ("a loss that is logged before it is computed, or from a different batch", "a learning rate of 0")
        ),
        confirm=(f"read the gradient norm and the learning rate at step {first}: NaN, 0 or as before?",),
        next=(
            f"compare the weights of the checkpoints around step {first}: if they are equal, nothing is trained",
            "count the tokens in the loss of one batch",
        ),
    )


def _within(series: Series, frozen: IntArray) -> BoolArray:
    inside: BoolArray = (series.steps >= frozen[0]) & (series.steps <= frozen[-1])
    return inside


def _gradient(series: Series | None, frozen: IntArray) -> str:
    if series is None or not (inside := _within(series, frozen)).any():
        return UNKNOWN
    values = series.values[inside]
    if np.mean(~np.isfinite(values)) >= 0.5:
        return DEAD
    return ZERO if np.mean(values[np.isfinite(values)] == 0.0) >= 0.5 else MOVES


def _moves(series: Series | None, frozen: IntArray) -> bool:
    if series is None:
        return False
    values = series.values[_within(series, frozen) & np.isfinite(series.values)]
    return len(np.unique(values)) > len(values) / 2 > 1


RULE = rule(check, "frozen-loss", Link.NUMERICS, least_equal=MIN_EQUAL, families=EVERY, judges_nan=True)
