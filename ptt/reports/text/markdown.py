"""Makes foreign text harmless in Markdown of code hosts: shown as written, linking to nothing and calling nobody."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

from ptt.reports.text.sanitize import encodable, safe

SPECIAL: Final = re.compile(r"[\\`*\[\]<#|~$]|(?<![^\W_])_|_(?![^\W_])|&(?=#|\w+;)")
MAX_LETTERS: Final = 4000  # letters: how a figure is read takes some 900
JOINER: Final = "\u2060"  # no width: a mention or a reference with one in it is none
_PINGS: Final = re.compile(r"(@|\\#|\bGH-)(?=\w)")
_LINKS: Final = re.compile(r"://|\bwww\.", re.IGNORECASE)
_HEAD: Final = re.compile(r"^(?:(?P<mark>[-+=>])|(?P<number>\d+)(?P<point>[.)])(?=\s|$))")
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]*")


class Markdown(str):
    """Text that is Markdown already; the template does not escape it."""

    __slots__ = ()


def md(text: object) -> Markdown:
    """Return text as one line that Markdown shows as it stands."""
    if isinstance(text, Markdown):
        return text
    shown = encodable(safe(str(text), longest=MAX_LETTERS)).strip()
    shown = SPECIAL.sub(lambda match: "\\" + match[0], shown)
    shown = _PINGS.sub(lambda match: match[0] + JOINER, shown)
    shown = _LINKS.sub(lambda match: "&#58;//" if match[0] == "://" else match[0][:-1] + "&#46;", shown)
    return Markdown(_HEAD.sub(_not_at_head, shown))


def code(text: str) -> Markdown:
    """Format a name as code; one that could break out of it as plain text."""
    return Markdown(f"`{text}`") if _PLAIN.fullmatch(text) and len(text) <= 100 else md(text)


def target(path: str) -> Markdown:
    """Quote a relative path as the target of a link."""
    return Markdown(quote(path, safe="/.-_"))


def _not_at_head(match: re.Match[str]) -> str:
    """Keep what begins a list, a number or a line under a heading from doing so."""
    return f"{match['number'] or ''}\\{match['mark'] or match['point']}"


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
    pieces = [_MARKS.sub(lambda match: "\\" + match[0], piece) for piece in _pieces(foreign)]
    return _LEADING.sub(lambda match: f"{match[1] or ''}\\{match[2]}", _joined(pieces))


def html(foreign: str) -> str:
    """Escape it for inside an HTML tag, where Markdown's own marks mean nothing."""
    return _joined(_pieces(foreign))


def _pieces(foreign: str) -> list[str]:
    return _BREAKS.split(" ".join(safe(foreign).split()))


def _joined(pieces: list[str]) -> str:
    # as GitHub asks, so that no mathematics begins
    return GAP.join(piece.translate(_ENTITIES) for piece in pieces).replace("$", "<span>$</span>")
