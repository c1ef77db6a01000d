"""How a run ended: each end is told as what it was, once, and the gate lets pass what is no fault of the policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import evidence_of, series_of
from slow_cases import first_fast
from test_joined_metrics import history, ids, write_console, write_state

import ptt
from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.algorithm import Algorithm, Family
from ptt.diagnostics.evidence.evaluation import EvalMetric, Evaluation
from ptt.diagnostics.evidence.machines import Event
from ptt.diagnostics.gate.judge import judge
from ptt.diagnostics.gate.policy import Extent, Policy
from ptt.diagnostics.gate.results import Outcome
from ptt.diagnostics.model import Broken, Diagnosis, Finding, Healthy, Link, RuleVerdict, Severity, Status
from ptt.diagnostics.rules import SYSTEMS_RULES
from ptt.diagnostics.store.diagnosis import LoadedRun

RULE = next(rule for rule in SYSTEMS_RULES if rule.id == "run-cut-short")
MEMORY = next(rule for rule in SYSTEMS_RULES if rule.id == "out-of-memory")
KILLED = "Killed"
SHELL = "/var/spool/slurmd/job00042: line 17: 31337 Killed                  python train.py"
TIME_LIMIT = "slurmstepd: error: *** JOB 42 ON gpu07 CANCELLED AT 2026-11-20T18:00:00 DUE TO TIME LIMIT ***"
PREEMPTION = "slurmstepd: error: *** JOB 42 ON gpu07 CANCELLED AT 2026-11-20T18:00:00 DUE TO PREEMPTION ***"
CANCELLED = "slurmstepd: error: *** JOB 42 ON gpu07 CANCELLED AT 2026-11-20T18:00:00 ***"
ELASTIC = "Sending process 311 closing signal SIGTERM"
TRACE = """Traceback (most recent call last):
  File "/home/u/train.py", line 90, in <module>
    trainer.train()
  File "/home/u/{file}", line {line}, in run
    step()
{error}
"""
CRASH = TRACE.format(file="reward_fn.py", line=41, error="ValueError: could not convert string to float: 'x'")
BY_HAND = TRACE.format(file="loop.py", line=7, error="KeyboardInterrupt")


def said(*texts: str, kind: str = "exception", step: int | None = None) -> tuple[Event, ...]:
    """Make the events that a console's last lines are."""
    return tuple(Event(step=step, kind=kind, text=text, source="train.log") for text in texts)


def evidence(events: tuple[Event, ...] = (), *, rows: int = 60, last: str = "", **context: Any) -> Evidence:
    """Make a run of so many rows that was to have 100, and what its console says."""
    metrics = {"loss/total": np.linspace(1.0, 0.5, rows)} if rows else {}
    made = evidence_of(metrics=metrics)
    events += (Event(step=None, kind="last_line", text=last, source="train.log"),) if last else ()
    run = replace(made.run, context={"max_steps": 100} | context)
    return replace(made, run=run, events=events, algorithm=Algorithm(family=Family.ONLINE))


def note(verdict: RuleVerdict) -> Finding:
    assert isinstance(verdict, Healthy), verdict
    (told,) = verdict.notes
    assert "step None" not in told.claim
    return told


def crash(verdict: RuleVerdict) -> Finding:
    assert isinstance(verdict, Broken), verdict
    (told,) = verdict.findings
    assert told.severity is Severity.HIGH
    assert "step None" not in told.claim
    return told


@pytest.mark.parametrize(
    ("texts", "ending"),
    [
        ([KILLED], "killed"),
        ([SHELL], "killed"),
        (["ValueError: worker said nothing (env.py:3)", SHELL], "killed"),  # caught, then killed
        (["RayActorError: the actor died", "Signal 9 (SIGKILL) received by PID 311"], "killed"),
        ([TIME_LIMIT], "preempted"),
        ([KILLED, TIME_LIMIT], "preempted"),
        ([PREEMPTION, "KeyboardInterrupt (loop.py:7)"], "preempted"),
        ([CANCELLED], "stopped by hand"),
        (["KeyboardInterrupt (loop.py:7)"], "stopped by hand"),
        (["Signal d'interruption reçu. Arrêt propre à la fin de cette étape..."], "stopped by hand"),
    ],
)
def test_what_somebody_else_ended_is_information(texts: list[str], ending: str) -> None:
    told = note(RULE.run(evidence(said(*texts))))
    assert (told.severity, told.link, told.evidence["ending"]) == (Severity.INFO, Link.SYSTEMS, ending)
    assert "at step 60 of 100" in told.claim
    assert told.onset_step == (60 if ending == "killed" else None)  # memory may have; a user or a scheduler needs none


