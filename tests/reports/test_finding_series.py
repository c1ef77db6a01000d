"""The plot under a finding: its curve, its limit in the units of the curve, its onset, at any width."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from html_structure import page_with
from judged_runs import judged_runs

from ptt.diagnostics.model import Diagnosis, Finding, Link, Severity
from ptt.reports.figures.finding_series import finding_plot
from ptt.reports.figures.line_plot import SIZE, Axis, LinePlot, spread
from ptt.reports.run.html import render_html
from ptt.reports.text.consequences import roots


def finding(**values: object) -> Finding:
    given: dict[str, object] = {
        "id": "kl-over-target", "severity": Severity.HIGH, "link": Link.POLICY_UPDATE, "claim": "KL rose",
        "observed": None, "limit": None, "unit": "nats", "onset_step": 60, "onset_interval": (55, 62),
        "evidence": {"metric": "kl/ref", "logged_as": "kl"},
    }  # fmt: skip
    return Finding(**{**given, **values})  # type: ignore[arg-type]


def plotted(base: Diagnosis, values: np.ndarray, shown: Finding) -> LinePlot:
    flags = np.where(np.isfinite(values), 0, 1).astype(np.uint8)
    steps = np.arange(1, len(values) + 1)
    frame = pl.DataFrame({"step": steps, "value": values, "flag": flags}).with_columns(
        metric=pl.lit("kl/ref"), logged_as=pl.lit("kl"), value=pl.col("value").fill_nan(None)
    )
    run = replace(base.run, first_step=1, last_step=len(values))
    plot = finding_plot(shown, replace(base, run=run, tables={"finding_series": frame}), "p")
    assert plot is not None
    return plot


def looks(plot: LinePlot) -> list[str]:
    return [shape.look for shape in plot.shapes]


def texts(plot: LinePlot, look: str) -> list[str]:
    return [label.text for label in plot.labels if look in label.look.split()]


RISE = np.concatenate([np.full(60, 0.1), np.full(140, 0.6)])


def test_a_limit_on_the_curve_is_drawn_at_its_level(samples: dict[str, Diagnosis]) -> None:
    plot = plotted(samples["baseline"], RISE, finding(observed=0.6, limit=0.3))
    assert texts(plot, "limit") == ["limit 0.3"]
    assert texts(plot, "since") == ["since 60 (55 to 62)"]
    assert {"raw", "mean", "range", "window"} <= set(looks(plot))
    assert plot.title == "Mean KL (kl): mean of 20 steps, 0.1 at first, 0.6 at the end"
    assert "Limit 0.3. Since step 60 (between 55 and 62)." in plot.alt


def test_a_caption_names_its_curve_in_its_own_case(samples: dict[str, Diagnosis]) -> None:
    frame = pl.DataFrame({"step": [1, 2], "value": [0.5, 0.7], "flag": [0, 0]})
    for evidence in ({"metric": "myScore"}, {"logged_as": "myScore"}):
        rows = frame.with_columns(**{key: pl.lit(evidence.get(key, "")) for key in ("metric", "logged_as")})
        plot = finding_plot(
            finding(evidence=evidence), replace(samples["baseline"], tables={"finding_series": rows}), "p"
        )
        assert plot is not None
        assert plot.title == "myScore: 0.5 at first, 0.7 at the end"


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ({"observed": 6.0, "limit": 1.5, "unit": "x"}, ["limit 0.15"]),  # times the early level
        ({"observed": 5.0, "limit": 1.5, "unit": "of the early level"}, ["limit 0.25"]),  # a change, over that level
        ({"observed": 0.97, "limit": 0.2, "unit": "correlation"}, []),  # on another scale than the curve
        ({"observed": None, "limit": 0.3}, []),
    ],
)
def test_a_limit_on_a_change_stands_where_the_change_is_too_large(
    values: dict[str, object], shown: list[str], samples: dict[str, Diagnosis]
) -> None:
    evidence = {"metric": "kl/ref", "logged_as": "kl", "early": 0.1, "late": 0.6}
    assert texts(plotted(samples["baseline"], RISE, finding(**values, evidence=evidence)), "limit") == shown


def test_values_that_are_no_numbers_are_marked_and_never_drawn(samples: dict[str, Diagnosis]) -> None:
    plot = plotted(samples["baseline"], np.where(np.arange(200) > 150, np.nan, RISE), finding())
    assert "bad" in looks(plot)
    assert plot.alt.endswith("No number at 49 steps.")
    assert not [shape for shape in plot.shapes if "nan" in shape.d]


def test_a_long_curve_keeps_its_extremes_and_few_points(samples: dict[str, Diagnosis]) -> None:
    values = np.random.default_rng(3).normal(0.3, 0.01, 20_000)
    values[12_345] = 0.5
    plot = plotted(samples["baseline"], values, finding())
    assert sum(len(shape.d) for shape in plot.shapes) < 12_000


def test_a_curve_of_few_values_is_drawn_with_its_points_and_without_a_mean(samples: dict[str, Diagnosis]) -> None:
    plot = plotted(samples["baseline"], np.linspace(4.0, 1.0, 12), finding())
    assert {"mean", "mean dots"} <= set(looks(plot))
    assert "raw" not in looks(plot)


def test_axes_name_round_values_inside_their_ends() -> None:
    for low, high in ((0.0, 0.7), (3.2, 911.0), (-2.0, 5e-1), (1e-9, 4e-9), (12.0, 12.001)):
        ticks = Axis(low=low, high=high).ticks(4)
        assert 2 <= len(ticks) <= 6
        assert all(low - 1e-9 <= tick <= high + 1e-9 for tick in ticks)
    for low, high in ((1e-4, 3e5), (0.01, 20.0), (2.1, 30.0)):
        ticks = Axis(low=low, high=high, log=True).ticks(4)
        assert 1 <= len(ticks) <= 5
        assert all(low <= tick <= high for tick in ticks)
    places = Axis(low=0.1, high=10.0, log=True).place(np.array([0.1, 1.0, 10.0]))
    assert places.tolist() == pytest.approx([0.0, 0.5, 1.0])


def test_labels_on_the_right_stand_apart_and_inside() -> None:
    assert spread([0.5, 0.5, 0.52], 0.1) == pytest.approx([0.5, 0.6, 0.7])
    assert spread([0.97, 0.99], 0.1) == pytest.approx([0.9, 1.0])


@pytest.mark.slow
def test_each_root_of_weight_opens_with_its_plot_and_paths_stay_in_their_box() -> None:
    for name, diagnosis in judged_runs().items():
        page = render_html(diagnosis)
        for root in roots(diagnosis):
            anchor = f"finding-{[f is root for f in diagnosis.findings].index(True) + 1}"
            drawn = f'id="plot-{anchor}-desc"' in page
            assert drawn == root.severity.at_least(Severity.MEDIUM), (name, root.id)
        for path in re.findall(r'<path class="(?:raw|mean|text|post)" d="M(\d+) ', page):
            assert 0 <= int(path) <= SIZE


def test_what_follows_is_folded_below_its_root_in_one_line(samples: dict[str, Diagnosis]) -> None:
    page = page_with(samples["cascade"])
    assert len(re.findall(r"<details class=\"line", page)) == len(samples["cascade"].findings) - page.count("<article")
    assert page.index('id="more"') > page.rindex('<details class="line')


def test_a_finding_without_a_curve_says_so(samples: dict[str, Diagnosis]) -> None:
    page = page_with(samples["cascade"])
    assert "No plot: this finding rests on samples, settings or counts" in page
