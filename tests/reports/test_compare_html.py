"""The page of a comparison: escaped, closed in itself, the same every time, and readable with two arms or with ten."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import comparisons
import polars as pl
import pytest
from browsers import requested_urls, show
from html_structure import OnDemand, Structure
from slow_cases import first_fast

from ptt.diagnostics.compare.comparison import Comparison
from ptt.reports.compare.html import render_compare_page, write_compare_figures
from ptt.reports.figures.compare import EVERY
from ptt.reports.figures.compare.arms import arm_styles
from ptt.reports.output import write_text

MADE: dict[str, Callable[[], Comparison]] = {
    "two": comparisons.two_arms,
    "missing": comparisons.missing_tails,
    "hostile": comparisons.hostile,
    "nothing": comparisons.nothing,
    "ten": comparisons.ten_arms,
}


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return OnDemand(lambda name: render_compare_page(MADE[name]()).text)


@pytest.fixture(scope="module")
def read(pages: dict[str, str]) -> dict[str, Structure]:
    return OnDemand(lambda name: Structure(pages[name]))


def said(structure: Structure) -> str:
    return " ".join(" ".join(structure.text).split())


@pytest.mark.parametrize("name", first_fast(MADE, 4))
def test_page_is_closed_in_itself(name: str, pages: dict[str, str], read: dict[str, Structure]) -> None:
    found = read[name]
    assert found.open == []
    assert "script" not in found.tags
    assert "img" not in found.tags
    assert len(found.ids) == len(set(found.ids))
    assert [link for link in found.links if not link.startswith("#") and link != "data:,"] == []
    assert {link[1:] for link in found.links if link.startswith("#")} <= set(found.ids)
    assert set(re.findall(r"url\(#([^)]*)\)", pages[name])) <= set(found.ids)
    assert not re.search(r"url\((?!#)|@import|expression\(", pages[name])
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:" in pages[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["missing", "hostile"])
def test_same_comparison_gives_same_page(name: str, pages: dict[str, str]) -> None:
    assert render_compare_page(MADE[name]()).text == pages[name]


@pytest.mark.parametrize("name", first_fast(["two", "missing", "hostile", "ten"], 3))
def test_every_figure_has_a_caption_and_words_for_who_cannot_see_it(name: str, read: dict[str, Structure]) -> None:
    figures = read[name].figures
    assert len(figures) >= 8
    for figure in figures:
        assert figure["svg"] == figure["desc"] > 0
        assert figure["figcaption"] == 1
    for kind in EVERY:
        for panel in kind.panels(MADE[name]()):
            assert any(letter.isdigit() for letter in panel.alt), panel.key


def test_hostile_names_are_shown_and_do_nothing(pages: dict[str, str], read: dict[str, Structure]) -> None:
    page = pages["hostile"]
    assert not {"\x1b", "\u202e", "\u200f", "\x00"} & set(page)
    text = said(read["hostile"])
    assert "<script>alert(1)</script>" in text
    assert "\\u202egnp.exe" in text
    assert "{{ 7*7 }}" in text
    assert "<b>bold</b>" in text
    assert "a_very_long_name_" * 8 not in text  # cut: no name fills a page


def test_labels_of_arms_are_short_and_no_two_alike() -> None:
    for make in (comparisons.ten_arms, comparisons.hostile):
        labels = [style.label for style in arm_styles(make()).values()]
        assert len(labels) == len(set(labels))
        assert max(map(len, labels)) <= 18
        assert all(label.isascii() and label.isprintable() for label in labels)
    assert [style.label for style in arm_styles(comparisons.ten_arms()).values()][1:3] == ["beta0.002", "beta0.005"]


def test_arms_differ_by_more_than_colour() -> None:
    drawn = list(arm_styles(comparisons.ten_arms()).values())
    assert len({(style.colour, str(style.dash)) for style in drawn}) == len(drawn)
    assert len({(str(style.dash), style.marker) for style in drawn}) == len(drawn)


def test_what_vanished_is_said_and_never_drawn_as_zero(read: dict[str, Structure]) -> None:
    text = said(read["missing"])
    assert "no post-tool value: 1 arm; no post-tool values to the end: 1 arm" in text
    assert "collapse has no post-tool value after 176: missing tokens were not suppressed." in text
    assert "No post-tool values: scalars_only; a missing line does not mean a low value." in text
    assert text.count("not compared") >= 4
    table = text[text.index("Read the level and the growth together") : text.index("Settings that differ")]
    assert "collapse 6.2 5.58 to 6.82 no value no value no value no value" in table


@pytest.mark.slow
def test_nan_is_missing_too() -> None:
    compared = comparisons.two_arms()
    curves = compared.tables["curves"].with_columns(
        pl.when(pl.col("arm") == "drift_aware_kl").then(float("nan")).otherwise(pl.col("value")).alias("value")
    )
    growth = compared.tables["growth"].with_columns(pl.lit(float("nan")).alias("growth"))
    page = Structure(
        render_compare_page(replace(compared, tables={**compared.tables, "curves": curves, "growth": growth})).text
    )
    assert "No post-tool values: drift_aware_kl" in said(page)
    assert "nan" not in said(page).lower().split()


@pytest.mark.slow
def test_values_that_are_no_numbers_are_counted() -> None:
    compared = comparisons.two_arms()
    arm = compared.arms[1]
    diagnosis = arm.members[0].diagnosis
    broken = diagnosis.tables["series"].with_columns(
        pl.when((pl.col("name") == "loss/total") & (pl.col("step") > 350)).then(None).otherwise("value").alias("value"),
        pl.when((pl.col("name") == "loss/total") & (pl.col("step") > 350))
        .then(pl.lit(1, pl.UInt8))
        .otherwise("flag")
        .alias("flag"),
    )
    member = replace(arm.members[0], diagnosis=replace(diagnosis, tables={"series": broken}))
    page = Structure(
        render_compare_page(replace(compared, arms=(compared.arms[0], replace(arm, members=(member,))))).text
    )
    assert "Not a number in drift_aware_kl, and left out: loss 50" in said(page)


def test_nothing_to_compare_is_said(read: dict[str, Structure]) -> None:
    text = said(read["nothing"])
    assert "Nothing could be compared" in text
    assert "No tails could be set side by side" in text
    assert "No two arms record the same settings" in text
    assert read["nothing"].figures == []
    assert "To enable Record policy_logp" in text


def test_growth_table_tells_level_growth_and_suppression(read: dict[str, Structure]) -> None:
    text = said(read["two"])
    assert "baseline 1.9 1.71 to 2.09 5.8 5.22 to 6.38 9.1 8.19 to 10 ×4.79 3.83 to 5.99 —" in text
    assert "×1.83 1.47 to 2.29 ×2.61 less 1.83 to 3.66" in text


def test_settings_that_differ_are_shown_and_the_rest_is_folded(pages: dict[str, str]) -> None:
    text = pages["two"]
    shown = text[text.index('id="settings"') : text.index("The same in all arms")]
    assert "beta" in shown
    assert "0.05" in shown
    assert "batch_size" not in shown
    assert "batch_size" in text


@pytest.mark.slow
def test_seeds_of_an_arm_are_said(read: dict[str, Structure]) -> None:
    assert "not the difference between seeds" in said(read["two"])
    assert "3 unstable" in said(read["ten"])
    assert "Arms of several runs are pooled by the geometric mean." in said(read["ten"])


@pytest.mark.slow
def test_figures_are_written_as_files(tmp_path: Path) -> None:
    first = write_compare_figures(comparisons.two_arms(), tmp_path / "a")
    again = write_compare_figures(comparisons.two_arms(), tmp_path / "b")
    assert {path.suffix for path in first} == {".svg", ".png"}
    assert {path.stem for path in first} >= {"tails_by_steps", "suppression", "divergence", "aggregates"}
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]
    svg = (tmp_path / "a" / "tails_by_steps.svg").read_text(encoding="utf-8")
    assert "drift_aware_kl" in svg
    assert str(tmp_path) not in svg
    assert "drift_aware_kl" in (tmp_path / "a" / "aggregates.svg").read_text(encoding="utf-8")  # a key of its own


@pytest.fixture(scope="module")
def urls(pages: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("compared")
    return OnDemand(lambda name: write_text(folder / f"{name}.html", pages[name]).as_uri())


@pytest.mark.slow
@pytest.mark.parametrize("name", MADE)
def test_page_is_silent_and_alone(name: str, browser: Any, urls: dict[str, str]) -> None:
    asked = requested_urls(browser, urls[name])
    assert {url for url in asked if not url.startswith("data:")} == {urls[name]}  # an image of the browser's own


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 500, 1280])
@pytest.mark.parametrize("name", MADE)
def test_nothing_overflows_sideways(name: str, width: int, browser: Any, urls: dict[str, str]) -> None:
    show(browser, urls[name], width=width)
    browser.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true })")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


SCROLLED = """
return [...document.querySelectorAll('.scroll')].filter(box => box.scrollWidth > box.clientWidth + 1).map(box => {
  const style = getComputedStyle(box);
  return [style.overflowX, style.backgroundAttachment.split(', '), style.backgroundImage.match(/gradient/g).length];
});"""


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 500])
def test_a_table_that_goes_on_outside_its_box_shows_it(width: int, browser: Any, urls: dict[str, str]) -> None:
    show(browser, urls["missing"], width=width)
    found = browser.execute_script(SCROLLED)
    assert len(found) >= 2  # growth, and more
    assert all(each == ["auto", ["local", "local", "scroll", "scroll"], 4] for each in found)


@pytest.mark.slow
def test_a_name_leaves_a_narrow_screen_to_the_numbers(browser: Any, urls: dict[str, str]) -> None:
    show(browser, urls["missing"], width=500)
    share = "const row = document.querySelector('#growth tbody tr'); return row.cells[0].offsetWidth / 500"
    assert browser.execute_script(share) < 0.35


CONTRASTS = """
const light = c => c.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
  .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
