"""Describe every recorded series of a run, known by name or not, the most telling first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.evidence.algorithm import Algorithm, Family
from ptt.diagnostics.evidence.evaluation import Evaluation
from ptt.diagnostics.evidence.rewards import Rewards
from ptt.diagnostics.evidence.series import Series, condense, extremes_of, finite_series, read_evaluations
from ptt.diagnostics.metrics.catalogue import called, kind_of, known
from ptt.diagnostics.metrics.name_words import LOSS_WORDS, NO_LEVEL, is_outcome, is_reward, words_of
from ptt.diagnostics.model import SeriesOutcome
from ptt.diagnostics.parsers.io.metric_rows import UNNUMBERED
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.series_description import SeriesDescription, describe
from ptt.diagnostics.store.wide_metrics import WideMetrics

MAX_CELLS: Final = 1 << 20  # in the series described at once: 8 MB
MAX_SERIES: Final = 200  # to keep: nobody reads more, and a log may hold thousands
COURSE_POINTS: Final = 48  # of a sparkline: it is this many strokes wide
COURSES: Final = {"split": pl.String, "logged_as": pl.String, "step": pl.Int64, "value": pl.Float64}
REWARD: Final = "reward/mean"
SAMPLED_REWARD: Final = "mean reward of the recorded samples"
ERROR_WORDS: Final = frozenset({"wer", "cer", "mse", "mae", "rmse", "error", "errors", "failure", "failures"})
SCORE_WORDS: Final = frozenset({"f1", "bleu", "rouge", "rougel", "meteor", "mrr", "ndcg", "auc", "auroc", "mcc", "elo"})
FITTED: Final = (Family.SUPERVISED, Family.PREFERENCE, Family.REWARD_MODEL)
UNITS: Final = {
    "kl/ref": "nats",
    "kl/old": "nats",
    "entropy": "nats",
    "len/response_mean": "tokens",
    "mem/peak_gb": "GB",
}
SCORES: Final = frozenset({REWARD, "eval/reward", "dpo/accuracy", "sft/token_accuracy"})
LOSSES: Final = frozenset({"loss/total", "loss/policy", "sft/perplexity"})
DISTANCES: Final = frozenset({"kl/ref", "mismatch/kl", "kl/old"})
LAST_TIER: Final = 9


@dataclass(frozen=True)
class DescribedSeries:
    """What every series did, the most telling first, and the courses of the first of them."""

    outcomes: tuple[SeriesOutcome, ...]
    courses: pl.DataFrame


def describe_run_series(
    *,
    metrics: pl.DataFrame,
    training: Mapping[str, Series],
    other: Mapping[str, Series],
    evaluation: Evaluation | None,
    rewards: Rewards | None,
    algorithm: Algorithm,
    better: Mapping[str, str] = MappingProxyType({}),
) -> DescribedSeries:
    """Return what every series of training and of every evaluation did; `metrics`: the rows that name evaluations.

    `better`: the direction in which a metric improves, by its name as logged, as the user set it.
    """
    named = [(series, name, "train") for name, series in training.items()]
    named += [(series, series.name, "train") for series in other.values()]
    if REWARD not in training and (sampled := _sampled_reward(rewards)) is not None:
        named.append((sampled, REWARD, "train"))
    evaluations = read_evaluations(metrics)
    canonical = _canonical_evaluations(metrics) if evaluations else {}
    named += [(series, canonical.get(name) or name, "eval") for name, series in evaluations.items()]
    logged = {series.raw_name for series in evaluations.values()}
    for figure in () if evaluation is None else evaluation.figures:
        if figure.series.raw_name not in logged:
            logged.add(figure.series.raw_name)
            named.append((figure.series, figure.series.raw_name, "eval"))

    def direction(series: Series, name: str, split: str) -> str | None:
        raw = series.raw_name
        return better.get(raw, better.get(raw.removeprefix(UNNUMBERED))) or _direction(name, split, algorithm)

    described = _describe_series([series for series, _, _ in named])
    outcomes = [
        (
            _outcome(series, split, description, name=name, direction=direction(series, name, split)),
            series,
        )
        for (series, name, split), description in zip(named, described, strict=True)
    ]
    outcomes = [(_told_apart(one, [other for other, _ in outcomes]), series) for one, series in outcomes]
    outcomes.sort(key=lambda pair: _order(pair[0]))
    return DescribedSeries(tuple(outcome for outcome, _ in outcomes), _course_table(outcomes[:MAX_SERIES]))


def _told_apart(one: SeriesOutcome, all_: Sequence[SeriesOutcome]) -> SeriesOutcome:
    """Name the data set of an evaluation's figure where other sets have one that ends alike, as `eval_b_loss` does."""
    if one.split != "eval" or not one.label:
        return one
    alike = {other.logged_as for other in all_ if other.split == "eval" and _last_word(other) == _last_word(one)}
    return replace(one, label=f"{one.label} (`{one.logged_as}`)") if len(alike) > 1 else one


