"""This run shows steps that became slower for good.

What: the mean time of a step rose to 1.5 times the run's own early level or more, beyond its noise, to the end of the
run; steps that share one generation count together. Where the work per step is logged, the time per token is judged as
well: what longer answers explain is a note. Where dynamic sampling discards more groups, so that more is generated for
the same batch, that is told instead of a device.
Why it matters: a step that takes three times as long wastes two thirds of the hardware; and what slows it (a tool that
times out, a full disk, a failing device) may change the data too.
What it is not: a fault of the optimisation. A healthy policy keeps learning at a third of the speed.
What to do: find the part of the step that slowed: generation, tools and rewards, update, or what lies between them.
Source: 1.5 times is where Microsoft's toolkit warns of slowing; relative to the run's own early steps, because times
differ by model and machine. Rollouts may be slow because of the environment; the time alone does not show that.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES, BaselineShift, early_level, lasting_fall, lasting_rise
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import EVERY, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.single_series import logarithms, logged, metric_evidence, peak_median
from ptt.diagnostics.rules.systems import change_point, folded, grown_part, length_of, per_token
from ptt.diagnostics.wording import pct, sig

SLOWDOWN_FACTOR = 1.5  # times the early level; the batch-to-batch noise of a window stays well below
HIGH_FACTOR = 3.0
ROW_EVERY = 20  # steps between two looks of Microsoft's callback
MIN_ROWS = 3
MIN_EXPLAINED = 0.5  # of a slowdown, on the log scale: work that grew by less does not explain it
MIN_WORK = 1.1  # times the early work: less growth does not matter
GENERATION = ("gen", "rollout", "wait")  # in names of parts of a step
DISCARDED = (
    "prompts that the policy always solves or never: dynamic sampling discards their groups and samples others",
)
MIN_STEP_S = 0.05  # seconds a step: below it, the timer itself is slow
ENABLE = "log the time of every step; the times of its parts show which one is slow"


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the logged time of a step, or else the logged throughput."""
    series = logged(evidence, "time/step", what="time of a step", enable=ENABLE, minimum=MIN_VALUES)
    if isinstance(series, NotJudged):
        return _by_throughput(evidence, limits) or _by_rows(evidence) or series
    times = folded(series)
    shift = lasting_rise(times, floor=MIN_STEP_S, factor=limits["slower"])
    if shift is None or shift.early <= 0:  # steps of no time were not timed
        _, values = times.finite()
        early, last = float(np.median(values[: times.width])), float(np.median(values[-times.width :]))
        return Healthy(reason=f"a step takes {sig(early)} s at first and {sig(last)} s at the end")
    onset = change_point(times, shift.onset)
    begun = replace(shift, onset=onset, interval=(min(onset, shift.interval[0]), shift.onset))
    return _judged(evidence, series, times, begun, limits)


def _judged(evidence: Evidence, series: Series, times_by_step: Series, shift: BaselineShift, limits: Limits) -> Verdict:
    early, late = shift.early, _late(times_by_step, shift)
    lengths = length_of(evidence)
    longer = _growth_of_work(lengths, times_by_step) if lengths is not None else None
    explained = lengths is not None and longer is not None and _explained(series, lengths, late / early, longer, limits)
    notes = shift.ended or explained
    part = grown_part(evidence, shift.onset)
    work_grew = f", while the tokens per step grew {sig(longer)}x" if longer is not None and longer >= MIN_WORK else ""
    why = ", then recovered" if shift.ended else work_grew
    unknown = "; the work per step is not logged" if lengths is None else ""
    kept = None if shift.ended or notes else _kept(evidence, times_by_step, late / early, part)
    if kept is not None:
        why = f": more is generated for the same batch, since sampling keeps {pct(kept[0])} of it at first and "
        why += f"{pct(kept[1])} at the end"
    work = lengths.raw_name if lengths is not None else None
    facts = metric_evidence(series, early_s=early, late_s=late, work_ratio=longer, work_logged_as=work)
    if part is not None:
        facts |= {"grew_most": part[0], "grew_most_early_s": part[1], "grew_most_late_s": part[2]}
    times = late / early
    finding = Finding(
        severity=Severity.LOW if notes else Severity.HIGH if times >= HIGH_FACTOR else Severity.MEDIUM,
        claim=f"Steps became {sig(times)}x slower ({sig(early)} s to {sig(late)} s){why}{unknown}",
        observed=times,
        limit=limits["slower"],
        unit="x",
        onset_step=shift.onset,
        onset_interval=shift.interval,
        evidence=facts,
        causes=DISCARDED if kept is not None else _causes(part[0] if part else ""),
        confirm=_confirm(shift.onset, part),
        next=("add prompts that some attempts solve and others do not",)
        if kept is not None
        else (
            "fix the part that slowed; leave the optimiser alone",
            "set a time limit on each tool call and reward, and log how often it is reached",
        ),
    )
    return Healthy(reason=finding.claim, notes=(finding,)) if notes else finding


def _kept(
    evidence: Evidence, times: Series, slower: float, part: tuple[str, float, float] | None
) -> tuple[float, float] | None:
    """Return the share of what is sampled that was kept early and late, where what is discarded explains the times."""
    filtered = evidence.counters.shares.get("filtered") if evidence.counters is not None else None
    level = early_level(times)
    if filtered is None or level is None or (part is not None and not any(word in part[0] for word in GENERATION)):
        return None
    steps, values = filtered.finite()
    early, late = 1.0 - values[steps <= level.last_step], 1.0 - values[steps > times.finite()[0][-times.width - 1]]
    if not (len(early) and len(late)) or late.mean() <= 0 or early.mean() / late.mean() < slower**MIN_EXPLAINED:
        return None
    return float(early.mean()), float(late.mean())


