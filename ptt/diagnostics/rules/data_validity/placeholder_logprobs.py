"""This run shows logprob columns that hold placeholders instead of log-probabilities.

What: -9999 and below, or above 0; and values that could be logprobs but, as the run shows, are not: exactly 0, where
another column finds the token unlikely more often than it does for nearly certain tokens; -1, -100, -999 or -1000, or
any one value, where it is four times as common as its neighbours on the column's own grid and the other columns
contradict it: on more than 2% of tokens, or on more than 0.1% of float32 ones at many places of their sequences, where
no law gives two tokens one value. A column that is above 0 throughout holds probabilities or negated logprobs.
Why it matters: each such token is an outlier of several nats in r, and a few of them make the tail. They are counted,
and left out of every statistic, in every pair.
What it is not: a token of probability 1, which a third column confirms or which stands beside nearly certain tokens;
-1.0 in bfloat16 or in rounded numbers, which is as common as -0.996 and -1.008.
What to do: write null where there is no logprob; check that prompt, tool and padding tokens are masked.
Source: NeMo-RL and slime write 0.0 on tokens that were not generated, older veRL pads with -1, OpenAI-style servers
send -9999.0, prime-rl puts log(1/V) at index 0.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.validity import AnomalyCount, Validity
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.data_validity import BLOCKS, dates_of, extent, recorded_validity, when_words
from ptt.diagnostics.rules.interface import Broken, Finding, Healthy, Limits, Verdict, requires, rule
from ptt.diagnostics.wording import pct

KINDS = {"zero": "exactly 0", "pad": "exactly", "missing": "-9999 or below", "positive": "above 0", "fill": "exactly"}
MIN_SHARE = 0.001  # of model tokens: with fewer, the tokens left out cannot move a p99
BLOCKING_SHARE = 0.05
THROUGHOUT = 0.5  # of model tokens above 0: then it is another quantity, not a fill
LEFT_OUT = "left out of every statistic; otherwise each would be an outlier of several nats in the tail"
MAX_SHOWN = 4  # values named in a claim


@requires(recorded_validity)
def check(validity: Validity, _: Evidence, limits: Limits) -> Verdict:
    """Judge the placeholders found while tokens were read."""
    findings = []
    for anomaly in validity.anomalies:
        share = anomaly.tokens / max(1, validity.model_tokens)
        least = limits["worth_telling"]
        if anomaly.kind in KINDS and share >= least:
            findings.append(_finding(anomaly, share, least, blocks=share > limits["blocking_share"]))
    if findings:
        return Broken(findings=tuple(findings))
    return Healthy(reason=f"no placeholder on more than {pct(limits['worth_telling'])} of model tokens")


def _finding(anomaly: AnomalyCount, share: float, limit: float, *, blocks: bool) -> Finding:
    another = anomaly.kind == "positive" and share > THROUGHOUT
    quantity = "probabilities" if anomaly.highest <= 1 else "negated logprobs"
    shown = " or ".join(f"{value:.6g}" for value in anomaly.values[:MAX_SHOWN])
    told = f"{KINDS[anomaly.kind]} {shown}".rstrip()
    mostly = anomaly.span is not None and not (anomaly.span.from_start and anomaly.span.to_end)
    when = f" {when_words(anomaly.span)}" if anomaly.span is not None and mostly else ""
    claim = f"{anomaly.column} is {told} on {anomaly.tokens} model tokens{when}, which are left out"
    if another:
        claim = (
            f"{anomaly.column} contains {quantity}: it is above 0 on {pct(share)} of model tokens, which are left out"
        )
    return Finding(
        severity=Severity.HIGH if blocks else Severity.MEDIUM,
        claim=claim,
        observed=share,
        limit=limit,
        unit="share",
        **(dates_of(anomaly.span) if anomaly.span is not None else {"onset_step": anomaly.first_step}),
        evidence={
            "column": anomaly.column,
            "value": anomaly.values[0] if anomaly.values else None,
            **extent(anomaly, LEFT_OUT),
            BLOCKS: anomaly.column if blocks else None,
        },
        causes=(f"{quantity} were written in place of logprobs",)
        if another
        else ("a fill value where no logprob was computed", "tokens in the mask that the policy did not sample"),
        next=("write the log-probability of the sampled token, which is never above 0",)
        if another
        else ("write null for tokens without a logprob, and compare the mask with the roles of the messages",),
    )


RULE = rule(
    check,
    "placeholder-logprobs",
    Link.DATA_VALIDITY,
    worth_telling=MIN_SHARE,
    blocking_share=BLOCKING_SHARE,
)
