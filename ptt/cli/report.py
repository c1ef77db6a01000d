"""`ptt report`: show again what was judged, without the run, and in a form that can be shared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import typer
from rich.console import Console

from ptt import __version__, api
from ptt.cli.drawing import Artist
from ptt.cli.exits import Exit
from ptt.cli.places import check_figures, output_folder, progress_bar
from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.model import Diagnosis
from ptt.reports.files import write_text
from ptt.reports.findings_json import findings_json
from ptt.reports.postmortem import postmortem
from ptt.reports.redacting import default_salt, redacted
from ptt.reports.terminal import print_diagnosis

BASE: Final = Path("ptt-report")
FIGURES: Final = "figures"


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What the options ask for."""

    out: Path | None
    figures: Path | None
    redact: bool
    salt: str | None
    keep_tool_names: bool
    postmortem: bool
    settings: Path | None
    rules: Sequence[Path]
    as_json: bool


def run(source: Path, wishes: Wishes, drawing: Artist) -> int:
    """Write the report of what `source` is, and give the exit code."""
    _check(wishes)
    chosen = api.read_settings(wishes.settings)
    for place in filter(None, (wishes.out, wishes.figures)):
        _keep_clear(source, place)
    with TemporaryDirectory(prefix="ptt-") as scratch, progress_bar(Console(stderr=True)) as tell:
        store = output_folder(source, None) if wishes.out is None else Path(scratch)
        opened = api.open_run(source, out=store, settings=chosen, rules=wishes.rules, progress=tell)
        diagnosis = opened.diagnosis
        if wishes.redact:
            salt = wishes.salt or default_salt(opened.source, findings_json(diagnosis, __version__))
            diagnosis = redacted(diagnosis, salt=salt, keep_tool_names=wishes.keep_tool_names)
        folder = (
            wishes.out or BASE / f"{diagnosis.run.name if wishes.redact else output_folder(source, None).name}-report"
        )
        _keep_clear(source, folder)
        written = _write(diagnosis, folder, wishes, drawing)
    if wishes.as_json:
        typer.echo(findings_json(diagnosis, __version__), nl=False)
    else:
        print_diagnosis(diagnosis, Console(), str(written))
    return Exit.JUDGED


def _check(wishes: Wishes) -> None:
    """Refuse options that would do nothing."""
    if not wishes.redact and (wishes.salt is not None or wishes.keep_tool_names):
        raise SettingsError(
            "--salt and --keep-tool-names say how --redact works; give --redact too, or leave them out."
        )
    if wishes.salt == "":
        raise SettingsError("--salt is empty, which would let anyone who guesses a name find its hash; give a secret.")


def _keep_clear(source: Path, place: Path) -> None:
    """Refuse to write among the files that the report is made from."""
    check_figures(source, place)
    home = source.resolve()
    beside = home.parent if home.is_file() or (home / "manifest.json").is_file() else home
    if place.resolve() == beside and (beside / "findings.json").exists():
        raise SettingsError(f"{place}: holds what the report is made from; give another place with --out or --figures.")


def _write(diagnosis: Diagnosis, folder: Path, wishes: Wishes, drawing: Artist) -> Path:
    """Write every file, and give the one to open."""
    write_text(folder / "findings.json", findings_json(diagnosis, __version__))
    report = write_text(folder / "report.html", drawing.html(diagnosis))
    figures = wishes.figures or (folder / FIGURES if wishes.postmortem else None)
    drawn: list[Path] = []
    if figures is not None:
        from ptt.reports.drawing import write_figures

        drawn = write_figures(diagnosis, figures)
    if not wishes.postmortem:
        return report
    return write_text(folder / "postmortem.md", postmortem(diagnosis, _links(drawn, folder)))


def _links(drawn: Sequence[Path], folder: Path) -> dict[str, str]:
    """Give the way from the postmortem to each figure by its name; none where it would leave the folder above it."""
    home = folder.resolve()
    found = {path.stem: path.resolve() for path in drawn if path.suffix == ".png"}
    return {
        name: path.relative_to(home).as_posix() if path.is_relative_to(home) else path.name
        for name, path in found.items()
    }
