"""Parquet whose few bytes claim much: the budget is asked before anything is unpacked, and sound files pass."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from parser_samples import losses, parser_named, pieces_of, run_file, table, takers
from samples_carriers import varint
from slow_cases import first_fast

from ptt.diagnostics.budget_limits import BudgetLimits
from ptt.diagnostics.parsers import InPlace, Piece
from ptt.diagnostics.parsers.io import parquet_files, parquet_pages
from ptt.diagnostics.parsers.io.budget import Budget, BudgetSpent
from ptt.diagnostics.parsers.io.interface import REFUSED
from ptt.diagnostics.parsers.io.parquet_files import row_groups
from ptt.diagnostics.parsers.io.parquet_pages import pages, schema_depth


def write(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    pq.write_table(pa.table(columns), path, compression="zstd", **options)
    return path


def constant_lists(rows: int, tokens: int, value: object, kind: pa.DataType) -> pa.Array:
    offsets = pa.array([tokens * row for row in range(rows + 1)], pa.int64())
    return pa.LargeListArray.from_arrays(offsets, pa.repeat(pa.scalar(value, kind), rows * tokens))


def sequences(rows: int, tokens: int) -> dict[str, Any]:
    logps = constant_lists(rows, tokens, -0.5, pa.float32())
    masks = constant_lists(rows, tokens, True, pa.bool_())
    return {"step": pa.repeat(1, rows), "model_mask": masks, "policy_logp": logps, "ref_logp": logps}


def read(path: Path, limits: BudgetLimits) -> list[Piece]:
    file = replace(run_file(path), budget=Budget(limits))
    (name,) = takers(file)
    return list(parser_named(name).read(file))


def test_two_sequences_of_millions_of_equal_tokens_are_refused_by_their_headers(tmp_path: Path) -> None:
    path = write(tmp_path / "step_1.parquet", sequences(2, 4_000_000))
    assert path.stat().st_size < 10_000
    with pytest.raises(BudgetSpent, match="a row group takes"):
        read(path, BudgetLimits(memory_mb=64))
    assert any(isinstance(piece, InPlace) for piece in read(path, BudgetLimits(memory_mb=1024)))


def test_the_longest_sequence_counts_not_all_of_them(tmp_path: Path) -> None:
    short = write(tmp_path / "step_1.parquet", sequences(1000, 1000))
    assert any(isinstance(piece, InPlace) for piece in read(short, BudgetLimits(memory_mb=48)))
    long = write(tmp_path / "step_2.parquet", sequences(1, 1_000_000))
    with pytest.raises(BudgetSpent, match="its longest sequence takes"):
        read(long, BudgetLimits(memory_mb=48))


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize("write_statistics", [False, True])
def test_headers_laid_out_as_usual_say_at_one_look_what_they_say_field_by_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, checksum: bool, write_statistics: bool
) -> None:
    columns = {
        **sequences(40, 100),
        "sample_id": [f"{'s' * (9 * row)}{row}" for row in range(40)],  # statistics short and long
        "reward": [None, *range(39)],
        "done": [row % 3 == 0 for row in range(40)],
    }
    path = write(
        tmp_path / "step_1.parquet",
        columns,
        data_page_version=version,
        write_page_checksum=checksum,
        write_statistics=write_statistics,
        data_page_size=200,
        write_batch_size=8,
        use_dictionary=["step", "sample_id"],
    )
    chunks = [pq.ParquetFile(path).metadata.row_group(0).column(at) for at in range(7)]
    starts = [min(at for at in (chunk.dictionary_page_offset, chunk.data_page_offset) if at) for chunk in chunks]

    def read_all() -> list[list[parquet_pages.Page]]:
        with path.open("rb") as handle:
            return [list(pages(handle, at, chunk.num_values)) for at, chunk in zip(starts, chunks, strict=True)]

    usual = read_all()
    by_field: list[int] = []
    read_fields = parquet_pages._page

    def told(data: bytes) -> tuple[parquet_pages.Page, int]:
        by_field.append(len(data))
        return read_fields(data)

    monkeypatch.setattr(parquet_pages, "_page", told)
    assert read_all() == usual
    assert len(by_field) < 0.2 * sum(map(len, usual))  # headers with a long text
    monkeypatch.setattr(parquet_pages, "_usual_page", lambda _: None)
    assert read_all() == usual
    assert any(page.is_dictionary for page in usual[0])
    assert sum(page.values for page in usual[1]) == 4000


def test_more_tokens_than_there_is_time_for_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "step_1.parquet", sequences(4000, 1000), row_group_size=500)
    with pytest.raises(BudgetSpent, match="sequences of 1500000 tokens would take"):
        read(path, BudgetLimits(file_seconds=0.2))


def test_rows_that_no_size_explains_end_with_the_budget(tmp_path: Path) -> None:
    path = write(tmp_path / "history.parquet", {"step": pa.repeat(1, 1_000_000), "loss": pa.repeat(0.5, 1_000_000)})
    file = replace(run_file(path), budget=Budget(BudgetLimits(memory_mb=128)))
    pieces: list[Piece] = []
    with pytest.raises(BudgetSpent, match="a table of its metrics takes"):
        pieces.extend(parser_named("metrics_parquet").read(file))
    assert 100_000 < table(pieces, "metrics").height < 400_000


def test_one_text_that_stands_in_every_row_counts_in_every_row(tmp_path: Path) -> None:
    text = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), 5000), pa.array(["x" * 500_000]))
    chats = {"step": pa.repeat(1, 5000), "prompt": text, "completion": text, "reward": pa.repeat(0.5, 5000)}
    path = write(tmp_path / "completions_1.parquet", chats)
    with pytest.raises(BudgetSpent, match="the text of a row group takes"):
        read(path, BudgetLimits())


def test_a_page_that_holds_more_than_the_footer_says_is_taken_at_its_word(tmp_path: Path) -> None:
    path = write(tmp_path / "step_1.parquet", sequences(1, 100_000), use_dictionary=False)
    (group,) = row_groups(pq.ParquetFile(path), run_file(path))
    counts = {chunk.column: chunk.values for chunk in group.chunks}
    assert counts == {"step": 1, "model_mask": 100_000, "policy_logp": 100_000, "ref_logp": 100_000}


@pytest.mark.parametrize("version", first_fast(["2.0", "1.0"]))
@pytest.mark.parametrize("statistics", [True, False])
def test_headers_of_sound_files_add_up_to_their_footers(tmp_path: Path, version: str, statistics: bool) -> None:
    columns = {
        "a.b": pa.array(range(50_000)),
        "text": pa.array([f"{number:>2000}" for number in range(50_000)]),
        "chat": pa.array([[{"role": "user", "content": str(number)}] for number in range(50_000)]),
        "flag": pa.array([None, True] * 25_000),
    }
    path = write(
        tmp_path / "x.parquet", columns, row_group_size=20_000, data_page_version=version, write_statistics=statistics,
        data_page_size=4096,
    )  # fmt: skip
    with pq.ParquetFile(path) as parquet:
        meta = parquet.metadata
        for number, group in enumerate(row_groups(parquet, run_file(path))):
            claimed = [meta.row_group(number).column(at).num_values for at in range(meta.num_columns)]
            assert [chunk.values for chunk in group.chunks] == claimed
            assert [chunk.column for chunk in group.chunks] == ["a.b", "text", "chat", "chat", "flag"]


@pytest.mark.parametrize("packed", [1 << 62, (1 << 63) - 1])
def test_pages_of_any_size_end_as_damage(tmp_path: Path, packed: int) -> None:
    header = b"\x15\x00\x15\x02\x15" + varint(packed << 1) + b"\x2c\x15\x02\x00\x00"  # one value
    (tmp_path / "a").write_bytes(header)
    with (tmp_path / "a").open("rb") as handle, pytest.raises(ValueError, match="lies in no file"):
        list(pages(handle, 0, 10))


def test_a_schema_may_not_nest_deeper_than_the_budget(tmp_path: Path) -> None:
    value: Any = pa.array([1])
    for _ in range(70):
        value = pa.StructArray.from_arrays([value], ["x"])
    path = write(tmp_path / "step_1.parquet", {"step": pa.array([1]), "deep": value})
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    assert schema_depth(data[-8 - length : -8]) == 71
    assert takers(run_file(path)) in ([], ["recorder"])  # by its name, as of a damaged footer
    _, _, note = losses(pieces_of(path, "recorder"))
    assert "footer" in note


def test_a_table_of_too_many_columns_is_refused_by_its_footer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_files, "MAX_COLUMNS", 50)
    monkeypatch.setattr(parquet_files, "schema_depth", lambda _: pytest.fail("the schema is not walked"))
    path = write(tmp_path / "history.parquet", {"step": [1], **{f"m{number}": [1.0] for number in range(60)}})
    file = run_file(path)
    assert takers(file) == []
    assert file.looks[REFUSED] == "Its footer lists 61 columns; at most 50 are read."
    by_name = write(tmp_path / "step_1.parquet", {f"m{number}": [1.0] for number in range(60)})
    _, _, note = losses(pieces_of(by_name, "recorder"))
    assert note == "step_1.parquet: Its footer lists 60 columns; at most 50 are read."
