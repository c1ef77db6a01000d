"""Samples of the arms' lines for tables and keys: the same colour, dash and marker as in the figures."""

from __future__ import annotations

from dataclasses import dataclass

from ptt.reports.comparing.figures.arms import Look
from ptt.reports.figures.style import PROPERTIES

# a marker's outline around the middle (17, 7) of its sample
SHAPES = {
    "o": "M13.4 7a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0-7.2 0z",
    "s": "M13.8 3.8h6.4v6.4h-6.4z",
    "^": "M17 3l4 7.4h-8z",
    "v": "M17 11l4-7.4h-8z",
    "D": "M17 2.4l4.6 4.6l-4.6 4.6l-4.6-4.6z",
    "P": "M15.6 3h2.8v2.6h2.6v2.8h-2.6v2.6h-2.8v-2.6h-2.6v-2.8h2.6z",
    "X": "M14 2.6l3 3l3-3l1.4 1.4l-3 3l3 3l-1.4 1.4l-3-3l-3 3l-1.4-1.4l3-3l-3-3z",
    "*": "M17 2l1.3 3.5h3.6l-2.9 2.3l1.1 3.6l-3.1-2.1l-3.1 2.1l1.1-3.6l-2.9-2.3h3.6z",
}


@dataclass(frozen=True, kw_only=True)
class Swatch:
    """A sample of an arm's line, in words of SVG that are all our own."""

    colour: str
    dashes: str
    shape: str


def swatch(look: Look) -> Swatch:
    """Give a sample of an arm's line."""
    pattern = () if isinstance(look.dash, str) else look.dash[1]
    variable = PROPERTIES[look.colour]
    dashes = " ".join(f"{part * look.width:.3g}" for part in pattern)
    return Swatch(colour=f"var({variable})", dashes=dashes, shape=SHAPES[look.marker])
