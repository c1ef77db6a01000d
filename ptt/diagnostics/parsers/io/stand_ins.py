"""Numbers that stand for the words NaN, Infinity and null while a block of JSON lines is read as columns.

Polars refuses the first two, and does not tell a null from a key that is missing. Each word that follows a colon is
replaced by a number that the block does not hold; if as many cells hold that number, each stands for one of the words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl

WORDS: Final[Mapping[bytes, tuple[float, float | None]]] = {
    b"NaN": (-(2.0**1000), float("nan")),
    b"Infinity": (-(2.0**1001), float("inf")),
    b"-Infinity": (-(2.0**1002), float("-inf")),
    b"null": (-(2.0**1003), None),
}
"""What a word is replaced by, and what it means. An exponent of three digits: a digit behind it makes no number."""
GAPS: Final = (b": ", b":")  # before a value, as writers of JSON have them


@dataclass(frozen=True)
class StandIns:
    """A block whose words are replaced, and how many of each."""

    block: bytes
    counts: Mapping[bytes, int]

    @property
    def has_nulls(self) -> bool:
        """Whether a null was replaced."""
        return b"null" in self.counts

    def restored(self, numbers: Mapping[str, pl.Series]) -> tuple[dict[str, pl.Series], dict[str, pl.Series]] | None:
        """Return the columns as they were meant, and by name in which rows a null stands.

        None where a word stood elsewhere than in a cell of its own.
        """
        found = dict(numbers)
        nulls: dict[str, pl.Series] = {}
        for word, count in self.counts.items():
            stand_in, meant = WORDS[word]
            left = count
            for name, column in found.items():
                here = (column == stand_in).fill_null(value=False)
                if not (cells := int(here.sum())):
                    continue
                left -= cells
                found[name] = column.to_frame("").select(pl.when(here).then(meant).otherwise(pl.first())).to_series()
                if meant is None:
                    nulls[name] = here
            if left:
                return None
        return found, nulls


def with_stand_ins(block: bytes) -> StandIns | None:
    """Replace the words; None where there are none, or one of the numbers is there."""
    counts: dict[bytes, int] = {}
    for word, (stand_in, _) in WORDS.items():
        number = repr(stand_in).encode()
        for gap in GAPS:
            if not (count := block.count(gap + word)):
                continue
            if not counts.get(word) and number in block:
                return None
            counts[word] = counts.get(word, 0) + count
            block = block.replace(gap + word, gap + number)
    return StandIns(block, counts) if counts else None
