"""Places in a folder where a run may lie, and whether two of them can be of one run, by their records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Final

from ptt.diagnostics.parsers.io.interface import RunFile
from ptt.diagnostics.store.folder_roles import NUMBER, RANK
from ptt.diagnostics.store.run_histories import (
    History,
    Relation,
    Span,
    differ_throughout,
    relate_histories,
    relate_spans,
)

STATE: Final = "trl_state"
WANDB: Final = "wandb"
TENSORBOARD: Final = "tensorboard"
MLFLOW: Final = "mlflow_files"
TOKENS: Final = (
    "recorder", "recorder_jsonl", "nemo_tokens", "prime_tokens", "slime_dumps", "skyrl_batches", "verl_batches",
    "token_tensors", "token_tables",
)  # fmt: skip
STRONG: Final = (STATE, WANDB, TENSORBOARD, MLFLOW, *TOKENS)
"""Kinds that a run has of its own; a CSV, JSON lines or a console log may be of a part of it, or of many."""
MARKS: Final = {
    STATE: "trainer_state.json",
    WANDB: "a W&B log",
    TENSORBOARD: "TensorBoard events",
    MLFLOW: "an MLflow run",
    **dict.fromkeys(TOKENS, "token records"),
}
MAX_NAMED: Final = 5  # spelt out in a sentence
MIN_ALIKE: Final = 2  # metrics that two logs share whose names differ by a number: beta0.1, beta0.3
MIN_UNLIKE: Final = 3  # and of others: the losses of an actor and a critic are of one run
MIN_STEPS: Final = 4  # of a log that is a run of its own
MIN_SHARE: Final = 0.1  # of the steps of the longest, below which a start was given up
MAX_COMPARED: Final = 64  # places compared with one another: of more, two that conflict were found long before


@dataclass(kw_only=True)
class Place:
    """Where a run may lie: a folder or a file, with the records in it by kind."""

    rel: str
    mark: str = ""
    tracker: str = ""  # the tracker's id of the run
    records: dict[str, list[RunFile]] = field(default_factory=dict)
    tracked_only: bool = False  # a tracker's folder, or a lone log, which may be of a run that lies elsewhere
    beside: bool = False  # a log among others in one folder, each of a run of its own
    _histories: dict[str, History] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.rel.rsplit("/", 1)[-1]

    def history(self, kind: str) -> History:
        """Return what its records of a kind say, read once."""
        if kind not in self._histories:
            self._histories[kind] = History.read(self.records[kind])
        return self._histories[kind]

    @cached_property
    def merged(self) -> History:
        """What all its metrics say together."""
        return History.joined(self.history(kind) for kind in self.records if kind not in TOKENS)


Conflict = tuple[Place, Place, str]
"""Two places that cannot be one run, and the kind of record that tells; empty where they have none in common."""


def conflicts(places: list[Place], *, weak: bool) -> Iterator[Conflict]:
    """Yield pairs of places that cannot be one run; `weak`: by records that a part of a run may have as well."""
    compared = places[:MAX_COMPARED]
    if len(compared) > 1 and all(RANK.fullmatch(place.name) for place in compared):
        return
    for kind in (*STRONG, *sorted({kind for place in compared for kind in place.records} - set(STRONG))):
        if kind not in STRONG and not weak:
            continue
        holders = [place for place in compared if kind in place.records]
        for first, second in combinations(holders, 2):
            if _relation(first, second, kind) in (Relation.CONFLICT, Relation.COPY):
                yield first, second, kind
    whole = [place for place in compared if not place.tracked_only]
    for first, second in combinations(whole, 2) if weak else ():
        if not first.records.keys() & second.records.keys() and differ_throughout(first.merged, second.merged):
            yield first, second, ""


def _relation(first: Place, second: Place, kind: str) -> Relation:
    if kind in TOKENS:
        return relate_spans(_span(first, kind), _span(second, kind))
    relation = relate_histories(first.history(kind), second.history(kind), strong=kind in STRONG)
    if relation is Relation.UNRELATED and _same_bytes(first.records[kind], second.records[kind]):
        relation = Relation.COPY
    if first.tracker and first.tracker == second.tracker:  # resumed under one id, or the whole folder was copied
        copied = relation is Relation.COPY and not (first.tracked_only or second.tracked_only)
        return Relation.COPY if copied else Relation.PART
    return relation


def run_beside(places: list[Place], kind: str) -> Conflict | None:
    """Return two logs in one folder that are of two runs, whatever they are called; None where none certainly are.

    They measure the same over the same steps from the start, with other values. Event files that were written at one
    time are of the ranks of one run.
    """
    for first, second in combinations(places[:MAX_COMPARED], 2):
        one, other = first.history(kind), second.history(kind)
        shared = one.measured & other.measured
        alike = NUMBER.sub("#", first.name) == NUMBER.sub("#", second.name)
        if kind != TENSORBOARD and len(shared) < (MIN_ALIKE if alike else MIN_UNLIKE):
            continue
        if not (shared and _both_from_start(one.span, other.span)) or (kind == TENSORBOARD and _at_once(one, other)):
            continue
        if relate_histories(one.only(shared), other.only(shared), strong=kind == TENSORBOARD) is Relation.CONFLICT:
            return first, second, kind
    return None


def _both_from_start(one: Span, other: Span) -> bool:
    """Return whether both begin where a run does, and neither was given up after a few steps."""
    least, most = sorted((len(one.steps), len(other.steps)))
    return one.from_start and other.from_start and least >= max(MIN_STEPS, MIN_SHARE * most)


def _at_once(one: History, other: History) -> bool:
    """Return whether two records were written at one time, or at nobody knows what time."""
    if one.times is None or other.times is None:
        return True
    return max(one.times[0], other.times[0]) < min(one.times[1], other.times[1])


def _same_bytes(first: list[RunFile], second: list[RunFile]) -> bool:
    """Return whether two places hold the same files, as far as names, sizes and beginnings tell."""
    if [(file.name, file.size) for file in first] != [(file.name, file.size) for file in second]:
        return False
    same = all(a.size and a.readable_head == b.readable_head for a, b in zip(first, second, strict=True))
    for file in (*first, *second):
        file.looks.clear()
    return same


def _span(place: Place, kind: str) -> Span:
    """Return the steps that the names of a place's token files name; those of its folder where they name none."""
    return Span.of_names(_dump_names(place.records[kind]))


