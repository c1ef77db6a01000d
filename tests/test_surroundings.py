"""Odd settings files, closed pipes, poor encodings and narrow limits: a sentence and the right code, never a trace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ptt.cli import streams
from ptt.cli.app import app

SAMPLE = Path(__file__).parents[1] / "sample_logs" / "collapse"
DIGITS = "9" * 6000


@pytest.mark.parametrize(
    "text",
    [
        f"[limits.entropy-collapse]\nlimit = {DIGITS}\n",
        f"[budget]\nrows = {DIGITS}\n",
        f"[gate]\nrequire = [{DIGITS}]\n",
        f"[budget]\nrows = 0x{'f' * 6000}\n",
        f"[slices]\nmin_observation = 0x{'f' * 6000}\n",
        f"x = {'[' * 3000}{']' * 3000}\n",
        "[metrics]\nloss = \ud800\n",
    ],
)
@pytest.mark.parametrize("command", ["diagnose", "gate"])
def test_settings_that_no_run_has_are_wrong_usage(tmp_path: Path, text: str, command: str) -> None:
    settings = tmp_path / "ptt.toml"
    settings.write_bytes(text.encode("utf-8", "surrogatepass"))
    out = str(tmp_path / "out")
    ended = CliRunner().invoke(app, [command, str(SAMPLE), "--settings", str(settings), "--out", out])
    assert ended.exit_code == 2
    assert ended.stderr.startswith(f"ptt: {settings}: ")
    assert len(ended.stderr) < 1000


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_settings_and_baselines_that_never_end_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        for command in (["diagnose", str(SAMPLE), "--settings", str(path)], ["baseline", "show", str(path)]):
            ended = CliRunner().invoke(app, command)
            assert ended.exit_code == 2
            assert "it is no regular file" in ended.stderr


def command(*words: str, shell: str = "", **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run the command in a shell: `shell` holds `$PTT` where it stands."""
    line = " ".join([sys.executable, "-m", "ptt", *words])
    return subprocess.run(
        (shell or "$PTT").replace("$PTT", line),
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        timeout=120,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_an_encoding_cannot_write_is_replaced(encoding: str) -> None:
    ended = command("rules", "entropy-collapse", PYTHONIOENCODING=encoding)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert (b"?" in ended.stdout) == (encoding == "ascii")


@pytest.mark.slow
def test_a_reader_that_hangs_up_costs_nothing() -> None:
    ended = command("rules", "--json", shell="$PTT | head -c 1; exit ${PIPESTATUS[0]}")
    assert (ended.returncode, ended.stderr, ended.stdout) == (0, b"", b"{")


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "<&- >&- 2>&-"])
@pytest.mark.slow
def test_streams_that_are_closed_cost_nothing(closed: str) -> None:
    assert command("rules", shell=f"$PTT {closed}").returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_a_full_disk_behind_standard_output_is_told() -> None:
    ended = command("rules", shell="$PTT >/dev/full")
    assert ended.returncode == 2
    assert b"No space left on device" in ended.stderr
    assert b"Traceback" not in ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("limit", ["-f 1", "-f 20", "-f 60", "-n 10", "-n 20"])
def test_limits_on_files_end_with_a_sentence(tmp_path: Path, limit: str) -> None:
    ended = command("diagnose", str(SAMPLE), "--out", str(tmp_path / "out"), shell=f"ulimit {limit}; $PTT")
    assert ended.returncode == 2
    assert ended.stderr.startswith(b"ptt: ")
    assert b"Traceback" not in ended.stderr
    assert not (tmp_path / "out" / "report.html").exists()


@pytest.mark.slow
@pytest.mark.parametrize("words", [["diagnose"], ["sources"], ["ingest"], ["gate", "--reports", "none"]])
def test_every_command_ends_with_its_code_where_nobody_reads(tmp_path: Path, words: list[str]) -> None:
    out = [] if words == ["sources"] else ["--out", str(tmp_path / "out")]
    read = command(words[0], str(SAMPLE), *words[1:], *out)
    unread = command(words[0], str(SAMPLE), *words[1:], *out, shell="$PTT | true; exit ${PIPESTATUS[0]}")
    assert unread.returncode == read.returncode
    assert b"Traceback" not in unread.stderr


def test_json_on_a_terminal_holds_nothing_that_steers_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    document = {"name": "a\u202eb\u200bc\U000e0001é\u2028\x85", "Wörter": "中"}
    text = json.dumps(document, ensure_ascii=False)
    streams.print_json(text)
    assert capsys.readouterr().out == text
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    streams.print_json(text)
    printed = capsys.readouterr().out
    assert json.loads(printed) == document
    assert printed == text.replace("\u202e", "\\u202e").replace("\u200b", "\\u200b").replace(
        "\u2028", "\\u2028"
    ).replace("\U000e0001", "\\udb40\\udc01").replace("\x85", "\\u0085")
