"""What exports of trackers do to column names and steps: run names in front, bounds behind, steps with holes.

W&B's chart export names a column `{run} - {metric}` and adds `…__MIN` and `…__MAX`, the bounds of what it averaged;
its history export has a row a log call, of which only some name the trainer's step.
"""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

BOUNDS = ("__MIN", "__MAX")
BETWEEN = " - "
OWN = frozenset({"_step", "_runtime", "_timestamp", "id", "run_id", "run_name", "log_id", "space_id"})


def plain_names(columns: Iterable[str]) -> dict[str, str]:
    """Give the columns that hold values, with the metric's own name.

    A run's name in front is taken off where it is the only one; with several runs in one table the names stay as they
    are, since their values belong to different series.
    """
    given = list(columns)
    kept = [name for name in given if not (name.endswith(BOUNDS) and name[: -len(BOUNDS[0])] in given)]
    runs = {name.split(BETWEEN, 1)[0] for name in kept if BETWEEN in name}
    if len(runs) != 1 or not all(BETWEEN in name for name in kept):
        return {name: name for name in kept}
    front = runs.pop() + BETWEEN
    return {name: name.removeprefix(front) for name in kept}


def filled(steps: pl.Series, calls: Iterable[str]) -> pl.Series:
    """Give log calls without the trainer's step that of the last one before, or of the first, as in W&B's own logs."""
    return steps.forward_fill().backward_fill() if {"_step", "run_name"} & set(calls) else steps
