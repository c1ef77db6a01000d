"""The `ptt` command: its options are read here, its work is done elsewhere and imported only when it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, get_type_hints

import typer

from ptt.cli.exits import Exit, plain_errors
from ptt.cli.options import (
    AdvisoriesOptions,
    BaselineDiffOptions,
    BaselineShowOptions,
    BaselineUpdateOptions,
    CheckConfigOptions,
    CompareOptions,
    DiagnoseOptions,
    GateOptions,
    IngestOptions,
    InitOptions,
    ReportOptions,
    RulesOptions,
    ShowOptions,
    SourcesOptions,
    WatchOptions,
)
from ptt.cli.streams import finish, forgive, give_back_at_once, grow_in_large_steps
from ptt.cli.traces_options import TracesOptions
from ptt.diagnostics.errors import GIVE_A_RUN, no_such_path
from ptt.stopping import collect_seldom, until_stopped
from ptt.version import __version__

KEEP_LINES: Final = "\b"  # click wraps a paragraph that does not begin with this character
EXAMPLES: Final[Mapping[str, tuple[str, ...]]] = {
    "": ("ptt diagnose runs/my_run", "ptt gate 'runs/*'", "ptt rules entropy-collapse"),
    "diagnose": (
        "ptt diagnose runs/my_run",
        "ptt diagnose runs/seed_* -o ptt-report",
        "ptt diagnose run.tar.zst --json --fail-on high",
    ),
    "compare": (
        "ptt compare runs/before runs/after",
        "ptt compare --group old=a1,a2,a3 --group new=b1,b2,b3 --baseline old",
    ),
    "gate": (
        "ptt gate 'runs/*' --junit junit.xml",
        "ptt gate runs/my_run --explain",
        "ptt gate runs/my_run --baseline baselines/main.toml",
    ),
    "init": ("ptt init", "ptt init runs/seed_1 runs/seed_2 runs/seed_3"),
    "report": ("ptt report ptt-report/my_run --redact -o to_share", "ptt report ptt-report/my_run --postmortem"),
    "show": (
        "ptt show runs/my_run",
        "ptt show runs/my_run 120:3",
        "ptt show runs/my_run 120:3 --text --pair old/rollout",
    ),
    "ingest": ("ptt ingest runs/my_run -o stores/my_run",),
    "traces": ("ptt traces logs/agents.jsonl", "ptt traces runs/my_run/completions -o ptt-report"),
    "watch": ("ptt watch runs/my_run", "ptt watch runs/my_run --on-stop 'scancel 4711' --report"),
    "sources": ("ptt sources runs/my_run", "ptt sources runs/my_run --sample shapes.txt"),
    "rules": ("ptt rules", "ptt rules entropy-collapse", "ptt rules --check my_rules/"),
    "advisories": ("ptt advisories", "ptt advisories trl-5312", "ptt advisories runs/my_run"),
    "check-config": (
        "ptt check-config config.yaml",
        "ptt check-config train.py requirements.txt",
        "ptt check-config run.sh --framework verl --package verl==0.5.0",
    ),
    "baseline": (
        "ptt baseline update main.toml runs/seed_1 runs/seed_2 runs/seed_3",
        "ptt baseline diff main.toml --against runs/my_run",
    ),
    "baseline update": ("ptt baseline update main.toml runs/seed_1 runs/seed_2 runs/seed_3",),
    "baseline show": ("ptt baseline show main.toml",),
    "baseline diff": ("ptt baseline diff old.toml new.toml", "ptt baseline diff main.toml --against runs/my_run"),
}


def examples(command: str) -> str:
    """Return the end of a command's help."""
    return "\n".join((KEEP_LINES, "Examples:", *(f"  {line}" for line in EXAMPLES[command])))


app = typer.Typer(
    name="ptt",
    help="Find out what broke in an RL post-training run, since when, and what its logs cannot show. Works offline.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(""),
)
baseline = typer.Typer(
    help="Manage a baseline for the gate: a small, reviewed file of what passing runs measured.",
    no_args_is_help=True,
    epilog=examples("baseline"),
)
Options = TypeVar("Options")


def _command(name: str) -> Callable[[Callable[[Options], int]], Callable[[Options], int]]:
    """Make a command of a function: the fields of its options are the command's parameters, its docstring the help."""

    def add(function: Callable[[Options], int]) -> Callable[[Options], int]:
        kind: Any = get_type_hints(function)["options"]
        hints = get_type_hints(kind, include_extras=True)

        def run(**given: Any) -> None:
            grow_in_large_steps()
            with plain_errors():
                code = function(kind(**given))
            raise typer.Exit(code)

        parameters = [
            Parameter(
                field.name,
                Parameter.KEYWORD_ONLY,
                default=Parameter.empty if field.default is MISSING else field.default,
                annotation=hints[field.name],
            )
            for field in fields(kind)
        ]
        run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
        run.__annotations__ = hints
        run.__doc__ = function.__doc__
        group = baseline if name.startswith("baseline ") else app
        group.command(name.split()[-1], epilog=examples(name))(run)
        return function

    return add


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


@_command("diagnose")
def diagnose(options: DiagnoseOptions) -> int:
    """Judge a run: write report.html, findings.json and the Parquet store, and print the verdict.

    Given several runs, or a folder of runs, judge each one and write an index of all, the worst first.
    """
    _refuse_nothing(options.runs)
    from ptt.cli.output import artist

    with artist() as drawing:  # before anything else is imported: its process has as much to import
        from ptt.cli import diagnose as command

        return command.run(options, drawing)


