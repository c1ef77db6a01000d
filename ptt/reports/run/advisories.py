"""What advisories say of a run, a config, or by themselves: lines for terminal, page and postmortem, and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.text import Text

from ptt.diagnostics.metrics.recording import framework_name
from ptt.diagnostics.model import NO_VERSION, AdvisoryMatch, AdvisoryReport, Diagnosis, JsonScalar, Strength
from ptt.reports.output import finite_json
from ptt.reports.text.names import SEVERITIES, joined, sentence
from ptt.reports.text.numbers import count, counted
from ptt.reports.text.sanitize import safe
from ptt.reports.text.terminal import print_wrapped

if TYPE_CHECKING:
    from ptt.diagnostics.advisories.advisory import Advisory, Condition, Database

INDENT: Final = 2
MAX_NAMED: Final = 3  # advisories in the one line of the terminal
MAX_POSSIBLE: Final = 3  # named under one finding: more than that help nobody to choose
KINDS: Final = {"bug": "known bug", "silent-setting": "setting that does nothing", "risky-setting": "risky setting"}
HEADINGS: Final[Mapping[Strength, str]] = {
    Strength.CAUSE: "Causes: version and settings are affected, and the run shows it",
    Strength.NOTE: "May apply: version and settings are affected as far as known; the run does not or cannot show it",
    Strength.POSSIBLE: "Possible causes: the run shows the signature, and not all of the settings are recorded",
}
OF_CONFIG: Final = {**HEADINGS, Strength.NOTE: "Known to go wrong with these settings"}
DEPENDS: Final = "Depends on the installed version: give it with --package NAME==VERSION or as a list of packages"


def advisories_json(report: AdvisoryReport) -> dict[str, object]:
    """Return a report as values of JSON."""
    return {**asdict(report), "matches": [asdict(match) for match in report.matches]}


def report_json(report: AdvisoryReport, version: str) -> str:
    """Return what applies to a run or a config, as a document of its own."""
    return finite_json({"schema_version": 1, "ptt_version": version, "advisories": advisories_json(report)})


def database_line(report: AdvisoryReport) -> str:
    """Say what the run was held against: a newer database may know more."""
    return (
        f"Held against {_advisories(report.count)} of the database {safe(report.version)} "
        f"({safe(report.date)}); a newer one may know more."
    )


def _advisories(how_many: int) -> str:
    return f"{count(how_many)} {'advisory' if how_many == 1 else 'advisories'}"


def setup_line(report: AdvisoryReport) -> str:
    """Say what was known of the setup."""
    framework = framework_name(report.framework) if report.framework else "not recognised"
    versions = ", ".join(f"{safe(name)} {safe(version)}" for name, version in report.packages.items())
    return (
        f"Framework: {safe(framework)}. Versions: {versions or 'none recorded'}. "
        f"Settings: {count(report.settings)} recorded."
    )


def because(match: AdvisoryMatch) -> str:
    """Say what speaks for a match: settings, versions, findings."""
    settings = [
        f"`{safe(key)} = {_value(value)}`{' (its default)' if key in match.by_default else ''}"
        for key, value in match.settings.items()
    ]
    versions = [f"{safe(name)} {safe(version)}" for name, version in match.packages.items() if version]
    shown = [f"the run shows {joined(list(match.findings))}"] if match.findings else []
    return "; ".join([*filter(None, [", ".join(settings), ", ".join(versions)]), *shown])


def _value(value: JsonScalar) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return str(value).lower()
    return safe(value) if isinstance(value, str) else f"{value:.6g}"


def remedy(match: AdvisoryMatch) -> str:
    """Say what to change: the line, the release, or the way round."""
    where = f" in {safe(match.where)}" if match.where else ""
    line = f"Write `{safe(match.change)}`{where}" if match.change else ""
    release = f"upgrade to `{safe(match.upgrade)}`" if match.upgrade else ""
    done = (sentence(", or ".join(filter(None, (line, release)))), sentence(safe(match.workaround)))
    return " ".join(text for text in done if text.strip("."))


def title(match: AdvisoryMatch) -> str:
    """Name a match in one line."""
    return f"{safe(match.id)}: {safe(match.summary)}"


def told_under(diagnosis: Diagnosis) -> dict[str, list[str]]:
    """Return by finding what its known causes are, then which are possible."""
    told: dict[str, list[str]] = {}
    for match in () if diagnosis.advisories is None else diagnosis.advisories.matches:
        for finding in match.findings:
            lines = told.setdefault(finding, [])
            if match.strength is Strength.CAUSE:
                lines.append(f"{title(match)}. {sentence(because(match))} {remedy(match)} {match.references[0]}")
            elif _is_worth_a_look(match) and len(lines) < MAX_POSSIBLE:
                lines.append(f"Possibly {title(match)} ({joined(list(match.unsure))}). {match.references[0]}")
    return {finding: lines for finding, lines in told.items() if lines}


def _is_worth_a_look(match: AdvisoryMatch) -> bool:
    """Return whether more than a common finding speaks for a possible cause."""
    supported = bool(match.settings) or any(match.packages.values()) or (match.shaped and bool(match.findings))
    return match.strength is Strength.POSSIBLE and supported


def cause_lines(diagnosis: Diagnosis) -> list[str]:
    """Return each known cause with what to change."""
    report = diagnosis.advisories
    causes = () if report is None else report.of(Strength.CAUSE)
    return [f"{KINDS[match.kind].capitalize()} {title(match)}. {remedy(match)}" for match in causes]


def quiet_line(diagnosis: Diagnosis) -> str:
    """Return one line on what may apply, the most severe in words and the next by name; empty where nothing does."""
    matches = () if diagnosis.advisories is None else diagnosis.advisories.matches
    quiet = [
        match
        for match in matches
        if _is_worth_a_look(match) or (match.strength is Strength.NOTE and not match.looked_for)
    ]
    if not quiet:
        return ""
    first, *others = sorted(quiet, key=lambda one: one.severity.rank)
    ids = [safe(match.id) for match in others]
    named = joined(ids[: MAX_NAMED - 1] + ["others"] * (len(ids) >= MAX_NAMED))
    also = f"; also {named}" if ids else ""
    return f"{count(len(quiet))} may apply ({title(first)}{also}); `ptt advisories RUN` says why"


def chapter_line(report: AdvisoryReport) -> str:
    """Say how many matches the chapter lists."""
    causes = len(report.of(Strength.CAUSE))
    parts = [counted(causes, "known cause")] if causes else []
    parts += [f"{count(len(report.matches) - causes)} may apply"] if len(report.matches) > causes else []
    return ", ".join(parts)


def chapter(diagnosis: Diagnosis) -> list[tuple[str, list[tuple[AdvisoryMatch, list[tuple[str, str]]]]]]:
    """Return the chapter of the report: by heading the matches, each with its parts."""
    report = diagnosis.advisories
    if report is None:
        return []
    shown = [strength for strength in Strength if report.of(strength)]
    return [(HEADINGS[strength], [(match, parts_of(match)) for match in report.of(strength)]) for strength in shown]


def parts_of(match: AdvisoryMatch) -> list[tuple[str, str]]:
    """Return the parts of a match: what it does, why it is named, what to change."""
    parts = {
        "Effect": sentence(safe(match.effect)),
        "Because": sentence(because(match)),
        "Not certain": sentence("; ".join(map(safe, match.unsure))),
        "Not seen": "The run does not show its signature." if match.looked_for else "",
        "Would show it": sentence("; ".join(map(safe, match.would_show))),
        "Change": remedy(match),
        "See": " ".join(map(safe, match.references)),
        "From": safe(match.source),
    }
    return [(name, text) for name, text in parts.items() if text.strip(". ")]


def print_report(report: AdvisoryReport, console: Console, *, of_config: bool = False) -> None:
    """Print what applies to a run or a config, strongest first; of a config, what hangs on a version, in one line."""
    headings = OF_CONFIG if of_config else HEADINGS
    _print(console, 0, setup_line(report))
    for strength in Strength:
        matches = [match for match in report.of(strength) if not (of_config and match.unsure)]
        if matches:
            console.print()
            _print(console, 0, headings[strength], style="bold")
        for match in matches:
            _print(console, 0, f"{SEVERITIES[match.severity]}, {KINDS[match.kind]}: {title(match)}")
            for name, text in parts_of(match):
                _print(console, 1, f"{name}: {text}")
    unsure = [match for match in report.matches if of_config and match.unsure]
    if unsure:
        console.print()
        _print(console, 0, DEPENDS, style="bold")
    for match in unsure:
        why = [text.removesuffix(NO_VERSION) for text in match.unsure]
        _print(console, 0, f"{SEVERITIES[match.severity]}: {title(match)} ({joined(why)}).")
    console.print()
    for text in [*([] if report.matches else ["No advisory applies."]), *_not_read(report, of_config=of_config)]:
        _print(console, 0, text)
    _print(console, 0, database_line(report), style="dim")


def _not_read(report: AdvisoryReport, *, of_config: bool) -> Iterator[str]:
    """Say what could not be held against the advisories."""
    if report.framework is None:
        told = "; name it with --framework" if of_config else ""
        yield f"The framework is not recognised: nothing that a framework's advisory says was held against this{told}."
    if report.unresolved:
        yield f"Not read: {counted(report.unresolved, 'value')} given by variables of the shell."


def print_database(database: Database, console: Console) -> None:
    """Print one line an advisory, under its framework."""
    longest = max(len(advisory.id) for advisory in database.advisories)
    by_framework: dict[str, list[Advisory]] = {}
    for advisory in database.advisories:
        by_framework.setdefault(advisory.affected.framework or "", []).append(advisory)
    for framework, mine in sorted(by_framework.items()):
        _print(console, 0, framework_name(framework) if framework else "Any framework", style="bold")
        for advisory in mine:
            own = database.sources.get(advisory.id)
            at = f" [{safe(own)}]" if own else ""
            _print(console, 1, f"{advisory.id.ljust(longest)}  {advisory.severity}: {safe(advisory.summary)}{at}")
        console.print()
    _print(console, 0, f"{len(database.advisories)} advisories, database {database.version} of {database.date}.")
    _print(console, 0, "`ptt advisories ID` explains one; `ptt advisories RUN` says which apply to a run.")


def print_advisory(advisory: Advisory, console: Console, *, source: str = "") -> None:
    """Print one advisory in full."""
    _print(console, 0, f"{advisory.id} · {advisory.severity} · {KINDS[advisory.kind]} · {advisory.date}", style="bold")
    _print(console, 0, sentence(safe(advisory.summary)))
    for name, text in advisory_parts(advisory).items():
        console.print()
        _print(console, 0, name, style="bold")
        for line in text:
            _print(console, 1, safe(line))
    if source:
        _print(console, 0, f"From {safe(source)}", style="dim")


def advisory_parts(advisory: Advisory) -> dict[str, list[str]]:
    """Return an advisory's parts in words, by their headings."""
    change = advisory.change
    signature = advisory.signature
    shows = [f"{metric.name} {metric.is_}" + _than(metric.value, metric.other) for metric in signature.metrics]
    shows += [f"any of {', '.join(signature.any_finding)}"] if signature.any_finding else []
    shows += [f"all of {', '.join(signature.all_findings)}"] if signature.all_findings else []
    shows += [f"none of {', '.join(signature.no_finding)}"] if signature.no_finding else []
    where = f" ({change.where})" if change.where else ""
    parts = {
        "Effect": [advisory.effect],
        "Affected": [*_affected(advisory)],
        "Settings": [f"`{key}` {words_of(condition)}" for key, condition in advisory.conditions().items()],
        "What a run shows": shows,
        "Change": [f"`{change.line}`{where}"] if change.line else [],
        "Fixed in": [change.upgrade] if change.upgrade else [],
        "Without the fix": [change.workaround] if change.workaround else [],
        "References": [f"{reference.url} ({reference.shows})" for reference in advisory.references],
    }
    return {name: lines for name, lines in parts.items() if lines}


