"""Faults that single recorded samples show and no metric counts: useless results, lost calls, silent timeouts, junk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.counts import Counts
from ptt.diagnostics.evidence.sample_counters import cause_of, is_fault
from ptt.diagnostics.model import Steps
from ptt.diagnostics.parsers.io.result_outcomes import NAME_WORD, RUNS, tool_kind
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.change_point import rate_change

JUNK: Final = 0.95  # of runs of four words that stood there before, or of letters: nothing is said
STALE_VERSIONS: Final = 8  # versions behind its batch, per version of a step: beyond any usual staleness bound
TEXT_CALL: Final = "text-call"  # begins the id of a call that stands in a message's text alone
AT_LIMIT: Final = 0.015  # of the longest duration: how near to it an episode ends that a limit ended
MIN_PILED: Final = 20
MANY_PILED: Final = 30  # episodes of a single step, which then must earn far less than the others
LOWER_REWARD: Final = 0.5  # of the size of the others' mean, which may be below 0: by so much less
MIN_PILED_STEPS: Final = 3
CROWDED: Final = 5.0  # times as many within the last part below the limit as in a part as wide before it
TIMEOUT_WORDS: Final = r"(?i)time.?d?.?out|timeout|limit|max|truncat|length|cancel|abort"
CUT_WORDS: Final = TIMEOUT_WORDS + r"|(?:^|[^a-z])(?:turn|step)"
"""Words of an end that may leave a last call without its result."""
LONG_UNPAID: Final = 0.15  # of the longest third of the right answers
OF_ONE_SOURCE: Final = 0.9  # of the right answers that are not paid
MIN_CALLS: Final = 20  # of one tool
MAX_TOOLS: Final = 20
LOOKS_UP: Final = frozenset({
    "search", "retrieve", "retrieval", "retriever", "lookup", "query", "fetch", "browse", "browser", "read", "open",
    "get", "wiki", "wikipedia", "crawl",
})  # fmt: skip
"""Words in the names of tools that are asked for something; of other tools nothing is an answer too."""
OWN_DOING: Final = r"(?i)time.?d?.?out|memory|kill"
"""Words of an error that every program gets that runs for too long or takes too much."""
NEARLY_ALL_EMPTY: Final = 0.9  # of the calls from the first step on; queries that find nothing may be more than half


@dataclass(frozen=True, kw_only=True)
class UselessResults:
    """Calls of one tool that got nothing, or one and the same error whatever was asked."""

    tool: str
    empty: bool
    text: str  # the error
    counts: Counts  # of all calls of the tool


@dataclass(frozen=True, kw_only=True)
class PiledUp:
    """Episodes that end at one and the same duration, though nothing says that a limit ended them."""

    seconds: float
    counts: Counts  # of the episodes with a duration
    reward: float  # mean
    reward_of_others: float
    ends: str  # what they say of their end, most often


@dataclass(frozen=True, kw_only=True)
class TurnMeans:
    """Means of the reward at recorded steps, (steps,): over episodes, and over their turns, a long one often."""

    steps: IntArray
    by_episode: FloatArray
    by_turn: FloatArray
    turns: tuple[float, float]  # of an episode in the upper half of the rewards, and of one in the lower


@dataclass(frozen=True, kw_only=True)
class SampleFaults:
    """Counts by step; None where the records do not tell."""

    unpaid_source: str | None = None  # the data source or environment that nearly all of them are of
    unpaid: Counts | None = None  # answers that are right as they stand and earn the least, of all right ones
    unpaid_evaluated: bool = False  # they are answers of evaluations, as no right ones of training are recorded
    unpaid_by_length: tuple[float, float] | None = None  # share of them: of the longest third, of the others
    useless: tuple[UselessResults, ...] = ()  # the most frequent first
    unexecuted: Counts | None = None  # episodes that end with a call in a text, never made, of those with calls
    timed: bool = False  # enough durations of episodes are recorded
    piled: PiledUp | None = None
    turn_means: TurnMeans | None = None  # of episodes of different numbers of turns
    junk: Counts | None = None  # answers of one or two characters, or one loop, of those measured
    far_versions: Counts | None = None  # samples of one version far from those of the step's others


def gather_faults(trajectories: pl.DataFrame, calls: pl.DataFrame, answers: pl.DataFrame) -> SampleFaults | None:
    """Look for such faults in the recorded episodes of training; None where none is recorded at a step.

    What right answers earn is looked for in evaluations where no right answer of training is recorded.
    """
    at_steps = trajectories.filter(pl.col("step").is_not_null())
    at_steps = at_steps.unique("trajectory_id", keep="first", maintain_order=True)
    placed, evaluated = at_steps.filter(pl.col("split") != "eval"), at_steps.filter(pl.col("split") == "eval")
    if placed.is_empty():
        source, unpaid = _unpaid(evaluated)
        return None if unpaid is None else SampleFaults(unpaid_source=source, unpaid=unpaid, unpaid_evaluated=True)
    ends = placed.select("trajectory_id", "step", _may_be_cut().alias("cut"))
    own = calls.drop("step", strict=False).join(ends, on="trajectory_id")
    source, unpaid = _unpaid(placed)
    of_evaluations = unpaid is None
    if of_evaluations:
        source, unpaid = _unpaid(evaluated)
    return SampleFaults(
        unpaid_source=source,
        unpaid=unpaid,
        unpaid_evaluated=of_evaluations and unpaid is not None,
        unpaid_by_length=_unpaid_by_length(placed),
        useless=_useless(own),
        unexecuted=_unexecuted(own),
        timed=placed["duration_s"].count() >= 2 * MIN_PILED,
        piled=_piled(placed),
        turn_means=_turn_means(placed),
        junk=_counts(
            "answers that are junk",
            answers.join(placed.select("trajectory_id", "step"), on="trajectory_id"),
            (pl.col("repetition") >= JUNK).fill_null(value=False),
        ),
        far_versions=_far_versions(placed),
    )


def since(counts: Counts, share: float) -> tuple[Steps | None, Counts] | None:
    """Return since when hits make up `share` of the trials, as an interval, and the counts from there on; or None.

    The interval is None where they do from the first recorded step on. A share that fell again is none.
    """
    change = rate_change(counts.hits, counts.trials) if len(counts.steps) > 1 else None
    if change is not None:
        after = counts.from_place(change[0])
        before = float(counts.hits[: change[0]].sum() / counts.trials[: change[0]].sum())
        if after.lower_bound > max(share, 2 * before) and after.late().share > share:
            return (int(counts.steps[change[0] - 1]) + 1, int(counts.steps[change[0]])), after
    return (None, counts) if min(counts.lower_bound, counts.late().lower_bound) > share else None


def _counts(name: str, rows: pl.DataFrame, hit: pl.Expr) -> Counts | None:
    if rows.is_empty():
        return None
    by_step = (
        rows.group_by("step").agg(hit.sum().cast(pl.Float64).alias("hits"), pl.len().cast(pl.Float64)).sort("step")
    )
    steps, hits, trials = (column.to_numpy() for column in by_step)
    return Counts(name=name, steps=steps, hits=hits, trials=trials)


def _unpaid(placed: pl.DataFrame) -> tuple[str | None, Counts | None]:
    """Count right answers that earn no more than the worst sample, where samples earn differently.

    Of one source alone, and its name, where nearly all of them are of that source.
    """
    scored = placed.filter(pl.col("reward").is_finite())
    low, high = scored["reward"].min(), scored["reward"].max()
    right = scored.filter(pl.col("answer_right").fill_null(value=False))
    if low is None or low == high:
        return None, None
    name, hit = "right answers that earn the least", pl.col("reward") <= low
    unpaid = right.filter(hit)
    sources = unpaid["env"].drop_nulls().value_counts(sort=True)
    if sources.height and right["env"].n_unique() > 1 and sources["count"][0] >= OF_ONE_SOURCE * unpaid.height:
        source = str(sources["env"][0])
        return source, _counts(name, right.filter(pl.col("env") == source), hit)
    return None, _counts(name, right, hit)


def _unpaid_by_length(placed: pl.DataFrame) -> tuple[float, float] | None:
    """Return how many right answers earn the least among the longest third and the others, where these are far apart.

    A judge or a verifier that cannot take long answers leaves these unpaid.
    """
    scored = placed.filter(pl.col("reward").is_finite())
    right = scored.filter(pl.col("answer_right").fill_null(value=False) & (pl.col("tokens_out") > 0))
    if right.height < 3 * MIN_PILED:
        return None
    unpaid, long = right["reward"] <= scored["reward"].min(), right["tokens_out"] > right["tokens_out"].quantile(2 / 3)
    of_long, of_others = (_number(unpaid.filter(part).mean()) for part in (long, ~long))
    return (of_long, of_others) if of_long >= LONG_UNPAID and of_long >= CROWDED * of_others else None


def _useless(calls: pl.DataFrame) -> tuple[UselessResults, ...]:
    """Return the tools whose results hold nothing, or one error that is not the policy's."""
    found: list[UselessResults] = []
    answered = calls.filter(pl.col("result_len").is_not_null() & pl.col("name").is_not_null())
    tools = (
        answered.group_by("name").len().filter(pl.col("len") >= MIN_CALLS).sort("len", "name", descending=[True, False])
    )
    for tool in tools["name"].head(MAX_TOOLS).to_list():
        rows = answered.filter(pl.col("name") == tool)
        failing = rows.filter(pl.col("told_failed").fill_null(value=False) | ~pl.col("ok").fill_null(value=True))
        if tool_kind(tool) == RUNS:
            failing = failing.filter(~pl.col("error_text").str.contains(OWN_DOING).fill_null(value=False))
        texts = failing.group_by("result_hash").agg(pl.len(), pl.col("error_text").first())
        for digest, _, text in texts.sort("len", "result_hash", descending=[True, False]).head(1).iter_rows():
            if text and is_fault(text):
                counts = _counts(f"calls of {tool} with one error", rows, pl.col("result_hash") == digest)
                found += [UselessResults(tool=tool, empty=False, text=cause_of(text), counts=counts)] if counts else []
        if not _looks_up(tool):
            continue
        counts = _counts(f"calls of {tool} that get nothing", rows, pl.col("result_empty").fill_null(value=False))
        found += [UselessResults(tool=tool, empty=True, text="", counts=counts)] if counts else []
    return tuple(sorted(found, key=lambda one: -float(one.counts.hits.sum())))


