"""What the runs record of their settings, side by side: the same, different, or recorded by some only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import polars as pl

from ptt.diagnostics.comparing.values import Arm, Member, NotCompared
from ptt.diagnostics.model import JsonScalar

NO_SETTINGS: Final = frozenset({"global_step", "status", "framework", "algorithm"})
"""Facts that are no choice: how far a run came is told beside it, and the last two are taken from the run itself."""
FROM_CONTEXT: Final = ("code", "packages", "model", "dataset")  # what a run was made of, beside settings
LONGEST: Final = 200  # letters of a value: what is longer was never one setting
SETTINGS: Final = pl.Schema({"key": pl.String, "arm": pl.String, "value": pl.String, "differs": pl.Boolean})


def compare_settings(arms: Sequence[Arm]) -> tuple[pl.DataFrame, tuple[NotCompared, ...]]:
    """Give the table `settings`; `differs` is null where fewer than two arms record a key."""
    facts = {member.name: _facts(member) for arm in arms for member in arm.members}
    keys = sorted({key for held in facts.values() for key in held})
    rows = []
    for key in keys:
        values = {arm.name: _of_arm([facts[member.name].get(key) for member in arm.members]) for arm in arms}
        recorded = [value for value in values.values() if value is not None]
        differs = len(set(recorded)) > 1 if len(recorded) > 1 else None
        rows += [(key, arm.name, values[arm.name], differs) for arm in arms]
    return pl.DataFrame(rows, schema=SETTINGS, orient="row"), _unrecorded(arms)


def _facts(member: Member) -> dict[str, JsonScalar]:
    run = member.diagnosis.run
    found: dict[str, JsonScalar] = {"framework": run.framework, "algorithm": run.algorithm}
    found |= {key: value for key, value in run.context.items() if key not in NO_SETTINGS}
    table = member.diagnosis.tables.get("context")
    for row in table.iter_rows(named=True) if table is not None else ():
        if row["item"] in FROM_CONTEXT and row["present"] and row["value"]:
            found.setdefault(row["item"], row["value"])
    return {key: value for key, value in found.items() if value is not None}


def _of_arm(values: Sequence[JsonScalar]) -> str | None:
    """Give the value of an arm as JSON: of seeds that differ in it, all of them; null where none records it."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    distinct = list(dict.fromkeys(_text(value) for value in known))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"


def _text(value: JsonScalar) -> str:
    if isinstance(value, str) and len(value) > LONGEST:
        value = value[:LONGEST] + "…"
    return json.dumps(value, ensure_ascii=False)


def _unrecorded(arms: Sequence[Arm]) -> tuple[NotCompared, ...]:
    """Say which arms do not record their settings, and how they would."""
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
    reason = f"{who} in full: what is not listed may differ as well"
    return (NotCompared(what="settings", reason=reason, enable=enable),)
