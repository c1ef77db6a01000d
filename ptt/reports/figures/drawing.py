"""Draws panels: one by one for the page, where they follow its colours, or together into files."""

from __future__ import annotations

import io
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from ptt.diagnostics.model import Diagnosis
from ptt.reports.figures import FIGURES
from ptt.reports.figures.panels import Panel, RunFigure
from ptt.reports.figures.style import BOTTOM, INK, LEFT, MUTED, PAPER, PROPERTIES, RIGHT, drawable, figure_style
from ptt.reports.output import write_with
from ptt.reports.text.tables import pair_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


DOTS = 72  # an SVG unit is then one CSS pixel
PNG_DPI = 150
HEAD, TITLE = 40, 22  # pixels above all panels, and above each
# none of these may enter the file: the same data must give the same bytes
NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}
_TAGS = re.compile(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>|<!--.*?-->|<defs>\s*</defs>", re.DOTALL)
_OPENING = re.compile(r"<svg[^>]*>")
_CLOSING = "</svg>"
_ID = re.compile(r' id="([^"]*)"')
_REFERENCE = re.compile(r'(?:url\(#|href="#)([^)"]*)')
_GEOMETRY = re.compile(r' (d|x|y|transform|points)="([^"]*)"')
_LONG_FRACTION = re.compile(r"(\d+\.\d\d)\d+")
_FONT = re.compile(r"font: ((?:\w+ )?[\d.]+px) [^;\"]*")
_COLOUR = re.compile("|".join(PROPERTIES))


def inline_svg(panel: Panel) -> str:
    """Draw what stands inside a panel's `svg` element: colours are custom properties, ids its own."""
    with figure_style(panel.key):
        figure = Figure(figsize=(panel.width / DOTS, panel.height / DOTS), dpi=DOTS)
        panel.draw(_axes(figure, panel, 0, 0))
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata=NO_METADATA)
    return _for_page(buffer.getvalue(), panel.key)


def composed_figures(diagnosis: Diagnosis) -> dict[str, Figure]:
    """Give every figure that has data, panels side by side, for a notebook."""
    found: dict[str, Figure] = {}
    for kind in FIGURES:
        panels = _of_files(kind, diagnosis)
        if panels:
            with figure_style(kind.name):
                found[kind.name] = _of_run(diagnosis, kind, panels)
    return found


def write_figures(diagnosis: Diagnosis, directory: Path) -> list[Path]:
    """Write every figure that has data as SVG and PNG, in the light colours on white."""
    written: list[Path] = []
    for kind in FIGURES:
        panels = _of_files(kind, diagnosis)
        if not panels:
            continue
        with figure_style(kind.name):
            written += save_figure(_of_run(diagnosis, kind, panels), directory, kind.name)
    return written


def save_figure(figure: Figure, directory: Path, name: str) -> list[Path]:
    """Write one figure as SVG and PNG; the look must still be in force."""
    written = []
    for ending in ("svg", "png"):
        metadata = NO_METADATA if ending == "svg" else {"Software": None}
        dpi = DOTS if ending == "svg" else PNG_DPI

        save = partial(figure.savefig, format=ending, dpi=dpi, facecolor=PAPER, metadata=metadata)
        written.append(write_with(directory / f"{name}.{ending}", save))
    return written


def _of_files(kind: RunFigure, diagnosis: Diagnosis) -> tuple[Panel, ...]:
    return tuple(panel for panel in kind.panels(diagnosis) if panel.shown != "narrow")


def _axes(figure: Figure, panel: Panel, left: float, top: float) -> Axes:
    """Add a panel's axes to a figure; `left` and `top` are pixels from the figure's upper left corner."""
    width, height = figure.get_size_inches() * DOTS
    before = LEFT if panel.left is None else panel.left
    after = RIGHT if panel.right is None else panel.right
    inner_width, inner_height = panel.width - before - after, panel.height - panel.top - BOTTOM
    bottom = height - top - panel.top - inner_height
    ax = figure.add_axes(((left + before) / width, bottom / height, inner_width / width, inner_height / height))
    ax.patch.set_alpha(0)
    return ax


def _of_run(diagnosis: Diagnosis, kind: RunFigure, panels: tuple[Panel, ...]) -> Figure:
    title = f"{kind.title} · {drawable(diagnosis.run.name)} · pair {drawable(pair_of(diagnosis))}"
    return composed(title, kind.columns, panels)


def composed(heading: str, most_columns: int, panels: tuple[Panel, ...]) -> Figure:
    """Put panels into rows of one figure below a heading; a row is as high as its highest panel."""
    columns = min(most_columns, len(panels))
    rows = [panels[first : first + columns] for first in range(0, len(panels), columns)]
    heights = [max(panel.height for panel in row) + TITLE for row in rows]
    cell_width = max(panel.width for panel in panels)
    width, height = columns * cell_width, HEAD + sum(heights)
    figure = Figure(figsize=(width / DOTS, height / DOTS), dpi=DOTS)
    figure.text(8 / width, 1 - 24 / height, heading, fontsize=15, fontweight="bold", color=INK)
    for index, row in enumerate(rows):
        top = HEAD + sum(heights[:index])
        for column, panel in enumerate(row):
            left = column * cell_width
            figure.text(
                (left + 8) / width, 1 - (top + 16) / height, drawable(panel.title, 60), fontsize=13, color=MUTED
            )
            panel.draw(_axes(figure, panel, left, top + TITLE))
    return figure


def _for_page(svg: str, key: str) -> str:
    body = _TAGS.sub("", svg[_after_opening(svg) : svg.rindex(_CLOSING)])
    used = set(_REFERENCE.findall(body))
    body = _ID.sub(lambda found: f' id="{key}-{found[1]}"' if found[1] in used else "", body)
    body = _REFERENCE.sub(lambda found: found[0][: -len(found[1])] + f"{key}-{found[1]}", body)
    body = _GEOMETRY.sub(lambda found: f' {found[1]}="{_LONG_FRACTION.sub(_shorter, found[2])}"', body)
    body = _FONT.sub(r"font: \1 var(--font)", body)
    body = _COLOUR.sub(lambda found: f"var({PROPERTIES[found[0]]})", body)
    return re.sub(r">\s+<", "><", body).strip()


def _after_opening(svg: str) -> int:
    opening = _OPENING.search(svg)
    if opening is None:
        raise ValueError("matplotlib wrote no svg element")
    return opening.end()


def _shorter(found: re.Match[str]) -> str:
    return found[1]
