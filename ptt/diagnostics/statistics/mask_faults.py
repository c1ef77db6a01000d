"""What masks mark and the policy did not sample: tokens beside observations, padding, and the wrong side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray
from ptt.diagnostics.statistics.fault_since import FaultSpan, cut_windows, locate_fault, window_numbers
from ptt.diagnostics.statistics.marked_tokens import (
    NEAR,
    NOWHERE,
    CommonToken,
    MarkedTokens,
    Places,
    by_sequence,
    common_token,
    mean_of_known,
    unlikely,
)
from ptt.diagnostics.statistics.windows import Span

MIN_WINDOW: Final = 24  # sequences: fewer are a group of one prompt


@dataclass(frozen=True, kw_only=True)
class PlaceFault:
    """Marked tokens beside observations, or at the ends of sequences, that the policy can not have sampled.

    kind: after, before or end (see marked_tokens.Places); numbers: the places of it, ascending.
    """

    span: FaultSpan
    kind: str
    numbers: tuple[int, ...]
    share: float  # of the tokens there that the policy rarely samples, while the fault holds
    surprisal: float  # their mean, nats
    entropy: float  # NaN where not recorded
    common: CommonToken | None  # at the worst of these places
    opens: CommonToken | None  # what most observations begin with
    ends: CommonToken | None  # what most sequences end with


@dataclass(frozen=True, kw_only=True)
class Padding:
    """Sequences that go on, marked as sampled, behind the token that ends them."""

    span: FaultSpan
    share: float  # of sequences, while the fault holds


@dataclass(frozen=True, kw_only=True)
class Inversion:
    """Marked tokens that the policy rarely samples, beside unmarked ones that look sampled."""

    span: FaultSpan
    marked: float  # share of the marked tokens that are unlikely, while it holds
    unmarked: float


MIN_PLACE: Final = 40  # tokens of a place in a window: of fewer, six in ten are unlikely by chance now and then
PLACE_SHARE: Final = 0.6  # of a place's tokens that are unlikely: at most 0.2 in sound runs, 1 where none was sampled
COMMON_NATS: Final = {"after": 1.0, "before": 1.5, "end": math.inf}
"""Mean surprisal of one token id over a place, 0 where another stands. Where it is sampled with probability p, this is
-p log p, 0.37 at most; at the ends of turns the token that ends them may be a rarer one."""
PLACE_EXCESS: Final = {"after": 1.0, "before": 1.5, "end": math.inf}  # nats above the entropy, over a place's tokens
PLACE_Z: Final = 6.0  # standard errors of that
ELSEWHERE: Final = 0.25  # share of unlikely tokens among all others, at most: above it the place does not explain them
TIMES_ELSEWHERE: Final = 3.0  # the excess elsewhere, at least, for the same reason
MIN_END: Final = 2  # places: the token that ends a sequence may be a rare one
MAX_SURPRISAL: Final = 20.0  # nats: cap on each token in a sequence's mean, so that one does not decide it


def place_faults(marked: MarkedTokens, places: Places) -> Iterator[PlaceFault]:
    """Yield the kinds of place where most tokens are unlikely in at least one window."""
    for kind, numbers in places.kinds.items():
        valid = marked.marked & (numbers != NOWHERE) & np.isfinite(marked.surprisal)
        windows = cut_windows(marked.step[np.unique(marked.row[valid])], least=MIN_PLACE)
        if not windows:
            continue
        wrong = _faulty_places(marked, valid, kind, numbers, windows)
        chosen = np.flatnonzero(wrong.any(axis=1))
        first = 0 if kind == "after" else 1
        if not len(chosen) or chosen[0] > first + 1 or len(chosen) < (MIN_END if kind == "end" else 1):
            continue  # templates are next to an observation; one of their tokens may be a likely one
        at = valid & np.isin(numbers, chosen)
        values = by_sequence(marked, at, np.minimum(marked.surprisal, MAX_SURPRISAL))
        span = locate_fault(marked.step, values, windows, [bool(column.any()) for column in wrong.T])
        if span is None:
            continue
        inside = valid & span.holds(marked.step)[marked.row]
        chosen = np.flatnonzero(_faulty_places(marked, inside, kind, numbers, [Span(span.since, span.until)])[:, 0])
        at = inside & np.isin(numbers, chosen)
        if len(chosen) and _of_places(marked, at, marked.marked & ~at & span.holds(marked.step)[marked.row]):
            yield _place_fault(marked, places, kind, chosen, at, span)


def _faulty_places(
    marked: MarkedTokens, valid: BoolArray, kind: str, numbers: IntArray, windows: Sequence[Span]
) -> BoolArray:
    """Tell the places of a kind, and the windows, whose tokens the policy can not have sampled: (places, windows)."""
    size = (NEAR + 1, len(windows))
    key = np.ravel_multi_index((numbers[valid], window_numbers(marked.step[marked.row[valid]], windows)), size)
    surprisal, entropy = marked.surprisal[valid], marked.entropy[valid]

    def sums(values: FloatArray | BoolArray | None) -> FloatArray:
        return np.bincount(key, values, size[0] * size[1]).astype(np.float64).reshape(size)

    count = sums(None)
    few, many = count < MIN_PLACE, np.maximum(count, 1)
    wrong: BoolArray = sums(unlikely(marked)[valid]) >= PLACE_SHARE * many
    if marked.ids is not None:
        usual = np.array([_usual(marked.ids[valid & (numbers == number)]) for number in range(NEAR + 1)])
        wrong |= sums(np.where(marked.ids[valid] == usual[numbers[valid]], surprisal, 0.0)) >= COMMON_NATS[kind] * many
    apart = np.where(np.isfinite(entropy), surprisal - entropy, 0.0)
    excess = sums(apart)
    wrong |= (excess >= PLACE_EXCESS[kind] * many) & (excess >= PLACE_Z * np.sqrt(sums(apart**2)))
    return wrong & ~few


def _usual(ids: IntArray) -> int:
    """Return the commonest id; -1 if there are no ids."""
    values, counts = np.unique(ids, return_counts=True)
    return int(values[np.argmax(counts)]) if len(values) else -1


def _of_places(marked: MarkedTokens, at: BoolArray, others: BoolArray) -> bool:
    """Return whether what is unlikely at some places is not so everywhere."""
    if not others.any() or not at.any() or unlikely(marked)[others].mean() > ELSEWHERE:
        return False
    apart = marked.surprisal - marked.entropy
    here, elsewhere = mean_of_known(apart[at]), mean_of_known(apart[others])
    return not here < TIMES_ELSEWHERE * elsewhere


def _place_fault(
    marked: MarkedTokens, places: Places, kind: str, chosen: IntArray, valid: BoolArray, span: FaultSpan
) -> PlaceFault:
    numbers = places.kinds[kind]
    levels = [mean_of_known(marked.surprisal[valid & (numbers == number)]) for number in chosen.tolist()]
    worst = int(chosen[int(np.argmax(levels))])
    opens = places.observation & ~np.append(False, places.observation[:-1])
    return PlaceFault(
        kind=kind,
        numbers=tuple(chosen.tolist()),
        share=float(unlikely(marked)[valid].mean()),
        surprisal=mean_of_known(marked.surprisal[valid]),
        entropy=mean_of_known(marked.entropy[valid]),
        common=common_token(marked, valid & (numbers == worst)),
        opens=common_token(marked, opens),
        ends=common_token(marked, places.end == 1),
        span=span,
    )


def at_faults(marked: MarkedTokens, places: Places, faults: Sequence[PlaceFault]) -> BoolArray:
    """Tell the tokens at faulty places, whether or not the fault holds at their step."""
    valid = np.zeros(len(marked.row), np.bool_)
    for fault in faults:
        valid |= np.isin(places.kinds[fault.kind], fault.numbers)
    return valid


MIN_LAST: Final = 10  # sequences that end without a repeated token: what ends a sequence is known from these
MIN_LAST_SHARE: Final = 0.5  # of them: the share that one last token must have
MIN_PADDED: Final = 0.3  # of a window's sequences that go on behind the token that ends them


def padding_tokens(marked: MarkedTokens, places: Places) -> BoolArray | None:
    """Flag the marked tokens behind the one that ends a sequence, all with one id.

    A sampler stops at the end token, so marked tokens behind it are padding; a policy stuck in a loop has no end token
    before its repeats. None where ids are not recorded, or no token is known to end sequences.
    """
    if marked.ids is None or not len(marked.row):
        return None
    row, ids, at = marked.row, marked.ids, np.arange(len(marked.row))
    last = np.flatnonzero(places.end == 1)
    new = np.append(True, (ids[1:] != ids[:-1]) | (row[1:] != row[:-1]) | (marked.marked[1:] != marked.marked[:-1]))
    start = np.maximum.accumulate(np.where(new, at, 0))[last]
    alone, counts = np.unique(ids[last[start == last]], return_counts=True)
    if counts.sum() < MIN_LAST or counts.max() < MIN_LAST_SHARE * counts.sum():
        return None
    ends = alone[np.argmax(counts)]
    behind = np.maximum(start - 1, 0)
    own = ids[last] == ends
    padded = (own & (start < last)) | ((start > 0) & (row[behind] == row[last]) & (ids[behind] == ends))
    first = np.full(marked.sequences, len(row))
    first[row[last[padded]]] = (start + own)[padded]  # one end token is the sequence's own
    return (at >= first[row]) & marked.marked


def find_padding(marked: MarkedTokens, padding: BoolArray) -> Padding | None:
    """Return since when sequences go on behind the token that ends them."""
    padded = by_sequence(marked, marked.marked, padding.astype(np.float64)) > 0
    windows = cut_windows(marked.step, least=MIN_WINDOW)
    shares = window_means(window_numbers(marked.step, windows), padded.astype(np.float64), len(windows))
    faulty = [bool(share >= MIN_PADDED) for share in shares]
    span = locate_fault(marked.step, padded.astype(np.float64), windows, faulty)
    return None if span is None else Padding(span=span, share=float(padded[span.holds(marked.step)].mean()))


MIN_INVERTED: Final = 0.3  # unlikely share of the marked tokens: 0.6 in others' text, 0.1 with a hot sampler
MAX_SAMPLED: Final = 0.1  # of the unmarked tokens, the share that is unlikely, at most: 0.01 in the policy's own text


def find_inversion(marked: MarkedTokens) -> Inversion | None:
    """Find the windows where the unmarked tokens look sampled and the marked ones do not."""
    odd = unlikely(marked).astype(np.float64)
    known = np.isfinite(marked.surprisal) & (marked.surprisal > 0)
    of_marked, of_others = (by_sequence(marked, known & side, odd) for side in (marked.marked, ~marked.marked))
    windows = cut_windows(marked.step, least=MIN_WINDOW)
    number = window_numbers(marked.step, windows)
    both = np.isfinite(of_marked) & np.isfinite(of_others)
    shares = [window_means(number[both], values[both], len(windows)) for values in (of_marked, of_others)]
    faulty = [bool(one >= MIN_INVERTED and other <= MAX_SAMPLED) for one, other in zip(*shares, strict=True)]
    span = locate_fault(marked.step, of_marked - of_others, windows, faulty)
    if span is None:
        return None
    inside = span.holds(marked.step) & both
    return Inversion(span=span, marked=float(of_marked[inside].mean()), unmarked=float(of_others[inside].mean()))


def window_means(number: IntArray, values: FloatArray, windows: int) -> FloatArray:
    """Return the mean of each window's values; 0 where it has none."""
    means: FloatArray = np.bincount(number, values, windows) / np.maximum(np.bincount(number, minlength=windows), 1)
    return means
