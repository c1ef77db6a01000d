"""Pieces of a run: a few million tokens each, folded on any machine, and cached for when the run has grown."""

from __future__ import annotations

import shutil
import zlib
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from hashlib import sha256
from itertools import groupby, pairwise
from pathlib import Path
from typing import Final, Protocol

import numpy as np
import polars as pl
import pyarrow as pa

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.statistics.arrays import BoolArray
from ptt.diagnostics.statistics.merge_tree import Merger, covers, group_of, is_group, only_kept, pack, unpack
from ptt.diagnostics.statistics.partial_tables import PartialTables, TokenTables
from ptt.diagnostics.statistics.sound_tables import BegunPiece, Expected, can_go_on, is_sound
from ptt.diagnostics.statistics.token_pass import FoldContext, GoingOn, PassPlan, Single, fold, fold_piece
from ptt.diagnostics.statistics.token_sums import ArrayPool
from ptt.diagnostics.store.deduplicate_sources import SequenceFile
from ptt.diagnostics.store.scan import READ_ERRORS, SequenceScan, scan_range

CHECK_BYTES: Final = 4  # of the CRC-32 that what is kept begins with: a disk may tear it
SIZE_BYTES: Final = 4  # of the length of what then says which sequences are kept one by one
BEGUN: Final = "-begun"  # ends the names of records of a piece that is not full
KEPT_BY: Final = "7"  # version of the tables of a piece: what an earlier one kept is folded anew


