"""Per-call and rollout records: what each format's fields become, and what its traps cost."""

from __future__ import annotations

import json
import math
import random
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import samples_calls as made
from hypothesis import given
from hypothesis import strategies as st
from parser_samples import SEQUENCE_ROWS, losses, parser_named, pieces_of, run_file, table, takers
from samples_calls import jsonl
from typer.testing import CliRunner

import ptt
from ptt.cli.app import app
from ptt.diagnostics.budget_limits import DEFAULT_LIMITS, MB, BudgetLimits
from ptt.diagnostics.parsers import Context, Lost, Piece, Rows, tinker
from ptt.diagnostics.parsers.io import lines, sqlite
from ptt.diagnostics.parsers.io.budget import Budget, BudgetSpent
from ptt.diagnostics.parsers.mlflow import read_spans
from ptt.diagnostics.parsers.open_instruct import model_mask
from ptt.diagnostics.schema import TABLES, Flag

FIXTURES = Path(__file__).parents[1] / "fixtures" / "calls"
TURN_IDS, TURN_MASK = [3, 4, 50, 51, 52, 6], [True, True, False, False, False, True]
TURN_LOGPS = [-0.375, -0.5, None, None, None, -0.75]


def pieces(tmp_path: Path, rel: str, data: bytes) -> list[Piece]:
    path = tmp_path / rel
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    file = run_file(path, rel)
    name, *others = takers(file)
    assert all(parser_named(other).general for other in others)
    return list(parser_named(name).read(file))


def facts(found: list[Piece]) -> dict[str, Any]:
    return {key: value for piece in found if isinstance(piece, Context) for key, value in piece.facts.items()}


def joined_turns(row: dict[str, Any]) -> bool:
    return (row["token_ids"], row["model_mask"], row["rollout_logp"]) == (TURN_IDS, TURN_MASK, TURN_LOGPS)


def unpacked(name: str) -> bytes:
    with pa.CompressedInputStream(pa.OSFile(str(FIXTURES / name)), "zstd") as stream:
        data: bytes = stream.read()
    return data


# open-instruct


def oi(tmp_path: Path, rows: list[dict[str, Any]]) -> list[Piece]:
    return pieces(tmp_path, "r_rollouts_000000.jsonl", made.jsonl(rows))


def test_open_instruct_rows_become_sequences_with_their_tool_output_masked(tmp_path: Path) -> None:
    found = oi(tmp_path, [made.rollout(0), made.rollout(3)])
    rows = table(found, "sequences")
    assert rows["model_mask"][0].to_list() == [True] * 6 + [False] * 3 + [True] * 5 + [False] * 4 + [True] * 4
    assert rows["rollout_logp"][0].to_list()[:10] == [-0.5] * 6 + [None] * 3 + [-0.25]
    assert rows["rollout_logp"][0][11] == 0.0  # a single zero is a token the model was sure of
    assert rows["group_id"].to_list() == ["7/0", "7/1"]
    assert rows["advantage"][1].to_list() == [-2.5] * 22
    assert rows["tool_names"][0].to_list() == ["python", "search"]
    assert rows["tool_failed"][0].to_list() == [False, True]
    calls = table(found, "tool_calls")
    assert calls.select("name", "ok", "ok_source", "latency_s").rows()[:2] == [
        ("python", True, "flag", 0.5),
        ("search", False, "flag", 2.0),
    ]
    samples = table(found, "trajectories")
    assert samples.select("n_turns", "n_tool_calls", "n_tool_fail", "reward", "env").row(0) == (3, 2, 1, 0.0, "gsm8k")
    assert set(rows["trajectory_id"]) == set(samples["trajectory_id"]) == set(calls["trajectory_id"])


def test_a_line_with_a_bare_nan_is_read_as_the_others_are(tmp_path: Path) -> None:
    empty = made.rollout(1, response_tokens=[2], logprobs=[made.NAN], request_info=None)
    rows = table(oi(tmp_path, [made.rollout(0), empty]), "sequences")
    alone = table(oi(tmp_path, [made.rollout(0)]), "sequences")
    assert rows[:1].select(alone.columns).equals(alone)
    assert math.isnan(rows["rollout_logp"][1][0])
    assert rows["model_mask"][1].to_list() == [True]


