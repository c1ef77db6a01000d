"""What a comparison says of each arm, most telling first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Final

import polars as pl

from ptt.diagnostics.compare.comparison import (
    ASKED_FIRST,
    EQUIVALENCE_FACTOR,
    LABELS,
    MIN_LOG_RATIO,
    SAME,
    Arm,
    NotCompared,
    Tail,
    by_interest,
    figure_name,
    first_of,
    identical,
    late_others,
    late_reach,
    late_steps,
    late_words,
    metric_name,
    nats,
    post_slice,
    ratio_words,
    sided,
    sided_words,
    tail_of,
    times,
)
from ptt.diagnostics.compare.confounders import confounders_of, confounders_of_training, means
from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.model import CAUSES
from ptt.diagnostics.wording import pct

MAX_NAMED_ARMS: Final = 3  # arms in the sentence


def headline_of(arms: Sequence[Arm], tables: Mapping[str, pl.DataFrame], not_compared: Sequence[NotCompared]) -> str:
    """Return one sentence over all arms."""
    base, name = arms[0], post_slice(tables)
    judged = [arm for arm in arms[1:] if name and tail_of(tables, arm, base, name, "p95").known]
    if not name or not judged:
        return _without_tails(arms, tables, not_compared)
    bare = [arm.name for arm in arms[1:] if arm not in judged]
    rest = f" Not compared: late {LABELS.get(name, name)} tails of {', '.join(bare)}." if bare else ""
    if len(judged) == 1:
        return _one_arm(judged[0], base, tables, name) + rest
    said = []
    copies = [arm.name for arm in judged if identical(tables, arm) is not None]
    if copies:
        said.append(f"identical to {base.name} to the last digit: {', '.join(copies)}")
        judged = [arm for arm in judged if arm.name not in copies]
    for word, phrase in (("lower", "below"), ("higher", "above"), ("alike", "level with")):
        matching = [arm for arm in judged if _overall(tables, arm, base, name) == word]
        if matching:
            shown = first_of(
                [f"{arm.name} {_tail_ratios(tables, arm, base, name)}" for arm in matching], MAX_NAMED_ARMS
            )
            said.append(f"{phrase} {base.name if word != 'alike' else 'it'}: {shown}")
    unsure = len(judged) - sum(_overall(tables, arm, base, name) in ("lower", "higher", "alike") for arm in judged)
    if unsure:
        said.append(
            f"{unsure} of {len(judged)} arms show no clear difference" if said else "no arm shows a clear difference"
        )
    return f"Late {LABELS.get(name, name)} p95 of |r|: {'; '.join(said)}.{rest}"


def _one_arm(arm: Arm, base: Arm, tables: Mapping[str, pl.DataFrame], name: str) -> str:
    p95, p99 = (tail_of(tables, arm, base, name, quantile) for quantile in ("p95", "p99"))
    label, word = LABELS.get(name, name), _overall(tables, arm, base, name)
    if (same := identical(tables, arm)) is not None:
        return f"{arm.name} and {base.name} are identical to the last digit in all that both log, up to step {same}."
    numbers = f"p95 {ratio_words(p95)}, p99 {ratio_words(p99)}"
    grew = f"; growth by p95 {times(p95.base_growth)} → {times(p95.growth)}" if math.isfinite(p95.growth) else ""
    if word == "lower":
        small = "" if p95.material or p99.material else " (both too small to matter)"
        return f"{arm.name} has lighter late {label} tails than {base.name}{small}: {numbers}{grew}."
    if word == "higher":
        return f"{arm.name} has heavier late {label} tails than {base.name}: {numbers}{grew}."
    if word == "alike":
        return f"{arm.name} and {base.name} have equally heavy late {label} tails: {numbers}."
    if word == "mixed":
        return f"{arm.name} against {base.name}: p95 and p99 of late {label} tails disagree: {numbers}{grew}."
    return f"{arm.name} and {base.name} show no clear difference in late {label} tails: {numbers}."


def _overall(tables: Mapping[str, pl.DataFrame], arm: Arm, base: Arm, name: str) -> str:
    """Return what p95 and p99 say together: lower, higher, alike, mixed, cannot_say."""
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
        different = [metric for metric, word in words.items() if word in ("higher", "lower")]
        known = sum(word != "cannot_say" for word in words.values())
        if known:
            unsure = f" ({len(words) - known} more are too noisy to compare)" if known < len(words) else ""
            of = f"{len(different)} of {known} metrics{unsure}"
            said.append(f"{arm.name} differs from {arms[0].name} late in the run in {of}")
        elif words:
            said.append(f"{arm.name} shows no clear difference from {arms[0].name} in any of {len(words)} metrics")
    more = f" and of {len(said) - MAX_NAMED_ARMS} more arms in the tables" if len(said) > MAX_NAMED_ARMS else ""
    return f"{'; '.join(said[:MAX_NAMED_ARMS])}{more}; {reason}."


def _why_no_tails(arms: Sequence[Arm], not_compared: Sequence[NotCompared]) -> str:
    """Return the reasons, each with the arm that it is of: one arm's is not another's."""
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
    more = f"; and {len(given) - MAX_NAMED_ARMS} more" if len(given) > MAX_NAMED_ARMS else ""
    return "; ".join(f"{name}: {reason}" for name, reason in list(given.items())[:MAX_NAMED_ARMS]) + more


def _tail_ratios(tables: Mapping[str, pl.DataFrame], arm: Arm, base: Arm, name: str) -> str:
    """Return both percentiles in a bracket; the second only where it says something else."""
    p95, p99 = (tail_of(tables, arm, base, name, quantile) for quantile in ("p95", "p99"))
    return f"({ratio_words(p95)})" if p99.words == p95.words else f"({ratio_words(p95)}; p99 {ratio_words(p99)})"


MAX_NAMED_METRICS: Final = 6  # metrics in a sentence
RARER_RATIO: Final = 2.0  # times more that p95 fell than p99 did: then large ratios are rarer rather than smaller
MIN_UPDATE_SHARE: Final = 0.01  # of the tokens or the update: shares of less are alike
RESTS_ON: Final = {
    "half_tokens": "half of the update comes from {} of the tokens, against {}",
    "tail_share": "tokens with |r| above 2 nats hold {} of it, against {}",
}
"""What a ledger says of an update, and how a comparison says it."""
NO_CAUSE: Final = "none of the causes asked about"
ONE_SEED: Final = (
    "One run on either side: the intervals cover the noise within these runs, not the spread between seeds of one "
    "setting"
)


@dataclass(frozen=True, kw_only=True)
class Sentences:
    """What a comparison says: all of it, and of that what keeps a difference from being a setting's merit."""

    sentences: tuple[str, ...]
    cautions: tuple[str, ...]


