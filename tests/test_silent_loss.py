"""Nothing is lost without a word: damage inside a file that is read, and damage that leaves a file in no format."""

from __future__ import annotations

import gzip
import json
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from parser_samples import SAMPLES

import ptt
from ptt.diagnostics.model import Source
from ptt.diagnostics.parsers import PARSERS, run_files
from ptt.diagnostics.parsers.unpickle.pickles import unpickle
from ptt.diagnostics.parsers.unpickle.values import RefusedError
from ptt.diagnostics.store.damage import damage_of
from ptt.diagnostics.store.ingest import ingest
from ptt.diagnostics.store.scan import read_table

Edit = Callable[[bytes], bytes]


def read(folder: Path, rel: str, data: bytes) -> dict[str, Any]:
    """Read a run of one file, and return what its sources say of it."""
    path = folder / "run" / rel
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    files, notes = run_files(folder / "run")
    manifest = ingest(files, notes=notes, parsers=PARSERS, folder=folder / "store", ptt_version="0")
    assert manifest.faults == {}
    (row,) = read_table(folder / "store", "sources").to_dicts()
    return row


def replaced(old: bytes, new: bytes) -> Edit:
    return lambda data: data.replace(old, new, 1)


def sql(statements: str) -> Edit:
    """Change a database."""

    def edit(data: bytes) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "db"
            path.write_bytes(data)
            connection = sqlite3.connect(path)
            connection.executescript(statements)
            connection.close()
            return path.read_bytes()

    return edit


VIEW = "ALTER TABLE {0} RENAME TO ordinary; CREATE VIEW {0} AS SELECT * FROM ordinary"
TORN_SETTINGS = (
    "CREATE TABLE configs (id INTEGER PRIMARY KEY, run_id TEXT, config TEXT);"
    "INSERT INTO configs (run_id, config) SELECT run_id, '{' FROM metrics"
)
INSIDE: dict[str, tuple[str, Edit, str]] = {
    "tokens of a text": (
        "exp_001/train_data_step7.jsonl",
        replaced(b'"prev_logprobs": [[', b'"prev_logprobs": [["x", '),
        "prev_logprobs lost in 1 row",
    ),
    "a duration": ("perf_tracer/traces-r1.jsonl", replaced(b'"dur": ', b'"dur": "x", "was": '), "1 line skipped"),
    "a step of an agent": (
        "swe/astropy__astropy-1/astropy__astropy-1.traj",
        replaced(b'"trajectory": [', b'"trajectory": [7, '),
        "1 message or step skipped",
    ),
    "a step of a rollout": (
        "log/iteration_000003/train_rollout_summaries.jsonl",
        replaced(b'"steps": [', b'"steps": ["x", '),
        "1 message or step skipped",
    ),
    "half a character": ("evals/metadata.json", replaced(b'"env_id": "', b'"env_id": "\\ud800'), "1 broken character"),
    "half a character in a line": (
        "rollouts/5.jsonl",
        replaced(b'"output": "', b'"output": "\\udfff'),
        "1 broken character",
    ),
    "a number beyond any": (
        "ptt_run/run_metadata_final.json",
        replaced(b'"seed": 7', b'"seed": ' + b"9" * 400),
        "1 setting with impossible numbers: seed",
    ),
    "a table that is a view": ("trackio/p.db", sql(VIEW.format("alerts")), "1 skipped: alerts"),
    "settings of a database": ("trackio/p.db", sql(TORN_SETTINGS), "of settings or"),
    "how it was sampled": (
        "store/capture.db",
        sql("UPDATE wire_rows SET metadata = '{'"),
        "with damaged metadata",
    ),
    "the last page of a capture": (
        "store/capture.db",
        lambda data: data[:-28],
        "the last 28 bytes of its database are missing",
    ),
    "the last page of a gateway": (
        "gateway.db",
        lambda data: data[:-28],
        "the last 28 bytes of its database are missing",
    ),
}


@pytest.mark.parametrize("what", INSIDE)
def test_what_is_lost_inside_a_file_is_told(samples: dict[str, Path], tmp_path: Path, what: str) -> None:
    rel, edit, words = INSIDE[what]
    sound = samples[rel].read_bytes()
    damaged = edit(sound)
    assert damaged != sound
    assert words not in (read(tmp_path / "sound", rel, sound)["note"] or "")
    found = read(tmp_path / "damaged", rel, damaged)
    assert (found["kind"], words in (found["note"] or "")) == (SAMPLES[rel][0], True), found["note"]


def test_whole_characters_and_written_out_escapes_are_no_halves(tmp_path: Path) -> None:
    for at, text in enumerate((r"\ud83d\ude00", r"\\ud800", r"\\\\\ud83d\ude00\n")):
        row = b'{"input": "a", "output": "%s", "score": 1.0, "step": 5}\n' % text.encode()
        assert read(tmp_path / str(at), "rollouts/5.jsonl", row)["note"] is None


