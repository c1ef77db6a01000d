"""This run shows a reference that was swapped for another one at a step.

What: the mean of |log policy - log reference| of text-only and post-tool tokens jumps at one step to twice its level or
more, to half of it, or to an eighth for that step, from where it climbs again; the logged KL jumps with it. Entropy,
reward, lengths and tool calls stay where they were, and neither learning rate nor update is out of the ordinary there.
Why it matters: KL and log-ratios before and after are distances to two different models. Growth across that step is not
the policy's, and a fall is no recovery.
What it is not: a policy that jumped, which its entropy or reward would show; a reference that moves at regular steps
(`moving-reference`); records that part from the trainer's own KL (`kl-disagrees`).
What to do: find what loaded the reference there (a resume, a path, a sync), and read figures against it on one side of
that step at a time.
Source: our own. A resume that loads its reference from the newest checkpoint re-anchors it (TRL `ref_model` from
`model_name_or_path`), and a KL against it starts over.
"""

from __future__ import annotations

from typing import Final

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.reference import SWAP_FACTOR, Reference, Swap
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.data_validity import BLOCKS
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, requires, rule
from ptt.diagnostics.wording import sig

NAMES: Final = {"text_only": "text-only", "post_tool": "post-tool"}


def _recorded(evidence: Evidence) -> Reference | NotJudged:
    reference = evidence.reference
    if reference is None or not any(pair.endswith("/ref") for pair in evidence.pairs):
        return NotJudged(
            reason="no logprobs of policy and reference are recorded",
            missing=("ref_logp",),
            enable="record the reference's logprobs of the sampled tokens as ref_logp",
            absent=True,
        )
    return reference


@requires(_recorded)
def check(reference: Reference, _: Evidence, limits: Limits) -> Verdict:
    """Tell a reference that changed at one step."""
    swap = reference.swapped
    if swap is None or not (swap.fresh or max(swap.factor, 1 / swap.factor) >= limits["factor"]):
        return Healthy(reason="no step at which all distances to the reference jump and the policy does not")
    return _finding(swap, limits)


def _finding(swap: Swap, limits: Limits) -> Finding:
    nearer = swap.fresh or swap.factor < 1
    moves = " and ".join(f"{NAMES[name]} {sig(before)} → {sig(after)}" for name, (before, after) in swap.slices.items())
    kl = "" if swap.logged is None else f", and the logged KL {sig(swap.logged[0])} → {sig(swap.logged[1])}"
    what = "was set to a policy of this run" if nearer else "was swapped for another model"
    return Finding(
        severity=Severity.LOW if nearer else Severity.MEDIUM,
        claim=f"The reference {what} at step {swap.step}: the mean of |{swap.pair}| jumps at once ({moves} nats{kl}), "
        f"while {' and '.join(swap.still)} stay where they were",
        observed=swap.factor,
        limit=limits["factor"],
        unit="x",
        onset_step=swap.step,
        onset_interval=swap.interval,
        evidence={
            "pair": swap.pair,
            "logged_kl_before": None if swap.logged is None else swap.logged[0],
            "logged_kl_after": None if swap.logged is None else swap.logged[1],
            "still": ", ".join(swap.still),
            "effect": "tails, KL and ratios before and after are distances to two different models",
            BLOCKS: swap.pair,
        },
        causes=(
            "a resume that loads the reference from the newest checkpoint" if nearer else "a resume with another path",
            "a reference that is set anew by hand or by a schedule",
        ),
        confirm=("score one batch of before that step with the reference of after it: is it the recorded ref_logp?",),
        next=(
            "find what loaded the reference at that step; keep the checkpoint that it came from",
            "read KL and tails on one side of that step at a time",
        ),
    )


RULE = rule(check, "reference-swapped", Link.POLICY_UPDATE, max_severity=Severity.MEDIUM, factor=SWAP_FACTOR)
