"""Names the holder of a tail: where one value of a recorded attribute holds most of it, the finding is about that.

tool_tail_growth finds the tail; here its claim, causes, next steps and link become those of the tool, rank,
environment, version or source of prompts that holds it. `HeldTail` has the shares, docs/statistics.md the tests.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from ptt.diagnostics.evidence.passing_values import (
    ENVIRONMENT,
    GROUP,
    LAG,
    LOGP_KIND,
    OBSERVATION,
    RANK,
    RESULT,
    TEMPERATURE,
    TOOL,
    TOP_P,
    VERSION,
    PassingValue,
)
from ptt.diagnostics.evidence.tail_holders import LATE_P99, PASSING, HeldTail, Holders, ValueTails
from ptt.diagnostics.evidence.tails import Tails
from ptt.diagnostics.model import (
    Answer,
    Broken,
    Finding,
    JsonScalar,
    Link,
    NotJudged,
    RuleVerdict,
    Severity,
    Signature,
)
from ptt.diagnostics.rules.interface import Limits
from ptt.diagnostics.rules.tail_conditions import JudgedTail, growth_of_percentiles, judge_tail
from ptt.diagnostics.statistics.observation_position import FLOOR
from ptt.diagnostics.statistics.tail_growth import LateRise
from ptt.diagnostics.wording import pct, sig

EVERYWHERE: Final = "tail-growth-everywhere"
HIGH: Final = "tails-high"
FINDINGS: Final = frozenset({"tool-tail-growth", EVERYWHERE, HIGH})
MIN_SHARE: Final = 0.5  # of the late tail: most of it
MIN_LIFT: Final = 1.5  # share of the tail over share of the tokens; and above 1 at the low end of its interval
MIN_EXCESS_NATS: Final = math.log(2.0)  # by which the tail must outgrow the others': twice the weights
MIN_GROWTH_RATIO: Final = 1.2  # or by this factor, as for growth against text-only tails
RATE_SHARE: Final = 0.05  # of the false-alarm rate, for growth within single values, all of them together
MIN_RATE: Final = 1.25e-3  # a smaller share of the rate would need more draws to resolve its p-value
MANY_DRAWS: Final = 99_999
DOUBT_FACTOR: Final = 10.0  # times a value's rate: growth within it is then possible; further doubts would be noise
MAX_FLOOR_SHARE: Final = 0.5  # of the blocks: if more are equal, the scatter of a level is unknown
MIN_SEVERE_SHARE: Final = 0.1  # of the post-tool tokens: a value with fewer is no more than medium
LEVEL_FLOOR: Final = 0.02  # nats: of a ratio, weights are within 2% of 1 below it
LINKS: Final = {
    RANK: Link.SYSTEMS,
    VERSION: Link.DATA_FRESHNESS,
    LAG: Link.DATA_FRESHNESS,
    ENVIRONMENT: Link.ENVIRONMENT,
}
"""Where the root is looked for; the others' tail is the policy's, in the contexts that the value makes."""
ORDINALS: Final = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
MAX_SHOWN: Final = 60  # letters of a value in a sentence
PROMPTS: Final = "source of prompts"
WORDS: Final[Mapping[str, frozenset[str]]] = {
    TOOL: frozenset({"tool", "function", "api"}),
    RANK: frozenset(
        {"rank", "host", "hostname", "node", "worker", "gpu", "device", "machine", "shard", "replica", "server", "pod"}
    ),
    ENVIRONMENT: frozenset({"env", "environment", "sandbox", "scenario"}),
    VERSION: frozenset({"version", "checkpoint", "weights", "engine", "sampler", "snapshot"}),
    PROMPTS: frozenset(
        {"prompt", "source", "dataset", "data", "domain", "corpus", "split", "category", "topic", "task", "question"}
    ),
}
"""What a column of the run's own is about, by the words of its name; the first that fits counts."""


