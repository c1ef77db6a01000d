"""What a run must hand over beside its verdict: which checkpoints to keep, its context, and the three checklists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.algorithm import samples_texts
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Diagnosis, Severity, in_unit, since_words
from ptt.diagnostics.parsers.io.interface import RunFile
from ptt.diagnostics.store.large_tables import with_tables
from ptt.diagnostics.verdict.checkpoints import (
    CheckpointRoles,
    Role,
    assign_roles,
    best_score,
    checkpoint_table,
    find_checkpoints,
    with_checkpoint_names,
)
from ptt.diagnostics.verdict.context import DECIDING, context_table, read_run_metadata
from ptt.diagnostics.verdict.outcome import with_checkpoint
from ptt.diagnostics.wording import sig

SCHEMA: Final = {
    "phase": pl.String,  # before | during | after
    "item": pl.String,
    "answer": pl.String,  # yes | no | cannot tell | does not apply
    "evidence": pl.String,
}
YES, NO, CANNOT, NOT_HERE = "yes", "no", "cannot tell", "does not apply"
# What each row of the list for the time of training asks, and the checks that answer it.
DURING: Final[tuple[tuple[str, tuple[str, ...], bool], ...]] = (
    # item, checks, whether it is asked of RL that samples its own data alone
    ("KL stays within its target", ("kl-over-target",), True),
    ("Few updates are clipped", ("clip-fraction-high",), True),
    ("Entropy stays above its floor", ("entropy-collapse",), False),
    ("The critic fits its targets", ("value-loss-rising", "explained-variance-low"), True),
    ("The evaluation follows the reward", ("eval-not-following",), True),
    ("Answers keep their length", ("length-inflation",), True),
    ("Memory and throughput hold", ("out-of-memory", "throughput-drop"), False),
)
CRITIC: Final = "value-loss-rising"
MIN_AUDITED: Final = 3  # samples of each kind: highest, lowest and latest
FLAT_SHARE: Final = 0.95  # of first rewards with one value: then there is nothing to learn from
FIRST_SAMPLES: Final = 64  # fewer show no shape
OUTLIER_RANGES: Final = 5.0  # ranges of the middle nine tenths from the median: a reward out there is an outlier
MIN_OUTLIERS: Final = 3  # one odd sample is no tail
REWARD_BINS: Final = 8
OUT_OF_MEMORY: Final = ("out of memory", "outofmemory", "oom-kill", "oom killer")
PRIVATE: Final = ("private", "held_out", "held-out", "heldout", "hidden")


class Answer(NamedTuple):
    """One row's answer and what it rests on."""

    answer: str
    evidence: str


Rows = Mapping[str, Answer]


def _before(diagnosis: Diagnosis, evidence: Evidence, evals: pl.DataFrame, *, evaluated: bool) -> Rows:
    nothing = Answer(NOT_HERE, f"{evidence.algorithm.title} training does not sample from an environment")
    shape = _reward_shape(diagnosis) if _samples_online(evidence) else nothing
    return {
        "The first rewards have a usable spread": shape,
        "The evaluation's settings are fixed and saved": _settings_saved(evidence, evals, evaluated=evaluated),
        "The run fits into memory": _memory(evidence),
    }


def _samples_online(evidence: Evidence) -> bool:
    return samples_texts(evidence.algorithm)


def _reward_shape(diagnosis: Diagnosis) -> Answer:
    """Classify the rewards of the first recorded samples: all the same, or with a far tail."""
    frame = diagnosis.tables.get("trajectories")
    if frame is None or not {"reward", "step", "split"} <= set(frame.columns):
        return Answer(CANNOT, "no single reward is recorded")
    usable = frame.filter(
        pl.col("reward").is_finite(), pl.col("step").is_not_null(), pl.col("split").ne_missing("eval")
    ).sort("step", maintain_order=True)
    if usable.height < FIRST_SAMPLES:
        return Answer(CANNOT, f"{usable.height} samples with reward and step are recorded; {FIRST_SAMPLES} are needed")
    last = int(usable["step"][FIRST_SAMPLES - 1])
    rewards = usable.filter(pl.col("step") <= last)["reward"].to_numpy()
    values, counts = np.unique(rewards, return_counts=True)
    common = float(counts.max() / len(rewards))
    where = f"of {len(rewards)} samples up to step {last}"
    if common >= FLAT_SHARE:
        return Answer(NO, f"{100 * common:.0f}% {where} have the reward {float(values[counts.argmax()]):g}")
    low, median, high = np.quantile(rewards, [0.05, 0.5, 0.95])
    outliers = int((np.abs(rewards - median) > OUTLIER_RANGES * (high - low)).sum()) if high > low else 0
    if outliers >= MIN_OUTLIERS:
        return Answer(NO, f"{outliers} {where} lie more than {OUTLIER_RANGES:g} times the usual range from the median")
    counts, edges = np.histogram(rewards, bins=min(len(values), REWARD_BINS))
    bars = f"counts in {len(counts)} equal bins: {', '.join(map(str, counts))}"
    return Answer(YES, f"rewards {sig(edges[0])} to {sig(edges[-1])} with median {sig(median)}, {where}; {bars}")


