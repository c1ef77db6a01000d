"""The inert reader beside torch's own `weights_only` load: a 16 MB slime rollout of lists, and train data of tensors.

`python -m benchmarks.torch_reader`. NumPy is all the reader needs, so this also runs where torch is and Polars is not:
`PYTHONPATH=. /path/to/python/with/torch -m benchmarks.torch_reader`. Each is timed in turn, the process that reads
already running; printed are the least and the median of the rounds.
"""

from __future__ import annotations

import io
import pickle
import statistics
import struct
import tempfile
import time
import zipfile
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np

from ptt.diagnostics.parsers.unpickle import Worker

ROUNDS = 5
SAMPLES, TOKENS = 256, 4500
MB = 1 << 20


def archive(path: Path, pickled: bytes, storages: dict[str, bytes]) -> None:
    """Write what torch.save writes."""
    members = {"data.pkl": pickled, "byteorder": b"little", "version": b"3\n"}
    members |= {f"data/{key}": raw for key, raw in storages.items()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as made:
        for name, raw in members.items():
            made.writestr(zipfile.ZipInfo(f"archive/{name}"), raw)


def rollout(path: Path) -> None:
    """Lists of Python numbers, as slime writes what was sampled."""
    dice = np.random.default_rng(1)
    samples = [
        {
            "index": at,
            "group_index": at // 8,
            "tokens": dice.integers(0, 150_000, TOKENS).tolist(),
            "response_length": TOKENS - 100,
            "reward": 1.0,
            "loss_mask": dice.integers(0, 2, TOKENS - 100).tolist(),
            "rollout_log_probs": (-dice.exponential(size=TOKENS - 100)).tolist(),
            "weight_versions": ["1"],
            "status": "completed",
        }
        for at in range(SAMPLES)
    ]
    archive(path, pickle.dumps({"rollout_id": 0, "samples": samples}, 2), {})


def train(path: Path) -> None:
    """A tensor a list, as slime writes what was trained on."""
    dice = np.random.default_rng(2)
    storages: dict[str, bytes] = {}
    out = io.BytesIO()
    out.write(b"\x80\x02}(X\x0a\x00\x00\x00rollout_idK\x00X\x07\x00\x00\x00samples](")
    for _ in range(SAMPLES):
        out.write(b"}(")
        for name, dtype in (("tokens", "int64"), ("log_probs", "float32"), ("rollout_log_probs", "float32")):
            key = str(len(storages))
            storages[key] = dice.integers(-9, 0, TOKENS).astype(dtype).tobytes()
            kind = b"LongStorage" if dtype == "int64" else b"FloatStorage"
            out.write(b"X" + struct.pack("<I", len(name)) + name.encode() + b"ctorch._utils\n_rebuild_tensor_v2\n((")
            out.write(b"X\x07\x00\x00\x00storagectorch\n" + kind + b"\nX" + struct.pack("<I", len(key)) + key.encode())
            out.write(b"X\x03\x00\x00\x00cpuM" + struct.pack("<H", TOKENS) + b"tQK\x00M" + struct.pack("<H", TOKENS))
            out.write(b"\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtR")
        out.write(b"u")
    out.write(b"eu.")
    archive(path, out.getvalue(), storages)


def timed(work: Callable[[], object]) -> list[float]:
    """Return the seconds of each round."""
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return seconds


def told(name: str, seconds: list[float]) -> None:
    print(f"  {name:28} least {min(seconds):.3f} s  median {statistics.median(seconds):.3f} s")


def main() -> None:
    """Make the files, time the readers in turn."""
    try:
        torch = import_module("torch")  # no dependency of ours, so no type checker finds it
    except ImportError:
        torch = None
        print("torch is not installed here: its load is not measured")
    worker = Worker()
    with tempfile.TemporaryDirectory() as folder:
        for make in (rollout, train):
            path = Path(folder) / f"{make.__name__}.pt"
            make(path)
            print(f"slime {make.__name__} data, {path.stat().st_size / MB:.1f} MB")
            start = time.perf_counter()
            worker.read(path)
            if make is rollout:
                print(f"  the process and the first file {time.perf_counter() - start:.3f} s")
            told("inert reader", timed(partial(worker.read, path)))
            if torch is not None:
                told("torch.load(weights_only=True)", timed(partial(torch.load, path, weights_only=True)))
    worker.close()


if __name__ == "__main__":
    main()
