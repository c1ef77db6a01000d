"""What a rule is: a failure by name, its limits beside their reasons, and one check with three answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.model import Link, RuleVerdict

Limits = Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One failure. `limits` can be set in `ptt.toml` under [limits.<id>]; the module's docstring is its page."""

    id: str
    link: Link
    check: Callable[[Evidence, Limits], RuleVerdict]
    limits: Limits = field(default_factory=dict)

    def run(self, evidence: Evidence) -> RuleVerdict:
        """Check with the limits in force."""
        return self.check(evidence, {**self.limits, **evidence.limits.get(self.id, {})})
