"""Advice to record more, or to train longer; what a run's own record shows to be followed is not advised."""

from __future__ import annotations

from typing import Final

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.run_end import Ending, read_end
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.evidence.tails import Tails
from ptt.diagnostics.rules.tail_conditions import MIN_WINDOW_TOKENS
from ptt.diagnostics.statistics.arrays import IntArray

GOING_ON: Final = (Ending.OPEN, Ending.SHORT, Ending.UNKNOWN)  # as far as the files show: more steps may come
CONTINUE: Final = "let the run continue"
LONGER: Final = "train for more steps"
NEXT_RUN: Final = "train the next run for longer"
MORE_TOKENS: Final = f"at least {MIN_WINDOW_TOKENS} post-tool tokens in each third of the run"


def more_rows(evidence: Evidence, series: Series) -> str:
    """Say what would give a series more values than this run logged."""
    advice = {_go_on(evidence): not _has_ended(evidence), "log every step": not _at_every_step(series.steps)}
    if not any(advice.values()):
        return f"{NEXT_RUN}: this one has ended, and every step of it is logged"
    return f"{', or '.join(text for text, useful in advice.items() if useful)}, and judge it again"


def more_tokens(evidence: Evidence, tails: Tails) -> str:
    """Say what would give the tails more tokens than this run recorded."""
    few = min(tails.post.window_tokens[0], tails.post.window_tokens[-1]) < MIN_WINDOW_TOKENS
    advice = {"every step": not _at_every_step(tails.recorded), MORE_TOKENS: few}
    if any(advice.values()):
        return f"record more: {', and '.join(text for text, useful in advice.items() if useful)}"
    if not _has_ended(evidence):
        return f"{_go_on(evidence)}, and judge it again"
    return f"{NEXT_RUN}, or on more sequences a step: this one has ended, and every step of it is recorded"


def _at_every_step(steps: IntArray) -> bool:
    return len(steps) > 1 and float(np.median(np.diff(steps))) <= 1


def _has_ended(evidence: Evidence) -> bool:
    return _ending(evidence) not in GOING_ON


def _go_on(evidence: Evidence) -> str:
    """Say how a run gets more steps: by waiting only where its log was left open."""
    return CONTINUE if _ending(evidence) is Ending.OPEN else LONGER


def _ending(evidence: Evidence) -> Ending:
    rate = evidence.metrics.get("lr")
    return read_end(evidence.run, evidence.events, evidence.other, rate=rate).ending