def test_trajectories_whose_messages_are_numbers_do_not_count(samples: dict[str, Path], tmp_path: Path) -> None:
    rel = "art/trajectories/train/0003.parquet"
    table = pq.read_table(samples[rel])
    numbers = [[1.0, 2.0]] * table.num_rows
    at = table.schema.get_field_index("messages")
    pq.write_table(table.set_column(at, "messages", [numbers]), tmp_path / "a.parquet")
    found = read(tmp_path, rel, (tmp_path / "a.parquet").read_bytes())
    assert (found["rows_ok"], found["rows_bad"]) == (0, table.num_rows)


UNRECOGNISED: dict[str, tuple[str, Edit, str]] = {
    "a footer": ("export/history.parquet", lambda data: data[:-9], "its footer cannot be read"),
    "the first bytes": ("export/history.parquet", lambda data: b"x" + data[1:], "not those of Parquet"),
    "a database": ("mlflow.db", lambda data: b"x" + data[1:], "not those of SQLite"),
    "a pickle without an end": (
        "dumped_data/global_step_1_training_input.pkl",
        lambda data: data[:59],
        "it has no end",
    ),
    "a pickle cut behind a full stop": (
        "dumped/5/gen_batch.dp",
        lambda _: b"\x80\x04\x95" + (3860).to_bytes(8, "little") + b"\x8c\rverl.",
        "no end",
    ),
    "the first bytes of a pickle": ("dumped/5/gen_batch.dp", lambda data: b"x" + data[1:], "not those of torch or"),
    "a pickle in a zip file": ("hook/step_1.pt", replaced(b"mask", b"musk"), "a zip file"),
    "a header that is cut": ("hook/step_3.safetensors", lambda data: data[:80], "whose header"),
    "a log of W&B": ("wandb/offline-run-1/run-1.wandb", lambda data: b"x" + data[1:], "not those of a W&B log"),
    "an event file": (
        "runs/events.out.tfevents.1700000000.host.1.0",
        lambda data: b"xx" + data[2:20],
        "Its first record",
    ),
    "a zip file": ("train_data/3.pt", lambda data: data[:70], "a zip file"),
    "a packed log": ("flat.jsonl.gz", lambda data: data[:40], "What it is packed in"),
    "a first line": ("flat.jsonl.gz", lambda data: gzip.compress(gzip.decompress(data)[:20]), "One of its first lines"),
    "a first line in a text": ("home/train_log.txt", lambda data: data[:29], "One of its first lines"),
    "a trajectory": ("swe/astropy__astropy-1/astropy__astropy-1.traj", lambda data: data[:1], "It is JSON"),
    "a document": ("keras/history.json", lambda data: data[:20], "It is JSON that is cut or damaged"),
}


@pytest.mark.parametrize("what", UNRECOGNISED)
def test_damage_that_leaves_a_file_in_no_format_is_told(samples: dict[str, Path], tmp_path: Path, what: str) -> None:
    rel, edit, words = UNRECOGNISED[what]
    damaged = edit(samples[rel].read_bytes())
    found = read(tmp_path, rel, damaged)
    assert (found["kind"], found["bytes_lost"]) == ("unrecognised", len(damaged))
    assert words in found["note"]


def test_a_damaged_file_that_nobody_knows_costs_a_run_no_verdict(tmp_path: Path) -> None:
    rows = [{"step": step, "loss": 0.5, "reward": 0.25} for step in range(50)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "notes.json").write_text('{"a": [1, 2' * 1000)
    found = ptt.diagnose(tmp_path)
    notes: Source = next(source for source in found.sources if source.path == "notes.json")
    assert (notes.bytes_lost, damage_of(found).share) == (notes.bytes, 0.0)


@pytest.mark.parametrize("code", [b"J\x01", b"M\x01", b"G\x01", b"\x8a\x09\x01"])
def test_a_pickle_cut_inside_a_number_is_damaged_without_a_limit_on_memory_too(code: bytes) -> None:
    for guarded in (True, False):
        with pytest.raises(RefusedError, match="its pickle is damaged"):
            unpickle(memoryview(b"\x80\x02" + code), guarded=guarded)


def test_metrics_of_a_run_without_a_name_are_read(samples: dict[str, Path], tmp_path: Path) -> None:
    sound = samples["mlflow.db"].read_bytes()
    nameless = sql("UPDATE metrics SET run_uuid = NULL")(sound)
    counts = [read(tmp_path / name, "mlflow.db", data)["rows_ok"] for name, data in (("a", sound), ("b", nameless))]
    assert counts[0] == counts[1] > 0


def test_a_database_of_virtual_tables_is_lost_as_a_whole(samples: dict[str, Path], tmp_path: Path) -> None:
    damaged = sql(VIEW.format("metrics"))(samples["mlflow.db"].read_bytes())
    found = read(tmp_path, "mlflow.db", damaged)
    assert (found["kind"], found["bytes_lost"]) == ("unrecognised", len(damaged))
    assert "1 skipped: metrics" in found["note"]
