"""Read the rule files of Microsoft's post-training toolkit: one rule a file, in flat YAML."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ptt.diagnostics.custom import claims
from ptt.diagnostics.custom.comparisons import comparison_of
from ptt.diagnostics.custom.flat_yaml import Value, flat_yaml
from ptt.diagnostics.custom.subjects import TRAINERS, checked_algorithms, checked_id, checked_metric, link_of, unknown
from ptt.diagnostics.custom.terms import DEFAULT_WIDTH, MOST_WIDTH, CustomRule, Last, RuleError, Statement
from ptt.diagnostics.model import Link, Severity

REQUIRED: Final = ("name", "description", "trainers", "metric", "condition", "severity", "message")
OPTIONAL: Final = ("window", "min_steps", "reference", "enabled")
MIN_STEPS: Final = 30  # their default
SEVERITIES: Final = ("high", "medium", "low")
_LOSS: Final = re.compile(r"(\w+)_loss")


def heuristic_of(text: str, *, file: str) -> CustomRule:
    """Read one file; RuleError says what is wrong with it."""
    found = flat_yaml(text)
    for key in found:
        if key not in (*REQUIRED, *OPTIONAL):
            raise RuleError(unknown(key, (*REQUIRED, *OPTIONAL)))
    for key in REQUIRED:
        if found.get(key) is None:
            raise RuleError(f"`{key}` is missing")
    severity = _text(found, "severity")
    if severity not in SEVERITIES:
        raise RuleError(f"severity: {unknown(severity, SEVERITIES)}")
    message = _text(found, "message").strip()
    claims.check(message)
    metric = checked_metric(_text(found, "metric"))
    enabled = found.get("enabled", True)
    if not isinstance(enabled, bool):
        raise RuleError("enabled: must be true or false")
    window = _whole(found, "window", DEFAULT_WIDTH, least=1)
    comparison = comparison_of(_text(found, "condition"), theirs=True)
    return CustomRule(
        id=checked_id(_text(found, "name")),
        file=file,
        severity=Severity(severity),
        link=link_of(metric) or Link.TRAINING_SIGNAL,
        condition=Statement(metric=metric, comparison=comparison, window=Last(window)),
        claim=message,
        why=_text(found, "description").strip(),
        reference=_text(found, "reference").strip() if found.get("reference") is not None else "",
        algorithms=_algorithms(found["trainers"], metric),
        min_steps=_whole(found, "min_steps", MIN_STEPS, least=0),
        enabled=enabled,
    )


def _algorithms(value: Value, metric: str) -> tuple[str, ...]:
    """Give the trainers; a rule for all of them on one trainer's loss is for that trainer."""
    names = value if isinstance(value, list) else [value]
    known = (*sorted(TRAINERS), "common", "all")
    for name in names:
        if not isinstance(name, str) or name.lower() not in known:
            raise RuleError(f"trainers: {unknown(str(name), known)}")
    if not names:
        raise RuleError("trainers: the list is empty")
    given = checked_algorithms(str(name) for name in names)
    of_one = _LOSS.fullmatch(metric)
    return given or ((of_one[1],) if of_one and of_one[1] in TRAINERS else ())


def _text(found: Mapping[str, Value], key: str) -> str:
    value = found[key]
    if not isinstance(value, str):
        raise RuleError(f"{key}: must be text; put it in quotes")
    return value


def _whole(found: Mapping[str, Value], key: str, default: int, *, least: int) -> int:
    value = found.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST_WIDTH:
        raise RuleError(f"{key}: must be a whole number from {least} to {MOST_WIDTH}")
    return value
