"""One sample as a value: what is recorded of it, its prompt group, its transcript, and the table of its tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.model import Diagnosis, Finding, Link
from ptt.diagnostics.schema import LOGPS
from ptt.diagnostics.scrub.scrub import MASK, Scrubber
from ptt.diagnostics.statistics.arrays import BoolArray
from ptt.diagnostics.statistics.cells import SEQUENCE
from ptt.diagnostics.statistics.logprob_pairs import PAIRS, Pair, available_pairs
from ptt.diagnostics.statistics.slices import POST_TOOL, TEXT_ONLY, model_runs
from ptt.diagnostics.statistics.tail_curves import Profile

MASKED: Final = "[masked]"
UNKNOWN: Final = " "  # stands for a token that no tokenizer knows, so that what is beside it is read apart
SPLIT: Final = re.compile(f"{MASK.pattern}|~")  # a home folder becomes ~
MIN_PIECE: Final = 8  # letters between two masks: fewer may stand in what is masked as well

PEAKS: Final = 5  # tokens that windows are laid around
SHARE: Final = 0.1  # of the largest |r|: a smaller token does not stand out
BESIDE: Final = 4  # tokens on either side: what came before and what it led to

OBSERVATION: Final = "observation"  # tool output: not sampled, with sampled tokens on both sides
NOT_SAMPLED: Final = "not_sampled"  # prompt, template or padding
TEXT_SLICE: Final = "text_only"
MASKS: Final = ("model_mask", "train_mask")
OURS: Final = frozenset({"position", "token_id", "token", "r", "slice"})  # columns of the table that are made here
MAX_BESIDE: Final = 8  # lists of a recorder file that no table knows, such as value and return

EACH: Final = 3  # highest, lowest and random: what is read through in a few minutes
RANDOM_SEED: Final = 17
TAILS: Final = "largest |r|"
REWARD: Final = "reward"
FAILED: Final = "failed tool calls"
OF_TAILS: Final = frozenset({Link.POLICY_UPDATE, Link.DATA_FRESHNESS, Link.DATA_VALIDITY})
HIGHEST, LOWEST, RANDOM, NAMED = "highest", "lowest", "random", "named"


@dataclass(frozen=True, kw_only=True)
class Sibling:
    """A sample of the same prompt at the same step."""

    key: str  # STEP:ROW, or the trajectory's id where no tokens are recorded
    sample_id: str | None
    reward: float | None
    advantage: tuple[float, float] | None  # least and greatest over its sampled tokens
    tokens: int | None
    shown: bool  # the sample itself


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One message of the transcript; `text` is null unless texts were asked for."""

    number: int
    role: str | None
    letters: int | None
    tokens: int | None
    text: str | None


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """One call of a tool and how it ended; `arguments` is null unless texts were asked for."""

    turn: int | None
    name: str | None
    ok: bool | None
    error: str | None
    result_letters: int | None
    seconds: float | None
    arguments: str | None


@dataclass(frozen=True, kw_only=True)
class Missing:
    """What the run does not hold of this sample, and the line that records it."""

    what: str
    why: str
    enable: str | None


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Everything that a run recorded of one sample, and nothing else.

    `tokens` has one row a token: position, token_id and token where known, the logprobs and other values as the run
    holds them, `r` of `pair` (sampled tokens only) and `slice`.
    """

    run: str
    key: str
    step: int | None
    row: int | None  # among the sequences of the step, from 0; null of a sample without tokens
    file: str | None
    file_row: int | None
    values: Mapping[str, Any]  # what is recorded of it as single values, by column
    rewards: Mapping[str, float | None]  # the parts of its reward
    group: tuple[Sibling, ...]
    turns: tuple[Turn, ...]
    calls: tuple[ToolCall, ...]
    texts: bool  # whether texts were asked for
    tokens: pl.DataFrame
    pair: str | None
    pairs: tuple[str, ...]  # that it holds
    tokenizer: str | None  # the file of the run that tokens were decoded with
    missing: tuple[Missing, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ListedSample:
    """A sample that a finding rests on, and its value of the finding's measure."""

    chosen: str  # highest, lowest, random, or named by the finding itself
    key: str
    step: int | None
    sample_id: str | None
    value: float | None


