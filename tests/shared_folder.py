"""The folder that the workers of one session share."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

REPORTS = "ptt-report"
SHARED = "PTT_TESTS_SHARED"


def shared_folder() -> Path:
    """Return it: the first process names it in the environment."""
    if SHARED not in os.environ:
        os.environ[SHARED] = tempfile.mkdtemp(prefix="ptt-tests-")
    return Path(os.environ[SHARED])


def share_stores(folder: Path) -> None:
    """Have commands that are called in a folder find there what those of other tests have judged."""
    (shared_folder() / REPORTS).mkdir(exist_ok=True)
    (folder / REPORTS).symlink_to(shared_folder() / REPORTS)
