"""The settings of the reproduction's GPU runs, built by the real TRL without a GPU."""

from __future__ import annotations

from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from examples.reproduction import gpu, run
from examples.reproduction.arms import ARMS
from ptt.recorders.trl import plan_of

with_trl = [
    pytest.mark.trl,
    pytest.mark.skipif(find_spec("trl") is None, reason="TRL is not installed; make test-trl installs it"),
]


@pytest.mark.parametrize("name", [pytest.param(name, marks=with_trl) for name in ARMS])
def test_the_settings_of_an_arm_are_ones_of_trl_and_record_all_pairs(name: str, tmp_path: Path) -> None:
    from trl import GRPOConfig

    from examples.reproduction.train import SEQUENCES, config

    setting = ARMS[name]
    changed = gpu.gpu_settings(setting, bf16=False)  # transformers refuses bf16 where there is no GPU
    assert set(changed) <= {field.name for field in fields(GRPOConfig)}
    built = config(setting, seed=1, steps=3, out=tmp_path, changed=changed)
    assert (built.use_vllm, built.vllm_mode) == (True, "colocate")
    assert built.generation_batch_size == SEQUENCES
    assert built.learning_rate == pytest.approx(setting.learning_rate / 100)
    plan = plan_of(SimpleNamespace(args=built))
    assert set(plan.recorded) == {"policy_logp", "old_logp", "rollout_logp", "ref_logp"}
    assert {"policy/ref", "old/rollout"} <= set(plan.pairs)
    assert plan.sentence(tmp_path, 1).startswith("recording ")


@pytest.mark.parametrize("name", [pytest.param("baseline", marks=with_trl)])
def test_a_run_on_a_cpu_records_no_rollout(name: str, tmp_path: Path) -> None:
    from examples.reproduction.train import config

    plan = plan_of(SimpleNamespace(args=config(ARMS[name], seed=1, steps=3, out=tmp_path)))
    assert set(plan.settings) == {"rollout_logp"}


def test_without_a_gpu_the_experiment_is_skipped_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu, "why_not", lambda: "torch finds no GPU")
    assert run.main(["--gpu", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("Skipped: torch finds no GPU. ")
    assert not list(tmp_path.iterdir())
    with pytest.raises(SystemExit, match="torch finds no GPU"):
        gpu.main(["baseline"])


def test_a_run_on_a_gpu_is_a_command_of_its_own() -> None:
    job = run.arm_jobs(3, on_gpu=True)[0]
    assert run.train_command(job, Path("out"))[1:4] == ["-m", "examples.reproduction.gpu", "baseline"]
