"""How much of a run was lost before anything could be judged: what a damaged one shows is that of what is left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from ptt.diagnostics.model import Diagnosis, Source
from ptt.diagnostics.store.archives import DAMAGED

MOST_LOST: Final = 0.01
"""Of a run's bytes. A trainer that was killed loses the record it was writing, which is less; of more nobody knows
whether the run would have failed in it."""
NAMED: Final = 3  # lost files that are named; the others are counted
UNRECOGNISED: Final = "unrecognised"
NEVER_EMPTY: Final = ".parquet"  # even without a row such a file has a footer
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

    share: float  # of the bytes of files in known formats, as far as there; of a torn archive more is missing
    bytes: int  # lost
    torn: bool  # the archive ends, or breaks, before its end: what it held behind is not known
    files: tuple[str, ...]  # of tokens or metrics that are lost as a whole
    words: str  # what was lost, one clause; empty where nothing was

    @property
    def whole(self) -> bool:
        """Tell whether parts are gone of which their bytes say nothing."""
        return self.torn or bool(self.files)


def damage_of(diagnosis: Diagnosis) -> Damage:
    """Add up what the sources of a diagnosis lost: bytes, and rows by their share of a file where bytes are unknown."""
    sources = diagnosis.sources
    lost = sum(_lost(one) for one in sources)
    held = sum(max(0, one.bytes) for one in sources if one.kind != UNRECOGNISED)  # weights would hide any loss
    torn = any(one.note is not None and one.note.startswith(DAMAGED) for one in sources)
    gone = tuple(_gone(sources))
    share = min(1.0, lost / held) if held else 0.0
    return Damage(share=share, bytes=round(lost), torn=torn, files=gone, words=_words(share, torn, gone, sources))


def _lost(source: Source) -> float:
    """Give the bytes that a file lost; where its rows alone are counted, as many as their share of it."""
    rows = source.rows_ok + source.rows_bad
    by_rows = source.bytes * source.rows_bad / rows if rows > 0 else 0.0
    return float(min(source.bytes_lost, source.bytes)) if source.bytes_lost > 0 else by_rows


def _gone(sources: Sequence[Source]) -> Iterable[str]:
    """Name the files of tokens or metrics of which nothing is left."""
    homes = {PurePosixPath(one.path).parent for one in sources if _counts(one) and one.path.endswith(NEVER_EMPTY)}
    for one in sources:
        nothing = one.rows_ok == 0 and (one.rows_bad > 0 or 0 < one.bytes <= one.bytes_lost)
        empty = one.bytes == 0 and one.path.endswith(NEVER_EMPTY) and PurePosixPath(one.path).parent in homes
        if empty or (nothing and _counts(one)):
            yield one.path


def _counts(source: Source) -> bool:
    return source.kind != UNRECOGNISED and source.kind not in BESIDE


def _words(share: float, torn: bool, gone: Sequence[str], sources: Sequence[Source]) -> str:
    told = []
    if torn:
        told.append("the archive is torn or damaged, and nobody knows what it held behind that")
    if gone:
        named = ", ".join(gone[:NAMED])
        more = f" and {len(gone) - NAMED} more" if len(gone) > NAMED else ""
        what = (
            "a file of tokens or metrics is lost"
            if len(gone) == 1
            else f"{len(gone)} files of tokens or metrics are lost"
        )
        told.append(f"{what}: {named}{more}")
    if share > 0:
        first = next(one.path for one in sources if _lost(one) > 0)
        told.append(f"{percent(share)} of the bytes that are there could not be read, the first in {first}")
    return "; ".join(told)


def percent(share: float) -> str:
    """Write a share; one that is not nothing never reads as 0 %."""
    return "less than 0.1 %" if 0 < share < 0.001 else f"{round(100 * share, 1):g} %"
