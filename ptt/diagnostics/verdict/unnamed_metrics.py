"""The `[metrics]` section that a run would need: names that were guessed, and those that nothing is known of."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import polars as pl

from ptt.diagnostics.metrics.aliases import canonical
from ptt.diagnostics.metrics.catalogue import listed
from ptt.diagnostics.metrics.guessed_names import near_names, spelt_words
from ptt.diagnostics.metrics.name_words import NO_LEVEL
from ptt.diagnostics.parsers.io.metric_rows import UNNUMBERED

MIN_VALUES: Final = 3  # of a metric that is worth a name: fewer are no series
MAX_LISTED: Final = 20  # names in a section: one reads them all
MAX_NEAR: Final = 2
MAX_CHARS: Final = 80  # of a name that is listed
CORE: Final = frozenset(listed("named_first"))
MIN_CORE: Final = 3  # of them known: reward, loss and a third say what most rules ask


@dataclass(frozen=True, kw_only=True)
class UnnamedMetric:
    """One name as it was logged; `near` are metrics whose words it holds besides others."""

    raw: str
    near: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class MetricNames:
    """What the section says: names read by their words, and those that nothing is known of."""

    guessed: Mapping[str, str]  # raw -> canonical
    unnamed: tuple[UnnamedMetric, ...]
    left_out: int  # more of the latter
    section: str  # TOML, to be pasted into ptt.toml; empty where all is known


def metric_names(
    metrics: pl.DataFrame,
    wide: pl.DataFrame,
    guessed: Mapping[str, str],
    *,
    framework: str | None,
    reasons: Mapping[str, str] = MappingProxyType({}),
) -> MetricNames:
    """Return the names of a run that its settings may map; `wide`: spellings of metrics that stand in columns.

    What a known framework logs beside the metrics of the table was left out of it on purpose: of it, and of a run
    whose main metrics are known, only names come that may be a metric which the run lacks.
    """
    held = {*metrics["name"].drop_nulls(), *wide["name"].drop_nulls()}
    told = framework is not None or len(held & CORE) >= MIN_CORE
    raws = {*_varying(metrics), *wide.filter(pl.col("name").is_null())["name_raw"]}
    found = []
    for raw in sorted(bare for bare in {raw.removeprefix(UNNUMBERED) for raw in raws} if _is_listed(bare)):
        near = tuple(name for name in near_names(raw) if name not in held)
        if near or not (told or near_names(raw)):
            found.append(UnnamedMetric(raw=raw, near=near[:MAX_NEAR]))
    found.sort(key=lambda metric: (not metric.near, metric.raw))
    bare = {raw.removeprefix(UNNUMBERED): name for raw, name in sorted(guessed.items())}
    why = {raw.removeprefix(UNNUMBERED): reason for raw, reason in reasons.items()}
    unnamed = tuple(found[:MAX_LISTED])
    return MetricNames(
        guessed=bare,
        unnamed=unnamed,
        left_out=len(found) - len(unnamed),
        section="\n".join(_section(bare, unnamed, why)) if bare or unnamed else "",
    )


def _varying(metrics: pl.DataFrame) -> list[str]:
    """Return the unnamed series of training whose value changes; those that only rise by whole numbers are counters."""
    trained = (pl.col("split") == "train") & pl.col("rank").is_null()
    rows = metrics.filter(trained & pl.col("name").is_null() & pl.col("value").is_not_null())
    value = pl.col("value").sort_by("seq")
    counter = (value.diff().drop_nulls() >= 0).all() & (value == value.round()).all()
    grouped = rows.group_by("name_raw").agg(values=pl.len(), distinct=value.n_unique(), counter=counter)
    chosen = grouped.filter((pl.col("values") >= MIN_VALUES) & (pl.col("distinct") > 1) & ~pl.col("counter"))
    return chosen["name_raw"].to_list()


def _is_listed(raw: str) -> bool:
    """Return whether a name may be one to map; an alias without a name was denied it by its parser, or by the user."""
    words: Collection[str] = spelt_words(raw)
    short = len(raw) == 1 or len(raw) > MAX_CHARS
    return bool(words) and not short and raw.isprintable() and NO_LEVEL.isdisjoint(words) and canonical(raw) is None


def _section(
    guessed: Mapping[str, str], unnamed: tuple[UnnamedMetric, ...], reasons: Mapping[str, str]
) -> Iterator[str]:
    yield "[metrics]"
    for raw, name in guessed.items():
        reason = f": {reasons[raw]}" if raw in reasons else ""
        yield f'{_quoted(raw)} = "{name}"  # read by its words{reason}'
    for metric in unnamed:
        if not metric.near:
            yield f'# {_quoted(metric.raw)} = ""'
        for name in metric.near:
            yield f'# {_quoted(metric.raw)} = "{name}"'


def _quoted(raw: str) -> str:
    """Write a name as a TOML key."""
    return json.dumps(raw, ensure_ascii=False)
