"""What the update rests on: which tokens hold the gradient under the run's own loss, since when, and in one sentence.

Of steps spread over the run, and only where a finding asks for it. The norms of the scores are not recorded: see
`score_bounds`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.completions import Completions
from ptt.diagnostics.evidence.guard_prices import cheapest_guard, guard_table, price_guards, second_moments
from ptt.diagnostics.evidence.policy_objective import FoundObjective, objective_of
from ptt.diagnostics.evidence.sampled_tokens import TAIL, AuditedTokens, audited_tokens
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.evidence.tail_details import BEFORE_ANY, MAX_TURN, RESULT_NAMES
from ptt.diagnostics.model import Finding, Ledger, LedgerShare
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray
from ptt.diagnostics.statistics.gradient_shares import (
    SUMMED,
    Attribute,
    Contributions,
    effective_number,
    heaviest,
    same_for_each_step,
    score_factors,
    share_holding,
    shares_by,
)
from ptt.diagnostics.statistics.observation_position import DISTANCES, distances
from ptt.diagnostics.statistics.token_weights import PLAIN, SEQUENCE, TokenWeights, score_bounds, token_weights
from ptt.diagnostics.statistics.windows import WINDOWS, split_steps
from ptt.diagnostics.store.scan import READ_ERRORS
from ptt.diagnostics.wording import pct

EXPLAINED: Final = frozenset(
    {
        "tool-tail-growth", "ratio-explosion", "policy-drift", "update-too-large", "kl-over-target", "kl-spikes",
        "clip-fraction-high", "one-sided-clipping", "gradient-spikes", "engine-mismatch", "mismatch-after-tools",
        "trained-on-failures", "loss-divergence",
    }
)  # fmt: skip
"""Findings that the ledger explains: what an update rests on is why they matter, or what they come from."""
MIN_STEPS: Final = 6  # audited: fewer make no windows
MIN_SINCE: Final = 3  # audited steps since an onset; with fewer, the late third stands in
NEAR: Final = (1, 3, 10, 30)  # tokens after an observation that a place may end at
MIN_LIFT: Final = 1.5  # of a place over its share of the tokens: below, it says nothing
RESULT: Final = pl.when("failed").then(pl.lit(RESULT_NAMES[0])).when(~pl.col("failed")).then(pl.lit(RESULT_NAMES[1]))
MAX_TOOLS: Final = 8  # named in a place, those with most tokens
OUTCOMES: Final = ("failed", "succeeded")
AGAINST_GROUP: Final = ("reward not above its group's mean", "reward above its group's mean")
SINCE: Final = "since"  # names the window of the sentence
MAJORITY: Final = 0.5  # of the heaviest tokens: a place that holds more of them is named
MIN_NORMS: Final = 12  # steps with a logged gradient norm: fewer do not tell kinds of tokens apart
AT_CAP: Final = 0.999  # of the largest norm
MAX_AT_CAP: Final = 0.2  # of the steps: more, and the norm is logged after it was clipped, and tells nothing at the cap
NO_NORMS: Final = (
    "fewer than {} of its steps log a gradient norm (`grad_norm`), which tells how long scores are; without it ranks "
    "of sequences agree with the gradient's by 0.67 and 0.70 alone in two of three runs of known gradients"
)
APPROXIMATED: Final = (
    "the norm of a token's score is not recorded: it is taken for 1 - p times a factor by distance from the tool's "
    "output (or the beginning), fitted to the logged gradient norms"
)
SEQUENCES_ALONE: Final = (
    "ranks of the sequences that the clip leaves agree with the gradient's by 0.75, 0.77 and 0.64 alone in three runs "
    "of known gradients"
)
NO_RATIO: Final = "no old logprob is recorded: every ratio policy/old counts as 1, and nothing as clipped"
NO_LOGP: Final = "no logprob of the policy is recorded: every token's score counts the same"
SMALL_NUMBERS: Final = {1: "the first token", 3: "the first three"}
STEPS: Final[dict[str, pl.DataType]] = {
    "step": pl.Int64(),
    "tokens": pl.Int64(),
    "weight": pl.Float64(),  # sum of the absolute contributions
    "second_moment": pl.Float64(),  # sum of their squares
    "half_tokens": pl.Float64(),  # least share of the tokens that holds half
    "effective_sequences": pl.Float64(),
    "sequences": pl.Int64(),
    "post_share": pl.Float64(),  # of the contributions, after tool output
    "post_tokens": pl.Float64(),  # of the tokens
    "tail_share": pl.Float64(),
    "tail_tokens": pl.Float64(),
    "kl_share": pl.Float64(),
    "clipped": pl.Float64(),
}


@dataclass(frozen=True, kw_only=True)
class GatheredLedger:
    """The ledger and its tables."""

    ledger: Ledger
    tables: Mapping[str, pl.DataFrame]


def finding_to_explain(findings: tuple[Finding, ...]) -> Finding | None:
    """Return the first finding that the ledger explains."""
    return next((finding for finding in findings if finding.id in EXPLAINED), None)


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def gather_ledger(
    tokens: Tokens, evidence: Evidence, completions: Completions, finding: Finding, *, post_name: str, shortest: int
) -> GatheredLedger:
    """Weigh the tokens of some steps under the run's loss. `shortest`: tokens of an observation, by the settings."""
    facts = {**evidence.run.context, "framework": evidence.run.framework, "algorithm": evidence.run.algorithm}
    found = objective_of(facts, evidence.algorithm, evidence.scalars.loss if evidence.scalars else None)
    blank = Ledger(finding=finding.id, objective=found.said)
    recorded = np.unique(tokens.sound_rows["step"].drop_nulls().to_numpy())
    if found.unknown or len(recorded) < MIN_STEPS:
        return _not_judged(
            blank, f"ptt has no formula for the loss of {found.unknown}" if found.unknown
            else f"only {len(recorded)} steps are recorded"
        )  # fmt: skip
    try:
        audited = audited_tokens(
            tokens, completions, found.objective, shortest=shortest,
            formula=(evidence.advantages.formula if evidence.advantages else None) or evidence.algorithm.name,
        )  # fmt: skip
    except READ_ERRORS:
        return _not_judged(blank, "the rows of its steps cannot be read again")
    if isinstance(audited, str):
        return _not_judged(blank, audited)
    norms = evidence.metrics.get("grad_norm")
    return _ledger_of(audited, found, blank, finding, recorded, norms, post_name)


