"""Decide how a diagnosis of traces ends, and hold what was measured of them against a policy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date
from statistics import NormalDist
from typing import Final

from ptt.diagnostics.gate.findings import check_findings, idle_allowances
from ptt.diagnostics.gate.policy import Policy, ShareBound, TraceBaseline
from ptt.diagnostics.gate.results import CheckKind, CheckResult, GatedRun, Outcome, cannot_say_note, rank, worst
from ptt.diagnostics.model import Interval, Severity, in_unit
from ptt.diagnostics.statistics.clustered_share import MIN_CLUSTERS
from ptt.diagnostics.store.diagnosis import LoadedRun
from ptt.diagnostics.traces.compare import UNKNOWN, TraceDifference, TraceSide, compare_traces
from ptt.diagnostics.traces.model import EPISODE, MEASURES, Share, TraceDiagnosis, as_run
from ptt.diagnostics.wording import counted

DECIDING: Final = (CheckKind.BOUND, CheckKind.BASELINE)
OF_FAILURES: Final = ("recovery_rate",)  # without a failed call there is none, and nothing is lost
LEVEL: Final = 0.95  # of the intervals that shares have
FAR: Final = 0.25  # of the margin: any closer to the bound would need too many episodes to recommend
SAME: Final = 1e-9
NO_EPISODES: Final = "the run holds no episodes"
RECORD: Final = "write episodes with their calls, their outcome and their end; `ptt sources RUN` says what is missing"


def decide_traces(diagnosis: TraceDiagnosis, *, fail_on: Severity | None) -> Outcome:
    """A crash is ours and outranks all; then a finding at or above `fail_on`; then nothing judged at all."""
    if diagnosis.crashes:
        return Outcome.CRASHED
    if fail_on is not None and any(finding.severity.at_least(fail_on) for finding in diagnosis.findings):
        return Outcome.FAILED
    return Outcome.PASSED if diagnosis.healthy or diagnosis.findings else Outcome.BLIND


def judge_trace_set(side: TraceSide, policy: Policy, *, name: str, today: date) -> GatedRun:
    """Check a set of traces against a policy, as a run that holds nothing else."""
    diagnosis = side.diagnosis
    run = as_run(diagnosis)
    opened = LoadedRun(diagnosis=run, profile=None, why_no_profile="", source="", kind="run")
    made = [*_crashes(diagnosis), *check_findings(opened, policy, today=today), *check_traces(side, policy)]
    made += _of_runs_alone(policy)
    made += _nothing_judged(diagnosis, made)
    unit = diagnosis.traces.order
    checks = sorted((_in_unit(check, unit) for check in made), key=rank)
    outcome = worst([check.outcome for check in checks if not check.excused])
    return GatedRun(
        name=name,
        outcome=outcome,
        checks=tuple(checks),
        status=diagnosis.verdict.status,
        headline=diagnosis.verdict.headline,
        first_broken_link=diagnosis.verdict.first_broken_link,
        framework=", ".join(sorted(diagnosis.traces.kinds)) or None,
        steps=diagnosis.traces.episodes,
        step_unit=EPISODE,
        notes=(
            *cannot_say_note(checks, outcome, diagnosis.verdict.status),
            *idle_allowances(opened, policy, today=today),
        ),
    )


def check_traces(side: TraceSide | None, policy: Policy) -> Iterator[CheckResult]:
    """Yield one result for each demand on traces; blind where there are none."""
    wanted = policy.traces
    if wanted is None:
        return
    diagnosis = side.diagnosis if side is not None else None
    if wanted.min_episodes is not None:
        yield _check_episodes(diagnosis, wanted.min_episodes)
    for bound in wanted.bounds:
        check = _check_share(diagnosis, bound)
        blind = check.outcome is Outcome.BLIND
        yield replace(check, excused=blind and policy.cannot_say_passes)
    if wanted.baseline is not None:
        yield from _check_baseline(side, wanted.baseline, lets_pass=policy.cannot_say_passes)


def _check_episodes(diagnosis: TraceDiagnosis | None, least: int) -> CheckResult:
    count = 0 if diagnosis is None else diagnosis.traces.episodes
    passed = count >= least
    return CheckResult(
        id="extent:min_episodes",
        kind=CheckKind.EXTENT,
        outcome=Outcome.PASSED if passed else Outcome.BLIND,
        title=f"the traces have at least {least} episodes",
        claim=f"there are {count}" if passed else NO_EPISODES if not count else "there are fewer",
        data="episodes read",
        fails_if=f"fewer than {least} episodes leave the gate blind: that is too little to pass or fail the traces",
        observed=float(count),
        limit=float(least),
        next=() if passed else ("give all files of the traces",),
    )


def _check_share(diagnosis: TraceDiagnosis | None, bound: ShareBound) -> CheckResult:
    measure = MEASURES[bound.name]
    blank = CheckResult(
        id=f"traces:{bound.name}",
        kind=CheckKind.BOUND,
        outcome=Outcome.BLIND,
        title=f"{bound.name} of the traces {_bound_words(bound)}",
        claim=NO_EPISODES,
        data="nothing",
        fails_if=_fails_if(bound),
        limit=bound.high if bound.high is not None else bound.low,
        unit="share",
        metric=bound.name,
        link=measure.link,
        next=(RECORD,),
    )
    if diagnosis is None:
        return blank
    share = diagnosis.measured.get(bound.name)
    if share is None or share.value is None:
        claim = f"no {measure.of} are recorded"
        return replace(blank, claim=claim, next=_enable(diagnosis, measure.label) or blank.next)
    return _compared(replace(blank, data=f"{share.hits} of {share.trials} {measure.of}"), bound, share, share.value)


def _compared(blank: CheckResult, bound: ShareBound, share: Share, value: float) -> CheckResult:
    """The share itself decides, as of any bound; with a confidence the whole interval must lie on one side."""
    low, high = share.interval or (None, None)
    limit = _nearer(bound, value)
    blank = replace(blank, observed=value, low=low, high=high, limit=limit, next=())
    review = "look at the report; if the level is intended, change the bound by review"
    beyond = (bound.low is not None and value < bound.low) or (bound.high is not None and value > bound.high)
    if bound.confidence is None:
        within_noise = low is not None and high is not None and low <= limit <= high
        claim = f"it lies {'beyond its bound' if beyond else 'within its bound'}"
        claim += ", by less than its own noise" if within_noise else ""
        outcome = Outcome.FAILED if beyond else Outcome.PASSED
        return replace(blank, outcome=outcome, claim=claim, next=(review,) if beyond else ())
    if share.interval is None:
        return replace(blank, claim="too few episodes or tasks for an interval", next=("give more episodes",))
    ends = stretched(value, share.interval, bound.confidence)
    surely_within = (bound.low is None or ends[0] >= bound.low) and (bound.high is None or ends[1] <= bound.high)
    surely_beyond = (bound.low is not None and ends[1] < bound.low) or (bound.high is not None and ends[0] > bound.high)
    blank = replace(blank, low=ends[0], high=ends[1], data=f"{blank.data}; the interval is of {bound.confidence:g}")
    if surely_within:
        return replace(blank, outcome=Outcome.PASSED, claim="its whole interval lies within its bound")
    if surely_beyond:
        claim = "its whole interval lies beyond its bound"
        return replace(blank, outcome=Outcome.FAILED, claim=claim, next=(review,))
    return replace(
        blank,
        claim="its interval holds the bound: too few episodes to say",
        next=("give more episodes, or bound the share itself without a confidence",),
    )


def stretched(value: float, interval: Interval, confidence: float) -> Interval:
    """Return a 95% interval as one of another level, each side on its own by normal quantiles."""
    normal = NormalDist()
    factor = normal.inv_cdf(0.5 + confidence / 2) / normal.inv_cdf(0.5 + LEVEL / 2)
    return max(0.0, value - factor * (value - interval[0])), min(1.0, value + factor * (interval[1] - value))


def _nearer(bound: ShareBound, value: float) -> float:
    ends = [end for end in (bound.low, bound.high) if end is not None]
    return min(ends, key=lambda end: abs(end - value))


def _bound_words(bound: ShareBound) -> str:
    sure = f" with a confidence of {bound.confidence:g}" if bound.confidence is not None else ""
    if bound.low is not None and bound.high is not None:
        return f"lies between {bound.low:g} and {bound.high:g}{sure}"
    return f"is at most {bound.high:g}{sure}" if bound.high is not None else f"is at least {bound.low:g}{sure}"


def _fails_if(bound: ShareBound) -> str:
    ends = [f"below {bound.low:g}"] if bound.low is not None else []
    ends += [f"above {bound.high:g}"] if bound.high is not None else []
    return ("a share " if bound.confidence is None else "an interval wholly ") + " or ".join(ends)


def _enable(diagnosis: TraceDiagnosis, label: str) -> tuple[str, ...]:
    """Return what to record, as the check that could not look says it."""
    key = label.split()[0].lower()
    said = [item.enable for item in diagnosis.not_judged if item.enable and key in item.id]
    return tuple(said[:1])


def _check_baseline(side: TraceSide | None, wanted: TraceBaseline, *, lets_pass: bool) -> Iterator[CheckResult]:
    if side is None or wanted.held is None:
        yield _nothing_compared(wanted, NO_EPISODES)
        return
    compared = {item.name: item for item in compare_traces(wanted.held, side).shares}
    results = [
        _against(compared.get(name), name, margin, wanted, lets_pass=lets_pass)
        for name, margin in wanted.margins.items()
        if wanted.named or (name in compared and compared[name].first is not None)
    ]
    yield from results
    if any(result.outcome in (Outcome.PASSED, Outcome.FAILED) for result in results):
        return
    both = sum(result.observed is not None for result in results)
    if both:
        claim = f"{counted(both, 'share(s)')} compared, and of none is there enough to say whether it is worse"
        yield _nothing_compared(wanted, claim, "give more episodes: each check says how many")
    else:
        yield _nothing_compared(wanted, "the two sets record no share in common")


def _nothing_compared(wanted: TraceBaseline, claim: str, step: str = "") -> CheckResult:
    return CheckResult(
        id="traces-baseline",
        kind=CheckKind.BASELINE,
        outcome=Outcome.BLIND,
        title="the traces are compared with their baseline",
        claim=claim,
        data="nothing",
        fails_if="a share worse than the baseline's beyond noise, and by more than its margin",
        next=(step or f"make the baseline anew: `ptt traces TRACES -o {wanted.path.name}`",),
    )


def _against(
    item: TraceDifference | None, name: str, margin: float, wanted: TraceBaseline, *, lets_pass: bool
) -> CheckResult:
    """Hold a share against the baseline's: not worse by the margin, as far as the interval shows."""
    measure = MEASURES[name]
    points = f"{100 * margin:g} points"
    lower = measure.worse == "lower"
    blank = CheckResult(
        id=f"traces-baseline:{name}",
        kind=CheckKind.BASELINE,
        outcome=Outcome.BLIND,
        title=f"{name} of the traces: not worse than the baseline by more than {points}",
        claim="it is not recorded",
        data="nothing",
        fails_if=f"{name} worse than the baseline's beyond noise, and by more than {points}",
        limit=margin,
        unit="share",
        metric=name,
        link=measure.link,
        allowed=(-margin, None) if lower else (None, margin),
    )
    if item is None or item.verdict == UNKNOWN or item.interval is None or item.difference is None:
        why = item.why if item is not None and item.why else "neither of the two records it"
        lost = item is not None and item.second is None and name not in OF_FAILURES
        step = RECORD if item is None or item.difference is None else "give more episodes"
        return replace(blank, claim=why, excused=lets_pass or not (wanted.named or lost), next=(step,))
    how = f"{item.clusters} tasks that both hold" if item.paired else "both sets as wholes"
    ends = sorted((-end if lower else end) for end in item.interval)  # how much worse it may be
    gap = -item.difference if lower else item.difference
    blank = replace(
        blank, data=how, observed=item.difference, expected=item.first, low=item.interval[0], high=item.interval[1]
    )
    if ends[1] <= margin:
        return replace(blank, outcome=Outcome.PASSED, claim="it is not worse by the margin, beyond noise")
    if ends[0] > 0 and gap > margin:
        look = "compare the two: `ptt traces TRACES --against BASELINE`"
        return replace(blank, outcome=Outcome.FAILED, claim="it is worse beyond noise", next=(look,))
    excused = lets_pass or (name in OF_FAILURES and not wanted.named)
    return replace(
        blank, claim=_too_few(item, gap, ends[1], margin), excused=excused,
        next=("give more episodes, or allow a wider margin",),
    )  # fmt: skip


