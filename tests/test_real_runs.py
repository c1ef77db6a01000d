"""Real runs of real trainers: the first broken link and the headline are what is known to be true of them."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import ptt
from ptt.diagnostics.model import Severity

RUNS = Path(__file__).parent / "fixtures" / "runs"
TRUTH: dict[str, dict[str, Any]] = tomllib.loads((RUNS / "truth.toml").read_text(encoding="utf-8"))


@cache
def diagnosed(name: str) -> ptt.Diagnosis:
    return ptt.diagnose(RUNS / f"{name}.tar.zst")


def test_every_run_has_its_truth() -> None:
    assert {path.name.removesuffix(".tar.zst") for path in RUNS.glob("*.tar.zst")} == set(TRUTH)


TOKENS = ("reward_hacking", "schema_constrained", "stale_sampler")  # dumps of tokens: seconds each


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in TOKENS else ()) for name in TRUTH]
)
def test_the_first_broken_link_and_the_headline_are_the_true_ones(name: str) -> None:
    found, truth = diagnosed(name), TRUTH[name]
    serious = [one for one in found.findings if one.severity.at_least(Severity.MEDIUM)]
    roots = {one.id for one in serious if one.consequence_of is None}
    assert found.crashes == ()
    assert roots == set(truth["roots"])
    assert found.verdict.first_broken_link == truth.get("link")
    assert found.verdict.status in truth["status"]
    for name_, (low, high) in truth.get("onsets", {}).items():
        onset = next(one.onset_step for one in serious if one.id == name_)
        assert onset is not None
        assert low <= onset <= high
