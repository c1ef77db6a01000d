"""This run shows an evaluation loss that rises while the training loss keeps falling.

What: over the last three evaluations the evaluation loss of any data set lies at least 10% (5% for a note) and 0.02
nats above its lowest value, and beyond its own scatter between evaluations, while the training loss is lower than it
was at that point. Where it rose by three tenths or more, the last two are enough, and the last one alone of three or
four evaluations. A smaller rise beyond that scatter is information. Or the training loss is nearly 0 and the evaluation
loss half a nat above it: the training data is memorised.
Why it matters: what the model learnt after the lowest value does not carry over to this evaluation set.
What it is not: a rise with the training loss, which is divergence; or a single bad evaluation.
What to do: take the checkpoint with the lowest evaluation loss. Then use fewer epochs, more data, or a lower learning
rate.
Source: early stopping's generalisation loss (Prechelt 1998, "Early stopping, but when?", criterion GL); the limits are
our own: a few percent are common in the last epoch of a run whose answers still improve.
"""

import math
from typing import NamedTuple

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity, Steps
from ptt.diagnostics.rules.interface import OFFLINE, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.statistics.arrays import MAD_TO_SD, FloatArray
from ptt.diagnostics.wording import sig

RISE_LIMIT = 0.1  # of the lowest evaluation loss
NOTE_RISE = 0.05
HIGH_RISE = 0.3
MIN_EVALUATIONS = 3  # fewer have no lowest one with a value on both sides
FEW_EVALUATIONS = 5  # of fewer, only a large rise counts: their scatter is not known
LAST_EVALUATIONS = 3  # evaluations that must agree
FAR_EVALUATIONS = 2  # that must where the loss rose by three tenths: no batch order does that twice
MIN_RISE = 0.02  # nats: pairs that are all learnt have losses near 0, of which any part is nothing
Z_LIMIT = 4.0  # times the scatter of one evaluation about its neighbours
MEMORISED_RATIO = 0.1  # training loss over evaluation loss: an order of magnitude
MIN_LOSS_GAP = 0.5  # nats: with less the two differ by little more than rounding near 0
ENABLE = 'evaluate on held-out data while training: in TRL eval_strategy="steps" with an eval_dataset'


