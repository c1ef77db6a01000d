"""Token lists in JSON lines: what NeMo-RL, prime-rl and verifiers wrote is what comes out, token by token."""

from __future__ import annotations

import json
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from parser_samples import losses, parser_named, pieces_of, run_file, table
from samples_calls import jsonl
from samples_token_lines import (
    EPISODES,
    METADATA,
    NEMO,
    NODES,
    PRIME,
    RESULTS,
    VALIDATION,
    episode,
    node,
    prime_row,
)

from ptt.diagnostics.parsers import PARSERS, Context, run_files
from ptt.diagnostics.store.ingest import ingest
from ptt.diagnostics.store.scan import SequenceScan, read_table, scan_sequences

REPLAYS = Path(__file__).parents[1] / "fixtures" / "replays"


def sequences(path: Path, data: bytes | None = None) -> pl.DataFrame:
    if data is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return table(pieces_of(path), "sequences")


def scanned(run: Path, store: Path) -> SequenceScan:
    files, notes = run_files(run)
    manifest = ingest(files, notes=notes, parsers=PARSERS, folder=store, ptt_version="test")
    scan = scan_sequences(store, manifest, run)
    assert scan is not None
    return scan


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(jsonl(rows))
    return path


# NeMo-RL


def test_nemo_rows_begin_at_the_first_generated_token_and_end_at_their_own_length(tmp_path: Path) -> None:
    found = sequences(tmp_path / "train_data_step7.jsonl", jsonl(NEMO))
    assert found["step"].to_list() == [7, 7]
    assert found["sample_id"].to_list() == ["7-0", "7-1"]
    assert found["token_ids"].to_list() == [[7, 8, 9, 10, 11, 12], [13, 14]]
    assert found["model_mask"].to_list() == [[True, True, False, False, True, True], [True, True]]
    assert found["train_mask"].to_list() == [[True, True, False, False, True, True], [False, False]]
    assert found["rollout_logp"].to_list() == [[-0.5, -0.25, 0.0, 0.0, -1.0, -2.0], [-0.125, -0.75]]
    assert found["old_logp"].to_list() == [[-0.625, -0.25, -3.0, -4.0, -1.5, -2.0], [-0.125, -0.5]]
    assert found["reward"].to_list() == [1.0, 0.0]
    assert found["group_id"].n_unique() == 1  # both begin with tokens 5 and 6
    assert found["group_id"].null_count() == 0


def test_another_prompt_is_another_group_and_no_prompt_none(tmp_path: Path) -> None:
    other = {**NEMO[1], "token_ids": [[99, *NEMO[1]["token_ids"][0][1:]]]}
    bare = {**NEMO[1], "token_loss_mask": [[1.0] * 4 + [0.0] * 6]}
    found = sequences(tmp_path / "train_data_step7.jsonl", jsonl([NEMO[0], other, bare]))
    assert found["group_id"].n_unique() == 3
    assert found["group_id"].is_null().to_list() == [False, False, True]


def test_zero_prev_logprobs_are_no_logprobs(tmp_path: Path) -> None:
    rows = [{**row, "prev_logprobs": [[0.0] * 10]} for row in NEMO]
    path = tmp_path / "train_data_step7.jsonl"
    found = sequences(path, jsonl(rows))
    assert "old_logp" not in found.columns
    assert "force_on_policy_ratio=true" in losses(pieces_of(path))[2]


