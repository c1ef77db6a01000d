"""A run that grew, changed or shrank since the last look gives what a first look at it gives, to the last byte."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from builders import Story, rising, sequences_of
from html_structure import answers_of

import ptt
from ptt.diagnostics.engines import local, pieces
from ptt.diagnostics.engines.pieces import Piece
from ptt.diagnostics.statistics import token_pass
from ptt.diagnostics.statistics.sound_tables import BegunPiece

pytestmark = pytest.mark.slow

STEPS = 24
A_STEP = 16  # sequences


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut runs into pieces of 32 sequences, two steps."""
    monkeypatch.setattr(token_pass, "BATCH_TOKENS", 16)
    monkeypatch.setattr(token_pass, "PIECE_BATCHES", 2)


@pytest.fixture
def folded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The first sequences of the pieces that were folded and not taken from the store, as they come."""
    firsts: list[int] = []
    fold = token_pass.fold

    def told(frame: pl.LazyFrame, *more: object, **named: object) -> object:
        for number, part in fold(frame, *more, **named):  # type: ignore[arg-type]
            firsts.append(int(part.rows["seq"][0]))
            yield number, part

    monkeypatch.setattr(pieces, "fold", told)
    return firsts


def write_steps(run: Path, steps: range, *, seed: int = 0, sequences: int = A_STEP) -> None:
    """Write a file a step, as a trainer does."""
    rows = sequences_of(Story(steps=STEPS, sequences=sequences, post=rising(0.05, 0.8), seed=seed))
    named = rows.with_columns(
        pl.format("s{}", "seq").alias("sample_id"), pl.format("g{}", pl.col("seq") // 4).alias("group_id")
    )
    run.mkdir(exist_ok=True)
    for step in steps:
        named.filter(pl.col("step") == step).drop("seq").write_parquet(run / f"step_{step:06d}.parquet")


def answers(run: Path, out: Path | None) -> tuple[str, str, dict[str, str]]:
    return answers_of(ptt.diagnose(run, out=out))


def tables(out: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((out / "store" / "tokens").glob("*.parquet"))]


def kept_names(out: Path) -> set[str]:
    return {path.name for path in (out / "store" / "pieces").iterdir()}


def whole_pieces(out: Path) -> list[Path]:
    return [out / "store" / "pieces" / name for name in sorted(kept_names(out)) if not name.endswith(pieces.BEGUN)]


def grow(run: Path) -> None:
    write_steps(run, range(STEPS, STEPS + 1))


def change(run: Path) -> None:
    write_steps(run, range(9, 10), seed=7)


def shrink(run: Path) -> None:
    (run / "step_000003.parquet").unlink()


def touch(run: Path) -> None:
    os.utime(run / "step_000005.parquet", (1, 1))


@pytest.mark.parametrize(("event", "anew"), [(grow, 1), (change, 1), (shrink, 10), (touch, 1)])
def test_a_run_that_changed_is_seen_as_if_for_the_first_time(
    event: Callable[[Path], None], anew: int, folded: list[int], tmp_path: Path
) -> None:
    run, out = tmp_path / "run", tmp_path / "out"
    write_steps(run, range(1, STEPS))
    answers(run, out)
    assert len(folded) == 12
    folded.clear()
    event(run)
    again = answers(run, out)
    assert len(folded) == anew
    first = answers(run, tmp_path / "fresh")
    assert again == first
    assert tables(out) == tables(tmp_path / "fresh")
    assert kept_names(out) == kept_names(tmp_path / "fresh")


def test_other_content_of_the_same_size_is_read(folded: list[int], tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "out"
    write_steps(run, range(1, STEPS))
    path = run / "step_000009.parquet"
    rows = pl.read_parquet(path)
    rows.write_parquet(path, compression="uncompressed", statistics=False)
    size = path.stat().st_size
    answers(run, out)
    swapped = rows.with_columns(policy_logp="ref_logp", ref_logp="policy_logp").select(rows.columns)
    swapped.write_parquet(path, compression="uncompressed", statistics=False)
    os.utime(path, ns=(1, 1))
    assert path.stat().st_size == size
    assert answers(run, out) == answers(run, tmp_path / "fresh")


def test_a_damaged_piece_is_folded_anew(folded: list[int], tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "out"
    write_steps(run, range(1, STEPS))
    answers(run, out)
    folded.clear()
    kept = whole_pieces(out)
    assert len(kept) == 11
    content = bytearray(kept[0].read_bytes())
    content[len(content) // 2] ^= 1
    kept[0].write_bytes(content)
    grow(run)
    again = answers(run, out)
    assert len(folded) == 2  # and the last, which grew
    assert again == answers(run, tmp_path / "fresh")


LONG_STEP = 24  # sequences: a batch and a half


@pytest.fixture
def rows_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many sequences were read at a time to be folded; a piece has eight batches, five steps and a third."""
    monkeypatch.setattr(token_pass, "PIECE_BATCHES", 8)
    read: list[int] = []
    fold = token_pass.fold

    def told(frame: pl.LazyFrame, *more: object) -> object:
        read.append(frame.select(pl.len()).collect().item())
        return fold(frame, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(pieces, "fold", told)
    return read


def write_long_steps(run: Path, steps: range, *, seed: int = 0) -> None:
    write_steps(run, steps, seed=seed, sequences=LONG_STEP)


def begun(out: Path) -> Path:
    (path,) = (out / "store" / "pieces").glob(f"*{pieces.BEGUN}")
    return path


def test_a_run_that_grows_step_by_step_pays_for_what_is_new(rows_read: list[int], tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "out"
    write_long_steps(run, range(1, 8))
    answers(run, out)
    read = []
    for step in range(8, 13):
        rows_read.clear()
        write_long_steps(run, range(step, step + 1))
        again = answers(run, out)
        read.append(rows_read.copy())
        if step in {8, 11, 12}:  # within a piece, at its end and behind it
            assert again == answers(run, tmp_path / f"fresh{step}")
            assert tables(out) == tables(tmp_path / f"fresh{step}")
            assert kept_names(out) == kept_names(tmp_path / f"fresh{step}")
    # of 192, 216, 240, 264 and 288 sequences: from the last whole batch on, and the fourth ends a piece
    assert read == [[32], [24], [32], [16, 8], [32]]


def rewrite(run: Path) -> None:
    write_long_steps(run, range(7, 8), seed=7)


def remove(run: Path) -> None:
    (run / "step_000007.parquet").unlink()


def remove_last(run: Path) -> None:
    (run / "step_000009.parquet").unlink()


def swap(run: Path) -> None:
    """Exchange the logprobs of a step: a file of the same size."""
    path = run / "step_000007.parquet"
    rows, size = pl.read_parquet(path), path.stat().st_size
    swapped = rows.with_columns(policy_logp="ref_logp", ref_logp="policy_logp").select(rows.columns)
    swapped.write_parquet(path, compression="uncompressed", statistics=False)
    os.utime(path, ns=(1, 1))
    assert path.stat().st_size == size


def grow_far(run: Path) -> None:
    write_long_steps(run, range(10, 18))


@pytest.mark.parametrize("event", [rewrite, remove, remove_last, swap, grow_far])
def test_a_piece_that_was_begun_is_taken_only_where_its_files_are_the_same(
    event: Callable[[Path], None], rows_read: list[int], tmp_path: Path
) -> None:
    run, out = tmp_path / "run", tmp_path / "out"
    write_long_steps(run, range(1, 10))
    path = run / "step_000007.parquet"
    pl.read_parquet(path).write_parquet(path, compression="uncompressed", statistics=False)
    answers(run, out)
    event(run)
    assert answers(run, out) == answers(run, tmp_path / "fresh")
    assert tables(out) == tables(tmp_path / "fresh")
    assert kept_names(out) == kept_names(tmp_path / "fresh")


def lose_a_sum(begun: BegunPiece) -> BegunPiece:
    return replace(begun, powers=begun.powers.head(-1))


def move_sequences(begun: BegunPiece) -> BegunPiece:
    return replace(begun, totals=begun.totals.with_columns(pl.col("seq") + 1000))


def lose_a_sequence(begun: BegunPiece) -> BegunPiece:
    return replace(begun, single=begun.single.head(-1))


def name_a_far_bin(begun: BegunPiece) -> BegunPiece:
    return replace(begun, cells=begun.cells.with_columns(pl.col("key") | (1 << 15) - 1))


def count_twice(begun: BegunPiece) -> BegunPiece:
    return replace(begun, cells=begun.cells.with_columns(pl.col("n") * 2))


def lose_a_column(begun: BegunPiece) -> BegunPiece:
    return replace(begun, rows=begun.rows.drop("n_obs"))


@pytest.mark.parametrize(
    "change", [lose_a_sum, move_sequences, lose_a_sequence, name_a_far_bin, count_twice, lose_a_column]
)
def test_records_that_cannot_be_the_piece_s_are_not_taken(
    change: Callable[[BegunPiece], BegunPiece], rows_read: list[int], tmp_path: Path
) -> None:
    run, out = tmp_path / "run", tmp_path / "out"
    write_long_steps(run, range(1, 10))
    answers(run, out)
    path = begun(out)
    store = pieces.KeptPieces(path.parent)
    records = BegunPiece.from_bytes(path.read_bytes()[pieces.CHECK_BYTES :])
    store.write_begun(path.name, change(records))
    write_long_steps(run, range(10, 11))
    rows_read.clear()
    again = answers(run, out)
    assert rows_read[-1] == 112  # all of the piece
    assert again == answers(run, tmp_path / "fresh")


@pytest.mark.parametrize("damage", ["cut", "flipped", "link"])
def test_damaged_records_of_a_piece_are_not_taken(damage: str, rows_read: list[int], tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "out"
    write_long_steps(run, range(1, 10))
    answers(run, out)
    path = begun(out)
    content = bytearray(path.read_bytes())
    if damage == "flipped":
        content[len(content) // 2] ^= 1
    path.write_bytes(content[: len(content) // 2 if damage == "cut" else len(content)])
    if damage == "link":
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    write_long_steps(run, range(10, 11))
    rows_read.clear()
    again = answers(run, out)
    assert rows_read == [112]
    assert again == answers(run, tmp_path / "fresh")


def test_pieces_of_another_plan_are_not_taken(folded: list[int], tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "out"
    write_steps(run, range(1, STEPS))
    answers(run, out)
    folded.clear()
    ptt.diagnose(run, out=out, settings=ptt.Settings(min_observation=20))
    assert len(folded) == 12


def test_a_full_disk_costs_the_next_look_its_time_alone(
    folded: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    run, out = tmp_path / "run", tmp_path / "out"
    write_steps(run, range(1, STEPS))
    monkeypatch.setattr(pieces.KeptPieces, "write", full)
    assert answers(run, out) == answers(run, None)


def test_names_of_pieces_hold_what_decides_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    write_steps(run, range(1, 5))
    seen: list[Piece] = []
    cut = pieces.cut

    def told(*given: object) -> list[Piece]:
        seen.extend(cut(*given))  # type: ignore[arg-type]
        return cut(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(local, "cut", told)
    answers(run, tmp_path / "out")
    names = {piece.name() for piece in seen}
    assert len(names) == len(seen) == 2
    moved = tmp_path / "moved"
    shutil.move(run, moved)
    answers(moved, tmp_path / "other")
    assert {piece.name() for piece in seen[2:]} == names  # of what lies elsewhere the same
