"""The values that come out are the values that were written, NaN and null included."""

from __future__ import annotations

import json
import math
import struct
import time
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from parser_samples import (
    COMPLETIONS,
    HISTORY,
    MICROSOFT,
    SCALARS,
    SEQUENCE_ROWS,
    losses,
    parser_named,
    pieces_of,
    run_file,
    table,
    takers,
    tf_record_ends,
)
from samples_calls import jsonl

from ptt.diagnostics.budget_limits import DEFAULT_LIMITS, MB
from ptt.diagnostics.parsers import Context, InPlace, Lost, Piece, Rows, metrics_jsonl, tensorboard
from ptt.diagnostics.parsers.io import lines
from ptt.diagnostics.parsers.io.tool_calls import calls_of
from ptt.diagnostics.schema import METRICS, Flag

NAN_IS_PROTOBUFS = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def metric(pieces: list[Piece], name: str, step: int) -> tuple[float | None, Flag]:
    rows = table(pieces, "metrics").filter(pl.col("name_raw") == name, pl.col("step") == step).sort("seq")
    return rows["value"][-1], Flag(rows["flag"][-1])


def facts(pieces: list[Piece]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for piece in pieces:
        if isinstance(piece, Context):
            merged |= piece.facts
    return merged


def written(tmp_path: Path, name: str, data: bytes | str) -> Path:
    path = tmp_path / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


# --- TensorBoard -----------------------------------------------------------------------------------------


@NAN_IS_PROTOBUFS
def test_scalars_equal_what_tensorboard_itself_reads_back(samples: dict[str, Path]) -> None:
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    path = samples["runs/events.out.tfevents.1700000000.host.1.0"]
    theirs = [
        (event.step, value.tag, value.simple_value, event.wall_time)
        for event in LegacyEventFileLoader(str(path)).Load()
        for value in event.summary.value
    ]
    frame = table(pieces_of(path), "metrics")
    flags = {Flag.NAN: math.nan, Flag.POS_INF: math.inf, Flag.NEG_INF: -math.inf}
    ours = [
        (step, tag, flags.get(Flag(flag), value), wall_time)
        for step, tag, value, flag, wall_time in frame.select("step", "name_raw", "value", "flag", "wall_time").rows()
    ]
    assert str(ours) == str(theirs)  # as text, since NaN equals nothing
    assert len(ours) == len(SCALARS)


@NAN_IS_PROTOBUFS
def test_tensors_of_one_number_are_scalars_and_others_are_ignored(tmp_path: Path) -> None:
    from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2
    from tensorboard.summary.writer.record_writer import RecordWriter

    shape = tensor_shape_pb2.TensorShapeProto
    tensors = {
        "float": tensor_pb2.TensorProto(dtype=types_pb2.DT_FLOAT, float_val=[0.5]),
        "double": tensor_pb2.TensorProto(dtype=types_pb2.DT_DOUBLE, double_val=[0.1]),
        "content": tensor_pb2.TensorProto(dtype=types_pb2.DT_FLOAT, tensor_content=struct.pack("<f", 0.25)),
        "text": tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=[b"hello"]),
        "two": tensor_pb2.TensorProto(dtype=types_pb2.DT_FLOAT, float_val=[0.5, 0.5]),
        "filled": tensor_pb2.TensorProto(
            dtype=types_pb2.DT_FLOAT, float_val=[0.5], tensor_shape=shape(dim=[shape.Dim(size=3)])
        ),
    }
    values = [summary_pb2.Summary.Value(tag=tag, tensor=tensor) for tag, tensor in tensors.items()]
    path = tmp_path / "events.out.tfevents.1"
    with path.open("wb") as handle:
        summary = summary_pb2.Summary(value=values)
        RecordWriter(handle).write(event_pb2.Event(step=-1, summary=summary).SerializeToString())
    frame = table(pieces_of(path), "metrics")
    assert frame.select("step", "name_raw", "value").rows() == [
        (-1, "float", 0.5),
        (-1, "double", 0.1),
        (-1, "content", 0.25),
    ]


