"""Which arms can be set against the baseline at all, over which steps, and why the others cannot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Final

from ptt.diagnostics.compare.comparison import Arm, Member, NotCompared
from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.model import Agreement, AuditRow, Diagnosis

MIN_SHARED: Final = 0.25
"""Of the baseline's steps: an arm that shares fewer would cut every other arm's windows down to its own."""
MAX_CUT: Final = 0.1  # of the baseline's steps: a smaller cut is not worth mentioning
RECORD: Final = "write recorder files with policy_logp and ref_logp; docs/recorder.md shows how"


@dataclass(frozen=True, kw_only=True)
class Comparable:
    """The arms that share steps with the baseline, the steps they share, and who was left out."""

    arms: tuple[Arm, ...]
    reach: tuple[int, int] | None
    left_out: tuple[NotCompared, ...]


@dataclass(frozen=True, kw_only=True)
class WithTails:
    """The arms whose tails can be set against the baseline's, and of which slices; empty where none can."""

    arms: tuple[Arm, ...]
    pair: str | None
    slices: dict[str, tuple[str, ...]]  # arm -> slices that mean the same as the baseline's
    not_compared: tuple[NotCompared, ...]


def comparable(arms: Sequence[Arm]) -> Comparable:
    """Leave out arms that share too few steps with the baseline, where others share more."""
    base = _reach(arms[0])
    if base is None:
        reason = f"{arms[0].name}, the baseline, has no step that can be matched"
        return Comparable(arms=tuple(arms), reach=None, left_out=(NotCompared(what="all steps", reason=reason),))
    least = MIN_SHARED * (base[1] - base[0] + 1)
    kept, left_out, short = [arms[0]], [], []
    for arm in arms[1:]:
        reach = _reach(arm)
        shared = None if reach is None else (max(base[0], reach[0]), min(base[1], reach[1]))
        if shared is None or shared[1] < shared[0]:
            reason = (
                f"no step of {arm.name} is logged"
                if reach is None
                else f"steps {reach[0]} to {reach[1]} of {arm.name} do not overlap with those of {arms[0].name}, "
                f"{base[0]} to {base[1]}"
            )
            left_out.append(NotCompared(what=f"all steps of {arm.name}", reason=reason))
        elif shared[1] - shared[0] + 1 < least:
            short.append((arm, shared))
        else:
            kept.append(arm)
    if len(kept) == 1:
        kept += [arm for arm, _ in short]
    else:
        left_out += [_too_short(arm, arms[0], shared, base) for arm, shared in short]
    reaches = [reach for arm in kept if (reach := _reach(arm)) is not None]
    low, high = max(reach[0] for reach in reaches), min(reach[1] for reach in reaches)
    left_out += _cut_short(kept, high, base)
    return Comparable(arms=tuple(kept), reach=(low, high) if low <= high else None, left_out=tuple(left_out))


def _too_short(arm: Arm, base: Arm, shared: tuple[int, int], whole: tuple[int, int]) -> NotCompared:
    return NotCompared(
        what=f"all steps of {arm.name}",
        reason=f"it shares steps {shared[0]} to {shared[1]} with {base.name}, whose steps are {whole[0]} to "
        f"{whole[1]}: the windows of all arms would end there",
        enable=f"compare it with {base.name} alone",
    )


def _cut_short(kept: Sequence[Arm], high: int, whole: tuple[int, int]) -> list[NotCompared]:
    """Return which arm ends the steps that all share well before the baseline does."""
    if high >= whole[1] - MAX_CUT * (whole[1] - whole[0] + 1):
        return []
    first = [arm.name for arm in kept if (reach := _reach(arm)) is not None and reach[1] == high]
    enable = f"leave {' and '.join(first)} out to compare the others further" if len(kept) > 2 else ""
    return [
        NotCompared(
            what=f"steps after {high}", reason=f"no later step of {' and '.join(first)} is logged", enable=enable
        )
    ]


def _reach(arm: Arm) -> tuple[int, int] | None:
    """Return the steps that all runs of an arm went through."""
    runs = [member.diagnosis.run for member in arm.members]
    firsts, lasts = [run.first_step for run in runs], [run.last_step for run in runs]
    if any(step is None for step in (*firsts, *lasts)):
        return None
    low, high = max(step for step in firsts if step is not None), min(step for step in lasts if step is not None)
    return (low, high) if low <= high else None


