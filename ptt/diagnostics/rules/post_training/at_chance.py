"""This run shows preference training that tells right from wrong no better than a coin.

What: over the second half of the run the share of pairs ranked rightly cannot be told from one half (99 % interval
from the scatter of ten blocks of steps) and is surely below 0.6; a loss that is surely below ln 2 speaks against it.
Where no such share is logged, the loss of a sigmoid objective is judged alone: not below ln 2 by more than 0.01.
Why it matters: the model has learnt nothing from the pairs; whatever else moved is noise.
What it is not: proof of bad labels. The logs alone cannot tell pairs that cannot be learnt from labels at random, nor
either from a learning rate too small to show. Nor is a run of fewer than 30 logged values judged.
What to do: overfit a few dozen pairs first. If that fails, the pipeline is wrong; if it succeeds, look at the labels.
Source: at the start of DPO both rewards are 0, so the loss is ln 2 (arXiv 2305.18290, eq. 7); the test is our own.
"""

import math

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.post_training import LOG_PAIRS, MIN_VALUES, PAIRS, Level, late_half, level_of, pair_series

CHANCE = 0.5
LN2 = math.log(2.0)  # nats: the sigmoid loss of a model that has no preference
MAX_CHANCE_SHARE = 0.6  # share of pairs: an interval that reaches so far up does not exclude that something was learnt
MIN_LEARNT = 0.01  # nats below ln 2: less cannot be told from nothing by any user
MIN_EARLY = 10  # logged values: fewer tell nothing of whether pairs were ranked well before
LONG_RUN = 100  # logged values: after so many nobody waits for the loss to start falling any more
SIGMOID_ALGORITHMS = ("dpo", "reward_model", "online_dpo")


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the accuracy of pairs, and the loss where it has a level for chance."""
    series = pair_series(evidence, "dpo/accuracy", what="share of rightly ranked pairs")
    loss = _sigmoid_loss(evidence)
    if isinstance(series, NotJudged):
        return series if loss is None else _by_loss(loss)
    level = level_of(late_half(series))
    of_loss = level_of(late_half(loss)) if loss is not None else None
    summary = f"{level.mean:.3f} of pairs ({level.low:.3f} to {level.high:.3f}) are ranked rightly in the second half"
    if level.low > CHANCE:
        return Healthy(reason=summary)
    if of_loss is not None and of_loss.high < LN2 - MIN_LEARNT:
        return Healthy(reason=f"{summary}; the loss of {of_loss.mean:.3f} is below ln 2")
    if level.high >= limits["weak"]:
        return NotJudged(
            reason=f"{summary}: too few pairs to tell learning from chance",
            missing=("dpo/accuracy",),
            enable="train on, or evaluate the accuracy on a few hundred held-out pairs",
        )
    return _finding(series, level, of_loss, limit=limits["weak"], summary=summary)


def _sigmoid_loss(evidence: Evidence) -> Series | None:
    """Return the loss where ln 2 is its level for chance, and enough of it is logged."""
    sigmoid = evidence.run.context.get("loss_type") in (None, "sigmoid")
    loss = evidence.metrics.get("loss/total")
    if not sigmoid or evidence.algorithm.name not in SIGMOID_ALGORITHMS or loss is None:
        return None
    return loss if len(loss.finite()[0]) >= MIN_VALUES else None


def _by_loss(loss: Series) -> Verdict:
    level = level_of(late_half(loss))
    summary = (
        f"the loss of the second half is {level.mean:.3f} ({level.low:.3f} to {level.high:.3f}), ln 2 is {LN2:.3f}"
    )
    if level.high < LN2 - MIN_LEARNT:
        return Healthy(reason=summary)
    if level.low < LN2 - MIN_LEARNT:
        return NotJudged(reason=f"{summary}: too close to tell", missing=("dpo/accuracy",), enable=LOG_PAIRS)
    return _finding(loss, level, level, limit=LN2, summary=summary)


def _onset(series: Series) -> int:
    """Return the first step; of pairs that were ranked well in the first half the step at which the second begins."""
    steps, values = series.finite()
    half = len(values) // 2
    learnt = series.name != "loss/total" and half >= MIN_EARLY and level_of(values[:half]).low > CHANCE
    return int(steps[half if learnt else 0])


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
            "pairs without a difference that this model can see, or labels at random: the logs alone cannot tell these",
            "a learning rate, or beta, so small that nothing moves",
            "chosen and rejected mixed up or masked alike on the way into the batch",
        ),
        confirm=(
            "train on 32 pairs for 100 steps with the same code: an accuracy near 1 clears the pipeline",
            "read 20 pairs as the collator hands them over: which one is called chosen, and what the loss mask covers",
        ),
        next=(
            "if 32 pairs cannot be learnt, mend collator, mask or learning rate before anything else",
            "if they can, have 50 pairs judged again by hand or by a stronger model, and count the agreement",
        ),
    )


RULE = rule(check, "at-chance", Link.TRAINING_SIGNAL, weak=MAX_CHANCE_SHARE, families=PAIRS)
