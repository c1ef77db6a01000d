"""What `ptt baseline` prints: a baseline with its spread, what moved, why a run is none."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ptt.diagnostics.gate.baseline.measure import windows_of
from ptt.diagnostics.gate.baseline.moves import ESS, ESS_OF_WINDOWS, Spread, spreads
from ptt.diagnostics.gate.baseline.values import Baseline, Figures, Moved
from ptt.reports.text.names import joined, slice_name
from ptt.reports.text.numbers import bounds, count, counted, number, percent
from ptt.reports.text.sanitize import safe, shortened

LONGEST_NAME = 40
NAMES = {ESS: "ESS, all late tokens", ESS_OF_WINDOWS: "ESS, mean of windows"}
STYLES = {True: "bold yellow", False: "", None: "dim"}


def print_written(baseline: Baseline, file: str, console: Console) -> None:
    """Say what was written."""
    names = joined([shortened(safe(run.name), LONGEST_NAME) for run in baseline.runs])
    _line(console, f"{safe(file)}: baseline {safe(baseline.name)} of {names}, {_steps(baseline)}.")
    for run in baseline.runs:
        if run.accepted:
            _line(console, f"{_name(run)} was taken although it does not pass: {_accepted(run)}.", style="yellow")
        if run.why_no_tails:
            _line(console, f"{_name(run)} gives no tails: {safe(run.why_no_tails)}.", style="dim")
    if len(baseline.runs) == 1:
        _line(console, ONE_RUN, style="dim")


HOW = "at 1 % over all of them together; each interval is of its figure alone"
ONE_RUN = "One run tells nothing of how far seeds of one setting lie apart; three or more do."


def print_refused(runs: Sequence[Figures], console: Console) -> None:
    """Say which runs are no baseline, and what to do."""
    for run in runs:
        _line(console, f"{_name(run)} is no baseline: {_accepted(run)}.", style="bold red")
    _line(
        console,
        "Nothing was written. Give runs that pass, or say --yes-even-failed: the file then records what they were"
        " accepted with.",
    )


def print_baseline(baseline: Baseline, console: Console) -> None:
    """Print the runs of a baseline, then their late figures with their spread."""
    _line(console, f"Baseline {safe(baseline.name)}: {_steps(baseline)}.", style="bold")
    _print(console, _runs(baseline))
    found = spreads(baseline)
    _print(console, _figures(found))
    for note in _notes(baseline, found):
        _line(console, note, style="dim")
    if len(baseline.runs) == 1:
        _line(console, ONE_RUN, style="dim")
    for run in baseline.runs:
        if run.accepted:
            _line(console, f"{_name(run)} was accepted with: {_accepted(run)}.", style="yellow")
        if run.why_no_tails:
            _line(console, f"{_name(run)} has no tails: {safe(run.why_no_tails)}.", style="dim")


def _runs(baseline: Baseline) -> Table:
    table = _table("run", "framework", "pair", "steps", "sequences", "model tokens", "status")
    for run in baseline.runs:
        first, last, held = run.steps
        cells = (
            _name(run),
            safe(run.framework or "unknown"),
            safe(run.pair or "none"),
            f"{count(first)} to {count(last)} ({count(held)})",
            count(run.sequences),
            count(run.model_tokens),
            safe(run.status).replace("_", " "),
        )
        table.add_row(*map(Text, cells))
    return table


def _figures(found: Sequence[Spread]) -> Table:
    """Give each late figure: its mean over runs, the standard deviation between them, and each run's own noise."""
    table = _table("late figure", "mean", "between runs (SD)", "within a run (SE)", "runs", "late, each run")
    for one in found:
        between = number(one.between) if one.between is not None else "one run"
        cells = (_figure(one), number(one.mean), between, _noise(one), count(one.runs), _counts(one))
        table.add_row(*map(Text, cells))
    return table


def _figure(one: Spread) -> str:
    if one.slice is None:
        return safe(one.statistic)
    if one.statistic in NAMES:
        return f"{slice_name(one.slice)} {NAMES[one.statistic]}"
    return f"{slice_name(one.slice)} {safe(one.statistic)} of |r|, nats"


def _noise(one: Spread) -> str:
    if one.statistic == ESS_OF_WINDOWS:
        return ""
    if one.noise is None:
        return "too few"
    if one.statistic == ESS:
        return percent(one.noise)
    return number(one.noise) if one.slice is None else f"{percent(one.noise)} a span"