def _settings_saved(evidence: Evidence, evals: pl.DataFrame, *, evaluated: bool) -> Answer:
    if evals.is_empty():
        return _settings_logged(evidence, evaluated=evaluated)
    bare = evals.filter(pl.col("temperature").is_null() & pl.col("max_tokens").is_null()).height
    if bare:
        return Answer(NO, f"{bare} of {evals.height} figures give neither temperature nor max_tokens")
    protocols = evals.select("suite", "temperature", "max_tokens").unique()
    changed = protocols["suite"].value_counts().filter(pl.col("count") > 1)["suite"].sort().to_list()
    if changed:
        return Answer(NO, f"temperature or max_tokens differ between the figures of {changed[0]}")
    return Answer(YES, f"all {evals.height} figures give them, with the same values within each suite")


def _settings_logged(evidence: Evidence, *, evaluated: bool) -> Answer:
    """Answer from the settings that are logged as metrics beside the figures of the evaluation."""
    evaluation = evidence.evaluation
    if evaluation is None or not any(setting.name in DECIDING for setting in evaluation.settings):
        unsaid = "neither temperature nor max_tokens of the evaluation is logged"
        return Answer(CANNOT, unsaid if evaluated else "no evaluation is recorded")
    settings = [setting for setting in evaluation.settings if setting.name != "samples"]
    for setting in settings:
        figures = [each for each in evaluation.figures if f"{each.split}/{each.name}".startswith(f"{setting.suite}/")]
        steps = {step for figure in figures for step in figure.series.finite()[0].tolist()}
        if len({value for _, value in setting.points}) > 1:
            return Answer(NO, f"{setting.name} differs between the points of {setting.suite}")
        if missing := steps - {step for step, _ in setting.points}:
            return Answer(
                NO, f"{setting.name} of {setting.suite} is missing at {len(missing)} of {len(steps)} evaluated steps"
            )
    names = ", ".join(dict.fromkeys(setting.name for setting in settings))
    return Answer(YES, f"{names}: the same at all points of each suite")


def _memory(evidence: Evidence) -> Answer:
    killed = [event for event in evidence.events if any(word in event.text.lower() for word in OUT_OF_MEMORY)]
    if killed:
        return Answer(NO, f"{killed[0].source}: {killed[0].text[:120]}")
    if not evidence.events:
        return Answer(CANNOT, "no process output is recorded that would show an out-of-memory error")
    return Answer(YES, f"no out-of-memory error in {len(evidence.events)} recorded lines of output")


def _during(diagnosis: Diagnosis, evidence: Evidence) -> Rows:
    rows: dict[str, Answer] = {}
    algorithm = evidence.algorithm
    for item, ids, online in DURING:
        if online and not _samples_online(evidence):
            rows[item] = Answer(NOT_HERE, f"{algorithm.title} training samples no data of its own")
        elif CRITIC in ids and algorithm.critic is False:
            rows[item] = Answer(NOT_HERE, f"{algorithm.title} training has no critic")
        else:
            rows[item] = _checked(diagnosis, ids)
    return rows


def _checked(diagnosis: Diagnosis, ids: Sequence[str]) -> Answer:
    """Answer from the checks: no where one found its failure, yes only where each of them could judge."""
    for finding in diagnosis.findings:
        if finding.id in ids and finding.severity.at_least(Severity.MEDIUM):
            since = in_unit(since_words(finding), diagnosis.run.step_unit)
            return Answer(NO, f"{finding.claim}, {since}" if since else finding.claim)
    healthy = {check.id: check.reason for check in diagnosis.healthy}
    noted = {finding.id: finding.claim for finding in diagnosis.findings}
    not_judged = {item.id: item for item in diagnosis.not_judged}
    applicable = [name for name in ids if name not in not_judged or not_judged[name].applies]
    if not applicable:
        return Answer(NOT_HERE, not_judged[ids[0]].reason)
    reasons = {name: healthy.get(name) or noted.get(name) or "" for name in applicable}
    if all(reasons.values()):
        return Answer(YES, "; ".join(reasons.values()))
    unanswered = [
        not_judged[name].reason if name in not_judged else f"no check named {name} ran"
        for name, reason in reasons.items()
        if not reason
    ]
    return Answer(CANNOT, "; ".join(unanswered))


