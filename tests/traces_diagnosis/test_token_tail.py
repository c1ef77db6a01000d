"""Tokens beside traces: which tool, turn or class of error holds their tail, and pairs of the prompts where it lies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from builders import sampled_logps_of, write_recorder_run
from trace_stories import ask, call, end, found, judge, make, not_judged, say
from typer.testing import CliRunner

from ptt import api
from ptt.cli.app import app
from ptt.diagnostics.errors import InputError
from ptt.diagnostics.model import Severity
from ptt.diagnostics.traces.exports.options import ExportKind, ExportOptions, ToolOutput

STEPS, EACH = 10, 12
HEAD, GAP, AFTER = 20, 6, 10
COUNT = STEPS * EACH
TIMED_OUT = "{'error': 'the index timed out'}"
PAIRS = (ExportKind.PAIRS,)


def fails(number: int) -> bool:
    return number % 6 == 0


def write_run(folder: Path, *, height: float, ids: bool = True, hit: Any = fails) -> Path:
    """Write episodes with a call of `search` and one of `add`, which times out in every sixth; |r| is high after `hit`.

    Four attempts at a prompt, of which the first fails.
    """
    generator = np.random.default_rng(3)
    rows, samples = [], []
    for number in range(COUNT):
        mask = [True] * HEAD + ([False] * GAP + [True] * AFTER) * 2
        r = generator.normal(size=len(mask)) * 0.05
        if hit(number):
            r[-AFTER + 2 : -AFTER + 6] = height
        policy, ref = sampled_logps_of(r, generator)
        step = 1 + number // EACH
        names = {"step": step, "sample_id": f"s{number}", "group_id": f"g{number // 4}"}
        rows.append({**names, "seq": number, "model_mask": mask, "policy_logp": policy, "ref_logp": ref})
        samples.append((step, number, _completion(number)))
    run = write_recorder_run(folder, pl.DataFrame(rows))
    (run / "completions").mkdir()
    for step in range(1, STEPS + 1):
        logged = [
            {
                "step": step,
                "prompt": [_message("user", f"Question {number // 4}?")],
                "completion": completion,
                "right": float(number % 4 > 0),
                **({"sample_id": f"s{number}"} if ids else {}),
                "advantage": 0.0,
            }
            for at, number, completion in samples
            if at == step
        ]
        pl.DataFrame(logged).write_parquet(run / "completions" / f"completions_{step:05d}.parquet")
    return run


def _message(role: str, content: str, tool: str | None = None) -> dict[str, Any]:
    calls = None if tool is None else [{"type": "function", "function": {"name": tool, "arguments": {"of": "x"}}}]
    return {"role": role, "content": content, "tool_calls": calls}


def _completion(number: int) -> list[dict[str, Any]]:
    return [
        _message("assistant", "", "search"),
        _message("tool", "two rows"),
        _message("assistant", "", "add"),
        _message("tool", TIMED_OUT if fails(number) else "7"),
        _message("assistant", f"It is {number}."),
    ]


def test_the_class_of_error_that_holds_the_tail_is_named_and_counted(tmp_path: Path) -> None:
    diagnosis = api.traces(write_run(tmp_path / "run", height=4.0))
    finding = found(diagnosis, "token-tail")[0]
    assert (finding.severity, finding.slice) == (Severity.MEDIUM, "error_class:timeout")
    rows = {(row["kind"], row["name"]): row for row in diagnosis.tables["token_tail"].iter_rows(named=True)}
    assert set(rows) == {
        *(("tool", name) for name in ("search", "add")),
        *(("turn", name) for name in "123"),
        *(("error class", name) for name in ("timeout", "no error")),
    }
    failed = COUNT // 6
    timeout = rows["error class", "timeout"]
    assert (timeout["tokens"], timeout["tail_share"]) == (failed * AFTER, 1.0)
    assert timeout["token_share"] == pytest.approx(failed / (2 * COUNT))
    assert timeout["lift"] == pytest.approx(2 * COUNT / failed)
    assert timeout["low"] < timeout["lift"] <= timeout["high"] * (1 + 1e-12)
    assert timeout["p99"] == pytest.approx(4.0, rel=0.3)  # from coarse bins
    assert (rows["turn", "1"]["tokens"], rows["turn", "1"]["tail_share"]) == (COUNT * HEAD, 0.0)
    assert rows["turn", "3"]["token_share"] == pytest.approx(AFTER / (HEAD + 2 * AFTER))
    assert rows["tool", "search"]["p99"] is None


def test_a_tail_that_every_episode_has_is_of_no_error(tmp_path: Path) -> None:
    diagnosis = api.traces(write_run(tmp_path / "run", height=4.0, hit=lambda number: number % 5 == 0))
    assert {finding.slice for finding in found(diagnosis, "token-tail")} == {"turn:3"}


def test_a_tail_of_a_harmless_level_is_no_finding(tmp_path: Path) -> None:
    diagnosis = api.traces(write_run(tmp_path / "run", height=0.6))
    assert not found(diagnosis, "token-tail")
    assert "token-tail" in {item.id for item in diagnosis.healthy}


def test_tokens_that_name_no_episode_are_said_with_the_remedy(tmp_path: Path) -> None:
    diagnosis = api.traces(write_run(tmp_path / "run", height=4.0, ids=False))
    answer = next(item for item in diagnosis.not_judged if item.id == "token-tail")
    assert answer.applies
    assert f"none of the {COUNT} recorded sequences" in answer.reason
    assert "log_completions=True" in answer.enable
    assert "token_tail" not in diagnosis.tables


def test_traces_without_tokens_are_not_asked(tmp_path: Path) -> None:
    diagnosis = judge(tmp_path, make(12, lambda at: [*ask("?"), *call("search", of=at), *say("x"), *end(success=True)]))
    assert "token-tail" in not_judged(diagnosis)
    assert not next(item for item in diagnosis.not_judged if item.id == "token-tail").applies


def test_pairs_are_made_of_the_prompts_where_the_tail_lies(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", height=4.0)
    api.traces(run, out=tmp_path / "out", keep_messages=True)
    whole = ExportOptions(kinds=PAIRS, tool_output=ToolOutput.WHOLE)
    every = api.export_traces(tmp_path / "out", tmp_path / "every", whole)
    report = api.export_traces(tmp_path / "out", tmp_path / "tail", replace(whole, from_tail=True))
    failed = COUNT // 6
    assert report.tail_episodes == failed // 10
    assert 0 < report.cards[0].rows < every.cards[0].rows
    rows = pl.read_parquet(tmp_path / "tail" / "pairs.parquet")
    assert rows["tail_share"].max() == pytest.approx(1 / failed)
    assert "tail_share" not in pl.read_parquet(tmp_path / "every" / "pairs.parquet").columns


def test_pairs_of_the_tail_need_tokens(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", height=4.0, ids=False)
    api.traces(run, out=tmp_path / "out", keep_messages=True)
    with pytest.raises(InputError, match="no tokens"):
        api.export_traces(tmp_path / "out", tmp_path / "tail", ExportOptions(kinds=PAIRS, from_tail=True))


def test_terminal_and_report_show_where_the_tail_sits(tmp_path: Path) -> None:
    run, out = write_run(tmp_path / "run", height=4.0), tmp_path / "out"
    shown = CliRunner().invoke(app, ["traces", str(run), "-o", str(out), "--export", "pairs", "--from-tail"])
    assert "Tail        error class timeout: 100% of the tail with 8.33% of the tokens" in shown.stdout
    assert "Where the tail sits" in (out / "report.html").read_text()
    assert (out / "exports" / "pairs.parquet").is_file()
