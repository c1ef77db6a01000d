"""Read what is new of a run: files and the new lines of logs, through the parsers that read a finished one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Final

from ptt.diagnostics.config import Settings
from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.engines.local import read_token_tables
from ptt.diagnostics.evidence.gather import read_metrics
from ptt.diagnostics.evidence.series import read_series
from ptt.diagnostics.evidence.tails import step_stats
from ptt.diagnostics.metrics.aliases import canonical, is_own, split_of
from ptt.diagnostics.parsers.io.interface import RunFile
from ptt.diagnostics.pipeline import RunLocation, ingest
from ptt.diagnostics.statistics.slices import SLICES
from ptt.diagnostics.store.manifest import Manifest
from ptt.diagnostics.store.scan import read_table
from ptt.diagnostics.store.wide_metrics import read_wide
from ptt.diagnostics.watch.observed import ObservedStep, observed_steps
from ptt.stopping import temporary_folder

NAMES: Final = dict(enumerate(SLICES))
MIN_PROOF: Final = 2  # steps in the part of a log that is read alone, to learn whether its new lines can be


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What some files hold: steps with metrics and tails, and what they say of the run and its end."""

    steps: tuple[ObservedStep, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    events: tuple[dict[str, Any], ...] = ()


@contextmanager
def _store(files: Sequence[RunFile], root: Path, settings: Settings) -> Iterator[tuple[Path, Manifest]]:
    with temporary_folder("ptt-watch-") as scratch:
        location = RunLocation(run=root, store=Path(scratch) / "store", name="run", keep=False)
        yield location.store, ingest(location, copy=False, settings=settings, only=list(files))


def read_new(files: Sequence[RunFile], root: Path, settings: Settings) -> Reading:
    """Read files, or spans of them, as if they were all of a run; `root`: the folder their paths are below."""
    if not files:
        return Reading()
    with _store(files, root, settings) as (store, manifest), ThreadPoolExecutor(1) as background:
        series = read_series(read_metrics(store), read_wide(store, manifest))
        damaged: dict[str, str] = {}
        tokens = read_token_tables(
            store, manifest, root, settings=settings, background=background, damaged=damaged, keep=False
        )
        table = step_stats(tokens, NAMES) if tokens is not None and tokens.pairs else None
        steps = tuple(observed_steps(series, table))
        events = tuple(read_table(store, "events").select("step", "kind", "text", "source").iter_rows(named=True))
        return Reading(steps=steps, facts=dict(manifest.facts), events=events)


def logged_step(step: int, metrics: Mapping[str, float]) -> ObservedStep:
    """Return what a trainer logged of a step, under its own names, as a log of it would be read."""
    names = {raw: canonical(raw) for raw in metrics if split_of(raw) == "train" and not is_own(raw)}
    return ObservedStep(
        step=step, metrics={name: float(metrics[raw]) for raw, name in names.items() if name is not None}
    )


def reads_in_part(file: RunFile, root: Path, settings: Settings, whole: Reading) -> bool | None:
    """Return whether the second half of a log says alone what it says within the whole; None while it is too short.

    Logs whose rows are numbered by their place, or whose names stand in the first line alone, say something else.
    """
    middle = _line_end(file.path, file.size // 2)
    if middle is None or middle >= file.size:
        return None
    half = read_new([replace(file, span=(middle, file.size), looks={})], root, settings).steps
    known = {step.step: step.metrics for step in whole.steps}
    if len(half) < MIN_PROOF or len(half) >= len(known):
        return None if len(known) < 2 * MIN_PROOF else False
    first = half[0].step  # the cut may lie between two rows of this one
    return all(at.step in known and (at.step == first or _same(at.metrics, known[at.step])) for at in half)


def _same(some: Mapping[str, float], others: Mapping[str, float]) -> bool:
    return some.keys() == others.keys() and all(
        value == others[name] or (math.isnan(value) and math.isnan(others[name])) for name, value in some.items()
    )


def _line_end(path: Path, start: int) -> int | None:
    with path.open("rb") as handle:
        handle.seek(start)
        return start + len(line) if (line := handle.readline()).endswith(b"\n") else None


def last_line_end(path: Path, start: int, end: int) -> int:
    """Return where the last complete line between two places of a file ends; `start` where none does."""
    piece = 1 << 16
    with path.open("rb") as handle:
        for at in range(end, start, -piece):
            begin = max(start, at - piece)
            handle.seek(begin)
            if (cut := handle.read(at - begin).rfind(b"\n")) >= 0:
                return begin + cut + 1
    return start
