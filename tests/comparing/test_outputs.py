"""A comparison as JSON, Markdown and on a terminal: as recorded, the same each time, and harmless."""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from pathlib import Path

import cmarkgfm
import comparisons
import polars as pl
import pytest
from judged_runs import compared_runs
from rich.console import Console

from ptt.diagnostics.compare.comparison import Comparison
from ptt.reports.compare.markdown import MAX_FIGURES, compare_markdown
from ptt.reports.compare.terminal import print_comparison
from ptt.reports.compare.texts import TABLES, compare_json

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden"
IN_GOLDEN = ("headline", "sentences", "baseline", "pair", "arms", "matched", "not_compared", "windows", "differences",
             "growth", "divergence", "settings")  # fmt: skip


@pytest.fixture(scope="module")
def real() -> Comparison:
    return compared_runs("tool_tail_growth", "kl_penalised")


@pytest.fixture(scope="module")
def hostile() -> Comparison:
    return comparisons.hostile()


def printed(comparison: Comparison, *, width: int = 100) -> str:
    out = io.StringIO()
    print_comparison(comparison, Console(file=out, width=width), "ptt-report/compare/compare.html")
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def recorded(name: str, actual: str) -> str:
    path = GOLDEN / name
    if os.environ.get("PTT_RECORD_GOLDEN"):
        path.write_text(actual, encoding="utf-8")
    return path.read_text(encoding="utf-8")


def test_the_terminal_shows_what_is_recorded_and_fits_a_screen(real: Comparison) -> None:
    text = printed(real)
    assert text == recorded("compare.txt", text)
    assert len(text.splitlines()) <= 40


def test_markdown_is_what_is_recorded(real: Comparison) -> None:
    text = compare_markdown(real)
    assert text == recorded("compare.md", text)


def test_json_is_what_is_recorded(real: Comparison) -> None:
    held = json.loads(compare_json(real, "0"))
    text = json.dumps({name: held[name] for name in IN_GOLDEN}, indent=1, ensure_ascii=False) + "\n"
    assert text == recorded("compare.json", text)


def test_json_has_a_version_and_every_table_and_no_value_that_json_has_not(real: Comparison) -> None:
    text = compare_json(real, "0.1")
    held = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert held["schema_version"] == 1
    assert set(TABLES) <= set(held)
    assert text == compare_json(real, "0.1")
    assert str(ROOT) not in text


def test_foreign_names_steer_no_terminal(hostile: Comparison) -> None:
    for width in (40, 80, 200):
        text = printed(hostile, width=width)
        assert not [c for c in text if c != "\n" and not c.isprintable() and c != "\u202f"]


def test_foreign_names_are_no_markup_in_markdown(hostile: Comparison) -> None:
    html = cmarkgfm.github_flavored_markdown_to_html(
        compare_markdown(hostile), options=cmarkgfm.cmark.Options.CMARK_OPT_UNSAFE
    )
    assert "<script" not in html
    assert "<img" not in html
    assert "</style" not in html
    assert "\x1b" not in html
    for table in html.split("<table>")[1:]:
        cells = {row.count("<td") + row.count("<th>") for row in table.split("<tr>")[1:]}
        assert len(cells) == 1  # no name ends its cell


def test_json_keeps_foreign_names_as_they_are(hostile: Comparison) -> None:
    held = json.loads(compare_json(hostile, "0"))
    assert [arm["name"] for arm in held["arms"]] == [arm.name for arm in hostile.arms]


def test_ten_arms_stay_readable() -> None:
    many = comparisons.ten_arms()
    text = printed(many, width=100)
    assert len(text.splitlines()) <= 90
    assert "more arms" not in text
    assert all(text.count(arm.name) >= 3 for arm in many.arms)  # tails, metrics, settings: an arm a row
    assert "more" in compare_markdown(many) or len(many.arms) == 10


def test_metrics_that_are_alike_and_those_that_cannot_be_told_look_different_and_none_is_cut(real: Comparison) -> None:
    marked = compare_markdown(real)
    (counted,) = [line for line in marked.splitlines() if line.startswith("Of ")]
    rows = marked[marked.index(counted) :].split("\n\n")[1].splitlines()[2:]
    assert counted == "Of 14 metrics, 4 differ, 3 are the same, 7 are unclear."
    assert len(rows) == 14
    ends = [row.removesuffix(" |").rpartition(" ")[2] for row in rows]
    assert (ends.count("same"), ends.count("?")) == (3, 7)
    assert "same: within a margin of the baseline" in marked.replace("Same", "same")
    assert "?: unclear, which does not mean the same" in marked
    assert "10 that do not differ or are unclear, in the report" in printed(real)


def test_a_mark_beside_a_mean_is_explained_under_the_terminals_table() -> None:
    text = printed(comparisons.missing_tails(), width=120)
    assert "0.425 same" in text
    assert "same: within a margin of the baseline" in text
    assert "?: unclear" not in text  # no cell has it


def left_often(count: int) -> Comparison:
    """Give two arms of which one left the other in so many figures, after some steps to the last digit alike."""
    made = comparisons.two_arms()
    rows = [
        {"arm": made.arms[1].name, "what": f"figure {place}", "slice": None, "step": 40 + place, "low": 30, "high": 90,
         "words": "below the baseline"}
        for place in range(count)
    ]  # fmt: skip
    rows.append(dict(rows[0], what="identical", step=2, low=2, high=700, words="identical up to step 2"))
    return replace(made, tables={**made.tables, "divergence": pl.DataFrame(rows, infer_schema_length=None)})


def test_what_left_the_baseline_is_listed_whole_or_its_rest_is_counted() -> None:
    few, many = compare_markdown(left_often(9)), compare_markdown(left_often(MAX_FIGURES + 3))
    assert few.count("below the baseline") == 9
    assert "more figures" not in few
    assert many.count("below the baseline") == MAX_FIGURES
    assert "And 3 more figures that left it: see `divergence` in compare.json." in many
    assert "and 8 more that left it later, or at an unknown step, in the report" in printed(left_often(9))


def test_an_arm_that_left_is_never_said_to_have_left_in_nothing() -> None:
    for text in (compare_markdown(left_often(1)), printed(left_often(1))):
        assert "identical at first" in text
        assert "none" not in text
