"""This run shows sequences sampled or scored at different temperatures side by side.

What: the recorded `temperature` differs between sequences of one step. Or, whatever is recorded, the sequences of a
pair fall into two kinds: in 8% or more, r is proportional to the logprob (a line with R^2 above 0.8 and a slope beyond
0.1 within the sequence, similar slopes between sequences, and hardly any to the other side), while in 15% or more the
two logprobs agree. What one step alone of several shows is an update, and what holds from a step on is another scale.
Against the reference, only the first 64 sequences that can be fitted are used, and only T below 1 shows, because drift
has negative slopes of its own.
Why it matters: where scores are taken at two temperatures, r = (1/T - 1) log p on every token of some sequences: a
heavy tail without any learning, which no single temperature can correct. Where only sampling differs, KL, ESS and the
share of rare tokens describe a mixture: a growing share of hot sequences looks like a growing tail.
What to do: score every sequence at the temperature it was sampled with, or all at 1; record `temperature` with each.
Source: mixed or annealed exploration temperatures, evaluation samples that got into training batches; slope 1/T - 1.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.column_faults import fault_of
from ptt.diagnostics.evidence.validity import MixedColumn, MixedPair, Validity
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.data_validity import BLOCKS, extent, recorded_validity, shared_column
from ptt.diagnostics.rules.interface import Broken, Finding, Healthy, Limits, Verdict, requires, rule
from ptt.diagnostics.statistics.pair_sample import TemperatureMixture
from ptt.diagnostics.wording import pct, sig

MIN_SCALED_SHARE = 0.08  # of fitted sequences: 0.03 at most in sound runs, 0.13 to 0.30 where three in ten are scaled
MIN_PLAIN_SHARE = 0.15  # of fitted sequences: 0.13 at most with a single temperature
MIN_SCALED = 5  # sequences
MIN_ONE_SIDED = 5  # times as many as are scaled to the other side: a few noisy tokens lie on lines of either slope
MAX_SHOWN = 6  # temperatures named in a claim
MAX_SPREAD = 0.6  # interquartile range of the slopes over their median: chance slopes differ more


@requires(recorded_validity)
def check(validity: Validity, evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the recorded temperatures, and the kinds of sequences each pair falls into."""
    mixed = {
        pair: kinds
        for pair, kinds in validity.mixed_pairs.items()
        if _two_kinds(kinds.mixture, limits)
        and _lasts(kinds, validity)
        and fault_of(evidence.column_faults, pair) is None
        and not _explained(pair, evidence)
    }
    findings = [_scored(mixed, validity, limits)] if mixed else []
    if validity.mixed_column is not None:
        findings.append(_sampled(validity.mixed_column))
    if findings:
        return Broken(findings=tuple(findings))
    fitted = max((kinds.mixture.judged for kinds in validity.mixed_pairs.values()), default=0)
    return Healthy(
        reason=f"all {fitted} sampled sequences that can be fitted are of one kind; no step records two temperatures"
    )


def _two_kinds(mixture: TemperatureMixture, limits: Limits) -> bool:
    shares = mixture.scaled_share >= limits["scaled"] and mixture.plain_share >= limits["plain"]
    scaled = len(mixture.scaled_seqs)
    one_sided = scaled >= max(MIN_SCALED, MIN_ONE_SIDED * mixture.opposite)
    return shares and one_sided and mixture.spread <= MAX_SPREAD


def _explained(pair: str, evidence: Evidence) -> bool:
    """Return whether the sequences of two kinds are those of another fault, which has a finding of its own."""
    pattern = evidence.mismatch_pattern
    return pattern is not None and pattern.no_mixture and pair.endswith("/rollout")


def _lasts(kinds: MixedPair, validity: Validity) -> bool:
    """Return whether more than one step shows it, where the run has more: one violent update scales a step as well."""
    steps, run = kinds.extent, validity.extent
    return steps.first_step != steps.last_step or run.first_step == run.last_step


def _scored(mixed: dict[str, MixedPair], validity: Validity, limits: Limits) -> Finding:
    pair, worst = max(mixed.items(), key=lambda item: (item[1].mixture.scaled_share, item[0]))
    kinds = worst.mixture
    temperature = 1 / (1 + kinds.slope)
    facts = extent(
        worst.extent, "r = (1/T - 1) log p on their tokens: it enters tails, ESS, E[rho^2] and KL of the pair"
    )
    return Finding(
        severity=Severity.HIGH,
        claim=f"About {pct(kinds.scaled_share)} of sequences, between steps {worst.extent.first_step} and "
        f"{worst.extent.last_step}, have one side of {pair} at {sig(temperature)} times the temperature of the "
        f"other; in {pct(kinds.plain_share)} the two agree",
        observed=kinds.scaled_share,
        limit=limits["scaled"],
        unit="share",
        evidence={
            "pair": pair,
            "pairs": ", ".join(mixed),
            "temperature": temperature,
            "slope": kinds.slope,
            "fitted_sequences": kinds.judged,
            "sampled_sequences": worst.sampled,
            **facts,
            "tokens": round(kinds.scaled_share * validity.extent.tokens),
            "sequences": round(kinds.scaled_share * validity.extent.sequences),
            BLOCKS: shared_column(mixed, pair),
        },
        causes=("sequences are sampled at several temperatures and scored at one",),
        next=("score each sequence at the temperature it was sampled with, or all at 1",),
    )


def _sampled(column: MixedColumn) -> Finding:
    known = ", ".join(f"{value:g}" for value in column.temperatures[:MAX_SHOWN])
    more = len(column.temperatures) - MAX_SHOWN
    known += f" and {more} more" if more > 0 else ""
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"At {column.steps} steps, between {column.extent.first_step} and {column.extent.last_step}, sequences "
        f"are recorded at different temperatures ({known}); {pct(column.share)} of them differ from the usual one",
        observed=column.share,
        limit=0.0,
        unit="share",
        evidence={
            "temperatures": known,
            "steps": column.steps,
            **extent(
                column.extent, "tails, ESS and KL describe a mixture; a changing share of hot sequences moves them"
            ),
        },
        causes=("exploration at several temperatures", "evaluation samples among the training ones"),
        next=("judge only the sequences at the usual temperature, and compare",),
    )


RULE = rule(check, "mixed-temperatures", Link.DATA_VALIDITY, scaled=MIN_SCALED_SHARE, plain=MIN_PLAIN_SHARE)
