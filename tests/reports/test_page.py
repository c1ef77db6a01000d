"""The page as text: escaped, closed in itself, small, quick, and the same every time."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from html_structure import OnDemand, Structure, page_with
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from slow_cases import first_fast

from ptt.diagnostics.model import Diagnosis
from ptt.reports.figures import BEHIND_THE_TAIL, FIGURES, aggregates, timeline
from ptt.reports.figures.axes import spans_powers, spike_cutoff
from ptt.reports.figures.drawing import write_figures
from ptt.reports.figures.panels import Panel
from ptt.reports.figures.style import figure_style
from ptt.reports.output import write_text, write_with
from ptt.reports.run.html import render_html

NAMES = ("baseline", "cannot_say", "cascade", "hostile", "healthy", "collapse", "crashed")


@pytest.fixture(scope="module")
def pages(samples: dict[str, Diagnosis]) -> dict[str, str]:
    return OnDemand(lambda name: render_html(samples[name]))


@pytest.mark.parametrize("name", first_fast(NAMES, 4))
def test_page_is_closed_in_itself(name: str, pages: dict[str, str]) -> None:
    found = Structure(pages[name])
    assert found.open == []
    assert "script" not in found.tags
    assert len(found.ids) == len(set(found.ids))
    assert [link for link in found.links if not link.startswith("#") and link != "data:,"] == []
    assert {link[1:] for link in found.links if link.startswith("#")} <= set(found.ids)
    assert set(re.findall(r"url\(#([^)]*)\)", pages[name])) <= set(found.ids)
    assert not re.search(r"url\((?!#)|@import|expression\(", pages[name])
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:" in pages[name]


@pytest.mark.parametrize("name", first_fast(NAMES, 4))
def test_page_is_small(name: str, pages: dict[str, str]) -> None:
    assert len(pages[name].encode("utf-8")) < 700_000


@pytest.mark.parametrize("name", first_fast(["cannot_say", "baseline", "hostile"]))
def test_same_diagnosis_gives_same_page(name: str, pages: dict[str, str], samples: dict[str, Diagnosis]) -> None:
    assert render_html(samples[name]) == pages[name]


def test_foreign_text_is_escaped(pages: dict[str, str]) -> None:
    page = pages["hostile"]
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert not [c for c in page if c != "\n" and not c.isprintable() and c != "\u202f"]
    assert "{{ 7*7 }}" in page


def test_each_panel_has_a_name_and_a_description_with_numbers(pages: dict[str, str]) -> None:
    drawn = re.findall(r'<svg[^>]*role="img" aria-labelledby="(\S+) (\S+)">', pages["baseline"])
    assert len(drawn) == 18  # the timeline is drawn for wide and for narrow screens
    for title, description in drawn:
        assert re.search(rf'<title id="{title}">[^<]+</title>', pages["baseline"])
        assert re.search(rf'<desc id="{description}">[^<]*\d[^<]*</desc>', pages["baseline"])


def test_colours_of_the_page_drawings_are_properties(pages: dict[str, str]) -> None:
    drawings = "".join(re.findall(r"<svg.*?</svg>", pages["baseline"], flags=re.DOTALL))
    assert not re.findall(r"(?:fill|stroke): (?!none|var\()[^;\"]+", drawings)


def test_absent_figures_say_why(pages: dict[str, str], samples: dict[str, Diagnosis]) -> None:
    titles = "Tail emergence over training; Distributions by window; Effective sample size"
    reason = "No sequence holds an observation between model tokens."
    assert pages["cannot_say"].count(f"Not drawn: {titles}. {reason}") == 1
    assert pages["cannot_say"].count('<figure id="') == 1
    assert page_with(samples["crashed"]).count("ZeroDivisionError: division by zero") == 1


@pytest.mark.parametrize("frames", [{}, {name: pl.DataFrame() for name in ("tail_emergence", "ecdf", "ess")}])
def test_no_tables_at_all(frames: dict[str, pl.DataFrame], samples: dict[str, Diagnosis]) -> None:
    bare = replace(samples["baseline"], tables=frames)
    page = render_html(bare)
    undrawn = "".join(re.findall(r'class="none undrawn">([^<]*)', page))
    assert [kind.title for kind in FIGURES if not kind.folded and kind.title not in undrawn] == ["What broke when"]
    assert page.count('<figure id="') == 1


def test_unusable_values_are_left_out(samples: dict[str, Diagnosis]) -> None:
    def spoil(frame: pl.DataFrame) -> pl.DataFrame:
        column = next(c for c in ("value", "cdf", "ess_fraction", "p95") if c in frame.columns)
        spoilt = pl.when(pl.int_range(pl.len()) % 5 == 0).then(float("nan")).otherwise(pl.col(column))
        return frame.with_columns(spoilt.alias(column))

    base = samples["baseline"]
    page = render_html(replace(base, tables={name: spoil(frame) for name, frame in base.tables.items()}))
    assert re.findall(r"\bnan\b", page) == []
    assert page.count("no value") < 60


def test_that_nothing_needs_to_be_done_is_a_step_too(samples: dict[str, Diagnosis]) -> None:
    found = samples["cannot_say"]
    quiet = replace(found, findings=(), verdict=replace(found.verdict, next=()))
    assert "Nothing needs to be done" in page_with(quiet)


@pytest.mark.slow
def test_a_run_of_one_step_can_be_drawn(samples: dict[str, Diagnosis], tmp_path: Path) -> None:
    base = samples["baseline"]
    short = {}
    for name, frame in base.tables.items():
        if name == "aggregates":
            short[name] = frame.filter(pl.col("step") == 1)
        elif name in {"tail_emergence", "ess"}:
            ends = [
                pl.lit(1).alias("step_first"),
                pl.lit(1).alias("step_last"),
                pl.lit(1.0).alias("step_mid"),
            ]
            short[name] = frame.filter(pl.col("step_first") == 1).with_columns(ends)
    assert write_figures(replace(base, tables=short), tmp_path)


def test_a_foreign_identifier_in_the_timeline_is_cut_and_cleaned(pages: dict[str, str]) -> None:
    (drawing,) = re.findall(r"<svg[^>]*timeline-wide-title.*?</svg>", pages["hostile"], flags=re.DOTALL)
    assert "<script" not in drawing
    assert len(drawing) < 60_000


def test_the_timeline_holds_every_finding_from_low_on(pages: dict[str, str], samples: dict[str, Diagnosis]) -> None:
    (drawing,) = re.findall(r"<svg[^>]*timeline-narrow-title.*?</svg>", pages["cascade"], flags=re.DOTALL)
    texts = re.findall(r"<text[^>]*>([^<]*)", drawing)
    for finding in samples["cascade"].findings:
        assert [text for text in texts if text.startswith(finding.id)], finding.id
    assert "Data freshness (first)" in texts


def test_a_run_without_steps_has_no_timeline_but_says_so(samples: dict[str, Diagnosis]) -> None:
    base = samples["cascade"]
    undated = tuple(replace(finding, onset_step=None, onset_interval=None) for finding in base.findings)
    page = page_with(
        replace(base, run=replace(base.run, first_step=None, last_step=None), findings=undated), main=(timeline.FIGURE,)
    )
    assert '<figure id="timeline"' not in page
    assert "Not drawn: What broke when. The run records no steps, so findings have no place in time." in page


def test_a_run_of_many_findings_draws_the_worst_and_lists_the_rest(samples: dict[str, Diagnosis]) -> None:
    base = samples["cascade"]
    more = tuple(
        replace(base.findings[-1], id=f"note-{index}", onset_step=10 * index, onset_interval=None)
        for index in range(30)
    )
    page = page_with(replace(base, findings=(*base.findings, *more)), main=(timeline.FIGURE,))
    assert "The 24 worst of 43 findings are drawn." in page
    assert "Findings in order of time (43 rows)" in page


def test_the_axis_ends_below_a_spike_and_not_below_a_rise_that_lasts() -> None:
    steps = np.arange(400)
    flat = 0.02 + 0.004 * np.sin(steps / 9)
    spike = np.where((steps > 300) & (steps < 312), 3.0, flat)
    assert 0.02 < spike_cutoff(spike) < 0.1
    assert spike_cutoff(flat) == math.inf
    assert spike_cutoff(np.where(steps > 350, 3.0, flat)) == math.inf
    assert spike_cutoff(np.linspace(0.05, 0.65, 400) ** 2) == math.inf
    assert spike_cutoff(np.full(400, 0.3)) == math.inf
    assert spike_cutoff(spike[295:325]) == math.inf  # of so few values it is no small part
    assert spans_powers(np.where(steps > 300, 1e4, flat))
    assert not spans_powers(spike)
    assert not spans_powers(np.append(flat, 0.0) * 1e3)


def test_a_spike_of_the_mean_is_marked_with_its_height(samples: dict[str, Diagnosis]) -> None:
    base = samples["healthy"]
    odd = (pl.col("name") == "kl/ref") & pl.col("step").is_between(300, 310)
    frame = base.tables["aggregates"].with_columns(
        mean=pl.when(odd)
        .then(4.5)
        .when(pl.col("name") == "kl/ref")
        .then(0.02 + 1e-5 * pl.col("step"))
        .otherwise("mean")
    )
    page = page_with(replace(base, tables={**base.tables, "aggregates": frame}), main=(aggregates.FIGURE,))
    assert ">mean 4.5 at 300" in page
    assert "If spikes would flatten the rest of a curve" in page


def kl_panel(diagnosis: Diagnosis) -> tuple[Panel, Figure]:
    """Draw the curve of the mean KL as its panel draws it."""
    panel = next(one for one in aggregates.FIGURE.panels(diagnosis) if one.title == "Mean KL")
    figure = Figure(figsize=(panel.width / 72, panel.height / 72), dpi=72)
    FigureCanvasAgg(figure)
    with figure_style(panel.key):
        panel.draw(figure.add_axes((46 / panel.width, 40 / panel.height, 220 / panel.width, 146 / panel.height)))
    return panel, figure


def test_single_steps_that_leave_the_axis_are_marked_at_both_edges(samples: dict[str, Diagnosis]) -> None:
    base = samples["healthy"]
    kl, step = pl.col("name") == "kl/ref", pl.col("step")
    frame = base.tables["aggregates"].with_columns(
        value=pl.when(kl & (step == 100)).then(9.0).when(kl & (step == 350)).then(-7.0).otherwise("value"),
        mean=pl.when(kl).then(0.02 + 1e-5 * step).otherwise("mean"),
    )
    panel, figure = kl_panel(odd := replace(base, tables={**base.tables, "aggregates": frame}))
    assert panel.alt.endswith("Beyond the axis: steps 9 at 100 and −7 at 350.")
    assert "orange edge marks each" in aggregates.FIGURE.caption(odd)
    (ax,) = figure.axes
    marks = [np.asarray(line.get_xydata()) for line in ax.get_lines() if line.get_marker() == "_"]
    assert [(at[0, 1], 100 in at[:, 0], 350 in at[:, 0]) for at in marks] == [(1.0, True, False), (0.0, False, True)]
    (told,) = [text for text in ax.texts if text.get_text().startswith("steps 9")]
    assert told.get_window_extent().y0 > ax.get_window_extent().y1  # above all lines


def test_no_line_runs_through_the_step_of_an_alarm(samples: dict[str, Diagnosis]) -> None:
    base = samples["baseline"]
    kl, step = pl.col("name") == "kl/ref", pl.col("step")
    spike = pl.when(kl & step.is_between(520, 540)).then(4.5).when(kl).then(0.02 + 1e-5 * step)
    frame = base.tables["aggregates"].with_columns(mean=spike.otherwise("mean"), value=spike.otherwise("value"))
    alarms = replace(base.signature.aggregates, alarms={"kl/ref": 415})
    signature = replace(base.signature, onset_step=121, aggregates=alarms)
    _, figure = kl_panel(replace(base, signature=signature, tables={**base.tables, "aggregates": frame}))
    (ax,) = figure.axes
    (box,) = [text.get_window_extent() for text in ax.texts if text.get_text() == "alarm 415"]
    for place in (121, 415, 519, 520, 540, 541):
        assert not box.x0 <= ax.transData.transform((place, 0))[0] <= box.x1


@pytest.mark.slow
def test_figures_are_the_same_bytes_twice_and_leave_no_parts(samples: dict[str, Diagnosis], tmp_path: Path) -> None:
    first = write_figures(samples["baseline"], tmp_path / "a")
    second = write_figures(samples["baseline"], tmp_path / "b")
    assert [path.name for path in first] == [f"{kind.name}.{end}" for kind in FIGURES for end in ("svg", "png")]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == sorted(path.name for path in first)
    text = (tmp_path / "a" / "tail_emergence.svg").read_text(encoding="utf-8")
    assert "dc:date" not in text
    assert "var(" not in text


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    kept = write_text(tmp_path / "deep" / "r.txt", "old")

    def fail(part: Path) -> None:
        part.write_text("half")
        raise ValueError("disk full")

    with pytest.raises(ValueError, match="disk full"):
        write_with(kept, fail)
    assert [path.name for path in kept.parent.iterdir()] == ["r.txt"]
    assert kept.read_text() == "old"


def test_every_figure_file_is_in_the_table_of_contents() -> None:
    import ptt.reports.figures as package

    shared = {
        "__init__",
        "annotations",
        "axes",
        "distributions",
        "drawing",
        "faults",
        "finding_series",
        "line_plot",
        "panels",
        "style",
    }
    there = {path.stem for path in Path(str(package.__file__)).parent.glob("*.py")} - shared
    assert there == {kind.name for kind in (*FIGURES, *BEHIND_THE_TAIL) if not kind.folded}


def test_words_need_no_matplotlib() -> None:
    check = (
        "import sys, ptt.reports.run.terminal, ptt.reports.run.findings_json, ptt.reports.run.view;"
        "sys.exit('matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
