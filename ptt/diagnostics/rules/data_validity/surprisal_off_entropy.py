"""This run shows sampled tokens that are far more, or far less, surprising than their entropy.

What: in the mean, a token that a policy samples has a surprisal, -logp, of the entropy of its distribution, whatever
the policy is: 0.9 to 1.2 times as much in windows of sound runs. Here it is 1.3 times or more, or 0.85 or less with a
temperature of 0.8 or less that explains it, by 4 standard errors over sequences and 0.02 nats a token, in two windows
or more. Only columns that claim to be the sampling policy's are judged: `rollout_logp` and `old_logp`, or `policy_logp`
alone. Where a temperature other than 1 or a `top_p` below 1 is recorded, the temperature that explains the tokens is
held against the one early in the run; where nothing is recorded, and the run does not begin at 1, a temperature of 1.4
or more counts, or twice the entropy. Places that misplaced-mask names, and padding, are left out.
Why it matters: gradients, KL and importance weights presume that the tokens were sampled by the policy that scores
them. A sampler at another temperature, weights that were not loaded, or text that nobody sampled break this silently:
the reward stalls, and every tail is one of foreign tokens.
What to do: score one fresh sequence with the trainer and the engine; check temperature, `top_p`, penalties and the
version of the weights in the engine, then the mask.
Source: E[-log p] of a distribution's own samples is its entropy. The temperature is the root of the sum of
exp(-(1 - 1/T) s) (s - H) over tokens with surprisal s and entropy H.
"""

import math
from collections.abc import Mapping

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.mask import SampledMasks
from ptt.diagnostics.evidence.validity import Extent
from ptt.diagnostics.model import JsonScalar, Link, Severity
from ptt.diagnostics.rules.data_validity import BLOCKS, dates_of, extent, sampled_masks, when_words
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, requires, rule
from ptt.diagnostics.statistics.fault_since import FaultSpan
from ptt.diagnostics.statistics.surprisal_excess import MAX_RATIO, MIN_RATIO, SurprisalExcess
from ptt.diagnostics.wording import sig

MIN_HIGH = 1.5  # times the entropy: a sampler at T of 1.2 or so; milder ones waste, and break nothing
MIN_RUNS_SHARE = 0.6  # of the unlikely tokens, next to others: 0.35 at a sampler's T of 1.5, 0.8 in tool output


@requires(sampled_masks)
def check(masks: tuple[SampledMasks, Mapping[FaultSpan, Extent]], _: Evidence, limits: Limits) -> Verdict:
    """Judge where surprisal and entropy part."""
    sampled, extents = masks
    if not sampled.whole.tokens:
        return NotJudged(
            reason="no entropy of single tokens is recorded to hold the surprisal of sampled tokens against",
            missing=("entropy",),
            enable="record the entropy of each token's distribution as `entropy`: docs/recorder.md",
        )
    excess, whole = sampled.excess, sampled.whole
    if excess is None:
        return Healthy(reason=f"sampled tokens have {sig(whole.ratio)} times the surprisal that their entropy has them")
    both = excess.inside
    high = both.ratio > 1
    return Finding(
        severity=Severity.HIGH if both.ratio >= limits["high"] else Severity.MEDIUM,
        claim=f"Sampled tokens have {sig(both.ratio)} times the surprisal that their entropy gives them"
        f" {when_words(excess.span)} ({sig(both.surprisal)} nats against {sig(both.entropy)}): {_why(sampled, excess)}",
        observed=both.ratio,
        limit=MIN_RATIO if high else MAX_RATIO,
        unit="x",
        **dates_of(excess.span),
        evidence={
            "columns": ", ".join(sampled.columns),
            "mean_surprisal": both.surprisal,
            "mean_entropy": both.entropy,
            "standard_errors": both.z,
            "ratio_elsewhere": None if math.isnan(excess.outside.ratio) else excess.outside.ratio,
            **_temperature(excess),
            "unlikely_in_runs": excess.clustered,
            **extent(extents[excess.span], "tails, ESS, E[rho^2] and KL are of tokens that another policy sampled"),
            **({BLOCKS: "all"} if high else {}),
        },
        causes=_causes(excess),
        next=(
            "score one fresh sequence with the engine and the trainer, at the same temperature",
            "then compare the mask with the roles of its messages",
        ),
    )


def in_runs(excess: SurprisalExcess) -> bool:
    """Return whether tokens that a policy rarely samples come in runs, as foreign text does."""
    return excess.inside.ratio > 1 and excess.clustered >= MIN_RUNS_SHARE


def _temperature(excess: SurprisalExcess) -> dict[str, JsonScalar]:
    one = excess.temperature
    return {"sampling_temperature": one.value, "sampling_temperature_se": one.error} if one and one.consistent else {}


def _why(sampled: SampledMasks, excess: SurprisalExcess) -> str:
    if in_runs(excess):
        return "whole runs of them are text that this policy does not write"
    one, temperatures = excess.temperature, sampled.sampling.temperatures
    if one is None or not (one.consistent or excess.inside.ratio < 1):
        return "they were not sampled by the policy that scores them"
    said = f", where `temperature` says {temperatures[0]:g}" if len(temperatures) == 1 else ""
    others = ", or unlikely tokens are never sampled" if excess.inside.ratio < 1 else ""
    return f"they were sampled at about {sig(one.value)} times the temperature of their scores{said}{others}"


def _causes(excess: SurprisalExcess) -> tuple[str, ...]:
    if in_runs(excess):
        return ("the mask counts tool output or template text",)
    return (
        "the sampler's temperature, top_p or penalties are not those of the scores",
        "the engine samples with other weights than the trainer scores with",
    )


RULE = rule(check, "surprisal-off-entropy", Link.DATA_VALIDITY, max_severity=Severity.HIGH, high=MIN_HIGH)
