"""Template for rules on what comes and goes: a series that leaves its level at single steps or for spans, and returns.

    def check(evidence: Evidence, limits: Limits) -> Verdict:
        return judge_recurrences(evidence, limits, ("kl/ref",), what="KL", enable=ENABLE, judge=_finding)

`judge` gets each recurrence that the rule owns and answers with a finding, or None where it does no harm. A recurrence
is owned by one rule alone: by reward-dips where the reward falls at its steps, else by that of its leading series.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.excursions import (
    CHECKPOINT,
    DIP,
    ENGINE_RESTART,
    EPOCH,
    EVALUATION,
    RESTART,
    SYNC,
    Beside,
    Recurrence,
    SeriesExcursions,
    facts_of,
)
from ptt.diagnostics.model import LIKELY, Severity
from ptt.diagnostics.rules.interface import Broken, Finding, Healthy, Limits, NotJudged, Verdict
from ptt.diagnostics.rules.single_series import logged, metric_evidence
from ptt.diagnostics.statistics.arrays import FloatArray
from ptt.diagnostics.statistics.recurring_excursions import MIN_VALUES, Coincidence
from ptt.diagnostics.wording import counted, sig

REWARD: Final = "reward/mean"
MISMATCHES: Final = ("mismatch/prob_error", "mismatch/logp_abs_mean", "mismatch/prob_diff", "mismatch/kl")
MIN_REWARD_FALL: Final = 0.3  # of its level: the harm that makes it a matter of the reward
EXPLAINED: Final = 0.5  # of the excursions: an event that fewer go with is named in none of the causes
NAMED_STEPS: Final = 4  # in a claim; all are in the evidence
NAMED_BESIDE: Final = 2
MAX_FACTOR: Final = 1000.0  # that a fall to 0 counts for
TELLING: Final = (
    ("mismatch/", "mult_prob_error", "logprob"),
    ("error", "fail", "timeout", "console_lines/"),
    ("len/", "trunc", "clip", "length"),
    ("reward", "score"),
)
"""Parts of names by what they tell of a cause, the most telling first; of each kind one series is named."""
OF_TIME: Final = ("time", "timing", "perf", "throughput", "per_sec")

WORDS: Final = {
    EVALUATION: "evaluation",
    CHECKPOINT: "saved checkpoint",
    RESTART: "restart",
    ENGINE_RESTART: "restart of an engine",
    SYNC: "weight update of the engine",
    EPOCH: "new epoch",
}
CAUSES: Final = {
    EVALUATION: (
        "the engine wakes from the evaluation with wrong weights: sleep mode, or a weight update that is left out",
        "sampling settings of the evaluation stay in force for the next rollouts",
    ),
    CHECKPOINT: ("saving a checkpoint moves or frees weights that the engine still reads",),
    RESTART: (
        "the first weight update after the start sent other weights than those restored: the reference's, or the "
        "initial ones",
    ),
    ENGINE_RESTART: (
        "an engine that was started again answers before it has the trainer's weights: with the base model's",
    ),
    SYNC: ("a weight update that reaches the engine late, or in part",),
    EPOCH: ("the last batch of an epoch is short, or each epoch begins with other tasks",),
}
OF_WEIGHTS: Final = (EVALUATION, RESTART, ENGINE_RESTART, SYNC)  # events after which an engine may hold other weights
LENGTH: Final = "len/response_mean"
ENDLESS: Final = 2.0  # times the usual length: answers that run to their limit
ENGINE: Final = "the engine samples from other weights than the trainer's at these steps"
Judge = Callable[[Recurrence, Evidence, Limits], Finding | None]


def judge_recurrences(
    evidence: Evidence,
    limits: Limits,
    names: Collection[str],
    *,
    what: str,
    enable: str,
    judge: Judge,
    owner: Callable[[Recurrence], bool] | None = None,
) -> Verdict:
    """Judge what comes and goes in some series, by their canonical names.

    `what` completes "no ... is logged". `owner` says which recurrences are the rule's; by default those that one of
    its series leads and that leave the reward alone.
    """
    answers = [logged(evidence, name, what=what, enable=enable, minimum=MIN_VALUES) for name in names]
    readable = [one for one in answers if not isinstance(one, NotJudged)]
    if not readable:
        unread = [one for one in answers if isinstance(one, NotJudged)]
        return min(unread, key=lambda one: one.absent)
    if evidence.excursions is None:
        return NotJudged(reason=f"dips and spikes of the {what} were not looked for", missing=tuple(names))
    mine = [one for one in evidence.excursions if (owner(one) if owner else _leads(one, names))]
    findings = [finding for one in mine if (finding := judge(one, evidence, limits)) is not None]
    count = sum(len(one.finite()[0]) for one in readable)
    if not findings:
        seen = "leaves its level for a while by more than noise" if not mine else "departs so far that it harms"
        return Healthy(reason=f"none of {count} values of the {what} {seen}")
    serious = tuple(finding for finding in findings if finding.severity.at_least(Severity.MEDIUM))
    return Broken(findings=serious) if serious else Healthy(reason=findings[0].claim, notes=tuple(findings))


def _leads(recurrence: Recurrence, names: Collection[str]) -> bool:
    return recurrence.lead.series.name in names and reward_fall(recurrence) is None


def reward_fall(recurrence: Recurrence) -> Beside | None:
    """Return how the reward falls at the steps of a recurrence that another series leads, or None."""
    reward = recurrence.of(REWARD)
    deep = reward is not None and reward.level - reward.value >= MIN_REWARD_FALL * abs(reward.level)
    return reward if reward is not None and reward.side == DIP and deep else None


def steps_words(lead: SeriesExcursions) -> str:
    """Name the first steps or spans in words, and count the others."""
    logged_at = lead.series.finite()[0]
    spans = lead.excursions.spans
    texts = [
        f"{logged_at[span.first]}" + (f" to {logged_at[span.last]}" if span.length > 1 else "")
        for span in (spans if len(spans) == NAMED_STEPS + 1 else spans[:NAMED_STEPS])
    ]
    more = len(spans) - len(texts)
    single = len(spans) == 1 and spans[0].length == 1
    listed = ", ".join(texts) + (f" and {more} more" if more else "")
    return f"step {listed}" if single else f"steps {listed}"


def event_of(recurrence: Recurrence) -> Coincidence | None:
    """Return the kind of event that most of the excursions go with, or None."""
    spans = len(recurrence.lead.excursions.spans)
    return next((one for one in recurrence.coincidences if one.together >= EXPLAINED * spans), None)


def when_words(recurrence: Recurrence) -> str:
    """Say what the excursions go with, as a clause in brackets; empty where nothing is known."""
    event, period = event_of(recurrence), recurrence.period
    parts = []
    if event is not None:
        lag = "one logged step after" if event.lag else "at"
        each = "each" if event.together == event.events and event.events > 1 else f"{event.together} of {event.events}"
        word = WORDS.get(event.kind, event.kind)
        if event.events == 1:
            parts.append(f"{lag} a {word}" if event.kind in WORDS else f"{lag} {word}")
        elif each == "each":
            parts.append(f"{lag} each {word}")
        else:
            parts.append(f"{lag} {each}: {word}")
    if period is not None:
        parts.append(f"every {period.every} steps")
    return f" ({'; '.join(parts)})" if parts else ""


def beside_words(recurrence: Recurrence, *, skip: Collection[str] = ()) -> str:
    """Say which other series depart at the same steps, the most telling first, as the end of a clause."""

    lead = recurrence.lead
    own = Beside(
        series=lead.series, side=lead.excursions.side, sds=0, value=typical(lead.values), level=typical(lead.levels)
    )
    kinds: dict[int, str] = {}
    for one in (own, *sorted(recurrence.beside, key=lambda one: "/" not in one.series.name)):  # known metrics first
        name = f"{one.series.name} {one.series.raw_name}".lower()
        if one.series.name in skip or any(part in name for part in OF_TIME):
            continue
        numbers = f" is {sig(one.value)} instead of "
        kind = next((rank for rank, parts in enumerate(TELLING) if any(part in name for part in parts)), len(TELLING))
        if not any(numbers in text for text in kinds.values()):  # the same under another name
            kinds.setdefault(kind, f"{one.series.raw_name}{numbers}{sig(one.level)}")
    texts = [kinds[kind] for kind in sorted(kinds)][:NAMED_BESIDE]
    return f"; there {' and '.join(texts)}" if texts else ""


def is_engine(recurrence: Recurrence) -> bool:
    """Return whether engine and trainer disagree at these steps more than at others."""
    return recurrence.lead.series.name in MISMATCHES or any(
        one.series.name in MISMATCHES and one.side != DIP for one in recurrence.beside
    )


def causes_of(recurrence: Recurrence, *own: str) -> tuple[str, ...]:
    """Return the causes: of what the excursions go with, then the rule's own."""
    event = event_of(recurrence)
    causes = list(CAUSES.get(event.kind, (f"what sets {event.kind} apart",)) if event is not None else ())
    if is_engine(recurrence):
        causes.append(ENGINE)
    if event is None and recurrence.period is not None:
        causes.append(
            f"something that runs every {recurrence.period.every} steps: an evaluation, a checkpoint, a weight update, "
            "one part of a mix of data"
        )
    return (*causes, *own)


