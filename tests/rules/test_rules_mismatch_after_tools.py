"""Trainer against engine after tool output: how much, and what its shape points to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from builders import Array, run_of, tokens_of
from slow_cases import first_fast

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.mismatch import gather_mismatch
from ptt.diagnostics.model import Broken, Finding, Healthy, NotJudged, RuleVerdict, Severity
from ptt.diagnostics.rules.data_freshness import mismatch_after_tools
from ptt.diagnostics.statistics.token_pass import token_pass

HEAD, OBSERVATION, TAIL = 40, 8, 40
Off = Callable[[np.random.Generator, Array, Array, int], Array]
"""From the trainer's logprobs of a sequence, how many tokens each is past the tool output (-1: before), and the
lag to r = trainer - engine."""


def sequences(off: Off, *, likely: float = 1.0, floor: float = 2.0, versions: bool = False) -> pl.DataFrame:
    draw = np.random.default_rng(11)
    since = np.concatenate([np.full(HEAD + OBSERVATION, -1.0), np.arange(TAIL)])
    rows: list[dict[str, Any]] = []
    for number in range(400):
        logp = -draw.exponential(1.0, len(since)) * np.where(since >= 0, 1.0, likely) - floor
        lag = number % 8
        rows.append(
            {
                "seq": number,
                "step": 10 + number // 8,
                "model_mask": [True] * HEAD + [False] * OBSERVATION + [True] * TAIL,
                "old_logp": logp,
                "rollout_logp": np.minimum(logp - off(draw, logp, since, lag), -1e-6),
                "policy_version": 10 + number // 8 - lag if versions else 0,
            }
        )
    types: dict[str, Any] = {"seq": pl.UInt32, "step": pl.Int64, "model_mask": pl.List(pl.Boolean)}
    types |= dict.fromkeys(("old_logp", "rollout_logp"), pl.List(pl.Float64))
    return pl.DataFrame(rows, schema=types | {"policy_version": pl.Int64})


def noise(draw: np.random.Generator, logp: Array, since: Array, lag: int) -> Array:
    return 0.05 * logp * draw.normal(size=len(logp))


def context(draw: np.random.Generator, logp: Array, since: Array, lag: int) -> Array:
    return np.where(since >= 0, 0.3, 0.002) * draw.normal(size=len(logp))


def boundary(draw: np.random.Generator, logp: Array, since: Array, lag: int) -> Array:
    return np.where((since >= 0) & (since < 4), 1.0, 0.002) * draw.normal(size=len(logp))


def one_sided(draw: np.random.Generator, logp: Array, since: Array, lag: int) -> Array:
    return np.where(since >= 0, -np.abs(0.3 + 0.05 * draw.normal(size=len(logp))), 0.0)


def warmer(draw: np.random.Generator, logp: Array, since: Array, lag: int) -> Array:
    return np.where(since >= 0, -0.4 * logp, 0.0) + 0.01 * draw.normal(size=len(logp))


def stale(draw: np.random.Generator, logp: Array, since: Array, lag: int) -> Array:
    return np.where(since >= 0, 0.1 * lag, 0.0) * draw.normal(size=len(logp))


def moved(draw: np.random.Generator, logp: Array, since: Array, lag: int) -> Array:
    return context(draw, logp, since, lag)


def judged(frame: pl.DataFrame) -> RuleVerdict:
    tokens = tokens_of(frame)
    kept_whole = token_pass(frame.lazy(), pairs=tokens.pairs, min_observation=1, sample_every=1)
    shape = gather_mismatch(replace(tokens, tables=kept_whole), post_name="post_tool")
    return mismatch_after_tools.RULE.run(Evidence(run=run_of(), mismatch=shape))


def note(verdict: RuleVerdict) -> Finding:
    match verdict:
        case Broken(findings=(finding,)) | Healthy(notes=(finding,)):
            return finding
    raise AssertionError(verdict)


@pytest.mark.parametrize(
    ("off", "cause"),
    first_fast(
        [
            (context, "a different context"),
            (boundary, "tokenised differently"),
            (one_sided, "truncated sampling"),
            (warmer, "a different temperature"),
            (stale, "old weights"),
            (moved, "moved since it sampled"),
        ],
        3,
    ),
    ids=lambda value: getattr(value, "__name__", None),
)
def test_the_shape_of_a_difference_after_tool_output_points_to_its_cause(off: Off, cause: str) -> None:
    frame = sequences(off, versions=off is stale)
    if off is moved:  # every second step is the first on its batch
        first = pl.col("step") % 2 == 0
        frame = frame.with_columns(rollout_logp=pl.when(first).then("old_logp").otherwise("rollout_logp"))
    finding = note(judged(frame))
    assert cause in str(finding.evidence["cause"])
    assert cause in finding.claim
    assert finding.severity in (Severity.LOW, Severity.INFO)
    assert finding.evidence["share_of_differences"] > 0.9  # type: ignore[operator]
    assert finding.evidence["p95_post_tool"] > finding.evidence["p95_text_only"]  # type: ignore[operator]


def test_noise_on_improbable_tokens_after_tools_is_precision() -> None:
    def rounding(draw: np.random.Generator, logp: Array, since: Array, lag: int) -> Array:
        return 0.1 * logp * draw.normal(size=len(logp))

    finding = note(judged(sequences(rounding, likely=0.25, floor=0.01)))
    assert "precision" in str(finding.evidence["cause"])


def test_noise_alike_before_and_after_tools_is_no_finding() -> None:
    verdict = judged(sequences(noise))
    assert isinstance(verdict, Healthy)
    assert verdict.notes == ()


def test_the_dose_is_that_of_the_tokens() -> None:
    finding = note(judged(sequences(context)))
    assert finding.evidence["p95_post_tool"] == pytest.approx(0.3 * 1.96, rel=0.05)
    assert finding.evidence["mean_post_tool"] == pytest.approx(0.3 * 0.798, rel=0.05)
    assert finding.evidence["beyond_clip_range_post_tool"] == pytest.approx(0.505, rel=0.05)


def test_without_tool_output_nothing_can_be_said() -> None:
    frame = sequences(context).with_columns(model_mask=pl.lit([True] * (HEAD + OBSERVATION + TAIL)))
    assert isinstance(judged(frame), NotJudged)