@NAN_IS_PROTOBUFS
def test_a_damaged_record_costs_itself_and_a_damaged_length_costs_the_rest(
    samples: dict[str, Path], tmp_path: Path
) -> None:
    data = samples["runs/events.out.tfevents.1700000000.host.1.0"].read_bytes()
    ends = tf_record_ends(data)
    payload, length = bytearray(data), bytearray(data)
    payload[ends[1] + 12 + 20] ^= 1
    length[ends[1] + 2] ^= 1
    one = pieces_of(written(tmp_path, "events.out.tfevents.1", bytes(payload)))
    assert table(one, "metrics").height == len(SCALARS) - 1
    assert losses(one)[0] == 1
    assert "checksum" in losses(one)[2]
    rest = pieces_of(written(tmp_path, "events.out.tfevents.2", bytes(length)))
    assert table(rest, "metrics").height == 1
    assert losses(rest)[1] == len(data) - ends[1]


@NAN_IS_PROTOBUFS
def test_records_of_every_length_pass_their_checksums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.summary.writer.record_writer import RecordWriter

    monkeypatch.setattr(tensorboard, "BATCH_BYTES", 3000)
    sizes = [1, 50, 3000, 4095, 4096, 4097, 8192, 20_000, 2]
    path = tmp_path / "events.out.tfevents.1"
    with path.open("wb") as handle:
        writer = RecordWriter(handle)
        for step, size in enumerate(sizes):
            value = summary_pb2.Summary.Value(tag="x" * size, simple_value=0.5)
            summary = summary_pb2.Summary(value=[value])
            writer.write(event_pb2.Event(step=step, summary=summary).SerializeToString())
    pieces = pieces_of(path)
    assert table(pieces, "metrics")["name_raw"].str.len_chars().to_list() == sizes
    assert losses(pieces) == (0, 0, "")


