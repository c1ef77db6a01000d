"""This run shows an evaluation whose settings changed between points.

What: temperature, top_p, max_tokens, the number of samples per prompt, or the size of the suite differs between points
of one evaluation. A smaller last point is left out: a run may end in the middle of an evaluation.
Why it matters: points under different settings cannot be compared; the policy did not cause the jump there.
What to do: evaluate the saved checkpoints again under the first protocol, and compare those.
Source: Machado et al., Revisiting the Arcade Learning Environment (arXiv 1709.06009), on how much protocols decide.
Where the writer logs samples per second and the time, the size of the suite is their product.
"""

from itertools import pairwise

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.evaluation import Setting
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import EVERY, Broken, Finding, Healthy, Limits, NotJudged, Verdict, by_kind, rule

SIZE_LIMIT = 0.1  # of the suite: rates and times are rounded, and a few samples may time out
MIN_CHANGE = 1e-6  # of a setting: float32 precision


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge every setting that is recorded point by point."""
    settings = evidence.evaluation.settings if evidence.evaluation is not None else ()
    judged = [setting for setting in settings if len(setting.points) >= 2]
    if not judged:
        return NotJudged(
            reason="no evaluation setting is recorded at two points",
            missing=("temperature", "max_tokens", "samples"),
            enable=by_kind(
                evidence,
                sampled="log temperature, max_tokens, the tools and the number of samples with every evaluation",
                given="log the data, the number of samples and any sampling settings with every evaluation",
            ),
        )
    findings = [finding for setting in judged if (finding := _changed(setting, limits["size"])) is not None]
    if findings:
        return Broken(findings=tuple(findings))
    names = ", ".join(sorted({f"{setting.name} of {setting.suite}" for setting in judged})[:4])
    return Healthy(reason=f"unchanged at all points: {names}")


def _changed(setting: Setting, size_limit: float) -> Finding | None:
    size = setting.name == "samples"
    limit = size_limit if size else MIN_CHANGE
    points = list(setting.points)
    if size and len(points) > 2 and points[-1][1] < points[-2][1]:
        points.pop()  # cut short by the end of the run
    changes = (
        (before, old, step, new)
        for (before, old), (step, new) in pairwise(points)
        if abs(new - old) > limit * max(abs(old), abs(new))
    )
    first = next(changes, None)
    if first is None:
        return None
    before, old, step, new = first
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"The {'size' if size else setting.name} of the evaluation {setting.suite} changed {old:.4g} → {new:.4g}",
        observed=new,
        limit=old,
        unit=setting.name,
        onset_step=step,
        onset_interval=(before, step),
        evidence={"metric": setting.suite, "logged_as": setting.name, "before": old, "after": new,
                  "exact": setting.exact},
        causes=("the run was resumed with different settings", "the suite was changed or resampled",
                "different evaluations are logged under one name"),
        confirm=(f"compare the settings and the code of the evaluations at steps {before} and {step}",),
        next=(f"evaluate the checkpoints before and after step {step} under one protocol before comparing them",),
    )  # fmt: skip


RULE = rule(
    check, "eval-protocol-changed", Link.EVALUATION, max_severity=Severity.MEDIUM, size=SIZE_LIMIT, families=EVERY
)
