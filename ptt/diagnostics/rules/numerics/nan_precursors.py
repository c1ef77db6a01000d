"""This run shows metrics that left their level in the steps before the first NaN.

What: in the 50 logged values before the first NaN or infinity of a core metric (nulls up to the end of the run count
as such), gradient norm, KL, ratios, rewards, losses, value loss or loss scale lie further from their own level than ten
times their usual scatter, and three times the level or a third of it, from some step on for half of the time or more.
They are told in the order of their steps: the first one is where to look. Where nothing stayed off its level, single
values that left it are told.
Why it matters: a NaN is where a run ended, not why. What moved first is nearer to the cause than what died.
What to do: replay the step of the first one with anomaly detection on; look at that batch's rewards, lengths and
log-ratios before touching the learning rate.
Source: the order of events in TRL issue 6772 and the debugging guides of TRL and veRL: ratios and norms blow up some
steps before a NaN; a sudden NaN with no precursor points to one batch or one kernel instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import MIN_LOGGED, Series
from ptt.diagnostics.metrics.catalogue import document
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import EVERY, Finding, Healthy, Limits, NotJudged, Rule, Verdict
from ptt.diagnostics.rules.numerics import CORE, core_series, first_not_a_number

WATCHED: Mapping[str, str] = {name: row["title"] for name, row in document()["before_nan"].items()}
SCATTERS = 10.0  # times the robust scatter before: single values of a healthy run reach six, heavy tails eight
TIMES = 3.0  # times the level, or a third of it: scatter alone is tiny where a metric hardly moves
FLOORS: Mapping[str, float] = {name: row["floor"] for name, row in document()["before_nan"].items() if "floor" in row}
STAYED = 0.5  # of the values up to the NaN
BEFORE = 50  # logged values in which a precursor is looked for
LEAST_BEFORE = 3  # values that tell a level at all: a run that dies at step 5 has no more


class Left(NamedTuple):
    """A metric that left its level."""

    step: int
    metric: str
    title: str
    value: float
    level: float


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Look at what moved before the first NaN."""
    held = core_series(evidence)
    if not held or max(len(series.steps) for series in held) < MIN_LOGGED:
        return NotJudged(
            reason="none of loss, gradient norm, KL, entropy and reward is logged often enough",
            missing=CORE,
            enable="log them every step, NaN included: in Hugging Face trainers set logging_nan_inf_filter=False",
        )
    first = first_not_a_number(held)
    if first is None:
        return Healthy(reason="no core metric is NaN or infinite, so nothing came before")
    step, name = first
    usable = [series for metric in WATCHED if (series := _before(evidence.metrics.get(metric), step)) is not None]
    if not usable:
        return NotJudged(
            reason=f"{name} is NaN or infinite from step {step} on; fewer than {LEAST_BEFORE + 1} values come before",
            missing=tuple(WATCHED)[:4],
            enable="log gradient norm, KL and ratios at every step from the first one on",
        )
    chain = _chain(usable, limits["scatters"], lasting=True) or _chain(usable, limits["scatters"], lasting=False)
    if not chain:
        reason = f"{name} is NaN or infinite from step {step} on; none of {len(usable)} metrics left its level before"
        return Healthy(reason=reason, notes=(_sudden(step, name, len(usable)),))
    return _finding(chain, step, name, limits["scatters"])


def _before(series: Series | None, step: int) -> Series | None:
    """Give the finite part before a step, or None where it is too short."""
    if series is None:
        return None
    steps, values = series.finite()
    earlier = steps < step
    if earlier.sum() <= LEAST_BEFORE:
        return None
    count = int(earlier.sum())
    return Series(
        name=series.name,
        raw_name=series.raw_name,
        steps=steps[earlier],
        values=values[earlier],
        flags=np.zeros(count, np.uint8),
    )


def _chain(usable: list[Series], scatters: float, *, lasting: bool) -> list[Left]:
    return sorted(left for series in usable if (left := _left(series, scatters, lasting=lasting)) is not None)


def _left(series: Series, scatters: float, *, lasting: bool) -> Left | None:
    """Give the first of the values before the end that is off the level the metric had until then.

    `lasting`: of the values from there to the end, so many must be: a spike that came back is a step like any other.
    """
    steps, values = series.finite()
    known = max(LEAST_BEFORE, len(values) - BEFORE, len(values) // 8)
    usual = values[max(0, known - BEFORE) : known]
    level = float(np.median(usual))
    scatter = 1.4826 * float(np.median(np.abs(usual - level)))
    reach = max(scatters * scatter, (TIMES - 1) * abs(level), FLOORS.get(series.name, 0.0))
    off = values[known:] - level
    far = np.abs(off) > reach
    if level > 0:  # as far down on a scale of factors
        far |= (values[known:] < level / TIMES) & (-off > max(scatters * scatter, FLOORS.get(series.name, 0.0)))
    if lasting:
        stayed = np.cumsum(far[::-1])[::-1] / np.arange(len(far), 0, -1)
        far &= stayed >= STAYED
    if not far.any():
        return None
    place = known + int(np.argmax(far))
    return Left(int(steps[place]), series.name, WATCHED[series.name], float(values[place]), level)


def _finding(chain: list[Left], step: int, name: str, scatters: float) -> Finding:
    told = ", ".join(f"{left.title} at {left.step}" for left in chain[:6])
    start = chain[0]
    return Finding(
        severity=Severity.HIGH,
        claim=f"Before {name} was NaN or infinite at step {step}, these left their level: {told}",
        observed=start.value,
        limit=None,  # it is a number of scatters, not a level
        unit=start.title,
        onset_step=start.step,
        onset_interval=(start.step, step),
        evidence={
            "metric": start.metric,
            "limit_scatters": scatters,
            "first_not_a_number": step,
            "chain": " > ".join(f"{left.metric}@{left.step}" for left in chain),
            **{f"{left.metric}@{left.step}": left.value for left in chain[:6]},
        },
        causes=_causes(start.metric),
        confirm=(f"replay step {start.step} from the checkpoint before it, with the same batch and anomaly detection",),
        next=(
            f"look at the batch of step {start.step}: rewards, lengths, largest |log-ratio|, tokens in the loss",
            "only if the batch is in order: halve the learning rate, nothing else changed",
        ),
    )


def _causes(metric: str) -> tuple[str, ...]:
    if metric.startswith(("kl", "is", "mismatch", "clip")):
        return ("an update too large for the ratios", "log-probabilities of tokens that are all but impossible")
    if metric.startswith(("reward", "advantage")):
        return ("a reward without bounds", "advantages divided by a spread of nearly 0")
    if metric == "loss_scale":
        return ("values that half precision cannot hold",)
    return ("one batch with extreme values", "a learning rate too high for this batch size")


def _sudden(step: int, name: str, metrics: int) -> Finding:
    return Finding(
        severity=Severity.LOW,
        claim=f"The NaN or infinity of {name} at step {step} came without warning in {metrics} logged metrics",
        observed=float(metrics),
        limit=None,
        unit="metrics",
        onset_step=step,
        causes=("one damaged batch", "a kernel or a hardware fault", "a division by 0 in the loss"),
        next=(f"replay step {step} on another device: does the same batch give the same NaN?",),
    )


RULE = Rule(
    id="nan-precursors", link=Link.NUMERICS, check=check, judges_nan=True, limits={"scatters": SCATTERS}, families=EVERY
)