def confirm_of(recurrence: Recurrence) -> tuple[str, ...]:
    """Return the looks that tell one cause from the others."""
    lead = recurrence.lead
    first = int(lead.begins[0])
    looks = [f"read samples of step {first} beside those of the step before: are they of the same policy?"]
    if is_engine(recurrence):
        looks.append(
            "compare the engine's weights, or the logprobs of one fixed sequence, with the trainer's at such a step "
            "and at the next"
        )
    event = event_of(recurrence)
    if event is not None and event.kind in {EVALUATION, CHECKPOINT, SYNC}:
        looks.append(f"run some steps without any {WORDS[event.kind]}: does it stay away?")
    return tuple(looks)


def cause_words(recurrence: Recurrence) -> tuple[str, ...]:
    """Return what is likely behind what the excursions go with, as a finding's context.

    Of events after which an engine may hold other weights: where engine and trainer disagree, or answers do not end.
    """
    event = event_of(recurrence)
    if event is None:
        return ()
    lengths = recurrence.of(LENGTH)
    endless = lengths is not None and lengths.value >= ENDLESS * lengths.level
    if event.kind in OF_WEIGHTS and not (is_engine(recurrence) or endless):
        return ()
    return (f"{LIKELY}{CAUSES.get(event.kind, (f'what sets {event.kind} apart',))[0]}",)


