"""Read the texts of a few episodes again from their files, which the store does not keep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import polars as pl

from ptt.diagnostics.errors import InputError, SettingsError
from ptt.diagnostics.parsers import PARSERS
from ptt.diagnostics.parsers.io.budget import Budget
from ptt.diagnostics.parsers.io.interface import RunFile
from ptt.diagnostics.schema import TABLES
from ptt.diagnostics.scrub.scrub import Scrubber
from ptt.diagnostics.store.file_readings import span_around
from ptt.diagnostics.store.ingest import ingest
from ptt.diagnostics.store.sample_rows import scan_table

WINDOW_BYTES: Final = (1 << 17, 1 << 20)
"""On either side of where an episode should be in a line file; the second for those not found with the first."""
WHOLE_BYTES: Final = 4 << 20  # a file up to this size is read whole
MAX_BYTES: Final = (
    12 << 20
)  # read again in all: less than a second's work; episodes beyond are shown without their texts


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """An episode whose texts are wanted, and the share of its file that should lie before it."""

    trajectory_id: str
    source: str
    share: float


@dataclass(frozen=True, kw_only=True)
class Texts:
    """Turns with their texts, shortened and scrubbed, and calls of the episodes that were found again."""

    turns: pl.DataFrame
    calls: pl.DataFrame


def read_again(files: Sequence[RunFile], wanted: Sequence[Wanted], *, scratch: Path, ptt_version: str) -> Texts:
    """Read the episodes again, with their texts, within a bound of bytes; what is not found again is left out."""
    ids = pl.Series([one.trajectory_id for one in wanted], dtype=pl.String).unique().to_list()
    found = {name: [pl.DataFrame(schema=TABLES[name])] for name in ("turns", "tool_calls")}
    left, number = MAX_BYTES, 0
    for window in WINDOW_BYTES:
        known = set(pl.concat(found["turns"])["trajectory_id"])
        for piece in _pieces(files, [one for one in wanted if one.trajectory_id not in known], window):
            left -= piece.size if piece.span is None else piece.span[1] - piece.span[0]
            if left < 0:
                break
            number += 1
            folder = scratch / f"again-{number}"
            try:
                ingest([piece], notes=[], parsers=PARSERS, folder=folder, ptt_version=ptt_version, keep_text=True)
            except (InputError, SettingsError):  # the file is gone, or nothing can be written: shown without texts
                continue
            for name, frames in found.items():
                frames.append(scan_table(folder, name).filter(pl.col("trajectory_id").is_in(ids)).collect())
    turns, calls = (
        pl.concat(frames).unique(["trajectory_id", key], keep="first", maintain_order=True)
        for frames, key in zip(found.values(), ("turn_idx", "call_idx"), strict=True)
    )
    return Texts(turns=turns, calls=calls)


def _pieces(files: Sequence[RunFile], wanted: Sequence[Wanted], window: int) -> Iterator[RunFile]:
    """Yield the files, or the spans of them, that should hold the episodes, in the order they are wanted."""
    paths = dict(zip(Scrubber().paths([file.rel for file in files]), files, strict=True))
    for source in dict.fromkeys(one.source for one in wanted):
        file = paths.get(source)
        if file is None:
            continue
        file = replace(file, looks={}, budget=Budget())
        if file.size <= WHOLE_BYTES:
            yield file
            continue
        places = sorted(int(one.share * file.size) for one in wanted if one.source == source)
        for begin, end in _joined(places, window):
            span = span_around(file, begin, end)
            if span is None:
                yield file
                break
            yield replace(file, span=span, looks={})


def _joined(places: Sequence[int], window: int) -> list[tuple[int, int]]:
    """Return a window around each place, with overlapping ones merged."""
    joined: list[tuple[int, int]] = []
    for place in places:
        begin, end = max(0, place - window), place + window
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((begin, end))
    return joined