def _too_few(item: TraceDifference, gap: float, end: float, margin: float) -> str:
    """Say how many tasks or episodes would tell, were the difference to stay what it is."""
    room = margin - gap
    of = "tasks that both sets hold" if item.paired else "tasks (or episodes, where none repeats) in each set"
    if room < FAR * margin:
        return f"it is worse by about the margin, and {item.clusters} {of} cannot tell on which side it lies"
    # intervals shrink with the root of what they rest on; where nothing varies, with the number itself
    wider = (end - gap) / room
    alike = abs(gap) < SAME and (item.paired or item.first in (0.0, 1.0))
    needed = math.ceil(item.clusters * (wider if alike else wider * wider) - SAME)
    return f"too few to say whether it is worse by the margin: {needed} {of} would tell, and there are {item.clusters}"


def _of_runs_alone(policy: Policy) -> Iterator[CheckResult]:
    """Yield a blind result for each demand that traces cannot meet: rules and curves of a run."""
    named = [*(f"required:{rule}" for rule in policy.require), *(f"bound:{bound.name}" for bound in policy.bounds)]
    for name in named:
        yield CheckResult(
            id=name,
            kind=CheckKind.REQUIRED if name.startswith("required") else CheckKind.BOUND,
            outcome=Outcome.BLIND,
            title=f"{name} is judged",
            claim="these are agent traces, which hold no curves and no tokens",
            data="nothing",
            fails_if="no answer leaves the gate blind",
            excused=policy.cannot_say_passes,
            next=("give the run, or another policy for traces with --settings",),
        )


