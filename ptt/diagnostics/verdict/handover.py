"""What a run must hand over beside its verdict: which checkpoints to keep, its context, and the three checklists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.algorithm import Family
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Diagnosis, NotJudged, Severity
from ptt.diagnostics.parsers.io.interface import RunFile
from ptt.diagnostics.verdict.checkpoints import (
    Kept,
    Role,
    Score,
    best_score,
    checkpoint_table,
    checkpoints_among,
    roles,
    with_names,
)
from ptt.diagnostics.verdict.context import context_table, read_papers

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
AUDITED: Final = 3  # samples of each kind: highest, lowest and latest
FLAT_SHARE: Final = 0.95  # of first rewards with one value: then there is nothing to learn from
FIRST_SAMPLES: Final = 64  # fewer tell no shape
TAIL: Final = 5.0  # ranges of the middle nine tenths from the median: a reward out there is an outlier
TAIL_LEAST: Final = 3  # outliers: one odd sample is no tail


class Answer(NamedTuple):
    """One row's answer and what it rests on."""

    answer: str
    evidence: str


def checklist_table(
    diagnosis: Diagnosis, evidence: Evidence, kept: Kept, evals: pl.DataFrame, best: Score | None
) -> pl.DataFrame:
    """Answer every row of the three lists."""
    rows = [("before", item, *answer) for item, answer in _before(diagnosis, evidence, evals)]
    rows += [("during", item, *_during(diagnosis, evidence, ids, online)) for item, ids, online in DURING]
    rows += [("after", item, *answer) for item, answer in _after(diagnosis, evidence, kept, evals, best)]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


Rows = Sequence[tuple[str, Answer]]


def _before(diagnosis: Diagnosis, evidence: Evidence, evals: pl.DataFrame) -> Rows:
    if evidence.algorithm.family not in (None, Family.ONLINE):
        absent = Answer(NOT_HERE, f"{evidence.algorithm.title} training samples from no environment")
        asked = [absent] * 4
    else:
        silent = Answer(CANNOT, "no file of the run tells; keep the output of such a run beside the logs")
        asked = [silent, silent, silent, _reward_shape(diagnosis)]
    names = (
        "The environment was tested by itself",
        "The reward of a random policy is known",
        "A simple rule beats the random policy",
        "The first rewards have a usable spread",
    )
    return [
        *zip(names, asked, strict=True),
        ("The evaluation's settings are fixed and saved", _settings_saved(evals)),
        ("The run fits into memory", _memory(evidence)),
    ]


def _reward_shape(diagnosis: Diagnosis) -> Answer:
    """Look at the rewards of the first recorded samples: all alike, or with a far tail."""
    frame = diagnosis.tables.get("trajectories")
    if frame is None or not {"reward", "step", "split"} <= set(frame.columns):
        return Answer(CANNOT, "no single reward is recorded")
    usable = frame.filter(
        pl.col("reward").is_finite(), pl.col("step").is_not_null(), pl.col("split").ne_missing("eval")
    )
    if usable.height < FIRST_SAMPLES:
        return Answer(CANNOT, f"{usable.height} samples with reward and step are recorded; {FIRST_SAMPLES} are needed")
    ordered = usable.sort("step", maintain_order=True)
    last = int(ordered["step"][FIRST_SAMPLES - 1])
    first = ordered.filter(pl.col("step") <= last)["reward"].to_numpy()
    values, counts = np.unique(first, return_counts=True)
    common = float(counts.max() / len(first))
    where = f"of {len(first)} samples up to step {last}"
    if common >= FLAT_SHARE:
        return Answer(NO, f"{100 * common:.0f} % {where} have the reward {float(values[counts.argmax()]):g}")
    low, middle, high = np.quantile(first, [0.05, 0.5, 0.95])
    far = int((np.abs(first - middle) > TAIL * (high - low)).sum()) if high > low else 0
    if far >= TAIL_LEAST:
        return Answer(NO, f"{far} {where} lie more than {TAIL:g} times the usual range off the median")
    return Answer(YES, f"rewards {first.min():.3g} to {first.max():.3g} with median {middle:.3g}, {where}")


def _settings_saved(evals: pl.DataFrame) -> Answer:
    if evals.is_empty():
        return Answer(CANNOT, "no evaluation with its settings is recorded")
    bare = evals.filter(pl.col("temperature").is_null() & pl.col("max_tokens").is_null()).height
    if bare:
        return Answer(NO, f"{bare} of {evals.height} figures name neither temperature nor max_tokens")
    protocols = evals.select("suite", "temperature", "max_tokens").unique()
    changed = protocols["suite"].value_counts().filter(pl.col("count") > 1)["suite"].sort().to_list()
    if changed:
        return Answer(NO, f"temperature or max_tokens differ between the figures of {changed[0]}")
    return Answer(YES, f"all {evals.height} figures name them, alike within each suite")


def _memory(evidence: Evidence) -> Answer:
    words = ("out of memory", "outofmemory", "oom-kill", "oom killer")
    killed = [event for event in evidence.events if any(word in event.text.lower() for word in words)]
    if killed:
        return Answer(NO, f"{killed[0].source}: {killed[0].text[:120]}")
    if not evidence.events:
        return Answer(CANNOT, "no output of the processes is recorded, which would show that memory ran out")
    return Answer(YES, f"no shortage of memory in {len(evidence.events)} recorded lines of output")