@NAN_IS_PROTOBUFS
def test_a_megabyte_of_events_takes_well_under_a_second(tmp_path: Path) -> None:
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.summary.writer.record_writer import RecordWriter

    path = tmp_path / "events.out.tfevents.1"
    with path.open("wb") as handle:
        writer = RecordWriter(handle)
        for step in range(300):
            value = summary_pb2.Summary.Value(tag=f"train/{'x' * (step % 40)}", simple_value=step)
            event = event_pb2.Event(wall_time=1.7e9, step=step, summary=summary_pb2.Summary(value=[value]))
            writer.write(event.SerializeToString())
    path.write_bytes(path.read_bytes() * (1_000_000 // path.stat().st_size))
    begin = time.perf_counter()
    pieces = pieces_of(path)
    assert time.perf_counter() - begin < 1.5  # 0.1 s here; the slack is for busy machines
    assert table(pieces, "metrics").height > 10_000


# --- Hugging Face ----------------------------------------------------------------------------------------


def test_the_log_history_comes_out_with_eval_rows_and_flags(samples: dict[str, Path]) -> None:
    pieces = pieces_of(samples["checkpoint-2/trainer_state.json"])
    frame = table(pieces, "metrics")
    assert frame.height == sum(len(row) - 1 for row in HISTORY)
    assert dict(frame.schema) == METRICS
    assert metric(pieces, "loss", 1) == (0.25, Flag.FINITE)
    assert metric(pieces, "grad_norm", 2) == (None, Flag.NAN)
    assert metric(pieces, "kl", 2) == (None, Flag.POS_INF)
    assert metric(pieces, "loss", 2) == (None, Flag.NULL_IN_SOURCE)
    by_name = {row["name_raw"]: row for row in frame.to_dicts()}
    assert (by_name["eval_loss"]["split"], by_name["eval_loss"]["name"]) == ("eval", "eval/loss")
    assert (by_name["loss"]["split"], by_name["loss"]["name"]) == ("train", "loss/total")
    assert by_name["train_loss"]["name"] is None
    assert facts(pieces) == {
        "framework": "trl",
        "global_step": 2,
        "max_steps": 2,
        "logging_steps": 1,
        "train_runtime": 3.5,
    }


@pytest.mark.parametrize(
    ("names", "framework"),
    [
        (["loss", "grad_norm"], "transformers"),
        (["loss", "mean_token_accuracy"], "trl"),
        (["loss", "rewards/margins"], "trl"),
        (["accuracy", "min_reward"], "trl"),
        (["reward", "completions/mean_length"], "trl"),
        (["objective/rlhf_reward"], "trl"),
    ],
)
def test_trl_is_told_by_the_names_only_it_logs(tmp_path: Path, names: list[str], framework: str) -> None:
    state = {"log_history": [{"step": 1, **dict.fromkeys(names, 0.5)}]}
    pieces = pieces_of(written(tmp_path, "trainer_state.json", json.dumps(state)))
    assert facts(pieces) == {"framework": framework}


def test_a_torn_state_gives_its_complete_rows(samples: dict[str, Path], tmp_path: Path) -> None:
    text = samples["checkpoint-2/trainer_state.json"].read_text()
    cut = text.index('"eval_reward"')
    pieces = pieces_of(written(tmp_path, "trainer_state.json", text[:cut]))
    assert table(pieces, "metrics")["seq"].unique().to_list() == [0, 1]
    lost_rows, lost_bytes, note = losses(pieces)
    assert (lost_rows, lost_bytes) == (1, cut - text.index("{", text.index('"step": 2')))
    assert "2 complete rows" in note
    assert facts(pieces)["global_step"] == 2


def test_damage_inside_a_state_costs_the_row_it_hits(samples: dict[str, Path], tmp_path: Path) -> None:
    text = samples["checkpoint-2/trainer_state.json"].read_text().replace('"loss": null', '"loss": nu!l')
    pieces = pieces_of(written(tmp_path, "trainer_state.json", text))
    assert table(pieces, "metrics")["seq"].n_unique() == len(HISTORY) - 1
    assert losses(pieces)[0] == 1


# --- completions -----------------------------------------------------------------------------------------


def test_calls_and_results_are_paired_in_order_and_failures_are_told_by_their_text(
    samples: dict[str, Path],
) -> None:
    pieces = pieces_of(samples["completions/completions_00003.parquet"])
    calls = table(pieces, "tool_calls").select(
        "turn_idx", "call_idx", "name", "args_json", "result_len", "ok", "ok_source"
    )
    assert calls.rows() == [
        (0, 0, "add", '{"a": 1, "b": 2}', 1, True, "unknown"),
        (0, 1, "nope", '{"key": "x"}', 33, False, "error_text"),
    ]
    first = table(pieces, "trajectories").row(0, named=True)
    assert {key: first[key] for key in ("step", "split", "reward", "advantage")} == {
        "step": 3,
        "split": "unknown",
        "reward": 1.0,
        "advantage": 0.5,
    }
    assert (first["n_turns"], first["n_tool_calls"], first["n_tool_fail"]) == (2, 2, 1)
    assert table(pieces, "turns")["role"].to_list()[:4] == ["assistant", "tool", "tool", "assistant"]
    assert set(table(pieces, "rewards")["name"]) == {
        "right",
        "format",
    }  # `kind` and `advantage` are no rewards


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("Tool look not found.", "unknown_tool"),
        ("look() missing 1 required positional argument: 'key'", "invalid_arguments"),
        ("Env.look() got an unexpected keyword argument 'kye'", "invalid_arguments"),
        ("invalid arguments: JSON could not be parsed", "invalid_arguments"),
        ("could not parse the tool call", "invalid_arguments"),
        ("read() missing 1 required positional argument: 'file'", None),  # inside of the tool
        ("Expecting value: line 1 column 1 (char 0)", None),  # a server's answer may be no JSON
        ("the service did not answer", None),
        ("page not found", None),
    ],
)
def test_a_call_that_could_not_be_made_is_told_from_one_that_failed(said: str, kind: str | None) -> None:
    request = {"type": "function", "function": {"name": "look", "arguments": {}}}
    told: list[dict[str, Any]] = [
        {"role": "assistant", "content": "", "tool_calls": [request]},
        {"role": "tool", "name": "look", "content": str({"error": said})},
    ]
    (call,) = calls_of(told)
    assert (call["ok"], call["error_type"]) == (False, kind)


def test_twins_in_one_file_are_kept_and_the_same_file_repeated_later_collapses(
    samples: dict[str, Path], tmp_path: Path
) -> None:
    ids = table(pieces_of(samples["completions/completions_00003.parquet"]), "trajectories")["trajectory_id"]
    assert ids.n_unique() == len(COMPLETIONS)
    assert ids[2] == f"{ids[1]}-1"
    later = tmp_path / "completions_00004.parquet"
    pq.write_table(pa.Table.from_pylist([row | {"step": 4} for row in COMPLETIONS]), later)
    assert table(pieces_of(later), "trajectories")["trajectory_id"].to_list() == ids.to_list()


