"""What pays: rewards that are earned without the task being done, and judges that pay for length or place.

Reward hacking: a part of the reward (or the whole) rises over the steps, or the order of the episodes, beyond chance,
while an outcome falls by a fifth; or calls grow by half while no outcome rises. Which of calls and length is paid shows
within prompts: attempts at one prompt that call or write more earn more. The policy gets better at earning and worse at
the task, and the curve of the reward cannot show it. More calls that solve more tasks are not this, nor a penalty that
grows as the task is learnt. Source: as rules reward-hacking and calls-inflation, of which these are the checks for
traces.

Judge bias: among attempts at one prompt with the same outcome, the judge's score rises with the length of what the
agent wrote (or with its place among the attempts), beyond chance, and the outcome itself does not rise with it. The
policy learns to write longer, which costs time and context, and solves no more tasks. A judge that prefers longer
answers where these are also the right ones is not biased. Source: Zheng et al., Judging LLM-as-a-Judge (arXiv
2306.05685), on position, verbosity and style bias.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.outcome_agreement import MIN_LOSS
from ptt.diagnostics.metrics.name_words import PENALTY, is_judge, is_outcome, words_of
from ptt.diagnostics.model import JsonScalar, Severity
from ptt.diagnostics.rules.interface import Finding
from ptt.diagnostics.rules.reward.calls_inflation import GROWTH_FACTOR, MIN_CALLS
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray
from ptt.diagnostics.statistics.group_difference import holm_adjust
from ptt.diagnostics.statistics.order_change import Matters
from ptt.diagnostics.statistics.within_groups import WithinCorrelation, within_correlation
from ptt.diagnostics.traces.judging import Judged, graded, no_calls, not_judged
from ptt.diagnostics.traces.order import Shift, shift_of
from ptt.diagnostics.traces.tables import STEP, TraceTables, scan_table
from ptt.diagnostics.wording import sig

MAX_PARTS: Final = 12  # of the reward, those that most episodes have
SUCCESS: Final = "success"
REWARD: Final = "reward"


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Values of each episode, NaN where not known."""

    parts: Mapping[str, FloatArray]  # of the reward, by name; the reward itself where it has none, or is no part alone
    outcomes: Mapping[str, FloatArray]  # what says that the task was done: the label, or parts named so
    judges: Mapping[str, FloatArray]  # parts that a model gave as a judge
    calls: FloatArray
    length: FloatArray  # letters that the assistant wrote
    group: IntArray  # prompt group within one step; a number of its own where none is known


def scores_of(tables: TraceTables) -> Scores:
    """Gather scores, outcomes, calls and length of the episodes."""
    episodes = tables.episodes
    ids = episodes.select("trajectory_id")
    rewards = scan_table(tables.store, "rewards").filter(pl.col("score").is_finite() & pl.col("name").is_not_null())
    found = rewards.group_by("name", "trajectory_id").agg(pl.col("score").mean()).collect()
    common = found.group_by("name").len().sort("len", "name", descending=[True, False]).head(MAX_PARTS)["name"]
    parts = {
        name: _values(
            ids.join(found.filter(pl.col("name") == name), on="trajectory_id", how="left", maintain_order="left")[
                "score"
            ]
        )
        for name in sorted(common)
    }
    whole = _values(episodes["reward"])
    same = any(np.array_equal(whole, values, equal_nan=True) for values in parts.values())
    if np.isfinite(whole).any() and not same:
        parts = {REWARD: whole} | parts
    outcomes = {name: values for name, values in parts.items() if is_outcome(name) and not is_judge(name)}
    if episodes["success"].is_not_null().any():
        outcomes = {SUCCESS: _values(episodes["success"])} | outcomes
    spoken = scan_table(tables.store, "turns").filter(pl.col("role") == "assistant")
    letters = spoken.group_by("trajectory_id").agg(pl.col("text_len").sum()).collect()
    key = ["group", "step"] if tables.traces.order == STEP else ["group"]
    group = pl.when(pl.col("group").is_not_null()).then(pl.struct(key).rank("dense").cast(pl.Int64))
    return Scores(
        parts=parts,
        outcomes=outcomes,
        judges={name: values for name, values in parts.items() if is_judge(name)},
        calls=_values(episodes["calls"]),
        length=_values(ids.join(letters, on="trajectory_id", how="left", maintain_order="left")["text_len"]),
        group=episodes.select(pl.coalesce(group, -1 - pl.int_range(pl.len())).alias("group"))["group"].to_numpy(),
    )


def _values(column: pl.Series) -> FloatArray:
    return column.cast(pl.Float64).fill_null(np.nan).to_numpy()


