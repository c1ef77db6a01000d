"""This run shows a KL to the reference that never changes while the policy is trained.

What: every logged KL to the reference is exactly 0, in a log that shows small numbers, while the learning rate is above
0. Or every one of ten and more is the same other number of four digits and more: high where the loss is one number too,
and not 0.
Why it matters: training moves a policy away from its reference, and another batch has another KL. A KL that never
changes was not measured anew, or nothing is trained: the distance is unknown, not healthy.
What it is not: a run whose KL coefficient is 0 and whose writer logs the term anyway. TRL logs no KL then.
What to do: check whether the reference is the policy itself (the same object, adapters not switched off, shared
weights), or whether nothing is trained.
Source: k3 of two different policies is above 0 (http://joschu.net/blog/kl-approx.html); TRL logs `kl` where beta is not
0.
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import LANGUAGE, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.numerics import logged_loss
from ptt.diagnostics.rules.policy_update import shows_small_numbers
from ptt.diagnostics.rules.policy_update.kl_over_target import ENABLE
from ptt.diagnostics.rules.single_series import metric_evidence, requires_metric
from ptt.diagnostics.wording import pct, sig

COEFFICIENTS = ("beta", "kl_coef", "kl_loss_coef", "init_kl_coef")
MOVED_LIMIT = 0.0  # share of the logged values: a single one above 0 proves it was measured
MIN_TRAINED_SHARE = 0.5  # of the logged learning rates above 0
MIN_EQUAL = 10  # logged values
MIN_DIGITS = 4  # of a value that never changes: 0.02 may be many values, rounded
ROUNDED_STEPS = 256  # of a factor of 2 in bfloat16: a value on one of them may be many, rounded


@requires_metric("kl/ref", what="KL to the reference", enable=ENABLE)
def check(series: Series, evidence: Evidence, limits: Limits) -> Verdict:
    """Judge whether any distance was measured."""
    steps, values = series.finite()
    moved = float((values != 0.0).mean())
    if len(values) >= MIN_EQUAL and moved == 1.0 and np.ptp(values) == 0.0 and _digits(values[0]) >= MIN_DIGITS:
        return _constant(series, evidence, limits)
    if moved > limits["moved"]:
        return Healthy(reason=f"the KL is above 0 at {pct(moved)} of steps")
    if not shows_small_numbers(evidence, besides="kl/ref"):
        return NotJudged(reason="the KL is 0, but the log shows few decimals", missing=("kl/ref",), enable=ENABLE)
    rate = evidence.metrics.get("lr")
    trained = rate is not None and bool((rate.finite()[1] > 0).mean() >= MIN_TRAINED_SHARE)
    coefficient = next((evidence.run.context[name] for name in COEFFICIENTS if name in evidence.run.context), None)
    asked = evidence.run.framework == "trl" or (isinstance(coefficient, int | float) and coefficient > 0)
    finding = Finding(
        severity=Severity.MEDIUM if trained and asked else Severity.LOW,
        claim=f"The KL to the reference is exactly 0 at all {len(values)} logged steps: no distance was measured",
        observed=moved,
        limit=limits["moved"],
        unit="share",
        onset_step=int(steps[0]),
        onset_interval=(int(steps[0]), int(steps[0])),
        evidence=metric_evidence(series, coefficient=coefficient),
        causes=("the reference is the policy itself", "a policy that is not updated", "a KL coefficient of 0"),
        confirm=("compare the logprobs of policy and reference on one batch after some updates: are they equal?",),
        next=("load the reference as a separate model, or switch adapters off for its forward pass",),
    )
    return finding if trained and asked else Healthy(reason="no setting asks for a KL penalty", notes=(finding,))


def _digits(value: float) -> int:
    """Return how many digits of a number tell something, as it was logged: none of what bfloat16 holds exactly."""
    single = np.float32(value)
    if (np.frexp(single)[0] * ROUNDED_STEPS).is_integer():
        return 0
    return len(str(single).partition("e")[0].replace(".", "").strip("-0"))


def _constant(series: Series, evidence: Evidence, limits: Limits) -> Finding:
    steps, values = series.finite()
    loss = logged_loss(evidence, minimum=MIN_EQUAL)
    losses = loss.finite()[1] if isinstance(loss, Series) else np.zeros(1)
    equal = bool(losses[0] != 0.0 and np.ptp(losses) == 0.0)  # centred advantages give a loss of 0, trained or not
    told = f", and the loss {sig(float(losses[0]))}" if equal else ""
    return Finding(
        severity=Severity.HIGH if equal else Severity.MEDIUM,
        claim=f"The KL to the reference is exactly {values[0]:.9g} at all {len(values)} logged steps{told}: "
        + ("nothing is trained, or neither is measured" if equal else "it is not measured anew"),
        observed=1.0,
        limit=limits["moved"],
        unit="share",
        onset_step=int(steps[0]),
        onset_interval=(int(steps[0]), int(steps[0])),
        evidence=metric_evidence(series),
        causes=("a placeholder in place of a measurement", "a policy that is not updated", "one batch scored again"),
        confirm=("compare the weights of two checkpoints, and the logprobs of one batch before and after an update",),
        next=("follow one batch by hand: samples, advantages, loss, gradient, and what is logged of each",),
    )


RULE = rule(check, "kl-zero", Link.POLICY_UPDATE, max_severity=Severity.HIGH, moved=MOVED_LIMIT, families=LANGUAGE)
