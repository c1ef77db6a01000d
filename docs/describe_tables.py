"""Describe the tables that Python hands out: their columns by the code, what they mean by table_columns.toml."""

from __future__ import annotations

import re
import sys
import tempfile
import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ptt import api
from ptt.diagnostics import schema
from ptt.diagnostics.compare import confounders, divergence_onset, metric_differences, tails
from ptt.diagnostics.evidence import gradient_ledger, guard_prices, support
from ptt.diagnostics.evidence.series import SERIES
from ptt.diagnostics.statistics import gradient_shares
from ptt.diagnostics.traces import cost, partings, token_tail
from ptt.diagnostics.verdict import run_rules

HERE = Path(__file__).parent
MEANINGS = HERE / "table_columns.toml"
STATISTICS = HERE / "statistics.md"
LINE = re.compile(r"(?:\[(?P<unit>[^\]]+)\] )?(?P<meaning>.+)")

PAGE = """# Tables

Python hands out the numbers behind a report as Polars frames, by name:

```python
import ptt

diagnosis = ptt.diagnose("sample_logs/tool_tail_growth")
print(diagnosis.tables["step_stats"].head())
```

Words that recur:

- **r** is the log-ratio of a token: the difference of its two logprobs in a [pair](statistics.md), in nats. *abs r* is
  its size, rho = exp(r) the importance weight. The *main pair* is the one that the verdict is about.
- **slice**: `text_only`, tokens before any tool output; `post_tool`, tokens after some, called `post_observation` where
  nothing tells that the observations come from tools ([slices](statistics.md#slices)).
- **window**: the `early`, `mid` or `late` third of the recorded steps.
- **share**: a number from 0 to 1. **factor**: 1 is no difference.
- **lo**, **hi**: the ends of an interval: 95%, by redrawing whole prompt groups or sequences
  ([intervals](statistics.md#intervals)), unless the table says otherwise.
- **null**: not known or not recorded; never 0. An empty table keeps its columns. A table that is *absent* is no key of
  `tables`.

Where no unit is given a column has none, or the one that was logged. Texts and names are [scrubbed](scrubbing.md).
"""
DOORS = {
    "diagnosis": (
        "Tables of a diagnosis",
        "`ptt.diagnose(RUN).tables`. A diagnosis that is read from a findings.json has none.",
    ),
    "comparison": (
        "Tables of a comparison",
        "`ptt.compare([RUN, RUN]).tables`. All are there, whatever could be compared ([comparing runs](compare.md)).",
    ),
    "traces": ("Tables of agent traces", "`ptt.traces(PATH).tables` ([agent traces](traces.md))."),
    "store": (
        "Tables of the store",
        "What the parsers read, before anything is judged: `NAME.parquet` or `NAME/part-*.parquet` in the folder that\n"
        f"`ptt.ingest(RUN, out=FOLDER)` returns. Schema version {schema.VERSION}.",
    ),
}
Types = Mapping[str, Mapping[str, Mapping[str, object]]]
"""Of each door its tables, and of each of these the columns with their types."""


def tables() -> str:
    """Every table that Python hands out: what a row is, and type, unit and meaning of each column."""
    told, types = tomllib.loads(MEANINGS.read_text(encoding="utf-8")), column_types()
    if wrong := sorted({*_mismatches(told, types), *_unknown_headings(told)}):
        raise SystemExit("\n".join(f"docs/{MEANINGS.name}: {one}" for one in wrong))
    parts = [PAGE]
    for door, (title, about) in DOORS.items():
        parts.append(f"## {title}\n\n{about}\n")
        parts += [_section(door, name, table, types[door][name]) for name, table in told[door].items()]
    return "\n".join(parts)


