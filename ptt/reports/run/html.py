"""Makes one self-contained HTML file of a diagnosis: no script, no network, one file to mail."""

from __future__ import annotations

from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ptt.diagnostics.model import Diagnosis
from ptt.reports.figures import BEHIND_THE_TAIL, FIGURES
from ptt.reports.figures.drawing import inline_svg
from ptt.reports.figures.panels import DataTable, FigureKind, Panel
from ptt.reports.run.handover import checkpoint_rows, item_views, list_views, role_views
from ptt.reports.run.tail_details import details
from ptt.reports.run.view import view
from ptt.reports.text.names import sentence
from ptt.reports.text.sanitize import encodable
from ptt.reports.text.why import answer
from ptt.version import __version__

TEMPLATE = "report.html.j2"


@dataclass(frozen=True, kw_only=True)
class DrawnPanel:
    """One panel, drawn: `svg` is our own drawing and the only markup that the template takes as it is."""

    key: str
    title: str
    alt: str
    width: int
    height: int
    shown: str
    svg: Markup


@dataclass(frozen=True, kw_only=True)
class DrawnFigure:
    """One figure, drawn, or its caption alone that says why there is none."""

    name: str
    title: str
    caption: str
    columns: int
    panels: tuple[DrawnPanel, ...]
    tables: tuple[DataTable, ...]


def render_html(diagnosis: Diagnosis) -> str:
    """Give the text of report.html; the same diagnosis gives the same bytes."""
    figures = tuple(_figure(kind, diagnosis) for kind in FIGURES)
    drawn = tuple(figure for figure in figures if figure.panels)
    behind = tuple(figure for kind in BEHIND_THE_TAIL if (figure := _figure(kind, diagnosis)).panels)
    page = (
        pages()
        .get_template(TEMPLATE)
        .render(
            report=view(diagnosis),
            figures=drawn,
            undrawn=() if diagnosis.from_findings else _undrawn(figures),
            behind=behind,
            growth_parts=answer(diagnosis),
            details=details(diagnosis),
            keep=role_views(diagnosis),
            checkpoints=checkpoint_rows(diagnosis),
            context=item_views(diagnosis),
            checklists=list_views(diagnosis),
            version=__version__,
        )
    )
    return encodable(page)


def pages() -> Environment:
    """Give what fills our templates: everything is escaped, and a name that is missing is an error."""
    return Environment(
        loader=PackageLoader("ptt.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _undrawn(figures: tuple[DrawnFigure, ...]) -> tuple[str, ...]:
    """Give one line a reason, with the figures that could not be drawn for it."""
    by_reason: dict[str, list[str]] = {}
    for figure in figures:
        if not figure.panels and figure.caption:
            by_reason.setdefault(figure.caption.removeprefix("Not drawn: "), []).append(figure.title)
    return tuple(f"Not drawn: {'; '.join(titles)}. {sentence(reason)}" for reason, titles in by_reason.items())


def _figure(kind: FigureKind, diagnosis: Diagnosis) -> DrawnFigure:
    panels = kind.panels(diagnosis)
    return DrawnFigure(
        name=kind.name,
        title=kind.title,
        caption=kind.caption(diagnosis) if panels else kind.absence(diagnosis),
        columns=kind.columns,
        panels=tuple(drawn_panel(panel) for panel in panels),
        tables=kind.data(diagnosis),
    )


def drawn_panel(panel: Panel) -> DrawnPanel:
    """Draw one panel for the page."""
    return DrawnPanel(
        key=panel.key,
        title=panel.title,
        alt=panel.alt,
        width=panel.width,
        height=panel.height,
        shown=panel.shown,
        svg=Markup(inline_svg(panel)),  # noqa: S704  our own SVG: matplotlib escapes the texts in it
    )