SPELLINGS = {
    "as NeMo-RL does": jsonl(NEMO),
    "no spaces": "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in NEMO).encode(),
    "keys in another order": "".join(json.dumps(dict(sorted(row.items()))) + "\n" for row in NEMO).encode(),
    "whole masks": jsonl([{**row, "token_loss_mask": [[int(m) for m in row["token_loss_mask"][0]]]} for row in NEMO]),
    "no last line end": jsonl(NEMO)[:-1],
    "an order of its own a line": (
        json.dumps(NEMO[0]) + "\n" + json.dumps(dict(reversed(NEMO[1].items()))) + "\n"
    ).encode(),
    "more keys": jsonl([{"agent_ref": {"name": 'a, "b": [[1]]'}, **row, "extra": [[[1, 2]]]} for row in NEMO]),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_however_it_is_spelt_a_row_means_the_same(tmp_path: Path, spelling: str) -> None:
    expected = sequences(tmp_path / "a" / "train_data_step7.jsonl", jsonl(NEMO))
    found = sequences(tmp_path / "b" / "train_data_step7.jsonl", SPELLINGS[spelling])
    assert found.select(expected.columns).equals(expected)


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "null"])
def test_a_logprob_that_is_no_number_costs_that_token_alone(tmp_path: Path, value: str) -> None:
    data = jsonl(NEMO).replace(b"-0.75", value.encode())
    found = sequences(tmp_path / "train_data_step7.jsonl", data)["rollout_logp"].to_list()
    assert found[0] == [-0.5, -0.25, 0.0, 0.0, -1.0, -2.0]
    assert found[1][0] == -0.125
    assert found[1][1] is None or not np.isfinite(found[1][1])


def test_rows_whose_lists_do_not_fit_or_hold_no_model_token_are_counted(tmp_path: Path) -> None:
    short = {**NEMO[1], "prev_logprobs": [[0.5]]}
    silent = {**NEMO[1], "token_loss_mask": [[0.0] * 10]}
    path = write(tmp_path / "train_data_step7.jsonl", [NEMO[0], short, silent])
    pieces = pieces_of(path)
    assert table(pieces, "sequences").height == 1
    rows, _, notes = losses(pieces)
    assert rows == 2
    assert "1 row skipped: a list is missing, or their lengths differ" in notes
    assert "1 row skipped: no token sampled by the model" in notes


def test_many_blocks_come_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ptt.diagnostics.parsers.io import lines as line_files

    rows = [{**NEMO[0], "idx": number} for number in range(3000)]
    path = write(tmp_path / "train_data_step7.jsonl", rows)
    whole = sequences(path)
    monkeypatch.setattr(line_files, "BLOCK_BYTES", 1 << 18)
    assert sequences(path)["sample_id"].to_list() == whole["sample_id"].to_list() == [f"7-{n}" for n in range(3000)]


def test_deep_nesting_and_lines_without_end_are_refused(tmp_path: Path) -> None:
    deep = b'{"token_ids": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
    found = tmp_path / "train_data_step7.jsonl"
    assert sequences(found, jsonl(NEMO) + deep).height == 2
    assert losses(pieces_of(found))[0] == 1


def test_a_null_in_nemos_mask_is_a_token_without_gradient(tmp_path: Path) -> None:
    rows = [row | {"token_loss_mask": [[*row["token_loss_mask"][0][:3], None, *row["token_loss_mask"][0][4:]]]}
            for row in NEMO]  # fmt: skip
    found = sequences(write(tmp_path / "train_data_step1.jsonl", rows))
    assert found.height == len(NEMO)
    assert [mask[1] for mask in found["train_mask"].to_list()] == [False, False]


def test_nemo_validation_is_an_evaluation(tmp_path: Path) -> None:
    pieces = pieces_of(write(tmp_path / "val_data_step7.jsonl", VALIDATION))
    told = table(pieces, "trajectories")
    assert told.select("step", "split").unique().row(0) == (7, "eval")
    assert told["reward"].to_list() == [1.0, 0.5]
    assert table(pieces, "turns")["role"].to_list() == ["user", "assistant"] * 2
    assert table(pieces, "evals").select("suite", "metric", "value", "n").row(0) == ("validation", "reward", 0.75, 2)


# prime-rl


