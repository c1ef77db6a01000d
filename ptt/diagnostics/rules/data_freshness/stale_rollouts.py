"""This run shows rollouts sampled by a policy many versions old.

What: at a quarter of the steps or more, from the first such step on, the trained sequences are more than 8 versions
behind on average. Medium or high where the distance between sampler and trainer (or the clip fraction) is larger at
these steps than at fresh ones, or where the lag keeps growing; otherwise low. Or, whatever the versions say: the
distance between trainer and sampler stays above the limit of engine-mismatch, but climbs from almost nothing and falls
back at regular steps, more than 8 apart, as it does where the sampler gets new weights only then; not where these are
restarts or other events that end a stale cache, which engine-mismatch names. Or the lag leaps, at single steps between
fresh ones, to the number of steps since the start: versions are counted from 0 again, as after a restart that does not
restore the count; whether the weights are old too, the distance to the sampler at these steps tells.
Why it matters: the update learns from what another policy did. Loss and gradients still come out, but ratios spread,
clipping becomes hard to read, and samples that the policy would no longer draw push it around.
What it is not: a normal asynchronous run. A few versions of lag are its price and do no harm.
What to do: first find out why the sampler is behind: weight syncs that are skipped, rare or failing, or a queue that
grows. Then bound the lag. Only then correct for it with importance weights.
Source: AReaL (arXiv 2505.24298) bounds the lag at 8 or less and loses accuracy beyond; M2PO (arXiv 2510.01161) on what
stale data does before it shows. Versions are assumed to go up by one a step; lags count from the freshest sequence.
"""

import re
from dataclasses import replace

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import lasting_rise
from ptt.diagnostics.evidence.excursions import RESTART, happened_at
from ptt.diagnostics.evidence.mismatch_causes import sign
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import LIKELY, Link, Severity
from ptt.diagnostics.rules.data_freshness import (
    LAG_LIMIT,
    MIN_STEPS,
    STALE_SHARE,
    answer_of,
    lag_of,
    response,
    stale_steps,
    trainer_pair,
    with_causes,
)
from ptt.diagnostics.rules.data_freshness.engine_mismatch import HIGH_FACTOR, KL, LOGP_ABS
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.single_series import Excess, last_mean, lasting_excess, series_evidence
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.sawtooth import Sawtooth, find_sawtooth
from ptt.diagnostics.wording import sig

GROWTH_FACTOR = 2.0  # times its early level: the lag is not bounded
HIGH_P99 = 1.0  # nats of p99: one token in a hundred is e times likelier or less likely than when it was sampled
CAPACITY = re.compile(r"(?:queue|buffer).*\.capacity$")  # of other things, as a cache or a disk, too
FULL = 0.15  # of the batches that a queue holds: the lag is no further off that
MIN_FALL = 3.0  # by this factor at each sync: fresh weights are as near as the engine's arithmetic allows
LOGGED = {"logp_abs_mean": LOGP_ABS, "kl": KL}  # engine-mismatch's limits
COUNT_SLACK = 2.0  # versions: whether steps and versions count from 0 or from 1
FAR_FACTOR = 4.0  # times the limit: no single straggler, whose lag may happen to be the number of steps
MAX_TOLD = 5  # steps that are named
LEAPS_WITH = ("mismatch/kl", "mismatch/logp_abs_mean", "kl/old", "clip/frac")
WRONG_COUNT = "a count of versions that a restart does not restore: bookkeeping, and no old weights"
FIRST_WEIGHTS = "an engine that holds the weights of the start after a restart, until the next sync"
CAUSES = (
    "the sampler's weights are synced too rarely, or a sync failed",
    "the rollout queue grows faster than the trainer consumes it",
    "long trajectories that outlive many updates",
)


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge how old the sampler's weights were: by versions, else by a distance that falls at each sync."""
    by_versions = _by_versions(evidence, limits)
    if isinstance(by_versions, Finding):
        return by_versions
    answer = answer_of(evidence)
    others = answer is not None and answer.first.name != "stale-weights" and answer.indistinguishable is None
    return by_versions if others else _by_syncs(evidence, limits) or by_versions


