"""This run shows a KL to the reference of exactly 0 while the policy is trained.

What: every logged KL to the reference is exactly 0, in a log that shows small numbers, while the learning rate is above
0.
Why it matters: training moves a policy away from its reference. A KL of 0 means that nothing was measured: the KL
penalty does nothing and the distance is unknown, not healthy.
What it is not: a run whose KL coefficient is 0 and whose writer logs the term anyway. TRL logs no KL then.
What to do: check whether the reference is the policy itself (the same object, adapters not switched off, shared
weights), or whether nothing is trained.
Source: k3 of two different policies is above 0 (http://joschu.net/blog/kl-approx.html); TRL logs `kl` where beta is not
0.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import LANGUAGE, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.policy_update import shows_small_numbers
from ptt.diagnostics.rules.policy_update.kl_over_target import ENABLE
from ptt.diagnostics.rules.single_series import metric_evidence, requires_metric
from ptt.diagnostics.wording import pct

COEFFICIENTS = ("beta", "kl_coef", "kl_loss_coef", "init_kl_coef")
MOVED_LIMIT = 0.0  # share of the logged values: a single one above 0 proves it was measured
MIN_TRAINED_SHARE = 0.5  # of the logged learning rates above 0


@requires_metric("kl/ref", what="KL to the reference", enable=ENABLE)
def check(series: Series, evidence: Evidence, limits: Limits) -> Verdict:
    """Judge whether any distance was measured."""
    steps, values = series.finite()
    moved = float((values != 0.0).mean())
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


RULE = rule(check, "kl-zero", Link.POLICY_UPDATE, max_severity=Severity.MEDIUM, moved=MOVED_LIMIT, families=LANGUAGE)
