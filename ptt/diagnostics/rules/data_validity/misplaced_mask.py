"""This run shows a mask that marks tokens as sampled which the policy did not sample.

What: at one place beside every observation, or at the ends of sequences, the marked tokens are ones that the policy can
not have sampled. One token stands there nearly always, and yet has a mean surprisal, -logp, of 1 nat or more (a token
that is sampled with probability p adds -p log p to that mean, 0.37 at most). Or the mean surprisal there is 1 nat above
the mean entropy, by 6 standard errors. Or six in ten have 5 nats and 3 more than their entropy. Before an observation,
where a rarer token may end the turn, it takes 1.5 nats. Or sequences go on behind the token that ends them. Or the
marked tokens are unlikely and the unmarked ones are not. Each is looked for window by window.
Why it matters: these tokens are trained on. Their log-ratios enter every statistic as the policy's own: three template
tokens a turn look like a heavy tail after tool output, and where they begin in the middle of a run, like its growth.
What to do: print tokens and mask of one sequence with a tool call, side by side. Template tokens, tool output and
padding must be false; the first token of the policy's own and its end token must be true.
Source: chat templates that put tokens between tool output and the policy's turn, masks shifted by the one token that
labels are shifted by, and padding to the longest sequence. The tests are ours: E[-log p] of a distribution's own
samples is its entropy, at any place that what came before decides.
"""

import math
from collections.abc import Iterator, Mapping

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.mask import SampledMasks
from ptt.diagnostics.evidence.validity import Extent
from ptt.diagnostics.model import JsonScalar, Link, Severity
from ptt.diagnostics.rules.data_validity import BLOCKS, dates_of, extent, sampled_masks, when_words
from ptt.diagnostics.rules.interface import Broken, Finding, Healthy, Limits, Verdict, requires, rule
from ptt.diagnostics.statistics.fault_since import FaultSpan
from ptt.diagnostics.statistics.mask_faults import Inversion, Padding, PlaceFault
from ptt.diagnostics.wording import counted, pct, sig

MIN_COMMON = 0.9  # of a place's tokens that have one id: then they belong to a template
EFFECT = "tokens that the policy did not sample are in tails, ESS, E[rho^2] and KL, and in the loss"
CAUSES = ("the mask was made for other token ids than these", "the chat template's tokens count as the policy's")
NEXT = ("print tokens and mask of one sequence with a tool call, side by side",)


@requires(sampled_masks)
def check(masks: tuple[SampledMasks, Mapping[FaultSpan, Extent]], _: Evidence, limits: Limits) -> Verdict:
    """Judge the places, the ends, and both sides of the mask."""
    sampled, extents = masks
    findings = tuple(_findings(sampled, extents, limits))
    if findings:
        return Broken(findings=findings)
    return Healthy(
        reason=f"of {counted(sampled.sequences, 'sequence(s)')} looked at, the marked tokens beside observations and "
        "at the ends are ones that a policy samples"
    )


def _findings(sampled: SampledMasks, extents: Mapping[FaultSpan, Extent], limits: Limits) -> Iterator[Finding]:
    if sampled.inversion is not None:
        yield _inverted(sampled.inversion, extents[sampled.inversion.span])
        return
    if sampled.padding is not None:
        yield _padded(sampled.padding, extents[sampled.padding.span])
    for place in sampled.places:
        if place.surprisal >= limits["nats"] and not (place.kind == "end" and sampled.padding is not None):
            yield _misplaced(place, extents[place.span], limits)


def _misplaced(place: PlaceFault, held: Extent, limits: Limits) -> Finding:
    beside = "" if math.isnan(place.entropy) else f" at an entropy of {sig(place.entropy)}"
    common = place.common
    one = f"; one is token {common.id} in {pct(common.share)}" if common and common.share >= MIN_COMMON else ""
    marked, what = _named(place)
    facts: dict[str, JsonScalar] = {
        "place": place.kind,
        "places": ", ".join(map(str, place.numbers)),
        "unlikely": place.share,
        "mean_entropy": None if math.isnan(place.entropy) else place.entropy,
        "token": common.id if one and common else None,
    }
    return Finding(
        severity=Severity.HIGH,
        claim=f"The mask marks {marked} as sampled {when_words(place.span)}: {what} "
        f"(surprisal {sig(place.surprisal)} nats in the mean{beside}{one})",
        observed=place.surprisal,
        limit=limits["nats"],
        unit="nats",
        slice="post_tool" if place.kind == "after" else None,
        **dates_of(place.span),
        evidence={**facts, **extent(held, EFFECT), BLOCKS: "all"},
        causes=CAUSES,
        next=NEXT,
    )


def _named(place: PlaceFault) -> tuple[str, str]:
    """Return where the wrongly marked tokens are, and what that says about them."""
    count = counted(len(place.numbers), "token(s)") if len(place.numbers) > 1 else "token"
    if place.kind == "end":
        return "the last tokens of sequences", "this is padding"
    if place.kind == "before":
        if place.numbers == (1,):
            return "the first token of each observation", "the mask is one token late"
        return f"the last {count} before each observation", "this is the template's"
    if place.numbers == (0,) and place.opens and place.ends and place.opens.id == place.ends.id:
        return "the last token of each observation", "the mask is one token early, and leaves out what ends a turn"
    return f"the first {count} after each observation", "this is the template's or the tool's"


def _padded(padding: Padding, held: Extent) -> Finding:
    return Finding(
        severity=Severity.HIGH,
        claim=f"Padding is marked as sampled {when_words(padding.span)}: {pct(padding.share)} of sequences go on with "
        "one token behind the token that ends them",
        observed=padding.share,
        limit=None,
        unit="share",
        **dates_of(padding.span),
        evidence={"place": "end", **extent(held, EFFECT), BLOCKS: "all"},
        causes=("the mask is true up to the length of the longest sequence",),
        next=("print the last tokens and the mask of a short sequence",),
    )


def _inverted(inversion: Inversion, held: Extent) -> Finding:
    return Finding(
        severity=Severity.HIGH,
        claim=f"The mask is inverted {when_words(inversion.span)}: the policy all but never samples "
        f"{pct(inversion.marked)} of the marked tokens, and {pct(inversion.unmarked)} of the others",
        observed=inversion.marked,
        limit=None,
        unit="share",
        **dates_of(inversion.span),
        evidence={
            "unlikely_unmarked": inversion.unmarked,
            **extent(held, "tool output counts as sampled, and what the policy sampled as tool output"),
            BLOCKS: "all",
        },
        causes=("the mask says what to leave out where what to train on was asked for",),
        next=NEXT,
    )


MIN_NATS = 1.0  # of surprisal in the mean over the places found: less moves no percentile

RULE = rule(check, "misplaced-mask", Link.DATA_VALIDITY, max_severity=Severity.HIGH, nats=MIN_NATS)
