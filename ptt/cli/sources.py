"""`ptt sources`: what was found in a run, what it can answer, and what would record the rest."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.console import Console

from ptt import api
from ptt.cli.exits import Exit, print_faults
from ptt.cli.output import contains, progress_bar, remote_paths
from ptt.cli.streams import print_json
from ptt.diagnostics.errors import SettingsError
from ptt.reports.output import write_text
from ptt.reports.run.sources import print_sources, sources_json
from ptt.reports.text.terminal import open_console
from ptt.version import __version__


def run(path: Path, *, settings: Path | None, sample: Path | None, one_run: bool, as_json: bool) -> int:
    """Print what the run at `path` holds, and return the exit code; nothing is kept but the sample."""
    with remote_paths() as remote:
        return _run(remote.run(path), settings, remote.no_output(sample, "--sample"), one_run, as_json)


def _run(path: Path, settings: Path | None, sample: Path | None, one_run: bool, as_json: bool) -> int:
    chosen = api.read_settings(settings)
    if sample is not None and (contains(path, sample) or sample.resolve() == path.resolve()):
        raise SettingsError(f"{sample}: lies inside the run, which is never written to; give another --sample.")
    with progress_bar(Console(stderr=True)) as tell:
        sources = api.sources(path, settings=chosen, one_run=one_run, progress=tell)
    if as_json:
        print_json(sources_json(sources, __version__))
    else:
        print_sources(sources, open_console())
    if sample is not None:
        _write_sample(path, sample)
    return print_faults(sources.faults) or (Exit.JUDGED if sources.held or sample is not None else Exit.BLIND)


def _write_sample(path: Path, target: Path) -> None:
    """Write the shapes of what was not recognised, and say so where standard output is not in the way."""
    if shapes := api.sample(path):
        write_text(target, shapes)
        typer.echo(f"Sample {target}: read it before you attach it to an issue.", err=True)
    else:
        typer.echo("Every file was recognised: there is nothing to sample.", err=True)
