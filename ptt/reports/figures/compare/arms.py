"""How each arm is drawn, in every figure alike: the baseline in ink, the others by colour, dash and marker."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from matplotlib.lines import Line2D
from matplotlib.transforms import Affine2D

from ptt.diagnostics.compare.comparison import Comparison
from ptt.reports.figures.annotations import spread
from ptt.reports.figures.compare.kinds import names
from ptt.reports.figures.style import ARMS, INK, LEFT, LETTER, MUTED, SMALL, drawable

if TYPE_CHECKING:
    from matplotlib.axes import Axes


DASHES: tuple[Any, ...] = ((0, (6, 1.6)), (0, (1.3, 1.2)), (0, (6, 1.4, 1.3, 1.4)), "-")
MARKERS = ("s", "^", "D", "v", "P", "X", "*")  # with ten colours and four dashes, 140 arms before one comes again
LETTERS = 18  # of a name beside a line
SAMPLE = 27.0  # pixels of line before each name
ROW, TALL_ROW = 15.0, 30.0  # pixels: a name, and a name with its value below
VALUES_UP_TO = 5  # arms: with more there is no room for values beside the names
_WORDS = re.compile(r"[^_/ :,-]+[_/ :,-]*|[_/ :,-]+")
ENDED = 0.08  # of the axis: a line that ends so far from its right edge ended early


@dataclass(frozen=True, kw_only=True)
class Look:
    """One arm's line."""

    label: str  # short, drawable, no two alike
    colour: str
    dash: Any
    marker: str
    width: float

    @property
    def line(self) -> dict[str, Any]:
        """Give the line as matplotlib wants it."""
        return {"color": self.colour, "linestyle": self.dash, "linewidth": self.width}


@dataclass(frozen=True, kw_only=True)
class End:
    """Where an arm's line ends, and what is written there."""

    look: Look
    x: float
    y: float
    value: str


def looks(comparison: Comparison) -> dict[str, Look]:
    """Give every drawn arm its look."""
    drawn = names(comparison)
    labels = _labels(drawn)
    made = {}
    for index, name in enumerate(drawn):
        other = index - 1
        made[name] = Look(
            label=labels[index],
            colour=INK if index == 0 else ARMS[other % len(ARMS)],
            dash="-" if index == 0 else DASHES[other % len(DASHES)],
            marker="o" if index == 0 else MARKERS[other % len(MARKERS)],
            width=2.3 if index == 0 else 1.9,
        )
    return made


def column(comparison: Comparison) -> int:
    """Give the pixels right of the axes that a sample of each line and its name take."""
    return round(10 + SAMPLE + 4 + name_width(comparison))


def name_width(comparison: Comparison) -> float:
    """Give the pixels that the longest label takes, and never less than a value below it."""
    return LETTER * max(9, *(len(look.label) for look in looks(comparison).values())) + 2


def height(comparison: Comparison, least: int) -> int:
    """Give a panel's height so that a name for every arm finds room beside it."""
    return max(least, 110 + round(ROW * len(names(comparison))))


def label_ends(ax: Axes, ends: Sequence[End]) -> None:
    """Name every line right of the axes at the height of its end, with a sample of it, none over another."""
    if not ends:
        return
    box = ax.get_window_extent()
    spots = [ax.transData.transform((end.x, end.y)) for end in ends]
    tall = len(ends) <= VALUES_UP_TO and any(end.value for end in ends)
    row = TALL_ROW if tall else ROW
    heights = spread([float(spot[1]) for spot in spots], row, box.y0 - 6, box.y1 + 12)
    for end, spot, place in zip(ends, spots, heights, strict=True):
        level = min(max(float(spot[1]), box.y0), box.y1)  # a line may end below the axis
        start = box.x1 + 10
        if spot[0] >= box.x1 - ENDED * box.width:
            _pixels(ax, [float(spot[0]) + 3, start - 1], [level, place], color=end.look.colour, linewidth=0.8)
        _sample(ax, end.look, start, place)
        _write(ax, f"{end.look.label}\n{end.value}" if tall else end.look.label, start + SAMPLE + 4, place)


