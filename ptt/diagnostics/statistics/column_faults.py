"""Faults of logprob columns that hold over a stretch of steps, or in one slice: shifted, copied, scaled, unrelated.

Each is searched for in windows of sampled sequences, dated to a step from single sequences, and then has to hold over
that whole stretch and nowhere else. Drift from training moves slowly; these faults begin at one step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, Literal

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics.arrays import BoolArray, FloatArray, IntArray
from ptt.diagnostics.statistics.fault_since import FaultSpan, locate_fault
from ptt.diagnostics.statistics.fill_values import distance
from ptt.diagnostics.statistics.pair_sample import ALL, CERTAIN_ABOVE, NO_MOVE, SUREST, SampledColumns
from ptt.diagnostics.statistics.slices import SLICES

Scale = tuple[float, float]
Kind = Literal["shifted", "copied", "scaled", "unrelated"]

MIN_TOKENS: Final = 200  # in a window and slice: a correlation of 0.3 is then four standard deviations from 0
SHIFT_MARGIN: Final = 0.2  # of correlation: sound pairs differ by 0.3 or more the other way, even late in a run
MIN_CORRELATION: Final = 0.6  # a collapsed policy correlates with nothing at any lag, or with all lags alike
CLEAR_MARGIN: Final = 0.4  # of correlation: a shift is this much better than no lag, however noisy the columns
WORST_WINDOWS: Final = 4  # that far offsets are looked for in
LOW_CORRELATION: Final = 1 - SHIFT_MARGIN  # of a window without a shift: no other can then be better by the margin
NEAR_LAGS: Final = (-2, -1, 1, 2)
MAX_LAG: Final = 4096
FAR_LAGS: Final = 2  # of the FFT's best lags: the noise of a short window may hide the true one
CLIP: Final = 3.0  # deviations: nor does it rule what one sequence says
FLOOR: Final = math.log(2 * SUREST)


@dataclass(frozen=True, kw_only=True)
class Found:
    """A fault of one pair of columns, over a stretch of steps and in one slice (None: in both).

    during: the statistic that shows it on the stretch (correlation at the lag, share of equal tokens, ...); otherwise:
    the same at all other steps, NaN where there are none; here: the unshifted correlation on the stretch; edge: for a
    copy, mean |r| of the sound sequences next to it over that of all sound ones, which is small where the policy begins
    to move only then.
    """

    kind: Kind
    slice: str | None
    span: FaultSpan
    during: float
    otherwise: float
    here: float = math.nan
    lag: int = 0
    edge: float = math.nan


class Pairing:
    """Two columns of the sampled sequences, and what their tokens add up to at any offset.

    Tokens are compared by the logarithm of -logp: a policy stays sure where its reference is sure, however far it has
    moved, and no wild token rules a correlation.
    """

    def __init__(self, columns: SampledColumns, numerator: str, denominator: str) -> None:
        """Take the columns by name."""
        self.columns, self.names = columns, (numerator, denominator)
        self.top, self.bottom = columns.values[numerator], columns.values[denominator]
        self._sizes = columns.sizes[numerator], columns.sizes[denominator]
        self._usable = [columns.model & np.isfinite(values) for values in (self.top, self.bottom)]
        self.usable_below, self.size_below = self._usable[1].__getitem__, self._sizes[1].__getitem__
        self._matched: dict[int, tuple[IntArray, FloatArray, FloatArray]] = {}
        self._sums: dict[int, FloatArray] = {}

    def matched(self, lag: int) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return the places t of sampled tokens, and how sure top is at t and bottom at t + lag."""
        if lag not in self._matched:
            end = len(self.top)
            above, below = slice(max(0, -lag), end - max(0, lag)), slice(max(0, lag), end - max(0, -lag))
            usable = self._usable[0][above] & self._usable[1][below]
            if lag:
                usable &= self.columns.row[above] == self.columns.row[below]
            at = np.flatnonzero(usable) + max(0, -lag)
            self._matched[lag] = at, self._sizes[0][at], self._sizes[1][at + lag]
        return self._matched[lag]

    def correlations(self, lag: int, slice_: int, group: IntArray, groups: int) -> FloatArray:
        """Return, by group of sequences, the correlation of top at t in the slice with bottom at t + lag.

        NaN below MIN_TOKENS.
        """
        sums = self._sums_of(lag)
        sums = sums[:, :, slice_] if slice_ != ALL else sums.sum(axis=2)
        n, x, y, xx, yy, xy = (np.bincount(group, one, groups) for one in sums)
        with np.errstate(invalid="ignore", divide="ignore"):
            spread = (xx - x * x / n) * (yy - y * y / n)
            found = (xy - x * y / n) / np.sqrt(spread)
        return np.where((n >= MIN_TOKENS) & (spread > 0), found, np.nan)

    def _sums_of(self, lag: int) -> FloatArray:
        """Return, by sequence and slice, how many tokens there are, and the sums of x, y, x x, y y and x y."""
        if lag not in self._sums:
            at, x, y = self.matched(lag)
            place, found = self.columns.place[at], np.zeros((6, 2 * len(self.columns.step)))
            if len(at):
                starts = np.flatnonzero(
                    np.diff(place, prepend=-1)
                )  # places never fall: text of a sequence, then the rest
                sums = [np.add.reduceat(one, starts) for one in (x, y, x * x, y * y, x * y)]
                found[:, place[starts]] = [np.diff(starts, append=len(at)), *sums]
            self._sums[lag] = found.reshape(6, -1, 2)
        return self._sums[lag]

    def agreement(self, lag: int, slice_: int, scales: tuple[Scale, Scale]) -> FloatArray:
        """Return of each sequence how well the columns go together: the mean product of their deviations."""
        at, x, y = self.matched(lag)
        if slice_ != ALL:
            inside = self.columns.post[at] == bool(slice_)
            at, x, y = at[inside], x[inside], y[inside]
        of, sequences = self.columns.row[at], len(self.columns.step)
        with np.errstate(invalid="ignore", divide="ignore"):
            product = np.bincount(of, _standardised(x, scales[0]) * _standardised(y, scales[1]), sequences)
            found: FloatArray = product / np.bincount(of, minlength=sequences)
        return found

    def tokens_of(self, slice_: int) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return the places of a slice's sampled tokens, and how sure both columns are of each."""
        at, x, y = self.matched(0)
        inside = slice(None) if slice_ == ALL else self.columns.post[at] == bool(slice_)
        return at[inside], x[inside], y[inside]


