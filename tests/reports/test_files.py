"""Files are written whole or not at all; what is no file is written to, and never replaced."""

import os
import threading
from pathlib import Path

import pytest

from ptt.reports.output import write_text, write_with


def test_a_link_keeps_pointing_where_it_does(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "report.html"
    link.symlink_to(tmp_path / "real" / "there.html")
    assert write_text(link, "one") == link
    write_text(link, "two")
    assert link.is_symlink()
    assert (tmp_path / "real" / "there.html").read_text(encoding="utf-8") == "two"
    assert [one.name for one in (tmp_path / "real").iterdir()] == ["there.html"]


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    heard: list[bytes] = []
    reader = threading.Thread(target=lambda: heard.append(pipe.read_bytes()))
    reader.start()
    write_text(pipe, "told")
    reader.join(10)
    assert heard == [b"told"]
    assert pipe.is_fifo()


def test_the_null_device_stays_one() -> None:
    write_text(Path(os.devnull), "nothing")
    assert Path(os.devnull).is_char_device()


def test_what_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    write_text(tmp_path / "a", "old")

    def fail(part: Path) -> None:
        part.write_text("half", encoding="utf-8")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        write_with(tmp_path / "a", fail)
    assert [one.name for one in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text(encoding="utf-8") == "old"
