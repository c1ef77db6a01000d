"""The fall of few values: found in five to sixty, and hardly ever in noise that remembers."""

from __future__ import annotations

import numpy as np
import pytest
from rule_cases import wander

from ptt.diagnostics.statistics.small_sample import MIN_FEW, fall_from_best

DRAWS = 400


@pytest.mark.parametrize(
    "values",
    [
        [50.0, 60.0, 55.0, 58.0, 52.0, 3.0, 2.0, 2.0, 1.0],
        [5.0, 10, 20, 40, 60, 75, 80, 60, 30, 5, 0, 0],
        [144.0, 112, 116, 84, 35, 22, 4, 1, 0, 0, 1, 0, 1, 0, 0],
    ],
)
def test_a_collapse_of_few_values_is_beyond_noise(values: list[float]) -> None:
    fall = fall_from_best(np.array(values))
    assert fall is not None
    assert fall.p_value <= 0.01
    assert fall.share > 0.9
    assert fall.best_place < fall.onset < len(values)


@pytest.mark.parametrize("likeness", [0.0, 0.5])
@pytest.mark.parametrize("count", [MIN_FEW, 8, 12, 29])
def test_noise_alone_passes_as_seldom_as_its_p_value_says(count: int, likeness: float) -> None:
    p_values = [
        fall.p_value
        for seed in range(DRAWS)
        if (fall := fall_from_best(wander(seed, count=count, likeness=likeness))) is not None
    ]
    assert len(p_values) == DRAWS
    assert float(np.mean(np.array(p_values) <= 0.05)) <= 0.08
    assert float(np.mean(np.array(p_values) <= 0.001)) <= 0.01


def test_values_that_rise_have_not_fallen() -> None:
    fall = fall_from_best(np.arange(12.0))
    assert fall is not None
    assert fall.share == 0.0


def test_four_values_are_too_few() -> None:
    assert fall_from_best(np.ones(MIN_FEW - 1)) is None
