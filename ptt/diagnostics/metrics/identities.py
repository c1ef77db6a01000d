"""What must hold between metrics of one run, read once from identities.toml, whose head explains the fields."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from importlib import resources
from typing import Any

from ptt.diagnostics.definitions import dataclass

Names = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A total, and the parts whose weighted sum it is: names, or one pattern."""

    total: str
    parts: str | list[str]
    needs: str = ""  # the part without which the others say nothing


@dataclass(frozen=True, kw_only=True)
class Identity:
    """One row of identities.toml."""

    id: str
    group: str
    says: str
    severity: str
    claim: str
    causes: Names
    next: Names
    source: str
    relations: Names = ()  # as statistics.relations reads them
    metrics: Mapping[str, list[str]] = field(default_factory=dict)
    each: Names = ()
    stems: tuple[Mapping[str, str], ...] = ()
    ladder: Names = ()
    fits: tuple[Fit, ...] = ()
    schedule: str = ""
    figures: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, list[Any]] = field(default_factory=dict)
    framework: Names = ()
    given: Mapping[str, list[str]] = field(default_factory=dict)
    given_if_known: Mapping[str, list[str]] = field(default_factory=dict)
    unless: Mapping[str, list[str]] = field(default_factory=dict)
    below: Mapping[str, str] = field(default_factory=dict)
    absent: Names = ()
    exact: Names = ()
    absolute: float = 0.0
    relative: float = 0.0
    at_once: float | None = None
    any_cadence: bool = False
    one_sign: bool = False  # a gap now above, now below 0 is of means over different batches, and low

    @property
    def names(self) -> Names:
        """The metrics that it is about, as the file names them."""
        fits = [
            name
            for fit in self.fits
            for name in (fit.total, *([fit.parts] if isinstance(fit.parts, str) else fit.parts))
        ]
        stems = [f"*{ending}" for stem in self.stems for ending in stem.values()]
        listed = [name for names in self.metrics.values() for name in names]
        rates = ["lr"] if self.schedule else []
        return tuple(
            dict.fromkeys([*self.each, *listed, *stems, *(f"*{text}*" for text in self.ladder), *fits, *rates])
        )


@cache
def identities() -> Mapping[str, Identity]:
    """Return every identity, in the order of the file."""
    text = resources.files(__package__).joinpath("identities.toml").read_text("utf-8")
    return {name: _identity(name, row) for name, row in tomllib.loads(text)["identities"].items()}


def _identity(name: str, row: dict[str, Any]) -> Identity:
    relations = row.pop("relation", [])
    stems, fits = tuple(row.pop("stems", ())), tuple(Fit(**fit) for fit in row.pop("fits", ()))
    tuples = ("causes", "next", "each", "ladder", "framework", "absent", "exact")
    fields: dict[str, Any] = {key: tuple(value) if key in tuples else value for key, value in row.items()}
    return Identity(
        id=name,
        relations=(relations,) if isinstance(relations, str) else tuple(relations),
        stems=stems,
        fits=fits,
        **fields,
    )