def _looks_up(tool: str) -> bool:
    """Return whether a tool is asked for something, so that nothing is no answer: many commands print nothing."""
    return not LOOKS_UP.isdisjoint(word.lower() for word in NAME_WORD.findall(tool))


def _may_be_cut() -> pl.Expr:
    """Return whether a limit may have ended an episode behind its last call."""
    said = pl.col("stop_reason").str.contains(CUT_WORDS)
    return pl.any_horizontal(
        one.fill_null(value=False) for one in (pl.col("truncated"), said, pl.col("n_turns") == pl.col("n_turns").max())
    )


def _unexecuted(calls: pl.DataFrame) -> Counts | None:
    """Count episodes whose last call stands in a text without a result, where others of its tool were made.

    A tool that ends the episode answers none; and a limit of turns or time may end one behind a call.
    """
    if calls.is_empty():
        return None
    written = pl.col("call_id").str.starts_with(TEXT_CALL).fill_null(value=False)
    made = calls.filter(pl.col("result_len").is_not_null() | ~written)["name"].drop_nulls().unique().to_list()
    lost = written & pl.col("result_len").is_null() & pl.col("ok").is_null()  # not one that cannot be read
    if calls.select((~lost).any()).item():
        lost &= pl.col("name").is_in(made) & ~pl.col("cut")
    else:  # of calls without any result nothing tells who was to answer
        lost = pl.col("ok_source") == "went_on"
        if not calls.select(lost.any()).item():
            return None
    last = (
        calls.sort("trajectory_id", "call_idx")
        .group_by("trajectory_id", maintain_order=True)
        .agg(pl.col("step").last(), lost.last().alias("lost"))
    )
    return _counts("episodes with a call that was never made", last.sort("step", "trajectory_id"), pl.col("lost"))


