"""This run shows a reward that falls at single steps or for short spans, and recovers.

What: the mean reward leaves its level by three tenths of it or more, at more steps than noise gives, and comes back to
at least half of that level; or it falls by as much at just the steps at which the length, the entropy or the
engine's mismatch leaves its own level. High where next to nothing is left of the reward at more than one step.
Why it matters: the reward of these steps measures a fault, not the policy, and the gradient follows it all the same. A
mean over a window hardly moves. A note, where the reward leaves its level for a long stretch and returns, and a
series of lengths or of failed samples dates that stretch: these samples were of another kind. Medium where the mean
length falls by the same share as the reward, and an evaluation rises meanwhile: as where so many samples are empty.
What it is not: noise with heavy tails or of small batches, whose own spread the test uses; steps of at most 8 answers,
by the logged share of right ones, that all fail at no regular time; a single low step, of which nothing else departs; a
fall that lasts (reward-fell).
What to do: find what the steps have in common. The claim names it where the logs show it: an evaluation, a saved
checkpoint, a restart, a period, the series that depart with it. Leave the steps out of training.
Source: `recurring_excursions`: Student's t with three degrees of freedom for the noise, hypergeometric tests for what
it goes with; 1% false alarms over all series of a run. NVIDIA-NeMo/RL#1443: reward 0 one step after each validation,
because the engine woke without its weights.
"""

from __future__ import annotations

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.evaluation import LENGTHS, Evaluation
from ptt.diagnostics.evidence.excursions import LongDip, Recurrence, facts_of
from ptt.diagnostics.model import LIKELY, Link, Severity
from ptt.diagnostics.rules.comes_and_goes import (
    MIN_REWARD_FALL,
    REWARD,
    beside_words,
    cause_words,
    causes_of,
    confirm_of,
    is_engine,
    judge_recurrences,
    reward_fall,
    steps_words,
    times_words,
    typical,
    when_words,
)
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, Verdict, rule
from ptt.diagnostics.rules.reward import REWARD_ENABLE
from ptt.diagnostics.rules.single_series import metric_evidence
from ptt.diagnostics.wording import pct, sig

NOTHING_LEFT = 0.1  # of the level: whole batches fail
MIN_EMPTY = 0.1  # of the samples
SAME_FALL = 0.35  # of the fall of the length: that of the reward is no further off, at one level before and after
ROUGHLY = 0.04  # of the level, for small falls
FEW_ANSWERS = 8  # of a step: all of them fail now and then without any fault
ON_GRID = 1e-3  # of an answer: what rounding a share to four digits leaves


def is_of_reward(recurrence: Recurrence) -> bool:
    """Return whether the reward falls at these steps, whichever series leads."""
    return recurrence.lead.series.name == REWARD or reward_fall(recurrence) is not None


def _by_chance(recurrence: Recurrence, evidence: Evidence) -> bool:
    """Return whether a step has so few answers, by the share of right ones, that its reward falls by chance."""
    outcome = evidence.metrics.get("task/success")
    if outcome is None or recurrence.coincidences or recurrence.period is not None:
        return False
    shares = outcome.finite()[1]
    counts = np.arange(1, FEW_ANSWERS + 1)[:, None] * shares
    on_grid = (np.abs(counts - np.round(counts)) < ON_GRID).all(axis=1)
    return bool(len(shares)) and float(np.ptp(shares)) > 0 and bool(on_grid.any())