def _dump_names(files: list[RunFile]) -> list[str]:
    """List what names the steps of dumps: folders by number where there are several, else all files of that shape."""
    folders = {file.path.parent for file in files}
    if len(folders) > 1 and all(NUMBER.search(folder.name) for folder in folders):
        return [folder.name for folder in folders]
    shapes = {NUMBER.sub("#", file.name) for file in files}
    return [name for folder in folders for name in _names(folder) if NUMBER.sub("#", name) in shapes]


def _names(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except OSError:  # gone meanwhile
        return []


def same_history(tracked: Place, run: Place) -> bool:
    """Return whether a tracker's log and a run's own records say the same."""
    if tracked.tracker and tracked.tracker == run.tracker:
        return True
    kinds = [kind for kind in run.records if kind not in TOKENS]
    return any(
        relate_histories(tracked.history(kind), run.history(own), strong=False, exact=False)
        in (Relation.PART, Relation.COPY)
        for kind in tracked.records
        for own in kinds[:2]
    )


def conflict_reason(first: Place, second: Place, kind: str) -> str:
    """Say why two places cannot be one run, by the kind of record that tells."""
    if not kind:
        return f"{first.rel} ({first.mark}) and {second.rel} ({second.mark}) log different values at the same steps"
    record = MARKS.get(kind) or first.records[kind][0].name
    both = f"{first.rel} and {second.rel} each have {record}"
    if first.tracker and second.tracker:
        both = f"{first.rel} and {second.rel} are {first.mark} and {second.mark}"
    if kind in TOKENS:
        return f"{both} of the same steps"
    relation = relate_histories(first.history(kind), second.history(kind), strong=kind in STRONG)
    same = relation is Relation.COPY
    if (first.tracked_only or first.beside) and kind not in STRONG:
        both = f"{first.rel} and {second.rel} log the same metrics"
    return f"{both} from the start on, {'as copies of one another' if same else 'with different values'}"


def why_one_run(places: list[Place]) -> str:
    """Say why places that hold records are one run; empty where there is nothing to say."""
    holders = [place for place in places if place.records and not place.tracked_only]
    if len(holders) < 2:
        return ""
    for first, second in combinations(holders[:MAX_COMPARED], 2):
        for kind in first.records.keys() & second.records.keys():
            if _relation(first, second, kind) is Relation.CONTINUES:
                return f"{first.rel} and {second.rel} are parts of one history: one continues the other"
    return f"{some([place.rel for place in holders])} have no records that contradict being one run"


def some(names: list[str]) -> str:
    """List the first names, and how many more there are."""
    named = ", ".join(names[:MAX_NAMED])
    return named if len(names) <= MAX_NAMED else f"{named} and {len(names) - MAX_NAMED} more"
