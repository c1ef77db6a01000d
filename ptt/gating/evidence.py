"""Writes what a gate says over all runs: gate.json, the index page, and what CI was to be given."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.gate.values import GateReport
from ptt.reports.files import write_text
from ptt.reports.gating import FORMATS
from ptt.reports.gating.index import index_html

INDEX: Final = "index.html"
JSON: Final = "json"


def prepare(out: Path, extra: Mapping[str, Path]) -> None:
    """Make sure that all can be written, and take away what an earlier gate wrote: it must not outlive a crash."""
    for place in _places(out, extra).values():
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            if place.is_dir():
                raise SettingsError(f"{place}: is a folder; give a file to write to.")
            place.unlink(missing_ok=True)
        except OSError as error:
            raise SettingsError(f"{place}: cannot be written: {error.strerror or error}.") from error


def write(report: GateReport, out: Path, extra: Mapping[str, Path]) -> Path:
    """Write all of it, `extra` by the name of its format, and give where the index page lies."""
    for name, place in _places(out, extra).items():
        write_text(place, index_html(report) if name == INDEX else FORMATS[name].render(report))
    return out / INDEX


def _places(out: Path, extra: Mapping[str, Path]) -> dict[str, Path]:
    return {INDEX: out / INDEX, JSON: out / FORMATS[JSON].file, **extra}
