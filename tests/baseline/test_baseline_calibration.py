"""A small part of benchmarks/baseline_calibration.py, on seeds of its own."""

from __future__ import annotations

import pytest

from benchmarks.baseline_calibration import TESTS, designs, pairs

pytestmark = pytest.mark.slow


def test_seeds_of_one_setting_pass_and_what_is_worse_is_found_or_blind() -> None:
    some = [one for one in designs() if one.count in (60, 120) and one.likeness != 0.4 and one.noise < 0.3]
    found = list(pairs(TESTS, 4, some))
    assert sum(pair.false_failure for pair in found) <= 0.02 * len(found)
    missed = sum(pair.moved.outcome == "passed" for pair in found)
    seen = sum(pair.moved.outcome == "failed" for pair in found)
    assert missed <= 0.05 * (missed + seen)
    assert seen > len(found) / 2
