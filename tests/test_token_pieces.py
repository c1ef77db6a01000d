"""Tokens folded in pieces: any cut, any engine and any pieces kept from before give the same tables, byte for byte."""

from __future__ import annotations

import pickle
import shutil
import zlib
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from builders import Story, repeatable, sequences_of, steady
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from slow_cases import first_fast

from ptt.diagnostics.config import Settings
from ptt.diagnostics.engines import local
from ptt.diagnostics.engines.pieces import BEGUN, CHECK_BYTES, SIZE_BYTES, Group, Merged, Piece, RunPieces
from ptt.diagnostics.statistics import merge_tree, partial_tables, token_pass
from ptt.diagnostics.statistics.partial_tables import PartialTables, TokenTables
from ptt.diagnostics.store.ingest import PIECES
from ptt.diagnostics.store.manifest import InPlaceFile, Manifest
from ptt.executors.ray_cluster import merge_or_none
from ptt.executors.this_machine import fold_in_processes, fold_or_none

pytestmark = pytest.mark.usefixtures("short_pieces")


@pytest.fixture
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make pieces of 32 sequences, folded elsewhere however few tokens they have."""
    monkeypatch.setattr(token_pass, "BATCH_TOKENS", 1)
    monkeypatch.setattr(token_pass, "PIECE_BATCHES", 2)
    monkeypatch.setattr(local, "APART_FROM", 0)


@cache
def made(sequences: int = 30, steps: int = 5, **changes: Any) -> pl.DataFrame:
    return sequences_of(Story(steps=steps, sequences=sequences, post=steady(0.8), nan_share=0.02, **changes))


Part = tuple[pl.DataFrame, int, str]  # rows, rows in a row group, kind of recorder


def write_files(folder: Path, parts: Sequence[Part]) -> Manifest:
    """Write frames as files of a run, and say what they are."""
    files = []
    for number, (part, group, kind) in enumerate(parts):
        name = f"{number:03d}.parquet"
        part.drop("seq").write_parquet(folder / name, row_group_size=group)
        files.append(
            InPlaceFile(path=name, rows=part.height, columns=tuple(c for c in part.columns if c != "seq"), kind=kind)
        )
    return Manifest(
        schema_version=1, ptt_version="", fingerprint="", in_place=tuple(files), parts=(), wide=(), facts={}, notes=()
    )  # fmt: skip


def cut_at(frame: pl.DataFrame, bounds: Sequence[int]) -> list[pl.DataFrame]:
    edges = [0, *sorted({bound for bound in bounds if 0 < bound < frame.height}), frame.height]
    return [frame[start:end] for start, end in pairwise(edges)]


def tables_of_run(
    root: Path, manifest: Manifest, store: Path, *, keep: bool = False, run_pieces: RunPieces | None = None
) -> TokenTables:
    return tokens_of_run(root, manifest, store, keep=keep, run_pieces=run_pieces).tables


def tokens_of_run(
    root: Path, manifest: Manifest, store: Path, *, keep: bool = False, run_pieces: RunPieces | None = None
) -> local.Tokens:
    store.mkdir(exist_ok=True)
    shutil.rmtree(store / "tokens", ignore_errors=True)  # what is kept of the whole run: its pieces alone are wanted
    with ThreadPoolExecutor(1) as background:
        found = local.read_token_tables(
            store, manifest, root,
            settings=Settings(), background=background, damaged={}, keep=keep, run_pieces=run_pieces,
        )  # fmt: skip
    assert found is not None
    return found


def backwards(pieces: Sequence[Piece], _: object) -> Generator[tuple[int, PartialTables | None]]:
    """Fold pieces one by one, the last one first."""
    for number in reversed(range(len(pieces))):
        yield number, fold_or_none(pieces[number])


def in_groups(
    pieces: Sequence[Piece], groups: Mapping[int, Group], *, of: Sequence[int] | None = None, last_first: bool = False
) -> Generator[tuple[int, PartialTables | Merged | None]]:
    """Add groups up beside where they are folded, of those only that begin at some places; as a cluster sends them."""
    place = 0
    answers: list[tuple[int, Callable[[], PartialTables | Merged | None]]] = []

    def merged(members: Sequence[Piece]) -> Merged | None:
        parts = [pickle.loads(pickle.dumps(fold_or_none(piece))) for piece in members]
        tables = merge_or_none(range(len(members)), *parts)
        return None if tables is None else Merged(tables=pickle.loads(pickle.dumps(tables)))

    while place < len(pieces):
        group = groups.get(place) if of is None or place in of else None
        members = pieces[place : place + (len(group.pieces) if group is not None else 1)]
        if group is not None and (whole := merged(members)) is not None:
            answers.append((place, partial(Merged, tables=whole.tables)))
        else:
            answers += [(place + number, partial(fold_or_none, piece)) for number, piece in enumerate(members)]
        place += len(members)
    for number, answer in reversed(answers) if last_first else answers:
        yield number, answer()


def same(found: TokenTables, wanted: TokenTables) -> None:
    for name in vars(wanted):
        assert_frame_equal(getattr(found, name), getattr(wanted, name), check_exact=True)


SHAPES = {
    "as it is": lambda part: part,
    "float64": lambda part: part.cast({"ref_logp": pl.List(pl.Float64)}),
    "no reference": lambda part: part.drop("ref_logp"),
    "another policy": lambda part: part.with_columns(old_logp="policy_logp"),
    "tools": lambda part: part.with_columns(tool_names=pl.concat_list(pl.lit("search"))),
}


@pytest.mark.slow
@settings(repeatable, max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    bounds=st.lists(st.integers(1, 149), max_size=6),
    shapes=st.lists(st.sampled_from(sorted(SHAPES)), min_size=7, max_size=7),
    group=st.sampled_from([1, 7, 1000]),
)
def test_any_files_give_the_same_bytes_however_they_are_folded(
    tmp_path_factory: pytest.TempPathFactory, bounds: list[int], shapes: list[str], group: int
) -> None:
    root = tmp_path_factory.mktemp("run")
    parts = [SHAPES[shape](part) for part, shape in zip(cut_at(made(), bounds), shapes, strict=False)]
    parts[0] = SHAPES["as it is"](parts[0]) if "ref_logp" in parts[0].columns else made()[: parts[0].height]
    manifest = write_files(root, [(part, group, "recorder") for part in parts])
    wanted = tables_of_run(root, manifest, root / "a")
    same(tables_of_run(root, manifest, root / "b", run_pieces=backwards), wanted)
    for _ in ("folded and kept", "read back"):
        same(tables_of_run(root, manifest, root / "c", keep=True), wanted)
    names = sorted((root / "c" / PIECES).iterdir())
    names[0].unlink()  # one of them gone: a hole amid kept ones
    same(tables_of_run(root, manifest, root / "c", keep=True), wanted)
    assert sorted((root / "c" / PIECES).iterdir()) == names


@pytest.mark.parametrize("answered", [(), (0,), (2, 1), (0, 3)])
def test_pieces_that_nobody_answers_for_are_folded_here(answered: tuple[int, ...], tmp_path: Path) -> None:
    def some(pieces: Sequence[Piece], _: object) -> Generator[tuple[int, PartialTables | None]]:
        for number in answered:
            yield number, fold_or_none(pieces[number])

    manifest = write_files(tmp_path, [(part, 10, "recorder") for part in cut_at(made(), [70])])
    wanted = tables_of_run(tmp_path, manifest, tmp_path / "a")
    same(tables_of_run(tmp_path, manifest, tmp_path / "b", run_pieces=some), wanted)


@pytest.mark.slow
def test_processes_give_the_same_bytes(tmp_path: Path) -> None:
    manifest = write_files(tmp_path, [(part, 10, "recorder") for part in cut_at(made(), [70])])
    wanted = tables_of_run(tmp_path, manifest, tmp_path / "a")
    same(tables_of_run(tmp_path, manifest, tmp_path / "b", run_pieces=partial(fold_in_processes, jobs=2)), wanted)


def filled(value: float) -> pl.Expr:
    ninth = pl.when(pl.int_range(pl.len()) % 9 == 0).then(value).otherwise(pl.element())
    return pl.col("policy_logp").list.eval(ninth)


def test_a_run_with_fill_values_keeps_the_pieces_of_both_looks(tmp_path: Path) -> None:
    manifest = write_files(tmp_path, [(made(sequences=60).with_columns(filled(-100.0)), 1000, "recorder")])
    first = tables_of_run(tmp_path, manifest, tmp_path / "store", keep=True)
    assert not first.anomalies.is_empty()
    kept = {path.name: path.stat().st_ino for path in (tmp_path / "store" / PIECES).iterdir()}
    same(tables_of_run(tmp_path, manifest, tmp_path / "store", keep=True), first)
    assert {path.name: path.stat().st_ino for path in (tmp_path / "store" / PIECES).iterdir()} == kept


@pytest.mark.parametrize(("late", "most"), [(-100.0, 1.6), (-999.0, 2.6)])
def test_fill_values_that_show_early_save_a_pass_and_decide_nothing(
    late: float, most: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same throughout are known before the first pass ends; others later cost a pass more, and no byte differs."""
    folded = []

    def counted(pieces: Sequence[Piece], _: object) -> Generator[tuple[int, PartialTables | None]]:
        for number, piece in enumerate(pieces):
            folded.append(piece)
            yield number, fold_or_none(piece)

    frame = made(sequences=60)
    parts = [frame[:150].with_columns(filled(-100.0)), frame[150:].with_columns(filled(late))]
    manifest = write_files(tmp_path, [(pl.concat(parts), 1000, "recorder")])
    found = tables_of_run(tmp_path, manifest, tmp_path / "a", run_pieces=counted)
    passes = len(folded) / len({piece.number for piece in folded})
    assert most - 0.5 < passes < most
    monkeypatch.setattr(local, "FIRST_LOOK", 2)  # after its end: never
    same(tables_of_run(tmp_path, manifest, tmp_path / "b", run_pieces=counted), found)