def _standardised(values: FloatArray, scale: Scale) -> FloatArray:
    clipped: FloatArray = np.clip((values - scale[0]) / scale[1], -CLIP, CLIP)
    return clipped


def _scale_of(values: FloatArray) -> Scale:
    return float(values.mean()), float(values.std()) or 1.0


def _slices_of(columns: SampledColumns) -> tuple[int, ...]:
    """Return the slices to look at one by one, and both together: in a run without tools that is the first."""
    return (ALL,) if not (columns.model & columns.post).any() else (ALL, *range(len(SLICES)))


def find_shifts(pairing: Pairing) -> tuple[Found, ...]:
    """Return the stretches of steps where one column is shifted against the other, at any offset."""
    columns = pairing.columns
    number, count = columns.window, len(columns.windows)
    by_slice = {}
    for slice_ in _slices_of(columns):
        here = pairing.correlations(0, slice_, number, count)
        if not (here < LOW_CORRELATION).any():
            continue
        best = None
        worst = np.argsort(np.where(np.isfinite(here), here, np.inf), kind="stable")[:WORST_WINDOWS]
        for lag in dict.fromkeys((*NEAR_LAGS, *far_lags(pairing, slice_, worst))):
            shifted = pairing.correlations(lag, slice_, number, count)
            with np.errstate(invalid="ignore"):
                wrong = shifted > _shifted_from(here)
            if wrong.any() and (best is None or wrong.sum() > best[1].sum()):
                best = lag, wrong, np.isfinite(here)
        found = None if best is None else _placed_shift(pairing, slice_, *best)
        if found is not None:
            by_slice[slice_] = found
    return _of_slices(by_slice, pairing)


