"""This run shows two logprob columns that are shifted against each other.

What: over sampled sequences, the numerator at token t correlates better with the denominator one or two tokens later
(or earlier) than at the same token.
Why it matters: every r is then the difference of two different tokens: all tails are an artefact.
What to do: check whether the writer gathers from prompt[-1:] or logits[:-1]; entry t must belong to token t.
Source: off-by-one between engine and trainer arrays is the most common fault of hand-written dumps.
"""

import math

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.validity import Validity
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.data_validity import BLOCKS, extent, recorded_validity
from ptt.diagnostics.rules.interface import Broken, Finding, Healthy, Limits, Verdict, requires, rule

MARGIN = 0.2  # of correlation: sound pairs differ by 0.6 or more the other way, even late in a run
MIN_CORRELATION = 0.3  # a collapsed policy correlates with nothing at any lag


@requires(recorded_validity)
def check(validity: Validity, _: Evidence, limits: Limits) -> Verdict:
    """Judge the correlations at lags of -2 to 2."""
    findings = []
    for pair, (whole, _early) in validity.pairs.items():
        lags = {lag: c for lag, c in whole.lag_correlation.items() if math.isfinite(c)} if whole else {}
        if 0 not in lags:
            continue
        best = max(lags, key=lambda lag: lags[lag])
        if best != 0 and lags[best] > max(lags[0] + limits["margin"], MIN_CORRELATION):
            findings.append(_finding(pair, best, lags[best], lags[0], validity))
    if findings:
        return Broken(findings=tuple(findings))
    return Healthy(reason="columns correlate best without a shift")


def _finding(pair: str, lag: int, best: float, here: float, validity: Validity) -> Finding:
    top, bottom = pair.split("/")
    return Finding(
        severity=Severity.HIGH,
        claim=f"{top}_logp at token t belongs with {bottom}_logp at token t{lag:+d}: one of them is shifted",
        observed=best,
        limit=here,
        unit="correlation",
        evidence={
            "pair": pair,
            "lag": lag,
            "correlation_there": best,
            "correlation_here": here,
            **extent(
                validity.extent, "r compares different tokens: tails, ESS, E[rho^2] and KL of the pair mean nothing"
            ),
            BLOCKS: pair,
        },
        causes=("logits of position t score token t + 1: one column was gathered without the shift",),
        next=("print the token and both logprobs of ten tokens of one sequence side by side",),
    )


RULE = rule(check, "shifted-logprobs", Link.DATA_VALIDITY, margin=MARGIN)
