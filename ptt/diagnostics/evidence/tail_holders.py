"""Which value of a recorded attribute holds the tail: a tool, a rank, an environment, a version, a source of prompts.

Two questions, of every value that is recorded beside others: which share of the late tail it holds, and how its own
tails went over the run, where those of all tokens may hide them. Where values are not there all along, both are asked
of the rest alone, as the run's own tails are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.evidence.completions import Completions
from ptt.diagnostics.evidence.passing_values import (
    ENVIRONMENT,
    FROM,
    GROUP,
    LAG,
    LOGP_KIND,
    OBSERVATION,
    RANK,
    RESULT,
    TEMPERATURE,
    TOOL,
    TOP_P,
    VERSION,
    AttributeRows,
    PassingValue,
    all_passing,
    without_values,
)
from ptt.diagnostics.evidence.tail_details import MAX_TURN, RESULT_NAMES, observations_of
from ptt.diagnostics.evidence.tails import TAIL_NATS, Tails, add_units, step_tails
from ptt.diagnostics.evidence.validity import with_ranks
from ptt.diagnostics.statistics import bins
from ptt.diagnostics.statistics.arrays import BoolArray, IntArray
from ptt.diagnostics.statistics.bootstrap import coarse_percentile, histogram_entries
from ptt.diagnostics.statistics.clustered_share import MIN_CLUSTERS, TailShare, tail_shares
from ptt.diagnostics.statistics.histograms import coarse_cells
from ptt.diagnostics.statistics.observation_position import FLOOR
from ptt.diagnostics.statistics.slices import POST_TOOL, TEXT_ONLY
from ptt.diagnostics.statistics.staleness import add_lags
from ptt.diagnostics.statistics.tail_growth import (
    TAIL_QUANTILES,
    SliceTails,
    block_count,
    count_within,
    even_blocks,
    far_block_count,
    slice_tails,
)
from ptt.diagnostics.statistics.windows import Span, bursts, join_spans, split_steps
from ptt.diagnostics.store.scan import ATTRIBUTE

COLUMNS: Final = {
    ENVIRONMENT: "env", RANK: "rank", VERSION: "policy_version", LAG: "bucket", TEMPERATURE: "temperature",
    TOP_P: "top_p", LOGP_KIND: "logp_kind", GROUP: "group_id",
}  # fmt: skip
LIMITS: Final = (0.75, 1.0, 2.0)
"""In nats, edges of coarse bins: where a material, a high and a critical tail begin; 0.75 is the next above ln 2."""
LATE_P99: Final = math.inf
"""Stands for the late p99: where the level was high before, tokens beyond a fixed limit are not what was gained."""
MAX_FROM: Final = 4  # the last observation from which on a tail is looked for: later ones have few tokens
PASSING: Final = "passing"
MAX_VALUES: Final = 64  # of an attribute: those with most tokens in the late window
MAX_LAGS: Final = 16  # distinct lags: more are put into buckets
MIN_VALUE_TOKENS: Final = 100  # in the late window: p99 of fewer is unreliable
MAX_TOKEN_SHARE: Final = 2 / 3  # of the late tokens: a value with more cannot hold the tail at a lift of 1.5
MIN_SPAN: Final = 0.5  # of the late window's steps: a value that comes and goes within them is a time, not a place
MIN_WINDOW_TOKENS: Final = 300  # in the early and the late window each, for a value's own tails
SCREEN_P99: Final = 0.6  # nats: a value whose late p99 is clearly immaterial is not worth testing


@dataclass(frozen=True, kw_only=True)
class HeldTail:
    """One value's share of a late tail, and the percentiles of its |r| and of the others', early and late, in nats."""

    attribute: str
    value: str
    begins: float  # nats: where the tail begins
    tail: TailShare
    own: Mapping[str, tuple[float, float]]  # p95, p99; NaN early where it has too few tokens there
    others: Mapping[str, tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class ValueTails:
    """How the tails of one value went over the run."""

    attribute: str
    value: str
    tails: Tails


@dataclass(frozen=True, kw_only=True)
class Throughout:
    """The values that are not there all along, and the run's tails without them.

    tails: None where too little is left of the early or the late window.
    """

    passing: tuple[PassingValue, ...]
    tails: Tails | None


@dataclass(frozen=True, kw_only=True)
class Holders:
    """What the recorded attributes say about the tail, and about the sequences whose tails are known `throughout`."""

    shares: Mapping[tuple[str, float], tuple[HeldTail, ...]]
    """By "post" or "all" tokens, or of PASSING values, and one of LIMITS or LATE_P99."""
    within: tuple[ValueTails, ...]  # for values with enough tokens and a late p99 that is not immaterial
    tested: int  # values with enough tokens
    throughout: Throughout | None = None  # None: every value occurs all along

    def of(self, scope: str, limit: float) -> tuple[HeldTail, ...]:
        """Return the shares of the tail that begins nearest to `limit` nats, of LATE_P99 at the late p99."""
        known = LIMITS if limit < LATE_P99 else (LATE_P99,)
        return self.shares.get((scope, min(known, key=lambda begin: abs(begin - limit) if limit < LATE_P99 else 0)), ())


NOBODY: Final = Holders(shares={}, within=(), tested=0)


def gather_holders(tokens: Tokens, completions: Completions, tails: Tails) -> Holders | None:
    """Look who holds the tail of the main pair; None where no attribute sets sequences apart."""
    if len(tails.windows) < 3:
        return None
    every, by_tool = _by_sequence(tokens), _by_tool(tokens, completions)
    passing = all_passing(every, by_tool) if tails.periods is None else ()
    if not passing:
        return _held(every, by_tool, tails)
    left = without_values(every, by_tool, passing)
    own = _tails_throughout(left[0], tails)
    throughout = Throughout(passing=passing, tails=own)
    if own is None:
        found = _held(every, by_tool, tails)
        return replace(found or NOBODY, throughout=throughout)
    found = _held(*left, own) or NOBODY
    shares, within = _in_their_time(every, passing, tails)
    return Holders(
        shares={**found.shares, (PASSING, LIMITS[0]): shares},
        within=(*found.within, *within),
        tested=found.tested + len(within),
        throughout=throughout,
    )


def _in_their_time(
    every: AttributeRows, passing: tuple[PassingValue, ...], tails: Tails
) -> tuple[tuple[HeldTail, ...], tuple[ValueTails, ...]]:
    """Return what values hold that came late and stayed, and how their tails went since: that is their own growth."""
    post, text = (every.take(_in_slice(every, number)) for number in (POST_TOOL, TEXT_ONLY))
    within: list[ValueTails] = []
    for one in passing:
        if one.attribute not in every.values or one.away.to_end:
            continue
        rows, before = (
            part.frame.filter(pl.Series(part.values[one.attribute] == one.value, dtype=pl.Boolean))
            for part in (post, text)
        )
        if rows.is_empty() or before.is_empty():
            continue
        own = _tails_of(rows, before, tails, [])
        if len(own.windows) == len(tails.windows) and own.post.window_tokens[[0, -1]].min() >= MIN_WINDOW_TOKENS:
            within.append(ValueTails(attribute=one.attribute, value=one.value, tails=own))
    wanted: dict[str, list[str]] = {}
    for part in within:
        wanted.setdefault(part.attribute, []).append(part.value)
    held = _held_tails([post], [_late(post, tails.windows[-1])], [wanted], tails, LIMITS[0])
    return tuple(held), tuple(within)


def _held(every: AttributeRows, by_tool: AttributeRows, tails: Tails) -> Holders | None:
    """Return who holds the tail; None where no attribute sets sequences apart."""
    in_sequence = _late(every.without_histograms(), tails.windows[-1])
    wanted = {
        "all": [_all_candidates(in_sequence)] if every.values else [],
        "post": [_all_candidates(in_sequence.take(_in_slice(in_sequence, POST_TOOL)))] if every.values else [],
    }
    if by_tool.values:
        wanted["post"].append(_all_candidates(_late(by_tool.without_histograms(), tails.windows[-1])))
    if not any(values for parts in wanted.values() for part in parts for values in part.values()):
        return None
    after = [part for part in (every.take(_in_slice(every, POST_TOOL)), by_tool) if part.values]
    late = {"post": after, "all": [every] if every.values else []}
    looked = {scope: [_late(part, tails.windows[-1]) for part in parts] for scope, parts in late.items()}
    shares = {
        (scope, limit): tuple(_held_tails(late[scope], parts, wanted[scope], tails, limit))
        for scope, parts in looked.items()
        for limit in (*LIMITS, LATE_P99)
    }
    within = list(_within(after, looked["post"], wanted["post"], every, tails))
    if not within and not any(shares.values()):
        return None
    return Holders(shares=shares, within=tuple(part for part in within if part is not None), tested=len(within))


def _tails_throughout(every: AttributeRows, tails: Tails) -> Tails | None:
    """Return the tails of these sequences, over the run's own blocks and windows where they hold enough tokens."""
    post, text = (every.take(_in_slice(every, number)).frame for number in (POST_TOOL, TEXT_ONLY))
    held = [
        int(post.filter(pl.col("step").is_between(span.first, span.last))["n"].cast(pl.Int64).sum())
        for span in (tails.windows[0], tails.windows[-1])
    ]
    if min(held) < MIN_WINDOW_TOKENS or text.is_empty():
        return None
    own = _tails_of(post, text, tails, [])
    return replace(own, bad_tokens=tails.bad_tokens, zero_share=tails.zero_share, equal_at=tails.equal_at)


