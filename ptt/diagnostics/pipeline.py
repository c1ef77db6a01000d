"""The one place where the stages join: files to store, store to tables, tables to evidence, evidence to diagnosis."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import polars as pl

from ptt.diagnostics.config import Settings
from ptt.diagnostics.custom.files import load_rules, rule_files
from ptt.diagnostics.custom.terms import CustomRule
from ptt.diagnostics.engines import local
from ptt.diagnostics.errors import InputError
from ptt.diagnostics.evidence.gather import gather
from ptt.diagnostics.evidence.series import read_evaluations
from ptt.diagnostics.evidence.tails import profile_of
from ptt.diagnostics.model import Diagnosis
from ptt.diagnostics.parsers import PARSERS, run_files
from ptt.diagnostics.parsers.io.interface import RunFile
from ptt.diagnostics.rules.policy_update import kl_over_target
from ptt.diagnostics.statistics.tail_curves import Profile
from ptt.diagnostics.store import archives
from ptt.diagnostics.store import ingest as store_ingest
from ptt.diagnostics.store.diagnosis import Asked, KeptDiagnosis, read_kept, write_kept
from ptt.diagnostics.store.exclusive_lock import alone
from ptt.diagnostics.store.ingest import IN_PART, UNREADABLE, UNRECOGNISED
from ptt.diagnostics.store.loaded_run import write_profile
from ptt.diagnostics.store.manifest import Manifest
from ptt.diagnostics.store.run_identity import asked_of, identity, mark_of, source_hash
from ptt.diagnostics.store.scan import ANEW, check_entries, open_existing, read_table, scan_sequences
from ptt.diagnostics.verdict.handover import Held, with_deliverables
from ptt.diagnostics.verdict.run_coverage import Answerable, answerable
from ptt.diagnostics.verdict.run_rules import diagnosis_of
from ptt.version import __version__

Progress = Callable[[str, int, int], None]
"""Hears what is being done, how much of it is done, and of how much."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a run lies and where its store goes."""

    run: Path
    store: Path
    name: str  # what the run is called: its folder's, file's or archive's name
    notes: tuple[str, ...] = ()  # what was passed over before the run was read
    kept: bool = True  # whether the store outlives the call, so that a cache in it is of use
    identity: str = ""  # of the archive that the run was unpacked from
    packed: Path | None = None  # that archive: the folder it was unpacked into is gone when the user reads of it

    @property
    def root(self) -> Path:
        """The folder that file names are given from."""
        return self.run if self.run.is_dir() else self.run.parent

    @property
    def given(self) -> Path:
        """What the user gave for the run."""
        return self.packed or self.run


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A diagnosis, the hash of what it was made from, and the store that holds its tokens."""

    diagnosis: Diagnosis
    source: str
    store: Path
    profile: Profile | None = None  # where it is not kept there


def kept(place: Place, settings: Settings) -> Judged | None:
    """Give what the store keeps of this very run and these settings, without opening the run; None where it is not."""
    return _shown(place, read_kept(place.store, _mark(place, settings)))


def ingest(place: Place, *, copy: bool, keep_text: bool = False, progress: Progress | None = None) -> Manifest:
    """Parse a run into its store; `copy` takes recorder files along, so that the store stands alone.

    `keep_text` keeps the texts of samples as well.
    """
    files, notes = run_files(place.run)
    manifest = store_ingest.ingest(
        files,
        notes=[*place.notes, *notes],
        parsers=PARSERS,
        folder=place.store,
        ptt_version=__version__,
        keep_text=keep_text,
        on_file=None if progress is None else lambda done, of: progress("reading files", done, of),
    )
    if copy and manifest.in_place:
        scan = scan_sequences(place.store, manifest, place.root)
        if scan is not None:
            store_ingest.copy_sequences(scan.frame.drop("seq"), place.store)  # a row number is of its file
    return manifest


def look(place: Place, *, progress: Progress | None = None) -> Answerable:
    """Say what the files of a run hold and what they can answer, without looking at any token."""
    manifest = ingest(place, copy=False, progress=progress)
    found = answerable(place.name, place.store, manifest, place.root)
    if found.held or not (why := _packed(place, read_table(place.store, "sources"))):
        return found
    unread = tuple(one for one in found.unread if not archives.is_packed(one.example))
    return replace(found, unread=unread, notes=(f"The folder {why}.", *found.notes))


def diagnose(place: Place, settings: Settings, *, progress: Progress | None = None) -> Judged:
    """Judge a run, or give what its store keeps of an earlier look at the same files with the same settings."""
    own_rules = load_rules(settings.rules)  # first: a mistake in one must not cost the time it takes to read the run
    if not place.kept:
        return _afresh(place, settings, own_rules, "", progress)
    mark = _mark(place, settings)
    if (held := _shown(place, read_kept(place.store, mark))) is not None:
        return held
    with alone(place.store.parent, waiting=partial(_waits, progress)):
        held = _shown(place, read_kept(place.store, mark))  # another process may have judged it meanwhile
        return held or _afresh(place, settings, own_rules, mark, progress)


def _afresh(
    place: Place, settings: Settings, own_rules: Sequence[CustomRule], mark: str, progress: Progress | None
) -> Judged:
    manifest = ingest(place, copy=False, keep_text=settings.keep_text, progress=progress)
    check_read(place)
    files = run_files(place.run)[0]
    mark += IN_PART * (bool(mark) and manifest.fingerprint.endswith(IN_PART))  # kept, and not for the next look
    return _judged(place, manifest, files, settings, own_rules, mark=mark, source=source_hash(files), progress=progress)


def _waits(progress: Progress | None) -> None:
    if progress is not None:
        progress("waiting for another ptt that writes there", 0, 1)


def _shown(place: Place, held: KeptDiagnosis | None) -> Judged | None:
    return None if held is None else Judged(diagnosis=held.diagnosis, source=held.source, store=place.store)


def diagnose_store(place: Place, settings: Settings, *, as_judged: bool = False) -> Judged:
    """Give what a store keeps, or judge it without its run; `place.run` is the store.

    With `as_judged` whatever is kept is given, and said where it was judged under other settings or by another ptt.
    Without it that is judged anew where the store holds the tokens; other settings raise InputError where it does not.
    """
    own_rules = load_rules(settings.rules)
    check_entries(place.store)
    asked, held = _asked(settings), read_kept(place.store)
    if held is not None and (as_judged or held.asked == asked):
        return _as_it_was(place, held, asked)
    manifest = open_existing(place.store)
    if manifest is not None:
        keep = held is None or not held.of_run  # what was made of the run says more, of checkpoints for one
        try:
            with alone(place.store.parent):
                return _judged(
                    replace(place, kept=keep), manifest, [], settings, own_rules, mark="", source=manifest.fingerprint
                )
        except pl.exceptions.PolarsError as error:
            why = str(error).splitlines()[0][:200]
            raise InputError(f"{place.store}: a table in it is damaged ({why}); {ANEW}.") from error
    if held is None:
        raise InputError(
            f"{place.store}: holds no tokens of its own, since the run's files were read where they lay; give the run, "
            "or make a store that stands alone with ptt ingest."
        )
    if held.asked.settings != asked.settings:
        raise InputError(
            f"{place.store}: was judged with other settings or custom rules than those given now, and holds no tokens "
            "to judge it anew; give the run, or the settings it was judged with."
        )
    return _as_it_was(place, held, asked)


def _as_it_was(place: Place, held: KeptDiagnosis, asked: Asked) -> Judged:
    told = ""
    if held.asked.settings != asked.settings:
        told = OTHER_SETTINGS
    elif held.asked.version != asked.version:
        told = OTHER_VERSION
    return Judged(diagnosis=replace(held.diagnosis, judged_with=told), source=held.source, store=place.store)


OTHER_SETTINGS: Final = (
    "Judged with other settings or custom rules than those in force here; ptt diagnose on the run judges it with these."
)
OTHER_VERSION: Final = "Judged by another version of ptt; ptt diagnose on the run judges it with this one."


def _judged(
    place: Place,
    manifest: Manifest,
    files: list[RunFile],
    settings: Settings,
    own_rules: Sequence[CustomRule],
    *,
    mark: str,
    source: str,
    progress: Progress | None = None,
) -> Judged:
    with ThreadPoolExecutor(1) as background:  # the cache is written while the tables are looked at
        tokens = local.read_token_tables(
            place.store,
            manifest,
            place.root,
            settings=settings,
            background=background,
            keep=place.kept,
            progress=None if progress is None else lambda done, of: progress("reading tokens", done, of),
        )
        gathered = gather(
            name=place.name,
            folder=place.store,
            manifest=manifest,
            tokens=tokens,
            settings=settings,
            drawn_limits={"kl/ref": settings.limits.get(kl_over_target.ID, {}).get("limit", kl_over_target.KL_LIMIT)},
        )
    judged = diagnosis_of(gathered, own_rules, read_table(place.store, "sources"), manifest, tokens)
    held = Held(
        files=files,
        evaluated=read_evaluations(gathered.tables["metrics"]),
        evals=read_table(place.store, "evals"),
    )
    diagnosis = with_deliverables(judged, gathered.evidence, held)
    profile = None if tokens is None else profile_of(tokens, post_name=gathered.post_name)
    if place.kept and _keep(place, mark, source, _asked(settings), diagnosis, tokens, profile):
        profile = None
    return Judged(diagnosis=diagnosis, source=source, store=place.store, profile=profile)


def _keep(
    place: Place,
    mark: str,
    source: str,
    asked: Asked,
    diagnosis: Diagnosis,
    tokens: local.Tokens | None,
    profile: Profile | None,
) -> bool:
    """Keep what was judged, and say whether it is kept: a full disk must not cost the diagnosis."""
    try:
        if tokens is not None and tokens.kept is not None:
            tokens.kept.result()
        beside = None if profile is None else partial(write_profile, store=place.store, profile=profile)
        write_kept(place.store, mark, source, asked, diagnosis, beside=beside)
    except (OSError, pl.exceptions.PolarsError):
        return False
    return True


def _asked(settings: Settings) -> Asked:
    chosen = (settings.min_observation, sorted((k, sorted(v.items())) for k, v in settings.limits.items()))
    return Asked(settings=asked_of(repr(chosen), rule_files(settings.rules)), version=__version__)


def _mark(place: Place, settings: Settings) -> str:
    chosen = (
        settings.min_observation,
        settings.keep_text,
        sorted((k, sorted(v.items())) for k, v in settings.limits.items()),
    )
    return mark_of(
        place.identity or identity(place.run),
        name=place.name,
        version=__version__,
        settings=repr(chosen),
        files=rule_files(settings.rules),
    )


def check_read(place: Place) -> None:
    """Refuse a run of which nothing can be read, and take its store away: it would pass for one of a run."""
    try:
        _something_read(place, read_table(place.store, "sources"))
    except InputError:
        shutil.rmtree(place.store, ignore_errors=True)
        raise


def _something_read(place: Place, table: pl.DataFrame) -> None:
    """Refuse a run of which every file that could be recognised is damaged from end to end, or a folder of archives."""
    known = table.filter(pl.col("kind") != UNRECOGNISED)
    if place.run.is_file() and not known.height:
        raise InputError(f"{place.given}: in no format that is read here; docs/formats.md lists them.")
    if not known.height and (packed := _packed(place, table)):
        raise InputError(f"{place.given}: {packed}.")
    if known.height and not known["rows_ok"].sum():
        first = known.row(0, named=True)
        why = first["note"] or f"{first['path']} holds no row."
        named = f"{first['path']}: " if first["kind"] == UNREADABLE else ""  # what such a file is, nobody knows
        what = "files" if named else "recognised files"
        raise InputError(f"{place.given}: none of its {known.height} {what} could be read. {named}{why}")


def _packed(place: Place, table: pl.DataFrame) -> str:
    return archives.packed_in(place.run, table["path"].to_list(), place.packed) if place.run.is_dir() else ""
