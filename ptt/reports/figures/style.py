"""How figures look: colours that the page may redefine, fonts, line styles, and text in a figure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes


INK, MUTED, RULE, SHADE, PAPER = "#1f2328", "#5b6470", "#d4d9df", "#eef1f5", "#ffffff"
TEXT, POST, OTHER = "#0072b2", "#bf5300", "#00805d"  # after Okabe and Ito, darkened to 4.5:1 on white
TEXT_RAMP = ("#7fb8de", "#3389c4", "#00497a")
POST_RAMP = ("#f2aa72", "#dd6f1a", "#8f3a00")
OTHER_RAMP = ("#86cdb6", "#2aa37f", "#005c42")
# runs side by side: vermillion, blue, green, purple, ochre, violet, crimson, teal, olive, brown; 3:1 or more on white
ARMS = ("#d55e01", "#0072b3", "#009e74", "#c2629c", "#a6761d", "#5b4fb3", "#b3203a", "#00808c", "#6b7a00", "#7b4a2d")
CRITICAL, HIGH, MEDIUM, LOW = "#a3150d", "#c25008", "#8a6100", "#3b6ea8"  # severities; each has a shape as well

# Each colour's custom property: the page redefines them for the dark, and the same drawing serves both.
PROPERTIES = {
    INK: "--fig-ink",
    MUTED: "--fig-muted",
    RULE: "--fig-rule",
    SHADE: "--fig-shade",
    PAPER: "--fig-paper",
    TEXT: "--fig-text",
    POST: "--fig-post",
    OTHER: "--fig-other",
    CRITICAL: "--fig-critical",
    HIGH: "--fig-high",
    MEDIUM: "--fig-medium",
    LOW: "--fig-low",
    **{colour: f"--fig-arm-{i}" for i, colour in enumerate(ARMS, 1)},
    **{colour: f"--fig-text-{i}" for i, colour in enumerate(TEXT_RAMP, 1)},
    **{colour: f"--fig-post-{i}" for i, colour in enumerate(POST_RAMP, 1)},
    **{colour: f"--fig-other-{i}" for i, colour in enumerate(OTHER_RAMP, 1)},
}

FONT, SMALL = 12.5, 12.0
LEFT, RIGHT, BOTTOM = 46, 74, 40  # margins in pixels
LINES: dict[str, dict[str, Any]] = {
    "text_only": {"color": TEXT, "linestyle": (0, (5, 1.6)), "marker": "o"},
    "post": {"color": POST, "linestyle": "-", "marker": "s"},
    "other": {"color": OTHER, "linestyle": (0, (1, 1.2)), "marker": "^"},
}
WINDOW_LINES: tuple[dict[str, Any], ...] = (
    {"linestyle": (0, (1.2, 1.2)), "linewidth": 1.8},
    {"linestyle": (0, (5, 1.6)), "linewidth": 1.8},
    {"linestyle": "-", "linewidth": 2.2},
)
LETTER = 6.9  # pixels: the mean width of a letter
MARKERS = 20  # on a line, about


def slice_role(slice_name: str) -> str:
    """Return which of the three looks a slice has: text_only, post or other."""
    if slice_name == "text_only":
        return "text_only"
    return "post" if slice_name in {"post_tool", "post_observation"} else "other"


def slice_ramp(slice_name: str) -> tuple[str, str, str]:
    """Return the light to dark colours of a slice for early, mid and late."""
    return {"text_only": TEXT_RAMP, "post": POST_RAMP, "other": OTHER_RAMP}[slice_role(slice_name)]


STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": ["DejaVu Sans"],
    "font.size": FONT,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": RULE,
    "axes.labelsize": SMALL,
    "axes.labelpad": 3.0,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "axes.linewidth": 1.0,
    "lines.linewidth": 2.0,
    "lines.markersize": 3.6,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": True,
    "path.simplify": True,
    "path.simplify_threshold": 0.25,
}


@contextmanager
def figure_style(salt: str) -> Iterator[None]:
    """Set matplotlib's parameters while a figure is drawn and saved; the salt fixes the ids inside the SVG.

    Only these are set back: `rc_context` copies all three hundred, twice a panel.
    """
    from matplotlib import rcParams

    settings = {"svg.hashsalt": salt, **STYLE}
    before = {name: rcParams[name] for name in settings}
    try:
        rcParams.update(settings)
        yield
    finally:
        rcParams.update(before)


def annotate(
    ax: Axes, text: str, at: tuple[float, float], *, coords: Any, offset: tuple[float, float] = (0, 0), **style: Any
) -> None:
    """Write small text at an offset in pixels from a point; `coords` are matplotlib's `xycoords`."""
    ax.annotate(text, at, xycoords=coords, xytext=offset, textcoords="offset points", fontsize=SMALL, **style)


HOVER, NEXT = "hover:", "¦"  # the group of an artist that says more under a pointer, and what parts its texts


def hover(artist: Artist, whole: str, points: Sequence[str] = ()) -> None:
    """Say more under a pointer: a text for the whole artist, and one for each of its drawn markers."""
    artist.set_gid(HOVER + NEXT.join((whole, *points)).replace('"', "'"))  # matplotlib quotes an id by what it holds


def backing(alpha: float, pad: float = 0.8) -> dict[str, Any]:
    """Return the box behind a text that stands over data."""
    return {"facecolor": PAPER, "alpha": alpha, "linewidth": 0, "pad": pad}


def short_slice(name: str) -> str:
    """Return a slice's name in the few letters that fit beside a line."""
    known = {"text_only": "text-only", "post_tool": "post-tool", "post_observation": "post-obs."}
    return known.get(name) or drawable(name, 10)


def marker_spacing(points: int) -> int:
    """Return the number of points from one marker to the next, so that markers never run together."""
    return max(1, points // MARKERS)


def drawable(text: str, limit: int = 40) -> str:
    """Return a foreign text with `?` for what the figure's font cannot draw, cut to a limit."""
    plain = "".join(letter if letter.isascii() and letter.isprintable() else "?" for letter in text)
    return plain if len(plain) <= limit else plain[: limit - 3] + "..."
