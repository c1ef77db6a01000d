"""Read `ptt.toml` into frozen settings; an unknown key or a value of the wrong kind is an error, never ignored."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.model import Severity

FILE_NAME: Final = "ptt.toml"
MOST_BYTES: Final = 4 << 20  # a settings file is a few pages of text; a larger one was given by mistake


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a user may set; the defaults are what `ptt` uses without a file."""

    min_observation: int = 4
    fail_on: Severity | None = None
    keep_text: bool = False
    rules: tuple[Path, ...] = ()  # files and folders of custom rules
    limits: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def judged_by(self, *, rules: bool) -> tuple[str, ...]:
        """Name the parts that a diagnosis hangs on and that are not the defaults; `rules`: custom ones are in force."""
        parts = {
            "[limits]": bool(self.limits),
            "custom rules": rules,
            "[slices] min_observation": self.min_observation != Settings.min_observation,
        }
        return tuple(name for name, set_ in parts.items() if set_)


def load_settings(path: Path | None, *, known_limits: Mapping[str, Mapping[str, float]]) -> Settings:
    """Read `path`, or `./ptt.toml` where there is one; `known_limits` are the rules' own, by rule and name."""
    path, document = read_document(path)
    return _settings(document, path, known_limits)


def read_document(path: Path | None) -> tuple[Path, dict[str, Any]]:
    """Read `path`, or `./ptt.toml` where there is one: where it lies, and what it holds (nothing without a file)."""
    if path is None:
        path = Path(FILE_NAME)
        if not path.is_file():
            return path, {}
    try:
        if path.stat().st_size > MOST_BYTES:
            raise SettingsError(f"{path}: is larger than {MOST_BYTES >> 20} MiB; a settings file is a page of text.")
        return path, tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise SettingsError(f"{path}: there is no such settings file.") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise SettingsError(f"{path}: cannot be read as TOML: {error}.") from error


def _settings(document: dict[str, Any], path: Path, known: Mapping[str, Mapping[str, float]]) -> Settings:
    _only(document, {"diagnose", "gate", "slices", "limits"}, f"{path}")  # [gate] is read by gate/reading.py
    diagnose = _table(document, "diagnose", path)
    _only(diagnose, {"fail_on", "keep_text", "rules"}, f"{path}: [diagnose]")
    slices = _table(document, "slices", path)
    _only(slices, {"min_observation"}, f"{path}: [slices]")
    shortest = slices.get("min_observation", Settings.min_observation)
    if not isinstance(shortest, int) or isinstance(shortest, bool) or shortest < 1:
        raise SettingsError(f"{path}: slices.min_observation must be a whole number of tokens, 1 or more.")
    keep_text = diagnose.get("keep_text", False)
    if not isinstance(keep_text, bool):
        raise SettingsError(f"{path}: diagnose.keep_text must be true or false.")
    return Settings(
        min_observation=shortest,
        keep_text=keep_text,
        rules=_rules(diagnose.get("rules", []), path),
        fail_on=_severity(diagnose.get("fail_on", "never"), path),
        limits=_limits(_table(document, "limits", path), path, known),
    )


def _rules(value: object, path: Path) -> tuple[Path, ...]:
    """Give the places of custom rules, which are written as seen from the settings file."""
    if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
        raise SettingsError(f"{path}: diagnose.rules must be a list of files and folders.")
    return tuple(path.parent / name for name in value)


def _severity(value: object, path: Path) -> Severity | None:
    if value == "never":
        return None
    try:
        return Severity(str(value))
    except ValueError as error:
        names = ", ".join(["never", *Severity])
        raise SettingsError(f"{path}: diagnose.fail_on is {value!r}; it can be {names}.") from error


def _limits(table: dict[str, Any], path: Path, known: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    _only(table, set(known), f"{path}: [limits]")
    limits: dict[str, dict[str, float]] = {}
    for rule in table:
        names = _table(table, rule, path)
        _only(names, set(known[rule]), f"{path}: [limits.{rule}]")
        for name, value in names.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < float("inf"):
                raise SettingsError(f"{path}: limits.{rule}.{name} must be a finite number.")
            limits.setdefault(rule, {})[name] = float(value)
    return limits


def _table(document: dict[str, Any], key: str, path: Path) -> dict[str, Any]:
    value = document.get(key, {})
    if not isinstance(value, dict):
        raise SettingsError(f"{path}: {key} must be a table.")
    return value


def _only(table: dict[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(set(table) - known)
    if unknown:
        raise SettingsError(f"{where}: unknown key {unknown[0]!r}; known are: {', '.join(sorted(known)) or 'none'}.")
