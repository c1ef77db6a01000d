"""Sequences recorded twice: found by step and id whatever is null, unsound or spread over files."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import pytest
from builders import repeatable
from hypothesis import given
from hypothesis import strategies as st

from ptt.diagnostics.config import Settings
from ptt.diagnostics.engines.local import Tokens, read_token_tables
from ptt.diagnostics.evidence.sources import files_by_step
from ptt.diagnostics.evidence.validity import gather_validity
from ptt.diagnostics.pipeline import RunLocation, ingest
from ptt.diagnostics.schema import TRAJECTORIES

Row = tuple[int, str | None, int]  # step, id, tokens of the policy

rows = st.tuples(st.integers(1, 3), st.sampled_from(["a", "b", "c", None]), st.integers(1, 4))
files = st.lists(st.lists(rows, min_size=1, max_size=6), min_size=1, max_size=5)


def tokens_of(run: Path, written: list[list[Row]]) -> Tokens:
    for number, part in enumerate(written):
        frame = pl.DataFrame(
            {
                "step": [step for step, _, _ in part],
                "sample_id": pl.Series([name for _, name, _ in part], dtype=pl.String),
                "model_mask": [[True] * n for _, _, n in part],
                "policy_logp": [[-0.5] * (n if name != "c" else n + 1) for _, name, n in part],  # c: lists disagree
                "ref_logp": [[-0.7] * n for _, _, n in part],
            }
        )
        frame.write_parquet(run / f"file_{number}.parquet")
    store = run / "store"
    manifest = ingest(RunLocation(run=run, store=store, name="run"), copy=False)
    with ThreadPoolExecutor(1) as background:
        found = read_token_tables(
            store, manifest, run, settings=Settings(), background=background, damaged={}, keep=False
        )
    assert found is not None
    return found


@pytest.mark.slow
@repeatable
@given(files)
def test_repeats_and_files_are_those_that_counting_finds(written: list[list[Row]]) -> None:
    with TemporaryDirectory() as folder:
        tokens = tokens_of(Path(folder), written)
        coverage = gather_validity(tokens).coverage
        first_files = files_by_step(tokens, pl.DataFrame(schema=TRAJECTORIES))
    seen: set[tuple[int, str]] = set()
    again: list[tuple[str, Row]] = []
    by_step: dict[int, str] = {}
    for number, part in enumerate(written):
        for row in part:
            step, name, _ = row
            if name == "c":
                continue
            by_step.setdefault(step, f"file_{number}.parquet")
            if name is not None and (step, name) in seen:
                again.append((f"file_{number}.parquet", row))
            elif name is not None:
                seen.add((step, name))
    found = coverage.repeated
    assert (found.sequences, found.tokens) == (len(again), sum(row[2] for _, row in again))
    assert found.files == len({file for file, _ in again})
    assert found.example == min((file for file, _ in again), default=None)
    assert found.first_step == min((row[0] for _, row in again), default=None)
    assert dict(first_files.select("step", "path").iter_rows()) == by_step


def test_ids_of_many_files_come_in_one_piece(tmp_path: Path) -> None:
    part: list[Row] = [(1, "a", 3), (1, "b", 2)]
    assert tokens_of(tmp_path, [part] * 30).scalars.n_chunks() == 1
