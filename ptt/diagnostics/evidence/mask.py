"""Whether the masks mark what the policy sampled: tool calls against observations, and surprisal against entropy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.evidence.validity import Extent, measure_extent
from ptt.diagnostics.model import JsonScalar
from ptt.diagnostics.statistics.fault_since import FaultSpan, cut_windows, locate_fault, window_numbers
from ptt.diagnostics.statistics.marked_tokens import (
    LISTS,
    SAMPLING,
    UPDATED,
    Surprisal,
    lay_out_marked,
    places_of,
    sampling_columns,
)
from ptt.diagnostics.statistics.mask_faults import (
    MIN_WINDOW,
    Inversion,
    Padding,
    PlaceFault,
    at_faults,
    find_inversion,
    find_padding,
    padding_tokens,
    place_faults,
    window_means,
)
from ptt.diagnostics.statistics.surprisal_excess import (
    JudgedTokens,
    Sampling,
    SurprisalExcess,
    find_excess,
)
from ptt.diagnostics.store.deduplicate_sources import SequenceFile
from ptt.diagnostics.store.scan import READ_ERRORS, SequenceScan, scan_range

READ_TOKENS: Final = 300_000  # held at once, some 15 MB; they give a mean surprisal to a hundredth of a nat
READ_SHARE: Final = 0.02  # of a run's tokens, the most that is decoded for this beyond READ_TOKENS
MAX_RANGES: Final = 96  # of neighbouring sequences, spread over the run
MIN_RANGES: Final = 12  # even where row groups are so large that more than READ_SHARE is decoded


@dataclass(frozen=True, kw_only=True)
class SampledMasks:
    """What sequences spread over the run show."""

    columns: tuple[str, ...]  # whose logprobs are taken for the sampling policy's
    sequences: int
    tokens: int  # marked ones of these
    sampling: Sampling
    whole: Surprisal  # over all tokens except padding and those at faulty places
    places: tuple[PlaceFault, ...]
    padding: Padding | None
    inversion: Inversion | None
    excess: SurprisalExcess | None


@dataclass(frozen=True, kw_only=True)
class UnmarkedCalls:
    """Sequences that name tools, by whether the mask leaves out any token of them."""

    named: int
    share: float  # of these, with every token marked, while the fault holds; over all steps where nothing is found
    span: FaultSpan | None  # None: no fault found


@dataclass(frozen=True, kw_only=True)
class Unobserved:
    """Steps at which the log says that tools are called, while few sequences contain an observation."""

    span: FaultSpan
    expected: float  # share of samples that call a tool, meanwhile
    observed: float  # share of sequences with an observation


@dataclass(frozen=True, kw_only=True)
class MaskEvidence:
    """What is known about the masks."""

    calls: UnmarkedCalls | None = None  # None: no tool is named
    sampled: SampledMasks | None = None  # None: no sequence could be read
    unobserved: Unobserved | None = None  # None: no such steps, or no calls are logged
    extents: Mapping[FaultSpan, Extent] = field(default_factory=dict)  # what is recorded while each fault holds


def gather_mask(tokens: Tokens, facts: Mapping[str, JsonScalar], calls: Series | None) -> MaskEvidence | None:
    """Look at the masks; `calls`: the logged number of tool calls a sample. None where no sequence is sound."""
    rows = tokens.sound_rows
    if rows.is_empty():
        return None
    named, sampled = _unmarked_calls(tokens), _sampled_masks(tokens.scan, facts)
    unobserved = None if calls is None else _unobserved(rows, calls)
    spans = [] if sampled is None else [*sampled.places, sampled.padding, sampled.inversion, sampled.excess]
    held = {one.span for one in (named, unobserved, *spans) if one is not None and one.span is not None}
    return MaskEvidence(
        calls=named,
        sampled=sampled,
        unobserved=unobserved,
        extents={
            span: measure_extent(tokens, rows.filter(pl.col("step").is_between(span.since, span.until)))
            for span in held
        },
    )


MIN_USE: Final = 0.2  # calls a sample: with fewer there is too little to compare
MIN_OBSERVED: Final = 0.25  # of the expected share
MIN_STEPS: Final = 3  # in a window


def _unobserved(rows: pl.DataFrame, calls: Series) -> Unobserved | None:
    """Find the windows of steps whose observations are far fewer than the logged calls."""
    logged = pl.DataFrame(dict(zip(("step", "expected"), calls.finite(), strict=True))).unique("step", keep="last")
    seen = rows.group_by("step").agg((pl.col("n_obs") > 0).mean().alias("observed"))
    both = seen.join(logged, on="step").with_columns(pl.col("expected").clip(0.0, 1.0)).sort("step")
    step, observed, expected = (both[name].to_numpy() for name in ("step", "observed", "expected"))
    windows = cut_windows(step, least=MIN_STEPS)
    number = window_numbers(step, windows)
    shares = [window_means(number, values, len(windows)) for values in (observed, expected)]
    faulty = [bool(use >= MIN_USE and share < MIN_OBSERVED * use) for share, use in zip(*shares, strict=True)]
    told = np.divide(observed, expected, out=np.full(len(step), math.nan), where=expected > 0)
    span = locate_fault(step, told, windows, faulty)
    if span is None:
        return None
    inside = span.holds(step)
    return Unobserved(span=span, expected=float(expected[inside].mean()), observed=float(observed[inside].mean()))


def _sampled_masks(scan: SequenceScan, facts: Mapping[str, JsonScalar]) -> SampledMasks | None:
    frame = _read(scan)
    columns = () if frame is None else sampling_columns(frame)
    marked = None if frame is None or not columns else lay_out_marked(frame, columns)
    if frame is None or marked is None:
        return None
    places = places_of(marked)
    faults = tuple(place_faults(marked, places))
    padding = padding_tokens(marked, places)
    padded = None if padding is None else find_padding(marked, padding)
    left_out = at_faults(marked, places, faults)
    if padding is not None and padded is not None:
        left_out |= padding
    judged = JudgedTokens.of(marked, marked.marked & ~left_out)
    sampling = Sampling(
        temperatures=_recorded(frame, "temperature", facts, TEMPERATURES),
        top_ps=_recorded(frame, "top_p", facts, TOP_PS),
    )
    return SampledMasks(
        columns=columns,
        sequences=marked.sequences,
        tokens=int(marked.marked.sum()),
        sampling=sampling,
        whole=judged.sums.over(np.ones(marked.sequences, np.bool_)),
        places=faults,
        padding=padded,
        inversion=find_inversion(marked),
        excess=find_excess(judged, sampling),
    )


def _unmarked_calls(tokens: Tokens) -> UnmarkedCalls | None:
    """Compare the masks of all sequences with the tools that they name."""
    if "tool_names" not in tokens.scan.columns:
        return None
    named = tokens.scalars.filter(pl.col("tool_names").list.len() > 0).select("seq")
    rows = tokens.sound_rows.join(named, on="seq", how="semi", maintain_order="left").filter(pl.col("n_model") > 0)
    if rows.height < MIN_WINDOW:
        return None
    steps = rows["step"].to_numpy()
    whole = (rows["n_model"] == rows["length"]).to_numpy().astype(np.float64)
    windows = cut_windows(steps)
    shares = window_means(window_numbers(steps, windows), whole, len(windows))
    span = locate_fault(steps, whole, windows, [bool(share >= MIN_WHOLE) for share in shares])
    return UnmarkedCalls(
        named=rows.height,
        share=float((whole if span is None else whole[span.holds(steps)]).mean()),
        span=span,
    )


MIN_WHOLE: Final = 0.5
"""Of the sequences that name a tool: if most have every token marked, tool output is marked too. A call whose answer
the length limit cuts off also leaves such a sequence, in sound runs a fifth of them."""


def _read(scan: SequenceScan) -> pl.DataFrame | None:
    """Read sequences spread over the run, READ_TOKENS tokens in all; None where they cannot be read."""
    names = [name for name in (*NEEDED, *LISTS, *SINGLE) if name in scan.columns]
    parts = []
    try:
        if scan.rows * scan.tokens_per_row <= READ_TOKENS:
            return scan.frame.select(names).collect(engine="streaming")
        for file, first, end in _ranges(scan):
            rows = scan_range([file], first, end)
            here = set(rows.collect_schema().names())
            parts.append(rows.select(name for name in names if name in here).collect(engine="streaming"))
    except READ_ERRORS:  # damage in columns that nothing else reads costs only this check
        return None
    return pl.concat(parts, how="diagonal_relaxed")


NEEDED: Final = ("seq", "step", "model_mask", *SAMPLING, UPDATED)
SINGLE: Final = ("temperature", "top_p")


def _ranges(scan: SequenceScan) -> Iterator[tuple[SequenceFile, int, int]]:
    """Yield ranges of neighbouring sequences, none across files, few enough to decode only a bounded share."""
    total = scan.rows * scan.tokens_per_row
    usual = float(np.median([file.rows for file in scan.files])) * scan.tokens_per_row
    count = int(np.clip(max(READ_TOKENS, READ_SHARE * total) / max(usual, 1.0), MIN_RANGES, MAX_RANGES))
    rows = max(1, int(READ_TOKENS / count / max(scan.tokens_per_row, 1.0)))
    starts = np.array([file.start for file in scan.files])
    for place in np.unique(np.linspace(0, scan.rows - 1, count).astype(np.int64)).tolist():
        file = scan.files[int(np.searchsorted(starts, place, side="right")) - 1]
        first = max(file.start, min(place, file.start + file.rows - rows))
        yield file, first, min(file.start + file.rows, first + rows)


TEMPERATURES: Final = ("temperature", "rollout_temperature")
TOP_PS: Final = ("top_p", "rollout_top_p")


def _recorded(
    frame: pl.DataFrame, column: str, facts: Mapping[str, JsonScalar], names: Sequence[str]
) -> tuple[float, ...]:
    """Return the values that sequences record, or, if they record none, those of the settings."""
    if column in frame.columns and (values := frame[column].drop_nulls().unique().sort().to_list()):
        return tuple(map(float, values))
    said = [facts[name] for name in names if isinstance(facts.get(name), int | float)]
    return tuple(sorted({float(str(value)) for value in said}))
