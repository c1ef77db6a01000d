"""Token dumps of the frameworks: the known numbers at the known tokens, and the traps of each format."""

from __future__ import annotations

import json
import math
import random
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from builders import Story, rising, sequences_of
from parser_samples import DUMPS, HOOK, PROTO, losses, pieces_of, run_file, table, takers
from torch_files import Archive, Call, Name, pickled, safetensors, torch_file

import ptt
from ptt.diagnostics.parsers import Context
from ptt.diagnostics.parsers.io.token_dumps import step_named

Array = np.ndarray[Any, Any]


def sequences(path: Path) -> pl.DataFrame:
    return table(pieces_of(path), "sequences")


def written(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


# ---- slime ----


def test_slime_replays_the_baseline_run_number_by_number() -> None:
    """Two steps, by torch.save; what is expected was read by torch and, at step 1, by the run's own recorder."""
    wanted = pl.read_parquet(DUMPS / "slime_replay" / "expected.parquet")
    found = pl.concat([sequences(DUMPS / "slime_replay" / f"{step}_0.pt") for step in (1, 20)])
    assert found.select(wanted.columns).sort("step", "sample_id").equals(wanted.sort("step", "sample_id"))
    assert found["train_mask"].equals(found["model_mask"].alias("train_mask"))


def test_slime_train_data_learn_group_and_version_from_the_rollout_data_beside_them(tmp_path: Path) -> None:
    shutil.copytree(DUMPS / "slime", tmp_path / "run")
    train = sequences(tmp_path / "run" / "train_data" / "3.pt")
    assert train["group_id"].to_list() == ["0", "0", "1", "1"]
    assert train["policy_version"].to_list() == [3] * 4
    assert train["model_mask"].to_list()[0] == [True, True, False, False, False, True]
    assert train["token_ids"].to_list()[0] == [10, 11, 20, 21, 22, 12]
    np.testing.assert_allclose(train["old_logp"].to_list()[0], [-0.11, -0.21, -0.01, -0.01, -0.01, -0.31], rtol=1e-6)
    pieces = pieces_of(tmp_path / "run" / "rollout_data" / "3.pt")
    assert table(pieces, "sequences").is_empty()
    assert "contain the same sequences" in losses(pieces)[2]


def test_slime_rollout_data_alone_give_what_was_sampled(tmp_path: Path) -> None:
    shutil.copytree(DUMPS / "slime" / "rollout_data", tmp_path / "rollout_data")
    found = sequences(tmp_path / "rollout_data" / "3.pt")
    assert found["reward"].to_list() == [1.0, 1.0, 1.0, 1.0]
    np.testing.assert_allclose(found["rollout_logp"].to_list()[0], [-0.1, -0.2, 0, 0, 0, -0.3], rtol=1e-6)
    assert "old_logp" not in found.columns
    note = losses(pieces_of(tmp_path / "rollout_data" / "3.pt"))[2]
    assert (
        note
        == "3.pt has rollout_logp alone: a ratio needs two of policy_logp, old_logp, rollout_logp, ref_logp, prox_logp."
    )


def sample(**changes: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "group_index": 0,
        "index": 0,
        "tokens": [1, 2, 10, 11, 12],
        "response_length": 3,
        "reward": 1.0,
        "loss_mask": None,
        "weight_versions": ["7", "5", "default"],
        "rollout_log_probs": [-0.5, 0.0, -0.25],
        "remove_sample": False,
    }
    return usual | changes


def test_slime_samples_that_were_removed_or_masked_keep_what_the_policy_sampled(tmp_path: Path) -> None:
    samples = [sample(), sample(index=1, remove_sample=True), sample(index=2, loss_mask=[0, 0, 0])]
    found = sequences(written(tmp_path / "0.pt", torch_file({"rollout_id": 0, "samples": samples})))
    assert found["model_mask"].to_list() == [[True] * 3, [True] * 3, [True, False, True]]
    assert found["train_mask"].to_list() == [[True] * 3, [False] * 3, [False] * 3]
    assert found["policy_version"].to_list() == [5, 5, 5]
    assert found["token_ids"].to_list()[0] == [10, 11, 12]


def format_one(**changes: Any) -> dict[str, Any]:
    data: dict[str, Any] = {
        "tokens": [np.array([1, 10, 11]), np.array([2, 3, 20])],
        "response_lengths": [2, 1],
        "total_lengths": [3, 3],
        "loss_masks": [np.array([1, 1]), np.array([1])],
        "rewards": [-1.0, 1.0],
        "raw_reward": [0.0, 0.5, 0.25, 0.75],
        "partition": [3, 1],
        "log_probs": [np.array([-0.5, -0.25], np.float32), np.array([-1.0], np.float32)],
        "rollout_log_probs": [np.array([-0.5, -0.125], np.float32), np.array([-2.0], np.float32)],
    }
    return {"rollout_id": 4, "rank": 1, "rollout_data": data | changes}


def test_slime_format_one_has_a_file_a_rank_and_rewards_of_all(tmp_path: Path) -> None:
    found = sequences(written(tmp_path / "train_data" / "4_1.pt", torch_file(format_one())))
    assert found["step"].to_list() == [4, 4]
    assert found["rank"].to_list() == [1, 1]
    assert found["reward"].to_list() == [0.75, 0.5]
    assert found["token_ids"].to_list() == [[10, 11], [20]]
    assert found["old_logp"].to_list() == [[-0.5, -0.25], [-1.0]]
    assert found["rollout_logp"].to_list() == [[-0.5, -0.125], [-2.0]]


def test_slime_lists_split_over_ranks_are_lost_and_counted(tmp_path: Path) -> None:
    halves = [np.array([-0.5], np.float32), np.array([-1.0], np.float32)]
    pieces = pieces_of(written(tmp_path / "4_0.pt", torch_file(format_one(log_probs=halves))))
    assert table(pieces, "sequences")["sample_id"].to_list() == ["4-1"]
    rows, _, note = losses(pieces)
    assert rows == 1
    assert "context-parallel" in note


def test_slime_rollouts_with_many_tokens_are_recognised(tmp_path: Path) -> None:
    long = sample(tokens=list(range(60_000)), response_length=3)
    path = written(tmp_path / "0.pt", torch_file({"rollout_id": 0, "samples": [long]}))
    assert takers(run_file(path)) == ["slime_dumps"]
    assert sequences(path)["token_ids"].to_list() == [[59_997, 59_998, 59_999]]


def test_slime_evaluation_is_no_training(tmp_path: Path) -> None:
    pieces = pieces_of(written(tmp_path / "eval_0.pt", torch_file({"rollout_id": 0, "samples": [sample()]})))
    assert table(pieces, "sequences").is_empty()
    assert "evaluation" in losses(pieces)[2]


# ---- SkyRL ----


def skyrl(fields: dict[str, Any], metadata: dict[str, Any]) -> bytes:
    held: dict[str, Any] = {"values": None}
    for name, values in fields.items():
        if values.dtype == np.uint16:  # bfloat16 by its bits, which SkyRL leaves to torch
            archive = Archive()
            data = archive.packed(pickled(archive.add(values, "bfloat16")))
            held[name] = {"format": "torch", "data": data}
        else:
            told = {"data": values.tobytes(), "shape": values.shape, "dtype": str(values.dtype)}
            held[name] = {"format": "numpy", **told}
    module = "skyrl.backends.skyrl_train.training_batch"
    args = (Name(module, "TrainingInputBatch"), {"batch_dict": held, "metadata": metadata})
    return pickled(Call(Name(module, "_rebuild_tensor_batch"), args))


def test_skyrl_as_written(tmp_path: Path) -> None:
    found = sequences(DUMPS / "skyrl" / "global_step_1_training_input.pkl")
    assert found["step"].to_list() == [1] * 4
    assert found["model_mask"].to_list() == [[True, True, False, False, True, True]] * 4
    raw = (DUMPS / "skyrl" / "global_step_1_training_input.pkl").read_bytes()
    for column, name in (("old_logp", b"action_log_probs"), ("rollout_logp", b"rollout_logprobs")):
        at = raw.index(b"C", raw.index(name) + len(name))  # the next bytes object: 4 x 6 float32
        assert raw[at + 1] == 96
        wanted = np.frombuffer(raw[at + 2 : at + 98], "<f4").reshape(4, 6)
        np.testing.assert_array_equal(np.stack(found[column].to_list()), wanted)


def test_skyrl_rows_end_at_the_right(tmp_path: Path) -> None:
    """Row 0 has two tokens, row 1 four with a tool result, row 2 was filtered, row 3 ends with an appended token."""
    response = np.array([[0, 0, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1], [0, 1, 1, 1]])
    loss = np.array([[0, 0, 1, 1], [1, 0, 1, 1], [0, 0, 0, 0], [0, 1, 1, 1]], np.float32)
    rollout = np.array([[0, 0, -1, -2], [-3, 0, -4, -5], [-6, 0, -7, -8], [0, -9, -10, 0]], np.float32)
    bits = ((rollout * 2).view(np.uint32) >> 16).astype(np.uint16)
    fields = {
        "sequences": np.arange(24).reshape(4, 6),
        "response_mask": response,
        "loss_mask": loss,
        "rollout_logprobs": rollout,
        "action_log_probs": rollout - np.float32(0.5),
        "base_action_log_probs": bits,
    }
    data = skyrl(fields, {"policy_prompt_boundaries": [(0, 2), (2, 3)]})
    found = sequences(written(tmp_path / "global_step_12_training_input.pkl", data))
    assert found["step"].to_list() == [12] * 4
    assert found["group_id"].to_list() == ["12-0", "12-0", "12-1", None]
    assert found["token_ids"].to_list() == [[4, 5], [8, 9, 10, 11], [14, 15, 16, 17], [21, 22, 23]]
    assert found["rollout_logp"].to_list()[0] == [-1, -2]
    assert found["ref_logp"].to_list()[1] == [-6, 0, -8, -10]
    assert found["model_mask"].to_list() == [
        [True, True],
        [True, False, True, True],
        [True, False, True, True],
        [True, True, False],
    ]
    assert found["train_mask"].to_list()[2] == [False] * 4


def test_a_skyrl_tensor_that_lies_about_its_shape_costs_its_file(tmp_path: Path) -> None:
    data = skyrl({"response_mask": np.ones((2, 3), np.int64)}, {})
    path = written(
        tmp_path / "global_step_1_training_input.pkl", data.replace(b"J\x02\0\0\0J\x03", b"J\x02\0\0\0J\x30")
    )
    assert "beyond" in losses(pieces_of(path))[2]


# ---- veRL ----


def test_verl_queue_batches_are_ragged() -> None:
    found = sequences(DUMPS / "verl" / "5" / "0" / "tq_batch.pt")
    assert found["step"].to_list() == [5, 5, 5]
    assert found["sample_id"].to_list() == ["u0_0_0", "u1_0_0", "u2_0_0"]
    assert found["group_id"].to_list() == ["u0", "u1", "u2"]
    assert found["token_ids"].to_list() == [[0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4]]
    assert found["policy_version"].to_list() == [3, 3, 3]
    values = np.concatenate(found["rollout_logp"].to_list())
    assert values.size == 12
    assert (values < 0).all()


def queue(fields: dict[str, Array]) -> bytes:
    archive = Archive()
    held = {name: archive.add(values) for name, values in fields.items()}
    module = "tensordict._reductions"
    made = Call(Name(module, "_make_td"), (Name("tensordict._td", "TensorDict"), {"_tensordict": held}))
    keys = ["a_0_0", "a_1_0"]
    return archive.packed(pickled({"tensordict": made, "keys": keys, "tags": [{}, {}], "global_steps": 9}))


def test_verl_batches_of_one_length_are_plain_and_old_ones_pad_with_minus_one(tmp_path: Path) -> None:
    fields = {
        "responses": np.array([[1, 2, 3, 0], [4, 5, 0, 0]]),
        "response_mask": np.array([[1, 0, 1, 0], [1, 1, 0, 0]]),
        "attention_mask": np.array([[0, 1, 1, 1, 1, 0], [1, 1, 1, 1, 0, 0]]),
        "rollout_log_probs": np.array([[-0.5, 0, -0.25, -1], [-2, -3, -1, -1]], np.float32),
        "rm_scores": np.array([[0, 0, 0.75, 0], [0, 0.5, 0, 0]], np.float32),
    }
    found = sequences(written(tmp_path / "tq_batch.pt", queue(fields)))
    assert found["step"].to_list() == [9, 9]
    assert found["group_id"].to_list() == ["a", "a"]
    assert found["rollout_logp"].to_list() == [[-0.5, 0, -0.25], [-2, -3]]
    assert found["model_mask"].to_list() == [[True, False, True], [True, True]]
    assert found["reward"].to_list() == [0.75, 0.5]


def test_verl_data_protos_hold_an_archive() -> None:
    path = DUMPS / "verl" / "dp" / "5" / "gen_batch.dp"
    found = sequences(path)
    raw = path.read_bytes()
    start = raw.index(struct.pack("<2q", 7, 6), raw.index(b"archive/data/0"))  # the first prompt
    tokens = np.frombuffer(raw[start + 96 : start + 240], "<i8").reshape(3, 6)
    logps = np.frombuffer(raw[start + 1104 : start + 1176], "<f4").reshape(3, 6)
    assert found["token_ids"].to_list() == tokens.tolist()
    np.testing.assert_array_equal(np.stack(found["rollout_logp"].to_list()), logps)
    assert found["model_mask"].to_list() == [[True, True, False, False, True, True]] * 3
    assert found["step"].to_list() == [5] * 3


def test_verl_data_protos_by_numpy_are_read_too(tmp_path: Path) -> None:
    def flat(values: Array) -> Call:
        raw = values.tobytes()
        dtype = Call(Name("numpy", "dtype"), ("u1", False, True), (3, "|", None, None, None, -1, -1, 0))
        rebuild = Name("numpy._core.multiarray", "_reconstruct")
        return Call(rebuild, (Name("numpy", "ndarray"), (0,), b"b"), (1, (len(raw),), dtype, False, raw))

    def told(values: Array) -> tuple[Any, ...]:
        return str(values.dtype), values.shape, flat(values)

    ids, logps = np.array([[1, 2], [3, 4]]), np.array([[-1, -2], [-3, 0]], np.float32)
    tensors = {
        "responses": told(ids),
        "response_mask": told(np.array([[1, 1], [1, 0]])),
        "old_log_probs": ("jagged", [told(row) for row in logps]),
        "rollout_log_probs": told(logps),
    }
    state = (((2,), "cpu", tensors), {"uid": ["a", "a"]}, {"global_steps": 6})
    data = pickled(Call(Name("verl.protocol", "DataProto"), (), state))
    found = sequences(written(tmp_path / "gen_batch.dp", data))
    assert found["step"].to_list() == [6, 6]
    assert found["token_ids"].to_list() == [[1, 2], [3]]
    assert found["old_logp"].to_list() == found["rollout_logp"].to_list() == [[-1, -2], [-3]]


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("slime/train_data/3.pt", "slime"),
        ("skyrl/global_step_1_training_input.pkl", "skyrl"),
        ("verl/5/0/tq_batch.pt", "verl"),
    ],
)
def test_the_framework_is_told(path: str, wanted: str) -> None:
    facts = [piece.facts for piece in pieces_of(DUMPS / path) if isinstance(piece, Context)]
    assert facts == [{"framework": wanted}]


