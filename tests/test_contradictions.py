"""No report contradicts itself: the claims of every sample and every cut run, compared by type; and known cases."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from builders import evidence_of, series_of
from html_structure import page_with
from judged_runs import RUNS, judged_run

from benchmarks.contradictions import Kind, contradictions
from ptt import api
from ptt.diagnostics.evidence.algorithm import Algorithm, Family
from ptt.diagnostics.model import Answer, Broken, Diagnosis, Healthy, NotJudged, Severity, TailGrowth
from ptt.diagnostics.rules import RULES
from ptt.reports.figures.tail_emergence import takeaway as tail_title
from ptt.reports.figures.windowed_cdf import takeaway as shares_title
from ptt.reports.run.tail_details import details

FOUND = "tool_tail_growth"


@pytest.mark.parametrize("name", RUNS)
def test_no_two_claims_of_a_report_exclude_each_other(name: str) -> None:
    found = contradictions(judged_run(name))
    assert not found, "\n".join(map(str, found))


def kinds(diagnosis: Diagnosis) -> set[Kind]:
    return {found.one.kind for found in contradictions(diagnosis)}


def test_each_kind_of_contradiction_is_seen() -> None:
    whole = judged_run(FOUND)
    finding, signature = whole.findings[0], whole.signature
    name = next(metric for metric, way in signature.aggregates.metrics.items() if way != "cannot_say")
    absent = NotJudged(id="any", link=finding.link, reason=f"no {name} is logged", missing=(name,), absent=True)
    passed = Healthy(id=finding.id, link=finding.link, reason="nothing grew")
    fell = TailGrowth(p95=0.2, p99=0.2, interval_p95=None, interval_p99=None, beyond=(0.02, 0.01))
    assert kinds(replace(whole, not_judged=(*whole.not_judged, absent))) == {Kind.RECORDED}
    assert kinds(replace(whole, healthy=(*whole.healthy, passed))) == {Kind.FOUND}
    assert Kind.FOUND in kinds(replace(whole, signature=replace(signature, status=Answer.NOT_FOUND)))
    growth = {**signature.growth, "text_only": fell}
    assert {Kind.MOVED, Kind.VALUE} <= kinds(replace(whole, signature=replace(signature, growth=growth)))
    dated = replace(finding, onset_step=1 + (whole.run.last_step or 0))
    assert Kind.VALUE in kinds(replace(whole, findings=(dated, *whole.findings[1:])))


def supervised(folder: Path, **settings: object) -> Diagnosis:
    """Write and judge a run that logs its loss at each step, and an evaluation with these settings at 13."""
    folder.mkdir()
    rows = [{"step": step, "loss": 2 / step**0.5} for step in range(1, 131)]
    rows += [{"step": step, "eval_loss": 1 + 10 / step, **settings} for step in range(10, 131, 10)]
    text = "".join(json.dumps(row) + "\n" for row in sorted(rows, key=lambda row: float(row["step"])))
    (folder / "metrics.jsonl").write_text(text, encoding="utf-8")
    (folder / "config.json").write_text(json.dumps({"algorithm": "sft"}), encoding="utf-8")
    diagnosis = api.open_run(folder, out=folder.parent / "out").diagnosis
    assert not contradictions(diagnosis)
    return diagnosis


def words_of(diagnosis: Diagnosis) -> str:
    return " ".join(
        html.unescape(
            re.sub(r"<style.*?</style>|<svg.*?</svg>|<[^>]*>", " ", page_with(diagnosis).replace("<wbr>", ""))
        ).split()
    )


def test_no_check_says_that_no_evaluation_is_logged_beside_an_evaluation_loss(tmp_path: Path) -> None:
    diagnosis = supervised(tmp_path / "run")
    reasons = {item.id: item.reason for item in diagnosis.not_judged}
    assert reasons["eval-spikes"] == "no score or reward of an evaluation is logged, only eval_loss"
    said = words_of(diagnosis).lower()
    assert "no evaluation is logged" not in said
    assert "no evaluation is recorded" not in said
    assert "no evaluation with its settings is recorded" not in said


def test_the_settings_of_an_evaluation_are_recorded_in_every_list_or_in_none(tmp_path: Path) -> None:
    diagnosis = supervised(tmp_path / "run", **{"eval/temperature": 0.7, "eval/max_tokens": 512})
    context = {row["item"]: row for row in diagnosis.tables["context"].to_dicts()}
    lists = {row["item"]: row for row in diagnosis.tables["checklists"].to_dicts()}
    assert context["evaluation"]["present"]
    assert context["evaluation"]["value"] == "temperature 0.7, max_tokens 512"
    assert lists["The evaluation's settings are fixed and saved"]["answer"] == "yes"


def test_settings_in_a_file_that_is_not_read_are_neither_recorded_nor_none(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    rows = ({"step": step, "loss": 2 / step**0.5} for step in range(1, 40))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (folder / "overrides.yaml").write_text("- actor.optim.lr=1e-6\n", encoding="utf-8")
    said = words_of(api.open_run(folder, out=tmp_path / "out").diagnosis)
    assert "Settings in a file whose values ptt does not read overrides.yaml" in said
    assert "None were read: overrides.yaml may hold them, in a form that ptt does not read." in said
    assert "The run records no settings" not in said


def test_what_a_check_noted_is_not_listed_as_healthy() -> None:
    noted = [(run, check) for run in map(judged_run, RUNS) for check in run.healthy if check.notes]
    assert noted
    assert all(check not in run.passed for run, check in noted)
    run, check = noted[0]
    (listed,) = re.findall(r'<section id="healthy".*?</section>', page_with(run), flags=re.DOTALL)
    assert f"<code>{run.passed[0].id}</code>" in listed
    assert f"<code>{check.id}</code>" not in listed


def test_text_only_is_said_to_fall_only_where_no_measure_of_its_tail_rose() -> None:
    diagnosis = judged_run(FOUND)
    assert diagnosis.signature.growth["text_only"].movements == {"fell", "flat", "rose"}
    assert "(text-only 0.17 to 0.0412)" in diagnosis.verdict.headline
    assert tail_title(diagnosis).endswith("; text-only p95 fell")


def test_tokens_beyond_a_ratio_of_two_are_counted_once() -> None:
    diagnosis = judged_run(FOUND)
    counted = diagnosis.tables["extremes"].filter(slice="text_only").sort("window")["above_2"].to_list()  # early, late
    assert counted[:2] == pytest.approx([0.01684, 0.0426], rel=0.01)
    assert diagnosis.signature.growth["text_only"].beyond == pytest.approx(counted[:2], rel=0.02)
    assert "text-only 1.7% early, 4.3% late" in shares_title(diagnosis)
    assert any(
        "4.26%" in cell for part in details(diagnosis) for table in part.tables for row in table.rows for cell in row
    )


def test_a_small_rise_of_the_evaluation_loss_beyond_its_scatter_is_information() -> None:
    steps = list(range(50, 650, 50))
    held_out = series_of(
        "eval/loss", [1.5, 1.2, 1.0, 1.001, 1.01, 1.02, 1.03, 1.03, 1.031, 1.03, 1.032, 1.03], steps=steps
    )
    training = series_of("loss/total", 0.5 + 2 / np.sqrt(np.arange(1, 601)))
    evidence = replace(
        evidence_of(metrics={"loss/total": training}),
        algorithm=Algorithm(name="sft", family=Family.SUPERVISED),
        eval_loss=held_out,
    )
    rule = next(rule for rule in RULES if rule.id == "overfitting")
    verdict = rule.run(evidence)
    assert isinstance(verdict, Healthy)
    assert [note.severity for note in verdict.notes] == [Severity.INFO]
    assert "rose from 1.0 (step 150) to 1.03" in verdict.notes[0].claim
    learnt = {"loss/total": series_of("loss/total", 2 / np.arange(1, 601))}
    assert isinstance(rule.run(replace(evidence, metrics=learnt)), Broken), "memorised, whatever the small rise"
