"""What became of the samples that were asked for: shares lost by step, cause and environment, and single episodes.

Frameworks count failed, dropped and filtered samples, as counts of a step or as totals of the run so far; some write a
row for each episode. Both are read into shares of what was asked for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.series import Series, finite_series, training_metric_names, training_series
from ptt.diagnostics.metrics.aliases import bare_name, canonical
from ptt.diagnostics.metrics.sample_names import Part, counts_groups, is_sparse, is_total, part_of
from ptt.diagnostics.model import JsonScalar
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.store.wide_metrics import WideMetrics

LINES: Final = "console_lines/"
PREFIX: Final = "samples/"
COUNTED: Final = ("failed", "timed_out", "unscored", "dropped", "evicted", "filtered", "masked", "retried")
MASKS: Final = re.compile(r"/[Ss]et(?:ting)? (?:\w+ ){0,3}masks? to\b")  # of a line: its sample trains nothing
LOST: Final = ("failed", "timed_out", "unscored", "dropped")
"""Samples that something beside the policy took: environment, engine, network, verifier."""
PERCENT: Final = 1.5  # a share above this is logged in per cent; below it, as a part of one
BATCHES: Final = ("train_batch_size", "rollout_batch_size", "num_prompts_per_step", "gen_batch_size")
"""Settings that tell how many prompts a step asks for."""
GROUP_SIZES: Final = ("rollout_n", "num_generations", "n_samples_per_prompt", "num_samples_per_prompt")
MAX_CAUSES: Final = 20  # of a run: a cause that holds a number of its own would otherwise make a series a sample
FAULTS: Final = re.compile(
    r"time.?d?.?out|connect|network|socket|sandbox|docker|container|session|browser|unavailable|refused|reset|memory|oom|"
    r"kill|crash|server|http|rate.?limit|quota|process|exception|internal|abort|cancel|infra|disk|verifier|judge|unknown",
    re.IGNORECASE,
)
"""Words of an error that is not the policy's doing; they count before those of POLICY."""
POLICY: Final = re.compile(
    r"pars|malform|invalid|format|json|argument|too.?long|context|prompt.?length|max.?(?:token|turn|step|len)|length|limit|"
    r"overlong|truncat|refus|"
    r"wrong|incorrect|assert|syntax|tests?.?fail|answer|reject|attempt|gave.?up|eos|no.?tool|turns|steps|schema|complet|done|stop|finish|success|solved",
    re.IGNORECASE,
)
"""Words of an end that the policy brought about: a call that cannot be read, a length or a turn limit."""
STOPS: Final = re.compile(r"time.?d?.?out|error|abort|crash|fail|kill|unavailable|cancel", re.IGNORECASE)
"""Words of a reason to stop that say as much where no error is recorded."""
ENDED: Final = r"(?i)^(?:stop|eos|completed)"  # an end that the policy brought about, be it at its first token
SILENT: Final = "no token but the end was generated"
USUAL_TOKENS: Final = 20  # of the median sample: where answers are a word, one token is one
NUMBERS: Final = re.compile(r"\d+")
MAX_CAUSE: Final = 60  # characters of a cause that is told
EQUAL: Final = 1e-6  # rewards that differ by no more count as equal


@dataclass(frozen=True, kw_only=True)
class Episodes:
    """Recorded training episodes, counted by step; all arrays are (steps,), NaN where a mean is of nothing."""

    steps: IntArray
    asked: FloatArray  # recorded episodes
    failed: FloatArray  # that ended in an error which is not the policy's
    trained: FloatArray  # failed ones with an error and a reward that nothing marks as masked
    unscored: FloatArray  # without a reward, where others have one
    failed_reward: FloatArray  # mean reward of failed episodes
    clean_reward: FloatArray  # mean reward of the others
    asked_reward: FloatArray  # mean over all of them, one without a reward counted as 0
    advantage: (
        FloatArray  # mean of failed episodes that are trained on: as recorded, else the reward less its group's mean
    )
    advantage_recorded: bool
    masks_recorded: bool  # whether the writer says which episodes are left out of the loss
    causes: Mapping[str, int]  # the most frequent first