def test_open_instruct_rows_that_do_not_fit_are_counted(tmp_path: Path) -> None:
    short = made.rollout(1, logprobs=[-1.0])
    nothing = made.rollout(2, response_tokens=[], logprobs=[])
    unnamed = made.rollout(3, step=None)
    without = made.rollout(4, logprobs=None)
    found = oi(tmp_path, [made.rollout(0), short, nothing, unnamed, without])
    assert table(found, "sequences").height == 1
    assert losses(found)[0] == 3
    assert table(found, "trajectories")["prompt_hash"].n_unique() == 1  # of the first, and of that without tokens
    assert table(found, "trajectories").height == 2


def test_open_instruct_metadata_names_framework_and_model(tmp_path: Path) -> None:
    told = {"run_name": "r", "git_commit": "c", "model_name": "m", "timestamp": "2026-01-01T00:00:00"}
    assert facts(pieces(tmp_path, "r_metadata.jsonl", made.jsonl([told]))) == {
        "framework": "open-instruct",
        "model": "m",
    }


@given(st.lists(st.sampled_from([0.0, 0.0, -1.0, math.nan]), min_size=1, max_size=30), st.none() | st.integers(0, 4))
def test_only_the_longest_runs_of_zeros_are_tool_output_and_no_more_than_calls(
    values: list[float], calls: int | None
) -> None:
    runs: list[tuple[int, int]] = []
    for at, value in enumerate(values):
        if value == 0.0:
            start = runs.pop()[0] if runs and runs[-1][1] == at else at
            runs.append((start, at + 1))
    runs = sorted((run for run in runs if run[1] - run[0] >= 2), key=lambda run: run[0] - run[1])
    outside = {at for start, end in runs[:calls] for at in range(start, end)}
    mask, _ = model_mask(np.array(values, np.float32), calls)
    assert mask.tolist() == [at not in outside for at in range(len(values))]


def test_zeros_of_a_sample_without_calls_are_its_own_tokens(tmp_path: Path) -> None:
    quiet = made.rollout(0) | {"request_info": {"num_calls": 0, "tool_call_stats": []}}
    found = oi(tmp_path, [quiet])
    assert all(table(found, "sequences")["model_mask"][0])
    assert losses(found)[2] == ""


def test_more_runs_of_zeros_than_calls_are_told(tmp_path: Path) -> None:
    one_call = made.rollout(0) | {"request_info": {"num_calls": 1, "tool_call_stats": []}}
    found = oi(tmp_path, [one_call])
    assert table(found, "sequences")["model_mask"][0].to_list() == [True] * 14 + [False] * 4 + [True] * 4
    assert "1 row with more runs of zeros than tool calls" in losses(found)[2]


# Tinker


def test_turns_of_a_trajectory_are_joined_and_other_samples_are_not(tmp_path: Path) -> None:
    found = pieces(tmp_path, "log/capture/sample.jsonl", made.jsonl(made.TURNS))
    rows = table(found, "sequences").sort(pl.col("token_ids").list.len(), descending=True)
    assert rows.height == 2
    assert joined_turns(rows.row(0, named=True))
    assert rows.select("step", "policy_version", "temperature", "trajectory_id").row(0) == (
        3,
        2,
        1.0,
        "log:train/3/1/2",
    )
    assert rows["token_ids"][1].to_list() == [9, 8, 7]
    assert facts(found) == {"framework": "tinker"}


def test_the_capture_store_holds_what_the_lines_hold(tmp_path: Path) -> None:
    by_line = table(pieces(tmp_path, "capture/sample.jsonl", made.jsonl(made.TURNS)), "sequences")
    made.wire_store(tmp_path / "capture.db")
    assert table(pieces_of(tmp_path / "capture.db"), "sequences").equals(by_line)


def test_a_group_sampled_in_one_call_gives_one_sequence_each(tmp_path: Path) -> None:
    samples = [{"tokens": [at], "logprobs": [-0.5], "stop_reason": "stop"} for at in (5, 6, 7)]
    call = made.tinker_call([1, 2], [5], num_samples=3, samples=samples)
    rows = table(pieces(tmp_path, "sample.jsonl", made.jsonl([call])), "sequences")
    assert rows["token_ids"].to_list() == [[5], [6], [7]]
    assert rows["sample_id"].n_unique() == 3


def test_evaluations_are_no_training_data_and_are_told(tmp_path: Path) -> None:
    graded = made.tinker_call([1], [2], scope={**made.SCOPE, "purpose": "eval"})
    found = pieces(tmp_path, "sample.jsonl", made.jsonl([*made.TURNS, graded]))
    assert table(found, "sequences").height == 2
    assert "1 sampled sequence skipped: from evaluations" in losses(found)[2]


