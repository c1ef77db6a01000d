"""Join what other processes read of a file, span by span, into what one process would have read of all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import polars as pl

from ptt.diagnostics.parsers.io.budget import BudgetSpent
from ptt.diagnostics.parsers.io.file_edge import unread
from ptt.diagnostics.parsers.io.interface import Parser, Piece, Rows, RunFile, any_line
from ptt.diagnostics.store.file_readings import HASHED, Reading


def why_unread(first: Reading) -> str:
    """Return why nothing of a file was read, by its first reading; empty where something was."""
    return first.died or (str(BudgetSpent(*first.spent)) if first.spent and first.parser is None else "")


def joined_pieces(
    file: RunFile, parser: Parser, readings: Iterable[Reading], fault: Callable[[str, str], None]
) -> Iterator[Piece]:
    """Yield what other processes read of a file; raises BudgetSpent where one had to stop."""
    split = SplitFile(file.rel, parser)
    for reading in readings:
        for name, error in reading.faults:
            fault(name, error)
        file.budget.charge(reading.seconds)
        file.budget.deep_rows += reading.deep_rows
        file.budget.lone_surrogates += reading.lone_surrogates
        yield from split.joined(reading.pieces)
        file.budget.done = file.budget.position = file.budget.done + reading.done
        if reading.died:
            yield unread(file, reading.died)
        elif reading.spent:
            raise BudgetSpent(*reading.spent)
    yield from split.close()


class TornApartError(Exception):
    """A file was cut between lines of one sample, and must be read whole."""

    def __init__(self, rel: str) -> None:
        super().__init__(rel)
        self.rel = rel


class SplitFile:
    """Joins the spans of one file: ids that two spans give are told apart, means of evaluations are taken together."""

    def __init__(self, rel: str, parser: Parser) -> None:
        self._rel = rel
        self._may_tear = parser.splits is not None and parser.splits is not any_line
        self._seen: Counter[str] = Counter()
        self._samples: set[str] = set()
        self._evals: list[pl.DataFrame] = []

    def joined(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """Yield the pieces of the next span; raises TornApartError where it goes on with an earlier sample."""
        pieces = list(pieces)
        ids = [name for frame in _trajectories(pieces) for name in frame["trajectory_id"].to_list()]
        if self._may_tear:
            self._refuse_torn(pieces)
        renamed: dict[str, str] = {}
        for name in ids:
            if (ours := HASHED.fullmatch(name)) is None:  # the writer's own id, which numbers no repeats
                continue
            base = ours[1]
            number, self._seen[base] = self._seen[base], self._seen[base] + 1
            if (fresh := f"{base}-{number}" if number else base) != name:
                renamed[name] = fresh
        for piece in pieces:
            if isinstance(piece, Rows) and piece.table == "evals":
                self._evals.append(piece.frame)
            elif isinstance(piece, Rows) and renamed and "trajectory_id" in piece.frame.columns:
                yield replace(piece, frame=piece.frame.with_columns(pl.col("trajectory_id").replace(renamed)))
            else:
                yield piece

    def close(self) -> Iterator[Piece]:
        """Yield the evaluations of all spans as those of one file."""
        if not self._evals:
            return
        rows = pl.concat(self._evals)
        keys = [name for name in rows.columns if name not in ("value", "n")]
        weight = pl.col("n").fill_null(1)
        mean = (pl.col("value") * weight).sum() / weight.sum()
        merged = rows.group_by(keys, maintain_order=True).agg(mean.alias("value"), pl.col("n").sum())
        yield Rows(table="evals", frame=merged.select(rows.columns))

    def _refuse_torn(self, pieces: Iterable[Piece]) -> None:
        names = {
            name
            for frame in _trajectories(pieces)
            if "sample_id" in frame.columns
            for name in frame["sample_id"].drop_nulls().to_list()
        }
        if names & self._samples:
            raise TornApartError(self._rel)
        self._samples |= names


def _trajectories(pieces: Iterable[Piece]) -> Iterator[pl.DataFrame]:
    return (piece.frame for piece in pieces if isinstance(piece, Rows) and piece.table == "trajectories")
