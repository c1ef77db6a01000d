"""This run shows a KL divergence from the reference that stays above its limit.

What: the mean of the logged KL over 20 steps lies above 0.3 nats a token, or above twice the target in the run's own
settings, for at least half of those steps, and stays there. Single spikes do not count: healthy runs show them. With
fewer than ten logged values, only three in a row above 2 nats, up to the end, count. A KL logged as a sum over the
sequence (TRL's `objective/kl`) is compared with the limit times the mean length. A name that no framework logs is taken
for a sum where it says so, or where it is several nats and far above an entropy that hardly moved. In a log of no known
framework, without entropy and length, nobody knows which it is: medium at most where the reward rose.
Why it matters: the policy has left the region where the reference and the KL penalty mean anything. This average moves
last: the tails of the log-ratio can move hundreds of steps before it.
What it is not: a KL that lies as high at the first log as later on. That is a note on the settings, medium where the
reward never rose: the reference is not the policy that training starts from. Nor one that crept up along the whole run
as the reward rose, to less than 1.5 times the limit: that is a note too, as is a largest KL that came to lie further
above the mean.
What to do: if the tails grew first, treat those. Otherwise roll back to the last healthy checkpoint. Then, one at a
time and in this order: lower the learning rate, run fewer epochs per batch, stop updates on a batch at a target KL,
check the scale of advantages and rewards.
Source: per-token k3 as TRL, veRL and OpenRLHF log it. 0.3 is a common cap for the mean KL to the reference; twice the
target is the limit of the common PPO debugging guides. Targets: OpenRLHF's `kl_target`, veRL's `target_kl` where the KL
is in the reward. Set `limits.kl-over-target.limit` where a run's target has another name.
"""

from dataclasses import replace
from functools import reduce

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.algorithm import REPORTER_PREFIXES
from ptt.diagnostics.evidence.baseline_shift import lasting_rise
from ptt.diagnostics.evidence.series import MIN_LOGGED, Series
from ptt.diagnostics.metrics.aliases import canonical
from ptt.diagnostics.metrics.name_words import words_of
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import LANGUAGE, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.policy_update import CAUSES, back_off, confirm_by_checkpoint
from ptt.diagnostics.rules.reward_outcome import Outcome, outcome
from ptt.diagnostics.rules.single_series import (
    GROSS_VALUES,
    aligned,
    derived,
    gross_excess,
    lasting_excess,
    late_mean,
    logged,
    measured,
    peak_median,
    requires_metric,
    series_evidence,
)
from ptt.diagnostics.wording import sig

ID = "kl-over-target"
KL_LIMIT = 0.3  # nats a token; see the source above
TARGET_FACTOR = 2.0  # of the run's own target
HIGH_FACTOR = 1.0 / 0.3  # times the limit: 1 nat a token
CRITICAL_FACTOR = 2.0 / 0.3  # times: at 2 nats the typical token's probability has changed e^2-fold
ANY_UNIT_FACTOR = 100.0  # times: too much for a whole answer, too, where nobody says what a value is the KL of
GROWN_FACTOR = 1.5  # times the first values: a KL that grew by less was there before the first update
FIRST_VALUES = 3  # logged values
FIRST_STEP = 20  # a first log later than this may come after the policy left
MAX_GROWTH = 1.5  # times the early ratio of the largest KL to the mean: KL that grows alike everywhere keeps it
CREPT_FACTOR = 1.5  # times the limit: a KL that crept further is leaving it behind
CREPT_SHARE = 1 / 3  # of the logged steps, from a quarter of the growth to three quarters: slower than any single event
SUM_WORDS = frozenset({"sum", "summed", "seq", "sequence"})
ABOVE_ENTROPY = 2.0  # times a token's entropy: so large a KL to a reference is not a mean over answer tokens
SUMMED_KL = frozenset({"objective/kl"})  # TRL's PPO, RLOO and online DPO add the KL up over the sequence
ENABLE = "log the KL to the reference: in TRL set beta > 0; in veRL actor_rollout_ref.actor.use_kl_loss=True"


