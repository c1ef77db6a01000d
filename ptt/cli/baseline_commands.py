"""The arguments of `ptt baseline update`, `show` and `diff`; the work is imported only when one of them runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ptt.cli.examples import examples
from ptt.cli.exits import plain_errors
from ptt.cli.options import SettingsOption

baseline = typer.Typer(
    help="Manage a baseline for the gate: a small, reviewed file of what passing runs measured.",
    no_args_is_help=True,
    epilog=examples("baseline"),
)
FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="Baseline file.")]
StoresOption = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="Write the runs' stores to this folder (default: below ./ptt-report)."),
]


@baseline.command("update", epilog=examples("baseline update"))
def baseline_update(
    file: FileArgument,
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Passing runs of one setting; several seeds show the spread.")
    ],
    name: Annotated[
        str | None, typer.Option("--name", help="Name the baseline (default: the name of the file).")
    ] = None,
    yes_even_failed: Annotated[
        bool,
        typer.Option("--yes-even-failed", help="Accept runs with high findings; the file records which."),
    ] = False,
    settings: SettingsOption = None,
    out: StoresOption = None,
) -> None:
    """Make or renew a baseline from passing runs, and show what moved."""
    with plain_errors():
        from ptt.cli import baseline as command

        code = command.update(file, runs, name=name, even_failed=yes_even_failed, settings=settings, out=out)
    raise typer.Exit(code)


@baseline.command("show", epilog=examples("baseline show"))
def baseline_show(file: FileArgument) -> None:
    """Print what a baseline contains, and how much its runs differ."""
    with plain_errors():
        from ptt.cli import baseline as command

        command.show(file)


@baseline.command("diff", epilog=examples("baseline diff"))
def baseline_diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="Baseline file.")],
    new: Annotated[Path | None, typer.Argument(metavar="[NEW]", help="Another baseline file.")] = None,
    against: Annotated[
        list[Path] | None,
        typer.Option("--against", metavar="RUN", help="Compare with this run instead of NEW; repeatable."),
    ] = None,
    settings: SettingsOption = None,
    out: StoresOption = None,
) -> None:
    """Show what moved between two baselines, or from a baseline to runs, and whether beyond noise."""
    with plain_errors():
        from ptt.cli import baseline as command

        command.diff(old, new, against=against or [], settings=settings, out=out)
