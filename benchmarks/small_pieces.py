"""Run the command with pieces of 32 sequences, so that a small run has many: for kills.py.

`python -m benchmarks.small_pieces here|apart ARGUMENTS`: pieces are folded in this process, or in processes.
"""

from __future__ import annotations

import sys
from typing import Final

from ptt.cli.app import main
from ptt.diagnostics.engines import local
from ptt.diagnostics.statistics import token_pass
from ptt.executors import this_machine

APART: Final = "apart"

token_pass.BATCH_TOKENS = 16  # type: ignore[misc]
token_pass.PIECE_BATCHES = 2  # type: ignore[misc]
if __name__ == "__main__":  # processes that fold import this module under another name
    where = sys.argv.pop(1)
    this_machine.ENOUGH_CORES = 1 if where == APART else 1 << 20  # type: ignore[misc]
    local.APART_FROM = 1
    main()
