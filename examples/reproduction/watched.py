"""Draw one run twice, as it went to its end and as a watch ended it: `watched FULL WATCHED OUT.svg`.

Both are folders that `train` wrote of one arm and seed. The p95 of |log pi/pi_ref| over model tokens after tool output
is read straight from the recorded columns.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import matplotlib as mpl
import polars as pl
from matplotlib.figure import Figure

from ptt.diagnostics.config import Settings
from ptt.watching.listing import Folder
from ptt.watching.watcher import Watcher

LIMIT: Final = 4.0  # nats: what the watch has to come before


def after_tools(folder: Path) -> pl.DataFrame:
    """Return step and p95 of |r|, nats, of the model tokens behind a run of others."""
    rows = pl.scan_parquet(folder / "tokens" / "*.parquet").with_row_index("row")
    lists = ["model_mask", "policy_logp", "ref_logp"]
    tokens = rows.select("row", "step", *lists).explode(lists)
    tokens = tokens.with_columns(after=(~pl.col("model_mask")).cum_sum().over("row") > 0)
    chosen = tokens.filter(pl.col("model_mask") & pl.col("after"))
    size = (pl.col("policy_logp") - pl.col("ref_logp")).abs()
    return chosen.group_by("step").agg(size.quantile(0.95).alias("p95")).sort("step").collect()


def main(full: Path, watched: Path, out: Path) -> None:
    """Write the figure."""
    watcher = Watcher(Folder(watched / "tokens"), Settings())
    told = [notice for notice in watcher.look(closed=True) if notice.kind in ("warning", "stop")]
    figure = Figure(figsize=(7.2, 3.0), layout="constrained")
    axes = figure.subplots()
    for folder, color, label in (
        (full, "0.65", "the same run, not watched"),
        (watched, "#1f5fa8", "watched, with stop"),
    ):
        curve = after_tools(folder)
        axes.plot(curve["step"], curve["p95"], linewidth=1.6, color=color, label=label)
    axes.axhline(LIMIT, color="0.4", linewidth=0.8, linestyle=":")
    for notice in told:
        if notice.rule == "tool-tail-growth" and notice.step is not None:
            axes.axvline(notice.step, color="#b3361e" if notice.kind == "stop" else "#d98a00", linewidth=1)
            side, gap = ("left", 0.8) if notice.kind == "stop" else ("right", -0.8)
            axes.text(notice.step + gap, LIMIT + 0.15, f"{notice.kind}, step {notice.step}", ha=side, fontsize=8)
    axes.set(xlabel="step", ylabel="p95 of |r| after tools, nats")
    axes.legend(frameon=False, loc="lower right", fontsize=8)
    with mpl.rc_context({"svg.hashsalt": "watch", "svg.fonttype": "path"}):
        figure.savefig(out, metadata={"Date": None})


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