def kind_of(attribute: str) -> str:
    """Return what an attribute is; a run's own column by the words of its name, "" if they do not say."""
    if attribute in {TOOL, RESULT, OBSERVATION, ENVIRONMENT, RANK, VERSION, LAG}:
        return attribute
    if attribute == GROUP:
        return PROMPTS
    if attribute in {TEMPERATURE, TOP_P, LOGP_KIND}:
        return LOGP_KIND
    parts = set(re.split(r"[\W_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", attribute).lower()))
    parts |= {part.removesuffix("s") for part in parts}
    return next((kind for kind, words in WORDS.items() if parts & words), "")


def place(attribute: str, value: str) -> str:
    """Return where a value's tokens are, as it ends a sentence: "after `sql` calls", "on rank 3"."""
    quoted = shown(value)
    if attribute == OBSERVATION and value.removesuffix("+").isdecimal():
        return f"after the {_ordinal(value)}"
    places = {
        TOOL: f"after {quoted} calls",
        RESULT: f"after tool calls that {'failed' if value == 'failed' else 'did not fail'}",
        ENVIRONMENT: f"in environment {quoted}",
        RANK: f"on rank {value}",
        VERSION: f"in samples of policy version {value}",
        LAG: f"in samples at a lag of {value} policy versions",
        GROUP: f"in prompt group {quoted}",
        TEMPERATURE: f"in samples at temperature {value}",
        TOP_P: f"in samples at top_p {value}",
        LOGP_KIND: f"in samples with {value} logprobs",
    }
    return places.get(attribute, f"where {shown(attribute)} is {quoted}")


MAX_NAMED: Final = 3  # values: more are counted


def passing_words(passing: Sequence[PassingValue]) -> str:
    """Return values that are not there all along, each with when it is: "rank 3 (from step 61 on)"."""
    named = [f"{value_words(one)} ({_when(one)})" for one in passing[:MAX_NAMED]]
    more = len(passing) - MAX_NAMED
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")


def value_words(one: PassingValue) -> str:
    """Return a value in words: "rank 3", "tool `sql`"."""
    names = {
        RANK: f"rank {one.value}",
        ENVIRONMENT: f"environment {shown(one.value)}",
        TOOL: f"tool {shown(one.value)}",
    }
    return names.get(one.attribute, f"{shown(one.attribute)} {shown(one.value)}")


def _when(one: PassingValue) -> str:
    if one.last_before is None:
        return f"from step {one.first_after} on"
    if one.first_after is None:
        return f"up to step {one.last_before}"
    return f"not from step {one.away.since} to {one.away.until}"


def _ordinal(value: str) -> str:
    """Return which observation a number is, in words: "third tool result", "eighth tool result and later ones"."""
    number = int(value.removesuffix("+"))
    ordinal = ORDINALS[number - 1] if 0 < number <= len(ORDINALS) else f"{number}th"
    return f"{ordinal} tool result{' and later ones' if value.endswith('+') else ''}"


def shown(name: str) -> str:
    """Return a name of the run's own as a sentence quotes it: on one line, without quotes of its own, not too long."""
    plain = " ".join(name.replace("`", "'").split())
    return f"`{plain if len(plain) <= MAX_SHOWN else plain[: MAX_SHOWN - 1] + '…'}`"


def holder_of(finding: Finding, holders: Holders | None) -> HeldTail | None:
    """Return the value that holds most of a finding's late tail at a material lift and outgrew the others, if any."""
    if holders is None or finding.id not in FINDINGS or (finding.limit is None and finding.id != EVERYWHERE):
        return None
    limit = finding.limit if finding.limit is not None else finding.observed or 0.0
    scope = "all" if finding.id == EVERYWHERE else "post"
    held = [
        one
        for one in (*holders.of(scope, limit), *holders.of(scope, LATE_P99))
        if one.tail.share > MIN_SHARE and one.tail.lift >= MIN_LIFT and one.tail.lift_interval[0] > 1 and outgrew(one)
    ]
    return max(held, key=lambda one: one.tail.excess, default=None)


