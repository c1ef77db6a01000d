"""Offline forensics for RL post-training runs: `ptt.diagnose(path)` returns what the command prints."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ptt.version import __version__

if "PTT_ENDS_WITH" in os.environ:  # stopping.PARENT: only a process of ours pays for importing it
    from ptt.stopping import end_early_with_parent

    end_early_with_parent()

if TYPE_CHECKING:
    from ptt.api import (
        Comparison,
        Diagnosis,
        GateReport,
        TraceDiagnosis,
        compare,
        diagnose,
        diagnose_runs,
        gate,
        ingest,
        read_settings,
        runs_in,
        show,
        sources,
        traces,
    )
    from ptt.diagnostics.config import Settings
    from ptt.diagnostics.errors import InputError, SettingsError, SeveralRunsError

__all__ = [
    "Comparison",
    "Diagnosis",
    "GateReport",
    "InputError",
    "Settings",
    "SettingsError",
    "SeveralRunsError",
    "TraceDiagnosis",
    "__version__",
    "compare",
    "diagnose",
    "diagnose_runs",
    "gate",
    "ingest",
    "read_settings",
    "runs_in",
    "show",
    "sources",
    "traces",
]


def __getattr__(name: str) -> object:
    """Import the entry point only when it is used: `ptt --help` must not pay for polars."""
    if name in __all__:
        from ptt import api

        return getattr(api, name)
    raise AttributeError(f"module 'ptt' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List only the public names."""
    return sorted(__all__)
