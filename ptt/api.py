"""The door for notebooks and commands: one function from a path to a diagnosis, its tables and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from ptt.diagnostics import comparing, pipeline
from ptt.diagnostics.answerable import Answerable
from ptt.diagnostics.catalogue import Page, page_of, pages
from ptt.diagnostics.comparing import arms
from ptt.diagnostics.comparing.values import Comparison
from ptt.diagnostics.config import Settings, load_settings, read_document
from ptt.diagnostics.custom.checking import Report, report_on
from ptt.diagnostics.custom.files import load_rules
from ptt.diagnostics.errors import InputError, PttError, SettingsError
from ptt.diagnostics.gate import Known, Policy, read_policy, with_baseline
from ptt.diagnostics.rules import LIMITS
from ptt.diagnostics.store.claims import alone, note_run
from ptt.opening import (
    OPENED,
    STORE,
    Diagnosis,
    Places,
    Progress,
    as_paths,
    chosen_of,
    judge,
    kept_run,
    open_run,
    placed,
    whole,
)
from ptt.workers import Died, in_workers

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
