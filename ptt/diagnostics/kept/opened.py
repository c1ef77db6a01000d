"""A run as commands over several runs see it: its diagnosis, and its tokens where they can be set against others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ptt.diagnostics.model import Diagnosis
from ptt.diagnostics.statistics.profile import Profile


@dataclass(frozen=True, kw_only=True)
class Opened:
    """What a path given on the command line turned out to be, judged."""

    diagnosis: Diagnosis
    profile: Profile | None
    why_no_profile: str  # empty where there is one
    source: str  # sha256 of what it was made from, the same on every machine
    kind: Literal["run", "archive", "store", "findings"]
