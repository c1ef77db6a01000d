"""Choose preference pairs among the attempts at one prompt: of whole completions, of single turns, and of the tail.

For step-level pairs attempts form a tree of messages. Up to a branching they share every message, so that its turns
answer the same conversation; a branch is worth the mean outcome of the attempts that took it, and no turn is ever
better and worse than the same other one.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Final

import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.errors import InputError
from ptt.diagnostics.traces.exports.messages import ASSISTANT, Chat
from ptt.diagnostics.traces.exports.ngrams import Grams, gram_set, jaccard
from ptt.diagnostics.traces.exports.options import Dedupe, ExportOptions, StepExtent
from ptt.diagnostics.traces.exports.partition import Attempt
from ptt.diagnostics.traces.token_tail import COUNTS

LENGTH_RATIO: Final = 1.25  # of the longer over the shorter side of a pair matched by length
NEAR: Final = 0.9  # Jaccard overlap of runs of three words above which two completions count as one
NEAR_WORDS: Final = 3

UNLABELLED: Final = "unlabelled"
CONTRADICTORY: Final = "contradictory_label"
DUPLICATE: Final = "duplicate"
NEAR_DUPLICATE: Final = "near_duplicate"
NOT_DRAWN: Final = "beyond_drawn_attempts"
CONTRADICTED: Final = "reward_contradicts_success"
BELOW_MARGIN: Final = "below_margin"
UNMATCHED: Final = "length_unmatched"
OVER_CAP: Final = "over_cap"
FEW: Final = "too_few_attempts"


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two completions of the same conversation, or two turns at its end; the first did better."""

    prompt: Chat
    chosen: Chat
    rejected: Chat
    better: Attempt  # the episode that the chosen side is taken from
    worse: Attempt
    margin: float  # difference of rewards or of mean outcomes, or 1 where only success is known
    label_from: str  # "success" or "reward"
    attempts: tuple[int, int]  # on which the two sides rest
    turn: int | None = None  # of a step-level pair: turns of the assistant before the two
    values: tuple[float | None, float | None] = (None, None)  # of a step-level pair: the mean outcome of either branch

    @property
    def is_weak(self) -> bool:
        """Return whether it rests on one attempt against one: their difference may be chance."""
        return self.attempts == (1, 1)


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """Labelled attempts at one prompt: the better and the worse by success, or all of them by reward."""

    better: tuple[Attempt, ...]
    worse: tuple[Attempt, ...]
    by_success: bool

    @property
    def label_from(self) -> str:
        """What tells the better from the worse."""
        return "success" if self.by_success else "reward"

    @property
    def has_tool_output(self) -> bool:
        """Whether anyone but the policy speaks in one of the completions."""
        return any(one.chat.completion.has_tool_output for one in (*self.better, *self.worse))

    def attempts(self, better: Attempt, worse: Attempt) -> tuple[int, int]:
        """Return how many attempts did as well as the better one, and how many as badly as the worse one."""
        if self.by_success:
            return len(self.better), len(self.worse)
        rewards = [one.reward or 0.0 for one in self.better]
        high, low = better.reward or 0.0, worse.reward or 0.0
        return sum(reward >= high for reward in rewards), sum(reward <= low for reward in rewards)


@dataclass
class Tally:
    """What was left out, by reason: episodes and pairs."""

    episodes: Counter[str] = field(default_factory=Counter)
    pairs: Counter[str] = field(default_factory=Counter)


def same_prompt(attempts: Sequence[Attempt]) -> Iterator[tuple[tuple[object, ...], list[Attempt]]]:
    """Split attempts by what makes a prompt the same: its messages, the tools, the task, the group of the file."""
    groups: dict[tuple[object, ...], list[Attempt]] = {}
    for attempt in attempts:
        key = (attempt.chat.prompt.digest, attempt.tools, attempt.facts["task"], attempt.facts["group_id"])
        groups.setdefault(key, []).append(attempt)
    yield from groups.items()


def candidates(attempts: Sequence[Attempt], dedupe: Dedupe, tally: Tally) -> Candidates | None:
    """Return the attempts at one prompt from which pairs can be made; None if their outcomes do not differ.

    Success decides if the file labels it, and unlabelled attempts are then left out; otherwise the reward decides.
    """
    by_success = any(attempt.success is not None for attempt in attempts)
    labelled = [one for one in attempts if (one.success if by_success else one.reward) is not None]
    tally.episodes[UNLABELLED] += len(attempts) - len(labelled)
    labelled = _without_contradictions(labelled, by_success, tally)
    if dedupe is not Dedupe.NONE:
        labelled = _without_duplicates(labelled, near=dedupe is Dedupe.NEAR, tally=tally)
    if by_success:
        better = tuple(one for one in labelled if one.success)
        worse = tuple(one for one in labelled if not one.success)
    else:
        better = worse = tuple(labelled)
    if not better or not worse or (not by_success and len({one.reward for one in labelled}) < 2):
        return None
    return Candidates(better=better, worse=worse, by_success=by_success)


