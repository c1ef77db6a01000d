"""The edge of a file: what a parser raises costs the rest of that file, is reported, and costs no other file.

Damage of the data is a loss like any other. Anything else that is raised is a fault of ours: it is kept by the parser's
name, shown in the report, and costs the exit code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ptt.diagnostics.errors import describe, first_line, is_caught, is_damage
from ptt.diagnostics.parsers.io.budget import BudgetSpent
from ptt.diagnostics.parsers.io.interface import OFFSETS, Context, Lost, Parser, Piece, RunFile, read_error

OnFault = Callable[[str, str], object]
"""Called with the name of a parser that failed by a fault of ours, and with the error."""


def _pass(_: str, __: str) -> None:
    """Drop a fault: the ingest meets it again, and reports it."""


def parser_of(
    file: RunFile, parsers: Iterable[Parser], on_fault: OnFault = _pass, *, last_resort: bool = False
) -> Parser | None:
    """Return the first parser that recognises a file; one that fails on its beginning does not recognise it.

    `last_resort`: ask only those that take what is left of a run without a training log; else only the others.
    """
    for parser in parsers:
        if parser.last_resort != last_resort:
            continue
        try:
            if parser.recognises(file):
                return parser
        except (BudgetSpent, KeyboardInterrupt):
            raise
        except BaseException as error:  # of any parser, for the next ones; a panic of Polars is no Exception
            if not is_caught(error):
                raise
            if not is_damage(error):
                on_fault(parser.name, describe(error))
    return None


def pieces_of(file: RunFile, parser: Parser, on_fault: OnFault = _pass) -> Iterator[Piece]:
    """Yield what a parser reads, and the offsets of its stamps; where it fails, the rest of the file is lost."""
    named = 0
    try:
        for piece in parser.read(file):
            yield piece
            if len(offsets := file.looks.get(OFFSETS, ())) > named:
                named = len(offsets)
                yield Context(facts={}, offsets=frozenset(offsets))
    except (BudgetSpent, GeneratorExit):
        raise
    except OSError as error:
        yield read_error(file, error, done=file.budget.done)
    except BaseException as error:  # a file costs itself alone; a panic of Polars is no Exception
        if not is_caught(error):
            raise
        yield unread(file, f"{parser.name} stopped at {first_line(error)}")
        if not is_damage(error):
            on_fault(parser.name, describe(error))


def unread(file: RunFile, why: str) -> Lost:
    """Return the loss of what was not read of a file: a byte at least."""
    return Lost(bytes=max(1, file.size - file.budget.done), note=f"{file.rel}: {why}; the rest is lost.")
