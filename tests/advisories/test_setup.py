"""Framework, package versions and settings are found in whatever a run leaves of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from torch_files import Call, Name, pickled, zipped

from ptt import api
from ptt.diagnostics.evidence.training_setup import TrainingSetup, setup_of
from ptt.diagnostics.parsers.io.setup_files import kept
from ptt.diagnostics.store.manifest import read_manifest

LOG = "\n".join(json.dumps({"step": step, "reward": 0.5}) for step in range(1, 4)) + "\n"
ARGS = Call(
    Name("trl.trainer.grpo_config", "GRPOConfig"),
    (),
    {
        "num_generations": 8, "use_vllm": True, "learning_rate": 1e-6, "report_to": ["wandb"],
        "lr_scheduler_type": Call(Name("transformers.trainer_utils", "SchedulerType"), ("cosine",), None),
    },
)  # fmt: skip
HYDRA = """
actor_rollout_ref:
  rollout:  # the engine
    name: vllm
    n: 8
    temperature: ${algorithm.temperature}
    stop: ["</answer>", 'done']
  model:
    path: /home/somebody/models/qwen
    note: |
      a text: that goes on
      n: 9
algorithm: {}
"""
PRINTED = """(TaskRunner pid=17) {'actor_rollout_ref': {'actor': {'clip_ratio': 0.2,
(TaskRunner pid=17)                                   'use_kl_loss': True}},
(TaskRunner pid=17)  'trainer': {'total_epochs': 3}}
INFO 01-01 00:00:01 [core.py:58] Initializing a V1 LLM engine (v0.8.4) with config: model='x'
step:1 - actor/pg_loss:0.1 - critic/score/mean:0.2
step:2 - actor/pg_loss:0.1 - critic/score/mean:0.2
"""
BINARY = {"archive/data.pkl": pickled(ARGS), "archive/version": b"3\n"}


def setup(tmp_path: Path, files: dict[str, str | bytes]) -> TrainingSetup:
    for name, content in {"log.jsonl": LOG, **files}.items():
        path = tmp_path / "run" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    manifest = read_manifest(api.ingest(tmp_path / "run", out=tmp_path / "out"))
    assert manifest is not None
    return setup_of(manifest)


@pytest.mark.parametrize(
    ("files", "framework", "packages", "settings"),
    [
        ({"training_args.bin": zipped(BINARY)}, "trl", {},
         {"num_generations": 8, "use_vllm": True, "learning_rate": 1e-6, "lr_scheduler_type": "cosine"}),
        ({".hydra/config.yaml": HYDRA}, "verl", {},
         {"actor_rollout_ref.rollout.name": "vllm", "actor_rollout_ref.rollout.n": 8}),
        ({"config.yaml": "actor_rollout_ref:\n  rollout: {name: vllm, n: 8, stop: ['a, {b'], engine_kwargs: {vllm: "
          "{enable_prefix_caching: true}}, calibration: [0.5, 0.5], dtype: bfloat16}\n"}, "verl", {},
         {"actor_rollout_ref.rollout.n": 8, "actor_rollout_ref.rollout.dtype": "bfloat16",
          "actor_rollout_ref.rollout.engine_kwargs.vllm.enable_prefix_caching": True}),
        ({".hydra/overrides.yaml": "- data.train_batch_size=64\n- +actor_rollout_ref.rollout.n=4\n- a.b=null\n"},
         "verl", {}, {"data.train_batch_size": 64, "actor_rollout_ref.rollout.n": 4, "a.b": None}),
        ({"wandb/files/config.yaml": "_wandb:\n  value:\n    cli_version: 0.1\n"
          "num_generations:\n  desc: null\n  value: 4\n"
          "beta:\n  value: 0.04\nloss_type:\n  value: dapo\n"}, "trl", {},
         {"num_generations": 4, "beta": 0.04, "loss_type": "dapo"}),
        ({"wandb/files/requirements.txt": "trl==0.18.0\nvllm==0.8.5.post1\nnemo_rl @ git+https://github.com/a/b@0123456789abcdef\n"},
         "nemo-rl", {"trl": "0.18.0", "vllm": "0.8.5.post1", "nemo-rl": "git+0123456789ab"}, {}),
        ({"wandb-metadata.json": json.dumps({"program": "-m verl.trainer.main_ppo", "args": ["trainer.nnodes=1"]})},
         "verl", {}, {"trainer.nnodes": 1}),
        ({"environment.yml": "dependencies:\n  - pytorch=2.5.1=py3\n  - pip:\n    - verl==0.4.1\n"},
         "verl", {"torch": "2.5.1", "verl": "0.4.1"}, {}),
        ({"README.md": "# Model Card\n\n### Framework versions\n\n- TRL: 0.15.2\n- Transformers: 4.49.0\n"},
         "trl", {"trl": "0.15.2", "transformers": "4.49.0"}, {}),
        ({"main.log": PRINTED}, "verl", {"vllm": "0.8.4"},
         {"actor_rollout_ref.actor.clip_ratio": 0.2, "actor_rollout_ref.actor.use_kl_loss": True}),
        ({"args.json": json.dumps({"rlhf_type": "grpo", "swift_version": "3.6.3", "beta": 0.04})},
         "ms-swift", {"ms-swift": "3.6.3"}, {"rlhf_type": "grpo", "beta": 0.04}),
        ({"orch.toml": "batch_size = 512\nmax_async_level = 2\nsteps = 9\n[sampling]\ntemperature = 0.7\n"},
         "prime-rl", {}, {"orchestrator.sampling.temperature": 0.7, "batch_size": 512}),
        ({"run.sh": "python train.py \\\n  --advantage-estimator grpo --num-rollout 3000 --colocate \\\n"
          "  --rollout-num-gpus=8\n"}, "slime", {},
         {"advantage_estimator": "grpo", "num_rollout": 3000, "colocate": True, "rollout_num_gpus": 8}),
        ({"ds_z2.json": json.dumps({"zero_optimization": {"stage": 2}})}, None, {}, {"zero_optimization.stage": 2}),
        ({"llamafactory_env.txt": "- `llamafactory` version: 0.9.2\n- PyTorch version: 2.5.1+cu124 (GPU)\n"},
         "llamafactory", {"llamafactory": "0.9.2", "torch": "2.5.1+cu124"}, {}),
        ({"run_moonlight.sh": "uv run --extra megatron -m skyrl.train.entrypoints.main_base \\\n"
          "  trainer.epochs=20\n"}, "skyrl", {}, {"trainer.epochs": 20}),
        ({"train_grpo.py": "from trl import GRPOConfig\nfrom unsloth import FastLanguageModel\n"
          "args = GRPOConfig(num_generations=4)\nGRPOTrainer(args=args, tools=[search])\n"}, "unsloth", {},
         {"num_generations": 4, "tools": "…"}),
        ({"config.yaml": "num_generations: 8\nopt: {name: bob's run, lr: 0.1, wd: 0.2}\n"}, "trl", {},
         {"opt.lr": 0.1, "opt.wd": 0.2}),
        ({"config.yaml": "num_generations: 8\nbeta: 0.1\nx: {" + "a: {" * 1200 + "}" * 1201 + "\n"}, "trl", {},
         {"num_generations": 8}),
        ({"train.log": "Namespace(lr=1e-6, sampler={[1]: 2})\n{'loss': 0.5, 'grad_norm': 1.0, 'epoch': 0.1}\n" * 9},
         None, {}, {"lr": 1e-6}),
        ({"config.yaml": "agentlightning: {n_runners: 32}\nactor_rollout_ref: {rollout: {name: vllm}}\n"
          "algorithm: {adv_estimator: grpo}\n"}, "agent-lightning", {}, {"agentlightning.n_runners": 32}),
        ({"config.yaml": "algorithm: {algorithm_type: grpo, repeat_times: 8}\nbuffer: {batch_size: 64}\n"
          "synchronizer: {sync_method: nccl}\n", "m.jsonl": '{"step": 1, "actor/pg_loss": 0.1}\n' * 2},
         "trinity-rft", {}, {"synchronizer.sync_method": "nccl"}),
        ({"config.yaml": "enable_thinking: None\nbeta: null\nnum_generations: 8\n"}, "trl", {},
         {"enable_thinking": "None", "beta": None}),
    ],
)  # fmt: skip
def test_a_setup_is_read(
    tmp_path: Path,
    files: dict[str, str | bytes],
    framework: str | None,
    packages: dict[str, str],
    settings: dict[str, object],
) -> None:
    found = setup(tmp_path, files)
    assert found.framework == framework
    assert packages.items() <= found.packages.items()
    assert settings.items() <= found.settings.items()


def test_paths_and_names_of_people_are_not_kept_but_that_they_are_set(tmp_path: Path) -> None:
    found = setup(tmp_path, {"config.yaml": HYDRA + "wandb_entity: somebody\nproject_name: secret\n"}).settings
    assert found["actor_rollout_ref.model.path"] == found["wandb_entity"] == found["project_name"] == "…"
    assert "actor_rollout_ref.model.note.n" not in found


def test_a_shell_prompt_in_an_environment_file_is_no_package(tmp_path: Path) -> None:
    text = "somebody@node-07:~/runs$ pip freeze\nowner: me@corp.example\ntrl==0.18.0\nvllm==0.8.4,<0.9\n"
    assert setup(tmp_path, {"environment.txt": text}).packages == {"trl": "0.18.0", "vllm": "0.8.4"}


def test_the_better_source_of_two_counts(tmp_path: Path) -> None:
    params = {f"mlruns/0/{'a' * 32}/params/{name}": text for name, text in {"beta": "0.1", "epsilon": "0.3"}.items()}
    found = setup(tmp_path, {**params, "config.json": json.dumps({"beta": 0.2, "epsilon": 0.3, "gamma": 1.0})})
    assert (found.settings["beta"], found.settings["gamma"]) == (0.1, 1.0)


def test_a_checkpoints_model_config_gives_its_version_and_no_settings(tmp_path: Path) -> None:
    model = {"model_type": "qwen2", "architectures": ["Qwen2"], "transformers_version": "4.51.0", "hidden_size": 8}
    found = setup(tmp_path, {"checkpoint-9/config.json": json.dumps(model)})
    assert (found.packages, dict(found.settings)) == ({"transformers": "4.51.0"}, {})


@pytest.mark.parametrize(
    ("key", "recorded", "value"),
    [
        ("beta", "args.beta", 0.1),
        ("actor_rollout_ref.rollout.n", "config.main.actor_rollout_ref.rollout.n", 8),
        ("use-tis", "use_tis", True),
    ],
)
def test_a_setting_is_found_under_other_spellings(key: str, recorded: str, value: float) -> None:
    assert TrainingSetup(settings={recorded: value}).lookup(key) == (True, value)


def test_a_setting_of_one_word_is_not_that_of_another_object() -> None:
    assert TrainingSetup(settings={"optimizer.beta": 0.9}).lookup("beta") == (False, None)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.yaml", b"- " * 300_000 + b"x: 1\n"),
        ("a.yaml", b"\n".join(b" " * depth + b"k%d:" % depth for depth in range(1200))),
        ("a.json", b'{"a":' * 100_000),
        ("a.json", b'{"beta": ' + b"9" * 5000 + b', "epsilon": NaN, "n": 1e999}'),
        ("a.py", b"Config(" * 20_000),
        ("a.py", b"Config(a=" + b"[" * 300 + b"]" * 300 + b")"),
        ("a.sh", b"python x.py --a '" + b"\\" * 1000),
        ("a.toml", b"a = " + b"[" * 50_000),
        ("a.yaml", bytes(range(256)) * 100),
    ],
)
def test_a_hostile_config_costs_its_settings_and_nothing_else(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    assert api.check_config([tmp_path / name]).count


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("Qwen/Qwen3-VL-30B-A3B-Instruct", True),
        ("Qwen/Qwen3.5-35B-A3B", True),
        ("Qwen/Qwen3-30B-A3B", False),
        ("/models/mine", None),  # a name that tells nothing
    ],
)
def test_a_model_with_experts_tells_whether_it_is_one_that_loses_its_router_replay(
    model: str, told: bool | None
) -> None:
    assert kept({"actor.model.path": model}).get("model_is_qwen3_vl_or_3_5") is told
