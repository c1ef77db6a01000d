"""Damaged files of every format: cut at every byte, bytes flipped; nothing raises, and what is lost is counted."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from parser_samples import SAMPLES, losses, pieces_of, read_as, run_file, takers, tf_record_ends
from samples_carriers import LINES, RECORD_LINES

pytestmark = pytest.mark.slow

EVERY = bool(os.environ.get("PTT_EVERY_BYTE"))  # set by `make test-bytes`: every file at every byte
EVERY_BYTE = 150  # bytes of a file that is always cut everywhere
ENDS = 12
BETWEEN = 15


@pytest.mark.parametrize("rel", SAMPLES)
def test_a_file_cut_anywhere_gives_no_more_rows_than_the_whole(
    samples: dict[str, Path], tmp_path: Path, rel: str
) -> None:
    data, name = samples[rel].read_bytes(), SAMPLES[rel][0]
    whole, _ = read_as(name, tmp_path / rel, data, rel)
    for size in _cuts(len(data)):
        rows, pieces = read_as(name, tmp_path / rel, data[:size], rel)
        assert rows <= whole
        if rows < whole and size > 0 and not _cut_cleanly(rel, data, size):
            assert losses(pieces) != (0, 0, ""), f"cut at {size}"


def _cuts(size: int) -> list[int]:
    """Give where a file of `size` bytes is cut: at every byte of a small one, of others at the ends and in between."""
    if size <= EVERY_BYTE or EVERY:
        return list(range(size))
    ends = {*range(ENDS), *range(size - ENDS, size)}
    return sorted(ends | set(range(0, size, 2 * (1 + size // (2 * BETWEEN)))))


def _cut_cleanly(rel: str, data: bytes, size: int) -> bool:
    """Whether nothing torn is left behind: the cut lies between two lines or two records."""
    if "tfevents" in rel:
        return size in tf_record_ends(data)
    line = data[:size].rpartition(b"\n")[2]
    if SAMPLES[rel][0] == "console_log":  # a progress bar ends without a line end, and holds no row
        last = line.rpartition(b"\r")[2]
        line = b"" if not last.strip() or b"%|" in last else line
    if SAMPLES[rel][0] == "metrics_csv":  # a last cell that is cut looks like a shorter one
        header = next(line for line in data.split(b"\n") if not line.startswith(b"#"))
        return not line or any(line.count(sep) == header.count(sep) > 0 for sep in (b",", b"\t")) or line == data[:size]
    named = rel.endswith((".jsonl", ".txt", ".log")) or SAMPLES[rel][0] == "bfcl"  # whose lines are named .json
    whole = not line or data[size : size + 1] == b"\n"
    ended = data[:size].count(b"\n") + bool(line)  # lines, of which a record may take several
    return (named or rel in LINES) and whole and ended % RECORD_LINES.get(rel, 1) == 0


@pytest.mark.parametrize("rel", SAMPLES)
def test_flipped_bytes_never_raise(samples: dict[str, Path], tmp_path: Path, rel: str) -> None:
    data, name = samples[rel].read_bytes(), SAMPLES[rel][0]
    dice = random.Random(rel)
    for _ in range(10):
        damaged = bytearray(data)
        for _ in range(dice.choice((1, 1, 3, 20))):
            damaged[dice.randrange(len(damaged))] = dice.choice((0, 0xFF, 0x22, 0x5C, dice.randrange(256)))
        read_as(name, tmp_path / rel, bytes(damaged), rel)
        takers(run_file(tmp_path / rel, rel))


def test_a_table_that_ends_inside_a_number_says_that_it_may_be_cut(tmp_path: Path) -> None:
    whole = b"step\tloss\n1\t0.5\n2\t0.25\n"
    for data, told in ((whole, False), (whole[:-2], True)):
        path = tmp_path / "metrics.tsv"
        path.write_bytes(data)
        assert ("its last number may be cut" in losses(pieces_of(path, "metrics_csv"))[2]) == told
