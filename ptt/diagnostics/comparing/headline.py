"""What a comparison says in one sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import polars as pl

from ptt.diagnostics.comparing.phrases import LABELS, against, times
from ptt.diagnostics.comparing.reading import identical, late_words, post_slice, tail_of
from ptt.diagnostics.comparing.values import Arm, NotCompared

NAMED: Final = 3  # arms in the sentence


def headline_of(arms: Sequence[Arm], tables: Mapping[str, pl.DataFrame], not_compared: Sequence[NotCompared]) -> str:
    """Give one sentence over all arms."""
    base, name = arms[0], post_slice(tables)
    judged = [arm for arm in arms[1:] if name and tail_of(tables, arm, base, name, "p95").known]
    if not name or not judged:
        return _without_tails(arms, tables, not_compared)
    bare = [arm.name for arm in arms[1:] if arm not in judged]
    rest = f" Not compared: late {LABELS.get(name, name)} tails of {', '.join(bare)}." if bare else ""
    if len(judged) == 1:
        return _one(judged[0], base, tables, name) + rest
    said = []
    copies = [arm.name for arm in judged if identical(tables, arm) is not None]
    if copies:
        said.append(f"identical to {base.name} to the last digit: {', '.join(copies)}")
        judged = [arm for arm in judged if arm.name not in copies]
    for word, phrase in (("lower", "below"), ("higher", "above"), ("alike", "level with")):
        held = [arm for arm in judged if _overall(tables, arm, base, name) == word]
        if held:
            told = ", ".join(f"{arm.name} {_short(tables, arm, base, name)}" for arm in held[:NAMED])
            more = f" and {len(held) - NAMED} more" if len(held) > NAMED else ""
            said.append(f"{phrase} {base.name}: {told}{more}" if word != "alike" else f"{phrase} it: {told}{more}")
    unsure = len(judged) - sum(_overall(tables, arm, base, name) in ("lower", "higher", "alike") for arm in judged)
    if unsure:
        said.append(
            f"{unsure} of {len(judged)} arms cannot be told apart from it" if said else "no arm can be told apart"
        )
    return f"Late {LABELS.get(name, name)} p95 of |r|: {'; '.join(said)}.{rest}"


def _one(arm: Arm, base: Arm, tables: Mapping[str, pl.DataFrame], name: str) -> str:
    p95, p99 = (tail_of(tables, arm, base, name, quantile) for quantile in ("p95", "p99"))
    label, word = LABELS.get(name, name), _overall(tables, arm, base, name)
    if (same := identical(tables, arm)) is not None:
        return f"{arm.name} and {base.name} are identical to the last digit in all that both log, up to step {same}."
    numbers = f"p95 {against(p95)}, p99 {against(p99)}"
    grew = f"; growth by p95 {times(p95.base_growth)} → {times(p95.growth)}" if math.isfinite(p95.growth) else ""
    if word == "lower":
        small = "" if p95.material or p99.material else " (both too small to matter)"
        return f"{arm.name} lies below {base.name} in late {label} tails{small}: {numbers}{grew}."
    if word == "higher":
        return f"{arm.name} lies above {base.name} in late {label} tails: {numbers}{grew}."
    if word == "alike":
        return f"{arm.name} and {base.name} are alike in late {label} tails: {numbers}."
    if word == "mixed":
        return f"{arm.name} against {base.name}: p95 and p99 of late {label} tails disagree: {numbers}{grew}."
    return f"{arm.name} and {base.name} cannot be told apart by late {label} tails: {numbers}."


def _overall(tables: Mapping[str, pl.DataFrame], arm: Arm, base: Arm, name: str) -> str:
    """Give what p95 and p99 say together: lower, higher, alike, mixed, cannot_say."""
    words = {tail_of(tables, arm, base, name, quantile).words for quantile in ("p95", "p99")}
    if {"lower", "higher"} <= words:
        return "mixed"
    for word in ("lower", "higher"):
        if word in words:
            return word
    return "alike" if words == {"alike"} else "cannot_say"


def _without_tails(arms: Sequence[Arm], tables: Mapping[str, pl.DataFrame], not_compared: Sequence[NotCompared]) -> str:
    why = _why_no_tails(arms, not_compared)
    reason = f"tails were not compared ({why})" if why else "tails after tools were not compared (no run has any)"
    if not any(late_words(tables, arm) for arm in arms[1:]):
        first = why or (not_compared[0].reason if not_compared else "no figure is shared")
        return f"Nothing could be compared: {first}."
    said = []
    for arm in arms[1:]:
        words = late_words(tables, arm)
        if (same := identical(tables, arm)) is not None:
            said.append(f"{arm.name} and {arms[0].name} are identical to the last digit up to step {same}")
            continue
        apart = [metric for metric, word in words.items() if word in ("higher", "lower")]
        told = sum(word != "cannot_say" for word in words.values())
        if told:
            unsure = f" ({len(words) - told} more cannot be told)" if told < len(words) else ""
            of = f"{len(apart)} of {told} metrics{unsure}"
            said.append(f"{arm.name} differs from {arms[0].name} late in the run in {of}")
        elif words:
            said.append(f"Of {len(words)} metrics of {arm.name} none can be told from those of {arms[0].name}")
    more = f" and of {len(said) - NAMED} more arms in the tables" if len(said) > NAMED else ""
    return f"{'; '.join(said[:NAMED])}{more}; {reason}."


def _why_no_tails(arms: Sequence[Arm], not_compared: Sequence[NotCompared]) -> str:
    """Give the reasons, each with the arm that it is of: one arm's is not another's."""
    of_all = [item.reason for item in not_compared if item.what in ("all steps", "tails", "tails over steps")]
    if of_all:
        return of_all[0]
    given: dict[str, str] = {}
    for arm in arms:
        for item in not_compared:
            if item.what.endswith(f"tails of {arm.name}") and not item.what.startswith(("when", "late text-only")):
                given.setdefault(arm.name, item.reason)
            elif item.what == f"all steps of {arm.name}":
                given[arm.name] = item.reason
    more = f"; and {len(given) - NAMED} more" if len(given) > NAMED else ""
    return "; ".join(f"{name}: {reason}" for name, reason in list(given.items())[:NAMED]) + more


def _short(tables: Mapping[str, pl.DataFrame], arm: Arm, base: Arm, name: str) -> str:
    """Tell both percentiles in a bracket; the second only where it says something else."""
    p95, p99 = (tail_of(tables, arm, base, name, quantile) for quantile in ("p95", "p99"))
    return f"({against(p95)})" if p99.words == p95.words else f"({against(p95)}; p99 {against(p99)})"
