"""`ptt show`: one sample of a run, or the samples that its findings rest on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from ptt import api
from ptt.cli.exits import Exit
from ptt.cli.output import output_folder, progress_bar, remote_paths
from ptt.cli.streams import print_json
from ptt.object_stores.remote_paths import shown
from ptt.reports.run.sample import print_sample, print_samples, sample_json, samples_json
from ptt.reports.text.terminal import open_console
from ptt.version import __version__


@dataclass(frozen=True, kw_only=True)
class ShowOptions:
    """What the options ask for."""

    text: bool
    every_token: bool
    pair: str | None
    out: Path | None
    settings: Path | None
    one_run: bool
    as_json: bool


def run(path: Path, sample: str | None, options: ShowOptions) -> int:
    """Print the sample, or without one those that findings rest on, and return the exit code; nothing is written."""
    with remote_paths() as remote:
        out = remote.no_output(options.out, "--out")
        here = remote.run(path, every_column=True)
        return _run(here, sample, replace(options, out=out or remote.output(None, of=[path])))


def _run(path: Path, sample: str | None, options: ShowOptions) -> int:
    chosen = api.read_settings(options.settings)
    out = output_folder(path, options.out)
    if sample is None:
        with progress_bar(Console(stderr=True)) as tell:
            listed = api.finding_samples(path, out=out, settings=chosen, one_run=options.one_run, progress=tell)
        if options.as_json:
            print_json(samples_json(listed, __version__))
        else:
            print_samples(listed, shown(path), open_console())
        return Exit.JUDGED
    one = api.show(
        path, sample, text=options.text, pair=options.pair, out=out, settings=chosen, one_run=options.one_run
    )
    if options.as_json:
        print_json(sample_json(one, __version__))
    else:
        print_sample(one, open_console(), every_token=options.every_token)
    return Exit.JUDGED
