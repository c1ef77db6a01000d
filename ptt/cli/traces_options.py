"""The options of `ptt traces`: of reading and judging, and of the training data it writes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ptt.cli.options import (
    BudgetMemoryOption,
    BudgetSecondsOption,
    FailOnOption,
    FiguresOption,
    FindingsJsonOption,
    KeepToolNamesOption,
    SaltOption,
    SettingsOption,
)
from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.traces.exports.options import (
    MAX_PAIRS_PER_PROMPT,
    Dedupe,
    ExportKind,
    FileFormat,
    StepExtent,
    ToolOutput,
)


@dataclass(frozen=True, kw_only=True)
class TracesOptions:
    """What `ptt traces` takes; from `format` on the fields are those of ExportOptions."""

    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Files, folders or archives of agent traces, as one set.")
    ]
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write to this folder (default: ./ptt-report/<name>.traces).")
    ] = None
    figures: FiguresOption = None
    settings: SettingsOption = None
    against: Annotated[
        Path | None,
        typer.Option("--against", help="Also compare with these traces: files, or a folder that ptt traces wrote."),
    ] = None
    labels: Annotated[
        Path | None,
        typer.Option(
            "--labels", metavar="FILE", help="Take success and reward from this file, by id (CSV, JSON lines, Parquet)."
        ),
    ] = None
    fail_on: FailOnOption = None
    keep_text: Annotated[
        bool,
        typer.Option("--keep-text", help="Keep shortened texts in the store, and show those of episodes to look at."),
    ] = False
    redact: Annotated[
        bool, typer.Option("--redact", help="Leave out texts and replace names and ids by hashes, for sharing.")
    ] = False
    salt: SaltOption = None
    keep_tool_names: KeepToolNamesOption = False
    budget_memory: BudgetMemoryOption = None
    budget_seconds: BudgetSecondsOption = None
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, max=64, help="Read with this many processes (default: one per core, at most 8)."),
    ] = None
    as_json: FindingsJsonOption = False
    export: Annotated[
        list[ExportKind] | None, typer.Option("--export", help="Write training data of this kind; repeatable.")
    ] = None
    export_to: Annotated[
        Path | None,
        typer.Option("--export-to", metavar="FOLDER", help="Write it to this folder (default: exports below --out)."),
    ] = None
    format: Annotated[FileFormat, typer.Option("--format", help="Write Parquet or JSON lines.")] = FileFormat.PARQUET
    min_margin: Annotated[
        float, typer.Option("--min-margin", min=0.0, help="Pair only rewards that differ by at least this much.")
    ] = 0.0
    max_pairs_per_prompt: Annotated[
        int,
        typer.Option("--max-pairs-per-prompt", min=1, max=10_000, help="Write at most so many pairs of one prompt."),
    ] = MAX_PAIRS_PER_PROMPT
    match_length: Annotated[
        bool, typer.Option("--match-length", help="Pair only completions of nearly the same length.")
    ] = False
    dedupe: Annotated[Dedupe, typer.Option("--dedupe", help="Leave out repeated completions of a prompt.")] = (
        Dedupe.EXACT
    )
    steps_to: Annotated[
        StepExtent, typer.Option("--steps-to", help="End step-level pairs with their turn, or with the episode.")
    ] = StepExtent.TURN
    tool_output: Annotated[
        ToolOutput | None,
        typer.Option(
            "--tool-output",
            help="Split episodes with tool output into rows of one turn, or keep them whole for trainers that mask it "
            "(default: whole for SFT, else split).",
        ),
    ] = None
    min_attempts: Annotated[
        int, typer.Option("--min-attempts", min=1, help="Pair only sides that rest on at least so many attempts.")
    ] = 1
    min_reward: Annotated[
        float | None, typer.Option("--min-reward", help="For SFT, also take episodes of at least this reward.")
    ] = None
    include_unlabelled: Annotated[
        bool, typer.Option("--include-unlabelled", help="For SFT, also take episodes without any label.")
    ] = False
    keep_masked: Annotated[
        bool, typer.Option("--keep-masked", help="Also write rows in which a key or token is masked.")
    ] = False
    eval_set: Annotated[
        list[Path] | None,
        typer.Option(
            "--eval-set", metavar="PATH", help="Mark rows that share 13 words in a row with this; repeatable."
        ),
    ] = None
    from_tail: Annotated[
        bool,
        typer.Option(
            "--from-tail", help="Pair only at prompts of the episodes with most tail tokens (needs logprobs)."
        ),
    ] = False
