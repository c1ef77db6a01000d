"""What a tail after tools follows: output the reference hardly knows, failed calls, length, exposure, or none of these.

A bounded number of steps is read again with token ids, and only where a finding is about such a tail. What the policy
says is set against its probability under the reference, by slice, novelty of the tool's output, result, tokens since,
and confidence; the late tail is split by statistics/tail_origin.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.evidence.audited_steps import rows_of_sequences
from ptt.diagnostics.evidence.completions import Completions
from ptt.diagnostics.evidence.tail_details import NO_RESULTS, NOT_TIED, RESULT_NAMES, observations_of
from ptt.diagnostics.evidence.tails import IDS, TAIL_NATS, Tails, add_units
from ptt.diagnostics.model import Interval, OutputDiversity, Support, SupportMass, SupportShare
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray
from ptt.diagnostics.statistics.attribution import moment_factors, shapley_split
from ptt.diagnostics.statistics.bootstrap import interval
from ptt.diagnostics.statistics.observation_position import DISTANCES, distance_of
from ptt.diagnostics.statistics.output_novelty import KINDS, output_novelty, row_hashes
from ptt.diagnostics.statistics.slices import MIN_OBSERVATION, SLICES, Batch, lay_out
from ptt.diagnostics.statistics.tail_origin import (
    CANNOT_TELL,
    Share,
    attributable_shares,
    leading,
    level_scores,
    redrawn_sums,
)
from ptt.diagnostics.statistics.windows import WINDOWS, Span, split_steps
from ptt.diagnostics.store.scan import READ_ERRORS

MAX_TOKENS: Final = 1 << 19  # read again: some 5% of the time of a diagnosis of 20M tokens
STEPS_READ: Final = 15  # of a run with more tokens: five in each third
GOLDEN: Final = (math.sqrt(5) - 1) / 2  # multiples of it spread evenly over 0 to 1
MIN_GROUPS: Final = 20  # with tokens after tools in the late window: with fewer, redrawing them tells nothing
MIN_TAIL: Final = 50  # tokens in that window's tail
UNSUPPORTED: Final = 0.01  # probability: what the reference would say once in a hundred times
CONFIDENT: Final = (0.5, 0.9, 0.99)  # edges of the policy's probability
CONFIDENCES: Final = ("below 0.5", "0.5 to 0.9", "0.9 to 0.99", "above 0.99")
FROZEN: Final = 1.1  # late over middle |r|, either way: surely less is no movement
POST: Final = 1
BLOCKS: Final = 12  # of steps, in the course
MIN_BLOCK_TOKENS: Final = 20  # of a part in a block
TABLE: Final = "support_course"
COURSE_PARTS: Final = ("text_only", "failed", "familiar", "unfamiliar")
COURSE: Final[dict[str, pl.DataType]] = {
    "step_first": pl.Int64(),
    "step_last": pl.Int64(),
    **{name: pl.Float64() for name in ("step_mid", "alpha", *COURSE_PARTS)},
}
NO_IDS: Final = "token_ids are not recorded: write them beside the logprobs"
ALIKE: Final = "the tools' outputs of the late window are all equally familiar, so their novelty explains no difference"
NO_GROWTH: Final = "the tail a token did not surely grow"


@dataclass(frozen=True, kw_only=True)
class TokensAgain:
    """The policy's tokens of the steps read, (tokens,) each, and the stretches after an observation, one a row.

    stretch: -1 before any observation. stretches: seq, turn, step, begin (response tokens before the output); came (the
    step of the rollout), kind, familiarity and whole (a hash) where token ids are recorded.
    """

    steps: int
    step: IntArray
    unit: IntArray
    stretch: IntArray
    since: IntArray
    policy: FloatArray  # probabilities
    reference: FloatArray
    magnitude: FloatArray  # |r|, nats
    stretches: pl.DataFrame

    @property
    def excess(self) -> FloatArray:
        """Nats of |r| above TAIL_NATS: the tail."""
        return np.maximum(self.magnitude - TAIL_NATS, 0.0)


def gather_support(
    tokens: Tokens, completions: Completions, tails: Tails
) -> tuple[Support, dict[str, pl.DataFrame]] | None:
    """Read steps again and say what the tail follows, with its course; None where nothing after a tool can be read."""
    try:
        again = _read_again(tokens)
    except READ_ERRORS:  # damage in a column that no other stage reads: what can be judged has been
        return None
    if again is None or again.stretches.is_empty() or len(tails.windows) < len(WINDOWS):
        return None
    window = _window_of(again.step, tails.windows)
    rows = tokens.sound_rows.drop("ok").filter(pl.col("seq").is_in(again.stretches["seq"].unique().implode()))
    known = observations_of(tokens, completions, rows)
    stretches = again.stretches.join(known, on=["seq", "turn"], how="left", maintain_order="left")
    late = (window == len(WINDOWS) - 1) & (again.stretch >= 0)
    shares, missing = _shares(again, stretches, late, completions)
    exposure = _exposure(again, window)
    groups = len(np.unique(again.unit[late]))
    few = ""
    if groups < MIN_GROUPS or np.count_nonzero(again.excess[late]) < MIN_TAIL:
        few = f"the late window holds {groups} prompt groups with tokens after tools, or too few tokens in the tail"
        shares, exposure = {}, None
    if exposure is not None:
        shares["exposure"] = exposure
    unmeasured = {**dict.fromkeys(("errors", "novelty", "length", "exposure"), few), "exposure": few or NO_GROWTH}
    unmeasured |= missing if not few else {}
    changes, ratio = _movement(again, window)
    support = Support(
        follows=CANNOT_TELL if few else leading(shares, unmeasured=bool(missing)),
        reason=few or "; ".join(missing.values()),
        pair=tokens.pairs[0].name,
        steps=again.steps,
        tokens=len(again.step),
        groups=groups,
        shares=tuple(_told(name, shares.get(name), reason) for name, reason in unmeasured.items()),
        masses=tuple(_masses(again, stretches, window)),
        outputs=tuple(_outputs(stretches, tails.windows)),
        alpha=_alpha(again, window),
        changes=changes,
        change=None if ratio is None else ratio.value,
        change_interval=None if ratio is None else ratio.interval,
    )
    return support, {TABLE: _course(again, stretches)}


def _told(cause: str, share: Share | None, reason: str) -> SupportShare:
    if share is None or not math.isfinite(share.value):
        return SupportShare(cause=cause, share=None, interval=None, reason=reason)
    return SupportShare(cause=cause, share=share.value, interval=share.interval)


def rows_to_read(tokens: Tokens) -> pl.DataFrame:
    """Choose sequences, seq and step: all of a short run; else neighbours in steps spread evenly over it.

    Half of the tokens are of the last third, which is split by cause. Neighbours are of few prompt groups, and cheap to
    read; where in a step they stand changes from step to step, so that no rank is read alone.
    """
    rows = (
        tokens.sound_rows.select("seq", "step", pl.col("length").cast(pl.Int64)).drop_nulls("step").sort("step", "seq")
    )
    if not rows.height or int(rows["length"].sum()) <= MAX_TOKENS:
        return rows.drop("length")
    steps = rows["step"].unique(maintain_order=True).to_numpy()
    chosen = steps[np.unique(np.linspace(0, len(steps) - 1, STEPS_READ).round().astype(np.int64))]
    late = chosen > steps[2 * len(steps) // 3 - 1]
    number = np.searchsorted(chosen, rows["step"].to_numpy())
    inside = (number < len(chosen)) & (chosen[np.minimum(number, len(chosen) - 1)] == rows["step"].to_numpy())
    rows, number = rows.filter(pl.Series(inside)), number[inside]
    sizes = np.bincount(number, minlength=len(chosen))
    a_row = float(rows["length"].sum()) / rows.height
    most = np.ceil(MAX_TOKENS / 2 / a_row / np.where(late, max(late.sum(), 1), max((~late).sum(), 1)))
    first = np.floor((np.arange(len(chosen)) * GOLDEN % 1.0) * np.maximum(sizes - most, 0))
    place = np.arange(len(number)) - (np.cumsum(sizes) - sizes)[number]
    kept = (place >= first[number]) & (place < (first + most)[number])
    return rows.filter(pl.Series(kept)).drop("length")


def _read_again(tokens: Tokens) -> TokensAgain | None:
    pair, wanted = tokens.pairs[0], rows_to_read(tokens)
    if wanted.is_empty():
        return None
    names = ("model_mask", "token_ids", "tool_names", *IDS, *pair.columns)
    frame = rows_of_sequences(tokens.scan, wanted.select("seq"), columns=names).drop_nulls(
        ["model_mask", *pair.columns]
    )
    if "tool_names" in frame.columns:
        frame = frame.with_columns(pl.col("tool_names").list.len().alias("tool_count"))
    batch = lay_out(frame, list(pair.columns), MIN_OBSERVATION)
    if batch is None or not len(batch.runs.row):
        return None
    runs, unit = batch.runs, add_units(frame)[0]["unit"].rank("dense").to_numpy().astype(np.int64) - 1
    run = np.repeat(np.arange(len(runs.row)), runs.length)
    top, bottom = (batch.logps[name][batch.is_model].astype(np.float64) for name in pair.columns)
    magnitude = np.abs(top - bottom)
    usable = np.flatnonzero(np.isfinite(magnitude))
    run, top, bottom = run[usable], top[usable], bottom[usable]
    first = np.cumsum(runs.length) - runs.length
    heads, stretch = _stretch_of_runs(batch)
    return TokensAgain(
        steps=wanted["step"].n_unique(), step=batch.step[runs.row[run]], unit=unit[runs.row[run]], stretch=stretch[run],
        since=runs.since[run] + usable - first[run], policy=np.exp(top), reference=np.exp(bottom),
        magnitude=magnitude[usable], stretches=_stretches(frame, batch, heads),
    )  # fmt: skip


def _stretch_of_runs(batch: Batch) -> tuple[IntArray, IntArray]:
    """Return the first run of each stretch, and each run's stretch, -1 before any observation."""
    runs = batch.runs
    fresh = (runs.turn > 0) & ((np.diff(runs.turn, prepend=0) != 0) | (np.diff(runs.row, prepend=-1) != 0))
    return np.flatnonzero(fresh), np.where(runs.turn > 0, np.cumsum(fresh) - 1, -1)


