"""This run shows preference training that ranks pairs no better than a coin toss, or worse.

What: over the second half of the run, the 99% interval of the share of correctly ranked pairs (from the scatter of ten
blocks of steps) contains one half and lies below 0.6; a loss whose interval lies below ln 2 speaks against it. An
interval below one half is worse: the model ranks pairs the wrong way round. Where no such share is logged, the loss of
a sigmoid objective is judged alone: not below ln 2 by more than 0.01. Three logged values and more are judged, each
then a block of its own; of fewer than ten all count, not the second half alone.
Why it matters: the model has learnt nothing from the pairs; whatever else moved is noise.
What it is not: proof of bad labels. From logs alone, unlearnable pairs, random labels and a learning rate that is too
small all look the same. A run of fewer than 30 logged values that has not done most of its steps is told in a note:
it may not have begun to learn.
What to do: overfit a few dozen pairs first. If that fails, the pipeline is wrong; if it succeeds, look at the labels.
Where pairs are ranked the wrong way round, swap chosen and rejected and train again.
Source: at the start of DPO both rewards are 0, so the loss is ln 2 (arXiv 2305.18290, eq. 7); the test is our own.
"""

import math
from dataclasses import replace

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.run_end import progress_of
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.post_training import (
    LOG_PAIRS,
    MIN_LEVEL,
    MIN_VALUES,
    PAIRS,
    Level,
    late_half,
    level_of,
    pair_series,
)
from ptt.diagnostics.statistics.arrays import FloatArray
from ptt.diagnostics.wording import pct

