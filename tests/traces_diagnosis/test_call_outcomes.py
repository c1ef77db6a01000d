"""Did the call fail? The forms in which tools say so, as public traces have them, and what is made of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from slow_cases import first_fast

from ptt import api
from ptt.diagnostics.traces.model import TraceDiagnosis

Result = str | dict[str, Any]


def judge(folder: Path, calls: Sequence[tuple[str, Any, Result]]) -> TraceDiagnosis:
    """Judge episodes of one call each: of a tool, with arguments, and its result or the message that holds it."""
    path = folder / "chats.jsonl"
    with path.open("w") as file:
        for number, (tool, arguments, result) in enumerate(calls):
            call = {"id": f"c{number}", "type": "function", "function": {"name": tool, "arguments": arguments}}
            answer = result if isinstance(result, dict) else {"content": result}
            messages = [
                {"role": "user", "content": f"Do task {number}."},
                {"role": "assistant", "content": "", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": f"c{number}", **answer},
            ]
            file.write(json.dumps({"messages": messages}) + "\n")
    return api.traces(path, out=folder / "out")


def outcomes(folder: Path, calls: Sequence[tuple[str, Any, Result]]) -> list[tuple[bool | None, str | None]]:
    """Return each call's outcome and how it is known."""
    table = judge(folder, calls).tables["calls"]
    return table.select("failed", "known_by").rows()


