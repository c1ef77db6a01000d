"""What the settings, the parts of the loop that are timed, and the engine's own lines tell of a mismatch's cause."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from ptt.diagnostics.evidence.machines import Event
from ptt.diagnostics.evidence.mismatch_causes import Sign, setting_signs, sign
from ptt.diagnostics.evidence.mismatch_rise import growth_of
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.evidence.training_setup import TrainingSetup
from ptt.diagnostics.metrics.name_words import words_of
from ptt.diagnostics.model import JsonScalar
from ptt.diagnostics.parsers.io.setup_files import DEFAULTS
from ptt.diagnostics.statistics.arrays import IntArray
from ptt.diagnostics.wording import sig

TIMED_SHARE: Final = 0.9  # of the steps at which the mismatch is logged
SYNC_GONE: Final = 0.1  # of the time that a weight update took before
HITS_GREW: Final = 10.0  # times: a cache that was not used before
TOLD_BY_METRICS: Final[Mapping[str, frozenset[str]]] = {
    "packs": frozenset({"packed", "packing"}),
    "experts": frozenset({"moe", "expert", "experts", "router", "routing"}),
    "turns": frozenset({"turns", "tool", "tools"}),
}
"""By sign: words of metrics that are logged where it holds; settings tell it better."""
OF_EVALUATION: Final = re.compile(
    r"(?:^|[._])(?:eval|evaluation|val|validation|val_kwargs|test|judge|teacher|critic)[._]"
    r"|(?:^|\.)(?:reward|rm|ref|user|verifier)(?:_[^.]*)?\."
)
"""Parts of a setting's name that are of evaluation, or of another model than the one that is trained."""
NONE: Final = r"(?!\s?[:=] ?(?:0(?![.\d])|none\b|\[\]|\{\}|set\(\)))"  # after a count or list of faults: there are none
TOLD: Final[Mapping[str, re.Pattern[str]]] = {
    "not_loaded": re.compile(
        rf"(?i)failed to load (?:\w+ )?weights|(?:missing|unexpected) (?:\w+ ){{0,2}}keys?\b{NONE}"
        r"|weights? .{0,120}\bnot (?:loaded|initialized)"
    ),
    "not_placed": re.compile(r"(?i)\bnot found in params_dict\b"),
    "adapter_ignored": re.compile(r"(?i)\blora\b.{0,250}\bwill be ignored\b"),
    "replay_missing": re.compile(
        rf"(?i)\b(?:router|routing|routed.experts?)\b.{{0,60}}\b(?:fallback|fell back|missing)\b{NONE}"
    ),
    "cache_stays": re.compile(
        r"(?i)(?:reset_prefix_cache|flush_cache|(?:reset|clear|flush)\w* .{0,20}(?:prefix|kv|radix).cache)"
        rf".{{0,60}}\b(?:not|fail\w*|skip\w*|ignor\w*|unsupported)\b{NONE}"
        rf"|\bcache (?:flush failed|not flushed)\b{NONE}"
    ),
    "across_nodes": re.compile(r"(?i)process group spans across nodes"),
    "not_finite": re.compile(r"(?i)JSON compliant: -?(?:nan|inf)|\b(?:logits?|log_?probs?)\b.{0,60}\b(?:nan|inf)\b"),
}
"""Lines in which an engine says that weights, caches or numbers are not what they should be, by the sign."""
OFF: Final = ("disabled", "false", "off", "no", "0", "full")
"""Values that turn a setting off; `full`: all weights are trained, and no adapter."""
HALVES: Final = {"bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16", "float16": "fp16", "half": "fp16"}
"""Number types of 16 bits; weights kept in 32 say nothing of what is computed with."""
UNSET: Final = ("none", "null", "auto", "")  # neither on nor off
MAX_LINE: Final = 100
TURNS_GREW: Final = 1.5  # times the turns of the first episodes: boundaries between turns then weigh as much more


