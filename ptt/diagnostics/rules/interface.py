"""What a rule is: a failure by name, its limits beside their reasons, and one check with three answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.algorithm import Family
from ptt.diagnostics.model import Link, NotJudged, RuleVerdict

Limits = Mapping[str, float]
EVERY: Final = frozenset(Family)
ONLINE: Final = frozenset({Family.ONLINE})
OFFLINE: Final = EVERY - ONLINE


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One failure. `limits` can be set in `ptt.toml` under [limits.<id>]; the module's docstring is its page."""

    id: str
    link: Link
    check: Callable[[Evidence, Limits], RuleVerdict]
    limits: Limits = field(default_factory=dict)
    families: frozenset[Family] = EVERY  # the kinds of training that can fail so

    def run(self, evidence: Evidence) -> RuleVerdict:
        """Check with the limits in force; a run that cannot fail so is not asked."""
        family = evidence.algorithm.family
        if family is not None and family not in self.families:
            return does_not_apply(self.id, self.link, f"{evidence.algorithm.title} training")
        return self.check(evidence, {**self.limits, **evidence.limits.get(self.id, {})})


def does_not_apply(rule: str, link: Link, where: str) -> NotJudged:
    """Say that the question makes no sense for this run; `where` completes "does not apply to"."""
    return NotJudged(id=rule, link=link, reason=f"does not apply to {where}", applies=False)
