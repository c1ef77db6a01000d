"""Bounded reading of JSON documents: top-level members one by one, so that a torn file loses its torn part only."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from typing import Any, Final

from ptt.diagnostics.parsers.io.interface import Lost, RunFile
from ptt.diagnostics.parsers.io.lines import DECODER, count_halves, pieces, too_large_to_parse, well_formed

MAX_BYTES: Final = 512 << 20  # unpacked; the text has to be in memory
MAX_ITEMS: Final = 50_000_000  # a Python object takes 50 bytes and more: brackets and commas alone can fill a machine

PADDING: Final = " \t\r\n\0"  # behind a document; a disk that was full leaves zeros
MAX_TORN: Final = 1000  # unterminated documents to try: each attempt may scan the rest of the file
START: Final = re.compile(r"^[ \t]*[\[{]", re.MULTILINE)  # of a document that begins on a line of its own
GAP: Final = re.compile(r"[ \t\r\n]*")

MARK: Final = re.compile(r'"(?:[^"\\]|\\.)*"|["\[\]{},]')  # a lone quote begins a text that is cut

Member = tuple[str, Any]


def members(file: RunFile, streamed: frozenset[str], *, row_bytes: int = 0) -> Iterator[Member | Lost]:
    """Yield key and value of each member of the document, and of members named in `streamed` each element.

    The elements of a list that is the whole document come under the empty key. What is damaged, too large or nested too
    deep ends the walk with a `Lost`. `row_bytes`: what the caller makes of each value that has no key.
    """
    text = yield from _whole(file, row_bytes)
    if text is None:
        return
    count_halves(file, text)
    for member in members_of(text, streamed, file.rel):
        file.budget.tick()
        yield member


def _whole(file: RunFile, row_bytes: int = 0) -> Generator[Lost, None, bytearray | None]:
    """Return the text of a file; None where it is too large to be parsed at once. Yields what is lost of it."""
    text = bytearray()
    for piece in pieces(file):
        if isinstance(piece, Lost):
            yield piece
            continue
        text += piece
        if len(text) > MAX_BYTES:
            yield Lost(bytes=file.size, note=f"{file.rel} contains more than {MAX_BYTES >> 20} MB and was not read.")
            return None
    if why := too_large_to_parse(file, text, "the document", row_bytes=row_bytes):
        yield Lost(rows=1, bytes=file.size, note=f"{file.rel}: {why}; it was not read.")
        return None
    return text


def documents(file: RunFile) -> Iterator[Any | Lost]:
    """Yield the values of a file that holds documents one after another, as a console prints them."""
    text = yield from _whole(file)
    if text is None:
        return
    whole = text.decode("utf-8", "replace")
    at = lost = torn = 0
    while (found := START.search(whole, at)) is not None and torn < MAX_TORN:
        try:
            value, at = DECODER.raw_decode(whole, found.end() - 1)
        except (ValueError, RecursionError):  # cut, or no document: the next may begin on any later line
            torn += 1
            end = whole.find("\n", found.end())
            lost, at = lost + 1, len(whole) if end < 0 else end
            continue
        file.budget.tick()
        yield well_formed(value, whole[found.end() - 1 : at])
    if lost:
        yield Lost(rows=lost, note=f"{file.rel}: {lost} document(s) skipped: torn or damaged.")


def members_of(data: bytes | bytearray, streamed: frozenset[str], where: str) -> Iterator[Member | Lost]:
    """Do what `members` does for a document that is in memory; `where` names it in notes."""
    if sum(data.count(mark) for mark in (b",", b"[", b"{")) > MAX_ITEMS:
        yield Lost(bytes=len(data), note=f"{where} contains more than {MAX_ITEMS} values and was not read.")
        return
    text = data.decode("utf-8", "replace")
    walk = _Walk(text)
    try:
        yield from walk.document(streamed)
    except (ValueError, RecursionError) as error:
        why = "is nested too deeply" if isinstance(error, RecursionError) else "is torn or damaged"
        lost = max(1, len(text) - walk.done)
        yield Lost(rows=1, bytes=lost, note=f"{where} {why}; only the part before byte {walk.done} was read.")
        return
    if rest := len(text[walk.done :].strip(PADDING)):
        yield Lost(rows=1, bytes=rest, note=f"{where}: what follows the end of its document was not read.")


class _Walk:
    """One pass over a text; `done` is how far it was read without damage."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.done = 0
        self.surrogates = "\\ud" in text or "\\uD" in text

    def document(self, streamed: frozenset[str]) -> Generator[Member, None, None]:
        at = self._gap(0)
        if self.text.startswith("[", at):
            yield from self._elements("", at + 1)
            return
        if not self.text.startswith("{", at):
            raise ValueError
        at = self._gap(at + 1)
        while not self.text.startswith("}", at):
            key, at = self._value(at)
            at = self._gap(at)
            if not isinstance(key, str) or not self.text.startswith(":", at):
                raise ValueError
            at = self._gap(at + 1)
            if key in streamed and self.text.startswith("[", at):
                at = yield from self._elements(key, at + 1)
            else:
                value, at = self._value(at)
                yield key, value
            at = self._behind(at, "}")
        self.done = at + 1

    def _elements(self, key: str, at: int) -> Generator[Member, None, int]:
        at = self._gap(at)
        while not self.text.startswith("]", at):
            value, at = self._value(at)
            yield key, value
            at = self._behind(at, "]")
        self.done = at + 1
        return at + 1

    def _value(self, at: int) -> tuple[Any, int]:
        if at >= len(self.text):
            raise ValueError
        value, end = DECODER.raw_decode(self.text, at)
        if self.surrogates:
            value = well_formed(value, self.text[at:end])
        self.done = end
        return value, end

    def _gap(self, at: int) -> int:
        match = GAP.match(self.text, at)
        return match.end() if match else at

    def _behind(self, at: int, closing: str) -> int:
        """Step over the comma behind a value; stay at the closing bracket."""
        at = self._gap(at)
        if self.text.startswith(",", at):
            return self._gap(at + 1)
        if not self.text.startswith(closing, at):
            raise ValueError
        return at


