"""How new an output is, held against counting n-grams in plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ptt.diagnostics.statistics.output_novelty import EXACT, KINDS, NEAR, UNSEEN, N, Novelty, output_novelty, row_hashes

Outputs = list[tuple[int, list[int]]]
"""The step of each output, and its token ids."""


def novelty_of(outputs: Outputs, counted: list[bool] | None = None) -> Novelty:
    """Ask of outputs in any order."""
    starts = np.append(0, np.cumsum([len(ids) for _, ids in outputs]))
    ids = np.array([one for _, each in outputs for one in each], dtype=np.int64)
    steps = np.array([step for step, _ in outputs])
    return output_novelty(ids, starts, steps, np.array(counted or [True] * len(outputs)))


def grams(ids: list[int]) -> set[tuple[int, ...]]:
    """Return the distinct n-grams of an output; a short one is a single n-gram."""
    return {tuple(ids[at : at + N]) for at in range(len(ids) - N + 1)} or {tuple(ids)}


def test_familiarity_and_kind_are_those_of_counting_by_hand() -> None:
    generator = np.random.default_rng(3)
    outputs: Outputs = [
        (int(generator.integers(0, 6)), generator.integers(0, 3, generator.integers(1, 12)).tolist()) for _ in range(60)
    ]
    counted = (generator.random(60) < 0.8).tolist()
    found = novelty_of(outputs, counted)
    seen_kinds = set()
    for at, (step, ids) in enumerate(outputs):
        earlier = [other for (when, other), own in zip(outputs, counted, strict=True) if own and when < step]
        if not earlier:
            assert math.isnan(found.familiarity[at])
            assert found.kind[at] == UNSEEN
            continue
        shares = [sum(gram in grams(other) for other in earlier) / len(earlier) for gram in grams(ids)]
        seen = sum(share > 0 for share in shares) / len(shares)
        assert found.familiarity[at] == pytest.approx(sum(shares) / len(shares))
        assert found.seen[at] == pytest.approx(seen)
        assert found.kind[at] == (EXACT if ids in earlier else NEAR if seen >= 0.5 else UNSEEN)
        seen_kinds.add(KINDS[found.kind[at]])
    assert seen_kinds == set(KINDS)


def test_the_order_of_outputs_does_not_matter() -> None:
    outputs: Outputs = [(2, [1, 2, 3, 4, 5]), (1, [1, 2, 3, 4]), (3, [9, 9]), (1, [7]), (2, [9, 9])]
    order = [3, 0, 4, 2, 1]
    whole, mixed = novelty_of(outputs), novelty_of([outputs[at] for at in order])
    np.testing.assert_array_equal(whole.familiarity[order], mixed.familiarity)
    np.testing.assert_array_equal(whole.kind[order], mixed.kind)


def test_a_short_output_is_not_taken_for_the_head_of_a_long_one() -> None:
    found = novelty_of([(1, [0, 0, 0, 0, 0, 0]), (2, [0, 0]), (2, [0, 0, 0])])
    assert found.kind[1:].tolist() == [UNSEEN, UNSEEN]


def test_equal_rows_and_no_others_have_equal_hashes() -> None:
    rows = [[1, 2, 3], [3, 2, 1], [1, 2, 3], [1, 2], [], [0], [0, 0]]
    starts = np.append(0, np.cumsum([len(row) for row in rows]))
    hashes = row_hashes(np.array([one for row in rows for one in row], dtype=np.int64), starts).tolist()
    assert hashes[0] == hashes[2]
    assert len(set(hashes)) == len(rows) - 1
