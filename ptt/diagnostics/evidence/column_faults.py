"""Which logprob columns are shifted, copied, scaled or belong to other sequences, in which slice and at which steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.evidence.validity import Extent, measure_extent
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.bins import UNDERFLOW
from ptt.diagnostics.statistics.cells import LOGP_COLUMNS, grouped_sums
from ptt.diagnostics.statistics.column_faults import (
    Found,
    Pairing,
    find_copies,
    find_scales,
    find_shifts,
    find_unrelated,
)
from ptt.diagnostics.statistics.fault_since import FaultSpan, fault_span, weigh_values
from ptt.diagnostics.statistics.fill_values import Fills
from ptt.diagnostics.statistics.logprob_pairs import PAIRS
from ptt.diagnostics.statistics.pair_sample import lay_out_columns
from ptt.diagnostics.statistics.slices import SLICES

MIN_FAULT_STEPS: Final = 3  # recorded ones: at the first a policy may equal its reference, and at one that is re-set
LEAST_SIZE: Final = 1e-12  # nats, of a step's mean |r|: of a copy it is 0


@dataclass(frozen=True, kw_only=True)
class ColumnFault:
    """A fault of logprob columns, and how much of the records it affects.

    pairs: names of those that show it; column: the one they share, None where only one pair is recorded.
    """

    found: Found
    pairs: tuple[str, ...]
    column: str | None
    extent: Extent

    @property
    def span(self) -> FaultSpan:
        """The steps it lasts."""
        return self.found.span

    @property
    def whole_run(self) -> bool:
        """Whether it holds at every recorded step."""
        return self.span.from_start and self.span.to_end


def fault_of(faults: Sequence[ColumnFault], pair: str) -> ColumnFault | None:
    """Return a fault of a pair or of one of its columns; policy and old logprobs may be equal, and are no fault."""
    sides = {f"{side}_logp" for side in pair.split("/")}
    for fault in faults:
        if (pair in fault.pairs or fault.column in sides) and not (
            pair == "policy/old" and fault.found.kind == "copied" and pair in fault.pairs
        ):
            return fault
    return None


def gather_column_faults(tokens: Tokens, rows: pl.DataFrame, fills: Mapping[str, Fills]) -> tuple[ColumnFault, ...]:
    """Check every pair of columns on the sampled sequences, and merge findings that one column explains."""
    columns = lay_out_columns(tokens.tables.samples, rows.filter(pl.col("n_obs") > 0)["seq"], LOGP_COLUMNS, fills)
    if not len(columns.step):
        return ()
    recorded = rows["step"].unique().sort().to_numpy()
    faults: dict[str, list[tuple[str, Found]]] = {}
    for pair in PAIRS:
        if not set(pair.columns) <= columns.values.keys():
            continue
        for found in _faults_of(Pairing(columns, *pair.columns)):
            refined = _to_the_step(found, pair.name, tokens, recorded)
            if refined.span.holds(recorded).sum() >= MIN_FAULT_STEPS or len(recorded) < MIN_FAULT_STEPS:
                faults.setdefault(found.kind, []).append((pair.name, refined))
    return tuple(
        ColumnFault(
            found=group[0][1],
            pairs=tuple(name for name, _ in group),
            column=_column(group),
            extent=_extent(tokens, rows, group[0][1]),
        )
        for of_kind in faults.values()
        for group in _groups(of_kind)
    )


FINDERS: Final[Sequence[Callable[[Pairing], tuple[Found, ...]]]] = (
    find_shifts,
    find_copies,
    find_scales,
    find_unrelated,
)
"""The first to find something names the fault: a shifted column also belongs to other tokens."""


def _faults_of(pairing: Pairing) -> tuple[Found, ...]:
    return next((found for find in FINDERS if (found := find(pairing))), ())


def _groups(faults: Sequence[tuple[str, Found]]) -> Iterator[list[tuple[str, Found]]]:
    """Yield the findings of each single fault: pairs that share a column, at the same steps and in the same slice."""
    left = list(faults)
    while left:
        first, *others = left
        group = [first]
        for other in others:
            alike = other[1].slice == first[1].slice and _overlap(other[1].span, first[1].span)
            if alike and _shared([name for name, _ in (*group, other)]) is not None:
                group.append(other)
        yield group
        left = [one for one in others if one not in group]


def _overlap(one: FaultSpan, other: FaultSpan) -> bool:
    return one.since <= other.until and other.since <= one.until


def _column(group: Sequence[tuple[str, Found]]) -> str | None:
    """Return the faulty column: where old logprobs equal the reference's all along, and the policy's do not, theirs."""
    pair, found = group[0]
    if len(group) == 1 and pair == "old/ref" and found.kind == "copied" and found.span.from_start and found.span.to_end:
        return "old_logp"
    return _shared([name for name, _ in group])


def _shared(pairs: Sequence[str]) -> str | None:
    """Return the column that two pairs or more have in common."""
    common = set.intersection(*(set(pair.split("/")) for pair in pairs))
    return f"{common.pop()}_logp" if len(pairs) > 1 and len(common) == 1 else None


def _extent(tokens: Tokens, rows: pl.DataFrame, found: Found) -> Extent:
    held = rows.filter(pl.col("step").is_between(found.span.since, found.span.until))
    if found.slice == SLICES[1]:
        held = held.filter(pl.col("n_obs") > 0)
    return measure_extent(tokens, held)


def _to_the_step(found: Found, pair: str, tokens: Tokens, recorded: IntArray) -> Found:
    """Place the fault by all tokens of a step where the sampled ones leave it open."""
    span = found.span
    names = [one.name for one in tokens.pairs]
    wide = span.since_interval[0] < span.since_interval[1] or span.until_interval[0] < span.until_interval[1]
    if pair not in names or not wide or (span.from_start and span.to_end):
        return found
    level = _levels(tokens, names.index(pair), found, recorded)
    faulty = (recorded >= span.since_interval[1]) & (recorded <= span.until_interval[0])
    sound = (recorded < span.since_interval[0]) | (recorded > span.until_interval[1])
    again = fault_span(recorded, weigh_values(level, sound, faulty))
    if again is None or not (_within(again.since, span.since_interval) and _within(again.until, span.until_interval)):
        return found
    return replace(found, span=again)


def _within(step: int, interval: tuple[int, int]) -> bool:
    return interval[0] <= step <= interval[1]


def _levels(tokens: Tokens, number: int, found: Found, recorded: IntArray) -> FloatArray:
    """Return of each recorded step what the fault changes: the share of equal logprobs, or the size of |r|."""
    cells = tokens.tables.cells_of(number).select("step", "slice", "bin", "n", "s_abs")
    if found.slice is not None:
        cells = cells.filter(pl.col("slice") == SLICES.index(found.slice))
    cells = cells.with_columns(pl.when(pl.col("bin") == UNDERFLOW).then(pl.col("n")).otherwise(0).alias("zero"))
    sums = grouped_sums(cells, ("step",), ("n", "s_abs", "zero"))
    level = np.full(len(recorded), np.nan)
    n, size, zero = (sums[name].to_numpy().astype(np.float64) for name in ("n", "s_abs", "zero"))
    at = np.searchsorted(recorded, sums["step"].to_numpy())
    level[at] = zero / n if found.kind == "copied" else np.log(np.maximum(size / n, LEAST_SIZE))
    return level
