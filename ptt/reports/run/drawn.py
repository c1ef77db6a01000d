"""Draws the figures of a page. It imports little else: a process of its own draws while another makes the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.model import Diagnosis
from ptt.reports.figures import BEHIND_THE_TAIL, FIGURES
from ptt.reports.figures.faults import FigureFault, suppress_faults
from ptt.reports.figures.panels import DataTable, FigureSpec, Panel, Source
from ptt.reports.text.names import sentence

if TYPE_CHECKING:
    from ptt.diagnostics.compare.comparison import Comparison


@dataclass(frozen=True, kw_only=True)
class DrawnPanel:
    """One panel as SVG; the other fields are those of `Panel`."""

    key: str
    title: str
    alt: str
    width: int
    height: int
    shown: str
    svg: Markup


@dataclass(frozen=True, kw_only=True)
class DrawnFigure:
    """One figure with its caption; without panels, the caption says why there are none."""

    name: str
    title: str
    caption: str
    columns: int
    panels: tuple[DrawnPanel, ...]
    tables: tuple[DataTable, ...]
    folded: bool


@dataclass(frozen=True, kw_only=True)
class RunFigures:
    """The figures on a run's page, those behind the tail, those of run and baseline, and what could not be drawn."""

    main: list[DrawnFigure]
    behind: list[DrawnFigure]
    both: list[DrawnFigure]
    faults: list[FigureFault]


def draw_run(diagnosis: Diagnosis, beside: Comparison | None = None) -> RunFigures:
    """Draw all figures of a run's page. `beside`: the run set against a baseline."""
    faults: list[FigureFault] = []
    both = [] if beside is None else _of_both(beside, faults)
    main = drawn_figures(FIGURES, diagnosis, faults)
    return RunFigures(main=main, behind=drawn_figures(BEHIND_THE_TAIL, diagnosis, faults), both=both, faults=faults)


def _of_both(beside: Comparison, faults: list[FigureFault]) -> list[DrawnFigure]:
    from ptt.reports.figures.compare import MAIN  # few runs stand beside a baseline, and loading it takes a while

    return drawn_figures(MAIN, beside, faults)


def drawn_figures(kinds: Sequence[FigureSpec[Source]], source: Source, faults: list[FigureFault]) -> list[DrawnFigure]:
    """Draw figures for the page; those that cannot be drawn are left out, and added to `faults`."""
    figures = []
    for kind in kinds:
        with suppress_faults(kind, faults):
            figures.append(_drawn_figure(kind, source))
    return figures


def _drawn_figure(kind: FigureSpec[Source], source: Source) -> DrawnFigure:
    panels = kind.panels(source)
    return DrawnFigure(
        name=kind.name,
        title=(kind.takeaway(source) if panels else "") or kind.title,
        caption=kind.caption(source) if panels else kind.absence(source),
        columns=kind.columns,
        panels=tuple(_drawn_panel(panel) for panel in panels),
        tables=kind.data(source),
        folded=kind.folded,
    )


def _drawn_panel(panel: Panel) -> DrawnPanel:
    from ptt.reports.figures.drawing import inline_svg  # and matplotlib, which takes half a second

    return DrawnPanel(
        key=panel.key,
        title=panel.title,
        alt=panel.alt,
        width=panel.width,
        height=panel.height,
        shown=panel.shown,
        svg=Markup(inline_svg(panel)),  # noqa: S704  our own SVG: matplotlib escapes the texts in it
    )


def undrawn_lines(figures: Sequence[DrawnFigure]) -> list[str]:
    """Return one line a reason, with the figures that could not be drawn for it."""
    titles: dict[str, list[str]] = {}
    for figure in figures:
        if not figure.panels and figure.caption:
            titles.setdefault(figure.caption.removeprefix("Not drawn: "), []).append(figure.title)
    return [f"Not drawn: {'; '.join(names)}. {sentence(reason)}" for reason, names in titles.items()]


def fault_lines(faults: Sequence[FigureFault]) -> list[str]:
    """Return one line for each figure that could not be drawn."""
    return [f"Not drawn: {fault.title}. {fault.reason}" for fault in faults]
