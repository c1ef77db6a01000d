"""Where failing episodes part from succeeding ones: planted turns are found, and none where none decides."""

import random
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from slow_cases import first_fast
from trace_stories import Step, ask, call, end, found, judge, make, not_judged, say, write_episodes

from benchmarks.parting_turns import WORLDS, World, measure
from benchmarks.parting_turns import make as make_world
from ptt import api
from ptt.diagnostics.model import Severity
from ptt.diagnostics.traces.model import Call
from ptt.diagnostics.traces.partings import align, draw_groups, find_partings
from ptt.reports.traces.html import render_traces


def attempt(number: int, *, decides: bool = True, labelled: bool = True) -> list[Step]:
    """Return one of eight attempts at a prompt; where it decides, the booking at turn 3 fails and so does the task."""
    draw = random.Random(number)
    wrong = draw.random() < 0.5
    steps = ask(f"Prompt {number // 8}: book a table")
    for turn in range(5):
        tool = "book" if turn == 2 else "search"
        failed = decides and wrong and turn == 2
        key = f"{turn} {draw.randrange(2)}" if turn != 2 else f"{turn}"
        steps += call(tool, f"row {draw.random()}", error="no such table" if failed else None, key=key)
    success = draw.random() < (0.05 if wrong else 0.95) if decides else draw.random() < 0.5
    return [*steps, *say(f"It is {draw.random()}"), *end(success=success if labelled else None)]


def test_a_call_that_fails_and_decides_is_found_with_its_turn(tmp_path: Path) -> None:
    diagnosis = judge(tmp_path, make(160, attempt))
    (finding,) = found(diagnosis, "parting-turn")
    assert finding.slice == "tool:book"
    assert finding.severity is Severity.MEDIUM
    assert finding.observed is not None
    assert finding.observed < -0.6
    table = diagnosis.tables["partings"]
    assert table.columns == ["group", "turn", "success_id", "failure_id", "lift", "episodes", "why"]
    assert table.height >= 10
    assert (table["turn"] == 2).sum() > 0.9 * table.height
    (first, *_) = diagnosis.partings
    assert (first.turn, first.success.outcome, first.failure.outcome) == (2, "success", "failure")
    assert "a call of book fails at turn 3" in first.why


def test_no_turn_is_named_where_none_decides(tmp_path: Path) -> None:
    diagnosis = judge(tmp_path, make(160, lambda at: attempt(at, decides=False)))
    assert not found(diagnosis, "parting-turn")
    assert "parting-turn" in not_judged(diagnosis)
    assert not diagnosis.partings
    (why,) = [item.reason for item in diagnosis.not_judged if item.id == "parting-turn"]
    assert "beyond chance (p = 0." in why


def test_unlabelled_episodes_part_nowhere(tmp_path: Path) -> None:
    diagnosis = judge(tmp_path, make(40, lambda at: attempt(at, labelled=False)))
    (item,) = [item for item in diagnosis.not_judged if item.id == "parting-turn"]
    assert item.missing == ("success",)


def test_where_none_is_labelled_the_reward_tells_attempts_apart(tmp_path: Path) -> None:
    def paid(number: int) -> list[Step]:
        *steps, last = attempt(number)
        return [
            *steps,
            *end(success=None, reward=random.Random(number + 999).random() + (2.0 if last["success"] else 0.0)),
        ]

    diagnosis = judge(tmp_path, make(160, paid))
    (finding,) = found(diagnosis, "parting-turn")
    assert finding.severity is Severity.LOW
    assert finding.slice == "tool:book"
    assert "earn more than the middle of their group less often" in finding.claim
    assert {parting.success.outcome for parting in diagnosis.partings} == {"unknown"}


@pytest.mark.slow
def test_a_failure_that_few_meet_is_a_note(tmp_path: Path) -> None:
    def rare(number: int) -> list[Step]:
        if number < 120:
            return attempt(number)
        *steps, _ = attempt(number, decides=False)
        return [*steps, *end(success=True)]

    (finding,) = found(judge(tmp_path, make(1600, rare)), "parting-turn")
    assert finding.severity is Severity.LOW


def test_one_outcome_a_prompt_parts_nowhere(tmp_path: Path) -> None:
    diagnosis = judge(tmp_path, make(5, lambda at: attempt(at * 8)))
    (item,) = [item for item in diagnosis.not_judged if item.id == "parting-turn"]
    assert "no prompt has both" in item.reason


@pytest.mark.parametrize(
    "name",
    first_fast(["wrong arguments", "wrong tool", "failed call", "an error that is not marked", "last turn tells"], 2),
)
def test_planted_turns_are_located_far_better_than_by_chance(name: str) -> None:
    hits = measure(replace(WORLDS[name], groups=60), seeds=range(2))
    assert hits.p_values == (0.002, 0.002)
    assert hits.exact >= 0.8 > 4 * hits.chance
    assert hits.sure_exact >= 0.88


def test_turns_are_found_where_retries_shift_them() -> None:
    hits = measure(replace(WORLDS["retries shift the turns"], groups=60), seeds=range(2))
    assert hits.within_one >= 0.75