def _shifted_from(here: FloatArray) -> FloatArray:
    """Return the correlation at a lag above which columns with this correlation in place are shifted."""
    moderate = np.fmax(here + SHIFT_MARGIN, MIN_CORRELATION)
    clear: FloatArray = np.maximum(here, 0.0) + CLEAR_MARGIN  # NaN stays NaN
    return np.fmin(moderate, clear)


def _placed_shift(pairing: Pairing, slice_: int, lag: int, wrong: BoolArray, judged: BoolArray) -> Found | None:
    columns = pairing.columns
    _, top, bottom = pairing.tokens_of(slice_)
    scales = _scale_of(top), _scale_of(bottom)
    better = pairing.agreement(lag, slice_, scales) - pairing.agreement(0, slice_, scales)
    span = locate_fault(columns.step, better, columns.windows, _verdicts(wrong, judged))
    if span is None:
        return None
    group = span.holds(columns.step).astype(np.int64)
    here = pairing.correlations(0, slice_, group, 2)
    shifted = pairing.correlations(lag, slice_, group, 2)
    if not shifted[1] > _shifted_from(here)[1] or shifted[0] > min(here[0], shifted[1] - SHIFT_MARGIN):
        return None
    if _repeats(pairing, slice_, lag, group) >= shifted[1] - SHIFT_MARGIN:
        return None
    return Found(
        kind="shifted",
        slice=_name(slice_),
        span=span,
        during=float(shifted[1]),
        otherwise=float(shifted[0]),
        here=float(here[1]),
        lag=lag,
    )


def _repeats(pairing: Pairing, slice_: int, lag: int, group: IntArray) -> float:
    """Return how a column of the stretch correlates with itself at a far lag: text that repeats looks shifted there."""
    if lag in NEAR_LAGS:  # neighbours are alike in any text
        return -1.0
    own = [Pairing(pairing.columns, name, name).correlations(lag, slice_, group, 2)[1] for name in pairing.names]
    return float(np.nanmax([-1.0, *own]))


def _verdicts(wrong: BoolArray, judged: BoolArray) -> list[bool | None]:
    return [bool(one) if known or one else None for one, known in zip(wrong.tolist(), judged.tolist(), strict=True)]