def _during(diagnosis: Diagnosis, evidence: Evidence, ids: Sequence[str], online: bool) -> Answer:
    algorithm = evidence.algorithm
    if online and algorithm.family not in (None, Family.ONLINE):
        return Answer(NOT_HERE, f"{algorithm.title} training samples no data of its own")
    if CRITIC in ids and algorithm.critic is False:
        return Answer(NOT_HERE, f"{algorithm.title} training has no critic")
    return _checked(diagnosis, ids)


def _checked(diagnosis: Diagnosis, ids: Sequence[str]) -> Answer:
    """Answer from the checks: no where one found its failure, yes only where each of them could judge."""
    for finding in diagnosis.findings:
        if finding.id in ids and finding.severity.at_least(Severity.MEDIUM):
            since = f", since step {finding.onset_step}" if finding.onset_step is not None else ""
            return Answer(NO, f"{finding.claim}{since}")
    healthy = {check.id: check.reason for check in diagnosis.healthy}
    noted = {finding.id: finding.claim for finding in diagnosis.findings}
    blind = {item.id: item for item in diagnosis.not_judged}
    asked = [name for name in ids if not (name in blind and not blind[name].applies)]
    if not asked:
        return Answer(NOT_HERE, blind[ids[0]].reason)
    told = [healthy.get(name) or noted.get(name) for name in asked]
    if all(told):
        return Answer(YES, "; ".join(reason for reason in told if reason))
    silent = [name for name, said in zip(asked, told, strict=True) if not said]
    return Answer(CANNOT, "; ".join(_why_not(name, blind.get(name)) for name in silent))


def _why_not(name: str, item: NotJudged | None) -> str:
    return f"no check named {name} looked" if item is None else item.reason


def _after(diagnosis: Diagnosis, evidence: Evidence, kept: Kept, evals: pl.DataFrame, best: Score | None) -> Rows:
    online = evidence.algorithm.family in (None, Family.ONLINE)
    nobody = Answer(NOT_HERE, f"{evidence.algorithm.title} training has no reward of its own to audit")
    return [
        ("The best checkpoint by evaluation is kept", _on_disk(kept, kept.best, judged=best is not None)),
        ("The last checkpoint is kept", _on_disk(kept, kept.last, judged=True)),
        ("The first checkpoint after the failure is kept", _failed(kept)),
        ("Samples for an audit of the reward are kept", _audit(diagnosis) if online else nobody),
        ("More than one seed was run", Answer(CANNOT, "a run dir holds one seed; compare it with those of the others")),
        ("A private test set was reported", _private(evals)),
    ]


def _on_disk(kept: Kept, role: Role, *, judged: bool) -> Answer:
    """Tell whether a checkpoint is kept; a run dir without any says nothing of where else they may lie."""
    if not kept.held or not judged:
        return Answer(CANNOT, role.note)
    if role.held is None:
        return Answer(NO, role.note)
    if not role.held.weights:
        return Answer(CANNOT, f"{role.held.path} holds no weights; they may lie elsewhere")
    return Answer(YES, f"{role.held.path}: {role.note}")


def _failed(kept: Kept) -> Answer:
    if kept.onset is None:
        unknown = kept.broken.note.startswith("cannot")
        return Answer(CANNOT if unknown else NOT_HERE, kept.broken.note)
    return _on_disk(kept, kept.broken, judged=True)


def _audit(diagnosis: Diagnosis) -> Answer:
    frame = diagnosis.tables.get("trajectories")
    if frame is None or frame.is_empty() or not {"reward", "step"} <= set(frame.columns):
        return Answer(CANNOT, "no sampled trajectory is recorded")
    held = frame.filter(pl.col("reward").is_finite())
    if held.height < AUDITED:
        return Answer(NO, f"{held.height} of {frame.height} recorded samples have a reward")
    steps, rewards = held["step"].drop_nulls().to_numpy(), held["reward"].to_numpy()
    until = f", up to step {int(steps.max())}" if len(steps) else ""
    low, high = float(rewards.min()), float(rewards.max())
    return Answer(YES, f"{held.height} samples with rewards of {low:.3g} to {high:.3g}{until}")


def _private(evals: pl.DataFrame) -> Answer:
    words = ("private", "held_out", "held-out", "heldout", "hidden")
    suites = sorted(set(evals["suite"].drop_nulls().to_list())) if not evals.is_empty() else []
    named = [suite for suite in suites if any(word in suite.lower() for word in words)]
    if named:
        return Answer(YES, f"figures of {named[0]}")
    if suites:
        return Answer(CANNOT, f"no suite is called private: {', '.join(suites[:3])}")
    return Answer(CANNOT, "no figures of an evaluated suite are in the run dir")


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
    kept = roles(diagnosis, checkpoints_among(files), best)
    tables = {
        "checkpoints": checkpoint_table(kept),
        "context": context_table(evidence, read_papers(files), evals, bool(evaluated)),
        "checklists": checklist_table(diagnosis, evidence, kept, evals, best),
    }
    return with_names(replace(diagnosis, tables={**diagnosis.tables, **tables}), kept)
