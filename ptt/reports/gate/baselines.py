"""What `ptt baseline` prints: a baseline with its spread, what moved, why a run cannot be one."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ptt.diagnostics.gate.baseline.measure import windows_of
from ptt.diagnostics.gate.baseline.moves import ESS, ESS_OF_WINDOWS, Spread, spreads
from ptt.diagnostics.gate.baseline.tails import WHERE, reach
from ptt.diagnostics.gate.baseline.values import Baseline, Figures, Moved
from ptt.reports.text.names import joined, slice_name
from ptt.reports.text.numbers import bounds, count, counted, number, percent
from ptt.reports.text.sanitize import safe, shortened

MAX_NAME = 40
UNSOUND = frozenset({"suspect", "unstable"})
ESS_NAMES = {ESS: "ESS, all late tokens", ESS_OF_WINDOWS: "ESS, mean of windows"}
# of figures that moved beyond noise, that did not, and where it is not known
STYLES = {True: "bold yellow", False: "", None: "dim"}


HOW = "at 1% over all figures together; each interval covers its own figure"
ONE_RUN = "One run does not show how much seeds of one setting differ. Use three or more."


def print_written(baseline: Baseline, file: str, console: Console) -> None:
    """Print what was written."""
    names = joined([_name(run) for run in baseline.runs])
    _line(console, f"{safe(file)}: baseline {safe(baseline.name)} of {names}, {_steps(baseline)}.")
    _run_notes(baseline, console, accepted="was accepted although it does not pass", no_tails="gives no tails")
    _print_reach(baseline, console)
    if len(baseline.runs) == 1:
        _line(console, ONE_RUN, style="dim")


def _run_notes(baseline: Baseline, console: Console, *, accepted: str, no_tails: str) -> None:
    for run in baseline.runs:
        if run.accepted:
            _line(console, f"{_name(run)} {accepted}: {_accepted(run)}.", style="yellow")
        elif run.status in UNSOUND:
            text = f"{_name(run)} is {run.status} by its diagnosis: what is wrong with it becomes what passes"
            _line(console, f"{text}.", style="yellow")
        if run.why_no_tails:
            _line(console, f"{_name(run)} {no_tails}: {safe(run.why_no_tails)}.", style="dim")


def _print_reach(baseline: Baseline, console: Console) -> None:
    """Print what the baseline can bound, and what it cannot and why."""
    for bound in reach(baseline):
        size = f"{bound.fails_from:g} times as high fail" if bound.fails_from else "of no height fail"
        text = f"{slice_name(bound.slice)} tails {WHERE[bound.window]}: in a run like these, tails {size}"
        if bound.open:
            text += f"; a rise of {bound.excluded:g} times cannot be excluded in {joined([*bound.open])}"
        if bound.apart:
            text += f"; the seeds lie a log-SD of {bound.apart:.2g} apart, not the {bound.assumed:.2g} assumed"
        _line(console, f"{text[0].upper()}{text[1:]}.", style="yellow" if bound.open else "dim")


def print_refused(runs: Sequence[Figures], console: Console) -> None:
    """Print which runs are no baseline, and what to do."""
    for run in runs:
        _line(console, f"{_name(run)} cannot be a baseline: {_accepted(run)}.", style="bold red")
    _line(
        console,
        "No baseline was written. Give runs that pass, or add --yes-even-failed: the file then records "
        "why they would not pass.",
    )


def print_baseline(baseline: Baseline, console: Console) -> None:
    """Print the runs of a baseline, then their late figures with their spread."""
    _line(console, f"Baseline {safe(baseline.name)}: {_steps(baseline)}.", style="bold")
    _print_runs(baseline, console)
    figures = spreads(baseline)
    _print_figures(figures, console)
    for note in _notes(baseline, figures):
        _line(console, note, style="dim")
    if len(baseline.runs) == 1:
        _line(console, ONE_RUN, style="dim")
    _run_notes(baseline, console, accepted="was accepted with", no_tails="has no tails")
    _print_reach(baseline, console)


def _print_runs(baseline: Baseline, console: Console) -> None:
    table = _table("run", "framework", "pair", "steps", "sequences", "model tokens", "status")
    for run in baseline.runs:
        first, last, recorded = run.steps
        cells = (
            _name(run),
            safe(run.framework or "unknown"),
            safe(run.pair or "none"),
            f"{count(first)} to {count(last)} ({count(recorded)})",
            count(run.sequences),
            count(run.model_tokens),
            safe(run.status).replace("_", " "),
        )
        table.add_row(*map(Text, cells))
    _print(console, table)


def _print_figures(figures: Sequence[Spread], console: Console) -> None:
    """Print each late figure: its mean over runs, the standard deviation between them, and each run's own noise."""
    table = _table("late figure", "mean", "between runs (SD)", "within a run (SE)", "runs", "late, each run")
    for figure in figures:
        between = number(figure.between) if figure.between is not None else "one run"
        cells = (_figure(figure), number(figure.mean), between, _noise(figure), count(figure.runs), _counts(figure))
        table.add_row(*map(Text, cells))
    _print(console, table)


