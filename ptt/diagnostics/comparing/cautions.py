"""What keeps a difference of two arms from being a setting's merit, as far as their late figures tell."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from ptt.diagnostics.comparing.phrases import nats, pair
from ptt.diagnostics.comparing.reading import late_mean, late_words, tail_of
from ptt.diagnostics.comparing.values import Arm


def cautions_of(arm: Arm, base: Arm, tables: Mapping[str, pl.DataFrame], name: str | None) -> list[str]:
    """Say where an arm has it easier, so that smaller tails are not all its setting's merit."""
    words = late_words(tables, arm)
    said = _high_start(arm, base, tables, name) if name else []
    if name and tail_of(tables, arm, base, name, "p95").words == "lower":
        if words.get("reward/mean") == "higher":
            gradient = ", with a smaller gradient norm" if words.get("grad_norm") == "lower" else ""
            said.append(
                f"{arm.name}: its reward is higher ({means(tables, arm, base, 'reward/mean')}){gradient}: an easier "
                "task drifts less by itself, so part of the difference may be the task's"
            )
        elif words.get("reward/mean") == "lower":
            lower = f"its reward is lower ({means(tables, arm, base, 'reward/mean')})"
            said.append(f"{arm.name}: {lower}: it may drift less because it learnt less")
        if words.get("tools/call_frequency") == "lower":
            said.append(f"{arm.name}: it uses tools less ({means(tables, arm, base, 'tools/call_frequency')})")
    mine, theirs = ({member.source for member in one.members if member.source} for one in (arm, base))
    if mine & theirs:
        said.append(f"{arm.name}: holds the same files as {base.name}; there is nothing to compare")
    frameworks = {member.diagnosis.run.framework for one in (arm, base) for member in one.members}
    if len(frameworks - {None}) > 1:
        said.append(f"{arm.name}: logged by another framework than {base.name}: metrics of one name may be measured "
                    "in other ways")  # fmt: skip
    return said


def _high_start(arm: Arm, base: Arm, tables: Mapping[str, pl.DataFrame], name: str) -> list[str]:
    """Say where an arm grew by less because it started high: that is no suppression."""
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
