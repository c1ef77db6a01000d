"""The gate over agent traces: bounds on shares, a baseline of traces, and blind where nothing is recorded."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import date
from pathlib import Path

import pytest
from slow_cases import first_fast
from trace_diagnoses import failing_traces, healthy_traces, share, unlabelled_traces
from trace_stories import ask, call, end, say, write_episodes
from typer.testing import Result

from ptt import api
from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.gate.policy import Policy, ShareBound, TraceBaseline, TraceDemands, TracesTable
from ptt.diagnostics.gate.results import GatedRun, GateReport, Outcome
from ptt.diagnostics.gate.traces import judge_trace_set, stretched
from ptt.diagnostics.traces.compare import TraceSide
from ptt.diagnostics.traces.model import MEASURES, TraceDiagnosis
from ptt.reports.gate import FORMATS
from ptt.reports.gate.checks import measured

TODAY = date(2026, 1, 1)
Invoke = Callable[..., Result]


def gated(diagnosis: TraceDiagnosis, *bounds: ShareBound, **others: object) -> GatedRun:
    policy = Policy(severity=None, traces=TraceDemands(bounds=bounds, **others))  # type: ignore[arg-type]
    return judge_trace_set(TraceSide(diagnosis=diagnosis), policy, name="agents", today=TODAY)


def bound(low: float | None = None, high: float | None = None, confidence: float | None = None) -> ShareBound:
    return ShareBound(name="success_rate", low=low, high=high, confidence=confidence)


@pytest.mark.parametrize(
    ("limits", "outcome"),
    [
        ({"low": 0.4}, Outcome.PASSED),
        ({"low": 0.5}, Outcome.PASSED),  # 51%: the share itself decides
        ({"low": 0.52}, Outcome.FAILED),
        ({"high": 0.5}, Outcome.FAILED),
        ({"low": 0.4, "confidence": 0.95}, Outcome.PASSED),
        ({"low": 0.5, "confidence": 0.95}, Outcome.BLIND),  # 47% to 55%
        ({"low": 0.6, "confidence": 0.95}, Outcome.FAILED),
        ({"low": 0.475, "confidence": 0.8}, Outcome.PASSED),  # a narrower interval
    ],
)
def test_a_share_is_held_against_its_bound(limits: dict[str, float], outcome: Outcome) -> None:
    (check,) = [check for check in gated(failing_traces(), bound(**limits)).checks if check.id == "traces:success_rate"]
    assert check.outcome is outcome
    assert check.observed == pytest.approx(0.51)


def test_what_is_not_recorded_leaves_the_gate_blind() -> None:
    run = gated(unlabelled_traces(), bound(low=0.5))
    assert run.outcome is Outcome.BLIND
    assert any(check.claim == "no labelled episodes are recorded" for check in run.checks)


def test_too_few_for_an_interval_is_blind_where_a_confidence_is_asked() -> None:
    few = replace(failing_traces(), measured={"success_rate": replace(share(2, 3), interval=None)})
    assert gated(few, bound(low=0.1, confidence=0.9)).outcome is Outcome.BLIND
    assert gated(few, bound(low=0.1)).outcome is Outcome.PASSED


def test_an_interval_of_another_level_is_stretched_on_each_side() -> None:
    assert stretched(0.5, (0.4, 0.6), 0.95) == pytest.approx((0.4, 0.6))
    low, high = stretched(0.1, (0.08, 0.2), 0.99)
    assert (0.1 - low) / 0.02 == pytest.approx(2.5758 / 1.96, abs=1e-3)
    assert (high - 0.1) / 0.1 == pytest.approx(2.5758 / 1.96, abs=1e-3)


def test_few_episodes_are_too_few() -> None:
    assert gated(failing_traces(), min_episodes=600).outcome is Outcome.PASSED
    assert gated(failing_traces(), min_episodes=601).outcome is Outcome.BLIND


@pytest.mark.parametrize(
    ("baseline", "run", "margin", "outcome"),
    [
        (healthy_traces, failing_traces, 0.05, Outcome.FAILED),  # success 63% to 51%, failures 1% to 18%
        (failing_traces, healthy_traces, 0.05, Outcome.PASSED),
        (failing_traces, failing_traces, 0.06, Outcome.PASSED),
        (failing_traces, failing_traces, 0.02, Outcome.BLIND),  # the interval is wider than that
        (unlabelled_traces, failing_traces, 0.05, Outcome.BLIND),
    ],
)
def test_traces_are_held_against_a_baseline(
    baseline: Callable[[], TraceDiagnosis], run: Callable[[], TraceDiagnosis], margin: float, outcome: Outcome
) -> None:
    margins = {"success_rate": margin, "tool_failure_rate": margin}
    wanted = TraceBaseline(path=Path("b"), margins=margins, named=True, held=TraceSide(diagnosis=baseline()))
    assert gated(run(), baseline=wanted).outcome is outcome


def test_a_share_that_the_traces_lost_is_not_excused() -> None:
    lost = replace(failing_traces(), measured={"tool_failure_rate": share(40, 3140, 0.01)})
    margins = dict.fromkeys(MEASURES, 0.1)
    wanted = TraceBaseline(path=Path("b"), margins=margins, named=False, held=TraceSide(diagnosis=failing_traces()))
    assert gated(lost, baseline=wanted).outcome is Outcome.BLIND


def test_a_finding_at_the_policys_severity_fails_and_rules_of_runs_are_blind() -> None:
    side = TraceSide(diagnosis=failing_traces())
    assert judge_trace_set(side, Policy(), name="a", today=TODAY).outcome is Outcome.FAILED
    required = judge_trace_set(
        TraceSide(diagnosis=healthy_traces()), Policy(require=("kl-spike",)), name="a", today=TODAY
    )
    assert required.outcome is Outcome.BLIND


def test_every_format_shows_the_checks_of_traces() -> None:
    run = gated(failing_traces(), bound(low=0.6), ShareBound(name="refusal_rate", low=None, high=0.1))
    report = GateReport(outcome=run.outcome, runs=(run,))
    for form in FORMATS.values():
        text = form.render(report)
        assert "success_rate of the traces is at least 0.6" in text.replace("\\_", "_"), form.name
        assert "refusal_rate" in text.replace("\\_", "_"), form.name


def test_the_settings_have_a_key_for_every_share() -> None:
    assert set(MEASURES) == set(TracesTable.__struct_fields__) - {"min_episodes", "baseline"}
    assert {field.name for field in fields(TraceDemands)} == {"min_episodes", "bounds", "baseline"}


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("success_rate = {}", "has neither max nor min"),
        ("success_rate = { min = 0.6, max = 0.5 }", "above max"),
        ("success_rate = { min = 0.0 }", "is passed by every share"),
        ("succes_rate = { min = 0.5 }", "success_rate"),
        ("", "demands nothing"),
        ("[gate.traces.baseline]\npath = 'absent'", "there is no such folder or file"),
        ("[gate.traces.baseline]\npath = 'absent'\nmargin = { success = 0.1 }", "success_rate"),
    ],
)
def test_demands_that_mean_nothing_are_refused(table: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "ptt.toml"
    path.write_text(f"[gate.traces]\n{table}\n")
    with pytest.raises(SettingsError, match=problem):
        api.gate_policy(path)


def made(folder: Path, *, solved: float, episodes: int = 40) -> Path:
    folder.mkdir()
    write_episodes(
        folder,
        [
            [*ask(f"Task {n % 20}"), *call("search", n=n), *say("Done."), *end(success=n % 20 < 20 * solved)]
            for n in range(episodes)
        ],
    )
    return folder


def test_the_command_gates_traces_stores_and_findings(invoke: Invoke, tmp_path: Path) -> None:
    made(tmp_path / "good", solved=0.8)
    made(tmp_path / "bad", solved=0.2)
    (tmp_path / "ptt.toml").write_text("[gate.traces]\nsuccess_rate = { min = 0.6 }\n")
    assert invoke("gate", "good", "-o", "g").exit_code == 0
    failed = invoke("gate", "bad", "-o", "b", "--junit", "junit.xml", "--sarif", "gate.sarif")
    assert failed.exit_code == 3
    assert "success_rate of the traces" in Path("junit.xml").read_text()
    assert "agent traces" not in failed.output
    assert Path("b/bad/report.html").read_text().count("ptt traces")
    invoke("traces", "bad", "-o", "kept")
    for path in ("kept", "kept/findings.json"):
        assert invoke("gate", path, "-o", "again").exit_code == 3, path


def test_a_baseline_by_path_is_paired_by_task(invoke: Invoke, tmp_path: Path) -> None:
    invoke("traces", made(tmp_path / "good", solved=0.8), "-o", "kept")
    made(tmp_path / "bad", solved=0.2)
    (tmp_path / "ptt.toml").write_text("[gate.traces.baseline]\npath = 'kept'\nmargin = { success_rate = 0.1 }\n")
    assert invoke("gate", "bad", "-o", "b").exit_code == 3
    checks = json.loads(Path("b/gate.json").read_text())["runs"][0]["checks"]
    (check,) = [check for check in checks if check["id"] == "traces-baseline:success_rate"]
    assert check["data"] == "20 tasks that both hold"


@pytest.mark.slow
def test_diagnose_says_of_traces_what_ptt_traces_says(invoke: Invoke, tmp_path: Path) -> None:
    made(tmp_path / "good", solved=0.8)
    done = invoke("diagnose", "good", "-o", "d")
    assert done.exit_code == 0
    assert "32 of 40 labelled episodes succeed" in done.output.replace("\n            ", " ")
    assert "ptt traces" in done.output
    assert json.loads(Path("d/findings.json").read_text())["run"]["episodes"] == 40


@pytest.mark.slow
def test_the_index_of_many_runs_covers_traces(invoke: Invoke, tmp_path: Path) -> None:
    for name, solved in (("first", 0.8), ("second", 0.4)):
        made(tmp_path / name, solved=solved)
    done = invoke("diagnose", "first", "second", "-o", "all", "--jobs", "1")
    assert done.exit_code == 0, done.output
    index = json.loads(Path("all/index.json").read_text())
    assert len(index["runs"]) == 2
    for run in index["runs"]:
        assert run["status"] != "cannot_say"  # as runs without curves would be
        assert run["framework"] == "microsoft_agents"


@pytest.mark.slow
def test_compare_and_report_take_traces_too(invoke: Invoke, tmp_path: Path) -> None:
    made(tmp_path / "before", solved=0.9)
    made(tmp_path / "after", solved=0.1)
    compared = invoke("compare", "before", "after", "-o", "c")
    assert compared.exit_code == 0, compared.output
    assert "Success worse, 90% to 10%" in compared.output
    assert json.loads(Path("c/compare.json").read_text())["kind"] == "traces"
    invoke("traces", "after", "-o", "kept")
    assert "Success     10% of 40" in invoke("report", "kept", "-o", "r").output
    shared = invoke("report", "kept", "--redact", "--salt", "s", "-o", "shared")
    assert shared.exit_code == 0
    assert "search" not in Path("shared/findings.json").read_text()
    assert invoke("report", "kept", "--postmortem", "-o", "p").exit_code == 2


def test_sources_end_with_four_where_nothing_is_recognised(invoke: Invoke, tmp_path: Path) -> None:
    made(tmp_path / "traces", solved=0.5)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.json").write_text('{"zork": [1, 2]}')
    assert invoke("sources", "traces").exit_code == 0
    assert invoke("sources", "other").exit_code == 4
    assert invoke("sources", "other", "--json").exit_code == 4


def repeated(folder: Path, tasks: int) -> Path:
    folder.mkdir()
    write_episodes(
        folder,
        [
            [*ask(f"Task {n}"), *call("search", error="timed out" if n % 40 == 0 else None, n=n), *say("Done."),
             *end(success=n % 3 == 0)]
            for n in range(tasks)
        ],
    )  # fmt: skip
    return folder


@pytest.mark.parametrize(("tasks", "code"), first_fast([(100, 0), (30, 4)]))
def test_a_set_against_itself_passes_or_says_how_many_episodes_it_takes(
    invoke: Invoke, tmp_path: Path, tasks: int, code: int
) -> None:
    invoke("traces", repeated(tmp_path / "set", tasks), "-o", "kept")
    (tmp_path / "ptt.toml").write_text("[gate.traces.baseline]\npath = 'kept'\n")
    assert invoke("gate", "set", "-o", "g").exit_code == code
    checks = {check["id"]: check for check in json.loads(Path("g/gate.json").read_text())["runs"][0]["checks"]}
    if code:
        assert (
            "60 tasks that both sets hold would tell, and there are 30"
            in checks["traces-baseline:success_rate"]["claim"]
        )
        assert checks["traces-baseline"]["claim"].endswith("is there enough to say whether it is worse")
        assert "baseline anew" not in Path("g/gate.json").read_text()
    else:
        assert checks["traces-baseline:success_rate"]["claim"] == "it is not worse by the margin, beyond noise"


def test_nothing_in_common_asks_for_another_baseline() -> None:
    bare = replace(failing_traces(), measured={})
    wanted = TraceBaseline(path=Path("b"), margins={"success_rate": 0.1}, named=True, held=TraceSide(diagnosis=bare))
    (check,) = [check for check in gated(bare, baseline=wanted).checks if check.id == "traces-baseline"]
    assert check.claim == "the two sets record no share in common"
    assert check.next[0].startswith("make the baseline anew")


def test_differences_from_a_baseline_are_points_of_per_cent() -> None:
    wanted = TraceBaseline(
        path=Path("b"), margins={"tool_failure_rate": 0.05}, named=True, held=TraceSide(diagnosis=healthy_traces())
    )
    run = gated(failing_traces(), baseline=wanted)
    (check,) = [check for check in run.checks if check.id == "traces-baseline:tool_failure_rate"]
    text = measured(check)
    assert "points higher than the baseline's" in text
    assert "allowed: 5 points higher" in text
    assert "95% interval of the difference" in text
    bounded = gated(failing_traces(), bound(low=0.6)).checks
    (check,) = [check for check in bounded if check.id == "traces:success_rate"]
    assert measured(check) == "observed 51% (95% interval 47% to 55%), limit 60%"


def test_one_episode_judges_nothing_and_leaves_the_gate_blind(invoke: Invoke, tmp_path: Path) -> None:
    write_episodes(tmp_path, [[*ask("Task"), *say("Done."), *end(success=None)]])
    (tmp_path / "ptt.toml").write_text("[gate.traces]\nmin_episodes = 1\n")
    blind = invoke("gate", "agent.jsonl", "-o", "g")
    assert blind.exit_code == 4, blind.output
    assert "no share can be judged" in blind.output.replace("\n", " ")
    assert "every check passed" not in blind.output
