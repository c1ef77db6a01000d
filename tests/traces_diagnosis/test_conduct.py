"""Malformed calls, circles, void turns and cut-off episodes: found where they are, and nowhere else."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from trace_stories import Step, ask, call, end, found, judge, make, not_judged, say

from ptt import api
from ptt.diagnostics.model import Severity, Status


def unread(number: int, share: float, *, read: int = 1) -> list[Step]:
    """Return an episode with a call that could not be parsed, in this share of them, beside others that could be."""
    steps = ask(f"Task {number}")
    for at in range(read):
        steps += call("search", f"row {number}", error="down" if (number + at) % 10 < 7 else None, key=number, at=at)
    if random.Random(number).random() < share:
        steps.append({"type": "tool_parse_error", "content": '{"name": "search", "argum'})
    return [*steps, *say(f"done {number}"), *end(success=number % 10 == 0)]


def test_parse_errors_in_every_episode_are_the_headline(tmp_path: Path) -> None:
    diagnosis = judge(tmp_path, make(60, lambda at: unread(at, 1.0, read=2)))
    assert diagnosis.verdict.status is Status.UNSTABLE
    assert diagnosis.verdict.headline.startswith("100% of the episodes contain a call that could not be parsed")
    (finding,) = found(diagnosis, "malformed-calls")
    assert finding.severity is Severity.CRITICAL
    assert diagnosis.measured["malformed_rate"].value == pytest.approx(1 / 3)
    (failures,) = found(diagnosis, "tool-failures")
    assert failures.observed == pytest.approx(0.7)


def test_ten_tasks_tried_often_are_enough_to_say_that_nothing_works(tmp_path: Path) -> None:
    episodes = [
        [*ask(f"Task {at % 10}"), *call("search", "", error="down", key=at), *end(success=False)] for at in range(110)
    ]
    diagnosis = judge(tmp_path, episodes)
    assert diagnosis.verdict.status is Status.UNSTABLE
    assert diagnosis.findings[0].id == "tool-failures"


def test_calls_that_can_never_be_parsed_are_the_headline(tmp_path: Path) -> None:
    diagnosis = judge(tmp_path, make(60, lambda at: unread(at, 1.0, read=0)))
    assert diagnosis.verdict.status is Status.UNSTABLE
    assert diagnosis.findings[0].id == "malformed-calls"


def test_parse_errors_in_every_episode_lead_before_other_failures(tmp_path: Path) -> None:
    diagnosis = judge(tmp_path, make(60, lambda at: unread(at, 1.0, read=8)))
    assert diagnosis.findings[0].id == "malformed-calls"
    assert diagnosis.findings[0].severity is Severity.HIGH
    assert {finding.id for finding in diagnosis.findings} >= {"malformed-calls", "tool-failures"}
    assert diagnosis.verdict.headline.startswith("100% of the episodes contain a call that could not be parsed")


def test_a_parse_error_now_and_then_is_none(tmp_path: Path) -> None:
    assert not found(judge(tmp_path, make(100, lambda at: unread(at, 0.03, read=3))), "malformed-calls")


def looping(number: int, *, circle: int, rounds: int) -> list[Step]:
    steps = ask(f"Task {number}: reach the record")
    for _ in range(rounds):
        for at in range(circle):
            steps += call("open", f"page {at} of {number}", page=at)
    return [*steps, *say(f"gave up on {number}"), *end(success=False)]


@pytest.mark.parametrize("circle", [1, 2, 3, 4])
def test_circles_of_up_to_four_calls_are_found(tmp_path: Path, circle: int) -> None:
    diagnosis = judge(tmp_path, make(40, lambda at: looping(at, circle=circle, rounds=3)))
    (finding,) = found(diagnosis, "loops")
    assert finding.severity.at_least(Severity.HIGH)
    assert diagnosis.measured["loop_rate"].value == 1.0


def test_twice_the_same_is_a_second_look(tmp_path: Path) -> None:
    diagnosis = judge(tmp_path, make(40, lambda at: looping(at, circle=1, rounds=2)))
    assert diagnosis.measured["loop_rate"].hits == 0


def test_random_choice_of_tools_is_no_circle(tmp_path: Path) -> None:
    def wanderer(number: int) -> list[Step]:
        draw = random.Random(number)
        steps = ask(f"Task {number}")
        for _ in range(12):
            steps += call(
                draw.choice(["search", "read", "list", "open"]), f"page {draw.random()}", key=draw.randint(0, 9)
            )
        return [*steps, *say(f"it is {draw.random()}"), *end(success=True)]

    assert judge(tmp_path, make(100, wanderer)).measured["loop_rate"].hits == 0


def test_polling_until_something_changes_is_no_circle(tmp_path: Path) -> None:
    def waiting(number: int) -> list[Step]:
        steps = ask(f"Task {number}")
        for at in range(8):
            steps += call("status", f"{10 * at} percent done", job=number)
        return [*steps, *say("ready"), *end(success=True)]

    assert judge(tmp_path, make(40, waiting)).measured["loop_rate"].hits == 0


def test_an_answer_that_a_tool_gives_to_anything_closes_no_circle(tmp_path: Path) -> None:
    def scrolling(number: int) -> list[Step]:
        steps = ask(f"Task {number}")
        for direction in ("down", "down", "down", "down", "up", "left"):
            steps += call("scroll", "scrolled", direction=direction)
        return [*steps, *say("found it"), *end(success=True)]

    assert not found(judge(tmp_path, make(40, scrolling)), "loops")


def test_the_same_failing_call_again_and_again_is_a_circle(tmp_path: Path) -> None:
    def stubborn(number: int) -> list[Step]:
        tries = [step for _ in range(4) for step in call("edit", "", error="no such line", line=number)]
        return [*ask(f"Task {number}"), *tries, *say("could not"), *end(success=False)]

    assert found(judge(tmp_path, make(40, stubborn)), "loops")


def chat(number: int, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"Task {number}"}, {"role": "assistant", "content": f"Answer {number}"}]
    return {"messages": messages, **fields}


def write_chats(folder: Path, rows: list[dict[str, Any]]) -> Path:
    path = folder / "chats.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_void_turns_are_found(tmp_path: Path) -> None:
    rows = [chat(number) for number in range(60)]
    for row in rows[::2]:
        row["messages"] += [{"role": "user", "content": "and?"}, {"role": "assistant", "content": ""}]
    diagnosis = api.traces(write_chats(tmp_path, rows))
    (finding,) = found(diagnosis, "void-turns")
    assert finding.severity.at_least(Severity.MEDIUM)
    assert diagnosis.measured["void_rate"].hits == 30


def test_what_no_file_tells_is_not_judged(tmp_path: Path) -> None:
    diagnosis = api.traces(write_chats(tmp_path, [chat(number) for number in range(60)]))
    assert {"success", "tool-failures", "truncated-episodes", "tool-latency"} <= not_judged(diagnosis)
    assert not diagnosis.findings
    assert diagnosis.verdict.status is Status.CANNOT_SAY
    assert all(item.enable for item in diagnosis.not_judged if item.applies)


def test_latencies_and_rewards_that_are_no_numbers_cost_no_check(tmp_path: Path) -> None:
    rows = [chat(number, reward=(float("inf"), 1e308, -1e308, 0.5)[number % 4]) for number in range(60)]
    diagnosis = api.traces(write_chats(tmp_path, rows))
    assert not diagnosis.crashes
