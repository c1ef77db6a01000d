"""How heavy tails are: moments by plain sums, k-hat by arviz-stats, shares by counting, ratios by numpy."""

from __future__ import annotations

from functools import cache

import numpy as np
import polars as pl
import pytest
from arviz_stats.base import array_stats
from builders import Array, Story, growing, sequences_of, steady, stepped, tables_of

from ptt.diagnostics.statistics import bins
from ptt.diagnostics.statistics.ess import tail_heaviness
from ptt.diagnostics.statistics.histograms import LIMITS, count_histograms, exceedance_tables
from ptt.diagnostics.statistics.windows import WINDOWS, Span, split_steps

NAMES = ["text_only", "post_tool"]
Row = dict[str, float | None]


def spans_of(frame: pl.DataFrame) -> tuple[Span, ...]:
    return split_steps(frame["step"].unique().sort().to_list(), 3)


def tables(frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    passed, windows = tables_of(frame), spans_of(frame)
    counted = count_histograms(passed.cells, windows)
    heavy = tail_heaviness(counted, passed.sequences, windows, pair="policy/ref", inverse="ref/policy", names=NAMES)
    return heavy, *exceedance_tables(counted, names=NAMES)


@cache
def made() -> tuple[pl.DataFrame, tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]]:
    frame = growing(steps=48, sequences=20)
    return frame, tables(frame)


def rows_of(frame: pl.DataFrame, window: str) -> list[tuple[Array, Array]]:
    """Log-ratios of each sequence of a window: text-only and post-tool."""
    span = spans_of(frame)[WINDOWS.index(window)]
    found = []
    for row in frame.filter(pl.col("step").is_between(span.first, span.last)).iter_rows(named=True):
        mask = np.array(row["model_mask"])
        r = np.array(row["policy_logp"]) - np.array(row["ref_logp"])
        after = np.cumsum(~mask) > 0
        found.append((r[mask & ~after], r[mask & after]))
    return found


def logs_of(frame: pl.DataFrame, window: str, name: str, level: str) -> Array:
    chosen = [np.concatenate(row) if name == "all" else row[NAMES.index(name)] for row in rows_of(frame, window)]
    held = [r for r in chosen if len(r)]
    if level == "token":
        return np.concatenate(held)
    return np.array([r.sum() if level == "sequence" else r.mean() for r in held])


@pytest.mark.parametrize("level", ["token", "sequence", "sequence mean"])
@pytest.mark.parametrize("name", [*NAMES, "all"])
@pytest.mark.parametrize("window", WINDOWS)
def test_every_row_is_that_of_the_weights_themselves(window: str, name: str, level: str) -> None:
    frame, (heavy, *_) = made()
    logs = logs_of(frame, window, name, level)
    for weights, sign in (("policy/ref", 1.0), ("ref/policy", -1.0)):
        (row,) = heavy.filter(
            (pl.col("window") == window) & (pl.col("slice") == name) & (pl.col("level") == level)
            & (pl.col("weights") == weights)
        ).to_dicts()  # fmt: skip
        w = np.exp(sign * logs)
        assert row["n"] == len(logs)
        assert row["second_moment"] == pytest.approx((w**2).mean(), rel=1e-9)
        assert row["chi2"] == pytest.approx((w**2).mean() - 1, rel=1e-6, abs=1e-9)
        assert row["chi2_normalised"] == pytest.approx((w**2).mean() / w.mean() ** 2 - 1, rel=1e-6, abs=1e-9)
        assert row["ess_fraction"] == pytest.approx(w.sum() ** 2 / (w**2).sum() / len(w), rel=1e-9)
        near = 0.02 if level == "token" else 1e-6  # tokens are known to their bin
        assert row["k_hat"] == pytest.approx(float(array_stats.psislw(-sign * logs)[1]), abs=near)
        assert row["threshold"] == pytest.approx(min(1 - 1 / np.log10(len(logs)), 0.7))
        assert row["reason"] is None


