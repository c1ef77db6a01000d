"""`ptt show`: what it prints of a sample equals what the run recorded, whatever format that is in."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from html_structure import page_with
from judged_runs import opened_run
from parser_samples import SAMPLES, pieces_of, table
from shared_folder import shared_folder
from slow_cases import first_fast
from typer.testing import CliRunner, Result

import ptt
from ptt.cli.app import app
from ptt.diagnostics.schema import LOGPS

RUN = Path(__file__).parents[1] / "sample_logs" / "tool_tail_growth"
Show = Callable[..., Result]
LISTS = ("token_ids", "model_mask", "train_mask", *LOGPS, "entropy", "advantage")
HOSTILE = "<b>\x1b[31mred\x1b[0m \u202etxt.exe \u2066 a\x07"
KEY = "AKIA" + "Z7QKDWRX3MNP5TVB"


@pytest.fixture
def show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Show:
    """Run `ptt show` in this process, in a folder of the test's own."""
    monkeypatch.chdir(tmp_path)
    return lambda *args: CliRunner().invoke(app, ["show", *map(str, args)])


def document(done: Result) -> dict[str, Any]:
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def of_sample(show: Show, *words: str) -> dict[str, Any]:
    """Show something of the sample run from the store that other tests have judged."""
    opened_run(RUN.name)
    return document(show(RUN, *words, "--json", "--out", shared_folder() / RUN.name))


def recorder_run(folder: Path, **changes: Any) -> Path:
    """Write two steps of four sequences, two of a prompt group, with one observation each."""
    rows = []
    for number in range(8):
        mask = [True] * 6 + [False] * 5 + [True] * 6
        row = {
            "step": 1 + number // 4,
            "sample_id": f"s{number}",
            "group_id": f"g{number // 2}",
            "reward": 0.5 * (number % 2),
            "token_ids": list(range(100, 117)),
            "model_mask": mask,
            "policy_logp": [-0.1 * (at + 1) for at in range(17)],
            "ref_logp": [-0.1 * (at + 1) - (3.0 if at == 12 else 0.01) for at in range(17)],
        }
        rows.append({**row, **{name: change(number) for name, change in changes.items()}})
    lists = dict.fromkeys(("policy_logp", "ref_logp"), pl.List(pl.Float32)) | {"token_ids": pl.List(pl.Int32)}
    frame = pl.DataFrame(rows, schema_overrides=lists)
    (folder / "tokens").mkdir(parents=True)
    for (step,), part in frame.group_by("step", maintain_order=True):
        part.write_parquet(folder / "tokens" / f"step_{step:06d}.parquet")
    return folder


def write_samples(run: Path, text: str) -> None:
    (run / "completions").mkdir()
    call = {"type": "function", "function": {"name": "lookup", "arguments": {"key": text}}}
    rows = [
        {
            "step": 1,
            "sample_id": f"s{number}",
            "prompt": [{"role": "user", "content": "?"}],
            "completion": [
                {"role": "assistant", "content": "", "tool_calls": [call]},
                {"role": "tool", "content": f"found {text}", "tool_calls": None},
                {"role": "assistant", "content": f"answer {number} {text}", "tool_calls": None},
            ],
            "right": 1.0,
            "advantage": 0.25,
        }
        for number in range(4)
    ]
    pl.DataFrame(rows).write_parquet(run / "completions" / "completions_00001.parquet")


def write_tokenizer(run: Path, words: dict[int, str], **more: Any) -> None:
    model = {"type": "BPE", "vocab": {word: number for number, word in words.items()}}
    (run / "tokenizer.json").write_text(json.dumps({"model": model, "decoder": {"type": "ByteLevel"}, **more}))