def _not_judged(blank: Ledger, reason: str) -> GatheredLedger:
    return GatheredLedger(ledger=replace(blank, reason=reason), tables={})


def score_norms(audited: AuditedTokens, weights: TokenWeights, logged: Series | None) -> FloatArray | None:
    """Return the norms of the scores, (tokens,): the least at the logits, times a factor by kind of token.

    The factors are fitted to the gradient norms that the run logs; None where too few steps have one.
    """
    least, kind = assumed_norms(audited), audited.kind
    steps, values = (np.zeros(0, np.int64), np.zeros(0)) if logged is None else logged.finite()
    _, here, there = np.intersect1d(audited.steps, steps, return_indices=True)
    shape = len(audited.steps), int(kind.max()) + 1
    squares = np.bincount(audited.step * shape[1] + kind, (weights.total * least) ** 2, shape[0] * shape[1])
    squares, norm = squares.reshape(shape)[here], values[there]
    if len(norm) < MIN_NORMS:
        return None
    at_cap = norm >= AT_CAP * norm.max(initial=0.0)
    usable = (norm > 0) & (squares.sum(axis=1) > 0) & ~(at_cap & (at_cap.mean() > MAX_AT_CAP))
    if usable.sum() < MIN_NORMS:
        return None
    return least * score_factors(squares[usable], norm[usable])[kind]


