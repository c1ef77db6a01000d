"""What guards on the weights would have done, in words and tables."""

from __future__ import annotations

from typing import Any

import polars as pl

from ptt.diagnostics.model import Diagnosis
from ptt.reports.details.part import DASH, SLICES_SHOWN, Part
from ptt.reports.foreign import safe
from ptt.reports.names import GUARDS, slice_name
from ptt.reports.numbers import count, number, percent
from ptt.reports.panels import DataTable, table

DRIFT = ("policy/ref", "old/ref")


def guards(diagnosis: Diagnosis) -> Part | None:
    """Say what the usual guards would have hit in the late third, and what they would have cost."""
    frame = table(diagnosis, "counterfactual")
    if frame is None:
        return None
    known = list(GUARDS)
    order = pl.col("guard").replace_strict(dict(zip(known, range(len(known)), strict=True)), default=len(known))
    frame = frame.sort(order, "slice", maintain_order=True)
    late = frame.filter(pl.col("window") == "late")
    names = [name for name in SLICES_SHOWN if name in late["slice"]]
    pair = safe(frame["pair"][0])
    told = [f"Replayed on the recorded ratios of {pair}, late third."]
    for name in names:
        rows = {row["guard"]: row for row in late.filter(pl.col("slice") == name).to_dicts()}
        if {"none", "tis-2"} <= rows.keys():
            before, after = rows["none"]["ess_fraction"], rows["tis-2"]["ess_fraction"]
            told.append(
                f"{GUARDS['tis-2']} would cut the weights of {percent(rows['tis-2']['hit'])} of the "
                f"{slice_name(name)} tokens and take ESS/n from {number(before, 2)} to {number(after, 2)}."
            )
    if pair in DRIFT:
        told.append(
            "Trainers guard policy/rollout or old/rollout, which this run does not hold: this is what a "
            f"guard on {pair} would do."
        )
    told.append(
        "Hit is the share of tokens whose weight changes; ESS/n counts masked tokens in n; bias is what the "
        "mean weight, cut at 10, loses."
    )
    cells = ("ESS/n", "E[w²]", "bias")
    head = ("Guard", *(text for name in names for text in (f"{slice_name(name).capitalize()}: hit", *cells)))
    rows_shown = tuple(
        (_guard_name(str(guard[0])), *(text for name in names for text in _effects(of_guard, name)))
        for guard, of_guard in late.group_by("guard", maintain_order=True)
    )
    everything = ("Window", "Guard", "Slice", "Tokens hit", *cells, "Mass removed", "Tokens")
    whole = tuple(
        (
            *(safe(row["window"]), _guard_name(row["guard"]), slice_name(row["slice"]), *_effect(row)),
            *(percent(row["mass_removed"]), count(row["n"])),
        )
        for row in frame.to_dicts()
    )
    tables = (
        DataTable(title="Guards, late third", head=head, rows=rows_shown),
        DataTable(title="Guards by window", head=everything, rows=whole),
    )
    return Part(key="guards", title="What guards would have done", sentence=" ".join(told), tables=tables)


def _effects(rows: pl.DataFrame, name: str) -> tuple[str, ...]:
    mine = rows.filter(pl.col("slice") == name).to_dicts()
    return _effect(mine[0]) if mine else (DASH,) * 4


def _effect(row: dict[str, Any]) -> tuple[str, ...]:
    bias = DASH if row["bias"] is None else number(row["bias"], 2)
    return percent(row["hit"]), number(row["ess_fraction"], 2), number(row["second_moment"]), bias


def _guard_name(name: str) -> str:
    return GUARDS.get(name) or safe(name)