def test_what_cannot_be_judged_has_no_k_hat_but_a_reason() -> None:
    few = tables(sequences_of(Story(steps=3, sequences=5, head=2, tail=2)))[0]
    assert few["k_hat"].null_count() == few.height
    assert set(few["reason"]) == {f"{n} weights are too few" for n in few["n"].unique()}
    still = tables(sequences_of(Story(text=steady(0.0), post=steady(0.0))))[0]
    assert still["k_hat"].null_count() == still.height
    assert set(still["reason"]) == {"too many weights are equal"}
    assert still["ess_fraction"].to_numpy() == pytest.approx(1)


def test_a_sequence_weight_without_a_square_has_no_moment() -> None:
    heavy = tables(sequences_of(Story(steps=6, text=steady(80.0), head=100)))[0]
    rows = heavy.filter((pl.col("level") == "sequence") & (pl.col("slice") == "text_only"))
    assert rows["second_moment"].null_count() == rows["chi2"].null_count() == rows.height
    assert rows["ess_fraction"].is_finite().all()
    assert (rows["k_hat"] > rows["threshold"]).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("window", WINDOWS)
def test_shares_and_p999_are_those_of_the_tokens(window: str, name: str) -> None:
    frame, (_, far, _) = made()
    logs = np.abs(logs_of(frame, window, name, "token"))
    (row,) = far.filter((pl.col("window") == window) & (pl.col("slice") == name)).to_dicts()
    assert row["n"] == len(logs)
    assert row["p999"] == pytest.approx(np.quantile(logs, 0.999), rel=bins.WIDTH)
    assert row["p999_lo"] <= row["p999"] <= row["p999_hi"]
    for limit in LIMITS:
        counted = (logs > np.log(limit)).sum()
        assert row[f"above_{limit}"] * len(logs) == pytest.approx(counted, abs=0.01 * counted)  # the limit's own bin
        assert row[f"above_{limit}_lo"] <= row[f"above_{limit}"] <= row[f"above_{limit}_hi"]


def test_no_token_beyond_a_limit_is_not_none_for_certain() -> None:
    _, (_, far, _) = made()
    (row,) = far.filter((pl.col("window") == "late") & (pl.col("slice") == "text_only")).to_dicts()
    assert (row["above_100"], row["above_100_lo"]) == (0, 0)
    assert (1 - row["above_100_hi"]) ** row["n"] == pytest.approx(0.025)


@pytest.mark.slow
def test_ratios_are_post_over_text_and_their_intervals_hold_the_truth() -> None:
    held = 0
    for seed in range(20):
        frame = sequences_of(Story(steps=48, post=stepped(0.03, 0.3), step_noise=0.2, post_noise=0.2, seed=seed))
        ratios = tables(frame)[2].filter(pl.col("window") == "late")
        for row in ratios.to_dicts():
            q = {"p95": 0.95, "p99": 0.99, "p999": 0.999}[row["percentile"]]
            text, post = (
                np.quantile(np.abs(logs_of(frame, "late", name, "token")), q) for name in ("text_only", "post_tool")
            )
            assert row["ratio"] == pytest.approx(post / text, rel=3 * bins.WIDTH)
        first = ratios.row(0, named=True)
        held += first["ratio_lo"] <= 10 <= first["ratio_hi"]
    assert held >= 13  # eight blocks a window and steps that follow each other: short of 95%


def test_a_window_of_few_steps_has_no_intervals() -> None:
    _, far, ratios = tables(growing(steps=12))
    assert far["p999_lo"].null_count() == far.height
    assert far["above_2_hi"].null_count() == far.height
    assert ratios["ratio_lo"].null_count() == ratios.height
    assert ratios["ratio"].is_finite().all()


def test_the_same_tokens_give_the_same_tables() -> None:
    frame, found = made()
    assert all(one.equals(other) for one, other in zip(tables(frame), found, strict=True))


def test_without_observations_there_is_one_slice_and_no_ratio() -> None:
    heavy, far, ratios = tables(sequences_of(Story(tool_share=steady(0.0))))
    assert set(heavy["slice"]) == {"text_only", "all"}
    assert set(far["slice"]) == {"text_only"}
    assert ratios.is_empty()
