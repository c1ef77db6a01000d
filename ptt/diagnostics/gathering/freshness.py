"""Measure how many versions behind the trained sequences were."""

from __future__ import annotations

from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.evidence.freshness import Freshness


def gather_freshness(tokens: Tokens | None) -> Freshness | None:
    """Measure how many versions behind the trained sequences were; None where no version is recorded."""
    return None
