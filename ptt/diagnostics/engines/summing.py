"""Add up the pieces of a run as they come, alone or in whole groups, though a file may yet turn out to be damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ptt.diagnostics.engines.pieces import Group, Merged, Piece
from ptt.diagnostics.statistics.merge_tree import Merger
from ptt.diagnostics.statistics.partial_tables import PartialTables, TokenTables

MAX_OPEN: Final = 4
"""Pieces or groups of one file that wait for its end; a longer file that is damaged costs its pieces before too."""


@dataclass(frozen=True, kw_only=True)
class Summand:
    """What comes as one: a piece, whose tables are None where its files could not be read, or a group added up."""

    pieces: tuple[Piece, ...]
    tables: PartialTables | None

    @property
    def first(self) -> int:
        """The first sequence."""
        return self.pieces[0].first


class RunSum:
    """Pieces added up, but for the last ones whose last file is not read to its end yet: it may yet be damaged."""

    def __init__(self) -> None:
        self._merger = Merger()
        self._added: list[Piece] = []
        self._open: list[tuple[tuple[Piece, ...], PartialTables]] = []

    @property
    def pieces(self) -> int:
        """How many pieces are taken."""
        return len(self._added) + sum(len(pieces) for pieces, _ in self._open)

    def add(self, pieces: tuple[Piece, ...], tables: PartialTables) -> None:
        """Take the next piece, or the next group that was added up already."""
        before = self._open[-1][0][-1].files[-1].name if self._open else None
        if len(self._open) == MAX_OPEN or before != pieces[0].files[0].name:
            self._close()
        self._open.append((pieces, tables))

    def goes_on_with(self, pieces: Sequence[Piece]) -> bool:
        """Leave off what is not among the first of other `pieces`; False where that is not possible."""
        added = len(self._added)
        if self._added != list(pieces[:added]):
            return False
        same, at = 0, added
        for held, _ in self._open:
            if list(held) != list(pieces[at : at + len(held)]):
                break
            same, at = same + 1, at + len(held)
        del self._open[same:]
        return True

    def tables(self) -> TokenTables:
        """Return the tables of all pieces."""
        self._close()
        return self._merger.tables()

    def _close(self) -> None:
        for pieces, tables in self._open:
            if len(pieces) > 1:
                self._merger.add_group(tables)
            else:
                self._merger.add(pieces[0].number, tables)
            self._added += pieces
        self._open.clear()


def in_order(
    results: Iterator[tuple[int, PartialTables | Merged | None]],
    pieces: Sequence[Piece],
    groups: Mapping[int, Group],
    on_rows: Callable[[int], None],
) -> Iterator[Summand]:
    """Yield what an engine gives of pieces in their order; the few that are done early wait.

    `groups`: by the place of their first piece, those whose pieces may come as one.
    """
    early: dict[int, Summand] = {}
    following = 0
    for number, answer in results:
        merged = isinstance(answer, Merged)
        members = tuple(pieces[number : number + (len(groups[number].pieces) if merged else 1)])
        early[number] = Summand(pieces=members, tables=answer.tables if isinstance(answer, Merged) else answer)
        on_rows(members[-1].end - members[0].first)
        while following in early:
            summand = early.pop(following)
            following += len(summand.pieces)
            yield summand
    while following < len(pieces):  # what nobody answered is folded here, and not left out
        summand = early.get(following, Summand(pieces=(pieces[following],), tables=None))
        following += len(summand.pieces)
        yield summand
