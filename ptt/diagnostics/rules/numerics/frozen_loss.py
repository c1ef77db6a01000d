"""This run shows a loss that stands still to the last digit while training goes on.

What: the logged loss has exactly one value over 20 logged steps and a tenth of the run at least, while other metrics
move. A loss of exactly 0 counts only where the gradient norm is NaN, infinite or exactly 0 beside it, or where
training is from given data.
Why it matters: nothing is learnt from a constant, or what is shown is no longer the loss: `logging_nan_inf_filter` of
Hugging Face trainers shows 0 or an old mean in place of NaN.
What it is not: the loss of GRPO and its kin, which hovers near 0 and is exactly 0 on fresh samples without a KL term,
because the advantages of a group add up to 0. There the gradient norm tells.
What to do: look at the gradient norm first; if it is NaN, treat the run as dead from that step. If it is 0, look for
an empty loss mask, frozen parameters or a learning rate of 0.
Source: TRL and transformers (`logging_nan_inf_filter` is on by default); GRPO's loss, arXiv 2402.03300 eq. 3.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.algorithm import Family
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.metrics.catalogue import listed
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import EVERY, Finding, Healthy, Limits, NotJudged, Rule, Verdict
from ptt.diagnostics.rules.single_series import logged
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray

LEAST_EQUAL = 20.0  # logged values in a row: two or three equal ones come of rounding and of steps that share a batch
LEAST_SHARE = 0.1  # of the logged values: a short stretch in a long run is a pause
MOVING = listed("moves_while_training")
DEAD, ZERO, MOVES, UNKNOWN = "NaN or infinite", "exactly 0", "finite and above 0", "not logged"


class Stretch(NamedTuple):
    """Places of the longest run of equal values."""

    first: int
    length: int


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the longest stretch of equal losses."""
    only_policy = "loss/policy" in evidence.metrics and "loss/total" not in evidence.metrics
    series = logged(
        evidence,
        "loss/policy" if only_policy else "loss/total",
        what="loss",
        enable="log the loss every step",
        minimum=int(LEAST_EQUAL),
    )
    if isinstance(series, NotJudged):
        return series
    steps, values = series.finite()
    longest = stretch(values)
    least = max(limits["least_equal"], LEAST_SHARE * len(values))
    if longest.length < least:
        reason = f"at most {longest.length} losses in a row are equal, of {len(values)}; {least:.0f} would be frozen"
        return Healthy(reason=reason)
    held = steps[longest.first : longest.first + longest.length]
    value = float(values[longest.first])
    gradient = _gradient(evidence.metrics.get("grad_norm"), held)
    moving = [name for name in MOVING if _moves(evidence.metrics.get(name), held)]
    if value == 0.0 and evidence.algorithm.family in (None, Family.ONLINE):
        if gradient == MOVES:
            reason = f"the loss is exactly 0 at {longest.length} steps, as on fresh samples; the gradient norm is not"
            return Healthy(reason=reason)
        if gradient == UNKNOWN:
            return NotJudged(
                reason=f"the loss is exactly 0 at {longest.length} steps, which is normal for group-relative methods; "
                "the gradient norm would tell",
                missing=("grad_norm",),
                enable="log the gradient norm before clipping",
            )
    elif not moving and gradient != DEAD:
        reason = f"the loss is {value:g} at {longest.length} steps in a row, and so does nothing else logged move"
        return Healthy(reason=reason)
    return _finding(series, held, value, gradient, moving, least)


def stretch(values: FloatArray) -> Stretch:
    """Give the first longest run of equal values."""
    breaks = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
    counts = np.diff(np.append(breaks, len(values)))
    longest = int(np.argmax(counts))
    return Stretch(int(breaks[longest]), int(counts[longest]))


def _within(series: Series, held: IntArray) -> npt.NDArray[np.bool_]:
    inside: npt.NDArray[np.bool_] = (series.steps >= held[0]) & (series.steps <= held[-1])
    return inside


def _gradient(series: Series | None, held: IntArray) -> str:
    if series is None or not (inside := _within(series, held)).any():
        return UNKNOWN
    values = series.values[inside]
    if np.mean(~np.isfinite(values)) >= 0.5:
        return DEAD
    return ZERO if np.mean(values[np.isfinite(values)] == 0.0) >= 0.5 else MOVES


def _moves(series: Series | None, held: IntArray) -> bool:
    if series is None:
        return False
    values = series.values[_within(series, held) & np.isfinite(series.values)]
    return len(np.unique(values)) > len(values) / 2 > 1


def _finding(series: Series, held: IntArray, value: float, gradient: str, moving: list[str], least: float) -> Finding:
    first, last = int(held[0]), int(held[-1])
    causes = {
        DEAD: ("a NaN loss that the writer's filter shows as this value",),
        ZERO: ("an empty loss mask", "frozen parameters or an optimiser without any", "advantages that are all 0"),
    }.get(gradient, ("a loss that is logged before it is computed, or of another batch", "a learning rate of 0"))
    return Finding(
        severity=Severity.HIGH,
        claim=f"{series.raw_name} is exactly {value:g} at {len(held)} logged steps in a row, up to step {last}",
        observed=float(len(held)),
        limit=least,
        unit="steps",
        onset_step=first,
        onset_interval=(first, first),
        evidence={
            "metric": series.name,
            "logged_as": series.raw_name,
            "value": value,
            "last_step": last,
            "gradient_norm": gradient,
            "moving": ", ".join(moving) or None,
        },
        causes=causes,
        confirm=(f"read the gradient norm and the learning rate at step {first}: NaN, 0 or as before?",),
        next=(
            f"compare the weights of the checkpoints around step {first}: equal weights mean that nothing is trained",
            "count the tokens in the loss of one batch",
        ),
    )


RULE = Rule(
    id="frozen-loss",
    link=Link.NUMERICS,
    check=check,
    judges_nan=True,
    limits={"least_equal": LEAST_EQUAL},
    families=EVERY,
)
