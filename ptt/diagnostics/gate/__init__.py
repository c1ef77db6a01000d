"""Decide whether a run may pass: a diagnosis against a policy that was written down and reviewed."""

from ptt.diagnostics.gate.severity import decide
from ptt.diagnostics.gate.values import Outcome

__all__ = ["Outcome", "decide"]
