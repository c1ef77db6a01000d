"""The door for notebooks and commands: one function from a path to a diagnosis, its tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

from ptt import __version__
from ptt.diagnostics import model, pipeline
from ptt.diagnostics.answerable import Answerable
from ptt.diagnostics.catalogue import Page, page_of, pages
from ptt.diagnostics.config import Settings, load_settings
from ptt.diagnostics.custom.checking import Report, report_on
from ptt.diagnostics.errors import InputError, SettingsError
from ptt.diagnostics.kept import marks
from ptt.diagnostics.kept.findings import read_findings
from ptt.diagnostics.kept.opened import Opened
from ptt.diagnostics.kept.profile import read_profile
from ptt.diagnostics.rules import LIMITS
from ptt.diagnostics.store import archives
from ptt.diagnostics.store.manifest import is_store

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Diagnosis", "InputError", "Settings", "SettingsError", "diagnose", "ingest", "read_settings", "sources"]

STORE = "store"
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
        from ptt.reports.drawing import composed_figures

        return composed_figures(self)

    def to_html(self) -> str:
        """Give the report: one file that needs nothing else."""
        from ptt.reports.render import render_html

        return render_html(self)

    def to_json(self) -> str:
        """Give findings.json."""
        from ptt.reports.findings_json import findings_json

        return findings_json(self, __version__)

    def _repr_html_(self) -> str:
        """Show the report where a notebook shows a value."""
        from html import escape

        return f'<iframe srcdoc="{escape(self.to_html())}" style="width:100%;height:40em;border:0"></iframe>'


def read_settings(path: Path | None = None) -> Settings:
    """Read a settings file, or `./ptt.toml` where there is one; unknown keys raise SettingsError."""
    return load_settings(path, known_limits=LIMITS)


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
    chosen = _chosen(settings, keep_text, rules)
    with TemporaryDirectory(prefix="ptt-") as scratch:
        return _whole(_judge(Path(run), Path(scratch if out is None else out), chosen, out is not None, progress))


def _chosen(settings: Settings | None, keep_text: bool | None, rules: Places) -> Settings:
    chosen = settings or Settings()
    if keep_text is not None:
        chosen = replace(chosen, keep_text=keep_text)
    return replace(chosen, rules=(*chosen.rules, *_paths(rules)))


def _judge(run: Path, out: Path, settings: Settings, kept: bool, progress: Progress | None) -> pipeline.Judged:
    """Judge a run dir or an archive; one that is kept as it is now is not even unpacked."""
    _check_place(run, out)
    identity = ""
    if kept and archives.is_archive(run):
        identity = marks.identity(run)
        place = pipeline.Place(run=run, store=out / STORE, name=archives.run_name(run), identity=identity)
        if (held := pipeline.kept(place, settings)) is not None:
            return held
    with _placed(run, out) as place:
        return pipeline.diagnose(replace(place, kept=kept, identity=identity), settings, progress=progress)


def _whole(judged: pipeline.Judged) -> Diagnosis:
    return Diagnosis(**{field.name: getattr(judged.diagnosis, field.name) for field in fields(judged.diagnosis)})


def ingest(run: str | Path, *, out: str | Path, keep_text: bool = False, progress: Progress | None = None) -> Path:
    """Parse the run into a Parquet store below `out` that stands without the run, and say where it is.

    `keep_text` keeps the texts of samples, shortened.
    """
    with _placed(Path(run), Path(out)) as place:
        pipeline.ingest(place, copy=True, keep_text=keep_text, progress=progress)
        return place.store


def open_run(
    path: str | Path,
    *,
    out: str | Path,
    settings: Settings | None = None,
    rules: Places = (),
    progress: Progress | None = None,
) -> Opened:
    """Give the diagnosis and the tokens of a run dir, an archive, a store (or the folder around it), a findings.json.

    A run dir or an archive is judged, and what was judged is kept in the store below `out`: a second call over
    unchanged input only reads it. Raises InputError where nothing can be read there.
    """
    found, place = Path(path), Path(out)
    chosen = _chosen(settings, None, rules)
    if not found.exists():
        raise InputError(f"{found}: there is no such file or folder; {OPENED}.")
    if (store := _store_at(found)) is not None:
        name = (store.parent if store.name == STORE else store).resolve().name
        return _opened(pipeline.diagnose_store(pipeline.Place(run=store, store=store, name=name), chosen), "store")
    if (found / REPORT).is_file() and (found / FINDINGS).is_file():  # what is left where the store was deleted
        found = found / FINDINGS
    if found.is_file() and found.name.endswith(FINDINGS):
        held = read_findings(found)
        return Opened(diagnosis=held, profile=None, why_no_profile=NO_TOKENS, source=_hash(found), kind="findings")
    kind: Kind = "archive" if archives.is_archive(found) else "run"
    return _opened(_judge(found, place, chosen, True, progress), kind)


def _store_at(path: Path) -> Path | None:
    """Give the store that a folder is, or holds as `ptt diagnose` leaves it."""
    places = (path, path / STORE) if path.is_dir() else ()
    return next((place for place in places if is_store(place)), None)


def _opened(judged: pipeline.Judged, kind: Kind) -> Opened:
    profile = read_profile(judged.store)
    why = "" if profile is not None else _why_no_profile(judged.diagnosis)
    return Opened(diagnosis=_whole(judged), profile=profile, why_no_profile=why, source=judged.source, kind=kind)


def _why_no_profile(diagnosis: model.Diagnosis) -> str:
    if diagnosis.signature.pair is None:
        return diagnosis.signature.reason or "the run records no pair of logprobs"
    return "its store holds no token tables; judge the run again"


def sources(run: str | Path, *, progress: Progress | None = None) -> Answerable:
    """Say what the files of the run hold, which questions they answer, and what would record the rest."""
    with TemporaryDirectory(prefix="ptt-") as scratch, _placed(Path(run), Path(scratch)) as place:
        return pipeline.look(place, progress=progress)


def rule_pages() -> tuple[Page, ...]:
    """Give the catalogue: every built-in rule with its page, limits and defaults."""
    return pages()


def rule_page(name: str) -> Page:
    """Give the page of one built-in rule; SettingsError where there is none of this name."""
    return page_of(name)


def check_rules(paths: Places) -> Report:
    """Read files and folders of custom rules without a run: what was understood, and every problem."""
    return report_on(_paths(paths))


def _hash(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def _paths(places: Places) -> tuple[Path, ...]:
    """Give one place, or several, as paths."""
    return (Path(places),) if isinstance(places, str | Path) else tuple(map(Path, places))


def _check_place(run: Path, out: Path) -> None:
    if not run.exists():
        raise InputError(f"{run}: there is no such file or folder; give the folder the trainer wrote to.")
    home = run.resolve()
    if home.is_dir() and (out.resolve() == home or home in out.resolve().parents):
        raise SettingsError(f"{out}: lies inside the run, which is never written to; give another place with --out.")


@contextmanager
def _placed(run: Path, out: Path) -> Iterator[pipeline.Place]:
    _check_place(run, out)
    if archives.is_archive(run):
        with archives.unpacked(run) as held:
            yield pipeline.Place(run=held.folder, store=out / STORE, name=held.name, notes=held.notes)
    else:
        yield pipeline.Place(run=run, store=out / STORE, name=run.resolve().name)
