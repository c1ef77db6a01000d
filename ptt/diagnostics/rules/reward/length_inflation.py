"""This run shows responses that grow far longer while what they achieve does not grow with them.

What: the mean response length lies lastingly above one and a half times its early level, and no outcome rose.
Why it matters: length costs time and memory, runs into the token limit, and is what rewards are easiest to please by.
What it is not: longer answers that do the task more often; without a recorded outcome the finding is low, since nobody
can say which of both it is.
What to do: read long and short samples of one prompt; compare reward with length within prompts; if length is paid for,
cap it or take it out of the reward, in a short run first.
Source: Singhal et al., A Long Way to Go: Investigating Length Correlations in RLHF (arXiv 2310.03716).
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.departures import LEAST, Departure, rise
from ptt.diagnostics.evidence.following import State, outcomes_of
from ptt.diagnostics.evidence.turning import SURE, since_start
from ptt.diagnostics.model import Broken, Finding, Healthy, Link, NotJudged, RuleVerdict, Severity
from ptt.diagnostics.rules.interface import ONLINE, Limits, Rule
from ptt.diagnostics.rules.reading import logged

ID = "length-inflation"
GROWTH_LIMIT = (
    1.5  # times the early length: healthy runs that learn to reason or to call tools reach less, or gain by it
)
LEAST_LENGTH = 16.0  # tokens: below, a factor says nothing


def check(evidence: Evidence, limits: Limits) -> RuleVerdict:
    """Judge the mean response length, beside the outcomes."""
    length = logged(
        evidence, "len/response_mean", rule=ID, link=Link.REWARD, what="mean response length", least=LEAST,
        enable="log it: TRL logs completions/mean_length, veRL response_length/mean, slime rollout/response_len/mean",
    )  # fmt: skip
    if isinstance(length, NotJudged):
        return length
    found = rise(length, floor=LEAST_LENGTH, factor=limits["growth"])
    turn = since_start(length)
    quick = turn is not None and turn.sds >= SURE and turn.late >= max(LEAST_LENGTH, limits["growth"] * turn.start)
    if (found is None or found.ended) and not quick:
        return Healthy(id=ID, link=Link.REWARD, reason="the response length stays near its early level")
    early, late = (turn.start, turn.late) if quick and turn is not None else _levels(found)
    reward = evidence.metrics.get("reward/mean")
    outcomes = outcomes_of(evidence, reward) if reward is not None else ()
    if any(one.state in (State.ROSE, State.SOLVED) for one in outcomes):
        reason = f"responses grew {early:.3g} → {late:.3g}, and {outcomes[0].name} with them"
        return Healthy(id=ID, link=Link.REWARD, reason=reason)
    behind = [one for one in outcomes if one.state in (State.FLAT, State.FELL)]
    onset = turn.onset if quick and turn is not None else found.onset if found else None
    told = f" while {behind[0].name} did not rise" if behind else ""
    return Broken(
        findings=(
            Finding(
                id=ID,
                severity=Severity.MEDIUM if behind else Severity.LOW,
                link=Link.REWARD,
                claim=f"Responses grew {early:.4g} → {late:.4g} tokens{told}",
                observed=late / early if early > 0 else None,
                limit=limits["growth"],
                unit="x",
                onset_step=onset,
                onset_interval=turn.interval if quick and turn is not None else found.interval if found else None,
                evidence={"metric": "len/response_mean", "logged_as": length.raw_name, "early": early, "late": late},
                causes=("the reward, or its judge, pays for length", "a loss that is averaged by sequence favours"
                        " long wrong answers", "answers no longer end: the end token became rare"),
                confirm=("compare reward with length among samples of one prompt: do longer ones win at equal outcome?",
                         "read five of the longest samples: steps of work, repetition, or padding?"),
                next=("a short run with a length penalty or a cap, nothing else changed; decide by the outcome",),
            ),
        )
    )  # fmt: skip


def _levels(found: Departure | None) -> tuple[float, float]:
    return (found.early, found.last) if found is not None else (0.0, 0.0)


RULE = Rule(id=ID, link=Link.REWARD, check=check, limits={"growth": GROWTH_LIMIT}, families=ONLINE)