@dataclass(frozen=True, kw_only=True)
class FindingSamples:
    """The samples of one finding: those with the highest and lowest values, and some at random."""

    finding: str
    severity: str
    claim: str
    measure: str
    samples: tuple[ListedSample, ...]


def scrubbed(tokens: Sequence[str | None]) -> list[str | None]:
    """Return the tokens' texts; those that a mask of their joined text covers, in whole or in part, are masked."""
    pieces = [UNKNOWN if token is None else token for token in tokens]
    text = "".join(pieces)
    covered = _covered(text, Scrubber().text(text))
    if not covered:
        return list(tokens)
    ends = list(accumulate(map(len, pieces)))
    starts = [end - len(piece) for end, piece in zip(ends, pieces, strict=True)]
    return [
        token if token is None or not any(low < end and start < high for low, high in covered) else MASKED
        for token, start, end in zip(tokens, starts, ends, strict=True)
    ]


def _covered(text: str, masked: str) -> list[tuple[int, int]]:
    """Return the ranges of a text that stand under a mask; all of it where what is left cannot be found in it."""
    if text == masked:
        return []
    head, *inner, tail = SPLIT.split(masked)
    if not text.startswith(head) or not text.endswith(tail) or len(head) + len(tail) > len(text):
        return [(0, len(text))]
    ranges, at = [], len(head)
    for piece in (piece for piece in inner if len(piece) >= MIN_PIECE):
        start = text.find(piece, at, len(text) - len(tail))
        if start < 0:
            break
        ranges.append((at, start))
        at = start + len(piece)
    return [*ranges, (at, len(text) - len(tail))]


@dataclass(frozen=True, kw_only=True)
class Window:
    """Positions from `first` to `last`, both included, and the largest |r| there; null where none is finite."""

    first: int
    last: int
    largest: float | None


def windows(r: pl.Series) -> list[Window]:
    """Return the windows around the largest |r|, the largest first; overlapping ones are one.

    The beginning of the sample where no r is finite.
    """
    size = r.abs()
    usable = pl.DataFrame({"at": range(len(r)), "size": size}).filter(pl.col("size").is_finite())
    if usable.is_empty():
        return [Window(first=0, last=min(len(r), 2 * BESIDE + 1) - 1, largest=None)] if len(r) else []
    peaks = usable.sort("size", "at", descending=[True, False]).head(PEAKS)
    peaks = peaks.filter(pl.col("size") >= SHARE * pl.col("size").max()).sort("at")
    spans: list[tuple[int, int]] = []
    for at in peaks["at"].to_list():
        first, last = max(0, at - BESIDE), min(len(r) - 1, at + BESIDE)
        if spans and first <= spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], last)
        else:
            spans.append((first, last))
    found = []
    for first, last in spans:
        inside = usable.filter(pl.col("at").is_between(first, last))["size"]
        found.append(Window(first=first, last=last, largest=float(inside.to_numpy().max())))
    return sorted(found, key=lambda window: (-(window.largest or 0.0), window.first))


