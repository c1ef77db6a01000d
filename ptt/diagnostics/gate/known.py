"""Which rules and findings there are, and how severe the findings of each can be at most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from ptt.diagnostics.catalogue import OF_ONE_RULE
from ptt.diagnostics.model import Severity
from ptt.diagnostics.rules import LIMITS

AT_MOST: Final[Mapping[str, Severity]] = MappingProxyType(
    {
        "tail-growth-immaterial": Severity.INFO,
        **dict.fromkeys(
            ("preference-plateau", "loss-plateau", "reward-jump", "rounded-logprobs", "versions-unknown"), Severity.LOW
        ),
        **dict.fromkeys(
            ("advantage-scale", "components-diverge", "copied-logprobs", "eval-protocol-changed", "eval-spikes",
             "explained-variance-low", "gradient-spikes", "idle-rollout", "judge-spikes", "kto-imbalance",
             "length-inflation", "memory-imbalance", "missing-parts", "odds-ratio-unstable", "old-logprobs-off",
             "one-sided-clipping", "perplexity-spikes", "policy-drift", "preference-unstable", "repeated-sequences",
             "repetition-rise", "resumed-segments", "retokenised-turns", "reward-outliers", "reward-shape",
             "reward-variance", "split-gap", "tool-diversity", "tool-latency", "truncated-support", "underused-tools",
             "value-scale"),
            Severity.MEDIUM,
        ),
    }
)  # fmt: skip
"""Findings that are never more severe than this, whatever the run; all others can be critical. A test holds it against
the rules."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """The ids that a policy may name; `custom` are rules of the user's own, each with the severity it was given."""

    custom: Mapping[str, Severity] = field(default_factory=dict)

    @property
    def rules(self) -> frozenset[str]:
        """Ids of rules, which can be required."""
        return frozenset({*LIMITS, *self.custom})

    @property
    def findings(self) -> frozenset[str]:
        """Ids of findings, which can be allowed."""
        return self.rules | OF_ONE_RULE.keys()

    def at_most(self, finding: str) -> Severity:
        """Give the worst that a finding of this id can be."""
        return self.custom.get(finding) or AT_MOST.get(finding, Severity.CRITICAL)


def rule_of(finding: str) -> str:
    """Give the rule that makes findings of this id."""
    return OF_ONE_RULE.get(finding, finding)