UNREADABLE: Final = (OSError, ValueError, pa.ArrowException, pl.exceptions.PolarsError)
"""What reading tables raises that somebody else wrote."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A range of sequences, the files that hold it, and what to do with it."""

    files: tuple[SequenceFile, ...]
    first: int  # sequence
    end: int  # the one after the last
    columns: frozenset[str]
    plan: PassPlan
    kept: bytes = b""  # which sequences are kept one by one (see merge_tree.pack)

    @property
    def number(self) -> int:
        """Its place among all pieces of the run."""
        return self.first // self.plan.piece_rows

    @property
    def full(self) -> bool:
        """Whether it stays as it is when the run grows."""
        return self.end - self.first == self.plan.piece_rows

    @property
    def frame(self) -> pl.LazyFrame:
        """The columns that the pass needs, of this range alone."""
        return needed(scan_range(self.files, self.first, self.end), self.columns, self.plan)

    @property
    def single(self) -> Single:
        """Which sequences are kept one by one."""
        return Single(kept=unpack(self.kept, self.end - self.first), first=self.first)

    def name(self) -> str:
        """Hash all that decides its tables but `kept`; of the files their names, sizes and times."""
        marks = []
        for file in self.files:
            status = file.path.stat()
            where = (file.name, file.first_row, file.start, file.rows, sorted(file.skipped), sorted(file.columns))
            marks.append((*where, status.st_size, status.st_mtime_ns))
        plan = sorted((field.name, _written(getattr(self.plan, field.name))) for field in fields(self.plan))
        said = (KEPT_BY, marks, self.first, self.end, "tool_names" in self.columns, plan)
        return sha256(repr(said).encode("utf-8", "surrogateescape")).hexdigest()

    def files_of(self, first: int, end: int) -> tuple[SequenceFile, ...]:
        """Return the files that hold its sequences from `first` to before `end`."""
        return tuple(file for file in self.files if file.start < end and file.start + file.rows > first)

    def begun_names(self) -> Iterator[tuple[int, str]]:
        """Yield where each whole batch ends and a name of all up to there, the last one first."""
        rows = self.plan.batch_rows
        for end in range(self.end // rows * rows, self.first, -rows):
            piece = replace(self, files=self.files_of(self.first, end), end=end).name()
            kept = self.kept[: (end - self.first) // 8]
            yield end, sha256(piece.encode("ascii") + kept).hexdigest() + BEGUN


def _written(value: object) -> str:
    """Write ordered values as they are and unordered ones sorted, so that every process writes the same."""
    if isinstance(value, frozenset):
        return repr(sorted(value))
    return repr(sorted(value.items())) if isinstance(value, Mapping) else repr(value)


@dataclass(frozen=True, kw_only=True)
class Group:
    """Pieces that are added up before they are added to others (see merge_tree)."""

    pieces: tuple[Piece, ...]

    @property
    def plan(self) -> PassPlan:
        """What decides its tables."""
        return self.pieces[0].plan

    @property
    def first(self) -> int:
        """The first sequence."""
        return self.pieces[0].first

    @property
    def end(self) -> int:
        """The sequence after the last one."""
        return self.pieces[-1].end

    @property
    def whole(self) -> bool:
        """Whether it stays as it is when the run grows."""
        return is_group(self.pieces[0].number, len(self.pieces)) and self.pieces[-1].full

    @property
    def kept(self) -> bytes:
        """Which sequences are kept one by one: all pieces but the last have a multiple of eight."""
        return b"".join(piece.kept for piece in self.pieces)


@dataclass(frozen=True, kw_only=True)
class Merged:
    """The tables of a whole group, added up by merge_group where its pieces were folded."""

    tables: PartialTables


class RunPieces(Protocol):
    """Folds pieces in other processes or on other machines, and yields each one's place and tables when done.

    Pieces that finish early wait for those before them, so only a fixed number is in flight at once.
    """

    def __call__(
        self, pieces: Sequence[Piece], groups: Mapping[int, Group], /
    ) -> Generator[tuple[int, PartialTables | Merged | None]]:
        """Yield the place in `pieces` and the tables of each, or None where its files cannot be read there.

        `groups`: by the place of their first piece, those whose pieces may come as one, Merged, at that place.
        """
        ...


def needed(frame: pl.LazyFrame, columns: frozenset[str], plan: PassPlan) -> pl.LazyFrame:
    """Select what the pass reads, null where the files of `frame` lack it."""
    here = set(frame.collect_schema().names())
    logps = sorted({name for pair in plan.pairs for name in (pair.numerator, pair.denominator)})
    chosen = [pl.col("seq", "step", "model_mask")]
    for name in logps:
        kind = pl.List(pl.Float64 if name in plan.doubles else pl.Float32)
        chosen.append(pl.col(name).cast(kind) if name in here else pl.lit(None, kind).alias(name))
    if "tool_names" in columns:
        count = pl.col("tool_names").list.len().cast(pl.Int64) if "tool_names" in here else pl.lit(None, pl.Int64)
        chosen.append(count.alias("tool_count"))
    return frame.select(chosen)


def cut(scan: SequenceScan, plan: PassPlan, kept: BoolArray | None) -> list[Piece]:
    """Cut a run into pieces: by the numbers of its sequences alone, so that a run that grows keeps its first ones.

    `kept`: of every sequence, whether it is kept one by one (None: all are).
    """
    bounds = [*range(0, scan.rows, plan.piece_rows), scan.rows]
    pieces, at = [], 0
    for first, end in pairwise(bounds):
        while scan.files[at].start + scan.files[at].rows <= first:
            at += 1
        last = at
        while last + 1 < len(scan.files) and scan.files[last + 1].start < end:
            last += 1
        files, packed = scan.files[at : last + 1], pack(kept, first, end)
        pieces.append(Piece(files=files, first=first, end=end, columns=scan.columns, plan=plan, kept=packed))
    return pieces


def fold_one(piece: Piece) -> PartialTables:
    """Fold one piece, wherever this runs."""
    for _, part in fold(piece.frame, piece.plan, piece.single):
        return part
    return fold_piece(
        [], FoldContext(plan=piece.plan, single=piece.single, pool=ArrayPool())
    )  # all of its sequences are counted elsewhere


def fold_in_order(
    scan: SequenceScan, pieces: Sequence[Piece], on_rows: Callable[[int], None] | None
) -> Iterator[tuple[Piece, PartialTables | None]]:
    """Fold pieces on this machine, neighbours in one stream: Polars decodes the next while this thread adds up.

    If the stream ends early because of an unreadable file, all pieces still to come are None: Polars reads ahead, so
    most of them can still be folded one by one.
    """
    runs: list[list[Piece]] = []
    for piece in pieces:
        if runs and runs[-1][-1].end == piece.first:
            runs[-1].append(piece)
        else:
            runs.append([piece])
    for run in runs:
        whole = len(run) > 1 and run[0].first == 0 and run[-1].end == scan.rows
        files = tuple(dict.fromkeys(file for piece in run for file in piece.files))
        rows = scan.frame if whole else scan_range(files, run[0].first, run[-1].end)
        left = deque(run)
        try:
            for number, part in fold(needed(rows, scan.columns, run[0].plan), run[0].plan, _single(run), on_rows):
                while left[0].first < number * left[0].plan.piece_rows:
                    left.popleft()  # all of its sequences are counted elsewhere
                yield left.popleft(), part
        except READ_ERRORS:
            yield from ((piece, None) for piece in left)


def _single(pieces: Sequence[Piece]) -> Single:
    """Return which sequences of neighbouring pieces are kept one by one."""
    masks = [mask for piece in pieces if (mask := piece.single.kept) is not None]
    return Single(kept=np.concatenate(masks) if masks else None, first=pieces[0].first)


def fold_begun(piece: Piece, kept: KeptPieces, on_rows: Callable[[int], None]) -> tuple[PartialTables, str]:
    """Fold a piece from where the kept records of its first batches end, and keep those of one that is not full.

    Also returns the name that these are kept under, empty where there are none.
    """
    names = dict(piece.begun_names())
    for end, name in names.items():
        if (begun := kept.read_begun(name, piece, end)) is not None:
            part = _fold_from(piece, end, begun, kept, on_rows)
            if is_sound(part, expected(piece.plan, piece.first, piece.end)):
                return part, next(iter(names.values()))
            break
    return _fold_from(piece, piece.first, None, kept, on_rows), next(iter(names.values()), "")


def _fold_from(
    piece: Piece, start: int, begun: BegunPiece | None, kept: KeptPieces, on_rows: Callable[[int], None]
) -> PartialTables:
    """Fold the sequences from `start` on; `begun`: the records of those before."""
    until, name = next(piece.begun_names(), (start, ""))

    def keep(records: BegunPiece) -> None:
        if until > start and not piece.full:
            with suppress(OSError):  # a full disk costs the next look its time, and nothing else
                kept.write_begun(name, records)

    going_on = GoingOn(begun=begun, until=until, keep=keep)
    on_rows(start - piece.first)
    rest = replace(piece, files=piece.files_of(start, piece.end), first=start)
    if rest.files:
        for _, part in fold(rest.frame, piece.plan, piece.single, on_rows, going_on):
            return part
    context = FoldContext(plan=piece.plan, single=piece.single, pool=ArrayPool())
    return fold_piece([], context, going_on=going_on)  # all others are counted elsewhere


def groups_of(pieces: Sequence[Piece]) -> Iterator[Group]:
    """Divide neighbouring pieces by the groups that they are in; the first and the last may not be whole."""
    for _, members in groupby(pieces, key=lambda piece: group_of(piece.number)):
        yield Group(pieces=tuple(members))


def group_name(names: Sequence[str]) -> str:
    """Hash the names of a group's pieces."""
    return sha256("\n".join(("group", *names)).encode("ascii")).hexdigest()


class KeptPieces:
    """The tables of pieces and of groups in a folder of the store, under the hash of what decides them.

    Each begins with the sequences that it keeps one by one: a longer run keeps some of them, and can reuse it. A file
    may be torn or written by somebody else: it is used if it can be a piece's, and made again otherwise.
    """

    def __init__(self, folder: Path) -> None:
        """`folder`: made when the first piece is kept."""
        self._folder = folder

    def has(self, name: str, wanted: Piece | Group) -> bool:
        """Tell whether it is kept, with all the single sequences that are wanted; a link is not."""
        if not self._is_there(name):
            return False
        try:
            with (self._folder / name).open("rb") as file:
                head = file.read(CHECK_BYTES + SIZE_BYTES + len(wanted.kept) + 1)
        except OSError:
            return False
        return covers(_split(head[CHECK_BYTES:])[0], wanted.kept)

    def read(self, name: str, wanted: Piece | Group) -> PartialTables | None:
        """Return what is kept under a name, or None where it is damaged or nothing that folding can give."""
        content = self._content(name)
        if content is None:
            return None
        held, rest = _split(content)
        first, end = wanted.first, wanted.end
        part = _tables(rest, wanted.plan, first, end) if covers(held, wanted.kept) else None
        return None if part is None else only_kept(part, unpack(wanted.kept, end - first), first)

    def begun(self, piece: Piece) -> bool:
        """Tell whether records of the first batches of a piece are kept."""
        if not self._own() or not any(self._folder.glob(f"*{BEGUN}")):  # names cost a look at each file
            return False
        return any(self._is_there(name) for _, name in piece.begun_names())

    def read_begun(self, name: str, piece: Piece, end: int) -> BegunPiece | None:
        """Return the records kept of a piece to before `end`, or None where there are none that it can go on from."""
        content = self._content(name) if self._is_there(name) else None
        if content is None:
            return None
        try:
            begun = BegunPiece.from_bytes(content)
        except UNREADABLE:
            return None
        return begun if can_go_on(begun, piece.single.kept, piece.first, end) else None

    def write_begun(self, name: str, begun: BegunPiece) -> None:
        """Keep the records of a piece that is not full, whole or not at all."""
        self._keep(name, begun.to_bytes())

    def write(self, name: str, of: Piece | Group, part: PartialTables) -> None:
        """Keep the tables of a piece or a group, whole or not at all."""
        self._keep(name, len(of.kept).to_bytes(SIZE_BYTES, "little") + of.kept + part.to_bytes())

    def _content(self, name: str) -> bytes | None:
        """Return what is kept under a name, or None where it is damaged."""
        try:
            content = (self._folder / name).read_bytes()
        except OSError:
            return None
        whole = zlib.crc32(content[CHECK_BYTES:]).to_bytes(CHECK_BYTES, "little") == content[:CHECK_BYTES]
        return content[CHECK_BYTES:] if whole else None

    def _keep(self, name: str, content: bytes) -> None:
        if not self._own():
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        beside = self._folder / f"{name}.part"
        beside.unlink(missing_ok=True)  # a link would be written through
        beside.write_bytes(zlib.crc32(content).to_bytes(CHECK_BYTES, "little") + content)
        beside.replace(self._folder / name)

    def leave_only(self, names: set[str]) -> None:
        """Remove pieces of what the run was before."""
        for path in list(self._folder.iterdir()) if self._own() and self._folder.is_dir() else ():
            if path.name in names:
                continue
            if path.is_dir() and not path.is_symlink():  # as an earlier version kept them
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def _is_there(self, name: str) -> bool:
        path = self._folder / name
        return self._own() and path.is_file() and not path.is_symlink()

    def _own(self) -> bool:
        """Tell whether the folder is the store's: never write, and above all never remove, where a link leads."""
        return not self._folder.is_symlink()


def _split(content: bytes) -> tuple[bytes, bytes]:
    """Return which sequences are kept one by one, and the tables."""
    end = SIZE_BYTES + int.from_bytes(content[:SIZE_BYTES], "little")
    return content[SIZE_BYTES:end], content[end:]


def expected(plan: PassPlan, first: int, end: int) -> Expected:
    """Return what tables of the sequences from `first` to before `end` have to be like."""
    return Expected(
        first=first,
        end=end,
        pairs=len(plan.pairs),
        bits_dropped=plan.bits_dropped,
        sample_every=plan.sample_every,
    )


def _tables(content: bytes, plan: PassPlan, first: int, end: int) -> PartialTables | None:
    """Return the tables written in `content`, or None where they cannot be those of the sequences."""
    try:
        part = PartialTables.from_bytes(content)
    except UNREADABLE:
        return None
    return part if is_sound(part, expected(plan, first, end)) else None


MAX_OPEN: Final = 4
"""Pieces or groups of one file that wait for its end; a longer file that is damaged costs its pieces before too."""


@dataclass(frozen=True, kw_only=True)
class Summand:
    """What comes as one: a piece, whose tables are None where its files could not be read, or a group added up."""

    pieces: tuple[Piece, ...]
    tables: PartialTables | None

    @property
    def first(self) -> int:
        """The first sequence."""
        return self.pieces[0].first


class RunSum:
    """Pieces added up, but for the last ones whose last file is not read to its end yet: it may yet be damaged."""

    def __init__(self) -> None:
        self._merger = Merger()
        self._added: list[Piece] = []
        self._open: list[tuple[tuple[Piece, ...], PartialTables]] = []

    @property
    def pieces(self) -> int:
        """How many pieces are taken."""
        return len(self._added) + sum(len(pieces) for pieces, _ in self._open)

    def add(self, pieces: tuple[Piece, ...], tables: PartialTables) -> None:
        """Take the next piece, or the next group that was added up already."""
        before = self._open[-1][0][-1].files[-1].name if self._open else None
        if len(self._open) == MAX_OPEN or before != pieces[0].files[0].name:
            self._close()
        self._open.append((pieces, tables))

    def goes_on_with(self, pieces: Sequence[Piece]) -> bool:
        """Leave off what is not among the first of other `pieces`; False where that is not possible."""
        added = len(self._added)
        if self._added != list(pieces[:added]):
            return False
        same, at = 0, added
        for held, _ in self._open:
            if list(held) != list(pieces[at : at + len(held)]):
                break
            same, at = same + 1, at + len(held)
        del self._open[same:]
        return True

    def tables(self) -> TokenTables:
        """Return the tables of all pieces."""
        self._close()
        return self._merger.tables()

    def _close(self) -> None:
        for pieces, tables in self._open:
            if len(pieces) > 1:
                self._merger.add_group(tables)
            else:
                self._merger.add(pieces[0].number, tables)
            self._added += pieces
        self._open.clear()


def in_order(
    results: Iterator[tuple[int, PartialTables | Merged | None]],
    pieces: Sequence[Piece],
    groups: Mapping[int, Group],
    on_rows: Callable[[int], None],
) -> Iterator[Summand]:
    """Yield what an engine gives of pieces in their order; the few that are done early wait.

    `groups`: by the place of their first piece, those whose pieces may come as one.
    """
    early: dict[int, Summand] = {}
    following = 0
    for number, answer in results:
        merged = isinstance(answer, Merged)
        members = tuple(pieces[number : number + (len(groups[number].pieces) if merged else 1)])
        early[number] = Summand(pieces=members, tables=answer.tables if isinstance(answer, Merged) else answer)
        on_rows(members[-1].end - members[0].first)
        while following in early:
            summand = early.pop(following)
            following += len(summand.pieces)
            yield summand
    while following < len(pieces):  # what nobody answered is folded here, and not left out
        summand = early.get(following, Summand(pieces=(pieces[following],), tables=None))
        following += len(summand.pieces)
        yield summand
