"""Fixtures of tests in object stores: a server, a bucket on it, and a run to put there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from s3_server import BUCKET, SECRET, Bucket, Server

__all__ = ["empty_bucket", "made_run", "reset_server", "start_server"]


@pytest.fixture(name="s3_server", scope="session")
def start_server() -> Iterator[Server]:
    pytest.importorskip("moto", reason="needs moto, which `make test-s3` installs")
    server = Server()
    yield server
    server.stop()


@pytest.fixture(name="server")
def reset_server(s3_server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    s3_server.reset()
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3", "AWS_DEFAULT_REGION", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    given = {
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": s3_server.url,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/nonexistent/config",
        "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent/credentials",
        "NO_PROXY": "127.0.0.1",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    return s3_server


@pytest.fixture(name="bucket")
def empty_bucket(server: Server) -> Bucket:
    import botocore.session

    client = botocore.session.Session().create_client("s3", region_name="us-east-1")
    client.create_bucket(Bucket=BUCKET)
    held = Bucket(client)
    for key in held.sizes():
        client.delete_object(Bucket=BUCKET, Key=key)
    server.reset()
    return held


@pytest.fixture(name="run")
def made_run(tmp_path: Path) -> Path:
    """A run whose token dumps hold more than judging reads."""
    rng = np.random.default_rng(7)
    folder = tmp_path / "made"
    (folder / "tokens").mkdir(parents=True)
    rows, tokens = 64, 600
    for step in range(1, 6):
        logp = rng.normal(-1.0, 0.4, (rows, tokens))
        lists = {
            "policy_logp": logp,
            "ref_logp": logp + rng.normal(0, 0.05, logp.shape),
            "entropy": rng.uniform(0, 2, logp.shape),
            "advantage": rng.normal(0, 1, logp.shape),
            "hidden": rng.normal(0, 1, logp.shape),
        }
        frame = pl.DataFrame(
            {
                "step": pl.Series([step] * rows, dtype=pl.Int64),
                "sample_id": [f"{step}-{row}" for row in range(rows)],
                "group_id": [f"{step}-{row // 8}" for row in range(rows)],
                "data_set": ["math" if row % 2 else "code" for row in range(rows)],
                "token_ids": rng.integers(0, 50_000, logp.shape).astype(np.int32).tolist(),
                "model_mask": np.ones(logp.shape, dtype=bool).tolist(),
                **{name: values.astype(np.float32).tolist() for name, values in lists.items()},
            },
            schema_overrides={name: pl.List(pl.Float32) for name in lists} | {"token_ids": pl.List(pl.Int32)},
        )
        frame.write_parquet(folder / "tokens" / f"step_{step:06}.parquet")
    lines = [{"step": step, "reward": 0.1 * step, "kl": 0.01, "loss": 1.0} for step in range(1, 9)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder
