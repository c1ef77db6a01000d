"""The sampled tokens of some steps with what their weight in the loss follows from, and where they stand.

Read again from the run's files, of steps spread over it; of large steps, some prompt groups, whole.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.evidence.audited_batch import MODEL, TRAIN, Batch
from ptt.diagnostics.evidence.audited_steps import MAX_TOKENS, rows_of_sequences
from ptt.diagnostics.evidence.completions import Completions
from ptt.diagnostics.evidence.tail_details import observations_of_tied, tied_samples
from ptt.diagnostics.statistics.advantage_estimators import ESTIMATORS, RewardedBatch
from ptt.diagnostics.statistics.advantage_faults import codes_of
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray
from ptt.diagnostics.statistics.slices import ModelRuns, lay_out
from ptt.diagnostics.statistics.token_weights import PLAIN, Objective, PolicyTokens

TAIL: Final = 2.0  # nats: a weight of 7.4 or 1/7.4; p95 beyond it is material to the rule on tails
CUT_TOKENS: Final = 1 << 17  # of a run that has more than MAX_TOKENS: a twentieth of the time of a diagnosis
LEAST_STEPS: Final = 24  # are weighed, however long they are
MOST_STEPS: Final = 192  # of short steps: logged gradient norms of so many tell how long scores are
NEAR_EDGES: Final = (1, 4, 8, 16)  # tokens since the answer began, or since the last observation
OF_SAMPLES: Final = ("reward", "advantage", "success", "group_id")  # of a logged sample, where the row lacks them


@dataclass(frozen=True, kw_only=True)
class AuditedTokens:
    """The policy's own tokens of some steps, (tokens,) each unless said otherwise."""

    frame: pl.DataFrame  # (rows,)
    steps: IntArray  # (steps,) the numbers of the steps
    policy: PolicyTokens
    logp: FloatArray | None
    r: FloatArray | None  # log ratio of the main pair
    pairs: Mapping[str, FloatArray]  # by name, log ratios of the others
    turn: IntArray  # observations before it
    since: IntArray  # tokens between the last of these, or the beginning, and it
    tool: pl.Series  # of the last observation; null where not known
    failed: pl.Series

    @property
    def step(self) -> IntArray:
        """The number of each token's step, from 0."""
        of_token: IntArray = self.policy.step[self.policy.row]
        return of_token

    @property
    def kind(self) -> IntArray:
        """What its score's norm is taken to depend on: before or after tools, and how far into the text."""
        octave = np.digitize(self.since, NEAR_EDGES)
        of_token: IntArray = np.where(self.turn > 0, len(NEAR_EDGES) + 1 + octave, octave)
        return of_token

    @property
    def tail(self) -> BoolArray:
        """Whether |r| of the main pair lies beyond TAIL."""
        return np.zeros(len(self.turn), np.bool_) if self.r is None else np.abs(self.r) > TAIL


def audited_tokens(
    tokens: Tokens, completions: Completions, objective: Objective, *, shortest: int, formula: str | None
) -> AuditedTokens | str:
    """Read rows of steps spread over the run and lay their sampled tokens end to end; a text says what is missing.

    `shortest`: tokens of an observation, by the settings; `formula`: of the estimator of the advantages.
    """
    lines = lines_to_weigh(tokens)
    frame = rows_of_sequences(tokens.scan, lines.select("seq"))
    tied = tied_samples(tokens, completions, lines)
    frame = _with_samples(frame, tied, completions)
    batch = Batch(frame)
    runs, own, advantage = _runs(frame, shortest), batch.mask(MODEL), _advantages(batch, formula)
    if own is None or runs is None:
        return "the masks of its steps do not fit their tokens"
    if advantage is None:
        return "no advantage is recorded, and no reward by prompt group to compute it from"
    columns = {
        "ratio": None if objective.surrogate == PLAIN else batch.log_ratio("policy/old"),
        "engine": batch.log_ratio("old/rollout") if math.isfinite(objective.cap) else None,
        "ref": batch.log_ratio("policy/ref") if objective.kl else None,
    }
    kept = own & np.isfinite(advantage)
    for values in columns.values():
        kept = kept if values is None else kept & np.isfinite(values)
    if not kept.any():
        return "no token has both an advantage and the logprobs that the loss takes"
    row = np.repeat(np.arange(batch.rows), batch.layout.lengths)[kept]
    trained, logp = batch.mask(TRAIN), batch.flat("policy_logp")
    turn, since = (values[kept[own]] for values in _positions(runs))
    before = _observations(frame["seq"].gather(row), turn, observations_of_tied(tokens, completions, lines, tied))
    pairs = {pair.name: r[kept] for pair in tokens.pairs if (r := batch.log_ratio(pair.name)) is not None}
    policy = PolicyTokens(
        row=row,
        step=batch.layout.step,
        advantage=advantage[kept],
        trained=np.ones(len(row), np.bool_) if trained is None else trained[kept],
        **{name: None if values is None else values[kept] for name, values in columns.items()},
    )
    return AuditedTokens(
        frame=frame, steps=batch.steps, policy=policy, logp=None if logp is None else logp[kept],
        r=pairs.get(tokens.pairs[0].name) if tokens.pairs else None, pairs=pairs, turn=turn, since=since,
        tool=before["tool"], failed=before["failed"],
    )  # fmt: skip