def test_the_top_sample_of_the_tail_equals_its_dump(show: Show) -> None:
    listed = of_sample(show)["findings"]
    tail = next(finding for finding in listed if finding["finding"] == "tool-tail-growth")
    top = tail["samples"][0]
    assert top["chosen"] == "highest"
    found = of_sample(show, top["key"])
    step, row = map(int, top["key"].split(":"))
    recorded = pl.read_parquet(RUN / "tokens" / f"step_{step:06d}.parquet").row(row, named=True)
    for name in ("model_mask", "policy_logp", "ref_logp"):
        assert found["tokens"][name] == recorded[name]
    assert found["values"]["reward"] == recorded["reward"]
    r = np.array(recorded["policy_logp"], float) - np.array(recorded["ref_logp"], float)
    sampled = np.array(recorded["model_mask"])
    assert [value for value in found["tokens"]["r"] if value is not None] == r[sampled].tolist()
    assert max(abs(r[sampled])) == top["value"]
    group = pl.read_parquet(RUN / "tokens" / f"step_{step:06d}.parquet").with_row_index()
    group = group.filter(pl.col("group_id") == recorded["group_id"])
    assert [sibling["key"] for sibling in found["group"]] == [f"{step}:{at}" for at in group["index"]]
    assert [sibling["reward"] for sibling in found["group"]] == group["reward"].to_list()


def test_the_printed_logprobs_read_back_as_recorded(show: Show) -> None:
    done = show(RUN, "513:20", "--all")
    recorded = pl.read_parquet(RUN / "tokens" / "step_000513.parquet").row(20, named=True)
    lines = [line.split() for line in done.stdout.splitlines() if "text-only " in line or "post-tool " in line]
    printed = {int(line[0]): (line[2], line[3]) for line in lines if line[0].isdigit() and len(line) > 4}
    assert len(printed) == sum(recorded["model_mask"])
    for at, (policy, ref) in printed.items():
        assert np.float32(policy) == np.float32(recorded["policy_logp"][at])
        assert np.float32(ref) == np.float32(recorded["ref_logp"][at])


def test_the_largest_ratios_come_first_and_carry_marks(show: Show, tmp_path: Path) -> None:
    done = show(recorder_run(tmp_path / "run"), "s1")
    assert "positions 8 to 16, |r| up to 3" in done.stdout
    (line,) = [line for line in done.stdout.splitlines() if line.endswith("**")]
    assert line.split()[0] == "12"
    assert "\x1b" not in done.stdout
    assert "--all prints all 17 tokens" in done.stdout


@pytest.mark.parametrize("rel", first_fast(SAMPLES, 20))
def test_each_token_format_gives_what_its_parser_reads(show: Show, samples: dict[str, Path], rel: str) -> None:
    path = samples[rel]
    sequences = table(pieces_of(path, SAMPLES[rel][0]), "sequences")
    if SAMPLES[rel][0] == "recorder":
        sequences = pl.read_parquet(path)
    for number, row in enumerate(sequences.to_dicts()):
        found = document(show(path, f"{path.name}:{number}", "--json"))
        tokens = {"token_ids" if name == "token_id" else name: values for name, values in found["tokens"].items()}
        odd = found["not_finite"]
        for name in LISTS:
            if isinstance(row.get(name), list):
                expected = [None if value is None or not math.isfinite(value) else value for value in row[name]]
                assert tokens[name] == expected
                nans = {str(at) for at, value in enumerate(row[name]) if value is not None and math.isnan(value)}
                assert {at for at, value in odd.get(name, {}).items() if value == "nan"} == nans
        for name in ("reward", "group_id", "sample_id", "policy_version"):
            if row.get(name) is not None:
                assert found["values"][name] == row[name]


