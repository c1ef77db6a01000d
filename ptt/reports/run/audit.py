"""What the trainer says, recomputed: the table of the report, and the one line of the terminal and the postmortem."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.metrics.recording import how_to_record
from ptt.diagnostics.model import Agreement, AuditRow, Diagnosis
from ptt.reports.text.names import joined, metric_name, sentence
from ptt.reports.text.numbers import count, counted, number, percent
from ptt.reports.text.sanitize import safe, shortened

MAX_NAME: Final = 60  # letters of a name as logged
MIN_ERROR: Final = 1e-5  # of a value: below it two sums of floats in another order differ, and no digit tells more
MAX_ERROR: Final = 10.0  # above it the two levels say more than their ratio
MAX_UNFOLDED: Final = 3  # lines on what is not checkable that stand open
MAX_NAMED: Final = 2  # metrics that differ, in the one line
DASH: Final = "—"

ADVANTAGE: Final = "advantage"
QUANTITIES: Final = {ADVANTAGE: "advantages"}  # what prose calls what is no metric; of others their own name
WORDS: Final = {Agreement.DIFFERS: "Differs", Agreement.AGREES: "Agrees", Agreement.FACT: "Fact"}
TALLY: Final = {  # in the order of the table
    Agreement.DIFFERS: ("differs", "differ"),
    Agreement.AGREES: ("agrees", "agree"),
    Agreement.FACT: ("fact", "facts"),
    Agreement.NOT_CHECKABLE: ("not checkable", "not checkable"),
}
ESTIMATORS: Final = {  # of advantages, by the id of the formula
    "grpo": "GRPO's",
    "grpo_population_std": "GRPO's (deviation by n)",
    "grpo_batch_std": "GRPO's with the batch's deviation",
    "dr_grpo": "Dr. GRPO's",
    "rloo": "RLOO's",
    "opo": "OPO's",
    "gae": "GAE's",
    "reinforce_plus_plus": "REINFORCE++'s",
    "reinforce_plus_plus_baseline": "REINFORCE++'s with a group's baseline",
}
LOGGED_KL: Final = "kl/ref"


@dataclass(frozen=True, kw_only=True)
class RecomputedRow:
    """One thing that was recomputed, as the table tells it."""

    what: str
    logged_as: str
    state: str  # differs | agrees | fact
    word: str
    anchor: str  # of the finding that it led to; empty where it led to none
    said: str  # follows the word
    reason: str
    logged: str
    recomputed: str
    error: str
    steps: str
    since: str


@dataclass(frozen=True, kw_only=True)
class NotCheckable:
    """What one thing to record would make checkable: each with its name as logged and why it is not."""

    needs: str
    rows: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, kw_only=True)
class AuditView:
    """The table, and what is not in it; `open` where something differs and led to a finding."""

    rows: tuple[RecomputedRow, ...]
    unchecked: tuple[NotCheckable, ...]
    folded: str  # the line that they are folded under; empty where they stand open
    summary: str
    open: bool


def audit_view(diagnosis: Diagnosis) -> AuditView | None:
    """Return the table of what the trainer says; None where nothing was recomputed."""
    if not diagnosis.audit:
        return None
    anchors = {finding.id: f"finding-{at}" for at, finding in reversed([*enumerate(diagnosis.findings, start=1)])}
    order = list(TALLY)
    checked = sorted(
        (row for row in diagnosis.audit if row.agreement in WORDS),
        key=lambda row: (order.index(row.agreement), row.finding not in anchors),
    )
    rows = tuple(_row(row, anchors.get(row.finding or "", ""), diagnosis.run.step_unit) for row in checked)
    unchecked = [row for row in diagnosis.audit if row.agreement is Agreement.NOT_CHECKABLE]
    return AuditView(
        rows=rows,
        unchecked=_not_checkable(unchecked, diagnosis),
        folded=f"{count(len(unchecked))} not checkable" if len(unchecked) > MAX_UNFOLDED else "",
        summary=_tally(diagnosis.audit),
        open=any(row.state == Agreement.DIFFERS and row.anchor for row in rows),
    )


def quantity_name(quantity: str) -> str:
    """Name a quantity of the audit in prose."""
    return QUANTITIES.get(quantity) or metric_name(quantity)


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _logged_as(row: AuditRow) -> str:
    return shortened(safe(row.logged_as or ""), MAX_NAME)


def _row(row: AuditRow, anchor: str, unit: str) -> RecomputedRow:
    differs = row.agreement is Agreement.DIFFERS
    return RecomputedRow(
        what=_capital(quantity_name(row.quantity)),
        logged_as=_logged_as(row),
        state=row.agreement.value,
        word=WORDS[row.agreement],
        anchor=anchor,
        said=f"{', nearest: ' if differs else ': '}{safe(row.said)}" if row.said else "",
        reason=sentence(row.reason),
        logged=DASH if row.logged is None else number(row.logged),
        recomputed=DASH if row.recomputed is None else number(row.recomputed),
        error=_error(row.error),
        steps=_steps(row, unit),
        since=f"since step {count(row.since)}" if differs and row.since is not None else "",
    )


def _error(error: float | None) -> str:
    if error is None:
        return DASH
    if 0 < error < MIN_ERROR:
        return f"below {percent(MIN_ERROR)}"
    return percent(error) if error <= MAX_ERROR else f"over {percent(MAX_ERROR)}"


def _steps(row: AuditRow, unit: str) -> str:
    if not row.steps:
        return DASH
    if row.agreement is Agreement.FACT:
        return counted(row.steps, unit)
    return f"{count(row.agreeing)} of {count(row.steps)}"


def _not_checkable(rows: Iterable[AuditRow], diagnosis: Diagnosis) -> tuple[NotCheckable, ...]:
    """Return what would make rows checkable, what does so for most of them first."""
    groups: defaultdict[tuple[str, ...], list[AuditRow]] = defaultdict(list)
    for row in rows:
        groups[row.missing].append(row)
    return tuple(
        NotCheckable(
            needs=_needs(missing, diagnosis),
            rows=tuple(
                (_capital(quantity_name(row.quantity)), _logged_as(row), safe(row.reason).rstrip(".")) for row in group
            ),
        )
        for missing, group in sorted(groups.items(), key=lambda item: (not item[0], -len(item[1]), item[0]))
    )


def _needs(missing: Sequence[str], diagnosis: Diagnosis) -> str:
    """Name what is missing, and the line that records it where one is known."""
    if not missing:
        return ""
    how = how_to_record(diagnosis.run.framework, missing, trainer=diagnosis.run.algorithm)
    needs = f"Record {joined([f'`{safe(name)}`' for name in missing])}"
    return f"{needs}, {how}" if how else needs


def _tally(rows: Sequence[AuditRow]) -> str:
    """Count the rows: "1 differs, 5 agree, 2 not checkable"."""
    counts = {agreement: sum(row.agreement is agreement for row in rows) for agreement in TALLY}
    return ", ".join(f"{count(many)} {TALLY[agreement][many > 1]}" for agreement, many in counts.items() if many)


def recomputed_line(diagnosis: Diagnosis) -> str:
    """Say in one line what the trainer computes; empty where nothing agrees and no finding rests on a difference."""
    rows, found = diagnosis.audit or (), {finding.id for finding in diagnosis.findings}
    agreeing = [row for row in rows if row.agreement is Agreement.AGREES]
    differing = [row for row in rows if row.agreement is Agreement.DIFFERS and row.finding in found]
    if not agreeing and not differing:
        return ""
    parts = [*_differing(differing), *map(_objective, agreeing), _agree(rows)]
    return safe("; ".join(filter(None, parts)))


def _differing(rows: Sequence[AuditRow]) -> list[str]:
    """Name what differs: "entropy differs since step 241", "entropy, clip fraction and 2 more differ"."""
    names = list(dict.fromkeys(quantity_name(row.quantity) for row in rows))
    if not names:
        return []
    more = len(names) - MAX_NAMED
    shown = joined([*names[:MAX_NAMED], *([f"{count(more)} more"] if more > 0 else [])])
    sinces = {row.since for row in rows}
    since = f" since step {count(one)}" if len(sinces) == 1 and (one := sinces.pop()) is not None else ""
    return [f"{shown} differ{'' if len(names) > 1 or rows[0].quantity in QUANTITIES else 's'}{since}"]


def _objective(row: AuditRow) -> str:
    """Say which estimator the advantages are, and which the KL."""
    if row.quantity == ADVANTAGE:
        estimator = ESTIMATORS.get(row.formula or "")
        return f"advantages are {estimator}" if estimator else f"advantages: {row.said}"
    if row.quantity != LOGGED_KL or not row.formula:
        return ""
    reduction = (row.reduction or "").split("/")[0].replace("_", " ")
    return f"KL is {', '.join(filter(None, (row.formula, reduction)))}"


def _agree(rows: Iterable[AuditRow]) -> str:
    """Count the logged metrics that agree, whatever they were held against, among those that could be checked."""
    checked: defaultdict[str, list[bool]] = defaultdict(list)
    for row in rows:
        if row.quantity != ADVANTAGE and row.agreement in (Agreement.AGREES, Agreement.DIFFERS):
            checked[row.quantity].append(row.agreement is Agreement.AGREES)
    agreeing = sum(map(all, checked.values()))
    verb = "agrees" if agreeing == 1 else "agree"
    return f"{count(agreeing)} of {count(len(checked))} logged metrics {verb}" if checked else ""
