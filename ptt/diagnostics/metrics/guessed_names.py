"""A cautious reading of names that no framework is known to log: by their words, and only where each is explained."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from typing import Final

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.metrics.aliases import CACHED_NAMES, canonical
from ptt.diagnostics.metrics.catalogue import document, metrics
from ptt.diagnostics.metrics.name_words import ASIDE, NOT_A_LEVEL

MAX_CHARS: Final = 80  # a longer name is a sentence
NAME: Final = re.compile(r"[^\W_][\w ./:|@-]*")  # another sign, as in `loss(%)` or `lr*1e3`, changes the figure
WORD: Final = re.compile(r"[^\W\d_]+|\d+")
CAMEL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
COLUMN_OF_LOSSES: Final = "losses"  # ends the name of a list, as in `val_losses`; in `losses/kl` it tells nothing
HELD_OUT: Final = re.compile(r"(?i)held[ _-]out|hold[ _-]out")
READING: Final = re.compile(r"([^(]+?)(?: \((.+?)\))?(?: unless (.+?))?(?: beside (.+))?")
EVALUATION: Final = "eval"  # the word that all words of evaluation are read as
TEST: Final = "test"  # the word of evaluation that unit tests share
TAG_PARTS: Final = 2  # of a path: a data set or an environment, and what is logged of it


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Words that name a metric: all of `needed`, and any of `allowed` beside them."""

    name: str
    needed: frozenset[str]
    allowed: frozenset[str]
    alone: bool = False  # whether it counts only where nothing else in the run is that metric
    unless: frozenset[str] = frozenset()  # names, canonical or as spelt, beside which it means something else
    beside: frozenset[str] = frozenset()  # at least one of these must be logged too
    tag: str = ""  # what the name holds besides: a data set or an environment

    @property
    def by(self) -> str:
        """The words, as a note gives them."""
        return " ".join(sorted(self.needed))


@dataclass(frozen=True)
class _Words:
    """What metrics.toml says of words."""

    aside: frozenset[str]
    spaces: frozenset[str]
    training: frozenset[str]
    same: dict[str, tuple[str, ...]]  # as written -> as read
    readings: Mapping[str, tuple[Reading, ...]]  # by one of the words that each needs
    changes: frozenset[str]
    known: frozenset[str]  # every word that says something of a figure
    no_evaluation: frozenset[str]
    quantities: frozenset[str]


@cache
def _words() -> _Words:
    data = document()["words"]
    same: dict[str, tuple[str, ...]] = {word: (read,) for read, words in data["same"].items() for word in words}
    same |= {word: tuple(same.get(part, (part,))[0] for part in read.split()) for word, read in data["joined"].items()}
    same |= dict.fromkeys(data["evaluation"], (EVALUATION,))
    by_word: dict[str, list[Reading]] = defaultdict(list)
    for reading in _readings(same):
        by_word[max(reading.needed, key=lambda word: (word not in COMMON, word))].append(reading)
    meant = {word for readings in by_word.values() for reading in readings for word in reading.needed | reading.allowed}
    changes = _as_read(data["changes"], same) | _as_read(NOT_A_LEVEL, same) | _as_read(ASIDE, same)
    return _Words(
        aside=_as_read(data["aside"], same),
        spaces=frozenset(data["spaces"]),
        training=frozenset(data["training"]),
        same=same,
        readings={word: tuple(readings) for word, readings in by_word.items()},
        changes=changes,
        known=frozenset({*meant, *changes, *same, *data["aside"], *data["spaces"]}),
        no_evaluation=frozenset(data["no_evaluation"]),
        quantities=_as_read(data["quantities"], same),
    )


COMMON: Final = frozenset({"mean", "loss", "reward", "frac", EVALUATION, "token", "length", "std"})
"""Words that many readings need: they are looked up by another one."""


def _readings(same: dict[str, tuple[str, ...]]) -> Iterator[Reading]:
    for name, metric in metrics().items():
        for reads, alone in [*((text, False) for text in metric.reads), *((text, True) for text in metric.reads_alone)]:
            match = READING.fullmatch(reads)
            if match is None or ((match[3] or match[4]) and not alone):
                raise ValueError(
                    f"metrics.toml: {name} reads {reads!r}; write the words it needs, then others in parentheses"
                )
            needed, allowed = (_as_read((part or "").split(), same) for part in match.groups()[:2])
            unless, beside = (frozenset((part or "").split()) for part in match.groups()[2:])
            yield Reading(name=name, needed=needed, allowed=allowed, alone=alone, unless=unless, beside=beside)


