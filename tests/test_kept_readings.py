"""Recorder files that did not change are not looked into again, and their run's store is the one of a first look."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from builders import Story, rising, sequences_of

from ptt.diagnostics.budget_limits import BudgetLimits
from ptt.diagnostics.config import Settings
from ptt.diagnostics.parsers.io.interface import RunFile
from ptt.diagnostics.parsers.io.parquet_files import check_sequences
from ptt.diagnostics.pipeline import RunLocation, ingest
from ptt.diagnostics.store.kept_readings import NAME
from ptt.diagnostics.store.manifest import Manifest
from ptt.diagnostics.store.scan import scan_sequences

STEPS = 8
SECRET = "sk-ant-api03-" + "Zx9qT4vLm2Rk7Wn3" * 3


def write_steps(run: Path, steps: range, *, seed: int = 0, beside: str = "") -> None:
    rows = sequences_of(Story(steps=STEPS, sequences=4, post=rising(0.05, 0.8), seed=seed))
    rows = rows.with_columns(pl.lit("x").alias(beside)) if beside else rows
    run.mkdir(exist_ok=True)
    for step in steps:
        rows.filter(pl.col("step") == step).drop("seq").write_parquet(run / f"step_{step:06d}.parquet")


def make(run: Path, store: Path, **settings: object) -> Manifest:
    location = RunLocation(run=run, store=store, name="run")
    return ingest(location, copy=False, settings=Settings(**settings))  # type: ignore[arg-type]


def content(run: Path, store: Path, manifest: Manifest) -> object:
    """What the store holds of its run: the manifest, the sources, and the sequences as they are scanned."""
    scan = scan_sequences(store, manifest, run)
    rows = None if scan is None else (scan.files, scan.columns, scan.frame.collect().to_dict(as_series=False))
    return manifest, pl.read_parquet(store / "sources.parquet").rows(), rows


@pytest.fixture
def looked_into(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files whose pages are looked into, as it happens."""
    names: list[str] = []

    def told(file: RunFile, columns: list[str], mask: str) -> None:
        names.append(file.name)
        check_sequences(file, columns, mask)

    monkeypatch.setattr("ptt.diagnostics.parsers.recorder.check_sequences", told)
    return names


def name_of(step: int) -> str:
    return f"step_{step:06d}.parquet"


def grow(run: Path) -> list[int]:
    write_steps(run, range(STEPS, STEPS + 1))
    return [STEPS]


def change(run: Path) -> list[int]:
    write_steps(run, range(3, 4), seed=7)
    return [3]


def shrink(run: Path) -> list[int]:
    (run / name_of(3)).unlink()
    return []


def touch(run: Path) -> list[int]:
    os.utime(run / name_of(5), (1, 1))
    return [5]


def add_column(run: Path) -> list[int]:
    write_steps(run, range(2, 4), beside="env")
    return [2, 3]


def tear(run: Path) -> list[int]:
    whole = (run / name_of(4)).read_bytes()
    (run / name_of(4)).write_bytes(whole[:-20])
    return []  # it has no footer to go on from


def add_metrics(run: Path) -> list[int]:
    (run / "metrics.jsonl").write_text("".join(json.dumps({"step": s, "loss": 1 / s}) + "\n" for s in range(1, 9)))
    return []


@pytest.mark.parametrize("event", [grow, change, shrink, touch, add_column, tear, add_metrics])
def test_only_what_changed_is_looked_into(
    event: Callable[[Path], list[int]], looked_into: list[str], tmp_path: Path
) -> None:
    run, store = tmp_path / "run", tmp_path / "store"
    write_steps(run, range(1, STEPS))
    make(run, store)
    assert looked_into == [name_of(step) for step in range(1, STEPS)]
    looked_into.clear()
    changed = event(run)
    again = make(run, store)
    assert looked_into == [name_of(step) for step in changed]
    assert content(run, store, again) == content(run, tmp_path / "fresh", make(run, tmp_path / "fresh"))
    looked_into.clear()
    os.utime(run / name_of(1), (2, 2))
    make(run, store)
    assert looked_into == [name_of(1)]  # what was not looked into is kept once more


def test_a_store_that_nobody_keeps_holds_no_readings(tmp_path: Path) -> None:
    write_steps(tmp_path / "run", range(1, 3))
    location = RunLocation(run=tmp_path / "run", store=tmp_path / "store", name="run", keep=False)
    ingest(location, copy=False)
    assert not (tmp_path / "store" / NAME).exists()


