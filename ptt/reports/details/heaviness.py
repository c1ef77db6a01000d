"""How heavy the tails are, in words and tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from ptt.diagnostics.model import Diagnosis
from ptt.reports.details.part import DASH, SLICES_SHOWN, Part
from ptt.reports.foreign import safe
from ptt.reports.names import slice_name
from ptt.reports.numbers import count, number, percent, times
from ptt.reports.panels import DataTable, pair_of, table
from ptt.reports.why import after_slice

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
            *_place(row),
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


def _place(row: Row) -> tuple[str, str, str]:
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
            *_place(row),
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
