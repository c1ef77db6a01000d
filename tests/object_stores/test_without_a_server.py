"""What needs no server: URLs, missing libraries, other stores, and the arithmetic of byte ranges."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import ptt
from ptt import api
from ptt.cli.app import app
from ptt.object_stores.client import Url
from ptt.object_stores.remote_runs import _joined, _without, local_name


def test_without_the_library_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("botocore", "botocore.session"):
        monkeypatch.setitem(sys.modules, name, None)
    result = CliRunner().invoke(app, ["diagnose", "s3://bucket/run", "-o", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "pip install 'ptt-forensics[s3]'" in result.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "url", ["gs://bucket/run", "az://bucket/run", "https://host/run", "s3a://b/run", "S3://b/run", "file:///run"]
)
def test_stores_that_are_not_read_are_refused(url: str) -> None:
    with pytest.raises(ptt.SettingsError, match="only s3:// is read"):
        ptt.diagnose(url)


@pytest.mark.parametrize(
    ("given", "bucket", "key"),
    [
        ("s3://bucket", "bucket", ""),
        ("s3://bucket/", "bucket", ""),
        ("s3://bucket/a/b/", "bucket", "a/b"),
        (str(Path("s3://bucket/a b/ü")), "bucket", "a b/ü"),
    ],
)
def test_a_url_names_a_bucket_and_a_key(given: str, bucket: str, key: str) -> None:
    url = Url.parsed(given)
    assert (url.bucket, url.key) == (bucket, key)
    assert str(url) == f"s3://{bucket}/{key}".rstrip("/")


def test_a_url_without_a_bucket_is_refused() -> None:
    with pytest.raises(ptt.SettingsError, match="names no bucket"):
        Url.parsed("s3://")


@pytest.mark.parametrize("key", ["a\0b", os.fsdecode(b"a\xff")])
def test_a_key_that_no_object_can_have_is_refused(key: str) -> None:
    with pytest.raises(ptt.SettingsError, match="UTF-8"):
        Url.parsed(f"s3://bucket/{key}")


@pytest.mark.parametrize(("key", "name"), [("a/run", "run"), ("", "bucket"), ("a/..", ""), ("a/" + "n" * 250, "")])
def test_a_run_is_called_here_as_there_where_a_folder_can_be(key: str, name: str) -> None:
    assert local_name(Url(bucket="bucket", key=key)) == name


@pytest.mark.parametrize(
    "read",
    [
        ptt.sources,
        lambda url: ptt.show(url, "1:0"),
        lambda url: ptt.compare([url, "s3://bucket/other"]),
        lambda url: api.open_run(url, out="out"),
        api.traces,
    ],
)
def test_what_reads_no_object_store_says_what_does(read: Callable[[str], object]) -> None:
    with pytest.raises(ptt.InputError, match=r"s3://bucket/run: is read by the commands, ptt.diagnose and ptt.ingest"):
        read("s3://bucket/run")


def test_ranges_are_those_of_a_set_of_bytes() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        wanted, here = (
            _joined([(int(start), int(start + size)) for start, size in rng.integers(0, 30, (rng.integers(0, 6), 2))])
            for _ in range(2)
        )
        left = {byte for start, end in _without(wanted, here) for byte in range(start, end)}
        sets = [{byte for start, end in ranges for byte in range(start, end)} for ranges in (wanted, here)]
        assert left == sets[0] - sets[1]
        assert all(end < start for (_, end), (start, _) in pairwise(wanted))
