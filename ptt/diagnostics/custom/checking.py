"""What `ptt rules --check` tells of rule files without any run: each rule in words, and every problem."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ptt.diagnostics.custom.files import check_rules
from ptt.diagnostics.custom.tell import words
from ptt.diagnostics.custom.terms import CustomRule, tests_of
from ptt.diagnostics.model import Link, Severity


@dataclass(frozen=True, kw_only=True)
class RuleInWords:
    """One rule as it was understood."""

    id: str
    file: str
    severity: Severity
    link: Link
    condition: str
    metrics: tuple[str, ...]
    asked_of: tuple[str, ...]  # algorithms and families; empty: every training
    for_steps: int
    min_steps: int
    enabled: bool


@dataclass(frozen=True, kw_only=True)
class Report:
    """What the files hold."""

    files: tuple[str, ...]
    rules: tuple[RuleInWords, ...]
    problems: tuple[str, ...]


def report_on(paths: Iterable[Path]) -> Report:
    """Read every file and say what was understood and what is wrong."""
    found = check_rules(paths)
    return Report(
        files=tuple(str(file) for file in found.files),
        rules=tuple(_in_words(rule) for rule in found.rules),
        problems=found.problems,
    )


def _in_words(rule: CustomRule) -> RuleInWords:
    lasting = f", for {rule.for_steps} steps" if rule.for_steps > 1 else ""
    return RuleInWords(
        id=rule.name,
        file=rule.file,
        severity=rule.severity,
        link=rule.link,
        condition=words(rule.condition) + lasting,
        metrics=tuple(dict.fromkeys(test.metric for test in tests_of(rule.condition))),
        asked_of=(*rule.algorithms, *sorted(rule.families)),
        for_steps=rule.for_steps,
        min_steps=rule.min_steps,
        enabled=rule.enabled,
    )