def assumed_norms(audited: AuditedTokens) -> FloatArray:
    """Return the least norms that scores can have at the logits, (tokens,); 1 where no logprob is recorded."""
    if audited.logp is None:
        return np.ones(len(audited.turn))
    low = score_bounds(audited.logp)[0]
    return np.where(np.isfinite(low), low, 1.0)


def _ledger_of(
    audited: AuditedTokens,
    found: FoundObjective,
    blank: Ledger,
    finding: Finding,
    recorded: IntArray,
    logged: Series | None,
    post_name: str,
) -> GatheredLedger:
    weights = token_weights(audited.policy, found.objective)
    norm = score_norms(audited, weights, logged)
    if norm is None:
        return _not_judged(blank, NO_NORMS.format(MIN_NORMS))
    size = np.abs(weights.total) * norm
    held = _held(audited, weights, norm)
    spans = split_steps(recorded.tolist(), len(WINDOWS))
    at = audited.steps[audited.step]
    window = np.searchsorted([span.first for span in spans], at, side="right") - 1
    since = _since(audited, finding, spans[-1].first)
    chosen, early, late = at >= since, window == 0, window == len(spans) - 1
    if not held.size[chosen].sum() > 0:
        return _not_judged(blank, f"every weight since step {since} is 0: no sample there has an advantage")
    attributes = list(_attributes(audited, post_name))
    moments = second_moments(size, audited.step, early=early, late=late)
    prices = price_guards(audited, found.objective, norm, early=early, late=late)
    ledger = replace(
        blank,
        since=since,
        steps=len(audited.steps),
        tokens=len(at),
        half_tokens=share_holding(held.size[chosen]),
        early_half_tokens=share_holding(held.size[early]) if held.size[early].any() else None,
        effective_sequences=_effective_sequences(audited, held.size, chosen),
        tail_share=float(held.size[chosen & audited.tail].sum() / held.size[chosen].sum()),
        tail_tokens=float(audited.tail[chosen].mean()),
        second_moment=moments,
        approximated="; ".join(_approximated(audited, found)),
        shares=_typed_shares(held, attributes, chosen),
        guards=prices,
        cheapest=cheapest_guard(prices, moments),
        **_said(audited, held.size, chosen, since, post_name),
    )
    tables = {
        "ledger": shares_by(held, attributes, window, WINDOWS[: len(spans)]),
        "ledger_steps": _by_step(audited, held, size),
        "ledger_guards": guard_table(prices),
    }
    return GatheredLedger(ledger=ledger, tables=tables)


def _approximated(audited: AuditedTokens, found: FoundObjective) -> Iterator[str]:
    """Yield what is not recorded, and what stands for it."""
    yield APPROXIMATED if audited.logp is not None else NO_LOGP
    if audited.policy.ratio is None and found.objective.surrogate != PLAIN:
        yield NO_RATIO
    if found.objective.level == SEQUENCE:
        yield SEQUENCES_ALONE


def _held(audited: AuditedTokens, weights: TokenWeights, norm: FloatArray) -> Contributions:
    """Return the contributions, each step's adding up to 1."""
    size, step = np.abs(weights.total) * norm, audited.step
    parts = {
        "size": size, "signed": weights.total * norm, "kl": np.abs(weights.kl) * norm,
        **{name: getattr(weights, name) * norm for name in ("masked", "truncated", "clipped")},
    }  # fmt: skip
    return Contributions(**{name: same_for_each_step(values, size, step) for name, values in parts.items()})


def _since(audited: AuditedTokens, finding: Finding, late: int) -> int:
    """Return the first step that the sentence is of: the finding's onset, else that of the late third."""
    onset = finding.onset_step
    usable = onset is not None and int((audited.steps >= onset).sum()) >= MIN_SINCE and onset > audited.steps[0]
    return onset if usable and onset is not None else late


def _effective_sequences(audited: AuditedTokens, size: FloatArray, chosen: BoolArray) -> float:
    """Return the effective number of sequences over the number of those with tokens."""
    row = audited.policy.row[chosen]
    return effective_number(_by_sequence(row, size[chosen])) / len(np.unique(row))


