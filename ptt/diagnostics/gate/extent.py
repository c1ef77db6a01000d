"""The run came as far as it was to come: a verdict on a short or unfinished one says little."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ptt.diagnostics.gate.policy import Policy
from ptt.diagnostics.gate.results import CheckKind, CheckResult, Outcome
from ptt.diagnostics.store.damage import MAX_LOST, Damage, damage_of, percent
from ptt.diagnostics.store.loaded_run import LoadedRun

DAMAGE: Final = "extent:damage"


def check_extent(opened: LoadedRun, policy: Policy) -> Iterator[CheckResult]:
    """Yield one result for each guard that is set; a run that falls short is blind, for it was not seen failing."""
    run, extent = opened.diagnosis.run, policy.extent
    damage = damage_of(opened.diagnosis)
    if damage.words or extent.max_lost is not None:
        yield _damaged(damage, extent.max_lost)
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


def damage_note(opened: LoadedRun, policy: Policy) -> Iterator[str]:
    """Tell of damage that the policy lets pass: what was lost was not judged."""
    damage = damage_of(opened.diagnosis)
    if damage.words and not _too_much(damage, policy.extent.max_lost):
        yield f"not all of the run could be read, which is let pass: {damage.words}"


def _too_much(damage: Damage, most: float | None) -> bool:
    """Return whether so much is lost that what is left says nothing of the run.

    How much a torn archive lost, or a folder that may not be read holds, is not known, so that it is let pass only
    where all may be lost. A file of tokens or metrics that is lost as a whole is let pass where a share was written
    down and reviewed.
    """
    if most is None:
        return damage.whole or damage.share > MAX_LOST
    return damage.share > most or (damage.unmeasured and most < 1)


def _damaged(damage: Damage, most: float | None) -> CheckResult:
    bad, limit = _too_much(damage, most), MAX_LOST if most is None else most
    set_it = "max_lost = 1" if damage.unmeasured else f"a max_lost above {damage.share:.2g}"
    whole = "" if most is not None else ", a file of tokens or metrics lost as a whole, a file that cannot be read"
    return CheckResult(
        id=DAMAGE,
        kind=CheckKind.EXTENT,
        outcome=Outcome.BLIND if bad else Outcome.PASSED,
        title=f"no more than {percent(limit)} of the run is lost",
        claim=damage.words or "every file could be read to its end",
        data="files of the run, by what was read of each",
        fails_if=f"more than {percent(limit)} of its bytes{whole} or a torn archive leaves the gate blind: what is lost"
        " may be where it failed",
        observed=None if damage.unmeasured else damage.share,
        limit=limit,
        next=(f"{_mend(damage)}; where that is all there is, {set_it} under [gate] lets it pass",) if bad else (),
    )


def _mend(damage: Damage) -> str:
    if damage.closed:
        return "run ptt where, and as a user by whom, every file of the run can be read"
    return "pack or copy the run again"


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
