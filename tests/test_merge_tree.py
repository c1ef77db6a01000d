"""Groups of pieces added up elsewhere, kept, or taken apart again: the same tables to the byte as in one process."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from builders import repeatable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from slow_cases import first_fast
from test_token_pieces import (
    counted,
    cut_at,
    in_groups,
    made,
    part_of,
    same,
    short_pieces,  # noqa: F401  a fixture
    tables_of_run,
    write_files,
)

from ptt.diagnostics.engines import local
from ptt.diagnostics.engines.pieces import in_order
from ptt.diagnostics.statistics import merge_tree, partial_tables, token_pass
from ptt.diagnostics.store.ingest import PIECES
from ptt.diagnostics.store.manifest import Manifest

pytestmark = pytest.mark.usefixtures("short_pieces", "short_groups")


@pytest.fixture
def short_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make groups of three pieces, 96 sequences."""
    monkeypatch.setattr(merge_tree, "GROUP", 3)


def keep_single(monkeypatch: pytest.MonkeyPatch, sequences: int) -> None:
    monkeypatch.setattr(partial_tables, "SINGLE_SEQUENCES", sequences)
    monkeypatch.setattr(local, "SINGLE_SEQUENCES", sequences)


def written(store: Path) -> dict[str, bytes]:
    """What the store keeps of the whole run."""
    return {path.name: path.read_bytes() for path in (store / "tokens").iterdir()}


