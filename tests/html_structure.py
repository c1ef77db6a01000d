"""Read a page of HTML as a browser does: its tags, ids, links, texts and figures; fails on one that is not closed."""

from __future__ import annotations

from html.parser import HTMLParser

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