def _by_versions(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge how many versions behind the trained sequences were."""
    lag = lag_of(evidence)
    if lag is None:
        fresh = evidence.freshness
        return NotJudged(
            reason="no policy version and no staleness is recorded"
            if fresh is None
            else fresh.no_lag_reason or "too few steps have a policy version",
            missing=("policy_version", "staleness/mean"),
            enable="record policy_version with every sequence, counting up at every trainer step, or log the "
            "staleness of each batch",
        )
    limit = limits["lag"]
    steps, lags = lag.finite()
    stale = stale_steps(lag, limit=limit, share=limits["share"])
    if not len(stale):
        if len(anew := _counted_anew(evidence, lag, limit)):
            return _of_count(evidence, lag, anew, limit)
        average = f"{sig(float(lags.mean()))} versions behind on average, {sig(lags.max())} at most"
        return Healthy(reason=f"the trained sequences are {average}")
    first = int(stale[0])
    interval = (int(steps[max(0, first - 1)]), int(steps[first]))
    effect = response(evidence, lag, limit)
    rise = lasting_rise(lag, floor=limit, factor=GROWTH_FACTOR)
    grows = rise is not None and not rise.ended
    if grows:
        interval = (int(steps[_last_usual(lags, first)]), interval[1])
    pattern = evidence.mismatch_pattern
    by_lag = pattern is not None and pattern.name == "by_lag" and pattern.noticed
    severity = Severity.MEDIUM if effect or grows or by_lag else Severity.LOW
    clause = "" if grows else "; they show no effect"
    if by_lag and pattern is not None:
        clause = f"; {pattern.sign.text}"
    if effect is not None:
        severity = Severity.HIGH if effect.stale > HIGH_P99 else severity
        clause = (
            f", and {effect.measured} is {sig(effect.stale)} nats at those steps, {sig(effect.fresh)} at fresh ones"
        )
    finding = Finding(
        severity=severity,
        claim=f"Rollouts are up to {sig(float(lags.max()))} policy versions old{clause}",
        observed=float(np.median(lags[stale])),
        limit=limit,
        unit="versions",
        context=_queue(evidence, lag),
        onset_step=interval[1],
        onset_interval=interval,
        evidence=series_evidence(
            lag,
            share_of_steps=float((lags > limit).mean()),
            last_mean=last_mean(lag),
            most=float(lags.max()),
            lag_grows=grows,
            measured=effect.measured if effect else None,
            at_fresh_steps=effect.fresh if effect else None,
            at_stale_steps=effect.stale if effect else None,
        ),
        causes=CAUSES,
        confirm=(
            f"compare the sampler's weights with the trainer's at step {interval[1]} (a checksum of one layer), or "
            "find the weight syncs in its log",
            "plot the distance between sampler and trainer by lag: close to nothing at lag 0 means staleness, not "
            "mismatch",
        ),
        next=(
            "sync the sampler's weights at every step for 50 steps and change nothing else: the tails should vanish",
            f"restart from a checkpoint before step {interval[0]}: what stale samples taught stays learnt",
            "then bound the lag (drop or regenerate older rollouts), and log it",
            "only then weight by policy over sampler, capped, for the lag that is left",
        ),
    )
    if effect is None:
        return with_causes(finding, evidence) if by_lag else finding
    off = sign("off_where_old", name=effect.measured, fresh=sig(effect.fresh), stale=sig(effect.stale))
    return with_causes(finding, evidence, off)


def _last_usual(lags: FloatArray, first: int) -> int:
    """Return the place before the first stale step at which the lag was last no more than at the start."""
    usual = np.flatnonzero(lags[:first] <= np.median(lags[: min(first, MIN_STEPS)])) if first else np.zeros(0)
    return int(usual[-1]) if len(usual) else max(0, first - 1)


def _queue(evidence: Evidence, lag: Series) -> tuple[str, ...]:
    """Say that the lag is in the end that of a full queue, by its capacity and the size of a batch in the settings."""
    sizes = {key: value for key, value in evidence.settings.items() if isinstance(value, int) and value > 0}
    batches = [value for key, value in sizes.items() if key.rpartition(".")[2] == "train_batch_size"]
    for key, capacity in sorted(sizes.items()):
        if not batches or not CAPACITY.search(key):
            continue
        held, last = capacity / batches[0], last_mean(lag)
        if abs(last - held) <= FULL * held:
            return (
                f"they end {sig(last)} versions old, and {key}={capacity} holds {sig(held)} batches of {batches[0]}: "
                "the queue is full, and the trainer, slower than the sampler, reads its oldest samples",
            )
    return ()


def _counted_anew(evidence: Evidence, lag: Series, limit: float) -> IntArray:
    """Return the places of single steps at which the lag is the number of steps since the start; (n,).

    One that is little above the limit and at no known restart may be a straggler, and is none of them.
    """
    steps, lags = lag.finite()
    fresh = np.concatenate(([False], lags <= limit, [False]))
    usual = float(np.median(lags[lags <= limit])) if (lags <= limit).any() else 0.0
    of_run, of_log = np.abs(lags - steps), np.abs(lags - (steps - steps[0]))  # a log may begin where the run resumed
    since_start = np.minimum(of_run, of_log) <= usual + COUNT_SLACK
    places = np.flatnonzero((lags > limit) & since_start & fresh[:-2] & fresh[2:])
    if len(places) != 1 or lags[places[0]] > FAR_FACTOR * limit:
        return places
    happened = happened_at(
        evidence.metrics, evidence.other, evidence.run, evidence.evaluation, evidence.events, evidence.segments
    )
    restarts = happened.get(RESTART, steps[:0])
    return places[np.isin(steps[places], np.concatenate([restarts, restarts + 1]))]


def _of_count(evidence: Evidence, lag: Series, anew: IntArray, limit: float) -> Finding:
    """Judge a count of versions that starts over; the distance to the sampler tells whether the weights do, too."""
    steps, lags = lag.finite()
    at = steps[anew].tolist()
    apart = _moves_with(evidence, at)
    told = ", ".join(map(str, at[:MAX_TOLD])) + (f" and {len(at) - MAX_TOLD} more" if len(at) > MAX_TOLD else "")
    values = ", ".join(sig(float(value)) for value in lags[anew][:MAX_TOLD])
    cause = FIRST_WEIGHTS if apart else WRONG_COUNT
    return Finding(
        severity=Severity.HIGH if apart else Severity.MEDIUM,
        claim=f"At step{'s' if len(at) > 1 else ''} {told}, and only there, {lag.raw_name} leaps to {values}: the "
        "number of steps since the start, as where versions are counted from 0 again after a restart",
        context=(
            f"{apart} leaps with it: the weights are old too" if apart else "nothing else leaps with it",
            f"{LIKELY}{cause}",
        ),
        observed=float(lags[anew].max()),
        limit=limit,
        unit="versions",
        onset_step=at[0],
        onset_interval=(at[0], at[0]),
        evidence=series_evidence(lag, steps_affected=len(at), at_steps=told, leaps_with_it=apart or None),
        causes=(cause,),
        confirm=(f"was the run started again just before step {at[0]}? which version did the engine hold then?",),
        next=(
            "restore the engine's version with the checkpoint, before the first rollout",
            "look for what uses the version: a filter of old samples drops them, and dumps by version overwrite those "
            "of step 0",
        ),
    )


def _moves_with(evidence: Evidence, at: list[int]) -> str:
    """Return the name of a distance to the sampler that is larger at these steps than at all others; else ""."""
    for name in LEAPS_WITH:
        series = evidence.metrics.get(name)
        steps, values = series.finite() if series is not None else (np.empty(0), np.empty(0))
        here = np.isin(steps, at)
        if series is not None and here.any() and np.abs(values[here]).min() > np.abs(values[~here]).max(initial=0.0):
            return series.raw_name
    return ""


def _by_syncs(evidence: Evidence, limits: Limits) -> Finding | None:
    """Judge a distance to the sampler that is too large and starts over at regular steps."""
    pair = trainer_pair(evidence)
    logged = ((evidence.metrics.get(f"mismatch/{name}"), limit) for name, limit in LOGGED.items())
    for series, limit in ((pair.mean_abs if pair is not None else None, LOGP_ABS), *logged):
        if series is None or len(series.finite()[0]) < MIN_STEPS:
            continue
        series = replace(series, values=np.abs(series.values))
        excess = lasting_excess(series, limit)
        syncs = find_sawtooth(*series.finite()) if excess is not None else None
        if excess is not None and syncs is not None and syncs.factor >= MIN_FALL and syncs.interval > limits["lag"]:
            return _rare_syncs(evidence, series, syncs, excess, limits)
    return None


def _rare_syncs(evidence: Evidence, series: Series, syncs: Sawtooth, excess: Excess, limits: Limits) -> Finding:
    begin = max(int(series.finite()[0][0]), syncs.falls[0] - syncs.interval)
    onset = min(begin + int(limits["lag"]) + 1, syncs.falls[0])
    high = excess.peak > HIGH_FACTOR * excess.limit
    times = f"{len(syncs.falls)} times from step {syncs.falls[0]} on"
    finding = Finding(
        severity=excess.severity(Severity.HIGH if high else Severity.MEDIUM),
        claim=f"The sampler gets new weights only every {syncs.interval} steps: {series.raw_name} climbs, and falls "
        f"{sig(syncs.factor)}-fold at each sync ({times}){excess.recovery}",
        observed=float(syncs.interval),
        limit=limits["lag"],
        unit="steps",
        onset_step=onset,
        onset_interval=(begin, onset),
        evidence=series_evidence(
            series, last_mean=excess.last, peak=excess.peak, interval=syncs.interval, first_sync_seen=syncs.falls[0]
        ),
        causes=CAUSES[:1],
        confirm=(
            f"find the weight syncs in the sampler's log: are they every {syncs.interval} steps, as at step "
            f"{syncs.falls[0]}?",
        ),
        next=(
            "sync the sampler's weights at every step for 50 steps and change nothing else: the distance should vanish",
            f"restart from a checkpoint before step {onset}: what stale samples taught stays learnt",
            "record policy_version as the sampler counts it, so that the lag is known",
        ),
    )
    return with_causes(finding, evidence)


RULE = rule(check, "stale-rollouts", Link.DATA_FRESHNESS, lag=LAG_LIMIT, share=STALE_SHARE)
