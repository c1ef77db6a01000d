"""Makes one self-contained HTML file of a comparison, and its figures as files: the same look as a run's report."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from ptt import __version__
from ptt.diagnostics.comparing.values import Comparison
from ptt.reports.comparing.figures import BEHIND, EVERY, FOLDED, MAIN
from ptt.reports.comparing.figures.arms import ROW, draw_key, looks
from ptt.reports.comparing.figures.kinds import CompareFigure
from ptt.reports.comparing.page import page
from ptt.reports.drawing import composed, save_figure
from ptt.reports.figures.style import drawable, look
from ptt.reports.foreign import encodable
from ptt.reports.names import sentence
from ptt.reports.panels import Panel
from ptt.reports.render import DrawnFigure, drawn_panel, pages

TEMPLATE = "compare.html.j2"


def render_compare_html(comparison: Comparison) -> str:
    """Give the text of compare.html; the same comparison gives the same bytes."""
    main, behind, folded = (
        tuple(figure for kind in kinds if (figure := _figure(kind, comparison)).panels)
        for kinds in (MAIN, BEHIND, FOLDED)
    )
    drawn = {figure.name for figure in (*main, *behind, *folded)}
    text = (
        pages()
        .get_template(TEMPLATE)
        .render(
            compared=page(comparison),
            main=main,
            behind=behind,
            folded=folded,
            undrawn=tuple(
                f"{kind.title}: not drawn. {sentence(kind.absence)}"
                for kind in EVERY
                if kind.absence and kind.name not in drawn
            ),
            version=__version__,
        )
    )
    return encodable(text)


def write_compare_figures(comparison: Comparison, folder: Path) -> list[Path]:
    """Write every figure that has data as SVG and PNG, in the light colours on white."""
    written: list[Path] = []
    for kind in EVERY:
        panels = tuple(panel for panel in kind.panels(comparison) if panel.shown != "narrow")
        if not panels:
            continue
        if kind.keyed:
            panels = (*panels, _key(comparison, panels[0]))
        pair = drawable(comparison.pair or "not named")
        with look(kind.name):
            written += save_figure(composed(f"{kind.title} · pair {pair}", kind.columns, panels), folder, kind.name)
    return written


def _key(comparison: Comparison, beside: Panel) -> Panel:
    arms = tuple(looks(comparison).values())
    height = max(beside.height, round(60 + ROW * len(arms)))
    return replace(beside, key="compare-key", title="Arms", draw=partial(draw_key, chosen=arms), height=height)


def _figure(kind: CompareFigure, comparison: Comparison) -> DrawnFigure:
    panels = kind.panels(comparison)
    return DrawnFigure(
        name=kind.name,
        title=kind.title,
        caption=kind.caption(comparison) if panels else "",
        columns=kind.columns,
        panels=tuple(drawn_panel(panel) for panel in panels),
        tables=kind.data(comparison) if panels else (),
    )