def _nothing_judged(diagnosis: TraceDiagnosis, made: Sequence[CheckResult]) -> Iterator[CheckResult]:
    """Yield a blind result where none of the checks rests on enough: that nothing was found is then no answer."""
    decided = any(check.kind in DECIDING and check.outcome in (Outcome.PASSED, Outcome.FAILED) for check in made)
    if decided or diagnosis.findings or any(share.interval is not None for share in diagnosis.measured.values()):
        return
    episodes = diagnosis.traces.episodes
    yield CheckResult(
        id="judged",
        kind=CheckKind.REQUIRED,
        outcome=Outcome.BLIND,
        title="something of the traces is judged",
        claim=f"of {counted(episodes, 'episode(s)')} no share can be judged"
        if episodes < MIN_CLUSTERS
        else "no share is recorded in enough episodes",
        data=counted(episodes, "episode(s)"),
        fails_if="no answer leaves the gate blind",
        next=(f"give {MIN_CLUSTERS} episodes or more" if episodes < MIN_CLUSTERS else RECORD,),
    )


def _crashes(diagnosis: TraceDiagnosis) -> Iterator[CheckResult]:
    for crash in diagnosis.crashes:
        yield CheckResult(
            id=f"crash:{crash.id}",
            kind=CheckKind.CRASH,
            outcome=Outcome.CRASHED,
            title=f"{crash.id} worked",
            claim=f"it crashed: {crash.error}",
            data="no answer",
            fails_if="an error in ptt, not in the traces",
            rule=crash.id,
            next=("report it with the message above",),
        )


def _in_unit(check: CheckResult, unit: str) -> CheckResult:
    return replace(check, claim=in_unit(check.claim, unit), data=in_unit(check.data, unit))
