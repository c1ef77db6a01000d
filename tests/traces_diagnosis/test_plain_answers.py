"""What the diagnosis says agrees with what it counted: no share without trials, no place that is none, no date."""

import json
import random
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from trace_stories import Step, ask, call, end, found, judge, make, say, write_episodes

from ptt import api
from ptt.diagnostics.model import Link, Severity, Status
from ptt.diagnostics.statistics.clustered_share import wilson
from ptt.diagnostics.traces.diagnose import link_causes, verdict_of
from ptt.diagnostics.traces.model import TraceDiagnosis, as_run
from ptt.reports.run.view import places
from ptt.reports.traces.terminal import print_traces


def printed(diagnosis: TraceDiagnosis) -> str:
    """Return what the terminal shows, on lines long enough for anything."""
    text = StringIO()
    print_traces(diagnosis, Console(file=text, width=1000), "report.html")
    return text.getvalue()


def plain(number: int, *, success: bool | None = True, error: str | None = None, turns: int = 1) -> list[Step]:
    """Return an episode of some calls that admits a failure."""
    steps = ask(f"Task {number}")
    for at in range(turns):
        steps += [*call("search", f"row {number} {at}", error=error, key=number, at=at), *say(f"Part {at} of {number}")]
    return [*steps, *say("Here is the record." if success else "I was unable to find it."), *end(success=success)]


@pytest.mark.parametrize("trials", [3, 25, 36, 53, 111, 1_000, 99_991])
def test_intervals_of_none_and_of_all_end_there(trials: int) -> None:
    assert wilson(0.0, trials)[0] == 0.0
    assert wilson(1.0, trials)[1] == 1.0


def test_success_of_one_in_ten_is_the_headline_and_may_be_for_hard_tasks(tmp_path: Path) -> None:
    diagnosis = judge(tmp_path, make(60, lambda at: plain(at, success=at % 10 == 0)))
    assert diagnosis.verdict.status is Status.SUSPECT
    assert diagnosis.verdict.first_broken_link is Link.EVALUATION
    assert diagnosis.verdict.headline.startswith("6 of 60 labelled episodes succeed")
    assert "tasks may be hard" in diagnosis.verdict.headline
    (finding,) = found(diagnosis, "success")
    assert finding.severity is Severity.MEDIUM


def test_success_that_grows_from_nothing_is_no_fault(tmp_path: Path) -> None:
    draw = random.Random(3)
    diagnosis = judge(tmp_path, make(400, lambda at: plain(at, success=at >= 340 and draw.random() < 0.5)))
    assert diagnosis.measured["success_rate"].hits <= 40
    assert not found(diagnosis, "success")


def test_a_quarter_of_malformed_calls_is_of_medium_severity(tmp_path: Path) -> None:
    def episode(number: int) -> list[Step]:
        steps = ask(f"Task {number}")
        for at in range(4):
            broken = (5 * number + at) % 19 < 5
            parse = {"type": "tool_parse_error", "content": "{bad", "error": "could not parse tool call"}
            steps += [parse] if broken else call("search", f"row {number} {at}", key=number, at=at)
        return [*steps, *say("Here it is."), *end(success=number % 3 > 0)]

    diagnosis = judge(tmp_path, make(60, episode))
    (finding,) = found(diagnosis, "malformed-calls")
    assert 0.24 < (finding.observed or 0.0) < 0.29
    assert finding.severity is Severity.MEDIUM
    assert diagnosis.verdict.first_broken_link is Link.ENVIRONMENT


def test_findings_lie_above_the_limit_that_they_are_held_against(tmp_path: Path) -> None:
    def episode(number: int) -> list[Step]:
        steps = ask(f"Task {number}")
        for at in range(4):
            steps += call("search", f"row {number} {at}", error="down" if (number + at) % 3 == 0 else None, key=at)
        return [*steps, *end(success=number % 2 == 0)]

    (finding,) = found(judge(tmp_path, make(80, episode)), "tool-failures")
    assert finding.severity is Severity.LOW
    assert finding.observed is not None
    assert finding.limit is not None
    assert finding.observed >= finding.limit


def test_what_is_found_is_not_called_healthy_too(tmp_path: Path) -> None:
    diagnosis = judge(tmp_path, make(60, lambda at: plain(at, error="down" if at % 3 == 0 else None)))
    noted = {finding.id for finding in diagnosis.findings if finding.severity.at_least(Severity.LOW)}
    assert noted == {"tool-failures"}
    assert not noted & {item.id for item in diagnosis.healthy}


def test_the_example_is_of_the_commonest_error_and_no_file(tmp_path: Path) -> None:
    def episode(number: int) -> list[Step]:
        odd = number % 4 == 0
        text = f"a balance too low in card_{number}" if odd else f"the sum differs: total {number}, paid {2 * number}"
        return [*ask(f"Task {number}"), *call("pay", "", error=text, key=number), *end(success=False)]

    diagnosis = judge(tmp_path, make(60, episode))
    (finding,) = found(diagnosis, "tool-failures")
    assert str(finding.evidence["error_example"]).startswith("the sum differs")
    assert not [place for place in places(finding, as_run(diagnosis)) if place.startswith("File")]


