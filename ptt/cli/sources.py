"""`ptt sources`: what was found in a run, what it can answer, and what would record the rest."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.console import Console

from ptt import api
from ptt.cli.output import progress_bar
from ptt.reports.run.sources import print_sources, sources_json
from ptt.version import __version__


def run(path: Path, *, settings: Path | None, as_json: bool) -> None:
    """Print what the run at `path` holds; nothing is kept."""
    chosen = api.read_settings(settings)
    with progress_bar(Console(stderr=True)) as tell:
        sources = api.sources(path, settings=chosen, progress=tell)
    if as_json:
        typer.echo(sources_json(sources, __version__), nl=False)
    else:
        print_sources(sources, Console())
