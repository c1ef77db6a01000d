"""Relations between logged numbers: how they are read, and what rounding may do to them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ptt.diagnostics.statistics.relations import (
    compare,
    evaluate,
    parse_relation,
    rounding_of,
    symbols_of,
    uncertainty,
    worst_stretch,
)


def test_a_relation_is_read_with_its_premises() -> None:
    relation = parse_relation("ratio >= exp(-gap) where gap <= 1 and low >= 0.5")
    assert (relation.left, relation.sign, relation.right) == ("ratio", ">=", "exp(-gap)")
    assert [premise.sign for premise in relation.where] == ["<=", ">="]
    assert relation.symbols == {"ratio", "gap", "low"}


@pytest.mark.parametrize("text", ["a + b", "a >= b >= c", "a > b"])
def test_what_is_no_relation_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=">="):
        parse_relation(text)


@pytest.mark.parametrize("text", ["a ** 2", "a.b", "open(a)", "a[0]", "'text'"])
def test_only_arithmetic_is_evaluated(text: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        evaluate(text, {"a": np.ones(2)})


def test_expressions_are_evaluated_at_each_step() -> None:
    values = {"a": np.array([1.0, 4.0, 9.0]), "b": np.array([2.0, 2.0, 0.0])}
    assert evaluate("sqrt(a) * 2 - -1", values).tolist() == [3.0, 5.0, 7.0]
    assert evaluate("max(a, b) + min(a, 3)", values).tolist() == [3.0, 7.0, 12.0]
    assert evaluate("first(a) + round(b / 4)", values).tolist() == [1.0, 1.0, 1.0]
    assert np.isnan(evaluate("rise(a)", values)[0])
    assert evaluate("rise(a)", values)[1:].tolist() == [3.0, 5.0]
    assert math.isinf(evaluate("a / b", values)[2])
    assert symbols_of("exp(-a) + step") == {"a", "step"}


def test_digits_show_how_far_values_are_rounded() -> None:
    drawn = np.random.default_rng(0).uniform(0.1, 1.0, 200)
    for decimals in (1, 2, 3, 4):
        printed = np.round(drawn, decimals)
        off = rounding_of(printed)
        assert (np.abs(printed - drawn) <= off).all()
        assert off.max() <= 5.001 * 10.0**-decimals / 10 + 1e-3
    assert rounding_of(drawn).max() < 1e-5
    assert rounding_of(drawn.astype(np.float32).astype(np.float64)).max() < 1e-5


def test_significant_digits_and_short_mantissas_are_seen() -> None:
    drawn = np.exp(np.random.default_rng(1).uniform(-8, 8, 300))
    printed = np.array([float(f"{value:.4g}") for value in drawn])
    assert (np.abs(printed - drawn) <= rounding_of(printed) * 1.001).all()
    mantissa, exponent = np.frexp(drawn)
    brain = np.ldexp(np.round(mantissa * 256) / 256, exponent)  # bfloat16
    assert (np.abs(brain - drawn) <= rounding_of(brain)).all()


def test_counts_are_exact_and_long_lengths_may_be_rounded() -> None:
    assert rounding_of(np.array([0.0, 1.0, 3.0, 1.0])).max() < 1e-5
    assert rounding_of(np.array([120.0, 131.0, 97.0])).min() == 0.5
    assert rounding_of(np.zeros(4)).tolist() == [0.0] * 4
    assert rounding_of(np.array([3e-7, 1.25e-8, 0.0])).max() < 1e-9


def test_rounding_of_a_difference_of_steps_counts_twice() -> None:
    values, roundings = {"a": np.array([1.0, 2.0, 3.0])}, {"a": np.full(3, 0.5)}
    assert uncertainty("rise(a)", values, roundings)[1:].tolist() == [1.0, 1.0]
    assert uncertainty("2 * a", values, roundings).tolist() == [1.0, 1.0, 1.0]


def test_steps_that_do_not_surely_fulfil_a_premise_are_left_out() -> None:
    values = {"a": np.array([1.0, 1.0, 1.0]), "b": np.array([0.2, 0.5, 0.9])}
    compared = compare(parse_relation("a <= 0.5 where b >= 0.5"), values, {"b": np.full(3, 0.1)})
    assert np.isnan(compared.excess[:2]).all()
    assert compared.excess[2] == 0.5


def test_the_worst_stretch_is_the_one_of_the_largest_sum() -> None:
    generator = np.random.default_rng(2)
    for _ in range(200):
        broken = generator.random(12) < generator.random()
        first, last, excess = worst_stretch(broken)
        score = np.where(broken, 1, -1)
        sums = {(i, j): int(score[i : j + 1].sum()) for i in range(12) for j in range(i, 12)}
        assert excess == max(sums.values()) == sums[first, last]
