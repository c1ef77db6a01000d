"""Count by step what the texts of sampled answers show: refusals, repetition, and answers alike across prompts.

The parsers measured a draw of each step's texts (parsers.io.answer_texts); no text is needed here.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.counts import Counts
from ptt.diagnostics.evidence.environment import LATE_SHARE, MIN_PAIRS, AnswerAgreement
from ptt.diagnostics.evidence.series import Series, finite_series
from ptt.diagnostics.statistics.arrays import FloatArray
from ptt.diagnostics.statistics.near_duplicates import alike_pairs, pair_overlaps

HEAVY_REPETITION: Final = 0.3  # of runs of four words; human text has 0.05, real answers of tool runs at most 0.1
MIN_ENGLISH: Final = 0.5  # of the answers: with less, refusals in another language would be missed
ALIKE: Final = 0.7  # of the runs of three words in two texts: near-duplicates, by BigCode's threshold
MAX_PAIRS: Final = 400_000  # of a run: a second's work
MAX_COMPARED: Final = 48  # answers of a step that are compared
FEWEST: Final = 12  # of these, at least, in a long run
BINS: Final = 32  # entries of a sketch
SKETCH: Final = "sketch"  # the column that identifies nearly equal texts
MIN_TRIALS: Final = 30  # answers: fewer are no share


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What the texts of the measured answers say, by step."""

    refusals: Counts | None = None  # None: most answers are not in English
    repetitions: Counts | None = None
    refusing: str | None = None  # the latest trajectory that refuses
    repeating: str | None = None  # the latest one that repeats itself heavily
    alike: AnswerAgreement | None = None  # nearly equal texts; None: never two prompts in a step


def gather_answers(trajectories: pl.DataFrame, answers: pl.DataFrame) -> Answers | None:
    """Count refusals and heavy repetition by step, and pairs of answers that are alike; None without an answer.

    Only training answers count; where the files do not mark training, those with an unknown split count instead.
    """
    placed = trajectories.filter(pl.col("step").is_not_null()).unique("trajectory_id", keep="first")
    split = "train" if (placed["split"] == "train").any() else "unknown"
    placed = placed.filter(pl.col("split") == split).select("trajectory_id", "step", "prompt_hash")
    rows = answers.join(placed, on="trajectory_id").sort("step", "trajectory_id")
    if rows.is_empty():
        return None
    repeats = rows.with_columns((pl.col("repetition") > HEAVY_REPETITION).fill_null(value=False).alias("hit"))
    english = rows.filter(pl.col("refuses").is_not_null()).rename({"refuses": "hit"})
    return Answers(
        refusals=_counts("answers that refuse", english) if english.height >= MIN_ENGLISH * rows.height else None,
        repetitions=_counts("answers that repeat themselves", repeats),
        refusing=_latest(english),
        repeating=_latest(repeats),
        alike=_alike(rows.filter(pl.col("prompt_hash").is_not_null())),
    )


def _counts(name: str, rows: pl.DataFrame) -> Counts | None:
    if rows.height < MIN_TRIALS:
        return None
    by_step = rows.group_by("step").agg(pl.col("hit").sum().cast(pl.Float64), pl.len().cast(pl.Float64)).sort("step")
    steps, hits, trials = (column.to_numpy() for column in by_step)
    return Counts(name=name, steps=steps, hits=hits, trials=trials)


def _latest(rows: pl.DataFrame) -> str | None:
    hits = rows.filter("hit")["trajectory_id"]
    return str(hits[-1]) if len(hits) else None


def _alike(rows: pl.DataFrame) -> AnswerAgreement | None:
    """Return the shares of pairs that are alike; an answer that is too short for a sketch is like no other."""
    if rows["sketch"].is_null().all():
        return None
    count = min(MAX_COMPARED, max(FEWEST, int(math.sqrt(2 * MAX_PAIRS / max(1, rows["step"].n_unique())))))
    drawn = rows.filter(pl.int_range(pl.len()).over("step") < count)  # in the order of ids, which are hashes
    steps, pairs = [], []
    for (step,), part in drawn.partition_by("step", maintain_order=True, as_dict=True).items():
        pairs.append(alike_pairs(_matrix(part), part["prompt_hash"].rank("dense").cast(pl.Int64).to_numpy(), ALIKE))
        steps.append(int(str(step)))
    table, at = np.array(pairs, np.float64), np.array(steps, np.int64)
    enough, within = table[:, 1] >= MIN_PAIRS, table[:, 3] >= MIN_PAIRS
    if not enough.any():
        return None
    late = drawn.filter(pl.col("step") > at[max(0, int(len(at) * (1 - LATE_SHARE)) - 1)])
    example, share = _commonest(late if late.height else drawn)
    return AnswerAgreement(
        across=finite_series("answers alike across prompts", at[enough], table[enough, 0] / table[enough, 1],
                             raw_name=SKETCH),
        within=finite_series("answers alike within a prompt", at[within], table[within, 2] / table[within, 3],
                             raw_name=SKETCH) if within.any() else None,
        example=example,
        commonest=share,
        length=0,
    )  # fmt: skip