@pytest.mark.parametrize(
    ("code", "source", "ending"),
    [
        (137, "train.log", "killed"),
        (143, "train.log", "killed"),
        (130, "train.log", "stopped by hand"),
        (255, "wandb/run-1.wandb", "stopped by hand"),  # W&B writes it for a KeyboardInterrupt alone
    ],
)
def test_codes_of_signals_are_no_failure(code: int, source: str, ending: str) -> None:
    events = (Event(step=60, kind="exit", text=f"exit code {code} after 9 s", source=source),)
    assert note(RULE.run(evidence(events))).evidence["ending"] == ending


def test_a_code_of_failure_without_a_word_is_a_failure() -> None:
    events = said("exit code 1 after 9 s", kind="exit")
    assert "exit code 1" in crash(RULE.run(evidence(events))).claim
    assert isinstance(RULE.run(evidence(said("exit code 0", kind="exit"))), Healthy)


@pytest.mark.parametrize(
    ("text", "link"),
    [
        ("ValueError: could not convert string to float: 'x' (reward_fn.py:41)", Link.REWARD),
        ("NotImplementedError (reward_score/__init__.py:37)", Link.REWARD),
        ("KeyError: 'answer' (math_grader.py:7)", Link.REWARD),
        ("TimeoutError: sandbox did not answer (tool_env.py:88)", Link.ENVIRONMENT),
        ("KeyError: 'HOME' (environ.py:3)", Link.SYSTEMS),
        ("ValueError: Column to remove not in the dataset (prepare.py:12)", Link.DATA_VALIDITY),
        ("IndexError: list index out of range (dataset.py:9)", Link.DATA_VALIDITY),
        ("ZeroDivisionError: division by zero (run_eval.py:9)", Link.EVALUATION),
        ("ValueError: loss is nan, stopping (train.py:9)", Link.NUMERICS),
        ("RuntimeError: shapes differ (dpo_loss.py:9)", Link.NUMERICS),
        ("RuntimeError: CUDA error: device-side assert triggered (reward_fn.py:9)", Link.SYSTEMS),
        ("AttributeError: 'NoneType' object has no attribute 'x' (main.py:2)", Link.SYSTEMS),
    ],
)
def test_an_exception_is_a_fault_of_the_link_whose_code_raised_it(text: str, link: Link) -> None:
    told = crash(RULE.run(evidence(said(text))))
    assert told.link is link
    assert text in told.claim
    assert told.evidence["place"] == text.rpartition("(")[2].rstrip(")")


def test_the_exception_that_others_followed_from_is_the_one_that_is_told() -> None:
    texts = [
        "ValueError: no reward (reward.py:4)",
        ELASTIC,
        "ChildFailedError: train.py FAILED (run.py:1)",
        "CalledProcessError: Command 'torchrun' returned non-zero exit status 1 (launch.py:9)",
    ]
    assert crash(RULE.run(evidence(said(*texts)))).link is Link.REWARD


def test_a_crash_before_the_first_metric_is_told_without_a_step() -> None:
    told = crash(RULE.run(evidence(said("NotImplementedError (reward_score/__init__.py:37)"), rows=0)))
    assert told.claim.endswith("ended training before any metric was logged")
    assert (told.onset_step, told.observed, told.link) == (None, None, Link.REWARD)


def test_what_training_logged_on_behind_did_not_end_it() -> None:
    survived = said("ValueError: bad sample (reward.py:4)", step=20)
    told = note(RULE.run(evidence(survived)))
    assert (told.severity, told.evidence["ending"]) == (Severity.LOW, "short")


