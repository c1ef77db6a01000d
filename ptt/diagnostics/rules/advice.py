"""Advice that a run's own record may show to have been followed: then it is not given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.run_end import Ending, read_end
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.evidence.tails import Tails
from ptt.diagnostics.rules.tail_conditions import MIN_WINDOW_TOKENS
from ptt.diagnostics.statistics.arrays import IntArray

GOING_ON: Final = (Ending.OPEN, Ending.SHORT, Ending.UNKNOWN)  # as far as the files tell: more steps may come
NEXT_RUN: Final = "train the next run for longer"


@dataclass(frozen=True, kw_only=True)
class Record:
    """What is recorded of what a question needs."""

    steps: IntArray  # that hold it
    ended: bool  # no step will follow
    fewest_tokens: int = 0  # after tools, in the early or the late third


@dataclass(frozen=True)
class Advice:
    """Something to record, and whether a record shows that it is."""

    text: str
    followed: Callable[[Record], bool]


def _at_every_step(record: Record) -> bool:
    return len(record.steps) > 1 and float(np.median(np.diff(record.steps))) <= 1


ROWS: Final = (
    Advice("let the run continue", lambda record: record.ended),
    Advice("log every step", _at_every_step),
)
TOKENS: Final = (
    Advice("every step", _at_every_step),
    Advice(
        f"at least {MIN_WINDOW_TOKENS} post-tool tokens in each third of the run",
        lambda record: record.fewest_tokens >= MIN_WINDOW_TOKENS,
    ),
)


def _left(advice: Sequence[Advice], record: Record) -> list[str]:
    return [each.text for each in advice if not each.followed(record)]


def _has_ended(evidence: Evidence) -> bool:
    return read_end(evidence.run, evidence.events, evidence.other).ending not in GOING_ON


def more_rows(evidence: Evidence, series: Series) -> str:
    """Say what would give a series more values than this run logged."""
    left = _left(ROWS, Record(steps=series.steps, ended=_has_ended(evidence)))
    return (
        f"{', or '.join(left)}, and judge it again"
        if left
        else f"{NEXT_RUN}: this one has ended, and every step of it is logged"
    )


def more_tokens(evidence: Evidence, tails: Tails) -> str:
    """Say what would give the tails more tokens than this run recorded."""
    fewest = int(min(tails.post.window_tokens[0], tails.post.window_tokens[-1]))
    record = Record(steps=tails.recorded, ended=_has_ended(evidence), fewest_tokens=fewest)
    if left := _left(TOKENS, record):
        return f"record more: {', and '.join(left)}"
    if not record.ended:
        return f"{ROWS[0].text}, and judge it again"
    return f"{NEXT_RUN}, or on more sequences a step: this one has ended, and every step of it is recorded"
