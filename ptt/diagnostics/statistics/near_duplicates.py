"""Which texts are nearly equal, from MinHash sketches of fixed size: overlaps of pairs, and families by hashing."""

from __future__ import annotations

from typing import Final

import numpy as np

from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray

BAND: Final = 4
"""Entries of a sketch that must agree for two texts to be compared. With 32 entries two texts that share 0.7 of their
shingles are compared with probability 0.88, two that share 0.8 with 0.98 (1 - (1 - 0.7^4)^8)."""


def near_duplicates(sketches: IntArray, least: float) -> IntArray:
    """Return the family of each of n sketches, (n, permutations), as the index of the family's first sketch.

    Each text of a bucket is compared with the bucket's first; a family is every text connected by such matches in any
    band.
    """
    count = len(sketches)
    ties: list[IntArray] = []
    for begin in range(0, sketches.shape[1] - BAND + 1 if count else 0, BAND):
        part = sketches[:, begin : begin + BAND]
        _, first, bucket = np.unique(part, axis=0, return_index=True, return_inverse=True)
        leader = first[bucket.ravel()]
        alike = (sketches == sketches[leader]).mean(axis=1) >= least
        alike &= leader != np.arange(count)
        ties.append(np.stack([np.flatnonzero(alike), leader[alike]]))
    return _families(count, np.concatenate(ties, axis=1) if ties else np.empty((2, 0), np.int64))


def _families(count: int, ties: IntArray) -> IntArray:
    """Return the least member of each connected component."""
    family = np.arange(count)
    while True:
        least = np.minimum(family[ties[0]], family[ties[1]])
        before = family.copy()
        np.minimum.at(family, ties[0], least)
        np.minimum.at(family, ties[1], least)
        family = family[family]
        if np.array_equal(family, before):
            return family


def pair_overlaps(sketches: IntArray) -> FloatArray:
    """Estimate the Jaccard overlap of each two of n sketches, (n, permutations) to (n, n); 0 where both are empty.

    A sketch holds the least hash of a text's shingles under each permutation, or 0 where it has none: the share of
    equal entries estimates the overlap without bias (MinHash; Broder 1997).
    """
    filled = sketches != 0
    either = filled[:, None, :] | filled[None, :, :]
    equal = (sketches[:, None, :] == sketches[None, :, :]) & filled[:, None, :]
    overlaps: FloatArray = equal.sum(axis=2) / np.maximum(either.sum(axis=2), 1)
    return overlaps


def alike_pairs(sketches: IntArray, labels: IntArray, least: float) -> tuple[int, int, int, int]:
    """Count pairs alike, and all pairs, of unlike labels and of equal ones: an overlap of `least` makes two alike."""
    above = np.triu_indices(len(sketches), 1)
    alike: BoolArray = (pair_overlaps(sketches) >= least)[above]
    same: BoolArray = (labels[:, None] == labels[None, :])[above]
    return int((alike & ~same).sum()), int((~same).sum()), int((alike & same).sum()), int(same.sum())
