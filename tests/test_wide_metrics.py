"""Large metric logs are kept as columns: what is read back is what rows would have given."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from parser_samples import run_file
from slow_cases import first_fast

import ptt
from ptt.diagnostics.evidence import series as series_module
from ptt.diagnostics.parsers.io import lines, metric_blocks
from ptt.diagnostics.parsers.io.interface import RunFile
from ptt.diagnostics.parsers.io.json_blocks import fast_block
from ptt.diagnostics.store import ingest, wide_metrics
from ptt.diagnostics.store.manifest import read_manifest
from ptt.diagnostics.store.run_places import History
from ptt.diagnostics.store.wide_metrics import read_wide


def write(path: Path, rows: list[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def rows_of(count: int, *, again: int | None = None) -> list[dict[str, object]]:
    """Give rows with a rare metric, an evaluation, an unknown name, NaN spelt out once, and steps logged again."""
    drawn = np.random.default_rng(0)
    steps = [*range(1, count + 1)]
    if again is not None:
        steps += range(again, again + count // 2)
    rows: list[dict[str, object]] = []
    for number, step in enumerate(steps):
        row: dict[str, object] = {"step": step, "loss": drawn.normal(), "kl": abs(drawn.normal()), "my/own": number}
        if number % 2:
            row["reward"] = drawn.normal()
        if number % 10 == 0:
            row["grad_norm"] = drawn.normal()
        if number % 50 == 0:
            row["eval_reward"] = drawn.normal()
        rows.append(row)
    return rows


@pytest.mark.parametrize("again", first_fast([120, None]))
@pytest.mark.parametrize("block", first_fast([2_000, 1 << 24]))
def test_columns_give_the_diagnosis_that_rows_give(
    again: int | None, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    rows = rows_of(200, again=again)
    rows[100]["loss"], rows[101]["kl"], rows[102]["kl"] = float("nan"), None, float("-inf")
    rows[150]["loss"] = "nan"  # sends its block the slow way
    write(run / "metrics.jsonl", rows)
    monkeypatch.setattr(lines, "PIECE_BYTES", block)
    monkeypatch.setattr(lines, "BLOCK_BYTES", block)
    long = ptt.diagnose(run, out=tmp_path / "long")
    monkeypatch.setattr(metric_blocks, "WIDE_BYTES", 0)
    wide = ptt.diagnose(run, out=tmp_path / "wide")
    held = pl.read_parquet(tmp_path / "long" / "store" / "metrics" / "*.parquet").height
    left = pl.read_parquet(tmp_path / "wide" / "store" / "metrics" / "*.parquet").height
    assert left < held or block > 10_000, "nothing was kept as columns"
    assert wide.to_json() == long.to_json()
    assert wide.tables["aggregates"].equals(long.tables["aggregates"])


OURS = [("value", "seq", "*"), ("name_raw", "wall_time", "^loss$"), ("name",), ("variable", "")]


@pytest.mark.parametrize("names", [OURS[0], *(pytest.param(names, marks=pytest.mark.slow) for names in OURS[1:])])
@pytest.mark.parametrize("wide", [0, metric_blocks.WIDE_BYTES])
@pytest.mark.parametrize("every", first_fast([10, 1]))  # dense and rare metrics
def test_a_metric_may_be_called_as_our_own_columns_are(
    names: tuple[str, ...], wide: int, every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[dict[str, object]] = [{"step": step, "loss": 1 / step} for step in range(1, 101)]
    for row in rows[::every]:
        row |= dict.fromkeys(names, 0.5)
    write(tmp_path / "run" / "metrics.jsonl", rows)
    monkeypatch.setattr(metric_blocks, "WIDE_BYTES", wide)
    nested = [{"step": row["step"], "data": {key: row[key] for key in row if key != "step"}} for row in rows]
    write(tmp_path / "nested" / "metrics.jsonl", nested)
    pl.DataFrame(rows, infer_schema_length=None).write_csv(tmp_path / "metrics.csv")
    for run in (tmp_path / "run", tmp_path / "nested", tmp_path / "metrics.csv"):
        if run.suffix == ".csv" and {"name", "wall_time"} & {*names}:
            continue  # a long table's, and a time
        (source,) = ptt.diagnose(run).sources
        assert (source.rows_ok, source.note) == (100 + len(names) * 100 // every, None), run
    history = History.read([run_file(tmp_path / "run" / "metrics.jsonl")])
    for name in names:
        assert [*history.values[name].values()] == [0.5] * (100 // every)


def test_ranks_of_columns_are_told_apart_as_those_of_rows_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = np.random.default_rng(3)
    for rank in range(4):
        pace = 1.6 if rank == 2 else 1.0
        rows: list[dict[str, object]] = [
            {"step": step, "time/forward_s": pace * drawn.uniform(0.95, 1.05), "loss": drawn.normal()}
            for step in range(1, 121)
        ]
        write(tmp_path / "run" / f"metrics_rank{rank}.jsonl", rows)
    long = ptt.diagnose(tmp_path / "run", out=tmp_path / "long")
    monkeypatch.setattr(metric_blocks, "WIDE_BYTES", 0)
    wide = ptt.diagnose(tmp_path / "run", out=tmp_path / "wide")
    assert not list((tmp_path / "wide" / "store" / "metrics").glob("*")), "nothing was kept as columns"
    timed = long.tables["ranks"].filter(pl.col("metric") == "time/forward_s")
    assert timed["rank"].to_list() == ["rank 0", "rank 1", "rank 2", "rank 3"]
    assert wide.tables["ranks"].filter(pl.col("metric") == "time/forward_s").equals(timed)
    told = [[one for one in found.findings if one.id == "stragglers"] for found in (long, wide)]
    assert told[0] == told[1] != []
    assert wide.tables["ranks"].equals(long.tables["ranks"])
    assert [source.note for source in wide.sources] == [None] * 4, "ranks side by side are no copies"
    assert wide.to_json() == long.to_json()


@pytest.mark.parametrize("wide", [0, 1 << 30])
def test_every_step_with_a_known_metric_counts_and_no_other(
    wide: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that only tells how far the run came, at the end, logs nothing of training; a long series loses no step."""
    rows: list[dict[str, object]] = [
        {"step": step, "progress": step / 230, **({"loss": 1 / step} if step % 2 else {"kl": 0.01})}
        for step in range(1, 231)
    ]
    rows += [{"step": 240, "progress": 1.0}]
    write(tmp_path / "run" / "metrics.jsonl", rows)
    monkeypatch.setattr(metric_blocks, "WIDE_BYTES", wide)
    monkeypatch.setattr(series_module, "MAX_SERIES_POINTS", 20)
    run = ptt.diagnose(tmp_path / "run").run
    assert (run.first_step, run.last_step, run.step_count) == (1, 230, 230)