def _stretches(frame: pl.DataFrame, batch: Batch, heads: IntArray) -> pl.DataFrame:
    """Describe the output before each stretch, whose first run is one of `heads`."""
    runs = batch.runs
    row, end = runs.row[heads], runs.place[heads]
    begin = (runs.place + runs.length)[heads - 1]
    plain = pl.DataFrame(
        {"seq": batch.seq[row], "turn": runs.turn[heads], "step": batch.step[row], "begin": begin},
        schema={"seq": pl.UInt32, "turn": pl.UInt32, "step": pl.Int64, "begin": pl.Int64},
    )
    if not len(heads) or "token_ids" not in frame.columns or frame["token_ids"].null_count():
        return plain
    if not np.array_equal(frame["token_ids"].list.len().to_numpy(), batch.length):
        return plain
    starts = np.append(0, np.cumsum(batch.length))
    ids = frame["token_ids"].explode(empty_as_null=False).cast(pl.Int64).to_numpy()
    came, own = _first_seen(row_hashes(ids, starts), batch.step)
    size = end - begin
    offsets = np.append(0, np.cumsum(size))
    at = np.arange(offsets[-1]) + np.repeat(starts[row] + begin - offsets[:-1], size)
    new = output_novelty(ids[at], offsets, came[row], own[row])
    return plain.with_columns(
        came=pl.Series(came[row]), kind=pl.Series(new.kind), familiarity=pl.Series(new.familiarity),
        whole=pl.Series(new.whole),
    )  # fmt: skip


