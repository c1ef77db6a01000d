"""The `ptt` command: its options are read here, its work is done elsewhere and imported only when it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ptt.cli.baseline_commands import baseline
from ptt.cli.examples import examples
from ptt.cli.exits import Exit, plain_errors
from ptt.cli.options import (
    BudgetMemoryOption,
    BudgetSecondsOption,
    EngineName,
    EngineOption,
    FailOnOption,
    FiguresOption,
    FindingsJsonOption,
    GateReports,
    JsonOption,
    KeepTextOption,
    KeepToolNamesOption,
    OneRunOption,
    OutOption,
    RayAddressOption,
    RulesOption,
    RunArgument,
    RunsArgument,
    SaltOption,
    SettingsOption,
    rule_names,
)
from ptt.cli.streams import finish, forgive
from ptt.cli.traces_command import traces
from ptt.stopping import until_stopped
from ptt.version import __version__

app = typer.Typer(
    name="ptt",
    help="Find out what broke in an RL post-training run, since when, and what its logs cannot show. Works offline.",
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
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Find out what broke in an RL post-training run, since when, and what its logs cannot show. Works offline.

    Exit codes: 0 judged; 2 wrong usage or settings; 3 a finding at or above --fail-on; 4 nothing could be judged;
    5 the run cannot be read.
    """