def outgrew(held: HeldTail) -> bool:
    """Return whether a value's p95 or p99 grew more than the others', by nats or by ratio; so it did where it is new.

    A value that was as far above the others early as late holds the level, not the growth.
    """
    for name, (early, late) in held.own.items():
        before, after = held.others[name]
        if not all(map(math.isfinite, (early, late))):
            return True
        if not all(map(math.isfinite, (before, after))):
            continue
        own = max(late, LEVEL_FLOOR) / max(early, LEVEL_FLOOR)
        others = max(after, LEVEL_FLOOR) / max(before, LEVEL_FLOOR)
        more = own > max(1.0, MIN_GROWTH_RATIO * others)
        if more or late - early - (after - before) > MIN_EXCESS_NATS:
            return True
    return False


def stayed(tails: Mapping[str, tuple[float, float]]) -> bool:
    """Return whether neither percentile grew enough to count: growth that all values share is no single value's."""
    grown = [max(late, LEVEL_FLOOR) / max(early, LEVEL_FLOOR) for early, late in tails.values()]
    return all(growth < MIN_GROWTH_RATIO for growth in grown)


def name_holder(finding: Finding, holders: Holders | None) -> Finding:
    """Return the finding, about the value that holds its tail where one does."""
    held = holder_of(finding, holders)
    return finding if held is None else about(finding, held)


def about(finding: Finding, held: HeldTail, *, alone: bool = False) -> Finding:
    """Return a finding on a tail as one about the value that holds it, or within which `alone` it was looked for."""
    kind, where = kind_of(held.attribute), place(held.attribute, held.value)
    head, colon, rest = finding.claim.partition(":")
    beyond = f"late tokens with |r| above {sig(held.begins)} nats"
    share = f"({pct(held.tail.share)} of the {beyond}, {pct(held.tail.token_share)} of all)"
    said = f", {where} only" if alone else f", most of all {where}"
    causes, confirm, steps = advice(kind, held, where, finding.seen_step)
    kept = [line for line in finding.next if re.search(r"\bcheck the logprobs\b|\bcheckpoint\b", line)]
    return replace(
        finding,
        link=LINKS.get(kind, finding.link),
        claim=f"{head}{said} {share}{colon}{rest}",
        evidence={**finding.evidence, **evidence_of(held)},
        causes=causes,
        confirm=confirm,
        next=(*kept, *steps),
    )


def evidence_of(held: HeldTail) -> dict[str, JsonScalar]:
    """Return the holder as data: attribute, value, its shares of tail and tokens, lift, and 95% intervals."""
    low, high = held.tail.interval
    least, most = held.tail.lift_interval
    return {
        "holder_attribute": held.attribute,
        "holder_value": held.value,
        "holder_tail_begins": held.begins,
        "holder_share": held.tail.share,
        "holder_share_low": low,
        "holder_share_high": high,
        "holder_token_share": held.tail.token_share,
        "holder_lift": held.tail.lift,
        "holder_lift_low": least,
        "holder_lift_high": most,
    }