def _last_word(one: SeriesOutcome) -> str:
    return re.split(r"[_/. ]", one.logged_as)[-1].lower()


def _course_table(outcomes: Iterable[tuple[SeriesOutcome, Series]]) -> pl.DataFrame:
    """Return the course of each series in a few points, as a page draws it beside the numbers."""
    frames = [pl.DataFrame(schema=COURSES)]
    for outcome, series in outcomes:
        steps, values = condense(series, COURSE_POINTS).finite()
        names = {"split": outcome.split, "logged_as": outcome.logged_as}
        frames.append(pl.DataFrame({"step": steps, "value": values}).select(*_literals(names), "step", "value"))
    return pl.concat(frames)


def _literals(names: Mapping[str, str]) -> Iterator[pl.Expr]:
    return (pl.lit(value).alias(name) for name, value in names.items())


def _sampled_reward(rewards: Rewards | None) -> Series | None:
    """Return the mean reward of the samples by step, where nobody logged one."""
    samples = None if rewards is None else rewards.samples
    if samples is None:
        return None
    usable = np.isfinite(samples.rewards)
    if not usable.any():
        return None
    steps, at = np.unique(samples.steps[usable], return_inverse=True)
    means = np.bincount(at, samples.rewards[usable]) / np.bincount(at)
    return finite_series(REWARD, steps, means, raw_name=SAMPLED_REWARD)


def _canonical_evaluations(metrics: pl.DataFrame) -> dict[str, str]:
    named = metrics.filter((pl.col("split") == "eval") & pl.col("name").is_not_null())
    return dict(named.select("name_raw", "name").unique("name_raw", keep="first", maintain_order=True).iter_rows())


