"""Connect the stages: files to store, store to tables, tables to evidence, evidence to diagnosis."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import polars as pl

from ptt.diagnostics.advisories.advisory import advisory_files, database
from ptt.diagnostics.advisories.matching import match_run, mismatch_signs
from ptt.diagnostics.config import Settings
from ptt.diagnostics.custom.files import load_rules, rule_files
from ptt.diagnostics.custom.judge import Lookup
from ptt.diagnostics.custom.terms import CustomRule
from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.engines import local
from ptt.diagnostics.engines.pieces import RunPieces
from ptt.diagnostics.errors import InputError
from ptt.diagnostics.evidence.gather import Gathered, gather
from ptt.diagnostics.evidence.series import read_evaluations
from ptt.diagnostics.evidence.sources import with_notes
from ptt.diagnostics.evidence.tails import profile_of
from ptt.diagnostics.evidence.training_setup import setup_of
from ptt.diagnostics.model import Diagnosis
from ptt.diagnostics.parsers import PARSERS, run_files
from ptt.diagnostics.parsers.io import unrecognised
from ptt.diagnostics.parsers.io.interface import RunFile, parser_of
from ptt.diagnostics.rules import LIMITS
from ptt.diagnostics.rules.policy_update import kl_over_target
from ptt.diagnostics.samples.read_sample import OpenRun
from ptt.diagnostics.scrub.scrub import Scrubber
from ptt.diagnostics.statistics.tail_curves import Profile
from ptt.diagnostics.store import archives
from ptt.diagnostics.store import ingest as store_ingest
from ptt.diagnostics.store.diagnosis import Conditions, KeptDiagnosis, read_kept, write_kept, write_profile
from ptt.diagnostics.store.file_readings import ReadApart, RunTasks
from ptt.diagnostics.store.folders import exclusive_lock
from ptt.diagnostics.store.ingest import IN_PART, UNREADABLE, UNRECOGNISED
from ptt.diagnostics.store.manifest import Manifest, read_manifest
from ptt.diagnostics.store.run_identity import hash_settings, identity, mark_of, source_hash
from ptt.diagnostics.store.sample_rows import open_index
from ptt.diagnostics.store.scan import (
    ANEW,
    READ_ERRORS,
    SingleValues,
    check_entries,
    copy_sequences,
    find_damaged,
    open_existing,
    read_table,
    scan_readable,
)
from ptt.diagnostics.verdict.catalogue import OF_ONE_RULE
from ptt.diagnostics.verdict.handover import with_handover
from ptt.diagnostics.verdict.headline import LFS_POINTER
from ptt.diagnostics.verdict.run_coverage import RunCoverage, run_coverage
from ptt.diagnostics.verdict.run_rules import diagnosis_of
from ptt.stopping import temporary_folder
from ptt.version import __version__

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and of how much."""
OTHER_SETTINGS: Final = (
    "Judged with other settings or custom rules than the current ones; run ptt diagnose on the run to use these."
)
NO_TOKENS_HERE: Final = (
    "has no tokens of its own, because the run's files were read in place; give the run, or make a "
    "self-contained store with ptt ingest"
)
FINDINGS: Final = frozenset({*LIMITS, *OF_ONE_RULE})
"""What the signature of an advisory may name."""
POLARS_ERRORS: Final = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
APART_BYTES: Final = 64 << 20  # of a file that is read elsewhere: what was read of it comes back in one piece
OTHER_NAMES: Final = (
    "was made with different names under [metrics]; give the run, or make the store again with ptt ingest"
)
OTHER_VERSION: Final = "Judged by another version of ptt; run ptt diagnose on the run to use this one."


@dataclass(frozen=True, kw_only=True)
class RunLocation:
    """Where a run lies and where its store goes."""

    run: Path
    store: Path
    name: str  # what the run is called: its folder's, file's or archive's name
    notes: tuple[str, ...] = ()  # what was passed over before the run was read
    keep: bool = True  # whether the store outlives the call, so that a cache in it is of use
    identity: str = ""  # of the archive that the run was unpacked from
    archive: Path | None = None  # that archive: the folder it was unpacked into is gone when the user reads of it

    @property
    def root(self) -> Path:
        """The folder that file names are given from."""
        return self.run if self.run.is_dir() else self.run.parent

    @property
    def given(self) -> Path:
        """What the user gave for the run."""
        return self.archive or self.run