def test_plain_text_completions_are_one_turn(tmp_path: Path) -> None:
    path = tmp_path / "completions_00001.parquet"
    pq.write_table(pa.table({"step": [1], "prompt": ["p"], "completion": ["some words"], "f": [0.5]}), path)
    pieces = pieces_of(path)
    assert table(pieces, "turns").select("turn_idx", "role", "text_len").rows() == [(0, "assistant", 10)]
    assert table(pieces, "trajectories")["n_turns"].to_list() == [1]


def test_no_text_of_a_sample_reaches_a_table(samples: dict[str, Path]) -> None:
    for piece in pieces_of(samples["completions/completions_00003.parquet"]):
        if isinstance(piece, Rows):
            assert "it is 3" not in str(piece.frame.to_dicts())
            assert "what is" not in str(piece.frame.to_dicts())


# --- JSON lines ------------------------------------------------------------------------------------------


def test_verl_rows_carry_their_null_and_their_framework(samples: dict[str, Path]) -> None:
    pieces = pieces_of(samples["verl/run.jsonl"])
    assert metric(pieces, "actor/grad_norm", 1) == (None, Flag.NULL_IN_SOURCE)
    assert metric(pieces, "actor/grad_norm", 2) == (1.5, Flag.FINITE)
    assert metric(pieces, "training/global_step", 2) == (2.0, Flag.FINITE)
    assert facts(pieces) == {"framework": "verl"}


def test_prime_rl_rows_carry_their_time(samples: dict[str, Path]) -> None:
    pieces = pieces_of(samples["prime/metrics.jsonl"])
    frame = table(pieces, "metrics")
    assert sorted(frame["name_raw"]) == ["loss/mean", "mismatch_kl/all/mean", "optim/grad_norm"]
    assert frame.filter(name_raw="mismatch_kl/all/mean")["wall_time"].to_list() == [1.7e9 + 1]
    assert facts(pieces) == {"framework": "prime-rl"}


@pytest.mark.parametrize("rel", ["flat.jsonl.gz", "flat.jsonl.zst"])
def test_every_spelling_of_a_non_number_has_its_flag(samples: dict[str, Path], rel: str) -> None:
    pieces = pieces_of(samples[rel])
    assert metric(pieces, "loss", 1) == (0.5, Flag.FINITE)
    assert metric(pieces, "loss", 2) == (None, Flag.NAN)
    assert metric(pieces, "loss", 3) == (None, Flag.NAN)
    assert metric(pieces, "kl", 3) == (None, Flag.NEG_INF)
    assert metric(pieces, "entropy", 3) == (None, Flag.NULL_IN_SOURCE)
    assert metric(pieces, "done", 1) == (1.0, Flag.FINITE)
    assert metric(pieces, "nested/depth/x", 1) == (2.0, Flag.FINITE)
    assert {"run", "histogram"}.isdisjoint(table(pieces, "metrics")["name_raw"])


MIXED: list[list[dict[str, Any]]] = [
    [{"step": 1, "a": 1, "b": {"c": 2.5}}, {"step": 2, "a": 1.5, "on": True}],
    [{"step": 1, "time": 1.7e9, "a": 1}, {"step": 1, "time": 1.8e9, "b": 2, "who": "me"}],
    [{"step": 1, "data": {"x": 1, "training/global_step": 7}}],
    [{"_step": 9, "train/global_step": 4, "loss": 0.5, "_timestamp": 1.7e9}],
    [{"step": 1, "a": 1}, {"step": 2, "a": "NaN"}],
    [{"step": 1, "a": 1}, {"step": 2, "a": "inf"}, {"step": "3/9", "a": 2}],
    [{"step": 1, "a": 1}, {"global_step": 2, "a": 2}],
    [{"step": 1.0, "a": 1}, {"step": 2, "a": 10**400}],
    [{"step": 1, "a": True}, {"step": 2, "a": 3}],
    [{"step": 1, "a": {"b": 1}}, {"step": 2, "a": 3}],
    [{"step": 1, "a/b": 1, "a": {"b": 2}}],
    [{"step": 1, "data": {"metrics": {"x": 1}, "y": 2}}],
    [{"step": 1, "a": {"data": {"x": 1}}}],
    [{"step": 1, "timestamp": STAMP, "a": 2} for STAMP in ("2026-01-02T03:04:05Z", "2026-01-02T03:04:06")],
    [{"step": 2**40, "a": 2**60}, {"step": -1, "a": -1}],
]