FAILED: dict[str, tuple[str, str, Result, str]] = {
    # sierra-research/tau2-bench: a flag beside the result
    "flag": ("book_reservation", "{}", {"content": "Error: Reservation IFOYFZ not found", "is_error": True}, "marked"),
    # SWE-agent/mini-swe-agent: its return code in a tag
    "returncode": ("bash", "{}", "<returncode>1</returncode>\n<output>\ncat: ./a.py: No such file\n</output>", "coded"),
    # kirilligum/ask-codex-sessions: Codex' header
    "codex": (
        "exec_command", "{}",
        "Chunk ID: 6cd10f\nWall time: 0.0511 seconds\nProcess exited with code 128\nOutput:\nfatal: not a git rep",
        "coded",
    ),
    # a session of Claude Code on Windows
    "exit code": ("Bash", "{}", "Exit code 127\n/usr/bin/bash: line 1: Get-ChildItem: command not found", "coded"),
    # IgorPereverzevDev/scalable-oversight
    "bracketed code": ("run_tests", "{}", "TEST FAILED (rc=1)\nstdout:\nTest 1 passed\n\nstderr:\n", "coded"),
    # lixiaochuan2020/General-AgentBench: what ends in `head` failed before it
    "complaint beside a code": (
        "execute_bash", '{"command": "tcc a.c -o a && ./a | head -n 1"}',
        '{"output": "tcc: error: file \'libtcc1.a\' not found", "exit_code": 1}', "coded",
    ),
    # NousResearch/hermes-agent in NVIDIA-NeMo/Gym: fields of an object
    "exit field": ("terminal", "{}", '{"output": "pip: bad interpreter", "exit_code": 126, "error": null}', "coded"),
    "success field": ("skill_manage", "{}", '{"success": false, "error": "Frontmatter must include a name."}', "coded"),
    # OpenBMB/ToolBench: an HTTP code in the text of a dict in an object
    "http code": (
        "api_tracking_for_pack_send", "{}",
        '{"error": "", "response": "{\'title\': \'Bad Request\', \'status\': 400, \'traceId\': \'|b1\'}"}', "coded",
    ),
    "error field": (
        "get_track_info_for_pridnestrovie_post", "{}",
        '{"error": "Function executing from my_tools error...\\nExceeded 30 redirects.", "response": ""}', "coded",
    ),
    # PrimeIntellect-ai/prime-environments
    "traceback": (
        "python", "{}",
        "Traceback (most recent call last):\n  File x, line 1\nModuleNotFoundError: No module named 'sympy'",
        "worded",
    ),
    # facebookresearch/MLGym: what the program printed comes first
    "late traceback": (
        "python", "{}",
        "[nltk_data] Downloading package punkt\n" * 40
        + 'Traceback (most recent call last):\n  File "baseline.py", line 3\nRuntimeError: out of memory\n',
        "worded",
    ),
    # sessions of Claude Code
    "tag": ("Edit", "{}", "<tool_use_error>File has not been read yet. Read it first.</tool_use_error>", "worded"),
    # sierra-research/tau-bench
    "error:": ("update_reservation_flights", "{}", "Error: gift card balance is not enough", "worded"),
    # princeton-nlp/intercode
    "query": ("mysql", "{}", "Error executing query: Table 'employee_hire_evaluation.shops' doesn't exist", "worded"),
    "shell": ("bash", "{}", "$(readlink: -c: line 1: unexpected EOF while looking for matching `)'\n", "worded"),
    "apt": ("ctf_terminal", "{}", "E: Unable to locate package tshark\n", "worded"),
    # ysymyth/ReAct
    "action": ("webshop_click", "{}", "Invalid action!", "worded"),
    "page": ("Search", "{}", "Could not find Mary-Kate Olsen and Ashley Olsen. Similar: ['Ashley Olsen']", "worded"),
    # vjindal989/enterprise-arena
    "wrapped": (
        "consult_auditor", "{}",
        'Result: {"error": "Tool \'consult_auditor\' error: got an unexpected argument \'description\'"}', "coded",
    ),
    # YudaiV3, an agent of mini-SWE-agent
    "rejected": ("bash", "{}", "Command not executed. The user rejected your command: go to YudaiV3", "worded"),
    "killed": ("bash", "{}", "The last command <command>npm start</command> timed out and has been killed.", "worded"),
    "interrupted": ("bash", "{}", "Interrupted by user: Temporary interruption caught.", "worded"),
    # icip-cas/LiveMCPBench: what an MCP server returns, in Python's spelling, of a server behind it
    "mcp": (
        "execute-tool", "{}",
        "meta=None content=[TextContent(type='text', text='fetch failed', annotations=None)] isError=True", "coded",
    ),
    "mcp behind mcp": (
        "execute-tool", "{}",
        "meta=None content=[TextContent(type='text', text='{\\n  \"content\": [{\"type\": \"text\", "
        "\"text\": \"It\\'s off\"}],\\n  \"isError\": true\\n}', annotations=None)] isError=False", "coded",
    ),
    "words in mcp": (
        "execute-tool", "{}",
        "CallToolResult(meta=None, content=[TextContent(type='text', text=\"Error: the user's token expired\", "
        "annotations=None)], isError=False)", "worded",
    ),
    "blocks": (
        "get_faqs", "{}",
        '{"content": [{"type": "text", "text": {"message": "No FAQs", "status": "Failure"}}], "isError": false}',
        "coded",
    ),
    # kakaCat/manus-learn: longer than what a reading tool says itself
    "json-rpc": (
        "read_file", "{}",
        "MCP error -32602: Input validation error: Invalid arguments for tool read_file: [\n" + '  {"a": 1},\n' * 90,
        "worded",
    ),
    "search": ("web_search", "{}", f"Search failed for query 'a': {'https://example.com/' * 50}", "worded"),
    # ag2ai/Agents_Failure_Attribution
    "nothing to run": (
        "Computer_terminal", "{}", "There is no code from the last 1 message for me to execute.", "worded",
    ),
    # avaljotsingh/tau-bench
    "assigned": ("return_order", "{}", '# var_6 = "Error: non-delivered order cannot be returned"', "worded"),
    # metaphi-agent: what the caller calls a success
    "body": (
        "stop_preview", "{}",
        {"content": '{"status": "failed", "id": 4, "note": "It may have ended"}', "status": "success"}, "coded",
    ),
    "inner": ("pay", "{}", '{"success": true, "result": "{\\"error\\": \\"card declined\\"}"}', "coded"),
    "fenced": ("pay", "{}", 'Result: ```json\n{"paid": 0, "error": "card declined"}\n```', "coded"),
    # xlang-ai/Spider2
    "sql": ("run_sql", "{}", "EXECUTION RESULT of [run_sql]:\nSQL Error: 000904 (42000): invalid identifier", "worded"),
    "named": ("transfer", "{}", f"Bank transfer failed: {'insufficient funds on the account, ' * 10}", "worded"),
    "Chinese": ("搜索", "{}", "搜索失败：网络不可用", "worded"),
    "German": ("suche", "{}", "Fehler beim Laden der Seite: keine Verbindung", "worded"),
    "gateway": ("get_weather", "{}", "Error: upstream request failed (504)", "worded"),
}  # fmt: skip