def sentences_of(
    arms: Sequence[Arm], tables: Mapping[str, pl.DataFrame], slices: Mapping[str, Sequence[str]]
) -> Sentences:
    """Return what each arm shows against the baseline, arm by arm, and what holds of all."""
    base, name = arms[0], post_slice(tables)
    said: list[str] = []
    cautions: list[str] = []
    for arm in arms[1:]:
        caveats = confounders_of(arm, base, tables, name)
        if arm.name in set(tables["aggregates"]["arm"]):  # of an arm that is not compared nothing needs a caution
            caveats += confounders_of_training(arm, base)
        if identical(tables, arm) is not None:  # no factor of 1 and no metric that is alike says more
            said += _divergence(arm, tables) + caveats
            cautions += caveats
            continue
        if name and name in slices.get(arm.name, ()):
            said += _tails(arm, base, tables, name)
            said += _what_tails_follow(arm, base)
            caveats = [*_rarer_but_as_large(arm, base, tables, name), *caveats]
        said += _metrics(arm, base, tables)
        said += _other_quantities(arm, tables)
        said += _update(arm, base)
        said += caveats
        cautions += caveats
        said += _divergence(arm, tables)
        said += _machine(arm, base, tables)
    if tables["windows"].height and all(len(arm.members) == 1 for arm in arms):
        said.append(ONE_SEED)
    return Sentences(sentences=tuple(f"{line}." for line in said), cautions=tuple(f"{line}." for line in cautions))