@dataclass(frozen=True, kw_only=True)
class SampleCounters:
    """Counters of samples by kind: `failed`, `evicted` and others of COUNTED."""

    counts: Mapping[str, Series] = field(default_factory=dict)  # a step; totals are differenced
    shares: Mapping[str, Series] = field(default_factory=dict)  # of what was asked for
    causes: Mapping[str, Mapping[str, Series]] = field(default_factory=dict)  # counts a step, by kind and cause
    environments: Mapping[str, Mapping[str, Series]] = field(default_factory=dict)  # by canonical name and environment
    episodes: Episodes | None = None  # None: no episode of training tells how it ended

    @property
    def lost(self) -> Series | None:
        """Return the share of samples lost to failures, logged or counted; None where neither is known."""
        if (logged := self.shares.get("lost")) is not None:
            return logged
        rows = self.episodes
        if rows is None:
            return None
        return finite_series("samples/failed_frac", rows.steps, rows.failed / rows.asked, raw_name=EPISODES)


EPISODES: Final = "recorded episodes that failed"
UNSCORED: Final = "samples/unscored"
MISSING: Final = "samples/missing"  # of the full batches that the run began with
UNFINISHED: Final = "samples/unfinished"  # of those attempted
ENDED_BY_NOTHING: Final = "samples/ended_by_nothing"  # neither by themselves nor at a limit
ENDED_FRAC: Final = "samples/ended_frac"
LIMITS: Final = ("len/clipped_frac", "turns/limit_frac")
"""Shares of samples that a limit ended, with what else did not end them by themselves."""
SEVERAL: Final = re.compile(r"(?i)\bgroups?\b|\bsamples\b|\btrajectories\b|\bepisodes\b|\brollouts\b")
PROMPT_MEAN: Final = re.compile(r"(?i)(?:^|/)(?:prompt_len(?:gth)?/(?:mean|avg)|mean_prompt_length)$")
NEARLY_FULL: Final = 0.03  # of the batch: means are rounded, or of other rows than the tokens
FULL_STEPS: Final = 10  # from the start, with one number of samples that is never passed: that is a full batch
MOSTLY_FULL: Final = 0.8  # of them


def gather_counters(
    metrics: pl.DataFrame,
    wide: WideMetrics,
    trajectories: pl.DataFrame,
    settings: Mapping[str, JsonScalar],
    logged: IntArray,
    implied: Series | None = None,
    written: Mapping[str, JsonScalar] | None = None,
) -> SampleCounters | None:
    """Read the counters of training and the episodes that were recorded; None where there are neither.

    `logged`: steps at which the trainer logged anything of training, so that a counter without a value counted 0.
    `implied`: the number of samples by `implied_samples`, for where none is logged. `written`: the run's settings under
    their whole names.
    """
    raws = training_metric_names(metrics, wide, ranks=True)
    by_name: dict[str, list[str]] = {}
    for raw in raws:
        if (name := canonical(raw)) is not None and (name.startswith(PREFIX) or name in LIMITS):
            by_name.setdefault(name, []).append(raw)
    if ENDED_FRAC not in by_name:
        by_name = {name: raws for name, raws in by_name.items() if name not in LIMITS}
    causes, environments = _parts(raws, "causes"), _parts(raws, "environments")
    wanted = [*(raw for named in by_name.values() for raw in named), *causes, *environments]
    series = _read(metrics, wide, wanted, logged) if wanted else {}
    counts = {name.removeprefix(PREFIX): _summed([series[raw] for raw in named if raw in series], name)
              for name, named in by_name.items()}  # fmt: skip
    found = {kind: count for kind, count in counts.items() if count is not None}
    of_causes = _grouped(causes, series)
    for name, parts in of_causes.items():  # a total stands for its parts, and parts without a total for it
        whole = _summed(list(parts.values()), name)
        if whole is not None:
            found.setdefault(name.removeprefix(PREFIX), whole)
    batch = _batch_settings(written or {}) | dict(settings)
    if not found.keys() & {"finished", "trained", "attempted"} and (whole := _of_full_batch(implied, batch)):
        found["finished"] = whole
    episodes = count_episodes(trajectories)
    if not found and episodes is None:
        return None
    return SampleCounters(
        counts={kind: found[kind] for kind in COUNTED if kind in found},
        shares=_shares(found, settings),
        causes={name.removeprefix(PREFIX): parts for name, parts in of_causes.items()},
        environments=_grouped(environments, series),
        episodes=episodes,
    )


def implied_samples(metrics: Mapping[str, Series], other: Mapping[str, Series]) -> Series | None:
    """Return how many samples a step's tokens are, by the mean lengths of prompt and response; None if not logged."""
    tokens, response = metrics.get("tokens/step"), metrics.get("len/response_mean")
    prompt = next((one for raw, one in other.items() if PROMPT_MEAN.search(raw)), None)
    if tokens is None or response is None or prompt is None:
        return None
    steps, values = tokens.finite()
    with np.errstate(invalid="ignore", divide="ignore"):
        count = values / (_at(response, steps) + _at(prompt, steps))
    usable = np.isfinite(count)
    return finite_series("samples/finished", steps[usable], count[usable], raw_name=tokens.raw_name)


