"""The answers that take several runs as values of a notebook: each prints in a few lines and shows a card."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

from ptt.diagnostics.compare import comparison
from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.gate import results
from ptt.diagnostics.store.diagnosis import NamedTables
from ptt.diagnostics.traces import model as traces

Answer = TypeVar("Answer")


@dataclass(frozen=True, kw_only=True)
class Comparison(comparison.Comparison):
    """A comparison; `tables` holds its Polars frames by name."""

    def __repr__(self) -> str:
        """Return the headline, the arms, and what is most telling."""
        from ptt.reports.compare.terminal import summary

        return summary(self)

    def _repr_html_(self) -> str:
        from ptt.reports.compare.terminal import notebook_card

        return notebook_card(self)


@dataclass(frozen=True, kw_only=True)
class GateReport(results.GateReport):
    """A gate's answer, with the exit code that the command ends with."""

    @property
    def exit_code(self) -> int:
        """0 passed, 3 failed, 4 not judged, 5 not read, 1 crashed."""
        from ptt.reports.gate.checks import OUTCOME_TEXT

        return OUTCOME_TEXT[self.outcome].exit_code

    def __repr__(self) -> str:
        """Return the outcome with its exit code, and a line for each of the worst runs."""
        from ptt.reports.gate.terminal import summary

        return summary(self)

    def _repr_html_(self) -> str:
        from ptt.reports.gate.terminal import notebook_card

        return notebook_card(self)


@dataclass(frozen=True, kw_only=True)
class TraceDiagnosis(traces.TraceDiagnosis):
    """A diagnosis of agent traces; `tables` holds its Polars frames by name."""

    def __repr__(self) -> str:
        """Return the verdict, what was read, and what to do first."""
        from ptt.reports.traces.terminal import summary

        return summary(self)

    def _repr_html_(self) -> str:
        from ptt.reports.traces.terminal import notebook_card

        return notebook_card(self)


def shown(answer: Any, kind: type[Answer]) -> Answer:
    """Return an answer as one that a notebook can show, with tables that name themselves where one is missing."""
    values = {field.name: getattr(answer, field.name) for field in fields(answer)}
    if isinstance(values.get("tables"), dict):
        values["tables"] = NamedTables(values["tables"])
    return kind(**values)
