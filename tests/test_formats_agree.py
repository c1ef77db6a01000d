"""One run written in nine token formats: the same figures and the same verdict from each."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from builders import Story, rising, sequences_of
from torch_files import Call, Name, pickled, safetensors, torch_file

import ptt
from ptt.diagnostics.model import Link

pytestmark = pytest.mark.slow

Array = np.ndarray[Any, Any]
Step = dict[str, list[Array]]  # ids, mask, old, rollout: one array a sequence
PROMPT = 3


def _steps() -> dict[int, Step]:
    """Make a run whose post-tool tail grows; tokens that were not sampled hold the 0.0 that engines put there."""
    steps: dict[int, Step] = {}
    dice = np.random.default_rng(7)
    for (step,), part in sequences_of(Story(post=rising(0.05, 1.5))).group_by("step", maintain_order=True):
        found: Step = {"ids": [], "mask": [], "old": [], "rollout": []}
        for row in part.iter_rows(named=True):
            mask = np.array(row["model_mask"])
            found["mask"].append(mask)
            found["ids"].append(dice.integers(10, 1000, len(mask)))
            for name, column in (("old", "policy_logp"), ("rollout", "ref_logp")):
                found[name].append(np.where(mask, np.array(row[column], np.float32), np.float32(0)))
        steps[int(step)] = found
    return steps


def _padded(rows: list[Array], fill: float = 0, *, right: bool = False) -> Array:
    width = max(map(len, rows))
    held = np.full((len(rows), width), fill, rows[0].dtype)
    for number, row in enumerate(rows):
        held[number, width - len(row) if right else 0 : width if right else len(row)] = row
    return held


def _records(step: int, data: Step) -> list[dict[str, Any]]:
    names = {"token_ids": "ids", "model_mask": "mask", "old_logp": "old", "rollout_logp": "rollout"}
    return [
        {"step": step, **{name: data[key][i].tolist() for name, key in names.items()}} for i in range(len(data["ids"]))
    ]


def recorder_parquet(run: Path, step: int, data: Step) -> None:
    kinds = {"old_logp": pl.List(pl.Float32), "rollout_logp": pl.List(pl.Float32), "token_ids": pl.List(pl.Int32)}
    frame = pl.DataFrame(_records(step, data), schema_overrides=kinds)
    frame.write_parquet(run / f"step_{step:06d}.parquet")


def recorder_jsonl(run: Path, step: int, data: Step) -> None:
    lines = "".join(json.dumps(row) + "\n" for row in _records(step, data))
    (run / f"step_{step:06d}.jsonl.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))


def _hook(data: Step) -> dict[str, Array]:
    inside = _padded([np.ones(len(row), np.int64) for row in data["ids"]])
    tools = _padded([row.astype(np.int64) for row in data["mask"]], 1)  # TRL pads its tool mask with 1
    logps = {"old_per_token_logps": "old", "sampling_per_token_logps": "rollout"}
    lists = {name: _padded(data[key]) for name, key in logps.items()}
    return {"completion_ids": _padded(data["ids"]), "completion_mask": inside, "tool_mask": tools, **lists}


def trl_pt(run: Path, step: int, data: Step) -> None:
    (run / f"step_{step}.pt").write_bytes(torch_file({"step": step, **_hook(data)}))


def trl_npz(run: Path, step: int, data: Step) -> None:
    packed = io.BytesIO()
    np.savez_compressed(packed, allow_pickle=False, step=np.int64(step), **_hook(data))
    (run / f"step_{step}.npz").write_bytes(packed.getvalue())


def trl_safetensors(run: Path, step: int, data: Step) -> None:
    (run / f"step_{step}.safetensors").write_bytes(safetensors(_hook(data), {"step": str(step)}))


def trl_jsonl(run: Path, step: int, data: Step) -> None:
    whole = _hook(data)
    rows = [
        {"step": step, **{name: values[at].tolist() for name, values in whole.items()}}
        for at in range(len(data["ids"]))
    ]
    (run / f"step_{step}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def slime(run: Path, step: int, data: Step) -> None:
    samples = [
        {
            "sample_index": 1000 * step + number,
            "tokens": np.concatenate([np.arange(1, PROMPT + 1), ids]),
            "total_lengths": PROMPT + len(ids),
            "response_lengths": len(ids),
            "loss_masks": data["mask"][number].astype(np.int64),
            "rewards": 0.0,
            "log_probs": data["old"][number],
            "rollout_log_probs": data["rollout"][number],
        }
        for number, ids in enumerate(data["ids"])
    ]
    document = {
        "format_version": 2,
        "rollout_id": step,
        "rank": 0,
        "samples": samples,
        "raw_reward": [0.0] * len(samples),
    }
    (run / "train_data").mkdir(exist_ok=True)
    (run / "train_data" / f"{step}.pt").write_bytes(torch_file(document))


def skyrl(run: Path, step: int, data: Step) -> None:
    whole = [np.concatenate([[step, number, 5], ids]) for number, ids in enumerate(data["ids"])]  # a prompt each
    fields = {
        "sequences": _padded(whole, right=True),
        "attention_mask": _padded([np.ones(len(row), np.int64) for row in whole], right=True),
        "response_mask": _padded([np.ones(len(row), np.int64) for row in data["ids"]], right=True),
        "loss_mask": _padded([row.astype(np.float32) for row in data["mask"]], right=True),
        "rollout_logprobs": _padded(data["rollout"], right=True),
        "action_log_probs": _padded(data["old"], right=True),
    }
    held = {
        name: {"format": "numpy", "data": values.tobytes(), "shape": values.shape, "dtype": str(values.dtype)}
        for name, values in fields.items()
    }
    module = "skyrl.backends.skyrl_train.training_batch"
    args = (Name(module, "TrainingInputBatch"), {"batch_dict": held, "metadata": {}})
    (run / "dumped_data").mkdir(exist_ok=True)
    target = run / "dumped_data" / f"global_step_{step}_training_input.pkl"
    target.write_bytes(pickled(Call(Name(module, "_rebuild_tensor_batch"), args)))


def nemo_rl(run: Path, step: int, data: Step) -> None:
    rows = []
    for number, ids in enumerate(data["ids"]):
        before = [0.0] * PROMPT
        own = [step, number, 5]  # the prompt: one of its own, so that no two sequences share a group
        rows.append(
            {
                "content": [["question", "answer"]],
                "rewards": [0.0],
                "input_lengths": [PROMPT + len(ids)],
                "token_ids": [[*own, *ids.tolist(), 0, 0]],
                "token_loss_mask": [[0] * PROMPT + data["mask"][number].astype(int).tolist() + [0, 0]],
                "sample_loss_mask": [1],
                "advantages": [[0.5] * (PROMPT + len(ids) + 2)],
                "generation_logprobs": [before + data["rollout"][number].tolist() + [0.0, 0.0]],
                "prev_logprobs": [before + data["old"][number].tolist() + [0.0, 0.0]],
                "idx": number,
            }
        )
    (run / f"train_data_step{step}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


WRITERS: dict[str, Callable[[Path, int, Step], None]] = {
    "recorder_parquet": recorder_parquet,
    "recorder_jsonl": recorder_jsonl,
    "trl_pt": trl_pt,
    "trl_npz": trl_npz,
    "trl_safetensors": trl_safetensors,
    "trl_jsonl": trl_jsonl,
    "slime": slime,
    "skyrl": skyrl,
    "nemo_rl": nemo_rl,
}


@pytest.fixture(scope="module")
def diagnoses(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ptt.Diagnosis]:
    """Judge the run once from each format."""
    steps, found = _steps(), {}
    for name, write in WRITERS.items():
        run = tmp_path_factory.mktemp(name) / "run"
        run.mkdir()
        for step, data in steps.items():
            write(run, step, data)
        found[name] = ptt.diagnose(run)
    return found


def test_the_run_has_something_to_find(diagnoses: dict[str, ptt.Diagnosis]) -> None:
    wanted = diagnoses["recorder_parquet"]
    assert wanted.signature.status == "found"
    assert wanted.signature.pair == "old/rollout"


@pytest.mark.parametrize("name", WRITERS)
def test_each_format_gives_the_same_verdict(name: str, diagnoses: dict[str, ptt.Diagnosis]) -> None:
    wanted, found = diagnoses["recorder_parquet"], diagnoses[name]
    assert found.signature == wanted.signature
    ids = [
        [finding.id for finding in one.findings if finding.link is not Link.REWARD]  # some formats carry rewards
        for one in (found, wanted)
    ]
    assert ids[0] == ids[1]
    assert found.verdict.status == wanted.verdict.status
    assert (found.run.sequences, found.run.model_tokens) == (wanted.run.sequences, wanted.run.model_tokens)


@pytest.mark.parametrize("name", WRITERS)
def test_each_format_gives_the_same_figures(name: str, diagnoses: dict[str, ptt.Diagnosis]) -> None:
    wanted, found = diagnoses["recorder_parquet"], diagnoses[name]
    for table in ("step_stats", "tail_emergence", "ecdf", "ess", "growth"):
        assert found.tables[table].equals(wanted.tables[table]), table
