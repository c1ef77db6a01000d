"""Limits of the length of answers that settings write, for training and for evaluations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from ptt.diagnostics.model import JsonScalar

LIMITS: Final = re.compile(
    r"(?:max_generate_length|max_tokens|max_new_tokens|max_response_length|max_completion_length|max_output_tokens)$"
)
JUDGES: Final = re.compile(r"(?i)(?:^|[._])(?:\w*judge\w*|grader|verifier|reward_model)[._]")
EVALUATION: Final = re.compile(r"(?:^|[._])(?:eval|val|validation|test)\w*[._]")
LONGEST: Final = re.compile(r"(?i)(?:tokens|length).*max|max.*(?:tokens|length)")
"""Metrics of the longest answer of a step."""
HALF: Final = 0.5  # of training's limit: less is no rounding of a power of two


def evaluation_limit(settings: Mapping[str, JsonScalar]) -> tuple[str, float, float] | None:
    """Return how an evaluation's length limit is written, and both limits, where it is at most half of training's."""
    evaluated = list(length_limits(settings, evaluation=True))
    for key, limit in evaluated:
        ending = key.rpartition(".")[2]
        trained = max(
            (found for name, found in length_limits(settings, evaluation=False) if name.endswith(ending)), default=0
        )
        if 0 < limit <= HALF * trained:
            return key, limit, float(trained)
    return None


def length_limits(settings: Mapping[str, JsonScalar], *, evaluation: bool) -> Iterator[tuple[str, float]]:
    """Yield the limits of answers of either, by the setting; not those of judges."""
    for key, value in settings.items():
        number = as_limit(value)
        if number is None or number <= 0 or not LIMITS.search(key) or JUDGES.search(key):
            continue
        if bool(EVALUATION.search(key)) is evaluation:
            yield key, number


def as_limit(value: JsonScalar) -> float | None:
    """Return a setting that is a number."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