MIN_RISE: Final = 0.1  # of the larger level: a reward that rose by less gained little
MIN_RISE_SDS: Final = 0.3  # of the episodes' spread, likewise
LENGTH_FACTOR: Final = 1.5  # times the early length
PAID_RHO: Final = 0.2  # rank correlation within prompts from which a reward pays for a thing
PAID_P: Final = 0.01
SEED: Final = 20_261_125
SCORES_ENABLE: Final = (
    "record for each episode the parts of its reward and, beside them, whether the task was done (in TRL a reward "
    "function of weight 0 is enough)"
)
CALLS, LENGTH = "tool calls", "length"


def judge_hacking(tables: TraceTables) -> Judged:
    """Hold every part of the reward that rises against every outcome that falls."""
    scores = scores_of(tables)
    if not scores.outcomes:
        return not_judged("no outcome stands beside the reward", missing=("success",), enable=SCORES_ENABLE)
    paid = {name: values for name, values in scores.parts.items() if name not in scores.outcomes}
    if not paid:
        return not_judged("no reward is recorded beside the outcome", missing=("reward",), enable=SCORES_ENABLE)
    falls = {name: fall for name, values in scores.outcomes.items() if (fall := _fall(tables, values)) is not None}
    if not falls:
        return Judged(verdict=graded(reason=f"{', '.join(scores.outcomes)}: did not fall beyond chance"))
    rises = {name: rise for name, values in paid.items() if (rise := _rise(tables, values)) is not None}
    if not rises:
        return Judged(verdict=graded(reason=f"{next(iter(falls))} fell, and no part of the reward rose meanwhile"))
    if _shift(tables, scores.parts.get(REWARD, paid[next(iter(rises))]), lambda early, late: late < early) is not None:
        return Judged(verdict=graded(reason=f"{next(iter(falls))} fell, and the reward as a whole with it"))
    lost = min(falls, key=lambda name: (falls[name].late / falls[name].early, name))
    part = max(rises, key=lambda name: (name == REWARD and len(rises) == 1, _gain(rises[name]), name))
    return Judged(verdict=graded(_hacking(tables, scores, (part, rises[part]), (lost, falls[lost])), reason=""))


def judge_inflation(tables: TraceTables) -> Judged:
    """Find calls that multiply while no outcome rises."""
    scores = scores_of(tables)
    if not np.isfinite(scores.calls).any() or not np.nansum(scores.calls):
        return no_calls(tables)
    growth = _grown(tables, scores.calls, MIN_CALLS, GROWTH_FACTOR)
    mean = float(np.nanmean(scores.calls))
    if growth is None:
        return Judged(verdict=graded(reason=f"an episode makes {sig(mean)} tool calls, and no more towards the end"))
    grew = f"{sig(growth.early)} → {sig(growth.late)}"
    gains = scores.outcomes or {name: values for name, values in scores.parts.items() if name == REWARD}
    if not gains:
        return not_judged(
            f"tool calls grew {grew} an episode, but no outcome says whether they help",
            missing=("success",),
            enable=SCORES_ENABLE,
        )
    for name, values in gains.items():
        if (rise := _shift(tables, values, lambda early, late: late > early)) is not None:
            gained = f"{sig(rise.early)} → {sig(rise.late)}"
            reason = f"tool calls grew {grew} an episode, and {name} ({gained}) with them"
            return Judged(verdict=graded(reason=reason))
    fallen = next((name for name, values in gains.items() if _fall(tables, values) is not None), None)
    name = fallen or next(iter(gains))
    finding = Finding(
        severity=Severity.MEDIUM if fallen else Severity.LOW,
        claim=f"Tool calls grew {grew} an episode while {name} {'fell' if fallen else 'did not clearly rise'}",
        observed=growth.late / growth.early if growth.early > 0 else None,
        limit=GROWTH_FACTOR,
        unit="times the early number",
        onset_step=growth.onset,
        onset_interval=growth.interval,
        evidence={"metric": "n_tool_calls", "early": growth.early, "late": growth.late, "p_value": growth.p_value,
                  "episodes": _most(tables, scores.calls, growth.onset)},
        causes=("calls are paid for, or what they return is", "the agent repeats calls that bring nothing new"),
        confirm=(f"read the episodes with the most calls from {tables.traces.order} {growth.onset} on",),
        next=("pay for the state that calls leave behind, not for the calls",),
    )  # fmt: skip
    return Judged(verdict=graded(finding, reason=f"tool calls grew {grew} an episode"))