def whole_document(file: RunFile, max_bytes: int, *, too_large: str, damaged: str) -> Any:
    """Read a document as one value, or `Lost` with the note `{path}: {too_large}` or `{path} {damaged}`."""
    if file.size > max_bytes:
        return Lost(rows=1, bytes=file.size, note=f"{file.rel}: {too_large}")
    try:
        content = file.path.read_bytes()
        if why := too_large_to_parse(file, content, "the document"):
            return Lost(rows=1, bytes=file.size, note=f"{file.rel}: {why}; it was not read.")
        count_halves(file, content)
        text = content.decode("utf-8", "replace")
        return well_formed(DECODER.decode(text), text)
    except OSError as error:
        return Lost(bytes=file.size, note=f"{file.rel} could not be read: {error.strerror}.")
    except (ValueError, RecursionError):  # cut, damaged, or nested too deep
        return Lost(rows=1, bytes=file.size, note=f"{file.rel} {damaged}")


def document_head(text: str, *, whole: bool) -> Any:
    """Return the beginning of a document, its brackets closed after the last complete value; None if there is none.

    `whole`: the text may be the whole document.
    """
    for given in (text, "") if whole else ("",):
        try:
            return DECODER.decode(given or _close_brackets(text))
        except (ValueError, RecursionError):  # cut, damaged, nested too deep, or no JSON at all
            continue
    return None


def _close_brackets(text: str) -> str:
    closing: list[str] = []
    end = depth = 0  # end of the complete part, and how many brackets are open there
    for match in MARK.finditer(text):
        mark = match.group()
        if mark == '"' or (mark in "]}" and not closing):
            break
        if mark in "[{":
            closing.append("]" if mark == "[" else "}")
        elif mark == ",":
            end, depth = match.start(), len(closing)
        elif mark in "]}":
            closing.pop()
            end, depth = match.end(), len(closing)
            if not depth:
                break
    return text[:end] + "".join(reversed(closing[:depth]))
