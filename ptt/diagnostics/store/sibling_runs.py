"""Distinguish a folder that is one run from one that holds several, by what trainers and trackers left in it.

A folder is one run unless two places below it hold records that cannot belong to one: of the same kind, over the same
steps from the start, but with different histories. Ranks, checkpoints, segments of a resumed run, a tracker's folder
and the dumps beside a trainer's output are parts of one run."""

from __future__ import annotations

import re
from collections import Counter as Tally
from dataclasses import field
from pathlib import Path
from typing import Final

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.parsers import PARSERS
from ptt.diagnostics.parsers.io.interface import RunFile, parser_of
from ptt.diagnostics.parsers.io.run_files import by_number
from ptt.diagnostics.store.archives import is_packed
from ptt.diagnostics.store.folder_roles import (
    CHECKPOINT,
    DUMPS,
    EVENT_FOLDER,
    LOG_NAME,
    MLFLOW_RUN,
    NUMBER,
    RANK,
    RUN_NUMBER,
    WANDB_FILE,
    WANDB_RUN,
    Folder,
    is_output,
    is_part,
)
from ptt.diagnostics.store.run_places import (
    MARKS,
    MLFLOW,
    STATE,
    STRONG,
    TENSORBOARD,
    TOKENS,
    WANDB,
    Conflict,
    Place,
    conflict_reason,
    conflicts,
    owners_before,
    run_beside,
    same_history,
    some,
    why_one_run,
)

BY_NAME: Final = {STATE: "trainer_state.json", TENSORBOARD: ".tfevents."}
MAX_LOOKED_AT: Final = 12  # files of one folder whose content is looked at: dumps are alike
LOG_FILE: Final = re.compile(r"\.(?:jsonl?|csv|tsv|log|txt|out)(?:\.gz|\.zst)?$", re.IGNORECASE)
PART_LOG: Final = re.compile(
    r"(?:^|[-_.])(?:train|training|val|valid|validation|eval|evaluation|test|dev|rank|node|worker|gpu|proc|host|env|monitor"
    r"|actor|critic|learner|step|iter|epoch|round|part|shard|chunk|batch|checkpoint|ckpt|layer|head|fold)[-_.]?\d*(?=[-_.]|$)",
    re.IGNORECASE,
)
"""A run has several folders named like this, or one beside others: each is a part."""
MIN_UNLIKE: Final = 4  # folders with different records: a run has its trainer's, its trackers' and its dumps'
MIN_KINDS: Final = 3


@dataclass(frozen=True, kw_only=True)
class SiblingRun:
    """One of several runs in a folder."""

    path: Path  # what to give for it
    rel: str  # relative to the folder
    mark: str  # what identifies it: "trainer_state.json", "W&B run 1a2b3c"


@dataclass(frozen=True, kw_only=True)
class FolderRuns:
    """Whether a folder is one run or several, and why."""

    folder: Path
    runs: tuple[SiblingRun, ...] = ()  # empty if the folder is one run
    reason: str = ""
    notes: tuple[str, ...] = ()  # files that belong to no run, records that two runs share

    @property
    def several(self) -> bool:
        """Whether the folder holds more than one run."""
        return len(self.runs) > 1


def find_runs(folder: Path) -> FolderRuns:
    """Say whether a folder is one run or several; files, archives and folders that cannot be entered count as one."""
    home = folder.resolve()
    if not home.is_dir():
        return FolderRuns(folder=folder)
    content = _look(Folder(home, "", home))
    verdict = _decide(content)
    if not verdict.places:
        return FolderRuns(folder=folder, reason=verdict.reason)
    runs = tuple(
        SiblingRun(path=folder / place.rel, rel=place.rel, mark=place.mark)
        for place in sorted(verdict.places, key=lambda place: by_number(place.rel))
    )
    return FolderRuns(folder=folder, runs=runs, reason=verdict.reason, notes=tuple(verdict.notes))


