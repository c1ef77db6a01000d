"""Makes text harmless in GitHub-flavoured Markdown: it forms no markup, pings nobody and links nowhere."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

from ptt.reports.foreign import encodable, safe

SPECIAL: Final = re.compile(r"[\\`*\[\]<#|~$]|(?<![^\W_])_|_(?![^\W_])|&(?=#|\w+;)")
LONGEST: Final = 4000  # letters: how a figure is read takes some 900
JOINER: Final = "\u2060"  # no width: a mention or a reference with one in it is none
_PINGS: Final = re.compile(r"(@|\\#|\bGH-)(?=\w)")
_LINKS: Final = re.compile(r"://|\bwww\.", re.IGNORECASE)
_HEAD: Final = re.compile(r"^(?:(?P<mark>[-+=>])|(?P<number>\d+)(?P<point>[.)])(?=\s|$))")
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]*")


class Markdown(str):
    """Text that is Markdown already; the template takes it as it is."""

    __slots__ = ()


def md(text: object) -> Markdown:
    """Give text as one line that Markdown shows as it stands."""
    if isinstance(text, Markdown):
        return text
    shown = encodable(safe(str(text), longest=LONGEST)).strip()
    shown = SPECIAL.sub(lambda found: "\\" + found[0], shown)
    shown = _PINGS.sub(lambda found: found[0] + JOINER, shown)
    shown = _LINKS.sub(lambda found: "&#58;//" if found[0] == "://" else found[0][:-1] + "&#46;", shown)
    return Markdown(_HEAD.sub(_not_at_head, shown))


def code(text: str) -> Markdown:
    """Give a name in the type of code; one that could break out of it as plain text."""
    return Markdown(f"`{text}`") if _PLAIN.fullmatch(text) and len(text) <= 100 else md(text)


def target(path: str) -> Markdown:
    """Give a relative path as the target of a link."""
    return Markdown(quote(path, safe="/.-_"))


def _not_at_head(found: re.Match[str]) -> str:
    """Keep what begins a list, a number or a line under a heading from doing so."""
    return f"\\{found['mark']}" if found["mark"] else f"{found['number']}\\{found['point']}"