@pytest.mark.slow
def test_where_nothing_decides_the_p_value_says_so() -> None:
    p_values: list[float] = []
    for name in ("nothing decides", "nothing decides, every path its own"):
        p_values += measure(replace(WORLDS[name], groups=20), seeds=range(100, 150)).p_values
    assert sum(p <= 0.01 for p in p_values) <= 4
    assert 0.4 <= sum(p_values) / len(p_values) <= 0.6


def test_arguments_are_the_same_whatever_the_order_of_their_keys() -> None:
    made = make_world(World(groups=2, sizes=(4, 4)), 1)
    text = pl.col("args_json")
    turned = made.calls.with_columns(
        args_json=text.str.replace('{"query":', '{ "b": 1,"query" :', literal=True).str.replace("}", " }", literal=True)
    )
    plain = made.calls.with_columns(args_json=text.str.replace("}", ', "b": 1}', literal=True))
    assert not turned["args_json"].equals(plain["args_json"])
    mixed = made.episodes.select("trajectory_id", group="group_id", success=pl.int_range(pl.len()) % 2 == 0)
    chosen = draw_groups(mixed)
    assert align(chosen, made.turns.lazy(), turned.lazy()).equals(align(chosen, made.turns.lazy(), plain.lazy()))


def test_the_order_of_the_tables_does_not_matter() -> None:
    made = make_world(World(groups=12), 2)
    mixed = made.episodes.select("trajectory_id", "success", group="group_id")
    mixed = mixed.filter(pl.col("success").n_unique().over("group") == 2)
    one = find_partings(mixed, made.turns.lazy(), made.calls.lazy())
    two = find_partings(mixed.reverse(), made.turns.reverse().lazy(), made.calls.reverse().lazy())
    assert one.located.equals(two.located)
    assert one.p_value == two.p_value


def test_where_turns_are_too_many_whole_groups_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_world(World(groups=20), 4)
    mixed = made.episodes.select("trajectory_id", "success", group="group_id")
    mixed = mixed.filter(pl.col("success").n_unique().over("group") == 2)
    whole = find_partings(mixed, made.turns.lazy(), made.calls.lazy())
    monkeypatch.setattr("ptt.diagnostics.traces.partings.MAX_ACTIONS", 900)
    part = find_partings(mixed, made.turns.lazy(), made.calls.lazy())
    assert 0 < part.groups < whole.groups
    assert part.turns["group"].to_list() == whole.turns["group"].to_list()[: part.groups]
    assert (part.turns["turn"] == whole.turns["turn"].head(part.groups)).sum() >= part.groups - 2


def test_calls_that_number_themselves_are_turns_of_their_own() -> None:
    made = make_world(World(groups=3, sizes=(4, 4)), 3)
    numbered = made.calls.with_columns(turn_idx=pl.col("call_idx"))
    chosen = draw_groups(made.episodes.select("trajectory_id", "success", group="group_id"))
    assert align(chosen, made.turns.lazy(), numbered.lazy()).height == made.calls.height


def test_the_two_sides_are_shown_with_what_was_said_and_done(tmp_path: Path) -> None:
    diagnosis = api.traces(write_episodes(tmp_path, make(160, attempt)), keep_text=True)
    (first, *_) = diagnosis.partings
    for side, failed in ((first.success, False), (first.failure, True)):
        (place,) = [at for at, message in enumerate(side.messages) if message.mark]
        (call_,) = side.messages[place].calls
        assert call_.name == "book"
        assert call_.arguments
        assert side.messages[place + 1].failed is failed
        assert side.messages[0].text.startswith("Prompt ")
    at = [finding.id for finding in diagnosis.findings].index("parting-turn")
    shown = [example for example in diagnosis.examples if at in example.findings]
    assert shown
    assert all(any(message.mark for message in example.messages) for example in shown)


def test_no_text_is_shown_unless_texts_are_kept(tmp_path: Path) -> None:
    path = write_episodes(tmp_path, make(160, attempt))
    diagnosis = api.traces(path, out=tmp_path / "out")
    shown = [side for parting in diagnosis.partings for side in (parting.success, parting.failure)]
    for side in (*shown, *diagnosis.examples):
        assert side.messages
        assert not any(message.text for message in side.messages)
        assert not any(call.arguments for message in side.messages for call in message.calls)
    (first, *_) = diagnosis.partings
    (place,) = [at for at, message in enumerate(first.failure.messages) if message.mark]
    assert first.failure.messages[place].calls == (
        Call(name="book", failed=True, known_by="marked", error="no such table"),
    )
    assert first.failure.messages[place + 1].failed
    assert first.failure.messages[0].length == len("Prompt 0: book a table")
    assert "Prompt" not in render_traces(diagnosis).text
    assert api.traces(tmp_path / "out").partings == diagnosis.partings
    kept = api.traces(path, out=tmp_path / "out", keep_text=True)
    assert api.traces(tmp_path / "out").partings == kept.partings != diagnosis.partings
