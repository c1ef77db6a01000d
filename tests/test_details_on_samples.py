"""What stands behind the tail of the sample runs, against plain computations on their files."""

from __future__ import annotations

from functools import cache

import numpy as np
import polars as pl
import pytest
from arviz_stats.base import array_stats
from judged_runs import RUNS, STORIES, judged_run


@cache
def late(story: str) -> pl.DataFrame:
    """One row a model token of the late third: path, row, step, r and whether an observation came before."""
    ends = judged_run(story).tables["ecdf"].filter(pl.col("window") == "late")
    first, last = ends["step_first"][0], ends["step_last"][0]
    rows = []
    for path in sorted((RUNS[story] / "tokens").glob("*.parquet")):
        for number, row in enumerate(pl.read_parquet(path).iter_rows(named=True)):
            if not first <= row["step"] <= last:
                continue
            after, gap, started, turn, end = False, 0, False, 0, 0
            lists = zip(row["model_mask"], row["policy_logp"], row["ref_logp"], strict=True)
            for at, (model, top, low) in enumerate(lists):
                if not model:
                    gap += 1
                    continue
                if started and gap >= 4:
                    after, turn, end = True, turn + 1, at
                started, gap = True, 0
                rows.append((f"tokens/{path.name}", number, row["group_id"], top - low, after, turn, at, at - end))
    columns = ["path", "row", "group", "r", "after", "turn", "at", "distance"]
    return pl.DataFrame(rows, schema=columns, orient="row")


@pytest.mark.slow
@pytest.mark.parametrize("story", STORIES)
def test_shares_sum_to_one(story: str) -> None:
    table = judged_run(story).tables["attribution"].filter(pl.col("by") != "top sequences")
    sums = table.group_by("by").agg(pl.col("tail_share", "token_share").sum())
    assert {"slice", "observations", "tools", "group"} <= set(sums["by"])
    for column in ("tail_share", "token_share"):
        assert sums[column].to_numpy() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("story", STORIES)
def test_tail_tokens_are_those_of_the_files(story: str) -> None:
    tables, tokens = judged_run(story).tables, late(story)
    limit = tables["attribution"]["limit"][0]
    tail = tokens.filter(pl.col("r").abs() >= limit)
    slices = tables["attribution"].filter(pl.col("by") == "slice")
    assert slices["tail"].sum() == tail.height
    assert slices["tokens"].sum() == tokens.height
    counted = tail.group_by("path", "row").len()
    for row in tables["top_sequences"].iter_rows(named=True):
        mine = counted.filter((pl.col("path") == row["path"]) & (pl.col("row") == row["row"]))
        assert mine["len"].to_list() == [row["tail"]]
    assert tables["top_sequences"]["tail"][0] == counted["len"].max()


@pytest.mark.parametrize("story", STORIES)
def test_the_split_adds_up_and_equals_plain_moments(story: str) -> None:
    tokens = late(story)
    for row in judged_run(story).tables["exposure"].iter_rows(named=True):
        parts = row["exposure"] + row["text"] + row["tool"]
        scale = max(row["total_early"], row["total_late"])
        assert parts == pytest.approx(row["total_late"] - row["total_early"], rel=1e-12, abs=1e-12 * scale)
        sign = 1 if row["weights"] == "policy/ref" else -1
        w = np.minimum(np.exp(sign * tokens["r"].to_numpy()), row["cap"] or np.inf)
        assert row["total_late"] == pytest.approx(np.mean(w**2), rel=1e-6 if row["cap"] is None else 1e-3)
        assert row["alpha_late"] == pytest.approx(tokens["after"].mean())


@pytest.mark.parametrize("story", STORIES)
def test_k_hat_of_late_tokens_is_that_of_the_files(story: str) -> None:
    heavy = judged_run(story).tables["heaviness"].filter((pl.col("window") == "late") & (pl.col("level") == "token"))
    r = late(story)["r"].to_numpy()
    assert heavy.height >= 4
    for row in heavy.filter(pl.col("slice") == "all").iter_rows(named=True):
        sign = 1 if row["weights"] == "policy/ref" else -1
        assert row["k_hat"] == pytest.approx(float(array_stats.psislw(-sign * r)[1]), abs=0.05)  # hundreds are equal
        assert row["second_moment"] == pytest.approx(np.mean(np.exp(2 * sign * r)), rel=1e-6)


