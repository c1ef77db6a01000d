"""`ptt sources`: what is there, what it answers, and the line that would record the rest."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from samples_traces import TRACE_SAMPLES
from slow_cases import first_fast
from typer.testing import CliRunner

import ptt
from ptt.cli.app import app
from ptt.diagnostics.metrics.recording import switches
from ptt.diagnostics.schema import SEQUENCES, TABLES

SAMPLES = Path(__file__).parents[1] / "sample_logs"
DUMPS = Path(__file__).parent / "fixtures" / "dumps"


def _questions(run: Path) -> dict[str, bool]:
    return {question.title: question.answered for question in ptt.sources(run).questions}


def test_a_run_answers_what_its_columns_and_tables_hold() -> None:
    answered = _questions(SAMPLES / "healthy")
    assert answered["How far has the policy left the reference (policy/ref)?"]
    assert answered["Does the evaluation follow the training?"]
    assert not answered["Do trainer and inference engine agree (old/rollout)?"]
    assert not answered["How old were the rollouts?"]


def test_what_is_missing_comes_with_the_framework_s_own_line() -> None:
    found = ptt.sources(SAMPLES / "healthy")
    assert found.framework == "trl"
    (mismatch,) = [question for question in found.questions if "old/rollout" in question.title]
    assert mismatch.missing == ("old_logp", "rollout_logp")
    assert mismatch.switches[0].framework == "trl"
    assert "ptt.recorders.trl" in mismatch.switches[0].line


def test_a_folder_of_foreign_files_is_accounted_for(tmp_path: Path) -> None:
    for name in ("a.bin", "b.bin", "weights.xyz"):
        (tmp_path / name).write_bytes(b"\0\1\2")
    found = ptt.sources(tmp_path)
    assert not found.held
    assert [(unread.ending, unread.files) for unread in found.unread] == [(".bin", 2), (".xyz", 1)]
    assert not any(question.answered for question in found.questions)
    assert all(question.switches for question in found.questions if "model_mask" in question.missing)


def test_pi_old_stands_in_for_the_policy_where_only_drift_is_asked(tmp_path: Path) -> None:
    row = {"step": 1, "model_mask": [True], "old_logp": [-1.0], "ref_logp": [-1.0]}
    (tmp_path / "tokens.jsonl").write_text(json.dumps(row) + "\n")
    answered = _questions(tmp_path)
    assert answered["How far has the policy left the reference (policy/ref)?"]
    assert not answered["How large was each update (policy/old)?"]


ROW = {"step": 1, "model_mask": [True], "policy_logp": [-1.0], "ref_logp": [-1.0], "reward": 1.0}
KL, ENTROPY = {"kl": 0.1}, {"entropy": 0.4}


@pytest.mark.parametrize(
    ("row", "logged", "expected"),
    [
        (ROW, KL, [(("advantages",), ("advantage", "group_id"))]),
        (ROW | {"advantage": 0.5, "group_id": "g"}, KL, []),
        (
            ROW | {"advantage": 0.5, "group_id": "g", "ref_logp": None, "rollout_logp": [-1.0]},
            KL | ENTROPY,
            [(("mean KL",), ("ref_logp",)), (("entropy",), ("entropy",))],
        ),
        (ROW | {"advantage": 0.5, "group_id": "g", "entropy": [0.4]}, KL | ENTROPY, []),
        (ROW | {"group_id": "g", "advantage": [0.5]}, {"clip_ratio/region_mean": 0.1},
         [(("clip fraction",), ("old_logp",))]),
    ],
)  # fmt: skip
def test_the_columns_that_would_let_more_be_recomputed_are_named(
    tmp_path: Path,
    row: dict[str, object],
    logged: dict[str, float],
    expected: list[tuple[tuple[str, ...], tuple[str, ...]]],
) -> None:
    held = {name: value for name, value in row.items() if value is not None}
    (tmp_path / "tokens.jsonl").write_text(json.dumps(held) + "\n")
    metrics = [{"step": step, "reward": 0.5, "frac_reward_zero_std": 0.0, **logged} for step in range(1, 4)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in metrics))
    assert [(one.figures, one.missing) for one in ptt.sources(tmp_path).recomputable] == expected


def test_three_lines_say_what_would_be_recomputed_and_the_trainer_s_line_how(tmp_path: Path) -> None:
    shutil.copy(SAMPLES / "healthy" / "trainer_state.json", tmp_path)
    found = ptt.sources(tmp_path).recomputable
    assert len(found) == 3
    assert all(one.switches[0].framework == "trl" for one in found if "model_mask" in one.missing)
    shown = CliRunner().invoke(app, ["sources", str(tmp_path)]).stdout
    assert shown.count("(missing columns: ") == 3


def test_training_that_samples_nothing_recomputes_nothing(tmp_path: Path) -> None:
    rows = [{"step": step, "loss": 1.0, "rewards/margins": 0.1, "rewards/accuracies": 0.6} for step in range(1, 4)]
    (tmp_path / "dpo.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert ptt.sources(tmp_path).recomputable == ()


def test_switches_promise_only_columns_and_tables_that_exist() -> None:
    known = {*SEQUENCES, *TABLES}
    assert {name for switch in switches() for name in switch.gives} <= known


@pytest.mark.parametrize("width", [60, 100])
def test_the_command_prints_lines_that_fit(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    result = CliRunner().invoke(app, ["sources", str(SAMPLES / "healthy")])
    assert result.exit_code == 0
    assert all(len(line) <= width for line in result.stdout.splitlines())
    for title in ("Read", "Not read", "Can answer", "Cannot answer", "To record the rest"):
        assert title in result.stdout.splitlines()


def test_json_holds_the_same_answer_every_time() -> None:
    command = ["sources", str(SAMPLES / "healthy"), "--json"]
    first, second = (CliRunner().invoke(app, command).stdout for _ in range(2))
    assert first == second
    document = json.loads(first)
    assert document["schema_version"] == 1
    assert document["framework"] == "trl"


def test_a_wrong_path_is_one_sentence() -> None:
    result = CliRunner().invoke(app, ["sources", "/nowhere"])
    assert result.exit_code == 5
    assert "no such file or folder" in result.stderr


def test_a_verdict_that_cannot_say_names_the_framework_s_line(tmp_path: Path) -> None:
    state = json.loads((SAMPLES / "healthy" / "trainer_state.json").read_text(encoding="utf-8"))
    rows = [{name: value for name, value in row.items() if name != "kl"} for row in state["log_history"]]
    (tmp_path / "trainer_state.json").write_text(json.dumps(state | {"log_history": rows}), encoding="utf-8")
    found = ptt.diagnose(tmp_path)
    assert (str(found.verdict.status), str(found.signature.status)) == ("cannot_say", "cannot_say")
    assert any("in TRL: from ptt.recorders.trl import record" in line for line in found.verdict.next)


def test_a_run_with_one_logprob_says_that_a_ratio_needs_two(tmp_path: Path) -> None:
    shutil.copytree(DUMPS / "verl" / "5", tmp_path / "5")
    found = ptt.diagnose(tmp_path)
    assert "only rollout_logp is recorded" in found.signature.reason


ANSWERED_BY = {
    "Are tools called, and do they fail?": {
        "art_trajectories", "inspect_log", "swe_agent", "tau_bench", "otel_spans", "microsoft_agents",
    },
    "Which component of the reward moved?": {"verl_rollouts", "swift_completions", "art_trajectories"},
    "Does the evaluation follow the training?": {
        "verl_rollouts", "skyrl_evals", "inspect_log", "swe_agent", "tau_bench", "otel_spans",
    },
}  # fmt: skip
UNANSWERED_BY = {
    "Which component of the reward moved?": {"skyrl_evals", "inspect_log", "swe_agent", "tau_bench"},  # of evaluations
    "Are tools called, and do they fail?": {"verl_rollouts", "skyrl_evals"},  # without calls
}


@pytest.mark.parametrize("name", first_fast(sorted({name for name, _ in TRACE_SAMPLES.values()}), 5))
def test_a_folder_of_texts_or_traces_alone_is_listed_and_judged_as_far_as_it_goes(tmp_path: Path, name: str) -> None:
    run = tmp_path / "run"
    for rel, (parser, data) in TRACE_SAMPLES.items():
        if parser == name:
            (run / rel).parent.mkdir(parents=True, exist_ok=True)
            (run / rel).write_bytes(data)
    held = ptt.sources(run)
    assert [kind.kind for kind in held.held] == [name]
    assert not held.unread
    answered = {question.title for question in held.questions if question.answered}
    for question, formats in ANSWERED_BY.items():
        assert question in answered or name not in formats
    for question, formats in UNANSWERED_BY.items():
        assert question not in answered or name not in formats
    found = ptt.diagnose(run)
    assert found.signature.status == "cannot_say"
    assert "has no per-token logprobs" in found.signature.reason
    assert {source.kind for source in found.sources} == {name}
    assert found.crashes == ()


def test_names_and_contents_of_traces_come_into_the_report_as_text(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    run = tmp_path / "run"
    run.mkdir()
    chat = [
        {"role": "assistant", "content": evil, "tool_calls": [{"id": evil, "name": evil, "arguments": {evil: evil}}]},
        {"role": "tool", "tool_call_id": evil, "content": evil, "error": {"type": evil}},
    ]
    runs = [{"task_id": evil, "reward": 1.0, "info": {"error": evil}, "traj": chat, "trial": 0}, {"task_id": evil}]
    (run / "<img src=x onerror=alert(1)>.json").write_text(json.dumps(runs))
    found = ptt.diagnose(run, keep_text=True)
    page = found.to_html().replace("<wbr>", "")
    assert found.sources[0].rows_bad == 1
    assert "onerror=alert(1)&gt;.json" in page
    assert evil not in page
    assert "<img src=x" not in page
