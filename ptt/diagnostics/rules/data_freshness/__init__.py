"""What the rules on freshness share: how old rollouts were, how far from the trainer, and its shape."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.mismatch import VERSIONS_PER_STEP
from ptt.diagnostics.evidence.mismatch_causes import MismatchAnswer, MismatchCause, Sign, rank_causes
from ptt.diagnostics.evidence.series import MIN_LOGGED, Series, finite_series
from ptt.diagnostics.evidence.tokens_by_step import PairSteps
from ptt.diagnostics.model import LIKELY
from ptt.diagnostics.rules.interface import Finding
from ptt.diagnostics.rules.single_series import aligned, selected
from ptt.diagnostics.statistics.arrays import IntArray
from ptt.diagnostics.statistics.mismatch_shape import HEAD, MismatchShape
from ptt.diagnostics.wording import pct, sig

MIN_STEPS: Final = 6  # recorded steps with a lag: fewer show no pattern
COUNT_ORIGIN: Final = 1.0  # versions that count from 0 beside steps that count from 1; more behind is a lag
LAG_LIMIT: Final = 8.0  # versions; see the source in stale_rollouts.py
LOGGED_VERSION: Final = re.compile(
    r"(?i)(?:^|/)(?:samples?|experiences?|batch|train(?:ed)?)/(?:model|policy|weights?|param)_?versions?(?:/(?:mean|avg))?$"
)
"""Names of the version that sampled what a step trains on, as Trinity-RFT's `sample/model_version/mean`."""
STALE_SHARE: Final = 0.25  # of the steps from the first stale one on: a sampler refreshed at times is fresh in between
FRESHEST_SHARE: Final = 0.1  # of the steps: so fresh that any remaining distance comes from the engine
MIN_ABOVE: Final = 0.8  # of pairs of a stale and a fresh step, the stale one is further off
MIN_FACTOR: Final = 2.0  # its median, over the fresh ones'
MIN_EACH: Final = 3  # steps on either side
MATERIAL: Final = {  # what a distance must reach to matter, by what is measured
    "p99": 0.2,  # nats: the usual clip range, for one token in a hundred
    "mismatch/kl": 0.01,
    "mismatch/logp_abs_mean": 0.05,
    "clip/frac": 0.1,
}


class Response(NamedTuple):
    """How far stale steps lie from the trainer, beside fresh ones."""

    measured: str
    fresh: float
    stale: float


def lag_of(evidence: Evidence) -> Series | None:
    """Return the mean lag by step: as the trainer logs it, from the versions of recorded sequences or logged ones."""
    series = evidence.metrics.get("staleness/mean")
    if series is not None and len(series.finite()[0]) >= MIN_LOGGED:
        return series
    recorded = evidence.freshness.lag if evidence.freshness is not None else None
    if recorded is not None and len(recorded.finite()[0]) >= MIN_STEPS:
        return recorded
    return next(filter(None, map(_behind, evidence.other.values())), None)


def _behind(series: Series) -> Series | None:
    """Return how far a logged version of the trained samples is behind the step, where it counts as steps do."""
    steps, versions = series.finite()
    if not LOGGED_VERSION.search(series.raw_name) or len(steps) < MIN_LOGGED or series.logged:
        return None
    pace = float(versions[-1] - versions[0]) / float(steps[-1] - steps[0])
    if not VERSIONS_PER_STEP[0] <= pace <= VERSIONS_PER_STEP[1]:
        return None
    behind = steps - versions
    origin = min(float(behind.min()), COUNT_ORIGIN)
    return finite_series("staleness/mean", steps, behind - origin, raw_name=f"steps behind, by {series.raw_name}")


def stale_steps(lag: Series, *, limit: float = LAG_LIMIT, share: float = STALE_SHARE) -> IntArray:
    """Return the places of the steps with a lag above the limit; none where they are less than this share."""
    lags = lag.finite()[1]
    stale = np.flatnonzero(lags > limit)
    return stale if len(stale) and len(stale) >= share * (len(lags) - stale[0]) else stale[:0]