def _by_sequence(row: IntArray, size: FloatArray) -> FloatArray:
    """Return the sum of each sequence that has a token here, (sequences,); `row` is ascending."""
    starts = np.flatnonzero(np.diff(row, prepend=-1))
    return np.add.reduceat(size, starts) if len(row) else np.zeros(0)


# ---- who holds it


def _attributes(audited: AuditedTokens, post_name: str) -> Iterator[Attribute]:
    """Yield what tokens are told apart by, as far as it is recorded and has more than one value."""
    turn, row = audited.turn, audited.policy.row
    turns = [*map(str, range(MAX_TURN)), f"{MAX_TURN}+"]
    found = [
        Attribute("slice", (turn > 0).astype(np.int64), ("text_only", post_name)),
        Attribute("distance", distances(turn, audited.since), (BEFORE_ANY, *DISTANCES[1:])),
        Attribute("turn", np.minimum(turn, MAX_TURN), turns),
        _named("tool name", _after(turn, pl.col("tool"), audited)),
        _named("tool result", _after(turn, RESULT, audited)),
    ]
    if audited.r is not None:
        found.append(Attribute("tail", audited.tail.astype(np.int64), (f"|r| up to {TAIL:g}", f"|r| above {TAIL:g}")))
    for name, column in (("group", "group_id"), ("rank", "rank"), ("env", "env")):
        if column in audited.frame.columns:
            found.append(_named(name, audited.frame[column].cast(pl.String).gather(row)))
    if (outcome := _outcomes(audited)) is not None:
        found.append(outcome)
    yield from (one for one in found if len(np.unique(one.code[one.code >= 0])) > 1)


def _named(name: str, values: pl.Series) -> Attribute:
    """Return an attribute by the names of its values, in alphabetical order."""
    names = values.drop_nulls().unique().sort().to_list()
    code = values.replace_strict(names, list(range(len(names))), default=-1, return_dtype=pl.Int64) if names else None
    return Attribute(name, np.full(len(values), -1) if code is None else code.fill_null(-1).to_numpy(), names)


def _after(turn: IntArray, value: pl.Expr, audited: AuditedTokens) -> pl.Series:
    """Return what is known of the observation before each token; BEFORE_ANY where there is none."""
    before = pl.DataFrame({"turn": turn, "tool": audited.tool, "failed": audited.failed})
    return before.select(pl.when(pl.col("turn") == 0).then(pl.lit(BEFORE_ANY)).otherwise(value)).to_series()


def _outcomes(audited: AuditedTokens) -> Attribute | None:
    """Return whether a token's episode succeeded, by its sample, else whether its reward is above its group's mean."""
    frame, row = audited.frame, audited.policy.row
    told = frame["sample_success"]
    if told.is_not_null().any():
        code = told.cast(pl.Int64).fill_null(-1).to_numpy()
        return Attribute("outcome", code[row], OUTCOMES)
    if not {"reward", "group_id"} <= set(frame.columns) or not frame["reward"].is_finite().any():
        return None
    above = frame.select((pl.col("reward") > pl.col("reward").mean().over("step", "group_id")).cast(pl.Int64))
    return Attribute("outcome", above.to_series().fill_null(-1).to_numpy()[row], AGAINST_GROUP)


def _typed_shares(held: Contributions, attributes: Sequence[Attribute], chosen: BoolArray) -> tuple[LedgerShare, ...]:
    """Return the shares of the chosen tokens by value; values that are not known or have no row of their own lack."""
    part = Contributions(**{name: getattr(held, name)[chosen] for name in SUMMED})
    of_part = [replace(one, code=one.code[chosen]) for one in attributes]
    table = shares_by(part, of_part, np.zeros(len(part.size), np.int64), (SINCE,))
    rows = table.filter(~pl.col("rest"), pl.col("value").is_not_null())
    return tuple(
        LedgerShare(
            by=row["by"], value=row["value"], share=row["share"], token_share=row["token_share"], signed=row["signed"],
            kl=row["kl_share"] or 0.0, **{name: row[name] or 0.0 for name in ("masked", "truncated", "clipped")},
        )
        for row in rows.iter_rows(named=True)
    )  # fmt: skip


