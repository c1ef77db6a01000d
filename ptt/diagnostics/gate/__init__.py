"""Decide whether a run may pass: a diagnosis against a policy that was written down and reviewed."""