def choose_pairs(found: Candidates, options: ExportOptions, tally: Tally) -> list[Pair]:
    """Return up to so many pairs of a prompt: attempts used least come first, then the widest margin or nearest length.

    Among equals the ids decide, so that the same files give the same pairs.
    """
    waiting = []
    for pair in _possible(found, options, tally):
        apart = abs(math.log(pair.chosen.length / pair.rejected.length))
        order = apart if options.match_length else -pair.margin
        waiting.append((0, order, pair.better.trajectory_id, pair.worse.trajectory_id, pair))
    heapq.heapify(waiting)
    uses: Counter[str] = Counter()
    chosen: list[Pair] = []
    while waiting and len(chosen) < options.max_pairs_per_prompt:
        used, order, better, worse, pair = heapq.heappop(waiting)
        now = uses[better] + uses[worse]
        if now > used:
            heapq.heappush(waiting, (now, order, better, worse, pair))
            continue
        uses[better] += 1
        uses[worse] += 1
        chosen.append(pair)
    tally.pairs[OVER_CAP] += len(waiting)
    return chosen


def _possible(found: Candidates, options: ExportOptions, tally: Tally) -> Iterator[Pair]:
    for better in found.better:
        for worse in found.worse:
            if better.chat.completion.digest == worse.chat.completion.digest:
                continue
            margin = _margin(better, worse, by_success=found.by_success)
            if margin <= 0:  # by reward the pair comes the other way round as well
                tally.pairs[CONTRADICTED] += found.by_success
                continue
            if margin < options.min_margin:
                tally.pairs[BELOW_MARGIN] += 1
                continue
            pair = Pair(
                prompt=better.chat.prompt,
                chosen=better.chat.completion,
                rejected=worse.chat.completion,
                better=better,
                worse=worse,
                margin=margin,
                label_from=found.label_from,
                attempts=found.attempts(better, worse),
            )
            if _is_wanted(pair, options, tally):
                yield pair


def _is_wanted(pair: Pair, options: ExportOptions, tally: Tally) -> bool:
    lengths = (pair.chosen.length, pair.rejected.length)
    if options.match_length and max(lengths) > LENGTH_RATIO * min(lengths):
        tally.pairs[UNMATCHED] += 1
        return False
    few = min(pair.attempts) < options.min_attempts
    tally.pairs[FEW] += few
    return not few


def _margin(better: Attempt, worse: Attempt, *, by_success: bool) -> float:
    if better.reward is not None and worse.reward is not None:
        return better.reward - worse.reward
    return 1.0 if by_success else 0.0


def _without_contradictions(attempts: list[Attempt], by_success: bool, tally: Tally) -> list[Attempt]:
    """Leave out completions that succeeded once and failed once: neither is better."""
    if not by_success:
        return attempts
    outcomes: dict[bytes, set[bool | None]] = {}
    for one in attempts:
        outcomes.setdefault(one.chat.completion.digest, set()).add(one.success)
    kept = [one for one in attempts if len(outcomes[one.chat.completion.digest]) == 1]
    tally.episodes[CONTRADICTORY] += len(attempts) - len(kept)
    return kept


def _without_duplicates(attempts: list[Attempt], *, near: bool, tally: Tally) -> list[Attempt]:
    """Keep the first of completions that are equal, or with `near` nearly so and of the same outcome."""
    first: dict[bytes, Attempt] = {}
    for one in attempts:
        first.setdefault(one.chat.completion.digest, one)
    tally.episodes[DUPLICATE] += len(attempts) - len(first)
    if not near:
        return list(first.values())
    kept: list[Attempt] = []
    grams: list[Grams] = []
    for one in first.values():
        found = gram_set(one.chat.completion.said, NEAR_WORDS)
        alike = (
            jaccard(found, other) >= NEAR for other, of in zip(grams, kept, strict=True) if of.success == one.success
        )
        if any(alike):
            tally.episodes[NEAR_DUPLICATE] += 1
            continue
        kept.append(one)
        grams.append(found)
    return kept


NO_OUTCOME: Final = "outcomes_do_not_differ"
ENVIRONMENT: Final = "parted_in_the_environment"


@dataclass(frozen=True, kw_only=True)
class Branch:
    """Attempts that take one turn at a branching, the best and the worst of them, and what the turn is worth."""

    attempts: tuple[Attempt, ...]
    value: float
    best: Attempt
    worst: Attempt