def test_a_console_is_placed_beside_columns_as_beside_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = np.random.default_rng(5)
    rows = [
        {"step": 5 * number, "loss": drawn.normal(), "reward": drawn.normal(), "kl": abs(drawn.normal())}
        for number in range(1, 121)
    ]
    write(tmp_path / "run" / "metrics.jsonl", rows)  # type: ignore[arg-type]
    printed = [{key: float(f"{value:.4g}") for key, value in row.items() if key != "step"} for row in rows]
    (tmp_path / "run" / "console.log").write_text("".join(f"{row}\n" for row in printed), encoding="utf-8")
    long = ptt.diagnose(tmp_path / "run", out=tmp_path / "long")
    assert long.run.placed_by == "the same rows of metrics.jsonl"
    monkeypatch.setattr(metric_blocks, "WIDE_BYTES", 0)
    wide = ptt.diagnose(tmp_path / "run", out=tmp_path / "wide")
    assert (tmp_path / "wide" / "store" / "wide").is_dir(), "nothing was kept as columns"
    assert wide.to_json() == long.to_json()


def test_a_log_of_a_few_megabytes_is_kept_as_columns(tmp_path: Path) -> None:
    drawn = np.random.default_rng(6).normal(size=(4000, 40)).tolist()
    rows = [{"step": step, **{f"extra_{at}": value for at, value in enumerate(row)}} for step, row in enumerate(drawn)]
    write(tmp_path / "run" / "metrics.jsonl", rows)
    table = pl.DataFrame(rows)
    (tmp_path / "table").mkdir()
    table.write_csv(tmp_path / "table" / "metrics.csv")
    for run in ("run", "table"):
        found = ptt.diagnose(tmp_path / run, out=tmp_path / f"{run}-out")
        assert not list((tmp_path / f"{run}-out" / "store" / "metrics").glob("*")), "values were kept as rows"
        (source,) = found.sources
        assert (source.rows_ok, source.rows_bad) == (160_000, 0)