@dataclass(kw_only=True)
class _Content:
    """What lies in a folder: records of its own, and places that may be runs."""

    folder: Folder
    own: dict[str, list[RunFile]] = field(default_factory=dict)
    own_trackers: set[str] = field(default_factory=set)  # ids of W&B logs that lie directly in it
    places: list[Place] = field(default_factory=list)
    several: list[_Verdict] = field(default_factory=list)  # folders below that hold several runs
    archives: list[RunFile] = field(default_factory=list)
    loose: list[str] = field(default_factory=list)  # files and folders that belong to no place
    conflict: Conflict | None = None  # between files named by the numbers of their runs

    @property
    def is_run(self) -> bool:
        """Whether it has a record that only a run itself has."""
        return any(kind in self.own for kind in STRONG)

    def take(self, part: _Content) -> None:
        """Count what lies in a part of the folder as its own."""
        for kind, files in part.own.items():
            self.own.setdefault(kind, []).extend(files)
        self.own_trackers |= part.own_trackers
        self.places += part.places
        self.several += part.several
        self.loose += part.loose
        self.conflict = self.conflict or part.conflict


@dataclass(frozen=True, kw_only=True)
class _Verdict:
    """The places that are runs of their own; none if the whole folder is one run."""

    places: tuple[Place, ...] = ()
    reason: str = ""
    notes: tuple[str, ...] = ()


def _look(folder: Folder) -> _Content:
    """Collect what a folder holds, down to the places that may be runs."""
    content = _Content(folder=folder)
    _look_at_files(content)
    for child in folder.folders():
        if content.is_run and (CHECKPOINT.fullmatch(child.name) or not is_part(child)):
            continue  # anything else there is a part of it
        if is_output(child):
            continue
        if (tracked := _tracked(child)) is not None:
            content.places.append(tracked)
            continue
        inside = _look(child)
        if is_part(child) and (content.is_run or not _has_own_state(inside)):
            content.take(inside)
        else:
            _add_place(content, inside)
    return content


def _has_own_state(content: _Content) -> bool:
    """Return whether a folder named like a part (reward, lora, results) may be a run beside others."""
    name = content.folder.name
    return STATE in content.own and not CHECKPOINT.fullmatch(name) and not RANK.fullmatch(name)


def _look_at_files(content: _Content) -> None:
    """Sort the files directly in a folder: its own records by kind, archives, and others."""
    shapes: Tally[str] = Tally()
    tracked: dict[str, list[RunFile]] = {}
    lone: list[Place] = []
    logs: list[tuple[str, RunFile]] = []  # with the kind of each
    for file in content.folder.files:
        if is_packed(file.name):
            content.archives.append(file)
        elif match := WANDB_FILE.fullmatch(file.name):
            tracked.setdefault(match[1], []).append(file)
        elif kind := next((kind for kind, mark in BY_NAME.items() if mark in file.name), ""):
            content.own.setdefault(kind, []).append(file)
        else:
            shape = NUMBER.sub("#", file.name)
            of_run = RUN_NUMBER.search(file.name) is not None
            again = shapes[shape] > 0
            if not of_run and (len(shapes) >= MAX_LOOKED_AT or (again and not _may_be_whole(file, shapes[shape]))):
                continue
            shapes[shape] += 1
            kind = _kind(file)
            if again and not of_run:
                logs += [(kind, file)] if kind and kind not in STRONG else []
                continue
            if of_run and kind and kind not in STRONG:
                lone.append(Place(rel=file.rel, mark=file.name, records={kind: [file]}, tracked_only=True))
                continue
            if kind:
                content.own.setdefault(kind, []).append(file)
                logs += [(kind, file)] if kind not in STRONG and not PART_LOG.search(file.name) else []
            content.loose.append(file.rel)
    _add_lone_logs(content, lone)
    _add_runs_beside(content, [*logs, *((TENSORBOARD, file) for file in content.own.get(TENSORBOARD, ()))])
    if len(tracked) == 1:
        content.own[WANDB] = next(iter(tracked.values()))
        content.own_trackers = set(tracked)
    else:
        content.places += [
            Place(rel=files[0].rel, mark=f"W&B run {run}", tracker=run, records={WANDB: files}, tracked_only=True)
            for run, files in tracked.items()
        ]


def _add_lone_logs(content: _Content, lone: list[Place]) -> None:
    """Count logs called seed_1, seed_2 ... as places if they conflict, and as the folder's own otherwise."""
    content.conflict = next(conflicts(lone, weak=True), None)
    if content.conflict is not None:
        content.places += lone
        return
    for place in lone:
        for kind, files in place.records.items():
            content.own.setdefault(kind, []).extend(files)
            content.loose += [file.rel for file in files]