@dataclass(frozen=True, kw_only=True)
class JudgedRun:
    """A diagnosis, the hash of what it was made from, and the store that holds its tokens."""

    diagnosis: Diagnosis
    source: str
    store: Path
    profile: Profile | None = None  # where it is not kept there


def read_cached(location: RunLocation, settings: Settings) -> JudgedRun | None:
    """Return what the store keeps of this very run and these settings, or None; the run is not opened."""
    return _cached(location, _mark(location, settings))


def ingest(
    location: RunLocation,
    *,
    copy: bool,
    settings: Settings | None = None,
    progress: Progress | None = None,
    only: list[RunFile] | None = None,
    read_tasks: RunTasks | None = None,
    single: SingleValues | None = None,
) -> Manifest:
    """Parse a run into its store; `copy` takes recorder files along, so that the store stands alone.

    The settings say whether texts of samples are kept, and what metrics are called. `only`: these of its files;
    `read_tasks`: reads files elsewhere; the store is the same. `single`: is given the single values of sequences.
    """
    settings = settings or Settings()
    files, notes = run_files(location.run, settings.logs) if only is None else (only, [])
    manifest = store_ingest.ingest(
        files,
        notes=[*location.notes, *notes],
        parsers=PARSERS,
        folder=location.store,
        ptt_version=__version__,
        keep_text=settings.keep_text,
        metric_names=settings.metrics,
        limits=settings.budget,
        packed=location.archive.stat().st_size if location.archive else None,
        on_file=progress and partial(progress, "reading files"),
        read_apart=ReadApart(run_tasks=read_tasks, cut=False, largest=APART_BYTES) if read_tasks else None,
        keep_readings=location.keep and not copy,
        single=single,
    )
    if copy and manifest.in_place:
        scan = scan_readable(location.store, manifest, location.root, {})
        if scan is not None:
            copy_sequences(scan.frame.drop("seq"), location.store)  # a row number is of its file
    return manifest


def inspect(
    location: RunLocation, settings: Settings | None = None, *, progress: Progress | None = None
) -> RunCoverage:
    """Say what the files of a run hold and what they can answer, without looking at any token."""
    manifest = ingest(location, copy=False, settings=settings, progress=progress)
    manifest = _as_told(manifest, settings)
    coverage = run_coverage(
        Scrubber().path(location.name),
        location.store,
        manifest,
        location.root,
        keys=[*settings.metrics, *settings.better] if settings else (),
        logs=settings.logs if settings else (),
    )
    if coverage.held or not (why := _only_archives(location, read_table(location.store, "sources"))):
        return coverage
    unread = tuple(files for files in coverage.unread if not archives.is_packed(files.example))
    return replace(coverage, unread=unread, notes=(f"The folder {why}.", *coverage.notes))


@contextmanager
def opened(location: RunLocation, settings: Settings) -> Iterator[OpenRun]:
    """Open a run to read samples of it: from its store where that is current, else from a temporary one."""
    with temporary_folder("ptt-show-") as scratch:
        of_store = location.run == location.store
        files = [] if of_store else run_files(location.run, settings.logs)[0]
        location, manifest = _readable_store(location, files, Path(scratch), settings)
        framework = manifest.facts.get("framework")

        def read_texts(source: str) -> Path | None:
            """Read one file of samples again with its texts, which pass the scrubber as in any store."""
            if of_store:
                return None
            again = replace(location, store=Path(scratch) / "texts")
            paths = Scrubber().paths([file.rel for file in files])
            own = [file for file, path in zip(files, paths, strict=True) if path == source]
            ingest(again, copy=False, settings=replace(settings, keep_text=True), only=own or files)
            return again.store

        try:
            scan, index = open_index(location.store, manifest, location.root)
            yield OpenRun(
                name=Scrubber().path(location.name),
                store=location.store,
                scan=scan,
                index=index,
                files=files,
                framework=framework if isinstance(framework, str) else None,
                min_observation=settings.min_observation,
                read_texts=read_texts,
            )
        except POLARS_ERRORS as error:  # files were recognised by their ends, and are damaged between
            why = (str(error).splitlines() or [type(error).__name__])[0][:200]
            raise InputError(f"{location.given}: its part of this sample cannot be read: {why}.") from error


