"""This run shows a part of the reward that never varies.

What: one component of the reward has the same mean at every logged step, ten and more, while another one varies.
Penalties, repetitions and errors that are 0 throughout do not count: nothing had to be punished. Where no component
varies at all, reward-stuck judges the reward. Or hardly any answer earns a part, 0 at four fifths of the steps and at
most 0.05 in the later half, while the whole reward rises: medium where its name says that it is the task.
Why it matters: it teaches nothing. A part that is 0 throughout was never earned, or its code never matches; one at its
highest throughout only lifts the mean, so that a reward looks good that is not.
What to do: score ten answers by hand with that component's code, one that should earn it among them.
Source: our own, from public runs whose format reward asked for line breaks that no answer had.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.outcome_agreement import NEARLY_NOTHING
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.metrics.name_words import ASIDE, PENALTY, REPETITION, is_outcome, words_of
from ptt.diagnostics.model import LIKELY, Link, Severity
from ptt.diagnostics.rules.interface import REWARDED_LANGUAGE, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.reward_outcome import Outcome, outcome
from ptt.diagnostics.statistics.arrays import FloatArray
from ptt.diagnostics.wording import counted, sig

MIN_VALUES: Final = 10.0  # logged steps: a part that is rarely earned may be missed in fewer
PRICES: Final = PENALTY | REPETITION | {"error", "errors"}
MIN_CALLED: Final = 20  # calls of one tool: fewer may all lack what the part asks for
OF_CALLS: Final = frozenset({"tool", "tools", "call", "calls", "function", "func"})
OF_PARTS: Final = frozenset({"use", "used", "reward", "rewards", "format", "mean"})
"""Words of a part that is paid for calls of a tool; with any other it asks for more than the call."""
UNSEEN: Final = "a scorer that looks for calls or their results in another form or role than the environment gives them"
MAX_NAMED: Final = 4  # in a claim
MOSTLY_ZERO: Final = 0.8  # of the logged steps
MIN_EARNED_VALUES: Final = 30  # logged steps: a hard task may be first done after some
TASK: Final = frozenset({"env", "environment", "answer", "solve", "task"})
"""Words that call a part the task, beside those of an outcome."""


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge whether a component keeps one value while others vary."""
    components = evidence.rewards.components if evidence.rewards is not None else {}
    logged = {name: one for name, one in components.items() if len(one.finite()[1]) >= limits["values"]}
    if len(logged) < 2:
        return NotJudged(
            reason=f"{counted(len(logged), 'component(s)')} of the reward with enough values: two are needed",
            missing=("rewards",),
            enable="log the mean of each component of the reward by step",
            absent=not components,
        )
    constant = {name: one for name, one in logged.items() if np.ptp(one.finite()[1]) == 0.0}
    silent = {name: one for name, one in constant.items() if one.finite()[1][0] or not words_of(name) & PRICES}
    if len(constant) == len(logged):
        told = ", ".join(map(_told, constant.values()))
        return NotJudged(
            reason=f"none of {len(logged)} components of the reward varies ({told})",
            missing=("a component that varies",),
            enable="score ten answers by hand with each component's code",
        )
    unearned = unearned_parts(evidence, logged)
    if not silent and unearned:
        return _unearned(unearned)
    if not silent:
        return Healthy(reason=f"{counted(len(logged) - len(constant), 'component(s)')} of the reward vary")
    return _unseen(evidence, silent) or _finding(silent)


def _unseen(evidence: Evidence, silent: Mapping[str, Series]) -> Finding | None:
    """Return the finding of a part that was never earned though the episodes hold the calls that its name speaks of."""
    tools = evidence.environment.tools if evidence.environment is not None else {}
    for name, one in silent.items():
        if one.finite()[1][0]:
            continue
        words = words_of(name)
        for tool, found in tools.items():
            own = words_of(tool) - OF_CALLS
            made = int(found.calls.hits.sum())
            if made >= MIN_CALLED and own and own <= words <= own | OF_CALLS | OF_PARTS:
                return _of_calls(silent, tool, made, one)
    return None


