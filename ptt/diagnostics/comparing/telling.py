"""What a comparison says: one headline, and a few sentences for each arm, most telling first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import polars as pl

from ptt.diagnostics.comparing.divergence import SAME
from ptt.diagnostics.comparing.reading import MATERIAL, Tail, late_mean, late_words, post_slice, tail_of
from ptt.diagnostics.comparing.values import Arm, NotCompared

NAMED: Final = 3  # arms or metrics in a sentence
METRICS: Final = {
    "kl/ref": "mean KL",
    "reward/mean": "reward",
    "grad_norm": "gradient norm",
    "loss/total": "loss",
    "len/response_mean": "response length",
    "tools/call_frequency": "tool use",
}
LABELS: Final = {"post_tool": "post-tool", "post_observation": "post-observation", "text_only": "text-only"}
EASIER: Final = ("reward/mean", "tools/call_frequency")
RARER: Final = 2.0  # times more that p95 fell than p99 did: then large ratios are rarer rather than smaller
ONE_SEED: Final = (
    "one run on either side: the intervals know the noise within these runs, not how far seeds of one setting lie apart"
)


def headline_of(arms: Sequence[Arm], tables: Mapping[str, pl.DataFrame], not_compared: Sequence[NotCompared]) -> str:
    """Give one sentence over all arms."""
    base, name = arms[0], post_slice(tables)
    judged = [arm for arm in arms[1:] if name and tail_of(tables, arm, base, name, "p95").known]
    if not name or not judged:
        return _without_tails(arms, tables, not_compared)
    if len(judged) == 1:
        return _one(judged[0], base, tables, name)
    said = []
    for word, phrase in (("lower", "below"), ("higher", "above"), ("alike", "level with")):
        held = [arm for arm in judged if _overall(tables, arm, base, name) == word]
        if held:
            told = ", ".join(f"{arm.name} {_short(tail_of(tables, arm, base, name, 'p95'))}" for arm in held[:NAMED])
            more = f" and {len(held) - NAMED} more" if len(held) > NAMED else ""
            said.append(f"{phrase} {base.name}: {told}{more}" if word != "alike" else f"{phrase} it: {told}{more}")
    unsure = len(judged) - sum(_overall(tables, arm, base, name) in ("lower", "higher", "alike") for arm in judged)
    if unsure:
        said.append(f"{unsure} of {len(judged)} arms cannot be told apart from it" if said else "no arm can be told apart")
    return f"late {LABELS.get(name, name)} p95 of |r|: {'; '.join(said)}."


def sentences_of(
    arms: Sequence[Arm], tables: Mapping[str, pl.DataFrame], slices: Mapping[str, Sequence[str]]
) -> tuple[str, ...]:
    """Give what each arm shows against the baseline, arm by arm, and what holds of all."""
    base, name = arms[0], post_slice(tables)
    said: list[str] = []
    for arm in arms[1:]:
        if name and name in slices.get(arm.name, ()):
            said += _tails(arm, base, tables, name)
        said += _metrics(arm, base, tables)
        said += _cautions(arm, base, tables, name)
        said += _first_to_leave(arm, tables)
    if tables["windows"].height and all(len(arm.members) == 1 for arm in arms):
        said.append(ONE_SEED)
    return tuple(f"{line[0].upper() if line.startswith('one ') else line[0]}{line[1:]}." for line in said)


def _one(arm: Arm, base: Arm, tables: Mapping[str, pl.DataFrame], name: str) -> str:
    p95, p99 = (tail_of(tables, arm, base, name, quantile) for quantile in ("p95", "p99"))
    label, word = LABELS.get(name, name), _overall(tables, arm, base, name)
    numbers = f"p95 {_against(p95)}, p99 {_against(p99)}"
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


def _without_tails(
    arms: Sequence[Arm], tables: Mapping[str, pl.DataFrame], not_compared: Sequence[NotCompared]
) -> str:
    why = next((item.reason for item in not_compared if "tails" in item.what), "")
    reason = f"tails were not compared ({why})" if why else "tails after tools were not compared"
    if tables["aggregate_differences"].is_empty():
        return f"nothing could be compared: {not_compared[0].reason if not_compared else 'no figure is shared'}."
    said = []
    for arm in arms[1:]:
        words = late_words(tables, arm)
        apart = [metric for metric, word in words.items() if word in ("higher", "lower")]
        if words:
            said.append(f"{arm.name} differs from {arms[0].name} late in the run in {len(apart)} of {len(words)} metrics")
    return f"{'; '.join(said[:NAMED])}; {reason}."


def _tails(arm: Arm, base: Arm, tables: Mapping[str, pl.DataFrame], name: str) -> list[str]:
    p95, p99 = (tail_of(tables, arm, base, name, quantile) for quantile in ("p95", "p99"))
    label = LABELS.get(name, name)
    if not p95.known and not p99.known:
        return []
    said = [
        f"{arm.name}: late {label} p95 of |r| is {nats(p95.late)} nats against {nats(p95.base_late)} ({_against(p95)}), "
        f"p99 {nats(p99.late)} against {nats(p99.base_late)} ({_against(p99)})"
    ]
    if p95.words == "lower" and p99.late >= MATERIAL:
        if p99.words != "lower":
            said.append(f"{arm.name}: p99 is not lower beyond noise, at {nats(p99.late)} nats: large ratios are rarer only")
        elif p95.ratio > RARER * p99.ratio:
            said.append(f"{arm.name}: p99 fell less than p95 and still reaches {nats(p99.late)} nats: large ratios are "
                        "rarer rather than smaller")  # fmt: skip
    said += _growth(arm, p95, p99, label)
    if "text_only" in set(tables["windows"]["slice"]):
        text = tail_of(tables, arm, base, "text_only", "p95")
        if text.known and text.words in ("lower", "higher") and p95.words == text.words and text.material:
            said.append(f"{arm.name}: text-only p95 differs too ({_against(text)}): not after tools alone")
    tokens = tail_of(tables, arm, base, name, "p95", axis="tokens")
    if tokens.known and tokens.words != p95.words and "alike" not in (tokens.words, p95.words):
        said.append(f"{arm.name}: matched by model tokens instead of steps, p95 is {_against(tokens)}")
    return said


def _growth(arm: Arm, p95: Tail, p99: Tail, label: str) -> list[str]:
    """Tell growth beside level: an arm that starts low and ends low may have grown by the same factor."""
    if not math.isfinite(p95.growth) or not math.isfinite(p95.base_growth):
        return []
    both = "; ".join(
        f"{quantile} {times(tail.base_growth)} → {times(tail.growth)} ({_suppressed(tail)})"
        for quantile, tail in (("p95", p95), ("p99", p99))
        if math.isfinite(tail.growth) and math.isfinite(tail.base_growth)
    )
    said = [f"{arm.name}: {label} growth, late over early: {both}"]
    words = {tail.growth_words for tail in (p95, p99)}
    if p95.words == "lower" and "lower" not in words:
        said.append(f"{arm.name}: it lies lower from the start rather than growing less")
    elif p95.words == "lower" and "higher" in words:
        said.append(f"{arm.name}: level and growth disagree: it ends lower, but grew by more in one percentile")
    return said


def _suppressed(tail: Tail) -> str:
    if not math.isfinite(tail.suppression_low):
        return "no interval"
    bounds = f"{times(tail.suppression_low)} to {times(tail.suppression_high)}"
    return f"suppressed {times(tail.suppression)}, {bounds}"


def _metrics(arm: Arm, base: Arm, tables: Mapping[str, pl.DataFrame]) -> list[str]:
    words = late_words(tables, arm)
    if not words:
        return []
    apart = [metric for metric, word in words.items() if word in ("higher", "lower")]
    apart.sort(key=lambda metric: (list(METRICS).index(metric) if metric in METRICS else len(METRICS), metric))
    told = [
        f"{METRICS.get(metric, metric)} {words[metric]} ({_number(late_mean(tables, arm, metric))} against "
        f"{_number(late_mean(tables, base, metric))})"
        for metric in apart[: 2 * NAMED]
    ]
    alike = [METRICS.get(metric, metric) for metric in METRICS if words.get(metric) == "alike"]
    more = f" and {len(apart) - 2 * NAMED} more" if len(apart) > 2 * NAMED else ""
    unsure = sum(word == "cannot_say" for word in words.values())
    parts = [", ".join(told) + more] if told else ["no metric differs beyond noise"]
    if alike:
        parts.append(f"alike: {', '.join(alike)}")
    if unsure:
        parts.append(f"{unsure} of {len(words)} metrics cannot be told")
    return [f"{arm.name}: late in the run {'; '.join(parts)}"]


def _cautions(arm: Arm, base: Arm, tables: Mapping[str, pl.DataFrame], name: str | None) -> list[str]:
    """Say where an arm has it easier, so that smaller tails are not all its setting's merit."""
    words = late_words(tables, arm)
    said = []
    if name and tail_of(tables, arm, base, name, "p95").words == "lower":
        if words.get("reward/mean") == "higher":
            gradient = ", with a smaller gradient norm" if words.get("grad_norm") == "lower" else ""
            said.append(
                f"{arm.name}: its reward is higher ({_pair(tables, arm, base, 'reward/mean')}){gradient}: an easier task "
                "drifts less by itself, so part of the difference may be the task's"
            )
        elif words.get("reward/mean") == "lower":
            said.append(f"{arm.name}: its reward is lower ({_pair(tables, arm, base, 'reward/mean')}): it may drift less "
                        "because it learnt less")  # fmt: skip
        if words.get("tools/call_frequency") == "lower":
            said.append(f"{arm.name}: it uses tools less ({_pair(tables, arm, base, 'tools/call_frequency')})")
    mine, theirs = ({member.source for member in one.members if member.source} for one in (arm, base))
    if mine & theirs:
        said.append(f"{arm.name}: holds the same files as {base.name}; there is nothing to compare but noise")
    frameworks = {member.diagnosis.run.framework for one in (arm, base) for member in one.members}
    if len(frameworks - {None}) > 1:
        said.append(f"{arm.name}: logged by another framework than {base.name}: metrics of one name may be measured "
                    "in other ways")  # fmt: skip
    return said


