"""Makes one self-contained HTML file of a diagnosis: no script, no network, one file to mail."""

from __future__ import annotations

from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ptt import __version__
from ptt.diagnostics.model import Diagnosis
from ptt.reports.details import details
from ptt.reports.drawing import inline_svg
from ptt.reports.figures import BEHIND_THE_TAIL, FIGURES
from ptt.reports.foreign import encodable
from ptt.reports.growth_parts import answer
from ptt.reports.panels import DataTable, FigureKind, Panel
from ptt.reports.view import view

TEMPLATE = "report.html.j2"


@dataclass(frozen=True, kw_only=True)
class DrawnPanel:
    """One panel, drawn: `svg` is our own drawing and the only markup that the template takes as it is."""

    key: str
    title: str
    alt: str
    width: int
    height: int
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
    environment = Environment(
        loader=PackageLoader("ptt.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    figures = tuple(_figure(kind, diagnosis) for kind in FIGURES)
    behind = tuple(figure for kind in BEHIND_THE_TAIL if (figure := _figure(kind, diagnosis)).panels)
    page = environment.get_template(TEMPLATE).render(
        report=view(diagnosis),
        figures=figures,
        behind=behind,
        growth_parts=answer(diagnosis),
        details=details(diagnosis),
        version=__version__,
    )
    return encodable(page)


def _figure(kind: FigureKind, diagnosis: Diagnosis) -> DrawnFigure:
    panels = kind.panels(diagnosis)
    return DrawnFigure(
        name=kind.name,
        title=kind.title,
        caption=kind.caption(diagnosis) if panels else kind.absence(diagnosis),
        columns=kind.columns,
        panels=tuple(_panel(panel) for panel in panels),
        tables=kind.data(diagnosis),
    )


def _panel(panel: Panel) -> DrawnPanel:
    return DrawnPanel(
        key=panel.key,
        title=panel.title,
        alt=panel.alt,
        width=panel.width,
        height=panel.height,
        svg=Markup(inline_svg(panel)),  # noqa: S704  our own SVG: matplotlib escapes the texts in it
    )
