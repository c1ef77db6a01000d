"""This run shows an inference engine that disagrees with the trainer on token probabilities.

What: one of these stays above its limit: the mean difference of probabilities 0.01; the KL between engine and trainer
0.1 nats a token (either sign); the mean of exp |difference of logprobs| 1.05; the mean absolute difference of logprobs
0.05 nats, logged or from recorded tokens, or of the mean logprobs of whole sequences; the share of importance ratios
that the cap cuts 0.05. From a tenth of the KL's limit, or half of the probabilities' (unless no token is far off, and
both sides' correlate as rounded ones do where that is logged), up to the limit the finding is low; it is also low where
the recorded tokens of both sides do not show what is logged. High where the peak is ten times the limit, or a tenth of
the gradient's weight lies on tokens that the cap on the engine's weights cuts (of the ratios, where only their share is
logged). Its causes are ranked by the signs for and against each: how the mismatch begins, grows and falls back, the
events that it goes with, the settings, and the recorded tokens.
Low where it leaves the run's own first values for good, by a factor of 3, and entropy, length, lag and learning rate do
not grow with it; medium where it does so at a step, and ends above a tenth of the limit.
Low too where the recorded tokens differ by less, from 0.01 nats on, but by a pattern that no arithmetic leaves, or by
noise from 0.03 nats on. A note from 0.003 nats on, and where rollouts a few versions old explain it. And low where
hardly anything else differs, but a single token by more than 10 nats at most steps (2.5 where the sequences
that are masked for such tokens have them on one side). Low where sampling is truncated and the mean ratio lies below 1
step after step. While no lag of the rollouts is logged, low too where a mismatch falls back at regular steps from half
of its limit or more; where it rises threefold to half of the limit at restarts, evaluations or weight updates; and
where settings promise kernels that compute alike and it is 0 to the bit at the first step alone, or, where they promise
logprobs that agree to the bit, at no step; and where a hundred lines or more of the console, one a step at least, tell
of turns that are tokenised again. Medium where nothing but the mean ratio is logged, and it lies above 1.3 at
nearly all steps.
Why it matters: samples come from the engine's policy, gradients from the trainer's. What looks like on-policy training
is off-policy, with a bias that no clipping sees and that tends to grow until the run collapses.
What it is not: rounding. Two implementations in bfloat16 differ by thousandths. Nor staleness: where the differences
grow with the lag of the rollouts, only the freshest steps are judged.
What to do: fix before you correct: processed logprobs (temperature, penalties), the same sampling defaults, weights
that really are updated, an fp32 head, routing replay for mixtures of experts. Only then importance weights.
Source: veRL's FAQ (probabilities: above 0.01 bad, below 0.005 fine) and rollout-correction docs (KL 0.1); Tinker's docs
(KL below 0.01 is usual); NeMo-RL (`token_mult_prob_error` above 1.05).
"""

import math
from dataclasses import replace

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.mismatch_causes import sign
from ptt.diagnostics.evidence.mismatch_course import RATIO_ABOVE, STAYS_BELOW, masked_on_one_side
from ptt.diagnostics.evidence.mismatch_rise import EARLY, GREW, own_limit
from ptt.diagnostics.evidence.mismatch_tokens import NOTICED, MismatchPattern
from ptt.diagnostics.evidence.series import MIN_LOGGED, Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.data_freshness import (
    MIN_STEPS,
    cause_of,
    freshest,
    lag_of,
    stale_steps,
    trainer_pair,
    with_causes,
)
from ptt.diagnostics.rules.data_freshness.within_limits import Mismatch, retokenised, unit_of, within_limits
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.policy_update import shows_small_numbers
from ptt.diagnostics.rules.single_series import (
    Excess,
    last_mean,
    lasting_excess,
    measured,
    peak_median,
    series_evidence,
)
from ptt.diagnostics.statistics.mismatch_shape import LARGE
from ptt.diagnostics.wording import pct, sig

