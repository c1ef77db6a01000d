"""`ptt advisories` and `ptt check-config`: known bugs and risky settings, of a run or before there is one."""

from __future__ import annotations

import os
from pathlib import Path

from rich.console import Console

from ptt import api
from ptt.cli.exits import Exit
from ptt.cli.options import AdvisoriesOptions, CheckConfigOptions, FailOn
from ptt.cli.output import output_folder, progress_bar, remote_paths
from ptt.cli.streams import print_json
from ptt.diagnostics.model import AdvisoryReport, Severity, Strength
from ptt.reports.run.advisories import database_json, print_advisory, print_database, print_report, report_json
from ptt.reports.text.terminal import open_console
from ptt.version import __version__


def advisories(options: AdvisoriesOptions) -> int:
    """List all, explain one, or match a run, and return the exit code."""
    settings = api.settings_with(api.read_settings(options.settings), advisories=options.advisories or ())
    named = options.run
    if named is None or not (os.path.lexists(named) or ":/" in named):
        database = api.advisory_database(settings)
        chosen = database.advisories if named is None else (api.advisory_named(named, database),)
        if options.as_json:
            print_json(database_json(chosen, database, __version__))
        elif named is None:
            print_database(database, open_console())
        else:
            print_advisory(chosen[0], open_console(), source=database.sources.get(chosen[0].id, ""))
        return Exit.JUDGED
    with remote_paths() as remote:
        out = remote.output(options.out, of=[Path(named)])
        path = remote.run(Path(named))
        with progress_bar(Console(stderr=True)) as tell:
            opened = api.open_run(
                path, out=output_folder(path, out), settings=settings, one_run=options.one_run, progress=tell
            )
    report = opened.diagnosis.advisories
    return Exit.BLIND if report is None else _answer(report, options.fail_on, Strength.CAUSE, as_json=options.as_json)


def check_config(options: CheckConfigOptions) -> int:
    """Match what a config sets, and return the exit code."""
    settings = api.settings_with(api.read_settings(options.settings), advisories=options.advisories or ())
    report = api.check_config(
        options.files, framework=options.framework, packages=options.package or (), settings=settings
    )
    return _answer(report, options.fail_on, Strength.NOTE, as_json=options.as_json, of_config=True)


def _answer(
    report: AdvisoryReport, fail_on: FailOn, strength: Strength, *, as_json: bool, of_config: bool = False
) -> int:
    if as_json:
        print_json(report_json(report, __version__))
    else:
        print_report(report, open_console(), of_config=of_config)
    limit = None if fail_on is FailOn.NEVER else Severity(fail_on.value)
    sure = [match for match in report.of(strength) if not match.unsure]
    if limit is not None and any(match.severity.at_least(limit) for match in sure):
        return Exit.FAILED
    return Exit.JUDGED if report.settings or report.packages or (report.framework and not of_config) else Exit.BLIND
