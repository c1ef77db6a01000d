"""Messages as trainers take them, step-level pairs, overlap with an evaluation set, and the files themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from exported import asked, called, episode, exported, result, said, store_of
from typer.testing import CliRunner

from ptt import api
from ptt.cli.app import app
from ptt.diagnostics.errors import InputError
from ptt.diagnostics.traces.exports.export import export_traces
from ptt.diagnostics.traces.exports.options import ExportKind, ExportOptions, StepExtent, ToolOutput
from ptt.reports.traces.export_card import card_json, card_lines, card_markdown

CHAT = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "It's done."}]
TREE = [
    ("left", "fine", True),
    ("left", "fine too", True),
    ("left", "wrong", False),
    ("right", "bad", False),
    ("right", "worse", False),
]


def _tree() -> list[dict[str, Any]]:
    return [
        episode(
            asked("Where is the key?"),
            [called("open", {"door": door}, f"i{at}"), result(f"behind {door}", f"i{at}"), said(text)],
            success=success,
        )
        for at, (door, text, success) in enumerate(TREE)
    ]


def _sft(tmp_path: Path, *messages: dict[str, Any], prompt: Any = None, **options: Any) -> tuple[list[Any], Any]:
    one = episode(asked("Go.") if prompt is None else prompt, list(messages), success=True)
    rows, report = exported(store_of(tmp_path / "store", [one]), tmp_path / "out", ExportKind.SFT, **options)
    return rows["sft"], report


def test_a_turn_in_pieces_becomes_one_message(tmp_path: Path) -> None:
    calls = [called("a", {"x": 1}, "1"), called("b", {}, "2")]
    rows, report = _sft(tmp_path, said("I look."), *calls, result("one", "1"), result("two", "2"), said("Done."))
    assert [message["role"] for message in rows[0]["completion"]] == ["assistant", "tool", "tool", "assistant"]
    first, *results, _ = rows[0]["completion"]
    assert first["content"] == "I look."
    assert [call["function"]["name"] for call in first["tool_calls"]] == ["a", "b"]
    assert [message["name"] for message in results] == ["a", "b"]
    assert report.merged == 2


def test_what_stands_after_the_last_turn_is_cut_and_counted(tmp_path: Path) -> None:
    rows, report = _sft(tmp_path, called("a", {"x": 1}), result("one"))
    assert [message["role"] for message in rows[0]["completion"]] == ["assistant"]
    assert report.trimmed == 1


@pytest.mark.parametrize(
    ("prompt", "messages", "why"),
    [
        (None, [result("one")], "no_assistant_turn"),
        (None, [said("")], "empty_completion"),
        ([], [said("Hello.")], "no_prompt"),
        ([], [called("look", {}), result("one"), said("One.")], "no_prompt"),
        (None, [{"role": "narrator", "content": "Then."}, said("Yes.")], "unknown_role"),
        (None, [said(json.dumps(CHAT))], "conversation_in_a_text"),
        (None, [said(json.dumps({"messages": CHAT}, indent=2))], "conversation_in_a_text"),
        (asked(str(CHAT)), [said("Yes.")], "conversation_in_a_text"),
        (asked("\n" + json.dumps([{"from": "human", "value": "Go."}])), [said("Yes.")], "conversation_in_a_text"),
        (None, [said("Yes.<|im_end|>\n<|im_start|>user\nAnd?")], "rendered_completion"),
        (None, [said("I look.\n<tool_response>\n417\n</tool_response>")], "tool_output_in_text"),
        (None, [said("<search>x</search><information>417</information>")], "tool_output_in_text"),
        (None, [said("Action: look\nObservation: 417\nThought: done")], "tool_output_in_text"),
    ],
)
def test_conversations_that_train_nothing_are_counted_by_reason(
    tmp_path: Path, prompt: Any, messages: list[dict[str, Any]], why: str
) -> None:
    rows, report = _sft(tmp_path, *messages, prompt=prompt)
    assert rows == []
    assert report.unusable == {why: 1}
    assert "Left out, " in card_lines(report)[-1]


def test_texts_that_speak_of_messages_and_results_are_none(tmp_path: Path) -> None:
    call = called("send", {"body": json.dumps(CHAT), "note": "Observation: <|im_start|>"})
    texts = [said('[{"name": "send"}]'), call, result(json.dumps(CHAT)), said("The tag <information> is one of ours.")]
    rows, report = _sft(tmp_path, *texts, prompt=asked(f"What is wrong here? {json.dumps(CHAT)}"))
    assert len(rows) == 1
    assert not report.unusable


def _turns(rows: list[Any]) -> list[tuple[int, str]]:
    """Return the number and the last words of rows of one turn."""
    assert all([message["role"] for message in row["completion"]] == ["assistant"] for row in rows)
    return [(row["turn"], row["completion"][0]["content"] or _door(row["completion"])) for row in rows]


def _door(side: list[Any]) -> str:
    door: str = side[0]["tool_calls"][0]["function"]["arguments"]["door"]
    return door


def test_tool_output_is_left_out_of_all_but_sft_which_says_so(tmp_path: Path) -> None:
    rows, report = exported(store_of(tmp_path / "store", _tree()), tmp_path / "out")
    assert rows["pairs"] == rows["steps"]
    assert {(row["label"], *turn) for row, turn in zip(rows["kto"], _turns(rows["kto"]), strict=True)} == {
        (True, 1, "fine"), (True, 1, "fine too"), (False, 1, "wrong"),
        (False, 0, "right"), (False, 1, "bad"), (False, 1, "worse"),
    }  # fmt: skip
    assert {card.kind: card.left_out["contradictory_turn"] for card in report.cards}["kto"] == 3  # left, by three
    assert [len(row["completion"]) for row in rows["sft"]] == [3, 3]
    assert [row["turn"] for row in rows["sft"]] == [None, None]
    told = card_markdown(report)
    assert "tools or users speak in 2 rows: train with assistant_only_loss=True (TRL), or --tool-output split" in told
    card = json.loads(card_json(report, "0"))["exports"]
    assert {kind: card[kind]["rows_with_tool_output"] for kind in ("pairs", "kto", "sft", "steps")} == {
        "pairs": 0, "kto": 0, "sft": 2, "steps": 0,
    }  # fmt: skip


def test_sft_is_split_on_request(tmp_path: Path) -> None:
    store = store_of(tmp_path / "store", _tree())
    rows, report = exported(store, tmp_path / "out", ExportKind.SFT, tool_output=ToolOutput.SPLIT)
    assert _turns(rows["sft"]) == [(0, "left"), (1, "fine"), (1, "fine too")]
    assert [message["role"] for message in rows["sft"][1]["prompt"]] == ["user", "assistant", "tool"]
    assert (report.cards[0].split, report.cards[0].prompts, report.cards[0].left_out["duplicate"]) == (3, 1, 1)


def test_whole_episodes_say_that_they_train_on_tool_output(tmp_path: Path) -> None:
    store = store_of(tmp_path / "store", _tree())
    options = {"tool_output": ToolOutput.WHOLE, "steps_to": StepExtent.END}
    rows, report = exported(store, tmp_path / "out", **options)
    assert [message["role"] for message in rows["pairs"][0]["chosen"]] == ["assistant", "tool", "assistant"]
    assert [row["turn"] for row in rows["kto"]] == [None] * 5
    told = "\n".join(card_lines(report))
    assert "tools or users speak in 4 rows, and DPO trains on that too; --tool-output split leaves it out" in told
    assert "tools or users speak in 5 rows, and KTO trains on that too; --tool-output split leaves it out" in told
    assert "tools or users speak in 1 row, and DPO trains on that too; --steps-to turn leaves it out" in told


def test_an_episode_of_very_many_turns_is_split_up_to_a_bound(tmp_path: Path) -> None:
    turns = [message for at in range(300) for message in (called("open", {"door": f"d{at}"}), result("shut"))]
    rows, report = _sft(tmp_path, *turns, tool_output=ToolOutput.SPLIT)
    assert len(rows) == 256
    assert report.cards[0].left_out["beyond_turns"] == 44


def test_a_pair_on_one_attempt_against_one_is_weak(tmp_path: Path) -> None:
    episodes = _tree() + [
        episode(asked("Which?"), [said(text)], success=text == "this") for text in ("this", "that", "neither")
    ]
    store = store_of(tmp_path / "store", episodes)
    rows, report = exported(store, tmp_path / "out", ExportKind.PAIRS)
    found = [(row["chosen_attempts"], row["rejected_attempts"], row["weak"]) for row in rows["pairs"]]
    assert found == [(3, 2, False), (1, 1, True), (1, 2, False), (1, 2, False)]
    told = "weak: 1 of 4 pairs on one attempt against one, see the column weak; --min-attempts 2 leaves them out"
    assert any(told in line for line in card_lines(report))
    rows, report = exported(store, tmp_path / "more", ExportKind.PAIRS, min_attempts=2)
    assert [(row["chosen_attempts"], row["rejected_attempts"]) for row in rows["pairs"]] == [(3, 2)]
    assert report.cards[0].left_out["too_few_attempts"] == 3


def test_attempts_count_by_reward_where_no_success_is_known(tmp_path: Path) -> None:
    rewards = (0.0, 0.5, 1.0, 1.0)
    episodes = [episode(asked("Go."), [said(f"try {at}")], reward=reward) for at, reward in enumerate(rewards)]
    rows, _ = exported(store_of(tmp_path / "store", episodes), tmp_path / "out", ExportKind.PAIRS, min_attempts=2)
    assert {(row["chosen_reward"], row["rejected_reward"]) for row in rows["pairs"]} == {(1.0, 0.5)}


def test_a_greeting_of_the_assistant_belongs_to_the_prompt(tmp_path: Path) -> None:
    rows, _ = _sft(tmp_path, said("Hello."), *asked("Help."), said("Sure."), prompt=[])
    assert [message["content"] for message in rows[0]["prompt"]] == ["Hello.", "Help."]


def test_step_pairs_stand_where_attempts_part_and_are_worth_their_outcomes(tmp_path: Path) -> None:
    rows, _ = exported(store_of(tmp_path / "store", _tree()), tmp_path / "out", ExportKind.STEPS)
    first = next(row for row in rows["steps"] if row["turn"] == 0)
    assert [
        call["function"]["arguments"] for side in ("chosen", "rejected") for call in first[side][0]["tool_calls"]
    ] == [
        {"door": "left"},
        {"door": "right"},
    ]
    assert (first["chosen_value"], first["rejected_value"]) == (pytest.approx(2 / 3), 0.0)
    assert (first["chosen_attempts"], first["rejected_attempts"]) == (3, 2)
    second = next(row for row in rows["steps"] if row["turn"] == 1)
    assert [message["role"] for message in second["prompt"]] == ["user", "assistant", "tool"]
    assert second["rejected"][0]["content"] == "wrong"
    assert len(rows["steps"]) == 2  # the branch of failures has nothing to choose


def test_step_pairs_go_to_the_end_on_request(tmp_path: Path) -> None:
    store = store_of(tmp_path / "store", _tree())
    rows, _ = exported(store, tmp_path / "out", ExportKind.STEPS, steps_to=StepExtent.END)
    first = next(row for row in rows["steps"] if row["turn"] == 0)
    assert [message["role"] for message in first["chosen"]] == ["assistant", "tool", "assistant"]


def test_attempts_that_the_environment_parts_make_no_step_pair(tmp_path: Path) -> None:
    episodes = [
        episode(asked("Look."), [called("look", {}), result(text), said(text)], success=text == "a") for text in "ab"
    ]
    rows, report = exported(store_of(tmp_path / "store", episodes), tmp_path / "out", ExportKind.STEPS)
    assert rows["steps"] == []
    assert report.cards[0].left_out["parted_in_the_environment"] == 1


def test_overlap_with_an_evaluation_set_is_marked(tmp_path: Path) -> None:
    leaked = "how many red stones lie in the seventh river behind the old northern mill"
    held_out = tmp_path / "eval.jsonl"
    held_out.write_text(json.dumps({"question": f"Tell me, {leaked}, please?"}) + "\n")
    episodes = [
        episode(asked(text), [said("Six.")], success=True) for text in (leaked.upper(), "Something else entirely.")
    ]
    rows, report = exported(
        store_of(tmp_path / "store", episodes), tmp_path / "out", ExportKind.SFT, eval_set=(held_out,)
    )
    assert [row["eval_overlap"] > 0 for row in rows["sft"]] == [True, False]
    assert report.cards[0].overlapping == 1
    assert "13 words in a row shared with the evaluation set: 1 row\n" in card_markdown(report)


def test_an_instruction_that_all_items_share_is_no_overlap(tmp_path: Path) -> None:
    common = "Answer the question below in one word and explain nothing at all about how you found it:"
    held_out = tmp_path / "eval.jsonl"
    names = ("ant", "bee", "cow", "dog", "elk", "fox", "gnu", "hen", "jay", "kid", "lark", "mole")
    items = [f"{common} is the {one} larger than the {other}?" for one in names for other in names]
    held_out.write_text("".join(json.dumps({"question": item}) + "\n" for item in items))
    episodes = [episode(asked(f"{common} who?"), [said("Nobody.")], success=True)]
    rows, _ = exported(store_of(tmp_path / "store", episodes), tmp_path / "out", ExportKind.SFT, eval_set=(held_out,))
    assert rows["sft"][0]["eval_overlap"] == 0


def test_an_evaluation_set_that_is_not_there_is_said(tmp_path: Path) -> None:
    store = store_of(tmp_path / "store", _tree())
    with pytest.raises(InputError, match="nowhere"):
        exported(store, tmp_path / "out", ExportKind.SFT, eval_set=(tmp_path / "nowhere.jsonl",))


def test_kto_takes_its_label_from_rewards_where_no_success_is_known(tmp_path: Path) -> None:
    episodes = [episode(asked("Go."), [said(f"try {reward}")], reward=reward) for reward in (0.0, 0.5, 1.0)]
    rows, report = exported(store_of(tmp_path / "store", episodes), tmp_path / "out", ExportKind.KTO, ExportKind.SFT)
    assert [(row["label"], row["label_from"]) for row in rows["kto"]] == [(False, "reward"), (True, "reward")]
    assert rows["sft"] == []
    rows, _ = exported(tmp_path / "store", tmp_path / "more", ExportKind.SFT, min_reward=0.5)
    assert [row["reward"] for row in rows["sft"]] == [0.5, 1.0]
    assert report.cards[0].left_out == {"reward_is_the_mean": 1}


def test_rows_name_the_episode_as_its_file_does(tmp_path: Path) -> None:
    episodes = [episode(asked("Go."), [said(text)], sample_id=f"run-{text}", success=text == "a") for text in "ab"]
    rows, _ = exported(store_of(tmp_path / "store", episodes), tmp_path / "out", ExportKind.PAIRS, ExportKind.SFT)
    assert (rows["pairs"][0]["chosen_sample_id"], rows["pairs"][0]["rejected_sample_id"]) == ("run-a", "run-b")
    assert rows["sft"][0]["sample_id"] == "run-a"


def test_tools_get_the_shape_of_chat_templates(tmp_path: Path) -> None:
    tools = [{"name": "look", "description": "Look.", "input_schema": {"type": "object"}}]
    one = episode(asked("Go."), [said("Yes.")], tools, success=True)
    rows, _ = exported(store_of(tmp_path / "store", [one]), tmp_path / "out", ExportKind.SFT)
    function = {"name": "look", "description": "Look.", "parameters": {"type": "object"}}
    assert rows["sft"][0]["tools"] == [{"type": "function", "function": function}]


def test_parquet_holds_the_same_rows_and_says_what_they_are(tmp_path: Path) -> None:
    store = store_of(tmp_path / "store", _tree())
    rows, _ = exported(store, tmp_path / "lines")
    export_traces(store, tmp_path / "parquet", ExportOptions(kinds=tuple(ExportKind)))
    for kind, lines in rows.items():
        table = pq.read_table(tmp_path / "parquet" / f"{kind}.parquet")
        features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
        assert features["prompt"] == {"feature": {"_type": "Json"}, "_type": "List"}
        messages = [name for name in ("prompt", "chosen", "rejected", "completion") if name in features]
        plain = [
            {name: [json.loads(text) for text in value] if name in messages else value for name, value in row.items()}
            for row in table.to_pylist()
        ]
        assert plain == [{**row, "tools": None} for row in lines]
    assert sorted(path.name for path in (tmp_path / "parquet").iterdir()) == sorted(f"{kind}.parquet" for kind in rows)


def test_an_export_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_of(tmp_path / "store", _tree())
    exported(store, tmp_path / "out")
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ptt.diagnostics.traces.exports.rows.JsonRows.add", full)
    with pytest.raises(api.SettingsError, match="No space left"):
        exported(store, tmp_path / "out")
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


def test_prompts_spread_over_many_files_give_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    episodes = [
        episode(
            asked(f"Question {number % 7}?"), [said(f"answer {number} " + "x" * (number % 5))], success=number % 3 == 0
        )
        for number in range(60)
    ]
    episodes += [episode(asked("The same?"), [said(f"{number}")], success=number % 2 == 0) for number in range(90)]
    whole, _ = exported(store_of(tmp_path / "store", episodes, parts=4), tmp_path / "whole")
    monkeypatch.setattr("ptt.diagnostics.traces.exports.partition.BUCKET_BYTES", 1_500)
    monkeypatch.setattr("ptt.diagnostics.traces.exports.partition.PART_ROWS", 11)
    spread, _ = exported(tmp_path / "store", tmp_path / "spread")
    assert spread == whole


def test_a_store_without_conversations_is_said(tmp_path: Path) -> None:
    path = tmp_path / "agents.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in _steps("a", "stone", success=True)))
    api.traces(path, out=tmp_path / "out")
    with pytest.raises(InputError, match="keeps no conversations"):
        api.export_traces(tmp_path / "out", tmp_path / "to", ExportOptions(kinds=(ExportKind.SFT,)))


def test_the_card_says_what_is_missing(tmp_path: Path) -> None:
    episodes = [episode(asked("Go."), [said("Yes.")])]
    _, report = exported(store_of(tmp_path / "store", episodes), tmp_path / "out")
    card = json.loads(card_json(report, "0"))
    assert card["exports"]["pairs"]["rows"] == 0
    assert card["exports"]["pairs"]["left_out"] == {"prompts_with_one_attempt": 1, "unlabelled": 1}
    assert "nothing to write: neither success nor reward known (1)" in card_markdown(report)
    rows, _ = exported(tmp_path / "store", tmp_path / "all", ExportKind.SFT, include_unlabelled=True)
    assert len(rows["sft"]) == 1


def _steps(name: str, answer: str, *, success: bool) -> list[dict[str, Any]]:
    kinds: list[dict[str, Any]] = [
        {"type": "user_message", "content": "Find the code of stone."},
        {"type": "assistant_message", "content": "I look it up."},
        {"type": "tool_call", "tool": "lookup", "args": {"key": answer}},
        {"type": "tool_result", "tool": "lookup", "result": "417"},
        {"type": "assistant_message", "content": answer},
        {"type": "episode_end", "success": success, "reward": float(success)},
    ]
    return [{"episode_id": name, "step": at, **kind} for at, kind in enumerate(kinds)]


def test_the_command_writes_files_and_their_card(tmp_path: Path) -> None:
    lines = _steps("a", "stone", success=True) + _steps("b", "river", success=False)
    path = tmp_path / "logs" / "agents.jsonl"
    path.parent.mkdir()
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    kinds = [part for kind in ExportKind for part in ("--export", kind.value)]
    done = CliRunner().invoke(app, ["traces", str(path), "-o", str(tmp_path / "out"), *kinds, "--format", "jsonl"])
    assert done.exit_code == 0, done.output
    assert "pairs.jsonl: 1 row of 1 prompt\n" in done.output
    folder = tmp_path / "out" / "exports"
    row = json.loads((folder / "pairs.jsonl").read_text())
    assert row["chosen"][0]["content"] == "I look it up."
    assert row["chosen"][0]["tool_calls"][0]["function"]["arguments"] == {"key": "stone"}
    assert json.loads((folder / "quality.json").read_text())["episodes"] == 2
    assert (folder / "quality.md").read_text().startswith("# Quality")
    done = CliRunner().invoke(app, ["traces", str(tmp_path / "out"), *kinds, "--export-to", str(tmp_path / "again")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "again" / "pairs.parquet").exists()
    inside = ["--export-to", str(path.parent / "data")]
    done = CliRunner().invoke(app, ["traces", str(path.parent), "-o", str(tmp_path / "o"), *kinds, *inside])
    assert done.exit_code == 2
    assert not (path.parent / "data").exists()
