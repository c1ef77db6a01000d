"""The postmortem's skeleton: right in what it fills in, plain about what people must add, and harmless Markdown."""

from __future__ import annotations

import dataclasses
import os
import re
import tomllib
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judged_runs import RUNS
from markdown_it import MarkdownIt
from markdown_it.token import Token

from ptt import api
from ptt.diagnostics.gate.judge import judge
from ptt.diagnostics.gate.results import Outcome
from ptt.diagnostics.model import Status
from ptt.diagnostics.store.diagnosis import LoadedRun
from ptt.diagnostics.store.findings_file import read_findings
from ptt.reports.run.postmortem import postmortem
from ptt.reports.text.markdown import Markdown, code, md, target

GOLDEN = Path(__file__).parent / "golden"
PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
HOSTILE = (
    "a | b", "`code`", "<script>alert(1)</script>", "<details>", "@octocat", "#123", "GH-12", "org/repo#5",
    "[x](http://evil.example)", "![x](y)", "http://evil.example", "www.evil.example", "**b** _i_ ~~s~~", "$x$", "- a",
    "1. a", "# h", "> q", "---", "===", "a\nb\n\n# c", "&lt;", "\\|", "\\`", "\x1b[31m\u202e", "- [ ] x", "<!-- x -->",
)  # fmt: skip


def figures(diagnosis: api.Diagnosis) -> dict[str, str]:
    return {name: f"figures/{name}.png" for name in diagnosis.figures}


def headings(text: str) -> list[str]:
    return re.findall(r"^## (.*)$", text, re.MULTILINE)


def flat(tokens: list[Token]) -> list[Token]:
    return [inner for token in tokens for inner in (token, *flat(token.children or []))]


def plain(text: str) -> str:
    """Give what a reader sees of one line of Markdown."""
    return "".join(token.content for token in flat(PARSER.parse(text)) if token.type in {"text", "code_inline"})


@pytest.mark.parametrize("name", ["tool_tail_growth", "healthy", "verl_ppo_healthy"])
def test_golden(name: str, judged: dict[str, api.Diagnosis]) -> None:
    text = postmortem(judged[name], figures(judged[name]))
    assert text == postmortem(judged[name], figures(judged[name]))
    place = GOLDEN / f"postmortem_{name}.md"
    if os.environ.get("PTT_RECORD_GOLDEN"):
        place.write_text(text, encoding="utf-8")
    assert text == place.read_text(encoding="utf-8")


@pytest.mark.slow
def test_every_run_gets_the_parts_that_fit_it(judged: dict[str, api.Diagnosis]) -> None:
    always = {"Summary", "Timeline", "Evidence", "What followed from what", "What could not be judged, and why",
              "Action items", "Open questions"}  # fmt: skip
    for name, diagnosis in judged.items():
        text = postmortem(diagnosis, figures(diagnosis))
        broken = diagnosis.verdict.status in {"unstable", "suspect"}
        assert always <= set(headings(text)), name
        assert ("Impact" in headings(text)) == broken
        assert ("What would have caught it earlier" in headings(text)) == broken
        assert ("How to keep it healthy" in headings(text)) == (diagnosis.verdict.status == "healthy")
        assert ("How to make the next run judgeable" in headings(text)) == (diagnosis.verdict.status == "cannot_say")
        assert text.startswith("# Postmortem: " if broken else "# Review: ")
        assert "TODO" in text
        assert "\n\n\n\n" not in text


def test_tables_lists_and_pictures_are_read_as_such(judged: dict[str, api.Diagnosis]) -> None:
    diagnosis = judged["reward_hacking"]
    text = postmortem(diagnosis, figures(diagnosis))
    tokens = flat(PARSER.parse(text))
    assert sum(token.type == "table_open" for token in tokens) == 3
    assert sum(token.type == "image" for token in tokens) == len(diagnosis.figures)
    questions = sum(item.applies for item in diagnosis.not_judged)
    assert sum(token.type == "tr_open" for token in tokens) >= questions + len(diagnosis.findings)
    fences = [token for token in tokens if token.type == "fence"]
    assert [fence.info for fence in fences] == ["toml"]
    assert not [token for token in tokens if token.type in {"html_inline", "link_open"}]


