"""Makes text from a run's files harmless to show: nothing in it may steer a terminal or a page."""

from __future__ import annotations

import unicodedata

# Cc steers terminals, Cf (marks for text direction, zero width) hides or reorders text, Cs cannot be encoded,
# Zl and Zp break lines; all are shown by their number instead.
_SHOWN_BY_NUMBER = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
LONGEST = 600  # letters: paths and sentences are shorter, a line of a log that strayed in is not
_SPACES = frozenset("\t\n\r")


def safe(text: str, *, longest: int = LONGEST) -> str:
    """Show control, direction and unencodable characters by their number; cut what fills a page by itself."""
    text = shortened(text, longest)
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_shown, text))


def shortened(text: str, limit: int) -> str:
    """Cut a long text in its middle, where names of files and runs differ least."""
    if len(text) <= limit:
        return text
    head = (limit - 1) * 2 // 3
    return f"{text[:head]}…{text[len(text) - (limit - 1 - head) :]}"


def encodable(text: str) -> str:
    """Replace lone surrogates, which no UTF-8 file can hold, by their number."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _shown(character: str) -> str:
    if character in _SPACES:
        return " "
    if unicodedata.category(character) not in _SHOWN_BY_NUMBER:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