def _after(
    diagnosis: Diagnosis, evidence: Evidence, roles: CheckpointRoles, evals: pl.DataFrame, *, evaluated: bool
) -> Rows:
    nobody = Answer(NOT_HERE, f"{evidence.algorithm.title} training has no reward of its own to audit")
    return {
        "The best checkpoint by evaluation is kept": _on_disk(roles, roles.best, known=evaluated),
        "The last checkpoint is kept": _on_disk(roles, roles.last),
        "The first checkpoint after the failure is kept": _failed(roles),
        "Samples for an audit of the reward are kept": _audit(diagnosis) if _samples_online(evidence) else nobody,
        "A private test set was reported": _private(evals),
    }


def _on_disk(roles: CheckpointRoles, role: Role, *, known: bool = True) -> Answer:
    """Answer whether a checkpoint is kept; a run dir without any says nothing of where else they may lie."""
    if not roles.checkpoints or not known:
        return Answer(CANNOT, role.note)
    if role.checkpoint is None:
        return Answer(NO, role.note)
    if not role.checkpoint.weights:
        return Answer(CANNOT, f"{role.checkpoint.path} contains no weights; they may be stored elsewhere")
    return Answer(YES, f"{role.checkpoint.path}: {role.note}")


def _failed(roles: CheckpointRoles) -> Answer:
    if roles.onset is None:
        unknown = roles.broken.note.startswith("cannot")
        return Answer(CANNOT if unknown else NOT_HERE, roles.broken.note)
    return _on_disk(roles, roles.broken)


def _audit(diagnosis: Diagnosis) -> Answer:
    frame = diagnosis.tables.get("trajectories")
    if frame is None or frame.is_empty() or not {"reward", "step"} <= set(frame.columns):
        return Answer(CANNOT, "no sampled trajectory is recorded")
    rewarded = frame.filter(pl.col("reward").is_finite())
    if rewarded.height < MIN_AUDITED:
        return Answer(NO, f"{rewarded.height} of {frame.height} recorded samples have a reward")
    rewards, steps = rewarded["reward"].to_numpy(), rewarded["step"].drop_nulls()
    until = f", up to step {steps.to_numpy().max()}" if len(steps) else ""
    return Answer(YES, f"{rewarded.height} samples with rewards of {sig(rewards.min())} to {sig(rewards.max())}{until}")


def _private(evals: pl.DataFrame) -> Answer:
    suites = sorted(set(evals["suite"].drop_nulls())) if not evals.is_empty() else []
    named = [suite for suite in suites if any(word in suite.lower() for word in PRIVATE)]
    if named:
        return Answer(YES, f"figures of {named[0]}")
    if suites:
        return Answer(CANNOT, f"no suite is marked as private: {', '.join(suites[:3])}")
    return Answer(CANNOT, "no figures of an evaluated suite are in the run folder")


def with_handover(
    diagnosis: Diagnosis,
    evidence: Evidence,
    *,
    files: Sequence[RunFile],
    evaluated: Mapping[str, Series],
    evals: pl.DataFrame,
) -> Diagnosis:
    """Add the tables `checkpoints`, `context` and `checklists`, and name the checkpoint wherever one is advised.

    `files` of the run; `evaluated`: the series of the split `eval`, as spelt; `evals`: figures of evaluation harnesses
    (see schema.EVALS).
    """
    best = best_score(evaluated, evals, evidence.algorithm.family)
    roles = assign_roles(diagnosis, find_checkpoints(files), best)
    lists = {
        "before": _before(diagnosis, evidence, evals, evaluated=bool(evaluated)),
        "during": _during(diagnosis, evidence),
        "after": _after(diagnosis, evidence, roles, evals, evaluated=best is not None),
    }
    rows = [(phase, item, *answer) for phase, answers in lists.items() for item, answer in answers.items()]
    tables = {
        "checkpoints": checkpoint_table(roles),
        "context": context_table(evidence, read_run_metadata(files), evals, evaluated=bool(evaluated)),
        "checklists": pl.DataFrame(rows, schema=SCHEMA, orient="row"),
    }
    held = roles.best.checkpoint
    outcome = diagnosis.outcome and with_checkpoint(
        diagnosis.outcome, held.path if held else None, best.metric if best else ""
    )
    diagnosis = replace(diagnosis, tables=with_tables(diagnosis.tables, tables), outcome=outcome)
    return with_checkpoint_names(diagnosis, roles)