CHANCE = 0.5
LN2 = math.log(2.0)  # nats: the sigmoid loss of a model that has no preference
MAX_CHANCE_SHARE = 0.6  # share of pairs: an interval that reaches this far does not exclude that something was learnt
MIN_LEARNT = 0.01  # nats below ln 2: less cannot be told from nothing by any user
MIN_EARLY = 10  # logged values: fewer do not show whether pairs were ranked well before
ALL_WITHIN = 0.0005  # share of pairs: printed to 0.1% an interval this close to 1 reads as all of them
FEW_VALUES = 10  # logged values: half of fewer give no level
MOST = 0.8  # of the planned steps: what was not learnt by then will not be
LONG_RUN = 100  # logged values: after this many, nobody expects the loss to start falling
WITHOUT_REFERENCE = ("orpo", "cpo", "simpo")
SIGMOID_ALGORITHMS = ("dpo", "reward_model", "online_dpo")


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the accuracy of pairs, and the loss where it has a level for chance."""
    verdict = _judge(evidence, limits)
    if not isinstance(verdict, Finding) or not _begun_lately(evidence, verdict):
        return verdict
    note = replace(verdict, severity=Severity.LOW)
    return Healthy(reason="the run is short, and may not have begun to learn", notes=(note,))


def _begun_lately(evidence: Evidence, finding: Finding) -> bool:
    """Return whether few values are logged, of a run that is not known to have done most of its steps."""
    done, values = progress_of(evidence.run).share, finding.evidence["logged_values"]
    return isinstance(values, int) and values < MIN_VALUES and (done is None or done < MOST)


def _judge(evidence: Evidence, limits: Limits) -> Verdict:
    series = pair_series(evidence, "dpo/accuracy", what="share of correctly ranked pairs", minimum=MIN_LEVEL)
    loss = _sigmoid_loss(evidence)
    if isinstance(series, NotJudged):
        return series if loss is None else _by_loss(loss)
    level = level_of(_judged_part(series))
    of_loss = level_of(_judged_part(loss)) if loss is not None else None
    summary = f"{_ranked(level)} in {_part(series)}"
    if level.low > CHANCE:
        return Healthy(reason=summary)
    if level.high < CHANCE:
        return _wrong_way_round(evidence, series, level, of_loss, summary)
    if of_loss is not None and of_loss.high < LN2 - MIN_LEARNT:
        return Healthy(reason=f"{summary}; the loss of {of_loss.mean:.3f} is below ln 2")
    if level.high >= limits["weak"]:
        return NotJudged(
            reason=f"{summary}: too few pairs to tell learning from chance",
            missing=("dpo/accuracy",),
            enable="train longer, or evaluate the accuracy on a few hundred held-out pairs",
        )
    return _finding(series, level, of_loss, limit=limits["weak"], summary=summary)


def _ranked(level: Level) -> str:
    if level.low > 1 - ALL_WITHIN:
        return "all pairs are ranked correctly"
    return f"{pct(level.mean)} of pairs ({pct(level.low)} to {pct(level.high)}) are ranked correctly"


def _sigmoid_loss(evidence: Evidence) -> Series | None:
    """Return the loss where ln 2 is its level for chance, and enough of it is logged."""
    sigmoid = evidence.run.context.get("loss_type") in (None, "sigmoid")
    loss = evidence.metrics.get("loss/total")
    if not sigmoid or evidence.algorithm.name not in SIGMOID_ALGORITHMS or loss is None:
        return None
    return loss if len(loss.finite()[0]) >= MIN_LEVEL else None


def _judged_part(series: Series) -> FloatArray:
    """Return the second half of the values, or all of a few."""
    values = series.finite()[1]
    return values if len(values) < FEW_VALUES else late_half(series)


def _part(series: Series) -> str:
    count = len(series.finite()[0])
    return f"all {count} logged values" if count < FEW_VALUES else "the second half"


def _by_loss(loss: Series) -> Verdict:
    level = level_of(_judged_part(loss))
    summary = f"the loss of {_part(loss)} is {level.mean:.3f} ({level.low:.3f} to {level.high:.3f}), ln 2 is {LN2:.3f}"
    if level.high < LN2 - MIN_LEARNT:
        return Healthy(reason=summary)
    if level.low < LN2 - MIN_LEARNT:
        return NotJudged(reason=f"{summary}: too close to ln 2 to judge", missing=("dpo/accuracy",), enable=LOG_PAIRS)
    return _finding(loss, level, level, limit=LN2, summary=summary)


def _onset(series: Series) -> int:
    """Return the first step; if pairs were ranked well in the first half, the step where the second begins."""
    steps, values = series.finite()
    half = len(values) // 2
    learnt = series.name != "loss/total" and half >= MIN_EARLY and level_of(values[:half]).low > CHANCE
    return int(steps[half if learnt else 0])


def _wrong_way_round(evidence: Evidence, series: Series, level: Level, loss: Level | None, summary: str) -> Finding:
    """Return the finding of pairs that are ranked worse than chance: something there is the other way round."""
    learns = loss is not None and loss.high < LN2 - MIN_LEARNT
    where = "the loss falls below ln 2, so that it calls the other answer chosen than the logged share does"
    begins = "without a reference model the share begins at what the model preferred before, which may be the rejected"
    return replace(
        _finding(series, level, loss, limit=CHANCE, summary=summary),
        claim=f"The model ranks pairs worse than chance, as if chosen and rejected were swapped: {summary}",
        causes=(
            f"chosen and rejected answers that are swapped on one side{f': {where}' if learns else ''}",
            "a wrong sign in the loss, so that every step prefers the rejected answer",
            *((begins,) if evidence.algorithm.name in WITHOUT_REFERENCE else ()),
        ),
        confirm=(
            "swap chosen and rejected, and train the same 100 steps again: a share above one half confirms it",
            "read 20 pairs as the collator passes them on: which answer is called chosen?",
        ),
        next=(
            "find where the two are swapped (data set, collator, loss or metric), and fix it only there",
            "then train again from the start: what this run learnt is to prefer the rejected answers"
            if not learns
            else "then read the logged shares and margins again: those of this run have the wrong sign",
        ),
    )


def _finding(series: Series, level: Level, loss: Level | None, *, limit: float, summary: str) -> Finding:
    steps, onset = series.finite()[0], _onset(series)
    return Finding(
        severity=Severity.HIGH if len(steps) >= LONG_RUN else Severity.MEDIUM,
        claim=f"The model ranks pairs no better than chance: {summary}",
        observed=level.mean,
        limit=limit,
        unit="nats" if series.name == "loss/total" else "share",
        onset_step=onset,
        evidence={
            "metric": series.name,
            "logged_as": series.raw_name,
            "interval_low": level.low,
            "interval_high": level.high,
            "late_loss": loss.mean if loss is not None else None,
            "logged_values": len(steps),
        },
        causes=(
            "pairs without a difference that this model can see, or random labels: the logs alone cannot separate "
            "the two",
            "a learning rate, or beta, so small that nothing moves",
            "chosen and rejected answers that are swapped, or masked the same way, on the way into the batch",
        ),
        confirm=(
            "train on 32 pairs for 100 steps with the same code: an accuracy near 1 clears the pipeline",
            "read 20 pairs as the collator passes them on: which answer is called chosen, and what does the loss "
            "mask cover?",
        ),
        next=(
            "if the 32 pairs cannot be learnt, fix collator, mask or learning rate before anything else",
            "if they can, have 50 pairs judged again by hand or by a stronger model, and count the agreement",
        ),
    )


RULE = rule(check, "at-chance", Link.TRAINING_SIGNAL, weak=MAX_CHANCE_SHARE, families=PAIRS)