@pytest.mark.parametrize(
    ("events", "context", "rows"),
    [
        (said("training completed", kind="exit"), {}, 60),
        ((), {"train_runtime": 12.5}, 60),
        ((), {"status": "completed"}, 60),
        ((), {"global_step": 100}, 60),
        ((), {}, 100),
        (said("exit code 0 after 9 s", kind="exit"), {"exit_record": False}, 60),
    ],
)
def test_any_source_that_says_so_completes_a_run(
    events: tuple[Event, ...], context: Mapping[str, Any], rows: int
) -> None:
    verdict = RULE.run(evidence(events, rows=rows, **context))
    assert isinstance(verdict, Healthy)
    assert all(told.severity is Severity.INFO for told in verdict.notes)
    assert bool(verdict.notes) is (rows < 100 and "global_step" not in context)  # an end before the last step is told


def test_the_closing_row_of_a_trainer_completes_a_run() -> None:
    made = evidence(said("exit code 1", kind="exit"), rows=60)
    closing = series_of("train/train_runtime", [99.0], steps=[60])
    assert isinstance(RULE.run(replace(made, other={"train/train_runtime": closing})), Healthy)
    earlier = series_of("train/train_runtime", [99.0], steps=[20])  # of a first run, which a second one went on from
    assert isinstance(RULE.run(replace(made, other={"train/train_runtime": earlier})), Broken)


def test_an_exception_after_training_is_no_failure_of_training() -> None:
    events = said("ConfigAttributeError: Key 'I' is not in struct (train.py:113)") + said("exit code 1", kind="exit")
    told = note(RULE.run(evidence(events, train_runtime=1594.98)))
    assert told.severity is Severity.INFO
    assert "After training had completed" in told.claim
    assert "ConfigAttributeError" in told.claim


def test_rows_that_end_less_than_one_interval_before_the_last_step_are_all_there() -> None:
    made = evidence_of(metrics={"loss/total": series_of("loss", np.ones(25), steps=list(range(30, 751, 30)))})
    verdict = RULE.run(replace(made, run=replace(made.run, context={"max_steps": 760})))
    assert isinstance(verdict, Healthy)
    assert not verdict.notes


def test_a_record_that_simply_stops_is_told_with_the_last_line_of_its_console() -> None:
    told = note(RULE.run(evidence(last="it/s 60/100")))
    assert told.severity is Severity.LOW
    assert '"it/s 60/100"' in told.claim
    opened = note(RULE.run(evidence(exit_record=False)))
    assert opened.evidence["ending"] == "open"


def test_memory_that_ended_a_run_is_accused_once() -> None:
    for text in ("OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB (loop.py:7)", "oom_kill event in step"):
        made = evidence(said(text, step=60))
        assert crash(MEMORY.run(made)).onset_step == 60
        assert isinstance(RULE.run(made), Healthy)


def write_run(folder: Path, *, saved: int = 200, printed: int = 241, tail: str = "", max_steps: int = 300) -> Path:
    """Write a run whose console goes on behind its last checkpoint."""
    write_state(
        folder / f"checkpoint-{saved}" / "trainer_state.json", history(range(1, saved + 1)), max_steps=max_steps
    )
    write_console(folder / "train.log", history(range(1, printed + 1)), tail=tail)
    return folder


def gated(found: Diagnosis, **extent: int) -> Outcome:
    opened = LoadedRun(diagnosis=found, profile=None, why_no_profile="", source="", kind="run")
    return judge(opened, Policy(extent=Extent(**extent)), name="run", today=date(2026, 11, 22)).outcome


@pytest.mark.parametrize("tail", first_fast(["", KILLED, SHELL, TIME_LIMIT, PREEMPTION, BY_HAND], 2))
def test_the_gate_lets_an_interrupted_run_pass_but_for_its_last_step(tail: str, tmp_path: Path) -> None:
    found = ptt.diagnose(write_run(tmp_path, tail=f"{tail}\n" * bool(tail)))
    (finding,) = found.findings
    assert (finding.id, finding.observed) == ("run-cut-short", 241)
    assert finding.severity is (Severity.INFO if tail else Severity.LOW)
    assert gated(found) is Outcome.PASSED
    assert gated(found, last_step=241) is Outcome.PASSED
    assert gated(found, last_step=300) is Outcome.BLIND


