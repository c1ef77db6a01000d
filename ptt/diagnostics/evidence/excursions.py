"""Find dips and spikes that recover, put those of the same steps together, and say what they go with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.baseline_shift import step_noise
from ptt.diagnostics.evidence.evaluation import Evaluation
from ptt.diagnostics.evidence.machines import Event
from ptt.diagnostics.evidence.segments import Segments
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.metrics.name_words import words_of
from ptt.diagnostics.model import JsonScalar, Run
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.change_point import stretch_apart
from ptt.diagnostics.statistics.recurring_excursions import (
    MIN_SHARED,
    MIN_VALUES,
    Coincidence,
    Excursions,
    Period,
    are_beyond_noise,
    find_coincidences,
    find_excursions,
    find_period,
    joint_departure,
)

DIP: Final = -1
SPIKE: Final = 1
WATCHED: Final[Mapping[str, tuple[int, ...]]] = {
    "reward/mean": (DIP,),
    "mismatch/prob_error": (SPIKE,),
    "mismatch/logp_abs_mean": (SPIKE,),
    "mismatch/prob_diff": (SPIKE,),
    "mismatch/kl": (SPIKE,),
    "kl/ref": (SPIKE,),
    "entropy": (DIP, SPIKE),
    "len/response_mean": (DIP, SPIKE),
    "time/step": (SPIKE,),
}
"""The series that are searched, and to which side; of those that depart at the same steps the first leads."""
FALSE_ALARMS: Final = 0.01
"""Of a run: the probability that noise gives any excursion in any of the series that are searched."""
TIMING_RATE: Final = 0.05  # of all kinds of events together, by chance
PERIOD_RATE: Final = 0.01  # by chance: what two updates a batch double repeats itself a little
SAME_SHARE: Final = 0.8  # of the excursions of one series that those of another cover: they are the same
MAX_TIMES: Final = 2.0  # as many as the other has: a series that departs more often does so for a reason of its own
SPARSE: Final = 0.5  # of the logged steps: what is logged at fewer tells of something that happens now and then
MAX_BESIDE: Final = 400  # further series that are looked at for what departs at the same steps
BESIDE_SDS: Final = 5.0  # of them together: a few hundred series are tried
SEARCHED_SDS: Final = 4.0  # the same, of the few series that are searched
MAX_LABELS: Final = 20  # values of a series that says where a step's data or machine came from

EVALUATION: Final = "evaluation"
CHECKPOINT: Final = "checkpoint"
RESTART: Final = "restart"
SYNC: Final = "weight sync"
EPOCH: Final = "epoch"
ENGINE_RESTART: Final = "engine restart"
SPARSE_WORDS: Final[Mapping[str, frozenset[str]]] = {
    EVALUATION: frozenset({"val", "validation", "eval", "evaluation", "test", "testing"}),
    CHECKPOINT: frozenset({"save", "saving", "checkpoint", "ckpt"}),
    SYNC: frozenset({"sync", "refit", "broadcast"}),
}
MAX_STEPS_SHOWN: Final = 20
LABEL_WORDS: Final = frozenset({"shard", "dataset", "host", "node", "worker", "partition"})
VERSION_WORDS: Final = frozenset({"version"})
SAVE_SETTINGS: Final = ("save_steps", "save_freq", "save_interval", "save_period")
NO_RESTART: Final = r"(?:generat\w+|rollouts?|engines?|requests?|workers?|wake_up|disabled|off|false)"
OTHER_MODELS: Final = r"(?:reference|ref|base|judge|teacher|reward|critic|draft|pretrained|initial)"
RESUMED: Final = re.compile(
    rf"(?i)\bresum(?:e|ed|ing)\b(?! ?[=:] ?)(?!.{{0,20}}\b{NO_RESTART}\b)"
    r"(?=.{0,40}\b(?:from|at|training|run|checkpoint)\b)"
    r"|\brecover(?:ed|ing)? (?:from|at|info)\b|\bRecoverHandler\b"
    rf"|\b(?:load|restor)(?:ed|ing) (?:a |the |from )?(?!{OTHER_MODELS}\b)(?:\w+ )?checkpoint\b"
    rf"(?!.{{0,40}}\b(?:shards?|{OTHER_MODELS})\b)"
)
RESUMED_AT: Final = re.compile(
    rf"(?i)\bresum(?:e|ed|ing)\b(?!.{{0,20}}\b{NO_RESTART}\b)"
    r".{0,80}\b(?:step|iteration|rollout|global_step)[ _=:]{1,3}(\d{1,9})\b"
)
"""A line about a resume that names its step, in a console whose own lines name none."""
ENGINES: Final = re.compile(
    r"(?i)\A(?=.*\b(?:engine|server|replica|router|inference worker)s?\b)"
    r"(?=.*\b(?:restart(?:ed|ing)?|respawn\w*|replac(?:ed|ing)|recover(?:ed|ing)|re-?register\w*|health check"
    r"|unhealthy)\b)"
)
"""Lines of the console about an engine that was started again."""
SENT: Final = re.compile(
    r"(?i)\A(?!.*\b(?:fail\w*|timed out|not)\b)"
    r"(?=.*\b(?:update_weights|refit|weights? (?:sync\w*|transfer|broadcast|update)"
    r"|(?:sync|broadcast|push|updat)(?:e|ed|ing)? (?:\w+ )?weights)\b)"
    r".*\b(?:done|finished|completed?|took|in \d|sent|version \d)"
)
"""Lines of the console about weights that reached the engine."""


@dataclass(frozen=True, kw_only=True)
class SeriesExcursions:
    """The dips or the spikes of one series."""

    series: Series
    excursions: Excursions

    @property
    def steps(self) -> IntArray:
        """All steps at which it departs."""
        return self.series.finite()[0][self.excursions.places]

    @property
    def begins(self) -> IntArray:
        """The steps at which it departs from its level."""
        return self.series.finite()[0][[span.first for span in self.excursions.spans]]

    @property
    def values(self) -> FloatArray:
        """The furthest value of each excursion."""
        return self.series.finite()[1][[span.extreme for span in self.excursions.spans]]

    @property
    def levels(self) -> FloatArray:
        """The level that each excursion leaves."""
        return self.excursions.level[[span.extreme for span in self.excursions.spans]]


@dataclass(frozen=True, kw_only=True)
class Beside:
    """Another series that departs at the same steps."""

    series: Series
    side: int
    sds: float
    value: float  # mean over these steps
    level: float  # mean of its level there


@dataclass(frozen=True, kw_only=True)
class Recurrence:
    """Steps at which one series or several depart from their levels and return, and what they go with."""

    lead: SeriesExcursions
    others: tuple[SeriesExcursions, ...] = ()  # searched series with excursions at the same steps
    beside: tuple[Beside, ...] = ()  # any series that departs there, the clearest first
    coincidences: tuple[Coincidence, ...] = ()
    period: Period | None = None

    def of(self, *names: str) -> Beside | None:
        """Return how one of these metrics departs at these steps, or None."""
        return next((one for one in self.beside if one.series.name in names), None)


def gather_excursions(
    metrics: Mapping[str, Series],
    *,
    run: Run,
    other: Mapping[str, Series] | None = None,
    evaluation: Evaluation | None = None,
    events: Iterable[Event] = (),
    segments: Segments | None = None,
) -> tuple[Recurrence, ...]:
    """Return what departs and returns beyond noise, one entry for the same steps, in the order of `WATCHED`."""
    other = other or {}
    searched = {name: metrics[name] for name in WATCHED if name in metrics and _is_usable(metrics[name])}
    happened = happened_at(metrics, other, run, evaluation, events, segments) if searched else {}
    rate = FALSE_ALARMS / max(1, len(searched))
    found: list[Recurrence] = []
    for name, series in searched.items():
        steps, values = series.finite()
        if name == "mismatch/kl":  # k1 is signed: negative where the engine is the less sure of the two
            series, values = replace(series, values=np.abs(series.values)), np.abs(values)
        for excursions in find_excursions(values, sides=WATCHED[name]):
            one = SeriesExcursions(series=series, excursions=excursions)
            period = find_period(steps, one.begins, rate=PERIOD_RATE)
            coincidences = find_coincidences(steps, one.begins, happened, rate=TIMING_RATE)
            ways = 1 if len(one.begins) < MIN_SHARED else 2  # too few for a period: then it was not looked for
            timing = min([1.0, *(ways * test.p_value for test in (*coincidences, period) if test is not None)])
            if are_beyond_noise(excursions, timing=timing, rate=rate):
                found.append(Recurrence(lead=one, coincidences=coincidences, period=period))
    return tuple(_with_beside(recurrence, metrics, other) for recurrence in _joined(found))


def _is_usable(series: Series) -> bool:
    return not series.logged and len(series.finite()[0]) >= MIN_VALUES


def _joined(found: Iterable[Recurrence]) -> Iterator[Recurrence]:
    """Yield one entry for all that depart at the same steps."""
    kept: list[Recurrence] = []
    for recurrence in found:
        place = next((at for at, earlier in enumerate(kept) if _same(earlier.lead, recurrence.lead)), None)
        if place is None:
            kept.append(recurrence)
        else:
            kept[place] = replace(kept[place], others=(*kept[place].others, recurrence.lead))
    yield from kept


def _same(first: SeriesExcursions, second: SeriesExcursions) -> bool:
    """Return whether the excursions of one are those of the other, give or take a logged step."""
    few, many = sorted((first, second), key=lambda one: len(one.steps))
    if len(many.steps) > MAX_TIMES * len(few.steps):
        return False
    logged = many.series.finite()[0]
    near = np.searchsorted(logged, many.steps)
    around = logged[np.unique(np.clip(near[:, None] + np.array([-1, 0, 1]), 0, len(logged) - 1))]
    return bool(np.isin(few.steps, around).mean() >= SAME_SHARE)


def _with_beside(recurrence: Recurrence, metrics: Mapping[str, Series], other: Mapping[str, Series]) -> Recurrence:
    """Look for what departs at the steps of a recurrence in every series that is logged there."""
    lead = recurrence.lead
    every = [*metrics.values(), *other.values()][:MAX_BESIDE]
    beside = []
    for series in every:
        if series.name == lead.series.name or not _is_usable(series):
            continue
        steps, values = series.finite()
        places = np.flatnonzero(np.isin(steps, lead.steps))
        if len(places) < SAME_SHARE * len(lead.steps):
            continue
        if values[places].all() and not np.delete(values, places).any():  # a count of what happens only there
            one = float(values[places].mean())
            beside.append(Beside(series=series, side=SPIKE if one > 0 else DIP, sds=BESIDE_SDS, value=one, level=0.0))
            continue
        joint = joint_departure(values, places)
        if joint is not None and abs(joint.sds) >= (SEARCHED_SDS if series.name in WATCHED else BESIDE_SDS):
            side = SPIKE if joint.sds > 0 else DIP
            beside.append(Beside(series=series, side=side, sds=abs(joint.sds), value=joint.value, level=joint.level))
    beside.sort(key=lambda one: (-one.sds, one.series.raw_name))
    return replace(recurrence, beside=tuple(beside))


@dataclass(frozen=True, kw_only=True)
class LongDip:
    """A stretch of many steps in which the reward lies below its level before and after, and what departs with it."""

    first: int  # steps, both included
    last: int
    reward: tuple[float, float, float]  # means before, within and after
    beside: Series
    levels: tuple[float, float, float]  # the same, of that series


COMPANION: Final = re.compile(
    r"len(?:gth)?s?(?:$|[/_])|trunc|mask|skipp|dropp|empty|abort|error|fail|time_?out|timed_out|console_lines"
)
"""Names of what tells that a stretch's samples were of another kind: their lengths, and counts of what went wrong."""
LONG_DIP_VALUES: Final = 60  # of a series: three levels need as many
COMPANION_SDS: Final = 5.0  # of the series that dates the stretch; high, because a few dozen series are tried
REWARD_SDS: Final = 2.5  # of the reward at either end of a stretch that another series dates: one chance in 26 000