def test_steps_of_another_source_are_left_out_of_every_piece(tmp_path: Path) -> None:
    frame = made()
    better = frame.filter(pl.col("step").is_between(2, 3)).with_columns(old_logp="policy_logp")
    manifest = write_files(tmp_path, [(frame, 20, "a"), (better, 20, "b")])
    wanted = tables_of_run(tmp_path, manifest, tmp_path / "a")
    assert wanted.rows.height == 150
    assert (wanted.rows.filter(pl.col("step") == 2)["seq"] >= 150).all()
    same(tables_of_run(tmp_path, manifest, tmp_path / "b", run_pieces=backwards), wanted)
    for _ in range(2):
        same(tables_of_run(tmp_path, manifest, tmp_path / "c", keep=True), wanted)


def a_whole_piece(store: Path) -> Path:
    return min(path for path in (store / PIECES).iterdir() if not path.name.endswith(BEGUN))


def rewrite(piece: Path, **changed: pl.DataFrame) -> None:
    """Write other tables into a kept piece, with the check that belongs to them."""
    write_checked(piece, ALL_KEPT + replace(part_of(piece), **changed).to_bytes())


def write_checked(piece: Path, content: bytes) -> None:
    piece.write_bytes(zlib.crc32(content).to_bytes(CHECK_BYTES, "little") + content)


