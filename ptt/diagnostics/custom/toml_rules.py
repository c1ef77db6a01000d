"""Read `[[rule]]` tables and `alerts` of a TOML file into custom rules; every unknown key or value is an error."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Literal, cast

from ptt.diagnostics.custom import comparisons
from ptt.diagnostics.custom.comparisons import comparison_of
from ptt.diagnostics.custom.subjects import checked_algorithms, checked_id, checked_metric, link_of, unknown
from ptt.diagnostics.custom.terms import (
    DEFAULT_WIDTH,
    LEAST_VALUES,
    MOST_WIDTH,
    NEED_TWO,
    PLAIN_AGGREGATES,
    RELATIVE,
    AllOf,
    AnyOf,
    Condition,
    CustomRule,
    Last,
    Moving,
    Part,
    RuleError,
    Spike,
    Statement,
    Window,
    tests_of,
)
from ptt.diagnostics.evidence.algorithm import Family
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
    comparisons.check(found["message"])
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


TEST_KEYS: Final = ("metric", "is", "aggregate", "window")
COMBINING: Final = ("all", "any")
TEXTS: Final = ("claim", "message", "why", "reference")
LISTS: Final = ("causes", "confirm", "next", "families", "algorithms")
RULE_KEYS: Final = (
    "id", "severity", "link", *TEXTS, *LISTS, "for_steps", "min_steps", "enabled", *TEST_KEYS, *COMBINING,
)  # fmt: skip
MOST_STEPS: Final = 10**9
_PERCENTILE: Final = re.compile(r"p\d{1,2}")
_LAST: Final = re.compile(r"last\s+(\d{1,6})")

Table = Mapping[str, Any]
Read = tuple[list[CustomRule], list[str]]


def toml_rules(text: str, *, file: str) -> Read:
    """Read a file: its rules, and what is wrong with those that could not be read."""
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # damage; a number of thousands of digits; brackets in brackets
        return [], [f"is no TOML: {error}"]
    problems = [unknown(key, ("rule", "alerts")) for key in document if key not in {"rule", "alerts"}]
    rules: list[CustomRule] = []
    tables, alerts = document.get("rule", []), document.get("alerts", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        problems.append("rule: is no list of tables; begin each rule with [[rule]]")
        tables = []
    if not isinstance(alerts, list) or not all(isinstance(alert, str) for alert in alerts):
        problems.append("alerts: is no list of texts")
        alerts = []
    for number, table in enumerate(tables, start=1):
        try:
            rules.append(rule_of(table, file=file))
        except RuleError as error:
            named = f"rule {table['id']!r}" if isinstance(table.get("id"), str) else f"rule number {number}"
            problems.append(f"{named}: {error}")
    for number, alert in enumerate(alerts, start=1):
        try:
            rules.append(alert_of(alert, file=file))
        except RuleError as error:
            problems.append(f"alert number {number}: {error}")
    if not tables and not alerts and not problems:
        problems.append("holds neither [[rule]] nor alerts")
    return rules, problems


def rule_of(table: Table, *, file: str) -> CustomRule:
    """Read one rule; RuleError names the key that is wrong."""
    _only(table, RULE_KEYS)
    for key in ("id", "severity"):
        if key not in table:
            raise RuleError(f"`{key}` is missing")
    if "claim" in table and "message" in table:
        raise RuleError("claim and message are two words for one thing; give one")
    texts = {key: _text(table, key) for key in TEXTS}
    claim = texts["claim"] or texts["message"]
    comparisons.check(claim)
    condition = _condition(table, deep=0)
    for_steps = _whole(table, "for_steps", 1, least=1, most=MOST_STEPS)
    if for_steps > 1 and not any(isinstance(test.window, Moving) for test in tests_of(condition)):
        raise RuleError("for_steps: no window here moves; give a number as `window`")
    lists = {key: _texts(table, key) for key in LISTS}
    enabled = table.get("enabled", True)
    if not isinstance(enabled, bool):
        raise RuleError("enabled: must be true or false")
    return CustomRule(
        id=checked_id(_text(table, "id")),
        file=file,
        severity=Severity(_one_of(table, "severity", [*Severity])),
        link=_link(table, condition),
        condition=condition,
        claim=claim,
        why=texts["why"],
        reference=texts["reference"],
        causes=lists["causes"],
        confirm=lists["confirm"],
        next=lists["next"],
        families=frozenset(Family(_known("families", name, [*Family])) for name in lists["families"]),
        algorithms=_algorithms(lists["algorithms"]),
        for_steps=for_steps,
        min_steps=_whole(table, "min_steps", LEAST_VALUES, least=1, most=MOST_STEPS),
        enabled=enabled,
    )


def _condition(table: Table, *, deep: int) -> Condition:
    """Read a test, or one level of all and any with another inside."""
    given = [key for key in COMBINING if key in table]
    if len(given) > 1 or (given and any(key in table for key in TEST_KEYS)):
        raise RuleError("give one of: a metric with `is`, `all`, `any`")
    if not given:
        return _test(table)
    key = given[0]
    parts = table[key]
    if deep > 1:
        raise RuleError(f"{key}: stands too deep; all and any may be nested once")
    if not isinstance(parts, list) or len(parts) < 2 or not all(isinstance(part, dict) for part in parts):
        raise RuleError(f"{key}: must be a list of two tables or more")
    made: list[Condition] = []
    for number, part in enumerate(parts, start=1):
        try:
            _only(part, (*TEST_KEYS, *COMBINING))
            made.append(_condition(part, deep=deep + 1))
        except RuleError as error:
            raise RuleError(f"{key}, part {number}: {error}") from error
    return AllOf(tuple(made)) if key == "all" else AnyOf(tuple(made))


def _test(table: Table) -> Statement:
    for key in ("metric", "is"):
        if key not in table:
            raise RuleError(f"`{key}` is missing")
    try:
        comparison = comparison_of(_text(table, "is"))
    except RuleError as error:
        raise RuleError(f"is: {error}") from error
    window = _window(table)
    if isinstance(comparison, Spike) and "aggregate" in table:
        raise RuleError("aggregate: a spike has none of its own; leave it out")
    if isinstance(comparison, Spike) and isinstance(window, Part):
        raise RuleError('window: a spike stands out from the values before it; give a number or "last N"')
    if isinstance(comparison, RELATIVE) and isinstance(window, Part) and window.name in {"early", "whole"}:
        raise RuleError(f"window: {window.name} cannot be compared with the early level")
    aggregate = _aggregate(table)
    if aggregate in NEED_TWO and isinstance(window, Moving | Last) and window.width < 2:
        raise RuleError(f"window: {aggregate} needs two values or more")
    metric = checked_metric(_text(table, "metric"))
    return Statement(metric=metric, comparison=comparison, aggregate=aggregate, window=window)


def _window(table: Table) -> Window:
    value = table.get("window", DEFAULT_WIDTH)
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_WIDTH:
        return Moving(value)
    if isinstance(value, str):
        if value in {"early", "mid", "late", "whole"}:
            return Part(cast(Literal["early", "mid", "late", "whole"], value))
        last = _LAST.fullmatch(value)
        if last and 1 <= int(last[1]) <= MOST_WIDTH:
            return Last(int(last[1]))
    raise RuleError(f'window: {_shown(value)} is none; give 1 to {MOST_WIDTH}, "last N", early, mid, late or whole')


def _shown(value: object) -> str:
    try:
        return repr(value)[:80]
    except (ValueError, RecursionError):  # a number of thousands of digits; tables in tables
        return "what stands there"


def _aggregate(table: Table) -> str:
    name = _text(table, "aggregate") or "mean"
    if _PERCENTILE.fullmatch(name) and int(name[1:]) > 0:
        return f"p{int(name[1:]):02d}"
    return _known("aggregate", name, [*PLAIN_AGGREGATES, "p01", "p05", "p25", "p75", "p95", "p99"])


def _link(table: Table, condition: Condition) -> Link:
    if "link" in table:
        return Link(_one_of(table, "link", [*Link]))
    metric = next(tests_of(condition)).metric
    link = link_of(metric)
    if link is None:
        raise RuleError(f"link: {metric} does not tell it; give one of {', '.join(Link)}")
    return link


def _algorithms(names: Sequence[str]) -> tuple[str, ...]:
    try:
        return checked_algorithms(names)
    except RuleError as error:
        raise RuleError(f"algorithms: {error}") from error


def _only(table: Table, known: Collection[str]) -> None:
    for key in table:
        if key not in known:
            raise RuleError(f"key {unknown(key, known)}")


def _text(table: Table, key: str) -> str:
    value = table.get(key, "")
    if not isinstance(value, str) or (key in table and not value.strip()):
        raise RuleError(f"{key}: must be text, and not empty")
    return value.strip()


def _texts(table: Table, key: str) -> tuple[str, ...]:
    value = table.get(key, [])
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(item, str) and item.strip() for item in values):
        raise RuleError(f"{key}: must be a text or a list of texts")
    return tuple(item.strip() for item in values)


def _one_of(table: Table, key: str, known: Sequence[str]) -> str:
    return _known(key, _text(table, key), known)


def _known(key: str, name: str, known: Sequence[str]) -> str:
    if name not in known:
        raise RuleError(f"{key}: {unknown(name, known)}")
    return name


def _whole(table: Table, key: str, default: int, *, least: int, most: int) -> int:
    value = table.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise RuleError(f"{key}: must be a whole number, {least} or more")
    return value
