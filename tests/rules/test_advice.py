"""Advice that the run's own record shows to be followed is not given; the rest of it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from builders import Story, aggregates, evidence_of, run_of, sequences_of, series_of, steady
from rule_cases import judged, level

from ptt.diagnostics.metrics.recording import how_to_record
from ptt.diagnostics.model import NotJudged, Run
from ptt.diagnostics.rules.single_series import more_tokens
from ptt.diagnostics.rules.tool_tail_growth import judge

WILD = Story(post=lambda done: 4.0 if int(done * 40) % 3 else 1.0, steps=40, sequences=4)


def ended(run: Run, **changes: Any) -> Run:
    return replace(run, context={"max_steps": run.last_step, "global_step": run.last_step}, **changes)


def advice(rule: str, stride: int, *, finished: bool) -> str:
    """What a rule says that needs more values than the eight that a run logged."""
    steps = list(range(stride, 8 * stride + 1, stride))
    run = run_of(last_step=steps[-1])
    loss = series_of("loss/total", level(1.0, 8), steps=steps)
    verdict = judged(rule, {"loss/total": loss}, run=ended(run) if finished else run)
    assert isinstance(verdict, NotJudged)
    return verdict.enable


@pytest.mark.parametrize("rule", ["loss-divergence", "frozen-loss", "metrics-lost"])
def test_more_rows_are_asked_for_only_as_they_can_still_be_had(rule: str) -> None:
    going_on, finished = "train for more steps", "every step of it is logged"
    assert advice(rule, 5, finished=False) == f"{going_on}, or log every step, and judge it again"
    assert advice(rule, 1, finished=False) == f"{going_on}, and judge it again"
    assert advice(rule, 5, finished=True) == "log every step, and judge it again"
    assert finished in advice(rule, 1, finished=True)


def test_values_that_are_no_numbers_are_not_asked_for_more_often() -> None:
    values = level(1.0, 60)
    values[5:] = np.nan
    verdict = judged("loss-divergence", {"loss/total": values})
    assert isinstance(verdict, NotJudged)
    assert "more steps" not in verdict.enable
    assert "finite" in verdict.enable


def test_a_tail_of_many_tokens_at_every_step_is_not_told_to_record_them() -> None:
    evidence = evidence_of(sequences_of(WILD))
    assert evidence.tails is not None
    assert min(evidence.tails.post.window_tokens) >= 300
    assert more_tokens(evidence, evidence.tails) == "train for more steps, and judge it again"
    few = judge(evidence_of(sequences_of(replace(WILD, post=steady(1.0), sequences=1, steps=12))), aggregates()).verdict
    assert isinstance(few, NotJudged)
    assert "300 post-tool tokens" in few.enable
    assert "every step" not in few.enable


def test_a_recorder_at_work_is_told_what_it_needs_besides_and_of_missing_columns_alone() -> None:
    whole = how_to_record("trl", ["old_logp", "rollout_logp"])
    assert whole is not None
    assert "ptt.recorders.trl" in whole
    assert "ref_logp" not in whole
    recorded = frozenset({"policy_logp", "ref_logp", "old_logp"})
    assert how_to_record("trl", ["rollout_logp"], recorded=recorded) == "in TRL: rollout_logp needs use_vllm=True"
