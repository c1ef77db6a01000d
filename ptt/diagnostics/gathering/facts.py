"""What the run is: framework, algorithm, steps, sizes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import JsonScalar, Run
from ptt.diagnostics.store.wide import distinct

IntArray = npt.NDArray[np.int64]
KNOWN = ("framework", "algorithm")


def run_facts(
    name: str,
    facts: Mapping[str, JsonScalar],
    series: Mapping[str, Series],
    tokens: Tokens | None,
    logged: IntArray | None = None,
) -> Run:
    """Put together what the files tell of the run; steps are those of sequences, of series and of `logged` together."""
    held = [np.empty(0, np.int64) if logged is None else logged, *(one.steps for one in series.values())]
    sequences = model_tokens = 0
    if tokens is not None:
        rows = tokens.tables.rows.filter("ok")
        held.append(rows["step"].unique().to_numpy())
        sequences = rows.height
        model_tokens = int(rows["n_model"].cast(pl.Int64).sum())
    steps = distinct(held)
    return Run(
        name=name,
        framework=_text(facts.get("framework")),
        algorithm=_text(facts.get("algorithm")),
        first_step=int(steps[0]) if len(steps) else None,
        last_step=int(steps[-1]) if len(steps) else None,
        step_count=len(steps),
        sequences=sequences,
        model_tokens=model_tokens,
        context={key: facts[key] for key in sorted(facts) if key not in KNOWN},
    )


def _text(value: JsonScalar) -> str | None:
    return None if value is None else str(value)
