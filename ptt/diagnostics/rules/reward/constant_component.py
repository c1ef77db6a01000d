"""This run shows a part of the reward that never varies.

What: one component of the reward has the same mean at every logged step, ten and more, while another one varies.
Penalties, repetitions and errors that are 0 throughout do not count: nothing had to be punished. Where no component
varies at all, reward-stuck judges the reward.
Why it matters: it teaches nothing. A part that is 0 throughout was never earned, or its code never matches; one at its
highest throughout only lifts the mean, so that a reward looks good that is not.
What to do: score ten answers by hand with that component's code, one that should earn it among them.
Source: our own, from public runs whose format reward asked for line breaks that no answer had.
"""

from typing import Final

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.metrics.name_words import PENALTY, REPETITION, words_of
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import REWARDED_LANGUAGE, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.wording import counted, sig

MIN_VALUES: Final = 10.0  # logged steps: a part that is rarely earned may be missed in fewer
PRICES: Final = PENALTY | REPETITION | {"error", "errors"}
MAX_NAMED: Final = 4  # in a claim


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
    if not silent:
        return Healthy(reason=f"{counted(len(logged) - len(constant), 'component(s)')} of the reward vary")
    return _finding(silent)


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
    max_severity=Severity.LOW,
    values=MIN_VALUES,
)