def find_long_dip(metrics: Mapping[str, Series], other: Mapping[str, Series]) -> LongDip | None:
    """Return the stretch that the clearest companion dates, and in which the reward falls and comes back; or None."""
    reward = metrics.get("reward/mean")
    if reward is None or not _is_usable(reward) or len(reward.finite()[0]) < LONG_DIP_VALUES:
        return None
    for group in (metrics, other):  # of two names of one series that which is known
        found = [dip for series in [*group.values()][:MAX_BESIDE] for dip in _dated_by(series, reward)]
        if found:
            return max(found, key=lambda one: one[0])[1]
    return None


def _dated_by(series: Series, reward: Series) -> Iterator[tuple[float, LongDip]]:
    """Yield the long dip of the reward that a companion dates, behind how clearly it does, by either side."""
    steps, values = series.finite()
    if not COMPANION.search(series.raw_name) or len(values) < LONG_DIP_VALUES or not np.ptp(values):
        return
    for side in (DIP, SPIKE):
        z, first, end = stretch_apart(-side * values, _value_error(values)) or (0.0, 0, 0)
        if z < COMPANION_SDS:
            continue
        begins, ends = int(steps[first]), int(steps[end - 1])
        if (earned := _levels(reward, begins, ends)) is not None:
            levels = _means_around(values, first, end)
            yield z, LongDip(first=begins, last=ends, reward=earned, beside=series, levels=levels)


