"""The commands that look and do not judge: `ptt show`, `ptt ingest`, `ptt sources` and `ptt rules`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import typer
from rich.console import Console

from ptt import api
from ptt.cli.exits import Exit, print_faults
from ptt.cli.options import IngestOptions, RulesOptions, ShowOptions, SourcesOptions
from ptt.cli.output import contains, output_folder, progress_bar, remote_paths, say_what_stays_here
from ptt.cli.streams import print_json
from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.store.ingest import UNREADABLE, UNRECOGNISED
from ptt.diagnostics.store.manifest import read_manifest
from ptt.diagnostics.store.scan import read_table
from ptt.executors import Engine
from ptt.executors import executor as open_executor
from ptt.object_stores.remote_paths import shown
from ptt.reports.output import write_text
from ptt.reports.run.listings import (
    pages_json,
    print_page,
    print_pages,
    print_report,
    print_sample,
    print_samples,
    print_sources,
    report_json,
    sample_json,
    samples_json,
    sources_json,
)
from ptt.reports.text.terminal import open_console
from ptt.run_location import TRACES, store_at
from ptt.version import __version__


def show(options: ShowOptions) -> int:
    """Print the sample, or without one those that findings rest on, and return the exit code; nothing is written."""
    with remote_paths() as remote:
        out = remote.no_output(options.out, "--out")
        path = remote.run(options.run, every_column=True)
        given = out or remote.output(None, of=[options.run])
        out = output_folder(path, given)
        if given is None and store_at(out) is None and store_at(of_traces := output_folder(path, None, ends=TRACES)):
            out = of_traces
        settings = api.read_settings(options.settings)
        if options.sample is None:
            with progress_bar(Console(stderr=True)) as tell:
                listed = api.finding_samples(path, out=out, settings=settings, one_run=options.one_run, progress=tell)
            if options.as_json:
                print_json(samples_json(listed, __version__))
            else:
                print_samples(listed, shown(path), open_console())
            return Exit.JUDGED
        sample = api.show(
            path,
            options.sample,
            text=options.text,
            pair=options.pair,
            out=out,
            settings=settings,
            one_run=options.one_run,
        )
    if options.as_json:
        print_json(sample_json(sample, __version__))
    else:
        print_sample(sample, open_console(), every_token=options.every_token)
    return Exit.JUDGED


def ingest(options: IngestOptions) -> int:
    """Parse the run into a store, say what was read, and return the exit code."""
    settings = api.read_settings(options.settings)
    budget = settings.budget.overridden(memory_mb=options.budget_memory, seconds=options.budget_seconds)
    with open_executor(Engine(options.engine), options.ray_address) as executor, remote_paths() as remote:
        folder = remote.output(options.out, of=[options.run])
        path = remote.run(options.run, every_column=True)
        say_what_stays_here(path, options.engine)
        with progress_bar(Console(stderr=True)) as tell:
            store = api.ingest(
                path,
                out=output_folder(path, folder),
                keep_text=options.keep_text,
                settings=replace(settings, budget=budget),
                one_run=options.one_run,
                progress=tell,
                executor=executor,
            )
        sources = read_table(store, "sources")
        read = sources.filter(~sources["kind"].is_in([UNRECOGNISED, UNREADABLE])).height
        rows, bad, lost = (int(sources[name].sum()) for name in ("rows_ok", "rows_bad", "bytes_lost"))
        typer.echo(f"{read} of {sources.height} files read: {rows} rows, {bad} rejected, {lost} bytes lost")
        typer.echo(f"Store {shown(store)}")
        manifest = read_manifest(store)
        return print_faults(manifest.faults if manifest else {})


def sources(options: SourcesOptions) -> int:
    """Print what the run holds, and return the exit code; nothing is kept but the sample of unrecognised files."""
    with remote_paths() as remote:
        path, sample = remote.run(options.run), remote.no_output(options.sample, "--sample")
        settings = api.read_settings(options.settings)
        if sample is not None and (contains(path, sample) or sample.resolve() == path.resolve()):
            raise SettingsError(f"{sample}: lies inside the run, which is never written to; give another --sample.")
        with progress_bar(Console(stderr=True)) as tell:
            found = api.sources(path, settings=settings, one_run=options.one_run, progress=tell)
        if options.as_json:
            print_json(sources_json(found, __version__))
        else:
            print_sources(found, open_console())
        if sample is not None:
            _write_sample(path, sample)
        if options.strict and found.names_nothing:
            raise SettingsError(" ".join(found.names_nothing))
        return print_faults(found.faults) or (Exit.JUDGED if found.held or sample is not None else Exit.BLIND)


def _write_sample(path: Path, target: Path) -> None:
    """Write the shapes of what was not recognised, and say so on standard error, which JSON does not use."""
    if shapes := api.sample(path):
        write_text(target, shapes)
        typer.echo(f"Sample {target}: read it before you attach it to an issue.", err=True)
    else:
        typer.echo("Every file was recognised: there is nothing to sample.", err=True)


def rules(options: RulesOptions) -> int:
    """Print the catalogue, one rule, or a check of custom rules; wrong rules end as wrong settings do."""
    if options.check:
        if options.name is not None:
            raise SettingsError(f"--check reads files, but {options.name!r} names a rule; give one of the two.")
        report = api.check_rules(options.check)
        if options.as_json:
            print_json(report_json(report, __version__))
        else:
            print_report(report, open_console())
        return Exit.USAGE if report.problems else Exit.JUDGED
    pages = api.rule_pages() if options.name is None else (api.rule_page(options.name),)
    if options.as_json:
        print_json(pages_json(pages, __version__))
    elif options.name is None:
        print_pages(pages, open_console())
    else:
        print_page(pages[0], open_console())
    return Exit.JUDGED
