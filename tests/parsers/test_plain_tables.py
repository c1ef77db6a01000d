"""Tables and series that hardly say what they are: which are read where nothing else is a log, and which never are."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from parser_samples import pieces_of, takers
from typer.testing import CliRunner

from ptt.cli.app import app
from ptt.diagnostics.parsers import Rows, RunFile

COUNT = 10
VALUES = [round(1 + at % 4 / 2 + at, 2) / 4 for at in range(COUNT)]
ROWS = list(enumerate(VALUES))


def table(header: str, row: str) -> str:
    """Write a table of the values, with their place, a line each."""
    return header + "".join(row.format(at=at, value=value, comma=str(value).replace(".", ",")) for at, value in ROWS)


# name of the file, its text, the raw name of the curve that holds the values, and the first step of it
READ: dict[str, tuple[str, str, str, int]] = {
    "bare JSON list": ("rewards.json", json.dumps(VALUES), "rewards", 1),
    "a list an agent": ("rewards.json", json.dumps([VALUES, VALUES]), "rewards 2", 1),
    "pairs of step and value": ("reward_history.json", json.dumps([[10 * at, one] for at, one in ROWS]), "column 2", 0),
    "numbers by step": ("elo_history.json", json.dumps({str(at): one for at, one in ROWS}), "elo_history", 0),
    "lists by seed": ("returns.json", json.dumps({"0": VALUES, "1": VALUES}), "returns/1", 1),
    "lists by run": ("stats.json", json.dumps({"a": {"elo": VALUES}, "b": {"elo": VALUES}}), "a/elo", 1),
    "objects of unknown figures": (
        "elo.json",
        json.dumps([{"iteration": at, "elo": one} for at, one in ROWS]),
        "elo",
        0,
    ),
    "numpy's savetxt": ("rewards.txt", table("", "{value:.18e}\n"), "rewards", 1),
    "numpy's two columns": ("returns.txt", table("", "{at:.18e} {value:.18e}\n"), "returns", 0),
    "a line of numbers": ("losses.csv", ",".join(map(str, VALUES)) + "\n", "losses", 1),
    "numbers a JSON line": ("episode_rewards.jsonl", table("", "{value}\n"), "episode_rewards", 1),
    "no header": ("output_maze.csv", table("", "{at},{at}00,left,{value}\n"), "column 4", 0),
    "two words": ("progress.csv", table("exploitability,t\n", "{value},{at}\n"), "exploitability", 0),
    "steps an episode": ("episode_rewards.csv", table("Episode,Total Steps\n", "{at},{value}\n"), "Total Steps", 0),
    "decimal commas": ("progress.csv", table("episode;elo\n", "{at};{comma}\n"), "elo", 0),
    "percent": ("win_rates.csv", table("round,wins\n", "{at},{value}%\n"), "wins", 0),
    "pandas without names": ("elo.csv", table(",0\n", "{at},{value}\n"), "elo", 0),
    "columns by blanks": ("regret.dat", table("# iter regret\n", "{at}  {value}\n"), "regret", 0),
    "answers paid for": (
        "training_log.jsonl",
        "".join(
            json.dumps({"ts": 1.7e9 + at, "task_id": f"m{at % 3}", "reward": {"total": one}, "completion_len": 40})
            + "\n"
            for at, one in ROWS
        ),
        "reward/total",
        1,
    ),
}
REFUSED: dict[str, tuple[str, str]] = {
    "a data set": ("training_data.csv", table("id,feature_1,target\n", "{at},{value},1\n")),
    "features and a label": ("train.csv", table("f1,f2,label\n", "{at},{value},1\n")),
    "prices": ("history.csv", table("Date,Open,Close,Volume\n", "2024-01-0{at},{value},{value},9\n")),
    "a benchmark": ("benchmark_results.csv", table("batch,latency\n", "{at},{value}\n")),
    "a leaderboard": ("results.csv", table("model,score\n", "model_{at},{value}\n")),
    "a sweep": ("results.csv", table("seed,score\n", "{at},{value}\n")),
    "answers": ("eval_log.csv", table("question,answer,score\n", "what is {at}?,it is {at},{value}\n")),
    "a ROC curve": ("roc_curve.csv", table("fpr,tpr\n", "0.{at},{value}\n")),
    "a row a model": ("scores.csv", table("name,f1\n", "m{at},{value}\n")),
    "a matrix": ("loss_weights.json", json.dumps([VALUES] * 40)),
    "numbers of nothing": ("points.csv", table("", "{at},{value}\n")),
    "ids of a split": ("val_ids.txt", table("", "{at}7\n")),
    "numbers of a split": ("train.json", json.dumps(VALUES)),
    "a sweep of learning rates": ("lr_results.csv", table("lr,final_loss\n", "{value},{value}\n")),
    "scores of samples": ("eval_scores.json", json.dumps([{"id": at, "score": one} for at, one in ROWS])),
    "few": ("rewards.json", json.dumps(VALUES[:7])),
    "a vocabulary": ("vocab.json", json.dumps({str(at): at for at in range(20)})),
    "prose": ("train_notes.txt", "step by step we lower the loss\n" * 20),
}


@pytest.mark.parametrize("form", READ)
def test_a_plain_table_is_read_where_nothing_else_takes_it(tmp_path: Path, form: str) -> None:
    name, text, curve, first = READ[form]
    (tmp_path / name).write_text(text)
    frames = [piece.frame for piece in pieces_of(tmp_path / name) if isinstance(piece, Rows)]
    found = [
        (step, value)
        for frame in frames
        for step, raw, value in frame.select("step", "name_raw", "value").iter_rows()
        if raw.removeprefix("console:") in (curve, curve_of(name, curve))
    ]
    assert [value for _, value in found] == VALUES
    assert found[0][0] == first


def curve_of(name: str, curve: str) -> str:
    """Return the name of the second of two columns: that of their file."""
    return name.partition(".")[0] if curve == "column 2" else curve


@pytest.mark.parametrize("form", REFUSED)
def test_what_is_no_course_of_training_is_nobodys(tmp_path: Path, form: str) -> None:
    name, text = REFUSED[form]
    (tmp_path / name).write_text(text)
    path = tmp_path / name
    assert takers(RunFile(path=path, rel=name, size=path.stat().st_size)) == []


@pytest.mark.parametrize("log", [True, False])
def test_a_plain_table_beside_a_log_is_left_alone(tmp_path: Path, log: bool) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "rewards.json").write_text(json.dumps(VALUES))
    if log:
        (run / "log.jsonl").write_text("".join(f'{{"step": {at}, "loss": {value}}}\n' for at, value in ROWS))
    result = CliRunner().invoke(app, ["sources", str(run)])
    assert result.exit_code == 0
    assert ("plain_tables" in result.stdout) is not log


def test_evaluations_of_stable_baselines3_are_read_from_their_archive(tmp_path: Path) -> None:
    path = tmp_path / "evaluations.npz"
    np.savez(
        path, timesteps=np.arange(COUNT) * 500, results=np.array([VALUES, VALUES]).T, ep_lengths=np.ones((COUNT, 2))
    )
    assert takers(RunFile(path=path, rel=path.name, size=path.stat().st_size)) == ["plain_tables"]
    frame = next(piece.frame for piece in pieces_of(path) if isinstance(piece, Rows))
    found = frame.filter(frame["name_raw"] == "eval/mean_reward")
    assert found.select("step", "value").rows() == [(500 * at, value) for at, value in ROWS]