def cut(text: bytes) -> bytes:
    return text[: len(text) // 2]


def flip(text: bytes) -> bytes:
    return text[:200] + bytes([text[200] ^ 1]) + text[201:]


def signed(document: object) -> bytes:
    text = json.dumps(document).encode()
    return f"{zlib.crc32(text):08x}\n".encode() + text


def of_other_code(text: bytes) -> bytes:
    return signed(json.loads(text[9:]) | {"mark": "0" * 64})


def without_kinds(text: bytes) -> bytes:
    return signed(json.loads(text[9:]) | {"kinds": []})


def without_texts(text: bytes) -> bytes:
    document = json.loads(text[9:])
    return signed(document | {"kinds": [kind | {"texts": []} for kind in document["kinds"]]})


def with_other_columns(text: bytes) -> bytes:
    document = json.loads(text[9:])
    return signed(document | {"kinds": [kind | {"columns": ["step"]} for kind in document["kinds"]]})


def with_time_to_give(text: bytes) -> bytes:
    document = json.loads(text[9:])
    return signed(document | {"files": {rel: found | {"seconds": -1e9} for rel, found in document["files"].items()}})


def of_other_shape(_: bytes) -> bytes:
    return signed([1, 2, 3])


@pytest.mark.parametrize(
    "damage",
    [
        cut,
        flip,
        of_other_code,
        without_kinds,
        with_other_columns,
        with_time_to_give,
        of_other_shape,
        lambda _: b"",
        lambda _: b"\xff\xfe\n{",
    ],
)
def test_damaged_or_foreign_readings_are_made_anew(
    damage: Callable[[bytes], bytes], looked_into: list[str], tmp_path: Path
) -> None:
    run, store = tmp_path / "run", tmp_path / "store"
    write_steps(run, range(1, STEPS))
    make(run, store)
    sound = (store / NAME).read_bytes()
    (store / NAME).write_bytes(damage(sound))
    grow(run)
    looked_into.clear()
    again = make(run, store)
    assert len(looked_into) == STEPS
    assert content(run, store, again) == content(run, tmp_path / "fresh", make(run, tmp_path / "fresh"))
    assert (store / NAME).read_bytes() == (tmp_path / "fresh" / NAME).read_bytes()


def test_secrets_are_masked_whatever_is_kept_of_columns_of_texts(tmp_path: Path) -> None:
    run, store = tmp_path / "run", tmp_path / "store"
    rows = sequences_of(Story(steps=STEPS, sequences=4, post=rising(0.05, 0.8))).with_columns(note=pl.lit(SECRET))
    run.mkdir()
    for step in range(1, STEPS):
        rows.filter(pl.col("step") == step).drop("seq").write_parquet(run / name_of(step))
    assert not make(run, store).in_place
    (store / NAME).write_bytes(without_texts((store / NAME).read_bytes()))
    add_metrics(run)
    again = make(run, store)
    assert not again.in_place
    assert len(again.parts) == STEPS - 1


def test_a_link_in_their_place_is_neither_read_nor_written_through(looked_into: list[str], tmp_path: Path) -> None:
    run, store, outside = tmp_path / "run", tmp_path / "store", tmp_path / "outside.json"
    write_steps(run, range(1, STEPS))
    make(run, store)
    sound = (store / NAME).read_bytes()
    (store / NAME).rename(outside)
    (store / NAME).symlink_to(outside)
    grow(run)
    looked_into.clear()
    make(run, store)
    assert len(looked_into) == STEPS
    assert outside.read_bytes() == sound
    assert not (store / NAME).is_symlink()


def test_other_limits_look_into_every_file(looked_into: list[str], tmp_path: Path) -> None:
    run, store = tmp_path / "run", tmp_path / "store"
    write_steps(run, range(1, STEPS))
    make(run, store)
    looked_into.clear()
    make(run, store, budget=BudgetLimits(memory_mb=300))
    assert len(looked_into) == STEPS - 1


def test_a_run_of_too_many_steps_is_cut_where_a_first_look_cuts_it(tmp_path: Path) -> None:
    run, store, budget = tmp_path / "run", tmp_path / "store", BudgetLimits(steps=5)
    write_steps(run, range(1, 6))
    make(run, store, budget=budget)
    write_steps(run, range(6, STEPS))
    again = make(run, store, budget=budget)
    assert len(again.in_place) < STEPS - 1
    fresh = make(run, tmp_path / "fresh", budget=budget)
    assert content(run, store, again) == content(run, tmp_path / "fresh", fresh)


def test_no_secret_in_a_column_s_name_is_kept(looked_into: list[str], tmp_path: Path) -> None:
    run, store = tmp_path / "run", tmp_path / "store"
    write_steps(run, range(1, 3), beside=SECRET)
    make(run, store)
    assert not any(SECRET.encode() in path.read_bytes() for path in store.rglob("*") if path.is_file())
    looked_into.clear()
    write_steps(run, range(3, 4), beside=SECRET)
    make(run, store)
    assert len(looked_into) == 3