def test_weights_grown_heavy_after_tools_are_not_called_trustworthy() -> None:
    heavy = judged_run("tool_tail_growth").tables["heaviness"]
    wanted = (pl.col("slice") == "post_tool") & (pl.col("level") == "token") & (pl.col("weights") == "policy/ref")
    (row,) = heavy.filter((pl.col("window") == "late") & wanted).to_dicts()
    assert row["k_hat"] > row["threshold"]


@pytest.mark.parametrize("story", STORIES)
def test_guards_agree_with_the_files(story: str) -> None:
    table = judged_run(story).tables["counterfactual"].filter(pl.col("window") == "late")
    for name, after in (("text_only", False), ("post_tool", True)):
        rho = np.exp(late(story).filter(pl.col("after") == after)["r"].to_numpy())
        row = table.filter((pl.col("slice") == name) & (pl.col("guard") == "tis-2")).to_dicts()
        assert len(row) == bool(len(rho))
        if row:
            w = np.minimum(rho, 2)
            assert row[0]["hit"] == pytest.approx((rho > 2).mean(), abs=3 / len(rho))
            assert row[0]["second_moment"] == pytest.approx((w**2).mean(), rel=1e-3)


def test_after_tools_lies_nearly_all_of_the_growing_tail() -> None:
    tables = judged_run("tool_tail_growth").tables
    post = tables["attribution"].filter((pl.col("by") == "slice") & (pl.col("value") == "post_tool"))
    assert post["tail_share"][0] > 0.95
    assert post["lift"][0] > 2.5
    cut = tables["exposure"].filter((pl.col("weights") == "policy/ref") & pl.col("cap").is_not_null())
    assert cut["tool"][0] > 0.8 * cut["change"][0]
    assert cut["tool_lo"][0] > 0


def test_staleness_is_empty_and_the_notes_say_why() -> None:
    tables = judged_run("healthy").tables
    assert tables["staleness"].is_empty()
    assert ("staleness", "no policy version is recorded") in tables["details_notes"].rows()


LONG = ("tool_tail_growth", "kl_penalised")  # those whose late tail begins at half a nat or more


@pytest.mark.parametrize("story", LONG)
def test_places_are_those_of_the_files(story: str) -> None:
    tables, tokens = judged_run(story).tables, late(story)
    table = tables["attribution"]
    tail = tokens.filter(pl.col("r").abs() >= table["limit"][0])
    for by, column in (("turn", "turn"), ("distance", "distance")):
        found = table.filter(pl.col("by") == by)
        assert found["tail"].sum() == tail.height
        assert found["tokens"].sum() == tokens.height
        for row in found.iter_rows(named=True):
            if row["value"] == "none" or row["value"].endswith("+"):
                continue
            low, _, high = row["value"].partition("-")
            inside = pl.col(column).is_between(int(low), int(high or low))
            inside = inside & pl.col("after") if by == "distance" else inside
            mine = tail.filter(inside)
            assert (row["tail"], row["tokens"]) == (mine.height, tokens.filter(inside).height)
            assert row["tail_sequences"] == mine.select("path", "row").n_unique()
    for row in tables["top_sequences"].iter_rows(named=True):
        mine = tokens.filter((pl.col("path") == row["path"]) & (pl.col("row") == row["row"]))
        largest = mine.filter(pl.col("r").abs() == mine["r"].abs().max()).row(0, named=True)
        assert (row["max_at"], row["max_turn"]) == (largest["at"], largest["turn"])
        assert row["text"] is None


def test_a_tail_of_small_differences_is_not_placed_and_the_notes_say_so() -> None:
    tables = judged_run("healthy").tables
    assert tables["attribution"]["limit"][0] < 0.5
    assert tables["attribution"].filter(pl.col("by").is_in(["distance", "turn"])).is_empty()
    assert "below 0.5 nats" in dict(tables["details_notes"].rows())["attribution"]


def test_samples_that_nothing_ties_to_sequences_say_what_to_record() -> None:
    tables = judged_run("tool_tail_growth").tables
    assert tables["attribution"].filter(pl.col("by") == "tool result").is_empty()
    assert "sample_id" in dict(tables["details_notes"].rows())["attribution"]
