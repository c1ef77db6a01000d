"""Writes docs/benchmarks.md from the results that `python -m benchmarks.suite` keeps in benchmarks/results.json."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

Row = dict[str, Any]

RESULTS: Final = Path(__file__).parent / "results.json"
PAGE: Final = Path(__file__).parents[1] / "docs" / "benchmarks.md"
HEAD: Final = """<!-- made from benchmarks/results.json by benchmarks/page.py -->

# What it costs

`make bench` measures the same on your machine in some minutes; `make bench BENCH=full` measures all of it. Each
measurement is a process of its own; rounds go in turn over all that is compared; figures are medians. Seconds are of
the work alone (start-up has a table of its own), files are in the page cache, *MB* is the peak of the process and of
all that it started. CPU seconds count all cores; other work on the machine changes them less than it does seconds.
"""
NAMES: Final = {
    "bare": "bare scan and sum (Polars)",
    "token_pass": "**token pass**",
    "diagnose": "**whole diagnosis**",
    "duckdb_approx": "DuckDB `approx_quantile`",
    "duckdb_exact": "DuckDB exact quantiles",
    "polars_exact": "Polars exact quantiles",
    "pandas_exact": "pandas exact quantiles",
    "bare_labelled": "bare scan and sum, labelled files",
    "duckdb_approx_labelled": "DuckDB `approx_quantile`, labelled files",
    "duckdb_exact_labelled": "DuckDB exact quantiles, labelled files",
    "polars_exact_labelled": "Polars exact quantiles, labelled files",
    "pandas_exact_labelled": "pandas exact quantiles, labelled files",
}
TOKENS: Final = """
## Tokens

Columns `step`, `model_mask`, `policy_logp`, `ref_logp`, zstd Parquet, a file a step. *Bare* reads them and sums each
column. The *token pass* gives ptt the sums and histograms of |r| by step and slice, what single sequences add to them,
and where after an observation large |r| stand; the *diagnosis* judges from that, with resampling, without drawing. The
other tools compute four percentiles of |r| by step and slice, and nothing else. They do so from the same files,
finding text-only and post-tool tokens from the mask as ptt does; and from *labelled* files made for them (one row a
token, lists unrolled, tokens of observations left out, the slice written beside each token), a favour that no recorder
does them. Exact quantiles of Polars and pandas hold all tokens in memory, so they are measured at 20M alone. *Error* is
the greatest one of all steps and slices against exact percentiles, relative.
"""
GROWN: Final = """
## Each grown alone

50 steps of 64 sequences, one pair; then more of one of them. Tokens grow with steps and sequences.
"""
STEP: Final = """
## A run that grows

128 sequences a step. Tables of the tokens are kept in the store, so the next look folds new steps alone.
"""


def render(kept: Row) -> str:
    """Return the page."""
    rows = kept["rows"]
    parts = [HEAD, _machines(kept.get("machine", {}))]
    for name, (introduction, write) in SECTIONS.items():
        if found := [row for row in rows if row["section"] == name]:
            parts += [introduction, write(found)]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def _machines(machine: dict[str, dict[str, str]]) -> str:
    """Name the machine, and the load that each section met."""
    each = [{key: value for key, value in one.items() if key != "load"} for one in machine.values()]
    alike = [one for number, one in enumerate(each) if one not in each[:number]]
    lines = [
        f"Measured on {one.pop('cores')} cores of {one.pop('cpu') or 'an unnamed CPU'}, {one.pop('memory', '?')} of "
        f"memory, {one.pop('system')}; " + ", ".join(f"{name} {value}" for name, value in one.items()) + "."
        for one in alike
    ]
    loads = ", ".join(f"{name} {one['load']}" for name, one in machine.items() if "load" in one)
    told = [*lines, f"Load of the machine at the end of each section: {loads}."] if loads else lines
    return textwrap.fill(" ".join(told), 120, break_on_hyphens=False) + "\n"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table: the first column to the left, the others to the right."""
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def _seconds(value: float) -> str:
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def _all_tokens(rows: list[Row]) -> str:
    by_size = {
        data: [row for row in rows if row["data"] == data] for data in dict.fromkeys(row["data"] for row in rows)
    }
    return "\n".join(_tokens(data, found) for data, found in by_size.items())


