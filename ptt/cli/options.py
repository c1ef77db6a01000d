"""The options that several commands share, and what they can be."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

RunArgument = Annotated[
    Path, typer.Argument(metavar="RUN", help="Folder the trainer wrote to, or a single file of it.")
]
RunsArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN...", help="Folder the trainer wrote to, a single file or an archive of it; or a folder of runs."
    ),
]
OneRunOption = Annotated[bool, typer.Option("--one-run", help="Read a folder as one run, whatever speaks for several.")]
OutOption = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="Where the output goes; by default ./ptt-report/<name of the run>."),
]

KeepTextOption = Annotated[
    bool, typer.Option("--keep-text", help="Keep shortened texts of samples in the store; without it none is kept.")
]

SettingsOption = Annotated[
    Path | None,
    typer.Option("--settings", help="Settings file; by default ./ptt.toml where there is one."),
]

BudgetMemoryOption = Annotated[
    int | None,
    typer.Option("--budget-memory", min=1, metavar="MB", help="Memory that reading one file may take; docs/budget.md."),
]
BudgetSecondsOption = Annotated[
    float | None,
    typer.Option(
        "--budget-seconds", min=0.001, metavar="S", help="CPU seconds that reading may take, beside those for its size."
    ),
]

RulesOption = Annotated[
    list[Path] | None,
    typer.Option("--rules", help="File or folder of rules of your own; may be given more than once."),
]


FiguresOption = Annotated[
    Path | None, typer.Option("--figures", help="Also write each figure as SVG and PNG into this folder.")
]

JsonOption = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]

FindingsJsonOption = Annotated[
    bool, typer.Option("--json", help="Print findings.json to standard output, and nothing else.")
]


def rule_names(incomplete: str) -> Sequence[str]:
    """Return the built-in rules whose names begin so, for the shell to complete."""
    from ptt import api  # a shell that completes nothing must not wait for polars

    return [page.id for page in api.rule_pages() if page.id.startswith(incomplete)]


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