def _figure(figure: Spread) -> str:
    if figure.slice is None:
        return safe(figure.statistic)
    if figure.statistic in ESS_NAMES:
        return f"{slice_name(figure.slice)} {ESS_NAMES[figure.statistic]}"
    return f"{slice_name(figure.slice)} {safe(figure.statistic)} of |r|, nats"


def _noise(figure: Spread) -> str:
    if figure.statistic == ESS_OF_WINDOWS:
        return ""
    if figure.noise is None:
        return "too few"
    if figure.statistic == ESS:
        return percent(figure.noise)
    return number(figure.noise) if figure.slice is None else f"{percent(figure.noise)} a span"


def _counts(figure: Spread) -> str:
    """Return how many values or tokens a run's figure is of: the fewest and the most where runs differ."""
    if not figure.counts:
        return ""
    ends = dict.fromkeys((min(figure.counts), max(figure.counts)))
    return f"{' to '.join(map(count, ends))} {'values' if figure.slice is None else 'tokens'}"


def _notes(baseline: Baseline, figures: Sequence[Spread]) -> list[str]:
    """Return what each kind of figure is, and what it is not."""
    late = windows_of(baseline.steps)[2]
    statistics = {figure.statistic for figure in figures}
    notes = [
        f"Late is the last third, steps {count(late.first)} to {count(late.last)}. A metric's figure is the mean "
        "of the values logged there, averaged over the runs."
    ]
    if any(figure.slice is not None and figure.statistic not in ESS_NAMES for figure in figures):
        notes.append(
            "A tail's figure is the geometric mean of its late spans (each at least 0.001 nats), "
            "because runs are compared with it span by span. A bound on tail.* is different: it applies "
            "to the percentile of all late tokens at once."
        )
    if ESS in statistics:
        notes.append(
            "A bound on ess.* applies to the ESS of all late tokens; its noise is that of its "
            "logarithm. The mean of windows averages short windows of steps: one large weight lowers only the "
            "windows that contain it."
        )
    elif ESS_OF_WINDOWS in statistics:
        notes.append(
            "ESS here is the mean over short windows of steps. A bound on ess.* applies to "
            "the ESS of all late tokens at once; make the baseline anew to record that too."
        )
    return notes


def print_moves(moves: Sequence[Moved], console: Console, *, title: str) -> None:
    """Print every figure before and after, what moved beyond noise first."""
    _line(console, f"{title}:", style="bold")
    if not moves:
        _line(console, "  the two sides have no figure in common.")
        return
    table = _table("figure", "before", "after", "change, 95%", "")
    order = (True, None, False)
    for move in sorted(moves, key=lambda move: order.index(move.beyond_noise)):
        before, after = _known(move.before), _known(move.after)
        if move.unit == "x":
            before, after = ("1", f"×{after}") if after else ("", "")
        change = bounds(move.low, move.high) if math.isfinite(move.low) and math.isfinite(move.high) else ""
        cells = (_moved(move), before, after, change, safe(move.words))
        table.add_row(*(Text(cell, style=STYLES[move.beyond_noise]) for cell in cells))
    _print(console, table)
    for move in moves:
        if move.note:
            _line(console, f"{_moved(move)}: {safe(move.note)}.", style="dim")
    judged = [move.beyond_noise for move in moves if move.beyond_noise is not None]
    if judged:
        _line(console, f"{count(sum(judged))} of {counted(len(judged), 'figure')} moved beyond noise ({HOW}).")
    else:
        _line(console, "Whether any of them moved beyond noise is unclear.")


def _moved(move: Moved) -> str:
    return f"{slice_name(move.slice or '')} tails" if move.unit == "x" else safe(move.statistic)


def _known(value: float) -> str:
    return number(value) if math.isfinite(value) else ""


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for index, column in enumerate(columns):
        # names are not broken: they are what a reader looks for
        table.add_column(column, overflow="fold", justify="right" if index else "left", no_wrap=index == 0)
    return table


def _print(console: Console, table: Table) -> None:
    """Print a table without the blanks that fill its last column."""
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        console.print(Text.from_ansi(line.rstrip()), soft_wrap=True)


def _line(console: Console, text: str, style: str = "") -> None:
    console.print(Text(text, style=style), soft_wrap=True)


def _steps(baseline: Baseline) -> str:
    return f"steps {count(baseline.steps.first)} to {count(baseline.steps.last)}, {counted(len(baseline.runs), 'run')}"


def _name(run: Figures) -> str:
    return shortened(safe(run.name), MAX_NAME)


def _accepted(run: Figures) -> str:
    return joined([safe(finding) for finding in run.accepted])
