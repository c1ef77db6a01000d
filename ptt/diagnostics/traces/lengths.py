"""Whether longer episodes fail more often: of two episodes of one task, one that failed and one that succeeded."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.model import JsonScalar, Severity
from ptt.diagnostics.rules.interface import Finding
from ptt.diagnostics.statistics.within_groups import PairOrder, pair_order
from ptt.diagnostics.traces.interface import Judged, graded, not_judged
from ptt.diagnostics.traces.success import ENABLE
from ptt.diagnostics.traces.tables import TraceTables
from ptt.diagnostics.wording import pct

MEASURES: Final = (("n_turns", "turns"), ("tokens_out", "tokens"))
MARGIN: Final = 0.1  # of the pairs, beyond the half that chance gives: less says nothing of an episode


def judge_lengths(tables: TraceTables) -> Judged:
    """Say whether length tells failures from successes; a note at most, for what is hard takes longer."""
    labelled = tables.episodes.filter(pl.col("success").is_not_null())
    if labelled.is_empty():
        return not_judged(
            "whether episodes succeeded is not recorded", missing=("trajectories.success",), enable=ENABLE
        )
    findings, reasons = [], []
    for column, what in MEASURES:
        rows = labelled.filter(pl.col(column).is_not_null())
        if rows.is_empty():
            continue
        values, failed = rows[column].cast(pl.Float64).to_numpy(), ~rows["success"].to_numpy()
        found = pair_order(values, failed, rows["unit"].to_numpy().astype(np.int64))
        repeats = found is not None
        if found is None:  # hardly any task with both outcomes
            found = pair_order(values, failed, np.zeros(rows.height, np.int64))
        if found is None:
            continue
        reasons.append(_told(found, what, repeats))
        low, high = found.interval
        if low > 0.5 + MARGIN or high < 0.5 - MARGIN:
            findings.append(_note(found, what, column, repeats))
    if not reasons:
        few = "too few episodes of both outcomes to compare their lengths"
        return not_judged(few, enable="add episodes: more attempts at each task, or more tasks")
    return Judged(verdict=graded(*findings[:1], reason="; ".join(reasons)))


def _told(found: PairOrder, what: str, repeats: bool) -> str:
    of = " of one task" if repeats else ""
    low, high = found.interval
    return (
        f"of a failing and a succeeding episode{of} the failing one has more {what} in {pct(found.share)} "
        f"(95% interval {pct(low)} to {pct(high)})"
    )


def _note(found: PairOrder, what: str, column: str, repeats: bool) -> Finding:
    evidence: dict[str, JsonScalar] = {
        "metric": f"trajectories.{column}",
        "low": found.interval[0],
        "high": found.interval[1],
        "pairs": found.pairs,
        "groups": found.groups,
    }
    longer = found.share > 0.5
    told = _told(found, what, repeats)
    return Finding(
        severity=Severity.INFO,
        claim=told[:1].upper() + told[1:],
        observed=found.share,
        limit=0.5 + MARGIN if longer else 0.5 - MARGIN,
        unit="share",
        evidence=evidence,
        causes=("an agent that is lost goes on", "what is harder takes longer")
        if longer
        else ("an agent that gives up early", "an answer without the calls that it takes"),
        confirm=(
            f"read the {'longest' if longer else 'shortest'} failing episode beside a succeeding one of its task",
        ),
        next=("set a limit near what 95% of the succeeding episodes need",) if longer else ("see where they give up",),
    )
