"""Read a page of HTML as a browser does: its tags, ids, links, texts and figures; fails on one that is not closed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html.parser import HTMLParser
from typing import TypeVar

from ptt.diagnostics.model import Diagnosis
from ptt.reports.figures.panels import FigureSpec
from ptt.reports.run.drawn import RunFigures, drawn_figures
from ptt.reports.run.findings_json import findings_json
from ptt.reports.run.html import render_page
from ptt.version import __version__

Made = TypeVar("Made")
VOID = {"meta", "link", "br", "img", "path", "use", "rect", "wbr"}
LINKS = {"src", "href", "xlink:href", "srcset", "action"}


class Structure(HTMLParser):
    """Collects tags, ids, links and text, and checks that tags are closed in order."""

    def __init__(self, page: str = "") -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.text: list[str] = []
        self.figures: list[dict[str, int]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.links += [value or "" for name, value in attrs if name in LINKS]
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag == "figure":
            self.figures.append({"svg": 0, "desc": 0, "figcaption": 0})
        elif self.figures and "figure" in self.open and tag in self.figures[-1]:
            self.figures[-1][tag] += 1
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text.append(data)


def page_with(
    diagnosis: Diagnosis, main: Sequence[FigureSpec[Diagnosis]] = (), behind: Sequence[FigureSpec[Diagnosis]] = ()
) -> str:
    """Give report.html with these figures beside the plots of its findings: drawing all of them takes a second."""
    return render_page(
        diagnosis,
        lambda: RunFigures(
            main=drawn_figures(main, diagnosis, []), behind=drawn_figures(behind, diagnosis, []), both=[], faults=[]
        ),
    ).text


class OnDemand(dict[str, Made]):
    """What is made by name, such as drawn pages, once a test asks for it."""

    def __init__(self, make: Callable[[str], Made]) -> None:
        super().__init__()
        self.make = make

    def __missing__(self, name: str) -> Made:
        return self.setdefault(name, self.make(name))


def answers_of(diagnosis: Diagnosis) -> tuple[str, str, dict[str, str]]:
    """Give findings.json, the words of report.html, and the tables that its figures are drawn from."""
    tables = {name: str(table.to_dict(as_series=False)) for name, table in diagnosis.tables.items()}
    return findings_json(diagnosis, __version__), page_with(diagnosis), tables
