"""The options of `ptt traces` that write training data, and writing it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.traces.exports.options import (
    MAX_PAIRS_PER_PROMPT,
    Dedupe,
    ExportKind,
    ExportOptions,
    FileFormat,
    StepExtent,
)

EXPORTS = "exports"

ExportOption = Annotated[
    list[ExportKind] | None, typer.Option("--export", help="Write training data of this kind; repeatable.")
]
ExportToOption = Annotated[
    Path | None,
    typer.Option("--export-to", metavar="FOLDER", help="Write it to this folder (default: exports below --out)."),
]
FormatOption = Annotated[FileFormat, typer.Option("--format", help="Write Parquet or JSON lines.")]
MinMarginOption = Annotated[
    float, typer.Option("--min-margin", min=0.0, help="Pair only rewards that differ by at least this much.")
]
MaxPairsOption = Annotated[
    int, typer.Option("--max-pairs-per-prompt", min=1, max=10_000, help="Write at most so many pairs of one prompt.")
]
MatchLengthOption = Annotated[
    bool, typer.Option("--match-length", help="Pair only completions of nearly the same length.")
]
DedupeOption = Annotated[Dedupe, typer.Option("--dedupe", help="Leave out repeated completions of a prompt.")]
StepsToOption = Annotated[
    StepExtent, typer.Option("--steps-to", help="End step-level pairs with their turn, or with the episode.")
]
MinRewardOption = Annotated[
    float | None, typer.Option("--min-reward", help="For SFT, also take episodes of at least this reward.")
]
IncludeUnlabelledOption = Annotated[
    bool, typer.Option("--include-unlabelled", help="For SFT, also take episodes without any label.")
]
KeepMaskedOption = Annotated[
    bool, typer.Option("--keep-masked", help="Also write rows in which a key or token is masked.")
]
EvalSetOption = Annotated[
    list[Path] | None,
    typer.Option("--eval-set", metavar="PATH", help="Mark rows that share 13 words in a row with this; repeatable."),
]
FromTailOption = Annotated[
    bool,
    typer.Option("--from-tail", help="Pair only at prompts of the episodes with most tail tokens (needs logprobs)."),
]
OPTIONS: Final = {
    "format": "--format",
    "min_margin": "--min-margin",
    "max_pairs_per_prompt": "--max-pairs-per-prompt",
    "match_length": "--match-length",
    "dedupe": "--dedupe",
    "steps_to": "--steps-to",
    "min_reward": "--min-reward",
    "include_unlabelled": "--include-unlabelled",
    "keep_masked": "--keep-masked",
    "eval_set": "--eval-set",
    "from_tail": "--from-tail",
}
"""Of each field of ExportOptions but the kinds, how it is spelt."""
OF_KIND: Final = {
    "--match-length": (ExportKind.PAIRS,),
    "--steps-to": (ExportKind.STEPS,),
    "--min-reward": (ExportKind.SFT,),
    "--include-unlabelled": (ExportKind.SFT,),
}
"""Options that some kinds alone go by."""
DEFAULT_PAIRS = MAX_PAIRS_PER_PROMPT


@dataclass(frozen=True, kw_only=True)
class Export:
    """What to export, and where to; None where nothing is."""

    to: Path | None
    options: ExportOptions


def export_of(options: ExportOptions, to: Path | None) -> Export | None:
    """Return what the command line asks for; None without --export, and SettingsError for an option without a use."""
    if idle := _idle(options, to):
        of = " ".join(f"--export {kind.value}" for kind in OF_KIND.get(idle[0], ())[:1]) or "--export"
        raise SettingsError(f"{', '.join(idle)}: without use here; add {of}, or drop it.")
    return Export(to=to, options=options) if options.kinds else None


def _idle(options: ExportOptions, to: Path | None) -> list[str]:
    """Return the options that were given and that nothing asked for goes by."""
    usual = ExportOptions(kinds=())
    changed = [name for name in OPTIONS if getattr(options, name) != getattr(usual, name)]
    given = [*(["--export-to"] if to is not None else []), *(OPTIONS[name] for name in changed)]
    return [
        name for name in given if not options.kinds or not set(options.kinds) & set(OF_KIND.get(name, options.kinds))
    ]


def write_exports(export: Export, kept: Path, out: Path) -> list[str]:
    """Write training data of a store, kept itself or in a folder, with its quality card; return the lines to print."""
    from ptt import api
    from ptt.reports.output import write_text
    from ptt.reports.traces.export_card import card_json, card_lines, card_markdown
    from ptt.version import __version__

    folder = export.to or out / EXPORTS
    report = api.export_traces(kept, folder, export.options)
    write_text(folder / "quality.json", card_json(report, __version__))
    write_text(folder / "quality.md", card_markdown(report))
    return [f"Exported to {folder}:", *card_lines(report)]