def _hacking(tables: TraceTables, scores: Scores, part: tuple[str, Shift], lost: tuple[str, Shift]) -> Finding:
    (name, rise), (outcome, fall) = part, lost
    inflated = _inflated(tables, scores, name)
    grew = ", and ".join(one.words for one in inflated)
    with_it = f"; {grew}" if grew else ""
    onset = max((rise, fall), key=lambda one: one.onset)
    evidence: dict[str, JsonScalar] = {
        "metric": name, "early": rise.early, "late": rise.late, "outcome": outcome, "outcome_early": fall.early,
        "outcome_late": fall.late, "p_value": max(rise.p_value, fall.p_value),
        "episodes": _most(tables, scores.parts[name], onset.onset),
    }  # fmt: skip
    for one in inflated:
        evidence |= {
            f"{one.name} early": one.growth.early,
            f"{one.name} late": one.growth.late,
            f"{one.name} rho": one.rho,
        }
    severity = Severity.HIGH if inflated else Severity.MEDIUM
    return Finding(
        severity=Severity.LOW if words_of(name) & PENALTY else severity,
        claim=f"{name} rose {sig(rise.early)} → {sig(rise.late)} while {outcome} fell "
        f"{sig(fall.early)} → {sig(fall.late)}" + with_it,
        observed=1 - fall.late / fall.early,
        limit=MIN_LOSS,
        unit="of the early outcome",
        onset_step=onset.onset,
        onset_interval=onset.interval,
        evidence=evidence,
        causes=(
            *(f"{name} pays for {one.name}" for one in inflated if one.is_paid),
            "the reward is easier to earn than the task is to do",
        ),
        confirm=(f"read the episodes that {name} pays best from {tables.traces.order} {onset.onset} on",),
        next=(f"pay {name} only where {outcome} is earned, in a short run, and decide by {outcome}",),
    )


@dataclass(frozen=True, kw_only=True)
class Inflation:
    """What grew while the outcome fell, and whether the reward pays for it within prompts."""

    name: str
    growth: Shift
    rho: float | None
    is_paid: bool

    @property
    def words(self) -> str:
        """The growth in a clause."""
        paid = f", which it pays for (rank correlation {self.rho:+.2f} within prompts)" if self.is_paid else ""
        unit = "letters an episode" if self.name == LENGTH else "an episode"
        return f"{self.name} grew {sig(self.growth.early)} → {sig(self.growth.late)} {unit}{paid}"


def _inflated(tables: TraceTables, scores: Scores, part: str) -> list[Inflation]:
    found = []
    for name, values, floor, factor in (
        (CALLS, scores.calls, MIN_CALLS, GROWTH_FACTOR),
        (LENGTH, scores.length, 0.0, LENGTH_FACTOR),
    ):
        growth = _grown(tables, values, floor, factor)
        if growth is not None:
            paid = within_correlation(values, scores.parts[part], scores.group, seed=SEED)
            rho = paid.rho if np.isfinite(paid.rho) else None
            is_paid = rho is not None and rho >= PAID_RHO and paid.p_value <= PAID_P
            found.append(Inflation(name=name, growth=growth, rho=rho, is_paid=is_paid))
    return found


def _shift(tables: TraceTables, values: FloatArray, matters: Matters) -> Shift | None:
    known = np.isfinite(values)
    return shift_of(tables.order, np.where(known, values, 0.0), known.astype(np.float64), matters)


def _rise(tables: TraceTables, values: FloatArray) -> Shift | None:
    spread = float(np.nanstd(values))

    def matters(early: FloatArray, late: FloatArray) -> BoolArray:
        least = max(MIN_RISE_SDS * spread, 1e-12)
        enough: BoolArray = late - early >= np.maximum(MIN_RISE * np.maximum(abs(early), abs(late)), least)
        return enough

    return _shift(tables, values, matters)


def _fall(tables: TraceTables, values: FloatArray) -> Shift | None:
    return _shift(tables, values, lambda early, late: (early > 0) & (late <= (1 - MIN_LOSS) * early))


def _grown(tables: TraceTables, values: FloatArray, floor: float, factor: float) -> Shift | None:
    return _shift(tables, values, lambda early, late: late >= np.maximum(max(floor, 1e-12), factor * early))


def _gain(rise: Shift) -> float:
    return (rise.late - rise.early) / max(abs(rise.early), abs(rise.late))


def _most(tables: TraceTables, values: FloatArray, onset: int, count: int = 3) -> str:
    """Return the ids of the episodes with the most of it, from the onset on."""
    late = np.where(tables.order.place >= onset, np.nan_to_num(values, nan=-np.inf), -np.inf)
    return tables.names(at for at in np.argsort(-late, kind="stable")[:count] if np.isfinite(late[at]))


MIN_GROUPS: Final = 10  # prompts with attempts of one outcome whose scores and lengths differ
MIN_RHO: Final = 0.2  # of ranks within prompts: less moves little
OUTCOME_SHARE: Final = 0.5  # of the judge's correlation: an outcome that has more of it explains the judge
P_LIMIT: Final = 0.01  # of all that is asked, together (Holm)
MAX_JUDGES: Final = 4
BIAS_SEED: Final = 20_261_124
ENABLE: Final = (
    "log the judge's score as a part of its own, with judge, rubric or grader in its name, beside an outcome that the "
    "environment gives, for several attempts at each prompt"
)