def _by_sequence(tokens: Tokens) -> AttributeRows:
    """Return the rows of the token pass, with what is recorded of whole sequences."""
    rows = tokens.single_rows.select("seq", "step")
    scalars = tokens.single_scalars.with_columns(pl.col("seq").cast(pl.UInt32))
    scalars = scalars.drop("rank", strict=False)
    known = rows.join(scalars, on="seq", how="left", maintain_order="left")
    known = with_ranks(tokens, known) if "rank" in tokens.scan.columns or tokens.scan.files else known
    known = add_units(known)[0]
    if "policy_version" in known.columns:
        known = add_lags(known)[0]
        if known["lag"].n_unique() <= MAX_LAGS:
            known = known.with_columns(bucket=pl.col("lag").cast(pl.String))
    known = known.sort("seq")
    named = {name: column for name, column in COLUMNS.items() if column in known.columns}
    named |= {name.removeprefix(ATTRIBUTE): name for name in known.columns if name.startswith(ATTRIBUTE)}
    sequences = tokens.tables.sequences
    index = np.searchsorted(known["seq"].to_numpy(), sequences["seq"].to_numpy())
    frame = sequences.select("seq", "step", "slice", "n", "coarse_bin", "coarse_n").with_columns(
        known["unit"].gather(index)
    )
    values = {name: _texts(known[column])[index] for name, column in named.items() if known[column].n_unique() > 1}
    return AttributeRows(frame, values)