@pytest.mark.parametrize("rows", MIXED)
def test_the_quick_way_gives_what_the_slow_way_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[dict[str, Any]]
) -> None:
    path = written(tmp_path, "metrics.jsonl", jsonl(rows))
    quick = pieces_of(path)
    monkeypatch.setattr(metrics_jsonl, "fast_block", lambda *_, **__: None)
    slow = pieces_of(path)
    order = ["seq", "name_raw"]
    assert table(quick, "metrics").sort(order).equals(table(slow, "metrics").sort(order))
    assert facts(quick) == facts(slow)


@pytest.mark.parametrize("twice", ['"a": 1, "a": 2', '"b": {"a": 1, "a": 2}', '"b": {"a": 1}, "b": {"a": 2}'])
def test_the_last_of_two_values_under_one_key_counts(tmp_path: Path, twice: str) -> None:
    lines = [f'{{"step": {step}, {twice}}}' for step in range(1, 4)]
    found = table(pieces_of(written(tmp_path, "metrics.jsonl", "\n".join(lines).encode() + b"\n")), "metrics")
    assert found["value"].to_list() == [2.0] * 3


def test_lone_surrogates_and_byte_order_marks_do_no_harm(tmp_path: Path) -> None:
    data = b"\xef\xbb\xbf" + b'{"step": 1, "lo\\udc00ss": 0.5, "kl": null}\n{"step": 2, "kl": 1}\r\n'
    pieces = pieces_of(written(tmp_path, "metrics.jsonl", data))
    assert table(pieces, "metrics").select("step", "name_raw").rows() == [(1, "lo?ss"), (1, "kl"), (2, "kl")]
    assert losses(pieces) == (0, 0, "")


def test_lines_that_are_no_log_call_are_counted_by_their_kind(tmp_path: Path) -> None:
    data = jsonl([{"step": 1, "loss": 1.0}] * 4) + b"Traceback\n" + jsonl([{"done": True}])
    pieces = pieces_of(written(tmp_path, "metrics.jsonl", data))
    assert table(pieces, "metrics").height == 4
    assert losses(pieces)[0] == 2
    assert "1 line skipped: not a JSON object" in losses(pieces)[2]
    assert "1 row skipped: no training step" in losses(pieces)[2]


