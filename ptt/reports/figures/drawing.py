"""Draws panels: one by one for the page, where they follow its colours, or together into files."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from ptt.diagnostics.model import Diagnosis
from ptt.reports.figures import FIGURES
from ptt.reports.figures.faults import DiskError, FigureFault, suppress_faults
from ptt.reports.figures.panels import FigureSpec, Panel, Source
from ptt.reports.figures.style import (
    BOTTOM,
    HOVER,
    INK,
    LEFT,
    MUTED,
    NEXT,
    PAPER,
    PROPERTIES,
    RIGHT,
    drawable,
    figure_style,
)
from ptt.reports.output import write_with
from ptt.reports.text.tables import pair_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


DPI = 72  # an SVG unit is then one CSS pixel
PNG_DPI = 150
HEADING_SIZE, LEAST_HEADING_SIZE = 15.0, 9.0
HEADING_LETTER = 9.6  # pixels: the mean width of a letter of the heading
HEADING_HEIGHT, TITLE_HEIGHT = 58, 22  # pixels above all panels, and above each
# none of these may enter the file: the same data must give the same bytes
NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}
_TAGS = re.compile(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>|<!--.*?-->|<defs>\s*</defs>", re.DOTALL)
_ID = re.compile(r' id="([^"]*)"')
_REFERENCE = re.compile(r'(?:url\(#|href="#)([^)"]*)')
_GEOMETRY = re.compile(r' (?:d|x|y|transform|points)="[^"]*"')
_LONG_FRACTION = re.compile(r"(\d+\.\d\d)\d+")
_FONT = re.compile(r"font: ((?:\w+ )?[\d.]+px) [^;\"]*")
_MARKER = re.compile(r"<use [^>]*/>")
_MARKERS = re.compile(r"<g( clip-path=\"[^\"]*\")?>((?:\s*<use [^>]*/>)+)\s*</g>")
_STYLE = re.compile(r' style="[^"]*"')
_COLOUR = re.compile("|".join(PROPERTIES))


def inline_svg(panel: Panel) -> str:
    """Draw what stands inside a panel's `svg` element: colours are custom properties, ids its own."""
    with figure_style(panel.key):
        figure = Figure(figsize=(panel.width / DPI, panel.height / DPI), dpi=DPI)
        panel.draw(_axes(figure, panel, 0, 0))
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata=NO_METADATA)
    return _for_page(buffer.getvalue(), panel.key)


def composed_figures(diagnosis: Diagnosis) -> dict[str, NotebookFigure]:
    """Return every figure that has data, panels side by side, for a notebook."""
    figures = {}
    for spec in FIGURES:
        with figure_style(spec.name), suppress_faults(spec, []):
            if (figure := _composed(spec, diagnosis, _subject(diagnosis), None)) is not None:
                figures[spec.name] = figure
    return figures


def write_figures(diagnosis: Diagnosis, directory: Path, faults: list[FigureFault] | None = None) -> list[Path]:
    """Write every figure that has data as SVG and PNG, in the light colours on white.

    One that cannot be drawn is left out, and its fault added to `faults`.
    """
    return save_figures(FIGURES, diagnosis, _subject(diagnosis), directory, faults=faults)


def _subject(diagnosis: Diagnosis) -> str:
    return f"{drawable(diagnosis.run.name)} · pair {drawable(pair_of(diagnosis))}"


def save_figures(
    specs: Sequence[FigureSpec[Source]],
    source: Source,
    subject: str,
    directory: Path,
    key: Callable[[Panel], Panel] | None = None,
    faults: list[FigureFault] | None = None,
) -> list[Path]:
    """Write figures as SVG and PNG under headings that end with a subject; `key` makes the key of those that want one.

    Panels for narrow screens are left out, and so are figures that cannot be drawn: their faults go to `faults`.
    """
    written: list[Path] = []
    for spec in specs:
        with figure_style(spec.name), suppress_faults(spec, [] if faults is None else faults):
            figure = _composed(spec, source, subject, key)
            for ending, dpi, metadata in (("svg", DPI, NO_METADATA), ("png", PNG_DPI, {"Software": None})):
                if figure is not None:
                    content = io.BytesIO()  # before the file: what fails here is the figure, not the disk
                    figure.savefig(content, format=ending, dpi=dpi, facecolor=PAPER, metadata=metadata)
                    drawn = _with_titles(content.getvalue()) if ending == "svg" else content.getvalue()
                    written.append(_write(directory / f"{spec.name}.{ending}", drawn))
    return written


def _write(path: Path, content: bytes) -> Path:
    try:
        return write_with(path, lambda part: part.write_bytes(content))
    except OSError as error:
        raise DiskError from error


def _composed(
    spec: FigureSpec[Source], source: Source, subject: str, key: Callable[[Panel], Panel] | None
) -> NotebookFigure | None:
    """Return a figure of one or more panels; None without data."""
    panels = [panel for panel in spec.panels(source) if panel.shown != "narrow"]
    if panels and spec.keyed and key is not None:
        panels.append(key(panels[0]))
    if not panels:
        return None
    return _side_by_side((spec.takeaway(source) or spec.title, f"{spec.title} · {subject}"), spec.columns, panels)


