"""This run shows steps that sample and do not train: the step counter goes on, and no figure of an update is logged.

What: of the steps between the first and the last update, a twentieth or more (medium from a fifth on) log what was
sampled and no gradient norm, loss, learning rate or clip fraction at all, in three stretches or more that no pattern
repeats. Named beside it is the count that tells these steps from the others without an exception, and the setting of
that value.
Why it matters: what these steps sampled is thrown away, and the curves do not show it: progress by step looks slow,
and is taken for a policy that does not learn.
What it is not: updates by a schedule, or ones that begin late; lost lines; steps of system metrics only.
What to do: see what the trainer does with a batch that a filter leaves too small; let it draw more prompts, or keep
what is left for the next step.
Source: rLLM issue 920 (a batch with too few partly solved tasks is discarded, and the step counts); the shares are our
own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import MIN_LOGGED, Series
from ptt.diagnostics.metrics.name_words import words_of
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.single_series import metric_evidence
from ptt.diagnostics.statistics.arrays import IntArray
from ptt.diagnostics.wording import counted, pct

OF_UPDATES: Final = ("grad_norm", "loss/policy", "loss/total", "lr", "clip/frac", "kl/old")
SHARE: Final = 0.05  # of the steps: fewer may be lost lines
MEDIUM_SHARE: Final = 0.2  # of the steps: one sampled batch in five teaches nothing
MIN_SKIPPED: Final = 5  # steps
MIN_STRETCHES: Final = 3  # of skipped steps: one or two are lost lines
MIN_BESIDE: Final = 3  # series of what was sampled, logged at the skipped steps as at the others
OF_SAMPLES: Final = frozenset({
    "reward", "rewards", "score", "scores", "acc", "accuracy", "solve", "solved", "length", "lengths", "len", "turns",
    "group", "groups", "task", "tasks", "prompt", "prompts", "response", "responses", "completion", "completions",
    "sample", "samples", "episode", "episodes", "rollout", "rollouts", "traj", "trajectory", "trajectories",
})  # fmt: skip
"""Words of a series that tells what was sampled; memory, load and clocks are logged without a sample, too."""
COVERED: Final = 0.95  # of the steps, by each of these
SAME_GAP: Final = 0.8  # of the distances between updates, where these are more than a step: a schedule
MAX_PERIOD: Final = 12  # distances between updates after which they repeat: a schedule of several
MAX_LEVEL: Final = 1000.0  # a count of groups or tasks; what is larger is tokens or a clock


@dataclass(frozen=True, kw_only=True)
class _Divider:
    """A count that lies below a bound at all skipped steps, and from there on at all others."""

    series: Series
    bound: float


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge whether steps that sampled trained, too."""
    updates = [
        series for name in OF_UPDATES if (series := evidence.metrics.get(name)) is not None and len(series.steps)
    ]
    if not updates or len(updates[0].steps) < MIN_LOGGED or any(series.logged for series in updates):
        return NotJudged(
            reason="no figure of an update is logged step by step",
            missing=("grad_norm",),
            enable="log the gradient norm at each update",
            absent=not updates,
        )
    updated = np.unique(np.concatenate([series.steps for series in updates]))
    others = [
        one
        for one in (*evidence.metrics.values(), *evidence.other.values())
        if not one.logged and words_of(f"{one.name}/{one.raw_name}") & OF_SAMPLES
    ]
    beside = [one for one in others if len(one.steps) > len(updated) and np.isin(updated, one.steps).mean() >= COVERED]
    sampled = np.unique(np.concatenate([np.zeros(0, np.int64), *(one.steps for one in beside)]))
    sampled = sampled[(sampled >= updated[0]) & (sampled <= updated[-1])]
    skipped = np.setdiff1d(sampled, updated)
    known = [one for one in beside if np.isin(sampled, one.steps).mean() >= COVERED]
    share = len(skipped) / max(1, len(sampled))
    stretches = len(np.unique(np.searchsorted(updated, skipped)))
    too_few = len(known) < MIN_BESIDE or len(skipped) < MIN_SKIPPED or stretches < MIN_STRETCHES
    if too_few or share < limits["share"] or _is_schedule(updated):
        return Healthy(reason=f"{counted(len(updated), 'step(s)')} log an update, as what is sampled is logged")
    divider = _divider(known, skipped, updated)
    return Finding(
        severity=Severity.MEDIUM if share >= limits["medium"] else Severity.LOW,
        claim=f"{pct(share)} of the steps ({len(skipped)} of {len(sampled)}) sample and log no update at all (no "
        f"{updates[0].raw_name}), while the step goes on{_told(divider, evidence)}",
        observed=share,
        limit=limits["share"],
        unit="share of steps",
        onset_step=int(skipped[0]),
        onset_interval=(int(sampled[0]), int(skipped[0])),
        evidence=metric_evidence(
            updates[0],
            skipped_steps=len(skipped),
            told_apart_by=None if divider is None else divider.series.raw_name,
            below=None if divider is None else divider.bound,
        ),
        causes=(
            "a filter leaves too little of a batch, which is thrown away as a whole instead of being filled up",
            "an update that fails, and whose failure is caught",
        ),
        confirm=(f"read what the trainer does at step {int(skipped[0])}, after the samples are scored",),
        next=(
            "keep what is left of such a batch for the next step, or draw prompts until it is full",
            "count updates, not steps, when runs are compared",
        ),
    )