def _first_seen(hashes: npt.NDArray[np.uint64], step: IntArray) -> tuple[IntArray, BoolArray]:
    """Return the step at which each row's tokens first came, and whether this is the row: rollouts may be reused."""
    order = np.lexsort((step, hashes))
    fresh = np.append(True, hashes[order][1:] != hashes[order][:-1])
    first = order[np.maximum.accumulate(np.where(fresh, np.arange(len(order)), 0))]
    came, own = np.empty(len(step), np.int64), np.zeros(len(step), np.bool_)
    came[order] = step[first]
    own[order[fresh]] = True
    return came, own


def _window_of(step: IntArray, windows: Sequence[Span]) -> IntArray:
    """Return the number of each step's window, -1 between them."""
    number = np.searchsorted([span.first for span in windows], step, side="right") - 1
    last = np.array([span.last for span in windows])
    return np.where((number >= 0) & (step <= last[number]), number, -1)


def _shares(
    again: TokensAgain, stretches: pl.DataFrame, late: BoolArray, completions: Completions
) -> tuple[dict[str, Share], dict[str, str]]:
    """Return the shares of the late tail by cause, and why others cannot be told."""
    missing: dict[str, str] = {}
    stretch, height = again.stretch[late], stretches.height
    tokens = np.bincount(stretch, minlength=height).astype(np.float64)
    tail = np.bincount(stretch, weights=again.excess[late], minlength=height).astype(np.float64)
    unit = np.zeros(height, np.int64)
    unit[stretch] = again.unit[late]
    here = np.flatnonzero(tokens)
    tokens, tail, rows = tokens[here], tail[here], stretches[here]
    failed = rows["failed"].fill_null(value=False).to_numpy()
    scores: dict[str, FloatArray] = {}
    if rows["failed"].is_not_null().any():
        scores["errors"] = failed.astype(np.float64)
    else:
        missing["errors"] = NO_RESULTS if completions.calls["ok"].null_count() == completions.calls.height else NOT_TIED
    if "familiarity" in rows.columns:
        score, known = np.zeros(len(here)), rows["familiarity"].is_not_nan().to_numpy() & ~failed
        score[known] = level_scores(-rows["familiarity"].to_numpy()[known], tokens[known])
        scores["novelty"] = score
        if not score.any():
            missing["novelty"] = ALIKE
    else:
        missing["novelty"] = NO_IDS
    scores["length"] = level_scores(rows["begin"].to_numpy().astype(np.float64), tokens)
    dense = np.unique(unit[here], return_inverse=True)[1]
    shares = attributable_shares(tail, tokens, dense, scores) if tail.any() else {}
    if "errors" in shares and not failed.any():  # all calls are known to have succeeded
        shares["errors"] = Share.of(np.zeros_like(np.append(0.0, shares["length"].drawn)))
    return shares, missing


