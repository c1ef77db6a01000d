"""This run shows tool calls that multiply without achieving more.

What: the tool calls of a sample lie lastingly above 1.5 and above one and a half times their early number, and since
then no outcome rose by a third of that growth; where no outcome can be judged, the mean reward did not.
Why it matters: each call costs time and context. A reward that pays for calls, or for what they return, is pleased by
calls alone, whether or not the task gets done.
What it is not: more calls that solve more tasks, or a policy that only now learns to call once. Where noise hides
whether they do, or nothing logged shows it, the finding is low; likewise where an agent that called nothing learns to
call up to three times, and where calls grow from one step to the next and the reward does not fall, as with longer
tasks.
What to do: read what the added calls return and whether the answer uses it; compare reward with the number of calls
within prompts. If calls are paid for, pay for the state they leave instead.
Source: the same test as for length (arXiv 2310.03716), put to calls; the levels are our own.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import CHANGE_SDS, MIN_VALUES, change_since_start, lasting_rise
from ptt.diagnostics.evidence.outcome_agreement import MIN_AGREEMENT, OutcomeState
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import LANGUAGE, Finding, Healthy, Limits, Verdict, rule
from ptt.diagnostics.rules.reward import NEW_TASKS, gains_since, with_new_tasks
from ptt.diagnostics.rules.single_series import last_mean, requires_metric, series_evidence
from ptt.diagnostics.wording import sig

GROWTH_FACTOR = 1.5  # times the early calls: half as much work again
MIN_CALLS = 1.5  # a sample: fewer is learning to call at all
FEW_CALLS = 0.5  # a sample, early: most samples called nothing, and learning to call tools is no fault
LEARNT_CALLS = 3.0  # a sample: up to this many, a policy that called nothing has just learnt to call
ENABLE = "log it: TRL logs tools/call_frequency, veRL tool_call_counts/mean"


@requires_metric("tools/call_frequency", what="number of tool calls", enable=ENABLE, minimum=MIN_VALUES)
def check(calls: Series, evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the calls of a sample, beside the outcomes."""
    growth, change = lasting_rise(calls, floor=MIN_CALLS, factor=limits["growth"]), change_since_start(calls)
    onset: int | None
    interval: tuple[int, int] | None
    if growth is not None and not growth.ended:
        early, late, onset, interval = growth.early, growth.last, growth.onset, growth.interval
    elif (
        change is not None
        and change.sds >= CHANGE_SDS
        and change.late >= max(MIN_CALLS, limits["growth"] * change.start)
    ):
        early, late, onset, interval = change.start, change.late, change.onset, change.interval  # grown from the start
    else:
        return Healthy(reason=f"a sample calls tools {sig(last_mean(calls))} times at the end")
    grew = f"{sig(early)} → {sig(late)}"
    since = interval[0] if interval is not None else int(calls.finite()[0][calls.width - 1])
    gains = gains_since(evidence, since, MIN_AGREEMENT * (1 - early / late))
    risen = [gain for gain in gains if gain.state is OutcomeState.ROSE]
    if risen:
        return Healthy(reason=f"tool calls grew {grew} a sample, and {risen[0].words} with them")
    flat = [gain for gain in gains if gain.state is OutcomeState.FLAT]
    clause = f" while {flat[0].words} did not rise" if flat else ""
    at_once = with_new_tasks(evidence, calls, early, late, onset)
    learnt = early < FEW_CALLS and late < LEARNT_CALLS
    return Finding(
        severity=Severity.MEDIUM if flat and not at_once and not learnt else Severity.LOW,
        claim=f"Tool calls grew {grew} a sample{' at once' if at_once else ''}{clause}",
        observed=late,
        limit=max(MIN_CALLS, limits["growth"] * early),
        unit="calls a sample",
        onset_step=onset,
        onset_interval=interval,
        evidence=series_evidence(calls, early=early),
        causes=(
            *((NEW_TASKS,) if at_once else ()),
            "the reward, or its judge, pays for calls or for what they return",
            "calls that fail or return nothing, and are tried again",
            "answers that no longer end before the limit of turns",
        ),
        confirm=(
            "compare reward with the number of calls within prompts: do more calls win at the same outcome?",
            "read five samples with the most calls: does each call ask for something new?",
        ),
        next=("cap or price calls in a short run and change nothing else; decide by the outcome",),
    )


RULE = rule(
    check, "calls-inflation", Link.REWARD, max_severity=Severity.MEDIUM, growth=GROWTH_FACTOR, families=LANGUAGE
)
