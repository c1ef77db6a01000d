"""The `ptt` command: its options are read here, its work is done elsewhere and imported only when it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ptt.cli.examples import examples
from ptt.cli.exits import Exit, plain_errors
from ptt.cli.options import (
    BudgetMemoryOption,
    BudgetSecondsOption,
    FailOn,
    FiguresOption,
    FindingsJsonOption,
    GateReports,
    JsonOption,
    KeepTextOption,
    OneRunOption,
    OutOption,
    RulesOption,
    RunArgument,
    RunsArgument,
    SettingsOption,
    rule_names,
)
from ptt.cli.streams import finish, forgive
from ptt.stopping import until_stopped
from ptt.version import __version__

app = typer.Typer(
    name="ptt",
    help="Offline forensics for RL post-training runs: what broke, since when, and what the logs cannot tell.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(""),
)


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


@app.command(epilog=examples("diagnose"))
def diagnose(
    runs: RunsArgument,
    out: OutOption = None,
    figures: FiguresOption = None,
    settings: SettingsOption = None,
    fail_on: Annotated[
        FailOn | None,
        typer.Option("--fail-on", help="End with code 3 if a finding is as severe as this, or worse."),
    ] = None,
    keep_text: KeepTextOption = False,
    rules: RulesOption = None,
    one_run: OneRunOption = False,
    baseline: Annotated[
        Path | None,
        typer.Option("--baseline", help="A run or store: its tails are drawn in one chart with this run's."),
    ] = None,
    budget_memory: BudgetMemoryOption = None,
    budget_seconds: BudgetSecondsOption = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, max=256, help="Of several runs: judged at a time; by default at most 4."),
    ] = None,
    json: Annotated[
        bool,
        typer.Option("--json", help="Print findings.json, or index.json of several runs, and nothing else."),
    ] = False,
) -> None:
    """Judge a run: write report.html, findings.json and the Parquet store, and print the verdict.

    Of several runs, or a folder of several, each is judged, and an index over all is written, the worst first.
    """
    with plain_errors():
        from ptt.cli.output import artist

        with artist() as drawing:  # before anything else is imported: its process has as much to import
            from ptt.cli import diagnose as command

            options = command.DiagnoseOptions(
                out=out,
                figures=figures,
                settings=settings,
                fail_on=fail_on and fail_on.value,
                keep_text=keep_text,
                rules=rules or (),
                jobs=jobs,
                one_run=one_run,
                baseline=baseline,
                as_json=json,
                budget_memory=budget_memory,
                budget_seconds=budget_seconds,
            )
            code = command.run(runs, options, drawing)
    raise typer.Exit(code)


@app.command(epilog=examples("compare"))
def compare(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUN RUN...", help="Run dirs, archives, stores or findings.json; the baseline first."),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="NAME=RUN,RUN", help="Seeds of one setting, pooled; may be given again."),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option("--baseline", help="The run or group that the others are set against.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where the output goes; by default ./ptt-report/compare.")
    ] = None,
    figures: FiguresOption = None,
    settings: SettingsOption = None,
    rules: RulesOption = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, max=64, help="Runs judged at a time; by default one a core, at most 4."),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print compare.json to standard output, and nothing else.")
    ] = False,
) -> None:
    """Set runs against a baseline: tails, growth, metrics and settings side by side, and what moved first."""
    with plain_errors():
        from ptt.cli import compare as command

        code = command.run(
            runs or [],
            group=group or [],
            baseline=baseline,
            out=out,
            figures=figures,
            settings=settings,
            rules=rules or [],
            jobs=jobs,
            as_json=json,
        )
    raise typer.Exit(code)


@app.command(epilog=examples("gate"))
def gate(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN...", help="Folders, archives, stores or findings.json, or globs of them in quotes."
        ),
    ] = None,
    settings: Annotated[
        Path | None,
        typer.Option("--settings", help="Settings file with the policy; by default ./ptt.toml where there is one."),
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option("--baseline", help="Baseline to hold the runs against, instead of the policy's.")
    ] = None,
    listed: Annotated[
        Path | None, typer.Option("--list", help="File with more runs, one path a line; - reads standard input.")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, max=256, help="Runs judged at a time; by default one a core, at most 4."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where the output goes; by default ./ptt-report/gate.")
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print every check, its data, and what would have failed it.")
    ] = False,
    as_of: Annotated[
        str | None, typer.Option("--as-of", metavar="DATE", help="The day that allowances are held against.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print gate.json to standard output, and nothing else.")] = False,
    junit: Annotated[Path | None, typer.Option("--junit", help="Also write a JUnit XML file.")] = None,
    sarif: Annotated[Path | None, typer.Option("--sarif", help="Also write a SARIF 2.1.0 file.")] = None,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", help="Also write Markdown, for a comment on a change.")
    ] = None,
    github: Annotated[
        bool, typer.Option("--github", help="Also print GitHub annotations, and add to the job's summary.")
    ] = False,
    reports: Annotated[
        GateReports, typer.Option("--reports", help="Draw report.html of the runs that did not pass, of all, or none.")
    ] = GateReports.FAILED,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not show how far the work is.")] = False,
    one_run: OneRunOption = False,
) -> None:
    """Judge runs against a policy and end with the code of the worst; write the evidence first.

    What was judged is kept: a second call over unchanged runs only reads it. Ctrl-C ends with code 130, and the same
    command goes on from there.
    """
    with plain_errors():
        from ptt.cli import gate as command

        options = command.GateOptions(
            runs=tuple(runs or ()),
            listed=listed,
            settings=settings,
            baseline=baseline,
            jobs=jobs,
            out=out,
            explain=explain,
            as_of=as_of,
            as_json=json,
            extra={
                name: output_path
                for name, output_path in (("junit", junit), ("sarif", sarif), ("markdown", markdown))
                if output_path
            },
            github=github,
            reports=reports,
            quiet=quiet,
            one_run=one_run,
        )
        code = command.run(options)
    raise typer.Exit(code)


@app.command(epilog=examples("report"))
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
        typer.Option(
            "--out", "-o", help="Where the report goes, and nothing else; by default ./ptt-report/<name>-report."
        ),
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
    settings: SettingsOption = None,
    rules: RulesOption = None,
    json: FindingsJsonOption = False,
) -> None:
    """Write the report again without the run, in full or redacted, and begin a postmortem.

    Exit codes: 0 written, whatever the verdict; 2 wrong usage; 5 nothing can be read there.
    """
    with plain_errors():
        from ptt.cli.output import artist

        with artist() as drawing:
            from ptt.cli import report as command

            options = command.ReportOptions(
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
            code = command.run(source, options, drawing)
    raise typer.Exit(code)


@app.command(epilog=examples("show"))
def show(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run dir, file, archive, or a store that stands alone.")],
    sample: Annotated[
        str | None,
        typer.Argument(
            metavar="[SAMPLE]",
            help="Sample id, STEP:ROW or FILE:ROW; without it the samples that findings rest on are listed.",
        ),
    ] = None,
    text: Annotated[
        bool, typer.Option("--text", help="Also print the texts and decode the tokens, with secrets masked.")
    ] = False,
    every_token: Annotated[
        bool, typer.Option("--all", help="Print all tokens, not only those around the largest |r|.")
    ] = False,
    pair: Annotated[
        str | None,
        typer.Option("--pair", metavar="A/B", help="Logprobs to take r of, as old/rollout; by default policy/ref."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder that `ptt diagnose` wrote, if not ./ptt-report/<name of the run>."),
    ] = None,
    settings: SettingsOption = None,
    one_run: OneRunOption = False,
    json: JsonOption = False,
) -> None:
    """Print one sample: its prompt group, transcript, and the tokens with the largest |r|.

    Exit codes: 0 printed; 2 no sample has this name, or several have; 5 the run cannot be read.
    """
    with plain_errors():
        from ptt.cli import show as command

        options = command.ShowOptions(
            text=text,
            every_token=every_token,
            pair=pair,
            out=out,
            settings=settings,
            one_run=one_run,
            as_json=json,
        )
        code = command.run(run, sample, options)
    raise typer.Exit(code)


@app.command(epilog=examples("ingest"))
def ingest(
    run: RunArgument,
    out: OutOption = None,
    keep_text: KeepTextOption = False,
    settings: SettingsOption = None,
    one_run: OneRunOption = False,
    budget_memory: BudgetMemoryOption = None,
    budget_seconds: BudgetSecondsOption = None,
) -> None:
    """Parse a run into a Parquet store that can be read without it."""
    with plain_errors():
        from ptt.cli import ingest as command

        code = command.run(
            run,
            out=out,
            keep_text=keep_text,
            settings=settings,
            one_run=one_run,
            budget_memory=budget_memory,
            budget_seconds=budget_seconds,
        )
    raise typer.Exit(code)


@app.command(epilog=examples("sources"))
def sources(
    run: RunArgument,
    settings: SettingsOption = None,
    sample: Annotated[
        Path | None,
        typer.Option(
            "--sample", help="Also write the shapes of files that were not recognised, without their content."
        ),
    ] = None,
    one_run: OneRunOption = False,
    json: JsonOption = False,
) -> None:
    """Say what was found in a run, which questions it answers, and the line that would record the rest."""
    with plain_errors():
        from ptt.cli import sources as command

        code = command.run(run, settings=settings, sample=sample, one_run=one_run, as_json=json)
    raise typer.Exit(code)


@app.command(epilog=examples("rules"))
def rules(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A rule, to print its page.", autocompletion=rule_names)
    ] = None,
    check: Annotated[
        list[Path] | None,
        typer.Option("--check", help="Check a file or folder of rules of your own, without a run."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """List the rules, explain one, or check rules of your own."""
    with plain_errors():
        from ptt.cli import rules as command

        code = command.run(name, check=check or [], as_json=json)
    raise typer.Exit(code)


baseline = typer.Typer(
    help="Baselines for the gate: a small reviewed file of what passing runs measured.", no_args_is_help=True
)
app.add_typer(baseline, name="baseline")
FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The baseline file.")]
StoresOption = Annotated[
    Path | None, typer.Option("--out", "-o", help="Where the runs' stores go; by default below ./ptt-report.")
]


@baseline.command("update", epilog=examples("baseline update"))
def baseline_update(
    file: FileArgument,
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Passing runs of one setting; several seeds give the spread.")
    ],
    name: Annotated[
        str | None, typer.Option("--name", help="What the baseline is called; by default as the file is.")
    ] = None,
    yes_even_failed: Annotated[
        bool,
        typer.Option("--yes-even-failed", help="Take runs with high findings as well; the file records which."),
    ] = False,
    settings: SettingsOption = None,
    out: StoresOption = None,
) -> None:
    """Make or renew a baseline of passing runs, and say what moved."""
    with plain_errors():
        from ptt.cli import baseline as command

        code = command.update(file, runs, name=name, even_failed=yes_even_failed, settings=settings, out=out)
    raise typer.Exit(code)


@baseline.command("show", epilog=examples("baseline show"))
def baseline_show(file: FileArgument) -> None:
    """Print what a baseline holds, and how far its runs lie apart."""
    with plain_errors():
        from ptt.cli import baseline as command

        command.show(file)


@baseline.command("diff", epilog=examples("baseline diff"))
def baseline_diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="The baseline file.")],
    new: Annotated[Path | None, typer.Argument(metavar="[NEW]", help="Another baseline file.")] = None,
    against: Annotated[
        list[Path] | None,
        typer.Option("--against", metavar="RUN", help="A run instead of NEW; may be given more than once."),
    ] = None,
    settings: SettingsOption = None,
    out: StoresOption = None,
) -> None:
    """Say what moved from one baseline to another, or to runs: beyond noise or within."""
    with plain_errors():
        from ptt.cli import baseline as command

        command.diff(old, new, against=against or [], settings=settings, out=out)


def main() -> None:
    """Run the command line."""
    forgive()  # first: what is opened before takes the descriptor of a closed stream, and is printed to
    until_stopped(_run)


def _run() -> None:
    try:
        app()
    finally:
        if why := finish():
            typer.echo(f"ptt: standard output: {why}.", err=True)
            raise SystemExit(Exit.USAGE)
