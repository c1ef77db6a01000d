"""What a run tells of its tool calls reaches the tail: names, failures and texts, tied by ids or recorded in place."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import polars as pl
import pytest
from builders import sampled_logps_of, write_recorder_run
from html_structure import page_with
from typer.testing import CliRunner

import ptt
from ptt.cli.app import app
from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.evidence.completions import WINDOW, Completions, recorded_calls, recorded_observations
from ptt.diagnostics.store.scan import read_table
from ptt.reports.run.html import render_html
from ptt.reports.run.tail_details import details

HOSTILE = "<script>alert(1)</script>\x1b[31m"
STEPS, EACH = 30, 12
HEAD, GAP, AFTER = 20, 6, 20


def rows_of(change: Callable[[int, dict[str, Any]], None] = lambda _, row: None) -> pl.DataFrame:
    """Two observations a sequence, of `lookup` and `calc`; in every fourth `calc` fails, and there is the tail."""
    generator = np.random.default_rng(5)
    rows: list[dict[str, Any]] = []
    for number in range(STEPS * EACH):
        fails = number % 4 == 0
        mask = [True] * HEAD + ([False] * GAP + [True] * AFTER) * 2
        r = generator.normal(size=len(mask)) * 0.1
        if fails:
            r[-AFTER + 2 : -AFTER + 4] = 4.0 + number / 1000
        policy, ref = sampled_logps_of(r, generator)
        row = {
            "seq": number,
            "step": 1 + number // EACH,
            "sample_id": f"s{number}",
            "model_mask": mask,
            "policy_logp": policy,
            "ref_logp": ref,
        }
        change(number, row)
        rows.append(row)
    return pl.DataFrame(rows)


def message(role: str, content: str, call: str | None = None) -> dict[str, Any]:
    calls = None if call is None else [{"type": "function", "function": {"name": call, "arguments": {"key": "x"}}}]
    return {"role": role, "content": content, "tool_calls": calls}


def write_samples(run: Path, frame: pl.DataFrame, *, ids: bool = True) -> None:
    (run / "completions").mkdir()
    for step, part in frame.group_by("step", maintain_order=True):
        rows = []
        for number, name in part.select("seq", "sample_id").iter_rows():
            said = "{'error': 'boom'}" if number % 4 == 0 else f"42 {HOSTILE}"
            completion = [
                message("assistant", f"sample {number}", "lookup"),
                message("tool", "found it"),
                message("assistant", "", "calc"),
                message("tool", said),
                message("assistant", f"answer {number} {HOSTILE} " + "word " * 200),
            ]
            row = {"step": step[0], "prompt": [message("user", "?")], "completion": completion, "right": 1.0}
            rows.append(row | ({"sample_id": name} if ids else {}) | {"advantage": 0.0})
        pl.DataFrame(rows).write_parquet(run / "completions" / f"completions_{step[0]:05d}.parquet")


def named(number: int, row: dict[str, Any]) -> None:
    row["tool_names"] = ["lookup", "calc"]


def failing(number: int, row: dict[str, Any]) -> None:
    named(number, row)
    row["tool_failed"] = [False, number % 4 == 0]


def split(found: ptt.Diagnosis, by: str) -> dict[str | None, tuple[int, int, int]]:
    table = found.tables["attribution"].filter(pl.col("by") == by)
    return {row[0]: row[1:] for row in table.select("value", "tail", "tokens", "tail_sequences").iter_rows()}


LATE = STEPS // 3 * EACH
NAMES = {
    "calc": (LATE // 2, LATE * AFTER, LATE // 4),
    "lookup": (0, LATE * AFTER, 0),
    "none": (0, LATE * HEAD, 0),
}
RESULTS = {
    "failed": (LATE // 2, LATE // 4 * AFTER, LATE // 4),
    "not failed": (0, (LATE // 4 * 3 + LATE) * AFTER, 0),
    "none": (0, LATE * HEAD, 0),
}


def test_tools_and_failures_recorded_beside_the_tokens(tmp_path: Path) -> None:
    found = ptt.diagnose(write_recorder_run(tmp_path / "run", rows_of(failing)))
    assert split(found, "tool name") == NAMES
    assert split(found, "tool result") == RESULTS
    assert "attribution" not in dict(found.tables["details_notes"].rows())
    holders = next(part for part in details(found) if part.key == "holders")
    assert "By place, tokens since the observation 2-3 matters most: 100" in holders.sentence


def test_json_lines_carry_tools_and_failures_as_well(tmp_path: Path) -> None:
    lines = [json.dumps(row) for row in rows_of(failing).drop("seq").to_dicts()]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines) + "\n")
    found = ptt.diagnose(tmp_path)
    assert split(found, "tool name") == NAMES
    assert split(found, "tool result") == RESULTS


def test_recorded_calls_are_counted_by_tool(tmp_path: Path) -> None:
    def change(number: int, row: dict[str, Any]) -> None:
        failing(number, row)
        row["tool_failed"][1] = number % 4 == 0 and number >= STEPS * EACH // 2

    found = ptt.diagnose(write_recorder_run(tmp_path / "run", rows_of(change)))
    tools = {row["name"]: row for row in found.tables["tools"].to_dicts()}
    assert {name: tool["calls"] for name, tool in tools.items()} == {"lookup": STEPS * EACH, "calc": STEPS * EACH}
    assert (tools["calc"]["failed_early"], tools["calc"]["failed_late"]) == (0.0, 0.25)
    (finding,) = (one for one in found.findings if one.id == "tool-failures")
    assert (finding.slice, finding.onset_step) == ("tool:calc", STEPS // 2 + 1)


def called(rows: list[dict[str, Any]]) -> tuple[int, dict[str | None, tuple[int, int]]]:
    """Return the samples, and by tool calls and those of them that are known to fail."""
    frame = pl.DataFrame(rows).with_row_index("seq").with_columns(pl.lit(9).alias("length"), ok=True)
    frame = frame.with_columns(pl.lit(4).alias("n_model"), pl.col("tool_names").list.len().alias("n_obs"))
    early: Future[pl.DataFrame] = Future()
    early.set_result(frame.drop("length", "n_model", "n_obs", "ok"))
    tables, scan = cast(Any, SimpleNamespace(rows=frame)), cast(Any, SimpleNamespace(columns=frame.columns))
    samples, calls = recorded_calls(Tokens(tables=tables, pairs=(), scan=scan, early=early))
    by_tool = calls.group_by("name").agg(pl.len(), (~pl.col("ok")).sum())
    return samples.height, {name: (count, failed) for name, count, failed in by_tool.iter_rows()}


def sample(step: int, name: str | None, tools: list[str], failed: list[bool | None], **more: Any) -> dict[str, Any]:
    return {"step": step, "sample_id": name, "tool_names": tools, "tool_failed": failed, "rank": 0} | more


def test_a_sample_that_two_steps_train_on_is_counted_once() -> None:
    rows = [sample(step, "1-0", ["a", "b"], [False, True]) for step in (1, 2)]
    assert called(rows) == (1, {"a": (1, 0), "b": (1, 1)})


def test_samples_numbered_anew_at_each_step_are_all_counted() -> None:
    rows = [sample(1, "0", ["a"], [False]), sample(2, "0", ["a", "a"], [True, None]), sample(3, "0", ["a"], [False])]
    assert called(rows) == (3, {"a": (4, 1)})
    assert called([sample(1, None, ["a"], [False]), sample(2, None, ["a"], [False])]) == (2, {"a": (2, 0)})


def test_which_of_parallel_calls_failed_is_not_known() -> None:
    rows = [sample(1, "0", ["a+b"], [True]), sample(1, "1", ["a + b"], [False])]
    assert called(rows) == (2, {"a": (2, 0), "b": (2, 0), None: (1, 1)})


def test_outcomes_that_fit_no_calls_are_unknown() -> None:
    assert called([sample(1, "0", ["a", "b"], [True]), sample(1, "1", [], [])]) == (2, {"a": (1, 0), "b": (1, 0)})


def test_a_list_that_does_not_fit_the_mask_names_no_observation(tmp_path: Path) -> None:
    def change(number: int, row: dict[str, Any]) -> None:
        failing(number, row)
        if number % 2:
            row["tool_names"] = ["lookup"]
            row["tool_failed"] = [None, True]

    found = ptt.diagnose(write_recorder_run(tmp_path / "run", rows_of(change)))
    assert split(found, "tool name") == {
        "calc": (LATE // 2, LATE // 2 * AFTER, LATE // 4),
        "lookup": (0, LATE // 2 * AFTER, 0),
        "none": NAMES["none"],
        None: (0, LATE * AFTER, 0),
    }
    assert split(found, "tool result")[None] == (0, LATE // 2 * AFTER, 0)


def test_names_without_results_say_what_to_record(tmp_path: Path) -> None:
    found = ptt.diagnose(write_recorder_run(tmp_path / "run", rows_of(named)))
    assert split(found, "tool name") == NAMES
    assert split(found, "tool result") == {}
    assert "tool_failed" in dict(found.tables["details_notes"].rows())["attribution"]


def test_samples_tied_by_their_id_tell_tools_and_failures(tmp_path: Path) -> None:
    frame = rows_of()
    write_samples(write_recorder_run(tmp_path / "run", frame), frame)
    found = ptt.diagnose(tmp_path / "run")
    assert split(found, "tool name") == NAMES
    assert split(found, "tool result") == RESULTS


def test_samples_without_an_id_tie_nothing(tmp_path: Path) -> None:
    frame = rows_of()
    write_samples(write_recorder_run(tmp_path / "run", frame), frame, ids=False)
    found = ptt.diagnose(tmp_path / "run", keep_text=True)
    assert split(found, "tool name") == split(found, "tool result") == {}
    assert "sample_id beside each completion" in dict(found.tables["details_notes"].rows())["attribution"]
    assert found.tables["top_sequences"]["text"].null_count() == found.tables["top_sequences"].height


@pytest.mark.slow
def test_texts_are_kept_only_where_asked_for_and_shown_escaped(tmp_path: Path) -> None:
    frame, out = rows_of(), tmp_path / "out"
    write_samples(write_recorder_run(tmp_path / "run", frame), frame)
    bare = ptt.diagnose(tmp_path / "run", out=out)
    assert not any(b"answer 3" in path.read_bytes() for path in out.rglob("*.parquet"))
    assert bare.tables["top_sequences"]["text"].null_count() == bare.tables["top_sequences"].height
    assert "--keep-text" in page_with(bare)
    kept = ptt.diagnose(tmp_path / "run", out=out, keep_text=True)
    top = kept.tables["top_sequences"].row(0, named=True)
    assert top["max_turn"] == 2
    assert top["text"].startswith(f"[tool] {{'error': 'boom'}} [assistant] answer {top['sample_id'][1:]} <script>")
    assert len(top["text"]) == WINDOW
    page = render_html(kept)
    assert "--keep-text" not in page
    assert "<script" not in page
    assert "\x1b" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\x1b[31m" in page
    again = ptt.diagnose(tmp_path / "run", out=out)  # texts are not left behind
    assert again.tables["top_sequences"]["text"].null_count() == again.tables["top_sequences"].height
    turns = pl.read_parquet(out / "store" / "turns" / "*.parquet")
    assert turns["text"].null_count() == turns.height


@pytest.mark.slow
def test_the_settings_and_the_commands_can_ask_for_texts(tmp_path: Path) -> None:
    frame = rows_of()
    write_samples(write_recorder_run(tmp_path / "run", frame), frame)
    asked = tmp_path / "ptt.toml"
    asked.write_text("[diagnose]\nkeep_text = true\n")
    settings = ptt.read_settings(asked)
    assert ptt.diagnose(tmp_path / "run", settings=settings).tables["top_sequences"]["text"].null_count() == 0
    assert ptt.diagnose(tmp_path / "run", settings=settings, keep_text=False).tables["top_sequences"]["text"][0] is None
    for flag, kept in (("--keep-text", True), (None, False)):
        out = tmp_path / f"out{kept}"
        done = CliRunner().invoke(app, ["ingest", str(tmp_path / "run"), "--out", str(out), *([flag] if flag else [])])
        assert done.exit_code == 0
        turns = pl.read_parquet(out / "store" / "turns" / "*.parquet")
        assert turns["text"].str.contains("answer 3").any() is kept


def sequences(*rows: tuple[int, int, str, int]) -> pl.DataFrame:
    """seq, step, sample_id, length."""
    frame = pl.DataFrame(rows, schema=["seq", "step", "sample_id", "length"], orient="row")
    return frame.with_columns(pl.col("seq").cast(pl.UInt32), n_model=pl.col("length"), n_obs=pl.lit(1, pl.UInt32))


def samples(folder: Path, *rows: tuple[str, int, str]) -> Completions:
    """trajectory_id, step, sample_id."""
    frame = pl.DataFrame(rows, schema=["trajectory_id", "step", "sample_id"], orient="row")
    frame.write_parquet(folder / "trajectories.parquet")
    return Completions(*(read_table(folder, table) for table in ("trajectories", "tool_calls", "turns")))


def test_one_generation_trained_on_twice_ties_both_times(tmp_path: Path) -> None:
    told = samples(tmp_path, ("t", 1, "a"), ("u", 1, "b"))
    assert told.tied(sequences((0, 1, "a", 9), (1, 2, "a", 9), (2, 1, "c", 7))).rows() == [(0, "t"), (1, "t")]


def test_samples_numbered_anew_each_step_tie_within_their_step(tmp_path: Path) -> None:
    told = samples(tmp_path, ("t", 1, "a"), ("u", 2, "a"), ("v", 1, "b"), ("w", 1, "b"))
    tied = told.tied(sequences((0, 1, "a", 9), (1, 2, "a", 8), (2, 3, "a", 7), (3, 1, "b", 5)))
    assert tied.rows() == [(0, "t"), (1, "u")]  # step 3 was not logged, and two samples are called b


def test_trajectory_ids_tie_directly(tmp_path: Path) -> None:
    told = samples(tmp_path, ("t", 1, "a"))
    frame = sequences((0, 1, "x", 9), (1, 5, "y", 9)).rename({"sample_id": "trajectory_id"})
    assert told.tied(frame.with_columns(trajectory_id=pl.Series(["t", "nobody"]))).rows() == [(0, "t")]


@pytest.mark.parametrize(("last", "n_obs", "known"), [("assistant", 2, 2), ("tool", 1, 1), ("assistant", 1, 0)])
def test_a_last_result_that_nothing_follows_is_no_observation(
    last: str, n_obs: int, known: int, tmp_path: Path
) -> None:
    calls = [("t", 0, 0, "one", True), ("t", 2, 1, "two", False), ("t", 2, 2, "three", True), ("t", 4, 3, "cut", None)]
    columns = ["trajectory_id", "turn_idx", "call_idx", "name", "ok"]
    pl.DataFrame(calls, schema=columns, orient="row").write_parquet(tmp_path / "tool_calls.parquet")
    roles = ["assistant", "tool", "assistant", "tool", last]
    pl.DataFrame({"trajectory_id": "t", "turn_idx": range(5), "role": roles}).write_parquet(tmp_path / "turns.parquet")
    told = samples(tmp_path, ("t", 1, "a"))
    frame = sequences((0, 1, "a", 9)).with_columns(n_obs=pl.lit(n_obs, pl.UInt32))
    found = told.observations(frame, told.tied(frame)).rows()
    assert found == [(0, 1, "one", False), (0, 2, "two + three", True)][:known]


def test_lists_that_are_absent_tell_nothing() -> None:
    frame = pl.DataFrame({"seq": [0], "n_obs": [2]}, schema={"seq": pl.UInt32, "n_obs": pl.UInt32})
    assert recorded_observations(frame).is_empty()
