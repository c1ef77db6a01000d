"""Read every file of a run into a Parquet store beside the report; the run dir itself is only read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Final
from zlib import crc32

import polars as pl

from ptt.diagnostics.budget_limits import DEFAULT_LIMITS, BudgetLimits
from ptt.diagnostics.errors import InputError, SettingsError, describe, first_line, is_caught, is_damage, no_room
from ptt.diagnostics.metrics.aliases import is_own
from ptt.diagnostics.parsers.io.budget import Budget, BudgetSpent, to_raise
from ptt.diagnostics.parsers.io.interface import (
    REFUSED,
    Context,
    InPlace,
    Lost,
    Parser,
    Piece,
    Rows,
    RunFile,
    Wide,
    parser_of,
    pieces_of,
    unread,
)
from ptt.diagnostics.parsers.io.run_files import CLOSED, why_closed
from ptt.diagnostics.parsers.io.sqlite import not_read
from ptt.diagnostics.parsers.io.unrecognised import damage, why_not
from ptt.diagnostics.parsers.io.values import MAX_STEP
from ptt.diagnostics.schema import SOURCES, VERSION
from ptt.diagnostics.scrub.scrub import Scrubber
from ptt.diagnostics.store.file_readings import ReadApart, Reading, TornApartError, joined_pieces, why_unread
from ptt.diagnostics.store.folders import clear_unfinished, replaced
from ptt.diagnostics.store.kept_readings import KeptReadings
from ptt.diagnostics.store.manifest import (
    InPlaceFile,
    Manifest,
    Part,
    RunFacts,
    RunSetup,
    WidePart,
    fingerprint,
    read_manifest,
    write_manifest,
)
from ptt.diagnostics.store.metric_names import Renames, is_looked_at, rename
from ptt.diagnostics.store.scan import SingleValues, steps_in_place
from ptt.diagnostics.store.table_parts import FLUSH_ROWS, TableParts, copy_masked, masks_in_place, scrub_pieces
from ptt.diagnostics.store.value_range import MAX_VALUE, bounded_steps
from ptt.diagnostics.store.wide_metrics import evaluation_rows, names_in_wide, scale_columns, write_wide
from ptt.diagnostics.wording import counted

UNRECOGNISED: Final = "unrecognised"
UNREADABLE: Final = "unreadable"  # the system does not let us read it, so nobody knows what it is
RUN_DIR: Final = "(run dir)"  # the source of notes on the run as a whole
NEVER_EMPTY: Final = ".parquet"  # such a file has a footer even without rows
EMPTY: Final = "Empty, without a footer: nothing is left."  # the first note on a file without one
IN_PART: Final = " in part"
"""Suffix of a store's mark if a part could not be read: no run has such a mark, so the next look reads it again. Names,
sizes and times do not show that a file has become readable."""
PIECES: Final = "pieces"  # folder of results kept by range of sequences, for when the run has grown
FLUSH_CELLS: Final = 8_000_000  # in wide pieces: 64 MB, joined before they are written
PACKED_RATIO: Final = 40  # unpacked over packed, as text logs reach
PACKED_FILE: Final = 1024  # bytes of an archive for each file that is given its own time
Progress = Callable[[int, int], None]
ANYWHERE: Final = ""  # in place of a path
UNNAMED: Final = frozenset({"agent_records", "chat_messages", "plain_transcripts", "sample_rows", "sharegpt"})
"""Readers of files that may name no run."""
COPIED_TURNS: Final = 3  # of the agent, from which on an episode is a copy: two models may well give one short answer
TRAJECTORY_TABLES: Final = ("trajectories", "turns", "tool_calls", "rewards", "answers", "conversations")


@dataclass
class BudgetCheck:
    """Counts over all files of a run."""

    out_of_time: bool = False  # reading of a file stopped there: another look may see more
    _sequences: int = 0
    _early: list[Callable[[], Iterable[int | None]]] = field(default_factory=list)

    def pieces(self, file: RunFile, source: Iterator[Piece]) -> Iterator[Piece]:
        """Yield what is read of a file, as far as the budget goes; what lies beyond it is lost."""
        try:
            for piece in source:
                file.budget.tick()
                match piece:
                    case Rows(frame=frame) | Wide(frame=frame):
                        file.budget.rows(frame.height)
                        if isinstance(piece, Rows) and piece.table == "sequences" and "step" in frame.columns:
                            self._count_steps(file, frame.height, frame["step"].unique)
                        piece = _within_names(_without_own(piece), file.budget)
                    case InPlace(rows=rows, columns=columns) if "step" in columns:
                        self._count_steps(file, rows, steps_in_place(file))
                    case _:
                        pass
                yield piece
        except BudgetSpent as spent:
            self.out_of_time |= spent.of_time
            yield unread(file, str(spent))
        if rows := file.budget.deep_rows:
            why = f"nested deeper than {file.budget.limits.depth} levels; {to_raise('depth')}"
            yield Lost(rows=rows, note=f"{file.rel}: {counted(rows, 'row(s)')} lost: {why}.")
        if halves := file.budget.lone_surrogates:
            yield Lost(note=f"{file.rel}: {counted(halves, 'broken character(s)')} in texts, shown as ?.")
        if values := file.budget.refused_values:
            why = f"more than {file.budget.limits.names} metrics in the run; {to_raise('names')}"
            yield Lost(rows=values, note=f"{file.rel}: {counted(values, 'value(s)')} lost: {why}.")

    def _count_steps(self, file: RunFile, rows: int, steps: Callable[[], Iterable[int | None]]) -> None:
        """Hold the steps of sequences against the budget, once there are more sequences than steps allowed."""
        self._sequences += rows
        self._early.append(steps)
        if self._sequences > file.budget.limits.steps:
            for early in self._early:
                file.budget.add_steps(early())
            self._early.clear()


def _without_own(piece: Rows | Wide) -> Rows | Wide:
    """Leave out what a watch of ours wrote into the log that it watched."""
    if isinstance(piece, Wide):
        if not (own := [raw for raw in piece.names if is_own(raw)]):
            return piece
        kept = {raw: name for raw, name in piece.names.items() if raw not in own}
        return Wide(frame=piece.frame.drop(own), names=kept)
    if piece.table != "metrics" or not (own := [raw for raw in piece.frame["name_raw"].unique() if is_own(raw)]):
        return piece
    return replace(piece, frame=piece.frame.filter(~pl.col("name_raw").is_in(own)))


def _within_names(piece: Rows | Wide, budget: Budget) -> Rows | Wide:
    """Leave out metrics beyond the number that a run may have, and count their values."""
    if isinstance(piece, Wide):
        if not (refused := budget.refused(piece.names)):
            return piece
        budget.refused_values += sum(piece.frame.height - piece.frame[raw].null_count() for raw in refused)
        kept = {raw: name for raw, name in piece.names.items() if raw not in refused}
        return Wide(frame=piece.frame.drop(refused), names=kept)
    if piece.table != "metrics" or not (refused := budget.refused(piece.frame["name_raw"].unique())):
        return piece
    frame = piece.frame.filter(~pl.col("name_raw").is_in(refused))
    budget.refused_values += piece.frame.height - frame.height
    return replace(piece, frame=frame)


def ingest(
    files: list[RunFile],
    *,
    notes: list[str],
    parsers: tuple[Parser, ...],
    folder: Path,
    ptt_version: str,
    keep_text: bool = False,
    keep_messages: bool = False,
    beside: str = "",
    metric_names: Mapping[str, str] | None = None,
    limits: BudgetLimits = DEFAULT_LIMITS,
    packed: int | None = None,
    on_file: Progress | None = None,
    read_apart: ReadApart | None = None,
    keep_readings: bool = False,
    single: SingleValues | None = None,
) -> Manifest:
    """Make the store at `folder` from `files`, or keep the one there if it was made from the same files.

    Texts of samples are kept only with `keep_text`, whole conversations only with `keep_messages`. `beside`
    tells what else the store will hold. `metric_names` maps
    logged names to canonical metrics, or to "" for none. `limits` bound the cost of reading; `packed` is the size of
    the archive that the files come from. `on_file` is called with the number of files done, and of all. `read_apart`
    reads the files in other processes. `keep_readings`: the store outlives the call, and may get more files later.
    `single` receives the single values of sequences.
    """
    metric_names = dict(metric_names or {})
    try:
        state = fingerprint(files, metric_names, limits) + (" with texts" if keep_text else "")
        state += (" with messages" if keep_messages else "") + beside
        kept = read_manifest(folder)
        if kept is not None and kept.fingerprint == state and kept.ptt_version == ptt_version:
            clear_unfinished(folder)
            return kept
        budget = _budget(limits, files, packed)
        files = [replace(file, keep_text=keep_text, keep_messages=keep_messages, budget=budget) for file in files]
        whole: set[str] = set()
        while True:
            try:
                with replaced(folder) as part:
                    readings = KeptReadings(folder, ptt_version=ptt_version, limits=limits) if keep_readings else None
                    writer = _Writer(part, readings=readings, single=single)
                    writer.read_all(files, parsers, on_file, read_apart, frozenset(whole))
                    manifest = writer.finish(notes, state, ptt_version, metric_names)
                    write_manifest(part, manifest)
                    if readings is not None:
                        readings.write(part)
                    if (folder / PIECES).is_dir() and not (folder / PIECES).is_symlink():
                        (folder / PIECES).rename(part / PIECES)  # from the run as it was: most of it still holds
                return manifest
            except TornApartError as torn:  # rare: samples of a file are interleaved where it was cut
                whole.add(torn.rel)
    except OSError as error:
        where = str(error.filename or folder)
        if where.startswith(str(folder)) or Path(where) in folder.parents:  # a parent: it could not be made
            reason = error.strerror or error
            raise SettingsError(f"{where}: cannot be written: {reason}; choose another place with --out.") from error
        raise InputError(f"{where}: {error.strerror} while reading the run.") from error


def _budget(limits: BudgetLimits, files: Sequence[RunFile], packed: int | None) -> Budget:
    """Return the budget of a run; for an archive, by its own size rather than the size it claims to unpack to."""
    nbytes, count = sum(file.size for file in files), len(files)
    if packed is not None:
        nbytes, count = min(nbytes, PACKED_RATIO * packed), min(count, packed // PACKED_FILE)
    return Budget(limits, nbytes=nbytes, files=count)


def is_current(
    manifest: Manifest | None,
    files: list[RunFile],
    *,
    ptt_version: str,
    metric_names: Mapping[str, str],
    limits: BudgetLimits,
) -> bool:
    """Return whether a store holds all of these files as they are now, whether with texts or without."""
    if manifest is None or manifest.ptt_version != ptt_version or manifest.fingerprint.endswith(IN_PART):
        return False
    return manifest.fingerprint.startswith(fingerprint(files, dict(metric_names), limits))


@dataclass
class _Tally:
    """What one file came to, and what of it is still to be written."""

    ok: int = 0
    bad: int = 0
    lost: int = 0
    repeated: int = 0
    beyond: int = 0  # values too large to calculate with
    notes: list[str] = field(default_factory=list)
    fresh: dict[str, str] = field(default_factory=dict)  # its trajectories: see `_Writer._seen`
    wide: list[Wide] = field(default_factory=list)
    stepless: int = 0  # rows of a step too large to calculate with

    def with_steps(self, frame: pl.DataFrame, lost: int) -> pl.DataFrame:
        """Count rows that are lost by their step, and return the others."""
        self.stepless, self.bad = self.stepless + lost, self.bad + lost
        return frame


@dataclass
class _Writer:
    """Gathers pieces of all files into a store."""

    folder: Path
    readings: KeptReadings | None = None
    single: SingleValues | None = None
    scrubber: Scrubber = field(default_factory=Scrubber)
    in_place: list[InPlaceFile] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    wide: list[WidePart] = field(default_factory=list)
    offsets: dict[str, set[int | None]] = field(default_factory=dict)  # by file: the UTC offsets that its stamps name
    faults: dict[str, str] = field(default_factory=dict)  # parser or step -> the error, for our own bugs
    facts: RunFacts = field(default_factory=RunFacts)
    setup: RunSetup = field(default_factory=RunSetup)
    checked: BudgetCheck = field(default_factory=BudgetCheck)
    in_part: bool = False  # a file could not be opened, or no time was left to begin it: another look may see more
    _seen: dict[str, str] = field(default_factory=dict)
    """By id of a trajectory: the only file that may hold it, or ANYWHERE if another file that does holds a copy."""
    _sources: list[tuple[str | int | None, ...]] = field(default_factory=list)
    _source_of: dict[str, int] = field(default_factory=dict)  # by path: its place in the list
    _texts: dict[tuple[str, ...], list[tuple[Path, tuple[str, ...], InPlaceFile]]] = field(default_factory=dict)

    @cached_property
    def tables(self) -> TableParts:
        """Rows by table."""
        return TableParts(self.folder, self.scrubber)

    def read_all(
        self,
        files: Sequence[RunFile],
        parsers: Sequence[Parser],
        on_file: Progress | None,
        read_apart: ReadApart | None,
        whole: frozenset[str],
    ) -> None:
        """Read every file, here or in other processes."""
        paths = self.scrubber.paths([file.rel for file in files])
        named = [replace(file, rel=rel) for file, rel in zip(files, paths, strict=True)]
        apart, closed, away = None, dict[str, str](), set[str]()
        if read_apart is not None:
            closed = {file.rel: why for file in named if (why := _look_closed(file))}
            away = {file.rel for file in named if file.rel not in closed and read_apart.takes(file)}
            apart = read_apart.readings([file for file in named if file.rel in away], whole)
        for number, file in enumerate(named, start=1):
            file.budget.begin(file.size)
            if why := closed.get(file.rel, "") if apart else why_closed(file):
                self.skip(file, why)
            elif apart is not None and file.rel in away:
                self.join(file, next(apart), parsers)
            else:
                self.read(file, parsers)
            if on_file is not None:
                on_file(number, len(files))
        self._read_left(named, parsers)

    def _read_left(self, files: Sequence[RunFile], parsers: Sequence[Parser]) -> None:
        """Read plain tables of a run in which no other file gave a row, neither a log nor samples."""
        if any(int(ok or 0) for _, _, _, ok, *_ in self._sources):
            return
        for file in files:
            at = self._source_of[file.rel]
            if self._sources[at][1] != UNRECOGNISED or not file.size:
                continue
            try:
                parser = parser_of(file, parsers, self.fault, last_resort=True)
            except BudgetSpent:
                return
            if parser is not None:
                self._take(file, parser, pieces_of(file, parser, self.fault))
                self._sources[at] = self._sources.pop()
                self._source_of[file.rel] = at
            file.looks.clear()

    def finish(self, notes: Sequence[str], state: str, ptt_version: str, metric_names: Mapping[str, str]) -> Manifest:
        """Write what is still waiting, and describe the store."""
        self.place()
        renames = self.name_metrics(metric_names)
        in_part = self.in_part or self.checked.out_of_time or any(note.startswith(CLOSED) for note in notes)
        manifest = Manifest(
            schema_version=VERSION,
            ptt_version=ptt_version,
            fingerprint=state + IN_PART * in_part,
            in_place=tuple(self.in_place),
            parts=tuple(self.parts),
            wide=tuple(self.wide),
            facts=self.facts.merged(),
            settings=self.setup.settings,
            settings_in_part=not self.setup.whole,
            packages=self.setup.packages,
            faults=self.faults,
            notes=tuple(map(self.scrubber.text, notes)),
            metric_names=dict(metric_names),
            guessed_names={raw: guess.name for raw, guess in renames.guessed.items()},
            guess_reasons={raw: guess.reason for raw, guess in renames.guessed.items() if guess.reason},
            offsets={path: tuple(sorted(found, key=str)) for path, found in self.offsets.items()},
        )
        self.close(renames.notes())
        return manifest

    def skip(self, file: RunFile, why: str) -> None:
        """Note a file that cannot be opened: all of it is lost, whatever it contains."""
        self.in_part = True
        self._source(file, UNREADABLE, lost=file.size, notes=[why])

    def read(self, file: RunFile, parsers: Sequence[Parser]) -> None:
        """Read one file by the parser that recognises it, or note that nothing here reads it."""
        faults = len(self.faults)
        try:
            file.budget.tick()
            if self.readings is not None and (kept := self.readings.take(file, parsers, self.scrubber)):
                self._take(file, kept[0], iter(kept[1:]))
                return
            parser = parser_of(file, parsers, self.fault)
        except BudgetSpent as spent:
            self.in_part |= spent.of_time
            file.looks.clear()
            self._source(file, UNREADABLE, lost=file.size, notes=[f"Not read: {spent}."])
            return
        pieces = None if parser is None else pieces_of(file, parser, self.fault)
        if parser is not None and pieces is not None and self.readings is not None and len(self.faults) == faults:
            pieces = self.readings.watch(file, parser, pieces, self.scrubber)
        self._take(file, parser, pieces)

    def join(self, file: RunFile, readings: Iterator[Reading], parsers: Sequence[Parser]) -> None:
        """Add one file as other processes read it, span by span."""
        first = next(readings)
        if why := why_unread(first):
            self.in_part = True
            self._source(file, UNREADABLE, lost=file.size, notes=[f"Not read: {why}."])
            return
        parser = next((known for known in parsers if known.name == first.parser), None)
        source = None if parser is None else joined_pieces(file, parser, chain([first], readings), self.fault)
        self._take(file, parser, source)

    def _take(self, file: RunFile, parser: Parser | None, source: Iterator[Piece] | None) -> None:
        """Store what is read of a file; `source` is None if no parser reads it."""
        kind = parser.name if parser else UNRECOGNISED
        tally = _Tally(notes=[EMPTY] if not file.size and file.rel.endswith(NEVER_EMPTY) else [])
        if parser is not None and source is not None:
            for piece in self.checked.pieces(file, source):
                with self._edge(file, parser, tally, piece.frame.height if isinstance(piece, Rows) else 0):
                    for scrubbed in scrub_pieces([piece], self.scrubber):
                        self._add(scrubbed, file, parser, tally)
            self._write_waiting(file, parser, tally)
        else:
            tally.notes += [why for why in (file.looks.get(REFUSED) or why_not(file),) if why]
            if why := not_read(file) or ("" if tally.notes else damage(file)):
                tally.lost, tally.notes = file.size, [why, *tally.notes]
        file.looks.clear()
        self._seen |= tally.fresh
        if tally.repeated:
            tally.notes.append(f"{counted(tally.repeated, 'row(s)')} also in an earlier file, counted once.")
        if tally.beyond:
            tally.notes.append(f"{counted(tally.beyond, 'value(s)')} beyond ±{MAX_VALUE:g} read as infinite.")
        if tally.stepless:
            tally.notes.append(f"{counted(tally.stepless, 'row(s)')} lost: a step beyond ±{MAX_STEP}.")
        self._source(file, kind, ok=tally.ok, bad=tally.bad, lost=tally.lost, notes=tally.notes)

    def _without_copies(self, frame: pl.DataFrame, file: RunFile, parser: Parser, tally: _Tally) -> pl.DataFrame:
        """Leave out rows of trajectories that an earlier file holds; rename those of another run that only look so."""
        path = file.rel if parser.name in UNNAMED else ANYWHERE
        names = set(frame["trajectory_id"].unique())
        own = {name: f"{name}-{crc32(path.encode()):08x}" for name in names if self._seen.get(name)}
        frame = frame.with_columns(pl.col("trajectory_id").replace(own)) if own else frame
        names = {own.get(name, name) for name in names}
        if repeated := names & self._seen.keys():
            frame = frame.filter(~pl.col("trajectory_id").is_in(repeated))
        for name in names - repeated:
            tally.fresh.setdefault(name, ANYWHERE)
        if path and "n_turns" in frame.columns:
            short = pl.col("step").is_null() & (pl.col("n_turns").fill_null(0) < COPIED_TURNS)
            tally.fresh |= dict.fromkeys(frame.filter(short)["trajectory_id"], path)
        return frame

    def _add(self, piece: Piece, file: RunFile, parser: Parser, tally: _Tally) -> None:
        """Add a piece's content to the store."""
        match piece:
            case Rows(table=table, frame=frame):
                frame = tally.with_steps(*bounded_steps(frame))
                if table in TRAJECTORY_TABLES:  # TRL writes the same samples again until it generates new ones
                    rows = frame.height
                    frame = self._without_copies(frame, file, parser, tally)
                    tally.repeated += rows - frame.height if table == "trajectories" else 0
                tally.beyond += self._keep(table, frame, parser, file)
                tally.ok += frame.height if table not in TRAJECTORY_TABLES[1:] else 0
            case Wide(frame=frame):
                tally.wide.append(replace(piece, frame=tally.with_steps(*bounded_steps(frame, "__step"))))
                if sum(pending.frame.height for pending in tally.wide) >= FLUSH_ROWS or (
                    sum(pending.frame.height * pending.frame.width for pending in tally.wide) >= FLUSH_CELLS
                ):
                    self._write_waiting(file, parser, tally)
            case InPlace(rows=rows):
                self._in_place(piece, file, parser.name)
                tally.ok += rows
            case Lost(rows=rows, bytes=count, note=note):
                tally.bad, tally.lost = tally.bad + rows, tally.lost + count
                tally.notes += [note] if note else []
            case Context(facts=facts, offsets=offsets):
                if offsets:
                    self.offsets.setdefault(file.rel, set()).update(offsets)
                self.setup.add(piece.settings, piece.packages, parser.priority)
                self.setup.whole |= bool(piece.settings) and not piece.in_part
                if lost := self.facts.add(facts, parser.priority):
                    tally.bad += len(lost)
                    tally.notes.append(
                        f"{file.rel}: {counted(len(lost), 'setting(s)')} with impossible numbers: {', '.join(lost)}."
                    )

    @contextmanager
    def _edge(self, file: RunFile, parser: Parser, tally: _Tally, rows: int) -> Iterator[None]:
        """Lose `rows` rows that cannot be stored, without losing the rest of the file or the report."""
        try:
            yield
        except BaseException as error:
            if isinstance(error, OSError) or no_room(error) or not is_caught(error):  # an error of the disk we write to
                raise
            tally.bad += rows
            why = self.scrubber.text(first_line(error))
            tally.notes.append(f"{file.rel}: {counted(rows, 'row(s)')} not stored: {why}.")
            if not is_damage(error):
                self.fault(parser.name, describe(error))

    def fault(self, name: str, error: str) -> None:
        """Keep the first fault of ours that a parser or a step shows."""
        self.faults.setdefault(name, self.scrubber.text(error))

    def _in_place(self, piece: InPlace, file: RunFile, kind: str) -> None:
        """Note a file that is scanned where it lies."""
        noted = InPlaceFile(path=file.rel, rows=piece.rows, columns=piece.columns, kind=kind)
        self._texts.setdefault(tuple(self.scrubber.names(piece.texts)), []).append((file.path, piece.texts, noted))

    def place(self) -> None:
        """Leave files in place; copy those that contain something to mask, or that are now found under another name."""
        for names, files in self._texts.items():
            texts = files[0][1]
            kinds = {(noted.columns, noted.kind) for _, _, noted in files}
            alike = files[0][2] if len(kinds) == len(self._texts) == 1 else None
            masks = masks_in_place([path for path, _, _ in files], texts, self.scrubber, held=self.single, alike=alike)
            for path, _, noted in files:
                if not masks and names == texts and path.as_posix().endswith(noted.path):
                    self.in_place.append(noted)
                    continue
                target = self.tables.next_part("sequences")
                try:
                    copy_masked(path, masks, target, self.scrubber)
                except (OSError, pl.exceptions.PolarsError) as error:
                    if no_room(error):
                        raise
                    self._lose(noted, error)
                    continue
                self.parts.append(
                    Part(
                        name=target.name,
                        source=noted.path,
                        first_row=0,
                        kind=noted.kind,
                        rows=noted.rows,
                        columns=noted.columns,
                    )
                )

    def _lose(self, noted: InPlaceFile, error: BaseException) -> None:
        """Count all rows of a file as lost that was read, and went away or shows its damage when it is copied."""
        note = self.scrubber.text(f"{noted.path}: {counted(noted.rows, 'row(s)')} not copied: {first_line(error)}.")
        at = self._source_of[noted.path]
        path, kind, size, ok, bad, lost, before = self._sources[at]
        counts = int(ok or 0) - noted.rows, int(bad or 0) + noted.rows
        notes = " ".join(str(part) for part in (before, note) if part)
        self._sources[at] = (path, kind, size, *counts, lost, notes)

    def _source(
        self, file: RunFile, kind: str, *, ok: int = 0, bad: int = 0, lost: int = 0, notes: Sequence[str]
    ) -> None:
        self._source_of[file.rel] = len(self._sources)
        self._sources.append((file.rel, kind, file.size, ok, bad, lost, " ".join(notes) or None))

    def _write_waiting(self, file: RunFile, parser: Parser, tally: _Tally) -> None:
        """Write the waiting wide pieces of a file, and count their values."""
        if not tally.wide:
            return
        pieces, tally.wide = tally.wide, []
        with self._edge(file, parser, tally, sum(piece.frame.height for piece in pieces)):
            part, beyond = write_wide(self.folder, len(self.wide), pieces, file.rel, parser.priority)
            self.wide.append(part)
            tally.beyond += beyond
            tally.ok += sum(column.values for column in part.columns)

    def _keep(self, table: str, frame: pl.DataFrame, parser: Parser, file: RunFile) -> int:
        """Keep rows of a table; return how many of their values are too large to calculate with."""
        if table != "sequences":
            return self.tables.add(table, frame, source=file.rel, priority=parser.priority)
        path, columns, beyond = self.tables.add_sequences(frame)
        self.parts.append(
            Part(
                name=path.name,
                source=file.rel,
                kind=parser.name,
                first_row=sum(part.rows for part in self.parts if part.source == file.rel),
                rows=frame.height,
                columns=columns,
            )
        )
        return beyond

    def name_metrics(self, mapping: Mapping[str, str]) -> Renames:
        """Give metrics the names that only all of a run tells, and say which they are; without them all have others."""
        try:
            return self._rename(mapping)
        except BaseException as error:
            if isinstance(error, OSError) or no_room(error) or not is_caught(error):
                raise
            self.fault("naming of metrics", describe(error))
            return Renames()

    def _rename(self, mapping: Mapping[str, str]) -> Renames:
        wide_names = names_in_wide(self.folder, self.wide, is_looked_at)
        renames = rename(pl.concat([wide_names, *self.tables.metric_names()]), mapping)
        if not renames.idle:
            self.tables.rename_metrics(renames)
            for number, part in enumerate(self.wide):
                if factors := renames.factors(part):
                    scale_columns(self.folder, part, factors)
                self.wide[number], leaving = renames.wide(part)
                if leaving:
                    self.tables.add_renamed(evaluation_rows(self.folder, part, leaving))
        return renames

    def close(self, notes: Mapping[str, str]) -> None:
        """Write what is still waiting, and the list of sources with these notes on them besides their own."""
        self.tables.close()
        rows = [
            (path, *rest, " ".join(str(part) for part in (note, notes.get(str(path))) if part) or None)
            for path, *rest, note in self._sources
        ]
        pl.DataFrame(rows, schema=SOURCES, orient="row").write_parquet(self.folder / "sources.parquet")


def _look_closed(file: RunFile) -> str:
    """Return why a file cannot be read, as `why_closed`; its beginning is not held until its turn comes."""
    why = why_closed(file)
    file.looks.clear()
    return why
