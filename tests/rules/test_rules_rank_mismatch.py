"""Ranks beside each other: one that samples from another policy, all that differ alike, and those that do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from builders import Array, run_of, tokens_of
from rule_cases import BY_ID, broken, healthy, not_judged
from slow_cases import first_fast

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.mismatch import gather_rank_mismatch
from ptt.diagnostics.model import RuleVerdict, Severity
from ptt.diagnostics.statistics.token_pass import token_pass

STEPS, TOKENS = 80, 25
Spread = Callable[[int, int], float]
"""From step and rank the standard deviation of r = trainer - engine, nats."""


def sequences(spread: Spread, *, ranks: int = 2, steps: int = STEPS, each: int = 4, seed: int = 3) -> pl.DataFrame:
    draw = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for step in range(1, steps + 1):
        for rank in range(ranks):
            for _ in range(each):
                likely = -draw.exponential(size=TOKENS) - 3
                row = {"seq": len(rows), "step": step, "rank": rank, "model_mask": [True] * TOKENS, "old_logp": likely}
                rows.append(row | {"rollout_logp": likely - spread(step, rank) * heavy(draw)})
    types: dict[str, Any] = {"seq": pl.UInt32, "step": pl.Int64, "rank": pl.Int32, "model_mask": pl.List(pl.Boolean)}
    return pl.DataFrame(rows, schema=types | dict.fromkeys(("old_logp", "rollout_logp"), pl.List(pl.Float64)))


def heavy(draw: np.random.Generator) -> Array:
    """Student's t with three degrees of freedom, its largest values cut, at the scale of the whole sequence."""
    return np.clip(draw.standard_t(3, size=TOKENS), -12, 12) * draw.exponential()


def verdict(frame: pl.DataFrame) -> RuleVerdict:
    tokens = tokens_of(frame)
    tables = token_pass(frame.lazy(), pairs=tokens.pairs, min_observation=4, sample_every=1)
    found = gather_rank_mismatch(replace(tokens, tables=tables))
    return BY_ID["rank-mismatch"].run(Evidence(run=run_of(), rank_mismatch=found))


def stale(step: int, rank: int, *, bad: int = 1, since: int = 1) -> float:
    """A sampler of one rank that gets new weights every 24 steps."""
    return 0.004 * ((step - 1) % 24) if rank == bad and step >= since else 1e-6


def test_a_rank_with_a_stale_sampler_is_named() -> None:
    finding = broken(verdict(sequences(stale)), severity=Severity.MEDIUM)
    assert finding.evidence["rank"] == 1
    assert "rank 1 of 2" in finding.claim
    assert finding.seen_step is not None
    assert finding.seen_step <= 24


def test_a_rank_that_breaks_in_mid_run_is_dated() -> None:
    finding = broken(verdict(sequences(lambda step, rank: 0.3 if (rank, step > 30) == (2, True) else 1e-6, ranks=4)))
    assert finding.evidence["rank"] == 2
    assert finding.onset_step == 31


def test_a_rank_whose_every_token_is_a_little_off_is_seen_in_the_mean() -> None:
    frame = sequences(lambda step, rank: 1e-6)
    moved = pl.when(pl.col("rank") == 0).then(0.1).otherwise(0.0)
    frame = frame.with_columns(pl.col("rollout_logp") - moved)
    finding = broken(verdict(frame))
    assert (finding.unit, finding.evidence["rank"]) == ("nats", 0)


def test_two_bad_ranks_of_five_are_counted() -> None:
    finding = broken(verdict(sequences(lambda step, rank: 0.3 if rank > 2 else 0.001, ranks=5)))
    assert finding.evidence["ranks_off"] == 2


@pytest.mark.parametrize("ranks", first_fast([2, 3, 8], 2))
@pytest.mark.parametrize("spread", [1e-6, 0.01, 0.2])
def test_ranks_that_differ_alike_are_not_accused(ranks: int, spread: float) -> None:
    healthy(verdict(sequences(lambda step, rank: spread, ranks=ranks, seed=ranks)))


def test_a_difference_that_is_sure_but_tiny_is_no_fault() -> None:
    assert "rank 1" in healthy(verdict(sequences(lambda step, rank: 0.004 if rank else 1e-6))).reason


def test_a_rank_that_is_a_little_further_off_than_all_others_is_not_what_is_wrong() -> None:
    assert "rank 1" in healthy(verdict(sequences(lambda step, rank: 0.4 if rank else 0.3))).reason


def test_a_few_wild_steps_are_no_lasting_difference() -> None:
    healthy(verdict(sequences(lambda step, rank: 2.0 if rank == 1 and step % 40 < 4 else 0.001)))


def test_one_rank_or_few_steps_cannot_be_compared() -> None:
    not_judged(verdict(sequences(stale, ranks=1)))
    not_judged(verdict(sequences(stale, steps=8)))
