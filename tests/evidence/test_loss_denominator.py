"""What the loss is divided by, from settings and from what gives the logged loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from audited_runs import CLIP, Row, frame_of_rows, k3, log_of, mean, over, positions, run_rows
from builders import series_of, write_recorder_run
from slow_cases import first_fast

from ptt import Diagnosis, diagnose
from ptt.diagnostics.evidence.audited_batch import Batch
from ptt.diagnostics.evidence.loss_denominator import LossAudit, audit_loss
from ptt.diagnostics.evidence.scalar_candidates import Facts
from ptt.diagnostics.model import Agreement, AuditRow
from ptt.diagnostics.schema import ADVANTAGE

BETA = 0.04
Reduce = Callable[[Sequence[Row], Callable[[Row, int], float]], float]


def token_loss(row: Row, at: int) -> float:
    weight = math.exp(float(row["policy_logp"][at] - row["old_logp"][at]))
    clip = min(max(weight, 1 - CLIP), 1 + CLIP)
    advantage = float(row["advantage"])
    return -min(weight * advantage, clip * advantage) + BETA * k3(row, at)


def token_mean(rows: Sequence[Row], value: Callable[[Row, int], float]) -> float:
    return mean(over(rows, value))


def sequence_mean(rows: Sequence[Row], value: Callable[[Row, int], float]) -> float:
    return mean(mean(over([row], value)) for row in rows)


STEPS = run_rows(seed=20)
FRAME = frame_of_rows(STEPS).rename({"advantage": ADVANTAGE})


def judged(folder: Path, reduce: Reduce, *, factor: float = 1.0) -> Diagnosis:
    log = log_of(STEPS) | {"loss": [factor * reduce(rows, token_loss) for rows in STEPS]}
    return diagnose(write_recorder_run(folder, frame_of_rows(STEPS), metrics=log))


def audit(reduce: Reduce, facts: Facts, *, factor: float = 1.0) -> LossAudit:
    loss = series_of("loss/total", [factor * reduce(rows, token_loss) for rows in STEPS])
    return audit_loss(Batch(FRAME), {"loss/total": loss}, facts)


def audited(diagnosis: Diagnosis, quantity: str) -> AuditRow:
    (row,) = (row for row in diagnosis.audit or () if row.quantity == quantity)
    return row


@pytest.mark.parametrize(("reduce", "name"), first_fast([(sequence_mean, "sequence_mean"), (token_mean, "token_mean")]))
def test_the_logged_loss_tells_its_denominator_and_the_coefficient_of_the_kl(
    reduce: Reduce, name: str, tmp_path: Path
) -> None:
    diagnosis = judged(tmp_path / "run", reduce)
    loss = audited(diagnosis, "loss/total")
    assert (loss.agreement, loss.reduction) == (Agreement.AGREES, name)
    assert "plus 0.040 times the KL" in loss.said
    fact = audited(diagnosis, "loss denominator")
    assert (fact.agreement, fact.reduction) == (Agreement.FACT, name)


def test_a_mean_of_answers_means_weighs_tokens_of_short_answers_more(tmp_path: Path) -> None:
    said = audited(judged(tmp_path / "run", sequence_mean), "loss denominator").said
    lengths = sorted(len(positions(row)) for rows in STEPS for row in rows)
    assert f"an answer of {lengths[len(lengths) // 10]} tokens (p10) weighs" in said


def test_a_loss_off_by_no_clean_factor_is_told_and_no_finding(tmp_path: Path) -> None:
    diagnosis = judged(tmp_path / "run", token_mean, factor=0.25)
    loss = audited(diagnosis, "loss/total")
    assert loss.agreement is Agreement.DIFFERS
    assert loss.said.startswith("0.25 times the clipped surrogate")
    assert not [one for one in diagnosis.findings if one.id == "miscounted-metric"]


def test_settings_tell_the_denominator_where_the_loss_does_not() -> None:
    (fact,) = audit_loss(Batch(FRAME), {}, {"loss_agg_mode": "seq-mean-token-sum-norm"}).rows
    assert fact.said.startswith("the loss is a sum over all trained tokens divided by the answers times a constant")
    assert "loss_agg_mode = seq-mean-token-sum-norm" in fact.said


@pytest.mark.parametrize(("mask", "words"), [(True, "are left out of it"), (False, "count in it")])
def test_whether_truncated_answers_count_is_said(mask: bool, words: str) -> None:
    (fact,) = audit_loss(Batch(FRAME), {}, {"loss_type": "dapo", "mask_truncated_completions": mask}).rows
    assert words in fact.said


def test_a_loss_that_its_settings_contradict_is_wrong() -> None:
    assert not audit(token_mean, {"loss_type": "dapo", "beta": BETA}).wrong
    assert not audit(sequence_mean, {"loss_type": "grpo", "beta": BETA}).wrong
    assert "although loss_type = grpo" in audit(token_mean, {"loss_type": "grpo", "beta": BETA}).wrong
    twice = audit(sequence_mean, {"loss_type": "grpo", "beta": BETA, "gradient_accumulation_steps": 4}, factor=0.25)
    assert twice.wrong.startswith("is divided by the 4 accumulation steps once more")


def test_without_advantages_there_is_no_loss_to_recompute() -> None:
    batch = Batch(FRAME.drop(ADVANTAGE))
    loss = series_of("loss/total", [0.1] * len(STEPS))
    assert audit_loss(batch, {"loss/total": loss}, {}).rows == ()