@pytest.mark.parametrize("form", first_fast(FAILED, 12))
def test_a_failure_is_seen_in_the_form_that_its_tool_gives_it(tmp_path: Path, form: str) -> None:
    tool, arguments, result, by = FAILED[form]
    assert outcomes(tmp_path, [(tool, arguments, result)]) == [(True, by)]


ANSWERS: dict[str, tuple[str, str, str]] = {
    "source code": ("Read", "{}", "     1\timport os\n     2\traise ValueError('Error: no such user')\n"),
    "matches": ("grep", "{}", "src/a.py:3: raise ValueError('error')\nsrc/b.py:4:  # failed to open"),
    "a log": (
        "bash", '{"command": "tail -50 app.log"}',
        "Traceback (most recent call last):\n  File x\n" + "  File y\n" * 60 + "ValueError: bad",
    ),
    "a log file": ("read_file", "{}", "Error: connection lost, retrying\n" * 40),
    "a page": ("web_search", "{}", "404 Not Found: a history of the error page. " + "Many words here. " * 80),
    "a title": ("wiki_page", "{}", "Failure is a 2010 film about people who could not win."),
    "a road": ("search", "{}", "Exit 57 is a sketch comedy series that aired from 1995 to 1996."),
    "prose": ("search", "{}", "The program he said they work on does not exist and his logo is all fake ..."),
    "a number": ("python", "{}", "Error: 0.0312\nMean: 3"),
    "nothing found": ("search", "{}", "No results found."),
    "no match": ("bash", '{"command": "grep -n foo a.py"}', "Process exited with code 1\nOutput:\n"),
    "what was asked": ("get_job", "{}", '{"id": 4, "status": "failed", "retries": 3, "began": 1, "ended": 2, "n": 0}'),
    "a list": ("list_jobs", "{}", '[{"id": 1, "status": "error"}, {"id": 2, "status": "ok"}]'),
    "no error": ("check", "{}", "检查完成，没有错误！"),
    "none failed": ("check", "{}", "Jobs failed: none"),
    "nothing to do": ("get_tasks", "{}", "No action items to perform today."),
    "mcp": (
        "execute-tool", "{}",
        "meta=None content=[TextContent(type='text', text='1. Error: a film', annotations=None)] isError=False",
    ),
    "done": ("bash", "{}", "Your command ran successfully and did not produce any output."),
}  # fmt: skip


@pytest.mark.parametrize("form", first_fast(ANSWERS, 5))
def test_an_answer_that_speaks_of_errors_is_no_failure(tmp_path: Path, form: str) -> None:
    ((failed, _),) = outcomes(tmp_path, [ANSWERS[form]])
    assert not failed


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "text",
    [
        "{" * 5000,
        '{"error": ' * 5000,
        "{'a': '\\d', 'error': " + "[" * 3000,
        "Error: " * 9000,
        "\x1b[" * 9000,
        "'" * 9000,
    ],
)
def test_a_result_of_any_shape_is_read_at_once(tmp_path: Path, text: str) -> None:
    assert len(outcomes(tmp_path, [("get_weather", "{}", text)])) == 1


def test_a_field_that_says_it_went_well_is_a_known_success(tmp_path: Path) -> None:
    good = [
        '{"output": "error: none", "exit_code": 0, "error": null}',
        '{"success": true}',
        "<returncode>0</returncode>\nx",
    ]
    assert outcomes(tmp_path, [("terminal", "{}", text) for text in good]) == [(False, "coded")] * 3


def test_fields_beside_a_result_count_as_codes(tmp_path: Path) -> None:
    beside = [{"content": "x", "exit_code": 2}, {"content": "x", "exit_code": 0}]
    assert outcomes(tmp_path, [("terminal", "{}", message) for message in beside]) == [
        (True, "coded"),
        (False, "coded"),
    ]


def test_a_wrapper_outweighs_a_mark_that_the_tool_ran(tmp_path: Path) -> None:
    marked = {"content": "Error: upstream request failed (504)", "status": "success"}
    assert outcomes(tmp_path, [("get_weather", "{}", marked)]) == [(True, "worded")]


