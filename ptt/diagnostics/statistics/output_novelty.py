"""How new an output is beside the outputs of earlier steps: seen as a whole, nearly, or not; and how usual its n-grams.

An output is a run of token ids; only hashes of it and of its n-grams are made. Outputs of one step do not count for
each other, so the order within a step does not matter.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray

N: Final = 4  # tokens of an n-gram: a number and what stands around it
EXACT, NEAR, UNSEEN = 0, 1, 2
KINDS: Final = ("exact", "near", "unseen")
NEAR_SHARE: Final = 0.5  # of the n-grams of an output seen before: from here on it is nearly known
_BASE: Final = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no token is lost modulo 2^64
Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, kw_only=True)
class Novelty:
    """Of each output, (outputs,): its kind, what is known of it, and the hash of it as a whole.

    familiarity: the mean, over its distinct n-grams, of the share of earlier outputs that hold the n-gram; 1 where
    every earlier output held all of it. seen: the share of its n-grams that any earlier output held. Both are NaN, and
    kind is UNSEEN, where there was no earlier output.
    """

    kind: IntArray
    familiarity: FloatArray
    seen: FloatArray
    whole: Hashes


def output_novelty(tokens: IntArray, starts: IntArray, step: IntArray, counted: BoolArray) -> Novelty:
    """Hold each output against those of earlier steps.

    tokens: (tokens,) ids, output i from starts[i] to starts[i + 1], none empty; step: (outputs,) at which it first
    came; counted: (outputs,) False for a copy of a rollout that is trained on again, which is no output of its own.
    """
    length = np.diff(starts)
    grams, of = _grams(tokens, starts)
    whole = np.add.reduceat(_mixed(grams + _mixed(_position(of))), _firsts(of)) if len(of) else grams
    order = np.lexsort((of, grams))
    grams, of = grams[order], of[order]
    distinct = np.append(True, (np.diff(of) != 0) | (grams[1:] != grams[:-1]))[: len(of)]
    grams, of = grams[distinct], of[distinct]
    earlier = _earlier(grams, step[of], counted[of])
    before = _earlier(np.zeros(len(step), np.uint64), step, counted)
    size = np.maximum(np.bincount(of, minlength=len(length)), 1)
    held = np.bincount(of, weights=earlier, minlength=len(length)) / size
    seen = np.where(before > 0, np.bincount(of, weights=earlier > 0, minlength=len(length)) / size, np.nan)
    exact = _earlier(whole, step, counted) > 0
    kind = np.where(exact, EXACT, np.where(seen >= NEAR_SHARE, NEAR, UNSEEN))
    familiarity = np.divide(held, before, out=np.full(len(length), np.nan), where=before > 0)
    return Novelty(kind=kind.astype(np.int64), familiarity=familiarity, seen=seen, whole=whole)


def row_hashes(tokens: IntArray, starts: IntArray) -> Hashes:
    """Return a hash of each row of token ids, (rows,); equal rows have equal hashes."""
    place = np.arange(len(tokens)) - np.repeat(starts[:-1], np.diff(starts))
    mixed = _mixed(_mixed(tokens.astype(np.uint64)) + place.astype(np.uint64) + np.uint64(1))
    sums = np.append(np.uint64(0), np.cumsum(mixed, dtype=np.uint64))
    hashes: Hashes = sums[starts[1:]] - sums[starts[:-1]]
    return hashes


def _grams(tokens: IntArray, starts: IntArray) -> tuple[Hashes, IntArray]:
    """Return the hash of each n-gram and the output it is of; an output shorter than N is one n-gram."""
    of = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    left = np.repeat(starts[1:], np.diff(starts)) - np.arange(len(tokens))
    padded = np.append(tokens, np.zeros(N, tokens.dtype)).astype(np.uint64) + np.uint64(1)
    grams = np.zeros(len(tokens), np.uint64)
    for ahead in range(N):
        grams = grams * _BASE + np.where(left > ahead, padded[ahead : ahead + len(tokens)], np.uint64(0))
    whole = (left >= N) | (_position(of) == 0)
    return _mixed(grams[whole]), of[whole]


def _position(of: IntArray) -> Hashes:
    """Return the number of each row within its output, for rows in the order of outputs."""
    first = _firsts(of)
    return (np.arange(len(of)) - np.repeat(first, np.diff(np.append(first, len(of))))).astype(np.uint64)


def _firsts(of: IntArray) -> IntArray:
    return np.flatnonzero(np.diff(of, prepend=-1))


def _mixed(values: Hashes) -> Hashes:
    """Spread 64-bit values (the finaliser of SplitMix64; Steele, Lea and Flood 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _earlier(key: Hashes, step: IntArray, counted: BoolArray) -> FloatArray:
    """Count, for each row, the counted rows of the same key at earlier steps."""
    order = np.lexsort((step, key))
    key, step = key[order], step[order]
    before = np.append(0, np.cumsum(counted[order]))[:-1]
    fresh = np.append(True, key[1:] != key[:-1])[: len(key)]
    of_key = np.maximum.accumulate(np.where(fresh, np.arange(len(key)), 0))
    fresh |= np.append(True, np.diff(step) != 0)[: len(key)]
    of_step = np.maximum.accumulate(np.where(fresh, np.arange(len(key)), 0))
    result = np.empty(len(key))
    result[order] = before[of_step] - before[of_key]
    return result
