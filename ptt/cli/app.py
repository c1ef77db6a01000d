"""The `ptt` command: its options are read here, its work is done elsewhere and imported only when it is."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ptt import __version__
from ptt.cli.exits import plain_errors

app = typer.Typer(
    name="ptt",
    help="Offline forensics for RL post-training runs: what broke, since when, and what the logs cannot tell.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

RunArgument = Annotated[
    Path, typer.Argument(metavar="RUN", help="Folder the trainer wrote to, or a single file of it.")
]
OutOption = Annotated[
    Path | None,
    typer.Option("--out", help="Where the output goes; by default ./ptt-report/<name of the run>."),
]

KeepTextOption = Annotated[
    bool, typer.Option("--keep-text", help="Keep shortened texts of samples in the store; without it none is kept.")
]

RulesOption = Annotated[
    list[Path] | None,
    typer.Option("--rules", help="File or folder of rules of your own; may be given more than once."),
]


class FailOn(StrEnum):
    """What `--fail-on` can be."""

    NEVER = "never"
    CRITICAL = "critical"
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    INFO = "info"


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ptt {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Say what broke in an RL post-training run, since when, and what its logs cannot tell.

    Exit codes: 0 judged, 2 wrong usage or settings, 3 a finding at or above --fail-on, 4 nothing could be judged,
    5 the run cannot be read.
    """


@app.command()
def diagnose(
    run: RunArgument,
    out: OutOption = None,
    figures: Annotated[
        Path | None, typer.Option("--figures", help="Also write each figure as SVG and PNG into this folder.")
    ] = None,
    settings: Annotated[
        Path | None,
        typer.Option("--settings", help="Settings file; by default ./ptt.toml where there is one."),
    ] = None,
    fail_on: Annotated[
        FailOn | None,
        typer.Option("--fail-on", help="End with code 3 if a finding is as severe as this, or worse."),
    ] = None,
    keep_text: KeepTextOption = False,
    rules: RulesOption = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print findings.json to standard output, and nothing else.")
    ] = False,
) -> None:
    """Judge a run: write report.html, findings.json and the Parquet store, and print the verdict."""
    with plain_errors():
        from ptt.cli.drawing import artist

        with artist() as drawing:  # before anything else is imported: its process has as much to import
            from ptt.cli import diagnose as command

            code = command.run(
                run,
                out=out,
                figures=figures,
                settings=settings,
                fail_on=fail_on and fail_on.value,
                keep_text=keep_text,
                rules=rules or [],
                as_json=json,
                drawing=drawing,
            )
    raise typer.Exit(code)


@app.command()
def report(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="Folder that `ptt diagnose` wrote, a store, a findings.json; a run dir or an archive of one as well.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Where the report goes, and nothing else; by default ./ptt-report/<name>-report."),
    ] = None,
    redact: Annotated[
        bool, typer.Option("--redact", help="Leave out texts and replace names and ids by hashes, to share the report.")
    ] = False,
    salt: Annotated[
        str | None,
        typer.Option("--salt", help="Secret that keys the hashes, so that several reports name things alike."),
    ] = None,
    keep_tool_names: Annotated[
        bool, typer.Option("--keep-tool-names", help="With --redact: leave the names of tools as they are.")
    ] = False,
    postmortem: Annotated[
        bool, typer.Option("--postmortem", help="Also begin a postmortem: postmortem.md, with its figures beside it.")
    ] = False,
    figures: Annotated[
        Path | None, typer.Option("--figures", help="Write each figure as SVG and PNG into this folder.")
    ] = None,
    settings: Annotated[
        Path | None,
        typer.Option("--settings", help="Settings file; by default ./ptt.toml where there is one."),
    ] = None,
    rules: RulesOption = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print findings.json to standard output, and nothing else.")
    ] = False,
) -> None:
    """Write the report again without the run, in full or redacted, and begin a postmortem.

    Exit codes: 0 written, whatever the verdict; 2 wrong usage; 5 nothing can be read there.
    """
    with plain_errors():
        from ptt.cli.drawing import artist

        with artist() as drawing:
            from ptt.cli import report as command

            wishes = command.Wishes(
                out=out,
                figures=figures,
                redact=redact,
                salt=salt,
                keep_tool_names=keep_tool_names,
                postmortem=postmortem,
                settings=settings,
                rules=rules or (),
                as_json=json,
            )
            code = command.run(source, wishes, drawing)
    raise typer.Exit(code)


@app.command()
def ingest(run: RunArgument, out: OutOption = None, keep_text: KeepTextOption = False) -> None:
    """Parse a run into a Parquet store that can be read without it."""
    with plain_errors():
        from ptt.cli import ingest as command

        command.run(run, out=out, keep_text=keep_text)


@app.command()
def sources(
    run: RunArgument,
    json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Say what was found in a run, which questions it answers, and the line that would record the rest."""
    with plain_errors():
        from ptt.cli import sources as command

        command.run(run, as_json=json)


@app.command()
def rules(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A rule, to print its page.")] = None,
    check: Annotated[
        list[Path] | None,
        typer.Option("--check", help="Check a file or folder of rules of your own, without a run."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """List the rules, explain one, or check rules of your own."""
    with plain_errors():
        from ptt.cli import rules as command

        code = command.run(name, check=check or [], as_json=json)
    raise typer.Exit(code)


def main() -> None:
    """Run the command line."""
    app()