def _texts(column: pl.Series) -> npt.NDArray[np.object_]:
    if column.dtype.is_float():
        return np.array([None if value is None else f"{value:g}" for value in column.to_list()], dtype=object)
    return column.cast(pl.String).to_numpy().astype(object)


def _in_slice(part: AttributeRows, number: int) -> BoolArray:
    chosen: BoolArray = part.frame["slice"].to_numpy() == number
    return chosen


def _by_tool(tokens: Tokens, completions: Completions) -> AttributeRows:
    """Return post-tool rows by the observation before them, with its number, its tool and whether it failed.

    Tokens below FLOOR are counted in the last bin below it: a tool's tails are seen from there on.
    """
    stretches = tokens.tables.stretches.filter(pl.col("turn") > 0)
    if stretches.is_empty():
        return AttributeRows(stretches, {})
    rows = tokens.single_rows
    known = observations_of(tokens, completions, rows)
    below = pl.col("n") - pl.col("coarse_n").list.sum()
    last = int(np.searchsorted(bins.coarse_edges(), FLOOR)) - 1
    units = add_units(rows.select("seq").join(tokens.single_scalars, on="seq", how="left", maintain_order="left"))[0]
    frame = stretches.join(known, on=["seq", "turn"], how="left", maintain_order="left").with_columns(
        pl.lit(POST_TOOL, pl.UInt8).alias("slice"),
        pl.concat_list(pl.lit(last, pl.UInt8), "coarse_bin").alias("coarse_bin"),
        pl.concat_list(below.cast(pl.UInt32), "coarse_n").alias("coarse_n"),
    )
    frame = frame.join(rows.select("seq", "step"), on="seq", how="left", maintain_order="left")
    frame = frame.join(units.select("seq", "unit"), on="seq", how="left", maintain_order="left")
    failed = frame["failed"].replace_strict({True: RESULT_NAMES[0], False: RESULT_NAMES[1]}, return_dtype=pl.String)
    of_turn, later = _observation_numbers(frame["turn"].to_numpy().astype(np.int64))
    columns = {TOOL: frame["tool"], RESULT: failed}
    values = {name: column.to_numpy().astype(object) for name, column in columns.items()} | {OBSERVATION: of_turn}
    several = {name: value for name, value in values.items() if len(set(value.tolist()) - {None}) > 1}
    return AttributeRows(frame, several | later)