# ---- hooks ----


def test_trl_dump_of_a_real_run_with_tools() -> None:
    found = sequences(DUMPS / "trl" / "step_1.pt")
    assert found.height == 4
    assert found["step"].to_list() == [1] * 4
    masks = [np.array(mask) for mask in found["model_mask"].to_list()]
    assert any((~mask).any() and mask[0] and mask[-1] for mask in masks)
    for row in found.iter_rows(named=True):
        inside = np.array(row["model_mask"])
        rollout = np.array(row["rollout_logp"])
        assert (rollout[inside] < 0).all()
        assert (rollout[~inside] == 0).all()  # the engine's placeholder: nothing is shifted


HOOK_TRUTH = {
    "token_ids": [[5, 6, 7, 8], [9, 2]],
    "model_mask": [[True, False, False, True], [True, True]],  # the tool mask is filled up with 1
    "old_logp": [[-0.5, -9, -9, -0.25], [-1, -2]],
    "rollout_logp": [[-0.5, 0, 0, -0.125], [-1, -2.5]],
    "advantage": [[0.5] * 4, [-0.5] * 2],
}
VERL_NAMES = {
    "completion_ids": "responses",
    "old_per_token_logps": "old_log_probs",
    "sampling_per_token_logps": "rollout_log_probs",
    "advantages": "advantages",
}
OUR_NAMES = {
    "completion_ids": "token_ids",
    "old_per_token_logps": "old_logp",
    "sampling_per_token_logps": "rollout_logp",
    "advantages": "advantage",
}


