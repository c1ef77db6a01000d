"""Questions that a run's series leave open, so that it is not called healthy: got worse, not learnt, by heart."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from typing import Final

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.algorithm import Family
from ptt.diagnostics.evidence.excursions import LongDip
from ptt.diagnostics.evidence.outcome_series import is_bookkeeping
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.metrics.name_words import LOSS_WORDS, words_of
from ptt.diagnostics.model import CoreQuestion, SeriesOutcome
from ptt.diagnostics.verdict.outcome import choose_series
from ptt.diagnostics.verdict.series_course import called_in_prose, gained
from ptt.diagnostics.wording import pct, sig

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
LEFT_LEVEL: Final = "why the reward left its level for a while"
SCORES: Final = ("reward/mean", "dpo/accuracy", "sft/token_accuracy", "eval/score", "eval/accuracy")


@dataclass(frozen=True, kw_only=True)
class Excuse:
    """Changes that keep no run from being called healthy, and why."""

    reason: str
    moved: tuple[str, ...]
    metrics: tuple[str, ...] = ()
    words: frozenset[str] = field(default_factory=frozenset)
    any_word: frozenset[str] = field(default_factory=frozenset)
    while_solved: bool = False

    def covers(self, series: SeriesOutcome, moved: str, *, solved: bool) -> bool:
        """Return whether it speaks of this series and this change."""
        if moved not in self.moved or (self.while_solved and not solved):
            return False
        if self.metrics and not any(fnmatchcase(series.name, pattern) for pattern in self.metrics):
            return False
        words = words_of(series.logged_as)
        return self.words <= words and (not self.any_word or not self.any_word.isdisjoint(words))


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
            any_word=frozenset(row.get("any_word", ())),
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


def left_level(dip: LongDip | None, reward: Series | None) -> CoreQuestion | None:
    """Return the open question that a reward leaves which fell for a long stretch and came back; or None."""
    if dip is None or reward is None:
        return None
    why = f"steps {dip.first} to {dip.last}, with {dip.beside.raw_name}"
    return CoreQuestion(question=LEFT_LEVEL, judged=False, rows=len(reward.steps), metric=reward.raw_name, why=why)


def not_learnt(described: Sequence[SeriesOutcome], family: Family | None) -> CoreQuestion | None:
    """Return the open question whether anything was learnt, of a goal that did not surely improve; or None."""
    goals = [one for one in choose_series(described, family).series if one.direction and not _is_watched(one)]
    goal = next((one for one in goals if one.movement != "cannot_say"), None) or next(iter(goals), None)
    if goal is None or gained(goal) or is_solved([goal]):
        return None
    unsure = "too few or too noisy values to tell whether " if goal.movement == "cannot_say" else ""
    why = f"{unsure}{called_in_prose(goal)} {'improved' if unsure else 'did not improve'}"
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
        return "bound", f"{name} ends at {sig(series.bound or 0.0)}, as {pct(series.at_bound)} of its values are"
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
