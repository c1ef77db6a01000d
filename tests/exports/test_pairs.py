"""Preference pairs: of one prompt, never equal, in the right order, within caps; what is left out is counted."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from exported import asked, called, episode, exported, result, said, store_of
from hypothesis import given, settings
from hypothesis import strategies as st

from ptt.diagnostics.traces.exports.options import Dedupe, ExportKind, StepExtent
from ptt.diagnostics.traces.exports.pairs import LENGTH_RATIO

TURNS = ("yes", "no", "maybe so", "let me look at the record first")


def _without_ids(messages: list[dict[str, Any]]) -> str:
    plain = json.loads(json.dumps(messages))
    for message in plain:
        message.pop("tool_call_id", None)
        for call in message.get("tool_calls", ()):
            call.pop("id", None)
    return json.dumps(plain, sort_keys=True)


@st.composite
def _episodes(draw: st.DrawFn) -> list[dict[str, Any]]:
    found = []
    for number in range(draw(st.integers(0, 24))):
        turns = draw(st.lists(st.sampled_from(TURNS), max_size=3))
        completion = []
        for at, text in enumerate(turns):
            identity = f"call-{number}-{at}"
            completion += [called("look", {"at": text}, identity), result(draw(st.sampled_from("ab")), identity)]
        if draw(st.booleans()):
            completion.append(said(draw(st.sampled_from(TURNS))))
        found.append(
            episode(
                asked(draw(st.sampled_from(("one", "two")))),
                completion,
                draw(st.sampled_from((None, [{"name": "look", "input_schema": {"type": "object"}}]))),
                trajectory_id=f"{draw(st.integers(0, 10**6)):07d}-{number}",
                task=draw(st.sampled_from((None, "t1", "t2"))),
                group_id=draw(st.sampled_from((None, "g1"))),
                success=draw(st.sampled_from((None, True, False))),
                reward=draw(st.sampled_from((None, 0.0, 0.5, 1.0, float("nan")))),
            )
        )
    return found


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    _episodes(),
    st.booleans(),
    st.sampled_from(Dedupe),
    st.sampled_from(StepExtent),
    st.integers(1, 5),
    st.integers(1, 3),
)
def test_no_pair_crosses_prompts_or_has_equal_sides(
    episodes: list[dict[str, Any]], match: bool, dedupe: Dedupe, extent: StepExtent, cap: int, parts: int
) -> None:
    with TemporaryDirectory() as folder:
        store = store_of(Path(folder) / "store", episodes, parts=parts)
        options = {"match_length": match, "dedupe": dedupe, "steps_to": extent, "max_pairs_per_prompt": cap}
        rows, report = exported(store, Path(folder) / "out", **options)
        again, _ = exported(store, Path(folder) / "again", **options)
    assert rows == again
    of_id = {one["trajectory_id"]: one for one in episodes}
    for row in [*rows["pairs"], *rows["steps"]]:
        better, worse = of_id[row["chosen_trajectory_id"]], of_id[row["rejected_trajectory_id"]]
        assert [better[key] for key in ("prompt", "tools", "task", "group_id")] == [
            worse[key] for key in ("prompt", "tools", "task", "group_id")
        ]
        assert _without_ids(row["chosen"]) != _without_ids(row["rejected"])
        assert row["chosen"][0]["role"] == row["rejected"][0]["role"] == "assistant"
        assert row["prompt"][-1]["role"] in ("user", "tool")
        assert row["margin"] > 0
    by_prompt: dict[str, int] = {}
    for row in rows["pairs"]:
        better, worse = of_id[row["chosen_trajectory_id"]], of_id[row["rejected_trajectory_id"]]
        assert row["prompt"][: len(better["prompt"])] == better["prompt"]
        assert {message["role"] for message in row["chosen"] + row["rejected"]} == {"assistant"}
        if row["label_from"] == "success":
            assert better["success"] is True
            assert worse["success"] is False
        else:
            assert better["reward"] > worse["reward"]
        key = json.dumps([better[name] for name in ("prompt", "tools", "task", "group_id")])
        by_prompt[key] = by_prompt.get(key, 0) + 1
        lengths = (row["chosen_chars"], row["rejected_chars"])
        assert not match or max(lengths) <= LENGTH_RATIO * min(lengths)
    assert max(by_prompt.values(), default=0) <= cap
    unlabelled = {name for name, one in of_id.items() if one["success"] is None and one["reward"] in (None,)}
    named = {row[f"{side}_trajectory_id"] for row in rows["pairs"] + rows["steps"] for side in ("chosen", "rejected")}
    assert not named & unlabelled
    assert all(row["success"] is True for row in rows["sft"])
    assert {row["trajectory_id"] for row in rows["kto"]}.isdisjoint(unlabelled)
    assert sum(row["attempts"] for row in rows["grpo"]) == len(episodes)
    assert report.episodes == len(episodes)


def _attempts(*outcomes: tuple[str, bool | None, float | None]) -> list[dict[str, Any]]:
    return [
        episode(asked("Add two and two."), [said(text)], success=success, reward=reward)
        for text, success, reward in outcomes
    ]


def _pairs(tmp_path: Path, episodes: list[dict[str, Any]], **options: Any) -> tuple[list[tuple[str, str]], Any]:
    rows, report = exported(store_of(tmp_path / "store", episodes), tmp_path / "out", ExportKind.PAIRS, **options)
    found = [(row["chosen"][0]["content"], row["rejected"][0]["content"]) for row in rows["pairs"]]
    return found, report.cards[0]


def test_the_widest_margin_comes_first_and_every_attempt_is_used_before_one_is_used_twice(tmp_path: Path) -> None:
    episodes = _attempts(("a", None, 0.9), ("b", None, 0.6), ("c", None, 0.2), ("d", None, 0.1))
    found, card = _pairs(tmp_path, episodes, max_pairs_per_prompt=2)
    assert found == [("a", "d"), ("b", "c")]
    assert card.left_out["over_cap"] == 4
    assert card.margins.mean == pytest.approx((0.8 + 0.4) / 2)


def test_a_margin_leaves_out_what_is_nearly_equal(tmp_path: Path) -> None:
    found, card = _pairs(tmp_path, _attempts(("a", None, 0.9), ("b", None, 0.85), ("c", None, 0.2)), min_margin=0.1)
    assert found == [("a", "c"), ("b", "c")]
    assert card.left_out["below_margin"] == 1


def test_success_decides_where_it_is_labelled(tmp_path: Path) -> None:
    episodes = _attempts(("a", True, 0.5), ("b", False, 0.9), ("c", False, 0.1), ("d", None, 1.0), ("e", True, None))
    found, card = _pairs(tmp_path, episodes, max_pairs_per_prompt=10)
    assert sorted(found) == [("a", "c"), ("e", "b"), ("e", "c")]
    assert card.left_out["reward_contradicts_success"] == 1
    assert card.left_out["unlabelled"] == 1


def test_a_completion_that_succeeded_and_failed_is_neither(tmp_path: Path) -> None:
    found, card = _pairs(tmp_path, _attempts(("a", True, None), ("a", False, None), ("b", False, None)))
    assert found == []
    assert card.left_out["contradictory_label"] == 2


def test_ids_of_calls_make_no_difference(tmp_path: Path) -> None:
    episodes = [
        episode(asked("Look."), [called("look", {"at": 1}, name), result("5", name), said("five")], success=success)
        for name, success in (("x1", True), ("x2", True), ("x3", False))
    ]
    found, card = _pairs(tmp_path, episodes)
    assert found == []
    assert card.left_out["contradictory_label"] == 3


def test_near_duplicates_are_left_out_on_request(tmp_path: Path) -> None:
    long = " ".join(f"word{number}" for number in range(80))
    episodes = _attempts((long, True, None), (long + " end", True, None), ("no", False, None))
    found, _ = _pairs(tmp_path, episodes)
    assert len(found) == 2
    found, card = _pairs(tmp_path / "near", episodes, dedupe=Dedupe.NEAR)
    assert len(found) == 1
    assert card.left_out["near_duplicate"] == 1


def test_lengths_are_matched_on_request(tmp_path: Path) -> None:
    episodes = _attempts(("a" * 100, True, None), ("b" * 10, False, None), ("c" * 110, False, None))
    found, card = _pairs(tmp_path, episodes, match_length=True)
    assert found == [("a" * 100, "c" * 110)]
    assert card.left_out["length_unmatched"] == 1


def test_many_attempts_at_one_prompt_are_drawn_from_both_outcomes(tmp_path: Path) -> None:
    episodes = _attempts(*((f"answer {number}", number % 10 == 0, None) for number in range(1000)))
    rows, report = exported(store_of(tmp_path / "store", episodes, parts=7), tmp_path / "out", max_pairs_per_prompt=32)
    assert len(rows["pairs"]) == 32
    assert len({row["chosen_trajectory_id"] for row in rows["pairs"]}) == 32
    assert len(rows["kto"]) == 1000
    assert len(rows["sft"]) == 100
    assert rows["grpo"][0]["success_rate"] == pytest.approx(0.1)
    assert report.cards[0].left_out["beyond_drawn_attempts"] == 1000 - 64