@pytest.mark.slow
@settings(repeatable, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.sampled_from([1, 2, 6, 30]),
    shuffled=st.booleans(),
    single=st.sampled_from([50, 150, 1000]),
    of=st.lists(st.sampled_from([0, 3, 6]), max_size=3),
    then=st.lists(st.sampled_from([0, 3, 6]), max_size=3),
    last_first=st.booleans(),
    lost=st.integers(0, 20),
)
def test_whoever_adds_up_what_the_bytes_are_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    steps: int,
    shuffled: bool,
    single: int,
    of: list[int],
    then: list[int],
    last_first: bool,
    lost: int,
) -> None:
    root = tmp_path_factory.mktemp("run")
    frame = made(sequences=300 // steps, steps=steps)  # ten pieces: three groups and one
    frame = frame.sample(fraction=1.0, shuffle=True, seed=1) if shuffled else frame
    manifest = write_files(root, [(part, 1000, "recorder") for part in cut_at(frame, [50, 110, 200])])
    with pytest.MonkeyPatch.context() as patch:
        keep_single(patch, single)
        wanted = tables_of_run(root, manifest, root / "here", keep=True)
        elsewhere = partial(in_groups, of=of, last_first=last_first)
        for engine in (elsewhere, None, partial(in_groups, of=then)):  # folded, kept, and in part folded again
            same(tables_of_run(root, manifest, root / "there", keep=True, run_pieces=engine), wanted)
            assert written(root / "there") == written(root / "here")
            kept = sorted((root / "there" / PIECES).iterdir())
            if lost < len(kept):
                kept[lost].unlink()


def test_the_tree_decides_the_last_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the tests of this file would show nothing."""
    manifest = write_files(tmp_path, [(made(sequences=300, steps=1), 1000, "recorder")])
    tree = tables_of_run(tmp_path, manifest, tmp_path / "a").cells
    monkeypatch.setattr(merge_tree, "GROUP", 1000)
    one_by_one = tables_of_run(tmp_path, manifest, tmp_path / "b").cells
    assert_frame_equal(tree, one_by_one, rel_tol=1e-12)
    assert not tree.equals(one_by_one)


def grown_from(manifest: Manifest, files: int) -> Manifest:
    """The run as it was when it had so many files."""
    return replace(manifest, in_place=manifest.in_place[:files])


@pytest.mark.parametrize("then", first_fast([None, in_groups]))
@pytest.mark.parametrize("single", first_fast([160, 1000]))
def test_a_run_that_grew_pays_for_its_new_pieces_alone(
    then: Any, single: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 160, one in two prompt groups is kept one by one at first and one in four later."""
    keep_single(monkeypatch, single)
    frame = made(sequences=32, steps=16)
    manifest = write_files(tmp_path, [(part, 1000, "recorder") for part in cut_at(frame, range(0, 512, 32))])
    store = tmp_path / "store"
    tables_of_run(tmp_path, grown_from(manifest, 8), store, keep=True, run_pieces=in_groups)
    assert len(list((store / PIECES).iterdir())) == 2 + 2  # groups, and pieces of the third
    folded = counted(monkeypatch, token_pass, "fold_piece")
    found = tables_of_run(tmp_path, manifest, store, keep=True, run_pieces=then)
    assert len(folded) == 8
    assert len(list((store / PIECES).iterdir())) == (2 + 3 + 2 + 1 if then else 2 + 10)
    same(found, tables_of_run(tmp_path, manifest, tmp_path / "fresh"))
    folded.clear()
    same(tables_of_run(tmp_path, manifest, store, keep=True), found)
    assert not folded


def test_a_kept_group_lends_no_sequences_that_it_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = write_files(tmp_path, [(made(sequences=300, steps=1), 1000, "recorder")])
    wanted = tables_of_run(tmp_path, manifest, tmp_path / "fresh")
    keep_single(monkeypatch, 100)
    few = tables_of_run(tmp_path, manifest, tmp_path / "store", keep=True, run_pieces=in_groups)
    assert few.sequences.height < wanted.sequences.height
    keep_single(monkeypatch, 1000)
    same(tables_of_run(tmp_path, manifest, tmp_path / "store", keep=True), wanted)
    assert len(list((tmp_path / "store" / PIECES).iterdir())) == 9  # pieces: the groups are of no use any more


def torn(kept: Path) -> None:
    kept.write_bytes(kept.read_bytes()[:-50])


def empty(kept: Path) -> None:
    kept.write_bytes(b"")


def of_another_length(kept: Path) -> None:
    content = kept.read_bytes()
    kept.write_bytes(content[:4] + b"\xff\xff\xff\xff" + content[8:])


def a_piece(kept: Path) -> None:
    """Write the tables of a piece that is in none of the groups."""
    piece = min(kept.parent.iterdir(), key=lambda path: path.stat().st_size)
    assert part_of(piece).cells.height
    kept.write_bytes(piece.read_bytes())


@pytest.mark.parametrize("harm", first_fast([torn, empty, of_another_length, a_piece], 2))
def test_a_kept_group_that_is_none_is_folded_anew(harm: Any, tmp_path: Path) -> None:
    manifest = write_files(tmp_path, [(made(sequences=320, steps=1), 1000, "recorder")])
    store = tmp_path / "store"
    wanted = tables_of_run(tmp_path, manifest, store, keep=True, run_pieces=in_groups)
    group = max((store / PIECES).iterdir(), key=lambda path: path.stat().st_size)
    whole = group.read_bytes()
    harm(group)
    same(tables_of_run(tmp_path, manifest, store, keep=True, run_pieces=in_groups), wanted)
    assert group.read_bytes() == whole


def test_a_group_sends_the_single_sequences_that_are_kept_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_single(monkeypatch, 75)
    manifest = write_files(tmp_path, [(made(sequences=288, steps=1), 1000, "recorder")])
    sent: list[pl.DataFrame] = []
    monkeypatch.setattr(local, "in_order", noting(sent))
    found = tables_of_run(tmp_path, manifest, tmp_path / "store", run_pieces=in_groups)
    assert len(sent) == 3
    assert_frame_equal(pl.concat(sent), found.sequences)


def noting(sent: list[pl.DataFrame]) -> Any:
    """Note the single sequences of what an engine gives."""

    def noted(*given: Any) -> Any:
        for summand in in_order(*given):
            assert summand.tables is not None
            sent.append(summand.tables.sequences)
            yield summand

    return noted


def the_second_alone(*given: Any) -> Any:
    """Answer for one group, and for nothing else."""
    yield from (answer for answer in in_groups(*given) if answer[0] == 3)


def test_what_nobody_answers_for_is_folded_here(tmp_path: Path) -> None:
    manifest = write_files(tmp_path, [(made(sequences=320, steps=1), 1000, "recorder")])
    wanted = tables_of_run(tmp_path, manifest, tmp_path / "a")
    same(tables_of_run(tmp_path, manifest, tmp_path / "b", run_pieces=the_second_alone), wanted)