def test_names_by_id_by_step_and_by_file_are_one_sample(show: Show, tmp_path: Path) -> None:
    run = recorder_run(tmp_path / "run")
    answers = [show(run, name, "--json").stdout for name in ("s5", "2:1", "tokens/step_000002.parquet:1")]
    assert len(set(answers)) == 1
    assert json.loads(answers[0])["key"] == "2:1"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("s55", "s5"),
        ("2:4", "rows 0 to 3"),
        ("7:0", "nearest step is 2"),
        ("g1", "1:2, 1:3"),
        ("tokens/step_000002.parquet:9", "rows 0 to 3"),
        ("nothing like it", "names look like s0"),
    ],
)
def test_an_unknown_name_gets_near_ones_and_code_2(show: Show, tmp_path: Path, name: str, says: str) -> None:
    done = show(recorder_run(tmp_path / "run"), name)
    assert done.exit_code == 2
    assert says in done.stderr


def test_an_id_of_several_sequences_names_them(show: Show, tmp_path: Path) -> None:
    done = show(recorder_run(tmp_path / "run", sample_id=lambda number: str(number % 4)), "3")
    assert done.exit_code == 2
    assert "1:3, 2:3" in done.stderr


def test_what_cannot_be_read_ends_with_5(show: Show, tmp_path: Path) -> None:
    assert show(tmp_path / "none", "1:0").exit_code == 5
    (tmp_path / "findings.json").write_text("{}")
    assert show(tmp_path / "findings.json", "1:0").exit_code == 5


def test_an_unknown_pair_is_wrong_usage(show: Show, tmp_path: Path) -> None:
    done = show(recorder_run(tmp_path / "run"), "s1", "--pair", "old/rollut")
    assert done.exit_code == 2
    assert "old/rollout" in done.stderr


def test_a_pair_that_is_not_recorded_says_what_records_it(show: Show, tmp_path: Path) -> None:
    done = show(recorder_run(tmp_path / "run"), "s1", "--pair", "old/rollout")
    assert done.exit_code == 0
    assert "no old_logp and rollout_logp" in " ".join(done.stdout.split())
    assert "ptt.recorders" in done.stdout


def test_an_archive_and_a_store_give_the_same(show: Show, tmp_path: Path) -> None:
    run = recorder_run(tmp_path / "run")
    own = document(show(run, "s5", "--json"))
    packed = shutil.make_archive(str(tmp_path / "run"), "zip", tmp_path, "run")
    assert document(show(packed, "s5", "--json")) == own
    store = ptt.ingest(run, out=tmp_path / "out")
    shutil.rmtree(run)
    kept = document(show(store, "s5", "--json"))
    assert kept["tokens"] == own["tokens"]
    assert kept["group"] == own["group"]


def test_nothing_is_written_and_a_current_store_is_used(show: Show, tmp_path: Path) -> None:
    run = recorder_run(tmp_path / "run")
    before = sorted(tmp_path.rglob("*"))
    first = show(run, "s5").stdout
    assert sorted(tmp_path.rglob("*")) == before
    ptt.diagnose(run, out=tmp_path / "ptt-report" / "run")
    assert show(run, "s5").stdout == first
    shutil.rmtree(run)
    recorder_run(run, reward=lambda number: 7.0)
    assert document(show(run, "s5", "--json"))["values"]["reward"] == 7.0  # the store is of the run before


def test_advantages_one_a_sequence_or_one_a_token_stand_beside_the_siblings(show: Show, tmp_path: Path) -> None:
    single = document(show(recorder_run(tmp_path / "a", advantage=lambda number: 0.25 * number), "s1", "--json"))
    assert [sibling["advantage"] for sibling in single["group"]] == [[0.0, 0.0], [0.25, 0.25]]
    listed = recorder_run(tmp_path / "b", advantage=lambda number: [0.5] * 8 + [0.25 * number] * 9)
    each = document(show(listed, "s1", "--json"))
    assert [sibling["advantage"] for sibling in each["group"]] == [[0.0, 0.5], [0.25, 0.5]]


