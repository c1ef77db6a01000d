"""Calls that stand in texts: the templates of model families, whatever file carries them, and what is no call.

`fixtures/calls/templates.jsonl` holds outputs of models and of their parsers' own tests, each with its source.
"""

from __future__ import annotations

import io
import json
import time
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from parser_samples import parser_named, run_file, table, takers
from slow_cases import first_fast

from ptt.diagnostics.parsers import Piece, RunFile

TEMPLATES = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "fixtures/calls/templates.jsonl").read_text(encoding="utf-8").splitlines()
]
CALL = '<tool_call>\n{"name": "weigh", "arguments": {"item": "cat"}}\n</tool_call>'
CHATML = (
    f"On the scale.\n{CALL}<|im_end|>\n<|im_start|>user\n<tool_response>\n4 kg\n</tool_response><|im_end|>\n"
    "<|im_start|>assistant\nIt is 4 kg.<|im_end|>"
)
BARE = f"On the scale.\n{CALL}\nuser\n<tool_response>\n4 kg\n</tool_response>\nassistant\nIt is 4 kg."
CHAT = [
    {"role": "assistant", "content": f"On the scale.\n{CALL}"},
    {"role": "user", "content": "<tool_response>\n4 kg\n</tool_response>"},
    {"role": "assistant", "content": "It is 4 kg."},
]
ASKED = {"role": "user", "content": "How heavy is the cat?"}


def rollout(output: str, prompt: str = "q") -> bytes:
    return json.dumps({"input": prompt, "output": output, "score": 1.0, "step": 1, "gts": None}).encode() + b"\n"


def calls_in(pieces: list[Piece]) -> pl.DataFrame:
    found = table(pieces, "tool_calls")
    return found.select("name", "args_json", "error_type", "result_len", "turn_idx", "ok") if found.width else found


def kept_of(path: Path) -> pl.DataFrame:
    file = RunFile(path=path, rel=path.name, size=path.stat().st_size, keep_messages=True)
    return table(list(parser_named("verl_rollouts").read(file)), "conversations")


def of_text(folder: Path, text: str, prompt: str = "q") -> pl.DataFrame:
    """Read a text as what veRL dumps."""
    (folder / "1.jsonl").write_bytes(rollout(text, prompt))
    return calls_in(list(parser_named("verl_rollouts").read(run_file(folder / "1.jsonl"))))


def of_chat(folder: Path, messages: list[dict[str, Any]], **more: Any) -> pl.DataFrame:
    path = folder / "chat.jsonl"
    path.write_bytes(json.dumps({"messages": messages, **more}).encode() + b"\n")
    return calls_in(list(parser_named("chat_messages").read(run_file(path))))


@pytest.mark.parametrize("sample", TEMPLATES, ids=lambda sample: str(sample["template"]))
def test_each_template_is_read_by_its_own_grammar(tmp_path: Path, sample: dict[str, Any]) -> None:
    if "messages" in sample:
        found = of_chat(tmp_path, sample["messages"])
    else:
        tools = json.dumps([{"name": name} for name in sample.get("declared", [])])
        found = of_text(tmp_path, sample["text"], f"<|im_start|>system\n{tools}<|im_end|>\n")
    made = [[row["name"], json.loads(row["args_json"]) if not row["error_type"] else None] for row in found.to_dicts()]
    assert made == sample["calls"]
    assert found.is_empty() or found["result_len"].count() == sample["results"]


