"""This run shows metrics that left their usual level in the steps before the first NaN.

What: in the 50 logged values before the first NaN or infinity of a core metric (nulls up to the end of the run count as
such), gradient norm, KL, ratios, rewards, losses, value loss or loss scale lie off their own level by more than ten
times their usual scatter, and above three times or below a third of that level, for at least half of the steps from
some step on. They are listed by step: look at the first one. Where nothing stayed off its level and the run never came
back, outlying values are listed that lie in one burst with the NaN: the last of them within three logged values of it,
and no further from each other. Where the run came back, a metric that stays as far off afterwards is no
precursor. A single NaN step between finite ones is dated by metrics-lost: look at its own batch.
Why it matters: a NaN shows where a run ended, not why. What moved first is closer to the cause than what died.
What to do: replay the first one's step with anomaly detection on; look at that batch's rewards, lengths and log-ratios
before you change the learning rate.
Source: the order of events in TRL issue 6772 and the debugging guides of TRL and veRL: ratios and norms blow up some
steps before a NaN; a sudden NaN with no precursor points to one batch or one kernel instead.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.metrics.catalogue import document
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import EVERY, Finding, Healthy, Limits, NotJudged, Verdict, requires, rule
from ptt.diagnostics.rules.numerics import core_series, dead_tail, first_nonfinite
from ptt.diagnostics.rules.single_series import derived
from ptt.diagnostics.statistics.arrays import MAD_TO_SD, BoolArray

WATCHED = document()["before_nan"]
SCATTER_FACTOR = 10.0  # times the robust scatter before: single values of a healthy run reach six, heavy tails eight
LEVEL_FACTOR = 3.0  # times the level, or a third of it: scatter alone is tiny where a metric hardly moves
MIN_OFF_SHARE = 0.5  # of the values up to the NaN
MIN_OFF_SHARE_BACK = 0.9  # before a NaN that the run recovered from: what only flickers was unrelated
MIN_OFF = 3  # values off before a NaN that the run recovered from: a policy loss is far off every few hundred steps
BURST = 3  # logged values: an outlier followed by normal values for longer is over, and led to no NaN
BACK_SHARE = 0.5  # of how far off it was: below it, it is returning to its level
WINDOW = 50  # logged values searched for a precursor
MIN_BEFORE = 3  # values that give a level at all: a run that dies at step 5 has no more
MAX_LISTED = 6
ENABLE = "log them at every step, NaN included: in Hugging Face trainers set logging_nan_inf_filter=False"


class Departure(NamedTuple):
    """A metric that left its level."""

    step: int
    metric: str
    title: str
    value: float


@requires(partial(core_series, enable=ENABLE))
def check(core: list[Series], evidence: Evidence, limits: Limits) -> Verdict:
    """Look at what moved before the first NaN."""
    first = first_nonfinite(core)
    if first is None:
        return Healthy(reason="no core metric is NaN or infinite, so nothing came before")
    step, name = first
    lost = f"{name} is NaN or infinite from step {step} on"
    before = [_before(evidence.metrics[metric], step) for metric in WATCHED if metric in evidence.metrics]
    usable = [series for series in before if len(series.steps) > MIN_BEFORE]
    if not usable:
        return NotJudged(
            reason=f"{lost}; fewer than {MIN_BEFORE + 1} values come before",
            missing=tuple(WATCHED)[:4],
            enable="log gradient norm, KL and ratios at every step from the first one on",
        )
    scatters = limits["scatters"]
    died = any(len(dead_tail(series)) for series in core)
    chain = _chain(usable, scatters, lasting=True, least=1 if died else MIN_OFF)
    if not died:
        chain = [one for one in chain if _came_back(evidence.metrics[one.metric], one, step)]
    if not chain and died:
        chain = _chain(usable, scatters, lasting=False)
    if not chain:
        reason = f"{lost}; none of {len(usable)} metrics left its usual level before"
        return Healthy(reason=reason, notes=(_sudden(step, name, len(usable)),))
    return _finding(chain, step, name, scatters)


def _before(series: Series, step: int) -> Series:
    """Return the finite part before a step."""
    steps, values = series.finite()
    return derived(series, steps[steps < step], values[steps < step])


def _chain(usable: list[Series], scatters: float, *, lasting: bool, least: int = 1) -> list[Departure]:
    departures = (_departure(series, scatters, lasting=lasting, least=least) for series in usable)
    return sorted(departure for departure in departures if departure is not None)


def _departure(series: Series, scatters: float, *, lasting: bool, least: int) -> Departure | None:
    """Return the first of the values before the end that is off the level the metric had until then.

    `lasting`: of the values from there to the end, half must be (nearly all, where more than one must be left), and
    `least` values are left: a spike that came back is a step like any other. Either way one of the last BURST is off.
    """
    steps, values = series.finite()
    start = max(MIN_BEFORE, len(values) - WINDOW, len(values) // 8)
    usual = values[max(0, start - WINDOW) : start]
    level = float(np.median(usual))
    scatter = MAD_TO_SD * float(np.median(np.abs(usual - level)))
    noise = max(scatters * scatter, WATCHED[series.name].get("floor", 0.0))
    deviation = values[start:] - level
    off = np.abs(deviation) > max(noise, (LEVEL_FACTOR - 1) * abs(level))
    if level > 0:  # as far down on a scale of factors
        off |= (values[start:] < level / LEVEL_FACTOR) & (-deviation > noise)
    if lasting:
        share = MIN_OFF_SHARE if least == 1 else MIN_OFF_SHARE_BACK
        off &= np.cumsum(off[::-1])[::-1] / np.arange(len(off), 0, -1) >= share
    first = _burst(off) if not lasting else int(np.argmax(off)) if off[-BURST:].any() else None
    if first is None:
        return None
    index = start + first
    if len(values) - index < least:
        return None
    return Departure(int(steps[index]), series.name, WATCHED[series.name]["title"], float(values[index]))


def _burst(off: BoolArray) -> int | None:
    """Return where the last burst of outliers began, if it reaches the end; None where it does not."""
    places = np.flatnonzero(off)
    if not len(places) or len(off) - places[-1] > BURST:
        return None
    apart = np.flatnonzero(np.diff(places) > BURST)
    return int(places[apart[-1] + 1]) if len(apart) else int(places[0])


def _came_back(series: Series, departure: Departure, step: int) -> bool:
    """Return whether a metric lay nearer to its level after a step than from its departure up to it."""
    steps, values = series.finite()
    before = values[(steps >= departure.step) & (steps < step)]
    after = values[steps > step][: len(before)]
    if not len(after):
        return True
    level = float(np.median(values[steps < departure.step][-WINDOW:]))
    return abs(float(np.median(after)) - level) < BACK_SHARE * abs(float(np.median(before)) - level)


def _finding(chain: list[Departure], step: int, name: str, scatters: float) -> Finding:
    order = ", ".join(f"{departure.title} at {departure.step}" for departure in chain[:MAX_LISTED])
    start = chain[0]
    return Finding(
        severity=Severity.HIGH,
        claim=f"Before {name} was NaN or infinite at step {step}, these left their usual level: {order}",
        observed=start.value,
        limit=None,  # it is a number of scatters, not a level
        unit=start.title,
        onset_step=start.step,
        onset_interval=(start.step, step),
        evidence={
            "metric": start.metric,
            "limit_scatters": scatters,
            "first_not_a_number": step,
            "chain": " > ".join(f"{departure.metric}@{departure.step}" for departure in chain),
            **{f"{departure.metric}@{departure.step}": departure.value for departure in chain[:MAX_LISTED]},
        },
        causes=_causes(start.metric),
        confirm=(f"replay step {start.step} from the checkpoint before it, with the same batch and anomaly detection",),
        next=(
            f"look at the batch of step {start.step}: rewards, lengths, largest |log-ratio|, tokens in the loss",
            "only if the batch is fine: halve the learning rate, and change nothing else",
        ),
    )


def _causes(metric: str) -> tuple[str, ...]:
    if metric.startswith(("kl", "is", "mismatch", "clip")):
        return ("too large an update for the ratios", "log-probabilities of almost impossible tokens")
    if metric.startswith(("reward", "advantage")):
        return ("a reward without bounds", "advantages divided by a spread of nearly 0")
    if metric == "loss_scale":
        return ("values that half precision cannot hold",)
    return ("one batch with extreme values", "a learning rate that is too high for this batch size")


def _sudden(step: int, name: str, metrics: int) -> Finding:
    return Finding(
        severity=Severity.LOW,
        claim=f"{name} turned NaN or infinite at step {step} without warning in {metrics} logged metrics",
        observed=float(metrics),
        limit=None,
        unit="metrics",
        onset_step=step,
        causes=("one damaged batch", "a kernel or a hardware fault", "a division by 0 in the loss"),
        next=(f"replay step {step} on another device: does the same batch give the same NaN?",),
    )


RULE = rule(check, "nan-precursors", Link.NUMERICS, scatters=SCATTER_FACTOR, families=EVERY, judges_nan=True)