def column_types() -> Types:
    """Return all columns by the schemas of the code, or where it has none by judging samples of a few rows."""
    sys.path.insert(0, str(HERE.parent / "tests"))
    from parser_samples import make_samples

    with tempfile.TemporaryDirectory() as folder:
        samples = make_samples(Path(folder))
        run = api.diagnose(samples["tokens/step_000001.parquet"])
        episodes = api.traces(samples["tau/tool-calling-m-0.0_range_0-2.json"])
    frames = {**run.tables, "findings_frame": run.findings_frame}
    return {
        "diagnosis": {name: frame.schema for name, frame in frames.items()}
        | {run_rules.CURVES: run_rules.SCHEMA, "other_series": SERIES, support.TABLE: support.COURSE}
        | {
            "ledger": gradient_shares.SHARES,
            "ledger_steps": gradient_ledger.STEPS,
            "ledger_guards": guard_prices.PRICES,
        },
        "comparison": {
            "curves": tails.CURVES,
            "windows": tails.WINDOW,
            "differences": tails.DIFFERENCES,
            "growth": tails.GROWTH,
            "ecdf": tails.ECDF,
            "ess": tails.ESS,
            "aggregates": metric_differences.AGGREGATES,
            "aggregate_differences": metric_differences.DIFFERENCES,
            "settings": confounders.SETTINGS,
            "divergence": divergence_onset.DIVERGENCE,
        },
        "traces": {name: frame.schema for name, frame in episodes.tables.items()}
        | {"cost": cost.SCHEMA, "partings": partings.SCHEMA, token_tail.TABLE: token_tail.SCHEMA},
        "store": schema.TABLES,
    }


def _mismatches(told: Mapping[str, Any], types: Types) -> Iterator[str]:
    """Yield tables and columns without a line, and lines without a table or column."""
    for door in DOORS:
        for name in told[door].keys() ^ types[door].keys():
            yield f"{door}.{name}: " + ("no such table" if name in told[door] else "this table is missing")
        for name in told[door].keys() & types[door].keys():
            table = told[door][name]
            lines = {column for names in table.get("columns", {}) for column in names.split(", ")}
            lines |= schema.TABLES[table["like"]].keys() if "like" in table else set()
            for column in lines ^ types[door][name].keys():
                yield f"{door}.{name}.{column}: " + ("no such column" if column in lines else "this column is missing")


def _unknown_headings(told: Mapping[str, Any]) -> Iterator[str]:
    headings = set(re.findall(r"^## (.+)$", STATISTICS.read_text(encoding="utf-8"), flags=re.MULTILINE))
    for door in DOORS:
        for name, table in told[door].items():
            yield from (
                f"{door}.{name}: no heading {one!r} in statistics.md" for one in {*table.get("see", ())} - headings
            )


def _section(door: str, name: str, table: Mapping[str, Any], types: Mapping[str, object]) -> str:
    """Describe one table, under a heading of its own: names recur."""
    heading = name if door == "diagnosis" else f"{door.capitalize()}: {name}"
    see = ", ".join(f"[{one}](statistics.md#{_anchor(one)})" for one in table.get("see", ()))
    said = table["row"] + (f" Statistics: {see}." if see else "")
    text = f"### {heading}\n\n{textwrap.fill(said, 120, break_long_words=False, break_on_hyphens=False)}\n"
    columns = table.get("columns", {})
    if "like" in table:
        like = table["like"]
        text += f"\nThe columns of [Store: {like}](#store-{like}){', and' if columns else ''}\n"
    if columns:
        text += "\n| column | type | unit | meaning |\n|---|---|---|---|\n" + "".join(
            _row(names.split(", "), line, types) for names, line in columns.items()
        )
    return text


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _row(names: Iterable[str], line: str, types: Mapping[str, object]) -> str:
    found = LINE.fullmatch(line)
    assert found, line
    kinds = ", ".join(dict.fromkeys(str(types[name]) for name in names))
    return f"| {', '.join(f'`{name}`' for name in names)} | {kinds} | {found['unit'] or ''} | {found['meaning']} |\n"
