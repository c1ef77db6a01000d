"""What a rule is: a failure by name, its limits beside their reasons, and one check with three answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.algorithm import Family
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Healthy, Link, NotJudged, RuleVerdict

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
    judges_nan: bool = False  # whether NaN is what the rule judges
    families: frozenset[Family] = EVERY  # the kinds of training that can fail so

    def run(self, evidence: Evidence) -> RuleVerdict:
        """Check with the limits in force; a run that cannot fail so is not asked."""
        family = evidence.algorithm.family
        if family is not None and family not in self.families:
            return does_not_apply(self.id, self.link, f"{evidence.algorithm.title} training")
        asked = Asked(evidence.metrics)
        verdict = self.check(replace(evidence, metrics=asked), {**self.limits, **evidence.limits.get(self.id, {})})
        return verdict if not isinstance(verdict, Healthy) or self.judges_nan else _not_if_lost(verdict, asked)


class Asked(Mapping[str, Series]):
    """The metrics, and which of them a rule asked for by name."""

    def __init__(self, metrics: Mapping[str, Series]) -> None:
        """Begin with nothing asked."""
        self._metrics = metrics
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> Series:
        """Give a metric, and remember that it was asked for."""
        self.names.add(name)
        return self._metrics[name]

    def __iter__(self) -> Iterator[str]:
        """Go through the names."""
        return iter(self._metrics)

    def __len__(self) -> int:
        """Count the metrics."""
        return len(self._metrics)

    def lost(self) -> list[Series]:
        """Give those asked for whose values are no numbers at the end, or for a good part of the run."""
        held = (self._metrics[name] for name in sorted(self.names & self._metrics.keys()))
        return [series for series in held if series.lost]


def _not_if_lost(verdict: Healthy, asked: Asked) -> RuleVerdict:
    """Take a clean answer back where a metric it rests on turned into NaN or infinity: what is left is no answer."""
    lost = asked.lost()
    if not lost:
        return verdict
    told = ", ".join(
        f"{series.raw_name} is NaN or infinite at {series.not_numbers} of {series.count} steps" for series in lost
    )
    return NotJudged(
        id=verdict.id,
        link=verdict.link,
        reason=f"{told}; of the rest: {verdict.reason}",
        missing=tuple(series.name for series in lost),
        enable="find out why these are no numbers first: see metrics-lost and nan-precursors",
    )


def does_not_apply(rule: str, link: Link, where: str) -> NotJudged:
    """Say that the question makes no sense for this run; `where` completes "does not apply to"."""
    return NotJudged(id=rule, link=link, reason=f"does not apply to {where}", applies=False)
