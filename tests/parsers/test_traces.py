"""Rollout texts and traces: what each reader makes of its format, value by value, and of input that is out to harm."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
import samples_traces as made
from parser_samples import losses, parser_named, pieces_of, run_file, table
from samples_calls import jsonl
from samples_traces import TRACES, document, exports, span, zip_file

from ptt.diagnostics.parsers import PARSERS, Context, Piece, RunFile


def read(folder: Path, rel: str, data: bytes, *, keep_text: bool = False) -> list[Piece]:
    path = folder / rel
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    file = RunFile(path=path, rel=rel, size=len(data), keep_text=keep_text)
    name, *others = [parser.name for parser in PARSERS if parser.recognises(file)]
    assert all(parser_named(other).general for other in others)
    return list(parser_named(name).read(file))


def facts(pieces: list[Piece]) -> dict[str, Any]:
    return {key: value for piece in pieces if isinstance(piece, Context) for key, value in piece.facts.items()}


def rewards(pieces: list[Piece]) -> set[tuple[str, float | None]]:
    return set(table(pieces, "rewards").select("name", "score").rows())


def evals(pieces: list[Piece]) -> dict[tuple[str, str], tuple[Any, ...]]:
    found = table(pieces, "evals")
    return {(row["suite"], row["metric"]): (row["step"], row["value"], row["n"]) for row in found.to_dicts()}


def calls(pieces: list[Piece], *columns: str) -> list[tuple[Any, ...]]:
    return table(pieces, "tool_calls").sort("trajectory_id", "call_idx").select(columns).rows()


def test_verl_rollouts_hold_reward_components_and_unknown_turns(tmp_path: Path) -> None:
    found = read(tmp_path, "rollouts/5.jsonl", jsonl(made.VERL_ROLLOUTS))
    rows = table(found, "trajectories")
    assert rows["step"].to_list() == [5, 5]
    assert rows["split"].to_list() == ["train", "train"]
    assert rows["reward"][0] == 1.0
    assert math.isnan(rows["reward"][1])
    assert rows["n_tool_calls"].to_list() == [None, None]  # roles are lost in these texts: unknown, not none
    assert rows["prompt_hash"].n_unique() == 1
    assert rewards(found) == {("acc", 1.0), ("acc", 0.0), ("format", 0.5)}  # `pred` is a text that looks like a number
    assert table(found, "evals").is_empty()
    assert facts(found) == {"framework": "verl"}


def test_verl_uids_name_sample_and_group(tmp_path: Path) -> None:
    rows = table(read(tmp_path, "anything/6.jsonl", jsonl(made.VERL_UIDS)), "trajectories")
    assert rows["sample_id"].to_list() == ["p-1_0_0", "p-1_1_0"]
    assert rows["group_id"].to_list() == ["p-1", "p-1"]
    assert rows["n_turns"].to_list() == [2, 2]  # of four turns with the prompt
    assert rows["split"].unique().to_list() == ["unknown"]


@pytest.mark.parametrize("folder", ["validation", "my_val_data", "dumped"])
def test_verl_validation_is_an_evaluation(tmp_path: Path, folder: str) -> None:
    found = read(tmp_path, f"{folder}/5.jsonl", jsonl(made.VERL_VALIDATION))
    assert set(table(found, "trajectories")["split"]) == {"eval"}
    assert evals(found)["validation", "score"] == (5, 0.5, 3)
    assert evals(found)["validation", "acc"] == (5, pytest.approx(2 / 3), 3)


def test_skyrl_scores_of_tokens_are_summed_and_its_figures_kept(tmp_path: Path) -> None:
    folder = "dumped_evals/global_step_8_evals"
    found = read(tmp_path, f"{folder}/openai_gsm8k.jsonl", jsonl(made.SKYRL_EVALS))
    rows = table(found, "trajectories")
    assert rows.select("step", "reward", "truncated").rows() == [(8, 1.0, False), (8, 0.5, True)]
    assert evals(found) == {("openai/gsm8k", "score"): (8, 0.75, 2)}
    figures = evals(read(tmp_path, f"{folder}/aggregated_results.jsonl", jsonl(made.SKYRL_FIGURES)))
    assert figures["all", "pass_at_2"] == (8, 1.0, None)
    assert figures["openai/gsm8k", "avg_score"] == (8, 0.75, None)
    only = read(tmp_path, "dumped_evals/eval_only/x.jsonl", jsonl(made.SKYRL_EVALS))
    assert table(only, "trajectories")["step"].to_list() == [None, None]


def test_areal_takes_the_tail_version_and_not_the_head(tmp_path: Path) -> None:
    rows = table(read(tmp_path, "rollout/7/3.jsonl", jsonl(made.AREAL_ROLLOUTS)), "trajectories")
    columns = ("step", "policy_version", "group_id", "split", "reward")
    assert rows.select(columns).rows() == [(7, 7, "3", "train", 0.0), (7, 7, "3", "train", 1.0)]
    found = read(tmp_path, "eval-rollout/7/3.jsonl", jsonl(made.AREAL_ROLLOUTS))
    assert evals(found) == {("eval-rollout", "reward"): (7, 0.5, 2)}


def test_roll_columns_become_rows_and_uneven_ones_are_told(tmp_path: Path) -> None:
    name = "rollout_dump_data.step_4.jsonl"
    rows = table(read(tmp_path, name, jsonl([made.ROLL_ROLLOUTS])), "trajectories")
    assert rows.select("step", "reward", "group_id", "env").rows() == [
        (4, 1.0, "0", "math_rule"),
        (4, 0.0, "0", "math_rule"),
    ]
    short = read(tmp_path, name, jsonl([made.ROLL_ROLLOUTS | {"scores": [1.0]}]))
    assert table(short, "trajectories")["reward"].to_list() == [None, None]  # no telling whose it is
    assert losses(short)[0] == 1


def test_swift_steps_are_texts_and_a_repeated_buffer_counts_once(tmp_path: Path) -> None:
    found = read(tmp_path, "completions.jsonl", jsonl([*made.SWIFT_COMPLETIONS, made.SWIFT_REPEAT]))
    rows = table(found, "trajectories")
    assert rows.select("step", "reward", "advantage").rows() == [(3, 1.5, 0.7), (3, 0.0, -0.7), (4, 1.5, 0.3)]
    assert ("Format", None) in rewards(found)
    megatron = {("gen_step" if key == "step" else key): value for key, value in made.SWIFT_COMPLETIONS[0].items()}
    assert table(read(tmp_path, "completions.jsonl", jsonl([megatron])), "trajectories")["step"].to_list() == [3, 3]
    alike = {key: [value[0]] * 2 for key, value in made.SWIFT_COMPLETIONS[0].items()}
    assert table(read(tmp_path, "completions.jsonl", jsonl([alike, alike])), "trajectories").height == 2


@pytest.mark.parametrize(("rel", "step"), [("art_0003.parquet", 3), ("art_0002.jsonl", 2)])
def test_art_trajectories_by_its_own_writers(tmp_path: Path, rel: str, step: int) -> None:
    name = f"trajectories/val/{rel.removeprefix('art_')}"
    found = read(tmp_path, name, (TRACES / rel).read_bytes())
    rows = table(found, "trajectories")
    columns = ("step", "split", "reward", "n_turns", "n_tool_calls", "n_tool_fail")
    assert rows.select(columns).rows() == [(step, "eval", 1.0, 2, 1, 0), (step, "eval", 0.0, 1, 0, 0)]
    assert rewards(found) == {("right", 1.0), ("right", 0.0), ("short", 1.0)}
    assert calls(found, "name", "args_json", "call_id", "ok", "turn_idx") == [
        ("add", '{"a": 1, "b": 2}', "c1", True, 2)
    ]
    assert evals(found)["val", "reward"] == (step, 0.5, 2)
    assert rows["prompt_hash"].n_unique() == 1


@pytest.mark.parametrize("name", ["sums.eval", "sums.json"])
def test_inspect_logs_by_its_own_writer(name: str) -> None:
    found = pieces_of(TRACES / name)
    assert losses(found) == (0, 0, "")
    figures = table(found, "evals").select("suite", "model", "metric", "value", "n", "temperature", "max_tokens")
    assert figures.rows() == [
        ("sums", "mockllm/model", "includes/accuracy", 0.5, 2, 0.5, 64),
        ("sums", "mockllm/model", "includes/stderr", 0.5, 2, 0.5, 64),
    ]
    rows = table(found, "trajectories").select(
        "sample_id", "reward", "success", "n_turns", "n_tool_fail", "stop_reason"
    )
    assert rows.rows() == [("one/1", 1.0, True, 2, 0, "stop"), ("two/1", 0.0, False, 2, 1, "stop")]
    got = table(found, "tool_calls").sort("ok")
    assert got.select("name", "ok", "ok_source", "error_type").rows() == [
        ("add", False, "error_field", "unknown"),
        ("add", True, "error_field", None),
    ]
    assert got["latency_s"].is_between(0, 1).all()
    assert got["args_json"].to_list() == ['{"a": -1, "b": 2}', '{"a": 1, "b": 2}']


@pytest.mark.parametrize("method", [0, 93])
def test_an_inspect_log_that_was_cut_keeps_the_members_before(tmp_path: Path, method: int) -> None:
    data = made.inspect_zip(method)
    whole = read(tmp_path, "a.eval", data)
    assert table(whole, "trajectories").select("step", "truncated", "stop_reason").rows() == [(40, True, "max_tokens")]
    cut = read(tmp_path, "a.eval", data[: data.rindex(b"header.json", 0, data.index(b"PK\x01\x02"))])
    assert (
        table(cut, "trajectories")["trajectory_id"].to_list() == table(whole, "trajectories")["trajectory_id"].to_list()
    )
    assert table(cut, "evals").is_empty()
    assert "is cut or damaged" in losses(cut)[2]


def test_swe_agent_commands_are_calls_whose_success_is_a_guess(tmp_path: Path) -> None:
    found = read(tmp_path, "i-1/i-1.traj", document(made.SWE))
    assert calls(found, "name", "ok", "ok_source", "latency_s") == [
        ("ls", True, "heuristic", 0.25),
        ("pyton", False, "heuristic", None),
        ("submit", True, "heuristic", 0.5),
    ]
    (row,) = table(found, "trajectories").to_dicts()
    assert (row["group_id"], row["stop_reason"], row["n_turns"], row["success"]) == ("i-1", "submitted", 3, None)
    attempts = {"attempts": [made.SWE, made.SWE], "info": {}, "trajectory": made.SWE["trajectory"]}
    assert table(read(tmp_path, "i-1/i-1.traj", document(attempts)), "trajectories").height == 2


def test_tau_bench_pairs_by_id_and_knows_errors_by_their_text(tmp_path: Path) -> None:
    found = read(tmp_path, "results_x.json", document(made.TAU))
    assert sorted(calls(found, "call_id", "ok", "ok_source")) == [("c1", False, "error_text"), ("c2", True, "unknown")]
    rows = table(found, "trajectories").select("group_id", "reward", "success", "n_turns")
    assert rows.rows() == [("2", 0.0, False, 3), ("2", 1.0, True, 1)]
    assert evals(found) == {("tau-bench", "reward"): (None, 0.5, 2)}


def test_tau2_takes_the_flag_pairs_out_of_order_and_leaves_the_user_s_calls_out(tmp_path: Path) -> None:
    found = read(tmp_path, "results.json", document(made.TAU2))
    assert calls(found, "call_id", "ok", "ok_source") == [("a1", True, "flag"), ("a2", False, "flag")]
    (row,) = table(found, "trajectories").to_dicts()
    assert (row["env"], row["reward"], row["success"], row["truncated"]) == ("telecom", 0.5, False, True)
    assert rewards(found) == {("DB", 1.0), ("COMMUNICATE", 0.5)}
    figures = table(found, "evals").select("suite", "model", "value", "n", "temperature")
    assert figures.rows() == [("telecom", "some-model", 0.5, 1, 0.5)]
    turns = table(found, "turns")
    assert turns["n_tokens"].to_list()[0] == 3
    assert turns["t_end"].drop_nulls().to_list() == [1767323046.0]


def test_a_torn_tau2_file_keeps_the_simulations_before_the_tear(tmp_path: Path) -> None:
    data = document(made.TAU2 | {"simulations": [made.SIMULATION, made.SIMULATION | {"id": "s-9"}]})
    found = read(tmp_path, "results.json", data[:-40])
    assert table(found, "trajectories").height == 1
    assert losses(found)[0] == 1
    assert "is torn or damaged" in losses(found)[2]


def test_agent_episodes_of_the_toolkit_may_be_interleaved(tmp_path: Path) -> None:
    found = read(tmp_path, "run.jsonl", jsonl(made.EPISODES))
    rows = table(found, "trajectories").sort("sample_id")
    columns = ("sample_id", "reward", "success", "n_turns", "n_tool_calls", "n_tool_fail", "error_type")
    assert rows.select(columns).rows() == [
        ("e1", 0.5, True, 3, 2, 1, None),
        ("e2", None, None, 1, 0, 0, "tool_parse_error"),
    ]
    outcomes = {(name, args, ok) for name, args, ok in calls(found, "name", "args_json", "ok")}
    assert outcomes == {("search", '{"q": "x"}', False), ("search", '{"q": "y"}', True), (None, "{{", None)}
    assert rows["step"].to_list() == [None, None]  # its `step` numbers the lines of an episode


@pytest.mark.parametrize("rel", ["spans.json", "traces.jsonl"])
def test_spans_give_turns_calls_latencies_and_evaluations(tmp_path: Path, rel: str) -> None:
    two = [exports(made.SPANS[3:]), exports(made.SPANS[:3])]  # exporters keep no order of time
    found = read(tmp_path, rel, jsonl(two) if rel.endswith("l") else document(exports(made.SPANS)), keep_text=True)
    assert calls(found, "name", "ok", "ok_source", "error_type", "latency_s", "turn_idx") == [
        ("add", True, "flag", None, pytest.approx(0.25, rel=1e-12), 0),
        ("div", False, "error_field", "ZeroDivisionError", pytest.approx(0.02, rel=1e-12), 0),
    ]
    turns = table(found, "turns")
    said = [(7, None, ""), (None, 4, "sum?"), (9, 7, "it is 3")]  # of the first call no text was recorded
    assert turns.select("n_tokens", "text_len", "text").rows() == said
    assert (turns["t_end"] - turns["t_start"]).drop_nulls().to_list() == [
        pytest.approx(0.1, abs=1e-6),
        pytest.approx(0.19, abs=1e-6),
    ]
    assert evals(found) == {("gen_ai.evaluation", "right"): (None, 0.5, 1)}
    (row,) = table(found, "trajectories").to_dicts()
    assert row["prompt_hash"] is not None
    assert row["n_tool_fail"] == 1


def test_spans_of_anything_else_are_no_trajectories(tmp_path: Path) -> None:
    found = read(tmp_path, "spans.json", document(exports([span("GET /", 0, 5, http__method="GET")])))
    assert found == []


def test_texts_are_kept_only_on_request(tmp_path: Path) -> None:
    for rel, (_, data) in made.TRACE_SAMPLES.items():
        turns = table(read(tmp_path, rel, data), "turns")
        assert turns.is_empty() or turns["text"].null_count() == turns.height, rel
    kept = table(read(tmp_path, "rollouts/5.jsonl", jsonl(made.VERL_ROLLOUTS), keep_text=True), "turns")
    assert kept["text"].to_list() == ["4", "5"]


DEEP = b"[" * 100_000


@pytest.mark.parametrize(
    ("rel", "data"),
    [
        ("results.json", b'{"timestamp": "", "info": {"agent_info": {}}, "simulations": [' + DEEP),
        ("runs.json", b'[{"task_id": 1, "reward": ' + DEEP),
        ("a/a.traj", b'{"trajectory": [{"action": ' + DEEP),
        ("log.json", b'{"status": "", "eval": {"run_id": ' + DEEP),
        ("spans.json", b'{"resourceSpans": ' + DEEP),
        ("spans.jsonl", b'{"resourceSpans": ' + DEEP + b"\n"),
        ("rollout_dump_data.step_1.jsonl", b'{"responses": ' + DEEP + b"\n"),
        ("a.eval", zip_file({"header.json": b"{}", "samples/a_epoch_1.json": b'{"messages": ' + DEEP})),
    ],
)
def test_json_nested_100000_deep_is_refused_at_once(tmp_path: Path, rel: str, data: bytes) -> None:
    start = time.process_time()
    found = read(tmp_path, rel, data)
    assert time.process_time() - start < 2
    assert losses(found)[2]
    assert table(found, "trajectories").is_empty()


@pytest.mark.parametrize("depth", [100, 300, 600, 900, 950, 990])
def test_nesting_that_can_be_read_but_not_spelt_out_again_does_not_raise(tmp_path: Path, depth: int) -> None:
    nested = b"[" * depth + b"]" * depth
    runs = b'[{"task_id": 1, "reward": 1, "info": {}, "traj": [{"role": "user", "content": ' + nested + b"}]}]"
    found = read(tmp_path, "runs.json", runs)
    assert table(found, "trajectories").height == 1 or losses(found)[0] == 1


BOMBS = """
import sys, time, resource
sys.path.insert(0, "tests")
from pathlib import Path
from parser_samples import parser_named, run_file, losses, table
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
path = Path(sys.argv[1])
start = time.process_time()
found = list(parser_named(sys.argv[2]).read(run_file(path)))
print(time.process_time() - start, table(found, "trajectories").height, losses(found)[2])
"""


def _in_child(path: Path, parser: str) -> str:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", textwrap.dedent(BOMBS), str(path), parser]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=root, check=False)
    assert done.returncode == 0, done.stderr
    seconds, rows, note = done.stdout.strip().split(" ", 2)
    assert float(seconds) < 60
    assert rows == "0"
    return note


@pytest.mark.slow
@pytest.mark.parametrize("lie", [False, True])
def test_a_zip_bomb_is_refused_whatever_size_it_claims(tmp_path: Path, lie: bool) -> None:
    data = zip_file({"header.json": b"{}", "samples/a_epoch_1.json": b" " * (300 << 20)})
    if lie:
        data = data.replace((300 << 20).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    path = tmp_path / "bomb.eval"
    path.write_bytes(data)
    note = _in_child(path, "inspect_log")
    assert ("is damaged" if lie else "is larger than 256 MB") in note


@pytest.mark.slow
def test_a_document_larger_than_the_cap_is_not_held(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    with path.open("wb") as handle:
        handle.write(b'{"info": {"agent_info": {}}, "timestamp": "')
        handle.seek(1 << 30)
        handle.write(b'"}')
    assert "contains more than 512 MB" in _in_child(path, "tau_bench")


@pytest.mark.slow
def test_a_line_of_a_gigabyte_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "1.jsonl"
    with path.open("wb") as handle:
        handle.write(b'{"input": "')
        handle.seek(1 << 30)
        handle.write(b'"}\n')
    assert "contains a line of 1024 MB" in _in_child(path, "verl_rollouts")


@pytest.mark.slow
def test_a_document_of_nothing_but_brackets_is_not_built(tmp_path: Path) -> None:
    path = tmp_path / "runs.json"
    path.write_bytes(b'[{"task_id": 1, "reward": [' + b"[]," * 30_000_000 + b"[]]}]")
    assert "it was not read" in _in_child(path, "tau_bench")


HOSTILE: list[Any] = [None, True, -1, 2**70, 1e400, "x", "\ud800", [], {}, [None], [{"role": 1}], {"a": {"b": []}}]


@pytest.mark.slow
@pytest.mark.parametrize("rel", [rel for rel, (_, data) in made.TRACE_SAMPLES.items() if data[:1] in (b"{", b"[")])
def test_any_value_in_any_place_is_read_or_lost_but_never_raised(tmp_path: Path, rel: str) -> None:
    name, data = made.TRACE_SAMPLES[rel]
    whole = [json.loads(line) for line in data.splitlines() if line]
    for path in _places(whole[0]):
        for value in HOSTILE:
            changed = json.loads(json.dumps(whole))
            _put(changed[0], path, value)
            target = tmp_path / Path(rel).name
            target.write_bytes(jsonl(changed))
            for piece in parser_named(name).read(run_file(target, rel)):
                assert piece is not None


def _places(found: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    return [place for key, value in inside for place in [(*above, key), *_places(value, (*above, key))]]


def _put(found: Any, path: tuple[Any, ...], value: Any) -> None:
    for key in path[:-1]:
        found = found[key]
    found[path[-1]] = value


def test_a_zip_directory_that_would_fill_the_machine_is_not_read(tmp_path: Path) -> None:
    entry = b"PK\x01\x02" + bytes(42)
    path = tmp_path / "a.eval"
    local = zip_file({"header.json": b"{}"}).partition(b"PK\x01\x02")[0]
    with path.open("wb") as handle:
        handle.write(local)
        for _ in range(64):
            handle.write(entry * (1 << 15))
        end = (len(entry) << 21).to_bytes(4, "little") + len(local).to_bytes(4, "little")
        handle.write(b"PK\x05\x06" + bytes(8) + end + bytes(2))
    assert "is cut or damaged" in _in_child(path, "inspect_log")


@pytest.mark.slow
def test_long_conversations_take_no_more_than_their_length(tmp_path: Path) -> None:
    """Calls that results answer in the opposite order, by ids that are there, wrong, or for calls without any."""
    number = 50_000
    asked = [{"id": str(at), "name": "f", "arguments": {}} for at in range(number)]
    answers = [{"role": "tool", "tool_call_id": str(at), "content": ""} for at in reversed(range(-number // 2, number))]
    nameless = [{"role": "assistant", "tool_calls": [{"name": "f"} for _ in asked]}, *answers]
    runs = [{"task_id": 1, "reward": 1, "info": {}, "traj": [{"role": "assistant", "tool_calls": asked}, *answers]}]
    start = time.process_time()
    found = read(tmp_path, "runs.json", document([*runs, runs[0] | {"traj": nameless}]))
    assert table(found, "tool_calls")["ok"].to_list() == [True] * (2 * number)
    spans = [span("chat", at, at + 1, gen_ai__operation__name="chat") for at in range(1, 5_000)]
    tools = [span("t", at, at + 1, gen_ai__operation__name="execute_tool") for at in range(1, 5_000)]
    assert table(read(tmp_path, "spans.json", document(exports(tools + spans))), "tool_calls").height == 4_999
    assert time.process_time() - start < 30


@pytest.mark.slow
def test_a_zip_file_whose_members_lie_on_top_of_each_other_is_not_unpacked(tmp_path: Path) -> None:
    packed = zip_file({"samples/00000_epoch_1.json": b" " * (200 << 20)})
    at = packed.index(b"PK\x01\x02")
    local, listed = packed[:at], packed[at : packed.rindex(b"PK\x05\x06")]
    count = 1000
    listing = b"".join(listed.replace(b"/00000_", b"/%05d_" % number) for number in range(count))
    end = count.to_bytes(2, "little") * 2 + len(listing).to_bytes(4, "little") + len(local).to_bytes(4, "little")
    path = tmp_path / "bomb.eval"
    path.write_bytes(local + listing + b"PK\x05\x06" + bytes(4) + end + bytes(2))
    assert "is cut or damaged" in _in_child(path, "inspect_log")


def test_an_inspect_log_with_a_damaged_directory_is_read_member_by_member(tmp_path: Path) -> None:
    data = bytearray(made.inspect_zip())
    at = data.rfind(b"samples/one")  # of the directory; the other stands before the member
    data[at : at + 7] = b"sbmples"
    path = tmp_path / "sums.eval"
    path.write_bytes(data)
    found = pieces_of(path, "inspect_log")
    assert table(found, "trajectories").height == 1
    assert losses(found)[0] == 1
    data = data.replace(b"samples/one", b"sbmples/one")  # in both places
    path.write_bytes(data)
    found = pieces_of(path, "inspect_log")
    assert losses(found)[0] == 1
    assert "Inspect writes no such name" in losses(found)[2]