def test_what_stands_beside_the_canonical_columns_is_shown(show: Show, tmp_path: Path) -> None:
    run = recorder_run(
        tmp_path / "run",
        rewards=lambda number: {"right": 1.0, "format": 0.5},
        dataset=lambda number: "maths",
        value=lambda number: [0.5] * 17,
        tool_names=lambda number: ["lookup"],
    )
    found = document(show(run, "s1", "--json"))
    assert found["rewards"] == {"right": 1.0, "format": 0.5}
    assert found["values"]["dataset"] == "maths"
    assert found["values"]["tool_names"] == ["lookup"]
    assert found["tokens"]["value"] == [0.5] * 17
    assert found["tokens"]["slice"] == ["text_only"] * 6 + ["observation"] * 5 + ["post_tool"] * 6


def test_texts_are_printed_only_where_asked_for_and_then_scrubbed_and_escaped(show: Show, tmp_path: Path) -> None:
    run = recorder_run(tmp_path / "run")
    write_samples(run, f"{HOSTILE} {KEY}")
    bare = show(run, "s1").stdout
    assert "answer 1" not in bare
    assert "lookup" in bare
    told = show(run, "s1", "--text")
    assert "answer 1" in told.stdout
    for output in (bare, told.stdout, show(run, "s1", "--text", "--json").stdout):
        assert KEY not in output
        assert not set("\x1b\x07\u202e\u2066") & set(output)
    assert "[aws-access-token-1]" in told.stdout
    ptt.diagnose(run, out=tmp_path / "ptt-report" / "run")
    assert show(run, "s1", "--text").stdout == told.stdout  # texts are read again where the store has none


def test_a_sample_without_tokens_is_shown_by_its_trajectory(show: Show, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    write_samples(run, "it")
    found = document(show(run, "s2", "--text", "--json"))
    assert [turn["role"] for turn in found["turns"]] == ["assistant", "tool", "assistant"]
    assert found["turns"][2]["text"] == "answer 2 it"
    assert found["calls"][0]["name"] == "lookup"
    assert len(found["group"]) == 4
    assert "ptt.recorders" in found["missing"][0]["enable"]
    assert document(show(run, "1:2", "--json"))["key"] == found["key"]


def test_tokens_are_decoded_with_the_runs_own_tokenizer_alone(show: Show, tmp_path: Path) -> None:
    run = recorder_run(tmp_path / "run")
    without = document(show(run, "s1", "--text", "--json"))
    assert "token" not in without["tokens"]
    assert any("tokenizer.json" in missing["why"] for missing in without["missing"])
    words = {100: "Hello", 101: "Ġthe", 102: "Ċ", 103: "Ã©", 104: "\u202e", 105: "Ġ\u001b[31m"}
    write_tokenizer(run, words, added_tokens=[{"id": 106, "content": "<|end|>"}])
    assert "token" not in document(show(run, "s1", "--json"))["tokens"]
    found = document(show(run, "s1", "--text", "--json"))
    assert found["tokenizer"] == "tokenizer.json"
    assert found["tokens"]["token"][:4] == ["Hello", " the", "\n", "é"]
    assert found["tokens"]["token"][6:8] == ["<|end|>", None]
    printed = show(run, "s1", "--text", "--all").stdout
    assert '" the"' in printed
    assert not set("\x1b\u202e") & set(printed)


def test_a_secret_that_tokens_spell_is_masked_in_all_of_them(show: Show, tmp_path: Path) -> None:
    run = recorder_run(tmp_path / "run")
    pieces = ["Ġkey", "Ġis", "Ġ" + KEY[:7], KEY[7:13], KEY[13:], "Ġfor", "Ġthe", "Ġlookup"]
    write_tokenizer(run, {100 + at: piece for at, piece in enumerate(pieces)})
    tokens = document(show(run, "s1", "--text", "--json"))["tokens"]["token"]
    assert tokens[2:5] == ["[masked]"] * 3
    assert tokens[5:8] == [" for", " the", " lookup"]


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"model": 5}', b'{"model": {"vocab": {"a": "b"}}}', b"[" * 100_000, b"\xff\xfe"]
)
def test_a_tokenizer_that_is_none_costs_no_sample(show: Show, tmp_path: Path, content: bytes) -> None:
    run = recorder_run(tmp_path / "run")
    (run / "tokenizer.json").write_bytes(content)
    found = document(show(run, "s1", "--text", "--json"))
    assert "token" not in found["tokens"]
    assert any("tokenizer.json" in missing["why"] for missing in found["missing"])


