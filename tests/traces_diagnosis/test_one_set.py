"""One set judged alone: what changed in it, what could have been seen, what is bad throughout, and what it cost."""

import json
import random
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from slow_cases import first_fast
from trace_stories import Step, ask, call, end, found, judge, make, say

from benchmarks import one_set
from ptt import api
from ptt.diagnostics.model import Severity, Status
from ptt.reports.traces.answers import cost_line, steady

MIDDLE = {rate: levels[1] for rate, levels in one_set.SIZES.items()}


@pytest.mark.parametrize("rate", first_fast(MIDDLE))
def test_what_gets_worse_half_way_is_found_in_lines_that_are_shuffled(rate: str) -> None:
    diagnosis = one_set.judge(2, replace(one_set.Rates(), **{rate: MIDDLE[rate]}))
    assert one_set.is_found(diagnosis, rate)
    assert diagnosis.verdict.status is not Status.HEALTHY
    dated = [finding.onset_step for finding in diagnosis.findings if finding.id == one_set.CHECKS[rate][0]]
    assert dated[0] is not None
    assert abs(dated[0] - 121) <= 30


def test_where_nothing_was_found_it_is_said_what_would_have_been() -> None:
    diagnosis = one_set.judge(0, one_set.Rates())
    assert diagnosis.verdict.status is Status.HEALTHY
    assert "no fall of success was found, and one to " in diagnosis.verdict.headline
    rows = {row["rate"]: row for row in diagnosis.rows("changes")}
    assert {"success", "tool_failures", "tool:search", "truncated", "loops", "n_turns", "cost_usd"} <= rows.keys()
    assert all(row["early"] is None and row["onset"] is None for row in rows.values())
    assert 0.2 <= rows["success"]["value"] - rows["success"]["seen_at"] <= 0.4
    assert 0.1 <= rows["truncated"]["seen_at"] - rows["truncated"]["value"] <= 0.35
    assert "success to" in steady(diagnosis)


def test_of_more_episodes_a_smaller_change_would_have_been_found(tmp_path: Path) -> None:
    def attempt(number: int) -> list[Step]:
        draw = random.Random(number)
        return [*ask(f"Task {number}"), *call("sum", f"it is {draw.random()}"), *end(success=draw.random() < 0.7)]

    seen = []
    for episodes in (60, 240):
        rows = {row["rate"]: row for row in judge(tmp_path, make(episodes, attempt)).rows("changes")}
        seen.append(rows["success"]["value"] - rows["success"]["seen_at"])
    assert seen[1] < 0.7 * seen[0]


def test_costs_are_added_up_and_bounded(tmp_path: Path) -> None:
    rows = []
    for number in range(40):
        calls = [
            {"id": f"c{at}", "type": "function", "function": {"name": name, "arguments": json.dumps({"n": number})}}
            for at, name in enumerate(("search", "search", "book"))
        ]
        messages = [{"role": "user", "content": f"Task {number}"}]
        for made in calls:
            messages.append({"role": "assistant", "content": None, "tool_calls": [made]})  # type: ignore[dict-item]
            messages.append({"role": "tool", "tool_call_id": made["id"], "content": f"row {number}"})  # type: ignore[dict-item]
        messages.append({"role": "assistant", "content": "done"})
        row = {"task_id": f"t{number}", "success": number % 4 > 0, "messages": messages, "prompt_tokens": 1000}
        rows.append(row | ({"cost_usd": 0.1 + 0.01 * (number % 3)} if number < 30 else {}))
    path = tmp_path / "agents.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    diagnosis = api.traces(path)
    cost = {(row["part"], row["name"]): row for row in diagnosis.rows("cost")}
    whole, mean = cost["all", ""], cost["episode", ""]
    assert whole["cost_usd"] == pytest.approx(3.3)
    assert whole["tokens_in"] == 40_000
    assert whole["cost_usd"] < whole["low"] < 4 / 3 * 3.3 < whole["high"]  # ten episodes do not say what they cost
    assert mean["cost_usd"] == pytest.approx(0.11)
    assert mean["low"] < 0.11 < mean["high"]
    assert cost["tool", "search"]["cost_usd"] == pytest.approx(3.3 / 2)  # two of four turns
    assert cost["tool", "book"]["cost_usd"] == pytest.approx(3.3 / 4)
    told = cost_line(diagnosis)
    assert told.startswith("$3.3 in all (recorded in 30 of 40 episodes; all cost $")
    assert "most for search: 50%" in told
    tools = {row["name"]: row["cost_usd"] for row in diagnosis.rows("tools")}
    assert tools["search"] == pytest.approx(3.3 / 2)