def _is_schedule(updated: IntArray) -> bool:
    """Return whether updates come at a regular distance of more than a step, or at distances that repeat."""
    gaps = np.diff(updated)
    sizes, counts = np.unique(gaps, return_counts=True)
    if sizes[counts.argmax()] > 1 and counts.max() >= SAME_GAP * counts.sum():
        return True
    periods = (period for period in range(1, MAX_PERIOD + 1) if (gaps[:-period] > 1).any())
    return any(float(np.mean((gaps[p:] == gaps[:-p])[gaps[:-p] > 1])) >= SAME_GAP for p in periods)


def _divider(known: Iterable[Series], skipped: IntArray, updated: IntArray) -> _Divider | None:
    """Return the count that tells skipped steps from others; of several the one with the fewest values."""
    found = list(_dividers(known, skipped, updated))
    return min(found, key=lambda one: (len(np.unique(one.series.finite()[1])), one.series.raw_name), default=None)


def _dividers(known: Iterable[Series], skipped: IntArray, updated: IntArray) -> Iterator[_Divider]:
    for series in known:
        steps, values = series.finite()
        below, above = values[np.isin(steps, skipped)], values[np.isin(steps, updated)]
        whole = np.array_equal(values, np.round(values)) and not np.any((values < 0) | (values > MAX_LEVEL))
        if whole and len(below) and len(above) and below.max() < above.min():
            yield _Divider(series=series, bound=float(above.min()))


def _told(divider: _Divider | None, evidence: Evidence) -> str:
    """Say which count tells these steps apart, and which least count the settings ask for."""
    if divider is None:
        return ""
    asked = (
        key
        for key, value in sorted(evidence.settings.items())
        if key.rpartition(".")[2].startswith("min_") and not isinstance(value, bool) and value == divider.bound
    )
    words = set(divider.series.raw_name.replace("/", "_").split("_"))
    setting = max(asked, key=lambda key: len(words & set(key.rpartition(".")[2].split("_"))), default=None)
    name = divider.series.raw_name
    told = f": they are exactly those with {name} below {divider.bound:g}"
    return told + (f" ({setting}={divider.bound:g}), and what they sampled is thrown away" if setting else "")


RULE = rule(check, "steps-without-update", Link.TRAINING_SIGNAL, share=SHARE, medium=MEDIUM_SHARE)