def _readable_store(
    location: RunLocation, files: list[RunFile], scratch: Path, settings: Settings
) -> tuple[RunLocation, Manifest]:
    """Return where a current store of the run lies, and its manifest; it is made in `scratch` where there is none."""
    if location.run == location.store:
        check_entries(location.store)
        if (alone := open_existing(location.store)) is None:
            raise InputError(f"{location.store}: {NO_TOKENS_HERE}.")
        return location, alone
    manifest = read_manifest(location.store)
    if manifest is not None and store_ingest.is_current(
        manifest, files, ptt_version=__version__, metric_names=settings.metrics, limits=settings.budget
    ):
        return location, manifest
    location = replace(location, store=scratch / "store")
    manifest = ingest(location, copy=False, settings=settings)
    check_read(location)
    return location, manifest


def sample(location: RunLocation) -> str:
    """Return the shapes of the files that no parser recognises, without their content; empty where all are."""
    files = run_files(location.run)[0]
    foreign = [file for file in files if file.size and parser_of(file, PARSERS) is None]
    return unrecognised.sample(foreign) if foreign else ""


def judge_run(
    location: RunLocation,
    settings: Settings,
    *,
    run_pieces: RunPieces | None = None,
    progress: Progress | None = None,
) -> JudgedRun:
    """Judge a run, or return what its store keeps of an earlier look at the same files with the same settings.

    `run_pieces`: folds the pieces of a long run elsewhere; the result is the same.
    """
    custom_rules = load_rules(settings.rules)  # first: a mistake in one must not cost the time it takes to read the run
    if not location.keep:
        return _read_and_judge(location, settings, custom_rules, "", run_pieces, progress)
    mark = _mark(location, settings)
    if (cached := _cached(location, mark)) is not None:
        return cached
    on_wait = progress and partial(progress, "waiting for another ptt that is writing there", 0, 1)
    with exclusive_lock(location.store.parent, on_wait=on_wait):
        cached = _cached(location, mark)  # another process may have judged it meanwhile
        return cached or _read_and_judge(location, settings, custom_rules, mark, run_pieces, progress)


def _cached(location: RunLocation, mark: str) -> JudgedRun | None:
    kept = read_kept(location.store, mark)
    return None if kept is None else _as_kept(location, kept)


def _as_kept(location: RunLocation, kept: KeptDiagnosis, judged_with: str = "") -> JudgedRun:
    diagnosis = replace(kept.diagnosis, judged_with=judged_with)
    return JudgedRun(diagnosis=diagnosis, source=kept.source, store=location.store)


def _read_and_judge(
    location: RunLocation,
    settings: Settings,
    custom_rules: Sequence[CustomRule],
    mark: str,
    run_pieces: RunPieces | None,
    progress: Progress | None,
) -> JudgedRun:
    single = SingleValues()
    manifest = ingest(location, copy=False, settings=settings, progress=progress, single=single)
    check_read(location)
    files = run_files(location.run, settings.logs)[0]
    mark += IN_PART * (bool(mark) and manifest.fingerprint.endswith(IN_PART))  # kept, and not for the next look
    source = source_hash(files)
    return _judge(
        location,
        manifest,
        settings,
        custom_rules,
        files=files,
        mark=mark,
        source=source,
        run_pieces=run_pieces,
        progress=progress,
        single=single,
    )


