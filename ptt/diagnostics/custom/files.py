"""Read rule files, the TOML of custom rules among them, and say what was understood and what is wrong."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar, cast

from msgspec import Meta, Struct, field

from ptt.diagnostics.custom.judge import words
from ptt.diagnostics.custom.microsoft_yaml import heuristic_of
from ptt.diagnostics.custom.terms import (
    DEFAULT_WIDTH,
    MAX_WIDTH,
    MIN_VALUES,
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
    check_template,
    checked_algorithms,
    checked_id,
    checked_metric,
    comparison_of,
    link_of,
    tests_of,
    unknown,
)
from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.documents import DocumentError, convert_document
from ptt.diagnostics.evidence.algorithm import Family
from ptt.diagnostics.model import Link, Severity

Given = TypeVar("Given")
Made = TypeVar("Made")

FORM: Final = "trainer: metric condition [for N steps] -> severity: message"
EXAMPLE: Final = "grpo: kl/ref > 0.3 for 20 steps -> high: KL is over our limit"
WARM_UP: Final = 10  # values beyond the window that Microsoft's toolkit asks for before an alert of one line counts
MAX_TEXT: Final = 1000  # characters: an alert is one line
_TRAINERS: Final = re.compile(r"\w+(?:\s*,\s*\w+)*")
_WIDTH: Final = re.compile(r"\sfor\s+(\d+)\s+steps?$", re.IGNORECASE)
_SEVERITY_AND_MESSAGE: Final = re.compile(r"(?P<severity>\w+)\s*:\s*(?P<message>\S.*)")
_SIGNS: Final = {"<=": "at-most-", ">=": "at-least-", "==": "equals-", "<": "below-", ">": "above-"}

MAX_BYTES: Final = 1 << 20  # a rule file is a page of text; a larger one was given by mistake


def alert_of(text: str, *, file: str) -> CustomRule:
    """Read one alert; RuleError says what is wrong with it."""
    if len(text) > MAX_TEXT:
        raise RuleError(f"{text[:40].strip()!r}... is not an alert: it has more than {MAX_TEXT} characters")
    parts = _parts(text)
    if parts is None:
        raise RuleError(f"{text.strip()!r} is not an alert; write `{FORM}`, for example `{EXAMPLE}`")
    try:
        severity = Severity(parts["severity"].lower())
    except ValueError as error:
        raise RuleError(f"severity {parts['severity']!r} is unknown; it can be {', '.join(Severity)}") from error
    width = int(parts["width"] or DEFAULT_WIDTH)
    if not 1 <= width <= MAX_WIDTH:
        raise RuleError(f"for {width} steps: give 1 to {MAX_WIDTH}")
    check_template(parts["message"])
    metric = checked_metric(parts["metric"])
    test = Statement(metric=metric, comparison=comparison_of(parts["condition"], theirs=True), window=Last(width))
    return CustomRule(
        id=_id(parts),
        file=file,
        severity=severity,
        link=link_of(metric) or Link.TRAINING_SIGNAL,
        condition=test,
        claim=parts["message"],
        algorithms=checked_algorithms(parts["trainers"].split(",")),
        min_steps=width + WARM_UP,
    )


def _parts(text: str) -> dict[str, str] | None:
    """Split an alert at its first arrow and its first colon; None where a part is missing."""
    tested, _, said = text.partition("->")
    trainers, _, test = tested.partition(":")
    says = _SEVERITY_AND_MESSAGE.fullmatch(said.strip())
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


def _id(parts: Mapping[str, str]) -> str:
    """Name an alert by all that sets it apart, so that two on one metric stay two."""
    condition = parts["condition"]
    for sign, word in _SIGNS.items():
        condition = condition.replace(sign, word)
    text = "-".join(["alert", parts["trainers"], parts["metric"], condition, parts["width"]])
    return re.sub(r"[^a-z0-9.]+", "-", re.sub(r"(?<=[-(,\s])-(?=[\d.])", "minus", text.lower())).strip("-")[:80]


COMBINING: Final = ("all", "any")
MAX_STEPS: Final = 10**9
PARTS: Final = ("early", "mid", "late", "whole")
PERCENTILES: Final = ("p01", "p05", "p25", "p75", "p95", "p99")  # that an error names; any of p01 to p99 is taken
_PERCENTILE: Final = re.compile(r"p\d{1,2}")
_LAST: Final = re.compile(r"last\s+(\d{1,6})")

Text = Annotated[str, Meta(pattern=r"\S")]
Texts = tuple[Text, ...]
Steps = Annotated[int, Meta(ge=1, le=MAX_STEPS)]
Read = tuple[list[CustomRule], list[str]]


class TestTable(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A test of one metric, or tests in `all` or `any`."""

    metric: Text | None = None
    comparison: Text | None = field(name="is", default=None)
    aggregate: Text | None = None
    window: int | str = DEFAULT_WIDTH
    all: tuple[TestTable, ...] | None = None
    any: tuple[TestTable, ...] | None = None


