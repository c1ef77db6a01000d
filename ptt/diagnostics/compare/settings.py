"""What the runs record of their settings, side by side: the same, different, or recorded by some only."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.compare.comparison import Arm, Member, NotCompared
from ptt.diagnostics.compare.wording import metric_name
from ptt.diagnostics.evidence.logged_metrics import Logged, Series
from ptt.diagnostics.metrics.catalogue import document
from ptt.diagnostics.model import JsonScalar
from ptt.diagnostics.wording import sig

NO_SETTINGS: Final = frozenset(
    {"global_step", "status", "framework", "algorithm", "train_runtime", "exit_reason", "row_unit", "rows_placed_by"}
)
"""Facts that are no choice: how a run went is told beside it, and framework and algorithm are taken from it."""
FROM_CONTEXT: Final = ("code", "packages", "model", "dataset")  # what a run was made of, beside settings
PRECISION: Final = 1e-5  # some loggers keep single precision, others print six digits
MAX_LETTERS: Final = 200  # letters of a value: what is longer was never one setting
SETTINGS: Final = pl.Schema({"key": pl.String, "arm": pl.String, "value": pl.String, "differs": pl.Boolean})


def compare_settings(
    arms: Sequence[Arm], held: Mapping[str, Series] | None = None
) -> tuple[pl.DataFrame, tuple[NotCompared, ...]]:
    """Return the table `settings`; `differs` is null where fewer than two arms record a key.

    `held`: logged metrics by member, of which schedules are settings as well.
    """
    facts = {member.name: _facts(member) for arm in arms for member in arm.members}
    keys = sorted({key for settings in facts.values() for key in settings})
    rows: list[tuple[object, ...]] = []
    for key in keys:
        values = {arm.name: _of_arm([facts[member.name].get(key) for member in arm.members]) for arm in arms}
        recorded = [value for value in values.values() if value is not None]
        differs = len(set(recorded)) > 1 if len(recorded) > 1 else None
        rows += [(key, arm.name, values[arm.name], differs) for arm in arms]
    for schedule in document()["kinds"]["schedule"] if held else ():
        rows += _scheduled(arms, held or {}, schedule)
    return pl.DataFrame(rows, schema=SETTINGS, orient="row"), _unrecorded(arms)


def _scheduled(arms: Sequence[Arm], series: Mapping[str, Series], name: str) -> list[tuple[object, ...]]:
    """Return a schedule as a setting: its course in words, and whether it differs at any step that two arms log."""
    logged = {arm.name: [series[m.name][name] for m in arm.members if name in series.get(m.name, ())] for arm in arms}
    if not any(logged.values()):
        return []
    key = f"{metric_name(name)}, as logged"
    schedules = {of: _of_arm([_course(run) for run in runs]) for of, runs in logged.items()}
    answers = [
        _same(first, other)
        for arm_runs, base_runs in combinations(logged.values(), 2)
        for first in arm_runs
        for other in base_runs
    ]
    known = [answer for answer in answers if answer is not None]
    differs = not all(known) if known else None
    return [(key, arm.name, schedules[arm.name], differs) for arm in arms]


def _course(logged: Logged) -> str | None:
    """Describe a schedule by where it begins, turns and ends."""
    values = logged.values[np.isfinite(logged.values)]
    if not len(values):
        return None
    first, last = float(values[0]), float(values[-1])
    inner = [float(end) for end in (values.max(), values.min()) if end not in (first, last)]
    turns = list(
        dict.fromkeys((first, *(end for end in inner if not min(first, last) <= end <= max(first, last)), last))
    )
    return " → ".join(f"{sig(value)}" for value in turns)


def _same(first: Logged, second: Logged) -> bool | None:
    """Return whether two schedules are one over the steps that both log; None where there are none."""
    common, here, there = np.intersect1d(first.steps, second.steps, return_indices=True)
    first_values, second_values = first.values[here], second.values[there]
    usable = np.isfinite(first_values) & np.isfinite(second_values)
    if not len(common) or not usable.any():
        return None
    return bool(np.allclose(first_values[usable], second_values[usable], rtol=PRECISION, atol=0.0))


def _facts(member: Member) -> dict[str, JsonScalar]:
    run = member.diagnosis.run
    settings: dict[str, JsonScalar] = {"framework": run.framework, "algorithm": run.algorithm}
    settings |= {key: value for key, value in run.context.items() if key not in NO_SETTINGS}
    table = member.diagnosis.tables.get("context")
    for row in table.iter_rows(named=True) if table is not None else ():
        if row["item"] in FROM_CONTEXT and row["present"] and row["value"]:
            settings.setdefault(row["item"], row["value"])
    return {key: value for key, value in settings.items() if value is not None}


def _of_arm(values: Sequence[JsonScalar]) -> str | None:
    """Return the value of an arm as JSON: of seeds that differ in it, all of them; null where none records it."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    distinct = list(dict.fromkeys(_text(value) for value in known))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"


def _text(value: JsonScalar) -> str:
    if isinstance(value, str) and len(value) > MAX_LETTERS:
        value = value[:MAX_LETTERS] + "…"
    return json.dumps(value, ensure_ascii=False)


def _unrecorded(arms: Sequence[Arm]) -> tuple[NotCompared, ...]:
    """Return which arms do not record their settings, and how they would."""
    without = []
    enable = ""
    for arm in arms:
        for member in arm.members:
            table = member.diagnosis.tables.get("context")
            row = None if table is None else table.filter(pl.col("item") == "settings")
            if row is None or row.is_empty() or not row["present"][0]:
                without.append(member.name)
                enable = enable or (str(row["enable"][0] or "") if row is not None and row.height else "")
    if not without:
        return ()
    total = sum(len(arm.members) for arm in arms)
    if len(without) == total:
        who = "none of the runs records its settings"
    else:
        who = f"{', '.join(without)} {'does not record its' if len(without) == 1 else 'do not record their'} settings"
    reason = f"{who} in full: settings that are not listed may differ as well"
    return (NotCompared(what="settings", reason=reason, enable=enable),)
