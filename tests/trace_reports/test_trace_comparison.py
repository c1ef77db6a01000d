"""Two sets of traces compared: what differs is found, what does not is not called better or worse."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console
from slow_cases import first_fast
from trace_diagnoses import failing_traces, healthy_traces
from trace_stories import Step, ask, call, end, judge, say, write_episodes
from typer.testing import CliRunner, Result

from ptt import api
from ptt.cli.app import app
from ptt.diagnostics.traces.compare import NONE, UNKNOWN, WORSE, TraceComparison, TraceSide, compare_traces
from ptt.reports.traces.comparison import compare_traces_json, headline, print_compared, render_compared
from ptt.run_location import kept_side

TASKS = 30
Invoke = Callable[..., Result]


def episodes(
    seed: int, *, success: float, failing: float = 0.05, tasks: int = TASKS, first: int = 0
) -> list[list[Step]]:
    """Return two episodes a task; how hard a task is, is the same in every set."""
    draws, made = random.Random(seed), []
    for task in range(first, first + tasks):
        ease = 0.8 if task % 2 else -0.3
        for _ in range(2):
            steps = ask(f"Task {task}: find the cheapest train.")
            for _ in range(3):
                steps += call("search", error="timed out" if draws.random() < failing else None, at=draws.random())
            solved = draws.random() < min(max(success + ease / 4, 0.0), 1.0)
            made.append([*steps, *say("Done."), *end(success=solved)])
    return made


def side(folder: Path, made: list[list[Step]]) -> TraceSide:
    folder.mkdir()
    diagnosis = api.traces(write_episodes(folder, made), out=folder / "out")
    return TraceSide(diagnosis=diagnosis, store=folder / "out" / "store")


def verdicts(compared: TraceComparison) -> dict[str, str]:
    return {item.name: item.verdict for item in (*compared.shares, *compared.means, *compared.tools)}


def test_sets_of_the_same_tasks_are_compared_task_by_task(tmp_path: Path) -> None:
    first = side(tmp_path / "a", episodes(1, success=0.8))
    second = side(tmp_path / "b", episodes(2, success=0.2, failing=0.6))
    compared = compare_traces(first, second)
    assert compared.paired
    assert compared.shared_tasks == TASKS
    found = {item.name: item for item in compared.shares}
    assert found["success_rate"].verdict == WORSE
    assert found["tool_failure_rate"].verdict == WORSE
    assert found["success_rate"].clusters == TASKS
    assert "Success worse" in headline(compared)


@pytest.mark.slow
def test_two_sets_of_one_agent_do_not_differ(tmp_path: Path) -> None:
    called = 0
    for seed in range(6):
        folder = tmp_path / str(seed)
        folder.mkdir()
        sides = (side(folder / name, episodes(10 * seed + at, success=0.5)) for at, name in enumerate("ab"))
        called += len(compare_traces(*sides).differing)
    assert called <= 1


def test_a_set_with_itself_is_the_same(tmp_path: Path) -> None:
    one = side(tmp_path / "a", episodes(1, success=0.5))
    compared = compare_traces(one, one)
    assert set(verdicts(compared).values()) <= {NONE, UNKNOWN}
    assert headline(compared).startswith("No difference beyond noise in")


def test_sets_of_other_tasks_are_compared_as_wholes_and_say_so(tmp_path: Path) -> None:
    first = side(tmp_path / "a", episodes(1, success=0.8))
    second = side(tmp_path / "b", episodes(2, success=0.1, first=TASKS))
    compared = compare_traces(first, second)
    assert not compared.paired
    assert verdicts(compared)["success_rate"] == WORSE
    assert any("share no task" in note for note in compared.notes)


def _chats(folder: Path, task: Callable[[int], str], prompt: Callable[[int], str]) -> TraceSide:
    """Return two attempts at each of a dozen tasks that a file names so, and whose prompts read so."""
    folder.mkdir()
    rows = [
        {
            "task_id": task(at // 2),
            "messages": [{"role": "user", "content": prompt(at // 2)}, {"role": "assistant", "content": f"{at}"}],
            "success": at % 3 == 0,
        }
        for at in range(24)
    ]
    path = folder / "chats.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return TraceSide(diagnosis=api.traces(path, out=folder / "out"), store=folder / "out" / "store")


@pytest.mark.parametrize(
    ("task", "prompts", "paired"),
    first_fast(
        [
            ("{}", ("Add {}.", "Add {}."), True),
            ("{}", ("Add {}.", "Halve {}."), False),
            ("task_{}", ("Add {}.", "Halve {}."), False),
            ("Example #{}", ("Add {}.", "Halve {}."), False),
            ("django-{}", ("Be brief. Mend {}.", "Be exact. Mend {}."), True),
        ],
        2,
    ),
)
def test_a_running_number_alone_makes_no_two_tasks_one(
    tmp_path: Path, task: str, prompts: tuple[str, str], paired: bool
) -> None:
    sides = [_chats(tmp_path / name, task.format, prompt.format) for name, prompt in zip("ab", prompts, strict=True)]
    compared = compare_traces(*sides)
    assert compared.paired is paired
    assert paired or "no prompt in common shows that the same numbers are the same tasks" in " ".join(compared.notes)


def test_tasks_that_flipped_are_listed_with_an_episode_of_each_set(tmp_path: Path) -> None:
    def made(solved: Callable[[int], bool]) -> list[list[Step]]:
        return [[*ask(f"Task {at // 3}"), *say(f"{at}"), *end(success=solved(at))] for at in range(24)]

    first = side(tmp_path / "a", made(lambda at: at // 3 < 4))
    second = side(tmp_path / "b", made(lambda at: at // 3 in (1, 2, 3, 6) or at == 0))
    compared = compare_traces(first, second)
    outcomes = [(flip.first, flip.second, flip.first_attempts) for flip in compared.flipped]
    assert outcomes == [(0, 1, 3), (1, pytest.approx(1 / 3), 3)]
    told = json.loads(compare_traces_json(compared, "0"))["flipped"]
    assert (told["to_success"], told["to_failure"], len(told["tasks"])) == (1, 1, 2)
    buffer = io.StringIO()
    print_compared(compared, Console(file=buffer, width=200), "compare.html")
    assert "Flipped     1 task that succeeded now fails; 1 task that failed now succeeds." in buffer.getvalue()
    assert "3 of 3 succeed to 1 of 3 succeed, " in buffer.getvalue()
    page = render_compared(compared).text
    assert "Tasks that flipped: 1 task that succeeded now fails; 1 task that failed now succeeds" in page
    for flip in compared.flipped:
        assert flip.first_episode in page.replace("<wbr>", "")
        assert flip.second_episode in page.replace("<wbr>", "")


def test_what_one_set_does_not_record_cannot_be_compared(tmp_path: Path) -> None:
    first = side(tmp_path / "a", episodes(1, success=0.8))
    unlabelled = [[*made[:-1], *end(success=None)] for made in episodes(1, success=0.8)]
    compared = compare_traces(first, side(tmp_path / "b", unlabelled))
    (item,) = [item for item in compared.shares if item.name == "success_rate"]
    assert item.verdict == UNKNOWN
    assert item.why == "the second set does not record it"


def test_tools_and_errors_are_named() -> None:
    healthy = healthy_traces()
    tools = healthy.tables["tools"].with_columns(pl.col("failed", "low") * 0.1, pl.col("high") * 0.12)
    renamed = tools.with_columns(pl.col("name").replace("calculate", "compute"))
    before = replace(healthy, tables={**healthy.tables, "tools": renamed})
    compared = compare_traces(TraceSide(diagnosis=before), TraceSide(diagnosis=failing_traces()))
    assert verdicts(compared)["tool:search_flights"] == WORSE
    assert verdicts(compared)["tool:send_certificate"] == UNKNOWN  # too few for an interval
    assert compared.only_first == ("compute",)
    assert compared.only_second == ("calculate",)
    page = render_compared(compared).text
    assert "Only agents calls calculate" in page
    assert render_compared(compared).text == page


def test_what_is_printed_names_what_differs_and_what_does_not() -> None:
    compared = compare_traces(TraceSide(diagnosis=healthy_traces()), TraceSide(diagnosis=failing_traces()))
    out = io.StringIO()
    print_compared(compared, Console(width=100, file=out), "compare.html")
    text = out.getvalue()
    assert text.startswith("Compared    agents against before: ")
    assert "Success worse, 63.3% to 51%" in text.replace("\n            ", " ")
    assert json.loads(compare_traces_json(compared, "0"))["shares"][0]["verdict"] == "worse"


def test_findings_json_keeps_what_a_comparison_needs(tmp_path: Path) -> None:
    made = tmp_path / "a"
    made.mkdir()
    runner = CliRunner()
    path = write_episodes(made, episodes(1, success=0.6, failing=0.3))
    assert runner.invoke(app, ["traces", str(path), "-o", str(tmp_path / "out")]).exit_code == 0
    of_store, of_findings = kept_side(tmp_path / "out"), kept_side(tmp_path / "out" / "findings.json")
    assert of_store is not None
    assert of_findings is not None
    assert of_findings.store is None
    assert of_findings.diagnosis.measured.keys() == of_store.diagnosis.measured.keys()
    for name, share in of_findings.diagnosis.measured.items():
        assert (share.hits, share.trials) == (of_store.diagnosis.measured[name].hits, share.trials)


def test_the_command_compares_with_files_a_folder_or_findings(invoke: Invoke, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 2)):
        (tmp_path / name).mkdir()
        write_episodes(tmp_path / name, episodes(seed, success=0.5, tasks=8))
    done = invoke("traces", "a", "--against", "b", "-o", "out")
    assert done.exit_code == 0, done.output
    assert "Compared    a against b" in done.output
    assert {"compare.json", "compare.html"} <= {path.name for path in Path("out").iterdir()}
    assert invoke("traces", "b", "-o", "kept").exit_code == 0
    for other in ("kept", "kept/findings.json"):
        assert (
            invoke("traces", "a", "--against", other, "-o", "out", "--json").stdout
            == Path("out/compare.json").read_text()
        )


def test_what_cannot_be_compared_is_said(invoke: Invoke, tmp_path: Path) -> None:
    write_episodes(tmp_path, episodes(1, success=0.5, tasks=5))
    assert invoke("traces", "agent.jsonl", "--against", "absent", "-o", "o").exit_code == 5
    assert invoke("traces", "agent.jsonl", "--against", "agent.jsonl", "--redact").exit_code == 2


def test_judging_is_the_same_with_and_without_a_store(tmp_path: Path) -> None:
    assert judge(tmp_path, episodes(1, success=0.5)).traces.tasks == api.traces(tmp_path / "agent.jsonl").traces.tasks
