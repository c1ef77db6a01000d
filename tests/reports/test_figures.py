"""What figures show: their headings, the limit of the tail, effective sample sizes at their floor, values to hover."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from builders import growing, write_recorder_run
from html_structure import page_with
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from slow_cases import first_fast
from typer.testing import CliRunner

from ptt.cli.app import app
from ptt.diagnostics.model import Diagnosis
from ptt.reports.figures import FIGURES, effective_sample_size, tail_emergence
from ptt.reports.figures.drawing import inline_svg
from ptt.reports.figures.style import figure_style
from ptt.reports.run.html import render_html


@pytest.fixture
def passed(samples: dict[str, Diagnosis]) -> Diagnosis:
    """A run whose tail passed 2 nats at step 129, and grew before."""
    base = samples["baseline"]
    first, *others = base.findings
    tail = replace(first, limit=2.0, unit="nats", limit_passed_step=129, evidence={"percentile": "p95"})
    return replace(
        base,
        findings=(tail, *others),
        signature=replace(base.signature, onset_step=1, onset_interval=(1, 42), limit_passed_step=129),
    )


def ess(rows: pl.DataFrame, **columns: object) -> pl.DataFrame:
    return rows.with_columns(**{name: pl.lit(value) for name, value in columns.items()})


def with_table(diagnosis: Diagnosis, name: str, frame: pl.DataFrame) -> Diagnosis:
    return replace(diagnosis, tables={**diagnosis.tables, name: frame})


def test_every_figure_is_headed_by_what_it_shows(passed: Diagnosis) -> None:
    heads = re.findall(r"<figure[^>]*>\s*<h3>(.*?)</h3>", render_html(passed))
    said = [kind.takeaway(passed) for kind in FIGURES if kind.panels(passed) and not kind.folded]
    assert all(said)
    assert set(said) <= set(heads)


def test_the_heading_of_the_tail_says_when_it_passed_its_limit(passed: Diagnosis) -> None:
    assert tail_emergence.takeaway(passed).replace("\u202f", " ").startswith("Post-tool p95 passed 2 nats at step 129")


def test_a_tail_that_passed_no_limit_is_told_by_its_ends(samples: dict[str, Diagnosis]) -> None:
    healthy = tail_emergence.takeaway(samples["healthy"])
    assert re.match(r"Post-tool p95 (stayed near|rose from|fell from) [0-9.]+", healthy)
    assert "limit" not in tail_emergence.caption(samples["healthy"])


def test_growth_below_the_limit_is_explained_where_it_comes_first(passed: Diagnosis) -> None:
    told = tail_emergence.caption(passed)
    assert "below the limit" in told
    at_once = replace(passed, signature=replace(passed.signature, onset_step=129))
    assert "below the limit" not in tail_emergence.caption(at_once)


def test_the_limit_is_drawn_on_the_panel_of_its_percentile(passed: Diagnosis) -> None:
    p95, p99 = (inline_svg(panel) for panel in tail_emergence.panels(passed))
    assert "limit 2<" in p95
    assert "limit 2<" not in p99


def test_the_axis_of_tails_is_that_of_nats_from_zero(passed: Diagnosis) -> None:
    panel, *_ = tail_emergence.panels(passed)
    with figure_style("test"):
        figure = Figure(figsize=(6, 4), dpi=72)
        FigureCanvasAgg(figure)
        ax = figure.add_axes((0.1, 0.1, 0.7, 0.7))
        panel.draw(ax)
    shown = passed.tables["tail_emergence"].filter(q=0.95)["value"].to_numpy()
    assert ax.get_yscale() == "linear"
    assert ax.get_ylim()[0] == 0
    assert shown.max() < ax.get_ylim()[1] < 2.5 * shown.max()


def test_values_are_shown_under_a_pointer(passed: Diagnosis) -> None:
    panel, *_ = tail_emergence.panels(passed)
    titles = re.findall(r"<use [^>]*><title>(.*?)</title></use>", inline_svg(panel))
    assert 10 < len(titles) < 100
    assert all(re.fullmatch(r"[\d\u202f]+: [\d.,×\u202f⁰-⁹⁻¹²³]+", title) for title in titles), titles
    assert "<title>post-tool</title>" in inline_svg(panel)


def test_one_panel_of_effective_sample_sizes_comes_first_on_one_axis(passed: Diagnosis) -> None:
    (panel,) = effective_sample_size.FIGURE.panels(passed)
    assert panel.title == "Sequence level, weights ref/policy"
    assert len(effective_sample_size.OTHERS.panels(passed)) == 3
    page = page_with(passed, main=(effective_sample_size.FIGURE, effective_sample_size.OTHERS))
    assert page.index("<details", page.index('id="effective_sample_size"')) < page.index('id="other_weights"')


def test_sampler_weights_are_taken_as_the_pair_is_named(passed: Diagnosis) -> None:
    frame = passed.tables["ess"].with_columns(
        pl.col("weights").replace({"policy/ref": "policy/old", "ref/policy": "old/policy"})
    )
    other = with_table(replace(passed, signature=replace(passed.signature, pair="policy/old")), "ess", frame)
    assert effective_sample_size.FIGURE.panels(other)[0].title == "Sequence level, weights policy/old"


@pytest.mark.parametrize("floor", [{"ess_fraction": 0.02}, {"top_share": 0.9}, {"lo": 0.01, "hi": 0.99}])
def test_an_estimate_at_its_floor_is_not_drawn_and_said_to_tell_nothing(
    passed: Diagnosis, floor: dict[str, float]
) -> None:
    rows = passed.tables["ess"].with_columns(lo=pl.col("ess_fraction") * 0.9, hi=pl.col("ess_fraction") * 1.05)
    heavy = with_table(passed, "ess", ess(rows, **floor))
    assert effective_sample_size.takeaway(heavy) == "Too few post-tool sequences carry the weight to say how many count"
    assert "means nothing" in effective_sample_size.caption(heavy)
    (panel,) = effective_sample_size.FIGURE.panels(heavy)
    drawing = inline_svg(panel)
    assert re.search(r"at the floor: .*post-tool \d+", drawing)
    assert "<title>post-tool</title>" not in drawing
    light = with_table(passed, "ess", rows)
    assert re.match(r"Of 100 post-tool sequences [\d.]+ count at the end", effective_sample_size.takeaway(light))


@pytest.mark.parametrize("scheme", first_fast(["light", "dark"]))
def test_text_in_figures_stands_out_from_paper(scheme: str, samples: dict[str, Diagnosis]) -> None:
    light, dark = re.findall(r":root \{(.*?)\}", page_with(samples["baseline"]), re.DOTALL)[:2]
    colours = dict(re.findall(r"(--fig-[a-z]+): (#\w{6})", light if scheme == "light" else dark))
    paper = luminance(colours["--fig-paper"])
    written = ("ink", "muted", "text", "post", "other", "critical", "high", "medium", "low")
    for name in written:
        ends = sorted((luminance(colours[f"--fig-{name}"]), paper))
        assert (ends[1] + 0.05) / (ends[0] + 0.05) >= 4.5, name


def luminance(colour: str) -> float:
    """Return a colour's relative luminance, as WCAG 2 defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_what_ended_early_is_not_told_as_the_end(passed: Diagnosis) -> None:
    early = passed.tables["ess"].filter((pl.col("slice") != "post_tool") | (pl.col("step_last") < 100))
    assert "text-only" in effective_sample_size.takeaway(with_table(passed, "ess", early))


@pytest.mark.slow
def test_a_run_is_drawn_beside_a_baseline(tmp_path: Path) -> None:
    for name in ("one", "other"):
        write_recorder_run(tmp_path / name, growing(steps=12, sequences=8))
    out = tmp_path / "out"
    found = CliRunner().invoke(
        app, ["diagnose", str(tmp_path / "one"), "--baseline", str(tmp_path / "other"), "--out", str(out)]
    )
    assert found.exit_code == 0, found.output
    page = (out / "report.html").read_text(encoding="utf-8")
    assert 'id="tails_by_steps"' in page
    assert 'id="suppression"' in page


def test_a_baseline_that_is_not_there_is_refused(tmp_path: Path) -> None:
    write_recorder_run(tmp_path / "one", growing(steps=4, sequences=4))
    words = ["diagnose", str(tmp_path / "one"), "--baseline", "none", "--out", str(tmp_path / "o")]
    found = CliRunner().invoke(app, words)
    assert found.exit_code == 5
    assert "none: there is no such file or folder" in found.output
