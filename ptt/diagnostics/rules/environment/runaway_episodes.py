"""This run shows runaway episodes: far longer than usual, or going round in circles.

What: the share of trajectories that exceed three times the early 95th percentile of turns (or tokens), and at least
eight turns (1000 tokens); and the share that makes the same one to four calls, arguments and results included, three
times in a row. Either one, or the logged share that reaches the turn limit, rises for good above a tenth; without
trajectories, the logged mean number of turns triples.
Why it matters: such episodes hold up the step, fill the batch with tokens that teach little, and end at the limit.
What it is not: longer work that pays. Where long episodes earn as much as the others, it is a note. Calling one tool
often with different arguments is no circle.
What to do: read the longest. Let the environment end circles; where episodes are only long, check what the reward says
about turns.
Source: the definitions are this project's own; by tool names alone, random choice among four tools looks like a loop in
every fifth episode.
"""

from dataclasses import replace

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import (
    EARLY_MAX_VALUES,
    EARLY_MIN_VALUES,
    EARLY_SHARE,
    MIN_VALUES,
    early_level,
    lasting_rise,
)
from ptt.diagnostics.evidence.counts import Counts, counted_share, logged_share
from ptt.diagnostics.evidence.environment import Episodes
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.environment import UNRECORDED, Question, SharesVerdict, judge_shares
from ptt.diagnostics.rules.interface import Broken, Finding, Healthy, Limits, Verdict, rule
from ptt.diagnostics.rules.reward_outcome import reward_dropped
from ptt.diagnostics.rules.single_series import late_mean, measured
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray
from ptt.diagnostics.wording import sig

LENGTH_FACTOR = 3.0  # what 95% of the early trajectories stay below
MIN_TURNS = 8.0  # fewer are no long episode, however short the others were
MIN_TOKENS = 1000.0
FLOOR = 0.1  # of the trajectories
FACTOR = 2.0  # times the early share
MEDIUM = 0.1
HIGH = 0.5  # the batch is mostly runaways
CHRONIC = 0.3  # of the trajectories loop from the start
USUAL_QUANTILE = 0.95