def test_a_metric_that_begins_late_is_not_lost_to_the_schema_of_the_block_before() -> None:
    def read(rows: list[dict[str, object]], schema: pl.Schema | None) -> metric_blocks.Block:
        text = "".join(json.dumps(row) + "\n" for row in rows).encode()
        file = RunFile(path=Path("log.jsonl"), rel="log.jsonl", size=len(text))
        found = fast_block(text, file, wrappers=("data",), steps=("step",), times=(), seq=0, schema=schema)
        assert isinstance(found, metric_blocks.Block)
        return found

    first = read([{"step": step, "data": {"loss": 1}} for step in range(300)], None)
    later = read([{"step": step, "data": {"loss": 0.5, "kl": 2.0}} for step in range(300)], first.schema)
    assert set(later.numbers) == {"loss", "kl"}
    assert later.numbers["loss"].to_list() == [0.5] * 300
    rare = [{"step": step, "data": {"loss": 0.5} | ({"odd": 1.0} if step == 299 else {})} for step in range(300)]
    assert read(rare, None).numbers["odd"].count() == 1
    assert read(rare, first.schema).numbers["odd"].count() == 1


@pytest.mark.parametrize("shift", first_fast([0.0, 0.25]))
def test_columns_are_joined_with_other_sources_as_rows_are(
    shift: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trainer's state ends at its last checkpoint, and a large log under a tracker's names goes on."""
    run = tmp_path / "run"
    rows = rows_of(200)
    state = [row | {"loss": row["loss"] if index < 60 else row["loss"] + shift} for index, row in enumerate(rows[:120])]  # type: ignore[operator]
    prefixed = [{key if key == "step" else f"train/{key}": value for key, value in row.items()} for row in rows]
    write(run / "metrics.jsonl", prefixed)
    (run / "trainer_state.json").write_text(json.dumps({"global_step": 120, "max_steps": 200, "log_history": state}))
    long = ptt.diagnose(run, out=tmp_path / "long")
    monkeypatch.setattr(metric_blocks, "WIDE_BYTES", 0)
    wide = ptt.diagnose(run, out=tmp_path / "wide")
    assert wide.to_json() == long.to_json()
    (note,) = [source.note or "" for source in wide.sources if source.path == "metrics.jsonl"]
    assert ("60 values of loss/total from step 61 to 120 differ from trainer_state.json" in note) is (shift > 0)
    series = wide.tables["series"]
    assert series.filter(pl.col("name") == "loss/total")["step"].to_list() == list(range(1, 201))


def test_many_columns_read_in_groups_give_what_rows_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, drawn = tmp_path / "run", np.random.default_rng(1)
    layers = {f"layer_{number}/norm": drawn.normal(size=240).tolist() for number in range(40)}
    rows = [
        row | {name: values[at] for name, values in layers.items()} for at, row in enumerate(rows_of(160, again=90))
    ]
    write(run / "metrics.jsonl", rows)
    monkeypatch.setattr(lines, "PIECE_BYTES", 20_000)
    monkeypatch.setattr(lines, "BLOCK_BYTES", 20_000)
    long = ptt.diagnose(run, out=tmp_path / "long")
    monkeypatch.setattr(metric_blocks, "WIDE_BYTES", 0)
    monkeypatch.setattr(wide_metrics, "GROUP_CELLS", 300)
    monkeypatch.setattr(wide_metrics, "KEPT_GROUPS", 2)
    monkeypatch.setattr(ingest, "FLUSH_CELLS", 2_000)
    wide = ptt.diagnose(run, out=tmp_path / "wide")
    assert len(list((tmp_path / "wide" / "store" / "wide").iterdir())) > 2
    assert wide.to_json() == long.to_json()
    assert wide.tables["other_series"]["name"].n_unique() == 41


def claim_more(content: bytes) -> bytes:
    return content.replace(struct.pack("<q", 200), struct.pack("<q", 1 << 30))


def hold_texts(_: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table({name: ["a"] * 200 for name in ("step", "seq", "wall_time", *(f"m{at}" for at in range(9)))})
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


@pytest.mark.parametrize(
    "damage", first_fast([claim_more, hold_texts, lambda content: content[:-40], lambda _: b"", lambda _: b"x"], 2)
)
def test_a_damaged_part_is_an_error_and_no_end_of_the_process(
    damage: Callable[[bytes], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metric_blocks, "WIDE_BYTES", 0)
    write(tmp_path / "run" / "metrics.jsonl", rows_of(200))
    ptt.diagnose(tmp_path / "run", out=tmp_path / "out")
    store = tmp_path / "out" / "store"
    (part,) = (store / "wide").iterdir()
    part.write_bytes(damage(part.read_bytes()))
    manifest = read_manifest(store)
    assert manifest is not None
    with pytest.raises((pl.exceptions.PolarsError, OSError)):
        read_wide(store, manifest).column("loss")
