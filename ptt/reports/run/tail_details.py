"""What stands behind the tail, in words and tables: how heavy it is, guards, who holds it, what to read, staleness."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl

from ptt.diagnostics.model import Diagnosis
from ptt.reports.figures.panels import DataTable
from ptt.reports.text.names import BY, GUARDS, sentence, slice_name
from ptt.reports.text.numbers import bounds, count, number, percent, times
from ptt.reports.text.sanitize import safe, shortened
from ptt.reports.text.tables import pair_of, table
from ptt.reports.text.why import after_slice

LONGEST = 60  # letters of a name in a table
DASH = "—"
SLICES_SHOWN = ("post_tool", "post_observation", "text_only")


@dataclass(frozen=True, kw_only=True)
class Part:
    """One question behind the tail: a sentence that answers it and the table it comes from."""

    key: str
    title: str
    sentence: str
    tables: tuple[DataTable, ...]


def foreign_name(text: str | None) -> str:
    """Show a name that the run gave, cut to LONGEST letters."""
    return DASH if text is None else shortened(safe(text), LONGEST)


def notes_on(diagnosis: Diagnosis, name: str) -> list[str]:
    """Say what table `name` leaves out, and why."""
    frame = table(diagnosis, "details_notes")
    return [] if frame is None else [sentence(reason) for reason in frame.filter(pl.col("table") == name)["reason"]]


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


LEVELS = {"token": "token", "sequence": "sequence", "sequence mean": "sequence, length-normalised"}
LIMITS = (2, 5, 10, 100)
PERCENTILES = {"p95": "p95", "p99": "p99", "p999": "p99.9"}

Row = dict[str, Any]


def heaviness(diagnosis: Diagnosis) -> Part | None:
    """Say whether means of the weights can be trusted, and how far out the tokens lie."""
    frame = table(diagnosis, "heaviness")
    if frame is None:
        return None
    pair = pair_of(diagnosis)
    late = frame.filter(pl.col("window") == "late")
    told = [_k_hat(row, pair) for row in _of_tokens(late, pair)]
    told += [_k_hat(row, pair) for row in _rows(late, "all", "sequence", pair)]
    told += _spread(diagnosis)
    told.append(
        "k-hat is the shape of a Pareto tail fitted to the largest weights: above its threshold a mean of weights, "
        "and with it ESS, E[w²] and a KL estimate made of them, can be ruled by what the sample happens not to hold."
    )
    tables = (_summary(late), *_further(diagnosis), _everything(frame))
    return Part(key="heaviness", title="How heavy the tails are", sentence=" ".join(told), tables=tables)


def _of_tokens(late: pl.DataFrame, pair: str) -> list[Row]:
    return [row for name in SLICES_SHOWN for row in _rows(late, name, "token", pair)]


def _rows(late: pl.DataFrame, name: str, level: str, pair: str) -> list[Row]:
    wanted = (pl.col("slice") == name) & (pl.col("level") == level) & (pl.col("weights") == pair)
    return late.filter(wanted).to_dicts()


def _k_hat(row: Row, pair: str) -> str:
    of = "Late sequence weights" if row["level"] != "token" else f"Late {slice_name(row['slice'])} token weights"
    if row["k_hat"] is None:
        return f"{of} ({pair}): k-hat not judged, {safe(row['reason'])}."
    value, limit = number(row["k_hat"], 2), number(row["threshold"], 2)
    if row["k_hat"] > row["threshold"]:
        return f"{of} ({pair}): k-hat {value}, above the {limit} beyond which means of weights cannot be trusted."
    return f"{of} ({pair}): k-hat {value}, not above the {limit} up to which means of weights can be trusted."


def _spread(diagnosis: Diagnosis) -> list[str]:
    """Tell how much farther the later slice reaches, where both are known."""
    frame = table(diagnosis, "tail_ratios")
    if frame is None:
        return []
    rows = frame.filter((pl.col("window") == "late") & (pl.col("percentile") == "p99")).to_dicts()
    name = slice_name(after_slice(diagnosis))
    return [f"Late {name} p99 of |r| is {_with_interval(row, 'ratio', times)} that of text-only." for row in rows]


def _summary(late: pl.DataFrame) -> DataTable:
    head = ("Slice", "Level", "Weights", "k-hat", "Threshold", "Means", "E[w²]", "ESS/n", "Weights counted")
    rows = tuple(
        (
            *_pareto_place(row),
            DASH if row["k_hat"] is None else number(row["k_hat"], 2),
            DASH if row["threshold"] is None else number(row["threshold"], 2),
            _answer(row),
            _moment(row["second_moment"]),
            number(row["ess_fraction"], 2),
            count(row["n"]),
        )
        for row in late.to_dicts()
    )
    return DataTable(title="Pareto k-hat, late third", head=head, rows=rows)


def _pareto_place(row: Row) -> tuple[str, str, str]:
    return slice_name(row["slice"]), LEVELS.get(row["level"]) or safe(row["level"]), safe(row["weights"])


def _answer(row: Row) -> str:
    if row["k_hat"] is None:
        return f"not judged: {safe(row['reason'])}"
    return "not to be trusted" if row["k_hat"] > row["threshold"] else "can be trusted"


def _moment(value: float | None) -> str:
    return "beyond e⁶⁰⁰" if value is None else number(value)


def _everything(frame: pl.DataFrame) -> DataTable:
    names = ("second_moment", "chi2", "chi2_normalised")
    head = ("Window", "Slice", "Level", "Weights", "k-hat", "Threshold", "E[w²]", "E[w²] − 1", "E[w²]/E[w]² − 1")
    rows = tuple(
        (
            safe(row["window"]),
            *_pareto_place(row),
            *(DASH if row[name] is None else number(row[name], 2) for name in ("k_hat", "threshold")),
            *(_moment(row[name]) for name in names),
            number(row["ess_fraction"], 2),
            count(row["n"]),
        )
        for row in frame.to_dicts()
    )
    return DataTable(title="Heaviness by window", head=(*head, "ESS/n", "Weights counted"), rows=rows)


def _further(diagnosis: Diagnosis) -> tuple[DataTable, ...]:
    """Give the tables of single tokens: shares beyond ratios, and slice against slice."""
    tables = []
    far, ratios = table(diagnosis, "extremes"), table(diagnosis, "tail_ratios")
    if far is not None:
        head = ("Window", "Slice", "p99.9 of |r|", *(f"Beyond ×{limit}" for limit in LIMITS), "Tokens")
        rows = tuple(
            (
                *(safe(row["window"]), slice_name(row["slice"]), _with_interval(row, "p999", number)),
                *(_with_interval(row, f"above_{limit}", percent) for limit in LIMITS),
                count(row["n"]),
            )
            for row in far.to_dicts()
        )
        tables.append(
            DataTable(title="Tokens whose ratio, either way round, lies beyond a factor", head=head, rows=rows)
        )
    if ratios is not None:
        name = slice_name(after_slice(diagnosis)).capitalize()
        head = ("Window", "Percentile of |r|", "Text-only", name, f"{name} over text-only")
        rows = tuple(
            (
                *(safe(row["window"]), PERCENTILES.get(row["percentile"]) or safe(row["percentile"])),
                *(number(row["text"]), number(row["post"]), _with_interval(row, "ratio", times)),
            )
            for row in ratios.to_dicts()
        )
        tables.append(DataTable(title=f"{name} percentiles over text-only", head=head, rows=rows))
    return tuple(tables)


def _with_interval(row: Row, name: str, shown: Callable[[float | None], str]) -> str:
    low, high = row[f"{name}_lo"], row[f"{name}_hi"]
    if low is None or high is None:
        return f"{shown(row[name])} (no interval)"
    return f"{shown(row[name])} ({shown(low)} to {shown(high)})"


SHOWN_VALUES = 14
RAISED = 1.05  # lift
EACH = 4  # prompt groups are many, and would fill the table alone
FEW = 8  # sequences: of fewer, the lift is chance
CLEAR = 1.5  # times the lift of its slice: below, a place says no more than the slice does
WORTH = 0.05  # of the tail: a smaller part is no answer
PLACES = ("distance", "turn", "tool name", "tool result")
TOP = "top sequences"


def holders(diagnosis: Diagnosis) -> Part | None:
    """Say whose the late tail is."""
    frame = table(diagnosis, "attribution")
    if frame is None or not frame["tail"].sum():
        return None
    of_slice = frame.filter(pl.col("by") == "slice").sort("tail", descending=True).to_dicts()
    tail = sum(row["tail"] for row in of_slice)
    told = [f"The late tail is {count(tail)} tokens with |r| of {number(frame['limit'][0])} nats or more."]
    told += [
        f"{foreign_name(slice_name(row['value'])).capitalize()} tokens hold {percent(row['tail_share'])} of it and "
        f"{percent(row['token_share'])} of the tokens."
        for row in of_slice[:1]
    ]
    told += [
        f"The {foreign_name(row['value'])} of sequences with most of it hold {percent(row['tail_share'])}."
        for row in frame.filter((pl.col("by") == TOP) & (pl.col("value") == "1 %")).to_dicts()
    ]
    told += _holder_place(frame, of_slice)
    listed = frame.filter((pl.col("by") != TOP) & ~pl.col("rest") & (pl.col("n_sequences") >= FEW))
    lifted = listed.filter(pl.col("lift") > RAISED).sort("lift", "tail", descending=True, maintain_order=True)
    lifted = lifted.group_by("by", maintain_order=True).head(EACH).sort("lift", "tail", descending=True)
    told.append(
        f"Lift is share of the tail over share of the tokens; below, what lies above {RAISED} in at least "
        f"{FEW} sequences, at most {EACH} of a kind."
    )
    told += notes_on(diagnosis, "attribution")
    head = ("By", "Value", "Lift", "Of the tail", "Of the tokens", "Tail tokens", "Sequences")
    tables = (
        DataTable(title="Highest lift", head=head, rows=_holder_rows(lifted.head(SHOWN_VALUES))),
        DataTable(title="Everything by which the tail was split", head=head, rows=_holder_rows(frame)),
    )
    return Part(key="holders", title="Who holds the late tail", sentence=" ".join(told), tables=tables)


def _holder_place(frame: pl.DataFrame, of_slice: list[dict[str, Any]]) -> list[str]:
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
    return slice_name(value) if by == "slice" else foreign_name(value)


UNKNOWN = "unknown"


def staleness(diagnosis: Diagnosis) -> Part | None:
    """Say whether tails are longer where rollouts are older."""
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


SHOWN_SEQUENCES = 10
LOCATED = ("At token", "Observations before")


def worst(diagnosis: Diagnosis) -> Part | None:
    """Name the sequences with most tail tokens, by file and row."""
    frame = table(diagnosis, "top_sequences")
    if frame is None:
        return None
    rows = frame.head(SHOWN_SEQUENCES).to_dicts()
    first = rows[0]
    held = percent(float(sum(row["tail_share"] for row in rows)))
    where = f"row {count(first['row'])} of {foreign_name(first['path'])}" if first["path"] is not None else "no file"
    noun = "sequences" if len(rows) > 1 else "sequence"
    sentence = (
        f"The {count(len(rows))} {noun} with most tail tokens hold {held} of the tail; the first is {where} "
        f"(step {count(first['step'])}, largest |r| {number(first['max_abs_r'])}). Rows and tokens count from 0."
    )
    head = ("File", "Row", "Step", "Sample", "Group", "Tail tokens", "Tokens", "Largest |r|", *LOCATED, "Reward")
    shown = tuple(
        (
            foreign_name(row["path"]),
            count(row["row"]),
            count(row["step"]),
            *(foreign_name(row[name]) for name in ("sample_id", "group_id")),
            *(count(row[name]) for name in ("tail", "tokens")),
            number(row["max_abs_r"]),
            *(DASH if row[name] is None else count(row[name]) for name in ("max_at", "max_turn")),
            DASH if row["reward"] is None else number(row["reward"]),
        )
        for row in rows
    )
    tables = [DataTable(title="Sequences with most tail tokens", head=head, rows=shown)]
    texts = tuple(
        (foreign_name(row["path"]), count(row["row"]), safe(row["text"])) for row in rows if row["text"] is not None
    )
    if texts:
        title = "What was said at the largest |r|"
        tables.append(DataTable(title=title, head=("File", "Row", "Text"), rows=texts))
    sentence = " ".join([sentence, *notes_on(diagnosis, "top_sequences")])
    return Part(key="worst", title="Sequences to read first", sentence=sentence, tables=tuple(tables))


PARTS = (heaviness, guards, holders, worst, staleness)


def details(diagnosis: Diagnosis) -> tuple[Part, ...]:
    """Give the parts the run holds numbers for; none where there are no tails."""
    made = (part(diagnosis) for part in PARTS)
    return tuple(part for part in made if part is not None)