def _as_read(words: Collection[str], same: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    return frozenset(read for word in words for read in same.get(word, (word,)))


@lru_cache(maxsize=CACHED_NAMES)
def guess(raw: str) -> str | None:
    """Return the one metric that the words of a name tell; None where a word is left over, or an alias fits."""
    return next((reading.name for reading in read_words(raw) if not (reading.alone or reading.tag)), None)


@lru_cache(maxsize=CACHED_NAMES)
def read_words(raw: str) -> tuple[Reading, ...]:
    """Return the readings of a name: the plain one, else those that hold alone, else the one of a data set."""
    if len(raw) > MAX_CHARS or not NAME.fullmatch(raw) or canonical(raw) is not None:
        return ()
    known, (space, _, rest) = _words(), raw.partition("/")
    spelt = spelt_words(rest if space.lower() in known.spaces else raw)
    if spelt and spelt[-1] == COLUMN_OF_LOSSES:
        spelt = (*spelt[:-1], "loss")
    read = _as_read(spelt, known.same)
    if EVALUATION in read and not known.training.isdisjoint(spelt):
        return ()
    told = read - known.aside
    return _explained(told) or _tagged(raw, spelt, told)


def _explained(told: frozenset[str]) -> tuple[Reading, ...]:
    """Return the reading that explains all words, else those that may; none where two metrics do."""
    fitting = [
        reading
        for word in told
        for reading in _words().readings.get(word, ())
        if reading.needed <= told and told <= reading.needed | reading.allowed
    ]
    plain = {reading.name: reading for reading in fitting if not reading.alone}
    if plain:
        return tuple(plain.values()) if len(plain) == 1 else ()
    return tuple({reading.name: reading for reading in fitting}.values())


def _tagged(raw: str, spelt: tuple[str, ...], told: frozenset[str]) -> tuple[Reading, ...]:
    """Return the readings of a name that holds a data set's besides: anywhere in an evaluation's, else before a slash.

    What is no word of any figure is taken for the data set.
    """
    known = _words()
    if EVALUATION in told:
        tag = frozenset(word for word in told if word not in known.known)
    elif len(parts := raw.split("/")) == TAG_PARTS:
        tag = frozenset(spelt_words(parts[0]))
        if tag & known.known:
            return ()
    else:
        return ()
    rest = told - tag
    if not tag or (EVALUATION in rest and not is_evaluation(raw)):
        return ()
    named = " ".join(dict.fromkeys(word for word in spelt if word in tag))
    return tuple(replace(reading, tag=named) for reading in _explained(rest))


@lru_cache(maxsize=CACHED_NAMES)
def is_evaluation(raw: str) -> bool:
    """Return whether the words of a name say that it is a level of something, measured in an evaluation."""
    known, spelt = _words(), spelt_words(raw)
    read = _as_read(spelt, known.same)
    if EVALUATION not in read or not known.training.isdisjoint(spelt) or not read & known.quantities:
        return False
    if not known.no_evaluation.isdisjoint(spelt) and set(spelt) & set(document()["words"]["evaluation"]) <= {
        TEST,
        "dev",
    }:
        return False
    return not (read - known.quantities) & known.changes


@lru_cache(maxsize=CACHED_NAMES)
def spelt_words(name: str) -> tuple[str, ...]:
    """Return the words of a name in their order, in small letters and without accents; numbers are words."""
    plain = "".join(sign for sign in unicodedata.normalize("NFKD", name) if not unicodedata.combining(sign))
    return tuple(WORD.findall(HELD_OUT.sub("heldout", CAMEL.sub("_", plain)).lower()))


def told_by(raw: str) -> str | None:
    """Return the metric that a name stands for, by the alias table or else by its words."""
    return canonical(raw) or guess(raw)


SHORT: Final = {
    "gn": "grad norm", "grad": "grad norm", "g": "grad norm", "len": "response length", "lens": "response length",
    "length": "response length", "r": "reward", "R": "reward", "rwd": "reward", "L": "loss", "h": "entropy",
    "H": "entropy", "entr": "entropy", "pg": "policy loss", "pgloss": "policy loss", "vloss": "value loss",
    "piloss": "policy loss", "cf": "clip frac", "clip": "clip frac", "clipped": "clip frac",
    "ret": "reward", "return": "reward", "returns": "reward",
}  # fmt: skip
"""What people shorten metrics to where they print them themselves: too short to tell one in any log."""
SHORT_PART: Final = re.compile(r"[^\W_]+")


def written_out(name: str) -> str:
    """Return a short name with its words written out, if it then tells a metric and did not before; else as it is."""
    if told_by(name) is not None:
        return name
    parts = SHORT_PART.findall(CAMEL.sub("_", name))
    written = " ".join(SHORT.get(part, SHORT.get(part.lower(), part)) for part in parts)
    return written if told_by(written) is not None else name


def changes_meaning(word: str) -> bool:
    """Return whether a name with this word besides may be another quantity than without it."""
    known = _words()
    told = _as_read(spelt_words(word), known.same) - known.aside
    return not (told & known.known).isdisjoint(known.known - known.training)


def near_names(raw: str) -> list[str]:
    """Return the metrics that a name may mean: the one it is an alias of, and those whose words it holds."""
    if not NAME.fullmatch(raw):
        return []
    known, read = _words(), _as_read(spelt_words(raw), _words().same)
    fitting = [
        reading
        for readings in known.readings.values()
        for reading in readings
        if not reading.alone and reading.needed <= read
    ]
    most = max((len(reading.needed) for reading in fitting), default=0)
    order = list(metrics())
    by_words = sorted({reading.name for reading in fitting if len(reading.needed) == most}, key=order.index)
    told = filter(None, [canonical(raw), told_by(SHORT.get(raw, ""))])
    return list(dict.fromkeys([*told, *by_words]))


def is_denied(name: str, logged: Collection[str]) -> bool:
    """Return whether a name that is logged, canonical or raw, says that words do not tell this metric here."""
    return not set(document()["words"]["not_beside"].get(name, ())).isdisjoint(logged)
