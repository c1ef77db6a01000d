"""What each logged name of a run is taken for, and why; and what in ptt.toml names nothing that the run holds."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Final

import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.logged_scalars import spelt_kind
from ptt.diagnostics.evidence.rewards import reward_component
from ptt.diagnostics.log_entries import LogEntry
from ptt.diagnostics.metrics.aliases import bare_name, canonical, canonical_names, writers_of
from ptt.diagnostics.metrics.catalogue import document
from ptt.diagnostics.metrics.identities import identities
from ptt.diagnostics.metrics.recording import framework_name
from ptt.diagnostics.metrics.sample_names import told_part
from ptt.diagnostics.parsers.io.metric_rows import UNNUMBERED

MAX_NEAR: Final = 2
EVALUATION: Final = "figures of an evaluation"
COMPONENT: Final = "parts of the reward"
RECOMPUTED: Final = "recomputed where tokens are recorded"
RELATED: Final = "held against other metrics"
UNKNOWN: Final = "not known"
MAX_WRITERS: Final = 2  # that a reason names
OTHER_WRITERS: Final = "other"  # in metrics.toml: spellings of no framework of their own


@dataclass(frozen=True, kw_only=True)
class LoggedName:
    """A name as it was logged, and what it was taken for; `name` is None where no rule reads it."""

    raw: str
    name: str | None
    why: str
    values: int


def logged_names(
    metrics: pl.DataFrame,
    wide: pl.DataFrame,
    *,
    mapped: Mapping[str, str],
    guessed: Mapping[str, str],
    reasons: Mapping[str, str],
) -> tuple[LoggedName, ...]:
    """Return all names, those taken for a metric first. `mapped`: of the settings; `guessed`: by words."""
    values = pl.col("value").count().cast(pl.Int64)
    counted = pl.concat(
        [
            metrics.group_by("name_raw", "name", "split").agg(len=values),
            wide.group_by("name_raw", "name")
            .agg(pl.col("len").sum())
            .with_columns(split=pl.lit("train"))
            .select("name_raw", "name", "split", "len"),
        ]
    )
    told = (
        counted.with_columns(raw=pl.col("name_raw").str.strip_prefix(UNNUMBERED))
        .group_by("raw", "name_raw")
        .agg(pl.col("name").drop_nulls().first(), pl.col("len").sum(), (pl.col("split") == "eval").all().alias("eval"))
        .group_by("raw")
        .agg(pl.col("name").drop_nulls().first(), pl.col("name_raw").first(), pl.col("len").sum(), pl.col("eval").all())
    )
    names = [
        LoggedName(raw=raw, name=name, why=_why(raw, logged, name, mapped, guessed, reasons, evaluated), values=count)
        for raw, name, logged, count, evaluated in told.rows()
    ]
    names = [_as_part(found) for found in names]
    return tuple(sorted(names, key=lambda found: (found.name is None, found.name or "", found.raw)))


def _as_part(found: LoggedName) -> LoggedName:
    """Say of a name without a metric which counter of samples it is a part of, or what else it is."""
    if found.name is not None:
        return found
    if part := told_part(found.raw):
        return replace(found, name=part[0], why=part[1])
    return replace(found, why=_beside(found.raw)) if found.why == UNKNOWN else found


def _beside(raw: str) -> str:
    """Return what a name that is no metric of the table is to the program."""
    if reward_component(raw):
        return COMPONENT
    if spelt_kind(raw) is not None:
        return RECOMPUTED
    bare = bare_name(raw)
    kinds: Mapping[str, Sequence[str]] = document()["beside"]
    told = (kind for kind, patterns in kinds.items() if any(fnmatchcase(bare, pattern) for pattern in patterns))
    if kind := next(told, None):
        return kind
    related = any(fnmatchcase(bare, pattern) for identity in identities().values() for pattern in identity.names)
    return RELATED if related else UNKNOWN


def _why(
    raw: str,
    logged: str,
    name: str | None,
    mapped: Mapping[str, str],
    guessed: Mapping[str, str],
    reasons: Mapping[str, str],
    evaluated: bool,
) -> str:
    if raw in mapped or logged in mapped:
        return "by [metrics] in ptt.toml"
    if logged in guessed:
        return f"by its words{f': {reasons[logged]}' if logged in reasons else ''}"
    if name is None:
        return EVALUATION if evaluated else UNKNOWN
    if raw == name and canonical(raw) is None:
        return "by its own name"
    writers = [framework_name(writer) for writer in writers_of(raw) if writer != OTHER_WRITERS]
    return (
        f"as {' and '.join(writers[:MAX_WRITERS])} spell{'s' * (len(writers) == 1)} it" if writers else "a common name"
    )


def names_nothing(
    keys: Collection[str], logs: Sequence[LogEntry], names: Sequence[LoggedName], paths: Sequence[str]
) -> Iterator[str]:
    """Yield a line for each key of `[metrics]` that is not logged, and each entry of `[[logs]]` that reads no file."""
    raws = {found.raw for found in names}
    for key in keys:
        bare = key.removeprefix(UNNUMBERED)
        if bare in raws:
            continue
        known = sorted(raws)
        lower = {raw.lower(): raw for raw in known}
        near = [lower[found] for found in get_close_matches(bare.lower(), lower, n=MAX_NEAR)]
        if not near and bare in canonical_names():
            near = [found.raw for found in names if found.name == bare][:MAX_NEAR]
        meant = f"; is {' or '.join(near)} meant?" if near else "; the names of this run are listed above."
        yield f"[metrics] {key}: nothing is logged under this name{meant}"
    for number, entry in enumerate(logs):
        if not any(map(entry.reads, paths)):
            yield f"[[logs]] {number + 1}: no file of this run matches {entry.files}."