def test_calls_without_an_iteration_or_tokens_are_counted(tmp_path: Path) -> None:
    failed = made.tinker_call([1], [2], samples=[{"tokens": None, "logprobs": None}])
    nowhere = made.tinker_call([1], [2], scope={"run_id": "r"})
    unfit = made.tinker_call([9], [2], samples=[{"tokens": [1, 2], "logprobs": [-1.0], "stop_reason": "stop"}])
    found = pieces(tmp_path, "sample.jsonl", made.jsonl([*made.TURNS, failed, nowhere, unfit]))
    assert losses(found)[0] == 2
    assert "1 call skipped: not one log-probability for each" in losses(found)[2]
    assert table(found, "sequences").height == 3


def test_training_calls_give_their_metrics_by_iteration(tmp_path: Path) -> None:
    rows = table(pieces(tmp_path, "capture/train_op.jsonl", made.jsonl(made.TRAIN_OPS)), "metrics")
    assert rows.select("step", "name_raw", "value", "flag").rows() == [
        (3, "forward_backward/loss:sum", 2.5, int(Flag.FINITE)),
        (3, "forward_backward/kl", None, int(Flag.NAN)),
    ]


def test_rollout_summaries_tie_to_the_captured_sequences_of_the_same_log(tmp_path: Path) -> None:
    found = pieces(tmp_path, "log/iteration_000003/train_rollout_summaries.jsonl", made.jsonl([made.SUMMARY]))
    rows = table(found, "trajectories")
    assert rows.select("trajectory_id", "step", "split", "reward", "n_turns", "policy_version", "env").row(0) == (
        *("log:train/3/1/2", 3, "train", 1.5, 2, 2, "math"),
    )
    assert table(found, "turns")["n_tokens"].to_list() == [2, 1]
    assert dict(table(found, "rewards").select("name", "score").rows()) == {"steps": 0.5, "final": 1.0}
    evaluated = {**made.SUMMARY, "split": "eval_math"}
    found = pieces(tmp_path, "log/iteration_000003/eval_rollout_summaries.jsonl", made.jsonl([evaluated]))
    assert table(found, "trajectories")["split"].to_list() == ["eval"]


def test_files_of_the_capture_s_own_writers_are_read(tmp_path: Path) -> None:
    by_line = table(pieces(tmp_path, "log/capture/sample.jsonl", (FIXTURES / "sample.jsonl").read_bytes()), "sequences")
    assert by_line["token_ids"].to_list() == [TURN_IDS, [9, 8], [7]]
    assert by_line["group_id"].to_list() == ["r/3/1", "r/3/2", "r/3/2"]
    assert by_line["policy_version"].to_list() == [2, 2, 2]
    by_row = table(pieces(tmp_path, "log/capture.db", unpacked("capture.db.zst")), "sequences")
    assert by_row.equals(by_line)


def test_an_answer_spelt_in_other_tokens_is_told(tmp_path: Path) -> None:
    calls = [made.tinker_call([1, 2], [3, 4, 5, 6]), made.tinker_call([1, 2, 3, 40, 7], [8])]
    found = pieces(tmp_path, "sample.jsonl", made.jsonl(calls))
    assert "1 call in which the earlier answer has other token ids" in losses(found)[2]


# rLLM


def test_a_database_of_the_gateway_s_own_writer_is_read(tmp_path: Path) -> None:
    found = pieces(tmp_path, "gateway.db", unpacked("gateway.db.zst"))
    rows = table(found, "sequences")
    assert rows["trajectory_id"].to_list() == ["gateway.db:task:0", "gateway.db:task:1"]
    assert rows["group_id"].to_list() == ["task", "task"]
    assert all(joined_turns(row) for row in rows.iter_rows(named=True))


def test_calls_of_a_session_are_joined_in_the_order_they_were_made(tmp_path: Path) -> None:
    made.gateway(tmp_path / "g.db", list(reversed(made.TRACES)))
    found = pieces_of(tmp_path / "g.db")
    rows = table(found, "sequences")
    assert rows.height == 1
    assert joined_turns(rows.row(0, named=True))
    assert rows.select("step", "policy_version").row(0) == (5, 4)
    assert rows["tool_names"][0].to_list() == ["add"]
    assert table(found, "turns")["role"].to_list() == ["user", "assistant", "tool", "assistant"]
    assert table(found, "tool_calls").select("name", "result_len").row(0) == ("add", 1)
    assert losses(found) == (0, 0, "")


