"""Merge the settings that the files of a run state, the better source first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

MAX_FACT: Final = 2**64  # seeds are drawn from 64 bits; a longer integer converts to no number
Facts = dict[str, str | int | float | bool | None]


@dataclass
class RunFacts:
    """The settings that the files read so far state, each file's with the rank of its source."""

    _stated: list[tuple[tuple[int, float], Facts]] = field(default_factory=list)

    def add(self, facts: Mapping[str, str | float | bool | None], priority: int) -> list[str]:
        """Add what one file states; return the names of the values that no file can hold."""
        kept: Facts = {key: fact for key, value in facts.items() if (fact := _storable(value)) is not None}
        step = kept.get("global_step")
        self._stated.append(((priority, -float(step) if isinstance(step, int | float) else 0.0), kept))
        return sorted(key for key, value in facts.items() if value is not None and key not in kept)

    def merged(self) -> Facts:
        """Return what the files state of the run; on conflict the better source, and the later checkpoint, wins."""
        merged: Facts = {}
        for _, facts in sorted(self._stated, key=lambda ranked: ranked[0], reverse=True):
            merged.update({key: value for key, value in facts.items() if _is_setting(key, value)})
        return merged


def _is_setting(key: str, value: object) -> bool:
    """Return whether a fact says something; trainers write -1 for a number of steps that follows from the epochs."""
    return value is not None and not (key == "max_steps" and isinstance(value, int | float) and value <= 0)


def _storable(value: str | float | bool | None) -> str | int | float | bool | None:
    """Return a fact as any file can hold it; None for a number that is no setting of any run."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, int) and not isinstance(value, bool):
        return value if abs(value) < MAX_FACT else None
    return value
