"""This run shows a logged metric that its own tokens contradict.

What: recomputed from whole recorded batches, the metric is given at nine steps in ten by a known way of miscounting and
by no sound one: padding or tool output counted in a mean, a sum where a mean is named, a ratio times the rows of its
batch, a wrong sign, an inverted ratio, another pair of logprobs, the rows of another step, a sequence's weight made of
the sum of its log ratios while its tokens agree. Or it is what the rows give up to one step and no longer after it,
while another metric of the same rows still is.
Why it matters: what is watched is not what is trained on. A KL or an entropy with padding in it moves with the answers'
length; an importance weight or a clip fraction that is off scales the gradient, or hides that something does.
What it is not: a usual formula or reduction, whichever the trainer uses: the audit names it. A metric that no way
gives, and records of a part of each batch, are no finding.
What to do: correct the mask, the reduction or the pair in the trainer's own code for that metric, and read its past
values with the factor that the finding states.
Source: formulas and masks as TRL, veRL, OpenRLHF, NeMo-RL and slime compute them; in recorded TRL runs KL, entropy and
clip fraction recomputed this way equal the logged values to six digits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.column_faults import ColumnFault
from ptt.diagnostics.evidence.recomputed_scalars import Miscounted, ScalarAudit
from ptt.diagnostics.model import MISCOUNTED, Agreement, Link, Severity
from ptt.diagnostics.rules.data_validity import dates_of, when_words
from ptt.diagnostics.rules.interface import Broken, Finding, Healthy, Limits, NotJudged, Verdict, requires, rule
from ptt.diagnostics.wording import counted, sig

MIN_STEPS: Final = 6  # at which the rows tell ways apart: fewer agree with one of some hundred by chance
MIN_OFF: Final = 0.01  # of the logged value, of a ratio its distance to 1: less changes no conclusion
MAX_NAMED: Final = 4  # metrics in one claim
SINGULAR: Final = re.compile(r"^(is|counts|has|compares|becomes|falls)\b")
PLURAL: Final = {"is": "are", "counts": "count", "has": "have", "compares": "compare", "becomes": "become"}
EFFECT: Final = "this metric's values, and what is concluded from them; the recorded tokens are right"


def _recomputed(evidence: Evidence) -> ScalarAudit | NotJudged:
    audit = evidence.scalars
    known = [row for row in audit.rows if row.agreement in (Agreement.AGREES, Agreement.DIFFERS)] if audit else []
    if audit is None or not known:
        reasons = sorted({row.reason for row in audit.rows if row.reason}) if audit else []
        return NotJudged(
            reason=f"no logged metric could be recomputed: {reasons[0]}" if reasons else
            "no logged metric stands beside recorded tokens that would give it",
            missing=("policy_logp", "old_logp", "model_mask"),
            enable="record whole batches of steps that are logged: docs/recorder.md",
            absent=audit is None,
        )  # fmt: skip
    return audit


@requires(_recomputed)
def check(audit: ScalarAudit, evidence: Evidence, limits: Limits) -> Verdict:
    """Report metrics that are miscounted, those with one fault together."""
    told = [one for one in told_of(audit.miscounted, evidence) if _matters(one, limits)]
    if told:
        return Broken(findings=tuple(_finding(group) for group in _groups(told)))
    agreeing = [row for row in audit.rows if row.agreement is Agreement.AGREES and row.logged_as]
    names = ", ".join(str(row.logged_as) for row in agreeing[:MAX_NAMED])
    more = f" and {len(agreeing) - MAX_NAMED} more" if len(agreeing) > MAX_NAMED else ""
    return Healthy(
        reason=f"{counted(len(agreeing), 'logged metric(s)')} are what the recorded tokens give: {names}{more}"
        if agreeing
        else "no logged metric is given by a known way of miscounting"
    )


def _matters(one: Miscounted, limits: Limits) -> bool:
    """Return whether enough steps were compared, and the logged value is far enough off."""
    return one.steps >= limits["steps"] and one.error > limits["off"]


def told_of(found: Iterable[Miscounted], evidence: Evidence) -> list[Miscounted]:
    """Return those that no fault of the recorded columns explains: a rule of its own reports such a fault."""
    return [
        one
        for one in found
        if not any(_touches(fault, one) for fault in evidence.column_faults)
        and not (one.quantity == "kl/ref" and not one.wrong and _records_moved(evidence))
    ]


def _touches(fault: ColumnFault, one: Miscounted) -> bool:
    """Return whether a fault lies in one of the columns, at steps of which some are compared."""
    if fault.pairs == ("policy/old",) and fault.found.kind == "copied":
        return False  # one update a batch
    if fault.found.kind == "copied" and fault.span.from_start and not fault.whole_run:
        return False  # a policy that has not moved yet
    columns = {fault.column} if fault.column else {f"{side}_logp" for pair in fault.pairs for side in pair.split("/")}
    meet = one.span is None or (one.span.since <= fault.span.until and fault.span.since <= one.span.until)
    return bool(columns & set(one.columns)) and meet


def _records_moved(evidence: Evidence) -> bool:
    """Return whether kl-disagrees reports that the recorded KL moved, not the logged one."""
    witness = evidence.kl_witness
    return witness is not None and witness.jump is not None and witness.jump.measured_moved


def _groups(told: Sequence[Miscounted]) -> list[list[Miscounted]]:
    """Return metrics with the same fault from the same step on together, in their order."""
    groups: dict[tuple[str, int | None, int | None], list[Miscounted]] = {}
    for one in told:
        span = one.span
        ends = (None, None) if span is None else (span.since, span.until if not span.to_end else None)
        groups.setdefault((one.wrong, *ends), []).append(one)
    return list(groups.values())


def _finding(group: Sequence[Miscounted]) -> Finding:
    first = group[0]
    names = _listed([one.logged_as for one in group])
    figures = "; ".join(
        f"{one.logged_as if len(group) > 1 else 'it'} is logged as {sig(one.logged)} where the rows give "
        f"{sig(one.recomputed)}"
        for one in group[:MAX_NAMED]
    )
    when = "" if first.span is None else f" {when_words(first.span)}"
    if first.wrong:
        claim = f"{names} {_verb(first.wrong, len(group))}{when}: {figures}"
    else:
        are, were = ("is", "it was") if len(group) == 1 else ("are", "they were")
        claim = f"{names} {are} not what the rows give{when}, and elsewhere {were}: {figures}"
    ratio = first.logged / first.recomputed if first.recomputed else None
    return Finding(
        severity=Severity.HIGH if any(one.steers for one in group) else Severity.MEDIUM,
        claim=claim,
        observed=first.logged,
        limit=first.recomputed,
        unit="",
        **_dates(first),
        evidence={
            MISCOUNTED: ", ".join(one.quantity for one in group),
            "logged_as": ", ".join(one.logged_as for one in group),
            "metric": first.quantity,
            "sound": first.way,
            "wrong": first.wrong or None,
            "times": ratio,
            "steps_compared": first.steps,
            "first_step": None if first.span is None else first.span.since,
            "effect": EFFECT,
        },
        causes=_causes(first),
        confirm=("recompute the metric for one recorded batch by hand: one line of NumPy over the sampled tokens",),
        next=(
            f"correct how {first.logged_as} is computed in the trainer",
            "judge the run by the recomputed values meanwhile",
        ),
    )


def _dates(one: Miscounted) -> dict[str, Any]:
    return {} if one.span is None else dates_of(one.span)


def _causes(one: Miscounted) -> tuple[str, ...]:
    if not one.wrong:
        return ("the code that computes it changed there, as after a restart", "other positions count since then")
    if "tool output" in one.wrong or "padding" in one.wrong:
        return ("the mask of the metric is not that of the loss",)
    if "rows" in one.wrong or "times" in one.wrong:
        return ("one value a row is broadcast against the rows before the mean: [B, 1] times [B]",)
    return ("the metric's code does not compute what its name says",)


def _verb(wrong: str, number: int) -> str:
    return wrong if number == 1 else SINGULAR.sub(lambda found: PLURAL.get(found.group(), found.group()), wrong)


def _listed(names: Sequence[str]) -> str:
    shown = list(names[:MAX_NAMED])
    if len(names) > MAX_NAMED:
        shown[-1:] = [shown[-1], f"{len(names) - MAX_NAMED} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


RULE = rule(check, "miscounted-metric", Link.DATA_VALIDITY, max_severity=Severity.HIGH, steps=MIN_STEPS, off=MIN_OFF)
