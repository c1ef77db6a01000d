"""What is coarser in runs of many steps and sequences: by how much, and that it is said."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from builders import POLICY_REF, Story, frame_of_r, sequences_of, steady, tables_of
from polars.testing import assert_frame_equal

from ptt.diagnostics.statistics import partial_tables
from ptt.diagnostics.statistics.bins import WIDTH
from ptt.diagnostics.statistics.cells import POWERS, cell_width
from ptt.diagnostics.statistics.ess import sliding_ess
from ptt.diagnostics.statistics.merge_tree import Merger
from ptt.diagnostics.statistics.partial_tables import kept_sequences
from ptt.diagnostics.statistics.percentiles import ecdf, percentiles
from ptt.diagnostics.statistics.token_pass import PassPlan, Single, fold, token_pass
from ptt.diagnostics.statistics.windows import Span

QUANTILES = {"p50": 50, "p95": 95, "p99": 99, "p999": 99.9}


def made_r(n: int = 20_000) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.random.default_rng(5).laplace(scale=0.3, size=n)


@pytest.mark.parametrize("steps", [300, 1100, 5000])
def test_percentiles_of_a_long_run_are_off_by_less_than_a_cell(steps: int) -> None:
    """And, tokens being spread over their cell, hardly by more than in a short run."""
    r = made_r()
    cells = tables_of(frame_of_r(r), steps=steps).cells
    found = percentiles(cells, by=["step"]).row(0, named=True)
    for name, q in QUANTILES.items():
        exact = np.percentile(np.abs(r), q)
        assert abs(found[name] / exact - 1) <= cell_width(cells) * WIDTH
        if name != "p999":  # of 20 tokens
            assert abs(found[name] / exact - 1) <= 0.015


@pytest.mark.parametrize("steps", [300, 1100, 5000, 20_000])
def test_sums_and_the_ecdf_at_its_edges_stay_exact(steps: int) -> None:
    r = made_r(3000)
    fine = tables_of(frame_of_r(r)).cells
    wide = tables_of(frame_of_r(r), steps=steps).cells
    assert wide.height < fine.height
    for name in ("n", "s_r", "s_abs", *POWERS):
        assert wide[name].sum() == pytest.approx(fine[name].sum(), rel=1e-12)
    for row in ecdf(wide, by=["slice"]).to_dicts():
        assert row["cdf"] == pytest.approx(np.mean(np.abs(r) < row["x"]))


def test_wild_tokens_leave_the_weights_of_the_others_alone() -> None:
    """Powers are exact by step; what a bin's mean misses stays in the bins far out, where it comes from."""
    usual, wild = made_r(1000), np.array([256.5, 290.0, 900.0])
    alone, both = (tables_of(frame_of_r(r)).cells for r in (usual, np.concatenate([usual, wild])))
    near = both.filter(pl.col("bin") <= alone["bin"].max())
    for name in POWERS:
        assert near[name].to_numpy() == pytest.approx(alone[name].to_numpy(), rel=1e-3)
    weights = np.exp(np.minimum(np.concatenate([usual, wild]), 300.0))
    assert both["s_rho"].sum() == pytest.approx(weights.sum(), rel=1e-12)
    assert both["s_rho2"].sum() == pytest.approx(np.square(weights).sum(), rel=1e-12)


def test_the_run_itself_decides_how_wide_its_cells_are(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = sequences_of(Story(steps=12, sequences=4))
    monkeypatch.setattr(partial_tables, "WIDER", ((10, 0), (11, 2)))
    monkeypatch.setattr(partial_tables, "WIDEST", 4)
    tables = tables_of(frame)
    assert set(tables.cells["wide"]) == {4}
    fine = tables_of(frame.filter(pl.col("step") <= 10)).cells
    assert set(fine["wide"]) == {0}
    counted = tables.cells.filter(pl.col("step") <= 10)
    for name in ("n", "s_r", "s_abs", *POWERS):
        assert counted[name].sum() == pytest.approx(fine[name].sum(), rel=1e-12)


@pytest.fixture
def few_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial_tables, "SINGLE_SEQUENCES", 1000)


@pytest.mark.usefixtures("few_kept")
@pytest.mark.parametrize("size", [1, 8, 16])
def test_a_share_of_every_step_is_kept_group_by_group(size: int) -> None:
    step = np.repeat(np.arange(50), 128)
    unit = np.arange(len(step)) // size % 16  # the same ids at every step
    kept = kept_sequences(step, unit.astype(np.uint64))
    assert kept is not None
    groups = kept.reshape(-1, size) if size > 1 else kept.reshape(-1, 128)[:, :16]
    if size > 1:
        assert (groups.all(axis=1) | ~groups.any(axis=1)).all()
        assert kept.sum() == len(step) / 8
    by_step = kept.reshape(50, 128)
    assert by_step.any(axis=1).all()
    assert len({tuple(row) for row in by_step.tolist()}) > 4  # not the same groups at every step


