"""This run shows values that are no log-probabilities.

What: exactly 0 where the other side gives the token less than 1 %, exactly -1, -9999 and below, or above 0; or one
exact value other than 0 on more than 2 % of tokens (log(1/V), for one).
Why it matters: each such token is an outlier of several nats in r, and a few of them make the tail. They are left out
of every statistic and counted.
What to do: write null where there is no logprob; check that prompt, tool and padding tokens are masked.
Source: NeMo-RL and slime write 0.0 on tokens that were not generated, older veRL pads with -1, OpenAI-style servers
send -9999.0, prime-rl puts log(1/V) at index 0.
"""

from collections.abc import Mapping

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.validity import Validity
from ptt.diagnostics.model import JsonScalar, Link, Severity
from ptt.diagnostics.rules.data_validity import BLOCKS, extent, recorded_validity
from ptt.diagnostics.rules.interface import Broken, Finding, Healthy, Limits, Verdict, requires, rule

KINDS = {"zero": "exactly 0", "pad": "exactly -1", "missing": "-9999 or below", "positive": "above 0"}
MIN_SHARE = 0.001  # of model tokens: below it the tokens left out cannot move a p99
BLOCKING_SHARE = 0.05
LEFT_OUT = "left out of every statistic; kept, each would be an outlier of several nats in the tail"
KEPT = "r there is the other side's logprob and a constant: the pair's tails, ESS and E[rho^2] are of no model"
COMMON_SHARE = 0.02  # of sampled tokens: one float32 value so often is written, not computed
MAX_COMMON_VALUE = -0.01  # nats: values this close to 0 do repeat in sure models


@requires(recorded_validity)
def check(validity: Validity, _: Evidence, limits: Limits) -> Verdict:
    """Judge the placeholders found while tokens were read."""
    findings = []
    for anomaly in validity.anomalies:
        share = anomaly.tokens / max(1, validity.model_tokens)
        if anomaly.kind in KINDS and share >= limits["worth_telling"]:
            blocks = share > limits["blocking_share"]
            claim = f"{anomaly.column} is {KINDS[anomaly.kind]} on {anomaly.tokens} model tokens, which are left out"
            findings.append(
                _finding(claim, share, anomaly.column, extent(anomaly, LEFT_OUT), anomaly.first_step, blocks=blocks)
            )
    for column, facts in validity.columns.items():
        if facts.common_share > limits["common_share"] and facts.common_value < MAX_COMMON_VALUE:
            claim = f"{column} has the one value {facts.common_value:.6g} on {facts.common_share:.0%} of tokens"
            kept = extent(validity.extent, KEPT) | {"tokens": round(facts.common_share * validity.model_tokens)}
            findings.append(_finding(claim, facts.common_share, column, kept, None, blocks=True))
    if findings:
        return Broken(findings=tuple(findings))
    return Healthy(reason=f"no placeholder on more than {limits['worth_telling']:.1%} of model tokens")


def _finding(
    claim: str, share: float, column: str, facts: Mapping[str, JsonScalar], onset: int | None, *, blocks: bool
) -> Finding:
    return Finding(
        severity=Severity.HIGH if blocks else Severity.MEDIUM,
        claim=claim,
        observed=share,
        limit=MIN_SHARE,
        unit="share",
        onset_step=onset,
        evidence={"column": column, **facts, BLOCKS: column if blocks else None},
        causes=("a fill value where no logprob was computed", "tokens in the mask that the policy did not sample"),
        next=("write null for tokens without a logprob, and hold the mask against the roles of the messages",),
    )


RULE = rule(
    check,
    "placeholder-logprobs",
    Link.DATA_VALIDITY,
    worth_telling=MIN_SHARE,
    blocking_share=BLOCKING_SHARE,
    common_share=COMMON_SHARE,
)
