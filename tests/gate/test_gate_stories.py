"""The gate on the sample runs, opened as the command opens them: what fails, what passes, what is blind and why."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from gate_samples import check_of, gated
from judged_runs import opened_run
from shared_folder import shared_folder

from ptt import api
from ptt.diagnostics.errors import InputError, SettingsError
from ptt.diagnostics.gate.baseline.file import text_of
from ptt.diagnostics.gate.baseline.measure import baseline_of, measure
from ptt.diagnostics.gate.judge import judge
from ptt.diagnostics.gate.policy import Policy as GatePolicy
from ptt.diagnostics.gate.results import CheckKind, GatedRun, Outcome
from ptt.diagnostics.parsers.io import lines, metric_blocks
from ptt.diagnostics.store.diagnosis import LoadedRun

SAMPLES = Path(__file__).parents[2] / "sample_logs"
TODAY = date(2031, 5, 1)
Open = Callable[[str], LoadedRun]


@pytest.fixture(scope="module")
def story() -> Open:
    """Open a sample; each is judged once."""
    return opened_run


def outcome(run: LoadedRun, text: str = "", today: date = TODAY) -> Outcome:
    return gated(run, text, today=today).outcome


def test_by_the_default_policy_the_healthy_run_passes(story: Open) -> None:
    run = gated(story("healthy"))
    assert run.outcome is Outcome.PASSED
    assert [check.outcome for check in run.checks] == [Outcome.PASSED, Outcome.PASSED]
    assert run.status == "healthy"


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("tool_tail_growth", "severity:tool-tail-growth"),
        ("kl_penalised", "severity:tool-tail-growth"),  # suppressed, and still past what truncation bites on: high
        ("collapse", "severity:kl-over-target"),
    ],
)
def test_by_the_default_policy_the_others_fail(story: Open, name: str, check: str) -> None:
    run = gated(story(name))
    assert run.outcome is Outcome.FAILED
    assert run.checks[0].id == check
    assert run.checks[0].step is not None
    assert run.checks[0].file is not None
    assert (SAMPLES / name / run.checks[0].file).is_file()


def test_what_the_penalty_left_over_passes_where_only_critical_findings_fail(story: Open) -> None:
    text = '[gate]\nseverity = "critical"\n'
    assert outcome(story("kl_penalised"), text) is Outcome.PASSED
    assert outcome(story("tool_tail_growth"), text) is Outcome.FAILED
    assert outcome(story("collapse"), text) is Outcome.FAILED


def test_an_allowance_passes_the_run_until_it_expires(story: Open) -> None:
    text = """
