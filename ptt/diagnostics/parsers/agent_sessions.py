"""Sessions as agents' own programs save them, each message, step or event of the agent a row.

A row is told by its keys; how each program writes its own is in io/coding_sessions.py and io/framework_sessions.py. A
file holds one session, except where a program's rows show that the next begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ptt.diagnostics.parsers.io.coding_sessions import CODING_AGENTS
from ptt.diagnostics.parsers.io.framework_sessions import FRAMEWORKS
from ptt.diagnostics.parsers.io.interface import Lost, Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.record_files import first_rows, rows_of
from ptt.diagnostics.parsers.io.session_rows import Dialect, Session
from ptt.diagnostics.parsers.io.trajectories import Samples, read_samples

NO_ROW: Final = "row(s) skipped: no part of a session."
MAX_ROWS: Final = 1_000_000  # of one session, which is in memory until its end
DIALECTS: Final = (*CODING_AGENTS, *FRAMEWORKS)


def _dialect_of(file: RunFile) -> Dialect | None:
    def see() -> Dialect | None:
        found = ((dialect, first_rows(file, dialect.holders)[:1]) for dialect in DIALECTS)
        return next((dialect for dialect, rows in found if rows and dialect.is_row(rows[0])), None)

    return file.look("dialect", see)


def recognises(file: RunFile) -> bool:
    """Recognise a session by its first row."""
    return _dialect_of(file) is not None


def read(file: RunFile) -> Iterator[Piece]:
    """Yield one trajectory a session."""
    dialect = _dialect_of(file) or DIALECTS[0]  # of what is left of a file, to say what is lost
    yield from read_samples(Samples(file, PARSER.name), _sessions(file, dialect), _add, NO_ROW)


def _sessions(file: RunFile, dialect: Dialect) -> Iterator[Any]:
    """Yield the sessions of a file, the rows that are none of its own, and what is lost."""
    session, count = Session(), 0
    for row in rows_of(file, dialect.holders):
        count += 1
        if isinstance(row, Lost):
            yield row
            continue
        if not isinstance(row, dict) or count > MAX_ROWS:
            yield None
            continue
        if dialect.begins(row, session):
            yield {"session": session}
            session = Session()
        try:
            known = dialect.take(row, session)
        except RecursionError:  # nesting that could just be decoded
            known = False
        if not known:
            yield None
    session.keep_branch()
    if session.messages:
        yield {"session": session}


def _add(found: dict[str, Any], samples: Samples) -> bool:
    samples.add(found["session"].sample())
    return True


PARSER = Parser(
    name="agent_sessions",
    describes="Sessions of Pi, OpenCode, Copilot, Cline, ADK, AutoGen, browser-use, LangChain, ...: turns, tool calls.",
    held_against="real: Pi, Cline, AutoGen, LangChain callbacks, CrewAI, ToolBench; source: the writers' own types",
    priority=80,
    of_training=False,
    recognises=recognises,
    read=read,
)