def test_prompts_stored_as_what_they_add_give_the_same_sequence(tmp_path: Path) -> None:
    grown = made.trace(1, [], [6], prompt_delta_token_ids=[50, 51, 52], parent_trace_id="t0")
    made.gateway(tmp_path / "g.db", [made.TRACES[0], grown])
    assert joined_turns(table(pieces_of(tmp_path / "g.db"), "sequences").row(0, named=True))
    made.gateway(tmp_path / "h.db", [grown])
    found = pieces_of(tmp_path / "h.db")
    assert table(found, "sequences")["token_ids"].to_list() == [[6]]
    assert "continue a missing call" in losses(found)[2]


def test_the_version_of_the_weights_stands_for_a_step_that_is_not_recorded(tmp_path: Path) -> None:
    made.gateway(tmp_path / "g.db", [made.trace(0, [1], [3], metadata={})])
    found = pieces_of(tmp_path / "g.db")
    assert table(found, "sequences")["step"].to_list() == [4]
    assert "the weights version is used instead" in losses(found)[2]


def test_log_probabilities_that_lack_some_are_gaps_and_told(tmp_path: Path) -> None:
    made.gateway(tmp_path / "g.db", [made.TRACES[0], made.trace(1, [1, 2, 3, 4, 5], [6, 7], logprobs=[-1.0])])
    found = pieces_of(tmp_path / "g.db")
    logps = table(found, "sequences")["rollout_logp"][0].to_list()
    assert logps[:3] == [-0.375, -0.5, None]
    assert all(math.isnan(value) for value in logps[3:])
    assert "1 call skipped: not one log-probability for each" in losses(found)[2]


def test_episodes_give_sequences_where_they_hold_ids_and_texts_where_not(tmp_path: Path) -> None:
    found = pieces(tmp_path, "eval/episodes/episode_000000_task.json", json.dumps(made.episode()).encode())
    row = table(found, "sequences").row(0, named=True)
    assert joined_turns(row)
    assert row["advantage"] == [0.5, 0.5, 0.0, 0.0, 0.0, 0.5]
    samples = table(found, "trajectories")
    assert samples.select("split", "reward", "n_turns", "success", "group_id").row(0) == ("eval", 1.0, 2, True, "task")
    rel = "episodes/train_step_9_epoch_0/episode_hash00000000_idtask_1.json"
    found = pieces(tmp_path, rel, json.dumps(made.logged_episode()).encode())
    assert table(found, "sequences").is_empty()
    assert table(found, "trajectories").select("step", "split", "success", "n_tool_calls").row(0) == (
        9,
        "train",
        False,
        1,
    )
    assert table(found, "turns")["text"].null_count() == 4


# OpenAI's interface


def test_chats_of_one_conversation_are_joined(tmp_path: Path) -> None:
    rows = table(pieces(tmp_path, "log.jsonl", made.jsonl(made.CHATS)), "sequences")
    assert rows.height == 1
    assert joined_turns(rows.row(0, named=True))
    assert rows.select("step", "temperature", "trajectory_id").row(0) == (2, 0.7, "c1")


def completion(logps: list[float | None], tokens: list[str], **changed: Any) -> dict[str, Any]:
    told = {"tokens": tokens, "token_logprobs": logps, "top_logprobs": None, "text_offset": []}
    choice = {"index": 0, "text": "", "logprobs": told, "finish_reason": "stop"}
    return {"id": "cmpl-1", "object": "text_completion", "choices": [choice]} | changed