def test_a_killed_run_that_was_resumed_to_its_end_is_whole(tmp_path: Path) -> None:
    write_run(tmp_path, tail=f"{KILLED}\n")
    write_state(tmp_path / "trainer_state.json", history(range(1, 301)))
    found = ptt.diagnose(tmp_path)
    assert "run-cut-short" not in ids(found)
    assert gated(found, last_step=300) is Outcome.PASSED


def test_a_complete_run_with_the_state_of_a_checkpoint_at_its_root_is_whole(tmp_path: Path) -> None:
    rows = history(range(1, 301))
    write_state(tmp_path / "trainer_state.json", rows[:200])
    closing = {"train_runtime": 66.0, "train_loss": 0.2, "epoch": 0.6}
    write_console(tmp_path / "train.log", [*rows, closing])
    found = ptt.diagnose(tmp_path)
    assert not ids(found) & {"run-cut-short", "metrics-lost"}
    assert gated(found, last_step=300) is Outcome.PASSED


def test_an_exception_in_training_fails_the_gate_on_the_link_that_raised(tmp_path: Path) -> None:
    found = ptt.diagnose(write_run(tmp_path, tail=CRASH))
    (finding,) = found.findings
    assert (finding.id, finding.severity, finding.link) == ("run-cut-short", Severity.HIGH, Link.REWARD)
    assert (finding.onset_step, finding.evidence["place"]) == (241, "reward_fn.py:41")
    assert (found.verdict.status, found.verdict.first_broken_link) == (Status.SUSPECT, Link.REWARD)
    assert found.verdict.headline.endswith("ended training at step 241 of 300.")
    assert gated(found) is Outcome.FAILED