def response(evidence: Evidence, lag: Series, limit: float) -> Response | None:
    """Return how stale steps differ from fresh ones in their distance to the trainer; None where nothing shows it."""
    for name, series in _distances(evidence):
        _, ages, distances = aligned(lag, series)
        stale, fresh = distances[ages > limit], distances[~(ages > limit)]
        if min(len(stale), len(fresh)) < MIN_EACH:
            continue
        above = float(np.searchsorted(np.sort(fresh), stale, side="left").mean()) / len(fresh)
        high, low = float(np.median(stale)), float(np.median(fresh))
        if above >= MIN_ABOVE and high >= MIN_FACTOR * low and high >= MATERIAL[name]:
            return Response(series.raw_name, low, high)
    return None


def freshest(evidence: Evidence, series: Series) -> Series:
    """Return the steps of the freshest tenth of the lags, where distances grow with the lag; all of them elsewhere.

    What is near nothing where the rollouts are fresh is staleness, and no fault of the engine's.
    """
    lag = lag_of(evidence)
    if lag is None:
        return series
    ages = lag.finite()[1]
    if response(evidence, lag, float(np.median(ages))) is None:
        return series
    steps, lags, _ = aligned(lag, series)
    if len(steps) < 2 * MIN_STEPS:
        return series
    oldest = np.sort(lags)[max(MIN_STEPS, int(FRESHEST_SHARE * len(lags))) - 1]
    return selected(series, np.isin(series.steps, steps[lags <= oldest]))


TRAINER_PAIRS: Final = ("old/rollout", "prox/rollout")


def trainer_pair(evidence: Evidence) -> PairSteps | None:
    """Return the pair of trainer and engine: old/rollout; prox/rollout where prox is all that the trainer recomputed.

    Beside other logprobs of the trainer's the proximal policy may be an average that lags on purpose.
    """
    alone = not {"policy_logp", "old_logp"}.intersection(evidence.recorded_logps)
    return evidence.pairs.get("old/rollout") or (evidence.pairs.get("prox/rollout") if alone else None)


def _distances(evidence: Evidence) -> list[tuple[str, Series]]:
    pairs = [evidence.pairs[name].p99 for name in (*TRAINER_PAIRS, "policy/rollout") if name in evidence.pairs]
    logged = [(name, evidence.metrics[name]) for name in MATERIAL if name in evidence.metrics]
    return [*(("p99", series) for series in pairs), *logged]


STALE_FACTOR: Final = 2.0  # mean |r| above the median lag over that below it
MIN_FRESH_STEPS: Final = 0.15  # of the later steps: a fault of either side would show at each of them
MIN_R_SQUARED: Final = 0.5  # of r on the logprob: then most of it is a temperature
MIN_ONE_SIDED: Final = 0.9  # of the large differences have one sign
MAX_BALANCE: Final = 0.2  # from one half: both signs alike
MIN_EXPLAINED: Final = 0.6  # of the difference after tools, by tokens of equal logprob before them
MIN_HEAD_LIFT: Final = 2.0  # share of the large differences near the observation over share of the tokens


class Cause(NamedTuple):
    """What a shape points to, the look that confirms it, and what to do."""

    name: str
    shape: str
    confirm: str
    fix: str