class Path(NamedTuple):
    """The evaluation loss behind its lowest value."""

    best_step: int
    best: float
    last: float  # median of the last three
    noise: float  # standard deviation of one evaluation about its neighbours
    onset: int | None  # first evaluation from which all are above the bound
    interval: Steps | None

    @property
    def rise(self) -> float:
        """How far the last evaluations are above the lowest, as a share of it."""
        return (self.last - self.best) / self.best if self.best > 0 else 0.0


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the evaluation loss of every data set, with the training loss beside it; the worst rise counts."""
    sets = [series for series in (evidence.eval_loss, *evidence.eval_losses) if series is not None]
    train = evidence.metrics.get("loss/total")
    answers = [
        _judge(series, f"evaluation loss (`{series.raw_name}`)" if len(sets) > 1 else "evaluation loss", train, limits)
        for series in sets
    ]
    if not answers:
        return NotJudged(reason="no evaluation loss is logged", missing=("eval/loss",), enable=ENABLE, absent=True)
    found = [answer for answer in answers if isinstance(answer, Finding)]
    noted = [answer for answer in answers if isinstance(answer, Healthy) and answer.notes]
    return next(iter((*sorted(found, key=lambda one: -(one.observed or 0.0)), *noted, *answers)))


def _judge(series: Series, name: str, train: Series | None, limits: Limits) -> Finding | Healthy | NotJudged:
    """Judge one evaluation loss, which a sentence calls `name`."""
    count = len(series.finite()[0])
    if count < MIN_EVALUATIONS:
        few = f"{count} evaluation losses are logged; {MIN_EVALUATIONS} are needed"
        return NotJudged(reason=few, missing=("eval/loss",), enable=ENABLE)
    path = loss_path(series, limits["noted"])
    if small := path.onset is None:
        path = loss_path(series, 0.0)
    then, now = _train(train, path.best_step)
    lowest = f"the {name} is lowest at step {path.best_step} ({sig(path.best)})"
    summary = f"{lowest}, {sig(path.last)} over the last {'three' if count >= FEW_EVALUATIONS else 'one'}"
    rose = path.onset is not None and path.rise > 0
    if then is None or now is None:
        if small or not rose:
            return Healthy(reason=summary)
        reason = f"{summary}; without the training loss, overfitting and divergence look the same"
        enable = "log the training loss: logging_steps=1"
        return NotJudged(reason=reason, missing=("loss/total",), enable=enable)
    if rose and now < then and not small:
        return _rising(series, name, path, summary, then, now, limits)
    if now < MEMORISED_RATIO * path.last and path.last - now > limits["apart"]:
        claim = f"The training data is memorised: training loss {sig(now)}, {name} {sig(path.last)}"
        apart = path._replace(onset=None, interval=None)
        return _finding(series, apart, Severity.MEDIUM, claim, then, now, limits["apart"])
    if rose and now < then:
        return _rising(series, name, path, summary, then, now, limits, small=True)
    also = f"; the training loss rose as well ({sig(then)} to {sig(now)})" if rose else ""
    if not rose and Z_LIMIT * path.noise < path.last - path.best < MIN_RISE:
        also = f", {sig(path.last - path.best)} above it, less than the {MIN_RISE:g} nats that would count"
    return Healthy(reason=summary + also)


def loss_path(series: Series, rise: float) -> Path:
    """Follow the evaluation loss from its lowest value on."""
    steps, values = series.finite()
    low = int(values.argmin())
    few = len(values) < FEW_EVALUATIONS
    noise = 0.0 if few else scatter(values)
    best = float(values[low])
    last = float(values[-1] if few else np.median(values[-LAST_EVALUATIONS:]))
    first = _risen_from(values, best + max(rise * abs(best), Z_LIMIT * noise, MIN_RISE))
    agreeing = LAST_EVALUATIONS
    if first > len(values) - LAST_EVALUATIONS:
        first = _risen_from(values, best + max(HIGH_RISE * abs(best), Z_LIMIT * noise, MIN_RISE))
        agreeing = 1 if few else FAR_EVALUATIONS
    if first > len(values) - agreeing:
        return Path(int(steps[low]), best, last, noise, None, None)
    if not few and agreeing == FAR_EVALUATIONS:
        last = float(values[first:].mean())
    return Path(int(steps[low]), best, last, noise, int(steps[first]), (int(steps[low]), int(steps[first])))


def _risen_from(values: FloatArray, bound: float) -> int:
    """Return the place from which all values are above a bound; their number if the last is not."""
    return int(np.flatnonzero(values <= bound)[-1]) + 1


def scatter(values: FloatArray) -> float:
    """Return the standard deviation of one value about the line through its neighbours, robustly."""
    bend = values[1:-1] - (values[:-2] + values[2:]) / 2  # its variance is 1.5 times that of one value
    return MAD_TO_SD * float(np.median(np.abs(bend))) / math.sqrt(1.5)


def _train(series: Series | None, step: int) -> tuple[float | None, float | None]:
    """Return the training loss around `step` and at the end, as medians of a few values."""
    if series is None or not len(series.finite()[0]):
        return None, None
    steps, values = series.finite()
    place = int(np.searchsorted(steps, step))
    near = values[max(0, place - LAST_EVALUATIONS) : place + LAST_EVALUATIONS]
    return float(np.median(near)), float(np.median(values[-2 * LAST_EVALUATIONS :]))


def _rising(
    series: Series,
    name: str,
    path: Path,
    summary: str,
    then: float,
    now: float,
    limits: Limits,
    *,
    small: bool = False,
) -> Finding | Healthy:
    claim = (
        f"The {name} rose from {sig(path.best)} (step {path.best_step}) to {sig(path.last)} while the training loss "
        f"fell from {sig(then)} to {sig(now)}"
    )
    low = small or path.rise < limits["rise"]
    severity = Severity.LOW if low else Severity.HIGH if path.rise > HIGH_RISE else Severity.MEDIUM
    severity = Severity.INFO if small else severity
    finding = _finding(series, path, severity, claim, then, now, limits["noted"] if low else limits["rise"])
    return Healthy(reason=summary, notes=(finding,)) if low else finding


def _finding(
    series: Series, path: Path, severity: Severity, claim: str, then: float, now: float, limit: float
) -> Finding:
    return Finding(
        severity=severity,
        claim=claim,
        observed=path.rise if path.onset is not None else path.last - now,
        limit=limit,
        unit="share" if path.onset is not None else "nats",
        onset_step=path.onset,
        onset_interval=path.interval,
        evidence={
            "metric": "eval/loss",
            "logged_as": series.raw_name,
            "lowest": path.best,
            "lowest_at_step": path.best_step,
            "last": path.last,
            "scatter": path.noise,
            "train_loss_then": then,
            "train_loss_now": now,
        },
        causes=(
            "more epochs than so little data supports",
            "a learning rate or an adapter rank that is too large for so little data",
            "an evaluation set that differs in kind from the training set: its loss then never came down far",
        ),
        confirm=(
            f"compare samples of the checkpoints near step {path.best_step} and of the last one on held-out prompts",
            "count how many training examples repeat: duplicates count as epochs",
        ),
        next=(
            f"take the checkpoint nearest to step {path.best_step}",
            "rerun and stop at that point, and change nothing else; then try more data",
        ),
    )


RULE = rule(
    check, "overfitting", Link.EVALUATION, rise=RISE_LIMIT, noted=NOTE_RISE, apart=MIN_LOSS_GAP, families=OFFLINE
)
