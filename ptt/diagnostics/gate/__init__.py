"""Decide whether a run may pass: a diagnosis against a policy that was written down and reviewed."""

from ptt.diagnostics.gate.against import with_baseline
from ptt.diagnostics.gate.drift import drift_notes
from ptt.diagnostics.gate.judging import judge
from ptt.diagnostics.gate.known import Known
from ptt.diagnostics.gate.policy import Policy
from ptt.diagnostics.gate.reading import read_policy
from ptt.diagnostics.gate.severity import decide
from ptt.diagnostics.gate.values import Outcome

__all__ = ["Known", "Outcome", "Policy", "decide", "drift_notes", "judge", "read_policy", "with_baseline"]
