"""This run shows a loss scale that keeps falling.

What: after the first 20 logged values, the loss scale of mixed precision was lowered at four or more of 20 logged steps
in a row; or it fell to 1 and ends there, where it cannot go lower.
Why it matters: each drop is a step that overflowed and was thrown away. A scale that cannot go lower means that
gradients overflow at any scale: NaN comes next.
What it is not: drops at the start, while the scale finds its level, or one drop every thousand steps or so.
What to do: train in bfloat16, which needs no scale; otherwise look for the layer that overflows first.
Source: dynamic loss scaling as in arXiv 1710.03740 section 3.2: doubled after 1000 to 2000 steps without overflow,
halved at each one; DeepSpeed and Megatron stop at a scale of 1.
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import EARLY_MIN_VALUES
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import EVERY, Finding, Healthy, Limits, NotJudged, Verdict, does_not_apply, rule
from ptt.diagnostics.rules.single_series import logged, metric_evidence

MIN_DROPS = 4.0  # within WINDOW logged values: a healthy run drops once in a thousand steps
WINDOW = 20
MIN_SCALE = 1.0
MIN_VALUES = EARLY_MIN_VALUES + WINDOW
ENABLE = "only float16 has one; DeepSpeed and Megatron log loss_scale"


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the logged loss scale."""
    context = evidence.run.context
    if "loss_scale" not in evidence.metrics and (context.get("bf16") is True or context.get("fp16") is False):
        return does_not_apply("training without float16")
    series = logged(evidence, "loss_scale", what="loss scale", enable=ENABLE, minimum=MIN_VALUES)
    if isinstance(series, NotJudged):
        return series
    steps, values = series.finite()
    dropped = np.append(False, values[1:] < values[:-1])
    dropped[:EARLY_MIN_VALUES] = False
    counts = np.convolve(dropped, np.ones(WINDOW), mode="valid")
    often = np.flatnonzero(counts >= limits["drops"])
    low = np.flatnonzero((values <= limits["lowest"]) & (np.arange(len(values)) >= EARLY_MIN_VALUES))
    at_end = bool(len(low)) and values[-1] <= limits["lowest"] < values[: low[0]].max(initial=0.0)
    if not len(often) and not at_end:
        drops = f"{int(dropped.sum())} drops after the first {EARLY_MIN_VALUES} values"
        return Healthy(reason=f"{drops}; the scale ends at {values[-1]:g}")
    if at_end:
        claim, observed, unit = f"The loss scale fell to {values[-1]:g}", float(values[-1]), "scale"
        limit = limits["lowest"]
        onset = int(steps[low[0]])
    else:
        claim = f"The loss scale was lowered {int(counts.max())} times within {WINDOW} logged steps"
        observed, limit, unit = float(counts.max()), limits["drops"], "drops"
        window = slice(int(often[0]), int(often[0]) + WINDOW)
        onset = int(steps[window][dropped[window]][0])
    return Finding(
        severity=Severity.HIGH if at_end else Severity.MEDIUM,
        claim=claim,
        observed=observed,
        limit=limit,
        unit=unit,
        onset_step=onset,
        onset_interval=(onset, onset),
        evidence=metric_evidence(series, drops=int(dropped.sum()), first=float(values[0]), last=float(values[-1])),
        causes=("activations or gradients beyond what float16 holds", "a loss that is itself infinite"),
        confirm=(f"replay step {onset} in float32: are loss and gradient norm finite there?",),
        next=("train in bfloat16; if you cannot, clip logits or lower the learning rate",),
    )


RULE = rule(check, "loss-scale-drops", Link.NUMERICS, drops=MIN_DROPS, lowest=MIN_SCALE, families=EVERY)
