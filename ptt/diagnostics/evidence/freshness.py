"""Measure how many versions behind the trained sequences were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import polars as pl

from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.evidence.tokens_by_step import series_from_frame
from ptt.diagnostics.statistics.staleness import add_lags
from ptt.diagnostics.wording import sig


@dataclass(frozen=True, kw_only=True)
class Freshness:
    """How old the trained sequences were: versions behind, by step."""

    lag: Series | None  # mean over a step's sequences; None where versions do not count as steps do
    oldest: Series | None  # of the oldest sequence of a step
    offset: int | None  # the smallest step - version of the run, taken for a lag of 0
    sequences: int
    known_share: float  # of the sequences: those with a version
    versions: int  # distinct
    no_lag_reason: str = ""  # why versions give no lag


VERSIONS_PER_STEP: Final = (0.75, 1.33)  # versions a step, over the run: otherwise versions count something else
MIN_STEPS: Final = 4


def gather_freshness(tokens: Tokens | None) -> Freshness | None:
    """Measure how many versions behind the trained sequences were; None where no version is recorded."""
    if tokens is None or "policy_version" not in tokens.scan.columns:
        return None
    rows = tokens.sound_rows.select("seq", "step")
    rows = rows.join(tokens.scalars.select("seq", "policy_version"), on="seq", how="left", maintain_order="left")
    versioned = rows.drop_nulls("policy_version")
    if versioned.is_empty():
        return None
    counted = {
        "sequences": rows.height,
        "known_share": versioned.height / rows.height,
        "versions": versioned["policy_version"].n_unique(),
    }
    reason = _version_fault(versioned)
    if reason:
        return Freshness(lag=None, oldest=None, offset=None, no_lag_reason=reason, **counted)  # type: ignore[arg-type]
    lagged, offset = add_lags(versioned)
    by_step = lagged.group_by("step").agg(pl.col("lag").mean(), pl.col("lag").max().alias("most")).sort("step")
    named = "versions behind, from step - policy_version"
    return Freshness(
        lag=series_from_frame(by_step, "lag", name="staleness/mean", raw_name=named),
        oldest=series_from_frame(by_step, "most", name="staleness/max", raw_name=named),
        offset=offset,
        **counted,  # type: ignore[arg-type]
    )


def _version_fault(versioned: pl.DataFrame) -> str:
    """Return why the difference of step and version is no lag, or nothing.

    One version a step is what a trainer counts that publishes after each. Where the newest version of the steps goes
    up at another pace, it counts generations or pushes, and a difference to steps means nothing.
    """
    newest = versioned.group_by("step").agg(pl.col("policy_version").max()).sort("step")
    if newest.height < MIN_STEPS:
        return f"versions are recorded at only {newest.height} steps"
    steps, versions = newest["step"].to_numpy(), newest["policy_version"].to_numpy()
    if int(versions.min()) == int(versions.max()):
        return f"every sequence carries version {int(versions[0])}: it is not counted up, or never published"
    half = len(steps) // 2  # of each half the newest: a sampler refreshed now and then shows its pace so
    first, last = int(versions[:half].max()), int(versions[half:].max())
    pace = (last - first) / max(1, int(steps[half + versions[half:].argmax()] - steps[versions[:half].argmax()]))
    if not VERSIONS_PER_STEP[0] <= pace <= VERSIONS_PER_STEP[1]:
        return f"versions go up by {sig(pace)} a step: they count something other than steps"
    return ""
