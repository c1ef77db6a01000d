"""Open what a path stands for: a run dir, an archive, a store or a findings.json, judged and ready to be told."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ptt import __version__
from ptt.diagnostics import model, pipeline
from ptt.diagnostics.config import Settings
from ptt.diagnostics.errors import InputError, SettingsError
from ptt.diagnostics.kept import marks
from ptt.diagnostics.kept.findings import read_findings
from ptt.diagnostics.kept.opened import Opened
from ptt.diagnostics.kept.profile import read_profile
from ptt.diagnostics.parsers.discover import not_readable
from ptt.diagnostics.store import archives
from ptt.diagnostics.store.claims import note_run
from ptt.diagnostics.store.manifest import is_store, stores_below

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
        identity = marks.identity(run)
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
        identity=marks.identity(found) if archive else "",
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
