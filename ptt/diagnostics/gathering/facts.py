"""What the run is: framework, algorithm, steps, sizes."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import JsonScalar, Run

KNOWN = ("framework", "algorithm")


def run_facts(name: str, facts: Mapping[str, JsonScalar], series: Mapping[str, Series], tokens: Tokens | None) -> Run:
    """Put together what the files tell of the run; steps are those of sequences and metrics together."""
    steps: set[int] = set()
    for one in series.values():
        steps.update(one.steps.tolist())
    sequences = model_tokens = 0
    if tokens is not None:
        rows = tokens.tables.rows.filter("ok")
        steps.update(rows["step"].unique().to_list())
        sequences = rows.height
        model_tokens = int(rows["n_model"].cast(pl.Int64).sum())
    return Run(
        name=name,
        framework=_text(facts.get("framework")),
        algorithm=_text(facts.get("algorithm")),
        first_step=min(steps, default=None),
        last_step=max(steps, default=None),
        step_count=len(steps),
        sequences=sequences,
        model_tokens=model_tokens,
        context={key: facts[key] for key in sorted(facts) if key not in KNOWN},
    )


def _text(value: JsonScalar) -> str | None:
    return None if value is None else str(value)
