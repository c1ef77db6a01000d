"""Where the evidence of a check lies, as a path that a code host can look up below the checkout."""

from __future__ import annotations

from pathlib import PurePosixPath
from urllib.parse import quote

from ptt.diagnostics.gate.values import GatedRun
from ptt.reports.foreign import encodable

ARCHIVES = (".tar.gz", ".tgz", ".tar.zst", ".zip", ".json")
"""A run kept in one file: what lies in it is no path of its own."""


def evidence_path(run: GatedRun, file: str | None) -> str | None:
    """Give the file below the checkout; None where the run's own path is not known, or leads out of it."""
    base = _below(run.path)
    if base is None:
        return None
    inner = _below(file)
    if inner is None or base.endswith(ARCHIVES):
        return base
    return f"{base}/{inner}" if base != inner and not base.endswith(f"/{inner}") else base


def evidence_uri(run: GatedRun, file: str | None) -> str:
    """Give a relative URI for it; a run whose path is not known is placed under its name."""
    path = evidence_path(run, file) or _below(run.name) or "run"
    return quote(encodable(path), safe="/")


def _below(path: str | None) -> str | None:
    """Normalise a relative path; None for an absolute one, an empty one, and one with `..` in it."""
    if not path:
        return None
    parts = [part for part in PurePosixPath(path.replace("\\", "/")).parts if part != "."]
    if not parts or parts[0].startswith("/") or ".." in parts or (len(parts[0]) == 2 and parts[0][1] == ":"):
        return None
    return "/".join(parts)
