"""Before training a recorder says which pairs will be recorded, and which setting adds each missing one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from trainers import AReaL, OpenRLHF, VerlV0

from ptt.recorders import Recorder, areal, openrlhf, trl, verl
from ptt.recorders.trainer_hooks import Plan, announce


def grpo(**changed: Any) -> Any:
    """GRPOTrainer with the defaults of its config, changed."""
    settings = {
        "beta": 0.0, "use_vllm": False, "num_iterations": 1, "steps_per_generation": 4,
        "gradient_accumulation_steps": 4, "vllm_importance_sampling_correction": True,
    }  # fmt: skip
    return SimpleNamespace(args=SimpleNamespace(**(settings | changed)), rollout_func=None)


@pytest.mark.parametrize(
    ("changed", "pairs"),
    [
        ({}, ()),
        ({"beta": 0.04}, ("policy/ref",)),
        ({"num_iterations": 2}, ("policy/old",)),
        ({"steps_per_generation": 8}, ("policy/old",)),
        ({"use_vllm": True}, ("policy/rollout", "old/rollout", "policy/old")),
        ({"use_vllm": True, "vllm_importance_sampling_correction": False}, ("policy/rollout",)),
        ({"beta": 0.04, "num_iterations": 2}, ("policy/ref", "old/ref", "policy/old")),
    ],
)
def test_trls_settings_tell_the_pairs(changed: dict[str, Any], pairs: tuple[str, ...]) -> None:
    assert trl.plan_of(grpo(**changed)).pairs == pairs


def test_with_trls_defaults_the_user_is_warned_before_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    announce(trl.plan_of(grpo()), Recorder(tmp_path))
    (warning,) = caplog.messages
    assert warning.startswith(f"ptt: recording policy_logp alone of each step to {tmp_path}. Rewards, advantages")
    assert "drift, size of the updates, agreement with the engine and tails cannot" in warning
    for setting in ("beta above 0 adds ref_logp", "num_iterations above 1 adds old_logp", "use_vllm=True adds rollout"):
        assert setting in warning
    assert capsys.readouterr().err == ""


def test_one_line_says_what_is_recorded_and_what_could_be(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = trl.plan_of(grpo(beta=0.04))
    announce(plan, Recorder("run/tokens", every=10))
    told = capsys.readouterr().err
    assert told.startswith("ptt: recording policy/ref of every 10 steps to run/tokens. num_iterations above 1 adds old")
    assert caplog.messages == []
    with caplog.at_level(logging.INFO, "ptt.recorders"):  # where a script sets logging up, it goes there
        announce(plan, Recorder("run/tokens", rank=0))
    assert caplog.messages[0].startswith("ptt: recording policy/ref of each step")
    announce(plan, Recorder("run/tokens", rank=1))
    assert capsys.readouterr().err == ""  # the other ranks are silent


def nested(**sections: Any) -> Any:
    return SimpleNamespace(
        **{name: nested(**value) if isinstance(value, dict) else value for name, value in sections.items()}
    )


def test_verls_config_tells_the_pairs() -> None:
    config = {"actor_rollout_ref": {"actor": {"use_kl_loss": False}, "rollout": {"calculate_log_probs": True}}}
    plan = verl.plan_of(SimpleNamespace(config=config))
    assert plan.pairs == ("old/rollout",)
    assert list(plan.settings) == ["ref_logp"]
    with_kl = config | {"algorithm": {"use_kl_in_reward": True, "rollout_correction": {"bypass_mode": True}}}
    plan = verl.plan_of(SimpleNamespace(config=with_kl))
    assert plan.pairs == ("old/ref",)
    assert "bypass_mode=False" in plan.settings["rollout_logp"]


def test_openrlhfs_options_tell_the_pairs() -> None:
    args = nested(algo={"kl": {"use_loss": True}, "advantage": {"is_correction_level": "off"}})
    plan = openrlhf.plan_of(SimpleNamespace(args=args))
    assert plan.pairs == ("old/ref",)
    assert plan.settings["rollout_logp"].startswith("--algo.advantage.is_correction_level")


def test_areals_config_tells_the_pairs() -> None:
    actor = {"recompute_logprob": False, "use_decoupled_loss": False, "kl_ctl": 0.0}
    plan = areal.plan_of(nested(config={"actor": actor}))
    assert plan.pairs == ()
    assert set(plan.settings) == {"prox_logp", "ref_logp"}
    assert areal.plan_of(nested(config={"actor": actor | {"use_decoupled_loss": True}})).pairs == ("prox/rollout",)
    approximated = actor | {"use_decoupled_loss": True, "prox_logp_method": "loglinear"}
    assert areal.plan_of(nested(config={"actor": approximated})).pairs == ()


def test_what_no_setting_tells_is_said_as_a_condition() -> None:
    plan = verl.plan_of(SimpleNamespace())
    assert "if the run computes rollout_logp, ref_logp" in plan.sentence("tokens", 1)
    assert (
        Plan(recorded=()).sentence("tokens", 1).startswith("NOTHING will be recorded: with these settings there is no")
    )


@pytest.mark.parametrize(
    ("record", "trainer"), [(verl.record, VerlV0), (openrlhf.record, OpenRLHF), (areal.record, AReaL)]
)
def test_a_second_call_raises(tmp_path: Path, record: Callable[..., Any], trainer: Callable[..., Any]) -> None:
    made = trainer(np.asarray)
    record(made, tmp_path)
    with pytest.raises(RuntimeError, match="called twice"):
        record(made, tmp_path)


def test_a_call_in_the_middle_of_training_raises(tmp_path: Path) -> None:
    made = VerlV0(np.asarray)
    made.is_in_train = True  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="before training starts"):
        verl.record(made, tmp_path)