def hooks() -> dict[str, bytes]:
    import io

    packed = io.BytesIO()
    np.savez_compressed(packed, allow_pickle=False, step=np.int64(7), **HOOK)
    verl = {theirs: HOOK[name] for name, theirs in VERL_NAMES.items()}
    ours = {name: HOOK[theirs] for theirs, name in OUR_NAMES.items()}
    inside = HOOK["completion_mask"]
    mask = inside * HOOK["tool_mask"]
    return {
        "a.pt": torch_file({"step": 7, **HOOK}),
        "b.pt": torch_file(
            {"step": 7, "batches": [{name: values[at : at + 1] for name, values in HOOK.items()} for at in (0, 1)]}
        ),
        "c_step7.pkl": pickled([torch_free(HOOK)]),
        "d.npz": packed.getvalue(),
        "e.safetensors": safetensors(HOOK, {"step": "7"}),
        "step_7.safetensors": safetensors(verl | {"response_mask": mask, "attention_mask": inside}),
        "000007.pt": torch_file(ours | {"model_mask": mask}),
    }


def torch_free(batch: dict[str, Array]) -> dict[str, Any]:
    """Return a batch as plain lists, one a sequence, without padding."""
    lengths = batch["completion_mask"].sum(1)
    return {
        name: [row[:end].tolist() for row, end in zip(values, lengths, strict=True)]
        if values.ndim == 2
        else values.tolist()
        for name, values in batch.items()
    }


