"""The pairs of logprobs that can be subtracted, and what each difference means."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Pair:
    """r = numerator - denominator, in nats; `sampled_from` says which of the two the tokens came from."""

    name: str
    numerator: str
    denominator: str
    meaning: str
    sampled_from: str  # "numerator" or "denominator": decides the direction of k1, k2, k3

    @property
    def columns(self) -> tuple[str, str]:
        """The two logprobs."""
        return self.numerator, self.denominator

    @property
    def inverse(self) -> str:
        """Name the same pair turned round, for weights exp(-r)."""
        top, bottom = self.name.split("/")
        return f"{bottom}/{top}"


PAIRS: Final = (
    Pair("policy/ref", "policy_logp", "ref_logp", "drift of the policy from the reference", "numerator"),
    Pair("old/ref", "old_logp", "ref_logp", "drift of the policy from the reference", "numerator"),
    Pair(
        "policy/rollout",
        "policy_logp",
        "rollout_logp",
        "what multiplies an off-policy gradient",
        "denominator",
    ),
    Pair("old/rollout", "old_logp", "rollout_logp", "mismatch of trainer and engine", "denominator"),
    Pair("policy/old", "policy_logp", "old_logp", "size of the update", "denominator"),
    Pair("prox/ref", "prox_logp", "ref_logp", "drift of the policy from the reference", "numerator"),
    Pair("policy/prox", "policy_logp", "prox_logp", "distance from the proximal policy", "denominator"),
    Pair("prox/rollout", "prox_logp", "rollout_logp", "lag of the proximal policy and mismatch", "denominator"),
)
"""In order of preference: the verdict is about the first pair that the run holds."""

REF_PAIRS: Final = ("policy/ref", "old/ref", "prox/ref")
"""Drift from the reference: the second and third only stand in where the first is missing."""
DEFAULT_ORDER: Final = tuple(pair.name for pair in PAIRS)


def available_pairs(columns: set[str]) -> tuple[Pair, ...]:
    """Return the pairs with both logprobs recorded; of the drifts from the reference the first one alone."""
    pairs = [pair for pair in PAIRS if {pair.numerator, pair.denominator} <= columns]
    drifts = [pair for pair in pairs if pair.name in REF_PAIRS]
    return (*drifts[:1], *(pair for pair in pairs if pair not in drifts))
