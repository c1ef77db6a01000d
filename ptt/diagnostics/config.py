"""Read `ptt.toml` into frozen settings; an unknown key or a value of the wrong kind is an error, never ignored."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field as dataclass_field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct, field
from msgspec.structs import asdict

from ptt.diagnostics.budget_limits import DEFAULT_LIMITS, BudgetLimits
from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.documents import (
    MAX_INTEGER,
    MAX_KEY,
    DocumentError,
    Finite,
    closest,
    convert_document,
    read_at_most,
)
from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.log_entries import (
    EPOCH,
    MAX_COLUMN,
    MAX_ENTRIES,
    MAX_EPOCH_STEPS,
    MAX_EXPRESSION,
    STEP,
    LogEntry,
    entry_problem,
)
from ptt.diagnostics.model import Severity

FILE_NAME: Final = "ptt.toml"
IGNORE: Final = "ignore"  # in place of a canonical name: the metric is none of them, whatever its name tells
RUN_FACTS: Final[Mapping[str, str]] = {
    "algorithm": "algorithm",
    "framework": "framework",
    "kind": "kind_of_training",
    "total_steps": "max_steps",
}
"""What `[run]` says -> the fact that it becomes."""
BETTER: Final = "better"
DIRECTIONS: Final = ("higher", "lower")
MAX_MEANT: Final = 3  # metrics that an error suggests
MAX_DEPTH: Final = 200  # of JSON that a setting may allow: Python's own parser gives up soon after
MAX_ERROR: Final = 300  # characters of an error: it may quote the file
MAX_BYTES: Final = 4 << 20  # a settings file is a few pages of text; a larger one was given by mistake


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a user may set; the defaults are what `ptt` uses without a file."""

    min_observation: int = 4
    fail_on: Severity | None = None
    keep_text: bool = False
    rules: tuple[Path, ...] = ()  # files and folders of custom rules
    advisories: tuple[Path, ...] = ()  # folders of advisories beside those that come with ptt
    required_tools: tuple[str, ...] = ()  # names of tools that the task cannot do without
    limits: Mapping[str, Mapping[str, float]] = dataclass_field(default_factory=dict)
    metrics: Mapping[str, str] = dataclass_field(default_factory=dict)  # as logged -> canonical, "" for none
    better: Mapping[str, str] = dataclass_field(default_factory=dict)  # as logged -> "higher" or "lower"
    logs: tuple[LogEntry, ...] = ()  # how to read text that no parser does
    run: Mapping[str, str | int] = dataclass_field(default_factory=dict)  # what counts before all that files say
    budget: BudgetLimits = DEFAULT_LIMITS  # what reading a run may cost

    def judged_by(self, *, rules: bool) -> tuple[str, ...]:
        """Name what a diagnosis depends on and is not the default; `rules`: custom ones are in force."""
        parts = {
            "[limits]": bool(self.limits),
            "[metrics]": bool(self.metrics or self.better),
            "[[logs]]": bool(self.logs),
            "[run]": bool(self.run),
            "custom rules": rules,
            "[diagnose] required_tools": bool(self.required_tools),
            "[slices] min_observation": self.min_observation != Settings.min_observation,
        }
        return tuple(name for name, set_ in parts.items() if set_)


@dataclass(frozen=True, kw_only=True)
class Known:
    """The names that settings may use."""

    limits: Mapping[str, Mapping[str, float]]  # the rules' own, by rule and name
    metrics: Collection[str]  # canonical names
    near_metrics: Callable[[str], Sequence[str]]  # what another name may have meant, best first
    kinds: Collection[str] = ()  # of training
    is_algorithm: Callable[[str], bool] = bool  # whether the kind of training follows from an algorithm's name


def load_settings(path: Path | None, *, known: Known) -> Settings:
    """Read `path`, or `./ptt.toml` where there is one."""
    path, document = read_document(path)
    return _settings(document, path, known)


def read_document(path: Path | None) -> tuple[Path, dict[str, Any]]:
    """Read `path`, or `./ptt.toml` where there is one: where it lies, and what it holds (nothing without a file)."""
    if path is None:
        path = Path(FILE_NAME)
        if not path.is_file():
            return path, {}
    try:
        content = read_at_most(path, MAX_BYTES)
    except FileNotFoundError as error:
        raise SettingsError(f"{path}: there is no such settings file.") from error
    except OSError as error:
        raise SettingsError(f"{path}: the settings cannot be read: {error.strerror}.") from error
    except ValueError as error:
        size = f"{MAX_BYTES >> 20} MiB"
        raise SettingsError(f"{path}: is larger than {size}, too large for a settings file.") from error
    try:
        return path, tomllib.loads(content.decode("utf-8").replace("\r\n", "\n"))
    except (ValueError, RecursionError) as error:  # damage; a number of thousands of digits; brackets in brackets
        raise SettingsError(f"{path}: cannot be read as TOML: {str(error)[:MAX_ERROR]}.") from error


_Whole = Annotated[int, Meta(ge=1, le=MAX_INTEGER)]
_Positive = Annotated[float, Meta(gt=0, le=sys.float_info.max)]


class _Table(Struct, forbid_unknown_fields=True):
    """A table of the file."""


class _Diagnose(_Table):
    fail_on: Literal["never", "critical", "high", "medium", "low", "info"] = "never"
    keep_text: bool = False
    rules: tuple[Annotated[str, Meta(min_length=1)], ...] = ()
    advisories: tuple[Annotated[str, Meta(min_length=1)], ...] = ()
    required_tools: tuple[Annotated[str, Meta(min_length=1)], ...] = ()


class _Slices(_Table):
    min_observation: _Whole = Settings.min_observation