def _batch_settings(written: Mapping[str, JsonScalar]) -> dict[str, JsonScalar]:
    """Return the settings that tell the size of a batch, under their short names; of several the first."""
    found: dict[str, JsonScalar] = {}
    for name, value in written.items():
        parts = name.split(".")
        if isinstance(value, int) and not isinstance(value, bool):
            for short in {parts[-1], "_".join(parts[-2:])}.intersection((*BATCHES, *GROUP_SIZES)):
                found.setdefault(short, value)
    return found


def _of_full_batch(implied: Series | None, settings: Mapping[str, JsonScalar]) -> Series | None:
    """Return the implied number of samples, the full batch where it is nearly that; None where no batch size is set."""
    asked = _asked(settings, groups=False)
    if implied is None or asked is None or not len(implied.finite()[0]):
        return None
    counts = implied.values
    return replace(implied, values=np.where(np.abs(counts - asked) <= NEARLY_FULL * asked, asked, counts))


def _parts(raws: Sequence[str], part: Part) -> dict[str, tuple[str, str]]:
    """Return the canonical name and the cause or environment of each spelling that has one."""
    return {raw: found for raw in raws if (found := part_of(raw, part)) is not None}


def _grouped(parts: Mapping[str, tuple[str, str]], series: Mapping[str, Series]) -> dict[str, dict[str, Series]]:
    """Put series by canonical name and part; of several with one part, the first by name: one is of an environment."""
    grouped: dict[str, dict[str, Series]] = {}
    logged = {name for raw, (name, _) in parts.items() if not raw.startswith(LINES) and raw in series}
    for raw, (name, part) in sorted(parts.items()):
        if raw.startswith(LINES) and name in logged:  # lines of the console repeat what is logged
            continue
        if raw in series and len(grouped.get(name, ())) < MAX_CAUSES and len(series[raw].finite()[0]):
            grouped.setdefault(name, {}).setdefault(part, series[raw])
    return grouped


def _read(metrics: pl.DataFrame, wide: WideMetrics, raws: Sequence[str], logged: IntArray) -> dict[str, Series]:
    """Return a series for each spelling, summed over ranks where each rank writes its own; totals as counts a step."""
    placed = _with_place(metrics, raws)
    summed = placed.filter(pl.col("place").is_null())
    read = training_series(summed, wide, {raw: raw for raw in raws})
    read = _of_ranks(placed.filter(~pl.col("name_raw").is_in(list(read)))) | read
    whole = {raw: filled(series, logged, total=is_total(raw)) for raw, series in read.items()}
    return {raw: counts_of_total(series) if is_total(raw) else series for raw, series in whole.items()}


def filled(series: Series, logged: IntArray, *, total: bool) -> Series:
    """Return a counter that is left out where it is 0 with these zeros; a late total with those before it."""
    if not is_sparse(series.raw_name) or not len(series.finite()[0]):
        return series
    own, values = series.finite()
    missing = np.setdiff1d(logged, own)
    missing = missing[missing < own[0]] if total else missing
    steps = np.concatenate([own, missing])
    order = np.argsort(steps, kind="stable")
    counts = np.concatenate([values, np.zeros(len(missing))])[order]
    return replace(series, steps=steps[order], values=counts, flags=np.zeros(len(steps), np.uint8), extremes=None)


def _with_place(metrics: pl.DataFrame, raws: Sequence[str]) -> pl.DataFrame:
    """Return the rows of some spellings, with the rank that logged them, by its number or its file's path."""
    rows = metrics.filter((pl.col("split") == "train") & pl.col("name_raw").is_in(list(raws)))
    return rows.with_columns(
        place=pl.coalesce(pl.col("rank").cast(pl.String), pl.col("source").str.extract(RANK_OF)),
    )


