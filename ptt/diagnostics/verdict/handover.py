"""What a run must hand over beside its verdict: which checkpoints to keep, its context, and the three checklists."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.algorithm import samples_texts
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Diagnosis, JsonScalar, Severity, in_unit, since_words
from ptt.diagnostics.parsers.io.interface import RunFile
from ptt.diagnostics.scrub.scrub import Scrubber, Sort
from ptt.diagnostics.store.diagnosis import with_tables
from ptt.diagnostics.verdict.checkpoints import (
    CheckpointRoles,
    Role,
    assign_roles,
    best_score,
    checkpoint_table,
    find_checkpoints,
    with_checkpoint_names,
)
from ptt.diagnostics.verdict.outcome import with_checkpoint
from ptt.diagnostics.wording import counted, sig

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

MAX_BYTES: Final = 1 << 20  # metadata beside the logs are smaller
MAX_FILES: Final = 200  # opened: checkpoints repeat theirs
COMMIT: Final = re.compile(r"[0-9a-f]{7,40}")
VERSION: Final = re.compile(r"\d[\w.+!-]{0,30}")
NAME: Final = re.compile(r"[\w][\w.+-]{0,95}(?:/[\w][\w.+-]{0,95})?")
PACKAGES: Final = (
    "torch", "transformers", "trl", "verl", "openrlhf", "vllm", "sglang", "deepspeed", "accelerate", "peft",
    "megatron-core", "flash-attn", "ray", "datasets", "tokenizers", "verifiers", "unsloth", "numpy",
)  # fmt: skip
CONFIGS: Final = frozenset(
    {"config.yaml", "config.yml", "config.toml", "config.json", "args.json", "hparams.yaml", "params.json",
     "training_args.bin", "training_args.json", "run_config.yaml", "hydra.yaml", "overrides.yaml",
     "rl.toml", "trainer.toml", "orchestrator.toml"}
)  # fmt: skip
DIFFS: Final = frozenset({"code.diff", "git.diff", "diff.patch"})
MAX_GAPS: Final = 5  # named
UNREAD: Final = "in a file whose values ptt does not read"


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


@dataclass(frozen=True)
class Recorded:
    """One value that a file of metadata records, and which file."""

    value: str
    source: str


Metadata = Mapping[str, Recorded]
"""By what is recorded: commit, dirty, diff, packages, model, dataset, config, command."""


def read_run_metadata(files: Sequence[RunFile]) -> Metadata:
    """Read the metadata among a run's files; the first that records a value counts, those nearest to the top first."""
    metadata: dict[str, Recorded] = {}
    opened, scrubber = 0, Scrubber()
    for file in sorted(files, key=lambda file: (file.rel.count("/"), file.rel)):
        name = file.rel.rsplit("/", 1)[-1]
        if _is_settings(file.rel):
            metadata.setdefault("config", Recorded(UNREAD, file.rel))
        if name in DIFFS:
            metadata.setdefault("diff", Recorded("recorded", file.rel))
        if name not in READERS or file.size > MAX_BYTES or opened == MAX_FILES:
            continue
        opened += 1
        try:
            text = file.path.read_bytes()[:MAX_BYTES].decode("utf-8", "replace")
        except OSError:  # gone or locked since the listing: then nothing is known of it
            continue
        for key, value in READERS[name](text).items():
            metadata.setdefault(key, Recorded(scrubber.text(value, Sort.ID), file.rel))
    return metadata


def _is_settings(rel: str) -> bool:
    """Return whether a file holds settings; a checkpoint's config.json describes the model, not the training."""
    path = PurePosixPath(rel)
    in_checkpoint = any(re.search(r"\d", part) for part in path.parts[:-1])
    return path.name in CONFIGS and not (path.name == "config.json" and in_checkpoint)