REFUSED = {
    "a brace is missing": '<tool_call>\n{"name": "weigh", "arguments": {"item": "cat"}\n</tool_call>',
    "cut off": '<tool_call>\n{"name": "weigh", "arguments": {"item": "c',
    "words in the tag": "<tool_call>please weigh the cat</tool_call>",
    "no name": '<tool_call>\n{"arguments": {"item": "cat"}}\n</tool_call>',
    "a line break in a text": '<tool_call>{"name": "weigh", "arguments": {"item": "a\nb"}}</tool_call>',
    "DeepSeek's without its end": "<｜tool▁call▁begin｜>weigh<｜tool▁sep｜>{}",
    "Kimi's without a number": "<|tool_call_begin|>weigh<|tool_call_argument_begin|>{}<|tool_call_end|>",
    "Mistral's list cut off": '[TOOL_CALLS][{"name": "weigh", "arguments": {"item"',
    "a function without its bracket": "I look.\n<function=weigh",
    "an invoke cut off": '<invoke name="weigh"><parameter name="item">ca',
    "broken arguments": '<function=weigh>{"item": "cat"</function>',
    "a brace too many": '<tool_call>\n{"name": "weigh", "arguments": {"item": "cat"}}}\n</tool_call>',
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_what_a_parser_refuses_is_malformed_and_stays_in_the_text(tmp_path: Path, text: str) -> None:
    assert of_text(tmp_path, text).select("error_type", "ok").rows() == [("invalid_arguments", False)]
    kept = kept_of(tmp_path / "1.jsonl")
    assert text in json.loads(kept["completion"][0])[0]["content"]


TAKEN = {
    "single quotes": "<tool_call>{'name': 'weigh', 'arguments': {'item': 'cat', 'fast': True}}</tool_call>",
    "a text of JSON as arguments": '<functioncall> {"name": "weigh", "arguments": \'{"item": "cat"}\'} <|endoftext|>',
    "parameters": '<tool_call>{"name": "weigh", "parameters": {"item": "cat"}}</tool_call>',
    "no closing tag": '<tool_call>\n{"name": "weigh", "arguments": {"item": "cat"}}',
    "a parameter cut off": "<tool_call>\n<function=weigh>\n<parameter=item>\nca",
    "a Python call": "```tool_code\nprint(weigh(item='cat'))\n```",
    "a line break that was taken": f"{REFUSED['a line break in a text']}\n<interpreter>\n4 kg\n</interpreter>",
    "a brace too many that was taken": f"{REFUSED['a brace too many']}\n<interpreter>\n4 kg\n</interpreter>",
}


@pytest.mark.parametrize("text", TAKEN.values(), ids=TAKEN)
def test_what_a_parser_takes_is_well_formed(tmp_path: Path, text: str) -> None:
    assert of_text(tmp_path, text).select("name", "error_type").rows() == [("weigh", None)]


NO_CALLS = {
    "prose": "Use the <tool_call> tag to weigh the cat.",
    "a code fence": f"Write it like this:\n```xml\n{CALL}\n```\nand wait.",
    "inline code": f"Write `{CALL}` and wait.",
    "a thought": f"<think>I could write {CALL}</think>It is heavy.",
    "a thought that the prompt began": f"I could write {CALL}</think>It is heavy.",
    "code that nobody ran": "```python\nprint(1)\n```",
    "a tag that nobody answered": "A <search> box </search> helps.",
    "a line that says what is done": "Action: we weigh the cat.",
    "JSON that names no tool": '{"name": "cat", "arguments": {"weight": 4}}',
}


@pytest.mark.parametrize("text", NO_CALLS.values(), ids=NO_CALLS)
def test_what_only_mentions_a_call_is_none(tmp_path: Path, text: str) -> None:
    assert of_text(tmp_path, text).is_empty()
    assert of_chat(tmp_path, [ASKED, {"role": "assistant", "content": text}]).is_empty()


def test_a_users_example_is_no_call(tmp_path: Path) -> None:
    asked = {"role": "user", "content": f"Weigh the cat. Example:\n{CALL}\n<tool_response>\n4 kg\n</tool_response>"}
    found = of_chat(tmp_path, [asked, *CHAT])
    assert found.select("name", "turn_idx").rows() == [("weigh", 1)]


PROVEN = {
    "a thought that was answered": f"<think>{CALL}\n<tool_response>\n4 kg\n</tool_response>",
    "a search": "<think>a</think><search>cat</search>\n\n<information>4 kg</information>It is 4 kg.",
    "code": "<code>\n```python\nprint(4)\n```\n</code>\n<interpreter>\n4\n</interpreter>\nIt is 4 kg.",
    "a code block": "```python\nprint(4)\n```\n```output\n4\n```\nIt is 4 kg.",
    "a line of ReAct": "Thought: I look.\nAction: weigh cat\nObservation: 4 kg\nThought: done",
}


@pytest.mark.parametrize("text", PROVEN.values(), ids=PROVEN)
def test_an_answer_proves_a_call(tmp_path: Path, text: str) -> None:
    found = of_text(tmp_path, text)
    assert found.height == 1
    assert found["result_len"].count() == 1


def test_a_search_without_an_answer_counts_where_another_has_one(tmp_path: Path) -> None:
    found = of_text(tmp_path, f"{PROVEN['a search']}<search>dog</search>")
    assert found.select("args_json", "result_len").rows() == [('{"query": "cat"}', 4), ('{"query": "dog"}', None)]


@pytest.mark.parametrize(
    ("answer", "tools", "made"),
    [
        ({"role": "user", "content": 'Result: {"kg": 4}'}, [], 1),
        ({"role": "tool", "content": "4 kg"}, [], 1),
        (None, [{"type": "function", "function": {"name": "weigh"}}], 1),
        (None, [], 0),
    ],
)
def test_json_alone_is_a_call_with_evidence(tmp_path: Path, answer: Any, tools: Any, made: int) -> None:
    said = {"role": "assistant", "content": '{"tool_name": "weigh", "arguments": {"item": "cat"}}'}
    found = of_chat(tmp_path, [ASKED, said, *([answer] if answer else [])], tools=tools)
    assert found.height == made
    assert found.is_empty() or found["result_len"].count() == (answer is not None)


ANSWERED = {
    "OpenHands": (
        "<function=weigh>\n<parameter=item>cat</parameter>\n</function>",
        "EXECUTION RESULT of [weigh]:\n4 kg",
    ),
    "Cline": ("I look.\n<weigh>\n<item>cat</item>\n</weigh>", "[weigh for 'cat'] Result:\n4 kg"),
    "mini-swe-agent": ("I look.\n\n```bash\nweigh cat\n```", "<returncode>0</returncode>\n<output>\n4 kg\n</output>"),
    "TOOL lines": ("TOOL: weigh(cat)", "RESULT: 4 kg"),
    "any environment": (CALL, "The cat weighs 4 kg."),
}


@pytest.mark.parametrize(("said", "answer"), ANSWERED.values(), ids=ANSWERED)
def test_what_an_environment_says_as_user_is_the_result(tmp_path: Path, said: str, answer: str) -> None:
    found = of_chat(tmp_path, [ASKED, {"role": "assistant", "content": said}, {"role": "user", "content": answer}])
    assert found.height == 1
    assert found["result_len"].to_list() == [len(answer)]


def test_a_user_who_goes_on_is_no_result_where_calls_have_their_own_place(tmp_path: Path) -> None:
    leaked = {"role": "assistant", "content": CALL, "tool_calls": None}
    found = of_chat(tmp_path, [ASKED, leaked, {"role": "user", "content": "Well, how heavy?"}])
    assert found.select("name", "result_len").rows() == [("weigh", None)]


def parquet(rows: list[dict[str, Any]]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return sink.getvalue()


def trl(completion: Any) -> bytes:
    return parquet([{"step": 1, "prompt": json.dumps([ASKED]), "completion": completion, "right": 1.0}])


def lines(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode() + b"\n"


SHAREGPT = [{"from": {"user": "tool"}.get(m["role"], "gpt"), "value": m["content"]} for m in CHAT]
CARRIERS: dict[str, tuple[str, bytes]] = {
    "veRL": ("verl/1.jsonl", rollout(BARE)),
    "veRL with special tokens": ("verl/1.jsonl", rollout(CHATML)),
    "SkyRL": ("dumped_evals/global_step_1_evals/d.jsonl",
              lines({"input_prompt": [ASKED], "output_response": BARE, "score": 1.0})),
    "ms-swift": ("completions.jsonl", lines({"step": ["1"], "prompt": ["q"], "completion": [CHATML], "right": [1.0]})),
    "ROLL": ("rollout_dump_data.step_1.jsonl", lines({"responses": [BARE], "scores": [1.0], "prompt": ["q"]})),
    "TRL": ("completions/completions_00001.parquet", trl(CHAT)),
    "TRL with a text": ("completions/completions_00001.parquet", trl(BARE)),
    "TRL with a text of JSON": ("completions/completions_00001.parquet", trl(json.dumps(CHAT))),
    "TRL with a text of Python": ("completions/completions_00001.parquet", trl(str(CHAT))),
    "verifiers with texts of JSON": ("results.jsonl", lines(
        {"example_id": 0, "prompt": json.dumps([ASKED]), "completion": json.dumps(CHAT), "reward": 1.0})),
    "rLLM": ("episodes/episode_000001_a.json", json.dumps({"id": "a", "task": {}, "trajectories": [
        {"uid": "u", "reward": 1.0, "steps": [{"chat_completions": json.dumps([ASKED, *CHAT])}]}]}).encode()),
    "chat messages": ("chat.jsonl", lines({"messages": [ASKED, *CHAT]})),
    "ShareGPT": ("share.jsonl", lines({"conversations": [{"from": "human", "value": "q"}, *SHAREGPT]})),
}  # fmt: skip


@pytest.mark.parametrize(("name", "data"), CARRIERS.values(), ids=CARRIERS)
def test_every_carrier_gives_the_same_call(tmp_path: Path, name: str, data: bytes) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    file = RunFile(path=path, rel=name, size=len(data), keep_messages=True)
    pieces = list(parser_named(takers(file)[0]).read(file))
    assert calls_in(pieces).select("name", "args_json", "result_len").rows() == [("weigh", '{"item": "cat"}', 4)]
    turns = table(pieces, "turns")["role"].to_list()
    assert turns[-3:] == ["assistant", "tool", "assistant"]
    said = json.loads(table(pieces, "conversations")["completion"][0]) if "rllm" not in takers(file)[0] else None
    if said is not None:
        assert [message["role"] for message in said] == ["assistant", "tool", "assistant"]
        assert said[0]["content"] == "On the scale."
        assert said[0]["tool_calls"][0]["id"] == said[1]["tool_call_id"]


def test_a_prompt_that_offers_tools_tells_that_none_was_called(tmp_path: Path) -> None:
    for prompt, known in (("# Tools\nWrite <tool_call></tool_call>.", [0]), ("How heavy is the cat?", [None])):
        (tmp_path / "1.jsonl").write_bytes(rollout("4 kg.", prompt))
        pieces = list(parser_named("verl_rollouts").read(run_file(tmp_path / "1.jsonl")))
        assert table(pieces, "trajectories")["n_tool_calls"].to_list() == known


def test_a_prompt_in_its_chat_template_becomes_messages(tmp_path: Path) -> None:
    for prompt in (
        "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n",
        "system\nbe brief\nuser\nq\nassistant\n",
    ):
        (tmp_path / "1.jsonl").write_bytes(rollout("4 kg.", prompt))
        kept = kept_of(tmp_path / "1.jsonl")
        asked = [(message["role"], message["content"]) for message in json.loads(kept["prompt"][0])]
        assert asked == [("system", "be brief"), ("user", "q")]


HOSTILE = (
    "<tool_call>", "<tool_call>{", "<function=a>", "<search>", "<search></search", "```python\n", "Action: a\n",
    "Action:     \n", "<|python_tag|>{", "[TOOL_CALLS][", "<think>", "functools[[", '<invoke name="a">',
    '<invoke name="a"><parameter name="b">', "✿FUNCTION✿:", "<arg_key>", "<tool_call>a<arg_key>", ">>>a\n{",
    "<|recipient|>a<|content|>", "<|im_start|>user\n", "\nuser\n\nassistant\n", "(((", "<tool_call>[[", " ", "</s>",
    "<|im_end|> ",
)  # fmt: skip


@pytest.mark.parametrize("part", first_fast(HOSTILE, 6))
def test_a_hostile_text_takes_linear_time(tmp_path: Path, part: str) -> None:
    begun = time.process_time()
    of_text(tmp_path, part * (60_000 // len(part)) + "x")
    assert time.process_time() - begun < 3


def test_a_harmony_text_that_goes_on_behind_a_call_made_none(tmp_path: Path) -> None:
    asked = '<|start|>assistant<|channel|>commentary to=weigh code<|message|>{"item": "cat"}<|call|>'
    for number, (text, made) in enumerate([(asked, 1), (asked * 2 + "<answer>4 kg</answer>", 0)]):
        path = tmp_path / f"{number}.jsonl"
        path.write_text(json.dumps({"messages": [ASKED, {"role": "assistant", "content": text}]}) + "\n")
        calls = calls_in(list(parser_named("chat_messages").read(run_file(path))))
        assert calls.height == made