def cause_of(shape: MismatchShape) -> Cause:
    """Return what the shape of the differences after tool output points to."""
    if shape.stale > STALE_FACTOR * shape.fresh:
        return Cause(
            "a sampler with old weights",
            f"They grow with the lag, from {sig(shape.fresh)} to {sig(shape.stale)} nats",
            "plot the difference by lag: close to nothing at lag 0 means staleness",
            "sync the sampler's weights at every step for 50 steps: the difference should vanish",
        )
    if shape.fresh_steps > MIN_FRESH_STEPS:
        return Cause(
            "a policy that has moved since it sampled (several updates per batch, or weights that are synced late)",
            f"They are close to nothing at {pct(shape.fresh_steps)} of the later steps",
            "plot the difference by step: close to nothing right after each weight sync means staleness, not mismatch",
            "make fewer updates per batch, or sync before each; compare engine and trainer right after a sync",
        )
    if shape.r_squared > MIN_R_SQUARED:
        return Cause(
            "a different temperature on one side",
            f"They are proportional to the logprob (slope {shape.slope:+.2g})",
            "score one sequence on both sides at temperature 1: the difference should vanish",
            "take both sides' logprobs at the same temperature",
        )
    if max(shape.negative, 1 - shape.negative) > MIN_ONE_SIDED:
        return Cause(
            "truncated sampling (top-p, top-k), for which only one side's logprobs are normalised",
            f"{pct(max(shape.negative, 1 - shape.negative))} of them have one sign",
            "sample ten prompts with top_p 1 and no top_k: the difference should vanish",
            "sample without truncation, or record raw logprobs on both sides",
        )
    if math.isfinite(shape.head) and shape.head > MIN_HEAD_LIFT * shape.head_tokens:
        return Cause(
            "tool output tokenised differently where the policy's next turn begins",
            f"{pct(shape.head)} of them lie within {HEAD} tokens of the tool output",
            "compare both sides' token ids of one tool turn, from the last token of the output on",
            "pass the engine's own token ids to the trainer instead of rendering the text again",
        )
    if shape.explained > MIN_EXPLAINED and abs(shape.negative - 0.5) < MAX_BALANCE:
        return Cause(
            "precision or kernels: noise that grows as tokens get improbable, as they do after tool output",
            "They go both ways, and equally improbable tokens before tool output differ just as much",
            "score one batch with the engine in float32: what vanishes was precision",
            "use an fp32 last layer on both sides, and replay expert routing for mixtures of experts",
        )
    return Cause(
        "a different context (chat template, tool output cut or rendered differently), or weights one update apart",
        "Equally improbable tokens before tool output hardly differ",
        "right after a weight sync, compare both sides' logprobs of one tool turn: if they agree, it was the "
        "weights; if not, compare the token ids of the whole context",
        "use one chat template and one limit for tool output on both sides; sync before each batch",
    )


def answer_of(evidence: Evidence, *own: Sign) -> MismatchAnswer | None:
    """Return the causes that the signs of this run favour, and `own` ones; None where they favour none."""
    return rank_causes((*evidence.mismatch_signs, *own), framework=evidence.run.framework)


def with_causes(finding: Finding, evidence: Evidence, *own: Sign, keep: int | None = None) -> Finding:
    """Add the ranked causes to a finding, the experiment that tells the first two apart, and the setting to change.

    own: what the rule itself saw. keep: how many of the finding's last pieces of advice hold whatever the cause; by
    default all. Where no sign favours any cause the finding stays as it is.
    """
    answer = answer_of(evidence, *own)
    if answer is None:
        return finding
    named, pair = answer.first.title, answer.indistinguishable
    if pair is not None:
        named = f"{named} or {answer.causes[1].title}"
    likely = f"{LIKELY}{named}" + (", or another: the signs leave it open" if answer.undecided else "")
    log = (f"so that metrics tell: log {answer.record}",) if answer.record else ()
    return replace(
        finding,
        context=finding.context if own or finding.context else (likely,),  # a rule's own sign is its claim
        causes=tuple(_cause_words(cause, answer.first) for cause in answer.causes),
        confirm=(answer.experiment, *log, *(finding.confirm if keep is None else ())),
        next=(answer.setting, *(finding.next if keep is None else finding.next[-keep:])),
        evidence={**finding.evidence, **answer.evidence},
    )


def _cause_words(cause: MismatchCause, first: MismatchCause) -> str:
    """Say what speaks for a cause and against it; signs of the first cause are not told again."""
    shared = [sign for sign in cause.for_ if cause is not first and sign in first.for_]
    lacking = [sign for sign in first.for_ if sign not in (*cause.for_, *cause.against)]
    but = f", but not that {', '.join(lacking)}" if lacking else ""
    same = f"the same signs{but}" if shared else ""
    own = ", ".join(sign for sign in cause.for_ if sign not in shared)
    against = f"against it: {', '.join(cause.against)}" if cause.against else ""
    return f"{cause.title}: {'; '.join(filter(None, (same, own, against)))}"
