"""The four conditions of the signature, tested on one pair's tails: growth, localised, lasting, material.

tool_tail_growth turns them into the signature and its findings; docs/statistics.md has the tests.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.tails import Tails
from ptt.diagnostics.rules.interface import Limits
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.change_point import rank_shift
from ptt.diagnostics.statistics.rare_tails import (
    BlockCounts,
    RareRise,
    drawn_percentiles,
    nats_beyond,
    rare_rise,
    share_beyond,
)
from ptt.diagnostics.statistics.tail_growth import (
    FLOOR,
    LEVEL_FLOOR,
    MIN_BLOCK_TOKENS,
    LateRise,
    Percentile,
    SliceTails,
    TailShift,
    excess_growth,
    grouped_blocks,
    merge_blocks,
    ratio_growth,
    scale_to,
    tail_growth,
    tail_shift,
)
from ptt.diagnostics.statistics.trend import MIN_PART, NULL_DRAWS, Contrast, StepNoise

PERCENTILES_SHARE: Final = 0.4  # of the false-alarm rate, for growth; both shares sum to it (Bonferroni)
RARE_SHARE: Final = 0.6  # the larger: a few tokens show less, and p95 and p99 that grow are hardly ever near theirs
PERCENTILES_PLACE_SHARE: Final = 0.7  # of the same rate, for where growth is: two percentiles, against two slices
RARE_PLACE_SHARE: Final = 0.3
MIN_WINDOW_TOKENS: Final = 300  # three tokens above p99: with fewer, a window's p99 means little
MIN_GROWTH: Final = 1.2  # late over early, of the tail and of its ratio to text: less is no alarm
MIN_RANK_SHIFT: Final = 1.645  # standard deviations of ranks (p of 0.05): a few outlier blocks are not growth
LARGE_GROWTH: Final = 1.5  # late over early: this much is not called "no growth" if p is below MAX_UNSURE_P
MAX_UNSURE_P: Final = 0.1  # above it, even large growth raises no doubt: one stable run in ten gives as much
DOUBLED: Final = 2.0  # late over early, and EXCESS_NATS more: not called "no growth" below MAX_DOUBLED_P
MAX_DOUBLED_P: Final = 0.25  # noise that doubles a tail past the limit is rare, however wide the blocks scatter
MAX_LATE_P: Final = 0.02  # of a rise by LARGE_GROWTH: this clear, it is not called "no growth"
MAX_END_SHARE: Final = 0.2  # of the blocks: a rise that began later is reported with its first step
MIN_RARE_GROWTH: Final = 1.5  # share of tokens this far out, after over before
MIN_RARE_UNITS: Final = 4  # sequences or groups this far out, after: fewer mean little
MAX_TEXT_P: Final = 0.05  # p of text-only growth: enough to call it growth everywhere
MIN_DRAWN_SHARE: Final = 0.9  # of the late window's resamples must be on the same side of the limit
MAX_OUTGREW_P: Final = 0.05  # of more rare tokens: above it, text-only ones that grew did so by the same factor
MIN_LEFT: Final = 0.5  # of the highest window: a tail that grew from 0 nats and is now below half of it came back
EXCESS_NATS: Final = math.log(2.0)  # post-tool over text-only growth: another factor of two on the weights


@dataclass(frozen=True, kw_only=True)
class JudgedTail:
    """What judging passes to reporting: the post-tool tail; `name` is the percentile to report."""

    name: str
    post: Percentile
    p_value: float  # of growth and localisation, the larger
    growth_p: float
    conditions: Mapping[str, bool | None]
    end: LateRise | None = None  # if the tail rose, or may have risen, in the last blocks only
    rise: LateRise | None = None  # the blocks that rose, wherever they begin
    rare: RareRise | None = None  # where a few tokens beyond p99 grew
    since: int | None = None  # if growth is counted from 0 nats: the step at which policy and reference were equal

    @property
    def shown(self) -> bool:
        """Whether all four conditions hold."""
        return all(condition is True for condition in self.conditions.values())

    @property
    def grew(self) -> bool:
        """Whether the tail grew beyond noise."""
        return self.conditions["growth"] is True


def block_means_around(percentile: Percentile, end: LateRise) -> tuple[float, float]:
    """Return the mean of a percentile's blocks before the last ones, and of these."""
    rose = np.isin(np.arange(len(percentile.blocks)), end.blocks)
    return tuple(  # type: ignore[return-value]
        float(np.mean(part)) if len(part := values[np.isfinite(values)]) else math.nan
        for values in (percentile.blocks[~rose], percentile.blocks[rose])
    )


