"""What a watch over a finished run would have done: the same tests over its steps, one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ptt.diagnostics.model import StopReplay
from ptt.diagnostics.watch.monitor import BUDGET, Alarm, Monitor
from ptt.diagnostics.watch.observed import ObservedStep


def replay_stop(
    steps: Iterable[ObservedStep], *, limits: Mapping[str, Mapping[str, float]], budget: float = BUDGET
) -> StopReplay | None:
    """Return where the watch would have stopped the run; None where nothing that it looks at was recorded."""
    monitor = Monitor.start(limits=limits, budget=budget)
    first: int | None = None
    last = 0
    warned: Alarm | None = None
    stop: Alarm | None = None
    for step in steps:
        first, last = step.step if first is None else first, step.step
        if stop is not None:
            continue
        for alarm in monitor.observe(step):
            warned = warned or alarm
            stop = stop or (alarm if alarm.kind == "stop" else None)
    if first is None or not (monitor.watched or stop):
        return None
    told = {} if stop is None else {"step": stop.step, "rule": stop.rule, "since_step": stop.since_step}
    return StopReplay(
        budget=budget,
        first_step=first,
        last_step=last,
        claim=stop.claim if stop else "",
        warned_step=warned.step if warned else None,
        guards=stop.guards if stop else warned.guards if warned else (),
        watched=monitor.watched,
        **told,  # type: ignore[arg-type]
    )