PROB_DIFF = 0.01  # mean |difference of probabilities|: veRL's FAQ calls it bad
PROB_DIFF_FINE = 0.005  # and this fine
KL = 0.1  # nats a token, of either sign: veRL's limit
KL_FINE = 0.01  # nats a token: what Tinker's docs call usual
PROB_ERROR = 1.05  # mean exp|difference of logprobs|: NeMo-RL's limit
ROUNDING = 0.999  # correlation of both sides' probabilities in bfloat16; a token in a thousand that is off lowers it
CERTAIN = 0.5  # difference of probabilities: no rounding makes one of a token that a side is sure of
LOGP_ABS = 0.05  # nats: the logarithm of the limit before it
LOGP_MAX = 10.0  # nats: no arithmetic makes a certain token impossible; in bfloat16 the worst of a batch differs by 2
LOGP_MAX_MASKED = 2.5  # nats: where such tokens lie on one side, as rounding does not
MOST = 0.5  # of the large differences lie after tool output
MIN_LIFT = 1.5  # times their share of the tokens, at the low end of its interval
LOW_SHARE = 0.1  # of the limit: a rise of the run's own level to less is low
HIGH_FACTOR = 10.0  # times the limit, of the distance from nothing

HIGH_TRUNCATED = 0.1  # of the ratios: the correction then discards as much as it corrects
TRUNCATED = ("is/high_frac", "is/low_frac", "is/truncated_frac")

TRUNCATED_SHARE = 0.05  # of the ratios: a cap that cuts more is no guard against single tokens any more

