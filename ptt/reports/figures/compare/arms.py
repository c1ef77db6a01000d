"""How each arm is drawn, in every figure the same: the baseline in ink, the others by colour, dash and marker."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl

from ptt.diagnostics.compare.comparison import Comparison
from ptt.diagnostics.definitions import dataclass
from ptt.reports.figures.annotations import plot_pixels, spread_labels
from ptt.reports.figures.compare.rows import drawn_arms, finite, rows_of
from ptt.reports.figures.style import ARMS, INK, LEFT, LETTER, MUTED, SMALL, drawable, marker_spacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes


DASHES: tuple[Any, ...] = ((0, (6, 1.6)), (0, (1.3, 1.2)), (0, (6, 1.4, 1.3, 1.4)), "-")
MARKERS = ("s", "^", "D", "v", "P", "X", "*")  # with ten colours and four dashes, 140 arms before one comes again
MAX_LABEL = 18  # letters of a name beside a line
SAMPLE_WIDTH = 27.0  # pixels of line before each name
ROW, TALL_ROW = 15.0, 30.0  # pixels: a name, and a name with its value below
MAX_VALUES = 5  # arms: with more there is no room for values beside the names
MAX_BANDS = 4  # arms: more bands over one another are mud
EARLY_END = 0.08  # of the axis: a line that ends so far from its right edge ended early
_WORDS = re.compile(r"[^_/ :,-]+[_/ :,-]*|[_/ :,-]+")


@dataclass(frozen=True, kw_only=True)
class ArmStyle:
    """One arm's line."""

    label: str  # short, drawable, no two the same
    colour: str
    dash: Any
    marker: str
    width: float

    @property
    def line(self) -> dict[str, Any]:
        """Return the line's properties for matplotlib."""
        return {"color": self.colour, "linestyle": self.dash, "linewidth": self.width}


@dataclass(frozen=True, kw_only=True)
class LineEnd:
    """Where an arm's line ends, and what is written there."""

    style: ArmStyle
    x: float
    y: float
    value: str


def arm_styles(comparison: Comparison) -> dict[str, ArmStyle]:
    """Return the style of every drawn arm."""
    names = drawn_arms(comparison)
    styles = {
        name: ArmStyle(
            label=label,
            colour=ARMS[index % len(ARMS)],
            dash=DASHES[index % len(DASHES)],
            marker=MARKERS[index % len(MARKERS)],
            width=1.9,
        )
        for index, (name, label) in enumerate(zip(names, _labels(names), strict=True), -1)
    }
    baseline = names[0]
    return styles | {baseline: replace(styles[baseline], colour=INK, dash="-", marker="o", width=2.3)}


def label_column(comparison: Comparison) -> int:
    """Return the pixels right of the axes that a sample of each line and its name take."""
    return round(10 + SAMPLE_WIDTH + 4 + label_width(comparison))


def label_width(comparison: Comparison) -> float:
    """Return the pixels that the longest label takes, and never less than a value below it."""
    return LETTER * max(9, *(len(style.label) for style in arm_styles(comparison).values())) + 2


def panel_height(comparison: Comparison, at_least: int) -> int:
    """Return a panel's height so that a name for every arm finds room beside it."""
    return max(at_least, 110 + round(ROW * len(drawn_arms(comparison))))


def plot_band(ax: Axes, rows: pl.DataFrame, style: ArmStyle) -> None:
    """Draw an arm's interval, where it is known."""
    known = finite(rows, "lo", "hi")
    if known.height:
        x, low, high = (known[name].to_numpy() for name in ("x_mid", "lo", "hi"))
        ax.fill_between(x, low, high, color=style.colour, alpha=0.16, linewidth=0)


def plot_arm(ax: Axes, rows: pl.DataFrame, style: ArmStyle) -> None:
    """Draw an arm's line; a span without a value is a gap."""
    values = rows["value"].cast(pl.Float64).to_numpy(writable=True)
    spacing = marker_spacing(len(rows))
    ax.plot(rows["x_mid"].to_numpy(), values, **style.line, marker=style.marker, markevery=spacing, zorder=4)


def mark_divergence(ax: Axes, comparison: Comparison, what: str, **equal: str) -> None:
    """Set a triangle on the horizontal axis where an arm left the baseline in one figure."""
    rows = rows_of(comparison, "divergence", "step", what=what, **equal)
    low, high = ax.get_xlim()
    for name, style in arm_styles(comparison).items():
        steps = rows.filter(arm=name)["step"].head(1).to_list()
        if steps and low <= steps[0] <= high:
            ax.plot(
                [float(steps[0])],
                [0.0],
                transform=ax.get_xaxis_transform(),
                marker=6,  # a caret that points up
                color=style.colour,
                markersize=8,
                clip_on=False,
                zorder=7,
            )