def judge_store(location: RunLocation, settings: Settings, *, as_judged: bool = False) -> JudgedRun:
    """Return what a store keeps, or judge it without its run; `location.run` is the store.

    With `as_judged` whatever is kept is given, and said where it was judged under other settings or by another ptt.
    Without it that is judged anew where the store holds the tokens; other settings raise InputError where it does not.
    """
    custom_rules = load_rules(settings.rules)
    store = location.store
    check_entries(store)
    conditions, kept = _conditions(settings), read_kept(store)
    manifest = None
    if kept is None or not (as_judged or kept.conditions == conditions):
        manifest = open_existing(store)
    if manifest is not None:
        if settings.metrics and settings.metrics != manifest.metric_names:
            raise InputError(f"{store}: {OTHER_NAMES}.")
        keep = kept is None or not kept.of_run  # what was made of the run says more, of checkpoints for one
        try:
            with exclusive_lock(store.parent):
                return _judge(
                    replace(location, keep=keep), manifest, settings, custom_rules, source=manifest.fingerprint
                )
        except pl.exceptions.PolarsError as error:
            why = str(error).splitlines()[0][:200]
            raise InputError(f"{store}: a table in it is damaged ({why}); {ANEW}.") from error
    if kept is None:
        raise InputError(f"{store}: {NO_TOKENS_HERE}.")
    other_settings = kept.conditions.settings != conditions.settings
    if other_settings and not as_judged:
        raise InputError(
            f"{store}: was judged with other settings or custom rules than the current ones, and has no tokens to "
            "judge it again; give the run, or the settings it was judged with."
        )
    other_version = kept.conditions.version != conditions.version
    return _as_kept(location, kept, OTHER_SETTINGS if other_settings else OTHER_VERSION if other_version else "")


def _judge(
    location: RunLocation,
    manifest: Manifest,
    settings: Settings,
    custom_rules: Sequence[CustomRule],
    *,
    files: Sequence[RunFile] = (),
    mark: str = "",
    source: str,
    run_pieces: RunPieces | None = None,
    progress: Progress | None = None,
    single: SingleValues | None = None,
) -> JudgedRun:
    """Judge what a store and the run's files hold, and keep it where the store is kept."""
    manifest = _as_told(manifest, settings)
    store, scrubber = location.store, Scrubber()
    paths = scrubber.paths([file.rel for file in files])
    name = scrubber.path(location.name)
    tokens, gathered, damaged = _evidence(location, name, manifest, settings, run_pieces, progress, single)
    machines = gathered.evidence.machines
    clocks = machines.notes if machines else {}
    table = read_table(store, "sources")
    sources = with_notes(table, gathered.tables["metrics"], gathered.placements, gathered.wide, clocks, gathered.starts)
    if progress is not None:
        progress("judging", 0, 1)
    setup, known = setup_of(manifest, told=settings.run.get("framework")), database(settings.advisories, rules=FINDINGS)
    lookup = Lookup(gathered.evidence, gathered.tables, gathered.wide)
    signs = (*gathered.evidence.mismatch_signs, *mismatch_signs(known, setup, lookup))
    gathered = replace(gathered, evidence=replace(gathered.evidence, mismatch_signs=signs))
    diagnosis = with_handover(
        diagnosis_of(gathered, custom_rules, sources, manifest, tokens, damaged),
        gathered.evidence,
        files=[replace(file, rel=rel) for file, rel in zip(files, paths, strict=True)],
        evaluated=read_evaluations(gathered.tables["metrics"]),
        evals=read_table(store, "evals"),
    )
    diagnosis = replace(
        diagnosis,
        advisories=match_run(known, setup, diagnosis, lookup),
    )
    if progress is not None:
        progress("judging", 1, 1)
    profile = None if tokens is None else profile_of(tokens, post_name=gathered.post_name)
    if location.keep:
        try:
            if tokens is not None and tokens.kept is not None:
                tokens.kept.result()
            write_beside = None if profile is None else partial(write_profile, store=store, profile=profile)
            write_kept(store, mark, source, _conditions(settings), diagnosis, write_beside=write_beside)
            profile = None
        except (OSError, pl.exceptions.PolarsError):  # a full disk must not cost the diagnosis
            pass
    return JudgedRun(diagnosis=diagnosis, source=source, store=store, profile=profile)


def _as_told(manifest: Manifest, settings: Settings | None) -> Manifest:
    """Return the description of a store with what the user says of the run before all that its files say.

    Where no file names the framework, its settings or packages may tell it.
    """
    facts = {**manifest.facts, **(settings.run if settings else {})}
    if "framework" not in facts and (framework := setup_of(manifest).framework) is not None:
        facts["framework"] = framework
    return replace(manifest, facts=facts)