def test_small_blocks_change_nothing(samples: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["verl/run.jsonl", "flat.jsonl.gz", "flat.jsonl.zst", "wide.csv", "tokens/step_000001.jsonl"]
    whole = [pieces_of(samples[name]) for name in names]
    monkeypatch.setattr(lines, "BLOCK_BYTES", 8)
    monkeypatch.setattr(lines, "PIECE_BYTES", 7)
    order = {"metrics": ["seq", "name_raw"], "sequences": ["step"]}
    for name, expected in zip(names, whole, strict=True):
        cut = list(parser_named(takers(run_file(samples[name]))[0]).read(run_file(samples[name])))
        for kind, columns in order.items():
            if table(expected, kind).height:
                assert table(cut, kind).sort(columns).equals(table(expected, kind).sort(columns)), name
        assert losses(cut) == (0, 0, "")


def test_a_line_too_long_to_hold_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LINE_SHARE", DEFAULT_LIMITS.memory_mb * MB // 1000)
    monkeypatch.setattr(lines, "PIECE_BYTES", 64)
    long = b'{"step": 2, "x": "' + b"y" * 5000 + b'"}\n'
    data = jsonl([{"step": 1, "loss": 1.0}]) + long + jsonl([{"step": 3, "loss": 3.0}])
    pieces = pieces_of(written(tmp_path, "metrics.jsonl", data), "metrics_jsonl")
    assert table(pieces, "metrics")["step"].to_list() == [1, 3]
    assert losses(pieces)[:2] == (1, len(long))


def test_text_that_unpacks_beyond_the_limit_is_not_read_to_its_end(
    samples: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "TOTAL_BYTES", 10)
    pieces = pieces_of(samples["flat.jsonl.gz"], "metrics_jsonl")
    assert "the rest was not read" in losses(pieces)[2]


# --- Microsoft -------------------------------------------------------------------------------------------


def test_microsofts_rows_keep_their_names_and_lose_the_run_mean(samples: dict[str, Path]) -> None:
    pieces = pieces_of(samples["ptt_run/metrics.jsonl"])
    assert metric(pieces, "grpo_loss", 2) == (0.125, Flag.FINITE)
    assert metric(pieces, "kl", 2) == (None, Flag.POS_INF)
    names = table(pieces, "metrics").select("name_raw", "name").unique().sort("name_raw").rows()
    assert names == [("grpo_loss", "loss/total"), ("kl", "kl/ref"), ("reward_mean", "reward/mean")]
    assert facts(pieces) == {"framework": "microsoft-ptt", "algorithm": "grpo", "status": "completed"}


def test_what_microsoft_calls_reward_in_a_preference_run_is_not_named_so(tmp_path: Path) -> None:
    header = MICROSOFT[0] | {"trainer_type": "dpo"}
    row = MICROSOFT[1] | {"metrics": {"reward_std": 0.5, "reward_margin": 0.5, "world_size": 2, "kl_mean": 0.1}}
    pieces = pieces_of(written(tmp_path, "metrics.jsonl", jsonl([header, row])))
    names = dict(table(pieces, "metrics").select("name_raw", "name").rows())
    assert names == {
        "reward_std": None,
        "reward_margin": "dpo/margin",
        "world_size": None,
        "kl_mean": "kl/ref",
    }


MICROSOFTS_NAMES: dict[str, dict[str, str | None]] = {
    "dpo": {
        "dpo_loss": "loss/total",
        "win_rate": "dpo/accuracy",
        "reward_margin": "dpo/margin",
        "logps_chosen": "dpo/logp_chosen",
        "logps_rejected": "dpo/logp_rejected",
        "rewards_chosen": "dpo/reward_chosen",
        "rewards_rejected": "dpo/reward_rejected",
        "logprobs": None,  # the chosen ones once more
        "reward_mean": None,  # the reward of the chosen answers
        "reward_std": None,  # the margin
    },
    "orpo": {
        "orpo_loss": "loss/total",
        "sft_loss": None,  # a part of it
        "odds_ratio_loss": None,
        "log_odds_ratio": "orpo/log_odds_ratio",
        "win_rate": "dpo/accuracy",
        "reward_std": None,
    },
    "kto": {
        "kto_loss": "loss/total",
        "kl": "kl/ref",
        "desirable_loss": "kto/desirable_loss",
        "undesirable_loss": "kto/undesirable_loss",
        "reward_std": None,
    },
    "cpo": {"cpo_loss": "loss/total", "nll_loss": None, "win_rate": "dpo/accuracy", "reward_mean": None},
    "sft": {"sft_loss": "loss/total", "perplexity": "sft/perplexity", "accuracy": None},
    "ppo": {
        "ppo_loss": "loss/total",
        "policy_loss": "loss/policy",
        "value_loss": "critic/value_loss",
        "entropy": "entropy",
        "clip_fraction": "clip/frac",
        "approx_kl": "kl/old",
        "reward_mean": "reward/mean",
        "advantages_std": "advantage/std",
        "value_mean": "critic/value_mean",
        "returns_mean": "critic/return_mean",
    },
    "grpo": {
        "grpo_loss": "loss/total",
        "group_reward_mean": None,  # reward_mean once more
        "group_reward_std": "reward/std",
        "completion_length": "len/response_mean",
        "kl": "kl/ref",
        "reward_mean": "reward/mean",
    },
}


@pytest.mark.parametrize("trainer", MICROSOFTS_NAMES)
@pytest.mark.parametrize("suffix", ["", "_mean"], ids=["one rank", "several"])
@pytest.mark.parametrize("header", [True, False], ids=["header", "rows alone"])
def test_microsofts_names_mean_what_the_trainer_makes_them_mean(
    tmp_path: Path, trainer: str, suffix: str, header: bool
) -> None:
    expected = MICROSOFTS_NAMES[trainer]
    ranks = {"world_size": 2} if suffix else {}
    row = MICROSOFT[1] | {"metrics": {name + suffix: 0.5 for name in expected} | ranks}
    head = [MICROSOFT[0] | {"trainer_type": trainer}] if header else []
    pieces = pieces_of(written(tmp_path, "metrics.jsonl", jsonl([*head, row, row])))
    names = dict(table(pieces, "metrics").select("name_raw", "name").rows())
    names.pop("world_size", None)
    assert names == {name + suffix: meaning for name, meaning in expected.items()}


def test_microsofts_blocks_of_rows_alone_read_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "metrics.jsonl", jsonl(MICROSOFT))
    whole = table(pieces_of(path), "metrics")
    monkeypatch.setattr(lines, "BLOCK_BYTES", 8)
    monkeypatch.setattr(lines, "PIECE_BYTES", 150)
    parts = table(pieces_of(path), "metrics")
    first = parts.filter(pl.col("seq") < 2).sort("seq", "name_raw")
    assert first.equals(whole.filter(pl.col("seq") < 2).sort("seq", "name_raw"))