def test_lists_of_other_lengths_are_shown_and_said(show: Show, tmp_path: Path) -> None:
    run = recorder_run(tmp_path / "run", ref_logp=lambda number: [-0.5] * 15)
    found = document(show(run, "s1", "--json"))
    assert found["tokens"]["ref_logp"] == [-0.5] * 15 + [None] * 2
    assert "ref_logp has 15" in found["notes"][0]


def test_values_that_are_not_finite_are_named(show: Show, tmp_path: Path) -> None:
    lists = {1: [math.nan, -math.inf, None, *[-0.5] * 14]}
    run = recorder_run(tmp_path / "run", ref_logp=lambda number: lists.get(number, [-0.5] * 17))
    found = document(show(run, "s1", "--json"))
    assert found["tokens"]["ref_logp"][:4] == [None, None, None, -0.5]
    assert found["not_finite"]["ref_logp"] == {"0": "nan", "1": "-inf"}
    printed = show(run, "s1", "--all").stdout.splitlines()
    assert [line.split()[4] for line in printed if line.strip()[:2] in {"0 ", "1 ", "2 "}] == ["nan", "-inf", "-"]


def test_hostile_names_are_escaped(show: Show, tmp_path: Path) -> None:
    run = recorder_run(tmp_path / "run", env=lambda number: HOSTILE, group_id=lambda number: HOSTILE)
    for output in (show(run, "s1").stdout, show(run, "s1", "--json").stdout, show(run, HOSTILE).stderr):
        assert output
        assert not set("\x1b\x07\u202e\u2066") & set(output)


@pytest.mark.slow
def test_the_report_says_the_command(show: Show) -> None:
    page = page_with(ptt.diagnose(RUN))
    top = ptt.diagnose(RUN).tables["top_sequences"].row(0, named=True)
    key = f"{top['step']}:{top['step_row']}"
    assert page.count(f"ptt show RUN {key}") == 2  # beside the finding, and where samples are listed
    shown = ptt.show(RUN, key)
    assert (shown.file, shown.file_row) == (top["path"], top["row"])
    assert shown.tokens["r"].abs().max() == top["max_abs_r"]
    assert shown.tokens["r"].abs().arg_max() == top["max_at"]


@pytest.mark.slow
def test_a_finding_on_the_reward_lists_samples_by_their_reward(show: Show, tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "tokens").mkdir(parents=True)
    rewards = {step: 0.8 if step <= 30 else 0.1 for step in range(1, 61)}
    for step, level in rewards.items():
        dice = np.random.default_rng(step)
        row = {"step": step, "model_mask": [True] * 8, "policy_logp": [-0.5] * 8, "ref_logp": [-0.5] * 8}
        rows = [
            {**row, "sample_id": f"{step}-{number}", "reward": level + 0.05 * float(dice.normal())}
            for number in range(8)
        ]
        pl.DataFrame(rows).write_parquet(run / "tokens" / f"step_{step:06d}.parquet")
    history = [{"step": step, "reward": level, "loss": 0.1} for step, level in rewards.items()]
    (run / "trainer_state.json").write_text(json.dumps({"log_history": history, "global_step": 60}))
    listed = document(show(run, "--json"))["findings"]
    (finding,) = [finding for finding in listed if finding["finding"] == "reward-fell"]
    assert finding["measure"] == "reward"
    assert [sample["chosen"] for sample in finding["samples"]] == ["highest"] * 3 + ["lowest"] * 3 + ["random"] * 3
    for sample in finding["samples"]:
        assert document(show(run, sample["key"], "--json"))["values"]["reward"] == sample["value"]
    assert "ptt show" in show(run).stdout