def judge_tail(tails: Tails, limits: Limits) -> JudgedTail:
    """Return the post-tool tail with its four conditions, each None where it cannot be decided.

    `limits`: false_alarms (a rate), material_p99 and high_p95 (nats). Two ways to grow share that rate: of p95 and p99,
    and of a few tokens beyond.
    """
    tail = _of_percentiles(tails, limits)
    if tail.shown:
        return tail
    if tails.equal_at is not None:
        tail = _since_equal(tails, tail, tails.equal_at, limits)
        if tail.shown:
            return tail
    rare = _rare(tails, limits)
    if rare is not None and (rare.shown or not tail.grew):
        return rare if rare.shown or tail.conditions["growth"] is False else tail
    return tail


def growth_of_percentiles(tails: Tails, *, draws: int = NULL_DRAWS) -> TailShift:
    """Return how p95 and p99 grew, by single blocks of steps or groups of them, whichever shows it more clearly."""
    return tail_growth(tails.post, noise=_noise(tails), draws=draws)


def _noise(tails: Tails) -> StepNoise:
    return StepNoise(observations=tails.observed_in_blocks, gap=tails.gap)


def _of_percentiles(tails: Tails, limits: Limits) -> JudgedTail:
    """Return the tail as p95 and p99 have it."""
    shift = growth_of_percentiles(tails)
    groups = grouped_blocks(len(tails.blocks)) if shift.grouped else np.arange(len(tails.blocks))[:, None]
    contrast = None if shift.contrast is None else shift.contrast.spread(list(groups))
    rate, of_place = (share * limits["false_alarms"] for share in (PERCENTILES_SHARE, PERCENTILES_PLACE_SHARE))
    percentiles, p_value = tails.post.percentiles, shift.p_value
    localised: bool | None = None
    if contrast is not None and _text_is_known(tails):
        localised, of_localised = _localised(tails, shift, contrast.after, of_place)
        p_value = max(p_value, of_localised) if math.isfinite(of_localised) else p_value
    material = _material(percentiles["p99"], contrast, limits["material_p99"])
    growth = _grew(_as_tested(tails, (tails.post,), shift)[0][0], shift, rate, material=material)
    if growth is False and _may_have_grown(tails.post, limits["critical_p95"]):
        growth = None
    rise = _rise(shift, contrast)
    end = rise if rise is not None and (growth or shift.p_value < MAX_LATE_P) and _is_late(tails.post, rise) else None
    if end is None and growth is None and contrast is not None:
        end = _jump_at_the_end(tails.post, shift.p_value)
    lasting = _lasting(tails.post, None if growth is False else contrast)
    p95, p99 = (percentiles[each].growth() for each in ("p95", "p99"))
    name = "p95" if p95 >= MIN_GROWTH or p95 > 1.0 >= p99 else "p99"
    if lasting and not any(lasting.values()):
        name = next(iter(lasting))  # report the percentile that rose as the one that came back
    if end is not None:
        name = "p95" if block_means_around(percentiles["p95"], end)[1] > limits["material_p99"] else "p99"
    return JudgedTail(
        name=name,
        post=percentiles[name],
        p_value=p_value,
        growth_p=shift.p_value,
        conditions={
            "growth": growth,
            "localised": localised,
            "lasting": None if not lasting else any(lasting.values()),
            "material": material,
        },
        end=end if growth is not False else None,
        rise=rise,
    )


