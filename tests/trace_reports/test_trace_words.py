"""What reports of traces may say: no trend that was not found, no error text as a file, numbers written one way."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from samples_coding_agents import ATIF
from trace_diagnoses import TOOL_FAILURE, failing_traces, healthy_traces
from trace_stories import ask, call, end, judge, make, say, write_episodes
from typer.testing import CliRunner, Result

from ptt import api
from ptt.cli.app import app
from ptt.diagnostics.traces.compare import BETTER, HIGHER, TraceSide, compare_traces
from ptt.diagnostics.traces.diagnose import grouped
from ptt.diagnostics.traces.model import as_run
from ptt.reports.run.view import places
from ptt.reports.text.numbers import percent
from ptt.reports.traces.figures import OVER_ORDER, TOOLS, TURNS, order_words
from ptt.reports.traces.html import chapters, facts

Invoke = Callable[..., Result]


def test_a_title_tells_of_a_change_only_where_one_is_found() -> None:
    healthy, failing = healthy_traces(), failing_traces()
    assert order_words(healthy, "success") == "success 63.3% of all (59.3% to 67.3%)"
    assert OVER_ORDER.takeaway(healthy).startswith("Success 63.3% of all (59.3% to 67.3%); failed tool calls ")
    of_all, of_tool = (order_words(failing, "tool_failures", one) for one in (None, TOOL_FAILURE))
    assert of_all == "failed tool calls 17.5% of all (14.5% to 20.5%)"
    assert of_tool == "failed tool calls of search_flights 2% before episode 352, 47% at the end"
    undated = tuple(replace(one, onset_step=None, onset_interval=None) for one in failing.findings)
    assert " of all " in order_words(replace(failing, findings=undated), "tool_failures")
    assert order_words(replace(healthy, measured={}), "success") == ""


def test_few_calls_that_fail_more_stand_beside_the_worst_tool() -> None:
    diagnosis = healthy_traces()
    tools = diagnosis.tables["tools"].with_columns(
        pl.when(pl.col("name") == "send_certificate").then(0.6).otherwise("failed").alias("failed")
    )
    title = TOOLS.takeaway(replace(diagnosis, tables={**diagnosis.tables, "tools": tools}))
    assert "fails most" not in title
    assert title.endswith("send_certificate: 60% of 12 calls failed, too few to judge by")


def test_an_error_text_is_no_file_and_a_column_no_curve() -> None:
    finding = replace(TOOL_FAILURE, evidence={"error_example": "Error: no balance", "metric": "tool_calls.ok"})
    told = places(finding, as_run(failing_traces()))
    assert "The column tool_calls.ok" in told
    assert not any("no balance" in place for place in told)


def test_labels_of_turns_have_room(tmp_path: Path) -> None:
    diagnosis = failing_traces()
    rows = [(f"{100 * n} to {100 * n + 99}", 20, 0.5, 0.4, 0.6) for n in range(1, 9)]
    wide = pl.DataFrame(rows, schema=["bucket", "episodes", "success", "low", "high"], orient="row")
    narrow, broad = (
        TURNS.panels(one)[0].width
        for one in (diagnosis, replace(diagnosis, tables={**diagnosis.tables, "turn_counts": wide}))
    )
    assert broad >= 8 * 8 * len("100-199") > narrow


def test_a_table_of_tools_says_of_how_many(tmp_path: Path) -> None:
    episodes = [[*ask(f"Task {n}"), *call(f"tool_{n}"), *say("Done."), *end(success=True)] for n in range(60)]
    (chapter,) = [each for each in chapters(judge(tmp_path, episodes)) if each.key == "tools"]
    assert chapter.tables[0].title == "The 50 tools called most, of 60, the worst first"


@pytest.mark.parametrize(
    ("costs", "fact", "each"),
    [
        ((0.5, 1.0), "$1.5, $0.75 an episode", "$0.75"),
        ((0.5, None), "$0.5 in 1 of 2 episodes, $0.5 an episode", "$0.5"),
        ((0.0, 0.0), "recorded as $0", "$0"),
        ((None, None), None, None),
    ],
)
def test_costs_are_shown_where_they_are_recorded(
    tmp_path: Path, costs: tuple[float | None, ...], fact: str | None, each: str | None
) -> None:
    for number, cost in enumerate(costs):
        spent = {} if cost is None else {"total_cost_usd": cost}
        steps = [{key: value for key, value in step.items() if key != "metrics"} for step in ATIF["steps"]]
        trajectory = ATIF | {"session_id": f"a-{number}", "steps": steps, "final_metrics": spent}
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "trajectory.json").write_text(json.dumps(trajectory))
    diagnosis = api.traces(tmp_path)
    assert facts(diagnosis).get("Cost") == fact
    parts = {chapter.key: chapter for chapter in chapters(diagnosis)}
    (by_tool,) = [table for table in parts["groups"].tables if table.title == "By tool"]
    assert dict(zip(by_tool.head, by_tool.rows[0], strict=True)).get("Cost an episode") == each
    assert "cost" not in parts["tools"].summary


def test_repeated_calls_are_shown_as_a_share_of_the_calls(tmp_path: Path) -> None:
    episodes = make(
        10,
        lambda n: [*ask(f"Task {n}"), *call("look", at=1) * 4, *call("look", at=n + 2), *say("Done."),
                   *end(success=True)],
    )  # fmt: skip
    (table,) = [each.tables[0] for each in chapters(judge(tmp_path, episodes)) if each.key == "tools"]
    assert dict(zip(table.head, table.rows[0], strict=True))["Repeated"] == "60%"


def test_turns_are_assistant_turns_everywhere(tmp_path: Path) -> None:
    diagnosis = judge(tmp_path, make(6, lambda n: [*ask(f"Task {n}"), *call("look", at=n), *say("Done."),
                                                   *end(success=True)]))  # fmt: skip
    assert facts(diagnosis)["Assistant turns"] == "12"
    assert diagnosis.traces.assistant_turns == diagnosis.measured["void_rate"].trials == 12


def test_numbers_are_written_one_way(tmp_path: Path) -> None:
    assert percent(2.8e-17) == "0%"
    assert percent(2.8e-10) == "2.8 × 10⁻⁸%".replace(" ", "\u202f")
    assert grouped("1,344 of 12,000,000 calls; f(1,200) and 1,2") == (
        "1\u202f344 of 12\u202f000\u202f000 calls; f(1\u202f200) and 1,2"
    )
    diagnosis = judge(tmp_path, make(1200, lambda n: [*ask(f"Task {n}"), *say("Done."), *end(success=n % 2 == 0)]))
    told = [
        diagnosis.verdict.headline,
        *(one.reason for one in diagnosis.healthy),
        *(one.claim for one in diagnosis.findings),
    ]
    assert any("1\u202f200" in text for text in told)
    assert not any("1,200" in text or "1200" in text for text in told)


def test_a_higher_reward_is_not_better_where_success_fell(tmp_path: Path) -> None:
    def made(folder: str, solved: int, pay: float) -> TraceSide:
        (tmp_path / folder).mkdir()
        found = make(
            40,
            lambda n: [*ask(f"Task {n}"), *say("Done."), *end(success=n % 10 < solved, reward=pay + n % 3 / 10)],
        )
        invoked = CliRunner().invoke(
            app, ["traces", str(write_episodes(tmp_path / folder, found)), "-o", str(tmp_path / f"{folder}-out")]
        )
        assert invoked.exit_code == 0
        return kept(tmp_path / f"{folder}-out")

    before, worse, better = made("a", 8, 0.2), made("b", 1, 0.9), made("c", 10, 0.9)
    hacked = compare_traces(before, worse)
    assert {item.name: item.verdict for item in hacked.means}["reward"] == HIGHER
    assert any("reward rose while success" in note for note in hacked.notes)
    assert {item.name: item.verdict for item in compare_traces(before, better).means}["reward"] == BETTER


def kept(folder: Path) -> TraceSide:
    from ptt.run_location import kept_side

    side = kept_side(folder)
    assert side is not None
    return side


def test_paths_without_episodes_are_named(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "good").mkdir()
    write_episodes(tmp_path / "good", make(6, lambda n: [*ask(f"Task {n}"), *say("Done."), *end(success=True)]))
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "odd.json").write_text('{"zork": [1, 2]}')
    alone = invoke("traces", "empty.jsonl", "-o", "e")
    assert alone.exit_code == 5
    assert "the file is empty" in alone.output
    told = " ".join(invoke("traces", "good", "empty.jsonl", "odd.json", "-o", "t").output.split())
    assert "No episode was read from empty.jsonl: it is empty; odd.json: its format is not recognised" in told
    assert "No episode was read" not in invoke("traces", "good", "-o", "u").output
