"""Which samples a finding rests on: those with the highest and lowest values of its measure, and some at random."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.model import Diagnosis, Finding, Link
from ptt.diagnostics.samples.sample import FindingSamples, ListedSample
from ptt.diagnostics.statistics.cells import SEQUENCE
from ptt.diagnostics.statistics.slices import POST_TOOL, TEXT_ONLY
from ptt.diagnostics.statistics.tail_curves import Profile

EACH: Final = 3  # highest, lowest and random: what is read through in a few minutes
RANDOM_SEED: Final = 17
TAILS: Final = "largest |r|"
REWARD: Final = "reward"
FAILED: Final = "failed tool calls"
OF_TAILS: Final = frozenset({Link.POLICY_UPDATE, Link.DATA_FRESHNESS, Link.DATA_VALIDITY})
HIGHEST, LOWEST, RANDOM = "highest", "lowest", "random"


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Samples with what each measure gives them: key, sample_id, step, rollout, value.

    `rollout` is equal where two steps trained on one sample: it is listed once.
    """

    tails: pl.DataFrame  # with the slice
    rewards: pl.DataFrame
    failures: pl.DataFrame


NOTHING: Final[dict[str, pl.DataType]] = {
    **dict.fromkeys(("key", "sample_id", "rollout"), pl.String()),
    "step": pl.Int64(),
    "value": pl.Float64(),
}


def samples_of_findings(diagnosis: Diagnosis, measured: Measured) -> tuple[FindingSamples, ...]:
    """Return the samples of each finding that rests on some, in the order of the findings."""
    return tuple(_samples_of(diagnosis, measured))


def _samples_of(diagnosis: Diagnosis, measured: Measured) -> Iterator[FindingSamples]:
    for finding in diagnosis.findings:
        measure, rows = _measured(finding, measured)
        since = finding.seen_step
        late = rows if since is None else rows.filter(pl.col("step") >= since)
        rows = (late if late.height else rows).drop_nulls("value").filter(pl.col("value").is_not_nan())
        if not rows.is_empty():
            yield FindingSamples(
                finding=finding.id,
                severity=finding.severity.value,
                claim=finding.claim,
                measure=measure,
                samples=tuple(_chosen(rows)),
            )


def _measured(finding: Finding, measured: Measured) -> tuple[str, pl.DataFrame]:
    """Return a finding's measure and the samples with their values; no rows where it rests on curves alone."""
    if finding.slice is not None and finding.link in OF_TAILS:
        wanted = {"text_only": [TEXT_ONLY], "all": [TEXT_ONLY, POST_TOOL]}.get(finding.slice, [POST_TOOL])
        rows = measured.tails.filter(pl.col("slice").is_in(wanted))
        return TAILS, rows.group_by("key", "sample_id", "rollout", "step", maintain_order=True).agg(
            pl.col("value").max()
        )
    if finding.link is Link.REWARD:
        return REWARD, measured.rewards
    if finding.link is Link.ENVIRONMENT:
        return FAILED, measured.failures
    return "", pl.DataFrame(schema=NOTHING)


def _chosen(rows: pl.DataFrame) -> Iterator[ListedSample]:
    """Yield the highest, the lowest and random ones of what is left; each sample once."""
    ordered = rows.sort("value", "key", descending=[True, False]).unique("rollout", keep="first", maintain_order=True)
    count = min(EACH, -(-ordered.height // 3))
    rest = ordered[count : ordered.height - count]
    dice = np.random.default_rng(RANDOM_SEED)
    drawn = sorted(dice.choice(rest.height, size=min(count, rest.height), replace=False).tolist()) if len(rest) else []
    lowest = ordered[max(count, ordered.height - count) :].reverse()
    for chosen, part in ((HIGHEST, ordered[:count]), (LOWEST, lowest), (RANDOM, rest[drawn])):
        for row in part.iter_rows(named=True):
            yield ListedSample(
                chosen=chosen, key=row["key"], step=row["step"], sample_id=row["sample_id"], value=row["value"]
            )


def measure_tails(profile: Profile | None, index: pl.DataFrame) -> pl.DataFrame:
    """Return the largest |r| of each sequence and slice. `index`: seq, key, sample_id, rollout."""
    if profile is None:
        return pl.DataFrame(schema={**NOTHING, "slice": SEQUENCE["slice"]})
    largest = pl.max_horizontal(-pl.col("min_r"), "max_r")
    rows = profile.sequences.filter(pl.col("n") > 0).select("seq", "step", "slice", value=largest)
    return rows.join(index.select("seq", "key", "sample_id", "rollout"), on="seq", how="inner", maintain_order="left")