def _may_be_whole(file: RunFile, seen: int) -> bool:
    """Return whether a file named like an earlier one, except for a number, may be the log of another run."""
    named = LOG_FILE.search(file.name) and not PART_LOG.search(file.name) and not DUMPS.fullmatch(file.name)
    return bool(named) and seen < MAX_LOOKED_AT


def _add_runs_beside(content: _Content, logs: list[tuple[str, RunFile]]) -> None:
    """Count logs in one folder as places if two of them belong to two runs."""
    for kind in dict.fromkeys(kind for kind, _ in logs):
        files = [file for known, file in logs if known == kind]
        places = [Place(rel=file.rel, mark=file.name, records={kind: [file]}, beside=True) for file in files]
        pair = run_beside(places, kind) if len(places) > 1 and content.conflict is None else None
        if pair is None:
            continue
        content.conflict = pair
        runs = [place for place in places if _is_run(place, pair)]
        content.places += runs
        taken = {place.rel for place in runs}
        content.own[kind] = [file for file in content.own.get(kind, ()) if file.rel not in taken]
        if not content.own[kind]:
            del content.own[kind]


def _is_run(place: Place, pair: Conflict) -> bool:
    """Return whether a log is a run of its own, as two others in its folder are."""
    first, second, kind = pair
    return any(place is one or run_beside([place, one], kind) is not None for one in (first, second))


def _kind(file: RunFile) -> str:
    """Return the kind of training record that a file is; "" if it is none."""
    parser = parser_of(file, PARSERS)
    file.looks.clear()
    if parser is None or not parser.of_training:
        return ""
    return parser.name


def _tracked(folder: Folder) -> Place | None:
    """Return a tracker's folder of one run: of W&B, MLflow, or TensorBoard as transformers and Lightning name it."""
    if match := WANDB_RUN.fullmatch(folder.name):
        logs = [file for file in folder.files if WANDB_FILE.fullmatch(file.name)]
        records = {WANDB: logs} if logs else {}
        return Place(rel=folder.rel, mark=f"W&B run {match[1]}", tracker=match[1], records=records, tracked_only=True)
    if MLFLOW_RUN.fullmatch(folder.name) and {"meta.yaml", "metrics", "params"} & folder.names:
        logs = [file for child in folder.folders() if child.name == "metrics" for file in _all_files(child)]
        records = {MLFLOW: logs} if logs else {}
        return Place(
            rel=folder.rel,
            mark=f"MLflow run {folder.name[:8]}",
            tracker=folder.name,
            records=records,
            tracked_only=True,
        )
    if EVENT_FOLDER.fullmatch(folder.name):
        logs = [file for file in folder.files if ".tfevents." in file.name]
        if logs:
            return Place(rel=folder.rel, mark="TensorBoard events", records={TENSORBOARD: logs}, tracked_only=True)
    return None


def _all_files(folder: Folder) -> list[RunFile]:
    return [*folder.files, *(file for child in folder.folders() for file in _all_files(child))]


def _add_place(content: _Content, child: _Content) -> None:
    """Count a folder below as a place that may be a run, as several, or as nothing."""
    verdict = _Verdict() if child.is_run else _decide(child)
    if verdict.places:
        content.several.append(verdict)
        return
    records = dict(child.own)
    trackers = set(child.own_trackers)
    for place in () if child.is_run else child.places:  # a tracker's folder, or the one folder that all lies in
        for kind, files in place.records.items():
            records.setdefault(kind, []).extend(files)
        trackers |= {place.tracker} - {""}
    if not records and not child.places and not _is_log_folder(child):
        content.loose.append(f"{child.folder.rel}/")
        return
    tracker = trackers.pop() if len(trackers) == 1 else ""
    content.places.append(Place(rel=child.folder.rel, mark=_mark(records, tracker), tracker=tracker, records=records))


def _is_log_folder(content: _Content) -> bool:
    """Return whether a folder in which nothing was recognised has a file named like a log, worth mentioning."""
    return any(LOG_NAME.fullmatch(name.rsplit("/", 1)[-1]) for name in content.loose)


