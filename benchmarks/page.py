"""Write docs/benchmarks.md from the results that `python -m benchmarks.suite` keeps in benchmarks/results.json."""

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

`make bench` measures most of this on your machine in ten minutes; `make bench BENCH=full` measures all of it. Each
measurement runs in its own process. Rounds alternate between everything that is compared, and figures are medians.
Seconds count the work alone (start-up has its own table), with files in the page cache. *MB* is the peak memory of the
process and of all that it started. CPU seconds add up all cores; other load on the machine distorts them less than
seconds.
"""
NAMES: Final = {
    "bare": "bare scan and sum (Polars)",
    "token_pass": "**token pass**",
    "diagnose": "**whole diagnosis**",
    "duckdb_approx": "DuckDB `approx_quantile`",
    "duckdb_exact": "DuckDB exact quantiles",
    "polars_exact": "Polars exact quantiles",
    "pandas_exact": "pandas exact quantiles",
    "bare_log": "bare read and sum (Polars)",
    "command": "`ptt diagnose`, report drawn",
    "bare_labelled": "bare scan and sum, labelled files",
    "duckdb_approx_labelled": "DuckDB `approx_quantile`, labelled files",
    "duckdb_exact_labelled": "DuckDB exact quantiles, labelled files",
    "polars_exact_labelled": "Polars exact quantiles, labelled files",
    "pandas_exact_labelled": "pandas exact quantiles, labelled files",
}
TOKENS: Final = """
## Tokens

The files are zstd Parquet, one per step, with `step`, `model_mask`, `policy_logp` and `ref_logp`. *Bare* reads these
columns and sums each. The *token pass* computes the sums and histograms of |r| by step and slice, each sequence's share
of them, and where large |r| lie after an observation. The *diagnosis* includes the pass, the resampling and the
verdict, but no figures; of more than 131,072 sequences both keep a share one by one, by ids and steps that a diagnosis
has read before its pass.

The other tools compute only four percentiles of |r| by step and slice. They read either the same files, and derive
text-only and post-tool tokens from the mask as ptt does, or *labelled* files made for them: one row per model token
with its slice beside it, which no recorder writes. Polars and pandas hold all tokens in memory for exact quantiles, so
they are measured at 20M only. *Error* is the largest relative error of a percentile over all steps and slices.
"""
GROWN: Final = """
## Each grown alone

A run of 50 steps of 64 sequences with one pair, of which one quantity grows at a time. Steps and sequences add tokens.
"""
METRICS: Final = """
## Metric logs

*Bare* reads a log with Polars and sums each metric (of a log with a value a row, by its name), in memory as large as it
likes. The diagnosis reads, keeps and judges it. The command also keeps the diagnosis and draws the report; its seconds
include starting Python.
"""
STEP: Final = """
## A run that grows

128 sequences per step. The store keeps the token tables, so the next look folds only the new steps.
"""
STEP_NOTE: Final = """
The *token pass* reads kept tables, folds new tokens and adds up all. The whole look also reads the sequences' single
values and gathers the evidence anew, whose windows and blocks divide all steps.
"""
TOKEN_PASS: Final = ", token pass"  # ends the names of rows of the pass within a look


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
    distinct = [one for number, one in enumerate(each) if one not in each[:number]]
    lines = [
        f"Measured on {one.pop('cores')} cores of {one.pop('cpu') or 'an unnamed CPU'}, {one.pop('memory', '?')} of "
        f"memory, {one.pop('system')}; " + ", ".join(f"{name} {value}" for name, value in one.items()) + "."
        for one in distinct
    ]
    loads = ", ".join(f"{name} {one['load']}" for name, one in machine.items() if "load" in one)
    sentences = [*lines, f"Load of the machine at the end of each section: {loads}."] if loads else lines
    return textwrap.fill(" ".join(sentences), 120, break_on_hyphens=False) + "\n"


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
    once = "Measured once.\n\n" if all(row["rounds"] == 1 for row in by_place.values()) else ""
    return f"### {data} tokens\n\n{once}{table(head, cells)}\n{_claims(by_place)}"


def _ratio(row: Row, base: Row | None, key: str) -> str:
    return "" if base is None else f"{row[key] / base[key]:.2f}"


def _claims(found: dict[tuple[str, int], Row]) -> str:
    """Say what more cores bring, and where the floor lies."""
    counts = sorted({count for _, count in found})
    lines = []
    for count in counts[1:]:
        both = [name for name in ("bare", "token_pass", "diagnose") if {(name, 1), (name, count)} <= found.keys()]
        gains = [f"{NAMES[name]} {found[name, 1]['seconds'] / found[name, count]['seconds']:.2f}x" for name in both]
        if gains:
            lines.append(f"Speed on {count} cores over one: {', '.join(gains)}.")
    approx, bare = (found.get((name, counts[-1])) if counts else None for name in ("duckdb_approx", "bare"))
    if approx is not None and bare is not None:
        lines.append(
            f"DuckDB's `approx_quantile` takes {approx['seconds'] / bare['seconds']:.1f} times as long as the bare "
            f"scan (CPU {approx['cpu'] / bare['cpu']:.1f} times). The bare scan is the floor for anything that decodes "
            "these files with Polars."
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
    done = {row["name"]: row for row in rows if row["rounds"]}
    cells = []
    for name, row in done.items():
        first = done.get("first" + (TOKEN_PASS if name.endswith(TOKEN_PASS) else ""))
        if first is not None:
            shares = (f"{100 * row[key] / first[key]:.0f}%" for key in ("seconds", "cpu"))
            cells.append([row["data"], name, _seconds(row["seconds"]), _seconds(row["cpu"]), *shares])
    written = table(["", "look", "s", "CPU s", "of the first", "of its CPU"], cells)
    return written + STEP_NOTE if any(name.endswith(TOKEN_PASS) for name in done) else written


def _metrics(rows: list[Row]) -> str:
    bare = {row["data"]: row for row in rows if row["name"] == "bare_log" and row["rounds"]}
    cells = [
        [row["data"] if row["name"] == "bare_log" else "", NAMES[row["name"]], _seconds(row["seconds"]),
         _seconds(row["cpu"]), *(_ratio(row, bare.get(row["data"]), key) for key in ("seconds", "cpu")),
         f"{row['peak_mb']:,}"]
        for row in rows
        if row["rounds"]
    ]  # fmt: skip
    return table(["log", "", "s", "CPU s", "x bare", "CPU", "MB"], cells)


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
    "metrics": (METRICS, _metrics),
    "start": ("\n## Start-up\n", partial(_plain, what="command")),
    "archives": (
        "\n## Many archived runs\n\n`ptt gate` over archives of the sample runs, cut at different steps.\n",
        partial(_plain, what="pass"),
    ),
}