def legend(ax: Axes, chosen: Sequence[Look]) -> None:
    """Name lines right of the axes from the top, where their ends tell nothing."""
    box = ax.get_window_extent()
    for index, look in enumerate(chosen):
        place = box.y1 - 8 - index * ROW
        _pixels(ax, [box.x1 + 10, box.x1 + 10 + SAMPLE], [place, place], **look.line)
        _write(ax, look.label, box.x1 + 10 + SAMPLE + 4, place)


def draw_key(ax: Axes, chosen: Sequence[Look]) -> None:
    """Name all lines in place of a panel, for files whose other panels name none."""
    ax.set_axis_off()
    box = ax.get_window_extent()
    for index, look in enumerate(chosen):
        place = box.y1 - 8 - index * ROW
        _sample(ax, look, box.x0 - LEFT + 12, place)
        _write(ax, look.label, box.x0 - LEFT + 12 + SAMPLE + 6, place)


def note(ax: Axes, lines: Sequence[str], above: int) -> None:
    """Write what is not drawn above the axes, the lowest line so many pixels over them."""
    box = ax.get_window_extent()
    for index, text in enumerate(reversed(lines)):
        _write(ax, text, box.x0 - LEFT + 8, box.y1 + above + 6 + index * ROW, color=MUTED)


def _write(ax: Axes, text: str, x: float, y: float, *, color: str = INK) -> None:
    ax.annotate(
        text,
        (x, y),
        xycoords="figure points",
        fontsize=SMALL,
        color=color,
        va="center",
        linespacing=1.1,
        annotation_clip=False,
    )


def _sample(ax: Axes, look: Look, x: float, y: float) -> None:
    _pixels(ax, [x, x + SAMPLE], [y, y], **look.line)
    _pixels(ax, [x + SAMPLE / 2], [y], color=look.colour, marker=look.marker, markersize=4.4)


def _pixels(ax: Axes, x: list[float], y: list[float], **style: Any) -> None:
    """Draw a line in pixels of the figure: the same place whatever the file's resolution."""
    figure = ax.get_figure(root=True)
    if figure is None:
        raise ValueError("the axes stand in no figure")
    points = Affine2D().scale(1 / 72) + figure.dpi_scale_trans
    figure.add_artist(Line2D(x, y, transform=points, clip_on=False, **style))


def _labels(drawn: list[str]) -> list[str]:
    """Give each name a short label: itself, or what tells it from names like it, or its number and a part of it."""
    cut = [_cut(name, LETTERS) for name in drawn]
    alike = Counter(cut)
    long = [name for name, label in zip(drawn, cut, strict=True) if alike[label] > 1]
    told = [_apart(name, long) if name in long else label for name, label in zip(drawn, cut, strict=True)]
    alike = Counter(told)
    return [
        label if alike[label] == 1 and label.strip("?. ") else f"#{index} {_cut(name, LETTERS - 4)}"
        for index, (label, name) in enumerate(zip(told, drawn, strict=True), 1)
    ]


def _apart(name: str, others: list[str]) -> str:
    """Leave out the words that all of some names begin and end with, such as those of one sweep."""
    words = [_WORDS.findall(other) for other in others]
    head = _shared(words)
    tail = _shared([found[head:][::-1] for found in words])
    own = _WORDS.findall(name)
    return _cut("".join(own[head : len(own) - tail]).strip("_-/ :,"), LETTERS)


def _shared(lists: list[list[str]]) -> int:
    """Count the words that all lists begin with."""
    return next((i for i, found in enumerate(zip(*lists, strict=False)) if len(set(found)) > 1), min(map(len, lists)))


def _cut(name: str, limit: int) -> str:
    """Cut a name in its middle, where names of runs differ least."""
    plain = drawable(name, max(len(name), 4))
    if len(plain) <= limit:
        return plain
    head = (limit - 2) // 2
    return f"{plain[:head]}..{plain[len(plain) - (limit - 2 - head) :]}"