def _tokens(data: str, rows: list[Row]) -> str:
    by_place = {(row["name"], row["cores"]): row for row in rows if row["rounds"]}
    cells = []
    for row in rows:
        start = [NAMES[row["name"]], str(row["cores"])]
        if not row["rounds"]:
            cells.append([*start, "not done", *[""] * 7])
            continue
        ratios = [_ratio(row, by_place.get((name, row["cores"])), key) for name in ("bare", "token_pass") for key in
                  ("seconds", "cpu")]  # fmt: skip
        error = row.get("error")
        off = " / ".join(f"{100 * error[name]:.2g}%" for name in ("p95", "p99", "p999")) if error else ""
        cells.append([*start, _seconds(row["seconds"]), _seconds(row["cpu"]), *ratios, f"{row['peak_mb']:,}", off])
    head = ["", "cores", "s", "CPU s", "x bare", "CPU", "x pass", "CPU", "MB", "error p95 / p99 / p99.9"]
    return f"### {data} tokens\n\n{table(head, cells)}\n{_claims(by_place)}"


def _ratio(row: Row, base: Row | None, key: str) -> str:
    return "" if base is None else f"{row[key] / base[key]:.2f}"


def _claims(found: dict[tuple[str, int], Row]) -> str:
    """Say what a second core brings, and how much there is to win at most."""
    counts = sorted({count for _, count in found})
    lines = []
    for count in counts[1:]:
        both = [name for name in ("bare", "token_pass", "diagnose") if {(name, 1), (name, count)} <= found.keys()]
        gains = [
            f"{NAMES[name]} {found[name, 1]['seconds'] / found[name, count]['seconds']:.2f} times" for name in both
        ]
        if gains:
            lines.append(f"{count} cores are faster than one: {', '.join(gains)}.")
    approx, bare = (found.get((name, counts[-1])) if counts else None for name in ("duckdb_approx", "bare"))
    if approx is not None and bare is not None:
        lines.append(
            f"DuckDB's `approx_quantile` takes {approx['seconds'] / bare['seconds']:.1f} times the bare scan (CPU "
            f"{approx['cpu'] / bare['cpu']:.1f}): what decodes these files with Polars cannot be faster than that."
        )
    return "\n".join(textwrap.fill(line, 120, break_on_hyphens=False) + "\n" for line in lines)


def _grown(rows: list[Row]) -> str:
    cells = []
    for data in dict.fromkeys(row["data"] for row in rows):
        by_name = {row["name"]: row for row in rows if row["data"] == data and row["rounds"]}
        if {"bare", "token_pass", "diagnose"} <= by_name.keys():
            bare, own, whole = (by_name[name] for name in ("bare", "token_pass", "diagnose"))
            cells.append([data, *(_seconds(row[key]) for key in ("seconds", "cpu") for row in (bare, own, whole)),
                          f"{own['peak_mb']:,}", f"{whole['peak_mb']:,}"])  # fmt: skip
    head = ["", "bare s", "pass s", "diagnosis s", "bare CPU", "pass CPU", "diagnosis CPU", "pass MB", "diagnosis MB"]
    return table(head, cells)


def _step(rows: list[Row]) -> str:
    first = next((row for row in rows if row["name"] == "first" and row["rounds"]), None)
    cells = [
        [row["data"], row["name"], _seconds(row["seconds"]), _seconds(row["cpu"]),
         f"{100 * row['seconds'] / first['seconds']:.0f}%", f"{100 * row['cpu'] / first['cpu']:.0f}%"]
        for row in rows
        if row["rounds"] and first
    ]  # fmt: skip
    return table(["", "look", "s", "CPU s", "of the first", "of its CPU"], cells)


def _lines(rows: list[Row]) -> str:
    return "".join(f"{row['data']}:\n\n```\n" + "\n".join(row["lines"]) + "\n```\n" for row in rows)


def _plain(rows: list[Row], what: str) -> str:
    cells = [
        [
            f"{row['data']}, {row['name']}".strip(", "),
            _seconds(row["seconds"]),
            _seconds(row["cpu"]),
            f"{row['peak_mb']:,}",
        ]
        for row in rows
        if row["rounds"]
    ]
    return table([what, "s", "CPU s", "MB"], cells)


SECTIONS: Final[dict[str, tuple[str, Callable[[list[Row]], str]]]] = {
    "tokens": (TOKENS, _all_tokens),
    "grown": (GROWN, _grown),
    "step": (STEP, _step),
    "metrics": ("\n## Metric logs\n", _lines),
    "start": ("\n## Start-up\n", partial(_plain, what="command")),
    "archives": (
        "\n## Many archived runs\n\n`ptt gate` over archives of the sample runs, cut at other steps.\n",
        partial(_plain, what="pass"),
    ),
}