Advice = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]
"""Causes, what to confirm first, and what to do."""
ADVICE: Final[Mapping[str, Advice]] = {
    TOOL: (
        (
            "what {name} returns is long, free-form or varied: it puts the policy in states the reference hardly knows",
            "the output format or schema of {name} changed, or differs from the data the reference saw",
        ),
        ("read ten outputs of {name} from {before}: did format, length or errors change?",),
        (
            "give {name} one short, fixed output format (a schema), cut longer outputs, rerun and change nothing else",
            "add outputs of {name} to the data that the reference is trained on",
            "use a larger KL coefficient only for what is left: it also restrains the other tools",
        ),
    ),
    RESULT: (
        (
            "results {where} are unlike all others: free text, tracebacks, messages that change",
            "samples with such results are rare, and the reference saw even fewer",
        ),
        ("read the samples with the largest |r| {where}: what did the tool return?",),
        (
            "make failed calls return one short, fixed message, or fix what makes them fail",
            "then mask or truncate the ratio of what is left, change nothing else, and compare the same figure",
        ),
    ),
    OBSERVATION: (
        (
            "contexts {where} are longer than what the reference was trained on",
            "what the policy does {where} differs from before: it retries, gives up or repeats itself",
        ),
        ("read the samples with the largest |r| {where}, and the same samples before it: what changed there?",),
        (
            "end episodes before that tool result for 50 steps and change nothing else: the tail should vanish",
            "then shorten what tools return, or add episodes of that length to the data of the reference",
        ),
    ),
    RANK: (
        (
            "weights {where} that differ from the others': a sync that fails or comes late there",
            "a different precision, kernel or library version there, or a device that computes wrongly",
            "a shard of the data that differs from the others",
        ),
        (
            "score the same batch {where} and elsewhere: the logprobs must be equal",
            "compare a checksum of the weights {where} with that of another{since}",
        ),
        (
            "move what runs {where} to another machine and change nothing else: if the tail stays, it is the "
            "machine; if it moves along, it is the data",
            "then compare the weight sync, dtype, kernels and library versions there with those of the others",
            "leave the KL coefficient and the learning rate alone: the others did not move",
        ),
    ),
    VERSION: (
        (
            "weights that were never or only partly updated: the tail lies {where}",
            "the lag between sampler and trainer is not bounded",
        ),
        ("find the weight syncs in the sampler's log{since}: which of its engines received the last one?",),
        (
            "sync the weights of all engines at every step for 50 steps and change nothing else: the tail "
            "should vanish",
            "then bound the lag: drop or regenerate older rollouts",
        ),
    ),
    ENVIRONMENT: (
        (
            "environment {name} changed: its observations, its rules or what it runs on",
            "what {name} returns is not in the data that the reference was trained on",
        ),
        ("read ten observations of {name} from {before}: did they change?",),
        (
            "pin the version of {name}, or go back to the one before, rerun and change nothing else",
            "train without {name} for 50 steps: the tail should vanish with it",
        ),
    ),
    PROMPTS: (
        (
            "the data {where}: duplicates, a different format, or tasks the reference cannot do",
            "prompts of that source came in later, or more often",
        ),
        ("read the prompts {where} with the largest |r|, and as many others for comparison",),
        (
            "leave that source out for 50 steps and change nothing else: the tail should vanish with it",
            "then fix, filter or reweight its prompts",
        ),
    ),
    LOGP_KIND: (
        ("logprobs {where} are taken differently from the others: the two sides differ in how they were sampled",),
        ("score one sequence {where} under both settings: do the logprobs differ?",),
        ("use one temperature and one truncation for both sides' logprobs, in all samples",),
    ),
}
"""For each kind of holder. {name}: its value; {where}: the place; {since} and {before}: around the onset."""
OTHER_ADVICE: Final[Advice] = (
    ("whatever sets these samples apart: the tail lies {where} and hardly elsewhere",),
    ("read the samples {where} with the largest |r|, and as many others for comparison",),
    (
        "leave them out for 50 steps and change nothing else: the tail should vanish with them",
        "then find out what sets them apart",
    ),
)


def advice(kind: str, held: HeldTail, where: str, onset: int | None) -> Advice:
    """Return causes, what to confirm first and what to do, by what the holder is."""
    words = {
        "name": shown(held.value),
        "where": where,
        "since": "" if onset is None else f" at step {onset}",
        "before": "early and late in the run" if onset is None else f"before and after step {onset}",
    }
    causes, confirm, steps = (
        tuple(line.format(**words) for line in lines)
        for lines in ADVICE.get(VERSION if kind == LAG else kind, OTHER_ADVICE)
    )
    return causes, confirm, steps


def rate_left(holders: Holders) -> float:
    """Return the share of the false-alarm rate that is left for the run as a whole where values are tested too."""
    return 1 - RATE_SHARE if holders.tested else 1.0


Judged = tuple[Signature, RuleVerdict]


