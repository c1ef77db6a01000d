"""Shares of a tail by cause: closed forms, other ways to fit them, and tails made with a known cause."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from ptt.diagnostics.statistics.bootstrap import DRAWS
from ptt.diagnostics.statistics.tail_origin import (
    CANNOT_TELL,
    NONE,
    Share,
    attributable_shares,
    leading,
    level_scores,
    rate_coefficients,
    redrawn_sums,
)


def share(value: float, spread: float = 0.02) -> Share:
    """Make a share whose draws scatter about it, apart from those of other shares."""
    noise = np.random.default_rng(round(1000 * value)).uniform(-spread, spread, DRAWS)
    return Share.of(np.append(value, value + noise))


def test_with_one_cause_the_share_is_that_of_the_rate_ratio() -> None:
    # 90 tokens at 0.1 nats and 10 at 2: of 29 nats, 10 (2 - 0.1) go with the cause
    tail, tokens, failed = np.array([9.0, 20.0]), np.array([90.0, 10.0]), np.array([0.0, 1.0])
    found = attributable_shares(tail, tokens, np.array([0, 1]), {"errors": failed})
    assert found["errors"].value == pytest.approx(19 / 29, rel=1e-6)


def test_coefficients_maximise_the_likelihood() -> None:
    generator = np.random.default_rng(5)
    design = np.array([(a, b) for a in (0.0, 1.0) for b in (0.0, 0.25, 0.5, 1.0)])
    tokens = generator.integers(20, 400, len(design)).astype(float)
    tail = tokens * np.exp(-2 + 1.5 * design[:, 0] + 0.7 * design[:, 1]) * generator.gamma(4, 0.25, len(design))

    def loss(beta: np.ndarray) -> float:
        log_mean = np.log(tokens) + beta[0] + design @ beta[1:]
        return float((np.exp(log_mean) - tail * log_mean).sum())

    best = minimize(loss, np.array([-2.0, 0.0, 0.0]), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12})
    np.testing.assert_allclose(rate_coefficients(tail[None], tokens[None], design)[0], best.x[1:], atol=1e-5)


def test_of_two_things_that_go_together_the_cause_gets_the_tail() -> None:
    generator = np.random.default_rng(7)
    novelty = generator.random(4000)
    length = 0.5 * novelty + 0.5 * generator.random(4000)
    tokens = generator.integers(5, 20, 4000).astype(float)
    tail = tokens * 0.1 * np.exp(2 * novelty) * generator.gamma(2, 0.5, 4000)
    scores = {"novelty": level_scores(novelty, tokens), "length": level_scores(length, tokens)}
    found = attributable_shares(tail, tokens, np.arange(4000) // 8, scores)
    least, mean = (math.exp(0.2) - 1) / 0.2, (math.exp(2) - 1) / 2  # of exp(2 x) over the lowest tenth and over all
    assert found["novelty"].value == pytest.approx(1 - least / mean, abs=0.06)
    assert abs(found["length"].value) < 0.1
    assert leading(found, unmeasured=False) == "novelty"


def test_nothing_is_found_where_nothing_is_the_cause() -> None:
    covered = 0
    for seed in range(40):
        generator = np.random.default_rng(seed)
        unit = np.repeat(np.arange(60), 8)
        of_unit = generator.gamma(2, 0.5, 60)[unit]
        tokens = np.full(480, 10.0)
        tail = of_unit * generator.gamma(1, 1, 480)
        scores = {
            "errors": (generator.random(480) < 0.2).astype(np.float64),
            "novelty": level_scores(generator.random(480), tokens),
        }
        found = attributable_shares(tail, tokens, unit, scores)
        covered += sum(one.interval[0] <= 0 <= one.interval[1] for one in found.values())
        assert leading(found, unmeasured=False) in (NONE, CANNOT_TELL)
    assert covered >= 72  # of 80 intervals of 95%


def test_a_score_that_does_not_vary_has_no_share() -> None:
    found = attributable_shares(np.ones(4), np.ones(4), np.arange(4), {"errors": np.zeros(4)})
    assert math.isnan(found["errors"].value)


def test_levels_hold_about_equal_weight_and_equal_values_share_one() -> None:
    values = np.array([3.0, 1.0, 1.0, 2.0, 5.0, 4.0])
    np.testing.assert_allclose(level_scores(values, np.ones(6), levels=5), [0.5, 0.0, 0.0, 0.5, 1.0, 0.75])
    assert not level_scores(np.full(5, 2.0), np.ones(5)).any()


def test_redrawn_sums_redraw_whole_units() -> None:
    values, cell, unit = np.array([[1.0], [2.0], [4.0]]), np.array([0, 1, 0]), np.array([0, 0, 1])
    sums = redrawn_sums(values, cell, unit, cells=3)[..., 0]
    np.testing.assert_array_equal(sums[0], [5.0, 2.0, 0.0])
    # two units drawn with replacement: both, or one of them twice
    assert {tuple(row) for row in sums[1:].tolist()} == {(5.0, 2.0, 0.0), (2.0, 4.0, 0.0), (8.0, 0.0, 0.0)}


@pytest.mark.parametrize(
    ("shares", "unmeasured", "answer"),
    [
        ({"errors": share(0.6), "novelty": share(0.2)}, False, "errors"),
        ({"errors": share(0.6), "novelty": share(0.59)}, False, CANNOT_TELL),  # both, and which is larger is chance
        ({"errors": share(0.6), "length": share(0.3, spread=0.5)}, True, "errors"),  # the rival is not surely there
        ({"errors": share(0.3, spread=0.4)}, False, CANNOT_TELL),
        ({"errors": share(0.04), "novelty": share(0.05)}, False, NONE),
        ({"novelty": share(0.05)}, True, CANNOT_TELL),  # what was not measured may be it
        ({}, False, CANNOT_TELL),
    ],
)
def test_the_tail_follows_what_is_surely_there_and_surely_most(
    shares: dict[str, Share], unmeasured: bool, answer: str
) -> None:
    assert leading(shares, unmeasured=unmeasured) == answer