def _piled(placed: pl.DataFrame) -> PiledUp | None:
    """Return the episodes that end where durations pile up, at their longest, and do not say why.

    A duration that all samples of a step share is the batch's.
    """
    timed = placed.filter(pl.col("duration_s").is_finite() & (pl.col("duration_s") > 0))
    timed = timed.filter((pl.col("duration_s").n_unique() > 1).over("step") | (pl.len().over("step") == 1))
    if timed.height < 2 * MIN_PILED:
        return None
    seconds = timed["duration_s"].to_numpy()
    longest = float(np.quantile(seconds, 1 - 1 / len(seconds)))
    width = AT_LIMIT * longest
    near = (seconds > longest - width) & (seconds <= longest + width)
    before = ((seconds > longest - 3 * width) & (seconds <= longest - width)).sum() / 2
    if near.sum() < CROWDED * max(before, 1.0):
        return None
    said = pl.col("stop_reason").str.contains(TIMEOUT_WORDS).fill_null(value=False)
    marked = said | pl.col("truncated").fill_null(value=False) | pl.col("error_type").is_not_null()
    rows = timed.with_columns(near=pl.Series(near)).with_columns(at=pl.col("near") & ~marked)
    piled, others = rows.filter("at"), rows.filter(~pl.col("near"))
    counts = _counts("episodes that end at one duration", rows, pl.col("at"))
    if counts is None or min(piled.height, others.height) < MIN_PILED:
        return None
    reward, other = (part["reward"].fill_nan(None).mean() for part in (piled, others))
    lost = _number(other) - _number(reward)
    fewer = lost > LOWER_REWARD * abs(_number(other)) and piled.height >= MANY_PILED
    if piled["step"].n_unique() < MIN_PILED_STEPS and not fewer:
        return None
    ends = piled["stop_reason"].drop_nulls().value_counts(sort=True)
    return PiledUp(
        seconds=float(np.median(piled["duration_s"].to_numpy())),
        counts=counts,
        reward=_number(reward),
        reward_of_others=_number(other),
        ends=str(ends["stop_reason"][0]) if ends.height else "",
    )


