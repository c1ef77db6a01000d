"""What a notebook gets: short values, a card, figures as SVG, frames, and an executed example that still runs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ptt

ROOT = Path(__file__).parents[1]
BROKEN, HEALTHY = ROOT / "sample_logs" / "tool_tail_growth", ROOT / "sample_logs" / "healthy"
MAX_CARD = 60_000
MAX_LINES = 3


@pytest.fixture(scope="module")
def run() -> ptt.Diagnosis:
    return ptt.diagnose(BROKEN)


def test_the_card_is_small_and_shows_the_verdict_with_three_figures(run: ptt.Diagnosis) -> None:
    card = run._repr_html_()
    assert len(card.encode()) <= MAX_CARD
    assert card.count("<svg") == 3
    assert "Unstable tool_tail_growth" in card
    assert not re.search(r"<script|<iframe|https?://(?!www.w3.org)", card)
    assert set(re.findall(r"var\((--[\w-]+)\)", card)) <= set(re.findall(r"(--[\w-]+):", card))


def test_a_value_prints_in_three_lines_at_most(run: ptt.Diagnosis) -> None:
    assert len(repr(run).splitlines()) <= MAX_LINES
    assert repr(run).startswith("Unstable tool_tail_growth: ")


def test_figures_show_as_svg_with_bytes_that_do_not_change(run: ptt.Diagnosis) -> None:
    first, again = (run.figures["tail_emergence"]._repr_svg_() for _ in range(2))
    assert "<svg" in first
    assert first == again


def test_findings_are_a_frame(run: ptt.Diagnosis) -> None:
    frame = run.findings_frame
    assert frame["id"].to_list() == [finding.id for finding in run.findings]
    assert frame["since_step"].to_list() == [finding.seen_step for finding in run.findings]


def test_the_package_lists_its_public_names_alone() -> None:
    assert dir(ptt) == sorted(ptt.__all__)
    assert {"diagnose", "compare", "gate", "show", "traces"} <= set(dir(ptt))
    assert all(getattr(ptt, name) is not None for name in dir(ptt))


@pytest.mark.slow
def test_gate_is_a_function_and_one_bad_path_costs_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    report = ptt.gate([HEALTHY, BROKEN, tmp_path / "nowhere"])
    assert [run.outcome.value for run in report.runs] == ["passed", "failed", "unreadable"]
    assert report.outcome.value == "failed"


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A value of each kind that takes several runs, or traces."""
    place = tmp_path_factory.mktemp("answers")
    episode = {
        "messages": [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4 <b>"}],
        "reward": 1,
    }
    (place / "traces").mkdir()
    (place / "traces" / "episodes.jsonl").write_text((json.dumps(episode) + "\n") * 12, encoding="utf-8")
    runs = [ROOT / "sample_logs" / "healthy", BROKEN]
    return {
        "comparison": ptt.compare(runs, out=place / "compared"),
        "gate": ptt.gate(runs, out=place / "gated"),
        "traces": ptt.traces(place / "traces"),
    }


@pytest.mark.slow
def test_every_answer_prints_in_a_few_lines_and_shows_a_small_card(answers: dict[str, Any]) -> None:
    for kind, answer in answers.items():
        assert len(repr(answer).splitlines()) <= MAX_LINES + 1, kind
        card = answer._repr_html_()
        assert card.startswith("<div"), kind
        assert len(card.encode()) < MAX_CARD
        assert not re.search(r"<script|<iframe|https?://|<b>b", card)
    assert "tool_tail_growth against healthy" in repr(answers["comparison"])
    assert "<th" in answers["comparison"]._repr_html_()
    assert answers["gate"].exit_code == 3
    assert repr(answers["gate"]).startswith("■ ptt gate: failed (exit code 3): Of 2 runs, 1 failed and 1 passed.")
    assert "exit code 3" in answers["gate"]._repr_html_()
    assert "12 episodes" in repr(answers["traces"])


@pytest.mark.slow
def test_a_table_that_is_not_there_is_answered_with_those_that_are(answers: dict[str, Any], run: ptt.Diagnosis) -> None:
    for tables, there in (
        (run.tables, "metrics"),
        (answers["comparison"].tables, "windows"),
        (answers["traces"].tables, ""),
    ):
        with pytest.raises(KeyError, match=rf"no table tailz; the tables are .*{there}"):
            tables["tailz"]
        assert tables.get("tailz") is None


@pytest.mark.slow
def test_gate_takes_each_archive_of_a_folder_as_the_command_does(tmp_path: Path) -> None:
    for name in ("trl_sft_healthy.tar.zst", "trl_sft_overfit.tar.zst"):
        shutil.copy2(ROOT / "tests" / "fixtures" / "runs" / name, tmp_path / name)
    report = ptt.gate(tmp_path)
    assert [run.outcome.value for run in report.runs] == ["passed", "failed"]
    assert "contains 2 runs; each is gated" in report.notes[0]


def test_the_example_was_executed_without_an_error() -> None:
    cells = json.loads((ROOT / "docs" / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    outputs = [cell["outputs"] for cell in cells if cell["cell_type"] == "code"]
    assert all(shown["output_type"] == "execute_result" for output in outputs for shown in output)
    assert any("image/svg+xml" in shown["data"] for output in outputs for shown in output)


@pytest.mark.slow
def test_the_example_runs_as_it_is_written() -> None:
    code = "import make_notebook, json; print(json.dumps(make_notebook.notebook()))"
    done = subprocess.run([sys.executable, "-c", f"import sys; sys.path.insert(0, 'docs'); {code}"], cwd=ROOT,
                          capture_output=True, text=True, check=True)  # fmt: skip
    written = json.loads((ROOT / "docs" / "notebook.ipynb").read_text(encoding="utf-8"))
    made = json.loads(done.stdout)
    assert [cell["source"] for cell in made["cells"]] == [cell["source"] for cell in written["cells"]]
