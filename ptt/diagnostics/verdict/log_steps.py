"""Find which numbers of a layout count: whole ones that rise, or that start again where another one rises."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.metrics.guessed_names import spelt_words, told_by, written_out

MIN_LINES: Final = 5  # that count, for a log
EPOCH_SECONDS: Final = 10**9  # whole numbers from here on that rise are times, in seconds or less, and no steps
RISING: Final = 0.8  # share of steps that lie above the one before: a run may have been resumed
IN_ORDER: Final = 0.95  # share of steps and epochs that go on in order
STEPS: Final = frozenset({
    "step", "steps", "iter", "iters", "iteration", "iterations", "update", "updates", "upd", "batch", "it", "round",
    "rounds", "global_step", "episode", "episodes", "epoch",
})  # fmt: skip
EPOCHS: Final = frozenset({"epoch", "ep", "e", "epochs"})
BATCHES: Final = frozenset({"batch", "b", "mb", "minibatch", "batches"})  # start again in each epoch
TIMES: Final = frozenset({"sec", "secs", "second", "seconds", "ms", "time", "elapsed", "wall", "eta", "pid"})
WHOLE: Final = {".": re.compile(r"\d{1,3}(?:,\d{3})+|\d{1,18}"), ",": re.compile(r"\d{1,3}(?:\.\d{3})+|\d{1,18}")}


@dataclass(frozen=True, kw_only=True)
class Counted:
    """Which numbers of a line count. `epoch_steps`: steps in an epoch; 0 where they go on through all."""

    step: int
    epoch: int | None = None
    epoch_steps: int = 0
    total: int | None = None  # the number of steps, which stands behind the step


def whole_numbers(texts: Sequence[str | None], decimal: str) -> list[int] | None:
    """Return numbers that are whole, their thousands joined; None where one is not, or is missing."""
    if not all(text is not None and WHOLE[decimal].fullmatch(text) for text in texts):
        return None
    return [int(re.sub(r"\D", "", text or "")) for text in texts]


def counted(
    columns: Mapping[int, Sequence[int]], names: Mapping[int, str], slashes: Mapping[int, int], leading: int
) -> Counted | None:
    """Return which of the whole numbers count.

    `slashes`: a number -> the one of which it is a part, as in `17/300`. `leading`: the first that changes.
    """
    known = {at for at in columns if {*names.get(at, "").lower().split(), names.get(at, "").lower()} & STEPS}
    steps: list[int] = []
    for at, column in columns.items():
        placed = at == leading or at in known or at in slashes or _is_even(column)
        told = at not in known and told_by(written_out(names.get(at, ""))) is not None
        if placed and not told and _may_count(column, names.get(at, "")):
            steps.append(at)
    straight = [at for at in steps if _rises(columns[at]) and not _falls(columns[at])]
    best = min(straight, key=lambda at: (at not in known, at), default=None)
    inner = _in_epochs(columns, steps, names, slashes)
    if inner is not None and (best is None or (best not in known and best > inner.step)):
        return inner
    if best is None:
        others = [at for at in steps if _rises(columns[at]) or (at in known and _stays(columns[at]))]
        best = min(others, key=lambda at: (at not in known, at), default=None)
    return None if best is None else Counted(step=best, total=slashes.get(best))


def _may_count(column: Sequence[int], name: str) -> bool:
    enough = len(column) >= MIN_LINES and len(set(column)) >= min(MIN_LINES, len(column))
    return enough and min(column) < EPOCH_SECONDS and TIMES.isdisjoint(spelt_words(name))


def _is_even(column: Sequence[int]) -> bool:
    """Return whether a number mostly rises by the same, as what is counted does."""
    apart = Counter(after - before for before, after in pairwise(column)).most_common(1)
    return bool(apart) and apart[0][0] > 0 and apart[0][1] >= RISING * (len(column) - 1)


def _rises(column: Sequence[int]) -> bool:
    return sum(after > before for before, after in pairwise(column)) >= RISING * (len(column) - 1)


def _stays(column: Sequence[int]) -> bool:
    """Return whether a number never falls: several lines belong to a step."""
    return sum(after >= before for before, after in pairwise(column)) >= IN_ORDER * (len(column) - 1)


def _falls(column: Sequence[int]) -> list[int]:
    return [at for at, (before, after) in enumerate(pairwise(column), start=1) if after < before]


def _in_epochs(
    columns: Mapping[int, Sequence[int]], steps: Sequence[int], names: Mapping[int, str], slashes: Mapping[int, int]
) -> Counted | None:
    """Return the step that starts again where an earlier number, of epochs, rises."""
    for step in steps:
        for epoch in (at for at in columns if at < step and at not in slashes.values()):
            pairs = [*zip(columns[epoch], columns[step], strict=True)]
            ordered = sum(after > before for before, after in pairwise(pairs)) >= IN_ORDER * (len(pairs) - 1)
            falls = _falls(columns[step])
            told = names.get(epoch, "").lower() in EPOCHS and names.get(step, "").lower() in BATCHES
            if not ordered or not (falls or told) or not _stays(columns[epoch]):
                continue
            total = slashes.get(step)
            size = columns[total][0] if total is not None and total in columns else epoch_size(columns[step])
            if size and (falls or total is not None):
                return Counted(step=step, epoch=epoch, epoch_steps=size, total=total)
    return None


def epoch_size(column: Sequence[int]) -> int:
    """Return how many steps an epoch has, by the last before each restart and the distance between them; 0: unknown."""
    falls = _falls(column)
    if not falls:
        return 0
    apart = Counter(after - before for before, after in pairwise(column) if after > before).most_common(1)
    last = max(column[at - 1] for at in falls)
    return last + (apart[0][0] if apart and min(column) == 0 else 0)


def restarts(column: Sequence[int], lines: Sequence[int], epochs: Sequence[int], headlines: Sequence[int]) -> bool:
    """Return whether a number starts again behind each headline but the first, and nowhere else.

    `lines`, `headlines`: where they stand. `epochs`: what the headlines count, which must rise by one.
    """
    if any(after != before + 1 for before, after in pairwise(epochs)):
        return False
    falls = [(lines[at - 1], lines[at]) for at in _falls(column)]
    between = [at for at in headlines if lines[0] < at < lines[-1]]
    return bool(falls) and [before < at < after for at, (before, after) in zip(between, falls, strict=False)] == [
        True
    ] * max(len(between), len(falls))