def test_the_lines_for_the_gate_are_toml_that_names_a_rule_there_is(judged: dict[str, api.Diagnosis]) -> None:
    known = {page.id for page in api.rule_pages()}
    for name, diagnosis in judged.items():
        text = postmortem(diagnosis, {})
        (snippet,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
        gate = tomllib.loads(snippet)["gate"]
        assert set(gate) <= {"severity", "require"}, name
        assert set(gate.get("require", [])) <= known
        worst = min((finding.severity.rank for finding in diagnosis.findings), default=4)
        if diagnosis.verdict.status in {"unstable", "suspect"}:
            ranks = {"critical": 0, "high": 1, "medium": 2}
            assert worst <= ranks[gate["severity"]], name  # the check fails the very run it was written for


def test_impact_names_checkpoints_on_either_side(judged: dict[str, api.Diagnosis]) -> None:
    text = postmortem(judged["trl_sft_overfit"], {})
    assert re.search(r"^- Steps affected: from step \d+ to the end of the run", text, re.MULTILINE)
    assert re.search(r"^- Checkpoint to go back to: ", text, re.MULTILINE)
    assert re.search(r"^- Checkpoints not to trust: ", text, re.MULTILINE)


def test_what_has_no_onset_but_a_limit_that_it_passed_is_affected_from_there(judged: dict[str, api.Diagnosis]) -> None:
    base = judged["trl_sft_overfit"]
    passed = [
        dataclasses.replace(one, onset_step=None, onset_interval=None, limit_passed_step=7) for one in base.findings
    ]
    text = postmortem(dataclasses.replace(base, findings=tuple(passed)), {})
    assert "- Steps affected: from step 7 to the end of the run" in text


def test_from_findings_alone_it_says_what_it_lacks(findings: dict[str, Path]) -> None:
    text = postmortem(read_findings(findings["tool_tail_growth"]), {})
    assert text.count("Made from findings.json alone") == 1
    assert "findings.json does not list them" in text
    assert "found nothing amiss;" not in text


@pytest.mark.parametrize("text", HOSTILE)
def test_foreign_text_is_shown_and_forms_nothing(text: str) -> None:
    tokens = flat(PARSER.parse(f"- {md(text)}\n"))
    kinds = {token.type for token in tokens}
    assert kinds <= {"bullet_list_open", "bullet_list_close", "list_item_open", "list_item_close", "paragraph_open",
                     "paragraph_close", "inline", "text", "text_special"}  # fmt: skip
    made = md(text).replace("&#58;", "").replace("&#46;", "")
    assert not re.search(r"@\w|(?<!\\)#|://|www\.", made)
    assert not re.search(r"#\d|GH-\d", made)
    assert "\n" not in made
    assert "\x1b" not in made


@settings(max_examples=300, deadline=None)
@given(text=st.text(max_size=60) | st.lists(st.sampled_from(HOSTILE), max_size=3).map(" ".join))
def test_any_text_stays_one_cell_of_a_table(text: str) -> None:
    tokens = PARSER.parse(f"| a | b |\n|---|---|\n| {md(text)} | {code(text)} |\n")
    assert sum(token.type == "td_open" for token in tokens) == 2
    kinds = {token.type for token in flat(tokens)}
    assert not kinds & {"html_inline", "html_block", "link_open", "image", "em_open", "strong_open", "s_open"}


def test_hostile_runs_make_a_tame_document(judged: dict[str, api.Diagnosis]) -> None:
    whole = judged["reward_hacking"]
    evil = " ".join(HOSTILE)
    findings = tuple(
        dataclasses.replace(finding, claim=evil, causes=(evil,), next=(evil,), id=f"custom:{evil}")
        for finding in whole.findings
    )
    spoilt = dataclasses.replace(
        whole, findings=findings, run=dataclasses.replace(whole.run, name=evil),
        verdict=dataclasses.replace(whole.verdict, headline=evil, next=(evil,)),
    )  # fmt: skip
    text = postmortem(spoilt, {})
    tokens = flat(PARSER.parse(text))
    assert not [token for token in tokens if token.type in {"html_inline", "link_open", "image"}]
    blocks = {token.content.strip() for token in tokens if token.type == "html_block"}
    assert all(block.startswith(("<details><summary>Open questions", "</details>")) for block in blocks)
    assert headings(text) == headings(postmortem(whole, {}))
    assert "@octocat" not in text


def test_pieces() -> None:
    assert md("tool_tail p95 of |r|") == "tool_tail p95 of \\|r\\|"
    assert md("1. x") == "1\\. x"
    assert md("0.1.0") == "0.1.0"
    assert md(Markdown("**x**")) == "**x**"
    assert plain(md("a *b* [c] <d> `e` \\f")) == "a *b* [c] <d> `e` \\f"
    assert code("tool-tail-growth") == "`tool-tail-growth`"
    assert code("a`b") == "a\\`b"
    assert target("figures/a b).png") == "figures/a%20b%29.png"


@pytest.mark.parametrize("name", sorted(RUNS))
def test_the_gate_takes_the_lines_and_fails_such_a_run(
    name: str, judged: dict[str, api.Diagnosis], tmp_path: Path
) -> None:
    diagnosis = judged[name]
    text = postmortem(diagnosis, {})
    (snippet,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    place = tmp_path / "ptt.toml"
    place.write_text(snippet, encoding="utf-8")
    policy = api.gate_policy(place)
    opened = LoadedRun(diagnosis=diagnosis, profile=None, why_no_profile="not needed", source="", kind="run")
    outcome = judge(opened, policy, name=name, today=date(2026, 11, 21)).outcome
    if diagnosis.verdict.status in {Status.UNSTABLE, Status.SUSPECT}:
        assert "fail a run like this one" in text
        assert outcome is Outcome.FAILED
    elif diagnosis.verdict.status is Status.CANNOT_SAY:
        assert outcome in {Outcome.BLIND, Outcome.FAILED}
    else:
        assert outcome is Outcome.PASSED