def judge_values(
    signature: Signature,
    verdict: RuleVerdict,
    holders: Holders,
    limits: Limits,
    conclude: Callable[[Tails, JudgedTail, Limits], Judged | None],
) -> Judged:
    """Return the run's judgement, of the value that holds its tail; or the value's where the run's percentiles hide it.

    Values are tested at their part of the one false-alarm rate, Bonferroni-corrected. `conclude` makes of a judged tail
    what it would be of a run; None where such tails cannot be judged.
    """
    told = {finding.id for finding in verdict.findings} if isinstance(verdict, Broken) else set()
    if told - {HIGH}:
        return signature, name_holders(verdict, holders)
    rate = RATE_SHARE * limits["false_alarms"] / max(1, holders.tested)
    strict = {**limits, "false_alarms": max(rate, MIN_RATE)}
    both = (*holders.of("post", 0.0), *holders.of(PASSING, 0.0))
    shares = {(held.attribute, held.value): held for held in both}
    found: list[tuple[float, Judged]] = []
    doubts: list[tuple[float, Judged]] = []
    for part in holders.within:
        held = shares.get((part.attribute, part.value))
        if held is None or not outgrew(held) or not stayed(held.others):
            continue
        tail = judge_tail(part.tails, strict)
        unmet = False in (tail.conditions["material"], tail.conditions["lasting"])
        unmet = unmet or _rests_on_floor(part, tail, tail.end)
        if tail.conditions["localised"] is False and _rests_on_floor(part, tail, tail.rise):
            tail = replace(tail, conditions={**tail.conditions, "localised": None})  # it grew by a factor nobody knows
        judged = None if unmet or not tail.growth_p < DOUBT_FACTOR * rate else conclude(part.tails, tail, strict)
        if judged is None:
            continue
        own, of_value = judged
        reason = f"{place(part.attribute, part.value)} only, {own.reason}"
        own = replace(own, reason=reason, growth=signature.growth)
        if isinstance(of_value, Broken):
            findings = tuple(_of_few(about(finding, held, alone=True), held) for finding in of_value.findings)
            of_value = Broken(findings=findings)
        if isinstance(of_value, Broken) and _is_sure(part.tails, tail, rate):
            found.append((held.tail.excess, (own, of_value)))
        elif own.status is Answer.CANNOT_SAY:
            of_value = replace(of_value, reason=reason) if isinstance(of_value, NotJudged) else of_value
            doubts.append((held.tail.excess, (own, of_value)))
    if signature.status is not Answer.NOT_FOUND:
        doubts = []  # the run as a whole is in doubt already
    best = max(found or ([] if told else doubts), key=lambda one: one[0], default=None)
    return (signature, name_holders(verdict, holders)) if best is None else best[1]


def name_holders(verdict: RuleVerdict, holders: Holders) -> RuleVerdict:
    """Return a verdict with its findings about the values that hold their tails."""
    if not isinstance(verdict, Broken):
        return verdict
    return Broken(findings=tuple(name_holder(finding, holders) for finding in verdict.findings))


def _rests_on_floor(part: ValueTails, tail: JudgedTail, rise: LateRise | None) -> bool:
    """Return whether the blocks that rose are compared with blocks that are mostly at the floor.

    Tokens after a tool are recorded only from FLOOR up, so blocks without larger ones are all equal. Against noise that
    cannot be seen, a single sequence in the last blocks would look like a sure rise; and of a level that cannot be
    seen, no factor can be held against that of text-only tails.
    """
    if rise is None or part.attribute not in (TOOL, RESULT, OBSERVATION):
        return False
    others = np.delete(tail.post.blocks, list(rise.blocks))
    others = others[np.isfinite(others)]
    return not len(others) or bool((others <= FLOOR).mean() > MAX_FLOOR_SHARE)


def _is_sure(tails: Tails, tail: JudgedTail, rate: float) -> bool:
    """Return whether growth passes `rate`, by more drawings where the usual number cannot tell such p-values apart."""
    if rate >= MIN_RATE or tail.rare is not None:  # orders of blocks are not drawn more often
        return tail.growth_p < rate
    return growth_of_percentiles(tails, draws=MANY_DRAWS).p_value < rate


def _of_few(finding: Finding, held: HeldTail) -> Finding:
    """Return the finding, at most medium where few tokens are the value's, however far out they lie."""
    if held.tail.token_share >= MIN_SEVERE_SHARE or not finding.severity.at_least(Severity.HIGH):
        return finding
    return replace(finding, severity=Severity.MEDIUM)
