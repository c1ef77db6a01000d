"""Logs in formats of their own: ten of them, what `[[logs]]` reads of them, and what `ptt sources` proposes."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

import ptt
from ptt import api
from ptt.cli.app import app
from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.parsers.io.interface import RunFile
from ptt.diagnostics.store.scan import read_table
from ptt.diagnostics.verdict.log_proposals import propose

FOLDER = Path(__file__).parent / "fixtures" / "own_logs"
TRUTH: dict[str, Any] = json.loads((FOLDER / "truth.json").read_text())
SETTINGS = {  # at most six lines each
    "fixed_width.txt": "",
    "pipes.log": "",
    "columns.out": """
        [[logs]]
        files = "columns.out"
        columns = { step = 2, "reward/mean" = 3, "len/response_mean" = 4, "loss/policy" = 5, "critic/value_loss" = 6, entropy = 7 }
    """,  # noqa: E501
    "bracketed.log": r"""
        [[logs]]
        files = "bracketed.log"
        line = '\[INFO\] (?P<step>\d+) (?P<loss>\S+) (?P<reward>\S+) (?P<kl>\S+) (?P<entropy>\S+) (?P<grad_norm>\S+)$'
    """,
    "german.txt": r"""
        [[logs]]
        files = "german.txt"
        line = 'Schritt +(?P<step>\d+) +Verlust (?P<loss>\S+) +Belohnung (?P<reward>\S+) +KL (?P<kl>\S+) +Entropie (?P<entropy>\S+)'
        decimal = ","
    """,  # noqa: E501
    "slashes.log": r"""
        [[logs]]
        files = "slashes.log"
        line = '^step (?P<step>\d+): (?P<loss>\S+) / (?P<reward>\S+) / (?P<kl>\S+) / (?P<lr>\S+)'
    """,
    "commented.tsv": """
        [[logs]]
        files = "*.tsv"
        columns = { step = 1, reward = 3, "len/response_mean" = 5, "loss/policy" = 6, "kl/ref" = 7 }
    """,
    "arrays.jsonl": r"""
        [[logs]]
        files = "arrays.jsonl"
        line = '^\[(\d+), \[(\S+), \S+\], (\S+), (\S+), (\S+), "train"\]'
        columns = { step = 1, reward = 2, loss = 3, kl = 4, entropy = 5 }
    """,
    "units.log": r"""
        [[logs]]
        files = "units.log"
        line = ' (?P<step>\d+)/\d+ done.*?, (?P<reward>[\d.]+)% correct, loss of (?P<loss>[\d.]+), (?P<response_length>\d+) .*gradient (?P<grad_norm>[\d.]+)'
    """,  # noqa: E501
    "nested.log": r"""
        [[logs]]
        files = "nested.log"
        line = '^\( *(\d+)\) return (\S+) \(sd \S+\) <- loss (\S+) \(policy (\S+) \(value ([\d.]+)\)\); kl (\S+) \(max \S+; H (\S+)'
        columns = { step = 1, "reward/mean" = 2, "loss/total" = 3, "loss/policy" = 4, "critic/value_loss" = 5, "kl/ref" = 6, entropy = 7 }
    """,  # noqa: E501
}  # fmt: skip


def _settings(folder: Path, text: str) -> ptt.Settings:
    path = folder / "ptt.toml"
    path.write_text(text)
    return api.read_settings(path)


def _metrics(run: Path, folder: Path, text: str) -> pl.DataFrame:
    return read_table(ptt.ingest(run, out=folder / "out", settings=_settings(folder, text)), "metrics")


def _note(run: Path, folder: Path, text: str) -> str:
    store = ptt.ingest(run, out=folder / "out", settings=_settings(folder, text))
    return str(read_table(store, "sources")["note"][0])


@pytest.mark.parametrize("name", TRUTH)
def test_ten_formats_are_read_with_six_lines_at_most(name: str, tmp_path: Path) -> None:
    assert len(SETTINGS[name].strip().splitlines()) <= 6
    metrics = _metrics(FOLDER / name, tmp_path, SETTINGS[name])
    for metric, points in TRUTH[name]["metrics"].items():
        rows = metrics.filter(pl.col("name") == metric)
        read = dict(rows.select("step", "value").iter_rows())
        assert rows.height == TRUTH[name]["rows"][metric], metric
        assert {step: read[step] for step, _ in points} == pytest.approx(dict(points)), metric


UNREAD = sorted(name for name, text in SETTINGS.items() if text and name != "columns.out")


@pytest.mark.parametrize("name", UNREAD)
def test_sources_propose_an_entry_that_reads_every_row(name: str, tmp_path: Path) -> None:
    (proposal,) = ptt.sources(FOLDER / name).proposals
    metrics = _metrics(FOLDER / name, tmp_path, proposal.toml)
    truth = TRUTH[name]["metrics"]
    steps = set(metrics["step"])
    assert steps >= {step for points in truth.values() for step, _ in points}
    read = {(step, round(value, 9)) for step, value in metrics.drop_nulls("value").select("step", "value").iter_rows()}
    wanted = {(step, round(value, 9)) for points in truth.values() for step, value in points}
    shares = {(step, round(value / 100, 9)) for step, value in wanted}  # of a percentage
    assert all(point in read or (point[0], round(point[1] / 100, 9)) in read & shares for point in wanted)
    shown = CliRunner().invoke(app, ["sources", str(FOLDER / name)]).stdout
    assert proposal.toml in shown


def test_names_beside_the_numbers_or_above_them_go_into_the_proposal() -> None:
    names = {name: ptt.sources(FOLDER / name).proposals[0].names for name in UNREAD}
    assert names["slashes.log"] == {"loss": "loss/total", "reward": "reward/mean", "kl": "kl/ref", "lr": "lr"}
    assert names["german.txt"].items() >= {"loss": "loss/total", "reward": "reward/mean", "KL": "kl/ref"}.items()
    assert names["commented.tsv"].items() >= {"reward_avg": "reward/mean", "pg_loss": "loss/policy"}.items()
    assert set(names["bracketed.log"]) == {f"value_{number}" for number in range(3, 8)}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("bracketed.log", "49 of its first 56 lines hold numbers in a layout of their own"),
        ("arrays.jsonl", "42 of its first 45 lines hold JSON lists without names"),
        ("german.txt", "40 of its first 44 lines hold numbers in a layout of their own"),
    ],
)
def test_a_refusal_says_what_a_text_looks_like(name: str, says: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["diagnose", str(FOLDER / name), "--out", str(tmp_path)])
    assert result.exit_code == 5
    assert says in " ".join(result.stderr.split())
    assert "ptt sources proposes" in " ".join(result.stderr.split())


ENTRY = "[[logs]]\nfiles = '*.log'\nline = '(?P<step>\\d+) (?P<loss>\\S+)$'\n"


def test_what_does_not_match_is_counted_and_quoted(tmp_path: Path) -> None:
    run = tmp_path / "a.log"
    run.write_text("hello\n\n1 0.5\n2 x\n3 -\n4 12%\n5 1,250\n6 nan\n7 8.1k\n8 1.5mnat\n9 4µ\n10 0.2")
    metrics = _metrics(run, tmp_path, ENTRY)
    assert metrics["step"].to_list() == [1, 4, 5, 6, 7, 8, 9]
    assert metrics["value"].to_list() == [0.5, 0.12, 1250.0, None, 8100.0, 0.0015, 4e-06]
    note = _note(run, tmp_path, ENTRY)
    assert "1 line of 10 matches no [[logs]] entry; the first is line 1, `hello`." in note
    assert "1 value skipped: not a number." in note
    assert "ends inside a line" in note


def test_an_entry_that_matches_nothing_says_so_and_all_is_lost(tmp_path: Path) -> None:
    run = tmp_path / "a.log"
    run.write_text("step=1, loss=0.5\nstep=2, loss=0.4\n")
    result = CliRunner().invoke(app, ["diagnose", str(run), "--settings", str(_written(tmp_path, ENTRY))])
    assert result.exit_code == 5
    assert "2 lines of 2 match no [[logs]] entry" in " ".join(result.stderr.split())


def _written(folder: Path, text: str) -> Path:
    (folder / "ptt.toml").write_text(text)
    return folder / "ptt.toml"


def test_the_end_of_a_run_is_read_beside_an_entry(tmp_path: Path) -> None:
    run = tmp_path / "a.log"
    tail = 'Traceback (most recent call last):\n  File "t.py", line 3, in <module>\nRuntimeError: CUDA out of memory.\n'
    run.write_text("".join(f"{step} {step / 9:.3f}\n" for step in range(40)) + tail)
    outcome = ptt.diagnose(run, settings=_settings(tmp_path, ENTRY)).outcome
    assert outcome is not None
    assert outcome.ended == "crashed"


def test_lines_without_a_step_are_numbered_and_two_entries_share_a_file(tmp_path: Path) -> None:
    run = tmp_path / "a.log"
    run.write_text("".join(f"train {n / 9:.2f}\n" + ("eval 0.5\n" if n % 3 == 0 else "") for n in range(9)))
    lines = ("train (?P<loss>\\S+)", "eval (?P<acc>\\S+)")
    text = "".join(f"[[logs]]\nfiles = 'a.log'\nline = '{line}'\n" for line in lines)
    rows = _metrics(run, tmp_path, text)
    assert rows.group_by("name_raw").len().sort("name_raw").rows() == [("console:acc", 3), ("console:loss", 9)]
    assert rows.filter(pl.col("name") == "loss/total")["step"].to_list() == list(range(1, 10))


def test_settings_change_what_a_kept_store_holds(tmp_path: Path) -> None:
    run = tmp_path / "a.log"
    run.write_text("".join(f"{step} {step / 9:.3f}\n" for step in range(40)))
    first = _metrics(run, tmp_path, ENTRY)
    second = _metrics(run, tmp_path, ENTRY.replace("loss", "reward"))
    assert (first["name"][0], second["name"][0]) == ("loss/total", "reward/mean")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("files = 'a'", "logs[0] needs `line`"),
        ("files = 'a'\nline = '(?P<step>'", "logs[0].line is no regular expression that ptt takes"),
        ("files = 'a'\nline = '(?=x)(?P<step>.)'", "look-around"),
        ("files = 'a'\nline = '(?P<step>.)'", "gives no value beside `step`"),
        ("files = 'a'\nline = '.(.)'", "has no named group"),
        ("files = 'a'\nline = '.(.)'\ncolumns = { loss = 2 }", "logs[0].columns.loss is 2, but `line` has 1 group"),
        ("files = 'a'\ncolumns = { loss = 1 }\nstep = 'iter'", "logs[0].step is 'iter', which is not on the line"),
        ("files = 'a'\nline = '(?P<a>.)'\nseparator = ','", "logs[0].separator"),
        ("files = 'a'\nline = '[a-z]{1001}(?P<a>.)'", "logs[0].line is longer than 1000"),
        ("files = 'a'\ncolumns = { loss = 0 }", "logs[0].columns"),
        ("files = 'a'\nregex = 'x'", "regex"),
        ("files = 'a'\ncolumns = { loss = 1 }\ndecimal = ';'", "decimal"),
    ],
)  # fmt: skip
def test_an_entry_that_cannot_be_used_names_its_key(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as error:
        _settings(tmp_path, f"[[logs]]\n{text}\n")
    assert says in str(error.value)


def test_an_expression_that_is_large_when_written_out_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="repeat less"):
        _settings(tmp_path, "[[logs]]\nfiles = 'a'\nline = '(?P<loss>(?:(?:a{0,200}){0,200})b)'\n")


@pytest.mark.parametrize("line", [r"(a+)+(?P<loss>b)", r"(?P<loss>(?:(?:a{0,30}){0,30})b)", r"(?P<loss>(.*a){12}b)"])
def test_no_expression_and_no_line_takes_long(line: str, tmp_path: Path) -> None:
    run = tmp_path / "a.log"
    run.write_text(("a" * 4_000 + "\n") * 100 + "a" * 3_000_000 + "\n")
    start = time.process_time()
    settings = _settings(tmp_path, f"[[logs]]\nfiles = 'a.log'\nline = '{line}'\n")
    found = ptt.sources(run, settings=settings)
    assert time.process_time() - start < 15
    assert found.held[0].notes


def test_a_hostile_text_proposes_nothing_and_takes_no_time(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes((b"1.2.3.4,5:6-7/" * 200 + b"\n") * 3000)
    start = time.process_time()
    propose(RunFile(path=path, rel="a.log", size=path.stat().st_size))
    path.write_bytes(b"\n".join(b"'\"\\ %d \x1b[31m %d.5 ]]>" % (step, step) for step in range(50)))
    (found,) = propose(RunFile(path=path, rel="a.log", size=path.stat().st_size))
    assert time.process_time() - start < 5
    assert "\x1b" not in found.toml
    assert _settings(tmp_path, found.toml).logs


def test_names_in_the_settings_that_the_run_does_not_hold_are_told(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    rows = ({"step": step, "avg_rew": step / 9, "mystery": step % 4} for step in range(20))
    (run / "log.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    text = '[metrics]\navg_rewd = "reward/mean"\nmystery = ""\nother = { better = "higher" }\n' + ENTRY
    path = _written(tmp_path, text)
    shown = CliRunner().invoke(app, ["sources", str(run), "--settings", str(path)])
    assert shown.exit_code == 0
    assert "[metrics] avg_rewd: nothing is logged under this name; is avg_rew meant?" in shown.stdout
    assert "[metrics] other: nothing is logged under this name" in shown.stdout
    assert "[[logs]] 1: no file of this run matches *.log." in shown.stdout
    assert "mystery:" not in shown.stdout
    strict = CliRunner().invoke(app, ["sources", str(run), "--settings", str(path), "--strict"])
    assert strict.exit_code == 2
    assert "is avg_rew meant?" in strict.stderr
    held = _written(tmp_path, '[metrics]\nmystery = "kl/ref"\n')
    assert CliRunner().invoke(app, ["sources", str(run), "--settings", str(held), "--strict"]).exit_code == 0


def test_every_logged_name_is_listed_with_what_it_is_taken_for_and_why(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    values = {"avg_rew": 1.0, "actor/entropy": 2.0, "mine": 3.0, "eval/f1": 4.0, "mapped": 5.0}
    values |= dict.fromkeys(("train_runtime", "completions/max_length", "rewards/format/mean", "loss_min"), 6.0)
    rows = ({"step": step} | {name: value + step / 9 for name, value in values.items()} for step in range(20))
    (run / "log.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    found = ptt.sources(run, settings=_settings(tmp_path, '[metrics]\nmapped = "kl/ref"\n'))
    names = {name.raw: (name.name, name.why, name.values) for name in found.names}
    assert names == {
        "avg_rew": ("reward/mean", "by its words", 20),
        "actor/entropy": ("entropy", "as veRL spells it", 20),
        "mapped": ("kl/ref", "by [metrics] in ptt.toml", 20),
        "eval/f1": (None, "figures of an evaluation", 20),
        "mine": (None, "not known", 20),
        "train_runtime": (None, "clocks and speeds", 20),
        "completions/max_length": (None, "recomputed where tokens are recorded", 20),
        "rewards/format/mean": (None, "parts of the reward", 20),
        "loss_min": (None, "held against other metrics", 20),
    }
    shown = CliRunner().invoke(app, ["sources", str(run)]).stdout
    assert "avg_rew: reward/mean, by its words" in shown
    assert "clocks and speeds: train_runtime" in shown
    assert "not known, and read by no built-in rule: mapped, mine" in shown


BAR = "PPO {p:3d}%|{b:<20}| {s}/80 [00:{s:02d}<01:00, 1.1s/it] {{rew {r:.3f}, gn 0.{s:02d}, kl {k:.2f} mnat}}"


def _log(folder: Path, text: str) -> Path:
    (folder / "a.log").write_text(text)
    return folder / "a.log"


def test_a_progress_bar_is_read_at_each_text_that_it_showed_and_its_proposal_fits_all(tmp_path: Path) -> None:
    texts = [
        BAR.format(p=100 * s // 80, b="█" * (s // 4) + "▍", s=s, r=0.2 + s / 200, k=0.01 * s) for s in range(1, 41)
    ]
    run = _log(tmp_path, "loading\n" + "\r".join(texts[:25]) + "\nsaved\n" + "\r".join(texts[25:]) + "\n")
    (held,) = ptt.sources(run).proposals
    assert held.matched == 40
    read = _metrics(run, tmp_path, held.toml)
    assert read.filter(name="reward/mean").sort("step")["value"].to_list() == [
        pytest.approx(0.2 + s / 200, abs=1e-3) for s in range(1, 41)
    ]
    assert read.filter(name="kl/ref").sort("step")["value"][-1] == pytest.approx(
        0.4e-3
    )  # thousandths, as its unit says
    assert "line 1" in _note(run, tmp_path, held.toml)


def test_names_of_the_table_name_metrics_with_and_without_a_step(tmp_path: Path) -> None:
    run = _log(tmp_path, "".join(f"it {s} {s / 10} {s / 100}\n" for s in range(1, 31)))
    for step in ("step = 2, ", ""):
        entry = f'[[logs]]\nfiles = "*"\ncolumns = {{ {step}"reward/mean" = 3, "clip/frac_high" = 4 }}\n'
        read = _metrics(run, tmp_path, entry)
        assert set(read["name"].to_list()) == {"reward/mean", "clip/frac_high"}


def test_a_time_that_rises_is_no_step(tmp_path: Path) -> None:
    rows = "".join(f"{1_700_000_000 + 7 * s} {s} {0.5 + s / 100:.3f}\n" for s in range(1, 31))
    run = _log(tmp_path, rows)
    (held,) = ptt.sources(run).proposals
    assert _metrics(run, tmp_path, held.toml)["step"].max() == 30