def with_tails(arms: Sequence[Arm]) -> WithTails:
    """Return the arms whose tails can be compared: same pair, same slices, logprobs that can be trusted."""
    base, why = arms[0], ""
    reasons = [_no_tails(member) for member in base.members]
    pairs = {member.profile.pair for member in base.members if member.profile is not None}
    if any(reasons):
        why = next(reason for reason in reasons if reason)
    elif len(pairs) > 1:
        why = f"its runs record different pairs of logprobs: {', '.join(sorted(pairs))}"
    if why:
        said = NotCompared(what="tails", reason=f"{base.name}, the baseline: {why}", enable=RECORD)
        return WithTails(arms=(), pair=None, slices={}, not_compared=(said,))
    pair = pairs.pop()
    kept, not_compared = [base], []
    slices = {base.name: _slices(base)}
    for arm in arms[1:]:
        reason, enable = _why_incomparable(arm, pair, base)
        if reason:
            not_compared.append(NotCompared(what=f"tails of {arm.name}", reason=reason, enable=enable))
            continue
        slices[arm.name] = tuple(name for name in slices[base.name] if name in _slices(arm))
        if missing := [name for name in slices[base.name] if name not in slices[arm.name]]:
            other = [name for name in _slices(arm) if name not in slices[base.name]]
            not_compared.append(_other_slice(arm, base, missing[0], other))
        kept.append(arm)
    if len(kept) < 2:
        return WithTails(arms=(), pair=None, slices={}, not_compared=tuple(not_compared))
    return WithTails(arms=tuple(kept), pair=pair, slices=slices, not_compared=tuple(not_compared))


def _slices(arm: Arm) -> tuple[str, ...]:
    """Return the slices that all runs of an arm have by the same name."""
    slice_names = [list(member.profile.slices.values()) for member in arm.members if member.profile is not None]
    return (
        tuple(name for name in slice_names[0] if all(name in others for others in slice_names)) if slice_names else ()
    )


def _other_slice(arm: Arm, base: Arm, name: str, other: Sequence[str]) -> NotCompared:
    instead = f"; it has {other[0]} instead" if other else ""
    return NotCompared(
        what=f"{name} tails of {arm.name}",
        reason=f"{base.name} labels these tokens {name}, {arm.name} does not{instead}: the slices would have different "
        "tokens",
        enable="record tool_names in all runs: they separate a tool's output from other text",
    )


def _why_incomparable(arm: Arm, pair: str, base: Arm) -> tuple[str, str]:
    for member in arm.members:
        if reason := _no_tails(member):
            name = "" if len(arm.members) == 1 else f"{member.name}: "
            return f"{name}{reason}", RECORD
        if member.profile is not None and member.profile.pair != pair:
            return (
                f"its logprobs are {member.profile.pair}, those of {base.name} are {pair}: their ratios measure "
                "different things",
                "record the same two logprobs in all runs",
            )
    return "", ""


def _no_tails(member: Member) -> str:
    """Return why a run's tails cannot be taken, empty where they can."""
    if member.profile is None:
        return member.why_no_profile or "it records no pair of logprobs"
    distrust = _contaminated(member.diagnosis, member.profile.pair)
    return f"its logprobs cannot be trusted: {distrust}" if distrust else ""


def _contaminated(diagnosis: Diagnosis, pair: str) -> str:
    """Return the finding that contaminates a pair; findings name what they contaminate as evidence."""
    sides = {f"{side}_logp" for side in pair.split("/")}
    for finding in diagnosis.findings:
        target = finding.evidence.get("contaminates")
        if target == "all" or target == pair or target in sides:
            return finding.claim
    return ""


KNOWN: Final = frozenset({Agreement.AGREES, Agreement.FACT})  # the nearest of what differs is not what it is


def other_quantities(arm: Arm, base: Arm) -> dict[str, str]:
    """Return why figures of an arm are not the baseline's, by quantity: another formula, or another reduction.

    Only what recomputing told of both is held against each other; of all else one name means one quantity.
    """
    of_arm, of_base = ([_computed(member.diagnosis) for member in side.members] for side in (arm, base))
    found = {}
    for here, there in product(of_arm, of_base):
        for quantity in here.keys() & there.keys():
            if quantity not in found and _differ(here[quantity], there[quantity]):
                both = f"{here[quantity].said} ({arm.name}); {there[quantity].said} ({base.name})"
                found[quantity] = f"not the same quantity: {both}"
    return dict(sorted(found.items()))


def _computed(diagnosis: Diagnosis) -> Mapping[str, AuditRow]:
    """Return by quantity the first row that says how it is computed."""
    known = [row for row in diagnosis.audit or () if row.agreement in KNOWN and (row.formula or row.reduction)]
    return {row.quantity: row for row in reversed(known)}


def _differ(here: AuditRow, there: AuditRow) -> bool:
    pairs = ((here.formula, there.formula), (here.reduction, there.reduction))
    return any(one is not None and other is not None and one != other for one, other in pairs)