def _with_titles(content: bytes) -> bytes:
    return _titled(content.decode("utf-8")).encode("utf-8")


def _axes(figure: Figure, panel: Panel, left: float, top: float) -> Axes:
    """Add a panel's axes to a figure; `left` and `top` are pixels from the figure's upper left corner."""
    width, height = figure.get_size_inches() * DPI
    before = LEFT if panel.left is None else panel.left
    after = RIGHT if panel.right is None else panel.right
    inner_width, inner_height = panel.width - before - after, panel.height - panel.top - BOTTOM
    bottom = height - top - panel.top - inner_height
    ax = figure.add_axes(((left + before) / width, bottom / height, inner_width / width, inner_height / height))
    ax.patch.set_alpha(0)
    return ax


class NotebookFigure(Figure):
    """A figure that a notebook shows as SVG."""

    salt = "notebook"  # of the ids inside the SVG: those of two figures on one page must differ

    def _repr_svg_(self) -> str:
        with figure_style(self.salt):
            content = io.BytesIO()
            self.savefig(content, format="svg", dpi=DPI, facecolor=PAPER, metadata=NO_METADATA)
        return _titled(content.getvalue().decode("utf-8"))


def _side_by_side(heading: tuple[str, str], most_columns: int, panels: Sequence[Panel]) -> NotebookFigure:
    """Put panels into rows of one figure below a heading of two lines; a row is as high as its highest panel."""
    columns = min(most_columns, len(panels))
    rows = [panels[first : first + columns] for first in range(0, len(panels), columns)]
    heights = [max(panel.height for panel in row) + TITLE_HEIGHT for row in rows]
    cell_width = max(panel.width for panel in panels)
    width, height = columns * cell_width, HEADING_HEIGHT + sum(heights)
    figure = NotebookFigure(figsize=(width / DPI, height / DPI), dpi=DPI)
    figure.salt = heading[1]
    room = int(width / HEADING_LETTER)
    shrunk = min(1.0, room / max(len(heading[0]), 1))  # a heading that is cut may end in another meaning
    size = max(HEADING_SIZE * shrunk, LEAST_HEADING_SIZE)
    figure.text(8 / width, 1 - 22 / height, heading[0], fontsize=size, fontweight="bold", color=INK)
    figure.text(8 / width, 1 - 44 / height, heading[1][:room], fontsize=13, color=MUTED)
    for index, row in enumerate(rows):
        top = HEADING_HEIGHT + sum(heights[:index])
        for column, panel in enumerate(row):
            left = column * cell_width
            figure.text(
                (left + 8) / width, 1 - (top + 16) / height, drawable(panel.title, 60), fontsize=13, color=MUTED
            )
            panel.draw(_axes(figure, panel, left, top + TITLE_HEIGHT))
    return figure


def _titled(svg: str) -> str:
    """Turn what an artist says under a pointer into titles: of its group, and of its markers in their order."""
    head, *groups = svg.split(f'<g id="{HOVER}')
    parts = [head]
    for group in groups:
        texts, _, rest = group.partition('">')
        whole, *points = texts.split(NEXT)
        markers = list(_MARKER.finditer(rest))[: len(points)]
        for text, marker in reversed(list(zip(points, markers, strict=False))):
            rest = f"{rest[: marker.end() - 2]}><title>{text}</title></use>{rest[marker.end() :]}"
        parts.append(f"<g><title>{whole}</title>{rest}")
    return "".join(parts)


def _shared_style(svg: str) -> str:
    """Move the style that all markers of a line have to the group around them."""
    return _MARKERS.sub(_style_of_group, svg)


def _style_of_group(match: re.Match[str]) -> str:
    styles = set(_STYLE.findall(match[2]))
    return f"<g{match[1] or ''}{styles.pop()}>{_STYLE.sub('', match[2])}</g>" if len(styles) == 1 else match[0]


def _for_page(svg: str, key: str) -> str:
    body = svg.partition("<svg")[2].partition(">")[2].rpartition("</svg>")[0]
    body = _titled(_shared_style(_TAGS.sub("", body))).replace("xlink:href", "href")
    used = set(_REFERENCE.findall(body))
    body = _ID.sub(lambda match: f' id="{key}-{match[1]}"' if match[1] in used else "", body)
    body = _REFERENCE.sub(lambda match: match[0][: -len(match[1])] + f"{key}-{match[1]}", body)
    body = _GEOMETRY.sub(lambda match: _LONG_FRACTION.sub(r"\1", match[0]), body)
    body = _FONT.sub(r"font: \1 var(--font)", body)
    body = _COLOUR.sub(lambda match: f"var({PROPERTIES[match[0]]})", body)
    return re.sub(r">\s+<", "><", body).strip()