@pytest.mark.parametrize("name", hooks())
def test_one_dump_in_any_container_and_spelling_gives_one_answer(tmp_path: Path, name: str) -> None:
    found = sequences(written(tmp_path / "hook" / name, hooks()[name]))
    assert found["step"].to_list() == [7, 7]
    assert found.select(HOOK_TRUTH.keys()).to_dict(as_series=False) == HOOK_TRUTH


@pytest.mark.parametrize("name", ["step_7.parquet", "step_7.jsonl"])
def test_one_dump_as_a_table_gives_the_same_answer(tmp_path: Path, name: str) -> None:
    rows = [{key: values[at].tolist() for key, values in HOOK.items()} for at in (0, 1)]
    path = tmp_path / "hook" / name
    path.parent.mkdir()
    if name.endswith(".parquet"):
        pl.DataFrame(rows).write_parquet(path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert takers(run_file(path)) == ["token_tables"]
    found = sequences(path)
    assert found["step"].to_list() == [7, 7]
    assert found.select(HOOK_TRUTH.keys()).to_dict(as_series=False) == HOOK_TRUTH


def test_a_file_without_any_step_is_lost_with_that_reason(tmp_path: Path) -> None:
    pieces = pieces_of(written(tmp_path / "last.pt", torch_file(HOOK)))
    assert losses(pieces) == (2, 0, "last.pt: neither its content nor its name gives the step.")


ODD: list[Any] = [
    None, True, "x", 0, -1, 2**40, 1.5, math.nan, [], {}, [None], ["a", "b"], [[1], [2]], {"a": 1},
    np.array(5), np.zeros(0), np.zeros(0, np.int64), np.arange(2), np.arange(4.0), np.full(6, np.nan),
    np.zeros((2, 3)), np.zeros((4, 6)), np.zeros((0, 3)), np.zeros((3, 0)), np.zeros((2, 2, 2)),
    np.array([True, False]), np.array([2**62, -(2**62)]), np.array([1e308, -1e308]), [np.arange(2), np.zeros((2, 2))],
]  # fmt: skip


def odd(value: Any, dice: random.Random) -> Any:
    """Replace some fields by values of another kind or shape, and drop some."""
    if dice.random() < 0.1:
        return dice.choice(ODD)
    if isinstance(value, dict):
        return {key: odd(entry, dice) for key, entry in value.items() if dice.random() > 0.03}
    return [odd(entry, dice) for entry in value] if isinstance(value, list) else value


@pytest.mark.slow
@pytest.mark.parametrize("name", ["slime_dumps", "token_tensors", "verl_batches"])
def test_fields_of_another_kind_or_shape_never_raise(tmp_path: Path, name: str) -> None:
    dice = random.Random(name)
    rows = lost = 0
    for _ in range(250):
        value = {
            "slime_dumps": dice.choice([format_one(), {"rollout_id": 1, "samples": [sample(), sample(index=1)]}]),
            "token_tensors": {"step": 1, "rewards": [0.5, 1.0], "uid": ["a", "b"], **HOOK},
            "verl_batches": {"keys": ["a_0_0", "a_1_0"], "tags": [{"min_global_steps": 1}], "global_steps": 2},
        }[name]
        changed = odd(value, dice)
        if name == "verl_batches":
            archive = Archive()
            held = {"_tensordict": archive.value(odd(dict(PROTO), dice))}
            made = Call(Name("tensordict._reductions", "_make_td"), (None, held))
            other = archive.value(changed) if isinstance(changed, dict) else {}
            data = archive.packed(pickled({"tensordict": made, **other}))
        else:
            data = torch_file(changed)
        pieces = pieces_of(written(tmp_path / "train_data" / "1.pt", data), name)
        rows += table(pieces, "sequences").height
        lost += bool(losses(pieces)[2])
    assert rows > 50
    assert lost > 50


@pytest.mark.parametrize(
    ("path", "step"),
    [
        ("dumped_data/global_step_12_training_input.pkl", 12),
        ("run3/step_000041.pt", 41),
        ("logprobs/17.npz", 17),
        ("GBS8_N4/23/gen_batch.dp", 23),
        ("a/step-5/0/x.pt", 0),
        ("a/5/inner/tq_batch.pt", 5),
        ("model-v2/last.pt", None),
    ],
)
def test_steps_in_names(path: str, step: int | None) -> None:
    assert step_named(Path("/data/run7") / path) == step


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("model.safetensors", safetensors({"lm_head.weight": np.zeros((2, 2), np.float32)})),
        ("optimizer.pt", torch_file({"state": {"0": {"exp_avg": np.zeros(3, np.float32)}}, "param_groups": []})),
        ("arrays.npz", b"PK\x03\x04"),
        ("config.pkl", pickled({"response_length": 5})),
    ],
)
def test_other_tensors_are_nobodys(tmp_path: Path, name: str, data: bytes) -> None:
    assert takers(run_file(written(tmp_path / name, data))) == []


