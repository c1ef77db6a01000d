"""Connect the stages for agent traces: files to store, store to diagnosis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import polars as pl

from ptt.diagnostics.config import Settings
from ptt.diagnostics.engines.local import read_token_tables
from ptt.diagnostics.errors import InputError, describe, is_caught
from ptt.diagnostics.evidence.completions import Completions
from ptt.diagnostics.evidence.tail_details import EpisodeTails, gather_episode_tails
from ptt.diagnostics.model import RuleCrash, Source
from ptt.diagnostics.parsers import PARSERS
from ptt.diagnostics.parsers.io.interface import RunFile
from ptt.diagnostics.parsers.io.trace_hints import NEAREST
from ptt.diagnostics.pipeline import Progress
from ptt.diagnostics.scrub.scrub import Scrubber
from ptt.diagnostics.store import ingest as store_ingest
from ptt.diagnostics.store.file_readings import ReadApart, RunTasks, read_here
from ptt.diagnostics.store.manifest import Manifest, read_manifest
from ptt.diagnostics.store.scan import read_table
from ptt.diagnostics.traces.diagnose import in_groups_of_three, judge_traces
from ptt.diagnostics.traces.labels import apply_labels, digest_of
from ptt.diagnostics.traces.model import TraceDiagnosis
from ptt.diagnostics.traces.tables import scan_table
from ptt.diagnostics.traces.token_tail import write_tail_counts
from ptt.version import __version__


def diagnose_traces(
    files: Sequence[RunFile],
    *,
    name: str,
    store: Path,
    notes: Sequence[str] = (),
    settings: Settings | None = None,
    keep_messages: bool = False,
    labels: Path | None = None,
    run_tasks: RunTasks | None = None,
    progress: Progress | None = None,
) -> TraceDiagnosis:
    """Read traces into a store and judge them; `keep_messages` keeps whole conversations for an export.

    `labels`: a file of success and reward by id, in place of what the traces say.
    `run_tasks` runs `read_task` over tasks in other processes; without it they run here, one after another.

    Raises InputError where none of the files holds an episode.
    """
    settings = settings or Settings()
    manifest = store_ingest.ingest(
        list(files),
        notes=list(notes),
        parsers=PARSERS,
        folder=store,
        ptt_version=__version__,
        keep_text=settings.keep_text,
        keep_messages=keep_messages,
        beside="" if labels is None else f" with {digest_of(labels)}",
        metric_names=settings.metrics,
        limits=settings.budget,
        on_file=progress and partial(progress, "reading files"),
        read_apart=ReadApart(run_tasks=run_tasks or read_here),
    )
    of_labels = () if labels is None or not holds_traces(store) else (apply_labels(store, labels),)
    tails, faults = _token_tails(store, manifest, settings, files, progress)
    diagnosis = _judged(store, name, faults, tails)
    return replace(diagnosis, sources=(*diagnosis.sources, *of_labels))


def reopened_traces(store: Path, *, name: str) -> TraceDiagnosis:
    """Judge the traces of a store that was written before; InputError where it is no store of this version."""
    manifest = read_manifest(store)
    if manifest is None:
        raise InputError(f"{store}: written by another version of ptt; give the traces themselves.")
    tails, faults = _token_tails(store, manifest, Settings())
    return _judged(store, name, faults, tails)


def holds_traces(store: Path) -> bool:
    """Return whether a store holds episodes."""
    return _rows(store, "trajectories") > 0


def holds_only_traces(store: Path) -> bool:
    """Return whether a store holds episodes and neither curves nor tokens."""
    manifest = read_manifest(store)
    if manifest is None or manifest.in_place or manifest.parts or manifest.wide:
        return False
    return holds_traces(store) and not _rows(store, "metrics")


def _rows(store: Path, table: str) -> int:
    return int(scan_table(store, table).select(pl.len()).collect().item())


def _token_tails(
    store: Path,
    manifest: Manifest,
    settings: Settings,
    files: Sequence[RunFile] = (),
    progress: Progress | None = None,
) -> tuple[EpisodeTails | None, dict[str, str]]:
    """Join the tokens beside the traces to their episodes; None without any pair of logprobs. Also return the faults.

    What each episode holds of the tail is kept in the store, for an export. A store whose tokens were read in place
    has none of its own.
    """
    faults = dict(manifest.faults)
    places = {file.rel: file.path.resolve() for file in files}
    in_place = [replace(item, path=str(places[item.path])) for item in manifest.in_place if item.path in places]
    if not (in_place or manifest.parts) or not holds_traces(store):
        return None, faults
    try:
        with ThreadPoolExecutor(1) as background:
            tokens = read_token_tables(
                store,
                replace(manifest, in_place=tuple(in_place)),
                store,
                settings=settings,
                background=background,
                damaged={},
                keep=False,
                progress=progress and partial(progress, "reading tokens"),
            )
            if tokens is None or not tokens.pairs:
                return None, faults
            samples = (read_table(store, table) for table in ("trajectories", "tool_calls", "turns"))
            tails = gather_episode_tails(tokens, Completions(*samples))
    except BaseException as error:  # costs this question alone; a panic of Polars is no Exception
        if not is_caught(error):
            raise
        return None, faults | {"tokens": describe(error)}
    if tails.joined and files:
        write_tail_counts(tails, store)
    return tails, faults


def _judged(store: Path, name: str, faults: Mapping[str, str], tails: EpisodeTails | None = None) -> TraceDiagnosis:
    sources = tuple(Source(**row) for row in read_table(store, "sources").sort("path").iter_rows(named=True))
    crashes = [RuleCrash(id=f"reading:{name}", error=error) for name, error in faults.items()]
    diagnosis = in_groups_of_three(judge_traces(store, Scrubber().path(name), sources, crashes, tails=tails))
    if not diagnosis.traces.episodes:
        raise InputError(f"{name}: {_nothing_found(sources)}; ptt sources says what was found.")
    return diagnosis


def _nothing_found(sources: Sequence[Source]) -> str:
    if sources and not any(source.bytes for source in sources):
        return "the file is empty" if len(sources) == 1 else f"all {len(sources)} files here are empty"
    near = next((source.note for source in sources if source.note and NEAREST in source.note), "")
    return f"no file here holds an episode. {near.rstrip('.')}" if near else "no file here holds an episode"