def _commonest(rows: pl.DataFrame) -> tuple[str, float]:
    """Return the trajectory whose answer has most others alike among the last ones, and their share."""
    last = rows.tail(MAX_COMPARED)
    alike = (pair_overlaps(_matrix(last)) >= ALIKE).mean(axis=1)
    place = int(np.argmax(alike))
    return str(last["trajectory_id"][place]), float(alike[place])


def _matrix(rows: pl.DataFrame) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    empty = [0] * BINS
    whole = [one if one is not None and len(one) == BINS else empty for one in rows["sketch"].to_list()]
    return np.array(whole, np.int64).reshape(len(whole), BINS)


MIN_ANSWERS: Final = 8  # in a step: with fewer, the spread is chance
MIN_UNLIKE_PAIRS: Final = 8  # in a step, of different length and reward
MAX_GROUP: Final = 64  # answers to one prompt that are compared: two thousand pairs
MAX_PROMPTS: Final = 32  # of a step: enough for its mean
BLOCK: Final = 5  # changes from step to step averaged into one value: the sign of one change says little


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """How long sampled answers are, in letters."""

    spread: Series | None = None  # standard deviation over mean, by step
    paid: Series | None = None  # by step: (pairs whose longer answer earns more - the other pairs) / both


def gather_lengths(trajectories: pl.DataFrame, turns: pl.DataFrame) -> Lengths | None:
    """Measure the lengths of what the policy said in training; None where no text is recorded."""
    said = turns.filter((pl.col("role") == "assistant") & pl.col("text_len").is_not_null())
    said = said.group_by("trajectory_id").agg(pl.col("text_len").sum().cast(pl.Float64).alias("length"))
    placed = trajectories.filter(pl.col("step").is_not_null())
    placed = placed.unique("trajectory_id", keep="first", maintain_order=True)  # a spread's last digits depend on it
    split = "train" if (placed["split"] == "train").any() else "unknown"
    placed = placed.filter(pl.col("split") == split)
    rows = placed.join(said, on="trajectory_id", maintain_order="left").filter(pl.col("length") > 0)
    if rows.is_empty():
        return None
    by_step = rows.group_by("step").agg(
        pl.len().alias("n"), (pl.col("length").std() / pl.col("length").mean()).alias("spread")
    )
    by_step = by_step.filter(pl.col("n") >= MIN_ANSWERS).sort("step")
    spread = finite_series("spread of lengths", by_step["step"].to_numpy(), by_step["spread"].to_numpy(),
                           raw_name="text_len")  # fmt: skip
    return Lengths(spread=spread if by_step.height else None, paid=_paid(rows))


def _paid(rows: pl.DataFrame) -> Series | None:
    """Return Kendall's tau of length and reward within prompts, of the pairs that differ in both, by step."""
    scored = rows.filter(pl.col("reward").is_finite() & pl.col("prompt_hash").is_not_null())
    scored = scored.sort("step", "prompt_hash", "trajectory_id").select("step", "prompt_hash", "length", "reward")
    scored = scored.filter(pl.col("prompt_hash").rank("dense").over("step") <= MAX_PROMPTS)
    sums: dict[int, list[int]] = {}
    for part in scored.partition_by("step", "prompt_hash", maintain_order=True):
        length, reward = (part[name].to_numpy()[:MAX_GROUP] for name in ("length", "reward"))
        signs = np.sign(length[:, None] - length) * np.sign(reward[:, None] - reward)
        total = sums.setdefault(int(part["step"][0]), [0, 0])
        total[0] += int(signs.sum()) // 2
        total[1] += int(np.abs(signs).sum()) // 2
    known = {step: agree / pairs for step, (agree, pairs) in sums.items() if pairs >= MIN_UNLIKE_PAIRS}
    if not known:
        return None
    return finite_series("agreement of length and reward", np.array(list(known), np.int64),
                         np.array(list(known.values())), raw_name="text_len")  # fmt: skip


def agreement_by_block(one: Series, two: Series) -> Series | None:
    """Return how often two series change in one direction, less how often not, by blocks of five changes.

    Changes from one step to the next, so that what both do over the run is no agreement.
    """
    steps, places, others = np.intersect1d(one.finite()[0], two.finite()[0], return_indices=True)
    changes: list[FloatArray] = [
        np.sign(np.diff(series.finite()[1][at])) for series, at in ((one, places), (two, others))
    ]
    count = (len(steps) - 1) // BLOCK
    if count < 1:
        return None
    signs = (changes[0] * changes[1])[: count * BLOCK].reshape(count, BLOCK)
    return finite_series("agreement of length and reward", steps[BLOCK : count * BLOCK + 1 : BLOCK],
                         signs.mean(axis=1), raw_name=one.raw_name)  # fmt: skip
