"""This run shows a rank whose samples come from another policy than the trainer's, where the other ranks' do not.

What: rank beside rank, one lies lastingly above the middle of the others: by one token in a hundred beyond 0.2 nats of
|old/rollout|, or by 0.05 nats of its mean, and at least twice as far as they. Ranks with the same weights must be
unlikely to differ so (1%, over all ranks and the quarters of the run from which on it could have begun).
Why it matters: the rank's share of every batch is trained on with wrong ratios. Averaged over all ranks the difference
is diluted, below the limits of engine-mismatch where there are many.
What it is not: a difference that all ranks share (engine-mismatch), nor a rank whose policy is far from the reference
because of what it was given to do: engine and trainer score the same tokens.
What to do: check that this rank's engine gets every weight update, and the same settings as the others.
Source: the 0.2 nats are the usual clip range, which such a token leaves before any update; one in a hundred is what
stale-rollouts calls material, 0.05 nats of the mean engine-mismatch's limit. Exchangeable ranks, by counting.
"""

from __future__ import annotations

from typing import NamedTuple

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.mismatch import RankGap
from ptt.diagnostics.evidence.mismatch_causes import sign
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.data_freshness import MIN_FACTOR, with_causes
from ptt.diagnostics.rules.data_freshness.engine_mismatch import HIGH_FACTOR, LOGP_ABS
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, does_not_apply, rule
from ptt.diagnostics.rules.single_series import Excess, lasting_excess, measured, series_evidence
from ptt.diagnostics.statistics.mismatch_shape import LARGE
from ptt.diagnostics.wording import pct, sig

SHARE = 0.01  # of the rank's tokens beyond LARGE, more than of the others': p99 above the clip range
MEAN = LOGP_ABS  # nats of mean |r| more than the others
FACTOR = MIN_FACTOR  # times the others' own: if all are far off, one a little further is not the problem
ALPHA = 0.01  # over all ranks and starts together
MAX_NAMED = 4


class OffRank(NamedTuple):
    """A rank above the others, by the measure in which it exceeds them most."""

    gap: RankGap
    excess: Excess
    large: bool  # by the share of large differences rather than by the mean

    @property
    def factor(self) -> float:
        """How many times its limit the gap reaches."""
        return self.excess.peak / self.excess.limit


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge each rank beside the others."""
    ranks = evidence.rank_mismatch
    if ranks is None:
        if evidence.run.context.get("world_size") == 1:
            return does_not_apply("the run has only one process")
        return NotJudged(
            reason="no two ranks have logprobs of both engine and trainer at common steps",
            missing=("rank", "rollout_logp", "old_logp"),
            enable="record rollout_logp and old_logp on every rank, with a column `rank` or _rankN in the file name",
        )
    off = [found for gap in ranks.gaps if (found := _off(gap, limits)) is not None]
    if not off:
        most = max(ranks.gaps, key=lambda gap: gap.own[0])
        reason = f"mean of |{ranks.pair}| is at most {sig(most.own[0])} nats on {len(ranks.gaps)} ranks"
        return Healthy(reason=f"{reason} (rank {most.rank}), {sig(most.others[0])} in the middle of its others")
    off.sort(key=lambda found: (-found.factor, found.gap.rank))
    return _finding(off, ranks.pair, len(ranks.gaps), evidence)


def _off(gap: RankGap, limits: Limits) -> OffRank | None:
    """Return by how much a rank lies above the others, where noise explains it no more and it matters."""
    if gap.p_value > ALPHA:
        return None
    measures = (gap.mean, limits["mean"], False), (gap.large, limits["share"], True)
    found = [
        OffRank(gap, excess, large)
        for series, limit, large in measures
        if gap.own[large] >= FACTOR * gap.others[large] and (excess := lasting_excess(series, limit)) is not None
    ]
    return max(found, key=lambda one: one.factor, default=None)


def _finding(off: list[OffRank], pair: str, ranks: int, evidence: Evidence) -> Finding:
    gap, excess, large = worst = off[0]
    named = f"rank {gap.rank}" if len(off) == 1 else "ranks " + ", ".join(str(one.gap.rank) for one in off[:MAX_NAMED])
    severity = excess.severity(Severity.HIGH if worst.factor > HIGH_FACTOR else Severity.MEDIUM)
    dose = (
        f"{pct(gap.own[1])} of its tokens lie beyond {LARGE:g} nats of |{pair}|, {pct(gap.others[1])} of the others'"
        if large
        else f"mean of |{pair}| is {sig(gap.own[0])} nats, {sig(gap.others[0])} on the others"
    )
    finding = Finding(
        severity=severity,
        claim=f"Engine and trainer disagree on {named} of {ranks} and not on the others: {dose}{excess.recovery}",
        unit="share of tokens" if large else "nats",
        **measured(excess),
        evidence=series_evidence(
            gap.large if large else gap.mean,
            rank=gap.rank,
            ranks=ranks,
            ranks_off=len(off),
            mean=gap.own[0],
            mean_of_others=gap.others[0],
            share_beyond_clip_range=gap.own[1],
            share_of_others=gap.others[1],
            p_value=gap.p_value,
            **excess.recovery_evidence,
        ),
        causes=(
            "the engine of that rank gets new weights late or not at all",
            "its engine runs with other settings, kernels or precision",
        ),
        confirm=(f"right after a weight sync, compare the weights of rank {gap.rank}'s engine with the trainer's",),
        next=(
            f"check that weight updates reach the engine of rank {gap.rank}, and that its settings are the others'",
            "leave that rank's samples out of the batch until they agree",
        ),
    )
    return with_causes(finding, evidence, sign("one_rank", dose=dose))


RULE = rule(check, "rank-mismatch", Link.DATA_FRESHNESS, share=SHARE, mean=MEAN)
