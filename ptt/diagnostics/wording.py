"""Numbers in prose, and the words that follow a count, in the singular or the plural."""

import math
from typing import Final

THIN = "\u202f"  # a narrow no-break space: groups of three digits, as reports write them
LARGE = 100.0  # from here on a mean is read without digits behind the point


def readable(value: float) -> str:
    """Write a mean to three digits, and a large one in full: 4,450 and not 4.45e+03."""
    return f"{value:,.0f}" if abs(value) >= LARGE else f"{value:.3g}"


DIGITS: Final = 3
"""Significant digits of a number in prose: fewer than two hide a change, more than three are noise."""


def figure(value: float) -> str:
    """Write a measured number with two to three significant digits: 0.50, 0.294, 12, 1,230, 4.5e-07."""
    if not math.isfinite(value):
        return f"{value:g}"
    value = float(f"{value:.{DIGITS}g}")
    size = abs(value)
    if size != 0 and not 1e-4 <= size < 1e6:
        return f"{value:.1e}"
    if size >= 100:
        return f"{value:,.0f}".replace(",", THIN)
    places = DIGITS - 1 - math.floor(math.log10(size)) if size else 0
    text = f"{value:.{places}f}"
    least = max(0, places - 1)  # one zero behind two digits says nothing
    return text[:-1].rstrip(".") if places > least and text.endswith("0") else text


def counted(count: int, words: str) -> str:
    """Write a count and its words, in which `(s)` marks the plural: `1 row skipped`, `3 rows skipped`."""
    grouped = f"{count:,}".replace(",", THIN)
    return f"{grouped} {words.replace('(s)', '' if count == 1 else 's')}"
