"""From the runs on a command line to arms: what each is called, which belong together, which is the baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ptt.diagnostics.compare.comparison import Arm, Member
from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.store.archives import run_name
from ptt.diagnostics.store.diagnosis import LoadedRun

MAX_ARMS: Final = 24  # more than a reader can tell apart in any table or figure
MAX_PARENTS: Final = 4  # parents that are named to tell two runs of one name apart
OUTPUT_NAMES: Final = ("store", "findings.json")  # names of what `ptt diagnose` writes
USAGE: Final = "ptt compare RUN RUN..., or --group NAME=RUN,RUN --group NAME=RUN,RUN"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Which runs make up which arm, before any of them is opened; the baseline comes first."""

    runs: tuple[Path, ...]
    names: tuple[str, ...]  # one a run
    arms: tuple[tuple[str, tuple[int, ...]], ...]  # name -> places in `runs`


def group_of(text: str) -> tuple[str, tuple[str, ...]]:
    """Read one `--group NAME=RUN,RUN`."""
    name, separator, rest = text.partition("=")
    members = tuple(part.strip() for part in rest.split(",") if part.strip())
    if not separator or not name.strip() or not members:
        raise SettingsError(f"--group {text}: a group is written NAME=RUN,RUN; for example --group kl=seed1,seed2")
    return name.strip(), members


def planned(runs: Sequence[Path], groups: Mapping[str, Sequence[str | Path]], baseline: str | None) -> Plan:
    """Name the runs and put them together to arms; a group may bring runs that are not given by themselves."""
    given = list(runs)
    for wanted in (run for members in groups.values() for run in members):
        if find_run(wanted, given, names_of(given)) is None and Path(wanted).exists():
            given.append(Path(wanted))
    names = names_of(given)
    places: dict[str, list[int]] = {}
    for group, members in groups.items():
        places[group] = []
        for wanted in members:
            index = find_run(wanted, given, names)
            if index is None:
                raise SettingsError(
                    f"--group {group}: {wanted} is neither one of the runs nor a path; the runs are {', '.join(names)}."
                )
            places[group].append(index)
    return plan(given, names, places, baseline)


def names_of(runs: Sequence[Path]) -> list[str]:
    """Call each run by its folder or file; equal names take along those of the folders around them."""
    homes = [_named_by(run.resolve()) for run in runs]
    names = [run_name(home) for home in homes]
    for depth in range(MAX_PARENTS):
        twice = {name for name in names if names.count(name) > 1}
        names = [
            f"{home.parents[depth].name}-{name}" if name in twice and len(home.parents) > depth else name
            for home, name in zip(homes, names, strict=True)
        ]
    return [name if names.count(name) == 1 else f"{name}-{1 + names[:at].count(name)}" for at, name in enumerate(names)]


def _named_by(home: Path) -> Path:
    """Return the path whose name is the run's: of what `ptt diagnose` left, the folder around it."""
    return home.parent if home.name in OUTPUT_NAMES else home


def plan(runs: Sequence[Path], names: Sequence[str], groups: Mapping[str, Sequence[int]], baseline: str | None) -> Plan:
    """Group runs into arms; `groups` holds places in `runs`, and a run of no group is an arm of its own."""
    _no_run_twice(runs)
    homes: dict[int, str] = {}
    for name, places in groups.items():
        for index in places:
            if index in homes:
                again = f"{names[index]} is in --group {homes[index]} and in --group {name}"
                raise SettingsError(f"{again}; a run belongs to one arm.")
            homes[index] = name
    arms: dict[str, list[int]] = {}
    for index, own in enumerate(names):
        arms.setdefault(homes.get(index, own), []).append(index)
    for name, members in arms.items():
        if any(homes.get(index) != name for index in members) and name in groups:
            raise SettingsError(f"--group {name}: a run outside the group has the same name; rename the group.")
    if len(arms) < 2:
        raise SettingsError(f"one arm alone has nothing to compare with; give at least two: {USAGE}.")
    if len(arms) > MAX_ARMS:
        raise SettingsError(f"{len(arms)} arms are more than {MAX_ARMS}; group seeds with --group NAME=RUN,RUN.")
    first = _baseline(baseline, arms, names)
    ordered = [first, *(name for name in arms if name != first)]
    return Plan(runs=tuple(runs), names=tuple(names), arms=tuple((name, tuple(arms[name])) for name in ordered))


def find_run(wanted: str | Path, runs: Sequence[Path], names: Sequence[str]) -> int | None:
    """Return the place of the run that is meant by a name, or by its path."""
    if str(wanted) in names:
        return list(names).index(str(wanted))
    homes = [run.resolve() for run in runs]
    path = Path(wanted).resolve()
    if path in homes:
        return homes.index(path)
    same = [index for index, home in enumerate(homes) if home.name == str(wanted)]
    return same[0] if len(same) == 1 else None


def arms_of(planned: Plan, opened: Sequence[LoadedRun]) -> tuple[Arm, ...]:
    """Return the arms of the runs as they were opened, in the order of the plan."""
    arms = []
    for name, places in planned.arms:
        sources = [opened[index].source for index in places]
        for at, index in enumerate(places):
            if sources[at] and sources[at] in sources[:at]:
                first = planned.names[places[sources.index(sources[at])]]
                raise SettingsError(
                    f"{planned.names[index]} and {first} have the same files: in one arm they would count as two "
                    "seeds that agree; leave one out."
                )
        members = tuple(
            Member(
                name=planned.names[index],
                diagnosis=opened[index].diagnosis,
                profile=opened[index].profile,
                why_no_profile=opened[index].why_no_profile,
                source=opened[index].source,
            )
            for index in places
        )
        arms.append(Arm(name=name, members=members))
    return tuple(arms)


def _no_run_twice(runs: Sequence[Path]) -> None:
    seen: set[Path] = set()
    for run in runs:
        home = run.resolve()
        if home in seen:
            raise SettingsError(f"{run}: given twice; a run cannot be compared with itself. Leave one of them out.")
        seen.add(home)


def _baseline(wanted: str | None, arms: Mapping[str, Sequence[int]], names: Sequence[str]) -> str:
    if wanted is None:
        return next(iter(arms))
    if wanted in arms:
        return wanted
    for name, places in arms.items():
        if len(places) == 1 and names[places[0]] == wanted:
            return name
    raise SettingsError(f"--baseline {wanted}: no arm has that name; the arms are {', '.join(arms)}.")
