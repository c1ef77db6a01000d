"""Dicts that Python and JSON print, on one line or over several: their numbers by name, without evaluating any.

Of a configuration that a trainer pretty-prints, only the few settings that name an algorithm are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ptt.diagnostics.parsers.io.console_pairs import WORDS, Values, is_metric_name, number_of
from ptt.diagnostics.parsers.io.telemetry import Facts, plain_setting

TOKEN: Final = re.compile(
    r"\s*+(?:(?P<text>'(?:[^'\\]|\\.)*+'|\"(?:[^\"\\]|\\.)*+\")|(?P<call>(?:[\w.]{1,40}+)?\()"
    r"|(?P<word>[^\s,:{}\[\]()'\"]{1,400}+)|(?P<sign>[{}\[\]),:]))",
    re.DOTALL,
)
FIRST_PAIR: Final = re.compile(r"\{(['\"])[^'\"\\]{1,200}\1: ")
OPENS: Final = re.compile(r"\{\s*+['\"]")
LABEL: Final = re.compile(r"([^\W\d][\w./-]{0,60}(?: [A-Za-z_./-]{1,30}){0,2})\s?[:=]\s?$")
GENERIC: Final = frozenset(
    {"metrics", "metric", "logs", "log", "stats", "key metrics", "info", "data", "values", "train", "result", "results"}
)
"""Labels before a whole log call's dict, which add nothing to its names."""
MAX_DEPTH: Final = 8  # a log call nests a level or two
MAX_TOKENS: Final = 20_000  # a dict with more holds a sample's numbers, not a log call's
CLOSING: Final = {"{": "}", "[": "]", "(": ")"}
MAX_LINES: Final = 120  # of one dict printed over several: a configuration is longer
CONTINUES: Final = re.compile(r"[\s'\"}\])]")
MIN_WIDTH: Final = 40  # columns of a terminal that broke a line: a narrower one shows no log
WRAP_SLACK: Final = 2  # columns by which broken lines differ: a space at the end is left out, a wide sign not split
OPEN_ENDS: Final = ("{", ",", "[")  # of lines behind which Python breaks a dict
CUT_SPACE: Final = re.compile(r"[,:]$")  # the end of a line behind which a dict has a space


class _UnreadableError(Exception):
    """What follows is not a dict of literals."""


@dataclass
class _Reader:
    """Walks over the tokens of one dict."""

    text: str
    at: int
    left: int = MAX_TOKENS

    def next(self) -> tuple[str, str]:
        """Return the kind and the text of the next token."""
        match = TOKEN.match(self.text, self.at)
        self.left -= 1
        if match is None or self.left < 0:
            raise _UnreadableError
        self.at = match.end()
        return str(match.lastgroup), match[str(match.lastgroup)]

    def dict(self, below: str, depth: int, found: Values) -> None:
        """Read what follows an opening brace; numbers go into `found` under their joined keys."""
        kind, text = self.next()
        while text != "}":
            if depth > MAX_DEPTH or kind not in ("text", "word"):
                raise _UnreadableError
            key = text[1:-1] if kind == "text" else text
            if self.next()[1] != ":":
                raise _UnreadableError
            self.value(f"{below}{key}", depth, found)
            kind, text = self.next()
            if text == ",":
                kind, text = self.next()
            elif text != "}":
                raise _UnreadableError

    def value(self, name: str, depth: int, found: Values) -> None:
        """Read a value; lists and histograms are passed over."""
        kind, text = self.next()
        if text == "{" and kind == "sign":
            self.dict(f"{name}/", depth + 1, found)
        elif text == "[" and kind == "sign":
            self.skip("]")
        elif kind == "call":
            self.call(name, found)
        elif kind in ("text", "word"):
            bare = text[1:-1] if kind == "text" else text
            with suppress(ValueError):
                found[name] = WORDS[bare] if bare in WORDS and kind == "word" else number_of(bare)
        else:
            raise _UnreadableError

    def call(self, name: str, found: Values) -> None:
        """Read `tensor(0.5, device='cuda:0')` and `np.float64(0.5)`, a number and what it is."""
        before = self.at
        kind, text = self.next()
        with suppress(ValueError):
            if kind == "word":
                found[name] = number_of(text)
        self.at = before
        self.skip(")")

    def skip(self, closing: str) -> None:
        """Pass over what is bracketed, up to its end."""
        pending = [closing]
        while pending:
            kind, text = self.next()
            opening = text[-1] if kind == "call" or text in "{[" else ""
            if kind != "text" and opening:
                pending.append(CLOSING[opening])
            elif kind == "sign" and text == pending[-1]:
                pending.pop()


def read_dict(text: str, start: int) -> tuple[Values, int] | None:
    """Return the numbers of the dict that begins at `start`, and where it ends; None where none does."""
    reader, found = _Reader(text, start + 1), Values()
    try:
        reader.dict("", 0, found)
    except _UnreadableError:
        return None
    return found, reader.at


