"""What the trainer says, recomputed: the table, the one line, and findings.json, from audits made by hand."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browsers import show
from builders import growing, write_recorder_run
from html_structure import Structure, page_with
from rich.console import Console
from typer.testing import CliRunner

from ptt import api
from ptt.cli.app import app
from ptt.diagnostics.model import Agreement, AuditRow, Diagnosis
from ptt.diagnostics.store.diagnosis import Conditions, read_kept, write_kept
from ptt.diagnostics.store.findings_file import read_findings
from ptt.reports.output import write_text
from ptt.reports.redact.redact import redacted
from ptt.reports.run.audit import AuditView, audit_view, recomputed_line
from ptt.reports.run.findings_json import findings_json
from ptt.reports.run.html import render_html
from ptt.reports.run.postmortem import postmortem
from ptt.reports.run.terminal import print_diagnosis

AGREES, DIFFERS, FACT, UNCHECKED = (
    Agreement.AGREES,
    Agreement.DIFFERS,
    Agreement.FACT,
    Agreement.NOT_CHECKABLE,
)
ADVANTAGE = AuditRow(
    quantity="advantage", agreement=AGREES, said="GRPO: reward less its group's mean, over the group's spread",
    logged_as="advantage", formula="grpo", logged=0.612, recomputed=0.612, error=2e-7, steps=48, agreeing=48,
)  # fmt: skip
KL = AuditRow(
    quantity="kl/ref", agreement=AGREES, said="k3, mean over the sampled tokens of a step", logged_as="kl",
    formula="k3", reduction="token_mean/model_mask", logged=0.0412, recomputed=0.0413, error=3e-4, steps=48,
    agreeing=47,
)  # fmt: skip
ENTROPY = AuditRow(
    quantity="entropy", agreement=DIFFERS, said="mean over the sampled tokens of a step",
    logged_as="actor/entropy_loss", logged=0.25, recomputed=0.34, error=0.36, steps=48, agreeing=17, since=241,
    reason="the logged mean takes in tool output", finding="tool-tail-growth",
)  # fmt: skip
CLIP = AuditRow(
    quantity="clip/frac",
    agreement=DIFFERS,
    said="share outside 0.8 to 1.28",
    logged_as="clipfrac",
    steps=48,
    error=12.0,
)
DENOMINATOR = AuditRow(
    quantity="loss denominator", agreement=FACT, said="all sampled tokens of a step", recomputed=18412.0, steps=48
)
MISMATCH = AuditRow(
    quantity="mismatch/kl", agreement=UNCHECKED, said="", logged_as="rollout_corr/kl", reason="no engine's logprobs",
    missing=("rollout_logp",),
)  # fmt: skip
GRADIENT = AuditRow(quantity="grad_norm", agreement=UNCHECKED, said="", reason="tokens hold no gradient")
ALL = (ADVANTAGE, KL, DENOMINATOR, MISMATCH, CLIP, GRADIENT, ENTROPY)


@pytest.fixture
def audited(samples: dict[str, Diagnosis]) -> Diagnosis:
    return replace(samples["baseline"], audit=ALL, tables={})


def view_of(diagnosis: Diagnosis) -> AuditView:
    view = audit_view(diagnosis)
    assert view is not None
    return view


def printed(diagnosis: Diagnosis) -> str:
    out = io.StringIO()
    print_diagnosis(diagnosis, Console(file=out, width=200), "report.html")
    return out.getvalue()


@pytest.mark.parametrize("audit", [None, ()])
def test_without_an_audit_nothing_is_said_of_one(audit: tuple[()] | None, samples: dict[str, Diagnosis]) -> None:
    diagnosis = replace(samples["baseline"], audit=audit, tables={})
    assert "recomputed" not in page_with(diagnosis).split("</style>")[1].lower()
    assert "Recomputed" not in printed(diagnosis)
    assert "recomputed" not in postmortem(diagnosis, {})


def test_what_differs_comes_first_then_what_agrees_then_facts(audited: Diagnosis) -> None:
    rows = view_of(audited).rows
    assert [(row.what, row.state) for row in rows] == [
        ("Entropy", "differs"),  # of those that differ first the one with a finding
        ("Clip fraction", "differs"),
        ("Advantages", "agrees"),
        ("Mean KL", "agrees"),
        ("Loss denominator", "fact"),
    ]
    assert [row.steps for row in rows] == ["17 of 48", "0 of 48", "48 of 48", "47 of 48", "48 steps"]
    assert [row.error for row in rows] == ["36%", "over 1\u202f000%", "below 0.001%", "0.03%", "—"]
    assert (rows[0].since, rows[0].said) == ("since step 241", ", nearest: mean over the sampled tokens of a step")
    assert view_of(audited).summary == "2 differ, 2 agree, 1 fact, 2 not checkable"


def test_a_difference_with_a_finding_opens_the_section_and_leads_to_it(audited: Diagnosis) -> None:
    page = render_html(audited)
    found = Structure(page)
    assert found.open == []
    assert len(found.ids) == len(set(found.ids))
    assert '<details class="chapter" open><summary><h2 id="h-recomputed">' in page
    assert '<a href="#finding-1"><b>Differs</b></a>' in page
    assert audited.findings[0].id == ENTROPY.finding
    assert 'id="finding-1"' in page
    assert '<a href="#recomputed">' in page
    for quiet in ((CLIP, KL), (replace(ENTROPY, finding="not-found-here"),)):
        page = page_with(replace(audited, audit=quiet))
        assert '<details class="chapter"><summary><h2 id="h-recomputed">' in page
        assert "<b>Differs</b></a>" not in page


def test_what_is_not_checkable_says_what_to_record_and_is_folded_where_it_is_much(audited: Diagnosis) -> None:
    view = view_of(audited)
    first, other = view.unchecked
    assert first.needs.startswith("Record `rollout_logp`, in TRL: from ptt.recorders.trl import record")
    assert first.rows == (("KL of trainer and engine", "rollout_corr/kl", "no engine's logprobs"),)
    assert (other.needs, other.rows) == ("", (("Gradient norm", "", "tokens hold no gradient"),))
    assert view.folded == ""
    many = view_of(replace(audited, audit=(KL, *[MISMATCH] * 4)))
    assert many.folded == "4 not checkable"
    assert [len(group.rows) for group in many.unchecked] == [4]


@pytest.mark.parametrize(
    ("audit", "line"),
    [
        (
            ALL,
            "entropy differs since step 241; advantages are GRPO's; KL is k3, token mean; 1 of 3 logged metrics agrees",
        ),
        ((ADVANTAGE, KL, MISMATCH), "advantages are GRPO's; KL is k3, token mean; 1 of 1 logged metrics agrees"),
        ((replace(ADVANTAGE, formula="own", said="reward less 0.5"),), "advantages: reward less 0.5"),
        ((replace(ADVANTAGE, agreement=DIFFERS, finding="tool-tail-growth"),), "advantages differ"),
        ((KL, replace(KL, agreement=DIFFERS)), "KL is k3, token mean; 0 of 1 logged metrics agree"),
        ((CLIP,), ""),  # no finding rests on it
        ((replace(ENTROPY, finding="not-found-here"), DENOMINATOR, MISMATCH), ""),
    ],
)
def test_one_line_says_what_the_trainer_computes(
    audit: tuple[AuditRow, ...], line: str, samples: dict[str, Diagnosis]
) -> None:
    diagnosis = replace(samples["baseline"], audit=audit)
    assert recomputed_line(diagnosis) == line
    assert ("Recomputed  " + line in printed(diagnosis)) is bool(line)
    told = [text for text in postmortem(diagnosis, {}).splitlines() if text.startswith("**What the trainer says")]
    assert len(told) == bool(line)


def test_rows_of_a_log_are_no_steps(audited: Diagnosis) -> None:
    rows = replace(audited, run=replace(audited.run, step_unit="row"))
    assert "entropy differs since row 241" in printed(rows)
    page = page_with(rows)
    assert "since row 241" in page
    assert "48 rows" in page


def test_foreign_names_and_texts_are_escaped(audited: Diagnosis) -> None:
    evil = "<script>alert(1)</script>\x1b[31m"
    row = replace(ENTROPY, logged_as=evil, said=evil, reason=evil, quantity=evil)
    unchecked = replace(MISMATCH, logged_as=evil, reason=evil, missing=(evil,))
    page = page_with(replace(audited, audit=(row, unchecked)))
    assert "<script" not in page
    assert "\x1b" not in page + printed(replace(audited, audit=(row,)))
    assert Structure(page).open == []


def test_the_audit_comes_back_from_findings_json_and_gives_the_same_bytes(audited: Diagnosis, tmp_path: Path) -> None:
    text = findings_json(audited, "1")
    held = read_findings(write_text(tmp_path / "findings.json", text))
    assert held.audit == ALL
    assert findings_json(held, "1") == text
    assert audit_view(held) == audit_view(audited)
    assert json.loads(text)["audit"][0]["agreement"] == "agrees"


def test_the_report_of_a_findings_json_shows_it(audited: Diagnosis, tmp_path: Path) -> None:
    source = write_text(tmp_path / "run" / "findings.json", findings_json(audited, "1"))
    done = CliRunner().invoke(app, ["report", str(source), "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "2 differ, 2 agree, 1 fact, 2 not checkable" in page
    again = json.loads((tmp_path / "out" / "findings.json").read_text(encoding="utf-8"))
    assert again["audit"] == json.loads(source.read_text(encoding="utf-8"))["audit"]


def test_a_store_keeps_it(audited: Diagnosis, tmp_path: Path) -> None:
    write_kept(tmp_path, "mark", "source", Conditions(settings="", version="1"), audited)
    kept = read_kept(tmp_path)
    assert kept is not None
    assert kept.diagnosis.audit == ALL


@pytest.mark.slow
def test_a_run_judged_twice_says_the_same(tmp_path: Path) -> None:
    run = write_recorder_run(tmp_path / "run", growing(), metrics={"kl": [0.1] * 60})
    first, second = (findings_json(api.diagnose(run, out=tmp_path / name), "1") for name in ("a", "b"))
    assert first == second
    assert "audit" in json.loads(first)


def test_redaction_hashes_the_run_s_own_names_and_keeps_ours(audited: Diagnosis) -> None:
    own = replace(
        ENTROPY, logged_as="acme/entropy", reason="zqorblat is left out", said="mean over zqorblat tokens",
        reduction="token_mean/zqorblat", missing=("acme_logp",),
    )  # fmt: skip
    shared = redacted(replace(audited, audit=(own, replace(KL, reduction="mean/model_mask"))), salt="s")
    assert shared.audit is not None
    first, second = shared.audit
    text = findings_json(shared, "1") + page_with(shared) + printed(shared)
    assert not re.search("acme|zqorblat", text)
    assert (first.quantity, first.since, first.logged, first.finding) == ("entropy", 241, 0.25, ENTROPY.finding)
    assert first.reason.endswith("is left out")
    assert (second.said, second.reduction, second.logged_as) == (KL.said, "mean/model_mask", "kl")


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 390, 768, 1280])
def test_the_table_fits_every_screen(width: int, audited: Diagnosis, browser: Any, tmp_path: Path) -> None:
    long = replace(KL, logged_as="rollout_corr/" + "a_long_name_of_a_metric/" * 8, reason="a reason " * 30)
    page = write_text(tmp_path / "report.html", render_html(replace(audited, audit=(*ALL, long))))
    show(browser, page.as_uri(), width=width)
    widths = (
        "const box = document.querySelector('.recomputed').parentElement; return [box.scrollWidth, box.clientWidth]"
    )
    table, room = browser.execute_script(widths)
    assert 0 < table <= room
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


@pytest.mark.slow
@pytest.mark.parametrize("audit", [ALL, (ADVANTAGE, KL)])
def test_paper_shows_it_where_it_is_open(
    audit: tuple[AuditRow, ...], audited: Diagnosis, browser: Any, tmp_path: Path
) -> None:
    page = write_text(tmp_path / "report.html", render_html(replace(audited, audit=audit)))
    show(browser, page.as_uri(), media="print", width=700)
    seen = "return document.getElementById('recomputed').checkVisibility({contentVisibilityAuto: true})"
    assert browser.execute_script(seen) is (audit is ALL)
