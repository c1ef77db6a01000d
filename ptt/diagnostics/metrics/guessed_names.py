"""A cautious reading of names that no framework is known to log: by their words, and only where each is explained."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final

from ptt.diagnostics.metrics.aliases import CACHED_NAMES, canonical
from ptt.diagnostics.metrics.catalogue import document, metrics

MAX_CHARS: Final = 80  # a longer name is a sentence
NAME: Final = re.compile(r"[^\W_][\w ./:|-]*")  # another sign, as in `loss(%)` or `lr*1e3`, changes the figure
WORD: Final = re.compile(r"[^\W\d_]+|\d+")
CAMEL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
COLUMN_OF_LOSSES: Final = "losses"  # ends the name of a list, as in `val_losses`; in `losses/kl` it tells nothing
READING: Final = re.compile(r"([^(]+?)(?: \((.+)\))?")
EVALUATION: Final = "eval"  # the word that all words of evaluation are read as


@dataclass(frozen=True)
class _Reading:
    """Words that name a metric: all of `needed`, and any of `allowed` beside them."""

    name: str
    needed: frozenset[str]
    allowed: frozenset[str]


@dataclass(frozen=True)
class _Words:
    """What metrics.toml says of words."""

    aside: frozenset[str]
    spaces: frozenset[str]
    training: frozenset[str]
    same: dict[str, tuple[str, ...]]  # as written -> as read
    readings: tuple[_Reading, ...]


@cache
def _words() -> _Words:
    data = document()["words"]
    same: dict[str, tuple[str, ...]] = {word: (read,) for read, words in data["same"].items() for word in words}
    same |= {word: tuple(same.get(part, (part,))[0] for part in read.split()) for word, read in data["joined"].items()}
    same |= dict.fromkeys(data["evaluation"], (EVALUATION,))
    return _Words(
        aside=frozenset(data["aside"]),
        spaces=frozenset(data["spaces"]),
        training=frozenset(data["training"]),
        same=same,
        readings=tuple(_reading(name, reads, same) for name, metric in metrics().items() for reads in metric.reads),
    )


def _reading(name: str, reads: str, same: dict[str, tuple[str, ...]]) -> _Reading:
    match = READING.fullmatch(reads)
    if match is None:
        raise ValueError(f"metrics.toml: {name} reads {reads!r}; write the words it needs, then others in parentheses")
    needed, allowed = (_as_read((part or "").split(), same) for part in match.groups())
    return _Reading(name, needed, allowed)


def _as_read(words: Collection[str], same: dict[str, tuple[str, ...]]) -> frozenset[str]:
    return frozenset(read for word in words for read in same.get(word, (word,)))


@lru_cache(maxsize=CACHED_NAMES)
def guess(raw: str) -> str | None:
    """Return the one metric that the words of a name tell; None where a word is left over, or an alias fits."""
    if len(raw) > MAX_CHARS or not NAME.fullmatch(raw) or canonical(raw) is not None:
        return None
    known, (space, _, rest) = _words(), raw.partition("/")
    spelt = spelt_words(rest if space.lower() in known.spaces else raw)
    if spelt and spelt[-1] == COLUMN_OF_LOSSES:
        spelt = (*spelt[:-1], "loss")
    read = _as_read(spelt, known.same)
    if EVALUATION in read and not known.training.isdisjoint(spelt):
        return None
    told = read - known.aside
    fitting = {
        reading.name
        for reading in known.readings
        if reading.needed <= told and told <= reading.needed | reading.allowed
    }
    return fitting.pop() if len(fitting) == 1 else None


def spelt_words(name: str) -> tuple[str, ...]:
    """Return the words of a name in their order, in small letters and without accents; numbers are words."""
    plain = "".join(sign for sign in unicodedata.normalize("NFKD", name) if not unicodedata.combining(sign))
    return tuple(WORD.findall(CAMEL.sub("_", plain).lower()))


def told_by(raw: str) -> str | None:
    """Return the metric that a name stands for, by the alias table or else by its words."""
    return canonical(raw) or guess(raw)


def near_names(raw: str) -> list[str]:
    """Return the metrics that a name may mean: the one it is an alias of, and those whose words it holds."""
    if not NAME.fullmatch(raw):
        return []
    known, read = _words(), _as_read(spelt_words(raw), _words().same)
    fitting = [reading for reading in known.readings if reading.needed <= read]
    most = max((len(reading.needed) for reading in fitting), default=0)
    by_words = (reading.name for reading in fitting if len(reading.needed) == most)
    return list(dict.fromkeys([*filter(None, [canonical(raw)]), *by_words]))


def is_denied(name: str, logged: Collection[str]) -> bool:
    """Return whether a name that is logged, canonical or raw, says that words do not tell this metric here."""
    return not set(document()["words"]["not_beside"].get(name, ())).isdisjoint(logged)
