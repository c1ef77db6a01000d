"""The run came as far as it was to come: a verdict on a short or unfinished one says little."""

from __future__ import annotations

from collections.abc import Iterator

from ptt.diagnostics.gate.policy import Policy
from ptt.diagnostics.gate.values import CheckKind, CheckResult, Outcome
from ptt.diagnostics.kept.opened import Opened


def check_extent(opened: Opened, policy: Policy) -> Iterator[CheckResult]:
    """Give one result for each guard that is set; a run that falls short is blind, for it was not seen failing."""
    run, extent = opened.diagnosis.run, policy.extent
    if extent.min_steps is not None:
        yield _reached("min_steps", run.step_count, extent.min_steps, "logged steps", "the run is too short to judge")
    if extent.last_step is not None:
        last = "no step is recorded" if run.last_step is None else "the run did not reach its last step"
        yield _reached("last_step", run.last_step, extent.last_step, "as its last step", last)
    if extent.min_sequences is not None:
        short = "too little is recorded of the run"
        yield _reached("min_sequences", run.sequences, extent.min_sequences, "recorded sequences", short)
    if extent.min_model_tokens is not None:
        short = "too little is recorded of the run"
        yield _reached("min_model_tokens", run.model_tokens, extent.min_model_tokens, "recorded model tokens", short)


def _reached(key: str, held: int | None, least: int, what: str, short: str) -> CheckResult:
    passed = held is not None and held >= least
    ends = key == "last_step"
    return CheckResult(
        id=f"extent:{key}",
        kind=CheckKind.EXTENT,
        outcome=Outcome.PASSED if passed else Outcome.BLIND,
        title=f"the run goes up to step {least}" if ends else f"the run has at least {least} {what}",
        claim="it came that far" if passed else short,
        data="steps of logs and of recorded tokens" if "step" in key else "recorded tokens",
        fails_if=f"{f'an end before step {least}' if ends else f'fewer than {least} {what}'} leaves the gate blind:"
        " nothing is known against the run, nor for it",
        observed=None if held is None else float(held),
        limit=float(least),
        next=() if passed else ("let the run finish, or gate the whole of it: files of its end may be missing",),
    )
