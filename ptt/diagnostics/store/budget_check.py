"""Hold what is read of a run's files against its budget, and say what lies beyond it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import polars as pl

from ptt.diagnostics.parsers.io.budget import Budget, BudgetSpent, to_raise
from ptt.diagnostics.parsers.io.file_edge import unread
from ptt.diagnostics.parsers.io.interface import InPlace, Lost, Piece, Rows, RunFile, Wide
from ptt.diagnostics.store.recorded_sequences import steps_in_place
from ptt.diagnostics.wording import counted


@dataclass
class BudgetCheck:
    """Counts over all files of a run."""

    out_of_time: bool = False  # reading of a file stopped there: another look may see more
    _sequences: int = 0
    _early: list[Callable[[], Iterable[int | None]]] = field(default_factory=list)

    def pieces(self, file: RunFile, source: Iterator[Piece]) -> Iterator[Piece]:
        """Yield what is read of a file, as far as the budget goes; what lies beyond it is lost."""
        try:
            for piece in source:
                file.budget.tick()
                match piece:
                    case Rows(frame=frame) | Wide(frame=frame):
                        file.budget.rows(frame.height)
                        if isinstance(piece, Rows) and piece.table == "sequences" and "step" in frame.columns:
                            self._count_steps(file, frame.height, frame["step"].unique)
                        piece = _within_names(piece, file.budget)
                    case InPlace(rows=rows, columns=columns) if "step" in columns:
                        self._count_steps(file, rows, steps_in_place(file))
                    case _:
                        pass
                yield piece
        except BudgetSpent as spent:
            self.out_of_time |= spent.of_time
            yield unread(file, str(spent))
        if rows := file.budget.deep_rows:
            why = f"nested deeper than {file.budget.limits.depth} levels; {to_raise('depth')}"
            yield Lost(rows=rows, note=f"{file.rel}: {counted(rows, 'row(s)')} lost: {why}.")
        if halves := file.budget.lone_surrogates:
            yield Lost(note=f"{file.rel}: {counted(halves, 'broken character(s)')} in texts, shown as ?.")
        if values := file.budget.refused_values:
            why = f"more than {file.budget.limits.names} metrics in the run; {to_raise('names')}"
            yield Lost(rows=values, note=f"{file.rel}: {counted(values, 'value(s)')} lost: {why}.")

    def _count_steps(self, file: RunFile, rows: int, steps: Callable[[], Iterable[int | None]]) -> None:
        """Hold the steps of sequences against the budget, once there are more sequences than steps allowed."""
        self._sequences += rows
        self._early.append(steps)
        if self._sequences > file.budget.limits.steps:
            for early in self._early:
                file.budget.add_steps(early())
            self._early.clear()


def _within_names(piece: Rows | Wide, budget: Budget) -> Rows | Wide:
    """Leave out metrics beyond the number that a run may have, and count their values."""
    if isinstance(piece, Wide):
        if not (refused := budget.refused(piece.names)):
            return piece
        budget.refused_values += sum(piece.frame.height - piece.frame[raw].null_count() for raw in refused)
        kept = {raw: name for raw, name in piece.names.items() if raw not in refused}
        return Wide(frame=piece.frame.drop(refused), names=kept)
    if piece.table != "metrics" or not (refused := budget.refused(piece.frame["name_raw"].unique())):
        return piece
    frame = piece.frame.filter(~pl.col("name_raw").is_in(refused))
    budget.refused_values += piece.frame.height - frame.height
    return replace(piece, frame=frame)