@requires_metric("kl/ref", what="KL to the reference", enable=ENABLE, minimum=GROSS_VALUES)
def check(series: Series, evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the logged KL to the reference."""
    tokens = tokens_per_value(evidence, series)
    if isinstance(tokens, NotJudged):
        return tokens
    unit = "token" if tokens == 1.0 else "sequence"
    if not series.finite()[1].any():
        return NotJudged(reason="every logged KL is exactly 0: see kl-zero", missing=("kl/ref",), enable=ENABLE)
    token_limit, source = limit_in_force(evidence, limits)
    limit = token_limit * tokens
    fixed = not source and limit == KL_LIMIT * tokens  # no target of this run's own
    if fixed and (of_start := _of_the_start(evidence, series, limit, unit)) is not None:
        return of_start
    enough = logged(evidence, "kl/ref", what="KL to the reference", enable=ENABLE)
    short = isinstance(enough, NotJudged)
    excess = gross_excess(series, CRITICAL_FACTOR * limit) if short else lasting_excess(series, limit)
    if excess is None and isinstance(enough, NotJudged):
        return enough
    if excess is None:
        peak = f"the {series.width}-step median of KL peaks at {sig(peak_median(series))} nats a {unit}"
        return Healthy(reason=f"{peak}, limit {sig(limit)}{source}", notes=_concentrated(evidence, series))
    limit = excess.limit
    moves = evidence.reference is not None and evidence.reference.seen is not None
    if moves:  # a fall at a sync is no recovery
        excess = replace(excess, ended=None)
    grade = 2 if short else (excess.peak > HIGH_FACTOR * limit) + (excess.peak > CRITICAL_FACTOR * limit)
    verb = "has stayed" if excess.ended is None else "lay"
    crept = not short and excess.peak <= CREPT_FACTOR * limit and _crept(series) and outcome(evidence) is Outcome.ROSE
    unsure = _is_of_unknown_unit(evidence) and outcome(evidence) is Outcome.ROSE
    grade = 0 if unsure and excess.peak <= ANY_UNIT_FACTOR * limit else grade
    severity = excess.severity((Severity.MEDIUM, Severity.HIGH, Severity.CRITICAL)[grade])
    per = "" if unsure else f" a {unit}"
    finding = Finding(
        severity=Severity.LOW if crept else severity,
        claim=f"Mean KL to the reference {verb} above {sig(limit)} nats{per}{source}{excess.recovery}"
        + (", reset at every sync of the reference" if moves else "")
        + ("; it crept up as the reward rose" if crept else "")
        + ("; the log does not say whether a token's or an answer's" if unsure else ""),
        unit="nats",
        **measured(excess, observed=excess.peak),
        evidence=series_evidence(
            series, last_mean=excess.last, last_step_within=excess.last_good, per=unit, **excess.recovery_evidence
        ),
        causes=(
            *CAUSES,
            "a KL coefficient that is too small to hold the policy",
            "growing tails in one slice, which the mean shows only now",
        ),
        confirm=(confirm_by_checkpoint(excess.interval),),
        next=back_off(excess.interval),
    )
    return Healthy(reason=finding.claim, notes=(finding,)) if crept else finding


def _of_the_start(evidence: Evidence, series: Series, limit: float, unit: str) -> Verdict | None:
    """Judge a KL that lies above the limit at the first log and has not grown since: no update made it.

    A note where the reward rose all the same; a finding where it did not, since the penalty then outweighs it.
    """
    steps, values = series.finite()
    first, last = float(values[:FIRST_VALUES].mean()), late_mean(series)
    early = values[:FIRST_VALUES]
    there = limit < early.min() and early.max() <= CRITICAL_FACTOR * limit
    if steps[0] > FIRST_STEP or not there or last > GROWN_FACTOR * first:
        return None
    flat = outcome(evidence) is Outcome.FLAT
    found = Finding(
        severity=Severity.MEDIUM if flat else Severity.LOW,
        claim=f"KL to the reference is {sig(values[0])} nats a {unit} at the first log already, {sig(last)} on average "
        "at the end, as if the reference were not the policy that training starts from"
        + (", and the reward never rose" if flat else ""),
        observed=first,
        limit=limit,
        unit="nats",
        onset_step=int(steps[0]),
        onset_interval=(int(steps[0]), int(steps[0])),
        evidence=series_evidence(series, first=float(values[0]), last_mean=last, per=unit),
        causes=(
            "a reference of other weights: the base model under an adapter, an earlier checkpoint, another precision",
            "logprobs of the two sides that do not belong together: temperature, chat template, mask, padding",
            "a first update so large that the policy left the reference within it: the warm-up is missing",
        ),
        confirm=("compute the KL before the first update, on the very weights of the reference: it must be 0",),
        next=(
            "if it is not 0: make sure that reference and policy are loaded alike, and change nothing else",
            "if it is: halve the learning rate, or warm it up over the first steps",
        ),
    )
    return found if flat else Healthy(reason=found.claim, notes=(found,))


def _concentrated(evidence: Evidence, series: Series) -> tuple[Finding, ...]:
    """Return the note of a largest KL that came to lie further above the mean: few places left the reference."""
    named = [one for name, one in sorted(evidence.other.items()) if words_of(name) >= {"kl", "max"}]
    for largest in named:
        steps, most, mean = aligned(largest, series)
        usable = mean > 0
        rise = lasting_rise(derived(largest, steps[usable], most[usable] / mean[usable]), floor=0.0, factor=MAX_GROWTH)
        if rise is None or rise.ended:
            continue
        note = Finding(
            severity=Severity.LOW,
            claim=f"The largest KL ({largest.raw_name}) grew from {sig(rise.early)} to {sig(rise.last)} times the "
            "mean: "
            "few tokens or samples leave the reference",
            unit="x",
            **measured(rise),
            evidence=series_evidence(largest, early=rise.early),
            causes=("one place of the answer, one slice or a few samples that are pulled hardest", *CAUSES),
            confirm=("find the tokens of the largest KL: where in the answer, after what, in which samples?",),
            next=("record logprobs of policy and reference for some samples: the tails then show where it is",),
        )
        return (note,)
    return ()


def _crept(series: Series) -> bool:
    """Return whether its growth took its time: from a quarter of it to three quarters a third of the run or more."""
    mean = series.rolling()[1]
    mean = mean[np.isfinite(mean)]
    grown = (mean - mean[0]) / (mean[-1] - mean[0]) if mean[-1] > mean[0] else np.ones(len(mean))
    return float(((grown >= 0.25) & (grown < 0.75)).mean()) >= CREPT_SHARE


def tokens_per_value(evidence: Evidence, series: Series) -> float | NotJudged:
    """Return how many tokens a value is the KL of: 1, or the median length where it is summed over the sequence."""
    if not _is_summed(evidence, series):
        return 1.0
    lengths = evidence.metrics.get("len/response_mean")
    if lengths is None or len(lengths.finite()[0]) < MIN_LOGGED:
        return NotJudged(
            reason=f"{series.raw_name} is a sum over the sequence, and no response length is logged to compare it with",
            missing=("len/response_mean",),
            enable="log the mean response length beside the KL",
        )
    return float(np.median(lengths.finite()[1]))


def _is_summed(evidence: Evidence, series: Series) -> bool:
    """Return whether a KL is a sum over the sequence: by its name, or, where nobody knows the name, by its size.

    A KL of several nats a token, far above an entropy that has hardly moved, is that of no policy that still answers.
    """
    raw = reduce(str.removeprefix, REPORTER_PREFIXES, series.raw_name)
    if raw in SUMMED_KL or words_of(raw) & SUM_WORDS:
        return True
    entropy, lengths = (evidence.metrics.get(name) for name in ("entropy", "len/response_mean"))
    if canonical(raw) is not None or entropy is None or lengths is None:
        return False
    values, uncertain, tokens = (one.finite()[1] for one in (series, entropy, lengths))
    if min(map(len, (values, uncertain, tokens))) < MIN_LOGGED:
        return False
    early, late = float(uncertain[: entropy.width].mean()), float(uncertain[-entropy.width :].mean())
    level = float(np.median(values))
    return (
        level > CRITICAL_FACTOR * KL_LIMIT
        and level > ABOVE_ENTROPY * late > 0
        and late > early / 2
        and (level / float(np.median(tokens)) < KL_LIMIT)
    )


def _is_of_unknown_unit(evidence: Evidence) -> bool:
    """Return whether nothing logged tells a KL of a token from one of an answer."""
    return evidence.run.framework is None and evidence.metrics.keys().isdisjoint({"entropy", "len/response_mean"})


def limit_in_force(evidence: Evidence, limits: Limits) -> tuple[float, str]:
    """Return the limit a token, and its source where it is the run's own target.

    What the user set comes first, then twice the run's own target, then the field's limit.
    """
    context, set_by_user = evidence.run.context, ID in evidence.limits and "limit" in evidence.limits[ID]
    names = ["kl_target"]
    if evidence.run.framework == "verl" and context.get("use_kl_in_reward") is True:
        names.append("target_kl")  # in veRL's defaults even where no controller uses it
    if evidence.run.framework is None and "kl/old" not in evidence.metrics:
        names.append("target_kl")  # elsewhere it is the target within a batch, to the policy before the update
    for name in names:
        target = context.get(name)
        if not set_by_user and isinstance(target, int | float) and not isinstance(target, bool) and target > 0:
            return TARGET_FACTOR * float(target), f", twice the run's {name}"
    return limits["limit"], ""


RULE = rule(check, ID, Link.POLICY_UPDATE, limit=KL_LIMIT, families=LANGUAGE)
