"""Tell what a run did: how far it came, what moved, and at what cost."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.algorithm import Family
from ptt.diagnostics.evidence.outcome_series import LOSSES, MAX_SERIES, is_bookkeeping
from ptt.diagnostics.evidence.run_end import Ending, Progress, RunEnd, progress_of, raised_words, read_end
from ptt.diagnostics.evidence.separate_starts import JUDGED, RUNS
from ptt.diagnostics.metrics.name_words import LOSS_WORDS, is_outcome, is_reward, words_of
from ptt.diagnostics.model import (
    STEP,
    Cost,
    Diagnosis,
    Outcome,
    Run,
    SeriesOutcome,
    Severity,
    in_unit,
)
from ptt.diagnostics.verdict.causes import first_failure
from ptt.diagnostics.verdict.series_course import (
    FEW,
    MOSTLY,
    MOVED,
    ends_off,
    gained,
    is_flat,
    shortened,
    tell_course,
    tell_flat,
    tell_unknown,
    told_by_means,
    turned,
)
from ptt.diagnostics.wording import counted, sig

MAX_TOLD: Final = 3  # series of a sentence
MAX_CAUSE: Final = 140  # characters of what ended a run
MIN_CONSTANT: Final = 3  # equal values that are worth a word
ENDED: Final = {
    Ending.COMPLETED: "finished",
    Ending.STOPPED: "stopped",
    Ending.KILLED: "killed",
    Ending.PREEMPTED: "killed",
    Ending.EXCEPTION: "crashed",
    Ending.OUT_OF_MEMORY: "crashed",
    Ending.FAILED: "crashed",
    Ending.OPEN: "running",
}
ACCURACY_WORDS: Final = frozenset({"accuracy", "acc", "accuracies"})
TEACHER_WORDS: Final = frozenset({"teacher", "reverse", "forward", "distill", "distillation", "student"})
BY_KEY: Final = re.compile(r"KeyboardInterrupt|SIGINT|keyboard", re.IGNORECASE)
SAVED: Final = "where trainer_state.json was saved: nothing later is in it"
MINUTE, HOUR = 60.0, 3600.0


def outcome_of(evidence: Evidence) -> Outcome:
    """Return what a run did, before any rule: how it ended, what its series did, and both in sentences."""
    end = read_end(evidence.run, evidence.events, evidence.other, rate=evidence.metrics.get("lr"))
    progress = progress_of(evidence.run)
    told = choose_series(evidence.described, evidence.algorithm.family)
    unit = evidence.run.step_unit
    how_ended = in_unit(_which_run(evidence.run, _how_ended(end, progress)), unit, counts=True)
    did = in_unit(_did(told, evidence.described), unit, counts=True)
    cost = _cost(evidence.seconds, progress)
    first, last = evidence.run.first_step, progress.step
    return Outcome(
        ended=ENDED.get(end.ending, "unknown"),
        steps=None if first is None or last is None else (first, last),
        planned=progress.planned,
        series=evidence.described[:MAX_SERIES],
        series_left_out=max(0, len(evidence.described) - MAX_SERIES),
        best_checkpoint=_best_step(told, unit, evidence.algorithm.family),
        how_ended=how_ended,
        did=did,
        cost=cost,
        said=" ".join(filter(None, (how_ended, did, cost))),
    )


def cost_of(diagnosis: Diagnosis, evidence: Evidence) -> Cost | None:
    """Return for how long the run went on after the fault of its headline began; None where that is not known."""
    serious = [one for one in diagnosis.findings if one.severity.at_least(Severity.MEDIUM)]
    found, last = first_failure(serious), diagnosis.run.last_step
    if found is None or found.onset_step is None or last is None or found.onset_step >= last:
        return None
    if diagnosis.run.step_unit != STEP:
        return None
    stop = diagnosis.stop.step if diagnosis.stop is not None else None
    stop = stop if stop is not None and found.onset_step <= stop < last else None
    steps, hours = last - found.onset_step + 1, _hours_since(evidence, found.onset_step - 1)
    hours_after_stop = None if stop is None else _hours_since(evidence, stop)
    if stop is None:
        since = f"from step {found.onset_step:,} on, where the fault began"
        took = "" if hours is None else f" ({_duration(hours * HOUR)})"
        said = f"It went on for {counted(steps, 'step(s)')}{took} {since}."
    elif hours_after_stop is None:
        said = f"It went on for {last - stop:,} more."
    else:
        said = f"{last - stop:,} more took {_duration(hours_after_stop * HOUR)}."
    return Cost(
        rule=found.id,
        onset_step=found.onset_step,
        last_step=last,
        steps=steps,
        hours=hours,
        stop_step=stop,
        steps_after_stop=None if stop is None else last - stop,
        hours_after_stop=hours_after_stop,
        said=said,
    )


def _hours_since(evidence: Evidence, step: int) -> float | None:
    """Return the hours of training after a step, by what is logged."""
    if evidence.clock is None or not len(evidence.clock[0]):
        return None
    steps, seconds = evidence.clock
    place = int(np.searchsorted(steps, step, side="right")) - 1
    until = float(seconds[place]) if place >= 0 else 0.0
    return (float(seconds[-1]) - until) / HOUR if seconds[-1] > 0 else None


def with_checkpoint(outcome: Outcome, path: str | None, metric: str) -> Outcome:
    """Name the checkpoint that is best by a figure of an evaluation, where one is on disk."""
    if path is None:
        return outcome
    said = f"{outcome.said} Best checkpoint by {metric}: {path}."
    return replace(outcome, best_checkpoint=path, said=said.strip())


def _which_run(run: Run, ended: str) -> str:
    """Say which of several runs in one file is told of, and how that one ended."""
    runs, judged = run.context.get(RUNS), run.context.get(JUDGED)
    if not isinstance(runs, int) or not isinstance(judged, int):
        return ended
    which = "the last" if judged == runs else f"number {judged}"
    ended = ended if judged == runs else ended.replace("The log ends", "That one ends", 1)
    return f"The file holds {runs} runs; {which} is judged. {ended}"


def _how_ended(end: RunEnd, progress: Progress) -> str:
    at = "before any step was logged" if progress.step is None else f"at step {progress.step:,}"
    at += f" of {progress.planned:,}" if progress.planned and progress.step is not None else ""
    cause = f": {shortened(end.known_by, MAX_CAUSE)}" if end.known_by else ""
    match end.ending:
        case Ending.COMPLETED if (
            progress.planned and progress.share and progress.share >= 1 - progress.spacing / max(1, progress.planned)
        ):
            text = f"Finished {progress.planned:,} of {progress.planned:,} steps"
        case Ending.COMPLETED if progress.step is None:
            text = "Finished; no step is recorded"
        case Ending.COMPLETED:
            text = f"Finished {at}"
        case Ending.STOPPED:
            text = f"Stopped by {'Ctrl-C' if BY_KEY.search(end.known_by) else 'hand'} {at}"
        case Ending.KILLED | Ending.PREEMPTED:
            text = f"{'Killed' if end.ending is Ending.KILLED else 'Ended by the scheduler'} {at}{cause}"
        case Ending.EXCEPTION | Ending.OUT_OF_MEMORY | Ending.FAILED:
            text = f"Crashed {at}{cause}"
        case Ending.OPEN:
            text = f"Still running or killed {at}: its log was never closed"
        case _ if progress.step is None:
            text = "No step is recorded"
        case Ending.SHORT:
            text = f"The log ends {at}, {SAVED if end.saved else 'and nothing says why'}"
        case _:
            planned = "" if progress.planned else "; how many were planned is not recorded"
            text = f"The log ends {at}{planned}"
    after = f", then its script {raised_words(shortened(end.raised_after, MAX_CAUSE))}" if end.raised_after else ""
    return f"{text}{after}."


def _cost(seconds: tuple[float, float] | None, progress: Progress) -> str:
    if seconds is None or seconds[0] < MINUTE or progress.step is None:
        return ""
    at_work, paused = seconds
    beside = f", and {_duration(paused)} more in which nothing was logged" if paused >= MINUTE else ""
    return f"It took {_duration(at_work)}{beside}."


def _duration(seconds: float) -> str:
    return f"{sig(seconds / HOUR)} hours" if seconds >= 2 * HOUR else f"{sig(seconds / MINUTE)} minutes"


TOKENS: Final = "sft/token_accuracy"  # follows the loss, and tells of no task
Role = Callable[[SeriesOutcome], bool]


def _is(*names: str, split: str = "train") -> Role:
    return lambda one: one.name in names and one.split == split


def _eval_score(one: SeriesOutcome) -> bool:
    return one.split == "eval" and one.direction == "higher" and one.name != TOKENS


def _eval_loss(one: SeriesOutcome) -> bool:
    return one.split == "eval" and bool(words_of(one.name) & LOSS_WORDS) and one.direction == "lower"


def _success(one: SeriesOutcome) -> bool:
    named = one.name == "task/success" or (not one.label and is_outcome(one.name))
    return one.split == "train" and one.direction == "higher" and named


def _score(one: SeriesOutcome) -> bool:
    return one.split == "train" and one.direction == "higher" and not one.label and is_reward(one.name)


def _accuracy(one: SeriesOutcome) -> bool:
    return one.split == "train" and one.direction == "higher" and bool(words_of(one.name) & ACCURACY_WORDS)


def _teacher_kl(one: SeriesOutcome) -> bool:
    words = words_of(one.name)
    return one.split == "train" and (one.name == "kl/teacher" or bool("kl" in words and words & TEACHER_WORDS))


def _chosen_fell(one: SeriesOutcome) -> bool:
    """Return whether the reward of chosen answers fell: a margin that rises beside it comes from the rejected ones."""
    return one.name == "dpo/reward_chosen" and one.split == "train" and one.movement == "fell"


def _loss(one: SeriesOutcome) -> bool:
    return one.split == "train" and (one.name in LOSSES or (not one.label and bool(words_of(one.name) & LOSS_WORDS)))


LOSS: Final = _is("loss/total")
REWARD: Final = _is("reward/mean")
PAIRS: Final = _is("dpo/accuracy")
TRUE_REWARD: Final = _is("reward/true")
SIDE: Final[Role] = _is("kl/ref", "entropy", "len/response_mean")
TOLD: Final[dict[Family | None, tuple[Role, ...]]] = {
    Family.SUPERVISED: (_eval_score, _eval_loss, LOSS, _is(TOKENS, split="eval"), _is(TOKENS, "sft/perplexity"), _loss),
    Family.PREFERENCE: (
        _is("dpo/accuracy", split="eval"),
        _eval_loss,
        _accuracy,
        _is("dpo/margin"),
        _chosen_fell,
        LOSS,
        _loss,
    ),
    Family.REWARD_MODEL: (_eval_score, _eval_loss, _accuracy, LOSS, _is("dpo/margin"), _loss),
    Family.ONLINE: (_eval_score, REWARD, TRUE_REWARD, _teacher_kl, _success, _score, SIDE, LOSS, _loss),
    Family.DISTILLATION: (_eval_score, _teacher_kl, _success, SIDE, LOSS, _loss),
    Family.CLASSIC_RL: (_eval_score, REWARD, _success, _score, _is("entropy"), _is("episode/length"), _loss),
    None: (_eval_score, REWARD, TRUE_REWARD, _success, _score, PAIRS, _eval_loss, LOSS, _loss, SIDE),
}
"""What the owner of a run asks first, by kind of training; of each row one series is told."""
LEARNT_BY_REWARD: Final = (Family.ONLINE, Family.CLASSIC_RL, None)
BESIDE_NO_SCORE: Final = (LOSS, _loss, _score)
"""Not told beside a reward that rose: the loss of a policy tells little, parts of a reward less than the whole."""


@dataclass(frozen=True)
class Told:
    """The series that a sentence is about; `known`: their meaning is."""

    series: tuple[SeriesOutcome, ...]
    known: bool


def choose_series(described: Iterable[SeriesOutcome], family: Family | None) -> Told:
    """Choose up to three series that the owner of such a run asks for; where none is known those that moved most."""
    usable = [one for one in described if one.count and not is_bookkeeping(one)]
    usable = [one for one in usable if one.count > 1] or usable
    usable = [one for one in usable if one.low != one.high or (one.label and one.count >= MIN_CONSTANT)] or usable
    chosen: list[SeriesOutcome] = []
    for role in TOLD[family]:
        alike = [one for one in usable if role(one) and not any(_same(one, other) for other in chosen)]
        paid = any(one.split == "train" and one.direction == "higher" and gained(one) for one in chosen)
        scored = family in LEARNT_BY_REWARD and paid
        if alike and len(chosen) < MAX_TOLD and not (scored and role in BESIDE_NO_SCORE):
            chosen.append(max(alike, key=lambda one: (one.movement in MOVED and role is SIDE, one.count)))
    if chosen:
        return Told(tuple(chosen), known=True)
    return Told(tuple(sorted(usable, key=lambda one: -_effect(one))[:MAX_TOLD]), known=False)


def _same(one: SeriesOutcome, other: SeriesOutcome) -> bool:
    """Return whether two series are one quantity, logged under two names."""
    return (one.count, one.first, one.last, one.low, one.high) == (
        other.count, other.first, other.last, other.low, other.high,
    )  # fmt: skip


def _effect(one: SeriesOutcome) -> float:
    """Return how far a series moved, of all that it covers; less than nothing where it did not."""
    if one.movement not in MOVED or one.high is None or one.low is None or one.high == one.low:
        return -1.0
    return abs((one.late or 0.0) - (one.early or 0.0)) / (one.high - one.low)


def _did(told: Told, described: Iterable[SeriesOutcome]) -> str:
    series = told.series
    if not series:
        return ""
    if not told.known:
        return "; ".join(map(tell_unknown, series)).join(("No name is known; ", "."))
    flat = [one for one in series if is_flat(one) and one.count >= FEW and not (turned(one) or ends_off(one))]
    flat = [one for one in flat if one.at_zero < MOSTLY]
    if len(flat) == len(series) and any(one.low != one.high for one in flat):
        beside = any(SIDE(one) and one.movement in MOVED for one in described)
        none = "None of these curves" if beside else "No curve"
        return f"{none} moved beyond its noise: {'; '.join(map(tell_flat, flat))}."
    return f"{_capital('; '.join(map(tell_course, series)))}."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _best_step(told: Told, unit: str, family: Family | None) -> str | None:
    """Return the step that is best by the first series told that has a direction and is no noise."""
    goals = [
        one for one in told.series if one.split == "eval" or (one.direction == "higher" and not told_by_means(one))
    ]
    goals.sort(key=lambda one: family is Family.SUPERVISED and not _eval_loss(one))  # its checkpoints go by that
    best = next((one for one in goals if one.low != one.high and one.best_step is not None), None)
    return None if best is None else f"{unit} {best.best_step}"
