"""This run shows one part of the reward that rises while another falls, or stays where it is.

What: one logged part rose beyond its noise since the start while another fell below its best, by a fifth of its level
and six standard deviations of a window's mean, over the same steps. Or a part that is not the task (format, length, a
judge's score) rose by a quarter of what a part can pay, and the part that is the task gained less than a tenth of that
since the other set out, while it is far from its top.
Why it matters: the sum hides it. The policy trades the part that is hard to earn for the part that is easy.
What it is not: a penalty or a length cost that grows as the task is learnt: that finding is low.
What to do: look at the weights and scales of the parts; decide which part is the task, and weight or gate the others by
it.
Source: parts as TRL logs them (`rewards/<function>/mean`), prime-rl, or as recorded with each sample.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import (
    CHANGE_SDS,
    MIN_VALUES,
    LevelChange,
    change_since,
    change_since_best,
    change_since_start,
)
from ptt.diagnostics.evidence.outcome_agreement import MIN_LOSS, TWO_WINDOW_FACTOR, has_risen
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.metrics.name_words import PENALTY, is_outcome, words_of
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.reward import rewards_of, with_values
from ptt.diagnostics.rules.single_series import late_mean
from ptt.diagnostics.wording import counted, sig

MIN_FALL_SHARE = MIN_LOSS  # of its best level


MIN_GAIN = 0.25  # of a part between 0 and 1: what is easy to earn has been found
MAX_GAIN_SHARE = 0.1  # of that gain: a task that gained less, up to its noise, was left where it was
UNSOLVED = 0.7  # of a part between 0 and 1: above, little of the task is left to learn
SET_OUT = 0.25  # of its whole rise: where a part has set out
NOISE_Z = 2.0  # standard deviations of a window's mean
TOLERANCE = 0.05  # beyond 0 and 1: a mean that a writer smoothed or rounded
LONG_RUN = 100  # logged values: earlier, a format that is learnt first is the usual order


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Compare every part that fell, and the task if it stands still, with every part that rose since."""
    parts = with_values(rewards_of(evidence).components, MIN_VALUES)
    if len(parts) < 2:
        return NotJudged(
            reason=f"{counted(len(parts), 'part(s)')} of the reward logged with {MIN_VALUES} values; two are needed",
            missing=("reward components",),
            enable="log each part of the reward separately: in TRL one reward function per part, in prime-rl a rubric",
        )
    changes = {name: change for name, series in parts.items() if (change := change_since_best(series)) is not None}
    falls = [
        (name, fall) for name, fall in changes.items() if fall.sds <= -CHANGE_SDS and fall.share <= -limits["fall"]
    ]
    for name, fall in sorted(falls, key=lambda item: (not is_outcome(item[0]), item[1].onset or 0, item[0])):
        others = {other: change_since(series, fall.start_step) for other, series in parts.items() if other != name}
        rises = {other: rise for other, rise in others.items() if rise is not None and has_risen(rise)}
        if rises:
            other = max(rises, key=lambda other: rises[other].share)
            return _finding(name, parts[name], fall, other, parts[other], rises[other], limits["fall"])
    return _left_behind(parts) or Healthy(reason=f"none of {len(parts)} parts falls while another rises")


def _left_behind(parts: Mapping[str, Series]) -> Finding | Healthy | None:
    """Return the finding of a task that stands still while other paid parts rise."""
    shares = {name: one for name, one in parts.items() if _is_share(one)}
    tasks = [name for name in shares if is_outcome(name)]
    if not tasks or any(late_mean(shares[name]) >= UNSOLVED for name in tasks):
        return None
    for other in sorted(shares.keys() - set(tasks)):
        rise = change_since_start(shares[other])
        if rise is None or rise.sds < CHANGE_SDS or rise.amount < MIN_GAIN:
            continue
        began = _set_out(shares[other], rise)
        changes = {name: change_since(shares[name], began) for name in tasks}
        if all(one is not None and _stood(one, rise.amount) for one in changes.values()):
            name, change = min(changes.items(), key=lambda item: item[0])
            assert change is not None
            finding = _finding(name, shares[name], replace(change, onset=began, interval=rise.interval), other,
                               shares[other], rise, MAX_GAIN_SHARE, fell=False)  # fmt: skip
            early = len(shares[other].finite()[0]) < LONG_RUN
            note = replace(finding, severity=Severity.LOW)
            return Healthy(reason=finding.claim, notes=(note,)) if early else finding
    return None


def _is_share(series: Series) -> bool:
    values = series.finite()[1]
    return bool(values.min() >= -TOLERANCE and values.max() <= 1 + TOLERANCE)


def _stood(change: LevelChange, gained: float) -> bool:
    return change.moved + NOISE_Z * TWO_WINDOW_FACTOR * change.noise <= MAX_GAIN_SHARE * gained


def _set_out(series: Series, rise: LevelChange) -> int:
    """Return the first step at which the mean over a window has made a quarter of the rise for good."""
    steps, mean = series.rolling()
    below = np.flatnonzero(~(mean > rise.start + SET_OUT * rise.amount))
    return int(steps[min(int(below[-1]) + 1 if len(below) else 0, len(steps) - 1)])


def _finding(
    name: str,
    fallen: Series,
    fall: LevelChange,
    other: str,
    risen: Series,
    rise: LevelChange,
    limit: float,
    *,
    fell: bool = True,
) -> Finding:
    verb = "fell" if fell else "stood still"
    gain = f" ({sig(rise.start)} → {sig(rise.late)})"
    return Finding(
        severity=Severity.LOW if words_of(name) & PENALTY else Severity.MEDIUM,
        claim=f"The reward component {name} {verb} ({sig(fall.start)} → {sig(fall.late)}) while {other} rose{gain}",
        observed=-fall.share,
        limit=limit,
        unit="of its best level",
        onset_step=fall.onset,
        onset_interval=fall.interval,
        evidence={"metric": name, "logged_as": fallen.raw_name, "rose": risen.raw_name,
                  "best": fall.start, "last": fall.late},
        causes=("the rising part is larger or easier to earn", "both parts cannot be earned at once",
                "the falling part's scorer broke: its format or parser changed"),
        confirm=(f"score ten late samples by hand for {name}: is the task not done, or is it not recognised?",
                 f"compare {name} with {other} among samples of one prompt: does one exclude the other?"),
        next=(f"give {other} less weight, or reward it only where {name} is earned; try it in a short run and change "
            "nothing else",),
    )  # fmt: skip


RULE = rule(check, "components-diverge", Link.REWARD, max_severity=Severity.MEDIUM, fall=MIN_FALL_SHARE)