def _by_window_and_slice(again: TokensAgain, window: IntArray, values: Mapping[str, FloatArray]) -> FloatArray:
    """Sum tokens and `values` by window and slice, as recorded and redrawn: (1 + draws, windows, 2, 1 + values)."""
    inside = window >= 0
    cell = np.where(inside, 2 * window + (again.stretch >= 0), 2 * len(WINDOWS))
    columns = np.stack([np.ones(len(window)), *values.values()], axis=1)
    sums = redrawn_sums(columns, cell, again.unit, cells=2 * len(WINDOWS) + 1)
    return sums[:, :-1].reshape(len(sums), len(WINDOWS), 2, -1)


def _exposure(again: TokensAgain, window: IntArray) -> Share | None:
    """Return the share of the growth of the tail a token that is a larger share of tokens after tools.

    The split is exact (attribution.shapley_split). None where the tail did not surely grow.
    """
    sums = _by_window_and_slice(again, window, {"tail": again.excess})
    factors = [moment_factors(np.concatenate([sums[:, place, :, 0], sums[:, place, :, 1]], -1)) for place in (0, -1)]
    parts = shapley_split(*factors)
    if not interval(parts[1:, 0])[0] > 0:
        return None
    return Share.of(parts[:, 1] / parts[:, 0])


def _alpha(again: TokensAgain, window: IntArray) -> Interval | None:
    """Return the share of tokens after tools, early and late."""
    shares = [float(np.mean(again.stretch[window == place] >= 0)) for place in (0, 2) if (window == place).any()]
    return (shares[0], shares[1]) if len(shares) == len((0, 2)) else None


def _movement(again: TokensAgain, window: IntArray) -> tuple[str, Share | None]:
    """Say whether the policy still moves after tools: its mean |r| there, late third over middle third."""
    sums = _by_window_and_slice(again, window, {"r": again.magnitude})[:, 1:, POST]
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = sums[..., 1] / sums[..., 0]
        ratio = Share.of(mean[:, 1] / mean[:, 0])
    if not math.isfinite(ratio.value):
        return CANNOT_TELL, None
    low, high = ratio.interval
    if low > 1 or high < 1:
        return "moves", ratio
    return "frozen" if low >= 1 / FROZEN and high <= FROZEN else CANNOT_TELL, ratio


