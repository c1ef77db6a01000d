"""Runs of words, hashed: to find completions that are nearly equal, and texts that an evaluation set holds too."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl

from ptt.diagnostics.errors import InputError

Grams = npt.NDArray[np.uint64]

WORD: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_]+")  # a sign of Chinese or Japanese is a word
FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)  # odd, of the golden ratio: spreads sums over all bits
OVERLAP_WORDS: Final = 13  # of Brown et al., Language Models are Few-Shot Learners, appendix C
MIN_WORDS: Final = 5  # a text of fewer words is shared by chance; one of fewer than 13 counts as a whole
MAX_GRAMS: Final = 8_000_000  # of an evaluation set, 64 MB; beyond it every second, fourth, ... is kept, by its hash
BOILERPLATE_ITEMS: Final = 20  # with as many items, a run of words in
BOILERPLATE_SHARE: Final = 0.05  # so large a share of them is their common instruction, no leaked item
SUFFIXES: Final = (".jsonl", ".json", ".parquet", ".csv", ".txt", ".md")


def gram_set(texts: Iterable[str], size: int) -> Grams:
    """Return the distinct hashed runs of `size` words; a shorter text is a single run of all its words."""
    found = [_grams(words, size) for text in texts if (words := WORD.findall(text.lower()))]
    return np.unique(np.concatenate(found)) if found else np.zeros(0, np.uint64)


def jaccard(one: Grams, other: Grams) -> float:
    """Return the share of runs that two sets have in common."""
    small, large = sorted((len(one), len(other)))
    if not large or small == 0:
        return float(large == small)
    common = len(np.intersect1d(one, other, assume_unique=True))
    return common / (small + large - common)


def _grams(words: list[str], size: int) -> Grams:
    hashes = np.fromiter((zlib.crc32(word.encode("utf-8", "replace")) for word in words), np.uint64, len(words))
    size = min(size, len(words))
    count = len(words) - size + 1
    grams = np.zeros(count, np.uint64)
    for place in range(size):
        grams = (grams + hashes[place : place + count] + np.uint64(1)) * FACTOR
        grams ^= grams >> np.uint64(29)
    return grams


class EvalSet:
    """Runs of 13 words of an evaluation set, and how much of a text stands there too."""

    def __init__(self, paths: Iterable[Path]) -> None:
        """Read the texts of all files; InputError for what cannot be read."""
        self.items = 0
        self.stride = 1
        kept: list[Grams] = []
        held = 0
        for item in (item for path in paths for item in _items(path)):
            grams = _long_enough(item)
            self.items += 1
            grams = grams[grams % np.uint64(self.stride) == 0]
            kept.append(grams)
            held += len(grams)
            if held > 2 * MAX_GRAMS:
                kept = [self._thinned(kept)]
                held = len(kept[0])
        self._grams = self._distinct(kept)
        if not self.items:
            raise InputError(f"{', '.join(map(str, paths))}: no text found for --eval-set.")

    def overlap(self, texts: Iterable[str]) -> float:
        """Return the share of a text's runs of words that the set holds; 0 for one too short to tell."""
        grams = _long_enough(texts)
        grams = grams[grams % np.uint64(self.stride) == 0]
        return float(np.isin(grams, self._grams, assume_unique=True).mean()) if len(grams) else 0.0

    def _thinned(self, kept: list[Grams]) -> Grams:
        grams: Grams = np.concatenate(kept)
        self.stride *= 2
        thinned: Grams = grams[grams % np.uint64(self.stride) == 0]
        return thinned

    def _distinct(self, kept: list[Grams]) -> Grams:
        every: Grams = np.concatenate(kept) if kept else np.zeros(0, np.uint64)
        grams: Grams
        grams, items = np.unique(every, return_counts=True)
        if self.items < BOILERPLATE_ITEMS:
            return grams
        return grams[items <= max(1.0, BOILERPLATE_SHARE * self.items)]


def _long_enough(texts: Iterable[str]) -> Grams:
    return gram_set((text for text in texts if len(WORD.findall(text)) >= MIN_WORDS), OVERLAP_WORDS)


def _items(path: Path) -> Iterator[list[str]]:
    """Yield the texts of each item: of a line, a row, an object of a list, or the whole of a text file."""
    if path.is_dir():
        for part in sorted(path.rglob("*")):
            if part.suffix in SUFFIXES and part.is_file():
                yield from _items(part)
        return
    try:
        match path.suffix:
            case ".jsonl":
                with path.open("rb") as lines:
                    yield from (_texts(msgspec.json.decode(line)) for line in lines if line.strip())
            case ".json":
                found = msgspec.json.decode(path.read_bytes())
                yield from map(_texts, found if isinstance(found, list) else [found])
            case ".parquet":
                yield from (_texts(row) for row in pl.read_parquet(path).iter_rows(named=True))
            case ".csv":
                yield from (_texts(row) for row in pl.read_csv(path, infer_schema=False).iter_rows(named=True))
            case _:
                yield [path.read_text(encoding="utf-8", errors="replace")]
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error} while reading --eval-set.") from error
    except (msgspec.DecodeError, UnicodeDecodeError, pl.exceptions.PolarsError) as error:
        raise InputError(f"{path}: --eval-set cannot be read: {error}") from error


def _texts(found: Any) -> list[str]:
    """Return all texts in a value, but those of the system's messages: instructions are shared by intent."""
    if isinstance(found, str):
        return [found]
    if isinstance(found, dict):
        if found.get("role") in ("system", "developer"):
            return []
        return [text for value in found.values() for text in _texts(value)]
    if isinstance(found, list | tuple):
        return [text for value in found for text in _texts(value)]
    return []
