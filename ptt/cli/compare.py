"""`ptt compare`: open every run, compare, write, print."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from rich.console import Console

from ptt import api
from ptt.cli.exits import Exit, figure_faults
from ptt.cli.options import CompareOptions
from ptt.cli.output import DRAWING, check_figures, contains, output_base, progress_bar, remote_paths
from ptt.cli.streams import print_json
from ptt.cli.traces import write_comparison
from ptt.diagnostics.compare.arms import group_of, names_of, planned
from ptt.diagnostics.compare.comparison import Comparison, blind
from ptt.diagnostics.config import Settings
from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.traces.compare import TraceSide, compare_traces
from ptt.object_stores.client import is_url
from ptt.object_stores.remote_paths import RemotePaths, shown
from ptt.reports.compare.html import render_compare_page, write_compare_figures
from ptt.reports.compare.markdown import compare_markdown
from ptt.reports.compare.terminal import print_comparison
from ptt.reports.compare.texts import compare_json
from ptt.reports.figures.faults import FigureFault
from ptt.reports.output import write_text
from ptt.reports.text.terminal import open_console
from ptt.reports.traces.comparison import compare_traces_json, print_compared
from ptt.run_location import traces_at
from ptt.version import __version__

MAX_JOBS: Final = 4  # by default: each judges with threads of its own, and holds a run's tokens


def run(options: CompareOptions) -> int:
    """Compare runs and return the exit code."""
    runs, group, baseline = options.runs or (), options.group or (), options.baseline
    settings = api.read_settings(options.settings)
    with remote_paths() as remote:
        remote.no_output(options.figures, "--figures")
        out = remote.output(options.out)  # before the runs are read, which may take long
        at_hand: dict[str, Path] = {}
        for text in [*map(str, runs), *(member for given in group for member in group_of(given)[1])]:
            if is_url(text) and (key := str(Path(text))) not in at_hand:
                at_hand[key] = remote.run(Path(text))
        local = replace(
            options,
            group=[_with_paths(text, at_hand) for text in group],
            baseline=str(at_hand.get(str(Path(baseline)), baseline)) if baseline else baseline,
            out=out,
        )
        return _run([at_hand.get(str(path), path) for path in runs], local, settings, remote)


def _with_paths(group: str, at_hand: Mapping[str, Path]) -> str:
    name, members = group_of(group)
    return f"{name}={','.join(str(at_hand.get(str(Path(member)), member)) for member in members)}"


def _run(runs: Sequence[Path], options: CompareOptions, settings: Settings, remote: RemotePaths) -> int:
    groups = _groups(options.group or ())
    base, folder = _places(runs, options.out)
    _check_outputs([*runs, *(Path(member) for members in groups.values() for member in members)], folder, options)
    remote.read_earlier([base / name for name in planned(runs, groups, options.baseline).names])
    with progress_bar(Console(stderr=True)) as tell:
        compared = api.compare(
            runs,
            groups=groups,
            baseline=options.baseline,
            out=base,
            settings=settings,
            rules=options.rules or (),
            jobs=options.jobs or min(os.cpu_count() or 1, MAX_JOBS),
            progress=tell,
        )
        tell(DRAWING, 0, 1)
        if (sets := _trace_sets(runs, compared, base)) is not None:
            return _compare_traces(*sets, folder=folder, as_json=options.as_json)
        text = compare_json(compared, __version__)
        write_text(folder / "compare.json", text)
        write_text(folder / "compare.md", compare_markdown(compared))
        page = render_compare_page(compared)
        report = write_text(folder / "compare.html", page.text)
        faults = list(page.faults)
        if options.figures is not None:
            write_compare_figures(compared, options.figures, faults)
    if options.as_json:
        print_json(text)
    else:
        print_comparison(compared, open_console(), shown(report))
    return figure_faults(faults) or (Exit.BLIND if blind(compared.tables) else Exit.JUDGED)


def _groups(given: Sequence[str]) -> dict[str, tuple[str, ...]]:
    groups: dict[str, tuple[str, ...]] = {}
    for text in given:
        name, members = group_of(text)
        if name in groups:
            raise SettingsError(f"--group {name}: given twice; list all its runs at once: {name}=RUN,RUN.")
        groups[name] = members
    return groups


def _check_outputs(paths: Sequence[Path], folder: Path, options: CompareOptions) -> None:
    """Refuse to write into a run."""
    for path in paths:
        if contains(path, folder):
            raise SettingsError(
                f"{folder}: lies inside {path}, which is never written to; give another place with --out."
            )
        if options.figures is not None:
            check_figures(path, options.figures)


def _trace_sets(runs: Sequence[Path], compared: Comparison, base: Path) -> tuple[TraceSide, TraceSide] | None:
    """Return two sets of agent traces, the baseline first; None where the runs are anything else."""
    if len(runs) != 2 or len(compared.arms) != 2 or not blind(compared.tables):
        return None
    paths = dict(zip(names_of(runs), runs, strict=True))
    sides = [traces_at(paths[arm.name], base / arm.name) for arm in compared.arms if arm.name in paths]
    first, second = sides if len(sides) == 2 else (None, None)
    return None if first is None or second is None else (first, second)


def _compare_traces(first: TraceSide, second: TraceSide, *, folder: Path, as_json: bool) -> int:
    """Compare two sets of agent traces, and return the exit code."""
    faults: list[FigureFault] = []
    compared = compare_traces(first, second)
    report = write_comparison(compared, folder, faults)
    if as_json:
        print_json(compare_traces_json(compared, __version__))
    else:
        print_compared(compared, open_console(), shown(report))
    return figure_faults(faults) or (Exit.JUDGED if compared.compared else Exit.BLIND)


def _places(runs: Sequence[Path], out: Path | None) -> tuple[Path, Path]:
    """Return where each run's folder goes, and where the comparison's files go."""
    if out is not None:
        return out / "runs", out
    base = output_base(runs)
    return base, base / "compare"
