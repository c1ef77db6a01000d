"""Hold a config against the advisories before there is a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ptt.diagnostics.advisories.advisory import Database
from ptt.diagnostics.advisories.matching import match_run
from ptt.diagnostics.errors import InputError
from ptt.diagnostics.evidence.training_setup import make_setup
from ptt.diagnostics.model import AdvisoryReport
from ptt.diagnostics.parsers import Context, run_files, run_settings
from ptt.diagnostics.parsers.io.setup_files import listed_packages


def config_report(
    paths: Sequence[Path], *, framework: str | None, packages: Sequence[str], database: Database
) -> AdvisoryReport:
    """Return the advisories that concern what these config files, taken as one, set."""
    stated: list[Context] = []
    for path in paths:
        files = run_files(path)[0]
        found = [run_settings.setup_in(file) for file in files if path.is_file() or run_settings.recognises(file)]
        if path.is_file() and found[0] is None:
            raise InputError(f"{path}: cannot be read; give a config of at most {run_settings.MAX_BYTES >> 20} MiB.")
        stated += [one for one in found if one is not None]
    named = [name for one in stated if isinstance(name := one.facts.get("framework"), str)]
    setup = make_setup(
        next(iter(named), None),
        {name: version for one in stated for name, version in one.packages.items()}
        | listed_packages("\n".join(packages)),
        {name: value for one in stated for name, value in one.settings.items()},
    )
    setup = replace(setup, framework=framework.lower()) if framework else setup
    report = match_run(database, setup, None, None)
    return replace(report, unresolved=sum(one.unresolved for one in stated))
