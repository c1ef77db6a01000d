"""The arguments of `ptt traces`; the work is imported only when the command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ptt.cli.exits import plain_errors
from ptt.cli.memory import give_back_at_once
from ptt.cli.options import (
    BudgetMemoryOption,
    BudgetSecondsOption,
    FailOnOption,
    FiguresOption,
    FindingsJsonOption,
    KeepToolNamesOption,
    OutOption,
    SaltOption,
    SettingsOption,
)
from ptt.cli.traces_export import (
    DEFAULT_PAIRS,
    DedupeOption,
    EvalSetOption,
    ExportOption,
    ExportToOption,
    FormatOption,
    FromTailOption,
    IncludeUnlabelledOption,
    KeepMaskedOption,
    MatchLengthOption,
    MaxPairsOption,
    MinMarginOption,
    MinRewardOption,
    StepsToOption,
    export_of,
)
from ptt.diagnostics.traces.exports.options import Dedupe, ExportOptions, FileFormat, StepExtent


def traces(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Files, folders or archives of agent traces, as one set.")
    ],
    out: OutOption = None,
    figures: FiguresOption = None,
    settings: SettingsOption = None,
    against: Annotated[
        Path | None,
        typer.Option("--against", help="Also compare with these traces: files, or a folder that ptt traces wrote."),
    ] = None,
    fail_on: FailOnOption = None,
    redact: Annotated[
        bool, typer.Option("--redact", help="Leave out texts and replace names and ids by hashes, for sharing.")
    ] = False,
    salt: SaltOption = None,
    keep_tool_names: KeepToolNamesOption = False,
    budget_memory: BudgetMemoryOption = None,
    budget_seconds: BudgetSecondsOption = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, max=64, help="Read with this many processes (default: one per core, at most 8)."),
    ] = None,
    json: FindingsJsonOption = False,
    export: ExportOption = None,
    export_to: ExportToOption = None,
    form: FormatOption = FileFormat.PARQUET,
    min_margin: MinMarginOption = 0.0,
    max_pairs: MaxPairsOption = DEFAULT_PAIRS,
    match_length: MatchLengthOption = False,
    dedupe: DedupeOption = Dedupe.EXACT,
    steps_to: StepsToOption = StepExtent.TURN,
    min_reward: MinRewardOption = None,
    include_unlabelled: IncludeUnlabelledOption = False,
    keep_masked: KeepMaskedOption = False,
    eval_set: EvalSetOption = None,
    from_tail: FromTailOption = False,
) -> None:
    """Judge agent traces: what the agents did, and where they went wrong.

    Writes report.html, findings.json and the Parquet store, and with --export training data. Exit code 4: nothing
    could be judged.
    """
    with plain_errors():
        give_back_at_once()  # before polars is imported
        from ptt.cli import traces as command

        wanted = ExportOptions(
            kinds=tuple(dict.fromkeys(export or ())),
            format=form,
            min_margin=min_margin,
            max_pairs_per_prompt=max_pairs,
            match_length=match_length,
            dedupe=dedupe,
            steps_to=steps_to,
            min_reward=min_reward,
            include_unlabelled=include_unlabelled,
            keep_masked=keep_masked,
            eval_set=tuple(eval_set or ()),
            from_tail=from_tail,
        )
        options = command.TracesOptions(
            out=out,
            figures=figures,
            settings=settings,
            fail_on=fail_on and fail_on.value,
            redact=redact,
            salt=salt,
            keep_tool_names=keep_tool_names,
            budget_memory=budget_memory,
            budget_seconds=budget_seconds,
            jobs=jobs,
            against=against,
            as_json=json,
            export=export_of(wanted, export_to),
        )
        code = command.run(paths, options)
    raise typer.Exit(code)