def _since_equal(tails: Tails, tail: JudgedTail, step: int, limits: Limits) -> JudgedTail:
    """Return the tail as grown since policy and reference were equal, at the run's first step.

    It grew from exactly 0 nats, so only the late window has noise. If growth is not significant even then, or too few
    text-only tokens show what else grew, the tail is left as judged within the run.
    """
    late = {name: part.windows_drawn[2] for name, part in tails.post.percentiles.items()}
    growth_p = _p_above(late["p99"], LEVEL_FLOOR)
    if not growth_p < PERCENTILES_SHARE * limits["false_alarms"] or not _text_is_known(tails):
        return tail
    text = tails.text.percentiles
    excess = {name: drawn - text[name].windows_drawn[2] for name, drawn in late.items()}
    excess_p = _p_above(np.max(list(excess.values()), axis=0), EXCESS_NATS)  # of either percentile
    name = min(excess, key=lambda each: (_p_above(excess[each], EXCESS_NATS), each))
    blocks = np.array([place for place, span in enumerate(tails.blocks) if span.first >= tails.windows[-1].first])
    held = _holds_nats(tails.post.counts, tails.text.counts, blocks, beyond=EXCESS_NATS)
    apart = max(float(part.windows[2] - text[each].windows[2]) for each, part in tails.post.percentiles.items())
    rate = PERCENTILES_PLACE_SHARE * limits["false_alarms"]
    localised = True if held and excess_p < rate else False if apart <= EXCESS_NATS else None
    if localised is False and tail.conditions["localised"] is True:
        return tail
    lasting = any(_left(part) for part in tails.post.percentiles.values())
    return replace(
        tail,
        name=name,
        post=tails.post.percentiles[name],
        p_value=max(growth_p, excess_p),
        growth_p=growth_p,
        conditions={**tail.conditions, "growth": True, "localised": localised, "lasting": lasting},
        end=None,
        rise=None,
        since=step,
    )


def _p_above(drawn: FloatArray, limit: float) -> float:
    """Return the share of redrawings at the limit or below it, at least one of them."""
    drawn = drawn[np.isfinite(drawn)]
    return float((1 + np.count_nonzero(drawn <= limit)) / (1 + len(drawn)))


def _left(part: Percentile) -> bool:
    """Return whether what grew from 0 nats has not come back."""
    last = part.last_sixth if math.isfinite(part.last_sixth) else float(part.windows[2])
    return bool(last >= MIN_LEFT * np.nanmax(part.windows))


def _text_is_known(tails: Tails) -> bool:
    return bool(min(tails.text.window_tokens[0], tails.text.window_tokens[-1]) >= MIN_WINDOW_TOKENS)


def _rise(shift: TailShift, contrast: Contrast | None) -> LateRise | None:
    """Return the blocks that rose; None where no test was made."""
    if contrast is None:
        return None
    return LateRise(blocks=tuple(int(block) for block in contrast.after), factor=shift.factor, p_value=shift.p_value)


def _is_late(post: SliceTails, rise: LateRise) -> bool:
    """Return whether a rise begins in the last fifth of the blocks."""
    count = int(np.isfinite(post.percentiles["p99"].equal).sum())
    return len(rise.blocks) <= max(MIN_PART, round(MAX_END_SHARE * count))


def _jump_at_the_end(post: SliceTails, p_value: float) -> LateRise | None:
    """Return the last blocks if a tail doubled in them and had not risen before, or None.

    They are too few for a test to separate from noise, but a reader should know.
    """
    for part in post.percentiles.values():
        usable = np.flatnonzero(np.isfinite(part.equal))
        last = max(1, round(MAX_END_SHARE * len(usable)))
        before, after = (np.maximum(part.equal[blocks], FLOOR) for blocks in (usable[:-last], usable[-last:]))
        above = np.flatnonzero(after > before.max(initial=0.0))
        if not len(above) or after[above[0] :].min() < before.max():
            continue
        first, second = np.array_split(before, 2)
        if not len(first) or _level(second) >= LARGE_GROWTH * _level(first):  # it had risen before
            continue
        factor = _level(after[above[0] :]) / _level(before)
        if factor >= DOUBLED:
            return LateRise(blocks=tuple(usable[-last:][above[0] :].tolist()), factor=factor, p_value=p_value)
    return None


def _level(values: FloatArray) -> float:
    """Return the geometric mean."""
    return math.exp(float(np.log(values).mean()))