const card = light(getComputedStyle(document.querySelector('.figure')).backgroundColor);
const texts = [...document.querySelectorAll('.figure svg text')].map(t => ratio(light(getComputedStyle(t).fill), card));
const lines = [...document.querySelectorAll('.swatch path:last-child')].map(
  p => ratio(light(getComputedStyle(p).fill), card));
return {texts: Math.min(...texts), lines: Math.min(...lines), seen: texts.length, card: card};"""


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_figures_can_be_read_in_every_light(scheme: str, browser: Any, urls: dict[str, str]) -> None:
    show(browser, urls["ten"], scheme=scheme)
    found = browser.execute_script(CONTRASTS)
    assert (found["card"] < 0.1) == (scheme == "dark")
    assert found["seen"] > 300
    assert found["texts"] >= 4.5
    assert found["lines"] >= 3


OVERLAPS = """
return [...document.querySelectorAll('figure svg')].flatMap(svg => {
  const texts = [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
  const hits = [], frame = svg.getBoundingClientRect();
  for (const [text, box] of texts) if (box.right > frame.right + 2 || box.left < frame.left - 2)
    hits.push([svg.querySelector('title').textContent, text, 'outside']);
  for (let i = 0; i < texts.length; i++) for (let j = i + 1; j < texts.length; j++) {
    const a = texts[i][1], b = texts[j][1];
    const w = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const h = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (w > 2 && h > 4) hits.push([svg.querySelector('title').textContent, texts[i][0], texts[j][0]]);
  }
  return hits;
});"""


@pytest.mark.slow
@pytest.mark.parametrize("width", [500, 1280])
@pytest.mark.parametrize("name", ["two", "missing", "ten", "hostile"])
def test_no_label_lies_over_another_or_outside(name: str, width: int, browser: Any, urls: dict[str, str]) -> None:
    show(browser, urls[name], width=width)
    browser.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true })")
    assert browser.execute_script(OVERLAPS) == []


def _changed(table: str, *columns: pl.Expr) -> Comparison:
    compared = comparisons.missing_tails()
    return replace(compared, tables={**compared.tables, table: compared.tables[table].with_columns(*columns)})


ODD: dict[str, Callable[[], Comparison]] = {
    "only metrics": lambda: _only("aggregates", "aggregate_differences", "settings"),
    "only tails": lambda: _only("curves", "windows"),
    "no common range": lambda: replace(comparisons.two_arms(), matched={"steps": None, "tokens": None}),
    "tails of zero": lambda: _changed("curves", pl.lit(0.0).alias("value"), pl.lit(0.0).alias("lo")),
    "no intervals": lambda: _changed("curves", pl.lit(None, pl.Float64).alias("lo")),
    "no intervals of ratios": lambda: _changed(
        "differences", pl.lit(None, pl.Float64).alias("lo"), pl.lit(float("nan")).alias("hi")
    ),
    "endless intervals": lambda: _changed("differences", pl.lit(0.0).alias("lo"), pl.lit(float("inf")).alias("hi")),
    "ratios of nothing": lambda: _changed("differences", pl.lit(float("inf")).alias("ratio")),
    "one span": lambda: _changed("curves", pl.lit(5.0).alias("x_first"), pl.lit(5.0).alias("x_last")),
    "constant metrics": lambda: _changed("aggregates", *(pl.lit(0.0).alias(end) for end in ("mean", "lo", "hi"))),
    "no interval of steps": lambda: _changed("divergence", *(pl.lit(None, pl.Int64).alias(e) for e in ("low", "high"))),
    "no weights": lambda: _changed("ess", pl.lit(0.0).alias("ess_fraction")),
    "settings of one": lambda: _changed("settings", pl.lit(None, pl.Boolean).alias("differs")),
}


def _only(*names: str) -> Comparison:
    compared = comparisons.two_arms()
    tables = {name: frame if name in names else frame.clear() for name, frame in compared.tables.items()}
    return replace(compared, tables=tables)


@pytest.mark.slow
@pytest.mark.parametrize("name", ODD)
def test_odd_tables_make_a_page(name: str) -> None:
    page = Structure(render_compare_page(ODD[name]()).text)
    assert page.open == []
    assert not {"nan", "inf"} & set(re.split(r"[ ()]", said(page).lower()))