def _describe_series(series: Iterable[Series]) -> list[SeriesDescription | None]:
    """Describe series, those of one length together; None for one without a finite value."""
    finite = [one.finite()[1] for one in series]
    lengths: dict[int, list[int]] = {}
    for index, values in enumerate(finite):
        lengths.setdefault(len(values), []).append(index)
    result: list[SeriesDescription | None] = [None] * len(finite)
    for count, places in lengths.items():
        for some in _groups(places, max(1, MAX_CELLS // count)) if count else ():
            for place, description in zip(some, describe(np.stack([finite[at] for at in some])), strict=True):
                result[place] = description
    return result


def _groups(places: list[int], size: int) -> Iterator[list[int]]:
    for start in range(0, len(places), size):
        yield places[start : start + size]


def _outcome(
    series: Series, split: str, described: SeriesDescription | None, *, name: str, direction: str | None
) -> SeriesOutcome:
    named = SeriesOutcome(
        name=name,
        logged_as=series.raw_name,
        split=split,
        label=called(name, split),
        unit=UNITS.get(name, ""),
        direction=direction,
        not_finite=series.not_numbers,
    )
    if described is None:
        return named
    steps, values = series.finite()
    whole = series.extremes or extremes_of(steps, values)
    best = {"higher": (whole.high, whole.high_step), "lower": (whole.low, whole.low_step)}.get(direction or "")

    def step(index: int | None) -> int | None:
        return None if index is None else int(steps[min(index, len(steps) - 1)])

    interval = described.changed_interval
    return replace(
        named,
        count=whole.count,
        first_step=int(steps[0]),
        last_step=int(steps[-1]),
        first=whole.first,
        last=whole.last,
        best=None if best is None else best[0],
        best_step=None if best is None else best[1],
        low=whole.low,
        high=whole.high,
        early=described.early,
        late=described.late,
        change=described.change,
        movement=described.movement,
        detectable=described.detectable,
        still_moving=described.still_moving,
        settled_at=step(described.settled_at),
        turn=described.turn,
        turn_step=step(described.turn_at),
        changed_at=step(described.changed_at),
        changed_interval=None
        if interval is None
        else (int(steps[interval[0]]), int(steps[min(interval[1], len(steps) - 1)])),
        spikes=described.spikes,
        noise=described.noise,
        at_zero=whole.at_zero,
        bound=described.bound,
        at_bound=described.at_bound,
        spread_left=described.spread_left,
    )


def _direction(name: str, split: str, algorithm: Algorithm) -> str | None:
    """Return the direction in which a series improves, from its catalogue entry or its words; None if neither says."""
    worse = known(name).worse
    if worse in {"higher", "lower"}:
        return "lower" if worse == "higher" else "higher"
    words = words_of(name)
    fitted = algorithm.family in FITTED or (algorithm.family is None and name == "loss/total")
    if words & LOSS_WORDS and not words & (NO_LEVEL - {"step", "epoch", "n"}):
        return "lower" if split == "eval" or (fitted and name != "loss/policy") else None
    if known(name).label and name not in SCORES:
        return None
    if is_outcome(name) or is_reward(name) or (words & SCORE_WORDS):
        return None if words & NO_LEVEL else "higher"
    return "lower" if split == "eval" and words & ERROR_WORDS else None


def _order(outcome: SeriesOutcome) -> tuple[int, bool, bool, str, str]:
    """Order series by what their owner asks first: scores, losses, the distance gone, the rest; clocks and counters."""
    return (_tier(outcome), outcome.split != "eval", not outcome.label, outcome.name, outcome.logged_as)


def _tier(outcome: SeriesOutcome) -> int:
    name, words = outcome.name, words_of(outcome.name)
    evaluated = outcome.split == "eval"
    if is_bookkeeping(outcome) or not outcome.count:
        return LAST_TIER
    if outcome.direction == "higher" and (name in SCORES or is_reward(name) or is_outcome(name) or evaluated):
        return 0 if evaluated else 1 if name in SCORES or is_reward(name) else 2
    if name in LOSSES or (words & LOSS_WORDS):
        return 4 if evaluated else 3
    if name in DISTANCES:
        return 5
    return 6 if name == "entropy" else 7 if name.startswith("len/") else 8


def is_bookkeeping(outcome: SeriesOutcome) -> bool:
    """Return whether a series is a clock, a counter, a schedule or a machine's: nothing that training does."""
    if outcome.label and outcome.split == "train":
        return kind_of(outcome.name) != "training"
    return not outcome.label and bool(words_of(outcome.name.removeprefix(UNNUMBERED)) & NO_LEVEL)


MAX_GAP: Final = 1800.0  # seconds between two rows: a longer one, by far the longest, lies between two starts
GAP_FACTOR: Final = 20.0


def logged_clock(
    metrics: pl.DataFrame, wide: WideMetrics, training: Mapping[str, Series]
) -> tuple[IntArray, FloatArray] | None:
    """Return steps, (n,), and the seconds of training until each, (n,); None where no times are logged.

    By the clock of the source with most rows, pauses left out; without one, by the logged time of each step.
    """
    times = _times(metrics, wide)
    if times is None:
        taken = training.get("time/step")
        if taken is None or not len(taken.finite()[0]):
            return None
        steps, seconds = taken.finite()
        return steps, np.cumsum(seconds * np.diff(steps, prepend=steps[0] - 1))
    steps, ends = _step_ends(times)
    if not len(steps):
        return None
    gaps = np.diff(ends, prepend=times["wall_time"].to_numpy().min())
    return steps, np.cumsum(_without_pauses(gaps, gaps))


def logged_seconds(metrics: pl.DataFrame, wide: WideMetrics) -> tuple[float, float] | None:
    """Return for how long training was logged, by the clock of the source with most rows, and how long it paused.

    The first leaves pauses out. Nobody knows of a pause whether it lies between two starts or a step hung.

    A pause is held against what a step takes: rows of one step may be milliseconds apart.
    """
    times = _times(metrics, wide)
    if times is None:
        return None
    gaps = np.diff(times["wall_time"].unique().sort().to_numpy())
    between = np.diff(_step_ends(times)[1])
    at_work = float(_without_pauses(gaps, between if (between > 0).any() else gaps).sum())
    return (at_work, float(gaps.sum()) - at_work) if at_work else None


def _step_ends(times: pl.DataFrame) -> tuple[IntArray, FloatArray]:
    """Return the steps, (n,), and the last wall time of each, (n,)."""
    numbered = times.filter(pl.col("step").is_not_null())
    by_step = numbered.group_by("step").agg(pl.col("wall_time").max()).sort("step")
    return by_step["step"].to_numpy(), by_step["wall_time"].to_numpy()


def _times(metrics: pl.DataFrame, wide: WideMetrics) -> pl.DataFrame | None:
    """Return step and wall time of the rows of training, of the source with most of them."""
    rows = metrics.filter((pl.col("split") == "train") & pl.col("wall_time").is_not_null())
    times = pl.concat([rows.select("step", "source", "wall_time"), wide.times().select("step", "source", "wall_time")])
    if times.is_empty():
        return None
    source = times["source"].value_counts().sort("count", "source", descending=[True, False])["source"][0]
    return times.filter(pl.col("source") == source)


def _without_pauses(gaps: FloatArray, usual_gaps: FloatArray) -> FloatArray:
    """Return the seconds between rows with 0 for a pause between two starts, against the median of usual ones."""
    usual = float(np.median(usual_gaps)) if len(usual_gaps) else 0.0
    return np.where((gaps > max(MAX_GAP, GAP_FACTOR * usual)) | (gaps < 0), 0.0, gaps)