def _evidence(
    location: RunLocation,
    name: str,
    manifest: Manifest,
    settings: Settings,
    run_pieces: RunPieces | None,
    progress: Progress | None,
    single: SingleValues | None,
) -> tuple[local.Tokens | None, Gathered, dict[str, str]]:
    """Read tokens and tables; also return the files that were found damaged, or disappeared in the meantime."""
    damaged: dict[str, str] = {}
    while True:
        with ThreadPoolExecutor(1) as background:
            tokens = local.read_token_tables(
                location.store,
                manifest,
                location.root,
                settings=settings,
                background=background,
                damaged=damaged,
                keep=location.keep,
                run_pieces=run_pieces,
                progress=progress and partial(progress, "reading tokens"),
                single=single,
            )
            if tokens is not None and tokens.kept is not None:
                wait((tokens.kept,))  # its buffers would come on top of the greatest that gathering takes
            gathered = gather(
                name=name,
                folder=location.store,
                manifest=manifest,
                tokens=tokens,
                settings=settings,
                drawn_limits={
                    "kl/ref": settings.limits.get(kl_over_target.ID, {}).get("limit", kl_over_target.KL_LIMIT)
                },
            )
        if not any(isinstance(error, READ_ERRORS) for _, error in gathered.raised):
            return tokens, gathered, damaged
        unreadable = find_damaged(manifest, location.root)
        if unreadable.keys() <= damaged.keys():  # no file's fault
            return tokens, gathered, damaged
        damaged |= unreadable


def _conditions(settings: Settings) -> Conditions:
    return Conditions(settings=hash_settings(_in_force(settings), _own_files(settings)), version=__version__)


def _mark(location: RunLocation, settings: Settings) -> str:
    return mark_of(
        location.identity or identity(location.run),
        name=location.name,
        version=__version__,
        settings=f"{_in_force(settings)} {settings.keep_text}" + _budget_in_force(settings),
        files=_own_files(settings),
    )


def _own_files(settings: Settings) -> list[Path]:
    """List the files of the user's own that a diagnosis depends on: rules and advisories."""
    return [*rule_files(settings.rules), *advisory_files(settings.advisories)]


def _in_force(settings: Settings) -> str:
    """Spell the settings that a diagnosis depends on; stores of earlier versions hold the hash of this text."""
    limits = sorted((rule, sorted(of.items())) for rule, of in settings.limits.items())
    metric_names = (sorted(settings.metrics.items()),) if settings.metrics else ()
    told = [sorted(table.items()) for table in (settings.better, settings.run)]
    own = (settings.logs,) if settings.logs else ()
    return repr((settings.min_observation, limits, *metric_names, *(told if any(told) else ()), *own))


def _budget_in_force(settings: Settings) -> str:
    """Spell the budget where it is not the default: how much of the run is read depends on it."""
    return "" if settings.budget == Settings.budget else f" {settings.budget!r}"


def check_read(location: RunLocation) -> None:
    """Refuse a run that cannot be read at all, and delete its store, which would pass for one of a run.

    Where a fault of ours may be why, it is judged like any other.
    """
    manifest = read_manifest(location.store)
    if manifest is not None and manifest.faults:  # of ours: the report says it, and the exit code
        return
    if problem := _unreadable(location, read_table(location.store, "sources")):
        shutil.rmtree(location.store, ignore_errors=True)
        raise InputError(f"{location.given}: {problem}")


def _unreadable(location: RunLocation, sources: pl.DataFrame) -> str:
    """Say why a run cannot be read: no known format, nothing but archives, or damaged throughout."""
    known = sources.filter(pl.col("kind") != UNRECOGNISED)
    if known.is_empty():
        if location.run.is_file():
            return sources["note"][0] or "not in a format ptt reads; docs/formats.md lists them."
        why = _only_archives(location, sources)
        return f"{why}." if why else ""
    lost = known.filter((pl.max_horizontal("rows_bad", "bytes_lost") > 0) & (pl.col("kind") != LFS_POINTER))
    if known["rows_ok"].sum() or lost.is_empty():
        return ""  # rows, or what fills no table: settings, and how the run ended
    first = known.row(0, named=True)
    why = first["note"] or f"{first['path']} has no rows."
    if first["kind"] == UNREADABLE:  # what such a file is, nobody knows
        return f"none of its {known.height} files could be read. {first['path']}: {why}"
    return f"none of its {known.height} recognised files could be read. {why}"


def _only_archives(location: RunLocation, sources: pl.DataFrame) -> str:
    if not location.run.is_dir():
        return ""
    return archives.packed_in(location.run, sources["path"].to_list(), location.archive)
