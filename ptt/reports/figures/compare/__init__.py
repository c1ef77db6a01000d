"""The figures of a comparison: one file each, and this table of contents in the order of the page."""

from __future__ import annotations

from ptt.reports.figures.compare import aggregates, distributions, divergence, effective_sample_size, forest, tails
from ptt.reports.figures.compare.rows import CompareFigure

MAIN: tuple[CompareFigure, ...] = (forest.FIGURE, tails.BY_STEPS, tails.EACH_ARM)
"""What the comparison is about."""
BEHIND: tuple[CompareFigure, ...] = (
    divergence.FIGURE,
    aggregates.FIGURE,
    distributions.WHOLE,
    distributions.RIGHT_TAIL,
    effective_sample_size.FIGURE,
)
FOLDED: tuple[CompareFigure, ...] = (tails.BY_TOKENS, aggregates.OTHERS)
"""The same questions asked another way, and what few look at: shown on demand."""
EVERY: tuple[CompareFigure, ...] = (*MAIN, *BEHIND, *FOLDED)
