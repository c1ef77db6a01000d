"""Knows which words are the program's own: whatever else stands in a sentence came out of somebody's run."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Final

from ptt.diagnostics.parsers import PARSERS
from ptt.reports.names import BY, GUARDS, METRICS, SIDES, SLICES

ROOMS: Final = (
    "answerable.py",
    "model.py",
    "schema.py",
    "deliverables",
    "evidence",
    "gathering",
    "judging",
    "rules",
    "statistics",
    "engines",
)
"""Whose texts can stand in a diagnosis: every sentence of one is put together from the literals of these."""
SHORTEST: Final = 4  # letters of a plural: below, too much is one
EDGES: Final = "()[]{}<>.,;:!?'\"`“”‘’«»…*|"
_NUMBER: Final = re.compile(
    r"[<>≤≥~≈±+−-]*[×x]?[0-9]{1,9}(?:[,\u202f\u2009][0-9]{3})*(?:\.[0-9]{1,12})?(?:e[+−-]?[0-9]{1,3})?"
    r"(?:%|‰|x|×|k|M|s|ms|h|min|B|[KMG]i?B)?"
)
_POWER: Final = re.compile(r"[0-9]*[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_SPLIT: Final = re.compile(r"^(?:train|eval|val|test)[/_]")  # before the name of a metric
_SIGNS: Final = re.compile(r"[!-/:-@\[-`{-~…–—−→←≤≥×±·≈“”‘’«»≠∞]+")  # no emoji: a name may be one


@dataclass(frozen=True)
class Vocabulary:
    """The program's own words, and its texts as they stand, to look up what is quoted."""

    words: frozenset[str]
    text: str

    def knows(self, word: str) -> bool:
        """Tell whether this is a word of ours, whatever its first letter's case, in capitals, or the plural of one."""
        small = _SPLIT.sub("", word[:1].lower() + word[1:])
        return not self.words.isdisjoint(
            (
                word,
                small,
                small.removesuffix("s") if len(small) > SHORTEST else small,
                word.lower() if word.isupper() else word,
            )
        )

    def harmless(self, word: str) -> bool:
        """Tell whether this is a number, a sign, a word of ours, or a number joined to one."""
        if is_number(word) or _SIGNS.fullmatch(word) or self.knows(word):
            return True
        parts = re.split(r"[-@–→]", word)
        rest = [part for part in parts if part and not is_number(part)]
        return len(rest) == 1 and len(parts) > 1 and self.knows(rest[0])


def is_number(word: str) -> bool:
    """Tell whether this is a number with its unit; addresses, dates, times since 1970 and long ids are none."""
    return bool(_NUMBER.fullmatch(word) or _POWER.fullmatch(word))


@cache
def vocabulary() -> Vocabulary:
    """Collect the words from the program's own literals; where its sources are not at hand, no word is known."""
    home = files("ptt.diagnostics")
    texts = [parser.name for parser in PARSERS]
    texts += [*GUARDS, *BY, *SLICES, *METRICS]
    texts += [f"{above}/{below}" for above in SIDES for below in SIDES]
    for room in ROOMS:
        for source in _sources(home.joinpath(room)):
            texts += [source.name, *_literals(source.read_bytes())]
    for table in (*_tables(home.joinpath("parsers")), *_tables(home.joinpath("judging"))):
        texts += _strings(tomllib.loads(table.read_text(encoding="utf-8")))
    words = {piece for text in texts for word in text.split() for piece in (word, word.strip(EDGES)) if piece}
    return Vocabulary(frozenset(words), "\n".join(texts))


def _sources(place: Traversable) -> Iterator[Traversable]:
    if place.is_file():
        yield place
    elif place.is_dir():
        for inner in sorted(place.iterdir(), key=lambda item: item.name):
            if inner.is_dir() or inner.name.endswith(".py"):
                yield from _sources(inner)


def _tables(place: Traversable) -> Iterator[Traversable]:
    return (item for item in sorted(place.iterdir(), key=lambda item: item.name) if item.name.endswith(".toml"))


def _literals(source: bytes) -> Iterator[str]:
    """Give the literals of a module, the fixed parts of f-strings and names of evidence among them; no docstrings."""
    tree = ast.parse(source)
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.value
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.arg


def _strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for key, item in value.items():
                yield key
                yield from _strings(item)
        case list():
            for item in value:
                yield from _strings(item)