def _of_ranks(placed: pl.DataFrame) -> dict[str, Series]:
    """Sum what several ranks log of one name at one step; a file without a rank holds the sum already."""
    rows = placed.filter(pl.col("step").is_not_null() & pl.col("value").is_finite())
    if rows.is_empty():
        return {}
    last = rows.sort("seq", maintain_order=True).unique(["name_raw", "place", "step"], keep="last", maintain_order=True)
    is_share = pl.col("name").first().str.ends_with("_frac")
    value = pl.when(is_share).then(pl.col("value").mean()).otherwise(pl.col("value").sum())
    totals = last.group_by("name_raw", "step").agg(value=value).sort("name_raw", "step")
    return {
        str(raw): finite_series(str(raw), part["step"].to_numpy(), part["value"].to_numpy())
        for (raw,), part in totals.partition_by("name_raw", as_dict=True, maintain_order=True).items()
    }


RANK_OF: Final = r"(?i)(?:^|[^a-z])rank[_=-]?(\d+)"


def counts_of_total(series: Series) -> Series:
    """Return what a running total grew by in each step; one that falls started anew, and counts from 0.

    The growth over a gap is spread over its steps. The first value counts only at a run's first step: a later one holds
    what came before.
    """
    steps, values = series.finite()
    if not len(steps):
        return series
    grown = np.diff(values, prepend=0.0)
    anew = grown < 0
    grown[anew] = values[anew]
    gaps = np.diff(steps, prepend=steps[0] - 1).astype(np.float64)
    known = np.ones(len(steps), bool)
    known[0] = steps[0] <= 1
    rates = grown / np.maximum(gaps, 1.0)
    return replace(
        series, steps=steps[known], values=rates[known], flags=np.zeros(int(known.sum()), np.uint8), extremes=None
    )


def _summed(series: Sequence[Series], name: str) -> Series | None:
    """Return the sum of counts that count different samples, 0 where one is not logged; of shares, the first."""
    usable = [one for one in series if len(one.finite()[0])]
    if not usable:
        return None
    if len(usable) == 1 or name.endswith("_frac"):
        return replace(usable[0], name=name)
    alike = {bare_name(one.raw_name): one for one in reversed(usable)}  # one reporter's prefix beside none is a copy
    parts = [alike[key] for key in sorted(alike)]
    steps = np.unique(np.concatenate([one.finite()[0] for one in parts]))
    total = np.zeros(len(steps))
    for one in parts:
        at, values = one.finite()
        total[np.searchsorted(steps, at)] += values
    return finite_series(name, steps, total, raw_name=parts[0].raw_name)


def share_of_one(series: Series) -> Series:
    """Return a share as a part of one, where it is logged in per cent."""
    values = series.finite()[1]
    return replace(series, values=series.values / 100.0) if len(values) and values.max() > PERCENT else series


def _shares(counts: Mapping[str, Series], settings: Mapping[str, JsonScalar]) -> dict[str, Series]:
    """Return by kind the share of samples asked for: as logged, else of attempts, else of those left and lost."""
    shares: dict[str, Series] = {}
    for kind in COUNTED:
        logged, count = counts.get(f"{kind}_frac"), counts.get(kind)
        if logged is not None:
            shares[kind] = share_of_one(logged)
        elif count is not None and (share := _share(kind, count, counts, settings)) is not None:
            shares[kind] = share
    if (kept := counts.get("kept_frac")) is not None and "filtered" not in shares:
        kept = share_of_one(kept)
        shares["filtered"] = replace(kept, values=1.0 - kept.values)
    parts = [shares[kind] for kind in LOST if kind in shares]
    if parts:
        whole = _summed(parts, "samples/lost") if len(parts) > 1 else parts[0]
        if whole is not None:
            shares["lost"] = replace(whole, values=np.minimum(whole.values, 1.0))
    told = "lost" not in shares or shares["lost"].raw_name.startswith(LINES)  # lines tell of tries, not of samples
    if told and (missing := _unfinished(counts) or _missing(counts) or _ended_by_nothing(counts)) is not None:
        shares["lost"] = missing
    return shares


def _unfinished(counts: Mapping[str, Series]) -> Series | None:
    """Return the share of attempted samples that did not finish, where both are counted in one unit."""
    attempted, finished = counts.get("attempted"), counts.get("finished")
    if attempted is None or finished is None or counts_groups(attempted.raw_name) != counts_groups(finished.raw_name):
        return None
    steps, asked = attempted.finite()
    done = _at(finished, steps)
    if not (done[np.isfinite(done)] <= asked[np.isfinite(done)]).all():
        return None  # of another clock: an asynchronous loop finishes what an earlier step asked for
    unfinished = _ratio(finished, steps, asked - done, asked)
    return None if unfinished is None else replace(unfinished, name=UNFINISHED)


