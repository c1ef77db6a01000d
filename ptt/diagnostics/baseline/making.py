"""Make a baseline of measured runs: seeds of one setting, over the steps that all of them share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ptt.diagnostics.baseline.measuring import LEAST_LOGGED, LOST_SHARE, Measured, figures_of
from ptt.diagnostics.baseline.values import Baseline, Figures
from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.statistics.matched import Matched, NotMatched, matched_by_steps
from ptt.diagnostics.statistics.windows import Span

LEAST_SHARED: Final = 0.5  # of the longest run's steps: a baseline of less says little about such runs


def without_refusals(runs: Sequence[Measured]) -> list[Measured]:
    """Give the runs that could be a baseline."""
    return [run for run in runs if not run.facts.accepted]


def baseline_of(runs: Sequence[Measured], *, name: str, version: str) -> Baseline:
    """Make a baseline of runs of one setting: figures of each over the steps that all of them share."""
    if not runs:
        raise SettingsError("a baseline needs a run; `ptt baseline update FILE RUN...` takes one or more.")
    first, last = max(run.first for run in runs), min(run.last for run in runs)
    longest = max(run.last - run.first + 1 for run in runs)
    if last - first + 1 < LEAST_SHARED * longest or longest < 1:
        raise SettingsError(_share_too_little(runs))
    shared = Span(first, last)
    frameworks = sorted({run.facts.framework for run in runs if run.facts.framework is not None})
    if len(frameworks) > 1:
        raise SettingsError(
            f"these runs are of different frameworks ({', '.join(frameworks)}), whose metrics are means of different"
            " things; give each framework a baseline of its own."
        )
    held = [run.profile for run in runs if run.profile is not None]
    pairs = sorted({profile.pair for profile in held})
    if len(pairs) > 1:
        raise SettingsError(
            f"these runs record different pairs of logprobs ({', '.join(pairs)}): they are no seeds of one setting;"
            " give each pair a baseline of its own."
        )
    names = [run.facts.name for run in runs if run.profile is not None]
    matched = matched_by_steps(held, names=names) if held else None
    spans = iter(matched.spans if isinstance(matched, Matched) else ())
    why = matched.reason if isinstance(matched, NotMatched) else ""
    figures = []
    for run in runs:
        one = figures_of(run, shared, next(spans, ()) if run.profile is not None else ())
        figures.append(_to_keep(replace(one, why_no_tails=why) if why and run.profile is not None else one))
    for one in figures:
        if not one.metrics and not one.tails:
            raise SettingsError(_nothing_in(one.name))
    return Baseline(name=name, ptt_version=version, steps=shared, runs=_named(figures))


def _to_keep(figures: Figures) -> Figures:
    """Leave out metrics whose late values are no numbers, and what only a run held against the baseline needs."""
    kept = [
        one
        for one in figures.metrics
        if one.not_numbers <= LOST_SHARE * (one.not_numbers + one.late.n)
        and sum(window.n for window in one.windows) >= LEAST_LOGGED
    ]
    return replace(figures, metrics=tuple(replace(one, not_numbers=0, reach=None) for one in kept))


def _named(figures: Sequence[Figures]) -> tuple[Figures, ...]:
    """Number equal names."""
    seen: dict[str, int] = {}
    found = []
    for one in figures:
        seen[one.name] = seen.get(one.name, 0) + 1
        found.append(replace(one, name=f"{one.name}-{seen[one.name]}") if seen[one.name] > 1 else one)
    return tuple(found)


def _nothing_in(name: str) -> str:
    return (
        f"{name}: nothing in it can be kept in a baseline: no metric with {LEAST_LOGGED} values, no tokens with two"
        " logprobs; `ptt sources` says what the run holds."
    )


def _share_too_little(runs: Sequence[Measured]) -> str:
    empty = [run.facts.name for run in runs if run.last < run.first]
    if empty:
        return _nothing_in(empty[0])
    spans = "; ".join(f"{run.facts.name}: {run.first} to {run.last}" for run in runs)
    return (
        f"these runs share less than half of their steps ({spans}); a baseline is of runs of one length: give runs"
        " that reached about the same step."
    )
