"""What a run must hand over, in words: checkpoints to keep, its context, and the three checklists."""

from __future__ import annotations

from collections import Counter
from typing import Final

from ptt.diagnostics.model import Diagnosis
from ptt.reports.text.names import sentence
from ptt.reports.text.numbers import count
from ptt.reports.text.sanitize import safe
from ptt.reports.text.tables import Row, rows_where

ROLES: Final = {
    "last_healthy": ("Last healthy", "to roll back to"),
    "best": ("Best by evaluation", "to ship"),
    "first_broken": ("First after the failure", "to look for the cause"),
    "last": ("Last", "to look at the end of the run"),
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
STYLES: Final = {"yes": "yes", "no": "no", "cannot tell": "cannot-say", "does not apply": "absent"}
MAX_CHECKPOINTS: Final = 60  # listed


def kept_checkpoints(diagnosis: Diagnosis) -> list[tuple[str, str, str, bool, str]]:
    """Return name, use, checkpoint, whether it is on disk, and reason of each of the four to keep."""
    return [
        (*ROLES[row["role"]], _checkpoint(row), row["path"] is not None, sentence(row["note"]))
        for row in rows_where(diagnosis, "checkpoints")
        if row["role"] in ROLES
    ]


def _checkpoint(row: Row) -> str:
    if row["path"] is not None:
        return f"{safe(row['path'])} (step {count(row['step'] or 0)}{'' if row['weights'] else '; no weights in it'})"
    return f"step {count(row['step'])}, not on disk here" if row["step"] is not None else "none"


def checkpoints_on_disk(diagnosis: Diagnosis) -> list[Row]:
    """Return the rows of the checkpoints whose files are there."""
    rows = rows_where(diagnosis, "checkpoints", role="")
    return [row for row in rows if row["path"] is not None and row["step"] is not None]


def checkpoint_cells(diagnosis: Diagnosis) -> list[tuple[str, str, str]]:
    """Return step, path, and whether it holds weights, of each checkpoint on disk."""
    rows = checkpoints_on_disk(diagnosis)[-MAX_CHECKPOINTS:]
    return [(count(row["step"]), safe(row["path"]), "yes" if row["weights"] else "no") for row in rows]


def context_items(diagnosis: Diagnosis) -> list[tuple[str, str, str, str]]:
    """Return name, style, value and source of each item of the run's context, what is present first."""
    return [
        (
            ITEMS.get(row["item"]) or safe(row["item"]),
            {True: "yes", False: "no"}.get(row["present"], "absent"),
            safe(row["value"]) if row["present"] is not False else f"Missing. {sentence(row['enable'])}",
            safe(row["source"]),
        )
        for row in sorted(rows_where(diagnosis, "context"), key=lambda row: row["present"] is False)
    ]


def checklists(diagnosis: Diagnosis) -> dict[str, list[tuple[str, str, str, str]]]:
    """Return item, style, answer and evidence of each row, by the list's title and tally."""
    lists = {}
    rows = rows_where(diagnosis, "checklists")
    for phase, title in PHASES.items() if rows else ():
        listed = [row for row in rows if row["phase"] == phase]
        answers = Counter(row["answer"] for row in listed)
        tally = ", ".join(
            f"{answers[answer]} {_plural(answer, answers[answer])}" for answer in STYLES if answers[answer]
        )
        lists[f"{title}: {tally}"] = [
            (safe(row["item"]), STYLES.get(row["answer"], "cannot-say"), row["answer"], sentence(row["evidence"]))
            for row in listed
        ]
    return lists


def _plural(answer: str, number: int) -> str:
    return "do not apply" if answer == "does not apply" and number > 1 else answer