def _pair(tables: Mapping[str, pl.DataFrame], arm: Arm, base: Arm, metric: str) -> str:
    return f"{_number(late_mean(tables, arm, metric))} against {_number(late_mean(tables, base, metric))}"


def _first_to_leave(arm: Arm, tables: Mapping[str, pl.DataFrame]) -> list[str]:
    rows = tables["divergence"].filter(pl.col("arm") == arm.name)
    said = [f"{arm.name}: {row['words']}" for row in rows.filter(pl.col("what") == SAME).iter_rows(named=True)]
    first = rows.filter(pl.col("what") != SAME)
    if first.height:
        row = first.row(0, named=True)
        said.append(
            f"{arm.name}: the first figure to leave the baseline for good is {figure_name(row)}, at step {row['step']} "
            f"({row['low']} to {row['high']})"
        )
    return said


def figure_name(row: Mapping[str, object]) -> str:
    """Name a figure of the table `divergence` in prose."""
    what, of = str(row["what"]), row["slice"]
    return f"{LABELS.get(str(of), str(of))} {what}" if of is not None else METRICS.get(what, what)


def _against(tail: Tail) -> str:
    """Tell a ratio with its interval: how much lower or higher the arm lies."""
    if not tail.known:
        return "no interval"
    if tail.ratio >= 1:
        return f"{times(tail.ratio)} lower, {times(tail.low)} to {times(tail.high)}"
    return f"{times(1 / tail.ratio)} higher, {times(1 / tail.high)} to {times(1 / tail.low)}"


def _short(tail: Tail) -> str:
    return f"({_against(tail)})"


def times(value: float) -> str:
    """Write a factor."""
    if not math.isfinite(value):
        return "no value"
    return f"×{value:.2g}" if value < 100 else f"×{value:,.0f}"


def nats(value: float) -> str:
    """Write a tail in nats."""
    return f"{value:.3g}" if math.isfinite(value) else "no value"


def _number(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else "no value"
