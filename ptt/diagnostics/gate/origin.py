"""A findings.json was judged elsewhere: by the defaults, or by settings of its own, which it does not name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ptt.diagnostics.gate.policy import Policy
from ptt.diagnostics.gate.values import CheckKind, CheckResult, Outcome
from ptt.diagnostics.kept.opened import Opened

ID: Final = "settings"
TOLD: Final = "a findings.json counts as it was written: by the version, limits and rules of whoever wrote it"


def check_origin(opened: Opened, policy: Policy) -> Iterator[CheckResult]:
    """Give a result where the settings change how a run is judged, and nobody can tell whether this one was."""
    if opened.kind != "findings" or not policy.judged_by:
        return
    named = " and ".join(policy.judged_by)
    yield CheckResult(
        id=ID,
        kind=CheckKind.REQUIRED,
        outcome=Outcome.BLIND,
        title=f"the run was judged by {named} of these settings",
        claim="it is a findings.json, which does not say by which settings it was judged",
        data="findings.json",
        fails_if="a run of which only a findings.json is at hand leaves the gate blind",
        next=("give the run, its archive or its store: it is judged by these settings then",),
    )


def origin_note(opened: Opened) -> Iterator[str]:
    """Tell that a run was not judged here: a store whose tokens are gone counts as the version before judged it."""
    if opened.kind == "findings":
        yield TOLD
    if opened.diagnosis.judged_with:
        yield opened.diagnosis.judged_with
