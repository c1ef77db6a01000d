"""What every parser owes: one taker a sample, rows of the schema, no traceback whatever the damage."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from parser_samples import (
    NOTES,
    ROWS,
    SAMPLES,
    SEQUENCE_ROWS,
    checked,
    losses,
    parser_named,
    read_as,
    run_file,
    table,
    takers,
)
from samples_calls import jsonl

from ptt.diagnostics import parsers
from ptt.diagnostics.errors import InputError
from ptt.diagnostics.parsers import PARSERS, Parser, Rows, run_files


def test_every_parser_stands_in_the_table_of_contents() -> None:
    folder = Path(parsers.__path__[0])
    files = sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")
    made = {file: [found for found in vars(getattr(parsers, file)).values() if type(found) is Parser] for file in files}
    listed = {parser.name for parser in PARSERS}
    forgotten = [f"{file}.py: {parser.name}" for file in files for parser in made[file] if parser.name not in listed]
    assert not forgotten, f"add these to PARSERS in parsers/__init__.py: {', '.join(forgotten)}"
    foreign = [(file, parser.name) for file in files for parser in made[file] if not parser.name.startswith(file)]
    assert not foreign, "a file is called like its parser, or like the writer of all its parsers"
    assert all(made.values())


OWN = "own_logs"  # reads what ptt.toml says: tests/test_own_logs.py


def test_every_parser_has_a_sample() -> None:
    assert {parser.name for parser in PARSERS} - {OWN} - {name for name, _ in SAMPLES.values()} == set()


def test_every_parser_has_a_sample_whose_values_are_known() -> None:
    known = {SAMPLES[rel][0] for rel in ROWS}
    assert {parser.name for parser in PARSERS} - known - {OWN} == {
        "git_lfs_pointer",
        "recorder",
        "run_settings",
    }  # they copy no rows


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.name)
def test_a_parser_says_what_it_was_held_against(parser: Parser) -> None:
    assert parser.held_against.startswith(("real: ", "source: "))


@pytest.mark.parametrize("rel", SAMPLES)
def test_one_parser_takes_each_sample_and_behind_it_only_general_ones(samples: dict[str, Path], rel: str) -> None:
    first, *others = takers(run_file(samples[rel], rel))
    assert first == SAMPLES[rel][0]
    assert [name for name in others if not parser_named(name).general] == []


@pytest.mark.parametrize("rel", SAMPLES)
def test_rows_match_the_schema_each_time_and_nothing_is_lost_of_a_whole_file(
    samples: dict[str, Path], rel: str
) -> None:
    parser, file = parser_named(SAMPLES[rel][0]), run_file(samples[rel], rel)
    pieces = list(parser.read(file))
    without = {"git_lfs_pointer", "run_settings"}  # stands for a file that is not there; tells facts alone
    assert checked(pieces) > 0 or SAMPLES[rel][0] in without
    assert losses(pieces) == (0, 0, NOTES.get(rel, ""))
    for one, again in zip(pieces, parser.read(file), strict=True):
        same = one.frame.equals(again.frame) if isinstance(one, Rows) and isinstance(again, Rows) else one == again
        assert same, "read again, it gives other rows"


@pytest.mark.parametrize("rel", ROWS)
def test_a_sample_gives_the_values_that_stand_beside_it(samples: dict[str, Path], rel: str) -> None:
    name, columns, rows = ROWS[rel]
    pieces = list(parser_named(SAMPLES[rel][0]).read(run_file(samples[rel], rel)))
    assert table(pieces, name).select(columns).rows() == rows


ODD_VALUES: dict[bytes, set[float | None]] = {b"+.inf": {None}, b"1_000": {1000.0}, b"+5E-1": {0.5}}
"""Spellings of numbers that some writers use, and the value of each; an infinity has a flag and no value."""
ZONE = re.compile(rb"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?)(?:Z|\+00:00)")


def _text_of(rel: str) -> bytes:
    data = SAMPLES[rel][1]
    return data if isinstance(data, bytes) else b""


def _spelt_value(rel: str) -> bytes | None:
    """Return how a sample spells one of its metrics, where that stands in it once; None for other samples."""
    name, columns, rows = ROWS[rel]
    if name != "metrics" or "value" not in columns or parser_named(SAMPLES[rel][0]).general:
        return None
    values = [row[columns.index("value")] for row in rows]
    spelt = [repr(value).encode() for value in values if isinstance(value, float)]
    return next((text for text in spelt if _text_of(rel).count(text) == 1), None)


@pytest.mark.parametrize("odd", ODD_VALUES)
@pytest.mark.parametrize("rel", [rel for rel in ROWS if _spelt_value(rel)])
def test_a_value_in_an_odd_spelling_is_read_or_counted(tmp_path: Path, rel: str, odd: bytes) -> None:
    spelt = _spelt_value(rel)
    assert spelt is not None
    _, before = read_as(SAMPLES[rel][0], tmp_path / rel, _text_of(rel), rel)
    _, after = read_as(SAMPLES[rel][0], tmp_path / rel, _text_of(rel).replace(spelt, odd), rel)
    old, new = (table(pieces, "metrics") for pieces in (before, after))
    assert new.height == old.height or losses(after) != losses(before), "a value is gone and nothing says so"
    fresh = set(new["value"] if new.height else ()) - set(old["value"])
    assert fresh <= ODD_VALUES[odd], "another number is read than stands there"


@pytest.mark.parametrize("rel", [rel for rel in ROWS if ZONE.search(_text_of(rel))])
def test_a_date_without_a_zone_is_one_of_utc(tmp_path: Path, rel: str) -> None:
    name = ROWS[rel][0]
    _, before = read_as(SAMPLES[rel][0], tmp_path / rel, _text_of(rel), rel)
    _, after = read_as(SAMPLES[rel][0], tmp_path / rel, ZONE.sub(rb"\1", _text_of(rel)), rel)
    times = {"wall_time", "t_start", "t_end"}
    old, new = (table(pieces, name) for pieces in (before, after))
    assert new.height == old.height
    for column in times.intersection(old.columns):
        assert new[column].equals(old[column]), column


@pytest.mark.slow
@pytest.mark.parametrize("name", [parser.name for parser in PARSERS])
def test_any_parser_survives_being_given_any_sample(samples: dict[str, Path], name: str) -> None:
    for rel, path in samples.items():
        checked(list(parser_named(name).read(run_file(path, rel))))


@pytest.mark.parametrize("name", [parser.name for parser in PARSERS])
def test_a_file_that_vanished_is_lost_not_raised(tmp_path: Path, name: str) -> None:
    path = tmp_path / "tokens" / "step_1.parquet"
    path.parent.mkdir()
    path.write_bytes(b"PAR1")
    file = run_file(path)
    path.unlink()
    assert losses(list(parser_named(name).read(file)))[2]
    for parser in PARSERS:
        assert not parser.recognises(file)


def test_an_empty_file_is_nobodys(tmp_path: Path) -> None:
    taken = {}
    for rel in SAMPLES:
        (path := tmp_path / Path(rel).name).write_bytes(b"")
        taken[rel] = takers(run_file(path, rel))
    assert {rel: parsers for rel, parsers in taken.items() if parsers} == {}


FOREIGN: dict[str, bytes] = {
    "README.md": b"# step\n1\n",
    "config.json": b'{"global_step": 3}',
    "trainer_state.json": b'{"state": "mine"}',
    "notes.jsonl": b"step one\nstep two\n",
    "list.jsonl": b'[{"step": 1, "loss": 2}]\n',
    "unscored/1.jsonl": b'{"input": "q", "output": "a", "gts": null, "step": 1}\n',
    "episodes.jsonl": b'{"episode_id": "e", "step": 0, "content": "hi", "tokens": 3}\n',
    "results.json": b'{"info": {"model": "m"}, "results": []}',
    "list.json": b'[{"task_id": 1, "score": 1}]',
    "packed.eval": b"PK\x05\x06" + bytes(18),
    "text.traj": b"one two",
    "dashboard.json": b'{"eval": 1, "panels": []}',
    "prose.jsonl": b'{"step": 1, "score": 0.5, "story": "' + b"x" * 300 + b'"}\n',
    "export.jsonl": b'{"step": 1, "rank": 0, "ids": [' + b"1," * 99 + b"1]}\n",
    "stepless.jsonl": b'{"loss": 1.0}\n',
    "valueless.jsonl": b'{"step": 1, "name": "x"}\n',
    "people.csv": b"name,age\nAda,36\n",
    "texts.csv": b"step,prompt\n1,hello\n",
    "header_only.csv": b"step,loss\n",
    "table.csv": b"\x00\x01\x02",
    "events.out.tfevents.1.host": b"this is no event file at all, it is prose",
    "tokens.parquet": b"PAR2 not parquet",
}


@pytest.mark.parametrize("rel", FOREIGN)
def test_a_foreign_file_is_nobodys(tmp_path: Path, rel: str) -> None:
    path = tmp_path / rel
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(FOREIGN[rel])
    assert takers(run_file(path, rel)) == []


def test_a_parquet_file_with_other_columns_is_nobodys(tmp_path: Path) -> None:
    path = tmp_path / "step_000001.parquet"
    pq.write_table(pa.table({"step": [1], "entropy": [[0.5]], "model_mask": [[True]]}), path)
    assert takers(run_file(path)) == []


def test_one_logprob_makes_a_recorder_file_unless_a_frameworks_names_stand_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "step_000001.parquet"
    own = {"step": [1], "policy_logp": [[-0.5]], "model_mask": [[True]]}
    pq.write_table(pa.table(own), path)
    assert takers(run_file(path)) == ["recorder"]
    dump = tmp_path / "dump_000001.parquet"
    pq.write_table(pa.table(own | {"ref_per_token_logps": [[-0.25]]}), dump)
    assert takers(run_file(dump))[0] == "token_tables"


def test_a_torn_last_line_costs_that_line_and_is_counted(tmp_path: Path) -> None:
    rel = "tokens/step_1.jsonl"
    whole = jsonl(SEQUENCE_ROWS)
    rows, pieces = read_as("recorder_jsonl", tmp_path / rel, whole[:-20], rel)
    assert rows == 1
    last = jsonl(SEQUENCE_ROWS[1:])
    assert losses(pieces) == (1, len(last) - 20, f"{rel} ends inside a line: that line is lost.")


def test_a_wrong_line_in_the_middle_costs_that_line_and_is_counted(tmp_path: Path) -> None:
    deep = b'{"step": ' + b"[" * 100_000 + b"\n"
    no_mask = b'{"step": 1, "model_mask": "yes", "policy_logp": [1.0], "ref_logp": [1.0]}\n'
    one_logp = b'{"step": 1, "model_mask": [true], "policy_logp": ["a"], "ref_logp": [1.0]}\n'
    data = jsonl(SEQUENCE_ROWS[:1]) + b"nonsense\n\n" + deep + no_mask + one_logp + jsonl(SEQUENCE_ROWS[1:])
    rows, pieces = read_as("recorder_jsonl", tmp_path / "a.jsonl", data, "a.jsonl")
    assert (rows, losses(pieces)[0]) == (2, 4)


def test_a_first_line_whose_mask_is_no_list_costs_that_line(tmp_path: Path) -> None:
    no_mask = b'{"step": 1, "model_mask": 1, "policy_logp": [1.0], "ref_logp": [1.0]}\n'
    rows, pieces = read_as("recorder_jsonl", tmp_path / "a.jsonl", no_mask + jsonl(SEQUENCE_ROWS), "a.jsonl")
    assert (rows, losses(pieces)[0]) == (2, 1)


def test_files_are_listed_in_one_order_and_links_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.jsonl").write_text("{}")
    run = tmp_path / "run"
    for rel in ("b/2.txt", "b/10.txt", "a.txt", ".git/config", "b.txt"):
        (run / rel).parent.mkdir(parents=True, exist_ok=True)
        (run / rel).write_text("x")
    (run / "link").symlink_to(outside)
    (run / "file_link").symlink_to(outside / "secret.jsonl")
    files, notes = run_files(run)
    assert [file.rel for file in files] == ["a.txt", "b.txt", "b/2.txt", "b/10.txt"]
    assert all(file.size == 1 for file in files)
    assert len(notes) == 1
    assert "2 symbolic links" in notes[0]
    assert "file_link, link" in notes[0]


def test_a_single_file_is_a_run_of_one_file(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("{}\n")
    files, notes = run_files(path)
    assert [(file.rel, file.size) for file in files] == [("metrics.jsonl", 3)]
    assert notes == []


def test_a_missing_run_is_an_input_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give the path of a run dir"):
        run_files(tmp_path / "missing")


def test_a_name_that_is_no_utf8_still_fits_a_table(tmp_path: Path) -> None:
    try:
        (tmp_path / "bad\udcff.jsonl").write_text(jsonl([{"step": 1, "loss": 0.5}]).decode())
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    files, _ = run_files(tmp_path)
    pieces = list(parser_named("metrics_jsonl").read(files[0]))
    assert isinstance(pieces[0], Rows)
    assert pieces[0].frame.select(pl.col("source").str.contains("bad")).item()
