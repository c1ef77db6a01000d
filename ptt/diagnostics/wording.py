"""Numbers in prose, and the words that follow a count, in the singular or the plural."""

import math
from collections.abc import Sequence
from typing import Final

THIN = "\u202f"  # a narrow no-break space: groups of three digits, as reports write them
MINUS = "−"
SMALL, HUGE = 1e-4, 1e7  # outside, powers of ten are easier to read than zeros
LARGE = 100.0  # from here on a number is read without digits behind the point
INNER_QUOTES: Final = str.maketrans(dict.fromkeys('"“”«»`', "'"))  # masking ends a quote at its first mark
DIGITS: Final = 3
"""Significant digits of a number in prose: fewer than two hide a change, more than three are noise."""


def sig(value: float, unit: str = "") -> str:
    """Write a measured value with two to three significant digits and its unit: 0.50, 0.294, 12, 4,450, −0.0023."""
    size = abs(float(f"{value:.{DIGITS}g}"))
    if not math.isfinite(value):
        text = f"{value:g}"
    elif value == 0:
        text = "0"
    elif not SMALL <= size < HUGE:
        text = f"{value:.1e}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")
    elif size >= LARGE:
        text = f"{float(f'{value:.{DIGITS}g}'):,.0f}"
    else:
        text = f"{value:#.{DIGITS}g}"
        text = text[:-1] if text.endswith("0") else text
    text = text.rstrip(".").replace("-", MINUS)
    return f"{text}{THIN}{unit}" if unit else text


def pct(share: float) -> str:
    """Write a share of one as per cent with two to three significant digits: 5.0%, 50%, 100%."""
    return f"{sig(100.0 * share)}%"


def counted(count: int, words: str) -> str:
    """Write a count and its words, in which `(s)` marks the plural: `1 row skipped`, `3 rows skipped`."""
    grouped = f"{count:,}".replace(",", THIN)
    return f"{grouped} {words.replace('(s)', '' if count == 1 else 's')}"


def joined(words: Sequence[str], *, last: str = " and ") -> str:
    """Join words as a sentence does: a, b and c."""
    return last.join(words) if len(words) < 3 else ", ".join(words[:-1]) + last + words[-1]


def shortened(text: str, most: int) -> str:
    """Return a line of a log as a quote holds it: without quotation marks of its own, and its end left out."""
    text = text.translate(INNER_QUOTES)
    return text if len(text) <= most else f"{text[:most]}…"
