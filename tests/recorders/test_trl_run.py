"""The recorder inside a real TRL run with tools: `ptt` judges its files, training is the same, the cost is said."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import ptt
from ptt.recorders.trl import record

SCRIPT = Path(__file__).with_name("trl_run.py")
STEPS = 18
MICRO_BATCH = 16  # sequences; two a step
WALL_CLOCK = ("step_time", "train_runtime", "train_samples_per_second", "train_steps_per_second")

pytestmark = [
    pytest.mark.trl,
    pytest.mark.skipif(find_spec("trl") is None, reason="TRL is not installed; make test-trl installs it"),
]


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training run as it lies on disk, and what it printed of its cost."""

    folder: Path
    cost: dict[str, float]
    said: str  # on standard error

    @property
    def history(self) -> list[dict[str, Any]]:
        state = json.loads((self.folder / "trainer_state.json").read_text())
        return [{key: value for key, value in row.items() if key not in WALL_CLOCK} for row in state["log_history"]]

    @property
    def tokens(self) -> pl.DataFrame:
        return pl.read_parquet(self.folder / "tokens" / "*.parquet").sort("step", maintain_order=True)


def _trained(folder: Path, *arguments: str, launcher: tuple[str, ...] = ()) -> Run:
    command = [sys.executable, *launcher, str(SCRIPT), str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Run(folder=folder, cost=json.loads(done.stdout.splitlines()[-1]), said=done.stderr)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return _trained(tmp_path_factory.mktemp("trl") / "recorded", "record")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return _trained(tmp_path_factory.mktemp("trl") / "plain")


@pytest.fixture(scope="module")
def reused(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return _trained(tmp_path_factory.mktemp("trl") / "reused", "record", "reuse")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return _trained(tmp_path_factory.mktemp("trl") / "bare", "record", "bare")


def _model_tokens(batch: pl.DataFrame) -> pl.DataFrame:
    lists = [name for name in ("model_mask", "policy_logp", "old_logp", "ref_logp", "entropy") if name in batch.columns]
    return batch.select(lists).explode(lists).filter("model_mask")


def _of_micro_batches(tokens: pl.DataFrame, name: str) -> list[float]:
    """TRL logs, a step, the mean over micro-batches of the mean over model tokens."""
    found = []
    for _, step in tokens.group_by("step", maintain_order=True):
        assert step.height == 2 * MICRO_BATCH
        parts = [_model_tokens(step.slice(start, MICRO_BATCH)) for start in (0, MICRO_BATCH)]
        found.append(float(np.mean([part.select(_MEANS[name]).item() for part in parts])))
    return found


_BACK = pl.col("ref_logp").cast(pl.Float64) - pl.col("policy_logp").cast(pl.Float64)
_K3 = _BACK.exp() - _BACK - 1
_UPDATE = pl.col("policy_logp").cast(pl.Float64) - pl.col("old_logp").cast(pl.Float64)
_MEANS = {
    "kl": _K3.mean(),
    "kl weighted by policy/old": (_K3 * _UPDATE.exp()).mean(),
    "entropy": pl.col("entropy").cast(pl.Float64).mean(),
}


@pytest.mark.parametrize("name", ["kl", "entropy"])
def test_what_was_recorded_gives_the_means_that_trl_logged(recorded: Run, name: str) -> None:
    logged = [row[name] for row in recorded.history if name in row]
    assert len(logged) == STEPS
    assert _of_micro_batches(recorded.tokens, name) == pytest.approx(logged, rel=1e-4, abs=1e-6)


def test_with_two_iterations_the_logged_kl_is_weighted_by_policy_over_old(reused: Run) -> None:
    logged = np.array([row["kl"] for row in reused.history if "kl" in row])
    assert len(logged) == STEPS
    weighted = np.array(_of_micro_batches(reused.tokens, "kl weighted by policy/old"))
    plain = np.array(_of_micro_batches(reused.tokens, "kl"))
    assert weighted == pytest.approx(logged, rel=1e-3, abs=1e-6)
    first, again = slice(0, None, 2), slice(1, None, 2)  # the second step on the same rollouts
    assert plain[first] == pytest.approx(logged[first], rel=1e-3, abs=1e-6)
    assert (np.abs(plain[again] - logged[again]) / logged[again]).max() > 0.05


def test_training_is_the_same_with_and_without_it(recorded: Run, plain: Run) -> None:
    assert recorded.history == plain.history


def test_before_training_it_says_what_will_be_recorded(recorded: Run, reused: Run) -> None:
    said = recorded.said.partition("training begins")[0]
    assert "ptt: recording policy/ref of each step to " in said
    assert "num_iterations above 1 adds old_logp" in said
    assert "ptt: recording policy/ref, old/ref, policy/old of each step" in reused.said.partition("training begins")[0]


def test_by_trls_defaults_there_is_no_ratio_and_all_else_is_recorded(bare: Run) -> None:
    before, _, during = bare.said.partition("training begins")
    assert before.count("ptt: recording policy_logp alone of each step to ") == 1
    assert "ptt:" not in during
    tokens = bare.tokens
    assert tokens["step"].unique().to_list() == list(range(1, STEPS + 1))
    assert not {"old_logp", "ref_logp", "rollout_logp"} & set(tokens.columns)
    assert _of_micro_batches(tokens, "entropy") == pytest.approx(
        [row["entropy"] for row in bare.history[:-1]], rel=1e-4
    )
    _belong_together(tokens)


def test_by_trls_defaults_ptt_judges_the_rest_and_says_what_is_missing(bare: Run, tmp_path: Path) -> None:
    shutil.copytree(bare.folder, tmp_path / "bare", ignore=shutil.ignore_patterns("completions", "checkpoint-*"))
    found = ptt.diagnose(tmp_path / "bare")
    assert found.crashes == ()
    assert found.run.sequences == STEPS * 2 * MICRO_BATCH
    (growth,) = [one for one in found.not_judged if one.id == "tool-tail-growth"]
    assert growth.reason.startswith("only policy_logp is recorded, and a log-ratio takes two")
    for setting in (
        "ref_logp needs GRPOConfig(beta > 0)",
        "rollout_logp needs use_vllm=True",
        "num_iterations above 1",
    ):
        assert setting in growth.enable
    answered = {one.id for one in found.healthy} | {one.id for one in found.findings}
    assert {"advantages-without-baseline", "no-signal-groups", "reward-outliers"} <= answered


def test_of_trls_own_trainers_all_but_grpo_are_refused_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trl = pytest.importorskip("trl")
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    from trl.experimental.online_dpo import OnlineDPOTrainer

    kinds = [getattr(trl, name) for name in dir(trl) if name.endswith("Trainer")] + [OnlineDPOTrainer]
    assert {"GRPOTrainer", "RLOOTrainer"} <= {kind.__name__ for kind in kinds}
    for kind in kinds:
        if kind is not trl.GRPOTrainer:
            with pytest.raises(TypeError, match=f"{kind.__name__} (has|keeps) no .* made for GRPOTrainer of TRL"):
                record(kind.__new__(kind), tmp_path)


def test_samples_groups_rewards_and_advantages_belong_together(recorded: Run) -> None:
    _belong_together(recorded.tokens)


def _belong_together(tokens: pl.DataFrame) -> None:
    assert tokens["sample_id"].n_unique() == tokens.height == STEPS * 2 * MICRO_BATCH
    groups = tokens.group_by("group_id").agg(
        pl.len(), pl.col("advantage").sum().abs().alias("sum"), pl.corr("reward", "advantage").alias("together")
    )
    assert groups["len"].unique().to_list() == [8]
    assert groups["sum"].max() == pytest.approx(0, abs=1e-4)
    assert groups["together"].drop_nans().min() == pytest.approx(1, abs=1e-4)
    parts = tokens["rewards"].struct.unnest()
    assert np.allclose(parts["uses_tools"] + parts["is_short"], tokens["reward"], atol=1e-6)


def test_two_ranks_write_side_by_side_and_share_their_groups(recorded: Run, tmp_path: Path) -> None:
    shutil.copytree(recorded.folder.with_name("recorded-model"), tmp_path / "ranks-model")
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
    tokens = _trained(tmp_path / "ranks", "record", launcher=launcher).tokens
    assert len(list((tmp_path / "ranks" / "tokens").iterdir())) == 2 * STEPS
    assert tokens["sample_id"].n_unique() == tokens.height == STEPS * 4 * MICRO_BATCH
    assert tokens["rank"].value_counts().sort("rank").rows() == [(0, tokens.height // 2), (1, tokens.height // 2)]
    groups = tokens.group_by("group_id").agg(pl.len(), pl.corr("reward", "advantage").alias("together"))
    assert groups["len"].unique().to_list() == [8]
    assert groups["together"].drop_nans().min() == pytest.approx(1, abs=1e-4)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return _trained(tmp_path_factory.mktemp("trl") / "watched", "record", "watch")


def _without_ours(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if not key.startswith("ptt/")} for row in history]


def test_training_is_the_same_watched(watched: Run, plain: Run) -> None:
    assert _without_ours(watched.history) == plain.history


def test_the_watch_leaves_a_report_and_nothing_in_the_folder(watched: Run, tmp_path: Path) -> None:
    report = watched.folder.with_name("watched-report")
    found = ptt.diagnose(watched.folder / "tokens", out=tmp_path)
    assert (report / "findings.json").read_text() == found.to_json()
    assert (report / "report.html").is_file()
    assert {path.suffix for path in (watched.folder / "tokens").iterdir()} == {".parquet"}


def test_a_watch_that_is_killed_harms_nothing(plain: Run, tmp_path: Path) -> None:
    killed = _trained(tmp_path / "killed", "record", "watch", "unwatched")
    assert killed.history == plain.history
    assert "ptt: the watch has ended before the training, which goes on unwatched" in killed.said


def test_two_ranks_end_at_the_same_step_after_a_checkpoint(recorded: Run, tmp_path: Path) -> None:
    shutil.copytree(recorded.folder.with_name("recorded-model"), tmp_path / "ranks-model")
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
    run = _trained(tmp_path / "ranks", "record", "watch", "still", launcher=launcher)
    last = run.tokens.group_by("rank").agg(pl.col("step").max())["step"].unique().to_list()
    assert len(last) == 1
    assert last[0] < STEPS
    assert [path.name for path in run.folder.glob("checkpoint-*")] == [f"checkpoint-{last[0]}"]
    assert f"ptt: training ends at step {last[0]} after a checkpoint" in run.said


AGREE = """
import sys
from types import SimpleNamespace
import torch.distributed as dist
from ptt.recorders.trainer_hooks import agreed

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)
ranks = SimpleNamespace(num_processes=2, device="cpu")
print([agreed(rank == 0 and step >= 3, ranks) for step in range(5)])
"""


def test_ranks_agree_on_a_stop_that_one_alone_knows_of(tmp_path: Path) -> None:
    both = [
        subprocess.Popen(
            [sys.executable, "-c", AGREE, str(rank), str(tmp_path / "meet")], stdout=subprocess.PIPE, text=True
        )
        for rank in (0, 1)
    ]
    assert [process.communicate(timeout=120)[0].strip() for process in both] == [
        str([False, False, False, True, True])
    ] * 2


def test_tool_names_match_the_completions_table(recorded: Run) -> None:
    answered = {}
    for path in sorted((recorded.folder / "completions").iterdir()):
        for sample, messages in pl.read_parquet(path, columns=["sample_id", "completion"]).iter_rows():
            answered[sample] = any(message["role"] == "tool" for message in messages)
    tokens = recorded.tokens
    observed = tokens.select("sample_id", seen=pl.col("model_mask").list.all().not_())
    assert dict(observed.iter_rows()).items() <= answered.items()
    names = set(tokens["tool_names"].explode().drop_nulls())
    assert {"lookup", "add"} <= names <= {"lookup", "add", "lookup+add", "add+lookup"}
    failed = tokens.select("tool_names", "tool_failed").explode("tool_names", "tool_failed").drop_nulls()
    assert not failed.filter(pl.col("tool_names") == "add")["tool_failed"].any()
    assert failed.filter(pl.col("tool_names") == "lookup")["tool_failed"].any()


def test_ptt_judges_the_run(recorded: Run) -> None:
    found = ptt.diagnose(recorded.folder)
    assert found.signature.status in {"found", "not_found"}, found.signature.reason
    assert found.run.framework == "trl"
    assert {name for source in found.sources for name in [source.kind]} >= {"recorder", "trl_state"}


def test_its_cost_a_step_is_small_and_said(recorded: Run, plain: Run, capsys: pytest.CaptureFixture[str]) -> None:
    share = recorded.cost["recorder_ms_a_step"] / recorded.cost["ms_a_step"]
    with capsys.disabled():
        print(
            f"\nrecorder: {recorded.cost['recorder_ms_a_step']:.1f} ms a step, {share:.1%} of it; "
            f"{recorded.cost['ms_a_step']:.0f} ms a step with it, {plain.cost['ms_a_step']:.0f} without"
        )
    assert share < 0.1
