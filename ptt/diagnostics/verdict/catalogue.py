"""The catalogue of rules: what each looks for, why, what to do, and the limits that can be set."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.model import Link
from ptt.diagnostics.rules import LIMITS, RULES, tool_tail_growth
from ptt.diagnostics.rules.interface import EVERY, LANGUAGE, ONLINE, REWARDED, REWARDED_LANGUAGE
from ptt.diagnostics.verdict.causes import explains

SHOWS: Final = "This run shows "
OF_ONE_RULE: Final = {
    "tail-growth-everywhere": tool_tail_growth.ID,
    "tail-growth-immaterial": tool_tail_growth.ID,
    "tails-high": tool_tail_growth.ID,
}
"""Findings that a rule of another name makes."""
_HEADING: Final = re.compile(r"^([A-Z][a-z ]+): ", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Page:
    """One rule as a user reads it."""

    id: str
    link: Link
    shows: str  # completes "this run shows"
    sections: Mapping[str, str]  # What, Why it matters, What it is not, What to do, Source; each one paragraph
    limits: Mapping[str, float]
    families: tuple[str, ...]  # empty: every kind of training
    asked_of: str  # the same as prose names them
    brings: Mapping[str, str]  # failures that this one brings about, and how


def pages() -> tuple[Page, ...]:
    """Return all rules in the order of the loop; those of one link as they are listed."""
    rule_pages = [_page(tool_tail_growth.ID, Link.POLICY_UPDATE, tool_tail_growth.__name__, LANGUAGE)]
    rule_pages += [_page(rule.id, rule.link, rule.check.__module__, rule.families) for rule in RULES]
    return tuple(sorted(rule_pages, key=lambda page: list(Link).index(page.link)))


TOGETHER: Final[Mapping[frozenset[object], str]] = {
    EVERY: "",
    ONLINE: "online",
    LANGUAGE: "online (on texts)",
    REWARDED: "online (with a reward)",
    REWARDED_LANGUAGE: "online (on texts, with a reward)",
}
"""What kinds of training that rules are asked of together are called."""


def _asked_of(families: frozenset[object]) -> str:
    return TOGETHER.get(families) or ", ".join(sorted(str(family).replace("_", " ") for family in families))


def page_of(name: str) -> Page:
    """Return the page of one rule; SettingsError names the closest where there is none."""
    known = {page.id: page for page in pages()}
    name = OF_ONE_RULE.get(name, name)
    if name not in known:
        near = get_close_matches(name, known, n=3)
        meant = f"is {' or '.join(near)} meant?" if near else "`ptt rules` lists all."
        raise SettingsError(f"there is no rule {name!r}; {meant}")
    return known[name]


def _page(name: str, link: Link, module: str, families: frozenset[object]) -> Page:
    text = sys.modules[module].__doc__ or ""
    first, _, rest = text.partition("\n")
    parts = _HEADING.split(rest)
    bodies = [" ".join(part.split()) for part in parts[2::2]]
    return Page(
        id=name,
        link=link,
        shows=first.removeprefix(SHOWS).rstrip("."),
        sections=dict(zip(parts[1::2], bodies, strict=True)),
        limits=LIMITS[name],
        families=() if families == EVERY else tuple(sorted(str(family) for family in families)),
        asked_of=_asked_of(families),
        brings=explains().get(name, {}),
    )