ALL_KEPT = bytes(SIZE_BYTES)  # nothing is said of single sequences


def part_of(piece: Path) -> PartialTables:
    return PartialTables.from_bytes(piece.read_bytes()[CHECK_BYTES + SIZE_BYTES :])


def of_other_columns(piece: Path) -> None:
    rewrite(piece, rows=part_of(piece).rows.drop("ok"))


def of_other_sequences(piece: Path) -> None:
    rewrite(piece, sequences=part_of(piece).sequences.with_columns(pl.col("seq") + 1_000_000))


def of_other_cells(piece: Path) -> None:
    rewrite(piece, cells=part_of(piece).cells.with_columns(pl.col("step") + (1 << 30)))


def of_other_counts(piece: Path) -> None:
    rewrite(piece, cells=part_of(piece).cells.with_columns(pl.col("n") + 1))


def of_another_slice(piece: Path) -> None:
    rewrite(piece, sequences=part_of(piece).sequences.with_columns(slice=pl.lit(9, pl.UInt8)))


def of_wide_cells(piece: Path) -> None:
    rewrite(piece, cells=part_of(piece).cells.with_columns(wide=pl.lit(60, pl.UInt8)))


def of_lists_with_nulls(piece: Path) -> None:
    sequences = part_of(piece).sequences
    torn = pl.when(pl.int_range(pl.len()) == 0).then(None).otherwise(pl.element())
    rewrite(piece, sequences=sequences.with_columns(pl.col("coarse_bin").list.eval(torn)))