def _value_error(values: FloatArray) -> float:
    """Return what a mean of one value would err by, as autocorrelated as they are."""
    noise, ar1 = step_noise(values)
    return float(noise * np.sqrt((1 + ar1) / (1 - ar1)))


def _means_around(values: FloatArray, first: int, end: int) -> tuple[float, float, float]:
    """Return the means of half a stretch before it, of itself and of half one after it."""
    half = max(1, (end - first) // 2)
    parts = values[max(0, first - half) : first], values[first:end], values[end : end + half]
    before, within, after = (float(part.mean()) for part in parts)
    return before, within, after


def _levels(reward: Series, first: int, last: int) -> tuple[float, float, float] | None:
    """Return the reward before, within and after steps within which it lies below both beyond its noise, or None."""
    steps, values = reward.finite()
    begin, end = (int(place) for place in np.searchsorted(steps, [first, last + 1]))
    half = (end - begin) // 2
    fewest = min(begin, len(values) - end, half)
    if fewest < MIN_SHARED:
        return None
    levels = _means_around(values, begin, end)
    error = _value_error(values) * float(np.sqrt(1 / fewest + 1 / (end - begin)))
    return levels if min(levels[0], levels[2]) - levels[1] >= REWARD_SDS * error else None


def happened_at(
    metrics: Mapping[str, Series],
    other: Mapping[str, Series],
    run: Run,
    evaluation: Evaluation | None,
    events: Iterable[Event],
    segments: Segments | None,
) -> dict[str, IntArray]:
    """Return the steps of each kind of event that the run's files show."""
    steps: dict[str, list[IntArray]] = {
        kind: [] for kind in (EVALUATION, CHECKPOINT, RESTART, ENGINE_RESTART, SYNC, EPOCH)
    }
    if evaluation is not None:
        steps[EVALUATION] += [figure.series.finite()[0] for figure in evaluation.figures]
    for series in other.values():
        for kind, words in SPARSE_WORDS.items():
            if words_of(series.raw_name) & words:
                steps[kind].append(_sparse(series, run))
    steps[CHECKPOINT].append(_saved(run))
    events = tuple(events)
    said = {event.step for event in events if event.step is not None and ENGINES.search(event.text)}
    steps[ENGINE_RESTART].append(np.array(sorted(said), np.int64))
    sent = {event.step for event in events if event.step is not None and SENT.search(event.text)}
    steps[SYNC].append(np.array(sorted(sent) if len(sent) <= SPARSE * run.step_count else (), np.int64))
    steps[RESTART].append(np.array(sorted(_restarts(run, events, segments)), np.int64))
    epoch = metrics.get("epoch") or next(
        (one for one in other.values() if one.raw_name.rpartition("/")[2] == "epoch"), None
    )
    if epoch is not None:
        at, values = epoch.finite()
        steps[EPOCH].append(at[1:][np.diff(np.floor(values)) > 0])
    joined = {kind: np.unique(np.concatenate(parts)) for kind, parts in steps.items() if parts}
    return {kind: at for kind, at in joined.items() if len(at)} | dict(_labelled(other))


def _sparse(series: Series, run: Run) -> IntArray:
    """Return the steps of a series that is logged, or above 0, at few of the run's steps."""
    at, values = series.finite()
    at = at[values > 0] if (values == 0).any() else at
    return at if len(at) <= SPARSE * run.step_count else at[:0]


def _saved(run: Run) -> IntArray:
    every = next((run.context[name] for name in SAVE_SETTINGS if name in run.context), None)
    if not isinstance(every, int) or isinstance(every, bool) or every < 2 or run.last_step is None:
        return np.empty(0, np.int64)
    return np.arange(every, run.last_step + 1, every, dtype=np.int64)


def _restarts(run: Run, events: Iterable[Event], segments: Segments | None) -> set[int]:
    """Return the last steps before the run was started again."""
    at = {overlap.first_step for overlap in segments.metrics} if segments is not None else set()
    resumed = run.context.get("resumed_from_step")
    if isinstance(resumed, int) and (run.first_step or 0) < resumed < (run.last_step or 0):
        at.add(resumed)
    for event in events:
        if event.step is None and not event.aside and (named := RESUMED_AT.search(event.text)):
            event = replace(event, step=int(named[1]))
        if event.step is None or event.aside or not (run.first_step or 0) < event.step <= (run.last_step or event.step):
            continue  # before the second step: how the run began
        ended = event.kind == "last_line" and run.last_step is not None and event.step < run.last_step
        if event.kind == "restart" or ended or (event.kind in {"stdout", "stderr"} and RESUMED.search(event.text)):
            at.add(event.step)
    return at


def _labelled(other: Mapping[str, Series]) -> Iterator[tuple[str, IntArray]]:
    """Yield where each value begins of what says where a step's data or machine came from, and each new version."""
    for series in other.values():
        words = words_of(series.raw_name)
        at, values = series.finite()
        if words & VERSION_WORDS and len(at) > 1:
            yield f"a new {series.raw_name}", at[1:][np.diff(values) != 0]
        elif words & LABEL_WORDS and len(at) and (values == np.round(values)).all():
            labels = np.unique(values)
            if 2 <= len(labels) <= MAX_LABELS:
                turned = np.append(True, np.diff(values) != 0)
                for label in labels.tolist():
                    yield f"{series.raw_name} {label:g}", at[turned & (values == label)]


def facts_of(recurrence: Recurrence) -> dict[str, JsonScalar]:
    """Return the numbers of a recurrence as evidence."""
    lead = recurrence.lead
    facts: dict[str, JsonScalar] = {
        "excursions": len(lead.excursions.spans),
        "steps_affected": len(lead.steps),
        "at_steps": ", ".join(str(step) for step in lead.steps[:MAX_STEPS_SHOWN].tolist()),
        "share_of_steps": len(lead.steps) / len(lead.series.finite()[0]),
        "p_value": lead.excursions.p_value,
        "false_alarm_rate": FALSE_ALARMS,
    }
    if recurrence.period is not None:
        facts |= {"every_steps": recurrence.period.every, "period_p_value": recurrence.period.p_value}
    if recurrence.coincidences:
        first = recurrence.coincidences[0]
        facts |= {"goes_with": first.kind, "goes_with_p_value": first.p_value, "lag": first.lag}
    return facts
