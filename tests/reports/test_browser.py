"""The page in a real browser: silent, alone, visible in every light, and never wider than a phone."""

from __future__ import annotations

import base64
import os
import re
from pathlib import Path
from typing import Any

import pytest
from browsers import requested_urls, show
from judged_runs import judged_run

from ptt.diagnostics.model import Diagnosis
from ptt.reports.output import write_text
from ptt.reports.run.html import render_html

pytestmark = pytest.mark.slow

NAMES = ("baseline", "healthy", "cannot_say", "collapse", "crashed", "cascade", "hostile")
AXE = os.environ.get("PTT_AXE", "")
"""axe.min.js of axe-core, which is not ours to carry: give its path to have the pages looked at by it."""
BOXES = """
return [...document.querySelectorAll('.panel:not(.' + (innerWidth > 760 ? 'narrow' : 'wide') + ') svg')].map(svg => {
  const box = svg.getBoundingClientRect(), id = svg.getAttribute('aria-labelledby').split(' ');
  return {width: box.width, height: box.height, right: box.right,
          role: svg.getAttribute('role'),
          title: document.getElementById(id[0]).textContent, alt: document.getElementById(id[1]).textContent,
          visible: svg.checkVisibility(), ink: getComputedStyle(svg.querySelector('text')).fill,
          font: Math.min(...[...svg.querySelectorAll('text')].map(
            t => parseFloat(getComputedStyle(t).fontSize) * box.width / svg.viewBox.baseVal.width))};
});"""


@pytest.fixture(scope="module")
def pages(samples: dict[str, Diagnosis], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("pages")
    files = {name: write_text(folder / f"{name}.html", render_html(samples[name])) for name in NAMES}
    return {name: path.as_uri() for name, path in files.items()}


@pytest.fixture(scope="module", params=["tool_tail_growth", "collapse", "stale_sampler", "trl_sft_overfit"])
def plotted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write the report of a run whose findings have plots, and give its address."""
    page = render_html(judged_run(request.param))
    return write_text(tmp_path_factory.mktemp("plots") / f"{request.param}.html", page).as_uri()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_page_is_silent_and_alone(name: str, browser: Any, pages: dict[str, str]) -> None:
    assert requested_urls(browser, pages[name]) == {pages[name]}


@pytest.mark.skipif(not AXE, reason="PTT_AXE names no axe.min.js (of axe-core)")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["baseline", "collapse", "hostile"])
def test_axe_finds_no_violation(name: str, scheme: str, browser: Any, pages: dict[str, str]) -> None:
    show(browser, pages[name], scheme=scheme)
    browser.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true })")
    browser.execute_script(Path(AXE).read_text(encoding="utf-8"))
    browser.set_script_timeout(300)
    run = "axe.run({exclude: [['svg']]}, {resultTypes: ['violations']}).then(arguments[0])"
    found = browser.execute_async_script(run)["violations"]
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found] == []


@pytest.mark.parametrize(("scheme", "media"), [("light", ""), ("dark", ""), ("light", "print"), ("dark", "print")])
def test_every_figure_is_seen(scheme: str, media: str, browser: Any, pages: dict[str, str]) -> None:
    show(browser, pages["baseline"], scheme=scheme, media=media)
    browser.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true })")
    boxes = browser.execute_script(BOXES)
    assert len(boxes) == 17
    for box in boxes:
        assert box["visible"]
        assert box["width"] > 200
        assert box["height"] > 100
        assert box["role"] == "img"
        assert box["title"]
        assert any(letter.isdigit() for letter in box["alt"])
    dark_page = scheme == "dark" and media == ""
    brightness = [sum(map(int, box["ink"].strip("rgb()").split(","))) for box in boxes]
    assert all((light > 380) == dark_page for light in brightness)


@pytest.mark.parametrize(("width", "seen"), [(390, [False, True]), (1280, [True, False])])
def test_the_timeline_is_drawn_for_the_width_of_the_screen(
    width: int, seen: list[bool], browser: Any, pages: dict[str, str]
) -> None:
    show(browser, pages["cascade"], width=width)
    script = "return [...document.querySelectorAll('#timeline svg')].map(svg => svg.checkVisibility())"
    assert browser.execute_script(script) == seen


@pytest.mark.parametrize("paper", [(8.5, 11.0), (8.27, 11.69)])
@pytest.mark.parametrize("name", NAMES)
def test_paper_begins_with_a_summary_of_one_page_and_ends_within_eight(
    name: str, paper: tuple[float, float], browser: Any, pages: dict[str, str]
) -> None:
    _fits_on_paper(browser, pages[name], paper)


def test_a_run_with_plots_fits_on_paper(browser: Any, plotted: str) -> None:
    _fits_on_paper(browser, plotted, (8.5, 11.0))


def _fits_on_paper(browser: Any, url: str, paper: tuple[float, float]) -> None:
    width, height = (
        round(inches * 96 - 2 * margin * 96 / 25.4) for inches, margin in zip(paper, (12, 11), strict=True)
    )
    show(browser, url, media="print", width=width)
    summary = "return document.getElementById('findings').getBoundingClientRect().top + scrollY"
    assert browser.execute_script(summary) <= height
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"paperWidth": paper[0], "paperHeight": paper[1]})
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", base64.b64decode(printed["data"]))) <= 8


def test_paper_has_what_to_record_next_and_what_the_reader_opened(browser: Any, pages: dict[str, str]) -> None:
    show(browser, pages["baseline"], media="print")
    height = "return document.querySelector('{}').getBoundingClientRect().height"
    assert browser.execute_script(height.format("#blind ul")) > 20
    assert browser.execute_script(height.format("#healthy")) == 0
    assert browser.execute_script(height.format(".finding .evidence table")) == 0
    browser.execute_script("document.querySelector('.finding .evidence').open = true")
    assert browser.execute_script(height.format(".finding .evidence table")) > 20


@pytest.mark.parametrize("name", ["baseline", "cannot_say", "collapse", "cascade"])
def test_no_word_is_broken_on_a_phone(name: str, browser: Any, pages: dict[str, str]) -> None:
    show(browser, pages[name], width=390)
    browser.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true })")
    broken = browser.execute_script("""
const texts = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT), broken = [];
for (let text = texts.nextNode(); text; text = texts.nextNode()) {
  if (text.parentElement.closest('svg, pre')) continue;
  for (const word of text.textContent.matchAll(/[A-Za-z]+/g)) {
    const range = document.createRange();
    range.setStart(text, word.index);
    range.setEnd(text, word.index + word[0].length);
    if (new Set([...range.getClientRects()].map(box => Math.round(box.top))).size > 1) broken.push(word[0]);
  }
}
return broken;""")
    assert broken == []


@pytest.mark.parametrize("part", ["blind", "healthy", "sources", "method", "context", "loop"])
def test_a_link_to_a_folded_part_opens_it(part: str, browser: Any, pages: dict[str, str]) -> None:
    seen = f"return document.getElementById('{part}').checkVisibility()"
    show(browser, pages["collapse"])
    assert not browser.execute_script(seen)
    show(browser, f"{pages['collapse']}#{part}")
    assert browser.execute_script(seen)


@pytest.mark.parametrize("width", [360, 1280])
def test_labels_of_a_finding_s_plot_stand_beside_its_box_and_apart(width: int, browser: Any, plotted: str) -> None:
    show(browser, plotted, width=width)
    clashes = browser.execute_script("""