ANSWERS: dict[str, tuple[dict[str, Any], list[int] | None, list[float]]] = {
    "completion": (completion([-1.0, -2.0], ["a", "b"]), None, [-1.0, -2.0]),
    "ids in place of texts": (completion([-1.0], ["token_id:17"]), [17], [-1.0]),
    "the prompt repeated": (
        completion([None, -3.0, -1.0], ["token_id:1", "token_id:2", "token_id:3"], usage={"prompt_tokens": 2}),
        [3],
        [-1.0],
    ),
    "none in its place": (completion([-9999.0, -1.0], ["a", "b"]), None, [math.nan, -1.0]),
    "batch file": (
        {"custom_id": "1", "response": {"status_code": 200, "body": completion([-1.0], ["a"])}},
        None,
        [-1.0],
    ),
    "SGLang": (
        {"text": "x", "meta_info": {"id": "s", "output_token_logprobs": [[-1.0, 5, None], [-2.0, 6, None]]}},
        [5, 6],
        [-1.0, -2.0],
    ),
    "ids that are none": (completion([-1.0], ["token_id:99999999999"]), None, [-1.0]),
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_answers_in_every_spelling(tmp_path: Path, kind: str) -> None:
    answer, ids, logps = ANSWERS[kind]
    rows = table(pieces(tmp_path, "step_000004/calls.jsonl", made.jsonl([answer])), "sequences")
    assert rows["step"].to_list() == [4]
    assert np.array_equal(rows["rollout_logp"][0].to_numpy(), np.array(logps, np.float32), equal_nan=True)
    assert (rows["token_ids"][0].to_list() if "token_ids" in rows.columns else None) == ids


def test_answers_without_a_step_are_kept_and_told(tmp_path: Path) -> None:
    found = pieces(tmp_path, "calls.jsonl", made.jsonl([completion([-1.0], ["a"])]))
    assert "step" not in table(found, "sequences").columns
    assert "write it beside each record as `step`" in losses(found)[2]


def test_the_version_of_the_weights_stands_for_a_step_in_answers_too(tmp_path: Path) -> None:
    found = pieces(tmp_path, "calls.jsonl", made.jsonl([completion([-1.0], ["a"], weight_version="7")]))
    assert table(found, "sequences").select("step", "policy_version").row(0) == (7, 7)
    assert "the weights version is used instead" in losses(found)[2]


def test_records_without_log_probabilities_are_counted(tmp_path: Path) -> None:
    plain = {"id": "x", "choices": [{"message": {"content": "hi"}, "logprobs": None}]}
    found = pieces(tmp_path, "step_1.jsonl", made.jsonl([completion([-1.0], ["a"]), plain, {"error": "no"}]))
    assert losses(found)[0] == 2


# veRL's spans in MLflow


def spans(path: Path, change: Any = None) -> list[Piece]:
    held = json.loads((FIXTURES / "mlflow_spans.json").read_text())
    connection = sqlite3.connect(path)
    for name in ("spans", "trace_tags"):
        columns, rows = held[name]["columns"], held[name]["rows"]
        connection.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
        connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(columns))})", rows)
    if change is not None:
        connection.execute(*change)
    connection.commit()
    connection.close()
    with sqlite.open_database(path) as opened:
        return list(read_spans(opened, run_file(path)))


def test_traced_rollouts_are_read_from_what_mlflow_wrote(tmp_path: Path) -> None:
    found = spans(tmp_path / "mlflow.db")
    rows = table(found, "sequences").sort("sample_id")
    assert rows["sample_id"].to_list() == ["5/7/0", "5/8/1#0"]
    assert all(joined_turns(row) for row in rows.iter_rows(named=True))  # the loop's own, and joined from generations
    assert rows.select("step", "group_id", "reward", "policy_version").row(0) == (5, "5/7", 1.0, 4)
    samples = table(found, "trajectories").sort("sample_id")
    assert samples.select("split", "n_turns", "n_tool_calls").rows() == [
        ("train", 4, 1),
        ("train", 2, 1),
        ("eval", 4, 1),
    ]
    calls = table(found, "tool_calls")
    assert set(calls.select("name", "ok", "ok_source").rows()) == {("Gsm8kTool", True, "flag")}
    assert (calls["latency_s"] > 0).all()
    assert "1 traced rollout skipped: from validation" in losses(found)[2]
    assert facts(found) == {"framework": "verl"}


def test_traces_whose_tags_are_gone_name_no_step_and_say_so(tmp_path: Path) -> None:
    found = spans(tmp_path / "m.db", ("DELETE FROM trace_tags",))
    assert "step" not in table(found, "sequences").columns
    assert "3 traced rollouts skipped: no tag" in losses(found)[2]


def test_a_failed_tool_is_told_by_its_span(tmp_path: Path) -> None:
    found = spans(tmp_path / "m.db", ("UPDATE spans SET status = 'ERROR' WHERE name = 'Gsm8kTool.execute'",))
    assert not table(found, "tool_calls")["ok"].any()


def test_traces_of_others_and_broken_cells_give_nothing(tmp_path: Path) -> None:
    deep = '{"attributes": ' + "[" * 100_000
    assert spans(tmp_path / "m.db", ("UPDATE spans SET content = ?", (deep,))) == []
    empty = sqlite3.connect(tmp_path / "n.db")
    empty.execute("CREATE TABLE metrics (key)")
    empty.close()
    with sqlite.open_database(tmp_path / "n.db") as opened:
        assert list(read_spans(opened, run_file(tmp_path / "n.db"))) == []


