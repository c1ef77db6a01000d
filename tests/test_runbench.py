"""The sealed set and its scorer: any tool's findings.json in, a table out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import binomtest

from benchmarks import runbench, runbench_rival

TRUTH = {
    "bad-tool": {"link": "environment", "findings": ["tool-failures"], "since": 61},
    "bf16-sampler": {"link": None, "findings": [], "since": None},
}


def answer(link: str | None, *findings: dict[str, Any]) -> dict[str, Any]:
    return {
        "run": {"steps": {"first": 1, "last": 121}},
        "verdict": {"status": "suspect" if findings else "healthy", "first_broken_link": link},
        "findings": list(findings),
    }


def finding(name: str = "tool-failures", severity: str = "high", **told: Any) -> dict[str, Any]:
    return {"id": name, "severity": severity, "link": "environment", "onset_step": 63, "onset_interval": None} | told


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    for case in TRUTH:
        for seed in (11, 12):
            run = tmp_path / "set" / "runs" / f"{case}-s{seed}"
            run.mkdir(parents=True)
            (run / "log.jsonl").write_text(f'{{"step": {seed}}}\n')
    (tmp_path / "set" / "truth.json").write_text(json.dumps(TRUTH))
    runbench.main(["seal", str(tmp_path / "set")])
    return tmp_path / "set"


@pytest.mark.parametrize(
    ("told", "right", "named", "dated"),
    [
        (answer("environment", finding()), True, True, True),
        (answer("environment", finding(onset_step=20)), True, True, False),
        (answer("environment", finding(onset_step=20, onset_interval=[10, 70])), True, True, True),
        (answer("reward", finding("reward-jump")), False, False, None),
        (answer("environment", finding(severity="low")), False, False, None),
        (answer(None), False, False, None),
    ],
)
def test_an_answer_about_a_broken_run(told: dict[str, Any], right: bool, named: bool, dated: bool | None) -> None:
    truth = runbench.Truth(link="environment", findings=("tool-failures",), since=61)
    found = runbench.score("bad-tool-s11", truth, told)
    assert (found.right, found.named, found.dated) == (right, named, dated)


def test_a_run_with_nothing_broken_must_not_be_accused() -> None:
    truth = runbench.Truth(link=None, findings=(), since=None)
    assert runbench.score("bf16-sampler-s11", truth, answer(None, finding(severity="low"))).accused is False
    accused = runbench.score("bf16-sampler-s11", truth, answer("environment", finding()))
    assert accused.accused
    assert not accused.right


def test_the_table_counts_and_gives_intervals(bench: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = tmp_path / "some-tool"
    for run, truth in runbench.truths(bench).items():
        (answers / run).mkdir(parents=True)
        told = answer("environment", finding()) if truth.link and run.endswith("11") else answer(None)
        (answers / run / "findings.json").write_text(json.dumps(told))
    runbench.main(["score", str(bench), str(answers)])
    printed = capsys.readouterr().out
    assert "### some-tool" in printed
    assert "| headline names the broken link | 1 of 2 | 50% | 9% to 91% |" in printed
    assert "| a finding is of the broken link | 1 of 2 | 50% | 9% to 91% |" in printed
    assert "| run with nothing broken accused | 0 of 2 | 0% | 0% to 66% |" in printed


def test_the_page_holds_the_set_its_seal_and_each_tools_scores(bench: Path, tmp_path: Path) -> None:
    for tool in ("one", "other"):
        for run in runbench.truths(bench):
            (tmp_path / tool / run).mkdir(parents=True)
            (tmp_path / tool / run / "findings.json").write_text(json.dumps(answer(None)))
    (tmp_path / "one" / "tool.json").write_text('{"tool": "Larch 2.1", "date": "2026-11-23"}')
    page = tmp_path / "page.md"
    runbench.main(["score", str(bench), str(tmp_path / "one"), str(tmp_path / "other"), "--page", str(page)])
    text = page.read_text()
    assert "4 real training runs" in text
    assert "seeds 11, 12" in text
    assert "| `bad-tool` | environment | 61 |" in text
    assert "### Larch 2.1, 2026-11-23" in text
    assert "### other, date unknown" in text


def test_a_tool_with_other_ids_says_what_a_finding_names() -> None:
    truth = runbench.Truth(link="policy_update", findings=("kl-over-target",), since=1)
    told = runbench_rival.verdict([("kl_instability", "high", [6, 9]), ("instability_hotspot", "medium", None)])
    found = runbench.score("learning-rate-x2000-s11", truth, told)
    assert (found.said, found.named, found.dated) == ("policy_update", True, True)
    assert runbench_rival.verdict([("win_rate_plateau", "low", None)])["verdict"]["status"] == "healthy"
    assert runbench_rival.verdict([], judged=False)["verdict"]["status"] == "cannot_say"


def test_what_the_other_tools_callback_stops_for_counts_as_a_finding() -> None:
    told = runbench_rival.verdict([("critical_failure: Inf detected in reward_mean", "high", [61])])
    truth = runbench.Truth(link="reward", findings=("metrics-lost",), since=61)
    found = runbench.score("one-infinite-reward-s11", truth, told)
    assert (found.right, found.named, found.dated) == (True, True, True)


def test_a_set_that_was_changed_is_refused(bench: Path, tmp_path: Path) -> None:
    (bench / "runs" / "bad-tool-s11" / "log.jsonl").write_text("{}\n")
    with pytest.raises(SystemExit, match="was changed since it was sealed"):
        runbench.main(["score", str(bench), str(tmp_path)])


@pytest.mark.parametrize(("hits", "trials"), [(0, 4), (1, 2), (26, 28), (28, 28)])
def test_intervals_are_wilsons(hits: int, trials: int) -> None:
    expected = binomtest(hits, trials).proportion_ci(method="wilson")
    assert runbench.wilson(hits, trials) == pytest.approx((expected.low, expected.high))
