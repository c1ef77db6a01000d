"""This run shows recorded logprobs whose KL is not the one that the trainer logged.

What: the KL of the recorded tokens (k3, k2, the mean of |r|, and k3 a sequence) over the logged KL jumps at one step
by at least 3 times and 4 times its own scatter, lastingly, while the logged KL does not follow; 2 times where the
ratio hardly scattered. Elsewhere the two must have moved together, less than a factor of two apart unless they moved
as one. Or, where TRL logs k3 a token, k3 and k2 lie a factor of ten off at nine steps in ten.
Why it matters: trainer and recorder look at one policy and one reference. Where they part, the records are of other
tokens, another mask or another column than training used, and tails measured on them are an artefact.
What it is not: a policy that moved, which both see; another estimator, a coefficient, or a mean a sequence, which leave
the ratio as it was.
What to do: print one sequence from before the step and one from after it, token by token with mask and both columns;
find what changed in the recorder or the trainer there.
Source: TRL logs k3 a token; of 26 recorded runs, sound or sick, the two are equal within 1% at the median step.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.algorithm import LANGUAGE
from ptt.diagnostics.evidence.reference import KlWitness
from ptt.diagnostics.model import JsonScalar, Link, Severity
from ptt.diagnostics.rules.data_validity import BLOCKS, extent
from ptt.diagnostics.rules.data_validity.miscounted_metric import told_of
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, requires, rule
from ptt.diagnostics.statistics.level_jump import RatioJump
from ptt.diagnostics.statistics.logprob_pairs import REF_PAIRS
from ptt.diagnostics.wording import sig

MIN_COMPARED: Final = 8  # steps: four on either side of a jump
OFF_FACTOR: Final = 10.0  # in k3 and k2 at once: sampling sequences, or averaging over them, explains less
OFF_SHARE: Final = 0.9  # of the steps
K3_A_TOKEN: Final = {"trl": ("kl", "train/kl")}  # the frameworks whose logged KL is known to be k3, by its name
ONE_SIDED: Final = 3.0  # times: if one slice moved this much further than the other, it alone is named
EFFECT: Final = "r is not the distance that was trained on: tails, ESS, E[rho^2] and KL of the pair mean something else"


def _compared(evidence: Evidence) -> KlWitness | NotJudged:
    witness = evidence.kl_witness
    if witness is None:
        pairs = evidence.validity.pairs if evidence.validity is not None else {}
        recorded = {"kl/ref": "kl/ref" in evidence.metrics, "ref_logp": any(pair in REF_PAIRS for pair in pairs)}
        return NotJudged(
            reason="no logged KL stands beside recorded logprobs of policy and reference",
            missing=tuple(name for name, there in recorded.items() if not there),
            enable="log the KL to the reference: in TRL set beta > 0; in veRL use_kl_loss=True",
            absent=True,
        )
    if len(witness.steps) < MIN_COMPARED:
        return NotJudged(
            reason=f"{len(witness.steps)} steps have both a logged KL and recorded tokens that left the reference; "
            f"{MIN_COMPARED} are needed",
            missing=("kl/ref at more recorded steps",),
            enable="log the KL at every step that is recorded",
        )
    return witness


@requires(_compared)
def check(witness: KlWitness, evidence: Evidence, limits: Limits) -> Verdict:
    """Hold the recorded KL against the logged one, step by step."""
    if evidence.scalars is not None and any(
        one.quantity == "kl/ref" for one in told_of(evidence.scalars.miscounted, evidence)
    ):
        return Healthy(reason=f"{witness.logged_as} is not the recorded KL, as miscounted-metric reports")
    if witness.jump is not None:
        return _parted(witness, witness.jump)
    ratio = float(np.median(witness.recorded["k3"] / witness.logged))
    if witness.logged_as in K3_A_TOKEN.get(evidence.run.framework or "", ()) and evidence.algorithm.family in LANGUAGE:
        factor = _always_off(witness, limits)
        if factor is not None:
            return _off(witness, factor, limits)
    return Healthy(
        reason=f"the recorded KL is {sig(ratio)} times the logged one in the median, and never parts from it"
    )


def _always_off(witness: KlWitness, limits: Limits) -> float | None:
    """Return the median ratio of recorded to logged KL if k3 and k2 are that far off at most steps, else None."""
    estimates = np.stack([witness.recorded["k3"], witness.recorded["k2"]])
    logs = np.log(np.maximum(estimates, np.finfo(np.float64).tiny) / witness.logged)
    far = np.maximum(logs.min(axis=0), -logs.max(axis=0)) >= np.log(limits["factor"])
    return float(np.exp(np.median(logs[0]))) if float(far.mean()) >= OFF_SHARE else None


def _parted(witness: KlWitness, jump: RatioJump) -> Finding:
    span, times = jump.span, jump.off / jump.sound
    moved = f"{witness.pair} of the recorded tokens" if jump.measured_moved else "the logged KL alone"
    place, levels = _moved_slice(witness, jump), _levels(witness, jump)
    when = f"from step {span.since}" if not span.from_start else f"up to step {span.until}"
    until = "" if span.from_start else " on" if span.to_end else f" to {span.until}"
    claim = (
        f"The recorded logprobs and the trainer's own {witness.logged_as} part {when}{until}: {moved} moved there"
        f"{f', most of it in {place} tokens' if place else ''}; k3 of the records is "
        f"{_ratio(jump.off)} the logged value (k3 {sig(levels[1])}, logged {sig(levels[3])}), and "
        f"{_ratio(jump.sound)} elsewhere (k3 {sig(levels[0])}, logged {sig(levels[2])})"
    )
    return Finding(
        severity=Severity.HIGH if jump.measured_moved else Severity.MEDIUM,
        claim=claim,
        observed=max(times, 1 / max(times, np.finfo(np.float64).tiny)),
        limit=jump.needed,
        unit="x",
        slice=place,
        onset_step=None if span.from_start else span.since,
        onset_interval=None if span.from_start else span.since_interval,
        held_from_step=span.since if span.from_start else None,
        evidence={
            **_facts(witness),
            "ratio_sound": jump.sound,
            "ratio_off": jump.off,
            "off_until": None if span.to_end else span.until,
            **extent(witness.off, EFFECT),
            BLOCKS: witness.pair,
        },
        causes=(
            "a logprob column that was shifted, copied, scaled or filled from that step on",
            "a mask that changed, or a dump that keeps other sequences than were trained on",
            "a reference that the recorder and the trainer do not share",
        )
        if jump.measured_moved
        else ("the trainer logs its KL in another way since then", "records that are not of the steps they name"),
        confirm=("recompute the KL of one batch on both sides of the step with the trainer's own code and mask",),
        next=(
            "print one sequence from before the step and one from after it, with mask and both columns",
            f"do not read tails of {witness.pair} across that step",
        ),
    )


def _ratio(value: float) -> str:
    return f"{sig(value)} times" if value >= LEAST_RATIO else f"less than {LEAST_RATIO:g} times"


LEAST_RATIO: Final = 1e-3  # a copy's is 0


def _levels(witness: KlWitness, jump: RatioJump) -> tuple[float, float, float, float]:
    """Return the median recorded k3 where sound and where off, then the median logged KL at the same steps."""
    off = jump.span.holds(witness.steps)
    k3, logged = witness.recorded["k3"], witness.logged
    return tuple(float(np.median(values[part])) for values in (k3, logged) for part in (~off, off))  # type: ignore[return-value]


def _moved_slice(witness: KlWitness, jump: RatioJump) -> str | None:
    """Return the slice that moved by far more than the other, None where both did."""
    off = jump.span.holds(witness.steps)
    moved = {}
    for name, values in witness.slices.items():
        usable = values > 0
        if not jump.measured_moved or not (usable & off).any() or not (usable & ~off).any():
            return None
        logs = np.log(values[usable] / witness.logged[usable])
        moved[name] = abs(float(np.median(logs[off[usable]]) - np.median(logs[~off[usable]])))
    first, second = sorted(moved, key=lambda name: -moved[name])
    return first if moved[first] >= ONE_SIDED * moved[second] else None


def _off(witness: KlWitness, factor: float, limits: Limits) -> Finding:
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"The recorded tokens are not those of the trainer's KL: k3 of {witness.pair} is {sig(factor)} times the "
        f"logged {witness.logged_as} in the median, and k2 is no nearer to it",
        observed=max(factor, 1 / factor),
        limit=limits["factor"],
        unit="x",
        held_from_step=int(witness.steps[0]),
        evidence={**_facts(witness), "ratio_off": factor, **extent(witness.off, EFFECT), BLOCKS: witness.pair},
        causes=(
            "a logprob column that is shifted, copied or scaled, or a mask that holds other tokens",
            "another reference than the trainer's",
        ),
        confirm=("recompute the KL of one batch with the trainer's own code and mask",),
        next=("print the tokens of one sequence with mask and both columns: which of them is not what it is called?",),
    )


def _facts(witness: KlWitness) -> dict[str, JsonScalar]:
    return {
        "pair": witness.pair,
        "metric": "kl/ref",
        "logged_as": witness.logged_as,
        "steps_compared": len(witness.steps),
    }


RULE = rule(
    check,
    "kl-disagrees",
    Link.DATA_VALIDITY,
    max_severity=Severity.HIGH,
    factor=OFF_FACTOR,
)