def _mark(records: dict[str, list[RunFile]], tracker: str) -> str:
    for kind in STRONG:
        if kind in records:
            return f"W&B run {tracker}" if kind == WANDB and tracker else MARKS[kind]
    return next((files[0].name for files in records.values()), "files named like logs")


def _decide(content: _Content) -> _Verdict:
    """Say whether the places in a folder are runs of their own."""
    if content.is_run:
        return _Verdict()
    places = content.places
    if content.several:
        below = [place for verdict in content.several for place in verdict.places]
        notes = [note for verdict in content.several for note in verdict.notes]
        return _runs(content, below, content.several[0].reason, notes)
    if not places and not content.own and len(content.archives) > 1:
        packed = tuple(Place(rel=file.rel, mark="an archive") for file in content.archives)
        return _Verdict(
            places=packed,
            reason=f"{content.folder.rel or 'it'} contains {len(packed)} archives and nothing else ptt reads",
        )
    if _is_logged_by_tracker(content):
        return _Verdict()
    pair = content.conflict or next(conflicts(places, weak=not content.own), None)
    if pair is not None:
        return _runs(content, [], conflict_reason(*pair), [])
    if not content.own and (reason := _unlike(places)):
        return _runs(content, [], reason, [])
    return _Verdict(reason=why_one_run(places))


def _unlike(places: list[Place]) -> str:
    """Report it if so many folders hold records of so many kinds that they cannot be parts of one run."""
    holders = [place for place in places if place.records and not place.tracked_only]
    kinds = {frozenset(place.records) for place in holders}
    if len(holders) < MIN_UNLIKE or len(kinds) < MIN_KINDS:
        return ""
    return f"{some([place.rel for place in holders])} have records of {len(kinds)} kinds, and none is named as a part"


def _is_logged_by_tracker(content: _Content) -> bool:
    """Return whether a folder's own metrics are those of a tracker's run below it: earlier tries lie beside that."""
    if content.conflict or not all(place.tracked_only for place in content.places):
        return False
    own = Place(rel="", records={kind: files[:1] for kind, files in content.own.items()})
    return any(same_history(place, own) for place in content.places)


def _runs(content: _Content, below: list[Place], reason: str, notes: list[str]) -> _Verdict:
    """Make every place a run, but a tracker's folder that logged one of the others."""
    whole = [place for place in content.places if not place.tracked_only]
    kept = [*below, *whole]
    tracked = [place for place in content.places if place.tracked_only]
    every = [*kept, *tracked] if tracked else []
    likely = owners_before(
        [(id(place), place.history(kind)) for place in every for kind in place.records if kind not in TOKENS]
    )
    for place in tracked:
        asked = (run for run in kept if _one_tracker(run, place) or id(run) in likely.get(id(place), ()))
        twin = next((run for run in asked if _holds(run, place)), None)
        if twin is not None:
            notes.append(f"Not judged again, because {twin.rel} is the same run: {place.rel}.")
        elif place.records or not kept:
            kept.append(place)
        else:
            notes.append(f"Not judged, because nothing was logged there: {place.rel}.")
    kept_files = {file.rel for place in kept for files in place.records.values() for file in files}
    loose = sorted({*content.loose, *(file.rel for file in content.archives)} - kept_files, key=by_number)
    notes += _resumed(kept)
    if loose:
        notes.append(f"Not part of any run: {some(loose)}.")
    return _Verdict(places=tuple(kept), reason=reason, notes=tuple(notes))


def _holds(run: Place, tracked: Place) -> bool:
    """Return whether a run's own records are what a tracker logged; two of a tracker's folders are parts of a run."""
    resumed = run.tracked_only and _one_tracker(run, tracked)
    return not resumed and same_history(tracked, run)


def _one_tracker(run: Place, tracked: Place) -> bool:
    return tracked.tracker != "" and tracked.tracker == run.tracker


def _resumed(places: list[Place]) -> list[str]:
    """Say which tracker folders belong to one resumed run: each is judged separately."""
    segments: dict[str, list[str]] = {}
    for place in places:
        if place.tracker and place.tracked_only:
            segments.setdefault(place.mark, []).append(place.rel)
    return [
        f"{mark} was resumed; each part is judged separately: {some(parts)}."
        for mark, parts in segments.items()
        if len(parts) > 1
    ]