def test_prime_rows_begin_at_the_first_trained_token_and_the_placeholder_is_null(tmp_path: Path) -> None:
    write(tmp_path / "step_3" / "rank_0.jsonl", PRIME)
    (tmp_path / "step_3" / "STABLE").touch()
    pieces = pieces_of(tmp_path / "step_3" / "rank_0.jsonl")
    found = table(pieces, "sequences")
    assert losses(pieces) == (0, 0, "")
    assert found["token_ids"].to_list() == [[3, 4, 5, 6], [7, 8, 9]]
    assert found["policy_logp"].to_list() == [[-0.5, 0.0, 0.0, -0.5], [None, -0.5, -0.5]]
    assert found["entropy"].to_list() == [[0.25] * 4, [None, 0.25, 0.25]]
    assert found["rollout_logp"].to_list() == [[-0.75, 0.0, 0.0, -0.75], [-0.75] * 3]
    assert found["env"].to_list() == ["calc", "calc"]
    assert "group_id" not in found.columns


def test_the_token_hash_is_blake2b_over_all_ids_as_little_endian_int32(tmp_path: Path) -> None:
    found = sequences(tmp_path / "rank_0.jsonl", jsonl(PRIME))
    data = b"".join(token.to_bytes(4, "little") for token in PRIME[0]["token_ids"])
    assert found["token_hash"][0] == int.from_bytes(blake2b(data, digest_size=8).digest(), "big")


def test_a_step_without_its_marker_is_read_and_said_to_be_doubtful(tmp_path: Path) -> None:
    path = write(tmp_path / "step_3" / "rank_0.jsonl", PRIME)
    pieces = pieces_of(path)
    assert table(pieces, "sequences").height == 2
    assert "no STABLE beside it" in losses(pieces)[2]


def test_the_step_of_the_run_goes_before_that_of_the_trainer(tmp_path: Path) -> None:
    rows = [{**row, "export_step": 5, "run_id": "b", "rewards": [0.75] * len(row["token_ids"])} for row in PRIME]
    found = sequences(tmp_path / "rank_0.jsonl", jsonl(rows))
    assert found["step"].to_list() == [5, 5]
    assert found["reward"].to_list() == [0.75, 0.75]


# verifiers


def test_a_path_through_the_message_graph_is_a_sequence(tmp_path: Path) -> None:
    pieces = pieces_of(write(tmp_path / "traces.jsonl", EPISODES))
    first = table(pieces, "sequences").row(0, named=True)
    assert first["token_ids"] == [3, 4, 5, 6]
    assert first["model_mask"] == [True, False, False, True]
    assert first["policy_logp"] == [-0.5, None, None, -1.0]
    assert first["rollout_logp"] == [-0.75, None, None, -0.75]
    assert first["tool_names"] == ["calc"]  # named by the call: the result says its id alone
    assert (first["step"], first["policy_version"], first["group_id"]) == (2, 1, "g0")
    assert first["reward"] == 0.75
    assert first["logp_kind"] == "rounded4"
    told = table(pieces, "trajectories").row(0, named=True)
    assert (told["n_turns"], told["n_tool_calls"], told["truncated"], told["split"]) == (2, 1, True, "train")
    assert told["token_hash"] == first["token_hash"]
    assert table(pieces, "tool_calls").select("name", "call_id", "result_len").row(0) == ("calc", "call_0", 11)
    assert table(pieces, "rewards").filter(pl.col("name") == "late")["score"].to_list() == [None, None]


def test_tokens_that_two_branches_share_count_once(tmp_path: Path) -> None:
    forked = [*NODES, node("assistant", 2, [7, 8], [0, 1], trainer_logprobs=[-0.25], advantages=[0.5])]
    found = sequences(tmp_path / "traces.jsonl", jsonl([episode("t", forked)]))
    assert found["sample_id"].to_list() == ["t/0", "t/1"]
    assert found["token_ids"].to_list() == [[3, 4, 5, 6], [3, 4, 5, 7, 8]]
    # token 3 stays, so that token 8 is seen to follow an observation; it was trained on once
    assert found["model_mask"].to_list()[1] == [True, False, False, False, True]
    assert found["train_mask"].to_list()[1] == [False, False, False, False, True]
    assert found["tool_names"].to_list() == [["calc"], ["calc"]]