def choose_steps(found: Candidates, options: ExportOptions, tally: Tally) -> list[Pair]:
    """Return up to so many step-level pairs of one prompt, those on the most attempts and widest apart first."""
    attempts = tuple({one.trajectory_id: one for one in (*found.better, *found.worse)}.values())
    whole = options.steps_to is StepExtent.END
    pairs = [_pair(*parting, found, whole=whole) for parting in _partings(attempts, 0, found, tally)]
    kept = [
        pair for pair in pairs if pair.margin > 0 and pair.margin >= (options.min_margin if not found.by_success else 0)
    ]
    tally.pairs[NO_OUTCOME] += len(pairs) - len(kept)
    kept = [pair for pair in kept if _is_wanted(pair, options, tally)]
    kept.sort(key=lambda pair: (-_weight(pair), pair.turn, pair.better.trajectory_id))
    tally.pairs[OVER_CAP] += max(0, len(kept) - options.max_pairs_per_prompt)
    return kept[: options.max_pairs_per_prompt]


def _weight(pair: Pair) -> float:
    """Return the margin in units of its noise: attempts of both sides count as in a difference of two means."""
    better, worse = pair.attempts
    return pair.margin * math.sqrt(better * worse / (better + worse))


def _partings(
    attempts: Sequence[Attempt], at: int, found: Candidates, tally: Tally
) -> Iterator[tuple[int, Branch, Branch]]:
    """Yield the message at which attempts part by a turn of the assistant, with the best branch and the worst."""
    pending = [(at, list(attempts))]
    while pending:
        at, group = pending.pop()
        branches: dict[bytes, list[Attempt]] = {}
        for one in group:
            if at < len(one.chat.completion.digests):
                branches.setdefault(one.chat.completion.digests[at], []).append(one)
        pending += [(at + 1, branch) for branch in branches.values() if len(branch) > 1]
        if len(branches) < 2:
            continue
        if {branch[0].chat.completion.roles[at] for branch in branches.values()} != {ASSISTANT}:
            tally.pairs[ENVIRONMENT] += 1
            continue
        ranked = sorted((_branch(branch, found) for branch in branches.values()), key=_rank)
        yield at, ranked[-1], ranked[0]


def _rank(branch: Branch) -> tuple[float, int, str]:
    return branch.value, len(branch.attempts), branch.best.trajectory_id


def _branch(attempts: list[Attempt], found: Candidates) -> Branch:
    ranked = sorted(attempts, key=lambda one: (_outcome(one, found), one.reward or 0.0, one.trajectory_id))
    value = sum(_outcome(one, found) for one in attempts) / len(attempts)
    return Branch(attempts=tuple(attempts), value=value, best=ranked[-1], worst=ranked[0])


def _outcome(attempt: Attempt, found: Candidates) -> float:
    return float(bool(attempt.success)) if found.by_success else float(attempt.reward or 0.0)


def _pair(at: int, better: Branch, worse: Branch, found: Candidates, *, whole: bool) -> Pair:
    last = None if whole else at + 1
    shared = better.best.chat.completion.part(0, at)
    return Pair(
        prompt=better.best.chat.prompt + shared,
        chosen=better.best.chat.completion.part(at, last),
        rejected=worse.worst.chat.completion.part(at, last),
        better=better.best,
        worse=worse.worst,
        margin=better.value - worse.value,
        label_from=found.label_from,
        attempts=(len(better.attempts), len(worse.attempts)),
        turn=shared.roles.count(ASSISTANT),
        values=(better.value, worse.value),
    )


TOP_SHARE: Final = 0.1  # of the episodes with a tail token: those with most of them
SEED: Final = 20_261_123  # decides among episodes with as many


@dataclass(frozen=True, kw_only=True)
class TailEpisodes:
    """Episodes that are joined to tokens: the share of all tail tokens that each holds, and the ones with most."""

    shares: Mapping[str, float]
    top: frozenset[str]

    def holds(self, attempts: Iterable[Attempt]) -> bool:
        """Return whether one of the attempts is among the episodes with most tail tokens."""
        return any(one.trajectory_id in self.top for one in attempts)

    def share(self, attempts: Iterable[Attempt]) -> float | None:
        """Return the share of all tail tokens that attempts hold; None where none is joined to tokens."""
        known = [self.shares[one.trajectory_id] for one in attempts if one.trajectory_id in self.shares]
        return math.fsum(known) if known else None


def read_tail_episodes(store: Path) -> TailEpisodes:
    """Read what each episode holds of the tail; InputError where no tokens are joined to episodes."""
    path = store / COUNTS
    if not path.is_file():
        why = "no tokens with two logprobs are joined to its episodes; ptt traces says how under token-tail"
        raise InputError(f"{store}: --from-tail: {why}.")
    counts = pl.read_parquet(path, glob=False)
    total = max(1, int(counts["tail"].sum()))
    drawn = pl.col("trajectory_id").hash(SEED)
    ordered = counts.filter(pl.col("tail") > 0).sort(-pl.col("tail"), drawn, "trajectory_id")
    top = ordered.head(math.ceil(TOP_SHARE * ordered.height))["trajectory_id"].to_list()
    shares = counts.select("trajectory_id", pl.col("tail") / total).rows()
    return TailEpisodes(shares=dict(shares), top=frozenset(top))
