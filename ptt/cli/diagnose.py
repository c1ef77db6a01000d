"""`ptt diagnose`: judge, write, print."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.console import Console

from ptt import api
from ptt.cli.exits import CODES
from ptt.cli.output import Artist, check_figures, output_folder, progress_bar
from ptt.diagnostics.gate.judge import decide
from ptt.diagnostics.model import Severity
from ptt.reports.output import write_text
from ptt.reports.run.terminal import print_diagnosis


def run(
    path: Path,
    *,
    out: Path | None,
    figures: Path | None,
    settings: Path | None,
    fail_on: str | None,
    keep_text: bool,
    rules: list[Path],
    as_json: bool,
    drawing: Artist,
) -> int:
    """Judge the run at `path` and return the exit code."""
    chosen = api.read_settings(settings)
    folder = output_folder(path, out)
    if figures is not None:
        check_figures(path, figures)
    with progress_bar(Console(stderr=True)) as tell:
        diagnosis = api.diagnose(
            path, out=folder, settings=chosen, keep_text=keep_text or None, rules=rules, progress=tell
        )
        findings = diagnosis.to_json()
        write_text(folder / "findings.json", findings)
        report = write_text(folder / "report.html", drawing.html(diagnosis))
        if figures is not None:
            from ptt.reports.figures.drawing import write_figures

            write_figures(diagnosis, figures)
    if as_json:
        typer.echo(findings, nl=False)
    else:
        print_diagnosis(diagnosis, Console(), str(report))
    limit = chosen.fail_on if fail_on is None else None if fail_on == "never" else Severity(fail_on)
    return CODES[decide(diagnosis, fail_on=limit)]