def _refuse_nothing(runs: Sequence[Path]) -> None:
    """Raise InputError for a single path with nothing there, before all that judging needs is imported."""
    (only, *others) = runs
    if not others and ":/" not in str(only) and not os.path.lexists(only):
        raise no_such_path(only, GIVE_A_RUN)


@_command("compare")
def compare(options: CompareOptions) -> int:
    """Compare runs with a baseline: tails, growth, metrics, settings, and what diverged first.

    Two paths that hold only agent traces are compared as `ptt traces --against` does.
    """
    from ptt.cli import compare as command

    return command.run(options)


@_command("gate")
def gate(options: GateOptions) -> int:
    """Judge runs against a policy, write the evidence, and exit with the code of the worst run.

    Results are kept: a second call rereads them for unchanged runs. Ctrl-C exits with code 130; the same command then
    resumes.
    """
    from ptt.cli import gate as command

    return command.run(options)


@_command("init")
def init(options: InitOptions) -> int:
    """Write ptt.toml, a GitHub workflow and, from passing runs, a baseline, and say what to do next.

    What exists is kept, and named. Exit codes: 0 written; 2 wrong usage; 3 or 4 a run cannot be a baseline, and nothing
    was written; 5 a run cannot be read.
    """
    from ptt.cli import init as command

    return command.run(options)


@_command("report")
def report(options: ReportOptions) -> int:
    """Write the report again without the run, in full or redacted, and draft a postmortem.

    Exit codes: 0 written, whatever the verdict; 2 wrong usage; 5 SOURCE cannot be read.
    """
    from ptt.cli.output import artist

    with artist() as drawing:
        from ptt.cli import report as command

        return command.run(options, drawing)


@_command("show")
def show(options: ShowOptions) -> int:
    """Print one sample: its prompt group, its transcript and the tokens with the largest |r|.

    Exit codes: 0 printed; 2 no sample or several have this name; 5 the run cannot be read.
    """
    from ptt.cli import look

    return look.show(options)


@_command("watch")
def watch(options: WatchOptions) -> int:
    """Follow a run while it trains: print a line when something changes, and judge the run when it ends.

    Killed and started again it goes on where it was. Exit codes: 3 after a stop; else those of `ptt diagnose`, and 0
    with --once while the run goes on.
    """
    from ptt.cli import watch as command

    return command.run(options)


@_command("traces")
def traces(options: TracesOptions) -> int:
    """Judge agent traces: what the agents did, and where they went wrong.

    Writes report.html, findings.json and the Parquet store, and with --export training data. Exit code 4: nothing
    could be judged.
    """
    give_back_at_once()  # before polars is imported
    from ptt.cli import traces as command

    return command.run(options)


@_command("ingest")
def ingest(options: IngestOptions) -> int:
    """Parse a run into a Parquet store that stays readable without the run."""
    from ptt.cli import look

    return look.ingest(options)


@_command("sources")
def sources(options: SourcesOptions) -> int:
    """List what a run contains, which questions it can answer, and how to record the rest.

    Exit codes: 0 something was recognised, or --sample was given; 4 no file was; 5 the run cannot be read.
    """
    from ptt.cli import look

    return look.sources(options)


@_command("rules")
def rules(options: RulesOptions) -> int:
    """List the rules, explain one, or check custom rules."""
    from ptt.cli import look

    return look.rules(options)


@_command("advisories")
def advisories(options: AdvisoriesOptions) -> int:
    """List known bugs and risky settings of frameworks, explain one, or say which apply to a run and why.

    Exit codes with a run: 0 none surely applies; 3 one does, of the severity of --fail-on or worse; 4 the run records
    neither framework nor versions nor settings; 5 the run cannot be read.
    """
    from ptt.cli import advisories as command

    return command.advisories(options)


@_command("check-config")
def check_config(options: CheckConfigOptions) -> int:
    """Say what is known to go wrong with a config, before training.

    Exit codes: 0 nothing that surely applies; 3 an advisory does, of the severity of --fail-on or worse; 4 no setting
    was found; 5 a file cannot be read.
    """
    from ptt.cli import advisories as command

    return command.check_config(options)


app.add_typer(baseline, name="baseline")


@_command("baseline update")
def baseline_update(options: BaselineUpdateOptions) -> int:
    """Make or renew a baseline from passing runs, and show what moved."""
    from ptt.cli import baseline as command

    return command.update(options)


@_command("baseline show")
def baseline_show(options: BaselineShowOptions) -> int:
    """Print what a baseline contains, and how much its runs differ."""
    from ptt.cli import baseline as command

    return command.show(options)


@_command("baseline diff")
def baseline_diff(options: BaselineDiffOptions) -> int:
    """Show what moved between two baselines, or from a baseline to runs, and whether beyond noise."""
    from ptt.cli import baseline as command

    return command.diff(options)


def main() -> None:
    """Run the command line."""
    forgive()  # first: what is opened before takes the descriptor of a closed stream, and is printed to
    collect_seldom()
    until_stopped(_run)


def _run() -> None:
    try:
        app()
    finally:
        if why := finish():
            typer.echo(f"ptt: standard output: {why}.", err=True)
            raise SystemExit(Exit.USAGE)
