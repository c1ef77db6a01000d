"""What a run must hand over, in words: checkpoints to keep, its context, and the three checklists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ptt.diagnostics.model import Diagnosis
from ptt.reports.text.names import sentence
from ptt.reports.text.numbers import count
from ptt.reports.text.sanitize import safe
from ptt.reports.text.tables import table

ROLES: Final = {
    "last_healthy": "Last healthy",
    "best": "Best by evaluation",
    "first_broken": "First after the failure",
    "last": "Last",
}
USES: Final = {
    "last_healthy": "to go back to",
    "best": "to ship",
    "first_broken": "to look for the cause",
    "last": "to look at the end of the run",
}
ITEMS: Final = {
    "settings": "Settings",
    "seed": "Seed",
    "code": "Code version",
    "packages": "Packages",
    "model": "Model",
    "dataset": "Data set",
    "evaluation": "Evaluation protocol",
    "resumed": "Steps recorded twice",
    "gaps": "Gaps in the record",
}
PHASES: Final = {"before": "Before training", "during": "During training", "after": "After training"}
STATES: Final = {"yes": "yes", "no": "no", "cannot tell": "cannot-say", "does not apply": "absent"}
MOST: Final = 60  # checkpoints listed


@dataclass(frozen=True, kw_only=True)
class RoleView:
    """One checkpoint to keep: what for, which, and why that one."""

    name: str
    use: str
    which: str
    known: bool
    note: str


@dataclass(frozen=True, kw_only=True)
class ItemView:
    """One item of the run's context: its value, or how to record it."""

    name: str
    state: str  # for styles: yes, no, or absent where it is neither
    value: str
    source: str


@dataclass(frozen=True, kw_only=True)
class AnswerView:
    """One row of a checklist."""

    item: str
    answer: str
    state: str  # for styles
    evidence: str


@dataclass(frozen=True, kw_only=True)
class ListView:
    """One checklist, and how many of its rows have which answer."""

    title: str
    tally: str
    rows: tuple[AnswerView, ...]


def role_views(diagnosis: Diagnosis) -> tuple[RoleView, ...]:
    """Give the four checkpoints to keep; empty where nothing was looked for."""
    frame = table(diagnosis, "checkpoints")
    if frame is None:
        return ()
    return tuple(
        RoleView(
            name=ROLES[row["role"]],
            use=USES[row["role"]],
            which=_which(row["step"], row["path"], row["weights"]),
            known=row["path"] is not None,
            note=sentence(row["note"]),
        )
        for row in frame.iter_rows(named=True)
        if row["role"] in ROLES
    )


def _which(step: int | None, path: str | None, weights: bool | None) -> str:
    if path is not None:
        return f"{safe(path)} (step {count(step or 0)}{'' if weights else '; no weights in it'})"
    return f"step {count(step)}, not on disk here" if step is not None else "none"


def checkpoint_rows(diagnosis: Diagnosis) -> tuple[tuple[str, str, str], ...]:
    """Give every checkpoint on disk: step, path, whether it holds weights."""
    frame = table(diagnosis, "checkpoints")
    if frame is None:
        return ()
    rows = [row for row in frame.iter_rows(named=True) if row["role"] == "" and row["path"] is not None]
    return tuple((count(row["step"]), safe(row["path"]), "yes" if row["weights"] else "no") for row in rows[-MOST:])


def item_views(diagnosis: Diagnosis) -> tuple[ItemView, ...]:
    """Give the run's context, what is present first."""
    frame = table(diagnosis, "context")
    if frame is None:
        return ()
    rows = sorted(frame.iter_rows(named=True), key=lambda row: row["present"] is False)
    return tuple(
        ItemView(
            name=ITEMS.get(row["item"], safe(row["item"])),
            state={True: "yes", False: "no"}.get(row["present"], "absent"),
            value=safe(row["value"]) if row["present"] is not False else f"Missing. {sentence(row['enable'])}",
            source=safe(row["source"]),
        )
        for row in rows
    )


def _plural(answer: str, number: int) -> str:
    return "do not apply" if answer == "does not apply" and number > 1 else answer


def list_views(diagnosis: Diagnosis) -> tuple[ListView, ...]:
    """Give the three checklists."""
    frame = table(diagnosis, "checklists")
    if frame is None:
        return ()
    lists = []
    for phase, title in PHASES.items():
        rows = [row for row in frame.iter_rows(named=True) if row["phase"] == phase]
        shown = tuple(
            AnswerView(
                item=safe(row["item"]),
                answer=row["answer"],
                state=STATES.get(row["answer"], "cannot-say"),
                evidence=sentence(row["evidence"]),
            )
            for row in rows
        )
        counts = {answer: sum(row["answer"] == answer for row in rows) for answer in STATES}
        tally = ", ".join(f"{number} {_plural(answer, number)}" for answer, number in counts.items() if number)
        lists.append(ListView(title=title, tally=tally, rows=shown))
    return tuple(lists)
