"""A finding names the files in which its beginning can be looked at."""

from __future__ import annotations

import polars as pl
from builders import finding_of

from ptt.diagnostics.model import JsonScalar
from ptt.diagnostics.verdict.headline import with_files

FILES = pl.DataFrame(
    {
        "kind": ["samples", "tokens", "tokens", "tokens"],
        "step": [30, 10, 20, 30],
        "path": ["completions_30.parquet", "step_10.parquet", "step_20.parquet", "step_30.parquet"],
    }
)


def evidence(onset: int | None, files: pl.DataFrame | None = FILES, **known: JsonScalar) -> dict[str, JsonScalar]:
    finding = finding_of("any", onset_step=onset, evidence=known)
    return dict(with_files([finding], files)[0].evidence)


def test_the_first_recorded_step_at_or_after_the_onset_is_named_else_the_last() -> None:
    assert evidence(11) == {"samples_file": "completions_30.parquet", "tokens_file": "step_20.parquet"}
    assert evidence(20)["tokens_file"] == "step_20.parquet"
    assert evidence(99)["tokens_file"] == "step_30.parquet"


def test_without_a_date_or_files_nothing_is_named_and_a_rule_s_own_file_stays() -> None:
    assert evidence(None) == {}
    assert evidence(5, None) == {}
    assert evidence(5, tokens_file="mine")["tokens_file"] == "mine"
