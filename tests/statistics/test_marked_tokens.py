"""Places of marked tokens against a loop, and what sequences add up to."""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from ptt.diagnostics.statistics.marked_tokens import (
    NEAR,
    NOWHERE,
    MarkedTokens,
    by_sequence,
    lay_out_marked,
    places_of,
    surprisal_sums,
)
from ptt.diagnostics.statistics.mask_faults import padding_tokens


def tokens_of(masks: list[list[bool]], ids: list[list[int]] | None = None) -> MarkedTokens:
    counts = [len(mask) for mask in masks]
    total = sum(counts)
    return MarkedTokens(
        row=np.repeat(np.arange(len(masks)), counts),
        marked=np.array([one for mask in masks for one in mask]),
        surprisal=np.linspace(0.1, 3.0, total),
        entropy=np.full(total, 1.0),
        ids=None if ids is None else np.array([one for row in ids for one in row]),
        step=np.arange(len(masks)),
    )


def places_by_loop(mask: list[bool]) -> list[tuple[int, int, int, bool]]:
    """Return after, before, end and post of each token, one by one."""
    marked = [at for at, one in enumerate(mask) if one]
    told = []
    for at, one in enumerate(mask):
        before = [other for other in range(at) if not mask[other] and any(first < other for first in marked)]
        after, ahead, end = NOWHERE, NOWHERE, NOWHERE
        if one:
            back = next((other for other in range(at, -1, -1) if not mask[other]), None)
            if back is not None and any(first < back for first in marked) and at - back - 1 < NEAR:
                after = at - back - 1
            on = next((other for other in range(at, len(mask)) if not mask[other]), None)
            if on is None and len(mask) - at <= NEAR:
                end = len(mask) - at
            if on is not None and any(last > on for last in marked) and on - at <= NEAR:
                ahead = on - at
        told.append((after, ahead, end, one and bool(before)))
    return told


def test_places_are_those_that_a_loop_finds() -> None:
    generator = np.random.default_rng(5)
    masks = [(generator.random(generator.integers(1, 40)) < 0.8).tolist() for _ in range(300)]
    tokens = tokens_of(masks)
    places = places_of(tokens)
    told = zip(places.after, places.before, places.end, places.post & tokens.marked, strict=True)
    assert [tuple(map(int, one)) for one in told] == [
        tuple(map(int, one)) for mask in masks for one in places_by_loop(mask)
    ]


def test_sums_of_sequences_give_means_and_a_standard_error_over_sequences() -> None:
    tokens = tokens_of([[True, True], [True, False, True], [False, False]])
    sums = surprisal_sums(tokens, tokens.marked)
    both = sums.over(np.array([True, True, True]))
    excess = np.array([tokens.surprisal[:2].sum() - 2, tokens.surprisal[[2, 4]].sum() - 2])
    assert both.tokens == 4
    assert both.entropy == 1.0
    assert math.isclose(both.z, excess.sum() / math.sqrt(float((excess**2).sum())))
    assert math.isnan(sums.over(np.array([False, False, True])).surprisal)
    means = by_sequence(tokens, tokens.marked, tokens.surprisal)
    assert math.isclose(means[1], (tokens.surprisal[2] + tokens.surprisal[4]) / 2)
    assert math.isnan(means[2])


def test_padding_is_what_follows_the_token_that_ends_sequences_and_no_loop_is() -> None:
    whole = [[5, 6, 7, 2]] * 12
    ids = [*whole, [5, 6, 2, 9, 9], [5, 2, 2, 2], [8, 8, 8, 8]]
    tokens = tokens_of([[True] * len(one) for one in ids], ids)
    padding = padding_tokens(tokens, places_of(tokens))
    assert padding is not None
    per_row = np.bincount(tokens.row, padding, tokens.sequences)
    assert per_row.tolist() == [0] * 12 + [2, 2, 0]
    assert padding_tokens(tokens_of([[True] * 4] * 20), places_of(tokens_of([[True] * 4] * 20))) is None


def test_the_least_surprisal_of_the_columns_counts_and_what_is_no_logprob_does_not() -> None:
    frame = pl.DataFrame(
        {
            "seq": [0, 1],
            "step": [1, 1],
            "model_mask": [[True, True, True], [True, True, True]],
            "old_logp": [[-1.0, -2.0, 0.5], [-3.0, None, -9999.0]],
            "rollout_logp": [[-0.5, 0.0, -4.0], [-100.0, 0.0, -7.0]],
        },
        schema_overrides={"old_logp": pl.List(pl.Float32), "rollout_logp": pl.List(pl.Float32)},
    )
    tokens = lay_out_marked(frame, ("old_logp", "rollout_logp"))
    assert tokens is not None
    assert tokens.surprisal.tolist() == [0.5, 2.0, 4.0, 3.0, 0.0, 7.0]