def dicts_on(text: str) -> tuple[list[tuple[str, Values]], str] | None:
    """Return the dicts on a line, each with its label, and the rest of the line; None where one cannot be read."""
    dicts: list[tuple[str, Values]] = []
    rest: list[str] = []
    done = 0
    for start in _openings(text):
        if start < done:
            continue
        found = read_dict(text, start)
        if found is None:
            return None
        head = text[done:start]
        label = LABEL.search(head[-120:])
        rest.append(head[: len(head) - len(label[0])] if label else head)
        dicts.append((label[1] if label else "", found[0]))
        done = found[1]
    return (dicts, "\t".join([*rest, text[done:]])) if dicts else None


def _openings(text: str) -> Iterator[int]:
    return (match.start() for match in OPENS.finditer(text))


def joined_names(dicts: list[tuple[str, Values]], *, alone: bool) -> Values:
    """Return the numbers of all dicts on a line; `alone`: it has no others, so a plain label is not a metric's."""
    values: Values = {}
    for label, found in dicts:
        bare = label.strip().lower()
        told = label and bare not in GENERIC and (not alone or len(dicts) > 1 or is_metric_name(bare))
        front = f"{label.strip().replace(' ', '_')}/" if told else ""
        values |= {f"{front}{name}": value for name, value in found.items()}
    return values


class OpenDict:
    """Gathers the lines of a dict that is printed over several of them."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0
        self._width = 0  # of the terminal that breaks a log call into lines; 0 where Python breaks it

    def wraps(self, line: bytes) -> bool:
        """Start at a log call's first line without its end, cut at a terminal's width: anywhere, within words too."""
        text = line.decode("utf-8", "replace").rstrip()
        first = FIRST_PAIR.search(text) if len(text) >= MIN_WIDTH else None
        if first is None:
            return False
        self._lines, self._depth, self._width = [text], text.count("{", first.start()), len(text)
        return True

    def begins(self, line: bytes) -> bool:
        """Start at a line where a dict opens but does not end."""
        text = line.decode("utf-8", "replace").rstrip()
        if not text.endswith(OPEN_ENDS) or line.count(b"{") <= line.count(b"}"):
            return False
        if not text.endswith("{") and not OPENS.search(text):
            return False
        self._lines, self._depth, self._width = [text], line.count(b"{") - line.count(b"}"), 0
        return True

    @property
    def wrapped(self) -> bool:
        """Whether a terminal broke the lines, so that the whole is one line of any dialect."""
        return self._width > 0

    @property
    def open(self) -> bool:
        """Whether lines are being gathered."""
        return bool(self._lines)

    def add(self, line: bytes) -> str | None:
        """Take a line of it, and return all of it where it ends; `open` is False then, or where it cannot go on."""
        text = line.decode("utf-8", "replace").rstrip()
        if len(self._lines) == 1 and self._lines[0].endswith(OPEN_ENDS) and not self._fills(text):
            self._width = 0  # broken behind an entry, as Python does
        if not (self._fills(text) if self._width else CONTINUES.match(text)) or len(self._lines) >= MAX_LINES:
            self._lines = []
            return None
        self._lines.append(text)
        self._depth += line.count(b"{") - line.count(b"}")
        if self._depth > 0:
            return None
        parts, self._lines = self._lines, []
        if self._width:
            return "".join(f"{part} " if CUT_SPACE.search(part) else part for part in parts)
        return " ".join(part.strip() for part in parts)

    def _fills(self, text: str) -> bool:
        """Return whether a line goes on where a terminal broke the last one: as wide as it, but for the dict's end."""
        whole = abs(len(text) - self._width) <= WRAP_SLACK
        return "{" not in text and (whole or (text.endswith("}") and len(text) < self._width))


WANTED: Final = {
    ("algorithm", "adv_estimator"): "adv_estimator",
    ("algorithm", "use_kl_in_reward"): "use_kl_in_reward",
    ("policy_loss", "loss_mode"): "loss_mode",
    ("rollout", "n"): "rollout_n",
    ("actor", "use_kl_loss"): "use_kl_loss",
    ("data", "train_batch_size"): "train_batch_size",
}
"""By the last two keys: the name among a run's settings. These are veRL's keys."""
MARKS: Final = (b"': {", *(f"'{key}':".encode() for _, key in WANTED))
ENTRY: Final = re.compile(r"'(\w{1,64})': (?:(\{)|([^,{}\s]{1,64}))")
MAX_CONFIG_DEPTH: Final = 16


class PrintedConfig:
    """Follows the lines of `pprint`: a key's column shows its parent, whatever prefix all lines have."""

    def __init__(self) -> None:
        self.facts: Facts = {}
        self._open: list[tuple[int, str]] = []  # column and key of the dictionaries around

    def see(self, line: bytes) -> None:
        """Take a line of the console."""
        if not any(mark in line for mark in MARKS):
            return
        for entry in ENTRY.finditer(line.decode("utf-8", "replace")):
            column, (key, opens, value) = entry.start(), entry.groups()
            while self._open and self._open[-1][0] >= column:
                self._open.pop()
            if opens:
                self._open.append((column, key))
                del self._open[:-MAX_CONFIG_DEPTH]
            elif self._open and (name := WANTED.get((self._open[-1][1], key))) is not None:
                fact = plain_setting(value.strip("'"))
                if fact is not None:
                    self.facts.setdefault(name, fact)
