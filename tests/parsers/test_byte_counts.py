"""Counts of marks in a block agree with those of `bytes`, across the edges of the chunks they are taken in."""

from __future__ import annotations

import random

import pytest

from ptt.diagnostics.parsers.io.json_blocks import (
    CHUNK,
    count_colons,
    count_keys,
    count_line_ends,
    count_openings,
    holds_null,
)


@pytest.mark.parametrize("size", [0, 1, 3, 40, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 3])
def test_counts_are_those_of_bytes(size: int) -> None:
    drawn = random.Random(size)
    for marks in (b'nul":{[\n', b'":', b"{[", b"xnul"):
        block = bytes(drawn.choices(marks, k=size))
        assert count_colons(block) == block.count(b":")
        assert count_keys(block) == block.count(b'":')
        assert count_openings(block) == block.count(b"{") + block.count(b"[")
        assert count_line_ends(block) == block.count(b"\n")
        assert holds_null(block) == (b"null" in block)


@pytest.mark.parametrize("before", [0, 1, 2, 3, CHUNK - 3, CHUNK - 1, CHUNK, 2 * CHUNK - 2])
@pytest.mark.parametrize("behind", [0, 1, CHUNK])
def test_a_single_null_is_found_wherever_it_stands(before: int, behind: int) -> None:
    assert holds_null(b"." * before + b"null" + b"." * behind)
    assert not holds_null(b"." * before + b"nul" + b"." * behind)