def _late(times: Series, shift: BaselineShift) -> float:
    """Return the median after the change, comparable to the early level; if it ended, the highest over a window."""
    steps, values = times.finite()
    return peak_median(times) if shift.ended else float(np.median(values[steps >= shift.onset][-times.width :]))


def _growth_of_work(lengths: Series, times: Series) -> float | None:
    """Return the work of the last steps over that of the first, over the steps that the times are compared at."""
    level = early_level(times)
    if level is None:
        return None
    steps, values = lengths.finite()
    early = values[steps <= level.last_step]
    late = values[steps > times.finite()[0][-times.width - 1]]
    return float(late.mean() / early.mean()) if len(early) and len(late) and early.mean() > 0 else None


def _explained(series: Series, lengths: Series, slower: float, longer: float, limits: Limits) -> bool:
    """Return whether more work explains the longer steps, not slower machines: time per token did not rise.

    Work that hardly grew does not explain them, even if time per token stayed within its noise.
    """
    if longer < slower**MIN_EXPLAINED:
        return False
    token_times = per_token(series, lengths)
    if len(token_times.finite()[0]) < MIN_VALUES:
        return False
    shift = lasting_rise(token_times, floor=0.0, factor=limits["slower"])
    return shift is None or shift.ended


def _by_throughput(evidence: Evidence, limits: Limits) -> Verdict | None:
    series = evidence.metrics.get("throughput/tokens")
    if series is None or len(series.finite()[0]) < MIN_VALUES:
        return None
    times = folded(series)
    shift = lasting_fall(logarithms(times), ceiling=math.inf, margin=math.log(limits["slower"]))
    if shift is None or shift.ended:
        return Healthy(reason=f"{series.raw_name} did not fall for good by a factor of {limits['slower']:g}")
    early, late = math.exp(shift.early), _late(times, shift)
    part = grown_part(evidence, shift.onset)
    return Finding(
        severity=Severity.HIGH if early / late >= HIGH_FACTOR else Severity.MEDIUM,
        claim=f"{series.raw_name} fell from {early:.4g} to {late:.4g} tokens a second",
        observed=early / late,
        limit=limits["slower"],
        unit="x",
        onset_step=shift.onset,
        onset_interval=shift.interval,
        evidence=metric_evidence(series, early=early, late=late),
        causes=_causes(part[0] if part else ""),
        confirm=_confirm(shift.onset, part),
        next=("log the time of each part of a step", "fix the part that slowed"),
    )


def _by_rows(evidence: Evidence) -> Verdict | None:
    """Judge Microsoft's own rows: written where its last ten steps took 1.5 times its first fifty.

    Ten steps are few: a healthy run passes now and then. Only rows at every other look, up to the end, are a verdict.
    """
    series = evidence.other.get("slowdown_factor")
    if series is None or not len(series.finite()[0]):
        return None
    steps, values = series.finite()
    end = evidence.run.last_step or int(steps[-1])
    due = (end - int(steps[0])) / ROW_EVERY + 1
    lasting = len(values) >= max(MIN_ROWS, due / 2) and end - int(steps[-1]) <= 2 * ROW_EVERY
    last = float(np.median(values))
    finding = Finding(
        severity=Severity.MEDIUM if lasting else Severity.LOW,
        claim=f"Microsoft's callback noted steps {sig(last)}x slower than at first, {len(values)} times",
        observed=last,
        limit=SLOWDOWN_FACTOR,
        unit="x",
        onset_step=int(steps[0]),
        evidence={"metric": "slowdown_factor", "logged_as": series.raw_name, "rows": len(values)},
        causes=_causes(""),
        confirm=_confirm(int(steps[0]), None),
        next=("log the time of every step in the trainer itself",),
    )
    if finding.severity is Severity.LOW:
        reason = f"Microsoft's callback noted slower steps at {len(values)} of {due:.0f} checks since the first"
        return Healthy(reason=reason, notes=(finding,))
    return finding


def _causes(part: str) -> tuple[str, ...]:
    if any(word in part for word in ("tool", "env", "reward", "score")):
        return ("tools or the reward service respond more slowly", "more calls per sample, or calls that time out")
    if any(word in part for word in GENERATION):
        return (
            "the environment or its tools respond more slowly",
            "longer answers, or a few very long ones that all others wait for",
            "an engine that preempts because its cache is full",
        )
    if any(word in part for word in ("update", "train", "backward", "actor", "critic")):
        return ("a device that throttles", "memory that is freed and allocated again at each step", "a slow rank")
    return (
        "the environment or its tools respond more slowly",
        "a slow or failing device that all others wait for",
        "a disk or a network that fills up",
    )


def _confirm(onset: int, part: tuple[str, float, float] | None) -> tuple[str, ...]:
    if part is not None:
        look = f"plot {part[0]} around step {onset}: it went from {sig(part[1])} to {sig(part[2])} s"
        return (look, "compare device utilisation before and after: idle devices wait, busy devices work")
    return (
        f"time rollout and update separately before and after step {onset}, and see which one slowed",
        "call each tool and the reward a hundred times outside the run and compare with their usual latency",
    )


RULE = rule(check, "throughput-drop", Link.SYSTEMS, slower=SLOWDOWN_FACTOR, families=EVERY)
