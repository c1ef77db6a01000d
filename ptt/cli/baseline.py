"""`ptt baseline`: make a baseline of passing runs, show it, and say what moved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ptt import api
from ptt.cli.exits import Exit
from ptt.cli.options import BaselineDiffOptions, BaselineShowOptions, BaselineUpdateOptions
from ptt.cli.output import BASE, contains, progress_bar, remote_paths, run_folders
from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.gate.baseline.file import looks_like_one, read_baseline, text_of
from ptt.diagnostics.gate.baseline.measure import Measured, baseline_of, measure, only_blind, without_refusals
from ptt.diagnostics.gate.baseline.moves import changes, drift, drifted
from ptt.diagnostics.gate.baseline.values import Baseline
from ptt.object_stores.remote_paths import RemotePaths
from ptt.reports.gate.baselines import print_baseline, print_moves, print_refused, print_written
from ptt.reports.output import write_text
from ptt.reports.text.sanitize import safe
from ptt.reports.text.terminal import open_console
from ptt.version import __version__

Place = tuple[Path, Path]  # a run, and the folder of its store


def update(options: BaselineUpdateOptions) -> int:
    """Write the baseline, or say why these runs cannot be one, and return the exit code."""
    with remote_paths() as remote:
        file = remote.no_output(options.file, "the baseline")
        to = remote.output(options.out)  # before the runs are read, which may take long
        places = _places([remote.run(run) for run in options.runs], to, remote)
        return _update(file, places, options)


def _update(file: Path, places: Sequence[Place], options: BaselineUpdateOptions) -> int:
    _check_file(file, [run for run, _ in places])
    console = open_console()
    measured = _measured(places, options.settings)
    refused = [run.facts for run in measured if run.facts.accepted]
    if refused and not options.even_failed:
        print_refused(refused, console)
        blind = all(only_blind(run.accepted) for run in refused)
        return Exit.BLIND if blind else Exit.FAILED
    old, why_not = _old(file)
    baseline = baseline_of(measured, name=options.name or file.stem, version=__version__)
    try:
        write_text(file, text_of(baseline))
    except OSError as error:  # --out, which a refused place is answered with elsewhere, does not move this file
        raise SettingsError(f"{file}: cannot be written: {error.strerror or error}; give another file.") from error
    print_written(baseline, str(file), console)
    if why_not:
        console.print(why_not, markup=False, highlight=False)
    elif old is not None:
        print_moves(changes(old, measured), console, title="What moved, on the steps of the old baseline")
    return Exit.JUDGED


def show(options: BaselineShowOptions) -> int:
    """Print a baseline."""
    with remote_paths() as remote:
        print_baseline(read_baseline(remote.run(options.file)), open_console())
    return Exit.JUDGED


def diff(options: BaselineDiffOptions) -> int:
    """Print what moved from the old baseline to the new one, or to the runs of --against."""
    if (options.new is None) == (not options.against):
        raise SettingsError("give either another baseline file, or runs with --against.")
    with remote_paths() as remote:
        at_hand = [remote.run(run) for run in options.against or ()]
        places = _places(at_hand, remote.output(options.out), remote)
        _diff(remote.run(options.old), remote.maybe(options.new), places, options.settings)
    return Exit.JUDGED


def _diff(old: Path, new: Path | None, against: Sequence[Place], settings: Path | None) -> None:
    before, console = read_baseline(old), open_console()
    if new is not None:
        print_moves(changes(before, read_baseline(new)), console, title="What moved")
        return
    measured = _measured(against, settings)
    print_moves(changes(before, measured), console, title="What moved, on the steps of the baseline")
    known = {run.source for run in before.runs}
    newer = [run for run in without_refusals(measured) if run.facts.source not in known]
    if drifting := drifted(drift(before, newer), len(newer)):
        console.print(f"Drift: {drifting}.", markup=False, highlight=False)


def _places(runs: Sequence[Path], out: Path | None, remote: RemotePaths) -> list[Place]:
    """Pair each run with its store folder, the one of an earlier command where there is one."""
    folders = run_folders(runs, out or Path(BASE))
    remote.read_earlier(folders)
    return [*zip(runs, folders, strict=True)]


def _measured(places: Sequence[Place], settings: Path | None) -> list[Measured]:
    """Open each run; the same run twice is no second seed."""
    chosen = api.read_settings(settings)
    measured: dict[str, Measured] = {}
    with progress_bar(Console(stderr=True)) as progress:
        for run, run_path in places:
            progress("opening runs", len(measured), len(places))
            candidate = measure(api.open_run(run, out=run_path, settings=chosen))
            if (same := measured.get(candidate.facts.source)) is not None:
                raise SettingsError(f"{run}: is the same run as {same.facts.name}; give each run once.")
            measured[candidate.facts.source] = candidate
    return list(measured.values())


def _check_file(file: Path, runs: Sequence[Path]) -> None:
    for run in runs:
        if file.resolve() == run.resolve() or contains(run, file):
            raise SettingsError(f"{file}: lies inside a run, which is never written to; give another file.")
    if file.is_dir():
        raise SettingsError(f"{file}: is a folder; give the file to write.")
    if file.exists() and not looks_like_one(file):
        raise SettingsError(
            f"{file}: exists and is not a baseline; it was not overwritten. Give the baseline file first, then the"
            " runs, or move this file away."
        )


def _old(file: Path) -> tuple[Baseline | None, str]:
    """Read the baseline that is renewed; one that cannot be read is written over, and that is said."""
    if not file.exists():
        return None, ""
    try:
        return read_baseline(file), ""
    except SettingsError as error:
        return None, f"Cannot say what moved, because the old file could not be read. {safe(str(error))}"