def test_a_tool_of_few_calls_that_fails_in_more_than_half_is_found_without_an_onset(tmp_path: Path) -> None:
    def attempt(number: int) -> list[Step]:
        draw = random.Random(number)
        steps = [*ask(f"Task {number}"), *call("search", f"row {draw.random()}", key=number)]
        if number % 6 == 0:
            failed = number % 12 == 0 or number % 10 == 0
            steps += call("book", f"seat {number}", error="504" if failed else None, key=number)
        return [*steps, *say(f"It is {number}"), *end(success=draw.random() < 0.42)]

    diagnosis = judge(tmp_path, make(120, attempt))
    (finding,) = found(diagnosis, "tool-failures")
    assert finding.slice == "tool:book"
    assert finding.severity.at_least(Severity.MEDIUM)
    assert finding.onset_step is None
    assert finding.observed is not None
    assert finding.observed > 0.5


def test_half_of_the_failures_claim_success(tmp_path: Path) -> None:
    def attempt(number: int) -> list[Step]:
        draw = random.Random(number)
        success = draw.random() < 0.75
        claims = draw.random() < (0.9 if success else 0.65)
        text = "I have successfully completed the task." if claims else "I am sorry, I could not find it."
        return [*ask(f"Task {number}"), *call("sum", f"it is {draw.random()}"), *say(text), *end(success=success)]

    diagnosis = judge(tmp_path, make(160, attempt))
    (finding,) = found(diagnosis, "pseudo-success")
    assert finding.severity is Severity.MEDIUM
    assert "of the failing episodes claim success" in finding.claim


def test_without_a_label_success_is_not_judged_and_it_is_said_how_it_would_be(tmp_path: Path) -> None:
    def attempt(number: int, labelled: int = 0) -> list[Step]:
        steps = [*ask(f"Task {number}"), *call("sum", f"it is {number}"), *say(f"so {number}")]
        return [*steps, *end(success=number % 3 > 0 if number < labelled else None)]

    diagnosis = judge(tmp_path, make(60, attempt))
    assert diagnosis.verdict.status is Status.CANNOT_SAY
    assert "not judged for success" in diagnosis.verdict.headline
    assert diagnosis.verdict.next[0].startswith("label episodes")
    few = judge(tmp_path, make(60, lambda at: attempt(at, labelled=20)))
    assert few.verdict.status is Status.CANNOT_SAY
    assert "20 of 60 episodes are labelled" in few.verdict.headline
    assert few.verdict.next[0].startswith("label episodes")


def test_a_share_of_failures_is_the_same_wherever_it_stands(tmp_path: Path) -> None:
    lines = []
    for number in range(60):
        broken = number % 8 == 0
        made = {"name": "bash", "arguments": '{"cmd": "ls' if broken else json.dumps({"cmd": f"ls {number}"})}
        result = {"role": "tool", "tool_call_id": "c", "content": "Error: invalid JSON" if broken else f"row {number}"}
        messages = [
            {"role": "user", "content": f"Task {number}"},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": made}]},
            result | {"is_error": broken},
            {"role": "assistant", "content": f"done {number}"},
        ]
        lines.append(json.dumps({"task_id": f"t{number}", "success": number % 3 > 0, "messages": messages}))
    path = tmp_path / "agents.jsonl"
    path.write_text("\n".join(lines) + "\n")
    diagnosis = api.traces(path)
    (row,) = diagnosis.rows("tools")
    share = diagnosis.measured["tool_failure_rate"]
    assert (row["failures"], row["known"]) == (share.hits, share.trials) == (8, 60)
    (clean,) = [item for item in diagnosis.healthy if item.id == "tool-failures"]
    assert clean.reason.startswith("13.3% of 60 tool calls with a known outcome fail, 8 of them as malformed calls")


def test_a_failure_before_the_parting_turn_is_named_as_what_it_may_follow_from(tmp_path: Path) -> None:
    def attempt(number: int) -> list[Step]:
        draw = random.Random(number)
        bad = draw.random() < 0.5
        seen = bad and draw.random() < 0.9
        steps = ask(f"Task {number // 8}")
        steps += call("track", f"seen {number // 8}", error="504: timed out" if seen else None, key=number // 8)
        steps += call("read", f"page {number // 8}", key=number // 8)
        steps += call("give_up" if bad else "book", "ok", key=number // 8)
        return [*steps, *say("done"), *end(success=draw.random() < (0.05 if bad else 0.95))]

    diagnosis = judge(tmp_path, make(240, attempt))
    whys = diagnosis.tables["partings"].filter(pl.col("turn") == 2)["why"].to_list()
    assert whys
    assert all("a call of track fails in" in why and "from turn 1 on" in why for why in whys)
