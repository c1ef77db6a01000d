"""The exit code of each outcome."""

from __future__ import annotations

from ptt.cli.exits import Exit
from ptt.diagnostics.gate.results import Outcome

CODES = {
    Outcome.PASSED: Exit.JUDGED,
    Outcome.FAILED: Exit.FAILED,
    Outcome.BLIND: Exit.BLIND,
    Outcome.UNREADABLE: Exit.UNREADABLE,
    Outcome.CRASHED: Exit.CRASHED,
}
