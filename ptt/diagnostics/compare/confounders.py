"""What sets two arms apart besides what was meant to: other settings, another reward, runs of different length."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.compare.comparable import other_quantities
from ptt.diagnostics.compare.comparison import (
    Arm,
    Member,
    NotCompared,
    first_of,
    late_mean,
    late_words,
    metric_name,
    nats,
    pair,
    tail_of,
)
from ptt.diagnostics.evidence.logged_metrics import Logged, Series
from ptt.diagnostics.metrics.catalogue import document
from ptt.diagnostics.model import JsonScalar
from ptt.diagnostics.wording import sig

NO_SETTINGS: Final = frozenset(
    {"global_step", "status", "framework", "algorithm", "train_runtime", "exit_reason", "row_unit", "rows_placed_by"}
)
"""Facts that nobody chose: how a run went is reported elsewhere, and framework and algorithm are derived from it."""
FROM_CONTEXT: Final = ("code", "packages", "model", "dataset")  # what a run was made of, beside settings
PRECISION: Final = 1e-5  # some loggers keep single precision, others print six digits
MAX_LETTERS: Final = 200  # letters of a value: a longer text is not a single setting
SETTINGS: Final = pl.Schema({"key": pl.String, "arm": pl.String, "value": pl.String, "differs": pl.Boolean})


def compare_settings(
    arms: Sequence[Arm], held: Mapping[str, Series] | None = None
) -> tuple[pl.DataFrame, tuple[NotCompared, ...]]:
    """Return the table `settings`; `differs` is null where fewer than two arms record a key.

    `held`: logged metrics by member; their schedules count as settings.
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
    """Return whether two schedules agree over the steps that both log; None if they share none."""
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


def confounders_of(arm: Arm, base: Arm, tables: Mapping[str, pl.DataFrame], name: str | None) -> list[str]:
    """Return where an arm has it easier, so that smaller tails are not all its setting's merit."""
    words = late_words(tables, arm)
    said = _high_start(arm, base, tables, name) if name else []
    if name and tail_of(tables, arm, base, name, "p95").words == "lower":
        if words.get("reward/mean") == "higher":
            gradient = ", with a smaller gradient norm" if words.get("grad_norm") == "lower" else ""
            said.append(
                f"{arm.name}: its reward is higher ({means(tables, arm, base, 'reward/mean')}){gradient}: an easier "
                "task drifts less by itself, so part of the difference may come from the task"
            )
        elif words.get("reward/mean") == "lower":
            lower = f"its reward is lower ({means(tables, arm, base, 'reward/mean')})"
            said.append(f"{arm.name}: {lower}: it may drift less because it learnt less")
        if words.get("tools/call_frequency") == "lower":
            said.append(f"{arm.name}: it uses tools less ({means(tables, arm, base, 'tools/call_frequency')})")
    arm_sources, base_sources = ({member.source for member in side.members if member.source} for side in (arm, base))
    if arm_sources & base_sources:
        said.append(f"{arm.name}: has the same files as {base.name}; there is nothing to compare")
    frameworks = {member.diagnosis.run.framework for side in (arm, base) for member in side.members}
    if len(frameworks - {None}) > 1:
        said.append(f"{arm.name}: logged by a different framework from {base.name}: metrics of one name may "
            "be measured differently")  # fmt: skip
    return said


def _high_start(arm: Arm, base: Arm, tables: Mapping[str, pl.DataFrame], name: str) -> list[str]:
    """Return where an arm grew by less because it started high: that is no suppression."""
    for quantile in ("p95", "p99"):
        tail = tail_of(tables, arm, base, name, quantile)
        if tail.growth_words == "lower" and tail.words != "lower" and tail.early > tail.base_early:
            ends = "and lies higher late" if tail.words == "higher" else "and does not lie lower late"
            start = f"early {quantile} {nats(tail.early)} nats against {nats(tail.base_early)}"
            return [f"{arm.name}: it grew by less because it started high ({start}) {ends}: nothing was suppressed"]
    return []


def means(tables: Mapping[str, pl.DataFrame], arm: Arm, base: Arm, metric: str) -> str:
    """Write the late means of an arm and the baseline, so that they are seen to differ."""
    return pair(late_mean(tables, arm, metric), late_mean(tables, base, metric))


MIN_LENGTH_RATIO: Final = 0.6
"""Of the later last step: a schedule that ends with its run is then far along in one run, hardly begun in the other."""
COMPONENT: Final = re.compile(r"^(?:train/)?rewards?/([^/]+)(?:/mean)?$")
NO_COMPONENTS: Final = frozenset({"chosen", "rejected", "margins", "accuracies", "mean", "std", "min", "max", "total"})
"""Figures of preference training and of the whole reward, which are logged under the same heading."""
MAX_NAMED: Final = 4  # reward functions in a sentence


def confounders_of_training(arm: Arm, base: Arm) -> list[str]:
    """Return where an arm was trained on another reward, by another objective, or for far more or fewer steps."""
    return [*_other_reward(arm, base), *_other_objective(arm, base), *_other_length(arm, base)]


OBJECTIVE: Final = {"advantage": "advantages are", "loss denominator": "the loss denominator is"}
"""What is no metric, so that no row of the metrics says it."""


def _other_objective(arm: Arm, base: Arm) -> list[str]:
    """Return what of the objective recomputing showed to be computed another way."""
    reasons = other_quantities(arm, base)
    return [f"{arm.name}: {what} {reasons[name]}" for name, what in OBJECTIVE.items() if name in reasons]


def _other_reward(arm: Arm, base: Arm) -> list[str]:
    arm_components, base_components = (frozenset().union(*map(_components, side.members)) for side in (arm, base))
    if not arm_components or not base_components or arm_components == base_components:
        return []
    differences = [
        f"{first_of(sorted(names), MAX_NAMED)} is logged by {side.name} and not by {other.name}"
        for side, other, names in (
            (arm, base, arm_components - base_components),
            (base, arm, base_components - arm_components),
        )
        if names
    ]
    said = f"different reward functions: {', '.join(differences)}: the rewards may measure different things"
    return [f"{arm.name}: {said}, so a difference may come from the reward"]


def _components(member: Member) -> frozenset[str]:
    """Return the reward functions that a run logs by themselves."""
    table = member.diagnosis.tables.get("metrics")
    if table is None or not {"name", "name_raw", "split"} <= set(table.columns):
        return frozenset()
    names = table.filter(pl.col("name").is_null() & (pl.col("split") == "train"))["name_raw"].unique().to_list()
    components = {hit.group(1) for name in names if (hit := COMPONENT.match(str(name)))}
    return frozenset(components - NO_COMPONENTS)


def _other_length(arm: Arm, base: Arm) -> list[str]:
    arm_end, base_end = (_end(side) for side in (arm, base))
    if not arm_end or not base_end or min(arm_end, base_end) >= MIN_LENGTH_RATIO * max(arm_end, base_end):
        return []
    ends = f"it ends at step {arm_end}, {base.name} at {base_end}"
    return [f"{arm.name}: {ends}: a schedule that ends with its run is at a different point at the same step"]


def _end(arm: Arm) -> int:
    """Return the last step of any run of an arm, 0 where none is known."""
    lasts = [member.diagnosis.run.last_step for member in arm.members]
    return max((last for last in lasts if last is not None), default=0)
