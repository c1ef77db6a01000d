"""What a watch would have done of a finished run: in the diagnosis, on its page, and in findings.json and back."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from builders import Story, sequences_of, steady, stepped, write_recorder_run
from html_structure import page_with

from ptt import Diagnosis, diagnose
from ptt.diagnostics.store.findings_file import read_findings
from ptt.reports.run.findings_json import findings_json

STEPS = 80
SAID = "It could have been stopped at step"


def judged(folder: Path, story: Story, **metrics: list[float]) -> Diagnosis:
    return diagnose(write_recorder_run(folder, sequences_of(story), metrics=metrics))


@pytest.fixture(scope="module")
def fault(tmp_path_factory: pytest.TempPathFactory) -> Diagnosis:
    kl = [0.02 if step < STEPS / 2 else 0.2 for step in range(STEPS)]
    return judged(tmp_path_factory.mktemp("fault"), Story(steps=STEPS, post=stepped(0.1, 1.5)), kl=kl)


def test_a_run_whose_tail_grew_could_have_been_stopped_soon_after(fault: Diagnosis) -> None:
    replay = fault.stop_replay
    assert replay is not None
    assert replay.step is not None
    assert STEPS / 2 < replay.step < STEPS / 2 + 25
    assert replay.since_step == STEPS // 2 + 1
    assert (replay.rule, replay.last_step, replay.budget) == ("tool-tail-growth", STEPS, 0.01)
    assert {"rollback", "kl-cap", "tail-cap", "curriculum"} == {guard.name for guard in replay.guards}


def test_its_page_and_its_findings_say_so(fault: Diagnosis, tmp_path: Path) -> None:
    assert fault.stop_replay is not None
    said = f"{SAID} {fault.stop_replay.step} of {STEPS}, at one false stop in 100 runs."
    page = page_with(fault)
    assert said in page
    assert "Cap the mean KL at 0.04" in page
    written = findings_json(fault, "0")
    assert json.loads(written)["stop_replay"]["said"] == said
    file = tmp_path / "findings.json"
    file.write_text(written, encoding="utf-8")
    assert json.loads(findings_json(read_findings(file), "0"))["stop_replay"] == json.loads(written)["stop_replay"]


@pytest.mark.slow
def test_a_healthy_run_would_have_gone_to_its_end(tmp_path: Path) -> None:
    diagnosis = judged(tmp_path, Story(steps=STEPS, post=steady(0.1)), kl=[0.02] * STEPS)
    assert diagnosis.stop_replay is not None
    assert diagnosis.stop_replay.step is None
    assert "tool-tail-growth" in diagnosis.stop_replay.watched
    assert SAID not in page_with(diagnosis)


def test_logprobs_that_are_wrong_stop_nothing(tmp_path: Path) -> None:
    frame = sequences_of(Story(steps=STEPS))
    shifted = pl.col("ref_logp").list.eval(pl.element().shift(1, fill_value=-1.0))
    late = pl.when(pl.col("step") > STEPS // 2).then(shifted).otherwise(pl.col("ref_logp"))
    diagnosis = diagnose(write_recorder_run(tmp_path, frame.with_columns(late.alias("ref_logp"))))
    assert "shifted-logprobs" in {finding.id for finding in diagnosis.findings}
    assert diagnosis.stop_replay is None


def test_a_kl_that_is_a_sum_over_the_sequence_is_not_held_against_a_limit_of_tokens(tmp_path: Path) -> None:
    values = [0.5] * 30 + [5.0] * 50
    rows = [{"step": step, "objective/kl": kl, "reward": 0.5} for step, kl in enumerate(values, start=1)]
    file = tmp_path / "metrics.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    replay = diagnose(file).stop_replay
    assert replay is None or "kl-over-target" not in replay.watched


@pytest.mark.parametrize("cut_from", [None, 15])
def test_a_stop_that_the_whole_run_clears_is_told_nowhere(tmp_path: Path, cut_from: int | None) -> None:
    noise = np.random.default_rng(0).normal(size=(400, 3))
    lost = np.interp(np.arange(400), [59, 60, 80, 266], [0.6, 0.02, 0.02, 0.95])
    rows = [
        {"step": at + 1, "reward": max(0.0, lost[at] + 0.01 * one[0]), "grad_norm": 0.3 + 0.01 * one[1],
         "completions/clipped_ratio": 0.02 if cut_from is None or at < cut_from else 0.8 + 0.01 * one[2]}
        for at, one in enumerate(noise)
    ]  # fmt: skip
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    diagnosis = diagnose(tmp_path)
    assert diagnosis.stop_replay is not None
    assert (diagnosis.stop_replay.rule, diagnosis.stop) == ("reward-fell", None)
    page = page_with(diagnosis)
    assert SAID not in page
    assert "What to set so that it does not happen again" not in page
    assert (diagnosis.cost is None) is (cut_from is None)
    assert diagnosis.cost is None or (diagnosis.cost.stop_step, diagnosis.cost.onset_step) == (None, 16)