Values = npt.NDArray[np.object_]


def _observation_numbers(turn: IntArray) -> tuple[Values, dict[str, Values]]:
    """Return the number of the last observation, and for the first few numbers whether it is that one or later."""
    names = np.array([*map(str, range(MAX_TURN)), f"{MAX_TURN}+"], dtype=object)
    later = {}
    for number in range(2, min(int(turn.max(initial=0)), MAX_FROM + 1)):
        later[f"{FROM}{number}"] = np.array([None, f"{number}+"], dtype=object)[(turn >= number).astype(np.int64)]
    return names[np.minimum(turn, MAX_TURN)], later


def attribute_of(name: str) -> str:
    """Return the attribute that a column of values belongs to."""
    return OBSERVATION if name.startswith(FROM) else name


def _late(part: AttributeRows, window: Span) -> AttributeRows:
    step = part.frame["step"].to_numpy()
    return part.take((step >= window.first) & (step <= window.last))


def _clusters(frame: pl.DataFrame) -> IntArray:
    """Number the clusters: the prompt group, else the sequence, within one step."""
    return frame.select(pl.struct("step", "unit").rank("dense")).to_series().to_numpy().astype(np.int64)


Wanted = Mapping[str, list[str]]
"""The values of each attribute that can be set apart."""


def _all_candidates(part: AttributeRows) -> Wanted:
    return {name: _candidates(part, name) for name in part.values}


def _candidates(part: AttributeRows, name: str) -> list[str]:
    """Return the values of one attribute that can be set apart: beside others, and over much of these rows' steps."""
    rows = part.frame.select("step", "unit", pl.col("n").cast(pl.Int64)).with_columns(
        pl.Series("value", part.values[name].tolist(), dtype=pl.String)
    )
    if rows.is_empty():
        return []
    steps = rows["step"].to_numpy()
    span = max(1, int(steps.max() - steps.min()))
    total = int(rows["n"].sum())
    counted = (
        rows.drop_nulls("value")
        .group_by("value")
        .agg(pl.col("n").sum(), (pl.col("step").max() - pl.col("step").min()).alias("span"))
        .filter(
            (pl.col("n") >= MIN_VALUE_TOKENS) & (pl.col("n") <= MAX_TOKEN_SHARE * total),
            pl.col("span") >= MIN_SPAN * span,
        )
    )
    clusters = (
        rows.join(counted, on="value", how="semi")
        .group_by("value")
        .agg(pl.struct("step", "unit").n_unique().alias("clusters"))
        .filter(pl.col("clusters") >= MIN_CLUSTERS)
    )
    apart = counted.join(clusters, on="value", how="semi")
    names: list[str] = apart.sort(["n", "value"], descending=[True, False])["value"].head(MAX_VALUES).to_list()
    return names


