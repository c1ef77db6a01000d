"""Where the growth of the second moment came from, in words: more tool tokens, or heavier tails."""

from __future__ import annotations

from typing import Any

import polars as pl

from ptt.diagnostics.model import Diagnosis
from ptt.reports.foreign import safe
from ptt.reports.names import joined
from ptt.reports.numbers import number, percent
from ptt.reports.panels import pair_of, table

TABLE = "exposure"
PARTS = ("exposure", "text", "tool")
AGAINST = {"exposure": "the share of tool tokens", "text": "text-only tails", "tool": "post-tool tails"}
LEAST = 0.005  # of the growth: smaller parts are not told
HALF = 0.5  # of a sum, held by one token: the split then speaks of that token
NEEDED = ("total_early", "total_late", *PARTS)

Row = dict[str, Any]


def rows_of(diagnosis: Diagnosis) -> list[Row]:
    """Give the rows of the table that can be shown, the pair as it is named first."""
    frame = table(diagnosis, TABLE)
    if frame is None:
        return []
    usable = frame.filter(pl.all_horizontal(pl.col(name).is_finite() for name in NEEDED))
    return usable.to_dicts()


def answer(diagnosis: Diagnosis) -> str:
    """Say in a sentence or two where the growth came from; empty where it was not split."""
    rows = [row for row in rows_of(diagnosis) if safe(row["weights"]) == pair_of(diagnosis)]
    raw = next((row for row in rows if row["cap"] is None), None)
    cut = next((row for row in rows if row["cap"] is not None), None)
    if raw is None:
        return ""
    pair = safe(raw["weights"])
    cut_words = f" With weights cut at {number(cut['cap'])}, {_split_words(cut, '')}" if cut else ""
    if raw["dominated"]:
        return (
            f"As recorded, E[ρ²] (pair {pair}) is dominated by a single {_holder(raw)}, which holds "
            f"over half of a window's sum: that split speaks of it alone.{cut_words}"
        )
    doubt = too_heavy(diagnosis)
    if doubt:
        told = f"Where a change of E[ρ²] (pair {pair}) of uncut weights came from cannot be told: {doubt}."
        return f"{cut_words} {told}".strip()
    words = _split_words(raw, f"pair {pair}, ")
    return words[:1].upper() + words[1:] + cut_words


def _split_words(row: Row, of_what: str) -> str:
    what = f"E[ρ²] ({of_what}{number(row['total_early'])} early, {number(row['total_late'])} late)"
    change, low, high = row["change"], row["change_lo"], row["change_hi"]
    if not change or (low is not None and high is not None and low <= 0 <= high):
        return f"the change of {what} is within the noise of the run."
    word, side, kinds = ("growth", "heavier", "more") if change > 0 else ("fall", "lighter", "fewer")
    names = {
        "tool": f"{side} post-tool tails",
        "exposure": f"{kinds} tool tokens",
        "text": f"{side} text-only tails",
    }
    shares = {name: row[name] / change for name in names}
    ordered = sorted(names, key=lambda name: -shares[name])
    told = [f"{_rounded(shares[name])} {{}}from {names[name]}" for name in ordered if shares[name] >= LEAST]
    told = [text.format("comes " if index == 0 else "") for index, text in enumerate(told)]
    against = [f"{AGAINST[name]} took {_rounded(-shares[name])} back" for name in ordered if shares[name] <= -LEAST]
    return f"of the {word} of {what} {joined(told)}{'; ' if against else ''}{joined(against)}."


def _rounded(share: float) -> str:
    return percent(float(f"{share:.2g}"))


def _holder(row: Row) -> str:
    return "token" if max(row["top_token_early"], row["top_token_late"]) > HALF else "sequence"


def explained(diagnosis: Diagnosis, *, post: str) -> str:
    """Say in one sentence how much of the growth the tails after tools explain, or that it cannot be told.

    Weights as recorded are told first, cut ones where a single token, a heavy tail or chance rules those; `post` names
    the later slice.
    """
    rows = [row for row in rows_of(diagnosis) if safe(row["weights"]) == pair_of(diagnosis)]
    doubts: list[str] = []
    for row in sorted(rows, key=lambda row: row["cap"] is not None):
        doubt = _doubt(row) or (too_heavy(diagnosis) if row["cap"] is None else "")
        if not doubt:
            return _explained(row, post) + "".join(f"; uncut, {text}" for text in doubts) + "."
        doubts.append(doubt)
    if not doubts:
        return ""
    return f"Whether more tool tokens or heavier {post} tails made E[ρ²] grow cannot be told: {doubts[-1]}."


def _doubt(row: Row) -> str:
    """Say what forbids to split this growth; empty where nothing does."""
    low, high = row["change_lo"], row["change_hi"]
    if row["dominated"]:
        return f"a single {_holder(row)} holds over half of the sum"
    if low is None or high is None:
        return "the run has too few steps for an interval"
    if low <= 0 <= high:
        return "its change is within the noise of the run"
    if row["change"] < 0:
        return "it fell"
    if row["tool_share_lo"] <= 0 <= row["tool_share_hi"]:
        return "the interval of their part spans zero"
    return ""


def too_heavy(diagnosis: Diagnosis) -> str:
    """Say where squares of all tokens' weights have no mean to trust: their k-hat is twice that of the weights."""
    frame = table(diagnosis, "heaviness")
    if frame is None:
        return ""
    rows = frame.filter(
        (pl.col("slice") == "all") & (pl.col("level") == "token") & (pl.col("weights") == pair_of(diagnosis))
    )
    if rows["k_hat"].null_count():
        return "how heavy the tail is could not be judged"
    heaviest = rows.filter(2 * pl.col("k_hat") > pl.col("threshold"))["k_hat"].max()
    return f"the tail is too heavy to say (k-hat {number(float(heaviest), 2)})" if heaviest is not None else ""  # type: ignore[arg-type]


def _explained(row: Row, post: str) -> str:
    cut = f" (weights cut at {number(row['cap'])})" if row["cap"] is not None else ""
    low, high = (number(100 * row[f"tool_share_{end}"], 2) for end in ("lo", "hi"))
    return (
        f"Of the growth in E[ρ²]{cut}, heavier {post} tails explain {_rounded(row['tool_share'])} (95 % interval "
        f"{low} to {high}), more tool tokens {_rounded(row['exposure_share'])}"
    )
