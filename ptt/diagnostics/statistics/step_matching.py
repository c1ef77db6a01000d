"""Cut several runs into spans that cover the same stretch of training, whatever steps each run recorded."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.tail_curves import SPAN_COUNT, Profile
from ptt.diagnostics.statistics.windows import Span

MIN_SPANS: Final = 6  # fewer do not show how noisy they are
MAX_NAMED_RUNS: Final = 3  # runs in a reason


@dataclass(frozen=True, kw_only=True)
class MatchedSpans:
    """Spans of the same stretches of an axis: for each run, as many, in its own steps."""

    spans: tuple[tuple[Span, ...], ...]  # one entry a run
    first: float  # what all runs share of the axis
    last: float
    edges: tuple[float, ...]  # one more than there are spans, on the axis


@dataclass(frozen=True, kw_only=True)
class NotMatched:
    """Why runs share too little of an axis."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class LoggedTotal:
    """A running total of tokens trained on, as a trainer logs it."""

    steps: IntArray
    totals: FloatArray


def match_by_steps(
    profiles: Sequence[Profile], count: int = SPAN_COUNT, names: Sequence[str] = ()
) -> MatchedSpans | NotMatched:
    """Return spans of trainer steps; each holds about as many recorded steps of the run that recorded fewest.

    names: of the runs, for the reason where they cannot be matched.
    """
    steps = [recorded_steps(profile) for profile in profiles]
    return _match("steps", steps, [recorded.astype(np.float64) for recorded in steps], count, _named(names, steps))


def match_by_tokens(
    profiles: Sequence[Profile],
    count: int = SPAN_COUNT,
    totals: Sequence[LoggedTotal | None] | None = None,
    names: Sequence[str] = (),
) -> MatchedSpans | NotMatched:
    """Return spans that each cover the same number of trained model tokens.

    A logged running total is used only if every run has one, or units would differ. Without it, tokens of unrecorded
    steps are interpolated linearly between recorded ones.
    """
    steps = [recorded_steps(profile) for profile in profiles]
    logged = [total for total in totals or () if total is not None]
    if len(logged) == len(profiles):
        positions = [_logged_tokens(recorded, total) for recorded, total in zip(steps, logged, strict=True)]
        if all(_rising(total) for total in positions):
            return _match("tokens", steps, positions, count, _named(names, steps))
    positions = [_tokens_trained(profile, recorded) for profile, recorded in zip(profiles, steps, strict=True)]
    return _match("tokens", steps, positions, count, _named(names, steps))


def recorded_steps(profile: Profile) -> IntArray:
    """Return the steps with recorded tokens, ascending."""
    steps: IntArray = profile.cells["step"].unique().sort().to_numpy().astype(np.int64)
    return steps


def _tokens_trained(profile: Profile, steps: IntArray) -> FloatArray:
    """Return the tokens trained on up to the middle of each recorded step; of others, what lies on a line between."""
    by_step = profile.cells.group_by("step").agg(pl.col("n").cast(pl.Int64).sum()).sort("step")
    tokens = by_step["n"].to_numpy().astype(np.float64)
    if not len(steps):
        return tokens
    apart = np.diff(steps)
    # tokens of the steps after one recorded step up to and including the next
    added = apart * (tokens[:-1] + tokens[1:]) / 2 + (tokens[1:] - tokens[:-1]) / 2
    before = tokens[0] * max(0, int(steps[0]) - 1)  # steps count from 1 (or 0); the first recorded stands for those
    at: FloatArray = before + tokens[0] + np.append(0.0, np.cumsum(added)) - tokens / 2
    return at


def _logged_tokens(steps: IntArray, logged: LoggedTotal) -> FloatArray:
    usable = np.isfinite(logged.totals)
    order = np.argsort(logged.steps[usable], kind="stable")
    if not usable.any():
        return np.full(len(steps), np.nan)
    return np.interp(steps, logged.steps[usable][order], logged.totals[usable][order], left=np.nan, right=np.nan)


