"""The options that several commands share, and what they can be."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Folder the trainer wrote to, or one file in it.")]
RunsArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN...", help="Folder the trainer wrote to, one file in it, an archive, or a folder of runs."
    ),
]
OneRunOption = Annotated[
    bool, typer.Option("--one-run", help="Read a folder as one run, even if it looks like several.")
]
OutOption = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="Write to this folder (default: ./ptt-report/<run name>)."),
]

KeepTextOption = Annotated[
    bool, typer.Option("--keep-text", help="Keep shortened sample texts in the store (default: none).")
]

SettingsOption = Annotated[
    Path | None,
    typer.Option("--settings", help="Read settings from this file (default: ./ptt.toml, if present)."),
]

BudgetMemoryOption = Annotated[
    int | None,
    typer.Option(
        "--budget-memory", min=1, metavar="MB", help="Limit the memory for reading one file (docs/budget.md)."
    ),
]
BudgetSecondsOption = Annotated[
    float | None,
    typer.Option(
        "--budget-seconds", min=0.001, metavar="S", help="Limit CPU seconds for reading, beyond the allowance for size."
    ),
]

RulesOption = Annotated[
    list[Path] | None,
    typer.Option("--rules", help="Add custom rules from this file or folder; repeatable."),
]


FiguresOption = Annotated[
    Path | None, typer.Option("--figures", help="Also write each figure as SVG and PNG to this folder.")
]

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]

SaltOption = Annotated[
    str | None, typer.Option("--salt", help="Key the hashes with this secret, so that reports share names.")
]
KeepToolNamesOption = Annotated[bool, typer.Option("--keep-tool-names", help="With --redact: keep tool names.")]

FindingsJsonOption = Annotated[bool, typer.Option("--json", help="Print only findings.json, to standard output.")]


def rule_names(incomplete: str) -> Sequence[str]:
    """Return the built-in rules whose names begin so, for the shell to complete."""
    from ptt import api  # a shell that completes nothing must not wait for polars

    return [page.id for page in api.rule_pages() if page.id.startswith(incomplete)]


class EngineName(StrEnum):
    """What `--engine` can be: `ptt.executors.Engine`, whose module imports polars."""

    LOCAL = "local"
    RAY = "ray"


EngineOption = Annotated[
    EngineName, typer.Option("--engine", help="Work on this machine, or on a Ray cluster (docs/ray.md).")
]
RayAddressOption = Annotated[
    str | None,
    typer.Option(
        "--ray-address",
        metavar="HOST:PORT",
        help="Head node of the Ray cluster, or auto (default: $RAY_ADDRESS, or else a Ray of this machine's own).",
    ),
]


class FailOn(StrEnum):
    """What `--fail-on` can be."""

    NEVER = "never"
    CRITICAL = "critical"
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    INFO = "info"


class GateReports(StrEnum):
    """What `ptt gate --reports` can be."""

    FAILED = "failed"
    ALL = "all"
    NONE = "none"


FailOnOption = Annotated[
    FailOn | None, typer.Option("--fail-on", help="Exit with code 3 on a finding of this severity or worse.")
]