def _of_calls(silent: Mapping[str, Series], tool: str, calls: int, one: Series) -> Finding:
    plain = _finding({one.name: one})
    return replace(
        plain,
        severity=Severity.HIGH,
        claim=f"{_told(one)}, though recorded episodes call {tool} {calls} times: its code does not see these calls",
        context=(f"{LIKELY}{UNSEEN}",),
        evidence={**plain.evidence, "components": ", ".join(silent), "tool": tool, "calls": calls},
        causes=(UNSEEN, "it asks for more than the call, which none of them has"),
        confirm=(f"run this component's code on one saved episode that calls {tool}: what does it find?",),
        next=("let it read calls and results as the environment writes them; without it no call is paid", *plain.next),
    )


def unearned_parts(evidence: Evidence, components: Mapping[str, Series]) -> dict[str, Series]:
    """Return the parts that hardly any answer earned, at the end least of all, while the whole reward rose."""
    if outcome(evidence) is not Outcome.ROSE:
        return {}
    return {
        name: one for name, one in components.items() if not words_of(name) & PRICES and _hardly_earned(one.finite()[1])
    }


def _hardly_earned(values: FloatArray) -> bool:
    late = values[len(values) // 2 :]
    few = len(values) >= MIN_EARNED_VALUES and np.mean(values == 0.0) >= MOSTLY_ZERO and values.min() >= 0.0
    return bool(few and np.mean(late == 0.0) >= MOSTLY_ZERO and late.mean() <= NEARLY_NOTHING)


def is_task(name: str) -> bool:
    """Return whether a part's name says that it is the task, and no side of it."""
    return is_outcome(name) or bool(words_of(name) & TASK and not words_of(name) & ASIDE)


def _unearned(parts: Mapping[str, Series]) -> Verdict:
    tasks = [name for name in parts if is_task(name)]
    name = (tasks or list(parts))[0]
    one = parts[name]
    steps, values = one.finite()
    zeros = int(np.count_nonzero(values == 0.0))
    finding = Finding(
        severity=Severity.MEDIUM if tasks else Severity.LOW,
        claim=f"The reward rose while its part `{one.raw_name}` is 0 at {zeros} of {len(values)} logged steps, and "
        f"{sig(float(values.max()))} at most",
        observed=zeros / len(values),
        limit=MOSTLY_ZERO,
        unit="share of steps",
        onset_step=int(steps[0]),
        onset_interval=(int(steps[0]), int(steps[0])),
        evidence={"metric": one.name, "logged_as": one.raw_name, "components": ", ".join(parts)},
        causes=("the policy learns the parts that are easy to earn", "its code matches hardly any right answer"),
        confirm=("score ten answers by hand with this component's code, one that should earn it among them",),
        next=("fix its code, or start from easier tasks; pay the other parts only where this one is earned",),
    )
    return finding if tasks else Healthy(reason=finding.claim, notes=(finding,))


def _finding(silent: dict[str, Series]) -> Finding:
    never = [one for one in silent.values() if not one.finite()[1][0]]
    first = (never or list(silent.values()))[0]
    told = [_told(one) for one in silent.values()]
    begin = min(int(one.finite()[0][0]) for one in silent.values())
    return Finding(
        severity=Severity.LOW,
        claim=f"{', '.join(told[:MAX_NAMED])}: no answer is told from another by it",
        observed=float(first.finite()[1][0]),
        limit=None,
        unit="reward",
        onset_step=begin,
        onset_interval=(begin, begin),
        evidence={"metric": first.name, "logged_as": first.raw_name, "components": ", ".join(silent)},
        causes=("its code never matches what the policy writes", "every answer earns it, or none can"),
        confirm=("score ten answers by hand with this component's code, one that should earn it among them",),
        next=("fix its code, or ask for less so that some answers earn it; drop it if all of them do",),
    )


def _told(one: Series) -> str:
    """Tell the one value of a part, and at how many of its logged steps it has one."""
    values = one.finite()[1]
    steps = f"all {len(values)}" if not one.not_numbers else f"{len(values)} of {len(values) + one.not_numbers}"
    return f"`{one.raw_name}` is {sig(float(values[0]))} at {steps} logged steps"


RULE = rule(
    check,
    "constant-component",
    Link.REWARD,
    families=REWARDED_LANGUAGE,
    max_severity=Severity.HIGH,
    values=MIN_VALUES,
)