def typical(values: FloatArray) -> float:
    """Return the median."""
    return float(np.median(values))


def times_words(recurrence: Recurrence) -> str:
    """Count the excursions and the steps that they take."""
    lead = recurrence.lead
    spans, steps, count = len(lead.excursions.spans), len(lead.steps), len(lead.series.finite()[0])
    return f"{counted(spans, 'time')}, {steps} of {count} steps"


def factor_judge(name: str, *, unit: str, causes: tuple[str, ...], next_steps: tuple[str, ...]) -> Judge:
    """Return the judge of a positive level that matters from a factor on, to either side: the limit `times_level`."""

    def judge(recurrence: Recurrence, _: Evidence, limits: Limits) -> Finding | None:
        lead = recurrence.lead
        value, level = typical(lead.values), typical(lead.levels)
        if level <= 0:
            return None
        down = lead.excursions.side == DIP
        factor = level / max(value, level / MAX_FACTOR) if down else value / level
        if factor < limits["times_level"]:
            return None
        first = int(lead.begins[0])
        alone = lead.excursions.alone and event_of(recurrence) is None
        return Finding(
            severity=Severity.LOW if alone else Severity.MEDIUM,
            claim=f"The {name} {'falls' if down else 'rises'} to {sig(value)} at {steps_words(lead)}"
            f"{when_words(recurrence)} and comes back; it is {sig(level)} around them"
            f"{beside_words(recurrence, skip=(lead.series.name,))}",
            observed=value,
            limit=level / limits["times_level"] if down else level * limits["times_level"],
            unit=unit,
            onset_step=first,
            onset_interval=(first, first),
            evidence=metric_evidence(lead.series, value=value, level=level, **facts_of(recurrence)),
            causes=causes_of(recurrence, *causes),
            confirm=confirm_of(recurrence),
            next=next_steps,
        )

    return judge
