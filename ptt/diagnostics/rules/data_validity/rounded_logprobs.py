"""This run shows logprobs coarser than float32.

What: 99% of a column's sampled values below -0.01 are bfloat16 or float16 numbers, or have at most five decimals.
Why it matters: r then comes in steps, given here at the run's usual logprob: about 2^-8 of it in bfloat16, 2^-11 in
float16, 1e-4 with four decimals. Tails are unaffected; k3, ESS and the mismatch of nearly identical policies are noise.
What it is not: a fault. No token is left out because of it. The numbers do not show whether the model computed in that
type or the writer rounded.
What to do: nothing for tail figures. Ignore differences below one step of r, and write float32 where the mismatch of
engine and trainer matters.
Source: TRL and veRL pass logprobs on in the model's own type; verifiers 0.4 rounds recorded floats to four decimals.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.validity import Rounding, Validity
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.data_validity import extent, recorded_validity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, Verdict, requires, rule
from ptt.diagnostics.wording import sig

ROUNDED_SHARE = 0.99  # of sampled values; by chance one in a hundred float32 logprobs looks rounded
WORDS = {1: "one decimal", 2: "two decimals", 3: "three decimals", 4: "four decimals", 5: "five decimals"}


@requires(recorded_validity)
def check(validity: Validity, _: Evidence, limits: Limits) -> Verdict:
    """Judge the grid of sampled values."""
    coarse = {name: found for name, found in validity.rounding.items() if found.grid.share > limits["rounded"]}
    if not coarse:
        return Healthy(reason="no column is rounded")
    name, worst = max(coarse.items(), key=lambda item: item[1].spacing)
    kinds = {
        told: [column for column in coarse if _told(coarse[column]) == told] for told in map(_told, coarse.values())
    }
    claim = "; ".join(
        f"{' and '.join(columns)} {'has' if len(columns) == 1 else 'have'} {told}" for told, columns in kinds.items()
    )
    return Finding(
        severity=Severity.LOW,
        claim=f"{claim}: r below {sig(worst.spacing)} nats is rounding at a logprob of {sig(worst.usual)}",
        observed=worst.grid.share,
        limit=limits["rounded"],
        unit="share",
        evidence={
            "columns": ", ".join(coarse),
            "type": worst.grid.name,
            "decimals": worst.grid.decimals or None,
            "usual_logprob": worst.usual,
            "quantum": worst.spacing,
            **extent(
                validity.extent,
                f"mismatch KL and 1 - ESS below {worst.spacing**2 / 12:.1g} are rounding; tails are unaffected",
            ),
        },
        causes=(
            "the writer rounds floats" if worst.grid.decimals else f"the logprobs passed through {worst.grid.name}",
        ),
        next=(f"ignore differences of {name} below {sig(worst.spacing)} nats, and ESS near 1, in these files",),
    )


def _told(rounding: Rounding) -> str:
    if rounding.grid.decimals:
        return f"at most {WORDS[rounding.grid.decimals]}"
    return f"{rounding.grid.name} numbers"


RULE = rule(check, "rounded-logprobs", Link.DATA_VALIDITY, max_severity=Severity.LOW, rounded=ROUNDED_SHARE)
