"""Damaged input: the damage is named and counted, the rest is judged, nothing crashes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from builders import growing, source, write_recorder_run
from html_structure import page_with

import ptt

VICTIM = "tokens/step_000020.parquet"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of 60 files, whose post-tool tail grows."""
    return write_recorder_run(tmp_path / "run", growing())


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-200])


def scramble_pages(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[60:1200] = bytes(255 - byte for byte in data[60:1200])
    path.write_bytes(bytes(data))


def text_logps(path: Path) -> None:
    frame = pl.read_parquet(path)
    frame.with_columns(pl.col("ref_logp").cast(pl.List(pl.String))).write_parquet(path)


def short_lists(path: Path) -> None:
    frame = pl.read_parquet(path)
    wrong = pl.when(pl.int_range(pl.len()) < 5).then(pl.col("ref_logp").list.head(2)).otherwise(pl.col("ref_logp"))
    frame.with_columns(wrong).write_parquet(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("harm", "says", "bad", "lost"),
    [
        (cut, "cut", 0, 16),
        (scramble_pages, "pages are damaged", 16, 16),
        (text_logps, "ref_logp", 0, 0),  # its other logprob stays
        (short_lists, "5 rows left out", 5, 5),
    ],
)
def test_one_harmed_file_costs_itself_and_is_named(
    harm: Callable[[Path], None], says: str, bad: int, lost: int, run: Path
) -> None:
    harm(run / VICTIM)
    found = ptt.diagnose(run)
    told = source(found, VICTIM)
    assert told.note is not None
    assert says in told.note
    assert told.rows_bad >= bad
    assert found.signature.status == "found"
    assert found.run.sequences == 60 * 16 - lost


def test_null_and_nan_logprobs_are_counted_and_never_filled(run: Path) -> None:
    path = run / VICTIM
    frame = pl.read_parquet(path)
    broken = pl.col("ref_logp").list.eval(pl.element() * float("nan"))
    frame.with_columns(broken).write_parquet(path)
    found = ptt.diagnose(run)
    steps = found.tables["step_stats"].filter(pl.col("pair") == "policy/ref")["step"].to_list()
    assert (20 in steps, len(set(steps))) == (False, 59)
    assert found.signature.status == "found"


def test_a_torn_jsonl_line_costs_that_line(tmp_path: Path) -> None:
    rows = [
        {"step": step, "kl": 0.01, "loss": 0.1, "entropy": 0.5, "reward": 1.0, "grad_norm": 1.0} for step in range(40)
    ]
    text = "\n".join(json.dumps(row) for row in rows)
    (tmp_path / "metrics.jsonl").write_text(text[:-10])
    found = ptt.diagnose(tmp_path)
    (told,) = found.sources
    assert (told.rows_bad, told.note is not None) == (1, True)
    assert found.run.last_step == 38
    assert {verdict.id for verdict in found.healthy} >= {"kl-over-target", "metrics-lost"}


def test_a_run_of_nothing_but_a_cut_file_is_unreadable(tmp_path: Path) -> None:
    run = write_recorder_run(tmp_path / "run", growing(steps=1))
    cut(run / "tokens" / "step_000001.parquet")
    with pytest.raises(ptt.InputError, match="could be read"):
        ptt.diagnose(run)


def test_links_out_of_the_run_are_not_followed(tmp_path: Path) -> None:
    run = write_recorder_run(tmp_path / "run", growing(steps=3))
    outside = tmp_path / "outside.parquet"
    pl.read_parquet(run / "tokens" / "step_000003.parquet").with_columns(step=999).write_parquet(outside)
    (run / "tokens" / "step_000999.parquet").symlink_to(outside)
    (run / "more").symlink_to(tmp_path)
    found = ptt.diagnose(run)
    assert found.run.last_step == 3
    assert any("link" in (told.note or "") for told in found.sources)


@pytest.mark.slow
def test_a_rule_that_crashes_costs_neither_the_report_nor_its_own_silence(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ptt.diagnostics.gate.judge import decide
    from ptt.diagnostics.gate.results import Outcome
    from ptt.diagnostics.model import Link
    from ptt.diagnostics.rules import RULES
    from ptt.diagnostics.rules.interface import Rule

    def burst(*_: object) -> None:
        raise ZeroDivisionError("no such luck")

    bad = Rule(id="bursting", link=Link.NUMERICS, check=burst)  # type: ignore[arg-type]
    monkeypatch.setattr("ptt.diagnostics.verdict.run_rules.RULES", (*RULES, bad))
    found = ptt.diagnose(run)
    assert [crash.id for crash in found.crashes] == ["bursting"]
    assert "no such luck" in found.crashes[0].error
    assert "bursting" in page_with(found)
    assert found.signature.status == "found"
    assert decide(found, fail_on=None) is Outcome.CRASHED


def test_logprobs_that_die_are_critical_and_dated(run: Path) -> None:
    """The last files hold nothing but NaN: the figures end before them, and that must not look healthy."""
    paths = sorted((run / "tokens").glob("*.parquet"))[-20:]
    for path in paths:
        dead = pl.col("policy_logp").list.eval(pl.element() * float("nan"))
        pl.read_parquet(path).with_columns(dead).write_parquet(path)
    first = int(paths[0].stem[-6:])
    found = ptt.diagnose(run)
    (finding,) = [finding for finding in found.findings if finding.id == "missing-logprobs"]
    assert finding.severity == "critical"
    assert finding.onset_step == first


def test_brackets_and_stars_in_names_are_names(tmp_path: Path) -> None:
    place = write_recorder_run(tmp_path / "a[1]" / "b*", growing(steps=12))
    found = ptt.diagnose(place, out=tmp_path / "o[0]")
    assert found.to_json() == ptt.diagnose(place, out=tmp_path / "o[0]").to_json()
    assert found.run.step_count == 12


def test_a_null_beside_a_value_is_not_a_loss(tmp_path: Path) -> None:
    rows: list[dict[str, float | None]] = [{"step": step, "loss": 0.1, "kl": 0.01} for step in range(60)]
    rows += [{"step": step, "loss": None, "kl": None, "eval_reward": 0.5} for step in range(19, 60, 20)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "metrics-lost" not in {finding.id for finding in ptt.diagnose(tmp_path).findings}


def test_a_metric_that_dies_is_dated_by_its_death_not_by_an_earlier_gap(tmp_path: Path) -> None:
    rows: list[dict[str, float | None]] = [{"step": step, "loss": 0.1, "kl": 0.01} for step in range(200)]
    rows[50]["loss"] = None
    for row in rows[151:]:
        row["loss"] = float("nan")
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (finding,) = [finding for finding in ptt.diagnose(tmp_path).findings if finding.id == "metrics-lost"]
    assert (str(finding.severity), finding.onset_step) == ("critical", 151)