def token_table(
    lists: Mapping[str, pl.Series | None],
    beside: Mapping[str, Any],
    *,
    pair: str | None,
    min_observation: int,
    post_name: str,
) -> tuple[pl.DataFrame, str | None, tuple[str, ...], list[str]]:
    """Return the table, the pair of its `r`, the pairs that could be chosen, and notes on lists that do not fit."""
    recorded = {name: values for name, values in lists.items() if values is not None}
    recorded |= _lists_beside(beside)
    length = max((len(values) for values in recorded.values()), default=0)
    notes = _uneven(recorded, length)
    columns: dict[str, pl.Series] = {"position": pl.Series(range(length), dtype=pl.Int64())}
    if "token_ids" in recorded:
        columns["token_id"] = _padded(recorded["token_ids"], length)
    order: list[str] = [
        name for name in (*MASKS, *LOGPS, "entropy", "advantage", "value", "return") if name in recorded
    ]
    order += [name for name in recorded if name not in (*order, "token_ids")]
    columns |= {name: _padded(recorded[name], length) for name in order}
    frame = pl.DataFrame({name: values.alias(name) for name, values in columns.items()})
    pairs = available_pairs({name for name in LOGPS if name in recorded})
    chosen = next((known for known in (PAIRS if pair else pairs) if pair in (None, known.name)), None)
    if chosen is not None and not {chosen.numerator, chosen.denominator} <= recorded.keys():
        chosen = None
    mask = _mask(frame)
    frame = frame.with_columns(_ratio(frame, chosen, mask).alias("r"))
    frame = frame.with_columns(_slices(mask, length, min_observation, post_name).alias("slice"))
    return frame, None if chosen is None else chosen.name, tuple(known.name for known in pairs), notes


def _lists_beside(beside: Mapping[str, Any]) -> dict[str, pl.Series]:
    """Return the lists of numbers beside the canonical columns, such as `value` and `return`."""
    lists = {name: values for name, values in beside.items() if isinstance(values, list) and name not in OURS}
    numbers = {
        name: values for name, values in lists.items() if all(isinstance(value, int | float | None) for value in values)
    }
    return {name: pl.Series(values, strict=False) for name, values in list(numbers.items())[:MAX_BESIDE] if values}


def _uneven(recorded: Mapping[str, pl.Series], length: int) -> list[str]:
    short = {name: len(values) for name, values in recorded.items() if len(values) != length}
    if not short:
        return []
    named = ", ".join(f"{name} has {count}" for name, count in sorted(short.items()))
    return [f"The lists of this sequence differ in length: {named}, others have {length}. It was not judged."]


def _padded(values: pl.Series, length: int) -> pl.Series:
    return values if len(values) == length else values.extend_constant(None, length - len(values))


def _mask(frame: pl.DataFrame) -> BoolArray | None:
    """Return which tokens were sampled, or None where a token's mask is missing."""
    if "model_mask" not in frame.columns or frame["model_mask"].null_count():
        return None
    return frame["model_mask"].cast(pl.Boolean).to_numpy().astype(np.bool_)


def _ratio(frame: pl.DataFrame, pair: Pair | None, mask: BoolArray | None) -> pl.Series:
    """Subtract in float64, of sampled tokens alone: what stands for others is no probability of the policy."""
    if pair is None:
        return pl.Series([None] * frame.height, dtype=pl.Float64())
    both = (pl.col(name).cast(pl.Float64) for name in (pair.numerator, pair.denominator))
    ratio = frame.select((next(both) - next(both)).alias("r"))["r"]
    if mask is None:
        return ratio
    return ratio.to_frame().select(pl.when(pl.Series(mask)).then(pl.col("r")))["r"]


def _slices(mask: BoolArray | None, length: int, min_observation: int, post_name: str) -> pl.Series:
    """Name the slice of each token as judging does; null where the mask does not tell."""
    if mask is None or not length:
        return pl.Series([None] * length, dtype=pl.String())
    runs = model_runs(mask, np.array([0, length]), np.array([min_observation]))
    names = np.full(length, NOT_SAMPLED, dtype=object)
    before: int | None = None
    turn = 0
    for place, size, observed in zip(runs.place.tolist(), runs.length.tolist(), runs.turn.tolist(), strict=True):
        if before is not None and observed > turn:
            names[before:place] = OBSERVATION
        names[place : place + size] = post_name if observed else TEXT_SLICE
        before, turn = place + size, observed
    return pl.Series(names.tolist(), dtype=pl.String())


