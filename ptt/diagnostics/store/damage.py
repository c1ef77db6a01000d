"""Measure how much of a run was lost before it was judged: a damaged run shows only what is left of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import PurePosixPath
from typing import Final

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.model import Diagnosis, Source
from ptt.diagnostics.parsers import PARSERS
from ptt.diagnostics.parsers.io.run_files import CLOSED
from ptt.diagnostics.store.archives import DAMAGED, STOPPED
from ptt.diagnostics.store.ingest import EMPTY, NEVER_EMPTY, RUN_DIR, UNREADABLE, UNRECOGNISED

MAX_LOST: Final = 0.01
"""Of a run's bytes. A killed trainer loses the record it was writing, which is less; with more, nobody knows whether
the run would have failed there."""
CUT_SHORT: Final = (DAMAGED, STOPPED)  # how notes begin on an archive that was not unpacked completely
MAX_NAMED: Final = 3  # lost files that are named; others are only counted
SAMPLE_FORMATS: Final = frozenset(parser.name for parser in PARSERS if not parser.of_training)
"""Formats without tokens or metrics of training: samples, spans, evaluations. A lost file of these counts only by its
size."""


@dataclass(frozen=True, kw_only=True)
class Damage:
    """What is missing of a run."""

    share: float  # of the bytes of files in known formats; of rows where bytes are unknown
    bytes: int  # lost
    torn: bool  # the archive ends, breaks or was abandoned early: what follows is unknown
    files: tuple[str, ...]  # files of tokens or metrics that are lost entirely
    closed: tuple[str, ...]  # files and folders that the system does not let us read, of whatever kind
    unmeasured: bool  # more is lost than the share says, by an unknown amount
    words: str  # what was lost, as one clause; "" if nothing was

    @property
    def whole(self) -> bool:
        """Whether parts are missing that their bytes do not measure."""
        return self.unmeasured or bool(self.files or self.closed)


@dataclass(frozen=True)
class _File:
    """A source of a run; one of a findings.json is not `sized`: its rows are known, and its bytes are not."""

    source: Source
    sized: bool

    @property
    def size(self) -> int:
        """Bytes, or rows."""
        source = self.source
        return max(0, source.bytes) if self.sized else source.rows_ok + source.rows_bad

    @property
    def lost(self) -> float:
        """Bytes lost; if only rows are counted, the same share of its bytes. Rows if its size is unknown.

        0 for an unrecognised file, which may be anything.
        """
        source = self.source
        if source.kind == UNRECOGNISED:
            return 0.0
        if not self.sized:
            return float(source.rows_bad)
        if source.bytes_lost > 0:
            return float(min(source.bytes_lost, source.bytes))
        rows = source.rows_ok + source.rows_bad
        return source.bytes * source.rows_bad / rows if rows > 0 else 0.0

    @property
    def unmeasured(self) -> bool:
        """Whether the share cannot measure what is lost: a closed folder, or bytes of a file of unknown size."""
        source = self.source
        if source.kind == UNREADABLE:
            return not self.sized or source.bytes_lost == 0
        return not self.sized and source.kind != UNRECOGNISED and source.bytes_lost > 0 and source.rows_bad == 0

    @property
    def counts(self) -> bool:
        """Whether it holds tokens or metrics of training."""
        return self.source.kind not in (UNRECOGNISED, UNREADABLE) and self.source.kind not in SAMPLE_FORMATS

    def is_gone(self, token_folders: Collection[PurePosixPath]) -> bool:
        """Return whether nothing is left of a file with tokens or metrics."""
        source, path = self.source, PurePosixPath(self.source.path)
        empty = source.bytes == 0 if self.sized else (source.note or "").startswith(EMPTY)
        if empty and path.name.endswith(NEVER_EMPTY) and path.parent in token_folders:
            return True
        all_bytes = 0 < source.bytes <= source.bytes_lost if self.sized else source.bytes_lost > 0
        return self.counts and source.rows_ok == 0 and (source.rows_bad > 0 or all_bytes)


def damage_of(diagnosis: Diagnosis) -> Damage:
    """Add up what the sources of a diagnosis lost: bytes, and rows by their share of a file where bytes are unknown."""
    sized = not diagnosis.from_findings
    files = [_File(source, sized) for source in diagnosis.sources]
    lost = sum(file.lost for file in files)
    size = sum(file.size for file in files if file.source.kind != UNRECOGNISED)  # weights would hide any loss
    paths = (PurePosixPath(file.source.path) for file in files if file.counts)
    token_folders = {path.parent for path in paths if path.name.endswith(NEVER_EMPTY)}
    gone = tuple(file.source.path for file in files if file.is_gone(token_folders))
    damaged, stopped = (any((source.note or "").startswith(why) for source in diagnosis.sources) for why in CUT_SHORT)
    share = min(1.0, lost / size) if size else 0.0
    return Damage(
        share=share,
        bytes=round(lost) if sized else sum(source.bytes_lost for source in diagnosis.sources),
        torn=damaged or stopped,
        files=gone,
        closed=tuple(source.path for source in diagnosis.sources if source.kind == UNREADABLE),
        unmeasured=damaged or stopped or any(file.unmeasured for file in files),
        words="; ".join(_words(files, share, gone, damaged=damaged, stopped=stopped)),
    )


def _words(files: Sequence[_File], share: float, gone: Sequence[str], *, damaged: bool, stopped: bool) -> Iterable[str]:
    if damaged:
        yield "the archive is torn or damaged; what followed the damage is unknown"
    if stopped:
        yield "the rest of the archive was not unpacked; its content is unknown"
    closed: dict[str, list[str]] = {}
    for file in files:
        if file.source.kind == UNREADABLE:
            closed.setdefault(file.source.note or "", []).append(file.source.path)
    for note, paths in closed.items():
        yield _unreadable_words(paths, note)
    if gone:
        phrase = "a file" if len(gone) == 1 else f"{len(gone)} files"
        yield f"{phrase} of tokens or metrics {'is' if len(gone) == 1 else 'are'} lost: {_name_first(gone)}"
    if share > 0:
        first = next(file.source.path for file in files if file.lost > 0)
        phrase = "bytes on disk" if files[0].sized else "rows that were listed"
        yield f"{percent(share)} of the {phrase} could not be read, the first in {first}"
    unknown = [file.source for file in files if file.source.kind != UNREADABLE and file.unmeasured]
    if unknown:
        lost = sum(source.bytes_lost for source in unknown)
        yield f"{lost} bytes were lost from files of unknown size, the first in {unknown[0].path}"


def _unreadable_words(paths: Sequence[str], note: str) -> str:
    """Describe what cannot be read for one reason, and what to do; a note on folders names them itself."""
    if set(paths) == {RUN_DIR}:
        return f"a part {_uncapitalise(note)}"
    subject = "1 file" if len(paths) == 1 else f"{len(paths)} files"
    why, _, advice = note.partition("; ")
    return f"{subject} {_uncapitalise(why or CLOSED)}: {_name_first(paths)}" + (
        f"; {advice.removesuffix('.')}" if advice else ""
    )


def _uncapitalise(note: str) -> str:
    return f"{note[:1].lower()}{note[1:].removesuffix('.')}"


def _name_first(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - MAX_NAMED} more" if len(paths) > MAX_NAMED else ""
    return ", ".join(paths[:MAX_NAMED]) + more


def percent(share: float) -> str:
    """Write a share; one that is not nothing never reads as 0%."""
    return "less than 0.1%" if 0 < share < 0.001 else f"{round(100 * share, 1):g}%"
