"""Short keyed hashes that stand for names: equal for equal names, and of no use to who does not have the key."""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Final

DIGITS: Final = 8  # hexadecimal: two of ten thousand names fall together in one report of a hundred
_MADE: Final = re.compile(rf"[a-z:]+-[0-9a-f]{{{DIGITS}}}(?:\.[a-z]+)?")


class Hasher:
    """Gives hashes under one key."""

    def __init__(self, salt: str) -> None:
        self._key = hashlib.sha256(salt.encode("utf-8", "surrogatepass")).digest()
        self._given: set[str] = set()

    def name(self, prefix: str, text: str) -> str:
        """Give what stands for a name; the prefix says what it was, and the digits depend on the name alone."""
        digits = hmac.new(self._key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:DIGITS]
        self._given.add(digits)
        return f"{prefix}-{digits}"

    def made(self, word: str) -> bool:
        """Tell whether a word is one that was given here."""
        return bool(_MADE.fullmatch(word)) and word.rsplit("-", 1)[1].split(".")[0] in self._given

    @staticmethod
    def digest(*texts: str) -> str:
        """Give one text for several, which none of them can be told from."""
        return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()
