"""Read a policy, and judge runs against it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

from ptt.api.runs import Paths, open_run, paths_of, read_settings, settings_with
from ptt.diagnostics.config import read_document
from ptt.diagnostics.custom.files import load_rules
from ptt.diagnostics.errors import InputError, SettingsError
from ptt.diagnostics.gate.against_baseline import with_baseline
from ptt.diagnostics.gate.judge import judge
from ptt.diagnostics.gate.policy import Known, Policy
from ptt.diagnostics.gate.read_policy import read_policy
from ptt.diagnostics.gate.results import GatedRun, GateReport, Outcome, worst
from ptt.diagnostics.gate.traces import judge_trace_set
from ptt.diagnostics.store.loaded_run import LoadedRun
from ptt.run_location import baseline_side, kept_side, store_at, traces_beside, traces_instead
from ptt.stopping import temporary_folder


def gate_policy(path: Path | None = None, *, baseline: Path | None = None, rules: Paths = ()) -> Policy:
    """Read the policy in `[gate]` of a settings file, or the default policy.

    Unknown keys and names, and requirements that no run could ever fail, raise SettingsError. `baseline` replaces the
    file that the settings name. `rules` are files and folders of custom rules in addition to those that the settings
    name; their findings can be allowed too.
    """
    settings = read_settings(path)
    custom = load_rules((*settings.rules, *paths_of(rules)))
    location, document = read_document(path)
    known = Known(custom={rule.name: rule.severity for rule in custom})
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
    """Judge runs against a policy, as `ptt gate` does; an unreadable run does not stop the others.

    `policy` is a settings file with `[gate]`, by default `./ptt.toml` if present; `baseline` replaces the one it
    names. With `out` each run's store is kept in its own folder below it. `today` dates allowances, by default the day
    in UTC. Raises SettingsError if the policy is wrong.
    """
    settings, held_against = (
        settings_with(read_settings(policy), rules=rules),
        gate_policy(policy, baseline=baseline, rules=rules),
    )
    gated: list[GatedRun] = []
    with temporary_folder("ptt-") as scratch:
        for number, run in enumerate(paths_of(runs), start=1):
            name = run.resolve().name
            try:
                folder = Path(out or scratch) / f"{number}-{name}"
                opened = open_run(run, out=folder, settings=settings)
                gated.append(_gated(run, folder, opened, held_against, name, today or datetime.now(UTC).date()))
            except InputError as error:
                gated.append(GatedRun(name=name, outcome=Outcome.UNREADABLE, error=str(error)))
    return GateReport(
        outcome=worst([one.outcome for one in gated]),
        runs=tuple(gated),
        policy=held_against.flat(),
        baseline=None if held_against.baseline is None else held_against.baseline.file.name,
    )


def _gated(run: Path, folder: Path, opened: LoadedRun, policy: Policy, name: str, today: date) -> GatedRun:
    store = store_at(run) or store_at(folder)
    traces = kept_side(run) if opened.kind == "findings" else traces_instead(store, opened.diagnosis)
    if traces is not None:
        return judge_trace_set(traces, policy, name=name, today=today)
    return judge(opened, policy, name=name, today=today, traces=traces_beside(store) if policy.traces else None)
