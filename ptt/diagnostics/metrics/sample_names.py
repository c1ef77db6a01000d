"""How counters of samples are spelt: totals of the run, counts of prompt groups, parts by cause or environment."""

from __future__ import annotations

import re
from functools import cache
from typing import Final, Literal

from ptt.diagnostics.metrics.aliases import bare_name, canonical, spelling_pattern
from ptt.diagnostics.metrics.catalogue import document

Part = Literal["causes", "environments"]
CALLED: Final[dict[Part, str]] = {"causes": "cause", "environments": "environment"}


def is_total(raw: str) -> bool:
    """Return whether a counter runs over the whole run."""
    return _listed("totals", raw)


def counts_groups(raw: str) -> bool:
    """Return whether a counter counts prompt groups, not samples."""
    return _listed("groups", raw)


def is_sparse(raw: str) -> bool:
    """Return whether a counter is not logged where it is 0."""
    return _listed("sparse", raw)


def part_of(raw: str, part: Part) -> tuple[str, str] | None:
    """Return the canonical name, and the cause or environment, of a spelling that counts one alone; None of others.

    The part is the last segment that a pattern leaves open.
    """
    if canonical(raw) is not None:
        return None
    for name, pattern in _patterns(part):
        if match := pattern.fullmatch(raw) or pattern.fullmatch(bare_name(raw)):
            return name, match.groups()[-1]
    return None


def told_part(raw: str) -> tuple[str, str] | None:
    """Return the canonical name of a part, and what prose calls it; None of what is none."""
    for part, word in CALLED.items():
        if found := part_of(raw, part):
            return found[0], f"of one {word}"
    return None


@cache
def _patterns(part: Part) -> tuple[tuple[str, re.Pattern[str]], ...]:
    named = document()["samples"][part]
    return tuple((name, spelling_pattern(raw)) for name, raws in named.items() for raw in raws)


@cache
def _spellings(kind: str) -> tuple[re.Pattern[str], ...]:
    return tuple(map(spelling_pattern, document()["samples"][kind]))


def _listed(kind: str, raw: str) -> bool:
    bare = bare_name(raw)
    return any(pattern.fullmatch(raw) or pattern.fullmatch(bare) for pattern in _spellings(kind))
