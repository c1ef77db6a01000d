"""This run shows a training loss that spikes several times.

What: at three logged values or more, and at least one in two hundred, the loss lies half a nat (a perplexity 1.65 times
as high) and eight standard deviations above the medians of the ten values before it and of the ten after it.
Why it matters: such a batch gives a gradient of unusual size and direction; a spike that takes several steps to recover
has moved the weights.
What it is not: one bad batch, or the scatter of small batches, which the deviation around it measures.
What to do: read the batches of these steps; clip gradients, and fix or drop what stands out.
Source: spikes are left out of the medians and of the deviation, so they cannot hide themselves. PaLM (arXiv 2204.02311,
section 5.1) describes such spikes and skips their batches.
"""

from dataclasses import replace

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, requires, rule
from ptt.diagnostics.rules.post_training import SUPERVISED
from ptt.diagnostics.rules.single_series import logged
from ptt.diagnostics.statistics.recurring_excursions import departures
from ptt.diagnostics.wording import sig

SIDE = 10  # values on either side
LEAP_LIMIT = 0.5  # nats above the medians before and after it
Z_LIMIT = 8.0  # robust standard deviations: a normal value does not come so far, a batch of one sometimes
MIN_SPIKES = 3
MIN_SHARE = 0.005


def _loss(evidence: Evidence) -> Series | NotJudged:
    perplexity = evidence.metrics.get("sft/perplexity")
    if "loss/total" not in evidence.metrics and perplexity is not None:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            logs = np.where(perplexity.values > 0, np.log(perplexity.values), np.nan)
        evidence = replace(evidence, metrics={"loss/total": replace(perplexity, values=logs)})
    return logged(
        evidence,
        "loss/total",
        what="training loss",
        enable="log the training loss at every step: logging_steps=1",
        minimum=4 * SIDE,
    )


@requires(_loss)
def check(series: Series, _: Evidence, limits: Limits) -> Verdict:
    """Judge the loss, or the logarithm of the perplexity where only that is logged."""
    steps, values = series.finite()
    height, _level, deviation = departures(values, SIDE)
    spikes = np.flatnonzero((height > limits["leap"]) & (height > Z_LIMIT * deviation))
    worst = float(height.max())
    summary = (
        f"{len(spikes)} of {len(values)} losses jump by {limits['leap']:g} nats or more, the largest by "
        f"{sig(max(worst, 0))}"
    )
    if len(spikes) < max(MIN_SPIKES, MIN_SHARE * len(values)):
        return Healthy(reason=summary)
    places = ", ".join(str(step) for step in steps[spikes][:5])
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"The training loss spikes again and again: {summary}",
        observed=worst,
        limit=limits["leap"],
        unit="nats",
        onset_step=int(steps[spikes[0]]),
        evidence={"metric": series.name, "logged_as": series.raw_name, "spikes": len(spikes), "first_steps": places},
        causes=(
            "batches of broken or foreign text: wrong encoding, empty answers, the wrong language, repeated lines",
            "a learning rate that is too high: spikes then take several steps to recover",
            "low precision in the optimiser or in a normalisation layer",
        ),
        confirm=(
            f"look at the batches of steps {places}; run them again from the checkpoint before with the learning "
            "rate at 0",
        ),
        next=(
            "if only these batches stand out, fix or drop such data",
            "if the same batches are harmless elsewhere, halve the learning rate or lengthen the warm-up",
        ),
    )


RULE = rule(
    check, "perplexity-spikes", Link.NUMERICS, max_severity=Severity.MEDIUM, leap=LEAP_LIMIT, families=SUPERVISED
)
