"""A comparison in plain words for its page: every string finished, and no markup."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ptt.diagnostics.comparing.values import Arm, Comparison
from ptt.diagnostics.model import Status
from ptt.reports.comparing.figures.arms import looks
from ptt.reports.comparing.figures.kinds import arm_name
from ptt.reports.comparing.figures.scales import range_words
from ptt.reports.comparing.sheets import GrowthTable, SettingRow, growth_tables, settings
from ptt.reports.comparing.swatches import Swatch, swatch
from ptt.reports.foreign import safe, shortened
from ptt.reports.names import STATUSES, pair_name, sentence
from ptt.reports.numbers import count, counted

ARMS_ACROSS = 4  # more columns of values do not fit a page
ALL_TOLD, FIRST_TOLD = 4, 2  # arms whose sentences all stand on the first screen; sentences of each of more arms
WORST_FIRST = (Status.UNSTABLE, Status.SUSPECT, Status.CANNOT_SAY, Status.HEALTHY)


@dataclass(frozen=True, kw_only=True)
class ArmView:
    """One arm, ready to show; one beyond those drawn has no swatch."""

    name: str
    label: str  # in the figures, where it differs from the name
    baseline: bool
    tagged: bool  # the baseline, under a name that does not say so
    swatch: Swatch | None
    status: str
    status_word: str
    runs: str
    steps: str
    tokens: str


@dataclass(frozen=True, kw_only=True)
class ToldOf:
    """What the comparison says of one arm: the first of it shown, the rest on demand where there are many arms."""

    arm: str
    swatch: Swatch | None
    first: tuple[str, ...]
    rest: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ComparePage:
    """Everything that the page says outside its figures."""

    title: str
    headline: str
    told: tuple[ToldOf, ...]  # of each arm
    general: tuple[str, ...]  # of all
    facts: tuple[tuple[str, str], ...]
    arms: tuple[ArmView, ...]
    growth: tuple[GrowthTable, ...]
    differing: tuple[SettingRow, ...]
    alike: tuple[SettingRow, ...]
    alone: tuple[SettingRow, ...]  # recorded by one arm: nothing to set it against
    arms_down: bool  # of the settings that differ: one row an arm, where there are more arms than settings
    not_compared: tuple[tuple[str, str, str], ...]
    one_run_each: bool


def page(comparison: Comparison) -> ComparePage:
    """Put a comparison into words."""
    told, general = _told(comparison)
    differing, alike, alone = settings(comparison)
    names = frozenset(name for arm in comparison.arms for name in (arm.name, *(one.name for one in arm.members)))
    return ComparePage(
        title=" / ".join(shortened(arm_name(arm.name), 40) for arm in comparison.arms[:3])
        + (" / …" if len(comparison.arms) > 3 else ""),
        headline=safe(comparison.headline),
        told=told,
        general=general,
        facts=_facts(comparison),
        arms=tuple(_arm(comparison, arm, index) for index, arm in enumerate(comparison.arms)),
        growth=growth_tables(comparison),
        differing=differing,
        alike=alike,
        alone=alone,
        arms_down=len(comparison.arms) > max(ARMS_ACROSS, len(differing)),
        not_compared=tuple(
            (sentence(item.what).rstrip("."), _clause(item.reason, names), sentence(item.enable))
            for item in comparison.not_compared
        ),
        one_run_each=all(len(arm.members) == 1 for arm in comparison.arms),
    )


def _clause(text: str, names: frozenset[str]) -> str:
    """Give a clause its capital and full stop, but leave a run's name at its head as it is."""
    named = any(text.startswith(name) for name in names)
    return safe(text).rstrip(".") + "." if named else sentence(text)


def _told(comparison: Comparison) -> tuple[tuple[ToldOf, ...], tuple[str, ...]]:
    """Sort the sentences by the arm that they begin with; a name may begin another, so the longest counts."""
    of_arms: dict[str, list[str]] = {arm.name: [] for arm in comparison.arms}
    cautions: set[str] = set()
    general = []
    for text in comparison.sentences:
        named = max((name for name in of_arms if text.startswith(f"{name}: ")), key=len, default=None)
        if named is None:
            general.append(safe(text))
        else:
            of_arms[named].append(sentence(text[len(named) + 2 :]))
            if text in comparison.cautions:
                cautions.add(of_arms[named][-1])
    shown = len(max(of_arms.values(), key=len, default=[])) if len(of_arms) <= ALL_TOLD else FIRST_TOLD
    drawn = looks(comparison)
    told = tuple(
        ToldOf(
            arm=arm_name(name),
            swatch=swatch(drawn[name]) if name in drawn else None,
            first=(*texts[:shown], *(text for text in texts[shown:] if text in cautions)),
            rest=tuple(text for text in texts[shown:] if text not in cautions),
        )
        for name, texts in of_arms.items()
        if texts
    )
    return told, tuple(general)


def _facts(comparison: Comparison) -> tuple[tuple[str, str], ...]:
    runs = sum(len(arm.members) for arm in comparison.arms)
    pair = pair_name(comparison.pair) if comparison.pair else "none that all arms share"
    told = [
        ("Arms", f"{count(len(comparison.arms))} ({counted(runs, 'run')})"),
        ("Baseline", arm_name(comparison.arms[0].name) if comparison.arms else "none"),
        ("Pair", pair),
    ]
    for axis, name in (("steps", "Matched by steps"), ("tokens", "Matched by tokens")):
        told.append((name, range_words(comparison, axis) or "not possible"))
    return tuple(told)


def _arm(comparison: Comparison, arm: Arm, index: int) -> ArmView:
    look = looks(comparison).get(arm.name)
    statuses = Counter(member.diagnosis.verdict.status for member in arm.members)
    worst = next((status for status in WORST_FIRST if statuses[status]), Status.CANNOT_SAY)
    words = [
        STATUSES[status] if len(arm.members) == 1 else f"{count(statuses[status])} {STATUSES[status].lower()}"
        for status in WORST_FIRST
        if statuses[status]
    ]
    label = look.label if look is not None and look.label != arm.name else ""
    runs = [member.diagnosis.run for member in arm.members]
    return ArmView(
        name=arm_name(arm.name),
        label=label,
        baseline=index == 0,
        tagged=index == 0 and arm.name != "baseline",
        swatch=None if look is None else swatch(look),
        status=worst.value,
        status_word=", ".join(words) or STATUSES[Status.CANNOT_SAY],
        runs=", ".join(arm_name(member.name) for member in arm.members),
        steps=_range(run.step_count for run in runs),
        tokens=_range(run.model_tokens for run in runs),
    )


def _range(values: Iterable[int]) -> str:
    every = sorted(set(values))
    if not every:
        return "none"
    return count(every[0]) if len(every) == 1 else f"{count(every[0])} to {count(every[-1])}"