def shortest_observation(tool_names: Sequence[Any] | None, *, recorded: bool, default: int) -> int:
    """Return the least length of an observation: any gap where the sequence names tools, no gap where it has none."""
    if not recorded or tool_names is None:
        return default
    return 1 if len(tool_names) else int(np.iinfo(np.int64).max)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Samples with what each measure gives them: key, sample_id, step, rollout, value.

    `rollout` is equal where two steps trained on one sample: it is listed once.
    """

    tails: pl.DataFrame  # with the slice
    rewards: pl.DataFrame
    failures: pl.DataFrame


NOTHING: Final[dict[str, pl.DataType]] = {
    **dict.fromkeys(("key", "sample_id", "rollout"), pl.String()),
    "step": pl.Int64(),
    "value": pl.Float64(),
}


def samples_of_findings(diagnosis: Diagnosis, measured: Measured) -> tuple[FindingSamples, ...]:
    """Return the samples of each finding that rests on some, in the order of the findings."""
    return tuple(_samples_of(diagnosis, measured))


def _samples_of(diagnosis: Diagnosis, measured: Measured) -> Iterator[FindingSamples]:
    for finding in diagnosis.findings:
        measure, rows = _measured(finding, measured)
        since = finding.seen_step
        late = rows if since is None else rows.filter(pl.col("step") >= since)
        rows = (late if late.height else rows).drop_nulls("value").filter(pl.col("value").is_not_nan())
        if not rows.is_empty():
            yield FindingSamples(
                finding=finding.id,
                severity=finding.severity.value,
                claim=finding.claim,
                measure=measure,
                samples=tuple(_chosen(rows)),
            )


def _measured(finding: Finding, measured: Measured) -> tuple[str, pl.DataFrame]:
    """Return a finding's measure and the samples with their values; no rows where it rests on curves alone."""
    if finding.slice is not None and finding.link in OF_TAILS:
        wanted = {"text_only": [TEXT_ONLY], "all": [TEXT_ONLY, POST_TOOL]}.get(finding.slice, [POST_TOOL])
        rows = measured.tails.filter(pl.col("slice").is_in(wanted))
        return TAILS, rows.group_by("key", "sample_id", "rollout", "step", maintain_order=True).agg(
            pl.col("value").max()
        )
    if finding.link is Link.REWARD:
        return REWARD, measured.rewards
    if finding.link is Link.ENVIRONMENT:
        return FAILED, measured.failures
    return "", pl.DataFrame(schema=NOTHING)


def _chosen(rows: pl.DataFrame) -> Iterator[ListedSample]:
    """Yield the highest, the lowest and random ones of what is left; each sample once."""
    ordered = rows.sort("value", "key", descending=[True, False]).unique("rollout", keep="first", maintain_order=True)
    count = min(EACH, -(-ordered.height // 3))
    rest = ordered[count : ordered.height - count]
    dice = np.random.default_rng(RANDOM_SEED)
    drawn = sorted(dice.choice(rest.height, size=min(count, rest.height), replace=False).tolist()) if len(rest) else []
    lowest = ordered[max(count, ordered.height - count) :].reverse()
    for chosen, part in ((HIGHEST, ordered[:count]), (LOWEST, lowest), (RANDOM, rest[drawn])):
        for row in part.iter_rows(named=True):
            yield ListedSample(
                chosen=chosen, key=row["key"], step=row["step"], sample_id=row["sample_id"], value=row["value"]
            )


def measure_tails(profile: Profile | None, index: pl.DataFrame) -> pl.DataFrame:
    """Return the largest |r| of each sequence and slice. `index`: seq, key, sample_id, rollout."""
    if profile is None:
        return pl.DataFrame(schema={**NOTHING, "slice": SEQUENCE["slice"]})
    largest = pl.max_horizontal(-pl.col("min_r"), "max_r")
    rows = profile.sequences.filter(pl.col("n") > 0).select("seq", "step", "slice", value=largest)
    return rows.join(index.select("seq", "key", "sample_id", "rollout"), on="seq", how="inner", maintain_order="left")
