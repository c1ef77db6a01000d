"""Read advisories, one TOML file each, and refuse what would match nothing or say nothing.

The fields follow OSV and RustSec where those have one: id, summary, references, affected packages with the versions
that introduced and fixed it. Settings and signature are ours."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from datetime import date
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field
from packaging.version import InvalidVersion, Version

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.documents import DocumentError, Number, closest, convert_document
from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.model import Severity

DATA: Final = "data"
ABOUT: Final = "database.toml"  # beside the advisories: the version and date of all of them
MAX_BYTES: Final = 64 << 10  # an advisory is a page of text
MAX_FILES: Final = 10_000
MAX_ERROR: Final = 300  # characters of an error: it may quote the file

Text = Annotated[str, Meta(pattern=r"\S", max_length=1200)]
Line = Annotated[str, Meta(pattern=r"\S", max_length=400)]
Key = Annotated[str, Meta(pattern=r"^[A-Za-z_][\w.-]*$", max_length=200)]
Plain = bool | Number | str


class Reference(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A public page, and what it shows."""

    url: Annotated[str, Meta(pattern=r"^https://\S+$", max_length=300)]
    shows: Literal["report", "fix", "bisect", "maintainer", "source"]


class AffectedPackage(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A package with its versions from `introduced` up to, and without, `fixed`."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=80)]
    introduced: Line | None = None
    fixed: Line | None = None

    @property
    def words(self) -> str:
        """Its range as PEP 508 writes it."""
        ends = [f">={self.introduced}" if self.introduced else "", f"<{self.fixed}" if self.fixed else ""]
        return f"{self.name} {','.join(filter(None, ends)) or '(any version)'}"


class Affected(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The framework and the packages, each in its range; `only` names a condition that no setting records."""

    framework: Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=40)] | None = None
    packages: tuple[AffectedPackage, ...] = ()
    only: Line | None = None


class OtherSetting(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The value of another setting, with what the framework uses where it is not written."""

    setting: Key
    default: Number | None = None
    times: tuple[Key, ...] = ()  # settings that it is multiplied by


Limit = Number | OtherSetting


class Condition(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, rename={"is_": "is", "not_": "not"}):
    """What must be so of one setting; every field that is given must hold."""

    is_: Plain | tuple[Plain, ...] | UnsetType = UNSET
    not_: Plain | tuple[Plain, ...] | UnsetType = UNSET
    above: Limit | None = None
    below: Limit | None = None
    at_least: Limit | None = None
    at_most: Limit | None = None
    not_multiple_of: Limit | None = None
    differs_from: OtherSetting | None = None
    times: tuple[Key, ...] = ()  # settings that it is multiplied by before it is compared
    present: Literal[True] | None = None
    absent: Literal[True] | None = None
    default: Plain | OtherSetting | UnsetType = UNSET

    @property
    def options(self) -> tuple[str, ...]:
        """The words that it asks for, in lower case."""
        given = [one for one in (self.is_, self.not_, self.default) if one is not UNSET]
        words = [word for one in given for word in (one if isinstance(one, tuple) else (one,))]
        return tuple(word.lower() for word in words if isinstance(word, str))


COMPARISONS: Final = ("above", "below", "at_least", "at_most", "not_multiple_of", "differs_from")
Shape = Literal[
    "present", "absent", "zero", "constant", "above", "below", "falls", "grows", "grows-from-the-second-step",
    "spikes", "moves-with", "equals",
]  # fmt: skip


class MetricCondition(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, rename={"is_": "is"}):
    """What a logged metric must look like; the name is as the framework logs it."""

    name: Line
    is_: Shape
    value: Number | None = None
    other: Line | None = None


class RunSignature(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What the numbers of a run show where the advisory applies."""

    any_finding: tuple[Line, ...] = ()
    all_findings: tuple[Line, ...] = ()
    no_finding: tuple[Line, ...] = ()
    metrics: tuple[MetricCondition, ...] = ()
    mismatch_cause: Line | None = None  # where trainer and engine disagree: one of `mismatch_causes.CAUSES`

    @property
    def shown(self) -> bool:
        """Whether it asks for anything that a run shows, and not only for what it must not."""
        return bool(self.any_finding or self.all_findings or self.metrics)


class Change(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What to do: the exact line for the framework, and where it belongs."""

    line: Text | None = None
    where: Line = ""
    upgrade: Line | None = None
    workaround: Text | None = None


class Advisory(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One known bug, or one setting that does nothing or ruins runs."""

    id: Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=80)]
    summary: Annotated[str, Meta(pattern=r"\S", max_length=110)]
    date: date
    kind: Literal["bug", "silent-setting", "risky-setting"]
    severity: Literal["critical", "high", "medium", "low"]
    effect: Text
    references: Annotated[tuple[Reference, ...], Meta(min_length=1, max_length=20)]
    affected: Affected = field(default_factory=Affected)
    settings: Mapping[Key, Plain | tuple[Plain, ...] | Condition] = {}
    signature: RunSignature = field(default_factory=RunSignature)
    change: Change

    @property
    def level(self) -> Severity:
        """How bad it is for a run that it applies to."""
        return Severity(self.severity)

    def conditions(self) -> dict[str, Condition]:
        """Return what must be so of each setting: a value or a list of values is equality."""
        return {
            key: given if isinstance(given, Condition) else Condition(is_=given) for key, given in self.settings.items()
        }


class _About(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    version: Line
    date: date


@dataclass(frozen=True, kw_only=True)
class Database:
    """Advisories in the order of their ids; `sources` names the folder of each that does not come with ptt."""

    version: str
    date: str
    advisories: tuple[Advisory, ...]
    sources: Mapping[str, str]


def parse_version(text: str) -> Version | None:
    """Read a version by PEP 440; None for a commit, a path, or a version of another scheme."""
    try:
        return Version(text)
    except InvalidVersion:
        return None


@cache
def shipped() -> Database:
    """Return the advisories that come with ptt."""
    folder = resources.files(__package__).joinpath(DATA)
    about = convert_document(tomllib.loads(folder.joinpath(ABOUT).read_text(encoding="utf-8")), _About)
    found = [_read(entry, rules=None) for entry in folder.iterdir() if _is_advisory(entry.name)]
    ordered = tuple(sorted(found, key=lambda advisory: advisory.id))
    return Database(version=about.version, date=about.date.isoformat(), advisories=ordered, sources={})


def database(folders: Iterable[Path] = (), *, rules: Collection[str] | None = None) -> Database:
    """Return the advisories that come with ptt and those of further folders; one of the same id takes its place.

    `rules`: ids that a signature may name; SettingsError names the file and what is wrong in it.
    """
    own = shipped()
    found = {advisory.id: advisory for advisory in own.advisories}
    sources: dict[str, str] = {}
    for path in advisory_files(folders):
        advisory = _read(path, rules=rules)
        if sources.get(advisory.id) == path.parent.as_posix():
            raise SettingsError(f"{path}: another file of this folder has the id {advisory.id!r}.")
        found[advisory.id], sources[advisory.id] = advisory, path.parent.as_posix()
    ordered = tuple(found[key] for key in sorted(found))
    return Database(version=own.version, date=own.date, advisories=ordered, sources=sources)


def advisory_files(folders: Iterable[Path]) -> list[Path]:
    """List the advisory files of folders; SettingsError where one is none, or holds none."""
    files: list[Path] = []
    for folder in folders:
        try:
            names = sorted(entry.name for entry in folder.iterdir() if _is_advisory(entry.name))
        except OSError as error:
            raise SettingsError(f"{folder}: the folder of advisories cannot be read: {error.strerror}.") from error
        if not names or len(names) > MAX_FILES:
            raise SettingsError(f"{folder}: holds {len(names) or 'no'} advisories; each is a file ending in .toml.")
        files += [folder / name for name in names]
    return files


def _is_advisory(name: str) -> bool:
    return name.endswith(".toml") and name != ABOUT and not name.startswith(".")


def _read(path: Path | Traversable, *, rules: Collection[str] | None) -> Advisory:
    try:
        content = path.read_bytes()
        if len(content) > MAX_BYTES:
            raise SettingsError(f"{path}: is larger than {MAX_BYTES >> 10} KiB, too large for an advisory.")
        document = tomllib.loads(content.decode("utf-8").replace("\r\n", "\n"))
        advisory = convert_document(document, Advisory, mapping="a table")
        _check(advisory, rules)
    except DocumentError as error:
        raise SettingsError(f"{path}: {error.sentence}") from error
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{path}: cannot be read as TOML: {str(error)[:MAX_ERROR]}.") from error
    return advisory


_NEEDS: Final = {"above": "value", "below": "value", "moves-with": "other", "equals": "other"}


def _check(advisory: Advisory, rules: Collection[str] | None) -> None:
    """Refuse what no schema can: what matches everything, a range that holds no version, a summary with a full stop."""
    if advisory.summary.endswith("."):
        raise DocumentError("summary", "ends with a full stop; it stands inside other sentences")
    if not (advisory.settings or advisory.affected.packages):
        raise DocumentError("settings", "is empty, and no package is named: the advisory would concern every run")
    if not (advisory.change.line or advisory.change.upgrade or advisory.change.workaround):
        raise DocumentError("change", "says nothing to do; give `line`, `upgrade` or `workaround`")
    if not advisory.affected.framework and not advisory.affected.packages and advisory.kind != "risky-setting":
        raise DocumentError("affected", "names neither a framework nor a package")
    for index, package in enumerate(advisory.affected.packages):
        _check_range(f"affected.packages[{index}]", package)
    for key, condition in advisory.conditions().items():
        _check_condition(f"settings.{key}", condition)
    for index, metric in enumerate(advisory.signature.metrics):
        if (needed := _NEEDS.get(metric.is_)) is not None and getattr(metric, needed) is None:
            raise DocumentError(f"signature.metrics[{index}]", f"is {metric.is_!r} and has no `{needed}`")
    for name in advisory.signature.any_finding + advisory.signature.all_findings + advisory.signature.no_finding:
        if rules is not None and name not in rules:
            raise DocumentError("signature", f"names {name!r}, which is no finding of ptt; {closest(name, rules)}")


def _check_range(key: str, package: AffectedPackage) -> None:
    ends = {name: getattr(package, name) for name in ("introduced", "fixed")}
    read = {name: parse_version(end) for name, end in ends.items() if end is not None}
    for name, version in read.items():
        if version is None:
            raise DocumentError(f"{key}.{name}", f"is {ends[name]!r}, which is no version of PEP 440")
    low, high = read.get("introduced"), read.get("fixed")
    if low is not None and high is not None and low >= high:
        raise DocumentError(f"{key}.fixed", f"is {high}, not after introduced, {low}: no version lies between them")


def _check_condition(key: str, condition: Condition) -> None:
    given = [name for name in COMPARISONS if getattr(condition, name) is not None]
    asked = [*given, *(name for name in ("present", "absent") if getattr(condition, name))]
    if not asked and condition.is_ is UNSET and condition.not_ is UNSET:
        raise DocumentError(
            key, "asks nothing; give a value, or one of is, not, present, absent, " + ", ".join(given or COMPARISONS)
        )
    if condition.absent and (len(asked) > 1 or condition.is_ is not UNSET or condition.default is not UNSET):
        raise DocumentError(key, "must be absent and something else at once")
    if condition.times and not given:
        raise DocumentError(f"{key}.times", "multiplies a value that is not compared")


def distribution(name: str) -> str:
    """Return the name of a package as PyPI compares names."""
    return re.sub(r"[-_.]+", "-", name).lower()