return [...document.querySelectorAll('.plot .box')].filter(box => box.checkVisibility()).flatMap(box => {
  const labels = [...box.querySelectorAll('span')].filter(s => s.checkVisibility())
    .map(s => [s.className, s.textContent, s.getBoundingClientRect()]);
  const hits = labels.filter(([, , a]) => a.left < 0 || a.right > innerWidth).map(([name, text]) => [name, text]);
  for (let i = 0; i < labels.length; i++) for (let j = i + 1; j < labels.length; j++) {
    const a = labels[i][2], b = labels[j][2];
    if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2 &&
        Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4) hits.push([labels[i][1], labels[j][1]]);
  }
  return hits;
});""")
    assert clashes == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 768, 1280])
@pytest.mark.parametrize("name", NAMES)
def test_nothing_overflows_sideways(name: str, width: int, browser: Any, pages: dict[str, str]) -> None:
    show(browser, pages[name], width=width)
    browser.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true })")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("name", ["baseline", "cascade"])
def test_figure_text_can_be_read_on_a_phone(name: str, browser: Any, pages: dict[str, str]) -> None:
    show(browser, pages[name], width=390)
    boxes = browser.execute_script(BOXES)
    assert min(box["font"] for box in boxes) >= 9.5
    assert max(box["right"] for box in boxes) <= 390


@pytest.mark.parametrize("name", ["baseline", "healthy", "collapse", "cascade"])
def test_no_label_lies_over_another(name: str, browser: Any, pages: dict[str, str]) -> None:
    show(browser, pages[name])
    overlaps = browser.execute_script("""
return [...document.querySelectorAll('figure svg')].flatMap(svg => {
  const texts = [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
  const hits = [];
  for (let i = 0; i < texts.length; i++) for (let j = i + 1; j < texts.length; j++) {
    const a = texts[i][1], b = texts[j][1];
    const w = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const h = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (w > 2 && h > 4) hits.push([svg.querySelector('title').textContent, texts[i][0], texts[j][0]]);
  }
  return hits;
});""")
    assert overlaps == []
