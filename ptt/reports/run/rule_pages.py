"""What `ptt rules` prints: the catalogue, one rule's page, what a check of custom rules found; and the same as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from ptt.reports.text.names import LINKS
from ptt.reports.text.sanitize import safe

if TYPE_CHECKING:
    from ptt.diagnostics.custom.files import Report
    from ptt.diagnostics.verdict.catalogue import Page


INDENT = 2
NARROWEST = 30


def pages_json(pages: Sequence[Page], version: str) -> str:
    """Give the catalogue as JSON."""
    return _json({"schema_version": 1, "ptt_version": version, "rules": [asdict(page) for page in pages]})


def report_json(report: Report, version: str) -> str:
    """Give what a check found as JSON."""
    return _json({"schema_version": 1, "ptt_version": version, **asdict(report)})


def _json(content: Mapping[str, object]) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def print_pages(pages: Sequence[Page], console: Console) -> None:
    """Print one line a rule, under its link."""
    longest = max(len(page.id) for page in pages)
    for link, mine in groupby(pages, key=lambda page: page.link):
        _line(console, 0, f"{LINKS[link]} ({link})", style="bold")
        for page in mine:
            families = f" ({', '.join(_family(name) for name in page.families)} only)" if page.families else ""
            _line(console, 1, f"{page.id.ljust(longest)}  {page.shows}{families}", hang=longest + 2)
        console.print()
    _line(console, 0, "`ptt rules NAME` prints a rule's page: what, why, what to do, and the limits that can be set.")


def print_page(page: Page, console: Console) -> None:
    """Print one rule's page."""
    _line(console, 0, f"{page.id} · {LINKS[page.link].lower()}", style="bold")
    _line(console, 0, f"This run shows {page.shows}.")
    for heading, body in page.sections.items():
        console.print()
        _line(console, 0, heading, style="bold")
        _line(console, 1, _capital(body))
    console.print()
    _line(console, 0, "Asked of", style="bold")
    kinds = ", ".join(_family(name) for name in page.families)
    _line(console, 1, f"{kinds} training" if kinds else "every kind of training")
    if page.brings:
        console.print()
        _line(console, 0, "Brings about", style="bold")
        for other, how in page.brings.items():
            _line(console, 1, f"{other}: {how}")
    console.print()
    _line(console, 0, "Limits, with their defaults, as ptt.toml sets them", style="bold")
    for line in limits_toml(page):
        _line(console, 1, line, style="cyan")


def limits_toml(page: Page) -> list[str]:
    """Give the lines of ptt.toml that set a rule's limits to their defaults."""
    return [f"[limits.{page.id}]", *(f"{name} = {value!r}" for name, value in page.limits.items())]


def print_report(report: Report, console: Console) -> None:
    """Print what a check of custom rules found."""
    for rule in report.rules:
        off = "" if rule.enabled else " (off)"
        _line(console, 0, f"{safe(rule.id)}{off} · {rule.severity} · {LINKS[rule.link].lower()} · {safe(rule.file)}")
        _line(console, 1, safe(rule.condition))
        if rule.asked_of:
            _line(console, 1, f"asked of {', '.join(rule.asked_of)}", style="dim")
    for problem in report.problems:
        _line(console, 0, f"✕ {safe(problem)}", style="red")
    rules, files, wrong = len(report.rules), len(report.files), len(report.problems)
    _line(console, 0, f"{_many(rules, 'rule')} in {_many(files, 'file')}, {_many(wrong, 'problem')}")


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _capital(text: str) -> str:
    """Begin a paragraph as a sentence does; an identifier at its head stays as it is."""
    head = text.split(" ", 1)[0]
    return text[:1].upper() + text[1:] if head.replace("-", "").isalpha() and head.islower() else text


def _family(name: str) -> str:
    return name.replace("_", " ")


def _line(console: Console, level: int, text: str, style: str = "", hang: int = 0) -> None:
    """Print one line, wrapped and indented; what is carried over hangs `hang` letters deeper."""
    pad = " " * (INDENT * level)
    width = max(console.width - len(pad) - hang, NARROWEST)
    head, rest = text[:hang], Text(text[hang:])
    for index, line in enumerate(rest.wrap(console, width, overflow="fold") or [Text("")]):
        line.rstrip()
        start = Text(pad + (head if index == 0 else " " * hang))
        console.print(start.append_text(line), style=style, soft_wrap=True)
