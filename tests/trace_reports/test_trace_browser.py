"""The pages of traces in a real browser: silent, alone, never wider than a phone, and readable in the dark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browsers import requested_urls, show
from trace_diagnoses import SAMPLES, failing_traces, healthy_traces

from ptt.diagnostics.traces.compare import TraceSide, compare_traces
from ptt.reports.output import write_text
from ptt.reports.traces.comparison import render_compared
from ptt.reports.traces.html import render_traces

pytestmark = pytest.mark.slow
NAMES = (*SAMPLES, "compared")
OPEN = "document.querySelectorAll('details').forEach(d => { d.open = true })"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    texts = {name: render_traces(make()).text for name, make in SAMPLES.items()}
    sides = (TraceSide(diagnosis=made()) for made in (healthy_traces, failing_traces))
    texts["compared"] = render_compared(compare_traces(*sides)).text
    return {name: write_text(folder / f"{name}.html", text) for name, text in texts.items()}


@pytest.mark.parametrize("name", NAMES)
def test_page_is_silent_and_alone(name: str, browser: Any, pages: dict[str, Path]) -> None:
    assert requested_urls(browser, pages[name].as_uri()) == {pages[name].as_uri()}


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("name", NAMES)
def test_no_page_is_wider_than_its_screen(name: str, width: int, browser: Any, pages: dict[str, Path]) -> None:
    show(browser, pages[name].as_uri(), width=width)
    browser.execute_script(OPEN)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


def test_text_stands_out_in_the_dark(browser: Any, pages: dict[str, Path]) -> None:
    show(browser, pages["failing"].as_uri(), scheme="dark")
    colours = browser.execute_script(
        "return ['h1', '.transcript pre', '.sides h4'].map(s => getComputedStyle(document.querySelector(s)).color)"
    )
    for colour in colours:
        assert max(map(int, colour.removeprefix("rgb(").removesuffix(")").split(","))) > 180


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_tool_onset_and_sample_are_on_the_first_screen(
    width: int, height: int, browser: Any, pages: dict[str, Path]
) -> None:
    show(browser, pages["failing"].as_uri(), width=width)
    below = browser.execute_script(
        "return document.querySelector('#reply-tools .tool-line a').getBoundingClientRect().bottom"
    )
    assert below < height
    line = browser.execute_script("return document.querySelector('#reply-tools .tool-line').innerText")
    for words in ("search_flights", "Since episode 352", "e-19"):
        assert words in line


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("place", ["#reply-tools .tool-line a", "article.finding .to-read a"])
def test_a_link_opens_the_transcript_at_the_message_to_look_at(
    place: str, width: int, browser: Any, pages: dict[str, Path]
) -> None:
    show(browser, pages["failing"].as_uri(), width=width)
    browser.execute_script(f"document.querySelector('{place}').click()")
    top, opened, marked = browser.execute_script(
        "const at = document.querySelector(location.hash);"
        "return [at.getBoundingClientRect().top, at.closest('details').open, at.classList.contains('marked')]"
    )
    assert opened
    assert marked
    assert -1 < top < 900  # browsers scroll to whole pixels


def test_print_keeps_the_time_line_and_leaves_no_part_out_of_the_paper(browser: Any, pages: dict[str, Path]) -> None:
    show(browser, pages["failing"].as_uri(), media="print", width=794)
    shown = browser.execute_script("return document.querySelector('#reply-tools svg').getBoundingClientRect().width")
    assert shown > 100
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 794
