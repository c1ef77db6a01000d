"""What tokens say: decoded one by one, and what a secret stands in is masked whole."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from ptt.diagnostics.scrub.scrub import MASK, Scrubber

MASKED: Final = "[masked]"
UNKNOWN: Final = " "  # stands for a token that no tokenizer knows, so that what is beside it is read apart
SPLIT: Final = re.compile(f"{MASK.pattern}|~")  # a home folder becomes ~
MIN_PIECE: Final = 8  # letters between two masks: fewer may stand in what is masked as well


def scrubbed(tokens: Sequence[str | None]) -> list[str | None]:
    """Return the tokens' texts; those that a mask of their joined text covers, in whole or in part, are masked."""
    pieces = [UNKNOWN if token is None else token for token in tokens]
    text = "".join(pieces)
    covered = _covered(text, Scrubber().text(text))
    if not covered:
        return list(tokens)
    ends = list(accumulate(map(len, pieces)))
    starts = [end - len(piece) for end, piece in zip(ends, pieces, strict=True)]
    return [
        token if token is None or not any(low < end and start < high for low, high in covered) else MASKED
        for token, start, end in zip(tokens, starts, ends, strict=True)
    ]


def _covered(text: str, masked: str) -> list[tuple[int, int]]:
    """Return the ranges of a text that stand under a mask; all of it where what is left cannot be found in it."""
    if text == masked:
        return []
    head, *inner, tail = SPLIT.split(masked)
    if not text.startswith(head) or not text.endswith(tail) or len(head) + len(tail) > len(text):
        return [(0, len(text))]
    ranges, at = [], len(head)
    for piece in (piece for piece in inner if len(piece) >= MIN_PIECE):
        start = text.find(piece, at, len(text) - len(tail))
        if start < 0:
            break
        ranges.append((at, start))
        at = start + len(piece)
    return [*ranges, (at, len(text) - len(tail))]