def label_ends(ax: Axes, ends: Sequence[LineEnd]) -> None:
    """Name every line right of the axes at the height of its end, with a sample of it, none over another."""
    box = ax.get_window_extent()
    spots = [ax.transData.transform((end.x, end.y)) for end in ends]
    tall = len(ends) <= MAX_VALUES and any(end.value for end in ends)
    row = TALL_ROW if tall else ROW
    heights = spread_labels([float(spot[1]) for spot in spots], row, box.y0 - 6, box.y1 + 12)
    for end, spot, height in zip(ends, spots, heights, strict=True):
        level = min(max(float(spot[1]), box.y0), box.y1)  # a line may end below the axis
        start = box.x1 + 10
        if spot[0] >= box.x1 - EARLY_END * box.width:
            plot_pixels(ax, [float(spot[0]) + 3, start - 1], [level, height], color=end.style.colour, linewidth=0.8)
        _sample(ax, end.style, start, height)
        _write(ax, f"{end.style.label}\n{end.value}" if tall else end.style.label, start + SAMPLE_WIDTH + 4, height)


def legend(ax: Axes, styles: Sequence[ArmStyle]) -> None:
    """Name lines right of the axes from the top, where their ends say nothing."""
    box = ax.get_window_extent()
    for index, style in enumerate(styles):
        y = box.y1 - 8 - index * ROW
        plot_pixels(ax, [box.x1 + 10, box.x1 + 10 + SAMPLE_WIDTH], [y, y], **style.line)
        _write(ax, style.label, box.x1 + 10 + SAMPLE_WIDTH + 4, y)


def draw_key(ax: Axes, styles: Sequence[ArmStyle]) -> None:
    """Name all lines instead of a panel, for files whose other panels name none."""
    ax.set_axis_off()
    box = ax.get_window_extent()
    for index, style in enumerate(styles):
        y = box.y1 - 8 - index * ROW
        _sample(ax, style, box.x0 - LEFT + 12, y)
        _write(ax, style.label, box.x0 - LEFT + 12 + SAMPLE_WIDTH + 6, y)


def note_above(ax: Axes, lines: Sequence[str], above: int) -> None:
    """Write what is not drawn above the axes, the lowest line so many pixels over them."""
    box = ax.get_window_extent()
    for index, text in enumerate(reversed(lines)):
        _write(ax, text, box.x0 - LEFT + 8, box.y1 + above + 6 + index * ROW, color=MUTED)


def _write(ax: Axes, text: str, x: float, y: float, *, color: str = INK) -> None:
    style: dict[str, Any] = {"fontsize": SMALL, "color": color, "va": "center", "linespacing": 1.1}
    ax.annotate(text, (x, y), xycoords="figure points", annotation_clip=False, **style)


def _sample(ax: Axes, style: ArmStyle, x: float, y: float) -> None:
    plot_pixels(ax, [x, x + SAMPLE_WIDTH], [y, y], **style.line)
    plot_pixels(ax, [x + SAMPLE_WIDTH / 2], [y], color=style.colour, marker=style.marker, markersize=4.4)


def _labels(names: list[str]) -> list[str]:
    """Return a short label for each name: itself, its own words, or its number and a part of it; no two the same."""
    cut = [_cut(name, MAX_LABEL) for name in names]
    uses = Counter(cut)
    shared = [name for name, label in zip(names, cut, strict=True) if uses[label] > 1]
    labels = [_own_words(name, shared) if name in shared else label for name, label in zip(names, cut, strict=True)]
    uses = Counter(labels)
    return [
        label if uses[label] == 1 and label.strip("?. ") else f"#{index} {_cut(name, MAX_LABEL - 4)}"
        for index, (label, name) in enumerate(zip(labels, names, strict=True), 1)
    ]


def _own_words(name: str, others: list[str]) -> str:
    """Leave out the words that all of some names begin and end with, such as those of one sweep."""
    words = [_WORDS.findall(other) for other in others]
    head = _common_prefix(words)
    tail = _common_prefix([words_of[head:][::-1] for words_of in words])
    own = _WORDS.findall(name)
    return _cut("".join(own[head : len(own) - tail]).strip("_-/ :,"), MAX_LABEL)


def _common_prefix(lists: list[list[str]]) -> int:
    """Count the words that all lists begin with."""
    return next((i for i, column in enumerate(zip(*lists, strict=False)) if len(set(column)) > 1), min(map(len, lists)))


def _cut(name: str, limit: int) -> str:
    """Cut a name in its middle, where names of runs differ least."""
    plain = drawable(name, max(len(name), 4))
    if len(plain) <= limit:
        return plain
    head = (limit - 2) // 2
    return f"{plain[:head]}..{plain[len(plain) - (limit - 2 - head) :]}"
