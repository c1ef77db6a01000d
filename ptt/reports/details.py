"""What stands behind the tail, in words and tables: guards, who holds it, what to read, staleness."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import polars as pl

from ptt.diagnostics.model import Diagnosis
from ptt.reports.foreign import safe, shortened
from ptt.reports.names import BY, GUARDS, slice_name
from ptt.reports.names import sentence as in_words
from ptt.reports.numbers import bounds, count, number, percent, times
from ptt.reports.panels import DataTable, pair_of, table

SHOWN_SEQUENCES = 10
SHOWN_VALUES = 14
RAISED = 1.05  # lift
EACH = 4  # prompt groups are many, and would fill the table alone
FEW = 8  # sequences: of fewer, the lift is chance
LONGEST = 60  # letters of a name in a table
CLEAR = 1.5  # times the lift of its slice: below, a place says no more than the slice does
WORTH = 0.05  # of the tail: a smaller part is no answer
LOCATED = ("At token", "Observations before")
PLACES = ("distance", "turn", "tool name", "tool result")
DASH = "—"
TOP, UNKNOWN = "top sequences", "unknown"
SIDES = ("post_tool", "post_observation", "text_only")
DRIFT = ("policy/ref", "old/ref")


@dataclass(frozen=True, kw_only=True)
class Part:
    """One question behind the tail: a sentence that answers it and the table it comes from."""

    key: str
    title: str
    sentence: str
    tables: tuple[DataTable, ...]


def details(diagnosis: Diagnosis) -> tuple[Part, ...]:
    """Give the parts the run holds numbers for; none where there are no tails."""
    made = (_guards(diagnosis), _holders(diagnosis), _worst(diagnosis), _staleness(diagnosis))
    return tuple(part for part in made if part is not None)


def _guards(diagnosis: Diagnosis) -> Part | None:
    frame = table(diagnosis, "counterfactual")
    if frame is None:
        return None
    known = list(GUARDS)
    order = pl.col("guard").replace_strict(dict(zip(known, range(len(known)), strict=True)), default=len(known))
    frame = frame.sort(order, "slice", maintain_order=True)
    late = frame.filter(pl.col("window") == "late")
    names = [name for name in SIDES if name in late["slice"]]
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


def _holders(diagnosis: Diagnosis) -> Part | None:
    frame = table(diagnosis, "attribution")
    if frame is None or not frame["tail"].sum():
        return None
    of_slice = frame.filter(pl.col("by") == "slice").sort("tail", descending=True).to_dicts()
    tail = sum(row["tail"] for row in of_slice)
    told = [f"The late tail is {count(tail)} tokens with |r| of {number(frame['limit'][0])} nats or more."]
    told += [
        f"{_name(slice_name(row['value'])).capitalize()} tokens hold {percent(row['tail_share'])} of it and "
        f"{percent(row['token_share'])} of the tokens."
        for row in of_slice[:1]
    ]
    told += [
        f"The {_name(row['value'])} of sequences with most of it hold {percent(row['tail_share'])}."
        for row in frame.filter((pl.col("by") == TOP) & (pl.col("value") == "1 %")).to_dicts()
    ]
    told += _place(frame, of_slice)
    listed = frame.filter((pl.col("by") != TOP) & ~pl.col("rest") & (pl.col("n_sequences") >= FEW))
    lifted = listed.filter(pl.col("lift") > RAISED).sort("lift", "tail", descending=True, maintain_order=True)
    lifted = lifted.group_by("by", maintain_order=True).head(EACH).sort("lift", "tail", descending=True)
    told.append(
        f"Lift is share of the tail over share of the tokens; below, what lies above {RAISED} in at least "
        f"{FEW} sequences, at most {EACH} of a kind."
    )
    told += _reasons(diagnosis, "attribution")
    head = ("By", "Value", "Lift", "Of the tail", "Of the tokens", "Tail tokens", "Sequences")
    tables = (
        DataTable(title="Highest lift", head=head, rows=_holder_rows(lifted.head(SHOWN_VALUES))),
        DataTable(title="Everything by which the tail was split", head=head, rows=_holder_rows(frame)),
    )
    return Part(key="holders", title="Who holds the late tail", sentence=" ".join(told), tables=tables)


def _place(frame: pl.DataFrame, of_slice: list[dict[str, Any]]) -> list[str]:
    """Name the place in a sequence that stands out most from its slice."""
    usual = max((row["lift"] or 0.0 for row in of_slice), default=0.0)
    known = frame.filter(pl.col("by").is_in(PLACES) & ~pl.col("rest") & pl.col("value").is_not_null())
    known = known.filter((pl.col("tail_sequences") >= FEW) & (pl.col("tail_share") >= WORTH))
    clear = known.filter(pl.col("lift") >= CLEAR * usual).sort("lift", "tail", descending=True, maintain_order=True)
    return [
        f"By place, {BY[row['by']]} {_value(row['by'], row['value'])} tells most: "
        f"{percent(row['tail_share'])} of it and {percent(row['token_share'])} of the tokens "
        f"(lift {times(row['lift'])})."
        for row in clear.head(1).to_dicts()
    ]


def _reasons(diagnosis: Diagnosis, name: str) -> list[str]:
    frame = table(diagnosis, "details_notes")
    return [] if frame is None else [in_words(reason) for reason in frame.filter(pl.col("table") == name)["reason"]]


def _holder_rows(frame: pl.DataFrame) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (
            BY.get(row["by"]) or safe(row["by"]),
            "all others" if row["rest"] else _value(row["by"], row["value"]),
            times(row["lift"]),
            percent(row["tail_share"]),
            percent(row["token_share"]),
            count(row["tail"]),
            count(row["n_sequences"]),
        )
        for row in frame.to_dicts()
    )


def _value(by: str, value: str | None) -> str:
    if value is None:
        return "not recorded"
    if by in PLACES and value == "none":
        return "before any"
    return slice_name(value) if by == "slice" else _name(value)


def _name(text: str | None) -> str:
    return DASH if text is None else shortened(safe(text), LONGEST)


def _worst(diagnosis: Diagnosis) -> Part | None:
    frame = table(diagnosis, "top_sequences")
    if frame is None:
        return None
    rows = frame.head(SHOWN_SEQUENCES).to_dicts()
    first = rows[0]
    held = percent(float(sum(row["tail_share"] for row in rows)))
    where = f"row {count(first['row'])} of {_name(first['path'])}" if first["path"] is not None else "no file"
    noun = "sequences" if len(rows) > 1 else "sequence"
    sentence = (
        f"The {count(len(rows))} {noun} with most tail tokens hold {held} of the tail; the first is {where} "
        f"(step {count(first['step'])}, largest |r| {number(first['max_abs_r'])}). Rows and tokens count from 0."
    )
    head = ("File", "Row", "Step", "Sample", "Group", "Tail tokens", "Tokens", "Largest |r|", *LOCATED, "Reward")
    shown = tuple(
        (
            _name(row["path"]),
            count(row["row"]),
            count(row["step"]),
            *(_name(row[name]) for name in ("sample_id", "group_id")),
            *(count(row[name]) for name in ("tail", "tokens")),
            number(row["max_abs_r"]),
            DASH if row["max_at"] is None else count(row["max_at"]),
            DASH if row["max_turn"] is None else count(row["max_turn"]),
            DASH if row["reward"] is None else number(row["reward"]),
        )
        for row in rows
    )
    tables = [DataTable(title="Sequences with most tail tokens", head=head, rows=shown)]
    texts = tuple((_name(row["path"]), count(row["row"]), safe(row["text"])) for row in rows if row["text"] is not None)
    if texts:
        tables.append(DataTable(title="What was said before the largest |r|", head=("File", "Row", "Text"), rows=texts))
    sentence = " ".join([sentence, *_reasons(diagnosis, "top_sequences")])
    return Part(key="worst", title="Sequences to read first", sentence=sentence, tables=tuple(tables))


def _staleness(diagnosis: Diagnosis) -> Part | None:
    frame = table(diagnosis, "staleness")
    if frame is None:
        return None
    told = []
    for name, rows in frame.group_by("slice", maintain_order=True):
        known = rows.filter(pl.col("lag") != UNKNOWN).to_dicts()
        if not known or known[0]["slope"] is None:
            continue
        row, last = known[0], known[-1]
        low, high = (None if end is None else math.exp(end) for end in (row["slope_lo"], row["slope_hi"]))
        told.append(
            f"{slice_name(str(name[0])).capitalize()} p99 of |r| (pair {pair_of(diagnosis)}) is "
            f"{number(row['p99'], 2)} at lag {row['lag']} and {number(last['p99'], 2)} at lag {last['lag']}: "
            f"{times(math.exp(row['slope']))} for each doubling of 1 + lag "
            f"(95 % interval {bounds(low, high)})."
        )
    unknown = int(frame.filter(pl.col("lag") == UNKNOWN)["n"].sum()) / max(1, int(frame["n"].sum()))
    told.append(f"The version is unknown for {percent(unknown)} of the tokens.")
    told.append(
        "Lag counts versions behind the freshest sequence (step minus version is "
        f"{count(frame['offset'][0])} there); percentiles are known to a quarter. Lag and training time may "
        "go together: this proves no cause."
    )
    head = ("Slice", "Lag", "p95 of |r|", "p99 of |r|", "Of the slice", "Tokens", "Sequences")
    rows_shown = tuple(
        (
            slice_name(row["slice"]),
            safe(row["lag"]),
            number(row["p95"], 2),
            number(row["p99"], 2),
            percent(row["share"]),
            count(row["n"]),
            count(row["n_sequences"]),
        )
        for row in frame.to_dicts()
    )
    tables = (DataTable(title="Tails by lag", head=head, rows=rows_shown),)
    return Part(key="staleness", title="Tails and the age of rollouts", sentence=" ".join(told), tables=tables)