def _tails(arm: Arm, base: Arm, tables: Mapping[str, pl.DataFrame], name: str) -> list[str]:
    p95, p99 = (tail_of(tables, arm, base, name, quantile) for quantile in ("p95", "p99"))
    label = LABELS.get(name, name)
    if not p95.known and not p99.known:
        return []
    levels = [
        f"{nats(tail.late)}{unit} against {nats(tail.base_late)} ({ratio_words(tail)})"
        for tail, unit in ((p95, " nats"), (p99, ""))
    ]
    said = [f"{arm.name}: late {label} p95 of |r|{_in_brackets(late_reach(tables))} is {levels[0]}, p99 {levels[1]}"]
    said += _growth(arm, p95, p99, label)
    if "text_only" in set(tables["windows"]["slice"]):
        text = tail_of(tables, arm, base, "text_only", "p95")
        if text.known and text.words in ("lower", "higher") and p95.words == text.words and text.material:
            said.append(
                f"{arm.name}: text-only p95 differs too ({ratio_words(text)}), so the change is not limited to tools"
            )
    tokens = tail_of(tables, arm, base, name, "p95", axis="tokens")
    if tokens.known and tokens.words != p95.words and "alike" not in (tokens.words, p95.words):
        said.append(f"{arm.name}: matched by model tokens instead of steps, p95 is {ratio_words(tokens)}")
    return said


def _what_tails_follow(arm: Arm, base: Arm) -> list[str]:
    """Say it where an arm's late tail follows another cause than the baseline's; nothing where neither is known."""
    own, of_base = _followed(arm), _followed(base)
    if not own or not of_base or own.keys() == of_base.keys():
        return []
    words = []
    for cause, shares in (*own.items(), *of_base.items()):
        part = f" ({', '.join(map(pct, shares))} of it)" if shares else ""
        words.append(CAUSES.get(cause, NO_CAUSE) + part)
    return [f"{arm.name}: its late tail after tools follows {words[0]}, that of {base.name} {words[1]}"]


def _followed(arm: Arm) -> dict[str, list[float]]:
    """Return what the late tails of an arm's runs follow, if all of those do that are known, with their shares."""
    known = [member.diagnosis.support for member in arm.members if member.diagnosis.support is not None]
    causes = {support.follows for support in known} - {"cannot_tell"}
    if len(causes) != 1:
        return {}
    (cause,) = causes
    shares = (share for support in known if support.follows == cause for share in support.shares)
    return {cause: [share.share for share in shares if share.cause == cause and share.share is not None]}


def _rarer_but_as_large(arm: Arm, base: Arm, tables: Mapping[str, pl.DataFrame], name: str) -> list[str]:
    """Return where the largest ratios are as large as ever, or nearly so: the arm is not safe, only seldom hit."""
    p95, p99 = (tail_of(tables, arm, base, name, quantile) for quantile in ("p95", "p99"))
    if p95.words != "lower" or not p99.late >= MIN_LOG_RATIO:
        return []
    if p99.words != "lower":
        return [f"{arm.name}: p99 is not lower beyond noise, at {nats(p99.late)} nats: large ratios are only rarer"]
    if p95.ratio > RARER_RATIO * p99.ratio:
        reaches = f"{arm.name}: p99 fell less than p95 and still reaches {nats(p99.late)} nats"
        return [f"{reaches}: large ratios are rarer rather than smaller"]
    return []


def _growth(arm: Arm, p95: Tail, p99: Tail, label: str) -> list[str]:
    """Describe growth beside level: an arm that starts low and ends low may have grown by the same factor."""
    if not math.isfinite(p95.growth) or not math.isfinite(p95.base_growth):
        return []
    both = "; ".join(
        f"{quantile} {times(tail.growth)} against {times(tail.base_growth)} ({_suppressed(tail)})"
        for quantile, tail in (("p95", p95), ("p99", p99))
        if math.isfinite(tail.growth) and math.isfinite(tail.base_growth)
    )
    said = [f"{arm.name}: {label} growth, late over early: {both}"]
    less = [quantile for quantile, tail in (("p95", p95), ("p99", p99)) if tail.growth_words == "lower"]
    more = [quantile for quantile, tail in (("p95", p95), ("p99", p99)) if tail.growth_words == "higher"]
    if p95.words == "lower" and more:
        said.append(f"{arm.name}: level and growth disagree: it lies lower, but its {' and '.join(more)} grew by more")
    elif p95.words == "lower" and not less:
        said.append(f"{arm.name}: it lies lower from the start; whether it grew by less is within noise")
    return said


def _in_brackets(steps: str) -> str:
    return f" ({steps})" if steps else ""


