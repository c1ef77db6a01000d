"""Tell what a run did: how far it came, what moved, at what cost, and which of it forbids to call it healthy."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from typing import Final

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.algorithm import Family
from ptt.diagnostics.evidence.outcome_series import LOSSES, MAX_SERIES, is_bookkeeping
from ptt.diagnostics.evidence.run_end import Ending, Progress, RunEnd, progress_of, read_end
from ptt.diagnostics.evidence.separate_starts import JUDGED, RUNS
from ptt.diagnostics.metrics.name_words import LOSS_WORDS, is_outcome, is_reward, words_of
from ptt.diagnostics.model import (
    STEP,
    CoreQuestion,
    Cost,
    Diagnosis,
    Outcome,
    Run,
    SeriesOutcome,
    Severity,
    in_unit,
)
from ptt.diagnostics.parsers.io.metric_rows import UNNUMBERED
from ptt.diagnostics.verdict.causes import first_failure
from ptt.diagnostics.wording import counted, pct, sig

MAX_TOLD: Final = 3  # series of a sentence
MAX_NAME: Final = 60  # characters of a name as logged
MAX_CAUSE: Final = 140  # characters of what ended a run
FEW: Final = 20  # values that are told as they are: their means are of too few
SMOOTH: Final = 0.1  # of the way from first to last: with less noise both are told as they are
WORTH: Final = 0.05  # of the way from first to last: a best value nearer to the last is not named
BACK: Final = 0.15  # of the way to the best: what lost so much of it again is told to have
LAST_NOISE: Final = 5.0  # times the noise of a value, off the mean of its last part
BEYOND_NOISE: Final = 3.0  # times the noise of a value: so far off no single evaluation lies by chance
MIN_CONSTANT: Final = 3  # equal values that are worth a word
MOSTLY: Final = 0.5  # of the values are exactly 0: that comes before any mean of them
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
ENDS_OFF: Final = 3.0  # times the noise of a value, that the last one lies off its last level
FLAT_SHARE: Final = 0.5  # of the smallest change that would have shown: what lies further apart is not called flat
MOVED: Final = frozenset({"rose", "fell"})
BY_KEY: Final = re.compile(r"KeyboardInterrupt|SIGINT|keyboard", re.IGNORECASE)
MINUTE, HOUR = 60.0, 3600.0

FACTOR: Final = 10.0
"""Late over early level, or early over late: so much is no noise and no drift of a sound run by any scale."""
SPREAD_GONE: Final = 0.05
"""Late noise over early noise: of a value that still answers to samples more is left."""
STAYED: Final = 1 / 3  # of the values at a bound: fewer are a visit
SPREAD_WORDS: Final = frozenset({"std", "var", "variance", "spread", "diversity"})
SPREAD_OF: Final = frozenset({"reward", "rewards", "advantage", "advantages", "adv", "group", "score", "return"})
"""Without the spread of these nothing is learnt; that of anything else may go."""
SOLVED: Final = 0.9  # of a score between 0 and 1, at the end
MIN_VALUES: Final = 10  # of which a level early and one late can be told from each other
SMOOTH_SHARE: Final = 1e-6  # noise over size: what scatters less is a schedule or a counter, and was not measured
LEARNT: Final = "whether anything was learnt"
BY_HEART: Final = "whether it was learnt by heart"
KNOWN_BY_HEART: Final = 0.1  # nats a token: text that is not known by heart is not predicted so surely
WORSE: Final = "a recorded series that got worse"
SCORES: Final = ("reward/mean", "dpo/accuracy", "sft/token_accuracy", "eval/score", "eval/accuracy")


def outcome_of(evidence: Evidence) -> Outcome:
    """Return what a run did, before any rule: how it ended, what its series did, and both in sentences."""
    end = read_end(evidence.run, evidence.events, evidence.other, rate=evidence.metrics.get("lr"))
    progress = progress_of(evidence.run)
    told = choose_series(evidence.described, evidence.algorithm.family)
    unit = evidence.run.step_unit
    how_ended = in_unit(_which_run(evidence.run) + _how_ended(end, progress), unit, counts=True)
    did = in_unit(_did(told), unit, counts=True)
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
    replay = diagnosis.stop_replay
    stop = replay.step if replay is not None and replay.step is not None and replay.step < last else None
    stop = stop if stop is not None and stop >= found.onset_step else None
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


def _which_run(run: Run) -> str:
    """Say which of several runs in one file is told of; nothing where there is one."""
    runs, judged = run.context.get(RUNS), run.context.get(JUDGED)
    if not isinstance(runs, int) or not isinstance(judged, int):
        return ""
    return f"The file holds {runs} runs; {'the last' if judged == runs else f'number {judged}'} is judged. "


def _how_ended(end: RunEnd, progress: Progress) -> str:
    at = "before any step was logged" if progress.step is None else f"at step {progress.step:,}"
    at += f" of {progress.planned:,}" if progress.planned and progress.step is not None else ""
    cause = f": {_shortened(end.known_by)}" if end.known_by else ""
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
            text = f"The log ends {at}, and nothing says why"
        case _:
            planned = "" if progress.planned else "; how many were planned is not recorded"
            text = f"The log ends {at}{planned}"
    after = f", then its script raised {_shortened(end.raised_after)}" if end.raised_after else ""
    return f"{text}{after}."


def _shortened(text: str, most: int = MAX_CAUSE) -> str:
    text = " ".join(text.split()).rstrip(".")
    return text if len(text) <= most else f"{text[:most].rstrip()}…"


def _cost(seconds: float | None, progress: Progress) -> str:
    if seconds is None or seconds < MINUTE or progress.step is None:
        return ""
    return f"It took {_duration(seconds)}."


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


def _loss(one: SeriesOutcome) -> bool:
    return one.split == "train" and (one.name in LOSSES or (not one.label and bool(words_of(one.name) & LOSS_WORDS)))


LOSS: Final = _is("loss/total")
REWARD: Final = _is("reward/mean")
PAIRS: Final = _is("dpo/accuracy")
TRUE_REWARD: Final = _is("reward/true")
SIDE: Final[Role] = _is("kl/ref", "entropy", "len/response_mean")
TOLD: Final[dict[Family | None, tuple[Role, ...]]] = {
    Family.SUPERVISED: (_eval_score, _eval_loss, LOSS, _is(TOKENS, split="eval"), _is(TOKENS, "sft/perplexity"), _loss),
    Family.PREFERENCE: (_is("dpo/accuracy", split="eval"), _eval_loss, _accuracy, _is("dpo/margin"), LOSS, _loss),
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


def _did(told: Told) -> str:
    series = told.series
    if not series:
        return ""
    if not told.known:
        return "; ".join(map(_unknown, series)).join(("No name is known; ", "."))
    flat = [one for one in series if is_flat(one) and one.count >= FEW and not _turned(one)]
    flat = [one for one in flat if one.at_zero < MOSTLY]
    if len(flat) == len(series) and any(one.low != one.high for one in flat):
        return f"No curve moved beyond its noise: {'; '.join(map(_flat, flat))}."
    return f"{_capital('; '.join(map(_clause, series)))}."


def _unknown(one: SeriesOutcome) -> str:
    return f"{called_in_prose(one)} {_arrow(one)}{' (moved, not judged)' if one.movement in MOVED else ''}"


def _flat(one: SeriesOutcome) -> str:
    if one.low == one.high:
        return _course(one)
    shown = f" (a change of {_value(one, one.detectable)} would have shown)" if one.detectable else ""
    return f"{called_in_prose(one)} {_arrow(one)}{shown}"


def _clause(one: SeriesOutcome) -> str:
    return _course(one) + (
        f" ({one.not_finite:,} of {one.not_finite + one.count:,} values not finite)" if one.not_finite else ""
    )


def _course(one: SeriesOutcome) -> str:
    name = called_in_prose(one)
    if one.count == 1:
        return f"{name} is {_value(one, one.last)}, logged once"
    if one.low == one.high:
        return f"{name} is {_value(one, one.last)} at all {one.count:,} logged steps"
    if one.at_zero >= MOSTLY:
        zeros = f"exactly 0 at {round(one.at_zero * one.count):,} of {one.count:,} logged steps"
        if one.movement not in MOVED:
            return f"{name} is {zeros}"
        return f"{name} {one.movement} from {sig(one.early or 0.0)} to {_value(one, one.late)} on average, {zeros}"
    if turned := _turned(one):
        return f"{name} {turned}"
    start, end = _ends(one)
    if one.movement in MOVED and (end > start) == (one.movement == "rose"):
        still = {"rose": "rising", "fell": "falling"}[one.movement]
        return (
            f"{name} {one.movement} from {sig(start)} to {_value(one, end)}"
            + _on_average(one) + _best(one) + (f", still {still} at the end" if one.still_moving else _settled(one))
        )  # fmt: skip
    if one.movement == "flat" and _by_means(one):
        levels = f"{sig(start)} → {_value(one, end)}{_on_average(one)}"
        if one.last is not None and one.noise and abs(one.last - end) > ENDS_OFF * one.noise:
            return f"{name} ends at {_value(one, one.last)}, after {levels}"
        if is_flat(one):
            return f"{name} did not move beyond its noise ({levels})"
    moved = _by_means(one) and sig(start) != sig(end)
    doubt = ", which its noise may explain" if moved and _may_be_none(one) else ""
    return f"{name} {_arrow(one)}{_best(one)}{doubt or _settled(one)}"


def _settled(one: SeriesOutcome) -> str:
    """Return since when a series has stood still."""
    start, end = _ends(one)
    if one.settled_at is None or one.settled_at == one.first_step or sig(start) == sig(end):
        return ""
    return f", flat since step {one.settled_at:,}"


def _may_be_none(one: SeriesOutcome) -> bool:
    """Return whether the interval of its change contains none."""
    return one.change is not None and one.change[0] <= 0 <= one.change[1]


def is_flat(one: SeriesOutcome) -> bool:
    """Return whether a series did not move, and its two levels do not look as if it had."""
    if one.movement != "flat" or one.early is None or one.late is None:
        return False
    return one.detectable is None or abs(one.late - one.early) <= FLAT_SHARE * one.detectable


def gained(one: SeriesOutcome) -> bool:
    """Return whether a series got better, or looks so by half of what would have shown; True where nobody can tell."""
    if one.early is None or one.late is None or one.detectable is None:
        return True
    if one.movement == {"higher": "rose", "lower": "fell"}.get(one.direction or ""):
        return True
    better = (one.late - one.early) * (1 if one.direction == "higher" else -1)
    return better > FLAT_SHARE * one.detectable


def _turned(one: SeriesOutcome) -> str:
    """Return the course of a series that went beyond both its ends and came back, by its best or by its means."""
    start, end = _ends(one)
    top, at = one.turn, one.turn_step
    if one.split == "eval" and one.best is not None and one.best_step not in (one.first_step, one.last_step):
        gain, loss = abs(one.best - (one.first or 0.0)), abs((one.last or 0.0) - one.best)
        sure = not _by_means(one) or min(gain, loss) > BEYOND_NOISE * (one.noise or 0.0)
        if gain and loss >= BACK * gain and sure:
            top, at, start, end = one.best, one.best_step, one.first or 0.0, one.last or 0.0
    if top is None or at is None or not _beyond(top, start, end):
        start, end = one.early or 0.0, one.late or 0.0
    if top is None or at is None or not _beyond(top, start, end):
        return ""
    out, back = ("rose", "fell") if top > start else ("fell", "rose")
    return f"{out} from {sig(start)} to {sig(top)} at step {at:,} and {back} again to {_value(one, end)}"


def _beyond(top: float, start: float, end: float) -> bool:
    """Return whether a level lies beyond both ends, as they are written."""
    return not min(start, end) <= top <= max(start, end) and sig(top) not in (sig(start), sig(end))


def _arrow(one: SeriesOutcome) -> str:
    start, end = _ends(one)
    if sig(start) == sig(end):
        return f"stayed near {_value(one, end)}"
    return f"{sig(start)} → {_value(one, end)}{_on_average(one)}"


def _best(one: SeriesOutcome) -> str:
    start, end = _ends(one)
    if one.best is None or _by_means(one) or abs(one.best - end) < WORTH * abs(end - start):
        return ""
    if one.best_step == one.first_step and one.split == "eval" and one.count > 2 and sig(start) != sig(end):
        return ", best at the first"
    if one.best_step in (one.first_step, one.last_step):
        return ""
    return f", best {_value(one, one.best)} at step {one.best_step:,}"


def _by_means(one: SeriesOutcome) -> bool:
    """Return whether a series is told by the means of its ends: its first and last value would be noise."""
    if one.movement == "flat":
        return one.count >= FEW
    if one.count < FEW or one.noise is None or one.first is None or one.last is None:
        return False
    early, late = one.early or 0.0, one.late or 0.0
    off = abs(one.last - late)
    wild = off > LAST_NOISE * one.noise and off > abs(late - early)  # the last value is not where it ends
    return wild or one.noise > SMOOTH * abs(one.last - one.first)


def _on_average(one: SeriesOutcome) -> str:
    return " on average" if _by_means(one) else ""


def _ends(one: SeriesOutcome) -> tuple[float, float]:
    ends = (one.early, one.late) if _by_means(one) else (one.first, one.last)
    return ends[0] or 0.0, ends[1] or 0.0


def _value(one: SeriesOutcome, value: float | None) -> str:
    return sig(value or 0.0, one.unit)


def called_in_prose(one: SeriesOutcome) -> str:
    """Call a series as a sentence does: by its label, else as it was logged."""
    return one.label or f"`{_shortened(one.logged_as.removeprefix(UNNUMBERED), MAX_NAME)}`"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _best_step(told: Told, unit: str, family: Family | None) -> str | None:
    """Return the step that is best by the first series told that has a direction and is no noise."""
    goals = [one for one in told.series if one.split == "eval" or (one.direction == "higher" and not _by_means(one))]
    goals.sort(key=lambda one: family is Family.SUPERVISED and not _eval_loss(one))  # its checkpoints go by that
    best = next((one for one in goals if one.low != one.high and one.best_step is not None), None)
    return None if best is None else f"{unit} {best.best_step}"


@dataclass(frozen=True, kw_only=True)
class Excuse:
    """Changes that keep no run from being called healthy, and why."""

    reason: str
    moved: tuple[str, ...]
    metrics: tuple[str, ...] = ()
    words: frozenset[str] = field(default_factory=frozenset)
    while_solved: bool = False

    def covers(self, series: SeriesOutcome, moved: str, *, solved: bool) -> bool:
        """Return whether it speaks of this series and this change."""
        if moved not in self.moved or (self.while_solved and not solved):
            return False
        if self.metrics and not any(fnmatchcase(series.name, pattern) for pattern in self.metrics):
            return False
        return not self.words or self.words <= words_of(series.logged_as)


@cache
def excuses() -> tuple[Excuse, ...]:
    """Return excuses.toml."""
    rows = tomllib.loads(resources.files(__package__).joinpath("excuses.toml").read_text("utf-8"))["excuses"]
    return tuple(
        Excuse(
            reason=row["reason"],
            moved=tuple(row["moved"]),
            metrics=tuple(row.get("metrics", ())),
            words=frozenset(row.get("words", ())),
            while_solved=row.get("while_solved", False),
        )
        for row in rows
    )


def blocked_by(described: Sequence[SeriesOutcome], judged: Collection[str]) -> CoreQuestion | None:
    """Return the open question that a series which got much worse leaves, or None.

    `judged`: names of series that a finding speaks of already.
    """
    solved = is_solved(described)
    for series in described:
        spread = _is_signal_spread(series)
        if series.count < MIN_VALUES or series.name in judged or (is_bookkeeping(series) and not spread):
            continue
        moved, said = _worsened(series)
        if moved and not any(excuse.covers(series, moved, solved=solved) for excuse in excuses()):
            return CoreQuestion(question=WORSE, judged=False, rows=series.count, metric=series.logged_as, why=said)
    return None


def not_learnt(described: Sequence[SeriesOutcome], family: Family | None) -> CoreQuestion | None:
    """Return the open question that a goal which never moved leaves: whether anything was learnt; or None."""
    goals = [one for one in choose_series(described, family).series if one.direction and not _is_watched(one)]
    goal = next((one for one in goals if one.movement != "cannot_say"), None) or next(iter(goals), None)
    if goal is None or gained(goal) or is_solved([goal]):
        return None
    why = f"{called_in_prose(goal)} did not improve"
    return CoreQuestion(question=LEARNT, judged=False, rows=goal.count, metric=goal.logged_as, why=why)


def memorised(described: Sequence[SeriesOutcome], family: Family | None) -> CoreQuestion | None:
    """Return the open question that a loss near 0 leaves where nothing was evaluated: learnt, or learnt by heart."""
    if family is not Family.SUPERVISED or any(series.split == "eval" and series.count for series in described):
        return None
    loss = next((one for one in described if one.name == "loss/total" and one.late is not None), None)
    if loss is None or loss.late is None or not 0 <= loss.late <= KNOWN_BY_HEART:
        return None
    why = f"the loss ends at {sig(loss.late)}, and no evaluation is logged"
    return CoreQuestion(question=BY_HEART, judged=False, rows=loss.count, metric=loss.logged_as, why=why)


def _is_watched(series: SeriesOutcome) -> bool:
    """Return whether a series is watched, and no goal: KL, entropy, lengths."""
    return series.direction == "lower" and not words_of(series.name) & LOSS_WORDS


def is_solved(described: Sequence[SeriesOutcome]) -> bool:
    """Return whether a score between 0 and 1 is near 1 at the end."""
    return any(
        series.name in SCORES
        and series.late is not None
        and series.high is not None
        and series.late >= SOLVED
        and series.high <= 1.0
        for series in described
    )


def _worsened(series: SeriesOutcome) -> tuple[str, str]:
    """Return how a series changed for the worse and the clause that says so; empty where it did not."""
    early, late, name = series.early, series.late, called_in_prose(series)
    if early is None or late is None or _is_schedule(series):
        return "", ""
    since = f" since step {series.changed_at}" if series.changed_at is not None else ""
    adverse = {"higher": "fell", "lower": "rose"}.get(series.direction or "")
    if adverse is not None and series.movement == adverse and _factor(early, late) >= FACTOR:
        return adverse, f"{name} {adverse} from {sig(early)} to {sig(late)}{since}"
    stuck = series.bound is not None and series.at_bound >= STAYED and series.movement in ("rose", "fell")
    if stuck and series.movement == (adverse or "fell"):  # of an unknown one: a share that reached 1 is seldom a fault
        return "bound", f"{name} stays at {sig(series.bound or 0.0)}{since}"
    if _is_signal_spread(series) and series.spread_left is not None and series.spread_left < SPREAD_GONE:
        return "spread", f"{name} no longer varies: its noise fell to {pct(series.spread_left)} of what it was"
    return "", ""


def _is_signal_spread(series: SeriesOutcome) -> bool:
    """Return whether a series is the spread of what a policy learns from."""
    words = words_of(series.name)
    return bool(words & SPREAD_WORDS and words & SPREAD_OF)


def _is_schedule(series: SeriesOutcome) -> bool:
    """Return whether a series has no noise at all: a schedule or a counter."""
    size = max(abs(series.low or 0.0), abs(series.high or 0.0))
    return series.noise is not None and series.noise <= SMOOTH_SHARE * size


def _factor(early: float, late: float) -> float:
    """Return late over early or its inverse, whichever is larger; 0 where the two lie on either side of zero."""
    if early * late <= 0:
        return 0.0
    ratio = abs(late / early)
    return max(ratio, 1 / ratio)