def test_changes_over_the_order_of_joined_files_are_notes(tmp_path: Path) -> None:
    for name, turns in (("a", 2), ("b", 12)):
        folder = tmp_path / "set" / name
        folder.mkdir(parents=True)
        write_episodes(
            folder,
            [[{**step} for step in plain(100 * turns + at, turns=turns + at % 3)] for at in range(60)],
            timed=False,
        ).rename(folder / f"{name}.jsonl")
    diagnosis = api.traces(tmp_path / "set")
    dated = [finding for finding in diagnosis.findings if finding.onset_step is not None]
    assert dated
    assert {finding.severity for finding in dated} == {Severity.INFO}
    assert all("order of the files, not of time" in finding.claim for finding in dated)
    assert "since episode" not in diagnosis.verdict.headline


def test_what_changes_along_a_file_that_is_sorted_by_length_is_no_change_in_time(tmp_path: Path) -> None:
    lengths = [1] * 60 + [2] * 40 + [3] * 30 + [4] * 20 + [5] * 10
    episodes = [plain(at, turns=turns, success=at % 8 > turns) for at, turns in enumerate(lengths)]
    diagnosis = api.traces(write_episodes(tmp_path, episodes, timed=False))
    dated = [finding for finding in diagnosis.findings if finding.onset_step is not None]
    assert dated
    assert {finding.severity for finding in dated} == {Severity.INFO}
    assert "since episode" not in diagnosis.verdict.headline


def test_a_cause_that_is_dated_later_than_its_effects_says_so(tmp_path: Path) -> None:
    diagnosis = judge(tmp_path, make(300, lambda at: plain(at, error="down" if at >= 150 else None, success=at < 150)))
    by_id = {finding.id: finding for finding in diagnosis.findings}
    cause, effect = by_id["tool-failures"], by_id["success"]
    late = replace(cause, onset_step=170, onset_interval=(120, 200), consequence_of=None)
    early = replace(effect, onset_step=150, onset_interval=(140, 160), consequence_of=None)
    linked = link_causes([late, early])
    assert linked[1].consequence_of == "tool-failures"
    verdict = verdict_of(diagnosis.traces, linked, [], [])
    assert "dated earlier, from episode 150 on" in verdict.headline
    assert verdict.first_broken_link is Link.ENVIRONMENT
    assert "dated earlier" not in diagnosis.verdict.headline


def test_the_first_broken_link_is_that_of_the_headline(tmp_path: Path) -> None:
    draw = random.Random(5)

    def episode(number: int) -> list[Step]:
        steps = ask(f"Task {number}")
        for at in range(4):
            bad = draw.random() < (0.02 if number < 100 else 0.7)
            steps += call("search", f"row {number} {at}", error="down" if bad else None, key=number, at=at)
        fails = number % 2 == 0
        text = "I have booked the flight and all is confirmed." if not fails or number % 10 else "I was unable to."
        return [*steps, *say(text), *end(success=not fails)]

    diagnosis = judge(tmp_path, make(200, episode))
    assert {finding.id for finding in diagnosis.findings} >= {"tool-failures", "pseudo-success"}
    assert "tool calls" in diagnosis.verdict.headline
    assert diagnosis.verdict.first_broken_link is Link.ENVIRONMENT


def test_failures_that_a_limit_cuts_off_are_told(tmp_path: Path) -> None:
    rows = []
    for number in range(15):
        fails = number % 5 in {0, 1}
        messages = [{"role": "user", "content": f"Task {number}"}, {"role": "assistant", "content": f"Here: {number}."}]
        stop = "max_turns" if fails and number % 5 == 0 else "stop"
        rows.append({"prompt": messages[:1], "completion": messages[1:], "success": not fails, "stop_reason": stop})
    diagnosis = judge_rows(tmp_path, rows)
    (finding,) = found(diagnosis, "truncated-episodes")
    assert finding.severity is Severity.LOW
    assert finding.claim.startswith("3 of 6 failing episodes are cut off")
    assert "3 of 15 cut off at a limit" in printed(diagnosis)


def judge_rows(folder: Path, rows: list[dict[str, Any]]) -> TraceDiagnosis:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return api.traces(path)


def command(number: int, *, code: int | None = None) -> list[dict[str, Any]]:
    """Return a command of OpenHands and what came back; older versions keep no exit code."""
    return [
        {"id": 2 * number, "source": "agent", "action": "run", "args": {"command": f"ls {number}", "thought": "Look."}},
        {
            "id": 2 * number + 1, "source": "agent", "observation": "run", "cause": 2 * number,
            "content": f"row {number}", "extras": {} if code is None else {"metadata": {"exit_code": code}},
        },
    ]  # fmt: skip


