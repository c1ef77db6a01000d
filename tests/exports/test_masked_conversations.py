"""Conversations kept for training: keys of certain shape are masked and flagged, all else stays byte for byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from exported import asked, called, episode, exported, result, said, store_of
from planted_secrets import secrets
from typer.testing import CliRunner

from ptt import api
from ptt.cli.app import app
from ptt.diagnostics.scrub.scrub import Scrubber
from ptt.diagnostics.store.table_parts import scrub_frame
from ptt.diagnostics.traces.exports.options import ExportKind
from ptt.reports.traces.export_card import card_json, card_lines, card_markdown

NO_CREDENTIALS = {"random", "ssh key"}  # random strings may be anything, and an SSH key after `ssh-rsa` is public
PROVIDERS = [
    secret
    for seed in range(20)
    for secret in secrets(seed)[: [one.kind for one in secrets()].index("slack webhook") + 1]
    if secret.kind not in NO_CREDENTIALS
]
OTHERS = [secret for secret in secrets() if secret.kind not in {one.kind for one in PROVIDERS}]
KEY = next(secret for secret in PROVIDERS if secret.kind == "github").name
PEM = (
    "-----BEGIN RSA PRIVATE KEY-----\n"
    + "\n".join(["MIIEowIBAAKCAQEA7v3Xk9" + "cR4tY8uW2pLq" * 3] * 4)
    + "\n-----END RSA PRIVATE KEY-----"
)
CODE = """password = input("Enter the password: ")
print("Final password:", password)
if "-----BEGIN RSA PRIVATE KEY-----" in text and token == "secret": api_key = os.environ["OPENAI_API_KEY"]
client = Client(password="hunter2-but-longer", user="sofia_kim_7287", host="db-7.corp.example:5432")
key = "sk-your-key-goes-here-1234", example = "AKIAIOSFODNN7EXAMPLE"; css = "sk-folding-cube-large"
blob = "iVBORw0KGgoAAAANSUhEUgAAAAUAEAAAAFCAYAAACNbyblAAAAHElEQVQI12P4//8"; that.is_all()
"""


def _frame(*messages: dict[str, Any]) -> pl.DataFrame:
    spelt = json.dumps(list(messages), ensure_ascii=False)
    return pl.DataFrame(
        {"trajectory_id": ["a"], "prompt": [spelt], "completion": ["[]"], "tools": [None]},
        schema={"trajectory_id": pl.String, "prompt": pl.String, "completion": pl.String, "tools": pl.String},
    )


def _scrubbed(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    frame = scrub_frame("conversations", _frame(*messages), Scrubber())
    found: list[dict[str, Any]] = json.loads(frame["prompt"][0])
    assert (frame["masked_prompt"][0] > 0) == (found != list(messages))
    return found


def test_a_key_is_masked_wherever_it_stands_in_a_conversation() -> None:
    for secret in PROVIDERS:
        line = secret.line
        call = {"type": "function", "function": {"name": "run", "arguments": {"env": {"K": [line]}, "n": 3}}}
        raw = {"type": "function", "function": {"name": "run", "arguments": json.dumps({"code": line})}}
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": f"say\t{line}\n"},
            {"role": "assistant", "content": f'a\n"{line}"', "tool_calls": [call, raw]},
            {"role": "tool", "content": json.dumps([line])},
        ]
        found = _scrubbed(*messages)
        assert not any(part in json.dumps(found) for part in secret.hidden), secret.kind
        assert found[1]["tool_calls"][0]["function"]["arguments"]["n"] == 3, secret.kind
        assert found[0]["content"].startswith("say\t"), secret.kind


@pytest.mark.parametrize("secret", OTHERS, ids=lambda secret: secret.kind)
def test_people_hosts_and_words_beside_a_setting_stay(secret: Any) -> None:
    message = {"role": "assistant", "content": f"x = {{'text': '{secret.line}'}}"}
    assert _scrubbed(message) == [message]


def test_code_stays_byte_for_byte() -> None:
    frame = _frame(called("run", {"code": CODE}), said(CODE), result(CODE))
    assert scrub_frame("conversations", frame, Scrubber())["prompt"].equals(frame["prompt"])


def test_a_key_over_several_lines_is_masked() -> None:
    (found,) = _scrubbed({"role": "tool", "content": f"cat key\n{PEM}\ndone"})
    assert "MIIE" not in found["content"]
    assert (found["content"][:8], found["content"][-5:]) == ("cat key\n", "\ndone")


def _steps(name: str, code: str, *, success: bool) -> list[dict[str, Any]]:
    kinds: list[dict[str, Any]] = [
        {"type": "user_message", "content": "My user id is sofia_kim_7287, mail sofia@corp.example."},
        {"type": "assistant_message", "content": "I look up user 'sofia_kim_7287'."},
        {"type": "tool_call", "tool": "python", "args": {"user": "sofia_kim_7287", "code": code}},
        {"type": "tool_result", "tool": "python", "result": "the password is incorrect"},
        {"type": "assistant_message", "content": f"It is: {code}"},
        {"type": "episode_end", "success": success, "reward": float(success)},
    ]
    return [{"episode_id": name, "step": at, **kind} for at, kind in enumerate(kinds)]


def _run(tmp_path: Path, *more: str) -> tuple[list[dict[str, Any]], str, dict[str, Any]]:
    lines = _steps("a", CODE, success=True) + _steps("b", f"login({KEY!r})", success=True)
    path = tmp_path / "agents.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = ["traces", str(path), "-o", str(tmp_path / "out"), "--export", "sft", "--format", "jsonl", *more]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    folder = tmp_path / "out" / "exports"
    rows = [json.loads(line) for line in (folder / "sft.jsonl").read_text().splitlines()]
    assert KEY not in (folder / "sft.jsonl").read_text()
    return rows, done.output, json.loads((folder / "quality.json").read_text())


def test_what_the_agent_wrote_is_exported_as_it_wrote_it(tmp_path: Path) -> None:
    (row,), output, card = _run(tmp_path)
    first, _, last = row["completion"]
    assert first["content"] == "I look up user 'sofia_kim_7287'."
    assert first["tool_calls"][0]["function"]["arguments"] == {"user": "sofia_kim_7287", "code": CODE}
    assert last["content"] == f"It is: {CODE}"
    assert row["prompt"][0]["content"] == "My user id is sofia_kim_7287, mail sofia@corp.example."
    assert row["masked"] is False
    assert "A key or token is masked in 1 episode: left out; --keep-masked keeps.\n" in output
    assert card["masked"] == {"episodes": 1, "texts": 2}
    assert card["exports"]["sft"]["left_out"] == {"masked": 1}


def test_rows_with_a_mask_are_flagged_where_they_are_kept(tmp_path: Path) -> None:
    rows, output, card = _run(tmp_path, "--keep-masked")
    assert [row["masked"] for row in rows] == [False, True]
    assert rows[1]["completion"][-1]["content"] == "It is: login('[github-pat-1]')"
    assert "  a key or token is masked: in 1 row, see the column masked\n" in output
    assert card["exports"]["sft"]["rows_masked"] == 1


def test_the_rest_of_the_store_is_scrubbed_as_before(tmp_path: Path) -> None:
    path = tmp_path / "agents.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in _steps("a", CODE, success=True)))
    api.traces(path, out=tmp_path / "out", keep_messages=True)
    store = tmp_path / "out" / "store"
    for part in sorted(store.glob("*/*.parquet")):
        if part.parent.name != "conversations":
            text = str(pl.read_parquet(part).rows())
            assert not any(word in text for word in ("sofia@corp", "hunter2-but-longer", "db-7.corp")), part
    assert "sofia@corp.example" in str(pl.read_parquet(store / "conversations" / "*.parquet").rows())


def _masked(number: int, text: str, *, success: bool, prompt: int = 0, completion: int = 0) -> dict[str, Any]:
    facts = {"masked_prompt": prompt, "masked_completion": completion}
    return episode(asked("Go."), [said(text)], trajectory_id=f"{number}", success=success) | facts


def test_masks_keep_attempts_out_of_pairs_and_prompts(tmp_path: Path) -> None:
    episodes = [
        _masked(0, "yes", success=True),
        _masked(1, "[github-pat-1]", success=True, completion=1),
        _masked(2, "no", success=False),
    ]
    store = store_of(tmp_path / "store", episodes)
    rows, report = exported(store, tmp_path / "out")
    assert [(row["chosen"][0]["content"], row["masked"]) for row in rows["pairs"]] == [("yes", False)]
    assert rows["grpo"][0]["attempts"] == 3
    assert {card.kind: card.left_out["masked"] for card in report.cards} == {
        "pairs": 1, "kto": 1, "sft": 1, "grpo": 0, "steps": 1,
    }  # fmt: skip
    rows, _ = exported(store, tmp_path / "kept", keep_masked=True)
    assert sorted(row["masked"] for row in rows["pairs"]) == [False, True]
    assert rows["grpo"][0]["masked"] is False
    rows, _ = exported(store_of(tmp_path / "other", [_masked(0, "a", success=True, prompt=1)]), tmp_path / "none")
    assert rows["grpo"] == []


def test_repeated_tasks_with_other_openings_are_told(tmp_path: Path) -> None:
    episodes = [episode(asked(f"Hello {at}."), [said(f"{at}")], task=f"t{at % 2}", success=at < 2) for at in range(4)]
    _, report = exported(store_of(tmp_path / "store", episodes), tmp_path / "out", ExportKind.PAIRS)
    told = "2 tasks were repeated, each time from another opening"
    assert any(told in line for line in card_lines(report))
    assert told in card_markdown(report)
    assert json.loads(card_json(report, "0"))["tasks_repeated_from_other_prompts"] == 2


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--steps-to", "end"], "--steps-to: without use here; add --export steps, or drop it."),
        (["--export", "pairs", "--steps-to", "end"], "--steps-to: without use here; add --export steps, or drop it."),
        (["--export-to", "there", "--keep-masked"], "--export-to, --keep-masked: without use here; add --export"),
    ],
)
def test_an_option_without_an_export_is_an_error(tmp_path: Path, options: list[str], told: str) -> None:
    done = CliRunner().invoke(app, ["traces", str(tmp_path), *options])
    assert done.exit_code == 2
    assert told in " ".join(done.output.split())