def configured_signs(
    setup: TrainingSetup, other: Mapping[str, Series], level: Series, off: IntArray, *, within: bool, single: bool
) -> Iterator[Sign]:
    """Yield what the settings tell, and which parts of the loop the log times; single: single tokens alone are off."""
    told, given = set[str](), set[str]()
    for name, asked in setting_signs().items():
        if asked.get("framework") not in (None, setup.framework) or given.intersection(asked.get("unless", ())):
            continue
        if "beside" in asked and not given.intersection(asked["beside"]):
            continue
        others = [value for _, value in _written(setup, asked.get("other", ()))]
        for key, value in _written(setup, asked["settings"]):
            told.update(asked["settings"])
            if _holds(asked, value, others):
                yield sign(name, setting=f"{key}={value}")
                given.add(name)
                break
    if "splits_rows" in given and single:
        yield sign("split_tokens")
    for series in other.values():
        words = words_of(series.raw_name)
        if (words & {"sync", "refit"} or words >= {"update", "weights"}) and _each_step(series, level):
            yield _synced(series, off) if len(off) else sign("synced_each_step", name=series.raw_name)
            break
    yield from _cache_hits(other, off)
    for name, words in TOLD_BY_METRICS.items():
        logged = next((one for one in other.values() if words_of(one.raw_name) & words), None)
        if logged is not None and not told.intersection(setting_signs().get(name, {}).get("settings", ())):
            yield sign(name, setting=logged.raw_name)
        if name == "turns" and logged is not None and within and growth_of(logged) >= TURNS_GREW:
            yield sign("turns_grew", name=logged.raw_name)


def _cache_hits(other: Mapping[str, Series], off: IntArray) -> Iterator[Sign]:
    """Look for a prefix cache that is hit where both sides differ, and hardly was before."""
    for series in other.values():
        if words_of(series.raw_name) >= {"cache", "hit"} and len(off):
            steps, values = series.finite()
            before, after = values[steps < off[0]], values[steps >= off[0]]
            if len(before) and len(after) and float(np.median(after)) > HITS_GREW * float(np.median(before)):
                first, late = sig(float(np.median(before))), sig(float(np.median(after)))
                yield sign("cache_hits", name=series.raw_name, first=first, late=late)
                return


def _written(setup: TrainingSetup, names: Sequence[str]) -> Iterator[tuple[str, JsonScalar]]:
    """Yield the settings of these names, wherever they stand, but for those of evaluation and of other models.

    What an engine takes where a request names nothing counts where no other setting does.
    """
    for name in names:
        found = {
            key: value
            for key, value in setup.settings.items()
            if (key == name or key.endswith(f".{name}")) and not OF_EVALUATION.search(key)
        }
        asked = {key: value for key, value in found.items() if not key.startswith(DEFAULTS)}
        yield from (found if all(value is None for value in asked.values()) else asked).items()


def _holds(asked: Mapping[str, Any], value: JsonScalar, others: Sequence[JsonScalar]) -> bool:
    """Return whether a value is what a sign asks for; a number above 0 is turned on.

    others: of the settings that a sign compares with: `exceeds` them all, or another `number type` than one of them.
    """
    number = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    if asked.get("compares") == "exceeds":
        sizes = [one for one in others if isinstance(one, (int, float)) and not isinstance(one, bool)]
        return number is not None and bool(sizes) and number > max(sizes)
    if asked.get("compares") == "number type":
        kinds = {HALVES.get(str(one).lower().removeprefix("torch.")) for one in others} - {None}
        own = HALVES.get(str(value).lower().removeprefix("torch."))
        return own is not None and bool(kinds) and own not in kinds
    if "on" in asked:
        turned = number > 0 if number is not None else str(value).lower() not in OFF
        return str(value).lower() not in UNSET and turned is bool(asked["on"])
    if "above" in asked:
        return number is not None and float(asked["above"]) < number < float(asked.get("below", math.inf))
    if "differs" in asked:
        return number is not None and number != float(asked["differs"])
    if "is" in asked:
        return number == float(asked["is"])
    return value is not None and any(word in str(value).lower() for word in asked["holds"])


def _synced(series: Series, off: IntArray) -> Sign:
    """Return what the times of weight updates tell: that they are made, or that none is where both sides differ."""
    steps, values = series.finite()
    before, after = values[steps < off[0]], values[steps >= off[0]]
    if len(before) and len(after):
        first, late = float(np.median(before)), float(np.median(after))
        if late < SYNC_GONE * first:
            return sign("sync_gone", name=series.raw_name, first=sig(first), late=sig(late))
    return sign("synced_each_step", name=series.raw_name)


def _each_step(series: Series, level: Series) -> bool:
    return len(series.finite()[0]) >= TIMED_SHARE * len(level.steps)


def frozen_signs(metrics: Mapping[str, Series]) -> Iterator[Sign]:
    """Look for a run whose weights never move, as in an A/B without updates: nothing that they bring about is there."""
    rate = metrics.get("lr")
    if rate is not None and len(values := rate.finite()[1]) and not values.any():
        yield sign("frozen", name=rate.raw_name)


def told_signs(events: Sequence[Event]) -> Iterator[Sign]:
    """Look for lines in which the engine says what is wrong: with weights that were sent, its cache, its numbers."""
    for name, pattern in TOLD.items():
        line = next((one for one in events if pattern.search(one.text)), None)
        if line is not None:
            yield sign(name, line=line.text[:MAX_LINE])