def _json(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _valid(**values: object) -> dict[str, str]:
    """Keep the values that look like what they should be; of a path its last part."""
    valid = {}
    for key, value in values.items():
        if not isinstance(value, str) or value in {"", "None", "null"}:
            continue
        text = PurePosixPath(value).name if key != "commit" and value[0] in "/.~" else value
        if (COMMIT if key == "commit" else NAME).fullmatch(text):
            valid[key] = text
    return valid


def _wandb(text: str) -> dict[str, str]:
    metadata = _json(text)
    git, program = metadata.get("git"), metadata.get("program")
    values = _valid(commit=git.get("commit") if isinstance(git, dict) else None)
    name = PurePosixPath(program).name if isinstance(program, str) else ""
    if re.fullmatch(r"[\w.-]{1,80}", name):
        values["command"] = f"the command that started it ({name})"
    return values


def _run_metadata(text: str) -> dict[str, str]:
    metadata = _json(text)
    values = _valid(
        commit=metadata.get("git_sha") or metadata.get("git_commit") or metadata.get("commit"),
        model=metadata.get("model_name"),
        dataset=metadata.get("dataset_name"),
    )
    dirty = metadata.get("git_dirty")
    if isinstance(dirty, bool) and "commit" in values:
        values["dirty"] = "yes" if dirty else "no"
    return values


def _commit(text: str) -> dict[str, str]:
    return _valid(commit=text.strip())


def _requirements(text: str) -> dict[str, str]:
    pinned = dict(re.findall(r"^([A-Za-z0-9_.-]+)==([^\s;#]+)", text, re.MULTILINE))
    return _packages({name.lower().replace("_", "-"): version for name, version in pinned.items()})


def _model_card(text: str) -> dict[str, str]:
    """Read a model card that transformers wrote: the versions it lists, the model and the data it names."""
    versions = {name.lower(): value for name, value in re.findall(r"^- ([A-Za-z]+): (\S+)\s*$", text, re.MULTILINE)}
    named = dict(reversed(re.findall(r"^(base_model|datasets): (\S+)\s*$", text, re.MULTILINE)))  # the first counts
    packages = _packages({"torch": versions.pop("pytorch", "")} | versions)
    return packages | _valid(model=named.get("base_model"), dataset=named.get("datasets"))


def _packages(versions: Mapping[str, str]) -> dict[str, str]:
    known = [f"{name} {versions[name]}" for name in PACKAGES if VERSION.fullmatch(versions.get(name, ""))]
    return {"packages": ", ".join(known)} if known else {}


def _model_config(text: str) -> dict[str, str]:
    config = _json(text)
    version = config.get("transformers_version")
    packages = _packages({"transformers": version}) if isinstance(version, str) else {}
    return _valid(model=config.get("_name_or_path")) | packages


READERS: Final[Mapping[str, Callable[[str], dict[str, str]]]] = {
    "wandb-metadata.json": _wandb,
    "run_metadata.json": _run_metadata,
    "run_metadata_start.json": _run_metadata,
    "metadata.json": _run_metadata,
    "mlflow.source.git.commit": _commit,
    "requirements.txt": _requirements,
    "README.md": _model_card,
    "config.json": _model_config,
}


CONTEXT_SCHEMA: Final = {
    "item": pl.String,
    "present": pl.Boolean,  # null: a fact to know, which is neither present nor missing
    "value": pl.String,
    "source": pl.String,  # which file tells it
    "enable": pl.String,  # how to record it, where it is missing
}
TRACKER: Final = {
    "trl": 'report_to="wandb" in the trainer\'s config, with WANDB_MODE=offline',
    "verl": 'trainer.logger=["console","wandb"] with WANDB_MODE=offline',
    "slime": "--use-wandb --wandb-mode offline",
    "nemo-rl": "logger.wandb_enabled=true with WANDB_MODE=offline",
    "skyrl": "trainer.logger=wandb with WANDB_MODE=offline",
}
"""The framework's own line that has a tracker write settings, commit, packages and command beside the logs."""
DECIDING: Final = ("temperature", "max_tokens")  # without either, nobody can repeat an evaluation
SEEDS: Final = ("seed", "data_seed", "random_seed")
ANYWHERE: Final = {
    "settings": "copy the resolved settings into the run folder at the start",
    "seed": "write the seed into the logged settings, one run folder per seed",
    "code": "write the output of git rev-parse HEAD and of git diff into the run folder at the start",
    "packages": "write the output of pip freeze to requirements.txt in the run folder at the start",
    "model": "log the model's name and revision with the settings",
    "dataset": "log the data set's name, revision and split with the settings",
    "evaluation": "write the evaluation command, with temperature, max_tokens and tool set, beside its results",
}
TRACKED: Final = frozenset({"settings", "code", "packages"})  # what a tracker writes by itself


def context_table(evidence: Evidence, metadata: Metadata, evals: pl.DataFrame, *, evaluated: bool) -> pl.DataFrame:
    """Return each item of the run's context with its value, or with how to record it."""
    facts = evidence.run.context
    seed = next((name for name in SEEDS if facts.get(name) is not None), None)
    logged = len(evidence.run.settings)
    settings = Recorded(counted(logged, "setting(s)"), "the logs") if logged else metadata.get("config")
    commit, config = metadata.get("commit"), metadata.get("config")
    if settings is not None and config is not None:
        settings = Recorded(settings.value, config.source)
    items = {
        "settings": settings,
        "seed": Recorded(str(facts[seed]), "the logged settings") if seed else None,
        "code": commit and Recorded(_code(metadata), commit.source),
        "packages": metadata.get("packages") or _logged_packages(facts),
        "model": metadata.get("model"),
        "dataset": metadata.get("dataset"),
    }
    rows = [_row(evidence, item, recorded) for item, recorded in items.items()]
    rows += [_evaluation(evidence, evals, evaluated=evaluated), *_completeness(evidence)]
    return pl.DataFrame(rows, schema=CONTEXT_SCHEMA, orient="row")


def _logged_packages(facts: Mapping[str, JsonScalar]) -> Recorded | None:
    """Return the versions that stand among the logged settings."""
    suffix = "_version"
    logged = {name.removesuffix(suffix): str(value) for name, value in facts.items() if name.endswith(suffix) and value}
    packages = _packages({name.replace("_", "-"): value for name, value in logged.items()}).get("packages")
    return None if packages is None else Recorded(packages, "the logged settings")


Row = tuple[str, bool | None, str, str, str]


def _row(evidence: Evidence, item: str, recorded: Recorded | None) -> Row:
    if recorded is not None:
        return item, True, recorded.value, recorded.source, ""
    tracker = TRACKER.get(evidence.run.framework or "") if item in TRACKED else None
    advice = ANYWHERE[item] + (f", or let a tracker do it: {tracker}" if tracker else "")
    return item, False, "", "", advice


def _code(metadata: Metadata) -> str:
    commit = f"commit {metadata['commit'].value}"
    if "diff" in metadata:
        return f"{commit} and a diff"
    dirty = "dirty" in metadata and metadata["dirty"].value == "yes"
    return f"{commit}, with changes that are not recorded" if dirty else commit


def _evaluation(evidence: Evidence, evals: pl.DataFrame, *, evaluated: bool) -> Row:
    """Return the settings an evaluation was taken under; figures without them do not make a protocol."""
    protocol = {column: set(evals[column].drop_nulls()) for column in DECIDING}
    for setting in evidence.evaluation.settings if evidence.evaluation is not None else ():
        if setting.name != "samples":  # how large the suite is, not how it is sampled
            protocol.setdefault(setting.name, set()).update(value for _, value in setting.points)
    if any(protocol[column] for column in DECIDING):
        values = [
            f"{name} {', '.join(f'{one:g}' for one in sorted(found))}" for name, found in protocol.items() if found
        ]
        source = evals["source"].drop_nulls().min() or "the logged metrics"
        return _row(evidence, "evaluation", Recorded(", ".join(values), str(source)))
    item, present, value, source, advice = _row(evidence, "evaluation", None)
    logged = "figures are logged, but neither temperature nor max_tokens: " if evaluated or evals.height else ""
    return item, present, value, source, logged + advice


def _completeness(evidence: Evidence) -> list[Row]:
    """Return whether the record is whole: steps written twice, and steps that are missing."""
    rows: list[Row] = []
    segments, validity = evidence.segments, evidence.validity
    if segments is not None:
        overlaps = [*segments.metrics, *([segments.sequences] if segments.sequences is not None else [])]
        value = "; ".join(
            f"steps {overlap.first_step} to {overlap.last_step} are recorded twice ({overlap.steps} steps)"
            for overlap in overlaps
        )
        names = list(dict.fromkeys(name for overlap in overlaps for name in overlap.sources))
        source = ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")
        nothing = (True, "no step is recorded twice", "all logs")
        rows.append(("resumed", *((None, value, source) if overlaps else nothing), ""))
    if validity is not None:
        gaps = validity.coverage.step_gaps
        value = "; ".join(f"nothing between steps {low} and {high}" for low, high in gaps[:MAX_GAPS])
        more = f"; {len(gaps) - MAX_GAPS} more gaps" if len(gaps) > MAX_GAPS else ""
        nothing_missing = (True, "no gap in the recorded steps")
        rows.append(("gaps", *((None, value + more) if gaps else nothing_missing), "the recorded sequences", ""))
    return rows
