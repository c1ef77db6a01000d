"""Makes foreign text harmless in Markdown of code hosts: shown as written, linking to nothing and calling nobody."""

from __future__ import annotations

import re

from ptt.reports.foreign import safe

GAP = "&#8203;"  # no width: what stands on its two sides is no reference, link or mention any more
_MARKS = re.compile(r"[\\`*_\[\]|~{}]")
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})
_BREAKS = re.compile(
    r"""(?<=@)(?=\S)      # @name, and whatever may pass for an address
      | (?<=[#!%~&])(?=[\w"]) | (?<=\bGH)(?=-\d)      # #12, GH-12; of GitLab also !12, %12, ~label, &12
      | (?<=:)(?=//) | (?<=\bwww)(?=\.) | (?<=\bmailto)(?=:) | (?<=\bxmpp)(?=:)      # addresses that become links
      | (?<=:)(?=[\w+-]+:)      # :+1: and the like
    """,
    re.IGNORECASE | re.VERBOSE,
)
_LEADING = re.compile(r"^(\d{1,9})?([-+#=.)])")  # a list, a heading, a rule


def text(foreign: str) -> str:
    """Escape a piece of one line for a paragraph, a list item, a heading or a table's cell."""
    pieces = [_MARKS.sub(lambda found: "\\" + found.group(), piece) for piece in _pieces(foreign)]
    return _LEADING.sub(lambda found: f"{found.group(1) or ''}\\{found.group(2)}", _joined(pieces))


def html(foreign: str) -> str:
    """Escape it for inside an HTML tag, where Markdown's own marks mean nothing."""
    return _joined(_pieces(foreign))


def _pieces(foreign: str) -> list[str]:
    return _BREAKS.split(" ".join(safe(foreign).split()))


def _joined(pieces: list[str]) -> str:
    joined = GAP.join(piece.translate(_ENTITIES) for piece in pieces)
    return joined.replace("$", "<span>$</span>")  # as GitHub asks, so that no mathematics begins
