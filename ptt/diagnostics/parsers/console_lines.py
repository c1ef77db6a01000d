"""Metrics on lines of a console log: torchtune's, veRL's, and the dicts that Hugging Face trainers print.

Numbers and quoted texts are read by patterns of their own; nothing is evaluated.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ptt.diagnostics.parsers.aliases import canonical
from ptt.diagnostics.parsers.metric_rows import NON_FINITE, as_step
from ptt.diagnostics.parsers.metrics_jsonl import STEP_KEYS
from ptt.diagnostics.parsers.side_rows import ESCAPES

LINE_CHARS = 1 << 18  # no log call prints more
PLAIN = r"[+-]?(?:\d{1,400}(?:\.\d{0,400})?(?:[eE][+-]?\d{1,4})?|\.\d{1,400}|inf|nan|Infinity|NaN)"
WRAPPED = re.compile(rf"(?:(?:np|numpy)\.(?:float|int)\d+\(|tensor\()?({PLAIN})(?:\)|, [^()]{{0,80}}\))?")
VERL = re.compile(r"(?:^|[\s)])step:(\d{1,18}) - (.+)")
TORCHTUNE = re.compile(r"(?:^|\s)Step (\d{1,18}) \| (.+)")
DICT_PAIR = re.compile(
    r"'([^'\\]{1,200})': (?:'([^'\\]{0,200})'|(None|True|False|[^'\"\s{}\[\],()]{1,400}"
    r"|(?:np|numpy)\.(?:float|int)\d+\([^()]{1,400}\)|tensor\([^()]{1,400}\)))(, |\}$)"
)
WORDS: dict[str, float | None] = {"None": None, "True": 1.0, "False": 0.0}


@dataclass(frozen=True)
class ConsoleRow:
    """One log call; `step` is None where the line names none."""

    framework: str | None
    step: int | None
    values: dict[str, float | None]


def console_row(line: str) -> ConsoleRow | None:
    """Read one line as a log call; None if it is none."""
    if len(line) > LINE_CHARS:
        return None
    text = (ESCAPES.sub("", line) if "\x1b" in line else line).rstrip()
    if "step:" in text and (found := VERL.search(text)):
        return _pairs("verl", found.group(1), found.group(2).split(" - "))
    if "Step " in text and (found := TORCHTUNE.search(text)):
        return _pairs("torchtune", found.group(1), found.group(2).split(" "))
    start = text.find("{'")
    return _dict(text[start + 1 :]) if start >= 0 and text.endswith("}") else None


def number_of(text: str) -> float | None:
    """Read a number as Python, NumPy or torch print it; ValueError where it is none."""
    found = WRAPPED.fullmatch(text)
    if found is None:
        raise ValueError("no number")
    known = NON_FINITE.get(found.group(1).lower())
    return float(found.group(1)) if known is None else known


def _pairs(framework: str, step: str, pairs: list[str]) -> ConsoleRow | None:
    values: dict[str, float | None] = {}
    for pair in pairs:
        name, colon, text = pair.strip().rpartition(":")
        if not (name and colon):
            continue
        try:
            values[name] = WORDS[text] if text in WORDS else number_of(text)
        except ValueError:  # a text
            continue
    return ConsoleRow(framework, int(step), values) if values else None


def _dict(text: str) -> ConsoleRow | None:
    flat: dict[str, float | None] = {}
    step: int | None = None
    at = 0
    while at < len(text):
        found = DICT_PAIR.match(text, at)
        if found is None:  # a nested object, a list, prose: no log call
            return None
        at = found.end()
        name, quoted, bare, _ = found.groups()
        value = quoted if quoted is not None else bare
        if name in STEP_KEYS and step is None and (named := as_step(value)) is not None:
            step = named
            continue
        try:  # newer trainers print their rounded numbers as texts
            flat[name] = WORDS[value] if quoted is None and value in WORDS else number_of(value)
        except ValueError:
            continue
    known = "epoch" in flat or step is not None or any(map(canonical, flat))
    return ConsoleRow(None, step, flat) if flat and known else None
