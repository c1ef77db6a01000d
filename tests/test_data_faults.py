"""A part of the sweep of planted data faults: nothing is said of sound runs, each kind of fault is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.data_faults import FAULTS, PRECISIONS, harmed, make, said

pytestmark = pytest.mark.slow

SEEDS = range(1000, 1002)  # none that the sweep itself begins with


@pytest.mark.parametrize("precision", PRECISIONS)
def test_nothing_is_said_of_sound_logprobs(precision: str, tmp_path: Path) -> None:
    for seed in SEEDS:
        assert said(make(seed), precision, tmp_path / str(seed)) == set(), seed


KINDS = {
    (finding, name.endswith(", late")): place for place, (name, (_, finding)) in [*enumerate(FAULTS.items())][::-1]
}
"""The first fault of each finding, from the start and from a step on."""


@pytest.mark.parametrize("place", sorted(KINDS.values()), ids=[*FAULTS].__getitem__)
def test_a_planted_fault_is_named(place: int, tmp_path: Path) -> None:
    """Each at one precision here, the next one for the next fault; the sweep takes all faults and all precisions."""
    fault, precision = [*FAULTS][place], PRECISIONS[place % len(PRECISIONS)]
    assert FAULTS[fault][1] in said(harmed(fault, SEEDS[0]), precision, tmp_path / "run")
