"""What `[[logs]]` in ptt.toml says: which files of text it reads, and where on a line the step and the values stand.

Expressions are Rust's, which Polars runs: they take time in proportion to a line, whatever they hold.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import field
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

from ptt.diagnostics.definitions import dataclass

STEP: Final = "step"
EPOCH: Final = "epoch"
DECIMALS: Final = (".", ",")
MAX_ENTRIES: Final = 32  # each is tried on every line of its files
MAX_EXPRESSION: Final = 2000  # characters of it as written, and of a pattern of names
MAX_COLUMN: Final = 10_000
MAX_EPOCH_STEPS: Final = 1_000_000_000  # times an epoch's number it still is a step that the tables hold
MAX_SIZE: Final = 1000  # what an expression's counted repetitions multiply it to: time a character grows with it
PARTS: Final = re.compile(r"\\.|\[\^?\]?[^\]]*\]|\(|\)|\{(\d{1,9})(?:,(\d{0,9}))?\}|.", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class LogEntry:
    """One entry. `columns`: name -> number, from 1, of a group of `line`, or of a cell where there is no `line`."""

    files: str
    line: str = ""
    columns: Mapping[str, int] = field(default_factory=dict)
    separator: str = ""  # of cells; white space where it is empty
    step: str = STEP
    epoch: str = EPOCH
    epoch_steps: int = 0  # how many steps an epoch has, where the step starts again in each; 0: it does not
    carry: bool = False  # a line without the step, or the epoch, belongs to the last above it
    decimal: str = "."

    def reads(self, rel: str) -> bool:
        """Return whether a file of the run is read by this entry: by its path there, or by its name."""
        return fnmatchcase(rel, self.files) or fnmatchcase(rel.rpartition("/")[2], self.files)

    @property
    def names(self) -> Mapping[str, int]:
        """The names of what stands on a line, each with its number."""
        if self.columns or not self.line:
            return self.columns
        return {name: number for number, name in enumerate(groups(self.line), start=1) if not name.isdecimal()}

    @property
    def values(self) -> tuple[str, ...]:
        """The names of what is logged: all but the step, and but the epoch where the step starts again in each."""
        counted = {self.step, self.epoch} if self.epoch_steps else {self.step}
        return tuple(name for name in self.names if name not in counted)


@lru_cache(maxsize=MAX_ENTRIES)
def groups(expression: str) -> tuple[str, ...]:
    """Return the groups of a regular expression, by name or else by number; ValueError says why it is none."""
    import polars as pl  # not where no settings name one

    try:
        return tuple(pl.Series([""]).str.extract_groups(expression).struct.fields)
    except pl.exceptions.ComputeError as error:
        lines = str(error).strip().splitlines()
        raise ValueError(lines[-1].removeprefix("regex error: ").removeprefix("error: ")) from None
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, AttributeError):  # no group at all
        return ()


def _size(expression: str) -> int:
    """Return about how many characters an expression has when its counted repetitions are written out."""
    open_groups, last = [0], 0
    for part in PARTS.finditer(expression):
        if part.group() == "(":
            open_groups.append(0)
        elif part.group() == ")" and len(open_groups) > 1:
            last = open_groups.pop()
            open_groups[-1] += last
        elif part[1] is not None:
            more = last * (max(int(part[1]), int(part[2] or 0)) - 1)
            open_groups[-1] += more
            last += more
        else:
            last = 1
            open_groups[-1] += 1
    return sum(open_groups)


def entry_problem(entry: LogEntry, given: Collection[str]) -> tuple[str, str] | None:
    """Return which key of an entry is wrong and in what way; None where it can be used. `given`: its keys."""
    if not (entry.line or entry.columns):
        return "", "needs `line`, a regular expression with named groups, or `columns`, names with their numbers"
    if entry.line and entry.separator:
        return "separator", "goes with `columns` alone; `line` finds its groups itself"
    found: tuple[str, ...] = ()
    if entry.line:
        if len(entry.line) > MAX_EXPRESSION or _size(entry.line) > MAX_SIZE:
            return "line", f"is longer than {MAX_SIZE} characters, with what it repeats written out; repeat less"
        try:
            found = groups(entry.line)
        except ValueError as error:
            return "line", f"is no regular expression that ptt takes ({error}); it takes those of Rust's regex crate"
        if beyond := [name for name, number in entry.columns.items() if number > len(found)]:
            return f"columns.{beyond[0]}", f"is {entry.columns[beyond[0]]}, but `line` has {len(found)} groups"
    names = entry.names
    if not names:
        return "line", "has no named group, such as (?P<reward>\\S+), and `columns` gives its groups no names"
    if STEP in given and entry.step not in names:
        return STEP, f"is {entry.step!r}, which is not on the line; it holds {', '.join(names)}"
    if entry.carry and entry.step not in names:
        return "carry", f"goes with a step, and `{entry.step}` is not on the line; it holds {', '.join(names)}"
    if entry.epoch_steps and not {entry.step, entry.epoch} <= set(names):
        return "epoch_steps", f"goes with `{entry.epoch}` and `{entry.step}`; the line holds {', '.join(names)}"
    if not entry.values:
        return "", f"gives no value beside `{entry.step}`"
    return None