class _Budget(_Table):
    memory_mb: _Whole = DEFAULT_LIMITS.memory_mb
    seconds: _Positive = DEFAULT_LIMITS.seconds
    file_seconds: _Positive = DEFAULT_LIMITS.file_seconds
    rows: _Whole = DEFAULT_LIMITS.rows
    names: _Whole = DEFAULT_LIMITS.names
    depth: Annotated[int, Meta(ge=1, le=MAX_DEPTH)] = DEFAULT_LIMITS.depth
    steps: _Whole = DEFAULT_LIMITS.steps


class _Run(_Table):
    algorithm: Annotated[str, Meta(min_length=1)] | None = None
    framework: Annotated[str, Meta(min_length=1)] | None = None
    kind: str | None = None
    total_steps: _Whole | None = None


_Expression = Annotated[str, Meta(min_length=1, max_length=MAX_EXPRESSION)]
_Name = Annotated[str, Meta(min_length=1)]


class _Log(_Table):
    files: _Expression
    line: str = ""
    columns: Mapping[_Name, Annotated[int, Meta(ge=1, le=MAX_COLUMN)]] = {}
    separator: str = ""
    step: _Name = STEP
    epoch: _Name = EPOCH
    epoch_steps: Annotated[int, Meta(ge=0, le=MAX_EPOCH_STEPS)] = 0
    carry: bool = False
    decimal: Literal[".", ","] = "."


class _Document(_Table):
    diagnose: _Diagnose = field(default_factory=_Diagnose)
    slices: _Slices = field(default_factory=_Slices)
    budget: _Budget = field(default_factory=_Budget)
    limits: Mapping[str, Mapping[str, Finite]] = {}
    metrics: Mapping[str, Any] = {}  # a canonical name, or which way an unknown one gets better
    logs: Annotated[tuple[_Log, ...], Meta(max_length=MAX_ENTRIES)] = ()
    run: _Run = field(default_factory=_Run)
    gate: Any = None  # gate/read_policy.py reads it


def _settings(document: dict[str, Any], path: Path, known: Known) -> Settings:
    try:
        tables = convert_document(document, _Document, mapping="a table")
        _check_known(tables.limits, known.limits)
        better = {raw: _better(raw, entry) for raw, entry in tables.metrics.items() if not isinstance(entry, str)}
        metric_names = {
            raw: _metric_name(raw, name, known) for raw, name in tables.metrics.items() if isinstance(name, str)
        }
        run = _run_facts(tables.run, known)
        logs = tuple(_log_entry(number, log, document) for number, log in enumerate(tables.logs))
    except DocumentError as error:
        raise SettingsError(f"{path}: {error.sentence}") from error
    diagnose = tables.diagnose
    return Settings(
        min_observation=tables.slices.min_observation,
        keep_text=diagnose.keep_text,
        rules=tuple(path.parent / name for name in diagnose.rules),  # written as seen from the settings file
        advisories=tuple(path.parent / name for name in diagnose.advisories),
        required_tools=diagnose.required_tools,
        fail_on=None if diagnose.fail_on == "never" else Severity(diagnose.fail_on),
        limits={rule: values for rule, values in tables.limits.items() if values},
        metrics=metric_names,
        better=better,
        logs=logs,
        run=run,
        budget=BudgetLimits(**asdict(tables.budget)),
    )


def _check_known(limits: Mapping[str, Mapping[str, float]], known: Mapping[str, Mapping[str, float]]) -> None:
    for rule, values in limits.items():
        if rule not in known:
            raise DocumentError("limits", f"has the unknown key {rule!r}; {closest(rule, known)}")
        for name in values:
            if name not in known[rule]:
                raise DocumentError(f"limits.{rule}", f"has the unknown key {name!r}; {closest(name, known[rule])}")


def _log_entry(number: int, table: _Log, document: dict[str, Any]) -> LogEntry:
    entry = LogEntry(**asdict(table))
    if (problem := entry_problem(entry, document["logs"][number])) is not None:
        key, what = problem
        raise DocumentError(f"logs[{number}]" + f".{key}" * bool(key), what)
    return entry


def _run_facts(table: _Run, known: Known) -> dict[str, str | int]:
    """Return the facts that a run has by its user's word, under the names that files state them by."""
    if table.kind is not None and table.kind not in known.kinds:
        kinds = ", ".join(sorted(known.kinds))
        raise DocumentError("run.kind", f"is {table.kind[:MAX_KEY]!r}; it must be one of {kinds}")
    if table.algorithm is not None and table.kind is None and not known.is_algorithm(table.algorithm):
        named = table.algorithm[:MAX_KEY]
        raise DocumentError("run.algorithm", f"is {named!r}, which is not known: `kind` must say its kind of training")
    return {fact: value for key, fact in RUN_FACTS.items() if (value := getattr(table, key)) is not None}


def _better(raw: str, entry: object) -> str:
    """Return the direction in which a metric improves, where the user gives that and no name."""
    if not isinstance(entry, dict) or set(entry) != {BETTER}:
        raise DocumentError(f"metrics.{raw[:MAX_KEY]}", "must be a text")
    if entry[BETTER] not in DIRECTIONS:
        raise DocumentError(f"metrics.{raw[:MAX_KEY]}.{BETTER}", "must be higher or lower")
    return str(entry[BETTER])


def _metric_name(raw: str, name: str, known: Known) -> str:
    """Return the canonical name that a logged one stands for; "" where it is to stand for none."""
    if name in ("", IGNORE):
        return ""
    if name in known.metrics:
        return name
    meant = known.near_metrics(name)
    suggested = f"is {' or '.join(meant[:MAX_MEANT])} meant?" if meant else closest(name, known.metrics)
    raise DocumentError("metrics", f"maps {raw[:MAX_KEY]!r} to {name[:MAX_KEY]!r}, which is not a metric; {suggested}")