def _counts(one: Spread) -> str:
    """Give how many values or tokens a run's figure is of: the fewest and the most where runs differ."""
    if not one.counts:
        return ""
    ends = dict.fromkeys((min(one.counts), max(one.counts)))
    return f"{' to '.join(map(count, ends))} {'values' if one.slice is None else 'tokens'}"


def _notes(baseline: Baseline, found: Sequence[Spread]) -> list[str]:
    """Say what each kind of figure is, and what it is not."""
    late = windows_of(baseline.steps)[2]
    held = {one.statistic for one in found}
    notes = [
        f"Late is the last third, steps {count(late.first)} to {count(late.last)}. A metric's figure is the mean of the"
        " values logged there, and the mean over the runs."
    ]
    if any(one.slice is not None and one.statistic not in NAMES for one in found):
        notes.append(
            "A tail's is the geometric mean of its late spans (each taken as 0.001 nats at least), since runs"
            " are held against it span by span. It is not the percentile of all late tokens at once, which is"
            " what a bound on tail.* is held against."
        )
    if ESS in held:
        notes.append(
            "ESS of all late tokens is what a bound on ess.* is held against; its noise is that of its logarithm. The"
            " mean of windows is of short windows of steps, each by itself: one large weight takes down only the few"
            " that hold it."
        )
    elif ESS_OF_WINDOWS in held:
        notes.append(
            "ESS is the mean over short windows of steps, each by itself. It is not that of all late tokens at once,"
            " which is what a bound on ess.* is held against; renew the baseline to have that too."
        )
    return notes


def print_moves(found: Sequence[Moved], console: Console, *, title: str) -> None:
    """Print every figure before and after, what moved beyond noise first."""
    _line(console, f"{title}:", style="bold")
    if not found:
        _line(console, "  nothing is held by both sides.")
        return
    table = _table("figure", "before", "after", "change, 95 %", "")
    told = [one for one in found if one.beyond_noise is not None]
    order = {True: 0, None: 1, False: 2}
    for one in sorted(found, key=lambda one: order[one.beyond_noise]):
        ratio = one.unit == "x"
        before = "1" if ratio and math.isfinite(one.after) else "" if ratio else _known(one.before)
        after = f"×{number(one.after)}" if ratio and math.isfinite(one.after) else _known(one.after)
        change = bounds(one.low, one.high) if math.isfinite(one.low) and math.isfinite(one.high) else ""
        cells = (_moved(one), before, after, change, safe(one.words))
        table.add_row(*(Text(cell, style=STYLES[one.beyond_noise]) for cell in cells))
    _print(console, table)
    for one in found:
        if one.note:
            _line(console, f"{_moved(one)}: {safe(one.note)}.", style="dim")
    beyond = sum(one.beyond_noise is True for one in found)
    if told:
        _line(console, f"{count(beyond)} of {counted(len(told), 'figure')} moved beyond noise ({HOW}).")
    else:
        _line(console, "Whether any of them moved beyond noise cannot be told.")


def _moved(one: Moved) -> str:
    return f"{slice_name(one.slice or '')} tails" if one.unit == "x" else safe(one.statistic)


def _known(value: float) -> str:
    return number(value) if math.isfinite(value) else ""


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for place, column in enumerate(columns):
        # names are not broken: they are what a reader looks for
        table.add_column(column, overflow="fold", justify="left" if place == 0 else "right", no_wrap=place == 0)
    return table


def _print(console: Console, table: Table) -> None:
    """Print a table without the blanks that fill its last column."""
    with console.capture() as held:
        console.print(table)
    for line in held.get().splitlines():
        console.print(Text.from_ansi(line.rstrip()), soft_wrap=True)


def _line(console: Console, text: str, style: str = "") -> None:
    console.print(Text(text, style=style), soft_wrap=True)


def _steps(baseline: Baseline) -> str:
    return f"steps {count(baseline.steps.first)} to {count(baseline.steps.last)}, {counted(len(baseline.runs), 'run')}"


def _name(run: Figures) -> str:
    return shortened(safe(run.name), LONGEST_NAME)


def _accepted(run: Figures) -> str:
    return joined([safe(one) for one in run.accepted])