RATIO_BELOW = 0.001  # of 1: a batch of tens of thousands of tokens with rounding alone lies nearer, on either side
MIN_SIDED = 20  # steps: by chance all of them would lie below once in a million runs
METRICS = (
    "mismatch/prob_diff", "mismatch/kl", "mismatch/prob_error", "mismatch/logp_abs_mean", "mismatch/ppl_diff",
    "is/truncated_frac",
)  # fmt: skip


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge each recorded measure against its own limit; report the first that breaks it."""
    mismatches = _mismatches(evidence, limits)
    if not mismatches and (above := _ratio_above(evidence)) is not None:
        return above
    if not mismatches and (lines := retokenised(evidence)) is not None:
        return lines
    if not mismatches:
        return NotJudged(
            reason="no difference between engine and trainer is recorded",
            missing=("rollout_logp", "old_logp", "mismatch/kl"),
            enable="record the engine's own logprobs beside the trainer's: veRL rollout.calculate_log_probs=True, TRL "
            "vllm_importance_sampling_correction=True",
        )
    findings = [finding for mismatch in mismatches if (finding := _finding(mismatch, evidence)) is not None]
    pattern = evidence.mismatch_pattern
    if pattern is not None and pattern.name == "by_lag" and _stale(evidence):
        return Healthy(reason=f"{_within(mismatches)}; the differences are those of old rollouts: see stale-rollouts")
    if not findings and pattern is not None and pattern.noticed:
        small = _after_tools(with_causes(_small(pattern, evidence), evidence, keep=1), evidence)
        return Healthy(reason=_within(mismatches), notes=(small,)) if small.severity is Severity.INFO else small
    if not findings and (alone := _single_tokens(evidence)) is not None:
        return with_causes(alone, evidence, keep=1)
    if not findings and (sided := _one_sided(evidence)) is not None:
        return sided
    if not findings and (within := within_limits(mismatches, evidence)) is not None:
        return with_causes(within, evidence, keep=1)
    if not findings:
        return retokenised(evidence) or Healthy(reason=_within(mismatches))
    if _untrained(evidence):
        still = (
            "; the learning rate is 0 at every step, so that no update moved the two apart: sequences, positions or "
            "weights are not the same on both sides"
        )
        findings = [replace(finding, claim=finding.claim + still) for finding in findings]
    beyond = [finding for finding in findings if "own_level" not in finding.evidence]
    unseen = _unseen(evidence, limits["logp_abs"]) if beyond else ""
    if unseen:
        findings = [replace(finding, severity=Severity.LOW, claim=finding.claim + unseen) for finding in findings]
    worst = min(findings, key=lambda finding: (finding.severity.rank, finding.onset_step or 0))
    if not unseen:
        worst = with_causes(_by_harm(worst, evidence), evidence, keep=1)
    return _after_tools(worst, evidence)


def _after_tools(finding: Finding, evidence: Evidence) -> Finding:
    """Say how much of the differences comes after tool output, where it is most, and what their shape there tells."""
    shape = evidence.mismatch
    if shape is None or shape.tail is None or shape.tail.share < MOST or shape.tail.lift_interval[0] < MIN_LIFT:
        return finding
    where = f"; {pct(shape.tail.share)} of the recorded differences beyond {LARGE:g} nats come after tool output"
    ranked = "cause_1" in finding.evidence  # by more signs than the shape after tools alone
    causes = finding.causes if ranked else (cause_of(shape).name, *finding.causes)
    return replace(finding, claim=finding.claim + where, causes=causes)


def _single_tokens(evidence: Evidence) -> Finding | None:
    """Return the finding on the few tokens that one side is certain of and that are impossible to the other."""
    series = evidence.metrics.get("mismatch/logp_abs_max")
    limit = LOGP_MAX if masked_on_one_side(evidence.metrics) is None else LOGP_MAX_MASKED
    excess = lasting_excess(series, limit) if series is not None and len(series.finite()[0]) >= MIN_LOGGED else None
    if series is None or excess is None:
        return None
    return Finding(
        severity=Severity.LOW,
        claim=f"Engine and trainer agree but for single tokens, which are certain to one and impossible to the other: "
        f"{series.raw_name} has stayed above {excess.limit:g}",
        unit="nats",
        **measured(excess, observed=excess.peak),
        evidence=series_evidence(series, last_mean=excess.last),
        causes=(),
        confirm=("list the tokens that differ most, with what comes before them: do both sides score the same ids?",),
        next=("mask sequences with such a token until the cause is found",),
    )


def _one_sided(evidence: Evidence) -> Finding | None:
    """Return the finding on ratios that lie below 1 step after step, as truncated sampling makes them.

    The mean ratio is 1 where the engine's logprobs are those the tokens were drawn with: normalised over what may be
    sampled, they are above the trainer's of the whole vocabulary at every token.
    """
    ratio = evidence.metrics.get("is/ratio_mean")
    key = next((name for name in ("rollout_top_p", "top_p") if name in evidence.run.context), None)
    top_p = evidence.run.context.get(key) if key is not None else None
    if ratio is None or not isinstance(top_p, float) or not 0 < top_p < 1:
        return None
    below = 1 - ratio.finite()[1]
    if len(below) < MIN_SIDED or (below > 0).mean() < STAYS_BELOW or np.median(below) < RATIO_BELOW:
        return None
    away = replace(ratio, steps=ratio.finite()[0], values=below, flags=ratio.flags[np.isfinite(ratio.values)])
    excess = lasting_excess(away, RATIO_BELOW)
    if excess is None:
        return None
    share, middle = pct(float((below > 0).mean())), sig(1 - float(np.median(below)))
    finding = Finding(
        severity=Severity.LOW,
        claim=f"Sampling is truncated ({key} {top_p:g}) and one side's logprobs are not: {ratio.raw_name} is below 1 "
        f"at {share} of the steps, {middle} in the median",
        unit="ratio",
        **measured(excess, observed=excess.peak),
        evidence=series_evidence(ratio, last_mean=1 - excess.last),
        causes=(),
        confirm=(),
        next=("only then add truncated importance weights",),
    )
    signs = (
        sign("ratio_stays_below", name=ratio.raw_name, share=share, ratio=middle),
        sign("top_p", setting=f"{key}={top_p:g}"),
    )
    return with_causes(finding, evidence, *signs, keep=1)


def _ratio_above(evidence: Evidence) -> Finding | None:
    """Return the finding on a mean ratio far above 1, which it is at any distance if the engine's logprobs are right.

    The mean of p / q over tokens drawn from q is at most 1. Judged where no difference of logprobs is logged.
    """
    ratio = evidence.metrics.get("is/ratio_mean")
    values = np.zeros(0) if ratio is None else ratio.finite()[1]
    if ratio is None or len(values) < MIN_SIDED or (values > RATIO_ABOVE).mean() < STAYS_BELOW:
        return None
    excess = lasting_excess(ratio, RATIO_ABOVE)
    if excess is None:
        return None
    finding = Finding(
        severity=Severity.MEDIUM,
        claim=f"Inference engine and trainer disagree on the sampled tokens: {ratio.raw_name} has stayed above "
        f"{RATIO_ABOVE:g}, and would be 1 if the tokens were drawn with the engine's logprobs",
        unit="ratio",
        **measured(excess, observed=excess.peak),
        evidence=series_evidence(ratio, last_mean=excess.last),
        causes=(),
        confirm=(
            "at step 1, before any update, compare both sides' logprobs of one sequence: equal, scaled or noisy?",
        ),
        next=("only then add truncated importance weights",),
    )
    return with_causes(finding, evidence, keep=1)


def _within(mismatches: list[Mismatch]) -> str:
    return "; ".join(
        f"{mismatch.series.raw_name} peaks at {sig(peak_median(mismatch.series))}, limit {mismatch.limit:g}"
        for mismatch in mismatches
    )


def _untrained(evidence: Evidence) -> bool:
    """Return whether the learning rate was 0 throughout, in a log that would show a small one."""
    rate = evidence.metrics.get("lr")
    values = np.zeros(0) if rate is None else rate.finite()[1]
    return len(values) >= MIN_LOGGED and not values.any() and shows_small_numbers(evidence, besides="lr")


def _stale(evidence: Evidence) -> bool:
    """Return whether rollouts are so old that stale-rollouts speaks of them."""
    lag = lag_of(evidence)
    return lag is not None and len(stale_steps(lag)) > 0


def _small(pattern: MismatchPattern, evidence: Evidence) -> Finding:
    """Return the finding on a mismatch within the limits whose tokens follow a pattern that no arithmetic leaves."""
    return Finding(
        severity=Severity.LOW if pattern.mean >= NOTICED and pattern.name != "by_lag" else Severity.INFO,
        claim=f"Inference engine and trainer differ by a pattern, though little: mean of |old/rollout| is "
        f"{sig(pattern.mean)} nats, and {pattern.sign.text}",
        observed=pattern.mean,
        limit=NOTICED,
        unit="nats",
        onset_step=int(evidence.pairs["old/rollout"].mean_abs.finite()[0][0]),
        evidence={"pattern": pattern.name, "mean": pattern.mean},
        causes=(),
        confirm=("compare both sides' logprobs of the sequences that are off most",),
        next=("mend it before it grows: importance weights correct noise, not a pattern",),
    )


def _by_harm(finding: Finding, evidence: Evidence) -> Finding:
    """Say what the correction of the ratios cuts, by weight in the gradient or as logged, and raise a finding by it."""
    if finding.severity is Severity.LOW:
        return finding
    pattern = evidence.mismatch_pattern
    if pattern is not None and math.isfinite(pattern.beyond):
        share, key = pattern.beyond, "weight_beyond_cap"
        said = f"{pct(share)} of the gradient's weight lies on tokens that the cap on the engine's weights cuts"
    else:
        parts = [evidence.metrics[name] for name in TRUNCATED if name in evidence.metrics]
        shares = [last_mean(series) for series in parts if len(series.finite()[0]) >= MIN_LOGGED]
        if not shares:
            return finding
        share, key = sum(shares), "truncated_share"
        said = f"{pct(share)} of the importance ratios lie beyond their bounds"
    return replace(
        finding,
        severity=Severity.HIGH if share >= HIGH_TRUNCATED else finding.severity,
        claim=f"{finding.claim}; {said}",
        evidence={**finding.evidence, key: share},
    )


def _unseen(evidence: Evidence, limit: float) -> str:
    """Return a clause where the recorded tokens of both sides do not show what is logged, or nothing."""
    pair = trainer_pair(evidence) or evidence.pairs.get("policy/rollout")
    if pair is None or len(pair.mean_abs.finite()[0]) < MIN_STEPS or pair.mean_abs.excess(limit) is not None:
        return ""
    peak = peak_median(pair.mean_abs)
    return (
        "" if peak > limit else f"; the recorded tokens do not show it: mean of |{pair.pair}| peaks at {sig(peak)} nats"
    )


def _mismatches(evidence: Evidence, limits: Limits) -> list[Mismatch]:
    mismatches = []
    for name in METRICS:
        series = evidence.metrics.get(name)
        if series is not None and len(series.finite()[0]) >= MIN_LOGGED:
            if name == "mismatch/kl":  # k1 is signed: negative where the engine is the less sure of the two
                series = replace(series, values=np.abs(series.values))
            key = name.rpartition("/")[2].removesuffix("_mean").removesuffix("_frac")
            zero = 1.0 if name == "mismatch/prob_error" else 0.0
            fine = None if name == "mismatch/prob_diff" and _rounds(evidence) else limits.get(f"{key}_fine")
            mismatches.append(Mismatch(freshest(evidence, series), limits[key], fine, zero))
    pair = trainer_pair(evidence)
    if pair is not None and len(pair.mean_abs.finite()[0]) >= MIN_STEPS:
        mismatches.append(Mismatch(freshest(evidence, pair.mean_abs), limits["logp_abs"], None, 0.0))
    return mismatches


def _rounds(evidence: Evidence) -> bool:
    """Return whether probabilities that differ little do so as rounding makes them: none by far, and all in step."""
    correlation, worst = (evidence.metrics.get(f"mismatch/{name}") for name in ("pearson", "prob_diff_max"))
    far = np.zeros(0) if worst is None else worst.finite()[1]
    related = np.ones(1) if correlation is None else correlation.finite()[1]
    in_step = len(related) > 0 and bool(np.median(related) >= ROUNDING)
    return in_step and len(far) >= MIN_LOGGED and bool(np.median(far) < CERTAIN)


def _own_rise(mismatch: Mismatch, evidence: Evidence) -> Excess | None:
    """Return the lasting rise within the limit beyond what the run itself began with, or None."""
    series, limit, _, zero = mismatch
    away = replace(series, values=np.abs(series.values - zero))
    own = None if _stale(evidence) else own_limit(away, evidence.metrics, limit - zero)
    excess = None if own is None else lasting_excess(series, zero + own)
    return None if excess is None or excess.ended is not None else excess


def _at_once(series: Series, onset: int, zero: float) -> bool:
    """Return whether a mismatch jumps at a step, as what was done there makes it, and does not creep up."""
    steps, values = series.finite()
    before, after = values[steps < onset][-EARLY:], values[steps >= onset][:EARLY]
    return bool(len(before) and abs(np.median(after) - zero) >= GREW * abs(np.median(before) - zero))


def _finding(mismatch: Mismatch, evidence: Evidence) -> Finding | None:
    series, limit, fine, zero = mismatch
    excess, severity = lasting_excess(series, limit), Severity.MEDIUM
    own = excess is None and (excess := _own_rise(mismatch, evidence)) is not None
    level = float(np.median(series.finite()[1][:EARLY]))
    if (
        excess is not None
        and own
        and not (excess.last - zero >= LOW_SHARE * (limit - zero) and _at_once(series, excess.onset, zero))
    ):
        severity = Severity.LOW
    if excess is None and fine is not None:
        excess, severity = lasting_excess(series, fine), Severity.LOW
    if excess is None:
        return None
    if severity is Severity.MEDIUM and excess.peak - zero > HIGH_FACTOR * (limit - zero):
        severity = Severity.HIGH
    within = f", within the limit of {limit:g}, and began at {sig(level)}" if own else ""
    return Finding(
        severity=severity,
        claim=f"Inference engine and trainer disagree on the sampled tokens: {series.raw_name} has stayed above "
        f"{sig(excess.limit) if own else format(excess.limit, 'g')}{within}",
        unit=unit_of(series, zero),
        **measured(excess, observed=excess.peak),
        evidence=series_evidence(series, last_mean=excess.last) | ({"own_level": level} if own else {}),
        causes=(
            "raw logprobs where processed ones are expected: temperature, penalties, truncation",
            "engine weights that were updated late or not at all",
            "different kernels or precision, above all in the last layer",
            "experts that are routed differently",
        ),
        confirm=(
            "at step 1, before any update, compare both sides' logprobs of one sequence: equal, scaled or noisy?",
            "repeat it with the engine in float32: what vanishes was precision",
        ),
        next=(
            "use processed logprobs and the same sampling defaults on both sides",
            "check that weight updates reach the engine",
            "use an fp32 last layer, and replay expert routing for mixtures of experts",
            "only then add truncated importance weights",
        ),
    )


RULE = rule(
    check,
    "engine-mismatch",
    Link.DATA_FRESHNESS,
    prob_diff=PROB_DIFF,
    prob_diff_fine=PROB_DIFF_FINE,
    kl=KL,
    kl_fine=KL_FINE,
    prob_error=PROB_ERROR,
    logp_abs=LOGP_ABS,
    ppl_diff=LOGP_ABS,
    truncated=TRUNCATED_SHARE,
)
