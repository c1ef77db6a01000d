"""The door for notebooks and commands: one function from a path to a diagnosis, its tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from ptt import __version__
from ptt.diagnostics import model, pipeline
from ptt.diagnostics.answerable import Answerable
from ptt.diagnostics.catalogue import Page, page_of, pages
from ptt.diagnostics.config import Settings, load_settings
from ptt.diagnostics.custom.checking import Report, report_on
from ptt.diagnostics.errors import InputError, SettingsError
from ptt.diagnostics.kept.opened import Opened
from ptt.diagnostics.rules import LIMITS
from ptt.diagnostics.store import archives

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Diagnosis", "InputError", "Settings", "SettingsError", "diagnose", "ingest", "read_settings", "sources"]

STORE = "store"
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
    chosen = settings or Settings()
    if keep_text is not None:
        chosen = replace(chosen, keep_text=keep_text)
    chosen = replace(chosen, rules=(*chosen.rules, *_paths(rules)))
    with (
        TemporaryDirectory(prefix="ptt-") as scratch,
        _placed(Path(run), Path(scratch if out is None else out)) as place,
    ):
        found = pipeline.diagnose(replace(place, kept=out is not None), chosen, progress=progress)
    return Diagnosis(**{field.name: getattr(found, field.name) for field in fields(found)})


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
    raise NotImplementedError


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


def _paths(places: Places) -> tuple[Path, ...]:
    """Give one place, or several, as paths."""
    return (Path(places),) if isinstance(places, str | Path) else tuple(map(Path, places))


@contextmanager
def _placed(run: Path, out: Path) -> Iterator[pipeline.Place]:
    if not run.exists():
        raise InputError(f"{run}: there is no such file or folder; give the folder the trainer wrote to.")
    home = run.resolve()
    if home.is_dir() and (out.resolve() == home or home in out.resolve().parents):
        raise SettingsError(f"{out}: lies inside the run, which is never written to; give another place with --out.")
    if archives.is_archive(run):
        with archives.unpacked(run) as held:
            yield pipeline.Place(run=held.folder, store=out / STORE, name=held.name, notes=held.notes)
    else:
        yield pipeline.Place(run=run, store=out / STORE, name=home.name)
