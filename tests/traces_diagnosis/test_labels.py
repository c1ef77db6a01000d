"""Success and reward from a side file: matched by the episodes' own ids, and what does not match is told both ways."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from trace_stories import ask, call, end, make, say, write_episodes
from typer.testing import CliRunner

from ptt import api
from ptt.cli.app import app
from ptt.diagnostics.errors import InputError, SettingsError

ROWS: list[dict[str, Any]] = [{"id": f"episode-{at}", "success": at % 3 == 0, "reward": at / 10} for at in range(8)] + [
    {"id": "episode-99", "success": True, "reward": 1.0}
]


def _traces(tmp_path: Path) -> Path:
    return write_episodes(
        tmp_path, make(10, lambda at: [*ask("Go."), *call("look", of=at), *say(f"{at}"), *end(success=True)])
    )


def _written(folder: Path, ending: str) -> Path:
    path = folder / f"labels.{ending}"
    frame = pl.DataFrame(ROWS)
    match ending:
        case "csv":
            frame.write_csv(path)
        case "parquet":
            frame.write_parquet(path)
        case "json":
            path.write_text(json.dumps(ROWS))
        case _:
            frame.write_ndjson(path)
    return path


@pytest.mark.parametrize("ending", ["csv", "jsonl", "json", "parquet"])
def test_labels_replace_those_of_the_traces(tmp_path: Path, ending: str) -> None:
    labels = _written(tmp_path, ending)
    (tmp_path / "logs").mkdir()
    diagnosis = api.traces(_traces(tmp_path / "logs"), out=tmp_path / "out", labels=labels)
    success = diagnosis.traces.success
    assert success is not None
    assert (success.hits, success.trials) == (3 + 2, 10)  # episodes 8 and 9 keep what their file says
    source = next(one for one in diagnosis.sources if one.kind == "labels")
    assert (source.rows_ok, source.rows_bad) == (8, 1)
    assert source.note == (
        "8 of 9 labels match an episode; labels that match none, or several: episode-99; "
        "2 of 10 episodes without a label: episode-8, episode-9"
    )
    rows = pl.read_parquet(tmp_path / "out" / "store" / "trajectories" / "*.parquet")
    assert rows.filter(pl.col("sample_id") == "episode-7")["reward"].to_list() == [0.7]


def test_the_command_says_what_did_not_match_and_the_next_one_forgets(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    path, out = _traces(tmp_path / "logs"), str(tmp_path / "out")
    command = ["traces", str(path), "-o", out]
    labelled = CliRunner().invoke(app, [*command, "--labels", str(_written(tmp_path, "csv")), "--export", "sft"])
    said = " ".join(labelled.output.split())
    assert "Labels 8 of 9 labels match an episode; labels that match none, or several: episode-99;" in said
    assert "50%" in labelled.output
    assert pl.read_parquet(tmp_path / "out" / "exports" / "sft.parquet").height == 5
    assert "100%" in CliRunner().invoke(app, command).output
    again = CliRunner().invoke(app, ["traces", out, "--labels", str(tmp_path / "labels.csv")])
    assert (again.exit_code, "was read before" in " ".join(again.output.split())) == (2, True)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name,success\nepisode-0,true\n", "needs the columns id and success or reward; it has name, success"),
        ("id,success\nepisode-0,maybe\n", "row 1: success is 'maybe', neither true nor false"),
        ("id,reward\nepisode-0,1\nepisode-1,high\n", "row 2: reward is 'high', no finite number"),
        ("id,success\nepisode-0,1\nepisode-0,0\n", "two rows label 'episode-0' differently"),
        (
            "id,success\nx,1\ny,0\n",
            "none of its ids (x, y) names one episode; the traces have episode-0, episode-1",
        ),
        ("id,success\n", "holds no row with an id"),
        ("", "cannot be read"),
    ],
)
def test_what_is_wrong_with_labels_is_said(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "labels.csv").write_text(text)
    (tmp_path / "logs").mkdir()
    with pytest.raises(InputError) as failed:
        api.traces(_traces(tmp_path / "logs"), labels=tmp_path / "labels.csv")
    assert told in str(failed.value)


def test_labels_in_another_form_or_missing_are_said(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    path = _traces(tmp_path / "logs")
    with pytest.raises(InputError, match="No such file"):
        api.traces(path, labels=tmp_path / "labels.csv")
    (tmp_path / "labels.txt").write_text("episode-0 1")
    with pytest.raises(InputError, match=r"reads \.csv, \.tsv, \.jsonl, \.json and \.parquet"):
        api.traces(path, labels=tmp_path / "labels.txt")
    api.traces(path, out=tmp_path / "out")
    with pytest.raises(SettingsError, match="was read before"):
        api.traces(tmp_path / "out", labels=_written(tmp_path, "csv"))


def test_an_id_that_names_several_episodes_labels_none(tmp_path: Path) -> None:
    rows = [
        {
            "id": str(at // 2),
            "messages": [{"role": "user", "content": "Go."}, {"role": "assistant", "content": f"{at}"}],
        }
        for at in range(5)
    ]
    (tmp_path / "logs").mkdir()
    path = tmp_path / "logs" / "chats.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "labels.csv").write_text("ID , Success\n2,yes\n1,no\n")
    diagnosis = api.traces(path, labels=tmp_path / "labels.csv")
    assert diagnosis.traces.labelled == 1
    (told,) = (one.note for one in diagnosis.sources if one.kind == "labels")
    assert told == "1 of 2 labels match an episode; labels that match none, or several: 1; " + (
        "4 of 5 episodes without a label: 0, 0, 1 and 1 more"
    )