def of_bad_tokens_of_no_pair(piece: Path) -> None:
    part = part_of(piece)
    bad = pl.DataFrame({"pair": [7], "step": [1 << 50], "slice": [0], "n_bad": [5]}, schema=part.bad.schema)
    rewrite(piece, bad=pl.concat([part.bad, bad]))


def of_lengths_that_lie(piece: Path) -> None:
    content, rows = piece.read_bytes()[CHECK_BYTES:], part_of(piece).rows.height
    write_checked(piece, content.replace(rows.to_bytes(8, "little"), (1 << 26).to_bytes(8, "little")))


def no_tables(piece: Path) -> None:
    write_checked(piece, ALL_KEPT + b"none")


def a_link(piece: Path) -> None:
    piece.rename(piece.parent.parent / "elsewhere")
    piece.symlink_to(piece.parent.parent / "elsewhere")


def no_head(piece: Path) -> None:
    write_checked(piece, part_of(piece).to_bytes())


HARMS = (
    no_head, of_other_columns, of_other_sequences, of_other_cells, of_other_counts, of_another_slice, of_wide_cells,
    of_lists_with_nulls, of_bad_tokens_of_no_pair, of_lengths_that_lie, no_tables, a_link,
)  # fmt: skip


@pytest.mark.parametrize("harm", first_fast(HARMS, 2))
def test_a_kept_piece_that_is_none_is_folded_anew(harm: Any, tmp_path: Path) -> None:
    manifest = write_files(tmp_path, [(made(), 1000, "recorder")])
    wanted = tables_of_run(tmp_path, manifest, tmp_path / "store", keep=True)
    piece = a_whole_piece(tmp_path / "store")
    whole = piece.read_bytes()
    harm(piece)
    same(tables_of_run(tmp_path, manifest, tmp_path / "store", keep=True), wanted)
    assert not piece.is_symlink()
    assert piece.read_bytes() == whole


def test_lengths_that_lie_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    manifest = write_files(tmp_path, [(made(), 1000, "recorder")])
    tables_of_run(tmp_path, manifest, tmp_path / "store", keep=True)
    piece = a_whole_piece(tmp_path / "store")
    of_lengths_that_lie(piece)
    with pytest.raises(pa.ArrowInvalid, match="fully decompress"):
        part_of(piece)


def test_a_link_in_place_of_the_pieces_is_neither_written_nor_emptied(tmp_path: Path) -> None:
    manifest = write_files(tmp_path, [(made(), 1000, "recorder")])
    (tmp_path / "home" / "letters").mkdir(parents=True)
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / PIECES).symlink_to(tmp_path / "home")
    tables_of_run(tmp_path, manifest, tmp_path / "store", keep=True)
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["letters"]