# SQLite, whoever made it


def test_a_database_is_read_without_a_trace_and_whatever_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "a?mode=rwc&x#%41 b"
    folder.mkdir()
    made.gateway(folder / "g.db")
    before = (folder / "g.db").read_bytes()
    assert table(pieces_of(folder / "g.db"), "sequences").height == 1
    assert [path.name for path in folder.iterdir()] == ["g.db"]
    assert (folder / "g.db").read_bytes() == before


def test_what_lies_in_the_wal_alone_is_told(tmp_path: Path) -> None:
    made.gateway(tmp_path / "g.db")
    (tmp_path / "g.db-wal").write_bytes(b"x" * 100)
    assert "100 bytes of its -wal were not read" in losses(pieces_of(tmp_path / "g.db"))[2]


def test_a_damaged_page_costs_what_it_held_and_is_told(tmp_path: Path) -> None:
    made.wire_store(tmp_path / "w.db", [made.tinker_call([at, 2], [3, 4, *range(9)]) for at in range(40)])
    data = (tmp_path / "w.db").read_bytes()
    whole = table(pieces_of(tmp_path / "w.db"), "sequences").drop("temperature", "top_p")
    kept = []
    for at in range(512, len(data), 512):
        (tmp_path / "w.db").write_bytes(data[:at] + b"\xff" * 512 + data[at + 512 :])
        found = list(parser_named("tinker_capture").read(run_file(tmp_path / "w.db")))
        rows = table(found, "sequences")
        kept.append(rows.height)
        assert losses(found) != (0, 0, "") or rows.drop("temperature", "top_p", strict=False).equals(whole)
    assert sum(height < 40 for height in kept) > 5
    assert sum(30 < height < 40 for height in kept) > 5  # what lies behind the damage is read


@pytest.mark.parametrize(
    "schema",
    [
        "CREATE VIEW wire_rows AS SELECT {columns}",
        "CREATE VIRTUAL TABLE wire_rows USING fts5({names})",
        "CREATE TABLE wire_rows ({names}, more AS (zeroblob(50000000)))",
    ],
)
def test_only_ordinary_tables_are_read(tmp_path: Path, schema: str) -> None:
    names = sorted(tinker.NEEDED)
    connection = sqlite3.connect(tmp_path / "v.db")
    connection.execute(schema.format(names=", ".join(names), columns=", ".join(f"1 AS {name}" for name in names)))
    connection.close()
    file = run_file(tmp_path / "v.db")
    assert takers(file) == []
    assert sqlite.not_read(file).endswith("1 skipped: wire_rows.")


def test_a_query_ends_with_the_budget(tmp_path: Path) -> None:
    made.gateway(tmp_path / "g.db")
    file = replace(run_file(tmp_path / "g.db"), budget=Budget(BudgetLimits(file_seconds=0.2)))
    file.budget.begin(0)
    endless = "SELECT count(*) FROM traces" + ", traces" * 40
    with sqlite.open_database(file.path, file.budget) as opened, pytest.raises(BudgetSpent, match="file_seconds"):
        list(sqlite.rows(opened, file, endless))


def test_rows_that_are_held_ask_the_budget(tmp_path: Path) -> None:
    made.gateway(tmp_path / "g.db")
    file = replace(run_file(tmp_path / "g.db"), budget=Budget(BudgetLimits(memory_mb=1)))
    many = "SELECT zeroblob(1000) FROM traces" + ", traces" * 40
    with sqlite.open_database(file.path, file.budget) as opened, pytest.raises(BudgetSpent, match="memory_mb"):
        list(sqlite.rows(opened, file, many, held=True))


def test_a_database_cannot_be_written_or_led_elsewhere(tmp_path: Path) -> None:
    made.gateway(tmp_path / "g.db")
    file = run_file(tmp_path / "g.db")
    with sqlite.open_database(file.path) as opened:
        for order in ("DELETE FROM traces", f"ATTACH '{tmp_path / 'x.db'}' AS x", "SELECT load_extension('x')"):
            (only,) = sqlite.rows(opened, file, order)
            assert isinstance(only, Lost)
    assert not (tmp_path / "x.db").exists()


def test_cells_of_bytes_nan_and_nonsense(tmp_path: Path) -> None:
    assert lines.parse_json(b'{"a": 1}') == {"a": 1}
    assert math.isnan(lines.parse_json("NaN"))
    assert lines.parse_json("[" * 100_000) is None
    assert lines.parse_json(b"\xff") is None
    assert lines.parse_json(3) is None


