"""A run's own tokenizer.json, by which token ids become words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.documents import parse_json, read_at_most
from ptt.diagnostics.parsers.io.interface import RunFile

NAME: Final = "tokenizer.json"
MAX_BYTES: Final = 64 << 20  # the largest in use, of a vocabulary of 260,000 words, has 33 MB
MAX_TOKENS: Final = 4_000_000  # ids beyond it are no vocabulary's
MAX_LETTERS: Final = 200  # of one token: the longest in use are runs of 128 spaces
SPACE: Final = "\u2581"  # what SentencePiece writes for a space
BYTE: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")
REPLACEMENT: Final = "backslashreplace"


@dataclass(frozen=True, kw_only=True)
class Tokenizer:
    """The words of a tokenizer by id, and the file they are from."""

    file: str
    words: Mapping[int, str]
    bytelevel: bool

    def decode(self, ids: Iterable[int | None]) -> list[str | None]:
        """Return the text of each token; None for an id that the tokenizer does not have."""
        return [None if number is None else self._word(number) for number in ids]

    def _word(self, number: int) -> str | None:
        word = self.words.get(number)
        if word is None:
            return None
        word = word[:MAX_LETTERS]
        if self.bytelevel:
            table = _bytes_of_letters()
            if all(letter in table for letter in word):
                return bytes(table[letter] for letter in word).decode("utf-8", REPLACEMENT)
            return word
        if match := BYTE.fullmatch(word):
            return bytes([int(match[1], 16)]).decode("utf-8", REPLACEMENT)
        return word.replace(SPACE, " ")


def read_tokenizer(files: Sequence[RunFile]) -> tuple[Tokenizer | None, str]:
    """Read the tokenizer of a run, that nearest to its top; or None, and why."""
    named = [file for file in files if file.name == NAME]
    if not named:
        return None, f"the run has no {NAME}"
    file = min(named, key=lambda file: file.rel.count("/"))
    try:
        document = parse_json(read_at_most(file.path, MAX_BYTES), finite=False)
    except (OSError, ValueError) as error:
        return None, f"{file.rel} cannot be read ({str(error)[:MAX_LETTERS]})"
    words = _words(document) if isinstance(document, dict) else {}
    if not words:
        return None, f"{file.rel} has no vocabulary"
    bytelevel = any(_is_bytelevel(document.get(part)) for part in ("decoder", "pre_tokenizer"))
    return Tokenizer(file=file.rel, words=words, bytelevel=bytelevel), ""


def _words(document: Mapping[str, Any]) -> dict[int, str]:
    """Return the words by id: of BPE and WordPiece a table, of Unigram a list with scores; then added tokens."""
    model = document.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    pairs: list[tuple[Any, Any]] = []
    if isinstance(vocabulary, dict):
        pairs = [(number, word) for word, number in vocabulary.items()]
    elif isinstance(vocabulary, list):
        pairs = [(at, entry[0]) for at, entry in enumerate(vocabulary) if isinstance(entry, list) and entry]
    added = document.get("added_tokens")
    for entry in added if isinstance(added, list) else []:
        if isinstance(entry, dict):
            pairs.append((entry.get("id"), entry.get("content")))
    return {
        number: word
        for number, word in pairs
        if isinstance(number, int) and 0 <= number < MAX_TOKENS and isinstance(word, str)
    }


def _is_bytelevel(part: Any) -> bool:
    if not isinstance(part, dict):
        return False
    inner = [*_listed(part.get("decoders")), *_listed(part.get("pretokenizers"))]
    return part.get("type") == "ByteLevel" or any(
        isinstance(entry, dict) and entry.get("type") == "ByteLevel" for entry in inner
    )


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


@cache
def _bytes_of_letters() -> Mapping[str, int]:
    """Return which byte each letter of a byte-level vocabulary stands for, as GPT-2 chose them."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(plain)]
    return {chr(byte): byte for byte in plain} | {chr(256 + at): byte for at, byte in enumerate(others)}
