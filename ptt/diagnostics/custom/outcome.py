"""Where a condition surely holds and where it may, for want of data: all and any over three answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ptt.diagnostics.custom.intervals import (
    ALWAYS,
    FAR,
    NEVER,
    Stretches,
    intersection,
    lasting,
    stretches,
    union,
)
from ptt.diagnostics.custom.terms import AllOf, AnyOf, Condition, Last, Moving, Part, Statement
from ptt.diagnostics.custom.windows import NOT_A_NUMBER, Seen, look
from ptt.diagnostics.evidence.series import Series


@dataclass(frozen=True, kw_only=True)
class Looked:
    """One test on its series; `seen` is None where it could not be worked out, and `reason` says why."""

    test: Statement
    series: Series | None
    seen: Seen | None
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A condition over the run.

    sure, maybe: the steps on which it holds, and on which it does or may (a fixed window speaks of all steps);
    onset: from which step a condition on fixed windows alone is seen to hold; tests: what was looked at.
    """

    sure: Stretches
    maybe: Stretches
    onset: int | None
    tests: tuple[Looked, ...]

    def lasting_onset(self, steps: int) -> int | None:
        """Give the first step of the first stretch of so many steps on which it surely holds."""
        found = lasting(self.sure, steps)
        if not found:
            return None
        return found[0][0] if found[0][0] > -FAR else self.onset

    def may_last(self, steps: int) -> bool:
        """Tell whether what is missing could make it hold for so many steps."""
        return bool(lasting(self.maybe, steps))


def outcome_of(condition: Condition, find: Callable[[str], Series | str], *, least: int, end: int) -> Outcome:
    """Work a condition out; `find` gives a series or why there is none, `end` is the last step of the run."""
    match condition:
        case Statement():
            return _of_test(condition, find(condition.metric), least=least, end=end)
        case AllOf(parts=parts):
            found = [outcome_of(part, find, least=least, end=end) for part in parts]
            onsets = [one.onset for one in found if one.onset is not None]
            return Outcome(
                sure=intersection([one.sure for one in found]),
                maybe=intersection([one.maybe for one in found]),
                onset=max(onsets, default=None),
                tests=tuple(test for one in found for test in one.tests),
            )
        case AnyOf(parts=parts):
            found = [outcome_of(part, find, least=least, end=end) for part in parts]
            onsets = [one.onset for one in found if one.onset is not None and one.sure]
            return Outcome(
                sure=union(one.sure for one in found),
                maybe=union(one.maybe for one in found),
                onset=min(onsets, default=None),
                tests=tuple(test for one in found for test in one.tests),
            )


def _of_test(test: Statement, series: Series | str, *, least: int, end: int) -> Outcome:
    seen = series if isinstance(series, str) else look(series, test, least=least)
    if isinstance(series, str) or isinstance(seen, str):
        known = None if isinstance(series, str) else series
        looked = Looked(test=test, series=known, seen=None, reason=str(seen))
        return Outcome(sure=NEVER, maybe=ALWAYS, onset=None, tests=(looked,))
    lost = None if test.aggregate == "nan_count" else lost_from(series)
    reason = "" if lost is None else f"{series.raw_name} is NaN or infinite from step {lost} to the end"
    looked = Looked(test=test, series=series, seen=seen, reason=reason)
    match test.window:
        case Moving():
            sure = stretches(seen.steps, seen.holds, end=end if lost is None else lost - 1)
            maybe = sure if lost is None else union([sure, ((lost, FAR),)])
            return Outcome(sure=sure, maybe=maybe, onset=sure[0][0] if sure else None, tests=(looked,))
        case Last() | Part():
            holds = bool(seen.holds[-1])
            touched = lost is not None and not (isinstance(test.window, Part) and test.window.name in {"early", "mid"})
            return Outcome(
                sure=ALWAYS if holds else NEVER,
                maybe=ALWAYS if holds or touched else NEVER,
                onset=held_since(seen) if holds else None,
                tests=(looked,),
            )


def held_since(seen: Seen) -> int:
    """Give the step from which on a window's value holds at every step up to the last."""
    broken = np.flatnonzero(~seen.holds)
    return int(seen.steps[broken[-1] + 1 if len(broken) else 0])


def lost_from(series: Series) -> int | None:
    """Give the step from which on a metric is logged but never again a number; None where its last value is one."""
    bad = np.isin(series.flags, NOT_A_NUMBER)
    if not len(bad) or not bad[-1]:
        return None
    good = np.flatnonzero(np.isfinite(series.values))
    return int(series.steps[good[-1] + 1 if len(good) else 0])
