"""Read alerts of one line: `trainer: metric condition [for N steps] -> severity: message`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ptt.diagnostics.custom import claims
from ptt.diagnostics.custom.comparisons import comparison_of
from ptt.diagnostics.custom.subjects import checked_algorithms, checked_metric, link_of
from ptt.diagnostics.custom.terms import DEFAULT_WIDTH, MOST_WIDTH, CustomRule, Last, RuleError, Statement
from ptt.diagnostics.model import Link, Severity

FORM: Final = "trainer: metric condition [for N steps] -> severity: message"
EXAMPLE: Final = "grpo: kl/ref > 0.3 for 20 steps -> high: KL is over our limit"
WARM_UP: Final = 10  # values beyond the window that Microsoft's toolkit asks for before an alert of one line counts
MOST_TEXT: Final = 1000  # characters: an alert is one line
_TRAINERS: Final = re.compile(r"\w+(?:\s*,\s*\w+)*")
_WIDTH: Final = re.compile(r"\sfor\s+(\d+)\s+steps?$", re.IGNORECASE)
_SAYS: Final = re.compile(r"(?P<severity>\w+)\s*:\s*(?P<message>\S.*)")
_SIGNS: Final = {"<=": "at-most-", ">=": "at-least-", "==": "equals-", "<": "below-", ">": "above-"}


def alert_of(text: str, *, file: str) -> CustomRule:
    """Read one alert; RuleError says what is wrong with it."""
    if len(text) > MOST_TEXT:
        raise RuleError(f"{text[:40].strip()!r}... is no alert: it has more than {MOST_TEXT} characters")
    found = _parts(text)
    if found is None:
        raise RuleError(f"{text.strip()!r} is no alert; the form is `{FORM}`, for example `{EXAMPLE}`")
    try:
        severity = Severity(found["severity"].lower())
    except ValueError as error:
        raise RuleError(f"severity {found['severity']!r} is not known; it can be {', '.join(Severity)}") from error
    width = int(found["width"] or DEFAULT_WIDTH)
    if not 1 <= width <= MOST_WIDTH:
        raise RuleError(f"for {width} steps: give 1 to {MOST_WIDTH}")
    claims.check(found["message"])
    metric = checked_metric(found["metric"])
    test = Statement(metric=metric, comparison=comparison_of(found["condition"], theirs=True), window=Last(width))
    return CustomRule(
        id=_id(found),
        file=file,
        severity=severity,
        link=link_of(metric) or Link.TRAINING_SIGNAL,
        condition=test,
        claim=found["message"],
        algorithms=checked_algorithms(found["trainers"].split(",")),
        min_steps=width + WARM_UP,
    )


def _parts(text: str) -> dict[str, str] | None:
    """Take an alert apart at its first arrow and its first colon; None where a part is missing."""
    tested, _, said = text.partition("->")
    trainers, _, test = tested.partition(":")
    says = _SAYS.fullmatch(said.strip())
    words = test.split(maxsplit=1)
    if says is None or len(words) < 2 or not _TRAINERS.fullmatch(trainers.strip()):
        return None
    condition = words[1].rstrip()
    width = _WIDTH.search(condition)
    return {
        "trainers": trainers.strip(),
        "metric": words[0],
        "condition": condition[: width.start()].rstrip() if width else condition,
        "width": width[1] if width else "",
        **says.groupdict(),
    }


def _id(found: Mapping[str, str]) -> str:
    """Name an alert by all that sets it apart, so that two on one metric stay two."""
    condition = found["condition"]
    for sign, word in _SIGNS.items():
        condition = condition.replace(sign, word)
    text = "-".join(["alert", found["trainers"], found["metric"], condition, found["width"]])
    return re.sub(r"[^a-z0-9.]+", "-", re.sub(r"(?<=[-(,\s])-(?=[\d.])", "minus", text.lower())).strip("-")[:80]
