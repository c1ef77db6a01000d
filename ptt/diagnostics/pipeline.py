"""The one place where the stages join: files to store, store to tables, tables to evidence, evidence to diagnosis."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import polars as pl

from ptt import __version__
from ptt.diagnostics.answerable import Answerable, answerable
from ptt.diagnostics.config import Settings
from ptt.diagnostics.custom.files import load_rules
from ptt.diagnostics.custom.judge import judge as judge_custom
from ptt.diagnostics.custom.lookup import Lookup
from ptt.diagnostics.deliverables import Held, with_deliverables
from ptt.diagnostics.engines import local
from ptt.diagnostics.errors import InputError
from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.algorithm import Family
from ptt.diagnostics.gathering import gather
from ptt.diagnostics.gathering.losses import sources
from ptt.diagnostics.gathering.series import read_evaluations
from ptt.diagnostics.judging import contaminated, verdict_of
from ptt.diagnostics.judging.causes import explains
from ptt.diagnostics.model import Diagnosis, NotJudged, RuleCrash, RuleVerdict
from ptt.diagnostics.parsers import PARSERS, run_files
from ptt.diagnostics.parsers.switches import how_to_record
from ptt.diagnostics.rules import RULES, tool_tail_growth
from ptt.diagnostics.rules.aggregates import aggregates_of
from ptt.diagnostics.rules.tool_tail_growth import Judgement
from ptt.diagnostics.store import ingest as store_ingest
from ptt.diagnostics.store.ingest import UNRECOGNISED
from ptt.diagnostics.store.manifest import Manifest
from ptt.diagnostics.store.scan import read_table, scan_sequences

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

    @property
    def root(self) -> Path:
        """The folder that file names are given from."""
        return self.run if self.run.is_dir() else self.run.parent


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
            store_ingest.copy_sequences(scan.frame, place.store)
    return manifest


def look(place: Place, *, progress: Progress | None = None) -> Answerable:
    """Say what the files of a run hold and what they can answer, without looking at any token."""
    manifest = ingest(place, copy=False, progress=progress)
    return answerable(place.name, place.store, manifest, place.root)


def diagnose(place: Place, settings: Settings, *, progress: Progress | None = None) -> Diagnosis:
    """Judge a run."""
    own_rules = load_rules(settings.rules)  # first: a mistake in one must not cost the time it takes to read the run
    manifest = ingest(place, copy=False, keep_text=settings.keep_text, progress=progress)
    table = read_table(place.store, "sources")
    _something_read(place, table)
    with ThreadPoolExecutor(1) as background:  # the cache is written while the tables are looked at
        tokens = local.tokens(
            place.store,
            manifest,
            place.root,
            settings=settings,
            background=background,
            keep=place.kept,
            progress=None if progress is None else lambda done, of: progress("reading tokens", done, of),
        )
        gathered = gather(name=place.name, folder=place.store, manifest=manifest, tokens=tokens, settings=settings)
    if tokens is not None and tokens.kept is not None:
        tokens.kept.result()
    verdicts, crashes = _judge((rule.id, partial(rule.run, gathered.evidence)) for rule in RULES)
    judgement = _signature(gathered.evidence, verdicts)
    if isinstance(judgement, RuleCrash):
        crashes.append(judgement)
        judgement = _unjudged(gathered.evidence, verdicts)
    lookup = Lookup(gathered.evidence, gathered.tables, gathered.wide)
    mine = ((rule.name, partial(judge_custom, rule, gathered.evidence, lookup.series)) for rule in own_rules)
    own, faults = _judge(mine)  # after the signature, which they have no part in
    every = (judgement.verdict, *verdicts, *own)
    judged = verdict_of(
        run=gathered.evidence.run,
        signature=judgement.signature,
        verdicts=[_enabled(verdict, gathered.evidence.run.framework) for verdict in every],
        crashes=[*crashes, *faults],
        sources=sources(table, tokens, (*manifest.notes, *(tokens.scan.notes if tokens else ()))),
        tables=gathered.tables,
        explains=explains(),
    )
    held = Held(
        files=run_files(place.run)[0],
        evaluated=read_evaluations(gathered.tables["metrics"]),
        evals=read_table(place.store, "evals"),
    )
    return with_deliverables(judged, gathered.evidence, held)


def _enabled(verdict: RuleVerdict, framework: str | None) -> RuleVerdict:
    """Name the framework's own line where what is missing has one."""
    if not isinstance(verdict, NotJudged) or not verdict.missing:
        return verdict
    line = how_to_record(framework, verdict.missing)
    return verdict if line is None else replace(verdict, enable=line)


def _something_read(place: Place, table: pl.DataFrame) -> None:
    """Refuse a run of which every file that could be recognised is damaged from end to end."""
    known = table.filter(pl.col("kind") != UNRECOGNISED)
    if place.run.is_file() and not known.height:
        raise InputError(f"{place.run}: in no format that is read here; docs/formats.md lists them.")
    if known.height and not known["rows_ok"].sum():
        first = known.row(0, named=True)
        why = first["note"] or f"{first['path']} holds no row."
        raise InputError(f"{place.run}: none of its {known.height} recognised files could be read. {why}")


def _judge(asked: Iterable[tuple[str, Callable[[], RuleVerdict]]]) -> tuple[list[RuleVerdict], list[RuleCrash]]:
    """Ask each rule, by its id; one that raises is told of, and the others are asked all the same."""
    verdicts: list[RuleVerdict] = []
    crashes: list[RuleCrash] = []
    for name, answer in asked:
        try:
            verdicts.append(answer())
        except Exception as error:  # a fault in one rule must not cost the report: it is shown, and costs the exit code
            crashes.append(RuleCrash(id=name, error=_where(error)))
    return verdicts, crashes


def _signature(evidence: Evidence, verdicts: list[RuleVerdict]) -> Judgement | RuleCrash:
    try:
        aggregates = aggregates_of(evidence, verdicts)
        if evidence.algorithm.family not in (None, Family.ONLINE):
            return tool_tail_growth.does_not_apply(evidence.algorithm.title, aggregates)
        pair = evidence.tails.pair if evidence.tails is not None else None
        distrust = contaminated(verdicts, pair)
        if distrust is not None:
            return tool_tail_growth.cannot_say(f"the logprobs cannot be trusted: {distrust}", pair, aggregates)
        return tool_tail_growth.judge(evidence, aggregates)
    except Exception as error:  # the signature is a rule like the others: shown, and costs the exit code
        return RuleCrash(id=tool_tail_growth.ID, error=_where(error))


def _unjudged(evidence: Evidence, verdicts: list[RuleVerdict]) -> Judgement:
    reason = "the rule itself failed; see the crash below"
    return tool_tail_growth.cannot_say(reason, None, aggregates_of(evidence, verdicts))


def _where(error: Exception) -> str:
    """Name the error and the line of ours it came from, without paths of this machine."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"
