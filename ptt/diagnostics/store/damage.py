"""How much of a run was lost before anything could be judged: what a damaged one shows is that of what is left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from ptt.diagnostics.model import Diagnosis, Source
from ptt.diagnostics.parsers.io.run_files import CLOSED
from ptt.diagnostics.store.archives import DAMAGED
from ptt.diagnostics.store.ingest import EMPTY, NEVER_EMPTY, RUN_DIR, UNREADABLE, UNRECOGNISED

MOST_LOST: Final = 0.01
"""Of a run's bytes. A trainer that was killed loses the record it was writing, which is less; of more nobody knows
whether the run would have failed in it."""


NAMED: Final = 3  # lost files that are named; the others are counted


BESIDE: Final = frozenset(
    {
        "areal_perf", "areal_rollouts", "art_trajectories", "inspect_log", "microsoft_agents", "microsoft_records",
        "nemo_validation", "otel_spans", "roll_rollouts", "skyrl_evals", "swe_agent", "swift_completions", "tau_bench",
        "tinker_rollouts", "trl_completions", "verifiers_metadata", "verifiers_results", "verl_rollouts",
    }
)  # fmt: skip
"""Formats that hold neither tokens nor metrics of training: samples, spans, evaluations. One such file that is lost
counts by its size alone."""


@dataclass(frozen=True, kw_only=True)
class Damage:
    """What is missing of a run."""

    share: float  # of the bytes of files in known formats, as far as there; of rows where bytes are not known
    bytes: int  # lost
    torn: bool  # the archive ends, or breaks, before its end: what it held behind is not known
    files: tuple[str, ...]  # of tokens or metrics that are lost as a whole
    closed: tuple[str, ...]  # files and folders that the system does not let us read, whatever they are
    unmeasured: bool  # more is lost than the share says, and nobody knows how much
    words: str  # what was lost, one clause; empty where nothing was

    @property
    def whole(self) -> bool:
        """Tell whether parts are gone of which their bytes say nothing."""
        return self.unmeasured or bool(self.files or self.closed)


def damage_of(diagnosis: Diagnosis) -> Damage:
    """Add up what the sources of a diagnosis lost: bytes, and rows by their share of a file where bytes are unknown."""
    sources, sized = diagnosis.sources, not diagnosis.from_findings
    lost = sum(_lost(one, sized=sized) for one in sources)
    held = sum(_held(one, sized=sized) for one in sources if one.kind != UNRECOGNISED)  # weights would hide any loss
    torn = any(one.note is not None and one.note.startswith(DAMAGED) for one in sources)
    gone = tuple(_gone(sources, sized=sized))
    closed = tuple(one for one in sources if one.kind == UNREADABLE)
    share = min(1.0, lost / held) if held else 0.0
    return Damage(
        share=share,
        bytes=round(lost) if sized else sum(one.bytes_lost for one in sources),
        torn=torn,
        files=gone,
        closed=tuple(one.path for one in closed),
        unmeasured=torn or any(_unmeasured(one, sized=sized) for one in sources),
        words="; ".join(_words(share, torn, gone, closed, sources, sized=sized)),
    )


def _held(source: Source, *, sized: bool) -> int:
    return max(0, source.bytes) if sized else source.rows_ok + source.rows_bad


def _lost(source: Source, *, sized: bool) -> float:
    """Give the bytes that a file lost; where its rows alone are counted, as many as their share of it.

    Where nobody knows its size, as in a findings.json, the rows it lost.
    """
    if not sized:
        return float(source.rows_bad)
    rows = source.rows_ok + source.rows_bad
    by_rows = source.bytes * source.rows_bad / rows if rows > 0 else 0.0
    return float(min(source.bytes_lost, source.bytes)) if source.bytes_lost > 0 else by_rows


def _unmeasured(source: Source, *, sized: bool) -> bool:
    """Tell whether something is lost that the share cannot hold: a closed folder, or bytes of a file of any size."""
    if source.kind == UNREADABLE:
        return not sized or source.bytes_lost == 0
    return not sized and source.bytes_lost > 0 and source.rows_bad == 0


def _gone(sources: Sequence[Source], *, sized: bool) -> Iterable[str]:
    """Name the files of tokens or metrics of which nothing is left."""
    homes = {PurePosixPath(one.path).parent for one in sources if _counts(one) and one.path.endswith(NEVER_EMPTY)}
    for one in sources:
        all_bytes = 0 < one.bytes <= one.bytes_lost if sized else one.bytes_lost > 0
        nothing = one.rows_ok == 0 and (one.rows_bad > 0 or all_bytes)
        empty = _empty(one, sized=sized) and PurePosixPath(one.path).parent in homes
        if empty or (nothing and _counts(one)):
            yield one.path


def _empty(source: Source, *, sized: bool) -> bool:
    return source.path.endswith(NEVER_EMPTY) and (source.bytes == 0 if sized else (source.note or "").startswith(EMPTY))


def _counts(source: Source) -> bool:
    return source.kind not in (UNRECOGNISED, UNREADABLE) and source.kind not in BESIDE


def _words(
    share: float, torn: bool, gone: Sequence[str], closed: Sequence[Source], sources: Sequence[Source], *, sized: bool
) -> Iterable[str]:
    if torn:
        yield "the archive is torn or damaged, and nobody knows what it held behind that"
    for note in dict.fromkeys(one.note or "" for one in closed):
        yield _closed([one.path for one in closed if (one.note or "") == note], note)
    if gone:
        what = (
            "a file of tokens or metrics is lost"
            if len(gone) == 1
            else f"{len(gone)} files of tokens or metrics are lost"
        )
        yield f"{what}: {_some(gone)}"
    if share > 0:
        first = next(one.path for one in sources if _lost(one, sized=sized) > 0)
        what = "bytes that are there" if sized else "rows that are told of"
        yield f"{percent(share)} of the {what} could not be read, the first in {first}"
    unknown = [one for one in sources if one.kind != UNREADABLE and _unmeasured(one, sized=sized)]
    if unknown:
        yield (
            f"{sum(one.bytes_lost for one in unknown)} bytes are lost of files of unknown size, the first in "
            f"{unknown[0].path}"
        )


def _closed(paths: Sequence[str], note: str) -> str:
    """Tell of what cannot be read for one reason, and what to do; a note on folders names them itself."""
    if set(paths) == {RUN_DIR}:
        return f"a part {_lower(note)}"
    what = "1 file" if len(paths) == 1 else f"{len(paths)} files"
    why, _, mend = note.partition("; ")
    return f"{what} {_lower(why or CLOSED)}: {_some(paths)}" + (f"; {mend.removesuffix('.')}" if mend else "")


def _lower(note: str) -> str:
    return f"{note[:1].lower()}{note[1:].removesuffix('.')}"


def _some(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
    return ", ".join(paths[:NAMED]) + more


def percent(share: float) -> str:
    """Write a share; one that is not nothing never reads as 0 %."""
    return "less than 0.1 %" if 0 < share < 0.001 else f"{round(100 * share, 1):g} %"