[[gate.allow]]
finding = "tool-tail-growth"
slice = "post_tool"
owner = "ann"
reason = "the baseline arm of the study"
expires = 2031-05-01
"""
    run = gated(story("tool_tail_growth"), text, today=date(2031, 5, 1))
    assert run.outcome is Outcome.PASSED
    assert check_of(run, "severity:tool-tail-growth").waiver is not None
    assert outcome(story("tool_tail_growth"), text, today=date(2031, 5, 2)) is Outcome.FAILED
    assert outcome(story("collapse"), text) is Outcome.FAILED  # it covers one finding, not the run


def test_a_required_signature_is_blind_where_tools_vanished(story: Open) -> None:
    text = '[gate]\nseverity = "never"\nrequire = ["tool-tail-growth"]\n'
    assert outcome(story("healthy"), text) is Outcome.PASSED
    assert outcome(story("tool_tail_growth"), text) is Outcome.PASSED  # it was judged; what it found is not asked here
    run = gated(story("collapse"), text)
    assert run.outcome is Outcome.BLIND
    assert check_of(run, "required:tool-tail-growth").claim.startswith("it cannot say: ")


def test_a_run_that_was_to_go_on_is_blind(story: Open) -> None:
    assert outcome(story("healthy"), "[gate]\nlast_step = 500\n") is Outcome.PASSED
    run = gated(story("healthy"), "[gate]\nlast_step = 700\n")
    assert run.outcome is Outcome.BLIND
    assert check_of(run, "extent:last_step").claim == "the run ended earlier"


def test_an_empty_folder_is_blind(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    run = gated(api.open_run(tmp_path / "run", out=tmp_path / "out"))
    assert run.outcome is Outcome.BLIND
    assert {check.id for check in run.checks if check.outcome is Outcome.BLIND} == {"severity", "extent:min_steps"}


def test_a_run_of_a_few_steps_is_blind(tmp_path: Path) -> None:
    log = tmp_path / "run" / "metrics.jsonl"
    log.parent.mkdir()
    log.write_text("".join(f'{{"step": {step}, "kl": 0.01, "reward": 0.5, "loss": 0.1}}\n' for step in range(1, 13)))
    run = gated(api.open_run(log.parent, out=tmp_path / "out"))
    assert run.outcome is Outcome.BLIND
    assert check_of(run, "extent:min_steps").claim == "the run is too short to judge"


def test_one_that_cannot_be_read_raises_what_becomes_exit_code_5(tmp_path: Path) -> None:
    torn = tmp_path / "run.tar.zst"
    torn.write_bytes(b"\x28\xb5\x2f\xfd no archive")
    with pytest.raises(InputError):
        api.open_run(torn, out=tmp_path / "out")


def bound(metric: str, rest: str) -> str:
    return f'[gate]\nseverity = "never"\n[[gate.bound]]\nname = "b"\nmetric = "{metric}"\n{rest}\n'


@pytest.mark.parametrize(
    ("name", "metric", "rest", "wanted"),
    [
        ("healthy", "kl/ref", "max = 0.3", Outcome.PASSED),
        ("tool_tail_growth", "kl/ref", "max = 0.3", Outcome.FAILED),
        ("kl_penalised", "kl/ref", "max = 0.3", Outcome.PASSED),
        ("healthy", "reward/mean", "min = 0.9", Outcome.PASSED),
        ("collapse", "reward/mean", "min = 0.9", Outcome.FAILED),
        ("tool_tail_growth", "kl", "max = 0.1\nstatistic = 'change'\nwindow = 'all'", Outcome.FAILED),
        ("healthy", "tools/call_frequency", "min = 0.5\nwindow = 'last 50'", Outcome.PASSED),
        ("collapse", "tools/call_frequency", "min = 0.5\nwindow = 'last 50'", Outcome.FAILED),
        ("healthy", "critic/value_loss", "max = 1", Outcome.BLIND),
        ("healthy", "tail.post_tool.p95", "max = 2", Outcome.PASSED),
        ("tool_tail_growth", "tail.post_tool.p95", "max = 2", Outcome.FAILED),
        ("kl_penalised", "tail.post_tool.p95", "max = 2\nwindow = 'last 30'", Outcome.PASSED),
        ("tool_tail_growth", "tail.text_only.p99", "max = 2\nstatistic = 'ratio'\nwindow = 'all'", Outcome.PASSED),
        ("tool_tail_growth", "tail.post_tool.p95", "max = 2\nstatistic = 'ratio'\nwindow = 'all'", Outcome.FAILED),
        ("collapse", "tail.post_tool.p95", "max = 2", Outcome.BLIND),  # no tool is called in its late third
        ("healthy", "ess.text_only", "min = 0.1", Outcome.PASSED),
        ("healthy", "ess.post_tool", "min = 0.001", Outcome.BLIND),  # one weight decides it: 2e-8 to 1
        ("tool_tail_growth", "ess.post_tool", "min = 0.5", Outcome.FAILED),
        ("healthy", "ess.post_observation", "min = 0.001", Outcome.BLIND),
    ],
)
def test_bounds_on_real_runs(story: Open, name: str, metric: str, rest: str, wanted: Outcome) -> None:
    run = gated(story(name), bound(metric, rest))
    assert run.outcome is wanted
    assert check_of(run, "bound:b").outcome is wanted


def test_a_store_and_the_run_give_the_same_answer(story: Open) -> None:
    text = bound("kl/ref", "max = 0.3") + '[[gate.bound]]\nname = "c"\nmetric = "ess.post_tool"\nmin = 0.001\n'
    wanted = gated(story("healthy"), text).checks
    again: GatedRun = gated(api.open_run(shared_folder() / "healthy", out="never"), text)
    assert again.checks == wanted


def baseline_file(tmp_path: Path, *runs: LoadedRun) -> Path:
    file = tmp_path / "baseline.toml"
    file.write_text(text_of(baseline_of([measure(run) for run in runs], name="b", version="0")), encoding="utf-8")
    return file


def against(tmp_path: Path, rest: str = "") -> GatePolicy:
    settings = tmp_path / "ptt.toml"
    settings.write_text(f'[gate]\nseverity = "never"\n[gate.baseline]\nfile = "baseline.toml"\n{rest}')
    return api.gate_policy(settings)


def test_tails_worse_than_the_baseline_fail_and_smaller_ones_do_not(story: Open, tmp_path: Path) -> None:
    baseline_file(tmp_path, story("kl_penalised"))
    run = judge(story("tool_tail_growth"), against(tmp_path), name="a", today=TODAY)
    assert run.outcome is Outcome.FAILED
    worst = check_of(run, "baseline:tails.post_tool.late")
    assert worst.outcome is Outcome.FAILED
    assert worst.observed is not None
    assert worst.observed > 1.6
    titles = {one.id: one.title for one in run.checks if one.id.startswith("baseline:tails.post_tool")}
    assert titles == {
        "baseline:tails.post_tool.all": "the tails of post_tool over the run are not worse than the baseline's",
        "baseline:tails.post_tool.late": "the tails of post_tool late in the run are not worse than the baseline's",
    }
    baseline_file(tmp_path, story("tool_tail_growth"))
    run = judge(story("kl_penalised"), against(tmp_path), name="a", today=TODAY)
    assert check_of(run, "baseline:tails.post_tool.late").outcome is Outcome.PASSED


def test_a_run_against_itself_passes_and_is_told(story: Open, tmp_path: Path) -> None:
    baseline_file(tmp_path, story("healthy"))
    run = judge(story("healthy"), against(tmp_path), name="a", today=TODAY)
    assert run.outcome is Outcome.PASSED
    assert any("gated against itself" in note for note in run.notes)


def test_a_baseline_metric_that_can_never_be_judged_is_refused(story: Open, tmp_path: Path) -> None:
    baseline_file(tmp_path, story("healthy"))
    with pytest.raises(SettingsError, match="has no metric 'critic/value_loss'"):
        against(tmp_path, 'metrics = ["critic/value_loss"]\n')
    with pytest.raises(SettingsError, match="does not know which way 'loss/total' gets worse"):
        against(tmp_path, 'metrics = ["loss/total"]\n')
    run = judge(
        story("collapse"),
        against(tmp_path, '[gate.baseline.metrics]\n"reward/mean" = "lower"\n'),
        name="a",
        today=TODAY,
    )
    assert check_of(run, "baseline:reward/mean").outcome is not Outcome.PASSED


def test_a_run_without_what_the_baseline_holds_is_blind(story: Open, tmp_path: Path) -> None:
    baseline_file(tmp_path, story("healthy"))
    (tmp_path / "run").mkdir()
    empty = api.open_run(tmp_path / "run", out=tmp_path / "out")
    run = judge(empty, against(tmp_path), name="a", today=TODAY)
    assert run.outcome is Outcome.BLIND
    assert {check.outcome for check in run.checks if check.kind is CheckKind.BASELINE} == {Outcome.BLIND}


def test_a_log_kept_as_columns_gives_the_answers_of_one_kept_as_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = np.random.default_rng(0)
    rows = [
        {"step": step, "kl": abs(drawn.normal()), "my/own": drawn.normal(), "loss": drawn.normal()}
        for step in range(1, 301)
    ]
    rows[150]["my/own"] = math.nan  # sends its block the slow way, so that a part stands in rows
    log = tmp_path / "run" / "metrics.jsonl"
    log.parent.mkdir()
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(lines, "PIECE_BYTES", 2000)
    monkeypatch.setattr(lines, "BLOCK_BYTES", 2000)
    answers = []
    for out, least in (("long", 1 << 40), ("wide", 0)):
        monkeypatch.setattr(metric_blocks, "WIDE_BYTES", least)
        run = api.open_run(log.parent, out=tmp_path / out)
        assert ("other_series" in run.diagnosis.tables) == (out == "wide")
        for metric in ("kl", "kl/ref", "logged:kl", "my/own"):
            check = check_of(gated(run, bound(metric, "max = 9\nwindow = 'all'")), "bound:b")
            answers.append((out, metric, check.outcome, check.observed, check.data))
    assert [answer[1:] for answer in answers[:4]] == [answer[1:] for answer in answers[4:]]
    assert all("300 values" in answer[4] or "of 300" in answer[4] for answer in answers), answers