QUESTION = Question(
    what="trajectories that run away",
    missing=("trajectories.n_turns", "turns/mean"),
    enable="log completions as messages (TRL: log_completions=True), or the mean number of turns",
    causes=(
        "a reward that pays for turns or calls, or nothing that ends an episode",
        "a policy that lost the thread and repeats itself",
        "an environment that no longer says when the task is done",
    ),
    confirm="read the five longest trajectories {steps}: do they repeat themselves, and how did they end?",
    next=(
        "let the environment end an episode at its second identical round",
        "stop rewarding turns and calls",
        "set the turn limit near what 95% of the good trajectories need",
    ),
)
AT_LIMIT = replace(QUESTION, what="trajectories that reach the turn limit")
CIRCLES = replace(QUESTION, what="trajectories that go round in circles of calls")


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the length of episodes and the circles in them."""
    environment = evidence.environment or UNRECORDED
    verdicts: list[SharesVerdict] = []
    if environment.episodes is not None:
        for what, least in (("turns", limits["turns"]), ("tokens", limits["tokens"])):
            verdicts += _by_length(environment.episodes, what, least, limits)
    if environment.loops is not None:
        verdicts.append(judge_shares(CIRCLES, counted_share(environment.loops, "tool_calls.args_json"), limits))
    if at_limit := logged_share(evidence.metrics, "turns/limit_frac"):
        verdicts.append(judge_shares(AT_LIMIT, at_limit, limits))
    if not any(isinstance(verdict, Healthy | Broken) for verdict in verdicts):
        verdicts.append(_by_metric(evidence, limits))
    findings = tuple(finding for verdict in verdicts if isinstance(verdict, Broken) for finding in verdict.findings)
    if findings:
        return Broken(findings=findings)
    healthy = [verdict for verdict in verdicts if isinstance(verdict, Healthy)]
    if healthy:
        notes = tuple(note for verdict in healthy for note in verdict.notes)
        return Healthy(reason="; ".join(verdict.reason for verdict in healthy), notes=notes)
    return verdicts[0]


def _by_length(episodes: Episodes, what: str, least: float, limits: Limits) -> list[SharesVerdict]:
    """Judge the share of trajectories far longer than the early ones."""
    lengths = episodes.turns if what == "turns" else episodes.tokens
    known = np.isfinite(lengths)
    steps, lengths, reward = episodes.steps[known], lengths[known], episodes.reward[known]
    order, at = np.unique(steps, return_inverse=True)
    if len(order) < MIN_VALUES:
        if not len(order) or what == "tokens":
            return []
        return [QUESTION.unjudged(f"{what} are recorded at {len(order)} steps; {MIN_VALUES} are needed")]
    early = min(max(EARLY_MIN_VALUES, int(EARLY_SHARE * len(order))), EARLY_MAX_VALUES, len(order) // 3)
    first = order[early - 1]  # at most a third: lengths that come later do not define what is usual
    bound = max(least, limits["times"] * float(np.quantile(lengths[steps <= first], USUAL_QUANTILE)))
    long = lengths > bound
    counts = Counts(
        name="trajectories that run away",
        steps=order,
        hits=np.bincount(at, weights=long.astype(np.float64)).astype(np.float64),
        trials=np.bincount(at).astype(np.float64),
    )
    question = replace(QUESTION, what=f"trajectories that run beyond {bound:.0f} {what}")
    verdict = judge_shares(question, counted_share(counts, f"trajectories.{what}"), limits)
    if isinstance(verdict, Broken) and _pays(reward, long, steps > first):
        notes = tuple(replace(finding, severity=Severity.LOW) for finding in verdict.findings)
        reason = f"more trajectories run beyond {bound:.0f} {what}, but they earn as much as the others"
        return [Healthy(reason=reason, notes=notes)]
    return [verdict]


def _pays(reward: FloatArray, long: BoolArray, late: BoolArray) -> bool:
    known = np.isfinite(reward) & late
    paid, usual = reward[known & long], reward[known & ~long]
    return bool(len(paid) and len(usual) and paid.mean() >= usual.mean())


def _by_metric(evidence: Evidence, limits: Limits) -> SharesVerdict:
    """Judge the logged mean number of turns: coarser, since a few long episodes hide in a mean."""
    series = evidence.metrics.get("turns/mean")
    if series is None:
        return QUESTION.unjudged("neither trajectories nor the number of turns are recorded")
    level = early_level(series)
    if level is None:
        count = len(series.finite()[0])
        return QUESTION.unjudged(f"{count} values of {series.raw_name} are logged; {MIN_VALUES} are needed")
    rise = lasting_rise(series, floor=limits["turns"], factor=limits["times"])
    if rise is None or rise.ended:
        reason = f"{sig(late_mean(series))} turns a trajectory at the end, {sig(level.median)} at first"
        return Healthy(reason=reason)
    dropped = reward_dropped(evidence)
    finding = Finding(
        severity=Severity.MEDIUM if dropped else Severity.LOW,
        claim=f"Episodes went from {sig(rise.early)} turns to {sig(rise.last)}",
        unit="turns",
        **measured(rise),
        evidence={"metric": series.name, "logged_as": series.raw_name, "early": rise.early},
        causes=QUESTION.causes,
        confirm=(QUESTION.confirm.format(steps=f"after step {rise.onset}"),),
        next=QUESTION.next,
    )
    if dropped:
        return Broken(findings=(finding,))
    reason = "episodes have several times their early turns, and the reward did not fall"
    return Healthy(reason=reason, notes=(finding,))


RULE = rule(
    check,
    "runaway-episodes",
    Link.ENVIRONMENT,
    times=LENGTH_FACTOR,
    turns=MIN_TURNS,
    tokens=MIN_TOKENS,
    floor=FLOOR,
    factor=FACTOR,
    medium=MEDIUM,
    high=HIGH,
    chronic=CHRONIC,
)