def test_a_code_outweighs_a_mark_of_success_and_what_a_program_prints_does_not(tmp_path: Path) -> None:
    marked = [
        {"content": "Exit code: 2\nmake: *** [all] Error 2", "is_error": False},
        {"content": "Error: this is what the program prints", "is_error": False},
    ]
    assert outcomes(tmp_path, [("bash", "{}", message) for message in marked]) == [(True, "coded"), (False, "marked")]


def test_what_a_written_out_message_holds_outweighs_the_flag_beside_it(tmp_path: Path) -> None:
    held = ('{"success": false, "error": "no attribute \'code\'"}', '{"success": true}')
    rows = [
        {
            "thread_id": "t",
            "tool_name": "unknown",
            "input_args": {},
            "output": f"content={text!r} name='draw' tool_call_id='c'",
            "success": True,
        }
        for text in held
    ]
    (tmp_path / "calls.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = api.traces(tmp_path / "calls.jsonl", out=tmp_path / "out").tables["calls"]
    assert table.select("tool", "failed", "known_by").rows() == [("draw", True, "coded"), ("draw", False, "marked")]


def test_a_head_that_gives_up_outweighs_a_flag_that_is_always_good(tmp_path: Path) -> None:
    said = (
        ("cite", "❌ Could not parse the page.\nProvide a title."),
        ("fetch_url", "Browser away and HTTP fallback failed.\n\nTry the batch."),
        ("check", "2 tests failed.\nSee the log."),  # what it was asked for
        ("bash", "❌ Could not find a fault."),
        ("cite", "Saved."),
    )
    good = [(tool, "{}", {"content": text, "is_error": False}) for tool, text in said]
    assert [failed for failed, _ in outcomes(tmp_path, good)] == [True, True, False, False, False]
    flagged = {"content": "no network", "is_error": True}
    assert outcomes(tmp_path, [*good[:1], ("cite", "{}", flagged)]) == [(False, "marked"), (True, "marked")]


def test_a_writer_who_flags_failures_is_believed_about_successes(tmp_path: Path) -> None:
    flagged = [
        ("bash", {"content": "Exit code 1", "is_error": True}),
        ("bash", {"content": "no scales found\nexit=2", "is_error": False}),
        ("fetch", {"content": "Error: this page is about errors", "is_error": False}),
        ("weigh", {"content": '{"success": false}', "is_error": False}),  # whose failures it never flags
    ]
    told = outcomes(tmp_path, [(tool, "{}", message) for tool, message in flagged])
    assert told == [(True, "marked"), (False, "marked"), (False, "marked"), (True, "coded")]


def test_a_flagged_timeout_says_nothing_of_the_exit_codes_beside_it(tmp_path: Path) -> None:
    ran = [{"content": f'{{"exit_code": {code}, "stdout": "x"}}', "success": True} for code in (1, 0)]
    told = outcomes(
        tmp_path, [("bash", "{}", message) for message in ({"content": "timed out", "success": False}, *ran)]
    )
    assert told == [(True, "marked"), (True, "coded"), (False, "marked")]


def test_an_error_beside_empty_content_is_a_failure_of_what_reads(tmp_path: Path) -> None:
    empty = '{"content": "", "total_lines": 0, "size": 0, "cut": false, "error": "None there", "image": false}'
    typed = (
        '{"status": "unknown", "stage": "read", "error_type": "wrong_state", "retry": false, "a": 1, "b": 2, "c": 3}'
    )
    assert outcomes(tmp_path, [("read_file", "{}", text) for text in (empty, typed)]) == [(True, "coded")] * 2


def test_other_results_of_a_tool_that_says_when_it_fails_are_good(tmp_path: Path) -> None:
    calls = [
        ("get_weather", f'{{"day": {n}}}', "Error: no station (504)" if n % 4 == 0 else f"{n} degrees")
        for n in range(40)
    ]
    diagnosis = judge(tmp_path, calls)
    share = diagnosis.measured["tool_failure_rate"]
    assert (share.hits, share.trials) == (10, 40)
    (row,) = diagnosis.rows("tools")
    assert [row[by] for by in ("known", "marked", "coded", "worded", "learnt")] == [40, 0, 0, 40, 0]


def test_a_failing_tool_in_plain_messages_is_named(tmp_path: Path) -> None:
    fetch = [("fetch", f'{{"url": {n}}}', "Error: upstream (504)" if n % 3 else f"page {n}") for n in range(60)]
    other = [("calculate", f'{{"sum": {n}}}', str(n)) for n in range(60)]
    diagnosis = judge(tmp_path, [call for pair in zip(fetch, other, strict=True) for call in pair])
    found = next(finding for finding in diagnosis.findings if finding.id == "tool-failures")
    assert found.slice == "tool:fetch"
    assert "read from the words of results" in found.claim


def test_a_form_that_marked_failures_have_is_learnt(tmp_path: Path) -> None:
    marked = [
        ("ask_oracle", f'{{"q": {n}}}', {"content": f"The oracle sleeps until {n}", "is_error": True}) for n in range(4)
    ]
    plain = [("ask_oracle", '{"q": 9}', "The oracle sleeps until 9"), ("ask_oracle", '{"q": 8}', "It is so: 8")]
    assert outcomes(tmp_path, [*marked, *plain])[4:] == [(True, "learnt"), (None, None)]


def test_a_form_that_most_results_have_is_not_learnt_from_few_failures(tmp_path: Path) -> None:
    marked = [
        ("ask_oracle", f'{{"q": {n}}}', {"content": f"The oracle sleeps until {n}", "is_error": True}) for n in range(4)
    ]
    plain = [("ask_oracle", f'{{"q": {n}}}', f"The oracle sleeps until {n}") for n in range(10, 20)]
    assert outcomes(tmp_path, [*marked, *plain])[4:] == [(None, None)] * 10


def test_what_stands_before_every_result_teaches_nothing(tmp_path: Path) -> None:
    heads = ["Error: no such table", "Error: no such table", "Error: no such column", "Three rows", "Two rows"]
    calls = [("lookup", f'{{"q": {n}}}', f"EXECUTION RESULT of [lookup]:\n{head}") for n, head in enumerate(heads)]
    assert [failed for failed, _ in outcomes(tmp_path, calls)] == [True, True, True, False, False]


def test_one_complaint_to_whatever_is_asked_is_a_failure(tmp_path: Path) -> None:
    texts = ["We are busy, please try again later", "Rain in the morning", "Sun at noon", "Fog at night", "Snow"]
    calls = [("forecast", f'{{"day": {n}}}', texts[0] if n < 4 else texts[n - 3]) for n in range(8)]
    assert outcomes(tmp_path, calls)[:4] == [(True, "learnt")] * 4


def test_an_empty_result_of_a_tool_that_always_returns_some_is_a_failure(tmp_path: Path) -> None:
    calls = [("get_quote", f'{{"day": {n}}}', "" if n == 7 else f"quote {n}") for n in range(30)]
    assert outcomes(tmp_path, calls)[7] == (True, "learnt")
    commands = [("bash", f'{{"command": "mkdir {n}"}}', "" if n == 7 else f"made {n}") for n in range(30)]
    assert outcomes(tmp_path, commands)[7] == (None, None)


def test_what_says_nothing_stays_unknown_and_is_no_clean_bill(tmp_path: Path) -> None:
    plain = [("lookup", f'{{"day": {n}}}', f"entry {n}") for n in range(40)]
    diagnosis = judge(tmp_path, plain)
    assert set(diagnosis.tables["calls"]["failed"]) == {None}
    missing = next(item for item in diagnosis.not_judged if item.id == "tool-failures")
    assert "none of their results says" in missing.reason
    assert missing.enable


def test_a_tool_without_outcomes_beside_one_with_them_is_not_clean(tmp_path: Path) -> None:
    known = [("terminal", f'{{"command": {n}}}', '{"output": "x", "exit_code": 0}') for n in range(60)]
    plain = [("lookup", f'{{"day": {n}}}', f"entry {n}") for n in range(20)]
    diagnosis = judge(tmp_path, [*known, *plain])
    missing = next(item for item in diagnosis.not_judged if item.id == "tool-failures")
    assert "20 of 80 tool calls is unknown (20 of 20 of lookup)" in missing.reason
    assert diagnosis.measured["tool_failure_rate"].trials == 60
