"""What sets two arms apart besides what was meant to: another reward, or runs of very different length."""

from __future__ import annotations

import re
from typing import Final

import polars as pl

from ptt.diagnostics.comparing.values import Arm, Member

SHORTER: Final = 0.6
"""Of the later last step: a schedule that ends with its run is then far along in one run, hardly begun in the other."""
COMPONENT: Final = re.compile(r"^(?:train/)?rewards?/([^/]+)(?:/mean)?$")
NO_COMPONENTS: Final = frozenset({"chosen", "rejected", "margins", "accuracies", "mean", "std", "min", "max", "total"})
"""Figures of preference training and of the whole reward, which are logged under the same heading."""
NAMED: Final = 4  # reward functions in a sentence


def apart_from_setting(arm: Arm, base: Arm) -> list[str]:
    """Say where an arm was trained on another reward, or for a very different number of steps."""
    return [*_other_reward(arm, base), *_other_length(arm, base)]


def _other_reward(arm: Arm, base: Arm) -> list[str]:
    mine, theirs = (frozenset().union(*map(_components, one.members)) for one in (arm, base))
    if not mine or not theirs or mine == theirs:
        return []
    apart = [
        f"{_listed(names)} is logged by {one.name} and not by {other.name}"
        for one, other, names in ((arm, base, mine - theirs), (base, arm, theirs - mine))
        if names
    ]
    said = f"another reward: {', '.join(apart)}: their rewards may measure other things"
    return [f"{arm.name}: {said}, and a difference may be the reward's"]


def _components(member: Member) -> frozenset[str]:
    """Give the reward functions that a run logs by themselves."""
    table = member.diagnosis.tables.get("metrics")
    if table is None or not {"name", "name_raw", "split"} <= set(table.columns):
        return frozenset()
    names = table.filter(pl.col("name").is_null() & (pl.col("split") == "train"))["name_raw"].unique().to_list()
    found = {hit.group(1) for name in names if (hit := COMPONENT.match(str(name)))}
    return frozenset(found - NO_COMPONENTS)


def _other_length(arm: Arm, base: Arm) -> list[str]:
    mine, theirs = (_end(one) for one in (arm, base))
    if not mine or not theirs or min(mine, theirs) >= SHORTER * max(mine, theirs):
        return []
    ends = f"it ends at step {mine}, {base.name} at {theirs}"
    return [f"{arm.name}: {ends}: a schedule that ends with its run is elsewhere in its course at the same step"]


def _end(arm: Arm) -> int:
    """Give the last step of any run of an arm, 0 where none is known."""
    lasts = [member.diagnosis.run.last_step for member in arm.members]
    return max((last for last in lasts if last is not None), default=0)


def _listed(names: frozenset[str]) -> str:
    held = sorted(names)
    more = f" and {len(held) - NAMED} more" if len(held) > NAMED else ""
    return ", ".join(held[:NAMED]) + more
