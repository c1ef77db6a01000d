"""The door for notebooks and commands: one function from a path to a diagnosis, its tables and figures."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields, replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

from ptt.diagnostics import compare as comparing
from ptt.diagnostics import model, pipeline
from ptt.diagnostics.compare import arms
from ptt.diagnostics.compare.comparison import Comparison
from ptt.diagnostics.config import Settings, load_settings, read_document
from ptt.diagnostics.custom.files import Report, load_rules, report_on
from ptt.diagnostics.errors import InputError, PttError, SettingsError
from ptt.diagnostics.gate.against_baseline import with_baseline
from ptt.diagnostics.gate.policy import Known, Policy
from ptt.diagnostics.gate.read_policy import read_policy
from ptt.diagnostics.parsers.io.run_files import not_readable
from ptt.diagnostics.rules import LIMITS
from ptt.diagnostics.store import archives, run_identity
from ptt.diagnostics.store.exclusive_lock import alone, note_run
from ptt.diagnostics.store.findings_file import read_findings
from ptt.diagnostics.store.loaded_run import Opened, read_profile
from ptt.diagnostics.store.manifest import is_store, stores_below
from ptt.diagnostics.verdict.catalogue import Page, page_of, pages
from ptt.diagnostics.verdict.run_coverage import Answerable
from ptt.processes import Died, in_workers
from ptt.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "Comparison",
    "Diagnosis",
    "InputError",
    "Settings",
    "SettingsError",
    "compare",
    "diagnose",
    "gate_policy",
    "ingest",
    "kept_run",
    "open_run",
    "read_settings",
    "sources",
]

STORE = "store"
NAMED = 5  # folders named in an error
FINDINGS = "findings.json"
REPORT = "report.html"
NO_TOKENS = "findings.json holds no tokens; give the store or the run"
OPENED = "give a run dir, an archive of one, a store, or a findings.json"
Kind = Literal["run", "archive", "store", "findings"]
Progress = Callable[[str, int, int], None]
Places = str | Path | Sequence[str | Path]


@dataclass(frozen=True, kw_only=True)
class Diagnosis(model.Diagnosis):
    """A diagnosis that can draw and write itself; `tables` holds its Polars frames by name."""

    @property
    def figures(self) -> dict[str, Figure]:
        """The figures as matplotlib figures, by name; those without data are left out."""
        from ptt.reports.figures.drawing import composed_figures

        return composed_figures(self)

    def to_html(self) -> str:
        """Give the report: one file that needs nothing else."""
        from ptt.reports.run.html import render_html

        return render_html(self)

    def to_json(self) -> str:
        """Give findings.json."""
        from ptt.reports.run.findings_json import findings_json

        return findings_json(self, __version__)

    def _repr_html_(self) -> str:
        """Show the report where a notebook shows a value."""
        from html import escape

        return f'<iframe srcdoc="{escape(self.to_html())}" style="width:100%;height:40em;border:0"></iframe>'


def chosen_of(settings: Settings | None, keep_text: bool | None, rules: Places) -> Settings:
    """Give the settings (the defaults where there are none) with what a call adds to them."""
    chosen = settings or Settings()
    if keep_text is not None:
        chosen = replace(chosen, keep_text=keep_text)
    return replace(chosen, rules=(*chosen.rules, *as_paths(rules)))


def judge(run: Path, out: Path, settings: Settings, kept: bool, progress: Progress | None) -> pipeline.Judged:
    """Judge a run dir or an archive; one that is kept as it is now is not even unpacked."""
    identity = ""
    if kept and archives.is_archive(run):
        identity = run_identity.identity(run)
        place = pipeline.Place(run=run, store=out / STORE, name=archives.run_name(run), identity=identity)
        if (held := pipeline.kept(place, settings)) is not None:
            return held
    with placed(run, out) as place:
        judged = pipeline.diagnose(replace(place, kept=kept, identity=identity), settings, progress=progress)
    if kept:
        note_run(out / STORE, run)
    return judged


def whole(judged: pipeline.Judged) -> Diagnosis:
    """Give the diagnosis as one that can draw and write itself."""
    return Diagnosis(**{field.name: getattr(judged.diagnosis, field.name) for field in fields(judged.diagnosis)})


def open_run(
    path: str | Path,
    *,
    out: str | Path,
    settings: Settings | None = None,
    rules: Places = (),
    progress: Progress | None = None,
    as_judged: bool = False,
) -> Opened:
    """Give the diagnosis and the tokens of a run dir, an archive, a store (or the folder around it), a findings.json.

    A run dir or an archive is judged, and what was judged is kept in the store below `out`: a second call over
    unchanged input only reads it. A store that was judged under other settings or rules is judged anew where it holds
    the tokens; where it does not, `as_judged` gives it as it is, and says so in `judged_with`. Raises InputError where
    nothing can be read there.
    """
    found, place = Path(path), Path(out)
    chosen = chosen_of(settings, None, rules)
    if not _there(found):
        raise InputError(f"{found}: there is no such file or folder; {OPENED}.")
    if (store := _store_at(found)) is not None:
        name = (store.parent if store.name == STORE else store).resolve().name
        place_of = pipeline.Place(run=store, store=store, name=name)
        return _opened(pipeline.diagnose_store(place_of, chosen, as_judged=as_judged), "store")
    if (found / REPORT).is_file() and (found / FINDINGS).is_file():  # what is left where the store was deleted
        found = found / FINDINGS
    if found.is_file() and found.name.endswith(FINDINGS):
        held = read_findings(found)
        return Opened(diagnosis=held, profile=None, why_no_profile=NO_TOKENS, source=_hash(found), kind="findings")
    kind: Kind = "archive" if archives.is_archive(found) else "run"
    return _opened(judge(found, place, chosen, True, progress), kind)


def _there(path: Path) -> bool:
    """Tell whether there is something at a path; InputError where the system does not let us look into it."""
    try:
        if not path.exists():
            return False
        if path.is_dir():
            os.scandir(path).close()
            (path / FINDINGS).exists()  # a folder may be listed and not entered
    except OSError as error:
        raise not_readable(path, error) from error
    return True


def kept_run(path: str | Path, *, out: str | Path, settings: Settings | None = None) -> Opened | None:
    """Give what `open_run` would where that is a matter of reading what is kept below `out`, and None where it is not.

    No archive is unpacked and no file of the run is opened for it.
    """
    found, store, chosen = Path(path), Path(out) / STORE, settings or Settings()
    if not found.exists():
        return None
    if _store_at(found) is not None or (found.is_file() and found.name.endswith(FINDINGS)):
        return open_run(found, out=out, settings=chosen)
    archive = archives.is_archive(found)
    place = pipeline.Place(
        run=found,
        store=store,
        name=archives.run_name(found) if archive else found.resolve().name,
        identity=run_identity.identity(found) if archive else "",
    )
    held = pipeline.kept(place, chosen)
    return None if held is None else _opened(held, "archive" if archive else "run")


def _store_at(path: Path) -> Path | None:
    """Give the store that a folder is, or holds as `ptt diagnose` leaves it."""
    places = (path, path / STORE) if path.is_dir() else ()
    return next((place for place in places if is_store(place)), None)


def _opened(judged: pipeline.Judged, kind: Kind) -> Opened:
    profile = judged.profile or read_profile(judged.store)
    why = "" if profile is not None else _why_no_profile(judged.diagnosis)
    return Opened(diagnosis=whole(judged), profile=profile, why_no_profile=why, source=judged.source, kind=kind)


def _why_no_profile(diagnosis: model.Diagnosis) -> str:
    if diagnosis.signature.pair is None:
        return diagnosis.signature.reason or "the run records no pair of logprobs"
    return "its store holds no token tables; judge the run again"


def _hash(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def as_paths(places: Places) -> tuple[Path, ...]:
    """Give one place, or several, as paths."""
    return (Path(places),) if isinstance(places, str | Path) else tuple(map(Path, places))


def _check_place(run: Path, out: Path) -> None:
    if not run.exists():
        raise InputError(f"{run}: there is no such file or folder; give the folder the trainer wrote to.")
    home = run.resolve()
    if home.is_dir() and (ours := stores_below(home)):
        raise InputError(
            f"{run}: holds what ptt wrote of {len(ours)} run(s), and is no run: {', '.join(ours[:NAMED])}; give one of "
            "these folders, or the run itself."
        )
    if home.is_dir() and (out.resolve() == home or home in out.resolve().parents):
        raise SettingsError(f"{out}: lies inside the run, which is never written to; give another place with --out.")


@contextmanager
def placed(run: Path, out: Path) -> Iterator[pipeline.Place]:
    """Give where a run lies for as long as the block runs, an archive unpacked; InputError where there is none."""
    _check_place(run, out)
    if archives.is_archive(run):
        with archives.unpacked(run) as held:
            yield pipeline.Place(run=held.folder, store=out / STORE, name=held.name, notes=held.notes, packed=run)
    else:
        yield pipeline.Place(run=run, store=out / STORE, name=run.resolve().name)


def read_settings(path: Path | None = None) -> Settings:
    """Read a settings file, or `./ptt.toml` where there is one; unknown keys raise SettingsError."""
    return load_settings(path, known_limits=LIMITS)


def gate_policy(path: Path | None = None, *, baseline: Path | None = None, rules: Places = ()) -> Policy:
    """Read what `[gate]` of a settings file demands of a run; the default policy where there is none.

    Unknown keys and names, and demands that no run could ever fail, raise SettingsError. `baseline` takes the place
    of the file that the settings name. `rules` are files and folders of custom rules besides those that the settings
    name: their findings can be allowed as well.
    """
    settings = read_settings(path)
    custom = load_rules((*settings.rules, *as_paths(rules)))
    place, document = read_document(path)
    known = Known(custom={rule.name: rule.severity for rule in custom})
    policy = with_baseline(read_policy(document, place, known=known, baseline=baseline))
    return replace(policy, judged_by=settings.judged_by(rules=bool(custom)))


def diagnose(
    run: str | Path,
    *,
    out: str | Path | None = None,
    settings: Settings | None = None,
    keep_text: bool | None = None,
    rules: Places = (),
    progress: Progress | None = None,
) -> Diagnosis:
    """Judge the run at `run` (a folder, a file, or an archive of a run dir: .zip, .tar, .tar.gz, .tar.zst).

    `keep_text` (by default as the settings say) keeps texts of samples in the store, and shows a window of them
    beside the sequences with most tail tokens where they can be tied to them.

    `rules` are files and folders of custom rules, in addition to those that the settings name.

    With `out` the Parquet store is kept there, and a second call over unchanged files reuses it; nothing
    else is written. Raises InputError where the run cannot be read. The run dir is never written to.
    """
    chosen = chosen_of(settings, keep_text, rules)
    with TemporaryDirectory(prefix="ptt-") as scratch:
        return whole(judge(Path(run), Path(scratch if out is None else out), chosen, out is not None, progress))


def ingest(run: str | Path, *, out: str | Path, keep_text: bool = False, progress: Progress | None = None) -> Path:
    """Parse the run into a Parquet store below `out` that stands without the run, and say where it is.

    `keep_text` keeps the texts of samples, shortened.
    """
    with placed(Path(run), Path(out)) as place:
        with alone(place.store.parent):
            pipeline.ingest(place, copy=True, keep_text=keep_text, progress=progress)
            pipeline.check_read(place)
        note_run(place.store, Path(run))
        return place.store


def compare(
    runs: Sequence[str | Path],
    *,
    groups: Mapping[str, Sequence[str | Path]] | None = None,
    baseline: str | None = None,
    out: str | Path | None = None,
    settings: Settings | None = None,
    rules: Places = (),
    jobs: int = 1,
    progress: Progress | None = None,
) -> Comparison:
    """Set runs side by side; each may be what `open_run` takes, and the first is the baseline.

    `groups` puts runs (by name or path) together as seeds of one setting; `baseline` names a run or a group. With
    `out` each run's store is kept in a folder of its own below it, and a second call reuses it. `jobs` runs are judged
    at a time. Raises SettingsError where fewer than two arms are given, and InputError where a run cannot be read.
    """
    chosen = chosen_of(settings, None, rules)
    with TemporaryDirectory(prefix="ptt-") as scratch:
        base = Path(scratch if out is None else out)
        planned = arms.planned([Path(run) for run in runs], groups or {}, baseline)
        for run in planned.runs:  # all of them before the first is judged, which may take a while
            if not run.exists():
                raise InputError(f"{run}: there is no such file or folder; {OPENED}.")
        folders = [base / name for name in planned.names]
        if jobs > 1:
            _judge_ahead(
                [(run, folder, chosen) for run, folder in zip(planned.runs, folders, strict=True)], jobs, progress
            )
        told = None if jobs > 1 else progress
        opened = [
            open_run(run, out=folder, settings=chosen, progress=told)
            for run, folder in zip(planned.runs, folders, strict=True)
        ]
        return comparing.compare(arms.arms_of(planned, opened))


def _judge_ahead(tasks: Sequence[tuple[Path, Path, Settings]], jobs: int, progress: Progress | None = None) -> None:
    """Judge runs in processes of their own; what they keep in their folders is all that comes back."""
    waiting = [task for task in tasks if not (task[1] / STORE / "kept").is_dir()]
    if len(waiting) < 2:
        return
    with closing(in_workers(_judge_one, waiting, jobs=min(jobs, len(waiting)))) as answers:
        for done, (number, answer) in enumerate(answers, start=1):
            if isinstance(answer, Died):
                raise InputError(f"{waiting[number][0]}: {answer.how}; judge the runs one by one with --jobs 1.")
            if answer is not None:
                raise answer
            if progress is not None:
                progress("judging runs", done, len(waiting))


def _judge_one(task: tuple[Path, Path, Settings]) -> PttError | None:
    run, folder, settings = task
    try:
        open_run(run, out=folder, settings=settings)
    except PttError as error:
        return error
    except Exception:  # a bug: met again, and told with its place, where the run is opened by itself
        return None
    return None


def sources(run: str | Path, *, progress: Progress | None = None) -> Answerable:
    """Say what the files of the run hold, which questions they answer, and what would record the rest."""
    with TemporaryDirectory(prefix="ptt-") as scratch, placed(Path(run), Path(scratch)) as place:
        return pipeline.look(place, progress=progress)


def rule_pages() -> tuple[Page, ...]:
    """Give the catalogue: every built-in rule with its page, limits and defaults."""
    return pages()


def rule_page(name: str) -> Page:
    """Give the page of one built-in rule; SettingsError where there is none of this name."""
    return page_of(name)


def check_rules(paths: Places) -> Report:
    """Read files and folders of custom rules without a run: what was understood, and every problem."""
    return report_on(as_paths(paths))
