"""Gates one run and writes its evidence; whatever is wrong with it is told, and none of it reaches the other runs."""

from __future__ import annotations

import errno
import hashlib
import tempfile
import traceback
from dataclasses import dataclass, replace
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Final

from ptt import __version__, api
from ptt.diagnostics.errors import InputError, SettingsError, no_room
from ptt.diagnostics.gate import judge
from ptt.diagnostics.gate.policy import Policy
from ptt.diagnostics.gate.values import GatedRun, Outcome
from ptt.diagnostics.kept.opened import Opened
from ptt.reports.files import write_text
from ptt.reports.findings_json import findings_json

FINDINGS: Final = "findings.json"
REPORT: Final = "report.html"
KEPT: Final = Path("store/kept/diagnosis.json")
MARK: Final = ".made-of"  # names what findings.json and report.html were made of: drawing takes as long as judging
NOT_THE_RUN: Final = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EROFS}  # faults of this machine


class Reports(StrEnum):
    """Of which runs a report.html is drawn."""

    FAILED = "failed"  # of all that did not pass
    ALL = "all"
    NONE = "none"


@dataclass(frozen=True, kw_only=True)
class Task:
    """One run and all that is needed to gate it."""

    run: Path
    shown: str | None  # the path as outputs show it; None where it would tell of this machine
    name: str
    folder: Path  # where its output goes
    settings: api.Settings
    policy: Policy
    today: date
    reports: Reports


@dataclass(frozen=True, kw_only=True)
class Refused:
    """What no run can be gated with: settings that turn out wrong in use, or an output place that is full."""

    why: str


def gate_one(task: Task) -> GatedRun | Refused:
    """Open, judge and write one run."""
    try:
        opened = api.open_run(task.run, out=task.folder, settings=task.settings)
        gated = _judged(task, opened)
    except SettingsError as error:
        return Refused(why=str(error))
    except BaseException as error:  # a panic of Polars is no Exception
        return _full(task, error) or _failed(task, error)
    try:
        return _written(task, opened, gated)
    except BaseException as error:  # what was judged stands, beside what went wrong
        _only_faults(error)
        return _full(task, error) or replace(gated, outcome=Outcome.CRASHED, error=_told(task, error))


def _full(task: Task, error: BaseException) -> Refused | None:
    """Tell that nothing more can be written: no fault of a run, and the next one would meet it as well."""
    why = no_room(error)
    return Refused(why=f"{task.folder.parent}: {why}; choose another place with --out, or make room.") if why else None


def gate_kept(task: Task) -> GatedRun | None:
    """Gate a run that is kept as it is now; None where it must be opened, or a report be drawn."""
    try:
        opened = api.kept_run(task.run, out=task.folder, settings=task.settings)
        if opened is None:
            return None
        gated = _judged(task, opened)
        if _wanted(task, gated) and not _drawn(task, opened):
            return None
        return _written(task, opened, gated)
    except BaseException as error:
        _only_faults(error)
        return None  # whatever it is, it is met again, and told, where the run is opened


def _judged(task: Task, opened: Opened) -> GatedRun:
    gated = judge(opened, task.policy, name=task.name, today=task.today)
    return replace(gated, path=task.shown, first_broken_link=opened.diagnosis.verdict.first_broken_link)


def lost(task: Task, how: str) -> GatedRun:
    """Tell of a run whose process died."""
    error = f"{how}; gate this run alone, with --jobs 1 or where there is more memory."
    return GatedRun(name=task.name, path=task.shown, outcome=Outcome.CRASHED, error=error)


def _written(task: Task, opened: Opened, gated: GatedRun) -> GatedRun:
    """Write findings.json, and report.html where one is wanted; what lies there of this very diagnosis stays."""
    findings, report, mark = (task.folder / name for name in (FINDINGS, REPORT, MARK))
    made_of, wanted = _made_of(task, opened), _wanted(task, gated)
    if _text(mark) != made_of:
        for place in (mark, report):  # of another state of this run: a report would contradict the gate
            place.unlink(missing_ok=True)
        write_text(findings, findings_json(opened.diagnosis, __version__))
        write_text(mark, made_of)
    if wanted and not report.is_file():
        from ptt.reports.render import render_html

        write_text(report, render_html(opened.diagnosis))
    return replace(gated, report=f"{task.folder.name}/{REPORT}") if wanted else gated


def _wanted(task: Task, gated: GatedRun) -> bool:
    """Tell whether a report is to be drawn."""
    return task.reports is Reports.ALL or (task.reports is Reports.FAILED and gated.outcome is not Outcome.PASSED)


def _drawn(task: Task, opened: Opened) -> bool:
    """Tell whether the report that lies there is of this diagnosis."""
    return (task.folder / REPORT).is_file() and _text(task.folder / MARK) == _made_of(task, opened)


def _made_of(task: Task, opened: Opened) -> str:
    """Name what is written: the diagnosis, and the tables that are kept beside it under its mark."""
    digest = hashlib.sha256(f"{__version__}\n{opened.source}\n".encode())
    kept = task.folder / KEPT
    digest.update(kept.read_bytes() if kept.is_file() else findings_json(opened.diagnosis, __version__).encode())
    return digest.hexdigest() + "\n"


def _failed(task: Task, error: BaseException) -> GatedRun:
    """Say why a run has no checks."""
    _only_faults(error)
    for name in (MARK, FINDINGS, REPORT):  # of an earlier pass: what they say is no longer known
        (task.folder / name).unlink(missing_ok=True)
    unreadable = isinstance(error, InputError) or (isinstance(error, OSError) and error.errno not in NOT_THE_RUN)
    outcome = Outcome.UNREADABLE if unreadable else Outcome.CRASHED
    return GatedRun(name=task.name, path=task.shown, outcome=outcome, error=_told(task, error))


def _only_faults(error: BaseException) -> None:
    """Let Ctrl-C and the end of the process pass: they are no fault of a run."""
    if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
        raise error


def _told(task: Task, error: BaseException) -> str:
    """Put an error into words, without the places of this machine, so that they are the same everywhere."""
    text = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}{_where(error)}"
    for place, shown in (
        (task.run, task.run.name),
        (task.run.absolute(), task.run.name),
        (task.folder, task.folder.name),
        (task.folder.absolute(), task.folder.name),
        (Path(tempfile.gettempdir()), "…"),
    ):
        if len(place.parts) > 1:
            text = text.replace(str(place), shown)
    return text


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