def _finding(recurrence: Recurrence, evidence: Evidence, limits: Limits) -> Finding | None:
    lead, reward = recurrence.lead, evidence.metrics[REWARD]
    fall = reward_fall(recurrence)
    value, level = (fall.value, fall.level) if fall is not None else (typical(lead.values), typical(lead.levels))
    share = (level - value) / abs(level) if level else 1.0
    if share < limits["fell"] or _by_chance(recurrence, evidence):
        return None
    single = lead.excursions.alone
    gone = share >= 1 - NOTHING_LEFT
    first = int(lead.begins[0])
    return Finding(
        severity=Severity.LOW if single else Severity.HIGH if gone else Severity.MEDIUM,
        claim=f"The reward falls to {sig(value)} at {steps_words(lead)}{when_words(recurrence)} and recovers; it is "
        f"{sig(level)} around them{beside_words(recurrence, skip=(REWARD,))}",
        context=cause_words(recurrence),
        observed=share,
        limit=limits["fell"],
        unit="of the level",
        link=Link.DATA_FRESHNESS if is_engine(recurrence) else None,
        onset_step=first,
        onset_interval=(first, first),
        evidence=metric_evidence(reward, value=value, level=level, **facts_of(recurrence)),
        causes=causes_of(
            recurrence,
            "rollouts that failed as a whole and were scored 0: an environment, a tool or a scorer that was down",
            "other tasks at these steps: a shard, a source or a batch of another kind",
        ),
        confirm=confirm_of(recurrence),
        next=(
            f"leave these steps out of training ({times_words(recurrence)}): mask them, or go back to the checkpoint "
            f"before step {first}",
            "fix what they have in common before anything else is tuned",
        ),
    )


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the dips of the mean reward, whichever series leads."""
    verdict = judge_recurrences(
        evidence, limits, (REWARD,), what="mean reward", enable=REWARD_ENABLE, judge=_finding, owner=is_of_reward
    )
    if isinstance(verdict, Healthy) and not verdict.notes and evidence.long_dip is not None:
        note = _of_long_dip(evidence.long_dip, evidence)
        return note if note.severity is Severity.MEDIUM else Healthy(reason=note.claim, notes=(note,))
    return verdict


def _of_long_dip(dip: LongDip, evidence: Evidence) -> Finding:
    before, within, after = dip.reward
    name, rose = dip.beside.raw_name, _evaluated(dip, evidence.evaluation)
    empty = _as_if_empty(dip) if rose else None
    return Finding(
        severity=Severity.LOW if empty is None else Severity.MEDIUM,
        claim=f"The reward leaves its level from step {dip.first} to {dip.last} and comes back ({sig(before)} → "
        f"{sig(within)} → {sig(after)}); with it goes {name} ({' → '.join(sig(one) for one in dip.levels)})"
        f"{rose}",
        context=()
        if empty is None
        else (
            f"both fall by the same share ({pct(empty)}), as where so many samples are empty and count with 0, and the "
            "others are as before",
            f"{LIKELY}generations that failed and are kept as empty rows with reward 0",
        ),
        observed=within,
        limit=min(before, after),
        unit="reward",
        onset_step=dip.first,
        onset_interval=(dip.first, dip.first),
        evidence=metric_evidence(
            evidence.metrics[REWARD], before=before, within=within, after=after, last_step=dip.last, beside=name
        ),
        causes=(
            "samples of another kind for as long: failed, cut or empty ones that are scored and trained on",
            "other tasks at these steps: a shard, a source or a batch of another kind",
        ),
        confirm=(f"work out the reward of steps {dip.first} to {dip.last} without the samples that {name} counts",),
        next=(f"read samples of steps {dip.first} to {dip.last} beside those before: are they whole?",),
    )


def _as_if_empty(dip: LongDip) -> float | None:
    """Return the share of empty samples that would explain both falls, of the reward and of the mean length."""
    if not LENGTHS.search(dip.beside.raw_name) or min(dip.reward[0], dip.reward[2]) <= 0:
        return None
    paid, long = (1 - 2 * within / (before + after) for before, within, after in (dip.reward, dip.levels))
    alike = abs(paid - long) <= max(SAME_FALL * long, ROUGHLY)
    return long if long >= MIN_EMPTY and paid > 0 and alike else None


def _evaluated(dip: LongDip, evaluation: Evaluation | None) -> str:
    """Say that an evaluation rose meanwhile, as the end of a claim; empty where none shows it."""
    for figure in evaluation.figures if evaluation is not None else ():
        steps, values = figure.series.finite()
        before, within = values[steps < dip.first], values[(steps >= dip.first) & (steps <= dip.last)]
        if figure.outcome and len(before) and len(within) and within[-1] > before[-1]:
            return f", while {figure.title} rose {sig(float(before[-1]))} → {sig(float(within[-1]))}"
    return ""


RULE = rule(
    check,
    "reward-dips",
    Link.REWARD,
    max_severity=Severity.HIGH,
    fell=MIN_REWARD_FALL,
)
