"""`ptt traces` as a user runs it: what it writes, prints and ends with."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from slow_cases import first_fast
from trace_diagnoses import failing_traces, unlabelled_traces
from typer.testing import Result

from ptt import api
from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.traces.model import TraceDiagnosis

SAMPLES = Path(__file__).parents[2] / "sample_logs"
ROLLOUTS = Path(__file__).parents[1] / "fixtures" / "replays" / "verifiers" / "rollouts"
Invoke = Callable[..., Result]


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> Callable[[TraceDiagnosis], None]:
    """Have the traces judged as a diagnosis says, whatever the files hold."""

    def as_given(diagnosis: TraceDiagnosis) -> None:
        monkeypatch.setattr(api, "traces", lambda *_, **__: diagnosis)

    return as_given


def test_report_findings_and_store_are_written(invoke: Invoke, tmp_path: Path) -> None:
    done = invoke("traces", ROLLOUTS)
    out = tmp_path / "ptt-report" / "rollouts.traces"
    assert done.output.startswith("Verdict")
    assert {path.name for path in out.iterdir()} == {"report.html", "findings.json", "store", "run.txt"}
    assert json.loads((out / "findings.json").read_text())["run"]["episodes"] == 12


def code_of(line: str, invoke: Invoke) -> int:
    """Run a command line as an error or the next step gives it, and return its exit code."""
    ptt, *words = shlex.split(line)
    assert ptt == "ptt"
    return invoke(*words).exit_code


def test_traces_and_a_diagnosis_of_one_run_lie_side_by_side(invoke: Invoke, tmp_path: Path) -> None:
    judged = invoke("diagnose", ROLLOUTS)
    findings = tmp_path / "ptt-report" / "rollouts" / "findings.json"
    before = findings.read_bytes()
    assert invoke("traces", ROLLOUTS).exit_code == 0
    assert findings.read_bytes() == before
    assert "episodes" in json.loads((tmp_path / "ptt-report" / "rollouts.traces" / "findings.json").read_text())["run"]
    assert invoke("diagnose", ROLLOUTS).output == judged.output


@pytest.mark.parametrize(
    ("first", "then"),
    first_fast(
        [(first, then) for first in ("diagnose", "ingest") for then in ("traces",)]
        + [("traces", then) for then in ("diagnose", "ingest", "report")]
    ),
)
def test_a_folder_of_the_other_kind_is_refused_with_a_command_that_works(
    first: str, then: str, invoke: Invoke, tmp_path: Path
) -> None:
    invoke(first, ROLLOUTS, "-o", "out")
    before = {path: path.read_bytes() for path in Path("out").rglob("*") if path.is_file()}
    assert before
    refused = invoke(then, ROLLOUTS, "-o", "out")
    assert refused.exit_code == 2
    assert {path: path.read_bytes() for path in Path("out").rglob("*") if path.is_file()} == before
    free = "out.traces" if then == "traces" else "out.run"
    command = f"ptt {then} {ROLLOUTS} --out {free}"
    assert (f"run {command}." if then in {"diagnose", "traces"} else f"such as {free}.") in refused.stderr
    assert code_of(command, invoke) in {0, 4}
    assert (Path(free) / "store").is_dir() or then == "report"


@pytest.mark.parametrize("then", ["gate", "diagnose"])
def test_of_several_runs_none_is_judged_where_one_would_overwrite_traces(then: str, invoke: Invoke) -> None:
    invoke("traces", ROLLOUTS, "-o", "out/rollouts")
    shutil.copytree(ROLLOUTS, "other")
    refused = invoke(then, ROLLOUTS, "other", "-o", "out")
    assert refused.exit_code == 2
    assert "rollouts: holds what ptt traces made, which this would overwrite" in refused.stderr
    assert not Path("out/other").exists()


def test_python_keeps_to_the_same_rule(tmp_path: Path) -> None:
    api.diagnose(ROLLOUTS, out=tmp_path / "judged")
    with pytest.raises(SettingsError, match="holds what ptt made of a run"):
        api.traces(ROLLOUTS, out=tmp_path / "judged")


def test_sets_of_one_name_do_not_overwrite_each_other(invoke: Invoke, tmp_path: Path) -> None:
    for week in ("a", "b"):
        shutil.copytree(ROLLOUTS, tmp_path / week / "agents")
        invoke("traces", f"{week}/agents")
    assert {path.name for path in Path("ptt-report").iterdir()} == {"agents.traces", "b-agents.traces"}


def test_what_was_written_is_judged_again_in_place(invoke: Invoke, tmp_path: Path) -> None:
    invoke("traces", ROLLOUTS)
    for kept in ("ptt-report/rollouts.traces", "ptt-report/rollouts.traces/store"):
        invoke("traces", kept)
    assert [path.name for path in (tmp_path / "ptt-report").iterdir()] == ["rollouts.traces"]


def test_the_next_step_of_sound_traces_is_a_command_that_works(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "week 1").mkdir()
    sound = shutil.copy(SAMPLES / "agents_before.jsonl", tmp_path / "week 1")
    done = invoke("traces", sound, "-o", "my report")
    (step,) = json.loads((tmp_path / "my report" / "findings.json").read_text())["verdict"]["next"]
    command = step.removeprefix("run ").partition(" to compare")[0]
    assert command == "ptt traces NEXT --against REPORT_FOLDER"
    shown = command.replace("REPORT_FOLDER", "'my report'")
    assert shown in " ".join(done.output.split())
    assert code_of(shown.replace("NEXT", str(SAMPLES / "agents.jsonl")), invoke) == 0


def test_json_goes_to_standard_output_alone(invoke: Invoke, tmp_path: Path) -> None:
    done = invoke("traces", ROLLOUTS, "--json", "-o", tmp_path / "o")
    assert done.stdout == (tmp_path / "o" / "findings.json").read_text(encoding="utf-8")


def test_a_store_is_judged_again(invoke: Invoke, tmp_path: Path) -> None:
    first = invoke("traces", ROLLOUTS, "-o", tmp_path / "o", "--json").stdout
    again = invoke("traces", tmp_path / "o", "-o", tmp_path / "p", "--json").stdout
    assert json.loads(first)["run"] | {"name": "o"} == json.loads(again)["run"]


def test_fail_on_ends_with_three(invoke: Invoke, judged: Callable[[TraceDiagnosis], None]) -> None:
    judged(failing_traces())
    assert invoke("traces", ROLLOUTS, "--fail-on", "critical").exit_code == 3
    assert invoke("traces", ROLLOUTS).exit_code == 0


def test_where_nothing_could_be_judged_the_code_is_four(
    invoke: Invoke, judged: Callable[[TraceDiagnosis], None]
) -> None:
    judged(unlabelled_traces())
    assert invoke("traces", ROLLOUTS).exit_code == 4


def test_fail_on_of_the_settings_counts_and_never_overrides_it(
    invoke: Invoke, judged: Callable[[TraceDiagnosis], None], tmp_path: Path
) -> None:
    judged(failing_traces())
    (tmp_path / "ptt.toml").write_text('[diagnose]\nfail_on = "high"\n')
    assert invoke("traces", ROLLOUTS).exit_code == 3
    assert invoke("traces", ROLLOUTS, "--fail-on", "never").exit_code == 0


def test_a_file_without_an_episode_is_unreadable(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no traces here\n")
    done = invoke("traces", tmp_path / "notes.txt")
    assert done.exit_code == 5
    assert "no file here holds an episode" in done.stderr
    assert invoke("traces", tmp_path / "absent").exit_code == 5


def test_what_is_read_is_never_written_to(invoke: Invoke, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "a.jsonl").write_text("{}\n")
    assert invoke("traces", folder, "-o", folder / "out").exit_code == 2
    assert invoke("traces", folder, "--figures", folder / "out").exit_code == 2


def test_a_redacted_report_has_no_store_and_a_folder_of_its_own(
    invoke: Invoke, judged: Callable[[TraceDiagnosis], None], tmp_path: Path
) -> None:
    judged(failing_traces())
    done = invoke("traces", ROLLOUTS, "--redact", "--salt", "s")
    out = tmp_path / "ptt-report" / "rollouts.traces-redacted"
    assert {path.name for path in out.iterdir()} == {"report.html", "findings.json"}
    assert "search_flights" not in done.output + (out / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("extra", [("--salt", "s"), ("--keep-tool-names",), ("--redact", "--salt", " ")])
def test_options_that_would_do_nothing_are_refused(extra: tuple[str, ...], invoke: Invoke) -> None:
    assert invoke("traces", ROLLOUTS, *extra).exit_code == 2


def test_figures_go_where_they_are_wanted(
    invoke: Invoke, judged: Callable[[TraceDiagnosis], None], tmp_path: Path
) -> None:
    judged(failing_traces())
    invoke("traces", ROLLOUTS, "--figures", tmp_path / "figures")
    assert (tmp_path / "figures" / "trace_tools.svg").is_file()
