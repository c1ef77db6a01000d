"""This run shows one part of the reward that rises while another falls.

What: of the logged parts one rose beyond its noise since the start, and another fell below its best, by a fifth of its
level and six standard deviations of a window's mean, over the same steps.
Why it matters: the sum hides it. The policy gives up the part that is hard to have for the part that is easy.
What it is not: a penalty, or a price for length, that grows as the task is learnt: that finding is low.
What to do: look at the weights and scales of the parts; decide which part is the task; weigh or gate the others by it.
Source: parts as TRL logs them (`rewards/<function>/mean`), prime-rl, or as recorded with each sample.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES
from ptt.diagnostics.evidence.level_change import Z_LIMIT, LevelChange, change_since, change_since_best
from ptt.diagnostics.evidence.outcome_agreement import MIN_LOSS, has_risen
from ptt.diagnostics.metrics.name_words import PENALTY, is_outcome, words_of
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, rule

FALL_LIMIT = MIN_LOSS  # of its best level


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Hold every part that fell against every part that rose from there on."""
    parts = evidence.rewards.components if evidence.rewards is not None else {}
    judged = {name: one for name, one in sorted(parts.items()) if len(one.finite()[0]) >= MIN_VALUES}
    if len(judged) < 2:
        return NotJudged(
            reason=f"{len(judged)} part(s) of the reward are logged with {MIN_VALUES} values; two are needed",
            missing=("reward components",),
            enable="log every part of the reward by itself: in TRL one reward function a part, in prime-rl a rubric",
        )
    fallen = {name: turn for name, one in judged.items() if (turn := _fallen(change_since_best(one), limits["fall"]))}
    for name, turn in sorted(fallen.items(), key=lambda item: (not is_outcome(item[0]), item[1].onset or 0, item[0])):
        others = {other: change_since(one, turn.start_step) for other, one in judged.items() if other != name}
        rising = {other: gain for other, gain in others.items() if gain is not None and has_risen(gain)}
        if rising:
            best = max(sorted(rising), key=lambda other: rising[other].share)
            return _finding(evidence, name, turn, best, rising[best], limits["fall"])
    return Healthy(reason=f"of {len(judged)} parts none falls while another rises")


def _fallen(turn: LevelChange | None, limit: float) -> LevelChange | None:
    return turn if turn is not None and turn.sds <= -Z_LIMIT and turn.share <= -limit else None


def _finding(evidence: Evidence, name: str, fell: LevelChange, other: str, up: LevelChange, limit: float) -> Finding:
    priced = bool(words_of(name) & PENALTY)
    parts = evidence.rewards.components if evidence.rewards is not None else {}
    gain = f" ({up.start:.3g} → {up.late:.3g})"
    return Finding(
        severity=Severity.LOW if priced else Severity.MEDIUM,
        claim=f"The reward's part {name} fell ({fell.start:.3g} → {fell.late:.3g}) while {other} rose{gain}",
        observed=-fell.share,
        limit=limit,
        unit="of its best level",
        onset_step=fell.onset,
        onset_interval=fell.interval,
        evidence={"metric": name, "logged_as": parts[name].raw_name, "rose": parts[other].raw_name,
                  "best": fell.start, "last": fell.late},
        causes=("the rising part is larger or easier to have", "both parts cannot be had at once",
                "the falling part's scorer broke: its format or parser changed"),
        confirm=(f"score ten late samples by hand for {name}: is the task not done, or is it not recognised?",
                 f"compare {name} with {other} among samples of one prompt: does one exclude the other?"),
        next=(f"weigh {other} down, or pay it only where {name} is had; a short run, nothing else changed",),
    )  # fmt: skip


RULE = rule(check, "components-diverge", Link.REWARD, fall=FALL_LIMIT)
