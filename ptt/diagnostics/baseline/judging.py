"""Hold a run against its baseline: worse only beyond noise and the limit, passed only where that would have shown."""

from __future__ import annotations

from dataclasses import replace

from ptt.diagnostics.baseline import metrics as of_metrics
from ptt.diagnostics.baseline import tails as of_tails
from ptt.diagnostics.baseline.drafts import Draft, settled
from ptt.diagnostics.baseline.measuring import Measured, placed
from ptt.diagnostics.baseline.metrics import Chosen
from ptt.diagnostics.baseline.values import Against, Baseline, Figures
from ptt.diagnostics.statistics.apart import holm
from ptt.diagnostics.statistics.versus import LIMIT


def against(
    candidate: Measured | Figures, baseline: Baseline, *, limit: float = LIMIT, metrics: Chosen | None = None
) -> tuple[Against, ...]:
    """Hold a run against a baseline; tails first, then metrics by name.

    `metrics`: those to judge, each with the direction that is worse (higher, lower, both; None: the known one);
    without it all whose direction is known. Others are told as `shown`. Tails count as one question and metrics as
    another: either's p-values are corrected for their own number (Holm). With one correction over both, a run that logs
    more metrics would hide its tails.
    """
    mine = placed(candidate, baseline) if isinstance(candidate, Measured) else candidate
    same = [run for run in baseline.runs if run.source == mine.source]
    others = tuple(run for run in baseline.runs if run.source != mine.source)
    held = replace(baseline, runs=others) if others else baseline
    found = (
        *_settled(of_tails.drafts(mine, held, limit=limit)),
        *_settled(of_metrics.drafts(mine, held, limit=limit, chosen=metrics)),
    )
    if not same:
        return found
    if others:
        return (_itself(mine, same[0], "the baseline holds this very run; it is held against the others alone"), *found)
    told = "gated against itself: the baseline is this very run, and nothing of it could fail"
    unjudged = [replace(one, outcome="passed", words="the same run", next=()) if _asked(one) else one for one in found]
    return (_itself(mine, same[0], told), *unjudged)


def _settled(drafts: list[Draft]) -> tuple[Against, ...]:
    adjusted = holm([draft.p_value for draft in drafts])
    return tuple(settled(draft, p_value) for draft, p_value in zip(drafts, adjusted, strict=True))


def _asked(one: Against) -> bool:
    """Tell whether a figure of the very same run is one that can differ from itself by noise only."""
    return one.outcome != "shown" and one.observed is not None and one.expected is not None


def _itself(mine: Figures, same: Figures, words: str) -> Against:
    return Against(
        id="source",
        statistic="source",
        outcome="shown",
        words=words,
        data=f"source {mine.source[:12]} is also that of {same.name}",
        next=("gate runs that the baseline was not made of",),
    )