def tear(path: Path) -> None:
    """Make a file's data zeros; its footer stays sound."""
    content = path.read_bytes()
    path.write_bytes(content[:4] + bytes(len(content) // 2) + content[4 + len(content) // 2 :])


def without(manifest: Manifest, names: Sequence[str]) -> Manifest:
    return replace(manifest, in_place=tuple(file for file in manifest.in_place if file.path not in names))


def forwards(pieces: Sequence[Piece], _: object) -> Generator[tuple[int, PartialTables | None]]:
    """Fold pieces one by one, as processes do."""
    for number, piece in enumerate(pieces):
        yield number, fold_or_none(piece)


TORN = {
    "a file that begins and ends inside pieces": ([50, 75, 110], [1]),
    "the first of all": ([50, 75, 110], [0]),
    "the last of all": ([50, 75, 110], [3]),
    "two of them": ([50, 60, 70, 90, 110], [1, 3]),
    "a file of many pieces": ([10, 140], [1]),
    "one row": ([31, 32], [1]),
}


@pytest.mark.parametrize(
    ("torn", "keep"),
    [
        ("two of them", True),
        *(pytest.param(torn, True, marks=pytest.mark.slow) for torn in TORN if torn != "two of them"),
        ("two of them", False),
    ],
)
def test_a_file_that_is_damaged_inside_costs_itself_in_any_engine(
    torn: str, keep: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds, numbers = TORN[torn]
    names = [f"{number:03d}.parquet" for number in numbers]
    manifest = write_files(tmp_path, [(part, 10, "recorder") for part in cut_at(made(), bounds)])
    wanted = tables_of_run(tmp_path, without(manifest, names), tmp_path / "wanted")
    for name in names:
        tear(tmp_path / name)
    monkeypatch.setattr(merge_tree, "GROUP", 2)
    engines: dict[str, Any] = {
        "here": None, "in order": forwards, "as they are done": backwards, "in groups": in_groups,
    }  # fmt: skip
    for engine, run_pieces in engines.items():
        for _ in range(1 + keep):
            same(tables_of_run(tmp_path, manifest, tmp_path / engine, keep=keep, run_pieces=run_pieces), wanted)


def counted(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[str]:
    """Grow a list with each call of a function."""
    calls: list[str] = []
    function = getattr(module, name)

    def call(*given: Any, **more: Any) -> Any:
        calls.append(name)
        return function(*given, **more)

    monkeypatch.setattr(module, name, call)
    return calls


@pytest.mark.parametrize("run_pieces", first_fast([None, forwards, in_groups]))
def test_a_damaged_file_costs_its_own_pieces_anew_and_no_others(
    run_pieces: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = made(sequences=32, steps=20)  # 20 pieces
    manifest = write_files(tmp_path, [(part, 100, "recorder") for part in cut_at(frame, range(0, 640, 20))])
    tear(tmp_path / "025.parquet")
    wanted = tables_of_run(tmp_path, without(manifest, ["025.parquet"]), tmp_path / "wanted")
    folded = counted(monkeypatch, token_pass, "fold_piece")
    looked = counted(monkeypatch, pl, "read_parquet")
    same(tables_of_run(tmp_path, manifest, tmp_path / "store", run_pieces=run_pieces), wanted)
    assert len(folded) <= 20 + 3
    assert len(looked) <= 5  # files of a piece


def test_a_damaged_file_leaves_the_choice_of_single_sequences_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partial_tables, "SINGLE_SEQUENCES", 100)
    monkeypatch.setattr(local, "SINGLE_SEQUENCES", 100)
    manifest = write_files(
        tmp_path, [(part, 100, "recorder") for part in cut_at(made(sequences=60), range(0, 300, 25))]
    )
    wanted = tables_of_run(tmp_path, without(manifest, ["009.parquet"]), tmp_path / "wanted")
    tear(tmp_path / "009.parquet")
    same(tables_of_run(tmp_path, manifest, tmp_path / "store"), wanted)


def test_sequences_beyond_the_limit_are_those_of_whole_prompt_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = made(sequences=64)
    groups = pl.format("prompt {}", pl.int_range(pl.len()).over("step") // 4)
    manifest = write_files(tmp_path, [(frame.with_columns(group_id=groups), 1000, "recorder")])
    every = tables_of_run(tmp_path, manifest, tmp_path / "a")
    monkeypatch.setattr(partial_tables, "SINGLE_SEQUENCES", 100)
    monkeypatch.setattr(local, "SINGLE_SEQUENCES", 100)
    few = tables_of_run(tmp_path, manifest, tmp_path / "b")
    for name in ("cells", "steps", "losing", "rows", "bad", "anomalies", "samples"):
        assert_frame_equal(getattr(few, name), getattr(every, name), check_exact=True)
    kept = few.sequences["seq"].unique().to_numpy()
    assert len(kept) == 5 * 64 / 4
    assert (np.bincount(kept // 4)[np.unique(kept // 4)] == 4).all()
    assert_frame_equal(few.sequences, every.sequences.filter(pl.col("seq").is_in(kept)), check_exact=True)
    same(tables_of_run(tmp_path, manifest, tmp_path / "c", run_pieces=backwards), few)


def test_what_is_coarser_in_a_long_run_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = write_files(tmp_path, [(made(), 1000, "recorder")])
    assert tokens_of_run(tmp_path, manifest, tmp_path / "a").notes == ()
    monkeypatch.setattr(partial_tables, "WIDER", ((2, 0), (9, 2)))
    monkeypatch.setattr(partial_tables, "SINGLE_SEQUENCES", 100)
    monkeypatch.setattr(local, "SINGLE_SEQUENCES", 100)
    steps, sequences = tokens_of_run(tmp_path, manifest, tmp_path / "b").notes
    assert "5 recorded steps" in steps
    assert "known to 1.56% of their value" in steps
    assert "150 sequences" in sequences
    assert "are of 75, one prompt group in 2 of each step" in sequences
