"""How old the trained sequences were: versions behind, by step."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Freshness:
    """How old the trained sequences were: versions behind, by step."""
