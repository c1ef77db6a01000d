"""Change over the order of the episodes: success that falls, episodes that grow, and what is no change at all."""

import math
import random
from pathlib import Path

import pytest
from trace_stories import Step, ask, call, end, found, judge, make, say

from ptt.diagnostics.model import Severity


def attempt(number: int, *, task: int, success: float, turns: int = 3, seed: int = 0) -> list[Step]:
    draw = random.Random(1000 * seed + number)
    steps = ask(f"Task {task}: add the numbers")
    for _ in range(turns):
        steps += [*call("sum", f"it is {draw.random()}", value=draw.random()), *say(f"so {draw.random()}")]
    return [*steps, *end(success=draw.random() < success)]


def test_success_that_falls_is_found_with_its_place(tmp_path: Path) -> None:
    episodes = make(240, lambda at: attempt(at, task=at, success=0.9 if at < 140 else 0.3))
    (finding,) = found(judge(tmp_path, episodes), "success")
    assert finding.severity is Severity.HIGH
    assert finding.onset_step is not None
    assert abs(finding.onset_step - 141) <= 12


def test_success_that_differs_by_task_alone_does_not_fall(tmp_path: Path) -> None:
    episodes = make(240, lambda at: attempt(at, task=at // 8, success=0.9 if at < 120 else 0.3))
    findings = found(judge(tmp_path, episodes, timed=False), "success")
    assert all(not finding.severity.at_least(Severity.MEDIUM) for finding in findings)


def test_tasks_that_come_early_and_late_show_the_fall_whatever_the_order_of_files(tmp_path: Path) -> None:
    episodes = make(240, lambda at: attempt(at, task=at % 20, success=0.9 if at < 140 else 0.3))
    (finding,) = found(judge(tmp_path, episodes, timed=False), "success")
    assert finding.severity.at_least(Severity.MEDIUM)
    assert "on the same tasks" in finding.claim


def test_episodes_that_grow_are_found(tmp_path: Path) -> None:
    episodes = make(120, lambda at: attempt(at, task=at, success=0.8 if at < 60 else 0.4, turns=3 if at < 60 else 12))
    (finding,) = found(judge(tmp_path, episodes), "longer-episodes")
    assert finding.severity is Severity.MEDIUM
    assert finding.onset_step is not None
    assert abs(finding.onset_step - 61) <= 3


def test_a_slow_rise_is_dated_near_its_foot(tmp_path: Path) -> None:
    def failing(number: int) -> list[Step]:
        draw = random.Random(number)
        rate = 0.02 + 0.68 * max(0.0, number - 100) / 200
        steps = ask(f"Task {number}")
        for _ in range(6):
            broken = draw.random() < rate
            steps += call("sum", f"it is {draw.random()}", error="down" if broken else None, value=draw.random())
        return [*steps, *say(f"so {draw.random()}"), *end(success=True)]

    (finding,) = found(judge(tmp_path, make(300, failing)), "tool-failures")
    assert finding.onset_step is not None
    assert finding.onset_interval is not None
    assert 60 <= finding.onset_step <= 170
    assert finding.observed is not None
    assert finding.observed >= 0.5


def test_no_success_at_all_is_said(tmp_path: Path) -> None:
    (finding,) = found(judge(tmp_path, make(100, lambda at: attempt(at, task=at, success=0.0))), "success")
    assert finding.claim.startswith("0 of 100")


def test_little_success_is_of_medium_severity_at_most(tmp_path: Path) -> None:
    diagnosis = judge(tmp_path, make(200, lambda at: attempt(at, task=at, success=0.05)))
    (finding,) = found(diagnosis, "success")
    assert finding.severity is Severity.MEDIUM
    assert "the tasks may be hard" in diagnosis.verdict.headline


def healthy(seed: int) -> list[list[Step]]:
    """Return a healthy set: tasks of many difficulties, tools that fail now and then, episodes of many lengths."""
    draw = random.Random(seed)
    count, attempts = draw.choice([40, 80, 160, 320]), draw.choice([1, 1, 4, 8])
    rates = {tool: draw.choice([0.0, 0.03, 0.08, 0.15]) for tool in ("search", "read", "book")}
    grouped = draw.random() < 0.5
    ease = [draw.betavariate(2, 2) for _ in range(count)]
    episodes = []
    for number in range(count):
        task = number // attempts if grouped else number % max(1, count // attempts)
        steps = ask(f"Task {task}: find the record")
        clumsy = 2.0 if draw.random() < 0.2 else 0.7  # failures come in clusters
        for _ in range(1 + int(draw.gammavariate(2, 2))):
            tool = draw.choice(sorted(rates))
            failed = draw.random() < rates[tool] * clumsy
            steps += call(tool, f"row {draw.random()}", error="timed out" if failed else None, key=draw.random())
        steps += [*say(f"It is {draw.random()}"), *end(success=draw.random() < ease[task], reward=draw.random())]
        episodes.append(steps)
    return episodes


@pytest.mark.slow
def test_healthy_sets_are_hardly_ever_accused(tmp_path: Path) -> None:
    accused = []
    for seed in range(200):
        diagnosis = judge(tmp_path, healthy(seed), timed=seed % 2 == 0)
        accused += [
            f"{seed}: {finding.id}: {finding.claim}"
            for finding in diagnosis.findings
            if finding.severity.at_least(Severity.LOW)
        ]
    assert len(accused) <= 6, accused


@pytest.mark.parametrize(("lost", "severity"), [(12, Severity.MEDIUM), (3, Severity.LOW), (0, None)])
def test_a_reward_that_is_no_number_is_told(tmp_path: Path, lost: int, severity: Severity | None) -> None:
    episodes = make(12, lambda at: [*ask("Go."), *say("1"), *end(success=True, reward=math.nan if at < lost else 0.5)])
    told = [(one.severity, one.claim) for one in found(judge(tmp_path, episodes), "reward-fell")]
    assert told == ([] if severity is None else [(severity, f"The reward is NaN or infinite in {lost} of 12 episodes")])