def _ended_by_nothing(counts: Mapping[str, Series]) -> Series | None:
    """Return the share of samples that ended neither by themselves nor at a limit, where both are logged."""
    ended, clipped = counts.get("ended_frac"), counts.get(LIMITS[0])
    if ended is None or clipped is None:
        return None
    steps, values = ended.finite()
    rest = 1.0 - values
    for name in LIMITS:
        rest = rest - (_at(counts[name], steps) if name in counts else 0.0)
    known = np.isfinite(rest)
    return finite_series(ENDED_BY_NOTHING, steps[known], np.maximum(rest[known], 0.0), raw_name=ended.raw_name)


def _missing(counts: Mapping[str, Series]) -> Series | None:
    """Return the share of a full batch that is missing, where most early steps had the same number of samples."""
    for kind in ("finished", "trained", "attempted"):
        series = counts.get(kind)
        if series is None or counts_groups(series.raw_name) or len(series.finite()[0]) < FULL_STEPS:
            continue
        steps, values = series.finite()
        full = float(values.max())
        if full > 0 and (values[:FULL_STEPS] == full).mean() >= MOSTLY_FULL and (values < full).any():
            return finite_series(MISSING, steps, 1.0 - values / full, raw_name=series.raw_name)
    return None


def _share(kind: str, count: Series, counts: Mapping[str, Series], settings: Mapping[str, JsonScalar]) -> Series | None:
    """Return a count over what was asked for in the same unit, or None where that is not known."""
    steps, values = count.finite()
    groups = counts_groups(count.raw_name) or _speaks_of_several(count.raw_name)
    attempted = counts.get("attempted")
    if attempted is not None and counts_groups(attempted.raw_name) == groups:
        return _ratio(count, steps, values, _at(attempted, steps))
    left = counts.get("finished") or counts.get("trained")
    if left is not None and counts_groups(left.raw_name) == groups:
        lines = count.raw_name.startswith(LINES)
        stay = lines and (kind == "unscored" or MASKS.search(count.raw_name) is not None)  # in the batch
        return _ratio(count, steps, values, _at(left, steps) + (0.0 if stay else values))
    asked = _asked(settings, groups=groups)
    if asked is None:
        return None
    anew = ("/evicted_samples", "_groups_filtered")
    beside = kind in ("dropped", "evicted", "filtered") or count.raw_name.endswith(anew)  # sampled anew
    return _ratio(count, steps, values, asked + values if beside else np.full(len(steps), asked))


def _speaks_of_several(raw: str) -> bool:
    """Return whether a line that is counted speaks of a group, or of samples without their number."""
    return raw.startswith((f"{LINES}evicted/", f"{LINES}dropped/")) and SEVERAL.search(raw) is not None


def _asked(settings: Mapping[str, JsonScalar], *, groups: bool) -> float | None:
    """Return how many prompts, or samples, a step asks for by the run's settings."""
    prompts = next((float(found) for key in BATCHES if isinstance(found := settings.get(key), int | float)), None)
    size = next((float(found) for key in GROUP_SIZES if isinstance(found := settings.get(key), int | float)), None)
    if prompts is None or prompts <= 0:
        return None
    return prompts if groups else None if size is None or size <= 0 else prompts * size


def _at(series: Series, steps: IntArray) -> FloatArray:
    """Return a series at some steps, NaN where it has no value."""
    own, values = series.finite()
    found = np.full(len(steps), np.nan)
    _, here, there = np.intersect1d(steps, own, return_indices=True)
    found[here] = values[there]
    return found


def _ratio(count: Series, steps: IntArray, part: FloatArray, whole: FloatArray) -> Series | None:
    with np.errstate(invalid="ignore", divide="ignore"):
        share = part / whole
    usable = np.isfinite(share) & (whole > 0) & (share >= 0)
    if not usable.any():
        return None
    return finite_series(count.name, steps[usable], np.minimum(share[usable], 1.0), raw_name=count.raw_name)


def is_fault(error: str) -> bool:
    """Return whether an error's name or text speaks of something else than the policy's own doing."""
    return bool(FAULTS.search(error)) or not POLICY.search(error)


def cause_of(error: str) -> str:
    """Return an error without the numbers that make each of its messages another one."""
    return NUMBERS.sub("N", error.strip())[:MAX_CAUSE]


