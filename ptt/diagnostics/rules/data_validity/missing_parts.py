"""This run shows ranks or steps that are missing from its records.

What: a rank that writes at some steps is absent at others; or a gap between recorded steps five times the usual one.
Why it matters: what a missing rank held is in no figure. If ranks hold different prompts or environments, the rest is a
different mixture: a tail may seem to grow or vanish.
What to do: look at that rank's log at the first step it lacks; compare only figures from the other ranks.
Source: a run continues when one of its writers dies.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.validity import Coverage, Validity
from ptt.diagnostics.model import JsonScalar, Link, Severity
from ptt.diagnostics.rules.data_validity import recorded_validity
from ptt.diagnostics.rules.interface import Broken, Finding, Healthy, Limits, Verdict, requires, rule

MAX_GAPS = 0.0  # a gap is one; the usual distance is the run's own


@requires(recorded_validity)
def check(validity: Validity, _: Evidence, limits: Limits) -> Verdict:
    """Judge the coverage of ranks and steps."""
    coverage = validity.coverage
    findings = [_rank_finding(coverage)] if coverage.missing_ranks else []
    if len(coverage.step_gaps) > limits["gaps"]:
        findings.append(_gap_finding(coverage))
    if findings:
        return Broken(findings=tuple(findings))
    known = f"all {coverage.ranks} ranks are present at every step" if coverage.ranks else "no ranks are recorded"
    return Healthy(reason=f"{known}; recorded steps have no unusual gap")


def _rank_finding(coverage: Coverage) -> Finding:
    names = ", ".join(str(rank) for rank in coverage.missing_ranks)
    first = coverage.first_step_missing_rank
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"Rank {names} of {coverage.ranks} is missing at {coverage.steps_missing_ranks} recorded steps",
        observed=float(coverage.steps_missing_ranks),
        limit=0.0,
        unit="steps",
        onset_step=first,
        evidence={
            "ranks": names,
            **_extent(
                coverage,
                coverage.steps_missing_ranks,
                (first, coverage.last_step_missing_rank),
                "in no statistic (judged by what a rank usually writes); without it, slices and windows may be a "
                "different mixture",
            ),
        },
        causes=("the rank's writer died or fell behind",),
        next=(f"read the log of rank {names} at step {first}",),
    )


def _extent(coverage: Coverage, parts: int | None, steps: tuple[int, int], effect: str) -> dict[str, JsonScalar]:
    """Estimate what `parts` missing parts held by what the others do, as `extent` says it; no file holds them."""
    return {
        "tokens": None if parts is None else round(parts * coverage.usual_tokens),
        "sequences": None if parts is None else round(parts * coverage.usual_sequences),
        "first_step": steps[0],
        "last_step": steps[1],
        "files": 0,
        "example": None,
        "effect": effect,
    }


def _gap_finding(coverage: Coverage) -> Finding:
    first = coverage.step_gaps[0]
    return Finding(
        severity=Severity.LOW,
        claim=f"No sequence is recorded between steps {first[0]} and {first[1]}"
        + (f", and in {len(coverage.step_gaps) - 1} more gaps" if len(coverage.step_gaps) > 1 else ""),
        observed=float(len(coverage.step_gaps)),
        limit=0.0,
        unit="gaps",
        onset_step=first[0] + 1,
        evidence=_extent(
            coverage,
            None,
            (first[0] + 1, coverage.step_gaps[-1][1] - 1),
            "in no statistic; an onset or a window's edge inside the gap cannot be placed more exactly",
        ),
        causes=("files were deleted or not copied", "a resume that skipped steps"),
        next=("look for the files of these steps",),
    )


RULE = rule(check, "missing-parts", Link.DATA_VALIDITY, max_severity=Severity.MEDIUM, gaps=MAX_GAPS)