def _turn_means(placed: pl.DataFrame) -> TurnMeans | None:
    rows = placed.filter(pl.col("reward").is_finite() & (pl.col("n_turns") > 0))
    high = pl.col("reward") > pl.col("reward").mean()
    means = rows.group_by("step").agg(
        pl.len(),
        by_episode=pl.col("reward").mean(),
        by_turn=(pl.col("reward") * pl.col("n_turns")).sum() / pl.col("n_turns").sum(),
    )
    means = means.filter(pl.col("len") >= MIN_PILED).sort("step")
    if means.is_empty() or rows["n_turns"].n_unique() < 2:
        return None
    won, lost = (rows.filter(part)["n_turns"].mean() for part in (high, ~high))
    steps, by_episode, by_turn = (means[name].to_numpy() for name in ("step", "by_episode", "by_turn"))
    return TurnMeans(steps=steps, by_episode=by_episode, by_turn=by_turn, turns=(_number(won), _number(lost)))


def _number(found: object) -> float:
    return float(found) if isinstance(found, float | int) else float("nan")


def _far_versions(placed: pl.DataFrame) -> Counts | None:
    """Count samples of a version far behind the usual one of their step, where all such samples of it share one.

    Those of a stuck engine do; a replay buffer and episodes that span many steps give several. Versions may grow by
    more than one a step.
    """
    known = placed.filter(pl.col("policy_version").is_not_null())
    usual = known.group_by("step").agg(usual=pl.col("policy_version").median()).sort("step")
    growth = usual.select((pl.col("usual").diff() / pl.col("step").diff()).median()).item()
    far = pl.col("usual") - pl.col("policy_version") > STALE_VERSIONS * max(1.0, growth or 0.0)
    known = known.join(usual, on="step").with_columns(far=far)
    one = pl.col("policy_version").filter("far").n_unique().over("step") == 1
    return _counts("samples of old weights", known, pl.col("far") & one)


def worst_useless(found: Sequence[UselessResults], share: float) -> tuple[UselessResults, Steps | None, Counts] | None:
    """Return the tool that gives the most useless results, where they make up `share` of its calls.

    Empty ones count where they began, or where nearly all are: to find nothing is an answer too.
    """
    for one in found:
        told = since(one.counts, share)
        if told is None or told[1].hits.sum() < MIN_CALLS:
            continue
        if not one.empty or told[0] is not None or told[1].share >= NEARLY_ALL_EMPTY:
            return one, *told
    return None