def test_the_folder_names_the_step_and_effective_goes_before_all(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for kind in ("all", "effective"):
        write(run / "rollouts" / "step_9" / "train" / kind / "traces.jsonl", EPISODES)
    scan = scanned(run, tmp_path / "store")
    rows = scan.frame.collect()
    assert rows["step"].to_list() == [9, 9]
    notes = read_table(tmp_path / "store", "sources")
    assert "contains the same episodes" in notes.filter(pl.col("path").str.contains("/all/"))["note"].item()
    assert read_table(tmp_path / "store", "trajectories").height == 2


def test_episodes_of_an_evaluation_are_no_training_tokens(tmp_path: Path) -> None:
    run = {"type": "train", "id": "r", "work": {"type": "eval", "step": 2}}
    pieces = pieces_of(write(tmp_path / "traces.jsonl", [episode("t", NODES, run=run)]))
    assert table(pieces, "sequences").is_empty()
    assert table(pieces, "trajectories")["split"].to_list() == ["eval"]


DAMAGE: dict[str, dict[str, Any]] = {
    "a parent that comes later": {"parent": 3},
    "a parent that is itself": {"parent": 1},
    "lists of two lengths": {"mask": [True, True]},
    "too few logprobs": {"logprobs": [-1.0, -2.0]},
    "a text for a token": {"token_ids": ["3"]},
    "a token beyond 32 bits": {"token_ids": [1 << 40]},
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_graph_that_does_not_hold_together_is_lost_alone(tmp_path: Path, damage: str) -> None:
    nodes = [NODES[0], {**NODES[1], **DAMAGE[damage]}, *NODES[2:]]
    pieces = pieces_of(write(tmp_path / "traces.jsonl", [episode("bad", nodes), EPISODES[1]]))
    assert table(pieces, "sequences")["trajectory_id"].to_list() == ["t1"]
    assert losses(pieces)[0] == 1


def test_a_comb_of_branches_is_refused(tmp_path: Path) -> None:
    spine = [node("assistant", at - 1 if at else None, [at], [1]) for at in range(1000)]
    teeth = [node("assistant", at, [7], [1]) for at in range(999)]
    pieces = pieces_of(write(tmp_path / "traces.jsonl", [episode("comb", [*spine, *teeth])]))
    assert losses(pieces)[0] == 1


# verifiers up to 0.3


def test_older_results_give_texts_rewards_and_ends(tmp_path: Path) -> None:
    pieces = pieces_of(write(tmp_path / "results.jsonl", RESULTS))
    told = table(pieces, "trajectories")
    assert told["reward"].to_list() == [1.0, 0.0]
    assert told["n_tool_calls"].to_list() == [1, 0]
    assert told["error_type"].to_list() == [None, "Timeout"]
    assert told["split"].unique().to_list() == ["eval"]
    assert table(pieces, "tool_calls").select("name", "result_len").row(0) == ("calc", 1)


def test_metadata_gives_evaluations(tmp_path: Path) -> None:
    path = tmp_path / "metadata.json"
    path.write_text(json.dumps(METADATA))
    found = table(pieces_of(path), "evals")
    assert dict(found.select("metric", "value").iter_rows()) == {"reward": 0.5, "correct": 0.5, "pass@1": 0.5}
    assert found.select("suite", "model", "n", "temperature", "max_tokens").unique().row(0) == (
        "calc", "tiny", 2, 0.7, 64,
    )  # fmt: skip


# two sources of the same samples


def _both(run: Path, repeats: int = 1) -> None:
    ids = [token for one in NODES for token in one["token_ids"]]
    exports = [prime_row(number, ids, [False, False, True, False, False, True]) for number in range(repeats)]
    exports.append(prime_row(repeats, [9, 9, 9], [False, True, True]))
    write(run / "token_exports" / "step_3" / "rank_0.jsonl", exports)
    (run / "token_exports" / "step_3" / "STABLE").touch()
    episodes = [episode(f"t{number}", NODES, group={"id": f"g{number}"}) for number in range(repeats)]
    write(run / "rollouts" / "step_3" / "train" / "effective" / "traces.jsonl", episodes)


def test_an_export_takes_reward_group_and_version_from_the_trace_of_the_same_tokens(tmp_path: Path) -> None:
    _both(tmp_path / "run")
    scan = scanned(tmp_path / "run", tmp_path / "store")
    rows = scan.frame.collect()
    assert rows["seq"].to_list() == [0, 1]
    assert rows["reward"].to_list() == [0.75, None]
    assert rows["trajectory_id"].to_list() == ["t0", None]
    assert rows["tool_names"].to_list() == [["calc"], None]
    assert rows["policy_version"].to_list() == [1, None]
    assert rows["policy_logp"].to_list()[0] == [-0.5, 0.0, 0.0, -0.5]  # the export's, not the rounded ones
    assert {"reward", "group_id", "trajectory_id", "tool_names", "policy_version"} <= scan.columns
    assert scan.rows == 2
    assert "Of 2 sequences, 1 also occur" in scan.notes[1]
    assert "does not round them" in scan.notes[0]


def test_samples_with_the_same_tokens_are_paired_in_their_order(tmp_path: Path) -> None:
    _both(tmp_path / "run", repeats=3)
    rows = scanned(tmp_path / "run", tmp_path / "store").frame.collect()
    assert rows["trajectory_id"].to_list() == ["t0", "t1", "t2", None]
    assert rows.height == 4


def test_without_a_second_source_nothing_is_joined(tmp_path: Path) -> None:
    write(tmp_path / "run" / "token_exports" / "step_3" / "rank_0.jsonl", PRIME)
    scan = scanned(tmp_path / "run", tmp_path / "store")
    assert scan.notes == ()
    assert "JOIN" not in scan.frame.explain()


# the baseline run, replayed through the frameworks' own writers


@pytest.mark.parametrize(
    ("replay", "pair", "digits"),
    [
        ("nemo_rl/train_data_step1.jsonl", ("old_logp", "rollout_logp"), 1e-7),
        ("prime_rl/token_exports/step_1/rank_0.jsonl", ("policy_logp", "rollout_logp"), 1e-7),
        *((f"verifiers/rollouts/step_{step}/traces.jsonl", ("policy_logp", "ref_logp"), 6e-5) for step in (1, 41, 681)),
    ],
)
def test_a_replay_gives_the_numbers_of_the_run(replay: str, pair: tuple[str, str], digits: float) -> None:
    baseline = pl.read_parquet(REPLAYS / "baseline.parquet")
    recorded = {(row["step"], *row["token_ids"]): row for row in baseline.iter_rows(named=True)}
    found = sequences(REPLAYS / replay)
    assert found.height == 4
    for row in found.iter_rows(named=True):
        expected = recorded[(row["step"], *row["token_ids"])]
        assert row["model_mask"] == expected["model_mask"]
        model = np.array(row["model_mask"])
        for name in pair:
            mine, theirs = (np.array(side[name], np.float64)[model] for side in (row, expected))
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=digits)
        if row.get("reward") is not None:
            assert row["reward"] == pytest.approx(expected["reward"], abs=1e-6)


def test_two_replays_of_one_step_agree() -> None:
    nemo = sequences(REPLAYS / "nemo_rl" / "train_data_step700.jsonl")
    prime = sequences(REPLAYS / "prime_rl" / "token_exports" / "step_700" / "rank_0.jsonl")
    for name in ("token_ids", "model_mask", "rollout_logp"):
        assert nemo[name].to_list() == prime[name].to_list()


def test_frameworks_are_named(tmp_path: Path) -> None:
    for rel, name in (("a/train_data_step1.jsonl", "nemo-rl"), ("b/rank_0.jsonl", "prime-rl")):
        path = write(tmp_path / rel, NEMO if name == "nemo-rl" else PRIME)
        assert Context(facts={"framework": name}) in pieces_of(path)
    assert parser_named("prime_tokens").recognises(run_file(tmp_path / "b" / "rank_0.jsonl"))
