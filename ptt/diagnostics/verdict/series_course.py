"""Tell in a clause what a series did: by its ends or its levels, with its best value and since when it stood still."""

from __future__ import annotations

from typing import Final

from ptt.diagnostics.model import SeriesOutcome
from ptt.diagnostics.parsers.io.metric_rows import UNNUMBERED
from ptt.diagnostics.wording import sig

MAX_NAME: Final = 60  # characters of a name as logged
FEW: Final = 20  # values that are told as they are: their means are of too few
SMOOTH: Final = 0.1  # of the way from first to last: with less noise both are told as they are
WORTH: Final = 0.05  # of the way from first to last: a best value nearer to the last is not named
BACK: Final = 0.15  # of the way to the best: what lost so much of it again is told to have
LAST_NOISE: Final = 5.0  # times the noise of a value, off the mean of its last part
MIN_NOISE: Final = 8  # values: of fewer, their noise is not known from what they did
BEYOND_NOISE: Final = 3.0  # times the noise of a value: so far off hardly a single value lies by chance
MOSTLY: Final = 0.5  # of the values are exactly 0: that comes before any mean of them
FLAT_SHARE: Final = 0.5  # of the smallest change that would have shown: what lies further apart is not called flat
MOVED: Final = frozenset({"rose", "fell"})


def tell_unknown(one: SeriesOutcome) -> str:
    """Tell the ends of a series whose meaning nobody knows."""
    return f"{called_in_prose(one)} {_arrow(one)}{' (moved, not judged)' if one.movement in MOVED else ''}"


def tell_flat(one: SeriesOutcome) -> str:
    """Tell the levels of a series that did not move, and the change that would have shown."""
    if one.low == one.high:
        return _course(one)
    shown = f" (a change of {_value(one, one.detectable)} would have shown)" if one.detectable else ""
    return f"{called_in_prose(one)} {_arrow(one)}{shown}"


def tell_course(one: SeriesOutcome) -> str:
    """Tell what a series did, and how many of its values are not finite."""
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
    if course := turned(one):
        return f"{name} {course}"
    start, end = _ends(one)
    if one.movement in MOVED and (end > start) == (one.movement == "rose"):
        still = {"rose": "rising", "fell": "falling"}[one.movement]
        return (
            f"{name} {one.movement} from {sig(start)} to {_value(one, end)}"
            + _on_average(one) + _best(one) + (f", still {still} at the end" if one.still_moving else _settled(one))
        )  # fmt: skip
    if one.movement == "flat" and told_by_means(one):
        levels = f"{sig(start)} → {_value(one, end)}{_on_average(one)}"
        if ends_off(one):
            return f"{name} ends at {_value(one, one.last)}, after {levels}"
        if is_flat(one):
            return f"{name} did not move beyond its noise ({levels})"
    moved = told_by_means(one) and sig(start) != sig(end)
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


def ends_off(one: SeriesOutcome) -> bool:
    """Return whether the last value lies beyond the noise of a value off the last level."""
    return bool(one.noise) and abs((one.last or 0.0) - (one.late or 0.0)) > BEYOND_NOISE * (one.noise or 0.0)


def is_flat(one: SeriesOutcome) -> bool:
    """Return whether a series did not move, and its two levels do not look as if it had."""
    if one.movement != "flat" or one.early is None or one.late is None:
        return False
    return one.detectable is None or abs(one.late - one.early) <= FLAT_SHARE * one.detectable


def gained(one: SeriesOutcome) -> bool:
    """Return whether a series got better, or looks so by half of what would have shown; True if that is unknown."""
    if one.early is None or one.late is None or one.detectable is None:
        return True
    if one.movement == {"higher": "rose", "lower": "fell"}.get(one.direction or ""):
        return True
    better = (one.late - one.early) * (1 if one.direction == "higher" else -1)
    return better > FLAT_SHARE * one.detectable


def turned(one: SeriesOutcome) -> str:
    """Return the course of a series that went beyond both its ends and came back, by its best or by its means."""
    start, end = _ends(one)
    top, at = one.turn, one.turn_step
    if one.split == "eval" and one.best is not None and one.best_step not in (one.first_step, one.last_step):
        gain, loss = abs(one.best - (one.first or 0.0)), abs((one.last or 0.0) - one.best)
        few = one.count < MIN_NOISE and not told_by_means(one)
        sure = few or min(gain, loss) > BEYOND_NOISE * (one.noise or 0.0)
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
    if one.best is None or told_by_means(one) or abs(one.best - end) < WORTH * abs(end - start):
        return ""
    if one.best_step == one.first_step and one.split == "eval" and one.count > 2 and sig(start) != sig(end):
        return ", best at the first"
    if one.best_step in (one.first_step, one.last_step):
        return ""
    return f", best {_value(one, one.best)} at step {one.best_step:,}"


def told_by_means(one: SeriesOutcome) -> bool:
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
    return " on average" if told_by_means(one) else ""


def _ends(one: SeriesOutcome) -> tuple[float, float]:
    ends = (one.early, one.late) if told_by_means(one) else (one.first, one.last)
    return ends[0] or 0.0, ends[1] or 0.0


def _value(one: SeriesOutcome, value: float | None) -> str:
    return sig(value or 0.0, one.unit)


def called_in_prose(one: SeriesOutcome) -> str:
    """Call a series as a sentence does: by its label, else as it was logged."""
    return one.label or f"`{shortened(one.logged_as.removeprefix(UNNUMBERED), MAX_NAME)}`"


def shortened(text: str, most: int) -> str:
    """Return a text on one line, cut to `most` characters."""
    text = " ".join(text.split()).rstrip(".")
    return text if len(text) <= most else f"{text[:most].rstrip()}…"