def test_a_crash_before_the_first_metric_is_the_headline(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("Loading the model\n" + CRASH)
    found = ptt.diagnose(tmp_path)
    assert found.verdict.headline.startswith("ValueError: could not convert string to float: 'x' (reward_fn.py:41)")
    assert "step None" not in found.verdict.headline
    assert (found.verdict.status, found.verdict.first_broken_link) == (Status.SUSPECT, Link.REWARD)
    assert gated(found) is Outcome.FAILED


def test_a_crash_behind_the_closing_row_is_a_note(tmp_path: Path) -> None:
    rows = [*history(range(1, 301)), {"train_runtime": 66.0, "train_loss": 0.2, "epoch": 0.6}]
    write_console(tmp_path / "train.log", rows, tail=CRASH)
    found = ptt.diagnose(tmp_path)
    (finding,) = [finding for finding in found.findings if finding.id == "run-cut-short"]
    assert finding.severity is Severity.INFO
    assert "After training had completed" in finding.claim
    assert gated(found, last_step=300) is Outcome.PASSED


def test_what_holds_at_the_first_logged_step_has_no_onset(tmp_path: Path) -> None:
    rows = [{**row, "kl": 1.5} for row in history(range(10, 301, 5))]
    write_state(tmp_path / "trainer_state.json", rows)
    (finding,) = [one for one in ptt.diagnose(tmp_path).findings if one.id == "kl-over-target"]
    assert (finding.onset_step, finding.onset_interval, finding.held_from_step) == (None, None, 10)


def test_memory_that_ran_out_in_training_fails_the_gate_once(tmp_path: Path) -> None:
    error = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    found = ptt.diagnose(write_run(tmp_path, tail=TRACE.format(file="loop.py", line=7, error=error)))
    severe = [finding for finding in found.findings if finding.severity.at_least(Severity.MEDIUM)]
    assert [(finding.id, finding.severity) for finding in severe] == [("out-of-memory", Severity.HIGH)]
    assert severe[0].claim.endswith("that ended the run at step 241 of 300")
    assert "run-cut-short" not in ids(found)
    assert gated(found) is Outcome.FAILED


@pytest.mark.parametrize(("name", "counts"), [("train.err", True), ("server.log", False), ("job-41.out", False)])
def test_only_the_console_of_the_training_tells_how_it_ended(name: str, counts: bool, tmp_path: Path) -> None:
    """Both streams of a job belong together; a server's console, or that of a first try, is another process's."""
    write_console(tmp_path / "train.out", history(range(1, 101)))
    (tmp_path / name).write_text("Loading the model\n" + CRASH)
    found = ptt.diagnose(tmp_path)
    assert ("run-cut-short" in {finding.id for finding in found.findings}) is counts


def test_rows_that_are_no_steps_are_not_held_against_the_steps_that_were_set() -> None:
    made = evidence(max_steps=5000)
    verdict = RULE.run(replace(made, run=replace(made.run, step_unit="row")))
    assert not isinstance(verdict, Broken)
    assert not getattr(verdict, "notes", ())


def test_words_of_a_handler_are_no_signal() -> None:
    told = note(RULE.run(evidence(said("Installed a handler for SIGTERM and KeyboardInterrupt", kind="stdout"))))
    assert told.evidence["ending"] == "short"


def test_an_exception_that_the_output_went_on_behind_was_survived(tmp_path: Path) -> None:
    """An environment that raises prints a traceback, and the run goes on; it was copied before it logged again."""
    write_run(tmp_path, tail=CRASH + "rollout: 8 of 8 samples done\n" * 400)
    found = ptt.diagnose(tmp_path)
    (finding,) = found.findings
    assert (finding.severity, finding.evidence["ending"]) == (Severity.LOW, "short")
    assert "rollout: 8 of 8 samples done" in finding.claim


def test_an_exception_before_the_first_row_was_survived(tmp_path: Path) -> None:
    write_run(tmp_path)
    (tmp_path / "train.log").write_text(CRASH + "trying without it\n" + (tmp_path / "train.log").read_text())
    (finding,) = ptt.diagnose(tmp_path).findings
    assert finding.severity is Severity.LOW


@pytest.mark.parametrize(
    ("name", "counts"), [("debug-internal.log", False), ("vllm_server.log", False), ("a.log", True)]
)
def test_consoles_of_other_programs_do_not_tell_how_training_ended(name: str, counts: bool, tmp_path: Path) -> None:
    write_state(tmp_path / "checkpoint-60" / "trainer_state.json", history(range(1, 61)))
    (tmp_path / name).write_text("2026-11-20 18:00:00,123 INFO starting\n" + CRASH)
    (finding,) = [one for one in ptt.diagnose(tmp_path).findings if one.id == "run-cut-short"]
    assert (finding.severity is Severity.HIGH) is counts


def test_dynamic_sampling_that_runs_dry_is_told_with_how_many_batches_it_drew() -> None:
    text = "ValueError: num_gen_batches=10 > max_num_gen_batches=10. Generated too many. Please check your data."
    drawn = {"train/num_gen_batches": series_of("train/num_gen_batches", np.linspace(1, 10, 60))}
    found = RULE.run(replace(evidence(said(text)), other=drawn))
    assert isinstance(found, Broken)
    (finding,) = found.findings
    assert finding.link is Link.TRAINING_SIGNAL
    assert "train/num_gen_batches rose from" in finding.claim


@pytest.mark.parametrize(("last", "told"), [(0.92, "the task is solved"), (0.05, "too hard"), (0.5, "")])
def test_the_last_evaluation_tells_which_groups_dynamic_sampling_leaves_out(last: float, told: str) -> None:
    text = "ValueError: num_gen_batches=10 > max_num_gen_batches=10. Generated too many. Please check your data."
    points = series_of("val/acc", [0.4, 0.4 + (last - 0.4) / 2, last], steps=[10, 30, 50])
    figure = EvalMetric(name="acc", split="val", outcome=True, series=points)
    found = RULE.run(replace(evidence(said(text)), evaluation=Evaluation(figures=(figure,))))
    assert isinstance(found, Broken)
    likely = found.findings[0].likely_cause
    assert (told in likely) if told else not likely
