"""A report made from findings.json alone: whole in what it holds, plain about what it lacks, and never a guess."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from judged_runs import judged_run

from ptt import api
from ptt.diagnostics.model import Diagnosis
from ptt.diagnostics.store.findings_file import read_findings
from ptt.reports.run.answers import happened
from ptt.reports.run.html import render_html
from ptt.reports.run.view import PARTIAL

UNTRUE = (
    "The run records no settings", "No check passed", "Not drawn", " 0 checks",
    "the run has no numbers", "no rule covers it yet", "cannot be ruled out", "No files were read",
    "raised no alarm", "Too few of the usual curves", "not recorded", "None", "Healthy checks", "Logged settings",
    "What to keep", "Behind the tail", "What would confirm it",
)  # fmt: skip


def words(diagnosis: Diagnosis) -> str:
    page = render_html(diagnosis).replace("<wbr>", "")
    body = re.sub(r"<style.*?</style>|<svg.*?</svg>", " ", page[page.index("<body") :], flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", body)))


@pytest.mark.slow
def test_what_is_lacking_is_said_once_and_nothing_is_made_up(
    judged: dict[str, api.Diagnosis], findings: dict[str, Path]
) -> None:
    for name, place in findings.items():
        held, whole = read_findings(place), judged[name]
        text, before = words(held), words(whole)
        assert text.count(PARTIAL) == 1, name
        assert PARTIAL not in before, name
        for phrase in UNTRUE:  # unless it is a rule's own word on this run
            told = sum(phrase in f"{item.reason} {item.enable}" for item in held.not_judged)
            told += sum(phrase in " ".join(f.causes + f.next + (f.claim,)) for f in held.findings)
            told += phrase in held.verdict.headline
            told += sum(phrase in row.reason for row in held.audit or ())
            told += held.outcome is not None and phrase in held.outcome.said
            told += phrase == "Behind the tail" and held.support is not None  # what it follows is in findings.json
            alarm = phrase == "raised no alarm" and whole.signature.aggregates.status == "quiet"
            logged = phrase == "Too few of the usual curves" and whole.signature.aggregates.status == "cannot_say"
            if not (told or alarm or logged):
                assert phrase not in text, (name, phrase)


@pytest.mark.slow
def test_what_it_holds_is_said_as_in_the_whole_report(
    judged: dict[str, api.Diagnosis], findings: dict[str, Path]
) -> None:
    for name, place in findings.items():
        held, whole = read_findings(place), judged[name]
        text = words(held)
        before = words(whole)
        for finding in whole.findings:
            claim = finding.claim[1:60]
            assert (claim in text) == (claim in before), (name, claim)
        absent = sum(not item.applies for item in whole.not_judged)
        assert sum(not item.applies for item in held.not_judged) == absent
        assert "The training loop, link by link" in text
        assert "Sources" in text
        assert all(sentence for sentence in happened(held))


def partly(name: str, folder: Path) -> Diagnosis:
    """Read back what findings.json holds of a run."""
    place = folder / name
    place.write_text(judged_run(name).to_json(), encoding="utf-8")
    return read_findings(place)


def test_the_timeline_is_drawn_and_no_other_figure(tmp_path: Path) -> None:
    page = render_html(partly("tool_tail_growth", tmp_path))
    assert re.findall(r'<figure id="([^"]+)"', page) == ["timeline"]
    assert 'href="#figures"' in page
    quiet = render_html(partly("verl_ppo_healthy", tmp_path))
    assert "<figure" not in quiet
    assert 'href="#figures"' not in quiet
    assert "<h2" in quiet
    for link in re.findall(r'href="#([^"]+)"', quiet):
        assert f'id="{link}"' in quiet, link


def test_an_alarm_is_told_though_its_name_is_not_there(tmp_path: Path) -> None:
    text = words(partly("tool_tail_growth", tmp_path))
    assert (
        "The usual curves raised an alarm, 285 steps (259 to 354) after the tail's own alarm; findings.json does not"
        in text
    )
