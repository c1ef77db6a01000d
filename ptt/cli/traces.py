"""`ptt traces`: read agent traces, judge them, write, print."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Final

import typer
from rich.console import Console

from ptt import api
from ptt.cli.exits import CODES, fail_limit, figure_faults
from ptt.cli.output import (
    DRAWING,
    check_figures,
    check_redaction,
    contains,
    named,
    output_base,
    output_folder,
    progress_bar,
    redact_traces,
    remote_paths,
    write_traces,
)
from ptt.cli.streams import print_json
from ptt.cli.traces_options import TracesOptions
from ptt.diagnostics.config import Settings
from ptt.diagnostics.errors import InputError, SettingsError
from ptt.diagnostics.gate.traces import decide_traces
from ptt.diagnostics.model import Source
from ptt.diagnostics.store.folders import note_run
from ptt.diagnostics.store.ingest import UNREADABLE, UNRECOGNISED
from ptt.diagnostics.traces.compare import TraceComparison, TraceSide, compare_traces
from ptt.diagnostics.traces.exports.options import ExportKind, ExportOptions
from ptt.diagnostics.traces.model import TraceDiagnosis
from ptt.object_stores.remote_paths import STORE, shown
from ptt.reports.figures.faults import FigureFault
from ptt.reports.output import write_text
from ptt.reports.text.terminal import open_console
from ptt.reports.traces.comparison import compare_traces_json, print_compared, render_compared
from ptt.reports.traces.export_card import card_json, card_lines, card_markdown
from ptt.reports.traces.terminal import print_traces
from ptt.run_location import TRACES, kept_side, refuse_other_output, run_exists, store_at
from ptt.stopping import temporary_folder
from ptt.version import __version__

MAX_JOBS: Final = 8  # by default: one process adds what the others read, and is the slowest from there on
AGAINST: Final = "against"  # the folder of the other set, below that of this one
EXPORTS: Final = "exports"  # the default folder of training data, below that of the report
OF_KIND: Final = {
    "--match-length": (ExportKind.PAIRS, ExportKind.STEPS),
    "--min-attempts": (ExportKind.PAIRS, ExportKind.STEPS),
    "--tool-output": (ExportKind.PAIRS, ExportKind.KTO, ExportKind.SFT),
    "--steps-to": (ExportKind.STEPS,),
    "--min-reward": (ExportKind.SFT,),
    "--include-unlabelled": (ExportKind.SFT,),
}
"""Options that some kinds alone go by."""
SHARED: Final = "-redacted"  # ends the default folder of a report that is to be shared


def run(options: TracesOptions) -> int:
    """Judge the traces as one set, and return the exit code."""
    export = export_options(options)
    with remote_paths() as remote:
        if export is not None:
            remote.no_output(options.export_to, "--export-to")
        out = remote.output(options.out, of=options.paths)
        if out is not None and options.out is None:
            out = out.with_name(out.name + _ends(options))
        at_hand = replace(
            options,
            out=out,
            figures=remote.no_output(options.figures, "--figures"),
            against=remote.maybe(options.against),
            labels=remote.maybe(options.labels),
        )
        return _run([remote.run(path) for path in options.paths], at_hand, export)


def _run(paths: Sequence[Path], options: TracesOptions, export: ExportOptions | None) -> int:
    settings = _settings(options)
    folder = _checked_folder(paths, options)
    with temporary_folder() as scratch, progress_bar(Console(stderr=True)) as tell:
        # into a folder that is to be shared goes no store: it holds all that --redact takes out
        kept = Path(scratch) if options.redact else folder
        diagnosis: TraceDiagnosis = api.traces(
            list(paths),
            out=kept,
            settings=settings,
            jobs=options.jobs or min(os.cpu_count() or 1, MAX_JOBS),
            keep_messages=export is not None,
            labels=options.labels,
            progress=tell,
        )
        silent = silent_paths(paths, diagnosis)
        if options.redact:
            diagnosis = redact_traces(diagnosis, options)
        tell(DRAWING, 0, 1)
        text, report, faults = write_traces(diagnosis, folder, options.figures)
        if not options.redact and store_at(paths[0]) is None:
            note_run(folder, paths[0])
        compared = None
        if options.against is not None:
            side = TraceSide(diagnosis=diagnosis, store=store_at(paths[0]) or store_at(kept))
            compared = compare_traces(_other_side(options.against, kept / AGAINST, settings, options), side)
            text = compare_traces_json(compared, __version__)
            both = write_comparison(compared, folder, faults)
    if options.as_json:
        print_json(text)
        if silent:
            typer.echo(f"ptt: {silent}", err=True)
    else:
        print_traces(diagnosis, open_console(), shown(report), note=silent)
        if compared is not None:
            typer.echo()
            print_compared(compared, open_console(), shown(both))
    if export is not None:
        target = options.export_to or folder / EXPORTS
        card = api.export_traces(store_at(paths[0]) or folder, target, export)
        write_text(target / "quality.json", card_json(card, __version__))
        write_text(target / "quality.md", card_markdown(card))
        for line in (f"Exported to {target}:", *card_lines(card)):
            typer.echo(line, err=options.as_json)
    return figure_faults(faults) or CODES[decide_traces(diagnosis, fail_on=settings.fail_on)]


def silent_paths(paths: Sequence[Path], diagnosis: TraceDiagnosis) -> str:
    """Name the paths, of several given, that no episode was read from; empty where all gave some."""
    lines = []
    for number, path in enumerate(paths if len(paths) > 1 else ()):
        files = [source for source in diagnosis.sources if source.path.startswith(f"{number}-{path.name}/")]
        if any(source.kind in diagnosis.traces.kinds and source.rows_ok for source in files):
            continue
        lines.append(f"{path}: {_why_silent(files)}")
    return f"No episode was read from {'; '.join(lines)}." if lines else ""


def _why_silent(files: Sequence[Source]) -> str:
    if not any(source.bytes for source in files):
        return "it is empty"
    unread = next((source for source in files if source.kind == UNREADABLE), None)
    if unread is not None:
        return unread.note or "it cannot be read"
    if any(source.kind == UNRECOGNISED for source in files):
        return "its format is not recognised; ptt sources says what was found"
    return "it holds no episodes; ptt sources says what was found"


def write_comparison(compared: TraceComparison, folder: Path, faults: list[FigureFault]) -> Path:
    """Write compare.json and compare.html, and return the page."""
    write_text(folder / "compare.json", compare_traces_json(compared, __version__))
    page = render_compared(compared)
    faults += page.faults
    return write_text(folder / "compare.html", page.text)


def _other_side(path: Path, out: Path, settings: Settings, options: TracesOptions) -> TraceSide:
    """Open the set to compare with: a kept one, or one read from its files."""
    if not run_exists(path):
        raise InputError(f"{path}: there is no such file or folder; give traces, or what ptt traces wrote of them.")
    if (side := kept_side(path)) is not None:
        return side
    jobs = options.jobs or min(os.cpu_count() or 1, MAX_JOBS)
    return TraceSide(diagnosis=api.traces([path], out=out, settings=settings, jobs=jobs), store=out / STORE)


def export_options(options: TracesOptions) -> ExportOptions | None:
    """Return what to export; None without --export, and SettingsError for an option that nothing asked for goes by."""
    kinds = tuple(dict.fromkeys(options.export or ()))
    usual = ExportOptions(kinds=kinds)
    wanted = {field.name: getattr(options, field.name) for field in fields(usual) if field.name != "kinds"}
    wanted["eval_set"] = tuple(options.eval_set or ())
    changed = [name for name, value in wanted.items() if value != getattr(usual, name)]
    given = ["--export-to"] * (options.export_to is not None) + [f"--{name.replace('_', '-')}" for name in changed]
    if idle := [name for name in given if not set(kinds) & set(OF_KIND.get(name, kinds))]:
        of = " ".join(f"--export {kind.value}" for kind in OF_KIND.get(idle[0], ())[:1]) or "--export"
        raise SettingsError(f"{', '.join(idle)}: without use here; add {of}, or drop it.")
    return replace(usual, **wanted) if kinds else None


def _settings(options: TracesOptions) -> Settings:
    check_redaction(options)
    if options.redact and options.keep_text:
        raise SettingsError("--keep-text shows texts, which --redact takes out; drop one of the two.")
    if options.redact and options.against is not None:
        raise SettingsError("--against shows the names of tools; give it without --redact.")
    read = api.read_settings(options.settings)
    return replace(
        read,
        keep_text=(options.keep_text or read.keep_text) and not options.redact,
        fail_on=fail_limit(options.fail_on, read),
        budget=read.budget.overridden(memory_mb=options.budget_memory, seconds=options.budget_seconds),
    )


def _checked_folder(paths: Sequence[Path], options: TracesOptions) -> Path:
    """Return where to write; never into what is read."""
    for path in paths:
        if not run_exists(path):
            raise InputError(f"{path}: there is no such file or folder; give files or folders of agent traces.")
    if options.redact and options.export:
        raise SettingsError("--export writes whole conversations, which --redact takes out; drop one of the two.")
    folder = _output_folder(paths[0], options)
    refuse_other_output(folder, of_traces=True, command=f"ptt traces {shlex.join(map(shown, paths))}")
    exports = options.export_to if options.export else None
    for path in paths:
        for output_path in filter(None, (folder, options.figures, exports)):
            if contains(path, output_path) and store_at(path) is None:
                raise SettingsError(f"{output_path}: lies inside {path}, which is never written to; give --out.")
        if options.figures is not None:
            check_figures(path, options.figures)
    return folder


def _output_folder(path: Path, options: TracesOptions) -> Path:
    """Return --out, or the default, which is never a run's; what this command wrote keeps its name when read again."""
    if options.out is None and store_at(path) is not None:
        name = named(path).resolve().name.removesuffix(TRACES)
        return output_base([path]) / f"{name}{_ends(options)}"
    return output_folder(path, options.out, ends=_ends(options))


def _ends(options: TracesOptions) -> str:
    return TRACES + (SHARED if options.redact else "")
