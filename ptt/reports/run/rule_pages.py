"""What `ptt rules` prints: the catalogue, one rule's page, what a check of custom rules found; and the same as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from ptt.reports.output import versioned_json
from ptt.reports.text.names import LINKS
from ptt.reports.text.sanitize import safe
from ptt.reports.text.terminal import print_wrapped

if TYPE_CHECKING:
    from ptt.diagnostics.custom.files import Report
    from ptt.diagnostics.verdict.catalogue import Page


INDENT = 2


def pages_json(pages: Sequence[Page], version: str) -> str:
    """Return the catalogue as JSON."""
    return versioned_json({"rules": [asdict(page) for page in pages]}, version)


def report_json(report: Report, version: str) -> str:
    """Return what a check found as JSON."""
    return versioned_json(asdict(report), version)


def print_pages(pages: Sequence[Page], console: Console) -> None:
    """Print one line a rule, under its link."""
    longest = max(len(page.id) for page in pages)
    for link, mine in groupby(pages, key=lambda page: page.link):
        _line(console, 0, f"{LINKS[link]} ({link})", style="bold")
        for page in mine:
            families = f" ({page.asked_of} only)" if page.families else ""
            _line(console, 1, f"{page.id.ljust(longest)}  {page.shows}{families}", hang=longest + 2)
        console.print()
    _line(console, 0, "`ptt rules NAME` prints a rule's page: what, why, what to do, and the limits that can be set.")


def print_page(page: Page, console: Console) -> None:
    """Print one rule's page."""
    blocks = {heading: [_capital(body)] for heading, body in page.sections.items()}
    blocks["Asked of"] = [f"{page.asked_of} training" if page.asked_of else "every kind of training"]
    if page.brings:
        blocks["Brings about"] = [f"{other}: {how}" for other, how in page.brings.items()]
    _line(console, 0, f"{page.id} · {LINKS[page.link].lower()}", style="bold")
    _line(console, 0, f"This run shows {page.shows}.")
    for heading, lines in blocks.items():
        console.print()
        _line(console, 0, heading, style="bold")
        for line in lines:
            _line(console, 1, line)
    console.print()
    _line(console, 0, "Limits, with their defaults, as ptt.toml sets them", style="bold")
    for line in limits_toml(page):
        _line(console, 1, line, style="cyan")


def limits_toml(page: Page) -> list[str]:
    """Return the lines of ptt.toml that set a rule's limits to their defaults."""
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


def _line(console: Console, level: int, text: str, style: str = "", hang: int = 0) -> None:
    """Print one line, indented; what is carried over hangs `hang` letters deeper."""
    print_wrapped(console, Text(text[hang:]), head=" " * (INDENT * level) + text[:hang], style=style)
