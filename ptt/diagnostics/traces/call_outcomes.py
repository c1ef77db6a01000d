"""Decide which calls failed and how that is known: by marks, by codes and words in results, and by the set itself."""

from __future__ import annotations

from typing import Final

import polars as pl

from ptt.diagnostics.schema import CODED, PRINTED, WORDED

MARKED, LEARNT = "marked", "learnt"
KNOWN_BY: Final = (MARKED, CODED, WORDED, LEARNT)
"""How an outcome is known, the surest first."""
PRECISION: Final = {WORDED: (113, 113)}
"""Failures read rightly, of those read, among hand-labelled results; of learnt ones too few to tell.

Of a half of them that was unseen, 15 of 15 at the first look, which missed others: docs/traces.md."""

FLAGS: Final = ("flag", "error_field")  # sources of `ok` that are marks of the writer
NULL_ERROR: Final = "error_field"  # its null says that the tool did not raise, not that it did what was asked
MIN_TEACHING: Final = 3  # failures (or successes) of one form that make it the form of failures
MIN_ASKED: Final = 3  # different arguments to which a tool gives one answer that hints at a failure
MIN_RESULTS: Final = 20  # of a tool, from which on an empty one is unusual
USUAL: Final = 0.9  # share of a tool's results that are not empty


def decide_outcomes(calls: pl.DataFrame) -> pl.DataFrame:
    """Add `failed`, null where not known, and `known_by` to calls of `tool`, `args`, `result`, `kind` and evidence.

    A code in a result outweighs a mark of success, and so do the words of a tool's wrapper: many writers mark that the
    tool ran. Words that a program may have printed outweigh none but the null of an error field. No words outweigh a
    flag of success where the writer flags failures too, and no code does where it flags that tool's failures by codes.
    """
    ok, source, told = pl.col("ok"), pl.col("source"), pl.col("told_failed")
    marked, coded = source.is_in(FLAGS) & ok.is_not_null(), pl.col("told_by") == CODED
    printed = told & (pl.col("told_by") == PRINTED) & ~((source != NULL_ERROR) & marked & ok)
    flagged = (source == FLAGS[0]) & ok.is_not_null()
    good, bad = flagged & ok, marked & ~ok
    worded = (told & (pl.col("told_by") == WORDED) | printed) & ~(good & bad.any().over("kind"))
    coded &= ~(good & (bad & coded & told).any().over("kind", "tool"))
    by = (
        pl.when(marked & ~ok).then(pl.lit(MARKED))
        .when(coded & told).then(pl.lit(CODED))
        .when(worded).then(pl.lit(WORDED))
        .when(marked).then(pl.lit(MARKED))
        .when(coded).then(pl.lit(CODED))
    )  # fmt: skip
    rows = calls.with_columns(by.cast(pl.Enum(KNOWN_BY)).alias("known_by"))
    failed = pl.when(pl.col("known_by") == MARKED).then(~ok).when(pl.col("known_by") == CODED).then(told)
    failed = failed.when(pl.col("known_by") == WORDED).then(pl.lit(value=True))
    rows = rows.with_columns(failed.alias("failed"))
    learnt = rows.select(_learnt().alias("learnt"))["learnt"]
    rows = _known(rows, learnt, LEARNT)
    return _known(rows, rows.select(_silent().alias("silent"))["silent"], WORDED)


def _known(rows: pl.DataFrame, failed: pl.Series, by: str) -> pl.DataFrame:
    """Take what was found of calls whose outcome is unknown."""
    new = pl.col("failed").is_null() & failed.is_not_null()
    return rows.with_columns(
        pl.coalesce("failed", failed).alias("failed"),
        pl.when(new).then(pl.lit(by, pl.Enum(KNOWN_BY))).otherwise("known_by").alias("known_by"),
    )


def _learnt() -> pl.Expr:
    """Return what other calls of the tool show: the forms of its results, one answer to all, results that are empty."""
    failed, tool, length = pl.col("failed"), pl.col("tool"), pl.col("result_len")
    fails, succeeds = (each.sum().over("tool", "result_form") for each in (failed, ~failed))
    unknown = failed.is_null().sum().over("tool", "result_form")
    alike = tool.is_not_null() & pl.col("result_form").is_not_null()
    hints = tool.is_not_null() & pl.col("result_hints").fill_null(value=False)
    repeated = pl.col("args").n_unique().over("tool", "result") >= MIN_ASKED
    texts = (length > 0).mean().over("tool")
    lacks = (
        (texts >= USUAL) & (length.count().over("tool") >= MIN_RESULTS) & ~(~failed & (length == 0)).any().over("tool")
    )
    return (
        pl.when(hints & pl.when(length > 0).then(repeated).otherwise(lacks)).then(pl.lit(value=True))
        .when(alike & (fails >= MIN_TEACHING) & (fails > unknown) & (succeeds == 0)).then(pl.lit(value=True))
        .when(alike & (succeeds >= MIN_TEACHING) & (fails == 0)).then(pl.lit(value=False))
    )  # fmt: skip


def _silent() -> pl.Expr:
    """Return success where a result says nothing of failure, in a format whose results say when a call failed."""
    says = (pl.col("failed") & pl.col("known_by").is_in([CODED, WORDED])).any().over("kind")
    silent = pl.col("returned") & ~pl.col("result_hints").fill_null(value=False)
    return pl.when(says & silent).then(pl.lit(value=False))