def lines_to_weigh(tokens: Tokens) -> pl.DataFrame:
    """Choose sequences of steps spread over the run, in pairs; of large steps every n-th prompt group, whole."""
    lines = tokens.sound_rows.drop_nulls("step")
    recorded = lines["step"].unique().sort().to_numpy()
    a_step = max(float(lines["length"].cast(pl.Int64).sum()) / max(len(recorded), 1), 1.0)
    number = min(max(LEAST_STEPS, int(MAX_TOKENS / a_step)), MOST_STEPS)
    if len(recorded) > number:
        firsts = np.linspace(0, len(recorded) - 2, number // 2).round().astype(np.int64)
        recorded = recorded[np.unique(firsts[:, None] + np.arange(2))]
    lines = lines.filter(pl.col("step").is_in(recorded.tolist()))
    total = int(lines["length"].cast(pl.Int64).sum())
    if total <= MAX_TOKENS:
        return lines
    every = -(-total // CUT_TOKENS)
    groups = lines.select("seq", group_id=pl.lit(None, pl.String))
    if "group_id" in tokens.scalars.columns:
        groups = lines.select("seq").join(tokens.scalars.select("seq", "group_id"), on="seq", how="left")
    named = lines.join(groups, on="seq", how="left", maintain_order="left")
    place = pl.coalesce("group_id", pl.format("{}", "seq")).rank("dense").over("step")
    return named.filter((place - 1) % every == 0).drop("group_id")


def _runs(frame: pl.DataFrame, shortest: int) -> ModelRuns | None:
    """Return the runs of sampled tokens; a row that names its tools says how many observations it has."""
    if "tool_names" in frame.columns:
        frame = frame.with_columns(tool_count=pl.col("tool_names").list.len().cast(pl.Int64))
    laid = lay_out(frame, [], shortest)
    return None if laid is None else laid.runs


def _positions(runs: ModelRuns) -> tuple[IntArray, IntArray]:
    """Return the observations before each sampled token, and the tokens since the last of these, (sampled,)."""
    within = np.arange(int(runs.length.sum())) - np.repeat(np.cumsum(runs.length) - runs.length, runs.length)
    return np.repeat(runs.turn, runs.length), np.repeat(runs.since, runs.length) + within


def _observations(seq: pl.Series, turn: IntArray, known: pl.DataFrame) -> pl.DataFrame:
    """Return tool and failure of the last observation before each token, null where there is none or it is unknown."""
    tokens = pl.DataFrame({"seq": seq, "turn": turn.astype(np.uint32)})
    return tokens.join(
        known.with_columns(pl.col("seq").cast(seq.dtype)), on=["seq", "turn"], how="left", maintain_order="left"
    )


def _with_samples(frame: pl.DataFrame, tied: pl.DataFrame, completions: Completions) -> pl.DataFrame:
    """Add what the logged sample of a row says, as `sample_` columns, and under its own name where the row lacks it."""
    named = {name: f"sample_{name}" for name in OF_SAMPLES}
    of_sample = completions.trajectories.select("trajectory_id", *OF_SAMPLES).unique("trajectory_id", keep="first")
    known = tied.join(of_sample, on="trajectory_id").drop("trajectory_id").rename(named)
    joined = frame.join(
        known.with_columns(pl.col("seq").cast(frame["seq"].dtype)), on="seq", how="left", maintain_order="left"
    )
    absent = [pl.col(f"sample_{name}").alias(name) for name in ("reward", "group_id") if name not in joined.columns]
    return joined.with_columns(absent)


def _advantages(batch: Batch, formula: str | None) -> FloatArray | None:
    """Return each token's advantage: recorded, else the logged sample's, else the estimator's of the rewards."""
    recorded = batch.flat("advantage")
    if recorded is not None and np.isfinite(recorded).any():
        return recorded
    of_rows = batch.row("sample_advantage")
    if of_rows is None:
        of_rows = _estimated(batch, formula)
    return None if of_rows is None else np.repeat(of_rows, batch.layout.lengths)


def _estimated(batch: Batch, formula: str | None) -> FloatArray | None:
    """Return the advantages of an estimator, GRPO's where none is known, (rows,)."""
    reward, groups = batch.row("reward"), batch.groups
    if reward is None or groups is None or not np.isfinite(reward).all():
        return None
    estimator = next((one for one in ESTIMATORS if one.formula == formula), ESTIMATORS[0])
    rewarded = RewardedBatch(
        reward=reward, group=codes_of(groups), batch=batch.layout.step, length=batch.row("own_length")
    )
    estimate = estimator.estimate(rewarded)
    return None if estimate is None else estimate[0]