def _than(value: JsonScalar, other: str | None) -> str:
    return f" {other}" if other is not None else f" {value:g}" if isinstance(value, int | float) else ""


def _affected(advisory: Advisory) -> Iterator[str]:
    if advisory.affected.framework:
        yield framework_name(advisory.affected.framework)
    yield from (package.words for package in advisory.affected.packages)
    if advisory.affected.only:
        yield f"only {advisory.affected.only}"


SIGNS: Final = {
    "above": "above", "below": "below", "at_least": "at least", "at_most": "at most",
    "not_multiple_of": "no multiple of", "differs_from": "other than",
}  # fmt: skip


def words_of(condition: Condition) -> str:
    """Put a condition on a setting into words."""
    from msgspec import UNSET, Struct

    parts: list[str] = []
    for name, sign in (("is_", "is"), ("not_", "is not")):
        if (given := getattr(condition, name)) is not UNSET:
            options = given if isinstance(given, tuple) else (given,)
            parts.append(f"{sign} {' or '.join(_value(option) for option in options)}")
    times = "".join(f" x {name}" for name in condition.times)
    for name, sign in SIGNS.items():
        if (limit := getattr(condition, name)) is not None:
            parts.append(f"{times.strip() + ' ' if times else ''}is {sign} {_limit(limit)}".strip())
    parts += ["is set"] if condition.present and not parts else []
    parts += ["is not set"] if condition.absent else []
    given = condition.default
    default = "" if given is UNSET else f" (default: {given.setting if isinstance(given, Struct) else _value(given)})"
    return " and ".join(parts) + default


def _limit(limit: Any) -> str:
    if isinstance(limit, int | float):
        return f"{limit:g}"
    return " x ".join((limit.setting, *limit.times))


def database_json(advisories: Sequence[Advisory], database: Database, version: str) -> str:
    """Return advisories as JSON, as their files have them, each with the folder it comes from."""
    import msgspec

    document = {
        "schema_version": 1,
        "ptt_version": version,
        "database": {"version": database.version, "date": database.date},
        "advisories": [
            {**msgspec.to_builtins(advisory), "source": database.sources.get(advisory.id, "ptt")}
            for advisory in advisories
        ],
    }
    return finite_json(document)


def _print(console: Console, level: int, text: str, style: str = "") -> None:
    print_wrapped(console, Text(text), head=" " * (INDENT * level), hang=INDENT * (level + 1), style=style)