@app.command(epilog=examples("diagnose"))
def diagnose(
    runs: RunsArgument,
    out: OutOption = None,
    figures: FiguresOption = None,
    settings: SettingsOption = None,
    fail_on: FailOnOption = None,
    keep_text: KeepTextOption = False,
    rules: RulesOption = None,
    one_run: OneRunOption = False,
    baseline: Annotated[
        Path | None,
        typer.Option("--baseline", help="Draw the tails of this run or store in the same chart."),
    ] = None,
    budget_memory: BudgetMemoryOption = None,
    budget_seconds: BudgetSecondsOption = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, max=256, help="Judge this many runs at a time (default: at most 4)."),
    ] = None,
    engine: EngineOption = EngineName.LOCAL,
    ray_address: RayAddressOption = None,
    json: Annotated[
        bool,
        typer.Option("--json", help="Print only findings.json, or index.json for several runs."),
    ] = False,
) -> None:
    """Judge a run: write report.html, findings.json and the Parquet store, and print the verdict.

    Given several runs, or a folder of runs, judge each one and write an index of all, the worst first.
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
                engine=engine.value,
                ray_address=ray_address,
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
        typer.Argument(metavar="RUN RUN...", help="Runs, archives, stores or findings.json; the baseline first."),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="NAME=RUN,RUN", help="Pool seeds of one setting; repeatable."),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option("--baseline", help="Compare the others with this run or group.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write to this folder (default: ./ptt-report/compare).")
    ] = None,
    figures: FiguresOption = None,
    settings: SettingsOption = None,
    rules: RulesOption = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", min=1, max=64, help="Judge this many runs at a time (default: one per core, at most 4)."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print only compare.json, to standard output.")] = False,
) -> None:
    """Compare runs with a baseline: tails, growth, metrics, settings, and what diverged first.

    Two paths that hold only agent traces are compared as `ptt traces --against` does.
    """
    with plain_errors():
        from ptt.cli import compare as command

        options = command.CompareOptions(
            group=group or (),
            baseline=baseline,
            out=out,
            figures=figures,
            settings=settings,
            rules=rules or (),
            jobs=jobs,
            as_json=json,
        )
        code = command.run(runs or [], options)
    raise typer.Exit(code)


@app.command(epilog=examples("gate"))
def gate(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN...", help="Runs, archives, stores or findings.json, or quoted globs of them."),
    ] = None,
    settings: Annotated[
        Path | None,
        typer.Option("--settings", help="Read the policy from this file (default: ./ptt.toml, if present)."),
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option("--baseline", help="Compare the runs with this baseline instead of the policy's.")
    ] = None,
    listed: Annotated[
        Path | None,
        typer.Option("--list", help="Read more runs from this file, one path a line; - for standard input."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", min=1, max=256, help="Judge this many runs at a time (default: one per core, at most 4)."
        ),
    ] = None,
    engine: EngineOption = EngineName.LOCAL,
    ray_address: RayAddressOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write to this folder (default: ./ptt-report/gate).")
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print every check, its data and what would make it fail.")
    ] = False,
    as_of: Annotated[
        str | None,
        typer.Option("--as-of", metavar="DATE", help="Apply allowances as of this day (default: today in UTC)."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print only gate.json, to standard output.")] = False,
    junit: Annotated[Path | None, typer.Option("--junit", help="Also write a JUnit XML file.")] = None,
    sarif: Annotated[Path | None, typer.Option("--sarif", help="Also write a SARIF 2.1.0 file.")] = None,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", help="Also write Markdown, for a pull request comment.")
    ] = None,
    github: Annotated[
        bool, typer.Option("--github", help="Also print GitHub annotations and write the job summary.")
    ] = False,
    reports: Annotated[
        GateReports,
        typer.Option("--reports", help="Draw report.html for runs that did not pass, for all, or for none."),
    ] = GateReports.FAILED,
    quiet: Annotated[bool, typer.Option("--quiet", help="Hide progress.")] = False,
    one_run: OneRunOption = False,
) -> None:
    """Judge runs against a policy, write the evidence, and exit with the code of the worst run.

    Results are kept: a second call rereads them for unchanged runs. Ctrl-C exits with code 130; the same command then
    resumes.
    """
    with plain_errors():
        from ptt.cli import gate as command

        options = command.GateOptions(
            runs=tuple(runs or ()),
            listed=listed,
            settings=settings,
            baseline=baseline,
            jobs=jobs,
            engine=engine.value,
            ray_address=ray_address,
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
            help="Folder written by `ptt diagnose`, store, findings.json, run or archive.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write the report to this folder (default: ./ptt-report/<name>-report)."),
    ] = None,
    redact: Annotated[
        bool, typer.Option("--redact", help="Remove texts and replace names and ids by hashes, for sharing.")
    ] = False,
    salt: SaltOption = None,
    keep_tool_names: KeepToolNamesOption = False,
    postmortem: Annotated[
        bool, typer.Option("--postmortem", help="Also draft a postmortem: postmortem.md and its figures.")
    ] = False,
    figures: Annotated[
        Path | None, typer.Option("--figures", help="Also write each figure as SVG and PNG to this folder.")
    ] = None,
    settings: SettingsOption = None,
    rules: RulesOption = None,
    json: FindingsJsonOption = False,
) -> None:
    """Write the report again without the run, in full or redacted, and draft a postmortem.

    Exit codes: 0 written, whatever the verdict; 2 wrong usage; 5 SOURCE cannot be read.
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
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder, file, archive or self-contained store.")],
    sample: Annotated[
        str | None,
        typer.Argument(
            metavar="[SAMPLE]",
            help="Sample id, STEP:ROW or FILE:ROW; omit it to list the samples behind the findings.",
        ),
    ] = None,
    text: Annotated[
        bool, typer.Option("--text", help="Also print texts and decoded tokens, with secrets masked.")
    ] = False,
    every_token: Annotated[
        bool, typer.Option("--all", help="Print all tokens, not only those around the largest |r|.")
    ] = False,
    pair: Annotated[
        str | None,
        typer.Option(
            "--pair", metavar="A/B", help="Compute r from this pair, such as old/rollout (default: policy/ref)."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder written by `ptt diagnose` (default: ./ptt-report/<run name>)."),
    ] = None,
    settings: SettingsOption = None,
    one_run: OneRunOption = False,
    json: JsonOption = False,
) -> None:
    """Print one sample: its prompt group, its transcript and the tokens with the largest |r|.

    Exit codes: 0 printed; 2 no sample or several have this name; 5 the run cannot be read.
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


app.command(epilog=examples("traces"))(traces)


@app.command(epilog=examples("ingest"))
def ingest(
    run: RunArgument,
    out: OutOption = None,
    keep_text: KeepTextOption = False,
    settings: SettingsOption = None,
    one_run: OneRunOption = False,
    budget_memory: BudgetMemoryOption = None,
    budget_seconds: BudgetSecondsOption = None,
    engine: EngineOption = EngineName.LOCAL,
    ray_address: RayAddressOption = None,
) -> None:
    """Parse a run into a Parquet store that stays readable without the run."""
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
            engine=engine.value,
            ray_address=ray_address,
        )
    raise typer.Exit(code)


@app.command(epilog=examples("sources"))
def sources(
    run: RunArgument,
    settings: SettingsOption = None,
    sample: Annotated[
        Path | None,
        typer.Option("--sample", help="Write the shapes of unrecognised files to this file, without content."),
    ] = None,
    one_run: OneRunOption = False,
    json: JsonOption = False,
) -> None:
    """List what a run contains, which questions it can answer, and how to record the rest.

    Exit codes: 0 something was recognised, or --sample was given; 4 no file was; 5 the run cannot be read.
    """
    with plain_errors():
        from ptt.cli import sources as command

        code = command.run(run, settings=settings, sample=sample, one_run=one_run, as_json=json)
    raise typer.Exit(code)


@app.command(epilog=examples("rules"))
def rules(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Print the page of this rule.", autocompletion=rule_names)
    ] = None,
    check: Annotated[
        list[Path] | None,
        typer.Option("--check", help="Check custom rules in this file or folder, without a run."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """List the rules, explain one, or check custom rules."""
    with plain_errors():
        from ptt.cli import rules as command

        code = command.run(name, check=check or [], as_json=json)
    raise typer.Exit(code)


app.add_typer(baseline, name="baseline")


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
