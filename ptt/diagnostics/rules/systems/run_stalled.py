"""This run shows a loop that completes no further step, while its console goes on.

What: after the last step the console speaks of waiting, failing or trying again for ten minutes or more, and for five
times the 98th percentile of the time from row to row; nothing says that training had completed. High from an hour on.
Why it matters: the curves end well, so that the run looks finished or stopped by hand; it waits for something that does
not come, and holds its machines.
What it is not: an evaluation or an upload after the last step, which speak of no failure; an exception (run-cut-short).
What to do: look at what the repeated line waits for: a reward server, a sandbox, workers of an environment, a router.
Source: OpenRLHF#1123 (a reward server that hangs), ROLL#215 (workers that hang after a validation). The limits are our
own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.run_end import DONE_SHARE, Ending, progress_of
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import JsonScalar, Link, Severity
from ptt.diagnostics.rules.interface import EVERY, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.systems import STEP_PARTS, WHOLE_STEP, end_of
from ptt.diagnostics.wording import counted, sig

FACTOR = 5.0  # times the 98th percentile of the time from row to row
MIN_SECONDS = 600.0  # less is a slow start of an evaluation
HIGH_SECONDS = 3600.0
USUAL: Final = 98.0  # percentile of the time of a step
MIN_SAID: Final = 3  # times the same line of waiting or failing
PART_FACTOR: Final = 3.0  # times its median: a part of the step that had slowed before
HOUR: Final = 3600.0
ENABLE = "keep the trainer's console with times of its lines"


@dataclass(frozen=True, kw_only=True)
class Silence:
    """What a console goes on to say after a last row."""

    seconds: float  # from that row, or from the console's own first line behind it
    lines: int
    says: str  # most often
    said: int  # times
    after: int | None  # step of that row


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge how long the console went on after the last row."""
    context, run = evidence.run.context, evidence.run
    silences = _silences(context)
    if not silences and not {"rows_until", "long_step_seconds"} & context.keys():
        return NotJudged(
            reason="no console with times of its lines was read", missing=("events",), enable=ENABLE, absent=True
        )
    end = end_of(evidence, done_share=DONE_SHARE)
    if end.ending is Ending.COMPLETED:
        return Healthy(reason=end.known_by or "the run completed")
    progress = progress_of(run)
    ended = [one for one in silences if not progress.went_on(one.after)]
    if silences and not ended:
        return Healthy(reason=f"other files hold rows after step {silences[0].after}")
    usual = context.get("long_step_seconds") or _usual(evidence)
    longest = max((one for one in ended if one.said >= MIN_SAID), key=lambda one: one.seconds, default=None)
    if longest is None:
        return Healthy(reason=f"no line of waiting comes {MIN_SAID} times after the last step, with its time")
    if not isinstance(usual, float | int):
        return NotJudged(reason="no time of a step is known", missing=("time/step",), enable=ENABLE)
    limit = max(limits["factor"] * usual, limits["seconds"])
    if longest.seconds <= limit:
        return Healthy(reason=f"the console goes on for {_long(longest.seconds)} after its last step")
    return _finding(evidence, longest, limit, float(usual))


def _finding(evidence: Evidence, silence: Silence, limit: float, usual: float) -> Finding:
    last = evidence.run.last_step
    part = _slowed(evidence)
    slowed = "" if part is None else f"; {part[0]} was {sig(part[2])} s at the last step, {sig(part[1])} s usually"
    evaluated = evidence.evaluation is not None and any(
        len(at) and at[-1] == last for at in (one.series.finite()[0] for one in evidence.evaluation.figures)
    )
    where = "" if last is None else f" after step {last}" + (", where an evaluation was run" if evaluated else "")
    facts: dict[str, JsonScalar] = {
        "silent_seconds": silence.seconds,
        "usual_seconds": usual,
        "lines": silence.lines,
        "says": silence.says,
    }
    return Finding(
        severity=Severity.HIGH if silence.seconds >= HIGH_SECONDS else Severity.MEDIUM,
        claim=f"The run stalls: no step is completed in the {_long(silence.seconds)}{where}; 98% of steps took "
        f'{_long(usual)} or less; the console says {counted(silence.said, "time(s)")} "{silence.says}"{slowed}',
        observed=silence.seconds,
        limit=limit,
        unit="s",
        onset_step=last,
        onset_interval=None if last is None else (last, last),
        evidence=facts | ({} if part is None else {"slowed": part[0], "slowed_to": part[2], "slowed_from": part[1]}),
        causes=(
            "a server that rollouts or rewards wait for, and that does not answer: reward model, sandbox, retriever",
            "workers of the environment or the engine that died without an error",
            "every sample of the step fails or is dropped, and is asked for again",
        ),
        confirm=(
            "ask the server that the repeated line names for one answer by hand",
            "dump the stacks of the trainer and of its workers (py-spy): what do they wait for?",
        ),
        next=(
            "stop the run, and resume from its last checkpoint when that answers again",
            "give each request a timeout and a limit of retries, after which the sample is left out of the loss",
        ),
    )


def _silences(context: Mapping[str, JsonScalar]) -> list[Silence]:
    """Return what a console says after its own last row, and one without rows after the last row of another.

    The latter may be a server's: what it said before that row does not count, nor does the time before it began.
    """
    found = []
    match [context.get(f"silent_{name}") for name in ("seconds", "lines", "says", "said")]:
        case float(seconds), int(lines), str(says), int(said):
            after = context.get("silent_after_step", context.get("rows_until_step"))
            found.append(Silence(seconds=seconds, lines=lines, says=says, said=said, after=_step(after)))
    rows = context.get("rows_until")
    match [context.get(f"lines_{name}") for name in ("from", "said_from", "until", "count", "say", "said")]:
        case float(begun), float(repeated), float(until), int(lines), str(says), int(said):
            if isinstance(rows, float) and repeated >= rows:
                seconds, after = until - max(rows, begun), _step(context.get("rows_until_step"))
                found.append(Silence(seconds=seconds, lines=lines, says=says, said=said, after=after))
    return found


def _step(value: JsonScalar) -> int | None:
    return value if isinstance(value, int) else None


def _usual(evidence: Evidence) -> float | None:
    time = evidence.metrics.get("time/step")
    return float(np.percentile(time.finite()[1], USUAL)) if time is not None and len(time.finite()[1]) else None


def _slowed(evidence: Evidence) -> tuple[str, float, float] | None:
    """Return the part of the step that took far longer at the last step, with its median and its last value."""
    named = [(one.raw_name, one) for one in (*evidence.metrics.values(), *evidence.other.values())]
    parts = [one for raw, one in named if STEP_PARTS.search(raw) and not WHOLE_STEP.search(raw)]
    grown = [(one.raw_name, *levels) for one in parts if (levels := _levels(one)) is not None]
    slow = [one for one in grown if one[1] > 0 and one[2] >= PART_FACTOR * one[1]]
    return max(slow, key=lambda one: one[2] - one[1], default=None)


def _levels(series: Series) -> tuple[float, float] | None:
    values = series.finite()[1]
    return (float(np.median(values)), float(values[-1])) if len(values) >= MIN_SAID else None


def _long(seconds: float) -> str:
    return f"{sig(seconds / HOUR)} h" if seconds >= HOUR else f"{sig(seconds)} s"


RULE = rule(check, "run-stalled", Link.SYSTEMS, factor=FACTOR, seconds=MIN_SECONDS, families=EVERY)