# Hostile lines, and the whole way


@pytest.mark.parametrize("name", ["open_instruct", "tinker_capture", "tinker_rollouts", "openai_logprobs"])
def test_deep_and_endless_lines_cost_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(lines, "LINE_SHARE", DEFAULT_LIMITS.memory_mb * MB // 50_000)
    rel, (_, data) = next(
        (rel, told) for rel, told in made.SAMPLES.items() if told[0] == name and rel.endswith("jsonl")
    )
    assert isinstance(data, bytes)
    path = tmp_path / Path(rel).name
    path.write_bytes(data + b'{"step": ' + b"[" * 40_000 + b"\n" + b'{"x": "' + b"y" * 400_000 + b'"}\n')
    found = list(parser_named(name).read(run_file(path, rel)))
    tables = [piece for piece in found if not isinstance(piece, Lost | Context)]
    assert len(tables) >= 1
    assert losses(found)[0] == 2


def test_a_run_with_one_log_probability_is_told_which_other_it_takes_and_how(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    rows = [made.rollout(sample, step=step) for step in range(20) for sample in range(4)]
    (run / "r_rollouts_000000.jsonl").write_bytes(made.jsonl(rows))
    diagnosis = ptt.diagnose(run, out=tmp_path / "out")
    assert diagnosis.verdict.status == "cannot_say"
    assert "Only rollout_logp is recorded" in diagnosis.verdict.headline
    (asked,) = [item for item in diagnosis.not_judged if item.id == "tool-tail-growth"]
    assert asked.missing == ("policy_logp", "old_logp")
    assert "record policy_logp, old_logp beside rollout_logp" in (asked.enable or "")
    result = CliRunner().invoke(app, ["diagnose", str(run), "--out", str(tmp_path / "out")])
    assert result.exit_code == 0  # its samples could be judged
    assert "policy_logp or old_logp" in " ".join(result.stdout.split())


def test_the_switch_named_is_that_of_the_run_s_own_framework(tmp_path: Path) -> None:
    row = {"step": 1, "data": {"actor/pg_loss": 0.5}}
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_bytes(made.jsonl([row]))
    (tmp_path / "run" / "step_1.jsonl").write_bytes(made.jsonl([completion([-1.0], ["a"])]))
    diagnosis = ptt.diagnose(tmp_path / "run", out=tmp_path / "out")
    (asked,) = [item for item in diagnosis.not_judged if item.id == "tool-tail-growth"]
    assert "ptt.recorders.verl" in (asked.enable or "")


JUNK: list[Any] = [
    None, True, -1, 2**70,
    1.5, made.NAN, math.inf, "", "7", "\ud800", [], [None], [[1]], ["a"], {}, {"a": 1}, [1.5, 2], [{}],
]  # fmt: skip


def muddled(value: Any, dice: random.Random, share: float) -> Any:
    """The value with some of its parts, at any depth, replaced by what does not belong there."""
    if dice.random() < share:
        return dice.choice(JUNK)
    if isinstance(value, dict):
        return {key: muddled(part, dice, share) for key, part in value.items() if dice.random() > share / 2}
    return [muddled(part, dice, share) for part in value] if isinstance(value, list) else value


MUDDLED: dict[str, Any] = {
    "r_rollouts_000000.jsonl": made.rollout(0),
    "capture/sample.jsonl": made.TURNS[1],
    "capture/train_op.jsonl": made.TRAIN_OPS[0],
    "train_rollout_summaries.jsonl": made.SUMMARY,
    "calls/log.jsonl": made.CHATS[1],
    "episodes/episode_000000_task.json": made.episode(),
    "episodes/train_step_9_epoch_0/episode_hash00000000_idtask_1.json": made.logged_episode(),
    "sglang.jsonl": ANSWERS["SGLang"][0],
    "completions.jsonl": ANSWERS["the prompt repeated"][0],
}
READERS = ("open_instruct", "tinker_capture", "tinker_rollouts", "rllm_episodes", "openai_logprobs")


def fits_the_schema(found: list[Piece]) -> bool:
    frames = [piece for piece in found if isinstance(piece, Rows)]
    return all(dict(piece.frame.schema).items() <= TABLES[piece.table].items() for piece in frames)


@pytest.mark.slow
@pytest.mark.parametrize("rel", MUDDLED)
@pytest.mark.parametrize("share", [0.01, 0.1])
def test_values_of_any_kind_anywhere_never_raise(tmp_path: Path, rel: str, share: float) -> None:
    dice = random.Random(f"{rel} {share}")
    path = tmp_path / rel
    path.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(150):
        path.write_bytes(made.jsonl([muddled(MUDDLED[rel], dice, share)]))
        file = run_file(path, rel)
        takers(file)
        for name in READERS:
            assert fits_the_schema(list(parser_named(name).read(file)))


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.02, 0.2])
def test_cells_of_any_kind_anywhere_never_raise(tmp_path: Path, share: float) -> None:
    dice = random.Random(share)
    for at in range(60):
        path = tmp_path / f"{at}.db"
        traces = [muddled(found, dice, share) for found in made.TRACES]
        kept = [{**found, "trace_id": f"t{place}", "session_id": "s", "timestamp": 1.0}
                for place, found in enumerate(traces) if isinstance(found, dict)]  # fmt: skip
        made.gateway(path, kept)
        assert fits_the_schema(list(parser_named("rllm_gateway").read(run_file(path))))
        content = json.dumps(
            muddled(json.loads((FIXTURES / "mlflow_spans.json").read_text())["spans"]["rows"], dice, share)
        )
        wire = [muddled(call["samples"][0], dice, share) for call in made.TURNS]
        calls = [
            {**call, "samples": [one if isinstance(one, dict) else {}]}
            for call, one in zip(made.TURNS, wire, strict=False)
        ]
        calls = [{**call, "samples": [{"tokens": None, "logprobs": None, **call["samples"][0]}]} for call in calls]
        made.wire_store(tmp_path / f"w{at}.db", calls)
        assert fits_the_schema(list(parser_named("tinker_capture").read(run_file(tmp_path / f"w{at}.db"))))
        change = ("UPDATE spans SET content = ?, name = ?, status = ?", (content, dice.choice(["", None, "x"]), 3))
        assert fits_the_schema(spans(tmp_path / f"m{at}.db", change))


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.02, 0.1])
def test_spans_with_values_of_any_kind_never_raise(tmp_path: Path, share: float) -> None:
    dice = random.Random(share)
    loop = {"response_ids": [1, 2], "response_mask": [1, 0], "response_logprobs": [-1.0, 0.0], "num_turns": 2}
    loop |= {"reward_score": 1.0, "extra_fields": {"min_global_steps": 1}}
    token = {"token_ids": [1], "log_probs": [-1.0], "extra_fields": {}}
    for at in range(100):
        outputs = muddled(dice.choice([loop, token]), dice, share)
        attributes = {"mlflow.spanOutputs": json.dumps(outputs), "mlflow.spanInputs": json.dumps({"prompt_ids": [1]})}
        cell = json.dumps({"attributes": muddled(attributes, dice, share)})
        assert fits_the_schema(spans(tmp_path / f"{at}.db", ("UPDATE spans SET content = ?", (cell,))))