def _masses(again: TokensAgain, stretches: pl.DataFrame, window: IntArray) -> Iterator[SupportMass]:
    """Yield the reference's mass in each part of the early and the late window."""
    after, at = again.stretch >= 0, np.maximum(again.stretch, 0)
    result = stretches["failed"].replace_strict({True: 0, False: 1}, default=-1, return_dtype=pl.Int64).to_numpy()
    keys: dict[str, tuple[IntArray, Sequence[str]]] = {
        "slice": (after.astype(np.int64), SLICES),
        "tool result": (np.where(after, result[at], -1), RESULT_NAMES),
        "distance": (np.where(after, distance_of(again.since), -1), DISTANCES),
        "confidence": (np.where(after, np.searchsorted(CONFIDENT, again.policy, side="right"), -1), CONFIDENCES),
    }
    if "kind" in stretches.columns:
        keys["novelty"] = (np.where(after, stretches["kind"].to_numpy()[at], -1), KINDS)
    excess = again.excess
    values = np.stack(
        [np.ones(len(after)), again.policy, again.reference, again.reference < UNSUPPORTED, excess], axis=1
    )
    for place, name in ((0, "early"), (2, "late")):
        for by, (key, names) in keys.items():
            inside = (window == place) & (key >= 0)
            if not inside.any():
                continue
            unit = np.unique(again.unit[inside], return_inverse=True)[1]
            sums = redrawn_sums(values[inside], key[inside], unit, cells=len(names))
            whole = float(sums[0, :, 4].sum())
            for number in np.flatnonzero(sums[0, :, 0]).tolist():
                with np.errstate(invalid="ignore"):
                    means = sums[:, number, 1:4] / sums[:, number, :1]
                yield SupportMass(
                    window=name, by=by, value=names[number], tokens=int(sums[0, number, 0]),
                    groups=len(np.unique(unit[key[inside] == number])), policy=float(means[0, 0]),
                    reference=float(means[0, 1]), reference_interval=interval(means[1:, 1]),
                    unsupported=float(means[0, 2]), unsupported_interval=interval(means[1:, 2]),
                    tail_share=float(sums[0, number, 4]) / whole if whole else None,
                )  # fmt: skip


def _course(again: TokensAgain, stretches: pl.DataFrame) -> pl.DataFrame:
    """Return, by block of steps, the share of tokens after tools and the tail a token of each part."""
    blocks = split_steps(np.unique(again.step).tolist(), BLOCKS)
    block, after, at = _window_of(again.step, blocks), again.stretch >= 0, np.maximum(again.stretch, 0)
    failed = stretches["failed"].fill_null(value=False).to_numpy()
    of_token = after & ~failed[at] if stretches.height else after
    parts = {"text_only": ~after, "failed": after & ~of_token}
    if "familiarity" in stretches.columns:
        limit = _usual_familiarity(stretches, _window_of(stretches["step"].to_numpy(), blocks), ~failed)
        with np.errstate(invalid="ignore"):
            gap = (stretches["familiarity"].to_numpy() - limit)[at]
            parts |= {"familiar": of_token & (gap >= 0), "unfamiliar": of_token & (gap < 0)}
    columns: dict[str, object] = {
        "step_first": [span.first for span in blocks],
        "step_last": [span.last for span in blocks],
        "step_mid": [span.middle for span in blocks],
        "alpha": np.bincount(block, weights=after) / np.bincount(block),
    }
    for name in COURSE_PARTS:
        chosen = parts.get(name, np.zeros(len(block), np.bool_))
        tokens = np.bincount(block[chosen], minlength=len(blocks))
        tail = np.bincount(block[chosen], weights=again.excess[chosen], minlength=len(blocks))
        columns[name] = [nats / n if n >= MIN_BLOCK_TOKENS else None for nats, n in zip(tail, tokens, strict=True)]
    return pl.DataFrame(columns, schema=COURSE)


def _usual_familiarity(stretches: pl.DataFrame, block: IntArray, chosen: BoolArray) -> FloatArray:
    """Return for each stretch the median familiarity of its block's `chosen` ones, NaN where there is none."""
    rows = stretches.select(pl.col("familiarity").fill_nan(None), block=pl.Series(block), chosen=pl.Series(chosen))
    median = pl.col("familiarity").filter("chosen").median().over("block")
    return rows.select(median).to_series().cast(pl.Float64).fill_null(math.nan).to_numpy()


def _outputs(stretches: pl.DataFrame, windows: Sequence[Span]) -> Iterator[OutputDiversity]:
    """Yield how new the outputs were by window, each rollout once."""
    if "kind" not in stretches.columns:
        return
    first = stretches.filter(pl.col("came") == pl.col("step"))
    for name, span in zip(WINDOWS, windows, strict=True):
        rows = first.filter(pl.col("step").is_between(span.first, span.last), pl.col("familiarity").is_not_nan())
        if rows.height:
            shares = np.bincount(rows["kind"].to_numpy(), minlength=len(KINDS)) / rows.height
            yield OutputDiversity(
                window=name, outputs=rows.height, distinct=rows["whole"].n_unique(),
                **dict(zip(KINDS, shares.tolist(), strict=True)),
                familiarity=float(rows["familiarity"].to_numpy().mean()),
            )  # fmt: skip