@pytest.mark.usefixtures("few_kept")
def test_one_group_of_everything_does_not_keep_everything() -> None:
    step, unit = np.repeat(np.arange(4), 2000), np.zeros(8000, np.uint64)
    kept = kept_sequences(step, unit)
    assert kept is not None
    assert kept.sum() == 1000
    assert kept_sequences(step[:1000], unit[:1000]) is None


@pytest.mark.usefixtures("few_kept")
def test_a_step_of_one_sequence_is_not_lost_beside_large_ones() -> None:
    step = np.array([1, *[2] * 5000])
    kept = kept_sequences(step, np.arange(5001, dtype=np.uint64))
    assert kept is not None
    assert kept[0]


@pytest.mark.usefixtures("few_kept")
def test_a_share_of_the_sequences_knows_what_all_do_within_its_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial_tables, "SINGLE_SEQUENCES", 400)
    frame = sequences_of(Story(steps=12, sequences=128, post=steady(0.8)))
    kept = kept_sequences(frame["step"].to_numpy(), np.arange(frame.height, dtype=np.uint64))
    every = tables_of(frame)
    few = token_pass(frame.lazy(), pairs=(POLICY_REF,), min_observation=4, kept=kept)
    assert few.sequences["seq"].n_unique() == 12 * 128 / 4
    assert_frame_equal(few.steps, every.steps)
    assert_frame_equal(few.cells, every.cells)
    spans = [Span(first, first + 3) for first in range(1, 10)]
    of_few, of_every = (
        sliding_ess(tables.sequences.filter(pl.col("slice") == 1), spans, pair="a/b", inverse="b/a").filter(
            pl.col("level") == "token"
        )
        for tables in (few, every)
    )
    inside = (of_every["ess_fraction"] >= of_few["lo"]) & (of_every["ess_fraction"] <= of_few["hi"])
    assert inside.sum() >= 0.8 * len(inside)


LONG = """
import resource, sys
sys.path[:0] = sys.argv[1:3]
from builders import Story, sequences_of, tables_of
import numpy as np, polars as pl
from ptt.diagnostics.statistics.token_pass import PassPlan, fold, token_pass
from builders import POLICY_REF
one = sequences_of(Story(steps=1, sequences=8, head=200, tail=200))
def run(steps):
    frames = [one.lazy().with_columns(seq=(pl.col("seq") + 8 * at).cast(pl.UInt32), step=pl.lit(at, pl.Int64))
              for at in range(steps)]
    token_pass(pl.concat(frames), pairs=(POLICY_REF,), min_observation=4)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(run(250), run(4000))
"""


@pytest.mark.slow
def test_a_run_of_4000_short_steps_takes_little_more_memory_than_one_of_250() -> None:
    root = Path(__file__).parents[2]
    told = subprocess.run(
        [sys.executable, "-c", LONG, str(root), str(root / "tests")], check=True, capture_output=True, text=True
    ).stdout.split()  # fmt: skip
    short, long = (int(kilobytes) / 1024 for kilobytes in told)
    assert long - short < 250, "16 times the cells would be 700 MB"


@pytest.mark.parametrize("pieces", [1, 2, 40])  # of one group, and of three
def test_more_tokens_than_32_bits_can_count_are_counted(pieces: int) -> None:
    plan = PassPlan(pairs=(POLICY_REF,), min_observation=4, batch_rows=16)
    story = Story(steps=1, sequences=16, post=steady(0.8), nan_share=0.1)
    ((_, part),) = fold(sequences_of(story).lazy(), plan, Single())
    most = (1 << 32) - 1
    merger = Merger()
    for number in range(pieces):
        cells, bad = part.cells.with_columns(n=pl.lit(most, pl.UInt32)), part.bad[:1].with_columns(n_bad=most)
        merger.add(number, replace(part, cells=cells, bad=bad))
    tables = merger.tables()
    assert tables.bad["n_bad"].to_list() == [most * pieces]
    assert tables.cells["n"].to_list() == [most * pieces] * part.cells.height
    found = percentiles(tables.cells, by=["slice"])
    assert found["n"].sum() == most * pieces * part.cells.height