def far_lags(pairing: Pairing, slice_: int, worst: IntArray) -> Iterator[int]:
    """Yield the offsets at which the columns correlate best in these windows, by FFT."""
    columns = pairing.columns
    at, x, y = pairing.matched(0)
    longest = int(np.diff(columns.start).max())
    reach = min(MAX_LAG, longest // 2)
    lags = np.append(np.arange(-reach, 0), np.arange(1, reach + 1))
    products = np.zeros(len(lags))
    for window in worst.tolist():
        rows = np.flatnonzero(columns.window == window)
        first, end = int(columns.start[rows[0]]), int(columns.start[rows[-1] + 1])
        inside = (at >= first) & (at < end)
        size = 1 << (end - first + reach).bit_length()
        both = [np.zeros(size), np.zeros(size)]
        own = inside if slice_ == ALL else inside & (columns.post[at] == bool(slice_))
        for side, of, sizes in ((both[0], own, x), (both[1], inside, y)):
            side[at[of] - first] = _standardised(sizes[of], _scale_of(sizes[of])) if of.any() else 0.0
        spectrum = np.conj(np.fft.rfft(both[0])) * np.fft.rfft(both[1])
        products += np.fft.irfft(spectrum, size)[lags]
    yield from lags[np.argsort(-products, kind="stable")[:FAR_LAGS]].tolist()


def _name(slice_: int) -> str | None:
    return None if slice_ == ALL else SLICES[slice_]


def _of_slices(by_slice: dict[int, Found], pairing: Pairing) -> tuple[Found, ...]:
    """Return one fault for both slices if both have it or the other holds too little, else the one of its own slice."""
    single = [slice_ for slice_ in by_slice if slice_ != ALL]
    if len(single) == 1:
        found = by_slice[single[0]]
        other, _, _ = pairing.tokens_of(1 - single[0])
        held = found.span.holds(pairing.columns.step)
        here = pairing.correlations(0, 1 - single[0], held.astype(np.int64), 2)
        as_bad = found.kind == "shifted" and here[1] < min(here[0] - SHIFT_MARGIN, LOW_CORRELATION)
        if as_bad or (ALL in by_slice and held[pairing.columns.row[other]].sum() < MIN_TOKENS):
            return (by_slice.get(ALL, replace(found, slice=None)),)
        return (found,)
    return (by_slice[ALL],) if ALL in by_slice else tuple(by_slice[slice_] for slice_ in single)


COPIED_SHARE: Final = 0.999  # of tokens not nearly certain: different kernels alone change more than one in 1,000
SOUND_SHARE: Final = 0.9  # of them at most at the other steps: coarse numbers agree on many while a policy is young
COPY_EDGE: Final = 48  # sequences next to a copy, whose |r| is compared with that of all others
EDGE_CLIP: Final = 1.0  # nats: a cap, so that one extreme token does not decide the mean of so few
MIN_OPEN: Final = 50  # open (not nearly certain) tokens in a window


def find_copies(pairing: Pairing) -> tuple[Found, ...]:
    """Return the stretches of steps where both columns hold the same numbers, in both slices or in one."""
    columns = pairing.columns
    number, count = columns.window, len(columns.windows)
    tokens, equal = _equal_tokens(pairing)
    by_slice = {}
    for slice_ in _slices_of(columns):
        of, same = (one.sum(axis=1) if slice_ == ALL else one[:, slice_] for one in (tokens, equal))
        all_, zero = np.bincount(number, of, count), np.bincount(number, same, count)
        with np.errstate(invalid="ignore", divide="ignore"):
            share, own = zero / all_, same / of
        wrong, judged = (all_ >= MIN_OPEN) & (share >= COPIED_SHARE), all_ >= MIN_OPEN
        span = locate_fault(columns.step, own, columns.windows, _verdicts(wrong, judged))
        if span is None:
            continue
        held = span.holds(columns.step)
        during, otherwise = _share(same[held], of[held]), _share(same[~held], of[~held])
        if during >= COPIED_SHARE and not otherwise > SOUND_SHARE:
            edge = _edge_size(pairing, slice_, held)
            name = _name(slice_)
            by_slice[slice_] = Found(
                kind="copied", slice=name, span=span, during=during, otherwise=otherwise, edge=edge
            )
    return _of_slices(by_slice, pairing)


def _edge_size(pairing: Pairing, slice_: int, held: BoolArray) -> float:
    """Return mean |r| of the sound sequences next to the copied ones, over that of all sound ones."""
    at, _, _ = pairing.tokens_of(slice_)
    row, sequences = pairing.columns.row[at], len(held)
    r = np.minimum(np.abs(pairing.top[at] - pairing.bottom[at]), EDGE_CLIP)
    size = np.bincount(row, r, sequences).astype(np.float64)
    count = np.bincount(row, minlength=sequences).astype(np.float64)
    sound, inside = np.flatnonzero(~held), np.flatnonzero(held)
    near = np.append(sound[sound < inside[0]][-COPY_EDGE:], sound[sound > inside[-1]][:COPY_EDGE])
    usual, beside = (_share(size[part], count[part]) for part in (sound, near))
    return beside / usual if usual > 0 else math.nan


def _equal_tokens(pairing: Pairing) -> tuple[FloatArray, FloatArray]:
    """Return, by sequence and slice, the tokens that are not nearly certain, and those with one number in both."""
    columns, size = pairing.columns, 2 * len(pairing.columns.step)
    at, _, _ = pairing.matched(0)
    top, bottom = pairing.top[at], pairing.bottom[at]
    open_ = (top < CERTAIN_ABOVE) | (bottom < CERTAIN_ABOVE)
    place = columns.place[at[open_]]
    equal = np.abs(top[open_] - bottom[open_]) < NO_MOVE
    return (
        np.bincount(place, minlength=size).reshape(-1, 2).astype(np.float64),
        np.bincount(place[equal], minlength=size).reshape(-1, 2).astype(np.float64),
    )


def _share(part: FloatArray, whole: FloatArray) -> float:
    return float(part.sum() / whole.sum()) if whole.sum() else math.nan


NEIGHBOURS: Final = 4  # windows to either side of a jump: what drifts hardly moves over them
NEAREST: Final = 2  # of these, the windows whose tokens are compared with each other
MIN_JUMP: Final = math.log(1.33)  # sound columns jump by up to a quarter; 0.7 and log 2 are 1.4
MAX_JUMP: Final = math.log(30)  # temperature 1.6, of tokens with a logprob of -0.001: more is another policy
JUMP_TIMES_NOISE: Final = 3.0  # times the upper quartile of moves from window to window: drift and chance
MIN_CLEAR: Final = 2.0  # times how far levels on either side scatter about their own median
LEAST_NOISE: Final = 0.01
MAX_OTHER_JUMP: Final = 0.35  # of the jump, the most that the other column's own level may move: its tokens are alike
MAX_OTHER_MOVE: Final = 0.3  # or so much: what a policy does while the windows last
TIMES_ERROR: Final = 2.0  # standard errors of both medians, as if tokens were independent
LIKE_BEFORE: Final = (0.6, 1.4)  # distance from both columns' curve over that before: a growing tail widens it
MAX_LEFT: Final = 0.25  # or of how far the columns are apart, once one is scaled back
CURVE_PLACES: Final = 12  # that a curve of one column over the other has
AT_ONCE: Final = 0.6  # of a jump: from the sequences just before it to those just after; a policy takes its time
EDGE_SEQUENCES: Final = 24  # to either side
MIN_SEQUENCE_TOKENS: Final = 4  # of a sequence, for a median of its own


def find_scales(pairing: Pairing) -> tuple[Found, ...]:
    """Return the stretch of steps where one column was taken at another temperature or in another log base.

    The ratio of both logprobs jumps from one window to the next while the other column's own level stays, and scaling
    back by a power and a factor brings the columns as close as they are on the other side.
    """
    columns = pairing.columns
    at, top, bottom = pairing.matched(0)
    found = [
        one
        for still, column, sign in ((top, bottom, 1), (bottom, top, -1))
        if (one := _scaled(columns, at, still, column, sign)) is not None
    ]
    return tuple(one for _, one in sorted(found, key=lambda both: both[0])[:1])


def _scaled(
    columns: SampledColumns, at: IntArray, still: FloatArray, column: FloatArray, sign: int
) -> tuple[float, Found] | None:
    """Return how far the level of the one column moved that should not, and the fault of the other."""
    open_ = still > FLOOR
    row, still, column = columns.row[at[open_]], still[open_], column[open_]
    window, count = columns.window[row], len(columns.windows)
    ratio = column - still
    level = medians(ratio, window, count, MIN_TOKENS)
    jump = largest_jump(level)
    if jump is None or not MIN_JUMP <= abs(jump.size) <= MAX_JUMP:
        return None
    early, late = (_level_of(level[slice(*part)]) for part in (jump.before, jump.after))
    from_start = abs(early) > abs(late) and not abs(_level_of(level[:1])) < abs(jump.size) / 3
    nearest = (max(jump.before[0], jump.before[1] - NEAREST), jump.before[1]), (jump.after[0], jump.after[0] + NEAREST)
    beside = [(window >= first) & (window < end) for first, end in nearest]
    sound, wrong = beside[::-1] if from_start else beside
    moved = abs(float(np.median(still[wrong]) - np.median(still[sound])))
    if moved > _most_moved(still, sound, wrong, jump.size) or not _is_scaling(still, column, sound, wrong):
        return None
    if distance(still[sound], still[wrong]) > distance(column[sound], column[wrong]):  # what is scaled moves more
        return None
    right, off = (late, early) if from_start else (early, late)
    own = medians(ratio, row, len(columns.step), MIN_SEQUENCE_TOKENS)
    near = np.abs(level - off) < np.abs(level - right)
    span = locate_fault(columns.step, own, columns.windows, _verdicts(near, np.isfinite(level)))
    if span is None or not _at_once(own, columns.step, span, off - right):
        return None
    factor = math.exp(sign * (off - right))
    return moved, Found(kind="scaled", slice=None, span=span, during=factor, otherwise=1.0)


def _most_moved(still: FloatArray, sound: BoolArray, wrong: BoolArray, jump: float) -> float:
    """Return by how much the level of the sound column may differ between the two sides."""
    error = math.sqrt(np.pi / 2 * float(still.var()) * (1 / sound.sum() + 1 / wrong.sum()))
    return max(MAX_OTHER_JUMP * abs(jump), MAX_OTHER_MOVE) + TIMES_ERROR * error


def _is_scaling(still: FloatArray, column: FloatArray, sound: BoolArray, wrong: BoolArray) -> bool:
    """Return whether one curve brings the column as close to the other as it was before."""
    edges = np.unique(np.quantile(still[sound], np.linspace(0, 1, CURVE_PLACES + 1)[1:-1]))
    place = np.searchsorted(edges, still)
    ratio, places = column - still, len(edges) + 1
    usual, raw = (medians(ratio[side], place[side], places, 1) for side in (sound, wrong))
    apart = [
        float(np.nanmean(np.abs(ratio[side] - curve[place[side]])))
        for side, curve in ((sound, usual), (wrong, usual), (wrong, raw))
    ]
    least, most = (share * apart[0] for share in LIKE_BEFORE)
    return least < apart[2] < max(most, apart[0] + MAX_LEFT * (apart[1] - apart[0]))


def _at_once(own: FloatArray, steps: IntArray, span: FaultSpan, jump: float) -> bool:
    """Return whether single sequences jump by most of it where the fault begins and where it ends."""
    known = np.isfinite(own)
    own, steps = own[known], steps[known]
    first, end = np.searchsorted(steps, span.since), np.searchsorted(steps, span.until, side="right")
    inside, outside = own[first:end], (own[:first][-EDGE_SEQUENCES:], own[end:][:EDGE_SEQUENCES])
    for kept, edge in ((inside[:EDGE_SEQUENCES], outside[0]), (inside[-EDGE_SEQUENCES:], outside[1])):
        if len(edge) and (np.median(kept) - np.median(edge)) / jump < AT_ONCE:
            return False
    return True


@dataclass(frozen=True, kw_only=True)
class Jump:
    """The clearest change of a level from one window to the next; the windows to either side, end excluded."""

    size: float
    before: tuple[int, int]
    after: tuple[int, int]

    @classmethod
    def between(cls, level: FloatArray, place: int, after: int) -> Jump:
        """Return the jump from the windows before `place` to those from `after` on."""
        sides = (max(0, place - NEIGHBOURS), place), (after, min(len(level), after + NEIGHBOURS))
        levels = [_level_of(level[slice(*side)]) for side in sides]
        return cls(size=levels[1] - levels[0], before=sides[0], after=sides[1])

    def clearness(self, level: FloatArray) -> float:
        """Return by how much it exceeds what drift and scatter of the windows to either side give; NaN if unknown."""
        parts = [level[slice(*side)] for side in (self.before, self.after)]
        off = np.concatenate([np.abs(part - _level_of(part)) for part in parts])
        drift = np.nan_to_num(_level_of(np.concatenate([np.diff(part) for part in parts])))
        expected = abs(float(drift)) * (sum(self.after) - sum(self.before)) / 2
        return abs(self.size) - expected - MIN_CLEAR * (float(np.nanmean(off)) if np.isfinite(off).any() else 0.0)


def largest_jump(level: FloatArray) -> Jump | None:
    """Return the largest jump of a level by window that its usual moves do not explain; None where there is none.

    The window that it lies in may hold both kinds, so levels two windows apart are compared.
    """
    count = len(level)
    moves = np.abs(np.diff(level))
    if np.isfinite(moves).sum() < NEIGHBOURS:
        return None
    noise = max(float(np.nanquantile(moves, 0.75)), LEAST_NOISE)  # a jump or two are beyond it
    best, clearest = None, 0.0
    for place in range(NEAREST, count - NEAREST + 1):
        for after in range(place, min(place + 1, count - NEAREST) + 1):
            jump = Jump.between(level, place, after)
            if (clear := jump.clearness(level)) > clearest:
                best, clearest = jump, clear
    return best if best is not None and abs(best.size) >= JUMP_TIMES_NOISE * noise else None


def _level_of(values: FloatArray) -> float:
    """Return the median of the finite values; of few, sorting takes a tenth of the time of `np.median`."""
    ordered = np.sort(values[np.isfinite(values)])
    count = len(ordered)
    return float(ordered[(count - 1) // 2] + ordered[count // 2]) / 2 if count else math.nan


def medians(values: FloatArray, group: IntArray, groups: int, least: int) -> FloatArray:
    """Return the median of each group's values, NaN where it has fewer than `least`."""
    if (group[1:] < group[:-1]).any():
        order = np.argsort(group, kind="stable")
        values, group = values[order], group[order]
    start = np.searchsorted(group, np.arange(groups + 1))
    found = np.full(groups, np.nan)
    for at in np.flatnonzero(np.diff(start) >= max(1, least)).tolist():
        found[at] = np.median(values[start[at] : start[at + 1]])
    return found


MIN_FALL: Final = 0.2  # of correlation from one window to the next: what a policy does to it takes many
TOGETHER: Final = 0.7  # of correlation at the other steps: with less, a tail that begins at once does the same
MAX_OWN: Final = 0.3  # of what a correlation is beyond that of other sequences' tokens at the same place
MAX_MOVED: Final = (0.1, 0.4)
"""Kolmogorov's distance between a column's own values: of the rows that stay, and of the others, which bring along
tokens of tools."""


def find_unrelated(pairing: Pairing) -> tuple[Found, ...]:
    """Return the stretch of steps where the columns are no longer of the same tokens, though each is what it was."""
    columns = pairing.columns
    number, count = columns.window, len(columns.windows)
    here = pairing.correlations(0, ALL, number, count)
    jump = largest_jump(here)
    if jump is None or abs(jump.size) < MIN_FALL:
        return ()
    sides = sorted((jump.before, jump.after), key=lambda part: -_level_of(here[slice(*part)]))
    sound, low = (_level_of(here[slice(*part)]) for part in sides)
    at, top, bottom = pairing.matched(0)
    window = number[columns.row[at]]
    inside = [(window >= first) & (window < end) for first, end in sides]
    moved = sorted(distance(values[inside[0]], values[inside[1]]) for values in (top, bottom))
    if moved[0] > MAX_MOVED[0] or moved[1] > MAX_MOVED[1]:
        return ()
    near = np.abs(here - low) < np.abs(here - sound)
    row, sequences = columns.row[at], len(columns.step)
    with np.errstate(invalid="ignore", divide="ignore"):
        own = np.bincount(row, np.abs(top - bottom), sequences) / np.bincount(row, minlength=sequences)
    span = locate_fault(columns.step, own, columns.windows, _verdicts(near, np.isfinite(here)))
    held = None if span is None else span.holds(columns.step)
    if (
        span is None
        or held is None
        or not _at_once(own, columns.step, span, _level_of(own[held]) - _level_of(own[~held]))
    ):
        return ()
    group = held.astype(np.int64)
    otherwise, during = pairing.correlations(0, ALL, group, 2).tolist()
    others = _of_other_sequences(pairing, group)
    if not (otherwise > TOGETHER and during - others < MAX_OWN * (otherwise - others)):
        return ()
    return (Found(kind="unrelated", slice=None, span=span, during=during, otherwise=otherwise, here=others),)


def _of_other_sequences(pairing: Pairing, group: IntArray) -> float:
    """Return the correlation, over the sequences of group 1, with the next such sequence's token at the same place."""
    columns = pairing.columns
    at, top, _ = pairing.matched(0)
    row = columns.row[at]
    following = np.append(np.arange(1, len(columns.step)), 0)
    partner = columns.start[following[row]] + at - columns.start[row]
    fits = (group[row] == 1) & (partner < columns.start[following[row] + 1])
    fits[fits] = pairing.usable_below(partner[fits])
    x, y = top[fits], pairing.size_below(partner[fits])
    return float(np.corrcoef(x, y)[0, 1]) if len(x) >= MIN_TOKENS else math.nan