def test_a_run_whose_findings_rest_on_curves_lists_none(show: Show, tmp_path: Path) -> None:
    (tmp_path / "trainer_state.json").write_text(
        json.dumps({"log_history": [{"step": 1, "loss": 0.5}, {"step": 2, "loss": None}], "global_step": 2})
    )
    done = show(tmp_path / "trainer_state.json")
    assert done.exit_code == 0
    assert "ptt sources" in done.stdout


def test_one_sample_of_two_updates_is_listed_once(show: Show) -> None:
    (tail,) = [finding for finding in of_sample(show)["findings"] if finding["measure"] == "largest |r|"]
    ids = [sample["sample_id"] for sample in tail["samples"]]
    assert len(set(ids)) == len(ids) == 9


def test_tokens_are_coloured_by_size_on_a_terminal(show: Show, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = recorder_run(tmp_path / "run", env=lambda number: HOSTILE)
    monkeypatch.setenv("FORCE_COLOR", "1")
    printed = show(run, "s1").stdout
    (line,) = [line for line in printed.splitlines() if "**" in line and "nats" not in line]
    assert "\x1b[31m" in line  # red, from 2 nats
    assert "\\x1b[31mred" in printed  # the run's own is spelt out
    assert not set("\x07\u202e\u2066") & set(printed)


def test_a_sequence_that_claims_billions_of_tokens_is_refused(
    show: Show, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = recorder_run(tmp_path / "run")
    monkeypatch.setattr("ptt.diagnostics.store.sample_rows.MAX_TOKENS", 16)
    done = show(run, "s1")
    assert done.exit_code == 5
    assert "row 1 claims 17 tokens" in done.stderr


def test_a_damaged_file_costs_only_its_own_samples(show: Show, tmp_path: Path) -> None:
    run = recorder_run(tmp_path / "run")
    path = run / "tokens" / "step_000002.parquet"
    content = bytearray(path.read_bytes())
    content[4 : len(content) // 2] = b"\xff" * (len(content) // 2 - 4)
    path.write_bytes(content)
    assert document(show(run, "s1", "--json"))["key"] == "1:1"
    assert show(run, "2:1").exit_code in {2, 5}


def test_columns_that_do_not_fit_a_terminal_are_left_out_and_named(
    show: Show, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = {name: lambda number: [-0.123456789] * 17 for name in ("old_logp", "rollout_logp", "entropy")}
    run = recorder_run(tmp_path / "run", **more)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    printed = re.sub(r"\x1b\[[0-9;]*m", "", show(run, "s1").stdout)
    table = [line for line in printed.splitlines() if line.strip()[:2].isdigit() or "POSITION" in line]
    assert max(map(len, table)) <= 100
    assert {"POLICY_LOGP", "REF_LOGP"} <= set(printed.split())
    assert "in --json: " in printed
    monkeypatch.delenv("FORCE_COLOR")
    assert "ENTROPY" in show(run, "s1").stdout  # a file has no width


def test_values_in_single_precision_are_spelt_as_they_were_written(show: Show, tmp_path: Path) -> None:
    run = recorder_run(tmp_path / "run", reward=lambda number: float(np.float32(1.1)), temperature=lambda number: 0.7)
    printed = show(run, "s1").stdout
    assert "reward 1.1 " in printed
    assert "temperature 0.7" in printed
    assert document(show(run, "s1", "--json"))["values"]["reward"] == float(np.float32(1.1))


def test_the_example_of_the_page_is_what_the_program_prints(show: Show) -> None:
    page = (Path(__file__).parents[1] / "docs" / "show.md").read_text(encoding="utf-8")
    example = page.split("```console")[1].split("```")[0].splitlines()
    printed = {" ".join(line.split()) for line in show(RUN, "513:20").stdout.splitlines()}
    lines = [" ".join(line.split()) for line in example if line and not line.startswith(("$", "..."))]
    assert [line for line in lines if line not in printed] == []
