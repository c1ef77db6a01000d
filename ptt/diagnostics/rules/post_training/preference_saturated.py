"""This run shows pairs driven so far apart that the loss is 0 and nothing is left to learn.

What: the margin of the last logged rows lies above 20 nats and the loss below 1e-3. Three rows are enough: no noise
moves a margin so far.
Why it matters: at a margin of 20 the loss is 2e-9, so nothing is left to learn. More margin only lowers the
probability of rejected answers and of similar text, while loss and accuracy look perfect.
What it is not: a margin of 1 to 10, where preference training usually ends.
What to do: go back to the step at which the margin passed 10, lower the learning rate or raise beta, and check whether
something trivial separates the pairs (length, a refusal, a template).
Source: the loss of DPO is -log sigmoid(margin), 2e-9 at 20 nats; arXiv 2404.04626 and 2410.08847 show that training
past it destroys what the model could do.
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, Verdict, rule
from ptt.diagnostics.rules.post_training import PREFERENCE, requires_pairs
from ptt.diagnostics.rules.single_series import metric_evidence
from ptt.diagnostics.wording import sig

MARGIN_LIMIT = 20.0  # nats of beta times the log-ratio: -log sigmoid of it is 2e-9
CRITICAL_FACTOR = 5.0  # times the limit: no answer near the rejected ones can be sampled any more
LOSS_LIMIT = 1e-3  # a loss that also holds an SFT term or a label smoothing still pulls somewhere
MET_MARGIN = 10.0  # nats: the loss is 5e-5, so what comes later taught nothing
MIN_VALUES = 3
LAST_ROWS = 3  # logged rows: one wild batch is no end of training


@requires_pairs("dpo/margin", what="margin of the pairs", minimum=MIN_VALUES)
def check(margin: Series, evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the last margins, and whether the loss agrees."""
    steps, values = margin.finite()
    late = float(np.median(values[-min(LAST_ROWS, max(1, len(values) // 2)) :]))
    loss = evidence.metrics.get("loss/total")
    left = None if loss is None or not len(loss.finite()[0]) else float(loss.finite()[1][-1])
    if late <= limits["margin"] or (left is not None and left > limits["loss"]):
        return Healthy(reason=f"the margin ends at {sig(late)} nats" + (f", the loss at {sig(left)}" if left else ""))
    place = int(np.argmax(values > MET_MARGIN))
    onset, before = int(steps[place]), int(steps[max(0, place - 1)])
    return Finding(
        severity=Severity.CRITICAL if late > CRITICAL_FACTOR * limits["margin"] else Severity.HIGH,
        claim=f"The pairs are driven ever further apart: the margin went from {sig(values[0])} to {sig(late)} nats"
        + (f", the loss to {sig(left)}" if left is not None else ""),
        observed=late,
        limit=limits["margin"],
        unit="nats",
        onset_step=onset,
        onset_interval=(before, onset),
        evidence=metric_evidence(margin, last_loss=left),
        causes=(
            "a learning rate that is too high for the objective, or too many epochs over few pairs",
            "a beta that is too small, or no term that holds the policy near the reference",
            "pairs that something trivial separates: length, a template, a refusal",
        ),
        confirm=(
            f"sample 20 prompts from the last checkpoint and from one near step {onset}: is the text still good?",
        ),
        next=(
            f"go back to a checkpoint from step {before} or earlier"
            if place > 1
            else "start again from the initial model: the margin was too large at the second logged row",
            "rerun with a tenth of the learning rate, and change nothing else",
        ),
    )


RULE = rule(
    check, "preference-saturated", Link.POLICY_UPDATE, margin=MARGIN_LIMIT, loss=LOSS_LIMIT, families=PREFERENCE
)