def _rising(totals: FloatArray) -> bool:
    finite = totals[np.isfinite(totals)]
    return len(finite) >= MIN_SPANS and bool((np.diff(finite) >= 0).all())


def _named(names: Sequence[str], steps: Sequence[IntArray]) -> Sequence[str]:
    return names or ["a run"] * len(steps)


def _match(
    axis: str, steps: Sequence[IntArray], positions: Sequence[FloatArray], count: int, names: Sequence[str]
) -> MatchedSpans | NotMatched:
    """Cut the part of the axis that all runs share into at most `count` parts in which every run recorded a step."""
    usable = [recorded[np.isfinite(at)] for recorded, at in zip(steps, positions, strict=True)]
    positions = [at[np.isfinite(at)] for at in positions]
    if bare := [name for name, at in zip(names, positions, strict=True) if not len(at)]:
        return NotMatched(reason=f"{bare[0]} has no recorded step")
    begins, ends = [float(at[0]) for at in positions], [float(at[-1]) for at in positions]
    first, last = max(begins), min(ends)
    if last < first:
        ended, begun = names[ends.index(last)], names[begins.index(first)]
        begin = f"another begins at {first:,.0f}" if ended == begun else f"{begun} begins at {first:,.0f}"
        return NotMatched(reason=f"the runs share no {axis}: {ended} ends at {last:,.0f}, {begin}")
    inside = [at[(at >= first) & (at <= last)] for at in positions]
    fewest = min(inside, key=len)
    shared = f"of the {axis} that all runs share ({first:,.0f} to {last:,.0f})"
    if short := [(name, len(at)) for name, at in zip(names, inside, strict=True) if len(at) < MIN_SPANS]:
        listed = ", ".join(f"{name} recorded only {count_steps(recorded)}" for name, recorded in short[:MAX_NAMED_RUNS])
        more = f" and {len(short) - MAX_NAMED_RUNS} more runs too few" if len(short) > MAX_NAMED_RUNS else ""
        return NotMatched(reason=f"{shared} {listed}{more}; at least {MIN_SPANS} are needed")
    spans: list[list[Span]] = []
    for parts in range(max(MIN_SPANS, min(count, len(fewest))), MIN_SPANS - 1, -1):
        edges = np.linspace(first, last, parts + 1) if axis == "tokens" else _between(fewest, parts, first, last)
        spans = [_spans(recorded, at, edges) for recorded, at in zip(usable, positions, strict=True)]
        if all(len(cut) == parts for cut in spans):
            matched = tuple(tuple(cut) for cut in spans)
            return MatchedSpans(spans=matched, first=first, last=last, edges=tuple(edges.tolist()))
    worst = min(range(len(spans)), key=lambda run: len(spans[run]))
    return NotMatched(
        reason=f"{shared} {names[worst]} recorded {count_steps(len(inside[worst]))}, which leave gaps: cut into"
        f" {MIN_SPANS} parts, {MIN_SPANS - len(spans[worst])} would contain none of them; each needs one"
    )


def count_steps(steps: int) -> str:
    """Return a number of steps and its noun."""
    return f"{steps} step" + ("" if steps == 1 else "s")


def _between(positions: FloatArray, parts: int, first: float, last: float) -> FloatArray:
    """Return edges halfway between parts of as equal a number of places as can be."""
    # longer parts are spread out, not all first: a third of the parts is then a third of the run
    pieces = np.split(positions, np.arange(1, parts) * len(positions) // parts)
    cuts = [(float(piece[-1]) + float(next_piece[0])) / 2 for piece, next_piece in pairwise(pieces)]
    return np.array([first, *cuts, last])


def _spans(steps: IntArray, positions: FloatArray, edges: FloatArray) -> list[Span]:
    """Return the recorded steps of each part, its upper edge excluded except the last; empty parts are left out."""
    part = np.searchsorted(edges, positions, side="right") - 1
    part[positions == edges[-1]] = len(edges) - 2
    pieces = (steps[part == number] for number in range(len(edges) - 1))
    return [Span(int(piece[0]), int(piece[-1])) for piece in pieces if len(piece)]
