"""This run shows sequences of different temperatures side by side.

What: the recorded `temperature` differs between sequences of one step. Or, whatever is recorded, the sequences of a
pair are of two kinds: in 8 % or more r is proportional to the logprob (a line of R^2 above 0.8 and slope beyond 0.1
within the sequence, the slopes alike), while in 15 % or more the two logprobs agree. Against the reference only the
first 64 sequences that can be fitted are looked at, and only T below 1 shows: drift has negative slopes of its own.
Why it matters: where scores are of two temperatures, r = (1/T - 1) log p on every token of some sequences, a heavy tail
without any learning, and one temperature for the whole run cannot correct it. Where only sampling differs, KL, ESS and
the share of rare tokens are those of a mixture: a growing share of hot sequences looks like a growing tail.
What to do: score every sequence at the temperature it was sampled with, or all at 1; record `temperature` with each.
Source: mixed or annealed exploration temperatures, evaluation samples that got into training batches; slope 1/T - 1.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.validity import MixedColumn, MixedPair, Validity
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.data_validity import BLOCKS, extent, none_recorded, validity_of
from ptt.diagnostics.rules.interface import Broken, Finding, Healthy, Limits, Rule, Verdict

SCALED = 0.08  # of fitted sequences: 0.03 at most in sound runs, 0.13 to 0.30 where three in ten are scaled
PLAIN = 0.15  # of fitted sequences: 0.13 at most where one temperature goes for all
LEAST_SCALED = 5  # sequences
ALIKE = 0.6  # interquartile range of the slopes over their median: chance slopes differ more


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the recorded temperatures, and the kinds of sequences each pair falls into."""
    validity = validity_of(evidence)
    if validity is None:
        return none_recorded()
    mixed = {pair: found for pair, found in validity.mixed_pairs.items() if _two_kinds(found, limits)}
    findings = []
    if mixed:
        findings.append(_scored(mixed, validity))
    if validity.mixed_column is not None:
        findings.append(_sampled(validity.mixed_column))
    if findings:
        return Broken(findings=tuple(findings))
    fitted = max((found.mixture.judged for found in validity.mixed_pairs.values()), default=0)
    return Healthy(
        reason=f"{fitted} sampled sequences that can be fitted are of one kind; no two recorded temperatures meet"
    )


def _two_kinds(found: MixedPair, limits: Limits) -> bool:
    kinds = found.mixture
    return (
        len(kinds.scaled_seqs) >= LEAST_SCALED
        and kinds.scaled_share >= limits["scaled"]
        and kinds.plain_share >= limits["plain"]
        and kinds.spread <= ALIKE
    )


def _scored(mixed: dict[str, MixedPair], validity: Validity) -> Finding:
    pair, found = max(mixed.items(), key=lambda item: (item[1].mixture.scaled_share, item[0]))
    kinds = found.mixture
    temperature = 1 / (1 + kinds.slope)
    sides = [set(name.split("/")) for name in mixed]
    common = set.intersection(*sides)
    whole = validity.extent
    facts = extent(found.extent, "r = (1/T - 1) log p on their tokens: tails, ESS, E[rho^2] and KL of the pair hold it")
    return Finding(
        severity=Severity.HIGH,
        claim=f"About {kinds.scaled_share:.0%} of sequences, between steps {found.extent.first_step} and "
        f"{found.extent.last_step}, have one side of {pair} at temperature {temperature:.2g} of the other's; in "
        f"{kinds.plain_share:.0%} the two agree",
        observed=kinds.scaled_share,
        limit=SCALED,
        unit="share",
        evidence={
            "pair": pair,
            "pairs": ", ".join(mixed),
            "temperature": temperature,
            "slope": kinds.slope,
            "fitted_sequences": kinds.judged,
            "sampled_sequences": found.sampled,
            **facts,
            "tokens": round(kinds.scaled_share * whole.tokens),
            "sequences": round(kinds.scaled_share * whole.sequences),
            BLOCKS: f"{common.pop()}_logp" if len(mixed) > 1 and len(common) == 1 else pair,
        },
        causes=("sequences are sampled at several temperatures and scored at one",),
        next=("score each sequence at the temperature it was sampled with, or all at 1",),
    )


def _sampled(found: MixedColumn) -> Finding:
    known = ", ".join(f"{value:g}" for value in found.temperatures[:MOST_SHOWN])
    more = len(found.temperatures) - MOST_SHOWN
    known += f" and {more} more" if more > 0 else ""
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"At {found.steps} steps, between {found.extent.first_step} and {found.extent.last_step}, sequences are "
        f"recorded with different temperatures ({known}); {found.share:.0%} of them not with the usual one",
        observed=found.share,
        limit=0.0,
        unit="share",
        evidence={
            "temperatures": known,
            "steps": found.steps,
            **extent(found.extent, "tails, ESS and KL are a mixture's; a changing share of hot sequences moves them"),
        },
        causes=("exploration at several temperatures", "evaluation samples among the training ones"),
        next=("judge the sequences of the usual temperature alone, and compare",),
    )


MOST_SHOWN = 6


RULE = Rule(id="mixed-temperatures", link=Link.DATA_VALIDITY, check=check, limits={"scaled": SCALED, "plain": PLAIN})
