"""Draw the import table as a picture: a row a layer, an arrow an import that no chain of others already tells."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from itertools import accumulate

WIDTH, BOX, ROW, MARGIN, LETTER = 1080, 30, 74, 24, 7.4
STYLE = """
text { font: 13px ui-monospace, monospace; fill: #1b1f24; text-anchor: middle; dominant-baseline: central }
rect { fill: #eef3f8; stroke: #44617b; rx: 5 }
path { fill: none; stroke: #8aa0b4; stroke-width: 1.2; marker-end: url(#head) }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } rect { fill: #1c2733 } }
"""


def draw(table: Mapping[str, set[str]]) -> str:
    """Return the SVG of rooms and what they import; `table` names the rooms from the top down."""
    edges = {(room, other) for room in table for other in _direct(table, room)}
    depth = _depths(table)
    rows: dict[int, list[str]] = {}
    for room in table:
        rows.setdefault(depth[room], []).append(room)
    places = {
        room: (x, MARGIN + BOX / 2 + ROW * level)
        for level, row in enumerate(rows[key] for key in sorted(rows, reverse=True))
        for room, x in _spread(row)
    }
    height = 2 * MARGIN + BOX + ROW * (len(rows) - 1)
    arrows = [_arrow(places[room], places[other]) for room, other in sorted(edges)]
    boxes = [_box(room, *places[room]) for room in table]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img">',
            "<title>The rooms of ptt and what they import</title>",
            f"<style>{STYLE}</style>",
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" orient="auto">'
            '<path d="M0 0 L8 4 L0 8 z" style="fill:#8aa0b4;stroke:none"/></marker></defs>',
            *arrows,
            *boxes,
            "</svg>\n",
        ]
    )


def _spread(row: list[str]) -> list[tuple[str, float]]:
    """Return the rooms of a row with their centres, the same gap between each two."""
    gap = (WIDTH - sum(map(_width, row))) / len(row)
    ends = list(accumulate(_width(room) + gap for room in row))
    return [(room, end - (_width(room) + gap) / 2) for room, end in zip(row, ends, strict=True)]


def _width(room: str) -> float:
    return LETTER * len(room) + 22


def _direct(table: Mapping[str, set[str]], room: str) -> set[str]:
    """Return what a room imports that none of its other imports reaches."""
    return {
        other
        for other in table[room]
        if not any(other in _reached(table, between) for between in table[room] - {other})
    }


def _reached(table: Mapping[str, set[str]], room: str) -> set[str]:
    return table[room].union(*(_reached(table, other) for other in table[room]))


def _depths(table: Mapping[str, set[str]]) -> dict[str, int]:
    depths: dict[str, int] = {}
    for room in reversed(table):
        depths[room] = 1 + max((depths[other] for other in table[room]), default=-1)
    return depths


def _arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    (x, y), (to_x, to_y) = (start[0], start[1] + BOX / 2), (end[0], end[1] - BOX / 2)
    bend = (to_y - y) / 2
    return f'<path d="M{x:.1f} {y:.1f} C{x:.1f} {y + bend:.1f} {to_x:.1f} {to_y - bend:.1f} {to_x:.1f} {to_y:.1f}"/>'


def _box(room: str, x: float, y: float) -> str:
    width = _width(room)
    return (
        f'<g><rect x="{x - width / 2:.1f}" y="{y - BOX / 2:.1f}" width="{width:.1f}" height="{BOX}"/>'
        f'<text x="{x:.1f}" y="{y:.1f}">{escape(room)}</text></g>'
    )