def test_a_format_that_marks_failures_alone_has_no_failure_share(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []
    for number in range(3):
        events = [event for at in range(4) for event in command(at + 1)]
        lost = {"id": 90, "source": "agent", "observation": "error", "content": "Error: no such tool", "extras": {}}
        rows.append({"instance_id": f"case-{number}", "history": [*events, lost], "metrics": {}, "error": None})
    diagnosis = judge_rows(tmp_path, rows)
    assert diagnosis.traces.tool_errors == 3
    reasons = {item.id: item.reason for item in diagnosis.not_judged}
    assert reasons["tool-failures"].startswith("3 of 15 tool calls are marked as failed")
    assert "failures-unrecovered" in reasons
    assert "tool_failure_rate" not in diagnosis.measured or not diagnosis.measured["tool_failure_rate"].trials
    assert diagnosis.tables["over_order"]["tool_failures"].null_count() == diagnosis.tables["over_order"].height
    used = next(item.reason for item in diagnosis.healthy if item.id == "tool-use")
    assert used.startswith("1 tool is called")


def test_exit_codes_beside_results_tell_their_outcome(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {
            "instance_id": f"case-{number}", "metrics": {}, "error": None,
            "history": [event for at in range(4) for event in command(at + 1, code=127 if at == 2 else 0)],
        }
        for number in range(5)
    ]  # fmt: skip
    diagnosis = judge_rows(tmp_path, rows)
    share = diagnosis.measured["tool_failure_rate"]
    assert (share.hits, share.trials, diagnosis.traces.tool_errors) == (5, 20, 5)
    assert set(diagnosis.tables["calls"]["known_by"]) == {"coded"}


def test_the_terminal_says_what_the_agents_did(tmp_path: Path) -> None:
    text = printed(judge(tmp_path, make(60, lambda at: plain(at, turns=2))))
    assert "60 episodes" in text
    assert "2 calls each; most used tool: search (120 calls)" in text


def test_the_terminal_names_the_tools_that_are_called_equally_often(tmp_path: Path) -> None:
    def asked(name: str) -> dict[str, Any]:
        return {"role": "assistant", "tool_calls": [{"id": name, "function": {"name": name, "arguments": "{}"}}]}

    said = [{"role": "user", "content": "weigh"}, asked("tare"), asked("weigh"), {"role": "assistant", "content": "1"}]
    text = " ".join(printed(judge_rows(tmp_path, [{"messages": said}])).split())
    assert "most used tools: tare, weigh (1 call each)" in text


def test_agents_that_act_in_text_are_not_told_to_record_calls(tmp_path: Path) -> None:
    rows = [
        {
            "messages": [
                {"role": "user", "content": f"Task {at}"},
                {"role": "assistant", "content": f"```\nls {at}\n```"},
            ]
        }
        for at in range(20)
    ]
    diagnosis = judge_rows(tmp_path, rows)
    advice = " ".join(item.enable for item in diagnosis.not_judged)
    assert "tool calls" not in advice
    assert "write the messages" not in advice
    assert "calls each" not in printed(diagnosis)


def test_rows_that_hold_no_episode_are_said_on_the_terminal(tmp_path: Path) -> None:
    write_episodes(tmp_path, make(30, plain))
    with next(tmp_path.glob("*.jsonl")).open("a") as file:
        file.write('{"status": 1}\n' * 3)
    text = printed(api.traces(tmp_path))
    assert "3 rows of 1 file" in text


def test_a_transcript_whose_calls_are_not_understood_is_not_said_to_hold_none(tmp_path: Path) -> None:
    turns = "User: weigh the cat\nAssistant: I use the scale, and it shows 4 kg.\n" * 4
    (tmp_path / "chat.txt").write_text(turns)
    text = printed(api.traces(tmp_path))
    assert "no call is understood" in text
    assert "none is called" not in text


def test_labels_without_a_failure_are_not_taken_for_a_grade(tmp_path: Path) -> None:
    sets = (make(40, lambda at: plain(at, success=True)), make(40, lambda at: plain(at, success=at >= 4)))
    heads = [judge(tmp_path, episodes).verdict.headline for episodes in sets]
    assert ["only say that the run ended" in head for head in heads] == [True, False]


def test_who_has_many_tasks_is_told_to_read_more_episodes(tmp_path: Path) -> None:
    diagnosis = judge(tmp_path, make(20, lambda at: plain(at, success=at % 2 == 0)))
    assert diagnosis.verdict.status is Status.CANNOT_SAY
    assert diagnosis.verdict.next[0].startswith("read more episodes as one set")


def test_tools_beyond_the_table_are_counted(tmp_path: Path) -> None:
    episodes = make(70, lambda at: [*ask(f"Task {at}"), *call(f"tool_{at:02d}", f"row {at}"), *end(success=True)])
    text = printed(judge(tmp_path, episodes))
    assert "45 more tools in the report; 70 are called in all" in text


def test_several_formats_are_told_with_their_episodes(tmp_path: Path) -> None:
    write_episodes(tmp_path, make(30, plain))
    rows = [
        {"messages": [{"role": "user", "content": f"Ask {at}"}, {"role": "assistant", "content": f"Answer {at}"}]}
        for at in range(12)
    ]
    (tmp_path / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "42 episodes read (30 of microsoft_agents, 12 of chat_messages)" in api.traces(tmp_path).verdict.headline