# --- CSV -------------------------------------------------------------------------------------------------


def test_a_wide_table_gives_a_row_a_cell_and_nothing_for_empty_ones(samples: dict[str, Path]) -> None:
    pieces = pieces_of(samples["wide.csv"])
    assert table(pieces, "metrics").height == 5
    assert metric(pieces, "loss", 1) == (0.5, Flag.FINITE)
    assert metric(pieces, "kl", 1) == (None, Flag.NAN)
    assert metric(pieces, "loss", 3) == (None, Flag.NEG_INF)
    assert losses(pieces) == (0, 0, "")


def test_a_long_table_gives_a_row_a_line(samples: dict[str, Path]) -> None:
    pieces = pieces_of(samples["long.tsv"])
    assert table(pieces, "metrics").height == 3
    assert metric(pieces, "kl", 1) == (None, Flag.NAN)
    assert metric(pieces, "loss", 2) == (0.25, Flag.FINITE)


def test_quotes_times_and_integral_floats_are_understood(tmp_path: Path) -> None:
    text = '"Step";"Wall time";"loss, total"\r\n1.0;1700000000.5;"0.5"\r\n2.0;1700000001;0.25'
    pieces = pieces_of(written(tmp_path, "export.csv", text))
    frame = table(pieces, "metrics").select("step", "name_raw", "value", "wall_time")
    assert frame.rows() == [(1, "loss, total", 0.5, 1700000000.5), (2, "loss, total", 0.25, 1700000001.0)]


def test_a_torn_or_wrong_row_of_a_table_is_counted(tmp_path: Path) -> None:
    text = "step,loss,kl\n1,0.5,0.1\nx,0.5,0.1\n2,oops,0.1\n3,0.5,0.1\n4,0.2"
    pieces = pieces_of(written(tmp_path, "metrics.csv", text))
    assert sorted(table(pieces, "metrics")["step"]) == [1, 1, 2, 3, 3]
    assert losses(pieces)[:2] == (3, len("4,0.2"))


def test_a_stray_quote_costs_no_more_than_its_line(tmp_path: Path) -> None:
    rows = "".join(f"{step},0.5\n" for step in range(2, 9))
    pieces = pieces_of(written(tmp_path, "metrics.csv", f'step,loss\n1,0.5\n"7,0.5\n{rows}'))
    assert set(range(2, 9)) <= set(table(pieces, "metrics")["step"])


# --- recorder --------------------------------------------------------------------------------------------


def test_recorder_lines_keep_null_and_nan_apart(samples: dict[str, Path], tmp_path: Path) -> None:
    frame = table(pieces_of(samples["tokens/step_000001.jsonl"]), "sequences")
    assert frame["policy_logp"].to_list() == [row["policy_logp"] for row in SEQUENCE_ROWS]
    assert "advantage" not in frame.columns
    nan = [SEQUENCE_ROWS[0] | {"ref_logp": [math.nan, None, -math.inf, 1], "model_mask": [1, 0, 0, 1]}]
    odd = table(pieces_of(written(tmp_path, "rows.jsonl", jsonl(nan))), "sequences")
    first, second, third, fourth = odd["ref_logp"].to_list()[0]
    assert math.isnan(first)
    assert (second, third, fourth) == (None, -math.inf, 1.0)
    assert odd["model_mask"].to_list() == [[True, False, False, True]]