def test_answers_without_a_step_beside_a_judged_run_change_nothing_and_are_counted(tmp_path: Path) -> None:
    judged = []
    for name, more in (("alone", b""), ("beside", made.jsonl([completion([-1.0], ["a"])]))):
        run = tmp_path / name / "run"
        (run / "tokens").mkdir(parents=True)
        (run / "tokens" / "step_1.jsonl").write_bytes(jsonl(SEQUENCE_ROWS))
        if more:
            (run / "calls.jsonl").write_bytes(more)
        judged.append(ptt.diagnose(run, out=tmp_path / name / "out"))
    alone, beside = judged
    told = ("status", "first_broken_link")  # that an engine sampled is known from it, and what to cover with that
    assert [getattr(alone.verdict, name) for name in told] == [getattr(beside.verdict, name) for name in told]
    assert alone.findings == beside.findings
    assert [source.rows_bad for source in beside.sources if source.path == "calls.jsonl"] == [1]


def test_a_pickle_takes_no_more_time_than_the_budget_has_left(tmp_path: Path) -> None:
    doubled = b"".join(b"]q%c(h%ch%ce" % (at + 1, at, at) for at in range(60))  # lists of lists: 2^60 of them
    path = tmp_path / "step_1.pkl"
    path.write_bytes(b"\x80\x04}(X\x0f\0\0\0completion_maskX\x13\0\0\0old_per_token_logps]q\0" + doubled + b"u.")
    file = replace(run_file(path), budget=Budget(BudgetLimits(file_seconds=1)))
    file.budget.begin(0)
    (lost,) = parser_named("token_tensors").read(file)
    assert isinstance(lost, Lost)
    assert file.budget.seconds_left < 1