def judge_bias(tables: TraceTables) -> Judged:
    """Hold every judge's score against length and place, within prompts and outcomes."""
    scores = scores_of(tables)
    if not scores.judges:
        return not_judged("no part of the reward is named as a judge's score", missing=("judge score",), enable=ENABLE)
    if not scores.outcomes:
        return not_judged("no outcome stands beside the judge's score", missing=("success",), enable=ENABLE)
    outcome_name, outcome = next(iter(scores.outcomes.items()))
    stratum = _strata(scores.group, outcome)
    what = {"length": scores.length, "place": _places(scores.group)}
    asked = [
        (judge, name, within_correlation(values, given, stratum, seed=BIAS_SEED))
        for judge, given in list(scores.judges.items())[:MAX_JUDGES]
        for name, values in what.items()
    ]
    judged = [one for one in asked if one[2].groups >= MIN_GROUPS]
    if not judged:
        most = max(found.groups for *_, found in asked)
        return not_judged(
            f"{most} prompts have attempts of one outcome that differ in score and length; {MIN_GROUPS} are needed",
            missing=("several attempts at each prompt",),
            enable=ENABLE,
        )
    adjusted = holm_adjust([found.p_value for *_, found in judged])
    findings = []
    for (judge, name, found), p_value in zip(judged, adjusted, strict=True):
        of_outcome = within_correlation(what[name], outcome, scores.group, seed=BIAS_SEED)
        if p_value <= P_LIMIT and abs(found.rho) >= MIN_RHO and not _explained(found, of_outcome):
            findings.append(_bias_finding(judge, name, found, p_value, outcome_name, of_outcome))
    told = ", ".join(f"{judge} with {name} {found.rho:+.2f}" for judge, name, found in judged)
    return Judged(verdict=graded(*findings, reason=f"rank correlation within prompts and outcomes: {told}"))


def _strata(group: IntArray, outcome: FloatArray) -> IntArray:
    """Number groups of one outcome; what lacks an outcome stands alone."""
    known = np.isfinite(outcome)
    alone = -1 - np.arange(len(group))
    pairs = np.stack([np.where(known, group, alone), np.where(known, outcome, 0.0).view(np.int64)], axis=1)
    return np.unique(pairs, axis=0, return_inverse=True)[1].ravel().astype(np.int64)


def _places(group: IntArray) -> FloatArray:
    """Return the place of each episode among those of its group, in their order."""
    order = np.argsort(group, kind="stable")
    first = np.flatnonzero(np.append(True, np.diff(group[order]) != 0))
    size = np.diff(np.append(first, len(group)))
    places = np.empty(len(group))
    places[order] = np.arange(len(group)) - np.repeat(first, size)
    return places


def _explained(judge: WithinCorrelation, outcome: WithinCorrelation) -> bool:
    """Tell whether the outcome goes with it as the judge does."""
    return outcome.rho * math.copysign(1.0, judge.rho) >= OUTCOME_SHARE * abs(judge.rho)  # NaN explains nothing


def _bias_finding(
    judge: str, name: str, found: WithinCorrelation, p_value: float, outcome: str, of_outcome: WithinCorrelation
) -> Finding:
    way = "more" if found.rho > 0 else "less"
    thing = f"{way} for longer answers" if name == "length" else f"{way} for answers later in their group"
    also = f"{of_outcome.rho:+.2f}" if np.isfinite(of_outcome.rho) else "not known"
    return Finding(
        severity=Severity.MEDIUM if found.rho > 0 and name == "length" else Severity.LOW,
        claim=f"The judge's score {judge} pays {thing} of the same prompt and outcome (rank correlation "
        f"{found.rho:+.2f} in {found.groups} prompts; of {outcome} with {name}: {also})",
        observed=found.rho,
        limit=MIN_RHO if found.rho > 0 else -MIN_RHO,
        unit="rank correlation",
        evidence={
            "metric": judge, "with": name, "p_value": p_value, "groups": found.groups, "rows": found.rows,
            "outcome": outcome, "outcome_rho": of_outcome.rho if np.isfinite(of_outcome.rho) else None,
        },
        causes=(
            ("the judge takes length for quality", "its rubric counts points that longer answers make")
            if name == "length"
            else ("the judge is shown all attempts at once, in their order", "attempts of a group are not alike")
        ),
        confirm=(
            ("shorten ten of its best answers without losing content and score them once more",)
            if name == "length"
            else ("score ten groups once more with the attempts in another order",)
        ),
        next=(
            ("correct the score for length within prompts, or tell the judge what length is right",)
            if name == "length"
            else ("score each attempt alone, or in both orders and take the mean",)
        ),
    )  # fmt: skip
