"""Runs judged at a time: the same comparison as one by one, and one that cannot be read is told as itself."""

from pathlib import Path

import pytest

from ptt import InputError, api
from ptt.reports.compare.texts import compare_json

SAMPLES = Path(__file__).parents[2] / "sample_logs"


@pytest.mark.slow
def test_two_at_a_time_say_what_one_by_one_do(tmp_path: Path) -> None:
    runs = [SAMPLES / "healthy", SAMPLES / "kl_penalised"]
    alone = api.compare(runs, out=tmp_path / "a")
    told: list[tuple[int, int]] = []
    together = api.compare(runs, out=tmp_path / "b", jobs=2, progress=lambda _, done, of: told.append((done, of)))
    assert compare_json(alone, "0") == compare_json(together, "0")
    assert told == [(1, 2), (2, 2)]


@pytest.mark.slow
def test_one_that_cannot_be_read_is_told_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "bad.tar.gz").write_bytes(b"no archive")
    with pytest.raises(InputError, match=r"bad\.tar\.gz"):
        api.compare([SAMPLES / "healthy", tmp_path / "bad.tar.gz"], out=tmp_path / "o", jobs=2)