class RuleTable(TestTable, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """`[[rule]]`."""

    id: Text
    severity: Severity
    link: Link | None = None
    claim: Text = ""
    message: Text = ""
    why: Text = ""
    reference: Text = ""
    causes: Texts = ()
    confirm: Texts = ()
    next: Texts = ()
    families: tuple[Family, ...] = ()
    algorithms: Texts = ()
    for_steps: Steps = 1
    min_steps: Steps = MIN_VALUES
    enabled: bool = True


LISTS: Final = ("causes", "confirm", "next", "families", "algorithms")


def toml_rules(text: str, *, file: str) -> Read:
    """Read a file: its rules, and what is wrong with those that could not be read."""
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # damage; a number of thousands of digits; brackets in brackets
        return [], [f"is not valid TOML: {error}"]
    problems = [unknown(key, ("rule", "alerts")) for key in document if key not in {"rule", "alerts"}]
    rules: list[CustomRule] = []
    tables, alerts = document.get("rule", []), document.get("alerts", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        problems.append("rule: is not a list of tables; start each rule with [[rule]]")
        tables = []
    if not isinstance(alerts, list) or not all(isinstance(alert, str) for alert in alerts):
        problems.append("alerts: is not a list of texts")
        alerts = []
    for number, table in enumerate(tables, start=1):
        try:
            rules.append(rule_of(table, file=file))
        except (RuleError, DocumentError) as error:
            named = f"rule {table['id']!r}" if isinstance(table.get("id"), str) else f"rule number {number}"
            problems.append(f"{named}: {error}".replace(": the document ", ": "))
    for number, alert in enumerate(alerts, start=1):
        try:
            rules.append(alert_of(alert, file=file))
        except RuleError as error:
            problems.append(f"alert number {number}: {error}")
    if not tables and not alerts and not problems:
        problems.append("contains neither [[rule]] nor alerts")
    return rules, problems


def rule_of(table: Mapping[str, Any], *, file: str) -> CustomRule:
    """Read one rule; DocumentError or RuleError names the key that is wrong."""
    lists = {key: [table[key]] for key in LISTS if isinstance(table.get(key), str)}
    rule = convert_document({**table, **lists}, RuleTable, mapping="a table")
    if rule.claim and rule.message:
        raise DocumentError("claim", "and message mean the same; give only one")
    claim = (rule.claim or rule.message).strip()
    condition = _condition("", rule, depth=0)
    check_template(claim, len(list(tests_of(condition))))
    if rule.for_steps > 1 and not any(isinstance(test.window, Moving) for test in tests_of(condition)):
        raise DocumentError("for_steps", "is more than 1, and no window here moves; give a number as `window`")
    metric = next(tests_of(condition)).metric
    link = rule.link or link_of(metric)
    if link is None:
        raise DocumentError("link", f"is missing, and {metric} does not imply it; give one of {', '.join(Link)}")
    return CustomRule(
        id=checked_id(rule.id.strip()),
        file=file,
        severity=rule.severity,
        link=link,
        condition=condition,
        claim=claim,
        why=rule.why.strip(),
        reference=rule.reference.strip(),
        causes=_stripped(rule.causes),
        confirm=_stripped(rule.confirm),
        next=_stripped(rule.next),
        families=frozenset(rule.families),
        algorithms=_at("algorithms", checked_algorithms, rule.algorithms),
        for_steps=rule.for_steps,
        min_steps=rule.min_steps,
        enabled=rule.enabled,
    )


def _stripped(texts: Texts) -> Texts:
    return tuple(text.strip() for text in texts)


def _at(key: str, read: Callable[[Given], Made], value: Given) -> Made:
    """Read a value; what is wrong with it is raised with its key."""
    try:
        return read(value)
    except RuleError as error:
        raise DocumentError(f"{key}:", str(error)) from error


def _condition(at: str, table: TestTable, *, depth: int) -> Condition:
    """Read a test, or one level of all and any with another inside; `at` begins the keys in errors."""
    given = [key for key in COMBINING if getattr(table, key) is not None]
    plain = (table.metric, table.comparison, table.aggregate)
    if len(given) > 1 or (given and (any(plain) or table.window != DEFAULT_WIDTH)):
        raise DocumentError(at + given[0], "cannot be combined; give one of: a metric with `is`, `all`, `any`")
    if not given:
        return _test(at, table)
    key, parts = at + given[0], getattr(table, given[0])
    if depth > 1:
        raise DocumentError(key, "is nested too deeply; all and any may be nested once")
    if len(parts) < 2:
        raise DocumentError(key, "must be a list of at least two tables")
    conditions = tuple(_condition(f"{key}[{index}].", part, depth=depth + 1) for index, part in enumerate(parts))
    return AllOf(conditions) if given[0] == "all" else AnyOf(conditions)


def _test(at: str, table: TestTable) -> Statement:
    if table.metric is None or table.comparison is None:
        raise DocumentError(at.rstrip("."), f"has no `{'metric' if table.metric is None else 'is'}`")
    comparison = _at(f"{at}is", comparison_of, table.comparison.strip())
    window = _window(f"{at}window", table.window)
    if isinstance(comparison, Spike) and table.aggregate is not None:
        raise DocumentError(f"{at}aggregate", "is given, and a spike has none of its own; leave it out")
    if isinstance(comparison, Spike) and isinstance(window, Part):
        stands_out = "a spike stands out from the values before it"
        raise DocumentError(f"{at}window", f'is {window.name}, and {stands_out}; give a number or "last N"')
    if isinstance(comparison, RELATIVE) and isinstance(window, Part) and window.name in {"early", "whole"}:
        raise DocumentError(f"{at}window", f"{window.name} cannot be compared with the early level")
    aggregate = (table.aggregate or "mean").strip()
    if _PERCENTILE.fullmatch(aggregate) and int(aggregate[1:]) > 0:
        aggregate = f"p{int(aggregate[1:]):02d}"
    elif aggregate not in (*PLAIN_AGGREGATES, *PERCENTILES):
        raise DocumentError(f"{at}aggregate", unknown(aggregate, (*PLAIN_AGGREGATES, *PERCENTILES)))
    if aggregate in NEED_TWO and isinstance(window, Moving | Last) and window.width < 2:
        raise DocumentError(f"{at}window", f"is too short: {aggregate} needs two values or more")
    metric = _at(f"{at}metric", checked_metric, table.metric)
    return Statement(metric=metric, comparison=comparison, aggregate=aggregate, window=window)


def _window(key: str, value: int | str) -> Window:
    if isinstance(value, str):
        if value in PARTS:
            return Part(cast(Literal["early", "mid", "late", "whole"], value))
        last = _LAST.fullmatch(value)
        if last and 1 <= int(last[1]) <= MAX_WIDTH:
            return Last(int(last[1]))
    elif 1 <= value <= MAX_WIDTH:
        return Moving(value)
    shown = f"{value!r:.80}" if isinstance(value, str) or abs(value) < MAX_STEPS else "so large a number"
    raise DocumentError(key, f'{shown} is not a window; give 1 to {MAX_WIDTH}, "last N", early, mid, late or whole')


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What files of rules hold, and every problem in them."""

    files: tuple[Path, ...]
    rules: tuple[CustomRule, ...]
    problems: tuple[str, ...]


def load_rules(paths: Iterable[Path]) -> tuple[CustomRule, ...]:
    """Return the rules in force; RuleError names the first problem, for a rule that is wrong must not go unsaid."""
    checked = check_rules(paths)
    if checked.problems:
        more = len(checked.problems) - 1
        rest = f" (and {more} more: `ptt rules --check` lists them)" if more else ""
        raise RuleError(checked.problems[0] + rest)
    return tuple(rule for rule in checked.rules if rule.enabled)


def check_rules(paths: Iterable[Path]) -> Checked:
    """Read every file; what is wrong with one keeps none of the others from being read."""
    files: list[Path] = []
    rules: list[tuple[CustomRule, Path]] = []
    problems: list[str] = []
    for path in dict.fromkeys(paths):
        files_at_path = list(_files(path))
        if not files_at_path:
            problems.append(f"{path}: " + ("contains no rule file" if path.is_dir() else "there is no such file"))
        files += [file for file in files_at_path if file not in files]
    for file in files:
        read, wrong = _read(file)
        rules += [(rule, file) for rule in read]
        problems += [f"{file}: {problem}" for problem in wrong]
    kept, twice = _unique_ids(rules)
    return Checked(files=tuple(files), rules=kept, problems=(*problems, *twice))


def rule_files(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Return the files that rules are read from."""
    return tuple(dict.fromkeys(file for path in paths for file in _files(path)))


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from sorted(file for file in path.rglob("*") if file.suffix.lower() in READERS and file.is_file())
    elif path.is_file():
        yield path


def _read(file: Path) -> Read:
    reader = READERS.get(file.suffix.lower())
    if reader is None:
        return [], [f"is not a rule file; rule files end with {', '.join(READERS)}"]
    try:
        if file.stat().st_size > MAX_BYTES:
            return [], [f"is larger than {MAX_BYTES} bytes, too large for a rule file"]
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return [], [f"cannot be read: {error}"]
    return reader(text, file.name)


def _heuristics(text: str, file: str) -> Read:
    try:
        return [heuristic_of(text, file=file)], []
    except RuleError as error:
        return [], [str(error)]


def _alerts(text: str, file: str) -> Read:
    rules, problems = [], []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                rules.append(alert_of(line, file=file))
            except RuleError as error:
                problems.append(f"line {number}: {error}")
    return rules, problems


READERS: Final[dict[str, Callable[[str, str], Read]]] = {
    ".toml": lambda text, file: toml_rules(text, file=file),
    ".yaml": _heuristics,
    ".yml": _heuristics,
    ".alerts": _alerts,
}


def _unique_ids(rules: Iterable[tuple[CustomRule, Path]]) -> tuple[tuple[CustomRule, ...], list[str]]:
    """Make ids unique.

    The same rule twice is one; two that differ under one id are a mistake, unless alerts, which do not name themselves.
    """
    by_id: dict[str, tuple[CustomRule, Path]] = {}
    problems = []
    for rule, file in rules:
        name, number = rule.id, 1
        while name in by_id and rule.id.startswith("alert-") and not _same(by_id[name][0], rule):
            number += 1
            name = f"{rule.id}-{number}"
        if name not in by_id:
            by_id[name] = (replace(rule, id=name), file)
        elif not _same(by_id[name][0], rule):
            first = by_id[name][1]
            where = "twice" if first == file else f"in {first} too"
            problems.append(f"{file}: rule {rule.id!r} is defined {where}, with other content; give it another id")
    return tuple(rule for rule, _ in by_id.values()), problems


def _same(first: CustomRule, second: CustomRule) -> bool:
    """Return whether two rules test and say the same, wherever they are defined and however they are explained."""
    return replace(first, id="", file="", why="", reference="") == replace(second, id="", file="", why="", reference="")


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
    checked = check_rules(paths)
    return Report(
        files=tuple(str(file) for file in checked.files),
        rules=tuple(_in_words(rule) for rule in checked.rules),
        problems=checked.problems,
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