def _rare(tails: Tails, limits: Limits) -> JudgedTail | None:
    """Return the tail as it grew in a few tokens beyond p99; None where it did not."""
    rate = RARE_SHARE * limits["false_alarms"]
    text = tails.text.far if _text_is_known(tails) else None
    rise = rare_rise(tails.post.far, text, min_tokens=MIN_BLOCK_TOKENS)
    if rise is None or rise.growth_p >= rate or rise.units[1] < MIN_RARE_UNITS:
        return None
    if rise.after < MIN_RARE_GROWTH * rise.before or not _pooled_far_rose(tails.post.far, rise.limit):
        return None
    p99 = tails.post.percentiles["p99"]
    return JudgedTail(
        name="p99",
        post=p99,
        p_value=float(np.fmax(rise.growth_p, rise.excess_p)),
        growth_p=rise.growth_p,
        conditions={
            "growth": True,
            "localised": None if text is None else _rare_is_localised(tails, rise, text, limits),
            "lasting": _rare_lasts(tails.post.far, rise),
            "material": _rare_is_material(tails, rise, limits["material_p99"]),
        },
        rare=rise,
    )


def _pooled_far_rose(counts: BlockCounts, limit: float) -> bool:
    """Return whether more of the pooled late third's tokens lie beyond a limit than of the early one's."""
    third = max(1, len(counts.tokens) // 3)
    early, late = (counts.tokens[part].sum(axis=0)[None] for part in (slice(None, third), slice(-third, None)))
    shares = [float(share_beyond(part, limit)[0]) / max(1.0, float(part.sum())) for part in (early, late)]
    return shares[1] > shares[0]


def _rare_is_localised(tails: Tails, rise: RareRise, text: BlockCounts, limits: Limits) -> bool | None:
    """Return whether such tokens grew more after tools than in text and, if both grew, are mostly late post-tool ones.

    If text-only tokens also grew, beyond as many times their own bulk, they must have grown by a smaller factor: the
    same factor, within noise, is growth everywhere.
    """
    grew_alike = rise.other_p < MAX_TEXT_P
    if grew_alike and not rise.outgrew_p < MAX_OUTGREW_P:
        return False
    of_text = rare_rise(text, None, min_tokens=MIN_BLOCK_TOKENS)
    text_grew = of_text is not None and of_text.growth_p < MAX_TEXT_P
    held = _holds_tail(tails.post.far, text, np.array(rise.blocks), beyond=rise.limit)
    least = max(rise.excess_p, rise.outgrew_p) if grew_alike else rise.excess_p
    if least < RARE_PLACE_SHARE * limits["false_alarms"] and (held or not text_grew):
        return True
    return False if text_grew else None


def _rare_is_material(tails: Tails, rise: RareRise, limit: float) -> bool | None:
    """Return whether p99 lies above the limit, in the late window or in all that came after the rise."""
    drawn = drawn_percentiles(tails.post.far.tokens[list(rise.blocks)], 0.99)
    answers = [_above(tails.post.percentiles["p99"].windows_drawn[2], limit), _above(drawn, limit)]
    return True if True in answers else None if None in answers else False


def _rare_lasts(counts: BlockCounts, rise: RareRise) -> bool | None:
    """Return whether sequences this far out still occur in the last sixth; None if a few of them would decide.

    Enough of them means a count likelier at the later rate than at the earlier one (Poisson), not the full later rate:
    with few sequences, even less than half of it does not show that the tail came back.
    """
    units, tokens = share_beyond(counts.maxima, rise.limit), counts.tokens.sum(axis=1)
    last = slice(-max(1, len(units) // 6), None)
    later = float(tokens[list(rise.blocks)].sum())
    after = rise.units[1] / later
    before = min((rise.units[0] + 0.5) / max(1.0, tokens.sum() - later), 0.5 * after)
    exposed, seen = float(tokens[last].sum()), float(units[last].sum())
    if seen >= exposed * (after - before) / math.log(after / before):
        return True
    expected = 0.5 * (before + after) * exposed
    return False if seen + 1 < expected - 2 * math.sqrt(expected) else None


def _localised(tails: Tails, shift: TailShift, after: IntArray, rate: float) -> tuple[bool | None, float]:
    """Return whether post-tool tails outgrew text-only tails, by ratio or by nats, and the p-value of the clearer one.

    By nats only where most of the later tail lies after tools, and more of it than of the tokens, and where text-only
    tails did not grow by the same factor within noise: that is growth everywhere. `after`: the later blocks.
    """
    contrast, level = shift.contrast, scale_to(tails.text, tails.post, after)
    (post, text, scaled), noise = _as_tested(tails, (tails.post, tails.text, level), shift)
    ratio = shift if contrast is None else tail_shift(post, scaled, contrast, noise=noise)
    if contrast is None or math.isnan(ratio.p_value):
        return None, math.nan
    of_text = tail_shift(scaled, None, contrast, noise=noise)  # that text grew as well takes proof of its own
    text_grew = of_text.p_value < MAX_TEXT_P and of_text.factor >= MIN_GROWTH
    outgrew = _moved(ratio, rate)
    if text_grew and outgrew and not _p_where_text_grew(tails, level) < MAX_TEXT_P:
        ratio = replace(ratio, p_value=ratio_growth(tails.post, level, noise=_noise(tails)))
        outgrew = _moved(ratio, rate)
    if text_grew and not outgrew:  # then more nats follow from the same factor
        return (False if ratio.factor < LARGE_GROWTH else None), ratio.p_value
    held = _holds_tail(post.counts, text.counts, contrast.after, beyond=EXCESS_NATS)
    excess = excess_growth(post, text, contrast, noise=noise, margin=EXCESS_NATS) if held else None
    p_value = ratio.p_value if excess is None else float(np.fmin(ratio.p_value, excess.p_value))
    if outgrew or (excess is not None and excess.p_value < rate):
        return True, p_value
    if excess is not None and excess.nats > EXCESS_NATS:  # this much more, but noise could explain it
        return None, p_value
    return False if text_grew else None, p_value


def _p_where_text_grew(tails: Tails, text: SliceTails) -> float:
    """Return the p-value of the ratio's growth where text-only tails grew most: no noise of post-tool ones chose it."""
    shift = tail_growth(text, noise=_noise(tails))
    (post, text), noise = _as_tested(tails, (tails.post, text), shift)
    return math.nan if shift.contrast is None else tail_shift(post, text, shift.contrast, noise=noise).p_value


def _as_tested(tails: Tails, parts: Sequence[SliceTails], shift: TailShift) -> tuple[list[SliceTails], StepNoise]:
    """Return slices and noise by the blocks, or the groups of them, that a shift is between."""
    if not shift.grouped:
        return list(parts), _noise(tails)
    return [merge_blocks(part) for part in parts], _noise(tails).merged(grouped_blocks(len(tails.blocks)))


def _holds_tail(post: BlockCounts, text: BlockCounts, blocks: IntArray, *, beyond: float) -> bool:
    """Return whether most tokens this far out in some blocks follow a tool call, and more than of all tokens."""
    return _is_mostly_post(post, text, blocks, [share_beyond(part.tokens[blocks], beyond) for part in (post, text)])


def _holds_nats(post: BlockCounts, text: BlockCounts, blocks: IntArray, *, beyond: float) -> bool:
    """Return the same of the tail weighed by how far it reaches beyond: of levels, importance weights go with nats."""
    return _is_mostly_post(post, text, blocks, [nats_beyond(part.tokens[blocks], beyond) for part in (post, text)])


def _is_mostly_post(post: BlockCounts, text: BlockCounts, blocks: IntArray, far: list[FloatArray]) -> bool:
    post_far, text_far = (float(each.sum()) for each in far)
    tokens = [float(part.tokens[blocks].sum()) for part in (post, text)]
    both = post_far + text_far
    return both > 0 and post_far / both > max(0.5, tokens[0] / sum(tokens))


def _grew(post: SliceTails, shift: TailShift, rate: float, *, material: bool | None) -> bool | None:
    """Return whether the tail grew; None if it could not be tested, or large growth is barely within noise.

    A significant test that a few blocks could explain, or that the pooled thirds do not show, is neither a yes nor a
    no.
    """
    if shift.contrast is None or math.isnan(shift.p_value):  # too few blocks with tokens: no test was made
        return None
    if _moved(shift, rate):
        return True if _by_rank(post, shift.contrast) and _pooled_rose(post) else None
    if material is False:  # an immaterial tail that wobbles raises no doubt
        return False
    if shift.p_value < MAX_LATE_P and shift.factor >= LARGE_GROWTH and _by_rank(post, shift.contrast):
        return None
    most = max(part.growth() for part in post.percentiles.values())
    unsure = MAX_DOUBLED_P if _doubled(post) else MAX_UNSURE_P
    return None if most >= LARGE_GROWTH and shift.p_value < unsure else False


def _pooled_rose(post: SliceTails) -> bool:
    """Return whether the pooled late third lies above the early one, p95 and p99 together."""
    return math.prod(part.growth() for part in post.percentiles.values()) > 1.0


def _doubled(post: SliceTails) -> bool:
    """Return whether a percentile doubled, and rose by enough nats that its weights doubled too."""
    return any(
        part.growth() >= DOUBLED and float(part.windows[2] - part.windows[0]) > EXCESS_NATS
        for part in post.percentiles.values()
    )


def _may_have_grown(post: SliceTails, critical: float) -> bool:
    """Return whether a tail past the critical level may have grown by much, by the upper end of its growth interval.

    Otherwise one seed would say "no growth" where another of the same setting says "found".
    """
    p95 = post.percentiles["p95"]
    return bool(p95.windows[2] > critical) and p95.growth_interval()[1] > LARGE_GROWTH


def _moved(shift: TailShift, rate: float) -> bool:
    return shift.p_value < rate and shift.factor >= MIN_GROWTH


def _by_rank(post: SliceTails, contrast: Contrast) -> bool:
    """Return whether the later blocks lie above the earlier ones by rank as well, in p95 or p99: no few wild ones."""
    for percentile in post.percentiles.values():
        before, after = (percentile.equal[blocks] for blocks in (contrast.before, contrast.after))
        if rank_shift(before[np.isfinite(before)], after[np.isfinite(after)]) > MIN_RANK_SHIFT:
            return True
    return False


def _lasting(post: SliceTails, contrast: Contrast | None) -> dict[str, bool]:
    """Say, for each percentile that rose, whether its last sixth is still high; empty if that is unclear.

    Each counts by itself: a p99 that stays high matters even if p95 was never high.
    """
    answers = {name: _lasts(part, contrast) for name, part in post.percentiles.items()}
    return {name: answer for name, answer in answers.items() if answer is not None}


def _lasts(part: Percentile, contrast: Contrast | None) -> bool | None:
    """Return whether the last sixth lies above halfway, on the log scale, between what was before and the peak.

    None for a percentile that hardly rose.
    """
    last = part.last_sixth
    if not math.isfinite(last):
        return None
    windows = np.maximum(part.windows, FLOOR)
    before, peak = float(windows[0]), float(np.nanmax(windows))
    if contrast is not None:
        level = np.log(np.maximum(part.equal, FLOOR))
        thirds = np.array_split(level[contrast.after], max(1, min(3, len(contrast.after) // 3)))
        before, *after = (math.exp(_mean(values)) for values in (level[contrast.before], *thirds))
        peak, last = float(np.max(after, initial=0.0, where=np.isfinite(after))), float(np.fmax(last, after[-1]))
    return bool(last >= math.sqrt(before * peak)) if peak >= MIN_GROWTH * before else None


def _mean(values: FloatArray) -> float:
    """Return the mean of the finite values; NaN if a group of blocks has enough tokens but none of its blocks has."""
    finite = values[np.isfinite(values)]
    return float(np.mean(finite)) if len(finite) else math.nan


def _material(p99: Percentile, contrast: Contrast | None, limit: float) -> bool | None:
    """Return whether p99 lies above the limit, in the late window or, where fewer blocks rose, in these."""
    answers = [_above(p99.windows_drawn[2], limit)]
    if contrast is not None and len(contrast.after) < len(p99.blocks) // 3:
        risen = p99.drawn[contrast.after]
        risen = risen[np.isfinite(risen).all(axis=1)]  # of logs, so that an outlier block does not make the tail
        answers.append(_above(np.exp(np.log(np.maximum(risen, FLOOR)).mean(axis=0)), limit) if len(risen) else None)
    return True if True in answers else None if None in answers else False


def _above(drawn: FloatArray, limit: float) -> bool | None:
    """Return whether nine of ten resamples are above the limit; None if neither they nor nine of ten below are."""
    drawn = drawn[np.isfinite(drawn)]
    if not len(drawn):
        return None
    above = float((drawn > limit).mean())
    return True if above >= MIN_DRAWN_SHARE else False if above <= 1 - MIN_DRAWN_SHARE else None
