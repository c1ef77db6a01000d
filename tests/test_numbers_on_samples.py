"""Every statistic of every sample run against an independent computation: numpy on plain lists."""

from __future__ import annotations

from functools import cache

import numpy as np
import polars as pl
import pytest
from judged_runs import RUNS, STORIES, judged_run


@cache
def tokens_by_step(story: str) -> dict[tuple[int, bool], np.ndarray]:
    """Log-ratios of model tokens by (step, after an observation), sequence by sequence in plain Python."""
    found: dict[tuple[int, bool], list[float]] = {}
    for path in sorted((RUNS[story] / "tokens").glob("*.parquet")):
        for row in pl.read_parquet(path).iter_rows(named=True):
            mask = row["model_mask"]
            after, gap = False, 0
            started = False
            for is_model, top, bottom in zip(mask, row["policy_logp"], row["ref_logp"], strict=True):
                if not is_model:
                    gap += 1
                    continue
                after = after or (started and gap >= 4)
                started, gap = True, 0
                found.setdefault((row["step"], after), []).append(float(top) - float(bottom))
    return {key: np.array(values) for key, values in found.items()}


@pytest.mark.parametrize("story", STORIES)
def test_percentiles_and_sums_of_every_step_agree_with_numpy(story: str) -> None:
    expected = tokens_by_step(story)
    table = judged_run(story).tables["step_stats"]
    seen = set()
    for row in table.iter_rows(named=True):
        key = (row["step"], row["slice"] == "post_tool")
        r = expected[key]
        seen.add(key)
        assert row["n"] == len(r)
        for name, q in {"p50": 50, "p95": 95, "p99": 99, "p999": 99.9}.items():
            assert row[name] == pytest.approx(np.percentile(np.abs(r), q), rel=0.005, abs=1e-12)
        rho = np.exp(r)
        close = {
            "second_moment": np.mean(rho**2),
            "ess_fraction": rho.sum() ** 2 / (len(r) * (rho**2).sum()),
            "ess_fraction_inverse": (1 / rho).sum() ** 2 / (len(r) * (1 / rho**2).sum()),
            "k1": r.mean(),
            "k2": np.mean(r**2) / 2,
        }
        for name, value in close.items():
            assert row[name] == pytest.approx(value, rel=1e-6, abs=1e-12), name
        assert row["k3"] == pytest.approx(np.mean(1 / rho - 1 + r), rel=1e-6, abs=1e-9)
    assert seen == set(expected)


def test_the_logged_kl_is_the_k3_of_the_recorded_tokens() -> None:
    """TRL logs the mean k3 over all model tokens: the recorded tokens must give the same number.

    At the first of a generation's two optimiser steps only (the odd ones); at the second TRL weights k3
    by the ratio.
    """
    found = judged_run("tool_tail_growth")
    stats = found.tables["step_stats"]
    mean = stats.group_by("step").agg(((pl.col("k3") * pl.col("n")).sum() / pl.col("n").sum()).alias("k3"))
    logged = found.tables["aggregates"].filter(pl.col("name") == "kl/ref").select("step", "value")
    both = mean.join(logged, on="step").filter(pl.col("step") % 2 == 1)
    assert both.height > 80
    assert both["k3"].to_numpy() == pytest.approx(both["value"].to_numpy(), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("story", STORIES)
def test_windowed_cdfs_are_exact_at_their_edges(story: str) -> None:
    expected = tokens_by_step(story)
    for group in judged_run(story).tables["ecdf"].partition_by("slice", "window"):
        first, last, post = group["step_first"][0], group["step_last"][0], group["slice"][0] == "post_tool"
        pieces = [np.abs(r) for (step, after), r in expected.items() if after == post and first <= step <= last]
        values = np.sort(np.concatenate(pieces))
        below = np.searchsorted(values, group["x"].to_numpy(), side="left") / len(values)
        assert group["n_tokens"][0] == len(values)
        assert np.abs(below - group["cdf"].to_numpy()).max() == 0
