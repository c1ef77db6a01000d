"""The report's figures: one file each, and this table of contents."""

from __future__ import annotations

from ptt.reports.figures import aggregates, effective_sample_size, exposure, tail_emergence, timeline, windowed_cdf
from ptt.reports.figures.panels import RunFigure

FIGURES: tuple[RunFigure, ...] = (
    timeline.FIGURE,
    tail_emergence.FIGURE,
    aggregates.FIGURE,
    windowed_cdf.FIGURE,
    effective_sample_size.FIGURE,
    effective_sample_size.OTHERS,
)
BEHIND_THE_TAIL: tuple[RunFigure, ...] = (exposure.FIGURE,)
"""Drawn in a section of their own, and only where the run holds what they need."""
