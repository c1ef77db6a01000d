"""Compare runs, judge runs against a policy, and judge agent traces: the answers that take several runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ptt.api.answers import Comparison, GateReport, TraceDiagnosis, shown
from ptt.api.runs import READABLE, Paths, Progress, advisory_database, open_run, paths_of, read_settings, settings_with
from ptt.diagnostics import compare as comparing
from ptt.diagnostics import traces_pipeline
from ptt.diagnostics.compare import arms
from ptt.diagnostics.config import Settings, read_document
from ptt.diagnostics.custom.files import load_rules
from ptt.diagnostics.errors import InputError, PttError, SettingsError
from ptt.diagnostics.gate.against_baseline import drift_notes, with_baseline
from ptt.diagnostics.gate.findings import expired_notes
from ptt.diagnostics.gate.judge import judge
from ptt.diagnostics.gate.policy import Known, Policy
from ptt.diagnostics.gate.read_policy import read_policy
from ptt.diagnostics.gate.results import GatedRun, Outcome, worst
from ptt.diagnostics.gate.traces import judge_trace_set
from ptt.diagnostics.parsers.io.interface import RunFile
from ptt.diagnostics.parsers.io.run_files import run_files
from ptt.diagnostics.store.diagnosis import LoadedRun
from ptt.diagnostics.store.file_readings import Reading, Task, read_task
from ptt.object_stores.remote_paths import STORE
from ptt.processes import Died, in_workers
from ptt.run_location import (
    baseline_side,
    each_run,
    kept_side,
    not_there,
    refuse_other_output,
    run_location,
    store_at,
    traces_beside,
    traces_instead,
    unpacked_run,
)
from ptt.stopping import temporary_folder

if TYPE_CHECKING:
    from ptt.diagnostics.traces.exports.options import ExportOptions
    from ptt.diagnostics.traces.exports.quality import ExportReport


def gate_policy(path: Path | None = None, *, baseline: Path | None = None, rules: Paths = ()) -> Policy:
    """Read the policy in `[gate]` of a settings file, or the default policy.

    Unknown keys and names, and requirements that no run could ever fail, raise SettingsError. `baseline` replaces the
    file that the settings name. `rules` are files and folders of custom rules in addition to those that the settings
    name; their findings can be allowed too.
    """
    settings = read_settings(path)
    custom = load_rules((*settings.rules, *paths_of(rules)))
    location, document = read_document(path)
    known = Known(
        custom={rule.name: rule.severity for rule in custom},
        advisories={advisory.id: advisory.level for advisory in advisory_database(settings).advisories},
    )
    policy = _with_traces(with_baseline(read_policy(document, location, known=known, baseline=baseline)))
    return replace(policy, judged_by=settings.judged_by(rules=bool(custom)))


def _with_traces(policy: Policy) -> Policy:
    """Read the baseline of traces that a policy names."""
    wanted = policy.traces
    if wanted is None or wanted.baseline is None:
        return policy
    try:
        held = baseline_side(wanted.baseline.path)
    except InputError as error:
        raise SettingsError(f"[gate.traces.baseline] path: {error}") from error
    return replace(policy, traces=replace(wanted, baseline=replace(wanted.baseline, held=held)))


def gate(
    runs: Paths,
    *,
    policy: Path | None = None,
    baseline: Path | None = None,
    out: str | Path | None = None,
    rules: Paths = (),
    today: date | None = None,
) -> GateReport:
    """Judge runs against a policy, as `ptt gate` does: of a folder of runs or archives each, an unreadable one or not.

    `policy` is a settings file with `[gate]`, by default `./ptt.toml` if present; `baseline` replaces the one it
    names. With `out` each run's store is kept in its own folder below it. `today` dates allowances, by default the day
    in UTC. Raises SettingsError if the policy is wrong.
    """
    settings, held_against = (
        settings_with(read_settings(policy), rules=rules),
        gate_policy(policy, baseline=baseline, rules=rules),
    )
    gated: list[GatedRun] = []
    day = today or datetime.now(UTC).date()
    every, notes = each_run(paths_of(runs))
    with temporary_folder("ptt-") as scratch:
        for number, run in enumerate(every, start=1):
            name = run.resolve().name
            try:
                folder = Path(out or scratch) / f"{number}-{name}"
                opened = open_run(run, out=folder, settings=settings, one_run=run.is_dir())
                gated.append(_gated(run, folder, opened, held_against, name, day))
            except InputError as error:
                gated.append(GatedRun(name=name, outcome=Outcome.UNREADABLE, error=str(error)))
    return GateReport(
        outcome=worst([one.outcome for one in gated]),
        runs=tuple(gated),
        policy=held_against.flat(),
        baseline=None if held_against.baseline is None else held_against.baseline.file.name,
        notes=(*drift_notes(gated, held_against), *expired_notes(held_against, today=day), *notes),
    )


def _gated(run: Path, folder: Path, opened: LoadedRun, policy: Policy, name: str, today: date) -> GatedRun:
    store = store_at(run) or store_at(folder)
    traces = kept_side(run) if opened.kind == "findings" else traces_instead(store, opened.diagnosis)
    if traces is not None:
        return judge_trace_set(traces, policy, name=name, today=today)
    return judge(opened, policy, name=name, today=today, traces=traces_beside(store) if policy.traces else None)


def traces(
    paths: Paths,
    *,
    out: str | Path | None = None,
    settings: Settings | None = None,
    keep_text: bool | None = None,
    keep_messages: bool = False,
    labels: str | Path | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
) -> TraceDiagnosis:
    """Judge the agent traces at `paths` (files, folders or archives) as one set.

    With `out` the Parquet store is kept there. `keep_text` (by default from the settings) keeps shortened texts in it,
    and shows those of episodes that findings rest on; `keep_messages` keeps whole conversations, for an export.
    `labels`: a file with the columns id, success and reward, which replace those of the traces. `jobs` processes read
    at a time; what they find is the same. One path may be a store, which is judged again as it is. Raises InputError if
    no file holds an episode, or the labels name none.
    """
    given = paths_of(paths)
    if out is not None:
        refuse_other_output(Path(out), of_traces=True)
    if len(given) == 1 and (kept := store_at(given[0])) is not None:
        folder = kept.parent if kept.name == STORE else kept
        if labels is not None:
            raise SettingsError(f"{given[0]}: was read before; give --labels with the traces themselves.")
        return shown(traces_pipeline.reopened_traces(kept, name=folder.resolve().name), TraceDiagnosis)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(temporary_folder()) if out is None else out)
        files: list[RunFile] = []
        notes: list[str] = []
        for number, path in enumerate(given):
            unpacked = stack.enter_context(unpacked_run(run_location(path, folder), one_run=True))
            found, passed_over = run_files(unpacked.run, settings.logs if settings else ())
            prefix = f"{number}-{path.name}/" if len(given) > 1 else ""
            files += [replace(file, rel=prefix + file.rel) for file in found]
            notes += [*unpacked.notes, *passed_over]
        judged = traces_pipeline.diagnose_traces(
            files,
            name=run_location(given[0], folder).name,
            store=folder / STORE,
            notes=notes,
            settings=settings_with(settings, rules=(), keep_text=keep_text),
            keep_messages=keep_messages,
            labels=None if labels is None else Path(labels),
            run_tasks=partial(_read_in_workers, jobs=jobs) if jobs > 1 else None,
            progress=progress,
        )
        return shown(judged, TraceDiagnosis)


def _read_in_workers(tasks: Sequence[Task], *, jobs: int) -> Iterator[tuple[int, list[Reading] | Died]]:
    """Read tasks in processes; one task starts none."""
    if len(tasks) == 1:
        yield 0, read_task(tasks[0])
        return
    with closing(in_workers(read_task, tasks, jobs=min(jobs, len(tasks)))) as done:
        yield from done


def export_traces(kept: str | Path, to: str | Path, options: ExportOptions) -> ExportReport:
    """Write training data into `to` from what `traces(..., out=kept, keep_messages=True)` kept, and return its card.

    Raises InputError if no conversations are kept there, and SettingsError if the folder cannot be written to.
    """
    from ptt.diagnostics.traces.exports.export import export_traces as write  # here: it imports pyarrow

    store = store_at(Path(kept))
    if store is None:
        raise InputError(f"{kept}: holds no store; read the traces with keep_messages first.")
    return write(store, Path(to), options)


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
        return shown(comparing.compare(arms.arms_of(planned, opened)), Comparison)


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
    compared = comparing.compare(arms.arms_of(planned, [given, open_run(out, out=out, settings=settings)]))
    return shown(compared, Comparison)


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