def _held_tails(
    parts: list[AttributeRows], late: list[AttributeRows], wanted: list[Wanted], tails: Tails, limit: float
) -> Iterator[HeldTail]:
    """Yield every value with tail tokens at or above `limit`, with percentiles of its rows and the others'."""
    looks = 2 * sum(len(values) for of_part in wanted for values in of_part.values())  # one at a limit, one at LATE_P99
    if not looks:
        return
    begins = max(limit, LIMITS[0])
    if limit == LATE_P99:
        begins = max((_p99(part.frame) for part in late), default=0.0)
    first = max(1, int(np.abs(np.log(bins.coarse_edges()[1:-1] / max(begins, FLOOR))).argmin()) + 1)
    for part, of_late, names in zip(parts, late, wanted, strict=True):
        row, coarse, n = histogram_entries(of_late.frame)
        above = coarse >= first
        tail = np.bincount(row[above], weights=n[above], minlength=of_late.frame.height)
        cluster, count = _clusters(of_late.frame), of_late.frame["n"].to_numpy()
        seq = of_late.frame["seq"].to_numpy()
        for name, values in names.items():
            shares = tail_shares(of_late.values[name], cluster, tail, count, sequence=seq, wanted=values, looks=looks)
            for value, share in zip(values, shares, strict=True):
                if share is not None:
                    own, others = _percentiles(part, name, value, tails)
                    edge = float(bins.coarse_edges()[first])
                    yield HeldTail(
                        attribute=attribute_of(name), value=value, begins=edge, tail=share, own=own, others=others
                    )


def _percentiles(
    part: AttributeRows, name: str, value: str, tails: Tails
) -> tuple[dict[str, tuple[float, float]], dict[str, tuple[float, float]]]:
    """Return p95 and p99 of a value's rows and of the others', early and late."""
    step, own = part.frame["step"].to_numpy(), part.values[name] == value
    row, coarse, n = histogram_entries(part.frame)
    both = []
    for chosen in (own, ~own):
        windows = []
        for span in (tails.windows[0], tails.windows[-1]):
            inside = (chosen & (step >= span.first) & (step <= span.last))[row]
            histogram = np.bincount(coarse[inside], weights=n[inside], minlength=bins.COARSE_COUNT).astype(np.float64)
            windows.append(histogram if histogram.sum() >= MIN_VALUE_TOKENS else np.zeros_like(histogram))
        both.append(
            {
                quantile: (float(coarse_percentile(windows[0], q)), float(coarse_percentile(windows[1], q)))
                for quantile, q in TAIL_QUANTILES.items()
            }
        )
    return both[0], both[1]


