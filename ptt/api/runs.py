"""Judge one run or several, from a path to a diagnosis, its tables and its figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import polars as pl

from ptt.api.answers import shown
from ptt.diagnostics import model, pipeline, traces_pipeline
from ptt.diagnostics.advisories.advisory import Advisory, Database, database
from ptt.diagnostics.check_config import config_report
from ptt.diagnostics.config import Known as KnownNames
from ptt.diagnostics.config import Settings, load_settings
from ptt.diagnostics.custom.files import Report, report_on
from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.documents import closest
from ptt.diagnostics.errors import InputError, SettingsError
from ptt.diagnostics.evidence.algorithm import Family, algorithm_name
from ptt.diagnostics.metrics.aliases import canonical_names
from ptt.diagnostics.metrics.guessed_names import near_names
from ptt.diagnostics.model import AdvisoryReport
from ptt.diagnostics.rules import LIMITS
from ptt.diagnostics.samples.read_sample import OpenRun, measured_samples, read_sample
from ptt.diagnostics.samples.sample import NAMED, FindingSamples, ListedSample, Sample, samples_of_findings
from ptt.diagnostics.statistics.logprob_pairs import PAIRS
from ptt.diagnostics.store import archives
from ptt.diagnostics.store.diagnosis import LoadedRun, read_profile
from ptt.diagnostics.store.findings_file import read_findings
from ptt.diagnostics.store.folders import exclusive_lock, note_run
from ptt.diagnostics.traces.model import named_by
from ptt.diagnostics.verdict.catalogue import Page, page_of, pages
from ptt.diagnostics.verdict.run_coverage import RunCoverage
from ptt.executors import Executor
from ptt.executors.this_machine import ThisMachine
from ptt.object_stores.remote_paths import FINDINGS, STORE, RemotePaths
from ptt.run_location import (
    is_findings,
    not_there,
    refuse_other_output,
    run_exists,
    run_location,
    runs_in,
    store_at,
    unpacked_run,
)
from ptt.stopping import temporary_folder
from ptt.version import __version__

if TYPE_CHECKING:
    from ptt.reports.figures.drawing import NotebookFigure


REPORT: Final = "report.html"
NO_TOKENS: Final = "findings.json has no tokens; give the store or the run"
READABLE: Final = "give a run dir, an archive of one, a store, or a findings.json"
Progress = pipeline.Progress
Paths = str | Path | Sequence[str | Path]


@dataclass(frozen=True, kw_only=True)
class Diagnosis(model.Diagnosis):
    """A diagnosis that can draw and write itself; `tables` holds its Polars frames by name."""

    @property
    def figures(self) -> dict[str, NotebookFigure]:
        """The figures as matplotlib figures, by name; those without data are left out."""
        from ptt.reports.figures.drawing import composed_figures

        return composed_figures(self)

    def to_html(self) -> str:
        """Render the report: one file that needs nothing else."""
        from ptt.reports.run.html import render_html

        return render_html(self)

    def to_json(self) -> str:
        """Render findings.json."""
        from ptt.reports.run.findings_json import findings_json

        return findings_json(self, __version__)

    @property
    def findings_frame(self) -> pl.DataFrame:
        """The findings as a Polars frame, a row each, in the order of the report."""
        kinds = {"id": pl.String, "severity": pl.String, "link": pl.String, "claim": pl.String, "since_step": pl.Int64,
                 "observed": pl.Float64, "limit": pl.Float64, "unit": pl.String, "slice": pl.String,
                 "consequence_of": pl.String}  # fmt: skip
        rows = [
            (found.id, found.severity.value, found.link.value, found.claim, found.seen_step, found.observed,
             found.limit, found.unit, found.slice, found.consequence_of)
            for found in self.findings
        ]  # fmt: skip
        return pl.DataFrame(rows, schema=kinds, orient="row")

    def __repr__(self) -> str:
        """Return the verdict and how much was judged, in two lines."""
        from ptt.reports.run.card import summary

        return summary(self)

    def _repr_html_(self) -> str:
        """Show a card where a notebook shows a value; `to_html` is the whole report."""
        from ptt.reports.run.card import card

        return card(self)


def open_run(
    path: str | Path,
    *,
    out: str | Path,
    settings: Settings | None = None,
    rules: Paths = (),
    progress: Progress | None = None,
    as_judged: bool = False,
    one_run: bool = False,
    executor: Executor | None = None,
) -> LoadedRun:
    """Return the diagnosis and tokens of a run dir, an archive, a store (or the folder around it), a findings.json.

    A run folder or an archive is judged, and the result is kept in the store below `out`: a second call over unchanged
    input rereads it. A store that was judged under other settings or rules is judged again if it has the tokens;
    otherwise `as_judged` returns it unchanged and says so in `judged_with`. `executor` folds a long run's tokens,
    by default this machine. Raises InputError if nothing can be read there, and SeveralRunsError if it contains several
    runs, unless `one_run` joins them.
    """
    path, settings = Path(path), settings_with(settings, rules=rules)
    if not run_exists(path):
        raise not_there(path, READABLE)
    if (store := store_at(path)) is not None:
        name = (store.parent if store.name == STORE else store).resolve().name
        location = pipeline.RunLocation(run=store, store=store, name=name)
        return _loaded(pipeline.judge_store(location, settings, as_judged=as_judged), "store")
    if (path / REPORT).is_file() and (path / FINDINGS).is_file():  # what is left where the store was deleted
        path = path / FINDINGS
    if is_findings(path):
        return LoadedRun(
            diagnosis=read_findings(path),
            profile=None,
            why_no_profile=NO_TOKENS,
            source=sha256(path.read_bytes()).hexdigest(),
            kind="findings",
        )
    judged = _judge(path, Path(out), settings, keep=True, one_run=one_run, progress=progress, executor=executor)
    return _loaded(judged, "archive" if archives.is_archive(path) else "run")


def kept_run(
    path: str | Path, *, out: str | Path, settings: Settings | None = None, one_run: bool = False
) -> LoadedRun | None:
    """Return what `open_run` would if it only has to read the results kept below `out`; otherwise None.

    No archive is unpacked and no file of the run is opened for it.
    """
    path, out, settings = Path(path), Path(out), settings or Settings()
    if not path.exists():
        return None
    if store_at(path) is not None or is_findings(path):
        return open_run(path, out=out, settings=settings)
    judged = pipeline.read_cached(run_location(path, out, keep=True, one_run=one_run), settings)
    return None if judged is None else _loaded(judged, "archive" if archives.is_archive(path) else "run")


def settings_with(
    settings: Settings | None, *, rules: Paths = (), advisories: Paths = (), keep_text: bool | None = None
) -> Settings:
    """Return the settings, or the defaults, with the additions of a call."""
    settings = settings or Settings()
    return replace(
        settings,
        keep_text=settings.keep_text if keep_text is None else keep_text,
        rules=(*settings.rules, *paths_of(rules)),
        advisories=(*settings.advisories, *paths_of(advisories)),
    )


def advisory_database(settings: Settings | None = None) -> Database:
    """Return the advisories that come with ptt, and those of the folders that the settings name."""
    return database((settings or Settings()).advisories, rules=pipeline.FINDINGS)


def advisory_named(name: str, known: Database) -> Advisory:
    """Return the advisory of this id; SettingsError names the closest where there is none."""
    found = next((advisory for advisory in known.advisories if advisory.id == name), None)
    if found is None:
        near = closest(name, [advisory.id for advisory in known.advisories])
        raise SettingsError(f"{name}: neither a run nor the id of an advisory; {near}")
    return found


def check_config(
    files: Paths,
    *,
    framework: str | None = None,
    packages: Iterable[str] = (),
    settings: Settings | None = None,
) -> AdvisoryReport:
    """Hold what config files set against all advisories; `packages` are `NAME==VERSION`.

    Raises InputError if a file cannot be read.
    """
    return config_report(
        paths_of(files), framework=framework, packages=tuple(packages), database=advisory_database(settings)
    )


def paths_of(paths: Paths) -> tuple[Path, ...]:
    """Return the paths of an argument that takes one or several."""
    return (Path(paths),) if isinstance(paths, str | Path) else tuple(map(Path, paths))


def _loaded(judged: pipeline.JudgedRun, kind: Literal["run", "archive", "store"]) -> LoadedRun:
    profile, why, signature = judged.profile or read_profile(judged.store), "", judged.diagnosis.signature
    if profile is None and signature.pair is None:
        why = signature.reason or "the run records no pair of logprobs"
    elif profile is None:
        why = "its store has no token tables; judge the run again"
    return LoadedRun(
        diagnosis=_drawable(judged.diagnosis), profile=profile, why_no_profile=why, source=judged.source, kind=kind
    )


def _drawable(diagnosis: model.Diagnosis) -> Diagnosis:
    return shown(diagnosis, Diagnosis)


def _judge(
    run: Path,
    out: Path,
    settings: Settings,
    *,
    keep: bool,
    one_run: bool,
    progress: Progress | None,
    executor: Executor | None,
) -> pipeline.JudgedRun:
    """Judge a run dir or an archive; one that is kept as it is now is not even unpacked."""
    if keep:
        refuse_other_output(out, of_traces=False)
    location = run_location(run, out, keep=keep, one_run=one_run)
    if location.identity and (cached := pipeline.read_cached(location, settings)) is not None:
        return cached
    with unpacked_run(location, one_run=one_run) as unpacked:
        elsewhere = executor if unpacked.archive is None else None  # what is unpacked here no other machine sees
        run_pieces = (elsewhere or ThisMachine()).run_pieces
        judged = pipeline.judge_run(unpacked, settings, run_pieces=run_pieces, progress=progress)
    if keep:
        note_run(location.store, run)
    return judged


def read_settings(path: Path | None = None) -> Settings:
    """Read a settings file, or `./ptt.toml` if present; unknown keys raise SettingsError."""
    names = KnownNames(
        limits=LIMITS,
        metrics=canonical_names(),
        near_metrics=near_names,
        kinds=[str(kind) for kind in Family],
        is_algorithm=lambda name: algorithm_name(name) is not None,
    )
    return load_settings(path, known=names)


def diagnose(
    run: str | Path,
    *,
    out: str | Path | None = None,
    settings: Settings | None = None,
    keep_text: bool | None = None,
    rules: Paths = (),
    one_run: bool = False,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> Diagnosis:
    """Judge the run at `run` (a folder, a file, or an archive of a run dir: .zip, .tar, .tar.gz, .tar.zst; s3://).

    `keep_text` (by default from the settings) keeps sample texts in the store, and shows part of them beside the
    sequences with most tail tokens, if they can be linked.

    `rules` are files and folders of custom rules, in addition to those that the settings name.

    With `out` the Parquet store is kept there, and a second call over unchanged files reuses it; nothing
    else is written. `executor` folds a long run's tokens: `ptt.executors.executor(Engine.RAY)` opens a Ray cluster.
    Raises InputError if the run cannot be read, and SeveralRunsError if `run` contains several:
    `diagnose_runs` judges each, and `one_run` joins them. The run folder is never written to.
    """
    settings = settings_with(settings, rules=rules, keep_text=keep_text)
    with temporary_folder() as scratch, RemotePaths() as remote:
        remote.no_output(out, "out")
        folder, keep = Path(scratch if out is None else out), out is not None
        judged = _judge(
            remote.run(Path(run)), folder, settings, keep=keep, one_run=one_run, progress=progress, executor=executor
        )
        return _drawable(judged.diagnosis)


def diagnose_runs(
    runs: Paths,
    *,
    out: str | Path | None = None,
    settings: Settings | None = None,
    rules: Paths = (),
    progress: Progress | None = None,
) -> dict[str, Diagnosis | InputError]:
    """Judge each run in a folder of several, or each of several paths; an unreadable run does not stop the others.

    Returns the result of each by its path as given, extended below a folder of runs. With `out` each run's store is
    kept in its own folder below it.
    """
    names: dict[Path, str] = {}
    for given in paths_of(runs):
        content = runs_in(given)
        siblings = {sibling.path: sibling.rel for sibling in content.runs} if content.several else {given: given.name}
        names |= {path: rel.replace("/", "-") for path, rel in siblings.items() if path not in names}
    judged: dict[str, Diagnosis | InputError] = {}
    for number, (path, name) in enumerate(names.items(), start=1):
        double = list(names.values()).count(name) > 1
        folder = None if out is None else Path(out) / (f"{name}-{number}" if double else name)
        try:
            judged[str(path)] = diagnose(path, out=folder, settings=settings, rules=rules, one_run=path.is_dir())
        except InputError as error:
            judged[str(path)] = error
        if progress is not None:
            progress("judging runs", number, len(names))
    return judged


def ingest(
    run: str | Path,
    *,
    out: str | Path,
    keep_text: bool = False,
    settings: Settings | None = None,
    one_run: bool = False,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> Path:
    """Parse the run into a self-contained Parquet store below `out`, and return its location.

    `keep_text` keeps shortened sample texts. Of the settings only `[metrics]` matters, because names are chosen here.
    `one_run` reads several runs as one. `executor` reads its files: `ptt.executors.executor(Engine.RAY)`.
    """
    refuse_other_output(Path(out), of_traces=False)
    settings = replace(settings or Settings(), keep_text=keep_text)
    with (
        RemotePaths() as remote,
        unpacked_run(
            run_location(remote.run(Path(run), every_column=True), Path(remote.no_output(out, "out") or out)),
            one_run=one_run,
        ) as location,
    ):
        elsewhere = executor if location.archive is None else None  # what is unpacked here no other machine sees
        read_tasks = None if elsewhere is None else elsewhere.read_tasks
        with exclusive_lock(location.store.parent):
            pipeline.ingest(location, copy=True, settings=settings, progress=progress, read_tasks=read_tasks)
            pipeline.check_read(location)
        note_run(location.store, Path(run))
        return location.store


def sources(
    run: str | Path,
    *,
    settings: Settings | None = None,
    one_run: bool = False,
    progress: Progress | None = None,
) -> RunCoverage:
    """Return what the run's files contain, which questions they answer, and how to record the rest."""
    with (
        temporary_folder() as scratch,
        unpacked_run(run_location(Path(run), Path(scratch)), one_run=one_run) as location,
    ):
        return pipeline.inspect(location, settings, progress=progress)


def sample(run: str | Path) -> str:
    """Return the shapes of the unrecognised files of a run, to send to whoever writes parsers.

    Each digit is a 9, and only common words of logs are kept; empty if every file is recognised.
    """
    with (
        temporary_folder() as scratch,
        unpacked_run(run_location(Path(run), Path(scratch)), one_run=True) as location,  # files are sampled one by one
    ):
        return pipeline.sample(location)


def rule_pages() -> tuple[Page, ...]:
    """Return every built-in rule with its page, limits and defaults."""
    return pages()


def rule_page(name: str) -> Page:
    """Return the page of one built-in rule; SettingsError if there is none of this name."""
    return page_of(name)


def check_rules(paths: Paths) -> Report:
    """Read files and folders of custom rules without a run: what was understood, and every problem."""
    return report_on(paths_of(paths))


def show(
    run: str | Path,
    sample: str,
    *,
    text: bool = False,
    pair: str | None = None,
    out: str | Path | None = None,
    settings: Settings | None = None,
    one_run: bool = False,
) -> Sample:
    """Return one sample of a run: its tokens with their logprobs, its transcript and its prompt group.

    `run`: a folder, a file, an archive, or a self-contained store. `sample`: its id, STEP:ROW (the row within its step,
    from 0) or FILE:ROW. `text`: include the scrubbed texts. `pair`: the logprobs of the log-ratio, by default the first
    pair of the sample. `out`: where `diagnose` kept a store; it is read if it is current. Nothing is written. Raises
    SettingsError if no sample or several have this name.
    """
    if pair is not None and pair not in (known := [known.name for known in PAIRS]):
        raise SettingsError(f"pair {pair}: {closest(pair, known)}.")
    with _opened(run, out, settings, one_run=one_run) as opened:
        return read_sample(opened, sample, pair=pair, texts=text)


def finding_samples(
    run: str | Path,
    *,
    out: str | Path | None = None,
    settings: Settings | None = None,
    one_run: bool = False,
    progress: Progress | None = None,
) -> tuple[FindingSamples, ...]:
    """Return the samples that each finding rests on: highest, lowest, and some at random.

    Results kept below `out` are read; a run without them is judged in a temporary folder.
    """
    run, settings = Path(run), settings or Settings()
    if (store := store_at(run)) is not None and traces_pipeline.holds_only_traces(store):
        return _episodes_of_findings(store)
    with temporary_folder() as scratch:
        judged = kept_run(run, out=out, settings=settings, one_run=one_run) if out is not None else None
        if judged is None:
            out = Path(scratch)
            judged = open_run(run, out=out, settings=settings, one_run=one_run, progress=progress)
        with _opened(run, out, settings, one_run=one_run) as opened:
            if traces_pipeline.holds_only_traces(opened.store):
                return _episodes_of_findings(opened.store)
            return samples_of_findings(judged.diagnosis, measured_samples(opened, judged.profile))


def _episodes_of_findings(store: Path) -> tuple[FindingSamples, ...]:
    """Return the episodes that the findings on agent traces name."""
    diagnosis = traces_pipeline.reopened_traces(store, name=store.resolve().parent.name)
    return tuple(
        FindingSamples(
            finding=finding.id,
            severity=finding.severity.value,
            claim=finding.claim,
            measure="",
            samples=tuple(
                ListedSample(chosen=NAMED, key=name, step=None, sample_id=None, value=None) for name in names
            ),
        )
        for finding in diagnosis.findings
        if (names := named_by(finding))
    )


@contextmanager
def _opened(run: str | Path, out: str | Path | None, settings: Settings | None, *, one_run: bool) -> Iterator[OpenRun]:
    """Open a run to read samples of it, by its store where that is kept below `out` and current."""
    run, settings = Path(run), settings or Settings()
    if not run_exists(run):
        raise not_there(run, "give the run, or an archive of it")
    if is_findings(run):
        raise InputError(f"{run}: findings.json has no samples; give the run.")
    if (store := store_at(run)) is not None:
        name = (store.parent if store.name == STORE else store).resolve().name
        with pipeline.opened(pipeline.RunLocation(run=store, store=store, name=name), settings) as opened:
            yield opened
        return
    with temporary_folder() as scratch:
        folder = Path(scratch if out is None else out)
        with (
            unpacked_run(run_location(run, folder), one_run=one_run) as location,
            pipeline.opened(location, settings) as opened,
        ):
            yield opened
