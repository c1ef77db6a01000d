"""`Recorder.write`: any loop's arrays become a file that `ptt` reads, and nothing it is given ends the training."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

import ptt
from ptt.diagnostics.schema import LOGPS, SEQUENCES
from ptt.recorders import Recorder
from ptt.recorders import recorder as recorder_module


class Tensor:
    """The face of a torch tensor that the recorder uses; the real one is tried in test_torch_values.py."""

    def __init__(self, values: Any, *, narrow: bool = False) -> None:
        self.values = np.asarray(values)
        self.narrow = narrow  # as bfloat16: numpy() refuses

    def detach(self) -> Tensor:
        return self

    def cpu(self) -> Tensor:
        return self

    def is_floating_point(self) -> bool:
        return self.narrow or self.values.dtype.kind == "f"

    def float(self) -> Tensor:
        return Tensor(self.values.astype(np.float32))

    def numpy(self) -> Any:
        if self.narrow:
            raise TypeError("Got unsupported ScalarType BFloat16")
        return self.values


ROW = {"model_mask": [True, False, True], "policy_logp": [-0.5, -0.25, -1.0], "ref_logp": [-0.5, -0.5, -0.75]}


def _strict(folder: Path) -> Recorder:
    return Recorder(folder / "tokens", strict=True)


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    rows = [
        ROW | {"sample_id": 7, "token_ids": [1, 2, 3], "reward": 0.5, "rewards": {"a": 1.0}, "tool_names": ["look"]},
        {"model_mask": [1], "policy_logp": [float("nan")], "ref_logp": [None], "tool_failed": [None, True]},
    ]
    path = _strict(tmp_path).write(3, rows)
    assert path == tmp_path / "tokens" / "step_000003.parquet"
    found = pl.read_parquet(path)
    assert found["step"].to_list() == [3, 3]
    assert found["sample_id"].to_list() == ["7", None]
    assert found["policy_logp"][0].to_list() == [-0.5, -0.25, -1.0]
    assert found["policy_logp"][1].is_nan().all()
    assert found["ref_logp"][1].to_list() == [None]
    assert found["tool_failed"].to_list() == [None, [None, True]]
    assert found["rewards"].to_list() == [{"a": 1.0}, None] or found["rewards"].to_list() == [{"a": 1.0}, {"a": None}]
    assert list(path.parent.iterdir()) == [path]


def test_columns_have_the_types_of_the_store(tmp_path: Path) -> None:
    row = ROW | {"entropy": [0.0, 0.5, 1.0], "advantage": [0.5, 0.5, 0.5], "train_mask": [1, 0, 0], "policy_version": 4}
    row |= {"value": [0.1, 0.2, 0.3], "return": [1.0, 1.0, 1.0]}
    row |= dict.fromkeys(("sample_id", "group_id", "trajectory_id", "env", "logp_kind"), "x")
    row |= {"reward": 1, "temperature": 1.0, "top_p": 1.0, "token_ids": [1, 2, 3], "tool_names": [], "tool_failed": []}
    path = Recorder(tmp_path, rank=2, strict=True).write(1, [row])
    assert path is not None
    held = pl.read_parquet(path).schema
    assert {name: kind for name, kind in held.items() if name in SEQUENCES} == {
        name: kind for name, kind in SEQUENCES.items() if name in held
    }
    assert set(held) == set(SEQUENCES) - {"old_logp", "rollout_logp", "prox_logp", "token_hash"}


def test_the_names_are_those_that_ptt_reads() -> None:
    assert recorder_module.LOGPS == LOGPS
    beside = {"value", "return", "rewards"}
    assert set(recorder_module.NAMES) == (set(SEQUENCES) | beside) - {"step", "rank", "token_hash"}


def test_padded_columns_are_cut_by_the_attention_mask(tmp_path: Path) -> None:
    present = np.array([[1, 1, 1, 0], [0, 1, 1, 0]])
    padded = {
        "model_mask": Tensor([[1, 0, 1, 0], [0, 1, 1, 0]]),
        "policy_logp": Tensor([[-1.0, -2, -3, 0], [0, -4, -5, 0]], narrow=True),
        "old_logp": np.array([[-1.0, -2, -3, 0], [0, -4, -5, 0]], dtype=np.float16),
        "advantage": Tensor([0.5, -0.5]),
        "reward": np.array([1, 0]),
        "rewards": {"a": Tensor([1.0, 0.0]), "b": [0.25, 0.5]},
    }
    path = _strict(tmp_path).write(1, padded, attention_mask=present)
    assert path is not None
    found = pl.read_parquet(path)
    assert found["policy_logp"].to_list() == [[-1, -2, -3], [-4, -5]]
    assert found["old_logp"].to_list() == [[-1, -2, -3], [-4, -5]]
    assert found["model_mask"].to_list() == [[True, False, True], [True, True]]
    assert found["advantage"].to_list() == [0.5, -0.5]
    assert found["rewards"].to_list() == [{"a": 1.0, "b": 0.25}, {"a": 0.0, "b": 0.5}]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([ROW | {"policy_logp": [-0.5]}], "row 0: policy_logp has 1 entries and model_mask 3"),
        ([ROW | {"ref_logprob": [0.0] * 3}], "did you mean ref_logp"),
        ([ROW | {"step": 3}], "leave it out"),
        ([{"model_mask": [True], "value": [-1.0]}], "no log-probability was given; add one of policy_logp"),
        ([{"policy_logp": [-1.0], "ref_logp": [-1.0]}], "no model_mask"),
        ([], "no model_mask"),
        ([[1, 2]], "a row is a list"),
        ([ROW | {"model_mask": [0, 2, 1]}], "other than true and false"),
        ([ROW | {"model_mask": None}], "every sequence needs one"),
        ([ROW | {"token_ids": [0.5, 1.0, 2.0]}], "not 32-bit integers"),
        ([ROW | {"token_ids": [1, 2, 1 << 40]}], "not 32-bit integers"),
        ([ROW | {"ref_logp": "abc"}], "one flat list"),
        ([ROW | {"ref_logp": ["a", "b", "c"]}], "values, not numbers"),
        ([ROW | {"ref_logp": [[0.0], [0.0], [0.0]]}], "2-dimensional"),
        ([ROW | {"reward": [1.0, 2.0]}], "give one number per sequence"),
        ({name: [value] * (2 if name == "ref_logp" else 1) for name, value in ROW.items()}, "different numbers"),
        ({"model_mask": True, "policy_logp": [[-1.0]], "ref_logp": [[-1.0]]}, "column model_mask is one bool"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence_and_nothing_is_left(tmp_path: Path, rows: Any, says: str) -> None:
    with pytest.raises((ValueError, TypeError), match=says):
        _strict(tmp_path).write(1, rows)
    assert not (tmp_path / "tokens").exists()


def test_training_goes_on_and_the_first_failure_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    recorder = Recorder(tmp_path / "tokens")
    with caplog.at_level(logging.WARNING, logger="ptt.recorders"):
        assert recorder.write(1, [{"nonsense": 1}]) is None
        assert recorder.write(2, object()) is None  # type: ignore[arg-type]
        assert recorder.write(3, [ROW]) is not None
    assert recorder.failures == 2
    (message,) = caplog.messages
    assert message.startswith("ptt: recording to ")
    assert "training goes on" in message
    assert "nonsense" in message
    assert not recorder.stopped


def test_after_three_failures_in_a_row_recording_stops(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "tokens")
    assert recorder.write(1, [ROW]) is not None
    assert [recorder.write(step, [{"nonsense": 1}]) for step in range(2, 9)] == [None] * 7
    assert (recorder.stopped, recorder.failures) == (True, recorder_module.MAX_FAILURES)
    assert recorder.write(9, [ROW]) is None
    assert not recorder.wants(10)
    assert [path.name for path in (tmp_path / "tokens").iterdir()] == ["step_000001.parquet"]


def test_without_a_log_it_is_said_on_standard_error(tmp_path: Path) -> None:
    code = (
        "import sys; from ptt.recorders import Recorder; r = Recorder(sys.argv[1]); "
        "r.write(1, [{'nonsense': 1}]); r.write(2, [{'model_mask': [1], 'policy_logp': [-1.0]}]); "
        "r.write(3, [{'model_mask': [1], 'policy_logp': [-1.0]}])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    failed, alone = done.stderr.splitlines()
    assert failed.startswith(f"ptt: recording to {tmp_path} failed, training goes on")
    assert alone.startswith(
        f"ptt: recording policy_logp alone to {tmp_path}. Rewards, advantages, groups and masks can"
    )
    assert alone.endswith("add one of old_logp, rollout_logp, ref_logp, prox_logp.")


def test_proximal_logprobs_values_and_returns_are_written_through(tmp_path: Path) -> None:
    row = ROW | {"prox_logp": [-0.5, -0.5, -1.0], "value": [0.0, 0.25, 0.5], "return": [1.0, 1.0, 1.0]}
    path = _strict(tmp_path).write(1, [row])
    assert path is not None
    found = pl.read_parquet(path)
    assert {name: found[name][0].to_list() for name in ("prox_logp", "value", "return")} == {
        name: row[name] for name in ("prox_logp", "value", "return")
    }
    assert found.schema["prox_logp"] == pl.List(pl.Float32)


def test_a_disk_that_refuses_does_not_end_training(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "file" / "tokens")
    (tmp_path / "file").write_text("in the way")
    assert recorder.write(1, [ROW]) is None
    assert recorder.failures == 1


def test_a_failing_write_leaves_the_earlier_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _strict(tmp_path).write(1, [ROW])
    assert path is not None
    before = path.read_bytes()

    def torn(_table: Any, file: Any, **_: Any) -> None:
        file.write(b"PAR1 half")
        raise OSError("no space left on device")

    monkeypatch.setattr(pq, "write_table", torn)
    with pytest.raises(OSError, match="no space"):
        _strict(tmp_path).write(1, [ROW])
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_step_is_written_once_but_a_resumed_run_replaces_it(tmp_path: Path) -> None:
    recorder = _strict(tmp_path)
    recorder.write(5, [ROW])
    with pytest.raises(ValueError, match="gather all its micro-batches"):
        recorder.write(5, [ROW])
    resumed = _strict(tmp_path).write(5, [ROW, ROW])
    assert resumed is not None
    assert pl.read_parquet(resumed).height == 2


def test_every_nth_step_and_the_rank_in_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    recorder = Recorder(tmp_path, every=10, strict=True, fsync=True)
    assert [step for step in range(1, 31) if recorder.write(step, [ROW])] == [10, 20, 30]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"step_0000{step}_rank3.parquet" for step in (10, 20, 30)
    ]
    assert pl.read_parquet(tmp_path / "step_000010_rank3.parquet")["rank"].to_list() == [3]


@pytest.mark.parametrize(
    ("folder", "options", "says"),
    [("", {}, "is empty"), ("x", {"every": 0}, "every=0"), ("x", {"rank": -1}, "rank=-1")],
)
def test_a_recorder_of_no_use_is_refused_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, options: dict[str, int], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=says):
        Recorder(folder, **options)  # type: ignore[arg-type]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("")
    with pytest.raises(ValueError, match="is a file"):
        Recorder(tmp_path / "tokens")


def test_ptt_reads_and_judges_what_a_plain_loop_wrote(tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    recorder = _strict(tmp_path)
    for step in range(1, 31):
        mask = np.ones((16, 60), dtype=bool)
        mask[8:, 20:30] = False
        ref = rng.normal(-1.2, 0.4, mask.shape)
        recorder.write(
            step,
            {
                "model_mask": mask,
                "policy_logp": ref + rng.normal(0, 0.05, mask.shape),
                "ref_logp": ref,
                "sample_id": [f"{step}-{row}" for row in range(16)],
                "group_id": [f"{step}-{row % 8}" for row in range(16)],
                "tool_names": [[]] * 8 + [["search"]] * 8,
            },
        )
    assert recorder.seconds > 0
    found = ptt.diagnose(tmp_path)
    assert found.signature.status == "not_found"
    assert [source.kind for source in found.sources] == ["recorder"] * 30


def test_importing_a_recorder_loads_neither_a_framework_nor_pyarrow() -> None:
    heavy = "{'polars', 'pyarrow', 'matplotlib', 'torch', 'transformers', 'trl', 'verl', 'openrlhf', 'areal', 'ray'}"
    names = ", ".join(f"ptt.recorders.{name}" for name in ("trl", "verl", "openrlhf", "areal"))
    code = f"import sys, ptt.recorders, {names}; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