def _by_step(audited: AuditedTokens, held: Contributions, size: FloatArray) -> pl.DataFrame:
    """Return the update step by step (STEPS)."""
    step, count = audited.step, len(audited.steps)
    bounds = np.searchsorted(step, np.arange(count + 1))
    parts = [slice(int(first), int(end)) for first, end in pairwise(bounds)]
    by_row = [_by_sequence(audited.policy.row[part], size[part]) for part in parts]

    def share(of: FloatArray | BoolArray, among: FloatArray | None = None) -> FloatArray:
        weight = np.ones(len(step)) if among is None else among
        part: FloatArray = np.bincount(step, of * weight, count) / np.bincount(step, weight, count)
        return part

    rows = {
        "step": audited.steps,
        "tokens": np.diff(bounds),
        "weight": np.bincount(step, size, count),
        "second_moment": np.bincount(step, size**2, count),
        "half_tokens": [share_holding(size[part]) for part in parts],
        "effective_sequences": [effective_number(rows) for rows in by_row],
        "sequences": [int((rows > 0).sum()) for rows in by_row],
        "post_share": share(audited.turn > 0, size),
        "post_tokens": share(audited.turn > 0),
        "tail_share": share(audited.tail, size),
        "tail_tokens": share(audited.tail),
        "kl_share": np.bincount(step, held.kl, count),
        "clipped": np.bincount(step, held.clipped, count),
    }
    return pl.DataFrame(rows).select(pl.col(name).cast(kind) for name, kind in STEPS.items()).fill_nan(None)


# ---- in a sentence


def _said(audited: AuditedTokens, size: FloatArray, chosen: BoolArray, since: int, post_name: str) -> dict[str, str]:
    """Say how few tokens hold half of the update, and where most of these stand."""
    heavy = np.zeros(len(size), np.bool_)
    heavy[chosen] = heaviest(size[chosen])
    said = f"since step {since} half of the update comes from {pct(float(heavy.sum() / chosen.sum()))} of the tokens"
    best, lift, shares = "", MIN_LIFT, (0.0, 0.0)
    for words, place in _places(audited, post_name):
        inside, among = float(place[heavy].mean()), float(place[chosen].mean())
        if inside > MAJORITY and among > 0 and inside / among > lift:
            best, lift, shares = words, inside / among, (inside, among)
    if not best:
        return {"said": f"{said}; no tool, result or distance holds most of them"}
    inside, among = shares
    beside = f"{pct(inside)} of them, {pct(among)} of all tokens"
    return {"said": f"{said}, most of them {best} ({beside})", "place": best}


def _places(audited: AuditedTokens, post_name: str) -> Iterator[tuple[str, BoolArray]]:
    """Yield the places that most of the heaviest tokens may stand in, in words."""
    turn, since = audited.turn, audited.since
    output = "tool output" if post_name == "post_tool" else "an observation"
    yield f"before any {output.removeprefix('an ')}", turn == 0
    tools = audited.tool.drop_nulls().value_counts(sort=True).sort("count", "tool", descending=[True, False])
    kinds = [(output, turn > 0)]
    kinds += [(f"`{tool}` results", (audited.tool == tool).fill_null(value=False).to_numpy()) for tool in
              tools["tool"].head(MAX_TOOLS)]  # fmt: skip
    kinds.append(("failed calls", audited.failed.fill_null(value=False).to_numpy()))
    for words, after in kinds:
        yield f"after {words}", after
        for near in NEAR:
            yield f"{SMALL_NUMBERS.get(near, f'the first {near}')} after {words}", after & (since < near)