def _within(
    after: list[AttributeRows], late_rows: list[AttributeRows], wanted: list[Wanted], every: AttributeRows, tails: Tails
) -> Iterator[ValueTails | None]:
    """Yield the tails of each value with enough tokens, None where a late p99 below SCREEN_P99 says all there is."""
    text_rows = every.take(_in_slice(every, TEXT_ONLY))
    whole_text, all_text = text_rows if every.values else None, text_rows.frame
    all_steps = every.frame["step"].unique().sort().to_list()
    for part, of_late, candidates in zip(after, late_rows, wanted, strict=True):
        of_early = _late(part, tails.windows[0])
        for name, values in candidates.items():
            for value in values:
                before = int(of_early.frame["n"].cast(pl.Int64).to_numpy()[of_early.values[name] == value].sum())
                own = of_late.values[name] == value
                if min(before, int(of_late.frame["n"].cast(pl.Int64).to_numpy()[own].sum())) < MIN_WINDOW_TOKENS:
                    continue
                if _p99(of_late.frame.filter(pl.Series(own, dtype=pl.Boolean))) < SCREEN_P99:
                    yield None
                    continue
                rows = part.frame.filter(pl.Series(part.values[name] == value, dtype=pl.Boolean))
                text = None
                if whole_text is not None and name in whole_text.values:
                    text = whole_text.frame.filter(pl.Series(whole_text.values[name] == value, dtype=pl.Boolean))
                own_tails = _tails_of(rows, text, tails, all_steps, every=all_text)
                yield ValueTails(attribute=attribute_of(name), value=value, tails=own_tails)


def _p99(rows: pl.DataFrame) -> float:
    _, coarse, n = histogram_entries(rows)
    histogram = np.bincount(coarse, weights=n, minlength=bins.COARSE_COUNT).astype(np.float64)
    return float(coarse_percentile(histogram, TAIL_QUANTILES["p99"]))


def _tails_of(
    rows: pl.DataFrame,
    text: pl.DataFrame | None,
    tails: Tails,
    all_steps: list[int],
    *,
    every: pl.DataFrame | None = None,
) -> Tails:
    """Return the tails of one value's rows, in blocks that it fills.

    No token comes before a tool's own, so its text-only tails are those of all sequences (`every`: their rows), in the
    run's own blocks or in joined ones.
    """
    blocks, windows, steps, observations = tails.blocks, tails.windows, all_steps, tails.observations
    far_blocks = tails.far_blocks
    if text is not None:
        steps = pl.concat([rows["step"], text["step"]]).unique().sort().to_list()
    observed = bursts(steps) if tails.observations < tails.steps else split_steps(steps, len(steps))
    if text is not None:
        units = int(rows.select(pl.struct("step", "unit").n_unique()).item())
        fewest = min(int(part["n"].cast(pl.Int64).sum()) for part in (rows, text))
        blocks = even_blocks(observed, block_count(steps=len(steps), units=units, tokens=fewest), (text, rows))
        far_blocks = join_spans(observed, far_block_count(observations=len(observed), tokens=fewest))
        windows, observations = split_steps(steps, 3), len(observed)
    elif every is not None:
        blocks = even_blocks(tails.blocks, len(tails.blocks), (every, rows))
    beside = text if len(blocks) == len(tails.blocks) or text is not None else every
    sixths = split_steps(steps, 6)

    def measured(part: pl.DataFrame, name: str) -> SliceTails:
        return slice_tails(
            coarse_cells(part),
            part.sort("step", "seq"),
            name=name,
            blocks=blocks,
            windows=windows,
            sixths=sixths,
            far=far_blocks,
        )

    own = measured(rows, tails.post.name)
    of_text = tails.text if beside is None else measured(beside, tails.text.name)
    late = [_late_tail(part, windows[-1]) for part in (rows, text) if part is not None]
    return replace(
        tails,
        blocks=blocks,
        far_blocks=far_blocks,
        windows=windows,
        post=own,
        post_steps=step_tails(coarse_cells(rows), observed),
        text=of_text,
        tokens=int(own.tokens.sum()),
        steps=len(steps),
        observations=observations,
        observed_in_blocks=count_within(observed, blocks),
        beyond={},
        equal_at=None,
        bad_tokens=0,
        zero_share=0.0,
        late_tail_share=late[0] / sum(late) if any(late) else math.nan,
    )


def _late_tail(rows: pl.DataFrame, window: Span) -> float:
    """Count the tokens of the late window beyond TAIL_NATS."""
    _, coarse, n = histogram_entries(rows.filter(pl.col("step").is_between(window.first, window.last)))
    return float(n[coarse >= np.searchsorted(bins.coarse_edges(), TAIL_NATS)].sum())
