"""What a run did, as its owner would say it, and every figure of it held against a plain reading of the file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptt import api
from ptt.diagnostics.model import Outcome, SeriesOutcome

Rows = Sequence[Mapping[str, Any]]


def outcome_of_rows(folder: Path, rows: Rows, name: str = "metrics.jsonl") -> Outcome:
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return outcome_of_run(folder)


def outcome_of_run(folder: Path) -> Outcome:
    outcome = api.diagnose(folder).outcome
    assert outcome is not None
    return outcome


def hf_run(folder: Path, rows: Rows, **state: Any) -> Outcome:
    document = {"log_history": list(rows), "max_steps": 2025, "global_step": 2025, **state}
    (folder / "trainer_state.json").write_text(json.dumps(document))
    return outcome_of_run(folder)


def by_name(outcome: Outcome) -> dict[str, SeriesOutcome]:
    return {one.logged_as: one for one in outcome.series}


def shapes(rng: np.random.Generator, number: int, count: int) -> list[float]:
    """Return one of many courses: noise, ramps, steps, constants, zeros, walks, values that are no numbers."""
    noise = rng.normal(size=count)
    at = np.linspace(0, 1, count)
    courses = [noise, at + 0.1 * noise, (at > 0.5) + 0.1 * noise, np.full(count, 0.3), np.maximum(0, noise - 1.2),
              noise.cumsum(), np.exp(-8 * at), np.minimum(1, 2 * at), 1e-7 * noise, 1e6 * noise]  # fmt: skip
    course = courses[number % 10].astype(float)
    if number % 3 == 0:
        course[rng.random(count) < 0.2] = math.nan
    if number % 7 == 0:
        course[rng.integers(count)] = math.inf
    return [float(value) for value in course]


def test_first_last_and_best_of_100_series_are_those_of_the_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(31)
    steps = [*range(1, 81), *range(61, 121)]  # the run was resumed: the later values count
    courses = {f"suite_{number}_score": shapes(rng, number, len(steps)) for number in range(100)}
    rows = [{"step": step} | {name: values[at] for name, values in courses.items()} for at, step in enumerate(steps)]
    told = by_name(outcome_of_rows(tmp_path, rows))
    for name in courses:
        last_logged: dict[int, float] = {}
        for row in rows:
            last_logged[row["step"]] = row[name]
        finite = [(step, value) for step, value in sorted(last_logged.items()) if math.isfinite(value)]
        best = finite[0]
        for step, value in finite:
            best = (step, value) if value > best[1] else best
        one = told[name]
        assert (one.first, one.last) == (finite[0][1], finite[-1][1])
        assert (one.first_step, one.last_step) == (finite[0][0], finite[-1][0])
        assert (one.best_step, one.best) == best
        assert (one.count, one.not_finite) == (len(finite), len(last_logged) - len(finite))
        assert one.at_zero == pytest.approx(sum(value == 0 for _, value in finite) / len(finite))


def test_a_finished_run_of_given_answers(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows: list[dict[str, Any]] = [
        {"step": step, "epoch": step / 675, "learning_rate": 1e-5, "grad_norm": 1.0,
         "loss": 1.9 - 1.1 * step / 2025 + 0.02 * float(rng.normal())}
        for step in range(25, 2026, 25)
    ]  # fmt: skip
    rows += [{"step": step, "eval_loss": loss} for step, loss in ((225, 1.64), (675, 1.55), (1350, 1.56), (2025, 1.58))]
    outcome = hf_run(tmp_path, sorted(rows, key=lambda row: row["step"]))
    assert outcome.ended == "finished"
    assert outcome.said.startswith("Finished 2,025 of 2,025 steps. ")
    assert "Evaluation loss fell from 1.64 to 1.55 at step 675 and rose again to 1.58" in outcome.did
    assert "loss fell from 1.8" in outcome.did
    assert outcome.best_checkpoint == "step 675"


def test_a_reward_that_is_zero_at_most_steps(tmp_path: Path) -> None:
    rows = [{"step": step, "reward": 0.3 if step % 8 == 0 else 0.0, "kl": 0.001 * step} for step in range(1, 101)]
    outcome = outcome_of_rows(tmp_path, rows)
    assert "Reward is exactly 0 at 88 of 100 logged steps" in outcome.did
    assert "how many were planned is not recorded" in outcome.how_ended


@pytest.mark.parametrize("falls", [True, False])
def test_a_margin_that_comes_from_the_rejected_answers_is_told_with_the_chosen_ones(
    tmp_path: Path, falls: bool
) -> None:
    wave = [math.sin(at) / 50 for at in range(60)]
    rows = [
        {"step": at + 1, "loss": 0.7 - at / 300, "rewards/accuracies": 0.5 + at / 200 + one,
         "rewards/margins": at / 60 + one, "rewards/chosen": (-at if falls else at) / 50 + one,
         "rewards/rejected": (-at if falls else at) / 50 - at / 60}
        for at, one in enumerate(wave)
    ]  # fmt: skip
    said = outcome_of_rows(tmp_path, rows).did
    assert ("reward of chosen answers fell" in said) is falls, said


def test_a_run_that_learnt_nothing_says_what_would_have_shown(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    rows = [{"step": step, "reward": -0.24 + 0.1 * float(rng.normal())} for step in range(1, 401)]
    outcome = outcome_of_rows(tmp_path, rows)
    assert outcome.did.startswith("No curve moved beyond its noise: reward −0.2")
    assert "would have shown" in outcome.did
    parts = {"rewards/accuracy/mean": 0.3, "rewards/format/mean": 0.4}
    for row in rows:
        row |= {name: at + 0.1 * float(rng.normal()) for name, at in parts.items()} | {"kl": 1e-4 * row["step"]}
    assert outcome_of_rows(tmp_path, rows).did.startswith("None of these curves moved beyond its noise: reward −0.2")


@pytest.mark.parametrize("kl", [True, False])
def test_a_flat_curve_whose_last_value_is_far_off_is_not_said_to_have_stayed(tmp_path: Path, kl: bool) -> None:
    noise = np.random.default_rng(2).normal(size=(160, 2))
    rows = [
        {"step": at, "reward": 0.2 if at == 160 else 0.5 + 0.02 * float(one[0])}
        | ({"kl": 0.1 + 0.01 * float(one[1])} if kl else {})
        for at, one in enumerate(noise, start=1)
    ]
    did = outcome_of_rows(tmp_path, rows).did
    assert did.startswith("Reward ends at 0.20, after 0.5")
    assert "No curve moved" not in did


def test_how_long_a_run_took_is_told_by_its_steps_not_by_rows_of_one(tmp_path: Path) -> None:
    ends = np.cumsum([1900.0 if step % 3 == 0 else 300.0 for step in range(40)])
    rows = [
        {"step": step, name: 0.5, "timestamp": 1.7e9 + float(end) + 0.01 * place}
        for step, end in enumerate(ends, start=1)
        for place, name in enumerate(("loss", "reward", "kl"))
    ]
    assert outcome_of_rows(tmp_path, rows).cost == f"It took {(ends[-1] - ends[0]) / 3600:.2f} hours."


def test_hours_in_which_nothing_was_logged_are_told_beside_those_of_training(tmp_path: Path) -> None:
    ends = np.cumsum([20000.0 if step == 40 else 180.0 for step in range(80)])
    rows = [{"step": step, "reward": 0.5, "timestamp": 1.7e9 + float(end)} for step, end in enumerate(ends, start=1)]
    cost = outcome_of_rows(tmp_path, rows).cost
    assert cost == "It took 3.9 hours, and 5.56 hours more in which nothing was logged."


@pytest.mark.parametrize(("name", "said"), [("max_steps", "Finished 60 of 60"), ("agent", ""), ("trainer", "")])
def test_steps_of_an_episode_are_no_plan_of_the_training(tmp_path: Path, name: str, said: str) -> None:
    settings = {"max_steps": "max_steps: 60", "agent": "rllm: {agent: {max_steps: 80}}", "trainer": "max_steps: 8"}
    tmp_path.joinpath("config.yaml").write_text(settings[name])
    rows = [{"step": step, "reward": 0.5 + 0.01 * (step % 3)} for step in range(1, 61)]
    outcome = outcome_of_rows(tmp_path, rows)
    assert outcome.planned == (60 if said else None)
    assert said in outcome.how_ended


def test_a_curve_that_still_rises(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    rows = [{"step": step, "reward": 0.2 + 0.004 * step + 0.01 * float(rng.normal())} for step in range(1, 101)]
    outcome = outcome_of_rows(tmp_path, rows)
    assert "Reward rose from 0.2" in outcome.did
    assert "still rising at the end" in outcome.did


def test_unknown_names_are_told_only_where_nothing_is_known(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    unknown = [{"step": s, "foo_bar": 0.2 + 0.012 * s, "qux": float(rng.normal())} for s in range(1, 101)]
    (tmp_path / "unknown").mkdir()
    alone = outcome_of_rows(tmp_path / "unknown", unknown)
    assert "`foo_bar` 0.212 → 1.4 (moved, not judged)" in alone.did
    (tmp_path / "known").mkdir()
    both = outcome_of_rows(tmp_path / "known", [row | {"reward": 0.5} for row in unknown])
    assert "foo_bar" not in both.did
    assert {"foo_bar", "qux"} <= {one.logged_as for one in both.series}


def test_values_that_are_no_numbers_are_counted(tmp_path: Path) -> None:
    rows = [{"step": s, "reward": 0.01 * s if s % 10 else math.nan, "kl": 0.1} for s in range(1, 101)]
    outcome = outcome_of_rows(tmp_path, rows)
    assert "(10 of 100 values not finite)" in outcome.did


@pytest.mark.parametrize(
    ("last_lines", "ended", "told"),
    [
        ("KeyboardInterrupt\n", "stopped", "Stopped by Ctrl-C at step 77"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n", "crashed", "Crashed at step 77: "),
        ("slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***\n", "killed",
         "Ended by the scheduler at step 77"),
    ],
)  # fmt: skip
def test_how_a_run_ended(tmp_path: Path, last_lines: str, ended: str, told: str) -> None:
    rows = [f"{{'loss': {2 - 0.01 * s:.3f}, 'reward': {0.01 * s:.3f}, 'step': {s}}}\n" for s in range(1, 78)]
    head = "Traceback (most recent call last):\n" if ended != "killed" else ""
    (tmp_path / "train.log").write_text("".join(rows) + head + last_lines)
    outcome = outcome_of_run(tmp_path)
    assert (outcome.ended, outcome.how_ended.startswith(told)) == (ended, True)


def test_of_many_series_the_most_telling_are_kept(tmp_path: Path) -> None:
    rows = [{"step": s, "reward": 0.01 * s} | {f"m{number}": s * number for number in range(400)} for s in range(1, 13)]
    outcome = outcome_of_rows(tmp_path, rows)
    assert outcome.series[0].logged_as == "reward"
    assert (len(outcome.series), outcome.series_left_out) == (200, 201)


def test_rows_without_a_step_are_called_rows(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("reward,kl\n" + "".join(f"{0.01 * s},{0.001 * s}\n" for s in range(1, 41)))
    outcome = outcome_of_run(tmp_path)
    assert "row 40" in outcome.how_ended
    assert "step" not in outcome.did
