"""`ptt ingest`: parse a run into a store and say what was read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import typer
from rich.console import Console

from ptt import api
from ptt.cli.exits import print_faults
from ptt.cli.output import output_folder, progress_bar, remote_paths, say_what_stays_here
from ptt.diagnostics.config import Settings
from ptt.diagnostics.store.ingest import UNREADABLE, UNRECOGNISED
from ptt.diagnostics.store.manifest import read_manifest
from ptt.diagnostics.store.scan import read_table
from ptt.executors import Engine, Executor
from ptt.executors import executor as open_executor
from ptt.object_stores.remote_paths import shown


def run(
    path: Path,
    *,
    out: Path | None,
    keep_text: bool,
    settings: Path | None,
    one_run: bool,
    budget_memory: int | None,
    budget_seconds: float | None,
    engine: str,
    ray_address: str | None,
) -> int:
    """Parse the run at `path`, and return the exit code."""
    chosen = api.read_settings(settings)
    chosen = replace(chosen, budget=chosen.budget.overridden(memory_mb=budget_memory, seconds=budget_seconds))
    with open_executor(Engine(engine), ray_address) as executor, remote_paths() as remote:
        folder = remote.output(out, of=[path])
        here = remote.run(path, every_column=True)
        say_what_stays_here(here, engine)
        return _ingest(here, folder, keep_text, chosen, one_run, executor)


def _ingest(path: Path, out: Path | None, keep_text: bool, chosen: Settings, one_run: bool, executor: Executor) -> int:
    with progress_bar(Console(stderr=True)) as tell:
        store = api.ingest(
            path,
            out=output_folder(path, out),
            keep_text=keep_text,
            settings=chosen,
            one_run=one_run,
            progress=tell,
            executor=executor,
        )
    sources = read_table(store, "sources")
    read, rows = (
        sources.filter(~sources["kind"].is_in([UNRECOGNISED, UNREADABLE])).height,
        int(sources["rows_ok"].sum()),
    )
    bad, lost = int(sources["rows_bad"].sum()), int(sources["bytes_lost"].sum())
    typer.echo(f"{read} of {sources.height} files read: {rows} rows, {bad} rejected, {lost} bytes lost")
    typer.echo(f"Store {shown(store)}")
    manifest = read_manifest(store)
    return print_faults(manifest.faults if manifest else {})
