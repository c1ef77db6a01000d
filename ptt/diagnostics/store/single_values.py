"""Single values of the sequences (ids, steps, rewards), handed from the check for secrets to whoever judges them.

To open 2,000 files for three small columns takes a quarter of a second, so both read them in one go.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from ptt.diagnostics.schema import SEQUENCES
from ptt.diagnostics.store.manifest import InPlaceFile
from ptt.diagnostics.store.scan import SequenceScan, attributes, figure_columns, scan_files


def single_columns(file: InPlaceFile, schema: pl.Schema) -> list[str]:
    """Return the columns of a file with a value a sequence, or one a tool call, and none a token."""
    canonical = [name for name in SEQUENCES if name in file.columns]
    single = [name for name in canonical if not isinstance(SEQUENCES[name], pl.List) or name.startswith("tool_")]
    return list(dict.fromkeys([*single, *attributes(file, schema), *figure_columns(file.kind, schema)]))


class SingleValues:
    """What was read of the files of a run, held until it is asked for."""

    def __init__(self) -> None:
        """Hold nothing."""
        self._paths: tuple[Path, ...] = ()
        self._frame: pl.DataFrame | None = None

    def hold(self, paths: Sequence[Path], frame: pl.DataFrame) -> None:
        """Hold what files of one schema have, one after another, instead of what was held before."""
        self._paths, self._frame = tuple(paths), frame

    def take(self, scan: SequenceScan, columns: Sequence[str]) -> pl.LazyFrame | None:
        """Return these columns of a scan, once; None where they are not those of exactly its files."""
        frame, self._frame = self._frame, None
        if frame is None or not scan.divisible or scan.rows != frame.height:
            return None
        if self._paths != tuple(file.path for file in scan.files) or any(file.skipped for file in scan.files):
            return None
        held = scan_files(list(scan.files), held=frame)
        known = held.collect_schema()
        whole = scan.frame.collect_schema()
        return held.select(columns) if all(known.get(name) == whole[name] for name in columns) else None
