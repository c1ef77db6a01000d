"""Names the checkpoint in every sentence that advises to go back to the last healthy one."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from ptt.diagnostics.deliverables.roles import Kept, Role
from ptt.diagnostics.model import Diagnosis, Finding

PHRASE: Final = re.compile(
    r"\bthe (?:last|latest|most recent|nearest) (?:known )?(?:healthy|good) checkpoint\b(?! \()", re.IGNORECASE
)
BEFORE: Final = re.compile(r"\bthe (?:last )?checkpoint before step (\d{1,12})\b(?! \()", re.IGNORECASE)


def with_names(diagnosis: Diagnosis, kept: Kept) -> Diagnosis:
    """Put the checkpoint behind the words, in the verdict and in the findings; findings keep all else."""
    verdict = replace(diagnosis.verdict, next=_each(diagnosis.verdict.next, kept))
    return replace(
        diagnosis, verdict=verdict, findings=tuple(_finding(finding, kept) for finding in diagnosis.findings)
    )


def _name(role: Role) -> str | None:
    """Give what stands in brackets: the folder, or the steps to look at."""
    if role.held is not None:
        shell = "" if role.held.weights else ", without weights here"
        return f"{role.held.path}, step {role.held.step}{shell}"
    return f"one saved at or before step {role.step}" if role.step is not None else None


def _finding(finding: Finding, kept: Kept) -> Finding:
    confirm, following = _each(finding.confirm, kept), _each(finding.next, kept)
    if confirm == finding.confirm and following == finding.next:
        return finding
    return replace(finding, confirm=confirm, next=following)


def _each(sentences: tuple[str, ...], kept: Kept) -> tuple[str, ...]:
    name = _name(kept.healthy)

    def healthy(found: re.Match[str]) -> str:
        return found[0] if name is None else f"{found[0]} ({name})"

    def before(found: re.Match[str]) -> str:
        earlier = [one for one in kept.held if one.step < int(found[1])]
        return f"{found[0]} ({earlier[-1].path})" if earlier else found[0]

    return tuple(BEFORE.sub(before, PHRASE.sub(healthy, text)) for text in sentences)
