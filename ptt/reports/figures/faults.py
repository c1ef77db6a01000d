"""What becomes of a figure that cannot be drawn: a line in its place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.errors import PttError, describe, is_caught, is_damage
from ptt.reports.figures.panels import FigureSpec


@dataclass(frozen=True, kw_only=True)
class FigureFault:
    """A figure that could not be drawn: it costs a line in its place, and the exit code where the fault is ours."""

    name: str
    title: str
    error: str
    ours: bool  # False: its numbers are beyond what can be drawn

    @classmethod
    def of(cls, spec: FigureSpec[Any], error: BaseException) -> FigureFault:
        """Describe what a figure raised; raise it again where it ends the program, or says itself what to do."""
        if not is_caught(error) or isinstance(error, PttError):
            raise error
        return cls(name=spec.name, title=spec.title, error=describe(error), ours=not is_damage(error))

    @property
    def reason(self) -> str:
        """Why there is no figure, as a sentence."""
        if self.ours:
            return f"A bug in ptt, please report it: {self.error}."
        return f"Its numbers cannot be drawn: {self.error}."


class DiskError(Exception):
    """Carries what the system raised while a file was written through the edge of a figure."""


@contextmanager
def suppress_faults(spec: FigureSpec[Any], faults: list[FigureFault]) -> Iterator[None]:
    """Keep what a figure raises as its fault, so that it costs no other figure and not the report."""
    try:
        yield
    except DiskError as error:
        raise (error.__cause__ or error) from None
    except BaseException as error:  # a figure costs itself alone; `of` raises what ends the program
        faults.append(FigureFault.of(spec, error))