def test_recorder_lines_read_alike_whichever_way_they_take(tmp_path: Path) -> None:
    rows = [row | {"model_mask": [1, 0, 0, 1], "sample_id": 7, "policy_version": [3, 3]} for row in SEQUENCE_ROWS]
    quick = table(pieces_of(written(tmp_path, "a.jsonl", jsonl(rows))), "sequences")
    slow = table(pieces_of(written(tmp_path, "b.jsonl", jsonl(rows) + b"nonsense\n")), "sequences")
    assert quick.select(sorted(quick.columns)).equals(slow.select(sorted(slow.columns)))
    assert quick["sample_id"].to_list() == ["7", "7"]
    assert "policy_version" not in quick.columns


def test_a_torn_archive_gives_what_could_be_decoded(samples: dict[str, Path], tmp_path: Path) -> None:
    dice = [{"step": step, "loss": math.sin(step)} for step in range(5000)]
    import gzip

    packed = gzip.compress(jsonl(dice), mtime=0)
    pieces = pieces_of(written(tmp_path, "a.jsonl.gz", packed[: len(packed) // 2]))
    assert 2000 < table(pieces, "metrics").height < 3000
    assert "gzip stream" in losses(pieces)[2]
    frames = [pa.compress(jsonl(dice[at : at + 500]), codec="zstd", asbytes=True) for at in range(0, 5000, 500)]
    packed = b"".join(frames)
    pieces = pieces_of(written(tmp_path, "a.jsonl.zst", packed[: len(packed) // 2]))
    assert 2000 <= table(pieces, "metrics").height < 3000
    assert "zstd stream" in losses(pieces)[2]
    pieces = pieces_of(written(tmp_path, "b.jsonl.zst", packed))
    assert table(pieces, "metrics").height == 5000


def recorder_pieces(tmp_path: Path, columns: dict[str, Any]) -> list[Piece]:
    path = tmp_path / "step_000001.parquet"
    pq.write_table(pa.table(columns), path)
    assert takers(run_file(path)) == ["recorder"]
    return pieces_of(path)


def test_recorder_columns_of_a_usable_type_are_listed(tmp_path: Path) -> None:
    columns = {
        "step": pa.array([1], pa.int32()),
        "sample_id": pa.array(["a"]).dictionary_encode(),
        "model_mask": pa.array([[1, 0]], pa.list_(pa.uint8())),
        "policy_logp": pa.array([[0.5, 0.5]], pa.large_list(pa.float64())),
        "ref_logp": pa.array([[0.5, 0.5]], pa.list_(pa.float32(), 2)),
        "old_logp": pa.array([[None, None]], pa.list_(pa.string())),
        "advantage": pa.array([0.5]),
        "surprise": pa.array(["x"]),
    }
    pieces = recorder_pieces(tmp_path, columns)
    assert [piece for piece in pieces if isinstance(piece, InPlace)] == [
        InPlace(
            rows=1,
            columns=("step", "sample_id", "model_mask", "policy_logp", "ref_logp"),
            texts=("sample_id", "old_logp", "surprise"),
        )
    ]
    assert [piece for piece in pieces if isinstance(piece, Lost)] == [
        Lost(note="step_000001.parquet: column old_logp is list<element: string>, not list<float>; it was left out.")
    ]


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("model_mask", [["yes"]], "no usable model_mask"),
        ("step", ["one"], "no usable step"),
    ],
)
def test_a_recorder_file_without_what_it_must_hold_is_lost(
    tmp_path: Path, column: str, value: list[Any], reason: str
) -> None:
    good = {"step": [1], "model_mask": [[True]], "policy_logp": [[0.5]], "ref_logp": [[0.5]]}
    pieces = recorder_pieces(tmp_path, good | {column: value})
    assert not any(isinstance(piece, InPlace) for piece in pieces)
    lost_rows, lost_bytes, note = losses(pieces)
    assert lost_rows == 1
    assert lost_bytes > 0
    assert reason in note


def test_a_recorder_file_cut_while_being_written_says_so(samples: dict[str, Path], tmp_path: Path) -> None:
    data = samples["tokens/step_000001.parquet"].read_bytes()
    path = written(tmp_path, "step_000001.parquet", data[:-9])
    assert takers(run_file(path)) == ["recorder"]
    lost_rows, lost_bytes, note = losses(pieces_of(path))
    assert (lost_rows, lost_bytes) == (0, len(data) - 9)
    assert "footer missing: the file was cut while being written" in note