def count_episodes(trajectories: pl.DataFrame) -> Episodes | None:
    """Count the recorded episodes of training by step; None where none of them tells how it ended."""
    placed = trajectories.filter(pl.col("step").is_not_null() & (pl.col("split") != "eval"))
    sure = placed.filter(pl.col("split") == "train")
    placed = (sure if sure.height else placed).unique("trajectory_id", keep="first", maintain_order=True)
    ended = pl.col("error_type").is_not_null() | pl.col("stop_reason").is_not_null() | pl.col("masked").is_not_null()
    silent = _is_silent(placed)
    if not (placed.select(ended.any()).item() or silent.any()):
        return None
    faults = [error for error in placed["error_type"].drop_nulls().unique() if is_fault(error)]
    stops = [stop for stop in placed["stop_reason"].drop_nulls().unique() if STOPS.search(stop)]
    failed = pl.col("error_type").is_in(faults) | (pl.col("error_type").is_null() & pl.col("stop_reason").is_in(stops))
    scored = pl.col("reward").is_finite().fill_null(value=False)
    placed = placed.with_columns(silent=silent)
    rows = placed.with_columns(failed=failed.fill_null(value=False) | pl.col("silent"), scored=scored).with_columns(
        cause=pl.when(pl.col("error_type").is_in(faults))
        .then("error_type")
        .when("silent")
        .then(pl.lit(SILENT))
        .when("failed")
        .then("stop_reason"),
        gain=_gain(),
        trained=pl.col("failed")
        & pl.col("scored")
        & (pl.col("error_type").is_not_null() | pl.col("silent"))
        & ~pl.col("masked").fill_null(value=False),
    )
    by_step = _by_step(rows)
    causes = Counter(map(cause_of, rows["cause"].drop_nulls()))
    return Episodes(
        steps=by_step["step"].to_numpy(),
        **{name: by_step[name].to_numpy() for name in by_step.columns if name != "step"},
        advantage_recorded=bool(rows.filter("failed")["advantage"].is_finite().any()),
        masks_recorded=bool(rows["masked"].is_not_null().any()),
        causes=dict(sorted(causes.items(), key=lambda entry: (-entry[1], entry[0]))[:MAX_CAUSES]),
    )


def _is_silent(placed: pl.DataFrame) -> pl.Series:
    """Return which samples hold no token or only the one that ends them, where others are answers of some length.

    Such a row stands for an episode that failed before it began, unless it says that the policy ended it.
    """
    tokens, median = placed["tokens_out"], placed["tokens_out"].median()
    if not isinstance(median, float) or median < USUAL_TOKENS:
        return pl.repeat(False, len(tokens), dtype=pl.Boolean, eager=True)
    ended = placed["stop_reason"].str.contains(ENDED).fill_null(value=False)
    return (tokens <= 1).fill_null(value=False) & ~ended


def _by_step(rows: pl.DataFrame) -> pl.DataFrame:
    some_scored = bool(rows["scored"].any())
    reward = pl.col("reward").filter(pl.col("scored"))
    by_step = rows.group_by("step").agg(
        asked=pl.len().cast(pl.Float64),
        failed=pl.col("failed").sum().cast(pl.Float64),
        trained=pl.col("trained").sum().cast(pl.Float64),
        unscored=(~pl.col("scored")).sum().cast(pl.Float64) if some_scored else pl.lit(0.0),
        failed_reward=pl.col("reward").filter(pl.col("scored") & pl.col("failed")).mean(),
        clean_reward=pl.col("reward").filter(pl.col("scored") & ~pl.col("failed")).mean(),
        asked_reward=reward.sum() / pl.len(),
        advantage=pl.col("gain").filter(pl.col("trained") & pl.col("gain").is_finite()).mean(),
    )
    return by_step.sort("step").with_columns(pl.col(pl.Float64).fill_null(np.nan))


def cohorts(metrics: Mapping[str, Series]) -> tuple[Series, Series] | None:
    """Return the reward over all samples and over those kept for training, where both are logged."""
    names = ("reward/unfiltered", "reward/filtered", "reward/mean")
    logged = (metrics.get(name) for name in names)
    every, kept, mean = (one if one is not None and len(one.finite()[0]) else None for one in logged)
    if every is not None and mean is not None:
        return every, mean
    return (mean, kept) if mean is not None and kept is not None else None


def _gain() -> pl.Expr:
    """Return the advantage: as recorded, else the reward less the mean of its prompt group, where it has siblings."""
    of_group = pl.col("reward").mean().over("step", "group_id")
    siblings = pl.len().over("step", "group_id")
    beside = pl.when(pl.col("group_id").is_not_null() & (siblings > 1)).then(pl.col("reward") - of_group)
    return pl.coalesce(pl.when(pl.col("advantage").is_finite()).then("advantage"), beside)
