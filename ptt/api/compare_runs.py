"""Compare runs with a baseline; each may be judged in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from ptt.api.runs import READABLE, Paths, Progress, open_run, settings_with
from ptt.diagnostics import compare as comparing
from ptt.diagnostics.compare import arms
from ptt.diagnostics.compare.comparison import Comparison
from ptt.diagnostics.config import Settings
from ptt.diagnostics.errors import InputError, PttError
from ptt.processes import Died, in_workers
from ptt.run_location import STORE, not_there
from ptt.stopping import temporary_folder


def compare(
    runs: Sequence[str | Path],
    *,
    groups: Mapping[str, Sequence[str | Path]] | None = None,
    baseline: str | None = None,
    out: str | Path | None = None,
    settings: Settings | None = None,
    rules: Paths = (),
    jobs: int = 1,
    progress: Progress | None = None,
) -> Comparison:
    """Compare runs; each may be anything that `open_run` takes, and the first is the baseline.

    `groups` pools runs (by name or path) as seeds of one setting; `baseline` names a run or a group. With `out` each
    run's store is kept in its own folder below it, and a second call reuses it. `jobs` runs are judged at a time.
    Raises SettingsError if fewer than two arms are given, and InputError if a run cannot be read.
    """
    settings = settings_with(settings, rules=rules)
    with temporary_folder() as scratch:
        base = Path(scratch if out is None else out)
        planned = arms.planned([Path(run) for run in runs], groups or {}, baseline)
        for run in planned.runs:  # all of them before the first is judged, which may take a while
            if not run.exists():
                raise not_there(run, READABLE)
        targets = [(run, base / name) for run, name in zip(planned.runs, planned.names, strict=True)]
        if jobs > 1:
            _judge_ahead(targets, settings, jobs, progress)
            progress = None
        opened = [open_run(run, out=folder, settings=settings, progress=progress) for run, folder in targets]
        return comparing.compare(arms.arms_of(planned, opened))


def compare_kept(
    run: str | Path,
    *,
    out: str | Path,
    baseline: str | Path,
    settings: Settings | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Compare a run that was judged into `out` with a baseline, which may be anything that `open_run` takes.

    The baseline's results are kept in `out` too. Raises InputError if the baseline cannot be read.
    """
    if not Path(baseline).exists():
        raise not_there(Path(baseline), READABLE)
    planned = arms.planned([Path(baseline), Path(run)], {}, None)
    given = open_run(baseline, out=Path(out) / "baseline", settings=settings, progress=progress)
    return comparing.compare(arms.arms_of(planned, [given, open_run(out, out=out, settings=settings)]))


def _judge_ahead(
    targets: Sequence[tuple[Path, Path]], settings: Settings, jobs: int, progress: Progress | None = None
) -> None:
    """Judge runs in processes of their own; what they keep in their folders is all that comes back."""
    tasks = [(run, folder, settings) for run, folder in targets if not (folder / STORE / "kept").is_dir()]
    if len(tasks) < 2:
        return
    with closing(in_workers(_judge_one, tasks, jobs=min(jobs, len(tasks)))) as answers:
        for done, (number, answer) in enumerate(answers, start=1):
            if isinstance(answer, Died):
                raise InputError(f"{tasks[number][0]}: {answer.how}; judge the runs one by one with --jobs 1.")
            if answer is not None:
                raise answer
            if progress is not None:
                progress("judging runs", done, len(tasks))


def _judge_one(task: tuple[Path, Path, Settings]) -> PttError | None:
    run, folder, settings = task
    try:
        open_run(run, out=folder, settings=settings)
    except PttError as error:
        return error
    except Exception:  # a bug: met again, and shown with its place, where the run is opened by itself
        return None
    return None
