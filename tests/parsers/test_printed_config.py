"""What is read of a configuration that a trainer prints to its console, and what is left alone."""

from __future__ import annotations

from pathlib import Path
from pprint import pformat

import pytest

import ptt
from ptt.diagnostics.parsers.io.printed_dicts import PrintedConfig
from ptt.diagnostics.parsers.io.setup_files import engine_settings, listed_packages, printed_settings

CONFIG = {
    "actor_rollout_ref": {
        "actor": {"policy_loss": {"clip_cov_lb": 1.0, "loss_mode": "gspo", "path": "/home/someone/model"},
                  "use_kl_loss": False},
        "rollout": {"multi_turn": {"enable": False, "format": "hermes", "max_parallel_calls": 1},
                    "n": 8, "name": "vllm", "val_kwargs": {"do_sample": False, "n": 1, "temperature": 0.0}},
    },
    "algorithm": {"adv_estimator": "grpo", "kl_ctrl": {"kl_coef": 0.001, "type": "fixed"}, "use_kl_in_reward": False},
    "data": {"train_batch_size": 256, "train_files": "/data/secret.parquet"},
}  # fmt: skip


@pytest.mark.parametrize("prefix", ["", "(TaskRunner pid=16623) "])
def test_keys_are_told_by_the_columns_of_what_is_printed(prefix: str) -> None:
    config = PrintedConfig()
    for line in pformat(CONFIG).splitlines():
        config.see((prefix + line).encode())
    assert config.facts == {
        "loss_mode": "gspo",
        "use_kl_loss": False,
        "rollout_n": 8,
        "adv_estimator": "grpo",
        "use_kl_in_reward": False,
        "train_batch_size": 256,
    }


def test_the_algorithm_of_a_console_is_the_printed_one(tmp_path: Path) -> None:
    rows = [f"step:{step} - actor/pg_loss:0.0{step % 7} - critic/rewards/mean:0.{step % 9}" for step in range(1, 30)]
    lines = [f"(TaskRunner pid=7) {line}" for line in (*pformat(CONFIG).splitlines(), *rows)]
    (tmp_path / "train.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
    run = ptt.diagnose(tmp_path).run
    assert run.algorithm == "gspo"
    assert run.context["rollout_n"] == 8


def test_other_text_is_no_configuration() -> None:
    config = PrintedConfig()
    for line in (b"'n': 4,", b"{'loss': 0.5, 'n': 3}", b"see {'rollout': {", b"    'nothing': 1,", b"'n': 5"):
        config.see(line)
    assert config.facts == {}


def test_blank_lines_and_calls_inside_calls_are_soon_read() -> None:  # minutes, were each followed from every line
    assert listed_packages("torch==2.5\n" + "\n" * 100_000) == {"torch": "2.5"}
    assert printed_settings("{'a': \n" * 20_000) == {}
    assert engine_settings("server_args=ServerArgs(" + "a=A(" * 2_000) == {}
