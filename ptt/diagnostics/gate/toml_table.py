"""Take typed values out of a TOML table; what is wrong is said with the file, the table and the key."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from difflib import get_close_matches
from typing import Final, NoReturn

from ptt.diagnostics.errors import SettingsError

MOST_LETTERS: Final = 500  # of a text: a reason is a sentence
MOST_WHOLE: Final = 2**53  # beyond it a JSON reader loses digits
MOST_ENTRIES: Final = 200  # of a list: a policy is read by people
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,79}")


@dataclass(frozen=True)
class Table:
    """One table of a settings file."""

    place: str  # "ptt.toml: [gate]"
    values: Mapping[str, object]

    def wrong(self, key: str, why: str) -> NoReturn:
        """Say what is wrong with a key."""
        end = "" if why.endswith((".", "?", "!")) else "."
        raise SettingsError(f"{self.place} {key}: {why}{end}")

    def has(self, key: str) -> bool:
        """Tell whether a key is given."""
        return key in self.values

    def only(self, known: Collection[str]) -> None:
        """Refuse a key that means nothing here."""
        for key in self.values:
            if key not in known:
                self.wrong(repr(key), f"unknown key; {meant(key, known)}")

    def text(self, key: str) -> str | None:
        """Give a text that is not blank."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or not value.strip():
            self.wrong(key, "must be a text that is not empty")
        if len(value) > MOST_LETTERS:
            self.wrong(key, f"is longer than {MOST_LETTERS} letters")
        return value.strip()

    def choice(self, key: str, known: Collection[str], default: str) -> str:
        """Give one of some words."""
        value = self.values.get(key, default)
        if not isinstance(value, str) or value not in known:
            self.wrong(key, f"is {value!r}; it can be {', '.join(known)}")
        return value

    def number(self, key: str) -> float | None:
        """Give a finite number."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.wrong(key, "must be a number")
        if isinstance(value, int) and abs(value) > MOST_WHOLE:
            self.wrong(key, f"is {'above' if value > 0 else 'below'} any value that is logged")
        if math.isnan(value):
            self.wrong(key, "is NaN: no value compares with it, so that no run could ever fail")
        if math.isinf(value):
            self.wrong(
                key, "is infinite: no run could ever pass it or fall short of it; leave it out, or give a number"
            )
        return float(value)

    def whole(self, key: str) -> int | None:
        """Give a whole number of at least 1."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            self.wrong(key, "must be a whole number")
        if value < 1:
            self.wrong(key, f"is {value}: every run reaches that, so that it could never matter; leave it out")
        if value > MOST_WHOLE:
            self.wrong(key, "is more than any run reaches")
        return value

    def day(self, key: str) -> date | None:
        """Give a date."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, datetime) or not isinstance(value, date):
            self.wrong(key, "must be a date without quotes or time, such as 2031-12-31")
        return value

    def table(self, key: str) -> Table | None:
        """Give a table below this one."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.wrong(key, f"must be a table: [{_dotted(self.place)}.{key}]")
        return Table(_below(self.place, key), value)

    def tables(self, key: str) -> tuple[Table, ...]:
        """Give the tables of a list, numbered."""
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            self.wrong(key, f"must be a list of tables: [[{_dotted(self.place)}.{key}]]")
        if len(value) > MOST_ENTRIES:
            self.wrong(key, f"holds {len(value)} entries; {MOST_ENTRIES} at most")
        return tuple(
            Table(f"{_below(self.place, key, listed=True)} number {index}:", one) for index, one in enumerate(value, 1)
        )

    def texts(self, key: str) -> tuple[str, ...]:
        """Give a list of texts, each once."""
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(one, str) and one.strip() for one in value):
            self.wrong(key, "must be a list of texts")
        if len(value) > MOST_ENTRIES:
            self.wrong(key, f"holds {len(value)} entries; {MOST_ENTRIES} at most")
        for one in value:
            if value.count(one) > 1:
                self.wrong(key, f"names {one!r} twice")
        return tuple(value)


def meant(name: str, known: Iterable[str]) -> str:
    """Say which known name is like this one, or which there are."""
    names = sorted(known)
    near = get_close_matches(name, names, n=2)
    if near:
        return f"is {' or '.join(near)} meant?"
    return f"known are {', '.join(names)}" if len(names) <= 20 else "none is like it"


def _dotted(place: str) -> str:
    return place.rsplit(": ", 1)[-1].strip("[]")


def _below(place: str, key: str, *, listed: bool = False) -> str:
    file, _, table = place.rpartition(": ")
    inner = f"{table.strip('[]')}.{key}"
    return f"{file}: [[{inner}]]" if listed else f"{file}: [{inner}]"