def test_a_legacy_file_is_refused_with_advice(tmp_path: Path) -> None:
    legacy = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19." + pickled({"completion_mask": 1, "per_token_logps": 2})
    assert "load and save it again" in losses(pieces_of(written(tmp_path / "step_1.pt", legacy)))[2]


@pytest.mark.slow
def test_a_run_of_dumps_is_judged_like_the_same_run_in_parquet(tmp_path: Path) -> None:
    made = sequences_of(Story(post=rising(0.05, 1.5)))
    recorded = tmp_path / "recorded"
    (recorded / "tokens").mkdir(parents=True)
    for (step,), part in made.group_by("step"):
        logps = {"per_token_logps": "policy_logp", "ref_per_token_logps": "ref_logp"}
        part.drop("seq").with_columns(pl.col("policy_logp", "ref_logp").cast(pl.List(pl.Float32))).write_parquet(
            recorded / "tokens" / f"step_{step:06d}.parquet"
        )
        lengths = part["model_mask"].list.len().to_numpy()
        width = np.arange(int(lengths.max())) < lengths[:, None]
        batch = {theirs: np.zeros(width.shape, np.float32) for theirs in logps}
        for theirs, ours in logps.items():
            batch[theirs][width] = part[ours].explode().to_numpy()
        tools = np.ones(width.shape, np.int64)
        tools[width] = part["model_mask"].explode().to_numpy()
        whole: dict[str, Array] = {**batch, "completion_mask": width.astype(np.int64), "tool_mask": tools}
        written(tmp_path / "pt" / f"step_{step:06d}.pt", torch_file({"step": step, **whole}))
        written(tmp_path / "flat" / f"step_{step:06d}.safetensors", safetensors(whole))
    wanted = ptt.diagnose(recorded)
    assert wanted.signature.status == "found"
    for folder in ("pt", "flat"):
        found = ptt.diagnose(tmp_path / folder)
        assert found.signature == wanted.signature
        assert [finding.id for finding in found.findings] == [finding.id for finding in wanted.findings]
        assert found.run.model_tokens == wanted.run.model_tokens
