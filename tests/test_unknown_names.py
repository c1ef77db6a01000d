"""What strangers call their metrics: read by words, values and neighbours, and never wrongly with confidence."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import polars as pl
import pytest
from unknown_names import FOUND, HELD_OUT, TUNED, Run, Spelling

import ptt
from ptt.diagnostics.metrics.guessed_names import read_words
from ptt.diagnostics.store.scan import read_table

ROWS = 60


def _write(folder: Path, names: dict[str, Spelling]) -> Path:
    """Write a log whose metrics go from their first value to their last, with a little of a wave on top."""
    folder.mkdir(parents=True)
    lines = []
    for step in range(ROWS):
        row: dict[str, float] = {"step": step}
        for number, (raw, (_, first, last)) in enumerate(names.items()):
            share = step / (ROWS - 1)
            wave = 0.02 * abs(last - first) * math.sin(2.3 * step + number) * (0.0 < share < 1.0)
            row[raw] = first + (last - first) * share + wave
        lines.append(json.dumps(row))
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def _read(run: Path) -> dict[str, str | None]:
    store = ptt.ingest(run, out=run.parent / f"{run.name}-out")
    return dict(read_table(store, "metrics").select("name_raw", "name").unique().rows())


TABLES = {"tuned": TUNED, "held out": HELD_OUT, "found": FOUND}


@pytest.fixture(scope="module", params=[(title, name) for title, table in TABLES.items() for name in table])
def read(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, dict[str, str | None]]:
    title, name = request.param
    run = TABLES[title][name]
    return run, _read(_write(tmp_path_factory.mktemp("names") / "run", run[1]))


def test_no_name_is_taken_for_another_metric(read: tuple[Run, dict[str, str | None]]) -> None:
    (_, names), found = read
    assert not {raw: found[raw] for raw, (name, _, _) in names.items() if found[raw] not in (None, name)}


def test_every_name_is_read_as_what_it_stands_for(read: tuple[Run, dict[str, str | None]]) -> None:
    (_, names), found = read
    assert {raw: found[raw] for raw in names} == {raw: name for raw, (name, _, _) in names.items()}


def _values(run: Path, raw: str) -> tuple[str | None, list[float]]:
    rows = read_table(ptt.ingest(run, out=run.parent / "out"), "metrics").filter(pl.col("name_raw") == raw).sort("step")
    return rows["name"][0], [rows["value"][0], rows["value"][-1]]


@pytest.mark.parametrize(
    ("raw", "first", "last", "name", "read_first"),
    [
        ("entropy_loss", -1.4, -0.7, "entropy", 1.4),
        ("train/entropy_loss", 1.4, 0.7, "entropy", 1.4),
        ("success_rate", 12.5, 40.5, "task/success", 0.125),
        ("clip_pct", 12.5, 40.5, "clip/frac", 0.125),
        ("clip_frac", 12.5, 40.5, None, 12.5),
        ("val_acc", 12.5, 140.5, None, 12.5),
        ("ppl", 0.4, 0.2, None, 0.4),
    ],
)
def test_values_turn_scale_or_contradict_a_reading(
    raw: str, first: float, last: float, name: str | None, read_first: float, tmp_path: Path
) -> None:
    found, values = _values(_write(tmp_path / "run", {raw: (name, first, last)}), raw)
    assert found == name
    assert values[0] == pytest.approx(read_first)


def test_wide_columns_are_turned_and_evaluations_leave_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ptt.diagnostics.parsers.io.metric_blocks.WIDE_BYTES", 1)
    names: dict[str, Spelling] = {
        "entropy_loss": ("entropy", -1.4, -0.7), "avg_ret": ("reward/mean", 0.0, 1.0), "dev_f1": (None, 0.2, 0.6),
    }  # fmt: skip
    tables = ptt.diagnose(_write(tmp_path / "run", names)).tables
    entropy = tables["series"].filter(pl.col("name") == "entropy")["value"]
    assert (entropy[0], entropy[-1]) == (pytest.approx(1.4), pytest.approx(0.7))
    assert set(tables["metrics"].filter(pl.col("split") == "eval")["name_raw"]) == {"dev_f1"}


def test_several_data_sets_stay_apart_and_none_is_training(tmp_path: Path) -> None:
    names: dict[str, Spelling] = {
        "loss": ("loss/total", 2.0, 1.0), "eval_math_loss": (None, 2.0, 1.5), "eval_code_loss": (None, 2.1, 1.6),
        "heldout/score": (None, 0.1, 0.4), "best_val_loss": (None, 2.0, 1.5), "unit_test_acc": (None, 0.1, 0.2),
    }  # fmt: skip
    store = ptt.ingest(_write(tmp_path / "run", names), out=tmp_path / "out")
    splits = dict(read_table(store, "metrics").select("name_raw", "split").unique().rows())
    assert {raw for raw, split in splits.items() if split == "eval"} == {
        "eval_math_loss", "eval_code_loss", "heldout/score",
    }  # fmt: skip
    outcome = ptt.diagnose(tmp_path / "run").outcome
    assert outcome is not None
    evaluated = {series.logged_as: series.last for series in outcome.series if series.split == "eval"}
    assert evaluated == {"eval_math_loss": 1.5, "eval_code_loss": 1.6, "heldout/score": 0.4}


@pytest.mark.parametrize(
    ("raw", "entropy", "accused"), [("seq_kl", 1.0, False), ("kl_div_mean", 1.0, False), ("kl_div_mean", 0.1, True)]
)
def test_a_kl_of_a_whole_sequence_is_held_against_its_length(
    raw: str, entropy: float, accused: bool, tmp_path: Path
) -> None:
    names: dict[str, Spelling] = {
        raw: ("kl/ref", 4.0, 5.0), "entropy": ("entropy", 1.0, entropy),
        "resp_len": ("len/response_mean", 200.0, 210.0), "reward": ("reward/mean", 0.1, 0.6),
    }  # fmt: skip
    found = {finding.id for finding in ptt.diagnose(_write(tmp_path / "run", names)).findings}
    assert ("kl-over-target" in found) == accused


def test_three_thousand_names_are_read_in_no_time() -> None:
    read_words.cache_clear()
    start = time.process_time()
    for number in range(3000):
        read_words(f"layers.{number}.mlp/update_norm")
    assert time.process_time() - start < 2.0
