"""Small runs in the shapes that trainers and trackers leave, each with its own values."""

from __future__ import annotations

import json
import math
import random
import tarfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from samples_carriers import number, sized, wandb_file, wandb_history

Row = dict[str, float]


def rows_of(seed: int, *, first: int = 1, last: int = 30, every: int = 1) -> list[Row]:
    """Return the log of a run: the same seed gives the same values at the same steps."""
    rows: list[Row] = []
    for step in range(first, last + 1):
        noise = random.Random(f"{seed} {step}")
        row = {
            "step": step,
            "loss": 1 / math.sqrt(step) + noise.gauss(0, 0.05),
            "grad_norm": 1 + noise.random(),
            "reward": 0.5 + noise.gauss(0, 0.1),
            "learning_rate": 1e-5,
        }
        if step % every == 0 or step == first:
            rows.append(row)
    return rows


def write_state(folder: Path, rows: Sequence[Row]) -> Path:
    """Write a trainer_state.json."""
    folder.mkdir(parents=True, exist_ok=True)
    last = int(rows[-1]["step"])
    state = {"global_step": last, "max_steps": last, "log_history": list(rows)}
    (folder / "trainer_state.json").write_text(json.dumps(state), encoding="utf-8")
    return folder


def write_jsonl(path: Path, rows: Sequence[Row]) -> Path:
    """Write a metrics file of JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_console(path: Path, rows: Sequence[Row]) -> Path:
    """Write a console log as veRL prints it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        " - ".join(
            f"{name}:{value}"
            for name, value in {
                "step": int(row["step"]),
                "actor/loss": row["loss"],
                "critic/rewards/mean": row["reward"],
            }.items()
        )
        for row in rows
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_wandb(home: Path, run: str, rows: Sequence[Row], *, stamp: str = "20260101_120000") -> Path:
    """Write W&B's folder of one run below `home`/wandb."""
    folder = home / "wandb" / f"run-{stamp}-{run}"
    (folder / "files").mkdir(parents=True)
    records = [sized(17, sized(1, run))]
    for call, row in enumerate(rows):
        values = {f"train/{name}": str(value) for name, value in row.items() if name != "step"}
        named = {"train/global_step": str(int(row["step"])), "_step": str(call)}
        records.append(wandb_history(values | named, call))
    records.append(sized(18, number(1, 0) + number(2, 35)))
    (folder / f"run-{run}.wandb").write_bytes(wandb_file(records))
    (folder / "files" / "wandb-metadata.json").write_text('{"program": "train.py"}', encoding="utf-8")
    return folder


def write_events(folder: Path, rows: Sequence[Row], *, stamp: int = 1_700_000_000) -> Path:
    """Write a TensorBoard event file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # protobuf's own, while tensorboard is imported
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"events.out.tfevents.{stamp}.host.{len(list(folder.iterdir()))}.0"
    with path.open("wb") as handle:
        writer = RecordWriter(handle)
        for row in rows:
            values = [
                summary_pb2.Summary.Value(tag=f"train/{name}", simple_value=value)
                for name, value in row.items()
                if name != "step"
            ]
            event = event_pb2.Event(
                wall_time=stamp + row["step"], step=int(row["step"]), summary=summary_pb2.Summary(value=values)
            )
            writer.write(event.SerializeToString())
    return path


def write_mlflow(home: Path, run: str, rows: Sequence[Row]) -> Path:
    """Write MLflow's folder of one run below `home`/mlruns/0."""
    folder = home / "mlruns" / "0" / run
    (folder / "metrics").mkdir(parents=True)
    (folder / "meta.yaml").write_text(f"run_id: {run}\n", encoding="utf-8")
    for name in ("loss", "reward"):
        lines = [f"17000000{int(row['step']):05d} {row[name]} {int(row['step'])}\n" for row in rows]
        (folder / "metrics" / name).write_text("".join(lines), encoding="utf-8")
    return folder


def write_tokens(folder: Path, steps: Sequence[int], *, seed: int = 0, rank: int | None = None) -> Path:
    """Write recorder files, one a step."""
    folder.mkdir(parents=True, exist_ok=True)
    noise = random.Random(seed)
    for step in steps:
        logps = [-noise.random() for _ in range(8)]
        rows: Mapping[str, Any] = {
            "step": [step],
            "model_mask": [[True] * 8],
            "policy_logp": [logps],
            "ref_logp": [[logp - 0.01 for logp in logps]],
        }
        ending = "" if rank is None else f"_rank{rank}"
        pl.DataFrame(rows).write_parquet(folder / f"step_{step:06d}{ending}.parquet")
    return folder


def pack(folder: Path) -> Path:
    """Pack a folder beside itself."""
    path = folder.with_name(f"{folder.name}.tar.gz")
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder, arcname=folder.name)
    return path
