"""What a run must hand over beside its verdict: which checkpoints to keep, its context, and the three checklists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from ptt.diagnostics.deliverables.checklists import checklist_table
from ptt.diagnostics.deliverables.checkpoints import checkpoints_among
from ptt.diagnostics.deliverables.context import context_table
from ptt.diagnostics.deliverables.papers import read_papers
from ptt.diagnostics.deliverables.roles import checkpoint_table, roles
from ptt.diagnostics.deliverables.scores import best_score
from ptt.diagnostics.deliverables.wording import with_names
from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Diagnosis
from ptt.diagnostics.parsers.interface import RunFile

__all__ = ["Held", "with_deliverables"]


@dataclass(frozen=True, kw_only=True)
class Held:
    """What the run holds beside its evidence: its files, its logged evaluations, and the figures of harnesses."""

    files: Sequence[RunFile]
    evaluated: Mapping[str, Series]  # series of the split `eval`, as spelt
    evals: pl.DataFrame  # see schema.EVALS


def with_deliverables(diagnosis: Diagnosis, evidence: Evidence, held: Held) -> Diagnosis:
    """Add the tables `checkpoints`, `context` and `checklists`, and name the checkpoint wherever one is advised."""
    best = best_score(held.evaluated, held.evals, evidence.algorithm.family)
    kept = roles(diagnosis, checkpoints_among(held.files), best)
    tables = {
        "checkpoints": checkpoint_table(kept),
        "context": context_table(evidence, read_papers(held.files), held.evals, bool(held.evaluated)),
        "checklists": checklist_table(diagnosis, evidence, kept, held.evals, best),
    }
    return with_names(replace(diagnosis, tables={**diagnosis.tables, **tables}), kept)
