"""Lists of words that the scrubber goes by, from `words.toml`."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources


def words(name: str) -> frozenset[str]:
    """Return one list."""
    return frozenset(_lists()[name].split())


@cache
def _lists() -> dict[str, str]:
    return tomllib.loads(resources.files(__package__).joinpath("words.toml").read_text(encoding="utf-8"))