def _suppressed(tail: Tail) -> str:
    """Return growth against the baseline's; less of it is suppression only where the level came out lower as well."""
    if not math.isfinite(tail.suppression_low):
        return "no interval"
    suppression = sided(tail.suppression, tail.suppression_low, tail.suppression_high, ("less", "more"))
    if suppression.side == "less" and tail.words == "lower":
        return f"suppressed {sided_words(replace(suppression, side=''))}"
    return sided_words(suppression)


def _metrics(arm: Arm, base: Arm, tables: Mapping[str, pl.DataFrame]) -> list[str]:
    words = late_words(tables, arm)
    if not words:
        return []
    similar = [metric_name(metric) for metric in ASKED_FIRST if words.get(metric) == "alike"]
    unsure, late = sum(word == "cannot_say" for word in words.values()), _in_brackets(late_steps(tables))
    if unsure == len(words):
        return [f"{arm.name}: late in the run{late} none of {len(words)} metrics clearly differs from the baseline"]
    parts = [_differing_metrics(arm, base, tables, words) or "no metric clearly differs"]
    if similar:
        parts.append(f"unchanged: {', '.join(similar)}")
    if unsure:
        parts.append(f"{unsure} of {len(words)} metrics are too noisy to compare")
    return [f"{arm.name}: late in the run{late} {'; '.join(parts)}"]


def _other_quantities(arm: Arm, tables: Mapping[str, pl.DataFrame]) -> list[str]:
    others = late_others(tables, arm)
    return [
        f"{arm.name}: {metric_name(metric)} is not compared, as it is {others[metric]}"
        for metric in by_interest(others)
    ]


def _update(arm: Arm, base: Arm) -> list[str]:
    """Return how far apart the arms' updates lie in what they rest on: beyond the spread of their runs, and clearly."""
    ledgers = [
        [member.diagnosis.ledger for member in one.members if member.diagnosis.ledger is not None]
        for one in (arm, base)
    ]
    said = []
    for name, words in RESTS_ON.items():
        own, others = ([value for one in of if (value := getattr(one, name)) is not None] for of in ledgers)
        if not own or not others or not (min(own) > max(others) or min(others) > max(own)):
            continue
        levels = [median(own), median(others)]
        if min(levels) * EQUIVALENCE_FACTOR < max(levels) and max(levels) >= MIN_UPDATE_SHARE:
            said.append(words.format(*map(pct, levels)))
    return [f"{arm.name}: since its finding began, {'; '.join(said)}"] if said else []


def _machine(arm: Arm, base: Arm, tables: Mapping[str, pl.DataFrame]) -> list[str]:
    """Return what the machines did apart from what training did: two runs of one seed differ in it."""
    differing = _differing_metrics(arm, base, tables, late_words(tables, arm, kind="machine"))
    return [f"{arm.name}: on the machine side, {differing}"] if differing else []


def _differing_metrics(arm: Arm, base: Arm, tables: Mapping[str, pl.DataFrame], words: Mapping[str, str]) -> str:
    differing = by_interest(metric for metric, word in words.items() if word in ("higher", "lower"))
    shown = [f"{metric_name(metric)} {words[metric]} ({means(tables, arm, base, metric)})" for metric in differing]
    return first_of(shown, MAX_NAMED_METRICS)


def _divergence(arm: Arm, tables: Mapping[str, pl.DataFrame]) -> list[str]:
    rows = tables["divergence"].filter(pl.col("arm") == arm.name)
    said = [f"{arm.name}: {row['words']}" for row in rows.filter(pl.col("what") == SAME).iter_rows(named=True)]
    first = rows.filter(pl.col("what") != SAME)
    if first.height and first["step"][0] is None:
        named = ", ".join(figure_name(row) for row in first.head(MAX_NAMED_METRICS).iter_rows(named=True))
        said.append(f"{arm.name}: left the baseline for good, at an unknown step: {named}")
    elif first.height:
        row, undated = first.row(0, named=True), first.filter(pl.col("step").is_null()).height
        beside = f"; {undated} more left at an unknown step" if undated else ""
        said.append(
            f"{arm.name}: the first figure to leave the baseline for good is {figure_name(row)}, at step "
            f"{row['step']} ({row['low']} to {row['high']}){beside}"
        )
    return said
